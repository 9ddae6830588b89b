//! The conversation both clients have: a task, then turns of one call with a result of about 200 bytes, then an answer.

/// Bytes of what the tool prints. With the call's arguments a turn is of 200 bytes and a little more.
const RESULT_BYTES: usize = 160;

/// The file the tool prints.
pub(crate) const FILE: &str = "reading.json";

/// The tool that reads, the one that writes, and the one that reads through a shell.
pub(crate) const READ: &str = "reading";
pub(crate) const WRITE: &str = "note_down";
pub(crate) const SHELL: &str = "shell_reading";

/// What the model says last.
pub(crate) const ANSWER: &str = "All readings are in order.";

/// The command of a tool: as cheap as a program can be, or as cheap as a shell can be. Both print the same.
pub(crate) fn command(tool: &str) -> Vec<String> {
    if tool == SHELL {
        vec!["sh".to_owned(), "-c".to_owned(), format!("echo '{}'", result().trim_end())]
    } else {
        vec!["/bin/cat".to_owned(), FILE.to_owned()]
    }
}

/// A JSON object, one line.
pub(crate) fn result() -> String {
    let start = r#"{"service":"checkout","errors":17,"requests":120000,"note":""#;
    let end = "\"}\n";
    let filler = "x".repeat(RESULT_BYTES - start.len() - end.len());
    format!("{start}{filler}{end}")
}

/// The arguments of the call of one turn, as the model writes them.
pub(crate) fn arguments(turn: u64) -> String {
    format!(r#"{{"window":"minute {turn:06}"}}"#)
}

/// The task file of a run with all budgets out of the way.
pub(crate) fn task(turns: u64) -> String {
    let limit = turns + 100;
    format!(
        r#"
goal = "Look at every reading, then say whether they are in order."
workspace = "."

[budget]
turns = {limit}
model_calls = {limit}
tool_calls = {calls}
time = "8h"

[policy]
allow = ["{WRITE}"]

[[tools]]
name = "{READ}"
description = "The reading of one minute."
command = {reads}
effect = "read"
[tools.parameters]
type = "object"
properties = {{ window = {{ type = "string" }} }}

[[tools]]
name = "{SHELL}"
description = "The reading of one minute, by a shell."
command = {shell_reads}
effect = "read"
[tools.parameters]
type = "object"
properties = {{ window = {{ type = "string" }} }}

[[tools]]
name = "{WRITE}"
description = "Notes one minute down."
command = {writes}
effect = "workspace"
[tools.parameters]
type = "object"
properties = {{ window = {{ type = "string" }} }}
"#,
        calls = 8 * limit,
        reads = words(READ),
        shell_reads = words(SHELL),
        writes = words(WRITE),
    )
}

/// A tool's command as a TOML list: JSON's escapes are TOML's too.
fn words(tool: &str) -> String {
    serde_json::json!(command(tool)).to_string()
}
