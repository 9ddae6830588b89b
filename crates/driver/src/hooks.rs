//! Hooks, told beside everything else: nothing waits for one but what it has a say in. What follows from their words is
//! core's to decide.

use std::sync::Arc;

use longrein_core::action::{Action, Ended, Life};
use longrein_core::decide::{Command, Refusal};
use longrein_core::event::{Event, RebuildWhy};
use longrein_core::hook::{self, Heard, HookOutcome, HookRan, Moment};
use longrein_core::ids::ActionId;
use longrein_core::input::{Input, InputBody};
use longrein_core::owed::{self, Duty};
use longrein_core::payload::Payload;
use longrein_core::run::Stage;
use longrein_ports::{About, HookCall};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::jobs::{Cut, Flight, Landed};
use crate::said;

impl Drive<'_> {
    /// Tells the hooks of a moment, one after the other. Answers whether anything took off.
    pub(crate) fn tell_hooks(&mut self, moment: Moment, about: About) -> bool {
        let told = hook::told(&self.run, &moment);
        let flight = Flight::Hooks(moment.clone());
        if told.is_empty() || self.hangar.is_flying(&flight) {
            return false;
        }
        let (hooks, task) = (Arc::clone(&self.ports.hooks), Arc::clone(&self.run.task));
        let (run, fence) = (self.run.id.clone(), self.run.fence);
        let of = moment.clone();
        let tell = async move {
            let mut ran = Vec::with_capacity(told.len());
            for hook in told {
                let call = HookCall { run: run.clone(), fence, hook, moment: of.clone(), about: about.clone() };
                ran.push(HookRan { hook, ..hooks.tell(&task, call).await });
            }
            ran
        };
        self.hangar.launch(flight, tell, |ran| Landed::Hooks(moment, ran));
        true
    }

    /// Begins what [`Duty::Hooks`] owes. Hooks are told of what is journaled.
    pub(crate) fn tell_owed(&mut self, moment: &Moment) -> bool {
        if !self.draft.events.is_empty() {
            self.put_off = true;
            return false;
        }
        let about = match (moment, &self.run.stage) {
            (Moment::Goal, _) => About::Prompt { text: self.run.task.goal.clone() },
            (Moment::Stop { .. }, Stage::Verifying { accepted, .. }) => {
                About::Stop { answer: accepted.rendered.clone(), is_again: self.run.hooks.stop_blocks > 0 }
            }
            (Moment::End, Stage::Rest(ended)) => {
                About::End { state: ended.end.state().to_owned(), reason: ended.reason.clone() }
            }
            (
                Moment::Stop { .. }
                | Moment::End
                | Moment::Before { .. }
                | Moment::After { .. }
                | Moment::Message { .. }
                | Moment::Rebuild { .. },
                _,
            ) => return false,
        };
        self.tell_hooks(moment.clone(), about)
    }

    /// Asks for a start; the hooks that have a say in it are asked first.
    pub(crate) fn start_heard(&mut self, id: ActionId, start: impl FnOnce(Heard) -> Command) -> bool {
        let Some(action) = self.run.action(id) else { return false };
        let moment = Moment::Before { action: id, attempt: action.attempts + 1 };
        let about = About::Call { tool: action.tool.clone(), args: action.args.clone() };
        let ran = self.heard.remove(&moment);
        match self.try_command(start(ran.clone().map_or(Heard::NotAsked, Heard::Asked))) {
            Ok(()) => {
                // Whatever came of it: the next one looks at the workspace as it is then.
                self.tree = None;
                true
            }
            Err(Refusal::HooksFirst) => self.tell_hooks(moment, about),
            Err(Refusal::TreeFirst) => {
                // They need not say it again.
                self.heard.extend(ran.map(|ran| (moment, ran)));
                self.take_tree(id)
            }
            Err(Refusal::Stale | Refusal::AtRest | Refusal::NotDue | Refusal::Unfit(_)) => false,
        }
    }

    /// Takes an input, or asks the hooks about it first. Answers whether it was taken.
    pub(crate) fn take_heard(&mut self, mut input: Input) -> bool {
        said::unsay_input(&|text: &str| self.ports.tools.unsaid(text), &mut input);
        let text = match &input.body {
            InputBody::Message(text) => text.clone(),
            InputBody::Approve(_)
            | InputBody::Deny(_)
            | InputBody::Settle(_)
            | InputBody::Cancel
            | InputBody::LateOutcome(_)
            | InputBody::Raise(_)
            | InputBody::SwitchModel(_)
            | InputBody::Endorse(_)
            | InputBody::ChildEnded(_)
            | InputBody::Rollback(_) => return self.command(Command::TakeInput(input)),
        };
        let moment = Moment::Message { input: input.id.clone() };
        let heard = self.heard.get(&moment).cloned().map_or(Heard::NotAsked, Heard::Asked);
        match self.try_command(Command::TakeMessage(input, heard)) {
            Ok(()) => {
                self.heard.remove(&moment);
                true
            }
            Err(Refusal::HooksFirst) => {
                self.tell_hooks(moment, About::Prompt { text });
                false
            }
            Err(Refusal::TreeFirst | Refusal::Stale | Refusal::AtRest | Refusal::NotDue | Refusal::Unfit(_)) => false,
        }
    }

    /// Tells hooks of what a committed batch brought about.
    pub(crate) fn tell_of(&mut self, event: &Event) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "of other events hooks are told when they are asked, or never"
        )]
        match event {
            Event::ActionFinished(finished) if finished.attempt > 0 => {
                let fresh = self.run.fresh.iter().find(|action| action.id == finished.action);
                let Some(action) = self.run.action(finished.action).or(fresh) else { return };
                let about = About::Outcome {
                    tool: action.tool.clone(),
                    args: action.args.clone(),
                    outcome: outcome_of(action),
                };
                let moment = Moment::After { action: finished.action, attempt: finished.attempt };
                self.tell_hooks(moment, about);
            }
            Event::GenerationStarted(started) => {
                let moment = Moment::Rebuild { generation: started.generation };
                self.tell_hooks(moment, About::Rebuild { why: why(started.why) });
            }
            _ => {}
        }
    }

    /// What hooks said, or that they could not say anything.
    pub(crate) async fn heard(&mut self, moment: Moment, ran: Result<Vec<HookRan>, Cut>) -> Result<(), DriveError> {
        let ran = match ran {
            Ok(ran) => ran,
            Err(Cut::Broken(panic)) => {
                let reason = format!("it broke down: {panic}");
                hook::told(&self.run, &moment).into_iter().map(|hook| failed(hook, &reason)).collect()
            }
            // Given up: asked again if it is still to be.
            Err(Cut::Aborted(_)) => return Ok(()),
        };
        match &moment {
            // Used when it starts, in the step that rules on it once more.
            Moment::Before { .. } => {
                self.heard.insert(moment, ran);
            }
            Moment::Message { .. } => {
                self.heard.insert(moment, ran);
                self.take_inbox().await?;
            }
            Moment::After { .. } | Moment::Goal | Moment::Stop { .. } | Moment::Rebuild { .. } | Moment::End => {
                self.command(Command::TakeHooks { moment, ran });
            }
        }
        Ok(())
    }

    /// Whether hooks are being told of something that must be over before the run may come to its end.
    pub(crate) fn hooks_hold_the_end(&self) -> bool {
        self.flying_moments().any(|moment| match moment {
            Moment::After { .. } | Moment::Rebuild { .. } | Moment::Message { .. } => true,
            Moment::Before { .. } | Moment::Goal | Moment::Stop { .. } | Moment::End => false,
        })
    }

    /// Whether hooks are told of the outcome of a call, or will be when it is journaled: the model is not asked before they
    /// were heard.
    pub(crate) fn hooks_hold_the_model(&self) -> bool {
        #[expect(clippy::wildcard_enum_match_arm, reason = "hooks are told of the outcomes of calls")]
        let is_untold = |event: &Event| match event {
            Event::ActionFinished(finished) if finished.attempt > 0 => {
                let moment = Moment::After { action: finished.action, attempt: finished.attempt };
                !hook::told(&self.run, &moment).is_empty()
            }
            _ => false,
        };
        let has_hooks = !self.run.task.hooks.is_empty();
        (has_hooks && self.draft.events.iter().any(|new| is_untold(&new.event)))
            || self.flying_moments().any(|moment| match moment {
                Moment::After { .. } => true,
                Moment::Before { .. }
                | Moment::Goal
                | Moment::Message { .. }
                | Moment::Stop { .. }
                | Moment::Rebuild { .. }
                | Moment::End => false,
            })
    }

    /// Whether a drive may not leave yet, though the run stands still.
    pub(crate) fn hooks_are_due(&self) -> bool {
        let is_owed = || owed::owed(&self.run).iter().any(|duty| matches!(duty, Duty::Hooks { .. }));
        self.stopping.is_none() && (self.flying_moments().next().is_some() || is_owed())
    }

    /// Whether a flight that tells hooks is still wanted, beside those that a duty owes.
    pub(crate) fn hooks_are_wanted(&self, moment: &Moment) -> bool {
        if self.stopping.is_some() {
            return false;
        }
        match moment {
            Moment::After { .. } | Moment::Rebuild { .. } | Moment::Message { .. } => self.run.winding.is_none(),
            Moment::Before { .. } | Moment::Goal | Moment::Stop { .. } | Moment::End => false,
        }
    }

    fn flying_moments(&self) -> impl Iterator<Item = &Moment> {
        self.hangar.moments()
    }
}

fn failed(hook: u32, reason: &str) -> HookRan {
    HookRan { hook, outcome: HookOutcome::Failed { reason: reason.to_owned() }, words: None, took_ms: 0 }
}

/// What came of a call, as its hooks read it.
fn outcome_of(action: &Action) -> Payload {
    #[derive(serde::Serialize)]
    struct Outcome<'a> {
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a Payload>,
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    }
    let data = action.data().map(longrein_core::payload::Content::shown);
    let (outcome, error) = match &action.life {
        Life::Ended(Ended::Done { .. }) => ("done", None),
        Life::Ended(Ended::Error(error)) => ("error", Some(error)),
        Life::Ended(Ended::NotDone(error) | Ended::Refused(error)) => ("not_done", Some(error)),
        Life::Unknown(error) | Life::Doubtful(_, error) => ("unknown", Some(error)),
        // Whether that is kept is another question.
        Life::Checking(_) => ("done", None),
        Life::Undoing(error, _) | Life::Compensating(error, _) => ("error", Some(error)),
        Life::Queued | Life::Held(_) | Life::Started { .. } | Life::Lost(_) => ("unknown", None),
    };
    let class = error.map(|error| error.class.as_str());
    let message = error.map(|error| error.message.as_str());
    Payload::of(&Outcome { outcome, data, class, message }).expect("an outcome has only string keys")
}

fn why(why: RebuildWhy) -> String {
    match why {
        RebuildWhy::Economic => "economic",
        RebuildWhy::ColdCache => "cold_cache",
        RebuildWhy::Trigger => "trigger",
        RebuildWhy::Watermark => "watermark",
        RebuildWhy::Forecast => "forecast",
        RebuildWhy::Full => "full",
        RebuildWhy::Overflow(_) => "overflow",
        RebuildWhy::Rendering => "rendering",
    }
    .to_owned()
}
