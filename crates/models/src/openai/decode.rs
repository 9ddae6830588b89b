//! From the bytes of a response to a reply, a piece at a time and without I/O.
//!
//! Servers that call themselves compatible differ in a hundred ways, so this reads tolerantly: a stream of events or one
//! JSON body, whatever was asked for; calls whose pieces lack an id or an index; a missing end. What it refuses is to
//! guess: a piece it cannot read fails the reply, and arguments are handed on exactly as they came.

mod calls;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Finish, ModelFailure, Reply};
use serde_json::Value;

use crate::failure::no_room;
pub use crate::reading::{End, Progress, Reading};
use crate::reading::{TOKENS_MAX, says_something, spoilt};
use crate::stream::{Closed, refusal};

use calls::Calls;

/// One response on its way in.
pub type Decoder = crate::stream::Decoder<Draft>;

impl crate::stream::Draft for Draft {
    const SERVER: &'static str = "a Chat Completions server";

    /// One chunk of a stream, or a whole completion.
    fn take(&mut self, value: &Value) -> Result<(), ModelFailure> {
        let is = |key: &str, word: &str| value.get(key).and_then(Value::as_str) == Some(word);
        let error = value.get("error").is_some_and(says_something);
        if error || is("type", "error") || is("object", "error") {
            return Err(refusal(value));
        }
        let choice = self.choice_of(value);
        if let Some(choice) = choice {
            if choice.get("error").is_some_and(says_something) {
                return Err(refusal(choice));
            }
            self.take_choice(choice);
        }
        if let Some(usage) = value.get("usage").and_then(usage) {
            self.usage = Some(usage);
            self.usage_at_stop |= self.finish.is_some();
        }
        // A body such as {"detail": "not found"} under status 200.
        let explained = ["message", "detail"].iter().any(|key| value.get(key).is_some_and(Value::is_string));
        if choice.is_none() && value.get("choices").is_none() && explained {
            return Err(refusal(value));
        }
        Ok(())
    }

    fn done(&mut self) {
        self.done = true;
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
        // Closed in good order, what has begun is all there is, although nobody said why.
        self.finish.is_some() || self.done || (self.begun && closed == Closed::Yes) || self.is_cut_at_birth()
    }

    fn reply(self) -> Result<Reply, ModelFailure> {
        if self.is_cut_at_birth() {
            return Err(no_room(self.usage));
        }
        let finish = match self.finish.unwrap_or_default() {
            _ if !self.refusal.is_empty() => Finish::Refused,
            word => finish(word),
        };
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        Ok(Reply { text, calls: self.calls.into_raw(), finish, usage: self.usage, repaired: None, wired: None })
    }

    fn spoilt(self, failure: ModelFailure) -> ModelFailure {
        spoilt(failure, self.text + &self.refusal, self.calls.into_raw(), self.usage)
    }
}

/// What has arrived of the reply.
#[derive(Default)]
pub struct Draft {
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
