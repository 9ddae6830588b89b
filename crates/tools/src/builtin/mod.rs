//! Built-in tools: what Longrein carries out itself. One file a tool; here is what each is declared as.

mod ask;

use longrein_core::task::{Builtin, ToolSpec};

/// A built-in tool as a task declares it. None: it comes with a later part.
pub fn builtin(tool: Builtin) -> Option<ToolSpec> {
    match tool {
        Builtin::ReadFile
        | Builtin::WriteFile
        | Builtin::EditFile
        | Builtin::ListFiles
        | Builtin::SearchFiles
        | Builtin::Shell => None,
        Builtin::Ask => Some(ask::spec()),
    }
}
