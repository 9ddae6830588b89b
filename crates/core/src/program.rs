//! The program: the loop's shape as data.

use serde::{Deserialize, Serialize};

/// Which loop a run follows. "What next" is a function of this value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Reason and act: call the model, perform its calls, until a reply has none; that reply is the answer.
    React,
}
