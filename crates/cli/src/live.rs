//! The live view of a run on a terminal: what is said once, in lines that stay, and what is going on, in one status line.
//!
//! It makes text of events and nothing else; [`crate::out`] puts it on the terminal. Everything that came from a model or a
//! tool has passed [`words::safe`] before it gets here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longrein::core::action::{Action, Life};
use longrein::core::budget::Limit;
use longrein::core::check::Finding;
use longrein::core::event::{AfterFailure, Event, EventKind, How, InputReceived, No, Received};
use longrein::core::hook::HookOutcome;
use longrein::core::ids::{ActionId, AttemptId};
use longrein::core::outcome::Outcome;
use longrein::core::run::{Run, Stage};
use longrein::core::time::Timestamp;
use longrein::core::{ids::Seq, owed};
use longrein::ports::{NewEvent, Spoken};
use longrein::projection::{self, outcome_word};
use unicode_width::UnicodeWidthStr;

use crate::lines::{WIDTH_MIN, end_of, fit, wrap};
use crate::words;

/// Lines of what the model said between calls that are shown; the log has it all.
const SAID_LINES_MAX: usize = 6;
/// Lines of an error or a note.
const NOTE_LINES_MAX: usize = 4;

/// How a line is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    /// Of less weight.
    Faint,
    /// Something went wrong.
    Bad,
}

/// What the view knows of the run beside its state.
#[derive(Default)]
pub(crate) struct View {
    calls: BTreeMap<ActionId, Call>,
    /// Since when the model is asked.
    asked: Option<(AttemptId, Instant)>,
    /// What comes in of the reply that is awaited.
    said: Option<Said>,
    /// The state after the last batch, as far as the status line shows it.
    now: Status,
}

struct Call {
    tool: String,
    args: String,
    started: Option<(Timestamp, Instant)>,
}

/// The end of what was said, as much as a line can hold.
struct Said {
    attempt: AttemptId,
    kind: Kind,
    tail: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
}

/// More than any line holds, in bytes of a text that is safe to be shown.
const TAIL_MAX_BYTES: usize = 4 * 1024;

#[derive(Default)]
struct Status {
    doing: Vec<Doing>,
    /// What is left of the budget that runs out first.
    left: Option<String>,
    used: Vec<String>,
}

enum Doing {
    Model(AttemptId, Instant),
    Call(ActionId, String, Instant),
    Said(String),
}

impl View {
    /// The lines that a committed batch is worth.
    pub(crate) fn lines(&mut self, run: &Run, events: &[(Seq, NewEvent)], width: usize) -> Vec<String> {
        let width = width.max(WIDTH_MIN);
        // What a run that is gone on with had begun before.
        for action in run.actions().filter(|action| !matches!(action.life, Life::Ended(_))) {
            self.calls.entry(action.id).or_insert_with(|| Call::of(action));
        }
        let mut lines = Vec::new();
        for (_, new) in events {
            self.note(new);
            lines.extend(self.told(run, new, width).into_iter().map(|(tone, text)| set(tone, &text)));
        }
        self.now = self.status_of(run);
        let is_awaited =
            |said: &Said| matches!(&run.stage, Stage::Thinking(thinking) if thinking.attempt == said.attempt);
        self.said = self.said.take().filter(is_awaited);
        lines
    }

    /// A piece of a reply that does not stand yet.
    pub(crate) fn hear(&mut self, attempt: AttemptId, spoken: Spoken<'_>) {
        let (kind, more) = match spoken {
            Spoken::Text(more) => (Kind::Text, more),
            Spoken::Thought(more) => (Kind::Thought, more),
            Spoken::Anew => {
                self.said = None;
                return;
            }
        };
        let before = self.said.take().filter(|said| said.attempt == attempt && said.kind == kind);
        let mut tail = before.map(|said| said.tail).unwrap_or_default();
        // Of a long piece, and of what it becomes, the end.
        tail.push_str(&words::safe(&more[more.ceil_char_boundary(more.len().saturating_sub(TAIL_MAX_BYTES))..]));
        tail.drain(..tail.ceil_char_boundary(tail.len().saturating_sub(TAIL_MAX_BYTES)));
        self.said = Some(Said { attempt, kind, tail });
    }

    /// The status line, at most `width` cells less one, so that the cursor never has to leave the line.
    /// None: there is nothing to say.
    pub(crate) fn status(&self, width: usize) -> Option<String> {
        let room = width.max(WIDTH_MIN) - 1;
        let doing: Vec<String> = self.now.doing.iter().map(Doing::in_words).collect();
        if let (Some(said), [Doing::Model(attempt, _)]) = (&self.said, self.now.doing.as_slice())
            && said.attempt == *attempt
        {
            let thinks = if said.kind == Kind::Thought { " thinks" } else { "" };
            let head = format!("{}{thinks}: ", doing.join(", "));
            let tail = end_of(&said.tail, room.saturating_sub(head.width()));
            return Some(set(Tone::Faint, &fit(&format!("{head}{tail}"), room)));
        }
        let mut text = fit(&doing.join(", "), room);
        for more in self.now.left.iter().chain(&self.now.used) {
            let longer = format!("{text} · {more}");
            if longer.width() <= room {
                text = longer;
            }
        }
        (!doing.is_empty()).then(|| set(Tone::Faint, &text))
    }

    fn note(&mut self, new: &NewEvent) {
        let here = Instant::now();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "an event that is not named here changes nothing that is shown"
        )]
        match &new.event {
            Event::ModelRequested(requested) => self.asked = Some((requested.attempt, here)),
            Event::ActionProposed(proposed) => {
                let call = Call {
                    tool: words::short(proposed.tool.as_str(), 64),
                    args: words::safe(proposed.args.as_str()),
                    started: None,
                };
                self.calls.insert(proposed.action, call);
            }
            Event::ActionStarted(started) => {
                if let Some(call) = self.calls.get_mut(&started.action) {
                    call.started = Some((new.at, here));
                }
            }
            _ => {}
        }
    }

    fn told(&mut self, run: &Run, new: &NewEvent, width: usize) -> Vec<(Tone, String)> {
        let said = |tone: Tone, text: &str, most: usize| -> Vec<(Tone, String)> {
            wrap(text, width, most).into_iter().map(|line| (tone, line)).collect()
        };
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "what is not named here is said as it is said elsewhere, or not at all"
        )]
        match &new.event {
            Event::ModelReplied(replied) if !replied.reply.calls.is_empty() => {
                said(Tone::Plain, &words::safe(replied.reply.text.trim()), SAID_LINES_MAX)
            }
            Event::ActionFinished(finished) => {
                let how = match &finished.how {
                    How::Observed => "",
                    How::Recovered => " after a loss",
                    How::Reconciled => " as its reconcile command says",
                    How::Replayed { .. } => " (an earlier result)",
                    How::Answered => " (answered)",
                    How::Kept => "",
                };
                let (tone, more) = match &finished.outcome {
                    Outcome::Done(result) => (Tone::Plain, words::shown(result)),
                    Outcome::Error(error) | Outcome::NotDone(error) | Outcome::Unknown(error) => {
                        (Tone::Bad, words::safe(&error.message))
                    }
                };
                let ended = format!("{}{how}", outcome_word(&finished.outcome).replace('_', " "));
                self.ended(finished.action, &ended, new.at, tone, &more, width)
            }
            Event::ActionRefused(refused) => {
                self.ended(refused.action, "refused", new.at, Tone::Bad, &words::safe(&refused.error.message), width)
            }
            Event::ActionDenied(denied) => {
                let reason = denied.reason.as_deref().map(words::safe).unwrap_or_default();
                let how = match denied.no {
                    No::Expired => "not answered in time".to_owned(),
                    No::Person { .. } | No::Unasked => format!("denied by {}", words::safe(&denied.by)),
                };
                self.ended(denied.action, &how, new.at, Tone::Bad, &reason, width)
            }
            Event::AnswerRefused(_) | Event::ModelFailed(_) | Event::InputRefused(_) | Event::BudgetReached(_) => {
                said(Tone::Bad, &words::describe(Some(run), &new.event), NOTE_LINES_MAX)
            }
            Event::CheckFinished(check) if check.verdict.finding == Finding::Failed => {
                said(Tone::Bad, &words::describe(Some(run), &new.event), NOTE_LINES_MAX)
            }
            Event::HookFinished(hook) if hook.outcome != HookOutcome::Passed || hook.words.is_some() => {
                said(Tone::Bad, &words::describe(Some(run), &new.event), NOTE_LINES_MAX)
            }
            Event::ActionStarted(started) if started.attempt == 1 => Vec::new(),
            Event::GenerationStarted(started) => said(Tone::Faint, &words::rebuilt_short(started), NOTE_LINES_MAX),
            Event::ModelRequested(requested) => words::asked_smaller(run, requested)
                .map(|text| said(Tone::Faint, &text, NOTE_LINES_MAX))
                .unwrap_or_default(),
            // Said by what it answers.
            Event::InputReceived(InputReceived { body: Received::Answer(_), .. }) => Vec::new(),
            event => {
                let text = is_said(event.kind()).then(|| words::describe(Some(run), event));
                text.map(|text| said(Tone::Faint, &text, NOTE_LINES_MAX)).unwrap_or_default()
            }
        }
    }

    /// A call that ended: one line on what it was and how it went, and below it what came of it.
    fn ended(
        &mut self,
        id: ActionId,
        how: &str,
        at: Timestamp,
        tone: Tone,
        more: &str,
        width: usize,
    ) -> Vec<(Tone, String)> {
        let call = self.calls.remove(&id);
        let (tool, args) = call.as_ref().map_or(("", ""), |call| (call.tool.as_str(), call.args.as_str()));
        let took = call.as_ref().and_then(|call| call.started).map(|(started, _)| in_words(at.since(started)));
        let took = took.map(|took| format!(" {took}")).unwrap_or_default();
        let (head, tail) = (format!("{id} {tool}"), format!("{how}{took}"));
        let room = width.saturating_sub(head.width() + tail.width() + 4);
        let args = if room >= 8 && args != "{}" { format!(" {}", fit(args, room)) } else { String::new() };
        let mut lines = vec![(tone, fit(&format!("{head}{args} · {tail}"), width))];
        let inset = wrap(more, width.saturating_sub(3), if tone == Tone::Bad { NOTE_LINES_MAX } else { 1 });
        let below = if tone == Tone::Bad { Tone::Bad } else { Tone::Faint };
        lines.extend(inset.into_iter().map(|line| (below, format!("   {line}"))));
        lines
    }

    fn status_of(&self, run: &Run) -> Status {
        let mut doing = Vec::new();
        match &run.stage {
            Stage::Thinking(thinking) => {
                let since = self.asked.filter(|(attempt, _)| *attempt == thinking.attempt);
                doing.push(Doing::Model(thinking.attempt, since.map_or_else(Instant::now, |(_, since)| since)));
            }
            Stage::Ready(ready) => match ready.after {
                Some(AfterFailure::Retry { at }) => {
                    doing.push(Doing::Said(format!("the model again at {}", words::clock(at))));
                }
                Some(AfterFailure::Suspend | AfterFailure::Fail(_) | AfterFailure::ContextExhausted) | None => {}
            },
            Stage::Acting { actions, .. } => {
                for action in actions.values() {
                    let started = self.calls.get(&action.id).and_then(|call| call.started);
                    match (&action.life, started) {
                        (Life::Started { .. }, Some((_, since))) => {
                            let tool = words::short(action.tool.as_str(), 30);
                            doing.push(Doing::Call(action.id, tool, since));
                        }
                        (Life::Lost(_) | Life::Doubtful(..), _) => {
                            doing.push(Doing::Said(format!("{} {}", action.id, words::life(&action.life))));
                        }
                        _ => {}
                    }
                }
                let waits = owed::waits(run);
                if !waits.is_empty() {
                    doing.push(Doing::Said(format!("waits for {}", words::waits(&waits))));
                }
            }
            Stage::Verifying { verdicts, .. } => {
                let next = verdicts.iter().find(|(_, verdict)| verdict.is_none());
                let waits = owed::waits(run);
                doing.push(Doing::Said(match next {
                    Some((check, _)) => format!("check {}", words::short(check.as_str(), 30)),
                    None => format!("waits for {}", words::waits(&waits)),
                }));
            }
            Stage::Rest(_) => {}
        }
        let (spent, limits) = (&run.spent, &run.limits);
        let mut used = Vec::new();
        if spent.micros > 0 || limits.micros != Limit::Unlimited {
            used.push(format!("${:.4}", projection::usd(spent.micros)));
        }
        used.push(format!("{} tokens", counted(spent.usage.tokens())));
        Status { doing, left: scarcest(run), used }
    }
}

impl Call {
    fn of(action: &Action) -> Self {
        Self {
            tool: words::short(action.tool.as_str(), 64),
            args: words::safe(action.args.as_str()),
            started: match action.life {
                Life::Started { at, .. } => Some((at, Instant::now())),
                Life::Queued
                | Life::Held(_)
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..)
                | Life::Ended(_) => None,
            },
        }
    }
}

impl Doing {
    fn in_words(&self) -> String {
        match self {
            Doing::Model(attempt, since) => format!("{} the model, {}", attempt.turn, in_words(since.elapsed())),
            Doing::Call(id, tool, since) => format!("{id} {tool} {}", in_words(since.elapsed())),
            Doing::Said(text) => text.clone(),
        }
    }
}

/// Kinds that are worth a line as the log would say it.
fn is_said(kind: EventKind) -> bool {
    match kind {
        EventKind::RunStarted
        | EventKind::RunForked
        | EventKind::InputReceived
        | EventKind::ModelSwitched
        | EventKind::ModelRouted
        | EventKind::GenerationStarted
        | EventKind::ActionApproved
        | EventKind::ActionStarted
        | EventKind::ActionRequeued
        | EventKind::ActionProbed
        | EventKind::ActionSettled
        | EventKind::ActionRolledBack
        | EventKind::ActionNotUndone
        | EventKind::ChecksVoided
        | EventKind::CheckFinished
        | EventKind::LoopNoticed
        | EventKind::BudgetRaised
        | EventKind::ChildStarted
        | EventKind::ChildEnded
        | EventKind::SourceEndorsed
        | EventKind::SurroundingsChanged
        | EventKind::TransitionTaken => true,
        // Said at the end.
        EventKind::ModelForgone
        | EventKind::RunClaimed
        | EventKind::InputRefused
        | EventKind::ModelRequested
        | EventKind::ModelReplied
        | EventKind::ModelFailed
        | EventKind::ResultSpilled
        | EventKind::SummaryRequested
        | EventKind::SummaryFinished
        // The check says it.
        | EventKind::JudgeRequested
        | EventKind::JudgeFinished
        // Its call says the same.
        | EventKind::NoteTaken
        | EventKind::ActionProposed
        | EventKind::ActionRefused
        // The question itself says more.
        | EventKind::ActionHeld
        | EventKind::ActionDenied
        | EventKind::ActionFinished
        // Said where it matters: what it has against something is told by what it refuses.
        | EventKind::HookFinished
        // The answer is printed as the result.
        | EventKind::AnswerAccepted
        | EventKind::AnswerRefused
        | EventKind::FactSet
        | EventKind::FactVoided
        | EventKind::BudgetReached
        | EventKind::RunParked
        | EventKind::RunSuspended
        | EventKind::RunEnded => false,
    }
}

/// What is left of the limited budget of which the smallest share is left.
fn scarcest(run: &Run) -> Option<String> {
    let (spent, limits) = (&run.spent, &run.limits);
    let budgets = [
        (spent.turns, limits.turns, "turns"),
        (spent.model_calls, limits.model_calls, "model calls"),
        (spent.tool_calls, limits.tool_calls, "tool calls"),
        (spent.usage.tokens(), limits.tokens, "tokens"),
        (spent.micros, limits.micros, "USD"),
        (spent.time_ms, limits.time_ms, "time"),
    ];
    let share = |used: u64, limit: u64| u128::from(limit.saturating_sub(used)) * 1_000_000 / u128::from(limit.max(1));
    let left = budgets.into_iter().filter_map(|(used, limit, name)| match limit {
        Limit::At(limit) => Some((share(used, limit), limit.saturating_sub(used), name)),
        Limit::Unlimited => None,
    });
    let (_, left, name) = left.min_by_key(|(share, ..)| *share)?;
    Some(match name {
        "USD" => format!("${:.4} left", projection::usd(left)),
        "time" => format!("{} left", in_words(Duration::from_millis(left))),
        "tokens" => format!("{} tokens left", counted(left)),
        name => format!("{left} {name} left"),
    })
}

/// A span of time, as exact as is worth reading.
pub(crate) fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn counted(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}.{}M", number / 1_000_000, number / 100_000 % 10),
    }
}

fn set(tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        Tone::Faint => format!("\x1b[2m{text}\x1b[0m"),
        Tone::Bad => format!("\x1b[31m{text}\x1b[0m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_counts_are_as_exact_as_is_worth_reading() {
        let spans = [450, 12_000, 125_000, 7_380_000].map(|ms| in_words(Duration::from_millis(ms)));
        assert_eq!(spans, ["0.4 s", "12 s", "2 min 05 s", "2 h 03 min"]);
        assert_eq!([920, 19_940, 1_250_000].map(counted), ["920", "19k", "1.2M"]);
    }
}
