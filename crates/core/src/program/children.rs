//! Phases that start child runs: what entering one asks for, when it is over, and what it comes to. A child is named by its
//! phase, the transition that led there and its place, so that a restart asks for the same ones.

use serde::Serialize;

use super::{At, Child, Join, Kind, OnFailure, Outcome, part};
use crate::budget::{Limit, Limits};
use crate::children::{self, ChildSpec, ChildState};
use crate::event::End;
use crate::ids::{PhaseName, RunId, TreeId};
use crate::payload::{Content, Payload};
use crate::run::Run;

/// Items one fan-out may have.
pub const WIDTH_MAX: usize = children::WIDTH_MAX;

/// The children of the present phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed<'a> {
    pub phase: &'a PhaseName,
    /// The transitions taken before it is left. Unlike the visits it never begins anew.
    pub step: u32,
    pub child: &'a Child,
    /// A template that gives the list of items. None: one child, without an item.
    pub over: Option<&'a str>,
    /// Children driven at the same time.
    pub parallel: u32,
    pub join: Join,
    pub on_failure: OnFailure,
}

/// One child as it is to be started, with everything filled in at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Derives its id: the same phase, step and place is the same child.
    pub key: String,
    /// None: the parent's.
    pub goal: Option<String>,
    /// What it is about; none of a plain sub-run.
    pub item: Option<Payload>,
}

/// Children that are asked for; at most `at_once` of them are driven at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Askable {
    pub specs: Vec<ChildSpec>,
    pub at_once: u32,
    /// The workspace before them, where nobody has looked at it yet.
    pub tree: Option<TreeId>,
}

impl Owed<'_> {
    /// What the child at a place is called.
    pub fn key(&self, place: usize) -> String {
        format!("{}.{}.{place}", self.phase, self.step)
    }

    /// Whether a child is called as those of this visit are.
    pub fn is_own(&self, key: &str) -> bool {
        key.rsplit_once('.').is_some_and(|(visit, _)| visit == format!("{}.{}", self.phase, self.step))
    }

    /// Whether the phase went well, by how its children ended. None of them: nothing failed, and nothing was done.
    pub fn is_ok(&self, done: usize, all: usize) -> bool {
        match (self.join, self.on_failure) {
            (Join::All, OnFailure::Stop) => done == all,
            (Join::All, OnFailure::GoOn) => done > 0 || all == 0,
            (Join::Any, OnFailure::Stop | OnFailure::GoOn) => done > 0,
        }
    }
}

/// The children that the present phase is about. None: it is about none.
pub fn owed(run: &Run) -> Option<Owed<'_>> {
    let course = run.course.as_ref()?;
    if !matches!(course.at, At::Children { .. }) {
        return None;
    }
    let phase = run.phase()?;
    let of = |child, over, parallel, join, on_failure| Owed {
        phase: &phase.name,
        step: course.step,
        child,
        over,
        parallel,
        join,
        on_failure,
    };
    match &phase.kind {
        Kind::Each(each) => Some(of(&each.child, Some(&each.over), each.parallel, each.join, each.on_failure)),
        Kind::Run(child) => Some(of(child, None, 1, Join::All, OnFailure::Stop)),
        Kind::Agent(_) | Kind::Reply(_) | Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch => None,
    }
}

/// What is asked for: each has an equal share of what is left, and no more than its phase and its task file say.
pub fn askable(run: &Run, wanted: &[Wanted]) -> Option<Askable> {
    let owed = owed(run)?;
    let turns = owed.child.turns.map_or(Limit::Unlimited, |most| Limit::At(u64::from(most)));
    let of_phase = Limits { turns, ..part::NO_LIMITS };
    let of_file = owed.child.found.as_ref().and_then(|found| found.task.as_ref()).map(|part| part.limits.clone());
    let bounds = part::least(&of_phase, &of_file.unwrap_or(part::NO_LIMITS));
    let grant = part::least(&children::share(run, wanted.len()), &bounds);
    let spec = |wanted: &Wanted| ChildSpec {
        key: wanted.key.clone(),
        task: part::task_of(&run.task, owed.child, wanted.goal.as_deref(), wanted.item.as_ref().map(Payload::as_str)),
        grant: grant.clone(),
    };
    Some(Askable { specs: wanted.iter().map(spec).collect(), at_once: owed.parallel, tree: None })
}

/// Children of the present phase that have nothing to add to what it comes to: they are told to end.
pub(crate) fn surplus(run: &Run) -> Vec<&RunId> {
    let (Some(owed), Some(At::Children { asked })) = (owed(run), run.course.as_ref().map(|course| &course.at)) else {
        return Vec::new();
    };
    let is_known = asked.iter().filter_map(|id| ended(run, id)).any(|one| match (owed.join, owed.on_failure) {
        (Join::Any, OnFailure::Stop | OnFailure::GoOn) => one.ok,
        (Join::All, OnFailure::Stop) => !one.ok,
        (Join::All, OnFailure::GoOn) => false,
    });
    if is_known { asked.iter().collect() } else { Vec::new() }
}

/// What the present phase comes to, once the last of its children has ended.
pub(crate) fn outcome(run: &Run) -> Option<Outcome> {
    let (Some(owed), Some(At::Children { asked })) = (owed(run), run.course.as_ref().map(|course| &course.at)) else {
        return None;
    };
    if asked.is_empty() {
        return None;
    }
    let all = asked.iter().map(|id| ended(run, id)).collect::<Option<Vec<_>>>()?;
    let done = all.iter().filter(|one| one.ok).count();
    let output = match owed.over {
        Some(_) => Payload::of(&all),
        None => Payload::of(&all.first()),
    };
    let output = Content::Inline(output.expect("its keys are strings"));
    Some(Outcome { ok: owed.is_ok(done, all.len()), output })
}

/// How a child ended, as conditions and templates see it.
#[derive(Serialize)]
struct Brought<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    child: &'a RunId,
}

fn ended<'a>(run: &'a Run, id: &'a RunId) -> Option<Brought<'a>> {
    match &run.children.get(id)?.state {
        ChildState::Ended { report, .. } => {
            let ok = matches!(report.end, End::Done(_));
            Some(Brought { ok, answer: report.answer(), reason: (!ok).then_some(report.reason.as_str()), child: id })
        }
        ChildState::Owed(_) | ChildState::Inherited => None,
    }
}
