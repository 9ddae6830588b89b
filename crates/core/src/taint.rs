//! Taint: where what the model has read came from, and how much of it may leave.
//!
//! A run's label only rises: what it has read once, its words may carry for ever. Only a person lowers it, by endorsing a
//! source. What a call may do under which label is the policy's to say; here the label is kept.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Seq;

/// Who could have written a text. From trusted to not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// The person who started the run.
    #[default]
    User,
    /// Whoever writes the workspace.
    Workspace,
    /// Anybody.
    Untrusted,
}

/// Who may see a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidentiality {
    #[default]
    Public,
    /// Whoever may see the workspace.
    Workspace,
    /// Nobody it was not meant for.
    Secret,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub integrity: Integrity,
    pub confidentiality: Confidentiality,
}

impl Integrity {
    pub fn as_str(self) -> &'static str {
        match self {
            Integrity::User => "user",
            Integrity::Workspace => "workspace",
            Integrity::Untrusted => "untrusted",
        }
    }
}

impl Confidentiality {
    pub fn as_str(self) -> &'static str {
        match self {
            Confidentiality::Public => "public",
            Confidentiality::Workspace => "workspace",
            Confidentiality::Secret => "secret",
        }
    }
}

/// In a person's words: what is out of the ordinary about it.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let untrusted = self.integrity == Integrity::Untrusted;
        let secret = self.confidentiality == Confidentiality::Secret;
        f.write_str(match (untrusted, secret) {
            (true, true) => "untrusted and secret",
            (true, false) => "untrusted",
            (false, true) => "secret",
            (false, false) => "not tainted",
        })
    }
}

impl Label {
    /// What is known of a text made of both.
    #[must_use]
    pub fn join(self, other: Label) -> Label {
        Label {
            integrity: self.integrity.max(other.integrity),
            confidentiality: self.confidentiality.max(other.confidentiality),
        }
    }

    /// Whether it changes what may be done: anything a run reads in its workspace does not.
    pub fn is_tainted(self) -> bool {
        self.integrity == Integrity::Untrusted || self.confidentiality == Confidentiality::Secret
    }
}

/// What one result brings into the run, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub label: Label,
    /// A host, a server or a path: what a person would endorse.
    pub source: String,
}

/// What a run has read, all in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// The tainted sources, each with its label and the event that first brought it.
    pub sources: BTreeMap<String, Brought>,
    /// Of what came from more sources than are listed.
    pub rest: Label,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    pub label: Label,
    pub since: Seq,
}

impl Taint {
    /// The join over everything the run has seen.
    pub fn label(&self) -> Label {
        self.sources.values().fold(self.rest, |label, brought| label.join(brought.label))
    }

    /// Whether the run has read anything that changes what it may do.
    pub fn is_tainted(&self) -> bool {
        self.label().is_tainted()
    }

    /// Takes a source out: a person trusts it. What came from more sources than are listed stays.
    pub fn endorse(&mut self, source: &str) {
        self.sources.remove(source);
    }

    /// Takes in what another text brought.
    pub fn join(&mut self, other: &Taint) {
        for (source, brought) in &other.sources {
            self.add(&Mark { label: brought.label, source: source.clone() }, brought.since);
        }
        self.rest = self.rest.join(other.rest);
    }

    /// Takes in what a result brought.
    pub fn add(&mut self, mark: &Mark, since: Seq) {
        if !mark.label.is_tainted() {
            return;
        }
        let room = self.sources.len() < SOURCES_MAX;
        match self.sources.get_mut(&mark.source) {
            Some(brought) => brought.label = brought.label.join(mark.label),
            None if room => {
                self.sources.insert(mark.source.clone(), Brought { label: mark.label, since });
            }
            None => self.rest = self.rest.join(mark.label),
        }
    }
}

/// Sources beyond these count, but are not listed and cannot be endorsed one by one.
pub const SOURCES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_8_a_label_only_rises() {
        let labels = [Integrity::User, Integrity::Workspace, Integrity::Untrusted].into_iter().flat_map(|integrity| {
            [Confidentiality::Public, Confidentiality::Workspace, Confidentiality::Secret]
                .map(|confidentiality| Label { integrity, confidentiality })
        });
        let mut taint = Taint::default();
        for (at, label) in labels.cycle().take(1_000).enumerate() {
            let before = taint.label();
            taint.add(&Mark { label, source: format!("s{}", at % 200) }, Seq(at as u64));
            let after = taint.label();
            assert_eq!(before.join(after), after, "at {at}");
            assert!(!label.is_tainted() || label.join(after) == after, "at {at}");
        }
        assert_eq!(taint.sources.len(), SOURCES_MAX);
    }
}
