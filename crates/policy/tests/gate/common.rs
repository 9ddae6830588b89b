//! Calls as a run makes them, for tests at the gate's own boundary.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use longrein_core::ids::{Seq, ToolName};
use longrein_core::payload::Payload;
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark, Taint};
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{Containment, Ledger, Policy, Surroundings, World};
use longrein_ports::{GateCall, Ruled, Ruling};
use serde_json::Value;

/// The world and the run around a call.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) mode: Mode,
    pub(crate) fence: Containment,
    pub(crate) rules: PolicyRules,
    pub(crate) taint: Taint,
    pub(crate) said: Vec<String>,
    pub(crate) world: Places,
    pub(crate) marked: Marks,
}

impl Default for Around {
    fn default() -> Self {
        Self {
            mode: Mode::Ask,
            fence: Containment::Writes,
            rules: PolicyRules::default(),
            taint: Taint::default(),
            said: Vec::new(),
            world: Places::default(),
            marked: Marks::default(),
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Places {
    pub(crate) links: BTreeMap<String, String>,
    pub(crate) hosts: BTreeMap<String, Vec<Vec<IpAddr>>>,
    pub(crate) redirects: BTreeMap<String, String>,
}

impl World for Places {
    fn link(&self, path: &str) -> Option<String> {
        self.links.get(path).cloned()
    }

    fn names(&self, _folder: &str) -> Option<Vec<String>> {
        None
    }

    fn addresses(&self, host: &str) -> Option<Vec<Vec<IpAddr>>> {
        self.hosts.get(host).cloned()
    }

    fn redirect(&self, url: &str) -> Option<String> {
        self.redirects.get(url).cloned()
    }
}

/// Files that a tainted run wrote, and sources that a person endorsed.
#[derive(Clone, Default)]
pub(crate) struct Marks {
    pub(crate) files: BTreeMap<String, Mark>,
    pub(crate) endorsed: Vec<String>,
}

impl Ledger for Marks {
    fn file(&self, path: &str) -> Option<Mark> {
        self.files.get(path).cloned()
    }

    fn below(&self, folder: &str) -> Option<Mark> {
        let below = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.files.iter().find(|(path, _)| below(path)).map(|(_, mark)| mark.clone())
    }

    fn endorses(&self, source: &str) -> bool {
        self.endorsed.iter().any(|endorsed| endorsed == source)
    }
}

pub(crate) const UNTRUSTED: Label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Public };
pub(crate) const SECRET: Label = Label { integrity: Integrity::Workspace, confidentiality: Confidentiality::Secret };

pub(crate) fn mark(label: Label, source: &str) -> Mark {
    Mark { label, source: source.to_owned() }
}

pub(crate) fn taint(marks: &[Mark]) -> Taint {
    let mut taint = Taint::default();
    marks.iter().for_each(|mark| taint.add(mark, Seq(1)));
    taint
}

pub(crate) fn builtin(name: &str) -> ToolSpec {
    let builtin = Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name).expect("a built-in tool");
    let effect = match builtin {
        Builtin::ReadFile
        | Builtin::ListFiles
        | Builtin::SearchFiles
        | Builtin::Ask
        | Builtin::Recall
        | Builtin::Note
        | Builtin::WebFetch => EffectClass::Read,
        Builtin::WriteFile | Builtin::EditFile | Builtin::Shell => EffectClass::Workspace,
    };
    ToolSpec::new(ToolName::new(name), ToolBody::Builtin(builtin), effect)
}

pub(crate) fn declared(name: &str, effect: EffectClass) -> ToolSpec {
    ToolSpec::new(ToolName::new(name), ToolBody::Command(vec!["true".to_owned()]), effect)
}

pub(crate) fn allow(rules: &[&str]) -> PolicyRules {
    PolicyRules { allow: rules.iter().map(|rule| (*rule).to_owned()).collect(), ..PolicyRules::default() }
}

pub(crate) fn judge(tool: &ToolSpec, args: &Value, around: &Around) -> Ruled {
    let surroundings = Surroundings {
        home: Some("/home/me".to_owned()),
        longrein_home: Some("/home/me/.local/share/longrein".to_owned()),
        own: vec!["/home/me/.local/share/longrein".to_owned()],
        binary: None,
        git_config: None,
        world: Arc::new(around.world.clone()),
        fence: Arc::new(around.fence),
        ledger: Arc::new(around.marked.clone()),
    };
    let tools = ["pay", "look", "build", "mcp"].map(ToolName::new);
    let policy = Policy::read(&around.rules, &tools, surroundings).expect("rules that can be read");
    let said: Vec<&str> = around.said.iter().map(String::as_str).collect();
    let call = GateCall {
        tool,
        args: &Payload::of(args).expect("arguments"),
        target: None,
        workspace: "/w",
        mode: around.mode,
        taint: &around.taint,
        said: &said,
    };
    if tool.name.as_str() == "mcp" { policy.judge_mcp(&call) } else { policy.judge(&call) }
}

pub(crate) fn word(ruled: &Ruled) -> &'static str {
    match ruled.ruling {
        Ruling::Allow { .. } => "allow",
        Ruling::Ask { .. } => "ask",
        Ruling::Deny { .. } => "deny",
    }
}

pub(crate) fn shell(command: &str) -> (ToolSpec, Value) {
    (builtin("shell"), serde_json::json!({ "command": command }))
}

pub(crate) fn fetch(url: &str) -> (ToolSpec, Value) {
    (builtin("web_fetch"), serde_json::json!({ "url": url }))
}

pub(crate) fn write(path: &str) -> (ToolSpec, Value) {
    (builtin("write_file"), serde_json::json!({ "path": path, "content": "x" }))
}

pub(crate) fn read(path: &str) -> (ToolSpec, Value) {
    (builtin("read_file"), serde_json::json!({ "path": path }))
}

pub(crate) fn mcp(server: &str, tool: &str, arguments: Value) -> (ToolSpec, Value) {
    (
        declared("mcp", EffectClass::External),
        serde_json::json!({ "server": server, "tool": tool, "arguments": arguments }),
    )
}
