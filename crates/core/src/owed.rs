//! Duties: what a run still owes the world. Derived from the state and never stored, so that a restart finds them again.
//!
//! A duty that is owed and not in flight is to be performed; what is in flight and no longer owed is to be given up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::action::{Action, Ended, Life, Question};
use crate::budget::{BudgetKind, Limit};
use crate::check::{Finding, Standing, Verdict};
use crate::children;
use crate::context::summary;
use crate::event::{AfterFailure, Done, End, Failure, Wait, Wants};
use crate::holds::Hold;
use crate::hook::{self, Moment, STOP_BLOCKS_MAX};
use crate::ids::{ActionId, AttemptId, CheckName, Digest, RunId};
use crate::judge::{self, Asks};
use crate::program::At;
use crate::prompt::Purpose;
use crate::repeat;
use crate::run::{Activity, ChangedChecks, Closing, Run, Stage, Winding, WindingWhy};
use crate::task::{EffectClass, Mode, OnUnknown, Overlap};
use crate::time::Timestamp;

/// Calls of one run that run at the same time. Enough to keep a reply's reads from queueing, few enough for a laptop.
pub const PARALLEL_MAX: usize = 8;

/// How long an external call may go on after a cancel or a time limit, if its own timeout is not shorter: long enough for
/// most calls to end by themselves, which beats an unknown outcome (`semantics.md` E3).
pub const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// Rounds of acceptance checks before the run is failed.
pub const CHECK_ROUNDS_MAX: u32 = 5;

/// Refused answers before the run is failed.
pub const ANSWER_REFUSALS_MAX: u32 = 5;

/// Work still owed. Its identity is its value: kind, owner, attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Encode and request the next model call.
    Call { attempt: AttemptId, closing: bool },
    /// A model call is journaled: its reply is awaited. Only what was sent under this claim can be in flight.
    AwaitReply { attempt: AttemptId },
    /// Rule on an action once more and start it.
    Start { action: ActionId },
    /// An action runs. Given up at `until`, if there is one.
    AwaitAction { action: ActionId, attempt: u32, until: Option<Timestamp> },
    /// Find out what became of a lost or doubtful action: end what is left of it, wait, ask. Not before `from`.
    Recover { action: ActionId, attempt: u32, probe: u32, from: Option<Timestamp> },
    /// Run the check of an action that is done. Given up at `until`, if there is one.
    CheckAction { action: ActionId, attempt: u32, until: Option<Timestamp> },
    /// Undo what an action did in the workspace.
    Undo { action: ActionId, attempt: u32 },
    /// Tell hooks of something that waits for their word, and of the end.
    Hooks { moment: Moment },
    /// Ask a person whether verdicts on changed checks count.
    AskChecks { round: u32 },
    /// Run an acceptance check.
    Check { check: CheckName, round: u32 },
    /// Ask a model for its opinion of the work, which is a check's verdict.
    Judge { check: CheckName, round: u32, call: u32 },
    /// A judge was asked under this claim.
    AwaitJudge { call: u32 },
    /// Drive a child until its end is in the inbox: created if it is not there yet. `ends`: it is told to end.
    Child { child: RunId, ends: bool },
    /// Find out where the present phase leads, and go there. Named by the transitions before it.
    Transit { step: u32 },
    /// Fill in and propose the call of the present phase.
    Propose { step: u32 },
    /// Ask for the children of the present phase.
    AskChildren { step: u32 },
    /// Gather what happened in turns that have left the window, and ask for a summary of it. Beside everything else.
    Summarise { generation: u32, attempt: u32 },
    /// A summary was asked for under this claim.
    AwaitSummary { generation: u32, attempt: u32 },
    /// It goes in circles: write what is done about it.
    NoticeLoop,
    /// The run has come to its end: write it.
    Conclude,
    /// The run cannot go on here: write that it is suspended.
    Suspend,
    /// Nothing to do before then.
    Wake { at: Timestamp },
}

impl Duty {
    /// When something becomes of it by time alone.
    pub fn due(&self) -> Option<Timestamp> {
        if let Duty::Wake { at } = self {
            Some(*at)
        } else if let Duty::AwaitAction { until, .. } | Duty::CheckAction { until, .. } = self {
            *until
        } else {
            None
        }
    }
}

/// Everything owed, in the order in which it is to be begun.
pub fn owed(run: &Run) -> Vec<Duty> {
    let mut duties = Vec::new();
    if due_end(run).is_some() {
        return vec![Duty::Conclude];
    }
    match &run.stage {
        Stage::Rest(_) => return hook::due(run).map(|moment| Duty::Hooks { moment }).into_iter().collect(),
        // A run has one thing to do at a time: while its children work it makes no call of its own.
        Stage::Ready(_) if children::are_open(run) => {
            let hooks = hook::due(run).filter(|_| run.winding.is_none()).map(|moment| Duty::Hooks { moment });
            match hooks {
                Some(hooks) => duties.push(hooks),
                None => duties.extend(children::owed(run)),
            }
        }
        Stage::Ready(ready) => match ready.after {
            Some(AfterFailure::Suspend) => {
                let is_suspended = matches!(run.activity, Activity::Suspended { .. });
                return if is_suspended { Vec::new() } else { vec![Duty::Suspend] };
            }
            Some(AfterFailure::Retry { at }) if at > run.at => duties.push(Duty::Wake { at }),
            Some(AfterFailure::Retry { .. } | AfterFailure::Fail(_) | AfterFailure::ContextExhausted) | None => {
                let hooks = hook::due(run).map(|moment| Duty::Hooks { moment });
                let notice = || repeat::due(run).map(|_| Duty::NoticeLoop);
                duties.extend(hooks.or_else(notice).or_else(|| next(run, ready.attempts)));
            }
        },
        Stage::Thinking(thinking) => {
            if run.winding.is_none() {
                duties.push(Duty::AwaitReply { attempt: thinking.attempt });
            }
        }
        Stage::Acting { .. } => duties.extend(acting(run)),
        Stage::Verifying { round, verdicts, .. } => match hook::due(run) {
            Some(moment) => duties.push(Duty::Hooks { moment }),
            None => {
                duties.extend(check(run, *round, verdicts));
                if unasked_checks(run).is_some() {
                    duties.push(Duty::AskChecks { round: *round });
                }
            }
        },
    }
    duties.extend(time_limit(run).map(|at| Duty::Wake { at }));
    duties.extend(summary(run));
    duties
}

/// A summary, last of all: nothing waits for one.
fn summary(run: &Run) -> Option<Duty> {
    if run.winding.is_some() {
        return None;
    }
    let awaited = run
        .summaries
        .awaited
        .as_ref()
        .map(|awaited| Duty::AwaitSummary { generation: awaited.stretch.generation, attempt: awaited.attempt });
    let due = || summary::due(run).map(|due| (due.stretch.generation, due.attempt));
    awaited.or_else(|| due().map(|(generation, attempt)| Duty::Summarise { generation, attempt }))
}

/// What the program wants next (`semantics.md` I2): without phases it is always a model call.
fn next(run: &Run, attempts: u32) -> Option<Duty> {
    let Some(course) = &run.course else { return Some(next_call(run, attempts)) };
    let step = course.step;
    match &course.at {
        At::Working { .. } => Some(next_call(run, attempts)),
        At::Start | At::Over(_) => Some(Duty::Transit { step }),
        At::Proposing => Some(Duty::Propose { step }),
        At::Checking { round, verdicts } => check(run, *round, verdicts),
        At::Children { asked } => asked.is_empty().then_some(Duty::AskChildren { step }),
        At::Calling { .. } | At::Failed { .. } | At::Finished => None,
    }
}

/// The next verdict that a round lacks.
fn check(run: &Run, round: u32, verdicts: &BTreeMap<CheckName, Option<Verdict>>) -> Option<Duty> {
    let (check, asks) = judge::next(run, verdicts)?;
    match (asks, &run.judging.awaited) {
        (Asks::Itself, _) => Some(Duty::Check { check: check.clone(), round }),
        (Asks::AModel, None) => Some(Duty::Judge { check: check.clone(), round, call: run.judging.calls + 1 }),
        (Asks::AModel, Some(awaited)) if awaited.check == *check && awaited.round == round => {
            (run.winding.is_none()).then_some(Duty::AwaitJudge { call: awaited.call })
        }
        // What nobody waits for any more is given up first.
        (Asks::AModel, Some(_)) => None,
    }
}

/// The model call that comes next. A retry that waited is owed once its time has come: see [`retry_due`].
fn next_call(run: &Run, attempts: u32) -> Duty {
    let attempt = AttemptId { turn: run.turn(), attempt: attempts + 1 };
    Duty::Call { attempt, closing: purpose(run) == Purpose::Closing }
}

/// The call owed at `now`, where `owed` only says to wake up at its time.
pub fn retry_due(run: &Run, now: Timestamp) -> Option<Duty> {
    match &run.stage {
        Stage::Ready(_) if children::are_open(run) => None,
        Stage::Ready(ready) => match ready.after {
            Some(AfterFailure::Retry { at }) if now >= at && due_end(run).is_none() => {
                Some(next_call(run, ready.attempts))
            }
            Some(
                AfterFailure::Retry { .. }
                | AfterFailure::Suspend
                | AfterFailure::Fail(_)
                | AfterFailure::ContextExhausted,
            )
            | None => None,
        },
        Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => None,
    }
}

/// What the next model call is for: the last turn of a budget of two or more is its closing call (`semantics.md` F3).
pub fn purpose(run: &Run) -> Purpose {
    let is_last_turn = match run.limits.turns {
        Limit::At(turns) => turns >= 2 && run.spent.turns + 1 == turns,
        Limit::Unlimited => false,
    };
    match run.closing {
        Closing::Owed(_) | Closing::Over(..) => Purpose::Closing,
        Closing::NotYet if is_last_turn => Purpose::Closing,
        Closing::NotYet => Purpose::Work,
    }
}

/// When working time or the deadline runs out, seen from the last event.
fn time_limit(run: &Run) -> Option<Timestamp> {
    if run.winding.is_some() || !waits(run).is_empty() {
        return None;
    }
    let working = match run.limits.time_ms {
        Limit::At(limit) => Some(run.at.plus(Duration::from_millis(limit.saturating_sub(run.spent.time_ms)))),
        Limit::Unlimited => None,
    };
    working.into_iter().chain(run.limits.deadline).min()
}

/// Questions that nobody has answered in time.
pub fn expired(run: &Run, now: Timestamp) -> impl Iterator<Item = &Action> {
    held(run).filter(move |(_, question)| question.is_expired(now)).map(|(action, _)| action)
}

/// When the next question expires.
pub fn question_expires(run: &Run) -> Option<Timestamp> {
    held(run).filter_map(|(_, question)| question.expires).min()
}

fn held(run: &Run) -> impl Iterator<Item = (&Action, &Question)> {
    let is_over = matches!(run.stage, Stage::Rest(_)) || run.winding.is_some();
    run.actions().filter(move |_| !is_over).filter_map(|action| Some((action, action.question()?)))
}

/// Which time budget is used up at `now`.
pub fn out_of_time(run: &Run, now: Timestamp) -> Option<BudgetKind> {
    match (&run.stage, run.winding) {
        (Stage::Rest(_), _) | (_, Some(_)) => None,
        (Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. }, None) => {
            if run.limits.deadline.is_some_and(|deadline| now >= deadline) {
                Some(BudgetKind::Deadline)
            } else if run.limits.time_ms.left(run.time_used(now)) == 0 {
                Some(BudgetKind::Time)
            } else {
                None
            }
        }
    }
}

fn acting(run: &Run) -> Vec<Duty> {
    let Stage::Acting { actions, .. } = &run.stage else { return Vec::new() };
    let mut duties = Vec::new();
    let mut running = actions.values().filter(|action| action.may_run()).count();
    let line = line(actions);
    for action in line.iter().filter_map(|id| actions.get(id)) {
        match &action.life {
            Life::Queued => {
                if run.winding.is_none() && running < PARALLEL_MAX && may_start(run, actions, &line, action) {
                    running += 1;
                    duties.push(Duty::Start { action: action.id });
                }
            }
            Life::Started { .. } => duties.extend(await_action(run, action)),
            // It waits for another try that there will not be.
            Life::Doubtful(doubt, _) if run.winding.is_some() && action.effect == EffectClass::Read => {
                let (attempt, probe) = (action.attempts, doubt.probes + 1);
                duties.push(Duty::Recover { action: action.id, attempt, probe, from: None });
            }
            Life::Lost(doubt) | Life::Doubtful(doubt, _) => duties.push(Duty::Recover {
                action: action.id,
                attempt: action.attempts,
                probe: doubt.probes,
                from: doubt.retry_at,
            }),
            Life::Checking(_) => duties.push(Duty::CheckAction {
                action: action.id,
                attempt: action.attempts,
                until: run.winding.map(|winding| winding.since.plus(grace(run, action))),
            }),
            Life::Undoing(..) => duties.push(Duty::Undo { action: action.id, attempt: action.attempts }),
            Life::Held { .. } | Life::Unknown(_) | Life::Compensating(..) | Life::Ended(_) => {}
        }
    }
    duties
}

/// While the run is being brought to rest, reads and workspace calls are given up at once, external ones after a grace.
fn await_action(run: &Run, action: &Action) -> Option<Duty> {
    let until = match (run.winding, action.effect) {
        (None, _) => None,
        (Some(_), EffectClass::Read | EffectClass::Workspace) => return None,
        (Some(Winding { since, .. }), EffectClass::External) => Some(since.plus(grace(run, action))),
    };
    Some(Duty::AwaitAction { action: action.id, attempt: action.attempts, until })
}

/// How long what a call still does may go on while the run is being brought to rest.
fn grace(run: &Run, action: &Action) -> Duration {
    run.task.tool(&action.tool).map_or(CANCEL_GRACE, |tool| tool.timeout).min(CANCEL_GRACE)
}

/// Whether nothing of the same turn stands before this action: what it depends on, holds, and calls of its own tool.
fn may_start(run: &Run, actions: &BTreeMap<ActionId, Action>, order: &[ActionId], action: &Action) -> bool {
    if !action.after.iter().all(|id| actions.get(id).is_none_or(is_over)) {
        return false;
    }
    let Some(tool) = run.task.tool(&action.tool) else { return true };
    let hold = Hold::of(tool, action.path.as_deref());
    order
        .iter()
        .take_while(|id| **id != action.id)
        .filter_map(|id| actions.get(id))
        .filter(|other| !is_over(other))
        // What is undone waits for what undoes it.
        .filter(|other| action.undoes().is_none_or(|undone| undone.action != other.id))
        .all(|other| {
            let same_tool = other.tool == action.tool;
            let same_key = same_tool && other.key.is_some() && other.key == action.key;
            let overlaps = tool.overlap == Overlap::OneAtATime && same_tool;
            let conflicts =
                run.task.tool(&other.tool).is_some_and(|spec| Hold::of(spec, other.path.as_deref()).conflicts(&hold));
            !(overlaps || conflicts || same_key)
        })
}

/// Call order, but with what an action depends on before it. Holds are taken along this one line, so that waiting for a
/// hold and waiting for a dependency can never go in a circle.
fn line(actions: &BTreeMap<ActionId, Action>) -> Vec<ActionId> {
    fn visit(
        id: ActionId,
        actions: &BTreeMap<ActionId, Action>,
        seen: &mut BTreeSet<ActionId>,
        line: &mut Vec<ActionId>,
    ) {
        let Some(action) = actions.get(&id) else { return };
        if !seen.insert(id) {
            return;
        }
        for before in &action.after {
            visit(*before, actions, seen, line);
        }
        line.push(id);
    }
    let mut line = Vec::with_capacity(actions.len());
    let mut seen = BTreeSet::new();
    for (id, action) in actions.iter().filter(|(_, action)| action.undoes().is_none()) {
        visit(*id, actions, &mut seen, &mut line);
        // What undoes a call takes that call's place, before everything that waits for its hold.
        if let Life::Compensating(_, by) = action.life {
            visit(by, actions, &mut seen, &mut line);
        }
    }
    for id in actions.keys() {
        visit(*id, actions, &mut seen, &mut line);
    }
    line
}

/// Nothing of it runs or will run: its hold is free.
fn is_over(action: &Action) -> bool {
    match action.life {
        Life::Ended(_) | Life::Unknown(_) => true,
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

/// What the run waits for, if nothing can move without a person: all reasons at once. Empty: it is not waiting.
pub fn waits(run: &Run) -> Vec<Wait> {
    match &run.stage {
        Stage::Acting { actions, .. } => {
            if run.winding.is_some() || !acting(run).is_empty() {
                return Vec::new();
            }
            actions
                .values()
                .filter_map(|action| match &action.life {
                    Life::Held(question) => Some(match question.wants {
                        Wants::Yes | Wants::Typed(_) => Wait::Approval(action.id),
                        Wants::Words => Wait::Answer(action.id),
                    }),
                    Life::Unknown(_) if action.on_unknown == OnUnknown::Wait => Some(Wait::Unknown(action.id)),
                    Life::Unknown(_)
                    | Life::Queued
                    | Life::Started { .. }
                    | Life::Lost(_)
                    | Life::Doubtful(..)
                    | Life::Checking(_)
                    | Life::Undoing(..)
                    | Life::Compensating(..)
                    | Life::Ended(_) => None,
                })
                .collect()
        }
        Stage::Verifying { verdicts, question, .. } => {
            if run.winding.is_some() || run.hooks.stop.is_some() || verdicts.values().any(Option::is_none) {
                return Vec::new();
            }
            if unasked_checks(run).is_some() {
                return Vec::new();
            }
            let unknown = run.open.keys().map(|id| Wait::Unknown(*id));
            let asked = question.iter().map(|question| Wait::Approval(question.id));
            unknown.chain(asked).chain(children::unsettled(run)).collect()
        }
        Stage::Ready(_) => children::waits(run),
        Stage::Thinking(_) | Stage::Rest(_) => Vec::new(),
    }
}

/// What a person has to be asked about changed checks, and has not been: what changed, and the digest of the question.
pub fn unasked_checks(run: &Run) -> Option<(ChangedChecks, Digest)> {
    if run.winding.is_some() || run.hooks.stop.is_some() {
        return None;
    }
    let (changed, digest) = run.changed_checks().filter(|(_, digest)| !run.is_waived(digest))?;
    let is_asked = run.checks_question().and_then(Action::question).is_some_and(|asked| asked.digest == digest);
    (!is_asked).then_some((changed, digest))
}

/// The end the run has come to, if it has.
pub fn due_end(run: &Run) -> Option<End> {
    if let Some(winding) = run.winding {
        let end = match winding.why {
            WindingWhy::Cancelled => End::Cancelled,
            WindingWhy::OutOf(budget) => End::Exhausted(budget),
            WindingWhy::Hook => End::Failed(Failure::Hook),
        };
        return nothing_in_flight(run).then_some(end);
    }
    match &run.stage {
        // A run ends after its children (`semantics.md` F4).
        Stage::Ready(_) if children::are_open(run) => None,
        Stage::Ready(ready) => match ready.after {
            Some(AfterFailure::Fail(failure)) => Some(End::Failed(failure)),
            Some(AfterFailure::ContextExhausted) => Some(End::ContextExhausted),
            Some(AfterFailure::Retry { .. } | AfterFailure::Suspend) | None => {
                refused_too_often(run).or(program_ended(run)).or(exhausted(run))
            }
        },
        // Nothing of it happened, whatever its answer says.
        Stage::Verifying { .. } if run.mode == Mode::Shadow => Some(End::Failed(Failure::Shadow)),
        Stage::Verifying { accepted, verdicts, .. } => {
            let passed = verdicts
                .values()
                .all(|verdict| verdict.as_ref().is_some_and(|verdict| verdict.finding == Finding::Passed));
            let is_proof = |verdict: &Verdict| verdict.proof.opinion.is_none();
            let proven = verdicts.values().flatten().any(is_proof) || accepted.standing == Standing::Proven;
            let verified = match run.changed_checks() {
                _ if checks_were_not_run(run, verdicts) => None,
                // What stands in the world against its check is no part of the proof.
                None => proven.then_some(run.unproven.is_empty()),
                Some((_, question)) if run.is_waived(&question) => Some(false),
                Some(_) => return None,
            };
            let all_known = run.open.is_empty() && children::unsettled(run).is_empty();
            (passed && all_known && run.hooks.stop.is_none())
                .then(|| End::Done(Done { accepted: accepted.clone(), verified }))
        }
        Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => None,
    }
}

/// In a mode in which nothing may be changed no check is run: whatever else holds, this is not verified.
pub(crate) fn checks_were_not_run(run: &Run, verdicts: &BTreeMap<CheckName, Option<Verdict>>) -> bool {
    verdicts.is_empty() && !run.task.acceptance.is_empty()
}

fn refused_too_often(run: &Run) -> Option<End> {
    if run.repeats.over.is_some() {
        Some(End::Failed(Failure::Loop))
    } else if run.finish.over.is_some() {
        Some(End::Failed(Failure::Incomplete))
    } else if run.hooks.goal_blocked || run.hooks.stop_blocks >= STOP_BLOCKS_MAX {
        Some(End::Failed(Failure::Hook))
    } else if run.failed_rounds >= CHECK_ROUNDS_MAX {
        Some(End::Failed(Failure::Checks))
    } else if run.answer_refusals >= ANSWER_REFUSALS_MAX
        || run.course.as_ref().is_some_and(|course| course.refusals >= ANSWER_REFUSALS_MAX)
    {
        Some(End::Failed(Failure::Answer))
    } else {
        None
    }
}

/// The program led to a failed end, or has nothing more to do.
fn program_ended(run: &Run) -> Option<End> {
    match &run.course.as_ref()?.at {
        At::Failed { .. } => Some(End::Failed(Failure::Program)),
        // Acceptance or the answer failed, and nothing of the program can mend it.
        At::Finished if run.failed_rounds > 0 => Some(End::Failed(Failure::Checks)),
        At::Finished => Some(End::Failed(Failure::Program)),
        At::Start
        | At::Working { .. }
        | At::Proposing
        | At::Calling { .. }
        | At::Checking { .. }
        | At::Children { .. }
        | At::Over(_) => None,
    }
}

fn exhausted(run: &Run) -> Option<End> {
    if let Closing::Over(budget, _) = run.closing {
        Some(End::Exhausted(budget))
    } else if !run.wants_model() {
        // What costs no turn may go on without one.
        None
    } else if run.limits.turns.left(run.spent.turns) == 0 {
        Some(End::Exhausted(BudgetKind::Turns))
    } else if run.limits.model_calls.left(run.spent.model_calls) == 0 {
        Some(End::Exhausted(BudgetKind::ModelCalls))
    } else {
        None
    }
}

fn nothing_in_flight(run: &Run) -> bool {
    match &run.stage {
        Stage::Ready(_) | Stage::Verifying { .. } => !children::are_open(run),
        Stage::Thinking(_) | Stage::Rest(_) => false,
        Stage::Acting { actions, .. } => actions.values().all(|action| match action.life {
            Life::Started { .. } | Life::Lost(_) | Life::Doubtful(..) | Life::Checking(_) | Life::Undoing(..) => false,
            // What undoes it is another action.
            Life::Queued | Life::Held { .. } | Life::Unknown(_) | Life::Compensating(..) | Life::Ended(_) => true,
        }),
    }
}

/// What an end says of the run's effects: done, not done, unknown.
pub fn effects(run: &Run) -> (Vec<ActionId>, Vec<ActionId>, Vec<ActionId>) {
    let mut undone = Vec::new();
    let mut unknown = Vec::new();
    for action in run.actions() {
        match &action.life {
            Life::Queued | Life::Held { .. } if action.in_doubt => unknown.push(action.id),
            Life::Queued | Life::Held { .. } => undone.push(action.id),
            // It happened, and is listed there.
            Life::Ended(Ended::Error(_)) if run.happened.contains(&action.id) => {}
            Life::Ended(Ended::Refused(_) | Ended::NotDone(_) | Ended::Error(_)) => undone.push(action.id),
            Life::Ended(Ended::Done { .. }) => {}
            Life::Checking(_) | Life::Undoing(..) | Life::Compensating(..) => {}
            Life::Started { .. } | Life::Lost(_) if action.effect == EffectClass::Read => undone.push(action.id),
            Life::Started { .. } | Life::Lost(_) | Life::Doubtful(..) | Life::Unknown(_) => unknown.push(action.id),
        }
    }
    (run.happened.clone(), undone, unknown)
}
