//! A run: what its events add up to. `apply` folds one event in and cannot fail; nothing else changes a run.

mod acceptance;
mod actions;
mod checked;
mod children;
mod hooks;
mod life;
mod model;
mod program;
mod stage;

pub use self::acceptance::ChangedChecks;
pub use self::stage::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Attempt, Cleared, Compensates, Doubt, Ended, Grant, Life, Question, Tentative, Undoes};
use crate::budget::{BudgetKind, Limits, Reservation, Spent, Usage};
use crate::check::{Accepted, Finding, Verdict};
use crate::children::{Child, Descent};
use crate::context::block;
use crate::context::memory::{EffectState, Memory, message_id};
use crate::context::settings::ASSUMED_LIMIT;
use crate::context::summary::Summaries;
use crate::context::window::{self, Part, TailBy, TailShown, Window};
use crate::event::{
    ActionApproved, ActionDenied, ActionFinished, ActionNotUndone, ActionProposed, ActionRolledBack, ActionSettled,
    ActionStarted, AfterFailure, AnswerRefused, CheckFinished, End, Event, How, JudgeOutcome, Level, ModelFailed,
    ModelReplied, No, Proposer, Received, Requeue, ResultSpilled, RollbackWhy, RunEnded, RunForked, RunStarted,
    Settled, Suspension, Wants, Would,
};
use crate::finish::{self, Finish};
use crate::hook::{HookEvent, HookState, Stopping, listening};
use crate::ids::{
    ActionId, AttemptId, CheckName, Digest, EvidenceId, FactName, Fence, RunId, Seq, ToolName, TreeId, TurnId,
};
use crate::input::{Covers, Truth};
use crate::judge::Judging;
use crate::manifest::{self, Withheld};
use crate::observe;
use crate::outcome::{Outcome, Served, ToolError, class};
use crate::payload::{BlobRef, Content};
use crate::program::Course;
use crate::prompt::{Item, Purpose, WireCall};
use crate::repeat::{self, Repeats};
use crate::route::{self, Routing};
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
    /// The run that asked for this one, and as what. None: a person did, or it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descent: Option<Descent>,
    /// The runs it asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<RunId, Child>,
    #[serde(skip, default = "crate::snapshot::no_task")]
    pub task: Arc<Task>,
    /// How much it may do without a person: the task's, or what an operator made of it.
    pub mode: Mode,
    /// Of a shadow run: the calls it did not carry out, each with what would have become of it.
    pub would: Would,
    /// The system text, made once from the task.
    #[serde(skip)]
    pub system: Arc<str>,
    /// The task's model, or the one switched to: the one that the next call goes to.
    pub model: ModelSpec,
    /// Where it stands among the models of its routes.
    #[serde(default, skip_serializing_if = "Routing::is_idle")]
    pub routing: Routing,
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
    /// What models were asked about the work, as checks.
    #[serde(default, skip_serializing_if = "Judging::is_idle")]
    pub judging: Judging,
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
    /// Reads whose answers hold until something is written, by tool and arguments: each the first of its kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<Digest, ActionId>,
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
    /// Whether it goes in circles.
    #[serde(default)]
    pub repeats: Repeats,
    /// What stands between it and its end.
    #[serde(default, skip_serializing_if = "Finish::is_idle")]
    pub finish: Finish,
    /// What could not be called when the last request left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
    /// Where it stands in its program. None: that is the plain loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
    /// The request and the input tokens it was reported to have: what later estimates build on.
    pub anchor: Option<Anchor>,
    /// A count that contradicts it, and that a second one may bear out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<Anchor>,
    /// The workspace when the run first was about to change it; of a child or a fork, when the run it comes from was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tree: Option<TreeId>,
    /// Calls of a tool in a row that its check did not let pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_checks: BTreeMap<ToolName, u32>,
    /// A person has set it back, and nobody has gone on since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_back: Option<SetBack>,
    /// What acted on the world though its check said no, and stands: nothing has undone it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unproven: BTreeSet<ActionId>,
    /// The question about changed checks that a person said yes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
    next_action: u32,
    call_ids: BTreeSet<String>,
}

impl Run {
    /// A run at its first event.
    pub fn new(started: &RunStarted, at: Timestamp) -> Self {
        let task = Arc::new(started.task.clone().lifted());
        let mut run = Self {
            id: started.run.clone(),
            root: started.root.clone(),
            descent: started.descent.clone(),
            children: BTreeMap::new(),
            mode: task.permission_mode,
            would: Would::default(),
            system: observe::system(&task).into(),
            model: task.model.clone(),
            routing: Routing::default(),
            limits: task.limits.clone(),
            spent: Spent::default(),
            stage: Stage::Ready(Ready::default()),
            head: Seq(1),
            at,
            started: at,
            fence: Fence(0),
            window: Window::new(block::root_rules(&task), observe::goal(&task.goal, &task.images)),
            memory: Memory::default(),
            summaries: Summaries::default(),
            judging: Judging::default(),
            pending: Vec::new(),
            fresh: Vec::new(),
            open: BTreeMap::new(),
            evidence: Arc::default(),
            facts: BTreeMap::new(),
            answers: BTreeMap::new(),
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
            repeats: Repeats::default(),
            finish: Finish::default(),
            withheld: Vec::new(),
            course: task.program.phases().map(Course::new),
            anchor: None,
            doubted: None,
            first_tree: started.first_tree.clone(),
            failed_checks: BTreeMap::new(),
            unproven: BTreeSet::new(),
            set_back: None,
            waived: None,
            next_action: 1,
            call_ids: BTreeSet::new(),
            task,
        };
        run.bring(&started.brings);
        // The system text says what a tail would, unless a tool cannot be called yet.
        let can_all = manifest::manifest(&run).withheld.is_empty();
        run.window.tail = can_all.then(|| window::shown_by_header(&run));
        run
    }

    /// Tokens the model takes, request and reply together: as declared, or less where the server showed so.
    pub fn window_limit(&self) -> u64 {
        let declared = self.limit_of(&self.model);
        self.window.served.limit.into_iter().chain(self.window.guessed).fold(declared, u64::min)
    }

    /// The same of another model, as declared.
    pub fn limit_of(&self, model: &ModelSpec) -> u64 {
        model.context_limit.unwrap_or(ASSUMED_LIMIT)
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
            Stage::Verifying { question, .. } => question.as_deref().filter(|question| question.id == id),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Rest(_) => None,
        }
        .or_else(|| self.open.get(&id))
    }

    /// All actions still in play, in call order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let (present, question) = match &self.stage {
            Stage::Acting { actions, .. } => (Some(actions), None),
            Stage::Verifying { question, .. } => (None, question.as_deref()),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Rest(_) => (None, None),
        };
        self.open.values().chain(present.into_iter().flat_map(BTreeMap::values)).chain(question)
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
        let Life::Started { fence, .. } = action.life else { return None };
        let is_ours = fence == started.fence && fence == self.fence && action.attempts == started.attempt;
        is_ours.then(|| Cleared::new(self.attempt(action, started.idempotency_key.clone())))
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
            undoes: action
                .undoes()
                .map(|other| Undoes { action: other.action, idempotency_key: other.idempotency_key.clone() }),
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
                    Received::Message(text) => self.message(seq, text, &received.images),
                    Received::Cancel => {
                        self.winding = Some(Winding { why: WindingWhy::Cancelled, since: at });
                    }
                    // Its text is the action's result; a result has no images.
                    Received::Answer(action) if !received.images.is_empty() => {
                        self.message(seq, &format!("This goes with the answer to {action}."), &received.images);
                    }
                    Received::Answer(_) | Received::LateOutcome(_) => {}
                    Received::ChildSettled { child, unknown } => self.child_settled(child, unknown),
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
                if let Some(manifest) = &requested.manifest {
                    self.withheld.clone_from(&manifest.withheld);
                }
                self.stage = Stage::Thinking(Thinking {
                    attempt: requested.attempt,
                    purpose: requested.purpose,
                    reserved: requested.reserved,
                    bytes: requested.bytes,
                    output: requested.output,
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
                self.routing.switched();
                self.take_model(&switched.model);
                // Whoever names a model anew wants it asked anew.
                self.window.trusts_learned = false;
                self.reopen("Another model goes on with this run.");
            }
            Event::ModelRouted(routed) => {
                let attempts = self.ready().map(|ready| ready.attempts).unwrap_or_default();
                self.stage = Stage::Ready(Ready { attempts, ..Ready::default() });
                route::routed(self, routed);
            }
            Event::ModelForgone(forgone) => {
                let attempts = self.ready().map(|ready| ready.attempts).unwrap_or_default();
                self.stage = Stage::Ready(Ready {
                    attempts,
                    after: Some(forgone.next),
                    detail: route::in_words(self, &forgone.reason),
                    ..Ready::default()
                });
                route::gave_up(self);
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
            Event::JudgeRequested(requested) => {
                self.spent.model_calls += 1;
                self.judging.requested(requested);
            }
            Event::JudgeFinished(finished) => {
                self.spend(&finished.usage, finished.micros);
                match finished.outcome {
                    JudgeOutcome::Opinion { .. } | JudgeOutcome::Unusable { .. } => self.barren_claims = 0,
                    JudgeOutcome::Failed { .. } | JudgeOutcome::Lost => {}
                }
                self.judging.finished(finished);
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
                    Wants::Yes | Wants::Typed(_) => {}
                    // It never starts: what it uses of the budget is used by asking.
                    Wants::Words => self.count_call(held.action),
                }
                let question = Question {
                    digest: held.digest.clone(),
                    rule: held.rule.clone(),
                    reason: held.reason.clone(),
                    wants: held.wants.clone(),
                    exact: held.exact.clone(),
                    effects: held.effects.clone(),
                    since: seq,
                    expires: self.task.questions_expire_ms.map(|ms| at.plus(std::time::Duration::from_millis(ms))),
                };
                self.change(held.action, |action| {
                    action.grant = None;
                    action.life = Life::Held(question);
                });
            }
            Event::ActionApproved(approved) if self.asks_about_checks(approved.action) => self.waive(approved),
            Event::ActionDenied(denied) if self.asks_about_checks(denied.action) => self.reject(denied),
            Event::ActionApproved(approved) => {
                self.barren_claims = 0;
                let question = self.action(approved.action).and_then(Action::question);
                let exact =
                    question.filter(|_| approved.covers == Covers::Always).and_then(|asked| asked.exact.clone());
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
                let what = if asks { "No answer" } else { "Not run" };
                let mut message = match denied.no {
                    No::Expired => format!("{what}: nobody answered in time, which is no yes."),
                    No::Person { .. } | No::Unasked if asks => format!("{what}: {} does not answer this.", denied.by),
                    No::Person { .. } | No::Unasked => format!("{what}: denied by {}.", denied.by),
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
                    action.life = match (requeued.from, &requeued.error) {
                        (Some(from), Some(error)) => {
                            let doubt = Doubt { started: at, since: at, probes: 0, retry_at: Some(from) };
                            Life::Doubtful(doubt, error.clone())
                        }
                        (Some(_) | None, _) => Life::Queued,
                    };
                });
            }
            Event::ActionProbed(probed) => {
                self.change(probed.action, |action| {
                    if let Life::Lost(doubt) | Life::Doubtful(doubt, _) = &mut action.life {
                        doubt.probes += 1;
                        doubt.retry_at = probed.retry_at;
                    }
                });
            }
            Event::ActionFinished(finished) => self.action_finished(finished),
            Event::ActionSettled(settled) => self.action_settled(settled),
            Event::ActionRolledBack(rolled_back) => self.rolled_back(rolled_back),
            Event::ActionNotUndone(not_undone) => self.not_undone(not_undone),
            Event::AnswerAccepted(accepted) => {
                self.rounds += 1;
                self.memory.verdicts.clear();
                let verdicts = match self.mode {
                    // Checks are commands too, and would judge work that was not done.
                    Mode::Shadow => BTreeMap::new(),
                    // And where nothing may be changed, they would judge what only was planned.
                    Mode::Plan => BTreeMap::new(),
                    Mode::Ask | Mode::AcceptEdits | Mode::Auto => {
                        self.task.acceptance.iter().map(|check| (check.name.clone(), None)).collect()
                    }
                };
                let left = listening(&self.task, HookEvent::Stop, None);
                self.hooks.stop =
                    (!left.is_empty()).then_some(Stopping { attempt: accepted.attempt, left, is_blocked: false });
                self.stage = Stage::Verifying {
                    round: self.rounds,
                    accepted: accepted.accepted.clone(),
                    verdicts,
                    since: at,
                    voided: 0,
                    question: None,
                };
            }
            Event::AnswerRefused(AnswerRefused { reason, unfinished: Some(unfinished), .. }) => {
                self.finish.refused(unfinished, reason);
                if unfinished.announces {
                    self.repeats.announced();
                }
                if !unfinished.again {
                    self.tell(observe::note(&observe::escaped(&finish::words(unfinished, reason))));
                }
            }
            Event::LoopNoticed(notice) => {
                let turn = self.turn();
                self.repeats.noticed(notice, turn, self.window.barren);
                if notice.level != Level::Ended {
                    self.tell(observe::note(&observe::escaped(&repeat::told(notice))));
                }
            }
            Event::AnswerRefused(refused) if refused.phase.is_some() => self.reply_refused(refused),
            Event::AnswerRefused(refused) => {
                self.answer_refusals += 1;
                self.answer_again();
                self.stop_refused();
                self.tell(observe::note(&format!(
                    "Your answer was not accepted: {}\nReply again: with tool calls if you need them, else with the \
                     corrected answer.",
                    observe::escaped(&refused.reason)
                )));
            }
            Event::CheckFinished(finished) => match finished.action {
                Some(action) => self.action_checked(action, finished),
                None => self.check_finished(finished),
            },
            Event::ChecksVoided(_) => self.checks_voided(),
            Event::ChildStarted(started) => self.child_started(started),
            Event::ChildEnded(ended) => self.child_ended(ended),
            Event::HookFinished(finished) => self.hook_finished(finished),
            Event::FactSet(set) => {
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
                self.begin_counting_anew();
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
            Event::TransitionTaken(taken) => self.transition_taken(taken),
            Event::RunParked(parked) => {
                self.activity = Activity::Parked;
                self.parked(&parked.waits);
            }
            Event::RunSuspended(suspended) => {
                self.lose_started();
                self.activity = Activity::Suspended { cause: suspended.cause, detail: suspended.detail.clone() };
            }
            Event::RunEnded(ended) => self.ended(ended),
        }
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
            Item::User(_)
            | Item::Pictured { .. }
            | Item::Exhibit { .. }
            | Item::Observation { .. }
            | Item::Harness(_) => None,
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
