//! Models: a pure encoder and a thin client.

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::{AnswerForm, Prompt};

use crate::BoxFuture;

/// A request as it leaves: exact bytes and their digest.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub bytes: Bytes,
    pub digest: Digest,
    /// See [`Prompt::position`].
    pub position: u64,
    /// How a reply without a call is to be read.
    pub answer: AnswerForm,
}

pub trait Model: Send + Sync {
    /// A function of the prompt alone: the same prompt gives the same bytes. It may remember what it made of the items of
    /// an earlier prompt, so that a longer prompt costs what was added to it.
    fn encode(&self, prompt: &Prompt) -> Encoded;

    /// One attempt; retries are the driver's. Dropping the future gives the call up.
    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>>;
}
