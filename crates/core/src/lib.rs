//! What a run is and what may happen to it, as pure values: no I/O, no async, no clock, no randomness.
//!
//! Read [`run::Run`] first, then the three questions core answers: `decide`, `apply`, `owed`.

pub mod action;
pub mod address;
pub mod budget;
pub mod check;
pub mod children;
pub mod context;
pub mod decide;
pub mod event;
pub mod finish;
pub mod fork;
pub mod holds;
pub mod hook;
pub mod ids;
pub mod image;
pub mod input;
pub mod judge;
pub mod manifest;
pub mod mcp;
pub mod observe;
pub mod outcome;
pub mod owed;
pub mod payload;
pub mod program;
pub mod prompt;
pub mod repeat;
pub mod retry;
pub mod route;
pub mod ruling;
pub mod run;
pub mod secret;
pub mod snapshot;
pub mod taint;
pub mod target;
pub mod task;
pub mod time;
