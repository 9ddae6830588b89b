//! Streams that begin anew: somebody on the way asked again, and a second answer follows the beginning of the first. What
//! came before it is void.
//!
//! It shows by another id. That alone says nothing where ids change from chunk to chunk, as some servers have it; so an id
//! counts only once a second chunk bore it.

use serde_json::Value;

/// What a chunk says of the stream it belongs to.
pub(crate) struct Mark<'a> {
    pub(crate) id: &'a str,
    /// It may be the first of a stream.
    pub(crate) begins: bool,
    /// It may follow another in a stream.
    pub(crate) follows: bool,
    /// What it is if no other chunk will tell.
    pub(crate) alone: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// More of the stream.
    More,
    /// The first of another.
    Anew,
    /// One or the other: the next chunk tells.
    Perhaps,
}

/// The stream whose chunks come in.
#[derive(Default)]
pub(crate) struct Stream {
    id: String,
    /// How far the id can be relied on.
    ids: Ids,
    held: Option<(String, Value)>,
}

#[derive(Default, PartialEq, Eq)]
enum Ids {
    /// One chunk bore it.
    #[default]
    Once,
    /// It is that of the stream.
    Steady,
    /// They differ from chunk to chunk.
    Whims,
}

impl Stream {
    /// Whether a chunk with this id can only be more of the same.
    pub(crate) fn is(&self, id: Option<&str>) -> bool {
        let is_known = self.ids == Ids::Steady && id.is_none_or(|id| id == self.id);
        self.held.is_none() && (is_known || self.ids == Ids::Whims)
    }

    pub(crate) fn see(&mut self, mark: &Mark<'_>) -> Seen {
        if mark.id.is_empty() || self.ids == Ids::Whims {
            return Seen::More;
        }
        if self.id.is_empty() {
            mark.id.clone_into(&mut self.id);
            return Seen::More;
        }
        if mark.id == self.id {
            if mark.follows {
                self.ids = Ids::Steady;
            }
            return Seen::More;
        }
        if !mark.begins {
            self.ids = Ids::Whims;
            return Seen::More;
        }
        let seen = if self.ids == Ids::Steady { Seen::Anew } else { mark.alone.unwrap_or(Seen::Perhaps) };
        if seen == Seen::Anew {
            *self = Self { id: mark.id.to_owned(), ids: Ids::Once, held: None };
        }
        seen
    }

    /// Keeps a chunk that may begin another stream.
    pub(crate) fn hold(&mut self, id: String, chunk: Value) {
        self.held = Some((id, chunk));
    }

    /// The chunk that was kept, and what it is by the one that follows.
    pub(crate) fn release(&mut self, next: Option<&Mark<'_>>) -> Option<(Value, Seen)> {
        let (id, chunk) = self.held.take()?;
        if next.is_some_and(|next| next.id == id && next.follows) {
            *self = Self { id, ids: Ids::Steady, held: None };
            return Some((chunk, Seen::Anew));
        }
        self.ids = Ids::Whims;
        Some((chunk, Seen::More))
    }
}
