//! A run: what its events add up to. `apply` folds one event in and cannot fail; nothing else changes a run.

mod actions;
mod hooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Attempt, Cleared, Doubt, Ended, Grant, Life, Question};
use crate::budget::{BudgetKind, Limits, Reservation, Spent, Usage};
use crate::check::{Accepted, Finding, Verdict};
use crate::context::block;
use crate::context::memory::{EffectState, Memory, message_id};
use crate::context::settings::ASSUMED_LIMIT;
use crate::context::summary::Summaries;
use crate::context::window::{self, Part, TailBy, TailShown, Window};
use crate::event::{
    ActionFinished, ActionProposed, ActionSettled, ActionStarted, AfterFailure, CheckFinished, End, Event, How,
    ModelFailed, ModelReplied, Received, Requeue, ResultSpilled, RunEnded, RunForked, RunStarted, Settled, Suspension,
    Wants, Would,
};
use crate::hook::{HookEvent, HookState, Stopping, listening};
use crate::ids::{ActionId, AttemptId, CheckName, Digest, EvidenceId, FactName, Fence, RunId, Seq, ToolName, TurnId};
use crate::input::{Covers, Truth};
use crate::observe;
use crate::outcome::{Outcome, Served, ToolError, class};
use crate::payload::{BlobRef, Content};
use crate::prompt::{Item, Purpose, WireCall};
use crate::ruling::Ruling;
use crate::taint::{Mark, Taint};
use crate::task::{EffectClass, Holds, Mode, ModelSpec, OnUnknown, Task, ToolSpec};
use crate::time::{Timestamp, millis};

/// The state of one run. Read [`Stage`] first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    /// The root of the tree of runs this one belongs to; None: it is the root.
    pub root: Option<RunId>,
    #[serde(skip, default = "crate::snapshot::no_task")]
    pub task: Arc<Task>,
    /// How much it may do without a person: the task's, or what an operator made of it.
    pub mode: Mode,
    /// Of a shadow run: the calls it did not carry out, each with what would have become of it.
    pub would: Would,
    /// The system text, made once from the task.
    #[serde(skip)]
    pub system: Arc<str>,
    /// The task's model, or the one switched to.
    pub model: ModelSpec,
    /// The task's limits, as raised.
    pub limits: Limits,
    pub spent: Spent,
    pub stage: Stage,
    /// Number and time of the last event.
    pub head: Seq,
    pub at: Timestamp,
    pub started: Timestamp,
    pub fence: Fence,
    /// What of the conversation the model sees.
    pub window: Window,
    /// What it must know whatever it sees.
    pub memory: Memory,
    /// What a model made of the turns that have left.
    pub summaries: Summaries,
    /// Shown to the model after the observations of the present turn.
    pub pending: Vec<(Part, Item)>,
    /// The actions of the last turn, until its observations are sent: those may still be made shorter.
    pub fresh: Vec<Action>,
    /// Actions of earlier turns whose outcome is still unknown; the model was told so.
    pub open: BTreeMap<ActionId, Action>,
    /// Shared with copies: there may be thousands.
    pub evidence: Arc<BTreeMap<EvidenceId, Evidence>>,
    /// Live facts and the evidence that set them.
    pub facts: BTreeMap<FactName, EvidenceId>,
    /// One entry per write epoch: the event that began it. The first began with the run.
    pub epochs: Vec<Seq>,
    /// Files as the run last saw or left them, by the path of [`crate::target::Target`]: what it may change without
    /// looking again.
    pub seen: BTreeMap<String, Digest>,
    /// Calls a person allowed for the rest of the run, by the digest of what exactly they do, and who allowed them.
    pub allowed: BTreeMap<Digest, String>,
    /// Where what it has read came from.
    pub taint: Taint,
    /// Started calls per tool.
    pub calls: BTreeMap<ToolName, u32>,
    /// Workspace and external actions known to have happened.
    pub happened: Vec<ActionId>,
    /// The run is being brought to rest: nothing new starts.
    pub winding: Option<Winding>,
    pub closing: Closing,
    pub activity: Activity,
    /// What changed around the task since it started.
    pub surroundings: BTreeSet<String>,
    /// Claims that found a dead predecessor.
    pub recoveries: u32,
    /// Calls that ended in an error.
    pub failed_calls: u32,
    /// Claims in a row, each after a death, without anything achieved between them. An orderly stop is no death.
    pub barren_claims: u32,
    pub answer_refusals: u32,
    pub failed_rounds: u32,
    /// Rounds of acceptance begun.
    pub rounds: u32,
    #[serde(default, skip_serializing_if = "HookState::is_idle")]
    pub hooks: HookState,
    /// The request and the input tokens it was reported to have: what later estimates build on.
    pub anchor: Option<Anchor>,
    next_action: u32,
    call_ids: BTreeSet<String>,
}

/// What a run is doing, with exactly the data that needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The next thing is a model call, or an end.
    Ready(Ready),
    /// A model call is journaled as sent.
    Thinking(Thinking),
    /// The calls of a reply, each with its own life.
    Acting {
        turn: TurnId,
        actions: BTreeMap<ActionId, Action>,
    },
    /// An answer was accepted in form; the acceptance checks decide. None: not run yet.
    Verifying {
        round: u32,
        accepted: Accepted,
        verdicts: BTreeMap<CheckName, Option<Verdict>>,
        since: Timestamp,
    },
    Rest(Box<RunEnded>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Attempts already made at this turn's call.
    pub attempts: u32,
    /// Failures of it since the last claim, and how many replies of it were malformed.
    pub failures: u32,
    pub malformed: u32,
    /// What the last failure leads to.
    pub after: Option<AfterFailure>,
    /// The last failure in words.
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    pub attempt: AttemptId,
    pub purpose: Purpose,
    pub reserved: Reservation,
    pub bytes: u64,
    pub digest: Digest,
    /// Whether a tail went along.
    pub tail: bool,
    pub failures: u32,
    pub malformed: u32,
}

/// Why nothing new is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Winding {
    pub why: WindingWhy,
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindingWhy {
    Cancelled,
    /// Time or deadline.
    OutOf(BudgetKind),
    /// A hook said so.
    Hook,
}

/// Where the run stands with the closing call of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    NotYet,
    /// A budget was reached: the next call is the closing one, if it fits.
    Owed(BudgetKind),
    /// It was made, or did not fit: the run is exhausted.
    Over(BudgetKind, Option<String>),
}

/// Whether a worker is at it, as far as the journal tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Not claimed yet, or at rest.
    Idle,
    /// Claimed; if nobody holds the claim, its worker died.
    Claimed,
    Parked,
    Suspended {
        cause: Suspension,
        detail: String,
    },
}

/// The last request whose size the provider told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub bytes: u64,
    /// Of its input.
    pub tokens: u64,
    pub generation: u32,
    /// Items of the window it held.
    pub items: usize,
    /// Whether a tail went along, which is no part of the next request.
    pub tail: bool,
    pub at: Timestamp,
    pub of: Counts,
}

/// Whose count an anchor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// The provider's, of a whole request.
    Reported,
    /// What a rebuild kept, in proportion to the provider's last count: all of the items but the one at this place, which is
    /// new.
    Kept { but: usize },
}

/// What an action brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub tool: ToolName,
    /// The event that brought it.
    pub seq: Seq,
    /// None: its turn has left the window, and it is read from the journal when it is needed.
    pub content: Option<Content>,
    /// Index into [`Run::epochs`].
    pub epoch: usize,
    pub holds: Holds,
    pub at: Timestamp,
}

impl Run {
    /// A run at its first event.
    pub fn new(started: &RunStarted, at: Timestamp) -> Self {
        let task = Arc::new(started.task.clone());
        let mut run = Self {
            id: started.run.clone(),
            root: started.root.clone(),
            mode: task.permission_mode,
            would: Would::default(),
            system: observe::system(&task).into(),
            model: task.model.clone(),
            limits: task.limits.clone(),
            spent: Spent::default(),
            stage: Stage::Ready(Ready::default()),
            head: Seq(1),
            at,
            started: at,
            fence: Fence(0),
            window: Window::new(block::root_rules(&task), observe::user(&task.goal)),
            memory: Memory::default(),
            summaries: Summaries::default(),
            pending: Vec::new(),
            fresh: Vec::new(),
            open: BTreeMap::new(),
            evidence: Arc::default(),
            facts: BTreeMap::new(),
            seen: BTreeMap::new(),
            epochs: vec![Seq(1)],
            allowed: BTreeMap::new(),
            taint: Taint::default(),
            calls: BTreeMap::new(),
            happened: Vec::new(),
            winding: None,
            closing: Closing::NotYet,
            activity: Activity::Idle,
            surroundings: BTreeSet::new(),
            recoveries: 0,
            failed_calls: 0,
            barren_claims: 0,
            answer_refusals: 0,
            failed_rounds: 0,
            rounds: 0,
            hooks: HookState::new(&task),
            anchor: None,
            next_action: 1,
            call_ids: BTreeSet::new(),
            task,
        };
        run.bring(&started.brings);
        // The system text says what a tail would, unless a tool cannot be called yet.
        let can_all = run.task.tools.iter().all(|tool| crate::decide::missing_capability(&run, &tool.name).is_none());
        run.window.tail = can_all.then(|| window::shown_by_header(&run));
        run
    }

    /// Tokens the model takes, request and reply together: as declared, or less where the server showed so.
    pub fn window_limit(&self) -> u64 {
        let declared = self.model.context_limit.unwrap_or(ASSUMED_LIMIT);
        self.window.served.limit.into_iter().chain(self.window.guessed).fold(declared, u64::min)
    }

    /// The turn that is going on or comes next.
    pub fn turn(&self) -> TurnId {
        match &self.stage {
            Stage::Acting { turn, .. } => *turn,
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Verifying { .. } | Stage::Rest(_) => {
                TurnId(u32::try_from(self.spent.turns).unwrap_or(u32::MAX).saturating_add(1))
            }
        }
    }

    /// The id the next proposed action gets.
    pub fn next_action(&self) -> ActionId {
        ActionId(self.next_action)
    }

    /// An action that is still in play: of the present turn, or unsettled.
    pub fn action(&self, id: ActionId) -> Option<&Action> {
        match &self.stage {
            Stage::Acting { actions, .. } => actions.get(&id),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Verifying { .. } | Stage::Rest(_) => None,
        }
        .or_else(|| self.open.get(&id))
    }

    /// All actions still in play, in call order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let present = match &self.stage {
            Stage::Acting { actions, .. } => Some(actions),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Verifying { .. } | Stage::Rest(_) => None,
        };
        self.open.values().chain(present.into_iter().flat_map(BTreeMap::values))
    }

    /// The name of the tool that an action of the present or the last turn calls.
    pub fn called(&self, id: ActionId) -> Option<ToolName> {
        let fresh = || self.fresh.iter().find(|action| action.id == id);
        self.action(id).or_else(fresh).map(|action| action.tool.clone())
    }

    /// The tool an action in play calls.
    pub fn tool_of(&self, id: ActionId) -> Option<&ToolSpec> {
        self.action(id).and_then(|action| self.task.tool(&action.tool))
    }

    /// Actions nobody knows the outcome of.
    pub fn uncertain(&self) -> impl Iterator<Item = &Action> {
        self.actions().filter(|action| action.is_uncertain())
    }

    /// The event since which a piece of evidence is void; None while it is live.
    pub fn void_since(&self, evidence: &Evidence) -> Option<Seq> {
        match evidence.holds {
            Holds::Run => None,
            Holds::UntilWrite => self.epochs.get(evidence.epoch + 1).copied(),
        }
    }

    pub fn fact_holds(&self, fact: &FactName) -> bool {
        self.facts
            .get(fact)
            .and_then(|id| self.evidence.get(id))
            .is_some_and(|evidence| self.void_since(evidence).is_none())
    }

    /// A call id no other call of this conversation has: the provider's own where that works.
    pub fn unique_call_id(&self, given: &str, action: ActionId, taken: &BTreeSet<String>) -> String {
        let is_free = |id: &str| !self.call_ids.contains(id) && !taken.contains(id);
        let plain = !given.is_empty() && given.len() <= 64 && given.bytes().all(|b| b.is_ascii_graphic());
        if plain && is_free(given) {
            return given.to_owned();
        }
        let mut id = format!("call_{action}");
        while !is_free(&id) {
            id.push('_');
        }
        id
    }

    /// The right to run a start that has just been journaled. None if it is not this claim's, or is over already.
    pub fn clear(&self, started: &ActionStarted) -> Option<Cleared> {
        let action = self.action(started.action)?;
        match &action.life {
            Life::Started { fence, .. }
                if *fence == started.fence && *fence == self.fence && action.attempts == started.attempt =>
            {
                Some(Cleared::new(self.attempt(action, started.idempotency_key.clone())))
            }
            Life::Started { .. }
            | Life::Queued
            | Life::Held { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Unknown(_)
            | Life::Ended(_) => None,
        }
    }

    /// What a reconcile command is told about an action's last attempt.
    pub fn attempt(&self, action: &Action, idempotency_key: Option<Digest>) -> Attempt {
        Attempt {
            run: self.id.clone(),
            action: action.id,
            tool: action.tool.clone(),
            args: action.args.clone(),
            number: action.attempts,
            fence: self.fence,
            idempotency_key,
            target: action.target.clone(),
            beyond: action.beyond.clone(),
        }
    }

    /// Whether time passes on the run's own account.
    fn is_working(&self) -> bool {
        match self.stage {
            Stage::Rest(_) => false,
            Stage::Ready(_) | Stage::Thinking(_) => self.activity == Activity::Claimed,
            Stage::Acting { .. } | Stage::Verifying { .. } => {
                self.activity == Activity::Claimed && crate::owed::waits(self).is_empty()
            }
        }
    }

    /// Working time used up at `now`, in milliseconds.
    pub fn time_used(&self, now: Timestamp) -> u64 {
        let running = if self.is_working() { millis(now.since(self.at)) } else { 0 };
        self.spent.time_ms.saturating_add(running)
    }

    // ---- folding ----

    /// Folds one event in. `seq` and `at` are its envelope's.
    pub fn apply(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        // Between a dead worker's last sign of life and the next claim nobody worked.
        let working_until = if let Event::RunClaimed(claimed) = event {
            claimed.worked_until.unwrap_or(self.at).min(at)
        } else if let Event::RunForked(_) = event {
            self.at
        } else {
            at
        };
        self.spent.time_ms = self.time_used(working_until);
        self.head = seq;
        self.at = at;
        match event {
            Event::RunStarted(_) => {}
            Event::RunForked(forked) => self.forked(forked),
            Event::RunClaimed(claimed) => self.claimed(claimed.fence),
            Event::InputReceived(received) => {
                self.barren_claims = 0;
                match &received.body {
                    Received::Message(text) => self.message(seq, text),
                    Received::Cancel => {
                        self.winding = Some(Winding { why: WindingWhy::Cancelled, since: at });
                    }
                    // Its text is the action's result.
                    Received::Answer(_) | Received::LateOutcome(_) => {}
                }
            }
            Event::InputRefused(_) => {}
            Event::ModelRequested(requested) => {
                let ready = self.ready().cloned().unwrap_or_default();
                self.spent.model_calls += 1;
                self.fresh.clear();
                if let Some(digest) = &requested.tail {
                    let shown = TailShown { digest: digest.clone(), turn: requested.attempt.turn, by: TailBy::Request };
                    self.window.tail = Some(shown);
                }
                self.stage = Stage::Thinking(Thinking {
                    attempt: requested.attempt,
                    purpose: requested.purpose,
                    reserved: requested.reserved,
                    bytes: requested.bytes,
                    digest: requested.digest.clone(),
                    tail: requested.tail.is_some(),
                    failures: ready.failures,
                    malformed: ready.malformed,
                });
            }
            Event::ModelReplied(replied) => self.replied(replied),
            Event::ModelFailed(failed) => self.model_failed(failed),
            Event::ModelSwitched(switched) => {
                self.barren_claims = 0;
                self.model = switched.model.clone();
                self.anchor = None;
                self.window.served = Served::default();
                self.window.guessed = None;
                // Whoever names a model anew wants it asked anew.
                self.window.trusts_learned = false;
                self.window.overflows = 0;
                self.window.answered = 0;
                self.window.rejected = None;
                self.reopen("Another model goes on with this run.");
            }
            Event::ModelForgone(forgone) => {
                let attempts = self.ready().map(|ready| ready.attempts).unwrap_or_default();
                self.stage = Stage::Ready(Ready {
                    attempts,
                    after: Some(forgone.next),
                    detail: forgone.reason.clone(),
                    ..Ready::default()
                });
            }
            Event::GenerationStarted(started) => window::rebuild(self, started),
            Event::ResultSpilled(spilled) => self.spilled(spilled),
            Event::SummaryRequested(requested) => {
                self.spent.model_calls += 1;
                self.summaries.requested(requested);
            }
            Event::SummaryFinished(finished) => {
                self.spend(&finished.usage, finished.micros);
                self.summaries.finished(finished);
            }
            Event::NoteTaken(taken) => self.memory.note(taken.action, &taken.note, seq),
            Event::ActionProposed(proposed) => self.proposed(proposed),
            Event::ActionRefused(refused) => {
                match &refused.would {
                    // It did not fail.
                    Some(shadowed) => match shadowed.ruling {
                        Ruling::Allow { .. } => self.would.allowed.push(refused.action),
                        Ruling::Ask { .. } => self.would.asked.push(refused.action),
                        Ruling::Deny { .. } => self.would.denied.push(refused.action),
                    },
                    None => self.failed_calls += 1,
                }
                self.end_action(refused.action, Ended::Refused(refused.error.clone()));
            }
            Event::ActionHeld(held) => {
                match held.wants {
                    Wants::Yes => {}
                    // It never starts: what it uses of the budget is used by asking.
                    Wants::Words => self.count_call(held.action),
                }
                let question = Question {
                    digest: held.digest.clone(),
                    rule: held.rule.clone(),
                    reason: held.reason.clone(),
                    wants: held.wants,
                    exact: held.exact.clone(),
                    effects: held.effects.clone(),
                    since: seq,
                };
                self.change(held.action, |action| {
                    action.grant = None;
                    action.life = Life::Held(question);
                });
            }
            Event::ActionApproved(approved) => {
                self.barren_claims = 0;
                let exact = self.action(approved.action).and_then(|action| match &action.life {
                    Life::Held(question) if approved.covers == Covers::Always => question.exact.clone(),
                    Life::Held(_)
                    | Life::Queued
                    | Life::Started { .. }
                    | Life::Lost(_)
                    | Life::Doubtful(..)
                    | Life::Unknown(_)
                    | Life::Ended(_) => None,
                });
                self.allowed.extend(exact.map(|exact| (exact, approved.by.clone())));
                let grant =
                    Grant { digest: approved.digest.clone(), expires: approved.expires, by: approved.by.clone() };
                self.change(approved.action, |action| {
                    action.grant = Some(grant);
                    action.life = Life::Queued;
                });
            }
            Event::ActionDenied(denied) => {
                self.barren_claims = 0;
                let asks = self.action(denied.action).is_some_and(|action| action.asks().is_some());
                let mut message = if asks {
                    format!("No answer: {} does not answer this.", denied.by)
                } else {
                    format!("Not run: denied by {}.", denied.by)
                };
                if let Some(reason) = &denied.reason {
                    message.push_str(&format!(" Reason: {reason}"));
                }
                let error = ToolError::new(class::DENIED, message).hint(if asks {
                    "Go on with your best judgement and say what you assumed."
                } else {
                    "Do not repeat the call unchanged; go on without it, or do it another way."
                });
                self.failed_calls += 1;
                self.change(denied.action, |action| {
                    // A no to another attempt does not undo the one that may have happened.
                    action.life = if action.in_doubt {
                        let message = format!("It may have happened, and was not tried again. {}", error.message);
                        Life::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, message))
                    } else {
                        Life::Ended(Ended::Refused(error))
                    };
                });
            }
            Event::ActionStarted(started) => self.action_started(started),
            Event::ActionRequeued(requeued) => {
                let why = requeued.why;
                self.change(requeued.action, |action| {
                    action.in_doubt = why == Requeue::Idempotent;
                    action.life = Life::Queued;
                });
            }
            Event::ActionProbed(probed) => {
                self.change(probed.action, |action| match &mut action.life {
                    Life::Lost(doubt) | Life::Doubtful(doubt, _) => {
                        doubt.probes += 1;
                        doubt.retry_at = probed.retry_at;
                    }
                    Life::Queued | Life::Held { .. } | Life::Started { .. } | Life::Unknown(_) | Life::Ended(_) => {}
                });
            }
            Event::ActionFinished(finished) => self.action_finished(finished),
            Event::ActionSettled(settled) => self.action_settled(settled),
            Event::AnswerAccepted(accepted) => {
                self.rounds += 1;
                self.memory.verdicts.clear();
                let verdicts = match self.mode {
                    // Checks are commands too, and would judge work that was not done.
                    Mode::Shadow => BTreeMap::new(),
                    Mode::Plan | Mode::Ask | Mode::AcceptEdits | Mode::Auto => {
                        self.task.acceptance.iter().map(|check| (check.name.clone(), None)).collect()
                    }
                };
                let left = listening(&self.task, HookEvent::Stop, None);
                self.hooks.stop =
                    (!left.is_empty()).then_some(Stopping { attempt: accepted.attempt, left, is_blocked: false });
                self.stage =
                    Stage::Verifying { round: self.rounds, accepted: accepted.accepted.clone(), verdicts, since: at };
            }
            Event::AnswerRefused(refused) => {
                self.answer_refusals += 1;
                self.stop_refused();
                self.tell(observe::note(&format!(
                    "Your answer was not accepted: {}\nReply again: with tool calls if you need them, else with the \
                     corrected answer.",
                    observe::escaped(&refused.reason)
                )));
            }
            Event::CheckFinished(finished) => self.check_finished(finished),
            Event::HookFinished(finished) => self.hook_finished(finished),
            Event::FactSet(set) => {
                self.memory.progress += 1;
                self.facts.insert(set.fact.clone(), set.evidence);
            }
            Event::FactVoided(voided) => {
                self.facts.remove(&voided.fact);
            }
            Event::BudgetReached(reached) => match reached.budget {
                budget @ (BudgetKind::Time | BudgetKind::Deadline) => {
                    if self.winding.is_none() {
                        self.winding = Some(Winding { why: WindingWhy::OutOf(budget), since: at });
                    }
                }
                budget @ (BudgetKind::Turns
                | BudgetKind::ModelCalls
                | BudgetKind::ToolCalls
                | BudgetKind::Tokens
                | BudgetKind::Usd) => {
                    self.closing = match self.closing {
                        Closing::NotYet => Closing::Owed(budget),
                        Closing::Owed(budget) | Closing::Over(budget, _) => Closing::Over(budget, None),
                    };
                }
            },
            Event::BudgetRaised(raised) => {
                self.barren_claims = 0;
                let raise = &raised.raise;
                let limits = &mut self.limits;
                limits.turns = limits.turns.raised(raise.turns);
                limits.model_calls = limits.model_calls.raised(raise.model_calls);
                limits.tool_calls = limits.tool_calls.raised(raise.tool_calls);
                limits.tokens = limits.tokens.raised(raise.tokens);
                limits.micros = limits.micros.raised(raise.micros);
                limits.time_ms = limits.time_ms.raised(raise.time_ms);
                self.closing = Closing::NotYet;
                if matches!(self.winding, Some(Winding { why: WindingWhy::OutOf(_), .. })) {
                    self.winding = None;
                }
                self.reopen("The budget was raised. Go on.");
            }
            Event::SourceEndorsed(endorsed) => {
                self.barren_claims = 0;
                self.taint.endorse(&endorsed.source);
            }
            Event::SurroundingsChanged(changed) => {
                self.surroundings.extend(changed.changed.iter().cloned());
                if let Some(mode) = changed.mode {
                    self.mode = mode;
                    self.tell_when_possible(observe::note(observe::mode_changed(mode)));
                }
            }
            Event::RunParked(_) => self.activity = Activity::Parked,
            Event::RunSuspended(suspended) => {
                self.lose_started();
                self.activity = Activity::Suspended { cause: suspended.cause, detail: suspended.detail.clone() };
            }
            Event::RunEnded(ended) => self.ended(ended),
        }
    }

    /// Goes on from another run's history. What that run left open is its own business; what it knew of the workspace may
    /// be true no more.
    fn forked(&mut self, forked: &RunForked) {
        self.started = self.at;
        self.limits = forked.limits.clone();
        self.winding = None;
        self.closing = Closing::NotYet;
        self.activity = Activity::Idle;
        self.barren_claims = 0;
        self.open.clear();
        self.allowed.clear();
        self.forget_refusals();
        self.begin_epoch();
        let task = Arc::clone(&self.task);
        let is_of_workspace =
            |tool: &ToolName| task.tool(tool).is_some_and(|tool| tool.effect == EffectClass::Workspace);
        Arc::make_mut(&mut self.evidence).retain(|_, evidence| !is_of_workspace(&evidence.tool));
        let evidence = &self.evidence;
        self.facts.retain(|_, id| evidence.contains_key(id));
        self.seen.clear();
        self.memory.inherited();
        self.summaries.drop_duties();
        let attempts = self.ready().map(|ready| ready.attempts).unwrap_or_default();
        self.stage = Stage::Ready(Ready { attempts, ..Ready::default() });
        self.show_pending();
        self.tell(observe::note(&format!(
            "You go on here from event {} of run {}. Files may have changed since: look at them again before you rely on \
             what you read or wrote earlier.",
            forked.at, forked.from
        )));
    }

    fn claimed(&mut self, fence: Fence) {
        let died = self.activity == Activity::Claimed && !matches!(self.stage, Stage::Rest(_));
        if died {
            self.recoveries += 1;
            self.barren_claims += 1;
        } else {
            self.barren_claims = 1;
        }
        self.fence = fence;
        self.activity = Activity::Claimed;
        self.lose_started();
        match &mut self.stage {
            Stage::Verifying { verdicts, .. } => verdicts.values_mut().for_each(|verdict| *verdict = None),
            Stage::Ready(ready) => {
                ready.failures = 0;
                if ready.after == Some(AfterFailure::Suspend) {
                    ready.after = None;
                }
            }
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {}
        }
    }

    /// Turns every running action into a lost one (`semantics.md` C1).
    fn lose_started(&mut self) {
        let at = self.at;
        let mut wrote = false;
        if let Stage::Acting { actions, .. } = &mut self.stage {
            for action in actions.values_mut() {
                if let Life::Started { at: started, .. } = action.life {
                    wrote |= action.effect != EffectClass::Read;
                    action.life = Life::Lost(Doubt { started, since: at, probes: 0, retry_at: None });
                }
            }
        }
        if wrote {
            self.begin_epoch();
        }
    }

    fn message(&mut self, seq: Seq, text: &str) {
        let item = observe::message(&message_id(seq), text);
        self.memory.message(seq, Arc::new(item.clone()));
        let part = Part::Message(seq);
        match &self.stage {
            Stage::Thinking(_) | Stage::Acting { .. } => self.pending.push((part, item)),
            Stage::Ready(_) => self.window.push(part, Arc::new(item)),
            Stage::Verifying { .. } | Stage::Rest(_) => {
                self.forget_refusals();
                self.stage = Stage::Ready(Ready::default());
                self.show_pending();
                self.window.push(part, Arc::new(item));
            }
        }
    }

    /// Leaves a rest that is not `done` or `cancelled`, with a word to the model on why.
    fn reopen(&mut self, why: &str) {
        let reopens = match &self.stage {
            Stage::Rest(ended) => match ended.end {
                End::Exhausted(_) | End::Failed(_) | End::ContextExhausted => true,
                End::Done(_) | End::Cancelled => false,
            },
            Stage::Ready(ready) => {
                // A failure that another model or more budget may mend.
                let stuck = ready.after.is_some();
                if stuck {
                    self.stage = Stage::Ready(Ready { attempts: ready.attempts, ..Ready::default() });
                }
                false
            }
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
        };
        if reopens {
            self.forget_refusals();
            self.window.barren = 0;
            self.memory.progress += 1;
            self.window.overflows = 0;
            self.window.answered = 0;
            self.stage = Stage::Ready(Ready::default());
            self.show_pending();
            self.tell(observe::note(why));
        }
    }

    fn forget_refusals(&mut self) {
        self.answer_refusals = 0;
        self.failed_rounds = 0;
        self.hooks.stop_blocks = 0;
    }

    /// The harness's own words, or what else belongs to the turn that comes.
    fn tell(&mut self, item: Item) {
        let turn = self.turn();
        self.window.push(Part::Harness(turn), Arc::new(item));
    }

    /// As [`Run::tell`], but after the observations of a turn that is going on.
    fn tell_when_possible(&mut self, item: Item) {
        match &self.stage {
            Stage::Ready(_) => self.tell(item),
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                self.pending.push((Part::Harness(self.turn()), item));
            }
        }
    }

    fn say(&mut self, turn: TurnId, item: Item) {
        self.window.push(Part::Reply(turn), Arc::new(item));
    }

    /// Something the model may see from here on.
    fn bring(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|mark| self.taint.add(mark, self.head));
    }

    fn ready(&self) -> Option<&Ready> {
        match &self.stage {
            Stage::Ready(ready) => Some(ready),
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => None,
        }
    }

    fn spend(&mut self, usage: &Usage, micros: u64) {
        self.spent.usage.add(usage);
        self.spent.micros = self.spent.micros.saturating_add(micros);
    }

    fn replied(&mut self, replied: &ModelReplied) {
        self.barren_claims = 0;
        self.spend(&replied.usage, replied.micros);
        let turn = self.turn();
        if self.task.context.summary.is_some() {
            self.summaries.turn_began(turn, self.head);
        }
        let (purpose, bytes, tail) = match &self.stage {
            Stage::Thinking(thinking) => (thinking.purpose, thinking.bytes, thinking.tail),
            Stage::Ready(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                (Purpose::Work, 0, false)
            }
        };
        match (replied.settled, purpose) {
            (Settled::Reported, Purpose::Work) => {
                let tokens = replied.usage.tokens().saturating_sub(replied.usage.output);
                let (generation, items) = (self.window.generation, self.window.items.len());
                let of = Counts::Reported;
                // What only grew cannot have become a tenth smaller: such a count is of something else, as of what was not
                // cached, and the one before goes on counting.
                let shrank = self.anchor.is_some_and(|before| {
                    before.generation == generation && before.items <= items && tokens * 10 < before.tokens * 9
                });
                if !shrank {
                    self.anchor = Some(Anchor { bytes, tokens, generation, items, tail, at: self.at, of });
                }
            }
            (Settled::Estimated, _) | (_, Purpose::Closing) => {}
        }
        self.window.overflows = 0;
        self.window.answered = 0;
        self.window.rejected = None;
        self.spent.turns += 1;
        self.stage = Stage::Ready(Ready::default());
        let reply = &replied.reply;
        match purpose {
            Purpose::Work if !reply.calls.is_empty() => {
                self.stage = Stage::Acting { turn, actions: BTreeMap::new() };
                // The calls join the text when they are proposed, in the same batch.
                self.say(turn, Item::Assistant { text: reply.text.clone(), calls: Vec::new() });
                self.arguments_of(reply);
            }
            Purpose::Work => {
                self.say(turn, Item::Assistant { text: reply.text.clone(), calls: Vec::new() });
                self.show_pending();
            }
            Purpose::Closing => {
                let remark = (!reply.text.is_empty()).then(|| reply.text.clone());
                if let Some(text) = &remark {
                    self.say(turn, Item::Assistant { text: text.clone(), calls: Vec::new() });
                }
                self.show_pending();
                let raised = self.closing == Closing::NotYet && self.limits.turns.left(self.spent.turns) > 0;
                if raised {
                    self.tell(observe::note("The budget was raised meanwhile. Go on."));
                    return;
                }
                let budget = match self.closing {
                    Closing::Owed(budget) | Closing::Over(budget, _) => budget,
                    Closing::NotYet => BudgetKind::Turns,
                };
                self.closing = Closing::Over(budget, remark);
            }
        }
    }

    fn model_failed(&mut self, failed: &ModelFailed) {
        self.spend(&failed.usage, failed.micros);
        let (failures, malformed) = match &self.stage {
            Stage::Thinking(thinking) => (thinking.failures, thinking.malformed),
            Stage::Ready(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => (0, 0),
        };
        let (failures, malformed) = match failed.class {
            crate::outcome::ModelErrorClass::Malformed => (failures, malformed + 1),
            crate::outcome::ModelErrorClass::Lost => (failures, malformed),
            crate::outcome::ModelErrorClass::Transient
            | crate::outcome::ModelErrorClass::RateLimited
            | crate::outcome::ModelErrorClass::Overloaded
            | crate::outcome::ModelErrorClass::Quota
            | crate::outcome::ModelErrorClass::Authentication
            | crate::outcome::ModelErrorClass::BadRequest
            | crate::outcome::ModelErrorClass::ContextExhausted
            | crate::outcome::ModelErrorClass::ContentRefused
            | crate::outcome::ModelErrorClass::Script => (failures + 1, malformed),
        };
        if failed.class == crate::outcome::ModelErrorClass::ContextExhausted {
            self.overflowed(failed);
        }
        if let Some(told) = &failed.told {
            self.tell(observe::note(told));
        }
        self.stage = Stage::Ready(Ready {
            attempts: failed.attempt.attempt,
            failures,
            malformed,
            after: Some(failed.next),
            detail: failed.message.clone(),
        });
        self.show_pending();
    }

    fn check_finished(&mut self, finished: &CheckFinished) {
        self.barren_claims = 0;
        self.bring(&finished.brings);
        let Stage::Verifying { verdicts, .. } = &mut self.stage else { return };
        verdicts.insert(finished.check.clone(), Some(finished.verdict.clone()));
        if verdicts.values().any(Option::is_none) {
            return;
        }
        let judged: Vec<_> =
            verdicts.iter().filter_map(|(name, verdict)| Some((name.clone(), verdict.clone()?))).collect();
        self.memory.judged(judged.into_iter());
        let failed: Vec<_> = verdicts
            .iter()
            .filter_map(|(name, verdict)| verdict.as_ref().map(|verdict| (name.clone(), verdict.clone())))
            .filter(|(_, verdict)| verdict.finding == Finding::Failed)
            .collect();
        if failed.is_empty() {
            return;
        }
        self.failed_rounds += 1;
        self.stage = Stage::Ready(Ready::default());
        let mut text = String::from("Your work was not accepted. These checks failed:");
        for (name, verdict) in &failed {
            let status = verdict.exit_status.map_or("no exit status".to_owned(), |status| format!("exit {status}"));
            let evidence = match &verdict.evidence {
                Content::Inline(payload) => payload.read::<String>().unwrap_or_else(|_| payload.as_str().to_owned()),
                Content::Blob(blob) => blob.shown_text(),
            };
            text.push_str(&format!("\n- {name} ({status}):\n{}", evidence.trim_end()));
        }
        text.push_str("\nMend what is wrong, then answer again.");
        let item = observe::note(&text.replace("<longrein", "&lt;longrein").replace("</longrein", "&lt;/longrein"));
        self.tell(item);
        self.show_pending();
    }

    fn ended(&mut self, ended: &RunEnded) {
        if let Stage::Acting { actions, .. } = &mut self.stage {
            for action in actions.values_mut() {
                let never_ran = match action.life {
                    Life::Queued | Life::Held { .. } => !action.in_doubt,
                    Life::Started { .. } | Life::Lost(_) | Life::Doubtful(..) | Life::Unknown(_) | Life::Ended(_) => {
                        false
                    }
                };
                if never_ran {
                    let error = ToolError::new(class::CANCELLED, "Not run: the run was brought to rest before.");
                    action.life = Life::Ended(Ended::Refused(error));
                } else if !matches!(action.life, Life::Ended(_) | Life::Unknown(_)) {
                    let error =
                        ToolError::new(class::UNKNOWN_OUTCOME, "The run was brought to rest before it was known.");
                    // A person is asked about the world only: the files can be looked at (`semantics.md` D7).
                    action.life = match action.effect {
                        EffectClass::Read | EffectClass::Workspace => Life::Ended(Ended::Error(error)),
                        EffectClass::External => Life::Unknown(error),
                    };
                }
            }
            self.close_turn();
        }
        if matches!(ended.end, End::Done(_)) {
            self.memory.answered();
        }
        self.summaries.drop_duties();
        self.hooks.stop = None;
        self.hooks.end = listening(&self.task, HookEvent::End, None);
        self.stage = Stage::Rest(Box::new(ended.clone()));
        self.winding = None;
        self.activity = Activity::Idle;
    }

    /// Something too long was sent: what the provider said of its limits counts from now on.
    fn overflowed(&mut self, failed: &ModelFailed) {
        let limit = self.window_limit();
        self.window.overflows += 1;
        if let Stage::Thinking(thinking) = &self.stage {
            self.window.rejected = Some(thinking.digest.clone());
            // Its count of what it refused is as good as one of what it took.
            if let Some(tokens) = failed.served.and_then(|served| served.prompt) {
                self.anchor = Some(Anchor {
                    bytes: thinking.bytes,
                    tokens,
                    generation: self.window.generation,
                    items: self.window.items.len(),
                    tail: thinking.tail,
                    at: self.at,
                    of: Counts::Reported,
                });
            }
        }
        let told: Served = failed.served.unwrap_or_default();
        let served = &mut self.window.served;
        served.output = told.output.or(served.output);
        served.bytes = told.bytes.or(served.bytes);
        match (told.limit, told.output.or(told.bytes)) {
            (Some(told), _) => served.limit = Some(told.min(limit)),
            (None, Some(_)) => {}
            // It did not say: less than was thought, in this run.
            (None, None) => self.window.guessed = Some(limit - limit / 4),
        }
    }

    /// Forgets what only turns needed that have left the window: results are in the journal.
    pub(crate) fn let_go(&mut self) {
        let shown: BTreeSet<ActionId> = self
            .window
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Observation(seen) => Some(seen.action),
                Part::Rules(_) | Part::Goal | Part::Message(_) | Part::Header | Part::Reply(_) | Part::Harness(_) => {
                    None
                }
            })
            .collect();
        for (id, evidence) in Arc::make_mut(&mut self.evidence) {
            if !shown.contains(&id.action()) {
                evidence.content = None;
            }
        }
        let calls = self.window.items.iter().filter_map(|item| match item.as_ref() {
            Item::Assistant { calls, .. } => Some(calls),
            Item::User(_) | Item::Observation { .. } | Item::Harness(_) => None,
        });
        self.call_ids = calls.flatten().map(|call| call.id.clone()).collect();
    }

    fn show_pending(&mut self) {
        if matches!(self.stage, Stage::Acting { .. }) {
            return;
        }
        for (part, item) in std::mem::take(&mut self.pending) {
            self.window.push(part, Arc::new(item));
        }
    }
}

/// Names of files that say how to work in their folder.
pub const RULE_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
