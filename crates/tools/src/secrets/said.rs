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
    pub(crate) fn unsaid(&self, text: &str) -> Option<String> {
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
