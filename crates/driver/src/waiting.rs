//! Waiting: for what is in flight, for people, for time; and turning what landed into commands.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::decide::{Command, Readiness};
use longrein_core::event::Wait;
use longrein_core::ids::{ActionId, AttemptId, TreeId};
use longrein_core::input::{Input, InputBody, LateOutcome};
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use longrein_core::owed;
use longrein_core::run::{Activity, Stage};
use longrein_ports::{Checked, Probed, Ran};

use crate::claimed::Drive;
use crate::drive::{DriveError, Standing, WhenAsked};
use crate::edge;
use crate::jobs::{self, After, Cut, Flight, Landed};
use crate::lease::{RENEW_EVERY, late_id};
use crate::said::Sent;

/// How long external calls get to end by themselves when the process is told to stop (`semantics.md` E3).
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);
/// How soon an expired question is looked at again.
const QUESTION_POLL: Duration = Duration::from_millis(20);
/// How often it looks.
pub(crate) const KEY_POLL: Duration = Duration::from_millis(500);

impl Drive<'_> {
    pub(crate) fn standing(&self) -> Option<Standing> {
        match &self.run.stage {
            Stage::Rest(ended) => Some(Standing::Rested(ended.clone())),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                match &self.run.activity {
                    Activity::Claimed | Activity::Idle => None,
                    Activity::Parked => Some(Standing::Parked(owed::waits(&self.run))),
                    Activity::Suspended { cause, detail } => Some(Standing::Suspended(*cause, detail.clone())),
                }
            }
        }
    }

    /// Handles a run that waits for a person, and a process that was told to stop. Answers whether anything changed.
    pub(crate) async fn park_or_stop(&mut self) -> Result<bool, DriveError> {
        if self.asked == WhenAsked::Stay && self.stop.left.is_cancelled() {
            self.asked = WhenAsked::Park;
        }
        if self.stopping.is_some() {
            if self.hangar.is_busy() {
                return Ok(false);
            }
            let detail = String::new();
            return Ok(self.command(Command::Suspend { cause: self.stop.why(), detail }));
        }
        if let Some(command) = self.children_stand_still() {
            return Ok(self.command(command));
        }
        let waits = owed::waits(&self.run);
        if waits.is_empty() || self.hangar.is_busy() {
            return Ok(false);
        }
        match self.asked {
            WhenAsked::Stay if waits.iter().any(|wait| matches!(wait, Wait::Approval(_) | Wait::Answer(_))) => {
                Ok(false)
            }
            WhenAsked::Stay | WhenAsked::Park => Ok(self.command(Command::Park)),
            WhenAsked::Deny => {
                let mut changed = false;
                for wait in waits {
                    changed |= match wait {
                        Wait::Approval(action) | Wait::Answer(action) => {
                            let reason = "nobody can be asked here".to_owned();
                            self.command(Command::DenyUnasked { action, reason })
                        }
                        Wait::Unknown(_) | Wait::Child { .. } => false,
                    };
                }
                Ok(changed || self.command(Command::Park))
            }
        }
    }

    /// Waits until something happens, and turns it into commands.
    pub(crate) async fn wait(&mut self) -> Result<(), DriveError> {
        self.just_left = None;
        self.just_ruled = None;
        let nap = self.nap();
        let (stop, left) = (self.stop.token.clone(), self.stop.left.clone());
        let landed = tokio::select! {
            biased;
            () = stop.cancelled(), if self.stopping.is_none() => {
                self.stopping = Some(self.ports.clock.boottime() + STOP_GRACE);
                self.reconcile();
                None
            }
            () = left.cancelled(), if self.asked == WhenAsked::Stay => None,
            landed = self.hangar.next() => landed,
            () = tokio::time::sleep(nap) => None,
        };
        if let Some(landed) = landed {
            self.take(landed).await?;
        }
        while let Some(landed) = self.hangar.landed() {
            self.take(landed).await?;
        }
        Ok(())
    }

    /// Until the next renewal, or the first thing that is due by time.
    pub(crate) fn nap(&self) -> Duration {
        let now = self.ports.clock.now();
        let boottime = self.ports.clock.boottime();
        let renewal = self.renew_at.saturating_sub(boottime);
        let by_time = owed::owed(&self.run).into_iter().filter_map(|duty| duty.due().map(|at| at.since(now)));
        let key_poll = (!self.key_waits.is_empty()).then_some(KEY_POLL);
        let stopping = self.stopping.map(|until| until.saturating_sub(boottime));
        by_time
            // One that is over already waits for a message that hooks are still to hear.
            .chain(owed::question_expires(&self.run).map(|at| if at > now { at.since(now) } else { QUESTION_POLL }))
            .chain(key_poll)
            .chain(self.child_is_due_in())
            .chain(stopping)
            .chain([renewal])
            .min()
            .unwrap_or(RENEW_EVERY)
    }

    pub(crate) async fn take(&mut self, landed: Landed) -> Result<(), DriveError> {
        match landed {
            Landed::Inbox => {
                self.take_inbox().await?;
                self.watch_inbox();
            }
            Landed::Send(attempt, sent) => self.model_came(attempt, sent).await?,
            Landed::Run(action, attempt, ran) => self.tool_came(action, attempt, ran).await,
            Landed::Overtime(action, attempt, Ok(Ran { outcome, blobs })) => {
                self.keep_blobs(blobs);
                self.look_after(action).await;
                self.late(LateOutcome { action, attempt, outcome, brings: Vec::new() });
            }
            Landed::Recover(action, attempt, Ok((probed, written))) => {
                let (probe, blobs) = probed.map(|Probed { answer, blobs }| (answer, blobs)).unzip();
                self.keep_blobs(blobs.unwrap_or_default());
                self.enter(Some(action), written);
                let jitter = self.ports.clock.jitter();
                self.command(Command::Recover { action, attempt, probe, jitter });
            }
            Landed::Check(check, round, Ok((Checked { verdict, blobs }, After { brings, written }))) => {
                self.keep_blobs(blobs);
                self.command(Command::GiveVerdict { check, round, verdict, brings });
                self.enter(None, written);
            }
            Landed::Child(child, came) => self.child_came(child, came).await?,
            Landed::ChildInbox(child) => self.child_heard(child).await?,
            Landed::CheckAction(action, attempt, checked) => self.action_checked(action, attempt, checked),
            Landed::Tree(epoch, seen) => self.tree_taken(epoch, seen),
            Landed::Proof(round, seen) => self.proof_taken(round, seen),
            Landed::Undo(action, attempt, undone) => self.undone(action, attempt, undone),
            Landed::Hooks(moment, ran) => self.heard(moment, ran).await?,
            Landed::Gather(generation, gathered) => self.gathered(generation, gathered),
            Landed::Summary(generation, attempt, sent) => self.summarised(generation, attempt, sent).await,
            Landed::AskJudge(check, round, seen) => self.judge_asked(check, round, seen).await?,
            Landed::Judge(call, sent) => self.judge_replied(call, sent),
            // Given up: still owed if it is.
            Landed::Recover(_, _, Err(_)) | Landed::Check(_, _, Err(_)) | Landed::Overtime(_, _, Err(_)) => {}
            Landed::Cache => {}
        }
        Ok(())
    }

    /// A model call came back.
    async fn model_came(&mut self, attempt: AttemptId, sent: Result<Sent, Cut>) -> Result<(), DriveError> {
        let (failure, jitter) = match sent.map(Sent::result) {
            Ok(Ok(reply)) => return self.take_reply(attempt, reply).await,
            Ok(Err(failure)) => (failure, self.ports.clock.jitter()),
            // Given up while winding down; told to stop, the suspension settles it.
            Err(_) if self.stopping.is_some() => return Ok(()),
            Err(cut) => (given_up(cut), 0),
        };
        self.command(Command::FailModel { attempt, failure, jitter });
        Ok(())
    }

    async fn take_reply(&mut self, attempt: AttemptId, reply: Reply) -> Result<(), DriveError> {
        let jitter = self.ports.clock.jitter();
        let too_many = reply.calls.len() > longrein_core::decide::CALLS_MAX;
        let proposals = if too_many {
            Vec::new()
        } else {
            edge::proposals(self.ports, &self.run, &reply.calls, self.asks()).await?
        };
        // A program's replies are judged where they lead.
        let judgement = if reply.calls.is_empty() && self.run.course.is_none() {
            let cited = edge::cited(self.ports, &self.run, &reply.text).await?;
            Some(self.ports.checks.judge(self.run.task.answer.as_ref(), &reply.text, &cited))
        } else {
            None
        };
        let first = proposals.first().map(|proposal| (self.run.next_action(), proposal.readiness.clone()));
        self.command(Command::Reply { attempt, reply, proposals, judgement, jitter });
        self.just_ruled = first.and_then(|(action, readiness)| match readiness {
            Readiness::Ruled { .. } => Some((self.run.head, action, readiness)),
            // Not to be told yet, or for good.
            Readiness::Refused(_) | Readiness::Later | Readiness::Note(_) | Readiness::Question { .. } => None,
        });
        Ok(())
    }

    /// A tool came back.
    async fn tool_came(&mut self, action: ActionId, attempt: u32, ran: Result<(Ran, After, Option<TreeId>), Cut>) {
        let why = match ran {
            Ok((Ran { outcome, blobs }, After { brings, written }, left)) => {
                self.keep_blobs(blobs);
                let late = LateOutcome { action, attempt, outcome: outcome.clone(), brings: brings.clone() };
                self.draft.outcomes.push(late);
                // How it left the workspace is what the next step begins with: both are journaled in one batch
                // (`semantics.md` A3), and no second look is taken. Not if another wrote meanwhile: this look may have been
                // taken before that one's last words.
                let was_alone = self.run.action(action).is_some_and(|action| !action.beside);
                let begins_with = left.clone().filter(|_| was_alone);
                self.command(Command::Finish { action, attempt, outcome, brings, left });
                self.just_left = begins_with.map(|tree| (self.run.epochs.len(), tree));
                self.enter(Some(action), written);
                self.hear_out(action, attempt);
                return;
            }
            // Told to stop, the suspension makes it lost, and the next claim finds out.
            Err(_) if self.stopping.is_some() => return,
            Err(Cut::Broken(panic)) => format!("The tool broke down: {panic}"),
            Err(Cut::Aborted(why)) => format!("It was ended before it was through: {}.", why.as_str()),
        };
        let outcome = edge::cut_off(self.effect(action), &why);
        self.look_after(action).await;
        self.command(Command::Finish { action, attempt, outcome, brings: Vec::new(), left: None });
    }

    /// An attempt whose time was up and that still runs is heard out beside everything else.
    fn hear_out(&mut self, action: ActionId, attempt: u32) {
        let Some(work) = self.ports.tools.overtime(action, attempt) else { return };
        if let Some(tool) = self.run.action(action).map(|action| action.tool.clone()) {
            let hears = move |ran| Landed::Overtime(action, attempt, ran);
            self.hangar.launch(Flight::Overtime(action, attempt, tool), work, hears);
        }
    }

    /// What was learned after an outcome was called unknown: it settles the action if it still is.
    fn late(&mut self, late: LateOutcome) {
        self.draft.outcomes.push(late.clone());
        let id = late_id(&self.claim, &late);
        let input = Input { id, at: self.ports.clock.now(), body: InputBody::LateOutcome(late), images: Vec::new() };
        self.command(Command::TakeInput(input));
    }

    pub(crate) fn keep_blobs(&mut self, blobs: jobs::Blobs) {
        self.draft.blobs.extend(blobs);
    }

    pub(crate) fn watch_inbox(&mut self) {
        if self.hangar.is_flying(&Flight::Inbox) {
            return;
        }
        let (journal, run) = (Arc::clone(&self.ports.journal), self.run.id.clone());
        self.hangar.launch(Flight::Inbox, async move { journal.inbox_changed(&run).await }, |_| Landed::Inbox);
    }
}

/// The failure of a call that was given up or broke down here.
pub(crate) fn given_up(cut: Cut) -> ModelFailure {
    let (class, message) = match cut {
        Cut::Broken(panic) => (ModelErrorClass::Transient, format!("the model client broke down: {panic}")),
        Cut::Aborted(why) => (ModelErrorClass::Lost, format!("given up: {}", why.as_str())),
    };
    ModelFailure {
        class,
        message,
        status: None,
        retry_after_s: None,
        billing: Billing::Perhaps,
        usage: None,
        partial: None,
        served: None,
    }
}
