//! Events: what is true about a run, in the past tense. A (kind, version) never changes its meaning; fields are only added,
//! and only optional ones. Events carry decisions and amounts, never what a later binary would compute again.

mod action;
mod child;
mod judge;
mod loops;
mod model;
mod program;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::{BudgetKind, Limits, Raise, Reservation, Usage};
use crate::check::{Accepted, Verdict};
use crate::children::Descent;
use crate::context::note::Note;
use crate::context::readmit::Readmitted;
use crate::context::summary::Line;
use crate::hook::{HookEvent, HookOutcome};
use crate::ids::{
    ActionId, AttemptId, CheckName, Digest, EvidenceId, FactName, Fence, InputId, NoteId, PhaseName, RunId, Seq,
    ToolName, TreeId, TurnId,
};
use crate::image::ImageRef;
use crate::input::{Covers, Door, LateOutcome, Truth};
use crate::manifest::Manifest;
use crate::outcome::{ModelErrorClass, Outcome, ProbeAnswer, Reply, Served, ToolError};
use crate::payload::Payload;
use crate::prompt::Purpose;
use crate::ruling::{Effect, Shadowed};
use crate::taint::Mark;
use crate::target::Target;
use crate::task::{EffectClass, Mode, ModelSpec, Task};
use crate::time::Timestamp;

pub use self::action::*;
pub use self::child::*;
pub use self::judge::*;
pub use self::loops::*;
pub use self::model::*;
pub use self::program::*;

/// What an event survives (`semantics.md` A2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The death of the process.
    Written,
    /// The loss of power; and with it everything before.
    Synced,
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($body:ty) = $name:literal;)*) => {
        /// One event. Serialises as `{"kind": body}`.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Event {
            $($(#[$doc])* #[serde(rename = $name)] $variant($body),)*
        }

        /// The kind of an event, without its body.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $($(#[$doc])* $variant,)*
        }

        impl EventKind {
            pub const ALL: &[EventKind] = &[$(EventKind::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(EventKind::$variant => $name,)*
                }
            }

            /// None: a kind this binary does not know.
            pub fn from_name(name: &str) -> Option<EventKind> {
                match name {
                    $($name => Some(EventKind::$variant),)*
                    _ => None,
                }
            }
        }

        impl Event {
            pub fn kind(&self) -> EventKind {
                match self {
                    $(Event::$variant(_) => EventKind::$variant,)*
                }
            }
        }
    };
}

events! {
    RunStarted(Box<RunStarted>) = "run.started";
    RunForked(RunForked) = "run.forked";
    RunClaimed(RunClaimed) = "run.claimed";
    InputReceived(InputReceived) = "input.received";
    InputRefused(InputRefused) = "input.refused";
    ModelRequested(ModelRequested) = "model.requested";
    ModelReplied(ModelReplied) = "model.replied";
    ModelFailed(ModelFailed) = "model.failed";
    ModelSwitched(ModelSwitched) = "model.switched";
    ModelForgone(ModelForgone) = "model.forgone";
    ModelRouted(ModelRouted) = "model.routed";
    GenerationStarted(Box<GenerationStarted>) = "generation.started";
    ResultSpilled(ResultSpilled) = "result.spilled";
    SummaryRequested(SummaryRequested) = "summary.requested";
    SummaryFinished(SummaryFinished) = "summary.finished";
    JudgeRequested(JudgeRequested) = "judge.requested";
    JudgeFinished(JudgeFinished) = "judge.finished";
    NoteTaken(NoteTaken) = "note.taken";
    ActionProposed(ActionProposed) = "action.proposed";
    ActionRefused(ActionRefused) = "action.refused";
    ActionHeld(ActionHeld) = "action.held";
    ActionApproved(ActionApproved) = "action.approved";
    ActionDenied(ActionDenied) = "action.denied";
    ActionStarted(ActionStarted) = "action.started";
    ActionRequeued(ActionRequeued) = "action.requeued";
    ActionProbed(ActionProbed) = "action.probed";
    ActionFinished(ActionFinished) = "action.finished";
    ActionSettled(ActionSettled) = "action.settled";
    ActionRolledBack(ActionRolledBack) = "action.rolled_back";
    ActionNotUndone(ActionNotUndone) = "action.not_undone";
    AnswerAccepted(AnswerAccepted) = "answer.accepted";
    AnswerRefused(AnswerRefused) = "answer.refused";
    CheckFinished(CheckFinished) = "check.finished";
    ChildStarted(Box<ChildStarted>) = "child.started";
    ChildEnded(Box<ChildEnded>) = "child.ended";
    ChecksVoided(ChecksVoided) = "checks.voided";
    HookFinished(HookFinished) = "hook.finished";
    LoopNoticed(LoopNoticed) = "loop.noticed";
    FactSet(FactSet) = "fact.set";
    FactVoided(FactVoided) = "fact.voided";
    BudgetReached(BudgetReached) = "budget.reached";
    BudgetRaised(BudgetRaised) = "budget.raised";
    SurroundingsChanged(SurroundingsChanged) = "surroundings.changed";
    SourceEndorsed(SourceEndorsed) = "source.endorsed";
    TransitionTaken(Box<TransitionTaken>) = "transition.taken";
    RunParked(RunParked) = "run.parked";
    RunSuspended(RunSuspended) = "run.suspended";
    RunEnded(Box<RunEnded>) = "run.ended";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl EventKind {
    /// The version of the kind's body that this binary writes.
    pub const VERSION: u32 = 1;

    /// Whether a binary that does not know the kind must leave the run alone. Only notes may be passed over.
    pub fn must_understand(self) -> bool {
        match self {
            EventKind::SurroundingsChanged | EventKind::FactVoided | EventKind::InputRefused => false,
            EventKind::RunStarted
            | EventKind::RunForked
            | EventKind::RunClaimed
            | EventKind::InputReceived
            | EventKind::ModelRequested
            | EventKind::ModelReplied
            | EventKind::ModelFailed
            | EventKind::ModelSwitched
            | EventKind::ModelForgone
            | EventKind::ModelRouted
            | EventKind::GenerationStarted
            | EventKind::ResultSpilled
            | EventKind::SummaryRequested
            | EventKind::SummaryFinished
            | EventKind::JudgeRequested
            | EventKind::JudgeFinished
            | EventKind::NoteTaken
            | EventKind::ActionProposed
            | EventKind::ActionRefused
            | EventKind::ActionHeld
            | EventKind::ActionApproved
            | EventKind::ActionDenied
            | EventKind::ActionStarted
            | EventKind::ActionRequeued
            | EventKind::ActionProbed
            | EventKind::ActionFinished
            | EventKind::ActionSettled
            | EventKind::ActionRolledBack
            | EventKind::ActionNotUndone
            | EventKind::AnswerAccepted
            | EventKind::AnswerRefused
            | EventKind::CheckFinished
            | EventKind::ChildStarted
            | EventKind::ChildEnded
            | EventKind::ChecksVoided
            | EventKind::HookFinished
            | EventKind::LoopNoticed
            | EventKind::FactSet
            | EventKind::BudgetReached
            | EventKind::BudgetRaised
            | EventKind::SourceEndorsed
            | EventKind::TransitionTaken
            | EventKind::RunParked
            | EventKind::RunSuspended
            | EventKind::RunEnded => true,
        }
    }
}

impl Event {
    /// What it brings into its run that may taint it.
    pub fn brings(&self) -> &[Mark] {
        if let Event::RunStarted(started) = self {
            &started.brings
        } else if let Event::ActionStarted(started) = self {
            started.brings.as_slice()
        } else if let Event::ActionFinished(finished) = self {
            &finished.brings
        } else if let Event::ActionSettled(settled) = self {
            &settled.brings
        } else if let Event::CheckFinished(finished) = self {
            &finished.brings
        } else if let Event::ChildEnded(ended) = self {
            &ended.report.brings
        } else {
            &[]
        }
    }

    /// How durable the batch that carries it must be (`semantics.md` A2).
    pub fn durability(&self) -> Durability {
        let by_class = |effect: EffectClass| match effect {
            EffectClass::Read => Durability::Written,
            EffectClass::Workspace | EffectClass::External => Durability::Synced,
        };
        match self {
            Event::ActionStarted(started) => by_class(started.effect),
            Event::ActionFinished(finished) => by_class(finished.effect),
            Event::ModelReplied(_)
            | Event::ModelFailed(_)
            | Event::RunClaimed(_)
            | Event::ModelForgone(_)
            | Event::ModelRouted(_)
            | Event::GenerationStarted(_)
            | Event::ResultSpilled(_)
            | Event::SummaryFinished(_)
            | Event::JudgeFinished(_)
            | Event::NoteTaken(_)
            | Event::ActionProposed(_)
            | Event::ActionRefused(_)
            | Event::ActionRequeued(_)
            | Event::ActionProbed(_)
            | Event::AnswerAccepted(_)
            | Event::AnswerRefused(_)
            | Event::CheckFinished(_)
            | Event::ChecksVoided(_)
            | Event::HookFinished(_)
            | Event::LoopNoticed(_)
            | Event::FactSet(_)
            | Event::FactVoided(_)
            | Event::BudgetReached(_)
            | Event::SurroundingsChanged(_)
            | Event::TransitionTaken(_)
            | Event::InputRefused(_) => Durability::Written,
            Event::RunStarted(_)
            | Event::RunForked(_)
            | Event::InputReceived(_)
            | Event::ModelRequested(_)
            | Event::SummaryRequested(_)
            | Event::JudgeRequested(_)
            | Event::ModelSwitched(_)
            | Event::ActionHeld(_)
            | Event::ActionApproved(_)
            | Event::ActionDenied(_)
            | Event::ActionSettled(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_)
            | Event::ActionRolledBack(_)
            | Event::ActionNotUndone(_)
            | Event::BudgetRaised(_)
            | Event::SourceEndorsed(_)
            | Event::RunParked(_)
            | Event::RunSuspended(_)
            | Event::RunEnded(_) => Durability::Synced,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    pub run: RunId,
    pub task: Task,
    /// Version of the binary that started it.
    pub binary: String,
    /// The run at the root of the tree this one belongs to: keys are unique there. None: this is the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RunId>,
    /// The run that asked for this one. None: a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descent: Option<Descent>,
    /// What the files that were captured for it bring: rule files and inputs that an untrusted text had got into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
    /// The workspace as its parent found it, where both work in the same: what checks go by is compared with that. None:
    /// nobody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tree: Option<TreeId>,
}

/// What came before is another run's: history here, with nothing of it still to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunForked {
    pub from: RunId,
    /// The last event of the other that came along.
    pub at: Seq,
    /// The new run's own: what the other had left, on top of what was spent by then.
    pub limits: Limits,
    /// The workspace as the other found it, whether it looked before that event or after: what checks go by is compared with
    /// that. None: it has not looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tree: Option<TreeId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    pub fence: Fence,
    pub host: String,
    pub boot: String,
    pub pid: u32,
    pub binary: String,
    /// Until when a worker that died before is held to have worked: its last sign of life and a renewal's time on top, an
    /// upper estimate, so that the budget of time does not refill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputReceived {
    pub input: InputId,
    pub body: Received,
    /// What came with a message, or with an answer: then they are shown as a message of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

/// Inputs that have no event of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Received {
    Message(String),
    /// A message that answers what this action asks: its text is the action's result.
    Answer(ActionId),
    Cancel,
    /// Recorded only: the action was not lost or unknown any more.
    LateOutcome(LateOutcome),
    /// What is still unknown of a child that has ended: less than before.
    ChildSettled {
        child: RunId,
        unknown: BTreeMap<RunId, Vec<ActionId>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRefused {
    pub input: InputId,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerAccepted {
    pub attempt: AttemptId,
    pub accepted: Accepted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRefused {
    pub attempt: AttemptId,
    pub reason: String,
    /// Nothing is wrong with its form: it came too early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Unfinished>,
    /// It was no answer to the task, but what this phase of the program wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinished {
    /// Of an action's check: the tool's name.
    pub check: CheckName,
    /// Counted from 1: each accepted answer starts a round. Of an action's check: its attempt.
    pub round: u32,
    /// The action that was checked. None: it is an acceptance check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionId>,
    pub verdict: Verdict,
    /// What its output brings into the run, where the model is shown it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
    /// The program ran it in this phase: its verdict is a value, no acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
}

/// What the checks of a round have seen is not the workspace as it is: all of them are owed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksVoided {
    pub round: u32,
    /// As it is. None: that could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
}

/// A hook was told of something and has answered, or failed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFinished {
    /// Its place in the task's list.
    pub hook: u32,
    pub event: HookEvent,
    /// Its command in one line.
    pub command: String,
    pub outcome: HookOutcome,
    /// Words of it for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    pub took_ms: u64,
    /// The call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionId>,
    /// The message it is about. None at a prompt: the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactSet {
    pub fact: FactName,
    pub evidence: EvidenceId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactVoided {
    pub fact: FactName,
    pub evidence: EvidenceId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReached {
    pub budget: BudgetKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    pub input: InputId,
    pub raise: Raise,
}

/// A person trusts a source from now on: what it brought no longer taints the run. Nothing else lowers a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEndorsed {
    pub input: InputId,
    pub source: String,
    pub by: String,
    pub door: Door,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurroundingsChanged {
    /// Pinned names whose content differs now.
    pub changed: Vec<String>,
    /// The permission mode that an operator gave the run, where it is another one from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunParked {
    pub waits: Vec<Wait>,
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A person's yes or no.
    Approval(ActionId),
    /// A person's answer in words.
    Answer(ActionId),
    /// A person's word on what became of it.
    Unknown(ActionId),
    /// What a child waits for, or what is to be settled there.
    Child { child: RunId, waits: Vec<Wait> },
}

impl Wait {
    /// What is to be answered, each with the run whose question it is: its own, or a child's at any depth.
    pub fn questions<'a>(run: &'a RunId, waits: &'a [Wait]) -> Vec<(&'a RunId, &'a Wait)> {
        let mut all = Vec::new();
        for wait in waits {
            match wait {
                Wait::Approval(_) | Wait::Answer(_) | Wait::Unknown(_) => all.push((run, wait)),
                Wait::Child { child, waits } => all.extend(Wait::questions(child, waits)),
            }
        }
        all
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSuspended {
    pub cause: Suspension,
    pub detail: String,
}

/// Why a run stopped that could go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspension {
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The model endpoint failed for good or cannot be reached.
    Model,
    /// The embedding program let go of it.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    pub end: End,
    /// For people: what happened and what could be done.
    pub reason: String,
    /// The model's last words where they are no answer: unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Workspace and external actions that are known to have happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<ActionId>,
    /// Those proposed that did not happen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<ActionId>,
    /// Of a shadow run: what it would have done.
    #[serde(default, skip_serializing_if = "Would::is_nothing")]
    pub would: Would,
}

/// The calls a shadow run made and did not carry out, by what would have become of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Would {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<ActionId>,
}

impl Would {
    pub fn is_nothing(&self) -> bool {
        self.count() == 0
    }

    pub fn has(&self, action: ActionId) -> bool {
        [&self.allowed, &self.asked, &self.denied].into_iter().any(|ids| ids.contains(&action))
    }

    pub fn count(&self) -> usize {
        self.allowed.len() + self.asked.len() + self.denied.len()
    }
}

/// The states in which a run rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Done(Done),
    Exhausted(BudgetKind),
    Failed(Failure),
    ContextExhausted,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub accepted: Accepted,
    /// Some(true): every check passed. None: nothing was asked for but the model's word.
    pub verified: Option<bool>,
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Acceptance checks did not pass in the rounds there are.
    Checks,
    /// The answer was refused as often as it may be.
    Answer,
    /// The model broke the protocol again and again.
    Protocol,
    /// The model or its provider declined.
    ModelRefused,
    /// Five claims in a row died without getting anywhere.
    Poisoned,
    /// The script of a scripted model does not fit what happened.
    Script,
    /// The context was made anew again and again and nothing came of it.
    NoProgress,
    /// It was a shadow run: it came to its end, and nothing of it happened.
    Shadow,
    /// A hook had something against it that the run cannot go on without.
    Hook,
    /// It went in circles.
    Loop,
    /// The model said it was done while something it had begun was not.
    Incomplete,
    /// Its program led there, or could not go on.
    Program,
}

impl End {
    /// The state's name.
    pub fn state(&self) -> &'static str {
        match self {
            End::Done(_) => "done",
            End::Exhausted(_) => "exhausted",
            End::Failed(_) => "failed",
            End::ContextExhausted => "context_exhausted",
            End::Cancelled => "cancelled",
        }
    }
}
