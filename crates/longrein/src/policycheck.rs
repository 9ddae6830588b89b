//! `policy check`: what the gate would say of calls that nobody makes. Calls and rulings are lines of JSON; their format
//! stays in this module.
//!
//! Nothing is run. The file system is looked at only where a line's workspace is a folder that exists, and then only for
//! links and names; else paths are judged by their letters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_policy::{BadRule, Policy, World};
use longrein_ports::{GateCall, Ruling};
use serde::{Deserialize, Serialize};
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
    #[serde(default)]
    id: Value,
    tool: String,
    args: Value,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    workspace: Option<String>,
    #[serde(default)]
    context: Option<Context>,
}

/// A stub of the world, for calls that are about no real one.
#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    symlinks: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Ruled<'a> {
    id: Value,
    ruling: &'static str,
    rule: &'a str,
    reason: Option<&'a str>,
    effects: Vec<Touched>,
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
        check.policy(Arc::new(longrein_policy::Unseen))?;
        Ok(check)
    }

    /// The ruling on a call, as a line.
    pub fn line(&self, line: &[u8]) -> Result<String, BadLine> {
        let value: Value =
            serde_json::from_slice(line).map_err(|error| BadLine { id: Value::Null, problem: error.to_string() })?;
        let id = value.get("id").cloned().unwrap_or_default();
        let bad = |problem: String| BadLine { id: id.clone(), problem };
        let line: Line = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        if let Some(mode) = line.mode.as_deref().filter(|mode| !MODES.contains(mode)) {
            return Err(bad(format!("there is no mode \"{mode}\"; the modes are {}", MODES.join(", "))));
        }
        let workspace = line.workspace.unwrap_or_else(|| self.workspace.clone());
        if !workspace.starts_with('/') {
            return Err(bad(format!("the workspace \"{workspace}\" is no absolute path")));
        }
        let workspace = if workspace == "/" { workspace.as_str() } else { workspace.trim_end_matches('/') };
        let world: Arc<dyn World> = match line.context {
            Some(context) if !context.symlinks.is_empty() => Arc::new(Stub(context.symlinks)),
            Some(_) | None if Path::new(workspace).is_dir() => Arc::new(gate::FileSystem),
            Some(_) | None => Arc::new(longrein_policy::Unseen),
        };
        let policy = self.policy(world).map_err(|error| bad(error.to_string()))?;
        let args = Payload::of(&line.args).map_err(|error| bad(error.to_string()))?;
        let (tool, known) = self.tool(&line.tool);
        let judged = policy.judge(&GateCall {
            tool: &tool,
            args: &args,
            target: None,
            workspace,
            mode: Mode::Ask,
            taint: &Taint::default(),
            said: &[],
        });
        let ruling = match (judged.ruling, known) {
            (Ruling::Allow { .. } | Ruling::Ask { .. }, false) => {
                let reason = format!("there is no tool {} here", line.tool);
                Ruling::Ask { rule: "default".to_owned(), reason }
            }
            (ruling, _) => ruling,
        };
        let (word, rule, reason) = match &ruling {
            Ruling::Allow { rule } => ("allow", rule, None),
            Ruling::Ask { rule, reason } => ("ask", rule, Some(reason.as_str())),
            Ruling::Deny { rule, reason } => ("deny", rule, Some(reason.as_str())),
        };
        let effects = judged.effects.into_iter();
        let effects = effects.map(|effect| Touched { kind: effect.kind.as_str(), what: effect.what }).collect();
        let ruled = Ruled { id: line.id, ruling: word, rule, reason, effects };
        serde_json::to_string(&ruled).map_err(|error| bad(error.to_string()))
    }

    /// The tool of this name, and whether there is one.
    fn tool(&self, name: &str) -> (ToolSpec, bool) {
        let wanted = ToolName::new(name);
        if let Some(tool) = self.tools.get(&wanted) {
            return (tool.clone(), true);
        }
        match Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name) {
            Some(builtin) => (ToolSpec::new(wanted, ToolBody::Builtin(builtin), EffectClass::External), true),
            None => (ToolSpec::new(wanted, ToolBody::Command(Vec::new()), EffectClass::External), false),
        }
    }

    fn policy(&self, world: Arc<dyn World>) -> Result<Policy, BadRule> {
        let surroundings = gate::surroundings(None, &self.environment, world);
        Policy::read(&self.rules, self.tools.keys(), surroundings)
    }
}

impl BadLine {
    /// The line that stands in the output instead of a ruling.
    pub fn line(&self, number: u64) -> String {
        let error = format!("line {number}: {}", self.problem);
        serde_json::json!({ "id": self.id, "error": error }).to_string()
    }
}

/// Links and nothing else.
struct Stub(BTreeMap<String, String>);

impl World for Stub {
    fn link(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }

    fn names(&self, _folder: &str) -> Option<Vec<String>> {
        None
    }
}

/// All are read as `ask` so far.
const MODES: [&str; 5] = ["ask", "plan", "accept-edits", "auto", "shadow"];
