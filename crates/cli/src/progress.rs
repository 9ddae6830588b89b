//! What is shown while a run goes on: JSON lines on stdout, plain lines on stderr, or the live view of a terminal.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longrein::core::event::{Event, EventKind};
use longrein::core::ids::{AttemptId, RunId, Seq};
use longrein::core::run::Run;
use longrein::ports::{NewEvent, Spoken};
use longrein::{Observer, projection};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::ask::{News, Question};
use crate::live::View;
use crate::out::{self, say, tell};
use crate::pieces::Printer;
use crate::words;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Json,
    Plain,
    Quiet,
    /// Lines, and a status line rewritten in place.
    Live,
}

impl Style {
    /// Live where somebody looks at a terminal that can do it and nobody asked for something plainer.
    pub(crate) fn of(globals: &crate::args::Globals) -> Self {
        let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
        let able = !matches!(variable("TERM").to_str(), None | Some("" | "dumb"));
        match (globals.json, globals.quiet) {
            (true, _) => Style::Json,
            (false, true) => Style::Quiet,
            (false, false) if able && variable("NO_COLOR").is_empty() && std::io::stderr().is_terminal() => Style::Live,
            (false, false) => Style::Plain,
        }
    }
}

/// Columns of the terminal as it is now.
pub(crate) fn width() -> usize {
    out::columns_of(std::io::stderr())
}

/// How often the status line is looked at: often enough for tenths of a second to be believed.
const REDRAW_EVERY: Duration = Duration::from_millis(250);

/// How long a line of what is heard stands at least: faster than this nobody reads, and a terminal far away is spared.
const REDRAW_LEAST: Duration = Duration::from_millis(40);

/// What is shown once the run has begun, and never if it does not: an error is then the first word.
pub(crate) struct Opening {
    pub(crate) line: Option<String>,
    /// Questions that wait from an earlier session.
    pub(crate) again: Vec<Question>,
}

pub(crate) struct Progress {
    style: Style,
    /// Until it was shown.
    opening: Mutex<Option<Opening>>,
    /// Where questions go when somebody is there to answer.
    questions: Option<UnboundedSender<News>>,
    view: Arc<Mutex<View>>,
    /// Something was heard that is not drawn yet.
    heard: Arc<Notify>,
    pieces: Printer,
}

impl Progress {
    /// Begins to draw, if the style has something to draw.
    pub(crate) fn new(style: Style, questions: Option<UnboundedSender<News>>, opening: Opening) -> Self {
        let view: Arc<Mutex<View>> = Arc::default();
        let heard: Arc<Notify> = Arc::default();
        if style == Style::Live {
            let (view, heard) = (Arc::downgrade(&view), Arc::clone(&heard));
            tokio::spawn(async move {
                while let Some(view) = view.upgrade() {
                    let line = view.lock().unwrap_or_else(PoisonError::into_inner).status(width());
                    out::status(line);
                    drop(view);
                    let drawn = Instant::now();
                    // What is heard after a silence is shown at once.
                    if tokio::time::timeout(REDRAW_EVERY, heard.notified()).await.is_ok() {
                        tokio::time::sleep(REDRAW_LEAST.saturating_sub(drawn.elapsed())).await;
                    }
                }
            });
        }
        let opening = Mutex::new(Some(opening));
        Self { style, opening, questions, view, heard, pieces: Printer::default() }
    }

    fn open(&self) {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Opening { line, again }) = opening else { return };
        if let Some(line) = line {
            tell!("{line}");
        }
        for question in again {
            self.send(News::Asked(question));
        }
    }

    fn send(&self, news: News) {
        if let Some(questions) = &self.questions {
            // The asker is gone only when the command ends, or the person went.
            let _ = questions.send(news);
        }
    }

    fn ask(&self, run: &Run, event: &Event) {
        if self.questions.is_none() {
            return;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is about a question")]
        let news = match event {
            Event::ActionHeld(held) => {
                run.action(held.action).and_then(|action| Question::about(run, action)).map(News::Asked)
            }
            Event::ActionApproved(approved) => Some(News::Over(approved.action)),
            Event::ActionDenied(denied) => Some(News::Over(denied.action)),
            Event::ActionRefused(refused) => Some(News::Over(refused.action)),
            Event::ActionFinished(finished) => Some(News::Over(finished.action)),
            _ => None,
        };
        if let Some(news) = news {
            self.send(news);
        }
    }
}

impl Observer for Progress {
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]) {
        self.open();
        match self.style {
            Style::Json => {
                self.pieces.before(|| {
                    for (seq, new) in events {
                        print_line(&projection::line(run, Some(*seq), new.at, &new.event));
                    }
                });
                // that line is the last one, whatever is still taken back
                if events.iter().any(|(_, new)| is_last(&new.event)) {
                    self.pieces.forget();
                }
            }
            Style::Plain => {
                for (_, new) in events {
                    let text = if let Event::ModelRequested(requested) = &new.event {
                        words::asked_smaller(run, requested)
                    } else {
                        is_progress(new.event.kind()).then(|| words::describe(Some(run), &new.event))
                    };
                    if let Some(text) = text {
                        tell!("{}  {text}", words::clock(new.at));
                    }
                }
            }
            Style::Live => {
                let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
                let lines = view.lines(run, events, width());
                if !lines.is_empty() {
                    tell!("{}", lines.join("\n"));
                }
                out::status(view.status(width()));
            }
            Style::Quiet => {}
        }
        events.iter().for_each(|(_, new)| self.ask(run, &new.event));
    }

    fn noticed(&self, line: &str) {
        tell!("note: {}", words::safe(line));
    }

    fn heard(&self, run: &RunId, attempt: AttemptId, spoken: Spoken<'_>) {
        match self.style {
            Style::Json => self.pieces.hear(run, attempt, spoken),
            Style::Live => {
                self.view.lock().unwrap_or_else(PoisonError::into_inner).hear(attempt, spoken);
                self.heard.notify_one();
            }
            // A reply is a line once it stands.
            Style::Plain | Style::Quiet => {}
        }
    }
}

/// One line of JSON on stdout.
pub(crate) fn print_line(value: &serde_json::Value) {
    say!("{value}");
}

/// Whether a command that drives a run ends with this line.
fn is_last(event: &Event) -> bool {
    matches!(event, Event::RunEnded(_) | Event::RunParked(_) | Event::RunSuspended(_))
}

/// Kinds worth a line while a run goes on; the log has them all.
fn is_progress(kind: EventKind) -> bool {
    match kind {
        EventKind::RunClaimed
        | EventKind::ActionProposed
        | EventKind::FactSet
        | EventKind::FactVoided
        // One that follows a refusal says how it differs.
        | EventKind::ModelRequested
        | EventKind::ResultSpilled
        | EventKind::SummaryRequested
        | EventKind::NoteTaken
        // Said at the end, with the command that goes on.
        | EventKind::ModelForgone
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
        | EventKind::ModelRouted
        | EventKind::GenerationStarted
        | EventKind::SummaryFinished
        | EventKind::JudgeRequested
        | EventKind::JudgeFinished
        | EventKind::ActionRefused
        | EventKind::ActionHeld
        | EventKind::ActionApproved
        | EventKind::ActionDenied
        | EventKind::ActionStarted
        | EventKind::ActionRequeued
        | EventKind::ActionProbed
        | EventKind::ActionFinished
        | EventKind::ActionSettled
        | EventKind::ActionRolledBack
        | EventKind::ActionNotUndone
        | EventKind::ChecksVoided
        | EventKind::AnswerAccepted
        | EventKind::AnswerRefused
        | EventKind::CheckFinished
        | EventKind::HookFinished
        | EventKind::LoopNoticed
        | EventKind::BudgetReached
        | EventKind::BudgetRaised
        | EventKind::ChildStarted
        | EventKind::ChildEnded
        | EventKind::SourceEndorsed
        | EventKind::SurroundingsChanged
        | EventKind::TransitionTaken => true,
    }
}
