//! From a prompt to the bytes of a Responses request.
//!
//! Nothing is kept at the server (`store` is false), so every request carries the whole conversation; thoughts come back
//! encrypted and are sent again with it.

use std::borrow::Cow;
use std::sync::Arc;

use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt};
use longrein_ports::Encoded;
use serde::Serialize;

use crate::blocks::{Said, safe_id, said};
use crate::grown::{self, Grown, List, Spelling};
use crate::leaving::{Left, Part};
use crate::pictures::{Pictures, data_url};
use crate::schema;

/// An encoder of one model. It remembers the bytes of its last prompt; the result never depends on that.
pub struct Encoder {
    spelling: Input,
    grown: Grown<List>,
}

impl Encoder {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, temperature: Option<f64>) -> Self {
        Self { spelling: Input::new(model, temperature), grown: Grown::default() }
    }

    pub fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.spelling, prompt)
    }
}

#[derive(Clone)]
pub(super) struct Input {
    model: String,
    /// As a reply's own blocks name it.
    full: String,
    temperature: Option<f64>,
    left: Arc<Left>,
}

impl Input {
    pub(super) fn new(model: &str, temperature: Option<f64>) -> Self {
        Self { model: model.to_owned(), full: super::full_name(model), temperature, left: Arc::default() }
    }

    /// The same without what its server will not have.
    pub(super) fn without(&self, left: Arc<Left>) -> Self {
        Self { left, ..self.clone() }
    }

    pub(super) fn full_name(&self) -> &str {
        &self.full
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Entry<'a> {
    Message { role: &'static str, content: &'a str },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: &'a str },
}

fn push(list: List, entry: &Entry<'_>, out: &mut Vec<u8>) -> List {
    let list = list.next(out);
    grown::json(entry, out);
    list
}

/// A message in parts: its words, then its images.
fn pictured(list: List, pictures: &Pictures<'_>, out: &mut Vec<u8>) -> List {
    if pictures.sent.is_empty() {
        return push(list, &Entry::Message { role: "user", content: &pictures.words }, out);
    }
    let list = list.next(out);
    out.extend_from_slice(br#"{"type":"message","role":"user","content":[{"type":"input_text","text":"#);
    grown::json(&*pictures.words, out);
    for (media, bytes) in &pictures.sent {
        out.extend_from_slice(br#"},{"type":"input_image","detail":"auto","image_url":""#);
        data_url(*media, bytes, out);
        out.push(b'"');
    }
    out.extend_from_slice(b"}]}");
    list
}

impl Spelling for Input {
    type Place = List;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> List {
        #[derive(Serialize)]
        struct Tool<'a> {
            r#type: &'static str,
            name: &'a str,
            description: &'a str,
            parameters: Cow<'a, Payload>,
            // Strict mode takes a part of JSON Schema only; arguments are checked here in any case.
            strict: bool,
        }
        out.extend_from_slice(br#"{"model":"#);
        grown::json(&self.model, out);
        out.extend_from_slice(br#","stream":true,"store":false,"include":["reasoning.encrypted_content"]"#);
        if let Some(temperature) = self.temperature.filter(|_| !self.left.has(&Part::Temperature)) {
            out.extend_from_slice(br#","temperature":"#);
            grown::json(&temperature, out);
        }
        if !prompt.system.is_empty() {
            out.extend_from_slice(br#","instructions":"#);
            grown::json(&*prompt.system, out);
        }
        if !prompt.tools.is_empty() {
            let tools = prompt.tools.iter().map(|tool| Tool {
                r#type: "function",
                name: tool.name.as_str(),
                description: &tool.description,
                parameters: schema::plain(&tool.parameters),
                strict: false,
            });
            out.extend_from_slice(br#","tools":"#);
            grown::json(&tools.collect::<Vec<_>>(), out);
        }
        out.extend_from_slice(br#","input":["#);
        List::Empty
    }

    fn item(&self, prompt: &Prompt, list: List, item: &Item, out: &mut Vec<u8>) -> List {
        match item {
            Item::User(text) | Item::Harness(text) => push(list, &Entry::Message { role: "user", content: text }, out),
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                pictured(list, &Pictures::of(text, images, &prompt.images), out)
            }
            Item::Observation { call, action: _, tool: _, text, verdict: _ } => {
                push(list, &Entry::FunctionCallOutput { call_id: &safe_id(call), output: text }, out)
            }
            Item::Assistant { text, calls, wired } => {
                let mut list = list;
                for block in said(&self.full, text, calls, wired.as_ref().filter(|_| !self.left.has(&Part::Thoughts))) {
                    list = match block {
                        Said::Text { text, with: _ } => {
                            push(list, &Entry::Message { role: "assistant", content: text }, out)
                        }
                        Said::Call { call, with: _ } => push(
                            list,
                            &Entry::FunctionCall {
                                call_id: &safe_id(&call.id),
                                name: &call.name,
                                arguments: &call.arguments,
                            },
                            out,
                        ),
                        Said::Opaque(json) => {
                            let list = list.next(out);
                            out.extend_from_slice(json.as_str().as_bytes());
                            list
                        }
                    };
                }
                list
            }
        }
    }

    fn left(&self) -> Option<Arc<Left>> {
        Some(Arc::clone(&self.left))
    }

    fn foot(&self, prompt: &Prompt, list: List, out: &mut Vec<u8>) {
        if let Some(tail) = &prompt.tail {
            push(list, &Entry::Message { role: "user", content: tail }, out);
        }
        out.extend_from_slice(format!("],\"max_output_tokens\":{}}}", prompt.max_output).as_bytes());
    }
}
