//! From a prompt to the bytes of a Chat Completions request.
//!
//! Fields that stay come first, then the messages, then what varies from call to call (the tail as an extra message, the
//! output limit). So of two prompts one of which extends the other, the bytes agree up to the end of the shared messages,
//! which is what prompt caches live on.

use std::sync::Arc;

use longrein_core::outcome::Wired;
use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt, WireCall};
use longrein_ports::Encoded;
use serde::Serialize;

use crate::actions::Envelope;
use crate::blocks::{Said, beside, said};
use crate::grown::{self, Grown, List, Spelling};
use crate::leaving::{Left, Part};
use crate::pictures::{Pictures, data_url};

/// An encoder of one model. It remembers the bytes of its last prompt; the result never depends on that.
pub struct Encoder {
    spelling: Chat,
    grown: Grown<List>,
}

/// The name of the field that limits the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLimit {
    MaxTokens,
    MaxCompletionTokens,
}

impl Encoder {
    pub fn new(model: &str, limit: OutputLimit, temperature: Option<f64>) -> Self {
        Self { spelling: Chat::new(model, limit, temperature), grown: Grown::default() }
    }

    pub fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.spelling, prompt)
    }
}

#[derive(Clone)]
pub(super) struct Chat {
    model: String,
    /// As a reply's own blocks name it.
    full: String,
    limit: OutputLimit,
    temperature: Option<f64>,
    left: Arc<Left>,
}

impl Chat {
    pub(super) fn new(model: &str, limit: OutputLimit, temperature: Option<f64>) -> Self {
        Self { model: model.to_owned(), full: super::full_name(model), limit, temperature, left: Arc::default() }
    }

    /// The same without what its server will not have.
    pub(super) fn without(&self, left: Arc<Left>) -> Self {
        Self { left, ..self.clone() }
    }

    pub(super) fn full_name(&self) -> &str {
        &self.full
    }

    fn fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"model":"#);
        grown::json(&self.model, out);
        out.extend_from_slice(br#","stream":true"#);
        if !self.left.has(&Part::StreamOptions) {
            out.extend_from_slice(br#","stream_options":{"include_usage":true}"#);
        }
        if let Some(temperature) = self.temperature.filter(|_| !self.left.has(&Part::Temperature)) {
            out.extend_from_slice(br#","temperature":"#);
            grown::json(&temperature, out);
        }
    }

    fn limit(&self, prompt: &Prompt, out: &mut Vec<u8>) {
        let limit = match (self.limit, self.left.has(&Part::OutputLimit)) {
            (OutputLimit::MaxTokens, false) | (OutputLimit::MaxCompletionTokens, true) => "max_tokens",
            (OutputLimit::MaxCompletionTokens, false) | (OutputLimit::MaxTokens, true) => "max_completion_tokens",
        };
        out.extend_from_slice(format!(",\"{limit}\":{}}}", prompt.max_output).as_bytes());
    }
}

impl Spelling for Chat {
    type Place = List;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> List {
        self.fields(out);
        grown::tools(&prompt.tools, out);
        out.extend_from_slice(br#","messages":["#);
        if prompt.system.is_empty() {
            return List::Empty;
        }
        grown::json(&Message::System { content: &prompt.system }, out);
        List::Begun
    }

    fn item(&self, prompt: &Prompt, list: List, item: &Item, out: &mut Vec<u8>) -> List {
        let list = list.next(out);
        match item {
            Item::Assistant { text, calls, wired } => self.assistant(text, calls, wired.as_ref(), out),
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                pictured(&Pictures::of(text, images, &prompt.images), out)
            }
            Item::User(_) | Item::Harness(_) | Item::Observation { .. } => grown::json(&Message::of(item), out),
        }
        list
    }

    fn left(&self) -> Option<Arc<Left>> {
        Some(Arc::clone(&self.left))
    }

    fn foot(&self, prompt: &Prompt, list: List, out: &mut Vec<u8>) {
        if let Some(tail) = &prompt.tail {
            list.next(out);
            grown::json(&Message::User { content: tail }, out);
        }
        out.push(b']');
        self.limit(prompt, out);
    }
}

impl Chat {
    /// A reply as its server gave it: with the thoughts and signatures that it wants back, if this very model made them.
    fn assistant(&self, text: &str, calls: &[WireCall], wired: Option<&Wired>, out: &mut Vec<u8>) {
        // Null beside calls: an empty text is refused by some servers, a missing one by others.
        let content = Some(text).filter(|text| !text.is_empty() || calls.is_empty());
        grown::json(&Message::Assistant { content }, out);
        out.pop();
        let wired = wired.filter(|_| !self.left.has(&Part::Thoughts));
        let (mut thoughts, mut list) = (Vec::new(), List::Empty);
        for block in said(&self.full, text, calls, wired) {
            match block {
                Said::Text { .. } => {}
                Said::Opaque(fields) => thoughts.push(fields),
                Said::Call { call, with } => {
                    if list == List::Empty {
                        out.extend_from_slice(br#","tool_calls":["#);
                    }
                    list = list.next(out);
                    grown::json(&Call::of(call), out);
                    if with.is_some() {
                        out.pop();
                        beside(with, out);
                        out.push(b'}');
                    }
                }
            }
        }
        if list == List::Begun {
            out.push(b']');
        }
        thoughts.into_iter().for_each(|fields| beside(Some(fields), out));
        out.push(b'}');
    }
}

impl Envelope for Chat {
    fn open(&self, out: &mut Vec<u8>) {
        self.fields(out);
    }

    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>) {
        if let Some(form) = form {
            out.extend_from_slice(
                br#","response_format":{"type":"json_schema","json_schema":{"name":"reply","schema":"#,
            );
            grown::json(form, out);
            out.extend_from_slice(b"}}");
        }
        self.limit(prompt, out);
    }
}

/// A message in parts: its words, then its images.
fn pictured(pictures: &Pictures<'_>, out: &mut Vec<u8>) {
    if pictures.sent.is_empty() {
        grown::json(&Message::User { content: &pictures.words }, out);
        return;
    }
    out.extend_from_slice(br#"{"role":"user","content":[{"type":"text","text":"#);
    grown::json(&*pictures.words, out);
    for (media, bytes) in &pictures.sent {
        out.extend_from_slice(br#"},{"type":"image_url","image_url":{"url":""#);
        data_url(*media, bytes, out);
        out.extend_from_slice(br#""}"#);
    }
    out.extend_from_slice(b"}]}");
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System { content: &'a str },
    User { content: &'a str },
    Assistant { content: Option<&'a str> },
    Tool { tool_call_id: &'a str, content: &'a str },
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Called<'a>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Message<'a> {
    fn of(item: &'a Item) -> Self {
        match item {
            // Spelled as parts, where there is anything to show.
            Item::User(text) | Item::Pictured { text, images: _ } | Item::Exhibit { text, images: _ } => {
                Message::User { content: text }
            }
            // Many servers refuse a system message in mid-conversation; the text carries its own envelope.
            Item::Harness(text) => Message::User { content: text },
            Item::Assistant { text, .. } => Message::Assistant { content: Some(text) },
            Item::Observation { call, action: _, tool: _, text, verdict: _ } => {
                Message::Tool { tool_call_id: call, content: text }
            }
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a WireCall) -> Self {
        Self { id: &call.id, r#type: "function", function: Called { name: &call.name, arguments: &call.arguments } }
    }
}
