//! The thread that writes: takes what is queued for all runs, commits it as one transaction, then answers each.
//!
//! While one group's sync is under way the next group gathers, so syncs are shared without anybody waiting for company.
//! A group is synced if anything in it must be; then everything before it is, too. Between groups the thread looks out
//! for commits of other processes while somebody here waits for an inbox.
//!
//! What needs no sync is committed by its asker where nothing else is going on ([`Desk::commit_at_once`]): going through
//! the thread and back costs more than such a commit. Nothing that may wait for a disk or for another process happens there.

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longrein_core::ids::{Digest, RunId};
use longrein_ports::{Durability, JournalError};
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tokio::sync::oneshot;

use super::Shared;
use super::files::Files;
use super::table::{Serves, Table, is_busy};
use crate::rules::Decided;

/// The most requests in one transaction: bounds how long the first waits for the last.
const GROUP_MAX: usize = 256;
/// How often other processes' posts are looked for where their bell is not heard; half of what the port promises.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Where it is: for those whose ringer was killed after the post. As often as leases are renewed.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);
/// How long another process may keep the write lock before that is reported. Four leases: nobody sane does.
const BUSY_MAX: Duration = Duration::from_secs(60);

pub(super) enum Request {
    Job(Job),
    /// Somebody waits for an inbox.
    Look,
    Stop,
}

/// One request's work, in two steps: inside the transaction, and after its end.
pub(super) struct Job {
    durability: Durability,
    wakes: Option<RunId>,
    large: Vec<(Digest, Bytes)>,
    work: Work,
}

/// Called with the open transaction, or with why there is none.
type Work = Box<dyn FnOnce(Result<&Table<'_>, JournalError>, Serves) -> Delivery + Send>;
/// Called with how the transaction ended.
type Delivery = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

impl Job {
    pub(super) fn new<T, E>(
        durability: Durability,
        wakes: Option<RunId>,
        large: Vec<(Digest, Bytes)>,
        decide: impl FnOnce(&Table<'_>) -> Result<Decided<T>, E> + Send + 'static,
        answer: oneshot::Sender<Result<T, E>>,
    ) -> Self
    where
        T: Send + 'static,
        E: From<JournalError> + Send + 'static,
    {
        let work = move |table: Result<&Table<'_>, JournalError>, serves: Serves| -> Delivery {
            let result = table.map_err(E::from).and_then(|table| {
                table.all_or_nothing(serves, || {
                    let (value, writes) = decide(table)?;
                    table.apply(writes)?;
                    Ok(value)
                })
            });
            Box::new(move |committed| {
                // Nobody listens any more if the asker was dropped; what it asked for is done all the same.
                let _ = answer.send(match committed {
                    Ok(()) => result,
                    Err(error) => Err(E::from(error)),
                });
            })
        };
        Self { durability, wakes, large, work: Box::new(work) }
    }

    fn refuse(self, error: JournalError) {
        let text = why(&error);
        (self.work)(Err(error), Serves::One)(Err(StoreFailed::error(&text)));
    }
}

/// Why a store takes no more calls.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct StoreFailed(String);

impl StoreFailed {
    pub(super) fn error(why: &str) -> JournalError {
        JournalError::Unavailable(Box::new(Self(why.to_owned())))
    }
}

/// What went wrong, without the words that are put before it again.
fn why(error: &JournalError) -> String {
    match error {
        JournalError::Unavailable(source) => source.to_string(),
        JournalError::Unusable(_) | JournalError::Corrupt { .. } => error.to_string(),
    }
}

/// The connection that writes, in the hands of one at a time: the thread, or an asker who need not wait.
pub(super) struct Desk {
    connection: Connection,
    /// What `PRAGMA synchronous` is set to.
    mode: Durability,
    log: Log,
    files: Files,
}

/// What the next commit does with the log besides adding to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// Perhaps begins it anew, which syncs its header: nothing was written to it yet, or all was copied to the database.
    New,
    Begun,
    /// Should have it copied.
    Long,
}

impl Desk {
    pub(super) fn new(connection: Connection, path: &Path) -> Self {
        connection.wal_hook(Some(look_at_log));
        Self { connection, mode: Durability::Written, log: Log::New, files: Files::of(path) }
    }

    /// Commits a job without waiting for anything. Gives it back, untouched, if it might have to.
    pub(super) fn commit_at_once(&mut self, shared: &Shared, job: Job) -> Result<(), Job> {
        let waits = job.durability == Durability::Synced || !job.large.is_empty() || self.log != Log::Begun;
        if waits || shared.failed.get().is_some() {
            return Err(job);
        }
        // Another process's lock is left to the thread, which can wait for it; so is whatever else is wrong.
        let begun = self
            .set(Durability::Written, shared)
            .and_then(|()| self.table(shared).without_waiting(|table| table.execute("BEGIN IMMEDIATE")));
        if begun.is_err() {
            return Err(job);
        }
        self.carry_out(shared, vec![job]);
        if LOG_IS_LONG.take() {
            self.log = Log::Long;
        }
        Ok(())
    }

    fn commit(&mut self, shared: &Shared, group: Vec<Job>) {
        if let Some(why) = shared.failed.get() {
            return group.into_iter().for_each(|job| job.refuse(StoreFailed::error(why)));
        }
        if let Err(error) = self.begin(shared, &group) {
            let text = why(&error);
            if !is_busy(&error) {
                let _ = shared.failed.set(text.clone());
            }
            return group.into_iter().for_each(|job| job.refuse(StoreFailed::error(&text)));
        }
        self.log = Log::Begun;
        self.carry_out(shared, group);
        // Everybody was told: copying syncs twice, and what they do next need not wait for it.
        if LOG_IS_LONG.take() {
            // A later commit tries again.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            self.log = Log::New;
        }
    }

    /// In the open transaction, to its end, and tells everybody.
    fn carry_out(&self, shared: &Shared, group: Vec<Job>) {
        let table = self.table(shared);
        let serves = if group.len() == 1 { Serves::One } else { Serves::Several };
        let mut deliveries = Vec::with_capacity(group.len());
        for job in group {
            let open = match table.failure() {
                None => Ok(&table),
                Some(why) => Err(StoreFailed::error(&why)),
            };
            deliveries.push((job.wakes, (job.work)(open, serves)));
        }
        let ended = match table.failure() {
            None => patiently(|| table.execute("COMMIT")).map_err(|error| why(&error)),
            Some(why) => Err(why),
        };
        if let Err(why) = &ended {
            // A4: SQLite may have rolled back already; either way nothing more happens on this handle.
            let _ = table.execute("ROLLBACK");
            let _ = shared.failed.set(why.clone());
        }
        for (wakes, deliver) in deliveries {
            deliver(ended.as_ref().map_err(|why| StoreFailed::error(why)).copied());
            if let Some(run) = wakes {
                shared.wakeups.wake(&run);
            }
        }
    }

    /// Large blobs to disk, the wanted durability set, the transaction open.
    fn begin(&mut self, shared: &Shared, group: &[Job]) -> Result<(), JournalError> {
        self.files.are_in_place(&shared.path)?;
        for (digest, bytes) in group.iter().flat_map(|job| &job.large) {
            shared.blobs.write(digest, bytes)?;
        }
        self.set(group.iter().map(|job| job.durability).max().unwrap_or(Durability::Written), shared)?;
        patiently(|| self.table(shared).execute("BEGIN IMMEDIATE"))?;
        // A collection that ran meanwhile may have taken a file that was there already; none can run now.
        for (digest, bytes) in group.iter().flat_map(|job| &job.large) {
            shared.blobs.secure(digest, bytes)?;
        }
        Ok(())
    }

    fn set(&mut self, wanted: Durability, shared: &Shared) -> Result<(), JournalError> {
        if wanted != self.mode {
            self.table(shared).execute_uncached(match wanted {
                Durability::Written => "PRAGMA synchronous = NORMAL",
                Durability::Synced => "PRAGMA synchronous = FULL",
            })?;
            self.mode = wanted;
        }
        Ok(())
    }

    fn table<'a>(&'a self, shared: &'a Shared) -> Table<'a> {
        Table::new(&self.connection, &shared.path)
    }
}

/// The log is copied to the database when it has so many pages (SQLite's own default).
const CHECKPOINT_PAGES: c_int = 1000;

thread_local! {
    /// Whether the log is to be copied, as this thread's last commit left it.
    static LOG_IS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// Called by SQLite within each commit, in place of its own checkpoints: whoever commits sees to it when it has answered.
fn look_at_log(_: &Wal, pages: c_int) -> rusqlite::Result<()> {
    LOG_IS_LONG.set(pages >= CHECKPOINT_PAGES);
    Ok(())
}

pub(super) struct Writer {
    queue: Receiver<Request>,
    shared: Arc<Shared>,
    looked: Instant,
    /// SQLite's count of commits by others.
    seen: i64,
    stopping: bool,
}

impl Writer {
    pub(super) fn new(queue: Receiver<Request>, shared: Arc<Shared>) -> Self {
        Self { queue, shared, looked: Instant::now(), seen: 0, stopping: false }
    }

    pub(super) fn run(mut self) {
        while !self.stopping {
            let group = self.next_group();
            if !group.is_empty() {
                let jobs = group.len();
                self.shared.desk().commit(&self.shared, group);
                self.shared.queued.fetch_sub(jobs, Ordering::SeqCst);
            }
            self.look();
        }
    }

    /// Waits for the first request, and takes all that are there by then.
    fn next_group(&mut self) -> Vec<Job> {
        let mut group = Vec::new();
        let first = if self.shared.wakeups.anybody_waits() {
            let rest = self.look_every().saturating_sub(self.looked.elapsed());
            self.queue.recv_timeout(rest)
        } else {
            self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match first {
            Ok(request) => self.sort(request, &mut group),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.stopping = true,
        }
        while group.len() < GROUP_MAX && !self.stopping {
            match self.queue.try_recv() {
                Ok(request) => self.sort(request, &mut group),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.stopping = true,
            }
        }
        group
    }

    fn sort(&mut self, request: Request, group: &mut Vec<Job>) {
        match request {
            Request::Job(job) => group.push(job),
            Request::Look => {}
            Request::Stop => self.stopping = true,
        }
    }

    fn look_every(&self) -> Duration {
        if self.shared.bell.is_heard() { LOOK_ANYWAY } else { LOOK_EVERY }
    }

    /// Wakes everybody who waits if another process has committed something.
    fn look(&mut self) {
        if !self.shared.wakeups.anybody_waits() || self.looked.elapsed() < self.look_every() {
            return;
        }
        self.looked = Instant::now();
        let count = self.shared.desk().table(&self.shared).commits_of_others();
        if count != Some(self.seen) {
            self.seen = count.unwrap_or_default();
            self.shared.wakeups.wake_all();
        }
    }
}

/// Repeats while another process holds the lock: a busy lock is no failed write (`semantics.md` A4). Each attempt waits
/// as long as the connection's busy timeout says.
pub(super) fn patiently(attempt: impl Fn() -> Result<(), JournalError>) -> Result<(), JournalError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                // Some locks answer busy without waiting.
                std::thread::sleep(Duration::from_millis(2));
            }
            answer => return answer,
        }
    }
}
