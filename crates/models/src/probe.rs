//! Whether a provider's server answers, and what it has: one small question with a short deadline.

use std::time::Duration;

use longrein_core::ids::ModelName;
use serde_json::Value;

use crate::connect::{ConfigError, ModelConfig};
use crate::{ollama, openai};

/// What a server said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answering {
    /// It answers, and has these models, by the names it knows them by.
    Lists(Vec<String>),
    /// It answers, but not with a list of models.
    Otherwise(String),
    /// It cannot be reached, or says nothing in time: why, for people.
    Silent(String),
}

/// Where a model's server is, for people: without what an address may hold of names, passwords and keys. A script has
/// none.
pub fn endpoint(name: &ModelName, config: &ModelConfig) -> Result<Option<String>, ConfigError> {
    let (url, end) = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai") => (openai::client(config)?.url().clone(), "/chat/completions"),
        Some("ollama") => (ollama::client(config)?.url().clone(), "/api/chat"),
        Some(_) | None => return Ok(None),
    };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    Ok(Some(format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches(end))))
}

/// Asks the server behind a model what it has, within `limit`. A script has no server.
pub async fn probe(name: &ModelName, config: &ModelConfig, limit: Duration) -> Result<Option<Answering>, ConfigError> {
    let (client, url, key) = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai") => {
            let client = openai::client(config)?;
            let mut url = client.url().clone();
            url.set_path(&url.path().replace("/chat/completions", "/models"));
            (client, url, "data")
        }
        Some("ollama") => (ollama::client(config)?, ollama::listing(config)?, "models"),
        Some(_) | None => return Ok(None),
    };
    let answering = match client.get(url, limit).await {
        Ok(body) => match serde_json::from_slice::<Value>(&body).ok().and_then(|listing| names(&listing, key)) {
            Some(names) => Answering::Lists(names),
            None => Answering::Otherwise("it answers, but lists no models".to_owned()),
        },
        Err(failure) if failure.status.is_some() => Answering::Otherwise(failure.message),
        Err(failure) => Answering::Silent(failure.message),
    };
    Ok(Some(answering))
}

/// The names in a listing: `data[].id` of OpenAI, `models[].name` of Ollama.
fn names(listing: &Value, key: &str) -> Option<Vec<String>> {
    let list = listing.get(key)?.as_array()?;
    let name = |entry: &Value| ["id", "name"].iter().find_map(|key| entry.get(key)?.as_str().map(str::to_owned));
    Some(list.iter().filter_map(name).collect())
}
