//! JSON by its text: where values begin and end, without reading them into memory. Nothing here calls itself, so that no
//! depth of nesting matters, and numbers, keys and escapes stay as they were written.
//!
//! What is scanned has passed a parser. Of anything else it makes nonsense, but no panic.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::text::code_unit;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl Kind {
    pub(super) fn of(raw: &str) -> Self {
        match raw.as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }
}

/// Whether a whole text is one JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Keys, with their quotes, and values of an object, in order.
pub(super) fn members(raw: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = Parts::of(raw);
    std::iter::from_fn(move || {
        let key = parts.next()?;
        Some((key, parts.next().unwrap_or("null")))
    })
}

/// The elements of an array, in order.
pub(super) fn elements(raw: &str) -> impl Iterator<Item = &str> {
    Parts::of(raw)
}

/// The values directly inside an array or an object; in an object keys and values take turns.
struct Parts<'a> {
    raw: &'a str,
    at: usize,
}

impl<'a> Parts<'a> {
    fn of(raw: &'a str) -> Self {
        Self { raw, at: 1 }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.raw.as_bytes();
        while matches!(bytes.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') {
            self.at += 1;
        }
        if matches!(bytes[self.at], b'}' | b']') {
            return None;
        }
        let start = self.at;
        self.at = value_end(bytes, start);
        self.raw.get(start..self.at)
    }
}

/// Where the value that begins at `start` ends.
fn value_end(bytes: &[u8], start: usize) -> usize {
    match bytes[start] {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let (mut at, mut depth) = (start, 0_usize);
            while let Some(byte) = bytes.get(at) {
                match byte {
                    b'"' => {
                        at = string_end(bytes, at);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    break;
                }
            }
            at
        }
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t');
            // at least one byte, so that everything that walks along gets on
            (start + 1) + bytes[start + 1..].iter().position(ends).unwrap_or(bytes.len() - start - 1)
        }
    }
}

/// Where the string that begins at `start`, its first quote, ends.
pub(super) fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The text of a string. Half a surrogate pair, which no text can hold, becomes U+FFFD.
pub(super) fn decoded(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    let Some(first) = inner.find('\\') else { return Cow::Borrowed(inner) };
    let mut out = String::with_capacity(inner.len());
    out.push_str(&inner[..first]);
    let mut rest = &inner[first..];
    while let Some(escape) = rest.strip_prefix('\\') {
        let mut chars = escape.chars();
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => match (code_unit(rest), rest.get(6..).and_then(code_unit)) {
                (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                    let code = 0x1_0000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    chars = rest[12..].chars();
                }
                (Some(unit), _) => {
                    out.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
                    chars = rest[6..].chars();
                }
                (None, _) => out.push(char::REPLACEMENT_CHARACTER),
            },
            Some(other) => out.push(other),
            None => {}
        }
        rest = chars.as_str();
        let next = rest.find('\\').unwrap_or(rest.len());
        out.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(out)
}

/// Without the white space between its parts.
pub(super) fn compact(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                out.push_str(&json[copied..at]);
                at += 1;
                copied = at;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn parts_are_found_by_their_ends() {
        let raw = r#"{ "a" : [1, {"x":"]}\""}] , "b\"" :-1e400, "c":{}, "d":null,"a":"\ud800" }"#;
        let found: Vec<_> = members(raw).collect();
        let expected = [
            (r#""a""#, r#"[1, {"x":"]}\""}]"#),
            (r#""b\"""#, "-1e400"),
            (r#""c""#, "{}"),
            (r#""d""#, "null"),
            (r#""a""#, r#""\ud800""#),
        ];
        assert_eq!(found, expected);
        assert_eq!(elements("[ ]").count(), 0);
        assert_eq!(elements("[1,[2],\"3\"]").collect::<Vec<_>>(), ["1", "[2]", "\"3\""]);
        assert_eq!(compact(raw), compact(&compact(raw)));
        assert!(is_json(&compact(raw)));
    }

    #[test]
    fn half_pairs_become_a_replacement() {
        for (raw, text) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""a\ud83dx""#, "a\u{fffd}x"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ude00\n\\n\/\u0000\"""#, "\u{fffd}\n\\n/\0\""),
            (r#""""#, ""),
        ] {
            assert_eq!(decoded(raw), text, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn strings_are_read_as_a_parser_does(text in any::<String>(), ascii in any::<bool>()) {
            let raw = if ascii {
                let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
                format!("\"{units}\"")
            } else {
                json!(text).to_string()
            };
            prop_assert_eq!(&*decoded(&raw), text.as_str());
            prop_assert_eq!(string_end(raw.as_bytes(), 0), raw.len());
            prop_assert_eq!(quoted(&text), json!(text).to_string());
        }

        #[test]
        fn nonsense_is_survived(text in "[\\[\\]{}\",:\\\\u0-9a-f é]{0,40}") {
            let _ = (members(&text).count(), elements(&text).count(), decoded(&text), compact(&text));
            if let Ok(Value::Array(list)) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(elements(&text).count(), list.len());
            }
        }
    }
}
