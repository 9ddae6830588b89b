//! `policy check`: what the gate would say of calls that nobody makes. Calls and rulings are lines of JSON; their format
//! stays in this module.
//!
//! Nothing is run. The file system is looked at only where a line's workspace is a folder that exists, and then only for
//! links and names; else paths are judged by their letters. The sandbox is taken to hold what it is there to hold: rulings
//! are those of a machine where it does, unless a line says otherwise.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use longrein_core::ids::{Seq, ToolName};
use longrein_core::payload::Payload;
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark, Taint};
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{BadRule, Containment, Policy, World};
use longrein_ports::{GateCall, Ruling};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::gate;

/// Rules, held against calls line by line.
pub struct PolicyCheck {
    rules: PolicyRules,
    tools: BTreeMap<ToolName, ToolSpec>,
    /// Of lines that name none.
    workspace: String,
    environment: BTreeMap<String, String>,
}

/// A line that says no call.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct BadLine {
    /// Of the call, as far as it could be read.
    id: Value,
    problem: String,
}

#[derive(Deserialize)]
struct Line {
    tool: String,
    args: Value,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    workspace: Option<String>,
    #[serde(default)]
    context: Option<Context>,
}

/// A stub of the world and of the run, for calls that are about no real one.
#[derive(Default, Deserialize)]
struct Context {
    /// A link's path → where it points.
    #[serde(default, deserialize_with = "lenient")]
    symlinks: BTreeMap<String, String>,
    /// A host → its addresses, answer by answer.
    #[serde(default, deserialize_with = "lenient")]
    dns: BTreeMap<String, Value>,
    /// A URL → what its server answers.
    #[serde(default, deserialize_with = "lenient")]
    http: BTreeMap<String, Answer>,
    #[serde(default)]
    taint: Option<Tainted>,
    /// What people have typed.
    #[serde(default)]
    said: Vec<String>,
    #[serde(default)]
    fence: Option<Fenced>,
}

#[derive(Clone, Deserialize)]
struct Answer {
    #[serde(default)]
    location: Option<String>,
}

#[derive(Deserialize)]
struct Tainted {
    #[serde(default)]
    integrity: Integrity,
    #[serde(default)]
    confidentiality: Confidentiality,
    #[serde(default)]
    sources: Vec<String>,
}

/// How far the sandbox holds.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fenced {
    Writes,
    Network,
    Nothing,
    Surroundings,
}

#[derive(Serialize)]
struct Ruled<'a> {
    id: Value,
    ruling: &'static str,
    rule: &'a str,
    reason: Option<&'a str>,
    effects: Vec<Touched>,
    /// What its result would bring into the run, and from where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    brings: Vec<Mark>,
}

#[derive(Serialize)]
struct Touched {
    kind: &'static str,
    what: String,
}

impl PolicyCheck {
    /// `tools` are those that a task declares, beside the built-in ones.
    pub fn new(
        rules: PolicyRules,
        tools: Vec<ToolSpec>,
        workspace: String,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, BadRule> {
        let tools: BTreeMap<ToolName, ToolSpec> = tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
        let check = Self { rules, tools, workspace, environment };
        check.policy(Arc::new(longrein_policy::Unseen), Containment::Writes)?;
        Ok(check)
    }

    /// The ruling on a call, as a line.
    pub fn line(&self, line: &[u8]) -> Result<String, BadLine> {
        let value: Value =
            serde_json::from_slice(line).map_err(|error| BadLine { id: Value::Null, problem: error.to_string() })?;
        let id = value.get("id").cloned().unwrap_or_default();
        let bad = |problem: String| BadLine { id: id.clone(), problem };
        let Line { tool, args, mode, workspace, context } =
            serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        let known =
            |name: &String| Mode::ALL.into_iter().find(|mode| mode.as_str() == name).ok_or_else(|| name.clone());
        let mode = mode.as_ref().map(known).transpose().map_err(|name| {
            let modes = Mode::ALL.map(Mode::as_str).join(", ");
            bad(format!("there is no mode \"{name}\"; the modes are {modes}"))
        })?;
        let workspace = workspace.unwrap_or_else(|| self.workspace.clone());
        if !workspace.starts_with('/') {
            return Err(bad(format!("the workspace \"{workspace}\" is no absolute path")));
        }
        let workspace = if workspace == "/" { workspace.as_str() } else { workspace.trim_end_matches('/') };
        let Context { symlinks, dns, http, taint, said, fence } = context.unwrap_or_default();
        let files = symlinks.is_empty() && Path::new(workspace).is_dir();
        let world = Stub { symlinks, dns, http, files: files.then_some(gate::FileSystem) };
        let fence = match fence {
            None | Some(Fenced::Writes) => Containment::Writes,
            Some(Fenced::Network) => Containment::Network,
            Some(Fenced::Nothing) => Containment::Nothing,
            Some(Fenced::Surroundings) => Containment::Surroundings,
        };
        let policy = self.policy(Arc::new(world), fence).map_err(|error| bad(error.to_string()))?;
        let args = Payload::of(&args).map_err(|error| bad(error.to_string()))?;
        let (spec, kind) = self.tool(&tool);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let call = GateCall {
            tool: &spec,
            args: &args,
            target: None,
            workspace,
            mode: mode.unwrap_or_default(),
            taint: &tainted(taint),
            said: &said,
        };
        let judged = match kind {
            Kind::Known | Kind::Unknown => policy.judge(&call),
            Kind::Mcp => policy.judge_mcp(&call),
        };
        let ruling = match (judged.ruling, kind) {
            (Ruling::Allow { .. } | Ruling::Ask { .. }, Kind::Unknown) => {
                let reason = format!("there is no tool {tool} here");
                Ruling::Ask { rule: "default".to_owned(), reason }
            }
            (ruling, Kind::Known | Kind::Unknown | Kind::Mcp) => ruling,
        };
        let (word, rule, reason) = match &ruling {
            Ruling::Allow { rule } => ("allow", rule, None),
            Ruling::Ask { rule, reason } => ("ask", rule, Some(reason.as_str())),
            Ruling::Deny { rule, reason } => ("deny", rule, Some(reason.as_str())),
        };
        let effects = judged.effects.into_iter();
        let effects = effects.map(|effect| Touched { kind: effect.kind.as_str(), what: effect.what }).collect();
        let ruled = Ruled { id: id.clone(), ruling: word, rule, reason, effects, brings: judged.brings };
        serde_json::to_string(&ruled).map_err(|error| bad(error.to_string()))
    }

    /// The tool of this name, and what it is.
    fn tool(&self, name: &str) -> (ToolSpec, Kind) {
        let wanted = ToolName::new(name);
        if let Some(tool) = self.tools.get(&wanted) {
            return (tool.clone(), Kind::Known);
        }
        let kind = if name == MCP { Kind::Mcp } else { Kind::Unknown };
        match Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name) {
            Some(builtin) => (ToolSpec::new(wanted, ToolBody::Builtin(builtin), EffectClass::External), Kind::Known),
            None => (ToolSpec::new(wanted, ToolBody::Command(Vec::new()), EffectClass::External), kind),
        }
    }

    fn policy(&self, world: Arc<dyn World>, fence: Containment) -> Result<Policy, BadRule> {
        let surroundings = gate::surroundings(None, &self.environment, world);
        let surroundings = longrein_policy::Surroundings { fence: Arc::new(fence), ..surroundings };
        Policy::read(&self.rules, self.tools.keys(), surroundings)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Known,
    Unknown,
    /// `{server, tool, arguments}`: a tool of a server of somebody else's.
    Mcp,
}

impl BadLine {
    /// The line that stands in the output instead of a ruling: what cannot be read does not run.
    pub fn line(&self, number: u64) -> String {
        let error = format!("line {number}: {}", self.problem);
        let Self { id, .. } = self;
        serde_json::json!({ "id": id, "error": error, "ruling": "deny", "rule": "cannot be told", "reason": error, "effects": [] })
            .to_string()
    }
}

fn tainted(tainted: Option<Tainted>) -> Taint {
    let mut taint = Taint::default();
    let Some(Tainted { integrity, confidentiality, sources }) = tainted else { return taint };
    let label = Label { integrity, confidentiality };
    for source in &sources {
        taint.add(&Mark { label, source: source.clone() }, Seq(0));
    }
    if label.is_tainted() && sources.is_empty() {
        taint.rest = label;
    }
    taint
}

/// A map as far as it can be read: what a line says of the world in another form is not known.
fn lenient<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let Value::Object(entries) = Value::deserialize(deserializer)? else { return Ok(BTreeMap::new()) };
    let read = |(key, value)| Some((key, serde_json::from_value(value).ok()?));
    Ok(entries.into_iter().filter_map(read).collect())
}

/// What a line says of the world, and the file system where it says nothing of links.
struct Stub {
    symlinks: BTreeMap<String, String>,
    dns: BTreeMap<String, Value>,
    http: BTreeMap<String, Answer>,
    files: Option<gate::FileSystem>,
}

impl World for Stub {
    fn link(&self, path: &str) -> Option<String> {
        match &self.files {
            Some(files) => files.link(path),
            None => self.symlinks.get(path).cloned(),
        }
    }

    fn names(&self, folder: &str) -> Option<Vec<String>> {
        self.files.as_ref()?.names(folder)
    }

    fn addresses(&self, host: &str) -> Option<Vec<Vec<IpAddr>>> {
        self.dns.get(host).map(addresses)
    }

    fn redirect(&self, url: &str) -> Option<String> {
        self.http.get(url)?.location.clone()
    }
}

/// The addresses of a host: one, a list of them, or several answers. What is no address is none that may be reached.
fn addresses(answers: &Value) -> Vec<Vec<IpAddr>> {
    match answers {
        Value::Array(answers) => answers.iter().flat_map(addresses).collect(),
        Value::String(text) => {
            let text = text.split('%').next().unwrap_or_default();
            vec![vec![text.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))]]
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

const MCP: &str = "mcp";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Value {
        let check = PolicyCheck::new(PolicyRules::default(), Vec::new(), "/w".to_owned(), BTreeMap::new()).unwrap();
        let line = check.line(line.as_bytes()).unwrap_or_else(|bad| bad.line(1));
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_line_says_what_world_and_what_run_it_is_about() {
        for (line, ruling) in [
            (r#""tool":"web_fetch","args":{"url":"https://a.example/"}"#, "ask"),
            (r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"said":["see a.example"]}"#, "allow"),
            (
                r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"dns":{"a.example":[["10.0.0.1"]]}}"#,
                "deny",
            ),
            (
                r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"said":["see a.example"],"http":{"https://a.example/":{"location":"http://localhost/"}}}"#,
                "deny",
            ),
            (
                r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"dns":{"a.example":["1.1.1.1","10.0.0.1"]}}"#,
                "deny",
            ),
            (
                r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"dns":{"a.example":"fe80::1%eth0"}}"#,
                "deny",
            ),
            (
                r#""tool":"web_fetch","args":{"url":"https://a.example/"},"context":{"dns":{"a.example":"1.1.1.1"}}"#,
                "ask",
            ),
            (r#""tool":"write_file","args":{"path":"a","content":"x"}"#, "ask"),
            (r#""tool":"write_file","args":{"path":"a","content":"x"},"mode":"accept-edits""#, "allow"),
            (r#""tool":"write_file","args":{"path":"a","content":"x"},"mode":"plan""#, "deny"),
            (
                r#""tool":"write_file","args":{"path":"a","content":"x"},"mode":"accept-edits","context":{"fence":"nothing"}"#,
                "ask",
            ),
            (
                r#""tool":"write_file","args":{"path":"a","content":"x"},"mode":"accept-edits","context":{"taint":{"integrity":"untrusted","confidentiality":"secret"}}"#,
                "ask",
            ),
            (r#""tool":"mcp","args":{"server":"s","tool":"t","arguments":{"url":"http://127.0.0.1/"}}"#, "deny"),
            (r#""tool":"shell","args":{"command":"make"},"mode":"auto""#, "allow"),
            // what cannot be read of a stub world is not known
            (
                r#""tool":"shell","args":{"command":"ls"},"context":{"symlinks":[1],"dns":{"a":"b"},"http":null}"#,
                "allow",
            ),
        ] {
            let found = check(&format!("{{\"id\":1,{line}}}"));
            assert_eq!(found["ruling"], ruling, "{line}: {found}");
        }
    }

    #[test]
    fn whatever_comes_a_line_goes_out() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let long = format!(r#"{{"id":1,"tool":"shell","args":{{"command":"{}"}}}}"#, "a".repeat(10_000_000));
        let deep_args =
            format!(r#"{{"id":1,"tool":"mcp","args":{{"arguments":{}1{}}}}}"#, "[".repeat(100), "]".repeat(100));
        for line in [
            "",
            "{",
            "null",
            "[]",
            "{\"id\":7}",
            "\u{0}",
            "{\"tool\":\"shell\",\"args\":{\"command\":\"\\u0000\"}}",
            &deep,
            &long,
            &deep_args,
        ] {
            let found = check(line);
            let ruling = found["ruling"].as_str().unwrap();
            assert!(matches!(ruling, "ask" | "deny"), "{found}");
        }
        let check = PolicyCheck::new(PolicyRules::default(), Vec::new(), "/w".to_owned(), BTreeMap::new()).unwrap();
        assert!(check.line(b"{\"id\":1,\"tool\":\"\xff\"}").is_err());
    }
}
