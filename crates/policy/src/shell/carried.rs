//! Commands and files that other programs find in their words: `tar --to-command=X`, `git -c core.pager=X`, `sed 'e X'`, `vim -c '!X'`.
//!
//! Read [`carried`] first. Whether the program around is asked about is for others to say; what it is made to run, read or
//! write is judged here as if it stood alone, and only a denial counts. So a harm does not become a mere question by being
//! handed over.

use std::collections::BTreeSet;

use super::harm::inline;
use super::scope::Scope;
use super::table::{Operand, Purpose};
use super::word::{Kind, Word};
use super::{Analysis, Here, Nesting, options, word};
use crate::git;
use crate::verdict::{Strictness, Verdict, own};

/// What a command is given to do beside what it does itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// Shell text.
    scripts: Vec<String>,
    reads: Vec<String>,
    writes: Vec<String>,
}

impl Analysis<'_> {
    /// What is denied of what a command carries in its words or is told on standard input.
    pub(super) fn carries(&mut self, base: &str, words: &[Word], here: &Here, nesting: Nesting) -> Verdict {
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        let carried = carried(base, words, self.stdin.as_deref());
        if carried == Carried::default() {
            return verdict;
        }
        let (effects, untold, stdin) = (self.effects.clone(), self.untold.take(), self.stdin.take());
        let executed = self.executed.clone();
        let mut found = Vec::new();
        for text in carried.scripts.iter().filter(|text| !text.trim().is_empty()) {
            found.push(self.inner_script(text, here, nesting.scripts + 1));
        }
        let paths = carried.reads.iter().map(|path| (path, Purpose::Read));
        for (path, purpose) in paths.chain(carried.writes.iter().map(|path| (path, Purpose::Write))) {
            let word = Word { text: path.clone(), kind: Kind::Literal };
            found.push(self.operand(&Operand { word, purpose }, here));
        }
        (self.effects, self.untold, self.stdin, self.executed) = (effects, untold, stdin, executed);
        for denied in found.into_iter().filter(|found| found.strictness == Strictness::Deny) {
            verdict = verdict.and(denied);
        }
        verdict
    }
}

/// What these words carry. `stdin`: the text the command is given, where that is known.
fn carried(base: &str, words: &[Word], stdin: Option<&str>) -> Carried {
    let mut carried = Carried::default();
    for (_, value) in options::programs(base, words) {
        // `--checkpoint-action=exec=X`, `-e use_askpass=X`
        let text = value.text.split_once('=').map_or(value.text.as_str(), |(name, rest)| match name.contains(' ') {
            true => value.text.as_str(),
            false => rest,
        });
        carried.scripts.push(text.to_owned());
    }
    let texts: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    match base {
        "git" => carried.of_git(&texts),
        "gdb" | "lldb" => {
            let told =
                texts.windows(2).filter(|pair| matches!(pair[0], "-ex" | "--eval-command" | "-o" | "--one-line"));
            for text in told.map(|pair| pair[1].trim()) {
                let script =
                    ["shell ", "!", "platform shell ", "pipe "].iter().find_map(|sign| text.strip_prefix(sign));
                carried.scripts.extend(script.map(str::to_owned));
            }
        }
        "npm" | "npx" | "pnpm" | "pnpx" | "yarn" | "bunx" => {
            let told = texts.windows(2).filter(|pair| matches!(pair[0], "-c" | "--call" | "script-shell"));
            carried.scripts.extend(told.map(|pair| pair[1].to_owned()));
        }
        "cmake" => {
            if let Some(at) = texts.iter().position(|text| *text == "-E") {
                let told = texts.get(at + 1..).unwrap_or_default().join(" ");
                carried.scripts.push(told.replacen("remove_directory", "rm -r", 1));
            }
        }
        "emacs" => {
            let told = texts.windows(2).filter(|pair| matches!(pair[0], "--eval" | "-eval" | "--execute"));
            let quoted = told.flat_map(|pair| inline::look(pair[1]).texts);
            carried.scripts.extend(quoted.filter(|text| text.len() > 1));
        }
        "ssh" | "scp" | "sftp" => carried.of_ssh(&texts),
        "sed" | "gsed" => carried.of_sed(&texts),
        "vim" | "vi" | "nvim" | "view" | "ex" | "gvim" => carried.of_vim(&texts, stdin),
        "ed" | "red" => stdin.into_iter().flat_map(str::lines).for_each(|line| carried.editor(line)),
        "awk" | "gawk" | "mawk" | "nawk" => carried.of_awk(words),
        "let" => texts.iter().for_each(|text| carried.computed(text)),
        // what a substitution within an index says is run, quotes or not
        "test" | "[" | "printf" | "read" | "declare" | "typeset" | "local" | "unset" | "export" => {
            texts.iter().filter(|text| has_index(text)).for_each(|text| carried.computed(text));
        }
        "make" | "gmake" => {
            carried.scripts.extend(texts.iter().filter_map(|text| text.strip_prefix("--eval=")).map(str::to_owned));
            let from_input = texts.iter().any(|text| matches!(*text, "-f-" | "--file=-" | "--makefile=-"))
                || texts.windows(2).any(|pair| matches!(pair, ["-f" | "--file" | "--makefile", "-" | "/dev/stdin"]));
            let lines = stdin.into_iter().filter(|_| from_input).flat_map(str::lines);
            let recipes =
                lines.filter_map(|line| line.strip_prefix('\t').or_else(|| line.split_once(';').map(|(_, it)| it)));
            carried.scripts.extend(recipes.map(|line| line.trim_start_matches(['@', '-', '+']).to_owned()));
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    carried.scripts.retain(|script| seen.insert(script.clone()));
    carried
}

impl Carried {
    /// Settings of one command that git has run as programs.
    fn of_git(&mut self, texts: &[&str]) {
        for pair in texts.windows(2).filter(|pair| pair[0] == "-c") {
            let (key, value) = pair[1].split_once('=').unwrap_or((pair[1], ""));
            if git::runs_a_program(&key.to_lowercase()).is_some() {
                self.scripts.push(value.trim_start_matches('!').to_owned());
            }
        }
        // what it runs for each commit, or in each submodule
        for (first, second) in [("bisect", "run"), ("submodule", "foreach")] {
            if let Some(at) = texts.windows(2).position(|pair| pair == [first, second]) {
                let told =
                    texts.iter().skip(at + 2).skip_while(|text| matches!(**text, "--recursive" | "--quiet" | "-q"));
                let words: Vec<String> =
                    told.map(|text| if second == "run" { quoted(text) } else { (*text).to_owned() }).collect();
                self.scripts.push(words.join(" "));
            }
        }
    }

    fn of_ssh(&mut self, texts: &[&str]) {
        let apart = texts.windows(2).filter(|pair| pair[0] == "-o").map(|pair| pair[1]);
        for setting in apart.chain(texts.iter().filter_map(|text| text.strip_prefix("-o"))) {
            let Some((name, value)) = setting.split_once(['=', ' ']) else { continue };
            match name.to_lowercase().as_str() {
                "proxycommand" | "localcommand" | "knownhostscommand" | "remotecommand" | "match" => {
                    self.scripts.push(value.to_owned());
                }
                "identityfile" | "certificatefile" | "include" => self.reads.push(value.to_owned()),
                _ => {}
            }
        }
    }

    /// `e COMMAND`, `s/…/COMMAND/e`, `r FILE`, `w FILE`, wherever they stand in a script.
    fn of_sed(&mut self, texts: &[&str]) {
        for text in texts {
            for command in text.split(['\n', ';', '{']) {
                let command = command.trim_start();
                // behind an address
                let at = address(command);
                let Some(command) = command.get(at..).map(|rest| rest.trim_start_matches([' ', '!'])) else { continue };
                if let Some(rest) = command.strip_prefix("e ") {
                    self.scripts.push(rest.to_owned());
                } else if let Some(rest) = command.strip_prefix(['r', 'R']).filter(|rest| is_file_of_sed(rest)) {
                    self.reads.push(rest.trim().to_owned());
                } else if let Some(rest) = command.strip_prefix(['w', 'W']).filter(|rest| is_file_of_sed(rest)) {
                    self.writes.push(rest.trim().to_owned());
                }
            }
            self.substituted(text);
        }
    }

    /// A substitution whose result is run, or written.
    fn substituted(&mut self, text: &str) {
        let Some(at) = text.find('s').filter(|at| *at <= ADDRESS_MAX) else { return };
        let Some(delimiter) = text.get(at + 1..).and_then(|rest| rest.chars().next()) else { return };
        if delimiter.is_alphanumeric() || delimiter.is_whitespace() {
            return;
        }
        let parts = split_unescaped(text.get(at + 1 + delimiter.len_utf8()..).unwrap_or_default(), delimiter);
        let [_, replacement, flags, ..] = parts.as_slice() else { return };
        let flags = flags.trim_start_matches(|letter: char| "gpiIm".contains(letter) || letter.is_ascii_digit());
        if flags.starts_with('e') {
            self.scripts.push(replacement.clone());
        }
        if let Some(file) = flags.strip_prefix('w') {
            self.writes.push(file.trim().to_owned());
        }
    }

    fn of_vim(&mut self, texts: &[&str], stdin: Option<&str>) {
        let is_command = |option: &str| {
            matches!(option, "-c" | "--cmd" | "-sc" | "-esc" | "-Esc" | "-uNONEc")
                || option.starts_with("-es") && option.ends_with('c')
        };
        let apart = texts.windows(2).filter(|pair| is_command(pair[0])).map(|pair| pair[1]);
        let plus = texts.iter().filter_map(|text| text.strip_prefix('+'));
        let told: Vec<&str> = apart.chain(plus).chain(stdin.into_iter().flat_map(str::lines)).collect();
        for command in told.iter().flat_map(|command| command.split('|')) {
            self.editor(command);
        }
    }

    /// A command of an editor of lines: `!X`, `r !X`, `w FILE`.
    fn editor(&mut self, command: &str) {
        let command = command.trim_start_matches(|letter: char| ":%,.$ ".contains(letter) || letter.is_ascii_digit());
        if let Some((before, script)) = command.split_once('!')
            && before.len() <= "silent read ".len()
        {
            self.scripts.push(script.to_owned());
        }
        let mut words = command.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("r" | "read" | "e" | "edit" | "sp" | "split" | "tabe" | "so" | "source"), Some(file)) => {
                self.reads.push(file.to_owned());
            }
            (Some("w" | "write" | "w!" | "sav" | "saveas" | "W"), Some(file)) => self.writes.push(file.to_owned()),
            (Some(_) | None, _) => {}
        }
    }

    /// `print | "X"` and `"X" | getline` run what stands in quotes.
    fn of_awk(&mut self, words: &[Word]) {
        let Some(program) = inline::of_words("awk", words) else { return };
        if program.contains('|') || program.contains("system") {
            self.scripts.extend(inline::look(&program).texts.into_iter().filter(|text| text.len() > 1));
        }
    }

    fn computed(&mut self, text: &str) {
        if text.contains("$(") || text.contains('`') {
            let scope = Scope::default();
            let nothing = word::Variables {
                home: "",
                longrein_home: None,
                here: None,
                bindings: &[],
                numbers: &[],
                scope: &scope,
                unset: word::Unset::Unknown,
            };
            self.scripts.extend(word::scripts_in(text, &nothing));
        }
    }
}

/// A word as a shell would be given it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What stands behind `r` and `w` of sed: the name of a file, with or without a blank between.
fn is_file_of_sed(rest: &str) -> bool {
    rest.starts_with([' ', '/', '.', '~'])
}

/// `NAME[…`.
pub(super) fn has_index(text: &str) -> bool {
    let name = text.split('[').next().unwrap_or_default();
    name.len() < text.len() && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// How long the address before a command of sed is, roughly.
fn address(command: &str) -> usize {
    let mut at = 0;
    let mut letters = command.char_indices().peekable();
    while let Some((from, letter)) = letters.next() {
        match letter {
            '0'..='9' | '$' | ',' | '~' | '+' | ' ' => at = from + 1,
            '/' => {
                let end = command.get(from + 1..).and_then(|rest| rest.find('/'));
                let Some(end) = end else { return at };
                at = from + 1 + end + 1;
                while letters.peek().is_some_and(|(next, _)| *next < at) {
                    letters.next();
                }
            }
            _ => return at,
        }
    }
    at
}

/// The parts between delimiters; one behind a backslash is a letter.
fn split_unescaped(text: &str, delimiter: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let part = parts.len() - 1;
        match letter {
            '\\' => match letters.next() {
                Some(next) if next == delimiter => parts[part].push(next),
                Some(next) => parts[part].extend(['\\', next]),
                None => {}
            },
            letter if letter == delimiter => parts.push(String::new()),
            letter => parts[part].push(letter),
        }
    }
    parts
}

/// An address that is longer is none.
const ADDRESS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, stdin: Option<&str>) -> String {
        let words: Vec<Word> =
            line.split('|').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect();
        let Carried { scripts, reads, writes } = carried(&words[0].text, &words, stdin);
        let reads = reads.into_iter().map(|path| format!("<{path}"));
        let all = scripts.into_iter().chain(reads).chain(writes.into_iter().map(|path| format!(">{path}")));
        all.collect::<Vec<_>>().join(" / ")
    }

    #[test]
    fn what_a_command_is_given_to_run_read_or_write_is_found() {
        for (line, found) in [
            ("tar|xf|a|--to-command=x y", "x y"),
            ("tar|cf|a|--checkpoint-action=exec=x y", "x y"),
            ("rsync|-e|x y|a|b:c", "x y"),
            ("make|SHELL=x y|all", "x y"),
            ("git|-c|core.pager=x y|log", "x y"),
            ("git|-c|alias.a=!x y|a", "x y"),
            ("git|-c|user.name=x y|log", ""),
            ("ssh|-o|ProxyCommand=x y|h", "x y"),
            ("ssh|-oProxyCommand=x y|h", "x y"),
            ("sed|1e x y|f", "x y"),
            ("sed|-n|/a/,/b/e x y|f", "x y"),
            ("sed|s/a/x \\/y/e|f", "x /y"),
            ("sed|s/a/b/w o|f", ">o"),
            ("sed|$r i|f", "<i"),
            ("sed|-e|p;w o|f", ">o"),
            ("sed|-n|r.env|f", "<.env"),
            ("git|bisect|run|x|y z", "'x' 'y z'"),
            ("git|submodule|foreach|--recursive|x y", "x y"),
            ("gdb|-batch|-ex|shell x y", "x y"),
            ("npx|-c|x y", "x y"),
            ("cmake|-E|rm|-rf|x", "rm -rf x"),
            ("emacs|--batch|--eval|(shell-command \"x y\")", "(shell-command \"x y\") / x y"),
            ("ex|-sc|!x y|f", "x y"),
            ("sed|s/e r/b/g|f", ""),
            ("vim|-c|!x y|f", "x y"),
            ("vim|+%!x y|f", "x y"),
            ("vim|-c|w o|f", ">o"),
            ("let|a[$(x y)]=1", "x y"),
            ("test|-v|a[$(x y)]", "x y"),
            ("printf|never run $(x y) [here]", ""),
        ] {
            assert_eq!(check(line, None), found, "{line}");
        }
        assert_eq!(check("ed|-s|f", Some("!x y\nw o\n,p")), "x y / >o");
    }
}
