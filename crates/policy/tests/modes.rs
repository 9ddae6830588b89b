//! What each mode makes of commands that agents and attackers write: `modes/*.txt`.
//!
//! A line `## …` says what its rows have in common, a line `@ …` the rulings that are right in `plan`, `ask`, `accept-edits`
//! and `auto`, alternatives joined by `|`; each other line is a command, in which `⏎` is the end of a line and `⟨202e⟩` the
//! letter of that number. Rows where another ruling is right than for the rest of their section say so themselves:
//! `deny ask ask allow ¦ command`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Containment, Policy, Surroundings, Unseen};
use longrein_ports::{Gate, GateCall, Ruling};

const MODES: [Mode; 4] = [Mode::Plan, Mode::Ask, Mode::AcceptEdits, Mode::Auto];

struct Row {
    /// For each mode, what is right.
    right: Vec<Vec<String>>,
    command: String,
    why: String,
}

fn rulings(text: &str) -> Vec<Vec<String>> {
    let right: Vec<Vec<String>> =
        text.split_whitespace().map(|one| one.split('|').map(str::to_owned).collect()).collect();
    assert_eq!(right.len(), MODES.len(), "{text}");
    assert!(right.iter().flatten().all(|ruling| ["allow", "ask", "deny"].contains(&ruling.as_str())), "{text}");
    right
}

fn letters(text: &str) -> String {
    let mut parts = text.split('⟨');
    let mut command = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('⟩').expect("a letter's number");
        let number = u32::from_str_radix(number, 16).expect("a number");
        command.push(char::from_u32(number).expect("a letter"));
        command.push_str(rest);
    }
    command.replace('⏎', "\n")
}

fn rows(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modes").join(file);
    let text = std::fs::read_to_string(path).expect("a readable table");
    let (mut why, mut right) = (String::new(), Vec::new());
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(reason) = line.strip_prefix("## ") {
            reason.clone_into(&mut why);
        } else if let Some(section) = line.strip_prefix("@ ") {
            right = rulings(section);
        } else {
            let (right, command) = match line.split_once(" ¦ ") {
                Some((own, command)) => (rulings(own), command),
                None => (right.clone(), line),
            };
            rows.push(Row { right, command: letters(command), why: why.clone() });
        }
    }
    rows
}

fn policy() -> Policy {
    let surroundings = Surroundings {
        home: Some("/home/user".to_owned()),
        longrein_home: Some("/home/user/.local/share/longrein".to_owned()),
        own: vec!["/home/user/.local/share/longrein".to_owned()],
        binary: None,
        fence: Arc::new(Containment::Writes),
        ledger: Arc::new(longrein_ports::NoOrigins),
        git_config: None,
        world: Arc::new(Unseen),
    };
    Policy::read(&PolicyRules::default(), std::iter::empty(), surroundings).expect("no rules")
}

fn ruling(policy: &Policy, mode: Mode, command: &str) -> (&'static str, String) {
    let tool = ToolSpec::new(ToolName::new("shell"), ToolBody::Builtin(Builtin::Shell), EffectClass::External);
    let args = Payload::of(&serde_json::json!({ "command": command })).expect("arguments");
    let taint = Taint::default();
    let call = GateCall { tool: &tool, args: &args, target: None, workspace: "/w", mode, taint: &taint, said: &[] };
    match policy.rule(&call).ruling {
        Ruling::Allow { .. } => ("allow", String::new()),
        Ruling::Ask { reason, .. } => ("ask", reason),
        Ruling::Deny { reason, .. } => ("deny", reason),
    }
}

/// Every row in every mode; what is ruled otherwise, in words. A command that is wrong in several modes is named once.
fn wrong(file: &str) -> Vec<String> {
    let policy = policy();
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let rows = rows(file);
    assert!(rows.len() >= 300, "{file} has {} rows", rows.len());
    for row in &rows {
        for (mode, right) in MODES.into_iter().zip(&row.right) {
            let (found, reason) = ruling(&policy, mode, &row.command);
            if !right.iter().any(|ruling| ruling == found) {
                let said = format!("{mode:?}: {}, found {found} ({reason}) [{}]", right.join("|"), row.why);
                let entry = wrong.entry(row.command.clone()).or_default();
                entry.push_str(&format!("\n    {said}"));
            }
        }
    }
    eprintln!("{file}: {} of {} commands are ruled otherwise", wrong.len(), rows.len());
    wrong.into_iter().map(|(command, said)| format!("{command}{said}")).collect()
}

#[test]
fn what_harms_is_ruled_as_it_should_be_in_every_mode() {
    let wrong = wrong("harmful.txt");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_harmless_is_ruled_as_it_should_be_in_every_mode() {
    let wrong = wrong("harmless.txt");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
