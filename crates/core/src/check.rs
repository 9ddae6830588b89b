//! What checks say: verdicts with evidence text, and judgements of answers.

use serde::{Deserialize, Serialize};

use crate::ids::EvidenceId;
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Passed,
    Failed,
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
