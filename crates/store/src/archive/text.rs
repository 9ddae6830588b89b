//! Pieces as text: what all events under one handle say, readable and whole.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use longrein_core::context::archive::{Entry, Handle, Says, entry, listed};
use longrein_core::event::Event;
use longrein_core::ids::{Digest, Seq};
use longrein_core::payload::{BlobRef, Content};
use longrein_core::time::Timestamp;
use longrein_ports::{JournalError, Piece};

/// Answers a blob's bytes if they are there and whole.
pub(crate) type Load<'a> = dyn Fn(&Digest) -> Result<Option<Bytes>, JournalError> + 'a;

/// Pieces in the making, in the order of their first event.
#[derive(Default)]
pub(crate) struct Pieces {
    made: Vec<Piece>,
    places: BTreeMap<Handle, usize>,
}

impl Pieces {
    /// Adds what an event says, if it says anything.
    pub(crate) fn add(&mut self, seq: Seq, at: Timestamp, event: &Event, load: &Load<'_>) -> Result<(), JournalError> {
        match entry(seq, event) {
            Some(entry) => self.put(entry, at, event, load),
            None => Ok(()),
        }
    }

    /// Adds the line an event adds to a list, if it does.
    pub(crate) fn list(&mut self, seq: Seq, at: Timestamp, event: &Event, load: &Load<'_>) -> Result<(), JournalError> {
        match listed(seq, event) {
            Some(entry) => self.put(entry, at, event, load),
            None => Ok(()),
        }
    }

    fn put(&mut self, entry: Entry<'_>, at: Timestamp, event: &Event, load: &Load<'_>) -> Result<(), JournalError> {
        let place = *self.places.entry(entry.handle).or_insert_with(|| {
            let (what, text) = (UNNAMED.to_owned(), String::new());
            self.made.push(Piece { handle: entry.handle, what, at, text, result_at: 0 });
            self.made.len() - 1
        });
        let piece = &mut self.made[place];
        piece.at = at;
        if let Some(what) = entry.what {
            piece.what = what;
        }
        let is_call = matches!(event, Event::ActionProposed(_));
        let mut result_at = if piece.result_at < piece.text.len() { Some(piece.result_at) } else { None };
        for says in &entry.says {
            let begins = write(says, load, &mut piece.text)?;
            match says {
                // What came of it last is what its lines are counted from.
                Says::Content(_) => result_at = Some(begins),
                Says::Label(_) | Says::Text(_) | Says::Payload(_) => result_at = result_at.or(Some(begins)),
            }
        }
        if let Handle::Action(_) = entry.handle {
            piece.result_at = if is_call { piece.text.len() } else { result_at.unwrap_or(piece.text.len()) };
        }
        Ok(())
    }

    pub(crate) fn made(self) -> Vec<Piece> {
        self.made
    }
}

/// What a piece is called whose first event is missing.
const UNNAMED: &str = "action";

/// Answers where that begins from which its lines are counted.
fn write(says: &Says<'_>, load: &Load<'_>, text: &mut String) -> Result<usize, JournalError> {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let begins = text.len();
    Ok(match says {
        Says::Label(words) => {
            text.push_str(words);
            begins
        }
        Says::Text(words) => {
            text.push_str(words);
            begins
        }
        Says::Payload(payload) => readable(payload.as_str(), text),
        Says::Content(Content::Inline(payload)) => readable(payload.as_str(), text),
        Says::Content(Content::Blob(blob)) => match load(&blob.digest)? {
            Some(bytes) => readable(&String::from_utf8_lossy(&bytes), text),
            None => lost(blob, text),
        },
    })
}

fn lost(blob: &BlobRef, text: &mut String) -> usize {
    let begins = readable(blob.shown.as_str(), text);
    text.push_str(&format!("\n[Only this is left: the rest of {} bytes is lost.]", blob.bytes));
    begins
}

/// JSON as it is, but with its strings as they read: line breaks are line breaks. A string alone stands without its quotes,
/// members of the outermost object stand on lines of their own. Made to be read and searched, not to be parsed again.
///
/// Answers where its lines are counted from: in its longest member of several lines, as where it is shown shorter; or else
/// where it begins.
pub(crate) fn readable(json: &str, text: &mut String) -> usize {
    let mut begins = text.len();
    let mut longest = 0;
    if json.starts_with('"')
        && let Ok(words) = serde_json::from_str::<Cow<'_, str>>(json)
    {
        text.push_str(&words);
        return begins;
    }
    let bytes = json.as_bytes();
    let (mut at, mut copied, mut depth) = (0, 0, 0_u32);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let start = at - 1;
                at = string_end(bytes, start);
                if bytes[start..at].contains(&b'\\') {
                    text.push_str(&json[copied..start]);
                    let quote = text.len();
                    unescape(&json[start..at], text);
                    copied = at;
                    let length = text.len() - quote;
                    let is_member = json.starts_with('{') && depth == 1 && bytes[..start].ends_with(b":");
                    if is_member && length > longest && text[quote..].contains('\n') {
                        (begins, longest) = (quote + 1, length);
                    }
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => {
                text.push_str(&json[copied..at]);
                text.push('\n');
                copied = at;
            }
            _ => {}
        }
    }
    text.push_str(&json[copied..]);
    begins
}

/// The index behind the closing quote of the string that begins at `start`; the end of the text if there is none.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => return at,
            b'\\' => at += 1,
            _ => {}
        }
    }
    bytes.len()
}

/// A string that is none (half of a surrogate pair in it) stays as it is written.
fn unescape(string: &str, text: &mut String) {
    match serde_json::from_str::<String>(string) {
        Ok(words) => {
            text.push('"');
            text.push_str(&words);
            text.push('"');
        }
        Err(_) => text.push_str(string),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        let mut text = String::new();
        readable(json, &mut text);
        assert_eq!(text, expected, "{json}");
    }

    #[test]
    fn strings_read_as_they_are_meant() {
        check(r#""one\n\"two\" \u00e9 \ud83c\udf89""#, "one\n\"two\" é 🎉");
        check(
            r#"{"a":"x\ny","b":{"c":[1,2.50,null]},"d":"e,f"}"#,
            "{\"a\":\"x\ny\",\n\"b\":{\"c\":[1,2.50,null]},\n\"d\":\"e,f\"}",
        );
        check("[1e400,18446744073709551616]", "[1e400,\n18446744073709551616]");
        check(r#"{"half":"\ud83c!"}"#, r#"{"half":"\ud83c!"}"#);
        check("null", "null");
        check("{}", "{}");
    }

    #[test]
    fn lines_are_counted_in_the_longest_member() {
        let counted = |json: &str| {
            let mut text = "before\n".to_owned();
            let begins = readable(json, &mut text);
            text.split_off(begins)
        };
        assert_eq!(counted(r#"{"status":0,"output":"one\ntwo\n","note":"a\nb"}"#), "one\ntwo\n\",\n\"note\":\"a\nb\"}");
        assert_eq!(counted(r#""one\ntwo""#), "one\ntwo");
        assert_eq!(counted(r#"{"a":1,"b":{"c":"x\ny"}}"#), "{\"a\":1,\n\"b\":{\"c\":\"x\ny\"}}");
        assert_eq!(counted(r#"["x\ny"]"#), "[\"x\ny\"]");
    }

    #[test]
    fn what_is_no_json_does_no_harm() {
        for text in ["", "\"", "\"\\", "{\"a", "}}}],", "\"a\\\"", "{\"é\\"] {
            let mut out = String::new();
            readable(text, &mut out);
            assert!(out.len() >= text.len(), "{text}: {out}");
        }
    }
}
