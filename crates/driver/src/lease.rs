//! The lease of a claim: renewed while the loop lives, never trusted on its last third, and what is passed on when it is
//! lost.

use std::time::Duration;

use longrein_core::ids::InputId;
use longrein_core::input::{Input, InputBody, LateOutcome};
use longrein_ports::{AppendError, Claim, LEASE};

use crate::batch::{RESEND_EVERY, without_blobs};
use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::jobs::{After, Flight, GivenUp, Landed};

/// The loop turns over at least this often, so that renewals go out while it lives.
pub(crate) const RENEW_EVERY: Duration = LEASE.checked_div(3).expect("three is not zero");
/// A renewal that is overdue for so long was slept through: awake, the loop is never that late, and it ends everything in
/// time.
pub(crate) const OVERSLEPT: Duration = Duration::from_secs(1);
/// How long a process that slept listens to what has ended meanwhile. Short: what still runs is ended after it.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(300);

impl Drive<'_> {
    /// Waits until the lease is good for a start: never on its last third (`semantics.md` C2).
    pub(crate) async fn firm_lease(&mut self) -> Result<(), DriveError> {
        loop {
            self.keep_lease().await?;
            if self.leases_are_good() {
                return Ok(());
            }
            tokio::time::sleep(RESEND_EVERY).await;
        }
    }

    /// Renews a third of the lease ahead of its end. A lease that is over ends everything first.
    pub(crate) async fn keep_lease(&mut self) -> Result<(), DriveError> {
        let now = self.ports.clock.boottime();
        if now < self.renew_at {
            return Ok(());
        }
        if now >= self.until {
            // Woken after the end: whoever has the run now must not meet our tools.
            if now >= self.renew_at + OVERSLEPT {
                self.hear_last_words().await?;
            }
            for landed in self.hangar.abort_all(GivenUp::LeaseOver).await {
                self.take(landed).await?;
            }
            self.watch_inbox();
        }
        match self.ports.journal.renew(&self.claim).await {
            Ok(until) => {
                self.until = until;
                self.leases.renewed(until);
                self.renew_at = now + RENEW_EVERY;
                Ok(())
            }
            Err(AppendError::Fenced { by }) => Err(DriveError::ClaimLost { run: self.run.id.clone(), by }),
            Err(AppendError::Journal(error)) => Err(error.into()),
            Err(
                AppendError::Conflict { .. }
                | AppendError::InputPending
                | AppendError::KeyTaken(_)
                | AppendError::Unknown,
            ) if now < self.until => {
                self.renew_at = now + RESEND_EVERY;
                Ok(())
            }
            Err(AppendError::Conflict { .. } | AppendError::InputPending | AppendError::KeyTaken(_)) => {
                Err(DriveError::Unanswered)
            }
            Err(AppendError::Unknown) => Err(DriveError::Unanswered),
        }
    }

    /// Takes what ended by itself while this process slept: nobody else can know how.
    pub(crate) async fn hear_last_words(&mut self) -> Result<(), DriveError> {
        let over = tokio::time::Instant::now() + LAST_WORDS;
        while self.hangar.flights().any(|flight| matches!(flight, Flight::Run(..))) {
            let Ok(Some(landed)) = tokio::time::timeout_at(over, self.hangar.next()).await else { break };
            self.take(landed).await?;
        }
        Ok(())
    }

    /// The claim is lost: ends every effect and posts the outcomes nobody else can know (`semantics.md` C4).
    pub(crate) async fn pass_on_what_is_known(&mut self) {
        let mut known = std::mem::take(&mut self.draft.outcomes);
        for landed in self.hangar.abort_all(GivenUp::LeaseOver).await {
            if let Landed::Run(action, attempt, Ok((ran, After { brings, .. }, _))) = landed {
                known.push(LateOutcome { action, attempt, outcome: ran.outcome, brings });
            } else if let Landed::Overtime(action, attempt, Ok(ran)) = landed {
                known.push(LateOutcome { action, attempt, outcome: ran.outcome, brings: Vec::new() });
            }
        }
        for mut late in known {
            late.outcome = without_blobs(late.outcome);
            let id = late_id(&self.claim, &late);
            let input =
                Input { id, at: self.ports.clock.now(), body: InputBody::LateOutcome(late), images: Vec::new() };
            // Nobody is left to tell if this fails too; the new holder recovers without it.
            let _ = self.ports.journal.post_input(&self.run.id, &input).await;
        }
    }
}

/// Names what a claim learned late of an attempt, so that told twice it counts once.
pub(crate) fn late_id(claim: &Claim, late: &LateOutcome) -> InputId {
    InputId::new(format!("late.{}.{}.{}", claim.fence, late.action, late.attempt))
}
