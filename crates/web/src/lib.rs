//! How a run reaches the open internet, and nothing else: one page is fetched, or one command is let through to the hosts
//! its task names.
//!
//! Read [`Web`] first: it fetches a page by an address that was looked up once and checked, and follows no redirect to
//! another host. [`Proxy`] is the only way out for a command that has no network: it lets connections through to the
//! hosts of its [`Allowed`] list and writes down what was asked.
//!
//! What it refuses to do: reach an address of this machine, its network or a cloud's inside unless the program that
//! embeds it named that very address; look a name up twice; take proxies, credentials or anything else from the
//! environment. Whether a call may be made at all is not decided here (that is the gate).

mod address;
mod allowed;
mod body;
mod connect;
mod error;
mod fetch;
mod hello;
mod proxy;

pub use address::{BadUrl, PageUrl, Reach, Resolve, Resolving, SystemResolver};
pub use allowed::{Allowed, BadEntry};
pub use body::{Body, Cut};
pub use error::FetchError;
pub use fetch::{Fetched, Limits, Page, Web};
pub use proxy::{Answer, Asked, Listen, Patience, Proxy, Shared, proxy_env, serve, told};
