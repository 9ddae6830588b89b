//! What of a reply is told while it comes in: pieces of text and of thoughts, in the order in which they came.
//!
//! [`Said`] is what a decoder has read since somebody last asked; it stays pure. [`Telling`] passes it on and keeps the
//! promise of [`Model::send_heard`](longrein_ports::Model::send_heard): what was told is the text of the reply that stands,
//! or it is taken back.

use longrein_core::outcome::Reply;
use longrein_ports::{Listener, Spoken};

/// One piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saying {
    Text(String),
    Thought(String),
    /// What came before is void.
    Anew,
}

/// Pieces in the order in which they came; those of one kind that follow each other are one.
#[derive(Debug, Default)]
pub struct Said(Vec<Saying>);

impl Said {
    pub(crate) fn text(&mut self, more: &str) {
        match self.0.last_mut() {
            _ if more.is_empty() => {}
            Some(Saying::Text(text)) => text.push_str(more),
            Some(Saying::Thought(_) | Saying::Anew) | None => self.0.push(Saying::Text(more.to_owned())),
        }
    }

    pub(crate) fn thought(&mut self, more: &str) {
        match self.0.last_mut() {
            _ if more.is_empty() => {}
            Some(Saying::Thought(thought)) => thought.push_str(more),
            Some(Saying::Text(_) | Saying::Anew) | None => self.0.push(Saying::Thought(more.to_owned())),
        }
    }

    pub(crate) fn anew(&mut self) {
        self.0 = vec![Saying::Anew];
    }

    /// What there is, which is forgotten here.
    pub(crate) fn take(&mut self) -> Vec<Saying> {
        std::mem::take(&mut self.0)
    }
}

/// Tells one reply to one listener.
pub(crate) struct Telling<'a> {
    listener: &'a dyn Listener,
    /// The text as it was told.
    text: String,
    has_thought: bool,
}

impl<'a> Telling<'a> {
    pub(crate) fn to(listener: &'a dyn Listener) -> Self {
        Self { listener, text: String::new(), has_thought: false }
    }

    pub(crate) fn tell(&mut self, said: Vec<Saying>) {
        for saying in said {
            match saying {
                Saying::Text(more) => {
                    self.listener.hear(Spoken::Text(&more));
                    self.text.push_str(&more);
                }
                Saying::Thought(more) => {
                    self.listener.hear(Spoken::Thought(&more));
                    self.has_thought = true;
                }
                Saying::Anew => self.take_back(),
            }
        }
    }

    /// The reply stands: what was not told of its text is, and what was told wrongly is taken back.
    pub(crate) fn settle(mut self, reply: &Reply) {
        if !reply.text.starts_with(&self.text) {
            self.take_back();
        }
        let rest = &reply.text[self.text.len()..];
        if !rest.is_empty() {
            self.listener.hear(Spoken::Text(rest));
        }
    }

    fn take_back(&mut self) {
        if self.has_thought || !self.text.is_empty() {
            self.listener.hear(Spoken::Anew);
        }
        self.text.clear();
        self.has_thought = false;
    }
}

/// Passes on thoughts alone: the text means nothing before it was read as a whole.
pub(crate) struct Thoughts<'a>(pub(crate) &'a dyn Listener);

impl Listener for Thoughts<'_> {
    fn hear(&self, spoken: Spoken<'_>) {
        match spoken {
            Spoken::Text(_) => {}
            Spoken::Thought(_) | Spoken::Anew => self.0.hear(spoken),
        }
    }
}

/// Nobody listens.
pub(crate) struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _spoken: Spoken<'_>) {}
}
