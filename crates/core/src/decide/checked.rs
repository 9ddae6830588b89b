//! Steps that are kept only if their check says so: what must be there before they start, what follows from their verdict,
//! and what undoes them (`semantics.md` D6, D7).

use super::*;
use crate::check::Finding;
use crate::ruling::Bearing;
use crate::task::{Builtin, ToolBody};

/// Calls of one tool in a row whose check fails before it is not called any more: a model that has not found out by then
/// will not, and each call costs a check.
pub const CHECK_FAILURES_MAX: u32 = 5;

/// What is to be undone in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    pub to: TreeId,
    /// None: it is not known how it left the workspace.
    pub left: Option<TreeId>,
    /// None: whatever changed meanwhile is its own.
    pub within: Option<Vec<String>>,
}

/// How an action's changes are undone; or why they cannot be.
pub fn undo_of(run: &Run, action: &Action) -> Result<Undo, &'static str> {
    let Some(to) = action.tree.clone() else { return Err("no snapshot of the workspace was taken before it") };
    let spec = run.task.tool(&action.tool);
    // Where others wrote at the same time, holds kept them apart: to what each declares, or the one file it names.
    let declared = || match spec.map(|spec| &spec.body) {
        Some(ToolBody::Builtin(Builtin::WriteFile | Builtin::EditFile)) => action.path.clone().map(|path| vec![path]),
        Some(ToolBody::Builtin(_) | ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_)) | None => {
            spec.and_then(|spec| spec.writes.clone())
        }
    };
    let within = match (action.beside, &action.left) {
        (false, Some(_)) => None,
        // Nobody knows how a lost one left the workspace: nothing but what it says it writes is touched, if it says so.
        (false, None) => declared(),
        (true, _) => match declared() {
            Some(paths) => Some(paths),
            None => {
                return Err(
                    "something else may have written at the same time, and its tool does not say what it `writes`",
                );
            }
        },
    };
    Ok(Undo { to, left: action.left.clone(), within })
}

/// The tree that a start is journaled with. The outer error: it has to be taken first; the inner: the action must not run
/// without one.
pub(super) fn tree_before(
    run: &Run,
    action: &Action,
    bearing: Bearing,
    view: TreeView,
) -> Result<Result<Option<TreeId>, ToolError>, Refusal> {
    let may_write = action.effect == EffectClass::Workspace && bearing != Bearing::Looks;
    if !may_write {
        // What is protected is compared with how the run found it, whoever changes it: a program that only reads is one that says
        // so.
        return match view {
            TreeView::NotTaken if wants_first_look(run, action) => Err(Refusal::TreeFirst),
            TreeView::Taken(tree) if wants_first_look(run, action) => Ok(Ok(Some(tree))),
            TreeView::NotTaken | TreeView::Taken(_) | TreeView::None(_) | TreeView::Failed(_) => Ok(Ok(None)),
        };
    }
    match view {
        TreeView::NotTaken => Err(Refusal::TreeFirst),
        TreeView::None(_) => Ok(Ok(None)),
        TreeView::Taken(tree) => Ok(Ok(Some(tree))),
        TreeView::Failed(why) if run.has_check(action.id) => {
            let message = format!(
                "Not run: {} is undone when its check fails, and no snapshot could be taken to go back to: {why}",
                action.tool
            );
            Ok(Err(ToolError::new(class::UNAVAILABLE, message).hint("Only the operator can mend this.")))
        }
        TreeView::Failed(_) => Ok(Ok(None)),
    }
}

/// Whether nobody has looked yet at a workspace whose checks are guarded, and this action is a program's.
fn wants_first_look(run: &Run, action: &Action) -> bool {
    let is_program = match run.task.tool(&action.tool).map(|spec| &spec.body) {
        Some(ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_)) => true,
        Some(ToolBody::Builtin(builtin)) => *builtin == Builtin::Shell,
        None => false,
    };
    is_program && run.wants_first_look()
}

/// Why a tool is not called again.
pub(crate) fn tried_too_often(run: &Run, tool: &ToolName) -> Option<(String, &'static str)> {
    let failed = run.failed_checks_of(tool);
    (failed >= CHECK_FAILURES_MAX).then(|| {
        let message = format!("The check of {tool} failed {failed} times in a row; it is not called any more.");
        (message, "Do it another way, or say in your answer what stands in the way.")
    })
}

/// The check of an action has found something.
pub(super) fn verdict(
    run: &Run,
    id: ActionId,
    attempt: u32,
    verdict: Verdict,
    brings: Vec<Mark>,
) -> Result<Vec<Event>, Refusal> {
    let action = run.action(id).filter(|action| action.attempts == attempt).ok_or(Refusal::Stale)?;
    if !matches!(action.life, Life::Checking(_)) {
        return Err(Refusal::Stale);
    }
    let passed = verdict.finding == Finding::Passed;
    let check = CheckName::new(action.tool.as_str());
    let mut events = vec![Event::CheckFinished(CheckFinished {
        check,
        round: attempt,
        action: Some(id),
        verdict,
        brings,
        phase: None,
    })];
    if passed {
        events.extend(set_facts(run, action));
        return Ok(events);
    }
    let why = RollbackWhy::Check;
    match action.effect {
        EffectClass::Workspace if action.tree.is_some() => {}
        EffectClass::Read | EffectClass::Workspace => {
            let reason = "no snapshot of the workspace was taken before it".to_owned();
            events.push(Event::ActionNotUndone(ActionNotUndone { action: id, reason, why }));
        }
        EffectClass::External => {
            let spec = run.task.tool(&action.tool);
            match spec.and_then(|spec| spec.compensate.as_ref()).and_then(|name| run.task.tool(name)) {
                Some(_) if run.winding.is_some() => {
                    let reason = "the run is being brought to rest".to_owned();
                    events.push(Event::ActionNotUndone(ActionNotUndone { action: id, reason, why }));
                }
                Some(undoing) => events.push(Event::ActionProposed(ActionProposed {
                    action: run.next_action(),
                    index: 0,
                    tool: undoing.name.clone(),
                    call: String::new(),
                    effect: undoing.effect,
                    args: action.args.clone(),
                    digest: action.digest.clone(),
                    sent: None,
                    key: None,
                    path: None,
                    after: Vec::new(),
                    proposer: Proposer::Undo(id),
                })),
                None => {
                    let reason = format!("{} names no tool that undoes it", action.tool);
                    events.push(Event::ActionNotUndone(ActionNotUndone { action: id, reason, why }));
                }
            }
        }
    }
    Ok(events)
}

/// What came of going back.
pub(super) fn undone(
    run: &Run,
    id: ActionId,
    attempt: u32,
    undone: Result<Undone, String>,
) -> Result<Vec<Event>, Refusal> {
    let action = run.action(id).filter(|action| action.attempts == attempt).ok_or(Refusal::Stale)?;
    let Life::Undoing(_, why) = &action.life else { return Err(Refusal::Stale) };
    let why = why.clone();
    match undone {
        Ok(undone) => {
            let mut events = void_facts_of(run, id);
            events.push(rolled_back(id, undone, why));
            Ok(events)
        }
        Err(reason) => Ok(vec![Event::ActionNotUndone(ActionNotUndone { action: id, reason, why })]),
    }
}

/// A person had the workspace set back.
pub(super) fn rollback(
    run: &Run,
    input: InputId,
    by: &str,
    undone: Result<Vec<(ActionId, Undone)>, String>,
    stopped: Option<(ActionId, String)>,
) -> Vec<Event> {
    let undone = match undone {
        Ok(undone) => undone,
        Err(reason) => return vec![Event::InputRefused(InputRefused { input, reason })],
    };
    let why = RollbackWhy::Operator { input, by: by.to_owned() };
    let mut events = Vec::new();
    for (action, undone) in undone {
        let voided: Vec<_> = void_facts_of(run, action).into_iter().filter(|event| !events.contains(event)).collect();
        events.extend(voided);
        events.push(rolled_back(action, undone, why.clone()));
    }
    events.extend(stopped.map(|(action, reason)| Event::ActionNotUndone(ActionNotUndone { action, reason, why })));
    events
}

fn rolled_back(action: ActionId, undone: Undone, why: RollbackWhy) -> Event {
    let Undone { to, mut paths, aside } = undone;
    let count = paths.len() as u64;
    paths.truncate(PATHS_MAX);
    Event::ActionRolledBack(ActionRolledBack { action, to, paths, count, aside, why })
}

/// Facts that end with an action that is undone: its own, and those that hold until something is written.
fn void_facts_of(run: &Run, id: ActionId) -> Vec<Event> {
    let until_write = void_facts_if(run, true);
    let own = run.facts.iter().filter(|(_, evidence)| **evidence == id.evidence());
    let own = own.map(|(fact, evidence)| Event::FactVoided(FactVoided { fact: fact.clone(), evidence: *evidence }));
    let own: Vec<_> = own.filter(|event| !until_write.contains(event)).collect();
    until_write.into_iter().chain(own).collect()
}
