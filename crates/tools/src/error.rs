//! Why a task's tools cannot be used. All of these are the task author's to mend, before anything runs.

use longrein_core::ids::ToolName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    #[error("\"{name}\" is no tool name: 1 to 64 of A-Z a-z 0-9 _ -")]
    Name { name: ToolName },
    #[error("two tools are called {tool}")]
    Duplicate { tool: ToolName },
    #[error("tool {tool} has no command")]
    NoCommand { tool: ToolName },
    #[error("tool {tool} is a function of the program that started the run; go on from there, or give it to this one")]
    NoFunction { tool: ToolName },
    #[error(
        "tool {tool} is a function of version \"{theirs}\", and this program has version \"{ours}\"; a run goes on with \
         the functions it was started with"
    )]
    OtherVersion { tool: ToolName, theirs: String, ours: String },
    #[error("the parameters of tool {tool} are no usable JSON Schema: {problem}")]
    Parameters { tool: ToolName, problem: String },
    #[error("the default of {field} in tool {tool} breaks its own schema: {problem}")]
    Default { tool: ToolName, field: String, problem: String },
    /// `key` is the key of the task file that names it.
    #[error("{key} of tool {tool} names {named}, which is no tool of this task{}", suggestion(.near))]
    UnknownTool { tool: ToolName, key: &'static str, named: String, near: Vec<String> },
    #[error("these tools depend on each other in a circle: {}", join(.tools))]
    Cycle { tools: Vec<ToolName> },
    #[error("key of tool {tool} names {argument}, which is no property of its parameters")]
    KeyArgument { tool: ToolName, argument: String },
    #[error("tool {tool} needs the secret {name}, which is not set in the environment: export {name} first")]
    MissingSecret { tool: ToolName, name: String },
    #[error("network of tool {tool}: {problem}")]
    Network { tool: ToolName, problem: String },
    #[error("the hook `{hook}` needs the secret {name}, which is not set in the environment: export {name} first")]
    HookSecret { hook: String, name: String },
    #[error("env of the hook `{hook}` has \"{entry}\"; write NAME, NAME=value or ${{secret:NAME}}")]
    HookEnvironment { hook: String, entry: String },
    #[error("env of tool {tool} has \"{entry}\"; write NAME, NAME=value or ${{secret:NAME}}")]
    Environment { tool: ToolName, entry: String },
}

fn suggestion(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; near: {}", names.join(", ")) }
}

fn join(tools: &[ToolName]) -> String {
    tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(" → ")
}
