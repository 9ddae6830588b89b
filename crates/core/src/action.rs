//! One tool call the model proposed, with a life of its own in the ledger.

use serde::{Deserialize, Serialize};

use crate::event::{How, Proposer, RollbackWhy, Wants};
use crate::ids::{ActionId, Digest, Fence, RunId, Seq, ToolName, TreeId, TurnId};
use crate::outcome::ToolError;
use crate::payload::{Content, Payload};
use crate::ruling::Effect;
use crate::taint::Mark;
use crate::target::Target;
use crate::task::{EffectClass, OnUnknown};
use crate::time::Timestamp;

/// An action of the present turn, or an unsettled one of an earlier turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub id: ActionId,
    pub turn: TurnId,
    pub tool: ToolName,
    /// The id the conversation uses for it.
    pub call: String,
    pub effect: EffectClass,
    pub args: Payload,
    pub digest: Digest,
    pub key: Option<Digest>,
    /// The path it names, for its hold; see [`crate::holds::Hold`].
    pub path: Option<String>,
    /// What its last start was about.
    pub target: Option<Target>,
    /// What its last start was allowed beyond the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<Effect>,
    /// Actions of the same reply that must have succeeded before this one starts.
    pub after: Vec<ActionId>,
    pub on_unknown: OnUnknown,
    /// When its first attempt started.
    pub first_start: Option<Timestamp>,
    /// How many attempts were started.
    pub attempts: u32,
    /// Write epoch at the start of its last attempt.
    pub epoch: usize,
    pub idempotency_key: Option<Digest>,
    /// An earlier attempt may have happened: it was only requeued because its receiver recognises repetitions.
    pub in_doubt: bool,
    /// What its result brings into the run, as far as it is known by now.
    #[serde(default)]
    pub brings: Vec<Mark>,
    #[serde(default, skip_serializing_if = "Proposer::is_model")]
    pub proposer: Proposer<Box<Compensates>>,
    /// A person's yes. It is for all attempts; its expiry counts until the first start.
    pub grant: Option<Grant>,
    /// The workspace before its last start, and as that left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<TreeId>,
    /// Another action that writes the workspace ran beside it: not everything that changed meanwhile is its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    pub life: Life,
}

/// What a compensating action undoes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compensates {
    pub action: ActionId,
    pub tool: ToolName,
    /// The other's: free again once it is undone.
    pub key: Option<Digest>,
    /// What the other's receiver knows it by.
    pub idempotency_key: Option<Digest>,
    /// What the other brought.
    pub result: Content,
}

/// A yes to one exact action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub digest: Digest,
    pub expires: Timestamp,
    pub by: String,
}

/// What a person is asked about an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub digest: Digest,
    pub rule: String,
    /// Why it is asked; where words are wanted, the model's question.
    pub reason: String,
    pub wants: Wants,
    /// What a yes to every call that does the very same would remember. None: such a yes does not count here.
    pub exact: Option<Digest>,
    /// What the action would do, as far as that can be told.
    pub effects: Vec<Effect>,
    /// The event that asked it.
    pub since: Seq,
    /// When nobody's silence counts as no answer. None: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl Question {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Where in its life an action is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Valid; waits for its turn to start.
    Queued,
    /// Waits for a person's answer.
    Held(Question),
    /// Runs under this fence.
    Started {
        fence: Fence,
        at: Timestamp,
    },
    /// It was running when its worker died or was stopped.
    Lost(Doubt),
    /// It ended by itself and nothing is certain.
    Doubtful(Doubt, ToolError),
    /// Nothing more can be found out here.
    Unknown(ToolError),
    /// It is done, and its check decides whether that is kept. Its hold is not free.
    Checking(Tentative),
    /// It failed, and what it did is to be undone: in the workspace, by going back. Its hold is not free.
    Undoing(ToolError, RollbackWhy),
    /// It failed, and another action is to undo it.
    Compensating(ToolError, ActionId),
    Ended(Ended),
}

/// A result that is not kept yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tentative {
    pub result: Content,
    pub how: How,
    pub at: Timestamp,
    /// The event that brought it, and the write epoch it was brought in.
    pub seq: Seq,
    pub epoch: usize,
}

/// What is being done to find out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Start of the attempt in question.
    pub started: Timestamp,
    /// When it was found lost or doubtful.
    pub since: Timestamp,
    /// Reconcile commands run without an answer.
    pub probes: u32,
    /// Not before then.
    pub retry_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It never ran.
    Refused(ToolError),
    Done {
        result: Content,
        how: How,
        at: Timestamp,
    },
    /// It ran and failed.
    Error(ToolError),
    /// External: it did not happen.
    NotDone(ToolError),
}

impl Action {
    /// Whether nothing more will happen to it in this turn: it ended, or is unknown and the model is to be told so.
    pub fn is_told(&self) -> bool {
        match &self.life {
            Life::Ended(_) => true,
            Life::Unknown(_) => self.on_unknown == OnUnknown::Tell,
            Life::Queued
            | Life::Held { .. }
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..) => false,
        }
    }

    /// Whether it succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self.life, Life::Ended(Ended::Done { .. }))
    }

    /// What it brought, if that is shown.
    pub fn data(&self) -> Option<&Content> {
        match &self.life {
            Life::Ended(Ended::Done { result, .. }) => Some(result),
            Life::Ended(Ended::Refused(error) | Ended::Error(error) | Ended::NotDone(error)) | Life::Unknown(error) => {
                error.data.as_ref()
            }
            Life::Checking(tentative) => Some(&tentative.result),
            Life::Doubtful(..)
            | Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Undoing(..)
            | Life::Compensating(..) => None,
        }
    }

    /// What a person is asked about it, if it waits for one.
    pub fn question(&self) -> Option<&Question> {
        if let Life::Held(question) = &self.life { Some(question) } else { None }
    }

    /// What it asks a person in words, if it does.
    pub fn asks(&self) -> Option<&Question> {
        self.question().filter(|question| question.wants == Wants::Words)
    }

    /// What it undoes, if the harness called it for that.
    pub fn undoes(&self) -> Option<&Compensates> {
        self.proposer.undoes().map(Box::as_ref)
    }

    /// Whether its effects may still be going on.
    pub fn may_run(&self) -> bool {
        matches!(self.life, Life::Started { .. } | Life::Lost(_))
    }

    /// Whether nobody knows what became of it.
    pub fn is_uncertain(&self) -> bool {
        matches!(self.life, Life::Lost(_) | Life::Doubtful(..) | Life::Unknown(_))
    }
}

/// One attempt of one action: everything its program is told, beside the data the harness hands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub run: RunId,
    pub action: ActionId,
    pub tool: ToolName,
    /// Canonical JSON object.
    pub args: Payload,
    /// Counted from 1.
    pub number: u32,
    pub fence: Fence,
    /// External tools: what the receiver may use to recognise a repetition; the same for all attempts.
    pub idempotency_key: Option<Digest>,
    /// What exactly was ruled on, if it is about one file.
    pub target: Option<Target>,
    /// See [`crate::event::ActionStarted::beyond`].
    pub beyond: Vec<Effect>,
    /// The call it is to undo: its program is given that call's arguments and result.
    pub undoes: Option<Undoes>,
}

/// A call that another one undoes, as the other's program is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undoes {
    pub action: ActionId,
    pub idempotency_key: Option<Digest>,
}

/// The right to run one attempt. Made only by core, from a start that is journaled under the present fence; a tool cannot
/// be run without one.
#[derive(Debug, PartialEq, Eq)]
pub struct Cleared(Attempt);

impl Cleared {
    pub(crate) fn new(attempt: Attempt) -> Self {
        Self(attempt)
    }

    pub fn attempt(&self) -> &Attempt {
        &self.0
    }
}
