//! The person at the command line: starts the run, sends what the plan has them say, kills the worker where that is the
//! experiment, and goes on.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::agent::MODEL;
use super::plan::{LOOKS, Plan};

/// One run's folder and its worker.
pub(crate) struct Operator {
    binary: PathBuf,
    folder: TempDir,
    worker: Mutex<Option<Child>>,
}

/// What of the product's own tools the binary has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtins {
    All,
    /// Neither `note` nor `recall`.
    FilesOnly,
}

/// What shapes the task beside the plan.
pub(crate) struct Setting {
    pub(crate) port: u16,
    /// The window the configuration declares.
    pub(crate) declared: u64,
    /// Tools that are offered and never called.
    pub(crate) idle_tools: usize,
    /// `[context] trigger`, as TOML.
    pub(crate) trigger: Option<String>,
}

pub(crate) const RUN: &str = "r1";

impl Operator {
    pub(crate) fn new(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("longrein-context-").tempdir()?;
        Ok(Self { binary: binary.to_owned(), folder, worker: Mutex::new(None) })
    }

    /// Writes workspace, task and configuration; answers what the binary offers.
    pub(crate) fn prepare(&self, plan: &Plan, setting: &Setting) -> anyhow::Result<Builtins> {
        let work = self.work();
        std::fs::create_dir_all(work.join("outputs"))?;
        for (number, output) in plan.outputs.iter().enumerate() {
            std::fs::write(work.join(format!("outputs/{number}")), output)?;
        }
        for (path, text) in &plan.rule_files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().context("a rule file lies in a folder")?)?;
            std::fs::write(path, text)?;
        }
        std::fs::write(work.join("look.sh"), LOOK)?;
        std::fs::write(work.join("deploy.sh"), DEPLOY)?;
        let configuration = self.folder.path().join("config/longrein");
        std::fs::create_dir_all(&configuration)?;
        std::fs::write(configuration.join("config.toml"), configuration_file(setting))?;
        // A workspace that is not trusted has no rules, only data. Binaries without this command trust none.
        let _ = self.command(&["trust", "."]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        for builtins in [Builtins::All, Builtins::FilesOnly] {
            std::fs::write(work.join("task.toml"), task(plan, setting, builtins))?;
            let listed = self.command(&["tools", "--task", "task.toml"]).output()?;
            if listed.status.success() {
                return Ok(builtins);
            }
            if builtins == Builtins::FilesOnly {
                bail!("the task is refused: {}", String::from_utf8_lossy(&listed.stderr));
            }
        }
        bail!("no task was tried")
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A command of the binary; nothing of the surroundings leaks into it.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(words)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env("LONGREIN_HOME", self.folder.path().join("home"))
            .stdin(Stdio::null());
        command
    }

    /// Starts a worker: of a new run, or of the one there is.
    pub(crate) fn start(&self, anew: Start) -> anyhow::Result<()> {
        let words: &[&str] = match anew {
            Start::Run => &["--quiet", "run", "--task", "task.toml", "--id", RUN],
            Start::Resume => &["--quiet", "resume", RUN],
        };
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("stderr"))?;
        let child = self.command(words).stdout(Stdio::null()).stderr(log).spawn()?;
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// The worker's process.
    pub(crate) fn worker(&self) -> u32 {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Child::id)
    }

    /// As `kill -9`.
    pub(crate) fn kill_worker(&self) -> anyhow::Result<()> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = worker.as_mut() {
            worker.kill()?;
        }
        Ok(())
    }

    /// How the worker ended: its exit status, -1 for a kill. None: it works.
    pub(crate) fn ended(&self) -> anyhow::Result<Option<i32>> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match worker.as_mut() {
            Some(worker) => worker.try_wait()?,
            None => None,
        };
        Ok(status.map(|status| status.code().unwrap_or(-1)))
    }

    /// A message to the run, durable when this returns, and known to the worker: a worker looks for what other processes
    /// wrote some times a second, and no model replies sooner than that.
    pub(crate) fn send(&self, text: &str) -> anyhow::Result<()> {
        let sent = self.command(&["send", RUN, text]).output()?;
        if !sent.status.success() {
            bail!("send: {}", String::from_utf8_lossy(&sent.stderr));
        }
        std::thread::sleep(LOOKS_WITHIN);
        Ok(())
    }

    /// Effects that were carried out, each as often as it was.
    pub(crate) fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.work().join("deployed")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The last words of the workers.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n    ")
    }

    /// Size of the store's files.
    pub(crate) fn store_bytes(&self) -> u64 {
        let home = self.folder.path().join("home");
        let files = std::fs::read_dir(home).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("home/longrein.db")
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Waits a little, between two looks at the worker.
    pub(crate) fn pause() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            // It may have ended by itself.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Longer than a worker takes to see what another process wrote.
const LOOKS_WITHIN: Duration = Duration::from_millis(400);

/// How a worker begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Run,
    Resume,
}

/// Prints the output that is asked for. As cheap as a shell script can be: one process beside it.
const LOOK: &str = r#"IFS= read -r call
number=${call#*'"output":'}
exec cat "outputs/${number%%[!0-9]*}"
"#;

/// Writes down what it was asked to do, each time.
const DEPLOY: &str = r#"IFS= read -r call
service=${call#*'"service":"'}
service=${service%%'"'*}
echo "$service" >> deployed
echo "{\"deployed\":\"$service\"}"
"#;

fn configuration_file(setting: &Setting) -> String {
    let Setting { port, declared, .. } = setting;
    format!(
        r#"[models."openai/{MODEL}"]
base_url = "http://127.0.0.1:{port}/v1"
context_limit = {declared}
max_output = {}
"#,
        declared / OUTPUT_SHARE
    )
}

/// An eighth of the window is for the reply.
const OUTPUT_SHARE: u64 = 8;

fn task(plan: &Plan, setting: &Setting, builtins: Builtins) -> String {
    let limit = 4 * plan.turns.len() + 200;
    let builtins = match builtins {
        Builtins::All => r#"["read_file", "note", "recall"]"#,
        Builtins::FilesOnly => r#"["read_file"]"#,
    };
    let constraints: Vec<_> = plan.constraints.iter().map(|text| format!("    \"{text}\",\n")).collect();
    let mut text = format!(
        r#"goal = "Go through the services one by one, find what is wrong with each, and deploy what is mended."
instructions = "Note down what you find out and what is still open. What is no longer in view can be recalled."
constraints = [
{}]
model = "openai/{MODEL}"
workspace = "."
builtins = {builtins}

[budget]
turns = {limit}
model_calls = {limit}
tool_calls = {}
time = "20h"

[policy]
allow = ["deploy"]

[[tools]]
name = "deploy"
description = "Deploys a version of one service. Use it once for each service."
command = ["sh", "deploy.sh"]
effect = "external"
key = ["service"]
idempotent = "24h"
[tools.parameters]
type = "object"
required = ["service", "version"]
additionalProperties = false
properties = {{ service = {{ type = "string" }}, version = {{ type = "string" }} }}
"#,
        constraints.concat(),
        30 * limit,
    );
    for name in LOOKS {
        text.push_str(&format!(
            r#"
[[tools]]
name = "{name}"
description = "Prints what there is to see of a service, by the number of the output."
command = ["sh", "look.sh"]
effect = "read"
[tools.parameters]
type = "object"
required = ["output"]
properties = {{ output = {{ type = "integer", description = "which output" }} }}
"#
        ));
    }
    for number in 0..setting.idle_tools {
        text.push_str(&format!(
            r#"
[[tools]]
name = "connector_{number:02}"
description = "Reads records of connected system {number:02}: filter by owner, state and time; returns at most a page of them, newest first. Not for writing."
command = ["true"]
effect = "read"
[tools.parameters]
type = "object"
required = ["owner"]
[tools.parameters.properties]
owner = {{ type = "string", description = "whose records" }}
state = {{ type = "string", enum = ["open", "closed", "any"], description = "only those in this state" }}
since = {{ type = "string", description = "an ISO 8601 time; older records are left out" }}
limit = {{ type = "integer", description = "at most so many, 1 to 100" }}
"#
        ));
    }
    if let Some(trigger) = &setting.trigger {
        text.push_str(&format!("\n[context]\ntrigger = {trigger}\n"));
    }
    text
}
