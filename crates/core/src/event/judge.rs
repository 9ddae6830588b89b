//! What is true about a model that is asked whether the work is good.

use super::*;
use crate::outcome::ModelErrorClass;

/// A model is asked for its opinion of the work: a call of the run's own, with a budget like any other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeRequested {
    pub check: CheckName,
    /// Of the check.
    pub round: u32,
    /// Counted from 1 over the run.
    pub call: u32,
    pub model: crate::ids::ModelName,
    /// Of what it is asked about: the same question is not paid for twice.
    pub about: Digest,
    /// Of the encoded request.
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    pub reserved: Reservation,
    /// The workspace as it is then. None: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
    /// Why nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhashed: Option<String>,
}

/// What came of it. Settles it, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeFinished {
    pub check: CheckName,
    pub round: u32,
    pub call: u32,
    pub outcome: JudgeOutcome,
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeOutcome {
    /// Its opinion: never a proof.
    Opinion { finding: crate::check::Finding, reason: String },
    /// A reply that is no verdict, and what is wrong with it.
    Unusable { reason: String },
    /// No whole reply.
    Failed {
        class: ModelErrorClass,
        message: String,
        /// How long the next try waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// Nobody waits for it any more: the run stopped, or its process died.
    Lost,
}
