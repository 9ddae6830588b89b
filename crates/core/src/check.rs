//! What checks say: verdicts with evidence text, and judgements of answers.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, EvidenceId, TreeId};
use crate::payload::{Content, Payload};

/// What an acceptance check found. Never a bare bool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub finding: Finding,
    /// A JSON string: what the command printed, or why it could not be run.
    pub evidence: Content,
    /// None: a signal, a timeout, or it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    #[serde(default, skip_serializing_if = "Proof::is_nothing")]
    pub proof: Proof,
}

/// What a verdict is about: an edit after it voids it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// What was run, in one line, or looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Of all that is kept of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Digest>,
    /// The workspace it saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
    /// The workspace as it left it, where that is another one and stayed so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<TreeId>,
    /// Why what it changed of the workspace could not be set back: whatever a check says of it from here on, the work is not
    /// what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrestored: Option<String>,
    /// Why nobody knows which workspace it saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhashed: Option<String>,
    /// Paths the run was not to change without it being said, and did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// A file it runs that is not what was pinned at the start, and the digest of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<(String, Option<Digest>)>,
    /// Whose opinion it is, and no proof.
    #[serde(flatten, with = "opinion_fields")]
    pub opinion: Option<Judge>,
}

/// The model that was to give an opinion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    Spoke,
    /// It gave none.
    Silent,
}

/// An opinion as it has always been written.
mod opinion_fields {
    use serde::{Deserializer, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Fields {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        opinion: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
    }

    pub(super) fn serialize<S: Serializer>(opinion: &Option<Judge>, serializer: S) -> Result<S::Ok, S::Error> {
        match opinion {
            None => Fields { opinion: false, silent: false },
            Some(Judge::Spoke) => Fields { opinion: true, silent: false },
            Some(Judge::Silent) => Fields { opinion: true, silent: true },
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Judge>, D::Error> {
        Ok(match Fields::deserialize(deserializer)? {
            Fields { silent: true, .. } => Some(Judge::Silent),
            Fields { opinion: true, silent: false } => Some(Judge::Spoke),
            Fields { opinion: false, silent: false } => None,
        })
    }
}

impl Proof {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether what it judged by is not what it was when the run started.
    pub fn is_on_changed_checks(&self) -> bool {
        !self.protected.is_empty() || self.program.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Passed,
    Failed,
    /// Not run: what it runs is not what was pinned at the start, and nobody has said yet that it may be.
    Held,
}

impl Finding {
    pub fn as_str(self) -> &'static str {
        match self {
            Finding::Passed => "passed",
            Finding::Failed => "failed",
            Finding::Held => "held",
        }
    }
}

/// How a final reply was judged against what the answer must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    Accepted(Accepted),
    /// The reason, written for the model.
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The answer itself: JSON where the task asks for JSON, else a JSON string.
    pub answer: Payload,
    /// What people are shown: the template's text, else the answer's own.
    pub rendered: String,
    /// Evidence it cites, all live and successful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceId>,
    pub standing: Standing,
}

/// Whether a rule over evidence spoke for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A condition over verified evidence held.
    Proven,
    /// The model's word.
    Claimed,
}
