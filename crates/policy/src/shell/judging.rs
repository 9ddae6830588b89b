//! What a check goes by that is shell text: whose word its end is.
//!
//! Most of what a check runs is the work that it judges: `python3 app.py | grep -q hello` is passed by whatever `grep` finds, and
//! `app.py` is meant to change. But where nothing of the machine judges what a program prints or leaves, how that program ends is
//! the verdict, and the program is the check: `cd t && python3 -m mycheck`. Each script is a text of its own. Nothing here is
//! ruled by, and nothing is told where scripts are not looked into.

use super::executed::{Executed, RunAs, values};
use super::found::{self, Found};
use super::harm::inline;
use super::word::{Kind, Word};
use super::{Analysis, Here, Nesting, unwrap};
use crate::path::{self, File};
use crate::{Effect, EffectKind};

/// The text at work so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judging {
    /// Programs of the workspace that are run.
    programs: Vec<String>,
    /// The command at work runs one of them.
    is_of_the_work: bool,
    /// Something that is no program of the workspace judges.
    pub(super) is_judged: bool,
    /// Patterns with the files that they stand for.
    patterns: Vec<(String, Vec<String>)>,
}

impl Judging {
    pub(super) fn begins(&mut self) {
        self.is_of_the_work = false;
    }

    pub(super) fn runs<'a>(&mut self, files: impl Iterator<Item = &'a String>) {
        let before = self.programs.len();
        self.programs.extend(files.cloned());
        self.is_of_the_work |= self.programs.len() > before;
    }
}

impl Executed {
    /// A text is at its end.
    pub(super) fn settle(&mut self) {
        let Judging { programs, is_judged, patterns, is_of_the_work: _ } = std::mem::take(&mut self.judging);
        for file in programs.iter().filter(|_| !is_judged) {
            self.goes_by(file);
        }
        let counts = |file: &String| self.files.get(file).is_some_and(|run_as| *run_as >= RunAs::Judge);
        let run = patterns.into_iter().filter(|(_, files)| files.iter().any(counts));
        self.patterns.extend(run.map(|(pattern, _)| pattern));
    }

    fn goes_by(&mut self, file: &str) {
        let known = self.files.entry(file.to_owned()).or_insert(RunAs::Judge);
        *known = RunAs::Judge.max(*known);
    }
}

impl Analysis<'_> {
    /// Notes whether this command, which runs no other, judges.
    pub(super) fn judges(&mut self, words: &[Word], name: &str, base: &str) {
        if self.scripts.is_none() || self.scope.function(name).is_some() || self.scope.alias(name).is_some() {
            return;
        }
        let module = words.iter().skip_while(|word| word.text != "-m").nth(1);
        let first = words.iter().skip(1).find(|word| !word.text.starts_with('-'));
        let brings_in = [first, module].into_iter().flatten().any(|word| BRINGS_IN.contains(&word.text.as_str()));
        let of_the_work = self.executed.judging.is_of_the_work;
        if !brings_in && !of_the_work && !JUDGES_NOT.contains(&base) && !unwrap::is_shell(base) {
            self.executed.judging.is_judged = true;
        }
    }

    /// Notes what this command holds something against: what is expected, not what is looked at.
    pub(super) fn compares(&mut self, base: &str, operands: &[Word], here: &Here) {
        if self.scripts.is_none() {
            return;
        }
        let is_option = |word: &&Word| word.text.starts_with('-') && word.text != "-";
        let named: Vec<&Word> = operands.iter().filter(|word| !is_option(word)).collect();
        match (base, named.as_slice()) {
            ("cmp" | "diff" | "comm", [one, other, ..]) => {
                // where both were there, or neither, either may be the work
                match (self.is_made(one, here), self.is_made(other, here)) {
                    (true, false) => self.expects(other, here),
                    (false, true) => self.expects(one, here),
                    (true, true) | (false, false) => {
                        // by its name it may be told
                        for word in [one, other] {
                            self.runs_if_there(word, here);
                        }
                    }
                }
            }
            ("grep" | "egrep" | "fgrep" | "rg", _) => {
                for (option, file) in operands.iter().zip(operands.iter().skip(1)) {
                    let letters = option.text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
                    if letters.is_some_and(|letters| letters.ends_with('f')) {
                        self.expects(file, here);
                    }
                }
                values(operands, &["--file"]).iter().for_each(|file| self.expects(file, here));
            }
            (sum, _)
                if sum.ends_with("sum")
                    && operands.iter().any(|word| matches!(word.text.as_str(), "-c" | "--check")) =>
            {
                named.into_iter().for_each(|file| self.expects(file, here));
            }
            _ => {}
        }
    }

    /// Whether what is compared is made while it runs: standard input, another process, a file that the text writes or that is
    /// not there.
    fn is_made(&self, word: &Word, here: &Here) -> bool {
        let Some(text) = word.known() else { return true };
        let world = self.policy.surroundings.world.as_ref();
        let is_made = |folder: &String| {
            let path = path::absolute(folder, text);
            let writes =
                |effect: &Effect| effect.kind == EffectKind::Write && path::within(&effect.what, &path).is_some();
            let is_there = world.file(&path) != File::Missing || world.names(&path).is_some();
            !is_there || self.effects.iter().any(writes)
        };
        text == "-" || text.starts_with("/dev/") || here.folders.iter().all(is_made)
    }

    fn expects(&mut self, word: &Word, here: &Here) {
        let Some(text) = word.known().filter(|text| *text != "-") else { return };
        for folder in &here.folders {
            self.executed.goes_by(&path::absolute(folder, text));
        }
    }

    /// The words of a command that runs one of them, with the names that patterns stand for.
    pub(super) fn expanded_to_run(&mut self, words: &[Word], here: &Here) -> Option<Vec<Word>> {
        let name = words.first().and_then(Word::known)?;
        let base = name.rsplit('/').next().unwrap_or_default();
        let runs = unwrap::is_shell(base) || inline::is_interpreter(base) || matches!(base, "." | "source");
        let is_pattern = |word: &Word| word.kind == Kind::Glob;
        if self.scripts.is_none() || !runs || !words.iter().any(is_pattern) {
            return None;
        }
        words.iter().for_each(|word| self.runs_pattern(word, here));
        Some(self.expand(words, here))
    }

    /// A pattern, some of whose names may be run.
    pub(super) fn runs_pattern(&mut self, word: &Word, here: &Here) {
        let ([folder], Kind::Glob, true) = (here.folders.as_slice(), word.kind, self.scripts.is_some()) else { return };
        let files = self.names(&word.text, folder).unwrap_or_default();
        let files = files.iter().map(|file| path::absolute(folder, file)).collect();
        self.executed.judging.patterns.push((path::absolute(folder, &word.text), files));
    }

    /// `find t -name '*.sh' -exec sh {} ;`
    pub(super) fn runs_what_is_found(&mut self, words: &[Word], found: &Found, here: &Here, nesting: Nesting) {
        for file in self.found(found, here) {
            for command in found::commands_with(words, &file) {
                // nothing is ruled here
                let _ = self.simple(&command, here, nesting);
            }
        }
    }

    /// `find t -name '*.sh' | xargs -n 1 sh`
    pub(super) fn runs_what_is_fed(&mut self, command: &[Word], here: &Here, nesting: Nesting) {
        let Some(found) = self.fed.clone() else { return };
        for file in self.found(&found, here) {
            let mut command = command.to_vec();
            command.push(Word { text: file, kind: Kind::Literal });
            let _ = self.simple(&command, here, nesting);
        }
    }

    fn found(&mut self, found: &Found, here: &Here) -> Vec<String> {
        let ([folder], true) = (here.folders.as_slice(), self.scripts.is_some()) else { return Vec::new() };
        let files = found.files(self.policy.surroundings.world.as_ref(), folder);
        for pattern in found.patterns(folder) {
            self.executed.judging.patterns.push((pattern, files.clone()));
        }
        files
    }
}

/// Whether a word of `case` is one that the script was given.
pub(super) fn is_given(raw: &str) -> bool {
    let raw = raw.trim_matches('"');
    let name = raw.strip_prefix("${").or_else(|| raw.strip_prefix('$')).unwrap_or_default();
    name.starts_with(|sign: char| sign.is_ascii_digit() || "#@*-".contains(sign))
}

/// Commands that say nothing of what they are given: they do something, or bring it into another form.
const JUDGES_NOT: [&str; 86] = [
    ":", "true", "false", "echo", "printf", "exit", "return", "break", "continue", "cd", "pushd", "popd", "export",
    "set", "unset", "shift", "trap", "wait", "local", "declare", "typeset", "readonly", "read", "source", ".", "eval",
    "exec", "alias", "umask", "ulimit", "shopt", "hash", "type", "command", "builtin", "let", "kill", "sleep", "mkdir",
    "rmdir", "rm", "cp", "mv", "ln", "touch", "chmod", "chown", "install", "cat", "tee", "head", "tail", "tac", "sed",
    "tr", "cut", "sort", "uniq", "wc", "nl", "date", "env", "pwd", "ls", "basename", "dirname", "realpath", "readlink",
    "mktemp", "seq", "yes", "clear", "tput", "nproc", "uname", "whoami", "id", "hostname", "which", "time", "timeout",
    "nice", "stdbuf", "xargs", "find", "tar",
];
/// What programs are told that only bring something in.
const BRINGS_IN: [&str; 14] = [
    "install",
    "ci",
    "i",
    "add",
    "sync",
    "fetch",
    "clone",
    "pull",
    "update",
    "submodule",
    "init",
    "pip",
    "venv",
    "ensurepip",
];
