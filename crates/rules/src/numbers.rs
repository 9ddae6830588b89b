//! Numbers of an answer that must come from evidence: read out of values and texts alike, and compared as decimals, so that
//! `1200`, `1,200.00` and `1.2e3` are one number. A number may be shown rounded: it counts if some number of the evidence,
//! rounded to the decimals shown, is it.

use serde_json::Value as Json;

/// A number as it is written: a sign, digits, and how many of them are decimals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Number {
    written: String,
    negative: bool,
    /// Without leading zeros; empty is zero.
    digits: Vec<u8>,
    decimals: usize,
}

impl Number {
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    fn read(written: &str) -> Option<Self> {
        let plain = written.replace(',', "");
        let (negative, unsigned) = match plain.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        if exponent.unsigned_abs() > EXPONENT_MAX {
            return None;
        }
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0').collect();
        let decimals = i32::try_from(fraction.len()).ok()? - exponent;
        if decimals < 0 {
            digits.extend(std::iter::repeat_n(0, usize::try_from(-decimals).ok()?));
        }
        let decimals = usize::try_from(decimals.max(0)).ok()?;
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..leading);
        Some(Self { written: written.to_owned(), negative, digits, decimals })
    }

    /// Whether this one is `other`, or `other` rounded to the decimals that this one shows. Halves go either way.
    fn shows(&self, other: &Number) -> bool {
        if self.decimals >= other.decimals {
            let mut digits = other.digits.clone();
            if !digits.is_empty() {
                digits.extend(std::iter::repeat_n(0, self.decimals - other.decimals));
            }
            return digits == self.digits && (self.negative == other.negative || digits.is_empty());
        }
        let cut = other.decimals - self.decimals;
        let kept = other.digits.len().saturating_sub(cut);
        let (down, rest) = other.digits.split_at(kept);
        // Digits that were cut stand behind zeros where there are fewer of them.
        let first = if rest.len() == cut { rest.first().copied().unwrap_or(0) } else { 0 };
        let is_half = first == 5 && rest.iter().skip(1).all(|digit| *digit == 0);
        let candidates = match (first, is_half) {
            (_, true) => vec![down.to_vec(), up(down)],
            (6.., _) | (5, false) => vec![up(down)],
            (..5, _) => vec![down.to_vec()],
        };
        candidates.iter().any(|digits| {
            let same_sign = self.negative == other.negative || self.digits.is_empty();
            *digits == self.digits && same_sign
        })
    }
}

/// The next whole number.
fn up(digits: &[u8]) -> Vec<u8> {
    let mut digits = digits.to_vec();
    for place in (0..digits.len()).rev() {
        if digits[place] < 9 {
            digits[place] += 1;
            return digits;
        }
        digits[place] = 0;
    }
    digits.insert(0, 1);
    digits
}

/// All numbers of a value, in its texts too. `skip`: texts that name something, such as the id of some evidence.
pub(crate) fn all(value: &Json, skip: &dyn Fn(&str) -> bool, into: &mut Vec<Number>) {
    match value {
        Json::Number(number) => into.extend(Number::read(&number.to_string())),
        Json::String(text) if skip(text) => {}
        Json::String(text) => in_text(text, into),
        Json::Array(items) => items.iter().for_each(|item| all(item, skip, into)),
        Json::Object(fields) => fields.values().for_each(|item| all(item, skip, into)),
        Json::Null | Json::Bool(_) => {}
    }
}

/// Numbers in a text: digits that are no part of a word. `1,200` is one where commas part its thousands.
fn in_text(text: &str, into: &mut Vec<Number>) {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let word_before = |at: usize| text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut at = 0;
    while at < bytes.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        let start = at;
        while is_digit(at) {
            at += 1;
        }
        if at - start <= 3 {
            while bytes.get(at) == Some(&b',') && (1..=3).all(|more| is_digit(at + more)) && !is_digit(at + 4) {
                at += 4;
            }
        }
        if bytes.get(at) == Some(&b'.') && is_digit(at + 1) {
            at += 1;
            while is_digit(at) {
                at += 1;
            }
        }
        let exponent = match bytes.get(at..) {
            Some([b'e' | b'E', b'+' | b'-', ..]) if is_digit(at + 2) => 2,
            Some([b'e' | b'E', ..]) if is_digit(at + 1) => 1,
            Some(_) | None => 0,
        };
        if exponent > 0 {
            at += exponent;
            while is_digit(at) {
                at += 1;
            }
        }
        // `e12`, `v2`, `sha256`: names, not numbers.
        if word_before(start) {
            continue;
        }
        // A sign belongs to a number where nothing stands before it: `-5`, but not `3-5` or `2026-11-30`.
        let sign = start.checked_sub(1).filter(|before| bytes[*before] == b'-').filter(|before| {
            let led = text[..*before].chars().next_back();
            led.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '-'))
        });
        into.extend(Number::read(&text[sign.unwrap_or(start)..at]));
    }
}

/// The first number of `answer` that no number of the evidence shows.
pub(crate) fn invented<'a>(answer: &'a [Number], evidence: &[Number]) -> Option<&'a Number> {
    answer.iter().find(|number| !evidence.iter().any(|known| number.shows(known)))
}

/// Nobody shows a number with more zeros.
const EXPONENT_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Json) -> Vec<Number> {
        let mut found = Vec::new();
        all(value, &|_| false, &mut found);
        found
    }

    fn check(answer: &Json, evidence: &Json) -> String {
        let (answer, evidence) = (read(answer), read(evidence));
        invented(&answer, &evidence).map_or("fine".to_owned(), |number| number.written().to_owned())
    }

    #[test]
    fn numbers_are_compared_as_decimals() {
        for (answer, evidence) in [
            (json!(1200), json!("1,200.00 requests")),
            (json!("1.2e3"), json!(1200)),
            (json!(0.30), json!("0.3")),
            (json!("about -5 degrees"), json!(-5)),
            (json!("0"), json!(0.0)),
            (json!("on 2026-11-30"), json!("2026-11-30T10:00:00Z")),
            (json!({ "a": [1, "x 2 y"], "b": { "c": 3 } }), json!([1, 2, 3, 4])),
            (json!("100000000000000000001"), json!("100000000000000000001")),
        ] {
            assert_eq!(check(&answer, &evidence), "fine", "{answer} {evidence}");
        }
    }

    #[test]
    fn they_may_be_rounded_to_what_is_shown() {
        for (answer, evidence) in [
            (json!("1.20"), json!(1.2)),
            (json!("1.2"), json!(1.2345)),
            (json!("1.23"), json!(1.2345)),
            (json!("1.235"), json!(1.2345)),
            (json!("1.234"), json!(1.2345)),
            (json!("2"), json!(1.6)),
            (json!("10.0"), json!(9.96)),
            (json!("0"), json!(0.004)),
            (json!("0.1"), json!(0.06)),
            (json!("-0.1"), json!(-0.06)),
        ] {
            assert_eq!(check(&answer, &evidence), "fine", "{answer} {evidence}");
        }
        for (answer, evidence, named) in [
            (json!("1.3"), json!(1.2345), "1.3"),
            (json!("1.2346"), json!(1.2345), "1.2346"),
            (json!("1.1 and 1.24"), json!([1.1, 1.2345]), "1.24"),
            (json!(12), json!(1.2), "12"),
            (json!("1"), json!(1.6), "1"),
            (json!("0.1"), json!(0.04), "0.1"),
            (json!("-5"), json!(5), "-5"),
            (json!("99.9 %"), json!("no number at all"), "99.9"),
            (json!(1301), json!(1300), "1301"),
        ] {
            assert_eq!(check(&answer, &evidence), named, "{answer} {evidence}");
        }
    }

    #[test]
    fn names_are_no_numbers() {
        for text in ["e12 and a3", "sha256", "v2", "t1.m2", "x_1", "größe1"] {
            assert_eq!(read(&json!(text)).iter().map(Number::written).collect::<Vec<_>>().join(" "), "", "{text}");
        }
        let found = read(&json!("3-5, (7) 8% 1,2 10,000 1.2.3"));
        let found: Vec<_> = found.iter().map(Number::written).collect();
        assert_eq!(found, ["3", "5", "7", "8", "1", "2", "10,000", "1.2", "3"]);
    }
}
