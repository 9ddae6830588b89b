//! The journal: the append-only, numbered, checksummed list of events of every run, and what must change with it in one
//! transaction: claims, inbox, key rows, blobs. All of safety; no scheduling.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::event::{Event, EventKind};
use longrein_core::ids::{ActionId, Digest, Fence, InputId, RunId, Seq, ToolName};
use longrein_core::input::Input;
use longrein_core::payload::{Content, Payload};
use longrein_core::taint::{Mark, Taint};
use longrein_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Archive, BoxError, BoxFuture, Cabinet};

pub use longrein_core::event::Durability;

/// Who claims: one process of one boot of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub host: String,
    /// The kernel's boot id; leases of another boot are over.
    pub boot: String,
    pub pid: u32,
    /// When the process started, in the kernel's own ticks since boot, so that a reused pid is not mistaken for it.
    pub pid_start: u64,
}

/// A worker's time-limited right to advance a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub run: RunId,
    pub fence: Fence,
    /// End of the lease, in boot time of this host.
    pub until: Duration,
    /// The run's last event at the time of the claim.
    pub head: Seq,
    /// When the lease of the one before would have ended on its own, seen from this host's boot time. None: there was
    /// none, it was released, or its holder is proven dead.
    pub before: Option<Duration>,
    /// The worker that held it before, if it was not released.
    pub predecessor: Option<Worker>,
    /// Runs of dead workers whose workspace this claim took over: what they left running must end before anything starts.
    pub displaced: Vec<RunId>,
    /// When that worker is last known to have been alive: it claimed or renewed then.
    pub last_alive: Option<Timestamp>,
}

/// Who holds a claim that somebody else wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub run: RunId,
    pub worker: Worker,
    /// How long its lease still runs unless renewed.
    pub left: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} on {} (lease ends in {} s unless renewed)",
            self.worker.pid,
            self.worker.host,
            self.left.as_secs().max(1)
        )
    }
}

/// Names a batch, so that one sent twice counts once. Derived from run, fence and a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchId(pub String);

/// An event on its way into the journal. The store numbers and seals it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Not before the event it follows; the driver sees to that and the store refuses otherwise.
    pub at: Timestamp,
    pub event: Event,
}

/// Everything that must become true together.
#[derive(Debug, Clone)]
pub struct Batch {
    pub id: BatchId,
    /// The head this batch follows.
    pub expected: Seq,
    /// At least one.
    pub events: Vec<NewEvent>,
    /// Inputs these events take out of the inbox.
    pub consumed: Vec<InputId>,
    pub keys: Vec<KeyChange>,
    /// Files that what the run has read may have got into.
    pub marks: Vec<FileMark>,
    pub blobs: Vec<(Digest, Bytes)>,
    pub durability: Durability,
    /// The run as listings show it after this batch.
    pub row: RunRow,
}

impl Batch {
    /// A batch that ends the run is refused while the inbox holds anything it does not consume.
    pub fn ends_the_run(&self) -> bool {
        self.events.iter().any(|new| new.event.kind() == EventKind::RunEnded)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The number of the batch's last event.
    pub head: Seq,
}

/// One run in a listing. A cache of the fold, kept in the append's transaction; `verify` compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    pub run: RunId,
    /// `running`, `waiting`, `suspended`, `done`, …
    pub state: String,
    pub reason: String,
    pub goal: String,
    pub turns: u64,
    pub micros: u64,
    pub started: Timestamp,
    pub updated: Timestamp,
    /// The run that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Sources that taint it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

/// A run in a listing, and who holds it.
pub type Listed = (RunRow, Option<Holder>);

/// A unique business key (`semantics.md` D6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyId {
    /// A root run's id, or `store`.
    pub scope: String,
    pub tool: ToolName,
    pub digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Started, and not known to have failed.
    Held,
    Done(Content),
    Free,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    pub id: KeyId,
    /// Who took it last.
    pub run: RunId,
    pub action: ActionId,
    /// Canonical arguments of that call.
    pub args: Payload,
    pub times_freed: u32,
    pub state: KeyState,
    /// What the result of that call brings into whoever sees it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

/// A change of a key row, in the transaction of the append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Insert it, or take a free one. Refused (`KeyTaken`) if it is held or done by anyone but this very action.
    Take { id: KeyId, run: RunId, action: ActionId, args: Payload },
    /// The holder's result, for later calls with the same key.
    Finish { id: KeyId, result: Content, brings: Vec<Mark> },
    /// It did not happen: the key may be used again. Adds one to `times_freed`.
    Free { id: KeyId },
}

impl KeyChange {
    pub fn id(&self) -> &KeyId {
        match self {
            KeyChange::Take { id, .. } | KeyChange::Finish { id, .. } | KeyChange::Free { id } => id,
        }
    }
}

/// A file that was written while its run was tainted: reading it again, in any run, taints as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Absolute, without links.
    pub path: String,
    /// Of the tainted contents, the newest last and at most [`CONTENTS_MAX`]: what a person has changed since is none of
    /// them. Empty: whatever lies there and below.
    pub contents: Vec<Digest>,
    /// The folder the run worked in: what was moved about in there is known again by its content.
    pub root: String,
    /// What the run had read when it was written, and what had been in the file before.
    pub taint: Taint,
    /// Who wrote it last.
    pub run: RunId,
    /// None: one of its acceptance checks.
    pub action: Option<ActionId>,
    pub at: Timestamp,
}

impl FileMark {
    /// What is known of a file of which this was known before. Nothing is taken back.
    #[must_use]
    pub fn after(mut self, before: &FileMark) -> FileMark {
        self.taint.join(&before.taint);
        if before.contents.is_empty() {
            self.contents.clear();
        } else if !self.contents.is_empty() {
            let mut contents = before.contents.clone();
            contents.retain(|content| !self.contents.contains(content));
            contents.append(&mut self.contents);
            contents.drain(..contents.len().saturating_sub(CONTENTS_MAX));
            self.contents = contents;
        }
        self
    }
}

/// The most contents of one file that are known again: somebody must put an older one back for it not to be.
pub const CONTENTS_MAX: usize = 16;

/// The most marks a store holds. Beyond them the oldest become marks of the folders they lie in.
pub const MARKS_MAX: usize = 200_000;

/// Marks as they are read: those that were made or changed after a number, and the number to go on from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    pub files: Vec<FileMark>,
    pub next: u64,
}

/// A source that a person trusts from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endorsement {
    /// A host, a server or a path, exactly as a run's taint lists it.
    pub source: String,
    pub by: String,
    pub at: Timestamp,
}

/// A record as read back: its envelope, and its event if this binary knows the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub seq: Seq,
    pub at: Timestamp,
    pub body: RecordedBody,
}

#[expect(clippy::large_enum_variant, reason = "it is an event but for a handful of records in a thousand")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedBody {
    Known(Event),
    /// Written by a newer binary. Its number is kept; a run with one that must be understood is read-only here.
    Unknown {
        kind: String,
        must_understand: bool,
        body: String,
    },
    /// Fails its checksum or cannot be decoded: the run is read-only here.
    Damaged {
        what: String,
    },
}

/// What `post_input` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    Accepted,
    /// This input id was posted before.
    Duplicate,
    /// The run takes no such input any more.
    Closed,
    /// The inbox is full.
    Full,
}

/// A fault that `verify` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which record: `event 12`, `inbox i1`, `key …`, `blob …`, `snapshot 12`, `run`, `claim`.
    pub record: String,
    pub fault: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    pub events: u64,
    pub inputs: u64,
    pub keys: u64,
    pub blobs: u64,
    pub findings: Vec<Finding>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else is at it. Come back later, or end it.
    #[error("run {} is held by {}", .0.run, .0)]
    Held(Holder),
    /// Another run writes this workspace.
    #[error("workspace {root} is being written by run {}, held by {holder}", .holder.run)]
    WorkspaceHeld { root: String, holder: Holder },
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// Its records were purged; the id is not given out again.
    #[error("run {0} was removed")]
    Removed(RunId),
    /// It is not removed: a person has sent it something that nobody has taken yet.
    #[error("what was sent to run {0} waits to be taken")]
    Unread(RunId),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What of runs that are to be removed if a person has sent them something that nobody has taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// None of them is removed.
    Spares,
    /// It goes with them.
    Goes,
}

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The claim is lost: stop every effect, commit nothing.
    #[error("the claim on the run was lost to fence {by}")]
    Fenced { by: Fence },
    /// Somebody else appended. Cannot happen under a valid claim; reload.
    #[error("expected the journal at event {expected}, found {found}")]
    Conflict { expected: Seq, found: Seq },
    /// The batch ends the run and the inbox holds something. Take it first.
    #[error("an input arrived beside the end")]
    InputPending,
    /// Another action holds or has used this key. Read the row and decide again.
    #[error("key of {} is taken", .0.tool)]
    KeyTaken(KeyId),
    /// It may or may not have been committed. Send the same batch again.
    #[error("no answer to an append")]
    Unknown,
    #[error(transparent)]
    Journal(#[from] JournalError),
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A write or sync failed: every run of this store stops here, nothing is retried on this handle.
    #[error("the store failed: {0}")]
    Unavailable(#[source] BoxError),
    /// The store cannot be used as it is: wrong place, wrong version, wrong permissions. Says the way out.
    #[error("{0}")]
    Unusable(String),
    /// Read back and found damaged.
    #[error("damaged record {record} of run {run}: {fault}")]
    Corrupt { run: RunId, record: String, fault: String },
}

/// Store of journals. Implementations share one encoding and one conformance suite.
pub trait Journal: Send + Sync {
    /// Claims a run; creates it if `create` says so and it is not there. `workspace` is the root it will write, if any.
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>>;

    /// Extends the lease and answers its new end in boot time.
    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>>;

    /// Gives the claim up; a claim that is already lost is left alone.
    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>>;

    /// All or nothing.
    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>>;

    /// Events after `after`, in order, at most `limit`; checksums are checked.
    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>>;

    fn runs(&self) -> BoxFuture<'_, Result<Vec<Listed>, JournalError>>;

    /// The listing row of one run and who holds it. None: no such run, or it never got its first event.
    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<Listed>, JournalError>>;

    /// Durable (Synced) when it answers Accepted, with the blobs it refers to. Needs no claim.
    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>>;

    /// The same for an input that refers to nothing new.
    fn post_input<'a>(&'a self, run: &'a RunId, input: &'a Input) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        self.post_with(run, input, &[])
    }

    /// Inputs not yet taken, oldest first.
    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>>;

    /// Waits until the inbox of `run` may hold something new. May wake for nothing; sees other processes' posts within
    /// half a second; those of one that was killed in the middle of it, within five.
    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()>;

    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>>;

    /// None: the blob is missing.
    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>>;

    /// Checks every record of a run without trusting any cache.
    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>>;
}

/// A whole store: the journals, what finds things in them again, what saves work, and upkeep by its operator.
pub trait Store: Journal + Archive + Cabinet {
    /// Removes runs that nobody holds, all or none: events, inputs, claims, and everything kept in their cabinets or indexes.
    /// Tombstones and key rows stay, so that neither an id nor a business intent is used twice. Synced when it answers.
    fn purge<'a>(&'a self, runs: &'a [RunId], unread: Unread) -> BoxFuture<'a, Result<(), ClaimError>>;

    /// Marks made or changed after number `after`, oldest first. A direct look, not to be waited for: the gate asks while
    /// it rules. One that is damaged is an error: what it says of its file is not known.
    fn marks(&self, after: u64) -> Result<Marks, JournalError>;

    /// The sources people trust, by name. A direct look.
    fn endorsements(&self) -> Result<Vec<Endorsement>, JournalError>;

    /// Trusts a source from now on. Synced when it answers.
    fn endorse<'a>(&'a self, endorsement: &'a Endorsement) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Trusts it no more. False: it was not trusted.
    fn forget_endorsement<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<bool, JournalError>>;

    /// Removes blobs that nothing refers to; of those that lie as files, the ones not touched for `older_than`. Refuses
    /// while a record cannot be read, for it may refer to any of them.
    fn collect(&self, older_than: Duration) -> BoxFuture<'_, Result<Collected, JournalError>>;
}

/// What a collection freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    pub blobs: u64,
    pub bytes: u64,
}

/// The listing state of a run that was removed.
pub const REMOVED: &str = "removed";

/// Whether a claim may make the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    IfAbsent,
    Never,
}

/// How long a claim lasts without renewal (`semantics.md` C2).
pub const LEASE: Duration = Duration::from_secs(15);
