//! What can go wrong at the door, by what the caller can do about it.

use longrein_core::ids::{ActionId, RunId};
use longrein_driver::{DriveError, FoldError};
use longrein_ports::{ClaimError, JournalError};

use crate::runs::RunsError;

/// Why a run could not be started, gone on with, answered or waited for.
///
/// How a run *ends* is no error: see [`RunState`](crate::RunState).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The task is not one that can be run; it says what to mend. Nothing was started.
    #[error("the task cannot run: {0}")]
    Task(String),
    /// There is a run of this id with another task; `parts` are what differs.
    #[error("run {run} was started with another {}; give this one another id", .parts.join(", "))]
    OtherTask {
        /// The run that is there.
        run: RunId,
        /// The parts of the task that differ.
        parts: Vec<&'static str>,
    },
    /// The store has no such run.
    #[error("there is no run {0} in this store")]
    NoSuchRun(RunId),
    /// Another worker drives the run, or writes its workspace: come back later.
    #[error(transparent)]
    Held(ClaimError),
    /// The action waits for no answer, or for none any more.
    #[error("{action} of run {run} does not wait for an approval (any more)")]
    NotAsked {
        /// The run.
        run: RunId,
        /// The action that was answered.
        action: ActionId,
    },
    /// The action would send out what the run has read: a person confirms it at a terminal.
    #[error("{action} of run {run} is confirmed by typing {text} at a terminal: longrein approve {run} {action}")]
    ToBeTyped {
        /// The run.
        run: RunId,
        /// The action that was answered.
        action: ActionId,
        /// What is to be typed.
        text: String,
    },
    /// The run was cancelled and takes nothing more.
    #[error("run {0} takes nothing more: it was cancelled")]
    Closed(RunId),
    /// The run has not taken what it was sent before: let it go on first.
    #[error("the inbox of run {0} is full")]
    Full(RunId),
    /// The store failed or is damaged; the run is as it was at its last event.
    #[error(transparent)]
    Store(JournalError),
    /// This worker lost the run, or met a state it must not go on from.
    #[error(transparent)]
    Runs(RunsError),
    /// The task that drove the run was ended from outside: the runtime was shut down, or a fault of ours. The run can be
    /// gone on with.
    #[error("run {run} is not driven any more: {problem}")]
    Broken {
        /// The run.
        run: RunId,
        /// What the runtime says.
        problem: String,
    },
    /// The outcome was an error, and that was told before.
    #[error("the outcome of run {0} was told before")]
    Told(RunId),
}

impl From<RunsError> for Error {
    fn from(error: RunsError) -> Self {
        match error {
            RunsError::NoSuchRun(text) => Error::NoSuchRun(RunId::new(text)),
            RunsError::Task(problem) => Error::Task(problem),
            RunsError::Images(problem) => Error::Task(problem.to_string()),
            RunsError::Model(problem) => Error::Task(problem.to_string()),
            RunsError::Claim(claim) | RunsError::Drive(DriveError::Claim(claim)) => claim.into(),
            RunsError::Journal(journal) | RunsError::Drive(DriveError::Journal(journal)) => Error::Store(journal),
            RunsError::Fold(FoldError::Empty(run)) | RunsError::Drive(DriveError::Fold(FoldError::Empty(run))) => {
                Error::NoSuchRun(run)
            }
            RunsError::Fold(FoldError::Journal(journal))
            | RunsError::Drive(DriveError::Fold(FoldError::Journal(journal))) => Error::Store(journal),
            RunsError::Drive(DriveError::OtherTask { run, parts }) => Error::OtherTask { run, parts },
            other @ (RunsError::Ambiguous { .. }
            | RunsError::Exists(_)
            | RunsError::ChildOf { .. }
            | RunsError::Unfit(_)
            | RunsError::ForkPoint(_)
            | RunsError::ForkBeyond { .. }
            | RunsError::NoSuchTurn { .. }
            | RunsError::Mode { .. }
            | RunsError::Sandbox(_)
            | RunsError::Server(_)
            | RunsError::Stopped { .. }
            | RunsError::NoTrees(_)
            | RunsError::Rollback(_)
            | RunsError::Drive(_)
            | RunsError::Fold(FoldError::ReadOnly { .. })
            | RunsError::Identity(_)) => Error::Runs(other),
        }
    }
}

impl From<ClaimError> for Error {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::NoSuchRun(run) | ClaimError::Removed(run) => Error::NoSuchRun(run),
            ClaimError::Journal(journal) => Error::Store(journal),
            // Only a removal finds that.
            unread @ ClaimError::Unread(_) => Error::Runs(RunsError::Claim(unread)),
            held @ (ClaimError::Held(_) | ClaimError::WorkspaceHeld { .. }) => Error::Held(held),
        }
    }
}
