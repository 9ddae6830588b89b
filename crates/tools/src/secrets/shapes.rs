//! Secrets that nobody named, told by their shape: tokens by how they begin, keys by their frame, passwords by where they
//! stand.
//!
//! One pass over a text finds every place where a secret may begin (an anchor); what stands there is then looked at within
//! bounds, so that the whole is linear in the text whatever it holds. A shape that is also that of ordinary text is none:
//! a name, a path or a word in place of a password is left alone.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::assigned;

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) at: Range<usize>,
    pub(super) kind: &'static str,
    pub(super) certainty: Certainty,
}

/// Whether it could be something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Nothing else looks so.
    Sure,
    /// It stands where secrets stand, and looks like one.
    Likely,
}

/// No private key is longer as text: one of RSA with 16,384 bits has 12,700 bytes.
pub(super) const KEY_MAX_BYTES: usize = 16 * 1024;

/// A token by how it begins.
struct Token {
    kind: &'static str,
    prefix: &'static str,
    body: Body,
    /// How long what follows the prefix is.
    bytes: Bytes,
    edge: Edge,
}

/// What a token goes on with.
#[derive(Debug, Clone, Copy)]
enum Body {
    /// Letters, digits, `_` and `-`: what most are made of, so that stretches of it are measured once.
    Word,
    Of(fn(u8) -> bool),
}

#[derive(Debug, Clone, Copy)]
enum Bytes {
    Least(usize),
    Exactly(usize),
}

/// Whether a prefix is so short that it must begin a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Word,
    Any,
}

const fn token(kind: &'static str, prefix: &'static str, least: usize) -> Token {
    Token { kind, prefix, body: Body::Word, bytes: Bytes::Least(least), edge: Edge::Any }
}

const fn short(kind: &'static str, prefix: &'static str, least: usize) -> Token {
    Token { kind, prefix, body: Body::Word, bytes: Bytes::Least(least), edge: Edge::Word }
}

const fn exact(kind: &'static str, prefix: &'static str, body: fn(u8) -> bool, bytes: usize) -> Token {
    Token { kind, prefix, body: Body::Of(body), bytes: Bytes::Exactly(bytes), edge: Edge::Word }
}

/// From the providers' own descriptions of their tokens.
const TOKENS: &[Token] = &[
    exact("aws-key", "AKIA", is_upper, 16),
    exact("aws-key", "ASIA", is_upper, 16),
    exact("aws-key", "ABIA", is_upper, 16),
    exact("aws-key", "ACCA", is_upper, 16),
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others
    short("api-key", "sk-", 20),
    token("github-token", "ghp_", 30),
    token("github-token", "gho_", 30),
    token("github-token", "ghu_", 30),
    token("github-token", "ghs_", 30),
    token("github-token", "ghr_", 30),
    token("github-token", "github_pat_", 30),
    token("gitlab-token", "glpat-", 20),
    token("gitlab-token", "gldt-", 20),
    token("gitlab-token", "glrt-", 20),
    token("gitlab-token", "glptt-", 20),
    token("gitlab-token", "gloas-", 20),
    token("gitlab-token", "glcbt-", 20),
    token("slack-token", "xoxb-", 16),
    token("slack-token", "xoxp-", 16),
    token("slack-token", "xoxa-", 16),
    token("slack-token", "xoxr-", 16),
    token("slack-token", "xoxs-", 16),
    token("slack-token", "xoxc-", 16),
    token("slack-token", "xoxd-", 16),
    token("slack-token", "xoxe-", 16),
    token("slack-token", "xapp-", 16),
    Token {
        kind: "slack-webhook",
        prefix: "hooks.slack.com/services/",
        body: Body::Of(is_path),
        bytes: Bytes::Least(30),
        edge: Edge::Any,
    },
    token("stripe-key", "sk_live_", 16),
    token("stripe-key", "rk_live_", 16),
    token("stripe-key", "sk_test_", 16),
    token("stripe-key", "rk_test_", 16),
    token("stripe-key", "whsec_", 24),
    exact("google-key", "AIza", is_word, 35),
    Token {
        kind: "google-token",
        prefix: "ya29.",
        body: Body::Of(is_bearer),
        bytes: Bytes::Least(30),
        edge: Edge::Word,
    },
    token("google-secret", "GOCSPX-", 20),
    short("huggingface-token", "hf_", 30),
    Token { kind: "npm-token", prefix: "npm_", body: Body::Of(is_alnum), bytes: Bytes::Least(36), edge: Edge::Any },
    token("pypi-token", "pypi-AgE", 50),
    token("digitalocean-token", "dop_v1_", 60),
    token("digitalocean-token", "doo_v1_", 60),
    token("digitalocean-token", "dor_v1_", 60),
    exact("shopify-token", "shpat_", is_hex, 32),
    exact("shopify-token", "shpca_", is_hex, 32),
    exact("shopify-token", "shppa_", is_hex, 32),
    exact("shopify-token", "shpss_", is_hex, 32),
    Token { kind: "sendgrid-key", prefix: "SG.", body: Body::Of(is_dotted), bytes: Bytes::Least(60), edge: Edge::Word },
    exact("databricks-token", "dapi", is_hex, 32),
    short("vault-token", "hvs.", 24),
    short("vault-token", "hvb.", 24),
    token("docker-token", "dckr_pat_", 20),
    token("linear-key", "lin_api_", 30),
    Token {
        kind: "age-key",
        prefix: "AGE-SECRET-KEY-1",
        body: Body::Of(is_upper),
        bytes: Bytes::Least(50),
        edge: Edge::Any,
    },
    Token {
        kind: "atlassian-token",
        prefix: "ATATT3",
        body: Body::Of(is_bearer),
        bytes: Bytes::Least(50),
        edge: Edge::Word,
    },
    token("figma-token", "figd_", 30),
    short("api-key", "gsk_", 40),
    short("api-key", "xai-", 40),
    short("api-key", "pplx-", 40),
    short("api-key", "r8_", 30),
    token("grafana-token", "glsa_", 30),
    token("grafana-token", "glc_", 40),
    short("newrelic-key", "NRAK-", 24),
    token("postman-key", "PMAK-", 40),
    token("square-token", "sq0atp-", 22),
    token("square-token", "sq0csp-", 40),
    token("tailscale-key", "tskey-", 20),
    token("rubygems-key", "rubygems_", 40),
    Token {
        kind: "doppler-token",
        prefix: "dp.pt.",
        body: Body::Of(is_alnum),
        bytes: Bytes::Least(36),
        edge: Edge::Word,
    },
];

/// What begins something that is looked at more closely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Token(usize),
    Frame,
    Putty,
    WebToken,
    Bearer,
    Basic,
    Authorization,
    UserInfo,
    Signature,
    Telegram,
    Name,
}

/// In any spelling of small and capital letters; what must be spelled exactly is compared again.
const ANCHORS: &[(&str, Anchor)] = &[
    ("-----BEGIN ", Anchor::Frame),
    ("Private-Lines: ", Anchor::Putty),
    ("eyJ", Anchor::WebToken),
    ("bearer ", Anchor::Bearer),
    ("basic ", Anchor::Basic),
    ("authorization", Anchor::Authorization),
    ("://", Anchor::UserInfo),
    ("sig=", Anchor::Signature),
    ("signature=", Anchor::Signature),
    (":AA", Anchor::Telegram),
    ("secret", Anchor::Name),
    ("token", Anchor::Name),
    ("pass", Anchor::Name),
    ("pwd", Anchor::Name),
    ("key", Anchor::Name),
    ("credential", Anchor::Name),
];

struct Anchors {
    finder: AhoCorasick,
    of: Vec<Anchor>,
}

fn anchors() -> &'static Anchors {
    static ANCHORS_READY: OnceLock<Anchors> = OnceLock::new();
    ANCHORS_READY.get_or_init(|| {
        let tokens = TOKENS.iter().enumerate().map(|(at, token)| (token.prefix, Anchor::Token(at)));
        let (words, of): (Vec<_>, Vec<_>) = tokens.chain(ANCHORS.iter().copied()).unzip();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .build(words)
            .expect("some hundred short words make a small automaton");
        Anchors { finder, of }
    })
}

/// Every secret in a text, in order, none within another.
pub(super) fn find(text: &str) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    each(text, |more| {
        // A later anchor may find what begins earlier, and two may find parts of one secret: a key in an assignment.
        let mut more = more;
        while let Some(last) = found.pop_if(|last| last.at.end > more.at.start) {
            let is_better = last.certainty == Certainty::Sure || more.certainty == Certainty::Likely;
            let at = last.at.start.min(more.at.start)..last.at.end.max(more.at.end);
            more = if is_better { Found { at, ..last } } else { Found { at, ..more } };
        }
        found.push(more);
        Going::On
    });
    found
}

/// The kind of a secret of which there is no doubt; what stands in everybody's documents as an example is none.
pub(super) fn first_sure(text: &str) -> Option<&'static str> {
    let mut kind = None;
    each(text, |found| {
        let is_example = text[found.at].to_ascii_lowercase().contains("example");
        if found.certainty == Certainty::Likely || is_example {
            return Going::On;
        }
        kind = Some(found.kind);
        Going::Enough
    });
    kind
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    On,
    Enough,
}

/// Looks at every anchor.
fn each(text: &str, mut tell: impl FnMut(Found) -> Going) {
    let Anchors { finder, of } = anchors();
    let mut reader = Reader { text, bytes: text.as_bytes(), run: Run::default(), frame_end: None };
    // within a value that is secret no further name is looked for: it could be as long as the text
    let mut named_until = 0;
    for anchor in finder.find_overlapping_iter(text) {
        let at = anchor.start()..anchor.end();
        let found = match of[anchor.pattern().as_usize()] {
            Anchor::Token(token) => reader.token(&TOKENS[token], at),
            Anchor::Frame => reader.frame(at),
            Anchor::Putty => reader.putty(at),
            Anchor::WebToken => reader.web_token(at),
            Anchor::Bearer => reader.bearer(at),
            Anchor::Basic => reader.basic(at),
            Anchor::Authorization => reader.authorization(at),
            Anchor::UserInfo => reader.user_info(at),
            Anchor::Signature => reader.signature(at),
            Anchor::Telegram => reader.telegram(at),
            Anchor::Name if at.start < named_until => None,
            Anchor::Name => assigned::find(text, at).map(|at| {
                named_until = at.end;
                likely("password", at)
            }),
        };
        if found.is_some_and(|found| tell(found) == Going::Enough) {
            return;
        }
    }
}

fn sure(kind: &'static str, at: Range<usize>) -> Found {
    Found { at, kind, certainty: Certainty::Sure }
}

fn likely(kind: &'static str, at: Range<usize>) -> Found {
    Found { at, kind, certainty: Certainty::Likely }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    run: Run,
    /// The next end of a frame at or after some place; the place it was looked for from.
    frame_end: Option<(usize, Option<usize>)>,
}

/// A stretch of word characters that was measured, so that none is measured twice.
#[derive(Debug, Default)]
struct Run {
    at: Range<usize>,
    last_digit: Option<usize>,
}

/// So many characters tell whether a word is jumbled.
const JUMBLED_BYTES: usize = 32;

/// Contexts are looked at within so many bytes.
const NEAR_BYTES: usize = 256;

impl Reader<'_> {
    fn token(&mut self, token: &Token, at: Range<usize>) -> Option<Found> {
        if &self.bytes[at.clone()] != token.prefix.as_bytes() {
            return None;
        }
        if token.edge == Edge::Word && !self.begins_word(at.start) {
            return None;
        }
        let (length, has_digit) = match token.body {
            Body::Word => {
                let run = self.run_at(at.end);
                (run.at.end - at.end, run.last_digit.is_some_and(|digit| digit >= at.end))
            }
            Body::Of(is_part) => {
                let body = self.bytes[at.end..].iter().take(TOKEN_MAX_BYTES).take_while(|byte| is_part(**byte));
                // the end of a sentence is none of a token
                let length = self.text[at.end..at.end + body.count()].trim_end_matches('.').len();
                (length, self.bytes[at.end..at.end + length].iter().any(u8::is_ascii_digit))
            }
        };
        let fits = match token.bytes {
            Bytes::Least(least) => length >= least,
            Bytes::Exactly(bytes) => length == bytes,
        };
        let body = at.end..at.end + length;
        // long words with hyphens are prose; tokens have digits, nearly all of them
        let is_token = fits && (has_digit || matches!(token.bytes, Bytes::Exactly(_)) || self.is_jumbled(body.clone()));
        is_token.then(|| sure(token.kind, at.start..body.end))
    }

    /// Small and capital letters, and nothing to part words.
    fn is_jumbled(&self, at: Range<usize>) -> bool {
        let start = &self.bytes[at.start..at.end.min(at.start + JUMBLED_BYTES)];
        let has = |is: fn(&u8) -> bool| start.iter().any(is);
        has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && start.iter().all(u8::is_ascii_alphanumeric)
    }

    fn run_at(&mut self, at: usize) -> &Run {
        if at >= self.run.at.end || at < self.run.at.start {
            let length = self.bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
            let last_digit = self.bytes[at..at + length].iter().rposition(u8::is_ascii_digit).map(|digit| at + digit);
            self.run = Run { at: at..at + length, last_digit };
        }
        &self.run
    }

    /// Whether a word can begin here: after what is no letter or digit, and after an escape that ends in one.
    fn begins_word(&self, at: usize) -> bool {
        match &self.bytes[at.saturating_sub(8)..at] {
            [] => true,
            [.., last] if !last.is_ascii_alphanumeric() => true,
            [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
            [.., b'%', a, b] => a.is_ascii_hexdigit() && b.is_ascii_hexdigit(),
            [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()),
            // the end of a colour
            before @ [.., b'm'] => {
                let rest = before[..before.len() - 1].trim_ascii_end();
                let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
                rest[..rest.len() - digits].ends_with(b"\x1b[")
            }
            _ => false,
        }
    }

    /// A private key in its frame; one that was cut off is secret as far as it goes.
    fn frame(&mut self, at: Range<usize>) -> Option<Found> {
        let label_end = at.end + self.bytes[at.end..].iter().take(LABEL_MAX_BYTES).position(|byte| *byte == b'-')?;
        let label = &self.text[at.end..label_end];
        let rest = self.text[label_end..].strip_prefix("-----")?;
        if !(label.ends_with("PRIVATE KEY") || label.ends_with("PRIVATE KEY BLOCK")) {
            return None;
        }
        let body = self.text.len() - rest.len();
        let end = self.frame_end_after(body).filter(|end| end - body <= KEY_MAX_BYTES);
        let body_end = match end {
            Some(end) => {
                let last = self.text[..end].rfind(FRAME_END).unwrap_or(end);
                if self.text[body..last].contains("-----BEGIN ") { None } else { Some((last, end)) }
            }
            None => None,
        };
        match body_end {
            Some((last, end)) if holds_key(&self.text[body..last]) => Some(sure("private-key", at.start..end)),
            // both frames and no key between them: somebody writes about keys
            Some(_) => None,
            None => {
                let length = key_lines(rest);
                let is_cut = rest.trim().is_empty() && !rest.is_empty();
                (length > 0 || is_cut).then(|| sure("private-key", at.start..body + length))
            }
        }
    }

    /// Where the next `-----END …-----` ends.
    fn frame_end_after(&mut self, at: usize) -> Option<usize> {
        match self.frame_end {
            Some((from, end)) if from <= at && end.is_none_or(|end| end > at) => end,
            Some(_) | None => {
                let end = self.text[at..].find(FRAME_END).and_then(|found| {
                    let label = at + found + FRAME_END.len();
                    let near = &self.text[label..self.text.floor_char_boundary(label + LABEL_MAX_BYTES + 5)];
                    Some(label + near.find("-----")? + 5)
                });
                self.frame_end = Some((at, end));
                end
            }
        }
    }

    /// PuTTY's own format: a count of lines, and the lines.
    fn putty(&self, at: Range<usize>) -> Option<Found> {
        let rest = &self.text[at.end..];
        let (count, lines) = rest[..rest.floor_char_boundary(KEY_MAX_BYTES)].split_once('\n')?;
        let count: usize = count.trim().parse().ok()?;
        let length: usize =
            lines.split_inclusive('\n').take(count).take_while(|line| is_key_line(line)).map(str::len).sum();
        let start = at.end + rest.find('\n')? + 1;
        (length > 0).then(|| sure("private-key", start..start + length))
    }

    /// A JSON web token: what its first part says can be read.
    fn web_token(&self, at: Range<usize>) -> Option<Found> {
        if !self.text[at.clone()].starts_with("eyJ") || !self.begins_word(at.start) {
            return None;
        }
        if at.start > 0 && is_word(self.bytes[at.start - 1]) && !self.bytes[at.start - 1].is_ascii_alphanumeric() {
            return None;
        }
        let part = |from: usize| from + self.bytes[from..].iter().take_while(|byte| is_word(**byte)).count();
        let header =
            at.start + self.bytes[at.start..].iter().take(HEADER_MAX_BYTES).take_while(|byte| is_word(**byte)).count();
        if self.bytes.get(header) != Some(&b'.') || header - at.start < 10 {
            return None;
        }
        let says = base64(&self.bytes[at.start..header])?;
        if !says.windows(5).any(|window| window == b"\"alg\"") {
            return None;
        }
        let payload = part(header + 1);
        if payload - header < 8 || self.bytes.get(payload) != Some(&b'.') {
            return None;
        }
        // signed in three parts, encrypted in five
        let mut end = part(payload + 1);
        for _ in 0..2 {
            if self.bytes.get(end) == Some(&b'.') && self.bytes.get(end + 1).is_some_and(|byte| is_word(*byte)) {
                end = part(end + 1);
            }
        }
        Some(likely("web-token", at.start..end))
    }

    fn bearer(&self, at: Range<usize>) -> Option<Found> {
        let length = self.bytes[at.end..].iter().take_while(|byte| is_bearer(**byte)).count();
        let length = self.text[at.end..at.end + length].trim_end_matches('.').len();
        let is_token = length >= 16 && self.bytes[at.end..at.end + length].iter().any(u8::is_ascii_digit);
        (self.begins_word(at.start) && is_token).then(|| likely("bearer", at.end..at.end + length))
    }

    fn basic(&self, at: Range<usize>) -> Option<Found> {
        let length = self.bytes[at.end..].iter().take(NEAR_BYTES * 2).take_while(|byte| is_base64(**byte)).count();
        let pair = base64(&self.bytes[at.end..at.end + length])?;
        let is_pair =
            length >= 8 && pair.contains(&b':') && pair.iter().all(|byte| matches!(byte, b' '..=b'~' | 0x80..));
        (self.begins_word(at.start) && is_pair).then(|| likely("basic", at.end..at.end + length))
    }

    /// The header with whatever scheme.
    fn authorization(&self, at: Range<usize>) -> Option<Found> {
        let rest = &self.text[at.end..self.text.floor_char_boundary(at.end + NEAR_BYTES * 4)];
        let value = rest.trim_start_matches(['"', '\'', '\\', ' ']).strip_prefix([':', '='])?;
        let value = value.trim_start_matches([' ', '"', '\'', '\\']);
        let word = |text: &str| {
            text.find(|c: char| !c.is_ascii_graphic() || "\"'\\`,;<>{}$()".contains(c)).unwrap_or(text.len())
        };
        let first = word(value);
        let after = &value[first..];
        let value = match after.strip_prefix(' ') {
            Some(after) if value[..first].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => after,
            Some(_) | None => value,
        };
        let length = word(value);
        let text = &value[..length];
        let looks = text.bytes().any(|byte| byte.is_ascii_digit()) || text.ends_with('=');
        let start = at.end + rest.len() - value.len();
        (length >= 8 && looks && !text.starts_with('[')).then(|| likely("authorization", start..start + length))
    }

    /// `scheme://user:password@host`; a long user alone is a token.
    fn user_info(&self, at: Range<usize>) -> Option<Found> {
        let rest = &self.text[at.end..self.text.floor_char_boundary(at.end + NEAR_BYTES)];
        let is_scheme = at.start > 0 && self.bytes[at.start - 1].is_ascii_alphanumeric();
        let end =
            rest.find(|c: char| !c.is_ascii_graphic() || "/\\?#\"'`<>{}()[],|^".contains(c)).unwrap_or(rest.len());
        let (info, _) = rest[..end].rsplit_once('@').filter(|_| is_scheme)?;
        let start = at.end;
        match info.split_once(':') {
            Some((user, password)) => {
                let from = start + user.len() + 1;
                assigned::is_password(user, password).then(|| likely("password", from..from + password.len()))
            }
            None => assigned::looks_random(info).then(|| likely("password", start..start + info.len())),
        }
    }

    /// The signature of a signed URL opens what it points to.
    fn signature(&self, at: Range<usize>) -> Option<Found> {
        let begins = match self.bytes[..at.start].last()? {
            b'?' | b'&' | b';' => true,
            // X-Amz-Signature and the like
            b'-' => self.bytes[at.clone()].len() > 4,
            _ => false,
        };
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'+' | b'/' | b'=' | b'_' | b'-');
        let length = self.bytes[at.end..].iter().take(TOKEN_MAX_BYTES).take_while(|byte| is_part(byte)).count();
        let has_digit = self.bytes[at.end..at.end + length].iter().any(u8::is_ascii_digit);
        (begins && length >= 20 && has_digit).then(|| likely("signature", at.end..at.end + length))
    }

    /// `8 to 10 digits:AA…` of 35 characters.
    fn telegram(&self, at: Range<usize>) -> Option<Found> {
        if !self.text[at.clone()].ends_with("AA") {
            return None;
        }
        let digits = self.bytes[..at.start].iter().rev().take(11).take_while(|byte| byte.is_ascii_digit()).count();
        let body = at.start + 1;
        let length = self.bytes[body..].iter().take(64).take_while(|byte| is_word(**byte)).count();
        let start = at.start - digits;
        let fits = (8..=10).contains(&digits) && length == 35 && self.begins_word(start);
        fits.then(|| sure("telegram-token", start..body + length))
    }
}

const FRAME_END: &str = "-----END ";

const LABEL_MAX_BYTES: usize = 40;

/// The first part of a web token is rarely over a few hundred bytes.
const HEADER_MAX_BYTES: usize = 8 * 1024;

/// No token of a fixed alphabet is longer.
const TOKEN_MAX_BYTES: usize = 1024;

/// Whether the inside of a frame is a key: nothing but its lines, or among other things more base64 than a word has.
fn holds_key(inside: &str) -> bool {
    if inside.trim().is_empty() {
        return false;
    }
    if key_lines(inside) == inside.len() {
        return true;
    }
    let mut run = 0;
    inside.bytes().any(|byte| {
        run = if is_base64(byte) { run + 1 } else { 0 };
        run >= RUN_MIN_BYTES
    })
}

/// No word is so long.
const RUN_MIN_BYTES: usize = 40;

fn is_blank(line: &str) -> bool {
    let line = line.strip_suffix("\\n").unwrap_or(line).trim();
    line.is_empty() || line == "\\r"
}

/// How much of a text, from its start, is lines of a key. Line ends may be escaped; the first line is that of the frame.
fn key_lines(text: &str) -> usize {
    let mut length = 0;
    let mut is_first = true;
    for line in lines(&text[..text.floor_char_boundary(KEY_MAX_BYTES)]) {
        // what goes on behind a frame is prose, if it is no long piece of a key
        if std::mem::take(&mut is_first) && !is_blank(line) {
            let blank = line.len() - line.trim_start().len();
            let part = line[blank..].bytes().take_while(|byte| is_base64(*byte)).count();
            return if part >= RUN_MIN_BYTES { blank + part } else { 0 };
        }
        if is_key_line(line) {
            length += line.len();
            continue;
        }
        // of the line where it ends, what is still of it
        let part = line.bytes().take_while(|byte| is_base64(*byte)).count();
        if part >= 16 {
            length += part;
        }
        break;
    }
    // an empty line or two are no part of a key
    if text[..length].trim().is_empty() { 0 } else { length }
}

/// Lines with their ends, which may be written as `\n`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let real = rest.find('\n').map(|at| at + 1);
        let escaped = rest[..real.unwrap_or(rest.len())].find("\\n").map(|at| at + 2);
        let end = escaped.or(real).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

fn is_key_line(line: &str) -> bool {
    let line = line.strip_suffix("\\n").unwrap_or(line).trim();
    let line = line.strip_suffix("\\r").unwrap_or(line);
    let is_header = ["Proc-Type:", "DEK-Info:", "Comment:", "Version:", "Hash:", "Charset:"]
        .iter()
        .any(|name| line.starts_with(name));
    is_header || line.bytes().all(is_base64)
}

/// Without regard to padding; either alphabet.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn is_alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_dotted(byte: u8) -> bool {
    is_word(byte) || byte == b'.'
}

fn is_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'/'
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn is_bearer(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'-' | b'=')
}
