//! The servers of a task: started before its first request, asked what they offer, and their tools pinned in the run.
//!
//! A server that does not come is told of once; the run goes on without its tools. In a run that is there the tools are those it
//! was started with: a definition that differs now is said, and what calls it is held. The same within a run, where a server
//! is started again; and one whose program is not what it was when the run started is not started before a person says yes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use longrein_core::ids::{Digest, ToolName};
use longrein_core::mcp::{McpReach, McpServer, McpTool, McpWalls, shown_server, tool_name};
use longrein_core::outcome::{ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::task::{Declared, EffectClass, Task, ToolBody, ToolSpec};
use longrein_ports::{BoxFuture, Changed};
use longrein_protocols::client::{CallError, Definition, Keys, Limits, Quarantined, Reach, Reading, Server};
use longrein_sandbox::{Confinement, Keep, Marker, Spec, Stderr};
use longrein_tools::{
    Hashes, HostAnswer, HostCall, HostError, HostTool, Sandbox, Secrets, TOOL_ERROR, Walls, WayOut, Workspace,
    server_environment, with_secrets,
};
use serde_json::Value;

use crate::logins;
use crate::pins::Commands;
use crate::settings::{SandboxMode, SandboxSettings};
use crate::taskfile::TASK_FILE;

/// What became of a task's servers.
#[derive(Default)]
pub(crate) struct Attached {
    pub(crate) functions: BTreeMap<ToolName, Arc<dyn HostTool>>,
    /// Tools that are no longer what the run was started with.
    pub(crate) changed: Vec<String>,
    /// A line each for people.
    pub(crate) notices: Vec<String>,
    /// Names of tools that are configured and that no server has: what they were to say would not hold.
    pub(crate) misnamed: Vec<String>,
    /// Servers that the run must not start without and that are not there.
    pub(crate) missing: Vec<String>,
    /// Why the run cannot begin: what a server is declared to be given is not there.
    pub(crate) wrong: Option<String>,
}

/// Whose servers these are, and what is around them.
pub(crate) struct Around<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) sandbox: Sandbox,
    /// What their processes carry as their run.
    pub(crate) mark: String,
    /// Told of what is waited for.
    pub(crate) tell: &'a (dyn Fn(&str) + Send + Sync),
    /// Told, as long as the servers are there, of tools that are no longer what the run was started with.
    pub(crate) tell_later: Option<Tell>,
}

/// Takes a line for people.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Whether a task gets its tools now, or has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tools {
    ToBeFound,
    Pinned,
    /// To be found, and no run comes of it.
    Looked,
}

/// Everything that lives as long as a server does.
struct Kept {
    server: Server,
    /// What it is let in by, if by tokens: they change while it lives.
    keys: Option<Keys>,
    sandbox: Arc<Sandbox>,
    way_out: Option<WayOut>,
    start_timeout: std::time::Duration,
    program: Program,
    /// Its tools that are not what the run was started with, by its own names, each with what it is now; None: it is gone.
    differing: Mutex<BTreeMap<String, Option<Digest>>>,
}

/// The files that a server's command names, as they were when the run started.
struct Program {
    files: Vec<(PathBuf, Digest)>,
    hashes: Hashes,
}

impl Program {
    fn of(task: &Task, server: &McpServer) -> Self {
        let commands = Commands::of(task);
        let named = longrein_tools::files_of_server(task, server, &|role, command, folder| {
            commands.run_by(role, command, folder)
        });
        let pinned = |path: PathBuf| Some((path.clone(), task.pins.get(path.to_str()?)?.clone()));
        Self { files: named.into_iter().filter_map(pinned).collect(), hashes: Hashes::default() }
    }

    fn changed(&self) -> Option<Changed> {
        let now = self.files.iter().map(|(path, was)| (path, was, self.hashes.of(path)));
        now.into_iter()
            .find(|(_, was, now)| now.as_ref() != Some(*was))
            .map(|(path, _, content)| Changed { file: path.display().to_string(), content })
    }
}

impl Kept {
    fn differing(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Option<Digest>>> {
        self.differing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not as it was for this tool, now.
    fn changed(&self, of: &McpTool) -> Option<Changed> {
        let definition = self.differing().get(&of.tool).cloned().map(|content| Changed {
            file: format!("the definition of {} on the MCP server {}", of.tool, of.server),
            content,
        });
        match (self.program.changed(), definition) {
            (Some(program), Some(definition)) => {
                let parts = [program.content, definition.content];
                let parts = parts.iter().map(|part| part.as_ref().map_or("gone", Digest::as_str).as_bytes());
                let content = Some(Digest::of_parts(parts));
                Some(Changed { file: format!("{}, and with it {},", program.file, definition.file), content })
            }
            (program, definition) => program.or(definition),
        }
    }
}

/// Starts a task's servers and gives it their tools.
pub(crate) async fn attach(task: &mut Task, tools: Tools, around: Around<'_>, secrets: &mut Secrets) -> Attached {
    let mut attached = Attached::default();
    let used =
        |name: &String| task.tools.iter().any(|tool| matches!(&tool.body, ToolBody::Mcp(of) if of.server == *name));
    let servers: Vec<(String, McpServer)> = task
        .servers
        .iter()
        .filter(|(name, _)| tools != Tools::Pinned || used(name))
        .map(|(name, server)| (name.clone(), server.clone()))
        .collect();
    if servers.is_empty() {
        return attached;
    }
    let sandbox = Arc::new(around.sandbox);
    let mut ready = Vec::new();
    let same: Vec<Option<String>> = servers.iter().map(|(name, _)| namesake(name, &servers)).collect();
    for ((name, server), same) in servers.into_iter().zip(same) {
        let made = match same.filter(|_| tools != Tools::Pinned) {
            Some(other) => Err(Unmade::Wrong(format!(
                "its tools would have the names of those of the server {other}, and rules could not tell them apart; rename one"
            ))),
            None => made(task, &name, &server, around.environment, &sandbox, &around.mark, secrets),
        };
        match made {
            Ok(kept) => ready.push((name, server, Arc::new(kept))),
            Err(Unmade::Unusable(why) | Unmade::Wrong(why)) if tools != Tools::Pinned && server.required => {
                attached.missing.push(format!("the MCP server {name} is required and cannot be used: {why}"));
            }
            // what the task itself says cannot be so; others' servers are for many runs, and this one may not need it
            Err(Unmade::Wrong(why)) if server.source == TASK_FILE => {
                let why = format!("the MCP server {name} cannot be used: {why}");
                attached.wrong.get_or_insert_with(|| why.clone());
                attached.notices.push(why);
            }
            Err(Unmade::Unusable(why) | Unmade::Wrong(why)) => {
                attached.notices.push(format!("the MCP server {name} cannot be used: {why}"));
            }
        }
    }
    // what it is to be told is missing: nothing of the run is started
    if attached.wrong.is_some() && tools != Tools::Looked {
        return attached;
    }
    let listings = ready.iter().map(|(name, _, kept)| {
        let (name, kept) = (name.clone(), Arc::clone(kept));
        async move { aloud(&name, listing(&kept), around.tell).await }
    });
    let listed = join_all(listings).await;
    for ((name, declared, kept), listed) in ready.into_iter().zip(listed) {
        let (definitions, quarantined, is_there) = match listed {
            Ok((definitions, quarantined)) => {
                if tools != Tools::Pinned {
                    look_for_wrong_names(&mut attached, &name, &declared, &definitions, &quarantined);
                }
                (definitions, quarantined, true)
            }
            Err(down) if tools != Tools::Pinned && declared.required => {
                attached.missing.push(format!("the MCP server {name} is required and is not there: {down}"));
                continue;
            }
            Err(down) => {
                let without = match tools {
                    Tools::ToBeFound | Tools::Looked => "the run goes on without its tools",
                    Tools::Pinned if kept.program.changed().is_some() => "calls of its tools are held",
                    Tools::Pinned => "calls of its tools start it again",
                };
                attached
                    .notices
                    .push(format!("the MCP server {name} is not there, and {without}: {}", secrets.clean(&down)));
                (Vec::new(), Vec::new(), false)
            }
        };
        match tools {
            Tools::ToBeFound | Tools::Looked => {
                let bad = offer(task, &name, &declared, definitions, Whose::Servers, secrets);
                if is_there {
                    let beside = kept.server.beside().await.unwrap_or_default();
                    let ours = beside.readings().into_iter().map(|reading| reading.definition(&name)).collect();
                    offer(task, &name, &declared, ours, Whose::Ours, secrets);
                }
                for Quarantined { name: tool, why } in quarantined.iter().chain(&bad) {
                    let (tool, why) = (secrets.clean(tool), secrets.clean(why));
                    let tool = tool.escape_debug();
                    attached
                        .notices
                        .push(format!("the tool \"{tool}\" of the MCP server {name} is not offered: {why}"));
                }
            }
            // one that is not there has not changed
            Tools::Pinned if definitions.is_empty() => {}
            Tools::Pinned => {
                let pinned = pinned(task, &name);
                let changed = differing(&pinned, &definitions);
                let is_changed = |(_, of): &&(ToolName, McpTool)| changed.contains_key(&of.tool);
                attached.changed.extend(pinned.iter().filter(is_changed).map(|(name, _)| name.to_string()));
                *kept.differing() = changed;
            }
        }
        watch(&kept, pinned(task, &name), around.tell_later.clone());
        for spec in &task.tools {
            let ToolBody::Mcp(of) = &spec.body else { continue };
            if of.server != name {
                continue;
            }
            let function = ServerTool { kept: Arc::clone(&kept), of: of.clone(), ruled: Mutex::default() };
            attached.functions.insert(spec.name.clone(), Arc::new(function));
        }
    }
    attached
}

/// Another server that has the same name in the names of its tools: neither is used, whoever declared them.
fn namesake(name: &str, servers: &[(String, McpServer)]) -> Option<String> {
    let shown = shown_server(name);
    servers.iter().map(|(other, _)| other).find(|other| *other != name && shown_server(other) == shown).cloned()
}

/// How long a server may take before it is said that it is waited for.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// Waits for a server, and says so where that takes its time.
async fn aloud<T>(server: &str, work: impl Future<Output = T>, tell: &(dyn Fn(&str) + Send + Sync)) -> T {
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(SAID_AFTER, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            tell(&format!("waiting for the MCP server {server}"));
            work.await
        }
    }
}

/// A name that fits no tool leaves a tool looser than was meant, or out. One with `*` may be meant for tools that come later:
/// it is only told.
fn look_for_wrong_names(
    attached: &mut Attached,
    server: &str,
    declared: &McpServer,
    definitions: &[Definition],
    quarantined: &[Quarantined],
) {
    let bad = quarantined.iter().map(|tool| tool.name.as_str());
    let has: Vec<&str> = definitions.iter().map(|tool| tool.name.as_str()).chain(bad).collect();
    for (key, name) in declared.unknown(&has) {
        let shown = name.escape_debug();
        if name.contains('*') {
            attached.notices.push(format!("mcp.{server}.{key}: \"{shown}\" fits no tool of the MCP server {server}"));
            continue;
        }
        let near = longrein_tools::nearest(name, has.iter().copied());
        let instead = match (near.as_slice(), has.as_slice()) {
            ([], []) => "it has none".to_owned(),
            ([], [some @ .., last]) if some.len() < NAMES_SHOWN => {
                format!("it has {}", [some, &[last]].concat().join(", "))
            }
            ([], some) => format!("it has {}, …", some[..NAMES_SHOWN].join(", ")),
            (near, _) => format!("did you mean {}?", near.join(" or ")),
        };
        let place = match key {
            "tools" => format!("mcp.{server}.tools.{shown}"),
            _ => format!("mcp.{server}.{key}: \"{shown}\""),
        };
        let source = &declared.source;
        attached.misnamed.push(format!("{source}: {place}: the MCP server {server} has no such tool; {instead}"));
    }
}

/// Names of a server's tools that are listed where none is near.
const NAMES_SHOWN: usize = 8;

/// Whose tool it is: the server's, or one of ours that reads what the server has beside tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Servers,
    Ours,
}

/// The tools of a server as it is started for the first time.
async fn listing(kept: &Kept) -> Result<(Vec<Definition>, Vec<Quarantined>), String> {
    if let Some(Changed { file, .. }) = kept.program.changed() {
        return Err(format!("{file} is not what it was when the run started, and it is not started"));
    }
    kept.server.tools().await.map_err(|down| down.to_string())
}

/// Looks at what a server offers each time it was started again, or says that this is another: before any call, as on resume.
fn watch(kept: &Arc<Kept>, pinned: Vec<(ToolName, McpTool)>, tell: Option<Tell>) {
    let weak = Arc::downgrade(kept);
    kept.server.watch(Box::new(move |definitions| {
        let Some(kept) = weak.upgrade() else { return };
        let now = differing(&pinned, definitions);
        let was = std::mem::replace(&mut *kept.differing(), now.clone());
        let anew = pinned.iter().filter(|(_, of)| now.contains_key(&of.tool) && now.get(&of.tool) != was.get(&of.tool));
        let anew: Vec<&str> = anew.map(|(name, _)| name.as_str()).collect();
        if let (Some(tell), Some((_, of))) = (&tell, pinned.first().filter(|_| !anew.is_empty())) {
            let (server, names) = (&of.server, anew.join(", "));
            tell(&format!(
                "the MCP server {server} changed what it says of {names} since the run started: calls are held"
            ));
        }
    }));
}

/// The tools of a server that a task has.
fn pinned(task: &Task, server: &str) -> Vec<(ToolName, McpTool)> {
    let of = |spec: &ToolSpec| match &spec.body {
        ToolBody::Mcp(of) if of.server == server => Some((spec.name.clone(), of.clone())),
        ToolBody::Mcp(_) | ToolBody::Command(_) | ToolBody::Builtin(_) | ToolBody::Host(_) => None,
    };
    task.tools.iter().filter_map(of).collect()
}

/// Puts a server's tools into the task, after its own, without the secrets it may have put into their words. Those that cannot
/// be used.
fn offer(
    task: &mut Task,
    server: &str,
    declared: &McpServer,
    definitions: Vec<Definition>,
    whose: Whose,
    secrets: &Secrets,
) -> Vec<Quarantined> {
    let mut bad = Vec::new();
    for definition in definitions.into_iter().filter(|definition| declared.offers(&definition.name)) {
        let Definition { name: tool, description, parameters, declared: _, digest, claims: _ } = definition;
        if secrets.clean(&tool) != tool {
            bad.push(Quarantined { name: tool, why: "its name holds a secret".to_owned() });
            continue;
        }
        let (description, parameters) = (secrets.clean(&description), without_secrets(parameters, secrets));
        if let Err(why) = longrein_tools::usable(&parameters) {
            bad.push(Quarantined { name: tool, why });
            continue;
        }
        let name = tool_name(server, &tool, |name| task.tool(name).is_some());
        let reads = whose == Whose::Ours;
        let effect = if reads { EffectClass::Read } else { declared.effect_of(&tool) };
        let of = McpTool { server: server.to_owned(), tool, definition: digest, on_error: declared.on_error, reads };
        task.tools.push(ToolSpec {
            description,
            parameters,
            timeout: declared.timeout,
            declared: Declared { untrusted: !declared.trusted, ..Declared::default() },
            ..ToolSpec::new(name, ToolBody::Mcp(of), effect)
        });
    }
    bad
}

fn without_secrets(parameters: Payload, secrets: &Secrets) -> Payload {
    match parameters.read::<Value>() {
        Ok(schema) => {
            let clean = secrets.clean_value(schema.clone());
            if clean == schema { parameters } else { Payload::of(&clean).unwrap_or(parameters) }
        }
        Err(_) => parameters,
    }
}

/// The tools that a server now describes in another way, each with what it says now; None: it has it no more.
fn differing(pinned: &[(ToolName, McpTool)], definitions: &[Definition]) -> BTreeMap<String, Option<Digest>> {
    let mut differing = BTreeMap::new();
    for (_, of) in pinned {
        let now = definitions.iter().find(|definition| definition.name == of.tool).map(|found| &found.digest);
        if !of.reads && now != Some(&of.definition) {
            differing.insert(of.tool.clone(), now.cloned());
        }
    }
    differing
}

/// Why a server is not made ready.
enum Unmade {
    /// It cannot be started as things are here.
    Unusable(String),
    /// What it is declared with is wrong, or is not set: a mistake, as with a command tool.
    Wrong(String),
}

fn made(
    task: &Task,
    name: &str,
    server: &McpServer,
    environment: &BTreeMap<String, String>,
    sandbox: &Arc<Sandbox>,
    mark: &str,
    secrets: &mut Secrets,
) -> Result<Kept, Unmade> {
    let server = &as_run(server, environment, secrets).map_err(Unmade::Wrong)?;
    let limits = Limits { start: server.start_timeout, idle: server.idle_timeout };
    let (reach, way_out) = match &server.reach {
        McpReach::OfWorkspace => {
            return Err(Unmade::Unusable(
                "nothing says how it is reached: give it a command or a url, or trust a .mcp.json that does".to_owned(),
            ));
        }
        McpReach::Http { url, headers, .. } => {
            let http = logins::http(name, url, headers, environment, secrets).map_err(Unmade::Wrong)?;
            (Reach::Http(http), None)
        }
        McpReach::Stdio { command, folder, env, network, reads, writes, walls } => {
            let env = server_environment(env, environment, secrets).map_err(Unmade::Wrong)?;
            let folder = PathBuf::from(folder);
            let way_out = match (walls, network.is_empty()) {
                (McpWalls::OfTheRun, false) => Some(longrein_tools::way_out(network).map_err(Unmade::Unusable)?),
                (McpWalls::OfTheRun, true) | (McpWalls::None, _) => None,
            };
            let confinement = match walls {
                McpWalls::None => Confinement::None,
                McpWalls::OfTheRun => {
                    let below = |path: &String| folder.join(path);
                    let reads =
                        reads.iter().map(below).chain(named(command, &folder)).chain([folder.clone()]).collect();
                    let writes = writes.iter().map(below).collect();
                    sandbox.of_server(task, reads, writes, way_out.as_ref().map(WayOut::socket))
                }
            };
            let spec = Spec {
                argv: command.clone(),
                cwd: folder,
                env: env.into_iter().collect(),
                stdin: Vec::new(),
                stdout: Keep::Whole { max_bytes: 0 },
                stderr: Stderr::Apart(Keep::Whole { max_bytes: 0 }),
                timeout: server.timeout,
                marker: Marker { run: mark.to_owned(), action: format!("mcp-{name}"), fence: 0 },
                confinement,
            };
            (Reach::Stdio(Box::new(spec)), way_out)
        }
    };
    let keys = match &reach {
        Reach::Http(http) => http.keys.clone(),
        Reach::Stdio(_) => None,
    };
    Ok(Kept {
        server: Server::new(name, reach, limits),
        keys,
        sandbox: Arc::clone(sandbox),
        way_out,
        start_timeout: server.start_timeout,
        program: Program::of(task, server),
        differing: Mutex::default(),
    })
}

/// The server with the words of its command as they are run: each `${secret:X}` replaced.
pub(crate) fn as_run(
    server: &McpServer,
    environment: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<McpServer, String> {
    let mut server = server.clone();
    if let McpReach::Stdio { command, .. } = &mut server.reach {
        for word in command {
            *word = with_secrets(word, environment, secrets)?;
        }
    }
    Ok(server)
}

/// What a command names of the file system: who names a program lets it be read, with what it is made of.
fn named(command: &[String], folder: &Path) -> Vec<PathBuf> {
    let mut reads = Vec::new();
    for word in command.iter().filter(|word| word.contains('/')) {
        let path = folder.join(word);
        if !path.exists() {
            continue;
        }
        for path in [Some(path.clone()), path.canonicalize().ok()].into_iter().flatten() {
            reads.extend(installation(&path).filter(|around| is_narrow(around)));
            reads.push(path);
        }
    }
    reads
}

/// Never all there is, nor a whole home.
fn is_narrow(folder: &Path) -> bool {
    folder.components().count() > 2
}

/// The folder a program was installed in, or developed in: the outermost `node_modules`, the folder above `bin`, the nearest one
/// that says what it is; else its own.
fn installation(program: &Path) -> impl Iterator<Item = PathBuf> {
    let parent = program.parent();
    let above_bin = parent.filter(|parent| parent.file_name().is_some_and(|name| name == "bin")).and_then(Path::parent);
    let packages =
        program.ancestors().skip(1).filter(|path| path.file_name().is_some_and(|name| name == "node_modules"));
    let packages = packages.last();
    let project = program
        .ancestors()
        .skip(1)
        .take(PROJECT_LEVELS_MAX)
        .find(|path| PROJECT_FILES.iter().any(|name| path.join(name).exists()));
    [above_bin, packages, project, parent].into_iter().flatten().map(Path::to_owned).collect::<Vec<_>>().into_iter()
}

const PROJECT_LEVELS_MAX: usize = 5;
const PROJECT_FILES: [&str; 6] = ["package.json", "pyproject.toml", "setup.py", "pyvenv.cfg", "Cargo.toml", "go.mod"];

/// One tool of a server, called like a function of an embedding program.
struct ServerTool {
    kept: Arc<Kept>,
    of: McpTool,
    /// What had changed when a call of it was ruled last: what a person's yes is about.
    ruled: Mutex<Option<Changed>>,
}

impl HostTool for ServerTool {
    fn version(&self) -> &str {
        ""
    }

    fn accepts(&self, _args: &Payload) -> Result<(), ToolError> {
        Ok(())
    }

    fn changed(&self) -> Option<Changed> {
        let changed = self.kept.changed(&self.of);
        self.ruled.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&changed);
        changed
    }

    fn call(&self, call: HostCall) -> BoxFuture<'static, Result<Payload, HostError>> {
        let (kept, of) = (Arc::clone(&self.kept), self.of.clone());
        let ruled = self.ruled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let given_up = call.notice.cancelled();
            // what it was ruled by must still be so when it leaves: a server may have been started again meanwhile
            let may = || match kept.changed(&of) {
                now if now == ruled => Ok(()),
                Some(Changed { file, .. }) => Err(format!("{file} is not what it was when the run started")),
                None => Err("it changed again".to_owned()),
            };
            let reading = Reading::ALL.into_iter().find(|reading| of.reads && reading.name() == of.tool);
            let called = match reading {
                Some(reading) => kept.server.read(reading, &call.attempt.args, given_up).await,
                None => kept.server.call(&of.tool, &call.attempt.args, given_up, &may).await,
            };
            if let Err(CallError::Lost(_)) = &called {
                look_again(&kept).await;
            }
            let called = match &kept.keys {
                Some(keys) => logins::hidden(keys, called),
                None => called,
            };
            // with it would go what is around its program
            let _ = (&kept.sandbox, &kept.way_out);
            match called {
                Ok(answer) if !answer.is_error => Ok(answer.result),
                Ok(answer) => failed(answer.message()),
                Err(CallError::Failed(message)) => failed(message),
                Err(CallError::Refused(why)) => {
                    let message = format!("the MCP server {} refused it: {why}", of.server);
                    Err(HostError { error: ToolError::new(class::INVALID_ARGUMENTS, message), nothing_happened: true })
                }
                Err(CallError::NotSent(why)) => {
                    let message = format!("the MCP server {} was not called: {why}. Nothing was done.", of.server);
                    Err(HostError { error: ToolError::new(class::UNAVAILABLE, message), nothing_happened: true })
                }
                Err(CallError::TurnedAway { status, why, retry_after_s }) => {
                    let class = if status == TOO_MANY { class::RATE_LIMITED } else { class::NOT_AUTHORIZED };
                    let message = format!("{why} (the MCP server {}). Nothing was done.", of.server);
                    let error = ToolError { retry_after_s, ..ToolError::new(class, message) };
                    Err(HostError { error, nothing_happened: true })
                }
                Err(CallError::Lost(why)) => {
                    let message = format!("{why} (the MCP server {} was called and gave no result)", of.server);
                    Err(HostError { error: ToolError::new(class::UNAVAILABLE, message), nothing_happened: false })
                }
            }
        })
    }

    fn reconcile(&self, _call: HostCall) -> BoxFuture<'static, Result<HostAnswer, ToolError>> {
        Box::pin(async { Ok(HostAnswer::Pending) })
    }
}

const TOO_MANY: u16 = 429;

/// A server that went away is looked at before anybody asks for it again: what it offers then is what the next call is ruled by.
/// One whose program has changed is left where it is.
async fn look_again(kept: &Kept) {
    if kept.server.is_there().await || kept.program.changed().is_some() {
        return;
    }
    // whoever calls it next is told why it is not there
    let _ = tokio::time::timeout(kept.start_timeout, kept.server.ready()).await;
}

/// The server answered that it failed: told, and a result of nothing.
fn failed(message: String) -> Result<Payload, HostError> {
    Err(HostError { error: ToolError::new(TOOL_ERROR, message), nothing_happened: false })
}

/// Starts a task's servers, puts the tools they offer into it, and ends them again: for looking. A line each on what is wrong;
/// what no run would start with comes last. `tell`: of what is waited for.
pub async fn add_tools_of_servers(
    task: &mut Task,
    environment: &BTreeMap<String, String>,
    settings: &SandboxSettings,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Vec<String> {
    let walls = match settings.mode {
        SandboxMode::External => Walls::None,
        SandboxMode::Best | SandboxMode::Required => Walls::Strongest,
    };
    let sandbox = Sandbox::new(walls, Workspace::ReadOnly, crate::gate::own_files("memory:", environment));
    let mark = format!("tools-{}", std::process::id());
    let around = Around { environment, sandbox, mark, tell, tell_later: None };
    let Attached { mut notices, misnamed, missing, .. } =
        attach(task, Tools::Looked, around, &mut Secrets::new()).await;
    let fatal = misnamed.into_iter().chain(missing);
    notices.extend(fatal.map(|line| format!("NO RUN STARTS: {line}")));
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_with_what_it_is_made_of() {
        let home = tempfile::tempdir().unwrap();
        let make = |file: &str| {
            let path = home.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
        };
        for (file, needs) in [
            ("npm/node_modules/@a/server/dist/index.js", "npm/node_modules"),
            ("venv/bin/server", "venv"),
            ("project/src/app/server.py", "project"),
            ("alone/server.py", "alone"),
        ] {
            make(file);
            make("project/pyproject.toml");
            let command = ["run".to_owned(), home.path().join(file).display().to_string()];
            let reads = named(&command, Path::new("/"));
            assert!(reads.contains(&home.path().join(needs)), "{file}: {reads:?}");
            assert!(!reads.contains(&home.path().to_owned()), "{file}: {reads:?}");
        }
        assert!(named(&["/bin/sh".to_owned()], Path::new("/")).iter().all(|path| path != Path::new("/")));
    }
}
