//! Waiting: for what is in flight, for people, for time; and turning what landed into commands.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::decide::{Command, Readiness};
use longrein_core::event::Wait;
use longrein_core::ids::ActionId;
use longrein_core::input::{Input, InputBody, LateOutcome};
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure};
use longrein_core::owed::{self, Duty};
use longrein_core::run::{Activity, Stage};

use crate::claimed::Drive;
use crate::drive::{DriveError, Standing, WhenAsked};
use crate::edge;
use crate::jobs::{self, After, Flight, Landed};
use crate::lease::{RENEW_EVERY, late_id};

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
        if let Some((flight, landed)) = landed {
            self.take(flight, landed).await?;
        }
        while let Some((flight, landed)) = self.hangar.landed() {
            self.take(flight, landed).await?;
        }
        Ok(())
    }

    /// Until the next renewal, or the first thing that is due by time.
    pub(crate) fn nap(&self) -> Duration {
        let now = self.ports.clock.now();
        let boottime = self.ports.clock.boottime();
        let renewal = self.renew_at.saturating_sub(boottime);
        let by_time = owed::owed(&self.run).into_iter().filter_map(|duty| match duty {
            Duty::Wake { at } => Some(at.since(now)),
            Duty::AwaitAction { until: Some(until), .. } | Duty::CheckAction { until: Some(until), .. } => {
                Some(until.since(now))
            }
            Duty::AwaitAction { until: None, .. }
            | Duty::AwaitReply { .. }
            | Duty::Call { .. }
            | Duty::Start { .. }
            | Duty::Recover { .. }
            | Duty::CheckAction { until: None, .. }
            | Duty::Undo { .. }
            | Duty::Hooks { .. }
            | Duty::AskChecks { .. }
            | Duty::Check { .. }
            | Duty::Judge { .. }
            | Duty::AwaitJudge { .. }
            | Duty::Child { .. }
            | Duty::Summarise { .. }
            | Duty::AwaitSummary { .. }
            | Duty::NoticeLoop
            | Duty::Transit { .. }
            | Duty::Propose { .. }
            | Duty::AskChildren { .. }
            | Duty::Conclude
            | Duty::Suspend => None,
        });
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

    pub(crate) async fn take(&mut self, flight: Flight, landed: Landed) -> Result<(), DriveError> {
        match (flight, landed) {
            (Flight::Inbox, _) => {
                self.take_inbox().await?;
                self.watch_inbox();
            }
            (Flight::Send(attempt), Landed::Sent(Ok(reply))) => {
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
            }
            (Flight::Send(attempt), Landed::Sent(Err(failure))) => {
                let jitter = self.ports.clock.jitter();
                self.command(Command::FailModel { attempt, failure, jitter });
            }
            (Flight::Send(attempt), landed) => {
                // Given up while winding down; told to stop, the suspension settles it.
                if self.stopping.is_none() {
                    let failure = given_up(&landed);
                    self.command(Command::FailModel { attempt, failure, jitter: 0 });
                }
            }
            (Flight::Run(action, attempt), Landed::Ran(outcome, blobs, After { brings, written, left })) => {
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
            }
            (Flight::Overtime(action, attempt, _), Landed::Ran(outcome, blobs, After { brings, .. })) => {
                self.keep_blobs(blobs);
                self.look_after(action).await;
                self.late(LateOutcome { action, attempt, outcome, brings });
            }
            (Flight::Run(action, attempt), landed) => {
                // Told to stop, the suspension makes it lost, and the next claim finds out.
                if self.stopping.is_none() {
                    let why = match landed {
                        Landed::Broken(panic) => format!("The tool broke down: {panic}"),
                        Landed::Aborted
                        | Landed::Sent(_)
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
                        | Landed::Gathered(_) => {
                            "It was ended before it was through: the run is brought to rest.".to_owned()
                        }
                    };
                    let outcome = edge::cut_off(self.effect(action), &why);
                    self.look_after(action).await;
                    self.command(Command::Finish { action, attempt, outcome, brings: Vec::new(), left: None });
                }
            }
            (Flight::Recover(action, attempt, _), Landed::Recovered(probe, blobs, written)) => {
                self.keep_blobs(blobs);
                self.enter(Some(action), written);
                let jitter = self.ports.clock.jitter();
                self.command(Command::Recover { action, attempt, probe, jitter });
            }
            (Flight::Check(check, round), Landed::Checked(verdict, blobs, After { brings, written, left: _ })) => {
                self.keep_blobs(blobs);
                self.command(Command::GiveVerdict { check, round, verdict, brings });
                self.enter(None, written);
            }
            (Flight::Child(child), landed) => self.child_came(child, landed).await?,
            (Flight::ChildInbox(child), _) => self.child_heard(child).await?,
            (Flight::CheckAction(action, attempt), landed) => self.action_checked(action, attempt, landed),
            (Flight::Tree(epoch), landed) => self.tree_taken(epoch, landed),
            (Flight::Proof(round), landed) => self.proof_taken(round, landed),
            (Flight::Undo(action, attempt), landed) => self.undone(action, attempt, landed),
            (Flight::Hooks(moment), landed) => self.heard(moment, landed).await?,
            (Flight::Gather(generation, _), landed) => self.gathered(generation, landed),
            (Flight::Summary(generation, attempt), landed) => self.summarised(generation, attempt, landed).await,
            (Flight::AskJudge(check, round), landed) => self.judge_asked(check, round, landed).await?,
            (Flight::Judge(call), landed) => self.judge_replied(call, landed),
            // Given up: still owed if it is.
            (Flight::Recover(..) | Flight::Check(..) | Flight::Overtime(..) | Flight::Index | Flight::Keep, _) => {}
        }
        Ok(())
    }

    /// An attempt whose time was up and that still runs is heard out beside everything else.
    fn hear_out(&mut self, action: ActionId, attempt: u32) {
        let Some(work) = jobs::overtime(self.ports, action, attempt) else { return };
        if let Some(tool) = self.run.action(action).map(|action| action.tool.clone()) {
            self.hangar.launch(Flight::Overtime(action, attempt, tool), work);
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
        self.hangar.launch(Flight::Inbox, async move {
            journal.inbox_changed(&run).await;
            Landed::InboxChanged
        });
    }
}

/// The failure of a call that was given up or broke down here.
pub(crate) fn given_up(landed: &Landed) -> ModelFailure {
    let message = match landed {
        Landed::Broken(panic) => format!("the model client broke down: {panic}"),
        Landed::Aborted
        | Landed::Sent(_)
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
        | Landed::Gathered(_) => "given up: the run is brought to rest".to_owned(),
    };
    let class = match landed {
        Landed::Broken(_) => ModelErrorClass::Transient,
        Landed::Aborted
        | Landed::Sent(_)
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
        | Landed::Gathered(_) => ModelErrorClass::Lost,
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
