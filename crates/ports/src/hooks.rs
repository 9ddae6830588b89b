//! Hooks: commands of the operator that are told of what a run does.

use longrein_core::hook::{HookRan, Moment};
use longrein_core::ids::{Fence, RunId, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::Task;

use crate::BoxFuture;

/// One hook to run, at one moment.
#[derive(Debug, Clone)]
pub struct HookCall {
    pub run: RunId,
    pub fence: Fence,
    /// Its place in the task's list.
    pub hook: u32,
    pub moment: Moment,
    pub about: About,
}

/// What a hook is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A call, with the exact arguments that would run.
    Call {
        tool: ToolName,
        args: Payload,
    },
    /// A call that has ended, and what came of it as JSON.
    Outcome {
        tool: ToolName,
        args: Payload,
        outcome: Payload,
    },
    /// A person's words.
    Prompt {
        text: String,
    },
    /// The model's answer.
    Stop {
        answer: String,
        /// Hooks had something against the one before it.
        is_again: bool,
    },
    Rebuild {
        why: String,
    },
    /// The state the run came to rest in, and why.
    End {
        state: String,
        reason: String,
    },
}

pub trait Hooks: Send + Sync {
    /// Runs one hook. Whatever goes wrong is an answer: it has failed. Dropping the future ends it and its descendants.
    fn tell<'a>(&'a self, task: &'a Task, call: HookCall) -> BoxFuture<'a, HookRan>;
}
