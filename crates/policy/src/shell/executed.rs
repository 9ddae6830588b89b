//! Which files a command has run: what a yes to it is a yes to, as they are.
//!
//! A yes says nothing of a file that is another one by the time it is run. So every file is named whose content is run: the
//! program itself, what an interpreter is given by word, by option, on standard input or as a module, and what runs by
//! lying there (`make`). Where it cannot be told which file that is, so is said, and such a yes counts once.

use std::collections::{BTreeMap, BTreeSet};

use super::harm::inline;
use super::table::shown;
use super::word::{Kind, Word};
use super::{Analysis, Here, Nesting, judging, network, options, unwrap};
use crate::hosts;
use crate::path::{self, File};
use crate::verdict::{Strictness, Verdict, own};
use crate::{Effect, EffectKind};

/// The files a call runs, and why there may be others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// By absolute paths.
    pub(crate) files: BTreeMap<String, RunAs>,
    /// Patterns of the names of files that are run, absolute. Told where scripts are looked into.
    pub(crate) patterns: BTreeSet<String>,
    pub(crate) untold: Option<String>,
    pub(super) judging: judging::Judging,
}

/// What a file is to the command that runs it, or goes by it. Of several the last counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunAs {
    /// A program, or what an interpreter, a build or an editor runs.
    Program,
    /// What judges where the text is a check: a program where nothing else does, a test that is named, what is expected. Told
    /// where scripts are looked into, as the next is.
    Judge,
    /// The program that the words of the call name, under whatever name: `python3 -m x` for `x.py`.
    Named,
    /// Text that a shell reads.
    Script,
}

/// What a call runs and goes by, with the scripts that it runs in turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunBy {
    /// By absolute paths.
    pub files: BTreeMap<String, RunAs>,
    /// Patterns of the names of files that are run, absolute: what else comes to fit one is run as well.
    pub patterns: BTreeSet<String>,
}

/// What a command reads from standard input, as far as it may be a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing, or text that stands in the command.
    #[default]
    Told,
    Files(Vec<Word>),
    Unknown,
}

impl Executed {
    /// A file that the same call writes is not what it is now when it is run.
    pub(super) fn written_before(&mut self, effects: &[Effect]) {
        let changes = |effect: &Effect| matches!(effect.kind, EffectKind::Write | EffectKind::Delete);
        let is_written = |file: &String| {
            effects.iter().filter(|effect| changes(effect)).any(|effect| path::within(&effect.what, file).is_some())
        };
        if self.files.keys().any(is_written) {
            self.cannot_tell(|| "it runs what it has just written".to_owned());
        }
    }

    pub(super) fn cannot_tell(&mut self, reason: impl FnOnce() -> String) {
        if self.untold.is_none() {
            self.untold = Some(reason());
        }
    }
}

impl Analysis<'_> {
    /// Notes what this simple command runs that lies in a file.
    pub(super) fn executes(&mut self, words: &[Word], name: &str, base: &str, here: &Here, nesting: Nesting) {
        if words.iter().any(|word| LEADS.iter().any(|lead| is_set(&word.text, lead))) {
            self.executed.cannot_tell(|| "a variable decides which program runs".to_owned());
        }
        self.executed.judging.begins();
        let expanded = self.expanded_to_run(words, here);
        let words = expanded.as_deref().unwrap_or(words);
        if name.contains('/') && !self.is_of_the_machine(name) {
            let program = Word { text: name.to_owned(), kind: words.first().map_or(Kind::Literal, |word| word.kind) };
            let files = self.runs_program(&program, here, nesting);
            self.starts_program(&files, name, words.get(1..).unwrap_or_default(), here);
        }
        let operands = words.get(1..).unwrap_or_default();
        let leads = matches!(base, "cd" | "pushd") && operands.iter().any(|word| word.kind == Kind::Guess);
        if leads {
            self.executed.cannot_tell(|| "in which folder it runs is only known once it runs".to_owned());
        }
        if let Some(by_option) = BY_OPTION.iter().find(|(names, _)| names.contains(&base)).map(|(_, options)| options) {
            self.runs_values(operands, by_option, here);
        }
        if let Some(standing) = STANDING.iter().find(|standing| standing.names.contains(&base)) {
            self.runs_standing(operands, standing, here);
        }
        match base {
            "source" | "." => {
                let from = operands.iter().position(|word| word.text != "--").unwrap_or(operands.len());
                if let Some((word, given)) = operands.get(from..).and_then(<[Word]>::split_first) {
                    let files = self.runs_as(word, RunAs::Script, here);
                    self.sources(&files, &word.text, given, here, nesting);
                }
            }
            _ if unwrap::is_shell(base) => self.shell_runs(base, operands, here),
            // what they are given beside is what they read
            "awk" | "gawk" | "mawk" | "nawk" => {}
            _ if inline::is_interpreter(base) || MORE_INTERPRETERS.contains(&base) => {
                self.interpreter_runs(words, base, here, nesting);
            }
            "pytest" | "py.test" => self.pytest_runs(operands, here),
            _ => self.compares(base, operands, here),
        }
    }

    /// Whether a command runs what an earlier one of the same call has brought in: a file that is told, or whatever a program
    /// finds in the folder it works in.
    pub(super) fn works_in_cloned(&self, base: &str, here: &Here) -> Option<&str> {
        let is_in = |folder: &str| self.cloned.iter().find(|cloned| path::within(cloned, folder).is_some());
        let found = self.executed.files.keys().find_map(|file| is_in(file));
        let builds = || here.folders.iter().find_map(|folder| is_in(folder)).filter(|_| !ONLY_LOOKS.contains(&base));
        found.or_else(builds).map(String::as_str)
    }

    /// What options have a program run, or reach: a rule about the program says nothing of that.
    pub(super) fn led_elsewhere(&mut self, words: &[Word], base: &str, here: &Here) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        for (option, value) in options::programs(base, words) {
            if !value.text.contains("://") {
                Effect::add(&mut self.effects, EffectKind::Run, &value.text);
            }
            self.runs_if_there(&value, here);
            let reason = format!("the option {option} of {base} names what is run: {}", shown(&value.text));
            verdict = verdict.and(Verdict::new(Strictness::UnlessSpelt, own::DEFAULT, reason));
        }
        let reaches = !network::reached(base, words, || base.to_owned()).is_empty();
        let texts: Vec<Option<&str>> = words.iter().map(Word::known).collect();
        if !reaches && let Some(host) = hosts::named(&texts).into_iter().next() {
            let reason = format!("its words lead {base} to another machine: {}", shown(&host));
            verdict = verdict.and(Verdict::new(Strictness::UnlessSpelt, own::NETWORK, reason));
        }
        verdict
    }

    /// The program that a command is given on standard input.
    pub(super) fn executes_input(&mut self, base: &str, here: &Here) {
        match std::mem::take(&mut self.source) {
            Source::Told => {}
            Source::Files(files) => {
                let is_shell = unwrap::is_shell(base);
                for word in &files {
                    let run_as = if is_shell { RunAs::Script } else { RunAs::Program };
                    let files = self.runs_as(word, run_as, here);
                    if is_shell {
                        self.starts(&files, base, &[], here);
                    }
                }
            }
            Source::Unknown => {
                self.executed.cannot_tell(|| format!("{base} runs what another command prints"));
            }
        }
    }

    /// A program that nobody can look into is given these words: what of them is a file may be run.
    pub(super) fn may_execute(&mut self, words: &[Word], here: &Here) {
        for word in words.iter().skip(1).filter(|word| !word.text.starts_with('-')) {
            self.runs_if_there(word, here);
        }
    }

    fn shell_runs(&mut self, base: &str, operands: &[Word], here: &Here) {
        let mut at = 0;
        while let Some(word) = operands.get(at) {
            let text = word.text.as_str();
            match text {
                "--rcfile" | "--init-file" => {
                    operands.get(at + 1).into_iter().for_each(|file| self.runs_file(file, here));
                    at += 2;
                }
                "-o" | "+o" | "-O" | "+O" => at += 2,
                "--" => {
                    at += 1;
                    break;
                }
                "-" => {
                    return self.executed.cannot_tell(|| format!("{base} runs what another command prints"));
                }
                // text in the words: looked into as such
                _ if text.starts_with('-') && !text.starts_with("--") && text.contains('c') => return,
                _ if text.starts_with('-') && !text.starts_with("--") && text.contains('s') => return,
                _ if text.starts_with(['-', '+']) => at += 1,
                _ => break,
            }
        }
        if let Some((word, given)) = operands.get(at..).and_then(<[Word]>::split_first) {
            let files = self.runs_as(word, RunAs::Script, here);
            self.starts(&files, &word.text, given, here);
        }
    }

    fn interpreter_runs(&mut self, words: &[Word], base: &str, here: &Here, nesting: Nesting) {
        let operands = words.get(1..).unwrap_or_default();
        let has_text = inline::of_words(base, words).is_some();
        let is_python = base.starts_with("python") || base.starts_with("pypy");
        let mut is_found = has_text;
        let mut after_option = false;
        for (at, word) in operands.iter().enumerate() {
            let text = word.text.as_str();
            if is_python && let Some(glued) = module_option(text) {
                let module = if glued.is_empty() { operands.get(at + 1) } else { Some(word) };
                match module {
                    Some(module) if module.kind == Kind::Literal => {
                        let name = if glued.is_empty() { module.text.as_str() } else { glued };
                        self.runs_module(name, here, nesting);
                        let rest = operands.get(at + 1 + usize::from(glued.is_empty())..).unwrap_or_default();
                        match name {
                            "unittest" => self.unittest_runs(rest, here),
                            "pytest" => self.pytest_runs(rest, here),
                            _ => {}
                        }
                    }
                    Some(_) | None => {
                        self.executed.cannot_tell(|| format!("which module {base} runs is only known once it runs"));
                    }
                }
                return;
            }
            if text == "-" && !has_text {
                // what stands for a substituted process stands for standard input, too
                if self.source == Source::Told && self.stdin.is_none() {
                    self.executed.cannot_tell(|| format!("{base} runs what another command prints"));
                }
                return;
            }
            if text.starts_with('-') && text.len() > 1 {
                for value in [text.split_once('=').map(|(_, value)| value), text.get(2..)].into_iter().flatten() {
                    let value = Word { text: value.to_owned(), kind: word.kind };
                    self.runs_if_there(&value, here);
                }
                after_option = !text.contains('=');
                continue;
            }
            let is_there = self.runs_if_there(word, here);
            if word.kind != Kind::Literal && !has_text {
                self.runs_program(word, here, nesting);
            }
            // the value of an option may well be a file, and the program comes behind it
            let is_program = !after_option && (is_there || looks_like_file(text));
            if is_program && !has_text {
                self.runs_given(base, word, here, nesting);
                return;
            }
            is_found |= is_there;
            after_option = false;
        }
        if !is_found {
            for word in operands.iter().filter(|word| !word.text.starts_with('-')).take(1) {
                self.runs_given(base, word, here, nesting);
            }
        }
    }

    /// The program that an interpreter is given: the file of that name, or what it takes for it.
    fn runs_given(&mut self, base: &str, word: &Word, here: &Here, nesting: Nesting) {
        let mut others = Vec::new();
        if word.kind == Kind::Literal {
            for folder in &here.folders {
                others.extend(self.taken_for(base, &path::absolute(folder, &word.text)));
            }
        }
        if others.is_empty() {
            self.runs_program(word, here, nesting);
        }
        for text in others {
            self.runs_program(&Word { text, kind: Kind::Literal }, here, nesting);
        }
    }

    /// What an interpreter runs for a name that is no file's: `check/__main__.py` for `check`; where it is one of JavaScript,
    /// `check.js`, `check/index.js`, what `check/package.json` names.
    fn taken_for(&self, base: &str, path: &str) -> Vec<String> {
        let world = self.policy.surroundings.world.as_ref();
        let is_folder = world.names(path).is_some();
        if !is_folder && world.file(path) != File::Missing {
            return Vec::new();
        }
        let beside = |path: &str, ends: &[&str]| -> Vec<String> {
            let Some((folder, name)) = path.rsplit_once('/') else { return Vec::new() };
            let names = world.names(folder).unwrap_or_default().into_iter();
            let is_it = |full: &String| {
                let end = full.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
                end.is_some_and(|end| ends.contains(&end))
            };
            names.filter(is_it).map(|full| format!("{folder}/{full}")).collect()
        };
        if base.starts_with("python") || base.starts_with("pypy") {
            return beside(&format!("{path}/__main__"), &PYTHON_ENDS);
        }
        if !RUN_JAVASCRIPT.contains(&base) {
            return Vec::new();
        }
        let mut found = beside(path, &JAVASCRIPT_ENDS);
        found.extend(beside(&format!("{path}/index"), &JAVASCRIPT_ENDS));
        let package = format!("{path}/package.json");
        let File::Content(text) = world.file(&package) else { return found };
        found.push(package);
        let package: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if let Some(main) = package.get("main").and_then(serde_json::Value::as_str) {
            let main = path::absolute(path, main);
            found.extend(beside(&main, &JAVASCRIPT_ENDS));
            found.extend(beside(&format!("{main}/index"), &JAVASCRIPT_ENDS));
            if world.names(&main).is_none() && world.file(&main) != File::Missing {
                found.push(main);
            }
        }
        found
    }

    /// A module of Python, where it lies in the folder: else it is installed.
    fn runs_module(&mut self, module: &str, here: &Here, nesting: Nesting) {
        let path = module.replace('.', "/");
        let mut names = vec![format!("{path}.py"), format!("{path}/__main__.py")];
        let parts: Vec<&str> = path.split('/').collect();
        names.extend((1..=parts.len()).map(|many| format!("{}/__init__.py", parts[..many].join("/"))));
        if here.folders.is_empty() {
            self.executed.cannot_tell(|| format!("which folder the module {} lies in cannot be told", shown(module)));
        }
        for text in names {
            let word = Word { text, kind: Kind::Literal };
            if self.runs_if_there(&word, here) {
                self.runs_program(&word, here, nesting);
            }
        }
    }

    /// Tests of `unittest` are named as modules, or as something in them.
    fn unittest_runs(&mut self, operands: &[Word], here: &Here) {
        for word in operands.iter().filter(|word| word.kind == Kind::Literal && !word.text.starts_with('-')) {
            for (end, _) in word.text.match_indices('.').chain([(word.text.len(), "")]) {
                let module = word.text.get(..end).unwrap_or_default();
                let file = format!("{}.py", module.replace('.', "/"));
                self.tests_in(&file, here);
            }
        }
    }

    fn tests_in(&mut self, file: &str, here: &Here) {
        let word = Word { text: file.to_owned(), kind: Kind::Literal };
        if self.scripts.is_some() && self.runs_if_there(&word, here) {
            self.runs_as(&word, RunAs::Judge, here);
        }
    }

    /// Tests of `pytest` are named as files, or as something in them.
    fn pytest_runs(&mut self, operands: &[Word], here: &Here) {
        for word in operands.iter().filter(|word| !word.text.starts_with('-')) {
            let file = word.text.split("::").next().unwrap_or_default();
            if word.kind == Kind::Literal && file.ends_with(".py") {
                self.tests_in(file, here);
            }
        }
    }

    /// What is run for lying in the folder, unless an option names another.
    fn runs_standing(&mut self, operands: &[Word], standing: &Standing, here: &Here) {
        let mut folders = here.clone();
        if let Some(folder) = values(operands, &standing.folder).last() {
            if folder.kind != Kind::Literal {
                self.executed.cannot_tell(|| "in which folder it looks is only known once it runs".to_owned());
            }
            if folder.known().is_none() {
                return;
            }
            folders = Here { folders: here.folders.iter().map(|from| path::absolute(from, &folder.text)).collect() };
        }
        let named = values(operands, &standing.file);
        if !named.is_empty() {
            // counted from the folder it goes to
            return named.iter().for_each(|word| self.runs_file(word, &folders));
        }
        let mut is_there = false;
        for name in standing.usual {
            is_there |= self.runs_if_there(&Word { text: (*name).to_owned(), kind: Kind::Literal }, &folders);
        }
        if !is_there {
            let usual = standing.usual.last().copied().unwrap_or_default();
            self.runs_file(&Word { text: usual.to_owned(), kind: Kind::Literal }, &folders);
        }
    }

    fn runs_values(&mut self, operands: &[Word], options: &[&str], here: &Here) {
        for word in values(operands, options) {
            self.runs_file(&word, here);
        }
    }

    /// A file that is run, there or not.
    fn runs_file(&mut self, word: &Word, here: &Here) {
        self.runs_as(word, RunAs::Program, here);
    }

    /// A file that is run as the program, there or not; where it lies.
    fn runs_program(&mut self, word: &Word, here: &Here, nesting: Nesting) -> Vec<String> {
        let run_as = if self.is_of_the_words(nesting) { RunAs::Named } else { RunAs::Program };
        let files = self.runs_as(word, run_as, here);
        self.executed.judging.runs(files.iter().filter(|file| path::within(self.workspace, file).is_some()));
        files
    }

    /// The same; where it lies, once for each folder that this may be run in.
    pub(super) fn runs_as(&mut self, word: &Word, run_as: RunAs, here: &Here) -> Vec<String> {
        match word.kind {
            Kind::Literal => {}
            Kind::Likely | Kind::Glob | Kind::Guess | Kind::Open | Kind::Loose | Kind::Unknown => {
                self.executed.cannot_tell(|| "which file is run is only known once it runs".to_owned());
            }
        }
        let Some(text) = word.known() else { return Vec::new() };
        if text == "-" || text.starts_with("/dev/") || text.starts_with("/proc/") {
            self.executed.cannot_tell(|| "what is run is no file".to_owned());
            return Vec::new();
        }
        if here.folders.is_empty() && !text.starts_with('/') {
            self.executed.cannot_tell(|| format!("which folder {} is relative to cannot be told", shown(text)));
            return Vec::new();
        }
        let root = ["/".to_owned()];
        let folders = if here.folders.is_empty() { root.as_slice() } else { here.folders.as_slice() };
        let mut files = Vec::new();
        for folder in folders {
            let file = path::absolute(folder, text);
            if self.is_of_the_machine(&file) {
                continue;
            }
            let most = if self.scripts.is_some() { FILES_OF_SCRIPTS_MAX } else { FILES_MAX };
            if self.executed.files.len() >= most && !self.executed.files.contains_key(&file) {
                self.executed.cannot_tell(|| "it runs very many files".to_owned());
                break;
            }
            let known = self.executed.files.entry(file.clone()).or_insert(run_as);
            *known = run_as.max(*known);
            files.push(file);
        }
        files
    }

    /// The same, if it is there. A folder is not: what is run in it is told otherwise, or not at all.
    pub(super) fn runs_if_there(&mut self, word: &Word, here: &Here) -> bool {
        let world = self.policy.surroundings.world.as_ref();
        if word.kind != Kind::Literal || word.text.is_empty() || self.looked >= LOOKS_MAX {
            return false;
        }
        self.looked += 1;
        let is_file = |folder: &String| {
            let path = path::absolute(folder, &word.text);
            match world.file(&path) {
                File::Missing => false,
                File::Content(_) => true,
                File::Unreadable => world.names(&path).is_none(),
            }
        };
        let is_there = here.folders.iter().any(is_file);
        if is_there {
            self.runs_file(word, here);
        }
        is_there
    }

    /// Programs that come with the machine: no run writes them.
    pub(super) fn is_of_the_machine(&self, path: &str) -> bool {
        path::within(self.workspace, path).is_none()
            && ["/bin", "/sbin", "/usr", "/lib", "/nix", "/gnu", "/snap"]
                .iter()
                .any(|folder| path::within(folder, path).is_some())
    }
}

/// Commands that run nothing of the folder they work in.
const ONLY_LOOKS: [&str; 26] = [
    "cd", "ls", "cat", "head", "tail", "grep", "rg", "wc", "file", "stat", "find", "git", "pwd", "echo", "printf",
    "test", "[", "true", "du", "tree", "less", "sort", "diff", "sed", "mkdir", "cp",
];

/// What runs by lying in the folder.
struct Standing {
    names: &'static [&'static str],
    usual: &'static [&'static str],
    file: [&'static str; 3],
    folder: [&'static str; 2],
}

const STANDING: [Standing; 6] = [
    Standing {
        names: &["make", "gmake", "bmake"],
        usual: &["GNUmakefile", "makefile", "Makefile"],
        file: ["-f", "--file", "--makefile"],
        folder: ["-C", "--directory"],
    },
    Standing {
        names: &["just"],
        usual: &[".justfile", "Justfile", "justfile"],
        file: ["-f", "--justfile", "--justfile"],
        folder: ["-d", "--working-directory"],
    },
    Standing { names: &["ninja"], usual: &["build.ninja"], file: ["-f", "-f", "-f"], folder: ["-C", "-C"] },
    Standing {
        names: &["rake"],
        usual: &["rakefile", "Rakefile"],
        file: ["-f", "--rakefile", "--rakefile"],
        folder: ["-C", "--directory"],
    },
    Standing {
        names: &["npm", "pnpm", "yarn", "bun"],
        usual: &["package.json"],
        file: ["--", "--", "--"],
        folder: ["-C", "--prefix"],
    },
    Standing {
        names: &["task", "go-task"],
        usual: &["Taskfile.yaml", "Taskfile.yml"],
        file: ["-t", "--taskfile", "--taskfile"],
        folder: ["-d", "--dir"],
    },
];

/// Programs for which an option names a file in a language they run.
const BY_OPTION: [(&[&str], &[&str]); 7] = [
    (&["sed", "gsed"], &["-f", "--file"]),
    (&["awk", "gawk", "mawk", "nawk"], &["-f", "--file", "-i", "--include"]),
    (&["jq", "gojq"], &["-f", "--from-file"]),
    (&["psql", "expect"], &["-f", "--file"]),
    (&["vim", "nvim", "vi", "ex"], &["-S", "-u", "-s"]),
    (&["gdb", "lldb"], &["-x", "--command", "-s", "--source"]),
    (&["sqlite3"], &["-init"]),
];

/// What runs the file it is given first, beside the interpreters that are known by what they may say.
const MORE_INTERPRETERS: [&str; 14] = [
    "tsx",
    "scala",
    "kotlin",
    "expect",
    "octave",
    "gnuplot",
    "ansible-playbook",
    "guile",
    "racket",
    "escript",
    "swift",
    "ocaml",
    "raku",
    "wish",
];

/// Variables by which something else runs than the words say.
const LEADS: [&str; 18] = [
    "PATH",
    "BASH_ENV",
    "ENV",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYOPT",
    "RUBYLIB",
    "MAKEFILES",
    "MAKEFLAGS",
    "RUSTC_WRAPPER",
    "JAVA_TOOL_OPTIONS",
];

fn is_set(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

/// Whether setting this variable decides what runs.
pub(super) fn leads(name: &str) -> bool {
    LEADS.contains(&name)
}

/// `-m`, `-Bm`: what is glued to it, or nothing.
fn module_option(word: &str) -> Option<&str> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let (before, after) = letters.split_once('m')?;
    before.bytes().all(|letter| b"bBdEhiIOPqsSuvVx".contains(&letter)).then_some(after)
}

/// The values of these options: `-f x`, `-fx`, `--file=x`, `--file x`.
pub(super) fn values(operands: &[Word], options: &[&str]) -> Vec<Word> {
    let mut found = Vec::new();
    for (at, word) in operands.iter().enumerate() {
        let text = word.text.as_str();
        if options.contains(&text) && text != "--" {
            found.extend(operands.get(at + 1).cloned());
            continue;
        }
        let glued = options.iter().find_map(|option| {
            let rest = text.strip_prefix(option)?;
            if option.starts_with("--") { rest.strip_prefix('=') } else { Some(rest) }
        });
        let glued = glued.filter(|rest| !rest.is_empty() && text != "--");
        found.extend(glued.map(|rest| Word { text: rest.to_owned(), kind: word.kind }));
    }
    found
}

fn looks_like_file(text: &str) -> bool {
    text.contains('/') || text.rsplit_once('.').is_some_and(|(_, end)| !end.is_empty() && end.len() <= 4)
}

/// How files end that an interpreter finds by the rest of their names.
const PYTHON_ENDS: [&str; 2] = ["py", "pyc"];
const JAVASCRIPT_ENDS: [&str; 9] = ["js", "cjs", "mjs", "json", "node", "ts", "mts", "cts", "tsx"];
const RUN_JAVASCRIPT: [&str; 6] = ["node", "nodejs", "deno", "bun", "ts-node", "tsx"];
/// Files of one call that are told.
const FILES_MAX: usize = 64;
/// The same with the scripts it runs.
const FILES_OF_SCRIPTS_MAX: usize = 1024;
/// Words of one call that are held against the file system.
const LOOKS_MAX: usize = 512;
