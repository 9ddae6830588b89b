//! Acceptance commands: run in the workspace; exit 0 passes, and what they print is the evidence.

use longrein_core::check::{Finding, Verdict};
use longrein_core::ids::Digest;
use longrein_core::payload::Payload;
use longrein_core::task::{CheckSpec, Task};
use longrein_core::time::millis;
use longrein_ports::CheckRun;
use longrein_sandbox::{Ended, How, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, reap_marked};

use crate::ending::Blobs;
use crate::output::readable;
use crate::toolbox::Toolbox;

/// Head and tail of a build log; the check itself may print as much as it likes.
const EVIDENCE_MAX_BYTES: usize = 256 * 1024;

/// A verdict, with the large payload its evidence refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub verdict: Verdict,
    /// To be stored before the verdict is journaled.
    pub blobs: Vec<(Digest, Payload)>,
}

impl Toolbox {
    /// Runs an acceptance command. Dropping the future ends it and its descendants.
    pub async fn run_check(&self, task: &Task, check: &CheckRun) -> Checked {
        let CheckRun { run: run_id, spec } = check;
        // checks have no fence: a run checks one thing at a time, so whatever carries this mark is of a dead worker
        let marker = Marker { run: self.mark(run_id), action: format!("check-{}", spec.name), fence: 0 };
        reap_marked(&marker.run, &marker.action, u64::MAX).await;
        let ended = self
            .sandbox()
            .run(
                task,
                Spec {
                    argv: spec.command.clone(),
                    cwd: task.workspace.clone().into(),
                    env: self.base_env(),
                    stdin: Vec::new(),
                    stdout: Keep::Ends { max_bytes: EVIDENCE_MAX_BYTES, flood_bytes: NO_FLOOD },
                    stderr: Stderr::WithStdout,
                    timeout: spec.timeout,
                    marker,
                    confinement: self.sandbox().of_workspace(task),
                },
            )
            .await;
        let mut blobs = Blobs::default();
        let (finding, text, exit_status, took_ms) = match ended {
            Err(error) => (Finding::Failed, not_started(spec, &error), None, 0),
            Ok(ended) => {
                let (finding, exit_status) = found(&ended);
                let text = readable(&ended.stdout, self.secrets());
                (finding, text + &remark(spec, &ended), exit_status, millis(ended.took))
            }
        };
        let evidence = blobs.keep(Payload::string(&text));
        Checked { verdict: Verdict { finding, evidence, exit_status, took_ms }, blobs: blobs.0 }
    }
}

fn found(ended: &Ended) -> (Finding, Option<i32>) {
    match ended.how {
        How::Exited(0) => (Finding::Passed, Some(0)),
        How::Exited(status) => (Finding::Failed, Some(status)),
        How::Signalled(_) | How::TimedOut | How::Cut => (Finding::Failed, None),
    }
}

fn not_started(spec: &CheckSpec, error: &StartError) -> String {
    format!("The check \"{}\" could not be started: {error}.", spec.name)
}

/// What the output alone does not say.
fn remark(spec: &CheckSpec, ended: &Ended) -> String {
    match ended.how {
        How::Exited(0) => String::new(),
        How::Exited(status) => format!("\n[ended with status {status}]"),
        How::Signalled(signal) => format!("\n[ended by signal {signal}]"),
        How::TimedOut => format!("\n[ended by Longrein after {:?}: its time was up]", spec.timeout),
        How::Cut => "\n[ended by Longrein: it printed too much]".to_owned(),
    }
}
