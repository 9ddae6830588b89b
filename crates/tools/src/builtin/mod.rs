//! Built-in tools: what Longrein carries out itself. One file a tool; here is what each is declared as.

mod ask;
pub(crate) mod shell;

use longrein_core::outcome::ToolError;
use longrein_core::task::{Builtin, ToolSpec};
use serde_json::Value;

/// A built-in tool as a task declares it. None: it comes with a later part.
pub fn builtin(tool: Builtin) -> Option<ToolSpec> {
    match tool {
        Builtin::Shell => Some(shell::spec()),
        Builtin::ReadFile | Builtin::WriteFile | Builtin::EditFile | Builtin::ListFiles | Builtin::SearchFiles => None,
        Builtin::Ask => Some(ask::spec()),
    }
}

/// What a schema cannot say of the arguments of a call.
pub(crate) fn check(tool: Builtin, args: &Value) -> Result<(), ToolError> {
    match tool {
        Builtin::Shell => shell::check(args),
        Builtin::ReadFile
        | Builtin::WriteFile
        | Builtin::EditFile
        | Builtin::ListFiles
        | Builtin::SearchFiles
        | Builtin::Ask => Ok(()),
    }
}
