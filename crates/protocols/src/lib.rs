//! The Model Context Protocol, both ways: [`client`] calls the tools of other people's servers, [`server`] offers runs
//! as tools and resources. Everything of `rmcp` stays inside this crate: it has a major version a month.

pub mod client;
pub mod server;
