//! A task in code.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::budget::{Limit, Limits};
use longrein_core::context::settings::ContextSpec;
use longrein_core::ids::{CheckName, Digest, RunId};
use longrein_core::payload::{Content, Payload, place};
use longrein_core::program::Program;
use longrein_core::route::ROUTES_MAX;
use longrein_core::task::{
    AnswerSpec, Binding, Builtin, CheckBy, CheckSpec, EffectClass, JudgeSpec, Mode, PolicyRules,
};
use longrein_core::time::{Timestamp, millis};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::check::Registry;
use super::error::Error;
use super::model::LanguageModel;
use super::route::Route;
use super::tool::Tool;
use crate::images::{Image, together};
use crate::taskfile::{Options, Place, TaskFileError, check_context, part, program, stored};

/// What is asked, with the tools and the model it is asked of.
///
/// Immutable once a run has started with it. Where a budget is not given, there is a ceiling: 200 turns, 400 model calls,
/// 2,000 tool calls, 8 hours.
#[derive(Clone)]
pub struct Task {
    pub(crate) id: Option<String>,
    goal: String,
    instructions: String,
    constraints: Vec<String>,
    pub(crate) model: Option<LanguageModel>,
    workspace: Option<PathBuf>,
    principal: Value,
    limits: Limits,
    inputs: BTreeMap<String, Value>,
    pub(crate) tools: Vec<Tool>,
    builtins: Vec<Builtin>,
    acceptance: Vec<Accepts>,
    answer_schema: Option<Value>,
    evidence: BTreeMap<String, Binding>,
    answer_check: Option<String>,
    answer_template: Option<String>,
    policy: PolicyRules,
    permission_mode: Mode,
    context: ContextSpec,
    program: Option<String>,
    pub(crate) routes: Vec<Route>,
    images: Vec<Shown>,
}

/// An acceptance check as it is written.
#[derive(Clone)]
struct Accepts {
    name: String,
    by: By,
    timeout: Duration,
}

#[derive(Clone)]
enum By {
    Command(Vec<String>),
    /// A check of the program.
    Name,
    /// The opinion of the run's model; what good means.
    Model(String),
}

/// Where an image is.
#[derive(Clone)]
enum Shown {
    File(PathBuf),
    Bytes(String, Bytes),
}

/// A task as a run starts with it.
pub(crate) struct Resolved {
    pub(crate) id: Option<RunId>,
    pub(crate) task: longrein_core::task::Task,
    pub(crate) blobs: Vec<(Digest, Bytes)>,
}

/// How long an acceptance check may take where nothing says otherwise.
const CHECK_TIMEOUT: Duration = Duration::from_secs(600);

/// The folder of a task that works in none.
const NOWHERE: &str = "/";

impl Task {
    /// A task with this goal and nothing else.
    pub fn new(goal: impl Into<String>) -> Self {
        Self {
            id: None,
            goal: goal.into(),
            instructions: String::new(),
            constraints: Vec::new(),
            model: None,
            workspace: None,
            principal: Value::Object(serde_json::Map::new()),
            limits: Limits::default(),
            inputs: BTreeMap::new(),
            tools: Vec::new(),
            builtins: Vec::new(),
            acceptance: Vec::new(),
            answer_schema: None,
            evidence: BTreeMap::new(),
            answer_check: None,
            answer_template: None,
            policy: PolicyRules::default(),
            permission_mode: Mode::default(),
            context: ContextSpec::default(),
            program: None,
            routes: Vec::new(),
            images: Vec::new(),
        }
    }

    /// The id of the run, 1 to 64 of `A-Z a-z 0-9 . _ -`. Starting the same task under the same id again goes on with that
    /// run, or brings its stored result; another task is refused. A fresh id if not given.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// An image that is shown with the goal, from a file; png, jpeg, gif or webp. It is read when the run starts.
    #[must_use]
    pub fn image(mut self, file: impl Into<PathBuf>) -> Self {
        self.images.push(Shown::File(file.into()));
        self
    }

    /// The same from its bytes; `name` is how the model and people know it.
    #[must_use]
    pub fn image_bytes(mut self, name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        self.images.push(Shown::Bytes(name.into(), bytes.into()));
        self
    }

    fn images(&self) -> Result<Vec<Image>, Error> {
        let read = |shown: &Shown| match shown {
            Shown::File(file) => Image::read(file),
            Shown::Bytes(name, bytes) => Image::of(name, bytes.clone()),
        };
        self.images.iter().map(read).collect::<Result<_, _>>().map_err(|error| Error::Task(error.to_string()))
    }

    /// How to work, beside the goal.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// A rule that is in every request.
    #[must_use]
    pub fn constraint(mut self, constraint: impl Into<String>) -> Self {
        self.constraints.push(constraint.into());
        self
    }

    /// Which model answers: a name such as `"openai/gpt-5-mini"`, a [`LanguageModel`], or a [`Script`](crate::Script).
    #[must_use]
    pub fn model(mut self, model: impl Into<LanguageModel>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Another model, and when calls go to it; the first route that holds counts.
    ///
    /// ```
    /// use longrein::{Route, Task};
    ///
    /// let task = Task::new("Split this module.").model("anthropic/claude-x").route(Route::to("ollama/qwen3:8b"));
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// A tool the model may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Tools the model may call.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Built-in tools the model may call: files and shell. None if not said.
    #[must_use]
    pub fn builtins(mut self, builtins: impl IntoIterator<Item = Builtin>) -> Self {
        self.builtins.extend(builtins);
        self
    }

    /// The folder the run works in. Built-in tools, commands, acceptance checks and workspace tools
    /// need one; one run at a time writes it.
    #[must_use]
    pub fn workspace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// Who this is for: a JSON object that tools and guards see. Never the model's word.
    #[must_use]
    pub fn principal(mut self, principal: Value) -> Self {
        self.principal = principal;
        self
    }

    /// A value that is captured into the journal at the start; tools get it.
    #[must_use]
    pub fn input(mut self, name: &str, value: Value) -> Self {
        self.inputs.insert(name.to_owned(), value);
        self
    }

    /// All budgets at once.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Answered model turns. The last of two or more is the closing call, without tools.
    #[must_use]
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.limits.turns = Limit::At(turns);
        self
    }

    /// Attempts at model calls, lost and failed ones too.
    #[must_use]
    pub fn max_model_calls(mut self, calls: u64) -> Self {
        self.limits.model_calls = Limit::At(calls);
        self
    }

    /// Calls of tools.
    #[must_use]
    pub fn max_tool_calls(mut self, calls: u64) -> Self {
        self.limits.tool_calls = Limit::At(calls);
        self
    }

    /// Tokens in and out, over all attempts.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.limits.tokens = Limit::At(tokens);
        self
    }

    /// Micro-dollars: a dollar is 1,000,000. The model needs a price.
    #[must_use]
    pub fn max_micros(mut self, micros: u64) -> Self {
        self.limits.micros = Limit::At(micros);
        self
    }

    /// Working time; waits for a person and downtime do not count.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.limits.time_ms = Limit::At(millis(time));
        self
    }

    /// The wall-clock time at which it is over.
    #[must_use]
    pub fn deadline(mut self, at: Timestamp) -> Self {
        self.limits.deadline = Some(at);
        self
    }

    /// An acceptance check: a command run in the workspace before the run is done. Exit 0 passes; its output is the
    /// evidence.
    #[must_use]
    pub fn check<W: Into<String>>(self, name: &str, words: impl IntoIterator<Item = W>) -> Self {
        self.check_within(name, words, CHECK_TIMEOUT)
    }

    /// As [`check`](Task::check), with a time of its own instead of 10 minutes.
    #[must_use]
    pub fn check_within<W: Into<String>>(
        mut self,
        name: &str,
        words: impl IntoIterator<Item = W>,
        timeout: Duration,
    ) -> Self {
        let by = By::Command(words.into_iter().map(Into::into).collect());
        self.acceptance.push(Accepts { name: name.to_owned(), by, timeout });
        self
    }

    /// An acceptance check in code: the [`Check`](crate::Check) that the program has under this name.
    #[must_use]
    pub fn checked_by(self, name: &str) -> Self {
        self.checked_by_within(name, CHECK_TIMEOUT)
    }

    /// As [`checked_by`](Task::checked_by), with a time of its own instead of 10 minutes.
    #[must_use]
    pub fn checked_by_within(mut self, name: &str, timeout: Duration) -> Self {
        self.acceptance.push(Accepts { name: name.to_owned(), by: By::Name, timeout });
        self
    }

    /// The task's model is asked whether the work is good; `means` says what that is. An opinion, never a proof: alone it
    /// leaves a run unverified. Its calls are counted like any other.
    #[must_use]
    pub fn judged(mut self, name: &str, means: &str) -> Self {
        let by = By::Model(means.to_owned());
        self.acceptance.push(Accepts { name: name.to_owned(), by, timeout: CHECK_TIMEOUT });
        self
    }

    /// The answer is JSON of this type; read it back with [`RunOutcome::answer_as`](crate::RunOutcome::answer_as).
    #[must_use]
    pub fn answer<T: JsonSchema>(self) -> Self {
        self.answer_schema(schemars::schema_for!(T).to_value())
    }

    /// The answer is JSON that fits this schema.
    #[must_use]
    pub fn answer_schema(mut self, schema: Value) -> Self {
        self.answer_schema = Some(schema);
        self
    }

    /// A field of the answer that must hold the id of evidence which `tool` brought; `name` stands for its data in
    /// [`answer_check`](Task::answer_check) and [`answer_template`](Task::answer_template).
    #[must_use]
    pub fn answer_cites(mut self, name: &str, field: &str, tool: &str) -> Self {
        let binding = Binding { field: field.to_owned(), tool: longrein_core::ids::ToolName::new(tool) };
        self.evidence.insert(name.to_owned(), binding);
        self
    }

    /// A CEL condition over `answer` and what it cites.
    #[must_use]
    pub fn answer_check(mut self, condition: &str) -> Self {
        self.answer_check = Some(condition.to_owned());
        self
    }

    /// Renders the answer for people from verified data.
    #[must_use]
    pub fn answer_template(mut self, template: &str) -> Self {
        self.answer_template = Some(template.to_owned());
        self
    }

    /// A rule for what may be called without being asked. Reads may be anyway; deny beats ask beats allow.
    #[must_use]
    pub fn allow(mut self, rule: &str) -> Self {
        self.policy.allow.push(rule.to_owned());
        self
    }

    /// A rule for what a person is asked about.
    #[must_use]
    pub fn ask(mut self, rule: &str) -> Self {
        self.policy.ask.push(rule.to_owned());
        self
    }

    /// A rule for what may not be called.
    #[must_use]
    pub fn deny(mut self, rule: &str) -> Self {
        self.policy.deny.push(rule.to_owned());
        self
    }

    /// How much it may do without a person; [`Mode::Ask`] if not said. The same task with another mode, under the same id, has
    /// its run go on in that one; a shadow run stays one.
    ///
    /// ```
    /// use longrein::{Mode, Task};
    ///
    /// let task = Task::new("How would you split this module?").permission_mode(Mode::Plan);   // it only reads
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn permission_mode(mut self, mode: Mode) -> Self {
        self.permission_mode = mode;
        self
    }

    /// How the model's window is kept: when it is made anew, and how much of it is used then. What is not said stays as it is:
    ///
    /// ```
    /// use longrein::{ContextSpec, Task, Trigger};
    ///
    /// let context = ContextSpec { trigger: Trigger::At(800), ..ContextSpec::default() };   // at 80 % of what may be sent
    /// let task = Task::new("Read the whole archive.").context(context);
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn context(mut self, context: ContextSpec) -> Self {
        self.context = context;
        self
    }

    /// The shape of the loop: one of the shipped programs (`"direct"`, `"plan"`, `"reflexion"`), or the path of a program file,
    /// relative to the working directory. The plain loop, `"react"`, if not said. See `docs/programs.md`.
    ///
    /// ```
    /// use longrein::Task;
    ///
    /// let task = Task::new("Move the module into a crate of its own.").program("plan");
    /// # let _ = task;
    /// ```
    #[must_use]
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Puts the task's program into it.
    fn follow(&self, task: &mut longrein_core::task::Task) -> Result<(), Error> {
        let Some(name) = self.program.as_deref().filter(|name| *name != Program::React.name()) else { return Ok(()) };
        let wrong = |error: TaskFileError| Error::Task(error.to_string());
        let here = PathBuf::from(".");
        let mut found = program::find(name, &here, &Place::Flag("Task::program".to_owned())).map_err(wrong)?;
        let blobs = found.resolve(&Options { here, ..Options::default() }, task.workspace.as_ref()).map_err(wrong)?;
        if !blobs.is_empty() {
            let problem = "an input of a task file for children is larger than an event may be; put the data into a file of the \
                           workspace";
            return Err(Error::Task(problem.to_owned()));
        }
        found.fits(task).map_err(wrong)?;
        let mut phases = found.install(task);
        let is_priced = task.limits.micros != Limit::Unlimited;
        program::find_models(&mut phases, &|name| {
            let spec = LanguageModel::named(name).spec();
            if is_priced && spec.price.is_none() {
                let problem = format!("the budget is in dollars and the price of {name} is not known");
                return Err(TaskFileError::Configuration { problem });
            }
            Ok(spec)
        })
        .map_err(wrong)?;
        if let Some(name) = part::unpriced(task, &phases, is_priced) {
            return Err(Error::Task(format!("the budget is in dollars and the price of {name} is not known")));
        }
        task.program = Program::Phases(Box::new(phases));
        Ok(())
    }

    /// Fills in what was left out, and refuses what cannot be meant.
    pub(crate) fn resolve(&self, checks: &Registry) -> Result<Resolved, Error> {
        let wrong = |problem: String| Error::Task(problem);
        let id = self.id.as_deref().map(RunId::parse).transpose().map_err(|error| wrong(error.to_string()))?;
        if self.goal.trim().is_empty() {
            return Err(wrong("it has no goal".to_owned()));
        }
        let model = self.model.as_ref().ok_or_else(|| wrong("no model is named: add .model(…)".to_owned()))?.spec();
        if model.price.is_none() && self.limits.micros != Limit::Unlimited {
            let problem = format!("the budget is in dollars and the price of {} is not known", model.name);
            return Err(wrong(problem));
        }
        let workspace = self.folder()?;
        if !self.principal.is_object() {
            return Err(wrong("the principal is no JSON object".to_owned()));
        }
        check_context(&self.context).map_err(wrong)?;
        let mut blobs = Vec::new();
        let mut inputs: BTreeMap<String, Content> = BTreeMap::new();
        for (name, value) in &self.inputs {
            let (content, blob) = place(json(value));
            blobs.extend(blob.map(stored));
            inputs.insert(name.clone(), content);
        }
        let (images, of_images) = together(self.images()?).map_err(|error| wrong(error.to_string()))?;
        blobs.extend(of_images);
        let mut tools: Vec<_> = self.builtins.iter().copied().map(longrein_tools::builtin).collect();
        for tool in &self.tools {
            let mut spec = tool.spec.tool.clone();
            spec.parameters = json(&tool.spec.parameters);
            tools.push(spec);
        }
        self.facts_are_provided(&tools)?;
        let mut task = longrein_core::task::Task {
            goal: self.goal.clone(),
            instructions: self.instructions.clone(),
            constraints: self.constraints.clone(),
            program: Program::React,
            model,
            folder: workspace.clone(),
            workspace,
            principal: json(&self.principal),
            limits: self.limits.clone(),
            inputs,
            tools,
            acceptance: self.checks(checks)?,
            answer: self.answer_spec(),
            permission_mode: self.permission_mode,
            hooks: Vec::new(),
            policy: self.policy.clone(),
            rules: Vec::new(),
            context: self.context.clone(),
            routes: self.routes()?,
            sources: BTreeMap::new(),
            servers: BTreeMap::new(),
            snapshots: longrein_core::task::Snapshots::default(),
            piped_from: None,
            questions_expire_ms: None,
            images,
            pins: BTreeMap::new(),
        };
        self.follow(&mut task)?;
        let here = |route: &longrein_core::route::Route| (Place::Flag("Task::route".to_owned()), route.clone());
        let placed: Vec<_> = task.routes.iter().map(here).collect();
        crate::taskfile::route::check(&placed, task.program.phases())
            .map_err(|error| Error::Task(error.to_string()))?;
        Ok(Resolved { id, task, blobs })
    }

    fn routes(&self) -> Result<Vec<longrein_core::route::Route>, Error> {
        if self.routes.len() > ROUTES_MAX {
            let problem = format!("there are {} routes; {ROUTES_MAX} are the most", self.routes.len());
            return Err(Error::Task(problem));
        }
        let mut known: Vec<&LanguageModel> = self.model.iter().collect();
        for route in &self.routes {
            let name = route.model.name();
            // By its name a run finds its model again.
            if known.iter().any(|model| model.name() == name && !(model.is_provided() && route.model.is_provided())) {
                return Err(Error::Task(format!("two models are called {name}")));
            }
            if self.limits.micros != Limit::Unlimited && route.model.spec().price.is_none() {
                let problem = format!("the budget is in dollars and the price of {name} is not known");
                return Err(Error::Task(problem));
            }
            known.push(&route.model);
        }
        self.routes.iter().map(Route::resolve).collect()
    }

    fn folder(&self) -> Result<String, Error> {
        let needs_one = self.acceptance.iter().any(|check| matches!(check.by, By::Command(_)))
            || !self.builtins.is_empty()
            || self.tools.iter().any(|tool| tool.function.is_none() || tool.spec.tool.effect == EffectClass::Workspace);
        let Some(folder) = &self.workspace else {
            return if needs_one {
                let problem = "commands, acceptance checks and workspace tools need a folder: add .workspace(…)";
                Err(Error::Task(problem.to_owned()))
            } else {
                Ok(NOWHERE.to_owned())
            };
        };
        let unusable = |problem: String| Error::Task(format!("the workspace {}: {problem}", folder.display()));
        let found = folder.canonicalize().map_err(|error| unusable(error.to_string()))?;
        if !found.is_dir() {
            return Err(unusable("is no folder".to_owned()));
        }
        found.to_str().map(str::to_owned).ok_or_else(|| unusable("its path is not UTF-8".to_owned()))
    }

    fn facts_are_provided(&self, tools: &[longrein_core::task::ToolSpec]) -> Result<(), Error> {
        for tool in tools {
            if let Some(fact) = tool.requires.iter().find(|fact| !tools.iter().any(|t| t.provides.contains(fact))) {
                return Err(Error::Task(format!("{} requires the fact {fact}, which no tool provides", tool.name)));
            }
            let external = tool.key.is_some() || tool.idempotent.is_some() || !tool.reconcile.is_empty();
            if external && tool.effect != EffectClass::External {
                let problem = format!("{}: key, idempotent and reconcile are for external tools", tool.name);
                return Err(Error::Task(problem));
            }
            if tool.timeout.is_zero() {
                return Err(Error::Task(format!("{} has no time to run", tool.name)));
            }
        }
        Ok(())
    }

    fn checks(&self, registry: &Registry) -> Result<Vec<CheckSpec>, Error> {
        let mut checks: Vec<CheckSpec> = Vec::new();
        for Accepts { name, by, timeout } in &self.acceptance {
            let name = CheckName::new(name);
            let (command, by) = match by {
                By::Command(command) if command.first().is_none_or(String::is_empty) => {
                    return Err(Error::Task(format!("the check {name} has no command")));
                }
                By::Command(command) => (command.clone(), None),
                By::Name => match registry.get(&name) {
                    Some(check) => (Vec::new(), Some(CheckBy::Host(check.version()))),
                    None => {
                        let problem =
                            format!("there is no check {name} in this program: Builder::check(\"{name}\", …)");
                        return Err(Error::Task(problem));
                    }
                },
                By::Model(means) if means.trim().is_empty() => {
                    return Err(Error::Task(format!("the check {name} does not say what good means")));
                }
                By::Model(means) => (Vec::new(), Some(CheckBy::Judge(JudgeSpec { means: means.clone(), model: None }))),
            };
            if checks.iter().any(|check| check.name == name) {
                return Err(Error::Task(format!("two checks are called {name}")));
            }
            checks.push(CheckSpec { name, command, by, timeout: *timeout, protect: Vec::new() });
        }
        Ok(checks)
    }

    fn answer_spec(&self) -> Option<AnswerSpec> {
        let spec = AnswerSpec {
            schema: self.answer_schema.as_ref().map(json),
            evidence: self.evidence.clone(),
            check: self.answer_check.clone(),
            template: self.answer_template.clone(),
            numbers: None,
        };
        let says_nothing =
            spec.schema.is_none() && spec.evidence.is_empty() && spec.check.is_none() && spec.template.is_none();
        (!says_nothing).then_some(spec)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id)
            .field("goal", &self.goal)
            .field("model", &self.model)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

fn json(value: &impl Serialize) -> Payload {
    Payload::of(value).expect("a JSON value always serialises")
}
