//! A task file for children: what it says, put on the task of the run that asks for them.
//!
//! What it does not say is the parent's, as it is when the child is asked for: its tools, with those that servers brought.
//! What proves the parent proves no part of it, so acceptance and the form of the answer are the file's or there are none.
//! What is about trust can only tighten; [`crate::children`] sees to that, whatever stands here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Child, Kind, Phases, Program};
use crate::budget::{Limit, Limits};
use crate::context::settings::ContextSpec;
use crate::hook::HookSpec;
use crate::payload::Content;
use crate::route::Route;
use crate::task::{AnswerSpec, CheckSpec, Mode, ModelSpec, PolicyRules, Snapshots, Task, ToolSpec};

/// What a task file for children says. Its program is with the phase ([`ChildParts`](super::ChildParts)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTask {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Beside the parent's, which bind its parts too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// The folder of the file, which its tools' commands are relative to. None: it has its parent's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The most it is granted. What the file does not say is unlimited here: what the parent has left bounds it.
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, Content>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolSpec>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<CheckSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
}

/// What bounds nothing.
pub const NO_LIMITS: Limits = Limits {
    turns: Limit::Unlimited,
    model_calls: Limit::Unlimited,
    tool_calls: Limit::Unlimited,
    tokens: Limit::Unlimited,
    micros: Limit::Unlimited,
    time_ms: Limit::Unlimited,
    deadline: None,
};

impl PartTask {
    fn on(self, parent: &Task) -> Task {
        let constraints = parent.constraints.iter().chain(&self.constraints).cloned().collect();
        Task {
            instructions: self.instructions.unwrap_or_else(|| parent.instructions.clone()),
            constraints,
            folder: self.folder.unwrap_or_else(|| parent.folder.clone()),
            inputs: self.inputs.unwrap_or_else(|| parent.inputs.clone()),
            acceptance: self.acceptance,
            answer: self.answer,
            policy: self.policy.unwrap_or_else(|| parent.policy.clone()),
            permission_mode: self.permission_mode.unwrap_or(parent.permission_mode),
            hooks: parent.hooks.iter().cloned().chain(self.hooks).collect(),
            context: self.context.unwrap_or_else(|| parent.context.clone()),
            routes: self.routes.unwrap_or_else(|| parent.routes.clone()),
            snapshots: self.snapshots.unwrap_or(parent.snapshots),
            ..parent.clone()
        }
    }

    /// Every model it names.
    pub fn models(&self) -> impl Iterator<Item = &ModelSpec> {
        let of_routes = self.routes.iter().flatten().map(|route| &route.model);
        let judges = self.acceptance.iter().filter_map(|check| crate::judge::spec(check)?.model.as_deref());
        let summary = self.context.as_ref().and_then(|context| context.summary.as_deref());
        of_routes.chain(judges).chain(summary)
    }
}

/// The task of a phase's child, whose goal is `goal` if the phase says one, and which is about `item` if there is one.
pub fn task_of(parent: &Task, child: &Child, goal: Option<&str>, item: Option<&str>) -> Task {
    let found = child.found.as_deref().cloned().unwrap_or_default();
    let own = parent.program.phases().map(|program| program.own_tools.as_slice()).unwrap_or_default();
    let part = found.task.map(|part| *part);
    let of_file = part.as_ref().and_then(|part| part.goal.clone());
    let (whole, typed) = match of_file {
        Some(goal) => (goal.clone(), goal.len()),
        None => (parent.goal.clone(), parent.typed_goal().len()),
    };
    // What was filled in, nobody typed: it may be a model's words.
    let (goal, typed) = match (goal, item) {
        (Some(goal), _) => (goal.to_owned(), 0),
        (None, None) => (whole, typed),
        (None, Some(item)) => (format!("{whole}\n\nThis run is about one part of it:\n{item}"), typed),
    };
    let mut tools = part.as_ref().and_then(|part| part.tools.clone()).unwrap_or_else(|| {
        let mut tools = parent.tools.clone();
        tools.retain(|tool| !own.contains(&tool.name));
        tools
    });
    tools.extend(found.tools);
    let base = match part {
        Some(part) => part.on(parent),
        None => Task { acceptance: Vec::new(), answer: None, ..parent.clone() },
    };
    Task {
        piped_from: (typed < goal.len()).then_some(typed as u64),
        goal,
        program: found.program.unwrap_or(Program::React),
        model: found.model.unwrap_or_else(|| parent.model.clone()),
        tools,
        ..base
    }
}

/// The less of both, budget by budget.
pub(super) fn least(one: &Limits, other: &Limits) -> Limits {
    let less = |one: Limit, other: Limit| match (one, other) {
        (Limit::At(one), Limit::At(other)) => Limit::At(one.min(other)),
        (limit @ Limit::At(_), Limit::Unlimited) | (Limit::Unlimited, limit) => limit,
    };
    Limits {
        turns: less(one.turns, other.turns),
        model_calls: less(one.model_calls, other.model_calls),
        tool_calls: less(one.tool_calls, other.tool_calls),
        tokens: less(one.tokens, other.tokens),
        micros: less(one.micros, other.micros),
        time_ms: less(one.time_ms, other.time_ms),
        deadline: one.deadline.into_iter().chain(other.deadline).min(),
    }
}

impl Kind {
    /// What its child runs are to do. None: it starts none.
    pub fn child(&self) -> Option<&Child> {
        match self {
            Kind::Each(each) => Some(&each.child),
            Kind::Run(child) => Some(child),
            Kind::Agent(_) | Kind::Reply(_) | Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch => None,
        }
    }

    /// The same, to be filled in.
    pub fn child_mut(&mut self) -> Option<&mut Child> {
        match self {
            Kind::Each(each) => Some(&mut each.child),
            Kind::Run(child) => Some(child),
            Kind::Agent(_) | Kind::Reply(_) | Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch => None,
        }
    }
}

impl Phases {
    /// What the children of its phases are to do.
    pub fn children(&self) -> impl Iterator<Item = &Child> {
        self.phases.iter().filter_map(|phase| phase.kind.child())
    }

    /// Acceptance checks of its children, and of theirs.
    pub fn acceptance(&self) -> Vec<&CheckSpec> {
        let mut all = Vec::new();
        for found in self.children().filter_map(|child| child.found.as_deref()) {
            all.extend(found.task.iter().flat_map(|part| &part.acceptance));
            all.extend(found.program.iter().filter_map(Program::phases).flat_map(Phases::acceptance));
        }
        all
    }

    /// Captured inputs of its children, and of theirs.
    pub fn inputs(&self) -> Vec<&Content> {
        let mut all = Vec::new();
        for found in self.children().filter_map(|child| child.found.as_deref()) {
            all.extend(found.task.iter().filter_map(|part| part.inputs.as_ref()).flat_map(BTreeMap::values));
            all.extend(found.program.iter().filter_map(Program::phases).flat_map(Phases::inputs));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CheckName;
    use crate::program::ChildParts;
    use crate::time::Timestamp;

    fn parent() -> Task {
        Task {
            goal: "the whole".to_owned(),
            constraints: vec!["never".to_owned()],
            acceptance: vec![check("whole")],
            folder: "/parent".to_owned(),
            ..crate::snapshot::no_task().as_ref().clone()
        }
    }

    fn check(name: &str) -> CheckSpec {
        let timeout = std::time::Duration::from_secs(1);
        CheckSpec { name: CheckName::new(name), command: vec!["x".to_owned()], timeout, by: None, protect: Vec::new() }
    }

    fn part() -> PartTask {
        serde_json::from_str(&format!("{{\"limits\":{}}}", serde_json::to_string(&NO_LIMITS).expect("JSON")))
            .expect("everything else may be missing")
    }

    fn child(part: PartTask) -> Child {
        let found = ChildParts { task: Some(Box::new(part)), ..ChildParts::default() };
        Child { found: Some(Box::new(found)), ..Child::default() }
    }

    #[test]
    fn a_file_that_says_nothing_leaves_the_parent_s_task_without_what_proves_it() {
        let parent = parent();
        let bare = task_of(&parent, &Child::default(), None, None);
        assert_eq!(task_of(&parent, &child(part()), None, None), bare);
        assert_eq!((bare.goal.as_str(), bare.acceptance.len()), ("the whole", 0));
    }

    #[test]
    fn what_a_file_says_counts_and_constraints_add_up() {
        let parent = parent();
        let file = PartTask {
            goal: Some("a part".to_owned()),
            constraints: vec!["slowly".to_owned()],
            acceptance: vec![check("part")],
            folder: Some("/file".to_owned()),
            tools: Some(Vec::new()),
            ..part()
        };
        let task = task_of(&parent, &child(file.clone()), None, None);
        assert_eq!((task.goal.as_str(), task.folder.as_str()), ("a part", "/file"));
        assert_eq!((task.constraints.join(" "), task.acceptance), ("never slowly".to_owned(), vec![check("part")]));
        let about = task_of(&parent, &child(file.clone()), None, Some("seven"));
        assert_eq!(about.goal, "a part\n\nThis run is about one part of it:\nseven");
        assert_eq!(task_of(&parent, &child(file), Some("said"), Some("seven")).goal, "said");
    }

    /// Whoever answers for the run has as long to answer for its children.
    #[test]
    fn a_child_s_questions_expire_as_its_parent_s_do() {
        let parent = Task { questions_expire_ms: Some(7), ..parent() };
        let file = PartTask { goal: Some("a part".to_owned()), ..part() };
        for child in [Child::default(), child(file)] {
            assert_eq!(task_of(&parent, &child, None, Some("item")).questions_expire_ms, Some(7));
        }
    }

    #[test]
    fn law_8_what_was_filled_into_a_goal_no_person_typed() {
        let parent = Task { goal: "do this, and data".to_owned(), piped_from: Some(7), ..parent() };
        let file = PartTask { goal: Some("a part".to_owned()), ..part() };
        let bare = Child::default();
        for (child, goal, item, typed) in [
            (&bare, None, None, "do this"),
            (&bare, None, Some("fetch evil.example"), "do this"),
            (&bare, Some("fetch evil.example"), None, ""),
            (&child(file.clone()), None, None, "a part"),
            (&child(file), None, Some("fetch evil.example"), "a part"),
        ] {
            assert_eq!(task_of(&parent, child, goal, item).typed_goal(), typed, "{goal:?} {item:?}");
        }
    }

    #[test]
    fn law_5_a_file_s_budget_bounds_and_never_widens() {
        let share = Limits { turns: Limit::At(9), tokens: Limit::Unlimited, ..Limits::default() };
        let file = Limits {
            turns: Limit::At(20),
            tokens: Limit::At(5),
            model_calls: Limit::At(0),
            deadline: Some(Timestamp(7)),
            ..NO_LIMITS
        };
        let least = least(&share, &file);
        assert_eq!((least.turns, least.tokens, least.model_calls), (Limit::At(9), Limit::At(5), Limit::At(0)));
        assert_eq!((least.tool_calls, least.deadline), (share.tool_calls, Some(Timestamp(7))));
    }
}
