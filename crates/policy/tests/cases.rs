//! A corpus of calls with the ruling each must get, read where it lies: `LONGREIN_CASES`, or a folder `shared/cases` near
//! the sources. Without it this says so and passes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Policy, Surroundings, World};
use longrein_ports::{Gate, GateCall, Ruling};
use serde_json::Value;

fn cases() -> Option<Vec<Value>> {
    let beside = ["../../../shared/cases", "../../../../shared/cases"];
    let beside = beside.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let named = std::env::var_os("LONGREIN_CASES").map(PathBuf::from);
    let file = named.into_iter().chain(beside).map(|cases| cases.join("gate.jsonl")).find(|file| file.is_file());
    let Some(file) = file else {
        eprintln!("skipped: no corpus of calls (set LONGREIN_CASES to read it)");
        return None;
    };
    let text = std::fs::read_to_string(file).expect("a readable corpus");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect())
}

struct Links(BTreeMap<String, String>);

impl World for Links {
    fn link(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }

    fn names(&self, _folder: &str) -> Option<Vec<String>> {
        None
    }
}

fn ruling(case: &Value) -> &'static str {
    let links = serde_json::from_value(case["context"]["symlinks"].clone()).unwrap_or_default();
    let surroundings = Surroundings {
        home: Some("/home/user".to_owned()),
        longrein_home: Some("/home/user/.local/share/longrein".to_owned()),
        own: vec!["/home/user/.local/share/longrein".to_owned()],
        binary: None,
        world: Arc::new(Links(links)),
    };
    let policy = Policy::read(&PolicyRules::default(), std::iter::empty(), surroundings).expect("no rules");
    let name = case["tool"].as_str().expect("a tool");
    let body = match Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name) {
        Some(builtin) => ToolBody::Builtin(builtin),
        None => ToolBody::Command(Vec::new()),
    };
    let tool = ToolSpec::new(ToolName::new(name), body, EffectClass::External);
    let args = Payload::of(&case["args"]).expect("arguments");
    let workspace = case["workspace"].as_str().expect("a workspace");
    match policy
        .rule(&GateCall {
            tool: &tool,
            args: &args,
            target: None,
            workspace,
            mode: Mode::Ask,
            taint: &Taint::default(),
            said: &[],
        })
        .ruling
    {
        Ruling::Allow { .. } => "allow",
        Ruling::Ask { .. } => "ask",
        Ruling::Deny { .. } => "deny",
    }
}

#[test]
fn nothing_is_allowed_that_must_be_asked_or_denied() {
    let Some(cases) = cases() else { return };
    let mut table: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut false_allows = Vec::new();
    let mut misses = Vec::new();
    let mut softer = Vec::new();
    for case in &cases {
        let expected = case["expect"].as_str().expect("an expectation").to_owned();
        let accepted: Vec<&str> = case["accept"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found = ruling(case);
        let fits = found == expected || accepted.contains(&found);
        if found == "allow" && !fits {
            false_allows.push(case["id"].clone());
        } else if !fits {
            misses.push(format!("{} {} -> {found}: {}", case["id"], expected, case["args"]));
        }
        if expected == "deny" && found == "ask" {
            softer.push(format!("{} {}", case["id"], case["args"]));
        }
        *table.entry((expected, found)).or_default() += 1;
    }
    eprintln!("asked where denying is best, {}:\n{}", softer.len(), softer.join("\n"));
    eprintln!("expected, found: calls {table:?}\nneither expected nor accepted:\n{}", misses.join("\n"));
    assert_eq!(false_allows, Vec::<Value>::new());
    // what the gate knows of shell and files; the network, MCP and other modes come later
    let due = |case: &&Value| {
        case["expect"] == "allow" && case["mode"] == "ask" && (case["tool"] == "shell" || case["tool"] == "read_file")
    };
    let harmless: Vec<&Value> = cases.iter().filter(due).collect();
    let asked: Vec<&Value> = harmless.iter().filter(|case| ruling(case) != "allow").map(|case| &case["id"]).collect();
    assert!(asked.len() * 10 <= harmless.len(), "too many harmless calls are asked about: {asked:?}");
}
