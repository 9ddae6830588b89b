//! Whether a child fits into its parent: into its budget, its depth, its workspace. And what its task becomes there: never
//! looser than its parent's.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::*;
use crate::budget::BudgetKind;
use crate::payload::Payload;
use crate::task::{Mode, PolicyRules};
use crate::time::Timestamp;

/// Why children are not given. Nothing of it is asked for: all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A run asks for children between turns only: while no call of its own is out and it is not being brought to rest.
    NotNow,
    /// There is nothing to ask for.
    None,
    Deep,
    /// More at the same time than a run may have, or more over its life.
    Many {
        asked: usize,
        max: usize,
    },
    /// Too long, or empty.
    Key(String),
    /// A child of this name was asked for already, with whatever task.
    Again(String),
    /// More than is left after what was spent and set aside.
    Budget {
        budget: BudgetKind,
        asked: Limit,
        left: u64,
    },
    /// It may write files that the lease of its root does not cover.
    Workspace {
        key: String,
        asked: String,
    },
    /// Its task cannot be put down as what differs from its parent's.
    Task {
        key: String,
        why: String,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NotNow => f.write_str("the run is in the middle of something; children are asked for between turns"),
            Unfit::None => f.write_str("there is no child to ask for"),
            Unfit::Deep => write!(f, "a tree of runs is at most {DEPTH_MAX} deep"),
            Unfit::Many { asked, max } => write!(f, "{asked} children are too many: at most {max}"),
            Unfit::Key(key) => write!(f, "\"{key}\" is no name for a child (1 to {KEY_MAX_BYTES} bytes)"),
            Unfit::Again(key) => write!(f, "a child \"{key}\" was asked for already"),
            Unfit::Budget { budget, asked, left } => match asked {
                Limit::At(asked) => write!(f, "the children ask for {asked} of {budget}, and {left} are left"),
                Limit::Unlimited => {
                    write!(f, "the children ask for {budget} without a limit, and {left} are left")
                }
            },
            Unfit::Workspace { key, asked } => write!(
                f,
                "child \"{key}\" may write files in {asked}, and its parent holds no lease there: give the parent a tool \
                 that writes, and the child the same workspace"
            ),
            Unfit::Task { key, why } => write!(f, "the task of child \"{key}\" cannot be kept: {why}"),
        }
    }
}

impl std::error::Error for Unfit {}

/// A child's task as what differs from its parent's, key by key of its JSON: most of it is the same, and the parent's
/// journal has that already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Payload>,
    /// Keys that its parent's has and its own has not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

impl Changes {
    /// What makes the parent's task the child's.
    pub fn between(parent: &Task, child: &Task) -> Result<Self, serde_json::Error> {
        let (old, new) = (fields(parent)?, fields(child)?);
        let without = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        let set = new.into_iter().filter(|(key, value)| old.get(key) != Some(value)).collect();
        Ok(Self { set, without })
    }

    /// The child's task again.
    pub fn on(&self, parent: &Task) -> Result<Task, serde_json::Error> {
        let mut all = fields(parent)?;
        all.retain(|key, _| !self.without.contains(key));
        all.extend(self.set.iter().map(|(key, value)| (key.clone(), value.clone())));
        Payload::of(&all)?.read()
    }
}

fn fields(task: &Task) -> Result<BTreeMap<String, Payload>, serde_json::Error> {
    Payload::of(task)?.read()
}

/// What of a run's budgets is set aside: for its children, and for a summary or a judge that is out.
pub(crate) fn set_aside(run: &Run) -> Reserved {
    let mut aside = reserved(run);
    if let Some(awaited) = &run.summaries.awaited {
        aside.tokens = aside.tokens.saturating_add(awaited.reserved.input).saturating_add(awaited.reserved.output);
        aside.micros = aside.micros.saturating_add(awaited.reserved.micros);
    }
    if let Some(awaited) = &run.judging.awaited {
        aside.tokens = aside.tokens.saturating_add(awaited.reserved.input).saturating_add(awaited.reserved.output);
        aside.micros = aside.micros.saturating_add(awaited.reserved.micros);
    }
    aside
}

/// The tasks these children get, in order; or why they get none.
pub(crate) fn fitted(run: &Run, specs: &[ChildSpec], now: Timestamp) -> Result<Vec<Task>, Unfit> {
    match &run.stage {
        Stage::Ready(_) if run.winding.is_none() => {}
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
            return Err(Unfit::NotNow);
        }
    }
    if specs.is_empty() {
        return Err(Unfit::None);
    }
    if run.descent.as_ref().map_or(0, |descent| descent.depth) >= DEPTH_MAX {
        return Err(Unfit::Deep);
    }
    for (asked, max) in [(open(run).len() + specs.len(), WIDTH_MAX), (run.children.len() + specs.len(), CHILDREN_MAX)] {
        if asked > max {
            return Err(Unfit::Many { asked, max });
        }
    }
    let mut keys = std::collections::BTreeSet::new();
    for spec in specs {
        if spec.key.is_empty() || spec.key.len() > KEY_MAX_BYTES {
            return Err(Unfit::Key(spec.key.chars().take(80).collect()));
        }
        if !keys.insert(&spec.key) || run.children.contains_key(&spec.id(&run.id)) {
            return Err(Unfit::Again(spec.key.clone()));
        }
    }
    let tasks: Vec<Task> = specs.iter().map(|spec| fit(run, spec, now)).collect();
    for (spec, task) in specs.iter().zip(&tasks) {
        let covered = may_write(&run.task) && lies_in(&task.workspace, &run.task.workspace);
        if may_write(task) && !covered {
            return Err(Unfit::Workspace { key: spec.key.clone(), asked: task.workspace.clone() });
        }
    }
    afford(run, &tasks)?;
    Ok(tasks)
}

/// Whether what all of them may spend is there: reserved before it is spent (`semantics.md` F2).
fn afford(run: &Run, tasks: &[Task]) -> Result<(), Unfit> {
    let mut asked = Reserved::default();
    tasks.iter().for_each(|task| asked.add(&task.limits));
    let (limits, spent, aside) = (&run.limits, &run.spent, set_aside(run));
    let unbounded = |of: fn(&Limits) -> Limit| tasks.iter().any(|task| of(&task.limits) == Limit::Unlimited);
    let fits = |budget, whole: Limit, used: u64, wants: u64, has_no_bound: bool| {
        let left = whole.left(used);
        match whole {
            Limit::Unlimited => Ok(()),
            Limit::At(_) if has_no_bound => Err(Unfit::Budget { budget, asked: Limit::Unlimited, left }),
            Limit::At(_) if wants > left => Err(Unfit::Budget { budget, asked: Limit::At(wants), left }),
            Limit::At(_) => Ok(()),
        }
    };
    let calls = spent.model_calls.saturating_add(aside.model_calls);
    fits(BudgetKind::ModelCalls, limits.model_calls, calls, asked.model_calls, unbounded(|limits| limits.model_calls))?;
    let calls = spent.tool_calls.saturating_add(aside.tool_calls);
    fits(BudgetKind::ToolCalls, limits.tool_calls, calls, asked.tool_calls, unbounded(|limits| limits.tool_calls))?;
    let tokens = spent.usage.tokens().saturating_add(aside.tokens);
    fits(BudgetKind::Tokens, limits.tokens, tokens, asked.tokens, unbounded(|limits| limits.tokens))?;
    let micros = spent.micros.saturating_add(aside.micros);
    fits(BudgetKind::Usd, limits.micros, micros, asked.micros, unbounded(|limits| limits.micros))
}

/// The task as the child gets it.
fn fit(run: &Run, spec: &ChildSpec, now: Timestamp) -> Task {
    let mut task = spec.task.clone();
    let parent = run.task.as_ref();
    task.limits = bounded(run, &spec.grant, now);
    task.principal = parent.principal.clone();
    task.permission_mode = stricter(run.mode, task.permission_mode);
    task.policy = tightened(&parent.policy, &task.policy);
    let own: Vec<_> = task.hooks.into_iter().filter(|hook| !parent.hooks.contains(hook)).collect();
    task.hooks = parent.hooks.iter().cloned().chain(own).collect();
    task
}

/// Time is no reservation: whoever has less of it ends earlier.
fn bounded(run: &Run, grant: &Limits, now: Timestamp) -> Limits {
    let time_ms = match run.limits.time_ms {
        Limit::Unlimited => grant.time_ms,
        limit @ Limit::At(_) => {
            let left = limit.left(run.time_used(now));
            match grant.time_ms {
                Limit::At(asked) => Limit::At(asked.min(left)),
                Limit::Unlimited => Limit::At(left),
            }
        }
    };
    let deadline = run.limits.deadline.into_iter().chain(grant.deadline).min();
    Limits { time_ms, deadline, ..grant.clone() }
}

/// Of a shadow run nothing happens, and nothing of its children. What is a shadow by itself stays one.
pub(crate) fn stricter(parent: Mode, child: Mode) -> Mode {
    match (parent, child) {
        (Mode::Shadow, _) | (_, Mode::Shadow) => Mode::Shadow,
        (parent, child) => child.tightened(parent),
    }
}

/// What either denies or asks about; and allowed only what both allow.
fn tightened(parent: &PolicyRules, child: &PolicyRules) -> PolicyRules {
    let both = |one: &[String], other: &[String]| {
        let more: Vec<_> = other.iter().filter(|rule| !one.contains(rule)).cloned().collect();
        one.iter().cloned().chain(more).collect()
    };
    PolicyRules {
        allow: parent.allow.iter().filter(|rule| child.allow.contains(rule)).cloned().collect(),
        ask: both(&parent.ask, &child.ask),
        deny: both(&parent.deny, &child.deny),
    }
}

fn lies_in(inner: &str, outer: &str) -> bool {
    let (inner, outer) = (inner.trim_end_matches('/'), outer.trim_end_matches('/'));
    let is_plain = !inner.split('/').any(|part| matches!(part, "." | ".."));
    is_plain && inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{begin, request_children};

    fn parent(tokens: Limit) -> Run {
        let mut task = crate::snapshot::no_task().as_ref().clone();
        task.limits = Limits { tokens, ..Limits::default() };
        Run::new(&begin(RunId::new("p"), task, "test"), Timestamp(0))
    }

    fn spec(run: &Run, key: &str, change: impl FnOnce(&mut Limits)) -> ChildSpec {
        let mut grant = share(run, 3);
        change(&mut grant);
        ChildSpec { key: key.to_owned(), task: Task { goal: key.to_owned(), ..run.task.as_ref().clone() }, grant }
    }

    fn asked(run: &mut Run, specs: &[ChildSpec]) -> Result<(), Unfit> {
        let events = request_children(run, specs, 1, run.at)?;
        for event in events {
            run.apply(run.head.next(), run.at, &event);
        }
        Ok(())
    }

    #[test]
    fn law_5_nothing_is_granted_that_is_not_left() {
        let mut run = parent(Limit::At(100));
        let tokens = |amount: u64| move |limits: &mut Limits| limits.tokens = Limit::At(amount);
        asked(&mut run, &[spec(&parent(Limit::At(100)), "a", tokens(60))]).expect("there is enough");
        let over = [spec(&run, "b", tokens(20)), spec(&run, "c", tokens(21))];
        let budget = BudgetKind::Tokens;
        assert_eq!(
            asked(&mut run, &over),
            Err(Unfit::Budget { budget, asked: Limit::At(41), left: 40 }),
            "all or none"
        );
        let unbounded = [spec(&run, "b", |limits| limits.tokens = Limit::Unlimited)];
        let left = 40;
        assert_eq!(asked(&mut run, &unbounded), Err(Unfit::Budget { budget, asked: Limit::Unlimited, left }));
        assert_eq!(reserved(&run).tokens, 60);
        let exact = [spec(&run, "b", tokens(40)), spec(&run, "zero", tokens(0))];
        asked(&mut run, &exact).expect("zero is zero, and fits");
        assert_eq!(share(&run, 1).tokens, Limit::At(0));
    }

    #[test]
    fn a_child_is_asked_for_once_and_not_too_many_are() {
        let mut run = parent(Limit::Unlimited);
        let few = |limits: &mut Limits| {
            (limits.model_calls, limits.tool_calls) = (Limit::At(1), Limit::At(1));
        };
        let twice = [spec(&run, "a", few), spec(&run, "a", few)];
        assert_eq!(asked(&mut run, &twice), Err(Unfit::Again("a".to_owned())));
        let many: Vec<_> = (0..=WIDTH_MAX).map(|number| spec(&run, &number.to_string(), few)).collect();
        assert_eq!(asked(&mut run, &many), Err(Unfit::Many { asked: WIDTH_MAX + 1, max: WIDTH_MAX }));
        asked(&mut run, &many[1..]).expect("so many fit");
        assert_eq!(asked(&mut run, &many[1..2]).map_err(|unfit| unfit.to_string().contains("at most 64")), Err(true));
        assert_eq!(owed(&run).len(), WIDTH_MAX, "all may go, and a bound says how many at the same time do");
    }

    #[test]
    fn a_task_is_what_differs_from_its_parent_s_put_on_it_again() {
        let parent = parent(Limit::At(5)).task.as_ref().clone();
        let mut child = Task { goal: "another".to_owned(), instructions: "so".to_owned(), ..parent.clone() };
        child.limits.turns = Limit::At(7);
        let parent = Task { constraints: vec!["never".to_owned()], ..parent };
        let changes = Changes::between(&parent, &child).expect("it is written");
        let set: Vec<_> = changes.set.keys().map(String::as_str).collect();
        assert_eq!(
            (set, changes.without.as_slice()),
            (vec!["goal", "instructions", "limits"], ["constraints".to_owned()].as_slice())
        );
        assert_eq!(changes.on(&parent).expect("it is read"), child);
    }

    #[test]
    fn law_8_the_stricter_mode_counts_and_a_shadow_stays_one() {
        for parent in Mode::ALL {
            for child in Mode::ALL {
                let mode = stricter(parent, child);
                assert!(mode == parent || mode == child);
                let is_shadow = parent == Mode::Shadow || child == Mode::Shadow;
                assert_eq!(mode == Mode::Shadow, is_shadow, "{child} under {parent}");
                assert_eq!(stricter(child, parent), mode);
            }
        }
    }

    #[test]
    fn folders_lie_in_folders_by_whole_names() {
        for (inner, outer, is_in) in [
            ("/w", "/w", true),
            ("/w/a/", "/w", true),
            ("/wide", "/w", false),
            ("/", "/w", false),
            ("/w/../x", "/w", false),
            ("/w", "/", true),
        ] {
            assert_eq!(lies_in(inner, outer), is_in, "{inner} in {outer}");
        }
    }
}
