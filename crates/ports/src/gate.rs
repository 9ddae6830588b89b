//! The gate: may this call run?

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::task::EffectClass;
use serde::{Deserialize, Serialize};

/// One call as it would run.
#[derive(Debug, Clone)]
pub struct GateCall<'a> {
    pub tool: &'a ToolName,
    pub effect: EffectClass,
    pub args: &'a Payload,
}

/// Allow, ask or deny, with the rule that said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Allow { rule: String },
    Ask { rule: String, reason: String },
    Deny { rule: String, reason: String },
}

/// Rules are read once, when the gate is made; a rule that cannot be read stops the run before it starts.
pub trait Gate: Send + Sync {
    fn rule(&self, call: &GateCall<'_>) -> Ruling;
}
