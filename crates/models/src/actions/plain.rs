//! A conversation in plain messages: what calls were made and what came of them is text, in the roles that every chat
//! model knows.
//!
//! Roles alternate, since the templates of many models insist on it: what one side says in several pieces is one message.
//! A message is closed only when the other side speaks or the request ends, so a longer conversation still begins with
//! the very bytes of a shorter one.

use std::sync::Arc;

use longrein_core::image::Images;
use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt, WireCall};
use serde::Serialize;

use crate::grown::{self, Spelling};
use crate::leaving::Left;

use super::shape::Final;
use super::{Constraint, Envelope, shape, words};

pub(super) struct Plain<'a, E> {
    pub(super) wire: &'a E,
    pub(super) constraint: &'a Constraint,
}

/// Where in the list of messages we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Empty,
    /// Inside the content of a message.
    Saying(Role),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    System,
    User,
    Assistant,
}

impl<E: Envelope> Spelling for Plain<'_, E> {
    type Place = Place;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> Place {
        self.wire.open(out);
        out.extend_from_slice(br#","messages":["#);
        say(Place::Empty, Role::System, &words::system(prompt), out)
    }

    fn item(&self, prompt: &Prompt, place: Place, item: &Item, out: &mut Vec<u8>) -> Place {
        match item {
            Item::User(text) | Item::Harness(text) => say(place, Role::User, text, out),
            // The protocol has text alone.
            Item::Pictured { text, images } | Item::Exhibit { text, images } => {
                say(place, Role::User, &Images::NotTaken.words(text, images), out)
            }
            Item::Assistant { text, calls, wired: _ } => {
                say(place, Role::Assistant, &said(text, calls, &prompt.answer), out)
            }
            Item::Observation { call: _, action: _, tool: _, text, verdict: _ } => {
                say(place, Role::User, &words::result(text), out)
            }
        }
    }

    fn left(&self) -> Option<Arc<Left>> {
        self.wire.left()
    }

    fn foot(&self, prompt: &Prompt, place: Place, out: &mut Vec<u8>) {
        let place = match &prompt.tail {
            Some(tail) => say(place, Role::User, tail, out),
            None => place,
        };
        if place != Place::Empty {
            out.extend_from_slice(br#""}"#);
        }
        out.push(b']');
        let form = self.constraint.is_asked_for().then(|| shape::reply(&prompt.tools, &prompt.answer));
        self.wire.close(prompt, form.as_ref(), out);
    }
}

/// Adds to the message of `role`, which is begun if another one was being written.
fn say(place: Place, role: Role, text: &str, out: &mut Vec<u8>) -> Place {
    match place {
        Place::Saying(speaker) if speaker == role => out.extend_from_slice(br"\n\n"),
        Place::Saying(_) | Place::Empty => {
            if place != Place::Empty {
                out.extend_from_slice(br#""},"#);
            }
            out.extend_from_slice(br#"{"role":"#);
            grown::json(&role, out);
            out.extend_from_slice(br#","content":""#);
        }
    }
    let mut quoted = Vec::with_capacity(text.len() + 2);
    grown::json(text, &mut quoted);
    out.extend_from_slice(&quoted[1..quoted.len() - 1]);
    Place::Saying(role)
}

/// What the model said, in the form it is to keep to, whatever form it came in.
fn said(text: &str, calls: &[WireCall], answer: &AnswerForm) -> String {
    if calls.is_empty() {
        return Final::of(answer).spell(text);
    }
    // Another model may have made several calls at once, before this one took over.
    calls.iter().map(spell).collect::<Vec<_>>().join("\n")
}

fn spell(call: &WireCall) -> String {
    #[derive(Serialize)]
    struct Call<'a> {
        kind: &'static str,
        name: &'a str,
        arguments: Payload,
    }
    let arguments = Payload::parse(call.arguments.as_str()).unwrap_or_else(|_| words::nothing());
    let call = Call { kind: "tool", name: &call.name, arguments };
    serde_json::to_string(&call).expect("texts and payloads always serialise")
}
