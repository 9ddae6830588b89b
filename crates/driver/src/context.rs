//! The context of a run, as core decides it and the driver does it: results made shorter, the window made anew, requests
//! counted before they leave.

use longrein_core::action::{Action, Ended, Life};
use longrein_core::context::meter::Meter;
use longrein_core::context::plan::{Plan, Spill, plan};
use longrein_core::context::render;
use longrein_core::decide::{self, Command};
use longrein_core::event::Counted;
use longrein_core::ids::{AttemptId, Digest};
use longrein_core::payload::Content;
use longrein_core::prompt::Purpose;
use longrein_ports::Encoded;

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;

/// Plans before one request: results are spilled once, the window is made anew a few times at most, and then it is sent or
/// not.
const PLANS_MAX: usize = 8;

impl Drive<'_> {
    /// Makes the next model call ready to leave, whatever the window needs first.
    pub(crate) async fn call(&mut self, attempt: AttemptId, purpose: Purpose) -> Result<bool, DriveError> {
        for _ in 0..PLANS_MAX {
            self.meter.measure(&self.run);
            let now = self.ports.clock.now().max(self.run.at);
            match plan(&self.run, &self.meter, purpose, now) {
                Plan::Send { counted, reserved } => return Ok(self.request(attempt, purpose, counted, reserved)),
                Plan::Spill(spills) => {
                    for spill in spills {
                        self.spill(spill).await?;
                    }
                }
                Plan::Rebuild(started) => {
                    self.command(Command::Rebuild(started));
                }
                Plan::Forgo(forgone) => return Ok(self.command(Command::Forgo(forgone))),
            }
        }
        Err(DriveError::Stuck { run: self.run.id.clone() })
    }

    fn request(&mut self, attempt: AttemptId, purpose: Purpose, counted: Counted, reserved: u64) -> bool {
        let tail = match purpose {
            Purpose::Work => render::due_tail(&self.run),
            Purpose::Closing => None,
        };
        self.meter.sends(tail.as_deref());
        let encoded = self.encode(purpose, reserved);
        let command = Command::Request {
            attempt,
            purpose,
            digest: encoded.digest.clone(),
            bytes: encoded.bytes.len() as u64,
            counted,
            tail: tail.map(|tail| Digest::of(tail.as_bytes())),
        };
        self.outgoing.insert(attempt, encoded);
        self.command(command)
    }

    /// Its allowance of output shrinks with what is left of the budget.
    fn encode(&self, purpose: Purpose, reserved: u64) -> Encoded {
        let tools = self.ports.definitions.clone();
        let mut prompt = render::render(&self.run, purpose, tools, reserved);
        let encoded = self.ports.model.encode(&prompt);
        let allowance = decide::output_allowance(&self.run, encoded.bytes.len() as u64);
        if allowance == 0 || allowance >= prompt.max_output {
            return encoded;
        }
        // Its bytes can be used again if nobody holds them.
        drop(encoded);
        prompt.max_output = allowance;
        self.ports.model.encode(&prompt)
    }

    async fn spill(&mut self, spill: Spill) -> Result<(), DriveError> {
        let Some(content) = self.run.fresh.iter().find(|action| action.id == spill.action).and_then(result) else {
            return Ok(());
        };
        let total = content.bytes();
        let bytes_max = usize::try_from(spill.bytes_max).unwrap_or(usize::MAX);
        let whole = match edge::load(self.ports, content).await? {
            Some(payload) => payload,
            None => content.shown().clone(),
        };
        let shown = self.ports.tools.preview(&whole, bytes_max);
        self.command(Command::Spill { action: spill.action, shown, total });
        Ok(())
    }
}

/// What an action of the last turn brought, if it is shown.
fn result(action: &Action) -> Option<&Content> {
    match &action.life {
        Life::Ended(Ended::Done { result, .. }) => Some(result),
        Life::Ended(Ended::Refused(error) | Ended::Error(error) | Ended::NotDone(error)) | Life::Unknown(error) => {
            error.data.as_ref()
        }
        Life::Doubtful(..) | Life::Queued | Life::Held(_) | Life::Started { .. } | Life::Lost(_) => None,
    }
}

/// A meter for one claim on a run.
pub(crate) fn meter(ports: &crate::ports::Ports, run: &longrein_core::run::Run) -> Meter {
    Meter::new(Default::default(), None, &run.system, &ports.definitions)
}
