//! Commands with the ruling each must get, in files anyone can read: `commands/*.txt`.
//!
//! A line `## …` says why the rulings below it are what they are. A row is the rulings that are right, joined by `|`, the
//! best first, then a blank and the command, in which `⏎` is the end of a line. The files called `held_out` were written
//! before the analysis was made to fit anything, and are scored, not demanded row by row.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Containment, Policy, Surroundings, Unseen};
use longrein_ports::{Gate, GateCall, Ruling};

struct Row {
    rulings: Vec<String>,
    command: String,
    why: String,
}

fn rows(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands").join(file);
    let text = std::fs::read_to_string(path).expect("a readable table");
    let mut why = String::new();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(reason) = line.strip_prefix("## ") {
            reason.clone_into(&mut why);
            continue;
        }
        let (rulings, command) = line.split_once(' ').expect("rulings and a command");
        let rulings: Vec<String> = rulings.split('|').map(str::to_owned).collect();
        assert!(rulings.iter().all(|ruling| ["allow", "ask", "deny"].contains(&ruling.as_str())), "{line}");
        rows.push(Row { rulings, command: command.replace('⏎', "\n"), why: why.clone() });
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

fn ruling(policy: &Policy, command: &str) -> (&'static str, String) {
    let tool = ToolSpec::new(ToolName::new("shell"), ToolBody::Builtin(Builtin::Shell), EffectClass::External);
    let args = Payload::of(&serde_json::json!({ "command": command })).expect("arguments");
    match policy
        .rule(&GateCall {
            tool: &tool,
            args: &args,
            target: None,
            workspace: "/w",
            mode: Mode::Ask,
            taint: &Taint::default(),
            said: &[],
        })
        .ruling
    {
        Ruling::Allow { .. } => ("allow", String::new()),
        Ruling::Ask { reason, .. } => ("ask", reason),
        Ruling::Deny { reason, .. } => ("deny", reason),
    }
}

/// How the rows of a file are ruled.
#[derive(Default)]
struct Score {
    rows: usize,
    wrong: Vec<String>,
    allowed_wrongly: Vec<String>,
    taken: Vec<Duration>,
}

fn score(file: &str) -> Score {
    let policy = policy();
    let mut score = Score::default();
    for row in rows(file) {
        let (found, reason) = ruling(&policy, &row.command);
        // the best of a few: other programs run on this machine as well
        let taken = (0..3).map(|_| {
            let at = Instant::now();
            ruling(&policy, &row.command);
            at.elapsed()
        });
        score.taken.push(taken.min().unwrap_or_default());
        score.rows += 1;
        if !row.rulings.iter().any(|ruling| ruling == found) {
            let said = format!("{} is {found} ({reason}): {} [{}]", row.rulings.join("|"), row.command, row.why);
            if found == "allow" {
                score.allowed_wrongly.push(said.clone());
            }
            score.wrong.push(said);
        }
    }
    score.taken.sort_unstable();
    let at = |share: usize| score.taken.get((score.taken.len() - 1) * share / 100).copied().unwrap_or_default();
    eprintln!(
        "{file}: {} of {} otherwise; p50 {:?}, p99 {:?}, longest {:?}\n{}",
        score.wrong.len(),
        score.rows,
        at(50),
        at(99),
        at(100),
        score.wrong.join("\n")
    );
    score
}

#[test]
fn what_harms_is_denied_and_never_allowed() {
    let score = score("held_out_harmful.txt");
    assert_eq!(score.allowed_wrongly, Vec::<String>::new());
    assert!(score.wrong.len() * 100 <= score.rows * 3, "too many are only asked about: {}", score.wrong.len());
}

#[test]
fn what_only_reads_is_allowed() {
    let score = score("held_out_harmless.txt");
    assert!(score.wrong.len() * 100 <= score.rows * 5, "too many are asked about: {}", score.wrong.len());
}

#[test]
fn every_row_of_the_table_is_ruled_as_it_says() {
    assert_eq!(score("table.txt").wrong, Vec::<String>::new());
}
