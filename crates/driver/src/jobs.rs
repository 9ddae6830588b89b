//! What is in flight: model calls, tool attempts, recoveries, checks. Each is one task with a stable identity; ending a
//! task ends what it does in the world. Who launches one says who hears of its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::action::{Attempt, Cleared};
use longrein_core::check::Finding;
use longrein_core::decide::Undone;
use longrein_core::hook::{HookRan, Moment};
use longrein_core::ids::{ActionId, AttemptId, CheckName, Digest, Fence, ModelName, RunId, ToolName, TreeId};
use longrein_core::run::Run;
use longrein_core::snapshot;
use longrein_core::taint::Mark;
use longrein_core::task::{EffectClass, Task};
use longrein_ports::{BoxFuture, Checked, Encoded, Handed, Probed, Ran, Reaped, Snapshot, Written};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::children::Came;
use crate::context::Learned;
use crate::ear::Ear;
use crate::edge;
use crate::origin::Watch;
use crate::ports::Ports;
use crate::said::{self, Sent};
use crate::steps;
use crate::summary::Gathered;

/// The identity of something in flight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flight {
    Send(AttemptId),
    Run(ActionId, u32),
    /// An attempt of this tool whose time was up and that has not returned yet: unknown, and it keeps its hold
    /// (`semantics.md` D5).
    Overtime(ActionId, u32, ToolName),
    Recover(ActionId, u32, u32),
    Check(CheckName, u32),
    /// The check of an action.
    CheckAction(ActionId, u32),
    /// Takes a snapshot of the workspace, in this write epoch.
    Tree(usize),
    /// Looks at the workspace once more before this round's verdicts count.
    Proof(u32),
    /// Undoes what an action did in the workspace.
    Undo(ActionId, u32),
    /// Tells hooks of something.
    Hooks(Moment),
    /// Drives a child.
    Child(RunId),
    /// Waits for the inbox of a child that waits for somebody to change.
    ChildInbox(RunId),
    /// Waits for the inbox to change.
    Inbox,
    /// Brings the archive's index up to what has left the window.
    Index,
    /// Keeps a snapshot, and what was learned of the model.
    Keep,
    /// Gathers what a summary is made from.
    Gather(u32, u32),
    /// The call for a summary.
    Summary(u32, u32),
    /// Looks at the workspace before a model is asked about the work.
    AskJudge(CheckName, u32),
    /// The call for an opinion.
    Judge(u32),
}

/// Who hears of a flight that landed, and what it brought them.
#[derive(Debug)]
pub(crate) enum Landed {
    Send(AttemptId, Result<Sent, Cut>),
    Run(ActionId, u32, Result<(Ran, After, Option<TreeId>), Cut>),
    Overtime(ActionId, u32, Result<Ran, Cut>),
    Recover(ActionId, u32, Result<(Option<Probed>, Vec<Written>), Cut>),
    Check(CheckName, u32, Result<(Checked, After), Cut>),
    CheckAction(ActionId, u32, Result<(Checked, Vec<Mark>), Cut>),
    /// The workspace as it is now.
    Tree(usize, Result<Seen, Cut>),
    Proof(u32, Result<Seen, Cut>),
    AskJudge(CheckName, u32, Result<Seen, Cut>),
    Undo(ActionId, u32, Result<Result<Undone, String>, Cut>),
    /// What hooks said, in order.
    Hooks(Moment, Result<Vec<HookRan>, Cut>),
    Child(RunId, Result<Came, Cut>),
    ChildInbox(RunId),
    Inbox,
    /// What is to be sent for a summary, or why there is nothing.
    Gather(u32, Result<Result<Box<Gathered>, String>, Cut>),
    Summary(u32, u32, Result<Sent, Cut>),
    Judge(u32, Result<Sent, Cut>),
    /// Nobody waits for a cache.
    Cache,
}

/// Why a flight brought nothing.
#[derive(Debug)]
pub(crate) enum Cut {
    /// It was given up.
    Aborted(GivenUp),
    /// It panicked.
    Broken(String),
}

/// Why something in flight was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The run is brought to rest, or nobody asks any more.
    AtRest,
    /// Whoever has the run now must not meet it.
    LeaseOver,
}

impl GivenUp {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            GivenUp::AtRest => "the run is brought to rest",
            GivenUp::LeaseOver => "the lease on the run ran out meanwhile (the process was stopped or held up)",
        }
    }
}

/// The workspace as it was found, or why it could not be looked at.
pub(crate) type Seen = Result<TreeId, String>;

/// What came of something that may fail, breaking down included. None: it was given up, and is owed still if it is.
pub(crate) fn unless_given_up<T>(landed: Result<Result<T, String>, Cut>) -> Option<Result<T, String>> {
    match landed {
        Ok(came) => Some(came),
        Err(Cut::Broken(panic)) => Some(Err(format!("it broke down: {panic}"))),
        Err(Cut::Aborted(_)) => None,
    }
}

pub(crate) type Blobs = Vec<(Digest, Bytes)>;

/// What is known of a program only after its end.
#[derive(Debug)]
pub(crate) struct After {
    /// What its result turned out to bring.
    pub(crate) brings: Vec<Mark>,
    /// What it wrote, where somebody must know.
    pub(crate) written: Vec<Written>,
}

/// All flights of one run. Dropping it ends them all.
pub(crate) struct Hangar {
    tasks: JoinSet<Landed>,
    flying: BTreeMap<Flight, AbortHandle>,
    by_task: BTreeMap<tokio::task::Id, (Flight, WhenCut)>,
    /// Why what is ended now is.
    ending: GivenUp,
}

/// Whoever hears of a flight hears that it brought nothing.
type WhenCut = Box<dyn FnOnce(Cut) -> Landed + Send + Sync>;

impl Hangar {
    pub(crate) fn new() -> Self {
        Self { tasks: JoinSet::new(), flying: BTreeMap::new(), by_task: BTreeMap::new(), ending: GivenUp::AtRest }
    }

    /// Begins something; `hears` names who is told of its end.
    pub(crate) fn launch<T>(
        &mut self,
        flight: Flight,
        work: impl Future<Output = T> + Send + 'static,
        hears: impl FnOnce(Result<T, Cut>) -> Landed + Clone + Send + Sync + 'static,
    ) {
        let hears_of_a_cut = hears.clone();
        let handle = self.tasks.spawn(async move { hears(Ok(work.await)) });
        self.by_task.insert(handle.id(), (flight.clone(), Box::new(|cut| hears_of_a_cut(Err(cut)))));
        self.flying.insert(flight, handle);
    }

    pub(crate) fn is_flying(&self, flight: &Flight) -> bool {
        self.flying.contains_key(flight)
    }

    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flying.keys()
    }

    /// What runs past its time: the actions and their tools.
    pub(crate) fn overtime(&self) -> impl Iterator<Item = (ActionId, &ToolName)> {
        self.flying.keys().filter_map(|flight| {
            let Flight::Overtime(action, _, tool) = flight else { return None };
            Some((*action, tool))
        })
    }

    /// What hooks are being told of.
    pub(crate) fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.flying.keys().filter_map(|flight| {
            let Flight::Hooks(moment) = flight else { return None };
            Some(moment)
        })
    }

    /// Anything in flight that touches the world, or that the run needs.
    pub(crate) fn is_busy(&self) -> bool {
        self.flying.keys().any(|flight| match flight {
            Flight::Send(_)
            | Flight::Run(..)
            | Flight::Overtime(..)
            | Flight::Recover(..)
            | Flight::Check(..)
            | Flight::CheckAction(..)
            | Flight::Tree(_)
            | Flight::Proof(_)
            | Flight::Undo(..)
            | Flight::Hooks(_)
            | Flight::AskJudge(..)
            | Flight::Judge(_)
            | Flight::Child(_) => true,
            // Nothing waits for a summary.
            Flight::Inbox
            | Flight::ChildInbox(_)
            | Flight::Index
            | Flight::Keep
            | Flight::Gather(..)
            | Flight::Summary(..) => false,
        })
    }

    pub(crate) fn abort(&mut self, flight: &Flight) {
        if let Some(handle) = self.flying.get(flight) {
            handle.abort();
        }
    }

    /// Ends everything and waits until it is over; answers what had landed before.
    pub(crate) async fn abort_all(&mut self, why: GivenUp) -> Vec<Landed> {
        self.ending = why;
        for handle in self.flying.values() {
            handle.abort();
        }
        let mut landed = Vec::new();
        while let Some(one) = self.next().await {
            landed.push(one);
        }
        self.ending = GivenUp::AtRest;
        landed
    }

    /// The next one to land; None when nothing flies.
    pub(crate) async fn next(&mut self) -> Option<Landed> {
        let landed = self.tasks.join_next_with_id().await?;
        Some(self.settle(landed))
    }

    /// One that has landed already, without waiting.
    pub(crate) fn landed(&mut self) -> Option<Landed> {
        let landed = self.tasks.try_join_next_with_id()?;
        Some(self.settle(landed))
    }

    fn settle(&mut self, landed: Result<(tokio::task::Id, Landed), JoinError>) -> Landed {
        let (id, landed) = match landed {
            Ok((id, landed)) => (id, Ok(landed)),
            Err(error) if error.is_cancelled() => (error.id(), Err(Cut::Aborted(self.ending))),
            Err(error) => (error.id(), Err(Cut::Broken(error.to_string()))),
        };
        let (flight, when_cut) = self.by_task.remove(&id).expect("every task was registered when it was launched");
        self.flying.remove(&flight);
        landed.unwrap_or_else(when_cut)
    }
}

pub(crate) fn send(
    ports: &Ports,
    model: &ModelName,
    encoded: Encoded,
    ear: Ear,
) -> impl Future<Output = Sent> + Send + 'static {
    let (model, tools) = (Arc::clone(ports.model_named(model)), Arc::clone(&ports.tools));
    async move { said::sent_heard(model.as_ref(), tools.as_ref(), encoded, ear).await }
}

pub(crate) fn run(
    ports: &Ports,
    task: Arc<Task>,
    call: Cleared,
    handed: Handed,
    aftermath: Aftermath,
) -> impl Future<Output = (Ran, After, Option<TreeId>)> + Send + 'static {
    let ports = ports.clone();
    let Aftermath { watch, has_tree } = aftermath;
    let (action, attempt) = (call.attempt().action, call.attempt().number);
    async move {
        let ran = ports.tools.run(&task, call, handed).await;
        let brings = edge::trusted(&ports, ports.tools.brought(action, attempt));
        let written = look(&ports, watch).await;
        let left = if has_tree { steps::left(&ports).await } else { None };
        (ran, After { brings, written }, left)
    }
}

/// Comes back with the first of several things that happen.
pub(crate) async fn first<'a>(things: impl Iterator<Item = BoxFuture<'a, ()>>) {
    let mut things: Vec<_> = things.collect();
    std::future::poll_fn(|context| {
        let any = things.iter_mut().any(|thing| thing.as_mut().poll(context).is_ready());
        if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// What is looked at when a program has ended.
pub(crate) struct Aftermath {
    pub(crate) watch: Option<Watch>,
    /// Whether its start has a tree, so that how it leaves the workspace counts.
    pub(crate) has_tree: bool,
}

pub(crate) async fn look(ports: &Ports, watch: Option<Watch>) -> Vec<Written> {
    match watch {
        Some(watch) => watch.look(ports).await,
        None => Vec::new(),
    }
}

/// Caches are seen to so long after the batch that made that due: by then the request it cleared has left, and a model
/// takes longer to answer.
const CACHES_AFTER: Duration = Duration::from_millis(20);

/// What is kept beside the journal so that less has to be done later.
pub(crate) struct Caches {
    /// The state after an event that is committed.
    pub(crate) snapshot: Option<Run>,
    pub(crate) learned: Option<(ModelName, Learned)>,
}

/// Keeps caches; nothing waits for it.
pub(crate) fn keep(ports: &Ports, caches: Caches) -> impl Future<Output = ()> + Send + 'static {
    let ports = ports.clone();
    async move {
        tokio::time::sleep(CACHES_AFTER).await;
        let Caches { snapshot, learned } = caches;
        if let Some((model, learned)) = learned {
            learned.remember(&ports, &model, &ports.definitions).await;
        }
        if let Some(run) = snapshot {
            let kept = Snapshot { seq: run.head, catalogue: snapshot::catalogue(), body: snapshot::save(&run).into() };
            let id = run.id.clone();
            // What it shares with the run at work is copied by whoever changes it first.
            drop(run);
            // Without it the next claim folds more.
            let _ = ports.cabinet.keep_snapshot(&id, &kept).await;
        }
    }
}

/// Makes what a run has seen by now ready to be found.
pub(crate) fn index(ports: &Ports, run: RunId) -> impl Future<Output = ()> + Send + 'static {
    let archive = Arc::clone(&ports.archive);
    async move {
        tokio::time::sleep(CACHES_AFTER).await;
        // A cache: whoever searches brings it up, too.
        let _ = archive.index(&run).await;
    }
}

pub(crate) fn check(
    ports: &Ports,
    task: Arc<Task>,
    check: steps::Acceptance,
    watch: Option<Watch>,
) -> impl Future<Output = (Checked, After)> + Send + 'static {
    let ports = ports.clone();
    async move {
        let checked = steps::accept(&ports, &task, check).await;
        let brings = shown_of(&ports, &task, &checked);
        let written = look(&ports, watch).await;
        (checked, After { brings, written })
    }
}

/// What a check brings: the model is shown what a failed one printed, and that may be what lies in any file.
pub(crate) fn shown_of(ports: &Ports, task: &Task, checked: &Checked) -> Vec<Mark> {
    match checked.verdict.finding {
        Finding::Failed => ports.origins.below(&task.workspace).into_iter().collect(),
        Finding::Passed | Finding::Held => Vec::new(),
    }
}

/// What a recovery needs to know.
pub(crate) struct Recovery {
    pub(crate) attempt: Attempt,
    pub(crate) effect: EffectClass,
    pub(crate) fence: Fence,
    /// Not before then.
    pub(crate) from: Duration,
    /// How long after death an attempt may still land.
    pub(crate) settle_after: Duration,
    /// How long to wait if the processes cannot be seen from here.
    pub(crate) unseen: Duration,
    pub(crate) has_probe: bool,
    pub(crate) handed: Handed,
    /// Where what it wrote is looked for, once it is over.
    pub(crate) watch: Option<Watch>,
}

/// Ends what is left of the attempt, waits until nothing of it can land any more, and asks the tool's reconcile command if
/// it has one (`semantics.md` C3, D5).
pub(crate) fn recover(
    ports: &Ports,
    task: Arc<Task>,
    recovery: Recovery,
) -> impl Future<Output = (Option<Probed>, Vec<Written>)> + Send + 'static {
    let ports = ports.clone();
    async move {
        let tools = &ports.tools;
        tokio::time::sleep(recovery.from).await;
        let reaped = tools.reap(&recovery.attempt.run, recovery.attempt.action, recovery.fence).await;
        match reaped {
            Reaped::Gone => {}
            Reaped::Unverified => tokio::time::sleep(recovery.unseen).await,
        }
        match recovery.effect {
            EffectClass::Read => return (None, look(&ports, recovery.watch).await),
            // What ran here is gone with its process: nothing of it is on a wire.
            EffectClass::Workspace => {}
            EffectClass::External => tokio::time::sleep(recovery.settle_after).await,
        }
        if !recovery.has_probe {
            return (None, look(&ports, recovery.watch).await);
        }
        let probed = tools.probe(&task, recovery.attempt, recovery.handed).await;
        (Some(probed), look(&ports, recovery.watch).await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use longrein_core::ids::TurnId;

    use super::*;
    use crate::waiting::given_up;

    #[tokio::test]
    async fn what_is_ended_is_told_why() {
        let mut hangar = Hangar::new();
        let attempt = AttemptId { turn: TurnId(1), attempt: 1 };
        for (why, words) in [(GivenUp::LeaseOver, "the lease on the run ran out"), (GivenUp::AtRest, "brought to rest")]
        {
            hangar.launch(Flight::Send(attempt), pending(), move |sent| Landed::Send(attempt, sent));
            let [Landed::Send(_, Err(cut))] = &mut hangar.abort_all(why).await[..] else {
                panic!("it is one that was cut")
            };
            assert!(matches!(cut, Cut::Aborted(told) if *told == why), "{cut:?}");
            let failure = given_up(std::mem::replace(cut, Cut::Broken(String::new())));
            assert!(failure.message.contains(words), "{}", failure.message);
        }
        hangar.launch(Flight::Send(attempt), pending(), move |sent| Landed::Send(attempt, sent));
        hangar.abort(&Flight::Send(attempt));
        let cut = hangar.next().await;
        assert!(matches!(cut, Some(Landed::Send(_, Err(Cut::Aborted(GivenUp::AtRest))))), "{cut:?}");
    }
}
