//! Commands and what follows from them. `decide` answers with the events that become true, or with a refusal; it changes
//! nothing.

mod acceptance;
mod calls;
mod checked;
mod children;
mod ending;
mod hooks;
mod inputs;
mod judge;
mod modes;
mod program;
mod propose;
mod recovery;
mod start;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::acceptance::{ACCEPTS, VOIDED_MAX};
pub(crate) use self::calls::backoff;
pub use self::calls::output_allowance;
use self::calls::{Requested, fail_model, reply_arrived, request};
pub(crate) use self::checked::tried_too_often;
pub use self::checked::{CHECK_FAILURES_MAX, Undo, undo_of};
pub use self::children::{begin_child, request_children};
use self::inputs::take_input;
pub(crate) use self::modes::beyond_plan;
use self::modes::{not_executed, shadowed};
pub(crate) use self::program::outside_phase;
pub use self::program::{Entry, Found, Transit};
use self::propose::propose;
pub use self::start::key_scope;
use self::start::{Before, start};
use crate::action::{Action, Life, Question};
use crate::budget::{BudgetKind, Limit, Reservation, Usage};
use crate::check::{Judgement, Verdict};
use crate::children::{ChildSpec, Descent, Unfit};
use crate::context::memory;
use crate::context::note::{Note, NoteKind};
use crate::context::plan::OVERFLOWS_MAX;
use crate::event::*;
use crate::finish;
use crate::hook::{Heard, HookRan, Moment};
use crate::ids::{ActionId, AttemptId, CheckName, Digest, Fence, InputId, NoteId, RunId, ToolName, TreeId};
use crate::input::{Endorse, Input, InputBody, LateOutcome, Truth};
use crate::manifest;
use crate::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Outcome, ProbeAnswer, Reply, ToolError, class};
use crate::owed;
use crate::payload::{Content, Payload};
use crate::program::children::Askable;
use crate::prompt::Purpose;
use crate::repeat;
use crate::retry;
use crate::route::{self, ROUTED_FAILURES_MAX, ROUTED_WAIT_MAX};
use crate::ruling::{Bearing, Effect, Ruling};
use crate::run::{Closing, Run, Stage, Thinking};
use crate::taint::Mark;
use crate::target::Target;
use crate::task::{EffectClass, KeyScope, Mode, ModeChange};
use crate::time::Timestamp;

pub use judge::{AskJudge, TakeJudge};
pub use summary::{AskSummary, TakeSummary};

/// Calls one reply may carry (`semantics.md` D10).
pub const CALLS_MAX: usize = 64;
/// Attempts at one turn's model call that fail and are retried, under one claim.
pub const MODEL_FAILURES_MAX: u32 = 6;
/// Malformed replies of one turn before the run is failed: the model was told each time.
pub const MALFORMED_MAX: u32 = 3;
/// Attempts at one action, over all claims (`semantics.md` D5).
pub const ATTEMPTS_MAX: u32 = 3;
/// Reconcile commands without an answer before it is left unknown.
pub const PROBES_MAX: u32 = 5;
/// Claims in a row that died without achieving anything (`semantics.md` C5).
pub const BARREN_CLAIMS_MAX: u32 = 5;
/// First wait between attempts; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_FIRST: Duration = Duration::from_millis(500);
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The longest a provider's Retry-After is honoured; a run that should wait longer is better suspended.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// A request for something to become true. What is about payloads is computed at the edge and handed in.
#[derive(Debug)]
pub enum Command {
    /// A worker has claimed the run.
    Claim(RunClaimed),
    TakeInput(Input),
    /// The same of a message, with what hooks said of it.
    TakeMessage(Input, Heard),
    /// Hooks were told, and this is what they said.
    TakeHooks {
        moment: Moment,
        ran: Vec<HookRan>,
    },
    /// A model call is encoded and ready to go.
    Request {
        attempt: AttemptId,
        purpose: Purpose,
        digest: Digest,
        bytes: u64,
        /// Tokens of reply that it asks for.
        output: u64,
        counted: Counted,
        /// Of the tail's words, if it has one.
        tail: Option<Digest>,
    },
    /// A result of the last turn is shown shorter.
    Spill {
        action: ActionId,
        shown: Payload,
        total: u64,
    },
    /// The window is made anew.
    Rebuild(Box<GenerationStarted>),
    /// The call that is owed is not made.
    Forgo(ModelForgone),
    /// The next call is owed to another model: see [`crate::route::due`].
    Route,
    /// A summary that is due is encoded and ready to go.
    AskSummary(AskSummary),
    /// The summary that is due is not made.
    ForgoSummary {
        generation: u32,
        reason: String,
    },
    /// A summary came, or will not.
    TakeSummary(TakeSummary),
    /// A model is asked for its opinion of the work.
    AskJudge(AskJudge),
    /// It came, or will not.
    TakeJudge(TakeJudge),
    /// `proposals` has one entry per call of the reply; `judgement` is there if the reply has no call.
    Reply {
        attempt: AttemptId,
        reply: Reply,
        proposals: Vec<Proposal>,
        judgement: Option<Judgement>,
        jitter: u32,
    },
    FailModel {
        attempt: AttemptId,
        failure: ModelFailure,
        jitter: u32,
    },
    Start {
        action: ActionId,
        readiness: Readiness,
        key: KeyView,
        heard: Heard,
        tree: TreeView,
    },
    /// `brings`: what its result turned out to bring, beside what was known at its start.
    Finish {
        action: ActionId,
        attempt: u32,
        outcome: Outcome,
        brings: Vec<Mark>,
        /// The workspace as it was left, where its start had a tree.
        left: Option<TreeId>,
    },
    /// What the check of an action found.
    GiveActionVerdict {
        action: ActionId,
        attempt: u32,
        verdict: Verdict,
        brings: Vec<Mark>,
    },
    /// What came of going back to the tree an action began with; Err: why it could not be done.
    TakeUndone {
        action: ActionId,
        attempt: u32,
        undone: Result<Undone, String>,
    },
    /// A person wants the workspace set back, and this came of it: the newest action first. Err: why nothing was done.
    TakeRollback {
        input: InputId,
        by: String,
        undone: Result<Vec<(ActionId, Undone)>, String>,
        /// Why not all of it.
        stopped: Option<(ActionId, String)>,
    },
    /// What recovery found: its processes are gone and the settle time is over.
    Recover {
        action: ActionId,
        attempt: u32,
        probe: Option<ProbeAnswer>,
        jitter: u32,
    },
    GiveVerdict {
        check: CheckName,
        round: u32,
        verdict: Verdict,
        brings: Vec<Mark>,
    },
    /// The workspace is not what the verdicts of the round have seen.
    VoidChecks {
        round: u32,
        tree: Option<TreeId>,
    },
    /// Where the present phase of the program leads, as the edge has found out.
    Transit(Box<Transit>),
    /// The call of the present phase, filled in; or why it cannot be.
    ProposeCall {
        step: u32,
        proposal: Result<Box<Proposal>, String>,
    },
    /// The children of the present phase, filled in; or why they cannot be.
    AskForPhase {
        step: u32,
        asked: Result<Askable, String>,
    },
    /// Whether what was found on changed checks counts is asked.
    AskChecks {
        asks: Asks,
    },
    /// Nobody can be asked: a held action is denied.
    DenyUnasked {
        action: ActionId,
        reason: String,
    },
    /// Things around the task are not what they were.
    NoteSurroundings {
        changed: Vec<String>,
        /// The mode the operator wants from now on. None: as it is.
        mode: Option<Mode>,
    },
    /// These runs are asked for, all or none; at most `at_once` of them are driven at the same time.
    AskForChildren {
        specs: Vec<ChildSpec>,
        at_once: u32,
    },
    /// Nothing moves but in these children, and they wait for people.
    ParkForChildren {
        waiting: BTreeMap<RunId, Vec<Wait>>,
    },
    /// What goes in circles is answered.
    NoticeLoop,
    /// Time has passed.
    Tick,
    Conclude,
    Park,
    Suspend {
        cause: Suspension,
        detail: String,
    },
}

/// A call of a reply, seen by the edge.
#[derive(Debug, Clone)]
pub struct Proposal {
    pub tool: ToolName,
    pub args: Payload,
    pub digest: Digest,
    pub key: Option<Digest>,
    /// The path it names, for its hold.
    pub path: Option<String>,
    /// Positions, in the same reply, of the calls whose evidence it cites.
    pub builds_on: Vec<u32>,
    pub readiness: Readiness,
}

/// Whether a call may run, as far as the edge can tell.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// Never: arguments, evidence or guard.
    Refused(ToolError),
    /// Not to be told before the calls of the same reply that it builds on have ended. Never at a start.
    Later,
    Ruled {
        ruling: Ruling,
        /// Digest of the exact question a person would be asked (`semantics.md` E4).
        question: Digest,
        /// The same without the action's number: equal for all calls that would do the very same. None: no earlier yes
        /// answers this question.
        exact: Option<Digest>,
        /// What a person would have to give: a yes, or one that is typed out.
        wants: Wants,
        /// What happens to an ask.
        asks: Asks,
        /// What was ruled on, if it is about one file.
        target: Option<Target>,
        /// What its result brings into the run, if that taints.
        brings: Vec<Mark>,
        /// What it would do, for whoever is asked or told.
        effects: Vec<Effect>,
        /// What of that the walls around it have to let through.
        beyond: Vec<Effect>,
        /// Whether it only looks.
        bearing: Bearing,
        /// The tier of the sandbox it would run in; None: it starts no process.
        sandbox: Option<String>,
    },
    /// The kernel keeps it and tells its id; nothing is run.
    Note(Note),
    /// Allowed, and a question to a person: words are its result, and nothing is run.
    Question { text: String, digest: Digest, rule: String, asks: Asks },
}

/// What becomes of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// A person will be asked, now or later.
    Hold,
    /// Nobody can be asked.
    Deny,
}

/// What is known of the workspace before a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeView {
    /// Nobody has looked.
    NotTaken,
    /// No snapshots are taken here, and why.
    None(String),
    Taken(TreeId),
    /// It could not be taken, and why.
    Failed(String),
}

/// What going back did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    pub to: TreeId,
    pub paths: Vec<String>,
    pub aside: Option<String>,
}

/// What the store knows of an action's key.
#[derive(Debug, Clone)]
pub enum KeyView {
    /// The tool has no key, or the key is free or this action's own.
    Free { times_freed: u32 },
    /// Another action has it and its outcome is not known.
    Held { run: RunId, action: ActionId },
    /// The stored result of the first call, and what that brought.
    Done { run: RunId, action: ActionId, result: Content, brings: Vec<Mark> },
    /// The same key with other arguments.
    Conflict { run: RunId, action: ActionId, fields: Vec<String> },
}

/// Why a command has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is about something that is over: drop it.
    Stale,
    /// The run rests.
    AtRest,
    /// It is not due.
    NotDue,
    /// Hooks have a say in it, and have not been asked.
    HooksFirst,
    /// The children that are asked for do not fit.
    Unfit(Unfit),
    /// The workspace is to be kept as it is before.
    TreeFirst,
}

/// What becomes true if `command` is accepted at `now`.
pub fn decide(run: &Run, command: Command, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    match command {
        Command::Claim(claimed) => Ok(claim(run, claimed)),
        Command::TakeInput(input) => take_input(run, input, Heard::NotAsked, now),
        Command::TakeMessage(input, heard) => take_input(run, input, heard, now),
        Command::TakeHooks { moment, ran } => hooks::take(run, moment, ran),
        Command::Request { attempt, purpose, digest, bytes, output, counted, tail } => {
            request(run, Requested { attempt, purpose, digest, bytes, output, counted, tail }, now)
        }
        Command::Spill { action, shown, total } => {
            if run.fresh.iter().any(|fresh| fresh.id == action) {
                Ok(vec![Event::ResultSpilled(ResultSpilled { action, shown, total })])
            } else {
                Err(Refusal::Stale)
            }
        }
        Command::Rebuild(started) => match &run.stage {
            Stage::Ready(_) if started.generation == run.window.generation + 1 => {
                Ok(vec![Event::GenerationStarted(started)])
            }
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                Err(Refusal::Stale)
            }
        },
        Command::Forgo(forgone) => match &run.stage {
            Stage::Ready(_) => Ok(calls::forgo(run, forgone, now)),
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => Err(Refusal::Stale),
        },
        Command::Route => match &run.stage {
            Stage::Ready(_) => match route::due(run, now) {
                Some(routed) => Ok(vec![Event::ModelRouted(routed)]),
                None => Err(Refusal::NotDue),
            },
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => Err(Refusal::Stale),
        },
        Command::AskSummary(asked) => summary::ask(run, asked),
        Command::ForgoSummary { generation, reason } => summary::forgo(run, generation, reason),
        Command::TakeSummary(taken) => summary::take(run, taken),
        Command::AskJudge(asked) => judge::ask(run, asked),
        Command::TakeJudge(taken) => judge::take(run, taken),
        Command::Reply { attempt, reply, proposals, judgement, jitter } => {
            reply_arrived(run, attempt, reply, proposals, judgement, jitter, now)
        }
        Command::FailModel { attempt, failure, jitter } => fail_model(run, attempt, failure, jitter, now),
        Command::Start { action, readiness, key, heard, tree } => {
            start(run, action, readiness, key, Before { heard, tree }, now)
        }
        Command::Finish { action, attempt, outcome, brings, left } => {
            finish(run, action, attempt, outcome, Ran { brings, left }, now)
        }
        Command::GiveActionVerdict { action, attempt, verdict, brings } => {
            checked::verdict(run, action, attempt, verdict, brings)
        }
        Command::TakeRollback { input, by, undone, stopped } => Ok(checked::rollback(run, input, &by, undone, stopped)),
        Command::TakeUndone { action, attempt, undone } => checked::undone(run, action, attempt, undone),
        Command::Recover { action, attempt, probe, jitter } => {
            recovery::recover(run, action, attempt, probe, jitter, now)
        }
        Command::GiveVerdict { check, round, verdict, brings } => give_verdict(run, check, round, verdict, brings),
        Command::VoidChecks { round, tree } => acceptance::void(run, round, tree),
        Command::AskChecks { asks } => acceptance::question(run, asks),
        Command::Transit(transit) => program::transit(run, *transit),
        Command::ProposeCall { step, proposal } => program::propose_call(run, step, proposal),
        Command::AskForPhase { step, asked } => program::ask_children(run, step, asked, now),
        Command::DenyUnasked { action, reason } => match run.action(action).map(|action| &action.life) {
            Some(Life::Held(question)) => Ok(vec![match question.wants {
                Wants::Yes | Wants::Typed(_) => unasked(action, reason),
                Wants::Words => refused(action, nobody()),
            }]),
            Some(
                Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..)
                | Life::Ended(_),
            )
            | None => Err(Refusal::Stale),
        },
        Command::NoteSurroundings { changed, mode } => {
            let fresh: Vec<_> = changed.into_iter().filter(|name| !run.surroundings.contains(name)).collect();
            let mode = mode.filter(|mode| match run.mode.change(*mode) {
                ModeChange::Tightens | ModeChange::Loosens => true,
                ModeChange::None | ModeChange::Refused => false,
            });
            if fresh.is_empty() && mode.is_none() {
                Err(Refusal::NotDue)
            } else {
                Ok(vec![Event::SurroundingsChanged(SurroundingsChanged { changed: fresh, mode })])
            }
        }
        Command::AskForChildren { specs, at_once } => {
            request_children(run, &specs, at_once, now).map_err(Refusal::Unfit)
        }
        Command::ParkForChildren { waiting } => children::park(run, waiting),
        Command::NoticeLoop => match repeat::due(run) {
            Some(notice) => Ok(vec![Event::LoopNoticed(notice)]),
            None => Err(Refusal::NotDue),
        },
        Command::Tick => match owed::out_of_time(run, now) {
            Some(budget) => Ok(vec![Event::BudgetReached(BudgetReached { budget })]),
            None => {
                let expired: Vec<Event> = owed::expired(run, now).map(no_answer).collect();
                if expired.is_empty() { Err(Refusal::NotDue) } else { Ok(expired) }
            }
        },
        Command::Conclude => match owed::due_end(run) {
            Some(end) => Ok(given_up(run).chain([ending::conclude(run, end)]).collect()),
            None => Err(Refusal::NotDue),
        },
        Command::Park => {
            let waits = owed::waits(run);
            if waits.is_empty() {
                return Err(Refusal::NotDue);
            }
            Ok(given_up(run).chain([Event::RunParked(RunParked { waits })]).collect())
        }
        Command::Suspend { cause, detail } => suspend(run, cause, detail),
    }
}

/// What is in flight beside the run's own work ends with it.
fn given_up(run: &Run) -> impl Iterator<Item = Event> {
    summary::given_up(run).into_iter().chain(judge::given_up(run))
}

/// A verdict of the round: of acceptance, or of the checks of a phase.
fn give_verdict(
    run: &Run,
    check: CheckName,
    round: u32,
    verdict: Verdict,
    brings: Vec<Mark>,
) -> Result<Vec<Event>, Refusal> {
    match &run.stage {
        Stage::Ready(_) if program::awaits_verdict(run, &check, round) => {
            let phase = run.phase().map(|phase| phase.name.clone());
            Ok(vec![Event::CheckFinished(CheckFinished { check, round, action: None, verdict, brings, phase })])
        }
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
            acceptance::verdict(run, check, round, verdict, brings)
        }
    }
}

fn suspend(run: &Run, cause: Suspension, detail: String) -> Result<Vec<Event>, Refusal> {
    let mut events = match &run.stage {
        Stage::Rest(_) => return Err(Refusal::AtRest),
        Stage::Thinking(thinking) => vec![lost_call(run, thinking.attempt, thinking.reserved)],
        Stage::Acting { .. } => void_facts_if(run, run.actions().any(|action| action.may_run() && writes(action))),
        Stage::Ready(_) | Stage::Verifying { .. } => Vec::new(),
    };
    events.extend(given_up(run));
    events.push(Event::RunSuspended(RunSuspended { cause, detail }));
    Ok(events)
}

// ---- claims ----

fn claim(run: &Run, claimed: RunClaimed) -> Vec<Event> {
    let mut events = vec![Event::RunClaimed(claimed)];
    match &run.stage {
        Stage::Thinking(thinking) => events.push(lost_call(run, thinking.attempt, thinking.reserved)),
        Stage::Acting { actions, .. } => {
            let wrote = actions.values().any(|action| matches!(action.life, Life::Started { .. }) && writes(action));
            events.extend(void_facts_if(run, wrote));
        }
        Stage::Ready(_) | Stage::Verifying { .. } | Stage::Rest(_) => {}
    }
    events.extend(given_up(run));
    let died = run.activity == crate::run::Activity::Claimed && !crate::children::are_open(run);
    if died && run.barren_claims + 1 >= BARREN_CLAIMS_MAX && !matches!(run.stage, Stage::Rest(_)) {
        let reason = format!(
            "{BARREN_CLAIMS_MAX} claims in a row got nowhere: the process died each time; the last point was {}. Look at the log, mend the cause, then send it a message to go on.",
            last_point(run)
        );
        events.push(ending::ended(run, End::Failed(Failure::Poisoned), reason, None));
    }
    events
}

/// Where a run stands, in words.
fn last_point(run: &Run) -> String {
    match &run.stage {
        Stage::Ready(_) if !run.wants_model() => match run.phase() {
            Some(phase) => format!("the phase {}", phase.name),
            None => "the start of its program".to_owned(),
        },
        Stage::Ready(ready) => format!("the model call {}.m{}", run.turn(), ready.attempts + 1),
        Stage::Thinking(thinking) => format!("the model call {}", thinking.attempt),
        Stage::Acting { actions, .. } => {
            let live: Vec<_> = actions
                .values()
                .filter(|action| !matches!(action.life, Life::Ended(_)))
                .map(|action| format!("{} {}", action.id, action.tool))
                .collect();
            format!("the actions {}", live.join(", "))
        }
        Stage::Verifying { .. } => "the acceptance checks".to_owned(),
        Stage::Rest(ended) => format!("its end ({})", ended.end.state()),
    }
}

/// A model call whose worker died: settled at its upper estimate, never released (`semantics.md` F2).
fn lost_call(run: &Run, attempt: AttemptId, reserved: Reservation) -> Event {
    let usage = Usage { input: reserved.input, output: reserved.output, ..Usage::default() };
    Event::ModelFailed(ModelFailed {
        attempt,
        class: ModelErrorClass::Lost,
        message: "The process that waited for the reply ended.".to_owned(),
        status: None,
        told: None,
        usage,
        settled: Settled::Estimated,
        micros: reserved.micros,
        next: AfterFailure::Retry { at: run.at },
        partial: None,
        served: None,
    })
}

// ---- inputs ----

// ---- replies ----

fn refused(action: ActionId, error: ToolError) -> Event {
    Event::ActionRefused(ActionRefused { action, error, would: None })
}

/// Why a tool may not be called now, as its call is answered.
fn missing_capability(run: &Run, tool: &ToolName) -> Option<ToolError> {
    manifest::withheld(run, run.task.tool(tool)?).map(|withheld| withheld.error())
}

fn denied_by_rule(rule: &str, reason: &str) -> ToolError {
    ToolError::new(class::DENIED, format!("Not run: denied by the rule {rule}. {reason}").trim_end().to_owned())
        .hint("Do not repeat the call; go on without it, or do it another way.")
}

fn ask(held: ActionHeld, asks: Asks) -> Event {
    match asks {
        Asks::Hold => Event::ActionHeld(held),
        Asks::Deny => {
            let why = held.reason.trim_end_matches('.');
            unasked(held.action, format!("{why} ({}), and nobody can be asked here", held.rule))
        }
    }
}

/// What a question is told where nobody is there.
fn nobody() -> ToolError {
    ToolError::new(
        class::UNAVAILABLE,
        "Nobody can be asked here; go on with your best judgement and say what you assumed.",
    )
}

fn unasked(action: ActionId, reason: String) -> Event {
    let (by, reason) = ("policy".to_owned(), Some(reason));
    Event::ActionDenied(ActionDenied { action, by, reason, no: No::Unasked })
}

/// Nobody has answered in time. That is never a yes.
fn no_answer(action: &Action) -> Event {
    let (action, by) = (action.id, "nobody".to_owned());
    Event::ActionDenied(ActionDenied { action, by, reason: None, no: No::Expired })
}

fn writes(action: &Action) -> bool {
    action.effect != EffectClass::Read
}

/// Facts that a new write epoch voids.
fn void_facts_if(run: &Run, wrote: bool) -> Vec<Event> {
    if !wrote {
        return Vec::new();
    }
    run.facts
        .iter()
        .filter(|(_, id)| run.evidence.get(id).is_some_and(|evidence| evidence.holds == crate::task::Holds::UntilWrite))
        .map(|(fact, evidence)| Event::FactVoided(FactVoided { fact: fact.clone(), evidence: *evidence }))
        .collect()
}

fn set_facts(run: &Run, action: &Action) -> Vec<Event> {
    let provides = run.task.tool(&action.tool).map(|tool| tool.provides.as_slice()).unwrap_or_default();
    provides.iter().map(|fact| Event::FactSet(FactSet { fact: fact.clone(), evidence: action.id.evidence() })).collect()
}

fn finished(action: &Action, outcome: Outcome, how: How, cost_micros: u64) -> Event {
    Event::ActionFinished(ActionFinished {
        action: action.id,
        attempt: action.attempts,
        effect: action.effect,
        outcome,
        how,
        cost_micros,
        brings: Vec::new(),
        left: None,
    })
}

/// Ends an attempt, with the facts that follow from it.
fn finish_events(run: &Run, action: &Action, outcome: Outcome, how: How, cost_micros: u64) -> Vec<Event> {
    // What its check may still undo is no fact yet.
    let done = matches!(outcome, Outcome::Done(_)) && !run.has_check(action.id);
    let mut events = void_facts_if(run, writes(action));
    events.push(finished(action, outcome, how, cost_micros));
    if done {
        events.extend(set_facts(run, action));
    }
    events
}

/// What is known of an attempt beside its outcome.
struct Ran {
    brings: Vec<Mark>,
    left: Option<TreeId>,
}

fn finish(
    run: &Run,
    id: ActionId,
    attempt: u32,
    outcome: Outcome,
    ran: Ran,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let action = run.action(id).ok_or(Refusal::Stale)?;
    match action.life {
        Life::Started { fence, .. } if fence == run.fence && action.attempts == attempt => {
            if let Outcome::Error(error) = &outcome
                && let Some(from) = retry::read_again(run, action, error, now)
            {
                let (why, from, error) = (Requeue::MayPass, Some(from), Some(error.clone()));
                return Ok(vec![Event::ActionRequeued(ActionRequeued { action: id, why, from, error })]);
            }
            let cost = run.task.tool(&action.tool).map_or(0, |tool| tool.cost_micros);
            // That this attempt did nothing says nothing about the one before.
            let outcome = match outcome {
                Outcome::NotDone(error) if action.in_doubt => Outcome::Unknown(ToolError {
                    class: class::UNKNOWN_OUTCOME.to_owned(),
                    message: format!("An earlier attempt may have happened; the last one: {}", error.message),
                    ..error
                }),
                Outcome::Error(error) => Outcome::Error(retry::advised(error, attempt)),
                Outcome::NotDone(error) => Outcome::NotDone(retry::advised(error, attempt)),
                Outcome::Done(_) | Outcome::Unknown(_) => outcome,
            };
            let mut events = finish_events(run, action, outcome, How::Observed, cost);
            for event in &mut events {
                if let Event::ActionFinished(finished) = event {
                    finished.brings.clone_from(&ran.brings);
                    finished.left.clone_from(&ran.left);
                }
            }
            Ok(events)
        }
        Life::Started { .. }
        | Life::Queued
        | Life::Held { .. }
        | Life::Lost(_)
        | Life::Doubtful(..)
        | Life::Unknown(_)
        | Life::Checking(_)
        | Life::Undoing(..)
        | Life::Compensating(..)
        | Life::Ended(_) => Err(Refusal::Stale),
    }
}

fn unknown(action: &Action, more: &str) -> ToolError {
    let message = format!("{} was started and it is not known whether it happened {more}", action.tool);
    ToolError::new(class::UNKNOWN_OUTCOME, format!("{}.", message.trim_end().trim_end_matches('.')))
        .hint("Do not repeat it. Find out by other means, or say that it is unknown.")
}

/// The first event of a run.
pub fn begin(run: RunId, task: crate::task::Task, binary: &str) -> RunStarted {
    RunStarted { run, task, binary: binary.to_owned(), root: None, descent: None, brings: Vec::new(), first_tree: None }
}

/// The claim of a worker, as an event.
pub fn claimed(
    fence: Fence,
    host: &str,
    boot: &str,
    pid: u32,
    binary: &str,
    worked_until: Option<Timestamp>,
) -> RunClaimed {
    RunClaimed { fence, host: host.to_owned(), boot: boot.to_owned(), pid, binary: binary.to_owned(), worked_until }
}
