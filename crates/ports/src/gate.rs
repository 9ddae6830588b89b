//! The gate: may this call run?

use longrein_core::payload::Payload;
use longrein_core::target::Target;
use longrein_core::task::ToolSpec;

pub use longrein_core::ruling::Ruling;

/// One call as it would run.
#[derive(Debug, Clone)]
pub struct GateCall<'a> {
    pub tool: &'a ToolSpec,
    /// Canonical.
    pub args: &'a Payload,
    /// What it is about, if that is one file or folder.
    pub target: Option<&'a Target>,
    /// Absolute path of the folder the run works in.
    pub workspace: &'a str,
}

/// Rules are read once, when the gate is made; a rule that cannot be read stops the run before it starts.
pub trait Gate: Send + Sync {
    fn rule(&self, call: &GateCall<'_>) -> Ruling;
}
