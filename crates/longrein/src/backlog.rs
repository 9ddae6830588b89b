//! What was said of a reply on its way in and somebody has not read yet. Whoever reads slowly gets fewer and longer pieces,
//! and slows nobody down; whoever reads far too slowly gets none, and then the reply.

use longrein_core::ids::AttemptId;
use longrein_ports::Spoken;

/// Of one reply: more than this is not kept for a reader who does not come.
const BACKLOG_MAX_BYTES: usize = 1024 * 1024;

/// A piece of a reply that does not stand yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piecemeal {
    /// More of its text.
    Text(String),
    /// More of what the model thinks.
    Thought(String),
    /// What was told of this turn is void.
    Restarted,
}

/// Pieces nobody has read, of the last attempt that said something.
#[derive(Debug, Default)]
pub struct Backlog {
    pieces: Vec<(AttemptId, Piecemeal)>,
    bytes: usize,
    /// The attempt of which no more is kept.
    given_up: Option<AttemptId>,
}

impl Backlog {
    /// Keeps a piece. Pieces of one kind that follow each other are one.
    pub fn add(&mut self, attempt: AttemptId, spoken: Spoken<'_>) {
        let (more, is_text) = match spoken {
            Spoken::Text(more) => (more, true),
            Spoken::Thought(more) => (more, false),
            Spoken::Anew => {
                self.clear();
                self.given_up = None;
                self.pieces.push((attempt, Piecemeal::Restarted));
                return;
            }
        };
        if self.given_up == Some(attempt) {
            return;
        }
        self.bytes += more.len();
        if self.bytes > BACKLOG_MAX_BYTES {
            self.clear();
            self.given_up = Some(attempt);
            self.pieces.push((attempt, Piecemeal::Restarted));
            return;
        }
        match self.pieces.last_mut() {
            Some((same, Piecemeal::Text(text))) if is_text && *same == attempt => text.push_str(more),
            Some((same, Piecemeal::Thought(thought))) if !is_text && *same == attempt => thought.push_str(more),
            Some((_, Piecemeal::Text(_) | Piecemeal::Thought(_) | Piecemeal::Restarted)) | None => {
                let more = more.to_owned();
                let piece = if is_text { Piecemeal::Text(more) } else { Piecemeal::Thought(more) };
                self.pieces.push((attempt, piece));
            }
        }
    }

    /// What there is, in order; it is forgotten here.
    pub fn take(&mut self) -> Vec<(AttemptId, Piecemeal)> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Whose pieces there are, if any.
    pub fn attempt(&self) -> Option<AttemptId> {
        self.pieces.last().map(|(attempt, _)| *attempt)
    }

    /// Whether all there is to tell is that what was told is void.
    pub fn is_void(&self) -> bool {
        self.pieces.iter().all(|(_, piece)| *piece == Piecemeal::Restarted)
    }

    /// Forgets what nobody will read any more.
    fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use longrein_core::ids::TurnId;

    use super::*;

    fn attempt(attempt: u32) -> AttemptId {
        AttemptId { turn: TurnId(1), attempt }
    }

    #[test]
    fn a_reader_who_is_behind_gets_longer_pieces() {
        let mut backlog = Backlog::default();
        for spoken in [Spoken::Thought("a"), Spoken::Text("b"), Spoken::Text("c"), Spoken::Thought("d")] {
            backlog.add(attempt(1), spoken);
        }
        let thought = |text: &str| (attempt(1), Piecemeal::Thought(text.to_owned()));
        let text = (attempt(1), Piecemeal::Text("bc".to_owned()));
        assert_eq!(backlog.take(), [thought("a"), text, thought("d")]);
        assert_eq!(backlog.take(), []);
        backlog.add(attempt(1), Spoken::Text("e"));
        backlog.add(attempt(1), Spoken::Anew);
        backlog.add(attempt(2), Spoken::Text("f"));
        let expected = [(attempt(1), Piecemeal::Restarted), (attempt(2), Piecemeal::Text("f".to_owned()))];
        assert_eq!(backlog.take(), expected, "what is void is not read any more");
    }

    #[test]
    fn nothing_is_kept_without_bound_and_what_was_read_is_taken_back() {
        let mut backlog = Backlog::default();
        backlog.add(attempt(1), Spoken::Text("read"));
        assert_eq!(backlog.take().len(), 1);
        let piece = "x".repeat(1000);
        for _ in 0..3_000 {
            backlog.add(attempt(1), Spoken::Text(&piece));
        }
        assert_eq!(backlog.take(), [(attempt(1), Piecemeal::Restarted)]);
        backlog.add(attempt(2), Spoken::Text("again"));
        assert_eq!(backlog.take(), [(attempt(2), Piecemeal::Text("again".to_owned()))]);
    }
}
