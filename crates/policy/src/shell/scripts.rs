//! Scripts that a command runs, looked into: what they run in turn.
//!
//! A ruling is about words and reads no script. Whoever has to know what all is run ([`Policy::run_by`](crate::Policy::run_by))
//! has them read as a shell would read them: in the folder they are started in, with `$0` and the words they are given; what is
//! sourced by the shell that sources it, with its functions and variables. A script is read once for each folder it is run in.

use std::collections::{BTreeSet, VecDeque};

use super::executed::RunAs;
use super::scope::Scope;
use super::unwrap;
use super::word::Word;
use super::{Analysis, CALLED_MAX, DEPTH_MAX, Here, Nesting, SCRIPTS_MAX, TURNS_MAX};
use crate::path::File;

/// Scripts that are still to be read, and those that were.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    todo: VecDeque<Started>,
    /// With the folders they were run in.
    read: BTreeSet<(String, Vec<String>)>,
    /// A script is at work, and no longer the words of the call.
    is_begun: bool,
}

#[derive(Debug)]
struct Started {
    text: String,
    scope: Scope,
    here: Here,
}

impl Scripts {
    fn next(&mut self) -> Option<Started> {
        self.is_begun = true;
        self.todo.pop_front()
    }

    fn is_new(&mut self, file: &str, here: &Here) -> bool {
        self.read.len() < FILES_MAX && self.read.insert((file.to_owned(), here.folders.clone()))
    }
}

impl Analysis<'_> {
    /// Reads the text and all scripts that it has a shell run.
    pub(super) fn with_scripts(&mut self, text: &str, here: &Here) {
        self.scripts = Some(Scripts::default());
        self.script(text, here, 0);
        self.executed.settle();
        while let Some(started) = self.scripts.as_mut().and_then(Scripts::next) {
            (self.fuel, self.turns, self.looked, self.called_left) = (SCRIPTS_MAX, TURNS_MAX, 0, CALLED_MAX);
            self.scope = started.scope;
            self.script(&started.text, &started.here, 0);
            self.executed.settle();
        }
    }

    /// Whether a command stands in the words of the call, and in no shell text.
    pub(super) fn is_of_the_words(&self, nesting: Nesting) -> bool {
        nesting.scripts == 0 && self.scripts.as_ref().is_some_and(|scripts| !scripts.is_begun)
    }

    /// A shell is started with these files: `name` as it was called, and the words it is given.
    pub(super) fn starts(&mut self, files: &[String], name: &str, given: &[Word], here: &Here) {
        for file in files {
            let Some(text) = self.text_of(file) else { continue };
            let scope = self.scope.started(Some(name), given);
            if let Some(scripts) = &mut self.scripts
                && scripts.is_new(file, here)
            {
                scripts.todo.push_back(Started { text, scope, here: here.clone() });
            }
        }
    }

    /// A file is run as a program: a shell reads it where its first line says so, or says nothing.
    pub(super) fn starts_program(&mut self, files: &[String], name: &str, given: &[Word], here: &Here) {
        for file in files {
            if self.text_of(file).is_some_and(|text| is_for_a_shell(&text)) {
                self.executed.files.insert(file.clone(), RunAs::Script);
                self.starts(std::slice::from_ref(file), name, given, here);
            }
        }
    }

    /// The shell at work reads these files itself.
    pub(super) fn sources(&mut self, files: &[String], name: &str, given: &[Word], here: &Here, nesting: Nesting) {
        for file in files {
            let Some(text) = self.text_of(file) else { continue };
            let is_new = self.scripts.as_mut().is_some_and(|scripts| scripts.is_new(file, here));
            if !is_new || nesting.scripts >= DEPTH_MAX {
                continue;
            }
            let outer = self.scope.clone();
            self.scope = outer.sourcing(name);
            if !given.is_empty() {
                self.scope.give(Some(given.to_vec()));
            }
            let judging = self.executed.judging.clone();
            // nothing is ruled here
            let _ = self.evaluated(&text, here, nesting.scripts + 1);
            // what it tests for itself judges nothing; its functions count where they are called
            self.executed.judging.is_judged = judging.is_judged;
            self.scope = std::mem::take(&mut self.scope).back_in(&outer);
        }
    }

    /// The text of a script. None: it is none, or scripts are not looked into.
    fn text_of(&self, file: &str) -> Option<String> {
        self.scripts.as_ref()?;
        match self.policy.surroundings.world.file(file) {
            File::Content(bytes) if bytes.len() <= BYTES_MAX => String::from_utf8(bytes).ok(),
            File::Content(_) | File::Missing | File::Unreadable => None,
        }
    }
}

fn is_for_a_shell(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("#!") {
        Some(line) => line.split_whitespace().any(|word| unwrap::is_shell(word.rsplit('/').next().unwrap_or_default())),
        None => !text.contains('\0'),
    }
}

/// How many scripts of one command are looked into, each of at most [`BYTES_MAX`]: a test suite has hundreds of cases and one
/// runner.
const FILES_MAX: usize = 64;
const BYTES_MAX: usize = 256 * 1024;
