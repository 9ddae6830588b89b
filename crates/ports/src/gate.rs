//! The gate: may this call run?

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::task::EffectClass;

pub use longrein_core::ruling::Ruling;

/// One call as it would run.
#[derive(Debug, Clone)]
pub struct GateCall<'a> {
    pub tool: &'a ToolName,
    pub effect: EffectClass,
    pub args: &'a Payload,
}

/// Rules are read once, when the gate is made; a rule that cannot be read stops the run before it starts.
pub trait Gate: Send + Sync {
    fn rule(&self, call: &GateCall<'_>) -> Ruling;
}
