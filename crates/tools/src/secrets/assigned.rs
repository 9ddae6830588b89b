//! Secrets by what they are called: `NAME=value`, `"name": "value"`, `--name value`, and the passwords of `.netrc` files.
//!
//! A name alone proves nothing: source code is full of `password = read_password()`. What follows must look like a secret.
//! In an environment (`DB_PASSWORD=…`, capital letters and no blanks) little is asked of it; elsewhere it must look random.

use std::ops::Range;

/// Names are no longer.
const NAME_MAX_BYTES: usize = 64;

/// So much of a value is judged; what passes is secret to its end.
const JUDGED_BYTES: usize = 160;

/// Shorter values are left alone.
const LEAST_BYTES: usize = 8;

/// The value beside a secret's name, of which a part stands at `at`.
pub(super) fn find(text: &str, at: Range<usize>) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let before = bytes[..at.start].iter().rev().take(NAME_MAX_BYTES).take_while(|byte| is_name(**byte)).count();
    let after = bytes[at.end..].iter().take(NAME_MAX_BYTES).take_while(|byte| is_name(**byte)).count();
    let (start, end) = (at.start - before, at.end + after);
    let name = text[start..end].trim_matches(['-', '.']);
    let rest = &text[end..];
    let (value, join) = value_after(rest)?;
    match join {
        Join::Sign => {}
        Join::Space if text[start..end].starts_with("--") => {}
        Join::Space => {
            let is_netrc = name.eq_ignore_ascii_case("password") && is_in_netrc(&text[..start]);
            let near = &value[..value.floor_char_boundary(JUDGED_BYTES)];
            let length = near.find(char::is_whitespace).unwrap_or(near.len());
            let from = text.len() - value.len();
            return (is_netrc && length >= 4 && !value.starts_with('[')).then(|| from..from + length);
        }
        Join::Tight => {}
    }
    if !is_secret_name(name) {
        return None;
    }
    let (open, value) = opened(value);
    let start = text.len() - value.len();
    let judged = &value[..value.floor_char_boundary(JUDGED_BYTES)];
    let judged = &judged[..extent(judged, open)];
    let is_env = join == Join::Tight && !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_secret = if is_env { could_be_secret(judged) } else { looks_random(judged) };
    // only what passed is followed to its end
    is_secret.then(|| start..start + if judged.len() < JUDGED_BYTES - 4 { judged.len() } else { extent(value, open) })
}

/// Whether the value of an object's member called `name` is a secret.
pub(super) fn is_secret_member(name: &str, value: &str) -> bool {
    name.len() <= NAME_MAX_BYTES
        && name.bytes().all(is_name)
        && is_secret_name(name)
        && !value.contains(char::is_whitespace)
        && looks_random(&value[..value.floor_char_boundary(JUDGED_BYTES)])
}

/// How a name and its value are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    /// `=` and nothing else.
    Tight,
    /// `:`, `=`, `:=` or `=>`, with blanks and quotes.
    Sign,
    /// A blank.
    Space,
}

fn value_after(rest: &str) -> Option<(&str, Join)> {
    if let Some(value) = rest.strip_prefix('=')
        && !value.starts_with([' ', '=', '~', '>', '\t'])
    {
        return Some((value, Join::Tight));
    }
    let after_quote = rest.strip_prefix("\\\"").or_else(|| rest.strip_prefix(['"', '\''])).unwrap_or(rest);
    let trimmed = blanks(after_quote);
    let value = [":=", "=>", "=", ":"].iter().find_map(|sign| trimmed.strip_prefix(sign));
    match value {
        // a comparison or a path
        Some(value) if value.starts_with(['=', ':', '~']) => None,
        Some(value) => Some((blanks(value), Join::Sign)),
        None if trimmed.len() < rest.len() && after_quote.len() == rest.len() => Some((trimmed, Join::Space)),
        None => None,
    }
}

/// Without a few blanks at the start.
fn blanks(text: &str) -> &str {
    let count = text.bytes().take(16).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[count..]
}

/// The quote a value stands in, which may be escaped or none, and what follows it.
fn opened(value: &str) -> (&'static str, &str) {
    let open = ["\\\"", "\"", "'", "`"].into_iter().find(|open| value.starts_with(open)).unwrap_or("");
    (open, &value[open.len()..])
}

/// How far a value goes.
fn extent(value: &str, open: &str) -> usize {
    let ends: fn(u8) -> bool = match open {
        "" => ends_bare,
        "'" => |byte| byte == b'\'' || byte.is_ascii_whitespace(),
        "`" => |byte| byte == b'`' || byte.is_ascii_whitespace(),
        "\"" => |byte| byte == b'"' || byte.is_ascii_whitespace(),
        _ => |byte| matches!(byte, b'"' | b'\\') || byte.is_ascii_whitespace(),
    };
    value.bytes().position(ends).unwrap_or(value.len())
}

fn ends_bare(byte: u8) -> bool {
    match byte {
        b'"' | b'\'' | b'`' | b',' | b';' | b')' | b']' | b'}' | b'<' | b'>' | b'|' | b'&' | b'\\' => true,
        byte => byte.is_ascii_whitespace(),
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// `machine … login … password …`, on one line or on three.
fn is_in_netrc(before: &str) -> bool {
    let near = &before[before.ceil_char_boundary(before.len().saturating_sub(JUDGED_BYTES))..];
    let mut words = near.split_whitespace().rev();
    // the words next to it: login NAME, and machine HOST before that
    let (_, login, third, fourth) = (words.next(), words.next(), words.next(), words.next());
    login == Some("login") && (third == Some("default") || fourth == Some("machine"))
}

/// A name of something secret: by its last word, whatever its spelling.
fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    if words.iter().any(|word| HARMLESS.contains(&word.as_str())) {
        return false;
    }
    let mut words = words.as_slice();
    while let [rest @ .., last] = words
        && !rest.is_empty()
        && (SUFFIXES.contains(&last.as_str()) || last.bytes().all(|byte| byte.is_ascii_digit()))
    {
        words = rest;
    }
    match words {
        [.., before, last] if last == "key" => KEYS_OF.iter().any(|of| before.ends_with(of)),
        [_, .., last] if last == "pass" || last == "pwd" => true,
        [.., last] => SECRETS.iter().any(|secret| last.ends_with(secret)),
        [] => false,
    }
}

/// A last word that ends so names a secret.
const SECRETS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "secretkey",
    "accesskey",
    "privatekey",
    "accountkey",
    "credential",
    "credentials",
];

/// Keys of these open something.
const KEYS_OF: &[&str] = &[
    "api",
    "access",
    "private",
    "secret",
    "auth",
    "signing",
    "encryption",
    "master",
    "account",
    "storage",
    "deploy",
    "license",
    "webhook",
];

/// What may follow the word that tells.
const SUFFIXES: &[&str] =
    &["old", "new", "prod", "production", "dev", "staging", "base", "value", "raw", "b64", "base64"];

/// Names with one of these words are of no secret: counts, cursors, public halves.
const HARMLESS: &[&str] = &[
    "public",
    "page",
    "next",
    "prev",
    "cursor",
    "continuation",
    "pagination",
    "cancellation",
    "sync",
    "max",
    "min",
    "num",
    "count",
    "idempotency",
    "sort",
    "partition",
    "primary",
    "foreign",
    "eos",
    "bos",
    "pad",
    "special",
    "stop",
    "tokenizer",
];

/// In small letters, parted at signs and where a capital letter follows a small one.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut last = ' ';
    for c in name.chars() {
        let parts = matches!(c, '_' | '-' | '.') || c.is_ascii_uppercase() && last.is_ascii_lowercase();
        if parts && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        last = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// What an environment holds under a secret's name is one, unless it is evidently not a value.
fn could_be_secret(value: &str) -> bool {
    let is_path = value.starts_with(['/', '~', '.']) && !value.contains(['+', '=']) || value.contains("://");
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_'));
    value.len() >= LEAST_BYTES
        && is_literal(value)
        && !is_placeholder(value)
        && !is_path
        && !is_number
        && !is_reference(value)
}

/// Letters and digits in turns, as nobody names a thing: at least ten characters, with three changes between letters and
/// digits or small and capital letters, and not the same few again and again.
pub(super) fn looks_random(value: &str) -> bool {
    // the cheapest first: most values are plain words
    if value.len() < 10 || value.bytes().filter(u8::is_ascii_digit).count() < 2 {
        return false;
    }
    let class = |byte: u8| match byte {
        b'0'..=b'9' => 1,
        b'a'..=b'z' => 2,
        b'A'..=b'Z' => 3,
        _ => 0,
    };
    let classes: Vec<u8> = value.bytes().map(class).filter(|class| *class != 0).collect();
    let changes = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let digits = classes.iter().filter(|class| **class == 1).count();
    let letters = classes.len() - digits;
    let is_jumbled = letters >= 3 && changes >= 3 && changes * 8 >= value.len();
    is_jumbled && bits(value) >= 2.8 && is_literal(value) && !is_placeholder(value)
}

/// Shannon's measure, of one character.
fn bits(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let all = value.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / all)
        .map(|share| -share * share.log2())
        .sum()
}

/// A value as it stands, not something to be worked out.
fn is_literal(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_graphic())
        && !value.contains(['(', ')', '{', '}', '<', '>', '$', '[', ']', '*', '"'])
}

/// `self.token`, `config::TOKEN`, `a.b.c`: a name of where the value is.
fn is_reference(value: &str) -> bool {
    value.contains(['.', ':'])
        && value.split(['.', ':']).all(|part| part.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_'))
}

fn is_placeholder(value: &str) -> bool {
    const WORDS: &[&str] = &[
        "example",
        "placeholder",
        "changeme",
        "change-me",
        "change_me",
        "your-",
        "your_",
        "yourtoken",
        "xxx",
        "redacted",
        "dummy",
        "insert",
        "replace",
        "disabled",
        "required",
        "optional",
        "undefined",
        "none",
        "null",
        "....",
    ];
    let lower = value.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

/// Of `user:password` in a URL: what stands there in every document is no secret.
pub(super) fn is_password(user: &str, password: &str) -> bool {
    const WORDS: &[&str] = &[
        "password", "passwd", "pass", "pwd", "pw", "secret", "user", "username", "test", "token", "postgres", "root",
        "admin", "guest",
    ];
    let lower = password.to_ascii_lowercase();
    password.len() >= 4
        && password != user
        && is_literal(password)
        && !is_placeholder(password)
        && !WORDS.contains(&lower.as_str())
        && !password.starts_with('%')
}
