//! The tools of a run: programs in any language that read one JSON object and answer with JSON or text, what is built in,
//! and functions of the program that embeds Longrein, all held to the same rules.
//!
//! Read [`Toolbox`] first. It is made once per run from the task, and refuses a task whose tools cannot work. Then, per
//! call: `validate` turns what a model wrote into arguments or into an error the model can act on; `run` starts the program
//! and turns its end into the outcome its class of tool may have; `probe` asks what became of a call; `reap` ends what an
//! earlier worker left.
//!
//! What it refuses to do: decide whether a call may run (the gate's business), or run one without a [`Cleared`]. It keeps
//! no state of the run; the only memory is of files already hashed.
//!
//! [`Cleared`]: longrein_core::action::Cleared

mod arguments;
mod beyond;
mod builtin;
mod canonical;
mod check;
mod confine;
mod ending;
mod environment;
mod error;
mod excerpt;
mod held;
mod hint;
mod hook;
mod host;
pub mod modules;
mod near;
mod output;
mod pictures;
mod pins;
mod planted;
mod preview;
mod request;
mod schema;
mod secrets;
mod terrain;
mod text;
mod toolbox;
mod validated;

#[cfg(test)]
mod tests;

pub use builtin::builtin;
pub use canonical::canonical;
pub use check::Checked;
pub use confine::{Sandbox, Walls, Workspace};
pub use ending::TOOL_ERROR;
pub use environment::{know_named, of_server as server_environment, with_secrets};
pub use error::ToolsError;
pub use host::{Host, HostAnswer, HostCall, HostError, HostTool};
pub use near::nearest;
pub use pins::{Hashes, Role, RunBy, of_server as files_of_server, pins};
pub use preview::{cleaned, preview};
pub use secrets::{Secrets, redactions};
pub use toolbox::{Toolbox, WayOut, definitions, usable, way_out};
