//! What becomes of a run when hooks have been heard.

use super::*;
use crate::event::HookFinished;
use crate::hook::HookOutcome;

impl Run {
    pub(super) fn hook_finished(&mut self, finished: &HookFinished) {
        if let Some(reason) = finished.outcome.reason() {
            self.hooks.last = format!("{}: {reason}", finished.command);
        }
        match finished.event {
            HookEvent::Prompt if finished.input.is_none() => {
                self.hooks.goal.remove(&finished.hook);
                self.hooks.goal_blocked |= finished.outcome != HookOutcome::Passed;
            }
            HookEvent::Stop => self.stop_heard(finished),
            HookEvent::End => {
                self.hooks.end.remove(&finished.hook);
            }
            HookEvent::Prompt | HookEvent::BeforeTool | HookEvent::AfterTool | HookEvent::Rebuild => {}
        }
        match &finished.outcome {
            HookOutcome::Halted { .. } if !matches!(self.stage, Stage::Rest(_)) => {
                self.winding.get_or_insert(Winding { why: WindingWhy::Hook, since: self.at });
            }
            HookOutcome::Halted { .. }
            | HookOutcome::Passed
            | HookOutcome::Asked { .. }
            | HookOutcome::Blocked { .. }
            | HookOutcome::Failed { .. } => {}
        }
        self.tell_of_hook(finished);
    }

    /// An answer stands when every hook was heard and none had anything against it.
    fn stop_heard(&mut self, finished: &HookFinished) {
        let Some(stop) = &mut self.hooks.stop else { return };
        stop.left.remove(&finished.hook);
        stop.is_blocked |= finished.outcome != HookOutcome::Passed;
        if stop.left.is_empty() && !stop.is_blocked {
            self.hooks.stop = None;
            self.hooks.stop_blocks = 0;
        }
    }

    /// Hooks had something against the answer: it is none.
    pub(super) fn stop_refused(&mut self) {
        match &self.stage {
            Stage::Verifying { .. } => {
                self.hooks.stop = None;
                self.hooks.stop_blocks += 1;
                self.stage = Stage::Ready(Ready::default());
                self.show_pending();
            }
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {}
        }
    }

    /// What a hook has to say goes to the model in the harness's words. What it has against a call or an answer is told
    /// where that is refused.
    fn tell_of_hook(&mut self, finished: &HookFinished) {
        let hook = &finished.command;
        let against = match (finished.event, &finished.outcome) {
            (HookEvent::AfterTool, HookOutcome::Failed { reason }) => {
                Some(format!("The hook `{hook}` failed: {reason}"))
            }
            (HookEvent::AfterTool, outcome) => {
                outcome.reason().map(|reason| format!("The hook `{hook}` says: {reason}"))
            }
            (HookEvent::BeforeTool | HookEvent::Prompt | HookEvent::Stop | HookEvent::Rebuild | HookEvent::End, _) => {
                None
            }
        };
        let words = finished.words.as_ref().map(|words| format!("The hook `{hook}` says: {words}"));
        let about = finished.action.map(|action| format!("About {action}: ")).unwrap_or_default();
        for text in against.into_iter().chain(words) {
            let item = observe::note(&observe::escaped(&format!("{about}{text}")));
            match &self.stage {
                Stage::Ready(_) => self.tell(item),
                Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                    self.pending.push((Part::Harness(self.turn()), item));
                }
                Stage::Rest(_) => {}
            }
        }
    }
}
