//! What every backend's archive has in common: how a piece becomes text, what a query means, and which stretch of a text
//! answers it best. Finding candidates quickly is each backend's own business; [`scan`] does without an index.

mod excerpt;
pub(crate) mod query;
pub(crate) mod scan;
pub(crate) mod text;

pub(crate) use query::Query;
pub(crate) use text::Pieces;

use std::cmp::Reverse;

use longrein_core::context::archive::Handle;
use longrein_core::task::Builtin;
use longrein_ports::{Found, Piece};

/// Whether a piece only repeats others: what was looked up before. It holds the words of its query, and so would every query
/// find itself. It is never found, only read by its handle. So are lists.
pub(crate) fn is_echo(piece: &Piece) -> bool {
    piece.what == Builtin::Recall.as_str() || matches!(piece.handle, Handle::List(_))
}

/// How a piece is shown as found by the words of a query.
pub(crate) fn found_by_words(piece: &Piece, query: &Query) -> Found {
    // Where the index found what the excerpt cannot, the beginning is shown.
    let stretch = excerpt::of_words(&piece.text, query).map_or(0..0, |stretch| stretch.bytes);
    shown(piece, stretch)
}

/// A piece that holds the query, or words of it, as they are written; and how much of it.
pub(crate) fn found_as_written(piece: &Piece, query: &Query) -> Option<(excerpt::Fit, Found)> {
    let (fit, stretch) = excerpt::as_written(&piece.text, query)?;
    Some((fit, shown(piece, stretch)))
}

pub(crate) use excerpt::Fit;

fn shown(piece: &Piece, stretch: std::ops::Range<usize>) -> Found {
    Found {
        handle: piece.handle,
        what: piece.what.clone(),
        at: piece.at,
        line: stretch.start.checked_sub(piece.result_at).map_or(0, |start| excerpt::line(piece.result(), start)),
        excerpt: excerpt::around(&piece.text, stretch),
    }
}

/// The best of what was found as written, newest first among equals; echoes are none. Pieces come newest first.
pub(crate) struct Written {
    most: usize,
    found: Vec<(Fit, Found)>,
    left_bytes: usize,
}

/// The most text that is looked through as it is written. A run of 5,000 turns has about half of it.
const WRITTEN_MAX_BYTES: usize = 32 << 20;

impl Written {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, found: Vec::new(), left_bytes: WRITTEN_MAX_BYTES }
    }

    /// Looks at one more piece. Whether it is worth going on.
    pub(crate) fn look(&mut self, piece: &Piece, query: &Query) -> bool {
        if is_echo(piece) {
            return true;
        }
        self.left_bytes = self.left_bytes.saturating_sub(piece.text.len());
        self.found.extend(found_as_written(piece, query));
        let whole = self.found.iter().filter(|(fit, _)| *fit == Fit::Whole).count();
        self.left_bytes > 0 && whole < self.most
    }

    pub(crate) fn best(mut self) -> Vec<Found> {
        // Stable: newest first stays so.
        self.found.sort_by_key(|(fit, _)| Reverse(*fit));
        self.found.truncate(self.most);
        self.found.into_iter().map(|(_, found)| found).collect()
    }
}
