//! Whether a run goes in circles: told from what its calls were and what came of them, as the journal has it. The state is
//! part of the run and not of its window, so that neither a rebuild nor a restart hides it.
//!
//! A turn is *new* if one of its calls is: a call nobody made before, or one with another result. After a change, every look
//! is new again. What is not new is counted, and each count leads to three things in turn: the model is told; the tools are
//! taken away for one turn; the run ends, and a person's message goes on with it. A changing result is progress however
//! often it is looked at: the budget bounds that.

mod shape;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::action::{Action, Ended, Life};
use crate::event::{How, Level, LoopNoticed, Repetition};
use crate::ids::{ActionId, Digest, ToolName, TurnId};
use crate::outcome::{ToolError, class};
use crate::payload::Content;
use crate::run::{Run, Stage};
use crate::task::{Builtin, EffectClass, Task, ToolBody};

/// How many different turns a circle has at most. Longer ones cannot be told from looking at many things a second time, as
/// one does when the window was made anew; those are for [`Circling::Rebuilds`] to end.
const CIRCLE_MAX: usize = 4;
/// Turns that brought nothing new, of which the newest are remembered: enough for the longest circle to end.
const BARREN_KEPT: usize = 32;
/// Calls that are remembered, looks and others apart: many more than the longest circle has.
const CALLS_KEPT: usize = 64;
/// Kinds of error that are counted at once.
const ERRORS_KEPT: usize = 16;

/// From which count on something follows.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    told: u32,
    taken: u32,
    ended: u32,
}

impl Bounds {
    fn level(self, count: u32) -> Option<Level> {
        if count >= self.ended {
            Some(Level::Ended)
        } else if count >= self.taken {
            Some(Level::Taken)
        } else if count >= self.told {
            Some(Level::Told)
        } else {
            None
        }
    }
}

/// Repeated turns of a circle of `turns` different ones. To go round once more may be an oversight; twice is a circle. Arguments that differ a little may be meant: those get a few turns more.
fn circle_bounds(turns: u32, alike: Alike) -> Bounds {
    let patience = match alike {
        Alike::Same => 0,
        Alike::Nearly => 3,
    };
    Bounds { told: 2 * turns + patience, taken: 2 * turns + 2 + patience, ended: 3 * turns + 4 + patience }
}

/// Turns with one and the same look among new ones, without a change between.
const RETURNS: Bounds = Bounds { told: 8, taken: 14, ended: 20 };
/// Turns with one and the same error of one tool.
const ERRORS: Bounds = Bounds { told: 3, taken: 5, ended: 8 };
/// Replies in a row that announce and do nothing: each is answered by a word, and there is nothing to take away.
const WORDS: Bounds = Bounds { told: 3, taken: 4, ended: 4 };

/// Whether the calls of a circle have the very same arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alike {
    Same,
    Nearly,
}

/// What was seen so far. Bounded; a person's message or another budget begins anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Looks since something changed, and calls that act, by what they were and brought.
    #[serde(default, skip_serializing_if = "Calls::is_empty")]
    looks: Calls,
    #[serde(default, skip_serializing_if = "Calls::is_empty")]
    acts: Calls,
    /// The newest turns in a row that brought nothing new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    barren: Vec<Barren>,
    /// What was done about those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    barren_noticed: Option<Level>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<u64, Failing>,
    /// Replies in a row that only announced, and what was done about them.
    #[serde(default, skip_serializing_if = "is_zero")]
    words: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    words_noticed: Option<Level>,
    /// Rebuilds without progress that were told of.
    #[serde(default, skip_serializing_if = "is_zero")]
    rebuilds_noticed: u32,
    /// What may not be called in one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Taken>,
    /// Why the run is at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Box<LoopNoticed>>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Tools that were taken away, for which turn, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub tools: BTreeSet<ToolName>,
    pub turn: TurnId,
    pub why: String,
}

/// A call that was made, with what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    key: u64,
    first: ActionId,
    last: ActionId,
    /// Turns it was made in.
    turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noticed: Option<Level>,
}

/// Calls by their keys, the least recent first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Calls(Vec<Call>);

impl Calls {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes one more in. Answers the first call like it, if there was one.
    fn take(&mut self, key: u64, id: ActionId) -> Option<ActionId> {
        let known = self.0.iter().position(|call| call.key == key).map(|place| self.0.remove(place));
        let first = known.as_ref().map(|call| call.first);
        let call = match known {
            Some(call) => Call { last: id, turns: call.turns + 1, ..call },
            None => Call { key, first: id, last: id, turns: 1, noticed: None },
        };
        self.0.push(call);
        if self.0.len() > CALLS_KEPT {
            self.0.remove(0);
        }
        first
    }
}

/// A turn that brought nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Barren {
    /// Of all its calls and what came of them; the same with their exact arguments.
    key: u64,
    exact: u64,
    first: ActionId,
    last: ActionId,
    tools: BTreeSet<ToolName>,
}

/// One kind of error, as often as it came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failing {
    /// None: whatever the model called, there is no such tool.
    tool: Option<ToolName>,
    class: String,
    turns: u32,
    first: ActionId,
    last: ActionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noticed: Option<Level>,
}

/// What a told call comes to.
struct Seen<'a> {
    action: &'a Action,
    key: u64,
    exact: u64,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// It changed nothing, as far as its class says.
    Looked,
    Acted,
    Failed(&'a ToolError),
    /// It was taken away.
    Withheld,
}

impl<'a> Seen<'a> {
    fn of(action: &'a Action, task: &Task) -> Self {
        let (result, kind) = match &action.life {
            // Kept: what comes back is an id, another one each time.
            Life::Ended(Ended::Done { how: How::Kept, .. }) => (Digest::of(b"kept"), Kind::Looked),
            Life::Ended(Ended::Done { result, .. }) => (
                came(result),
                match action.effect {
                    EffectClass::Read => Kind::Looked,
                    EffectClass::Workspace | EffectClass::External => Kind::Acted,
                },
            ),
            Life::Ended(Ended::Refused(error)) if error.class == class::LOOP => (Digest::of(b"loop"), Kind::Withheld),
            Life::Ended(Ended::Refused(error) | Ended::NotDone(error) | Ended::Error(error))
            | Life::Unknown(error)
            | Life::Doubtful(_, error) => (failure(error), Kind::Failed(error)),
            Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Lost(_) => (Digest::of(b"open"), Kind::Acted),
        };
        let args = action.args.as_str();
        let exact = || action.digest.as_str().to_owned();
        // What a person is asked and what is written down count to the letter, and so does what acts: two orders that differ
        // in a number are two orders, and in a file spaces may be what matters.
        let compared = match (task.tool(&action.tool).map(|tool| &tool.body), action.effect) {
            (Some(ToolBody::Builtin(Builtin::Ask | Builtin::Note)), _) => exact(),
            (Some(ToolBody::Builtin(Builtin::Shell)), _) => shape::without_spaces(args),
            (_, EffectClass::Workspace | EffectClass::External) => exact(),
            (_, EffectClass::Read) => shape::without_details(args),
        };
        let hash = |args: &str| {
            let parts = [action.tool.as_str().as_bytes(), args.as_bytes(), result.as_str().as_bytes()];
            short(&Digest::of_parts(parts))
        };
        Self { action, key: hash(&compared), exact: hash(action.digest.as_str()), kind }
    }
}

/// What came of a call. How long a command took is no news of it.
fn came(result: &Content) -> Digest {
    let text = result.shown().as_str();
    match (shape::without_duration(text), result) {
        (Some(rest), _) => Digest::of(rest.as_bytes()),
        (None, result) => result.digest(),
    }
}

fn failure(error: &ToolError) -> Digest {
    let field = error.field.as_deref().unwrap_or_default();
    let message = shape::without_numbers(&error.message);
    Digest::of_parts([error.class.as_bytes(), field.as_bytes(), message.as_bytes()])
}

/// The start of a digest: enough to tell a few dozen things apart.
fn short(digest: &Digest) -> u64 {
    digest.as_str().get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default()
}

impl Repeats {
    /// Takes in the calls of a turn, all told. Answers those that succeeded, by what they were and brought.
    pub(crate) fn turn<'a>(&mut self, actions: impl Iterator<Item = &'a Action>, task: &Task) -> Vec<u64> {
        let seen: Vec<_> = actions.map(|action| Seen::of(action, task)).collect();
        let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return Vec::new() };
        let succeeded = seen.iter().filter(|call| matches!(call.kind, Kind::Looked | Kind::Acted)).map(|call| call.key);
        let succeeded = succeeded.collect();
        self.words = 0;
        self.words_noticed = None;
        let mut is_new = false;
        let mut changes = false;
        let mut since = first.action.id;
        let mut counted = BTreeSet::new();
        // Twice in one reply is once: the model had not seen what came of the first.
        for call in seen.iter().filter(|call| counted.insert(call.key)) {
            let acts = match call.kind {
                Kind::Withheld => continue,
                Kind::Looked | Kind::Failed(_) => false,
                Kind::Acted => true,
            };
            let known = if acts { &mut self.acts } else { &mut self.looks };
            match known.take(call.key, call.action.id) {
                Some(first) => since = since.min(first),
                None => {
                    is_new = true;
                    changes |= acts;
                }
            }
        }
        self.count_errors(&seen, changes);
        if changes {
            self.looks = Calls::default();
        }
        if is_new {
            self.barren.clear();
            self.barren_noticed = None;
            return succeeded;
        }
        let hash = |part: fn(&Seen<'_>) -> u64| {
            let parts: BTreeSet<[u8; 8]> = seen.iter().map(|call| part(call).to_le_bytes()).collect();
            short(&Digest::of_parts(parts.iter().map(<[u8; 8]>::as_slice)))
        };
        let withheld = seen.iter().all(|call| matches!(call.kind, Kind::Withheld));
        let before = self.barren.last().filter(|_| withheld).map(|barren| (barren.key, barren.exact));
        // Asking for what was taken away is going on in the same circle.
        let (key, exact) = before.unwrap_or_else(|| (hash(|call| call.key), hash(|call| call.exact)));
        let tools = seen.iter().map(|call| call.action.tool.clone()).collect();
        self.barren.push(Barren { key, exact, first: since, last: last.action.id, tools });
        if self.barren.len() > BARREN_KEPT {
            self.barren.remove(0);
        }
        succeeded
    }

    /// An error is one and the same whatever the arguments were. A success of its tool ends the count, and so does any change.
    fn count_errors(&mut self, seen: &[Seen<'_>], changes: bool) {
        if changes {
            self.errors.clear();
        }
        let mut counted = BTreeSet::new();
        for call in seen {
            let error = match call.kind {
                Kind::Looked | Kind::Acted => {
                    self.errors.retain(|_, failing| failing.tool.as_ref() != Some(&call.action.tool));
                    continue;
                }
                Kind::Withheld => continue,
                Kind::Failed(error) => error,
            };
            // Neither is anything the model did wrong.
            if [class::SHADOW, class::CANCELLED].contains(&error.class.as_str()) {
                continue;
            }
            let tool = (error.class != class::UNKNOWN_TOOL).then(|| call.action.tool.clone());
            let name = tool.as_ref().map(ToolName::as_str).unwrap_or_default();
            let field = error.field.as_deref().unwrap_or_default();
            let key = short(&Digest::of_parts([name.as_bytes(), error.class.as_bytes(), field.as_bytes()]));
            if !counted.insert(key) {
                continue;
            }
            let id = call.action.id;
            let class = error.class.clone();
            let failing =
                self.errors.entry(key).or_insert(Failing { tool, class, turns: 0, first: id, last: id, noticed: None });
            failing.turns += 1;
            failing.last = id;
        }
        while self.errors.len() > ERRORS_KEPT {
            let oldest = self.errors.iter().min_by_key(|(_, failing)| failing.last).map(|(key, _)| *key);
            oldest.map(|key| self.errors.remove(&key));
        }
    }

    /// A reply announced something and called nothing.
    pub(crate) fn announced(&mut self) {
        self.words += 1;
    }

    /// Everything that is done about it is done now, up to this level.
    pub(crate) fn noticed(&mut self, notice: &LoopNoticed, turn: TurnId, rebuilds: u32) {
        let upto = |found: Option<Level>| found.map(|level| level.min(notice.level));
        let circle = upto(self.circle().map(|circle| circle.level));
        self.barren_noticed = self.barren_noticed.max(circle);
        for call in &mut self.looks.0 {
            call.noticed = call.noticed.max(upto(RETURNS.level(call.turns)));
        }
        for failing in self.errors.values_mut() {
            failing.noticed = failing.noticed.max(upto(ERRORS.level(failing.turns)));
        }
        self.words_noticed = self.words_noticed.max(upto(WORDS.level(self.words)));
        self.rebuilds_noticed = rebuilds;
        match notice.level {
            Level::Told => {}
            Level::Taken => {
                let tools = notice.tools.iter().cloned().collect();
                self.taken = Some(Taken { tools, turn, why: what(notice) });
            }
            Level::Ended => self.over = Some(Box::new(notice.clone())),
        }
    }

    /// Goes on from another run's history: what that came to an end for may be tried once more.
    pub(crate) fn forked(&mut self) {
        if self.over.take().is_some() {
            *self = Self {
                looks: std::mem::take(&mut self.looks),
                acts: std::mem::take(&mut self.acts),
                ..Self::default()
            };
            for call in &mut self.looks.0 {
                call.turns = 1;
                call.noticed = None;
            }
        }
        self.taken = None;
    }

    /// The circle that leads to most, of those that the newest turns may be seen as.
    fn circle(&self) -> Option<Circle<'_>> {
        let circles = (1..=CIRCLE_MAX).filter_map(|most| {
            let mut keys = BTreeSet::new();
            let of_these = |barren: &&Barren| {
                keys.insert(barren.key);
                keys.len() <= most
            };
            let turns: Vec<_> = self.barren.iter().rev().take_while(of_these).collect();
            turns.first()?;
            let keys: BTreeSet<_> = turns.iter().map(|barren| barren.key).collect();
            let exact: BTreeSet<_> = turns.iter().map(|barren| barren.exact).collect();
            let alike = if exact.len() > keys.len() { Alike::Nearly } else { Alike::Same };
            let bounds = circle_bounds(count(keys.len()), alike);
            let level = bounds.level(count(turns.len()))?;
            Some(Circle { level, turns, different: keys.len(), alike })
        });
        circles.max_by_key(|circle| (circle.level, std::cmp::Reverse(circle.different)))
    }
}

/// The newest turns, seen as a circle.
struct Circle<'a> {
    level: Level,
    /// The newest first.
    turns: Vec<&'a Barren>,
    different: usize,
    alike: Alike,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What is to be done about a run that goes in circles, if it does: the most that one of its counts has come to and that is
/// not done yet.
pub fn due(run: &Run) -> Option<LoopNoticed> {
    match &run.stage {
        Stage::Ready(_) if run.winding.is_none() && run.repeats.over.is_none() => {}
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
            return None;
        }
    }
    let repeats = &run.repeats;
    let circle = repeats.circle().filter(|circle| Some(circle.level) > repeats.barren_noticed).map(|circle| {
        let oldest = circle.turns.iter().map(|barren| barren.first).min();
        LoopNoticed {
            repetition: match (circle.different, circle.alike) {
                (1, Alike::Same) => Repetition::SameCall,
                (1, Alike::Nearly) => Repetition::LikeCall,
                (_, Alike::Same | Alike::Nearly) => Repetition::Circle,
            },
            level: circle.level,
            tools: circle
                .turns
                .iter()
                .flat_map(|barren| barren.tools.iter().cloned())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            // The first of them was new.
            times: count(circle.turns.len()) + 1,
            since: oldest,
            last: circle.turns.first().map(|barren| barren.last),
            class: None,
        }
    });
    let returns = repeats.looks.0.iter().filter_map(|call| {
        let level = RETURNS.level(call.turns).filter(|level| Some(*level) > call.noticed)?;
        Some(LoopNoticed {
            repetition: Repetition::SameCall,
            level,
            tools: run.called(call.last).into_iter().collect(),
            times: call.turns,
            since: Some(call.first),
            last: Some(call.last),
            class: None,
        })
    });
    let errors = repeats.errors.values().filter_map(|failing| {
        let level = ERRORS.level(failing.turns).filter(|level| Some(*level) > failing.noticed)?;
        Some(LoopNoticed {
            repetition: Repetition::SameError,
            level,
            tools: failing.tool.clone().into_iter().collect(),
            times: failing.turns,
            since: Some(failing.first),
            last: Some(failing.last),
            class: Some(failing.class.clone()),
        })
    });
    let bare = |repetition, level, times| LoopNoticed {
        repetition,
        level,
        tools: Vec::new(),
        times,
        since: None,
        last: None,
        class: None,
    };
    let words = WORDS
        .level(repeats.words)
        .filter(|level| Some(*level) > repeats.words_noticed)
        .map(|level| bare(Repetition::OnlyWords, level, repeats.words));
    // The window's own count ends the run: see `context::plan`. Before its first reply a model has gone nowhere.
    let rebuilds = (run.window.barren > repeats.rebuilds_noticed && run.turn().0 > 1)
        .then(|| bare(Repetition::NothingNew, Level::Told, run.window.barren));
    circle.into_iter().chain(returns).chain(errors).chain(words).chain(rebuilds).max_by_key(|notice| notice.level)
}

/// What goes in circles, how often, and since when; for the model and for people.
pub fn what(notice: &LoopNoticed) -> String {
    let tools: Vec<_> = notice.tools.iter().map(ToolName::as_str).collect();
    let tools = tools.join(", ");
    let times = notice.times;
    let since = notice.since.map(|since| format!(" since {since}")).unwrap_or_default();
    match notice.repetition {
        Repetition::SameCall => format!("the same call of {tools} brought the same result in {times} turns{since}"),
        Repetition::LikeCall => {
            format!("calls of {tools} that hardly differ brought the same result in {times} turns{since}")
        }
        Repetition::Circle => {
            format!("the same few calls ({tools}) brought the same results over and over, in {times} turns{since}")
        }
        Repetition::SameError => {
            let class = notice.class.as_deref().unwrap_or("error");
            let tools = if tools.is_empty() { "calls" } else { tools.as_str() };
            format!("{tools} failed with the same error ({class}) in {times} turns{since}")
        }
        Repetition::OnlyWords => format!("{times} replies in a row said what comes next and called no tool"),
        Repetition::NothingNew => {
            "the window was made anew, and since the last time nothing new was found out and nothing \
                                   was changed"
                .to_owned()
        }
    }
}

/// What the model is told.
pub(crate) fn told(notice: &LoopNoticed) -> String {
    let mut what = what(notice);
    if let Some(first) = what.get(..1) {
        what = first.to_uppercase() + what.get(1..).unwrap_or_default();
    }
    let try_else = match notice.repetition {
        Repetition::SameCall | Repetition::LikeCall | Repetition::Circle => {
            "Another repetition brings nothing new. Use the results you have: take the next step, look somewhere else, or, if \
             you wait for something, wait longer in one call. If you cannot get further, answer and say what is in the way."
        }
        Repetition::SameError => {
            "Read what the error says and change what it names, or do it another way. If it cannot be done here, go on without \
             it or answer and say so."
        }
        Repetition::OnlyWords => "Call the tool you name, or give your final answer.",
        Repetition::NothingNew => {
            "Look at the open loops and steps above: take the next concrete action, or answer with what you have."
        }
    };
    let tools: Vec<_> = notice.tools.iter().map(ToolName::as_str).collect();
    match notice.level {
        Level::Taken if !tools.is_empty() => {
            format!("{what}. {try_else} For your next reply {} cannot be called.", tools.join(" and "))
        }
        Level::Told | Level::Taken | Level::Ended => format!("{what}. {try_else}"),
    }
}

/// Why a tool is not to be called in this turn, if it was taken away.
pub(crate) fn taken<'a>(run: &'a Run, tool: &ToolName) -> Option<&'a Taken> {
    run.repeats.taken.as_ref().filter(|taken| taken.turn == run.turn() && taken.tools.contains(tool))
}

/// For people: why the run ended, and how it goes on.
pub(crate) fn reason(run: &Run) -> String {
    let what = run.repeats.over.as_ref().map_or_else(|| "nothing new came of it".to_owned(), |notice| what(notice));
    format!("it went in circles: {what}. Send it a message that says what to do differently, to go on")
}
