//! Task files as text, and what becomes of them: one line that says what a reader would want to know.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its folder should stop there")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longrein::taskfile::{
    DefaultMode, DefaultModel, DefaultRules, LimitFlag, Loaded, ModelSettings, Options, TaskFileError, load, plain,
};
use longrein_core::budget::{BudgetKind, Limit, Price};
use longrein_core::hook::{HookEvent, HookSpec};
use longrein_core::ids::ToolName;
use longrein_core::payload::Content;
use longrein_core::task::{Builtin, EffectClass, Holds, KeyScope, Mode, OnUnknown, Overlap, PolicyRules};

/// A folder of its own for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longrein-taskfile-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tools")).unwrap();
        fs::write(path.join("m.script.toml"), "").unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn load(&self, text: &str, options: Options) -> Result<Loaded, TaskFileError> {
        fs::write(self.0.join("task.toml"), text).unwrap();
        load(Path::new("task.toml"), &Options { here: self.0.clone(), ..options })
    }

    /// The error a task file gives, or "fine".
    fn error(&self, text: &str) -> String {
        self.load(text, Options::default()).err().map_or_else(|| "fine".to_owned(), |error| error.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HEAD: &str = "goal = \"g\"\nmodel = \"script/m.script.toml\"\n";

fn tool(name: &str, effect: &str, more: &str) -> String {
    format!("[[tools]]\nname = \"{name}\"\neffect = \"{effect}\"\ncommand = [\"true\"]\n{more}\n")
}

#[test]
fn every_key_of_the_contract_is_read() {
    let folder = Folder::new("contract");
    fs::write(folder.0.join("metrics.json"), "{ \"errors\" : 1200.0,\n \"s\": \"a b\" }\n").unwrap();
    fs::write(folder.0.join("notes.txt"), "not JSON\n").unwrap();
    fs::write(folder.0.join("a.gif"), b"GIF89a\x80\x02\xe0\x01").unwrap();
    fs::write(folder.0.join("answer.schema.json"), "{\"type\": \"object\"}").unwrap();
    let text = r#"
goal = "Is the error rate of checkout strictly above its threshold? Cite the evidence."
instructions = "Slowly."
constraints = ["Never guess a number."]
program = "react"
model = "script/m.script.toml"
workspace = "."
permission_mode = "ask"
builtins = []
images = ["a.gif"]
principal = { user = "ops", tenant = "shop" }

[budget]
turns = 8
model_calls = 0
tool_calls = "unlimited"
tokens = 200_000
usd = 0.50
time = "10m"
deadline = 2030-01-01T00:00:00Z

[inputs]
metrics = "metrics.json"
notes = "notes.txt"

[[tools]]
name = "read_metrics"
description = "Reads."
command = ["sh", "tools/read_metrics.sh"]
effect = "read"
provides = ["metrics"]

[[tools]]
name = "error_rate"
description = "Error rate of a metrics reading, in percent."
command = ["sh", "tools/error_rate.sh"]
effect = "read"
timeout = "5s"
parallel = false
depends_on = ["read_metrics"]
cache = true
requires = ["metrics"]
provides = ["rate"]
holds = "run"
max_calls = 5
guard = "ev.source_id.errors <= 10000.0"
guard_message = "Too many."
cost_usd = 0.01
untrusted = true
env = ["LANG", "${secret:TOKEN}", "API=${secret:TOKEN}"]
network = ["localhost:80"]
reads = ["a"]
writes = []
[tools.parameters]
type = "object"
required = ["source_id"]
additionalProperties = false
[tools.parameters.properties.source_id]
type = "string"
evidence = "read_metrics"

[[tools]]
name = "pay"
command = ["pay"]
effect = "external"
key = ["invoice"]
key_scope = "store"
idempotent = "24h"
reconcile = ["probe"]
settle_after = "3s"
on_unknown = "tell"
compensate = "refund"
check = ["true"]
parameters = { type = "object", properties = { invoice = { type = "string" } } }

[[tools]]
name = "refund"
command = ["refund"]
effect = "external"

[[acceptance]]
command = ["cargo", "test"]
protect = ["tests/**"]

[answer]
schema = "answer.schema.json"
evidence = { metrics = { field = "metric_id", tool = "read_metrics" }, rate = { field = "calculation_id", tool = "error_rate" } }
check = "rate.source_id == answer.metric_id"
template = "{{ metrics.service }}: {{ '%.2f' | format(rate.per_10k / 100) }}"

[policy]
allow = ["pay(*)"]
deny = ["pay"]

[[hooks]]
event = "PreToolUse"
match = "pay | error_*"
command = ["./guard.sh", "-v"]
timeout = "10s"
env = ["LANG", "${secret:TOKEN}"]

[[hooks]]
event = "end"
command = ["./bell.sh"]

[context]
trigger = "economic"
"#;
    let loaded = folder.load(text, Options::default()).unwrap();
    let task = loaded.task;
    assert_eq!(task.limits.turns, Limit::At(8));
    assert_eq!(task.limits.model_calls, Limit::At(0));
    assert_eq!(task.limits.tool_calls, Limit::Unlimited);
    assert_eq!(task.limits.tokens, Limit::At(200_000));
    assert_eq!(task.limits.micros, Limit::At(500_000));
    assert_eq!(task.limits.time_ms, Limit::At(600_000));
    assert_eq!(task.limits.deadline.unwrap().to_string(), "2030-01-01T00:00:00.000Z");
    assert_eq!(task.principal.as_str(), r#"{"tenant":"shop","user":"ops"}"#);
    let inputs: Vec<&str> = task
        .inputs
        .values()
        .map(|content| match content {
            Content::Inline(payload) => payload.as_str(),
            Content::Blob(_) => "blob",
        })
        .collect();
    assert_eq!(inputs, vec![r#"{"errors":1200.0,"s":"a b"}"#, "\"not JSON\\n\""]);
    assert_eq!(task.images[0].label(None), "[image a.gif 640×480 gif]");
    assert!(loaded.blobs.iter().any(|(digest, _)| *digest == task.images[0].digest));
    assert_eq!(task.model.name.as_str(), format!("script/{}/m.script.toml", folder.0.display()));
    assert_eq!(task.model.max_output, 8192);
    assert_eq!(task.workspace, folder.0.display().to_string());
    assert_eq!(task.folder, task.workspace);

    let plain = task.tool(&ToolName::new("read_metrics")).unwrap();
    assert_eq!(plain.timeout, Duration::from_secs(30));
    assert_eq!(plain.overlap, Overlap::Parallel);
    assert_eq!(plain.holds, Holds::UntilWrite);
    assert_eq!(plain.settle_after, Duration::from_secs(2));
    assert_eq!(plain.on_unknown, OnUnknown::Wait);
    assert_eq!((plain.max_calls, &plain.reads, &plain.writes), (None, &None, &None));
    assert_eq!(plain.parameters.as_str(), r#"{"additionalProperties":false,"properties":{},"type":"object"}"#);

    let rate = task.tool(&ToolName::new("error_rate")).unwrap();
    assert_eq!(rate.timeout, Duration::from_secs(5));
    assert_eq!((rate.overlap, rate.holds, rate.max_calls), (Overlap::OneAtATime, Holds::Run, Some(5)));
    assert_eq!(rate.guard.as_ref().unwrap().message.as_deref(), Some("Too many."));
    assert_eq!((rate.cost_micros, rate.declared.cache, rate.declared.untrusted), (10_000, true, true));
    assert_eq!(rate.env, ["LANG", "${secret:TOKEN}", "API=${secret:TOKEN}"]);
    assert_eq!((rate.reads.as_deref(), rate.writes.as_deref()), (Some(&["a".to_owned()][..]), Some(&[][..])));
    assert!(rate.parameters.as_str().contains(r#""source_id":{"evidence":"read_metrics","type":"string"}"#));

    let pay = task.tool(&ToolName::new("pay")).unwrap();
    assert_eq!((pay.effect, pay.overlap, pay.holds), (EffectClass::External, Overlap::OneAtATime, Holds::Run));
    assert_eq!(pay.key.as_ref().unwrap().scope, KeyScope::Store);
    assert_eq!(pay.idempotent, Some(Duration::from_secs(86_400)));
    assert_eq!((pay.settle_after, pay.on_unknown), (Duration::from_secs(3), OnUnknown::Tell));
    assert_eq!(pay.reconcile, ["probe"]);
    assert_eq!(
        (pay.check.as_slice(), pay.compensate.as_ref()),
        (&["true".to_owned()][..], Some(&ToolName::new("refund")))
    );

    assert_eq!(task.acceptance[0].name.as_str(), "cargo test");
    assert_eq!(task.acceptance[0].timeout, Duration::from_secs(600));
    let answer = task.answer.unwrap();
    assert_eq!(answer.schema.unwrap().as_str(), r#"{"type":"object"}"#);
    assert_eq!(answer.evidence["rate"].field, "calculation_id");
    assert_eq!(task.policy.deny, ["pay"]);
    let (guard, bell) = (&task.hooks[0], &task.hooks[1]);
    assert_eq!((guard.event, bell.event), (HookEvent::BeforeTool, HookEvent::End));
    assert_eq!((guard.tools.as_slice(), bell.tools.len()), (&["pay".to_owned(), "error_*".to_owned()][..], 0));
    assert_eq!((guard.timeout, bell.timeout), (Duration::from_secs(10), HookSpec::TIMEOUT));
    assert_eq!((&guard.folder, guard.source.as_str()), (&task.folder, "task file"));
    assert_eq!(guard.env, ["LANG", "${secret:TOKEN}"]);
    assert_eq!(task.sources["hooks"], "task file");
    assert_eq!(task.sources["budget.turns"], "task file");
    assert_eq!(task.sources["context.trigger"], "task file");
    assert!(!task.sources.contains_key("budget"));
}

#[test]
fn what_is_left_out_has_the_named_defaults() {
    let folder = Folder::new("defaults");
    let task = folder.load(HEAD, Options::default()).unwrap().task;
    assert_eq!(task.limits, longrein_core::budget::Limits::default());
    assert_eq!(task.principal.as_str(), "{}");
    assert_eq!(task.sources.keys().collect::<Vec<_>>(), ["goal", "model"]);
    assert!(task.pins.is_empty());
}

#[test]
fn large_inputs_become_blobs() {
    let folder = Folder::new("blobs");
    fs::write(folder.0.join("big.txt"), "x".repeat(100_000)).unwrap();
    let loaded = folder.load(&format!("{HEAD}[inputs]\nbig = \"big.txt\"\n"), Options::default()).unwrap();
    assert_eq!(loaded.blobs.len(), 1);
    assert_eq!(loaded.blobs[0].0, loaded.task.inputs["big"].digest());
}

#[test]
fn budgets_are_numbers_or_unlimited() {
    let folder = Folder::new("budgets");
    for (line, said) in [
        ("turns = 0", "fine"),
        ("time = 0", "fine"),
        ("usd = 1", "fine"),
        ("turns = 0x10", "fine"),
        ("turns = -1", "task.toml, line 4, budget.turns: -1 is no whole number"),
        ("turns = 1e6", "budget.turns: 1e6 is no whole number; write for example 200_000"),
        ("turns = 8.0", "budget.turns: 8.0 is no whole number"),
        ("turns = \"8\"", "budget.turns: \"8\" must be a number, without quotes, or \"unlimited\""),
        ("turns = true", "budget.turns: this is true or false; it must be a number"),
        ("tokens = \"infinite\"", "budget.tokens"),
        ("usd = nan", "budget.usd: nan is no amount in dollars"),
        ("usd = inf", "budget.usd"),
        ("usd = -0.5", "budget.usd"),
        ("usd = 0.0000001", "budget.usd"),
        ("time = 10", "budget.time: \"10\" is no span of time"),
        ("time = \"ten\"", "budget.time"),
        ("time = \"-1s\"", "budget.time"),
        ("deadline = \"tomorrow\"", "budget.deadline"),
        ("turn = 8", "task.toml, line 4, budget.turn: there is no such key; near it: turns"),
        ("turns = 99999999999999999999999", "turns"),
    ] {
        let found = folder.error(&format!("{HEAD}[budget]\n{line}\n"));
        assert!(found.contains(said), "{line}: {found}");
    }
}

#[test]
fn unknown_keys_and_wrong_types_are_named_with_their_place() {
    let folder = Folder::new("keys");
    for (text, said) in [
        (format!("{HEAD}gaol = 1\n"), "task.toml, line 3, gaol: there is no such key; near it: goal"),
        (format!("{HEAD}instructions = 3\n"), "line 3, instructions: this is a whole number; it must be a string"),
        (format!("{HEAD}constraints = [\"a\", 1]\n"), "constraints[1]: this is a whole number; it must be a string"),
        (format!("{HEAD}tools = 3\n"), "tools: this is a whole number; it must be a list of tables"),
        (format!("{HEAD}budget = []\n"), "budget: this is a list; it must be a table"),
        (format!("{HEAD}principal = \"x\"\n"), "principal: this must be a table"),
        (
            format!("{HEAD}{}", tool("a", "read", "timout = \"3s\"")),
            "line 7, tools[0] (a).timout: there is no such key; near it: timeout",
        ),
        (format!("{HEAD}[answer]\nchek = \"x\"\n"), "answer.chek: there is no such key; near it: "),
        (format!("{HEAD}[policy]\nalow = []\n"), "policy.alow: there is no such key; near it: allow"),
        (format!("{HEAD}[context]\ntriger = 1\n"), "context.triger: there is no such key; near it: trigger"),
        (format!("{HEAD}[context]\ntrigger = 8.0\n"), "context.trigger: this must be"),
        (format!("{HEAD}[[acceptance]]\ncommand = [\"a\"]\nnam = \"x\"\n"), "acceptance[0].nam"),
        (format!("{HEAD}x = ["), "task.toml, line 3: this is not TOML"),
        (format!("{HEAD}instructions = slowly"), "line 3: this is not TOML: text needs quotes: write \"slowly\""),
        (format!("{HEAD}instructions = for you"), "line 3: this is not TOML: text needs quotes: write \"for you\""),
        (format!("{HEAD}[budget]\ntime = 10m # so\n"), "line 4: this is not TOML: text needs quotes: write \"10m\""),
        (format!("{HEAD}goal = \"h\""), "task.toml, line 3: this is not TOML: the key goal is there twice"),
        (
            "goal = \"g\"\nmodel = \"m.script.toml\"".to_owned(),
            "names no model; for a scripted one write script/m.script.toml",
        ),
        (
            "goal = \"g\"\nmodel = \"script/no.toml\"".to_owned(),
            "(script/FILE: FILE is relative to the task file's folder)",
        ),
        ("model = \"script/m.script.toml\"".to_owned(), "task.toml: there is no goal"),
        ("goal = \"\"\nmodel = \"script/m.script.toml\"".to_owned(), "there is no goal"),
    ] {
        let found = folder.error(&text);
        assert!(found.contains(said), "{text}: {found}");
    }
}

#[test]
fn mistakes_in_tools_are_found_at_once() {
    let folder = Folder::new("tools");
    let schema = "parameters = { type = \"object\", properties = { id = { type = \"string\" } } }";
    for (tools, said) in [
        (tool("a", "read", ""), "fine"),
        (tool("a b", "read", ""), "tools[0] (a b).name: \"a b\" cannot be a tool's name"),
        (tool("", "read", ""), "cannot be a tool's name"),
        (tool("a", "write", ""), "tools[0] (a).effect: \"write\" must be one of: read, workspace, external"),
        ("[[tools]]\nname = \"a\"\ncommand = [\"a\"]\n".to_owned(), "a must say what it does"),
        ("[[tools]]\neffect = \"read\"\ncommand = [\"a\"]\n".to_owned(), "the tool needs a name"),
        (
            "[[tools]]\nname = \"a\"\neffect = \"read\"\ncommand = []\n".to_owned(),
            "tools[0] (a).command: a command is needed",
        ),
        ("[[tools]]\nname = \"a\"\neffect = \"read\"\ncommand = \"a\"\n".to_owned(), "must be a list of strings"),
        (tool("a", "read", "") + &tool("a", "read", ""), "tools[1] (a).name: a second tool named \"a\""),
        (tool("a", "read", "depends_on = [\"b\"]"), "tools[0] (a).depends_on: there is no tool \"b\"; there are: a"),
        (tool("a", "read", "depends_on = [\"a\"]"), "these wait for each other for ever: a → a"),
        (
            tool("a", "read", "depends_on = [\"b\"]")
                + &tool("b", "read", "depends_on = [\"c\"]")
                + &tool("c", "read", "depends_on = [\"b\"]"),
            "tools[1] (b).depends_on: these wait for each other for ever: b → c → b",
        ),
        (tool("a", "read", "depends_on = [\"b\"]") + &tool("b", "read", ""), "fine"),
        (tool("a", "external", &format!("key = [\"id\"]\n{schema}")), "fine"),
        (tool("a", "external", &format!("key = [\"no\"]\n{schema}")), "tools[0] (a).key: \"no\" is no property"),
        (tool("a", "external", "key_scope = \"store\""), "tools[0] (a).key_scope: there is no key that could hold"),
        (
            tool("a", "read", "key = []\nkey_scope = \"store\""),
            "tools[0] (a).key_scope: there is no key that could hold",
        ),
        (tool("a", "read", "key = []\nkey_scope = \"run\""), "fine"),
        (tool("a", "read", &format!("key = [\"id\"]\n{schema}")), "tools[0] (a).key: this is for external tools"),
        (tool("a", "workspace", "idempotent = \"1h\""), "tools[0] (a).idempotent: this is for external tools"),
        (tool("a", "read", "reconcile = [\"x\"]"), "tools[0] (a).reconcile: this is for external tools"),
        (tool("a", "read", "compensate = \"a\""), "tools[0] (a).compensate: this is for external tools"),
        (tool("a", "read", "key = []\nidempotent = \"\"\nreconcile = []\ncompensate = \"\""), "fine"),
        (tool("a", "external", "cache = true"), "tools[0] (a).cache: this is for read tools"),
        (tool("a", "external", "compensate = \"undo\""), "compensate: there is no tool \"undo\""),
        (tool("a", "external", "compensate = \"a\""), "compensate: a tool cannot undo itself"),
        (tool("a", "external", "idempotent = \"soon\""), "tools[0] (a).idempotent: \"soon\" is no span of time"),
        (
            tool("a", "read", "guard = \"arg.x > 1.0\""),
            "tools[0] (a).guard: \"arg\" is not defined here; there are: args, ev",
        ),
        (tool("a", "read", "guard = \"args.x >\""), "tools[0] (a).guard: it does not parse"),
        (tool("a", "read", "guard = \"args.x = 1.0\""), "; compare with =="),
        (tool("a", "external", "idempotent = true"), "it must be a span of time such as \"24h\""),
        (tool("a", "read", "requires = [\"b\"]"), "tools[0] (a).requires: no tool provides the fact \"b\""),
        (
            tool("a", "read", "requires = [\"metric\"]") + &tool("b", "read", "provides = [\"metrics\"]"),
            "no tool provides the fact \"metric\"; near it: metrics",
        ),
        (tool("a", "read", "requires = [\"f\"]") + &tool("b", "read", "provides = [\"f\"]"), "fine"),
        (
            tool("a", "read", "parameters = { type = \"object\", required = [\"x\"], additionalProperties = false }"),
            "tools[0] (a).parameters: required names \"x\", which is no property",
        ),
        (tool("a", "read", "parameters = { type = \"object\", required = [\"x\"] }"), "fine"),
        (
            tool(
                "a",
                "read",
                "parameters = { type = \"object\", required = [\"x1\"], additionalProperties = false, \
                 patternProperties = { \"^x\" = {} } }",
            ),
            "fine",
        ),
        (tool("a", "read", "guard_message = \"x\""), "guard_message: there is no guard"),
        (tool("a", "read", "timeout = \"0s\""), "tools[0] (a).timeout: no time at all"),
        (tool("a", "read", "max_calls = -1"), "tools[0] (a).max_calls"),
        (tool("a", "read", "cost_usd = -1"), "tools[0] (a).cost_usd"),
        (tool("a", "read", "holds = \"ever\""), "must be one of: until_write, run"),
        (tool("a", "read", "env = [\"TOKEN=abc\"]"), "tools[0] (a).env: \"TOKEN=abc\" is no variable by name"),
        (tool("a", "read", "parameters = { type = \"string\" }"), "arguments are an object"),
        (
            tool("a", "read", "parameters = { type = \"nonsense\" }"),
            "tools[0] (a).parameters: it is no usable JSON Schema",
        ),
        (tool("a", "read", "parameters = \"no.json\""), "tools[0] (a).parameters: cannot read"),
        (tool("a", "read", "parameters = \"m.script.toml\""), "is no JSON"),
        (
            tool(
                "a",
                "read",
                "parameters = { type = \"object\", properties = { x = { type = \"string\", evidence = \"b\" } } }",
            ),
            "tools[0] (a).parameters: there is no tool \"b\"",
        ),
        (
            tool(
                "a",
                "read",
                "parameters = { type = \"object\", properties = { x = { type = \"array\", items = { evidence = \"a\" } } } }",
            ),
            "x: an evidence reference must be an argument itself",
        ),
        (
            tool(
                "a",
                "read",
                "parameters = { type = \"object\", properties = { x = { type = \"number\", evidence = \"a\" } } }",
            ),
            "x: an evidence reference is a string and names a tool",
        ),
        (
            tool("a", "read", "parameters = { type = \"object\", properties = { evidence = { type = \"number\" } } }"),
            "fine",
        ),
    ] {
        let found = folder.error(&format!("{HEAD}{tools}"));
        assert!(found.contains(said), "{tools}: {found}");
    }
}

#[test]
fn mistakes_in_the_answer_the_checks_and_the_policy_too() {
    let folder = Folder::new("answer");
    let a = tool("a", "read", "");
    let bind = "evidence = { x = { field = \"id\", tool = \"a\" } }\n";
    for (text, said) in [
        (format!("{a}[answer]\n{bind}check = \"x.n == answer.n\"\n"), "fine"),
        (
            format!("{a}[answer]\n{bind}check = \"y.n == answer.n\"\n"),
            "answer.check: \"y\" is not defined here; there are: answer, x",
        ),
        (format!("{a}[answer]\n{bind}template = \"{{{{ y }}}}\"\n"), "answer.template: \"y\" is not defined here"),
        (format!("{a}[answer]\ntemplate = \"{{{{ x\"\n"), "answer.template: syntax error"),
        (
            format!("{a}[answer]\n{bind}schema = {{ properties = {{ ib = {{}} }}, additionalProperties = false }}\n"),
            "answer.evidence.x.field: the answer's schema has no \"id\"",
        ),
        (format!("{a}[answer]\n{bind}schema = {{ properties = {{ ib = {{}} }} }}\n"), "fine"),
        (
            format!("{a}[answer]\n{bind}schema = {{ properties = {{ id = {{}} }}, additionalProperties = false }}\n"),
            "fine",
        ),
        (format!("{a}[answer]\nschema = {{ type = 3 }}\n"), "answer.schema: it is no usable JSON Schema"),
        (
            format!("{a}[answer]\nevidence = {{ x = {{ field = \"id\", tool = \"b\" }} }}\n"),
            "answer.evidence.x.tool: there is no tool \"b\"; near it: a",
        ),
        (format!("{a}[answer]\nevidence = {{ x = {{ tool = \"a\" }} }}\n"), "answer.evidence.x.field: which field"),
        (
            format!("{a}[answer]\nevidence = {{ x = {{ field = \"id\", tool = \"a\", as = 1 }} }}\n"),
            "answer.evidence.x.as: there is no such key",
        ),
        (
            format!("{a}[answer]\nevidence = {{ answer = {{ field = \"id\", tool = \"a\" }} }}\n"),
            "answer.evidence: \"answer\" cannot be used",
        ),
        (
            "[[acceptance]]\ncommand = [\"a\"]\n[[acceptance]]\ncommand = [\"a\"]\n".to_owned(),
            "acceptance[1].name: a second check named \"a\"",
        ),
        ("[[acceptance]]\nname = \"n\"\n".to_owned(), "acceptance[0] (n).command: a command is needed"),
        (
            format!("{a}[policy]\nallow = [\"b\"]\n"),
            "policy: the allow rule \"b\" names a tool this run does not have; near it: a",
        ),
        (format!("{a}[policy]\ndeny = [\"a(git *)\"]\n"), "policy: the deny rule \"a(git *)\" has a pattern"),
        ("[inputs]\nm = \"no.json\"\n".to_owned(), "inputs.m: cannot read"),
        ("[inputs]\nm = 3\n".to_owned(), "inputs.m: this is a whole number; it must be a string"),
    ] {
        let found = folder.error(&format!("{HEAD}{text}"));
        assert!(found.contains(said), "{text}: {found}");
    }
}

#[test]
fn a_word_for_program_or_mode_that_is_none_says_what_there_is() {
    let folder = Folder::new("words");
    let error = folder.error(&format!("{HEAD}program = \"pln\"\n"));
    assert!(error.contains("line 3, program: there is no program \"pln\"; there are: react, direct, plan"), "{error}");
    assert!(folder.error(&format!("{HEAD}permission_mode = \"yolo\"\n")).contains("there is no mode \"yolo\""));
}

#[test]
fn the_permission_mode_is_the_flags_the_files_or_configurations() {
    let folder = Folder::new("modes");
    let mode = |line: &str, options: Options| {
        let task = folder.load(&format!("{HEAD}{line}\n"), options).unwrap().task;
        (task.permission_mode, task.sources.get("permission_mode").cloned())
    };
    let source = |name: &str| Some(name.to_owned());
    let flag = |mode: &str| Options { permission_mode: Some(mode.to_owned()), ..Options::default() };
    let mut configured = Options::default();
    let default = DefaultMode { mode: Mode::Plan, source: "config.toml".to_owned() };
    configured.defaults.permission_mode = Some(default);
    assert_eq!(mode("", Options::default()), (Mode::Ask, None));
    for each in Mode::ALL {
        let line = format!("permission_mode = \"{each}\"");
        assert_eq!(mode(&line, Options::default()), (each, source("task file")));
        assert_eq!(mode("permission_mode = \"plan\"", flag(each.as_str())), (each, source("--permission-mode")));
    }
    assert_eq!(mode("", configured.clone()), (Mode::Plan, source("config.toml")));
    assert_eq!(mode("permission_mode = \"auto\"", configured), (Mode::Auto, source("task file")));
    let error = folder.load(HEAD, flag("yolo")).unwrap_err();
    assert!(matches!(error, TaskFileError::Usage { .. }), "{error}");
}

#[test]
fn law_8_a_rule_that_does_not_do_what_its_examples_say_stops_the_run() {
    let folder = Folder::new("examples");
    let load = |rules: &str| {
        folder.load(&format!("{HEAD}builtins = [\"shell\", \"write_file\"]\n[policy]\n{rules}\n"), Options::default())
    };
    let policy = load(
        "allow = [{ rule = \"shell(cargo test *)\", match = [\"cargo test -p x\"], not_match = [\"cargo publish\"] }, \"write_file(src/**)\"]\n\
         ask = [{ rule = \"shell(cargo publish *)\", match = [\"cargo publish\", \"sh -c 'cargo publish -q'\"], not_match = [\"cargo build\"] }]\n\
         deny = [{ rule = \"write_file(.github/**)\", match = [\".github/w.yml\", \"a/../.github/x/y\"], not_match = [\"src/a\"] },\n\
         { rule = \"shell(curl *)\", match = [\"true; curl x\"] }]",
    );
    let policy = policy.unwrap().task.policy;
    assert_eq!(policy.allow, ["shell(cargo test *)", "write_file(src/**)"]);
    assert_eq!((policy.ask.len(), policy.deny.len()), (1, 2));
    for (rules, said) in [
        ("allow = [{ rule = \"shell(cargo test *)\", match = [\"cargo tset\"] }]", "does not match its example"),
        ("deny = [{ rule = \"write_file(src/**)\", not_match = [\"src/gen/a.rs\"] }]", "which it says it does not"),
        ("deny = [{ match = [\"x\"] }]", "which rule"),
        ("deny = [{ rule = \"shell\", matches = [\"x\"] }]", "there is no such key; near it: match"),
        ("deny = [7]", "a rule, or {"),
        ("deny = [{ rule = \"shell(\" }]", "the deny rule"),
    ] {
        let error = load(rules).unwrap_err();
        assert!(matches!(error, TaskFileError::Task { .. }), "{rules}: {error}");
        assert!(error.to_string().contains(said), "{rules}: {error}");
    }
}

#[test]
fn configurations_rules_are_added_to_the_tasks() {
    let folder = Folder::new("layers");
    let mut options = Options::default();
    let rules = |deny: &str| PolicyRules { deny: vec![deny.to_owned()], ..PolicyRules::default() };
    for (source, deny) in [("one.toml", "shell(curl *)"), ("two.toml", "write_file(x)")] {
        options.defaults.policy.push(DefaultRules { source: source.to_owned(), rules: rules(deny) });
    }
    options.rules = PolicyRules { allow: vec!["write_file".to_owned()], ..rules("shell(curl *)") };
    let text = format!("{HEAD}builtins = [\"shell\"]\n[policy]\ndeny = [\"write_file(y)\"]\n");
    let task = folder.load(&text, options).unwrap().task;
    assert_eq!(task.policy.deny, ["write_file(y)", "shell(curl *)", "write_file(x)"]);
    assert_eq!(task.policy.allow, ["write_file"]);
    assert_eq!(task.sources["policy"], "task file, --allow, --deny, one.toml, two.toml");
}

#[test]
fn variables_are_replaced_everywhere_but_in_secrets() {
    let folder = Folder::new("variables");
    let text = "goal = \"Pay ${invoice} and ${invoice}; $${plain}\"\nmodel = \"script/m.script.toml\"\n\
                [[tools]]\nname = \"a\"\neffect = \"read\"\ncommand = [\"echo\", \"${secret:X}\"]\n\
                [tools.parameters]\ntype = \"object\"\ndescription = \"${what}\"\n";
    let options = |names: &[(&str, &str)]| Options {
        variables: names.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..Options::default()
    };
    let task = folder.load(text, options(&[("invoice", "\"7\""), ("what", "w")])).unwrap().task;
    assert_eq!(task.goal, "Pay \"7\" and \"7\"; ${plain}");
    assert_eq!(task.tools[0].body.command(), ["echo", "${secret:X}"]);
    assert_eq!(task.tools[0].parameters.as_str(), r#"{"description":"w","type":"object"}"#);

    let missing = folder.load(text, options(&[("invoice", "7")])).unwrap_err().to_string();
    assert!(
        missing.contains("tools[0] (a).parameters.description: the variable ${what} has no value; pass --var what=…"),
        "{missing}"
    );
    let unused = folder.load(text, options(&[("invoice", "7"), ("what", "w"), ("wat", "w")])).unwrap_err();
    assert!(matches!(unused, TaskFileError::Usage { .. }), "{unused}");
    assert!(unused.to_string().contains("--var wat: task.toml does not use ${wat}"), "{unused}");
    assert!(folder.error("goal = \"${open\"\n").contains("a ${ without its }"));
}

#[test]
fn flags_win_and_are_named_as_the_source() {
    let folder = Folder::new("flags");
    fs::create_dir(folder.0.join("elsewhere")).unwrap();
    fs::write(folder.0.join("s.json"), "{\"type\":\"object\"}").unwrap();
    let limit = |kind, value: &str| LimitFlag { kind, value: value.to_owned() };
    let mut options = Options {
        workspace: Some("elsewhere".into()),
        limits: vec![limit(BudgetKind::Turns, "3"), limit(BudgetKind::Time, "unlimited")],
        checks: vec!["test -f x".to_owned()],
        output_schema: Some("s.json".into()),
        ..Options::default()
    };
    options.rules.allow.push("pay".to_owned());
    let text =
        format!("{HEAD}{}[budget]\nturns = 8\ntokens = 5\n[policy]\nask = [\"pay\"]\n", tool("pay", "external", ""));
    let task = folder.load(&text, options.clone()).unwrap().task;
    assert_eq!((task.limits.turns, task.limits.time_ms), (Limit::At(3), Limit::Unlimited));
    assert_eq!(task.workspace, folder.0.join("elsewhere").display().to_string());
    assert_eq!(task.acceptance[0].command, ["sh", "-c", "test -f x"]);
    assert!(task.answer.unwrap().schema.is_some());
    assert_eq!((task.policy.allow, task.policy.ask), (vec!["pay".to_owned()], vec!["pay".to_owned()]));
    for (key, source) in [
        ("budget.turns", "--max-turns"),
        ("budget.tokens", "task file"),
        ("budget.time", "--max-time"),
        ("workspace", "--cd"),
        ("acceptance", "--check"),
        ("answer", "--output-schema"),
        ("policy", "task file, --allow"),
    ] {
        assert_eq!(task.sources[key], source, "{key}");
    }

    let failed = |change: &dyn Fn(&mut Options)| {
        let mut options = options.clone();
        change(&mut options);
        folder.load(&text, options).unwrap_err().to_string()
    };
    assert!(
        failed(&|o| o.limits = vec![limit(BudgetKind::Usd, "-1")]).starts_with("--max-budget-usd: -1 is no amount")
    );
    assert!(failed(&|o| o.rules.deny = vec!["x".to_owned()]).starts_with("--deny: the deny rule \"x\""));
    assert!(failed(&|o| o.model = Some("nonsense".to_owned())).starts_with("--model: \"nonsense\" names no model"));
    assert!(failed(&|o| o.prompt = Some("p".to_owned())).starts_with("PROMPT: the task file has a goal already"));
    assert!(failed(&|o| o.program = Some("pln".to_owned())).starts_with("--program: there is no program \"pln\""));
    let gone = failed(&|o| o.program = Some("gone.toml".to_owned()));
    assert!(gone.starts_with("--program: cannot read"), "{gone}");
    assert!(failed(&|o| o.checks = vec![String::new()]).starts_with("--check: the command is empty"));
}

#[test]
fn a_prompt_alone_is_a_task() {
    let folder = Folder::new("plain");
    let mut options = Options {
        here: folder.0.clone(),
        prompt: Some("Say hello.".to_owned()),
        model: Some("ollama/qwen3".to_owned()),
        ..Options::default()
    };
    let task = plain(&options).unwrap().task;
    assert_eq!(task.goal, "Say hello.");
    let every: Vec<_> = Builtin::ALL.into_iter().map(longrein_tools::builtin).collect();
    assert_eq!(task.tools, every, "without a task file all built-in tools are offered");
    assert_eq!((&task.sources["goal"][..], &task.sources["model"][..]), ("prompt", "--model"));
    assert_eq!(task.folder, task.workspace);

    options.limits.push(LimitFlag { kind: BudgetKind::Usd, value: "1".to_owned() });
    let unpriced = plain(&options).unwrap_err();
    assert!(matches!(unpriced, TaskFileError::Configuration { .. }), "{unpriced}");
    let price = Price { input: 1, cached: 1, cache_write: 1, output: 1, reasoning: None };
    let settings = ModelSettings { max_output: Some(99), price: Some(price), ..ModelSettings::default() };
    options.defaults.models.insert("ollama/qwen3".to_owned(), settings);
    assert_eq!(plain(&options).unwrap().task.model.max_output, 99);

    options.model = None;
    assert!(matches!(plain(&options).unwrap_err(), TaskFileError::Configuration { .. }));
    options.defaults.model =
        Some(DefaultModel { name: "ollama/qwen3".to_owned(), source: "LONGREIN_MODEL".to_owned() });
    assert_eq!(plain(&options).unwrap().task.sources["model"], "LONGREIN_MODEL");
    options.variables.insert("k".to_owned(), "v".to_owned());
    assert!(plain(&options).unwrap_err().to_string().starts_with("--var: k is for a task file"));
}

#[test]
fn the_examples_load() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for example in ["checkout", "payments"] {
        let path = root.join("examples").join(example).join("task.toml");
        let loaded = load(&path, &Options { here: root.to_owned(), ..Options::default() });
        assert!(loaded.is_ok(), "{example}: {}", loaded.unwrap_err());
    }
}
