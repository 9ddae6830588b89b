//! Longrein: the runtime around a language model. The model proposes; Longrein executes, remembers, permits, pays,
//! recovers and proves.
//!
//! Read [`Runs`] first: it is the one door. This crate composes the others for a program that embeds it; it takes values,
//! reads no environment and installs nothing global.

mod checks;
mod gate;
pub mod policycheck;
pub mod projection;
mod runs;
pub mod taskfile;
pub mod trajectory;

pub use longrein_core as core;
pub use longrein_driver::{
    DriveError, Driven, FoldError, Observer, Standing, Stop, WhenAsked, run_row, suspension_in_words,
};
pub use longrein_models::{Answering, ConfigError as ModelConfigError, ModelConfig, Secret, Timeouts, endpoint, probe};
/// Names that may have been meant by one that is not known.
pub use longrein_policy::near;
pub use longrein_ports as ports;
pub use longrein_store::{Health as StoreHealth, health as store_health, place_fits, sqlite_version};
pub use longrein_tools::builtin;
pub use runs::{Runs, RunsError, Surroundings, Target, commands_are_gone, connectable, exit_now, pin};
