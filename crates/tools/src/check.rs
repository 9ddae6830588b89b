//! Checks: commands that judge a call or the whole work; exit 0 passes, and what they print is the evidence.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::check::{Finding, Proof, Verdict};
use longrein_core::ids::Digest;
use longrein_core::payload::{Content, Payload};
use longrein_core::task::Task;
use longrein_core::time::millis;
use longrein_ports::{ActionCheck, CheckRun, Tools};
use longrein_sandbox::{Ended, How, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, reap_marked};
use longrein_workspace::Patterns;

use crate::ending::Blobs;
use crate::output::readable;
use crate::request;
use crate::toolbox::Toolbox;

/// Head and tail of a build log; the check itself may print as much as it likes.
const EVIDENCE_MAX_BYTES: usize = 256 * 1024;

/// A verdict, with the large payload its evidence refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub verdict: Verdict,
    /// To be stored before the verdict is journaled.
    pub blobs: Vec<(Digest, Bytes)>,
}

impl Toolbox {
    /// Runs an acceptance command. Dropping the future ends it and its descendants.
    pub async fn run_check(&self, task: &Task, check: &CheckRun) -> Checked {
        let CheckRun { run: run_id, spec, about: _ } = check;
        // checks have no fence: a run checks one thing at a time, so whatever carries this mark is of a dead worker
        let marker = Marker { run: self.mark(run_id), action: format!("check-{}", spec.name), fence: 0 };
        let command = Command {
            name: spec.name.as_str(),
            argv: &spec.command,
            cwd: &task.workspace,
            timeout: spec.timeout,
            stdin: Vec::new(),
        };
        let pinned = self.files_of_check(&spec.name).map(Path::to_owned).collect();
        self.judge_by(task, command, marker, fixed(task, pinned, &spec.protect)).await
    }

    /// Runs the check of a tool over a call that is done: the program gets the call's own object, with its result.
    pub async fn run_action_check(&self, task: &Task, check: &ActionCheck) -> Checked {
        let ActionCheck { attempt, handed } = check;
        let Some(spec) = task.tool(&attempt.tool) else {
            return said(Finding::Failed, format!("There is no tool {}.", attempt.tool));
        };
        // The call may have changed what judges it.
        if let Some(changed) = self.changed(&attempt.tool) {
            let text = format!("Not run: {} is not what it was when the run started.", changed.file);
            return said(Finding::Failed, text);
        }
        let action = format!("check-{}", attempt.action);
        let marker = Marker { run: self.mark(&attempt.run), action, fence: attempt.fence.0 };
        let command = Command {
            name: attempt.tool.as_str(),
            argv: &spec.check,
            cwd: &task.folder,
            timeout: spec.timeout,
            stdin: request::encode(attempt, handed, &task.principal),
        };
        let pinned = self.files_of_tool(&attempt.tool).map(Path::to_owned).collect();
        self.judge_by(task, command, marker, fixed(task, pinned, &[])).await
    }

    /// `fixed`: what the work that a check runs must not change under it.
    async fn judge_by(&self, task: &Task, command: Command<'_>, marker: Marker, fixed: Vec<PathBuf>) -> Checked {
        let line = command.argv.join(" ");
        let mut env = self.base_env();
        if holds_compiled_python(Path::new(&task.workspace)) {
            let (name, nowhere) = NO_COMPILED_PYTHON;
            env.push((name.to_owned(), nowhere.to_owned()));
        }
        reap_marked(&marker.run, &marker.action, u64::MAX).await;
        let ended = self
            .sandbox()
            .run(
                task,
                Spec {
                    argv: command.argv.to_vec(),
                    cwd: command.cwd.into(),
                    env,
                    stdin: command.stdin.clone(),
                    stdout: Keep::Ends { max_bytes: EVIDENCE_MAX_BYTES, flood_bytes: NO_FLOOD },
                    stderr: Stderr::WithStdout,
                    timeout: command.timeout,
                    marker,
                    confinement: self.sandbox().of_check(task, fixed),
                },
            )
            .await;
        let mut blobs = Blobs::default();
        let (finding, text, exit_status, took_ms) = match ended {
            Err(error) => (Finding::Failed, not_started(&command, &error), None, 0),
            Ok(ended) => {
                let (finding, exit_status) = found(&ended);
                let text = readable(&ended.stdout, self.secrets());
                (finding, text + &remark(&command, &ended), exit_status, millis(ended.took))
            }
        };
        let evidence = blobs.keep(Payload::string(&text));
        let proof = Proof { command: Some(line), output: Some(evidence.digest()), ..Proof::default() };
        Checked { verdict: Verdict { finding, evidence, exit_status, took_ms, proof }, blobs: blobs.0 }
    }
}

/// Files more than this many that are protected are not held one by one.
const FIXED_MAX: usize = 256;
/// Files and folders looked at to find them.
const LOOKED_AT_MAX: usize = 20_000;

/// The files of the workspace that stay as they are while a check runs: those it is made of, and those it protects. What
/// judges must not be rewritten by the work it judges, not even for a moment and put back.
fn fixed(task: &Task, pinned: Vec<PathBuf>, protect: &[String]) -> Vec<PathBuf> {
    let workspace = Path::new(&task.workspace);
    let mut fixed: Vec<PathBuf> = pinned.into_iter().filter(|file| file.starts_with(workspace)).collect();
    if let (Ok(patterns), false) = (Patterns::new(protect), protect.is_empty()) {
        let is_meant = |path: &Path| {
            path.strip_prefix(workspace).ok().and_then(Path::to_str).is_some_and(|below| patterns.matches(below))
        };
        let files = files_below(workspace).filter(|(path, kind)| *kind == Kind::File && is_meant(path));
        fixed.extend(files.map(|(path, _)| path).take(FIXED_MAX));
    }
    fixed
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
}

/// What lies below a folder, the shallow first, links aside, within bounds.
fn files_below(folder: &Path) -> impl Iterator<Item = (PathBuf, Kind)> + use<> {
    const PASSED_OVER: [&str; 3] = [".git", "node_modules", "target"];
    let mut folders = VecDeque::from([folder.to_owned()]);
    let mut entries: Option<fs::ReadDir> = None;
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = entries.as_mut().and_then(Iterator::next) {
                let Ok(entry) = entry else { continue };
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_file() {
                    return Some((path, Kind::File));
                }
                let name = entry.file_name();
                // an environment of Python's is made by its own tools
                if kind.is_dir() && !PASSED_OVER.iter().any(|over| name == *over) && !path.join("pyvenv.cfg").exists() {
                    folders.push_back(path.clone());
                    return Some((path, Kind::Folder));
                }
                continue;
            }
            entries = fs::read_dir(folders.pop_front()?).ok();
        }
    })
    .take(LOOKED_AT_MAX)
}

/// Python takes what lies in `__pycache__` for its source's, by marks that anybody can write, and no snapshot holds it.
fn holds_compiled_python(workspace: &Path) -> bool {
    files_below(workspace).any(|(path, kind)| kind == Kind::Folder && path.ends_with("__pycache__"))
}

/// Where Python then looks for what it compiled before: nowhere.
const NO_COMPILED_PYTHON: (&str, &str) = ("PYTHONPYCACHEPREFIX", "/dev/null/none");

/// What a check runs.
struct Command<'a> {
    name: &'a str,
    argv: &'a [String],
    cwd: &'a str,
    timeout: Duration,
    stdin: Vec<u8>,
}

/// A verdict without a command having been run.
fn said(finding: Finding, text: String) -> Checked {
    let evidence = Content::Inline(Payload::string(&text));
    let verdict = Verdict { finding, evidence, exit_status: None, took_ms: 0, proof: Proof::default() };
    Checked { verdict, blobs: Vec::new() }
}

fn found(ended: &Ended) -> (Finding, Option<i32>) {
    match ended.how {
        How::Exited(0) => (Finding::Passed, Some(0)),
        How::Exited(status) => (Finding::Failed, Some(status)),
        How::Signalled(_) | How::TimedOut | How::Cut => (Finding::Failed, None),
    }
}

fn not_started(spec: &Command<'_>, error: &StartError) -> String {
    format!("The check \"{}\" could not be started: {error}.", spec.name)
}

/// What the output alone does not say.
fn remark(spec: &Command<'_>, ended: &Ended) -> String {
    match ended.how {
        How::Exited(0) => String::new(),
        How::Exited(status) => format!("\n[ended with status {status}]"),
        How::Signalled(signal) => format!("\n[ended by signal {signal}]"),
        How::TimedOut => format!("\n[ended by Longrein after {:?}: its time was up]", spec.timeout),
        How::Cut => "\n[ended by Longrein: it printed too much]".to_owned(),
    }
}
