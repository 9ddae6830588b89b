//! Checks: conditions over values, judgement of answers, and acceptance commands.

use std::collections::BTreeMap;

use bytes::Bytes;
use longrein_core::action::Attempt;
use longrein_core::check::{Judgement, Verdict};
use longrein_core::ids::{Digest, EvidenceId, FactName, RunId, Seq, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::{AnswerSpec, CheckSpec, Guard, Task};

use crate::{BoxFuture, Changed, Handed};

/// Evidence an answer or an argument cites, with its data.
#[derive(Debug, Clone)]
pub struct Cited {
    pub tool: ToolName,
    pub data: Payload,
    /// Some: no longer live, since this event.
    pub void_since: Option<Seq>,
}

/// What a guard may look at.
#[derive(Debug)]
pub struct GuardInput<'a> {
    pub args: &'a Payload,
    pub facts: &'a BTreeMap<FactName, Payload>,
    /// Evidence handed to the call, by argument name.
    pub evidence: &'a BTreeMap<String, Payload>,
    pub principal: &'a Payload,
}

/// One acceptance check to run.
#[derive(Debug, Clone)]
pub struct CheckRun {
    pub run: RunId,
    pub spec: CheckSpec,
    pub about: Work,
}

/// What is judged, for checks that are no commands.
#[derive(Debug, Clone)]
pub struct Work {
    pub answer: Payload,
    /// The newest live evidence of each tool.
    pub evidence: BTreeMap<ToolName, Payload>,
    pub facts: BTreeMap<FactName, Payload>,
}

impl Default for Work {
    fn default() -> Self {
        Self { answer: Payload::null(), evidence: BTreeMap::new(), facts: BTreeMap::new() }
    }
}

/// The check of one action to run.
#[derive(Debug, Clone)]
pub struct ActionCheck {
    /// The attempt that is done.
    pub attempt: Attempt,
    /// What it was handed, and what it brought.
    pub handed: Handed,
}

/// A verdict, with the bytes of evidence that is too large for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub verdict: Verdict,
    pub blobs: Vec<(Digest, Bytes)>,
}

pub trait Checks: Send + Sync {
    /// Ok if the guard holds; else the message for the model. A guard that cannot be evaluated does not hold.
    fn guard(&self, guard: &Guard, input: &GuardInput<'_>) -> Result<(), String>;

    /// The evidence ids an answer cites in its bound fields; those that cannot be read are left out and found by `judge`.
    fn cites(&self, spec: &AnswerSpec, text: &str) -> Vec<EvidenceId>;

    /// Judges a final reply: schema, bindings, condition, then the template.
    fn judge(&self, spec: Option<&AnswerSpec>, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement;

    /// Whether a condition of a program holds, over values by name. Err: it gives no verdict, and why.
    fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String>;

    /// Fills in a template of a program: every string in `template` over values by name. Err: what is wrong with it.
    fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String>;

    /// Runs an acceptance command in the workspace. Dropping the future ends the command and its descendants.
    fn check<'a>(&'a self, task: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked>;

    /// What an acceptance check runs that is no longer what was pinned at the start, if anything.
    fn changed(&self, _spec: &CheckSpec) -> Option<Changed> {
        None
    }

    /// Which of these paths of the workspace a check protects.
    fn protected(&self, spec: &CheckSpec, paths: Vec<String>) -> Vec<String>;

    /// Runs the check of a tool over a call of it that is done; the command gets the same object as the call, with its
    /// result. Dropping the future ends the command and its descendants.
    fn check_action<'a>(&'a self, task: &'a Task, check: ActionCheck) -> BoxFuture<'a, Checked>;
}
