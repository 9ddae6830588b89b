//! A worker process that can die or be paused at any call it makes, and the record of what all of them did.
//!
//! Dying drops the whole drive at once and lets no call of it get through any more. A paused one is a zombie: nothing of
//! it moves, while its children and what it has sent go on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use longrein_core::time::Timestamp;
use longrein_ports::{Clock, Worker};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::chance::Chance;

/// A broken law, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub law: &'static str,
    pub what: String,
}

/// What all processes of one simulation share: time, the trace, and the laws found broken.
pub struct Record {
    started: Instant,
    inner: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    trace: Vec<String>,
    breaches: Vec<Breach>,
    calls: u64,
    /// Calls at the present millisecond: a loop that waits for nothing shows here.
    at: u64,
    calls_now: u64,
    processes: u32,
}

/// Port calls of one simulation, clock readings included. Long stories need some ten thousand.
const CALLS_MAX: u64 = 60_000;
/// Port calls within one millisecond of virtual time. A large batch of calls needs some hundreds.
const CALLS_PER_MS_MAX: u64 = 3_000;
/// When simulated time begins: 2026-01-01T00:00:00Z.
const EPOCH_MS: u64 = 1_767_225_600_000;
/// How long the simulated machines had been up by then.
const UP: Duration = Duration::from_secs(1000);

impl Record {
    /// Must be made inside a runtime with paused time.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), inner: Mutex::default() })
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp(EPOCH_MS).plus(self.elapsed())
    }

    pub fn boottime(&self) -> Duration {
        UP + self.elapsed()
    }

    fn inner(&self) -> MutexGuard<'_, Recorded> {
        // A process may die anywhere; the record outlives it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, who: &str, what: &str) {
        let at = longrein_core::time::millis(self.elapsed());
        self.inner().trace.push(format!("{at:>9} {who} {what}"));
    }

    pub fn breach(&self, law: &'static str, what: impl Into<String>) {
        let breach = Breach { law, what: what.into() };
        self.note("!!", &format!("{} broken: {}", breach.law, breach.what));
        let mut inner = self.inner();
        if !inner.breaches.contains(&breach) {
            inner.breaches.push(breach);
        }
    }

    pub fn breaches(&self) -> Vec<Breach> {
        self.inner().breaches.clone()
    }

    pub fn trace(&self) -> Vec<String> {
        self.inner().trace.clone()
    }

    pub fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Counts a call; answers false when there were more than any sane loop makes.
    fn count(&self) -> bool {
        let now = longrein_core::time::millis(self.elapsed());
        let mut inner = self.inner();
        inner.calls += 1;
        if inner.at == now {
            inner.calls_now += 1;
        } else {
            inner.at = now;
            inner.calls_now = 0;
        }
        inner.calls <= CALLS_MAX && inner.calls_now <= CALLS_PER_MS_MAX
    }

    fn next_process(&self) -> u32 {
        let mut inner = self.inner();
        inner.processes += 1;
        inner.processes
    }
}

/// What unwinds a process that dies within a call.
struct Death;

/// One process of one boot of one host.
pub struct Process {
    pub record: Arc<Record>,
    pub worker: Worker,
    name: String,
    inner: Mutex<Vitals>,
    changed: Notify,
    jitter: Mutex<Chance>,
}

struct Vitals {
    dead: bool,
    paused: bool,
    calls: u64,
    /// Dies at the call with this number.
    fatal: Option<u64>,
    waker: Option<Waker>,
}

impl Process {
    pub fn new(record: &Arc<Record>, host: &str, chance: Chance) -> Arc<Self> {
        let pid = record.next_process();
        Arc::new(Self {
            record: Arc::clone(record),
            worker: Worker { host: host.to_owned(), boot: "b1".to_owned(), pid, pid_start: u64::from(pid) },
            name: format!("p{pid}"),
            inner: Mutex::new(Vitals { dead: false, paused: false, calls: 0, fatal: None, waker: None }),
            changed: Notify::new(),
            jitter: Mutex::new(chance),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Vitals> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_dead(&self) -> bool {
        self.inner().dead
    }

    /// Dies at the call with that number, counted from the start of the process.
    pub fn die_at_call(&self, number: u64) {
        self.inner().fatal = Some(number);
    }

    pub fn calls(&self) -> u64 {
        self.inner().calls
    }

    pub fn die(&self) {
        let mut inner = self.inner();
        if inner.dead {
            return;
        }
        inner.dead = true;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
        drop(inner);
        self.record.note(&self.name, "DIES");
        self.changed.notify_waiters();
    }

    pub fn pause(&self) {
        self.inner().paused = true;
        self.record.note(&self.name, "is paused");
    }

    pub fn resume(&self) {
        let mut inner = self.inner();
        inner.paused = false;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
        drop(inner);
        self.record.note(&self.name, "goes on");
        self.changed.notify_waiters();
    }

    /// Counts a call, and dies at it if that was arranged.
    fn step(&self) {
        if !self.record.count() {
            self.record.breach("law_11", format!("{} spins: too many port calls", self.name));
            self.die();
            resume_unwind(Box::new(Death));
        }
        let mut inner = self.inner();
        inner.calls += 1;
        if inner.dead || inner.fatal == Some(inner.calls) {
            drop(inner);
            self.die();
            resume_unwind(Box::new(Death));
        }
    }

    /// A call that answers at once.
    pub fn glance(&self) {
        self.step();
    }

    /// A call that takes its time: never gets through from a dead process, and waits while it is paused.
    pub async fn call(&self, what: &str) {
        self.pass().await;
        self.record.note(&self.name, what);
        self.step();
    }

    /// Waits while the process is paused; never returns in a dead one.
    pub async fn pass(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let (dead, paused) = {
                let inner = self.inner();
                (inner.dead, inner.paused)
            };
            if dead {
                std::future::pending::<()>().await;
            }
            if !paused {
                return;
            }
            changed.await;
        }
    }

    /// Lives `work`, unless the process dies first. None: it died, and everything of it was dropped.
    pub async fn live<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            {
                let mut inner = self.inner();
                if inner.dead {
                    return Poll::Ready(None);
                }
                inner.waker = Some(context.waker().clone());
                if inner.paused {
                    return Poll::Pending;
                }
            }
            match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                _ if self.is_dead() => Poll::Ready(None),
                Ok(polled) => polled.map(Some),
                Err(panic) => pass_on(panic),
            }
        })
        .await
    }
}

/// A panic that is no arranged death is a failure of the test.
fn pass_on<T>(panic: Box<dyn Any + Send>) -> Poll<Option<T>> {
    if panic.is::<Death>() { Poll::Ready(None) } else { resume_unwind(panic) }
}

impl Clock for Process {
    fn now(&self) -> Timestamp {
        self.glance();
        self.record.now()
    }
    fn boottime(&self) -> Duration {
        self.glance();
        self.record.boottime()
    }
    fn jitter(&self) -> u32 {
        let drawn = self.jitter.lock().unwrap_or_else(PoisonError::into_inner).below(1000);
        u32::try_from(drawn).unwrap_or(0)
    }
}

/// The clock of the machines themselves, for the store.
pub struct MachineClock(pub Arc<Record>);

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
    fn boottime(&self) -> Duration {
        self.0.boottime()
    }
    fn jitter(&self) -> u32 {
        0
    }
}
