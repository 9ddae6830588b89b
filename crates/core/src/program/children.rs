//! The seam between programs and child runs: what entering an `each` or `run` phase asks for. A child is named by its phase,
//! the visit and its place, so that a restart asks for the same ones.

use super::{Child, Join, Kind, OnFailure};
use crate::ids::PhaseName;
use crate::payload::Payload;
use crate::run::Run;

/// Items one fan-out may have.
pub const WIDTH_MAX: usize = 64;

/// The children that are owed: the phase that was entered wants them, and no more is known of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed<'a> {
    pub phase: &'a PhaseName,
    /// Counted from 1.
    pub visit: u32,
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
    /// Derives its id: the same phase, visit and place is the same child.
    pub key: String,
    /// None: the parent's.
    pub goal: Option<String>,
    pub task: Option<String>,
    pub program: Option<String>,
    pub turns: Option<u32>,
    /// What it is about; none of a plain sub-run.
    pub item: Option<Payload>,
}

impl Owed<'_> {
    /// What the child at a place is called.
    pub fn key(&self, place: usize) -> String {
        format!("{}.{}.{place}", self.phase, self.visit)
    }
}

/// The children that the present phase asks for. None: it asks for none.
pub fn owed(run: &Run) -> Option<Owed<'_>> {
    let course = run.course.as_ref()?;
    if course.at != super::At::Children {
        return None;
    }
    let phase = run.phase()?;
    let visit = course.visits.get(&phase.name).copied().unwrap_or(0);
    let of = |child, over, parallel, join, on_failure| Owed {
        phase: &phase.name,
        visit,
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
