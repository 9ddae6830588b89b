//! Setting a workspace back to before what a run did in it, as a person wants it: step by step, the newest first, each from
//! how that step left it to how it found it. What somebody else changed meanwhile is never touched.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::decide::{Command, Undone};
use longrein_core::event::Event;
use longrein_core::ids::{ActionId, RunId, Seq, ToolName, TreeId};
use longrein_core::input::{Input, InputBody};
use longrein_core::outcome::Outcome;
use longrein_core::task::EffectClass;
use longrein_ports::{Difference, Journal, JournalError, RecordedBody, TreeError, Trees};

use crate::claimed::Drive;
use crate::drive::DriveError;

/// What a rollback would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RollbackPlan {
    /// What would be undone, the newest first.
    pub actions: Vec<(ActionId, ToolName)>,
    /// What would become of the workspace as it is now.
    pub paths: Vec<Difference>,
    /// Paths that somebody else has changed since: while there are any, nothing is done.
    pub conflicts: Vec<String>,
    /// Actions on the world since then. Nothing here undoes them.
    pub external: Vec<(ActionId, ToolName)>,
    steps: Vec<Step>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    #[error("{0} did not change the workspace, or that is undone already, or no snapshot was taken before it")]
    NoSuchStep(ActionId),
    #[error("there is nothing to undo: no step of the run has a snapshot before it that is not undone already")]
    Nothing,
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Actions that ran beside each other, or one alone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// In the order of their starts.
    actions: Vec<(ActionId, ToolName)>,
    running: BTreeSet<ActionId>,
    before: TreeId,
    /// None: its worker died, or no snapshot could be taken.
    left: Option<TreeId>,
}

/// Events read at a time.
const PAGE: usize = 512;

/// Works out what undoing a run's changes would do; `to`: back to before this action.
pub async fn rollback_plan(
    journal: &dyn Journal,
    trees: &dyn Trees,
    run: &RunId,
    to: Option<ActionId>,
) -> Result<RollbackPlan, RollbackError> {
    let (mut steps, external) = steps(journal, run).await?;
    let mut first = 0;
    if let Some(to) = to {
        let is_it = |step: &Step| step.actions.iter().any(|(action, _)| *action == to);
        first = steps.iter().position(is_it).ok_or(RollbackError::NoSuchStep(to))?;
    }
    let mut steps = steps.split_off(first);
    let Some(oldest) = steps.first().and_then(|step| step.actions.first()).map(|(action, _)| *action) else {
        return Err(RollbackError::Nothing);
    };
    let now = trees.snapshot().await?;
    // How a step left the workspace is at most what the next one found.
    let mut found = now.clone();
    for step in steps.iter_mut().rev() {
        step.left.get_or_insert(found);
        found = step.before.clone();
    }
    steps.reverse();
    let mut known: BTreeMap<(TreeId, TreeId), BTreeMap<String, Difference>> = BTreeMap::new();
    let mut of: BTreeMap<String, TreeId> = BTreeMap::new();
    let mut conflicts = BTreeSet::new();
    for step in &steps {
        let left = step.left.clone().unwrap_or_else(|| now.clone());
        let touched: Vec<_> = compare(trees, &mut known, &step.before, &left).await?.keys().cloned().collect();
        for path in touched {
            let present = of.get(&path).cloned().unwrap_or_else(|| now.clone());
            let as_left = !compare(trees, &mut known, &left, &present).await?.contains_key(&path);
            let as_before = !compare(trees, &mut known, &step.before, &present).await?.contains_key(&path);
            if !as_left && !as_before {
                conflicts.insert(path.clone());
            }
            of.insert(path, step.before.clone());
        }
    }
    let mut paths = Vec::new();
    for (path, target) in &of {
        paths.extend(compare(trees, &mut known, &now, target).await?.get(path).cloned());
    }
    let mut actions: Vec<_> = steps.iter().flat_map(|step| step.actions.iter().rev().cloned()).collect();
    actions.sort_by_key(|(action, _)| std::cmp::Reverse(*action));
    let external = external.into_iter().filter(|(action, _)| *action >= oldest).collect();
    Ok(RollbackPlan { actions, paths, conflicts: conflicts.into_iter().collect(), external, steps })
}

async fn compare<'k>(
    trees: &dyn Trees,
    known: &'k mut BTreeMap<(TreeId, TreeId), BTreeMap<String, Difference>>,
    from: &TreeId,
    to: &TreeId,
) -> Result<&'k BTreeMap<String, Difference>, TreeError> {
    let pair = (from.clone(), to.clone());
    if from != to && !known.contains_key(&pair) {
        let found = trees.differences(from, to).await?;
        known.insert(pair.clone(), found.into_iter().map(|one| (one.path.clone(), one)).collect());
    }
    Ok(known.entry(pair).or_default())
}

/// The steps of a run that are not undone, the oldest first; and its actions on the world.
async fn steps(journal: &dyn Journal, run: &RunId) -> Result<(Vec<Step>, Vec<(ActionId, ToolName)>), JournalError> {
    let mut tools: BTreeMap<ActionId, ToolName> = BTreeMap::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut external = Vec::new();
    let mut undone: BTreeSet<ActionId> = BTreeSet::new();
    let mut after = Seq(0);
    loop {
        let page = journal.read(run, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in page {
            let RecordedBody::Known(event) = record.body else { continue };
            if let Event::ActionProposed(proposed) = &event {
                tools.insert(proposed.action, proposed.tool.clone());
            } else if let Event::RunForked(_) = &event {
                // What came before is the other run's.
                steps.clear();
                external.clear();
            } else if let Event::RunClaimed(_) = &event {
                steps.iter_mut().for_each(|step| step.running.clear());
            } else if let Event::ActionStarted(started) = &event {
                let may_write = started.effect == EffectClass::Workspace;
                let Some(tree) = started.tree.as_ref().filter(|_| may_write) else { continue };
                let named = (started.action, tools.get(&started.action).cloned().unwrap_or_else(|| ToolName::new("?")));
                undone.remove(&started.action);
                match steps.last_mut().filter(|step| !step.running.is_empty()) {
                    Some(step) => {
                        step.actions.push(named);
                        step.running.insert(started.action);
                    }
                    None => steps.push(Step {
                        actions: vec![named],
                        running: [started.action].into(),
                        before: tree.clone(),
                        left: None,
                    }),
                }
            } else if let Event::ActionFinished(finished) = &event {
                let is_external = finished.effect == EffectClass::External && finished.attempt > 0;
                if is_external && !matches!(finished.outcome, Outcome::NotDone(_)) {
                    let tool = tools.get(&finished.action).cloned().unwrap_or_else(|| ToolName::new("?"));
                    external.push((finished.action, tool));
                }
                let ran = steps.iter_mut().rev().find(|step| step.running.contains(&finished.action));
                if let Some(step) = ran {
                    step.running.remove(&finished.action);
                    step.left.clone_from(&finished.left);
                }
            } else if let Event::ActionRolledBack(back) = &event {
                undone.insert(back.action);
            }
        }
    }
    for step in &mut steps {
        step.actions.retain(|(action, _)| !undone.contains(action));
    }
    steps.retain(|step| !step.actions.is_empty());
    Ok((steps, external))
}

impl Drive<'_> {
    /// Does what a person asks for. Answers whether the input is dealt with.
    pub(crate) async fn take_rollback(&mut self, input: &Input) -> Result<bool, DriveError> {
        let InputBody::Rollback(rollback) = &input.body else { return Ok(false) };
        let (id, by) = (input.id.clone(), rollback.by.clone());
        let refuse = |reason: String| Command::TakeRollback {
            input: id.clone(),
            by: by.clone(),
            undone: Err(reason),
            stopped: None,
        };
        let may_write = self.run.actions().any(|action| action.may_run() && action.effect != EffectClass::Read);
        if may_write && self.hangar.is_busy() {
            return Ok(self.command(refuse("its actions are running: cancel or stop it first".to_owned())));
        }
        let trees = match self.trees().cloned() {
            Ok(trees) => trees,
            Err(why) => return Ok(self.command(refuse(why))),
        };
        let plan = match rollback_plan(self.ports.journal.as_ref(), trees.as_ref(), &self.run.id, rollback.to).await {
            Ok(plan) => plan,
            Err(error) => return Ok(self.command(refuse(error.to_string()))),
        };
        if !plan.conflicts.is_empty() {
            let reason = format!("changed since by someone else: {}", plan.conflicts.join(", "));
            return Ok(self.command(refuse(reason)));
        }
        let mut undone = Vec::new();
        let mut stopped = None;
        for step in plan.steps {
            let Some(left) = step.left else { continue };
            let asked = longrein_ports::Undo { to: step.before.clone(), left, within: None };
            match trees.undo(&asked).await {
                Ok(restored) => {
                    let mut done = Undone { to: step.before, paths: restored.paths, aside: restored.aside };
                    for (action, _) in step.actions.iter().rev() {
                        undone.push((*action, done.clone()));
                        // Told once, of actions that ran beside each other.
                        done.paths.clear();
                    }
                    if !restored.kept.is_empty() {
                        let kept = format!("what no snapshot holds stays as it is: {}", restored.kept.join(", "));
                        stopped = stopped.or(step.actions.last().map(|(action, _)| (*action, kept)));
                    }
                }
                Err(error) => {
                    stopped = step.actions.last().map(|(action, _)| (*action, error.to_string()));
                    break;
                }
            }
        }
        let undone = match (&stopped, undone.is_empty()) {
            (Some((action, reason)), true) => Err(format!("{action} could not be undone: {reason}")),
            (Some(_) | None, _) => Ok(undone),
        };
        let stopped = stopped.filter(|_| undone.is_ok());
        Ok(self.command(Command::TakeRollback { input: id.clone(), by: by.clone(), undone, stopped }))
    }
}
