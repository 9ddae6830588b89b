//! From the bytes of a Responses response to a reply: typed events about numbered items, or one response object.
//!
//! The last event repeats the whole response; servers that leave it empty are read by their items.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use serde_json::{Map, Value, json};

use crate::beside::Beside;
use crate::blocks::{Block, Blocks, fitting};
use crate::failure::{broken, no_room};
use crate::numbers;
pub use crate::reading::{End, Progress, Reading};
use crate::reading::{OPEN_MAX, count, inside, malformed, number, says_something, spoilt};
use crate::stream::{Closed, refusal};
use crate::telling::{Said, Saying};
use crate::words;

/// One response on its way in.
pub type Decoder = crate::stream::Decoder<Draft>;

/// What has arrived of the response.
#[derive(Default)]
pub struct Draft {
    id: String,
    items: BTreeMap<u64, Value>,
    /// Items that are as they will be.
    over: BTreeSet<u64>,
    /// Where items stand, by their ids.
    places: BTreeMap<String, u64>,
    /// Where what is about a number belongs, if not to the item of that number: some gateways number several alike.
    numbered: BTreeMap<u64, u64>,
    beside: Beside,
    said: Said,
    ended: Option<Ended>,
    usage: Option<Usage>,
    /// Words of a refusal.
    refusal: String,
}

/// How the response says it ended.
enum Ended {
    Completed,
    /// The reason, as the server words it.
    Incomplete(String),
}

impl crate::stream::Draft for Draft {
    const SERVER: &'static str = "a Responses server";

    fn take(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        let kind = text(value, "type");
        if self.ended.is_some() {
            return Ok(());
        }
        match kind {
            "response.created" => self.begin(inside(value, ["response", "id"])),
            "response.output_item.added" | "response.output_item.done" => {
                if let Some(item) = value.get("item") {
                    let index = self.index(value, item);
                    if kind == "response.output_item.done" {
                        self.over.insert(index);
                    }
                    if !identity(item).is_empty() {
                        self.places.insert(identity(item).to_owned(), index);
                    }
                    self.items.insert(index, item.clone());
                }
            }
            "response.output_text.done" => self.said(value, "output_text", "text"),
            "response.refusal.done" => self.said(value, "refusal", "refusal"),
            "response.reasoning_summary_text.delta" => self.think(value, "summary", "summary_text", "summary_index"),
            "response.reasoning_text.delta" => self.think(value, "content", "reasoning_text", "content_index"),
            "response.custom_tool_call_input.delta" => self.call_grows(value, "custom_tool_call", "input"),
            "response.output_text.delta" => self.say(value, "output_text", "text"),
            "response.refusal.delta" => self.say(value, "refusal", "refusal"),
            "response.function_call_arguments.delta" => self.call_grows(value, "function_call", "arguments"),
            "response.function_call_arguments.done" => {
                let index = self.index_of(value);
                if let (Some(Value::Object(item)), Some(arguments)) =
                    (self.items.get_mut(&index), value.get("arguments").filter(|arguments| arguments.is_string()))
                {
                    item.insert("arguments".to_owned(), arguments.clone());
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.whole(value.get("response").unwrap_or(value))?;
            }
            "response.failed" => return Err(failed(value.get("response").unwrap_or(value))),
            "error" => return Err(refusal(value)),
            // A body: the response itself.
            "" => {
                if text(value, "object") == "response" {
                    return self.whole(value);
                }
                if value.get("error").is_some_and(says_something) || words::is_complaint(value) {
                    return Err(refusal(value));
                }
            }
            // Beginnings, and what is said again when it is whole.
            _ if REPEATED.contains(&kind) => {}
            // Sources arrive on their own where the item does not repeat them.
            _ => self.beside.event(value),
        }
        Ok(())
    }

    fn said(&mut self) -> Vec<Saying> {
        self.said.take()
    }

    fn progress(&self) -> Progress {
        if self.ended.is_some() { Progress::Complete } else { Progress::Reading }
    }

    fn is_whole(&self, _closed: Closed) -> bool {
        self.ended.is_some()
    }

    fn reply(self) -> Result<Reply, ModelFailure> {
        let usage = self.usage;
        let Some(ended) = self.ended else {
            return Err(malformed("the response has no end"));
        };
        let mut refused = self.refusal;
        let mut blocks = Blocks::default();
        for item in self.items.into_values() {
            if matches!(text(&item, "type"), "function_call" | "custom_tool_call") && text(&item, "name").is_empty() {
                return Err(malformed("arguments came for a call that never began"));
            }
            read(item, &mut blocks, &mut refused);
        }
        if let Some(beside) = self.beside.into_value() {
            blocks.push(Block::Aside(beside));
        }
        let nothing = blocks.is_empty() && refused.is_empty();
        let (mut text, calls, wired) = blocks.into_parts();
        let finish = match ended {
            Ended::Incomplete(why) if why == "max_output_tokens" || why == "max_tokens" => {
                if nothing && usage.is_none_or(|usage| usage.output == 0) {
                    return Err(no_room(usage));
                }
                Finish::Length
            }
            Ended::Incomplete(why) if why == "content_filter" => Finish::Refused,
            Ended::Incomplete(why) => Finish::Other(why),
            Ended::Completed if !refused.is_empty() => Finish::Refused,
            Ended::Completed if !calls.is_empty() => Finish::ToolCalls,
            Ended::Completed => Finish::Stop,
        };
        if text.is_empty() {
            text = match finish {
                Finish::Refused if refused.is_empty() => "content_filter".to_owned(),
                Finish::Refused | Finish::Stop | Finish::ToolCalls | Finish::Length | Finish::Other(_) => refused,
            };
        }
        let wired = fitting(wired, &text, calls.len());
        Ok(Reply { text, calls, finish, usage, repaired: None, wired })
    }

    fn spoilt(self, failure: ModelFailure) -> ModelFailure {
        let mut refused = self.refusal;
        let mut blocks = Blocks::default();
        for item in self.items.into_values() {
            read(item, &mut blocks, &mut refused);
        }
        let (text, calls, _) = blocks.into_parts();
        spoilt(failure, text + &refused, calls, self.usage)
    }
}

impl Draft {
    /// A second one before the end of the first: somebody on the way asked again, and what came before is void.
    fn begin(&mut self, id: Option<&Value>) {
        let id = id.and_then(Value::as_str).unwrap_or_default();
        let is_again = !id.is_empty() && self.id == id;
        if !is_again && !self.items.is_empty() {
            *self = Self::default();
            self.said.anew();
        }
        id.clone_into(&mut self.id);
    }

    /// Where an event belongs: by the item's id, else by number, else at the end.
    fn index_of(&self, value: &Value) -> u64 {
        let by_id = self.places.get(text(value, "item_id")).copied();
        let by_number = || value.get("output_index").and_then(number).map(|number| self.place_of(number));
        let last = || self.items.keys().next_back().copied();
        by_id.or_else(by_number).or_else(last).unwrap_or(0)
    }

    /// Where an item that begins or ends stands.
    fn index(&mut self, value: &Value, item: &Value) -> u64 {
        let id = identity(item);
        if let Some(place) = self.places.get(id).filter(|_| !id.is_empty()) {
            return *place;
        }
        let ends = text(value, "type") == "response.output_item.done";
        let next = self.items.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let Some(number) = value.get("output_index").and_then(number) else {
            // An id that changes on the way: what ends is what was begun last and has not ended.
            let same = |(index, known): &(&u64, &Value)| {
                text(known, "type") == text(item, "type") && !self.over.contains(index)
            };
            let open = || self.items.iter().rev().take(OPEN_MAX).find(same).map(|(index, _)| *index);
            return ends.then(open).flatten().unwrap_or(next);
        };
        let place = self.place_of(number);
        let is_another = |known: &Value| !identity(known).is_empty() && !id.is_empty() && identity(known) != id;
        let is_taken = self.items.get(&place).is_some_and(is_another) && (!ends || self.over.contains(&place));
        if is_taken {
            self.numbered.insert(number, next);
            return next;
        }
        place
    }

    fn place_of(&self, number: u64) -> u64 {
        self.numbered.get(&number).copied().unwrap_or(number)
    }

    /// Adds to the last part of a message, which is begun if there is none of its kind.
    fn say(&mut self, value: &Value, kind: &str, key: &str) {
        let index = self.index_of(value);
        let item = self.items.entry(index).or_insert_with(|| json!({"type": "message", "content": []}));
        let Some(item) = item.as_object_mut() else { return };
        let content = item.entry("content").or_insert_with(|| Value::Array(Vec::new()));
        if !content.is_array() {
            *content = Value::Array(Vec::new());
        }
        let Some(parts) = content.as_array_mut() else { return };
        let place = value.get("content_index").and_then(number).and_then(|place| usize::try_from(place).ok());
        let place = place.unwrap_or(parts.len().saturating_sub(1)).min(parts.len());
        if parts.get(place).is_none_or(|part| text(part, "type") != kind) {
            parts.insert(place, json!({"type": kind, key: ""}));
        }
        let more = text(value, "delta");
        append(&mut parts[place], key, more);
        if kind == "output_text" {
            self.said.text(more);
        }
    }

    /// A text said whole: it stands where its pieces would.
    fn said(&mut self, value: &Value, kind: &str, key: &str) {
        let index = self.index_of(value);
        let said = self.items.get(&index).and_then(|item| item.get("content")).and_then(Value::as_array);
        let place = value.get("content_index").and_then(number).and_then(|place| usize::try_from(place).ok());
        let part = said.and_then(|parts| place.map_or_else(|| parts.last(), |place| parts.get(place)));
        if part.is_none_or(|part| text(part, key).is_empty()) && !text(value, key).is_empty() {
            self.say(
                &json!({"item_id": value.get("item_id"), "output_index": value.get("output_index"),
                "content_index": value.get("content_index"), "delta": value.get(key)}),
                kind,
                key,
            );
        }
    }

    /// Thoughts, as far as they are told.
    fn think(&mut self, value: &Value, list: &str, kind: &str, place: &str) {
        let index = self.index_of(value);
        let item = self.items.entry(index).or_insert_with(|| json!({"type": "reasoning"}));
        if text(item, "type") != "reasoning" {
            return self.beside.event(value);
        }
        let Some(item) = item.as_object_mut() else { return };
        let parts = item.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        let Some(parts) = parts.as_array_mut() else { return };
        let at = value.get(place).and_then(number).and_then(|at| usize::try_from(at).ok());
        let at = at.unwrap_or(parts.len().saturating_sub(1)).min(parts.len());
        if at == parts.len() {
            parts.push(json!({"type": kind, "text": ""}));
        }
        let more = text(value, "delta");
        append(&mut parts[at], "text", more);
        self.said.thought(more);
    }

    /// A piece of a call, which may be told of before the call is.
    fn call_grows(&mut self, value: &Value, kind: &str, key: &str) {
        let index = self.index_of(value);
        append(self.items.entry(index).or_insert_with(|| json!({"type": kind})), key, text(value, "delta"));
    }

    fn whole(&mut self, response: &Value) -> Result<(), ModelFailure> {
        if text(response, "status") == "failed" || response.get("error").is_some_and(says_something) {
            return Err(failed(response));
        }
        self.usage = response.get("usage").and_then(usage).or(self.usage);
        if matches!(text(response, "status"), "queued" | "in_progress") {
            return Ok(());
        }
        // What repeats less than came has left something out.
        let output = response.get("output").and_then(Value::as_array);
        if let Some(output) = output.filter(|output| !output.is_empty() && output.len() >= self.items.len()) {
            self.items = (0..).zip(output.iter().cloned()).collect();
        }
        let why = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        self.ended = Some(match (text(response, "status"), why) {
            ("incomplete", why) => Ended::Incomplete(why.unwrap_or("incomplete").to_owned()),
            ("cancelled", _) => Ended::Incomplete("cancelled".to_owned()),
            (_, Some(why)) => Ended::Incomplete(why.to_owned()),
            (_, None) => Ended::Completed,
        });
        Ok(())
    }
}

/// Events that say nothing of their own.
const REPEATED: &[&str] = &[
    "response.queued",
    "response.in_progress",
    "response.content_part.added",
    "response.content_part.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.done",
    "response.reasoning_text.done",
    "response.custom_tool_call_input.done",
    "keepalive",
    "ping",
];

/// A response that failed on its way.
fn failed(response: &Value) -> ModelFailure {
    match response.get("error").filter(|error| says_something(error)) {
        Some(error) => refusal(&json!({ "error": error })),
        None => {
            broken(ModelErrorClass::Transient, Billing::Perhaps, "the response failed, and the server did not say why")
        }
    }
}

/// One item of the output as blocks.
fn read(item: Value, blocks: &mut Blocks, refused: &mut String) {
    match text(&item, "type") {
        "message" => {
            if let Some(Value::String(words)) = item.get("content") {
                blocks.push(Block::Text { text: words.clone(), with: Map::new() });
            }
            for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                let beside = part.as_object().into_iter().flatten();
                let beside: Map<_, _> = beside
                    .filter(|(key, value)| {
                        !matches!(key.as_str(), "type" | "text" | "refusal") && says_something(value)
                    })
                    .filter(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty()))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                if !beside.is_empty() {
                    blocks.push(Block::Aside(Value::Object(beside)));
                }
                match text(part, "type") {
                    "refusal" => refused.push_str(text(part, "refusal")),
                    _ => blocks.push(Block::Text { text: text(part, "text").to_owned(), with: Map::new() }),
                }
            }
        }
        "function_call" => {
            let id = if text(&item, "call_id").is_empty() { text(&item, "id") } else { text(&item, "call_id") };
            let arguments = match item.get("arguments") {
                Some(Value::String(arguments)) => arguments.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => numbers::written(other),
            };
            let call = RawCall { id: id.to_owned(), name: text(&item, "name").to_owned(), arguments };
            blocks.push(Block::Call { call, with: Map::new() });
        }
        // The server keeps no responses for us: thoughts can be sent back only if they came along, encrypted.
        "reasoning" if text(&item, "encrypted_content").is_empty() => {
            let says = |key: &str| item.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
            if says("summary") || says("content") {
                blocks.push(Block::Aside(item));
            }
        }
        "reasoning" => blocks.push(Block::Opaque(item)),
        "custom_tool_call" => {
            let id = if text(&item, "call_id").is_empty() { text(&item, "id") } else { text(&item, "call_id") };
            let (name, arguments) = (text(&item, "name").to_owned(), text(&item, "input").to_owned());
            blocks.push(Block::Call { call: RawCall { id: id.to_owned(), name, arguments }, with: Map::new() });
        }
        // What servers did themselves is not asked for and cannot be sent back without their store.
        _ => blocks.push(Block::Aside(item)),
    }
}

fn usage(value: &Value) -> Option<Usage> {
    let number = |pointer: &str| value.pointer(pointer).and_then(count);
    let (input, output) = (number("/input_tokens"), number("/output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let input = input.unwrap_or(0);
    let cached = number("/input_tokens_details/cached_tokens").unwrap_or(0).min(input);
    let cache_write = number("/input_tokens_details/cache_write_tokens").unwrap_or(0).min(input - cached);
    let reasoning = number("/output_tokens_details/reasoning_tokens").unwrap_or(0);
    Some(Usage { input: input - cached - cache_write, cached, cache_write, output: output.unwrap_or(0), reasoning })
}

fn append(item: &mut Value, key: &str, more: &str) {
    let Some(item) = item.as_object_mut() else { return };
    match item.get_mut(key) {
        Some(Value::String(so_far)) => so_far.push_str(more),
        Some(_) | None => {
            item.insert(key.to_owned(), Value::String(more.to_owned()));
        }
    }
}

/// What an item is known by: its own id, or that of its call.
fn identity(item: &Value) -> &str {
    if text(item, "id").is_empty() { text(item, "call_id") } else { text(item, "id") }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
