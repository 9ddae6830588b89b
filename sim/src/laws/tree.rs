//! Law 5 over a tree of runs, and what else a parent and its children must agree on.

use longrein_core::children::ChildState;

use super::*;

/// Checks a run against its parent, and a root against the whole tree below it.
pub(super) fn check(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let Some(run) = shadow.fold() else { return };
    let breach = |law, what: String| town.record.breach(law, format!("{id}: {what}"));
    if let Some(descent) = &run.descent {
        let parent = town.store.run(&descent.parent);
        match parent.as_ref().and_then(|parent| Some((parent, parent.children.get(id)?))) {
            Some((parent, child)) => {
                if run.limits != child.grant {
                    breach("law_5", "its limits are not what it was granted".to_owned());
                }
                if run.task.permission_mode != parent.mode
                    && parent.mode.tightened(run.task.permission_mode) == parent.mode
                {
                    breach("law_8", format!("it is in mode {} under {}", run.task.permission_mode, parent.mode));
                }
            }
            None => breach("law_2", format!("{} never asked for it", descent.parent)),
        }
    }
    let mut ended = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for new in &shadow.events {
        match &new.event {
            Event::ChildStarted(started) if !asked.insert(started.child.clone()) => {
                breach("law_3", format!("child {} is asked for twice", started.child));
            }
            Event::ChildEnded(settled) if !ended.insert(settled.report.child.clone()) => {
                breach("law_5", format!("child {} is settled twice", settled.report.child));
            }
            Event::RunEnded(_) if asked != ended => {
                breach("law_11", format!("it ends before {:?}", asked.difference(&ended).collect::<Vec<_>>()));
            }
            _ => {}
        }
    }
    for (child, known) in &run.children {
        let ChildState::Ended { report, .. } = &known.state else { continue };
        let Some(there) = town.store.run(child) else {
            breach("law_1", format!("its child {child} has ended and is not there"));
            continue;
        };
        let at_rest = matches!(&there.stage, Stage::Rest(rest) if rest.end == report.end);
        if !at_rest {
            breach("law_1", format!("child {child} did not end as it is told"));
        }
        if there.spent != report.spent {
            breach("law_5", format!("child {child} spent {:?} and is settled at {:?}", there.spent, report.spent));
        }
        let is_missing = |source: &&String| !run.taint.sources.contains_key(*source) && !endorsed(shadow, source);
        if let Some(source) = there.taint.sources.keys().find(is_missing) {
            breach("law_8", format!("what child {child} read from {source} does not taint it"));
        }
    }
    if run.descent.is_none() {
        root(town, id, &run, &breach);
    }
}

fn endorsed(shadow: &ShadowRun, source: &str) -> bool {
    shadow.events.iter().any(|new| matches!(&new.event, Event::SourceEndorsed(endorsed) if endorsed.source == source))
}

/// The sum over the tree, each run's own calls alone, is within the root's limits; and once all is settled it is what the
/// root counts.
fn root(town: &Town, id: &RunId, run: &Run, breach: &impl Fn(&'static str, String)) {
    let runs = town.store.shadow().runs.clone();
    let of_tree: Vec<_> = runs
        .iter()
        .filter(|(one, shadow)| {
            *one == id || shadow.fold().is_some_and(|run| run.descent.is_some_and(|descent| descent.root == *id))
        })
        .collect();
    let (mut calls, mut tools, mut tokens, mut largest) = (0, 0, 0, 0);
    for (_, shadow) in &of_tree {
        let mut counted = BTreeSet::new();
        for new in &shadow.events {
            match &new.event {
                Event::ModelRequested(requested) => {
                    calls += 1;
                    largest = largest.max(requested.reserved.input + requested.reserved.output);
                }
                Event::SummaryRequested(_) | Event::JudgeRequested(_) => calls += 1,
                Event::ModelReplied(replied) => tokens += replied.usage.tokens(),
                Event::ModelFailed(failed) => tokens += failed.usage.tokens(),
                Event::SummaryFinished(finished) => tokens += finished.usage.tokens(),
                Event::JudgeFinished(finished) => tokens += finished.usage.tokens(),
                Event::ActionStarted(started) if counted.insert(started.action) => tools += 1,
                _ => {}
            }
        }
    }
    let over = |what: &str, limit: Limit, used: u64| {
        if let Limit::At(limit) = limit
            && used > limit
        {
            breach("law_5", format!("the tree has used {used} {what} of {limit}"));
        }
    };
    over("model calls", run.limits.model_calls, calls);
    over("tool calls", run.limits.tool_calls, tools);
    // What a provider reports beyond what was asked of it is no refill: at most one reservation of each run.
    over("tokens", run.limits.tokens, u64::saturating_sub(tokens, largest * of_tree.len() as u64));
    let is_settled =
        of_tree.iter().all(|(_, shadow)| shadow.fold().is_some_and(|run| !longrein_core::children::are_open(&run)));
    if is_settled && run.spent.model_calls != calls {
        breach("law_5", format!("{calls} calls were made in the tree and {} are counted", run.spent.model_calls));
    }
    if is_settled && run.spent.usage.tokens() != tokens {
        breach("law_5", format!("{tokens} tokens were used in the tree and {} are counted", run.spent.usage.tokens()));
    }
}
