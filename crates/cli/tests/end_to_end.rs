//! The real binary, from outside: arguments in, streams, files and statuses out.
//!
//! Every test has a home, a workspace and an environment of its own. `LONGREIN_NIGHTLY=1` repeats what is long.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

mod capabilities;
mod checkout;
mod checks;
mod children;
mod command_line;
mod crash_matrix;
mod export;
mod files;
mod fix_the_bug;
mod fork;
mod glance;
mod heard;
mod hooks;
mod hostile;
mod images;
mod judge;
mod keep;
mod liars;
mod local;
mod mcp;
mod mcp_login;
mod mcp_pinned;
mod mcp_server;
mod mcp_start;
mod modes;
mod programs;
mod questions;
mod routes;
mod shell;
mod snapshots;
mod spite;
mod summaries;
mod support;
mod terminal;
mod trust;
mod undone;
mod window;
mod wire;
mod workers;
