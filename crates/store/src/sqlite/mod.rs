//! The journal in one SQLite file (WAL mode), shared by any number of processes on one machine.
//!
//! All writing goes through one connection per handle, and what must be synced through one thread, which commits what all
//! runs ask for in groups (see [`writer`]); reading is a direct call on a second connection, which writing never blocks. The file itself is touched by SQLite only:
//! closing any other descriptor of it would drop this process's locks (`failures.md` 15.3).

mod bell;
mod blobs;
mod cache;
mod collect;
mod files;
mod health;
mod open;
mod place;
mod table;
mod words;
mod writer;

pub use health::{Health, health, place_fits, sqlite_version};

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::context::archive::Handle;
use longrein_core::ids::{Digest, RunId, Seq};
use longrein_core::input::Input;
use longrein_ports::{
    AppendError, Archive, Batch, BoxFuture, Cabinet, Claim, ClaimError, Clock, Collected, Committed, Create,
    Durability, Endorsement, Finding, Found, Holder, Journal, JournalError, KeyId, KeyRow, Marks, Piece, Posted,
    Recorded, RunRow, Snapshot, Store, Unread, VerifyReport, Worker,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::archive::Query;
use crate::encoding::{
    ClaimRecord, EndorsementRecord, InboxRecord, KeyRecord, MarkRecord, RunRecord, Sealed, StoredEvent, genesis,
    read_chain,
};
use crate::rules::{self, Decided, Now, Prepared, Rows};
use crate::verify::Everything;
use crate::wakeups::Wakeups;
use crate::{Alive, here, marks_of, newest_first, verify};

use bell::Bell;
use blobs::BlobFolder;
use cache::CacheFolder;
use table::Table;
use words::Indexes;
use writer::{Desk, Job, Request, StoreFailed, Writer};

/// A store in an SQLite file.
pub struct SqliteJournal {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    writer: Option<JoinHandle<()>>,
    reader: Mutex<Connection>,
}

/// What the handle and its writer both use.
struct Shared {
    path: PathBuf,
    blobs: BlobFolder,
    cache: CacheFolder,
    indexes: Indexes,
    clock: Arc<dyn Clock>,
    alive: Alive,
    here: Worker,
    wakeups: Wakeups,
    bell: Bell,
    desk: Mutex<Desk>,
    /// Jobs that were handed to the thread and are not committed yet: nothing overtakes them.
    queued: AtomicUsize,
    /// Set once by a failed write; from then on every call fails with it (`semantics.md` A4).
    failed: OnceLock<String>,
}

impl Shared {
    /// Whether any run of the store is held just now.
    fn anybody_works(&self, table: &Table<'_>) -> Result<bool, JournalError> {
        for record in table.all_runs()? {
            if let Some(claim) = table.claim(&record.run)?
                && self.now().holder(&claim, &self.here.host, &self.here.boot).is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn now(&self) -> Now<'_> {
        Now { clock: &*self.clock, alive: &*self.alive }
    }

    /// The bytes of a blob if they are there and whole. `row`: what its row holds, if there is one.
    fn whole(&self, digest: &Digest, row: Option<Bytes>) -> Result<Option<Bytes>, JournalError> {
        let bytes = match row {
            Some(bytes) => Some(bytes),
            None => self.blobs.read(digest)?,
        };
        Ok(bytes.filter(|bytes| Digest::of(bytes) == *digest))
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A transaction that a panic left open makes the next one fail, which stops the handle (`semantics.md` A4).
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a job here and now; gives it back if it may have to wait, or others wait already.
    fn commit_at_once(&self, job: Job) -> Result<(), Job> {
        match self.desk.try_lock() {
            Ok(mut desk) if self.queued.load(Ordering::SeqCst) == 0 => desk.commit_at_once(self, job),
            Ok(_) | Err(_) => Err(job),
        }
    }
}

impl SqliteJournal {
    /// Opens the store at `path`; makes it, and its folder, if there is none.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, JournalError> {
        Self::open_with(path, clock, Arc::new(here::is_alive))
    }

    /// The same with another way to tell whether a worker of this host and boot is alive.
    pub fn open_with(path: &Path, clock: Arc<dyn Clock>, alive: Alive) -> Result<Self, JournalError> {
        let path = std::path::absolute(path)
            .map_err(|error| JournalError::Unusable(format!("{} is no usable path: {error}", path.display())))?;
        let here = here::worker_here().map_err(|error| {
            JournalError::Unusable(format!("this process cannot tell who it is from /proc: {error}"))
        })?;
        let connection = open::writer(&path)?;
        Self::start(connection, path, here, clock, alive)
    }

    fn start(
        connection: Connection,
        path: PathBuf,
        here: Worker,
        clock: Arc<dyn Clock>,
        alive: Alive,
    ) -> Result<Self, JournalError> {
        let reader = Mutex::new(open::reader(&path)?);
        let shared = Arc::new(Shared {
            blobs: BlobFolder::beside(&path),
            cache: CacheFolder::beside(&path),
            indexes: Indexes::default(),
            bell: Bell::beside(&path),
            desk: Mutex::new(Desk::new(connection, &path)),
            path,
            clock,
            alive,
            here,
            wakeups: Wakeups::default(),
            queued: AtomicUsize::new(0),
            failed: OnceLock::new(),
        });
        let (requests, queue) = std::sync::mpsc::channel();
        let thread = Writer::new(queue, Arc::clone(&shared));
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run())
            .map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        Ok(Self { shared, requests, writer: Some(writer), reader })
    }

    /// Has a decision committed, or refused, and waits for that. What was begun is done even if nobody waits any more.
    async fn write<T, E>(
        &self,
        job: JobKind,
        decide: impl FnOnce(&Table<'_>, &Shared) -> Result<Decided<T>, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<JournalError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let job = Job::new(job.durability, job.wakes, job.large, move |table| decide(table, &shared), answer);
        if let Err(job) = self.shared.commit_at_once(job) {
            self.shared.queued.fetch_add(1, Ordering::SeqCst);
            if self.requests.send(Request::Job(job)).is_err() {
                return Err(E::from(self.writer_is_gone()));
            }
        }
        answered.await.unwrap_or_else(|_| Err(E::from(self.writer_is_gone())))
    }

    fn writer_is_gone(&self) -> JournalError {
        StoreFailed::error(self.shared.failed.get().map_or("the thread that writes it has ended", String::as_str))
    }

    fn read_with<T>(&self, read: impl FnOnce(&Table<'_>) -> Result<T, JournalError>) -> Result<T, JournalError> {
        if let Some(why) = self.shared.failed.get() {
            return Err(StoreFailed::error(why));
        }
        let reader = self.reader();
        read(&Table::new(&reader, &self.shared.path))
    }

    /// Work that reads the whole file: on a thread and a connection of its own, so that nobody waits for it.
    async fn aside<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        if let Some(why) = self.shared.failed.get() {
            return Err(StoreFailed::error(why));
        }
        let (answer, answered) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ = answer.send(work());
            })
            .map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        answered.await.unwrap_or_else(|_| Err(StoreFailed::error("a thread of the store ended without an answer")))
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        // A connection has no state between statements that a panic could leave half made.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holder(&self, table: &Table<'_>, run: &RunId) -> Result<Option<Holder>, JournalError> {
        let Shared { here, .. } = &*self.shared;
        Ok(table.claim(run)?.and_then(|claim| self.shared.now().holder(&claim, &here.host, &here.boot)))
    }

    /// Whether anything was ever appended to the run, and is still there.
    fn is_there(&self, run: &RunId) -> Result<bool, JournalError> {
        let record = self.read_with(|table| table.run(run))?;
        Ok(record.is_some_and(|record| record.head > 0))
    }
}

impl Drop for SqliteJournal {
    /// Lets what is queued be committed, then closes the file.
    fn drop(&mut self) {
        // The receiver is gone only if the thread has ended already.
        self.shared.bell.hang_up();
        let _ = self.requests.send(Request::Stop);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// What the writer must know of a job besides what it does.
struct JobKind {
    durability: Durability,
    /// Whoever waits for the inbox of this run is woken after the commit.
    wakes: Option<RunId>,
    /// Blobs for the folder, to be there before the transaction.
    large: Vec<(Digest, Bytes)>,
}

impl JobKind {
    fn plain(durability: Durability) -> Self {
        Self { durability, wakes: None, large: Vec::new() }
    }
}

impl Journal for SqliteJournal {
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>> {
        let (run, worker, workspace) = (run.clone(), worker.clone(), workspace.map(str::to_owned));
        Box::pin(self.write(JobKind::plain(Durability::Written), move |table, shared| {
            rules::claim(table, &shared.now(), &run, &worker, workspace.as_deref(), create)
        }))
    }

    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        let claim = claim.clone();
        Box::pin(self.write(JobKind::plain(Durability::Written), move |table, shared| {
            rules::renew(table, &shared.now(), &claim)
        }))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>> {
        let claim = claim.clone();
        Box::pin(self.write(JobKind::plain(Durability::Written), move |table, _| rules::release(table, &claim)))
    }

    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let batch = Prepared::of(claim, batch)?;
            let large = batch.blobs.iter().filter(|(_, bytes)| blobs::is_large(bytes)).cloned().collect();
            let kind = JobKind { durability: batch.durability, wakes: None, large };
            let claim = claim.clone();
            self.write(kind, move |table, _| rules::append(table, &claim, &batch)).await
        })
    }

    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>> {
        let after = i64::try_from(after.0).unwrap_or(i64::MAX);
        Box::pin(async move {
            self.read_with(|table| {
                // The head first: events that are committed between the two looks are no gap.
                let record = table.run(run)?.filter(|record| record.fault().is_none());
                let previous = if after == 0 { Some(genesis(run)) } else { table.checksum(run, after)? };
                // Numbers start at 1; whatever a damaged file holds below is shown too.
                let from = if after == 0 { i64::MIN } else { after };
                let events = table.events(run, from, limit)?;
                let head = record.filter(|_| events.len() < limit).map(|record| record.head);
                Ok(read_chain(previous, after, &events, head))
            })
        })
    }

    fn runs(&self) -> BoxFuture<'_, Result<Vec<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            self.read_with(|table| {
                let mut listed = Vec::new();
                for record in table.all_runs()? {
                    let Some(row) = record.row() else { continue };
                    listed.push((row, self.holder(table, &record.run)?));
                }
                listed.sort_by(newest_first);
                Ok(listed)
            })
        })
    }

    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            self.read_with(|table| match table.run(run)?.as_ref().and_then(RunRecord::row) {
                Some(row) => Ok(Some((row, self.holder(table, run)?))),
                None => Ok(None),
            })
        })
    }

    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        let large = blobs.iter().filter(|(_, bytes)| blobs::is_large(bytes)).cloned().collect();
        let kind = JobKind { durability: Durability::Synced, wakes: Some(run.clone()), large };
        let (run, input, blobs) = (run.clone(), input.clone(), blobs.to_vec());
        Box::pin(async move {
            let posted = self.write(kind, move |table, _| rules::post(table, &run, &input, &blobs)).await;
            self.shared.bell.ring();
            posted
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>> {
        Box::pin(async move {
            let untaken = self.read_with(|table| table.untaken(run))?;
            untaken.into_iter().map(|record| record.checked()?.input()).collect()
        })
    }

    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            Bell::listen(&self.shared);
            let wait = self.shared.wakeups.wait(run);
            // The writer looks out for other processes while somebody waits; it may be asleep in its queue.
            let _ = self.requests.send(Request::Look);
            wait.changed(|| self.read_with(|table| table.arrivals(run)).ok()).await;
        })
    }

    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>> {
        Box::pin(
            async move { self.read_with(|table| table.key(id)?.map(|record| record.checked()?.row()).transpose()) },
        )
    }

    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move { self.shared.whole(digest, self.read_with(|table| table.blob(digest))?) })
    }

    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>> {
        Box::pin(async move {
            let (shared, run) = (Arc::clone(&self.shared), run.clone());
            self.aside("store-verify", move || verify_alone(&shared, &run)).await
        })
    }
}

impl Store for SqliteJournal {
    fn purge<'a>(&'a self, runs: &'a [RunId], unread: Unread) -> BoxFuture<'a, Result<(), ClaimError>> {
        let kind = JobKind { durability: Durability::Synced, wakes: None, large: Vec::new() };
        Box::pin(async move {
            let purged = runs.to_vec();
            let purge = move |table: &Table<'_>, shared: &Shared| {
                rules::purge(table, &shared.now(), &purged, unread, &shared.here)
            };
            self.write(kind, purge).await?;
            for run in runs {
                self.shared.indexes.forget(run);
                // Whoever is killed before this leaves it to the next collection.
                self.shared.cache.forget(run)?;
            }
            Ok(())
        })
    }

    fn marks(&self, after: u64) -> Result<Marks, JournalError> {
        let records = self.read_with(|table| table.marks(i64::try_from(after).unwrap_or(i64::MAX)))?;
        marks_of(records, after)
    }

    fn endorsements(&self) -> Result<Vec<Endorsement>, JournalError> {
        let records = self.read_with(|table| table.endorsements())?;
        records.into_iter().map(|record| record.checked()?.endorsement()).collect()
    }

    fn endorse<'a>(&'a self, endorsement: &'a Endorsement) -> BoxFuture<'a, Result<(), JournalError>> {
        let endorsement = endorsement.clone();
        Box::pin(self.write(JobKind::plain(Durability::Synced), move |_, _| rules::endorse(&endorsement)))
    }

    fn forget_endorsement<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<bool, JournalError>> {
        let source = source.to_owned();
        Box::pin(self.write(JobKind::plain(Durability::Synced), move |table, _| rules::distrust(table, &source)))
    }

    fn collect(&self, older_than: Duration) -> BoxFuture<'_, Result<Collected, JournalError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            self.aside("store-collect", move || collect::collect(&shared, older_than)).await
        })
    }
}

impl Archive for SqliteJournal {
    fn index<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            if !self.is_there(run)? {
                return Ok(());
            }
            let (shared, run) = (Arc::clone(&self.shared), run.clone());
            self.aside("store-index", move || {
                shared.indexes.with(&shared, &run, |index, shared| index.bring_up(shared))
            })
            .await
        })
    }

    fn find<'a>(
        &'a self,
        run: &'a RunId,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Found>, JournalError>> {
        Box::pin(async move {
            let query = Query::of(query);
            if query.is_empty() || most == 0 || !self.is_there(run)? {
                return Ok(Vec::new());
            }
            let (shared, run) = (Arc::clone(&self.shared), run.clone());
            let find = move || shared.indexes.with(&shared, &run, |index, shared| index.find(shared, &query, most));
            self.aside("store-find", find).await
        })
    }

    fn piece<'a>(&'a self, run: &'a RunId, handle: &'a Handle) -> BoxFuture<'a, Result<Option<Piece>, JournalError>> {
        Box::pin(async move {
            if !self.is_there(run)? {
                return Ok(None);
            }
            let (shared, run, handle) = (Arc::clone(&self.shared), run.clone(), *handle);
            let piece = move || shared.indexes.with(&shared, &run, |index, shared| index.piece(shared, &handle));
            self.aside("store-piece", piece).await
        })
    }
}

impl Cabinet for SqliteJournal {
    fn keep_snapshot<'a>(&'a self, run: &'a RunId, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let (shared, run, snapshot) = (Arc::clone(&self.shared), run.clone(), snapshot.clone());
            let keep = move || {
                let journal = open::reader(&shared.path)?;
                shared.cache.keep_snapshot(&Table::new(&journal, &shared.path), &run, &snapshot)
            };
            self.aside("store-keep", keep).await
        })
    }

    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>> {
        Box::pin(async move {
            let (shared, run) = (Arc::clone(&self.shared), run.clone());
            let read = move || {
                let journal = open::reader(&shared.path)?;
                shared.cache.snapshots(&Table::new(&journal, &shared.path), &run)
            };
            self.aside("store-snapshots", read).await
        })
    }

    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move { self.shared.cache.remember(key, &value) })
    }

    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move { self.shared.cache.recollect(key) })
    }
}

fn verify_alone(shared: &Shared, run: &RunId) -> Result<Option<VerifyReport>, JournalError> {
    let connection = open::reader(&shared.path)?;
    let table = Table::new(&connection, &shared.path);
    let integrity = table.integrity();
    // One snapshot for all that follows.
    table.execute("BEGIN")?;
    let report = match verify::verify(&Files::of(shared, &table), run) {
        Ok(report) => report,
        // A file too damaged to be read through is a finding, not a failure to verify.
        Err(error) if !integrity.is_empty() => Some(VerifyReport {
            events: 0,
            inputs: 0,
            keys: 0,
            blobs: 0,
            findings: vec![Finding { record: "store".to_owned(), fault: error.to_string() }],
        }),
        Err(error) => return Err(error),
    };
    Ok(report.map(|mut report| {
        let of_store = |fault| Finding { record: "store".to_owned(), fault };
        report.findings.extend(integrity.into_iter().map(of_store));
        report
    }))
}

/// Rows and blob files together.
struct Files<'a> {
    table: &'a Table<'a>,
    blobs: &'a BlobFolder,
    cache: &'a CacheFolder,
}

impl<'a> Files<'a> {
    fn of(shared: &'a Shared, table: &'a Table<'a>) -> Self {
        Self { table, blobs: &shared.blobs, cache: &shared.cache }
    }
}

impl Everything for Files<'_> {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError> {
        self.table.run(run)
    }
    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError> {
        self.table.claim(run)
    }
    fn events(&self, run: &RunId, after: i64, limit: usize) -> Result<Vec<StoredEvent>, JournalError> {
        self.table.events(run, after, limit)
    }
    fn inbox(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
        self.table.inbox(run)
    }
    fn keys(&self) -> Result<Vec<KeyRecord>, JournalError> {
        self.table.keys()
    }
    fn marks(&self) -> Result<Vec<MarkRecord>, JournalError> {
        self.table.marks(i64::MIN)
    }
    fn endorsements(&self) -> Result<Vec<EndorsementRecord>, JournalError> {
        self.table.endorsements()
    }
    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError> {
        match self.table.blob(digest)? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.blobs.read(digest),
        }
    }
    fn snapshots(&self, run: &RunId) -> Result<Vec<(Seq, Bytes)>, JournalError> {
        self.cache.snapshot_bytes(run)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::task::{Context, Wake};

    use longrein_core::event::{Event, RunParked};
    use longrein_core::time::Timestamp;
    use longrein_ports::{BatchId, NewEvent};

    use super::*;

    /// After a write that failed the handle takes no more calls; what was committed is there for the next one.
    #[tokio::test]
    async fn a_full_disk_stops_the_handle() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("longrein.db");
        let connection = open::writer(&path).expect("opens");
        connection.query_row("PRAGMA max_page_count = 40", [], |_| Ok(())).expect("limits the file");
        let here = here::worker_here().expect("proc is readable");
        let clock = Arc::new(crate::SystemClock::default());
        let journal = SqliteJournal::start(connection, path.clone(), here.clone(), clock.clone(), Arc::new(|_| false))
            .expect("starts");
        let run = RunId::new("r1");
        let claim = journal.claim(&run, &here, None, Create::IfAbsent).await.expect("claims");
        let mut head = 0;
        let error = loop {
            match journal.append(&claim, &batch(&run, head)).await {
                Ok(committed) => head = committed.head.0,
                Err(error) => break error,
            }
            assert!(head < 1000, "the limit is reached long before");
        };
        assert!(head > 0);
        assert!(matches!(&error, AppendError::Journal(JournalError::Unavailable(_))), "{error}");
        assert!(error.to_string().contains("full"), "says why: {error}");
        let again = journal.append(&claim, &batch(&run, head)).await;
        assert!(matches!(again, Err(AppendError::Journal(JournalError::Unavailable(_)))), "{again:?}");
        assert!(journal.read(&run, Seq(0), 1).await.is_err());
        assert!(journal.renew(&claim).await.is_err());
        let next = SqliteJournal::open_with(&path, clock, Arc::new(|_| false)).expect("opens again");
        let claim = next.claim(&run, &here, None, Create::Never).await.expect("claims again");
        assert_eq!(claim.head, Seq(head));
        assert_eq!(next.verify(&run).await.expect("verifies").expect("is there").findings, []);
    }

    /// What is committed to a file that nobody finds under its name any more is kept nowhere: that is no success.
    #[tokio::test]
    async fn a_file_that_is_gone_stops_the_handle() {
        for (what, suffix) in [("removed", ""), ("replaced", ""), ("removed", "-wal"), ("replaced", "-wal")] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("longrein.db");
            let journal = SqliteJournal::open(&path, Arc::new(crate::SystemClock::default())).expect("opens");
            let here = here::worker_here().expect("proc is readable");
            let run = RunId::new("r1");
            let claim = journal.claim(&run, &here, None, Create::IfAbsent).await.expect("claims");
            journal.append(&claim, &batch(&run, 0)).await.expect("appends");
            let file = open::beside(&path, suffix);
            let aside = folder.path().join("aside");
            match what {
                "removed" => std::fs::remove_file(&file).expect("can be removed"),
                _ => {
                    std::fs::copy(&file, &aside).expect("can be copied");
                    std::fs::rename(&aside, &file).expect("can be replaced");
                }
            }
            let error = journal.append(&claim, &batch(&run, 1)).await.expect_err("it would be lost");
            assert!(matches!(&error, AppendError::Journal(JournalError::Unavailable(_))), "{error}");
            let told = error.to_string();
            assert!(told.contains(&format!("longrein.db{suffix} was removed")), "{what} {suffix}: {told}");
            assert_eq!(told.matches("the store failed").count(), 1, "{told}");
            assert!(journal.read(&run, Seq(0), 1).await.is_err());
        }
    }

    /// Notes how large a file is at the moment of the answer.
    struct AtAnswer {
        file: PathBuf,
        bytes: Mutex<Option<u64>>,
        told: Condvar,
    }

    impl Wake for AtAnswer {
        fn wake(self: Arc<Self>) {
            let bytes = std::fs::metadata(&self.file).expect("the file is there").len();
            self.bytes.lock().expect("nothing panics under it").get_or_insert(bytes);
            self.told.notify_all();
        }
    }

    /// Copying the log into the database syncs twice: whoever appended has its answer by then.
    #[test]
    fn an_append_is_answered_before_the_log_is_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("longrein.db");
        let journal = SqliteJournal::open(&path, Arc::new(crate::SystemClock::default())).expect("opens");
        let here = here::worker_here().expect("proc is readable");
        let run = RunId::new("r1");
        let claim = block_on(journal.claim(&run, &here, None, Create::IfAbsent)).expect("claims");
        let size = || std::fs::metadata(&path).expect("the file is there").len();
        let mut copied = 0;
        for head in 0..40 {
            // Whatever the append before left to be done is done when the desk is free.
            drop(journal.shared.desk());
            let before = size();
            let mut batch = batch(&run, head);
            let bytes = Bytes::from(format!("{head} {}", "x".repeat(blobs::ROW_MAX_BYTES - 100)));
            batch.blobs.push((Digest::of(&bytes), bytes));
            let (file, bytes) = (path.clone(), Mutex::default());
            let answer = Arc::new(AtAnswer { file, bytes, told: Condvar::new() });
            let mut append = journal.append(&claim, &batch);
            let waker = answer.clone().into();
            assert!(
                append.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(),
                "what is synced is waited for"
            );
            let bytes = answer.bytes.lock().expect("nothing panics under it");
            let bytes = answer.told.wait_while(bytes, |bytes| bytes.is_none()).expect("nothing panics under it");
            assert_eq!(*bytes, Some(before), "append {head}");
            block_on(append).expect("appends");
            drop(journal.shared.desk());
            copied += u32::from(size() > before);
        }
        assert!(copied > 1, "the log was copied {copied} times");
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("builds").block_on(work)
    }

    fn batch(run: &RunId, head: u64) -> Batch {
        let event = Event::RunParked(RunParked { waits: vec![] });
        let text = "x".repeat(1000);
        let row = RunRow {
            parent: None,
            run: run.clone(),
            state: "running".to_owned(),
            reason: String::new(),
            goal: String::new(),
            turns: 0,
            micros: 0,
            started: Timestamp(0),
            updated: Timestamp(0),
            sources: vec![],
        };
        let bytes = Bytes::from(format!("{head} {text}"));
        Batch {
            id: BatchId(format!("b{head}")),
            expected: Seq(head),
            events: vec![NewEvent { at: Timestamp(head), event }],
            consumed: vec![],
            keys: vec![],
            marks: vec![],
            blobs: vec![(Digest::of(&bytes), bytes)],
            durability: Durability::Synced,
            row,
        }
    }
}
