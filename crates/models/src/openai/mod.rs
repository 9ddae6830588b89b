//! OpenAI's Chat Completions, as spoken by OpenAI and by any compatible server.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Thoughts and signatures that
//! servers want back are kept for the next requests to the same model (`decode/reasoning.rs`), other thoughts for the record.

pub mod decode;
pub mod encode;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use longrein_core::outcome::{ModelErrorClass, ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::actions::{Envelope, Wire};
use crate::connect::{ConfigError, ModelConfig};
use crate::grown::{Grown, List};
use crate::http::{self, Client, KeyIn};
use crate::telling::Deaf;

use decode::Decoder;
use encode::{Chat, OutputLimit};

/// A model behind a Chat Completions server.
pub struct OpenAi {
    chat: Chat,
    grown: Grown<List>,
    /// For a server that does not take thoughts back.
    plain: Chat,
    plain_grown: Grown<List>,
    refuses_thoughts: AtomicBool,
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
        Ok(Self {
            plain: chat.plain(),
            chat,
            grown: Grown::default(),
            plain_grown: Grown::default(),
            refuses_thoughts: AtomicBool::new(false),
            client,
        })
    }

    /// A server that names the field it will not have is not sent it again by this process: the next attempt is another
    /// request.
    fn heed(&self, mut failure: ModelFailure) -> ModelFailure {
        let message = failure.message.to_lowercase();
        let is_refusal = failure.class == ModelErrorClass::BadRequest
            && THOUGHT_FIELDS.iter().any(|field| message.contains(field))
            && !message.contains("missing");
        if is_refusal && !self.refuses_thoughts.swap(true, Ordering::Relaxed) {
            failure.class = ModelErrorClass::Transient;
            failure.message.push_str("; tried again without the thoughts of earlier replies");
        }
        failure
    }
}

impl Model for OpenAi {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        if self.refuses_thoughts.load(Ordering::Relaxed) {
            self.plain_grown.encode(&self.plain, prompt)
        } else {
            self.grown.encode(&self.chat, prompt)
        }
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
            let sent = self.client.attempt::<Decoder>(body, listener).await;
            let mut reply = sent.map_err(|failure| self.heed(failure))?;
            http::claim(&mut reply, self.chat.full_name());
            Ok(reply)
        })
    }
}

impl Envelope for OpenAi {
    fn open(&self, out: &mut Vec<u8>) {
        self.chat.open(out);
    }

    fn close(&self, prompt: &Prompt, form: Option<&Payload>, out: &mut Vec<u8>) {
        self.chat.close(prompt, form, out);
    }
}

fn full_name(model: &str) -> String {
    format!("openai/{model}")
}

/// What carries thoughts and signatures in a request.
const THOUGHT_FIELDS: [&str; 3] = ["reasoning_content", "reasoning_details", "extra_content"];

/// Where OpenAI itself is.
pub(crate) const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
pub(crate) const OPENAI_HOST: &str = "api.openai.com";

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let base = config.base_url.as_deref().unwrap_or(OPENAI_BASE_URL);
    Client::of(http::endpoint(base, PATH, None)?, KeyIn::Bearer, config, &[])
}

/// Behind the base URL.
pub(crate) const PATH: &str = "/chat/completions";
