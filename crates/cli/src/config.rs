//! Configuration files: `/etc/longrein/config.toml`, then the user's; later wins, but permission rules add up. A key that is
//! not known is an error, so that a misspelt limit is never silently none. A workspace's own file is `trust`'s business.
//!
//! What of a model's table shapes its requests goes into the run as it starts (`semantics.md` B5); how it is reached is
//! looked up each time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use longrein::Timeouts;
use longrein::core::budget::Price;
use longrein::core::hook::HookSpec;
use longrein::core::ids::ToolName;
use longrein::core::mcp::McpServer;
use longrein::core::task::{Builtin, Protocol, Temperature};
use longrein::taskfile::{
    CONTEXT_KEYS, ContextSettings, DefaultContext, DefaultMode, DefaultModel, DefaultRules, Defaults, ModelSettings,
    WrittenRoute, WrittenRules, configured_hooks, configured_routes, configured_servers, mode,
};
use longrein::{SandboxMode, SandboxSettings};
use rustix::fs::{Mode as FileMode, OFlags};
use serde::Deserialize;

use crate::failure::{Failure, Status};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    model: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, ModelTable>,
    #[serde(default)]
    context: toml::Table,
    permission_mode: Option<String>,
    #[serde(default)]
    policy: toml::Table,
    #[serde(default)]
    sandbox: SandboxTable,
    #[serde(default)]
    approvals: ApprovalsTable,
    /// Read by the reader of task files, which has the same table.
    hooks: Option<toml::Value>,
    /// The same.
    route: Option<toml::Value>,
    mcp: Option<toml::Value>,
}

/// `[approvals]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalsTable {
    /// `"2h"`: how long a question waits before silence counts as no answer.
    questions_expire: Option<String>,
}

/// `[sandbox]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxTable {
    pub(crate) mode: Option<String>,
    #[serde(default)]
    pub(crate) read: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) write: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    pub(crate) base_url: Option<String>,
    pub(crate) api_key_env: Option<String>,
    /// Sent with every request; `${secret:X}` stands for a variable of the operator's.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    timeouts: Option<TimeoutsTable>,
    context_limit: Option<u64>,
    max_output: Option<u64>,
    protocol: Option<String>,
    /// Whether it is sent images.
    images: Option<bool>,
    temperature: Option<f64>,
    price: Option<PriceTable>,
    /// The most calls of its key to its server at once, by all runs of one process.
    pub(crate) max_concurrent: Option<u32>,
    #[serde(skip)]
    settings: ModelSettings,
    /// None: as suits the provider and its place.
    #[serde(skip)]
    pub(crate) timeouts_named: Option<TimeoutsNamed>,
    /// The file it is written in.
    #[serde(skip)]
    pub(crate) file: PathBuf,
}

/// How long each phase of a call may take; what is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeoutsTable {
    connect: Option<String>,
    headers: Option<String>,
    first_byte: Option<String>,
    idle: Option<String>,
    total: Option<String>,
}

/// The timeouts a table names, over what holds without it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeoutsNamed {
    connect: Option<Duration>,
    headers: Option<Duration>,
    first_byte: Option<Duration>,
    idle: Option<Duration>,
    total: Option<Duration>,
}

impl TimeoutsNamed {
    fn of(table: &TimeoutsTable) -> Result<Self, String> {
        let span = |key: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => match longrein::taskfile::span(text) {
                Ok(span) if !span.is_zero() => Ok(Some(span)),
                Ok(_) => Err(format!("{key}: it must be longer than nothing")),
                Err(problem) => Err(format!("{key}: {problem}")),
            },
        };
        Ok(Self {
            connect: span("connect", &table.connect)?,
            headers: span("headers", &table.headers)?,
            first_byte: span("first_byte", &table.first_byte)?,
            idle: span("idle", &table.idle)?,
            total: span("total", &table.total)?,
        })
    }

    /// `base` with what is named here.
    pub(crate) fn over(&self, base: Timeouts) -> Timeouts {
        Timeouts {
            connect: self.connect.unwrap_or(base.connect),
            headers: self.headers.unwrap_or(base.headers),
            first_byte: self.first_byte.unwrap_or(base.first_byte),
            idle: self.idle.unwrap_or(base.idle),
            grace: base.grace,
            total: self.total.unwrap_or(base.total),
        }
    }
}

/// USD per million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { input = 0.25, output = 2.0 }")]
struct PriceTable {
    input: f64,
    cached: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
    reasoning: Option<f64>,
}

/// What the files say, laid over each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// The default model, and where it is written.
    pub(crate) model: Option<(String, String)>,
    pub(crate) models: BTreeMap<String, ModelTable>,
    context: Vec<DefaultContext>,
    permission_mode: Option<DefaultMode>,
    /// In the order of the files.
    pub(crate) policy: Vec<DefaultRules>,
    /// How long a question waits. None: for ever.
    pub(crate) questions_expire: Option<std::time::Duration>,
    pub(crate) sandbox: SandboxSettings,
    /// Hooks of every run.
    pub(crate) hooks: Vec<HookSpec>,
    /// Routes of every run whose task has none, and where they are written: those of the last file that has any.
    pub(crate) routes: Option<(Vec<WrittenRoute>, String)>,
    /// MCP servers of every run.
    pub(crate) servers: BTreeMap<String, McpServer>,
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
        let Some(text) = read(path).map_err(|problem| wrong(path, &problem))? else { return Ok(()) };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let table: toml::Table = toml::from_str(text).map_err(|error| unread(path, text, &error))?;
        known_keys(&table).map_err(|problem| wrong(path, &problem))?;
        let file: Written = toml::from_str(text).map_err(|error| unread(path, text, &error))?;
        if let Some(model) = file.model {
            self.model = Some((model, path.display().to_string()));
        }
        let kept = context(&file.context).map_err(|problem| wrong(path, &problem))?;
        self.context.push(DefaultContext { source: path.display().to_string(), settings: kept });
        let source = || path.display().to_string();
        if let Some(name) = file.permission_mode {
            let mode = mode(&name).map_err(|problem| wrong(path, &format!("permission_mode: {problem}")))?;
            self.permission_mode = Some(DefaultMode { mode, source: source() });
        }
        let rules = rules(&file.policy).map_err(|problem| wrong(path, &problem))?;
        self.policy.push(DefaultRules { source: source(), rules: rules.texts() });
        if let Some(text) = &file.approvals.questions_expire {
            let span = longrein::taskfile::span(text)
                .map_err(|problem| wrong(path, &format!("approvals.questions_expire: {problem}")))?;
            if span.as_millis() == 0 {
                let problem = format!(
                    "approvals.questions_expire: \"{text}\" leaves nobody the time to answer; name a longer one, or leave it out: \
                     then questions wait for ever"
                );
                return Err(wrong(path, &problem));
            }
            self.questions_expire = Some(span);
        }
        lay_over(&mut self.sandbox, file.sandbox).map_err(|problem| wrong(path, &problem))?;
        if file.hooks.is_some() {
            let hooks =
                configured_hooks(path, text).map_err(|error| Failure::new(Status::Configuration, error.to_string()))?;
            self.hooks.extend(hooks);
        }
        if file.route.is_some() {
            let routes = configured_routes(path, text)
                .map_err(|error| Failure::new(Status::Configuration, error.to_string()))?;
            self.routes = Some((routes, source()));
        }
        if file.mcp.is_some() {
            let servers = configured_servers(path, text)
                .map_err(|error| Failure::new(Status::Configuration, error.to_string()))?;
            self.servers.extend(servers);
        }
        for (name, mut table) in file.models {
            table.settings = settings(&name, &table)
                .map_err(|(key, problem)| wrong(path, &format!("models.\"{name}\".{key}: {problem}")))?;
            let named = table.timeouts.as_ref().map(TimeoutsNamed::of).transpose();
            table.timeouts_named =
                named.map_err(|problem| wrong(path, &format!("models.\"{name}\".timeouts.{problem}")))?;
            table.file = path.to_owned();
            self.models.insert(name, table);
        }
        Ok(())
    }

    /// What the task reader needs to know of it.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults {
            model: self.model.clone().map(|(name, source)| DefaultModel { name, source }),
            models: self.models.iter().map(|(name, table)| (name.clone(), table.settings)).collect(),
            context: self.context.clone(),
            permission_mode: self.permission_mode.clone(),
            policy: self.policy.clone(),
            hooks: self.hooks.clone(),
            routes: self.routes.as_ref().map(|(routes, _)| routes.clone()).unwrap_or_default(),
            routes_from: self.routes.as_ref().map(|(_, source)| source.clone()),
            servers: self.servers.clone(),
        }
    }
}

const TOP_KEYS: &[&str] =
    &["model", "models", "context", "permission_mode", "policy", "sandbox", "approvals", "hooks", "route", "mcp"];
pub(crate) const SANDBOX_KEYS: &[&str] = &["mode", "read", "write"];
const MODEL_KEYS: &[&str] = &[
    "base_url",
    "api_key_env",
    "headers",
    "timeouts",
    "context_limit",
    "max_output",
    "protocol",
    "images",
    "temperature",
    "price",
    "max_concurrent",
];
const TIMEOUT_KEYS: &[&str] = &["connect", "headers", "first_byte", "idle", "total"];
const PRICE_KEYS: &[&str] = &["input", "cached", "cache_write", "output", "reasoning"];

/// Names a key that is none of the format's, with the one that may have been meant.
fn known_keys(file: &toml::Table) -> Result<(), String> {
    let check = |table: &toml::Table, within: &str, known: &[&str]| match table
        .keys()
        .find(|key| !known.contains(&key.as_str()))
    {
        Some(key) => {
            let near = longrein::near(key, known.iter().copied());
            let near = if near.is_empty() { known.join(", ") } else { near.join(", ") };
            Err(format!("{within}{key}: there is no such key; near it: {near}"))
        }
        None => Ok(()),
    };
    check(file, "", TOP_KEYS)?;
    if let Some(context) = file.get("context").and_then(toml::Value::as_table) {
        check(context, "context.", &CONTEXT_KEYS)?;
    }
    if let Some(sandbox) = file.get("sandbox").and_then(toml::Value::as_table) {
        check(sandbox, "sandbox.", SANDBOX_KEYS)?;
    }
    let Some(models) = file.get("models").and_then(toml::Value::as_table) else { return Ok(()) };
    for (name, model) in models {
        let within = format!("models.\"{name}\".");
        let Some(model) = model.as_table() else { continue };
        if !name.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty()) {
            return Err(format!("models.\"{name}\": name it PROVIDER/MODEL, in quotes: [models.\"openai/{name}\"]"));
        }
        check(model, &within, MODEL_KEYS)?;
        if let Some(timeouts) = model.get("timeouts").and_then(toml::Value::as_table) {
            check(timeouts, &format!("{within}timeouts."), TIMEOUT_KEYS)?;
        }
        if let Some(price) = model.get("price").and_then(toml::Value::as_table) {
            check(price, &format!("{within}price."), PRICE_KEYS)?;
        }
    }
    Ok(())
}

/// `[policy]`: rules on built-in tools, or on all. The tools of a task are its own business: another task has others, and a
/// rule that is about nothing is a mistake.
pub(crate) fn rules(table: &toml::Table) -> Result<WrittenRules, String> {
    let rules = WrittenRules::of_table(table)?;
    let builtins = Builtin::ALL.map(|builtin| ToolName::new(builtin.as_str()));
    rules.check(&builtins).map_err(|bad| {
        let hint = if matches!(bad.fault, longrein::taskfile::RuleFault::Example { .. }) {
            ""
        } else {
            " (in configuration a rule is about a built-in tool, or * for all)"
        };
        format!("policy: {bad}{hint}")
    })?;
    Ok(rules)
}

/// `[sandbox]`: the last word on the mode counts; paths add up.
fn lay_over(settings: &mut SandboxSettings, table: SandboxTable) -> Result<(), String> {
    if let Some(name) = table.mode {
        settings.mode = sandbox_mode(&name).map_err(|problem| format!("sandbox.mode: {problem}"))?;
    }
    for (key, list, more) in [("read", &mut settings.read, table.read), ("write", &mut settings.write, table.write)] {
        if let Some(path) = more.iter().find(|path| !path.is_absolute()) {
            return Err(format!("sandbox.{key}: \"{}\" is no absolute path", path.display()));
        }
        list.extend(more);
    }
    Ok(())
}

/// How commands are to be confined, as it is written.
pub(crate) fn sandbox_mode(name: &str) -> Result<SandboxMode, String> {
    SandboxMode::from_name(name).ok_or_else(|| format!("\"{name}\" is none of required, best, external"))
}

/// `[context]`: what holds for tasks that do not say otherwise.
fn context(table: &toml::Table) -> Result<ContextSettings, String> {
    let mut settings = ContextSettings::default();
    for (key, value) in table {
        let said = match (value.as_str(), value.as_float(), value.as_integer()) {
            (Some(word), _, _) => settings.set_word(key, word),
            (None, Some(share), _) => settings.set(key, share),
            // 1 is a share too.
            (None, None, Some(1)) => settings.set(key, 1.0),
            (None, None, _) => settings.set(key, f64::NAN),
        };
        said.map_err(|problem| format!("context.{key}: {problem}"))?;
    }
    Ok(settings)
}

/// What of a table shapes a run's requests; or the key that is wrong, and how.
fn settings(name: &str, table: &ModelTable) -> Result<ModelSettings, (&'static str, String)> {
    let protocol = match table.protocol.as_deref() {
        None | Some("native") => Protocol::Native,
        Some("json") if name.starts_with("script/") => {
            return Err(("protocol", "a scripted model calls tools by itself; leave it out".to_owned()));
        }
        Some("json") => Protocol::Json,
        Some(other) => return Err(("protocol", format!("\"{other}\" is none of native, json"))),
    };
    let temperature = match table.temperature {
        None => None,
        Some(number) => Some(Temperature::of(number).ok_or_else(|| {
            let most = Temperature::MAX;
            ("temperature", format!("{number} must be from 0 to {most}, with at most three decimals"))
        })?),
    };
    let price = match table.price {
        None => None,
        Some(price) => Some(price.micros().ok_or_else(|| ("price", "prices are positive numbers".to_owned()))?),
    };
    for (key, number) in [("max_output", table.max_output), ("context_limit", table.context_limit)] {
        if number.is_some_and(|number| !(1..=TOKENS_MAX).contains(&number)) {
            return Err((key, format!("it must be a number of tokens from 1 to {TOKENS_MAX}")));
        }
    }
    if table.max_concurrent == Some(0) {
        return Err(("max_concurrent", "with 0 nothing is ever sent; leave it out for no bound".to_owned()));
    }
    if let (Some(output), Some(limit)) = (table.max_output, table.context_limit)
        && output >= limit
    {
        let problem = format!("{output} leaves no room for a request in a context_limit of {limit}");
        return Err(("max_output", problem));
    }
    let (max_output, context_limit) = (table.max_output, table.context_limit);
    Ok(ModelSettings { max_output, price, temperature, context_limit, protocol, images: table.images })
}

/// No model takes more.
const TOKENS_MAX: u64 = 100_000_000;

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
            reasoning: match self.reasoning {
                Some(usd) => Some(micros(usd)?),
                None => None,
            },
        })
    }
}

/// The text of a file; None: there is none. What is there and cannot be read is not none: a limit it sets would be lifted
/// without a word. Never waits, whatever it is.
fn read(path: &Path) -> Result<Option<String>, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, FileMode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return dangling(path).map_or(Ok(None), Err),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}

/// Why a path that leads nowhere is not simply missing: a link on the way to it was meant to lead somewhere.
fn dangling(path: &Path) -> Option<String> {
    // What is there of the way; below it there is nothing.
    let (there, data) = path.ancestors().find_map(|part| Some((part, part.symlink_metadata().ok()?)))?;
    let what = if there == path { "it".to_owned() } else { there.display().to_string() };
    data.is_symlink().then(|| format!("{what} is a link that leads nowhere"))
}

/// What is no TOML, or of another type, with its line.
fn unread(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    wrong(path, &format!("{at}{}", error.message().trim_end().replace('\n', "; ")))
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
