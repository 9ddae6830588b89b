//! How commands are to be confined: an operator's word, from flags and configuration. Never from a task file, a workspace
//! or a model.

use std::path::PathBuf;

/// How much confinement is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxMode {
    /// None of ours: the surroundings are trusted to confine.
    External,
    /// The strongest that works here.
    #[default]
    Best,
    /// The full one, or no run.
    Required,
}

impl SandboxMode {
    /// All, from loose to strict.
    pub const ALL: [SandboxMode; 3] = [SandboxMode::External, SandboxMode::Best, SandboxMode::Required];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxMode::External => "external",
            SandboxMode::Best => "best",
            SandboxMode::Required => "required",
        }
    }

    /// The mode that is written so.
    pub fn from_name(name: &str) -> Option<SandboxMode> {
        SandboxMode::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// `[sandbox]`: what commands are confined to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// How much is wanted.
    pub mode: SandboxMode,
    /// Absolute paths outside the workspace that commands may read, beside the usual ones.
    pub read: Vec<PathBuf>,
    /// Absolute paths outside the workspace that commands may write.
    pub write: Vec<PathBuf>,
}
