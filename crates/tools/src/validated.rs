//! Calls of declared commands that were found valid.
//!
//! Each call is looked at when it is proposed, when it is started and when its evidence is handed over. What its arguments
//! are worth follows from the tool and the text alone, so it is worked out once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use longrein_core::ids::ToolName;
use longrein_ports::ValidArgs;

/// As many as a reply may bring.
const KEPT_MAX: usize = 64;
/// Longer arguments are rare, and would be kept for nothing.
const TEXT_MAX_BYTES: usize = 16 << 10;

/// By tool and text. What was refused is not kept.
#[derive(Debug, Default)]
pub(crate) struct Validated(Mutex<BTreeMap<(ToolName, String), ValidArgs>>);

impl Validated {
    pub(crate) fn of(&self, tool: &ToolName, arguments: &str) -> Option<ValidArgs> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&(tool.clone(), arguments.to_owned())).cloned()
    }

    pub(crate) fn keep(&self, tool: &ToolName, arguments: &str, valid: &ValidArgs) {
        if arguments.len() > TEXT_MAX_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert((tool.clone(), arguments.to_owned()), valid.clone());
    }
}
