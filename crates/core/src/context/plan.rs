//! What becomes of the window before a request: nothing, results to be spilled, a rebuild, or no request at all. Decides
//! from the state, the counts and the time; the fold carries it out.

use std::time::Duration;

use crate::action::Action;
use crate::context::estimate::Bound;
use crate::context::meter::{Bulk, LAST_ITEMS, Meter, Rebuilt};
use crate::context::render;
use crate::context::settings::{ASSUMED_LIMIT, Limits, REQUEST_BYTES_MAX, REQUEST_IMAGES_MAX, Trigger, share};
use crate::context::window::{self, Fate, Part, RENDERING, Seen};
use crate::decide::BACKOFF_MAX;
use crate::event::{AfterFailure, Counted, Failure, GenerationStarted, ModelForgone, RebuildStep, RebuildWhy};
use crate::ids::{ActionId, TurnId};
use crate::observe;
use crate::prompt::{Item, Purpose, ToolDef};
use crate::run::{Run, Stage};
use crate::task::{Builtin, ToolBody};
use crate::time::Timestamp;

/// What is to be done before the next request can leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// It fits.
    Send {
        counted: Counted,
        reserved: u64,
    },
    /// These results are larger than the window can bear.
    Spill(Vec<Spill>),
    Rebuild(Box<GenerationStarted>),
    /// It cannot be made.
    Forgo(ModelForgone),
}

/// A result to be shown shorter, in at most so many bytes of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spill {
    pub action: ActionId,
    pub bytes_max: u64,
}

/// A single result may take 2 % of the window, but between these; all of a turn 4 %, between these (`context.md` §2.4).
const RESULT_SHARE: u32 = 20;
const RESULT_TOKENS: (u64, u64) = (1_000, 8_000);
const TURN_SHARE: u32 = 40;
const TURN_TOKENS: (u64, u64) = (2_000, 16_000);
/// A result of `recall` may take so many times more.
const RECALL_FACTOR: u64 = 4;
/// Less is no preview.
const PREVIEW_TOKENS_MIN: u64 = 60;
/// Above this the caps are halved.
const HIGH: u32 = 700;
/// Rebuild now.
const WATERMARK: u32 = 800;
/// Rebuild before anything is sent.
const FULL: u32 = 850;
/// A rebuild that ends above this is followed by another one only when it must be.
pub(super) const REARM: u32 = 500;
/// So few turns left by forecast is as good as the watermark.
const TURNS_LEFT_MIN: u64 = 4;
/// Turns, and growth in thousandths of what may be sent, between rebuilds.
const TURNS_BETWEEN: u32 = 8;
const GROWTH_BETWEEN: u32 = 150;
/// Rebuilds without anything achieved between them.
pub const BARREN_REBUILDS_MAX: u32 = 3;
/// Requests the provider finds too long before it is given up (`design.md` §5).
pub const OVERFLOWS_MAX: u32 = 2;
/// How long providers keep a prefix: the shortest that is documented.
const CACHE_KEPT: Duration = Duration::from_secs(300);
/// Cold, a rebuild pays from this many thousandths of what it would leave.
const COLD_GROWTH: u64 = 1_300;
/// What it costs to get lost working set again, in turns of the usual cost: agents have been seen to take 28 actions after
/// a rebuild until the next change (`context.md` §2.5). Until it is measured for this run, no less is assumed.
const REACQUIRE_TURNS: u64 = 28;
/// How full the window is on average, in thousandths, for what a turn costs: half way between a rebuild and the watermark.
const USUALLY_FULL: u32 = 500;
/// Newest whole turns that always stay.
const GROUPS_MIN: usize = 2;
/// An older result is shortened to so many bytes; after a second refusal by the provider all are.
const SHORT_BYTES: u64 = 1_200;
const SHORTEST_BYTES: u64 = 2_000;
/// Smaller results are not worth a reference.
const REFER_TOKENS_MIN: u64 = 120;
/// What a reference itself takes.
const HANDLE_TOKENS: u64 = 70;
/// A rebuild that frees less, in thousandths, is none.
const FREED_MIN: u64 = 50;
/// Above this share of what may be sent a fixed part is worth a word at the start (`context.md` §2.4).
pub const FIXED_WARN: u32 = 400;

/// The arithmetic of the run's next request.
pub fn limits(run: &Run, meter: &Meter) -> Limits {
    let learned = meter.learned.filter(|_| run.window.trusts_learned);
    let window = learned.map_or(run.window_limit(), |learned| learned.min(run.window_limit()));
    let wanted = run.model.max_output.min(run.window.served.output.unwrap_or(u64::MAX));
    // A refused request is followed by one that asks for less.
    let reserved = (wanted.min((window / 4).max(1)) >> run.window.overflows.min(4)).max(1);
    Limits { window, reserved, margin: share(window, run.task.context.margin) }
}

/// What is next.
pub fn plan(run: &Run, meter: &Meter, purpose: Purpose, now: Timestamp) -> Plan {
    let limits = limits(run, meter);
    let spills = spills(run, meter, &limits);
    if !spills.is_empty() {
        return Plan::Spill(spills);
    }
    let tail = match purpose {
        Purpose::Work => render::due_tail(run),
        Purpose::Closing => Some(observe::CLOSING.to_owned()),
    };
    let bound = meter.request(run, tail.as_deref());
    let safe = limits.safe();
    let fits = bound.upper <= safe && can_be_sent(run, meter.bulk());
    let Some(why) = due(run, meter, &limits, bound, now) else {
        return if fits { send(bound, &limits) } else { forgo_too_large(run, meter, &limits, bound) };
    };
    let is_barren = run.window.generation > 1 && run.window.progress == run.memory.progress;
    match compose(run, meter, &limits, why, bound) {
        Some(_) if is_barren && run.window.barren + 1 >= BARREN_REBUILDS_MAX => {
            let reason = format!(
                "the window filled up {BARREN_REBUILDS_MAX} times in a row and nothing new came of it: no step, change, finding or new look between"
            );
            Plan::Forgo(ModelForgone { next: AfterFailure::Fail(Failure::NoProgress), reason })
        }
        Some(started) => Plan::Rebuild(Box::new(started)),
        // Nothing to be won, and it may go as it is; after a refusal with less room for the reply, and never as the same
        // bytes again: that is seen to where the request is decided on.
        None if fits => send(bound, &limits),
        None => forgo_too_large(run, meter, &limits, bound),
    }
}

fn send(bound: Bound, limits: &Limits) -> Plan {
    let counted = Counted { likely: bound.likely, upper: bound.upper, safe: limits.safe() };
    Plan::Send { counted, reserved: limits.reserved }
}

/// Whether it is within the bounds that are none of tokens.
fn can_be_sent(run: &Run, bulk: Bulk) -> bool {
    bulk.bytes <= bytes_max(run) && bulk.images <= REQUEST_IMAGES_MAX
}

fn bytes_max(run: &Run) -> u64 {
    // Escapes make JSON longer than the texts in it.
    run.window.served.bytes.unwrap_or(REQUEST_BYTES_MAX).saturating_mul(4) / 5
}

/// Rebuilds that are no matter of taste.
fn must(why: RebuildWhy) -> bool {
    match why {
        RebuildWhy::Full | RebuildWhy::Overflow(_) => true,
        RebuildWhy::Economic
        | RebuildWhy::ColdCache
        | RebuildWhy::Trigger
        | RebuildWhy::Watermark
        | RebuildWhy::Forecast
        | RebuildWhy::Rendering => false,
    }
}

// ---- spilling at birth ----

/// Results of the last turn that are too large: single ones first, then the largest until the turn fits. One that is cut is
/// cut to half of what it might have taken: who needs more of it asks.
fn spills(run: &Run, meter: &Meter, limits: &Limits) -> Vec<Spill> {
    if run.fresh.is_empty() {
        return Vec::new();
    }
    let used = meter.request(run, None).upper;
    let halved = u32::from(used > share(limits.safe(), HIGH));
    let cap = |part: u32, (least, most): (u64, u64)| share(limits.window, part).clamp(least, most) >> halved;
    // A window that is small itself can bear less.
    let single = cap(RESULT_SHARE, RESULT_TOKENS).min((limits.safe() / 8).max(PREVIEW_TOKENS_MIN));
    let turn = cap(TURN_SHARE, TURN_TOKENS).min((limits.safe() / 4).max(PREVIEW_TOKENS_MIN));
    let count = run.window.parts.len();
    // They stand at the end, with what came with them.
    let fresh: Vec<Fresh<'_>> = (count.saturating_sub(LAST_ITEMS)..count)
        .filter_map(|place| match (run.window.parts.get(place)?, run.window.items.get(place)?.as_ref()) {
            (Part::Observation(seen), Item::Observation { text, .. } | Item::Harness(text)) => {
                let action = run.fresh.iter().find(|action| action.id == seen.action)?;
                Some(Fresh { action, tokens: meter.item(place), bytes: text.len() as u64 })
            }
            (_, _) => None,
        })
        .collect();
    let unasked = fresh.iter().filter(|fresh| !is_recalled(run, fresh.action));
    let level = level(unasked.map(|fresh| fresh.tokens.min(single)), turn);
    let most = |fresh: &Fresh<'_>| match is_recalled(run, fresh.action) {
        // What was asked back for is worth more room than what came unasked.
        true => (single * RECALL_FACTOR).min((limits.safe() / 8).max(PREVIEW_TOKENS_MIN)),
        false if level < single => level,
        false if fresh.tokens > single => (single / 2).max(PREVIEW_TOKENS_MIN),
        false => single,
    };
    fresh
        .iter()
        .filter(|fresh| fresh.tokens > most(fresh))
        .filter_map(|fresh| {
            // What the envelope takes is not the preview's.
            let fitting = (fresh.bytes * most(fresh) / fresh.tokens.max(1)).saturating_sub(ENVELOPE_BYTES);
            let bytes_max = fitting.max(PREVIEW_BYTES_MIN);
            // An error may be all words, and a preview is not made any shorter than it is.
            let shown = fresh.action.data()?.shown().as_str().len() as u64;
            (shown > bytes_max).then_some(Spill { action: fresh.action.id, bytes_max })
        })
        .collect()
}

/// A result of the last turn, as it stands in the window.
struct Fresh<'a> {
    action: &'a Action,
    tokens: u64,
    bytes: u64,
}

fn is_recalled(run: &Run, action: &Action) -> bool {
    run.task.tool(&action.tool).is_some_and(|tool| tool.body == ToolBody::Builtin(Builtin::Recall))
}

/// What an observation has beside its data.
const ENVELOPE_BYTES: u64 = 160;
const PREVIEW_BYTES_MIN: u64 = 160;

/// The height at which the larger sizes are cut so that all together are at most `most`.
fn level(sizes: impl Iterator<Item = u64>, most: u64) -> u64 {
    let mut sizes: Vec<_> = sizes.collect();
    if sizes.iter().sum::<u64>() <= most {
        return u64::MAX;
    }
    sizes.sort_unstable();
    let mut room = most;
    let count = sizes.len();
    for (place, size) in sizes.iter().enumerate() {
        let left = (count - place) as u64;
        if size.saturating_mul(left) > room {
            return (room / left).max(PREVIEW_TOKENS_MIN);
        }
        room -= size;
    }
    u64::MAX
}

// ---- when ----

fn due(run: &Run, meter: &Meter, limits: &Limits, bound: Bound, now: Timestamp) -> Option<RebuildWhy> {
    let window = &run.window;
    let safe = limits.safe();
    if window.rendering != RENDERING {
        return Some(RebuildWhy::Rendering);
    }
    if window.overflows > window.answered {
        return Some(RebuildWhy::Overflow(window.overflows));
    }
    if bound.upper > share(safe, FULL) || !can_be_sent(run, meter.bulk()) {
        return Some(RebuildWhy::Full);
    }
    // Another attempt at the same turn sends the same bytes.
    let attempts = match &run.stage {
        Stage::Ready(ready) => ready.attempts,
        Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => 0,
    };
    if attempts > 0 {
        return None;
    }
    let turns = run.turn().0.saturating_sub(window.since.0);
    let growth = Growth::of(meter);
    let base = growth.base;
    let is_armed = window.generation == 1 || base <= share(safe, REARM);
    if turns < TURNS_BETWEEN || bound.likely.saturating_sub(base) < share(safe, GROWTH_BETWEEN) || !is_armed {
        return None;
    }
    match run.task.context.trigger {
        // Who names a share means it: what grows past it is caught before it is sent.
        Trigger::At(part) if bound.upper > share(safe, part.min(WATERMARK)) => return Some(RebuildWhy::Trigger),
        Trigger::At(_) => {}
        Trigger::Economic => {
            if bound.upper > share(safe, WATERMARK) {
                return Some(RebuildWhy::Watermark);
            }
            let left = share(safe, FULL).saturating_sub(bound.upper) / growth.forecast.max(1);
            if left <= TURNS_LEFT_MIN {
                return Some(RebuildWhy::Forecast);
            }
            if bound.likely >= economic(run, meter, limits, &growth) {
                return Some(RebuildWhy::Economic);
            }
        }
    }
    let idle = run.anchor.map(|anchor| now.since(anchor.at)).unwrap_or_default();
    let is_cold = idle > CACHE_KEPT + BACKOFF_MAX;
    (is_cold && bound.likely * 1_000 > base * COLD_GROWTH).then_some(RebuildWhy::ColdCache)
}

/// How the window grows.
struct Growth {
    /// What a generation starts with.
    base: u64,
    /// Tokens a turn, smoothed.
    mean: u64,
    /// The larger of that and of what nine turns in ten stay under.
    forecast: u64,
}

impl Growth {
    fn of(meter: &Meter) -> Self {
        let (turns, base) = meter.growth();
        let mut mean = turns.first().map_or(0, |(_, tokens)| *tokens);
        for (_, tokens) in turns {
            mean = (mean * 9 + tokens) / 10;
        }
        let mut last: Vec<_> = turns.iter().rev().take(20).map(|(_, tokens)| *tokens).collect();
        last.sort_unstable();
        let high = last.get((last.len() * 9).div_ceil(10).saturating_sub(1)).copied().unwrap_or(0);
        Self { base, mean, forecast: mean.max(high) }
    }
}

/// Where carrying on costs more than a rebuild: B + g·T\*, with T\* = √(2((w−r)B′ + A)/(r·g)) (`context.md` §2.1).
fn economic(run: &Run, meter: &Meter, limits: &Limits, growth: &Growth) -> u64 {
    // In thousandths of the price of an input token.
    let (read, write) = match &run.model.price {
        Some(price) if price.input > 0 => {
            let of_input = |part: u64| part.saturating_mul(1000) / price.input;
            (of_input(price.cached).clamp(1, 1000), of_input(price.cache_write).max(1000))
        }
        Some(_) | None => (100, 1_250),
    };
    let fixed = meter.system_tokens() + meter.tools_tokens();
    // The first generation has no control block yet: what a rebuild would leave is a guess.
    let base = if run.window.generation == 1 {
        fixed + share(limits.safe(), run.task.context.recent) * 3 / 2
    } else {
        growth.base
    };
    let rewritten = base.saturating_sub(fixed);
    let growth = growth.mean.max(1);
    let turn = (read * share(limits.safe(), USUALLY_FULL) + write * growth) / 1000;
    let lost = REACQUIRE_TURNS * turn;
    let turns = (2 * ((write - read.min(write)) * rewritten / 1000 + lost) * 1000 / (read * growth)).isqrt();
    base + growth * turns
}

// ---- how ----

/// The first rebuild along the ladder that reaches the target; the one that frees most if none does. None: it would free
/// next to nothing, or still not fit.
fn compose(run: &Run, meter: &Meter, limits: &Limits, why: RebuildWhy, before: Bound) -> Option<GenerationStarted> {
    let safe = limits.safe();
    let target = share(safe, run.task.context.target);
    let mut started = GenerationStarted {
        generation: run.window.generation + 1,
        why,
        rendering: RENDERING,
        limit: limits.window,
        reserved: limits.reserved,
        before: before.likely,
        after: 0,
        kept: None,
        steps: Vec::new(),
        readmitted: Vec::new(),
    };
    let mut trial = Trial::of(run, meter, &started);
    let most = if must(why) { share(safe, FULL) } else { safe };
    let fits = |trial: &Trial<'_>| trial.after.upper <= most && can_be_sent(run, trial.bulk);
    let groups = Groups::of(run, meter);
    let severity = match why {
        RebuildWhy::Overflow(times) => times,
        RebuildWhy::Economic
        | RebuildWhy::ColdCache
        | RebuildWhy::Trigger
        | RebuildWhy::Watermark
        | RebuildWhy::Forecast
        | RebuildWhy::Full
        | RebuildWhy::Rendering => 0,
    };
    let recent = groups.recent(share(safe, run.task.context.recent), if severity > 0 { 1 } else { GROUPS_MIN });
    let one = groups.recent(0, 1);
    let gentle = [
        groups.superseded(),
        groups.refetchable(recent),
        groups.paged_out(TurnId(0), recent),
        groups.shortened(GROUPS_MIN, SHORT_BYTES),
    ];
    let strict = [groups.paged_out(TurnId(0), recent)];
    let ladder = if severity == 0 { gentle.as_slice() } else { strict.as_slice() };
    for step in ladder.iter().flatten() {
        if trial.take(step.clone(), &mut started).likely <= target && can_be_sent(run, trial.bulk) {
            break;
        }
    }
    // What was too long is followed by something shorter, reply included, or by nothing: the block costs something too.
    let too_long = before.likely + limits.reserved.saturating_mul(2);
    // Of the new block the middle of its bounds: the rest is known in proportion.
    let middle = |bound: Bound| bound.likely.midpoint(bound.upper);
    let is_smaller =
        |after: Bound| severity == 0 || (after.likely < before.likely && middle(after) + limits.reserved < too_long);
    // What must fit is cut further than anyone would like.
    let is_out = started.steps.iter().any(|step| matches!(step, RebuildStep::PagedOut { .. }));
    let last: [Option<RebuildStep>; 4] = [
        groups.paged_out(if is_out { recent } else { TurnId(0) }, one),
        groups.shortened(0, SHORTEST_BYTES),
        groups.shortened(0, SHORT_BYTES / 4),
        groups.handles(),
    ];
    let goes = |trial: &Trial<'_>| trial.after.upper <= safe && can_be_sent(run, trial.bulk);
    for (place, step) in last.into_iter().enumerate() {
        // The newest results, which the model has not seen, are cut only where nothing could be sent with them.
        let is_too_much = if place == 0 { !fits(&trial) } else { !goes(&trial) };
        let wanted = is_too_much || !is_smaller(trial.after) || (place == 1 && severity >= OVERFLOWS_MAX);
        if wanted && let Some(step) = step {
            trial.take(step, &mut started);
        }
    }
    started.after = trial.after.likely;
    started.kept = trial.kept;
    let freed = before.likely.saturating_sub(trial.after.likely);
    let is_stuck = before.upper > safe || !can_be_sent(run, meter.bulk());
    let frees = freed * 1_000 >= before.likely * FREED_MIN || is_stuck;
    let is_wanted = (frees && !started.steps.is_empty()) || why == RebuildWhy::Rendering || severity > 0;
    (is_wanted && goes(&trial) && is_smaller(trial.after)).then_some(started)
}

/// A copy of the run on which a rebuild is tried.
struct Trial<'a> {
    run: &'a Run,
    meter: &'a Meter,
    after: Bound,
    /// See [`GenerationStarted::kept`].
    kept: Option<u64>,
    bulk: Bulk,
}

impl<'a> Trial<'a> {
    fn of(run: &'a Run, meter: &'a Meter, started: &GenerationStarted) -> Self {
        let Rebuilt { bound: after, kept, bulk } = size(run, meter, started);
        Self { run, meter, after, kept, bulk }
    }

    /// Adds a step, says what it frees, and answers what is left.
    fn take(&mut self, step: RebuildStep, started: &mut GenerationStarted) -> Bound {
        started.steps.push(step);
        let Rebuilt { bound: after, kept, bulk } = size(self.run, self.meter, started);
        (self.kept, self.bulk) = (kept, bulk);
        let freed = self.after.likely.saturating_sub(after.likely);
        if let Some(step) = started.steps.last_mut() {
            let amount = match step {
                RebuildStep::Superseded { freed, .. }
                | RebuildStep::Refetchable { freed, .. }
                | RebuildStep::PagedOut { freed, .. }
                | RebuildStep::Shortened { freed, .. } => freed,
            };
            *amount = freed;
        }
        self.after = after;
        after
    }
}

/// What a rebuild would leave, tried on a copy.
pub(super) fn size(run: &Run, meter: &Meter, started: &GenerationStarted) -> Rebuilt {
    let mut copy = run.clone();
    window::try_out(&mut copy, started);
    meter.of_window(run, &copy)
}

/// The window's turns, as whole groups of a reply and its observations.
struct Groups<'a> {
    seen: Vec<(&'a Seen, u64)>,
    /// Turn and tokens, oldest first.
    turns: Vec<(TurnId, u64)>,
}

impl<'a> Groups<'a> {
    fn of(run: &'a Run, meter: &Meter) -> Self {
        let mut groups = Self { seen: Vec::new(), turns: Vec::new() };
        for (part, tokens) in run.window.parts.iter().zip(meter.items()) {
            let turn = match part {
                Part::Rules(_) | Part::Goal | Part::Message(_) | Part::Header => continue,
                Part::Reply(turn) | Part::Harness(turn) => *turn,
                Part::Observation(seen) => {
                    groups.seen.push((seen, tokens));
                    seen.turn
                }
            };
            match groups.turns.last_mut() {
                Some((last, sum)) if *last == turn => *sum += tokens,
                Some(_) | None => groups.turns.push((turn, tokens)),
            }
        }
        groups
    }

    /// The first of the newest turns that fit `room`, but at least `least` of them.
    fn recent(&self, room: u64, least: usize) -> TurnId {
        let mut left = room;
        let mut first = TurnId(u32::MAX);
        for (place, (turn, tokens)) in self.turns.iter().rev().enumerate() {
            if place >= least && *tokens > left {
                break;
            }
            left = left.saturating_sub(*tokens);
            first = *turn;
        }
        first
    }

    /// Looks that a later look at the very same thing replaces.
    fn superseded(&self) -> Option<RebuildStep> {
        let mut actions = Vec::new();
        for (place, (seen, tokens)) in self.seen.iter().enumerate() {
            let later = self
                .seen
                .iter()
                .skip(place + 1)
                .rev()
                .find(|(other, _)| other.what == seen.what && other.fate == Fate::Read);
            if let Some((later, _)) = later
                && is_worth(seen, *tokens)
            {
                actions.push((seen.action, later.action));
            }
        }
        (!actions.is_empty()).then_some(RebuildStep::Superseded { actions, freed: 0 })
    }

    /// Looks before the newest turns.
    fn refetchable(&self, recent: TurnId) -> Option<RebuildStep> {
        let newest = self.seen.iter().rev().take(GROUPS_MIN).map(|(seen, _)| seen.action).collect::<Vec<_>>();
        let actions: Vec<_> = self
            .seen
            .iter()
            .filter(|(seen, tokens)| seen.turn < recent && is_worth(seen, *tokens) && !newest.contains(&seen.action))
            .map(|(seen, _)| seen.action)
            .collect();
        (!actions.is_empty()).then_some(RebuildStep::Refetchable { actions, freed: 0 })
    }

    /// Every result there is.
    fn handles(&self) -> Option<RebuildStep> {
        let actions: Vec<_> =
            self.seen.iter().filter(|(_, tokens)| *tokens >= HANDLE_TOKENS).map(|(seen, _)| seen.action).collect();
        (!actions.is_empty()).then_some(RebuildStep::Refetchable { actions, freed: 0 })
    }

    /// Every turn from `first` on and before `recent`.
    fn paged_out(&self, first: TurnId, recent: TurnId) -> Option<RebuildStep> {
        let turns = self.turns.iter().map(|(turn, _)| *turn);
        let gone: Vec<_> = turns.filter(|turn| (first..recent).contains(turn)).collect();
        let (from, to) = (*gone.first()?, *gone.last()?);
        let calls = self.seen.iter().filter(|(seen, _)| (from..=to).contains(&seen.turn));
        let failures = calls.clone().filter(|(seen, _)| seen.fate == Fate::Failed).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(RebuildStep::PagedOut { from, to, calls: count(calls.count()), failures: count(failures), freed: 0 })
    }

    /// All results but the newest `spared`, to so many bytes.
    fn shortened(&self, spared: usize, bytes: u64) -> Option<RebuildStep> {
        let end = self.seen.len().saturating_sub(spared);
        let actions: Vec<_> = self
            .seen
            .iter()
            .take(end)
            .filter(|(_, tokens)| tokens.saturating_mul(2) > bytes / 2)
            .map(|(seen, _)| seen.action)
            .collect();
        (!actions.is_empty()).then_some(RebuildStep::Shortened { actions, bytes, freed: 0 })
    }
}

fn is_worth(seen: &Seen, tokens: u64) -> bool {
    seen.fate == Fate::Read && !seen.reduced && tokens >= REFER_TOKENS_MIN
}

// ---- what does not fit ----

fn forgo_too_large(run: &Run, meter: &Meter, limits: &Limits, bound: Bound) -> Plan {
    let mut pieces = vec![
        ("the system text (instructions, constraints, checks, answer)".to_owned(), meter.system_tokens()),
        ("the tools".to_owned(), meter.tools_tokens()),
    ];
    let (mut turns, mut messages) = (0, 0);
    for (part, tokens) in run.window.parts.iter().zip(meter.items()) {
        match part {
            Part::Rules(path) => pieces.push((path.clone(), tokens)),
            Part::Goal => pieces.push(("the goal".to_owned(), tokens)),
            Part::Message(_) => messages += tokens,
            Part::Header => pieces.push(("the control block".to_owned(), tokens)),
            Part::Reply(_) | Part::Observation(_) | Part::Harness(_) => turns += tokens,
        }
    }
    pieces.push(("the newest turns".to_owned(), turns));
    pieces.push(("people's messages, with their images".to_owned(), messages));
    pieces.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    let largest: Vec<_> = pieces
        .iter()
        .take(3)
        .filter(|(_, tokens)| *tokens > 0)
        .map(|(what, tokens)| format!("{what} (about {tokens} tokens)"))
        .collect();
    let declared = run.model.context_limit.unwrap_or(ASSUMED_LIMIT);
    let learned = if limits.window < declared {
        format!(" (learned from the server; {declared} are declared)")
    } else {
        String::new()
    };
    let bulk = meter.bulk();
    if bulk.images > 0 && !can_be_sent(run, bulk) {
        let reason = format!(
            "what must be sent does not fit: {} images, and with them and the texts {} bytes; a request takes at most \
             {REQUEST_IMAGES_MAX} images and {} bytes. Start a new run with fewer or smaller images.",
            bulk.images,
            bulk.bytes,
            bytes_max(run)
        );
        return Plan::Forgo(ModelForgone { next: AfterFailure::ContextExhausted, reason });
    }
    let reason = format!(
        "what must be sent does not fit: it is about {} tokens and may be {}, and {} of a window of {} tokens{learned} may be used for it, {} are kept free for the reply. The largest pieces are {}. Go on with another model or a larger context_limit; a new run could do with less of what is largest.",
        bound.likely,
        bound.upper,
        limits.safe(),
        limits.window,
        limits.reserved,
        largest.join(", ")
    );
    Plan::Forgo(ModelForgone { next: AfterFailure::ContextExhausted, reason })
}

/// How the next request fills the window: for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub limits: Limits,
    /// Likely and upper tokens of the next request.
    pub bound: Bound,
    pub zones: Vec<Zone>,
    /// Tokens from which on the window is made anew, short of the safety bounds.
    pub rebuild_at: u64,
    /// Turns until then by forecast.
    pub turns_left: u64,
    pub mark: Mark,
    pub generation: u32,
}

/// Which of the bounds of `context.md` §2.4 a request has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// None.
    Below,
    /// Results are shown shorter.
    High,
    /// The window is made anew as soon as that is worth it.
    Rebuild,
    /// The window is made anew before anything is sent.
    Full,
    /// It is not sent.
    Over,
}

impl Mark {
    fn of(upper: u64, safe: u64) -> Self {
        let marks = [(1000, Mark::Over), (FULL, Mark::Full), (WATERMARK, Mark::Rebuild), (HIGH, Mark::High)];
        marks.into_iter().find(|(part, _)| upper > share(safe, *part)).map_or(Mark::Below, |(_, mark)| mark)
    }
}

/// A part of the request and its likely tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub name: &'static str,
    pub tokens: u64,
}

pub const TOOLS: &str = "tools";
pub const SYSTEM: &str = "system";
pub const TAIL: &str = "tail";

/// Which zone a part of the window belongs to.
pub fn zone(part: &Part) -> &'static str {
    match part {
        Part::Rules(_) => "rule files",
        Part::Goal | Part::Message(_) => "goal and messages",
        Part::Header => "control block",
        Part::Reply(_) | Part::Observation(_) | Part::Harness(_) => "turns",
    }
}

/// The context budget of a run as it stands.
pub fn budget(run: &Run, meter: &Meter) -> Budget {
    let limits = limits(run, meter);
    let safe = limits.safe();
    let tail = render::due_tail(run);
    let bound = meter.request(run, tail.as_deref());
    let sum = |name: &'static str| {
        let of_zone = run.window.parts.iter().zip(meter.items()).filter(|(part, _)| zone(part) == name);
        Zone { name, tokens: of_zone.map(|(_, tokens)| tokens).sum() }
    };
    let zones = vec![
        Zone { name: TOOLS, tokens: meter.tools_tokens() },
        Zone { name: SYSTEM, tokens: meter.system_tokens() },
        sum("rule files"),
        sum("goal and messages"),
        sum("control block"),
        sum("turns"),
        Zone { name: TAIL, tokens: tail.map_or(0, |tail| meter.text_tokens(&tail)) },
    ];
    let growth = Growth::of(meter);
    let rebuild_at = match run.task.context.trigger {
        Trigger::At(part) => share(safe, part.min(WATERMARK)),
        Trigger::Economic => economic(run, meter, &limits, &growth).min(share(safe, WATERMARK)),
    };
    let turns_to = |tokens: u64, from: u64| tokens.saturating_sub(from) / growth.forecast.max(1);
    let used = match run.task.context.trigger {
        Trigger::At(_) => bound.upper,
        Trigger::Economic => bound.likely,
    };
    let too_soon = TURNS_BETWEEN.saturating_sub(run.turn().0.saturating_sub(run.window.since.0));
    let to_full = turns_to(share(safe, FULL), bound.upper);
    let wanted = turns_to(rebuild_at, used).min(to_full.saturating_sub(TURNS_LEFT_MIN));
    let turns_left = wanted.max(u64::from(too_soon)).min(to_full);
    let mark = Mark::of(bound.upper, safe);
    Budget { limits, bound, zones, rebuild_at, turns_left, mark, generation: run.window.generation }
}

/// What stands in every request whatever is done: tools, system text, rule files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    pub tokens: u64,
    /// What may be sent.
    pub safe: u64,
    /// Its pieces, the largest first.
    pub pieces: Vec<(String, u64)>,
}

/// The fixed part of a run's requests, where it takes so much of what may be sent that it is worth a word.
pub fn heavy(run: &Run, meter: &Meter, tools: &[ToolDef]) -> Option<Fixed> {
    let safe = limits(run, meter).safe();
    let mut pieces = vec![("the system text".to_owned(), meter.system_tokens())];
    pieces.extend(tools.iter().map(|tool| (format!("the tool {}", tool.name), meter.tool_tokens(tool))));
    for (part, tokens) in run.window.parts.iter().zip(meter.items()) {
        match part {
            Part::Rules(path) => pieces.push((path.clone(), tokens)),
            Part::Goal | Part::Message(_) | Part::Header | Part::Reply(_) | Part::Observation(_) | Part::Harness(_) => {
            }
        }
    }
    let tokens = pieces.iter().map(|(_, tokens)| tokens).sum();
    pieces.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    (tokens > share(safe, FIXED_WARN)).then_some(Fixed { tokens, safe, pieces })
}
