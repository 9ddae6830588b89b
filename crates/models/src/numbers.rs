//! Numbers that a JSON reader would round: in the arguments of a call every digit counts, and a model may write more of them
//! than a machine's numbers have.
//!
//! Where arguments come as an object in a provider's response, such numbers are put under a mark before the response is
//! read, and come out from under it, digit by digit, where the arguments are written again. Nothing else is touched.

use std::borrow::Cow;
use std::ops::Range;

use longrein_core::payload::Payload;
use serde_json::{Number, Value};

/// Under what an object of arguments stands, in whatever dialect.
const ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];

/// How the text begins that stands for a number. Nobody writes it: its characters are private ones of two planes.
const MARK: &str = "\u{f4e1d}\u{10a7c3}#";
/// The same, with the quote before it.
const OPENING: &str = "\"\u{f4e1d}\u{10a7c3}#";

/// Numbers of fewer characters are as they were when they are read and written again, or worth as much.
const SAFE_DIGITS: usize = 16;

/// `text` with a mark on every number of its arguments that would not survive.
pub(crate) fn kept(text: &str) -> Cow<'_, str> {
    if !has_long_number(text) || text.contains(MARK) {
        return text.into();
    }
    let mut out = String::new();
    let mut done = 0;
    for at in numbers(text).into_iter().filter(|at| !survives(&text[at.clone()])) {
        out.push_str(&text[done..at.start]);
        out.push('"');
        out.push_str(MARK);
        out.push_str(&text[at.clone()]);
        out.push('"');
        done = at.end;
    }
    if done == 0 {
        return text.into();
    }
    out.push_str(&text[done..]);
    out.into()
}

/// A value as JSON, its numbers as they came.
pub(crate) fn written(value: &Value) -> String {
    unmarked(value.to_string())
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::parse(written(value).as_str()).expect("a JSON value always serialises")
}

fn unmarked(text: String) -> String {
    if !text.contains(OPENING) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split(OPENING);
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (number, rest) = part.split_once('"').unwrap_or((part, ""));
        out.push_str(number);
        out.push_str(rest);
    }
    out
}

fn has_long_number(text: &str) -> bool {
    let mut length = 0;
    text.bytes().any(|byte| {
        length = if byte.is_ascii_digit() || byte == b'.' { length + 1 } else { 0 };
        length >= SAFE_DIGITS
    })
}

fn survives(number: &str) -> bool {
    number.len() < SAFE_DIGITS
        || serde_json::from_str::<Number>(number).is_ok_and(|read| read.to_string() == number)
        // What cannot be read at all is no number, and its reader says so.
        || serde_json::from_str::<&serde_json::value::RawValue>(number).is_err()
}

/// Where numbers stand inside the objects and lists of arguments.
fn numbers(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // How deep we are in a value of arguments; 0: in none.
    let mut depth = 0_usize;
    let mut last_text = "";
    let mut is_named = false;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                last_text = text.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
                is_named = false;
                at = end;
                continue;
            }
            b':' => is_named = ARGUMENTS.contains(&last_text),
            b'{' | b'[' if depth > 0 || is_named => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' if depth > 0 => {
                let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
                let end = at + bytes[at..].iter().take_while(is_part).count();
                found.push(at..end);
                at = end;
                continue;
            }
            _ => {}
        }
        if !bytes[at].is_ascii_whitespace() && bytes[at] != b':' {
            is_named = false;
        }
        at += 1;
    }
    found
}

/// Behind the quote that closes the string beginning at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let value: Value = serde_json::from_str(&kept(text)).unwrap();
        assert_eq!(written(&value), expected);
    }

    #[test]
    fn digits_of_arguments_are_kept_and_nothing_else_changes() {
        let long = "123456789012345678901234567890";
        for key in ARGUMENTS {
            let text =
                format!(r#"{{"{key}":{{"n":{long},"list":[-{long},{{"m":0.12345678901234567890123}}],"k":1.50}}}}"#);
            let kept =
                format!(r#"{{"{key}":{{"n":{long},"list":[-{long},{{"m":0.12345678901234567890123}}],"k":1.5}}}}"#);
            check(&text, &kept);
            check(&text.replace(':', " : "), &kept);
        }
        // Words that look so, and numbers that nobody calls with.
        check(
            &format!(r#"{{"args":{{"a":"{long}","b\"":"\\"}}}}"#),
            &format!(r#"{{"args":{{"a":"{long}","b\"":"\\"}}}}"#),
        );
        check(&format!(r#"{{"args":{{}},"logprob":{long}}}"#), r#"{"args":{},"logprob":1.2345678901234568e+29}"#);
        check(
            r#"{"args":{"a":18446744073709551615,"b":-9223372036854775808}}"#,
            r#"{"args":{"a":18446744073709551615,"b":-9223372036854775808}}"#,
        );
    }

    #[test]
    fn what_is_no_json_is_left_to_its_reader() {
        for text in [
            r#"{"args":{"n":1234567890123456789012-3}}"#,
            r#"{"args":{"n":12345678901234567890"#,
            "\"12345678901234567890",
        ] {
            assert!(serde_json::from_str::<Value>(&kept(text)).is_err(), "{text}");
        }
    }
}
