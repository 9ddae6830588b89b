//! Crash points in a simulation: the shipped wrappers around the ports, with a death that is no exit of the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longrein_driver::{FaultyChecks, FaultyHooks, FaultyJournal, FaultyModel, FaultyTools, FaultyTrees};
use longrein_ports::{Checks, CrashAt, CrashPoint, Faults, Hooks, Journal, Model, Tools, Trees};

use crate::process::Process;
use crate::town::Layers;

/// Counts crash points over all processes; the one that reaches the fatal one dies. It fires once.
#[derive(Default)]
pub struct Crashes {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    fatal: Option<CrashAt>,
    fired: bool,
    reached: BTreeMap<CrashPoint, u32>,
}

impl Crashes {
    pub fn none() -> Arc<Self> {
        Arc::default()
    }
    pub fn at(point: CrashPoint, nth: u32) -> Arc<Self> {
        let crashes = Self::none();
        crashes.inner().fatal = Some(CrashAt { point, nth });
        crashes
    }
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// From now on, dies when the point is reached for the nth time from now.
    pub fn arm(&self, point: CrashPoint, nth: u32) {
        let mut inner = self.inner();
        let so_far = inner.reached.get(&point).copied().unwrap_or(0);
        inner.fatal = Some(CrashAt { point, nth: so_far + nth });
        inner.fired = false;
    }
    pub fn fired(&self) -> bool {
        self.inner().fired
    }
    /// How often each point was reached.
    pub fn reached(&self) -> BTreeMap<CrashPoint, u32> {
        self.inner().reached.clone()
    }
}

struct InProcess {
    crashes: Arc<Crashes>,
    process: Arc<Process>,
}

impl Faults for InProcess {
    fn reached(&self, point: CrashPoint) {
        let mut inner = self.crashes.inner();
        let times = inner.reached.entry(point).or_default();
        *times += 1;
        let times = *times;
        if inner.fatal == Some(CrashAt { point, nth: times }) {
            inner.fired = true;
            drop(inner);
            self.process.record.note("--", &format!("crash point {point}"));
            self.process.die();
        }
        if self.process.is_dead() {
            self.process.glance();
        }
    }
}

/// The layers that make crash points of a [`Crashes`] real.
pub struct WithCrashes(pub Arc<Crashes>);

impl WithCrashes {
    fn faults(&self, process: &Arc<Process>) -> Arc<dyn Faults> {
        Arc::new(InProcess { crashes: Arc::clone(&self.0), process: Arc::clone(process) })
    }
}

impl Layers for WithCrashes {
    fn journal(&self, process: &Arc<Process>, inner: Arc<dyn Journal>) -> Arc<dyn Journal> {
        Arc::new(FaultyJournal { inner, faults: self.faults(process) })
    }
    fn model(&self, process: &Arc<Process>, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(FaultyModel { inner, faults: self.faults(process) })
    }
    fn tools(&self, process: &Arc<Process>, inner: Arc<dyn Tools>) -> Arc<dyn Tools> {
        Arc::new(FaultyTools { inner, faults: self.faults(process) })
    }
    fn checks(&self, process: &Arc<Process>, inner: Arc<dyn Checks>) -> Arc<dyn Checks> {
        Arc::new(FaultyChecks { inner, faults: self.faults(process) })
    }
    fn trees(&self, process: &Arc<Process>, inner: Arc<dyn Trees>) -> Arc<dyn Trees> {
        Arc::new(FaultyTrees { inner, faults: self.faults(process) })
    }
    fn hooks(&self, process: &Arc<Process>, inner: Arc<dyn Hooks>) -> Arc<dyn Hooks> {
        Arc::new(FaultyHooks { inner, faults: self.faults(process) })
    }
}
