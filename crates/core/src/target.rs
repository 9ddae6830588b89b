//! What a call is about, where that is one file or folder: found out at the edge, journaled with the start.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;

/// The file or folder of a call, as the kernel resolves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Relative to the workspace where it lies inside (`.` is the workspace itself), else absolute. No links, no `..`.
    pub path: String,
    pub place: Place,
    /// Of its content before the call. None: there is no file, or its content is of no matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// Of its content as the call will leave it. None: the call does not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the workspace.
    Inside,
    Outside,
}
