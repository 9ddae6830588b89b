//! What is true about children, in their parent's journal.

use super::*;
use crate::children::{Changes, Report};

/// A child is asked for. From here on its grant is set aside and the child is owed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    pub child: RunId,
    /// What names it among its parent's children.
    pub key: String,
    pub goal: String,
    /// What its task has otherwise than its parent's, which stands in `run.started`. Its limits are the grant.
    pub changes: Changes,
    pub grant: Limits,
    /// How many of those asked for with it are driven at the same time.
    pub at_once: u32,
    /// Whether it may write files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// The workspace before any of them, where nobody had looked at it yet: what checks go by is compared with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
}

/// A child's end is taken: what was set aside for it is settled by what it spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub input: InputId,
    pub report: Report,
}
