//! The laws, checked against what really happened: the journal's events, the shadow's word on what was durable, and the
//! world's count of effects. Run after every simulated run.

mod context;
mod steps;
mod taint;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::action::{Ended, Life};
use longrein_core::budget::{Limit, Limits, Spent};
use longrein_core::event::{
    End, Event, How, InputReceived, JudgeOutcome, Received, RollbackWhy, RouteWhy, SettledBy, SummaryOutcome,
};
use longrein_core::ids::{ActionId, AttemptId, Digest, Fence, InputId, RunId, Seq};
use longrein_core::input::InputBody;
use longrein_core::outcome::{ModelErrorClass, Outcome};
use longrein_core::payload::{Content, Payload};
use longrein_core::prompt::Item;
use longrein_core::run::{Run, Stage};
use longrein_core::task::{EffectClass, Mode};
use longrein_driver::fold;
use longrein_ports::{Journal, RecordedBody};

use crate::store::ShadowRun;
use crate::town::Town;

/// Checks every law over one run of a town at rest. Breaches go to the town's record.
pub async fn check(town: &Town, id: &RunId) {
    let shadow = town.store.shadow().runs.get(id).cloned().unwrap_or_default();
    law_1_journal(town, id, &shadow).await;
    if shadow.events.is_empty() {
        return;
    }
    law_1_inputs(town, id, &shadow).await;
    law_11_routes(town, id, &shadow);
    law_2(town, &shadow);
    law_3(town, id, &shadow);
    law_4(town, id, &shadow);
    law_5(town, &shadow);
    tree::check(town, id, &shadow);
    law_8_modes(town, &shadow);
    context::check(town, id, &shadow);
    taint::check(town, id, &shadow);
    steps::check(town, id, &shadow);
    law_10(town, &shadow);
}

/// Everything acknowledged is there, unchanged and in order; it verifies and folds.
async fn law_1_journal(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |what: String| town.record.breach("law_1", format!("{id}: {what}"));
    let memory = town.store.memory();
    match memory.read(id, Seq(0), usize::MAX).await {
        Ok(records) => {
            if records.len() != shadow.events.len() {
                breach(format!("{} events are stored, {} were acknowledged", records.len(), shadow.events.len()));
            }
            for (number, (record, new)) in records.iter().zip(&shadow.events).enumerate() {
                let same = record.seq.0 == number as u64 + 1
                    && record.at == new.at
                    && matches!(&record.body, RecordedBody::Known(event) if *event == new.event);
                if !same {
                    breach(format!("event {} is not what was acknowledged", number + 1));
                }
            }
        }
        Err(error) => breach(format!("cannot be read: {error}")),
    }
    match memory.verify(id).await {
        Ok(Some(report)) => report.findings.iter().for_each(|finding| {
            breach(format!("verify: {} {}", finding.record, finding.fault));
        }),
        Ok(None) if shadow.events.is_empty() => {}
        Ok(None) => breach("verify does not find it".to_owned()),
        Err(error) => breach(format!("verify: {error}")),
    }
    if shadow.events.is_empty() {
        return;
    }
    match fold(&memory, id, |_| {}).await {
        Ok(run) if Some(&run) == shadow.fold().as_ref() => {}
        Ok(_) => breach("folds to another state than its events".to_owned()),
        Err(error) => breach(format!("does not fold: {error}")),
    }
}

/// The input an event answers, if it answers one.
fn answered(event: &Event) -> Option<&InputId> {
    match event {
        Event::InputReceived(received) => Some(&received.input),
        Event::InputRefused(refused) => Some(&refused.input),
        Event::ModelSwitched(switched) => Some(&switched.input),
        Event::ActionApproved(approved) => Some(&approved.input),
        Event::ActionDenied(denied) => denied.no.input(),
        Event::ActionSettled(settled) => match &settled.by {
            SettledBy::Person { input, .. } | SettledBy::LateOutcome { input } => Some(input),
        },
        Event::BudgetRaised(raised) => Some(&raised.input),
        Event::ChildEnded(ended) => Some(&ended.input),
        Event::SourceEndorsed(endorsed) => Some(&endorsed.input),
        Event::ActionRolledBack(back) => match &back.why {
            RollbackWhy::Operator { input, .. } => Some(input),
            RollbackWhy::Check | RollbackWhy::Lost => None,
        },
        _ => None,
    }
}

/// Every accepted input is answered exactly once or still waits in the inbox; approvals say what the person said.
async fn law_1_inputs(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |law, what: String| town.record.breach(law, format!("{id}: {what}"));
    let waiting: BTreeSet<InputId> = match town.store.memory().inbox(id).await {
        Ok(inbox) => inbox.into_iter().map(|input| input.id).collect(),
        Err(error) => return breach("law_1", format!("the inbox cannot be read: {error}")),
    };
    let mut answers: BTreeMap<&InputId, u32> = BTreeMap::new();
    for (input, new) in shadow.events.iter().filter_map(|new| Some((answered(&new.event)?, new))) {
        // One rollback undoes many actions.
        match &new.event {
            Event::ActionRolledBack(_) => *answers.entry(input).or_default() = 1,
            _ => *answers.entry(input).or_default() += 1,
        }
    }
    for input in shadow.posted.keys() {
        match (answers.get(input).copied().unwrap_or(0), waiting.contains(input)) {
            (1, false) | (0, true) => {}
            (0, false) => breach("law_1", format!("input {input} was taken and never answered")),
            (times, waits) => breach("law_1", format!("input {input} was answered {times} times, waiting: {waits}")),
        }
    }
    for new in &shadow.events {
        if let Event::ActionApproved(approved) = &new.event {
            let said = shadow.posted.get(&approved.input).map(|input| &input.body);
            let is_same = matches!(said, Some(InputBody::Approve(said))
                if said.action == approved.action && said.digest == approved.digest && said.covers == approved.covers);
            if !is_same {
                breach("law_8", format!("{} was approved to another question than the person saw", approved.action));
            }
        }
    }
    let Some(run) = shadow.fold() else { return };
    for new in &shadow.events {
        if let Event::InputReceived(received) = &new.event
            && let Received::Message(text) = &received.body
        {
            let is_shown = |item: &Item| matches!(item, Item::User(shown) if shown.ends_with(text));
            let shown = run.window.items.iter().any(|item| is_shown(item))
                || run.pending.iter().any(|(_, item)| is_shown(item));
            if !shown {
                breach("law_1", format!("the message {} is not in the conversation", received.input));
            }
        }
        if let Event::InputReceived(InputReceived { input, body: Received::Answer(action), .. }) = &new.event {
            let said = shadow.posted.get(input).map(|input| &input.body);
            let is_result = |event: &Event| {
                matches!((event, said),
                (Event::ActionFinished(finished), Some(InputBody::Message(said)))
                    if finished.action == *action && finished.how == How::Answered
                        && finished.outcome == Outcome::Done(Content::Inline(Payload::string(said))))
            };
            if !shadow.events.iter().any(|new| is_result(&new.event)) {
                breach("law_1", format!("the answer {input} is not the result of {action}"));
            }
        }
    }
    for action in shadow.events.iter().filter_map(|new| match &new.event {
        Event::ActionFinished(finished) if finished.how == How::Answered => Some(finished.action),
        _ => None,
    }) {
        let is_answer = |event: &Event| {
            matches!(event,
            Event::InputReceived(InputReceived { body: Received::Answer(answered), .. }) if *answered == action)
        };
        match shadow.events.iter().filter(|new| is_answer(&new.event)).count() {
            1 => {}
            answers => breach("law_4", format!("{action} was answered by {answers} messages")),
        }
    }
}

/// Nothing landed that was not journaled as started before. (That it was synced is checked at every start.)
fn law_2(town: &Town, shadow: &ShadowRun) {
    let starts: BTreeSet<(ActionId, u32)> = shadow
        .events
        .iter()
        .filter_map(|new| match &new.event {
            Event::ActionStarted(started) => Some((started.action, started.attempt)),
            _ => None,
        })
        .collect();
    let Some(run) = shadow.fold() else { return };
    for landing in town.world.landed().iter().filter(|landing| landing.run == run.id) {
        let is_read = run.task.tool(&landing.tool).is_some_and(|tool| tool.effect == EffectClass::Read);
        if !is_read && !starts.contains(&(landing.action, landing.attempt)) {
            town.record.breach("law_2", format!("{} landed without a start in the journal", landing.action));
        }
    }
}

/// How an action ended, as the journal tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Refused,
    Done,
    Replayed,
    Error,
    NotDone,
    Unknown,
}

/// What was told of every action is what happened, and nothing happened twice on a guess.
fn law_3(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |what: String| town.record.breach("law_3", format!("{id}: {what}"));
    let Some(run) = shadow.fold() else { return };
    let landed = town.world.landed();
    let told = told(&shadow.events);
    let mut tools = BTreeMap::new();
    for new in &shadow.events {
        if let Event::ActionProposed(proposed) = &new.event {
            tools.insert(proposed.action, (proposed.tool.clone(), proposed.effect));
        }
    }
    for (action, (tool, effect)) in &tools {
        if *effect != EffectClass::External {
            continue;
        }
        let honours_keys = town.rules.honours_keys(tool);
        let mine: Vec<_> = landed.iter().filter(|l| l.run == *id && l.action == *action && l.tool == *tool).collect();
        let keys: BTreeSet<Option<&Digest>> = mine.iter().map(|landing| landing.key.as_ref()).collect();
        if honours_keys && keys.len() > 1 {
            breach(format!("{action} {tool} was sent under {} idempotency keys", keys.len()));
        }
        let happened = mine.iter().filter(|landing| !landing.again).count();
        if happened > 1 {
            breach(format!("{action} {tool} happened {happened} times"));
        }
        match told.get(action) {
            Some(Told::Done) if mine.is_empty() => breach(format!("{action} {tool} is called done and never happened")),
            Some(Told::NotDone) if !mine.is_empty() => {
                breach(format!("{action} {tool} is called not done and happened"));
            }
            Some(Told::Refused) if !mine.is_empty() => {
                breach(format!("{action} {tool} is called refused and happened"));
            }
            Some(Told::Error) => breach(format!("{action} {tool} is external and is called an error")),
            Some(Told::Replayed) if !mine.is_empty() => breach(format!("{action} {tool} was replayed and happened")),
            Some(Told::Unknown) => surfaced(&run, *action, &breach),
            Some(Told::Done | Told::NotDone | Told::Refused | Told::Replayed) | None => {}
        }
    }
    // One key, one effect, unless it was freed.
    let mut by_key: BTreeMap<(String, Digest), usize> = BTreeMap::new();
    let freed = steps::compensated(town);
    let counts =
        |landing: &&crate::world::Landing| !landing.again && !freed.contains(&(landing.run.clone(), landing.action));
    for landing in landed.iter().filter(counts) {
        let Some(spec) = run.task.tool(&landing.tool) else { continue };
        let Some(key) = &spec.key else { continue };
        let scope = match key.scope {
            longrein_core::task::KeyScope::Run => landing.run.to_string(),
            longrein_core::task::KeyScope::Store => "store".to_owned(),
        };
        let value = landing
            .args
            .read::<BTreeMap<String, serde_json::Value>>()
            .ok()
            .and_then(|mut fields| fields.remove("order"))
            .map(|value| value.to_string())
            .unwrap_or_default();
        *by_key.entry((format!("{scope} {}", landing.tool), Digest::of(value.as_bytes()))).or_default() += 1;
    }
    for ((what, _), times) in by_key {
        if times > 1 {
            breach(format!("one key of {what} happened {times} times"));
        }
    }
}

/// An unknown outcome is in the conversation, or in what the run waits for, or in its end.
fn surfaced(run: &Run, action: ActionId, breach: &impl Fn(String)) {
    let in_end = match &run.stage {
        Stage::Rest(ended) => ended.unknown.contains(&action),
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
    };
    let in_play = run.action(action).is_some_and(longrein_core::action::Action::is_uncertain);
    let word = run.action(action).map(|action| &action.life);
    if let Some(Life::Unknown(error)) = word
        && error.class != longrein_core::outcome::class::UNKNOWN_OUTCOME
    {
        breach(format!("{action} is unknown and is called {}", error.class));
    }
    if !in_end && !in_play {
        breach(format!("{action} is unknown and nobody is told"));
    }
    if let Stage::Rest(ended) = &run.stage
        && matches!(ended.end, longrein_core::event::End::Done(_))
    {
        breach(format!("the run is done though {action} is unknown"));
    }
    if let Stage::Rest(_) = &run.stage
        && !in_end
    {
        breach(format!("{action} is unknown and the end does not say so"));
    }
}

/// How every action stands after all events.
fn told(events: &[longrein_ports::NewEvent]) -> BTreeMap<ActionId, Told> {
    let mut told = BTreeMap::new();
    let mut requeued_blind = BTreeSet::new();
    for new in events {
        match &new.event {
            Event::ActionRefused(refused) => {
                told.insert(refused.action, Told::Refused);
            }
            Event::ActionRequeued(requeued) => {
                if requeued.why == longrein_core::event::Requeue::Idempotent {
                    requeued_blind.insert(requeued.action);
                } else {
                    requeued_blind.remove(&requeued.action);
                }
            }
            Event::ActionDenied(denied) => {
                let word = if requeued_blind.contains(&denied.action) { Told::Unknown } else { Told::Refused };
                told.insert(denied.action, word);
            }
            Event::ActionFinished(finished) => {
                let word = match (&finished.outcome, &finished.how) {
                    (Outcome::Done(_), How::Replayed { .. }) => Told::Replayed,
                    (
                        Outcome::Done(_),
                        How::Observed | How::Recovered | How::Reconciled | How::Answered | How::Kept,
                    ) => Told::Done,
                    (Outcome::Error(_), _) => Told::Error,
                    (Outcome::NotDone(_), _) => Told::NotDone,
                    (Outcome::Unknown(_), _) => Told::Unknown,
                };
                told.insert(finished.action, word);
            }
            Event::ActionStarted(started) => {
                told.remove(&started.action);
            }
            Event::ActionSettled(settled) => {
                let word = match settled.truth {
                    longrein_core::input::Truth::Done(_) => Told::Done,
                    longrein_core::input::Truth::NotDone => Told::NotDone,
                };
                told.insert(settled.action, word);
            }
            _ => {}
        }
    }
    told
}

/// Every closed turn has its observations. (Every encoded request is checked when it is made.)
fn law_4(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let Some(run) = shadow.fold() else { return };
    let is_open = matches!(run.stage, Stage::Acting { .. });
    if !is_open && let Err(what) = crate::people::pairing(&run.window.items) {
        town.record.breach("law_4", format!("{id}: {what}"));
    }
    for action in run.actions() {
        let is_over = matches!(&action.life, Life::Ended(Ended::Refused(_) | Ended::Error(_) | Ended::NotDone(_)));
        if is_over && run.open.contains_key(&action.id) {
            town.record.breach("law_4", format!("{id}: {} is over and still open", action.id));
        }
    }
}

/// Budgets: spent only grows and is what the events say; limits hold, and only an operator moves them.
fn law_5(town: &Town, shadow: &ShadowRun) {
    let breach = |what: String| town.record.breach("law_5", what);
    let mut run: Option<Run> = None;
    let mut open: BTreeMap<AttemptId, longrein_core::budget::Reservation> = BTreeMap::new();
    let mut summary: Option<longrein_core::budget::Reservation> = None;
    let mut judge: Option<longrein_core::budget::Reservation> = None;
    let mut tokens = 0u64;
    let mut largest = 0u64;
    for (number, new) in shadow.events.iter().enumerate() {
        let seq = Seq(number as u64 + 1);
        match (&mut run, &new.event) {
            (None, Event::RunStarted(started)) => {
                run = Some(Run::new(started, new.at));
                continue;
            }
            (None, _) => return breach("the journal does not begin with its start".to_owned()),
            (Some(run), event) => {
                let (before, limits) = (run.spent, run.limits.clone());
                run.apply(seq, new.at, event);
                if shrinks(&before, &run.spent) {
                    breach(format!("event {seq} makes the run's spending shrink"));
                }
                if limits != run.limits && !matches!(event, Event::BudgetRaised(_)) {
                    breach(format!("event {seq} moves a limit and is no raise"));
                }
                over(&run.limits, &run.spent, seq, &breach);
            }
        }
        match &new.event {
            Event::ModelRequested(requested) => {
                if open.insert(requested.attempt, requested.reserved).is_some() {
                    breach(format!("{} was requested twice", requested.attempt));
                }
                largest = largest.max(requested.reserved.input + requested.reserved.output);
            }
            Event::SummaryRequested(requested) => {
                if summary.replace(requested.reserved).is_some() {
                    breach(format!("event {seq}: a summary is requested beside another"));
                }
                largest = largest.max(requested.reserved.input + requested.reserved.output);
            }
            Event::SummaryFinished(finished) => {
                tokens += finished.usage.tokens();
                match (&finished.outcome, summary.take()) {
                    (SummaryOutcome::Forgone { .. }, open) => {
                        summary = open;
                        if finished.usage.tokens() > 0 {
                            breach(format!("event {seq}: a summary costs something that was not asked for"));
                        }
                    }
                    (_, None) => breach(format!("event {seq}: a summary is settled twice")),
                    (SummaryOutcome::Lost, Some(reserved)) => {
                        if finished.usage.tokens() < reserved.input + reserved.output {
                            breach(format!("event {seq}: a lost summary is settled below its reservation"));
                        }
                    }
                    (_, Some(_)) => {}
                }
            }
            Event::JudgeRequested(requested) => {
                if judge.replace(requested.reserved).is_some() {
                    breach(format!("event {seq}: a judge is asked beside another"));
                }
                largest = largest.max(requested.reserved.input + requested.reserved.output);
            }
            Event::JudgeFinished(finished) => {
                tokens += finished.usage.tokens();
                match (&finished.outcome, judge.take()) {
                    (_, None) => breach(format!("event {seq}: a judge is settled twice")),
                    (JudgeOutcome::Lost, Some(reserved)) => {
                        if finished.usage.tokens() < reserved.input + reserved.output {
                            breach(format!("event {seq}: a lost judge is settled below its reservation"));
                        }
                    }
                    (_, Some(_)) => {}
                }
            }
            // What the tree below it spent is its own spending.
            Event::ChildEnded(ended) => tokens += ended.report.spent.usage.tokens(),
            Event::RunForked(_) => (summary, judge) = (None, None),
            Event::RunEnded(_) | Event::RunSuspended(_) | Event::RunParked(_)
                if summary.is_some() || judge.is_some() =>
            {
                breach(format!("event {seq}: the run stops and leaves a summary or a judge unsettled"));
            }
            Event::ModelReplied(replied) => {
                tokens += replied.usage.tokens();
                if open.remove(&replied.attempt).is_none() {
                    breach(format!("{} was settled twice", replied.attempt));
                }
            }
            Event::ModelFailed(failed) => {
                tokens += failed.usage.tokens();
                match open.remove(&failed.attempt) {
                    None => breach(format!("{} was settled twice", failed.attempt)),
                    Some(reserved) => {
                        let lost = failed.class == ModelErrorClass::Lost;
                        if lost && failed.usage.tokens() < reserved.input + reserved.output {
                            breach(format!("{} was lost and settled below its reservation", failed.attempt));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    let Some(run) = run else { return };
    if run.spent.usage.tokens() != tokens {
        breach(format!("{} tokens are counted where {tokens} were settled", run.spent.usage.tokens()));
    }
    if let Limit::At(limit) = run.limits.tokens
        && tokens > limit + largest
    {
        breach(format!("{tokens} tokens of {limit}: more than one reservation too many"));
    }
    if town.store.shadow().runs.len() == 1 && town.brain.sends() > run.spent.model_calls {
        breach(format!("{} calls were sent and {} counted", town.brain.sends(), run.spent.model_calls));
    }
}

fn shrinks(before: &Spent, after: &Spent) -> bool {
    after.turns < before.turns
        || after.model_calls < before.model_calls
        || after.tool_calls < before.tool_calls
        || after.usage.tokens() < before.usage.tokens()
        || after.micros < before.micros
        || after.time_ms < before.time_ms
}

fn over(limits: &Limits, spent: &Spent, seq: Seq, breach: &impl Fn(String)) {
    let is_over = |limit: Limit, used: u64| matches!(limit, Limit::At(limit) if used > limit);
    if is_over(limits.turns, spent.turns) {
        breach(format!("event {seq}: {} turns are over the limit", spent.turns));
    }
    if is_over(limits.model_calls, spent.model_calls) {
        breach(format!("event {seq}: {} model calls are over the limit", spent.model_calls));
    }
    if is_over(limits.tool_calls, spent.tool_calls) {
        breach(format!("event {seq}: {} tool calls are over the limit", spent.tool_calls));
    }
}

/// Fences only grow, and every start belongs to the claim it was written under.
/// A shadow carries out nothing but reads and is never done; a plan begins nothing that only writes.
fn law_8_modes(town: &Town, shadow: &ShadowRun) {
    let Some(Event::RunStarted(started)) = shadow.events.first().map(|new| &new.event) else { return };
    let mut mode = started.task.permission_mode;
    for (number, new) in shadow.events.iter().enumerate() {
        let breach = |what: String| town.record.breach("law_8", format!("event {}: {what} in {mode}", number + 1));
        match &new.event {
            Event::ActionStarted(started) if started.effect != EffectClass::Read && started.attempt == 1 => {
                match mode {
                    Mode::Plan | Mode::Shadow => breach(format!("{} was started", started.action)),
                    Mode::Ask | Mode::AcceptEdits | Mode::Auto => {}
                }
            }
            Event::RunEnded(ended) if mode == Mode::Shadow && matches!(ended.end, End::Done(_)) => {
                breach("the run is done".to_owned());
            }
            Event::SurroundingsChanged(changed) => mode = changed.mode.unwrap_or(mode),
            _ => {}
        }
    }
}

fn law_10(town: &Town, shadow: &ShadowRun) {
    let mut present = Fence(0);
    for (number, new) in shadow.events.iter().enumerate() {
        let breach = |what: String| town.record.breach("law_10", format!("event {}: {what}", number + 1));
        match &new.event {
            Event::RunClaimed(claimed) => {
                if claimed.fence <= present {
                    breach(format!("fence {} follows {present}", claimed.fence));
                }
                present = claimed.fence;
            }
            Event::ActionStarted(started) if started.fence != present => {
                breach(format!("{} starts under fence {} instead of {present}", started.action, started.fence));
            }
            _ => {}
        }
    }
}

/// The end a run should have by now: it rests, or waits for something with a name.
pub fn law_11(town: &Town, id: &RunId) {
    let Some(run) = town.store.run(id) else { return };
    if !matches!(run.stage, Stage::Rest(_)) {
        let waits = longrein_core::owed::waits(&run);
        let duties = longrein_core::owed::owed(&run);
        town.record.breach("law_11", format!("{id} does not come to rest; it waits for {waits:?} and owes {duties:?}"));
    }
}

/// Within one turn a failure moves a run to no model that it has moved away from (`design.md` §2, law 11), and every call goes
/// to the model that was decided.
fn law_11_routes(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |what: String| town.record.breach("law_11", format!("{id}: {what}"));
    let mut model = None;
    let mut left = BTreeSet::new();
    for new in &shadow.events {
        match &new.event {
            Event::RunStarted(started) => model = Some(started.task.model.name.clone()),
            Event::ModelSwitched(switched) => {
                model = Some(switched.model.name.clone());
                left.clear();
            }
            Event::ModelRouted(routed) => {
                if model.as_ref() != Some(&routed.from) || routed.from == routed.model.name {
                    breach(format!("from {model:?} it is moved by {routed:?}"));
                }
                model = Some(routed.model.name.clone());
                if let RouteWhy::Failed(_) = routed.why {
                    left.insert(routed.from.clone());
                    if left.contains(&routed.model.name) {
                        breach(format!("it is moved back to {} in one turn", routed.model.name));
                    }
                }
            }
            Event::ModelRequested(requested) if model.as_ref() != Some(&requested.model) => {
                breach(format!("{} is asked, and not {model:?}", requested.model));
            }
            // A turn is over, or whoever takes it up begins anew.
            Event::ModelReplied(_) | Event::RunSuspended(_) | Event::RunEnded(_) | Event::ModelForgone(_) => {
                left.clear()
            }
            _ => {}
        }
    }
}
