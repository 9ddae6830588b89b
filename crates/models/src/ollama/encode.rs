//! From a prompt to the bytes of a request to `/api/chat`.
//!
//! As with every wire, what stays comes first and what varies from call to call comes last, so that of two prompts one of
//! which extends the other the bytes agree up to the end of the shared messages.

use std::borrow::Cow;

use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt, WireCall, wire_name};
use longrein_core::task::Temperature;
use longrein_ports::Encoded;
use serde::Serialize;

use crate::actions::Envelope;
use crate::grown::{self, Grown, List, Spelling};
use crate::pictures::{Pictures, base64};

/// An encoder of one model. It remembers the bytes of its last prompt; the result never depends on that.
pub struct Encoder {
    chat: Chat,
    grown: Grown<List>,
}

impl Encoder {
    pub fn new(model: &str, temperature: Option<Temperature>, context_limit: Option<u64>) -> Self {
        Self { chat: Chat::new(model, temperature, context_limit), grown: Grown::default() }
    }

    pub fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&Native { chat: &self.chat, form: Form::Asked }, prompt)
    }
}

/// The settings of a model.
pub(super) struct Chat {
    model: String,
    temperature: Option<Temperature>,
    context_limit: Option<u64>,
}

impl Chat {
    pub(super) fn new(model: &str, temperature: Option<Temperature>, context_limit: Option<u64>) -> Self {
        Self { model: model.to_owned(), temperature, context_limit }
    }
}

impl Envelope for Chat {
    fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"model":"#);
        grown::json(&self.model, out);
        // Without these a server drops the oldest messages of a long conversation and says nothing.
        out.extend_from_slice(br#","stream":true,"truncate":false,"shift":false"#);
    }

    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>) {
        if let Some(form) = form {
            out.extend_from_slice(br#","format":"#);
            grown::json(form, out);
        }
        out.extend_from_slice(br#","options":"#);
        let temperature = self.temperature.map(Temperature::number);
        grown::json(&Options { num_predict: prompt.max_output, temperature, num_ctx: self.context_limit }, out);
        out.push(b'}');
    }
}

#[derive(Serialize)]
struct Options {
    num_predict: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u64>,
}

/// Whether the server is to hold an answer to its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Asked,
    Left,
}

/// The conversation with tools, as Ollama spells it.
pub(super) struct Native<'a> {
    pub(super) chat: &'a Chat,
    pub(super) form: Form,
}

impl Spelling for Native<'_> {
    type Place = List;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> List {
        self.chat.open(out);
        grown::tools(&prompt.tools, out);
        out.extend_from_slice(br#","messages":["#);
        if prompt.system.is_empty() {
            return List::Empty;
        }
        grown::json(&Message::plain("system", &prompt.system), out);
        List::Begun
    }

    fn item(&self, prompt: &Prompt, list: List, item: &Item, out: &mut Vec<u8>) -> List {
        let list = list.next(out);
        match item {
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                pictured(&Pictures::of(text, images, &prompt.images), out)
            }
            Item::User(_) | Item::Assistant { .. } | Item::Observation { .. } | Item::Harness(_) => {
                grown::json(&Message::of(item), out);
            }
        }
        list
    }

    fn foot(&self, prompt: &Prompt, list: List, out: &mut Vec<u8>) {
        if let Some(tail) = &prompt.tail {
            list.next(out);
            grown::json(&Message::plain("user", tail), out);
        }
        out.push(b']');
        // Held to a form the model could call no tool any more.
        let form = match &prompt.answer {
            AnswerForm::Json(schema) if prompt.tools.is_empty() && self.form == Form::Asked => Some(schema),
            AnswerForm::Json(_) | AnswerForm::Text | AnswerForm::Remark => None,
        };
        self.chat.close(prompt, form, out);
    }
}

/// A message, and its images in a list beside its words.
fn pictured(pictures: &Pictures<'_>, out: &mut Vec<u8>) {
    grown::json(&Message::plain("user", &pictures.words), out);
    if pictures.sent.is_empty() {
        return;
    }
    // The object is open again for the list.
    out.pop();
    let mut before = &br#","images":[""#[..];
    for (_, bytes) in &pictures.sent {
        out.extend_from_slice(before);
        base64(bytes, out);
        out.push(b'"');
        before = br#",""#;
    }
    out.extend_from_slice(b"]}");
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    /// Older servers pair results with calls by order, newer ones by these.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    function: Called<'a>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: Payload,
}

impl<'a> Message<'a> {
    fn plain(role: &'static str, content: &'a str) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_name: None, tool_call_id: None }
    }

    fn of(item: &'a Item) -> Self {
        match item {
            Item::User(text)
            | Item::Pictured { text, images: _ }
            | Item::Exhibit { text, images: _ }
            | Item::Harness(text) => Self::plain("user", text),
            Item::Assistant { text, calls, wired: _ } => {
                Self { tool_calls: calls.iter().map(Call::of).collect(), ..Self::plain("assistant", text) }
            }
            Item::Observation { call, action: _, tool, text, verdict: _ } => Self {
                tool_name: Some(wire_name(tool.as_str())),
                tool_call_id: Some(call),
                ..Self::plain("tool", text)
            },
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a WireCall) -> Self {
        let nothing = || Payload::parse("{}").expect("this is JSON");
        let arguments = Payload::parse(call.arguments.as_str()).unwrap_or_else(|_| nothing());
        Self { id: &call.id, function: Called { name: &call.name, arguments } }
    }
}
