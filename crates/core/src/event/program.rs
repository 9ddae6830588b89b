//! What is true about a run's way through its program.

use super::*;
use crate::payload::Content;
use crate::program::To;

/// A phase was left for another, or for an end. Says what was decided by: conditions are evaluated at the edge, and enter as
/// values (`semantics.md` I2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionTaken {
    /// None: the program begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PhaseName>,
    pub to: To,
    /// For people: the condition that held, or what else led there.
    pub why: String,
    /// Conditions that were looked at, in order, up to the first that held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ConditionValue>,
    /// What the phase left, where that is not what it came to word for word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Content>,
    /// The phase asked for children, and there were none to be started: whether it went well. None: what it came to was
    /// known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// What later phases are to remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lesson: Option<Lesson>,
    /// What the model is told of the phase that begins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

/// A condition as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionValue {
    pub when: String,
    pub value: Truthful,
}

/// What a condition came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truthful {
    True,
    False,
    /// It gave no verdict, and why.
    Error(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    pub list: String,
    pub text: String,
}
