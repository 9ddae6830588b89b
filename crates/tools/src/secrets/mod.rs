//! Secret values never reach the journal or the model: known ones by value, others by their shape.
//!
//! Everything a tool brings goes through [`Secrets::redact`] or [`Secrets::redact_value`] before anything else is done with
//! it. In place of a secret stands `[redacted:NAME]`, or `[redacted:KIND]` for one that nobody named. What a model writes
//! goes through [`Secrets::unsaid`].

mod assigned;
mod said;
mod shapes;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use longrein_core::outcome::{Outcome, ToolError};
use longrein_core::payload::{Content, Payload};
use longrein_ports::Ran;
use serde_json::Value;

use shapes::KEY_MAX_BYTES;

/// Shorter values occur by chance.
const SECRET_MIN_BYTES: usize = 6;

/// Secret values by name. Printed, it shows names only.
#[derive(Clone, Default)]
pub struct Secrets {
    by_name: BTreeMap<String, String>,
    /// How each may appear in text, and its name.
    forms: Vec<(String, String)>,
    /// Finds the forms, the longest where several begin, so that none hides a part of another. None: there are none.
    finder: Option<AhoCorasick>,
}

/// A secret where none may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// By its name.
    Known(&'a str),
    /// By its kind.
    Shaped(&'static str),
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Secrets {
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on this value is kept out of everything that leaves a tool. Values under six bytes are not looked for.
    pub fn know(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        if value.trim().len() >= SECRET_MIN_BYTES {
            for form in appearances(value.trim()) {
                self.forms.push((form, name.clone()));
            }
            self.forms.sort();
            self.forms.dedup_by(|(a, _), (b, _)| a == b);
            let forms = self.forms.iter().map(|(form, _)| form);
            let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms);
            self.finder = Some(finder.expect("the values of an environment make no automaton of two gigabytes"));
        }
        self.by_name.insert(name, value);
    }

    /// What secret stands in `value`: a known one, in whatever form, or one that is told beyond doubt by its shape.
    pub(crate) fn found_in(&self, value: &Value) -> Option<Held<'_>> {
        match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => self.held(&number.to_string()),
            Value::String(text) => self.held(text),
            Value::Array(items) => items.iter().find_map(|item| self.found_in(item)),
            Value::Object(members) => {
                members.iter().find_map(|(key, member)| self.held(key).or_else(|| self.found_in(member)))
            }
        }
    }

    fn held(&self, text: &str) -> Option<Held<'_>> {
        let known = self.finder.as_ref().and_then(|finder| finder.find(text));
        match known {
            Some(form) => Some(Held::Known(&self.forms[form.pattern().as_usize()].1)),
            None => shapes::first_sure(text).map(Held::Shaped),
        }
    }

    /// A text of somebody else's as it may be kept and shown.
    pub fn clean(&self, text: &str) -> String {
        self.redact(text).into_owned()
    }

    /// The same of a JSON value.
    pub fn clean_value(&self, mut value: Value) -> Value {
        self.redact_value(&mut value);
        value
    }

    /// `text` with `[redacted:…]` in place of secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = self.without_known(text);
        let found = shapes::find(&text);
        if found.is_empty() {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for found in found {
            out.push_str(&text[done..found.at.start]);
            out.push_str(&mark(found.kind));
            done = found.at.end;
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    fn without_known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(finder) = self.finder.as_ref().filter(|finder| finder.is_match(text)) else {
            return Cow::Borrowed(text);
        };
        let mut out = String::with_capacity(text.len());
        finder.replace_all_with(text, &mut out, |form, _, out| {
            out.push_str(&mark(&self.forms[form.pattern().as_usize()].1));
            true
        });
        Cow::Owned(out)
    }

    /// The same for a text whose start was cut off, perhaps in the middle of a private key.
    pub(crate) fn redact_after_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match end_of_cut_key(text) {
            None => self.redact(text),
            Some(end) => Cow::Owned(format!("{}{}", mark("private-key"), self.redact(&text[end..]))),
        }
    }

    /// The same for a text of which it is known what stands before it.
    pub(crate) fn redact_after<'a>(&self, before: &str, text: &'a str) -> Cow<'a, str> {
        let is_in_key = before.rfind(BEGIN).is_some_and(|at| {
            let since = &before[at..];
            since.lines().next().is_some_and(|frame| frame.contains(KEY)) && !since.contains(END)
        });
        if !is_in_key {
            return self.redact(text);
        }
        match end_of_cut_key(text) {
            Some(_) => self.redact_after_cut(text),
            // with its frame the rest of it is told from what is not of it
            None => {
                let frame = format!("{BEGIN}{KEY}-----\n");
                let redacted = self.redact(&format!("{frame}{text}")).into_owned();
                Cow::Owned(redacted.strip_prefix(&frame).map(str::to_owned).unwrap_or(redacted))
            }
        }
    }

    /// The same inside a JSON value. True if it changed.
    pub(crate) fn redact_value(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => match self.redact(&number.to_string()) {
                Cow::Borrowed(_) => false,
                Cow::Owned(redacted) => {
                    *value = Value::String(redacted);
                    true
                }
            },
            Value::String(text) => match self.redact(text) {
                Cow::Borrowed(_) => false,
                Cow::Owned(redacted) => {
                    *text = redacted;
                    true
                }
            },
            Value::Array(items) => items.iter_mut().fold(false, |changed, item| self.redact_value(item) | changed),
            Value::Object(members) => {
                let mut changed = members.iter_mut().fold(false, |changed, (name, item)| {
                    // what a text would show beside its name, an object holds apart from it
                    let is_secret = item.as_str().is_some_and(|text| assigned::is_secret_member(name, text));
                    if is_secret {
                        *item = Value::String(mark("password"));
                    }
                    self.redact_value(item) | is_secret | changed
                });
                if members.keys().any(|key| matches!(self.redact(key), Cow::Owned(_))) {
                    *members = std::mem::take(members)
                        .into_iter()
                        .map(|(key, item)| (self.redact(&key).into_owned(), item))
                        .collect();
                    changed = true;
                }
                changed
            }
        }
    }
}

/// How every mark begins.
const MARK: &str = "[redacted:";

/// What stands in place of a secret.
fn mark(name: &str) -> String {
    format!("{MARK}{name}]")
}

/// The marks in a text.
pub(crate) fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(MARK).filter_map(|(start, _)| {
        let name = start + MARK.len();
        let length = text[name..].bytes().take_while(|byte| is_mark_name(*byte)).count();
        (length > 0 && text[name + length..].starts_with(']')).then(|| &text[start..=name + length])
    })
}

fn is_mark_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether something was taken out of what a tool brought: then its source holds secrets. A text that only quotes a mark
/// counts as well; it is not told apart.
pub fn redactions(ran: &Ran) -> bool {
    let holds = |payload: &Payload| marks(payload.as_str()).next().is_some();
    let content = |content: &Content| holds(content.shown());
    let error = |error: &ToolError| {
        let texts = [Some(&error.message), error.hint.as_ref()];
        texts.into_iter().flatten().any(|text| marks(text).next().is_some()) || error.data.as_ref().is_some_and(content)
    };
    let told = match &ran.outcome {
        Outcome::Done(data) => content(data),
        Outcome::Error(told) | Outcome::NotDone(told) | Outcome::Unknown(told) => error(told),
    };
    // a picture holds none
    let in_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| marks(text).next().is_some());
    told || ran.blobs.iter().any(|(_, bytes)| in_text(bytes))
}

/// A line of a value is a secret by itself if it is so long: what prints a key may indent it, or print only some lines.
const LINE_MIN_BYTES: usize = 16;

/// A value as it is, inside a JSON string, inside a URL, and inside base64 wherever it begins there; and its lines.
fn appearances(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), percent_encoded(value)];
    let escaped = Value::String(value.to_owned()).to_string();
    forms.push(escaped[1..escaped.len() - 1].to_owned());
    for (alphabet, lead) in [(STANDARD, 0), (STANDARD, 1), (STANDARD, 2), (URL_SAFE, 0), (URL_SAFE, 1), (URL_SAFE, 2)] {
        let form = base64_core(value.as_bytes(), lead, alphabet);
        if form.len() >= SECRET_MIN_BYTES {
            forms.push(form);
        }
    }
    // the frame of a key is everybody's
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE_MIN_BYTES && !line.starts_with("-----"));
    forms.extend(lines.map(str::to_owned));
    forms.sort();
    forms.dedup();
    forms
}

fn percent_encoded(value: &str) -> String {
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    value.bytes().fold(String::with_capacity(value.len()), |mut out, byte| {
        if stays(byte) {
            out.push(char::from(byte))
        } else {
            out.push_str(&format!("%{byte:02X}"))
        }
        out
    })
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The base64 characters that depend on `bytes` alone when `lead` other bytes precede it and any may follow.
fn base64_core(bytes: &[u8], lead: usize, alphabet: &[u8; 64]) -> String {
    let first = (lead * 8).div_ceil(6);
    let last = (lead + bytes.len()) * 8 / 6;
    (first..last)
        .map(|index| {
            let bit = |at: usize| {
                let byte = at / 8;
                byte.checked_sub(lead).and_then(|byte| bytes.get(byte)).map_or(0, |byte| byte >> (7 - at % 8) & 1)
            };
            let value = (0..6).fold(0_u8, |value, offset| value << 1 | bit(index * 6 + offset));
            char::from(alphabet[usize::from(value)])
        })
        .collect()
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const KEY: &str = "PRIVATE KEY";

/// Where a private key ends that began before `text`.
fn end_of_cut_key(text: &str) -> Option<usize> {
    let near = &text[..text.floor_char_boundary(KEY_MAX_BYTES)];
    // the first line that speaks of a key ends one
    let key = near.find(KEY)?;
    let line = text[..key].rfind('\n').map_or(0, |at| at + 1);
    let end = key + text[key..].find("-----")? + "-----".len();
    let is_end = text[line..key].contains(END) && !text[key..end].contains('\n');
    is_end.then_some(end)
}
