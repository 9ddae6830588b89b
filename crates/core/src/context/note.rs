//! Notes: what the model writes down for itself. A note is never a fact and satisfies no `requires` (`semantics.md` G6).

use serde::{Deserialize, Serialize};

/// The most bytes of a note: it is carried in every request until it is closed.
pub const NOTE_MAX_BYTES: usize = 2_000;

/// The most ids a note cites.
pub const CITES_MAX: usize = 16;

/// One call of `note`, read and checked. Serialises as the arguments of that call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub kind: NoteKind,
    pub text: String,
    /// The id of the earlier note that this one replaces or closes, as the model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "id")]
    pub replaces: Option<String>,
    /// Ids of what it rests on, as the model wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cites: Vec<String>,
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// What was chosen, and why.
    Decision,
    /// What turned out to be so; it cites what shows it.
    Finding,
    /// What must hold in all that follows.
    Constraint,
    /// What is still to be done or found out.
    OpenLoop,
    /// What is being worked on now.
    Step,
    /// An earlier note is settled.
    Close,
}

impl NoteKind {
    pub const ALL: [NoteKind; 6] = [
        NoteKind::Decision,
        NoteKind::Finding,
        NoteKind::Constraint,
        NoteKind::OpenLoop,
        NoteKind::Step,
        NoteKind::Close,
    ];

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
