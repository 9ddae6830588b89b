//! OpenAI's Chat Completions, as spoken by OpenAI and by any compatible server.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Thoughts and signatures that
//! servers want back are kept for the next requests to the same model (`decode/reasoning.rs`), other thoughts for the record.

pub mod decode;
pub mod encode;

use std::sync::Arc;

use bytes::Bytes;
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::actions::{Envelope, Wire};
use crate::connect::{ConfigError, ModelConfig};
use crate::grown::{Grown, List};
use crate::http::{self, Client, KeyIn};
use crate::leaving::{Leaving, Left, Part};
use crate::telling::Deaf;

use decode::Decoder;
use encode::{Chat, OutputLimit};

/// A model behind a Chat Completions server.
pub struct OpenAi {
    chat: Chat,
    grown: Grown<List>,
    leaving: Leaving,
    client: Client,
}

impl OpenAi {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, spec: &ModelSpec, config: &ModelConfig) -> Result<Self, ConfigError> {
        let client = client(config)?;
        let is_openai = client.url().host_str() == Some(OPENAI_HOST);
        if is_openai && !client.has_key() {
            return Err(ConfigError::NoKey);
        }
        // OpenAI's newer models refuse the old name; other servers know nothing but it.
        let limit = if is_openai { OutputLimit::MaxCompletionTokens } else { OutputLimit::MaxTokens };
        let temperature = spec.temperature.map(longrein_core::task::Temperature::number);
        let chat = Chat::new(model, limit, temperature);
        Ok(Self { chat, grown: Grown::default(), leaving: Leaving::default(), client })
    }

    fn spelled(&self) -> Chat {
        self.chat.without(self.leaving.now())
    }
}

/// What a server may do without.
const ABLE: &[Part] = &[Part::OutputLimit, Part::StreamOptions, Part::Temperature, Part::Thoughts];

impl Model for OpenAi {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let left = self.leaving.now();
        self.grown.encode(&self.chat.without(Arc::clone(&left)), &left.offered(prompt))
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        self.send_heard(request, &Deaf)
    }

    fn send_heard<'a>(
        &'a self,
        request: Encoded,
        listener: &'a dyn Listener,
    ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        self.attempt(request.bytes, listener)
    }
}

impl Wire for OpenAi {
    fn attempt<'a>(&'a self, body: Bytes, listener: &'a dyn Listener) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            let sent = self.client.attempt::<Decoder>(body.clone(), listener).await;
            let mut reply = sent.map_err(|failure| self.leaving.heed(failure, &body, ABLE))?;
            http::claim(&mut reply, self.chat.full_name());
            Ok(reply)
        })
    }
}

impl Envelope for OpenAi {
    fn open(&self, out: &mut Vec<u8>) {
        self.spelled().open(out);
    }

    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>) {
        self.spelled().close(prompt, form, out);
    }

    fn left(&self) -> Option<Arc<Left>> {
        Some(self.leaving.now())
    }
}

fn full_name(model: &str) -> String {
    format!("openai/{model}")
}

/// Where OpenAI itself is.
pub(crate) const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
pub(crate) const OPENAI_HOST: &str = "api.openai.com";

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let base = config.base_url.as_deref().unwrap_or(OPENAI_BASE_URL);
    Client::of(http::endpoint(base, PATH, None)?, KeyIn::Bearer, config, &[])
}

/// Behind the base URL.
pub(crate) const PATH: &str = "/chat/completions";
