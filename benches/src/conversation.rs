//! The conversation both clients have: a task, then turns of one call with a result of about 200 bytes, then an answer.

/// Bytes of what the tool prints. With the call's arguments a turn is of 200 bytes and a little more.
const RESULT_BYTES: usize = 160;

/// The file the tool prints.
pub(crate) const FILE: &str = "reading.json";

/// The tool that reads, and the one that writes.
pub(crate) const READ: &str = "reading";
pub(crate) const WRITE: &str = "note_down";

/// What the model says last.
pub(crate) const ANSWER: &str = "All readings are in order.";

/// The command of the tool: as cheap as a program can be.
pub(crate) const COMMAND: [&str; 2] = ["/bin/cat", FILE];

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
command = ["{program}", "{FILE}"]
effect = "read"
[tools.parameters]
type = "object"
properties = {{ window = {{ type = "string" }} }}

[[tools]]
name = "{WRITE}"
description = "Notes one minute down."
command = ["{program}", "{FILE}"]
effect = "workspace"
[tools.parameters]
type = "object"
properties = {{ window = {{ type = "string" }} }}
"#,
        calls = 8 * limit,
        program = COMMAND[0],
    )
}
