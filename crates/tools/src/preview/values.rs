//! JSON values with less in them: an object keeps its keys, a number its digits, a string its ends.
//!
//! Room goes first to what is small and says how things went, then in equal shares to the rest; what a member does not
//! need is the others'.

use std::collections::HashMap;

use super::cost::{Level, grouped};
use super::scan::{Kind, decoded, elements, members, quoted};
use super::{rows, text};

/// Deeper parts are told by name only.
const DEPTH_MAX: usize = 6;

/// With less room an object or a list is told by name.
const OPEN_MIN_BYTES: usize = 48;

/// With so much room a long list is described, rather than sampled.
const DESCRIBED_MIN_BYTES: usize = 400;
const DESCRIBED_MIN_ELEMENTS: usize = 5;

/// What a member gets at least: room for a word on what it is.
const MEMBER_MIN_BYTES: usize = 40;

/// A scalar that says how things went is shown whole up to this.
const TELLING_MAX_BYTES: usize = 300;

/// Members whose small values are shown whatever else there is.
const TELLING: &[&str] = &[
    "status",
    "exit_status",
    "exit_code",
    "exitCode",
    "code",
    "signal",
    "ok",
    "success",
    "error",
    "errors",
    "isError",
    "is_error",
    "message",
    "reason",
    "id",
    "name",
    "path",
    "type",
    "total",
    "count",
    "total_lines",
    "next",
    "cursor",
    "next_cursor",
    "nextCursor",
    "truncated",
    "left_out",
    "output_bytes",
    "output_lines",
    "dropped_bytes",
    "from",
    "to",
    "title",
    "url",
];

/// JSON text, at most `room` in the cost of `level`. Any value has a form that fits [`least`].
pub(super) fn shortened(raw: &str, level: Level, room: usize, depth: usize) -> String {
    if level.fits(raw, room) {
        return raw.to_owned();
    }
    match Kind::of(raw) {
        Kind::String => string(raw, level, room),
        Kind::Array if depth < DEPTH_MAX && room >= OPEN_MIN_BYTES => array(raw, level, room, depth),
        Kind::Object if depth < DEPTH_MAX && room >= OPEN_MIN_BYTES => object(raw, level, room, depth),
        Kind::Array | Kind::Object | Kind::Number | Kind::Boolean | Kind::Null => named(raw, level, room),
    }
}

/// What the smallest form of a value costs.
pub(super) fn least(level: Level) -> usize {
    level.cost("\"\"")
}

fn string(raw: &str, level: Level, room: usize) -> String {
    let inner = room.saturating_sub(least(level));
    quoted(&text(&decoded(raw), level.inside(), inner))
}

/// What it is and how large, in as many words as fit.
fn named(raw: &str, level: Level, room: usize) -> String {
    let bytes = grouped(raw.len());
    let kind = Kind::of(raw);
    let mut forms = Vec::new();
    match kind {
        Kind::Object => {
            let keys = members(raw).count();
            let some: Vec<_> = members(raw).take(NAMED_KEYS_MAX).map(|(key, _)| decoded(key)).collect();
            let more = if keys > some.len() { ", …" } else { "" };
            forms.push(format!("[object of {} keys: {}{more}; {bytes} bytes]", grouped(keys), some.join(", ")));
            forms.push(format!("[object of {} keys, {bytes} bytes]", grouped(keys)));
        }
        Kind::Array => forms.push(format!("[array of {} elements, {bytes} bytes]", grouped(elements(raw).count()))),
        Kind::Number => forms.push(format!("[number of {bytes} characters]")),
        Kind::String | Kind::Boolean | Kind::Null => {}
    }
    forms.extend([format!("[{}, {bytes} bytes]", kind.word()), "[…]".to_owned(), "…".to_owned()]);
    let fitting = forms.iter().map(|form| quoted(form)).find(|form| level.fits(form, room));
    fitting.unwrap_or_else(|| "\"\"".to_owned())
}

const NAMED_KEYS_MAX: usize = 8;

/// Its first and last elements, with a word on the others between them; of a long one a description.
fn array(raw: &str, level: Level, room: usize, depth: usize) -> String {
    let count = elements(raw).count();
    if count >= DESCRIBED_MIN_ELEMENTS && room >= DESCRIBED_MIN_BYTES && level.opens_strings() {
        let described =
            rows::described(elements(raw), rows::What::Array { bytes: raw.len() }, level.inside(), room - least(level));
        return quoted(&described);
    }
    let left_out =
        |shown: usize| quoted(&format!("[… {} of {} elements left out …]", grouped(count - shown), grouped(count)));
    let Some(mut left) = room.checked_sub(2 + level.cost(&left_out(0)) + 1) else { return named(raw, level, room) };
    let sample = rows::Sample::of(elements(raw));
    let share = (left / sample.len().clamp(1, 4)).max(MEMBER_MIN_BYTES);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (element, end) in sample {
        let Some(fit) = left.checked_sub(1).map(|left| left.min(share)).filter(|fit| *fit >= least(level) + 8) else {
            break;
        };
        let shown = shortened(element, level, fit, depth + 1);
        left -= 1 + level.cost(&shown);
        match end {
            rows::End::First => first.push(shown),
            rows::End::Last => last.push(shown),
        }
    }
    let shown = first.len() + last.len();
    if shown == 0 {
        return named(raw, level, room);
    }
    if shown < count {
        first.push(left_out(shown));
    }
    first.extend(last.into_iter().rev());
    format!("[{}]", first.join(","))
}

struct Member<'a> {
    key: &'a str,
    value: &'a str,
    /// What key, colon and comma cost.
    around: usize,
    /// What the whole value costs, or more than there is.
    whole: usize,
    rank: Rank,
}

/// Which members go first when there is not room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Telling,
    Small,
    Large,
}

impl<'a> Member<'a> {
    fn of(key: &'a str, value: &'a str, level: Level, room: usize) -> Self {
        let whole = if level.fits(value, room) { level.cost(value) } else { room + 1 };
        let is_telling = whole <= TELLING_MAX_BYTES && TELLING.contains(&key.trim_matches('"'));
        let rank = if is_telling {
            Rank::Telling
        } else if whole <= MEMBER_MIN_BYTES {
            Rank::Small
        } else {
            Rank::Large
        };
        Self { key, value, around: level.cost(key) + 2, whole, rank }
    }

    fn least(&self) -> usize {
        self.whole.min(MEMBER_MIN_BYTES)
    }
}

fn object(raw: &str, level: Level, room: usize, depth: usize) -> String {
    let all = distinct(raw, level, room);
    let count = all.len();
    let rest = |left: usize| {
        format!("{}:{}", level_key(), quoted(&format!("[{} of {} keys left out]", grouped(left), grouped(count))))
    };
    let kept = chosen(&all, room.saturating_sub(2), level.cost(&rest(count)));
    if kept.is_empty() {
        return named(raw, level, room);
    }
    let mut left = room - 2;
    if kept.len() < count {
        left -= level.cost(&rest(count));
    }
    left -= kept.iter().map(|at| all[*at].around).sum::<usize>();
    let mut order = kept.clone();
    order.sort_by_key(|at| (all[*at].rank, all[*at].whole));
    let mut owed: usize = kept.iter().map(|at| all[*at].least()).sum();
    let mut shown: HashMap<usize, String> = HashMap::new();
    for (done, at) in order.iter().enumerate() {
        let member = &all[*at];
        owed -= member.least();
        let free = left - owed;
        let share = left / (order.len() - done);
        let allotted = match member.rank {
            Rank::Telling => member.whole.min(free),
            Rank::Small | Rank::Large => member.whole.min(share.max(member.least())).min(free),
        };
        let value = shortened(member.value, level, allotted, depth + 1);
        left -= level.cost(&value);
        shown.insert(*at, value);
    }
    let mut parts: Vec<String> =
        kept.iter().filter_map(|at| Some(format!("{}:{}", all[*at].key, shown.remove(at)?))).collect();
    if kept.len() < count {
        parts.push(rest(count - kept.len()));
    }
    format!("{{{}}}", parts.join(","))
}

/// The key under which it is said that others are missing.
fn level_key() -> &'static str {
    "\"…\""
}

/// The members of an object; of a key that occurs twice the later value counts, as for most readers.
fn distinct(raw: &str, level: Level, room: usize) -> Vec<Member<'_>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut found: Vec<Member<'_>> = Vec::new();
    for (key, value) in members(raw).filter(|(key, _)| *key != level_key()) {
        let member = Member::of(key, value, level, room);
        match places.get(key) {
            Some(at) => found[*at] = member,
            None => {
                places.insert(key, found.len());
                found.push(member);
            }
        }
    }
    found
}

/// Which members there is room for at all, in their order. `note`: what a word on the others costs.
fn chosen(all: &[Member<'_>], room: usize, note: usize) -> Vec<usize> {
    let needed = |member: &Member<'_>| member.around + member.least();
    if all.iter().map(needed).sum::<usize>() <= room {
        return (0..all.len()).collect();
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| all[*at].rank);
    let mut left = room.saturating_sub(note);
    let fits = |at: &usize| {
        let rest = left.checked_sub(needed(&all[*at]));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let mut kept: Vec<usize> = order.into_iter().filter(fits).collect();
    kept.sort_unstable();
    kept
}
