//! `longrein tools`: what a run could call, whether it works here, and what the model is not told about it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longrein::core::mcp::McpServer;
use longrein::core::task::{Builtin, EffectClass, Task, ToolBody, ToolSpec};
use longrein::taskfile::{self, DefaultModel};
use serde_json::{Value, json};

use crate::args::{Globals, ToolsArgs};
use crate::config::Config;
use crate::context;
use crate::failure::{Failure, Status};
use crate::out::{lay, say, tell};
use crate::progress::print_line;
use crate::{trust, words};

/// Descriptions of fewer words say what a name says already.
const WORDS_MIN: usize = 6;
/// Longer ones cost more than they tell: they are sent with every request.
const DESCRIPTION_MAX: usize = 2_000;

/// The MCP servers of a task file, or those of every run.
pub(crate) fn servers(file: Option<&Path>, globals: &Globals) -> Result<BTreeMap<String, McpServer>, Failure> {
    let task = match file {
        Some(file) => Some(load(file, &[])?),
        None => plain()?,
    };
    let Some(mut task) = task else { return Ok(Config::load()?.servers) };
    trust::add_servers(&mut task, globals)?;
    Ok(task.servers)
}

pub(crate) async fn tools(globals: Globals, args: ToolsArgs) -> Result<Status, Failure> {
    let environment = context::environment();
    let mut told = Vec::new();
    let waited = |line: &str| tell!("note: {}", words::safe(line));
    let (specs, folder) = match &args.task {
        Some(file) => {
            let mut task = load(file, &args.vars)?;
            trust::add_servers(&mut task, &globals)?;
            told = longrein::add_tools_of_servers(&mut task, &environment, &Config::load()?.sandbox, &waited).await;
            let folder = PathBuf::from(&task.folder);
            (task.tools, folder)
        }
        None => {
            let builtins = Builtin::ALL.into_iter().map(longrein::builtin).collect();
            match plain()? {
                Some(mut task) => {
                    trust::add_servers(&mut task, &globals)?;
                    told = longrein::add_tools_of_servers(&mut task, &environment, &Config::load()?.sandbox, &waited)
                        .await;
                    (task.tools, PathBuf::new())
                }
                None => (builtins, PathBuf::new()),
            }
        }
    };
    let rows: Vec<_> = specs
        .iter()
        .map(|spec| {
            let missing = missing(spec, &folder, &environment);
            (spec, missing, warnings(spec, &specs))
        })
        .collect();
    if globals.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(spec, missing, warnings)| {
                json!({
                    "name": spec.name, "effect": spec.effect, "source": source(spec), "description": spec.description,
                    "parameters": spec.parameters, "available": missing.is_none(), "why": missing,
                    "warnings": warnings,
                })
            })
            .collect();
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    for (spec, missing, warnings) in &rows {
        lay!(4, "{}  {}  {}", words::safe(spec.name.as_str()), spec.effect, words::short(&source(spec), 100));
        lay!(13, "    takes    {}", parameters(&schema(spec)));
        match missing {
            None => say!("    available"),
            Some(why) => lay!(4, "    NOT available: {}", words::safe(why)),
        }
        for warning in warnings {
            lay!(13, "    warning  {}", words::safe(warning));
        }
    }
    if rows.is_empty() {
        say!("no tools");
    }
    for line in &told {
        lay!(4, "{}", words::safe(line));
    }
    Ok(Status::Done)
}

/// What a run without a task file would have here. None: nothing can be said of it.
fn plain() -> Result<Option<Task>, Failure> {
    let mut options = taskfile::Options {
        here: context::here()?,
        prompt: Some("tools".to_owned()),
        defaults: Config::load()?.defaults(),
        ..taskfile::Options::default()
    };
    let any = || DefaultModel { name: "openai/any".to_owned(), source: "tools".to_owned() };
    options.defaults.model.get_or_insert_with(any);
    Ok(taskfile::plain(&options).ok().map(|loaded| loaded.task))
}

/// The task as a run would have it. That it names a model and a goal is not needed to look at its tools.
pub(crate) fn load(file: &Path, vars: &[String]) -> Result<Task, Failure> {
    let mut options = taskfile::Options {
        here: context::here()?,
        prompt: None,
        model: None,
        workspace: None,
        program: None,
        permission_mode: None,
        limits: Vec::new(),
        checks: Vec::new(),
        images: Vec::new(),
        output_schema: None,
        rules: longrein::core::task::PolicyRules::default(),
        variables: context::variables(vars)?,
        defaults: Config::load()?.defaults(),
    };
    options
        .defaults
        .model
        .get_or_insert_with(|| DefaultModel { name: "openai/any".to_owned(), source: "tools".to_owned() });
    let first = match taskfile::load(file, &options) {
        Ok(loaded) => return Ok(loaded.task),
        Err(error) => error,
    };
    options.prompt = Some("tools".to_owned());
    taskfile::load(file, &options).map(|loaded| loaded.task).map_err(|_| first.into())
}

fn source(spec: &ToolSpec) -> String {
    match &spec.body {
        ToolBody::Command(words) => {
            let words: Vec<_> = words.iter().map(|word| context::quoted(word)).collect();
            format!("command: {}", words.join(" "))
        }
        ToolBody::Builtin(_) => "built in".to_owned(),
        ToolBody::Host(_) => "the program that embeds Longrein".to_owned(),
        ToolBody::Mcp(of) => format!("the MCP server {}", of.server),
    }
}

fn schema(spec: &ToolSpec) -> Value {
    spec.parameters.read().unwrap_or(Value::Null)
}

/// The arguments in one line: `amount: number, note?: string`.
fn parameters(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let kind = |property: &Value| match (&property["type"], &property["enum"], property["evidence"].as_str()) {
        (_, _, Some(tool)) => format!("evidence of {tool}"),
        (_, Value::Array(choices), _) => choices.iter().take(6).map(ToString::to_string).collect::<Vec<_>>().join("|"),
        (Value::String(kind), _, _) => kind.clone(),
        (Value::Array(kinds), _, _) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ => "any".to_owned(),
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let listed: Vec<_> = properties
        .map(|(name, property)| {
            let sign = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{}{sign}: {}", words::safe(name), words::safe(&kind(property)))
        })
        .collect();
    match (listed.is_empty(), is_closed(schema)) {
        (true, true) => "nothing".to_owned(),
        (true, false) => "any object".to_owned(),
        (false, _) => listed.join(", "),
    }
}

fn is_closed(schema: &Value) -> bool {
    schema["additionalProperties"] == json!(false)
}

/// Why calls of it could not work here, as far as can be told without one.
fn missing(spec: &ToolSpec, folder: &Path, environment: &BTreeMap<String, String>) -> Option<String> {
    for command in [spec.body.command(), &spec.reconcile] {
        let Some(program) = command.first() else { continue };
        if let Some(why) = no_program(program, folder, environment) {
            return Some(why);
        }
        let is_file = |word: &&String| {
            word.contains('/') && !word.contains(char::is_whitespace) && !word.starts_with('-') && !word.contains("://")
        };
        if let Some(file) = command.iter().skip(1).filter(is_file).find(|word| !folder.join(word).exists()) {
            return Some(format!("its command names {file}, which is not in {}", folder.display()));
        }
    }
    let secret = spec.env.iter().find_map(|entry| {
        let name = entry.split("${secret:").nth(1)?.trim_end_matches('}');
        (!environment.contains_key(name)).then(|| name.to_owned())
    });
    secret.map(|name| format!("it needs the secret {name}, which is not set in the environment: export {name} first"))
}

fn no_program(program: &str, folder: &Path, environment: &BTreeMap<String, String>) -> Option<String> {
    let can_run =
        |path: &Path| path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let path = folder.join(program.trim_start_matches("./"));
        return (!can_run(&path)).then(|| format!("{} is not there or cannot be run: chmod +x it", path.display()));
    }
    let search = environment.get("PATH").map_or("/usr/bin:/bin", String::as_str);
    let found = search.split(':').any(|dir| can_run(&Path::new(dir).join(program)));
    (!found).then(|| format!("there is no program {program} on PATH"))
}

/// What the model is not told, or told badly: it chooses and fills in calls by these words alone.
fn warnings(spec: &ToolSpec, all: &[ToolSpec]) -> Vec<String> {
    let mut warnings = Vec::new();
    let description = spec.description.trim();
    let says = |words: &[&str]| {
        let lower = description.to_lowercase();
        words.iter().any(|word| lower.contains(word))
    };
    if description.is_empty() {
        warnings.push("no description: the model can only guess what it does and when to call it".to_owned());
    } else {
        if description.split_whitespace().count() < WORDS_MIN {
            warnings
                .push("the description is a few words only: say what it does, when to call it and when not".to_owned());
        } else if !says(&["return", "result", "gives", "prints", "lists", "answers", "tells"]) {
            warnings.push("the description does not say what it returns".to_owned());
        }
        if description.len() > DESCRIPTION_MAX {
            warnings
                .push(format!("the description is {} bytes long and is sent with every request", description.len()));
        }
    }
    let twin = all
        .iter()
        .find(|other| other.name != spec.name && !description.is_empty() && other.description.trim() == description);
    if let Some(twin) = twin {
        warnings.push(format!("{} has the same description: the model cannot tell them apart", twin.name));
    }
    let schema = schema(spec);
    let undescribed: Vec<&str> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, property)| {
            let words = property["description"].as_str().unwrap_or_default().trim();
            words.is_empty() && property["enum"].is_null() && property["evidence"].is_null()
        })
        .map(|(name, _)| name.as_str())
        .collect();
    if !undescribed.is_empty() {
        warnings.push(format!("no description of {}: say its unit, its format, an example", undescribed.join(", ")));
    }
    if !is_closed(&schema) {
        warnings
            .push("arguments it does not know are let through: additionalProperties = false refuses them".to_owned());
    }
    let settles = spec.key.is_some() || spec.idempotent.is_some() || !spec.reconcile.is_empty();
    if spec.effect == EffectClass::External && !settles {
        let what = "if it is cut off, only a person can tell whether it happened: name a reconcile command, a key, or idempotent";
        warnings.push(what.to_owned());
    }
    warnings
}
