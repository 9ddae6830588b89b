//! Tasks that cannot work are refused, and what the model is offered.

use super::*;

#[track_caller]
fn refused(tools: &[Value], expected: &str) {
    let error = toolbox(tools).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn what_cannot_work_is_named() {
    refused(&[tool("a b", &json!({}))], "no tool name");
    refused(&[tool("a", &json!({})), tool("a", &json!({}))], "two tools are called a");
    refused(&[tool("a", &json!({ "command": [] }))], "no command");
    refused(&[tool("a", &json!({ "parameters": { "type": "array" } }))], "type must be");
    refused(
        &[tool("a", &json!({ "parameters": { "properties": { "x": { "type": "strin" } } } }))],
        "no usable JSON Schema",
    );
    refused(
        &[tool("a", &json!({ "parameters": { "$ref": "https://example.com/schema.json" } }))],
        "no usable JSON Schema",
    );
    refused(
        &[tool("a", &json!({ "parameters": { "properties": { "x": { "$ref": "file:///etc/passwd" } } } }))],
        "no usable",
    );
    refused(&[tool("a", &json!({ "parameters": "x" }))], "it is no object");
    refused(&[tool("read_it", &json!({})), tool("b", &json!({ "depends_on": ["read_if"] }))], "near: read_it");
    refused(
        &[tool("a", &json!({ "parameters": { "properties": { "x": { "type": "string", "evidence": "zzz" } } } }))],
        "evidence of tool a names zzz",
    );
    refused(&[tool("a", &json!({ "depends_on": ["a"] }))], "a → a");
    refused(
        &[
            tool("a", &json!({ "depends_on": ["b"] })),
            tool("b", &json!({ "depends_on": ["c"] })),
            tool("c", &json!({ "depends_on": ["b"] })),
        ],
        "b → c → b",
    );
    refused(&[tool("a", &json!({ "key": { "args": ["order"], "scope": "run" } }))], "key of tool a names order");
    refused(&[tool("a", &json!({ "env": ["${secret:MISSING}"] }))], "export MISSING first");
    refused(&[tool("a", &json!({ "env": ["A=${secret:MISSING}"] }))], "export MISSING first");
    for entry in ["${secret:TOKEN", "A B", "${TOKEN}", "=x", "${secret:TOKEN}x", "1A"] {
        refused(&[tool("a", &json!({ "env": [entry] }))], "write NAME");
    }
    refused(
        &[tool("a", &json!({ "parameters": { "properties": { "n": { "type": "integer", "default": "x" } } } }))],
        "the default of /n",
    );
}

#[test]
fn offered_without_our_own_keyword() {
    let toolbox = toolbox(&[
        tool("read_metrics", &json!({})),
        tool(
            "error_rate",
            &json!({ "parameters": { "type": "object", "required": ["source_id"], "properties": {
                "source_id": { "type": "string", "evidence": "read_metrics" },
                "other": { "type": "string", "evidence": "read_metrics", "description": "The other one." },
            } } }),
        ),
    ])
    .unwrap();
    let definitions = toolbox.definitions();
    assert_eq!(definitions.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["read_metrics", "error_rate"]);
    assert_eq!(definitions[0].parameters.as_str(), r#"{"type":"object","properties":{}}"#);
    let parameters: Value = definitions[1].parameters.read().unwrap();
    assert_eq!(
        parameters["properties"],
        json!({
            "source_id": { "type": "string", "description": "an evidence id such as e1, from read_metrics" },
            "other": { "type": "string", "description": "The other one. (an evidence id such as e1, from read_metrics)" },
        })
    );
}

#[test]
fn changed_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tool.sh", "echo 1");
    write("ask.sh", "echo 2");
    write("check.sh", "true");
    let mut task = task_in(
        folder.path(),
        &[tool(
            "a",
            &json!({ "command": ["sh", "./tool.sh", "-x", "../outside", "missing"], "reconcile": ["sh", "ask.sh"] }),
        )],
    );
    task.acceptance =
        serde_json::from_value(json!([{ "name": "c", "command": ["sh", "check.sh"], "timeout_ms": 1000 }])).unwrap();
    let pins = crate::pins(&task, &|_, _, _| Vec::new());
    assert_eq!(pins.len(), 3);
    assert_eq!(pins[folder.path().join("tool.sh").to_str().unwrap()], digest("echo 1"));
    task.pins = pins;
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    let name = ToolName::new("a");
    let changed = || longrein_ports::Tools::changed(&toolbox, &name);
    assert_eq!(changed(), None);
    write("tool.sh", "echo 3");
    assert!(changed().unwrap().file.ends_with("/tool.sh"));
    write("tool.sh", "echo 1");
    assert_eq!(changed(), None);
    std::fs::remove_file(folder.path().join("ask.sh")).unwrap();
    assert!(changed().unwrap().file.ends_with("/ask.sh"));
    write("check.sh", "false");
    let check = longrein_core::ids::CheckName::new("c");
    assert!(toolbox.check_changed(&check).unwrap().file.ends_with("/check.sh"));
}
