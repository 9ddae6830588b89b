//! What no option makes harmless: commands that destroy, take rights, stay behind, or hand out secrets, whatever path they
//! are given. Known by what a program does with its words, never by a list of lines.
//!
//! Read [`harm`] first. Paths are judged elsewhere (`Policy::touch`); programs that stand in a command's words are
//! [`inline`]'s; what commands do together is [`flow`]'s. A command that is not here may still do harm: it is asked about.

pub(super) mod flow;
pub(super) mod inline;
mod machine;
mod remote;
pub(super) mod secrets;
pub(super) mod sql;

use super::word::Word;
use crate::verdict::{Strictness, Verdict, own};

/// Why something is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Harm {
    rule: &'static str,
    reason: String,
    lift: Lift,
}

/// What lets a person have it done all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lift {
    Nothing,
    /// An allow rule that spells the command out.
    Spelt,
}

impl Harm {
    /// Takes the machine, its disks or its people's data down.
    fn destroys(reason: impl Into<String>) -> Self {
        Self { rule: own::DESTRUCTION, reason: reason.into(), lift: Lift::Nothing }
    }

    /// Removes what somebody keeps elsewhere: a database, a cluster, a bucket.
    fn removes(reason: impl Into<String>) -> Self {
        Self { rule: own::DESTRUCTION, reason: reason.into(), lift: Lift::Spelt }
    }

    /// Changes who may do what, or stays behind when the run is over.
    fn takes_rights(reason: impl Into<String>) -> Self {
        Self { rule: own::RIGHTS, reason: reason.into(), lift: Lift::Spelt }
    }

    fn tells_secrets(reason: impl Into<String>) -> Self {
        Self { rule: own::SECRET, reason: reason.into(), lift: Lift::Nothing }
    }

    fn sends_out(reason: impl Into<String>) -> Self {
        Self { rule: own::SENT_OUT, reason: reason.into(), lift: Lift::Nothing }
    }

    fn runs_unseen(reason: impl Into<String>) -> Self {
        Self { rule: own::FETCHED, reason: reason.into(), lift: Lift::Nothing }
    }

    fn exhausts(reason: impl Into<String>) -> Self {
        Self { rule: own::EXHAUSTION, reason: reason.into(), lift: Lift::Nothing }
    }

    pub(super) fn verdict(self) -> Verdict {
        let strictness = match self.lift {
            Lift::Nothing => Strictness::Deny,
            Lift::Spelt => Strictness::DenyUnlessSpelt,
        };
        Verdict::new(strictness, self.rule, self.reason)
    }
}

/// What this command does that must not be done. `stdin`: the text it is given, where that is known.
pub(super) fn harm(base: &str, words: &[Word], stdin: Option<&str>) -> Option<Harm> {
    let call = Call::new(base, words);
    machine::harm(&call)
        .or_else(|| remote::harm(&call))
        .or_else(|| secrets::harm(&call))
        .or_else(|| sql::harm(&call, stdin))
        .or_else(|| flow::opens_a_door(&call))
}

/// A command's words as far as they are known. What is only known once it runs leaves a hole in a word's text.
pub(super) struct Call<'a> {
    base: &'a str,
    args: Vec<&'a str>,
}

impl<'a> Call<'a> {
    pub(super) fn new(base: &'a str, words: &'a [Word]) -> Self {
        Self { base, args: words.iter().skip(1).map(|word| word.text.as_str()).collect() }
    }

    /// Whether one of these words is given, as it stands or with a value after `=`.
    fn has(&self, names: &[&str]) -> bool {
        self.args.iter().any(|arg| {
            names.iter().any(|name| {
                arg.strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || (name.starts_with('-') && rest.starts_with('=')))
            })
        })
    }

    /// Whether one of these letters stands among the short options.
    fn letter(&self, letters: &[char]) -> bool {
        self.args
            .iter()
            .any(|arg| arg.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && rest.contains(letters)))
    }

    /// Words that are no options. Values of options may be among them.
    fn operands(&self) -> Vec<&'a str> {
        self.args.iter().copied().filter(|arg| !arg.starts_with('-')).collect()
    }

    /// Whether these words follow each other, options aside.
    fn says(&self, sequence: &[&str]) -> bool {
        self.operands().windows(sequence.len()).any(|found| found == sequence)
    }

    /// Whether one of these words is an operand.
    fn names(&self, words: &[&str]) -> bool {
        self.args.iter().any(|arg| words.contains(arg))
    }

    fn first(&self) -> &'a str {
        self.operands().first().copied().unwrap_or_default()
    }
}
