//! The program: the loop's shape as data. Phases and transitions between them; what a run does next is a function of this
//! value and of the run's [`Course`] through it (`semantics.md` I2).
//!
//! Core decides which transition is taken and what is owed. It never evaluates a condition or fills in a template: those
//! are worked out at the edge and enter as values. A program arrives whole and checked ([`check`]).

pub mod check;
pub mod children;
mod course;
mod part;

use serde::{Deserialize, Serialize};

pub use self::course::{At, Course, LESSON_BYTES_MAX, LESSONS_MAX, Outcome};
pub use self::part::{NO_LIMITS, PartTask, task_of};
use crate::ids::{CheckName, PhaseName, ToolName};
use crate::payload::Payload;
use crate::task::{CheckSpec, ModelSpec, ToolSpec};

/// Which loop a run follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Reason and act: call the model, perform its calls, until a reply has none; that reply is the answer.
    React,
    /// Phases, and transitions between them.
    Phases(Box<Phases>),
}

impl Program {
    pub fn name(&self) -> &str {
        match self {
            Program::React => "react",
            Program::Phases(phases) => &phases.name,
        }
    }

    /// None: the plain loop, which has no phases.
    pub fn phases(&self) -> Option<&Phases> {
        match self {
            Program::React => None,
            Program::Phases(phases) => Some(phases),
        }
    }
}

/// A program of phases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub start: PhaseName,
    /// The phase whose output is the run's answer. None: the agent or reply phase that was left last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<PhaseName>,
    pub phases: Vec<Phase>,
    /// Tools that only the program calls: the model is not offered them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_tools: Vec<ToolName>,
}

/// One phase: what is done in it, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    pub name: PhaseName,
    pub kind: Kind,
    /// How often it may be entered. None: as often as its program leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visits: Option<u32>,
    /// What it leaves for later phases to remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The first whose condition holds is taken; the last has none.
    pub next: Vec<Next>,
}

/// What is done in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Agent(Agent),
    Reply(Reply),
    Call(Call),
    Checks(Checks),
    Ask(Ask),
    /// Nothing: only its transitions matter.
    Branch,
    Each(Each),
    Run(Child),
}

impl Kind {
    pub fn as_str(&self) -> &'static str {
        match self {
            Kind::Agent(_) => "agent",
            Kind::Reply(_) => "reply",
            Kind::Call(_) => "call",
            Kind::Checks(_) => "checks",
            Kind::Ask(_) => "ask",
            Kind::Branch => "branch",
            Kind::Each(_) => "each",
            Kind::Run(_) => "run",
        }
    }

    /// The template of what the model is told when the phase begins. None: no model works in it.
    pub fn instructions(&self) -> Option<&str> {
        match self {
            Kind::Agent(agent) => Some(&agent.instructions),
            Kind::Reply(reply) => Some(&reply.instructions),
            Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch | Kind::Each(_) | Kind::Run(_) => None,
        }
    }

    /// Whether a model works in it, so that it can answer again.
    pub fn has_model(&self) -> bool {
        self.instructions().is_some()
    }
}

/// The loop of model calls and tool calls; a reply without calls ends it and is its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// A template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// The only tools that may be called in it. None: all there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolName>>,
    /// Model turns it may take. None: as many as the run has. A phase that used them up without a final reply is over and
    /// not ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Prose::is_kept")]
    pub prose: Prose,
}

/// What becomes of a model's words beside its calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prose {
    #[default]
    Kept,
    /// Words beside calls are no part of the conversation, and a reply without calls must be one structured answer.
    Dropped,
}

impl Prose {
    fn is_kept(&self) -> bool {
        *self == Prose::Kept
    }
}

/// The form of a structured answer where the task names none.
pub const STRUCTURED_ANSWER: &str =
    r#"{"type":"object","required":["answer"],"properties":{"answer":{"type":"string"}},"additionalProperties":false}"#;

/// One model call without tools, whose reply is one JSON object of a schema: the phase's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// A template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    pub schema: Payload,
}

/// A fixed tool call. Its result is the phase's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub tool: ToolName,
    /// A JSON object; strings in it are templates.
    pub args: Payload,
}

/// Checks run now; their verdicts become values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Acceptance checks of the task, by name. Empty, and no checks of its own: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<CheckName>,
    /// Its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<CheckSpec>,
}

/// A question to a person, asked by the built-in tool `ask`. The answer is the phase's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub tool: ToolName,
    /// A template.
    pub question: String,
    #[serde(default, skip_serializing_if = "Form::is_words")]
    pub form: Form,
}

/// What a person is to answer with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    #[default]
    Words,
    /// `yes` or `no`, whose output is true or false.
    YesNo,
}

impl Form {
    fn is_words(&self) -> bool {
        *self == Form::Words
    }
}

/// A person's yes or no. None: it is neither.
pub fn yes_or_no(text: &str) -> Option<bool> {
    let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
    match word.as_str() {
        "y" | "yes" | "true" | "ok" | "okay" => Some(true),
        "n" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// A child run for every item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Each {
    /// A template that gives a list.
    pub over: String,
    pub child: Child,
    /// Children driven at the same time.
    pub parallel: u32,
    #[serde(default)]
    pub join: Join,
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// When a fan-out is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// When every child has ended.
    #[default]
    All,
    /// When one is done; the others are told to end, and have ended.
    Any,
}

/// What one child that is not done means for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The others are told to end, and the phase is not ok.
    #[default]
    Stop,
    /// The others go on; the output says which failed.
    GoOn,
}

/// What a child run is to do. Everything it does not say it has from its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// A template. None: the task's own goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// A task file, relative to the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// A program, by name or file. None: the plain loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The model it calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The most model turns it is granted. None: what the parent has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// What the names stand for. None: nothing is named, or it was read without a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Box<ChildParts>>,
}

/// What a child has that its parent has not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildParts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Tools that its program needs beside the task's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// What its task file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<PartTask>>,
}

/// A lesson for later phases (`design.md` §5: what is pinned is shown in every request).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The list it is put on.
    pub list: String,
    /// A template over what the phase leaves; where it gives nothing, nothing is put on the list.
    pub text: String,
}

/// A transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// CEL. None: it is taken when no other is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub to: To,
}

/// Where a transition leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    Phase(PhaseName),
    /// The program is through: the answer is judged, and acceptance decides.
    Done,
    /// The run fails, for this reason.
    Failed(String),
}

/// What ends are called; no phase may be.
pub const ENDS: [&str; 2] = ["done", "failed"];

impl std::fmt::Display for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            To::Phase(name) => f.pad(name.as_str()),
            To::Done => f.pad("done"),
            To::Failed(_) => f.pad("failed"),
        }
    }
}

impl Phases {
    pub fn phase(&self, name: &PhaseName) -> Option<&Phase> {
        self.phases.iter().find(|phase| &phase.name == name)
    }
}
