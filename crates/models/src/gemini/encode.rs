//! From a prompt to the bytes of a `generateContent` request.
//!
//! Roles alternate, so what one side says in several items is one content of several parts. Results go back under the name
//! of their tool, and under the id of their call, which the provider may not have given.

use longrein_core::image::Media;
use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt, Told};
use longrein_ports::Encoded;
use serde::Serialize;

use crate::blocks::{Said, beside, said};
use crate::grown::{self, Grown, Spelling};
use crate::pictures::{Pictures, base64};

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

pub(super) struct Contents {
    /// As a reply's own blocks name it; the request says it in its address.
    full: String,
    temperature: Option<f64>,
}

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
        Self { full: super::full_name(model), temperature }
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
            parameters: &'a Payload,
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
                parameters: &tool.parameters,
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
                grown::json(&Answered { id: call, name: tool.as_str(), response }, out);
                out.push(b'}');
                place
            }
            Item::Assistant { text, calls, wired } => {
                let mut place = place;
                for block in said(&self.full, text, calls, wired.as_ref()) {
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

    fn foot(&self, prompt: &Prompt, place: Place, out: &mut Vec<u8>) {
        let place = match &prompt.tail {
            Some(tail) => words(place, Role::User, tail, None, out),
            None => place,
        };
        if place != Place::Empty {
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(format!("],\"generationConfig\":{{\"maxOutputTokens\":{}", prompt.max_output).as_bytes());
        if let Some(temperature) = self.temperature {
            out.extend_from_slice(br#","temperature":"#);
            grown::json(&temperature, out);
        }
        out.extend_from_slice(b"}}");
    }
}
