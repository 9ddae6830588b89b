//! Longrein: the runtime around a language model. The model proposes; Longrein executes, remembers, permits, pays,
//! recovers and proves.
//!
//! Everything a run does is journaled before it is acted on, so the process may be killed at any instant and the next one
//! goes on where it was: no effect is repeated on a guess, no budget refills, no question is lost.
//!
//! # In a program
//!
//! Read [`Longrein`] first: it opens a store and starts runs. A [`Task`] says what is asked, with which [`Tool`]s and which
//! model; a [`Run`] is a stream of its events and a future of its [`RunOutcome`].
//!
//! ```
//! use longrein::{Call, Longrein, Script, Task, Tool};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct City {
//!     /// Its name in English.
//!     name: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longrein::Error> {
//! let thermometer = Tool::read("temperature", "Degrees Celsius in a city right now.", |city: City, _: Call| async move {
//!     Ok(json!({ "city": city.name, "celsius": -3.5 }))
//! });
//! // In earnest: .model("openai/gpt-5-mini"), or LanguageModel::named("openai/…").base_url("http://localhost:8080/v1").
//! let script = Script::new().call("temperature", json!({ "name": "Oslo" })).text("It is -3.5 °C in Oslo.");
//!
//! let longrein = Longrein::open("memory:")?; // or sqlite:PATH, which outlives the process
//! let run = longrein.start(Task::new("How cold is it in Oslo?").model(script).tool(thermometer)).await?;
//! let outcome = run.await?;
//! assert_eq!(outcome.text.as_deref(), Some("It is -3.5 °C in Oslo."));
//! # Ok(())
//! # }
//! ```
//!
//! Beside this crate a program needs `serde` and `schemars` (1.x) for the arguments of its tools, and `tokio`.
//!
//! # What it leaves alone
//!
//! It reads no environment variable and installs nothing global: no TLS provider, no subscriber, no panic hook, no signal
//! handler. Two [`Longrein`]s in one process do not meet, except that all child processes are spawned by one thread.
//! [`commands_are_gone`] waits for the last of those before a process ends.
//!
//! # Below
//!
//! [`Runs`] is the door the binary itself comes in by: task files ([`taskfile`]), drives with an observer, listings,
//! verification. [`core`] has the vocabulary, [`ports`] the traits that stores, models and tools implement.

mod backlog;
mod checks;
mod children;
mod drawing;
mod embed;
mod gate;
mod helpers;
mod images;
mod ledger;
pub mod logins;
mod pins;
pub mod policycheck;
pub mod projection;
mod request;
mod rulefiles;
mod runs;
mod servers;
mod settings;
pub mod taskfile;
pub mod trajectory;
mod trees;
mod unsaid;

pub use backlog::{Backlog, Piecemeal};
pub use drawing::{mermaid, text as program_text};
pub use embed::{
    Builder, Call, CallError, Check, Effect, Error, LanguageModel, Line, Longrein, NoArgs, Question, Route, Run,
    RunOutcome, RunState, Script, Task, Tool, Verdict, Work,
};
pub use images::{Image, ImageError};
pub use longrein_core as core;
pub use longrein_core::context::settings::{ContextSpec, Trigger};
pub use longrein_core::task::Mode;
pub use longrein_driver::{
    DriveError, Driven, FoldError, Observer, RollbackError, RollbackPlan, Standing, Stop, WhenAsked, run_row,
    suspension_in_words,
};
pub use longrein_models::{
    Answering, ConfigError as ModelConfigError, ModelConfig, Secret, Timeouts, endpoint, probe, usual_timeouts,
};
/// How far commands are held by what is around them.
pub use longrein_policy::Containment;
/// Names that may have been meant by one that is not known.
pub use longrein_policy::{TAINT_RULE, near};
pub use longrein_ports as ports;
/// Runs for clients of MCP: the binary opens it a door.
pub use longrein_protocols::server as mcp_server;
pub use longrein_sandbox::{Probed as ProbedSandbox, Tier as SandboxTier, probe as probe_sandbox};
pub use longrein_store::{Health as StoreHealth, health as store_health, place_fits, sqlite_version};
pub use longrein_tools::builtin;
pub use longrein_workspace::trees::{Collected as CollectedTrees, LeftOut, Sizes as TreeSizes, Snapshot, TreeSettings};
pub use pins::pin;
pub use request::{Before, Piece, Request};
pub use rulefiles::{RuleFiles, capture as rule_files};
pub use runs::{
    Endorsed, Grove, Reach, Runs, RunsError, Surroundings, Target, commands_are_gone, connectable, exit_now,
};
pub use servers::add_tools_of_servers;
pub use settings::{SandboxMode, SandboxSettings};
pub use trees::{WorkspaceTrees, collect_trees, folder_of as trees_folder_of, sizes_of_trees};
