//! The JSON action protocol, for models that know no tools: each reply is one JSON object, `{"kind":"tool","name":…,
//! "arguments":{…}}` or `{"kind":"final",…answer}`.
//!
//! Read [`JsonActions`] first: it lies between the prompt and a provider's wire. The system text explains tools and form
//! ([`words`]), the server is asked to hold the model to a schema ([`shape`]) where it can, and every reply is read
//! strictly all the same ([`read`]). What it refuses to do is guess: a reply that is anything else than one such object
//! is malformed as a whole, nothing of it is run, and the model is told once (`semantics.md` D10).

mod plain;
pub mod read;
mod repair;
mod shape;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use longrein_core::outcome::{ModelErrorClass, ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::blocks::fitting;
use crate::grown::Grown;
use crate::leaving::Left;
use crate::telling::{Deaf, Telling, Thoughts};

use plain::{Place, Plain};

/// What of a request lies around its messages.
pub(crate) trait Envelope: Send + Sync {
    /// From the first byte to the messages; no tools, no comma at the end.
    fn open(&self, out: &mut Vec<u8>);
    /// From the messages to the last byte. `form`: the schema that the server is to hold the reply to.
    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>);
    /// What of it this server will not have.
    fn left(&self) -> Option<Arc<Left>> {
        None
    }
}

/// A provider's wire: how messages are put and replies are read.
pub(crate) trait Wire: Envelope {
    /// One attempt with these bytes.
    fn attempt<'a>(&'a self, body: Bytes, listener: &'a dyn Listener) -> BoxFuture<'a, Result<Reply, ModelFailure>>;
}

/// A model that is spoken to by the JSON action protocol.
pub(crate) struct JsonActions<W> {
    wire: W,
    grown: Grown<Place>,
    constraint: Constraint,
}

impl<W: Wire> JsonActions<W> {
    pub(crate) fn over(wire: W) -> Self {
        Self { wire, grown: Grown::default(), constraint: Constraint::default() }
    }

    /// What is told of a reply before it is whole are thoughts: its JSON is no text for anybody.
    async fn exchange(&self, request: Encoded, listener: &dyn Listener) -> Result<Reply, ModelFailure> {
        let Encoded { bytes, answer, .. } = request;
        match self.wire.attempt(bytes, &Thoughts(listener)).await {
            Ok(reply) => {
                let mut reply = read::read(reply, &answer)?;
                // Here nothing goes back but the object itself.
                reply.wired = fitting(reply.wired.take(), &reply.text, reply.calls.len());
                Telling::to(listener).settle(&reply);
                Ok(reply)
            }
            Err(failure) => Err(self.constraint.heed(failure)),
        }
    }
}

impl<W: Wire> Model for JsonActions<W> {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&Plain { wire: &self.wire, constraint: &self.constraint }, prompt)
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        self.send_heard(request, &Deaf)
    }

    fn send_heard<'a>(
        &'a self,
        request: Encoded,
        listener: &'a dyn Listener,
    ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(self.exchange(request, listener))
    }
}

/// Whether the server is asked to hold replies to a schema. One that says it cannot is not asked again by this process:
/// the next attempt is another request, without the schema, and as good, since every reply is checked in any case.
#[derive(Debug, Default)]
pub(crate) struct Constraint {
    refused: AtomicBool,
}

impl Constraint {
    pub(crate) fn is_asked_for(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Makes a refusal of the schema one that passes.
    pub(crate) fn heed(&self, mut failure: ModelFailure) -> ModelFailure {
        let message = failure.message.to_lowercase();
        let is_refusal = matches!(failure.class, ModelErrorClass::BadRequest | ModelErrorClass::Transient)
            && failure.status.is_some()
            && REFUSES_SCHEMA.iter().any(|words| message.contains(words));
        if is_refusal && !self.refused.swap(true, Ordering::Relaxed) {
            failure.class = ModelErrorClass::Transient;
            failure.message.push_str("; tried again without a schema for the reply");
        }
        failure
    }
}

/// How servers say that they cannot hold a reply to a schema, or not to this one.
const REFUSES_SCHEMA: &[&str] = &[
    "response_format",
    "response format",
    "json_schema",
    "json schema",
    "structured output",
    "grammar",
    "guided",
    "chatrequest.format",
    "invalid format",
    "required for format",
];
