//! How a run stands when nothing drives it any more.

use longrein_core::action::Life;
use longrein_core::budget::{BudgetKind, Spent};
use longrein_core::event::{End, Failure, Suspension, Wants};
use longrein_core::ids::{ActionId, EvidenceId, RunId, ToolName};
use longrein_core::owed;
use longrein_core::payload::Payload;
use longrein_core::run::{Activity, Run, Stage};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::projection;

/// Where a run was left: at its end, waiting for a person, or suspended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// How it stands.
    pub state: RunState,
    /// Why, for people.
    pub reason: String,
    /// The answer, where it is done: JSON where the task asks for JSON, else a string.
    pub answer: Option<Value>,
    /// The answer as people read it.
    pub text: Option<String>,
    /// Whether a check or a condition over evidence spoke for the answer; None: it is the model's word.
    pub verified: Option<bool>,
    /// The evidence the answer cites.
    pub evidence: Vec<EvidenceId>,
    /// The model's last words where they are no answer: unverified.
    pub remark: Option<String>,
    /// What a person is asked, where it waits.
    pub questions: Vec<Question>,
    /// External actions of which nobody knows whether they happened. While there is one, the run cannot be done.
    pub unknown: Vec<ActionId>,
    /// What it has used so far.
    pub spent: Spent,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// Every acceptance check passed, or none was asked for.
    Done,
    /// A budget ran out.
    Exhausted(BudgetKind),
    /// It failed, and will not come to its goal as it is.
    Failed(Failure),
    /// The conversation does not fit the model any more.
    ContextExhausted,
    /// It was cancelled.
    Cancelled,
    /// It waits for a person: answer its questions or settle what is unknown, and resume it.
    Waiting,
    /// It can be resumed.
    Suspended(Suspension),
}

/// A call that a person is asked about.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Question {
    /// What to approve or deny.
    pub action: ActionId,
    /// The tool that would be called.
    pub tool: ToolName,
    /// With these arguments, exactly.
    pub args: Value,
    /// The rule that has it asked.
    pub rule: String,
    /// Why, for people.
    pub reason: String,
    /// What the call would do, as far as that can be told.
    pub effects: Vec<longrein_core::ruling::Effect>,
    /// It would send out what the run has read: a person has to type this at a terminal (`longrein approve`), and no yes from
    /// here counts. None: a yes is enough.
    pub to_type: Option<String>,
}

impl RunOutcome {
    pub(crate) fn of(run: &Run) -> Self {
        let (state, remark) = match &run.stage {
            Stage::Rest(ended) => (at_rest(&ended.end), ended.remark.clone()),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                let state = match &run.activity {
                    Activity::Parked => RunState::Waiting,
                    Activity::Suspended { cause, .. } => RunState::Suspended(*cause),
                    Activity::Claimed | Activity::Idle => RunState::Suspended(Suspension::Dropped),
                };
                (state, None)
            }
        };
        let done = projection::answer(run);
        Self {
            run: run.id.clone(),
            state,
            reason: longrein_driver::run_row(run).reason,
            answer: done.and_then(|done| done.accepted.answer.read().ok()),
            text: done.map(|done| done.accepted.rendered.clone()),
            verified: done.and_then(|done| done.verified),
            evidence: done.map(|done| done.accepted.evidence.clone()).unwrap_or_default(),
            remark,
            questions: questions(run),
            unknown: owed::effects(run).2,
            spent: run.spent,
        }
    }

    /// The answer as a type. An error says why it is none.
    pub fn answer_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.answer.clone().unwrap_or_default())
    }

    /// Whether the run is done.
    pub fn is_done(&self) -> bool {
        self.state == RunState::Done
    }
}

fn at_rest(end: &End) -> RunState {
    match end {
        End::Done(_) => RunState::Done,
        End::Exhausted(budget) => RunState::Exhausted(*budget),
        End::Failed(failure) => RunState::Failed(*failure),
        End::ContextExhausted => RunState::ContextExhausted,
        End::Cancelled => RunState::Cancelled,
    }
}

/// What a run asks a person now.
pub(crate) fn questions(run: &Run) -> Vec<Question> {
    let asked = |action: &longrein_core::action::Action| match &action.life {
        Life::Held(held) => Some(Question {
            action: action.id,
            tool: action.tool.clone(),
            args: value(&action.args),
            rule: held.rule.clone(),
            reason: held.reason.clone(),
            effects: held.effects.clone(),
            to_type: match &held.wants {
                Wants::Typed(text) => Some(text.clone()),
                Wants::Yes | Wants::Words => None,
            },
        }),
        Life::Queued
        | Life::Started { .. }
        | Life::Lost(_)
        | Life::Doubtful(..)
        | Life::Unknown(_)
        | Life::Checking(_)
        | Life::Undoing(..)
        | Life::Compensating(..)
        | Life::Ended(_) => None,
    };
    run.actions().filter_map(asked).collect()
}

fn value(payload: &Payload) -> Value {
    payload.read().unwrap_or_default()
}
