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
use crate::payload::{excerpt, one_line};
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
    /// It acted on the world, its check said no, and nothing has undone it: no proof of the work speaks for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stands: bool,
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

/// Whether a call acted on the world, its check said no, and nothing has undone it.
pub(crate) fn stands_unproven(action: &Action) -> bool {
    match (&action.life, action.effect) {
        (Life::Ended(Ended::Error(error)), EffectClass::External) => error.class == class::CHECK_FAILED,
        (Life::Ended(Ended::Error(_)), EffectClass::Read | EffectClass::Workspace)
        | (Life::Ended(Ended::Refused(_) | Ended::NotDone(_) | Ended::Done { .. }), _)
        | (
            Life::Unknown(_)
            | Life::Doubtful(..)
            | Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Lost(_),
            _,
        ) => false,
    }
}

/// A change of the workspace that ran and failed, or an act on the world whose check failed and that stands. A call that did not run was answered; one whose outcome is unknown is no
/// bar (`semantics.md` D3); and of the world outside, what did not happen is an answer, and what is unknown has a rule of its
/// own (D8).
fn failed(action: &Action) -> Option<Failed> {
    let stands = stands_unproven(action);
    let error = match (&action.life, action.effect) {
        (Life::Ended(Ended::Error(error)), EffectClass::Workspace) => error,
        (Life::Ended(Ended::Error(error)), EffectClass::External) if stands => error,
        (Life::Ended(Ended::Error(_)), EffectClass::Read | EffectClass::External)
        | (Life::Ended(Ended::Refused(_) | Ended::NotDone(_) | Ended::Done { .. }), _)
        | (
            Life::Unknown(_)
            | Life::Doubtful(..)
            | Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Lost(_),
            _,
        ) => return None,
    };
    let is_work = ![class::UNKNOWN_OUTCOME, class::CANCELLED].contains(&error.class.as_str());
    is_work.then(|| Failed { action: action.id, tool: action.tool.clone(), error: shown(error), stands })
}

fn shown(error: &ToolError) -> String {
    excerpt(&one_line(&format!("{}: {}", error.class, error.message.trim())), SHOWN)
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
    let failed: Vec<_> = finish
        .failed
        .iter()
        .filter(|failed| failed.stands || !is_proven)
        // Whether it is undone is not known: that is what the end waits for (`semantics.md` D8).
        .filter(|failed| !is_being_undone(run, failed.action))
        .filter(|failed| !names(text, &failed.action.to_string()))
        .collect();
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
        format!("{id} is open ({what}: {})", excerpt(&one_line(text), SHOWN))
    });
    let failed = failed.iter().map(|failed| format!("{} {} failed ({})", failed.action, failed.tool, failed.error));
    let mut reason: Vec<_> = open.chain(failed).collect();
    if announces {
        reason.push("your reply says what comes next, and calls no tool".to_owned());
    }
    Some((Unfinished { notes, calls, announces, again }, reason.join("; ")))
}

/// Whether what was called to undo this action is still unknown.
fn is_being_undone(run: &Run, action: ActionId) -> bool {
    run.open.values().any(|open| open.undoes().is_some_and(|undone| undone.action == action))
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

/// How a last sentence begins that says what its speaker does next, whatever that is.
const ANNOUNCING: [&str; 18] = [
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
    "i still need to ",
    "i now need to ",
    "the next step is to ",
    "my next step is to ",
];

/// How one begins that does so if what follows is an act.
const LEADING: [&str; 16] = [
    "i will ",
    "i'll ",
    "let me ",
    "let's ",
    "i need to ",
    "i should ",
    "i'd like to ",
    "first, i will ",
    "first, i'll ",
    "first, let me ",
    "then i will ",
    "then i'll ",
    "going to ",
    "time to ",
    "now to ",
    "next: ",
];

/// What an agent does with its tools.
const ACTS: [&str; 40] = [
    "add",
    "analyse",
    "analyze",
    "apply",
    "begin",
    "build",
    "call",
    "change",
    "check",
    "continue",
    "create",
    "delete",
    "edit",
    "examine",
    "execute",
    "fetch",
    "find",
    "fix",
    "implement",
    "inspect",
    "install",
    "investigate",
    "list",
    "look",
    "make",
    "move",
    "open",
    "proceed",
    "query",
    "read",
    "remove",
    "rerun",
    "retry",
    "run",
    "search",
    "start",
    "test",
    "update",
    "verify",
    "write",
];

/// The same, under way.
const UNDER_WAY: [&str; 16] = [
    "applying",
    "building",
    "calling",
    "checking",
    "continuing",
    "creating",
    "fixing",
    "installing",
    "looking",
    "proceeding",
    "reading",
    "running",
    "searching",
    "testing",
    "updating",
    "writing",
];

/// What makes an announcement an offer, or an advice to somebody else.
const OFFERS: [&str; 12] = [
    " if you",
    " once you",
    " when you",
    " whenever you",
    " unless you",
    " should you",
    " you can",
    " you could",
    " for you",
    " your side",
    " recommend",
    " suggest",
];

/// Headings over what is still to come.
const HEADINGS: [&str; 8] =
    ["next steps", "next step", "remaining steps", "remaining work", "to do", "todo", "still to do", "what is left"];

/// Whether a reply ends in saying what comes next. Only a guess, by its last lines: so it only brings a word. A false one costs
/// a turn, a missed one a lie: where its speaker is the one who is to act, it is an announcement; where it is an offer, an
/// advice or a label, it is none.
fn announces(text: &str) -> bool {
    let text = text.trim_end();
    // What ends in a block of code or of output says nothing of its own.
    if text.ends_with("```") || text.ends_with("~~~") {
        return false;
    }
    let text = text.trim_end_matches(['*', '_', '`']).trim_end();
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let Some(last) = lines.last() else { return false };
    let mut sentences = last.split_inclusive(['.', '!', '?', ':']).map(str::trim).filter(|one| !one.is_empty());
    let last_sentence = sentences.next_back().unwrap_or_default();
    if last.ends_with(':') {
        // A key, a label, a drive: `services:`, `Signed-off-by:`. What is said in words and then not shown is another thing.
        let label = last.trim_end_matches(':');
        let is_label = !label.contains(' ') && !UNDER_WAY.contains(&label);
        return !is_label && !OFFERS.iter().any(|offer| last.contains(offer));
    }
    if OFFERS.iter().any(|offer| last.contains(offer)) {
        return false;
    }
    let is_next = sentences.next_back() == Some("next:") && ACTS.contains(&first_word(last_sentence));
    is_next || acts_next(last_sentence) || lists_what_is_left(&lines)
}

/// A line without its markup, in lower case.
fn plain(line: &str) -> String {
    let line = line.to_lowercase().replace('’', "'").replace("...", "…");
    line.trim().trim_start_matches(['#', '>', '*', '_', '`', ' ']).trim_end_matches(['*', '_', '`', ' ']).to_owned()
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

fn acts_next(sentence: &str) -> bool {
    if ANNOUNCING.iter().any(|start| sentence.starts_with(start)) {
        return true;
    }
    let sentence =
        ["now, ", "next, ", "now ", "next "].iter().find_map(|word| sentence.strip_prefix(word)).unwrap_or(sentence);
    let led = LEADING.iter().find_map(|start| sentence.strip_prefix(start));
    let led =
        led.map(|rest| ["now ", "also ", "then ", "next "].iter().find_map(|w| rest.strip_prefix(w)).unwrap_or(rest));
    let acts = led.is_some_and(|rest| ACTS.contains(&first_word(rest)));
    // "Running the tests…" and nothing after it.
    let is_under_way = UNDER_WAY.contains(&first_word(sentence)) && sentence.ends_with(['…', '.']) && {
        let words = sentence.split_whitespace().count();
        words <= 6 && (sentence.ends_with('…') || sentence.ends_with("..") || sentence.ends_with(" now."))
    };
    acts || is_under_way
}

/// A list of acts under a heading that says they are still to come.
fn lists_what_is_left(lines: &[String]) -> bool {
    let is_item = |line: &String| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with(['-', '•', '+']) || (rest.len() < line.len() && rest.starts_with(['.', ')']))
    };
    let items = lines.iter().rev().take_while(|line| is_item(line)).count();
    let Some(heading) = lines.len().checked_sub(items + 1).and_then(|at| lines.get(at)).filter(|_| items > 0) else {
        return false;
    };
    let heading = heading.trim_end_matches([':', '*', ' ']);
    let acts = lines[lines.len() - items..].iter().any(|line| {
        let words = line.trim_start_matches(|c: char| !c.is_alphabetic());
        ACTS.contains(&first_word(words))
    });
    acts && HEADINGS.contains(&heading)
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
            "Let me run the tests.",
            "I'll check the log next.",
            "I will write the file.",
            "First, let me read the configuration.",
            "The build is green. Let me verify the output.",
            "Let me look at the failing test:",
            "Now let's run the tests",
            "Next: run the tests.",
            "Running the tests…",
            "Running the tests now.",
            "Testing...",
            "Running:",
            "I need to update the parser.",
            "The next step is to deploy it.",
            "I still need to fix two of them.",
            "Here are the results of the test run:",
            "Next steps:",
            "Next steps:\n1. Run the tests\n2. Fix what fails",
            "## To do\n- update the docs\n- run the linter",
            "**Remaining steps:**\n- implement the second half",
            "Then I'll update the changelog.",
            "Going to check the other file.",
            "Time to build it.",
            "Now I'll continue with the second part.",
            "I found the bug in `a.rs`. I will fix it.",
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
            "Let me know.",
            "I'll leave it at that.",
            "I will be glad to help further.",
            "If you want, I will run the tests again once you have the key.",
            "I'll add the other one if you like.",
            "Let me know when you are back, and I will check again when you do.",
            "Done. I ran the tests, and they pass.",
            "The order was not placed: the card was refused.",
            "services:",
            "The file now begins so:\n```yaml\nservices:\n```",
            "Signed-off-by:",
            "C:",
            "Next steps for you: rotate the key.",
            "Next steps I recommend:\n1. Run the tests in CI",
            "Next steps:\n- You can run it with `make run`",
            "I need to be honest: nothing was changed.",
            "I will not change anything else.",
            "I should mention that two tests are skipped.",
            "Running time: 3 s.",
            "Testing showed that it works.",
            "Running the tests took 3 s.",
            "It will run tonight.",
            "To run it yourself you can use this command:",
            "The tool is going to be retired in May.",
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
