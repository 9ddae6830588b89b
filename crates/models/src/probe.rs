//! Whether a provider's server answers, and what it has: one small question with a short deadline.

use std::time::Duration;

use longrein_core::ids::ModelName;
use reqwest::Url;
use serde_json::Value;

use crate::connect::{ConfigError, ModelConfig};
use crate::http::{Client, is_loopback};
use crate::timeouts::Timeouts;
use crate::{anthropic, gemini, ollama, openai, responses};

/// What a server said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answering {
    /// It answers, and has these models, by the names it knows them by.
    Lists(Vec<String>),
    /// It answers, but not with a list of models: what it says, and what to look at, for people.
    Otherwise(String),
    /// It cannot be reached, or says nothing in time: why, for people.
    Silent(String),
}

/// Where a model's server is, for people: without what an address may hold of names, passwords and keys. A script has
/// none.
pub fn endpoint(name: &ModelName, config: &ModelConfig) -> Result<Option<String>, ConfigError> {
    let (url, end) = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai") => (openai::client(config)?.url().clone(), openai::PATH),
        Some("ollama") => (ollama::client(config)?.url().clone(), "/api/chat"),
        Some("openai-responses") => (responses::client(config)?.url().clone(), responses::PATH),
        Some("anthropic") => (anthropic::client(config)?.url().clone(), anthropic::PATH),
        Some("gemini") => (gemini::listing(config)?, "/models"),
        Some(_) | None => return Ok(None),
    };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    Ok(Some(format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches(end))))
}

/// How long the phases of a call to this model may take where nobody says otherwise: more where it runs on this machine.
pub fn usual_timeouts(name: &ModelName, config: &ModelConfig) -> Timeouts {
    let is_local = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("ollama") => true,
        Some(_) | None => {
            let place = config.base_url.as_deref().and_then(|base| Url::parse(base).ok());
            place.is_some_and(|url| is_loopback(&url))
        }
    };
    if is_local { Timeouts::local() } else { Timeouts::default() }
}

/// Asks the server behind a model what it has, within `limit`. A script has no server.
pub async fn probe(name: &ModelName, config: &ModelConfig, limit: Duration) -> Result<Option<Answering>, ConfigError> {
    let (client, url, key) = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai") => beside(openai::client(config)?, openai::PATH),
        Some("openai-responses") => beside(responses::client(config)?, responses::PATH),
        Some("anthropic") => beside(anthropic::client(config)?, anthropic::PATH),
        Some("gemini") => (gemini::client("", config)?, gemini::listing(config)?, "models"),
        Some("ollama") => (ollama::client(config)?, ollama::listing(config)?, "models"),
        Some(_) | None => return Ok(None),
    };
    let answering = match client.get(url, limit).await {
        Ok(body) => match serde_json::from_slice::<Value>(&body).ok().and_then(|listing| names(&listing, key)) {
            Some(names) => Answering::Lists(names),
            None => Answering::Otherwise(format!("what answers there lists no models: {}", right(name))),
        },
        Err(failure) if failure.status == Some(404) => {
            Answering::Otherwise(format!("{}: {}", failure.message, right(name)))
        }
        Err(failure) if failure.status.is_some() => Answering::Otherwise(failure.message),
        Err(failure) => Answering::Silent(failure.message),
    };
    Ok(Some(answering))
}

/// What to look at where something else answers.
fn right(name: &ModelName) -> &'static str {
    match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai" | "openai-responses") => "is the base URL right? it usually ends in /v1",
        Some(_) | None => "is the address right?",
    }
}

/// A listing that lies where requests go, under another name.
fn beside(client: Client, path: &str) -> (Client, Url, &'static str) {
    let mut url = client.url().clone();
    let folder = url.path().trim_end_matches(path).to_owned();
    url.set_path(&format!("{folder}/models"));
    (client, url, "data")
}

/// The names in a listing: `data[].id` of OpenAI and Anthropic, `models[].name` of Ollama and Gemini.
fn names(listing: &Value, key: &str) -> Option<Vec<String>> {
    let list = listing.get(key)?.as_array()?;
    let name = |entry: &Value| {
        let name = ["id", "name"].iter().find_map(|key| entry.get(key)?.as_str())?;
        Some(name.trim_start_matches("models/").to_owned())
    };
    Some(list.iter().filter_map(name).collect())
}
