//! Steps that are kept only if their check says so: checked, undone, compensated.

use super::*;
use crate::payload::{head_and_tail, text_of};
use crate::program::Phases;
use crate::task::CheckSpec;

/// How much of what a check printed the model is told.
const CHECK_TAIL_BYTES: usize = 2_000;
/// Paths of a rollback that the model is told.
const PATHS_TOLD: usize = 8;

impl Run {
    /// Whether a call's result is kept only if its tool's check passes. What the harness does to undo another is not checked
    /// itself.
    pub fn is_checked(&self, action: &Action) -> bool {
        let spec = self.task.tool(&action.tool);
        let has_check = spec.is_some_and(|tool| !tool.check.is_empty() && tool.effect != EffectClass::Read);
        has_check && action.undoes().is_none()
    }

    pub(crate) fn has_check(&self, id: ActionId) -> bool {
        self.action(id).is_some_and(|action| self.is_checked(action))
    }

    /// How often the check of a tool failed in a row.
    pub fn failed_checks_of(&self, tool: &ToolName) -> u32 {
        self.failed_checks.get(tool).copied().unwrap_or(0)
    }

    /// Whether it goes by how the run found the workspace what a check of its own or of its children says, and nobody has
    /// looked yet.
    pub fn wants_first_look(&self) -> bool {
        let is_guarded = |check: &CheckSpec| check.by.is_none() || !check.protect.is_empty();
        let of_children = || self.task.program.phases().into_iter().flat_map(Phases::acceptance);
        self.first_tree.is_none() && self.task.acceptance.iter().chain(of_children()).any(is_guarded)
    }

    /// What the workspace looked like when a start was written.
    pub(super) fn see_tree_before(&mut self, started: &ActionStarted) {
        if let Some(tree) = &started.tree {
            self.first_tree.get_or_insert_with(|| tree.clone());
        }
        if started.effect == EffectClass::Read {
            return;
        }
        let Stage::Acting { actions, .. } = &mut self.stage else { return };
        let mut beside = false;
        // What changes the world may keep its books in the workspace.
        for (id, other) in actions.iter_mut() {
            let writes = other.effect != EffectClass::Read && *id != started.action;
            if writes && matches!(other.life, Life::Started { .. } | Life::Lost(_)) {
                other.beside = true;
                beside = true;
            }
        }
        if let Some(action) = actions.get_mut(&started.action) {
            action.beside = beside;
        }
    }

    /// It is done, as far as it says itself.
    pub(super) fn await_check(&mut self, id: ActionId, result: &Content, how: How) {
        let Some(effect) = self.action(id).map(|action| action.effect) else { return };
        self.see_target(id);
        match effect {
            // Whatever its check says, it happened.
            EffectClass::External => self.remember(id, result),
            EffectClass::Read | EffectClass::Workspace => {}
        }
        self.happened.push(id);
        let (at, seq, epoch) = (self.at, self.head, self.epochs.len() - 1);
        let tentative = Tentative { result: result.clone(), how, at, seq, epoch };
        self.change(id, |action| action.life = Life::Checking(tentative));
    }

    /// Why what a failed action did in the workspace is to be undone. None: it stays.
    pub(super) fn is_to_be_undone(&self, finished: &ActionFinished) -> Option<RollbackWhy> {
        let action = self.action(finished.action).filter(|action| action.tree.is_some() && finished.attempt > 0)?;
        let names_its_file = action.target.as_ref().is_some_and(|target| target.after.is_some());
        match finished.how {
            // What a change of one file came to is told by the file (`semantics.md` D7).
            // What a person changed since it was lost cannot be told from what it did: only what must not stand unproven is
            // set back.
            How::Recovered if !names_its_file => self.has_check(finished.action).then_some(RollbackWhy::Lost),
            How::Observed | How::Recovered | How::Reconciled | How::Replayed { .. } | How::Answered | How::Kept => {
                self.has_check(finished.action).then_some(RollbackWhy::Check)
            }
        }
    }

    /// An action's check has found something.
    pub(super) fn action_checked(&mut self, id: ActionId, finished: &CheckFinished) {
        self.barren_claims = 0;
        self.bring(&finished.brings);
        let Some(action) = self.action(id).cloned() else { return };
        let Life::Checking(tentative) = &action.life else { return };
        match finished.verdict.finding {
            Finding::Passed => {
                self.failed_checks.remove(&action.tool);
                let holds = self.task.tool(&action.tool).map_or(Holds::Run, |tool| tool.holds);
                let evidence = Evidence {
                    tool: action.tool.clone(),
                    seq: tentative.seq,
                    content: Some(tentative.result.clone()),
                    epoch: tentative.epoch,
                    holds,
                    at: tentative.at,
                };
                Arc::make_mut(&mut self.evidence).insert(id.evidence(), evidence);
                match action.effect {
                    EffectClass::Workspace => self.remember(id, &tentative.result),
                    EffectClass::Read | EffectClass::External => {}
                }
                let Tentative { result, how, at, .. } = tentative.clone();
                self.end_action(id, Ended::Done { result, how, at });
            }
            Finding::Failed | Finding::Held => {
                self.failed_calls += 1;
                let failed = self.failed_checks.entry(action.tool.clone()).or_default();
                *failed += 1;
                let error = check_error(&action, *failed, &finished.verdict);
                self.change(id, |action| action.life = Life::Undoing(error, RollbackWhy::Check));
            }
        }
    }

    /// What a compensation needs to know of the call it undoes.
    pub(super) fn compensated(&self, id: ActionId) -> Option<Compensates> {
        let action = self.action(id)?;
        let result = if let Life::Undoing(error, _) = &action.life { error.data.clone() } else { None };
        let result = result.unwrap_or(Content::Inline(crate::payload::Payload::null()));
        Some(Compensates {
            action: id,
            tool: action.tool.clone(),
            key: action.key.clone(),
            idempotency_key: action.idempotency_key.clone(),
            result,
        })
    }

    /// From now on the one waits for the other.
    pub(super) fn compensating(&mut self, id: ActionId, by: ActionId) {
        self.change(id, |action| {
            if let Life::Undoing(error, _) = &action.life {
                action.life = Life::Compensating(error.clone(), by);
            }
        });
    }

    /// What became of a compensation is what becomes of the call it was to undo.
    pub(super) fn end_compensated(&mut self, by: ActionId) {
        let Stage::Acting { actions, .. } = &mut self.stage else { return };
        let Some(compensation) = actions.get(&by).filter(|action| action.is_told()) else { return };
        let Some(undone) = compensation.undoes().map(|undone| undone.action) else { return };
        let (is_done, tool) = (compensation.is_done(), compensation.tool.clone());
        let why_not = match &compensation.life {
            Life::Ended(Ended::Refused(error) | Ended::Error(error) | Ended::NotDone(error)) => error.message.clone(),
            Life::Unknown(error) => format!("it is not known whether that happened: {}", error.message),
            Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Ended(Ended::Done { .. }) => String::new(),
        };
        let Some(action) = actions.get_mut(&undone) else { return };
        let Life::Compensating(error, _) = &action.life else { return };
        action.life = if is_done {
            let message = format!("{} It was undone by {tool} ({by}).", error.message);
            Life::Ended(Ended::NotDone(ToolError { message, data: None, ..error.clone() }))
        } else {
            let why = format!("{tool} ({by}) was called to undo it, and did not: {why_not}");
            Life::Ended(Ended::Error(kept_though(error, &why)))
        };
        if is_done {
            self.note_compensated(undone);
        }
    }

    /// Keeps that a call is undone by another.
    pub(super) fn note_compensated(&mut self, undone: ActionId) {
        self.happened.retain(|id| *id != undone);
        self.unproven.remove(&undone);
        if let Some(effect) = self.memory.effects.get_mut(&undone) {
            effect.state = EffectState::Compensated;
        }
    }

    /// What an action did in the workspace is undone.
    pub(super) fn rolled_back(&mut self, rolled_back: &ActionRolledBack) {
        let id = rolled_back.action;
        self.barren_claims = 0;
        self.begin_epoch();
        self.happened.retain(|happened| *happened != id);
        Arc::make_mut(&mut self.evidence).remove(&id.evidence());
        self.facts.retain(|_, evidence| *evidence != id.evidence());
        self.memory.changed.retain(|_, by| *by != id);
        if let Some(target) = self.action(id).and_then(|action| action.target.clone()) {
            match target.before {
                Some(before) => self.seen.insert(target.path, before),
                None => self.seen.remove(&target.path),
            };
        }
        let paths = paths_in_words(&rolled_back.paths, rolled_back.count);
        match &rolled_back.why {
            RollbackWhy::Check | RollbackWhy::Lost => self.change(id, |action| {
                if let Life::Undoing(error, _) = &action.life {
                    let said = error.message.trim_end();
                    let message = format!("{said} What it had changed in the workspace was undone{paths}.");
                    let hint = "Everything is as it was before this call. Mend the cause, or try with other arguments.";
                    let error = ToolError { message, hint: Some(hint.to_owned()), data: None, ..error.clone() };
                    action.life = Life::Ended(Ended::Error(error));
                }
            }),
            RollbackWhy::Operator { by, .. } => self.undone_by_operator(id, by, &paths),
        }
    }

    /// A person undid what the run had done: what was proven before is so no more.
    fn undone_by_operator(&mut self, id: ActionId, by: &str, paths: &str) {
        self.seen.clear();
        let to = self.set_back.as_ref().map_or(id, |before| before.to.min(id));
        self.set_back = Some(SetBack { by: by.to_owned(), at: self.at, to });
        self.rounds += u32::from(matches!(self.stage, Stage::Verifying { .. }));
        match &self.stage {
            Stage::Verifying { .. } => self.stage = Stage::Ready(Ready::default()),
            Stage::Rest(ended) => match ended.end {
                End::Cancelled => {}
                End::Done(_) | End::Exhausted(_) | End::Failed(_) | End::ContextExhausted => {
                    self.forget_refusals();
                    self.stage = Stage::Ready(Ready::default());
                }
            },
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } => {}
        }
        self.change(id, |action| {
            if action.is_done() {
                let message = format!("It was done, and then {by} undid it{paths}.");
                action.life = Life::Ended(Ended::Error(ToolError::new(class::CANCELLED, message)));
            }
        });
        self.show_pending();
        self.tell_when_possible(observe::note(&format!(
            "{} undid what {id} had changed in the workspace{paths}. Look at the files again before you rely on what you \
             read or wrote.",
            observe::escaped(by)
        )));
    }

    /// What was to be undone is still there.
    pub(super) fn not_undone(&mut self, not_undone: &ActionNotUndone) {
        self.barren_claims = 0;
        self.change(not_undone.action, |action| {
            if let Life::Undoing(error, _) = &action.life {
                action.life = Life::Ended(Ended::Error(kept_though(error, &not_undone.reason)));
            }
        });
    }
}

/// What a failed check tells the model: what failed, where, and what was tried.
fn check_error(action: &Action, failed: u32, verdict: &Verdict) -> ToolError {
    let status = verdict.exit_status.map_or("without an exit status".to_owned(), |status| format!("exit {status}"));
    let printed = head_and_tail(text_of(&verdict.evidence).trim(), CHECK_TAIL_BYTES);
    let data = match &action.life {
        Life::Checking(tentative) => Some(tentative.result.clone()),
        Life::Queued
        | Life::Held(_)
        | Life::Started { .. }
        | Life::Lost(_)
        | Life::Doubtful(..)
        | Life::Unknown(_)
        | Life::Undoing(..)
        | Life::Compensating(..)
        | Life::Ended(_) => None,
    };
    let message = format!(
        "{tool} ended well, but its check failed ({status}): {printed}\nTried: call {failed} of {tool} in a row whose \
         check failed, with {args}.",
        tool = action.tool,
        args = crate::payload::excerpt(action.args.as_str(), 300),
    );
    ToolError { data, ..ToolError::new(class::CHECK_FAILED, message) }
}

/// The error of a step that was to be undone and could not be.
pub(super) fn kept_though(error: &ToolError, why: &str) -> ToolError {
    let why = why.trim_end().trim_end_matches('.');
    let message = format!("{} It could NOT be undone, what it did is still there: {why}.", error.message.trim_end());
    let hint = "Look at what it left before you go on, and say in your answer that it is there.";
    ToolError { message, hint: Some(hint.to_owned()), data: None, ..error.clone() }
}

fn paths_in_words(paths: &[String], count: u64) -> String {
    if paths.is_empty() {
        return " (nothing had been changed)".to_owned();
    }
    let told: Vec<_> = paths.iter().take(PATHS_TOLD).map(|path| observe::escaped(path)).collect();
    match count.saturating_sub(told.len() as u64) {
        0 => format!(" ({})", told.join(", ")),
        more => format!(" ({} and {more} more)", told.join(", ")),
    }
}
