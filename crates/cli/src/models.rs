//! `models`: what is configured, where it is, and whether it answers. No key is ever printed: not the value of a variable,
//! and nothing of an address but host, port and path.

use std::collections::BTreeMap;
use std::time::Duration;

use longrein::core::ids::ModelName;
use longrein::core::task::{ModelSpec, Protocol};
use longrein::{Answering, ModelConfig, ModelConfigError, projection};
use serde_json::{Value, json};

use crate::args::{Globals, ModelsArgs};
use crate::config::Config;
use crate::context;
use crate::failure::{Failure, Status};
use crate::out::{columns, explain, lay, say, tell};
use crate::progress::print_line;
use crate::words;

/// How long a server may take to say what it has. One that needs longer is no help to a run either.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Names of one server's models that are listed on the line of the server itself.
const NAMES_SHOWN: usize = 5;

/// What stands in a line of the table beside name, address and answer.
const BESIDE_PLACE: usize = "    native      32768  known  ".len();

/// One line.
struct Row {
    name: ModelName,
    /// Where it is named: a file, a variable; empty: nowhere, the server has it.
    source: String,
    is_default: bool,
    spec: ModelSpec,
    endpoint: Option<String>,
    standing: Standing,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Answers,
    Not,
    /// Nobody was asked.
    Unasked,
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Model,
    /// Whatever one server has: its address is known from the environment.
    Server,
    /// A server at the usual place, which nobody spoke of: listed only if it is there.
    Perhaps,
}

pub(crate) async fn models(globals: Globals, args: ModelsArgs) -> Result<Status, Failure> {
    let config = Config::load()?;
    let environment = context::environment();
    let asking: Vec<_> = named(&config, &environment, &args)
        .into_iter()
        .map(|(about, name, source)| {
            let reached = context::model_config(&config, &name, &environment);
            let spec = spec(&config, &name);
            let is_default = config.model.as_ref().is_some_and(|(default, _)| default == name.as_str());
            // Side by side: one that says nothing keeps nobody waiting.
            tokio::spawn(row(about, name, source, is_default, spec, reached, args.no_probe))
        })
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for asked in asking {
        let asked = asked.await.map_err(|error| Failure::new(Status::Internal, format!("a probe failed: {error}")))?;
        for row in asked {
            if rows.iter().all(|known| known.name != row.name) {
                rows.push(row);
            }
        }
    }
    if globals.json {
        print_line(&rows.iter().map(|row| row.json(&config)).collect());
    }
    if rows.is_empty() {
        HOW_TO.iter().for_each(|line| explain(line));
        return Ok(Status::Done);
    }
    if !globals.json {
        print(&rows);
        say_routes(&config);
    }
    Ok(Status::Done)
}

/// What is said where there is no model.
const HOW_TO: [&str; 4] = [
    "No model is configured. A server that speaks Chat Completions: set OPENAI_API_KEY, and OPENAI_BASE_URL=http://HOST:PORT/v1 where it is not OpenAI's; then longrein run -m openai/NAME. (openai-responses/NAME is OpenAI's newer interface.)",
    "Anthropic or Gemini: set ANTHROPIC_API_KEY or GEMINI_API_KEY; then longrein run -m anthropic/NAME or gemini/NAME.",
    "A model on this machine: start Ollama, ollama pull qwen3:8b; then longrein run -m ollama/qwen3:8b.",
    "One for every run: model = \"ollama/qwen3:8b\" in ~/.config/longrein/config.toml, or LONGREIN_MODEL.",
];

/// Everything somebody spoke of, the default first, each once.
fn named(
    config: &Config,
    environment: &BTreeMap<String, String>,
    args: &ModelsArgs,
) -> Vec<(About, ModelName, String)> {
    let mut named: Vec<(About, ModelName, String)> = Vec::new();
    if let Some((name, source)) = &config.model {
        named.push((About::Model, ModelName::new(name.as_str()), source.clone()));
    }
    for (route, source) in
        config.routes.iter().flat_map(|(routes, source)| routes.iter().map(move |route| (route, source)))
    {
        if named.iter().all(|(_, known, _)| known.as_str() != route.model()) {
            named.push((About::Model, ModelName::new(route.model()), source.clone()));
        }
    }
    for (name, table) in &config.models {
        if named.iter().all(|(_, known, _)| known.as_str() != name) {
            named.push((About::Model, ModelName::new(name.as_str()), table.file.display().to_string()));
        }
    }
    let set = |names: &[&str]| {
        names
            .iter()
            .find(|name| environment.get(**name).is_some_and(|value| !value.is_empty()))
            .map(|name| (*name).to_owned())
    };
    if let Some(variable) = set(&["OPENAI_BASE_URL", "OPENAI_API_KEY"]) {
        named.push((About::Server, ModelName::new("openai/*"), variable));
    }
    for (variables, server) in [
        (["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"].as_slice(), "anthropic/*"),
        (["GEMINI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"].as_slice(), "gemini/*"),
    ] {
        if let Some(variable) = set(variables) {
            named.push((About::Server, ModelName::new(server), variable));
        }
    }
    match set(&["OLLAMA_HOST"]) {
        Some(variable) => named.push((About::Server, ModelName::new("ollama/*"), variable)),
        None if !args.no_probe => named.push((About::Perhaps, ModelName::new("ollama/*"), String::new())),
        None => {}
    }
    named
}

pub(crate) fn spec(config: &Config, name: &ModelName) -> ModelSpec {
    let settings = config.defaults().models.get(name.as_str()).copied().unwrap_or_default();
    settings.spec(name.clone(), longrein::taskfile::MAX_OUTPUT)
}

async fn row(
    about: About,
    name: ModelName,
    source: String,
    is_default: bool,
    spec: ModelSpec,
    reached: Result<ModelConfig, Failure>,
    no_probe: bool,
) -> Vec<Row> {
    let mut row =
        Row { name, source, is_default, spec, endpoint: None, standing: Standing::Unasked, detail: String::new() };
    let reached = reached.map_err(|failure| failure.problem);
    let reached = reached.and_then(|reached| {
        row.endpoint = longrein::endpoint(&row.name, &reached).map_err(in_words)?;
        longrein::connectable(&row.spec, &reached).map_err(in_words)?;
        Ok(reached)
    });
    let reached = match reached {
        Ok(reached) => reached,
        Err(problem) => {
            (row.standing, row.detail) = (Standing::Not, problem);
            return vec![row];
        }
    };
    if no_probe {
        return vec![row];
    }
    match longrein::probe(&row.name, &reached, PROBE_TIMEOUT).await {
        Ok(Some(answering)) => row.answered(about, answering),
        // A script has been read already.
        Ok(None) => {
            row.standing = Standing::Answers;
            vec![row]
        }
        Err(error) => {
            (row.standing, row.detail) = (Standing::Not, in_words(error));
            vec![row]
        }
    }
}

/// An error without the address it is about, which may hold a password.
pub(crate) fn in_words(error: ModelConfigError) -> String {
    if let ModelConfigError::BaseUrl { problem, .. } | ModelConfigError::OllamaHost { problem, .. } = error {
        return format!("its address cannot be used: {problem}");
    }
    error.to_string()
}

impl Row {
    /// What it comes to, now that its server has spoken: further rows for what an Ollama server has.
    fn answered(mut self, about: About, answering: Answering) -> Vec<Row> {
        let names = match answering {
            Answering::Lists(names) => names,
            Answering::Otherwise(detail) => {
                (self.standing, self.detail) = (Standing::Not, detail);
                return if about == About::Perhaps { Vec::new() } else { vec![self] };
            }
            Answering::Silent(detail) => {
                (self.standing, self.detail) = (Standing::Not, detail);
                return if about == About::Perhaps { Vec::new() } else { vec![self] };
            }
        };
        self.standing = Standing::Answers;
        let (provider, model) = self.name.as_str().split_once('/').unwrap_or_default();
        let is_ollama = provider == "ollama";
        if about == About::Model {
            let is_there = names.iter().any(|name| name == model || (is_ollama && *name == format!("{model}:latest")));
            if !is_there && is_ollama {
                (self.standing, self.detail) = (Standing::Not, format!("not installed: ollama pull {model}"));
            } else if !is_there {
                self.detail = format!("its server does not list {model}");
            }
            return vec![self];
        }
        self.detail = match names.len() {
            0 if is_ollama => "nothing is installed: ollama pull qwen3:8b".to_owned(),
            0 => "it has no models".to_owned(),
            1 => "1 model".to_owned(),
            many => format!("{many} models"),
        };
        if !is_ollama && !names.is_empty() {
            let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
            self.detail.push_str(&format!(": {}{more}", names[..names.len().min(NAMES_SHOWN)].join(", ")));
        }
        let installed = names.iter().filter(|_| is_ollama).map(|name| {
            let name = ModelName::new(format!("ollama/{name}"));
            Row {
                spec: ModelSpec::plain(name.clone(), longrein::taskfile::MAX_OUTPUT),
                name,
                source: String::new(),
                is_default: false,
                endpoint: self.endpoint.clone(),
                standing: Standing::Answers,
                detail: "installed".to_owned(),
            }
        });
        let installed: Vec<_> = installed.collect();
        std::iter::once(self).chain(installed).collect()
    }

    fn protocol(&self) -> &'static str {
        match self.spec.protocol {
            Protocol::Native => "native",
            Protocol::Json => "json",
        }
    }

    fn answers(&self) -> &'static str {
        match self.standing {
            Standing::Answers => "yes",
            Standing::Not => "no",
            Standing::Unasked => "-",
        }
    }

    fn json(&self, config: &Config) -> Value {
        let routes = config.routes.iter().flat_map(|(routes, _)| routes);
        let routes: Vec<_> = routes
            .filter(|route| route.model() == self.name.as_str())
            .map(longrein::taskfile::WrittenRoute::when)
            .collect();
        let price = self.spec.price.map(|price| {
            json!({
                "input": projection::usd(price.input), "cached": projection::usd(price.cached),
                "cache_write": projection::usd(price.cache_write), "output": projection::usd(price.output),
                "reasoning": price.reasoning.map(projection::usd),
            })
        });
        json!({
            "model": self.name, "default": self.is_default, "source": self.source, "endpoint": self.endpoint,
            "protocol": self.protocol(), "context_limit": self.spec.context_limit, "max_output": self.spec.max_output,
            "temperature": self.spec.temperature.map(longrein::core::task::Temperature::number), "price": price,
            "answers": match self.standing {
                Standing::Answers => Some(true),
                Standing::Not => Some(false),
                Standing::Unasked => None,
            },
            "detail": self.detail, "routes": routes,
        })
    }
}

/// Where runs go whose task has no routes of its own.
fn say_routes(config: &Config) {
    let Some((routes, source)) = config.routes.as_ref().filter(|(routes, _)| !routes.is_empty()) else { return };
    tell!("routes (from {}):", words::safe(source));
    for (at, route) in routes.iter().enumerate() {
        explain(&format!("  {}. {}: {}", at + 1, words::safe(route.model()), words::safe(&route.when())));
    }
}

fn print(rows: &[Row]) {
    let shown = |row: &Row| format!("{}{}", words::safe(row.name.as_str()), if row.is_default { " *" } else { "" });
    let place = |row: &Row| words::safe(row.endpoint.as_deref().unwrap_or("-"));
    let widest = |of: &dyn Fn(&Row) -> String, head: &str| {
        rows.iter().map(|row| of(row).chars().count()).chain([head.len()]).max().unwrap_or_default()
    };
    let context = |row: &Row| row.spec.context_limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let price = |row: &Row| if row.spec.price.is_some() { "known" } else { "-" };
    let answers = |row: &Row| {
        let detail = words::short(&row.detail, 160);
        if detail.is_empty() { row.answers().to_owned() } else { format!("{}: {detail}", row.answers()) }
    };
    let (name_width, place_width) = (widest(&shown, "MODEL"), widest(&place, "ENDPOINT"));
    let table_width = name_width + place_width + BESIDE_PLACE + widest(&answers, "ANSWERS");
    if columns().is_some_and(|columns| columns < table_width) {
        for row in rows {
            lay!(4, "{}  answers: {}", shown(row), answers(row));
            lay!(4, "    {}  {}  context {}  price {}", place(row), row.protocol(), context(row), price(row));
        }
    } else {
        say!("{:<name_width$}  {:<place_width$}  PROTOCOL  CONTEXT  PRICE  ANSWERS", "MODEL", "ENDPOINT");
        for row in rows {
            say!(
                "{:<name_width$}  {:<place_width$}  {:<8}  {:>7}  {:<5}  {}",
                shown(row),
                place(row),
                row.protocol(),
                context(row),
                price(row),
                answers(row),
            );
        }
    }
    if let Some(default) = rows.iter().find(|row| row.is_default) {
        explain(&format!("* taken where a run names no model (from {})", words::safe(&default.source)));
    }
}
