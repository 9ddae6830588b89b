//! OpenAI's Chat Completions, as spoken by OpenAI and by any compatible server.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Reasoning texts that some servers send
//! beside the answer are not kept.

pub mod decode;
pub mod encode;

use bytes::Bytes;
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Model};
use reqwest::Url;

use crate::actions::{Envelope, Wire};
use crate::connect::{ConfigError, ModelConfig};
use crate::grown::{Grown, List};
use crate::http::{Client, is_loopback};
use crate::timeouts::Timeouts;

use decode::Decoder;
use encode::{Chat, OutputLimit};

/// A model behind a Chat Completions server.
pub struct OpenAi {
    chat: Chat,
    grown: Grown<List>,
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
        Ok(Self { chat: Chat::new(model, limit, temperature), grown: Grown::default(), client })
    }
}

impl Model for OpenAi {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&self.chat, prompt)
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        self.attempt(request.bytes)
    }
}

impl Wire for OpenAi {
    fn attempt(&self, body: Bytes) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(self.client.attempt::<Decoder>(body))
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

/// Where OpenAI itself is.
const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
const OPENAI_HOST: &str = "api.openai.com";

pub(crate) fn client(config: &ModelConfig) -> Result<Client, ConfigError> {
    let url = endpoint(config.base_url.as_deref().unwrap_or(OPENAI_BASE_URL))?;
    let timeouts = config
        .timeouts
        .clone()
        .unwrap_or_else(|| if is_loopback(&url) { Timeouts::local() } else { Timeouts::default() });
    Client::new(url, config.api_key.as_ref(), timeouts, "is the base URL right, is the server up?")
}

fn endpoint(base: &str) -> Result<Url, ConfigError> {
    let bad = |problem: &str| ConfigError::BaseUrl { url: base.to_owned(), problem: problem.to_owned() };
    const FORM: &str = "it must begin with http:// or https://: write http://HOST:PORT/v1";
    if !base.contains("://") {
        return Err(bad(FORM));
    }
    let mut url = Url::parse(base.trim()).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(FORM));
    }
    let path = url.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
    url.set_path(&format!("{path}/chat/completions"));
    Ok(url)
}
