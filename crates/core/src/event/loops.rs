//! What is true about runs that go in circles or stop half way.

use super::*;

/// The same thing came again and again, and something is done about it: once for each level that it comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopNoticed {
    pub repetition: Repetition,
    pub level: Level,
    /// What was called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
    /// Turns, or replies, or rebuilds.
    pub times: u32,
    /// The first and the last action that belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<ActionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ActionId>,
    /// Of the error that came up again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// What repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repetition {
    /// One call, with one result.
    SameCall,
    /// Calls that differ in times, random ids, counts of tries, case or spaces, with one result.
    LikeCall,
    /// A few calls, with the same results each time.
    Circle,
    /// One kind of error of one tool.
    SameError,
    /// Replies that say what comes next and do nothing.
    OnlyWords,
    /// Rebuilds of the context with nothing found out or changed between them.
    NothingNew,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The model is told.
    Told,
    /// The tools are taken away for the next turn.
    Taken,
    /// The run ends.
    Ended,
}

/// What is in the way of taking a reply without calls for the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Open loops and steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteId>,
    /// Calls of the last turn that failed and that the reply says nothing of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ActionId>,
    /// It says what comes next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub announces: bool,
    /// It was told before, and none of it was settled: the run ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}
