//! Hooks: commands of the operator that are told of what a run does, and that may say no. They can only narrow: nothing a
//! hook says, and no way in which it fails, allows anything that was not allowed without it (`design.md` §2, law 8).
//!
//! Whether hooks were heard is decided here and nowhere else: a start, a message or an answer that hooks have a say in
//! is not taken without the word of every one of them, and a word that is missing is a failure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ActionId, AttemptId, InputId, ToolName};
use crate::run::{Run, Stage};
use crate::task::{Task, duration_ms};

/// Stops in a row that hooks may prevent before the run is failed.
pub const STOP_BLOCKS_MAX: u32 = 3;

/// What a hook is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A call is allowed and about to start.
    BeforeTool,
    /// A call has ended.
    AfterTool,
    /// Words of a person are about to reach the model: the goal, or a message.
    Prompt,
    /// The model gave its answer, and nothing has checked it yet.
    Stop,
    /// The window was made anew.
    Rebuild,
    /// The run has come to rest.
    End,
}

impl HookEvent {
    pub const ALL: [HookEvent; 6] = [
        HookEvent::BeforeTool,
        HookEvent::AfterTool,
        HookEvent::Prompt,
        HookEvent::Stop,
        HookEvent::Rebuild,
        HookEvent::End,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            HookEvent::BeforeTool => "before_tool",
            HookEvent::AfterTool => "after_tool",
            HookEvent::Prompt => "prompt",
            HookEvent::Stop => "stop",
            HookEvent::Rebuild => "rebuild",
            HookEvent::End => "end",
        }
    }

    /// The name that users of Claude Code know, which hooks are told too.
    pub fn known_as(self) -> &'static str {
        match self {
            HookEvent::BeforeTool => "PreToolUse",
            HookEvent::AfterTool => "PostToolUse",
            HookEvent::Prompt => "UserPromptSubmit",
            HookEvent::Stop => "Stop",
            HookEvent::Rebuild => "PreCompact",
            HookEvent::End => "SessionEnd",
        }
    }

    /// By either name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name || event.known_as() == name)
    }

    /// Whether it is about a call.
    pub fn is_about_a_tool(self) -> bool {
        match self {
            HookEvent::BeforeTool | HookEvent::AfterTool => true,
            HookEvent::Prompt | HookEvent::Stop | HookEvent::Rebuild | HookEvent::End => false,
        }
    }

    /// Whether a hook can prevent what it is told of. The others are told, and heard by people and the model only.
    pub fn can_block(self) -> bool {
        match self {
            HookEvent::BeforeTool | HookEvent::Prompt | HookEvent::Stop => true,
            HookEvent::AfterTool | HookEvent::Rebuild | HookEvent::End => false,
        }
    }
}

/// A declared hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookSpec {
    pub event: HookEvent,
    /// Names of tools, in which `*` stands for anything. Empty: every tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    pub command: Vec<String>,
    /// Absolute path of the folder it runs in: that of the file which declares it.
    pub folder: String,
    #[serde(rename = "timeout_ms", with = "duration_ms")]
    pub timeout: Duration,
    /// Variables it gets, by name, as a tool does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Where it was declared, for people.
    pub source: String,
}

impl HookSpec {
    /// How long a hook may take unless it says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(60);
    /// The longest it may say.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);

    /// Its command in one line, for people and the model.
    pub fn label(&self) -> String {
        crate::payload::excerpt(&self.command.join(" "), LABEL_MAX_BYTES)
    }

    fn matches(&self, tool: &ToolName) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| fits(pattern.as_bytes(), tool.as_str().as_bytes()))
    }
}

/// A command may hold a whole script.
const LABEL_MAX_BYTES: usize = 120;

/// Whether a text fits a pattern in which `*` stands for any text, the empty one too.
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| fits(rest, &text[from..])),
        Some((first, rest)) => text.split_first().is_some_and(|(next, more)| next == first && fits(rest, more)),
    }
}

/// One occasion on which hooks are told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// This attempt of an action is about to start.
    Before { action: ActionId, attempt: u32 },
    /// This attempt has ended, and its outcome is journaled.
    After { action: ActionId, attempt: u32 },
    /// The goal is about to be given to the model.
    Goal,
    /// So is a message.
    Message { input: InputId },
    /// An answer was accepted in form, and begins this round.
    Stop { round: u32 },
    /// This generation of the window has begun.
    Rebuild { generation: u32 },
    /// The run rests.
    End,
}

impl Moment {
    pub fn event(&self) -> HookEvent {
        match self {
            Moment::Before { .. } => HookEvent::BeforeTool,
            Moment::After { .. } => HookEvent::AfterTool,
            Moment::Goal | Moment::Message { .. } => HookEvent::Prompt,
            Moment::Stop { .. } => HookEvent::Stop,
            Moment::Rebuild { .. } => HookEvent::Rebuild,
            Moment::End => HookEvent::End,
        }
    }
}

/// What a hook said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It has nothing against it. That lifts nothing.
    Passed,
    /// A person is to be asked.
    Asked { reason: String },
    /// No.
    Blocked { reason: String },
    /// No, and the run is to come to its end.
    Halted { reason: String },
    /// It crashed, took too long or cannot be understood: as good as a no.
    Failed { reason: String },
}

impl HookOutcome {
    pub fn as_str(&self) -> &'static str {
        match self {
            HookOutcome::Passed => "passed",
            HookOutcome::Asked { .. } => "asked",
            HookOutcome::Blocked { .. } => "blocked",
            HookOutcome::Halted { .. } => "halted",
            HookOutcome::Failed { .. } => "failed",
        }
    }

    /// Its reason, if it has something against it.
    pub fn reason(&self) -> Option<&str> {
        match self {
            HookOutcome::Passed => None,
            HookOutcome::Asked { reason }
            | HookOutcome::Blocked { reason }
            | HookOutcome::Halted { reason }
            | HookOutcome::Failed { reason } => Some(reason),
        }
    }
}

/// How one hook ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRan {
    /// Its place in the task's list.
    pub hook: u32,
    pub outcome: HookOutcome,
    /// Words of it for the model.
    pub words: Option<String>,
    pub took_ms: u64,
}

/// What hooks said of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nobody asked them yet.
    NotAsked,
    Asked(Vec<HookRan>),
}

/// Where a run stands with its hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookState {
    /// Hooks that have not been heard on the goal.
    pub goal: BTreeSet<u32>,
    /// One of them has something against it: no model is called.
    pub goal_blocked: bool,
    /// The answer that hooks have not been heard on yet.
    pub stop: Option<Stopping>,
    /// Answers in a row that hooks had something against.
    pub stop_blocks: u32,
    /// Hooks that have not been told of the end.
    pub end: BTreeSet<u32>,
    /// The last that one of them had against something.
    pub last: String,
}

/// An answer that hooks are to be heard on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub attempt: AttemptId,
    pub left: BTreeSet<u32>,
    /// One of them has something against it.
    pub is_blocked: bool,
}

impl HookState {
    pub(crate) fn new(task: &Task) -> Self {
        Self { goal: listening(task, HookEvent::Prompt, None), ..Self::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// Places of the hooks that are told of such an event.
pub fn listening(task: &Task, event: HookEvent, tool: Option<&ToolName>) -> BTreeSet<u32> {
    (0..)
        .zip(&task.hooks)
        .filter(|(_, hook)| hook.event == event && tool.is_none_or(|tool| hook.matches(tool)))
        .map(|(place, _)| place)
        .collect()
}

/// Places of the hooks that are told at this moment of this run.
pub fn told(run: &Run, moment: &Moment) -> BTreeSet<u32> {
    let of_call = |event, action: ActionId| match run.called(action) {
        Some(tool) => listening(&run.task, event, Some(&tool)),
        None => BTreeSet::new(),
    };
    match moment {
        Moment::Before { action, .. } => of_call(HookEvent::BeforeTool, *action),
        Moment::After { action, .. } => of_call(HookEvent::AfterTool, *action),
        Moment::Goal => run.hooks.goal.clone(),
        Moment::Message { .. } => listening(&run.task, HookEvent::Prompt, None),
        Moment::Stop { .. } => run.hooks.stop.as_ref().map(|stop| stop.left.clone()).unwrap_or_default(),
        Moment::Rebuild { .. } => listening(&run.task, HookEvent::Rebuild, None),
        Moment::End => run.hooks.end.clone(),
    }
}

/// The moment at which hooks must be heard before a run can go on by itself. Calls and messages ask for theirs when they
/// are about to be taken.
pub fn due(run: &Run) -> Option<Moment> {
    match &run.stage {
        Stage::Ready(_) => (!run.hooks.goal.is_empty()).then_some(Moment::Goal),
        Stage::Verifying { round, .. } => run.hooks.stop.as_ref().map(|_| Moment::Stop { round: *round }),
        Stage::Rest(_) => (!run.hooks.end.is_empty()).then_some(Moment::End),
        Stage::Thinking(_) | Stage::Acting { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_and_nothing_else_does() {
        for (pattern, text, is) in [
            ("*", "shell", true),
            ("shell", "shell", true),
            ("shell", "shells", false),
            ("Shell", "shell", false),
            ("mcp_*", "mcp_", true),
            ("mcp_*_write", "mcp_files_write", true),
            ("mcp_*_write", "mcp_files_writer", false),
            ("s.*", "shell", false),
            ("", "", true),
            ("", "shell", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), is, "{pattern} {text}");
        }
    }

    #[test]
    fn every_event_is_found_by_both_its_names() {
        for event in HookEvent::ALL {
            assert_eq!(HookEvent::named(event.as_str()), Some(event));
            assert_eq!(HookEvent::named(event.known_as()), Some(event));
        }
        assert_eq!(HookEvent::named("pretooluse"), None);
    }
}
