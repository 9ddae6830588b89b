//! Tool servers of other people: a program that is spoken to over its standard input and output, or an address.
//!
//! Read [`Server`] first. It is started when it is first needed and not before, has a deadline for that, and is started again
//! at most [`RESTARTS_MAX`] times without having answered. When it dies, every call that waits for it ends at once; a call that
//! had left and was not answered is [`CallError::Lost`], and nobody says that it did not happen.
//!
//! Nothing here decides whether a tool may be called: what a server says of its own tools is passed on as a claim.

mod answer;
mod asking;
mod assertion;
mod bound;
mod connect;
mod definition;
mod http;
mod keys;
mod lines;
mod login;
mod posted;
mod reading;
mod refusal;
mod server;
mod signing;
mod trouble;

pub use answer::Answer;
pub use assertion::Assertion;
pub use connect::{Elicitation, Http, Manner, Reach};
pub use definition::{Definition, Quarantined, SCHEMA_MAX_BYTES};
pub use keys::{KeyState, Keys};
pub use login::{Asked, Client, Login};
pub use reading::{Beside, Reading};
pub use server::{CallError, Down, Limits, Listed, May, RESTARTS_MAX, Server};
