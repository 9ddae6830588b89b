//! What a model writes: known values are taken out of it, with escapes or without. Shapes are not looked for: what a model
//! makes up may look like anything, and its words are kept as it wrote them.

use std::ops::Range;

use super::{MARK, Secrets, is_mark_name, mark};
use crate::text::code_unit;

/// JSON in JSON in JSON: an answer that quotes a call that quotes a file.
const ESCAPES_DEEP: usize = 3;

impl Secrets {
    /// `text` with a mark in place of every known value. It need not be JSON to be looked at with its escapes undone: a call
    /// may be broken, and name a key twice. None: it holds none.
    pub fn unsaid(&self, text: &str) -> Option<String> {
        let finder = self.finder.as_ref()?;
        let mut found: Vec<(Range<usize>, &str)> = Vec::new();
        let mut layer = Layer { text: text.to_owned(), starts: (0..=text.len()).collect() };
        for depth in 0..=ESCAPES_DEEP {
            for form in finder.find_iter(&layer.text) {
                let at = layer.starts[form.start()]..layer.starts[form.end()];
                found.push((at, &self.forms[form.pattern().as_usize()].1));
            }
            if depth == ESCAPES_DEEP || !layer.text.contains('\\') {
                break;
            }
            layer = layer.unescaped();
        }
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|(at, _)| (at.start, at.end));
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for (at, name) in found {
            if at.start >= done {
                out.push_str(&text[done..at.start]);
                out.push_str(&mark(name));
            }
            done = done.max(at.end);
        }
        out.push_str(&text[done..]);
        Some(out)
    }

    /// From which byte on a text that still grows may be the beginning of a known value, written in whatever way
    /// [`Secrets::unsaid`] knows: what stands before is as it will be.
    pub(crate) fn unfinished(&self, text: &str) -> usize {
        let Some(finder) = self.finder.as_ref() else { return text.len() };
        let mut shown = whole_escapes(text);
        let mut whole = Vec::new();
        let mut layer = Layer { text: text[..shown].to_owned(), starts: (0..=shown).collect() };
        for depth in 0..=ESCAPES_DEEP {
            if let Some(at) = self.begins_within(&layer.text) {
                shown = shown.min(layer.starts[at]);
            }
            let forms = finder.find_iter(&layer.text);
            whole.extend(forms.map(|form| layer.starts[form.start()]..layer.starts[form.end()]));
            if depth == ESCAPES_DEEP || !layer.text.contains('\\') {
                break;
            }
            layer = layer.unescaped();
        }
        // What is whole must not be cut by what begins inside it; a longer one may begin with it.
        while let Some(cut) = whole.iter().find(|at| at.start < shown && shown < at.end) {
            shown = cut.start;
        }
        shown
    }

    /// The first place from which the rest of `text` is how a known value begins.
    fn begins_within(&self, text: &str) -> Option<usize> {
        let longest = self.forms.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        let from = text.ceil_char_boundary(text.len().saturating_sub(longest.saturating_sub(1)));
        text[from..].char_indices().map(|(at, _)| from + at).find(|at| {
            let rest = &text[*at..];
            // In order, those that begin with `rest` stand behind it, and one that is just that is no beginning.
            let first = self.forms.partition_point(|(form, _)| form.as_str() <= rest);
            self.forms.get(first).is_some_and(|(form, _)| form.starts_with(rest))
        })
    }

    /// The first known secret that `text` has a mark of.
    pub(crate) fn marked_in(&self, text: &str) -> Option<&str> {
        if self.by_name.is_empty() {
            return None;
        }
        text.match_indices(MARK).find_map(|(at, _)| {
            let name = &text[at + MARK.len()..];
            let length = name.bytes().take_while(|byte| is_mark_name(*byte)).count();
            let (name, rest) = name.split_at(length);
            let (name, _) = self.by_name.get_key_value(name).filter(|_| rest.starts_with(']'))?;
            Some(name.as_str())
        })
    }
}

/// Up to where no escape can be half written: an escape is a row of backslashes and up to eleven characters behind it.
fn whole_escapes(text: &str) -> usize {
    let tail = text.floor_char_boundary(text.len().saturating_sub(ESCAPE_REST_MAX));
    let Some(last) = text[tail..].rfind('\\') else { return text.len() };
    // Two halves of one character stand behind each other: the first must not be shown without the second.
    let mut start = tail + last;
    let near = start.saturating_sub(BACKSLASHES_MAX);
    while start > near {
        match text.as_bytes()[start - 1] {
            b'\\' => start -= 1,
            _ => match half_before(&text[..start]) {
                Some(half) if half >= near => start = half,
                Some(_) | None => break,
            },
        }
    }
    start
}

/// Where the escape of half a character begins that ends `text`.
fn half_before(text: &str) -> Option<usize> {
    let at = text.len().checked_sub(6).filter(|at| text.is_char_boundary(*at))?;
    code_unit(&text[at..]).is_some_and(|unit| (0xD800..0xDC00).contains(&unit)).then_some(at)
}

/// The longest escape is `\uXXXX\uXXXX`; behind its first backslash come eleven characters.
const ESCAPE_REST_MAX: usize = 11;

/// Three layers of escapes make eight backslashes of one; a longer row is that of a text about backslashes.
const BACKSLASHES_MAX: usize = 64;

/// A text with some escapes undone, and where each of its bytes, and its end, comes from.
struct Layer {
    text: String,
    starts: Vec<usize>,
}

impl Layer {
    fn unescaped(&self) -> Self {
        let mut out = Self { text: String::with_capacity(self.text.len()), starts: Vec::new() };
        let mut at = 0;
        while let Some(written) = self.text[at..].chars().next() {
            let (meant, length) = match written {
                '\\' => escape(&self.text[at..]).unwrap_or((written, 1)),
                other => (other, other.len_utf8()),
            };
            out.text.push(meant);
            out.starts.resize(out.text.len(), self.starts[at]);
            at += length;
        }
        out.starts.push(self.starts[at]);
        out
    }
}

/// What the escape at the start of a text means, and its length.
fn escape(text: &str) -> Option<(char, usize)> {
    let simple = |meant| Some((meant, 2));
    match text.as_bytes().get(1)? {
        b'"' => simple('"'),
        b'\\' => simple('\\'),
        b'/' => simple('/'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'u' => {
            let high = code_unit(text)?;
            match char::from_u32(high.into()) {
                Some(meant) => Some((meant, 6)),
                None => {
                    let low = code_unit(text.get(6..)?)?;
                    let pair = [high, low];
                    let meant = char::decode_utf16(pair).next()?.ok()?;
                    Some((meant, 12))
                }
            }
        }
        _ => None,
    }
}
