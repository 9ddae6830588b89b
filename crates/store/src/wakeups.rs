//! Waiting for a run's inbox, without polling it: who posts in this process wakes who waits in it.
//!
//! A wait compares the number of arrivals with the number it last answered for, so a post between two waits is not
//! missed. The count is per handle and run: it serves one waiter per run, the run's driver.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longrein_core::ids::RunId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    runs: Mutex<BTreeMap<RunId, Waiter>>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default, Clone)]
struct Waiter {
    notify: Arc<Notify>,
    /// Arrivals that a wait has answered for.
    told: i64,
}

impl Wakeups {
    /// Waits until more inputs have arrived than a wait was last answered for. `arrivals` counts them; None: it cannot
    /// be told, and the wait ends so that the caller finds out why.
    pub(crate) async fn changed(&self, run: &RunId, arrivals: impl Fn() -> Option<i64>) {
        let Waiter { notify, told } = self.runs().entry(run.clone()).or_default().clone();
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let mut notified = pin!(notify.notified());
            // Registered before the count is read, so that no post falls between.
            notified.as_mut().enable();
            match arrivals() {
                Some(arrived) if arrived <= told => notified.await,
                Some(arrived) => {
                    let mut runs = self.runs();
                    let waiter = runs.entry(run.clone()).or_default();
                    waiter.told = waiter.told.max(arrived);
                    return;
                }
                None => return,
            }
        }
    }

    pub(crate) fn wake(&self, run: &RunId) {
        if let Some(waiter) = self.runs().get(run) {
            waiter.notify.notify_waiters();
        }
    }

    pub(crate) fn wake_all(&self) {
        for waiter in self.runs().values() {
            waiter.notify.notify_waiters();
        }
    }

    pub(crate) fn anybody_waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Waiter>> {
        // The map stays whole even if a holder panicked: every change to it is one step.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a wait for as long as it lasts, also when it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
