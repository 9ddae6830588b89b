//! The lines of an output somebody would search it for: errors, failures, panics, what a compiler says of a place.
//!
//! It goes by words at their beginnings and knows no tool. `0 failed` and `no errors` are good news and no diagnostics.

use std::collections::VecDeque;

/// Only the start of a line is looked at and shown.
const LOOKED_AT_BYTES: usize = 400;

/// So many are kept from either end.
const KEPT_MAX: usize = 40;

/// Lines that name a place, as compilers do, say something while they are few: a listing of matches does so in every one.
const PLACES_MAX_SHARE: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Counted from the first line looked at, which is 0.
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// What was found: the first and the last of it, in order, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Diagnostics<'a> {
    first: Vec<Found<'a>>,
    last: VecDeque<Found<'a>>,
    pub(super) count: usize,
}

impl<'a> Diagnostics<'a> {
    /// `taken`: how many lines beside its own a line stands for.
    pub(super) fn of(text: &'a str, taken: impl Fn(&str) -> usize) -> Self {
        let (mut errors, mut places) = (Self::default(), Self::default());
        let (mut number, mut after_error) = (0, false);
        for line in text.lines() {
            let start = &line[..line.floor_char_boundary(LOOKED_AT_BYTES)];
            let found = Found { line: number, text: start };
            let is_error = is_error(start.as_bytes()) || (after_error && compares(start));
            after_error = is_error;
            if is_error {
                errors.keep(found);
            } else if names_a_place(start.as_bytes()) {
                places.keep(found);
            }
            number += 1 + taken(line);
        }
        if places.count * PLACES_MAX_SHARE <= number { errors.joined(places) } else { errors }
    }

    fn keep(&mut self, found: Found<'a>) {
        self.count += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push(found);
        } else {
            if self.last.len() == KEPT_MAX {
                self.last.pop_front();
            }
            self.last.push_back(found);
        }
    }

    fn joined(mut self, other: Self) -> Self {
        self.first.extend(other.first);
        self.first.sort_by_key(|found| found.line);
        self.last.extend(other.last);
        self.last.make_contiguous().sort_by_key(|found| found.line);
        self.count += other.count;
        self
    }

    /// As many as fit, from both ends in turn, in order. `cost`: what showing one takes.
    pub(super) fn within(self, room: usize, cost: impl Fn(&Found<'a>) -> usize) -> Vec<Found<'a>> {
        let mut all: VecDeque<_> = self.first.into_iter().chain(self.last).collect();
        let mut shown = Vec::new();
        let mut left = room;
        let mut from_front = true;
        while let Some(found) = if from_front { all.pop_front() } else { all.pop_back() } {
            let Some(rest) = left.checked_sub(cost(&found)) else { break };
            left = rest;
            from_front = !from_front;
            shown.push(found);
        }
        shown.sort_by_key(|found| found.line);
        shown.dedup_by_key(|found| found.line);
        shown
    }
}

/// Words a line of bad news has, at the beginning of a word, in small letters.
const WORDS: &[&[u8]] = &[
    b"error",
    b"fail",
    b"fatal",
    b"panic",
    b"exception",
    b"traceback",
    b"assert",
    b"abort",
    b"undefined",
    b"unresolved",
    b"cannot",
    b"could not",
    b"denied",
    b"segmentation fault",
    b"core dumped",
    b"not ok",
    b"timed out",
    b"killed",
    b"critical",
];

fn is_error(line: &[u8]) -> bool {
    if line.starts_with(b"E   ")
        || [&b"\xe2\x9c\x97"[..], b"\xe2\x9c\x98", b"\xe2\x9c\x96"].iter().any(|cross| trimmed(line).starts_with(cross))
    {
        return true;
    }
    let mut inside = false;
    for (at, byte) in line.iter().enumerate() {
        let begins = !inside;
        inside = byte.is_ascii_alphanumeric() || *byte == b'_';
        let rest = &line[at..];
        // TypeError, NullPointerException
        let is_name = *byte == b'E' && (rest.starts_with(b"Error") || rest.starts_with(b"Exception"));
        let lower = byte.to_ascii_lowercase();
        let is_word = begins
            && matches!(lower, b'e' | b'f' | b'p' | b't' | b'a' | b'u' | b'c' | b'd' | b's' | b'n' | b'k')
            && WORDS.iter().any(|word| {
                word[0] == lower && rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            });
        if (is_name || is_word) && !is_good_news(line, at) {
            return true;
        }
    }
    false
}

/// `0 errors`, `no failures`, `failed: 0`, `without error`.
fn is_good_news(line: &[u8], at: usize) -> bool {
    let before = line[..at].trim_ascii_end();
    let word = before.rsplit(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    if [&b"0"[..], b"no", b"without", b"zero"].iter().any(|none| word.eq_ignore_ascii_case(none)) {
        return true;
    }
    let rest = &line[at..];
    let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len());
    let value = rest[end..].trim_ascii_start();
    let Some(value) = value.strip_prefix(b":").or_else(|| value.strip_prefix(b"=")) else { return false };
    matches!(value.trim_ascii_start(), [b'0'] | [b'0', b' ' | b',' | b';' | b')', ..])
}

/// What an assertion that failed compared, on the lines behind it.
fn compares(line: &str) -> bool {
    let line = line.trim_start();
    ["left:", "right:", "expected", "Expected", "actual", "Actual", "got", "Received"]
        .iter()
        .any(|word| line.starts_with(word))
}

/// `src/main.rs:12:5`, `a.go:7: …`, `File "x.py", line 3`, at the start of a line, perhaps behind an arrow.
fn names_a_place(line: &[u8]) -> bool {
    let line = trimmed(line);
    let line = line.strip_prefix(b"-->").map_or(line, trimmed);
    if line.starts_with(b"File \"") {
        return true;
    }
    let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let Some(colon) = word.iter().position(|byte| *byte == b':') else { return false };
    let (file, number) = (&word[..colon], &word[colon + 1..]);
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_file = file
        .iter()
        .rposition(|byte| *byte == b'.')
        .is_some_and(|dot| (1..=5).contains(&(file.len() - dot - 1)) && file[dot + 1].is_ascii_alphabetic());
    is_file && (1..=7).contains(&digits) && matches!(number.get(digits), None | Some(b':' | b',' | b'-'))
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_news_is_told_from_good() {
        for line in [
            "error[E0308]: mismatched types",
            "src/main.c:12:5: error: expected ';'",
            "main.go:7:2: undefined: x",
            "thread 'main' panicked at src/main.rs:3:5:",
            "Traceback (most recent call last):",
            "ValueError: invalid literal",
            "java.lang.NullPointerException: null",
            "FAILED tests/test_a.py::test_b - AssertionError",
            "test result: FAILED. 3 passed; 1 failed",
            "E       assert 1 == 2",
            "  ✗ adds numbers",
            "not ok 4 - parses",
            "Segmentation fault (core dumped)",
            "2024-01-01 12:00:00 [ERROR] connection refused",
            "npm ERR! code ELIFECYCLE: command failed",
            "fatal: not a git repository",
            "failed: 3",
            "errors = 01",
        ] {
            assert!(is_error(line.as_bytes()), "{line}");
        }
        for line in [
            "test result: ok. 12 passed; 0 failed; 0 ignored",
            "Finished with no errors",
            "errors: 0",
            "failures=0, skipped=3",
            "Compiling thiserror v2.0.1",
            "terror and mirrors",
            "",
            "0 errors, no failures",
        ] {
            assert!(!is_error(line.as_bytes()), "{line}");
        }
        for (line, is_place) in [
            ("main.go:7:2: unused", true),
            ("  --> src/main.rs:12:5", true),
            ("  File \"a.py\", line 3, in f", true),
            ("12:30:45 started", false),
            ("http://example.com:80/x", false),
            ("a.b: c", false),
            ("v1.2:3", false),
        ] {
            assert_eq!(names_a_place(line.as_bytes()), is_place, "{line}");
        }
    }

    #[test]
    fn the_first_and_the_last_are_kept() {
        let text: String = (0..1_000).map(|n| format!("fine {n}\nerror {n}\n")).collect();
        let found = Diagnostics::of(&text, |_| 0);
        assert_eq!(found.count, 1_000);
        let shown = found.within(50, |_| 10);
        assert_eq!(shown.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 3, 5, 1_997, 1_999]);
        let listing: String = (0..100).map(|n| format!("a.rs:{n}:1: x\n")).collect();
        assert_eq!(Diagnostics::of(&listing, |_| 0).count, 0);
        let few = format!("{}a.go:1:1: x\nassertion failed\n  left: 1\n right: 2\n", "fine\n".repeat(100));
        let few = Diagnostics::of(&few, |_| 0);
        let texts: Vec<_> = few.within(1_000, |_| 1).iter().map(|found| found.text).collect();
        assert_eq!(texts, ["a.go:1:1: x", "assertion failed", "  left: 1", " right: 2"]);
    }
}
