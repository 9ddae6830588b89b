//! Tree snapshots: the state of a whole workspace, kept outside it, and the way back to one.
//!
//! Nothing here touches the user's index, stash, refs, HEAD or any file outside the snapshot (law 12).

use std::fmt;

use longrein_core::ids::TreeId;

use crate::{BoxError, BoxFuture};

/// Why a tree could not be taken, compared or gone back to. Nothing was changed, or [`TreeError::Partly`] says what was.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Paths are not what they were when the later of the two snapshots was taken: somebody changed them meanwhile.
    #[error("changed since by someone else: {}", .0.join(", "))]
    Changed(Vec<String>),
    /// The snapshot is not kept (any more).
    #[error("the snapshot {0} is not kept")]
    Unknown(TreeId),
    /// The store of snapshots is full, by its quota, or the workspace is beyond what one may hold. Says which and what to do.
    #[error("{0}")]
    TooLarge(String),
    /// Something of it is missing from the store, or is not what was written. It will not pass.
    #[error("{0}")]
    Damaged(String),
    /// It stopped in the middle; the same restore may be asked for again. What was done, and why it stopped.
    #[error("restored {} of {of} paths, then: {source}", .done.len())]
    Partly { done: Vec<String>, of: usize, source: BoxError },
    /// May pass, or not: the disk, permissions.
    #[error("{0}")]
    Unavailable(#[source] BoxError),
}

/// What became of a path from one tree to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    Added,
    Removed,
    /// Its bytes, its kind, where it links to, or whether it may be executed.
    Changed,
}

/// One path that differs. Paths are relative to the workspace with slashes; what is no UTF-8 and control characters stand as
/// `\\xNN`, a backslash as `\\\\`, so that a path is one line and can be told from any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub path: String,
    pub turned: Turned,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.turned {
            Turned::Added => '+',
            Turned::Removed => '-',
            Turned::Changed => '~',
        };
        write!(f, "{sign} {}", self.path)
    }
}

/// What is to be undone: everything that differs between the two, or of that only what lies within some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The tree to go back to.
    pub to: TreeId,
    /// The tree as it was left. A path that is neither as here nor as in `to` is refused as [`TreeError::Changed`].
    pub left: TreeId,
    /// Globs as in a tool's `writes`; None: everything.
    pub within: Option<Vec<String>>,
}

/// What a restore did. Paths written as in [`Difference`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// As in the tree that was gone back to, whether by this call or by an earlier one that died.
    pub paths: Vec<String>,
    /// Differ and were left alone: one of the two snapshots did not reach them (ignored, too large, no regular file), or a
    /// folder holds something like that. Where this is not empty, the workspace is not quite what it was.
    pub kept: Vec<String>,
    /// Where what stood there before was moved to; None: nothing had to be moved.
    pub aside: Option<String>,
}

/// The snapshots of one workspace.
pub trait Trees: Send + Sync {
    /// Takes a snapshot. It is on disk when this returns.
    fn snapshot(&self) -> BoxFuture<'_, Result<TreeId, TreeError>>;

    /// What a snapshot would be called, without keeping one.
    fn hash(&self) -> BoxFuture<'_, Result<TreeId, TreeError>>;

    /// What differs, sorted by path.
    fn differences<'a>(&'a self, from: &'a TreeId, to: &'a TreeId)
    -> BoxFuture<'a, Result<Vec<Difference>, TreeError>>;

    /// Goes back. Times, owners and extended attributes of files are not restored. Asked twice (a death in between), it ends as if asked once.
    fn undo<'a>(&'a self, undo: &'a Undo) -> BoxFuture<'a, Result<Restored, TreeError>>;
}
