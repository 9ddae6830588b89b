//! From the bytes of a Messages response to a reply: typed events about numbered blocks, or one message.

use std::collections::BTreeMap;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Finish, ModelFailure, RawCall, Reply};
use serde_json::{Map, Value};

use crate::beside::{Beside, Pieces};
use crate::blocks::{Block, Blocks, fitting};
use crate::failure::{no_room, window_full};
use crate::numbers;
pub use crate::reading::{End, Progress, Reading};
use crate::reading::{malformed, number, says_something, spoilt};
use crate::stream::{Closed, refusal};
use crate::telling::{Said, Saying};
use crate::words;

/// One response on its way in.
pub type Decoder = crate::stream::Decoder<Draft>;

/// What has arrived of the message.
#[derive(Default)]
pub struct Draft {
    blocks: BTreeMap<u64, Begun>,
    /// Where what is about a number belongs, if not to the block of that number: some gateways number several alike.
    places: BTreeMap<u64, u64>,
    stop: Option<String>,
    /// Why it was refused, in words, and in one.
    explanation: String,
    category: Option<String>,
    usage: Counts,
    beside: Beside,
    said: Said,
    /// `message_stop`, or a whole message.
    over: bool,
}

/// One block, as far as it has come.
struct Begun {
    block: Map<String, Value>,
    /// Pieces of a call's arguments.
    json: String,
}

#[derive(Default, Clone, Copy)]
struct Counts {
    input: Option<u64>,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

impl crate::stream::Draft for Draft {
    const SERVER: &'static str = "a Messages server";

    fn take(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        let kind = text(value, "type");
        if kind == "error" || (kind.is_empty() && value.get("error").is_some_and(says_something)) {
            return Err(refusal(value));
        }
        if self.over {
            return Ok(());
        }
        match kind {
            "message" => {
                self.begin(value);
                if let Some(Value::String(words)) = value.get("content") {
                    self.open(0, &serde_json::json!({"type": "text", "text": words}));
                }
                for (index, block) in (0..).zip(value.get("content").and_then(Value::as_array).into_iter().flatten()) {
                    self.open(index, block);
                }
                self.stopped(value, value.get("usage"));
                self.over = true;
            }
            // A second one before the end of the first: a gateway asked again, and begins anew.
            "message_start" if self.stop.is_none() => self.begin(value.get("message").unwrap_or(&Value::Null)),
            "content_block_start" => {
                let block = value.get("content_block").unwrap_or(&Value::Null);
                let mut index = self.index(value);
                if self.blocks.get(&index).is_some_and(|begun| !begun.is_begun_again_by(block)) {
                    let next = self.blocks.keys().next_back().map_or(0, |last| last.saturating_add(1));
                    self.places.insert(value.get("index").and_then(number).unwrap_or(index), next);
                    index = next;
                }
                self.open(index, block);
            }
            "content_block_delta" => self.grow(value)?,
            "message_delta" => self.stopped(value.get("delta").unwrap_or(&Value::Null), value.get("usage")),
            "message_stop" => self.over = true,
            // A body such as {"detail": "not found"} under status 200.
            "" if words::is_complaint(value) => return Err(refusal(value)),
            "content_block_stop" | "ping" | "message_start" | "" => {}
            // What nobody knows yet.
            _ => self.beside.event(value),
        }
        Ok(())
    }

    fn said(&mut self) -> Vec<Saying> {
        self.said.take()
    }

    fn progress(&self) -> Progress {
        match (self.over, &self.stop) {
            (true, _) => Progress::Complete,
            (false, Some(_)) => Progress::Stopped,
            (false, None) => Progress::Reading,
        }
    }

    fn is_whole(&self, _closed: Closed) -> bool {
        // Without a reason to stop it was cut, however politely.
        self.stop.is_some()
    }

    fn reply(self) -> Result<Reply, ModelFailure> {
        let usage = self.usage.read();
        let stop = self.stop.clone().unwrap_or_default();
        if let Some(failure) = words::fault(&stop) {
            return Err(Self { stop: None, ..self }.spoilt(failure));
        }
        let mut blocks = Blocks::default();
        for (_, begun) in self.blocks {
            begun.read(&mut blocks)?;
        }
        if words::is_window_full(&stop) {
            if blocks.is_empty() {
                return Err(no_room(usage));
            }
            let (text, calls, _) = blocks.into_parts();
            return Err(spoilt(window_full(&stop, usage), text, calls, usage));
        }
        let finish = words::finish(&stop);
        if let Some(beside) = self.beside.into_value() {
            blocks.push(Block::Aside(beside));
        }
        let (mut text, calls, wired) = blocks.into_parts();
        if text.is_empty() && finish == Finish::Refused {
            let filters: Vec<_> = self.category.into_iter().collect();
            text = if self.explanation.is_empty() { words::declined(&stop, &filters) } else { self.explanation };
        }
        let wired = fitting(wired, &text, calls.len());
        Ok(Reply { text, calls, finish, usage, repaired: None, wired })
    }

    fn spoilt(self, failure: ModelFailure) -> ModelFailure {
        let usage = self.usage.read();
        let mut said = String::new();
        let mut calls = Vec::new();
        for begun in self.blocks.into_values() {
            let id = || text_of(&begun.block, "id").to_owned();
            match text_of(&begun.block, "type") {
                "text" => said.push_str(text_of(&begun.block, "text")),
                "tool_use" => calls.push(RawCall {
                    id: id(),
                    name: text_of(&begun.block, "name").to_owned(),
                    arguments: begun.json,
                }),
                _ => {}
            }
        }
        spoilt(failure, said, calls, usage)
    }
}

impl Draft {
    fn begin(&mut self, message: &Value) {
        let has_said = !self.blocks.is_empty();
        *self = Self::default();
        if has_said {
            self.said.anew();
        }
        self.heed(message, message.get("usage"));
    }

    /// Where an event belongs: some gateways leave the number out of what concerns the last block.
    fn index(&self, value: &Value) -> u64 {
        let last = self.blocks.keys().next_back().copied();
        let begins = text(value, "type") == "content_block_start";
        let next = || last.map_or(0, |last| if begins { last.saturating_add(1) } else { last });
        match value.get("index").and_then(number) {
            Some(number) => self.places.get(&number).copied().unwrap_or(number),
            None => next(),
        }
    }

    fn open(&mut self, index: u64, block: &Value) {
        let block = block.as_object().cloned().unwrap_or_default();
        match text_of(&block, "type") {
            "text" => self.said.text(text_of(&block, "text")),
            "thinking" => self.said.thought(text_of(&block, "thinking")),
            _ => {}
        }
        self.blocks.insert(index, Begun { block, json: String::new() });
    }

    fn grow(&mut self, value: &Value) -> Result<(), ModelFailure> {
        let index = self.index(value);
        let Some(delta) = value.get("delta") else { return Ok(()) };
        let (kind, grows) = match text(delta, "type") {
            "text_delta" => ("text", "text"),
            "thinking_delta" => ("thinking", "thinking"),
            "signature_delta" => ("thinking", "signature"),
            "input_json_delta" => {
                let Some(begun) = self.blocks.get_mut(&index) else {
                    return Err(malformed("arguments came for a call that never began"));
                };
                begun.json.push_str(text(delta, "partial_json"));
                return Ok(());
            }
            "citations_delta" => {
                if let (Some(begun), Some(citation)) = (self.blocks.get_mut(&index), delta.get("citation")) {
                    let list = begun.block.entry("citations").or_insert_with(|| Value::Array(Vec::new()));
                    match list {
                        Value::Array(list) => list.push(citation.clone()),
                        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                            *list = Value::Array(vec![citation.clone()]);
                        }
                    }
                }
                return Ok(());
            }
            _ => {
                // A kind that nobody knows yet: what it says in texts grows where it belongs.
                if let (Some(begun), Some(fields)) = (self.blocks.get_mut(&index), delta.as_object()) {
                    for (key, more) in fields.iter().filter(|(key, _)| *key != "type") {
                        match (begun.block.get_mut(key), more) {
                            (Some(Value::String(so_far)), Value::String(more)) => so_far.push_str(more),
                            (_, more) => {
                                begun.block.insert(key.clone(), more.clone());
                            }
                        }
                    }
                } else {
                    self.beside.event(value);
                }
                return Ok(());
            }
        };
        let index = match self.blocks.get(&index).map(|begun| text_of(&begun.block, "type")) {
            // What was meant for the call would be lost to it.
            Some("tool_use") => return Err(malformed(format!("a piece of {kind} came in the middle of a call"))),
            // A block that nobody began.
            Some(other) if other != kind && ["text", "thinking"].contains(&other) => {
                let next = self.blocks.keys().next_back().map_or(0, |last| last.saturating_add(1));
                self.places.insert(value.get("index").and_then(number).unwrap_or(index), next);
                next
            }
            Some(_) | None => index,
        };
        let begun = self.blocks.entry(index).or_insert_with(|| Begun {
            block: Map::from_iter([("type".to_owned(), Value::String(kind.to_owned()))]),
            json: String::new(),
        });
        let more = text(delta, grows);
        match grows {
            "text" => self.said.text(more),
            "thinking" => self.said.thought(more),
            _ => {}
        }
        match begun.block.get_mut(grows) {
            Some(Value::String(so_far)) => so_far.push_str(more),
            Some(_) | None => {
                begun.block.insert(grows.to_owned(), Value::String(more.to_owned()));
            }
        }
        Ok(())
    }

    fn stopped(&mut self, delta: &Value, usage: Option<&Value>) {
        if let Some(stop) = delta.get("stop_reason").and_then(Value::as_str) {
            self.stop = Some(stop.to_owned());
        }
        if let Some(why) = delta.pointer("/stop_details/explanation").and_then(Value::as_str) {
            why.clone_into(&mut self.explanation);
        }
        if let Some(category) = delta.pointer("/stop_details/category").and_then(Value::as_str) {
            self.category = Some(category.to_owned());
        }
        self.heed(delta, usage);
    }

    /// Counts, and what stands beside them and beside the reply.
    fn heed(&mut self, message: &Value, usage: Option<&Value>) {
        if let Some(fields) = message.as_object() {
            self.beside.keep("message", fields, MESSAGE, Pieces::Anew);
        }
        if let Some(fields) = usage.and_then(Value::as_object) {
            let is_more = |value: &Value| value.is_object() || value.is_array();
            let more =
                fields.iter().filter(|(_, value)| is_more(value)).map(|(key, value)| (key.clone(), value.clone()));
            self.beside.keep("usage", &more.collect(), &["output_tokens_details"], Pieces::Anew);
        }
        self.count(usage);
    }

    /// Counts are running totals: the last one that was told counts.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let number = |pointer: &str| usage.pointer(pointer).and_then(crate::reading::count);
        let counts = &mut self.usage;
        if let Some(input) = number("/input_tokens") {
            counts.input = Some(input);
        }
        for (pointer, count) in [
            ("/cache_read_input_tokens", &mut counts.cached),
            ("/cache_creation_input_tokens", &mut counts.cache_write),
            ("/output_tokens", &mut counts.output),
            ("/output_tokens_details/thinking_tokens", &mut counts.reasoning),
        ] {
            if let Some(told) = number(pointer) {
                *count = told;
            }
        }
    }
}

impl Counts {
    fn read(self) -> Option<Usage> {
        let Counts { input, cached, cache_write, output, reasoning } = self;
        let usage = Usage { input: input.unwrap_or(0), cached, cache_write, output, reasoning };
        (input.is_some() || usage.tokens() > 0).then_some(usage)
    }
}

impl Begun {
    /// Whether a block under the same number is this one said again, and not another: the same call, or a text of which nothing
    /// has come.
    fn is_begun_again_by(&self, block: &Value) -> bool {
        let kind = text_of(&self.block, "type");
        let said = ["text", "thinking"].iter().any(|key| !text_of(&self.block, key).is_empty());
        kind == text(block, "type")
            && match kind {
                "text" | "thinking" => !said,
                _ => text_of(&self.block, "id") == text(block, "id") && !text(block, "id").is_empty(),
            }
    }

    fn read(mut self, blocks: &mut Blocks) -> Result<(), ModelFailure> {
        let own = |block: &Map<String, Value>, keys: &[&str]| {
            let rest = block.iter().filter(|(key, value)| !keys.contains(&key.as_str()) && !value.is_null());
            rest.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
        };
        let kind = text_of(&self.block, "type").to_owned();
        match kind.as_str() {
            "text" => {
                let text = text_of(&self.block, "text").to_owned();
                // Citations point into documents of the request, and may not be sent again beside other text.
                let mut beside = own(&self.block, &["type", "text"]);
                beside.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
                if !beside.is_empty() {
                    beside.insert("type".to_owned(), Value::String(kind));
                    blocks.push(Block::Aside(Value::Object(beside)));
                }
                blocks.push(Block::Text { text, with: Map::new() });
            }
            "tool_use" => {
                let arguments = match self.block.get("input") {
                    _ if !self.json.is_empty() => self.json,
                    // No piece came: an input of its own, or none.
                    Some(input @ Value::Object(map)) if !map.is_empty() => numbers::written(input),
                    Some(Value::Object(_) | Value::Null) | None => String::new(),
                    Some(Value::String(written)) => written.clone(),
                    Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_))) => numbers::written(other),
                };
                let (id, name) = (text_of(&self.block, "id").to_owned(), text_of(&self.block, "name").to_owned());
                let with = own(&self.block, &["type", "id", "name", "input"]);
                blocks.push(Block::Call { call: RawCall { id, name, arguments }, with });
            }
            // Without a signature it is refused when it comes back.
            "thinking" if text_of(&self.block, "signature").is_empty() => {
                blocks.push(Block::Aside(Value::Object(self.block)))
            }
            "redacted_thinking" if text_of(&self.block, "data").is_empty() => {
                blocks.push(Block::Aside(Value::Object(self.block)));
            }
            "" => return Err(malformed("a block of the reply does not say what it is")),
            // Thoughts, signed or hidden, and what servers did themselves: back as it came.
            _ => {
                if !self.json.is_empty() {
                    match serde_json::from_str::<Value>(&self.json) {
                        Ok(input) => {
                            self.block.insert("input".to_owned(), input);
                        }
                        Err(_) => {
                            blocks.push(Block::Aside(serde_json::json!({"type": kind, "partial_json": self.json})))
                        }
                    }
                }
                blocks.push(Block::Opaque(Value::Object(self.block)));
            }
        }
        Ok(())
    }
}

/// Fields of a message that are read, or say nothing of the reply.
const MESSAGE: &[&str] = &["id", "type", "role", "model", "content", "stop_reason", "usage", "base_resp"];

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn text_of<'a>(block: &'a Map<String, Value>, key: &str) -> &'a str {
    block.get(key).and_then(Value::as_str).unwrap_or_default()
}
