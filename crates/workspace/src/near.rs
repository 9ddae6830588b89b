//! The lines of a file that come nearest to a text that is not in it.

use similar::{Algorithm, TextDiff};

use crate::shown::head;
use crate::text::{Line, Text};

/// Somewhere near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// First and last line.
    pub lines: (usize, usize),
    /// What stands there, at most a few lines of it.
    pub excerpt: String,
}

const CANDIDATES_MAX: usize = 3;
const EXCERPT_LINES_MAX: usize = 6;
const EXCERPT_LINE_MAX_BYTES: usize = 160;
/// Of a line, as much is compared as people can overlook.
const COMPARED_MAX_BYTES: usize = 240;
/// Lines that are compared in full, of those that have most letters in common.
const COMPARED_LINES_MAX: usize = 64;
/// Lines that are looked at at all.
const LINES_MAX: usize = 200_000;
/// Below, two lines have nothing to do with each other.
const RATIO_MIN: f32 = 0.6;

/// Nearest first. Goes by the longest line of what was looked for: it says most.
pub(crate) fn nearest(text: &Text<'_>, wanted: &[&str]) -> Vec<Candidate> {
    let longest = wanted.iter().enumerate().max_by_key(|(index, line)| (line.trim().len(), usize::MAX - index));
    let Some((anchor_at, anchor)) = longest.filter(|(_, line)| !line.trim().is_empty()) else {
        return Vec::new();
    };
    let anchor = head(anchor.trim(), COMPARED_MAX_BYTES);
    let letters = histogram(anchor);
    let compared = |line: Line| {
        let content = text.content(line);
        let clip = &content[..content.len().min(COMPARED_MAX_BYTES * 2)];
        let line = text.encoding.decode_lossy(clip);
        head(line.trim(), COMPARED_MAX_BYTES).to_owned()
    };
    let mut likely: Vec<(usize, Line)> = text
        .lines()
        .take(LINES_MAX)
        .map(|line| (in_common(&letters, &histogram(&compared(line))), line))
        .filter(|(common, _)| *common > 0)
        .collect();
    likely.sort_by(|(a, line_a), (b, line_b)| b.cmp(a).then(line_a.number.cmp(&line_b.number)));
    likely.truncate(COMPARED_LINES_MAX);
    let mut rated: Vec<(f32, Line)> = likely
        .into_iter()
        .map(|(_, line)| (ratio(anchor, &compared(line)), line))
        .filter(|(ratio, _)| *ratio >= RATIO_MIN)
        .collect();
    rated.sort_by(|(a, line_a), (b, line_b)| b.total_cmp(a).then(line_a.number.cmp(&line_b.number)));
    rated.truncate(CANDIDATES_MAX);
    rated.into_iter().map(|(_, line)| candidate(text, line, anchor_at, wanted.len())).collect()
}

fn ratio(a: &str, b: &str) -> f32 {
    TextDiff::configure().algorithm(Algorithm::Myers).diff_chars(a, b).ratio()
}

/// The window of the file in which the anchor is the `anchor_at`-th of `count` lines.
fn candidate(text: &Text<'_>, anchor: Line, anchor_at: usize, count: usize) -> Candidate {
    let first = anchor.number.saturating_sub(anchor_at).max(1);
    let lines: Vec<Line> = text.lines().skip(first - 1).take(count).collect();
    let last = lines.last().map_or(anchor.number, |line| line.number);
    // around the anchor, so that it is always in what is shown
    let from = (anchor.number - first).saturating_sub(EXCERPT_LINES_MAX / 2);
    let excerpt: Vec<String> = lines
        .iter()
        .skip(from)
        .take(EXCERPT_LINES_MAX)
        .map(|line| {
            let content = text.encoding.decode_lossy(text.content(*line));
            let shown = head(&content, EXCERPT_LINE_MAX_BYTES);
            format!("{}: {shown}{}", line.number, if shown.len() < content.len() { "…" } else { "" })
        })
        .collect();
    Candidate { lines: (first, last), excerpt: excerpt.join("\n") }
}

fn histogram(text: &str) -> [u16; 64] {
    let mut counts = [0u16; 64];
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        counts[usize::from(byte % 64)] += 1;
    }
    counts
}

fn in_common(a: &[u16; 64], b: &[u16; 64]) -> usize {
    let common: usize = a.iter().zip(b).map(|(a, b)| usize::from(*a.min(b))).sum();
    let all: usize = b.iter().map(|count| usize::from(*count)).sum();
    // a long line has everything in common with anything
    common.saturating_sub(all.saturating_sub(common) / 2)
}
