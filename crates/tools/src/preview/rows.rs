//! Many values of one kind, an array or lines of JSON: how many, the first and the last of them, and what their fields
//! hold, so that the shape is clear without the whole.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

use super::cost::{Level, grouped};
use super::scan::{Kind, decoded, members};
use super::values::shortened;

/// What the values were found in, and the size of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Array { bytes: usize },
    Lines { bytes: usize },
}

/// Statistics get so much of the room, samples the rest.
const STATISTICS_SHARE: (usize, usize) = (2, 5);

/// Of fewer values there is nothing to count.
const STATISTICS_MIN_VALUES: usize = 3;

/// A sample is shown if it gets so much.
const SAMPLE_MIN_BYTES: usize = 24;

/// How many samples share the room, at least.
const SAMPLES: usize = 4;

/// Text about the values, at most `room` in the cost of `level`.
pub(super) fn described<'a>(values: impl Iterator<Item = &'a str>, what: What, level: Level, room: usize) -> String {
    let mut fields = Fields::default();
    let sample = Sample::of(values.inspect(|value| fields.take(value)));
    let count = sample.count;
    let title = match what {
        What::Array { bytes } => format!("[array of {} elements, {} bytes]\n", grouped(count), grouped(bytes)),
        What::Lines { bytes } => format!("[{} lines of JSON, {} bytes]\n", grouped(count), grouped(bytes)),
    };
    let left_out = |shown: usize| format!("[… {} left out …]\n", grouped(count - shown));
    let fixed = level.cost(&title) + level.cost(&left_out(0));
    let Some(left) = room.checked_sub(fixed) else {
        return level.head(title.trim_end(), room).to_owned();
    };
    let statistics = if count >= STATISTICS_MIN_VALUES {
        fields.told(level, left * STATISTICS_SHARE.0 / STATISTICS_SHARE.1)
    } else {
        String::new()
    };
    let mut left = left - level.cost(&statistics);
    let share = (left / sample.len().clamp(1, SAMPLES)).max(SAMPLE_MIN_BYTES);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let line_end = level.cost("\n");
    for (value, end) in sample {
        let room = left.saturating_sub(line_end).min(share);
        if room < SAMPLE_MIN_BYTES && !level.fits(value, room) {
            break;
        }
        let shown = shortened(value, level, room, 1) + "\n";
        left -= level.cost(&shown);
        match end {
            End::First => first.push(shown),
            End::Last => last.push(shown),
        }
    }
    let shown = first.len() + last.len();
    let mut out = title;
    out.extend(first);
    if shown < count {
        out.push_str(&left_out(shown));
    }
    out.extend(last.into_iter().rev());
    out.push_str(&statistics);
    out.truncate(out.trim_end().len());
    out
}

/// Values from both ends of a row, in the order in which they are worth showing.
pub(super) struct Sample<'a> {
    first: VecDeque<&'a str>,
    /// The last one is at the back.
    last: VecDeque<&'a str>,
    pub(super) count: usize,
    taken: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// So many values are kept from either end.
const SAMPLED_MAX: usize = 64;

impl<'a> Sample<'a> {
    pub(super) fn of(values: impl Iterator<Item = &'a str>) -> Self {
        let mut sample = Self { first: VecDeque::new(), last: VecDeque::new(), count: 0, taken: 0 };
        for value in values {
            sample.count += 1;
            if sample.first.len() < SAMPLED_MAX {
                sample.first.push_back(value);
            } else {
                if sample.last.len() == SAMPLED_MAX {
                    sample.last.pop_front();
                }
                sample.last.push_back(value);
            }
        }
        sample
    }

    /// How many can be taken.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.last.len()
    }
}

impl<'a> Iterator for Sample<'a> {
    type Item = (&'a str, End);

    /// The first, the last, two more from the start, one from the end, and so on.
    fn next(&mut self) -> Option<Self::Item> {
        let from_end = self.taken % 3 == 1;
        self.taken += 1;
        if from_end {
            // What is left of a short row lies in its first part alone.
            let last = self.last.pop_back().or_else(|| self.first.pop_back())?;
            Some((last, End::Last))
        } else {
            match self.first.pop_front() {
                Some(first) => Some((first, End::First)),
                None => self.last.pop_back().map(|last| (last, End::Last)),
            }
        }
    }
}

/// More fields than this are no shape.
const FIELDS_MAX: usize = 200;

/// A field with no more different values than this has them listed.
const VALUES_MAX: usize = 6;
const VALUE_MAX_BYTES: usize = 40;

/// What is counted of the values: as a whole, and by field of those that are objects.
#[derive(Default)]
struct Fields<'a> {
    whole: Field<'a>,
    objects: usize,
    fields: Vec<(&'a str, Field<'a>)>,
    places: HashMap<&'a str, usize>,
    /// Fields that were not counted, as often as they occurred.
    beyond: usize,
}

#[derive(Default)]
struct Field<'a> {
    count: usize,
    /// Its kinds, with how often each occurs.
    kinds: Vec<(Kind, usize)>,
    /// As written, smallest and largest.
    numbers: Option<(&'a str, &'a str)>,
    /// Different values with how often each occurs; None: too many.
    values: Values<'a>,
}

enum Values<'a> {
    Few(Vec<(&'a str, usize)>),
    Many,
}

impl Default for Values<'_> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, value: &'a str) {
        self.whole.take(value);
        if Kind::of(value) != Kind::Object {
            return;
        }
        self.objects += 1;
        for (at, (key, value)) in members(value).enumerate() {
            // Most rows have their fields in the same order.
            let place = match self.fields.get(at) {
                Some((name, _)) if *name == key => Some(at),
                _ => self.places.get(key).copied(),
            };
            match place {
                Some(place) => self.fields[place].1.take(value),
                None if self.fields.len() < FIELDS_MAX => {
                    let mut field = Field::default();
                    field.take(value);
                    self.places.insert(key, self.fields.len());
                    self.fields.push((key, field));
                }
                None => self.beyond += 1,
            }
        }
    }

    /// A line for each field, as many as fit.
    fn told(&self, level: Level, room: usize) -> String {
        let mut list = List { out: String::new(), level, left: room };
        if self.objects < self.whole.count && !list.push(&format!("[values] {}\n", self.whole.told(self.whole.count))) {
            return list.out;
        }
        if self.fields.is_empty() || !list.push(&format!("[fields of {} objects]\n", grouped(self.objects))) {
            return list.out;
        }
        // room for the word on what is missing
        let note = |missing: usize| format!("[{} more fields]\n", grouped(missing));
        let reserve = level.cost(&note(self.fields.len()));
        for (at, (key, field)) in self.fields.iter().enumerate() {
            let line = format!("{}: {}\n", clipped(&decoded(key)), field.told(self.objects));
            let is_last = at + 1 == self.fields.len() && self.beyond == 0;
            let needed = level.cost(&line) + if is_last { 0 } else { reserve };
            if needed > list.left {
                list.push(&note(self.fields.len() - at));
                return list.out;
            }
            list.push(&line);
        }
        if self.beyond > 0 {
            list.push("[and other fields]\n");
        }
        list.out
    }
}

/// Lines that fit.
struct List {
    out: String,
    level: Level,
    left: usize,
}

impl List {
    fn push(&mut self, line: &str) -> bool {
        let fits = self.level.fits(line, self.left);
        if fits {
            self.left -= self.level.cost(line);
            self.out.push_str(line);
        }
        fits
    }
}

impl<'a> Field<'a> {
    fn take(&mut self, value: &'a str) {
        self.count += 1;
        let kind = Kind::of(value);
        match self.kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => self.kinds.push((kind, 1)),
        }
        if kind == Kind::Number {
            let (small, large) = self.numbers.unwrap_or((value, value));
            let small = if compare(value, small) == Ordering::Less { value } else { small };
            let large = if compare(value, large) == Ordering::Greater { value } else { large };
            self.numbers = Some((small, large));
        }
        if let Values::Few(known) = &mut self.values {
            match known.iter().position(|(known, _)| *known == value) {
                Some(at) => known[at].1 += 1,
                None if known.len() < VALUES_MAX && value.len() <= VALUE_MAX_BYTES => known.push((value, 1)),
                None => self.values = Values::Many,
            }
        }
    }

    fn told(&self, of: usize) -> String {
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|(kind, count)| match self.kinds.len() {
                1 => kind.word().to_owned(),
                _ => format!("{} ×{}", kind.word(), grouped(*count)),
            })
            .collect();
        let mut told = kinds.join(", ");
        if self.count < of {
            told.push_str(&format!(" in {}", grouped(self.count)));
        }
        match (&self.values, self.numbers) {
            // Values that all differ say no more than the samples do.
            (Values::Few(values), _) if !values.is_empty() && values.len() < self.count => {
                let values: Vec<_> =
                    values.iter().map(|(value, count)| format!("{value} ×{}", grouped(*count))).collect();
                told.push_str(&format!("; {}", values.join(", ")));
            }
            (_, Some((small, large))) if small != large => {
                told.push_str(&format!("; {} to {}", clipped(small), clipped(large)));
            }
            (_, _) => {}
        }
        told
    }
}

/// Numbers by their value, as far as floating point tells them apart.
fn compare(one: &str, other: &str) -> Ordering {
    let value = |raw: &str| raw.parse::<f64>().unwrap_or_default();
    value(one).total_cmp(&value(other))
}

fn clipped(text: &str) -> String {
    if text.len() <= VALUE_MAX_BYTES {
        return text.replace('\n', " ");
    }
    format!("{}…", text[..text.floor_char_boundary(VALUE_MAX_BYTES)].replace('\n', " "))
}
