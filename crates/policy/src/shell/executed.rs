//! Which files a command has run: what a yes to it is a yes to, as they are.
//!
//! A yes says nothing of a file that is another one by the time it is run. So every file is named whose content is run: the
//! program itself, what an interpreter is given by word, by option, on standard input or as a module, and what runs by
//! lying there (`make`). Where it cannot be told which file that is, so is said, and such a yes counts once.

use std::collections::BTreeMap;

use super::harm::inline;
use super::table::shown;
use super::word::{Kind, Word};
use super::{Analysis, Here, Nesting, network, options, unwrap};
use crate::hosts;
use crate::path::{self, File};
use crate::verdict::{Strictness, Verdict, own};
use crate::{Effect, EffectKind};

/// The files a call runs, and why there may be others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// By absolute paths.
    pub(crate) files: BTreeMap<String, RunAs>,
    pub(crate) untold: Option<String>,
}

/// What a file is to the command that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunAs {
    /// A program, or what an interpreter, a build or an editor runs.
    Program,
    /// Text that a shell reads.
    Script,
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
        if name.contains('/') && !self.is_of_the_machine(name) {
            let program = Word { text: name.to_owned(), kind: words.first().map_or(Kind::Literal, |word| word.kind) };
            let files = self.runs_as(&program, RunAs::Program, here);
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
                self.interpreter_runs(words, base, here);
            }
            _ => {}
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

    fn interpreter_runs(&mut self, words: &[Word], base: &str, here: &Here) {
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
                        self.runs_module(name, here);
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
                self.runs_file(word, here);
            }
            // the value of an option may well be a file, and the program comes behind it
            let is_program = !after_option && (is_there || looks_like_file(text));
            if is_program && !has_text {
                self.runs_file(word, here);
                return;
            }
            is_found |= is_there;
            after_option = false;
        }
        if !is_found {
            for word in operands.iter().filter(|word| !word.text.starts_with('-')).take(1) {
                self.runs_file(word, here);
            }
        }
    }

    /// A module of Python, where it lies in the folder: else it is installed.
    fn runs_module(&mut self, module: &str, here: &Here) {
        let path = module.replace('.', "/");
        let mut names = vec![format!("{path}.py"), format!("{path}/__main__.py")];
        let parts: Vec<&str> = path.split('/').collect();
        names.extend((1..=parts.len()).map(|many| format!("{}/__init__.py", parts[..many].join("/"))));
        if here.folders.is_empty() {
            self.executed.cannot_tell(|| format!("which folder the module {} lies in cannot be told", shown(module)));
        }
        for name in names {
            self.runs_if_there(&Word { text: name, kind: Kind::Literal }, here);
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

    /// The same; where it lies, once for each folder that this may be run in.
    fn runs_as(&mut self, word: &Word, run_as: RunAs, here: &Here) -> Vec<String> {
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
    fn runs_if_there(&mut self, word: &Word, here: &Here) -> bool {
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
    fn is_of_the_machine(&self, path: &str) -> bool {
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
fn values(operands: &[Word], options: &[&str]) -> Vec<Word> {
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

/// Files of one call that are told.
const FILES_MAX: usize = 64;
/// The same with the scripts it runs.
const FILES_OF_SCRIPTS_MAX: usize = 1024;
/// Words of one call that are held against the file system.
const LOOKS_MAX: usize = 512;
