//! The loop: gather what happened, decide, append, act.
//!
//! One append is in flight at a time; what happens meanwhile forms the next batch. State runs ahead of the journal only
//! within one batch, and is folded anew from the journal when a batch is not taken as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::action::Life;
use longrein_core::decide::{Asks, Command, begin, claimed, decide};
use longrein_core::event::{Event, EventKind, RunEnded, Suspension, Wait};
use longrein_core::ids::{ActionId, Digest, Fence, InputId, RunId, Seq};
use longrein_core::input::{Input, InputBody, LateOutcome};
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure};
use longrein_core::owed::{self, Duty};
use longrein_core::payload::Payload;
use longrein_core::prompt::Purpose;
use longrein_core::run::{Activity, Run, Stage};
use longrein_core::task::{EffectClass, Task};
use longrein_core::time::Timestamp;
use longrein_ports::{
    AppendError, Batch, BatchId, Claim, ClaimError, Create, Durability, Encoded, JournalError, KeyChange, LEASE,
    NewEvent, Worker,
};
use tokio_util::sync::CancellationToken;

use crate::edge;
use crate::fold::{FoldError, fold};
use crate::jobs::{self, Flight, Hangar, Landed, Recovery};
use crate::ports::Ports;
use crate::row::run_row;

/// Told of every committed batch, in order. Must not block.
pub trait Observer: Send + Sync {
    /// `run` is the state after the events.
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]);
}

/// How one process drives runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub worker: Worker,
    /// Version of this binary, for the record.
    pub binary: String,
    pub asked: WhenAsked,
}

/// What becomes of a question to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenAsked {
    /// Somebody is there and answers through the inbox: stay.
    Stay,
    /// Park the run when nothing else can move.
    Park,
    /// Nobody can be asked: deny.
    Deny,
}

/// Where a run was left.
#[derive(Debug)]
pub struct Driven {
    pub run: Run,
    pub standing: Standing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It came to an end.
    Rested(Box<RunEnded>),
    /// It waits for a person.
    Parked(Vec<Wait>),
    /// It can go on later.
    Suspended(Suspension, String),
}

/// A new run, or one that is there.
pub enum Begin {
    New {
        task: Box<Task>,
        /// Captured inputs that are too large for an event.
        blobs: Vec<(Digest, Payload)>,
    },
    Existing {
        /// Pinned names whose content differs now (`semantics.md` B5).
        changed: Vec<String>,
    },
}

/// Asks drives to stop where they are, orderly. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    why: Arc<OnceLock<Suspension>>,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// The first cause counts.
    pub fn now(&self, why: Suspension) {
        // A second cause changes nothing: the first is being acted on.
        let _ = self.why.set(why);
        self.token.cancel();
    }

    fn why(&self) -> Suspension {
        self.why.get().copied().unwrap_or(Suspension::Dropped)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Another worker has the run now; nothing of this one's was committed since, and its tools are dead.
    #[error("lost the claim on run {run} to another worker (fence {by})")]
    ClaimLost { run: RunId, by: Fence },
    #[error(transparent)]
    Fold(#[from] FoldError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal moved under a valid claim.
    #[error("run {run}: expected the journal at event {expected}, found {found}; nothing was written")]
    Conflict { run: RunId, expected: Seq, found: Seq },
    /// The store gave no answer for a whole lease.
    #[error("the store did not answer for {} s", LEASE.as_secs())]
    Unanswered,
}

/// Drives runs one at a time.
pub struct Driver {
    ports: Ports,
    options: Options,
    observer: Arc<dyn Observer>,
}

/// How long external calls get to end by themselves when the process is told to stop (`semantics.md` E3).
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The loop turns over at least this often, so that renewals go out while it lives.
const RENEW_EVERY: Duration = LEASE.checked_div(3).expect("three is not zero");
/// How long a call waits for another run that holds the same key.
const KEY_WAIT: Duration = Duration::from_secs(30);
/// How often it looks.
const KEY_POLL: Duration = Duration::from_millis(500);
/// Wait between sendings of a batch that was not answered.
const RESEND_EVERY: Duration = Duration::from_millis(50);

impl Driver {
    pub fn new(ports: Ports, options: Options, observer: Arc<dyn Observer>) -> Self {
        Self { ports, options, observer }
    }

    /// Claims a run and advances it until it rests, waits, or is stopped. Dropping the future ends everything it runs.
    pub async fn drive(&self, id: &RunId, begin: Begin, stop: Stop) -> Result<Driven, DriveError> {
        let mut drive = Drive::claim(self, id, begin, stop).await?;
        let result = drive.advance().await;
        drive.leave(result).await
    }
}

/// One claim on one run.
struct Drive<'a> {
    ports: &'a Ports,
    options: &'a Options,
    observer: &'a dyn Observer,
    stop: Stop,
    claim: Claim,
    /// End of the lease in boot time.
    until: Duration,
    /// When to ask for more, in boot time.
    renew_at: Duration,
    run: Run,
    /// The journal's head: `run.head` is ahead of it by the batch in the making.
    head: Seq,
    batches: u64,
    draft: Draft,
    hangar: Hangar,
    /// Requests that go out when their event is committed.
    outgoing: BTreeMap<longrein_core::ids::AttemptId, Encoded>,
    inputs: BTreeMap<String, Payload>,
    /// Since when a call waits for another run's key.
    key_waits: BTreeMap<ActionId, Timestamp>,
    /// Something owed could not begin before the batch was committed.
    put_off: bool,
    /// Set once the process was told to stop: when external calls are given up.
    stopping: Option<Duration>,
}

/// The next batch.
#[derive(Default)]
struct Draft {
    events: Vec<NewEvent>,
    consumed: Vec<InputId>,
    keys: Vec<KeyChange>,
    blobs: Vec<(Digest, Bytes)>,
    /// Outcomes in this batch, to be passed on if the claim turns out to be lost.
    outcomes: Vec<LateOutcome>,
}

/// How an append went.
enum Appended {
    Committed,
    /// It was not taken as it was; the run was folded anew.
    Rewound,
}

impl<'a> Drive<'a> {
    async fn claim(driver: &'a Driver, id: &RunId, begin_with: Begin, stop: Stop) -> Result<Self, DriveError> {
        let Driver { ports, options, observer } = driver;
        let known = match &begin_with {
            Begin::New { .. } => None,
            Begin::Existing { .. } => Some(fold(ports.journal.as_ref(), id, |_| {}).await?),
        };
        let task = match (&begin_with, &known) {
            (Begin::New { task, .. }, _) => task.as_ref(),
            (Begin::Existing { .. }, Some(run)) => run.task.as_ref(),
            (Begin::Existing { .. }, None) => return Err(FoldError::Empty(id.clone()).into()),
        };
        let writes = task.tools.iter().any(|tool| tool.effect == EffectClass::Workspace);
        let workspace = writes.then(|| task.workspace.clone());
        let create = match &begin_with {
            Begin::New { .. } => Create::IfAbsent,
            Begin::Existing { .. } => Create::Never,
        };
        let claim = ports.journal.claim(id, &options.worker, workspace.as_deref(), create).await?;
        let now = ports.clock.now();
        let mut draft = Draft::default();
        // What was folded before the claim may have grown since.
        let (run, changed) = match begin_with {
            Begin::New { task, blobs } if claim.head == Seq(0) => {
                draft.blobs = in_bytes(blobs).collect();
                let started = begin(id.clone(), *task, &options.binary);
                let run = Run::new(&started, now);
                draft.events.push(NewEvent { at: now, event: Event::RunStarted(Box::new(started)) });
                (run, Vec::new())
            }
            Begin::New { .. } => (fold(ports.journal.as_ref(), id, |_| {}).await?, Vec::new()),
            Begin::Existing { changed } => match known {
                Some(run) if run.head == claim.head => (run, changed),
                Some(_) | None => (fold(ports.journal.as_ref(), id, |_| {}).await?, changed),
            },
        };
        let inputs = edge::inputs(ports, &run, &draft.blobs).await?;
        let mut drive = Self {
            ports,
            options,
            observer: observer.as_ref(),
            stop,
            until: claim.until,
            renew_at: claim.until.saturating_sub(LEASE - RENEW_EVERY),
            head: claim.head,
            claim,
            run,
            batches: 0,
            draft,
            hangar: Hangar::new(),
            outgoing: BTreeMap::new(),
            inputs,
            key_waits: BTreeMap::new(),
            put_off: false,
            stopping: None,
        };
        let worker = &options.worker;
        let event = claimed(drive.claim.fence, &worker.host, &worker.boot, worker.pid, &options.binary);
        drive.command(Command::Claim(event));
        drive.command(Command::NoteSurroundings { changed });
        drive.take_inbox().await?;
        Ok(drive)
    }

    /// Gives the claim back where it still is ours.
    async fn leave(mut self, result: Result<Standing, DriveError>) -> Result<Driven, DriveError> {
        match result {
            Ok(standing) => {
                self.hangar.abort_all().await;
                self.ports.journal.release(&self.claim).await?;
                Ok(Driven { run: self.run, standing })
            }
            Err(DriveError::ClaimLost { run, by }) => {
                self.pass_on_what_is_known().await;
                Err(DriveError::ClaimLost { run, by })
            }
            Err(error) => {
                self.hangar.abort_all().await;
                Err(error)
            }
        }
    }

    async fn advance(&mut self) -> Result<Standing, DriveError> {
        self.watch_inbox();
        loop {
            self.keep_lease().await?;
            self.perform().await?;
            match self.append().await? {
                Appended::Rewound => continue,
                Appended::Committed => {}
            }
            if std::mem::take(&mut self.put_off) {
                continue;
            }
            self.reconcile();
            if let Some(standing) = self.standing() {
                return Ok(standing);
            }
            if self.park_or_stop().await? {
                continue;
            }
            self.wait().await?;
        }
    }

    // ---- deciding ----

    /// Decides one command and folds what follows into the state and the next batch.
    fn command(&mut self, command: Command) -> bool {
        let now = self.ports.clock.now().max(self.run.at);
        let Ok(events) = decide(&self.run, command, now) else { return false };
        for event in events {
            self.push(now, event);
        }
        true
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.draft.keys.extend(edge::key_change(&self.run, &event));
        self.run.apply(self.run.head.next(), at, &event);
        self.draft.events.push(NewEvent { at, event });
    }

    async fn take_inbox(&mut self) -> Result<(), DriveError> {
        for input in self.ports.journal.inbox(&self.run.id).await? {
            if self.draft.consumed.contains(&input.id) {
                continue;
            }
            let id = input.id.clone();
            if self.command(Command::TakeInput(input)) {
                self.draft.consumed.push(id);
            }
        }
        Ok(())
    }

    /// Begins everything owed that is not in flight, until nothing more follows without waiting.
    async fn perform(&mut self) -> Result<(), DriveError> {
        self.command(Command::Tick);
        let mut put_off = BTreeSet::new();
        while let Some(duty) = self.next_duty(&put_off) {
            if !self.begin(&duty).await? {
                put_off.insert(duty);
            }
        }
        Ok(())
    }

    fn next_duty(&self, put_off: &BTreeSet<Duty>) -> Option<Duty> {
        let now = self.ports.clock.now().max(self.run.at);
        let due = owed::retry_due(&self.run, now).into_iter().chain(owed::owed(&self.run));
        // Nothing is started on the last third of a lease that was not renewed (`semantics.md` C2).
        let lease_is_good = self.ports.clock.boottime() + LEASE / 3 < self.until;
        due.filter(|duty| !put_off.contains(duty)).find(|duty| match duty {
            Duty::Conclude => true,
            Duty::Call { .. } | Duty::Start { .. } => self.stopping.is_none() && lease_is_good,
            Duty::Suspend => self.stopping.is_none(),
            Duty::Recover { action, attempt, probe, .. } => {
                self.stopping.is_none() && !self.hangar.is_flying(&Flight::Recover(*action, *attempt, *probe))
            }
            Duty::Check { check, round } => {
                self.stopping.is_none() && !self.hangar.is_flying(&Flight::Check(check.clone(), *round))
            }
            Duty::AwaitReply { .. } | Duty::AwaitAction { .. } | Duty::Wake { .. } => false,
        })
    }

    /// Answers whether the state changed or something took off; if not, the duty waits for the next round.
    async fn begin(&mut self, duty: &Duty) -> Result<bool, DriveError> {
        match duty {
            Duty::Call { attempt, closing } => {
                let purpose = if *closing { Purpose::Closing } else { Purpose::Work };
                let encoded = edge::encode(self.ports, &self.run, purpose);
                let command = Command::Request {
                    attempt: *attempt,
                    purpose,
                    digest: encoded.digest.clone(),
                    bytes: encoded.bytes.len() as u64,
                };
                self.outgoing.insert(*attempt, encoded);
                Ok(self.command(command))
            }
            Duty::Start { action } => self.start(*action).await,
            Duty::Recover { action, attempt, probe, from } => {
                self.recover(*action, *attempt, *probe, *from).await?;
                Ok(true)
            }
            Duty::Check { check, round } => {
                // A verdict is about the world after everything that is journaled: append first.
                if !self.draft.events.is_empty() {
                    self.put_off = true;
                    return Ok(false);
                }
                let spec = self.run.task.acceptance.iter().find(|spec| spec.name == *check);
                if let Some(spec) = spec {
                    let work = jobs::check(self.ports, self.run.task.clone(), self.run.id.clone(), spec.clone());
                    self.hangar.launch(Flight::Check(check.clone(), *round), work);
                }
                Ok(true)
            }
            Duty::Conclude => Ok(self.command(Command::Conclude)),
            Duty::Suspend => {
                let detail = match &self.run.stage {
                    Stage::Ready(ready) => ready.detail.clone(),
                    Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                        String::new()
                    }
                };
                Ok(self.command(Command::Suspend { cause: Suspension::Model, detail }))
            }
            Duty::AwaitReply { .. } | Duty::AwaitAction { .. } | Duty::Wake { .. } => Ok(false),
        }
    }

    fn asks(&self) -> Asks {
        match self.options.asked {
            WhenAsked::Stay | WhenAsked::Park => Asks::Hold,
            WhenAsked::Deny => Asks::Deny,
        }
    }

    async fn start(&mut self, id: ActionId) -> Result<bool, DriveError> {
        let Some(action) = self.run.action(id) else { return Ok(false) };
        let Some(spec) = self.run.task.tool(&action.tool) else { return Ok(false) };
        let readiness = match self.ports.tools.validate(&action.tool, action.args.as_str()) {
            Ok(valid) => edge::readiness(self.ports, &self.run, spec, id, &valid, self.asks()).await?.0,
            Err(error) => longrein_core::decide::Readiness::Refused(error),
        };
        let key = edge::key_view(self.ports, &self.run, action).await?;
        if let longrein_core::decide::KeyView::Held { run, .. } = &key
            && *run != self.run.id
        {
            let now = self.ports.clock.now();
            let since = *self.key_waits.entry(id).or_insert(now);
            if now.since(since) < KEY_WAIT {
                return Ok(false);
            }
        }
        self.key_waits.remove(&id);
        Ok(self.command(Command::Start { action: id, readiness, key }))
    }

    async fn recover(
        &mut self,
        id: ActionId,
        attempt: u32,
        probe: u32,
        from: Option<Timestamp>,
    ) -> Result<(), DriveError> {
        let Some(action) = self.run.action(id) else { return Ok(()) };
        let Some(spec) = self.run.task.tool(&action.tool) else { return Ok(()) };
        let now = self.ports.clock.now();
        let started = match &action.life {
            Life::Lost(doubt) | Life::Doubtful(doubt, _) => doubt.started,
            Life::Queued | Life::Held { .. } | Life::Started { .. } | Life::Unknown(_) | Life::Ended(_) => now,
        };
        let old_lease = self.claim.before.unwrap_or_default().saturating_sub(self.ports.clock.boottime());
        let recovery = Recovery {
            attempt: self.run.attempt(action, action.idempotency_key.clone()),
            effect: action.effect,
            fence: self.run.fence,
            from: from.map(|from| from.since(now)).unwrap_or_default(),
            settle_after: spec.settle_after,
            unseen: old_lease.max(started.plus(spec.timeout).since(now)),
            has_probe: !spec.reconcile.is_empty(),
            handed: edge::handed(self.ports, &self.run, action, &self.inputs).await?,
        };
        let work = jobs::recover(self.ports, self.run.task.clone(), recovery);
        self.hangar.launch(Flight::Recover(id, attempt, probe), work);
        Ok(())
    }

    // ---- appending and acting ----

    /// Appends the batch in the making, tells the observer, and begins what it has cleared.
    async fn append(&mut self) -> Result<Appended, DriveError> {
        if self.draft.events.is_empty() {
            return Ok(Appended::Committed);
        }
        let draft = std::mem::take(&mut self.draft);
        self.batches += 1;
        let durability = draft.events.iter().map(|new| new.event.durability()).max().unwrap_or(Durability::Written);
        let batch = Batch {
            id: BatchId(format!("{}.{}", self.claim.fence, self.batches)),
            expected: self.head,
            events: draft.events,
            consumed: draft.consumed,
            keys: draft.keys,
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
                self.act(&events).await?;
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

    /// Sends a batch until it is answered. Everything it runs is ended before the lease is over, answered or not.
    async fn send_batch(&mut self, batch: &Batch) -> Result<Seq, AppendError> {
        let journal = Arc::clone(&self.ports.journal);
        loop {
            let over = self.until.saturating_sub(self.ports.clock.boottime());
            let answer = tokio::select! {
                biased;
                answer = journal.append(&self.claim, batch) => answer,
                () = tokio::time::sleep(over) => {
                    self.hangar.abort_all().await;
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
    async fn rewind(
        &mut self,
        batch: Batch,
        outcomes: Vec<LateOutcome>,
        leave_out: impl Fn(&Event) -> bool,
    ) -> Result<(), DriveError> {
        let Batch { events, consumed, blobs, .. } = batch;
        let kept: Vec<_> = events.into_iter().filter(|new| !leave_out(&new.event)).collect();
        self.draft = Draft { outcomes, consumed, blobs, ..Draft::default() };
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
            self.run = fold(self.ports.journal.as_ref(), &self.run.id, |_| {}).await?;
            kept.into_iter().for_each(|new| self.push(new.at, new.event));
        }
        Ok(())
    }

    /// Begins what the committed events have cleared: nothing runs before it is journaled.
    async fn act(&mut self, events: &[(Seq, NewEvent)]) -> Result<(), DriveError> {
        let starts = |new: &NewEvent| matches!(new.event, Event::ActionStarted(_) | Event::ModelRequested(_));
        if !events.iter().any(|(_, new)| starts(new)) {
            return Ok(());
        }
        self.firm_lease().await?;
        for (_, new) in events {
            if let Event::ModelRequested(requested) = &new.event
                && let Some(encoded) = self.outgoing.remove(&requested.attempt)
            {
                self.hangar.launch(Flight::Send(requested.attempt), jobs::send(self.ports, encoded));
            }
            if let Event::ActionStarted(started) = &new.event
                && let Some(cleared) = self.run.clear(started)
                && let Some(action) = self.run.action(started.action)
            {
                let handed = edge::handed(self.ports, &self.run, action, &self.inputs).await?;
                let work = jobs::run(self.ports, self.run.task.clone(), cleared, handed);
                self.hangar.launch(Flight::Run(started.action, started.attempt), work);
            }
        }
        self.outgoing.clear();
        Ok(())
    }

    /// Gives up what is in flight and no longer owed.
    fn reconcile(&mut self) {
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
                Duty::Check { check, round } => wanted.insert(Flight::Check(check.clone(), *round)),
                Duty::Call { .. } | Duty::Start { .. } | Duty::Conclude | Duty::Suspend | Duty::Wake { .. } => false,
            };
        }
        let flights: Vec<_> = self.hangar.flights().cloned().collect();
        for flight in flights {
            let keep = match &flight {
                Flight::Inbox => true,
                Flight::Run(action, _) if self.stopping.is_some() => {
                    !stop_now && self.effect(*action) == EffectClass::External
                }
                Flight::Send(_) | Flight::Run(..) | Flight::Recover(..) | Flight::Check(..) => {
                    self.stopping.is_none() && wanted.contains(&flight)
                }
            };
            if !keep {
                self.hangar.abort(&flight);
            }
        }
    }

    fn effect(&self, action: ActionId) -> EffectClass {
        self.run.action(action).map_or(EffectClass::Read, |action| action.effect)
    }

    // ---- waiting and leaving ----

    fn standing(&self) -> Option<Standing> {
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
    async fn park_or_stop(&mut self) -> Result<bool, DriveError> {
        if self.stopping.is_some() {
            if self.hangar.is_busy() {
                return Ok(false);
            }
            let detail = String::new();
            return Ok(self.command(Command::Suspend { cause: self.stop.why(), detail }));
        }
        let waits = owed::waits(&self.run);
        if waits.is_empty() || self.hangar.is_busy() {
            return Ok(false);
        }
        match self.options.asked {
            WhenAsked::Stay if waits.iter().any(|wait| matches!(wait, Wait::Approval(_))) => Ok(false),
            WhenAsked::Stay | WhenAsked::Park => Ok(self.command(Command::Park)),
            WhenAsked::Deny => {
                let mut changed = false;
                for wait in waits {
                    changed |= match wait {
                        Wait::Approval(action) => {
                            let reason = "nobody can be asked (--on-ask deny)".to_owned();
                            self.command(Command::DenyUnasked { action, reason })
                        }
                        Wait::Unknown(_) => false,
                    };
                }
                Ok(changed || self.command(Command::Park))
            }
        }
    }

    /// Waits until something happens, and turns it into commands.
    async fn wait(&mut self) -> Result<(), DriveError> {
        let nap = self.nap();
        let stop = self.stop.token.clone();
        let landed = tokio::select! {
            biased;
            () = stop.cancelled(), if self.stopping.is_none() => {
                self.stopping = Some(self.ports.clock.boottime() + STOP_GRACE);
                self.reconcile();
                None
            }
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
    fn nap(&self) -> Duration {
        let now = self.ports.clock.now();
        let boottime = self.ports.clock.boottime();
        let renewal = self.renew_at.saturating_sub(boottime);
        let by_time = owed::owed(&self.run).into_iter().filter_map(|duty| match duty {
            Duty::Wake { at } => Some(at.since(now)),
            Duty::AwaitAction { until: Some(until), .. } => Some(until.since(now)),
            Duty::AwaitAction { until: None, .. }
            | Duty::AwaitReply { .. }
            | Duty::Call { .. }
            | Duty::Start { .. }
            | Duty::Recover { .. }
            | Duty::Check { .. }
            | Duty::Conclude
            | Duty::Suspend => None,
        });
        let key_poll = (!self.key_waits.is_empty()).then_some(KEY_POLL);
        let stopping = self.stopping.map(|until| until.saturating_sub(boottime));
        by_time.chain(key_poll).chain(stopping).chain([renewal]).min().unwrap_or(RENEW_EVERY)
    }

    async fn take(&mut self, flight: Flight, landed: Landed) -> Result<(), DriveError> {
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
                let judgement = if reply.calls.is_empty() {
                    let cited = edge::cited(self.ports, &self.run, &reply.text).await?;
                    Some(self.ports.checks.judge(self.run.task.answer.as_ref(), &reply.text, &cited))
                } else {
                    None
                };
                self.command(Command::Reply { attempt, reply, proposals, judgement, jitter });
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
            (Flight::Run(action, attempt), Landed::Ran(outcome, blobs)) => {
                self.keep_blobs(blobs);
                self.draft.outcomes.push(LateOutcome { action, attempt, outcome: outcome.clone() });
                self.command(Command::Finish { action, attempt, outcome });
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
                        | Landed::InboxChanged => {
                            "It was ended before it was through: the run is brought to rest.".to_owned()
                        }
                    };
                    let outcome = edge::cut_off(self.effect(action), &why);
                    self.command(Command::Finish { action, attempt, outcome });
                }
            }
            (Flight::Recover(action, attempt, _), Landed::Recovered(probe, blobs)) => {
                self.keep_blobs(blobs);
                let jitter = self.ports.clock.jitter();
                self.command(Command::Recover { action, attempt, probe, jitter });
            }
            (Flight::Check(check, round), Landed::Checked(verdict, blobs)) => {
                self.keep_blobs(blobs);
                self.command(Command::GiveVerdict { check, round, verdict });
            }
            // Given up: still owed if it is.
            (Flight::Recover(..) | Flight::Check(..), _) => {}
        }
        Ok(())
    }

    fn keep_blobs(&mut self, blobs: jobs::Blobs) {
        self.draft.blobs.extend(in_bytes(blobs));
    }

    fn watch_inbox(&mut self) {
        if self.hangar.is_flying(&Flight::Inbox) {
            return;
        }
        let (journal, run) = (Arc::clone(&self.ports.journal), self.run.id.clone());
        self.hangar.launch(Flight::Inbox, async move {
            journal.inbox_changed(&run).await;
            Landed::InboxChanged
        });
    }

    // ---- the claim ----

    /// Waits until the lease is good for a start: never on its last third (`semantics.md` C2).
    async fn firm_lease(&mut self) -> Result<(), DriveError> {
        loop {
            self.keep_lease().await?;
            if self.ports.clock.boottime() + LEASE / 3 < self.until {
                return Ok(());
            }
            tokio::time::sleep(RESEND_EVERY).await;
        }
    }

    /// Renews a third of the lease ahead of its end. A lease that is over ends everything first.
    async fn keep_lease(&mut self) -> Result<(), DriveError> {
        let now = self.ports.clock.boottime();
        if now < self.renew_at {
            return Ok(());
        }
        if now >= self.until {
            // Woken after the end: whoever has the run now must not meet our tools.
            for (flight, landed) in self.hangar.abort_all().await {
                self.take(flight, landed).await?;
            }
            self.watch_inbox();
        }
        match self.ports.journal.renew(&self.claim).await {
            Ok(until) => {
                self.until = until;
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

    /// The claim is lost: ends every effect and posts the outcomes nobody else can know (`semantics.md` C4).
    async fn pass_on_what_is_known(&mut self) {
        let mut known = std::mem::take(&mut self.draft.outcomes);
        for (flight, landed) in self.hangar.abort_all().await {
            if let (Flight::Run(action, attempt), Landed::Ran(outcome, _)) = (flight, landed) {
                known.push(LateOutcome { action, attempt, outcome });
            }
        }
        for late in known {
            let id = InputId::new(format!("late.{}.{}.{}", self.claim.fence, late.action, late.attempt));
            let input = Input { id, at: self.ports.clock.now(), body: InputBody::LateOutcome(late) };
            // Nobody is left to tell if this fails too; the new holder recovers without it.
            let _ = self.ports.journal.post_input(&self.run.id, &input).await;
        }
    }
}

fn in_bytes(blobs: jobs::Blobs) -> impl Iterator<Item = (Digest, Bytes)> {
    blobs.into_iter().map(|(digest, payload)| (digest, Bytes::from(payload.as_str().to_owned())))
}

/// The failure of a call that was given up or broke down here.
fn given_up(landed: &Landed) -> ModelFailure {
    let message = match landed {
        Landed::Broken(panic) => format!("the model client broke down: {panic}"),
        Landed::Aborted
        | Landed::Sent(_)
        | Landed::Ran(..)
        | Landed::Recovered(..)
        | Landed::Checked(..)
        | Landed::InboxChanged => "given up: the run is brought to rest".to_owned(),
    };
    let class = match landed {
        Landed::Broken(_) => ModelErrorClass::Transient,
        Landed::Aborted
        | Landed::Sent(_)
        | Landed::Ran(..)
        | Landed::Recovered(..)
        | Landed::Checked(..)
        | Landed::InboxChanged => ModelErrorClass::Lost,
    };
    ModelFailure {
        class,
        message,
        status: None,
        retry_after_s: None,
        billing: Billing::Perhaps,
        usage: None,
        partial: None,
    }
}
