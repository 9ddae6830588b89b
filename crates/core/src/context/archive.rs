//! What of a run's events is worth finding again once it has left the model's window, and the names it goes by.
//!
//! A [`Handle`] is derived from the journal alone, so that it means the same after a restart, in every generation and to
//! every worker. What the pieces say is made into text elsewhere: payloads are not opened here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Received};
use crate::ids::{ActionId, BadId, NoteId, Seq, TurnId};
use crate::image::ImageRef;
use crate::input::Truth;
use crate::outcome::{Outcome, ToolError};
use crate::payload::{Content, Payload, excerpt, one_line};
use crate::task::EffectClass;

/// The name of one piece of a run's past. Serialises as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Handle {
    /// `u12`: a person's message, by the number of its event; `u1` is the task's goal.
    Message(Seq),
    /// `a7`: an action: what was called, with which arguments, and what came of it. `e7`, its evidence, is another spelling.
    Action(ActionId),
    /// `t12`: the words of the model's reply of that turn.
    Reply(TurnId),
    /// `c31`: what a check said, by the number of its event.
    Check(Seq),
    /// `effects`: a line for each of a kind, however many there were. It only repeats what other pieces say, and so is read
    /// and never found.
    List(List),
}

/// Lists that the control block shows the newest of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// What was done to the world, and what became of it.
    Effects,
    /// What the model wrote down: decisions, findings, steps and all others.
    Notes,
    /// What people said.
    Messages,
    /// Files that were to be changed.
    Files,
}

impl List {
    pub const ALL: [List; 4] = [List::Effects, List::Notes, List::Messages, List::Files];

    pub fn as_str(self) -> &'static str {
        match self {
            List::Effects => "effects",
            List::Notes => "notes",
            List::Messages => "messages",
            List::Files => "files",
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handle::Message(seq) => f.pad(&format!("u{seq}")),
            Handle::Action(action) => action.fmt(f),
            Handle::Reply(turn) => turn.fmt(f),
            Handle::Check(seq) => f.pad(&format!("c{seq}")),
            Handle::List(list) => list.fmt(f),
        }
    }
}

impl FromStr for Handle {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId {
            text: text.to_owned(),
            expected: "a handle: a7 is an action (e7 its evidence), t12 what was said in turn 12, u1 a person's message, \
                       c31 a check; effects, notes, messages and files are lists",
        };
        if let Some(list) = List::ALL.into_iter().find(|list| list.as_str() == text) {
            return Ok(Handle::List(list));
        }
        let letter = text.chars().next().ok_or_else(bad)?;
        let digits = &text[letter.len_utf8()..];
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        if !is_number {
            return Err(bad());
        }
        let small = || digits.parse::<u32>().map_err(|_| bad());
        let seq = || digits.parse::<u64>().map(Seq).map_err(|_| bad());
        match letter {
            'u' => Ok(Handle::Message(seq()?)),
            'a' | 'e' => Ok(Handle::Action(ActionId(small()?))),
            't' => Ok(Handle::Reply(TurnId(small()?))),
            'c' => Ok(Handle::Check(seq()?)),
            _ => Err(bad()),
        }
    }
}

impl From<Handle> for String {
    fn from(handle: Handle) -> String {
        handle.to_string()
    }
}

impl TryFrom<String> for Handle {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

/// What one event adds to a piece. A piece is what all events under its handle say, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    pub handle: Handle,
    /// What the piece is, in a word or two, where this event tells: the tool's name, `user message`, `reply`, `check unit`.
    pub what: Option<String>,
    pub says: Vec<Says<'a>>,
}

/// Something said, on lines of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says<'a> {
    /// Our own words, or a tool's in our frame.
    Label(String),
    /// Verbatim.
    Text(&'a str),
    Payload(&'a Payload),
    Content(&'a Content),
}

/// What an event adds to the archive. None: nothing anybody would look for.
pub fn entry(seq: Seq, event: &Event) -> Option<Entry<'_>> {
    match event {
        Event::RunStarted(started) => Some(Entry {
            handle: Handle::Message(seq),
            what: named("user message"),
            says: with_images(&started.task.goal, &started.task.images),
        }),
        Event::InputReceived(received) => match &received.body {
            Received::Message(text) => {
                let says = with_images(text, &received.images);
                Some(Entry { handle: Handle::Message(seq), what: named("user message"), says })
            }
            Received::Answer(_) if !received.images.is_empty() => {
                let says = with_images("", &received.images);
                Some(Entry { handle: Handle::Message(seq), what: named("user message"), says })
            }
            // The words are the action's result, and found there.
            Received::Answer(_)
            | Received::Cancel
            | Received::LateOutcome(_)
            | Received::ChildSettled { .. } => None,
        },
        Event::ModelReplied(replied) if !replied.reply.text.trim().is_empty() => Some(Entry {
            handle: Handle::Reply(replied.attempt.turn),
            what: named("reply"),
            says: vec![Says::Text(&replied.reply.text)],
        }),
        Event::ActionProposed(proposed) => Some(Entry {
            handle: Handle::Action(proposed.action),
            what: Some(proposed.tool.to_string()),
            says: vec![label(&format!("{} was called with", proposed.tool)), Says::Payload(proposed.said())],
        }),
        Event::ActionRefused(refused) => Some(of_action(refused.action, of_error("It was refused", &refused.error))),
        Event::ActionDenied(denied) => {
            let why = denied.reason.as_deref().map(Says::Text);
            let says = [label(&format!("{} said no.", denied.by))].into_iter().chain(why).collect();
            Some(of_action(denied.action, says))
        }
        Event::ActionFinished(finished) => Some(of_action(finished.action, of_outcome(&finished.outcome))),
        Event::ActionSettled(settled) => {
            let says = match &settled.truth {
                Truth::Done(content) => vec![label("It is known now that it was done:"), Says::Content(content)],
                Truth::NotDone => vec![label("It is known now that it was not done.")],
            };
            Some(of_action(settled.action, says))
        }
        Event::ActionRolledBack(back) => {
            let paths = if back.paths.is_empty() { "nothing had changed".to_owned() } else { back.paths.join(", ") };
            Some(of_action(back.action, vec![label("What it had changed was undone:"), Says::Label(paths)]))
        }
        Event::ActionNotUndone(not_undone) => Some(of_action(
            not_undone.action,
            vec![label("It was to be undone, and is still there:"), Says::Text(&not_undone.reason)],
        )),
        Event::CheckFinished(finished) => {
            let word = finished.verdict.finding.as_str();
            let verdict = format!("Check {} {word} in round {}.", finished.check, finished.round);
            Some(Entry {
                handle: Handle::Check(seq),
                what: Some(format!("check {}", finished.check)),
                says: vec![Says::Label(verdict), Says::Content(&finished.verdict.evidence)],
            })
        }
        Event::ModelReplied(_)
        | Event::RunForked(_)
        | Event::RunClaimed(_)
        | Event::InputRefused(_)
        | Event::ModelRequested(_)
        | Event::ModelFailed(_)
        | Event::ModelSwitched(_)
        | Event::ModelForgone(_)
        | Event::ModelRouted(_)
        | Event::GenerationStarted(_)
        | Event::ResultSpilled(_)
        // Sources are found, never what was made of them.
        | Event::SummaryRequested(_)
        | Event::SummaryFinished(_)
        | Event::JudgeRequested(_)
        | Event::JudgeFinished(_)
        // The call that wrote it down says the same.
        | Event::NoteTaken(_)
        | Event::ActionHeld(_)
        | Event::ActionApproved(_)
        | Event::ActionStarted(_)
        | Event::ActionRequeued(_)
        | Event::ActionProbed(_)
        | Event::AnswerAccepted(_)
        | Event::AnswerRefused(_)
        | Event::ChecksVoided(_)
        | Event::HookFinished(_)
        | Event::LoopNoticed(_)
        | Event::FactSet(_)
        | Event::FactVoided(_)
        | Event::BudgetReached(_)
        | Event::BudgetRaised(_)
        // The run goes on with what they brought, and each has an archive of its own.
        | Event::ChildStarted(_)
        | Event::ChildEnded(_)
        | Event::SourceEndorsed(_)
        | Event::SurroundingsChanged(_)
        | Event::TransitionTaken(_)
        | Event::RunParked(_)
        | Event::RunSuspended(_)
        | Event::RunEnded(_) => None,
    }
}

/// A person's words, and a line for each image: what was shown is not kept as text.
fn with_images<'a>(text: &'a str, images: &[ImageRef]) -> Vec<Says<'a>> {
    let words = (!text.is_empty() || images.is_empty()).then_some(Says::Text(text));
    words.into_iter().chain(images.iter().map(|image| Says::Label(image.label(Some(UNSEEN))))).collect()
}

/// What is said of an image that is asked back for.
const UNSEEN: &str = "recall cannot show it; ask for it to be sent again if you need it";

/// The line an event adds to a list. None: it adds none.
pub fn listed(seq: Seq, event: &Event) -> Option<Entry<'_>> {
    let (list, line) = match event {
        Event::ActionProposed(proposed) if proposed.effect == EffectClass::External => {
            let args = excerpt(proposed.said().as_str(), LISTED_ARGS);
            (List::Effects, format!("{} {} {args}: proposed", proposed.action, proposed.tool))
        }
        Event::ActionStarted(started) => match (started.effect, &started.target) {
            (EffectClass::External, _) => (List::Effects, format!("{}: started", started.action)),
            (EffectClass::Workspace, Some(target)) => (List::Files, format!("{} {}", started.action, target.path)),
            (EffectClass::Workspace | EffectClass::Read, _) => return None,
        },
        Event::ActionFinished(finished) if finished.effect == EffectClass::External => {
            let became = match &finished.outcome {
                Outcome::Done(content) => format!("done → {}", excerpt(content.shown().as_str(), LISTED_ARGS)),
                Outcome::NotDone(error) => format!("not done: {}", error.message),
                Outcome::Error(error) | Outcome::Unknown(error) => format!("unknown: {}", error.message),
            };
            (List::Effects, format!("{}: {became}", finished.action))
        }
        Event::ActionSettled(settled) => {
            let became = match &settled.truth {
                Truth::Done(_) => "done",
                Truth::NotDone => "not done",
            };
            (List::Effects, format!("{}: known now: {became}", settled.action))
        }
        Event::NoteTaken(taken) => {
            let cites = taken.note.cites.join(", ");
            let of = taken.note.replaces.as_deref().map(|id| format!(" for {id}")).unwrap_or_default();
            let cites = if cites.is_empty() { cites } else { format!(" ({cites})") };
            let id = NoteId(taken.action.0);
            (List::Notes, format!("{id} {}{of}: {}{cites}", taken.note.kind.as_str(), taken.note.text))
        }
        Event::InputReceived(received) => match &received.body {
            Received::Message(text) => {
                let images = received.images.iter().map(|image| format!(" {}", image.label(None)));
                (List::Messages, format!("u{seq}: {text}{}", images.collect::<String>()))
            }
            Received::Answer(_) | Received::Cancel | Received::LateOutcome(_) | Received::ChildSettled { .. } => {
                return None;
            }
        },
        Event::ActionProposed(_)
        | Event::ActionFinished(_)
        | Event::ActionRefused(_)
        | Event::ActionDenied(_)
        | Event::ActionRolledBack(_)
        | Event::ActionNotUndone(_)
        | Event::CheckFinished(_)
        | Event::RunStarted(_)
        | Event::ModelReplied(_)
        | Event::RunForked(_)
        | Event::RunClaimed(_)
        | Event::InputRefused(_)
        | Event::ModelRequested(_)
        | Event::ModelFailed(_)
        | Event::ModelSwitched(_)
        | Event::ModelRouted(_)
        | Event::ModelForgone(_)
        | Event::GenerationStarted(_)
        | Event::ResultSpilled(_)
        | Event::SummaryRequested(_)
        | Event::SummaryFinished(_)
        | Event::JudgeRequested(_)
        | Event::JudgeFinished(_)
        | Event::ActionHeld(_)
        | Event::ActionApproved(_)
        | Event::ActionRequeued(_)
        | Event::ActionProbed(_)
        | Event::AnswerAccepted(_)
        | Event::AnswerRefused(_)
        | Event::ChecksVoided(_)
        | Event::HookFinished(_)
        | Event::LoopNoticed(_)
        | Event::FactSet(_)
        | Event::FactVoided(_)
        | Event::BudgetReached(_)
        | Event::BudgetRaised(_)
        | Event::ChildStarted(_)
        | Event::ChildEnded(_)
        | Event::SourceEndorsed(_)
        | Event::SurroundingsChanged(_)
        | Event::TransitionTaken(_)
        | Event::RunParked(_)
        | Event::RunSuspended(_)
        | Event::RunEnded(_) => return None,
    };
    // Its lines are counted: one each.
    let line = one_line(&line);
    Some(Entry {
        handle: Handle::List(list),
        what: Some(format!("list of {list}")),
        says: vec![Says::Label(excerpt(&line, LINE_MAX))],
    })
}

/// How much of arguments and receipts a line has; and the most of a line.
const LISTED_ARGS: usize = 240;
const LINE_MAX: usize = 600;

fn of_action(action: ActionId, says: Vec<Says<'_>>) -> Entry<'_> {
    Entry { handle: Handle::Action(action), what: None, says }
}

fn of_outcome(outcome: &Outcome) -> Vec<Says<'_>> {
    match outcome {
        Outcome::Done(content) => vec![label("Its result:"), Says::Content(content)],
        Outcome::Error(error) => of_error("It failed", error),
        Outcome::NotDone(error) => of_error("It did not happen", error),
        Outcome::Unknown(error) => of_error("Nobody knows what became of it", error),
    }
}

fn of_error<'a>(became: &str, error: &'a ToolError) -> Vec<Says<'a>> {
    let mut says = vec![label(&format!("{became} ({}):", error.class)), Says::Text(&error.message)];
    says.extend(error.hint.as_deref().map(Says::Text));
    if let Some(data) = &error.data {
        says.extend([label("It had printed:"), Says::Content(data)]);
    }
    says
}

fn named(what: &str) -> Option<String> {
    Some(what.to_owned())
}

fn label<'a>(text: &str) -> Says<'a> {
    Says::Label(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ActionFinished, How, InputReceived, ModelReplied, Settled};
    use crate::ids::{AttemptId, InputId};
    use crate::outcome::{Finish, Reply, class};

    #[test]
    fn a_handle_reads_as_it_prints() {
        for text in ["u1", "u12", "a7", "t12", "c31", "effects", "notes", "messages", "files"] {
            let handle: Handle = text.parse().expect("a handle");
            assert_eq!(handle.to_string(), text);
            let json = serde_json::to_string(&handle).expect("serialises");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Handle>(&json).expect("reads"), handle);
        }
        assert_eq!("e7".parse(), Ok(Handle::Action(ActionId(7))), "evidence is found with its action");
    }

    #[test]
    fn what_is_no_handle_says_what_one_is() {
        for text in
            ["", "7", "a", "a0", "a07", "x7", "a-1", "a 7", "é7", "a99999999999", "u99999999999999999999", "blob:00"]
        {
            let error = text.parse::<Handle>().expect_err(text).to_string();
            assert!(error.contains(&text.escape_debug().to_string()) && error.contains("a7 is an action"), "{error}");
        }
    }

    #[test]
    fn an_entry_has_the_handle_of_what_it_is_about() {
        let message = Event::InputReceived(InputReceived {
            input: InputId::new("i"),
            body: Received::Message("hello".into()),
            images: Vec::new(),
        });
        let found = entry(Seq(12), &message).expect("people are heard");
        assert_eq!((found.handle.to_string().as_str(), found.says), ("u12", vec![Says::Text("hello")]));

        let error = ToolError {
            data: Some(Content::Inline(Payload::string("half"))),
            ..ToolError::new(class::EXIT, "It broke.")
        };
        let failed = Event::ActionFinished(ActionFinished {
            action: ActionId(7),
            attempt: 1,
            effect: EffectClass::Read,
            outcome: Outcome::Error(error),
            how: How::Observed,
            cost_micros: 0,
            brings: Vec::new(),
            left: None,
        });
        let found = entry(Seq(3), &failed).expect("failures are remembered");
        assert_eq!(found.handle, Handle::Action(ActionId(7)));
        assert!(found.says.contains(&Says::Text("It broke.")), "{found:?}");
        assert!(found.says.contains(&Says::Content(&Content::Inline(Payload::string("half")))), "{found:?}");
    }

    #[test]
    fn a_reply_without_words_leaves_nothing_to_find() {
        let reply = |text: &str| {
            Event::ModelReplied(ModelReplied {
                attempt: AttemptId { turn: TurnId(4), attempt: 2 },
                reply: Reply {
                    text: text.to_owned(),
                    calls: vec![],
                    finish: Finish::Stop,
                    usage: None,
                    repaired: None,
                    wired: None,
                },
                usage: crate::budget::Usage::default(),
                settled: Settled::Reported,
                micros: 0,
            })
        };
        assert_eq!(entry(Seq(9), &reply(" \n")), None);
        assert_eq!(entry(Seq(9), &reply("I see.")).map(|found| found.handle), Some(Handle::Reply(TurnId(4))));
    }
}
