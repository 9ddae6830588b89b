//! Whether a reply without calls can be the end. A plain answer is, at once. It is none while something that the run itself
//! has begun is open: a note of an open loop or a step, or a change of files that failed in the last turn and that the reply
//! does not name. The model is told once what exactly is open; if its next reply leaves all of it as it is, the run ends as
//! incomplete. Words alone only bring a word: a reply that says what comes next is asked to do it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Ended, Life};
use crate::context::note::NoteKind;
use crate::event::Unfinished;
use crate::ids::{ActionId, NoteId, ToolName};
use crate::outcome::{ToolError, class};
use crate::payload::excerpt;
use crate::run::Run;
use crate::task::{EffectClass, Mode};

/// How often a reply that comes too early is answered at most, though each time less is open than before.
const WORDS_MAX: u32 = 4;
/// Of a note or an error so much is shown.
const SHOWN: usize = 120;

/// What stands between the run and its end. Begins anew with a person's message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// Changes of the last turn that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Failed>,
    /// What the model was told is open, and how often it was told.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    notes: BTreeSet<NoteId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    calls: BTreeSet<ActionId>,
    #[serde(default)]
    told: u32,
    /// Why the run is at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failed {
    action: ActionId,
    tool: ToolName,
    /// The start of its error.
    error: String,
}

impl Finish {
    pub(crate) fn is_idle(&self) -> bool {
        self == &Self::default()
    }

    /// Takes in the calls of a turn, all told.
    pub(crate) fn turn<'a>(&mut self, actions: impl Iterator<Item = &'a Action>) {
        self.failed = actions.filter_map(failed).collect();
    }

    /// The model was told, or the run is at its end.
    pub(crate) fn refused(&mut self, unfinished: &Unfinished, reason: &str) {
        self.told += 1;
        self.notes = unfinished.notes.iter().copied().collect();
        self.calls = unfinished.calls.iter().copied().collect();
        if unfinished.again {
            self.over = Some(reason.to_owned());
        }
    }
}

/// A change of the workspace that ran and failed. A call that did not run was answered; one whose outcome is unknown is no
/// bar (`semantics.md` D3); and of the world outside, what did not happen is an answer, and what is unknown has a rule of its
/// own (D8).
fn failed(action: &Action) -> Option<Failed> {
    let error = match (&action.life, action.effect) {
        (Life::Ended(Ended::Error(error)), EffectClass::Workspace) => error,
        (Life::Ended(Ended::Error(_)), EffectClass::Read | EffectClass::External)
        | (Life::Ended(Ended::Refused(_) | Ended::NotDone(_) | Ended::Done { .. }), _)
        | (
            Life::Unknown(_) | Life::Doubtful(..) | Life::Queued | Life::Held(_) | Life::Started { .. } | Life::Lost(_),
            _,
        ) => {
            return None;
        }
    };
    let is_work = ![class::UNKNOWN_OUTCOME, class::CANCELLED].contains(&error.class.as_str());
    is_work.then(|| Failed { action: action.id, tool: action.tool.clone(), error: shown(error) })
}

fn shown(error: &ToolError) -> String {
    excerpt(&format!("{}: {}", error.class, error.message.trim()), SHOWN)
}

/// What is in the way of taking this reply for the end, and the words for it. None: nothing.
pub(crate) fn unfinished(run: &Run, text: &str) -> Option<(Unfinished, String)> {
    if run.mode == Mode::Shadow {
        return None;
    }
    let finish = &run.finish;
    let open: Vec<_> = [NoteKind::OpenLoop, NoteKind::Step]
        .into_iter()
        .flat_map(|kind| run.memory.notes_of(kind).map(move |(id, kept)| (id, kind, kept.text.trim().to_owned())))
        .collect();
    // Where checks or the answer's own evidence prove the work, they say what a failed call means.
    let is_proven = !run.task.acceptance.is_empty() || run.task.answer.is_some();
    let failed: Vec<_> =
        finish.failed.iter().filter(|failed| !is_proven && !names(text, &failed.action.to_string())).collect();
    let is_open = !open.is_empty() || !failed.is_empty();
    // Once with checks to run: they show what was left undone.
    let announces =
        announces(text) && run.task.answer.is_none() && (run.task.acceptance.is_empty() || finish.told == 0);
    if !is_open && !announces {
        return None;
    }
    let notes: Vec<_> = open.iter().map(|(id, ..)| *id).collect();
    let calls: Vec<_> = failed.iter().map(|failed| failed.action).collect();
    let was_told = !finish.notes.is_empty() || !finish.calls.is_empty();
    let some_settled =
        finish.notes.iter().any(|id| !notes.contains(id)) || finish.calls.iter().any(|id| !calls.contains(id));
    let again = is_open && was_told && (!some_settled || finish.told >= WORDS_MAX);
    let open = open.iter().map(|(id, kind, text)| {
        let what = match kind {
            NoteKind::Step => "step",
            NoteKind::OpenLoop | NoteKind::Decision | NoteKind::Finding | NoteKind::Constraint | NoteKind::Close => {
                "open loop"
            }
        };
        format!("{id} is open ({what}: {})", excerpt(text, SHOWN))
    });
    let failed = failed.iter().map(|failed| format!("{} {} failed ({})", failed.action, failed.tool, failed.error));
    let mut reason: Vec<_> = open.chain(failed).collect();
    if announces {
        reason.push("your reply says what comes next, and calls no tool".to_owned());
    }
    Some((Unfinished { notes, calls, announces, again }, reason.join("; ")))
}

/// What the model is told.
pub(crate) fn words(unfinished: &Unfinished, reason: &str) -> String {
    let mut text = format!("This is not the end yet: {reason}.");
    if !unfinished.notes.is_empty() {
        text.push_str(
            " Do what is open, then close its note; if it is settled or cannot be done, close it and say so.",
        );
    }
    if !unfinished.calls.is_empty() {
        text.push_str(
            " Make a failed call again in a way that works, or name its id in your answer and say what is not done.",
        );
    }
    if unfinished.announces {
        text.push_str(" Call the tool now, or reply with your final answer.");
    }
    text
}

/// Whether a text has this id as a word of its own.
fn names(text: &str, id: &str) -> bool {
    text.match_indices(id).any(|(place, _)| {
        let before = text[..place].chars().next_back();
        let after = text[place + id.len()..].chars().next();
        let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        ends(before) && ends(after)
    })
}

/// How a last sentence begins that says what comes next.
const ANNOUNCING: [&str; 14] = [
    "i will now ",
    "i'll now ",
    "now i will ",
    "now i'll ",
    "now, i will ",
    "now, i'll ",
    "next, i will ",
    "next, i'll ",
    "next i will ",
    "next i'll ",
    "now let me ",
    "let me now ",
    "i am going to ",
    "i'm going to ",
];

/// Whether a reply ends in saying what comes next. Only a guess, by its last line: so it only brings a word.
fn announces(text: &str) -> bool {
    let text = text.trim_end().trim_end_matches(['*', '_', '`']).trim_end();
    if text.ends_with(':') {
        return true;
    }
    let line = text.lines().next_back().unwrap_or_default().to_lowercase().replace('’', "'");
    let mut sentences =
        line.split_inclusive(['.', '!', '?', ':']).map(str::trim).filter(|sentence| !sentence.is_empty());
    sentences.next_back().is_some_and(|last| ANNOUNCING.iter().any(|start| last.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_says_what_comes_next_is_told_from_an_answer() {
        for text in [
            "Now I will run the tests:",
            "The file is there. I'll now run the tests.",
            "Done with that.\n\nNext, I will look at the log",
            "**Now let me check the result:**",
            "I’m going to fix it.",
        ] {
            assert!(announces(text), "{text}");
        }
        for text in [
            "42",
            "I will now explain: the rate is above the threshold. It is 2 %.",
            "Let me know if you need more.",
            "All tests pass. What was wrong: a comma.",
            "You will now see it in the list.",
            "",
        ] {
            assert!(!announces(text), "{text}");
        }
    }

    #[test]
    fn an_id_is_named_as_a_word() {
        assert!(names("a7 failed", "a7") && names("(a7)", "a7") && names("see a7", "a7"));
        assert!(!names("a70 failed", "a7") && !names("beta7", "a7"));
    }
}
