//! Google's Gemini API: `generateContent`, streamed.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Signatures of thoughts are kept beside the
//! parts they came with, for the next requests to the same model.

pub mod decode;
pub mod encode;

use std::sync::Arc;

use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};
use reqwest::Url;

use crate::connect::{ConfigError, ModelConfig};
use crate::grown::Grown;
use crate::http::{self, Client, KeyIn};
use crate::leaving::{Leaving, Part};
use crate::telling::Deaf;

use decode::Decoder;
use encode::{Contents, Place};

/// A model behind the Gemini API.
pub struct Gemini {
    contents: Contents,
    grown: Grown<Place>,
    leaving: Leaving,
    client: Client,
}

impl Gemini {
    /// `model` is the name the API knows it by, with or without `models/`.
    pub fn new(model: &str, spec: &ModelSpec, config: &ModelConfig) -> Result<Self, ConfigError> {
        let client = client(model, config)?;
        if client.url().host_str() == Some(HOST) && !client.has_key() {
            return Err(ConfigError::NoKeyFor { host: HOST, variable: "GEMINI_API_KEY", base: "GEMINI_BASE_URL" });
        }
        let temperature = spec.temperature.map(longrein_core::task::Temperature::number);
        Ok(Self {
            contents: Contents::new(model, temperature),
            grown: Grown::default(),
            leaving: Leaving::default(),
            client,
        })
    }
}

/// What a server may do without.
const ABLE: &[Part] = &[Part::Temperature, Part::UnsignedCalls, Part::Thoughts];

impl Model for Gemini {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let left = self.leaving.now();
        self.grown.encode(&self.contents.without(Arc::clone(&left)), &left.offered(prompt))
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
            http::claim(&mut reply, self.contents.full_name());
            Ok(reply)
        })
    }
}

fn full_name(model: &str) -> String {
    format!("gemini/{model}")
}

const BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";
const HOST: &str = "generativelanguage.googleapis.com";

pub(crate) fn client(model: &str, config: &ModelConfig) -> Result<Client, ConfigError> {
    let mut url = listing(config)?;
    let model = model.trim_start_matches("models/");
    url.set_path(&format!("{}/{model}:streamGenerateContent", url.path()));
    url.set_query(Some("alt=sse"));
    Client::of(url, KeyIn::Header("x-goog-api-key"), config, &[])
}

/// Where the API tells what it has.
pub(crate) fn listing(config: &ModelConfig) -> Result<Url, ConfigError> {
    http::endpoint(config.base_url.as_deref().unwrap_or(BASE_URL), "/models", Some("v1beta"))
}
