//! What every command needs of its surroundings: the store, the operator's environment, the models' settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use longrein::core::ids::{ModelName, RunId};
use longrein::{ModelConfig, Runs, Secret};

use crate::args::Globals;
use crate::config::Config;
use crate::failure::{Failure, Status};

/// `version` as it stands in journals.
pub(crate) const BINARY: &str = env!("CARGO_PKG_VERSION");

/// Where runs are kept.
pub(crate) struct StoreAt {
    pub(crate) url: String,
    /// Set where nobody named a store: the folder that holds it.
    pub(crate) home: Option<PathBuf>,
    /// What a printed command must repeat to reach the same store.
    flag: String,
}

impl StoreAt {
    pub(crate) fn of(globals: &Globals) -> Result<Self, Failure> {
        if let Some(url) = &globals.store {
            return Ok(Self { url: url.clone(), home: None, flag: store_flag(globals) });
        }
        let home = home()?;
        let url = format!("sqlite:{}", home.join("longrein.db").display());
        Ok(Self { url, home: Some(home), flag: String::new() })
    }

    pub(crate) fn open(&self) -> Result<Runs, Failure> {
        let environment = environment();
        Ok(Runs::open(&self.url, BINARY)?.keeping_out(model_keys(&environment), environment))
    }

    /// Opens a store that must be there: looking makes none.
    pub(crate) fn open_existing(&self) -> Result<Runs, Failure> {
        self.must_exist()?;
        self.open()
    }

    pub(crate) fn must_exist(&self) -> Result<(), Failure> {
        if self.exists()? {
            return Ok(());
        }
        let problem = format!("there is no store at {} yet", self.url);
        Err(Failure::new(Status::NotFound, problem).way_out("longrein run --help"))
    }

    /// Whether there is a store. One that cannot be looked at may hold runs: that is no `false`.
    pub(crate) fn exists(&self) -> Result<bool, Failure> {
        let Some(path) = self.url.strip_prefix("sqlite:") else { return Ok(true) };
        Path::new(path).try_exists().map_err(|error| {
            let problem = format!("the store {path} cannot be looked at: {error}");
            Failure::new(Status::Unavailable, problem).way_out("longrein doctor")
        })
    }

    /// A command that reaches this store, for hints.
    pub(crate) fn command(&self, words: &str) -> String {
        format!("longrein {words}{}", self.flag)
    }

    /// A workspace that contains the home could be used to change what judges the run (`semantics.md` E5).
    pub(crate) fn refuse_inside(&self, workspace: &Path) -> Result<(), Failure> {
        let Some(home) = &self.home else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let written = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // As written too: a link inside the workspace can be pointed elsewhere from there.
        if real(home).starts_with(real(workspace)) || written(home).starts_with(written(workspace)) {
            let problem = format!(
                "the workspace {} contains {}, where Longrein keeps its own records; name a narrower workspace with -C, or \
                 another LONGREIN_HOME",
                workspace.display(),
                home.display()
            );
            return Err(Failure::new(Status::Configuration, problem));
        }
        Ok(())
    }
}

/// What a printed command must repeat to reach the store of this one; empty, or with a blank before it.
pub(crate) fn store_flag(globals: &Globals) -> String {
    match &globals.store {
        Some(url) if std::env::var("LONGREIN_STORE").is_ok_and(|env| env == *url) => String::new(),
        Some(url) => format!(" --store {}", quoted(url)),
        None => String::new(),
    }
}

pub(crate) fn home() -> Result<PathBuf, Failure> {
    if let Some(home) = std::env::var_os("LONGREIN_HOME").filter(|home| !home.is_empty()) {
        let home = PathBuf::from(home);
        return std::path::absolute(&home).map_err(|error| {
            Failure::new(Status::Configuration, format!("LONGREIN_HOME {}: {error}", home.display()))
        });
    }
    let base = etcetera::base_strategy::Xdg::new().map_err(|error| {
        Failure::new(Status::Configuration, format!("no home directory: {error}; set LONGREIN_HOME"))
    })?;
    Ok(base.data_dir().join("longrein"))
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&b));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The operator's environment, as values. Variables that are no UTF-8 are left out.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The folder the command was given in.
pub(crate) fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir()
        .map_err(|error| Failure::new(Status::Configuration, format!("the current directory: {error}")))
}

/// `--var NAME=VALUE`, each.
pub(crate) fn variables(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let each = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::new(Status::Usage, format!("--var {pair}: write --var NAME=VALUE"))),
    };
    pairs.iter().map(each).collect()
}

/// How to reach a model.
pub(crate) fn model_config(
    config: &Config,
    name: &ModelName,
    environment: &BTreeMap<String, String>,
) -> Result<ModelConfig, Failure> {
    let table = config.models.get(name.as_str()).cloned().unwrap_or_default();
    let from_env = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    let (key, place) = match name.as_str().split_once('/').map(|(provider, _)| provider) {
        Some("openai" | "openai-responses") => (from_env("OPENAI_API_KEY"), from_env("OPENAI_BASE_URL")),
        Some("anthropic") => (from_env("ANTHROPIC_API_KEY"), from_env("ANTHROPIC_BASE_URL")),
        Some("gemini") => (from_env("GEMINI_API_KEY").or(from_env("GOOGLE_API_KEY")), from_env("GEMINI_BASE_URL")),
        Some("ollama") => (None, from_env("OLLAMA_HOST")),
        Some(_) | None => (None, None),
    };
    let key_from =
        table.api_key_env.clone().or_else(|| match name.as_str().split_once('/').map(|(provider, _)| provider) {
            Some("openai" | "openai-responses") => Some("OPENAI_API_KEY".to_owned()),
            Some("anthropic") => Some("ANTHROPIC_API_KEY".to_owned()),
            Some("gemini") if from_env("GEMINI_API_KEY").is_none() && from_env("GOOGLE_API_KEY").is_some() => {
                Some("GOOGLE_API_KEY".to_owned())
            }
            Some("gemini") => Some("GEMINI_API_KEY".to_owned()),
            Some(_) | None => None,
        });
    let missing = |key: &str, variable: &str| {
        let file = table.file.display();
        let problem = format!("{file}: models.\"{name}\".{key} names {variable}, which is not set");
        Failure::new(Status::Configuration, problem)
    };
    let key = match &table.api_key_env {
        Some(variable) => Some(from_env(variable).ok_or_else(|| missing("api_key_env", variable))?),
        None => key,
    };
    let mut headers = Vec::new();
    for (header, value) in &table.headers {
        let value = match value.strip_prefix("${secret:").and_then(|rest| rest.strip_suffix('}')) {
            Some(variable) => from_env(variable).ok_or_else(|| missing(&format!("headers.{header}"), variable))?,
            None => value.clone(),
        };
        headers.push((header.clone(), Secret::new(value)));
    }
    let base_url = table.base_url.clone().or(place);
    let max_concurrent = table.max_concurrent;
    let mut model = ModelConfig {
        base_url,
        api_key: key.map(Secret::new),
        key_from,
        headers,
        max_concurrent,
        ..ModelConfig::default()
    };
    if let Some(named) = &table.timeouts_named {
        model.timeouts = Some(named.over(longrein::usual_timeouts(name, &model)));
    }
    Ok(model)
}

/// The keys of models that are known here: those of the configuration, and those under the names that providers usually have.
fn model_keys(environment: &BTreeMap<String, String>) -> Vec<(String, String)> {
    const USUAL: [&str; 4] = ["openai/any", "openai-responses/any", "anthropic/any", "gemini/any"];
    // One that cannot be read is told of where a model is needed.
    let config = Config::load().unwrap_or_default();
    let names = config.models.keys().map(String::as_str).chain(USUAL);
    let keys = names.filter_map(|name| model_config(&config, &ModelName::new(name), environment).ok()?.api_key);
    keys.map(|key| ("model-api-key".to_owned(), key.reveal().to_owned())).collect()
}

/// A new run's id: random, short enough to type the beginning of.
pub(crate) fn fresh_id() -> RunId {
    let random = uuid::Uuid::now_v7().simple().to_string();
    RunId::new(random.get(20..).unwrap_or(&random))
}
