//! From the bytes of a response to a reply, a piece at a time and without I/O.
//!
//! Servers that call themselves compatible differ in a hundred ways, so this reads tolerantly: a stream of events or one
//! JSON body, whatever was asked for; calls whose pieces lack an id or an index; a missing end. What it refuses is to
//! guess: a piece it cannot read fails the reply, and arguments are handed on exactly as they came.

mod calls;
mod lines;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply};
use serde_json::Value;

use crate::failure::{Refusal, broken, no_room};
use crate::reading::{BYTE_ORDER_MARK, REPLY_MAX_BYTES, TOKENS_MAX, malformed, mended, says_something, spoilt};
pub use crate::reading::{End, Progress, Reading};

use calls::Calls;
use lines::{Event, Lines};

/// One response on its way in.
#[derive(Default)]
pub struct Decoder {
    framing: Framing,
    draft: Draft,
    bytes: usize,
    failed: Option<ModelFailure>,
}

#[derive(Default)]
enum Framing {
    /// The first bytes, as long as they do not tell: empty, white, or part of a byte-order mark.
    #[default]
    Undecided,
    Events(Lines),
    /// One JSON body, or several one after another.
    Json(Vec<u8>),
}

impl Reading for Decoder {
    fn feed(&mut self, bytes: &[u8]) -> Progress {
        if self.failed.is_some() {
            return Progress::Failed;
        }
        self.bytes += bytes.len();
        if self.bytes > REPLY_MAX_BYTES {
            self.fail(malformed("the response is larger than 16 MiB and was refused"));
            return Progress::Failed;
        }
        let mut bytes = bytes;
        if matches!(self.framing, Framing::Undecided) {
            // A byte-order mark can only stand here, and none of its bytes can start JSON or an event.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte);
            let Some(start) = bytes.iter().position(|byte| !blank(byte)) else { return self.progress() };
            bytes = &bytes[start..];
            self.framing = match bytes[0] {
                b'{' | b'[' => Framing::Json(Vec::new()),
                _ => Framing::Events(Lines::default()),
            };
        }
        match &mut self.framing {
            Framing::Undecided => {}
            Framing::Json(body) => body.extend_from_slice(bytes),
            Framing::Events(lines) => {
                let events = lines.feed(bytes);
                self.take_events(events);
            }
        }
        self.progress()
    }

    fn end(mut self, end: End) -> Result<Reply, ModelFailure> {
        if self.failed.is_none() {
            self.flush(&end);
        }
        match (self.failed.take(), end) {
            (Some(failure), _) => Err(self.draft.spoilt(failure)),
            (None, _) if self.draft.is_cut_at_birth() => Err(no_room(self.draft.usage)),
            (None, _) if self.draft.finish.is_some() || self.draft.done => Ok(self.draft.reply()),
            // Closed in good order, so this is all there is, although nobody said why.
            (None, End::Closed) if self.draft.begun => Ok(self.draft.reply()),
            (None, End::Closed) => {
                let text = if self.bytes == 0 {
                    "the server closed the connection without a reply"
                } else {
                    "the server's response holds no reply: check that the base URL is that of a Chat Completions server"
                };
                Err(self.draft.spoilt(broken(ModelErrorClass::Transient, Billing::Perhaps, text)))
            }
            (None, End::Broken(why)) => {
                let text = format!("the reply broke off before it was complete: {why}");
                Err(self.draft.spoilt(broken(ModelErrorClass::Transient, Billing::Perhaps, text)))
            }
        }
    }
}

impl Decoder {
    fn progress(&self) -> Progress {
        if self.failed.is_some() {
            Progress::Failed
        } else if self.draft.done || (self.draft.finish.is_some() && self.draft.usage_at_stop) {
            Progress::Complete
        } else if self.draft.finish.is_some() {
            Progress::Stopped
        } else {
            Progress::Reading
        }
    }

    /// Reads what has no end of its own: a body, a last event without its blank line.
    fn flush(&mut self, end: &End) {
        match std::mem::take(&mut self.framing) {
            Framing::Undecided => {}
            Framing::Events(lines) => {
                if let Some(event) = lines.rest() {
                    // A half-written last event is no junk but a sign of a cut, which the missing finish tells as well.
                    if event.data.trim() == "[DONE]" || parse(&event.data).is_some() {
                        self.take_events(vec![event]);
                    } else if self.draft.finish.is_none() && !self.draft.done {
                        self.fail(broken(
                            ModelErrorClass::Transient,
                            Billing::Perhaps,
                            match end {
                                End::Closed => "the stream ended in the middle of an event".to_owned(),
                                End::Broken(why) => format!("the stream broke off in the middle of an event: {why}"),
                            },
                        ));
                    }
                }
            }
            Framing::Json(body) => self.take_body(&String::from_utf8_lossy(&body), end),
        }
    }

    fn take_body(&mut self, body: &str, end: &End) {
        for value in serde_json::Deserializer::from_str(&mended(body)).into_iter::<Value>() {
            match (value, end) {
                (Ok(value), _) => self.take(&value),
                // The end says it better.
                (Err(error), End::Broken(_)) if error.is_eof() => {}
                (Err(error), _) => self.fail(malformed(format!("the response is no JSON: {error}"))),
            }
        }
    }

    fn take_events(&mut self, events: Vec<Event>) {
        for event in events {
            if self.failed.is_some() {
                return;
            }
            if event.overlong {
                self.fail(malformed("a line of the stream is longer than 10 MiB"));
                return;
            }
            let data = event.data.trim();
            if data.is_empty() {
                continue;
            }
            if data == "[DONE]" {
                self.draft.done = true;
                continue;
            }
            if let Some(values) = parse(data) {
                self.draft.done |= data.ends_with("[DONE]");
                for value in &values {
                    if event.is_error { self.refuse(value) } else { self.take(value) }
                }
            } else if event.is_error {
                self.fail(Refusal { status: None, body: data, retry_after_s: None }.into_failure());
            } else {
                self.fail(malformed("an event of the stream is no JSON"));
            }
        }
    }

    /// One chunk of a stream, or a whole completion.
    fn take(&mut self, value: &Value) {
        if let Value::Array(list) = value {
            list.iter().for_each(|value| self.take(value));
            return;
        }
        let is = |key: &str, word: &str| value.get(key).and_then(Value::as_str) == Some(word);
        let error = value.get("error").is_some_and(says_something);
        if error || is("type", "error") || is("object", "error") {
            self.refuse(value);
            return;
        }
        let choice = self.draft.choice_of(value);
        if let Some(choice) = choice {
            if choice.get("error").is_some_and(says_something) {
                self.refuse(choice);
                return;
            }
            self.draft.take_choice(choice);
        }
        if let Some(usage) = value.get("usage").and_then(usage) {
            self.draft.usage = Some(usage);
            self.draft.usage_at_stop |= self.draft.finish.is_some();
        }
        // A body such as {"detail": "not found"} under status 200.
        let explained = ["message", "detail"].iter().any(|key| value.get(key).is_some_and(Value::is_string));
        if choice.is_none() && value.get("choices").is_none() && explained {
            self.refuse(value);
        }
    }

    fn refuse(&mut self, value: &Value) {
        self.fail(Refusal { status: None, body: &value.to_string(), retry_after_s: None }.into_failure());
    }

    fn fail(&mut self, failure: ModelFailure) {
        self.failed.get_or_insert(failure);
    }
}

/// What has arrived of the reply.
#[derive(Default)]
struct Draft {
    text: String,
    refusal: String,
    calls: Calls,
    finish: Option<String>,
    usage: Option<Usage>,
    /// Usage came with the finish or after it; before, it may be a running count.
    usage_at_stop: bool,
    /// `[DONE]` was seen.
    done: bool,
    /// A choice was seen.
    begun: bool,
    /// Thoughts came, which are left where they are.
    thought: bool,
    /// The index of the choice we follow; we ask for one and take the first that comes.
    choice: Option<u64>,
}

impl Draft {
    fn choice_of<'a>(&mut self, value: &'a Value) -> Option<&'a Value> {
        let choices = value.get("choices")?.as_array()?;
        let index = |choice: &Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        let followed = *self.choice.get_or_insert(index(choices.first()?));
        choices.iter().find(|choice| index(choice) == followed)
    }

    fn take_choice(&mut self, choice: &Value) {
        self.begun = true;
        if let Some(delta) = choice.get("delta").filter(|delta| delta.is_object()) {
            self.take_message(delta);
            self.calls.take_deltas(delta);
        }
        if let Some(message) = choice.get("message").filter(|message| message.is_object()) {
            self.take_message(message);
            self.calls.take_whole(message);
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_owned());
        }
    }

    fn take_message(&mut self, message: &Value) {
        let said = |key: &str| message.get(key).is_some_and(says_something);
        self.thought |= ["reasoning_content", "reasoning", "reasoning_details", "thinking"].into_iter().any(said);
        match message.get("content") {
            Some(Value::String(text)) => self.text.push_str(text),
            Some(Value::Array(parts)) => {
                for part in parts {
                    if let Some(text) = part.as_str().or_else(|| part.get("text")?.as_str()) {
                        self.text.push_str(text);
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

    /// Cut off by its length with nothing made: some servers, LM Studio among them, say in this way alone that the prompt
    /// fills the window.
    fn is_cut_at_birth(&self) -> bool {
        let is_cut = self.finish.as_deref().is_some_and(|word| finish(word.to_owned()) == Finish::Length);
        let is_empty = self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty() && !self.thought;
        is_cut && is_empty && self.usage.is_none_or(|usage| usage.output == 0)
    }

    fn reply(self) -> Reply {
        let finish = match self.finish.unwrap_or_default() {
            _ if !self.refusal.is_empty() => Finish::Refused,
            word => finish(word),
        };
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        Reply { text, calls: self.calls.into_raw(), finish, usage: self.usage, repaired: None }
    }

    /// A failure with what had arrived before it.
    fn spoilt(self, failure: ModelFailure) -> ModelFailure {
        spoilt(failure, self.text + &self.refusal, self.calls.into_raw(), self.usage)
    }
}

fn finish(word: String) -> Finish {
    match word.as_str() {
        "stop" => Finish::Stop,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        // The second is Mistral's, for the end of the model's context.
        "length" | "model_length" => Finish::Length,
        "content_filter" => Finish::Refused,
        _ => Finish::Other(word),
    }
}

/// Reads a usage object; `None` if it counts nothing.
fn usage(value: &Value) -> Option<Usage> {
    let number = |pointers: &[&str]| {
        pointers.iter().find_map(|pointer| {
            let value = value.pointer(pointer)?;
            // Some gateways count in floats.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and NaN gives 0")]
            value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
        })
    };
    let prompt = number(&["/prompt_tokens", "/input_tokens"]);
    let completion = number(&["/completion_tokens", "/output_tokens"]);
    // What no model can have counted was not counted.
    if [prompt, completion].iter().flatten().any(|count| *count > TOKENS_MAX)
        || (prompt.is_none() && completion.is_none())
    {
        return None;
    }
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    let cached = number(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
    ]);
    let cached = cached.unwrap_or(0).min(prompt);
    let cache_write = number(&["/prompt_tokens_details/cache_write_tokens"]).unwrap_or(0).min(prompt - cached);
    let reasoning = number(&["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"])
        .unwrap_or(0);
    // xAI counts reasoning beside the completion instead of in it; only the total tells.
    let apart = reasoning > 0
        && number(&["/total_tokens"])
            .is_some_and(|total| total == prompt.saturating_add(completion).saturating_add(reasoning));
    let output = if apart { completion.saturating_add(reasoning) } else { completion };
    Some(Usage { input: prompt - cached - cache_write, cached, cache_write, output, reasoning })
}

/// The JSON values in an event's data: one, unless a server left out the blank lines between events.
fn parse(data: &str) -> Option<Vec<Value>> {
    let read = |text: &str| serde_json::from_str(text).or_else(|_| serde_json::from_str(&mended(text))).ok();
    if let Some(value) = read(data) {
        return Some(vec![value]);
    }
    let lines = || data.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "[DONE]");
    if lines().nth(1).is_some() || data.contains("[DONE]") { lines().map(read).collect() } else { None }
}
