//! The script file: TOML in, entries out. Strict: a key it does not know is an error that names it.

use std::path::PathBuf;
use std::time::Duration;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein_core::payload::Payload;
use serde::Deserialize;

use super::Entry;
use crate::failure::{Refusal, broken};
use crate::openai::decode::{Decoder, End, Reading};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("cannot read the script {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{script} is not a script: {source}")]
    Malformed { script: String, source: toml::de::Error },
    /// A reply whose keys do not go together. Replies are counted from 1.
    #[error("{script}: reply {number} {problem}")]
    Reply { script: String, number: usize, problem: Problem },
}

/// What is wrong with one reply.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("says nothing: give `calls`, `text`, `json`, `finish`, `error`, `cut` or `raw`")]
    Nothing,
    #[error("has `{0}` beside `{1}`: only one of them can be")]
    Both(&'static str, &'static str),
    #[error("has `{key}` with a value that JSON has no word for")]
    NotJson { key: &'static str },
    #[error("has delay = \"{0}\": write a duration such as \"300ms\", \"2s\" or \"1m\"")]
    Delay(String),
}

/// Which calls of a run a part of a script answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// `[[reply]]`: its turns.
    Turns,
    /// `[[judge]]`: those for an opinion of its work.
    Opinions,
}

pub(super) fn read(text: &str, name: &str, part: Part) -> Result<Vec<Entry>, ScriptError> {
    let script: Script = toml::from_str(text.strip_prefix('\u{feff}').unwrap_or(text))
        .map_err(|source| ScriptError::Malformed { script: name.to_owned(), source })?;
    let written = match part {
        Part::Turns => script.reply,
        Part::Opinions => script.judge,
    };
    let entries = written.into_iter().enumerate().map(|(index, written)| {
        written.entry().map_err(|problem| ScriptError::Reply { script: name.to_owned(), number: index + 1, problem })
    });
    entries.collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    reply: Vec<Written>,
    #[serde(default)]
    judge: Vec<Written>,
}

/// A reply as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    when: OneOrMore,
    delay: Option<String>,
    calls: Option<Vec<Call>>,
    text: Option<String>,
    json: Option<toml::Table>,
    finish: Option<String>,
    usage: Option<Used>,
    error: Option<Error>,
    #[serde(default)]
    cut: bool,
    raw: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(untagged, expecting = "`when` is a text or a list of texts")]
enum OneOrMore {
    #[default]
    None,
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    args: Arguments,
    #[serde(default)]
    id: String,
}

/// A table, or a text that is handed on as it is, perhaps no JSON at all.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`args` is a table, or a text for arguments exactly as written")]
enum Arguments {
    Table(toml::Table),
    Raw(String),
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Table(toml::Table::new())
    }
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(deny_unknown_fields, default)]
struct Used {
    input: u64,
    output: u64,
    cached: u64,
    cache_write: u64,
    reasoning: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Error {
    /// Absent: the server was not reached.
    status: Option<u16>,
    #[serde(default)]
    body: String,
    /// Seconds.
    retry_after: Option<u64>,
}

impl Written {
    fn entry(self) -> Result<Entry, Problem> {
        self.check_alone()?;
        let when = match self.when {
            OneOrMore::None => Vec::new(),
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        };
        let delay = match self.delay {
            None => Duration::ZERO,
            Some(text) => duration(&text).ok_or(Problem::Delay(text))?,
        };
        let outcome = if let Some(error) = self.error {
            Err(error.failure())
        } else if let Some(raw) = self.raw {
            from_the_wire(&raw)
        } else {
            let cut = self.cut;
            let reported = self.usage.is_some();
            let reply = Reply {
                text: answer(self.text, self.json)?,
                calls: calls(self.calls.unwrap_or_default())?,
                finish: Finish::Stop,
                usage: Some(self.usage.unwrap_or_default().into()),
                repaired: None,
                wired: None,
            };
            if cut { Err(cut_off(reply, reported)) } else { Ok(finished(reply, self.finish)) }
        };
        Ok(Entry { when, delay, outcome })
    }

    /// Refuses keys that cannot both be meant.
    fn check_alone(&self) -> Result<(), Problem> {
        let body = [
            ("text", self.text.is_some()),
            ("json", self.json.is_some()),
            ("calls", self.calls.is_some()),
            ("finish", self.finish.is_some()),
            ("usage", self.usage.is_some()),
        ];
        let kinds = [("error", self.error.is_some()), ("raw", self.raw.is_some()), ("cut", self.cut)];
        let mut given = kinds.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        match (given.next(), given.next()) {
            (Some(one), Some(other)) => return Err(Problem::Both(one, other)),
            (Some("cut"), None) if self.finish.is_some() => return Err(Problem::Both("cut", "finish")),
            (Some("cut"), None) => {}
            (Some(kind), None) => {
                if let Some((key, _)) = body.iter().find(|(_, given)| *given) {
                    return Err(Problem::Both(kind, key));
                }
            }
            (None, _) => {
                if !body[..4].iter().any(|(_, given)| *given) {
                    return Err(Problem::Nothing);
                }
            }
        }
        if self.text.is_some() && self.json.is_some() {
            return Err(Problem::Both("text", "json"));
        }
        Ok(())
    }
}

impl Error {
    fn failure(self) -> ModelFailure {
        let Some(status) = self.status else {
            let text = if self.body.is_empty() { "the server was not reached" } else { &self.body };
            let mut failure =
                broken(ModelErrorClass::Transient, Billing::Nothing, format!("connection failed: {text}"));
            failure.retry_after_s = self.retry_after;
            return failure;
        };
        Refusal { status: Some(status), body: &self.body, retry_after_s: self.retry_after }.into_failure()
    }
}

impl From<Used> for Usage {
    fn from(used: Used) -> Self {
        Usage {
            input: used.input,
            cached: used.cached,
            cache_write: used.cache_write,
            output: used.output,
            reasoning: used.reasoning,
        }
    }
}

fn answer(text: Option<String>, json: Option<toml::Table>) -> Result<String, Problem> {
    match json {
        Some(table) => json_text(table, "json"),
        None => Ok(text.unwrap_or_default()),
    }
}

fn calls(written: Vec<Call>) -> Result<Vec<RawCall>, Problem> {
    written
        .into_iter()
        .map(|call| {
            let arguments = match call.args {
                Arguments::Raw(text) => text,
                Arguments::Table(table) => json_text(table, "args")?,
            };
            Ok(RawCall { id: call.id, name: call.name, arguments })
        })
        .collect()
}

fn finished(mut reply: Reply, finish: Option<String>) -> Reply {
    reply.finish = match finish.as_deref() {
        None if reply.calls.is_empty() => Finish::Stop,
        None => Finish::ToolCalls,
        Some("stop") => Finish::Stop,
        Some("tool_calls") => Finish::ToolCalls,
        Some("length") => Finish::Length,
        Some("content_filter" | "refused") => Finish::Refused,
        Some(other) => Finish::Other(other.to_owned()),
    };
    reply
}

/// The stream of this reply breaks off before it said why it stops.
fn cut_off(reply: Reply, reported: bool) -> ModelFailure {
    let mut failure =
        broken(ModelErrorClass::Transient, Billing::Perhaps, "the stream broke off before the reply was complete");
    failure.usage = reply.usage.filter(|_| reported);
    failure.partial = partial(&reply.text, &reply.calls);
    failure
}

fn partial(text: &str, calls: &[RawCall]) -> Option<Payload> {
    let partial = serde_json::json!({ "text": text, "calls": calls });
    Some(Payload::of(&partial).expect("a JSON value always serialises"))
}

/// What a server would have sent, byte for byte, on a connection that then closed.
fn from_the_wire(raw: &str) -> Result<Reply, ModelFailure> {
    let mut decoder = Decoder::default();
    decoder.feed(raw.as_bytes());
    decoder.end(End::Closed)
}

fn json_text(table: toml::Table, key: &'static str) -> Result<String, Problem> {
    let value = json_value(toml::Value::Table(table)).ok_or(Problem::NotJson { key })?;
    Ok(value.to_string())
}

/// Dates become texts; infinity and "not a number" have no JSON form.
fn json_value(value: toml::Value) -> Option<serde_json::Value> {
    Some(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)?.into(),
        toml::Value::Boolean(truth) => truth.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(json_value).collect::<Option<Vec<_>>>()?.into(),
        toml::Value::Table(table) => serde_json::Value::Object(
            table.into_iter().map(|(key, value)| Some((key, json_value(value)?))).collect::<Option<_>>()?,
        ),
    })
}

/// `300ms`, `2s`, `1m`, `1h`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit].parse().ok()?;
    match &text[unit..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}
