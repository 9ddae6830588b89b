//! The door: everything that starts, advances, answers or looks at runs comes in here.
//!
//! It takes values and installs nothing: no provider, no subscriber, no signal handler, no environment.

mod drive;
mod error;
mod models;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::decide::key_scope;
use longrein_core::event::{Event, Suspension};
use longrein_core::ids::{ActionId, Digest, InputId, RunId, Seq};
use longrein_core::image::ImageRef;
use longrein_core::input::{Door, Endorse, Input, InputBody, Rollback};
use longrein_core::run::Run;
use longrein_core::task::{ModelSpec, Task};
use longrein_driver::{Driven, RollbackPlan, Stop, fold, rollback_plan, unsay_input};
use longrein_models::Lanes;
use longrein_policy::Containment;
use longrein_ports::{
    AppendError, Batch, BatchId, Cabinet, ClaimError, Clock, Collected, Create, Durability, Endorsement, Finding,
    KeyId, Listed, NewEvent, Posted, REMOVED, Recorded, RecordedBody, Store, Trees, Unread, VerifyReport, Worker,
};

use longrein_tools::Secrets;

use crate::images::{Image, together};
use crate::ledger::Ledger;
use crate::settings::SandboxSettings;
use crate::{trees, unsaid};

pub(crate) use drive::{Own, Place, Strictest, offered};
pub use drive::{Surroundings, Target};
pub use error::RunsError;
pub(crate) use models::{Beside, Missing, judges_of, nobody, others_of, summariser_of};
pub use models::{Reach, connectable};

/// A store, and the process that works on it. Clones share it.
#[derive(Clone)]
pub struct Runs {
    pub(crate) journal: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pub(crate) worker: Worker,
    /// Tells its processes apart from those of other stores on this host.
    identity: String,
    /// Its URL.
    store: String,
    binary: String,
    ledger: Arc<Ledger>,
    /// How far commands are held by somebody else than us. None: by our own walls.
    held: Option<Containment>,
    /// Where snapshots of workspaces are kept. None: nowhere.
    trees: Option<Grove>,
    /// What its runs share of what servers say of the limits of a key.
    lanes: Lanes,
    pub(crate) known: Arc<Known>,
}

/// What this process knows of secrets, to keep them out of what it sends to runs.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) secrets: Secrets,
    /// Where it finds those that tasks name.
    environment: BTreeMap<String, String>,
}

/// The snapshots of a task's workspace, in which folders of it, given as paths below it, are where the operator's `PATH` looks
/// for programs. None: that one cannot be kept.
pub type Grove = Arc<dyn Fn(&Task, &[String]) -> Option<Arc<dyn Trees>> + Send + Sync>;

/// Which runs were told that a source is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endorsed {
    /// Those that list it.
    pub told: Vec<RunId>,
    /// Those that list it and could not be told: their inboxes are full.
    pub full: Vec<RunId>,
}

impl Runs {
    /// Opens a store by URL: `sqlite:PATH` or `memory:`.
    pub fn open(store: &str, binary: &str) -> Result<Self, RunsError> {
        let clock: Arc<dyn Clock> = Arc::new(longrein_store::SystemClock::default());
        let journal = longrein_store::open(store, Arc::clone(&clock))?;
        let worker = longrein_store::worker_here()?;
        let identity = longrein_store::identity(store)?;
        let ledger = Arc::new(Ledger::new(Arc::clone(&journal)));
        Ok(Self {
            journal,
            clock,
            worker,
            identity,
            store: store.to_owned(),
            binary: binary.to_owned(),
            ledger,
            held: None,
            lanes: Lanes::default(),
            known: Arc::default(),
            trees: trees::folder_of(store).map(trees::grove),
        })
    }

    /// The same, where commands are held so far by somebody else than us: nothing of ours is put around them.
    #[must_use]
    pub fn fenced(self, containment: Containment) -> Self {
        Self { held: Some(containment), ..self }
    }

    /// The same, where `values`, each with its name, and those of the variables of `environment` that a run's task names as
    /// secrets are kept out of what is sent to runs. Whoever takes it keeps out what that process knows.
    #[must_use]
    pub fn keeping_out(
        self,
        values: impl IntoIterator<Item = (String, String)>,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let mut secrets = Secrets::new();
        values.into_iter().for_each(|(name, value)| secrets.know(name, value));
        self.knowing(secrets, environment)
    }

    pub(crate) fn knowing(self, secrets: Secrets, environment: BTreeMap<String, String>) -> Self {
        Self { known: Arc::new(Known { secrets, environment }), ..self }
    }

    /// The same, with a place where snapshots of workspaces are kept.
    #[must_use]
    pub fn keeping(self, trees: Grove) -> Self {
        Self { trees: Some(trees), ..self }
    }

    fn trees_of(&self, task: &Task, path: &[String]) -> Option<Arc<dyn Trees>> {
        self.trees.as_ref().and_then(|trees| trees(task, path))
    }

    /// What undoing a run's changes of its workspace would do; `to`: back to before this action. Nothing is changed.
    pub async fn rollback_plan(&self, id: &RunId, to: Option<ActionId>) -> Result<RollbackPlan, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        let Some(trees) = self.trees_of(&run.task, &[]) else { return Err(RunsError::NoTrees(id.clone())) };
        Ok(rollback_plan(self.journal.as_ref(), trees.as_ref(), id, to).await?)
    }

    /// Undoes a run's changes of its workspace, where nobody drives it. What became of it is in the journal: an
    /// `action.rolled_back` for each action, or an `input.refused`.
    pub async fn rollback(
        &self,
        id: &RunId,
        asked: Rollback,
        environment: BTreeMap<String, String>,
    ) -> Result<Driven, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        if self.trees_of(&run.task, &[]).is_none() {
            return Err(RunsError::NoTrees(id.clone()));
        }
        if let Some((_, Some(holder))) = self.listed(id).await? {
            return Err(ClaimError::Held(holder).into());
        }
        let input = InputId::new(format!("rollback-{}-{}", self.clock.now().0, self.worker.pid));
        let input = Input { id: input, at: self.clock.now(), body: InputBody::Rollback(asked), images: Vec::new() };
        self.journal.post_input(id, &input).await?;
        let stop = Stop::new();
        // It is not driven any further.
        stop.now(Suspension::Dropped);
        self.tend_until(&run, environment, &SandboxSettings::default(), stop).await
    }

    pub(crate) fn cabinet(&self) -> &dyn Cabinet {
        self.journal.as_ref()
    }

    /// The clock that events are stamped by.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The run with this id, or the only one whose id starts so.
    pub async fn find(&self, text: &str) -> Result<RunId, RunsError> {
        if let Ok(id) = RunId::parse(text)
            && self.listed(&id).await?.is_some()
        {
            return Ok(id);
        }
        let all = self.list().await?;
        let mut starting: Vec<_> =
            all.into_iter().map(|(row, _)| row.run).filter(|run| run.as_str().starts_with(text)).collect();
        match starting.len() {
            1 => Ok(starting.remove(0)),
            0 => Err(RunsError::NoSuchRun(text.to_owned())),
            _ => Err(RunsError::Ambiguous {
                text: text.to_owned(),
                candidates: starting.iter().take(8).map(ToString::to_string).collect(),
            }),
        }
    }

    /// All runs, the newest first, each with who holds it.
    pub async fn list(&self) -> Result<Vec<Listed>, RunsError> {
        let mut all = self.journal.runs().await?;
        all.retain(|(row, _)| row.state != REMOVED);
        Ok(all)
    }

    /// A run in a listing; None: there is none under this id. One that was removed is an error: its id is used up.
    pub async fn listed(&self, id: &RunId) -> Result<Option<Listed>, RunsError> {
        match self.journal.row(id).await? {
            Some((row, _)) if row.state == REMOVED => Err(ClaimError::Removed(id.clone()).into()),
            listed => Ok(listed),
        }
    }

    /// A new run `id` that goes on from event `at` of another (its end, if None), or from the last point before where every
    /// call has its observation. It waits for somebody to resume it. The point it goes on from.
    pub async fn fork(&self, from: &RunId, at: Option<Seq>, id: &RunId) -> Result<Seq, RunsError> {
        let mut events = Vec::new();
        let mut after = Seq(0);
        let mut unreadable = None;
        while unreadable.is_none() {
            let page = self.records(from, after).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in page {
                match record.body {
                    RecordedBody::Known(event) => events.push((record.seq, record.at, event)),
                    RecordedBody::Unknown { must_understand: false, .. } => {}
                    RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => {
                        unreadable = Some(record.seq);
                        break;
                    }
                }
            }
        }
        let at = at.unwrap_or(Seq(u64::MAX));
        if let Some(seq) = unreadable.filter(|seq| *seq <= at && at != Seq(u64::MAX)) {
            return Err(RunsError::ForkPoint(format!("event {seq} of run {from} cannot be read; name one before it")));
        }
        if let Some((last, ..)) =
            events.last().filter(|(last, ..)| at > *last && at != Seq(u64::MAX) && unreadable.is_none())
        {
            return Err(RunsError::ForkBeyond { run: from.clone(), at, last: *last });
        }
        let forked = longrein_core::fork::fork(&events, at, id.clone(), self.clock.now());
        let Some((point, events)) = forked else {
            return Err(RunsError::ForkPoint(format!("run {from} has no point to go on from at or before event {at}")));
        };
        if self.listed(id).await?.is_some() {
            return Err(RunsError::Exists(id.clone()));
        }
        let claim = self.journal.claim(id, &self.worker, None, Create::IfAbsent).await?;
        let mut folded: Option<Run> = None;
        for ((at, event), seq) in events.iter().zip(1..) {
            match (&mut folded, event) {
                (None, Event::RunStarted(started)) => folded = Some(Run::new(started, *at)),
                (Some(run), event) => run.apply(Seq(seq), *at, event),
                (None, _) => {}
            }
        }
        let Some(run) = folded else { return Err(RunsError::ForkPoint(format!("run {from} has no beginning"))) };
        let batch = Batch {
            id: BatchId(format!("{}.fork", claim.fence)),
            expected: claim.head,
            events: events.into_iter().map(|(at, event)| NewEvent { at, event }).collect(),
            consumed: Vec::new(),
            keys: Vec::new(),
            marks: Vec::new(),
            blobs: Vec::new(),
            durability: Durability::Synced,
            row: longrein_driver::run_row(&run),
        };
        let appended = loop {
            match self.journal.append(&claim, &batch).await {
                Err(AppendError::Unknown) => tokio::time::sleep(Duration::from_millis(50)).await,
                answer => break answer,
            }
        };
        self.journal.release(&claim).await?;
        match appended {
            Ok(_) => Ok(point),
            Err(AppendError::Conflict { .. } | AppendError::Fenced { .. }) => Err(RunsError::Exists(id.clone())),
            Err(AppendError::Journal(error)) => Err(error.into()),
            Err(error @ (AppendError::InputPending | AppendError::KeyTaken(_) | AppendError::Unknown)) => {
                Err(RunsError::ForkPoint(error.to_string()))
            }
        }
    }

    /// Removes a run that nobody holds, whatever its state: its records go, its id and its business keys stay used.
    ///
    /// Its children go with it, all or none: a root that is there has all of them. A child goes with its root only.
    pub async fn remove(&self, id: &RunId, unread: Unread) -> Result<(), RunsError> {
        let parent = self.listed(id).await?.and_then(|(row, _)| row.parent);
        if let Some(parent) = parent {
            return Err(RunsError::ChildOf { run: id.clone(), parent });
        }
        let mut family = self.below(id).await?;
        family.push(id.clone());
        Ok(self.journal.purge(&family, unread).await?)
    }

    /// What people sent to a run or a run below it and nobody has taken yet, the run's own first.
    pub async fn unread(&self, id: &RunId) -> Result<Vec<Input>, RunsError> {
        let mut unread = self.inbox(id).await?;
        for child in self.below(id).await? {
            unread.extend(self.inbox(&child).await?);
        }
        unread.retain(|input| input.body.is_of_a_person());
        Ok(unread)
    }

    /// Removes blobs that nothing refers to; of those that lie as files, the ones not touched for `older_than`.
    pub async fn collect(&self, older_than: Duration) -> Result<Collected, RunsError> {
        Ok(self.journal.collect(older_than).await?)
    }

    /// Folds a run from its journal, showing every record.
    pub async fn fold(&self, id: &RunId, see: impl FnMut(&Recorded)) -> Result<Run, RunsError> {
        Ok(fold(self.journal.as_ref(), id, see).await?)
    }

    /// Records after `after`, as they lie there, readable or not.
    pub async fn records(&self, id: &RunId, after: Seq) -> Result<Vec<Recorded>, RunsError> {
        Ok(self.journal.read(id, after, 512).await?)
    }

    /// The model a run goes on with: the last one it was told to switch to, whether it has taken that yet or not.
    pub async fn model_of(&self, run: &Run) -> Result<ModelSpec, RunsError> {
        let asked = self.inbox(&run.id).await?.into_iter().rev().find_map(|input| match input.body {
            InputBody::SwitchModel(model) => Some(model),
            InputBody::Message(_)
            | InputBody::Approve(_)
            | InputBody::Deny(_)
            | InputBody::Settle(_)
            | InputBody::Cancel
            | InputBody::LateOutcome(_)
            | InputBody::Raise(_)
            | InputBody::Endorse(_)
            | InputBody::ChildEnded(_)
            | InputBody::Rollback(_) => None,
        });
        Ok(asked.unwrap_or_else(|| run.model.clone()))
    }

    /// Inputs of a run that nobody has taken yet, oldest first.
    pub async fn inbox(&self, id: &RunId) -> Result<Vec<Input>, RunsError> {
        Ok(self.journal.inbox(id).await?)
    }

    /// Waits until a run's inbox may have changed, at most half a second late.
    pub async fn inbox_changed(&self, id: &RunId) {
        self.journal.inbox_changed(id).await;
    }

    /// Posts an input; its id is unique to this call.
    pub async fn post(&self, id: &RunId, body: InputBody) -> Result<(InputId, Posted), RunsError> {
        self.post_with(id, body, Vec::new(), &[]).await
    }

    /// Posts a person's words with images.
    pub async fn show(
        &self,
        id: &RunId,
        text: impl Into<String>,
        images: Vec<Image>,
    ) -> Result<(InputId, Posted), RunsError> {
        let (images, blobs) = together(images).map_err(RunsError::from)?;
        self.post_with(id, InputBody::Message(text.into()), images, &blobs).await
    }

    async fn post_with(
        &self,
        id: &RunId,
        body: InputBody,
        images: Vec<ImageRef>,
        blobs: &[(Digest, Bytes)],
    ) -> Result<(InputId, Posted), RunsError> {
        let input = InputId::new(format!("i{}", uuid::Uuid::now_v7().simple()));
        let mut input = Input { id: input, at: self.clock.now(), body, images };
        if input.body.is_of_a_person() {
            let secrets = self.secrets_of(id).await?;
            unsay_input(&|text| secrets.unsaid(text), &mut input);
        }
        let posted = self.journal.post_with(id, &input, blobs).await?;
        Ok((input.id, posted))
    }

    /// The secrets of a run that this process knows.
    async fn secrets_of(&self, id: &RunId) -> Result<Secrets, RunsError> {
        let mut secrets = self.known.secrets.clone();
        for record in self.journal.read(id, Seq(0), 1).await? {
            // One that cannot be read names none.
            if let RecordedBody::Known(Event::RunStarted(started)) = &record.body {
                unsaid::know_those_of(&started.task, &self.known.environment, &mut secrets);
            }
        }
        Ok(secrets)
    }

    /// Trusts a source from now on, and tells every run that lists it and may go on. Files that only this source tainted do
    /// so no more.
    pub async fn endorse(&self, source: &str, by: &str, door: Door) -> Result<Endorsed, RunsError> {
        let (source, by) = (source.to_owned(), by.to_owned());
        let endorsement = Endorsement { source: source.clone(), by: by.clone(), at: self.clock.now() };
        // First: what a run reads from here on does not bring it back.
        self.journal.endorse(&endorsement).await?;
        let mut endorsed = Endorsed::default();
        for (row, _) in self.list().await? {
            if !row.sources.contains(&source) {
                continue;
            }
            let body = Endorse { source: source.clone(), by: by.clone(), door };
            match self.post(&row.run, InputBody::Endorse(body)).await?.1 {
                Posted::Accepted | Posted::Duplicate => endorsed.told.push(row.run),
                // Cancelled: it never goes on.
                Posted::Closed => {}
                Posted::Full => endorsed.full.push(row.run),
            }
        }
        Ok(endorsed)
    }

    /// Trusts a source no more: what is read of it from now on taints again. False: it was not trusted.
    pub async fn forget_endorsement(&self, source: &str) -> Result<bool, RunsError> {
        Ok(self.journal.forget_endorsement(source).await?)
    }

    /// The sources that people trust.
    pub fn endorsements(&self) -> Result<Vec<Endorsement>, RunsError> {
        Ok(self.journal.endorsements()?)
    }

    /// The data behind a blob.
    pub async fn blob(&self, digest: &Digest) -> Result<Option<bytes::Bytes>, RunsError> {
        Ok(self.journal.blob(digest).await?)
    }

    /// Checks every record of a run without trusting any cache. None: there is no such run.
    pub async fn verify(&self, id: &RunId) -> Result<Option<VerifyReport>, RunsError> {
        let Some(mut report) = self.journal.verify(id).await? else { return Ok(None) };
        report.findings.extend(self.missing_keys(id).await?);
        if let Ok(run) = self.fold(id, |_| {}).await {
            report.findings.extend(self.disagreements(&run).await?);
        }
        Ok(Some(report))
    }

    /// Keys that the journal says were taken and that have no row: the same intent could happen twice.
    async fn missing_keys(&self, id: &RunId) -> Result<Vec<Finding>, RunsError> {
        let mut proposed = BTreeMap::new();
        let mut taken = Vec::new();
        let folded = fold(self.journal.as_ref(), id, |record| match &record.body {
            RecordedBody::Known(Event::ActionProposed(action)) => {
                if let Some(key) = &action.key {
                    proposed.insert(action.action, (action.tool.clone(), key.clone()));
                }
            }
            RecordedBody::Known(Event::ActionStarted(started)) => taken.extend(proposed.get(&started.action).cloned()),
            RecordedBody::Known(_) | RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => {}
        });
        // A journal that does not fold is found damaged anyway.
        let Ok(run) = folded.await else { return Ok(Vec::new()) };
        let mut missing = Vec::new();
        for (tool, digest) in taken {
            let Some(spec) = run.task.tool(&tool).and_then(|tool| tool.key.as_ref()) else { continue };
            let key = KeyId { scope: key_scope(&run, spec.scope), tool, digest };
            if self.journal.key(&key).await?.is_none() {
                missing.push(Finding {
                    record: format!("key of {}", key.tool),
                    fault: "is missing, though the journal says that it was taken".to_owned(),
                });
            }
        }
        Ok(missing)
    }
}

/// Ends the process at once, as a crash would: nothing is flushed, nothing is cleaned up.
pub fn exit_now(status: i32) -> ! {
    longrein_sandbox::exit_now(status)
}

/// Waits until nothing is left of any tool's or check's processes. To be called before the process ends.
pub async fn commands_are_gone() {
    // What does not go within seconds is stuck in the kernel: waiting longer would not help.
    longrein_sandbox::all_gone().await;
}
