//! Configuration files: `/etc/longrein/config.toml`, then the user's; later wins. A key that is not known is an error, so
//! that a misspelt limit is never silently none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use longrein::core::budget::Price;
use longrein::taskfile::{DefaultModel, Defaults, ModelSettings};
use serde::Deserialize;

use crate::failure::{Failure, Status};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, ModelTable>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    pub(crate) base_url: Option<String>,
    pub(crate) api_key_env: Option<String>,
    /// Recorded; used when context is managed.
    #[expect(dead_code, reason = "a key of the format that a later part reads")]
    context_limit: Option<u64>,
    max_output: Option<u64>,
    protocol: Option<String>,
    pub(crate) temperature: Option<f64>,
    price: Option<PriceTable>,
    /// The file it is written in.
    #[serde(skip)]
    pub(crate) file: PathBuf,
}

/// USD per million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    input: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
}

/// What the files say, laid over each other.
#[derive(Debug, Default)]
pub(crate) struct Config {
    model: Option<(String, String)>,
    pub(crate) models: BTreeMap<String, ModelTable>,
}

impl Config {
    pub(crate) fn load() -> Result<Self, Failure> {
        let mut config = Self::default();
        for path in paths() {
            config.add(&path)?;
        }
        if let Ok(model) = std::env::var("LONGREIN_MODEL")
            && !model.is_empty()
        {
            config.model = Some((model, "LONGREIN_MODEL".to_owned()));
        }
        Ok(config)
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(wrong(path, &error)),
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let file: File = toml::from_str(text).map_err(|error| wrong(path, &error))?;
        if let Some(model) = file.model {
            self.model = Some((model, path.display().to_string()));
        }
        for (name, mut table) in file.models {
            match table.protocol.as_deref() {
                None | Some("native") => {}
                Some("json") => {
                    return Err(wrong(
                        path,
                        &format!("models.\"{name}\".protocol: \"json\" comes with a later version"),
                    ));
                }
                Some(other) => {
                    return Err(wrong(
                        path,
                        &format!("models.\"{name}\".protocol: \"{other}\" is none of native, json"),
                    ));
                }
            }
            if let Some(price) = table.price {
                price
                    .micros()
                    .ok_or_else(|| wrong(path, &format!("models.\"{name}\".price: prices are positive numbers")))?;
            }
            table.file = path.to_owned();
            self.models.insert(name, table);
        }
        Ok(())
    }

    /// What the task reader needs to know of it.
    pub(crate) fn defaults(&self) -> Defaults {
        let settings = |table: &ModelTable| ModelSettings {
            max_output: table.max_output,
            price: table.price.and_then(PriceTable::micros),
        };
        Defaults {
            model: self.model.clone().map(|(name, source)| DefaultModel { name, source }),
            models: self.models.iter().map(|(name, table)| (name.clone(), settings(table))).collect(),
        }
    }
}

impl PriceTable {
    /// None if a price is no sensible number.
    fn micros(self) -> Option<Price> {
        let micros = |usd: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
            (usd.is_finite() && (0.0..=1e9).contains(&usd)).then(|| (usd * 1e6).round() as u64)
        };
        Some(Price {
            input: micros(self.input)?,
            cached: micros(self.cached.unwrap_or(self.input))?,
            cache_write: micros(self.cache_write.unwrap_or(self.input))?,
            output: micros(self.output)?,
        })
    }
}

fn wrong(path: &Path, problem: &impl std::fmt::Display) -> Failure {
    Failure::new(Status::Configuration, format!("{}: {problem}", path.display()))
}

fn paths() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/etc/longrein/config.toml")];
    if let Ok(base) = etcetera::base_strategy::Xdg::new() {
        paths.push(base.config_dir().join("longrein/config.toml"));
    }
    paths
}
