//! What a command is, and how it can end.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::confine::{Confinement, Step};

/// The variable that marks every process of a command with whose it is.
pub const INSIDE: &str = "LONGREIN_INSIDE";

/// A command to run.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program and its arguments. Without a `/` the program is looked up in the `PATH` of `env`; with one, a relative
    /// path counts from `cwd`.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// The whole environment; [`INSIDE`] is added. Nothing is inherited.
    pub env: Vec<(String, String)>,
    /// What the program can read; empty: `/dev/null`. A program that never reads it does not block anything.
    pub stdin: Vec<u8>,
    pub stdout: Keep,
    pub stderr: Stderr,
    /// From the start of the program; time spent waiting for a free place (see [`ALIVE_MAX`](crate::ALIVE_MAX)) does not
    /// count.
    pub timeout: Duration,
    pub marker: Marker,
    pub confinement: Confinement,
}

/// How much of an output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of it. A program that prints more is ended: [`How::Cut`].
    Whole { max_bytes: usize },
    /// Its head and its tail; what lies between is forgotten, and the program goes on. One that prints more than
    /// `flood_bytes` is ended: [`How::Cut`].
    Ends { max_bytes: usize, flood_bytes: u64 },
}

/// For [`Keep::Ends`]: the program may print for as long as it runs.
pub const NO_FLOOD: u64 = u64::MAX;

/// Where the second output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stderr {
    Apart(Keep),
    /// Into stdout, in the order written.
    WithStdout,
}

/// Whose processes these are: `<run>/<action>/<fence>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    pub run: String,
    pub action: String,
    pub fence: u64,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.action, self.fence)
    }
}

/// A command that was started, after its end. None of its processes is left, unless `strays` says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub how: How,
    pub stdout: Captured,
    /// Empty with [`Stderr::WithStdout`].
    pub stderr: Captured,
    pub took: Duration,
    pub strays: Strays,
}

/// What was kept of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// All of it, if nothing was left out.
    pub head: Vec<u8>,
    /// The end of it, if something was left out.
    pub tail: Vec<u8>,
    /// How much was printed in all.
    pub bytes: u64,
    /// Line ends in what was left out.
    pub line_ends_left_out: u64,
}

impl Captured {
    /// Something of which nothing was left out.
    pub fn whole(bytes: impl Into<Vec<u8>>) -> Self {
        let head = bytes.into();
        Self { bytes: head.len() as u64, head, tail: Vec::new(), line_ends_left_out: 0 }
    }

    /// Adds words of ours at the end.
    pub fn append(&mut self, bytes: &[u8]) {
        let end = if self.tail.is_empty() { &mut self.head } else { &mut self.tail };
        end.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// How many bytes between head and tail were not kept.
    pub fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// How many lines were printed in all, the last one without an end too.
    pub fn lines(&self) -> u64 {
        let last = self.tail.last().or(self.head.last());
        let unended = u64::from(last.is_some_and(|last| *last != b'\n'));
        line_ends(&self.head) + self.line_ends_left_out + line_ends(&self.tail) + unended
    }
}

pub(crate) fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Why a command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// We ended it when its time was up.
    TimedOut,
    /// We ended it when it had printed more than it may.
    Cut,
}

/// Processes that outlived the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strays {
    None,
    /// So many were found and ended.
    Ended(usize),
    /// So many could not be ended in time: stuck in the kernel, or of another user.
    Left(usize),
}

/// The program was not started: nothing of it ran.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the command is empty")]
    Empty,
    #[error("\"{program}\" was not found")]
    NotFound { program: String },
    #[error("the interpreter that \"{program}\" names in its first line was not found")]
    NoInterpreter { program: String },
    #[error("\"{program}\" is not executable")]
    NotExecutable { program: String },
    #[error("\"{program}\" has no format this system can run; name its interpreter in the command")]
    BadFormat { program: String },
    #[error("the arguments and the environment are larger than the system takes")]
    TooLarge,
    #[error("a NUL byte in {what}")]
    Nul { what: &'static str },
    #[error("cannot work in the folder {}: {source}", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    /// The walls could not be put up. It is never run without them.
    #[error("the sandbox could not be set up ({step}): {source}")]
    Sandbox { step: Step, source: io::Error },
    /// The system refused: too many processes or open files, no memory. May pass.
    #[error("cannot start a process: {0}")]
    System(#[source] io::Error),
}
