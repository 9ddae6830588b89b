//! Escapes of half a surrogate pair, which no JSON reader takes: some servers cut an emoji in two, between two events of a
//! stream.

use std::borrow::Cow;

/// Replaces escapes of half a surrogate pair, which no JSON reader takes: some servers cut an emoji in two.
pub(crate) fn mended(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => &rest[..12],
            (Some(0xD800..=0xDFFF), _) => {
                out.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            // An escape of two characters: its second may be a backslash and must not be read as a first.
            (_, _) => &rest[..rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end)],
        };
        out.push_str(taken);
        rest = &rest[taken.len()..];
    }
    out.push_str(rest);
    out.into()
}

/// The code unit of a `\uXXXX` at the start of `text`.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Whether the last half of a pair may follow in another event: a text in this JSON ends with the first one.
pub(crate) fn ends_in_half(json: &str) -> bool {
    json.contains("\\u") && halves_at_ends(json).next().is_some()
}

/// Two events, the second halves moved to the first where each of them has as many texts to join.
pub(crate) fn joined(first: String, second: &str) -> (String, String) {
    let ends: Vec<usize> = halves_at_ends(&first).collect();
    let starts: Vec<usize> = halves_at_starts(second).collect();
    if ends.len() != starts.len() {
        return (first, second.to_owned());
    }
    let (mut whole, mut rest, mut done, mut left) = (String::new(), String::new(), 0, 0);
    for (end, start) in ends.into_iter().zip(starts) {
        whole.push_str(&first[done..end]);
        whole.push_str(&second[start..start + ESCAPE]);
        rest.push_str(&second[left..start]);
        (done, left) = (end, start + ESCAPE);
    }
    (whole + &first[done..], rest + &second[left..])
}

/// Where texts end behind the first half of a pair that has no second.
fn halves_at_ends(json: &str) -> impl Iterator<Item = usize> {
    escapes(json).filter_map(|at| {
        let is_first = unit(&json[at..]).is_some_and(|unit| (0xD800..=0xDBFF).contains(&unit));
        let end = at + ESCAPE;
        (is_first && json.as_bytes().get(end) == Some(&b'"')).then_some(end)
    })
}

/// Where texts begin with the second half of a pair.
fn halves_at_starts(json: &str) -> impl Iterator<Item = usize> {
    escapes(json).filter(|at| {
        let is_second = unit(&json[*at..]).is_some_and(|unit| (0xDC00..=0xDFFF).contains(&unit));
        is_second && json[..*at].ends_with('"') && !json[..*at].ends_with("\\\"")
    })
}

/// Where escapes begin.
fn escapes(json: &str) -> impl Iterator<Item = usize> {
    let mut after = 0;
    json.match_indices('\\').map(|(at, _)| at).filter(move |at| {
        // The second of two is what the first escapes.
        let begins = *at >= after;
        if begins {
            after = at + 2;
        }
        begins
    })
}

/// The length of a `\uXXXX`.
const ESCAPE: usize = 6;
