//! What a part of a call deserves, before a ruling is made of all of them.

use longrein_ports::Ruling;

/// From mild to strict. A call gets the strictest of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) strictness: Strictness,
    /// The rule that says so, or the name of the analysis's own.
    pub(crate) rule: String,
    /// For people and the model; empty where it is allowed.
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strictness {
    Allow,
    /// Asked, unless a rule allows it.
    Unless,
    /// Asked, unless a rule allows it and spells it out: what `*` stands for is not enough.
    UnlessSpelt,
    /// Asked, whatever is allowed.
    Ask,
    /// Denied, unless a rule allows it and spells it out.
    DenyUnlessSpelt,
    Deny,
}

impl Verdict {
    pub(crate) fn allow(rule: &str) -> Self {
        Self { strictness: Strictness::Allow, rule: rule.to_owned(), reason: String::new() }
    }

    pub(crate) fn new(strictness: Strictness, rule: &str, reason: impl Into<String>) -> Self {
        Self { strictness, rule: rule.to_owned(), reason: reason.into() }
    }

    /// The stricter one; of two alike, the first.
    pub(crate) fn and(self, other: Verdict) -> Self {
        // among what is allowed, a rule somebody wrote says more than our own
        let says_more =
            other.is_allowed() && self.is_allowed() && matches!(self.rule.as_str(), own::READS_INSIDE | own::DEFAULT);
        if other.strictness > self.strictness || says_more { other } else { self }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.strictness == Strictness::Allow
    }

    pub(crate) fn ruling(self) -> Ruling {
        let Self { strictness, rule, reason } = self;
        match strictness {
            Strictness::Allow => Ruling::Allow { rule },
            Strictness::Unless | Strictness::UnlessSpelt | Strictness::Ask => Ruling::Ask { rule, reason },
            Strictness::DenyUnlessSpelt | Strictness::Deny => Ruling::Deny { rule, reason },
        }
    }
}

/// Names of the analysis's own rules, as they stand beside rulings.
pub(crate) mod own {
    /// A `read` tool that the task declares.
    pub(crate) const DECLARED_READ: &str = "declared read tool";
    /// Whatever no rule speaks of.
    pub(crate) const DEFAULT: &str = "default";
    pub(crate) const READS_INSIDE: &str = "reads inside the workspace";
    pub(crate) const ASKS_A_PERSON: &str = "asks a person";
    /// What reads or writes the run's own memory, and nothing outside it.
    pub(crate) const OF_THE_RUN: &str = "the run's own memory";
    pub(crate) const OUTSIDE: &str = "outside the workspace";
    pub(crate) const UNREADABLE: &str = "cannot be told";
    pub(crate) const OWN_FILES: &str = "longrein's own";
    pub(crate) const SECRET: &str = "secrets";
    pub(crate) const PROTECTED: &str = "protected files";
    pub(crate) const DESTRUCTION: &str = "destruction";
    pub(crate) const RUN_LATER: &str = "run or obeyed later";
    /// What changes who may do what, or starts by itself from now on.
    pub(crate) const RIGHTS: &str = "rights and what stays behind";
    pub(crate) const SENT_OUT: &str = "sent out";
    /// What is run without anybody having been able to read it.
    pub(crate) const FETCHED: &str = "run unread";
    pub(crate) const EXHAUSTION: &str = "exhaustion";
}
