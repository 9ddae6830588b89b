//! Events: what is true about a run, in the past tense. A (kind, version) never changes its meaning; fields are only added,
//! and only optional ones. Events carry decisions and amounts, never what a later binary would compute again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::{BudgetKind, Limits, Raise, Reservation, Usage};
use crate::check::{Accepted, Verdict};
use crate::context::note::Note;
use crate::context::summary::Line;
use crate::hook::{HookEvent, HookOutcome};
use crate::ids::{
    ActionId, AttemptId, CheckName, Digest, EvidenceId, FactName, Fence, InputId, RunId, Seq, ToolName, TurnId,
};
use crate::input::{Covers, Door, LateOutcome, Truth};
use crate::outcome::{ModelErrorClass, Outcome, ProbeAnswer, Reply, Served, ToolError};
use crate::payload::Payload;
use crate::prompt::Purpose;
use crate::ruling::{Effect, Shadowed};
use crate::taint::Mark;
use crate::target::Target;
use crate::task::{EffectClass, Mode, ModelSpec, Task};
use crate::time::Timestamp;

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
    GenerationStarted(Box<GenerationStarted>) = "generation.started";
    ResultSpilled(ResultSpilled) = "result.spilled";
    SummaryRequested(SummaryRequested) = "summary.requested";
    SummaryFinished(SummaryFinished) = "summary.finished";
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
    AnswerAccepted(AnswerAccepted) = "answer.accepted";
    AnswerRefused(AnswerRefused) = "answer.refused";
    CheckFinished(CheckFinished) = "check.finished";
    HookFinished(HookFinished) = "hook.finished";
    FactSet(FactSet) = "fact.set";
    FactVoided(FactVoided) = "fact.voided";
    BudgetReached(BudgetReached) = "budget.reached";
    BudgetRaised(BudgetRaised) = "budget.raised";
    SurroundingsChanged(SurroundingsChanged) = "surroundings.changed";
    SourceEndorsed(SourceEndorsed) = "source.endorsed";
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
            | EventKind::GenerationStarted
            | EventKind::ResultSpilled
            | EventKind::SummaryRequested
            | EventKind::SummaryFinished
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
            | EventKind::AnswerAccepted
            | EventKind::AnswerRefused
            | EventKind::CheckFinished
            | EventKind::HookFinished
            | EventKind::FactSet
            | EventKind::BudgetReached
            | EventKind::BudgetRaised
            | EventKind::SourceEndorsed
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
            | Event::GenerationStarted(_)
            | Event::ResultSpilled(_)
            | Event::SummaryFinished(_)
            | Event::NoteTaken(_)
            | Event::ActionProposed(_)
            | Event::ActionRefused(_)
            | Event::ActionRequeued(_)
            | Event::ActionProbed(_)
            | Event::AnswerAccepted(_)
            | Event::AnswerRefused(_)
            | Event::CheckFinished(_)
            | Event::HookFinished(_)
            | Event::FactSet(_)
            | Event::FactVoided(_)
            | Event::BudgetReached(_)
            | Event::SurroundingsChanged(_)
            | Event::InputRefused(_) => Durability::Written,
            Event::RunStarted(_)
            | Event::RunForked(_)
            | Event::InputReceived(_)
            | Event::ModelRequested(_)
            | Event::SummaryRequested(_)
            | Event::ModelSwitched(_)
            | Event::ActionHeld(_)
            | Event::ActionApproved(_)
            | Event::ActionDenied(_)
            | Event::ActionSettled(_)
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
    /// What the files that were captured for it bring: rule files and inputs that an untrusted text had got into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

/// What came before is another run's: history here, with nothing of it still to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunForked {
    pub from: RunId,
    /// The last event of the other that came along.
    pub at: Seq,
    /// The new run's own: what the other had left, on top of what was spent by then.
    pub limits: Limits,
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRefused {
    pub input: InputId,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequested {
    pub attempt: AttemptId,
    pub model: crate::ids::ModelName,
    pub purpose: Purpose,
    /// Of the encoded request.
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    pub reserved: Reservation,
    /// What admission counted. None: written by a version that did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Of the tail that went along, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Digest>,
}

/// What a request was held to have, in tokens, before it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The likely size, and the bound that is missed one time in a hundred.
    pub likely: u64,
    pub upper: u64,
    /// What may be sent: the window less the reserved output and the margin.
    pub safe: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReplied {
    pub attempt: AttemptId,
    pub reply: Reply,
    /// What the call is settled at; the reply's own usage or the reservation.
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
}

/// Where the amounts of a settlement come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    Reported,
    /// At the upper estimate, because nobody knows.
    Estimated,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    pub attempt: AttemptId,
    pub class: ModelErrorClass,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the model is told of it, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
    pub next: AfterFailure,
    /// What had arrived: a side record, no part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Payload>,
    /// What the server said of its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// What a failed model call leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// The next attempt is owed from then on.
    Retry {
        at: Timestamp,
    },
    /// The run stops and can be resumed.
    Suspend,
    Fail(Failure),
    ContextExhausted,
}

/// A model call that is not made, because it could only fail or get nowhere; and what follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelForgone {
    pub next: AfterFailure,
    /// For people: what is in the way, and the largest pieces of it.
    pub reason: String,
}

/// The context is made anew: from here on the prompt grows at its end again (`context.md` §4). Says what was decided; what
/// becomes of each item is the fold's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStarted {
    /// Counted from 1, which began with the run.
    pub generation: u32,
    pub why: RebuildWhy,
    /// Version of the rendering: see [`crate::context::window::RENDERING`].
    pub rendering: u32,
    /// The model's window by what is known, and what was kept free for the reply.
    pub limit: u64,
    pub reserved: u64,
    /// Likely tokens of a request.
    pub before: u64,
    pub after: u64,
    /// What is kept, but for the new control block, in proportion to what the provider counted last. None: it counted
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// In the order in which they are taken; each with what it frees.
    pub steps: Vec<RebuildStep>,
}

/// What made a rebuild due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildWhy {
    /// Carrying on costs more than making it anew.
    Economic,
    /// The provider's cache is cold: it costs nothing extra.
    ColdCache,
    /// The share that the task names was reached.
    Trigger,
    /// The safety watermark was reached.
    Watermark,
    /// Few turns are left by forecast.
    Forecast,
    /// It would not fit.
    Full,
    /// The provider refused the request as too long; how often in a row.
    Overflow(u32),
    /// Another version of Longrein renders differently.
    Rendering,
}

/// One step of a rebuild. Amounts are tokens by estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildStep {
    /// Results that a later one repeats or replaces, by a reference.
    Superseded { actions: Vec<(ActionId, ActionId)>, freed: u64 },
    /// Results that can be had again, by their handles.
    Refetchable { actions: Vec<ActionId>, freed: u64 },
    /// Whole turns out of the window.
    PagedOut { from: TurnId, to: TurnId, calls: u32, failures: u32, freed: u64 },
    /// Results, by their head and tail of so many bytes.
    Shortened { actions: Vec<ActionId>, bytes: u64, freed: u64 },
}

/// A model is asked what happened in turns that have left the window: a call beside the run's own, optional in every way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryRequested {
    /// The generation that began without these turns.
    pub generation: u32,
    /// Counted from 1.
    pub attempt: u32,
    pub from: TurnId,
    pub to: TurnId,
    pub model: crate::ids::ModelName,
    /// Of the encoded request.
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    pub reserved: Reservation,
    pub counted: Counted,
}

/// What came of a summary. Settles it, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryFinished {
    pub generation: u32,
    pub attempt: u32,
    pub outcome: SummaryOutcome,
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryOutcome {
    /// These lines are for the next control block.
    Kept { lines: Vec<Line> },
    /// A reply of which nothing is kept.
    Refused { reason: String },
    /// No whole reply.
    Failed {
        class: ModelErrorClass,
        message: String,
        /// The model's window, as it is counted from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        served: Option<u64>,
        /// It is asked for again, from this turn on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again: Option<TurnId>,
    },
    /// Nobody waits for it any more: the run stopped, or its process died.
    Lost,
    /// It was not asked for: nothing was sent.
    Forgone { reason: String },
}

/// A result too large for the window, as the model is shown it for good. The whole is in `action.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSpilled {
    pub action: ActionId,
    pub shown: Payload,
    /// Length of the whole in bytes of JSON.
    pub total: u64,
}

/// The model wrote something down for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteTaken {
    pub action: ActionId,
    pub note: Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSwitched {
    pub input: InputId,
    pub model: ModelSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionProposed {
    pub action: ActionId,
    /// Position of the call in the reply.
    pub index: u32,
    pub tool: ToolName,
    /// The id the conversation uses for it: the provider's, made unique.
    pub call: String,
    pub effect: EffectClass,
    /// Canonical; null where the text was no JSON object.
    pub args: Payload,
    pub digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Digest>,
    /// The path it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Calls of the same reply that must have succeeded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ActionId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRefused {
    pub action: ActionId,
    pub error: ToolError,
    /// Refused only because the run is a shadow: what it would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would: Option<Shadowed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionHeld {
    pub action: ActionId,
    /// Of the question: an answer must carry it (`semantics.md` E4).
    pub digest: Digest,
    pub rule: String,
    /// Why it is asked; where words are wanted, the model's question.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Wants::is_yes")]
    pub wants: Wants,
    /// The same for every call that would do the very same: what "always" remembers. None: no yes to an earlier call counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Digest>,
    /// What it would do, as far as that can be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// What a held action wants of a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// A yes or a no before it runs.
    #[default]
    Yes,
    /// An answer in words, which is its result.
    Words,
}

impl Wants {
    fn is_yes(&self) -> bool {
        *self == Wants::Yes
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionApproved {
    pub action: ActionId,
    pub input: InputId,
    pub digest: Digest,
    pub by: String,
    pub door: Door,
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Covers::is_once")]
    pub covers: Covers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionDenied {
    pub action: ActionId,
    /// None: nobody could be asked, and the default is no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputId>,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionStarted {
    pub action: ActionId,
    /// Counted from 1.
    pub attempt: u32,
    pub fence: Fence,
    pub effect: EffectClass,
    /// The rule that allowed it, ruled in the step that wrote this.
    pub rule: String,
    /// External: what the receiver may use to recognise a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Digest>,
    /// What exactly was ruled on, if it is about one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What its result brings into the run, if that taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
    /// What of it was allowed although it lies beyond the workspace: the sandbox lets a command do this, and no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<Effect>,
    /// The tier of the sandbox its processes run in (`gate.md` §4). None: it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// An action whose outcome was lost or doubtful is to be started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequeued {
    pub action: ActionId,
    pub why: Requeue,
}

/// Why it may be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// It changes nothing.
    Read,
    /// A reconcile command says that nothing happened.
    NoEffect,
    /// The receiver recognises the repetition by its key.
    Idempotent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionProbed {
    pub action: ActionId,
    pub attempt: u32,
    pub answer: ProbeAnswer,
    /// The next try, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionFinished {
    pub action: ActionId,
    /// 0: it never started, because an earlier call with its key had the result, or a person gave it.
    pub attempt: u32,
    pub effect: EffectClass,
    pub outcome: Outcome,
    pub how: How,
    #[serde(default)]
    pub cost_micros: u64,
    /// What of its result taints and was not known when it started: where it was led on to, what an earlier run's call
    /// had brought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

/// How an outcome is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It ran to its end here.
    Observed,
    /// Its process died with ours; this is what is certain.
    Recovered,
    /// A reconcile command told.
    Reconciled,
    /// The stored result of an earlier call with the same key.
    Replayed { run: RunId, action: ActionId },
    /// A person said it.
    Answered,
    /// The kernel carried it out itself, in the step that wrote this.
    Kept,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionSettled {
    pub action: ActionId,
    pub truth: Truth,
    pub by: SettledBy,
    /// As in [`ActionFinished`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledBy {
    Person {
        input: InputId,
        by: String,
    },
    /// A worker that had lost its claim knew.
    LateOutcome {
        input: InputId,
    },
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinished {
    pub check: CheckName,
    /// Counted from 1: each accepted answer starts a round.
    pub round: u32,
    pub verdict: Verdict,
    /// What its output brings into the run, where the model is shown it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
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
