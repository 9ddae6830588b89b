//! How runs are driven: options in, a standing out.
//!
//! Read [`Driver::drive`] first. The loop itself is in `claimed`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use longrein_core::event::{RunEnded, RunStarted, Suspension, Wait};
use longrein_core::ids::{AttemptId, Digest, Fence, RunId, Seq};
use longrein_core::run::Run;
use longrein_core::task::{Mode, Task};
use longrein_ports::{BoxFuture, ClaimError, JournalError, LEASE, NewEvent, Spoken, Worker};
use tokio_util::sync::CancellationToken;

use crate::children::Leases;
use crate::claimed::Drive;
use crate::fold::FoldError;
use crate::ports::Ports;

/// Told of every committed batch, in order. Must not block.
pub trait Observer: Send + Sync {
    /// `run` is the state after the events.
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]);

    /// Told, before a run goes on, of what its surroundings need a person to know. A line.
    fn noticed(&self, _line: &str) {}

    /// Told of a reply while it comes in, from another task than the one that commits, after its request is committed and
    /// before its end is. Known secrets are marked. It counts for nothing until the reply stands; [`Spoken::Anew`]: what was
    /// told of this turn is void, since the attempt failed or the provider began again.
    fn heard(&self, _run: &RunId, _attempt: AttemptId, _spoken: Spoken<'_>) {}
}

/// How one process drives runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub worker: Worker,
    /// Version of this binary, for the record.
    pub binary: String,
    pub asked: WhenAsked,
    /// Events between snapshots: [`SNAPSHOT_EVERY`], or fewer to see many of them.
    pub snapshot_every: u64,
}

/// Folding so many events takes some ten milliseconds.
pub const SNAPSHOT_EVERY: u64 = 2_000;

/// What becomes of a question to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenAsked {
    /// Somebody is there and answers through the inbox: stay.
    Stay,
    /// Park the run when nothing else can move.
    Park,
    /// Nobody can be asked: deny, what waits already too.
    Deny,
}

/// Where a run was left.
#[derive(Debug)]
pub struct Driven {
    pub run: Run,
    pub standing: Standing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It came to an end.
    Rested(Box<RunEnded>),
    /// It waits for a person.
    Parked(Vec<Wait>),
    /// It can go on later.
    Suspended(Suspension, String),
}

/// A new run, or one that is there.
pub enum Begin {
    New {
        task: Box<Task>,
        /// Captured inputs that are too large for an event.
        blobs: Vec<(Digest, Bytes)>,
    },
    Existing {
        /// Pinned names whose content differs now (`semantics.md` B5).
        changed: Vec<String>,
        /// The permission mode the operator wants from here on. None: as it is.
        mode: Option<Mode>,
    },
    /// A child, by whoever drives its parent: created if it is not there.
    Child {
        started: Box<RunStarted>,
        /// As for a run that is there.
        changed: Vec<String>,
        mode: Option<Mode>,
        /// Its parent is being brought to rest, and so is the child.
        ends: bool,
    },
}

/// Asks drives to stop where they are, orderly. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    pub(crate) token: CancellationToken,
    pub(crate) left: CancellationToken,
    why: Arc<OnceLock<Suspension>>,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// The first cause counts.
    pub fn now(&self, why: Suspension) {
        // A second cause changes nothing: the first is being acted on.
        let _ = self.why.set(why);
        self.token.cancel();
    }

    /// Ends once a stop was asked for.
    pub async fn asked(&self) {
        self.token.cancelled().await;
    }

    /// Whoever was there to answer has gone: what goes on goes on, and then questions park the run.
    pub fn nobody_is_there(&self) {
        self.left.cancel();
    }

    /// What it was asked for.
    pub fn why(&self) -> Suspension {
        self.why.get().copied().unwrap_or(Suspension::Dropped)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Another worker has the run now; nothing of this one's was committed since, and its tools are dead.
    #[error("lost the claim on run {run} to another worker (fence {by})")]
    ClaimLost { run: RunId, by: Fence },
    #[error(transparent)]
    Fold(#[from] FoldError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal moved under a valid claim.
    #[error("run {run}: expected the journal at event {expected}, found {found}; nothing was written")]
    Conflict { run: RunId, expected: Seq, found: Seq },
    /// A run with another task was started under this id in the same moment.
    #[error("run {run} was started with another {} just now", .parts.join(", "))]
    OtherTask { run: RunId, parts: Vec<&'static str> },
    /// Processes that a dead worker left in the workspace cannot be ended from here.
    #[error("what run {run} left running in this workspace cannot be ended; end it, or go on with that run")]
    WorkspaceBusy { run: RunId },
    /// A child is driven with its root: one lease of the workspace covers them all.
    #[error("run {run} is a child; go on with its root, run {root}")]
    IsChild { run: RunId, root: RunId },
    /// A child cannot be driven in this process.
    #[error("child run {child} cannot go on here: {why}")]
    Unequipped { child: RunId, why: String },
    /// A child cannot be driven at all as it is.
    #[error("child run {child} cannot go on: {what}")]
    Child { child: RunId, what: String },
    /// A fault of ours: what is owed does not get less by being begun. Nothing of it was appended.
    #[error("run {run} goes in a circle; this is a fault of Longrein's, please report it with `longrein log {run}`")]
    Stuck { run: RunId },
    /// The store gave no answer for a whole lease.
    #[error("the store did not answer for {} s", LEASE.as_secs())]
    Unanswered,
}

/// Drives runs one at a time.
pub struct Driver {
    pub(crate) ports: Ports,
    pub(crate) options: Options,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Driver {
    pub fn new(ports: Ports, options: Options, observer: Arc<dyn Observer>) -> Self {
        Self { ports, options, observer }
    }

    /// Claims a run and advances it until it rests, waits, or is stopped. Dropping the future ends everything it runs.
    ///
    /// Boxed: it is large, and each layer above would hold the whole of it, unoptimised several times over on the stack.
    pub fn drive<'a>(&'a self, id: &'a RunId, begin: Begin, stop: Stop) -> BoxFuture<'a, Result<Driven, DriveError>> {
        self.drive_below(id, begin, stop, Leases::default())
    }

    /// The same, under the leases of the runs above.
    pub(crate) fn drive_below<'a>(
        &'a self,
        id: &'a RunId,
        begin: Begin,
        stop: Stop,
        above: Leases,
    ) -> BoxFuture<'a, Result<Driven, DriveError>> {
        Box::pin(async move {
            let mut drive = Drive::claim(self, id, begin, stop, above).await?;
            let result = drive.advance().await;
            drive.leave(result).await
        })
    }
}
