//! From the bytes of a response to a reply, a piece at a time and without I/O.
//!
//! Servers that call themselves compatible differ in a hundred ways, so this reads tolerantly: a stream of events or one
//! JSON body, whatever was asked for; calls whose pieces lack an id or an index; a missing end. What it refuses is to
//! guess: a piece it cannot read fails the reply, and arguments are handed on exactly as they came.

mod calls;
mod reasoning;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Finish, ModelFailure, Reply};
use serde_json::{Map, Value};

use crate::anew::{Mark, Seen, Stream};
use crate::beside::{Beside, Pieces};
use crate::blocks::{Block, Blocks};
use crate::failure::{no_room, window_full};
pub use crate::reading::{End, Progress, Reading};
use crate::reading::{count, inside, number, says_something, spoilt};
use crate::stream::{Closed, refusal};
use crate::telling::{Said, Saying};
use crate::words;

use calls::Calls;
use reasoning::Reasoning;

/// One response on its way in.
pub type Decoder = crate::stream::Decoder<Draft>;

impl crate::stream::Draft for Draft {
    const SERVER: &'static str = "a Chat Completions server";

    /// One chunk of a stream, or a whole completion.
    fn take(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        let is = |key: &str, word: &str| value.get(key).and_then(Value::as_str) == Some(word);
        let error = value.get("error").is_some_and(says_something);
        if error || is("type", "error") || is("object", "error") || words::is_base_fault(value) {
            return Err(refusal(value));
        }
        if self.finish.is_some() || self.stream.is(value.get("id").and_then(Value::as_str)) {
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
                let id = value.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                self.stream.hold(id, value.take());
                return Ok(());
            }
        }
        self.read(value)
    }

    fn done(&mut self) {
        self.settle();
        self.done = true;
    }

    fn said(&mut self) -> Vec<Saying> {
        self.said.take()
    }

    fn progress(&self) -> Progress {
        if self.done || (self.finish.is_some() && self.usage_at_stop) {
            Progress::Complete
        } else if self.finish.is_some() {
            Progress::Stopped
        } else {
            Progress::Reading
        }
    }

    fn is_whole(&self, closed: Closed) -> bool {
        // Closed in good order, a completion that came as one piece is all there is, although nobody said why. Of a stream
        // that just ends nobody can tell how much is missing.
        self.finish.is_some() || self.done || (self.in_one && closed == Closed::Yes) || self.is_cut_at_birth()
    }

    fn reply(mut self) -> Result<Reply, ModelFailure> {
        self.settle();
        if self.is_cut_at_birth() {
            return Err(no_room(self.usage));
        }
        if let Some(word) = self.finish.as_deref().filter(|word| words::is_window_full(word)) {
            let failure = window_full(word, self.usage);
            return Err(spoilt(failure, self.text + &self.refusal, self.calls.into_raw(), self.usage));
        }
        if let Some(failure) = self.finish.as_deref().and_then(words::fault) {
            return Err(spoilt(failure, self.text + &self.refusal, self.calls.into_raw(), self.usage));
        }
        let mut beside = self.beside;
        let word = self.finish.unwrap_or_default();
        let finish = if self.refusal.is_empty() { words::finish(&word) } else { Finish::Refused };
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        // Who declined without a word of its own did so by this.
        let text =
            if text.is_empty() && finish == Finish::Refused { words::declined(&word, &self.filters) } else { text };
        let text = match self.heard {
            // Spoken words are words, where no others came.
            heard if text.is_empty() => heard,
            heard => {
                beside.text("heard", &heard);
                text
            }
        };
        let mut blocks = Blocks::default();
        let (owed, kept) = self.reasoning.parted(!self.calls.is_empty());
        owed.into_iter().for_each(|fields| blocks.push(Block::Opaque(Value::Object(fields))));
        if !text.is_empty() {
            blocks.push(Block::Text { text, with: Map::new() });
        }
        self.calls.into_blocks().for_each(|call| blocks.push(call));
        beside.keep("message", &kept, &[], Pieces::More);
        blocks.extend_aside(beside);
        let (text, calls, wired) = blocks.into_parts();
        Ok(Reply { text, calls, finish, usage: self.usage, repaired: None, wired })
    }

    fn spoilt(mut self, failure: ModelFailure) -> ModelFailure {
        self.settle();
        spoilt(failure, self.text + &self.refusal, self.calls.into_raw(), self.usage)
    }
}

/// What has arrived of the reply.
#[derive(Default)]
pub struct Draft {
    text: String,
    refusal: String,
    /// Words or calls came as deltas.
    in_pieces: bool,
    /// The transcript of what was spoken.
    heard: String,
    calls: Calls,
    reasoning: Reasoning,
    beside: Beside,
    said: Said,
    finish: Option<String>,
    /// The filters that ended it.
    filters: Vec<String>,
    usage: Option<Usage>,
    /// Usage came with the finish or after it; before, it may be a running count.
    usage_at_stop: bool,
    /// `[DONE]` was seen.
    done: bool,
    /// A choice came as a whole, and none as a piece.
    in_one: bool,
    /// Thoughts came, which are left where they are.
    thought: bool,
    /// The index of the choice we follow; we ask for one and take the first that comes.
    choice: Option<u64>,
    stream: Stream,
}

impl Draft {
    /// What came before is void.
    fn begin_anew(&mut self) {
        *self = Self { stream: std::mem::take(&mut self.stream), ..Self::default() };
        self.said.anew();
    }

    /// Nothing more comes that could tell whether a chunk began another stream.
    fn settle(&mut self) {
        if let Some((mut held, _)) = self.stream.release(None) {
            // What of it can fail was looked at before it was kept.
            self.read(&mut held).ok();
        }
    }

    fn read(&mut self, value: &mut Value) -> Result<(), ModelFailure> {
        let choice = self.choice_of(value);
        if let Some(choice) = choice {
            if choice.get("error").is_some_and(says_something) {
                return Err(refusal(choice));
            }
            self.take_choice(choice);
        }
        // Groq's and Moonshot's own places come last.
        let places =
            [value.get("usage"), inside(value, ["x_groq", "usage"]), choice.and_then(|choice| choice.get("usage"))];
        for counts in places.into_iter().flatten().filter_map(Value::as_object) {
            if let Some(usage) = usage(counts) {
                self.usage = Some(usage);
                self.usage_at_stop |= self.finish.is_some();
                self.beside.keep("usage", counts, COUNTED, Pieces::Anew);
                break;
            }
        }
        // A body such as {"detail": "not found"} under status 200.
        if choice.is_none() && !value.get("choices").is_some_and(Value::is_array) && words::is_complaint(value) {
            return Err(refusal(value));
        }
        if let Some(response) = value.as_object() {
            self.beside.keep("response", response, ENVELOPE, Pieces::Anew);
        }
        Ok(())
    }

    fn choice_of<'a>(&mut self, value: &'a Value) -> Option<&'a Value> {
        let choices = value.get("choices")?.as_array()?;
        if choices.len() > 1 {
            self.beside.event(value);
        }
        let index = |choice: &Value| choice.get("index").and_then(number).unwrap_or(0);
        let followed = *self.choice.get_or_insert(index(choices.first()?));
        choices.iter().find(|choice| index(choice) == followed)
    }

    fn take_choice(&mut self, choice: &Value) {
        self.in_one = !self.in_pieces && !choice.get("delta").is_some_and(Value::is_object);
        if let Some(fields) = choice.as_object() {
            self.beside.keep(
                "choice",
                fields,
                &["index", "delta", "message", "finish_reason", "usage", "text"],
                Pieces::Lists,
            );
        }
        let delta = choice.get("delta").filter(|delta| delta.is_object());
        if let Some(delta) = delta {
            self.take_message(delta);
            self.calls.take_deltas(delta);
            self.in_pieces |= !self.text.is_empty() || !self.calls.is_empty();
        }
        // Perplexity, among others, repeats beside each piece, or at the end, all there was so far.
        let is_repeated = self.in_pieces;
        let message = choice.get("message").filter(|message| message.is_object() && !is_repeated);
        if let Some(message) = message {
            self.take_message(message);
            self.calls.take_whole(message);
        }
        if delta.is_none() && message.is_none() {
            // The older completions.
            self.say(choice.get("text").and_then(Value::as_str).unwrap_or_default());
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_owned());
            let filters = choice.get("content_filter_results").and_then(Value::as_object).into_iter().flatten();
            let hit = filters.filter(|(_, result)| result.get("filtered") == Some(&Value::Bool(true)));
            self.filters = hit.map(|(filter, _)| filter.clone()).collect();
        }
    }

    fn take_message(&mut self, message: &Value) {
        let said = |key: &str| message.get(key).is_some_and(says_something);
        self.thought |= THOUGHTS.into_iter().any(said);
        // The same may stand in two places.
        let thought = THOUGHTS.into_iter().filter_map(|key| message.get(key)).map(thoughts);
        self.said.thought(&thought.into_iter().find(|thought| !thought.is_empty()).unwrap_or_default());
        if let Some(fields) = message.as_object() {
            self.reasoning.take(fields);
            self.beside.keep("message", fields, MESSAGE, Pieces::More);
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let more = call.as_object().into_iter().flatten();
            let more: serde_json::Map<_, _> = more
                .filter(|(key, value)| !CALL.contains(&key.as_str()) && says_something(value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !more.is_empty() {
                self.beside
                    .event(&serde_json::json!({"tool_call": call.get("index").or(call.get("id")), "with": more}));
            }
        }
        if let Some(heard) = inside(message, ["audio", "transcript"]).and_then(Value::as_str) {
            self.heard.push_str(heard);
        }
        match message.get("content") {
            Some(Value::String(text)) => self.say(text),
            Some(Value::Array(parts)) => {
                for part in parts {
                    let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
                    if !matches!(kind, "text" | "output_text" | "refusal") {
                        self.thought |= matches!(kind, "thinking" | "reasoning");
                        self.said.thought(&thoughts(part));
                        self.beside.event(part);
                        continue;
                    }
                    if let Some(part) = part.as_object() {
                        self.beside.keep("part", part, &["type", "text", "refusal"], Pieces::Lists);
                    }
                    if let Some(text) = part.as_str().or_else(|| part.get("text")?.as_str()) {
                        self.say(text);
                    }
                    if let Some(refusal) = part.get("refusal").and_then(Value::as_str) {
                        self.refusal.push_str(refusal);
                    }
                }
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
        }
        if let Some(refusal) = message.get("refusal").and_then(Value::as_str) {
            self.refusal.push_str(refusal);
        }
    }

    fn say(&mut self, more: &str) {
        self.text.push_str(more);
        self.said.text(more);
    }

    /// Cut off by its length with nothing made: some servers, LM Studio among them, say in this way alone that the prompt
    /// fills the window.
    fn is_cut_at_birth(&self) -> bool {
        let is_cut = self
            .finish
            .as_deref()
            .is_some_and(|word| words::finish(word) == Finish::Length || words::is_window_full(word));
        let is_empty = self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty() && !self.thought;
        is_cut && is_empty && self.usage.is_none_or(|usage| usage.output == 0)
    }
}

/// A stream begins with a role, which some servers repeat with every chunk.
fn mark(value: &Value) -> Option<Mark<'_>> {
    let choice = value.get("choices")?.as_array()?.first()?;
    let delta = choice.get("delta")?.as_object().filter(|_| !choice.get("error").is_some_and(says_something))?;
    let begins = delta.get("role").is_some_and(says_something);
    let ends = choice.get("finish_reason").and_then(Value::as_str).is_some_and(|finish| !finish.is_empty());
    Some(Mark {
        id: value.get("id").and_then(Value::as_str).unwrap_or_default(),
        begins,
        follows: !begins && delta.values().any(says_something),
        alone: ends.then_some(Seen::More),
    })
}

/// Where thoughts stand in a message.
const THOUGHTS: [&str; 4] = ["reasoning_content", "reasoning", "thinking", "reasoning_details"];

/// The words of thoughts, however deep they lie.
fn thoughts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(thoughts).collect(),
        Value::Object(fields) => {
            let said = ["thinking", "text", "summary"].into_iter().filter_map(|key| fields.get(key)).map(thoughts);
            said.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// Fields of a response that are read, or say nothing of the reply.
const ENVELOPE: &[&str] = &[
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "system_fingerprint",
    "service_tier",
    "error",
    "obfuscation",
    "base_resp",
];

/// Fields of a message that are read.
const MESSAGE: &[&str] =
    &["role", "content", "refusal", "tool_calls", "function_call", reasoning::CONTENT, reasoning::DETAILS];

/// Fields of a call that are read.
const CALL: &[&str] = &["index", "id", "type", "function", "custom", "name", "arguments", "input", calls::EXTRA];

/// Counts that are read, or sums of them.
const COUNTED: &[&str] = &[
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "reasoning_tokens",
];

/// Reads a usage object; `None` if it counts nothing.
fn usage(counts: &serde_json::Map<String, Value>) -> Option<Usage> {
    let number = |pointers: &[&str]| {
        pointers.iter().find_map(|pointer| {
            let (first, rest) = pointer.split_once('/').unwrap_or((pointer, ""));
            let value = counts.get(first)?;
            count(if rest.is_empty() { value } else { value.get(rest)? })
        })
    };
    let prompt = number(&["prompt_tokens", "input_tokens"]);
    let completion = number(&["completion_tokens", "output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    let cached = number(&[
        "prompt_tokens_details/cached_tokens",
        "input_tokens_details/cached_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
    ]);
    let cached = cached.unwrap_or(0).min(prompt);
    let cache_write = number(&["prompt_tokens_details/cache_write_tokens", "cache_creation_input_tokens"])
        .unwrap_or(0)
        .min(prompt - cached);
    let reasoning = number(&[
        "completion_tokens_details/reasoning_tokens",
        "output_tokens_details/reasoning_tokens",
        "reasoning_tokens",
    ])
    .unwrap_or(0);
    // xAI counts reasoning beside the completion instead of in it; only the total tells.
    let apart = reasoning > 0
        && number(&["total_tokens"])
            .is_some_and(|total| total == prompt.saturating_add(completion).saturating_add(reasoning));
    let output = if apart { completion.saturating_add(reasoning) } else { completion };
    Some(Usage { input: prompt - cached - cache_write, cached, cache_write, output, reasoning })
}
