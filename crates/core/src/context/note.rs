//! What a model writes down for itself. A note is never a fact (`semantics.md` G6).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub kind: NoteKind,
    pub text: String,
    /// The note it replaces or closes, as the model wrote its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Ids of what it rests on: evidence, actions, messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cites: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    Decision,
    Finding,
    Constraint,
    OpenLoop,
    Step,
    /// Ends an open loop or a step, or takes a constraint back.
    Close,
}

impl NoteKind {
    pub fn as_str(self) -> &'static str {
        match self {
            NoteKind::Decision => "decision",
            NoteKind::Finding => "finding",
            NoteKind::Constraint => "constraint",
            NoteKind::OpenLoop => "open_loop",
            NoteKind::Step => "step",
            NoteKind::Close => "close",
        }
    }
}
