//! Data that says nothing to a reader, base64 and binaries above all, replaced by what it is and how much of it there is.
//!
//! Base64 is told from words and paths by its mixture: it changes between capitals, small letters and digits all the time.
//! Hexadecimal digests, keys of a line and identifiers stay.

use std::borrow::Cow;
use std::ops::Range;

use super::cost::grouped;
use super::scan::{decoded, quoted, string_end};
use crate::text::plain;

/// How much is cleaned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cleaning {
    /// What must never be shown, whatever its size.
    Data,
    /// That, and terminal control beside it.
    DataAndControl,
}

/// A shorter run may be a key or a digest somebody wants to see.
const RUN_MIN_BYTES: usize = 200;

/// Base64 in lines has 64 or 76 characters in each; shorter lines are lists of words.
const WRAPPED_LINE_MIN_BYTES: usize = 60;
const WRAPPED_LINE_MAX_BYTES: usize = 128;

/// A shorter text is shown, whatever stands in it.
const BINARY_MIN_CHARS: usize = 64;

/// A whole JSON value, with all its strings cleaned and blocks of data in objects replaced by a string.
pub(super) fn json(raw: &str, cleaning: Cleaning) -> Cow<'_, str> {
    let bytes = raw.as_bytes();
    let mut draft = Draft::of(raw);
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                at = string_end(bytes, start);
                let string = &raw[start..at];
                match open.last_mut() {
                    Some(object) if object.is_object && object.key == Key::None => {
                        object.key = Key::of(string);
                        continue;
                    }
                    Some(inside) => inside.note(start..at),
                    None => {}
                }
                if let Some(clean) = string_cleaned(string, cleaning) {
                    draft.replace(start, at, &quoted(&clean));
                }
            }
            b'{' => open.push(Open { place: draft.place(start), is_object: true, ..Open::default() }),
            b'[' => open.push(Open::default()),
            b',' => open.last_mut().into_iter().for_each(|inside| inside.key = Key::None),
            b'}' | b']' => {
                let closed = open.pop().unwrap_or_default();
                if let Some(marker) = closed.block(raw) {
                    draft.replace_from(closed.place, at, &quoted(&marker));
                }
            }
            _ => {}
        }
    }
    draft.done()
}

/// A text on its way, copied only from its first change on.
struct Draft<'a> {
    raw: &'a str,
    out: String,
    /// Up to here the raw text is in `out`, or replaced in it.
    copied: usize,
}

impl<'a> Draft<'a> {
    fn of(raw: &'a str) -> Self {
        Self { raw, out: String::new(), copied: 0 }
    }

    /// Where what stands at `at` of the raw text stands, or will stand, in `out`.
    fn place(&self, at: usize) -> usize {
        self.out.len() + (at - self.copied)
    }

    fn replace(&mut self, start: usize, end: usize, by: &str) {
        self.out.push_str(&self.raw[self.copied..start]);
        self.out.push_str(by);
        self.copied = end;
    }

    /// Everything from a place in `out` on.
    fn replace_from(&mut self, place: usize, end: usize, by: &str) {
        self.out.push_str(&self.raw[self.copied..end]);
        self.out.truncate(place);
        self.out.push_str(by);
        self.copied = end;
    }

    /// None if nothing was replaced.
    fn changed(self) -> Option<String> {
        match self.done() {
            Cow::Owned(text) => Some(text),
            Cow::Borrowed(_) => None,
        }
    }

    fn done(mut self) -> Cow<'a, str> {
        if self.copied == 0 {
            return Cow::Borrowed(self.raw);
        }
        self.out.push_str(&self.raw[self.copied..]);
        Cow::Owned(self.out)
    }
}

/// An array or object whose end has not come yet.
#[derive(Default)]
struct Open {
    is_object: bool,
    /// Where it begins in what is written.
    place: usize,
    /// The member that is being read.
    key: Key,
    /// Where the strings lie that may make it a block of data.
    kind: Range<usize>,
    media: Range<usize>,
    data: Range<usize>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Key {
    #[default]
    None,
    Kind,
    Media,
    Data,
    Other,
}

impl Key {
    fn of(raw: &str) -> Self {
        match raw.trim_matches('"') {
            "type" => Self::Kind,
            "mimeType" | "mime_type" | "mediaType" | "media_type" => Self::Media,
            "data" | "blob" => Self::Data,
            _ => Self::Other,
        }
    }
}

/// Shorter data is a word.
const BLOCK_MIN_BYTES: usize = 8;

impl Open {
    fn note(&mut self, string: Range<usize>) {
        match self.key {
            Key::Kind => self.kind = string,
            Key::Media => self.media = string,
            Key::Data => self.data = string,
            Key::None | Key::Other => {}
        }
    }

    /// What stands for an object such as `{"type":"image","data":"…","mimeType":"image/png"}`, however small.
    fn block(&self, raw: &str) -> Option<String> {
        if !self.is_object || self.data.is_empty() || (self.kind.is_empty() && self.media.is_empty()) {
            return None;
        }
        let [kind, media, data] = [&self.kind, &self.media, &self.data].map(|at| decoded(&raw[at.clone()]));
        let is_shown = |name: &str| ["image", "audio", "video"].iter().any(|kind| name.starts_with(kind));
        let is_data = is_shown(&kind)
            || is_shown(&media)
            || kind == "base64"
            || ["application/pdf", "application/zip", "application/octet-stream"].contains(&&*media);
        let (mut characters, mut is_base64) = (0, true);
        for byte in data.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            characters += 1;
            is_base64 &= in_base64(byte) || byte == b'=';
        }
        if !is_data || !is_base64 || characters < BLOCK_MIN_BYTES {
            return None;
        }
        let media = media_name(&media).or_else(|| media_of_base64(data.as_bytes()).map(Cow::Borrowed));
        let word = if is_shown(&kind) { &kind[..5] } else { "data" };
        Some(reference(word, media.as_deref(), decoded_bytes(data.as_bytes()), 1))
    }
}

/// A string of a JSON value, cleaned and decoded; None if it can stay.
fn string_cleaned(raw: &str, cleaning: Cleaning) -> Option<String> {
    // Terminal control is escaped in JSON, but for what begins with these two bytes.
    let may_control = || raw.bytes().any(|byte| matches!(byte, b'\\' | 0x7f | 0xc2));
    let must_look =
        raw.len() >= BINARY_MIN_CHARS || raw.contains(URI) || (cleaning == Cleaning::DataAndControl && may_control());
    must_look.then(|| text(&decoded(raw), cleaning, raw)).flatten()
}

/// A text without its data; None if it can stay. `raw`: as it stands in JSON, or the text itself.
pub(super) fn text(text: &str, cleaning: Cleaning, raw: &str) -> Option<String> {
    if let Some(marker) = binary(text, cleaning) {
        return Some(marker);
    }
    let mut clean = match cleaning {
        Cleaning::Data => Cow::Borrowed(text),
        Cleaning::DataAndControl => plain(text),
    };
    for step in [without_uris, without_runs] {
        if let Some(cleaner) = step(&clean) {
            clean = Cow::Owned(cleaner);
        }
    }
    match clean {
        Cow::Owned(clean) => Some(clean),
        // half a surrogate pair has become a character that can be shown
        Cow::Borrowed(text) if cleaning == Cleaning::DataAndControl && has_half_pair(text, raw) => {
            Some(text.to_owned())
        }
        Cow::Borrowed(_) => None,
    }
}

fn has_half_pair(text: &str, raw: &str) -> bool {
    text.contains('\u{fffd}') && raw.contains("\\u")
}

/// What stands for a text that is no text, if it is none.
fn binary(text: &str, cleaning: Cleaning) -> Option<String> {
    let is_suspect = |byte: u8| matches!(byte, 0..=8 | 0x0e..=0x1a | 0x1c..=0x1f | 0xef);
    if text.len() < BINARY_MIN_CHARS || !text.bytes().any(is_suspect) {
        return None;
    }
    let (mut chars, mut zeros, mut odd) = (0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        chars += 1;
        match c {
            '\0' => zeros += 1,
            '\u{fffd}' | '\u{1}'..='\u{7}' | '\u{e}'..='\u{1a}' | '\u{1c}'..='\u{1f}' => odd += 1,
            _ => {}
        }
    }
    let media = media_of_text(text);
    // Text in an encoding nobody guessed has odd characters too, and its file may have to be edited: where all of it fits,
    // it takes zeros to call it no text.
    let odd = match cleaning {
        Cleaning::Data if media.is_none() => 0,
        Cleaning::Data | Cleaning::DataAndControl => odd,
    };
    // Every other character a zero: UTF-16 read as something else, readable once they are gone.
    let is_wide = zeros * 2 <= chars + 1 && zeros * 5 >= chars * 2 && odd * 20 < chars && media.is_none();
    let strange = if is_wide { odd } else { zeros + odd };
    // What says what it is may have readable parts; of text in some other encoding a part is odd as well.
    let is_binary =
        if media.is_some() { strange * 20 > chars } else { strange * 4 > chars || zeros * 20 > chars && !is_wide };
    // A byte that is no text is one character here.
    is_binary.then(|| reference("binary", media, chars, 1))
}

/// What comes before base64 in a data URI.
const URI: &str = ";base64,";

/// The type in a data URI is no longer than this.
const URI_HEAD_MAX_BYTES: usize = 120;

fn without_uris(text: &str) -> Option<String> {
    let mut draft = Draft::of(text);
    for (at, _) in text.match_indices(URI) {
        if at < draft.copied {
            continue;
        }
        let near = text.ceil_char_boundary(at.saturating_sub(URI_HEAD_MAX_BYTES)).max(draft.copied);
        let Some(head) = text[near..at].rfind("data:").map(|found| near + found) else { continue };
        let data = at + URI.len();
        let end = data + text.as_bytes()[data..].iter().take_while(|byte| in_base64(**byte)).count();
        let kind = &text[head + "data:".len()..at];
        let media = media_name(kind.split(';').next().unwrap_or_default());
        let is_kind = kind.bytes().all(|byte| in_base64(byte) || matches!(byte, b';' | b'=' | b'.'));
        if is_kind && end - data >= BLOCK_MIN_BYTES {
            let padding = text.as_bytes()[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
            let marker = reference("data", media.as_deref(), decoded_bytes(&text.as_bytes()[data..end]), 1);
            draft.replace(head, end + padding, &marker);
        }
    }
    draft.changed()
}

fn without_runs(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut draft = Draft::of(text);
    let mut at = 0;
    // Only what lies right behind a byte that belongs to no run can be long enough: most bytes are never looked at.
    while let Some(window) = bytes.get(at..at + RUN_MIN_BYTES) {
        if let Some(apart) = window.iter().rposition(|byte| !in_region(*byte)) {
            at += apart + 1;
            continue;
        }
        let more = bytes[at + RUN_MIN_BYTES..].iter().take_while(|byte| in_region(**byte)).count();
        let end = at + RUN_MIN_BYTES + more;
        region_cleaned(&mut draft, at, end);
        at = end;
    }
    draft.changed()
}

/// What runs of base64 and their line ends consist of.
fn in_region(byte: u8) -> bool {
    in_base64(byte) || matches!(byte, b'\n' | b'\r')
}

/// Both alphabets (RFC 4648).
fn in_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn region_cleaned(draft: &mut Draft<'_>, start: usize, end: usize) {
    let bytes = draft.raw.as_bytes();
    let line = |from: usize| {
        let length = bytes[from..end].iter().position(|byte| *byte == b'\n').unwrap_or(end - from);
        let content = length - usize::from(length > 0 && bytes[from + length - 1] == b'\r');
        (from + content, (from + length + 1).min(end))
    };
    let mut at = start;
    while at < end {
        let (mut stop, mut next) = line(at);
        let width = stop - at;
        let mut lines = 1;
        if (WRAPPED_LINE_MIN_BYTES..=WRAPPED_LINE_MAX_BYTES).contains(&width) {
            while next < end {
                let (line_stop, after) = line(next);
                let length = line_stop - next;
                let is_rule = length < width && bytes[next] == b'-';
                if length > width || length == 0 || is_rule {
                    break;
                }
                // The last line is shorter, and complete: with its padding it makes up whole groups of four.
                let padding = bytes[line_stop..].iter().take(2).take_while(|byte| **byte == b'=').count();
                let is_whole = (length + padding).is_multiple_of(4)
                    && matches!(bytes.get(line_stop + padding), None | Some(b'\n' | b'\r' | b'"' | b'\'' | b'\\'));
                if length < width && (!is_whole || (padding == 0 && is_word(&bytes[next..line_stop]))) {
                    break;
                }
                (stop, next, lines) = (line_stop, after, lines + 1);
                if length < width {
                    break;
                }
            }
        }
        if stop - at >= RUN_MIN_BYTES && is_mixed(&bytes[at..stop]) {
            let padding = bytes[stop..].iter().take(2).take_while(|byte| **byte == b'=').count();
            let media = media_of_base64(&bytes[at..stop]);
            let marker = reference("data", media, decoded_bytes(&bytes[at..stop]), lines);
            draft.replace(at, stop + padding, &marker);
        }
        at = next.max(stop + 1);
    }
}

/// What a line of prose may consist of: a short word, a capital at most at its start.
fn is_word(line: &[u8]) -> bool {
    line.len() <= 12 && line[0].is_ascii_alphabetic() && line[1..].iter().all(u8::is_ascii_lowercase)
}

/// So much of a run is looked at to tell what it is.
const MIXTURE_SAMPLE_BYTES: usize = 4 * 1024;

/// Capitals, small letters and digits, in no order a person would write: three neighbours of five are of different kinds
/// in base64, one of ten in names and paths.
fn is_mixed(run: &[u8]) -> bool {
    if media_of_base64(run).is_some() {
        return true;
    }
    let kind = |byte: u8| match byte {
        b'A'..=b'Z' => 0,
        b'a'..=b'z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let run = &run[..run.len().min(MIXTURE_SAMPLE_BYTES)];
    let mut seen = [0_usize; 4];
    run.iter().for_each(|byte| seen[kind(*byte)] += 1);
    let (mut pairs, mut changes) = (0, 0);
    for (one, next) in run.iter().zip(run.iter().skip(1)).filter(|(one, next)| one != next) {
        pairs += 1;
        changes += usize::from(kind(*one) != kind(*next));
    }
    seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && pairs >= 50 && changes * 4 >= pairs
}

/// How many bytes base64 stands for.
fn decoded_bytes(base64: &[u8]) -> usize {
    base64.iter().filter(|byte| in_base64(**byte)).count() * 3 / 4
}

/// `[image image/png, 1,234,567 bytes]`: what it is, how much, and nothing of it.
fn reference(word: &str, media: Option<&str>, bytes: usize, lines: usize) -> String {
    let kinds = ["image", "audio", "video"];
    let word = kinds.into_iter().find(|kind| media.is_some_and(|media| media.starts_with(kind))).unwrap_or(word);
    let media = media.map(|media| format!(" {media}")).unwrap_or_default();
    let about = if word == "binary" { "about " } else { "" };
    let lines = if lines > 1 { format!("{ON}{lines} lines") } else { " bytes".to_owned() };
    format!("[{word}{media}, {about}{}{lines}]", grouped(bytes))
}

/// Stands before the number of lines that were taken out of a text, for those who count its lines.
const ON: &str = " bytes on ";

/// How many lines the text had where data was taken out of it, beside those it has now.
pub(super) fn lines_taken(text: &str) -> usize {
    let number = |(at, _): (usize, &str)| {
        let digits = text[at + ON.len()..].split(' ').next().unwrap_or_default();
        digits.parse::<usize>().map_or(0, |lines| lines.saturating_sub(1))
    };
    text.match_indices(ON).map(number).fold(0, usize::saturating_add)
}

/// A media type that may be shown: of the characters they are made of, and no longer than they are.
fn media_name(text: &str) -> Option<Cow<'static, str>> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+' | b'.' | b'-');
    let is_name = text.contains('/') && text.len() <= 80 && text.bytes().all(allowed);
    is_name.then(|| Cow::Owned(text.to_ascii_lowercase()))
}

/// What files begin with.
const MEDIA: &[(&[u8], &str)] = &[
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3", "application/vnd.sqlite3"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"wOF2", "font/woff2"),
    (b"wOFF", "font/woff"),
    (b"<svg", "image/svg+xml"),
];

fn media_of_bytes(start: &[u8]) -> Option<&'static str> {
    match (start, start.get(8..12)) {
        ([b'R', b'I', b'F', b'F', ..], Some(b"WEBP")) => return Some("image/webp"),
        ([b'R', b'I', b'F', b'F', ..], Some(b"WAVE")) => return Some("audio/wav"),
        ([_, _, _, _, b'f', b't', b'y', b'p', ..], Some(b"avif")) => return Some("image/avif"),
        ([_, _, _, _, b'f', b't', b'y', b'p', ..], Some(_)) => return Some("video/mp4"),
        _ => {}
    }
    MEDIA.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, media)| *media)
}

/// By the first bytes it stands for.
fn media_of_base64(base64: &[u8]) -> Option<&'static str> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let (mut bits, mut count) = (0_u32, 0);
    let mut start = Vec::with_capacity(16);
    for value in base64.iter().take(24).map_while(|byte| value(*byte)) {
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            start.push(u8::try_from((bits >> count) & 0xff).expect("masked to a byte"));
        }
    }
    media_of_bytes(&start)
}

/// By the first characters of what was read as text, where every byte beyond ASCII has become U+FFFD or a Latin letter.
fn media_of_text(text: &str) -> Option<&'static str> {
    let fits = |magic: &[u8]| {
        let mut chars = text.chars();
        magic.iter().all(|byte| match chars.next() {
            Some(char::REPLACEMENT_CHARACTER) => *byte >= 0x80,
            Some(c) => u32::from(c) == u32::from(*byte),
            None => false,
        })
    };
    // A mark without ASCII could be anything once it was read as text.
    let telling = |magic: &[u8]| magic.iter().filter(|byte| byte.is_ascii()).count() >= 3;
    MEDIA.iter().find(|(magic, _)| telling(magic) && fits(magic)).map(|(_, media)| *media)
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
