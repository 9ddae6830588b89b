//! Checks: conditions over values, judgement of answers, and acceptance commands.

use std::collections::BTreeMap;

use longrein_core::check::{Judgement, Verdict};
use longrein_core::ids::{Digest, EvidenceId, FactName, RunId, Seq, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::{AnswerSpec, CheckSpec, Guard, Task};

use crate::BoxFuture;

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
}

/// A verdict, with the bytes of evidence that is too large for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub verdict: Verdict,
    pub blobs: Vec<(Digest, Payload)>,
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
}
