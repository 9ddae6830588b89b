//! What a program that embeds Longrein works with: tasks and tools in code, and runs as handles.
#![deny(missing_docs)]

pub(crate) mod check;
mod door;
mod error;
mod handle;
mod lines;
mod model;
mod outcome;
mod route;
mod task;
mod tool;

pub use check::{Check, Verdict, Work};
pub use door::{Builder, Longrein};
pub use error::Error;
pub use handle::Run;
pub use lines::Line;
pub use model::{LanguageModel, Script};
pub use outcome::{Question, RunOutcome, RunState};
pub use route::Route;
pub use task::Task;
pub use tool::{Call, CallError, Effect, NoArgs, Tool};
