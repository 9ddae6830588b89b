//! How large things are. A meter belongs to whoever sends a run's requests: it is a cache beside the state, and what it
//! learns about a model may be kept for other runs. Sizes are counted once per item.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::estimate::{Bound, Estimator, Features};
use crate::context::window::Part;
use crate::prompt::{Item, ToolDef};
use crate::run::{Anchor, Counts, Run};

/// A count below one part in so many of the estimate of a model nothing is known of is not believed.
const LEAST_PART: u64 = 3;
/// What a rebuild keeps may be so many hundredths of its share of the last count: shares differ between kinds of text.
const KEPT_MARGIN: u64 = 106;

/// Counts of one run's next request.
#[derive(Debug, Clone)]
pub struct Meter {
    pub estimator: Estimator,
    /// The window of this model as an earlier run found it. None: as declared.
    pub learned: Option<u64>,
    system: Features,
    tools: Features,
    /// Of the items of the window, in order. Holding the item keeps its address from being used again.
    sizes: Vec<(Arc<Item>, Features)>,
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
            sizes: Vec::new(),
            anchor: None,
            tail: Features::default(),
        }
    }

    /// Brings the counts up to the state, and learns from what the provider reported since.
    pub fn measure(&mut self, run: &Run) {
        let fits = |(place, (item, _)): (usize, &(Arc<Item>, Features))| {
            run.window.items.get(place).is_some_and(|now| Arc::ptr_eq(now, item))
        };
        let same = self.sizes.iter().enumerate().take_while(|pair| fits(*pair)).count();
        if same < self.sizes.len() {
            let known: BTreeMap<_, _> =
                self.sizes.drain(same..).map(|(item, size)| (Arc::as_ptr(&item), size)).collect();
            let fresh = run.window.items.iter().skip(same);
            self.sizes.extend(fresh.map(|item| {
                let size = known.get(&Arc::as_ptr(item)).copied().unwrap_or_else(|| size_of(item));
                (Arc::clone(item), size)
            }));
        } else {
            let fresh = run.window.items.iter().skip(same);
            self.sizes.extend(fresh.map(|item| (Arc::clone(item), size_of(item))));
        }
        if self.anchor == run.anchor {
            return;
        }
        if let (Some(before), Some(now)) = (counted(self.anchor), counted(run.anchor))
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
    }

    /// Remembers the tail that goes along, for when the provider has counted it.
    pub fn sends(&mut self, tail: Option<&str>) {
        if let Some(tail) = tail {
            self.tail = Features::of(tail) + Features::of_message("");
        }
    }

    fn between(&self, from: usize, to: usize) -> Features {
        self.sizes.iter().take(to).skip(from).fold(Features::default(), |sum, (_, size)| sum + *size)
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
                self.estimator.bound(anchor.tokens, &(new + self.between(anchor.items, self.sizes.len()) + tail))
            }
            None => self.estimator.bound(0, &(self.fixed() + self.between(0, self.sizes.len()) + tail)),
        }
    }

    /// The last count, if it is of this window and can be believed.
    fn anchored(&self, run: &Run) -> Option<Anchor> {
        let anchor = run.anchor.filter(|anchor| {
            anchor.generation == run.window.generation && anchor.items <= self.sizes.len() && self.is_believed(anchor)
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

    /// A rebuilt window before anything of it is counted: how large it is, and what of it the last count speaks for.
    pub fn of_window(&self, run: &Run, rebuilt: &Run) -> (Bound, Option<u64>) {
        let known: BTreeMap<_, _> = self.sizes.iter().map(|(item, size)| (Arc::as_ptr(item), *size)).collect();
        let mut kept = self.fixed();
        let mut new = Features::default();
        for (part, item) in rebuilt.window.parts.iter().zip(rebuilt.window.items.iter()) {
            let size = known.get(&Arc::as_ptr(item)).copied().unwrap_or_else(|| size_of(item));
            if *part == Part::Header {
                new += size;
            } else {
                kept += size;
            }
        }
        let Some(anchor) = self.anchored(run) else { return (self.estimator.bound(0, &(kept + new)), None) };
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
        let upper = likely.saturating_mul(KEPT_MARGIN) / 100;
        let bound = self.estimator.bound(0, &new);
        (Bound { likely: likely + bound.likely, upper: upper + bound.upper }, Some(upper))
    }

    /// Likely tokens of each item, in order.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
        self.sizes.iter().map(|(_, size)| self.estimator.estimate(size))
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

    /// Bytes of the texts of the request.
    pub fn bytes(&self) -> u64 {
        self.system.bytes + self.tools.bytes + self.between(0, self.sizes.len()).bytes
    }
}

/// A request of no tokens was not counted, whatever the provider says.
fn counted(anchor: Option<Anchor>) -> Option<Anchor> {
    anchor.filter(|anchor| anchor.tokens > 0)
}

fn size_of_tool(tool: &ToolDef) -> Features {
    Features::of(tool.name.as_str())
        + Features::of(&tool.description)
        + Features::of(tool.parameters.as_str())
        + Features::of_message("")
}

fn size_of(item: &Item) -> Features {
    let text = match item {
        Item::User(text) | Item::Harness(text) | Item::Observation { text, .. } => Features::of(text),
        Item::Assistant { text, calls } => calls.iter().fold(Features::of(text), |sum, call| {
            sum + Features::of(&call.name) + Features::of(&call.arguments) + Features::of_message("")
        }),
    };
    text + Features::of_message("")
}
