//! The tools of one run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longrein_core::action::{Attempt, Cleared};
use longrein_core::context::note::Note;
use longrein_core::ids::{ActionId, CheckName, Digest, EvidenceId, Fence, RunId, ToolName};
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::prompt::ToolDef;
use longrein_core::target::Target;
use longrein_core::task::{Builtin, Task, ToolBody, ToolSpec};
use longrein_ports::{Archive, BoxFuture, Changed, Handed, Probed, Ran, Reaped, Tools, ValidArgs};
use longrein_sandbox::{Ended, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, Step, reap_marked, reap_run};
use longrein_web::{Allowed, Proxy, Web};
use serde_json::{Map, Value};

use crate::builtin::files::{FileTool, Files};
use crate::builtin::web_fetch::{self, Failed};
use crate::builtin::{self, note, recall, shell};
use crate::canonical::canonical;
use crate::confine::Sandbox;
use crate::error::ToolsError;
use crate::host::Host;
use crate::near::nearest;
use crate::pins::{Hashes, Role, RunBy};
use crate::schema::{Schema, Unusable};
use crate::secrets::{Held, Secrets};
use crate::validated::Validated;
use crate::{arguments, ending, environment, modules, pins, preview, request};

/// More is no result but a flood.
pub(crate) const RESULT_MAX_BYTES: usize = 4 << 20;

/// No private key has more lines: one of RSA with 16,384 bits has 200.
/// A script that is larger is held to be unreadable.
const SCRIPT_MAX_BYTES: u64 = 4 << 20;
const KEY_MAX_LINES: u64 = 256;

/// Head and tail of the complaints.
const STDERR_MAX_BYTES: usize = 64 << 10;

/// All tools of a task, checked and ready. Made once; every call goes through it.
pub struct Toolbox {
    tools: BTreeMap<ToolName, Tool>,
    /// In the order of the task, which is the order the model sees.
    order: Vec<ToolName>,
    checks: BTreeMap<CheckName, Vec<Pinned>>,
    /// In the order of the task.
    hooks: Vec<Prepared>,
    base_env: BTreeMap<String, String>,
    secrets: Secrets,
    hashes: Hashes,
    validated: Validated,
    files: Files,
    host: Host,
    web: Web,
    sandbox: Sandbox,
    /// None: nothing can be recalled.
    archive: Option<Arc<dyn Archive>>,
    /// Which store the run is in: ids repeat between stores, and processes of all of them run on one host.
    store: String,
}

struct Tool {
    spec: ToolSpec,
    schema: Schema,
    env: BTreeMap<String, String>,
    pinned: Vec<Pinned>,
}

/// Names only: environments hold secrets.
impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").field("tools", &self.order).field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// A hook that can be run.
struct Prepared {
    env: BTreeMap<String, String>,
    pinned: Vec<Pinned>,
}

/// A file as it was when the run started.
#[derive(Debug)]
struct Pinned {
    path: PathBuf,
    digest: Digest,
}

impl Toolbox {
    /// `operator` is the operator's environment: the source of what tools are passed. `secrets` are values to keep out of
    /// results beside those that tools are given by `${secret:X}`: the keys of model providers, for example.
    pub fn new(task: &Task, operator: &BTreeMap<String, String>, mut secrets: Secrets) -> Result<Self, ToolsError> {
        let mut tools = BTreeMap::new();
        let mut order = Vec::new();
        for spec in &task.tools {
            let tool = Tool::new(task, spec, operator, &mut secrets)?;
            if tools.insert(spec.name.clone(), tool).is_some() {
                return Err(ToolsError::Duplicate { tool: spec.name.clone() });
            }
            order.push(spec.name.clone());
        }
        let checks = task
            .every_check()
            .map(|check| (check.name.clone(), pinned(task, pins::of_check(task, check, &NOTHING_ELSE))))
            .collect();
        let mut hooks = Vec::new();
        for hook in &task.hooks {
            let env = environment::of_hook(hook, operator, &mut secrets)?;
            hooks.push(Prepared { env, pinned: pinned(task, pins::of_hook(task, hook, &NOTHING_ELSE)) });
        }
        let base_env = environment::base(operator);
        let toolbox = Self {
            tools,
            order,
            checks,
            hooks,
            base_env,
            secrets,
            hashes: Hashes::default(),
            validated: Validated::default(),
            files: Files::of(task),
            host: Host::default(),
            web: Web::default(),
            sandbox: Sandbox::default(),
            archive: None,
            store: String::new(),
        };
        toolbox.check_names()?;
        toolbox.check_cycles()?;
        Ok(toolbox)
    }

    /// Tells this run's processes apart from those of a run with the same id in another store.
    pub fn in_store(self, store: String) -> Self {
        Self { store, ..self }
    }

    /// With the functions of the embedding program: there must be one for every tool that is one.
    pub fn with_host(self, host: Host) -> Result<Self, ToolsError> {
        self.tools.values().try_for_each(|tool| host.has(&tool.spec))?;
        Ok(Self { host, ..self })
    }

    /// With another reach than the open internet: for the program that embeds us alone, never for a task or a model.
    pub fn with_web(self, web: Web) -> Self {
        Self { web, ..self }
    }

    /// With walls around the commands of tools, the shell and checks.
    pub fn with_sandbox(self, sandbox: Sandbox) -> Self {
        Self { sandbox, ..self }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// With what earlier turns are recalled from.
    pub fn with_archive(self, archive: Arc<dyn Archive>) -> Self {
        Self { archive: Some(archive), ..self }
    }

    /// What processes of a run carry as their run.
    pub(crate) fn mark(&self, run: &RunId) -> String {
        if self.store.is_empty() { run.to_string() } else { format!("{run}@{}", self.store) }
    }

    /// What the model is offered, in the order of the task.
    pub fn definitions(&self) -> Vec<ToolDef> {
        self.order
            .iter()
            .filter_map(|name| self.tools.get(name))
            .map(|tool| ToolDef {
                name: tool.spec.name.clone(),
                description: tool.spec.description.clone(),
                parameters: tool.schema.offered(),
            })
            .collect()
    }

    /// As [`Tools::changed`], for an acceptance command.
    pub fn check_changed(&self, check: &CheckName) -> Option<Changed> {
        self.first_changed(self.checks.get(check)?)
    }

    /// The files that an acceptance command was found to run when the run started.
    pub fn files_of_check(&self, check: &CheckName) -> impl Iterator<Item = &Path> {
        self.checks.get(check).into_iter().flatten().map(|pinned| pinned.path.as_path())
    }

    /// The files that a tool's commands were found to run when the run started.
    pub(crate) fn files_of_tool(&self, tool: &ToolName) -> impl Iterator<Item = &Path> {
        self.tools.get(tool).into_iter().flat_map(|tool| &tool.pinned).map(|pinned| pinned.path.as_path())
    }

    /// As [`Tools::changed`], for a hook.
    pub(crate) fn hook_changed(&self, hook: u32) -> Option<String> {
        self.first_changed(&self.hooks.get(hook as usize)?.pinned).map(|changed| changed.file)
    }

    /// What a hook finds in its environment.
    pub(crate) fn hook_env(&self, hook: u32) -> Vec<(String, String)> {
        self.hooks.get(hook as usize).map(|hook| hook.env.clone().into_iter().collect()).unwrap_or_default()
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    pub(crate) fn base_env(&self) -> Vec<(String, String)> {
        self.base_env.clone().into_iter().collect()
    }

    fn check_names(&self) -> Result<(), ToolsError> {
        for tool in self.tools.values() {
            let named = tool.spec.depends_on.iter().map(|named| ("depends_on", named));
            let cited = tool.schema.evidence.values().map(|named| ("evidence", named));
            for (key, named) in named.chain(cited) {
                if !self.tools.contains_key(named) {
                    return Err(ToolsError::UnknownTool {
                        tool: tool.spec.name.clone(),
                        key,
                        named: named.to_string(),
                        near: self.near(named),
                    });
                }
            }
        }
        Ok(())
    }

    fn check_cycles(&self) -> Result<(), ToolsError> {
        let mut clear = BTreeSet::new();
        self.order.iter().try_for_each(|name| self.walk(name, &mut Vec::new(), &mut clear))
    }

    fn walk<'a>(
        &'a self,
        name: &'a ToolName,
        path: &mut Vec<&'a ToolName>,
        clear: &mut BTreeSet<&'a ToolName>,
    ) -> Result<(), ToolsError> {
        if clear.contains(name) {
            return Ok(());
        }
        if let Some(start) = path.iter().position(|on_path| *on_path == name) {
            return Err(ToolsError::Cycle { tools: path[start..].iter().copied().chain([name]).cloned().collect() });
        }
        path.push(name);
        for next in self.tools.get(name).into_iter().flat_map(|tool| &tool.spec.depends_on) {
            self.walk(next, path, clear)?;
        }
        path.pop();
        clear.insert(name);
        Ok(())
    }

    fn near(&self, name: &ToolName) -> Vec<String> {
        nearest(name.as_str(), self.order.iter().map(ToolName::as_str)).into_iter().map(str::to_owned).collect()
    }

    /// Minds what the commands run beside the files that their words name.
    pub fn minding(mut self, task: &Task, run_by: RunBy<'_>) -> Self {
        for tool in self.tools.values_mut() {
            tool.pinned = pinned(task, pins::of_tool(task, &tool.spec, run_by));
        }
        for check in task.every_check() {
            self.checks.insert(check.name.clone(), pinned(task, pins::of_check(task, check, run_by)));
        }
        for (hook, prepared) in task.hooks.iter().zip(&mut self.hooks) {
            prepared.pinned = pinned(task, pins::of_hook(task, hook, run_by));
        }
        self
    }

    fn unknown(&self, name: &ToolName) -> ToolError {
        let shown = longrein_core::payload::head_and_tail(name.as_str(), 80);
        let error = ToolError::new(class::UNKNOWN_TOOL, format!("There is no tool \"{}\".", shown.escape_debug()));
        match self.near(name).as_slice() {
            [] => error.hint("Call only the tools you were given, by their exact names."),
            near => error.hint(format!("Did you mean {}?", near.join(" or "))),
        }
    }

    fn first_changed(&self, pinned: &[Pinned]) -> Option<Changed> {
        let now = |path: &Path| Changed { file: path.display().to_string(), content: self.hashes.of(path) };
        let changed = pinned
            .iter()
            .map(|file| (file, now(&file.path)))
            .find(|(file, now)| now.content.as_ref() != Some(&file.digest))
            .map(|(_, now)| now);
        // a file that was not there and would be run in a module's place
        let is_new = |file: &PathBuf| !pinned.iter().any(|pinned| pinned.path == *file);
        changed.or_else(|| {
            let folders: BTreeSet<&Path> =
                pinned.iter().filter_map(|file| pins::folder_of_modules(&file.path)).collect();
            folders.into_iter().flat_map(modules::taken_first).find(is_new).map(|file| now(&file))
        })
    }

    /// One attempt of a tool, without the right to it.
    pub(crate) async fn attempt(&self, task: &Task, attempt: &Attempt, handed: &Handed) -> Ran {
        let Some(tool) = self.tools.get(&attempt.tool) else {
            return Ran { outcome: Outcome::Error(self.unknown(&attempt.tool)), blobs: Vec::new() };
        };
        match &tool.spec.body {
            ToolBody::Command(words) => {
                let ended = self.start(task, tool, words, attempt, handed).await;
                ending::outcome(&tool.spec, ended.as_ref(), &self.secrets)
            }
            ToolBody::Builtin(builtin) => match builtin {
                Builtin::ReadFile
                | Builtin::WriteFile
                | Builtin::EditFile
                | Builtin::ListFiles
                | Builtin::SearchFiles => {
                    let file_tool = FileTool::of(*builtin).expect("these are the file tools");
                    self.use_files(file_tool, &tool.spec, attempt).await
                }
                Builtin::Shell => {
                    let (workspace, marker) = (Path::new(&task.workspace), self.marker(attempt));
                    let (walls, made) = self.sandbox.of_shell(task, &attempt.beyond);
                    let place = shell::Place { workspace, env: &tool.env, marker, walls };
                    let start = |spec| self.sandbox.run(task, spec);
                    let ran = shell::run(&tool.spec, &attempt.args, place, start, &self.secrets).await;
                    drop(made);
                    ran
                }
                Builtin::Recall => self.recall(&tool.spec, attempt).await,
                Builtin::WebFetch => self.fetch(&tool.spec, attempt).await,
                // The run itself does these.
                Builtin::Ask | Builtin::Note => cannot_run(&tool.spec),
            },
            ToolBody::Host(_) | ToolBody::Mcp(_) => {
                self.host.run(&tool.spec, attempt, handed, &task.principal, &self.secrets).await
            }
        }
    }

    /// Whether marks of known secrets stand only in what is to be written to a file: `builtin::change` refuses them there and
    /// knows the file, which may speak of marks itself.
    fn is_marked_text_alone(&self, tool: &Tool, args: &Map<String, Value>) -> bool {
        let texts: &[&str] = match tool.spec.body {
            ToolBody::Builtin(Builtin::WriteFile) => &["content"],
            ToolBody::Builtin(Builtin::EditFile) => &["old", "new"],
            ToolBody::Builtin(
                Builtin::ReadFile
                | Builtin::ListFiles
                | Builtin::SearchFiles
                | Builtin::Shell
                | Builtin::Ask
                | Builtin::Recall
                | Builtin::Note
                | Builtin::WebFetch,
            )
            | ToolBody::Command(_)
            | ToolBody::Host(_)
            | ToolBody::Mcp(_) => return false,
        };
        let is_plain = |text: &str| self.secrets.marked_in(text).is_none();
        args.iter().all(|(name, value)| {
            (texts.contains(&name.as_str()) && value.is_string()) || is_plain(name) && is_plain(&value.to_string())
        })
    }

    fn marker(&self, attempt: &Attempt) -> Marker {
        Marker { run: self.mark(&attempt.run), action: attempt.action.to_string(), fence: attempt.fence.0 }
    }

    async fn use_files(&self, tool: FileTool, spec: &ToolSpec, attempt: &Attempt) -> Ran {
        let mut done = self.files.run(tool, &attempt.args, attempt.target.as_ref(), spec.timeout).await;
        if let (FileTool::Read, Ok(result)) = (tool, &mut done) {
            self.hide_cut_key(spec, attempt, result).await;
        }
        self.done(done)
    }

    /// Lines from the middle of a file may be those of a private key, which only its frame tells.
    async fn hide_cut_key(&self, spec: &ToolSpec, attempt: &Attempt, result: &mut Value) {
        let (Some(from @ 2..), Some(text)) = (result["from"].as_u64(), result["text"].as_str()) else { return };
        let Ok(mut args) = attempt.args.read::<Map<String, Value>>() else { return };
        args.insert("from".to_owned(), from.saturating_sub(KEY_MAX_LINES).max(1).into());
        args.insert("to".to_owned(), (from - 1).into());
        let args = Payload::of(&args).expect("an object has only string keys");
        let before = self.files.run(FileTool::Read, &args, attempt.target.as_ref(), spec.timeout).await;
        let before = before.ok().and_then(|before| before["text"].as_str().map(str::to_owned)).unwrap_or_default();
        let hidden = self.secrets.redact_after(&before, text).into_owned();
        result["text"] = Value::String(hidden);
    }

    async fn recall(&self, spec: &ToolSpec, attempt: &Attempt) -> Ran {
        self.done(recall::run(self.archive.as_ref(), &attempt.run, &attempt.args, spec.timeout).await)
    }

    async fn fetch(&self, spec: &ToolSpec, attempt: &Attempt) -> Ran {
        let Failed { error, data } = match web_fetch::run(&self.web, &attempt.args, spec.timeout).await {
            Ok(page) => return self.done(Ok(page)),
            Err(failed) => failed,
        };
        let mut blobs = ending::Blobs::default();
        let mut error = self.redacted(error);
        error.data = data.map(|mut data| {
            self.secrets.redact_value(&mut data);
            blobs.keep(Payload::of(&*data).expect("an object has only string keys"))
        });
        Ran { outcome: Outcome::Error(error), blobs: blobs.0 }
    }

    fn done(&self, done: Result<Value, ToolError>) -> Ran {
        let mut blobs = ending::Blobs::default();
        let outcome = match done {
            Ok(mut result) => {
                self.secrets.redact_value(&mut result);
                Outcome::Done(blobs.keep(Payload::of(&result).expect("an object has only string keys")))
            }
            Err(error) => Outcome::Error(self.redacted(error)),
        };
        Ran { outcome, blobs: blobs.0 }
    }

    /// What files or earlier results hold may be quoted in an error.
    fn redacted(&self, error: ToolError) -> ToolError {
        let redact = |text: String| self.secrets.redact(&text).into_owned();
        ToolError {
            message: redact(error.message),
            hint: error.hint.map(redact),
            field: error.field.map(redact),
            ..error
        }
    }

    async fn ask(&self, task: &Task, attempt: &Attempt, handed: &Handed) -> Probed {
        let no_answer = |why: String| Probed { answer: ProbeAnswer::NoAnswer(why), blobs: Vec::new() };
        match self.tools.get(&attempt.tool) {
            None => no_answer(format!("there is no tool {}", attempt.tool)),
            Some(tool) if tool.file_tool().is_some() => match &attempt.target {
                Some(target) => Probed { answer: self.files.probe(target).await, blobs: Vec::new() },
                None => no_answer("it was not worked out which file the call was about".to_owned()),
            },
            Some(tool) if tool.spec.reconcile.is_empty() => {
                no_answer(format!("{} has no reconcile command", attempt.tool))
            }
            Some(tool) if matches!(tool.spec.body, ToolBody::Host(_) | ToolBody::Mcp(_)) => {
                self.host.ask(&tool.spec, attempt, handed, &task.principal, &self.secrets).await
            }
            Some(tool) => {
                let ended = self.start(task, tool, &tool.spec.reconcile, attempt, handed).await;
                ending::answer(&tool.spec, ended.as_ref(), &self.secrets)
            }
        }
    }

    async fn start(
        &self,
        task: &Task,
        tool: &Tool,
        command: &[String],
        attempt: &Attempt,
        handed: &Handed,
    ) -> Result<Ended, StartError> {
        let hosts = &tool.spec.declared.network;
        let proxy = match !hosts.is_empty() && self.sandbox.holds_network() {
            true => Some(proxy(hosts)?),
            false => None,
        };
        let socket = proxy.as_ref().map(|(proxy, _)| proxy.socket());
        let mut ended = self
            .sandbox
            .run(
                task,
                Spec {
                    argv: command.to_vec(),
                    cwd: task.folder.clone().into(),
                    env: tool.env.clone().into_iter().collect(),
                    stdin: request::encode(attempt, handed, &task.principal),
                    stdout: Keep::Whole { max_bytes: RESULT_MAX_BYTES },
                    stderr: Stderr::Apart(Keep::Ends { max_bytes: STDERR_MAX_BYTES, flood_bytes: NO_FLOOD }),
                    timeout: tool.spec.timeout,
                    marker: self.marker(attempt),
                    confinement: self.sandbox.of_tool(task, &tool.spec, socket),
                },
            )
            .await?;
        // where it failed, this may be why
        if let Some(told) = proxy.and_then(|(proxy, allowed)| longrein_web::told(&proxy.asked(), &allowed)) {
            ended.stderr.append(format!("\n[network] {told}\n").as_bytes());
        }
        Ok(ended)
    }
}

/// The one way out of a command that may reach these hosts, and what it lets through.
fn proxy(hosts: &[String]) -> Result<(Proxy, Allowed), StartError> {
    let failed = |source| StartError::Sandbox { step: Step::Proxy, source };
    let allowed = Allowed::parse(hosts).map_err(|bad| failed(std::io::Error::other(bad)))?;
    let proxy = Proxy::start(allowed.clone()).map_err(failed)?;
    Ok((proxy, allowed))
}

/// A way out for a program that lives longer than a command. Dropped, it is closed.
pub struct WayOut(Proxy);

impl fmt::Debug for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WayOut").field(&self.socket()).finish()
    }
}

impl WayOut {
    pub fn socket(&self) -> &Path {
        self.0.socket()
    }
}

/// A way out to these hosts; what is wrong with them, for people.
pub fn way_out(hosts: &[String]) -> Result<WayOut, String> {
    let (proxy, _) = proxy(hosts).map_err(|error| error.to_string())?;
    Ok(WayOut(proxy))
}

/// Whether calls can be held against the schema of a tool that somebody else made; or what is wrong with it.
pub fn usable(parameters: &Payload) -> Result<(), String> {
    match Schema::of_a_stranger(parameters) {
        Ok(_) => Ok(()),
        Err(Unusable::Schema(problem) | Unusable::Default { problem, .. }) => Err(problem),
    }
}

/// What a model is offered of a task's tools, for looking: nothing is made ready, and a tool that cannot be is left out.
pub fn definitions(task: &Task) -> Vec<ToolDef> {
    let offered = |spec: &ToolSpec| compiled(spec).ok().map(|schema| schema.offered());
    let tools = task.tools.iter().filter_map(|spec| Some((spec, offered(spec)?)));
    tools
        .map(|(spec, parameters)| ToolDef {
            name: spec.name.clone(),
            description: spec.description.clone(),
            parameters,
        })
        .collect()
}

impl Tools for Toolbox {
    fn scripts(&self, task: &Task, files: &[String]) -> Vec<Changed> {
        let content = |file: &String| {
            let path = Path::new(file);
            let is_file = path.metadata().is_ok_and(|found| found.is_file() && found.len() <= SCRIPT_MAX_BYTES);
            let content = is_file.then(|| std::fs::read(path).ok()).flatten();
            let name = path.strip_prefix(&task.workspace).map_or(file.as_str(), |name| name.to_str().unwrap_or(file));
            Changed { file: name.to_owned(), content: content.map(|content| Digest::of(&content)) }
        };
        files.iter().map(content).collect()
    }

    fn sandbox(&self, tool: &ToolName) -> Option<&'static str> {
        match &self.tools.get(tool)?.spec.body {
            ToolBody::Command(_) | ToolBody::Builtin(Builtin::Shell) => Some(self.sandbox.tier().as_str()),
            ToolBody::Builtin(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => None,
        }
    }

    fn validate(&self, tool: &ToolName, arguments: &str) -> Result<ValidArgs, ToolError> {
        let known = self.tools.get(tool).ok_or_else(|| self.unknown(tool))?;
        if let Some(valid) = self.validated.of(tool, arguments) {
            return Ok(valid);
        }
        // What the model had written is gone already, and may have left no JSON.
        let marked = self.secrets.marked_in(arguments);
        let parsed = arguments::parse(arguments).or_else(|error| {
            // As some models write it where there is nothing to say.
            if arguments.trim() == "null" && known.schema.takes_nothing() { Ok(Map::new()) } else { Err(error) }
        });
        if let Some(name) = marked
            && !parsed.as_ref().is_ok_and(|args| self.is_marked_text_alone(known, args))
        {
            return Err(holds_secret(Held::Known(name)));
        }
        let mut args = Value::Object(parsed?);
        // before anything that might quote it
        if let Some(held) = self.secrets.found_in(&args) {
            return Err(holds_secret(held));
        }
        known.schema.fill_defaults(&mut args);
        known.schema.check(&args)?;
        if let ToolBody::Builtin(tool) = known.spec.body {
            builtin::check(tool, &args)?;
        }
        let valid = known.valid(&args)?;
        self.host.accepts(&known.spec, &valid.args)?;
        let path = valid.path.map(|path| self.files.spelling(path));
        let valid = ValidArgs { path, ..valid };
        match known.spec.body {
            ToolBody::Command(_) => self.validated.keep(tool, arguments, &valid),
            // what the file system or the embedding program says of a call may change
            ToolBody::Builtin(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => {}
        }
        Ok(valid)
    }

    fn unsaid(&self, text: &str) -> Option<String> {
        self.secrets.unsaid(text)
    }

    fn unfinished(&self, text: &str) -> usize {
        self.secrets.unfinished(text)
    }

    fn target<'a>(
        &'a self,
        _task: &'a Task,
        tool: &'a ToolName,
        args: &'a Payload,
        seen: &'a BTreeMap<String, Digest>,
    ) -> BoxFuture<'a, Result<Option<Target>, ToolError>> {
        Box::pin(async move {
            // A command's arguments are its own: nobody here knows which of them are files.
            let Some(file_tool) = self.tools.get(tool).and_then(Tool::file_tool) else { return Ok(None) };
            let target = self.files.target(file_tool, args, seen).await;
            target.map(Some).map_err(|error| self.redacted(error))
        })
    }

    fn changed(&self, tool: &ToolName) -> Option<Changed> {
        if let Some(changed) = self.host.changed(tool) {
            return Some(changed);
        }
        self.first_changed(&self.tools.get(tool)?.pinned)
    }

    fn note(&self, args: &Payload) -> Result<Note, ToolError> {
        note::read(args)
    }
    fn run<'a>(&'a self, task: &'a Task, call: Cleared, handed: Handed) -> BoxFuture<'a, Ran> {
        Box::pin(async move { self.attempt(task, call.attempt(), &handed).await })
    }

    fn overtime(&self, action: ActionId, attempt: u32) -> Option<BoxFuture<'static, Ran>> {
        self.host.overtime(action, attempt)
    }

    fn preview(&self, content: &Payload, bytes_max: usize) -> Payload {
        preview::preview(content, bytes_max)
    }

    fn cleaned(&self, content: &Payload) -> Option<Payload> {
        preview::cleaned(content)
    }

    fn probe<'a>(&'a self, task: &'a Task, attempt: Attempt, handed: Handed) -> BoxFuture<'a, Probed> {
        Box::pin(async move { self.ask(task, &attempt, &handed).await })
    }

    fn reap_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Reaped> {
        Box::pin(async move {
            match reap_run(&self.mark(run)).await {
                longrein_sandbox::Reaped::Gone { .. } => Reaped::Gone,
                longrein_sandbox::Reaped::Unverified => Reaped::Unverified,
            }
        })
    }

    fn reap<'a>(&'a self, run: &'a RunId, action: ActionId, current: Fence) -> BoxFuture<'a, Reaped> {
        Box::pin(async move {
            match reap_marked(&self.mark(run), &action.to_string(), current.0).await {
                longrein_sandbox::Reaped::Gone { .. } => Reaped::Gone,
                longrein_sandbox::Reaped::Unverified => Reaped::Unverified,
            }
        })
    }
}

impl Tool {
    fn new(
        task: &Task,
        spec: &ToolSpec,
        operator: &BTreeMap<String, String>,
        secrets: &mut Secrets,
    ) -> Result<Self, ToolsError> {
        let name = spec.name.clone();
        let callable = (1..=64).contains(&name.as_str().len())
            && name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !callable {
            return Err(ToolsError::Name { name });
        }
        if let ToolBody::Command(words) = &spec.body
            && words.first().is_none_or(String::is_empty)
        {
            return Err(ToolsError::NoCommand { tool: name });
        }
        let schema = compiled(spec).map_err(|unusable| match unusable {
            Unusable::Schema(problem) => ToolsError::Parameters { tool: name.clone(), problem },
            Unusable::Default { field, problem } => ToolsError::Default { tool: name.clone(), field, problem },
        })?;
        if let Some(argument) =
            spec.key.iter().flat_map(|key| &key.args).find(|argument| !schema.has_property(argument))
        {
            return Err(ToolsError::KeyArgument { tool: name, argument: argument.clone() });
        }
        if let Err(bad) = Allowed::parse(&spec.declared.network) {
            return Err(ToolsError::Network { tool: name, problem: bad.to_string() });
        }
        let env = environment::of_tool(spec, operator, secrets)?;
        Ok(Self { spec: spec.clone(), schema, env, pinned: pinned(task, pins::of_tool(task, spec, &NOTHING_ELSE)) })
    }

    fn file_tool(&self) -> Option<FileTool> {
        match self.spec.body {
            ToolBody::Builtin(builtin) => FileTool::of(builtin),
            ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => None,
        }
    }

    /// Our own keywords, and the digests. `args` fits the schema.
    fn valid(&self, args: &Value) -> Result<ValidArgs, ToolError> {
        let none = Map::new();
        let members = args.as_object().unwrap_or(&none);
        let mut cites = BTreeMap::new();
        for (name, tool) in &self.schema.evidence {
            if let Some(value) = members.get(name).filter(|value| !value.is_null()) {
                cites.insert(name.clone(), (evidence(name, value, tool)?, tool.clone()));
            }
        }
        let key = self.spec.key.as_ref().map(|key| {
            let values: Vec<String> =
                key.args.iter().map(|name| canonical(members.get(name).unwrap_or(&Value::Null))).collect();
            Digest::of_parts(
                [self.spec.name.as_str()].into_iter().chain(values.iter().map(String::as_str)).map(str::as_bytes),
            )
        });
        let path = self.file_tool().and_then(|_| members.get("path")?.as_str().map(str::to_owned));
        let args = Payload::parse(canonical(args)).expect("canonical JSON is JSON");
        let digest = args.digest();
        Ok(ValidArgs { args, digest, cites, key, path })
    }
}

fn compiled(spec: &ToolSpec) -> Result<Schema, Unusable> {
    match spec.body {
        ToolBody::Mcp(_) => Schema::of_a_stranger(&spec.parameters),
        ToolBody::Command(_) | ToolBody::Builtin(_) | ToolBody::Host(_) => Schema::compile(&spec.parameters),
    }
}

fn holds_secret(held: Held<'_>) -> ToolError {
    let (what, name) = match held {
        Held::Known(name) => (format!("the value of the secret {name}"), name),
        Held::Shaped(kind) => (format!("what looks like a secret ({kind})"), "NAME"),
    };
    let hint =
        format!("Secrets go by name, ${{secret:{name}}}, and reach a tool from the operator: leave the value out.");
    ToolError::new(class::INVALID_ARGUMENTS, format!("An argument holds {what}.")).hint(hint)
}

fn cannot_run(spec: &ToolSpec) -> Ran {
    let error = ToolError::new(class::INTERNAL, format!("{} cannot be run here.", spec.name));
    Ran { outcome: Outcome::Error(error.hint("Do without it and say so.")), blobs: Vec::new() }
}

fn evidence(name: &str, value: &Value, tool: &ToolName) -> Result<EvidenceId, ToolError> {
    value.as_str().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        let shown = longrein_core::payload::head_and_tail(&value.to_string(), 80);
        ToolError::new(class::EVIDENCE, format!("{name} is {shown}, which is no evidence id."))
            .at(format!("/{name}"))
            .hint(format!(
                "Give the id of an observation of {tool}, such as e1. If there is none yet, call {tool} first."
            ))
    })
}

/// Until [`Toolbox::minding`] says more, only words are looked at.
const NOTHING_ELSE: fn(Role, &[String], &str) -> Vec<PathBuf> = |_, _, _| Vec::new();

fn pinned(task: &Task, files: Vec<PathBuf>) -> Vec<Pinned> {
    files
        .into_iter()
        .filter_map(|path| {
            let digest = task.pins.get(path.to_str()?)?.clone();
            Some(Pinned { path, digest })
        })
        .collect()
}
