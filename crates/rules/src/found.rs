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
}

/// Finds the one value in `text` that `fits`; where none does, the only object there is, so that it can be said what is wrong
/// with it. Lists count where `fits` takes them.
pub(crate) fn find(text: &str, fits: impl Fn(&Json) -> bool) -> Found {
    let text = without_thoughts(text).trim();
    let whole = serde_json::from_str::<Json>(text);
    if let Ok(value @ (Json::Object(_) | Json::Array(_))) = whole {
        return Found::One(value);
    }
    let mut values = values(text);
    let fitting = values.iter().filter(|value| fits(value)).count();
    if fitting > 0 {
        values.retain(|value| fits(value));
    } else {
        values.retain(Json::is_object);
    }
    match (values.len(), values.pop()) {
        (0, _) | (_, None) => match whole {
            Ok(_) => Found::None("it is a plain value".to_owned()),
            Err(error) => Found::None(error.to_string()),
        },
        (1, Some(value)) => Found::One(value),
        (many, Some(_)) => Found::Many(many),
    }
}

/// The outermost objects and lists of a text. What is inside a broken one is never looked at for another, but braces of
/// prose are passed over.
fn values(text: &str) -> Vec<Json> {
    let mut found = Vec::new();
    let (mut from, mut tries) = (0, 0);
    while let Some(start) = text[from..].find(['{', '[']).map(|at| from + at) {
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Json>();
        match stream.next() {
            Some(Ok(value)) => {
                from = start + stream.byte_offset();
                found.push(value);
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
    fn brackets_without_an_end_are_given_up() {
        for bracket in ["[", "{", "[[{"] {
            assert!(matches!(find(&bracket.repeat(100_000), |_| true), Found::None(_)), "{bracket}");
        }
        let many = format!("{} {{\"a\":1}}", "[1] ".repeat(900));
        assert!(matches!(find(&many, Json::is_object), Found::One(_)));
    }
}
