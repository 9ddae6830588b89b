//! The working set: what of the conversation the model still sees. Inside a generation it only grows at its end, and no byte
//! of it changes; a rebuild makes it anew from the pinned parts, the control block and the newest whole turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Ended, Life};
use crate::context::block;
use crate::context::memory::{Message, message_id};
use crate::context::note::NoteKind;
use crate::context::readmit::Readmitted;
use crate::context::settings::{REQUEST_BYTES_MAX, REQUEST_IMAGES_MAX, share};
use crate::event::{GenerationStarted, RebuildStep};
use crate::ids::{ActionId, Digest, Seq, ToolName, TurnId};
use crate::observe;
use crate::outcome::Served;
use crate::prompt::{Item, Told};
use crate::run::{Anchor, Counts, Run};
use crate::task::EffectClass;

/// Version of everything that makes text of state: items, control block, tail. A run that was last rendered by another one
/// begins a new generation (`semantics.md` H2).
pub const RENDERING: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Counted from 1, which began with the run.
    pub generation: u32,
    pub rendering: u32,
    /// The first turn of this generation.
    pub since: TurnId,
    /// What is sent, in order; shared with prompts, so that one costs the same however long it is.
    pub items: Arc<Vec<Arc<Item>>>,
    /// What each item is.
    pub parts: Vec<Part>,
    /// Turns that have left.
    pub archived: Archived,
    /// Rule files that stand in the window, by path.
    pub rules: BTreeSet<String>,
    /// What of the tail's words was shown last.
    pub tail: Option<TailShown>,
    /// The window as it was last found out to be, where that is less than was declared.
    pub served: Served,
    /// The same where the server gave no number: what was tried is held to be a quarter too much.
    pub guessed: Option<u64>,
    /// Whether a limit that another run learned of this model counts here.
    pub trusts_learned: bool,
    /// Requests in a row that the provider found too long, and how many of them a rebuild has answered.
    pub overflows: u32,
    pub answered: u32,
    /// The last of them: it is not sent again.
    pub refused: Option<Refused>,
    /// [`crate::context::memory::Memory::progress`] at the last rebuild, and rebuilds since it moved.
    pub progress: u64,
    pub barren: u32,
}

/// A request that the provider found too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    /// Tokens of reply that it asked for, where its event says.
    pub output: Option<u64>,
    pub generation: u32,
}

/// When the words of a tail were shown, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailShown {
    pub digest: Digest,
    pub turn: TurnId,
    pub by: TailBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TailBy {
    /// It went along with a request.
    Request,
    /// The start of the generation says the same.
    Header,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A rule file, by path.
    Rules(String),
    /// What is asked: `u1`.
    Goal,
    /// A person's later message, by its event.
    Message(Seq),
    /// Control block, index and where everything else is.
    Header,
    Reply(TurnId),
    Observation(Box<Seen>),
    /// Harness words of a turn.
    Harness(TurnId),
}

/// What an observation was of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub turn: TurnId,
    pub action: ActionId,
    pub tool: ToolName,
    /// Of tool and arguments: two equal ones looked at the same thing.
    pub what: Digest,
    pub fate: Fate,
    /// Bytes of the whole result.
    pub total: u64,
    /// Already a reference or shortened.
    pub reduced: bool,
}

/// What became of a call, as far as the window cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It changed nothing and can be had again.
    Read,
    Acted,
    Failed,
}

/// Turns that have left the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    pub turns: Option<(TurnId, TurnId)>,
    pub calls: u32,
    pub failures: u32,
    /// The last of their calls, a line each, oldest first: handle, tool, arguments.
    pub lines: Vec<String>,
}

/// Lines of the index that are kept; how many are shown depends on the window.
const LINES_MAX: usize = 60;
/// Of a person's messages so much of the window stands verbatim once they are answered for (`context.md` §2.3).
const MESSAGES_SHARE: u32 = 100;

impl Window {
    pub(crate) fn new(task_rules: Vec<(String, Item)>, goal: Item) -> Self {
        let mut window = Self {
            generation: 1,
            rendering: RENDERING,
            since: TurnId(1),
            items: Arc::default(),
            parts: Vec::new(),
            archived: Archived::default(),
            rules: BTreeSet::new(),
            tail: None,
            served: Served::default(),
            guessed: None,
            trusts_learned: true,
            overflows: 0,
            answered: 0,
            refused: None,
            progress: 0,
            barren: 0,
        };
        for (path, item) in task_rules {
            window.rules.insert(path.clone());
            window.push(Part::Rules(path), Arc::new(item));
        }
        window.push(Part::Goal, Arc::new(goal));
        window
    }

    pub(crate) fn push(&mut self, part: Part, item: Arc<Item>) {
        Arc::make_mut(&mut self.items).push(item);
        self.parts.push(part);
    }

    /// The reply that was given last, to be completed.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Item> {
        Arc::make_mut(&mut self.items).last_mut().map(Arc::make_mut)
    }

    /// Puts another text in an observation's place.
    pub(crate) fn replace(&mut self, action: ActionId, reduced: bool, change: impl FnOnce(&mut Item, &Seen)) {
        let place =
            self.parts.iter().rposition(|part| matches!(part, Part::Observation(seen) if seen.action == action));
        let Some(place) = place else { return };
        if let Some(Part::Observation(seen)) = self.parts.get_mut(place)
            && let Some(item) = Arc::make_mut(&mut self.items).get_mut(place)
        {
            seen.reduced |= reduced;
            change(Arc::make_mut(item), seen);
        }
    }

    /// Where the first turn begins that is not pinned or archived.
    pub fn flow(&self) -> usize {
        let is_pinned = |part: &Part| match part {
            Part::Rules(_) | Part::Goal | Part::Header => true,
            Part::Message(_) => self.generation > 1,
            Part::Reply(_) | Part::Observation(_) | Part::Harness(_) => false,
        };
        self.parts.iter().position(|part| !is_pinned(part)).unwrap_or(self.parts.len())
    }
}

/// What the window keeps of an action it shows.
pub(crate) fn seen(action: &Action) -> Seen {
    let fate = match &action.life {
        Life::Ended(Ended::Done { .. }) => match action.effect {
            EffectClass::Read => Fate::Read,
            EffectClass::Workspace | EffectClass::External => Fate::Acted,
        },
        Life::Ended(Ended::Refused(_) | Ended::Error(_) | Ended::NotDone(_))
        | Life::Unknown(_)
        | Life::Doubtful(..)
        | Life::Queued
        | Life::Held(_)
        | Life::Started { .. }
        | Life::Lost(_)
        | Life::Checking(_)
        | Life::Undoing(..)
        | Life::Compensating(..) => Fate::Failed,
    };
    Seen {
        turn: action.turn,
        action: action.id,
        tool: action.tool.clone(),
        what: Digest::of_parts([action.tool.as_str().as_bytes(), action.digest.as_str().as_bytes()]),
        fate,
        total: action.data().map_or(0, |data| data.bytes()),
        reduced: false,
    }
}

/// Begins a generation: takes the steps, then lays everything out anew, and forgets what only turns needed that have left.
pub(crate) fn rebuild(run: &mut Run, started: &GenerationStarted) {
    try_out(run, started);
    run.let_go();
}

/// The same on a copy whose window alone matters.
pub(crate) fn try_out(run: &mut Run, started: &GenerationStarted) {
    for step in &started.steps {
        take(run, step);
    }
    if run.task.context.summary.is_some() {
        let (head, turn) = (run.head, run.turn());
        run.summaries.rebuilt(started, head, turn);
    }
    let progress = run.memory.progress;
    let window = &mut run.window;
    window.barren = if window.generation > 1 && window.progress == progress { window.barren + 1 } else { 0 };
    window.progress = progress;
    window.generation = started.generation;
    window.rendering = started.rendering;
    window.answered = window.overflows;
    let turn = run.turn();
    run.window.since = turn;
    lay_out(run, started.limit, &started.readmitted);
    // The header says all that the tail would.
    run.window.tail = Some(shown_by_header(run));
    let header = run.window.parts.iter().position(|part| *part == Part::Header);
    run.anchor = match (started.kept, header) {
        (Some(tokens), Some(but)) => Some(Anchor {
            bytes: 0,
            tokens,
            generation: started.generation,
            items: run.window.items.len(),
            tail: false,
            at: run.anchor.map_or(run.at, |anchor| anchor.at),
            of: Counts::Kept { but },
            reply: 0,
        }),
        (None, _) | (_, None) => None,
    };
}

/// The tail's words as they are now, which the start of a generation says.
pub(crate) fn shown_by_header(run: &Run) -> TailShown {
    TailShown { digest: Digest::of(block::tail(run).as_bytes()), turn: run.turn(), by: TailBy::Header }
}

fn take(run: &mut Run, step: &RebuildStep) {
    match step {
        RebuildStep::Superseded { actions, .. } => {
            for (action, by) in actions {
                let why = format!("archived: {by} shows it as it was later");
                run.window.replace(*action, true, |item, seen| refer(item, seen, &why));
            }
        }
        RebuildStep::Refetchable { actions, .. } => {
            for action in actions {
                run.window.replace(*action, true, |item, seen| {
                    refer(item, seen, "archived: recall it by its id if you need it");
                });
            }
        }
        RebuildStep::Shortened { actions, bytes, .. } => {
            let limit = usize::try_from(*bytes).unwrap_or(usize::MAX);
            for action in actions {
                run.window.replace(*action, true, |item, seen| shorten(item, seen, limit));
            }
        }
        RebuildStep::PagedOut { from, to, .. } => page_out(run, *from, *to),
    }
}

/// A reference in place of an observation's data.
fn refer(item: &mut Item, seen: &Seen, why: &str) {
    let (told, total) = (told(seen), seen.total);
    match item {
        Item::Observation { action, tool, text, verdict, .. } => {
            *text = observe::reference(*action, tool, *verdict, total, why);
        }
        Item::Harness(words) => {
            let (action, tool, verdict) = told;
            let reference = |_: &str| observe::reference(action, tool, verdict, total, why);
            if let Some(changed) = observe::change_result(words, reference) {
                *words = changed;
            }
        }
        Item::User(_) | Item::Pictured { .. } | Item::Exhibit { .. } | Item::Assistant { .. } => {}
    }
}

fn shorten(item: &mut Item, seen: &Seen, limit: usize) {
    let why = "shortened: recall it by its id for the rest";
    let cut = |text: &str| {
        let shorter = (text.len() > limit).then(|| observe::shorter(text, seen.total, limit, why)).flatten();
        shorter.unwrap_or_else(|| text.to_owned())
    };
    match item {
        Item::Observation { text, .. } => *text = cut(text),
        Item::Harness(words) => {
            if let Some(changed) = observe::change_result(words, cut) {
                *words = changed;
            }
        }
        Item::User(_) | Item::Pictured { .. } | Item::Exhibit { .. } | Item::Assistant { .. } => {}
    }
}

/// Which call an observation is of, and how it went.
fn told(seen: &Seen) -> (ActionId, &ToolName, Told) {
    let verdict = match seen.fate {
        Fate::Read | Fate::Acted => Told::Ok,
        Fate::Failed => Told::Error,
    };
    (seen.action, &seen.tool, verdict)
}

/// Takes whole turns out; people's messages in them stay.
fn page_out(run: &mut Run, from: TurnId, to: TurnId) {
    let gone = |turn: TurnId| (from..=to).contains(&turn);
    let window = &mut run.window;
    let calls: BTreeMap<String, (String, String)> = window
        .items
        .iter()
        .filter_map(|item| match item.as_ref() {
            Item::Assistant { calls, .. } => Some(calls),
            Item::User(_)
            | Item::Pictured { .. }
            | Item::Exhibit { .. }
            | Item::Observation { .. }
            | Item::Harness(_) => None,
        })
        .flatten()
        .map(|call| (call.id.clone(), (call.name.clone(), crate::payload::excerpt(&call.arguments, 100))))
        .collect();
    let mut items = Vec::new();
    let mut parts = Vec::new();
    for (part, item) in std::mem::take(&mut window.parts).into_iter().zip(window.items.iter()) {
        let leaves = match &part {
            Part::Rules(_) | Part::Goal | Part::Message(_) | Part::Header => false,
            Part::Reply(turn) | Part::Harness(turn) => gone(*turn),
            Part::Observation(seen) => gone(seen.turn),
        };
        if !leaves {
            items.push(Arc::clone(item));
            parts.push(part);
            continue;
        }
        if let Part::Observation(seen) = &part {
            window.archived.calls += 1;
            let (_, _, verdict) = told(seen);
            let mark = match verdict {
                Told::Ok => "",
                Told::Error => " (failed)",
            };
            window.archived.failures += u32::from(verdict == Told::Error);
            let args = match item.as_ref() {
                Item::Observation { call, .. } => calls.get(call).map(|(_, args)| args.as_str()).unwrap_or_default(),
                Item::Harness(_)
                | Item::User(_)
                | Item::Pictured { .. }
                | Item::Exhibit { .. }
                | Item::Assistant { .. } => "(by the program)",
            };
            window.archived.lines.push(format!("{} {} {args}{mark}", seen.action, seen.tool));
        }
    }
    let lines = window.archived.lines.len();
    window.archived.lines.drain(..lines.saturating_sub(LINES_MAX));
    let first = window.archived.turns.map_or(from, |(first, _)| first.min(from));
    let last = window.archived.turns.map_or(to, |(_, last)| last.max(to));
    window.archived.turns = Some((first, last));
    window.items = Arc::new(items);
    window.parts = parts;
}

/// Pinned parts first, in an order that changes least from generation to generation; then the control block; then the turns
/// that stay.
fn lay_out(run: &mut Run, limit: u64, again: &[Readmitted]) {
    let first_turn = run
        .window
        .parts
        .iter()
        .position(|part| matches!(part, Part::Reply(_) | Part::Observation(_)))
        .unwrap_or(run.window.parts.len());
    let mut rules = Vec::new();
    let mut front = Vec::new();
    let mut flow = Vec::new();
    let verbatim = verbatim(run, limit);
    let old = std::mem::take(&mut run.window.parts).into_iter().zip(run.window.items.iter().cloned());
    for (place, (part, item)) in old.enumerate() {
        match &part {
            Part::Rules(_) => rules.push((part, item)),
            Part::Goal => front.insert(0, (part, item)),
            // Messages among the turns that stay keep their place.
            Part::Message(_) if place >= first_turn => flow.push((part, item)),
            Part::Message(seq) if verbatim.contains(seq) => front.push((part, item)),
            Part::Message(_) | Part::Header => {}
            Part::Reply(_) | Part::Observation(_) => flow.push((part, item)),
            Part::Harness(_) if place >= first_turn => flow.push((part, item)),
            // Words of the harness about turns that are gone.
            Part::Harness(_) => {}
        }
    }
    let in_flow: BTreeSet<Seq> = flow
        .iter()
        .filter_map(|(part, _)| match part {
            Part::Message(seq) => Some(*seq),
            Part::Rules(_) | Part::Goal | Part::Header | Part::Reply(_) | Part::Observation(_) | Part::Harness(_) => {
                None
            }
        })
        .collect();
    let shown: BTreeSet<Seq> = verbatim.into_iter().chain(in_flow).collect();
    let header = Arc::new(observe::note(&block::header(run, limit, &shown, again)));
    let all = rules.into_iter().chain(front).chain(std::iter::once((Part::Header, header))).chain(flow);
    let (parts, items): (Vec<_>, Vec<_>) = all.unzip();
    run.window.parts = parts;
    run.window.items = Arc::new(items);
}

/// The messages that stand word for word: all that nothing accounts for yet, and of the others the newest that fit their
/// share of the window.
fn verbatim(run: &Run, limit: u64) -> BTreeSet<Seq> {
    let mut room = share(limit, MESSAGES_SHARE).saturating_mul(3);
    let mut kept = BTreeSet::new();
    for message in &run.memory.messages {
        if message.reviewed.is_none() {
            room = room.saturating_sub(length(&message.item));
            kept.insert(message.seq);
        }
    }
    // Images are bounded by their number and their bytes as well, and the goal's and those that must stay come first.
    let must_stay =
        run.memory.messages.iter().filter(|message| kept.contains(&message.seq)).map(|message| &message.item);
    let goal = run.window.parts.iter().zip(run.window.items.iter()).filter(|(part, _)| **part == Part::Goal);
    let mut album = Album { images: REQUEST_IMAGES_MAX / ALBUM_PART, bytes: REQUEST_BYTES_MAX / ALBUM_PART };
    for item in must_stay.chain(goal.map(|(_, item)| item)) {
        album = album.without(item).unwrap_or_default();
    }
    // What is open and cites one is about it: those come first.
    let open = [NoteKind::Step, NoteKind::OpenLoop].into_iter().flat_map(|kind| run.memory.notes_of(kind));
    let cited: BTreeSet<&str> = open.flat_map(|(_, note)| note.cites.iter().map(String::as_str)).collect();
    let is_cited = |message: &Message| cited.contains(message_id(message.seq).as_str());
    let newest = run.memory.messages.iter().rev().filter(|message| message.reviewed.is_some());
    for message in newest.clone().filter(|message| is_cited(message)) {
        let length = length(&message.item);
        if let Some(left) = album.without(&message.item).filter(|_| length <= room) {
            (room, album) = (room - length, left);
            kept.insert(message.seq);
        }
    }
    for message in newest.filter(|message| !is_cited(message)) {
        let length = length(&message.item);
        let Some(left) = album.without(&message.item).filter(|_| length <= room) else { break };
        (room, album) = (room - length, left);
        kept.insert(message.seq);
    }
    kept
}

/// Room for images that need not stay.
#[derive(Debug, Clone, Copy, Default)]
struct Album {
    images: u64,
    bytes: u64,
}

/// Of what a request takes of images, those of messages that are answered for get one part in so many.
const ALBUM_PART: u64 = 4;

impl Album {
    /// What is left beside those of an item; None: they do not fit.
    fn without(self, item: &Item) -> Option<Self> {
        let sent = item.images().iter().map(|image| image.sent_bytes()).sum();
        Some(Self {
            images: self.images.checked_sub(item.images().len() as u64)?,
            bytes: self.bytes.checked_sub(sent)?,
        })
    }
}

/// Bytes of its text, and of one that would take as much of a window as its images.
pub(crate) fn length(item: &Item) -> u64 {
    match item {
        Item::User(text) | Item::Harness(text) | Item::Observation { text, .. } => text.len() as u64,
        // In bytes of a text that takes as much of the window.
        Item::Pictured { text, images } | Item::Exhibit { text, images } => {
            let tokens: u64 = images.iter().map(|image| image.features().images).sum();
            (text.len() as u64).saturating_add(tokens.saturating_mul(3))
        }
        Item::Assistant { text, calls, wired } => {
            let kept = wired.as_ref().map_or(0, |wired| wired.bytes());
            (text.len() + kept) as u64 + calls.iter().map(|call| call.arguments.len() as u64).sum::<u64>()
        }
    }
}
