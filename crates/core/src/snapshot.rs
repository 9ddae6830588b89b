//! Snapshots: a run's state at one event, so that a claim need not fold the whole journal. A cache: safe to lose, and valid
//! only for the events and the fold that made it (`semantics.md` B4).

use std::sync::Arc;

use crate::budget::{Limit, Limits};
use crate::event::{EventKind, RunStarted};
use crate::ids::{Digest, ModelName};
use crate::observe;
use crate::payload::Payload;
use crate::program::Program;
use crate::run::Run;
use crate::task::{Mode, ModelSpec, PolicyRules, Task};

/// Version of the fold. Raised whenever `apply` makes another state of the same events; a test that folds a recorded
/// journal fails until it is.
pub const FOLD: u32 = 8;

/// What a snapshot must have been made under to be used: the kinds of events there are, and the fold.
pub fn catalogue() -> String {
    let kinds: Vec<&[u8]> = EventKind::ALL.iter().map(|kind| kind.as_str().as_bytes()).collect();
    let digest = Digest::of_parts(kinds);
    format!("{}.{FOLD}.{}", env!("CARGO_PKG_VERSION"), digest.as_str().get(..16).unwrap_or_default())
}

/// The state as bytes, without what the first event has: the task.
pub fn save(run: &Run) -> Vec<u8> {
    serde_json::to_vec(run).expect("a run has only string keys")
}

/// The state again. None: the bytes are no state, or of another run.
pub fn restore(bytes: &[u8], started: &RunStarted) -> Option<Run> {
    let mut run: Run = serde_json::from_slice(bytes).ok()?;
    if run.id != started.run {
        return None;
    }
    run.task = Arc::new(started.task.clone().lifted());
    run.system = observe::system(&run.task).into();
    Some(run)
}

/// Stands for the task until the first event has told it.
pub(crate) fn no_task() -> Arc<Task> {
    Arc::new(Task {
        goal: String::new(),
        instructions: String::new(),
        constraints: Vec::new(),
        program: Program::React,
        model: ModelSpec::plain(ModelName::new(""), 0),
        workspace: String::new(),
        folder: String::new(),
        principal: Payload::null(),
        limits: Limits {
            turns: Limit::At(0),
            model_calls: Limit::At(0),
            tool_calls: Limit::At(0),
            tokens: Limit::At(0),
            micros: Limit::At(0),
            time_ms: Limit::At(0),
            deadline: None,
        },
        inputs: Default::default(),
        tools: Vec::new(),
        acceptance: Vec::new(),
        answer: None,
        policy: PolicyRules::default(),
        permission_mode: Mode::default(),
        hooks: Vec::new(),
        rules: Vec::new(),
        context: Default::default(),
        routes: Vec::new(),
        sources: Default::default(),
        servers: Default::default(),
        snapshots: Default::default(),
        piped_from: None,
        images: Vec::new(),
        questions_expire_ms: None,
        pins: Default::default(),
    })
}
