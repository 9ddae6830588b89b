//! Inputs: what people and other runs send to a run. Durable before anything acts on them; taken in order, once.

use serde::{Deserialize, Serialize};

use crate::budget::Raise;
use crate::children::Report;
use crate::ids::{ActionId, Digest, InputId};
use crate::image::ImageRef;
use crate::outcome::Outcome;
use crate::payload::Content;
use crate::taint::Mark;
use crate::task::ModelSpec;
use crate::time::Timestamp;

/// The most untaken inputs a run's inbox holds; more are refused. Room for a talkative team, not for a loop gone wild.
pub const INBOX_MAX: usize = 256;

/// One entry of a run's inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub id: InputId,
    /// When it was sent: an answer that was sent in time is in time, whenever it is taken.
    pub at: Timestamp,
    pub body: InputBody,
    /// What goes with a message; their bytes are stored with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputBody {
    /// A person's words to the model.
    Message(String),
    Approve(Approve),
    Deny(Deny),
    /// A person says what became of an unknown effect.
    Settle(Settle),
    Cancel,
    /// What a worker learned that had lost its claim.
    LateOutcome(LateOutcome),
    Raise(Raise),
    SwitchModel(ModelSpec),
    Endorse(Endorse),
    /// A child has ended; or it is known by now what became of effects that it left unknown.
    ChildEnded(Box<Report>),
    Rollback(Rollback),
}

impl InputBody {
    /// Whether a person wants something with it that is lost if nobody takes it.
    pub fn is_of_a_person(&self) -> bool {
        match self {
            InputBody::Message(_)
            | InputBody::Approve(_)
            | InputBody::Deny(_)
            | InputBody::Settle(_)
            | InputBody::Raise(_)
            | InputBody::SwitchModel(_)
            | InputBody::Rollback(_) => true,
            // A run that rests does what a cancel asks for; what trusts a source is kept elsewhere too.
            InputBody::Cancel | InputBody::Endorse(_) | InputBody::LateOutcome(_) | InputBody::ChildEnded(_) => false,
        }
    }
}

/// By which door an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Terminal,
    Cli,
    Http,
    /// An embedding program.
    Library,
    /// A client of the MCP server, which was started as an operator's.
    Mcp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approve {
    pub action: ActionId,
    /// The digest of the question the person saw (`semantics.md` E4).
    pub digest: Digest,
    pub by: String,
    pub door: Door,
    /// When the grant expires.
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Covers::is_once")]
    pub covers: Covers,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a person has typed to confirm it ([`Wants::Typed`](crate::event::Wants)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<String>,
}

/// What a yes is good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// This one action, with all its attempts.
    #[default]
    Once,
    /// Every call of the run that would do the very same: same tool as it is defined now, same arguments, same evidence.
    Always,
}

impl Covers {
    pub(crate) fn is_once(&self) -> bool {
        *self == Covers::Once
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deny {
    pub action: ActionId,
    pub digest: Digest,
    pub by: String,
    pub door: Door,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub action: ActionId,
    pub truth: Truth,
    pub by: String,
}

/// What really became of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    Done(Content),
    NotDone,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateOutcome {
    pub action: ActionId,
    pub attempt: u32,
    pub outcome: Outcome,
    /// What its result turned out to bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

/// A person trusts a source: what it brought no longer taints the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endorse {
    /// Exactly as the run's taint lists it.
    pub source: String,
    pub by: String,
    pub door: Door,
}

/// A person wants the workspace as it was before the run changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// Before this action: it and all that came after are undone. None: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ActionId>,
    pub by: String,
    pub door: Door,
}
