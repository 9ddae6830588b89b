//! From a prompt to the bytes of a Messages request.
//!
//! Roles alternate, so what one side says in several items is one message of several blocks; results come before words, as
//! the provider wants it. A message, and the last block in it, are closed only by what follows: the last block of the
//! history gets the cache mark, and what stands before it keeps its bytes.

use std::borrow::Cow;
use std::sync::Arc;

use longrein_core::image::Media;
use longrein_core::outcome::{Finish, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt, Told, WireCall};
use longrein_ports::Encoded;
use serde::Serialize;

use crate::blocks::{Said, beside, safe_id, said};
use crate::grown::{self, Grown, Spelling};
use crate::leaving::{Left, Part};
use crate::pictures::{Pictures, base64};
use crate::schema;

/// An encoder of one model. It remembers the bytes of its last prompt; the result never depends on that.
pub struct Encoder {
    spelling: Messages,
    grown: Grown<Place>,
}

impl Encoder {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, temperature: Option<f64>) -> Self {
        Self { spelling: Messages::new(model, temperature), grown: Grown::default() }
    }

    pub fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.spelling, prompt)
    }
}

#[derive(Clone)]
pub(super) struct Messages {
    model: String,
    /// As a reply's own blocks name it.
    full: String,
    temperature: Option<f64>,
    left: Arc<Left>,
}

/// Where in the list of messages we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Empty,
    /// Inside a message, behind a block that is not closed yet.
    Open(Role, Last),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

/// Whether the block that is still open can carry a cache mark: thoughts cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Markable,
    Closed,
}

const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

impl Messages {
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

    /// Begins a block of `role`, which is another message if the other one was speaking.
    fn turn(place: Place, role: Role, out: &mut Vec<u8>) {
        match place {
            Place::Open(speaker, last) => {
                close(last, out);
                if speaker == role {
                    out.push(b',');
                    return;
                }
                out.extend_from_slice(b"]},");
            }
            Place::Empty => {}
        }
        out.extend_from_slice(br#"{"role":"#);
        grown::json(&role, out);
        out.extend_from_slice(br#","content":["#);
    }

    /// A text block; none where there is nothing to read, which the provider refuses.
    fn words(place: Place, role: Role, text: &str, out: &mut Vec<u8>) -> Place {
        if text.trim().is_empty() {
            return place;
        }
        Self::turn(place, role, out);
        out.extend_from_slice(br#"{"type":"text","text":"#);
        grown::json(text, out);
        Place::Open(role, Last::Markable)
    }

    fn picture(place: Place, media: Media, bytes: &[u8], out: &mut Vec<u8>) -> Place {
        Self::turn(place, Role::User, out);
        out.extend_from_slice(br#"{"type":"image","source":{"type":"base64","media_type":"#);
        grown::json(media.mime(), out);
        out.extend_from_slice(br#","data":""#);
        base64(bytes, out);
        out.extend_from_slice(br#""}"#);
        Place::Open(Role::User, Last::Markable)
    }

    fn call(place: Place, call: &WireCall, with: Option<&Payload>, out: &mut Vec<u8>) -> Place {
        Self::turn(place, Role::Assistant, out);
        out.extend_from_slice(br#"{"type":"tool_use","id":"#);
        grown::json(&*safe_id(&call.id), out);
        out.extend_from_slice(br#","name":"#);
        grown::json(&call.name, out);
        out.extend_from_slice(br#","input":"#);
        out.extend_from_slice(call.arguments.trim().as_bytes());
        beside(with, out);
        Place::Open(Role::Assistant, Last::Markable)
    }
}

/// The request that goes on with a reply that its provider let go of: what came of it stands at the end. None if it was not let
/// go of, or nothing of it can be sent back.
pub(super) fn going_on(request: &[u8], reply: &Reply) -> Option<Vec<u8>> {
    const FOOT: &[u8] = br#"],"max_tokens":"#;
    if reply.finish != Finish::Other("pause_turn".to_owned()) || !reply.calls.is_empty() {
        return None;
    }
    let end = request.windows(FOOT.len()).rposition(|part| part == FOOT)?;
    let model = reply.wired.as_ref().map_or("", |wired| wired.model.as_str());
    let mut out = request[..end].to_vec();
    let mut place = Place::Empty;
    out.push(b',');
    for block in said(model, &reply.text, &[], reply.wired.as_ref()) {
        place = match block {
            Said::Text { text, with: _ } => Messages::words(place, Role::Assistant, text, &mut out),
            Said::Call { call, with } => Messages::call(place, call, with, &mut out),
            Said::Opaque(json) => opaque(place, json, &mut out),
        };
    }
    let Place::Open(_, last) = place else { return None };
    close(last, &mut out);
    out.extend_from_slice(b"]}");
    out.extend_from_slice(&request[end..]);
    Some(out)
}

/// A block as it came.
fn opaque(place: Place, json: &Payload, out: &mut Vec<u8>) -> Place {
    Messages::turn(place, Role::Assistant, out);
    out.extend_from_slice(json.as_str().as_bytes());
    Place::Open(Role::Assistant, Last::Closed)
}

fn close(last: Last, out: &mut Vec<u8>) {
    match last {
        Last::Markable => out.push(b'}'),
        Last::Closed => {}
    }
}

impl Spelling for Messages {
    type Place = Place;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> Place {
        #[derive(Serialize)]
        struct Tool<'a> {
            name: &'a str,
            description: &'a str,
            input_schema: Cow<'a, Payload>,
        }
        out.extend_from_slice(br#"{"model":"#);
        grown::json(&self.model, out);
        out.extend_from_slice(br#","stream":true"#);
        if let Some(temperature) = self.temperature.filter(|_| !self.left.has(&Part::Temperature)) {
            out.extend_from_slice(br#","temperature":"#);
            grown::json(&temperature, out);
        }
        if !prompt.tools.is_empty() {
            out.extend_from_slice(br#","tools":["#);
            for (at, tool) in prompt.tools.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                grown::json(
                    &Tool {
                        name: tool.name.as_str(),
                        description: &tool.description,
                        input_schema: schema::plain(&tool.parameters),
                    },
                    out,
                );
            }
            out.push(b']');
        }
        if !prompt.system.trim().is_empty() {
            // Behind the tools and before everything that grows: one mark for both.
            out.extend_from_slice(br#","system":[{"type":"text","text":"#);
            grown::json(&*prompt.system, out);
            out.extend_from_slice(MARK);
            out.extend_from_slice(b"}]");
        }
        out.extend_from_slice(br#","messages":["#);
        Place::Empty
    }

    fn item(&self, prompt: &Prompt, place: Place, item: &Item, out: &mut Vec<u8>) -> Place {
        match item {
            Item::User(text) | Item::Harness(text) => Self::words(place, Role::User, text, out),
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                let pictures = Pictures::of(text, images, &prompt.images);
                let mut place = Self::words(place, Role::User, &pictures.words, out);
                for (media, bytes) in &pictures.sent {
                    place = Self::picture(place, *media, bytes, out);
                }
                place
            }
            Item::Observation { call, action: _, tool: _, text, verdict } => {
                Self::turn(place, Role::User, out);
                out.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
                grown::json(&*safe_id(call), out);
                match verdict {
                    Told::Ok => {}
                    Told::Error => out.extend_from_slice(br#","is_error":true"#),
                }
                out.extend_from_slice(br#","content":"#);
                grown::json(text, out);
                Place::Open(Role::User, Last::Markable)
            }
            Item::Assistant { text, calls, wired } => {
                let mut place = place;
                for block in said(&self.full, text, calls, wired.as_ref().filter(|_| !self.left.has(&Part::Thoughts))) {
                    place = match block {
                        Said::Text { text, with: _ } => Self::words(place, Role::Assistant, text, out),
                        Said::Call { call, with } => Self::call(place, call, with, out),
                        Said::Opaque(json) => opaque(place, json, out),
                    };
                }
                place
            }
        }
    }

    fn left(&self) -> Option<Arc<Left>> {
        Some(Arc::clone(&self.left))
    }

    fn foot(&self, prompt: &Prompt, place: Place, out: &mut Vec<u8>) {
        let mut place = place;
        if let Place::Open(role, Last::Markable) = place {
            out.extend_from_slice(MARK);
            out.push(b'}');
            place = Place::Open(role, Last::Closed);
        }
        if let Some(tail) = &prompt.tail {
            place = Self::words(place, Role::User, tail, out);
        }
        if let Place::Open(_, last) = place {
            close(last, out);
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(format!("],\"max_tokens\":{}}}", prompt.max_output).as_bytes());
    }
}
