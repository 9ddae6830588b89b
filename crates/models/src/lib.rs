//! Models: what a run thinks with. Each is a pure encoder and one attempt at sending; retries belong to the driver.
//!
//! Read [`connect`] first: it turns a name such as `openai/gpt-5-mini` or `script/demo.script.toml` into a
//! [`Model`](longrein_ports::Model). This crate reads no environment variable, installs nothing process-wide and never
//! retries.

pub mod actions;
mod anew;
pub mod anthropic;
mod beside;
mod blocks;
mod connect;
mod failure;
pub mod gemini;
mod grown;
mod http;
mod lanes;
mod leaving;
mod lines;
mod numbers;
mod object;
pub mod ollama;
pub mod openai;
mod overflow;
mod pause;
mod pictures;
mod probe;
pub mod reading;
pub mod responses;
mod schema;
pub mod script;
mod stream;
mod surrogates;
pub mod telling;
pub mod timeouts;
mod words;

pub use connect::{ConfigError, ModelConfig, Secret, connect, connect_judge};
pub use lanes::Lanes;
pub use probe::{Answering, endpoint, probe, usual_timeouts};
pub use timeouts::Timeouts;
