//! The journal with faults in front, and a shadow beside it: what was acknowledged, what was synced, who may write. The
//! laws are checked against the shadow, never against the journal's own word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::context::archive::Handle;
use longrein_core::event::{Event, RunStarted};
use longrein_core::ids::{ActionId, Digest, Fence, InputId, ModelName, RunId, Seq};
use longrein_core::input::{Input, InputBody};
use longrein_core::outcome::ModelErrorClass;
use longrein_core::run::Run;
use longrein_ports::{
    AppendError, Archive, Batch, BoxFuture, Cabinet, Claim, ClaimError, Committed, Create, Durability, Found, Holder,
    Journal, JournalError, KeyId, KeyRow, NewEvent, Piece, Posted, Recorded, RunRow, Snapshot, VerifyReport, Worker,
};
use longrein_store::MemoryJournal;
use serde_json::Value;

use crate::chance::Chance;
use crate::process::{MachineClock, Process, Record};

/// How often the store misbehaves, in percent of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// Takes up to three seconds.
    pub slow: u64,
    /// Takes longer than a lease, and lands afterwards all the same.
    pub stuck: u64,
    /// Commits and answers that it does not know.
    pub lost_answer: u64,
    /// Does not commit and answers that it does not know.
    pub lost_request: u64,
    /// The same batch arrives twice.
    pub twice: u64,
    /// A message arrives right before an end.
    pub message_beside_end: u64,
}

impl Weather {
    pub const CALM: Weather =
        Weather { slow: 0, stuck: 0, lost_answer: 0, lost_request: 0, twice: 0, message_beside_end: 0 };
}

/// One store, shared by all processes.
pub struct Store {
    pub record: Arc<Record>,
    memory: Mutex<MemoryJournal>,
    shadow: Mutex<Shadow>,
    weather: Mutex<(Weather, Chance)>,
    dead: Arc<Mutex<BTreeSet<u32>>>,
    /// Losses of power: what was on its way to the store is lost with it.
    losses: AtomicU32,
}

/// What the store has said is true.
#[derive(Default)]
pub struct Shadow {
    pub runs: BTreeMap<RunId, ShadowRun>,
}

#[derive(Default, Clone)]
pub struct ShadowRun {
    pub events: Vec<NewEvent>,
    /// How many of them were synced.
    pub synced: usize,
    /// The newest fence handed out.
    pub fence: Fence,
    pub holder: u32,
    pub posted: BTreeMap<InputId, Input>,
    batches: BTreeMap<String, Seq>,
}

impl ShadowRun {
    /// The run these events add up to.
    pub fn fold(&self) -> Option<Run> {
        let first = self.events.first()?;
        let Event::RunStarted(started) = &first.event else { return None };
        let mut run = Run::new(started as &RunStarted, first.at);
        for (number, new) in self.events.iter().enumerate().skip(1) {
            run.apply(Seq(number as u64 + 1), new.at, &new.event);
        }
        Some(run)
    }

    /// Whether the start of this attempt is synced.
    pub fn has_synced_start(&self, action: ActionId, attempt: u32, fence: Fence) -> bool {
        self.events.iter().take(self.synced).any(|new| match &new.event {
            Event::ActionStarted(started) => {
                started.action == action && started.attempt == attempt && started.fence == fence
            }
            _ => false,
        })
    }

    /// Whether it is synced that this child was asked for.
    pub fn has_synced_child(&self, child: &RunId) -> bool {
        let is_it = |event: &Event| matches!(event, Event::ChildStarted(started) if started.child == *child);
        self.events.iter().take(self.synced).any(|new| is_it(&new.event))
    }

    /// Whether a request with these bytes is synced.
    pub fn has_synced_request(&self, digest: &Digest) -> bool {
        self.events.iter().take(self.synced).any(|new| match &new.event {
            Event::ModelRequested(requested) => requested.digest == *digest,
            Event::SummaryRequested(requested) => requested.digest == *digest,
            Event::JudgeRequested(requested) => requested.digest == *digest,
            _ => false,
        })
    }

    /// The last synced request with these bytes: to which model it goes, and in which generation.
    pub fn synced_request(&self, digest: &Digest) -> Option<(ModelName, u32)> {
        let mut generation = 1;
        let mut found = None;
        for new in self.events.iter().take(self.synced) {
            match &new.event {
                Event::GenerationStarted(started) => generation = started.generation,
                Event::ModelRequested(requested) if requested.digest == *digest => {
                    found = Some((requested.model.clone(), generation));
                }
                _ => {}
            }
        }
        found
    }

    /// Whether this model has refused these bytes as too long, and the journal says so.
    pub fn was_too_long(&self, model: &ModelName, digest: &Digest) -> bool {
        let mut is_asked = false;
        self.events.iter().any(|new| match &new.event {
            Event::ModelRequested(requested) => {
                is_asked = requested.digest == *digest && requested.model == *model;
                false
            }
            Event::ModelFailed(failed) => is_asked && failed.class == ModelErrorClass::ContextExhausted,
            _ => false,
        })
    }

    /// The run as it was after so many events. None: there are not that many.
    pub fn fold_to(&self, head: Seq) -> Option<Run> {
        let events = self.events.get(..usize::try_from(head.0).ok()?)?;
        Self { events: events.to_vec(), ..Self::default() }.fold()
    }
}

impl Store {
    pub fn new(record: &Arc<Record>, chance: Chance) -> Arc<Self> {
        let dead: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
        let graves = Arc::clone(&dead);
        let alive = move |worker: &Worker| !graves.lock().unwrap_or_else(PoisonError::into_inner).contains(&worker.pid);
        let memory = MemoryJournal::new(Arc::new(MachineClock(Arc::clone(record))), Arc::new(alive));
        Arc::new(Self {
            record: Arc::clone(record),
            memory: Mutex::new(memory),
            shadow: Mutex::default(),
            weather: Mutex::new((Weather::CALM, chance)),
            dead,
            losses: AtomicU32::new(0),
        })
    }

    /// The journal itself, without faults.
    pub fn memory(&self) -> MemoryJournal {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_weather(&self, weather: Weather) {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner).0 = weather;
    }

    /// From then on the kernel knows no such process.
    pub fn bury(&self, process: &Process) {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).insert(process.worker.pid);
    }

    /// The machine loses power: what was not synced is gone. All processes must be dead.
    pub fn lose_power(&self) {
        self.record.note("--", "POWER LOSS");
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.memory().lose_power();
        for run in self.shadow().runs.values_mut() {
            let synced = run.synced;
            run.events.truncate(synced);
            run.batches.retain(|_, head| head.0 <= synced as u64);
        }
    }

    /// The run as it stands, if it has begun.
    pub fn run(&self, id: &RunId) -> Option<Run> {
        self.shadow().runs.get(id)?.fold()
    }

    /// Posts an input the way people do: by no worker, without faults.
    pub async fn post(&self, run: &RunId, id: &str, body: InputBody) -> Option<Posted> {
        let input = Input { id: InputId::new(id), at: self.record.now(), body, images: Vec::new() };
        self.post_with(run, &input, &[]).await.ok()
    }

    async fn post_with(&self, run: &RunId, input: &Input, blobs: &[(Digest, Bytes)]) -> Result<Posted, ClaimError> {
        let posted = self.memory().post_with(run, input, blobs).await;
        self.record.note("--", &format!("post {run} {} {} = {posted:?}", input.id, body_in_words(&input.body)));
        if let Ok(answer) = posted {
            let mut shadow = self.shadow();
            if answer == Posted::Accepted {
                shadow.runs.entry(run.clone()).or_default().posted.insert(input.id.clone(), input.clone());
            }
            // One log for the whole store: what is synced takes everything before it along.
            shadow.runs.values_mut().for_each(|run| run.synced = run.events.len());
        }
        posted
    }

    fn draw(&self) -> Fate {
        let mut guard = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let (weather, chance) = &mut *guard;
        let mut fate = Fate { wait: Duration::ZERO, answer: Answer::Plain, message: false };
        if *weather == Weather::CALM {
            return fate;
        }
        if chance.percent(weather.slow) {
            fate.wait = chance.millis(1, 3000);
        }
        if chance.percent(weather.stuck) {
            fate.wait = chance.millis(10_000, 40_000);
        }
        if chance.percent(weather.lost_answer) {
            fate.answer = Answer::Lost;
        } else if chance.percent(weather.lost_request) {
            fate.answer = Answer::NeverArrived;
        } else if chance.percent(weather.twice) {
            fate.answer = Answer::Twice;
        }
        fate.message = chance.percent(weather.message_beside_end);
        fate
    }

    async fn commit(&self, pid: u32, claim: &Claim, batch: &Batch) -> Result<Committed, AppendError> {
        let answer = self.memory().append(claim, batch).await;
        let kinds: Vec<_> = batch.events.iter().map(|new| new.event.kind().as_str()).collect();
        let durability = batch.durability;
        let note = match &answer {
            Ok(Committed { head }) => format!("commit #{head} {durability:?} [{}]", kinds.join(" ")),
            Err(error) => format!("append refused ({error}) [{}]", kinds.join(" ")),
        };
        self.record.note(&format!("p{pid}"), &note);
        if let Ok(Committed { head }) = &answer {
            self.committed(pid, claim, batch, *head);
        }
        answer
    }

    fn committed(&self, pid: u32, claim: &Claim, batch: &Batch, head: Seq) {
        let mut shadow = self.shadow();
        let run = shadow.runs.entry(claim.run.clone()).or_default();
        if run.batches.insert(batch.id.0.clone(), head).is_some() {
            return;
        }
        if run.fence != claim.fence {
            let what = format!("p{pid} committed under fence {} while {} was out", claim.fence, run.fence);
            self.record.breach("law_10", what);
        }
        run.events.extend(batch.events.iter().cloned());
        let begun = batch.events.iter().find_map(|new| match &new.event {
            Event::RunStarted(started) => started.descent.clone(),
            _ => None,
        });
        if head.0 != run.events.len() as u64 {
            let what = format!("the store counts {head} events where {} were acknowledged", run.events.len());
            self.record.breach("law_1", what);
        }
        if let Some(descent) = begun {
            let parent = shadow.runs.get(&descent.parent);
            if !parent.is_some_and(|parent| parent.has_synced_child(&claim.run)) {
                let what = format!("{} begins before its parent has it synced that it was asked for", claim.run);
                self.record.breach("law_2", what);
            }
        }
        match batch.durability {
            Durability::Synced => shadow.runs.values_mut().for_each(|run| run.synced = run.events.len()),
            Durability::Written => {}
        }
    }
}

fn body_in_words(body: &InputBody) -> String {
    match body {
        InputBody::Message(_) => "message".to_owned(),
        InputBody::Approve(approve) => format!("approve {}", approve.action),
        InputBody::Deny(deny) => format!("deny {}", deny.action),
        InputBody::Settle(settle) => format!("settle {}", settle.action),
        InputBody::Cancel => "cancel".to_owned(),
        InputBody::LateOutcome(late) => format!("late {} {:?}", late.action, outcome_word(&late.outcome)),
        InputBody::Raise(_) => "raise".to_owned(),
        InputBody::SwitchModel(_) => "switch".to_owned(),
        InputBody::Endorse(endorse) => format!("endorse {}", endorse.source),
        InputBody::ChildEnded(report) => format!("child {} {}", report.child, report.end.state()),
        InputBody::Rollback(_) => "rollback".to_owned(),
    }
}

fn outcome_word(outcome: &longrein_core::outcome::Outcome) -> &'static str {
    match outcome {
        longrein_core::outcome::Outcome::Done(_) => "done",
        longrein_core::outcome::Outcome::Error(_) => "error",
        longrein_core::outcome::Outcome::NotDone(_) => "not_done",
        longrein_core::outcome::Outcome::Unknown(_) => "unknown",
    }
}

struct Fate {
    wait: Duration,
    answer: Answer,
    message: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Plain,
    Lost,
    NeverArrived,
    Twice,
}

/// The store as one process sees it.
pub struct Door {
    pub store: Arc<Store>,
    pub process: Arc<Process>,
    /// Posts this handle has answered for, by run.
    told: Mutex<BTreeMap<RunId, usize>>,
}

/// How soon another process's post is seen.
const SEEN_WITHIN: Duration = Duration::from_millis(300);

impl Door {
    pub fn new(store: &Arc<Store>, process: &Arc<Process>) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), process: Arc::clone(process), told: Mutex::default() })
    }

    /// A look at the store: may be slow.
    async fn look(&self, what: &str) {
        self.process.call(what).await;
        let wait = self.store.draw().wait;
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(Duration::from_secs(3))).await;
            self.process.pass().await;
        }
    }
}

impl Journal for Door {
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>> {
        Box::pin(async move {
            self.look(&format!("claim {run}")).await;
            let claim = self.store.memory().claim(run, worker, workspace, create).await?;
            {
                let mut shadow = self.store.shadow();
                let shadow = shadow.runs.entry(run.clone()).or_default();
                shadow.fence = claim.fence;
                shadow.holder = worker.pid;
                if claim.head.0 != shadow.events.len() as u64 {
                    let what =
                        format!("{} events were acknowledged, the store has {}", shadow.events.len(), claim.head);
                    self.store.record.breach("law_1", what);
                }
            }
            self.process.record.note(&format!("p{}", worker.pid), &format!("claimed {run} fence {}", claim.fence));
            self.process.pass().await;
            Ok(claim)
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        Box::pin(async move {
            self.look("renew").await;
            let fate = self.store.draw();
            let answer = self.store.memory().renew(claim).await;
            self.process.pass().await;
            match fate.answer {
                Answer::Lost | Answer::NeverArrived => Err(AppendError::Unknown),
                Answer::Plain | Answer::Twice => answer,
            }
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.look("release").await;
            self.store.memory().release(claim).await
        })
    }

    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            self.process.call("append").await;
            let fate = self.store.draw();
            if fate.message && batch.ends_the_run() {
                let id = format!("beside.{}", batch.id.0);
                // Closed or not begun yet: then nothing stands beside the end.
                let _ = self.store.post(&claim.run, &id, InputBody::Message("one more thing".to_owned())).await;
            }
            if fate.answer == Answer::NeverArrived {
                tokio::time::sleep(fate.wait).await;
                self.process.pass().await;
                return Err(AppendError::Unknown);
            }
            let pid = self.process.worker.pid;
            let answer = if fate.wait.is_zero() {
                self.store.commit(pid, claim, batch).await
            } else {
                // On its way: it lands even if nobody waits for the answer any more.
                let (store, claim, batch) = (Arc::clone(&self.store), claim.clone(), batch.clone());
                let losses = store.losses.load(Ordering::Relaxed);
                let sent = tokio::spawn(async move {
                    tokio::time::sleep(fate.wait).await;
                    if store.losses.load(Ordering::Relaxed) != losses {
                        return Err(AppendError::Unknown);
                    }
                    store.commit(pid, &claim, &batch).await
                });
                sent.await.unwrap_or(Err(AppendError::Unknown))
            };
            let answer = match fate.answer {
                Answer::Plain | Answer::NeverArrived => answer,
                Answer::Lost => Err(AppendError::Unknown),
                Answer::Twice => self.store.commit(pid, claim, batch).await,
            };
            self.process.pass().await;
            self.process.glance();
            answer
        })
    }

    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>> {
        Box::pin(async move {
            self.look("read").await;
            self.store.memory().read(run, after, limit).await
        })
    }

    fn runs(&self) -> BoxFuture<'_, Result<Vec<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            self.look("runs").await;
            self.store.memory().runs().await
        })
    }

    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            self.look("row").await;
            self.store.memory().row(run).await
        })
    }

    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        Box::pin(async move {
            self.look(&format!("post {}", input.id)).await;
            self.store.post_with(run, input, blobs).await
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>> {
        Box::pin(async move {
            self.look("inbox").await;
            self.store.memory().inbox(run).await
        })
    }

    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            loop {
                self.process.pass().await;
                let posted = self.store.shadow().runs.get(run).map_or(0, |run| run.posted.len());
                {
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    let told = told.entry(run.clone()).or_default();
                    if posted > *told {
                        *told = posted;
                        return;
                    }
                }
                tokio::time::sleep(SEEN_WITHIN).await;
            }
        })
    }

    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>> {
        Box::pin(async move {
            self.look(&format!("key {}", id.tool)).await;
            self.store.memory().key(id).await
        })
    }

    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move {
            self.look("blob").await;
            self.store.memory().blob(digest).await
        })
    }

    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>> {
        Box::pin(async move { self.store.memory().verify(run).await })
    }
}

impl Archive for Door {
    fn index<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.look("index").await;
            self.store.memory().index(run).await
        })
    }

    fn find<'a>(
        &'a self,
        run: &'a RunId,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Found>, JournalError>> {
        Box::pin(async move {
            self.look("find").await;
            self.store.memory().find(run, query, most).await
        })
    }

    fn piece<'a>(&'a self, run: &'a RunId, handle: &'a Handle) -> BoxFuture<'a, Result<Option<Piece>, JournalError>> {
        Box::pin(async move {
            self.look(&format!("piece {handle}")).await;
            self.store.memory().piece(run, handle).await
        })
    }
}

/// One that must not be used: cut off, of another version whose fold came to something else, or of another event.
fn spoiled(snapshot: &Snapshot) -> Snapshot {
    let Snapshot { seq, catalogue, body } = snapshot.clone();
    match seq.0 % 3 {
        0 => Snapshot { seq, catalogue, body: body.slice(..body.len() / 2) },
        1 => {
            let mut state: Value = serde_json::from_slice(&body).unwrap_or_default();
            state["failed_calls"] = Value::from(4_242);
            Snapshot { seq, catalogue: format!("{catalogue}.other"), body: state.to_string().into() }
        }
        _ => {
            let mut state: Value = serde_json::from_slice(&body).unwrap_or_default();
            state["head"] = Value::from(1);
            Snapshot { seq, catalogue, body: state.to_string().into() }
        }
    }
}

/// What may be lost is lost here whenever a request is, and answered for all the same; what may be spoiled is spoiled.
impl Cabinet for Door {
    fn keep_snapshot<'a>(&'a self, run: &'a RunId, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.look(&format!("keep snapshot {}", snapshot.seq)).await;
            let kept = match self.store.draw().answer {
                Answer::NeverArrived => return Ok(()),
                Answer::Lost => spoiled(snapshot),
                Answer::Plain | Answer::Twice => snapshot.clone(),
            };
            self.store.memory().keep_snapshot(run, &kept).await
        })
    }

    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>> {
        Box::pin(async move {
            self.look("snapshots").await;
            self.store.memory().snapshots(run).await
        })
    }

    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.look("remember").await;
            match self.store.draw().answer {
                Answer::NeverArrived => Ok(()),
                Answer::Plain | Answer::Lost | Answer::Twice => self.store.memory().remember(key, value).await,
            }
        })
    }

    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move {
            self.look("recollect").await;
            self.store.memory().recollect(key).await
        })
    }
}
