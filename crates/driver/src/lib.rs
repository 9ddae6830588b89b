//! The driver performs what a run owes: it turns what happened into commands, asks core what follows, appends that under
//! its claim, and only then acts on it.
//!
//! Read [`Driver::drive`] first. The driver decides nothing: every decision is core's, every fact is the journal's.

mod batch;
mod children;
mod claimed;
mod context;
mod drive;
mod ear;
mod edge;
mod fault;
mod fold;
mod hooks;
mod jobs;
mod judging;
mod lease;
mod origin;
mod ports;
mod program;
mod readmit;
mod rollback;
mod row;
mod said;
mod steps;
mod summary;
mod waiting;

pub use children::{ChildTask, Equip, Equipped};
pub use context::meter;
pub use drive::{Begin, DriveError, Driven, Driver, Observer, Options, SNAPSHOT_EVERY, Standing, Stop, WhenAsked};
pub use fault::{FaultyChecks, FaultyHooks, FaultyJournal, FaultyModel, FaultyTools, FaultyTrees};
pub use fold::{FoldError, fold};
pub use ports::Ports;
pub use readmit::readmit;
pub use rollback::{RollbackError, RollbackPlan, rollback_plan};
pub use row::{run_row, suspension_in_words};
pub use said::unsay_input;
