//! Why a run could not be found, driven or answered.

use longrein_core::event::Suspension;
use longrein_core::ids::{RunId, Seq, TurnId};
use longrein_core::task::Mode;
use longrein_driver::{DriveError, FoldError, RollbackError};
use longrein_ports::{ClaimError, JournalError};

use crate::images::ImageError;

/// Why a run could not be found, driven or answered.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// None has this id, or one that starts so.
    #[error("no run {0} in this store")]
    NoSuchRun(String),
    /// More than one id starts so.
    #[error("\"{text}\" could be any of: {}", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// Some of the runs it could be.
        candidates: Vec<String>,
    },
    /// What is to be shown cannot be.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// The children that are asked for do not fit.
    #[error("no child is asked for: {0}")]
    Unfit(#[from] longrein_core::children::Unfit),
    /// A child is removed with its root.
    #[error("run {run} is a child and goes with its parent, run {parent}")]
    ChildOf {
        /// This run.
        run: RunId,
        /// Whose child it is.
        parent: RunId,
    },
    /// The id is taken.
    #[error("there is a run {0} already")]
    Exists(RunId),
    /// A run has no point at which it could be forked.
    #[error("{0}")]
    ForkPoint(String),
    /// The journal does not go so far.
    #[error("run {run} has no event {at}: the last one is {last}")]
    ForkBeyond {
        /// This run.
        run: RunId,
        /// What was asked for.
        at: Seq,
        /// The last event there is.
        last: Seq,
    },
    /// Nothing was sent to the model for this turn.
    #[error("nothing was sent to the model for turn {} of run {run}{}", turn.0, match last {
        Some(last) => format!(": the last turn that was is {}", last.0),
        None => ": no turn has begun yet".to_owned(),
    })]
    NoSuchTurn {
        /// Of this run.
        run: RunId,
        /// What was asked for.
        turn: TurnId,
        /// The last one for which something was.
        last: Option<TurnId>,
    },
    /// A shadow run stays one, and no other run becomes one.
    #[error(
        "run {run} is in mode {from} and cannot go on in mode {to}: of a shadow run nothing happened, and of \
             another it cannot be undone; start a new run"
    )]
    Mode {
        /// This run.
        run: RunId,
        /// Its mode.
        from: Mode,
        /// What was asked for.
        to: Mode,
    },
    /// Commands cannot be confined as they must be.
    #[error("{0}")]
    Sandbox(String),
    /// Its tools, rules or checks cannot work in this process.
    #[error("the task cannot run here: {0}")]
    Task(String),
    /// A server of tools that it must not start without is not there.
    #[error("the run does not start: {0}")]
    Server(String),
    /// It was stopped while the servers of its tools were waited for. Nothing is in its journal of this.
    #[error("stopped while its MCP servers were waited for; nothing was begun")]
    Stopped {
        /// The run, if it was there before.
        run: Option<RunId>,
        /// What stopped it.
        why: Suspension,
    },
    /// No such model can be connected to.
    #[error("the model cannot be used: {0}")]
    Model(#[from] longrein_models::ConfigError),
    /// The drive ended in an error; the journal says how far it came.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The journal does not fold to a run that could go on here.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// No snapshots of its workspace are kept here.
    #[error("no snapshots of the workspace of run {0} are kept here: nothing can be set back")]
    NoTrees(RunId),
    /// It cannot be set back.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// Somebody else has the run, or there is none.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The store failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Host, boot or process could not be read from the system.
    #[error("this process cannot tell who it is: {0}")]
    Identity(#[from] std::io::Error),
}
