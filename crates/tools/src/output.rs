//! What a program printed, as a value: JSON where it is JSON, else readable text, without secrets.

use longrein_core::payload::Payload;
use serde_json::Value;

use crate::arguments::repeats_a_key;
use crate::secrets::Secrets;

/// What stdout holds.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) payload: Payload,
    /// The parsed form, if it is JSON.
    pub(crate) json: Option<Value>,
    /// A key occurs twice in it: it may contradict itself, and nothing is concluded from it.
    pub(crate) is_ambiguous: bool,
}

impl Printed {
    /// The whole of `bytes`, trimmed, is JSON, or it is text. JSON nested deeper than anyone can read back is text.
    pub(crate) fn read(bytes: &[u8], secrets: &Secrets) -> Self {
        let text = decode(bytes);
        match serde_json::from_str::<Value>(text.trim()) {
            Ok(mut value) => {
                // numbers and the order of keys stay as printed, unless something must be taken out
                let payload = if secrets.redact_value(&mut value) {
                    Payload::of(&value).ok()
                } else {
                    Payload::parse(compact(text.trim())).ok()
                };
                let payload = payload.unwrap_or_else(|| Payload::string(&readable(bytes, secrets)));
                let is_ambiguous = repeats_a_key(text.trim());
                Self { payload, json: Some(value), is_ambiguous }
            }
            Err(_) => Self { payload: Payload::string(&readable(bytes, secrets)), json: None, is_ambiguous: false },
        }
    }

    /// A member of the object it is, if it can be relied on.
    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        self.json.as_ref().filter(|_| !self.is_ambiguous)?.as_object()?.get(name)
    }
}

/// Bytes as text a person or a model can read: decoded, without terminal control, without secrets.
pub(crate) fn readable(bytes: &[u8], secrets: &Secrets) -> String {
    let text = plain(&decode(bytes));
    secrets.redact(text.trim_end()).into_owned()
}

/// UTF-8, or UTF-16 where a byte order mark says so; what is invalid becomes U+FFFD.
fn decode(bytes: &[u8]) -> String {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8_lossy(rest).into_owned(),
    }
}

/// Without escape sequences (ECMA-48) and without control characters other than line ends and tabs.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next() {
                Some('[') => skip_control_sequence(&mut rest),
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut rest),
                // a character set or the like: intermediates, then one final character
                Some(' '..='/') => while rest.next().is_some_and(|c| matches!(c, ' '..='/')) {},
                Some(_) | None => {}
            },
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{9d}' => skip_string(&mut rest),
            '\n' | '\t' | '\r' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_control_sequence(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// Up to the string terminator, or the bell that stands for it. An unterminated one hides no more than its line.
fn skip_string(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

/// A valid JSON text without the spaces and line breaks between its parts. One record stays one line.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_ascii_whitespace() {
            out.push(c);
            in_string = c == '"';
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(bytes: &[u8], expected: &str) {
        assert_eq!(Printed::read(bytes, &Secrets::new()).payload.as_str(), expected);
    }

    #[test]
    fn json_stays_as_printed() {
        read(
            b" {\"b\": 12345678901234567890123,\n \"a\": \" x \\\" y \"}\n",
            r#"{"b":12345678901234567890123,"a":" x \" y "}"#,
        );
        read(b"3\n", "3");
        read(b"\"x\"", "\"x\"");
        read(b"\xef\xbb\xbf{}", "{}");
    }

    #[test]
    fn the_rest_is_text() {
        read(b"hello\nworld\n\n", r#""hello\nworld""#);
        read(b"", r#""""#);
        read(b"{\"a\":1} trailing", r#""{\"a\":1} trailing""#);
        read(b"\xff\xfeh\0i\0", r#""hi""#);
        read(b"\xfe\xff\0h\0i", r#""hi""#);
        read(b"a\xffb\0c", "\"a\u{fffd}bc\"");
        read(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]52;c;AAAA\x1b\\y\x1b(Bz", r#""red xyz""#);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(Printed::read(deep.as_bytes(), &Secrets::new()).json.is_none());
    }

    #[test]
    fn secrets_leave_json_and_text() {
        let mut secrets = Secrets::new();
        secrets.know("KEY", "hunter2hunter2");
        let printed = Printed::read(br#"{"k": "hunter2hunter2", "n": 1}"#, &secrets);
        assert_eq!(printed.payload.as_str(), r#"{"k":"[redacted:KEY]","n":1}"#);
        assert_eq!(readable(b"x hunter2\x1b[0mhunter2", &secrets), "x [redacted:KEY]");
    }
}
