//! Permission rules as people write them, in task files and in configuration: a text, or a text with examples that are held
//! against it before anything starts. A rule that does not do what its writer says it does stops the run.

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, Mode, PolicyRules};
use longrein_policy::{BadRule, List, Policy, Surroundings};
use longrein_ports::{GateCall, Ruling};
use serde_json::json;

use super::error::TaskFileError;
use super::section::{Section, Value};

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenRule {
    /// `tool`, `tool(pattern)` or `*`.
    pub rule: String,
    /// Calls it must match: a command, a path, or the name of a tool, as the rule is about one.
    pub matches: Vec<String>,
    /// Calls it must not match.
    pub not_matches: Vec<String>,
}

/// The three lists of one `[policy]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenRules {
    /// `allow`
    pub allow: Vec<WrittenRule>,
    /// `ask`
    pub ask: Vec<WrittenRule>,
    /// `deny`
    pub deny: Vec<WrittenRule>,
}

/// What is wrong with a written rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWritten {
    /// It cannot be obeyed.
    #[error(transparent)]
    Rule(#[from] BadRule),
    /// An example says otherwise.
    #[error("the {list} rule \"{rule}\" {}: \"{example}\"", if *wanted {
        "does not match what its `match` says it does"
    } else {
        "matches what its `not_match` says it does not"
    })]
    Example {
        /// Where it stands.
        list: List,
        /// As written.
        rule: String,
        /// As written.
        example: String,
        /// Whether it was to match.
        wanted: bool,
    },
}

impl WrittenRules {
    /// The keys of `[policy]`.
    pub const KEYS: [&'static str; 3] = ["allow", "ask", "deny"];

    /// The texts, without examples.
    pub fn texts(&self) -> PolicyRules {
        let texts = |rules: &[WrittenRule]| rules.iter().map(|written| written.rule.clone()).collect();
        PolicyRules { allow: texts(&self.allow), ask: texts(&self.ask), deny: texts(&self.deny) }
    }

    /// Reads a `[policy]` table of configuration.
    pub fn of_table(table: &toml::Table) -> Result<Self, String> {
        let mut rules = Self::default();
        for (key, value) in table {
            let list = match key.as_str() {
                "allow" => &mut rules.allow,
                "ask" => &mut rules.ask,
                "deny" => &mut rules.deny,
                _ => return Err(format!("policy.{key}: there is no such key; near it: {}", Self::KEYS.join(", "))),
            };
            let items = value.as_array().ok_or_else(|| format!("policy.{key}: this must be a list of rules"))?;
            for (at, item) in items.iter().enumerate() {
                list.push(of_value(item).map_err(|problem| format!("policy.{key}[{at}]: {problem}"))?);
            }
        }
        Ok(rules)
    }

    /// Holds every rule against its own examples, and all of them against the tools there are.
    pub fn check<'a>(&self, tools: impl IntoIterator<Item = &'a ToolName>) -> Result<(), BadWritten> {
        let tools: Vec<&ToolName> = tools.into_iter().collect();
        Policy::read(&self.texts(), tools.iter().copied(), Surroundings::default())?;
        for (list, rules) in [(List::Allow, &self.allow), (List::Ask, &self.ask), (List::Deny, &self.deny)] {
            for written in rules {
                let examples = written.matches.iter().map(|example| (example, true));
                for (example, wanted) in examples.chain(written.not_matches.iter().map(|example| (example, false))) {
                    if matches(list, &written.rule, &tools, example)? != wanted {
                        let (rule, example) = (written.rule.clone(), example.clone());
                        return Err(BadWritten::Example { list, rule, example, wanted });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty()
    }
}

/// The one list of a task file's `[policy]`.
pub(super) fn of_section(table: &mut Section, key: &'static str) -> Result<Vec<WrittenRule>, TaskFileError> {
    let Some(node) = table.node(key) else { return Ok(Vec::new()) };
    let Value::List(items) = node.value else {
        return Err(table.unfit(key, node.line, &node.value, "a list of rules"));
    };
    let mut rules = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let place = format!("{key}[{at}]");
        match item.value {
            Value::Text(rule) => rules.push(WrittenRule { rule, ..WrittenRule::default() }),
            Value::Table(_) => {
                let mut table = table.inner(&place, item)?;
                let rule = table.text("rule")?.ok_or_else(|| table.wrong("rule", "which rule are the examples of?"))?;
                let matches = table.texts("match")?.unwrap_or_default();
                let not_matches = table.texts("not_match")?.unwrap_or_default();
                table.finish()?;
                rules.push(WrittenRule { rule, matches, not_matches });
            }
            other @ (Value::Whole(_) | Value::Fraction(_) | Value::Truth(_) | Value::Moment(_) | Value::List(_)) => {
                return Err(table.unfit(
                    &place,
                    item.line,
                    &other,
                    "a rule, or { rule = \"…\", match = […], not_match = […] }",
                ));
            }
        }
    }
    Ok(rules)
}

fn of_value(value: &toml::Value) -> Result<WrittenRule, String> {
    if let Some(rule) = value.as_str() {
        return Ok(WrittenRule { rule: rule.to_owned(), ..WrittenRule::default() });
    }
    let wanted = "this must be a rule, or { rule = \"…\", match = […], not_match = […] }";
    let table = value.as_table().ok_or(wanted)?;
    let mut written = WrittenRule::default();
    for (key, value) in table {
        let texts = || -> Result<Vec<String>, String> {
            let items = value.as_array().ok_or_else(|| format!("{key}: this must be a list of strings"))?;
            let text = |item: &toml::Value| item.as_str().map(str::to_owned);
            items
                .iter()
                .map(|item| text(item).ok_or_else(|| format!("{key}: this must be a list of strings")))
                .collect()
        };
        match key.as_str() {
            "rule" => value.as_str().ok_or("rule: this must be a string")?.clone_into(&mut written.rule),
            "match" => written.matches = texts()?,
            "not_match" => written.not_matches = texts()?,
            _ => return Err(format!("{key}: there is no such key; near it: rule, match, not_match")),
        }
    }
    if written.rule.is_empty() {
        return Err("which rule are the examples of? add rule = \"…\"".to_owned());
    }
    Ok(written)
}

/// Whether a rule is what decides on an example, where it is the only rule.
fn matches(list: List, rule: &str, tools: &[&ToolName], example: &str) -> Result<bool, BadRule> {
    let (name, pattern) = rule.split_once('(').unwrap_or((rule, "*)"));
    let name = name.trim();
    let builtin = Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name);
    let (spec, args) = match builtin.filter(|_| pattern.trim() != "*)") {
        Some(Builtin::Shell) => (longrein_tools::builtin(Builtin::Shell), json!({ "command": example })),
        Some(
            file @ (Builtin::ReadFile
            | Builtin::WriteFile
            | Builtin::EditFile
            | Builtin::ListFiles
            | Builtin::SearchFiles),
        ) => (longrein_tools::builtin(file), json!({ "path": example })),
        // Of a rule that names a tool and no more, an example is a name.
        Some(Builtin::Ask | Builtin::Recall | Builtin::Note | Builtin::WebFetch) | None => {
            return Ok(name == "*" || name == example);
        }
    };
    let args = Payload::of(&args).expect("it has only string keys");
    let decides = |list: List| -> Result<Decides, BadRule> {
        let mut only = PolicyRules::default();
        match list {
            List::Allow => only.allow.push(rule.to_owned()),
            List::Ask => only.ask.push(rule.to_owned()),
            List::Deny => only.deny.push(rule.to_owned()),
        }
        let policy = Policy::read(&only, tools.iter().copied(), Surroundings::default())?;
        let judged = policy.judge(&GateCall {
            tool: &spec,
            args: &args,
            target: None,
            workspace: EXAMPLE_WORKSPACE,
            mode: Mode::Ask,
            taint: &Taint::default(),
            said: &[],
        });
        Ok(match judged.ruling {
            ruling if ruling.rule() == rule => Decides::Yes,
            Ruling::Allow { .. } => Decides::NotNeeded,
            Ruling::Ask { .. } | Ruling::Deny { .. } => Decides::No,
        })
    };
    Ok(match decides(list)? {
        Decides::Yes => true,
        Decides::No => false,
        // What is allowed anyway names no rule; as a denial it would have to.
        Decides::NotNeeded => matches!(decides(List::Deny)?, Decides::Yes),
    })
}

/// What a rule is for an example.
enum Decides {
    Yes,
    No,
    /// The call is allowed without it.
    NotNeeded,
}

/// Where examples are held to happen: relative paths are below it, and nothing is looked at.
const EXAMPLE_WORKSPACE: &str = "/workspace";
