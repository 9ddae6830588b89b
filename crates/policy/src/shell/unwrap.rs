//! Commands that run other commands: `timeout 10 ls`, `sudo rm`, `sh -c '…'`.
//!
//! Read [`unwrap`] first. Where a wrapper's syntax is known the command inside is judged like any other; where it is not,
//! it is said so.

use super::word::{Kind, Word};

/// What a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inner {
    /// It is no wrapper.
    None,
    /// The command whose name stands at `at`. `more`: it is given further words that nobody can see.
    Command { at: usize, more: bool, wrapper: Wrapper },
    /// Shell text, which ends at the word `at`.
    Script { text: String, at: usize, wrapper: Wrapper },
    /// Shell text from standard input.
    Stdin,
    /// Something that cannot be seen.
    Unseen(String),
}

/// What a wrapper adds to what it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrapper {
    /// Nothing that matters.
    Transparent,
    /// Something worth asking about: other rights, another machine, another folder, other variables.
    Adds(&'static str),
}

/// How a wrapper is written.
struct Syntax {
    name: &'static str,
    /// Options with a value: letters and words.
    valued: &'static [&'static str],
    /// Options without a value that add nothing.
    plain: &'static [&'static str],
    /// Words between the options and the command.
    operands: usize,
    adds: Option<&'static str>,
}

pub(crate) fn unwrap(words: &[Word]) -> Inner {
    let Some(name) = words.first().and_then(Word::known) else { return Inner::None };
    let name = name.rsplit('/').next().unwrap_or_default();
    match name {
        name if is_shell(name) => return shell(words),
        "eval" => {
            let at = words.iter().position(|word| word.text != "eval").unwrap_or(words.len());
            return joined(words, at, Wrapper::Transparent);
        }
        "env" => return env(words),
        "trap" => {
            return match words.get(1).and_then(Word::known) {
                Some(text) if !text.starts_with('-') => {
                    Inner::Script { text: text.to_owned(), at: 1, wrapper: Wrapper::Adds("runs later") }
                }
                Some(_) | None => Inner::Unseen("a trap that cannot be told".to_owned()),
            };
        }
        "su" | "script" | "runuser" => {
            let option = words.iter().position(|word| matches!(word.known(), Some("-c" | "--command" | "-qc")));
            return match option.and_then(|at| Some((at + 1, words.get(at + 1)?.known()?.to_owned()))) {
                Some((at, text)) => {
                    Inner::Script { text, at, wrapper: Wrapper::Adds("runs it as somebody else or elsewhere") }
                }
                None => Inner::Unseen(format!("what {name} runs cannot be told")),
            };
        }
        "flock" if words.iter().any(|word| matches!(word.text.as_str(), "-c" | "--command")) => {
            let at = words.iter().position(|word| matches!(word.text.as_str(), "-c" | "--command")).unwrap_or_default();
            return match words.get(at + 1).and_then(Word::known) {
                Some(text) => {
                    Inner::Script { text: text.to_owned(), at: at + 1, wrapper: Wrapper::Adds("waits for others") }
                }
                None => Inner::Unseen("what flock runs cannot be told".to_owned()),
            };
        }
        "watch" | "ssh" => {
            let syntax = SHELL_WRAPPERS.iter().find(|syntax| syntax.name == name);
            return match syntax.and_then(|syntax| options(syntax, words)) {
                Some((at, _)) if at < words.len() => {
                    joined(words, at, Wrapper::Adds("runs it again and again, or elsewhere"))
                }
                Some(_) | None => Inner::Unseen(format!("what {name} runs cannot be told")),
            };
        }
        "command" if matches!(words.get(1).and_then(Word::known), Some("-v" | "-V")) => return Inner::None,
        _ => {}
    }
    if let Some(inner) = inside(name, words) {
        return inner;
    }
    if matches!(name, "tmux" | "screen" | "hyperfine" | "nix-shell" | "entr")
        && let Some(last) = words.last().filter(|word| words.len() > 1 && word.text.contains(' '))
    {
        let wrapper = Wrapper::Adds("runs it in other surroundings");
        return Inner::Script { text: last.text.clone(), at: words.len() - 1, wrapper };
    }
    let Some(syntax) = WRAPPERS.iter().find(|syntax| syntax.name == name) else { return Inner::None };
    match options(syntax, words) {
        Some((at, all_plain)) if at < words.len() => {
            let own = words.get(..at).unwrap_or_default();
            let wrapper = match (syntax.adds, all_plain) {
                (Some(adds), _) => Wrapper::Adds(adds),
                (None, _) if name == "xargs" && file_of_xargs(own).is_some() => {
                    Wrapper::Adds("is given further words by a file")
                }
                (None, true) => Wrapper::Transparent,
                (None, false) => Wrapper::Adds("has options that are not known"),
            };
            Inner::Command { at, more: name == "xargs", wrapper }
        }
        Some(_) | None => Inner::Unseen(format!("what {name} runs cannot be told")),
    }
}

/// What `xargs`, given these words of its own, puts each line in place of.
pub(crate) fn mark_of_xargs(own: &[Word]) -> Option<String> {
    let replaces = |word: &Word| word.text.starts_with("-i") || word.text.starts_with("--r");
    let mark = value_of_xargs(own, 'I', "--replace").map(|mark| mark.text);
    mark.or_else(|| own.iter().any(replaces).then(|| "{}".to_owned())).filter(|mark| !mark.is_empty())
}

/// The file that `xargs` reads in place of its input.
pub(crate) fn file_of_xargs(own: &[Word]) -> Option<Word> {
    value_of_xargs(own, 'a', "--arg-file")
}

/// What an option of `xargs` is given, glued to other letters too.
fn value_of_xargs(own: &[Word], letter: char, long: &str) -> Option<Word> {
    const VALUED: &str = "nPILdaEs";
    let mut words = own.iter().skip(1);
    while let Some(word) = words.next() {
        let of_word = |text: &str| Word { text: text.to_owned(), kind: word.kind };
        match word.text.strip_prefix(long) {
            Some("") => return words.next().cloned(),
            Some(rest) if rest.starts_with('=') => return Some(of_word(&rest[1..])),
            Some(_) | None => {}
        }
        let letters = word.text.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
        let Some((at, valued)) = letters.char_indices().find(|(_, letter)| VALUED.contains(*letter)) else { continue };
        let value = match letters.get(at + 1..).unwrap_or_default() {
            "" => words.next().cloned(),
            glued => Some(of_word(glued)),
        };
        if valued == letter {
            return value;
        }
    }
    None
}

/// Whether a name is that of a shell.
pub(crate) fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "rbash" | "fish")
}

/// What runs inside a container or a project's own surroundings: `docker exec web ls`, `uv run pytest`.
fn inside(name: &str, words: &[Word]) -> Option<Inner> {
    const VALUED: [&str; 22] = [
        "-e",
        "--env",
        "-v",
        "--volume",
        "-w",
        "--workdir",
        "-u",
        "--user",
        "-p",
        "--publish",
        "--name",
        "--network",
        "--net",
        "-n",
        "--namespace",
        "-c",
        "--container",
        "--mount",
        "--entrypoint",
        "--platform",
        "--env-file",
        "-h",
    ];
    let text = |at: usize| words.get(at).map(|word| word.text.as_str()).unwrap_or_default();
    let from = match (name, text(1), text(2)) {
        ("uv" | "poetry" | "pipenv" | "pdm" | "hatch" | "rye", "run", _) | ("bundle" | "mise", "exec", _) => 2,
        ("ip", "netns", "exec") => 4,
        ("docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "docker-compose", _, _) => {
            let verb = words.iter().position(|word| matches!(word.text.as_str(), "exec" | "run"))?;
            match words.iter().position(|word| word.text == "--") {
                Some(end) => end + 1,
                None => {
                    let mut at = verb + 1;
                    while text(at).starts_with('-') {
                        at += 1 + usize::from(VALUED.contains(&text(at)));
                    }
                    // the image or the container
                    at + 1
                }
            }
        }
        ("direnv", "exec", _) => 3,
        _ => return None,
    };
    (from < words.len()).then_some(Inner::Command {
        at: from,
        more: false,
        wrapper: Wrapper::Adds("runs it in other surroundings"),
    })
}

/// Whether a word names a wrapper that is followed by a command.
pub(crate) fn is_wrapper(name: &str) -> bool {
    name == "eval" || name == "env" || WRAPPERS.iter().any(|syntax| syntax.name == name)
}

/// Where the command begins, and whether all options before it are known to add nothing. None: it cannot be told.
fn options(syntax: &Syntax, words: &[Word]) -> Option<(usize, bool)> {
    let mut at = 1;
    let mut all_plain = true;
    while let Some(word) = words.get(at) {
        let text = word.known()?;
        if text == "--" {
            at += 1;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        at += 1;
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            let valued = syntax.valued.contains(&name);
            all_plain &= valued || syntax.plain.contains(&name);
            if valued && !long.contains('=') {
                // what a shell would split moves the command further on
                words.get(at)?.known()?;
                at += 1;
            }
            continue;
        }
        let letters = text.strip_prefix('-').unwrap_or_default();
        for (offset, letter) in letters.char_indices() {
            let name = letter.to_string();
            if syntax.valued.contains(&name.as_str()) {
                if offset + letter.len_utf8() == letters.len() {
                    words.get(at)?.known()?;
                    at += 1;
                }
                break;
            }
            all_plain &= letter.is_ascii_digit() || syntax.plain.contains(&name.as_str());
        }
    }
    // `sudo NAME=value command`
    while syntax.adds == RIGHTS && words.get(at).is_some_and(|word| assigned(&word.text).is_some()) {
        at += 1;
        all_plain = false;
    }
    for _ in 0..syntax.operands {
        words.get(at)?.known()?;
        at += 1;
    }
    Some((at, all_plain))
}

fn shell(words: &[Word]) -> Inner {
    let mut at = 1;
    let mut takes_text = false;
    let mut takes_input = false;
    let mut plain = true;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else { return Inner::Unseen("what the shell runs cannot be told".to_owned()) };
        let Some(letters) = text.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty()) else { break };
        at += 1;
        if text == "--" {
            break;
        }
        if matches!(text, "--rcfile" | "--init-file") {
            at += 1;
        }
        if !text.starts_with("--") {
            takes_text |= letters.contains('c') && text.starts_with('-');
            takes_input |= letters.contains('s') && text.starts_with('-');
            at += usize::from(letters.ends_with(['o', 'O']));
        }
        plain &= text == "-c";
    }
    let name = words.first().and_then(Word::known).unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let adds = match (name, plain) {
        // `\x2e` is a dot to one, `=ls` a path to the other
        ("fish" | "zsh", _) => Wrapper::Adds("reads its text by rules of its own"),
        (_, true) => Wrapper::Transparent,
        (_, false) => Wrapper::Adds("has options of the shell"),
    };
    match (takes_text, words.get(at)) {
        (true, Some(word)) => match word.known() {
            Some(text) => Inner::Script { text: text.to_owned(), at, wrapper: adds },
            None => Inner::Unseen("the text the shell runs is only known once it runs".to_owned()),
        },
        (true, None) => Inner::Unseen("the shell has no text to run".to_owned()),
        // `-`, which is also what a substituted process stands as
        (false, Some(word)) if word.text != "-" && !takes_input => {
            Inner::Unseen(format!("it runs the script {}", super::table::shown(&word.text)))
        }
        (false, Some(_) | None) => Inner::Stdin,
    }
}

fn joined(words: &[Word], from: usize, wrapper: Wrapper) -> Inner {
    let rest = words.get(from..).unwrap_or_default();
    let text = rest.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    match rest.iter().all(|word| word.known().is_some()) {
        true => Inner::Script { text, at: words.len().saturating_sub(1), wrapper },
        // what is known of it may be enough to deny it
        false => Inner::Script { text, at: usize::MAX, wrapper: Wrapper::Adds("is only known once it runs") },
    }
}

/// `env` sets variables, and splits text into words by itself.
fn env(words: &[Word]) -> Inner {
    let mut at = 1;
    let mut wrapper = Wrapper::Transparent;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else { return Inner::Unseen("what env runs cannot be told".to_owned()) };
        let split =
            text.strip_prefix("--split-string=").or_else(|| text.strip_prefix("-S").filter(|text| !text.is_empty()));
        match text {
            _ if split.is_some() => {
                let text = split.unwrap_or_default().to_owned();
                return Inner::Script { text, at, wrapper: Wrapper::Adds("splits its text by rules of its own") };
            }
            "-S" | "--split-string" | "-vS" | "-iS" => {
                return joined(words, at + 1, Wrapper::Adds("splits its text by rules of its own"));
            }
            "-i" | "--ignore-environment" | "-" | "-0" | "--null" | "-v" | "--debug" => {}
            "-u" | "--unset" | "-C" | "--chdir" => {
                at += 1;
                wrapper = Wrapper::Adds("changes the folder or the variables");
            }
            "--" => {
                at += 1;
                break;
            }
            text if assigned(text).is_some_and(|(name, value)| is_harmless(name, value)) => {}
            text if text.starts_with('-') || text.contains('=') => {
                wrapper = Wrapper::Adds("changes the folder or the variables");
            }
            _ => break,
        }
        at += 1;
    }
    if at < words.len() {
        Inner::Command { at, more: false, wrapper }
    } else {
        Inner::Unseen("env prints every variable".to_owned())
    }
}

/// The folder that `env -C` sends its command to.
pub(super) fn folder_of_env(words: &[Word]) -> Option<Word> {
    let (first, options) = words.split_first()?;
    if first.known()?.rsplit('/').next() != Some("env") {
        return None;
    }
    options.iter().enumerate().rev().find_map(|(at, word)| match word.text.as_str() {
        "-C" | "--chdir" => options.get(at + 1).cloned(),
        text => {
            let glued = text.strip_prefix("--chdir=").or_else(|| text.strip_prefix("-C"))?;
            Some(Word { text: glued.to_owned(), kind: word.kind })
        }
    })
}

/// `NAME=value`.
fn assigned(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

/// Whether a variable so set changes no more than how output looks.
pub(crate) fn is_harmless(name: &str, value: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@=,+:".contains(&byte);
    // a pager that only prints
    if matches!(name, "PAGER" | "GIT_PAGER" | "MANPAGER" | "SYSTEMD_PAGER") {
        return value == "cat";
    }
    HARMLESS_VARIABLES.contains(&name) && value.bytes().all(letters)
}

const HARMLESS_VARIABLES: [&str; 14] = [
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_NUMERIC",
    "LC_TIME",
    "LANG",
    "TZ",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "COLUMNS",
    "LINES",
];

/// A word that nobody can see, for what a wrapper adds at the end.
pub(crate) fn with_more(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    words.push(Word { text: String::new(), kind: Kind::Loose });
    words
}

const RIGHTS: Option<&str> = Some("runs it with other rights");
const ELSEWHERE: Option<&str> = Some("runs it in other surroundings");

const fn wrapper(
    name: &'static str,
    valued: &'static [&'static str],
    plain: &'static [&'static str],
    operands: usize,
    adds: Option<&'static str>,
) -> Syntax {
    Syntax { name, valued, plain, operands, adds }
}

/// Wrappers that hand their words on as they are.
const WRAPPERS: &[Syntax] = &[
    wrapper("command", &[], &["p"], 0, None),
    wrapper("builtin", &[], &[], 0, None),
    wrapper("exec", &["a"], &["c", "l"], 0, None),
    wrapper(
        "time",
        &["o", "f", "output", "format"],
        &["p", "v", "a", "portability", "verbose"],
        0,
        Some("may write its report"),
    ),
    wrapper("nice", &["n", "adjustment"], &[], 0, None),
    // Nothing outlives a command here, whatever it asks for.
    wrapper("nohup", &[], &[], 0, None),
    wrapper(
        "timeout",
        &["k", "s", "kill-after", "signal"],
        &["v", "foreground", "preserve-status", "verbose"],
        1,
        None,
    ),
    wrapper("stdbuf", &["i", "o", "e", "input", "output", "error"], &[], 0, None),
    wrapper("ionice", &["c", "n", "p", "P", "u", "class", "classdata"], &["t", "ignore"], 0, None),
    wrapper("chrt", &["p", "T", "P", "D"], &[], 1, ELSEWHERE),
    wrapper("taskset", &[], &[], 1, ELSEWHERE),
    wrapper("setsid", &[], &["c", "f", "w", "ctty", "fork", "wait"], 0, None),
    wrapper("flock", &["w", "E", "timeout", "conflict-exit-code"], &[], 1, ELSEWHERE),
    wrapper("strace", &["e", "o", "p", "s", "u", "E", "a", "S", "P"], &[], 0, ELSEWHERE),
    wrapper("ltrace", &["e", "o", "p", "s", "u", "a"], &[], 0, ELSEWHERE),
    wrapper(
        "sudo",
        &["u", "g", "h", "p", "C", "T", "r", "t", "U", "D", "R", "user", "group", "host", "prompt", "chdir", "chroot"],
        &[],
        0,
        RIGHTS,
    ),
    wrapper("doas", &["u", "C"], &[], 0, RIGHTS),
    wrapper("pkexec", &["user"], &[], 0, RIGHTS),
    wrapper("setpriv", &["reuid", "regid", "groups", "inh-caps", "ambient-caps", "bounding-set"], &[], 0, RIGHTS),
    wrapper("fakeroot", &["l", "s", "i", "b"], &[], 0, RIGHTS),
    wrapper("chroot", &["userspec", "groups"], &[], 1, ELSEWHERE),
    wrapper(
        "unshare",
        &["S", "G", "R", "w", "setuid", "setgid", "root", "wd", "map-user", "map-group", "propagation"],
        &[],
        0,
        ELSEWHERE,
    ),
    wrapper("nsenter", &["t", "S", "G", "target", "setuid", "setgid"], &[], 0, ELSEWHERE),
    wrapper("busybox", &[], &[], 0, ELSEWHERE),
    wrapper("toybox", &[], &[], 0, ELSEWHERE),
    wrapper(
        "systemd-run",
        &[
            "p",
            "u",
            "M",
            "H",
            "E",
            "property",
            "unit",
            "machine",
            "host",
            "setenv",
            "slice",
            "uid",
            "gid",
            "working-directory",
            "description",
        ],
        &[],
        0,
        ELSEWHERE,
    ),
    wrapper("dbus-run-session", &[], &[], 0, ELSEWHERE),
    wrapper("caffeinate", &["t", "w"], &[], 0, ELSEWHERE),
    wrapper("unbuffer", &[], &[], 0, ELSEWHERE),
    wrapper("rlwrap", &["H", "f", "a"], &[], 0, ELSEWHERE),
    wrapper("torsocks", &[], &[], 0, ELSEWHERE),
    wrapper("proxychains", &["f"], &[], 0, ELSEWHERE),
    wrapper("proxychains4", &["f"], &[], 0, ELSEWHERE),
    wrapper("firejail", &[], &[], 0, ELSEWHERE),
    wrapper("catchsegv", &[], &[], 0, ELSEWHERE),
    wrapper("prlimit", &["p", "o"], &[], 0, ELSEWHERE),
    wrapper("numactl", &["N", "m", "C"], &[], 0, ELSEWHERE),
    wrapper("choom", &["n", "p"], &[], 0, ELSEWHERE),
    wrapper("cpulimit", &["l", "p", "e"], &[], 0, ELSEWHERE),
    wrapper("faketime", &["f"], &[], 1, ELSEWHERE),
    wrapper("xvfb-run", &["n", "s", "e", "f", "w"], &["a"], 0, ELSEWHERE),
    wrapper("sg", &[], &[], 1, RIGHTS),
    wrapper("gosu", &[], &[], 1, RIGHTS),
    wrapper("su-exec", &[], &[], 1, RIGHTS),
    wrapper("run0", &["u", "g", "D"], &[], 0, RIGHTS),
    wrapper("parallel", &["j", "I", "a", "N", "n", "jobs", "arg-file"], &[], 0, ELSEWHERE),
    wrapper(
        "xargs",
        &[
            "n",
            "P",
            "I",
            "L",
            "d",
            "a",
            "E",
            "s",
            "max-args",
            "max-procs",
            "replace",
            "max-lines",
            "delimiter",
            "arg-file",
            "max-chars",
        ],
        &["0", "r", "t", "x", "null", "no-run-if-empty", "verbose", "exit"],
        0,
        None,
    ),
];

/// Wrappers that join their words to shell text.
const SHELL_WRAPPERS: &[Syntax] = &[
    wrapper("watch", &["n", "interval", "q"], &[], 0, None),
    wrapper(
        "ssh",
        &["B", "b", "c", "D", "E", "e", "F", "I", "i", "J", "L", "l", "m", "O", "o", "p", "Q", "R", "S", "W", "w"],
        &[],
        1,
        None,
    ),
];
