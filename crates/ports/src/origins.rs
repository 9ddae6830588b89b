//! Origins: where what lies in files came from, over all runs of a store.

use longrein_core::ids::Digest;
use longrein_core::taint::Mark;
use longrein_core::time::Timestamp;

use crate::BoxFuture;

/// Remembers which files hold what an untrusted text may have brought about, and which sources people trust: what a gate asks.
///
/// Whoever cannot look says the worst: what is not known of a file is no proof that it is clean.
pub trait Ledger: Send + Sync {
    /// What reading a file brings, by what lies there now. `path` is absolute, without links.
    fn file(&self, path: &str) -> Option<Mark>;

    /// What reading everything below a folder brings.
    fn below(&self, folder: &str) -> Option<Mark>;

    /// Whether a person trusts a source.
    fn endorses(&self, source: &str) -> bool;
}

/// A ledger that also finds out what was written.
pub trait Origins: Ledger {
    /// Files in a folder that were changed since then, or whose names were: by the time that the kernel keeps, which nobody
    /// can set back. Bounded; what is beyond the bounds is told as the whole folder it lies in.
    fn written<'a>(&'a self, folder: &'a str, since: Timestamp) -> BoxFuture<'a, Vec<Written>>;
}

/// Something that was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Absolute.
    pub path: String,
    /// Of a file's content. None: everything at and below the path, whatever it holds.
    pub content: Option<Digest>,
}

/// Nothing is remembered: for drives without files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOrigins;

impl Ledger for NoOrigins {
    fn file(&self, _path: &str) -> Option<Mark> {
        None
    }
    fn below(&self, _folder: &str) -> Option<Mark> {
        None
    }
    fn endorses(&self, _source: &str) -> bool {
        false
    }
}

impl Origins for NoOrigins {
    fn written<'a>(&'a self, _folder: &'a str, _since: Timestamp) -> BoxFuture<'a, Vec<Written>> {
        Box::pin(async { Vec::new() })
    }
}
