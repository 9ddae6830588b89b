//! Which stretch of a text answers a query best, and how it is shown.

use std::cmp::Reverse;
use std::ops::Range;

use longrein_ports::{EXCERPT_AROUND_BYTES, lines};

use super::query::{Query, Word, tokens};

/// Words further apart than this are not read as one place.
const STRETCH_MAX_BYTES: usize = 400;
/// A shorter word is part of too many others to be looked for inside them.
const PART_MIN_BYTES: usize = 3;

/// A stretch, and how many distinct words of the query are in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) bytes: Range<usize>,
    pub(crate) words: usize,
}

/// How much of a query a text holds as it is written. The greater fits better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// So many of its words, inside others.
    Parts(usize),
    Whole,
}

/// The stretch with most distinct words; of several the shortest, of those the first. None: no word is in the text.
pub(crate) fn of_words(text: &str, query: &Query) -> Option<Stretch> {
    let hits = hits(text, &query.words).found;
    let mut best: Option<Stretch> = None;
    let mut inside = vec![0_usize; query.words.len()];
    let mut words = 0;
    let mut first = 0;
    for last in &hits {
        inside[last.word] += 1;
        words += usize::from(inside[last.word] == 1);
        // The first goes if it is too far away, or if another like it is nearer.
        while let Some(hit) = hits.get(first)
            && (inside[hit.word] > 1
                || last.bytes.end - hit.bytes.start > STRETCH_MAX_BYTES && hit.bytes.start < last.bytes.start)
        {
            inside[hit.word] -= 1;
            words -= usize::from(inside[hit.word] == 0);
            first += 1;
        }
        let start = hits.get(first).map_or(last.bytes.start, |hit| hit.bytes.start);
        let stretch = Stretch { bytes: start..last.bytes.end, words };
        if best.as_ref().is_none_or(|best| stretch.is_better_than(best)) {
            best = Some(stretch);
        }
    }
    best
}

impl Stretch {
    fn is_better_than(&self, other: &Stretch) -> bool {
        (self.words, Reverse(self.bytes.len())) > (other.words, Reverse(other.bytes.len()))
    }
}

/// The words of a query in a text.
pub(crate) struct Hits {
    /// By place.
    pub(crate) found: Vec<Hit>,
    /// How many words the text has.
    pub(crate) tokens: usize,
}

pub(crate) struct Hit {
    bytes: Range<usize>,
    pub(crate) word: usize,
    /// The numbers of the text's words that it is made of.
    pub(crate) tokens: Range<usize>,
}

pub(crate) fn hits(text: &str, words: &[Word]) -> Hits {
    // Most words of a text begin like none of the query's.
    let mut begins = [false; 256];
    for byte in words.iter().filter_map(|word| word.text.bytes().next()) {
        begins[usize::from(byte)] = true;
        begins[usize::from(byte.to_ascii_uppercase())] = true;
    }
    let mut hits = Hits { found: Vec::new(), tokens: 0 };
    for token in tokens(text) {
        let number = hits.tokens;
        hits.tokens += 1;
        let ascii = token.text.is_ascii();
        // The first byte of another character may change with its case.
        if ascii && !token.text.bytes().next().is_some_and(|byte| begins[usize::from(byte)]) {
            continue;
        }
        let lower = if ascii { None } else { Some(token.text.to_lowercase()) };
        for (word, wanted) in words.iter().enumerate() {
            let is = match (&lower, wanted.unspaced) {
                (_, true) => token.unspaced && text[token.start..].starts_with(&wanted.text),
                (None, false) => token.text.eq_ignore_ascii_case(&wanted.text),
                (Some(lower), false) => *lower == wanted.text,
            };
            if is {
                let (bytes, count) = if wanted.unspaced {
                    (wanted.text.len(), wanted.text.chars().count())
                } else {
                    (token.text.len(), 1)
                };
                let bytes = token.start..token.start + bytes;
                hits.found.push(Hit { bytes, word, tokens: number..number + count });
            }
        }
    }
    hits
}

/// Where the query stands as it is written, or else the first of its words inside another; whatever the case.
pub(crate) fn as_written(text: &str, query: &Query) -> Option<(Fit, Range<usize>)> {
    let lower = if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() };
    if query.is_empty() {
        return None;
    }
    if let Some(start) = lower.find(&query.written) {
        return Some((Fit::Whole, original(text, start..start + query.written.len())));
    }
    let parts = query.words.iter().filter(|word| word.text.len() >= PART_MIN_BYTES);
    let found: Vec<_> = parts.filter_map(|word| Some((lower.find(&word.text)?, word.text.len()))).collect();
    let (start, length) = *found.iter().min()?;
    Some((Fit::Parts(found.len()), original(text, start..start + length)))
}

/// A range of the text in lower case as one of the text itself: some characters have another length there.
fn original(text: &str, lower: Range<usize>) -> Range<usize> {
    if text.is_ascii() {
        return lower;
    }
    let place = |wanted: usize| {
        let mut length = 0;
        for (start, c) in text.char_indices() {
            if length >= wanted {
                return start;
            }
            length += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        }
        text.len()
    };
    place(lower.start)..place(lower.end)
}

/// The line a byte stands in, counted from 1.
pub(crate) fn line(text: &str, start: usize) -> u64 {
    let mut end = 0;
    let before = lines(text).take_while(|line| {
        end += line.len();
        end <= start
    });
    before.count() as u64 + 1
}

/// A stretch with what stands around it; `…` where more does.
pub(crate) fn around(text: &str, stretch: Range<usize>) -> String {
    let mut start = stretch.start.saturating_sub(EXCERPT_AROUND_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let mut end = (stretch.end + EXCERPT_AROUND_BYTES).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'a>(text: &'a str, query: &str) -> Option<&'a str> {
        of_words(text, &Query::of(query)).map(|stretch| &text[stretch.bytes])
    }

    #[test]
    fn most_distinct_words_near_each_other_win() {
        assert_eq!(best("port port port. The Staging port is 5433. staging", "staging port"), Some("Staging port"));
        assert_eq!(best("a b c x y", "a y"), Some("a b c x y"));
        assert_eq!(best("reports", "port"), None);
        assert_eq!(best("das größte FESTE", "Größte feste"), Some("größte FESTE"));
        let far = format!("alpha {} beta gamma", "x ".repeat(1000));
        assert_eq!(best(&far, "alpha beta gamma"), Some("beta gamma"));
        assert_eq!(best("连接数据库失败", "数据库"), Some("数据库"));
    }

    #[test]
    fn a_query_is_found_as_it_is_written() {
        let written = |text: &'static str, query: &str| {
            as_written(text, &Query::of(query)).map(|(fit, range)| (fit, &text[range]))
        };
        assert_eq!(written("say 🎉 now", "🎉"), Some((Fit::Whole, "🎉")));
        assert_eq!(written("İstanbul: REPORTS", "report"), Some((Fit::Whole, "REPORT")));
        assert_eq!(written("reports of imports", "port import"), Some((Fit::Parts(2), "port")));
        assert_eq!(written("nothing", "??"), None);
        assert_eq!(written("anything", "  "), None);
    }

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        let text = format!("{}needle{}", "é".repeat(1001), "é".repeat(1001));
        let start = text.find("needle").expect("it is there");
        let shown = around(&text, start..start + 6);
        assert!(
            shown.starts_with("…é") && shown.ends_with("é…") && shown.len() < 2 * EXCERPT_AROUND_BYTES + 20,
            "{shown}"
        );
        assert_eq!(around("short", 1..2), "short");
        assert_eq!((line("a\nb\nc", 0), line("a\nb\nc", 2), line("a\nb\nc", 4)), (1, 2, 3));
    }
}
