//! Exit statuses and errors for people: what happened, to what, and the way out.

use std::ffi::OsString;
use std::process::ExitCode;

use longrein::core::event::Suspension;
use longrein::ports::{ClaimError, JournalError};
use longrein::taskfile::TaskFileError;
use longrein::{DriveError, FoldError, RollbackError, RunsError};
use serde_json::json;

use crate::args::Globals;
use crate::out::tell;

/// The statuses of the command line. Scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Exhausted,
    Waiting,
    Failed,
    Model,
    ContextExhausted,
    Cancelled,
    Usage,
    /// Bad task or data, another task under this id, damage found, an approval used or expired.
    Data,
    /// No such run or action.
    NotFound,
    /// Held by another worker, or the store is unavailable.
    Unavailable,
    Internal,
    Configuration,
    Interrupted,
    Terminated,
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Exhausted => 2,
            Status::Waiting => 3,
            Status::Failed => 4,
            Status::Model => 5,
            Status::ContextExhausted => 6,
            Status::Cancelled => 7,
            Status::Usage => 64,
            Status::Data => 65,
            Status::NotFound => 66,
            Status::Unavailable => 69,
            Status::Internal => 70,
            Status::Configuration => 78,
            Status::Interrupted => 130,
            Status::Terminated => 143,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status.code())
    }
}

/// Status of a process that fault injection stopped.
pub(crate) const CRASHED: i32 = 75;

/// How an error is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Json,
}

impl Form {
    pub(crate) fn of(globals: &Globals) -> Self {
        if globals.json { Form::Json } else { Form::Words }
    }

    /// Of a command line that could not be read.
    pub(crate) fn of_unread(words: impl Iterator<Item = OsString>) -> Self {
        if words.take_while(|word| word != "--").any(|word| word == "--json") { Form::Json } else { Form::Words }
    }
}

/// An error with its status, and the way out if there is one.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) problem: String,
    pub(crate) way_out: Option<String>,
}

impl Failure {
    pub(crate) fn new(status: Status, problem: impl Into<String>) -> Self {
        Self { status, problem: problem.into(), way_out: None }
    }

    pub(crate) fn way_out(mut self, command: impl Into<String>) -> Self {
        self.way_out = Some(command.into());
        self
    }

    /// The way out reaches the store that the failed command was about.
    pub(crate) fn in_store(mut self, flag: &str) -> Self {
        if let Some(way_out) = self.way_out.as_mut().filter(|way_out| !way_out.contains(" --store ")) {
            way_out.push_str(flag);
        }
        self
    }

    /// The command that goes on stands in a line of its own in either form, the last one.
    pub(crate) fn print(&self, form: Form) -> ExitCode {
        match form {
            Form::Words => tell!("longrein: {}", self.problem),
            Form::Json => {
                let (status, problem, way_out) = (self.status.code(), &self.problem, &self.way_out);
                tell!(
                    "{}",
                    json!({ "v": 1, "type": "error", "status": status, "problem": problem, "way_out": way_out })
                );
            }
        }
        if let Some(way_out) = &self.way_out {
            tell!("{way_out}");
        }
        self.status.into()
    }
}

impl From<TaskFileError> for Failure {
    fn from(error: TaskFileError) -> Self {
        let status = match &error {
            TaskFileError::Unreadable { .. } | TaskFileError::Task { .. } => Status::Data,
            TaskFileError::Usage { .. } => Status::Usage,
            TaskFileError::Configuration { .. } => Status::Configuration,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<RunsError> for Failure {
    fn from(error: RunsError) -> Self {
        let problem = error.to_string();
        match error {
            RunsError::NoSuchRun(_) => Failure::new(Status::NotFound, problem).way_out("longrein runs"),
            RunsError::Ambiguous { .. } => Failure::new(Status::NotFound, problem),
            RunsError::Exists(_) | RunsError::Unfit(_) => Failure::new(Status::Data, problem),
            RunsError::ChildOf { parent, .. } => {
                Failure::new(Status::Data, problem).way_out(format!("longrein rm {parent}"))
            }
            RunsError::ForkBeyond { run, .. } => {
                Failure::new(Status::Data, problem).way_out(format!("longrein log {run}"))
            }
            RunsError::ForkPoint(_) => Failure::new(Status::NotFound, problem),
            RunsError::NoSuchTurn { run, .. } => {
                Failure::new(Status::NotFound, problem).way_out(format!("longrein log {run}"))
            }
            RunsError::Task(_) | RunsError::Images(_) => Failure::new(Status::Data, problem),
            RunsError::Server(_) => Failure::new(Status::Unavailable, problem).way_out("longrein tools"),
            RunsError::Stopped { run, why } => {
                let status = match why {
                    Suspension::Interrupted => Status::Interrupted,
                    Suspension::Terminated | Suspension::Dropped | Suspension::Model => Status::Terminated,
                };
                let failure = Failure::new(status, problem);
                match run {
                    Some(run) => failure.way_out(format!("longrein resume {run}")),
                    None => failure,
                }
            }
            RunsError::Mode { .. } => Failure::new(Status::Data, problem),
            RunsError::Sandbox(_) | RunsError::Model(_) => Failure::new(Status::Configuration, problem),
            RunsError::Drive(error) => error.into(),
            RunsError::Fold(error) => error.into(),
            RunsError::Claim(error) => error.into(),
            RunsError::Journal(error) => error.into(),
            RunsError::NoTrees(_) => Failure::new(Status::NotFound, problem),
            RunsError::Rollback(error) => Failure::new(rollback_status(&error), problem),
            RunsError::Identity(_) => Failure::new(Status::Internal, problem),
        }
    }
}

fn rollback_status(error: &RollbackError) -> Status {
    match error {
        RollbackError::NoSuchStep(_) | RollbackError::Nothing => Status::NotFound,
        RollbackError::Tree(_) | RollbackError::Journal(_) => Status::Unavailable,
    }
}

impl From<DriveError> for Failure {
    fn from(error: DriveError) -> Self {
        let problem = error.to_string();
        match error {
            DriveError::Claim(error) => error.into(),
            DriveError::ClaimLost { run, .. } => {
                Failure::new(Status::Unavailable, problem).way_out(format!("longrein show {run}"))
            }
            DriveError::Fold(error) => error.into(),
            DriveError::Journal(error) => error.into(),
            DriveError::WorkspaceBusy { run } => {
                Failure::new(Status::Unavailable, problem).way_out(format!("longrein resume {run}"))
            }
            DriveError::OtherTask { .. } => Failure::new(Status::Data, problem),
            DriveError::IsChild { root, .. } => {
                Failure::new(Status::Data, problem).way_out(format!("longrein resume {root}"))
            }
            DriveError::Unequipped { .. } => Failure::new(Status::Configuration, problem),
            DriveError::Child { child, .. } => {
                Failure::new(Status::Data, problem).way_out(format!("longrein verify {child}"))
            }
            DriveError::Conflict { .. } | DriveError::Stuck { .. } => Failure::new(Status::Internal, problem),
            DriveError::Unanswered => Failure::new(Status::Unavailable, problem),
        }
    }
}

impl From<ClaimError> for Failure {
    fn from(error: ClaimError) -> Self {
        let problem = error.to_string();
        match error {
            ClaimError::Held(holder) => {
                Failure::new(Status::Unavailable, problem).way_out(format!("longrein log {} --follow", holder.run))
            }
            ClaimError::WorkspaceHeld { holder, .. } => {
                Failure::new(Status::Unavailable, problem).way_out(format!("longrein log {} --follow", holder.run))
            }
            ClaimError::NoSuchRun(_) | ClaimError::Removed(_) => {
                Failure::new(Status::NotFound, problem).way_out("longrein runs")
            }
            ClaimError::Unread(id) => Failure::new(Status::Data, problem).way_out(format!("longrein show {id}")),
            ClaimError::Journal(error) => error.into(),
        }
    }
}

impl From<FoldError> for Failure {
    fn from(error: FoldError) -> Self {
        let problem = error.to_string();
        match error {
            FoldError::Empty(_) => Failure::new(Status::NotFound, problem).way_out("longrein runs"),
            FoldError::ReadOnly { run, .. } => {
                Failure::new(Status::Data, problem).way_out(format!("longrein verify {run}"))
            }
            FoldError::Journal(error) => error.into(),
        }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let status = match &error {
            JournalError::Unavailable(_) => Status::Unavailable,
            JournalError::Unusable(_) => Status::Unavailable,
            JournalError::Corrupt { .. } => Status::Data,
        };
        Failure::new(status, error.to_string())
    }
}
