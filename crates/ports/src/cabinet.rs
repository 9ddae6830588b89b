//! The cabinet: what saves work and may be lost at any time. Nothing here is true because it is here; the journal is.

use bytes::Bytes;
use longrein_core::ids::{RunId, Seq};

use crate::{BoxFuture, JournalError};

/// A fold of a run's journal, as its maker encoded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event that is folded in.
    pub seq: Seq,
    /// Names everything that shaped the body besides the events (`semantics.md` B4): one that differs from the reader's own
    /// makes the snapshot void.
    pub catalogue: String,
    pub body: Bytes,
}

/// How many snapshots of a run are kept: the last, and one before it should that be damaged.
pub const SNAPSHOTS_KEPT: usize = 2;

/// The most bytes of a value under a key. What is kept so is small: it is read whenever a run begins.
pub const VALUE_MAX_BYTES: usize = 256 * 1024;

/// Keeps caches beside the journals. Nothing is synced and nothing is promised: what was kept may be gone at the next look,
/// and whoever asks must be able to do without. **No error of it may stop a run**: callers note it at most.
pub trait Cabinet: Send + Sync {
    /// Keeps a snapshot of a run, and of the older ones the newest only. Refused for an event that is not there.
    fn keep_snapshot<'a>(&'a self, run: &'a RunId, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Newest first. Left out: damaged ones, and those of a history that is no longer this run's (a loss of power may take
    /// events back that a snapshot has seen).
    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>>;

    /// Keeps a small value for all runs of this store, in place of an older one under that key.
    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>>;

    /// None: never kept, lost or damaged.
    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>>;
}
