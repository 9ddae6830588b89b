//! A corpus of calls with the ruling each must get, read where it lies: `LONGREIN_CASES`, or a folder `shared/cases` near
//! the sources. Without it this says so and passes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Containment, Policy, Surroundings, World};
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

/// The world a case is about.
struct Stub(Value);

impl World for Stub {
    fn link(&self, path: &str) -> Option<String> {
        Some(self.0["symlinks"].get(path)?.as_str()?.to_owned())
    }

    fn names(&self, _folder: &str) -> Option<Vec<String>> {
        None
    }

    fn addresses(&self, host: &str) -> Option<Vec<Vec<IpAddr>>> {
        serde_json::from_value(self.0["dns"].get(host)?.clone()).ok()
    }

    fn redirect(&self, url: &str) -> Option<String> {
        Some(self.0["http"].get(url)?["location"].as_str()?.to_owned())
    }
}

fn ruling(case: &Value) -> &'static str {
    let mode = serde_json::from_value(case["mode"].clone()).expect("a mode");
    ruled(case, mode, &PolicyRules::default(), Containment::Writes)
}

fn ruled(case: &Value, mode: Mode, rules: &PolicyRules, fence: Containment) -> &'static str {
    let surroundings = Surroundings {
        home: Some("/home/user".to_owned()),
        longrein_home: Some("/home/user/.local/share/longrein".to_owned()),
        own: vec!["/home/user/.local/share/longrein".to_owned()],
        binary: None,
        git_config: None,
        world: Arc::new(Stub(case["context"].clone())),
        fence: Arc::new(fence),
        ledger: Arc::new(longrein_ports::NoOrigins),
    };
    let policy = Policy::read(rules, std::iter::empty(), surroundings).expect("rules that can be read");
    let name = case["tool"].as_str().expect("a tool");
    let body = match Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name) {
        Some(builtin) => ToolBody::Builtin(builtin),
        None => ToolBody::Command(Vec::new()),
    };
    let tool = ToolSpec::new(ToolName::new(name), body, EffectClass::External);
    let args = Payload::of(&case["args"]).expect("arguments");
    let workspace = case["workspace"].as_str().expect("a workspace");
    let call =
        GateCall { tool: &tool, args: &args, target: None, workspace, mode, taint: &Taint::default(), said: &[] };
    let judged = if name == "mcp" { policy.judge_mcp(&call) } else { policy.rule(&call) };
    match judged.ruling {
        Ruling::Allow { .. } => "allow",
        Ruling::Ask { .. } => "ask",
        Ruling::Deny { .. } => "deny",
    }
}

/// What a mode may do: lift questions of ours, never a denial, and never in `plan`.
#[test]
fn law_8_no_mode_and_no_rule_lifts_what_is_denied() {
    let Some(cases) = cases() else { return };
    let everything = ["*", "shell", "web_fetch", "write_file", "edit_file", "read_file"].map(str::to_owned).to_vec();
    let everything = PolicyRules { allow: everything, ..PolicyRules::default() };
    let mut lifted = Vec::new();
    for case in &cases {
        let in_ask = ruled(case, Mode::Ask, &PolicyRules::default(), Containment::Writes);
        for mode in Mode::ALL {
            let found = ruled(case, mode, &PolicyRules::default(), Containment::Writes);
            let with_rules = ruled(case, mode, &everything, Containment::Writes);
            let bare = ruled(case, mode, &PolicyRules::default(), Containment::Nothing);
            let stays = in_ask != "deny" || [found, with_rules, bare] == ["deny"; 3];
            let plan = mode != Mode::Plan || in_ask == "allow" || found != "allow";
            let shadow = mode != Mode::Shadow || found == in_ask;
            // without a sandbox a mode allows nothing, and commands are not allowed by themselves either
            let ceiling = !(bare == "allow" && (in_ask != "allow" || case["tool"] == "shell"));
            if !(stays && plan && shadow && ceiling) {
                lifted.push(format!("{} {mode:?}: {in_ask}, then {found}, {with_rules}, {bare}", case["id"]));
            }
        }
    }
    assert_eq!(lifted, Vec::<String>::new());
}

#[test]
fn nothing_is_allowed_that_must_be_asked_or_denied() {
    let Some(cases) = cases() else { return };
    let mut table: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut false_allows = Vec::new();
    let mut misses = Vec::new();
    let mut softer = Vec::new();
    let mut times = Vec::new();
    for case in &cases {
        let expected = case["expect"].as_str().expect("an expectation").to_owned();
        let accepted: Vec<&str> = case["accept"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let begun = Instant::now();
        let found = ruling(case);
        times.push(begun.elapsed());
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
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    eprintln!("a ruling, policy read anew: p50 {:?}, p99 {:?}, longest {:?}", at(50), at(99), times.last());
    assert_eq!(false_allows, Vec::<Value>::new());
    // all of what is neither a command nor a path as commands have them
    let mine = |id: &str| {
        ["fetch_", "ssrf_", "mcp_", "mode_", "tool_", "shell_args", "read_tool"].iter().any(|kind| id.starts_with(kind))
    };
    let strict: Vec<&String> = misses.iter().filter(|miss| mine(miss.trim_start_matches('"'))).collect();
    assert_eq!(strict, Vec::<&String>::new());
    let due = |case: &&Value| {
        case["expect"] == "allow" && case["mode"] == "ask" && (case["tool"] == "shell" || case["tool"] == "read_file")
    };
    let harmless: Vec<&Value> = cases.iter().filter(due).collect();
    let asked: Vec<&Value> = harmless.iter().filter(|case| ruling(case) != "allow").map(|case| &case["id"]).collect();
    assert!(asked.len() * 10 <= harmless.len(), "too many harmless calls are asked about: {asked:?}");
}
