//! An MCP server: what is offered, over lines (stdio) or HTTP on loopback, to one client or several.
//!
//! Read [`Offer`] first: what a server has to say of itself. [`Operations`] is the offer that ships: runs, over a
//! [`Door`] that the binary implements. [`serve_lines`] and [`serve_http`] carry any offer; so what the conformance suite
//! tests through offers of its own is what ships.
//!
//! Nothing a client sends ends the server, blocks another request or grows without a bound: what cannot be read is
//! answered with an error and the next message is read. This layer speaks JSON-RPC itself: a library that owns the reader
//! also owns what happens to what it cannot parse, and that is the one thing this server promises.

mod door;
mod http;
mod message;
mod offer;
mod operations;
mod peer;
mod session;
mod stdio;
mod stream;

pub use door::{Class, Door, Fault, Start, Watch};
pub use http::{Access, serve_http};
pub use message::RpcError;
pub use offer::{About, Offer, Page, ToolDef, ToolReply};
pub use operations::{Operations, Powers};
pub use peer::{Level, Peer};
pub use session::VERSIONS;
pub use stdio::serve_lines;

/// The most bytes of one message: a line, or a body.
pub const MESSAGE_MAX_BYTES: usize = 10 * 1024 * 1024;
/// The most requests of one client that are worked on at the same time.
pub const REQUESTS_MAX: usize = 64;
/// How long a request that is worked on may take to end once the server is to end.
pub(crate) const GRACE: std::time::Duration = std::time::Duration::from_secs(35);
