//! What can be wrong with a task, and whose business it is.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why there is no task. Every message names the place and the way out.
#[derive(Debug, thiserror::Error)]
pub enum TaskFileError {
    /// A file cannot be read. Status 65.
    #[error("{place}: cannot read {}: {source}", file.display())]
    Unreadable {
        /// Where it is named.
        place: Place,
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The task is wrong. Status 65.
    #[error("{place}: {problem}")]
    Task {
        /// Where it is wrong.
        place: Place,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The flags are wrong. Status 64.
    #[error("{place}: {problem}")]
    Usage {
        /// The flag.
        place: Place,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Something that configuration should say is missing or wrong. Status 78.
    #[error("{problem}")]
    Configuration {
        /// What is missing, and where to write it.
        problem: String,
    },
}

impl TaskFileError {
    /// The files it speaks of.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            TaskFileError::Unreadable { place, file, source: _ } => place.file().into_iter().chain([&**file]).collect(),
            TaskFileError::Task { place, problem: _ } | TaskFileError::Usage { place, problem: _ } => {
                place.file().into_iter().collect()
            }
            TaskFileError::Configuration { problem: _ } => Vec::new(),
        }
    }
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file as a whole.
    File(PathBuf),
    /// A line that is no TOML.
    Line {
        /// The task file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A key: `budget.turns`, `tools[1].timeout`.
    Key {
        /// The task file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The way to it.
        key: String,
    },
    /// A flag of the command line.
    Flag(String),
}

impl Place {
    fn file(&self) -> Option<&Path> {
        match self {
            Place::File(file) | Place::Line { file, .. } | Place::Key { file, .. } => Some(file),
            Place::Flag(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(file) => write!(f, "{}", file.display()),
            Place::Line { file, line } => write!(f, "{}, line {line}", file.display()),
            Place::Key { file, line, key } => write!(f, "{}, line {line}, {key}", file.display()),
            Place::Flag(flag) => f.write_str(flag),
        }
    }
}
