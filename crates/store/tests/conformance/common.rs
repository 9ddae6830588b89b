//! What the store's tests share: a bench with a store, a clock that stands still, and workers that can be killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longrein_core::check::{Finding, Verdict};
use longrein_core::event::{CheckFinished, Durability, Event, RunParked};
use longrein_core::ids::{ActionId, CheckName, Digest, InputId, RunId, Seq, ToolName};
use longrein_core::input::{Input, InputBody};
use longrein_core::payload::{Content, Payload};
use longrein_core::time::{Timestamp, millis};
use longrein_ports::{
    AppendError, Batch, BatchId, Claim, ClaimError, Clock, Committed, Create, KeyChange, KeyId, NewEvent, RunRow,
    Store, Worker,
};
use longrein_store::{Alive, MemoryJournal, SqliteJournal};

/// A clock that moves when told to.
#[derive(Default)]
pub(crate) struct StillClock(Mutex<Duration>);

impl StillClock {
    pub(crate) fn pass(&self, span: Duration) {
        *self.0.lock().unwrap() += span;
    }
    pub(crate) fn boot(&self) -> Duration {
        Duration::from_secs(1000) + *self.0.lock().unwrap()
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000 + millis(self.boot()))
    }
    fn boottime(&self) -> Duration {
        self.boot()
    }
    fn jitter(&self) -> u32 {
        4
    }
}

pub(crate) struct Bench {
    pub(crate) journal: Arc<dyn Store>,
    pub(crate) memory: Option<MemoryJournal>,
    pub(crate) clock: Arc<StillClock>,
    dead: Arc<Mutex<BTreeSet<u32>>>,
    here: Worker,
    folder: tempfile::TempDir,
}

impl Bench {
    fn make(open: impl FnOnce(Arc<StillClock>, Alive, PathBuf) -> (Arc<dyn Store>, Option<MemoryJournal>)) -> Self {
        let clock = Arc::new(StillClock::default());
        let dead = Arc::new(Mutex::new(BTreeSet::new()));
        let graves = Arc::clone(&dead);
        let alive: Alive = Arc::new(move |worker: &Worker| !graves.lock().unwrap().contains(&worker.pid));
        let folder = tempfile::tempdir().unwrap();
        let (journal, memory) = open(Arc::clone(&clock), alive, folder.path().join("home/longrein.db"));
        Self { journal, memory, clock, dead, here: longrein_store::worker_here().unwrap(), folder }
    }

    pub(crate) fn memory() -> Self {
        Self::make(|clock, alive, _| {
            let journal = MemoryJournal::new(clock, alive);
            (Arc::new(journal.clone()), Some(journal))
        })
    }

    pub(crate) fn sqlite() -> Self {
        Self::make(|clock, alive, path| (Arc::new(SqliteJournal::open_with(&path, clock, alive).unwrap()), None))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("home/longrein.db")
    }

    /// Where an SQLite store keeps the caches of a run.
    pub(crate) fn cache_of(&self, run: &RunId) -> PathBuf {
        let runs = self.path().with_file_name("longrein.db-cache").join("runs");
        runs.join(Digest::of(run.as_str().as_bytes()).as_str())
    }

    pub(crate) fn worker(&self, pid: u32) -> Worker {
        Worker { pid, ..self.here.clone() }
    }

    pub(crate) fn kill(&self, pid: u32) {
        self.dead.lock().unwrap().insert(pid);
    }

    pub(crate) async fn claim(&self, run: &str, pid: u32) -> Result<Claim, ClaimError> {
        self.journal.claim(&RunId::new(run), &self.worker(pid), None, Create::IfAbsent).await
    }

    /// A run with its first event, claimed by process 1.
    pub(crate) async fn start(&self, run: &str) -> Claim {
        let claim = self.claim(run, 1).await.unwrap();
        self.append(&claim, batch(&claim, 0, "b0", [park(1)])).await.unwrap();
        claim
    }

    pub(crate) async fn append(&self, claim: &Claim, batch: Batch) -> Result<Committed, AppendError> {
        self.journal.append(claim, &batch).await
    }

    pub(crate) async fn head(&self, run: &RunId) -> u64 {
        self.journal.read(run, Seq(0), usize::MAX).await.unwrap().last().map_or(0, |last| last.seq.0)
    }

    pub(crate) async fn is_whole(&self, run: &RunId) -> bool {
        self.journal.verify(run).await.unwrap().unwrap().findings.is_empty()
    }
}

pub(crate) fn event(at: u64, event: Event) -> NewEvent {
    NewEvent { at: Timestamp(at), event }
}

pub(crate) fn park(at: u64) -> NewEvent {
    event(at, Event::RunParked(RunParked { waits: vec![] }))
}

pub(crate) fn checked(evidence: Content) -> Event {
    let verdict =
        Verdict { finding: Finding::Passed, evidence, exit_status: Some(0), took_ms: 1, proof: Default::default() };
    let check = CheckName::new("c");
    Event::CheckFinished(CheckFinished { check, round: 1, action: None, verdict, brings: vec![], phase: None })
}

pub(crate) fn batch(claim: &Claim, expected: u64, id: &str, events: impl IntoIterator<Item = NewEvent>) -> Batch {
    Batch {
        id: BatchId(id.into()),
        expected: Seq(expected),
        events: events.into_iter().collect(),
        consumed: vec![],
        keys: vec![],
        marks: vec![],
        blobs: vec![],
        durability: Durability::Written,
        row: RunRow {
            parent: None,
            run: claim.run.clone(),
            state: "running".into(),
            reason: String::new(),
            goal: "do it".into(),
            turns: 1,
            micros: 2,
            started: Timestamp(1),
            updated: Timestamp(2),
            sources: vec![],
        },
    }
}

pub(crate) fn key(tool: &str) -> KeyId {
    KeyId { scope: "store".into(), tool: ToolName::new(tool), digest: Digest::of(b"args") }
}

/// A batch in which `action` takes the key.
pub(crate) fn take(claim: &Claim, expected: u64, batch_id: &str, id: &KeyId, action: u32) -> Batch {
    let mut batch = batch(claim, expected, batch_id, [park(expected + 1)]);
    batch.keys = vec![KeyChange::Take {
        id: id.clone(),
        run: claim.run.clone(),
        action: ActionId(action),
        args: Payload::null(),
    }];
    batch
}

pub(crate) fn input(id: &str, body: InputBody) -> Input {
    Input { id: InputId::new(id), at: Timestamp(5), body, images: Vec::new() }
}

pub(crate) fn message(id: &str) -> Input {
    input(id, InputBody::Message(format!("message {id}")))
}

/// Runs a test against every backend.
macro_rules! every_backend {
    ($($(#[$meta:meta])* async fn $name:ident($bench:ident: &Bench) $body:block)*) => {
        $(
            $(#[$meta])*
            mod $name {
                use super::*;

                async fn check($bench: &Bench) $body

                #[tokio::test]
                async fn memory() {
                    check(&Bench::memory()).await;
                }

                #[tokio::test]
                async fn sqlite() {
                    check(&Bench::sqlite()).await;
                }
            }
        )*
    };
}
pub(crate) use every_backend;
