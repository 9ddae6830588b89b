//! The toolbox at its boundary: a task in, definitions, errors and outcomes out.

mod attempts;
mod calls;
mod files;
mod memory;
mod shell;
mod tasks;
mod walls;
mod web;

use std::collections::BTreeMap;
use std::path::Path;

use longrein_core::action::Attempt;
use longrein_core::ids::{ActionId, Digest, Fence, RunId, ToolName};
use longrein_core::payload::{Content, Payload};
use longrein_core::task::Task;
use serde_json::{Value, json};

use crate::{Secrets, Toolbox, ToolsError};

fn payload(value: &Value) -> Payload {
    Payload::of(value).unwrap()
}

fn merge(base: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
}

/// A tool with everything at its default, but for what `more` says.
fn tool(name: &str, more: &Value) -> Value {
    let mut tool = json!({
        "name": name,
        "description": "does something",
        "parameters": {},
        "command": ["true"],
        "effect": "read",
        "timeout_ms": 20_000,
        "overlap": "parallel",
        "holds": "until_write",
        "settle_after_ms": 2000,
        "on_unknown": "wait",
    });
    merge(&mut tool, more);
    tool
}

/// A task with these tools, that lives in `folder`.
fn task_in(folder: &Path, tools: &[Value]) -> Task {
    let task = json!({
        "goal": "test",
        "program": "react",
        "model": { "name": "script/none", "max_output": 1000 },
        "workspace": folder,
        "folder": folder,
        "principal": { "user": "ops" },
        "limits": serde_json::to_value(longrein_core::budget::Limits::default()).unwrap(),
        "tools": tools,
    });
    // by way of text, because payloads are raw
    serde_json::from_str(&task.to_string()).unwrap()
}

fn task(tools: &[Value]) -> Task {
    task_in(&std::env::temp_dir(), tools)
}

fn operator() -> BTreeMap<String, String> {
    let pairs = [
        ("PATH", std::env::var("PATH").unwrap()),
        ("HOME", "/home/ops".to_owned()),
        ("TOKEN", "hunter2hunter2".to_owned()),
        ("REGION", "north".to_owned()),
        ("UNRELATED", "not for tools".to_owned()),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn toolbox(tools: &[Value]) -> Result<Toolbox, ToolsError> {
    Toolbox::new(&task(tools), &operator(), Secrets::new())
}

fn attempt(tool: &str, args: &Value) -> Attempt {
    Attempt {
        target: None,
        beyond: Vec::new(),
        run: RunId::new(format!("tools-test-{}", std::process::id())),
        action: ActionId(7),
        tool: ToolName::new(tool),
        args: payload(args),
        number: 1,
        fence: Fence(3),
        idempotency_key: None,
        undoes: None,
    }
}

fn inline(content: &Content) -> Value {
    match content {
        Content::Inline(payload) => payload.read().unwrap(),
        Content::Blob(blob) => panic!("in the blob store: {blob:?}"),
    }
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}
