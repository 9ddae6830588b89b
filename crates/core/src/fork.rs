//! Forks: a new run from a point of another's journal (`semantics.md` I1).
//!
//! A fork begins with the other's events up to a point where every call has its observation, so that it folds to the same
//! conversation. Claims and effects of the other are history there: fences are zero, approvals and unsettled actions do not
//! come along.

use crate::budget::{Limit, Limits, Spent};
use crate::children;
use crate::event::{Event, RunForked, RunStarted};
use crate::ids::{Fence, RunId, Seq};
use crate::run::{Run, Stage};
use crate::time::Timestamp;

/// An event with its place and time.
pub type Placed = (Seq, Timestamp, Event);

/// The events of a new run `id` that goes on from the last point at or before `at` where it can, and that point. `now`: the
/// time of the fork. None: there is no such point.
///
/// The new run's budget is what the other has left at its own end, however early the fork: going back gives nothing back.
pub fn fork(events: &[Placed], at: Seq, id: RunId, now: Timestamp) -> Option<(Seq, Vec<(Timestamp, Event)>)> {
    let mut run: Option<Run> = None;
    let mut point: Option<(usize, Spent)> = None;
    for (index, (seq, time, event)) in events.iter().enumerate() {
        match (&mut run, event) {
            (None, Event::RunStarted(started)) => run = Some(Run::new(started, *time)),
            (Some(run), event) => run.apply(*seq, *time, event),
            (None, _) => return None,
        }
        if let Some(run) = run.as_ref().filter(|run| *seq <= at && is_between_turns(run, event)) {
            point = Some((index, run.spent));
        }
    }
    let (last, spent) = point?;
    let end = run?;
    let (seq, _, _) = events.get(last)?;
    let mut copied: Vec<_> =
        events.iter().take(last + 1).map(|(_, time, event)| (*time, of_fork(event, &id))).collect();
    let limits = left_over(&end, &spent);
    let latest = copied.last().map_or(now, |(time, _)| now.max(*time));
    let forked = RunForked { from: end.id, at: *seq, limits, first_tree: end.first_tree };
    copied.push((latest, Event::RunForked(forked)));
    Some((*seq, copied))
}

/// Every call has its observation, and no model call is out.
fn is_between_turns(run: &Run, event: &Event) -> bool {
    match run.stage {
        // A reply without calls is judged in the same batch: not between the two.
        Stage::Ready(_) => !matches!(event, Event::ModelReplied(_)),
        Stage::Rest(_) => true,
        Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
    }
}

fn of_fork(event: &Event, id: &RunId) -> Event {
    let mut event = event.clone();
    if let Event::RunStarted(started) = &mut event {
        let RunStarted { run, root, descent, .. } = started.as_mut();
        root.get_or_insert_with(|| run.clone());
        // Nobody waits for a fork.
        *descent = None;
        *run = id.clone();
    }
    if let Event::RunClaimed(claimed) = &mut event {
        claimed.fence = Fence(0);
    }
    if let Event::ActionStarted(started) = &mut event {
        started.fence = Fence(0);
    }
    event
}

/// Limits that leave a run which has spent `spent` as much as `end` has left.
fn left_over(end: &Run, spent: &Spent) -> Limits {
    let less = |limit: Limit, at_end: u64, at_point: u64| match limit {
        Limit::At(limit) => Limit::At(limit.saturating_sub(at_end).saturating_add(at_point)),
        Limit::Unlimited => Limit::Unlimited,
    };
    let (limits, all) = (&end.limits, &end.spent);
    // What its children may still spend is not left over.
    let out = children::reserved(end);
    Limits {
        turns: less(limits.turns, all.turns, spent.turns),
        model_calls: less(limits.model_calls, all.model_calls.saturating_add(out.model_calls), spent.model_calls),
        tool_calls: less(limits.tool_calls, all.tool_calls.saturating_add(out.tool_calls), spent.tool_calls),
        tokens: less(limits.tokens, all.usage.tokens().saturating_add(out.tokens), spent.usage.tokens()),
        micros: less(limits.micros, all.micros.saturating_add(out.micros), spent.micros),
        time_ms: less(limits.time_ms, all.time_ms, spent.time_ms),
        deadline: limits.deadline,
    }
}
