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
    /// Where it stands: a JSON pointer.
    place: String,
    /// Whether it is known what it stands for.
    readable: bool,
}

impl Number {
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// What counts and is not written in digits.
    fn unreadable(c: char) -> Self {
        Self {
            written: c.to_string(),
            negative: false,
            digits: Vec::new(),
            decimals: 0,
            place: String::new(),
            readable: false,
        }
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
        Some(Self { written: written.to_owned(), negative, digits, decimals, place: String::new(), readable: true })
    }

    /// So many zeros more.
    fn scaled(written: &str, zeros: i32) -> Option<Self> {
        match (zeros, written.split_once(['e', 'E'])) {
            (0, _) => Self::read(written),
            (_, Some((mantissa, exponent))) => {
                Self::read(&format!("{mantissa}e{}", exponent.parse::<i32>().ok()?.checked_add(zeros)?))
            }
            (_, None) => Self::read(&format!("{written}e{zeros}")),
        }
    }

    /// `0x1F4`, `0b101`, `0o17`, as the whole number it is.
    fn of_base(literal: &str) -> Option<Self> {
        let (base, written) = match literal.get(..2)? {
            "0x" | "0X" => (16, &literal[2..]),
            "0b" | "0B" => (2, &literal[2..]),
            _ => (8, &literal[2..]),
        };
        let value = u128::from_str_radix(&written.replace('_', ""), base).ok()?;
        Some(Self { written: literal.to_owned(), ..Self::read(&value.to_string())? })
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

/// Who wrote a value: what is in doubt is read strictly in an answer, and in every way it may be meant in evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Answer,
    Evidence,
}

/// All numbers of a value, in its texts and keys too. `skip`: texts that name something, such as the id of some evidence, and
/// keys that the schema has.
pub(crate) fn all(value: &Json, of: Of, skip: &dyn Fn(&str) -> bool, into: &mut Vec<Number>) {
    below(value, of, skip, "", into);
}

fn below(value: &Json, of: Of, skip: &dyn Fn(&str) -> bool, place: &str, into: &mut Vec<Number>) {
    let before = into.len();
    match value {
        Json::Number(number) => into.extend(Number::read(&number.to_string())),
        Json::String(text) if skip(text) => {}
        Json::String(text) => in_text(text, of, into),
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                below(item, of, skip, &format!("{place}/{at}"), into);
            }
        }
        Json::Object(fields) => {
            for (key, item) in fields {
                let inside = format!("{place}/{key}");
                if !skip(key) {
                    let of_key = into.len();
                    in_text(key, of, into);
                    into[of_key..].iter_mut().for_each(|number| number.place = format!("the key {inside}"));
                }
                below(item, of, skip, &inside, into);
            }
        }
        Json::Null | Json::Bool(_) => {}
    }
    for number in into[before..].iter_mut().filter(|number| number.place.is_empty()) {
        number.place = if place.is_empty() { "the answer".to_owned() } else { place.to_owned() };
    }
}

/// One character of a text, with its digit where it is one in any script.
struct Seen {
    at: usize,
    c: char,
    digit: Option<u8>,
}

/// Where the digits of scripts begin; each has ten in a row.
const ZEROS: [char; 27] = [
    '0',
    '\u{660}',
    '\u{6f0}',
    '\u{7c0}',
    '\u{966}',
    '\u{9e6}',
    '\u{a66}',
    '\u{ae6}',
    '\u{b66}',
    '\u{be6}',
    '\u{c66}',
    '\u{ce6}',
    '\u{d66}',
    '\u{e50}',
    '\u{ed0}',
    '\u{f20}',
    '\u{1040}',
    '\u{17e0}',
    '\u{1810}',
    '\u{a8d0}',
    '\u{aa50}',
    '\u{ff10}',
    '\u{1d7ce}',
    '\u{1d7d8}',
    '\u{1d7e2}',
    '\u{1d7ec}',
    '\u{1d7f6}',
];

fn digit(c: char) -> Option<u8> {
    let value = |zero: &char| u32::from(c).checked_sub(u32::from(*zero)).filter(|value| *value < 10);
    ZEROS.iter().find_map(value).and_then(|value| u8::try_from(value).ok())
}

/// What parts thousands, beside a comma: spaces that do not break, apostrophes, an underscore.
const PARTS: [char; 7] = [',', '\u{a0}', '\u{202f}', '\u{2009}', '\'', '\u{2019}', '_'];

/// Letters that stand before an amount without a space.
const CURRENCIES: [&str; 24] = [
    "usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "aud", "cad", "nzd", "sek", "nok", "dkk", "pln", "czk", "huf",
    "brl", "mxn", "krw", "sgd", "hkd", "zar", "us", "rs",
];

/// What stands before or behind an amount.
const CURRENCY_SIGNS: [char; 8] = ['$', '€', '£', '¥', '₹', '₩', '₽', '¢'];

/// Between digits, these make another number of them: powers, and the slashes of fractions.
const UNREAD: [char; 3] = ['^', '\u{2044}', '\u{2215}'];

/// What makes a number larger, in how many zeros. The letters of one case may be a unit as well: metres, bytes, tesla.
const LETTERS: [(&str, i32); 7] = [("k", 3), ("K", 3), ("M", 6), ("MM", 6), ("G", 9), ("B", 9), ("T", 12)];
const OF_MONEY: [(&str, i32); 3] = [("m", 6), ("b", 9), ("t", 12)];
const WORDS: [(&str, i32); 46] = [
    ("hundred", 2),
    ("hundreds", 2),
    ("thousand", 3),
    ("thousands", 3),
    ("tsd", 3),
    ("tausend", 3),
    ("mil", 3),
    ("mille", 3),
    ("mila", 3),
    ("lakh", 5),
    ("lakhs", 5),
    ("mn", 6),
    ("mln", 6),
    ("mio", 6),
    ("mill", 6),
    ("million", 6),
    ("millions", 6),
    ("millionen", 6),
    ("millón", 6),
    ("millones", 6),
    ("milione", 6),
    ("milioni", 6),
    ("milhão", 6),
    ("milhões", 6),
    ("crore", 7),
    ("crores", 7),
    ("bn", 9),
    ("bln", 9),
    ("mrd", 9),
    ("billion", 9),
    ("billions", 9),
    ("milliard", 9),
    ("milliards", 9),
    ("milliarde", 9),
    ("milliarden", 9),
    ("tn", 12),
    ("trn", 12),
    ("trillion", 12),
    ("trillions", 12),
    ("百", 2),
    ("千", 3),
    ("万", 4),
    ("萬", 4),
    ("만", 4),
    ("亿", 8),
    ("億", 8),
];

/// What makes the number before it larger.
struct Scaled {
    end: usize,
    zeros: i32,
    /// It can mean nothing else.
    is_sure: bool,
}

impl Scaled {
    /// Directly behind the number, or behind a space or a hyphen.
    fn behind(seen: &[Seen], at: usize, is_money: bool) -> Option<Self> {
        let is_gap = |at: usize| seen.get(at).is_some_and(|one| one.c != '\n' && one.c.is_whitespace() || one.c == '-');
        let from = if is_gap(at) { at + 1 } else { at };
        let word: String = seen.get(from..)?.iter().map(|one| one.c).take_while(|c| c.is_alphabetic()).collect();
        let next = seen.get(from + word.chars().count());
        let is_followed = next.is_some_and(|one| one.digit.is_some());
        let money = is_money || next.is_some_and(|one| CURRENCY_SIGNS.contains(&one.c));
        // `12kEUR`, but not `12 baud`
        let amount = word.len().checked_sub(3).and_then(|at| word.split_at_checked(at));
        let behind = amount.filter(|(scale, name)| {
            let is_name = CURRENCIES.contains(&name.to_lowercase().as_str());
            is_name && (*scale == "k" || name.chars().all(char::is_uppercase))
        });
        let behind = behind.map(|(scale, _)| (scale, true));
        // `12万人`: what is counted stands behind without a space.
        let first = word.chars().next().filter(|c| !c.is_ascii()).map(|c| (&word[..c.len_utf8()], money));
        std::iter::once((word.as_str(), money)).chain(behind).chain(first).find_map(|(word, money)| {
            let end = from + word.chars().count();
            let lower = word.to_lowercase();
            let among = |scales: &[(&str, i32)], word: &str| {
                scales.iter().find(|(name, _)| *name == word).map(|(_, zeros)| *zeros)
            };
            let letter = || among(&LETTERS, word).or_else(|| money.then(|| among(&OF_MONEY, word)).flatten());
            match among(&WORDS, &lower) {
                Some(zeros) => Some(Self { end, zeros, is_sure: true }),
                None if is_followed => None,
                None => letter().map(|zeros| Self { end, zeros, is_sure: money || word == "k" }),
            }
        })
    }
}

/// Where a number ends that says its base: `0x1F4`.
fn in_another_base(seen: &[Seen], at: usize) -> Option<usize> {
    let is_word = |at: usize| seen.get(at).is_some_and(|one| one.c.is_alphanumeric() || one.c == '_');
    let begins = seen[at].c == '0' && !at.checked_sub(1).is_some_and(is_word);
    let base = seen.get(at + 1).filter(|_| begins)?.c.to_ascii_lowercase();
    let is_digit = |c: char| match base {
        'x' => c.is_ascii_hexdigit(),
        'b' => matches!(c, '0' | '1'),
        'o' => matches!(c, '0'..='7'),
        _ => false,
    };
    seen.get(at + 2).filter(|one| is_digit(one.c))?;
    Some((at + 2..).find(|at| !is_word(*at)).expect("a text ends"))
}

/// So few digits behind letters are a name: `v2`, `sha256`, `e12`. More are a number, whatever stands before them.
const NAME_DIGITS: usize = 3;

/// Numbers in a text: `1,200` is one where something parts its thousands, `1,5` is one with a decimal comma, and `1.200,50` is
/// one too. What counts up and is no digit, such as `½` or `②`, is one that cannot be read.
fn in_text(text: &str, of: Of, into: &mut Vec<Number>) {
    let seen: Vec<Seen> = text.char_indices().map(|(at, c)| Seen { at, c, digit: digit(c) }).collect();
    let is_digit = |at: usize| seen.get(at).is_some_and(|one| one.digit.is_some());
    let is = |at: usize, c: char| seen.get(at).is_some_and(|one| one.c == c);
    let three = |at: usize| (1..=3).all(|more| is_digit(at + more)) && !is_digit(at + 4);
    let mut at = 0;
    while at < seen.len() {
        if !is_digit(at) {
            if seen[at].c.is_numeric() && of == Of::Answer {
                into.push(Number::unreadable(seen[at].c));
            }
            at += 1;
            continue;
        }
        let start = at;
        if let Some(end) = in_another_base(&seen, at) {
            let literal: String = seen[at..end].iter().map(|one| one.c).collect();
            match Number::of_base(&literal) {
                Some(number) => into.push(number),
                None if of == Of::Answer => into.push(Number { written: literal, ..Number::unreadable('?') }),
                None => {}
            }
            at = end;
            continue;
        }
        let mut plain = String::new();
        let take = |at: &mut usize, plain: &mut String| {
            while let Some(digit) = seen.get(*at).and_then(|one| one.digit) {
                plain.push(char::from(b'0' + digit));
                *at += 1;
            }
        };
        take(&mut at, &mut plain);
        let mut parted = false;
        let mut pieces = vec![plain.clone()];
        if at - start <= 3 {
            // European: points part the thousands where a comma and decimals end them.
            let mut ahead = at;
            while is(ahead, '.') && three(ahead) {
                ahead += 4;
            }
            let european = ahead > at && is(ahead, ',') && is_digit(ahead + 1);
            while (european && is(at, '.') && three(at))
                || (!european && seen.get(at).is_some_and(|one| PARTS.contains(&one.c)) && three(at))
            {
                at += 1;
                take(&mut at, &mut plain);
                parted = true;
            }
        }
        let has_decimals = is(at, '.') && is_digit(at + 1);
        // A single comma that parts no thousands; several are a list.
        let decimal_comma = is(at, ',') && is_digit(at + 1) && {
            let mut ahead = at + 1;
            while is_digit(ahead) {
                ahead += 1;
            }
            let is_followed = is(ahead, ',') && is_digit(ahead + 1);
            let is_led = start >= 2 && is(start - 1, ',') && is_digit(start - 2);
            !is_followed && !is_led
        };
        if has_decimals || decimal_comma {
            at += 1;
            let from = plain.len();
            plain.push('.');
            take(&mut at, &mut plain);
            pieces.push(plain[from + 1..].to_owned());
        }
        let exponent = match (seen.get(at).map(|one| one.c), seen.get(at + 1).map(|one| one.c)) {
            (Some('e' | 'E'), Some('+' | '-')) if is_digit(at + 2) => 2,
            (Some('e' | 'E'), Some(_)) if is_digit(at + 1) => 1,
            (Some(_) | None, _) => 0,
        };
        if exponent > 0 {
            plain.extend(seen[at..at + exponent].iter().map(|one| one.c));
            at += exponent;
            take(&mut at, &mut plain);
        }
        let letters: String = {
            let back = seen[..start].iter().rev().take_while(|one| one.c.is_alphanumeric() || one.c == '_');
            back.map(|one| one.c).collect::<Vec<_>>().into_iter().rev().collect()
        };
        let is_name =
            !letters.is_empty() && at - start <= NAME_DIGITS && !CURRENCIES.contains(&letters.to_lowercase().as_str());
        if is_name {
            continue;
        }
        // A sign belongs to a number where nothing stands before it: `-5`, but not `3-5` or `2026-11-30`.
        let negative = start.checked_sub(1).is_some_and(|before| {
            matches!(seen[before].c, '-' | '\u{2212}')
                && before.checked_sub(1).is_none_or(|led| {
                    let led = seen[led].c;
                    !(led.is_alphanumeric() || led == '_' || led == '-')
                })
        });
        let first = if negative { start - 1 } else { start };
        let before = seen[..first].iter().rev().skip_while(|one| one.c == ' ');
        let is_money = CURRENCIES.contains(&letters.to_lowercase().as_str())
            || before.clone().next().is_some_and(|one| CURRENCY_SIGNS.contains(&one.c))
            || {
                let name: String = before.map(|one| one.c).take_while(|c| c.is_alphabetic()).collect();
                let name: String = name.chars().rev().collect();
                name.len() == 3 && CURRENCIES.contains(&name.to_lowercase().as_str())
            };
        let mut scale = 0;
        let mut is_sure = true;
        while let Some(scaled) = Scaled::behind(&seen, at, is_money) {
            at = scaled.end;
            scale += scaled.zeros;
            is_sure &= scaled.is_sure;
        }
        // A power, or a fraction: what it comes to is not read.
        if seen.get(at).is_some_and(|one| UNREAD.contains(&one.c)) && is_digit(at + 1) && of == Of::Answer {
            into.push(Number::unreadable(seen[at].c));
        }
        let end = seen.get(at).map_or(text.len(), |one| one.at);
        let written = &text[seen[first].at..end];
        let sign = if negative { "-" } else { "" };
        let unscaled = format!("{sign}{plain}");
        match Number::scaled(&unscaled, scale) {
            Some(number) => into.push(Number { written: written.to_owned(), ..number }),
            None if of == Of::Answer => into.push(Number { written: written.to_owned(), ..Number::unreadable('?') }),
            None => {}
        }
        // In evidence a letter may be the unit as well.
        if of == Of::Evidence && !is_sure {
            into.extend(Number::read(&unscaled));
        }
        // In evidence it may be a list as well.
        if of == Of::Evidence && decimal_comma && !parted {
            into.extend(pieces.iter().filter_map(|piece| Number::read(piece)));
        }
    }
}

/// The first number of `answer` that no number of the evidence shows.
pub(crate) fn invented<'a>(answer: &'a [Number], evidence: &[Number]) -> Option<&'a Number> {
    answer.iter().find(|number| !number.readable || !evidence.iter().any(|known| number.shows(known)))
}

/// Nobody shows a number with more zeros.
const EXPONENT_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Json) -> Vec<Number> {
        let mut found = Vec::new();
        all(value, Of::Answer, &|_| false, &mut found);
        found
    }

    fn known(value: &Json) -> Vec<Number> {
        let mut found = Vec::new();
        all(value, Of::Evidence, &|_| false, &mut found);
        found
    }

    fn check(answer: &Json, evidence: &Json) -> String {
        let (answer, evidence) = (read(answer), known(evidence));
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
        assert_eq!(found, ["3", "5", "7", "8", "1,2", "10,000", "1.2", "3"]);
    }

    #[test]
    fn however_it_is_written_it_is_a_number() {
        for written in [
            "USD1300",
            "usd1300",
            "EUR1,300",
            "$1300",
            "€1300",
            "1300ms",
            "1300USD",
            "total1300",
            "1,300",
            "1_300",
            "1'300",
            "1\u{2019}300",
            "1\u{a0}300",
            "1\u{202f}300",
            "1\u{2009}300",
            "1300.0",
            "1.300,0",
            "1.3e3",
            "１３００",
            "١٣٠٠",
            "१३००",
            "\u{1d7cf}\u{1d7d1}\u{1d7ce}\u{1d7ce}",
            "(1300)",
            "1300%",
            "1300 %",
            "id=1300",
            "x_1300",
        ] {
            assert_eq!(check(&json!(written), &json!({ "n": 1300 })), "fine", "{written}");
            assert_ne!(check(&json!(written), &json!({ "n": 1299 })), "fine", "{written}");
        }
        for (written, evidence) in
            [("1,5", 1.5), ("-1,5", -1.5), ("\u{2212}1.5", -1.5), ("EUR12", 12.0), ("1.234.567,89", 1_234_567.89)]
        {
            assert_eq!(check(&json!(written), &json!(evidence)), "fine", "{written}");
        }
    }

    #[test]
    fn what_makes_a_number_larger_is_read_with_it() {
        for (answer, evidence) in [
            (json!("12k"), json!(12_000)),
            (json!("12,000"), json!("12k users")),
            (json!("12K"), json!("12K")),
            (json!("12 K"), json!("a dozen: 12000")),
            (json!("1.2 million"), json!(1_200_000)),
            (json!("$12bn"), json!(12_000_000_000_u64)),
            (json!("EUR 12m"), json!("12 million")),
            (json!("12 Millionen"), json!("12 000 000 or 12,000,000")),
            (json!("12 hundred thousand"), json!(1_200_000)),
            (json!("1.2e3 thousand"), json!(1_200_000)),
            (json!("12亿"), json!(1_200_000_000)),
            (json!("0x1F4 and 0b101, 0o17"), json!([500, 5, 15])),
            (json!("500"), json!("0x1f4")),
            // units stay units
            (json!("12 MB in 12 ms, 12m, 12 km and 12kg, a 12-core"), json!(12)),
            (json!("16G"), json!("mem 16G")),
            (json!(16), json!("mem 16G")),
            (json!("1/12"), json!([1, 12])),
        ] {
            assert_eq!(check(&answer, &evidence), "fine", "{answer} {evidence}");
        }
        for (answer, evidence) in [
            (json!(12), json!("12k")),
            (json!(12), json!("12 million")),
            (json!("12 million"), json!(12_000)),
            (json!("0x1F4"), json!(501)),
            (json!("0xffffffffffffffffffffffffffffffffff"), json!("0xffffffffffffffffffffffffffffffffff")),
        ] {
            assert_ne!(check(&answer, &evidence), "fine", "{answer} {evidence}");
        }
        assert_eq!(check(&json!("about 12 million users"), &json!(12)), "12 million");
    }

    #[test]
    fn what_is_in_doubt_is_refused() {
        for (answer, evidence) in [
            (json!("½"), json!([1, 2, 0.5])),
            (json!("x²"), json!(2)),
            (json!("Ⅷ"), json!(8)),
            (json!("③"), json!(3)),
            // A comma that parts no thousands is a decimal one.
            (json!("1,5"), json!([1, 5])),
            (json!("50 %"), json!(0.5)),
            (json!({ "1301": true }), json!(1300)),
            (json!({ "in 1301": [] }), json!(1300)),
            (json!("EUR12"), json!(13)),
        ] {
            assert_ne!(check(&answer, &evidence), "fine", "{answer} {evidence}");
        }
        for answer in [
            "12k",
            "12K users",
            "12M",
            "$12bn",
            "$12m",
            "12 million",
            "12-million",
            "12 Mio. EUR",
            "12kUSD",
            "12万人",
            "12 thousand million",
            "0xc",
            "0x12",
            "0b12",
            "1⁄12",
            "1∕12",
            "12^1",
            "12 B",
            "0x12g",
        ] {
            let seen = json!("users: 12, errors 0, 1");
            let fine = check(&json!(answer), &seen) == "fine";
            assert_eq!(fine, answer == "0xc", "{answer}");
        }
        // A list is one in evidence, and in an answer where it is longer than two.
        assert_eq!(check(&json!([1, 5]), &json!("1,5")), "fine");
        assert_eq!(check(&json!("1,2,3"), &json!([1, 2, 3])), "fine");
    }

    #[test]
    fn it_is_said_where_it_stands() {
        let found = read(&json!({ "a": [{ "b 7": "x 8" }], "c": 9 }));
        let found: Vec<_> = found.iter().map(|number| (number.written(), number.place())).collect();
        assert_eq!(found, [("7", "the key /a/0/b 7"), ("8", "/a/0/b 7"), ("9", "/c")]);
    }
}
