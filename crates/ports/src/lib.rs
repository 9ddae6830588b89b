//! The async traits that stand between the driver and the world, and their errors.
//!
//! Read [`Journal`] first: it is the seam that makes a run safe. Everything else may fail, repeat or lie, and the journal
//! still says what is true.

mod archive;
mod cabinet;
mod checks;
mod clock;
mod gate;
mod hooks;
mod journal;
mod model;
mod origins;
mod points;
mod tools;
mod trees;

pub use archive::{Archive, EXCERPT_AROUND_BYTES, Found, LINE_MAX_BYTES, Piece, lines};
pub use cabinet::{Cabinet, SNAPSHOTS_KEPT, Snapshot, VALUE_MAX_BYTES};
pub use checks::{ActionCheck, CheckRun, Checked, Checks, Cited, GuardInput, Work};
pub use clock::Clock;
pub use gate::{Answers, Effect, EffectKind, Gate, GateCall, Ruled, Ruling};
pub use hooks::{About, HookCall, Hooks};
pub use journal::{
    AppendError, Batch, BatchId, CONTENTS_MAX, Claim, ClaimError, Collected, Committed, Create, Durability,
    Endorsement, FileMark, Finding, Holder, Journal, JournalError, KeyChange, KeyId, KeyRow, KeyState, LEASE, Listed,
    MARKS_MAX, Marks, NewEvent, Posted, REMOVED, Recorded, RecordedBody, RunRow, Store, Unread, VerifyReport, Worker,
};
pub use model::{Encoded, Listener, Model, Spoken};
pub use origins::{Ledger, NoOrigins, Origins, Written};
pub use points::{CrashAt, CrashPoint, Faults};
pub use tools::{Changed, Handed, Probed, Ran, Reaped, Tools, ValidArgs};
pub use trees::{Difference, Restored, TreeError, Trees, Turned, Undo};

/// A boxed future, so that the ports can be used as trait objects.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error underneath one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
