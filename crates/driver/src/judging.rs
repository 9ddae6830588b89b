//! Checks that ask a model for its opinion: the workspace looked at, what there is to judge gathered, the request journaled,
//! the reply taken. What comes of it is core's to say.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::decide::{AskJudge, Command, TakeJudge};
use longrein_core::event::{JudgeRequested, Suspension};
use longrein_core::ids::CheckName;
use longrein_core::judge::{self, EVIDENCE_MAX, Work};
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::run::{Evidence, Run};
use longrein_ports::{Encoded, JournalError};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;
use crate::jobs::{Flight, Landed};
use crate::ports::Ports;
use crate::said;
use crate::waiting::given_up;

impl Drive<'_> {
    /// Looks at the workspace the opinion will be about. Answers whether anything took off or changed.
    pub(crate) fn ask_judge(&mut self, check: &CheckName, round: u32) -> bool {
        // A verdict is about the world after everything that is journaled: append first.
        if !self.draft.events.is_empty() {
            self.put_off = true;
            return false;
        }
        if !self.ports.judges.contains_key(check) {
            let detail = format!("the model that judges \"{check}\" cannot be reached here");
            return self.command(Command::Suspend { cause: Suspension::Model, detail });
        }
        let trees = self.trees().map(Arc::clone);
        self.hangar.launch(Flight::AskJudge(check.clone(), round), async move {
            Landed::Tree(match trees {
                Ok(trees) => trees.snapshot().await.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            })
        });
        true
    }

    /// Asks, if it is still to be asked.
    pub(crate) async fn judge_asked(&mut self, check: CheckName, round: u32, landed: Landed) -> Result<(), DriveError> {
        let tree = match landed {
            Landed::Tree(tree) => tree,
            Landed::Broken(panic) => Err(format!("it broke down: {panic}")),
            // Given up: still owed if it is.
            Landed::Aborted
            | Landed::Sent(_)
            | Landed::Ran(..)
            | Landed::Recovered(..)
            | Landed::Checked(..)
            | Landed::Undone(_)
            | Landed::Heard(_)
            | Landed::InboxChanged
            | Landed::Child(_)
            | Landed::Indexed
            | Landed::Kept
            | Landed::Gathered(_) => return Ok(()),
        };
        let Some(model) = self.ports.judges.get(&check).map(Arc::clone) else { return Ok(()) };
        let Some(spec) = self.run.check_spec(&check) else { return Ok(()) };
        let Some(judge) = judge::spec(spec) else { return Ok(()) };
        let work = work(self.ports, &self.run).await?;
        let judge::Request { prompt, about } = judge::request(&self.run, spec, judge, &work, tree.as_ref().ok());
        let encoded = model.encode(&prompt);
        let asked = AskJudge {
            check,
            round,
            about,
            digest: encoded.digest.clone(),
            bytes: encoded.bytes.len() as u64,
            output: prompt.max_output,
            tree,
        };
        if self.command(Command::AskJudge(asked)) {
            self.question = Some(encoded);
        }
        Ok(())
    }

    /// Sends what was journaled as asked.
    pub(crate) fn send_judge(&mut self, requested: &JudgeRequested) {
        let Some(model) = self.ports.judges.get(&requested.check).map(Arc::clone) else { return };
        let Some(encoded) = self.question.take_if(|encoded: &mut Encoded| encoded.digest == requested.digest) else {
            return;
        };
        let wait = Duration::from_millis(self.run.judging.wait_ms);
        let tools = Arc::clone(&self.ports.tools);
        self.hangar.launch(Flight::Judge(requested.call), async move {
            tokio::time::sleep(wait).await;
            said::sent(model.as_ref(), tools.as_ref(), encoded).await
        });
    }

    pub(crate) fn judge_replied(&mut self, call: u32, landed: Landed) {
        // Told to stop, the suspension settles it.
        if self.stopping.is_some() && matches!(landed, Landed::Aborted) {
            return;
        }
        let result: Result<Reply, ModelFailure> = match landed {
            Landed::Sent(result) => result,
            landed @ (Landed::Broken(_)
            | Landed::Aborted
            | Landed::Ran(..)
            | Landed::Recovered(..)
            | Landed::Checked(..)
            | Landed::Tree(_)
            | Landed::Undone(_)
            | Landed::Heard(_)
            | Landed::InboxChanged
            | Landed::Child(_)
            | Landed::Indexed
            | Landed::Kept
            | Landed::Gathered(_)) => Err(given_up(&landed)),
        };
        let jitter = self.ports.clock.jitter();
        self.command(Command::TakeJudge(TakeJudge { call, result, jitter }));
    }
}

/// What there is to judge: the answer, or what the last phase left; and the newest live evidence.
async fn work(ports: &Ports, run: &Run) -> Result<Work, JournalError> {
    let answer = edge::answer(ports, run).await?;
    let is_live = |evidence: &Evidence| run.void_since(evidence).is_none();
    let newest = run.evidence.iter().rev().filter(|(_, evidence)| is_live(evidence)).take(EVIDENCE_MAX);
    let mut evidence = Vec::new();
    for (id, found) in newest {
        if let Some(data) = edge::evidence_data(ports, run, found).await? {
            evidence.push((*id, found.tool.clone(), data));
        }
    }
    evidence.reverse();
    Ok(Work { answer, evidence, facts: edge::facts(ports, run).await? })
}
