//! The door: everything that starts, advances, answers or looks at runs comes in here.
//!
//! It takes values and installs nothing: no provider, no subscriber, no signal handler, no environment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::decide::key_scope;
use longrein_core::event::{Event, Suspension};
use longrein_core::hook::HookSpec;
use longrein_core::ids::{ActionId, CheckName, Digest, InputId, ModelName, RunId, Seq, TurnId};
use longrein_core::image::ImageRef;
use longrein_core::input::{Door, Endorse, Input, InputBody, Rollback};
use longrein_core::mcp::McpReach;
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use longrein_core::prompt::{AnswerForm, Prompt, ToolDef};
use longrein_core::route;
use longrein_core::run::Run;
use longrein_core::task::{Builtin, Mode, ModeChange, ModelSpec, PolicyRules, Task, ToolBody};
use longrein_driver::{
    Begin, DriveError, Driven, Driver, FaultyChecks, FaultyHooks, FaultyJournal, FaultyModel, FaultyTools, FaultyTrees,
    FoldError, Observer, Options, Ports, RollbackError, RollbackPlan, SNAPSHOT_EVERY, Stop, WhenAsked, fold,
    rollback_plan,
};
use longrein_models::{Lanes, ModelConfig, Secret};
use longrein_policy::{Containment, Fence};
use longrein_ports::{
    AppendError, Archive, Batch, BatchId, BoxFuture, Cabinet, Checks, ClaimError, Clock, Collected, Create, Durability,
    Encoded, Endorsement, Faults, Finding, Gate, GateCall, Hooks, Journal, JournalError, KeyId, Listed, Model,
    NewEvent, Origins, Posted, REMOVED, Recorded, RecordedBody, Ruled, Store, Tools, Trees, VerifyReport, Worker,
};
use longrein_rules::Rulebook;
use longrein_sandbox::Tier;
use longrein_tools::{Host, Sandbox, Secrets, Toolbox, Walls, Workspace};
use tokio::task::JoinSet;

use crate::checks::Judges;
use crate::children::{Models, OfOne, Outfit, Parts};
use crate::embed::check::{Registry, are_here};
use crate::gate;
use crate::images::{Image, ImageError, together};
use crate::ledger::Ledger;
use crate::pins::{self, Commands};
use crate::servers;
use crate::settings::{SandboxMode, SandboxSettings};
use crate::trees;

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
}

/// The snapshots of a task's workspace. None: that one cannot be kept.
pub type Grove = Arc<dyn Fn(&Task) -> Option<Arc<dyn Trees>> + Send + Sync>;

/// What a drive needs beside the store.
pub struct Surroundings {
    /// How to reach the model.
    pub model: ModelConfig,
    /// How to reach the model that writes summaries, if the task names one.
    pub summariser: Reach,
    /// The operator's environment: what tools may be given of it is theirs to name.
    pub environment: BTreeMap<String, String>,
    /// What becomes of a question to a person.
    pub asked: WhenAsked,
    /// Told of every committed batch.
    pub observer: Arc<dyn Observer>,
    /// Asks the drive to stop.
    pub stop: Stop,
    /// Rules given for a run that was started with others: they can only tighten (`semantics.md` B5).
    pub policy: Option<PolicyRules>,
    /// The permission mode that a run which is there goes on in. None: the one it has.
    pub mode: Option<Mode>,
    /// How commands are to be confined.
    pub sandbox: SandboxSettings,
    /// Hooks given for a run that was started with others: it keeps its own, and it is said that these differ.
    pub hooks: Option<Vec<HookSpec>>,
    /// Told of crash points; None in normal use.
    pub faults: Option<Arc<dyn Faults>>,
}

/// How to reach a model by its name; or why it cannot be, for people.
pub type Reach = Box<dyn Fn(&ModelName) -> Result<ModelConfig, String> + Send + Sync>;

/// What to drive.
pub enum Target {
    /// A new run under this id.
    New {
        /// Nobody else's.
        id: RunId,
        /// With its pins filled in; see [`pin`].
        task: Box<Task>,
        /// Captured inputs that are too large for an event, and images.
        blobs: Vec<(Digest, Bytes)>,
    },
    /// A run that is there.
    Existing(RunId),
}

/// What the embedding program itself brings to a drive.
#[derive(Default)]
pub(crate) struct Own {
    /// Instead of the one that the task's model name means.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// The same for models that routes name.
    pub(crate) others: BTreeMap<ModelName, Arc<dyn Model>>,
    pub(crate) host: Host,
    pub(crate) secrets: Secrets,
    /// Checks in code.
    pub(crate) checks: Registry,
}

/// The models of one drive.
pub(crate) struct Connected {
    model: Arc<dyn Model>,
    others: BTreeMap<ModelName, Arc<dyn Model>>,
    summariser: Option<Arc<dyn Model>>,
    judges: BTreeMap<CheckName, Arc<dyn Model>>,
}

/// The models of a drive beside the run's own.
#[derive(Default)]
pub(crate) struct Beside {
    pub(crate) others: Others,
    pub(crate) summariser: Option<Summariser>,
    /// By the check whose verdict they give, where that names a model.
    pub(crate) judges: BTreeMap<CheckName, Summariser>,
}

/// A model beside the run's own, which writes summaries or judges, and how it is reached.
pub(crate) struct Summariser {
    config: ModelConfig,
    model: Arc<dyn Model>,
}

/// A drive that can begin.
pub(crate) struct Prepared {
    driver: Driver,
    id: RunId,
    begin: Begin,
    stop: Stop,
}

impl Prepared {
    pub(crate) async fn drive(self) -> Result<Driven, RunsError> {
        Ok(self.driver.drive(&self.id, self.begin, self.stop).await?)
    }
}

/// Which runs were told that a source is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endorsed {
    /// Those that list it.
    pub told: Vec<RunId>,
    /// Those that list it and could not be told: their inboxes are full.
    pub full: Vec<RunId>,
}

/// Why a run could not be found, driven or answered.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// None has this id, or one that starts so.
    #[error("no run {0} in this store")]
    NoSuchRun(String),
    /// More than one id starts so.
    #[error("\"{text}\" could be any of: {}", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// Some of the runs it could be.
        candidates: Vec<String>,
    },
    /// What is to be shown cannot be.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// The children that are asked for do not fit.
    #[error("no child is asked for: {0}")]
    Unfit(#[from] longrein_core::children::Unfit),
    /// A child is removed with its root.
    #[error("run {run} is a child and goes with its parent, run {parent}")]
    ChildOf {
        /// This run.
        run: RunId,
        /// Whose child it is.
        parent: RunId,
    },
    /// The id is taken.
    #[error("there is a run {0} already")]
    Exists(RunId),
    /// A run has no point at which it could be forked.
    #[error("{0}")]
    ForkPoint(String),
    /// The journal does not go so far.
    #[error("run {run} has no event {at}: the last one is {last}")]
    ForkBeyond {
        /// This run.
        run: RunId,
        /// What was asked for.
        at: Seq,
        /// The last event there is.
        last: Seq,
    },
    /// Nothing was sent to the model for this turn.
    #[error("nothing was sent to the model for turn {} of run {run}{}", turn.0, match last {
        Some(last) => format!(": the last turn that was is {}", last.0),
        None => ": no turn has begun yet".to_owned(),
    })]
    NoSuchTurn {
        /// Of this run.
        run: RunId,
        /// What was asked for.
        turn: TurnId,
        /// The last one for which something was.
        last: Option<TurnId>,
    },
    /// A shadow run stays one, and no other run becomes one.
    #[error(
        "run {run} is in mode {from} and cannot go on in mode {to}: of a shadow run nothing happened, and of \
             another it cannot be undone; start a new run"
    )]
    Mode {
        /// This run.
        run: RunId,
        /// Its mode.
        from: Mode,
        /// What was asked for.
        to: Mode,
    },
    /// Commands cannot be confined as they must be.
    #[error("{0}")]
    Sandbox(String),
    /// Its tools, rules or checks cannot work in this process.
    #[error("the task cannot run here: {0}")]
    Task(String),
    /// A server of tools that it must not start without is not there.
    #[error("the run does not start: {0}")]
    Server(String),
    /// It was stopped while the servers of its tools were waited for. Nothing is in its journal of this.
    #[error("stopped while its MCP servers were waited for; nothing was begun")]
    Stopped {
        /// The run, if it was there before.
        run: Option<RunId>,
        /// What stopped it.
        why: Suspension,
    },
    /// No such model can be connected to.
    #[error("the model cannot be used: {0}")]
    Model(#[from] longrein_models::ConfigError),
    /// The drive ended in an error; the journal says how far it came.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The journal does not fold to a run that could go on here.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// No snapshots of its workspace are kept here.
    #[error("no snapshots of the workspace of run {0} are kept here: nothing can be set back")]
    NoTrees(RunId),
    /// It cannot be set back.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// Somebody else has the run, or there is none.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The store failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Host, boot or process could not be read from the system.
    #[error("this process cannot tell who it is: {0}")]
    Identity(#[from] std::io::Error),
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
            trees: trees::folder_of(store).map(trees::grove),
        })
    }

    /// The same, where commands are held so far by somebody else than us: nothing of ours is put around them.
    #[must_use]
    pub fn fenced(self, containment: Containment) -> Self {
        Self { held: Some(containment), ..self }
    }

    /// The same, with a place where snapshots of workspaces are kept.
    #[must_use]
    pub fn keeping(self, trees: Grove) -> Self {
        Self { trees: Some(trees), ..self }
    }

    fn trees_of(&self, task: &Task) -> Option<Arc<dyn Trees>> {
        self.trees.as_ref().and_then(|trees| trees(task))
    }

    /// What undoing a run's changes of its workspace would do; `to`: back to before this action. Nothing is changed.
    pub async fn rollback_plan(&self, id: &RunId, to: Option<ActionId>) -> Result<RollbackPlan, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        let Some(trees) = self.trees_of(&run.task) else { return Err(RunsError::NoTrees(id.clone())) };
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
        if self.trees_of(&run.task).is_none() {
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
    /// Its children go with it, first: a root that is there has all of them. A child goes with its root only.
    pub async fn remove(&self, id: &RunId) -> Result<(), RunsError> {
        let parent = self.listed(id).await?.and_then(|(row, _)| row.parent);
        if let Some(parent) = parent {
            return Err(RunsError::ChildOf { run: id.clone(), parent });
        }
        for child in self.below(id).await?.iter().rev() {
            self.journal.purge(child).await?;
        }
        Ok(self.journal.purge(id).await?)
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
        let input = Input { id: input, at: self.clock.now(), body, images };
        let posted = self.journal.post_with(id, &input, blobs).await?;
        Ok((input.id, posted))
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

    /// Drives a run until it rests, waits or is stopped.
    pub async fn drive(&self, target: Target, around: Surroundings) -> Result<Driven, RunsError> {
        let prepared = self.prepare(target, around, Own::default()).await?;
        // As a task: each time something wakes the future that a runtime blocks on, that goes through the kernel, even from
        // the very thread. Dropping the set ends what is in it.
        let mut work = JoinSet::new();
        work.spawn(prepared.drive());
        match work.join_next().await.expect("one was spawned just now") {
            Ok(driven) => driven,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Finds every mistake that can be found before a run is claimed.
    pub(crate) async fn prepare(
        &self,
        target: Target,
        around: Surroundings,
        mut own: Own,
    ) -> Result<Prepared, RunsError> {
        let is_new = matches!(target, Target::New { .. });
        let (id, mut begin, mut task, works_in, main) = match target {
            Target::New { id, task, blobs } => {
                let of_ports = task.clone();
                let works_in = of_ports.permission_mode;
                (id, Begin::New { task, blobs }, *of_ports, works_in, None)
            }
            Target::Existing(id) => {
                let run = self.fold(&id, |_| {}).await?;
                let mut changed = pins::changed(&run.task);
                if around.policy.as_ref().is_some_and(|policy| *policy != run.task.policy) {
                    changed.push("policy".to_owned());
                }
                let mode = around.mode.filter(|mode| *mode != run.mode);
                if let Some(to) = mode.filter(|to| run.mode.change(*to) == ModeChange::Refused) {
                    return Err(RunsError::Mode { run: id, from: run.mode, to });
                }
                // More of them would not have been heard on what was done, and fewer would be looser: a run keeps its own.
                if around.hooks.as_ref().is_some_and(|hooks| *hooks != run.task.hooks) {
                    changed.push("hooks".to_owned());
                }
                let task = Task { model: self.model_of(&run).await?, ..run.task.as_ref().clone() };
                let main = route::main(&run).clone();
                (id, Begin::Existing { changed, mode }, task, mode.unwrap_or(run.mode), Some(main))
            }
        };
        let Surroundings {
            model,
            summariser,
            environment,
            asked,
            observer,
            stop,
            policy,
            hooks: _,
            mode: around_mode,
            sandbox,
            faults,
        } = around;
        can_be_confined(&sandbox, &task, asked)?;
        // All runs of this process that use one model with one key hear what its server says to any of them.
        let lanes = self.lanes.clone();
        let model = ModelConfig { lanes: Some(lanes.clone()), ..model };
        let summariser: Reach =
            Box::new(move |name| summariser(name).map(|config| ModelConfig { lanes: Some(lanes.clone()), ..config }));
        let writer = match summariser_of(&task, &summariser) {
            Ok(writer) => writer,
            // It is optional, and the task of a run cannot be mended any more.
            Err(_) if !is_new => None,
            Err(why) => return Err(RunsError::Task(format!("its summary model cannot be used: {why}"))),
        };
        let others = others_of(&task, main.as_ref(), &summariser, &own.others, Missing::of(is_new))?;
        let judges = judges_of(&task, &summariser).map_err(RunsError::Task)?;
        let beside = Beside { others, summariser: writer, judges };
        let place = Place { environment: &environment, sandbox: &sandbox, mode: works_in, faults: faults.clone() };
        // before anything runs there, and before anybody is told that the run goes on
        self.walls(&task, &place)
            .sweep(std::path::Path::new(&task.workspace))
            .iter()
            .for_each(|line| observer.noticed(line));
        let attached = {
            let tools = if is_new { servers::Tools::ToBeFound } else { servers::Tools::Pinned };
            let sandbox = self.walls(&task, &place);
            let mark = format!("{id}@{}", self.identity);
            // what a server says of itself is kept and sent
            let of_beside = beside.summariser.iter().chain(beside.judges.values());
            let of_beside = of_beside.filter_map(|other| other.config.api_key.as_ref());
            for key in model.api_key.iter().chain(of_beside).chain(&beside.others.keys) {
                own.secrets.know("model-api-key", key.reveal());
            }
            let told = Arc::clone(&observer);
            let tell = move |line: &str| told.noticed(line);
            let around = servers::Around { environment: &environment, sandbox, mark, tell: &tell };
            tokio::select! {
                attached = servers::attach(&mut task, tools, around, &mut own.secrets) => attached,
                () = stop.asked() => {
                    return Err(RunsError::Stopped { run: (!is_new).then_some(id), why: stop.why() });
                }
            }
        };
        attached.notices.iter().for_each(|line| observer.noticed(line));
        if let Some(wrong) = attached.wrong {
            return Err(RunsError::Task(wrong));
        }
        if !attached.misnamed.is_empty() {
            return Err(RunsError::Task(attached.misnamed.join("; ")));
        }
        if !attached.missing.is_empty() {
            return Err(RunsError::Server(attached.missing.join("; ")));
        }
        own.host = own.host.and(attached.functions);
        match &mut begin {
            Begin::New { task: of_run, .. } => of_run.tools.clone_from(&task.tools),
            Begin::Existing { changed, .. } => changed.extend(attached.changed),
            Begin::Child { .. } => {}
        }
        let models = Models::Reach {
            of_root: (task.model.name.clone(), model.clone()),
            other: Arc::new(summariser),
            own: own.model.clone(),
            own_others: own.others.clone(),
            host: own.host.another(),
            secrets: own.secrets.clone(),
            checks: own.checks.clone(),
        };
        let mut ports = self.ports(&task, &model, beside, &place, own)?;
        if let Some(policy) = &policy {
            ports.gate = Arc::new(Strictest(ports.gate, self.gate(&task, policy, &place)?));
        }
        let runs = self.clone();
        let parts = Parts { runs, environment, sandbox, faults, policy, mode: around_mode, models };
        ports.children = Some(Arc::new(Outfit(Arc::new(parts))));
        let observer: Arc<dyn Observer> = Arc::new(OfOne { run: id.clone(), observer });
        let options = self.options(asked);
        Ok(Prepared { driver: Driver::new(ports, options, observer), id, begin, stop })
    }

    /// Takes what waits in a run's inbox and finishes what can be finished without a model: cancels, settlements of runs
    /// at rest.
    /// `sandbox`: what is around the commands that find out what became of a lost action.
    pub async fn tend(
        &self,
        id: &RunId,
        environment: BTreeMap<String, String>,
        sandbox: &SandboxSettings,
    ) -> Result<Driven, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        self.tend_until(&run, environment, sandbox, Stop::new()).await
    }

    async fn tend_until(
        &self,
        run: &Run,
        environment: BTreeMap<String, String>,
        sandbox: &SandboxSettings,
        stop: Stop,
    ) -> Result<Driven, RunsError> {
        let begin = Begin::Existing { changed: Vec::new(), mode: None };
        let options = self.options(WhenAsked::Park);
        let place = Place { environment: &environment, sandbox, mode: run.mode, faults: None };
        let mut ports = self.ports_around(&run.task, nobody(), Secrets::new(), &place, None)?;
        let parts = Parts {
            runs: self.clone(),
            environment: environment.clone(),
            sandbox: sandbox.clone(),
            faults: None,
            policy: None,
            mode: None,
            models: Models::Nobody,
        };
        ports.children = Some(Arc::new(Outfit(Arc::new(parts))));
        Ok(Driver::new(ports, options, Arc::new(Nobody)).drive(&run.id, begin, stop).await?)
    }

    /// What is around the commands of this task, found out by trying. None: it has no commands.
    pub fn tier(&self, task: &Task, sandbox: &SandboxSettings) -> Option<Tier> {
        let runs_something = !task.acceptance.is_empty()
            || !task.hooks.is_empty()
            || task.tools.iter().any(|tool| match &tool.body {
                ToolBody::Builtin(builtin) => *builtin == Builtin::Shell,
                ToolBody::Command(_) => true,
                ToolBody::Host(_) | ToolBody::Mcp(_) => false,
            })
            || task.servers.values().any(|server| matches!(server.reach, McpReach::Stdio { .. }));
        runs_something.then(|| match (self.held, sandbox.mode) {
            (Some(_), _) | (None, SandboxMode::External) => Tier::External,
            (None, SandboxMode::Best | SandboxMode::Required) => longrein_sandbox::probe_blocking().tier(),
        })
    }

    fn options(&self, asked: WhenAsked) -> Options {
        Options { worker: self.worker.clone(), binary: self.binary.clone(), asked, snapshot_every: SNAPSHOT_EVERY }
    }

    pub(crate) fn gate(&self, task: &Task, rules: &PolicyRules, place: &Place<'_>) -> Result<Arc<dyn Gate>, RunsError> {
        let ledger: Arc<dyn longrein_policy::Ledger> = self.ledger.clone();
        let fence: Arc<dyn Fence> = match self.held {
            Some(containment) => Arc::new(containment),
            None => Arc::new(gate::Walls(place.sandbox.mode)),
        };
        let policy = gate::policy(task, rules, &self.store, place.environment, gate::Known { ledger, fence });
        Ok(Arc::new(policy.map_err(|error| RunsError::Task(error.to_string()))?))
    }

    pub(crate) fn ports(
        &self,
        task: &Task,
        model: &ModelConfig,
        beside: Beside,
        place: &Place<'_>,
        own: Own,
    ) -> Result<Ports, RunsError> {
        let Own { model: own_model, others: _, host, mut secrets, checks } = own;
        are_here(task, &checks).map_err(RunsError::Task)?;
        let Beside { others: Others { models: others, keys }, summariser, judges } = beside;
        let of_beside = summariser.iter().chain(judges.values()).filter_map(|other| other.config.api_key.as_ref());
        for key in model.api_key.iter().chain(of_beside).chain(&keys) {
            secrets.know("model-api-key", key.reveal());
        }
        let summariser = summariser.map(|summariser| summariser.model);
        let mut judges: BTreeMap<_, _> = judges.into_iter().map(|(check, judge)| (check, judge.model)).collect();
        for check in task.every_check().filter(|check| longrein_core::judge::spec(check).is_some()) {
            if !judges.contains_key(&check.name) {
                let judge = match &own_model {
                    Some(model) => Arc::clone(model),
                    None => longrein_models::connect_judge(&task.model, model)?,
                };
                judges.insert(check.name.clone(), judge);
            }
        }
        let model = match own_model {
            Some(model) => model,
            None => longrein_models::connect(&task.model, model)?,
        };
        self.ports_around(task, Connected { model, others, summariser, judges }, secrets, place, Some((host, checks)))
    }

    /// What is put around the commands of a run.
    fn walls(&self, task: &Task, place: &Place<'_>) -> Sandbox {
        let SandboxSettings { mode, read, write } = place.sandbox.clone();
        let walls = match (self.held, mode) {
            (Some(_), _) | (None, SandboxMode::External) => Walls::None,
            (None, SandboxMode::Best | SandboxMode::Required) => Walls::Strongest,
        };
        let workspace = match place.mode {
            Mode::Plan | Mode::Shadow => Workspace::ReadOnly,
            Mode::Ask | Mode::AcceptEdits | Mode::Auto => Workspace::Writable,
        };
        let sandbox = Sandbox::new(walls, workspace, gate::own_files(&self.store, place.environment));
        let sandbox = sandbox.granting(read, write).with_caches(gate::caches(place.environment));
        let sandbox = sandbox.obeying(gate::obeyed(&task.workspace, place.environment));
        match gate::notes(&self.store) {
            Some(notes) => sandbox.noting(notes),
            None => sandbox,
        }
    }

    pub(crate) fn ports_around(
        &self,
        task: &Task,
        Connected { model, others, summariser, judges }: Connected,
        secrets: Secrets,
        place: &Place<'_>,
        host: Option<(Host, Registry)>,
    ) -> Result<Ports, RunsError> {
        let wrong = |error: &dyn std::fmt::Display| RunsError::Task(error.to_string());
        let toolbox = Toolbox::new(task, place.environment, secrets).map_err(|error| wrong(&error))?;
        let commands = Commands::of(task);
        let toolbox = toolbox.minding(task, &|command, folder| commands.run_by(command, folder));
        let toolbox = toolbox.with_sandbox(self.walls(task, place));
        let (toolbox, own) = match host {
            Some((host, checks)) => (toolbox.with_host(host).map_err(|error| wrong(&error))?, checks),
            // Nothing is called: what a function would do, it need not be here for.
            None => (toolbox, Registry::new()),
        };
        let toolbox = Arc::new(toolbox.in_store(self.identity.clone()).with_archive(self.journal.clone()));
        let rules = Rulebook::of(task).map_err(|error| wrong(&error))?;
        let gate = self.gate(task, &task.policy, place)?;
        let definitions = offered(task, toolbox.definitions());
        let checks: Arc<dyn Checks> = Arc::new(Judges { rules, toolbox: Arc::clone(&toolbox), own });
        let journal: Arc<dyn Journal> = self.journal.clone();
        let cabinet: Arc<dyn Cabinet> = self.journal.clone();
        let archive: Arc<dyn Archive> = self.journal.clone();
        let hooks: Arc<dyn Hooks> = toolbox.clone();
        let tools: Arc<dyn Tools> = toolbox;
        let clock = Arc::clone(&self.clock);
        let origins: Arc<dyn Origins> = self.ledger.clone();
        let trees = self.trees_of(task);
        let Some(faults) = place.faults.clone() else {
            return Ok(Ports {
                journal,
                cabinet,
                archive,
                model,
                others: Arc::new(others),
                summariser,
                judges,
                tools,
                definitions,
                gate,
                checks,
                clock,
                origins,
                hooks,
                children: None,
                trees,
            });
        };
        let faulty = |inner| Arc::new(FaultyModel { inner, faults: Arc::clone(&faults) }) as Arc<dyn Model>;
        Ok(Ports {
            journal: Arc::new(FaultyJournal { inner: journal, faults: Arc::clone(&faults) }),
            model: Arc::new(FaultyModel { inner: model, faults: Arc::clone(&faults) }),
            others: Arc::new(others.into_iter().map(|(name, inner)| (name, faulty(inner))).collect()),
            // Its call has points of its own around what is journaled of it; the model's are the run's.
            summariser,
            judges,
            tools: Arc::new(FaultyTools { inner: tools, faults: Arc::clone(&faults) }),
            checks: Arc::new(FaultyChecks { inner: checks, faults: Arc::clone(&faults) }),
            trees: trees.map(|inner| Arc::new(FaultyTrees { inner, faults: Arc::clone(&faults) }) as Arc<dyn Trees>),
            hooks: Arc::new(FaultyHooks { inner: hooks, faults }),
            cabinet,
            archive,
            definitions,
            gate,
            clock,
            origins,
            children: None,
        })
    }
}

/// What the model is offered: all but what only the task's program calls.
pub(crate) fn offered(task: &Task, definitions: Vec<ToolDef>) -> Arc<[ToolDef]> {
    let own = task.program.phases().map(|program| program.own_tools.as_slice()).unwrap_or_default();
    definitions.into_iter().filter(|tool| !own.contains(&tool.name)).collect()
}

/// Where a run's commands run, and what is done to them.
pub(crate) struct Place<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) sandbox: &'a SandboxSettings,
    /// The mode it works in from now on.
    pub(crate) mode: Mode,
    pub(crate) faults: Option<Arc<dyn Faults>>,
}

/// Stops a run that asks for walls that do not hold here (`gate.md` §4): a sandbox that is required; or any, where nobody can
/// be asked before each command of a model's own making.
fn can_be_confined(sandbox: &SandboxSettings, task: &Task, asked: WhenAsked) -> Result<(), RunsError> {
    let has_shell = || task.tools.iter().any(|tool| tool.body == ToolBody::Builtin(Builtin::Shell));
    let refuse = |problem: String| Err(RunsError::Sandbox(problem));
    match sandbox.mode {
        SandboxMode::External => Ok(()),
        SandboxMode::Required => {
            let probed = longrein_sandbox::probe_blocking();
            match probed.tier() {
                Tier::Full | Tier::External => Ok(()),
                Tier::KernelRules | Tier::NetworkOnly | Tier::None => refuse(format!(
                    "the full sandbox is required and does not hold here. {} `longrein doctor` says what was tried",
                    probed.sentence()
                )),
            }
        }
        SandboxMode::Best if asked == WhenAsked::Deny && has_shell() => {
            let probed = longrein_sandbox::probe_blocking();
            match probed.tier() {
                Tier::Full | Tier::External | Tier::KernelRules | Tier::NetworkOnly => Ok(()),
                Tier::None => refuse(probed.sentence()),
            }
        }
        SandboxMode::Best => Ok(()),
    }
}

/// The model that writes summaries. None: the task names none.
pub(crate) fn summariser_of(task: &Task, reach: &Reach) -> Result<Option<Summariser>, String> {
    let Some(spec) = &task.context.summary else { return Ok(None) };
    let config = reach(&spec.name)?;
    let model = longrein_models::connect(spec, &config).map_err(|error| error.to_string())?;
    Ok(Some(Summariser { config, model }))
}

/// The models that a run's routes may send it to, and the keys of those.
#[derive(Default)]
pub(crate) struct Others {
    models: BTreeMap<ModelName, Arc<dyn Model>>,
    keys: Vec<Secret>,
}

/// What becomes of a route whose model cannot be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is a mistake to be mended before the run starts.
    Refused,
    /// It fails when its turn comes: the task cannot be mended any more, and the others may do.
    Fails,
}

impl Missing {
    fn of(is_new: bool) -> Self {
        if is_new { Missing::Refused } else { Missing::Fails }
    }
}

/// Connects to whatever a run with routes may go to. `main`: the one it was told to use, if it is there already.
pub(crate) fn others_of(
    task: &Task,
    main: Option<&ModelSpec>,
    reach: &Reach,
    own: &BTreeMap<ModelName, Arc<dyn Model>>,
    missing: Missing,
) -> Result<Others, RunsError> {
    let mut others = Others::default();
    if task.routes.is_empty() {
        return Ok(others);
    }
    let specs = main.into_iter().chain(route::models(task, None)).filter(|spec| spec.name != task.model.name);
    for spec in specs {
        if others.models.contains_key(&spec.name) {
            continue;
        }
        if let Some(model) = own.get(&spec.name) {
            others.models.insert(spec.name.clone(), Arc::clone(model));
            continue;
        }
        let connected = reach(&spec.name).and_then(|config| {
            let model = longrein_models::connect(spec, &config).map_err(|error| error.to_string())?;
            Ok((model, config.api_key))
        });
        let model = match (connected, missing) {
            (Ok((model, key)), _) => {
                others.keys.extend(key);
                model
            }
            (Err(why), Missing::Refused) => {
                return Err(RunsError::Task(format!("the route to {} cannot be used: {why}", spec.name)));
            }
            (Err(why), Missing::Fails) => Arc::new(NoModel(Some(format!("it cannot be used here: {why}")))),
        };
        others.models.insert(spec.name.clone(), model);
    }
    Ok(others)
}

/// The models that checks of a task name to judge the work.
pub(crate) fn judges_of(task: &Task, reach: &Reach) -> Result<BTreeMap<CheckName, Summariser>, String> {
    let mut judges = BTreeMap::new();
    for check in task.every_check() {
        let Some(spec) = longrein_core::judge::spec(check).and_then(|judge| judge.model.as_deref()) else { continue };
        let why = |error: String| format!("the model that judges \"{}\" cannot be used: {error}", check.name);
        let config = reach(&spec.name).map_err(why)?;
        let model = longrein_models::connect(spec, &config).map_err(|error| why(error.to_string()))?;
        judges.insert(check.name.clone(), Summariser { config, model });
    }
    Ok(judges)
}

/// Two gates of which the stricter one counts: deny before ask before allow.
pub(crate) struct Strictest(pub(crate) Arc<dyn Gate>, pub(crate) Arc<dyn Gate>);

impl Gate for Strictest {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        self.0.rule(call).stricter(self.1.rule(call))
    }
}

/// Whether a model could be connected to, as far as can be told without calling it.
pub fn connectable(model: &ModelSpec, config: &ModelConfig) -> Result<(), longrein_models::ConfigError> {
    longrein_models::connect(model, config)?;
    Ok(())
}

/// Where no model may be called.
pub(crate) fn nobody() -> Connected {
    Connected { model: Arc::new(NoModel(None)), others: BTreeMap::new(), summariser: None, judges: BTreeMap::new() }
}

/// Why not, where that is more than that nobody calls here.
struct NoModel(Option<String>);

impl Model for NoModel {
    fn encode(&self, _prompt: &Prompt) -> Encoded {
        Encoded { bytes: bytes::Bytes::new(), digest: Digest::of(b""), position: 0, answer: AnswerForm::Remark }
    }

    fn send(&self, _request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        let message = self.0.clone().unwrap_or_else(|| "no model is called here; resume the run".to_owned());
        Box::pin(async {
            Err(ModelFailure {
                class: ModelErrorClass::BadRequest,
                message,
                status: None,
                retry_after_s: None,
                billing: Billing::Nothing,
                usage: None,
                partial: None,
                served: None,
            })
        })
    }
}

/// Where nobody watches.
struct Nobody;

impl Observer for Nobody {
    fn committed(&self, _run: &Run, _events: &[(Seq, NewEvent)]) {}
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
