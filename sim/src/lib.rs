//! The simulator: the real driver among fake ports, in virtual time, with everything going wrong that can.
//!
//! Read [`town::Town`] first: it is what the driver meets. [`story`] plays one from a seed, [`laws`] says what must hold
//! afterwards whatever happened, [`scenario`] runs the stories written down by hand. Nothing here is shipped.

#![expect(clippy::wildcard_enum_match_arm, reason = "laws look for a few kinds among all and pass over the rest")]

pub mod chance;
pub mod crash;
pub mod files;
pub mod laws;
pub mod people;
pub mod process;
pub mod scenario;
pub mod scribe;
pub mod store;
pub mod story;
pub mod town;
pub mod trees;
pub mod twist;
pub mod ushers;
pub mod world;
