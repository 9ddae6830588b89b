//! The next batch: drafted, appended, and what it has cleared begun. Nothing runs before it is journaled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::event::{Event, EventKind};
use longrein_core::hook::Moment;
use longrein_core::ids::{ActionId, Digest, InputId, Seq};
use longrein_core::input::LateOutcome;
use longrein_core::outcome::{Outcome, ToolError};
use longrein_core::owed::{self, Duty};
use longrein_core::payload::Content;
use longrein_core::run::{Run, Stage};
use longrein_core::task::EffectClass;
use longrein_ports::{AppendError, Batch, BatchId, Durability, FileMark, KeyChange, NewEvent, Spoken};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::ear::Ear;
use crate::edge;
use crate::fold::fold_known;
use crate::jobs::{self, Flight, GivenUp, Landed};
use crate::origin::Watch;
use crate::row::run_row;

/// Wait between sendings of a batch that was not answered.
pub(crate) const RESEND_EVERY: Duration = Duration::from_millis(50);

/// The next batch.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) consumed: Vec<InputId>,
    pub(crate) keys: Vec<KeyChange>,
    pub(crate) marks: Vec<FileMark>,
    pub(crate) blobs: Vec<(Digest, Bytes)>,
    /// Outcomes in this batch, to be passed on if the claim turns out to be lost.
    pub(crate) outcomes: Vec<LateOutcome>,
}

/// How an append went.
pub(crate) enum Appended {
    Committed,
    /// It was not taken as it was; the run was folded anew.
    Rewound,
}

impl Drive<'_> {
    /// Appends the batch in the making, tells the observer, and begins what it has cleared.
    pub(crate) async fn append(&mut self) -> Result<Appended, DriveError> {
        if self.draft.events.is_empty() {
            return Ok(Appended::Committed);
        }
        let draft = std::mem::take(&mut self.draft);
        self.batches += 1;
        let by_event = draft.events.iter().map(|new| new.event.durability()).max().unwrap_or(Durability::Written);
        // The files may be on the disk already.
        let durability = if draft.marks.is_empty() { by_event } else { Durability::Synced };
        let batch = Batch {
            id: BatchId(format!("{}.{}", self.claim.fence, self.batches)),
            expected: self.head,
            events: draft.events,
            consumed: draft.consumed,
            keys: draft.keys,
            marks: draft.marks,
            blobs: draft.blobs,
            durability,
            row: run_row(&self.run),
        };
        match self.send_batch(&batch).await {
            Ok(head) => {
                self.head = head;
                let first = head.0 + 1 - batch.events.len() as u64;
                let events: Vec<_> = (first..).map(Seq).zip(batch.events).collect();
                self.observer.committed(&self.run, &events);
                self.take_back(&events);
                self.act(&events).await?;
                self.keep(&events);
                Ok(Appended::Committed)
            }
            Err(AppendError::InputPending) => {
                self.rewind(batch, draft.outcomes, |event| event.kind() == EventKind::RunEnded).await?;
                self.take_inbox().await?;
                Ok(Appended::Rewound)
            }
            Err(AppendError::KeyTaken(key)) => {
                let taken: BTreeSet<_> = self
                    .run
                    .actions()
                    .filter(|action| edge::key_id(&self.run, action).as_ref() == Some(&key))
                    .map(|action| action.id)
                    .collect();
                let is_taken =
                    |event: &Event| matches!(event, Event::ActionStarted(started) if taken.contains(&started.action));
                self.rewind(batch, draft.outcomes, is_taken).await?;
                Ok(Appended::Rewound)
            }
            Err(AppendError::Fenced { by }) => {
                self.draft.outcomes = draft.outcomes;
                Err(DriveError::ClaimLost { run: self.run.id.clone(), by })
            }
            Err(AppendError::Conflict { expected, found }) => {
                Err(DriveError::Conflict { run: self.run.id.clone(), expected, found })
            }
            Err(AppendError::Unknown) => Err(DriveError::Unanswered),
            Err(AppendError::Journal(error)) => Err(error.into()),
        }
    }

    /// What was shown of a reply that came to nothing is void, whoever refused it.
    fn take_back(&self, events: &[(Seq, NewEvent)]) {
        for (_, new) in events {
            if let Event::ModelFailed(failed) = &new.event
                && self.told.swap(false, Ordering::Relaxed)
            {
                self.observer.heard(&self.run.id, failed.attempt, Spoken::Anew);
            }
        }
    }

    /// Sends a batch until it is answered. Everything it runs is ended before the lease is over, answered or not.
    pub(crate) async fn send_batch(&mut self, batch: &Batch) -> Result<Seq, AppendError> {
        let journal = Arc::clone(&self.ports.journal);
        loop {
            let over = self.until.saturating_sub(self.ports.clock.boottime());
            let answer = tokio::select! {
                biased;
                answer = journal.append(&self.claim, batch) => answer,
                () = tokio::time::sleep(over) => {
                    self.hangar.abort_all(GivenUp::AtRest).await;
                    Err(AppendError::Unknown)
                }
            };
            match answer {
                Ok(committed) => return Ok(committed.head),
                Err(AppendError::Unknown) if self.ports.clock.boottime() < self.until => {
                    tokio::time::sleep(RESEND_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Folds the run anew from the journal and drafts the events again, but for those to leave out.
    pub(crate) async fn rewind(
        &mut self,
        batch: Batch,
        outcomes: Vec<LateOutcome>,
        leave_out: impl Fn(&Event) -> bool,
    ) -> Result<(), DriveError> {
        let Batch { events, consumed, blobs, marks, .. } = batch;
        let kept: Vec<_> = events.into_iter().filter(|new| !leave_out(&new.event)).collect();
        self.draft = Draft { outcomes, consumed, blobs, marks, ..Draft::default() };
        if self.head == Seq(0) {
            // Nothing is journaled yet: begin again from the first event.
            let mut events = kept.into_iter();
            if let Some(first) = events.next() {
                if let Event::RunStarted(started) = &first.event {
                    self.run = Run::new(started, first.at);
                }
                self.draft.events.push(first);
            }
            events.for_each(|new| self.push(new.at, new.event));
        } else {
            self.run = fold_known(self.ports, &self.run.id).await?;
            kept.into_iter().for_each(|new| self.push(new.at, new.event));
        }
        Ok(())
    }

    /// Begins what the committed events have cleared: nothing runs before it is journaled.
    pub(crate) async fn act(&mut self, events: &[(Seq, NewEvent)]) -> Result<(), DriveError> {
        for (_, new) in events {
            self.tell_of(&new.event);
        }
        let starts = |new: &NewEvent| {
            matches!(
                new.event,
                Event::ActionStarted(_)
                    | Event::ModelRequested(_)
                    | Event::SummaryRequested(_)
                    | Event::JudgeRequested(_)
            )
        };
        if !events.iter().any(|(_, new)| starts(new)) {
            return Ok(());
        }
        self.firm_lease().await?;
        for (_, new) in events {
            if let Event::ModelRequested(requested) = &new.event
                && let Some(encoded) = self.outgoing.remove(&requested.attempt)
            {
                self.told = Arc::default();
                let told = Arc::clone(&self.told);
                let ear = Ear::new(self.observer, &self.ports.tools, &self.run.id, requested.attempt, told);
                let send = jobs::send(self.ports, &requested.model, encoded, ear);
                let attempt = requested.attempt;
                self.hangar.launch(Flight::Send(attempt), send, move |sent| Landed::Send(attempt, sent));
            }
            if let Event::SummaryRequested(requested) = &new.event {
                self.send_summary(requested);
            }
            if let Event::JudgeRequested(requested) = &new.event {
                self.send_judge(requested);
            }
            if let Event::ActionStarted(started) = &new.event
                && let Some(cleared) = self.run.clear(started)
                && let Some(action) = self.run.action(started.action)
            {
                let handed = edge::handed(self.ports, &self.run, action, &self.inputs).await?;
                let watch = Watch::of(&self.run, action, self.ports.clock.now());
                let aftermath = jobs::Aftermath { watch, has_tree: action.tree.is_some() };
                let work = jobs::run(self.ports, self.run.task.clone(), cleared, handed, aftermath);
                let (action, attempt) = (started.action, started.attempt);
                self.hangar.launch(Flight::Run(action, attempt), work, move |ran| Landed::Run(action, attempt, ran));
            }
        }
        self.outgoing.clear();
        Ok(())
    }

    /// Gives up what is in flight and no longer owed.
    pub(crate) fn reconcile(&mut self) {
        let now = self.ports.clock.now();
        let stop_now = self.stopping.is_some_and(|until| self.ports.clock.boottime() >= until);
        let owed = owed::owed(&self.run);
        let mut wanted: BTreeSet<Flight> = BTreeSet::new();
        for duty in &owed {
            match duty {
                Duty::AwaitReply { attempt } => wanted.insert(Flight::Send(*attempt)),
                Duty::AwaitAction { action, attempt, until } => {
                    until.is_none_or(|until| now < until) && wanted.insert(Flight::Run(*action, *attempt))
                }
                Duty::Recover { action, attempt, probe, .. } => {
                    wanted.insert(Flight::Recover(*action, *attempt, *probe))
                }
                Duty::CheckAction { action, attempt, until } => {
                    until.is_none_or(|until| now < until) && wanted.insert(Flight::CheckAction(*action, *attempt))
                }
                Duty::Undo { action, attempt } => wanted.insert(Flight::Undo(*action, *attempt)),
                Duty::Hooks { moment } => wanted.insert(Flight::Hooks(moment.clone())),
                Duty::Start { action } => {
                    wanted.insert(Flight::Tree(self.run.epochs.len()));
                    let attempt = self.run.action(*action).map_or(0, |action| action.attempts) + 1;
                    wanted.insert(Flight::Hooks(Moment::Before { action: *action, attempt }))
                }
                Duty::Check { check, round } => wanted.insert(Flight::Check(check.clone(), *round)),
                Duty::Judge { check, round, .. } => wanted.insert(Flight::AskJudge(check.clone(), *round)),
                Duty::AwaitJudge { call } => wanted.insert(Flight::Judge(*call)),
                Duty::AskChildren { .. } => wanted.insert(Flight::Tree(self.run.epochs.len())),
                // Below: they come back by themselves.
                Duty::Child { .. } => false,
                Duty::Summarise { generation, attempt } => wanted.insert(Flight::Gather(*generation, *attempt)),
                Duty::AwaitSummary { generation, attempt } => wanted.insert(Flight::Summary(*generation, *attempt)),
                Duty::Conclude => match &self.run.stage {
                    Stage::Verifying { round, .. } => wanted.insert(Flight::Proof(*round)),
                    Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => false,
                },
                Duty::Call { .. }
                | Duty::Transit { .. }
                | Duty::Propose { .. }
                | Duty::AskChecks { .. }
                | Duty::NoticeLoop
                | Duty::Suspend
                | Duty::Wake { .. } => false,
            };
        }
        let flights: Vec<_> = self.hangar.flights().cloned().collect();
        for flight in flights {
            let keep = match &flight {
                Flight::Inbox | Flight::Index | Flight::Keep | Flight::ChildInbox(_) => true,
                // A child ends, or stops with us, in its own good order; its claim is given back then.
                Flight::Child(_) => true,
                Flight::Run(action, _) if self.stopping.is_some() => {
                    !stop_now && self.effect(*action) == EffectClass::External
                }
                Flight::Hooks(moment) => {
                    self.hooks_are_wanted(moment) || (self.stopping.is_none() && wanted.contains(&flight))
                }
                // Begun is begun: what is half set back is no state anybody wants. It has a bound of its own.
                Flight::Undo(..) => wanted.contains(&flight) || self.stopping.is_some(),
                // What runs past its time is heard out; it has a bound of its own.
                Flight::Overtime(..) => !stop_now,
                Flight::Send(_)
                | Flight::Run(..)
                | Flight::Recover(..)
                | Flight::Check(..)
                | Flight::CheckAction(..)
                | Flight::Tree(_)
                | Flight::Proof(_)
                | Flight::Gather(..)
                | Flight::AskJudge(..)
                | Flight::Judge(_)
                | Flight::Summary(..) => self.stopping.is_none() && wanted.contains(&flight),
            };
            if !keep {
                self.hangar.abort(&flight);
            }
        }
    }

    pub(crate) fn effect(&self, action: ActionId) -> EffectClass {
        self.run.action(action).map_or(EffectClass::Read, |action| action.effect)
    }
}

/// An input carries no blobs: of a large result only what the model would be shown goes along.
pub(crate) fn without_blobs(outcome: Outcome) -> Outcome {
    let inline = |content: Content| match content {
        Content::Inline(_) => content,
        Content::Blob(blob) => Content::Inline(blob.shown),
    };
    let told = |error: ToolError| ToolError { data: error.data.map(inline), ..error };
    match outcome {
        Outcome::Done(result) => Outcome::Done(inline(result)),
        Outcome::Error(error) => Outcome::Error(told(error)),
        Outcome::NotDone(error) => Outcome::NotDone(told(error)),
        Outcome::Unknown(error) => Outcome::Unknown(told(error)),
    }
}
