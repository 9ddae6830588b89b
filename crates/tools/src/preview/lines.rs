//! A long text: its start, its end, and between them how much is missing and the lines of it that report trouble.

use super::cost::{Level, grouped};
use super::data::lines_taken;
use super::diagnostics::{Diagnostics, Found};

/// What lines are called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As in the text that is kept.
    Told,
    /// The text was made from what is kept, and its lines are others.
    Unknown,
}

/// The longest note on what is missing, with line ends, whatever the numbers.
const NOTE_MAX_BYTES: usize = 150;

/// A line is kept whole at the edge of what is left out if less than this share of the piece is lost by it.
const LOSS_MAX_SHARE: usize = 2;

/// A diagnostic is shown to this length.
const DIAGNOSTIC_MAX_BYTES: usize = 240;

/// At most `room` in the cost of `level`.
pub(super) fn shortened(text: &str, level: Level, room: usize, numbers: Numbers) -> String {
    if level.fits(text, room) {
        return text.to_owned();
    }
    let Some(ends) = room.checked_sub(NOTE_MAX_BYTES).filter(|ends| *ends >= MIN_ENDS_BYTES) else {
        return tiny(text, level, room);
    };
    let marked = lines_taken(text) > 0;
    let taken = |line: &str| if marked { lines_taken(line) } else { 0 };
    let lines_of = |part: &str| part.bytes().filter(|byte| *byte == b'\n').count() + taken(part);

    let trouble_max = (room / 3).min(ends / 2);
    let trouble = |head: &str, tail: &str, room: usize| {
        let from = 1 + lines_of(head);
        let shown = |found: &Found<'_>| match numbers {
            Numbers::Told => format!("{}: {}\n", grouped(from + found.line), clipped(found.text)),
            Numbers::Unknown => format!("{}\n", clipped(found.text)),
        };
        let found = Diagnostics::of(&text[head.len()..text.len() - tail.len()], taken);
        let count = found.count;
        let lines: Vec<String> = found.within(room, |found| level.cost(&shown(found))).iter().map(shown).collect();
        (lines, count)
    };
    // What the lines of trouble leave of their share is for the ends, which may then reach some of them.
    let (head, tail) = split(text, level, ends - trouble_max);
    let (lines, _) = trouble(head, tail, trouble_max);
    let used = lines.iter().map(|line| level.cost(line)).sum::<usize>();
    let (head, tail) = split(text, level, ends - used);
    let (trouble, count) = if used > 0 { trouble(head, tail, used) } else { (Vec::new(), 0) };
    let middle = &text[head.len()..text.len() - tail.len()];
    let place = match numbers {
        Numbers::Told => span(1 + lines_of(head), lines_of(middle), middle.ends_with('\n')),
        Numbers::Unknown => String::new(),
    };
    let left_out = grouped(middle.len());
    let mut out = String::with_capacity(room);
    out.push_str(head);
    if !head.ends_with('\n') {
        out.push('\n');
    }
    if trouble.is_empty() {
        out.push_str(&format!("[… {left_out} bytes left out{place} …]\n"));
    } else {
        let (some, all) = (grouped(trouble.len()), grouped(count));
        out.push_str(&format!("[… {left_out} bytes left out{place}; {some} of {all} lines with trouble in them:]\n"));
        out.extend(trouble);
        out.push_str("[…]\n");
    }
    out.push_str(tail);
    out
}

/// Less is no excerpt.
const MIN_ENDS_BYTES: usize = 40;

/// Where there is no room for both ends.
fn tiny(text: &str, level: Level, room: usize) -> String {
    let note = format!(" [… {} bytes left out …]", grouped(text.len()));
    if let Some(rest) = room.checked_sub(level.cost(&note)) {
        let head = level.head(text, rest);
        return format!("{head}{}", note.replace(&grouped(text.len()), &grouped(text.len() - head.len())));
    }
    if level.fits("…", room) { "…".to_owned() } else { String::new() }
}

/// Three fifths from the start and two from the end, in whole lines where that does not cost much.
fn split(text: &str, level: Level, room: usize) -> (&str, &str) {
    let head = level.head(text, room * 3 / 5);
    let whole = head.rfind('\n').map_or(0, |end| end + 1);
    let head = if head.len() - whole <= head.len() / LOSS_MAX_SHARE { &head[..whole] } else { head };
    let tail = level.tail(&text[head.len()..], room * 2 / 5);
    let part = tail.find('\n').map_or(tail.len(), |end| end + 1);
    let begins_line = text[..text.len() - tail.len()].ends_with('\n');
    let tail = if !begins_line && part <= tail.len() / LOSS_MAX_SHARE { &tail[part..] } else { tail };
    (head, tail)
}

/// `, lines 40–2,310`: from the line in which what is missing begins to the one in which it ends.
fn span(from: usize, breaks: usize, at_line_end: bool) -> String {
    let to = from + breaks - usize::from(at_line_end && breaks > 0);
    if from == to {
        format!(", line {}", grouped(from))
    } else {
        format!(", lines {}–{}", grouped(from), grouped(to))
    }
}

fn clipped(line: &str) -> String {
    let line = line.trim_end();
    if line.len() <= DIAGNOSTIC_MAX_BYTES {
        return line.to_owned();
    }
    format!("{}…", &line[..line.floor_char_boundary(DIAGNOSTIC_MAX_BYTES)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log() -> String {
        (1..=3_000)
            .map(|n| if n % 700 == 0 { format!("error: number {n} broke\n") } else { format!("line {n} is fine\n") })
            .collect()
    }

    #[test]
    fn both_ends_the_gap_and_the_trouble() {
        let shown = shortened(&log(), Level::OUTERMOST, 1_000, Numbers::Told);
        assert!(shown.len() <= 1_000);
        let lines: Vec<&str> = shown.lines().collect();
        let gap = lines.iter().position(|line| line.starts_with("[…")).unwrap();
        assert_eq!((lines[0], *lines.last().unwrap()), ("line 1 is fine", "line 3000 is fine"));
        let last: usize = lines[gap - 1].split(' ').nth(1).unwrap().parse().unwrap();
        let next: usize = lines[gap + 6].split(' ').nth(1).unwrap().parse().unwrap();
        let expected = format!("lines {}–{}; 4 of 4 lines with trouble in them:]", last + 1, grouped(next - 1));
        assert!(lines[gap].ends_with(&expected), "{}", lines[gap]);
        assert_eq!(lines[gap + 1], "700: error: number 700 broke");
        assert_eq!(lines[gap + 4..gap + 6], ["2,800: error: number 2800 broke", "[…]"]);
    }

    #[test]
    fn without_trouble_the_ends_get_all() {
        let text: String = (1..=3_000).map(|n| format!("{n}\n")).collect();
        let shown = shortened(&text, Level::OUTERMOST.inside(), 1_000, Numbers::Told);
        assert!(shown.starts_with("1\n2\n3\n") && shown.ends_with("2999\n3000\n"), "{shown}");
        assert!(Level::OUTERMOST.inside().cost(&shown) > 850, "{shown}");
        assert!(shown.contains(" bytes left out, lines "), "{shown}");
        assert!(!shortened(&text, Level::OUTERMOST, 1_000, Numbers::Unknown).contains("lines"));
    }

    #[test]
    fn one_huge_line_is_cut_within() {
        let text = format!("first\n{}\nlast", "é".repeat(1_000_000));
        let shown = shortened(&text, Level::OUTERMOST, 1_000, Numbers::Told);
        assert!(shown.starts_with("first\né") && shown.ends_with("é\nlast"), "{shown}");
        assert!(shown.contains(" bytes left out, line 2 …]\n") && shown.len() > 800, "{shown}");
    }

    #[test]
    fn lines_are_counted_past_what_was_taken_out() {
        let text = format!("one\n[data, 9,999 bytes on 100 lines]\n{}", "xx\n".repeat(1_000));
        let shown = shortened(&text, Level::OUTERMOST, 400, Numbers::Told);
        let head = shown.lines().take_while(|line| !line.starts_with("[…")).count();
        assert!(shown.contains(&format!("lines {}–", head + 99 + 1)), "{shown}");
    }

    proptest! {
        #[test]
        fn never_more_than_its_room(
            pieces in prop::collection::vec(("(error: )?[a-zé\"\\\\\n]{0,9}", 0_usize..200), 0..30), room in 0_usize..3_000
        ) {
            let text: String = pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect();
            for level in [Level::OUTERMOST, Level::OUTERMOST.inside(), Level::OUTERMOST.inside().inside()] {
                let shown = shortened(&text, level, room, Numbers::Told);
                prop_assert!(level.cost(&shown) <= room, "{} > {room}", level.cost(&shown));
                prop_assert_eq!(shown == text, level.fits(&text, room));
            }
        }
    }
}
