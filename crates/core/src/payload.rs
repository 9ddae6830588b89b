//! Payloads: JSON that core carries and never opens, and content that may live in the blob store.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::ids::Digest;
use crate::image::ImageRef;

/// A JSON value as text, exactly as it came; compared byte by byte. Cheap to clone.
///
/// Where a digest is taken over a payload it must be canonical: sorted keys, no spaces (`semantics.md` D9). The edge that
/// makes the payload sees to that.
#[derive(Clone)]
pub struct Payload(Arc<RawValue>);

impl Payload {
    /// Checks that `text` is one JSON value. Fails with the parser's message.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(|raw| Self(raw.into()))
    }

    /// As [`parse`](Self::parse), without the blanks between its parts: numbers, texts and the order of keys stay as they came.
    pub fn parse_compact(text: &str) -> Result<Self, serde_json::Error> {
        // Only of what is JSON is it known where a text in it ends.
        serde_json::from_str::<&RawValue>(text)?;
        Self::parse(compact(text))
    }

    /// The JSON form of any value that serialises. Maps with keys that are no strings are the only values that do not.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Self(raw.into()))
    }

    /// A JSON string.
    pub fn string(text: &str) -> Self {
        Self::of(&text).expect("a string always serialises")
    }

    pub fn null() -> Self {
        Self::of(&()).expect("null always serialises")
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.as_str().as_bytes())
    }

    /// Reads it as a `T`. Core itself never calls this.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

/// A valid JSON text without the blanks and line breaks between its parts.
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

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

/// The most bytes of JSON that stand in an event itself, and the most of one result that the model is shown at once.
/// More goes to a blob. 32 KiB is about 8,000 tokens, the upper end of what `context.md` §2.4 lets one result take.
pub const INLINE_MAX_BYTES: usize = 32 * 1024;

/// Content of an event: in the event, or in the blob store under its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    Inline(Payload),
    Blob(BlobRef),
}

/// Where a large JSON value lies: the blob's bytes are the JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub digest: Digest,
    /// Length of the JSON text in bytes.
    pub bytes: u64,
    /// What of it the model is shown: a preview that was made once, of an object the same object with less in it.
    pub shown: Payload,
    /// The images in it, which the model is shown as such.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

impl BlobRef {
    /// How much is shown, in bytes: of a text its length, of anything else that of its JSON.
    pub fn shown_bytes(&self) -> u64 {
        self.shown.read::<String>().map_or(self.shown.as_str().len(), |text| text.len()) as u64
    }

    /// What is shown, for people: a text as it is, anything else as JSON.
    pub fn shown_text(&self) -> String {
        self.shown.read::<String>().unwrap_or_else(|_| self.shown.as_str().to_owned())
    }
}

impl Content {
    /// What of it the model is shown.
    pub fn shown(&self) -> &Payload {
        match self {
            Content::Inline(payload) => payload,
            Content::Blob(blob) => &blob.shown,
        }
    }

    /// The images in it.
    pub fn images(&self) -> &[ImageRef] {
        match self {
            Content::Inline(_) => &[],
            Content::Blob(blob) => &blob.images,
        }
    }

    /// Length of the JSON text in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Content::Inline(payload) => payload.as_str().len() as u64,
            Content::Blob(blob) => blob.bytes,
        }
    }

    pub fn digest(&self) -> Digest {
        match self {
            Content::Inline(payload) => payload.digest(),
            Content::Blob(blob) => blob.digest.clone(),
        }
    }
}

/// A small payload stays inline; a larger one becomes a reference, and the bytes to store are handed back beside it.
pub fn place(payload: Payload) -> (Content, Option<(Digest, Payload)>) {
    let text = payload.as_str();
    if text.len() <= INLINE_MAX_BYTES {
        return (Content::Inline(payload), None);
    }
    let readable = payload.read::<String>().ok();
    let shown = Payload::string(&head_and_tail(readable.as_deref().unwrap_or(text), SHOWN_MAX_BYTES));
    let (content, blob) = place_apart(payload, shown, Vec::new());
    (content, Some(blob))
}

/// A payload goes to the blob store whatever its size, and the model is shown `shown` of it.
pub fn place_apart(payload: Payload, shown: Payload, images: Vec<ImageRef>) -> (Content, (Digest, Payload)) {
    let digest = payload.digest();
    let blob = BlobRef { digest: digest.clone(), bytes: payload.as_str().len() as u64, shown, images };
    (Content::Blob(blob), (digest, payload))
}

/// How much of a result in the blob store is shown: the start of a listing and the end of a log say most.
const SHOWN_MAX_BYTES: usize = 8 * 1024;

/// What is shown of some content, as people read it: a string without its quotes.
pub fn text_of(content: &Content) -> String {
    match content {
        Content::Inline(payload) => payload.read::<String>().unwrap_or_else(|_| payload.as_str().to_owned()),
        Content::Blob(blob) => blob.shown_text(),
    }
}

/// The start of `text`, at most `limit` bytes, with a sign where something is missing.
pub fn excerpt(text: &str, limit: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(MORE.len()));
    format!("{}{MORE}", &text[..end])
}

/// A text as one line, with a sign where lines ended: for where a line of its own would look like somebody else's word.
pub fn one_line(text: &str) -> String {
    if !text.contains(ends_line) {
        return text.to_owned();
    }
    text.replace("\r\n", "\n").split(ends_line).map(str::trim_end).collect::<Vec<_>>().join(" ⏎ ")
}

/// Whether it ends a line for one reader or another.
pub(crate) fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The first three fifths and the last two fifths of `limit` bytes of `text`, with a line between that says what is
/// missing. Cuts at character boundaries.
pub fn head_and_tail(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut head = limit * 3 / 5;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - limit * 2 / 5;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_touches_only_blanks_between_parts() {
        let text = "{ \"a b\" : [ 1.0 , 1e2 ],\n\t\"q\\\" \\\\\" : \" x \" , \"n\":12345678901234567890123 }";
        let expected = "{\"a b\":[1.0,1e2],\"q\\\" \\\\\":\" x \",\"n\":12345678901234567890123}";
        assert_eq!(Payload::parse_compact(text).unwrap().as_str(), expected);
        for wrong in ["", "{", "1 2", "no"] {
            assert!(Payload::parse_compact(wrong).is_err(), "{wrong}");
        }
    }
}
