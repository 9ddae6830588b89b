//! Hooks: they say what a story has them say, and remember it, so that the world can tell who was let through.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longrein_core::action::Attempt;
use longrein_core::hook::{HookEvent, HookOutcome, HookRan, Moment, listening};
use longrein_core::ids::{ActionId, RunId};
use longrein_core::task::Task;
use longrein_ports::{BoxFuture, HookCall, Hooks};

use crate::chance::Chance;
use crate::process::Process;

/// What a hook says when it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookSays {
    Pass,
    Block,
    Ask,
    Halt,
    Fail,
    /// Nothing, until its time is up.
    Hang,
}

impl FromStr for HookSays {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "pass" => Self::Pass,
            "block" => Self::Block,
            "ask" => Self::Ask,
            "halt" => Self::Halt,
            "fail" => Self::Fail,
            "hang" => Self::Hang,
            other => return Err(format!("a hook cannot say {other}")),
        })
    }
}

/// All hooks of one simulation.
#[derive(Default)]
pub struct Ushers {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By the name of the hook, one after the other; the last one stays.
    script: BTreeMap<String, Vec<HookSays>>,
    chance: Option<Chance>,
    /// What each hook said last of a call that is about to start, and to which process.
    said: BTreeMap<(RunId, ActionId, u32), (u32, u32, HookSays)>,
    told: BTreeMap<String, usize>,
}

impl Ushers {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn script(&self, hook: &str, says: impl IntoIterator<Item = HookSays>) {
        self.inner().script.insert(hook.to_owned(), says.into_iter().collect());
    }

    pub fn go_wild(&self, chance: Chance) {
        self.inner().chance = Some(chance);
    }

    pub fn calm_down(&self) {
        let mut inner = self.inner();
        inner.chance = None;
        inner.script.clear();
    }

    /// How often a hook was told something and came to an answer.
    pub fn told(&self, hook: &str) -> usize {
        self.inner().told.get(hook).copied().unwrap_or(0)
    }

    fn said(&self, hook: &str, call: &HookCall, to: u32, says: HookSays) {
        let mut inner = self.inner();
        *inner.told.entry(hook.to_owned()).or_default() += 1;
        if let Moment::Before { action, attempt } = call.moment {
            inner.said.insert((call.run.clone(), action, call.hook), (to, attempt, says));
        }
    }

    /// Whether every hook let an attempt through that this process starts. `granted`: a person said yes to it.
    pub fn let_through(&self, pid: u32, task: &Task, attempt: &Attempt, granted: bool) -> Result<(), String> {
        let inner = self.inner();
        for hook in listening(task, HookEvent::BeforeTool, Some(&attempt.tool)) {
            match inner.said.get(&(attempt.run.clone(), attempt.action, hook)) {
                Some((to, of, HookSays::Pass)) if (*to, *of) == (pid, attempt.number) => {}
                Some((to, of, HookSays::Ask)) if (*to, *of) == (pid, attempt.number) && granted => {}
                said => return Err(format!("though its hook {hook} said {said:?} (process {pid})")),
            }
        }
        Ok(())
    }
}

/// The hooks as one process tells them.
pub struct Usher {
    pub ushers: Arc<Ushers>,
    pub process: Arc<Process>,
}

impl Hooks for Usher {
    fn tell<'a>(&'a self, task: &'a Task, call: HookCall) -> BoxFuture<'a, HookRan> {
        Box::pin(async move {
            let spec = &task.hooks[call.hook as usize];
            let name = spec.label();
            self.process.call(&format!("hook {name} is told of {:?}", call.moment)).await;
            let (wait, says) = {
                let mut inner = self.ushers.inner();
                let scripted = inner.script.get_mut(&name).filter(|left| !left.is_empty());
                let scripted = scripted.map(|left| if left.len() > 1 { left.remove(0) } else { left[0] });
                match (&mut inner.chance, scripted) {
                    (_, Some(says)) => (Duration::from_millis(20), says),
                    (Some(chance), None) => {
                        let says = match chance.below(100) {
                            0..70 => HookSays::Pass,
                            70..80 => HookSays::Block,
                            80..88 => HookSays::Ask,
                            88..96 => HookSays::Fail,
                            96..98 => HookSays::Hang,
                            _ => HookSays::Halt,
                        };
                        (chance.millis(1, 3_000), says)
                    }
                    (None, None) => (Duration::from_millis(20), HookSays::Pass),
                }
            };
            tokio::time::sleep(if says == HookSays::Hang { spec.timeout } else { wait }).await;
            self.process.pass().await;
            self.ushers.said(&name, &call, self.process.worker.pid, says);
            self.process.call(&format!("hook {name} says {says:?}")).await;
            let reason = format!("{name} says {says:?}");
            let outcome = match says {
                HookSays::Pass => HookOutcome::Passed,
                HookSays::Block => HookOutcome::Blocked { reason },
                HookSays::Ask => HookOutcome::Asked { reason },
                HookSays::Halt => HookOutcome::Halted { reason },
                HookSays::Fail | HookSays::Hang => HookOutcome::Failed { reason },
            };
            HookRan { hook: call.hook, outcome, words: None, took_ms: longrein_core::time::millis(wait) }
        })
    }
}
