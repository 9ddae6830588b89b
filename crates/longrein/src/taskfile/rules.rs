//! Permission rules as people write them, in task files and in configuration: a text, or a text with examples that are held
//! against it before anything starts. A rule that does not do what its writer says it does stops the run.

use longrein_core::ids::ToolName;
use longrein_core::task::PolicyRules;
use longrein_policy::{BadRule, List, Policy, Surroundings};

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
    pub fn check<'a>(&self, tools: impl IntoIterator<Item = &'a ToolName>) -> Result<(), BadRule> {
        let tools: Vec<&ToolName> = tools.into_iter().collect();
        Policy::read(&self.texts(), tools.iter().copied(), Surroundings::default())?;
        for (list, rules) in [(List::Allow, &self.allow), (List::Ask, &self.ask), (List::Deny, &self.deny)] {
            for (index, written) in rules.iter().enumerate() {
                let WrittenRule { rule, matches, not_matches } = written;
                Policy::check_examples(rule, list, tools.iter().copied(), matches, not_matches)
                    .map_err(|bad| BadRule { index, ..bad })?;
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
