//! What may be called now. Worked out anew for every turn, from the facts that hold, what is left of the quotas, the phase,
//! the mode, the operator's rules, and what was taken away. The model is told of it in the tail, the journal has it with the
//! request, and every call is held against it again before it starts: which can only narrow it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::decide::{beyond_plan, outside_phase, tried_too_often};
use crate::ids::{FactName, ToolName};
use crate::outcome::{ToolError, class};
use crate::repeat;
use crate::run::Run;
use crate::task::{Task, ToolSpec};

/// Every tool of the task is in one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub offered: Vec<ToolName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
}

/// A tool that may not be called now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    pub tool: ToolName,
    pub why: Why,
    /// In words.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The facts that do not hold, and the tools that provide them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<FactName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provided_by: Vec<ToolName>,
}

/// What keeps a tool back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The run is in a mode that does without it.
    Mode,
    /// The phase of the program does without it.
    Phase,
    /// A rule denies every call of it.
    Rule,
    /// It was taken away for this turn.
    Loop,
    /// A fact it needs does not hold.
    Fact,
    /// The check of its calls failed too often in a row.
    Check,
    /// Its calls are used up, or what they cost does not fit what is left.
    Quota,
}

impl Withheld {
    fn new(tool: &ToolName, why: Why, message: String, hint: impl Into<String>) -> Self {
        let (missing, provided_by) = (Vec::new(), Vec::new());
        Self { tool: tool.clone(), why, message, hint: Some(hint.into()), missing, provided_by }
    }

    /// What a call of it is answered with.
    pub fn error(&self) -> ToolError {
        let class = match self.why {
            Why::Mode | Why::Phase | Why::Rule => class::DENIED,
            Why::Loop => class::LOOP,
            Why::Fact => class::MISSING_FACT,
            Why::Check => class::CHECK_FAILED,
            Why::Quota => class::BUDGET,
        };
        let error = ToolError::new(class, self.message.clone());
        match &self.hint {
            Some(hint) => error.hint(hint.clone()),
            None => error,
        }
    }
}

/// What may be called now, in the order of the task.
pub fn manifest(run: &Run) -> Manifest {
    let mut manifest = Manifest::default();
    for tool in &run.task.tools {
        match withheld(run, tool) {
            Some(withheld) => manifest.withheld.push(withheld),
            None => manifest.offered.push(tool.name.clone()),
        }
    }
    manifest
}

/// What may be called now, if that is another thing than the journal knows.
pub fn changed(run: &Run) -> Option<Manifest> {
    let is_known = run.task.tools.iter().filter_map(|tool| withheld(run, tool)).eq(run.withheld.iter().cloned());
    (!is_known).then(|| manifest(run))
}

/// Why a tool may not be called now.
pub fn withheld(run: &Run, spec: &ToolSpec) -> Option<Withheld> {
    let tool = &spec.name;
    if let Some((message, hint)) = beyond_plan(run, spec) {
        return Some(Withheld::new(tool, Why::Mode, message, hint));
    }
    if let Some((message, hint)) = outside_phase(run, tool) {
        return Some(Withheld::new(tool, Why::Phase, message, hint));
    }
    if let Some(rule) = denied(&run.task, tool) {
        let message = format!("Not run: denied by the rule {rule}.");
        return Some(Withheld::new(
            tool,
            Why::Rule,
            message,
            "Do not repeat the call; go on without it, or do it another way.",
        ));
    }
    if let Some(taken) = repeat::taken(run, tool) {
        let message = format!("{tool} is taken away for this turn, because {}.", taken.why);
        return Some(Withheld::new(tool, Why::Loop, message, "Do something else, or answer with what you have."));
    }
    if let Some((message, hint)) = tried_too_often(run, tool) {
        return Some(Withheld::new(tool, Why::Check, message, hint));
    }
    without_fact(run, spec).or_else(|| without_quota(run, spec))
}

fn without_fact(run: &Run, spec: &ToolSpec) -> Option<Withheld> {
    let tool = &spec.name;
    let missing: Vec<_> = spec.requires.iter().filter(|fact| !run.fact_holds(fact)).cloned().collect();
    let fact = missing.first()?;
    let providers = |fact: &FactName| {
        let tools = run.task.tools.iter().filter(|tool| tool.provides.contains(fact));
        tools.map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    let names = providers(fact);
    let hint = if names.is_empty() {
        "No tool of this task provides it.".to_owned()
    } else {
        let names: Vec<_> = names.iter().map(ToolName::as_str).collect();
        format!("Call {} first, then this one in a later reply.", names.join(" or "))
    };
    let message = format!("{tool} needs the fact \"{fact}\", which does not hold now.");
    let provided_by: BTreeSet<_> = missing.iter().flat_map(providers).collect();
    let provided_by = provided_by.into_iter().collect();
    Some(Withheld { missing, provided_by, ..Withheld::new(tool, Why::Fact, message, hint) })
}

fn without_quota(run: &Run, spec: &ToolSpec) -> Option<Withheld> {
    let tool = &spec.name;
    let used = run.calls.get(tool).copied().unwrap_or(0);
    if let Some(max) = spec.max_calls.filter(|max| used >= *max) {
        let message = format!("{tool} may be called {max} times in this run, and has been.");
        return Some(Withheld::new(tool, Why::Quota, message, "Go on with what you have."));
    }
    let is_dear = spec.cost_micros > 0 && run.limits.micros.left(run.spent.micros) < spec.cost_micros;
    is_dear.then(|| {
        let message = format!("Not run: the cost of {tool} does not fit what is left of the run's money.");
        Withheld::new(tool, Why::Quota, message, "Go on with what you have.")
    })
}

/// The rule that denies every call of a tool, if one does. Rules about some of its calls are for the gate, which has the
/// call.
fn denied<'a>(task: &'a Task, tool: &ToolName) -> Option<&'a str> {
    let names = |rule: &str| match rule.split_once('(') {
        None => rule == "*" || rule == tool.as_str(),
        Some((name, rest)) => name.trim() == tool.as_str() && matches!(rest.trim(), "*)" | "**)"),
    };
    task.policy.deny.iter().map(|rule| rule.trim()).find(|rule| names(rule))
}
