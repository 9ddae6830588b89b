//! OpenAI's Responses, as spoken by OpenAI and by servers that are compatible with it.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time.

pub mod decode;
pub mod encode;

use std::sync::Arc;

use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::connect::{ConfigError, ModelConfig};
use crate::grown::{Grown, List};
use crate::http::{self, Client, KeyIn};
use crate::leaving::{Leaving, Part};
use crate::telling::Deaf;

use decode::Decoder;
use encode::Input;

/// A model behind a Responses server.
pub struct Responses {
    input: Input,
    grown: Grown<List>,
    leaving: Leaving,
    client: Client,
}

impl Responses {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, spec: &ModelSpec, config: &ModelConfig) -> Result<Self, ConfigError> {
        let client = client(config)?;
        if client.url().host_str() == Some(crate::openai::OPENAI_HOST) && !client.has_key() {
            return Err(ConfigError::NoKey);
        }
        let temperature = spec.temperature.map(longrein_core::task::Temperature::number);
        Ok(Self { input: Input::new(model, temperature), grown: Grown::default(), leaving: Leaving::default(), client })
    }
}

/// What a server may do without.
const ABLE: &[Part] = &[Part::Temperature, Part::Thoughts];

impl Model for Responses {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let left = self.leaving.now();
        self.grown.encode(&self.input.without(Arc::clone(&left)), &left.offered(prompt))
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
            let sent = self.client.attempt::<Decoder>(request.bytes.clone(), listener).await;
            let mut reply = sent.map_err(|failure| self.leaving.heed(failure, &request.bytes, ABLE))?;
            http::claim(&mut reply, self.input.full_name());
            Ok(reply)
        })
    }
}

fn full_name(model: &str) -> String {
    format!("openai-responses/{model}")
}

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let base = config.base_url.as_deref().unwrap_or(crate::openai::OPENAI_BASE_URL);
    Client::of(http::endpoint(base, PATH, None)?, KeyIn::Bearer, config, &[])
}

/// Behind the base URL.
pub(crate) const PATH: &str = "/responses";
