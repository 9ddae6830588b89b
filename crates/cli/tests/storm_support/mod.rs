//! What the kill tests share: a world with a ledger that tells the truth, a model on loopback, and an operator who runs
//! the real binary.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of this")]

pub(crate) mod model;
pub(crate) mod operator;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One run's own surroundings: its task, its workspace, the world it acts on.
pub(crate) struct World {
    pub(crate) run: String,
    pub(crate) root: PathBuf,
}

/// What a task may say beside what all of them say.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) turns: u32,
    pub(crate) settle_after: &'static str,
    pub(crate) checks: &'static [&'static str],
}

impl World {
    pub(crate) fn new(parent: &Path, run: &str, terms: Terms) -> Self {
        let root = parent.join(run);
        for folder in ["task", "workspace", "ledger/paid", "ledger/hold"] {
            fs::create_dir_all(root.join(folder)).expect("a folder of our own");
        }
        let world = Self { run: run.to_owned(), root };
        fs::write(world.root.join("task/tool.sh"), include_str!("tool.sh")).expect("a file of our own");
        fs::write(world.root.join("task/task.toml"), task(terms)).expect("a file of our own");
        fs::write(world.root.join("ledger/log"), "").expect("a file of our own");
        world
    }

    pub(crate) fn task(&self) -> String {
        self.root.join("task/task.toml").to_string_lossy().into_owned()
    }

    /// Whoever comes to this place stays there: `TOOL.before`, `TOOL.after`, `model`.
    pub(crate) fn hold(&self, place: &str) {
        fs::write(self.hold_file(place), "").expect("a file of our own");
    }

    pub(crate) fn let_go(&self, place: &str) {
        fs::remove_file(self.hold_file(place)).expect("it was held");
    }

    pub(crate) fn hold_file(&self, place: &str) -> PathBuf {
        self.root.join("ledger/hold").join(place)
    }

    /// Waits until somebody stands at a held place.
    pub(crate) fn await_at(&self, place: &str) {
        let file = self.root.join("ledger").join(format!("at.{place}"));
        eventually(&format!("somebody at {place}"), || file.exists());
    }

    /// How often `tool` of `action` did what `word` says: `begun`, `did`.
    pub(crate) fn count(&self, tool: &str, action: &str, word: &str) -> usize {
        self.log().iter().filter(|line| line[0] == tool && line[2] == action && line[4].starts_with(word)).count()
    }

    /// Executions as they happened: tool, run, action, attempt, word.
    pub(crate) fn log(&self) -> Vec<[String; 5]> {
        let text = fs::read_to_string(self.root.join("ledger/log")).expect("the ledger is there");
        let mut lines = Vec::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            lines.push(words.try_into().unwrap_or_else(|_| panic!("a torn line in the ledger: {line:?}")));
        }
        lines
    }

    /// The keys the bank has booked.
    pub(crate) fn paid(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("ledger/paid")).expect("the bank is there");
        let mut keys: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        keys.sort();
        keys
    }

    /// Lines of the file that the edits write to.
    pub(crate) fn shared_file(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.join("workspace/shared.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn task(terms: Terms) -> String {
    let Terms { turns, settle_after, checks } = terms;
    let mut text = format!(
        r#"goal = "Look, edit, pay, ship, write and deploy."
model = "openai/loopback"
workspace = "../workspace"

[budget]
turns = {turns}
model_calls = 400
tool_calls = 400
tokens = 20_000_000
time = "10m"

[policy]
allow = ["edit", "pay", "ship", "email"]
ask = ["deploy"]
"#
    );
    let tool = |name: &str, effect: &str, more: &str, parameter: &str| {
        format!(
            r#"
[[tools]]
name = "{name}"
description = "The world's {name}."
command = ["sh", "tool.sh", "{name}"]
effect = "{effect}"
timeout = "60s"
settle_after = "{settle_after}"
{more}
[tools.parameters]
type = "object"
required = ["{parameter}"]
additionalProperties = false
[tools.parameters.properties]
{parameter} = {{ type = "string" }}
"#
        )
    };
    text.push_str(&tool("look", "read", "reads = [\"metrics\"]", "at"));
    text.push_str(&tool("edit", "workspace", "reads = []\nwrites = [\"shared.txt\"]", "text"));
    text.push_str(&tool("pay", "external", "key = [\"invoice\"]\nidempotent = \"24h\"", "invoice"));
    text.push_str(&tool("ship", "external", "reconcile = [\"sh\", \"tool.sh\", \"shipped\"]", "order"));
    text.push_str(&tool("email", "external", "", "to"));
    text.push_str(&tool("deploy", "external", "", "version"));
    for check in checks {
        text.push_str(&format!(
            r#"
[[acceptance]]
name = "{check}"
command = ["sh", "../task/tool.sh", "check-{check}"]
timeout = "60s"
"#
        ));
    }
    text
}

/// How long anything in these tests may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn eventually(what: &str, happened: impl Fn() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < by, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
