//! OpenAI's Chat Completions, as spoken by OpenAI and by any compatible server.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Reasoning texts that some servers send
//! beside the answer are not kept.

mod client;
pub mod decode;
pub mod encode;

use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::Prompt;
use longrein_ports::{BoxFuture, Encoded, Model};

use crate::connect::{ConfigError, ModelConfig};

use client::Client;
use encode::{Encoder, OutputLimit};

/// A model behind a Chat Completions server.
pub struct OpenAi {
    encoder: Encoder,
    client: Client,
}

impl OpenAi {
    /// `model` is the name the server knows it by.
    pub fn new(model: &str, config: &ModelConfig) -> Result<Self, ConfigError> {
        let client = Client::new(config)?;
        // OpenAI's newer models refuse the old name; other servers know nothing but it.
        let limit = if client.is_openai() { OutputLimit::MaxCompletionTokens } else { OutputLimit::MaxTokens };
        Ok(Self { encoder: Encoder::new(model, limit, config.temperature), client })
    }
}

impl Model for OpenAi {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.encoder.encode(prompt)
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(self.client.attempt(request.bytes))
    }
}
