//! Tools in code: functions with typed arguments, and commands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::ids::{ActionId, FactName, RunId, ToolName};
use longrein_core::outcome::{ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::task::{EffectClass, Guard, Holds, KeyScope, KeySpec, OnUnknown, Overlap, ToolBody, ToolSpec};
use longrein_ports::BoxFuture;
use longrein_tools::{HostAnswer, HostCall, HostError, HostTool};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool: a function of this program, or a command, with everything the harness needs to know of it.
///
/// What a tool does to the world is said by its constructor: [`read`](Tool::read) changes nothing,
/// [`workspace`](Tool::workspace) changes files of the workspace, [`external`](Tool::external) changes the world. The
/// harness relies on it: reads run again after a crash, external calls never on a guess.
///
/// The arguments are any type that is [`serde::Deserialize`] and [`schemars::JsonSchema`]. The model is shown the schema of
/// the type, doc comments included; what does not fit it is told to the model and never reaches the function. Properties
/// that the type does not have are refused, so that a misspelt one is not passed over.
///
/// A function runs on the runtime that drives the run. One that blocks keeps everything else there from going on, the
/// renewal of the run's lease too: put blocking work into `tokio::task::spawn_blocking` and await it.
///
/// A panic is caught, and ends that call alone. A read that does not return in its time is dropped. Of an external or
/// workspace call that does not, the outcome is unknown: it is told to stop ([`Call::cancelled`]), heard out for as long
/// again as it had, and settled if it returns; until then nothing starts that it could get in the way of.
///
/// ```
/// use longrein::{Call, Tool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     /// Its name in English.
///     name: String,
/// }
///
/// let tool = Tool::read("temperature", "Degrees Celsius in a city right now.", |city: City, _call: Call| async move {
///     Ok(if city.name == "Oslo" { -3.5 } else { 12.0 })
/// });
/// # let _ = tool;
/// ```
#[derive(Clone)]
pub struct Tool {
    pub(crate) spec: Spec,
    /// None: it is a command.
    pub(crate) function: Option<Function>,
}

/// What a tool is declared as, with the schema not yet checked.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) tool: ToolSpec,
    pub(crate) parameters: Value,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes files of the workspace.
    Workspace,
    /// Changes the world.
    External,
}

impl Effect {
    fn class(self) -> EffectClass {
        match self {
            Effect::Read => EffectClass::Read,
            Effect::Workspace => EffectClass::Workspace,
            Effect::External => EffectClass::External,
        }
    }
}

/// The arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize, JsonSchema)]
pub struct NoArgs {}

/// What a call gets beside its arguments.
#[derive(Debug, Clone)]
pub struct Call {
    call: HostCall,
}

/// Why a call failed, in terms the model can act on.
///
/// Any [`std::error::Error`] becomes one with `?`. Of an external tool it leaves the outcome *unknown*, for an error is no
/// proof that nothing happened; say [`not_done`](CallError::not_done) where it is certain.
#[derive(Debug)]
pub struct CallError {
    error: ToolError,
    nothing_happened: bool,
}

type Accepts = dyn Fn(&Payload) -> Result<(), ToolError> + Send + Sync;
type Calls = dyn Fn(HostCall) -> BoxFuture<'static, Result<Payload, HostError>> + Send + Sync;
type Tells = dyn Fn(HostCall) -> BoxFuture<'static, Result<HostAnswer, ToolError>> + Send + Sync;

/// A function with its types taken away.
#[derive(Clone)]
pub(crate) struct Function {
    version: String,
    accepts: Arc<Accepts>,
    calls: Arc<Calls>,
    tells: Option<Arc<Tells>>,
}

/// The version of a function that is given none.
const VERSION: &str = "1";

impl Tool {
    /// A function that changes nothing. It may run again after a crash, and beside others.
    pub fn read<A, T, F, R>(name: &str, description: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        Self::function(name, description, Effect::Read, function)
    }

    /// A function that changes files of the workspace. One writing call at a time, unless [`writes`](Tool::writes) says
    /// what it touches.
    pub fn workspace<A, T, F, R>(name: &str, description: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        Self::function(name, description, Effect::Workspace, function)
    }

    /// A function that changes the world: pays, sends, deletes. It is never called twice on a guess; what it is asked
    /// before it runs is up to the task's rules (asked, unless one allows it).
    pub fn external<A, T, F, R>(name: &str, description: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        Self::function(name, description, Effect::External, function)
    }

    fn function<A, T, F, R>(name: &str, description: &str, effect: Effect, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let accepts = |args: &Payload| args.read::<A>().map(drop).map_err(|error| unfit(&error));
        let calls = move |call: HostCall| -> BoxFuture<'static, _> {
            let args = match call.attempt.args.read::<A>() {
                Ok(args) => args,
                Err(error) => {
                    let failed = HostError { error: unfit(&error), nothing_happened: true };
                    return Box::pin(std::future::ready(Err(failed)));
                }
            };
            let work = function(args, Call { call });
            Box::pin(async move {
                let result = work.await.map_err(CallError::into_host)?;
                Payload::of(&result)
                    .map_err(|error| CallError::new(format!("the result has no JSON form: {error}")).into_host())
            })
        };
        let function =
            Function { version: VERSION.to_owned(), accepts: Arc::new(accepts), calls: Arc::new(calls), tells: None };
        let body = ToolBody::Host(VERSION.to_owned());
        let mut tool = ToolSpec::new(ToolName::new(name), body, effect.class());
        tool.description = description.to_owned();
        Self { spec: Spec { tool, parameters: schema_of::<A>() }, function: Some(function) }
    }

    /// A program in any language: it reads one JSON object on stdin and answers on stdout. It runs in the workspace, as a
    /// tree of processes that cannot outlive the call.
    pub fn command<W: Into<String>>(
        name: &str,
        description: &str,
        effect: Effect,
        words: impl IntoIterator<Item = W>,
    ) -> Self {
        let body = ToolBody::Command(words.into_iter().map(Into::into).collect());
        let mut tool = ToolSpec::new(ToolName::new(name), body, effect.class());
        tool.description = description.to_owned();
        Self { spec: Spec { tool, parameters: serde_json::json!({ "type": "object" }) }, function: None }
    }

    fn with(mut self, change: impl FnOnce(&mut ToolSpec)) -> Self {
        change(&mut self.spec.tool);
        self
    }

    /// The version of the function: raise it when the function means something else than before. A run goes on only with
    /// the version it was started with. "1" if not given.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        if let Some(function) = &mut self.function {
            version.clone_into(&mut function.version);
            self.spec.tool.body = ToolBody::Host(version.to_owned());
            if function.tells.is_some() {
                self.spec.tool.reconcile = vec![version.to_owned()];
            }
        }
        self
    }

    /// The JSON Schema of a command's arguments, or another one for a function's than that of its type.
    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        self.spec.parameters = schema;
        self
    }

    /// How long a call may take; 30 seconds if not given.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|tool| tool.timeout = timeout)
    }

    /// Whether calls may overlap. Reads do if not told otherwise; others do not.
    #[must_use]
    pub fn one_at_a_time(self) -> Self {
        self.with(|tool| tool.overlap = Overlap::OneAtATime)
    }

    /// Calls of this tool may overlap; see [`one_at_a_time`](Tool::one_at_a_time).
    #[must_use]
    pub fn parallel(self) -> Self {
        self.with(|tool| tool.overlap = Overlap::Parallel)
    }

    /// Tools of the same reply that must have succeeded before.
    #[must_use]
    pub fn depends_on<'a>(self, tools: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.depends_on = tools.into_iter().map(ToolName::new).collect())
    }

    /// Facts that must hold before a call.
    #[must_use]
    pub fn requires<'a>(self, facts: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.requires = facts.into_iter().map(FactName::new).collect())
    }

    /// Facts that a success sets; their value is its result.
    #[must_use]
    pub fn provides<'a>(self, facts: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.provides = facts.into_iter().map(FactName::new).collect())
    }

    /// What it provides holds for the rest of the run, though something is written. That is so for workspace and external
    /// tools anyway; what a read found is void as soon as something is written.
    #[must_use]
    pub fn holds_for_the_run(self) -> Self {
        self.with(|tool| tool.holds = Holds::Run)
    }

    /// How often it may be called in one run.
    #[must_use]
    pub fn max_calls(self, calls: u32) -> Self {
        self.with(|tool| tool.max_calls = Some(calls))
    }

    /// A CEL condition over `args`, `facts`, `ev` and `principal` that must hold before a call, and what the model is told
    /// where it does not.
    #[must_use]
    pub fn guard(self, condition: &str, message: &str) -> Self {
        let guard = Guard { condition: condition.to_owned(), message: Some(message.to_owned()) };
        self.with(|tool| tool.guard = Some(guard))
    }

    /// An argument that takes the id of evidence which `tool` brought, such as `e1`. The id is checked, and the function
    /// gets the data itself by [`Call::evidence`].
    #[must_use]
    pub fn cites(mut self, argument: &str, tool: &str) -> Self {
        // What is no schema of an object is refused when the run starts.
        if let Value::Object(root) = &mut self.spec.parameters
            && let Value::Object(properties) =
                root.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()))
        {
            let property = properties.entry(argument).or_insert(Value::Null);
            match property {
                Value::Object(property) => {
                    property.insert("evidence".to_owned(), Value::String(tool.to_owned()));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    *property = serde_json::json!({ "type": "string", "evidence": tool });
                }
            }
        }
        self
    }

    /// External: the arguments that name the business intent. In one run there is at most one call for each; a second one
    /// gets the first one's result.
    #[must_use]
    pub fn key<'a>(self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.keyed(arguments, KeyScope::Run)
    }

    /// As [`key`](Tool::key), over all runs of the store.
    #[must_use]
    pub fn key_in_store<'a>(self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.keyed(arguments, KeyScope::Store)
    }

    fn keyed<'a>(self, arguments: impl IntoIterator<Item = &'a str>, scope: KeyScope) -> Self {
        let args = arguments.into_iter().map(str::to_owned).collect();
        self.with(|tool| tool.key = Some(KeySpec { args, scope }))
    }

    /// External: the receiver recognises a repetition by [`Call::idempotency_key`] for so long. A lost call is repeated
    /// within that time.
    #[must_use]
    pub fn idempotent(self, span: Duration) -> Self {
        self.with(|tool| tool.idempotent = Some(span))
    }

    /// External: tells whether a call took effect whose outcome was lost: `Ok(Some(result))` it did, `Ok(None)` it did
    /// not, an error: that cannot be told (now). It gets what the call got.
    #[must_use]
    pub fn reconcile<A, T, F, R>(mut self, tells: F) -> Self
    where
        A: DeserializeOwned,
        T: Serialize,
        F: Fn(A, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<T>, CallError>> + Send + 'static,
    {
        let Some(function) = &mut self.function else { return self };
        self.spec.tool.reconcile = vec![function.version.clone()];
        function.tells = Some(Arc::new(move |call: HostCall| {
            let args = match call.attempt.args.read::<A>() {
                Ok(args) => args,
                Err(error) => return Box::pin(std::future::ready(Err(unfit(&error)))),
            };
            let work = tells(args, Call { call });
            Box::pin(async move {
                match work.await.map_err(|failed| failed.error)? {
                    None => Ok(HostAnswer::NoEffect),
                    Some(result) => Payload::of(&result)
                        .map(HostAnswer::TookEffect)
                        .map_err(|error| ToolError::new(class::UNKNOWN_OUTCOME, error.to_string())),
                }
            })
        }));
        self
    }

    /// The command that tells whether a command's call took effect: it gets the call's own object and answers
    /// `{"took_effect": true | false | "pending", "result": …}`.
    #[must_use]
    pub fn reconcile_command<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        if self.function.is_none() {
            self.spec.tool.reconcile = words.into_iter().map(Into::into).collect();
        }
        self
    }

    /// How long after the death of a worker a call may still land; 2 seconds if not given.
    #[must_use]
    pub fn settle_after(self, span: Duration) -> Self {
        self.with(|tool| tool.settle_after = span)
    }

    /// An outcome that stays unknown is told to the model, and the run goes on. It cannot be done before a person has
    /// settled it. If not said, the run waits for a person at once.
    #[must_use]
    pub fn tell_unknown(self) -> Self {
        self.with(|tool| tool.on_unknown = OnUnknown::Tell)
    }

    /// What a call costs, in micro-dollars.
    #[must_use]
    pub fn cost_micros(self, micros: u64) -> Self {
        self.with(|tool| tool.cost_micros = micros)
    }

    /// Paths of the workspace it reads; all of it if not said.
    #[must_use]
    pub fn reads<'a>(self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.reads = Some(paths.into_iter().map(str::to_owned).collect()))
    }

    /// Paths of the workspace it writes; all of it if a workspace tool does not say.
    #[must_use]
    pub fn writes<'a>(self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.writes = Some(paths.into_iter().map(str::to_owned).collect()))
    }

    /// What it returns may have been written by anybody: a run that has read it is asked more (`docs/policy.md`).
    #[must_use]
    pub fn untrusted(self) -> Self {
        self.with(|tool| tool.declared.untrusted = true)
    }

    /// Variables a command gets beside PATH, HOME and LANG: `NAME`, `NAME=value` or `${secret:NAME}`, out of the environment
    /// that [`Builder::environment`](crate::Builder::environment) was given.
    #[must_use]
    pub fn env<'a>(self, entries: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|tool| tool.env = entries.into_iter().map(str::to_owned).collect())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.spec.tool.name.as_str()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("spec", &self.spec.tool).finish_non_exhaustive()
    }
}

/// The schema of a type as providers take it: nothing to look up elsewhere, and nothing allowed that the type has no place
/// for.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Value::Object(root) = &mut schema {
        // The name of a Rust type says nothing to a model.
        root.shift_remove("title");
        let is_plain = root.get("type").is_some_and(|kind| kind == "object")
            && !["oneOf", "anyOf", "allOf", "unevaluatedProperties"].iter().any(|key| root.contains_key(*key));
        if is_plain {
            root.entry("additionalProperties").or_insert(Value::Bool(false));
        }
    }
    schema
}

/// Arguments that fit the schema and not the type.
fn unfit(error: &serde_json::Error) -> ToolError {
    // Where in the JSON text says nothing to a model: it wrote another one.
    let text = error.to_string();
    let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
    ToolError::new(class::INVALID_ARGUMENTS, format!("The arguments do not fit: {problem}."))
}

impl Call {
    /// The run.
    pub fn run(&self) -> &RunId {
        &self.call.attempt.run
    }

    /// The action, `a7`. Its result can be cited as `e7`.
    pub fn action(&self) -> ActionId {
        self.call.attempt.action
    }

    /// Which attempt of the action this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.call.attempt.number
    }

    /// External tools: what the receiver may recognise a repetition by; the same for all attempts.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.call.attempt.idempotency_key.as_ref().map(longrein_core::ids::Digest::as_str)
    }

    /// The data of the evidence that an argument cites.
    pub fn evidence<T: DeserializeOwned>(&self, argument: &str) -> Result<T, CallError> {
        read(self.call.handed.evidence.get(argument), "evidence", argument)
    }

    /// A captured input of the task.
    pub fn input<T: DeserializeOwned>(&self, name: &str) -> Result<T, CallError> {
        read(self.call.handed.inputs.get(name), "input", name)
    }

    /// Who the run is for, as the task says; never the model's word.
    pub fn principal<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        read(Some(&self.call.principal), "principal", "of the task")
    }

    /// Whether nobody waits for the result any more: its time is up, or the run is stopped or cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.call.notice.is_cancelled()
    }

    /// Ends when nobody waits for the result any more. An external call that can still be called off should be, and say
    /// [`CallError::not_done`].
    pub async fn cancelled(&self) {
        self.call.notice.cancelled().await;
    }
}

fn read<T: DeserializeOwned>(payload: Option<&Payload>, what: &str, name: &str) -> Result<T, CallError> {
    let payload = payload.ok_or_else(|| CallError::new(format!("there is no {what} {name}")).not_done())?;
    payload.read().map_err(|error| CallError::new(format!("the {what} {name} cannot be used: {error}")).not_done())
}

impl CallError {
    /// What went wrong, in a sentence for the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self { error: ToolError::new("tool_error", message), nothing_happened: false }
    }

    /// A short snake_case word for the kind of error.
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        class.clone_into(&mut self.error.class);
        self
    }

    /// The argument at fault, as a JSON pointer: `/amount`.
    #[must_use]
    pub fn at(mut self, field: &str) -> Self {
        self.error.field = Some(field.to_owned());
        self
    }

    /// What to try instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }

    /// When another try makes sense.
    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Self {
        self.error.retry_after_s = Some(span.as_secs());
        self
    }

    /// It is certain that nothing happened.
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.nothing_happened = true;
        self
    }

    fn into_host(self) -> HostError {
        HostError { error: self.error, nothing_happened: self.nothing_happened }
    }
}

impl<E: std::error::Error> From<E> for CallError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut below = error.source();
        while let Some(source) = below {
            message.push_str(": ");
            message.push_str(&source.to_string());
            below = source.source();
        }
        Self::new(message)
    }
}

impl HostTool for Function {
    fn version(&self) -> &str {
        &self.version
    }

    fn accepts(&self, args: &Payload) -> Result<(), ToolError> {
        (self.accepts)(args)
    }

    fn call(&self, call: HostCall) -> BoxFuture<'static, Result<Payload, HostError>> {
        (self.calls)(call)
    }

    fn reconcile(&self, call: HostCall) -> BoxFuture<'static, Result<HostAnswer, ToolError>> {
        match &self.tells {
            Some(tells) => tells(call),
            None => {
                let error = ToolError::new(class::UNKNOWN_OUTCOME, "it has no reconcile function");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}
