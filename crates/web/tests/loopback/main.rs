//! Fetching and the proxy against real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and helpers of tests are tests too")]

mod fetch;
mod proxy;
mod support;
