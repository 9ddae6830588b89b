//! Children: driven by whoever drives their parent, each under a claim of its own, until their ends are in the parent's
//! inbox.
//!
//! A child is a run like any other: the same loop, the same fences, the same recovery. What is special is here: what it
//! begins with, that it tells its parent how it ended, and what its parent makes of a child that waits or cannot go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longrein_core::children::{self, Report};
use longrein_core::decide::{Command, begin_child};
use longrein_core::event::{RunStarted, Suspension, Wait};
use longrein_core::ids::{InputId, RunId};
use longrein_core::input::{Input, InputBody};
use longrein_core::owed::{self, Duty};
use longrein_core::run::{Run, Stage};
use longrein_core::task::{Mode, Task};
use longrein_core::time::millis;
use longrein_ports::{BoxFuture, ClaimError, LEASE, Posted, Reaped};

use crate::claimed::Drive;
use crate::drive::{Begin, DriveError, Driven, Driver, Standing, WhenAsked};
use crate::fold::{FoldError, fold_known};
use crate::jobs::{Cut, Flight, Landed};
use crate::ports::Ports;

/// How soon a child is looked at again that another worker holds, or whose end did not arrive.
pub(crate) const CHILD_AGAIN: Duration = Duration::from_secs(1);

/// Makes what children are driven with: their tools, their model, their gate are their own task's.
pub trait Equip: Send + Sync {
    fn equip<'a>(&'a self, child: ChildTask<'a>) -> BoxFuture<'a, Result<Equipped, String>>;
}

/// A child that is to be driven.
#[derive(Clone, Copy)]
pub struct ChildTask<'a> {
    pub id: &'a RunId,
    /// As it stands in its first event.
    pub task: &'a Task,
    /// None: it is not there yet.
    pub run: Option<&'a Run>,
}

/// What a child is driven with.
pub struct Equipped {
    pub ports: Ports,
    /// Pinned names whose content differs now (`semantics.md` B5).
    pub changed: Vec<String>,
    /// The permission mode it goes on in. None: the one it has.
    pub mode: Option<Mode>,
}

/// How a drive of a child came back.
#[derive(Debug)]
pub(crate) enum Came {
    /// It rests, and its parent was told; or told before.
    Rested,
    Waits(Vec<Wait>),
    Suspended(Suspension, String),
    /// Another worker has it.
    Held,
    Failed(Box<DriveError>),
}

/// What the present claim knows of the children it drives. None of it is true for the next one.
#[derive(Debug, Default)]
pub(crate) struct Minding {
    /// What they wait for; nobody drives them until something arrives for them.
    waiting: BTreeMap<RunId, Vec<Wait>>,
    suspended: BTreeMap<RunId, (Suspension, String)>,
    /// Not before then, in boot time.
    again: BTreeMap<RunId, Duration>,
    told_to_end: BTreeSet<RunId>,
}

/// Until when, in boot time, a drive and all drives above it hold their leases: nobody below starts anything on the last
/// third of any of them. A child works under the workspace lease of its root, and its own claim does not tell it that this
/// was lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases(Vec<Arc<AtomicU64>>);

impl Leases {
    /// With one more below the others.
    pub(crate) fn with_own(&self) -> Self {
        let mut all = self.0.clone();
        all.push(Arc::default());
        Self(all)
    }

    /// The lowest one is good until then.
    pub(crate) fn renewed(&self, until: Duration) {
        if let Some(own) = self.0.last() {
            own.store(millis(until), Ordering::Release);
        }
    }

    /// Until when all of them are good.
    pub(crate) fn until(&self) -> Duration {
        let least = self.0.iter().map(|until| until.load(Ordering::Acquire)).min();
        Duration::from_millis(least.unwrap_or_default())
    }
}

/// What a parent hands to the drive of a child.
struct Errand {
    driver: Driver,
    equip: Arc<dyn Equip>,
    started: Box<RunStarted>,
    stop: crate::drive::Stop,
    above: Leases,
    ends: bool,
}

impl Errand {
    async fn go(self) -> Came {
        self.drive().await.unwrap_or_else(came_to_nothing)
    }

    async fn drive(self) -> Result<Came, DriveError> {
        let Self { driver, equip, started, stop, above, ends } = self;
        let id = started.run.clone();
        let known = match fold_known(&driver.ports, &id).await {
            Ok(run) => Some(run),
            // Claimed once, and its first event was never written.
            Err(FoldError::Empty(_)) => None,
            Err(error) => return Err(error.into()),
        };
        // It rests: what is left to do is to say so, once more if need be.
        if let Some(run) = known.as_ref().filter(|run| matches!(run.stage, Stage::Rest(_))) {
            report(&driver.ports, run).await?;
            return Ok(Came::Rested);
        }
        let task = known.as_ref().map_or(&started.task, |run| run.task.as_ref());
        let child = ChildTask { id: &id, task, run: known.as_ref() };
        let equipped = equip.equip(child).await;
        let Equipped { ports, changed, mode } =
            equipped.map_err(|why| DriveError::Unequipped { child: id.clone(), why })?;
        drop(known);
        let driver = Driver { ports, ..driver };
        let begin = Begin::Child { started, changed, mode, ends };
        let Driven { standing, run: _ } = driver.drive_below(&id, begin, stop, above).await?;
        Ok(match standing {
            Standing::Rested(_) => Came::Rested,
            Standing::Parked(waits) => Came::Waits(waits),
            Standing::Suspended(cause, detail) => Came::Suspended(cause, detail),
        })
    }
}

/// Whether another worker is at it, or it cannot be driven at all.
fn came_to_nothing(error: DriveError) -> Came {
    match error {
        DriveError::Claim(ClaimError::Held(_)) | DriveError::ClaimLost { .. } => Came::Held,
        DriveError::Claim(
            ClaimError::WorkspaceHeld { .. }
            | ClaimError::NoSuchRun(_)
            | ClaimError::Removed(_)
            | ClaimError::Unread(_)
            | ClaimError::Journal(_),
        )
        | DriveError::Fold(_)
        | DriveError::Journal(_)
        | DriveError::Conflict { .. }
        | DriveError::OtherTask { .. }
        | DriveError::WorkspaceBusy { .. }
        | DriveError::Stuck { .. }
        | DriveError::IsChild { .. }
        | DriveError::Unequipped { .. }
        | DriveError::Child { .. }
        | DriveError::Unanswered => Came::Failed(Box::new(error)),
    }
}

/// Tells the parent of a run that rests how it ended; nothing else has one to tell. Told again, it is the same input.
pub(crate) async fn report(ports: &Ports, run: &Run) -> Result<(), DriveError> {
    let (Some(descent), Some(report)) = (&run.descent, Report::of(run)) else { return Ok(()) };
    let id = InputId::new(format!("child.{}.{}", run.id, report.unknown_count()));
    let input = Input { id, at: ports.clock.now(), body: InputBody::ChildEnded(Box::new(report)), images: Vec::new() };
    match ports.journal.post_input(&descent.parent, &input).await {
        // Full: whoever drives the parent empties it, and finds the child owed still.
        Ok(Posted::Accepted | Posted::Duplicate | Posted::Closed | Posted::Full) => Ok(()),
        // The parent is gone: nobody waits for this.
        Err(ClaimError::NoSuchRun(_) | ClaimError::Removed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ends what dead workers left running of a run and of all runs below it.
pub(crate) fn reap_tree<'a>(ports: &'a Ports, id: &'a RunId) -> BoxFuture<'a, Reaped> {
    Box::pin(async move {
        if ports.tools.reap_run(id).await == Reaped::Unverified {
            return Reaped::Unverified;
        }
        let run = match fold_known(ports, id).await {
            Ok(run) => run,
            // Nothing was ever begun.
            Err(FoldError::Empty(_)) => return Reaped::Gone,
            Err(FoldError::ReadOnly { .. } | FoldError::Journal(_)) => return Reaped::Unverified,
        };
        for (child, _, _) in children::open(&run) {
            if reap_tree(ports, child).await == Reaped::Unverified {
                return Reaped::Unverified;
            }
        }
        Reaped::Gone
    })
}

impl Drive<'_> {
    /// Whether this child is to be begun, or told to end, now.
    pub(crate) fn may_begin_child(&self, child: &RunId, ends: bool) -> bool {
        let told = self.minding.told_to_end.contains(child);
        if self.minding.again.get(child).is_some_and(|at| *at > self.ports.clock.boottime()) {
            return false;
        }
        if self.hangar.is_flying(&Flight::Child(child.clone())) {
            return ends && !told;
        }
        let rests = self.minding.waiting.contains_key(child) || self.minding.suspended.contains_key(child);
        let flying = self.hangar.flights().filter(|flight| matches!(flight, Flight::Child(_))).count();
        let has_room = ends || flying < children::at_once(&self.run);
        has_room && (!rests || (ends && !told))
    }

    /// Drives a child, or tells one to end that is being driven. Nothing is created before the journal has what was asked
    /// for.
    pub(crate) async fn begin_child(&mut self, child: &RunId, ends: bool) -> Result<bool, DriveError> {
        if !self.draft.events.is_empty() {
            self.put_off = true;
            return Ok(false);
        }
        let flight = Flight::Child(child.clone());
        if self.hangar.is_flying(&flight) {
            let input =
                Input { id: end_id(child), at: self.ports.clock.now(), body: InputBody::Cancel, images: Vec::new() };
            match self.ports.journal.post_input(child, &input).await {
                Ok(_) => {
                    self.minding.told_to_end.insert(child.clone());
                }
                // It is being created: told a little later.
                Err(ClaimError::NoSuchRun(_)) => {
                    self.minding.again.insert(child.clone(), self.ports.clock.boottime() + CHILD_AGAIN);
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(true);
        }
        let Some(started) = begin_child(&self.run, child, &self.driver.options.binary) else { return Ok(false) };
        let unreadable =
            |error: serde_json::Error| DriveError::Unequipped { child: child.clone(), why: error.to_string() };
        let started = Box::new(started.map_err(unreadable)?);
        let Some(equip) = self.ports.children.clone() else {
            let why = "child runs cannot be driven here; resume the run".to_owned();
            return Err(DriveError::Unequipped { child: child.clone(), why });
        };
        if ends {
            self.minding.told_to_end.insert(child.clone());
        }
        self.minding.waiting.remove(child);
        self.minding.suspended.remove(child);
        // Whoever is there sees the root: the question of a child parks the tree, whose clock stands still then.
        let asked = match self.asked {
            WhenAsked::Stay | WhenAsked::Park => WhenAsked::Park,
            WhenAsked::Deny => WhenAsked::Deny,
        };
        let options = crate::drive::Options { asked, ..self.driver.options.clone() };
        let driver = Driver::new(self.ports.clone(), options, Arc::clone(&self.driver.observer));
        let errand = Errand { driver, equip, started, stop: self.stop.clone(), above: self.leases.clone(), ends };
        let child = child.clone();
        self.hangar.launch(flight, errand.go(), |came| Landed::Child(child, came));
        Ok(true)
    }

    /// A drive of a child came back.
    pub(crate) async fn child_came(&mut self, child: RunId, came: Result<Came, Cut>) -> Result<(), DriveError> {
        let came = match came {
            Ok(came) => came,
            Err(Cut::Broken(what)) => {
                return Err(DriveError::Child { child, what: format!("driving it broke down: {what}") });
            }
            // Given up: owed still if it is.
            Err(Cut::Aborted(_)) => return Ok(()),
        };
        let again = self.ports.clock.boottime() + CHILD_AGAIN;
        match came {
            Came::Rested => {
                self.minding.again.insert(child, again);
                self.take_inbox().await?;
            }
            Came::Waits(waits) => {
                self.minding.waiting.insert(child.clone(), waits);
                self.watch_child(child);
            }
            Came::Suspended(cause, detail) => {
                self.minding.suspended.insert(child, (cause, detail));
            }
            Came::Held => {
                self.minding.again.insert(child, again);
            }
            Came::Failed(error) => match *error {
                DriveError::Journal(error) | DriveError::Claim(ClaimError::Journal(error)) => return Err(error.into()),
                DriveError::Unanswered => return Err(DriveError::Unanswered),
                error @ (DriveError::Child { .. } | DriveError::Unequipped { .. }) => return Err(error),
                error @ (DriveError::Claim(_)
                | DriveError::ClaimLost { .. }
                | DriveError::Fold(_)
                | DriveError::Conflict { .. }
                | DriveError::OtherTask { .. }
                | DriveError::WorkspaceBusy { .. }
                | DriveError::IsChild { .. }
                | DriveError::Stuck { .. }) => return Err(DriveError::Child { child, what: error.to_string() }),
            },
        }
        Ok(())
    }

    /// Somebody may have answered a child that waits.
    pub(crate) async fn child_heard(&mut self, child: RunId) -> Result<(), DriveError> {
        if !self.minding.waiting.contains_key(&child) {
            return Ok(());
        }
        for run in self.asked_below(&child) {
            if !self.ports.journal.inbox(&run).await?.is_empty() {
                self.minding.waiting.remove(&child);
                return Ok(());
            }
        }
        self.watch_child(child);
        Ok(())
    }

    /// Looks out for what arrives for a child, or for any below it.
    fn watch_child(&mut self, child: RunId) {
        let flight = Flight::ChildInbox(child.clone());
        if self.hangar.is_flying(&flight) {
            return;
        }
        let asked = self.asked_below(&child);
        let journal = Arc::clone(&self.ports.journal);
        let look_out = async move {
            let any = asked.iter().map(|run| journal.inbox_changed(run));
            // What arrived before anybody looked out for it.
            let already = async {
                for run in &asked {
                    if journal.inbox(run).await.is_ok_and(|inbox| !inbox.is_empty()) {
                        return;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = crate::jobs::first(any) => {}
                () = already => {}
            }
        };
        self.hangar.launch(flight, look_out, |_| Landed::ChildInbox(child));
    }

    /// A child that waits, and the runs below it whose questions it waits with.
    fn asked_below(&self, child: &RunId) -> BTreeSet<RunId> {
        let waits = self.minding.waiting.get(child).map(Vec::as_slice).unwrap_or_default();
        let below = Wait::questions(child, waits).into_iter().map(|(run, _)| run.clone());
        below.chain([child.clone()]).collect()
    }

    /// When a child is to be looked at again.
    pub(crate) fn child_is_due_in(&self) -> Option<Duration> {
        let now = self.ports.clock.boottime();
        let again = |child: &RunId| self.minding.again.get(child).map(|at| at.saturating_sub(now));
        children::open(&self.run)
            .into_iter()
            .filter_map(|(child, _, _)| again(child))
            .filter(|wait| !wait.is_zero())
            .min()
    }

    /// What to do where nothing moves but in children, and they do not either: the run waits for the same people, or cannot
    /// go on for the same cause. None: something moves, or will.
    pub(crate) fn children_stand_still(&self) -> Option<Command> {
        if self.run.winding.is_some() || self.hangar.is_busy() || !children::are_open(&self.run) {
            return None;
        }
        let rests =
            |child: &RunId| self.minding.waiting.contains_key(child) || self.minding.suspended.contains_key(child);
        let moves = owed::owed(&self.run).iter().any(|duty| match duty {
            Duty::Child { child, .. } => !rests(child),
            Duty::Wake { .. } | Duty::Summarise { .. } | Duty::AwaitSummary { .. } => false,
            Duty::Call { .. }
            | Duty::AwaitReply { .. }
            | Duty::Start { .. }
            | Duty::AwaitAction { .. }
            | Duty::Recover { .. }
            | Duty::Hooks { .. }
            | Duty::Check { .. }
            | Duty::Judge { .. }
            | Duty::AwaitJudge { .. }
            | Duty::CheckAction { .. }
            | Duty::Undo { .. }
            | Duty::AskChecks { .. }
            | Duty::NoticeLoop
            | Duty::Transit { .. }
            | Duty::Propose { .. }
            | Duty::AskChildren { .. }
            | Duty::Conclude
            | Duty::Suspend => true,
        });
        if moves {
            return None;
        }
        match self.minding.suspended.iter().next() {
            Some((child, (cause, detail))) => {
                let detail = format!("child {child}: {detail}").trim_end_matches([':', ' ']).to_owned();
                Some(Command::Suspend { cause: *cause, detail })
            }
            None => Some(Command::ParkForChildren { waiting: self.minding.waiting.clone() }),
        }
    }

    /// Whether every lease is good for a start: its own and those above.
    pub(crate) fn leases_are_good(&self) -> bool {
        self.ports.clock.boottime() + LEASE / 3 < self.leases.until()
    }
}

/// Names the word to end that a parent sends its child: said twice, it counts once.
pub(crate) fn end_id(child: &RunId) -> InputId {
    InputId::new(format!("end.{child}"))
}
