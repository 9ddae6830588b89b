//! From a prompt to the bytes of a `generateContent` request.
//!
//! Roles alternate, so what one side says in several items is one content of several parts. Results go back under the name
//! of their tool, and under the id of their call, which the provider may not have given.

use std::borrow::Cow;
use std::sync::Arc;

use longrein_core::image::Media;
use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt, Told, wire_name};
use longrein_ports::Encoded;
use serde::Serialize;

use crate::blocks::{Said, beside, said};
use crate::grown::{self, Grown, Spelling};
use crate::leaving::{Left, Part};
use crate::pictures::{Pictures, base64};
use crate::schema;

/// An encoder of one model. It remembers the bytes of its last prompt; the result never depends on that.
pub struct Encoder {
    spelling: Contents,
    grown: Grown<Place>,
}

impl Encoder {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, temperature: Option<f64>) -> Self {
        Self { spelling: Contents::new(model, temperature), grown: Grown::default() }
    }

    pub fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.spelling, prompt)
    }
}

#[derive(Clone)]
pub(super) struct Contents {
    /// As a reply's own blocks name it; the request says it in its address.
    full: String,
    temperature: Option<f64>,
    signs: Signs,
    left: Arc<Left>,
}

/// Whether the model wants a signature with its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signs {
    Always,
    /// As far as its name tells.
    Perhaps,
}

impl Signs {
    /// Since its third generation.
    fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let generation =
            name.strip_prefix("gemini-").and_then(|rest| rest.split(['-', '.']).next()?.parse::<u32>().ok());
        if generation.is_some_and(|generation| generation >= 3) { Signs::Always } else { Signs::Perhaps }
    }
}

/// What stands for the signature of a call that this model did not make, by the provider's own documentation. Of calls that
/// were made together the first bears it.
const OF_ANOTHER: &[u8] = br#","thoughtSignature":"skip_thought_signature_validator""#;

/// Where in the list of contents we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Empty,
    /// Behind a part of this side's content.
    Saying(Role),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Model,
}

impl Contents {
    pub(super) fn new(model: &str, temperature: Option<f64>) -> Self {
        Self { full: super::full_name(model), temperature, signs: Signs::of(model), left: Arc::default() }
    }

    /// The same without what its server will not have.
    pub(super) fn without(&self, left: Arc<Left>) -> Self {
        Self { left, ..self.clone() }
    }

    pub(super) fn full_name(&self) -> &str {
        &self.full
    }
}

/// Why a kind of image is not sent: a request with one that the provider does not know is refused as a whole.
fn not_carried(media: Media) -> Option<&'static str> {
    match media {
        Media::Png | Media::Jpeg | Media::Webp => None,
        Media::Gif => Some("this model takes no gif"),
    }
}

/// Begins a part of `role`.
fn turn(place: Place, role: Role, out: &mut Vec<u8>) -> Place {
    match place {
        Place::Saying(speaker) if speaker == role => out.push(b','),
        Place::Saying(_) | Place::Empty => {
            if place != Place::Empty {
                out.extend_from_slice(b"]},");
            }
            out.extend_from_slice(br#"{"role":"#);
            grown::json(&role, out);
            out.extend_from_slice(br#","parts":["#);
        }
    }
    Place::Saying(role)
}

fn words(place: Place, role: Role, text: &str, with: Option<&Payload>, out: &mut Vec<u8>) -> Place {
    // An empty part says nothing, unless it carries a signature.
    if text.is_empty() && with.is_none() {
        return place;
    }
    let place = turn(place, role, out);
    out.extend_from_slice(br#"{"text":"#);
    grown::json(text, out);
    beside(with, out);
    out.push(b'}');
    place
}

impl Spelling for Contents {
    type Place = Place;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> Place {
        #[derive(Serialize)]
        struct Declared<'a> {
            name: &'a str,
            description: &'a str,
            #[serde(rename = "parametersJsonSchema")]
            parameters: Cow<'a, Payload>,
        }
        out.push(b'{');
        if !prompt.system.is_empty() {
            out.extend_from_slice(br#""systemInstruction":{"parts":[{"text":"#);
            grown::json(&*prompt.system, out);
            out.extend_from_slice(b"}]},");
        }
        if !prompt.tools.is_empty() {
            let declared = prompt.tools.iter().map(|tool| Declared {
                name: tool.name.as_str(),
                description: &tool.description,
                parameters: schema::plain(&tool.parameters),
            });
            out.extend_from_slice(br#""tools":[{"functionDeclarations":"#);
            grown::json(&declared.collect::<Vec<_>>(), out);
            out.extend_from_slice(b"}],");
        }
        out.extend_from_slice(br#""contents":["#);
        Place::Empty
    }

    fn item(&self, prompt: &Prompt, place: Place, item: &Item, out: &mut Vec<u8>) -> Place {
        #[derive(Serialize)]
        struct Answered<'a> {
            id: &'a str,
            name: &'a str,
            response: Response<'a>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Response<'a> {
            Output(&'a str),
            Error(&'a str),
        }
        #[derive(Serialize)]
        struct Called<'a> {
            id: &'a str,
            name: &'a str,
        }
        match item {
            Item::User(text) | Item::Harness(text) => words(place, Role::User, text, None, out),
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                let pictures = Pictures::but(text, images, &prompt.images, not_carried);
                let mut place = words(place, Role::User, &pictures.words, None, out);
                for (media, bytes) in &pictures.sent {
                    place = turn(place, Role::User, out);
                    out.extend_from_slice(br#"{"inlineData":{"mimeType":"#);
                    grown::json(media.mime(), out);
                    out.extend_from_slice(br#","data":""#);
                    base64(bytes, out);
                    out.extend_from_slice(br#""}}"#);
                }
                place
            }
            Item::Observation { call, action: _, tool, text, verdict } => {
                let place = turn(place, Role::User, out);
                let response = match verdict {
                    Told::Ok => Response::Output(text),
                    Told::Error => Response::Error(text),
                };
                out.extend_from_slice(br#"{"functionResponse":"#);
                grown::json(&Answered { id: call, name: &wire_name(tool.as_str()), response }, out);
                out.push(b'}');
                place
            }
            Item::Assistant { text, calls, wired } => {
                let mut place = place;
                let mut owes_signature = self.signs == Signs::Always || self.left.has(&Part::UnsignedCalls);
                for block in said(&self.full, text, calls, wired.as_ref().filter(|_| !self.left.has(&Part::Thoughts))) {
                    place = match block {
                        Said::Text { text, with } => words(place, Role::Model, text, with, out),
                        Said::Call { call, with } => {
                            let place = turn(place, Role::Model, out);
                            out.extend_from_slice(br#"{"functionCall":"#);
                            grown::json(&Called { id: &call.id, name: &call.name }, out);
                            // The object is open again for its arguments, which are JSON already.
                            out.pop();
                            out.extend_from_slice(br#","args":"#);
                            out.extend_from_slice(call.arguments.trim().as_bytes());
                            out.push(b'}');
                            beside(with, out);
                            let is_signed = with.is_some_and(|with| with.as_str().contains("\"thoughtSignature\""));
                            if std::mem::take(&mut owes_signature) && !is_signed {
                                out.extend_from_slice(OF_ANOTHER);
                            }
                            out.push(b'}');
                            place
                        }
                        Said::Opaque(json) => {
                            let place = turn(place, Role::Model, out);
                            out.extend_from_slice(json.as_str().as_bytes());
                            place
                        }
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
        let place = match &prompt.tail {
            Some(tail) => words(place, Role::User, tail, None, out),
            None => place,
        };
        if place != Place::Empty {
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(format!("],\"generationConfig\":{{\"maxOutputTokens\":{}", prompt.max_output).as_bytes());
        if let Some(temperature) = self.temperature.filter(|_| !self.left.has(&Part::Temperature)) {
            out.extend_from_slice(br#","temperature":"#);
            grown::json(&temperature, out);
        }
        out.extend_from_slice(b"}}");
    }
}
