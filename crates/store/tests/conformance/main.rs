//! What a store must do: one suite for every backend, and one for what only a file can do wrong.

mod common;
mod every_backend;
mod sqlite;
