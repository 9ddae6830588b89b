//! Steps that failed are undone, and what is not is not called so: against what lies in the workspace, and what happened.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::check::Finding;
use longrein_core::event::{Event, RollbackWhy};
use longrein_core::ids::{ActionId, RunId};
use longrein_core::input::Truth;
use longrein_core::outcome::Outcome;
use longrein_core::run::Stage;

use crate::store::ShadowRun;
use crate::town::Town;
use crate::world::Tree;

/// Checks one run at rest.
pub(super) fn check(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |law, what: String| town.record.breach(law, format!("{id}: {what}"));
    let Some(run) = shadow.fold() else { return };
    let mut undone: BTreeSet<ActionId> = BTreeSet::new();
    let mut settled: BTreeSet<ActionId> = BTreeSet::new();
    let mut failed: BTreeSet<ActionId> = BTreeSet::new();
    let mut passed: BTreeSet<ActionId> = BTreeSet::new();
    let mut compensations: BTreeMap<ActionId, ActionId> = BTreeMap::new();
    for new in &shadow.events {
        match &new.event {
            Event::ActionStarted(started) => {
                undone.remove(&started.action);
                settled.remove(&started.action);
            }
            Event::ActionRolledBack(back) => {
                undone.insert(back.action);
                settled.insert(back.action);
            }
            Event::ActionNotUndone(not) => {
                settled.insert(not.action);
            }
            Event::ActionProposed(proposed) => {
                compensations.extend(proposed.proposer.undoes().map(|other| (*other, proposed.action)));
            }
            Event::CheckFinished(finished) => {
                let Some(action) = finished.action else { continue };
                match finished.verdict.finding {
                    Finding::Passed => passed.insert(action),
                    Finding::Failed | Finding::Held => failed.insert(action),
                };
            }
            Event::FactSet(set) => {
                let action = set.evidence.action();
                let is_checked = shadow.events.iter().any(|new| match &new.event {
                    Event::ActionProposed(proposed) => {
                        let spec = run.task.tool(&proposed.tool);
                        proposed.action == action && spec.is_some_and(|spec| !spec.check.is_empty())
                    }
                    _ => false,
                });
                if is_checked && !passed.contains(&action) {
                    breach("law_9", format!("{action} sets a fact before its check has passed"));
                }
            }
            _ => {}
        }
    }
    for action in &failed {
        let is_dealt_with = settled.contains(action) || compensations.contains_key(action);
        let is_over = match &run.stage {
            Stage::Rest(_) => true,
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                run.action(*action).is_none()
            }
        };
        let was_cut = run.winding.is_some() || matches!(run.stage, Stage::Rest(_));
        if is_over && !is_dealt_with && !was_cut {
            breach("law_12", format!("the check of {action} failed, and nothing was done about it"));
        }
        if run.evidence.contains_key(&action.evidence()) && undone.contains(action) {
            breach("law_9", format!("{action} was undone, and its evidence is live"));
        }
    }
    for (fact, evidence) in &run.facts {
        if undone.contains(&evidence.action()) {
            breach("law_9", format!("{} was undone, and its fact {fact} is live", evidence.action()));
        }
    }
    workspace(town, id, shadow);
}

/// Byte for byte: the workspace is what the steps have left that were not undone. Children work in their root's, which is
/// looked at with the root.
fn workspace(town: &Town, id: &RunId, shadow: &ShadowRun) {
    if shadow.fold().is_none_or(|run| run.descent.is_some()) {
        return;
    }
    let all = town.store.shadow();
    let is_below = |run: &ShadowRun| run.fold().is_some_and(|run| run.descent.is_some_and(|of| of.root == *id));
    let mut undone: BTreeSet<(&RunId, ActionId)> = BTreeSet::new();
    let mut tree: BTreeSet<&RunId> = BTreeSet::new();
    for (run, shadow) in all.runs.iter().filter(|(run, shadow)| *run == id || is_below(shadow)) {
        tree.insert(run);
        for new in &shadow.events {
            match &new.event {
                Event::ActionStarted(started) => {
                    undone.remove(&(run, started.action));
                }
                Event::ActionRolledBack(back) if matches!(back.why, RollbackWhy::Operator { .. }) => return,
                Event::ActionRolledBack(back) => {
                    undone.insert((run, back.action));
                }
                _ => {}
            }
        }
    }
    let mut expected = Tree::new();
    for left in town.world.files() {
        let is_there = tree.contains(&left.run) && !undone.contains(&(&left.run, left.action));
        for place in left.places.iter().filter(|_| is_there) {
            expected.insert(place.clone(), format!("{} {} {}", left.run, left.action, left.attempt));
        }
    }
    let folder = format!("/town/{id}");
    let is_ours = |path: &String| !town.world.is_meddled(&folder, path);
    let mut ours = town.world.workspace(&folder);
    ours.retain(|path, _| is_ours(path));
    expected.retain(|path, _| is_ours(path));
    if ours != expected {
        town.record.breach(
            "law_12",
            format!("{id}: the workspace is {ours:?} and should be {expected:?}; undone: {undone:?}"),
        );
    }
}

/// Calls of all runs that were undone by their compensation.
pub(super) fn compensated(town: &Town) -> BTreeSet<(RunId, ActionId)> {
    let shadow = town.store.shadow();
    let mut found = BTreeSet::new();
    for (id, run) in &shadow.runs {
        let mut undoes: BTreeMap<ActionId, ActionId> = BTreeMap::new();
        for new in &run.events {
            let done = match &new.event {
                Event::ActionProposed(proposed) => {
                    undoes.extend(proposed.proposer.undoes().map(|other| (proposed.action, *other)));
                    None
                }
                Event::ActionFinished(finished) => {
                    matches!(finished.outcome, Outcome::Done(_)).then_some(finished.action)
                }
                Event::ActionSettled(settled) => matches!(settled.truth, Truth::Done(_)).then_some(settled.action),
                _ => None,
            };
            found.extend(done.and_then(|by| undoes.get(&by)).map(|other| (id.clone(), *other)));
        }
    }
    found
}
