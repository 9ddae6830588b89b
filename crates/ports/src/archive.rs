//! The archive of a run: everything its journal and blobs hold, found again by words or by handle.

use longrein_core::context::archive::Handle;
use longrein_core::ids::RunId;
use longrein_core::time::Timestamp;

use crate::{BoxFuture, JournalError};

/// A place in a run's past that fits a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub handle: Handle,
    /// What the piece is, in a word or two: a tool's name, `user message`, `reply`, `check unit`.
    pub what: String,
    /// When the last of it became known.
    pub at: Timestamp,
    /// The stretch that fits best, with some [`EXCERPT_AROUND_BYTES`] around it.
    pub excerpt: String,
    /// The line of [`Piece::result`] that stretch begins in, counted from 1 as [`lines`] does. 0: it stands before it, in
    /// the call.
    pub line: u64,
}

/// One piece whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub handle: Handle,
    pub what: String,
    pub at: Timestamp,
    /// Everything it says, readable: texts as they are, other JSON as JSON whose strings are not escaped.
    pub text: String,
    /// The byte at which the result of an action begins: what its lines are counted from where it is shown shorter. Before
    /// it stands what was called, and what else comes before the longest text of the result. 0 for all other pieces.
    pub result_at: usize,
}

impl Piece {
    pub fn call(&self) -> &str {
        self.text.get(..self.result_at).unwrap_or_default()
    }

    /// All of it but the call.
    pub fn result(&self) -> &str {
        self.text.get(self.result_at..).unwrap_or_default()
    }
}

/// Bytes shown before and after what was found. Together some 200 tokens: enough to see whether it is worth reading on.
pub const EXCERPT_AROUND_BYTES: usize = 400;

/// A longer line is broken: a log or a minified file may be one line, and all of it can be read by ranges of lines.
pub const LINE_MAX_BYTES: usize = 2_000;

/// The lines of a piece, with their line feeds, none longer than [`LINE_MAX_BYTES`].
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len().min(LINE_MAX_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let end = rest[..end].find('\n').map_or(end, |newline| newline + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

/// Finds again what has left the model's window. The index behind it is a cache over journal and blobs: losing it loses
/// nothing, and a call that finds none makes it. Needs no claim; any number of processes may ask at once.
pub trait Archive: Send + Sync {
    /// Brings a run's index up to its last event; cheap when it is.
    fn index<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<(), JournalError>>;

    /// The pieces that fit `query` best, best first, at most `most`. Any text is a query: first come pieces that hold all
    /// its words near each other, then those that hold all, then those that hold some; where no word is found, the text as
    /// it stands is looked for, newest first. Brings the index up first.
    fn find<'a>(
        &'a self,
        run: &'a RunId,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Found>, JournalError>>;

    /// One piece whole. None: there is none of that handle.
    fn piece<'a>(&'a self, run: &'a RunId, handle: &'a Handle) -> BoxFuture<'a, Result<Option<Piece>, JournalError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_never_long_and_none_is_lost() {
        let long = format!("a\n\n{}\nb{}", "é".repeat(1500), "x".repeat(LINE_MAX_BYTES));
        for text in ["", "a", "a\n", "\n\n", "a\nb", &long] {
            assert_eq!(lines(text).collect::<String>(), text);
            assert!(lines(text).all(|line| !line.is_empty() && line.len() <= LINE_MAX_BYTES));
            assert!(lines(text).all(|line| line.trim_end_matches('\n').find('\n').is_none()));
        }
        let lengths: Vec<_> = lines(&long).map(str::len).collect();
        assert_eq!(lengths, [2, 1, 2000, 1001, 2000, 1]);
    }
}
