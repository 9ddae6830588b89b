//! What a store must do: one suite for every backend, and one for what only a file can do wrong.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and helpers of tests are tests too")]

mod archive;
mod cabinet;
mod common;
mod every_backend;
mod marks;
mod sqlite;
