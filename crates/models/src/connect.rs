//! From a model's name and its settings to a model. Everything arrives as a value; nothing is read from the environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use longrein_core::ids::ModelName;
use longrein_core::task::{ModelSpec, Protocol};
use longrein_ports::Model;

use crate::actions::{JsonActions, Wire};
use crate::anthropic::Anthropic;
use crate::gemini::Gemini;
use crate::lanes::Lanes;
use crate::ollama::Ollama;
use crate::openai::OpenAi;
use crate::responses::Responses;
use crate::script::{ScriptError, ScriptedModel};
use crate::timeouts::Timeouts;

/// Builds the model that `spec` means. No request is made and no connection opened.
pub fn connect(spec: &ModelSpec, config: &ModelConfig) -> Result<Arc<dyn Model>, ConfigError> {
    let Some((provider, model)) = spec.name.as_str().split_once('/').filter(|(_, model)| !model.is_empty()) else {
        return Err(ConfigError::NoProvider { name: spec.name.clone() });
    };
    let lanes = config.lanes.as_ref().map(|lanes| lanes.to(spec.name.as_str()));
    let config = &ModelConfig { lanes, ..config.clone() };
    match provider {
        // A script's calls are calls already.
        "script" => Ok(Arc::new(ScriptedModel::open(&config.base_folder.join(model))?)),
        "openai" => Ok(spoken(spec.protocol, OpenAi::new(model, spec, config)?)),
        "ollama" => Ok(spoken(spec.protocol, Ollama::new(model, spec, config)?)),
        "anthropic" => Ok(Arc::new(native(spec, Anthropic::new(model, spec, config)?)?)),
        "openai-responses" => Ok(Arc::new(native(spec, Responses::new(model, spec, config)?)?)),
        "gemini" => Ok(Arc::new(native(spec, Gemini::new(model, spec, config)?)?)),
        _ => Err(ConfigError::UnknownProvider { provider: provider.to_owned() }),
    }
}

/// Builds the model that `spec` means, for a judge that is the run's own model. A script answers from entries of their own.
pub fn connect_judge(spec: &ModelSpec, config: &ModelConfig) -> Result<Arc<dyn Model>, ConfigError> {
    match spec.name.as_str().split_once('/') {
        Some(("script", file)) if !file.is_empty() => {
            Ok(Arc::new(ScriptedModel::open_judge(&config.base_folder.join(file))?))
        }
        Some(_) | None => connect(spec, config),
    }
}

/// The JSON action protocol is for models without tools; all of these have them.
fn native<M>(spec: &ModelSpec, model: M) -> Result<M, ConfigError> {
    match spec.protocol {
        Protocol::Native => Ok(model),
        Protocol::Json => Err(ConfigError::NoJson { name: spec.name.clone() }),
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
    /// Where the server is: for `openai/` and `openai-responses/` up to and with `/v1`, for `anthropic/` and `gemini/` with
    /// the version or without, for `ollama/` anything `OLLAMA_HOST` may be. The provider's own address if absent.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    /// The variable that the key is taken from, or would be: for messages.
    pub key_from: Option<String>,
    /// Sent with every request, in place of any header of the same name. Values may be keys, and are never shown.
    pub headers: Vec<(String, Secret)>,
    /// None: as suits the provider and its place.
    pub timeouts: Option<Timeouts>,
    /// What calls with one key to one model share, for all that are given the same. None: each is on its own.
    pub lanes: Option<Lanes>,
    /// The most calls with this key to this model that are on the way together.
    pub max_concurrent: Option<u32>,
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
    #[error("{name} calls tools itself: protocol = \"json\" is for openai/NAME and ollama/NAME; leave it out here")]
    NoJson { name: ModelName },
    #[error("the base URL \"{url}\" cannot be used: {problem}")]
    BaseUrl { url: String, problem: String },
    #[error("the Ollama server \"{host}\" cannot be used: {problem}; write HOST, HOST:PORT or http://HOST:PORT")]
    OllamaHost { host: String, problem: String },
    #[error("{host} needs an API key: set {variable}, or {base} for another server")]
    NoKeyFor { host: &'static str, variable: &'static str, base: &'static str },
    #[error("the header \"{name}\" holds characters that no HTTP header can carry: check its name and its value")]
    BadHeader { name: String },
    #[error("api.openai.com needs an API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server")]
    NoKey,
    /// The key itself is not shown.
    #[error("the API key holds characters that no HTTP header can carry: check how it was set")]
    BadKey,
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// Providers, as the first part of a model's name.
const PROVIDERS: [&str; 6] = ["openai", "openai-responses", "anthropic", "gemini", "ollama", "script"];

fn known() -> String {
    PROVIDERS.join(", ")
}
