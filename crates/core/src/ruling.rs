//! Rulings: what the gate says of one call.

use serde::{Deserialize, Serialize};

/// Allow, ask or deny, with the rule that said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Allow { rule: String },
    Ask { rule: String, reason: String },
    Deny { rule: String, reason: String },
}
