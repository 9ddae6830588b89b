//! What can go wrong with snapshots, by what the caller should do.

use std::io;
use std::path::Path;

use longrein_core::ids::TreeId;
use rustix::io::Errno;

use crate::shown::shown;

/// Paths of the workspace are written as [`super::written`] does.
#[derive(Debug, thiserror::Error)]
pub enum TreesError {
    /// These are neither as in the tree that was left nor as in the one to go back to: somebody changed them. Nothing was
    /// touched.
    #[error("changed since by someone else: {}", .0.join(", "))]
    Changed(Vec<String>),
    #[error("the snapshot {0} is not kept")]
    Unknown(TreeId),
    /// Beyond what a snapshot or the store may hold. Says which, and the way out.
    #[error("{0}")]
    TooLarge(String),
    /// Part of the store is missing or is not what was written. It will not pass.
    #[error("the store of snapshots is damaged: {0}")]
    Damaged(String),
    /// A restore stopped in the middle; the same one may be asked for again.
    #[error("restored {} of {of} paths, then: {source}", .done.len())]
    Partly {
        done: Vec<String>,
        of: usize,
        #[source]
        source: Box<TreesError>,
    },
    /// Another process restores in this workspace, or collects garbage. Later.
    #[error("{0}")]
    Busy(&'static str),
    /// What is kept for going back must not lie where it would be part of what is kept.
    #[error("the store of snapshots ({store}) must lie outside the workspace ({root})")]
    Inside { store: String, root: String },
    #[error("the glob is not understood: {0}")]
    Glob(String),
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl TreesError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: shown(path), source }
    }

    pub(super) fn of(path: &Path, errno: Errno) -> Self {
        Self::io(path, errno.into())
    }
}
