//! The task file: TOML in, a resolved [`Task`] out. Defaults and variables are filled in, inputs are captured, flags
//! have had their say, and every mistake has been found that can be found before the run starts.
//!
//! Read [`load`] first, then [`Options`]. The format itself stays in this module: nothing outside knows its keys.
//!
//! What it does not do: ask a model, run a command, or pin programs. `pins` stays empty here; whoever starts the run
//! fills it.

mod context;
mod error;
mod hook;
pub mod part;
pub mod program;
mod protect;
pub(crate) mod route;
mod rules;
mod schema;
mod section;
mod servers;
mod tool;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::budget::{BudgetKind, Limit, Limits, Price};
use longrein_core::context::settings::ContextSpec;
use longrein_core::hook::HookSpec;
use longrein_core::ids::{CheckName, Digest, ModelName, ToolName};
use longrein_core::image::ImageRef;
use longrein_core::mcp::{McpServer, PREFIX};
use longrein_core::payload::{Content, Payload, place};
use longrein_core::program::Program;
use longrein_core::route::Route;
use longrein_core::task::{
    AnswerSpec, Binding, Builtin, CheckBy, CheckSpec, JudgeSpec, Mode, ModelSpec, Numbers, PolicyRules, Protocol,
    Snapshots, Task, Temperature, ToolSpec,
};
use longrein_core::time::Timestamp;
use longrein_policy::{List, Policy, Surroundings};
use longrein_rules::{Answer, Schema};
use longrein_workspace::Patterns;

pub(crate) use context::check as check_context;
pub use context::{CONTEXT_KEYS, ContextSettings};
pub use error::{Place, TaskFileError};
pub use hook::configured as configured_hooks;
pub use longrein_policy::Fault as RuleFault;
pub use protect::protects_nothing_yet;
pub use route::{WrittenRoute, configured as configured_routes, when_of};
pub use rules::{WrittenRule, WrittenRules};
pub use servers::{MCP_FILE, configured as configured_servers, of_workspace as servers_of_workspace};

use crate::images::{Image, together};
use schema::Schemas;
use section::{Section, Value};

/// What flags and configuration say beside the task file. Flags win.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The folder paths in flags are relative to: where the command was given.
    pub here: PathBuf,
    /// The prompt: the goal, where the task file has none.
    pub prompt: Option<String>,
    /// `--model`
    pub model: Option<String>,
    /// `-C`, `--cd`
    pub workspace: Option<PathBuf>,
    /// `--program`
    pub program: Option<String>,
    /// `--permission-mode`
    pub permission_mode: Option<String>,
    /// `--max-…`, `--deadline`
    pub limits: Vec<LimitFlag>,
    /// `--check`: each a shell command.
    pub checks: Vec<String>,
    /// `--output-schema`
    pub output_schema: Option<PathBuf>,
    /// `--allow`, `--ask`, `--deny`: added to the file's.
    pub rules: PolicyRules,
    /// `--image`: shown with the goal, after the file's own.
    pub images: Vec<PathBuf>,
    /// `--var`
    pub variables: BTreeMap<String, String>,
    /// What configuration says.
    pub defaults: Defaults,
}

/// A limit given by a flag, as written: `200_000`, `0.50`, `10m`, `unlimited`.
#[derive(Debug, Clone)]
pub struct LimitFlag {
    /// Which budget.
    pub kind: BudgetKind,
    /// As written.
    pub value: String,
}

/// What configuration says where neither flag nor file does.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// The one to take where nothing names one.
    pub model: Option<DefaultModel>,
    /// By model name as written, `openai/x`.
    pub models: BTreeMap<String, ModelSettings>,
    /// How the window is kept; later ones win, key by key.
    pub context: Vec<DefaultContext>,
    /// Hooks of every run, before those of its task.
    pub hooks: Vec<HookSpec>,
    /// Routes of every run whose task has none.
    pub routes: Vec<WrittenRoute>,
    /// Where those are written.
    pub routes_from: Option<String>,
    /// Servers of every run, by name; a task's own of the same name counts instead.
    pub servers: BTreeMap<String, McpServer>,
    /// The mode to take where nothing names one.
    pub permission_mode: Option<DefaultMode>,
    /// Rules beside the task's own, in each file its own; they add up. Checked already.
    pub policy: Vec<DefaultRules>,
}

/// The permission mode to take where neither flag nor file names one.
#[derive(Debug, Clone)]
pub struct DefaultMode {
    /// The mode.
    pub mode: Mode,
    /// Where it is written.
    pub source: String,
}

/// The permission rules of one configuration file.
#[derive(Debug, Clone)]
pub struct DefaultRules {
    /// The file.
    pub source: String,
    /// Its rules.
    pub rules: PolicyRules,
}

/// What one configuration file says of how the window is kept.
#[derive(Debug, Clone)]
pub struct DefaultContext {
    /// The file.
    pub source: String,
    /// What it says.
    pub settings: ContextSettings,
}

/// The model to take where neither flag nor file names one.
#[derive(Debug, Clone)]
pub struct DefaultModel {
    /// `provider/model`.
    pub name: String,
    /// Where it is written: `LONGREIN_MODEL`, a configuration file.
    pub source: String,
}

/// What is known of one model.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelSettings {
    /// The most tokens of one reply.
    pub max_output: Option<u64>,
    /// What it costs.
    pub price: Option<Price>,
    pub temperature: Option<Temperature>,
    pub context_limit: Option<u64>,
    pub protocol: Protocol,
    /// Whether it is sent images. None: where its wire has a place for them.
    pub images: Option<bool>,
}

impl ModelSettings {
    /// The model of this name, as a run keeps it. Where the settings name no `max_output` this one counts, but never more
    /// than a quarter of the context: the rest is for what is asked.
    pub fn spec(self, name: ModelName, max_output: u64) -> ModelSpec {
        let room = self.context_limit.map_or(u64::MAX, |limit| (limit / 4).max(1));
        ModelSpec {
            name,
            max_output: self.max_output.unwrap_or(max_output.min(room)),
            price: self.price,
            temperature: self.temperature,
            context_limit: self.context_limit,
            protocol: self.protocol,
            images: self.images,
        }
    }
}

/// A task ready to start.
#[derive(Debug)]
pub struct Loaded {
    /// Its `pins` are empty: fill them before the run starts.
    pub task: Task,
    /// Inputs too large for an event, and images: stored when the run starts.
    pub blobs: Vec<(Digest, Bytes)>,
}

/// Reads a task file and resolves it.
pub fn load(path: &Path, options: &Options) -> Result<Loaded, TaskFileError> {
    resolve(read(path, options)?, options)
}

/// Whether a file is one that a task file's mistakes may be told of: it says a goal, or only what a task file says, before the
/// place where it is no TOML. Of any other one, a message about it would tell what it holds.
pub fn may_be_task(file: &Path) -> bool {
    let Ok(text) = schema::read_text(&Place::File(file.to_owned()), file, FILE_MAX_BYTES) else { return false };
    let keys = section::keys(&text);
    keys.contains("goal") || (!keys.is_empty() && keys.iter().all(|key| TOP_KEYS.contains(&key.as_str())))
}

/// A task without a file: the prompt is the goal, the tools are the built-in ones, and relative commands run in the
/// workspace.
pub fn plain(options: &Options) -> Result<Loaded, TaskFileError> {
    if let Some(name) = options.variables.keys().next() {
        let problem = format!("{name} is for a task file, and there is none; add --task FILE or leave it out");
        return Err(TaskFileError::Usage { place: Place::Flag("--var".to_owned()), problem });
    }
    resolve(Draft { tools: every_builtin(), ..Draft::default() }, options)
}

/// What a task file says, before flags and defaults.
#[derive(Debug, Default)]
struct Draft {
    /// None: there is no file.
    file: Option<PathBuf>,
    folder: Option<PathBuf>,
    goal: Option<String>,
    instructions: String,
    constraints: Vec<String>,
    program: Option<(Place, String)>,
    permission_mode: Option<(Place, String)>,
    model: Option<(Place, String)>,
    workspace: Option<(Place, String)>,
    principal: Option<Payload>,
    limits: BTreeMap<BudgetKind, Limit>,
    inputs: BTreeMap<String, Payload>,
    images: Vec<(Place, PathBuf)>,
    tools: Vec<ToolSpec>,
    /// Whether it says which, or has what is built in.
    names_tools: bool,
    acceptance: Vec<CheckSpec>,
    snapshots: Snapshots,
    answer: Option<AnswerSpec>,
    policy: WrittenRules,
    hooks: Vec<(Place, HookSpec)>,
    routes: Vec<WrittenRoute>,
    servers: BTreeMap<String, McpServer>,
    context: ContextSettings,
    /// The model that writes summaries.
    summary: Option<(Place, String)>,
    /// The models that judge the work, where a check names one.
    judges: Vec<(CheckName, Place, String)>,
    /// Where checks say what they protect.
    protects: Vec<(CheckName, Place)>,
    /// Keys the file has.
    given: BTreeSet<String>,
    /// Where the policy's lists are.
    policy_place: Option<Place>,
}

fn read(path: &Path, options: &Options) -> Result<Draft, TaskFileError> {
    let file = options.here.join(path);
    let place = Place::File(path.to_owned());
    let text = schema::read_text(&place, &file, FILE_MAX_BYTES)?;
    let unreadable = |source| TaskFileError::Unreadable { place, file: file.clone(), source };
    let file = file.canonicalize().map_err(unreadable)?;
    let folder = file.parent().map_or_else(|| options.here.clone(), Path::to_owned);
    let (top, used) = Section::parse(path, &text, &options.variables)?;
    if let Some(name) = options.variables.keys().find(|name| !used.contains(*name)) {
        let problem = format!("{} does not use ${{{name}}}; correct the name or leave it out", path.display());
        return Err(TaskFileError::Usage { place: Place::Flag(format!("--var {name}")), problem });
    }
    let mut draft = draft(top, &folder)?;
    draft.file = Some(path.to_owned());
    draft.folder = Some(folder);
    Ok(draft)
}

fn draft(mut top: Section, folder: &Path) -> Result<Draft, TaskFileError> {
    let schemas = Schemas { folder };
    let given: BTreeSet<String> = TOP_KEYS.iter().filter(|key| top.has(key)).map(|key| (*key).to_owned()).collect();
    let mut draft = Draft { given, ..Draft::default() };
    let placed = |top: &mut Section, key: &'static str| {
        let place = top.place(key);
        Ok::<_, TaskFileError>(top.text(key)?.map(|text| (place, text)))
    };
    draft.goal = top.text("goal")?;
    draft.instructions = top.text("instructions")?.unwrap_or_default();
    draft.constraints = top.texts("constraints")?.unwrap_or_default();
    draft.snapshots = snapshots(&mut top)?;
    let place = top.place("images");
    draft.images =
        top.texts("images")?.unwrap_or_default().into_iter().map(|path| (place.clone(), folder.join(path))).collect();
    draft.program = placed(&mut top, "program")?;
    draft.permission_mode = placed(&mut top, "permission_mode")?;
    draft.model = placed(&mut top, "model")?;
    draft.workspace = placed(&mut top, "workspace")?;
    let builtins = builtins(&mut top)?;
    draft.principal = top.node("principal").map(|node| tool::object(&top, "principal", node)).transpose()?;
    if let Some(budget) = top.section("budget")? {
        draft.limits = limits(budget, &mut draft.given)?;
    }
    if let Some(inputs) = top.section("inputs")? {
        for (name, (place, path)) in inputs.named_texts()? {
            draft.inputs.insert(name, schema::input(&place, &folder.join(path))?);
        }
    }
    draft.names_tools = builtins.is_some() || top.has("tools");
    let mut tools = Vec::new();
    for table in top.sections("tools")? {
        tools.push(tool::read(table, &schemas)?);
    }
    match builtins {
        Some(chosen) => tool::offer(&mut tools, chosen)?,
        None if tools.is_empty() => tool::offer(&mut tools, every_builtin())?,
        None => {}
    }
    tool::together(&tools)?;
    draft.tools = tools.into_iter().map(|tool| tool.spec).collect();
    for table in top.sections("acceptance")? {
        let Stated { check, judge, protects } = acceptance(table, &draft.acceptance, &schemas)?;
        draft.protects.extend(protects.map(|place| (check.name.clone(), place)));
        draft.judges.extend(judge.map(|(place, model)| (check.name.clone(), place, model)));
        draft.acceptance.push(check);
    }
    if let Some(table) = top.section("answer")? {
        draft.answer = Some(answer(table, &schemas, &draft.tools)?);
    }
    if let Some(mut table) = top.section("policy")? {
        draft.policy_place = Some(table.place(""));
        draft.policy = WrittenRules {
            allow: rules::of_section(&mut table, "allow")?,
            ask: rules::of_section(&mut table, "ask")?,
            deny: rules::of_section(&mut table, "deny")?,
        };
        table.finish()?;
    }
    for table in top.sections("hooks")? {
        let place = table.place("match");
        draft.hooks.push((place, hook::read(table, folder, TASK_FILE)?));
    }
    draft.routes = route::read_all(&mut top)?;
    draft.servers = servers::read(&mut top, folder, TASK_FILE)?;
    if let Some(table) = top.section("context")? {
        (draft.context, draft.summary) = context::read(table)?;
    }
    top.finish()?;
    Ok(draft)
}

fn snapshots(top: &mut Section) -> Result<Snapshots, TaskFileError> {
    let place = top.place("snapshots");
    match top.text("snapshots")?.as_deref() {
        None | Some("auto") => Ok(Snapshots::Auto),
        Some("off") => Ok(Snapshots::Off),
        Some(other) => {
            let problem =
                format!("there is no \"{other}\"; \"auto\" takes them where the workspace can be kept, \"off\" none");
            Err(TaskFileError::Task { place, problem })
        }
    }
}

/// Everything that is built in.
fn every_builtin() -> Vec<ToolSpec> {
    Builtin::ALL.into_iter().map(longrein_tools::builtin).collect()
}

/// The built-in tools a task chooses. None: it does not say.
fn builtins(top: &mut Section) -> Result<Option<Vec<ToolSpec>>, TaskFileError> {
    let place = top.place("builtins");
    let Some(names) = top.texts("builtins")? else { return Ok(None) };
    let mut chosen: Vec<ToolSpec> = Vec::new();
    for name in names {
        let wrong = |problem: String| TaskFileError::Task { place: place.clone(), problem };
        if chosen.iter().any(|tool| tool.name.as_str() == name) {
            return Err(wrong(format!("{name} stands there twice; once is enough")));
        }
        let Some(builtin) = Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name) else {
            let known: Vec<_> = Builtin::ALL.into_iter().map(Builtin::as_str).collect();
            return Err(wrong(format!("there is no built-in tool \"{name}\"; there are: {}", known.join(", "))));
        };
        chosen.push(longrein_tools::builtin(builtin));
    }
    Ok(Some(chosen))
}

fn limits(mut table: Section, given: &mut BTreeSet<String>) -> Result<BTreeMap<BudgetKind, Limit>, TaskFileError> {
    let mut limits = BTreeMap::new();
    for (key, kind) in BUDGET_KEYS {
        let Some(node) = table.node(key) else { continue };
        let limit = match node.value {
            Value::Text(text) if text == values::UNLIMITED => Limit::Unlimited,
            Value::Text(text) => match kind {
                BudgetKind::Time | BudgetKind::Deadline => table.fit(key, node.line, values::limit(kind, &text))?,
                BudgetKind::Turns
                | BudgetKind::ModelCalls
                | BudgetKind::ToolCalls
                | BudgetKind::Tokens
                | BudgetKind::Usd => {
                    let problem = format!("\"{text}\" must be a number, without quotes, or \"unlimited\"");
                    return Err(table.at(key, node.line, problem));
                }
            },
            Value::Whole(text) | Value::Fraction(text) | Value::Moment(text) => {
                table.fit(key, node.line, values::limit(kind, &text))?
            }
            other @ (Value::Truth(_) | Value::List(_) | Value::Table(_)) => {
                return Err(table.unfit(key, node.line, &other, "a number, or \"unlimited\""));
            }
        };
        given.insert(format!("budget.{key}"));
        limits.insert(kind, limit);
    }
    table.finish()?;
    Ok(limits)
}

/// A check as its table states it.
struct Stated {
    check: CheckSpec,
    /// The model it names to judge.
    judge: Option<(Place, String)>,
    /// Where it says what it protects.
    protects: Option<Place>,
}

fn acceptance(mut table: Section, before: &[CheckSpec], schemas: &Schemas<'_>) -> Result<Stated, TaskFileError> {
    let place = table.place("name");
    let kinds = ["command", "rule", "schema", "judge"];
    let named: Vec<_> = kinds.into_iter().filter(|key| table.has(key)).collect();
    if let [_, second, ..] = named[..] {
        return Err(table.wrong(second, "a check has one of command, rule, schema and judge; make two checks of it"));
    }
    let by = match named.first() {
        Some(&"rule") => table.text("rule")?.map(CheckBy::Rule),
        Some(&"schema") => {
            let node = table.node("schema");
            let schema = node.map(|node| schemas.read(&table, "schema", node)).transpose()?;
            schema.map(|schema| CheckBy::Schema(schema::canonical(&schema)))
        }
        Some(&"judge") => match table.text("judge")? {
            Some(means) if !means.trim().is_empty() => Some(CheckBy::Judge(JudgeSpec { means, model: None })),
            Some(_) | None => return Err(table.wrong("judge", "what does good mean? judge = \"…\", in words")),
        },
        Some(_) | None => None,
    };
    let model_place = table.place("model");
    let model = table.text("model")?.map(|name| (model_place, name));
    if model.is_some() && !matches!(by, Some(CheckBy::Judge(_))) {
        return Err(table.wrong("model", "only a judge is a model; write judge = \"what good means\", or leave it out"));
    }
    let command = if by.is_none() { tool::command(&mut table)? } else { Vec::new() };
    let written = table.text("name")?.filter(|name| !name.is_empty());
    let name = match (written, &by) {
        (Some(name), _) => name,
        (None, None) => command.join(" "),
        (None, Some(_)) => return Err(table.wrong("name", "the check needs a name")),
    };
    let protects = table.has("protect").then(|| table.place("protect"));
    let protect = table.texts("protect")?.unwrap_or_default();
    if let Err(error) = Patterns::new(&protect) {
        return Err(table.wrong("protect", error.to_string()));
    }
    if before.iter().any(|check| check.name.as_str() == name) {
        let problem = format!("a second check named \"{name}\"; give it another name");
        return Err(TaskFileError::Task { place, problem });
    }
    let check = CheckSpec {
        name: CheckName::new(name),
        command,
        timeout: tool::positive_span(&mut table, "timeout", CHECK_TIMEOUT)?,
        by,
        protect,
    };
    table.finish()?;
    Ok(Stated { check, judge: model, protects })
}

fn answer(mut table: Section, schemas: &Schemas<'_>, tools: &[ToolSpec]) -> Result<AnswerSpec, TaskFileError> {
    let places: BTreeMap<&str, Place> =
        ["schema", "evidence", "check", "template", "numbers"].map(|key| (key, table.place(key))).into();
    let schema = match table.node("schema") {
        Some(node) => Some(schemas.read(&table, "schema", node)?),
        None => None,
    };
    let mut evidence = BTreeMap::new();
    if let Some(bindings) = table.section("evidence")? {
        for (name, binding) in bindings.named() {
            let mut binding = binding?;
            let field_place = binding.place("field");
            let field =
                binding.text("field")?.ok_or_else(|| binding.wrong("field", "which field of the answer cites it?"))?;
            if let Some(schema) = &schema
                && !schema::may_have(schema, &field)
            {
                let problem = format!(
                    "the answer's schema has no \"{field}\" and allows nothing beside its properties; add it there, or \
                     correct the name"
                );
                return Err(TaskFileError::Task { place: field_place, problem });
            }
            let place = binding.place("tool");
            let tool = binding.text("tool")?.ok_or_else(|| binding.wrong("tool", "which tool's evidence is it?"))?;
            // what a server offers is not known yet
            if !tool.starts_with(PREFIX) && !tools.iter().any(|known| known.name.as_str() == tool) {
                let near = longrein_policy::near(&tool, tools.iter().map(|tool| tool.name.as_str()));
                let problem = format!("there is no tool \"{tool}\"; near it: {}", near.join(", "));
                return Err(TaskFileError::Task { place, problem });
            }
            binding.finish()?;
            evidence.insert(name, Binding { field, tool: ToolName::new(tool) });
        }
    }
    let schema = schema.as_ref().map(schema::canonical);
    let spec = AnswerSpec {
        schema,
        evidence,
        check: table.text("check")?,
        template: table.text("template")?,
        numbers: tool::one_of(&mut table, "numbers", &[("evidence", Numbers::Evidence)])?,
    };
    table.finish()?;
    Answer::compile(&spec).map_err(|mistake| {
        let key = mistake.key();
        let first = key.split('.').next().unwrap_or_default();
        let place = places.get(first).cloned().expect("every key of an answer that can be wrong has its place kept");
        TaskFileError::Task { place, problem: mistake.to_string() }
    })?;
    Ok(spec)
}

fn resolve(draft: Draft, options: &Options) -> Result<Loaded, TaskFileError> {
    let mut sources: BTreeMap<String, String> =
        draft.given.iter().map(|key| (key.clone(), TASK_FILE.to_owned())).collect();
    let goal = goal(&draft, options, &mut sources)?;
    let workspace = workspace(&draft, options, &mut sources)?;
    let folder = draft.folder.clone().unwrap_or_else(|| workspace.clone());
    let program = program(&draft, options, &folder, &mut sources)?;
    let permission_mode = permission_mode(&draft, options, &mut sources)?;
    let limits = final_limits(&draft.limits, options, &mut sources)?;
    let model = model(&draft, options, &folder, &mut sources)?;
    let summary = match &draft.summary {
        Some((place, name)) => Some(Box::new(spec_of(place.clone(), name, &folder, FILES_FOLDER, options)?)),
        None => None,
    };
    let mut judges = BTreeMap::new();
    for (check, place, name) in &draft.judges {
        judges.insert(check.clone(), spec_of(place.clone(), name, &folder, FILES_FOLDER, options)?);
    }
    let named = [Some(&model), summary.as_deref()].into_iter().flatten().chain(judges.values());
    let unpriced = { named }.find(|model| model.price.is_none());
    if let Some(ModelSpec { name, .. }) = unpriced.filter(|_| limits.micros != Limit::Unlimited) {
        return Err(unpriced_model(name));
    }
    let routes = routes(draft.routes, options, &folder, &mut sources)?;
    let mut acceptance = checks(draft.acceptance, options, &mut sources)?;
    protect::settle(&mut acceptance, &draft.protects, &workspace)?;
    for check in &mut acceptance {
        if let Some(CheckBy::Judge(judge)) = &mut check.by {
            judge.model = judges.remove(&check.name).map(Box::new);
        }
    }
    let answer = final_answer(draft.answer, options, &mut sources)?;
    let policy = policy(&draft.policy, draft.policy_place, options, &draft.tools, &mut sources)?;
    let hooks = hooks(draft.hooks, options, &draft.tools, &mut sources)?;
    let context = final_context(draft.context, options, &mut sources);
    let mut blobs = Vec::new();
    let capture = |(name, payload): (String, Payload)| {
        let (content, blob): (Content, _) = place(payload);
        blobs.extend(blob.map(stored));
        (name, content)
    };
    let inputs = draft.inputs.into_iter().map(capture).collect();
    let (images, of_images) = images(draft.images, options, &mut sources)?;
    blobs.extend(of_images);
    let mut task = Task {
        goal,
        instructions: draft.instructions,
        constraints: draft.constraints,
        program: Program::React,
        model,
        workspace: utf8(&workspace)?,
        folder: utf8(&folder)?,
        principal: draft.principal.unwrap_or_else(|| Payload::parse("{}").expect("an empty object is JSON")),
        limits,
        inputs,
        tools: draft.tools,
        acceptance,
        answer,
        permission_mode,
        policy,
        hooks,
        rules: Vec::new(),
        context: ContextSpec { summary, ..context },
        routes: routes.iter().map(|(_, route)| route.clone()).collect(),
        sources,
        servers: final_servers(draft.servers, options),
        snapshots: draft.snapshots,
        piped_from: None,
        questions_expire_ms: None,
        images,
        pins: BTreeMap::new(),
    };
    if let Some(mut program) = program {
        blobs.extend(program.resolve(options, &workspace)?.into_iter().map(stored));
        program.fits(&task)?;
        let place = program.place();
        let mut phases = program.install(&mut task);
        let priced = task.limits.micros != Limit::Unlimited;
        program::find_models(&mut phases, &|name| {
            let spec = spec_of(place.clone(), name, &folder, FILES_FOLDER, options)?;
            if priced && spec.price.is_none() { Err(unpriced_model(&spec.name)) } else { Ok(spec) }
        })?;
        if let Some(name) = part::unpriced(&task, &phases, priced) {
            return Err(unpriced_model(&name));
        }
        task.program = Program::Phases(Box::new(phases));
    }
    route::check(&routes, task.program.phases())?;
    if let Some(model) = route::unpriced(&task, &routes) {
        return Err(unpriced_model(&model.name));
    }
    Ok(Loaded { task, blobs })
}

/// A blob of JSON as it is stored.
pub(crate) fn stored((digest, payload): (Digest, Payload)) -> (Digest, Bytes) {
    (digest, Bytes::from(payload.as_str().to_owned()))
}

/// What is shown with the goal: the file's images, then those of flags.
fn images(
    named: Vec<(Place, PathBuf)>,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<(Vec<ImageRef>, crate::images::Blobs), TaskFileError> {
    let flag = Place::Flag("--image".to_owned());
    if !options.images.is_empty() {
        sources.insert("images".to_owned(), "--image".to_owned());
    }
    let flags = options.images.iter().map(|file| (flag.clone(), options.here.join(file)));
    let mut last = None;
    let mut images = Vec::new();
    for (place, file) in named.into_iter().chain(flags) {
        let found = Image::read(&file)
            .map_err(|error| TaskFileError::Task { place: place.clone(), problem: error.to_string() });
        images.push(found?);
        last = Some(place);
    }
    let place = last.unwrap_or(flag);
    together(images).map_err(|error| TaskFileError::Task { place, problem: error.to_string() })
}

fn goal(draft: &Draft, options: &Options, sources: &mut BTreeMap<String, String>) -> Result<String, TaskFileError> {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    match (filled(&draft.goal), filled(&options.prompt)) {
        (Some(goal), None) => Ok(goal),
        (None, Some(prompt)) => {
            sources.insert("goal".to_owned(), "prompt".to_owned());
            Ok(prompt)
        }
        (Some(_), Some(_)) => Err(TaskFileError::Usage {
            place: Place::Flag("PROMPT".to_owned()),
            problem: "the task file has a goal already; leave the prompt out, or the goal".to_owned(),
        }),
        (None, None) => {
            let problem = "there is no goal; write goal = \"…\" or give a prompt".to_owned();
            Err(match &draft.file {
                Some(file) => TaskFileError::Task { place: Place::File(file.clone()), problem },
                None => TaskFileError::Usage { place: Place::Flag("PROMPT".to_owned()), problem },
            })
        }
    }
}

/// The flag's, the task's, the git root, or here.
fn workspace(
    draft: &Draft,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<PathBuf, TaskFileError> {
    let (place, path) = match (&options.workspace, &draft.workspace, &draft.folder) {
        (Some(path), _, _) => {
            sources.insert("workspace".to_owned(), "--cd".to_owned());
            (Place::Flag("--cd".to_owned()), options.here.join(path))
        }
        (None, Some((place, path)), Some(folder)) => (place.clone(), folder.join(path)),
        (None, Some(_) | None, _) => {
            let root = options.here.ancestors().find(|folder| folder.join(".git").exists());
            (Place::Flag("the workspace".to_owned()), root.unwrap_or(&options.here).to_owned())
        }
    };
    let found = path.canonicalize();
    let found =
        found.map_err(|source| TaskFileError::Unreadable { place: place.clone(), file: path.clone(), source })?;
    if !found.is_dir() {
        return Err(TaskFileError::Task { place, problem: format!("{} is no folder", path.display()) });
    }
    Ok(found)
}

/// None: the plain loop.
fn program(
    draft: &Draft,
    options: &Options,
    folder: &Path,
    sources: &mut BTreeMap<String, String>,
) -> Result<Option<program::Program>, TaskFileError> {
    let (place, name, base) = match (&options.program, &draft.program) {
        (Some(name), _) => {
            sources.insert("program".to_owned(), "--program".to_owned());
            (Place::Flag("--program".to_owned()), name, options.here.as_path())
        }
        (None, Some((place, name))) => (place.clone(), name, folder),
        (None, None) => return Ok(None),
    };
    if name == Program::React.name() {
        return Ok(None);
    }
    program::find(name, base, &place).map(Some)
}

fn permission_mode(
    draft: &Draft,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<Mode, TaskFileError> {
    let (place, name) = match (&options.permission_mode, &draft.permission_mode) {
        (Some(name), _) => {
            sources.insert("permission_mode".to_owned(), "--permission-mode".to_owned());
            (Place::Flag("--permission-mode".to_owned()), name)
        }
        (None, Some((place, name))) => (place.clone(), name),
        (None, None) => {
            let Some(DefaultMode { mode, source }) = &options.defaults.permission_mode else { return Ok(Mode::Ask) };
            sources.insert("permission_mode".to_owned(), source.clone());
            return Ok(*mode);
        }
    };
    mode(name).map_err(|problem| match place {
        Place::Flag(_) => TaskFileError::Usage { place, problem },
        Place::File(_) | Place::Line { .. } | Place::Key { .. } => TaskFileError::Task { place, problem },
    })
}

/// A permission mode as it is written.
pub fn mode(name: &str) -> Result<Mode, String> {
    Mode::from_name(name).ok_or_else(|| {
        let all = Mode::ALL.map(Mode::as_str).join(", ");
        format!("there is no mode \"{name}\"; there are: {all}")
    })
}

fn final_limits(
    written: &BTreeMap<BudgetKind, Limit>,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<Limits, TaskFileError> {
    let mut all = written.clone();
    for LimitFlag { kind, value } in &options.limits {
        let (flag, key) = (limit_flag(*kind), format!("budget.{kind}"));
        let limit = values::limit(*kind, value)
            .map_err(|problem| TaskFileError::Usage { place: Place::Flag(flag.to_owned()), problem })?;
        sources.insert(key, flag.to_owned());
        all.insert(*kind, limit);
    }
    let defaults = Limits::default();
    let given = |kind: BudgetKind, default: Limit| all.get(&kind).copied().unwrap_or(default);
    Ok(Limits {
        turns: given(BudgetKind::Turns, defaults.turns),
        model_calls: given(BudgetKind::ModelCalls, defaults.model_calls),
        tool_calls: given(BudgetKind::ToolCalls, defaults.tool_calls),
        tokens: given(BudgetKind::Tokens, defaults.tokens),
        micros: given(BudgetKind::Usd, defaults.micros),
        time_ms: given(BudgetKind::Time, defaults.time_ms),
        deadline: match given(BudgetKind::Deadline, Limit::Unlimited) {
            Limit::At(at) => Some(Timestamp(at)),
            Limit::Unlimited => None,
        },
    })
}

/// An amount to add to a budget, as written: in the unit of its kind, never "unlimited".
pub fn amount(kind: BudgetKind, text: &str) -> Result<u64, String> {
    match values::limit(kind, text)? {
        Limit::At(amount) => Ok(amount),
        Limit::Unlimited => Err("a budget is raised by an amount".to_owned()),
    }
}

/// A span of time as people write it: `90s`, `10m`, `1h30m`, `90d`.
pub fn span(text: &str) -> Result<Duration, String> {
    values::span(text)
}

/// The flag's name for a limit.
pub fn limit_flag(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::Turns => "--max-turns",
        BudgetKind::ModelCalls => "--max-model-calls",
        BudgetKind::ToolCalls => "--max-tool-calls",
        BudgetKind::Tokens => "--max-tokens-total",
        BudgetKind::Usd => "--max-budget-usd",
        BudgetKind::Time => "--max-time",
        BudgetKind::Deadline => "--deadline",
    }
}

fn model(
    draft: &Draft,
    options: &Options,
    folder: &Path,
    sources: &mut BTreeMap<String, String>,
) -> Result<ModelSpec, TaskFileError> {
    let (place, written, base) = if let Some(name) = &options.model {
        sources.insert("model".to_owned(), "--model".to_owned());
        (Place::Flag("--model".to_owned()), name, options.here.as_path())
    } else if let Some((place, name)) = &draft.model {
        (place.clone(), name, folder)
    } else if let Some(DefaultModel { name, source }) = &options.defaults.model {
        sources.insert("model".to_owned(), source.clone());
        let words = "the folder you are in";
        return spec_of(Place::Flag(source.clone()), name, &options.here, words, options)
            .map_err(|error| TaskFileError::Configuration { problem: error.to_string() });
    } else {
        let problem = "no model is named; add --model PROVIDER/NAME, model = \"…\" to the task file or the configuration, \
                       or set LONGREIN_MODEL";
        return Err(TaskFileError::Configuration { problem: problem.to_owned() });
    };
    let words = if options.model.is_none() && draft.model.is_some() { FILES_FOLDER } else { "the folder you are in" };
    spec_of(place, written, base, words, options)
}

/// What a script's path is relative to, where the task file names it.
const FILES_FOLDER: &str = "the task file's folder";

/// The model named at this place. `base`: what a script's path is relative to, and in words.
fn spec_of(
    place: Place,
    written: &str,
    base: &Path,
    base_in_words: &str,
    options: &Options,
) -> Result<ModelSpec, TaskFileError> {
    let settings = options.defaults.models.get(written).copied().unwrap_or_default();
    let (name, price) = match written.split_once('/') {
        Some((SCRIPT, path)) if !path.is_empty() => {
            let file = base.join(path);
            let script = file.canonicalize().map_err(|source| {
                let file = file.display();
                let problem =
                    format!("cannot read {file}: {source} (script/FILE: FILE is relative to {base_in_words})");
                TaskFileError::Task { place, problem }
            })?;
            let free = Price { input: 0, cached: 0, cache_write: 0, output: 0, reasoning: None };
            (format!("{SCRIPT}/{}", utf8(&script)?), Some(settings.price.unwrap_or(free)))
        }
        Some(_) | None if is_script(written) && !written.starts_with("openai/") => {
            let problem = format!("\"{written}\" names no model; for a scripted one write {SCRIPT}/{written}");
            return Err(no_model(place, problem));
        }
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => (written.to_owned(), settings.price),
        Some(_) | None => {
            let problem = format!("\"{written}\" names no model; write PROVIDER/NAME, for example openai/gpt-5-mini");
            return Err(no_model(place, problem));
        }
    };
    Ok(ModelSettings { price, ..settings }.spec(ModelName::new(name), MAX_OUTPUT))
}

fn unpriced_model(name: &ModelName) -> TaskFileError {
    TaskFileError::Configuration {
        problem: format!(
            "the budget is in dollars but the price of {name} is not known; add price = {{ input, cached, cache_write, \
             output }} to [models.\"{name}\"] in the configuration, or budget in tokens"
        ),
    }
}

/// A script file named without its provider.
fn is_script(written: &str) -> bool {
    Path::new(written).extension().is_some_and(|extension| extension == "toml")
}

fn no_model(place: Place, problem: String) -> TaskFileError {
    match place {
        Place::Flag(_) => TaskFileError::Usage { place, problem },
        Place::File(_) | Place::Line { .. } | Place::Key { .. } => TaskFileError::Task { place, problem },
    }
}

fn checks(
    mut checks: Vec<CheckSpec>,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<Vec<CheckSpec>, TaskFileError> {
    for command in &options.checks {
        let usage = |problem: String| TaskFileError::Usage { place: Place::Flag("--check".to_owned()), problem };
        if command.trim().is_empty() {
            return Err(usage("the command is empty".to_owned()));
        }
        if checks.iter().any(|check| check.name.as_str() == command) {
            return Err(usage(format!("there is a check named \"{command}\" already; leave one out")));
        }
        checks.push(CheckSpec {
            name: CheckName::new(command),
            command: vec!["sh".to_owned(), "-c".to_owned(), command.clone()],
            timeout: CHECK_TIMEOUT,
            by: None,
            protect: Vec::new(),
        });
        also(sources, "acceptance", "--check");
    }
    Ok(checks)
}

fn final_answer(
    written: Option<AnswerSpec>,
    options: &Options,
    sources: &mut BTreeMap<String, String>,
) -> Result<Option<AnswerSpec>, TaskFileError> {
    let Some(path) = &options.output_schema else { return Ok(written) };
    let place = Place::Flag("--output-schema".to_owned());
    let schema = schema::schema_file(place.clone(), options.here.join(path))?;
    Schema::compile(&schema)
        .map_err(|mistake| TaskFileError::Task { place: place.clone(), problem: mistake.to_string() })?;
    let bindings = written.iter().flat_map(|written| written.evidence.values());
    if let Some(binding) = bindings.into_iter().find(|binding| !schema::may_have(&schema, &binding.field)) {
        let problem = format!(
            "it has no \"{}\", which the task's answer.evidence names, and allows nothing beside its properties",
            binding.field
        );
        return Err(TaskFileError::Task { place, problem });
    }
    also(sources, "answer", "--output-schema");
    let schema = schema::canonical(&schema);
    Ok(Some(match written {
        Some(written) => AnswerSpec { schema: Some(schema), ..written },
        None => AnswerSpec::of_schema(schema),
    }))
}

/// The file's rules, the flags' and configuration's together, all readable.
fn policy(
    written: &WrittenRules,
    written_at: Option<Place>,
    options: &Options,
    tools: &[ToolSpec],
    sources: &mut BTreeMap<String, String>,
) -> Result<PolicyRules, TaskFileError> {
    let names = || tools.iter().map(|tool| &tool.name);
    let in_file = written_at.unwrap_or_else(|| Place::Flag("the policy".to_owned()));
    written.check(names()).map_err(|bad| TaskFileError::Task { place: in_file, problem: bad.to_string() })?;
    Policy::read(&options.rules, names(), Surroundings::default()).map_err(|bad| {
        let place = Place::Flag(format!("--{}", bad.list));
        TaskFileError::Usage { place, problem: bad.to_string() }
    })?;
    let mut rules = written.texts();
    let flags = &options.rules;
    for (list, name) in [(&flags.allow, List::Allow), (&flags.ask, List::Ask), (&flags.deny, List::Deny)] {
        if !list.is_empty() {
            also(sources, "policy", &format!("--{name}"));
        }
    }
    add(&mut rules, flags);
    for layer in &options.defaults.policy {
        if layer.rules != PolicyRules::default() {
            also(sources, "policy", &layer.source);
        }
        add(&mut rules, &layer.rules);
    }
    Ok(rules)
}

/// Puts more rules beside those there are. Lists add up; deny beats ask beats allow, wherever they come from.
pub fn add(rules: &mut PolicyRules, more: &PolicyRules) {
    let lists = [(&mut rules.allow, &more.allow), (&mut rules.ask, &more.ask), (&mut rules.deny, &more.deny)];
    for (list, more) in lists {
        for rule in more {
            if !list.contains(rule) {
                list.push(rule.clone());
            }
        }
    }
}

/// The configuration's hooks, then the task's: none takes another's place.
fn hooks(
    written: Vec<(Place, HookSpec)>,
    options: &Options,
    tools: &[ToolSpec],
    sources: &mut BTreeMap<String, String>,
) -> Result<Vec<HookSpec>, TaskFileError> {
    let mut all = options.defaults.hooks.clone();
    let from: BTreeSet<String> = all.iter().map(|hook| hook.source.clone()).collect();
    from.iter().for_each(|source| also(sources, "hooks", source));
    for (place, spec) in written {
        hook::names_tools(&spec, tools).map_err(|problem| TaskFileError::Task { place, problem })?;
        all.push(spec);
    }
    Ok(all)
}

/// The task's routes, or where it has none those of the configuration.
fn routes(
    written: Vec<WrittenRoute>,
    options: &Options,
    folder: &Path,
    sources: &mut BTreeMap<String, String>,
) -> Result<Vec<(Place, Route)>, TaskFileError> {
    let is_own = !written.is_empty();
    let (written, base, words) = if is_own {
        (written, folder, FILES_FOLDER)
    } else {
        if let Some(source) = options.defaults.routes_from.as_ref().filter(|_| !options.defaults.routes.is_empty()) {
            sources.insert("route".to_owned(), source.clone());
        }
        (options.defaults.routes.clone(), options.here.as_path(), "the folder you are in")
    };
    route::resolve(written, &|place, name| spec_of(place, name, base, words, options))
}

/// Configuration's servers, and the task's own over them.
fn final_servers(written: BTreeMap<String, McpServer>, options: &Options) -> BTreeMap<String, McpServer> {
    let mut servers = options.defaults.servers.clone();
    servers.extend(written);
    servers
}

/// Configuration's word where the task has none.
fn final_context(written: ContextSettings, options: &Options, sources: &mut BTreeMap<String, String>) -> ContextSpec {
    let mut spec = ContextSpec::default();
    let layers = options.defaults.context.iter().map(|layer| (layer.source.as_str(), layer.settings));
    for (source, settings) in layers.chain([(TASK_FILE, written)]) {
        for key in settings.lay_over(&mut spec) {
            sources.insert(format!("context.{key}"), source.to_owned());
        }
    }
    spec
}

/// A value that comes from more than one place.
fn also(sources: &mut BTreeMap<String, String>, key: &str, flag: &str) {
    let source = sources.entry(key.to_owned()).or_default();
    if !source.split(", ").any(|known| known == flag) {
        *source = if source.is_empty() { flag.to_owned() } else { format!("{source}, {flag}") };
    }
}

fn utf8(path: &Path) -> Result<String, TaskFileError> {
    path.to_str().map(str::to_owned).ok_or_else(|| TaskFileError::Task {
        place: Place::File(path.to_owned()),
        problem: "its path is not UTF-8, and the journal holds only text; rename it".to_owned(),
    })
}

/// A source of values.
pub(crate) const TASK_FILE: &str = "task file";
/// The provider of scripted models.
const SCRIPT: &str = "script";
/// The most tokens of a reply where nothing says otherwise.
pub const MAX_OUTPUT: u64 = 8_192;
/// How long an acceptance check may take where the task does not say.
const CHECK_TIMEOUT: Duration = Duration::from_secs(600);
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
const TOP_KEYS: [&str; 16] = [
    "goal",
    "instructions",
    "constraints",
    "program",
    "model",
    "workspace",
    "permission_mode",
    "principal",
    "inputs",
    "images",
    "tools",
    "acceptance",
    "answer",
    "policy",
    "hooks",
    "route",
];
const BUDGET_KEYS: [(&str, BudgetKind); 7] = [
    ("turns", BudgetKind::Turns),
    ("model_calls", BudgetKind::ModelCalls),
    ("tool_calls", BudgetKind::ToolCalls),
    ("tokens", BudgetKind::Tokens),
    ("usd", BudgetKind::Usd),
    ("time", BudgetKind::Time),
    ("deadline", BudgetKind::Deadline),
];
