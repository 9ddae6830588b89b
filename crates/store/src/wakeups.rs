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
    /// Counts as waiting for the run's inbox from now on. Whoever must know that somebody waits is told between this and
    /// [`Wait::changed`]: told before, he may find nobody and go to sleep.
    pub(crate) fn wait<'a>(&'a self, run: &'a RunId) -> Wait<'a> {
        let Waiter { notify, told } = self.runs().entry(run.clone()).or_default().clone();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Wait { wakeups: self, run, notify, told }
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
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Waiter>> {
        // The map stays whole even if a holder panicked: every change to it is one step.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait for one run's inbox; counted for as long as it is held.
pub(crate) struct Wait<'a> {
    wakeups: &'a Wakeups,
    run: &'a RunId,
    notify: Arc<Notify>,
    told: i64,
}

impl Wait<'_> {
    /// Waits until more inputs have arrived than a wait was last answered for. `arrivals` counts them; None: it cannot
    /// be told, and the wait ends so that the caller finds out why.
    pub(crate) async fn changed(self, arrivals: impl Fn() -> Option<i64>) {
        loop {
            let mut notified = pin!(self.notify.notified());
            // Registered before the count is read, so that no post falls between.
            notified.as_mut().enable();
            match arrivals() {
                Some(arrived) if arrived <= self.told => notified.await,
                Some(arrived) => {
                    let mut runs = self.wakeups.runs();
                    let waiter = runs.entry(self.run.clone()).or_default();
                    waiter.told = waiter.told.max(arrived);
                    return;
                }
                None => return,
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.wakeups.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
