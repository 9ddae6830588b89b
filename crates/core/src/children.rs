//! Child runs: runs that another run asks for, each with a journal of its own and a part of its parent's budget.
//!
//! Read [`Child`] first. A parent's journal says what was asked of a child and how it ended; what a child does in between is
//! in its own journal, and nowhere else. So there is no state "running" here: a child that has not ended is owed
//! ([`owed`]), and whoever drives the parent finds out how far it is.
//!
//! Order (`semantics.md` F4): requested, synced, with a reservation; created if absent, under an id that is derived; its end
//! posted to the parent's inbox; settled in the append that takes it, once. A parent ends after its children.
//!
//! What counts where (`semantics.md` F1): model calls, tool calls, tokens and money are spent by the tree: a child's grant is
//! set aside in its parent and what it spent is the parent's spending. Turns and working time are not: a turn is a step of
//! one conversation, and an hour in which eight children work is one hour of their parent's. Both bound the child itself,
//! and what runs away in turns runs into the model calls, which are counted.

mod fit;

pub use self::fit::{Changes, Unfit};
pub(crate) use self::fit::{fitted, set_aside, stricter};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::{Limit, Limits, Spent};
use crate::event::{End, Wait};
use crate::ids::{ActionId, Digest, RunId};
use crate::owed::Duty;
use crate::run::{Activity, Run, Stage};
use crate::taint::{Mark, Taint};
use crate::task::{EffectClass, Task};

/// How deep a tree of runs may be: the root has depth 0. Enough for a plan whose steps fan out into parts that hand over.
pub const DEPTH_MAX: u32 = 4;
/// Children of one run that have not ended, at most: as many as calls of one reply.
pub const WIDTH_MAX: usize = 64;
/// Children of one run over its whole life, at most: their ends stay in its state.
pub const CHILDREN_MAX: usize = 512;
/// Children of one run that are driven at the same time, whatever is asked: as many as calls of one run.
pub const AT_ONCE_MAX: u32 = 8;
/// Bytes of a key, at most.
pub const KEY_MAX_BYTES: usize = 256;
/// Bytes of a child's answer that its parent's model is told, at most; the whole is in the state and in the child's journal.
pub const TOLD_MAX_BYTES: usize = 2_000;
/// The same of all children that it is told of at once.
pub const TOLD_ALL_MAX_BYTES: usize = 32_000;

/// What a run asks for when it asks for a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// Names it among all children its parent will ever have: the phase, its visit, the item.
    pub key: String,
    /// Resolved: its own goal, program, tools, acceptance and answer. What is about trust (principal, mode, policy, hooks)
    /// is its parent's or stricter, whatever stands here; its limits are the grant.
    pub task: Task,
    pub grant: Limits,
}

impl ChildSpec {
    /// The id the child of `parent` has.
    pub fn id(&self, parent: &RunId) -> RunId {
        child_id(parent, &self.key)
    }
}

/// The id of a child (`semantics.md` D9): derived from its parent and what names it there, never drawn.
pub fn child_id(parent: &RunId, key: &str) -> RunId {
    const LENGTH: usize = 32;
    let digest = Digest::of_parts([b"child".as_slice(), parent.as_str().as_bytes(), key.as_bytes()]);
    RunId::new(digest.as_str().get(..LENGTH).unwrap_or_default())
}

/// Where a child comes from; in its `run.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descent {
    pub parent: RunId,
    /// The run that a person started, or a fork: the whole tree is driven with it, and its budget is raised there.
    pub root: RunId,
    pub key: String,
    /// Of a child of the root: 1.
    pub depth: u32,
}

/// A child, as its parent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// In the order in which they were asked for, from 1.
    pub number: u32,
    pub key: String,
    pub goal: String,
    pub grant: Limits,
    pub state: ChildState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildState {
    /// Asked for, and not known to have ended: its grant is set aside.
    Owed(Owed),
    /// Its end was taken and its reservation settled.
    Ended {
        report: Box<Report>,
        /// Whether the model was told of it.
        told: bool,
    },
    /// Asked for by the run that this one was forked from: that one's business, nothing is owed for it here.
    Inherited,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    pub changes: Changes,
    /// How many of those asked for with it are driven at the same time.
    pub at_once: u32,
    /// Whether it may write files: such children go one after the other.
    pub writes: bool,
    /// What it was found to wait for when this run was parked last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
}

/// How a child ended, as it tells its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub child: RunId,
    pub end: End,
    /// For people.
    pub reason: String,
    /// What it and its own children spent: what the reservation is settled at.
    pub spent: Spent,
    /// Whether it began anything that changes files or the world: what its parent has read is as old as that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrote: bool,
    /// Effects of which nobody knows, its own and its children's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<RunId, Vec<ActionId>>,
    /// What it had read that taints: its answer carries that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

impl Report {
    /// What a run that rests tells its parent. None: it does not rest.
    pub fn of(run: &Run) -> Option<Self> {
        let Stage::Rest(ended) = &run.stage else { return None };
        Some(Self {
            child: run.id.clone(),
            end: ended.end.clone(),
            reason: ended.reason.clone(),
            spent: run.spent,
            wrote: run.epochs.len() > 1,
            unknown: unknown(run),
            brings: marks(&run.taint, &run.id),
        })
    }

    /// Of its answer, as people read it.
    pub fn answer(&self) -> Option<&str> {
        match &self.end {
            End::Done(done) => Some(&done.accepted.rendered),
            End::Exhausted(_) | End::Failed(_) | End::ContextExhausted | End::Cancelled => None,
        }
    }

    /// How many effects nobody knows of. They only get fewer: each settlement is told anew.
    pub fn unknown_count(&self) -> usize {
        self.unknown.values().map(Vec::len).sum()
    }
}

/// What a run has read, as marks for a run that goes on with it.
pub fn marks(taint: &Taint, of: &RunId) -> Vec<Mark> {
    let listed = taint.sources.iter().map(|(source, brought)| Mark { label: brought.label, source: source.clone() });
    let rest = taint.rest.is_tainted().then(|| Mark { label: taint.rest, source: format!("run {of}") });
    listed.chain(rest).collect()
}

/// Effects of which nobody knows, of a run and of its children.
pub fn unknown(run: &Run) -> BTreeMap<RunId, Vec<ActionId>> {
    let own: Vec<ActionId> = run.uncertain().map(|action| action.id).collect();
    let mut all: BTreeMap<RunId, Vec<ActionId>> = BTreeMap::new();
    if !own.is_empty() {
        all.insert(run.id.clone(), own);
    }
    for (_, report) in ended(run) {
        for (child, actions) in &report.unknown {
            all.entry(child.clone()).or_default().extend(actions);
        }
    }
    all
}

/// Children that have not ended, in the order in which they were asked for.
pub fn open(run: &Run) -> Vec<(&RunId, &Child, &Owed)> {
    let mut open: Vec<_> = run
        .children
        .iter()
        .filter_map(|(id, child)| match &child.state {
            ChildState::Owed(owed) => Some((id, child, owed)),
            ChildState::Ended { .. } | ChildState::Inherited => None,
        })
        .collect();
    open.sort_by_key(|(_, child, _)| child.number);
    open
}

/// Whether some child has not ended: until then the run makes no call of its own and does not end.
pub fn are_open(run: &Run) -> bool {
    run.children.values().any(|child| matches!(child.state, ChildState::Owed(_)))
}

/// Children whose end was taken, in the order in which they were asked for.
pub fn ended(run: &Run) -> Vec<(&Child, &Report)> {
    let mut ended: Vec<_> = run
        .children
        .values()
        .filter_map(|child| match &child.state {
            ChildState::Ended { report, .. } => Some((child, report.as_ref())),
            ChildState::Owed(_) | ChildState::Inherited => None,
        })
        .collect();
    ended.sort_by_key(|(child, _)| child.number);
    ended
}

/// How many children are driven at the same time.
pub fn at_once(run: &Run) -> usize {
    open(run).iter().map(|(_, _, owed)| owed.at_once).min().unwrap_or(1).clamp(1, AT_ONCE_MAX) as usize
}

/// The children that may be driven now, at most [`at_once`] of them at the same time.
///
/// Children that may write files go one after the other, in the order in which they were asked for, and one that waits for a
/// person keeps its place: what it has begun in the workspace is not another's to build on. They all work under the lease of
/// the root (`semantics.md` D11), which cannot tell them apart.
pub(crate) fn owed(run: &Run) -> Vec<Duty> {
    let open = open(run);
    if run.winding.is_some() {
        return open.iter().map(|(id, _, _)| Duty::Child { child: (*id).clone(), ends: true }).collect();
    }
    let surplus = crate::program::children::surplus(run);
    let writer = open.iter().find(|(_, _, owed)| owed.writes).map(|(id, _, _)| *id);
    open.iter()
        .filter(|(id, _, owed)| !owed.writes || writer == Some(*id) || surplus.contains(id))
        .map(|(id, _, _)| Duty::Child { child: (*id).clone(), ends: surplus.contains(id) })
        .collect()
}

/// What a run waits for that is a person's business in its children, where it was parked for that.
pub(crate) fn waits(run: &Run) -> Vec<Wait> {
    if run.activity != Activity::Parked {
        return Vec::new();
    }
    let waiting = |(id, _, owed): (&RunId, &Child, &Owed)| {
        (!owed.waits.is_empty()).then(|| Wait::Child { child: id.clone(), waits: owed.waits.clone() })
    };
    open(run).into_iter().filter_map(waiting).collect()
}

/// What of its children's effects must be settled before a run can be done.
pub(crate) fn unsettled(run: &Run) -> Vec<Wait> {
    let mut waits = Vec::new();
    for (_, report) in ended(run) {
        for (child, actions) in &report.unknown {
            let actions = actions.iter().map(|action| Wait::Unknown(*action)).collect();
            waits.push(Wait::Child { child: child.clone(), waits: actions });
        }
    }
    waits
}

/// What is set aside for children that have not ended. A grant without a bound sets nothing aside: it is given only where
/// the parent has none either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    pub model_calls: u64,
    pub tool_calls: u64,
    pub tokens: u64,
    pub micros: u64,
}

/// What is set aside in a run.
pub fn reserved(run: &Run) -> Reserved {
    let mut sum = Reserved::default();
    for (_, child, _) in open(run) {
        sum.add(&child.grant);
    }
    sum
}

impl Reserved {
    pub(crate) fn add(&mut self, grant: &Limits) {
        let of = |limit: Limit| match limit {
            Limit::At(amount) => amount,
            Limit::Unlimited => 0,
        };
        self.model_calls = self.model_calls.saturating_add(of(grant.model_calls));
        self.tool_calls = self.tool_calls.saturating_add(of(grant.tool_calls));
        self.tokens = self.tokens.saturating_add(of(grant.tokens));
        self.micros = self.micros.saturating_add(of(grant.micros));
    }
}

/// An equal share of what a run has left, for each of so many children, with one more kept for the run itself: it has to
/// make something of what they bring.
pub fn share(run: &Run, children: usize) -> Limits {
    let parts = (children as u64).saturating_add(1);
    let aside = fit::set_aside(run);
    let part = |limit: Limit, used: u64| match limit {
        Limit::At(_) => Limit::At(limit.left(used) / parts),
        Limit::Unlimited => Limit::Unlimited,
    };
    let (limits, spent) = (&run.limits, &run.spent);
    Limits {
        turns: limits.turns,
        model_calls: part(limits.model_calls, spent.model_calls + aside.model_calls),
        tool_calls: part(limits.tool_calls, spent.tool_calls + aside.tool_calls),
        tokens: part(limits.tokens, spent.usage.tokens() + aside.tokens),
        micros: part(limits.micros, spent.micros + aside.micros),
        time_ms: limits.time_ms,
        deadline: limits.deadline,
    }
}

/// Whether a task may write files: what takes the workspace's lease.
pub fn may_write(task: &Task) -> bool {
    task.tools.iter().any(|tool| tool.effect == EffectClass::Workspace)
}
