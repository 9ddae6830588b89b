//! Anthropic's Messages, as spoken by Anthropic and by servers that are compatible with it.
//!
//! [`encode`] and [`decode`] are pure; the client moves bytes and counts time. Thoughts are kept with their signatures for
//! the next requests to the same model, and for nobody else.

pub mod decode;
pub mod encode;

use std::sync::Arc;

use bytes::Bytes;
use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, ModelFailure, Reply, WireBlock, Wired};
use longrein_core::prompt::Prompt;
use longrein_core::task::ModelSpec;
use longrein_ports::{BoxFuture, Encoded, Listener, Model};

use crate::blocks::fitting;
use crate::connect::{ConfigError, ModelConfig};
use crate::grown::Grown;
use crate::http::{self, Client, KeyIn};
use crate::leaving::{Leaving, Part};
use crate::telling::Deaf;

use decode::Decoder;
use encode::{Messages, Place};

/// A model behind a Messages server.
pub struct Anthropic {
    messages: Messages,
    grown: Grown<Place>,
    leaving: Leaving,
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
        Ok(Self {
            messages: Messages::new(model, temperature),
            grown: Grown::default(),
            leaving: Leaving::default(),
            client,
        })
    }
}

/// What a server may do without.
const ABLE: &[Part] = &[Part::Temperature, Part::Thoughts];

impl Model for Anthropic {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let left = self.leaving.now();
        self.grown.encode(&self.messages.without(Arc::clone(&left)), &left.offered(prompt))
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
            let mut reply = self.attempt(&request.bytes, listener).await?;
            let mut body = request.bytes;
            // The provider lets go of a long turn with tools of its own, and wants it back as it is to go on with it.
            for _ in 0..PAUSES_MAX {
                let Some(more) = encode::going_on(&body, &reply) else { break };
                body = more.into();
                reply = match self.attempt(&body, listener).await {
                    Ok(rest) => joined(reply, rest),
                    Err(failure) => {
                        let usage = both(reply.usage, failure.usage);
                        return Err(ModelFailure { usage, billing: Billing::Perhaps, ..failure });
                    }
                };
            }
            Ok(reply)
        })
    }
}

impl Anthropic {
    async fn attempt(&self, body: &Bytes, listener: &dyn Listener) -> Result<Reply, ModelFailure> {
        let sent = self.client.attempt::<Decoder>(body.clone(), listener).await;
        let mut reply = sent.map_err(|failure| self.leaving.heed(failure, body, ABLE))?;
        http::claim(&mut reply, self.messages.full_name());
        Ok(reply)
    }
}

/// How often a reply is gone on with. Each costs its prompt again.
const PAUSES_MAX: u32 = 8;

fn both(first: Option<Usage>, rest: Option<Usage>) -> Option<Usage> {
    let mut sum = first.or(rest)?;
    if let (Some(_), Some(rest)) = (first, rest) {
        sum.add(&rest);
    }
    Some(sum)
}

/// A reply in two parts as one.
fn joined(first: Reply, rest: Reply) -> Reply {
    let model = [&first.wired, &rest.wired].into_iter().flatten().map(|wired| wired.model.clone()).next();
    let blocks = [&first, &rest].into_iter().flat_map(|part| match &part.wired {
        Some(wired) => wired.blocks.clone(),
        None => {
            let words = u32::try_from(part.text.len()).ok().filter(|bytes| *bytes > 0).map(WireBlock::Text);
            words.into_iter().chain(part.calls.iter().map(|_| WireBlock::Call)).collect()
        }
    });
    let wired = model.map(|model| Wired { model, blocks: blocks.collect() });
    let usage = both(first.usage, rest.usage);
    let text = first.text + &rest.text;
    let wired = fitting(wired, &text, rest.calls.len());
    Reply { text, usage, wired, ..rest }
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
