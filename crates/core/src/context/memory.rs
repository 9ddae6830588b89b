//! What the control block is made from: a fold over typed events, never a model's prose. People's messages, the model's own
//! notes, effects on the world, changed files, rule files as read, verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::check::{Finding, Verdict};
use crate::context::arguments::shortened;
use crate::context::note::{Note, NoteKind};
use crate::ids::{ActionId, CheckName, EvidenceId, NoteId, Seq, ToolName};
use crate::outcome::{ToolError, class};
use crate::payload::{Content, excerpt};
use crate::prompt::Item;
use crate::run::Run;
use crate::task::{Builtin, EffectClass, ToolBody};

/// Everything a fresh model must know, beside what the task itself says. Bounded by what is live.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What people said after the start, in order.
    pub messages: Vec<Message>,
    /// Live notes of the model.
    pub notes: BTreeMap<NoteId, Kept>,
    /// The last steps that were closed, oldest first, and how many there were.
    pub steps_done: Vec<(NoteId, String)>,
    pub steps_done_count: u32,
    /// External actions that were started, and what became of them.
    pub effects: BTreeMap<ActionId, Effect>,
    /// Files the run changed, and by which action last.
    pub changed: BTreeMap<String, ActionId>,
    /// Rule files whose content now is not what was captured at the start: data, not rules.
    pub rules_read: BTreeMap<String, RuleRead>,
    /// Of the last round of acceptance that was judged.
    pub verdicts: BTreeMap<CheckName, LastVerdict>,
    /// Grows with everything that counts as getting somewhere.
    pub progress: u64,
    /// Calls that succeeded before, by what they were and brought.
    known_calls: Arc<BTreeSet<u64>>,
}

/// A person's message, named `u` and its event's number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub seq: Seq,
    pub item: Arc<Item>,
    /// What accounts for it. None: nothing yet, and it stays verbatim.
    pub reviewed: Option<Reviewed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reviewed {
    /// A note that cites it.
    Note(NoteId),
    /// The run came to its end after it.
    End,
}

/// A live note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub kind: NoteKind,
    pub text: String,
    pub cites: Vec<String>,
    pub seq: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub tool: ToolName,
    /// Its arguments: whole where they are not very long and what became of it is open, else shortened.
    pub args: String,
    pub state: EffectState,
    /// The start of its result.
    pub receipt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    Pending,
    Done,
    NotDone,
    Unknown,
    /// It happened, and its compensation too.
    Compensated,
}

impl EffectState {
    /// Whether it is still to be found out what became of it.
    pub fn is_open(self) -> bool {
        match self {
            EffectState::Pending | EffectState::Unknown => true,
            EffectState::Done | EffectState::NotDone | EffectState::Compensated => false,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            EffectState::Pending => "pending",
            EffectState::Done => "done",
            EffectState::NotDone => "not done",
            EffectState::Unknown => "unknown",
            EffectState::Compensated => "done and undone by its compensation",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRead {
    pub action: ActionId,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVerdict {
    pub finding: Finding,
    pub text: String,
}

/// Closed steps that are still listed.
const STEPS_DONE_MAX: usize = 20;
/// How much of an effect's arguments is kept while what became of it is open: whoever finds out needs them.
const OPEN_ARGS_MAX: usize = 4 * 1024;
/// How much of a settled one's arguments and receipt: enough for a key or an order number.
const ARGS_EXCERPT: usize = 240;
const RECEIPT_EXCERPT: usize = 160;
/// How much is kept of what a check said that failed: it is what the work is about now (`context.md` §4).
const FAILED_EXCERPT: usize = 1_000;
/// How much of a rule file that was read is kept.
const RULE_READ_MAX: usize = 16 * 1024;
/// Calls remembered to tell a new one from a repeated one.
const KNOWN_CALLS_MAX: usize = 4_096;
/// Live notes of one run.
pub const NOTES_MAX: usize = 400;

impl Memory {
    pub(crate) fn message(&mut self, seq: Seq, item: Arc<Item>) {
        self.progress += 1;
        self.messages.push(Message { seq, item, reviewed: None });
    }

    /// Everything said so far is answered for.
    pub(crate) fn answered(&mut self) {
        for message in &mut self.messages {
            message.reviewed.get_or_insert(Reviewed::End);
        }
    }

    /// Another run's past: what it knew of the files may be true no more.
    pub(crate) fn inherited(&mut self) {
        self.changed.clear();
        self.rules_read.clear();
    }

    pub(crate) fn note(&mut self, action: ActionId, note: &Note, seq: Seq) {
        let id = NoteId(action.0);
        for message in &mut self.messages {
            if note.cites.iter().any(|cite| *cite == message_id(message.seq)) {
                message.reviewed.get_or_insert(Reviewed::Note(id));
            }
        }
        let before = note.replaces.as_ref().and_then(|id| id.parse().ok()).and_then(|id| {
            let kept: Option<Kept> = self.notes.remove(&id);
            kept.map(|kept| (id, kept))
        });
        match note.kind {
            NoteKind::Close => {
                if let Some((id, kept)) = before
                    && kept.kind == NoteKind::Step
                {
                    self.steps_done_count += 1;
                    self.steps_done.push((id, kept.text));
                    if self.steps_done.len() > STEPS_DONE_MAX {
                        self.steps_done.remove(0);
                    }
                }
            }
            NoteKind::Decision | NoteKind::Finding | NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step => {
                let kept = Kept { kind: note.kind, text: note.text.clone(), cites: note.cites.clone(), seq };
                self.notes.insert(id, kept);
            }
        }
    }

    pub(crate) fn started(&mut self, action: &Action) {
        if action.effect == EffectClass::External {
            let state = EffectState::Pending;
            self.effect(action, state, None);
        }
    }

    pub(crate) fn effect(&mut self, action: &Action, state: EffectState, receipt: Option<&Content>) {
        let receipt = receipt.map(|receipt| excerpt(receipt.shown().as_str(), RECEIPT_EXCERPT)).unwrap_or_default();
        let most = if state.is_open() { OPEN_ARGS_MAX } else { ARGS_EXCERPT };
        let args = shortened(action.args.as_str(), most).into_owned();
        self.effects.insert(action.id, Effect { tool: action.tool.clone(), args, state, receipt });
    }

    /// A call ended well.
    pub(crate) fn done(&mut self, action: &Action, result: &Content) {
        match action.effect {
            EffectClass::Read => {}
            EffectClass::Workspace => {
                if let Some(target) = &action.target {
                    self.changed.insert(target.path.clone(), action.id);
                }
            }
            EffectClass::External => {
                self.effect(action, EffectState::Done, Some(result));
            }
        }
    }

    /// Calls of a turn that succeeded, by what they were and brought: progress is what did not come before.
    pub(crate) fn saw(&mut self, calls: &[u64]) {
        for call in calls {
            if self.known_calls.len() >= KNOWN_CALLS_MAX {
                self.known_calls = Arc::default();
            }
            if Arc::make_mut(&mut self.known_calls).insert(*call) {
                self.progress += 1;
            }
        }
    }

    pub(crate) fn rule_read(&mut self, path: &str, action: ActionId, result: &Content) {
        let shown = result.shown();
        let text = shown.read::<String>().unwrap_or_else(|_| shown.as_str().to_owned());
        let text = crate::payload::head_and_tail(&text, RULE_READ_MAX);
        self.rules_read.insert(path.to_owned(), RuleRead { action, text });
    }

    pub(crate) fn judged(&mut self, verdicts: impl Iterator<Item = (CheckName, Verdict)>) {
        for (name, verdict) in verdicts {
            let shown = verdict.evidence.shown();
            let text = shown.read::<String>().unwrap_or_else(|_| shown.as_str().to_owned());
            let text = match verdict.finding {
                Finding::Failed => crate::payload::head_and_tail(text.trim(), FAILED_EXCERPT),
                Finding::Passed | Finding::Held => excerpt(text.trim(), RECEIPT_EXCERPT),
            };
            let last = LastVerdict { finding: verdict.finding, text };
            self.verdicts.insert(name, last);
        }
    }

    /// Live notes of one kind, oldest first.
    pub fn notes_of(&self, kind: NoteKind) -> impl DoubleEndedIterator<Item = (NoteId, &Kept)> {
        self.notes.iter().filter(move |(_, kept)| kept.kind == kind).map(|(id, kept)| (*id, kept))
    }

    /// Bytes of the notes that stand in every request.
    fn pinned_bytes(&self) -> usize {
        let is_pinned = |kind: NoteKind| match kind {
            NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step => true,
            NoteKind::Decision | NoteKind::Finding | NoteKind::Close => false,
        };
        self.notes.values().filter(|kept| is_pinned(kept.kind)).map(|kept| kept.text.len() + 16).sum()
    }
}

/// How a message is cited.
pub fn message_id(seq: Seq) -> String {
    format!("u{seq}")
}

/// Whether a note may be kept: what it names exists, it takes nothing back that is not its own, and there is room.
pub(crate) fn check_note(run: &Run, note: &Note) -> Result<(), ToolError> {
    let refuse = |field: &str, message: String, hint: &str| {
        Err(ToolError::new(class::INVALID_ARGUMENTS, message).at(field).hint(hint))
    };
    let memory = &run.memory;
    for (index, cite) in note.cites.iter().enumerate() {
        if !resolves(run, cite) {
            let message = format!("There is nothing with the id {cite:?} in this run.");
            return refuse(
                &format!("/cites/{index}"),
                message,
                "Cite ids as they stand in results (a7, e7), messages (u1) or notes (n3).",
            );
        }
    }
    let rests_on_itself = note.cites.iter().position(|cite| is_own(run, cite));
    if let (NoteKind::Finding | NoteKind::Decision, Some(index)) = (note.kind, rests_on_itself) {
        let message =
            format!("{} is a note or a look at what stood here before: it shows nothing new.", note.cites[index]);
        return refuse(&format!("/cites/{index}"), message, "Cite the result that shows it, as it first came (e7).");
    }
    let before = match &note.replaces {
        None => None,
        Some(id) => match id.parse::<NoteId>().ok().and_then(|id| memory.notes.get(&id)) {
            Some(kept) => Some(kept),
            None => {
                let live: Vec<_> = memory.notes.keys().rev().take(8).map(ToString::to_string).collect();
                let message = format!("There is no live note {id:?}.");
                let hint = if live.is_empty() {
                    "No note is live; leave `id` out to write a new one.".to_owned()
                } else {
                    format!("The last live notes are {}.", live.join(", "))
                };
                return refuse("/id", message, &hint);
            }
        },
    };
    if let Some(kept) = before {
        let by_a_later_message = note
            .cites
            .iter()
            .filter_map(|cite| cite.strip_prefix('u')?.parse::<u64>().ok())
            .any(|seq| Seq(seq) > kept.seq);
        if kept.kind == NoteKind::Constraint && !by_a_later_message {
            return refuse(
                "/cites",
                "A constraint stays in force until a person's later message changes it.".to_owned(),
                "Cite that message (its id stands before it: u and a number).",
            );
        }
        if note.kind != NoteKind::Close && note.kind != kept.kind {
            let message = format!(
                "{} is a {}, not a {}.",
                note.replaces.as_deref().unwrap_or_default(),
                kept.kind.as_str(),
                note.kind.as_str()
            );
            return refuse("/kind", message, "Replace a note by one of its kind, or close it.");
        }
    }
    let freed = before.map_or(0, |kept| kept.text.len() + 16);
    if memory.pinned_bytes() + note.text.len() + 16 > pinned_max(run) + freed {
        return refuse(
            "/text",
            "Your constraints, open loops and steps take all the room they may have in the window.".to_owned(),
            "Close what is settled, or replace notes by shorter ones.",
        );
    }
    if before.is_none() && memory.notes.len() >= NOTES_MAX {
        return refuse("/kind", format!("{NOTES_MAX} notes are live."), "Close those that are settled.");
    }
    Ok(())
}

/// Whether a cited action only kept or repeated what was there.
fn is_own(run: &Run, cite: &str) -> bool {
    let number = cite.strip_prefix(['a', 'e']).and_then(|number| number.parse().ok());
    let evidence = number.and_then(|number| run.evidence.get(&EvidenceId(number)));
    evidence.is_some_and(|evidence| repeats(run, &evidence.tool))
}

/// Whether what a tool brings is only what was there before.
pub(crate) fn repeats(run: &Run, tool: &ToolName) -> bool {
    run.task.tool(tool).is_some_and(|tool| match tool.body {
        ToolBody::Builtin(Builtin::Note | Builtin::Recall) => true,
        ToolBody::Builtin(
            Builtin::ReadFile
            | Builtin::WriteFile
            | Builtin::EditFile
            | Builtin::ListFiles
            | Builtin::SearchFiles
            | Builtin::Shell
            | Builtin::Ask
            | Builtin::WebFetch,
        )
        | ToolBody::Command(_)
        | ToolBody::Host(_)
        | ToolBody::Mcp(_) => false,
    })
}

/// An eighth of the window at three bytes a token.
fn pinned_max(run: &Run) -> usize {
    let tokens = run.window_limit() / 8;
    usize::try_from(tokens * 3).unwrap_or(usize::MAX)
}

fn resolves(run: &Run, cite: &str) -> bool {
    let Some((letter, number)) = cite.split_at_checked(1) else { return false };
    let Ok(number) = number.parse::<u32>() else { return false };
    match letter {
        "a" => (1..run.next_action().0).contains(&number),
        "e" => run.evidence.contains_key(&EvidenceId(number)),
        "n" => run.memory.notes.contains_key(&NoteId(number)),
        "u" => number == 1 || run.memory.messages.iter().any(|message| message.seq == Seq(u64::from(number))),
        "t" => (1..=run.spent.turns).contains(&u64::from(number)),
        "c" => u64::from(number) <= run.head.0,
        _ => false,
    }
}
