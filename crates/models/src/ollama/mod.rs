//! Ollama's own chat interface: lines of JSON, arguments that are objects, a context window that each request names.
//!
//! [`encode`] and [`decode`] are pure; the client is the one of all wires. A model's thinking comes in a field of its own
//! and is kept for the record alone. A prompt that does not fit is refused rather than shortened behind our back, as far as the server
//! knows how.

pub mod decode;
pub mod encode;
mod host;

use bytes::Bytes;
use longrein_core::outcome::{ModelErrorClass, ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};
use reqwest::Url;

use crate::actions::{Constraint, Envelope, Wire};
use crate::connect::{ConfigError, ModelConfig};
use crate::grown::{Grown, List};
use crate::http::{Client, KeyIn};
use crate::telling::Deaf;
use crate::timeouts::Timeouts;

use decode::Decoder;
use encode::Chat;

/// A model behind an Ollama server.
pub struct Ollama {
    chat: Chat,
    constraint: Constraint,
    grown: Grown<List>,
    client: Client,
    model: String,
}

impl Ollama {
    /// `model` is the name the server knows it by, with or without a tag.
    pub fn new(model: &str, spec: &ModelSpec, config: &ModelConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            chat: Chat::new(model, spec.temperature, spec.context_limit),
            constraint: Constraint::default(),
            grown: Grown::default(),
            client: client(config)?,
            model: model.to_owned(),
        })
    }

    async fn exchange(&self, body: Bytes, listener: &dyn Listener) -> Result<Reply, ModelFailure> {
        self.client.attempt::<Decoder>(body, listener).await.map_err(|failure| self.explained(failure))
    }

    /// Says what can be done about a model that is not there.
    fn explained(&self, mut failure: ModelFailure) -> ModelFailure {
        let is_absent = failure.status == Some(404) && failure.message.contains("not found");
        if is_absent && failure.class == ModelErrorClass::BadRequest {
            failure.message.push_str(&format!("; fetch the model with: ollama pull {}", self.model));
        }
        failure
    }
}

impl Model for Ollama {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let asked = if self.constraint.is_asked_for() { encode::Form::Asked } else { encode::Form::Left };
        self.grown.encode(&encode::Native { chat: &self.chat, form: asked }, prompt)
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        self.send_heard(request, &Deaf)
    }

    fn send_heard<'a>(
        &'a self,
        request: Encoded,
        listener: &'a dyn Listener,
    ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            let sent = self.exchange(request.bytes, listener).await;
            sent.map_err(|failure| self.constraint.heed(failure))
        })
    }
}

impl Wire for Ollama {
    fn attempt<'a>(&'a self, body: Bytes, listener: &'a dyn Listener) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(self.exchange(body, listener))
    }
}

impl Envelope for Ollama {
    fn open(&self, out: &mut Vec<u8>) {
        self.chat.open(out);
    }

    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>) {
        self.chat.close(prompt, form, out);
    }
}

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let url = host::at(&host::root(config.base_url.as_deref())?, "api/chat");
    let timeouts = config.timeouts.clone().unwrap_or_else(Timeouts::local);
    Client::new(url, KeyIn::Bearer, config, &[], timeouts, "is Ollama running, and is OLLAMA_HOST right?")
}

/// Where the server tells what it has.
pub(crate) fn listing(config: &ModelConfig) -> Result<Url, ConfigError> {
    Ok(host::at(&host::root(config.base_url.as_deref())?, "api/tags"))
}
