//! Built-in tools: what Longrein carries out itself. One file a tool; here is what each is declared as.

use longrein_core::ids::ToolName;
use longrein_core::outcome::ToolError;
use longrein_core::payload::Payload;
use longrein_core::task::{Builtin, EffectClass, Overlap, ToolBody, ToolSpec};
use serde_json::Value;

mod ask;
mod change;
mod edit_file;
pub(crate) mod files;
mod list_files;
pub(crate) mod note;
mod read_file;
pub(crate) mod recall;
mod search_files;
pub(crate) mod shell;
mod told;
pub(crate) mod web_fetch;
mod write_file;

/// A built-in tool as a task declares it.
pub fn builtin(tool: Builtin) -> ToolSpec {
    match tool {
        Builtin::ReadFile => read_file::spec(),
        Builtin::WriteFile => write_file::spec(),
        Builtin::EditFile => edit_file::spec(),
        Builtin::ListFiles => list_files::spec(),
        Builtin::SearchFiles => search_files::spec(),
        Builtin::Shell => shell::spec(),
        Builtin::Ask => ask::spec(),
        Builtin::Recall => recall::spec(),
        Builtin::Note => note::spec(),
        Builtin::WebFetch => web_fetch::spec(),
    }
}

/// A tool whose calls may run beside each other, as far as their holds allow.
fn spec(tool: Builtin, effect: EffectClass, description: &str, parameters: &Value) -> ToolSpec {
    ToolSpec {
        description: description.to_owned(),
        parameters: Payload::of(parameters).expect("a schema has only string keys"),
        overlap: Overlap::Parallel,
        ..ToolSpec::new(ToolName::new(tool.as_str()), ToolBody::Builtin(tool), effect)
    }
}

/// What a schema cannot say of the arguments of a call.
pub(crate) fn check(tool: Builtin, args: &Value) -> Result<(), ToolError> {
    match tool {
        Builtin::Shell => shell::check(args),
        Builtin::Recall => recall::check(args),
        Builtin::Note => note::check(args),
        Builtin::ReadFile
        | Builtin::WriteFile
        | Builtin::EditFile
        | Builtin::ListFiles
        | Builtin::SearchFiles
        | Builtin::Ask => Ok(()),
        Builtin::WebFetch => web_fetch::check(args),
    }
}
