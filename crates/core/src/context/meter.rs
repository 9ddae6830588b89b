//! How large things are. A meter belongs to whoever sends a run's requests: it is a cache beside the state, and what it
//! learns about a model may be kept for other runs. Sizes are counted once per item.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::estimate::{Bound, Estimator, Features};
use crate::context::window::Part;
use crate::ids::TurnId;
use crate::image::{NOT_TAKEN, labelled};
use crate::outcome::WireBlock;
use crate::prompt::{Item, ToolDef};
use crate::run::{Anchor, Counts, Run};

/// A count below one part in so many of the estimate of a model nothing is known of is not believed.
const LEAST_PART: u64 = 3;
/// What was said may be so many hundredths of itself when it goes back: calls are written down differently.
const REPLY_MARGIN: u64 = 115;
/// What a rebuild keeps may be so many hundredths of its share of the last count: shares differ between kinds of text.
const KEPT_MARGIN: u64 = 106;

/// Items in which something may have been replaced: those of the last turn, of at most 64 calls, and what came with it.
pub(crate) const LAST_ITEMS: usize = 192;

/// Counts of one run's next request.
#[derive(Debug, Clone)]
pub struct Meter {
    pub estimator: Estimator,
    /// The window of this model as an earlier run found it. None: as declared.
    pub learned: Option<u64>,
    system: Features,
    tools: Features,
    /// Of the items of the window, in order: each with the sum up to and with it. Holding the item keeps its address from
    /// being used again.
    sums: Vec<(Arc<Item>, Features)>,
    /// The generation they are of.
    generation: u32,
    /// Likely tokens of the turns of this generation, and of everything else, as they were when they came.
    turns: Vec<(TurnId, u64)>,
    base: u64,
    /// Whether what the provider counted last can be.
    believes: bool,
    /// What the last reply was learned from.
    anchor: Option<Anchor>,
    tail: Features,
}

impl Meter {
    pub fn new(estimator: Estimator, learned: Option<u64>, system: &str, tools: &[ToolDef]) -> Self {
        let tools = tools.iter().fold(Features::default(), |sum, tool| sum + size_of_tool(tool));
        Self {
            estimator,
            learned,
            system: Features::of(system) + Features::of_message(""),
            tools,
            sums: Vec::new(),
            generation: 0,
            turns: Vec::new(),
            base: 0,
            believes: false,
            anchor: None,
            tail: Features::default(),
        }
    }

    /// Brings the counts up to the state, and learns from what the provider reported since. Costs what is new: inside a
    /// generation only results of the last turn are ever replaced.
    pub fn measure(&mut self, run: &Run) {
        let is_same = self.generation == run.window.generation;
        let since = if is_same { self.sums.len().saturating_sub(LAST_ITEMS) } else { 0 };
        let items = &run.window.items;
        let fits = |(place, (item, _)): (usize, &(Arc<Item>, Features))| {
            items.get(place).is_some_and(|now| Arc::ptr_eq(now, item))
        };
        let same = since + self.sums.iter().enumerate().skip(since).take_while(|pair| fits(*pair)).count();
        if same < self.sums.len() || self.generation != run.window.generation {
            let known: BTreeMap<_, _> =
                (same..self.sums.len()).map(|place| (Arc::as_ptr(&self.sums[place].0), self.size(place))).collect();
            let held: Vec<_> = self.sums.drain(same..).collect();
            self.extend(run, |item| known.get(&Arc::as_ptr(item)).copied());
            drop(held);
            self.count_turns(run, 0);
        } else {
            self.extend(run, |_| None);
            self.count_turns(run, same);
        }
        self.generation = run.window.generation;
        if self.anchor == run.anchor {
            return;
        }
        // What a rebuild kept is a share, and says nothing of the control block: nothing is learned from it.
        if let (Some(before), Some(now)) = (counted(self.anchor), counted(run.anchor))
            && self.believes
            && self.is_believed(&now)
            && before.generation == now.generation
            && before.items <= now.items
        {
            let added = self.between(before.items, now.items) + if now.tail { self.tail } else { Features::default() };
            let without = if before.tail { self.estimator.estimate(&self.tail) } else { 0 };
            if let Some(tokens) = now.tokens.checked_sub(before.tokens.saturating_sub(without)) {
                self.estimator.learn(&added, tokens);
            }
        }
        self.anchor = run.anchor;
        self.believes = run.anchor.is_some_and(|anchor| self.is_believed(&anchor));
    }

    fn extend(&mut self, run: &Run, known: impl Fn(&Arc<Item>) -> Option<Features>) {
        for item in run.window.items.iter().skip(self.sums.len()) {
            let before = self.sums.last().map_or(Features::default(), |(_, sum)| *sum);
            let size = known(item).unwrap_or_else(|| size_of(item, run.model.takes_images()));
            self.sums.push((Arc::clone(item), before + size));
        }
    }

    /// Adds the items from a place on to their turns.
    fn count_turns(&mut self, run: &Run, from: usize) {
        if from == 0 {
            self.turns.clear();
            self.base = self.estimator.estimate(&self.fixed());
        }
        for (place, part) in run.window.parts.iter().enumerate().skip(from) {
            let tokens = self.estimator.estimate(&self.size(place));
            let turn = match part {
                Part::Rules(_) | Part::Goal | Part::Message(_) | Part::Header => None,
                Part::Reply(turn) | Part::Harness(turn) => Some(*turn),
                Part::Observation(seen) => Some(seen.turn),
            };
            match turn.filter(|turn| *turn >= run.window.since) {
                Some(turn) => match self.turns.last_mut() {
                    Some((last, sum)) if *last == turn => *sum += tokens,
                    Some(_) | None => self.turns.push((turn, tokens)),
                },
                None => self.base += tokens,
            }
        }
    }

    /// Likely tokens of the turns of this generation, oldest first, and of what it began with.
    pub fn growth(&self) -> (&[(TurnId, u64)], u64) {
        (&self.turns, self.base)
    }

    fn size(&self, place: usize) -> Features {
        self.between(place, place + 1)
    }

    /// Likely tokens of the item at a place.
    pub fn item(&self, place: usize) -> u64 {
        self.estimator.estimate(&self.size(place))
    }

    /// Remembers the tail that goes along, for when the provider has counted it.
    pub fn sends(&mut self, tail: Option<&str>) {
        if let Some(tail) = tail {
            self.tail = Features::of(tail) + Features::of_message("");
        }
    }

    fn between(&self, from: usize, to: usize) -> Features {
        let up_to = |end: usize| match end.min(self.sums.len()).checked_sub(1) {
            Some(last) => self.sums[last].1,
            None => Features::default(),
        };
        if from < to { up_to(to) - up_to(from) } else { Features::default() }
    }

    /// The next request with this tail: on top of what the provider counted last, or all of it by estimate.
    pub fn request(&self, run: &Run, tail: Option<&str>) -> Bound {
        let tail = tail.map_or(Features::default(), |tail| Features::of(tail) + Features::of_message(""));
        match self.anchored(run) {
            Some(anchor) => {
                let new = match anchor.of {
                    Counts::Reported => Features::default(),
                    Counts::Kept { but } => self.between(but, but + 1),
                };
                let from = anchor.items + usize::from(self.replied(run, &anchor).is_some());
                let bound = self.estimator.bound(anchor.tokens, &(new + self.between(from, self.sums.len()) + tail));
                match self.replied(run, &anchor) {
                    Some(reply) => Bound { likely: bound.likely + reply.likely, upper: bound.upper + reply.upper },
                    None => bound,
                }
            }
            None => self.estimator.bound(0, &(self.fixed() + self.between(0, self.sums.len()) + tail)),
        }
    }

    /// The reply that an anchor has not counted as input, by what the provider counted of it as output: the same words, but for
    /// what stands around them. None: there is none, or the count cannot be of it.
    fn replied(&self, run: &Run, anchor: &Anchor) -> Option<Bound> {
        let Item::Assistant { .. } = run.window.items.get(anchor.items)?.as_ref() else { return None };
        let size = self.size(anchor.items);
        let around = Features { messages: size.messages, ..Features::default() };
        let (estimate, tokens) = (self.estimator.estimate(&size), anchor.reply);
        // More than its bytes is thinking that nobody told apart, or calls that were left out; far less is no count.
        if tokens.saturating_mul(LEAST_PART) < estimate || tokens > size.bytes {
            return None;
        }
        let around = self.estimator.bound(0, &around);
        let most = tokens.saturating_mul(REPLY_MARGIN) / 100;
        Some(Bound { likely: tokens + around.likely, upper: most + around.upper })
    }

    /// The last count, if it is of this window and can be believed.
    fn anchored(&self, run: &Run) -> Option<Anchor> {
        let anchor = run.anchor.filter(|anchor| {
            anchor.generation == run.window.generation && anchor.items <= self.sums.len() && self.believes
        })?;
        Some(anchor)
    }

    /// Servers that report nothing, or only what was not cached, report far too little: no tokenizer makes so few.
    fn is_believed(&self, anchor: &Anchor) -> bool {
        let counted = self.fixed() + self.between(0, anchor.items);
        anchor.tokens.saturating_mul(LEAST_PART) >= Estimator::new().estimate(&counted)
    }

    fn fixed(&self) -> Features {
        self.system + self.tools
    }

    /// A rebuilt window before anything of it is counted.
    pub fn of_window(&self, run: &Run, rebuilt: &Run) -> Rebuilt {
        let known: BTreeMap<_, _> =
            self.sums.iter().enumerate().map(|(place, (item, _))| (Arc::as_ptr(item), self.size(place))).collect();
        let mut kept = self.fixed();
        let mut new = Features::default();
        for (part, item) in rebuilt.window.parts.iter().zip(rebuilt.window.items.iter()) {
            let size =
                known.get(&Arc::as_ptr(item)).copied().unwrap_or_else(|| size_of(item, run.model.takes_images()));
            if *part == Part::Header {
                new += size;
            } else {
                kept += size;
            }
        }
        let bulk = Bulk::of(&(kept + new));
        let Some(anchor) = self.anchored(run) else {
            return Rebuilt { bound: self.estimator.bound(0, &(kept + new)), kept: None, bulk };
        };
        let counted = match anchor.of {
            Counts::Reported => {
                self.fixed() + self.between(0, anchor.items) + if anchor.tail { self.tail } else { Features::default() }
            }
            Counts::Kept { but } => {
                self.fixed() + self.between(0, but.min(anchor.items)) + self.between(but + 1, anchor.items)
            }
        };
        // Each part is as much more or less than its estimate as all of it was.
        let estimate = self.estimator.estimate(&counted).max(1);
        let likely = self.estimator.estimate(&kept).saturating_mul(anchor.tokens) / estimate;
        let upper = match anchor.of {
            Counts::Reported => likely.saturating_mul(KEPT_MARGIN) / 100,
            // It has the margin already: once more with each rebuild, that would grow without end.
            Counts::Kept { .. } => likely,
        };
        let bound = self.estimator.bound(0, &new);
        let bound = Bound { likely: likely + bound.likely, upper: upper + bound.upper };
        Rebuilt { bound, kept: Some(upper), bulk }
    }

    /// Likely tokens of each item, in order.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
        (0..self.sums.len()).map(|place| self.item(place))
    }

    pub fn system_tokens(&self) -> u64 {
        self.estimator.estimate(&self.system)
    }

    pub fn tools_tokens(&self) -> u64 {
        self.estimator.estimate(&self.tools)
    }

    /// Likely tokens of one tool.
    pub fn tool_tokens(&self, tool: &ToolDef) -> u64 {
        self.estimator.estimate(&size_of_tool(tool))
    }

    pub fn text_tokens(&self, text: &str) -> u64 {
        self.estimator.estimate(&(Features::of(text) + Features::of_message("")))
    }

    /// What of the request has bounds of its own.
    pub fn bulk(&self) -> Bulk {
        Bulk::of(&(self.fixed() + self.between(0, self.sums.len())))
    }
}

/// What of a request is bounded beside its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bulk {
    /// Of its texts, and of its images in base64.
    pub bytes: u64,
    pub images: u64,
}

impl Bulk {
    fn of(features: &Features) -> Self {
        Self { bytes: features.sent_bytes(), images: features.pictures }
    }
}

/// A window as a rebuild would leave it.
#[derive(Debug, Clone, Copy)]
pub struct Rebuilt {
    pub bound: Bound,
    /// What of it the last count speaks for: see [`crate::event::GenerationStarted::kept`].
    pub kept: Option<u64>,
    pub bulk: Bulk,
}

/// What a provider counted itself; a request of no tokens it did not, whatever it says.
fn counted(anchor: Option<Anchor>) -> Option<Anchor> {
    anchor.filter(|anchor| anchor.tokens > 0 && anchor.of == Counts::Reported)
}

fn size_of_tool(tool: &ToolDef) -> Features {
    Features::of(tool.name.as_str())
        + Features::of(&tool.description)
        + Features::of(tool.parameters.as_str())
        + Features::of_message("")
}

/// `takes`: whether the model is sent images as such.
fn size_of(item: &Item, takes: bool) -> Features {
    let text = match item {
        Item::Pictured { text, images } | Item::Exhibit { text, images } => {
            let words = Features::of(&labelled(text, images, (!takes).then_some(NOT_TAKEN)));
            let pictures =
                images.iter().filter(|_| takes).fold(Features::default(), |sum, image| sum + image.features());
            words + pictures
        }
        Item::User(text) | Item::Harness(text) | Item::Observation { text, .. } => Features::of(text),
        Item::Assistant { text, calls, wired } => {
            let said = calls.iter().fold(Features::of(text), |sum, call| {
                sum + Features::of(&call.name) + Features::of(&call.arguments) + Features::of_message("")
            });
            wired.iter().flat_map(|wired| &wired.blocks).fold(said, |sum, block| match block {
                WireBlock::Opaque(json) | WireBlock::With(json) => sum + Features::of(json.as_str()),
                WireBlock::Text(_) | WireBlock::Call | WireBlock::Aside(_) => sum,
            })
        }
    };
    text + Features::of_message("")
}
