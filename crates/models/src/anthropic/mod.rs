//! Anthropic's Messages, as spoken by Anthropic and by servers that are compatible with it.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Thoughts are kept with their signatures for
//! the next requests to the same model, and for nobody else.

pub mod decode;
pub mod encode;

use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::connect::{ConfigError, ModelConfig};
use crate::grown::Grown;
use crate::http::{self, Client, KeyIn};
use crate::telling::Deaf;

use decode::Decoder;
use encode::{Messages, Place};

/// A model behind a Messages server.
pub struct Anthropic {
    messages: Messages,
    grown: Grown<Place>,
    client: Client,
}

impl Anthropic {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, spec: &ModelSpec, config: &ModelConfig) -> Result<Self, ConfigError> {
        let client = client(config)?;
        if client.url().host_str() == Some(HOST) && !client.has_key() {
            return Err(ConfigError::NoKeyFor {
                host: HOST,
                variable: "ANTHROPIC_API_KEY",
                base: "ANTHROPIC_BASE_URL",
            });
        }
        let temperature = spec.temperature.map(longrein_core::task::Temperature::number);
        Ok(Self { messages: Messages::new(model, temperature), grown: Grown::default(), client })
    }
}

impl Model for Anthropic {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.messages, prompt)
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
            let mut reply = self.client.attempt::<Decoder>(request.bytes, listener).await?;
            http::claim(&mut reply, self.messages.full_name());
            Ok(reply)
        })
    }
}

fn full_name(model: &str) -> String {
    format!("anthropic/{model}")
}

const BASE_URL: &str = "https://api.anthropic.com/v1";
const HOST: &str = "api.anthropic.com";

/// The version of the interface this module was written for.
const VERSION: &str = "2023-06-01";

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let url = http::endpoint(config.base_url.as_deref().unwrap_or(BASE_URL), PATH, Some("v1"))?;
    let key = KeyIn::Header("x-api-key");
    Client::of(url, key, config, &[("anthropic-version", VERSION)])
}

/// Behind the base URL.
pub(crate) const PATH: &str = "/messages";
