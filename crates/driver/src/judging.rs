//! Checks that ask a model for its opinion: the workspace looked at, what there is to judge gathered, the request journaled,
//! the reply taken. What comes of it is core's to say.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::decide::{AskJudge, Command, TakeJudge};
use longrein_core::event::{JudgeRequested, Suspension};
use longrein_core::ids::CheckName;
use longrein_core::judge::{self, EVIDENCE_MAX, Work};
use longrein_core::run::{Evidence, Run};
use longrein_ports::{Encoded, JournalError};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;
use crate::jobs::{Cut, Flight, Landed, Seen, unless_given_up};
use crate::ports::Ports;
use crate::said::{self, Sent};
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
        let look = async move { trees?.snapshot().await.map_err(|error| error.to_string()) };
        let (flight, check) = (Flight::AskJudge(check.clone(), round), check.clone());
        self.hangar.launch(flight, look, move |seen| Landed::AskJudge(check, round, seen));
        true
    }

    /// Asks, if it is still to be asked.
    pub(crate) async fn judge_asked(
        &mut self,
        check: CheckName,
        round: u32,
        seen: Result<Seen, Cut>,
    ) -> Result<(), DriveError> {
        let Some(tree) = unless_given_up(seen) else { return Ok(()) };
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
        let (call, tools) = (requested.call, Arc::clone(&self.ports.tools));
        let send = async move {
            tokio::time::sleep(wait).await;
            said::sent(model.as_ref(), tools.as_ref(), encoded).await
        };
        self.hangar.launch(Flight::Judge(call), send, move |sent| Landed::Judge(call, sent));
    }

    pub(crate) fn judge_replied(&mut self, call: u32, sent: Result<Sent, Cut>) {
        let result = match sent {
            Ok(sent) => sent.result(),
            // Told to stop, the suspension settles it.
            Err(Cut::Aborted(_)) if self.stopping.is_some() => return,
            Err(cut) => Err(given_up(cut)),
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
