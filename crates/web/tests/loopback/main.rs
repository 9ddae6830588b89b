//! Fetching and the proxy against real sockets on loopback.

mod fetch;
mod proxy;
mod support;
