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

    /// The same, with somebody listening while the reply comes in. Once it is whole, the texts told since the last
    /// [`Spoken::Anew`] are its text. A model that has nothing to tell before its reply stands tells nothing.
    fn send_heard<'a>(
        &'a self,
        request: Encoded,
        _listener: &'a dyn Listener,
    ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        self.send(request)
    }
}

/// A piece of a reply on its way in: for somebody to look at, never to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken<'a> {
    /// More of its text.
    Text(&'a str),
    /// More of what the model thinks, as far as its provider tells.
    Thought(&'a str),
    /// Everything told before is void: the reply begins anew.
    Anew,
}

/// Hears a reply as it comes in. Must not block: it stands in the way of the bytes behind.
pub trait Listener: Send + Sync {
    fn hear(&self, spoken: Spoken<'_>);
}
