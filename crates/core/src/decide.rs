//! Commands and what follows from them. `decide` answers with the events that become true, or with a refusal; it changes
//! nothing.

mod calls;
mod ending;
mod hooks;
mod modes;
mod recovery;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::calls::output_allowance;
use self::calls::{Requested, fail_model, reply_arrived, request};
use self::modes::{not_executed, shadowed};
use crate::action::{Action, Life, Question};
use crate::budget::{BudgetKind, Limit, Reservation, Usage};
use crate::check::{Judgement, Verdict};
use crate::context::memory;
use crate::context::note::{Note, NoteKind};
use crate::context::plan::OVERFLOWS_MAX;
use crate::event::*;
use crate::hook::{Heard, HookRan, Moment};
use crate::ids::{ActionId, AttemptId, CheckName, Digest, Fence, InputId, NoteId, RunId, ToolName};
use crate::input::{Endorse, Input, InputBody, LateOutcome, Truth};
use crate::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Outcome, ProbeAnswer, Reply, ToolError, class};
use crate::owed;
use crate::payload::{Content, Payload};
use crate::prompt::Purpose;
use crate::ruling::{Bearing, Effect, Ruling};
use crate::run::{Closing, Run, Stage};
use crate::taint::Mark;
use crate::target::Target;
use crate::task::{EffectClass, KeyScope, Mode, ModeChange};
use crate::time::Timestamp;

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
    /// A summary that is due is encoded and ready to go.
    AskSummary(AskSummary),
    /// The summary that is due is not made.
    ForgoSummary {
        generation: u32,
        reason: String,
    },
    /// A summary came, or will not.
    TakeSummary(TakeSummary),
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
    },
    /// `brings`: what its result turned out to bring, beside what was known at its start.
    Finish {
        action: ActionId,
        attempt: u32,
        outcome: Outcome,
        brings: Vec<Mark>,
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
}

/// What becomes true if `command` is accepted at `now`.
pub fn decide(run: &Run, command: Command, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    match command {
        Command::Claim(claimed) => Ok(claim(run, claimed)),
        Command::TakeInput(input) => take_input(run, input, Heard::NotAsked, now),
        Command::TakeMessage(input, heard) => take_input(run, input, heard, now),
        Command::TakeHooks { moment, ran } => hooks::take(run, moment, ran),
        Command::Request { attempt, purpose, digest, bytes, counted, tail } => {
            request(run, Requested { attempt, purpose, digest, bytes, counted, tail })
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
            Stage::Ready(_) => Ok(vec![Event::ModelForgone(forgone)]),
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => Err(Refusal::Stale),
        },
        Command::AskSummary(asked) => summary::ask(run, asked),
        Command::ForgoSummary { generation, reason } => summary::forgo(run, generation, reason),
        Command::TakeSummary(taken) => summary::take(run, taken),
        Command::Reply { attempt, reply, proposals, judgement, jitter } => {
            reply_arrived(run, attempt, reply, proposals, judgement, jitter, now)
        }
        Command::FailModel { attempt, failure, jitter } => fail_model(run, attempt, failure, jitter, now),
        Command::Start { action, readiness, key, heard } => start(run, action, readiness, key, heard, now),
        Command::Finish { action, attempt, outcome, brings } => finish(run, action, attempt, outcome, brings),
        Command::Recover { action, attempt, probe, jitter } => {
            recovery::recover(run, action, attempt, probe, jitter, now)
        }
        Command::GiveVerdict { check, round, verdict, brings } => give_verdict(run, check, round, verdict, brings),
        Command::DenyUnasked { action, reason } => match run.action(action).map(|action| &action.life) {
            Some(Life::Held(question)) => Ok(vec![match question.wants {
                Wants::Yes => unasked(action, reason),
                Wants::Words => refused(action, nobody()),
            }]),
            Some(
                Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
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
        Command::Tick => match owed::out_of_time(run, now) {
            Some(budget) => Ok(vec![Event::BudgetReached(BudgetReached { budget })]),
            None => Err(Refusal::NotDue),
        },
        Command::Conclude => match owed::due_end(run) {
            Some(end) => Ok(summary::given_up(run).into_iter().chain([ending::conclude(run, end)]).collect()),
            None => Err(Refusal::NotDue),
        },
        Command::Park => {
            let waits = owed::waits(run);
            if waits.is_empty() {
                return Err(Refusal::NotDue);
            }
            Ok(summary::given_up(run).into_iter().chain([Event::RunParked(RunParked { waits })]).collect())
        }
        Command::Suspend { cause, detail } => suspend(run, cause, detail),
    }
}

fn suspend(run: &Run, cause: Suspension, detail: String) -> Result<Vec<Event>, Refusal> {
    let mut events = match &run.stage {
        Stage::Rest(_) => return Err(Refusal::AtRest),
        Stage::Thinking(thinking) => vec![lost_call(run, thinking.attempt, thinking.reserved)],
        Stage::Acting { .. } => void_facts_if(run, run.actions().any(|action| action.may_run() && writes(action))),
        Stage::Ready(_) | Stage::Verifying { .. } => Vec::new(),
    };
    events.extend(summary::given_up(run));
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
    events.extend(summary::given_up(run));
    let died = run.activity == crate::run::Activity::Claimed;
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

fn take_input(run: &Run, input: Input, heard: Heard, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let id = input.id.clone();
    let refused = |reason| Event::InputRefused(InputRefused { input: id.clone(), reason });
    let is_message = matches!(input.body, InputBody::Message(_));
    // What is not taken anyway, hooks need not hear.
    let events = match answer_input(run, input, now) {
        Ok(events) => events,
        Err(reason) => return Ok(vec![refused(reason)]),
    };
    if !is_message {
        return Ok(events);
    }
    let (mut all, said) = hooks::of_message(run, &id, heard)?;
    match said {
        Ok(()) => all.extend(events),
        Err(reason) => all.push(refused(reason)),
    }
    Ok(all)
}

fn answer_input(run: &Run, input: Input, now: Timestamp) -> Result<Vec<Event>, String> {
    let Input { id: input, body, .. } = input;
    let cancelled = match &run.stage {
        Stage::Rest(ended) => ended.end == End::Cancelled,
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
    };
    let open_door = || if cancelled { Err("the run was cancelled; start a new one".to_owned()) } else { Ok(()) };
    match body {
        InputBody::Message(text) => {
            open_door()?;
            if run.hooks.goal_blocked {
                return Err(format!("the goal was not let through: {}; start a new run", run.hooks.last));
            }
            Ok(match longest_asking(run) {
                Some(action) => words_arrived(run, action, input, &text),
                None => vec![Event::InputReceived(InputReceived { input, body: Received::Message(text) })],
            })
        }
        InputBody::Cancel => match &run.stage {
            Stage::Rest(ended) => Err(format!("the run has ended already: {}", ended.end.state())),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                Ok(vec![Event::InputReceived(InputReceived { input, body: Received::Cancel })])
            }
        },
        InputBody::Approve(approve) => {
            let question = held_question(run, approve.action, &approve.digest)?;
            if question.wants == Wants::Words {
                return Err(format!("{} asks a question; a yes is no answer to it: send a message", approve.action));
            }
            if approve.expires <= now {
                return Err(format!("the approval of {} has expired; approve it again", approve.action));
            }
            Ok(vec![Event::ActionApproved(ActionApproved {
                action: approve.action,
                input,
                digest: approve.digest,
                by: approve.by,
                door: approve.door,
                expires: approve.expires,
                covers: approve.covers,
            })])
        }
        InputBody::Deny(deny) => {
            held_question(run, deny.action, &deny.digest)?;
            Ok(vec![Event::ActionDenied(ActionDenied {
                action: deny.action,
                input: Some(input),
                by: deny.by,
                door: Some(deny.door),
                reason: deny.reason,
            })])
        }
        InputBody::Settle(settle) => {
            let action = run
                .action(settle.action)
                .filter(|action| action.is_uncertain())
                .ok_or_else(|| format!("the outcome of {} is not unknown (any more)", settle.action))?;
            let mut events = vec![Event::ActionSettled(ActionSettled {
                action: settle.action,
                truth: settle.truth.clone(),
                by: SettledBy::Person { input, by: settle.by },
                brings: Vec::new(),
            })];
            events.extend(settled_facts(run, action, &settle.truth));
            Ok(events)
        }
        InputBody::LateOutcome(late) => Ok(late_outcome(run, input, late)),
        InputBody::Raise(raise) => {
            open_door()?;
            if raise.is_nothing() {
                return Err("nothing to raise".to_owned());
            }
            Ok(vec![Event::BudgetRaised(BudgetRaised { input, raise })])
        }
        InputBody::SwitchModel(model) => {
            open_door()?;
            let in_flight = matches!(run.stage, Stage::Thinking(_));
            if in_flight {
                return Err("a model call is in flight; switch when it has ended".to_owned());
            }
            Ok(vec![Event::ModelSwitched(ModelSwitched { input, model })])
        }
        InputBody::Endorse(endorse) => {
            open_door()?;
            if !run.taint.sources.contains_key(&endorse.source) {
                return Err(format!("{} does not taint this run (any more)", endorse.source));
            }
            let Endorse { source, by, door } = endorse;
            Ok(vec![Event::SourceEndorsed(SourceEndorsed { input, source, by, door })])
        }
    }
}

/// The action that has been waiting longest for a person's words, while it may still use them.
fn longest_asking(run: &Run) -> Option<&Action> {
    if run.winding.is_some() {
        return None;
    }
    run.actions()
        .filter_map(|action| Some((action.asks()?.since, action)))
        .min_by_key(|(since, _)| *since)
        .map(|(_, action)| action)
}

/// A message that answers what an action asks: it is the action's result, and not shown a second time.
fn words_arrived(run: &Run, action: &Action, input: InputId, text: &str) -> Vec<Event> {
    let mut events = vec![Event::InputReceived(InputReceived { input, body: Received::Answer(action.id) })];
    let words = Outcome::Done(Content::Inline(Payload::string(text)));
    events.extend(finish_events(run, action, words, How::Answered, 0));
    events
}

fn held_question<'a>(run: &'a Run, action: ActionId, asked: &Digest) -> Result<&'a Question, String> {
    match run.action(action).map(|action| &action.life) {
        Some(Life::Held(question)) if question.digest == *asked => Ok(question),
        Some(Life::Held(_)) => {
            Err(format!("what {action} would do has changed since the question was shown; look again and answer again"))
        }
        Some(
            Life::Queued
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Unknown(_)
            | Life::Ended(_),
        )
        | None => Err(format!("{action} does not wait for an approval (any more)")),
    }
}

fn late_outcome(run: &Run, input: InputId, late: LateOutcome) -> Vec<Event> {
    let doubted = run.action(late.action).filter(|action| action.is_uncertain() && action.attempts == late.attempt);
    let truth = match &late.outcome {
        Outcome::Done(result) => Some(Truth::Done(result.clone())),
        Outcome::NotDone(_) if !doubted.is_some_and(|action| action.in_doubt) => Some(Truth::NotDone),
        Outcome::NotDone(_) | Outcome::Error(_) | Outcome::Unknown(_) => None,
    };
    match (doubted, truth) {
        (Some(action), Some(truth)) => {
            let mut events = settled_facts(run, action, &truth);
            events.insert(
                0,
                Event::ActionSettled(ActionSettled {
                    action: late.action,
                    truth,
                    by: SettledBy::LateOutcome { input },
                    brings: late.brings,
                }),
            );
            events
        }
        (Some(_), None) | (None, _) => {
            vec![Event::InputReceived(InputReceived { input, body: Received::LateOutcome(late) })]
        }
    }
}

fn settled_facts(run: &Run, action: &Action, truth: &Truth) -> Vec<Event> {
    let mut events = void_facts_if(run, writes(action));
    match truth {
        Truth::Done(_) => events.extend(set_facts(run, action)),
        Truth::NotDone => {}
    }
    events
}

// ---- replies ----

fn propose(run: &Run, calls: &[crate::outcome::RawCall], proposals: Vec<Proposal>) -> Vec<Event> {
    // Every call is proposed before any is ruled on: a turn closes when all its calls are told.
    let mut events = Vec::new();
    let mut rulings = Vec::new();
    let mut taken = BTreeSet::new();
    let mut by_tool: BTreeMap<ToolName, Vec<ActionId>> = BTreeMap::new();
    // What each call of the reply waits for, as far as they are seen: never in a circle.
    let mut waiting: BTreeMap<ActionId, BTreeSet<ActionId>> = BTreeMap::new();
    for (index, proposal) in proposals.iter().enumerate() {
        let id = ActionId(run.next_action().0 + u32::try_from(index).unwrap_or(u32::MAX));
        by_tool.entry(proposal.tool.clone()).or_default().push(id);
    }
    for (index, (raw, proposal)) in calls.iter().zip(proposals).enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let action = ActionId(run.next_action().0 + index);
        let call = run.unique_call_id(&raw.id, action, &taken);
        taken.insert(call.clone());
        let spec = run.task.tool(&proposal.tool);
        let cited = proposal.builds_on.iter().map(|position| ActionId(run.next_action().0 + position));
        let after: BTreeSet<_> = spec
            .into_iter()
            .flat_map(|spec| &spec.depends_on)
            .flat_map(|tool| by_tool.get(tool).cloned().unwrap_or_default())
            .filter(|other| *other != action)
            .chain(cited)
            .collect();
        let circle = after.iter().copied().find(|before| waits_for(&waiting, *before, action));
        let after = if circle.is_some() { BTreeSet::new() } else { after };
        waiting.insert(action, after.clone());
        let builds_on_others = !after.is_empty();
        events.push(Event::ActionProposed(ActionProposed {
            action,
            index,
            tool: proposal.tool.clone(),
            call,
            effect: spec.map_or(EffectClass::Read, |spec| spec.effect),
            args: proposal.args,
            digest: proposal.digest,
            key: proposal.key,
            path: proposal.path,
            after: after.into_iter().collect(),
        }));
        let refused = |error: ToolError| refused(action, error);
        if let Some(before) = circle {
            let message = format!("Not run: it builds on {before}, which itself waits for this call.");
            rulings
                .push(refused(ToolError::new(class::DEPENDENCY, message).hint("Make the two calls in two replies.")));
            continue;
        }
        match proposal.readiness {
            Readiness::Refused(error) => rulings.push(refused(error)),
            Readiness::Later => {}
            // It is asked when it would start.
            Readiness::Question { .. } => {}
            // It is kept when it would start, in call order.
            Readiness::Note(_) => {}
            Readiness::Ruled { .. } if builds_on_others => {}
            Readiness::Ruled {
                ruling,
                question,
                exact,
                asks,
                target: _,
                brings: _,
                effects,
                beyond: _,
                bearing,
                sandbox: _,
            } => {
                if let Some(error) = spec.and_then(|spec| missing_capability(run, &spec.name)) {
                    rulings.push(refused(error));
                } else if let Some(shadowed) = shadowed(run, spec, &ruling, bearing, &effects) {
                    rulings.push(not_executed(action, shadowed));
                } else {
                    match ruling {
                        Ruling::Allow { .. } => {}
                        Ruling::Ask { .. } if exact.as_ref().is_some_and(|exact| run.allowed.contains_key(exact)) => {}
                        Ruling::Ask { rule, reason } => {
                            let wants = Wants::Yes;
                            let held = ActionHeld { action, digest: question, rule, reason, wants, exact, effects };
                            rulings.push(ask(held, asks));
                        }
                        Ruling::Deny { rule, reason } => rulings.push(refused(denied_by_rule(&rule, &reason))),
                    }
                }
            }
        }
    }
    events.extend(rulings);
    events
}

/// Whether `one` waits for `other`, directly or through others.
fn waits_for(waiting: &BTreeMap<ActionId, BTreeSet<ActionId>>, one: ActionId, other: ActionId) -> bool {
    let mut seen = BTreeSet::new();
    let mut ahead = vec![one];
    while let Some(id) = ahead.pop() {
        if id == other {
            return true;
        }
        if seen.insert(id) {
            ahead.extend(waiting.get(&id).into_iter().flatten());
        }
    }
    false
}

fn refused(action: ActionId, error: ToolError) -> Event {
    Event::ActionRefused(ActionRefused { action, error, would: None })
}

/// Why a tool may not be called now: the run only reads, a fact it needs does not hold, or its calls are used up.
pub(crate) fn missing_capability(run: &Run, tool: &ToolName) -> Option<ToolError> {
    let spec = run.task.tool(tool)?;
    if let Some(error) = modes::beyond_plan(run, spec) {
        return Some(error);
    }
    if let Some(fact) = spec.requires.iter().find(|fact| !run.fact_holds(fact)) {
        let providers: Vec<_> =
            run.task.tools.iter().filter(|tool| tool.provides.contains(fact)).map(|tool| tool.name.as_str()).collect();
        let hint = if providers.is_empty() {
            "No tool of this task provides it.".to_owned()
        } else {
            format!("Call {} first, then this one in a later reply.", providers.join(" or "))
        };
        return Some(
            ToolError::new(class::MISSING_FACT, format!("{tool} needs the fact \"{fact}\", which does not hold now."))
                .hint(hint),
        );
    }
    let used = run.calls.get(tool).copied().unwrap_or(0);
    match spec.max_calls {
        Some(max) if used >= max => Some(
            ToolError::new(class::BUDGET, format!("{tool} may be called {max} times in this run, and has been."))
                .hint("Go on with what you have."),
        ),
        Some(_) | None => None,
    }
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
    Event::ActionDenied(ActionDenied { action, input: None, by: "policy".to_owned(), door: None, reason: Some(reason) })
}

// ---- actions ----

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

fn start(
    run: &Run,
    id: ActionId,
    readiness: Readiness,
    key: KeyView,
    heard: Heard,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let action = match run.action(id) {
        Some(action) if action.life == Life::Queued => action,
        Some(_) | None => return Err(Refusal::Stale),
    };
    if run.winding.is_some() {
        return Err(Refusal::NotDue);
    }
    let Some(spec) = run.task.tool(&action.tool) else { return Err(Refusal::Stale) };
    // An attempt that may have happened is never "refused": what cannot be repeated stays unknown.
    let refuse = |error: ToolError| {
        let event = if action.in_doubt {
            finished(
                action,
                Outcome::Unknown(unknown(action, &format!("and it was not tried again: {}", error.message))),
                How::Recovered,
                0,
            )
        } else {
            refused(id, error)
        };
        Ok(vec![event])
    };
    // In a shadow run what it depends on may have been left out as well: that is no failure.
    let is_met = |before: ActionId| run.action(before).is_some_and(Action::is_done) || run.would.has(before);
    let failed_dependency = action.after.iter().find(|before| !is_met(**before));
    if let Some(before) = failed_dependency {
        let message = format!("Not run: it depends on {before}, which did not succeed.");
        return refuse(ToolError::new(class::DEPENDENCY, message).hint("Mend that call first."));
    }
    let first = action.attempts == 0;
    if first && let Some(error) = missing_capability(run, &action.tool) {
        return refuse(error);
    }
    if let Readiness::Ruled { ruling, bearing, effects, .. } = &readiness
        && let Some(shadowed) = shadowed(run, Some(spec), ruling, *bearing, effects)
    {
        return Ok(vec![not_executed(id, shadowed)]);
    }
    // A replayed result counts as a call too (`semantics.md` G2), and so does a question.
    let out_of_calls = first && run.limits.tool_calls.left(run.spent.tool_calls) == 0;
    let beyond_budget = || {
        let mut events = refuse(
            ToolError::new(class::BUDGET, "Not run: the run's budget of tool calls is used up.")
                .hint("Give your best answer from what you have."),
        )?;
        if run.closing == Closing::NotYet {
            events.push(Event::BudgetReached(BudgetReached { budget: BudgetKind::ToolCalls }));
        }
        Ok(events)
    };
    let (ruling, question, exact, asks, target, brings, effects, beyond, bearing, sandbox) = match readiness {
        Readiness::Refused(error) => return refuse(error),
        Readiness::Later => return Err(Refusal::NotDue),
        Readiness::Ruled { .. } | Readiness::Question { .. } | Readiness::Note(_) if out_of_calls => {
            return beyond_budget();
        }
        // What the run does itself has no question of its own that a person could answer for a hook.
        Readiness::Note(_) | Readiness::Question { .. } => {
            let (mut events, say) = hooks::of_start(run, action, heard)?;
            events.extend(match (say, readiness) {
                (hooks::Say::Refuse(error), _) => refuse(error)?,
                (hooks::Say::Ask { reason, .. }, _) => refuse(ToolError::new(class::HOOK, reason))?,
                (hooks::Say::Pass, Readiness::Note(note)) => take_note(run, action, note)?,
                (hooks::Say::Pass, Readiness::Question { asks: Asks::Deny, .. }) => refuse(nobody())?,
                (hooks::Say::Pass, Readiness::Question { text, digest, rule, asks: Asks::Hold }) => {
                    vec![Event::ActionHeld(ActionHeld {
                        action: id,
                        digest,
                        rule,
                        reason: text,
                        wants: Wants::Words,
                        exact: None,
                        effects: Vec::new(),
                    })]
                }
                (hooks::Say::Pass, Readiness::Refused(_) | Readiness::Later | Readiness::Ruled { .. }) => {
                    return Err(Refusal::NotDue);
                }
            });
            return Ok(events);
        }
        Readiness::Ruled { ruling, question, exact, asks, target, brings, effects, beyond, bearing, sandbox } => {
            (ruling, question, exact, asks, target, brings, effects, beyond, bearing, sandbox)
        }
    };
    match key {
        KeyView::Free { .. } => {}
        KeyView::Held { run: holder, action: other } => {
            let message = format!(
                "The same {} was started before ({other} of run {holder}) and its outcome is not known.",
                spec.name
            );
            let hint = "Do not try again; find out what became of it, or ask the operator to settle it.";
            return refuse(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(hint));
        }
        KeyView::Done { run: holder, action: other, result, brings } => {
            let mut events =
                vec![finished(action, Outcome::Done(result), How::Replayed { run: holder, action: other }, 0)];
            if let Event::ActionFinished(finished) = &mut events[0] {
                finished.attempt = 0;
                finished.brings = brings;
            }
            events.extend(set_facts(run, action));
            return Ok(events);
        }
        KeyView::Conflict { run: holder, action: other, fields } => {
            let message = format!(
                "{} was called before with the same key ({other} of run {holder}) but with other values for {}.",
                spec.name,
                fields.join(", ")
            );
            let hint =
                "One key means one intent: use the earlier result, or another key if this is really another one.";
            return refuse(ToolError::new(class::CONFLICT, message).hint(hint));
        }
    }
    if spec.cost_micros > 0 && run.limits.micros.left(run.spent.micros) < spec.cost_micros {
        return refuse(ToolError::new(
            class::BUDGET,
            "Not run: its cost does not fit what is left of the run's money.",
        ));
    }
    let granted = action.grant.as_ref().filter(|grant| grant.digest == question && (!first || now < grant.expires));
    let rule = match ruling {
        Ruling::Allow { rule } => rule,
        Ruling::Deny { rule, reason } => return refuse(denied_by_rule(&rule, &reason)),
        Ruling::Ask { rule, reason } => match granted {
            Some(grant) => format!("approved by {}", grant.by),
            None => match exact.as_ref().and_then(|exact| run.allowed.get(exact)) {
                Some(by) => format!("allowed for the rest of the run by {by}"),
                None => {
                    let wants = Wants::Yes;
                    let held = ActionHeld { action: id, digest: question, rule, reason, wants, exact, effects };
                    return Ok(vec![ask(held, asks)]);
                }
            },
        },
    };
    let times_freed = match key {
        KeyView::Free { times_freed } => times_freed,
        KeyView::Held { .. } | KeyView::Done { .. } | KeyView::Conflict { .. } => 0,
    };
    // Last of all, so that they see only what would start; what a person said before stays said.
    let (mut events, say) = hooks::of_start(run, action, heard)?;
    match say {
        hooks::Say::Pass => {}
        hooks::Say::Refuse(error) => {
            events.extend(refuse(error)?);
            return Ok(events);
        }
        hooks::Say::Ask { .. } if granted.is_some() => {}
        // An earlier yes to every call like it was said without this hook's reason.
        hooks::Say::Ask { rule, reason } => {
            let ruling = Ruling::Ask { rule: rule.clone(), reason: reason.clone() };
            if let Some(would) = shadowed(run, Some(spec), &ruling, bearing, &effects) {
                events.push(not_executed(id, would));
                return Ok(events);
            }
            let (wants, exact) = (Wants::Yes, None);
            let held = ActionHeld { action: id, digest: question, rule, reason, wants, exact, effects };
            events.push(ask(held, asks));
            return Ok(events);
        }
    }
    events.extend(void_facts_if(run, writes(action)));
    events.push(Event::ActionStarted(ActionStarted {
        action: id,
        attempt: action.attempts + 1,
        fence: run.fence,
        effect: action.effect,
        rule,
        idempotency_key: match action.effect {
            EffectClass::External => Some(idempotency_key(run, action, times_freed)),
            EffectClass::Read | EffectClass::Workspace => None,
        },
        target,
        brings,
        beyond,
        sandbox,
    }));
    Ok(events)
}

/// Keeps a note; what cannot be kept is told like any refused call.
fn take_note(run: &Run, action: &Action, note: Note) -> Result<Vec<Event>, Refusal> {
    if let Err(error) = memory::check_note(run, &note) {
        return Ok(vec![refused(action.id, error)]);
    }
    let kept = match note.kind {
        NoteKind::Close => format!(r#"{{"closed":"{}"}}"#, note.replaces.as_deref().unwrap_or_default()),
        NoteKind::Decision | NoteKind::Finding | NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step => {
            format!(r#"{{"id":"{}"}}"#, NoteId(action.id.0))
        }
    };
    let result = Payload::parse(kept).expect("ids have no quotes: an id that is closed was parsed as one");
    let mut finished = finished(action, Outcome::Done(Content::Inline(result)), How::Kept, 0);
    if let Event::ActionFinished(finished) = &mut finished {
        finished.attempt = 0;
    }
    Ok(vec![Event::NoteTaken(NoteTaken { action: action.id, note }), finished])
}

/// What the receiver may recognise a repetition by (`semantics.md` D6). Never depends on the attempt.
fn idempotency_key(run: &Run, action: &Action, times_freed: u32) -> Digest {
    // An attempt that was made has it already.
    if let Some(key) = &action.idempotency_key {
        return key.clone();
    }
    let key_spec = run.task.tool(&action.tool).and_then(|tool| tool.key.as_ref());
    match (&action.key, key_spec) {
        (Some(key), Some(spec)) => {
            let scope = key_scope(run, spec.scope);
            Digest::of_parts([
                b"key".as_slice(),
                scope.as_bytes(),
                action.tool.as_str().as_bytes(),
                key.as_str().as_bytes(),
                &times_freed.to_le_bytes(),
            ])
        }
        (Some(_) | None, Some(_) | None) => {
            Digest::of_parts([b"action".as_slice(), run.id.as_str().as_bytes(), action.id.to_string().as_bytes()])
        }
    }
}

/// The scope of a key in words: the root run's id, or the store.
pub fn key_scope(run: &Run, scope: KeyScope) -> String {
    match scope {
        KeyScope::Run => format!("run:{}", run.root.as_ref().unwrap_or(&run.id)),
        KeyScope::Store => "store".to_owned(),
    }
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
    })
}

/// Ends an attempt, with the facts that follow from it.
fn finish_events(run: &Run, action: &Action, outcome: Outcome, how: How, cost_micros: u64) -> Vec<Event> {
    let done = matches!(outcome, Outcome::Done(_));
    let mut events = void_facts_if(run, writes(action));
    events.push(finished(action, outcome, how, cost_micros));
    if done {
        events.extend(set_facts(run, action));
    }
    events
}

fn finish(run: &Run, id: ActionId, attempt: u32, outcome: Outcome, brings: Vec<Mark>) -> Result<Vec<Event>, Refusal> {
    let action = run.action(id).ok_or(Refusal::Stale)?;
    match action.life {
        Life::Started { fence, .. } if fence == run.fence && action.attempts == attempt => {
            let cost = run.task.tool(&action.tool).map_or(0, |tool| tool.cost_micros);
            // That this attempt did nothing says nothing about the one before.
            let outcome = match outcome {
                Outcome::NotDone(error) if action.in_doubt => Outcome::Unknown(ToolError {
                    class: class::UNKNOWN_OUTCOME.to_owned(),
                    message: format!("An earlier attempt may have happened; the last one: {}", error.message),
                    ..error
                }),
                Outcome::Done(_) | Outcome::Error(_) | Outcome::NotDone(_) | Outcome::Unknown(_) => outcome,
            };
            let mut events = finish_events(run, action, outcome, How::Observed, cost);
            for event in &mut events {
                if let Event::ActionFinished(finished) = event {
                    finished.brings.clone_from(&brings);
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
        | Life::Ended(_) => Err(Refusal::Stale),
    }
}

fn unknown(action: &Action, more: &str) -> ToolError {
    let message = format!("{} was started and it is not known whether it happened {more}", action.tool);
    ToolError::new(class::UNKNOWN_OUTCOME, format!("{}.", message.trim_end().trim_end_matches('.')))
        .hint("Do not repeat it. Find out by other means, or say that it is unknown.")
}

// ---- proof and ends ----

fn give_verdict(
    run: &Run,
    check: CheckName,
    round: u32,
    verdict: Verdict,
    brings: Vec<Mark>,
) -> Result<Vec<Event>, Refusal> {
    match &run.stage {
        Stage::Verifying { round: present, verdicts, .. }
            if *present == round && run.hooks.stop.is_none() && verdicts.get(&check).is_some_and(Option::is_none) =>
        {
            Ok(vec![Event::CheckFinished(CheckFinished { check, round, verdict, brings })])
        }
        Stage::Verifying { .. } | Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {
            Err(Refusal::Stale)
        }
    }
}

/// The first event of a run.
pub fn begin(run: RunId, task: crate::task::Task, binary: &str) -> RunStarted {
    RunStarted { run, task, binary: binary.to_owned(), root: None, brings: Vec::new() }
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
