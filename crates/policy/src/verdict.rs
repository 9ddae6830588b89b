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
    /// Everything that is asked about, not only what the reason names: what a mode may answer.
    pub(crate) doubts: Doubts,
}

/// Why something is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It writes an ordinary file of the workspace.
    Edit,
    /// It removes one.
    Removal,
    /// No rule allows it; nothing is known that would speak against it.
    Unproven,
    /// The same, and it writes nothing but git's own data.
    Kept,
    /// What it does cannot be told.
    Unseen,
    /// It reaches beyond ordinary files of the workspace: outside, or to what is secret, guarded or obeyed later.
    Beyond,
    /// A rule of the operator has it asked.
    Rule,
}

impl Doubt {
    /// What a finding under this name is about.
    fn of(rule: &str) -> Self {
        match rule {
            own::DEFAULT => Doubt::Unproven,
            own::UNREADABLE => Doubt::Unseen,
            own::OUTSIDE
            | own::SECRET
            | own::PROTECTED
            | own::RUN_LATER
            | own::DESTRUCTION
            | own::OWN_FILES
            | own::NETWORK
            | own::ADDRESS => Doubt::Beyond,
            _ => Doubt::Rule,
        }
    }
}

/// A set of doubts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doubts(u8);

impl Doubts {
    pub(crate) fn of(doubts: &[Doubt]) -> Self {
        Self(doubts.iter().fold(0, |set, doubt| set | 1 << *doubt as u8))
    }

    fn and(self, other: Doubts) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, doubt: Doubt) -> bool {
        self.0 & (1 << doubt as u8) != 0
    }

    /// Whether there is none but these.
    pub(crate) fn are_within(self, others: &[Doubt]) -> bool {
        self.0 & !Doubts::of(others).0 == 0
    }
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
    /// Denied, unless a person at a terminal types where it would send to.
    DenyUnlessTyped,
    /// Denied, unless a rule allows it and spells it out.
    DenyUnlessSpelt,
    Deny,
}

impl Verdict {
    pub(crate) fn allow(rule: &str) -> Self {
        let doubts = Doubts::default();
        Self { strictness: Strictness::Allow, rule: rule.to_owned(), reason: String::new(), doubts }
    }

    pub(crate) fn new(strictness: Strictness, rule: &str, reason: impl Into<String>) -> Self {
        let doubts = Doubts::of(&[Doubt::of(rule)]);
        Self { strictness, rule: rule.to_owned(), reason: reason.into(), doubts }
    }

    /// Asked unless a rule allows it, and about nothing but this.
    pub(crate) fn unless(doubt: Doubt, reason: impl Into<String>) -> Self {
        Self { doubts: Doubts::of(&[doubt]), ..Self::new(Strictness::Unless, own::DEFAULT, reason) }
    }

    /// The same, and no mode answers it: what it does happens where nothing of ours holds it.
    pub(crate) fn beyond(self) -> Self {
        match self.strictness {
            Strictness::Allow | Strictness::DenyUnlessTyped | Strictness::DenyUnlessSpelt | Strictness::Deny => self,
            Strictness::Unless | Strictness::UnlessSpelt | Strictness::Ask => {
                Self { doubts: self.doubts.and(Doubts::of(&[Doubt::Beyond])), ..self }
            }
        }
    }

    /// The stricter one; of two alike, the first.
    pub(crate) fn and(self, other: Verdict) -> Self {
        // among what is allowed, a rule somebody wrote says more than our own
        let says_more =
            other.is_allowed() && self.is_allowed() && matches!(self.rule.as_str(), own::READS_INSIDE | own::DEFAULT);
        let doubts = self.doubts.and(other.doubts);
        let stricter = if other.strictness > self.strictness || says_more { other } else { self };
        Self { doubts, ..stricter }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.strictness == Strictness::Allow
    }

    pub(crate) fn ruling(self) -> Ruling {
        let Self { strictness, rule, reason, doubts: _ } = self;
        match strictness {
            Strictness::Allow => Ruling::Allow { rule },
            Strictness::Unless | Strictness::UnlessSpelt | Strictness::Ask => Ruling::Ask { rule, reason },
            Strictness::DenyUnlessTyped | Strictness::DenyUnlessSpelt | Strictness::Deny => {
                Ruling::Deny { rule, reason }
            }
        }
    }
}

/// The name of the rule that escalates calls for what the run has read.
pub const TAINT_RULE: &str = own::TAINT;

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
    /// Reaches another machine.
    pub(crate) const NETWORK: &str = "network";
    /// A scheme, a name or an address that nothing a model chose may reach.
    pub(crate) const ADDRESS: &str = "address";
    /// A person has typed this address, or the host, in this run.
    pub(crate) const NAMED: &str = "named by the user";
    pub(crate) const MCP: &str = "a server of somebody else";
    pub(crate) const PLAN: &str = "plan mode";
    pub(crate) const ACCEPT_EDITS: &str = "accept-edits mode";
    pub(crate) const AUTO: &str = "auto mode";
    pub(crate) const FENCE: &str = "no sandbox";
    pub(crate) const TAINT: &str = "what the run has read";
}
