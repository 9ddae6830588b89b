//! From the bytes of a `generateContent` response to a reply: chunks that each hold the next parts, or one of them.

use longrein_core::budget::Usage;
use longrein_core::outcome::{Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use serde_json::{Map, Value};

use crate::anew::{Mark, Seen, Stream};
use crate::beside::{Beside, Pieces};
use crate::blocks::{Block, Blocks, fitting};
use crate::failure::no_room;
use crate::numbers;
pub use crate::reading::{End, Progress, Reading};
use crate::reading::{count, inside, malformed, says_something, spoilt};
use crate::stream::{Closed, refusal};
use crate::telling::{Said, Saying};
use crate::words;

/// One response on its way in.
pub type Decoder = crate::stream::Decoder<Draft>;

/// What has arrived of the candidate.
#[derive(Default)]
pub struct Draft {
    parts: Vec<Map<String, Value>>,
    finish: Option<String>,
    /// What the server says beside the finish.
    explanation: String,
    /// The filters that ended it.
    filters: Vec<String>,
    usage: Option<Usage>,
    beside: Beside,
    said: Said,
    stream: Stream,
}

impl crate::stream::Draft for Draft {
    const SERVER: &'static str = "the Gemini API";

    fn take(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        // The code assistant's door wraps each chunk.
        let is_wrapped = value.get("response").is_some_and(Value::is_object);
        let value = if is_wrapped { &mut value["response"] } else { value };
        if value.get("error").is_some_and(says_something) {
            return Err(refusal(value));
        }
        if self.finish.is_some() || self.stream.is(value.get("responseId").and_then(Value::as_str)) {
            return self.read(value);
        }
        let mark = mark(value);
        if let Some((mut held, seen)) = self.stream.release(mark.as_ref()) {
            if seen == Seen::Anew {
                self.begin_anew();
            }
            self.read(&mut held)?;
        }
        match mark.map_or(Seen::More, |mark| self.stream.see(&mark)) {
            Seen::More => {}
            Seen::Anew => self.begin_anew(),
            Seen::Perhaps => {
                let id = value.get("responseId").and_then(Value::as_str).unwrap_or_default().to_owned();
                self.stream.hold(id, value.take());
                return Ok(());
            }
        }
        self.read(value)
    }

    fn said(&mut self) -> Vec<Saying> {
        self.said.take()
    }

    fn progress(&self) -> Progress {
        // There is no word for the end; usage may still follow.
        if self.finish.is_some() { Progress::Stopped } else { Progress::Reading }
    }

    fn is_whole(&self, _closed: Closed) -> bool {
        self.finish.is_some()
    }

    fn reply(mut self) -> Result<Reply, ModelFailure> {
        self.settle();
        let finish = self.finish.unwrap_or_default();
        let usage = self.usage;
        let nothing = self.parts.is_empty();
        let mut blocks = blocks(self.parts);
        if let Some(beside) = self.beside.into_value() {
            blocks.push(Block::Aside(beside));
        }
        let (mut text, calls, wired) = blocks.into_parts();
        let declined = words::declined(&finish, &self.filters);
        let finish = match finish.as_str() {
            "STOP" if calls.is_empty() => Finish::Stop,
            "STOP" => Finish::ToolCalls,
            "MAX_TOKENS" if nothing && usage.is_none_or(|usage| usage.output == 0) => return Err(no_room(usage)),
            "MAX_TOKENS" => Finish::Length,
            word if REFUSALS.contains(&word) => Finish::Refused,
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" if calls.is_empty() => {
                let words = if self.explanation.is_empty() { &finish } else { &self.explanation };
                return Err(spoilt(
                    malformed(format!("the model wrote a call that cannot be read: {words}")),
                    text,
                    calls,
                    usage,
                ));
            }
            _ => Finish::Other(finish),
        };
        if text.is_empty() && finish == Finish::Refused {
            text = if self.explanation.is_empty() { declined } else { self.explanation };
        }
        let wired = fitting(wired, &text, calls.len());
        Ok(Reply { text, calls, finish, usage, repaired: None, wired })
    }

    fn spoilt(mut self, failure: ModelFailure) -> ModelFailure {
        self.settle();
        let (text, calls, _) = blocks(self.parts).into_parts();
        spoilt(failure, text, calls, self.usage)
    }
}

/// A chunk with something of the candidate: here the first is like any other.
fn mark(value: &Value) -> Option<Mark<'_>> {
    let candidate = value.get("candidates")?.get(0)?;
    let ends = candidate.get("finishReason").is_some_and(Value::is_string);
    let id = value.get("responseId").and_then(Value::as_str).unwrap_or_default();
    Some(Mark { id, begins: true, follows: true, alone: ends.then_some(Seen::Anew) })
}

/// Finishes that mean that somebody declined.
const REFUSALS: [&str; 10] = [
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "LANGUAGE",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
];

/// Fields that are read, or say nothing of the reply.
const CHUNK: &[&str] =
    &["candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId", "createTime", "error"];
const CANDIDATE: &[&str] = &["content", "finishReason", "finishMessage", "index", "avgLogprobs", "tokenCount"];

impl Draft {
    /// What came before is void.
    fn begin_anew(&mut self) {
        *self = Self { stream: std::mem::take(&mut self.stream), ..Self::default() };
        self.said.anew();
    }

    /// Nothing more comes that could tell whether a chunk began another stream.
    fn settle(&mut self) {
        if let Some((mut held, _)) = self.stream.release(None) {
            // Nothing of it was an error, or it would not have been kept.
            self.read(&mut held).ok();
        }
    }

    fn read(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        if let Some(usage) = value.get("usageMetadata").and_then(usage) {
            self.usage = Some(usage);
        }
        let feedback = |key: &str| inside(value, ["promptFeedback", key]).and_then(Value::as_str);
        if let Some(why) = feedback("blockReason").filter(|why| *why != "BLOCK_REASON_UNSPECIFIED") {
            let words = feedback("blockReasonMessage").unwrap_or(why);
            let mut failure = malformed(format!("the provider refused the prompt: {words} ({why})"));
            failure.class = ModelErrorClass::ContentRefused;
            return Err(failure);
        }
        let Some(candidate) = value.get("candidates").and_then(Value::as_array).and_then(|list| list.first()) else {
            return if words::is_complaint(value) { Err(refusal(value)) } else { Ok(()) };
        };
        if let (Some(chunk), Some(fields)) = (value.as_object(), candidate.as_object()) {
            self.beside.keep("response", chunk, CHUNK, Pieces::Anew);
            self.beside.keep("candidate", fields, CANDIDATE, Pieces::Anew);
        }
        if value.get("candidates").and_then(Value::as_array).is_some_and(|list| list.len() > 1) {
            self.beside.event(value);
        }
        if let Some(finish) = candidate.get("finishReason").and_then(Value::as_str) {
            self.finish = Some(finish.to_owned());
            let words = candidate.get("finishMessage").and_then(Value::as_str).unwrap_or_default();
            words.clone_into(&mut self.explanation);
            let ratings = candidate.get("safetyRatings").and_then(Value::as_array).into_iter().flatten();
            let hit = ratings.filter(|rating| rating.get("blocked") == Some(&Value::Bool(true)));
            let filters = hit.filter_map(|rating| rating.get("category")?.as_str()).map(str::to_owned);
            self.filters = filters.collect();
        }
        let content = value.get_mut("candidates").and_then(|list| list.get_mut(0)?.get_mut("content"));
        if let Some(Value::Array(parts)) = content.and_then(|content| content.get_mut("parts")).map(Value::take) {
            for part in parts {
                if let Value::Object(part) = part {
                    self.add(part);
                }
            }
        }
        Ok(())
    }

    /// Streamed words are one part, unless a signature says where one ends.
    fn add(&mut self, mut part: Map<String, Value>) {
        let is_words = |part: &Map<String, Value>| {
            part.get("text").is_some_and(Value::is_string) && part.keys().all(|key| key == "text" || key == "thought")
        };
        let is_thought = |part: &Map<String, Value>| part.get("thought") == Some(&Value::Bool(true));
        match part.get("text").and_then(Value::as_str) {
            Some(more) if is_thought(&part) => self.said.thought(more),
            Some(more) if !part.contains_key("functionCall") => self.said.text(more),
            Some(_) | None => {}
        }
        if is_words(&part)
            && let Some(last) = self.parts.last_mut()
            && is_words(last)
            && is_thought(last) == is_thought(&part)
            && let (Some(Value::String(so_far)), Some(more)) =
                (last.get_mut("text"), part.get("text").and_then(Value::as_str))
        {
            so_far.push_str(more);
            return;
        }
        // The arguments of a call are written at once: as values they would take many times the room.
        if let Some(arguments) = part.get_mut("functionCall").and_then(|called| called.get_mut("args"))
            && !matches!(arguments, Value::Null | Value::String(_))
        {
            *arguments = Value::String(numbers::written(arguments));
        }
        self.parts.push(part);
    }
}

fn blocks(parts: Vec<Map<String, Value>>) -> Blocks {
    let mut blocks = Blocks::default();
    for mut part in parts {
        if part.get("thought") == Some(&Value::Bool(true)) {
            blocks.push(Block::Opaque(Value::Object(part)));
        } else if let Some(called) = part.remove("functionCall").filter(|called| !called.is_null()) {
            let word = |key: &str| called.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let arguments = word("args");
            let more = called.as_object().into_iter().flatten();
            let more: Map<_, _> = more
                .filter(|(key, value)| !matches!(key.as_str(), "id" | "name" | "args") && !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !more.is_empty() {
                blocks.push(Block::Aside(Value::Object(Map::from_iter([(
                    "functionCall".to_owned(),
                    Value::Object(more),
                )]))));
            }
            part.remove("thought");
            let call = RawCall { id: word("id"), name: word("name"), arguments };
            blocks.push(Block::Call { call, with: part });
        } else if let Some(Value::String(text)) = part.remove("text") {
            part.remove("thought");
            blocks.push(Block::Text { text, with: part });
        } else if !part.is_empty() {
            blocks.push(Block::Opaque(Value::Object(part)));
        }
    }
    blocks
}

/// Thoughts are counted beside the candidate, and what is cached inside the prompt.
fn usage(value: &Value) -> Option<Usage> {
    let number = |key: &str| value.get(key).and_then(count);
    let (prompt, candidate) = (number("promptTokenCount"), number("candidatesTokenCount"));
    if prompt.is_none() && candidate.is_none() {
        return None;
    }
    let prompt = prompt.unwrap_or(0).saturating_add(number("toolUsePromptTokenCount").unwrap_or(0));
    let cached = number("cachedContentTokenCount").unwrap_or(0).min(prompt);
    let reasoning = number("thoughtsTokenCount").unwrap_or(0);
    let output = candidate.unwrap_or(0).saturating_add(reasoning);
    Some(Usage { input: prompt - cached, cached, cache_write: 0, output, reasoning })
}
