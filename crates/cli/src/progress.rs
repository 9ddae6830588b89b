//! What is printed while a run goes on: JSON lines on stdout, or plain lines on stderr.

use longrein::core::action::Action;
use longrein::core::event::{Event, EventKind};
use longrein::core::ids::{ActionId, Digest, Seq};
use longrein::core::run::Run;
use longrein::ports::NewEvent;
use longrein::{Observer, projection};
use tokio::sync::mpsc::UnboundedSender;

use crate::out::{say, tell};
use crate::words;

/// A question that waits for somebody at the terminal.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) action: ActionId,
    pub(crate) digest: Digest,
    pub(crate) what: String,
    pub(crate) reason: String,
}

impl Question {
    pub(crate) fn about(run: &Run, action: &Action, digest: &Digest, rule: &str, reason: &str) -> Self {
        Self {
            action: action.id,
            digest: digest.clone(),
            what: words::call(run, action),
            reason: format!("{} ({})", words::safe(reason), words::safe(rule)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Json,
    Plain,
    Quiet,
}

pub(crate) struct Progress {
    pub(crate) style: Style,
    /// Where questions go when somebody is there to answer.
    pub(crate) questions: Option<UnboundedSender<Question>>,
}

impl Observer for Progress {
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]) {
        for (seq, new) in events {
            match self.style {
                Style::Json => print_line(&projection::line(run, Some(*seq), new.at, &new.event)),
                Style::Plain => {
                    if is_progress(new.event.kind()) {
                        tell!("{}  {}", words::clock(new.at), words::describe(Some(run), &new.event));
                    }
                }
                Style::Quiet => {}
            }
            if let (Event::ActionHeld(held), Some(questions)) = (&new.event, &self.questions)
                && let Some(action) = run.action(held.action)
            {
                // The asker is gone only when the command ends.
                let _ = questions.send(Question::about(run, action, &held.digest, &held.rule, &held.reason));
            }
        }
    }
}

/// One line of JSON on stdout.
pub(crate) fn print_line(value: &serde_json::Value) {
    say!("{value}");
}

/// Kinds worth a line while a run goes on; the log has them all.
fn is_progress(kind: EventKind) -> bool {
    match kind {
        EventKind::RunClaimed
        | EventKind::ActionProposed
        | EventKind::FactSet
        | EventKind::FactVoided
        | EventKind::ModelRequested
        // Said at the end, with the command that goes on.
        | EventKind::RunParked
        | EventKind::RunSuspended
        | EventKind::RunEnded => false,
        EventKind::RunStarted
        | EventKind::RunForked
        | EventKind::InputReceived
        | EventKind::InputRefused
        | EventKind::ModelReplied
        | EventKind::ModelFailed
        | EventKind::ModelSwitched
        | EventKind::ActionRefused
        | EventKind::ActionHeld
        | EventKind::ActionApproved
        | EventKind::ActionDenied
        | EventKind::ActionStarted
        | EventKind::ActionRequeued
        | EventKind::ActionProbed
        | EventKind::ActionFinished
        | EventKind::ActionSettled
        | EventKind::AnswerAccepted
        | EventKind::AnswerRefused
        | EventKind::CheckFinished
        | EventKind::BudgetReached
        | EventKind::BudgetRaised
        | EventKind::SurroundingsChanged => true,
    }
}
