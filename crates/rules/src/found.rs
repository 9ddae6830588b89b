//! The one JSON value in a reply: alone, in a code fence, or among words. Tolerant of what stands around it, strict in the
//! value itself: it is never repaired, and of two that would do none is taken, since which was meant cannot be told.

use serde_json::Value as Json;

/// What a reply holds.
pub(crate) enum Found {
    One(Json),
    /// No JSON object or list; the parser's words on the whole of it.
    None(String),
    /// So many that would do.
    Many(usize),
    /// One that would not be kept as it is written, and why.
    Inexact(String),
}

/// Finds the one value in `text` that `fits`; where none does, the only object there is, so that it can be said what is wrong
/// with it. Lists count where `fits` takes them.
pub(crate) fn find(text: &str, fits: impl Fn(&Json) -> bool) -> Found {
    let text = without_thoughts(text).trim();
    let whole = serde_json::from_str::<Json>(text);
    if let Ok(value @ (Json::Object(_) | Json::Array(_))) = whole {
        return exact(text).map_or_else(Found::Inexact, |()| Found::One(value));
    }
    let mut values = values(text);
    let fitting = values.iter().filter(|(value, _)| fits(value)).count();
    if fitting > 0 {
        values.retain(|(value, _)| fits(value));
    } else {
        values.retain(|(value, _)| value.is_object());
    }
    match (values.len(), values.pop()) {
        (0, _) | (_, None) => match whole {
            Ok(_) => Found::None("it is a plain value".to_owned()),
            Err(error) => Found::None(error.to_string()),
        },
        (1, Some((value, written))) => exact(written).map_or_else(Found::Inexact, |()| Found::One(value)),
        (many, Some(_)) => Found::Many(many),
    }
}

/// The outermost objects and lists of a text. What is inside a broken one is never looked at for another, but braces of
/// prose are passed over.
fn values(text: &str) -> Vec<(Json, &str)> {
    let mut found = Vec::new();
    let (mut from, mut tries) = (0, 0);
    while let Some(start) = text[from..].find(['{', '[']).map(|at| from + at) {
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Json>();
        match stream.next() {
            Some(Ok(value)) => {
                from = start + stream.byte_offset();
                found.push((value, &text[start..from]));
            }
            // A list that is none is prose ("[1]" of a citation is one); an object that is none ends the search where it
            // looks like one, for what it holds is a part of it.
            Some(Err(_)) | None if looks_like_an_object(&text[start..]) => return found,
            // Each try may read to the end: prose has a few brackets, and who writes thousands means no answer.
            Some(Err(_)) | None if tries >= BRACKETS_MAX => return found,
            Some(Err(_)) | None => {
                tries += 1;
                from = start + 1;
            }
        }
    }
    found
}

/// Brackets of prose that are passed over.
const BRACKETS_MAX: usize = 1_000;

/// Whether reading it has changed nothing: every key is there once, and every number is what it says. `written` is JSON.
fn exact(written: &str) -> Result<(), String> {
    serde_json::from_str::<Exact>(written).map_err(|error| error.to_string())?;
    let mut rest = written;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let from = &rest[at..];
        if from.starts_with('"') {
            rest = after_string(from);
            continue;
        }
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
        if !is_kept(&from[..end]) {
            return Err(format!("the number {} is longer than can be kept exactly", &from[..end]));
        }
        rest = &from[end..];
    }
    Ok(())
}

fn after_string(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Whole numbers up to this are exact wherever they go: in JSON of any language, and in conditions.
const WHOLE_MAX: u64 = 1 << 53;
/// Digits that a double keeps.
const DIGITS_MAX: usize = 17;

fn is_kept(number: &str) -> bool {
    let unsigned = number.trim_start_matches('-');
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return unsigned.parse::<u64>().is_ok_and(|whole| whole <= WHOLE_MAX);
    }
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').trim_end_matches('0').len() <= DIGITS_MAX
}

/// JSON whose objects have each key once.
struct Exact;

impl<'de> serde::Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Exact)
    }
}

impl<'de> serde::de::Visitor<'de> for Exact {
    type Value = Exact;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_str<E>(self, _: &str) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_unit<E>(self) -> Result<Exact, E> {
        Ok(Exact)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Exact, A::Error> {
        while items.next_element::<Exact>()?.is_some() {}
        Ok(Exact)
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut fields: A) -> Result<Exact, A::Error> {
        let mut keys = std::collections::BTreeSet::new();
        while let Some((key, Exact)) = fields.next_entry::<String, Exact>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format!("the key {key:?} is there twice")));
            }
            keys.insert(key);
        }
        Ok(Exact)
    }
}

/// A brace, and a key behind it.
fn looks_like_an_object(text: &str) -> bool {
    text.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'))
}

/// Without what a model thought aloud before it answered.
fn without_thoughts(text: &str) -> &str {
    let start = text.trim_start();
    match start.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>")) {
        Some((_, said)) => said,
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_changed_by_reading_it_is_not_taken() {
        for written in [
            r#"{"a":1,"a":2}"#,
            r#"{"b":[{"a":1,"a":1}]}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":9007199254740993}"#,
            r#"{"a":-9007199254740993}"#,
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"a":0.12345678901234567890}"#,
            r#"Here: {"a":1,"a":2} is it."#,
        ] {
            assert!(matches!(find(written, Json::is_object), Found::Inexact(_)), "{written}");
        }
        for written in [
            r#"{"a":9007199254740992,"b":-9007199254740992,"c":0.1,"d":1e300,"e":1.50000000000000000000}"#,
            r#"{"a":"9007199254740993 \" 12345678901234567890","b":{"a":1}}"#,
        ] {
            assert!(matches!(find(written, Json::is_object), Found::One(_)), "{written}");
        }
    }

    #[test]
    fn brackets_without_an_end_are_given_up() {
        for bracket in ["[", "{", "[[{"] {
            assert!(matches!(find(&bracket.repeat(100_000), |_| true), Found::None(_)), "{bracket}");
        }
        let many = format!("{} {{\"a\":1}}", "[1] ".repeat(900));
        assert!(matches!(find(&many, Json::is_object), Found::One(_)));
    }
}
