//! Children: asked for with what they may spend, and taken back with what they spent.

use super::*;
use crate::children::{self, Changes, ChildSpec, ChildState, Report, Unfit};

/// The events that ask for children, all or none. `at_once`: how many of them are driven at the same time.
pub fn request_children(run: &Run, specs: &[ChildSpec], at_once: u32, now: Timestamp) -> Result<Vec<Event>, Unfit> {
    let tasks = children::fitted(run, specs, now)?;
    specs
        .iter()
        .zip(tasks)
        .map(|(spec, task)| {
            let changes = Changes::between(&run.task, &task)
                .map_err(|error| Unfit::Task { key: spec.key.clone(), why: error.to_string() })?;
            Ok(Event::ChildStarted(Box::new(ChildStarted {
                child: spec.id(&run.id),
                key: spec.key.clone(),
                writes: children::may_write(&task),
                goal: task.goal,
                grant: task.limits,
                changes,
                at_once: at_once.clamp(1, children::AT_ONCE_MAX),
                tree: None,
            })))
        })
        .collect()
}

/// The first event of a child. `at`: its parent as it stands when the child is created.
pub fn begin_child(parent: &Run, child: &RunId, binary: &str) -> Option<Result<RunStarted, serde_json::Error>> {
    let known = parent.children.get(child)?;
    let ChildState::Owed(owed) = &known.state else { return None };
    let depth = parent.descent.as_ref().map_or(0, |descent| descent.depth) + 1;
    let root = parent.descent.as_ref().map_or_else(|| parent.id.clone(), |descent| descent.root.clone());
    let descent = Descent { parent: parent.id.clone(), root, key: known.key.clone(), depth };
    let as_strict = |task: crate::task::Task| crate::task::Task {
        // It may have become stricter since.
        permission_mode: children::stricter(parent.mode, task.permission_mode),
        ..task
    };
    let same_place = |task: &crate::task::Task| task.workspace == parent.task.workspace;
    Some(owed.changes.on(&parent.task).map(as_strict).map(|task| RunStarted {
        first_tree: parent.first_tree.clone().filter(|_| same_place(&task)),
        root: Some(parent.root.clone().unwrap_or_else(|| parent.id.clone())),
        brings: children::marks(&parent.taint, &parent.id),
        descent: Some(descent),
        ..begin(child.clone(), task, binary)
    }))
}

/// A child tells how it ended; or, later, what became of its unknown effects.
pub(super) fn report_arrived(run: &Run, input: InputId, report: Report) -> Result<Vec<Event>, String> {
    match run.children.get(&report.child).map(|child| &child.state) {
        Some(ChildState::Owed(_)) => {
            let mut events = void_facts_if(run, report.wrote);
            events.push(Event::ChildEnded(Box::new(ChildEnded { input, report })));
            Ok(events)
        }
        Some(ChildState::Ended { report: before, .. }) if report.unknown_count() < before.unknown_count() => {
            let Report { child, unknown, .. } = report;
            Ok(vec![Event::InputReceived(InputReceived {
                input,
                body: Received::ChildSettled { child, unknown },
                images: Vec::new(),
            })])
        }
        Some(ChildState::Ended { .. }) => Err(format!("it is known how child {} ended", report.child)),
        Some(ChildState::Inherited) | None => Err(format!("this run asked for no child {}", report.child)),
    }
}

/// The run waits for people only in its children.
pub(super) fn park(run: &Run, waiting: BTreeMap<RunId, Vec<Wait>>) -> Result<Vec<Event>, Refusal> {
    let is_open = |child: &RunId| children::open(run).iter().any(|(id, _, _)| *id == child);
    if run.winding.is_some() || waiting.is_empty() || !waiting.keys().all(is_open) {
        return Err(Refusal::NotDue);
    }
    let waits = waiting.into_iter().map(|(child, waits)| Wait::Child { child, waits }).collect();
    Ok(given_up(run).chain([Event::RunParked(RunParked { waits })]).collect())
}
