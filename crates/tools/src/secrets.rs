//! Secret values never reach the journal or the model: known ones by value, others by their shape.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Shorter values occur by chance.
const SECRET_MIN_BYTES: usize = 6;

/// Secret values by name. Printed, it shows names only.
#[derive(Clone, Default)]
pub struct Secrets {
    by_name: BTreeMap<String, String>,
    /// How each may appear in text, longest first, so that none hides a part of another.
    forms: Vec<(String, String)>,
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
            self.forms.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            self.forms.dedup_by(|(a, _), (b, _)| a == b);
        }
        self.by_name.insert(name, value);
    }

    /// The name of a known secret that stands in `value`, in whatever form.
    pub(crate) fn found_in(&self, value: &Value) -> Option<&str> {
        match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => self.named(&number.to_string()),
            Value::String(text) => self.named(text),
            Value::Array(items) => items.iter().find_map(|item| self.found_in(item)),
            Value::Object(members) => {
                members.iter().find_map(|(key, member)| self.named(key).or_else(|| self.found_in(member)))
            }
        }
    }

    fn named(&self, text: &str) -> Option<&str> {
        self.forms.iter().find(|(form, _)| text.contains(form.as_str())).map(|(_, name)| name.as_str())
    }

    /// `text` with `[redacted:…]` in place of secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (form, name) in &self.forms {
            if text.contains(form.as_str()) {
                text = Cow::Owned(text.replace(form.as_str(), &format!("[redacted:{name}]")));
            }
        }
        for shape in SHAPES {
            if let Some(redacted) = shape.redact(&text) {
                text = Cow::Owned(redacted);
            }
        }
        if let Some(redacted) = redact_private_keys(&text) {
            text = Cow::Owned(redacted);
        }
        text
    }

    /// The same for a text whose start was cut off, perhaps in the middle of a private key.
    pub(crate) fn redact_after_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match end_of_cut_key(text) {
            None => self.redact(text),
            Some(end) => Cow::Owned(format!("[redacted:private-key]{}", self.redact(&text[end..]))),
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
                let mut changed = members.values_mut().fold(false, |changed, item| self.redact_value(item) | changed);
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

/// A value as it is, inside a JSON string, and inside base64 wherever it begins there.
fn appearances(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    let escaped = Value::String(value.to_owned()).to_string();
    forms.push(escaped[1..escaped.len() - 1].to_owned());
    for (alphabet, lead) in [(STANDARD, 0), (STANDARD, 1), (STANDARD, 2), (URL_SAFE, 0), (URL_SAFE, 1), (URL_SAFE, 2)] {
        let form = base64_core(value.as_bytes(), lead, alphabet);
        if form.len() >= SECRET_MIN_BYTES {
            forms.push(form);
        }
    }
    forms.sort();
    forms.dedup();
    forms
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

/// A token that is known by how it begins.
struct Shape {
    kind: &'static str,
    prefix: &'static str,
    body: fn(u8) -> bool,
    body_min_bytes: usize,
    /// Whether the prefix itself stays readable.
    prefix_stays: bool,
}

const fn token(kind: &'static str, prefix: &'static str, body_min_bytes: usize) -> Shape {
    Shape { kind, prefix, body: is_word, body_min_bytes, prefix_stays: false }
}

const fn bearer(prefix: &'static str) -> Shape {
    Shape { kind: "bearer", prefix, body: is_bearer, body_min_bytes: 16, prefix_stays: true }
}

/// From the providers' own descriptions of their tokens.
const SHAPES: &[Shape] = &[
    Shape { kind: "aws-key", prefix: "AKIA", body: is_upper, body_min_bytes: 16, prefix_stays: false },
    Shape { kind: "aws-key", prefix: "ASIA", body: is_upper, body_min_bytes: 16, prefix_stays: false },
    token("api-key", "sk-", 20),
    token("github-token", "ghp_", 30),
    token("github-token", "gho_", 30),
    token("github-token", "ghu_", 30),
    token("github-token", "ghs_", 30),
    token("github-token", "ghr_", 30),
    token("github-token", "github_pat_", 30),
    bearer("Bearer "),
    bearer("bearer "),
];

fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_bearer(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'-' | b'=')
}

impl Shape {
    /// None: there is none in `text`.
    fn redact(&self, text: &str) -> Option<String> {
        let bytes = text.as_bytes();
        let mut out = String::new();
        let mut done = 0;
        let mut from = 0;
        while let Some(found) = text[from..].find(self.prefix) {
            let start = from + found;
            let body = start + self.prefix.len();
            let length = bytes[body..].iter().take_while(|byte| (self.body)(**byte)).count();
            let end = body + length;
            let stands_alone = start == 0 || !bytes[start - 1].is_ascii_alphanumeric();
            // long words with hyphens are prose; tokens have digits
            let is_token = length >= self.body_min_bytes && bytes[body..end].iter().any(u8::is_ascii_digit);
            if stands_alone && is_token {
                out.push_str(&text[done..if self.prefix_stays { body } else { start }]);
                out.push_str("[redacted:");
                out.push_str(self.kind);
                out.push(']');
                done = end;
                from = end;
            } else {
                from = body;
            }
        }
        (done > 0).then(|| out + &text[done..])
    }
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const KEY: &str = "PRIVATE KEY-----";

/// No private key is longer as text: one of RSA with 16,384 bits has 12,700 bytes.
const KEY_MAX_BYTES: usize = 16 * 1024;

/// Where a private key ends that began before `text`.
fn end_of_cut_key(text: &str) -> Option<usize> {
    let end = text[..text.floor_char_boundary(KEY_MAX_BYTES)].find(KEY)? + KEY.len();
    // the first line that speaks of a key ends one
    let line = text[..end].rfind('\n').map_or(0, |at| at + 1);
    text[line..end].contains(END).then_some(end)
}

fn redact_private_keys(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut done = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find(BEGIN) {
        let start = from + found;
        from = start + BEGIN.len();
        let Some(label) = text[from..].find("-----") else { break };
        if label > 40 || !text[from..from + label + 5].ends_with(KEY) {
            continue;
        }
        let rest = from + label + 5;
        // a block that was cut off is secret to its end
        let end = text[rest..].find(KEY).map_or(text.len(), |at| rest + at + KEY.len());
        out.push_str(&text[done..start]);
        out.push_str("[redacted:private-key]");
        done = end;
        from = end;
    }
    (done > 0).then(|| out + &text[done..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Secrets {
        let mut secrets = Secrets::new();
        secrets.know("TOKEN", "hunter2-\"quoted\"");
        secrets.know("PIN", "1234");
        secrets.know("NUMBER", "987654321");
        secrets
    }

    #[test]
    fn known_values_in_every_form() {
        let secrets = known();
        assert_eq!(secrets.redact("a hunter2-\"quoted\" b"), "a [redacted:TOKEN] b");
        assert_eq!(secrets.redact(r#"{"t":"hunter2-\"quoted\""}"#), r#"{"t":"[redacted:TOKEN]"}"#);
        // "hunter2-"quoted"", "u:hunter2-"quoted"" and "us:…" in base64
        for text in ["aHVudGVyMi0icXVvdGVkIg==", "dTpodW50ZXIyLSJxdW90ZWQi", "dXM6aHVudGVyMi0icXVvdGVkIg=="] {
            assert!(secrets.redact(text).contains("[redacted:TOKEN]"), "{text}");
        }
        assert_eq!(secrets.redact("pin 1234"), "pin 1234");
        let mut value: Value =
            serde_json::from_str(r#"{"987654321":[987654321,{"a":"h\u0075nter2-\"quoted\""}]}"#).unwrap();
        assert!(secrets.redact_value(&mut value));
        assert_eq!(value.to_string(), r#"{"[redacted:NUMBER]":["[redacted:NUMBER]",{"a":"[redacted:TOKEN]"}]}"#);
    }

    #[test]
    fn shapes() {
        let none = Secrets::new();
        for (text, expected) in [
            ("key AKIAIOSFODNN7EXAMPLE.", "key [redacted:aws-key]."),
            ("sk-proj-abcdefghijklmnop1234567890", "[redacted:api-key]"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789 x", "[redacted:github-token] x"),
            ("Authorization: Bearer abc.def.ghi0123456789", "Authorization: Bearer [redacted:bearer]"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nAAA\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[redacted:private-key]\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----\nAAA", "[redacted:private-key]"),
        ] {
            assert_eq!(none.redact(text), expected);
        }
        for innocent in [
            "task-management-of-2024-and-very-long-names",
            "sk-learn is short",
            "sk-a-hyphenated-name-without-digits",
            "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----",
            "the bearer of this letter",
        ] {
            assert!(matches!(none.redact(innocent), Cow::Borrowed(_)), "{innocent}");
        }
    }
}
