//! Checks: commands that judge a call or the whole work; exit 0 passes, and what they print is the evidence.

use std::time::Duration;

use bytes::Bytes;
use longrein_core::check::{Finding, Proof, Verdict};
use longrein_core::ids::Digest;
use longrein_core::payload::{Content, Payload};
use longrein_core::task::Task;
use longrein_core::time::millis;
use longrein_ports::{ActionCheck, CheckRun, Tools};
use longrein_sandbox::{Ended, How, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, reap_marked};

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
        self.judge_by(task, command, marker).await
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
        self.judge_by(task, command, marker).await
    }

    async fn judge_by(&self, task: &Task, command: Command<'_>, marker: Marker) -> Checked {
        let line = command.argv.join(" ");
        reap_marked(&marker.run, &marker.action, u64::MAX).await;
        let ended = self
            .sandbox()
            .run(
                task,
                Spec {
                    argv: command.argv.to_vec(),
                    cwd: command.cwd.into(),
                    env: self.base_env(),
                    stdin: command.stdin.clone(),
                    stdout: Keep::Ends { max_bytes: EVIDENCE_MAX_BYTES, flood_bytes: NO_FLOOD },
                    stderr: Stderr::WithStdout,
                    timeout: command.timeout,
                    marker,
                    confinement: self.sandbox().of_workspace(task),
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
