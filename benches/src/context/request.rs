//! A request as it was received, cut into segments: the tools, then each message, in the order sent. A segment that was seen
//! before is neither counted nor searched again, so that a long run costs what is new in it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Context;
use longrein_core::context::estimate::Features;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tiktoken::CoreBpe;

use super::plan::{CODE_BYTES, CODE_MARK, Watched};

/// A request of the client.
pub(crate) struct Request {
    pub(crate) model: String,
    /// Output tokens it asks for.
    pub(crate) reserved: u64,
    /// Names of the tools offered.
    pub(crate) tools: Vec<String>,
    /// What is cached: tools, then messages.
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Request {
    pub(crate) fn tokens(&self) -> u64 {
        AROUND_ALL + self.segments.iter().map(|segment| segment.tokens).sum::<u64>()
    }
}

/// Tools, or one message.
pub(crate) struct Segment {
    /// As sent.
    pub(crate) raw: Box<str>,
    pub(crate) tokens: u64,
    /// What an estimator knows of it.
    pub(crate) features: Features,
    pub(crate) role: Role,
    /// Ids of the calls of an assistant message.
    pub(crate) calls: Vec<String>,
    /// The call a tool message answers.
    pub(crate) answers: Option<String>,
    /// What of the watched texts is in it.
    pub(crate) watched: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Tools,
    System,
    User,
    Assistant,
    Tool,
}

/// Reads requests, and remembers the segments of the latest ones.
pub(crate) struct Reader {
    tokenizer: &'static CoreBpe,
    codes: HashMap<String, Vec<(usize, Watched)>>,
    known: HashMap<u64, Arc<Segment>>,
    hashes: RandomState,
}

impl Reader {
    pub(crate) fn new(tokenizer: &'static CoreBpe, watched: &[Watched]) -> Self {
        let mut codes: HashMap<String, Vec<(usize, Watched)>> = HashMap::new();
        for (index, watched) in watched.iter().enumerate() {
            let code = watched.text[watched.at..watched.at + CODE_BYTES].to_owned();
            let copy = Watched { text: watched.text.clone(), at: watched.at, query: String::new() };
            codes.entry(code).or_default().push((index, copy));
        }
        Self { tokenizer, codes, known: HashMap::new(), hashes: RandomState::new() }
    }

    pub(crate) fn count(&self, text: &str) -> u64 {
        self.tokenizer.count(text) as u64
    }

    pub(crate) fn read(&mut self, body: &[u8]) -> anyhow::Result<Request> {
        let body: Body<'_> = serde_json::from_slice(body).context("a request that is no Chat Completions request")?;
        let mut segments = Vec::with_capacity(body.messages.len() + 1);
        let mut tools = Vec::new();
        if let Some(raw) = body.tools {
            let offered: Vec<Tool> = serde_json::from_str(raw.get()).context("the tools of a request")?;
            tools = offered.into_iter().map(|tool| tool.function.name).collect();
            segments.push(self.segment(raw.get(), true)?);
        }
        for raw in body.messages {
            segments.push(self.segment(raw.get(), false)?);
        }
        // What no request of late has is forgotten.
        if self.known.len() > 4 * segments.len() + 1_000 {
            self.known.retain(|_, segment| Arc::strong_count(segment) > 1);
        }
        let reserved = body.max_completion_tokens.or(body.max_tokens).unwrap_or(0);
        Ok(Request { model: body.model.into_owned(), reserved, tools, segments })
    }

    fn segment(&mut self, raw: &str, is_tools: bool) -> anyhow::Result<Arc<Segment>> {
        let hash = self.hashes.hash_one(raw);
        if let Some(known) = self.known.get(&hash).filter(|known| *known.raw == *raw) {
            return Ok(Arc::clone(known));
        }
        let mut segment = Segment {
            raw: raw.into(),
            tokens: 0,
            features: Features::default(),
            role: Role::Tools,
            calls: Vec::new(),
            answers: None,
            watched: self.search(raw),
        };
        if is_tools {
            segment.tokens = self.count(raw);
            segment.features = Features::of(raw);
        } else {
            let message: Message<'_> = serde_json::from_str(raw).with_context(|| format!("a message: {raw}"))?;
            let (tokens, features) = self.content(message.content.as_ref());
            segment.tokens = AROUND_MESSAGE + tokens;
            segment.features = features;
            for call in message.tool_calls.unwrap_or_default() {
                segment.tokens += AROUND_CALL + self.count(&call.function.name) + self.count(&call.function.arguments);
                segment.features += Features::of(&call.function.name) + Features::of_message(&call.function.arguments);
                segment.calls.push(call.id);
            }
            segment.answers = message.tool_call_id;
            segment.role = match message.role.as_ref() {
                "system" | "developer" => Role::System,
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "tool" => Role::Tool,
                other => anyhow::bail!("a message of the role {other}"),
            };
        }
        let segment = Arc::new(segment);
        self.known.insert(hash, Arc::clone(&segment));
        Ok(segment)
    }

    /// Tokens and features of a message's text.
    fn content(&self, content: Option<&Value>) -> (u64, Features) {
        let text = |text: &str| (self.count(text), Features::of_message(text));
        match content {
            Some(Value::String(content)) => text(content),
            Some(Value::Array(parts)) => parts.iter().fold((0, Features::default()), |(tokens, features), part| {
                let image = (IMAGE, Features::of_images(IMAGE));
                let (more, also) = part.get("text").and_then(Value::as_str).map_or(image, text);
                (tokens + more, features + also)
            }),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => text(""),
        }
    }

    /// Which watched texts stand in it. They hold no sign that JSON would escape.
    fn search(&self, raw: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for (at, _) in raw.match_indices(CODE_MARK) {
            let Some(known) = raw.get(at..at + CODE_BYTES).and_then(|code| self.codes.get(code)) else { continue };
            for (index, watched) in known {
                let start = at.checked_sub(watched.at);
                let there =
                    start.is_some_and(|start| raw.get(start..).is_some_and(|rest| rest.starts_with(&watched.text)));
                if there && !found.contains(index) {
                    found.push(*index);
                }
            }
        }
        found
    }
}

/// Tokens of what two requests have in common at their beginning.
pub(crate) fn shared(left: &[Arc<Segment>], right: &[Arc<Segment>]) -> u64 {
    let mut tokens = AROUND_ALL;
    for (left, right) in left.iter().zip(right) {
        if Arc::ptr_eq(left, right) {
            tokens += left.tokens;
            continue;
        }
        let same = left.raw.bytes().zip(right.raw.bytes()).take_while(|(left, right)| left == right).count();
        // The tokens of a part of a segment are as many as its share of the bytes.
        return tokens + right.tokens * same as u64 / right.raw.len().max(1) as u64;
    }
    tokens
}

/// What a chat template puts around all messages, around one, and around a call.
const AROUND_ALL: u64 = 3;
const AROUND_MESSAGE: u64 = 4;
const AROUND_CALL: u64 = 8;
/// An image of middling size.
const IMAGE: u64 = 1_100;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Tool {
    function: ToolName,
}

#[derive(Deserialize)]
struct ToolName {
    name: String,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    content: Option<Value>,
    tool_calls: Option<Vec<Call>>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}
