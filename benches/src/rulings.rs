//! What a ruling takes: over the tables of the policy's tests, a corpus of calls where one is named (`LONGREIN_CASES`), and
//! commands that grow.
//!
//! Each call goes the way of `longrein policy check`: a line of JSON in, a line of JSON out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use longrein::core::task::PolicyRules;
use longrein::policycheck::PolicyCheck;
use serde_json::{Value, json};

/// Times each call is ruled on. The middle one counts: others run on this machine as well.
const REPEAT: usize = 5;
/// What commands are made of that grow, and what stands between the pieces.
const UNITS: [(&str, &str); 12] = [
    ("one command of many words", "src/a.rs "),
    ("many commands", "cat src/a.rs; "),
    ("a pipeline", "cat src/a.rs | "),
    ("braces", "{a,b}"),
    ("substitutions side by side", "$(ls) "),
    ("substitutions in each other", "$("),
    ("groups in each other", "{ "),
    ("quotes", "'a' "),
    ("variables", "${x:-y} "),
    ("backticks", "`ls` "),
    ("wrappers", "command "),
    ("options", "-o a "),
];
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

pub(crate) fn print() -> anyhow::Result<()> {
    let environment = BTreeMap::from([("HOME".to_owned(), "/home/user".to_owned())]);
    let check = PolicyCheck::new(PolicyRules::default(), Vec::new(), "/w".to_owned(), environment)
        .map_err(|bad| anyhow::anyhow!("{bad}"))?;
    let mut all = Vec::new();
    for (name, lines) in sources()? {
        let mut taken: Vec<(Duration, &String)> =
            lines.iter().map(|line| Ok((ruled(&check, line)?, line))).collect::<anyhow::Result<_>>()?;
        taken.sort_unstable();
        show(&name, &taken);
        all.extend(taken.iter().map(|(time, line)| (*time, (*line).clone())));
    }
    all.sort_unstable();
    let all: Vec<(Duration, &String)> = all.iter().map(|(time, line)| (*time, line)).collect();
    show("all", &all);
    println!("\n| grows | {} |", SIZES.map(|size| format!("{} kB", size / 1_000)).join(" | "));
    println!("|---|{}", "---|".repeat(SIZES.len()));
    for (name, unit) in UNITS {
        let mut row = Vec::new();
        for size in SIZES {
            let command = format!("cat {}", unit.repeat(size / unit.len()));
            row.push(format!("{:.1?}", ruled(&check, &line_of(&command))?));
        }
        println!("| {name} | {} |", row.join(" | "));
    }
    Ok(())
}

fn show(name: &str, taken: &[(Duration, &String)]) {
    let at = |share: usize| taken.get((taken.len().saturating_sub(1)) * share / 100).map(|(time, _)| *time);
    let [half, most, longest] = [50, 99, 100].map(|share| at(share).unwrap_or_default());
    println!("{name}: {} calls, p50 {half:.1?}, p99 {most:.1?}, longest {longest:.1?}", taken.len());
    if let Some((_, line)) = taken.last() {
        println!("    longest: {}", line.chars().take(120).collect::<String>());
    }
}

/// How long a ruling takes, the middle of several.
fn ruled(check: &PolicyCheck, line: &str) -> anyhow::Result<Duration> {
    let mut taken = Vec::new();
    for _ in 0..REPEAT {
        let at = Instant::now();
        let ruled = check.line(line.as_bytes());
        taken.push(at.elapsed());
        ensure!(ruled.is_ok(), "no ruling on {line}");
    }
    taken.sort_unstable();
    taken.get(REPEAT / 2).copied().context("it was ruled on")
}

fn line_of(command: &str) -> String {
    json!({ "id": "x", "tool": "shell", "args": { "command": command }, "workspace": "/w" }).to_string()
}

/// The tables beside the policy, and the corpus that is named.
fn sources() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/policy/tests");
    let mut sources = Vec::new();
    for folder in ["commands", "modes"] {
        for entry in std::fs::read_dir(tests.join(folder)).with_context(|| format!("the folder {folder}"))? {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)?;
            let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '@']));
            let lines = rows.map(|row| {
                let command = match folder {
                    "modes" => row.split_once(" ¦ ").map_or(row, |(_, command)| command),
                    _ => row.split_once(' ').map_or(row, |(_, command)| command),
                };
                line_of(&command.replace('⏎', "\n"))
            });
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            sources.push((format!("{folder}/{name}"), lines.collect()));
        }
    }
    if let Some(corpus) = std::env::var_os("LONGREIN_CASES").map(|folder| PathBuf::from(folder).join("gate.jsonl")) {
        let text = std::fs::read_to_string(&corpus).with_context(|| corpus.display().to_string())?;
        let lines: Vec<String> = text
            .lines()
            .filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|call| call["tool"].is_string()))
            .map(str::to_owned)
            .collect();
        sources.push(("corpus".to_owned(), lines));
    }
    Ok(sources)
}
