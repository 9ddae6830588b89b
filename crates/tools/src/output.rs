//! What a program printed, as a value: JSON where it is JSON, else readable text, without secrets.

use std::borrow::Cow;

use longrein_core::payload::Payload;
use longrein_sandbox::Captured;
use serde_json::Value;

use crate::arguments::{repeats_a_key, unambiguous};
use crate::secrets::Secrets;
use crate::text::{Encoding, plain, printed, whole_pairs};

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
    /// The whole of it, trimmed, is JSON, or it is text. JSON nested deeper than anyone can read back is text.
    pub(crate) fn read(captured: &Captured, secrets: &Secrets) -> Self {
        let text = Encoding::of(&captured.head).decode(&captured.head);
        let text = whole_pairs(text.trim());
        let text = text.as_ref();
        let read = match unambiguous(text) {
            Some(value) => Some((value, false)),
            None => serde_json::from_str(text).ok().map(|value| (value, repeats_a_key(text))),
        };
        let Some((mut value, is_ambiguous)) = read else {
            return Self { payload: Payload::string(&readable(captured, secrets)), json: None, is_ambiguous: false };
        };
        // numbers and the order of keys stay as printed, unless something must be taken out
        let payload =
            if secrets.redact_value(&mut value) { Payload::of(&value).ok() } else { Payload::parse_compact(text).ok() };
        // of a key that occurs twice only one value was looked at
        let payload =
            payload.filter(|payload| !is_ambiguous || matches!(secrets.redact(payload.as_str()), Cow::Borrowed(_)));
        let payload = payload.unwrap_or_else(|| Payload::string(&readable(captured, secrets)));
        Self { payload, json: Some(value), is_ambiguous }
    }

    /// A member of the object it is, if it can be relied on.
    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        self.json.as_ref().filter(|_| !self.is_ambiguous)?.as_object()?.get(name)
    }
}

/// What was kept of an output as text a person or a model can read: decoded, without terminal control, without secrets. A
/// line says how much was not kept.
pub(crate) fn readable(captured: &Captured, secrets: &Secrets) -> String {
    let mut text = text_of(captured, secrets, plain);
    text.truncate(text.trim_end().len());
    text
}

/// The same as it was printed, terminal control and all, but for NUL. None: a secret stands in it in pieces, so that it can
/// not be taken out.
pub(crate) fn unrendered(captured: &Captured, secrets: &Secrets) -> Option<String> {
    let text = text_of(captured, secrets, without_nul);
    let holds_secret = |seen: Cow<'_, str>| matches!(secrets.redact(&seen), Cow::Owned(_));
    let is_rendered = matches!(plain(&text), Cow::Borrowed(_));
    (is_rendered || !holds_secret(plain(&text)) && !holds_secret(printed(&text))).then_some(text)
}

fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// Large outputs are in memory as few times as can be: nothing decoded outlives its step.
fn text_of(captured: &Captured, secrets: &Secrets, form: fn(&str) -> Cow<'_, str>) -> String {
    let encoding = Encoding::of(&captured.head);
    if captured.left_out() == 0 {
        return secrets.redact(&form(&encoding.decode(&captured.head))).into_owned();
    }
    let mut left_out = captured.left_out();
    let mut text = {
        let head = encoding.decode(&captured.head);
        let (lines, edge) = before_cut(&head);
        left_out += (head.len() - lines.len()) as u64;
        let mut text = secrets.redact(&form(lines)).into_owned();
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(edge)));
        text.truncate(text.trim_end_matches('\n').len());
        text
    };
    // the tail may begin in the middle of a unit
    let begins = captured.bytes - captured.tail.len() as u64;
    let odd = usize::try_from(begins % encoding.unit()).expect("less than two");
    let tail = encoding.decode(captured.tail.get(odd..).unwrap_or_default());
    let (lines, edge) = after_cut(&tail);
    left_out += (tail.len() - lines.len()) as u64;
    let formed = form(lines);
    let redacted = secrets.redact_after_cut(&formed);
    let from = redacted.ceil_char_boundary(edge.min(redacted.len()));
    // nobody counted its lines: what is looked up by its number later is numbered like this
    text.push_str(&format!("\n[… {left_out} bytes left out for good; lines below are numbered without them …]\n"));
    text.push_str(&redacted[from..]);
    text
}

/// So near to a cut there is a line end, or the line is one without end.
const LINE_END_WITHIN_BYTES: usize = 64 * 1024;

/// What stands at a cut may be a part of something, of a secret above all, that cannot be recognised. Where no line end
/// parts it from the rest, so much is given up: more than any secret of one line, a private key with escaped line ends too.
const EDGE_BYTES: usize = 16 * 1024;

/// The whole lines before a cut, and how much of them to give up.
fn before_cut(head: &str) -> (&str, usize) {
    let near = head.floor_char_boundary(head.len().saturating_sub(LINE_END_WITHIN_BYTES));
    head[near..].rfind('\n').map_or((head, EDGE_BYTES), |at| (&head[..near + at], 0))
}

/// The whole lines after a cut, and how much of them to give up.
fn after_cut(tail: &str) -> (&str, usize) {
    let near = tail.floor_char_boundary(LINE_END_WITHIN_BYTES);
    tail[..near].find('\n').map_or((tail, EDGE_BYTES), |at| (&tail[at + 1..], 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn read(bytes: &[u8], expected: &str) {
        assert_eq!(Printed::read(&whole(bytes), &Secrets::new()).payload.as_str(), expected);
    }

    fn whole(bytes: &[u8]) -> Captured {
        Captured { head: bytes.to_vec(), bytes: bytes.len() as u64, ..Captured::default() }
    }

    /// Cut as the sandbox cuts.
    fn cut(text: &[u8], head: usize, tail: usize) -> Captured {
        Captured {
            head: text[..head].to_vec(),
            tail: text[text.len() - tail..].to_vec(),
            bytes: text.len() as u64,
            line_ends_left_out: 0,
        }
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
        assert!(Printed::read(&whole(deep.as_bytes()), &Secrets::new()).json.is_none());
    }

    #[test]
    fn secrets_leave_json_and_text() {
        let mut secrets = Secrets::new();
        secrets.know("KEY", "hunter2hunter2");
        let printed = Printed::read(&whole(br#"{"k": "hunter2hunter2", "n": 1}"#), &secrets);
        assert_eq!(printed.payload.as_str(), r#"{"k":"[redacted:KEY]","n":1}"#);
        assert_eq!(readable(&whole(b"x hunter2\x1b[0mhunter2"), &secrets), "x [redacted:KEY]");
    }

    #[test]
    fn terminal_control_is_kept_unless_it_hides_a_secret() {
        let mut secrets = Secrets::new();
        secrets.know("KEY", "hunter2hunter2");
        let unrendered = |bytes: &[u8]| unrendered(&whole(bytes), &secrets);
        assert_eq!(unrendered(b"\x1b[31mred\0\r").unwrap(), "\x1b[31mred\r");
        assert_eq!(unrendered(b"\x1b[31mhunter2hunter2").unwrap(), "\x1b[31m[redacted:KEY]");
        for hidden in [
            &b"hunter2\x1b[0mhunter2"[..],
            b"hunter2\x1b[0mhunter2\rover",
            b"hunter2hunX\x08ter2",
            b"hunter2\x1b]0;t\x07hunter2",
        ] {
            assert_eq!(unrendered(hidden), None, "{hidden:?}");
        }
    }

    #[test]
    fn a_secret_that_was_cut_leaves_no_part() {
        let mut secrets = Secrets::new();
        secrets.know("KEY", "hunter2hunter2");
        let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        let key = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", "A1b2\n".repeat(600));
        let lines = ["hunter2hunter2", token, &key].map(|secret| format!("- {secret}\n"));
        let endless = ["hunter2hunter2 ", &format!("{token} ")].map(str::to_owned);
        for line in lines.into_iter().chain(endless) {
            let lines = line.repeat(200_000 / line.len());
            for shift in (0..line.len()).step_by(line.len().div_ceil(20)) {
                let captured = cut(lines.as_bytes(), 60_000 + shift, 60_000 + shift);
                for text in [readable(&captured, &secrets), unrendered(&captured, &secrets).unwrap()] {
                    assert!(text.contains("[redacted:") && text.contains("bytes left out"));
                    for part in ["hunt", "ter2", "ghp", "wxyz", "A1b2"] {
                        assert!(!text.contains(part), "{shift}: {part}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_end_of_utf_16_is_read_in_step() {
        let text: Vec<u8> = "zeile\n".repeat(50_000).encode_utf16().flat_map(u16::to_le_bytes).collect();
        for tail in [60_000, 60_001] {
            let text = readable(&cut(&text, 60_000, tail), &Secrets::new());
            assert!(text.lines().all(|line| line.is_empty() || line == "zeile" || line.starts_with('[')), "{tail}");
        }
    }

    proptest! {
        /// Whatever is printed and wherever it was cut, it is read as text.
        #[test]
        fn any_bytes_cut_anywhere_are_text(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    prop::sample::select(vec![&b"\x1b[31m"[..], b"\r", b"\n", "é\n".as_bytes(), b"\0a\0b", b"\xff\xfea\0"])
                        .prop_map(<[u8]>::to_vec),
                ],
                0..30,
            ),
            (head, tail) in (0.0..0.6, 0.0..0.4),
        ) {
            let bytes = pieces.concat();
            let part = |share: f64| (bytes.len() as f64 * share) as usize;
            let secrets = Secrets::new();
            for captured in [whole(&bytes), cut(&bytes, part(head), part(tail))] {
                let text = readable(&captured, &secrets);
                prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
                prop_assert!(!unrendered(&captured, &secrets).expect("there is no secret").contains('\0'));
            }
        }
    }
}
