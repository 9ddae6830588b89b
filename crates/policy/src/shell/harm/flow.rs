//! What commands do together: what one fetches another runs, what one gathers another sends, and what never ends.

use super::inline::{is_interpreter, reads_program};
use super::{Call, Harm};
use crate::shell::unwrap::{Inner, is_shell, mark_of_xargs, unwrap};
use crate::shell::word::Word;

/// A command of a pipeline, out of its wrappers.
pub(in crate::shell) struct Part {
    words: Vec<Word>,
    /// What `xargs` puts a line in place of.
    mark: Option<String>,
}

impl Part {
    pub(in crate::shell) fn of(words: &[Word]) -> Self {
        let mut words = words.to_vec();
        let mut mark = None;
        for _ in 0..WRAPPERS_MAX {
            match unwrap(&words) {
                Inner::Command { at, more, .. } if at > 0 => {
                    let own: Vec<Word> = words.drain(..at).collect();
                    mark = if more { mark_of_xargs(&own).or(mark) } else { mark };
                }
                Inner::None | Inner::Command { .. } | Inner::Script { .. } | Inner::Stdin | Inner::Unseen(_) => break,
            }
        }
        Self { words, mark }
    }

    fn base(&self) -> &str {
        self.words.first().map(|word| word.text.as_str()).unwrap_or_default().rsplit('/').next().unwrap_or_default()
    }

    fn call(&self) -> Call<'_> {
        Call::new(self.base(), &self.words)
    }

    /// It brings something from another machine.
    pub(in crate::shell) fn fetches(&self) -> bool {
        FETCHERS.contains(&self.base())
            || CONNECTS.contains(&self.base())
            || self.words.iter().any(|word| word.text.contains("/dev/tcp/"))
            || (self.base() == "openssl" && self.call().names(&["s_client"]))
            || (self.base() == "gh" && self.call().names(&["api"]))
    }

    /// It makes something readable, and so runnable, that was not.
    pub(in crate::shell) fn decodes(&self) -> bool {
        let call = self.call();
        match self.base() {
            "base64" | "base32" | "basenc" | "gbase64" => call.has(&["--decode"]) || call.letter(&['d', 'D']),
            "xxd" => call.letter(&['r']) || call.has(&["-revert"]),
            "openssl" => call.names(&["enc", "base64", "aes-256-cbc", "rsautl", "pkeyutl"]) && call.letter(&['d']),
            "gunzip" | "zcat" | "bzcat" | "xzcat" | "bunzip2" | "unxz" | "zstdcat" | "uudecode" | "rev" | "tr" => true,
            "gzip" | "bzip2" | "xz" | "zstd" => call.letter(&['d']) || call.has(&["--decompress"]),
            "gpg" | "age" => call.letter(&['d']) || call.has(&["--decrypt"]),
            "printf" | "echo" => {
                call.args.iter().any(|arg| arg.contains("\\x") || arg.contains("\\0") || arg.contains("\\1"))
            }
            _ => false,
        }
    }

    /// It runs what it is given on standard input.
    pub(in crate::shell) fn runs_input(&self) -> bool {
        if is_shell(self.base()) {
            // `xargs bash -c` is given its text as a word
            let lacks_text = self.words.last().is_some_and(|last| last.text == "-c");
            let is_put_in = |mark: &String| {
                self.words.iter().skip_while(|word| word.text != "-c").any(|word| word.text.contains(mark))
            };
            return lacks_text
                || self.mark.as_ref().is_some_and(is_put_in)
                || matches!(unwrap(&self.words), Inner::Stdin);
        }
        reads_program(self.base(), &self.words)
            || (self.base() == "xargs" && self.words.iter().any(|word| is_shell(&word.text)))
            || (self.base() == "parallel" && self.words.len() == 1)
    }

    /// It sends what it is given to another machine.
    fn sends(&self) -> bool {
        let call = self.call();
        let from_input =
            |arg: &&str| arg.ends_with("@-") || *arg == "-" || arg.ends_with("=-") || arg.ends_with("/dev/stdin");
        match self.base() {
            "curl" | "wget" | "http" | "https" | "xh" => call.args.iter().any(&from_input),
            "aws" | "gsutil" | "rclone" | "az" | "gcloud" | "gh" | "glab" => {
                call.args.iter().any(&from_input) || call.names(&["rcat"])
            }
            "ssh" | "mail" | "mailx" | "mutt" | "sendmail" | "msmtp" | "swaks" | "ftp" | "lftp" | "sftp" => true,
            "openssl" => call.names(&["s_client"]),
            base => CONNECTS.contains(&base) || self.words.iter().any(|word| word.text.contains("/dev/tcp/")),
        }
    }

    /// It is given to a machine on the network in its words.
    pub(in crate::shell) fn speaks_out(&self) -> bool {
        FETCHERS.contains(&self.base())
            || CONNECTS.contains(&self.base())
            || ["ssh", "scp", "rsync", "dig", "nslookup", "host", "ping", "drill", "mail"].contains(&self.base())
    }

    /// It prints what nobody asked it to send: all variables, a whole tree.
    pub(in crate::shell) fn gathers(&self) -> bool {
        let call = self.call();
        match self.base() {
            "env" | "printenv" => call.operands().is_empty(),
            "set" | "history" => call.args.is_empty(),
            "export" | "declare" | "typeset" => call.has(&["-p", "-x"]) && call.operands().is_empty(),
            "tar" => {
                call.has(&["--create"])
                    || call.args.first().is_some_and(|first| {
                        first.trim_start_matches('-').starts_with(['c', 'C']) || first.contains('c')
                    })
            }
            "zip" | "7z" => call.letter(&['r']) || call.names(&["a"]),
            "cpio" => call.letter(&['o']),
            "git" => call.names(&["bundle", "archive"]),
            "pg_dump" | "pg_dumpall" | "mysqldump" | "mongodump" | "mariadb-dump" => true,
            "ps" => call.args.iter().any(|arg| arg.contains('e') && !arg.starts_with('-')),
            _ => false,
        }
    }

    fn connects(&self) -> bool {
        CONNECTS.contains(&self.base()) || (self.base() == "openssl" && self.call().names(&["s_client"]))
    }

    /// It prints without end.
    fn never_ends(&self) -> bool {
        let endless = self.words.iter().skip(1).any(|word| {
            ENDLESS.contains(&word.text.as_str())
                || word.text.strip_prefix("if=").is_some_and(|device| ENDLESS.contains(&device))
        });
        let call = self.call();
        match self.base() {
            "cat" | "tac" | "cp" | "base64" | "base32" | "gzip" | "tr" | "sort" | "grep" | "strings" | "sha256sum"
            | "md5sum" | "tee" | "dd" => endless && !call.args.iter().any(|arg| arg.starts_with("count=")),
            "xxd" | "od" | "hexdump" => endless && !call.letter(&['l', 'N', 'n']),
            "tail" => endless,
            "head" => {
                endless
                    && call.args.iter().any(|arg| {
                        super::machine::size(arg.trim_start_matches("-c").trim_start_matches("--bytes="))
                            .is_some_and(|size| size >= super::machine::HUGE)
                    })
            }
            _ => false,
        }
    }
}

/// What the parts of a pipeline do together. `written`: the output of the last part goes to a file.
pub(in crate::shell) fn pipeline(parts: &[Part], written: bool) -> Option<Harm> {
    for (at, part) in parts.iter().enumerate() {
        let before = parts.get(..at).unwrap_or_default();
        if part.runs_input() {
            if before.iter().any(Part::fetches) {
                return Some(Harm::runs_unseen("it runs what it fetches from another machine, unread"));
            }
            if before.iter().any(Part::decodes) {
                return Some(Harm::runs_unseen("it runs what it decodes, unread"));
            }
            if parts.get(at + 1..).unwrap_or_default().iter().any(Part::connects) {
                return Some(Harm::runs_unseen("it connects a shell to another machine"));
            }
        }
        if part.sends() && before.iter().any(Part::gathers) {
            return Some(Harm::sends_out("it sends all variables or a whole tree to another machine"));
        }
    }
    let last = parts.last()?;
    let yes = last.base() == "yes" && written;
    (yes || last.never_ends()).then(|| Harm::exhausts("it never ends, and fills what it writes to"))
}

/// A command that runs or sends what a substitution in its words, `inside`, brings.
pub(in crate::shell) fn substituted(words: &[Word], inside: &[Part]) -> Option<Harm> {
    let part = Part::of(words);
    let base = part.base();
    let runs = is_shell(base)
        || is_interpreter(base)
        || matches!(base, "eval" | "source" | "." | "exec" | "xargs")
        || words.first().is_some_and(|first| first.known().is_none());
    if runs
        && inside
            .iter()
            .any(|part| part.fetches() || part.decodes() && !matches!(part.base(), "tr" | "rev" | "echo" | "printf"))
    {
        return Some(Harm::runs_unseen("it runs what it fetches or decodes, unread"));
    }
    if part.speaks_out() && inside.iter().any(Part::gathers) {
        return Some(Harm::sends_out("it sends all variables or a whole tree to another machine"));
    }
    None
}

/// Programs that give whoever is on the other side a shell.
pub(super) fn opens_a_door(call: &Call<'_>) -> Option<Harm> {
    let opens = match call.base {
        "nc" | "ncat" | "netcat" | "nc.traditional" | "nc.openbsd" => {
            call.letter(&['e'])
                || call.has(&["--exec", "--sh-exec", "--lua-exec"])
                || (call.letter(&['c'])
                    && call.args.iter().any(|arg| is_shell(arg.rsplit('/').next().unwrap_or_default())))
        }
        "socat" => call.args.iter().any(|arg| {
            let arg = arg.to_uppercase();
            arg.contains("EXEC:") || arg.contains("SYSTEM:") || arg.contains("SHELL:")
        }),
        _ => false,
    };
    opens.then(|| Harm::runs_unseen(format!("{} connects a program to another machine", call.base)))
}

/// The folder that a command brings a whole tree into from elsewhere: a clone.
pub(in crate::shell) fn cloned_to(words: &[Word]) -> Option<String> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let base = texts.first()?.rsplit('/').next()?;
    let at = texts.iter().position(|text| *text == "clone").filter(|_| matches!(base, "git" | "hg" | "gh" | "jj"))?;
    let mut operands = Vec::new();
    let mut rest = texts.get(at + 1..)?.iter();
    while let Some(text) = rest.next() {
        match *text {
            "-b" | "-o" | "-c" | "-u" | "-j" | "--branch" | "--depth" | "--origin" | "--config" | "--reference"
            | "--template" | "--filter" | "--jobs" | "--separate-git-dir" | "--upload-pack" => drop(rest.next()),
            text if text.starts_with('-') => {}
            text => operands.push(text),
        }
    }
    let from = operands.first()?.trim_end_matches('/');
    let name = from.rsplit(['/', ':']).next()?.trim_end_matches(".git");
    Some(operands.get(1).copied().unwrap_or(name).to_owned())
}

/// Where a fetching command puts what it brings, as it is written.
pub(in crate::shell) fn fetched_to(words: &[Word]) -> Vec<String> {
    let part = Part::of(words);
    let base = part.base();
    if !matches!(base, "curl" | "wget" | "aria2c") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut named_by_url = base != "curl";
    let mut args = part.words.iter().skip(1).map(|word| word.text.as_str());
    while let Some(arg) = args.next() {
        match (base, arg) {
            ("curl" | "aria2c", "-o" | "--output" | "--out") | ("wget", "-O" | "--output-document") => {
                found.extend(args.next().map(str::to_owned));
                named_by_url = false;
            }
            ("curl", "-O" | "--remote-name") => named_by_url = true,
            _ => {
                if let Some(file) = arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("--output-document=")) {
                    found.push(file.to_owned());
                } else if arg.starts_with('-')
                    && !arg.starts_with("--")
                    && (arg.ends_with('o') && base == "curl" || arg.ends_with('O') && base == "wget")
                {
                    found.extend(args.next().map(str::to_owned));
                    named_by_url = false;
                } else if base == "curl" && arg.starts_with('-') && !arg.starts_with("--") && arg.contains('O') {
                    named_by_url = true;
                }
            }
        }
    }
    if named_by_url {
        let urls = part
            .words
            .iter()
            .skip(1)
            .filter(|word| word.text.contains("://") || (word.text.contains('/') && word.text.contains('.')));
        found.extend(
            urls.filter_map(|url| url.text.rsplit('/').next()).filter(|name| !name.is_empty()).map(str::to_owned),
        );
    }
    found
}

/// Programs that bring what an address names.
const FETCHERS: [&str; 14] = [
    "curl",
    "wget",
    "wget2",
    "fetch",
    "aria2c",
    "http",
    "https",
    "xh",
    "httpie",
    "lynx",
    "w3m",
    "links",
    "lwp-request",
    "GET",
];
/// Programs that connect their input and output to another machine.
const CONNECTS: [&str; 8] = ["nc", "ncat", "netcat", "nc.traditional", "nc.openbsd", "socat", "telnet", "websocat"];
const ENDLESS: [&str; 4] = ["/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"];
const WRAPPERS_MAX: usize = 8;
