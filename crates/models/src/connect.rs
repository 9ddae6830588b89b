//! From a model's name and its settings to a model. Everything arrives as a value; nothing is read from the environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use longrein_core::ids::ModelName;
use longrein_core::task::{ModelSpec, Protocol};
use longrein_ports::Model;

use crate::actions::{JsonActions, Wire};
use crate::ollama::Ollama;
use crate::openai::OpenAi;
use crate::script::{ScriptError, ScriptedModel};
use crate::timeouts::Timeouts;

/// Builds the model that `spec` means. No request is made and no connection opened.
pub fn connect(spec: &ModelSpec, config: &ModelConfig) -> Result<Arc<dyn Model>, ConfigError> {
    let Some((provider, model)) = spec.name.as_str().split_once('/').filter(|(_, model)| !model.is_empty()) else {
        return Err(ConfigError::NoProvider { name: spec.name.clone() });
    };
    match provider {
        // A script's calls are calls already.
        "script" => Ok(Arc::new(ScriptedModel::open(&config.base_folder.join(model))?)),
        "openai" => Ok(spoken(spec.protocol, OpenAi::new(model, spec, config)?)),
        "ollama" => Ok(spoken(spec.protocol, Ollama::new(model, spec, config)?)),
        _ if LATER.contains(&provider) => Err(ConfigError::NotYet { provider: provider.to_owned() }),
        _ => Err(ConfigError::UnknownProvider { provider: provider.to_owned() }),
    }
}

fn spoken<W: Wire + Model + 'static>(protocol: Protocol, wire: W) -> Arc<dyn Model> {
    match protocol {
        Protocol::Native => Arc::new(wire),
        Protocol::Json => Arc::new(JsonActions::over(wire)),
    }
}

/// How a model is reached: what a run does not keep, and may be another thing tomorrow.
#[derive(Debug, Clone, Default)]
pub struct ModelConfig {
    /// Where the server is: for `openai/` up to and with `/v1`, for `ollama/` anything `OLLAMA_HOST` may be. The
    /// provider's own address if absent.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    /// None: as suits the provider and its place.
    pub timeouts: Option<Timeouts>,
    /// What a relative script path is relative to; empty: the working directory.
    pub base_folder: PathBuf,
}

/// A text that is never shown: `Debug` prints a placeholder, there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. The caller sees to it that it goes nowhere but to its provider.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why there is no such model: configuration to be mended by a person.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("model \"{name}\" has no provider: write PROVIDER/NAME, where PROVIDER is one of {}", known())]
    NoProvider { name: ModelName },
    #[error("unknown model provider \"{provider}\": known are {}", known())]
    UnknownProvider { provider: String },
    #[error(
        "model provider \"{provider}\" is not supported yet; openai/NAME with a base_url reaches any compatible server"
    )]
    NotYet { provider: String },
    #[error("the base URL \"{url}\" cannot be used: {problem}")]
    BaseUrl { url: String, problem: String },
    #[error("the Ollama server \"{host}\" cannot be used: {problem}; write HOST, HOST:PORT or http://HOST:PORT")]
    OllamaHost { host: String, problem: String },
    #[error("api.openai.com needs an API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server")]
    NoKey,
    /// The key itself is not shown.
    #[error("the API key holds characters that no HTTP header can carry: check how it was set")]
    BadKey,
    #[error(transparent)]
    Script(#[from] ScriptError),
}

const LATER: [&str; 3] = ["anthropic", "openai-responses", "gemini"];

fn known() -> String {
    format!("openai, ollama, script (and later {})", LATER.join(", "))
}
