//! Permission rules: may this call run, must a person be asked, or never? A function of the rules and the call.
//!
//! Read [`Policy`] first. Rules name tools: `pay`, `pay(*)`, or `*` for every tool. Deny beats ask beats allow; where no
//! rule matches, declared `read` tools are allowed and all others are asked.
//!
//! Deliberately absent so far: patterns on commands and paths. A rule that has one is refused, never half obeyed.

use std::collections::BTreeSet;
use std::fmt;

use longrein_core::ids::ToolName;
use longrein_core::task::{EffectClass, PolicyRules};
use longrein_ports::{Gate, GateCall, Ruling};

/// The rules of a run, read once. Made only if every rule could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
}

/// A rule and what it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    text: String,
    matches: Matches,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Matches {
    EveryTool,
    Tool(ToolName),
}

/// Which list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Allow,
    Ask,
    Deny,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            List::Allow => "allow",
            List::Ask => "ask",
            List::Deny => "deny",
        })
    }
}

/// A rule that cannot be obeyed. The run must not start: a guess would allow or forbid something nobody wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {list} rule \"{rule}\" {fault}")]
pub struct BadRule {
    pub list: List,
    /// Its place in the list, counted from 0.
    pub index: usize,
    pub rule: String,
    pub fault: Fault,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("cannot be read: write tool, tool(*) or *")]
    Unreadable,
    #[error(
        "has a pattern: patterns on commands and paths come with those tools; until then write {tool} or {tool}(*)"
    )]
    Pattern { tool: String },
    #[error("names a tool this run does not have{}", near_names(near))]
    UnknownTool { near: Vec<String> },
}

impl Policy {
    /// Reads the rules of a run that has these tools.
    pub fn read<'a>(rules: &PolicyRules, tools: impl IntoIterator<Item = &'a ToolName>) -> Result<Self, BadRule> {
        let tools: BTreeSet<&str> = tools.into_iter().map(ToolName::as_str).collect();
        let read = |list: List, texts: &[String]| -> Result<Vec<Rule>, BadRule> {
            let rule = |(index, text): (usize, &String)| {
                let matches = parse(text, &tools);
                matches.map(|matches| Rule { text: text.clone(), matches }).map_err(|fault| BadRule {
                    list,
                    index,
                    rule: text.clone(),
                    fault,
                })
            };
            texts.iter().enumerate().map(rule).collect()
        };
        Ok(Self {
            deny: read(List::Deny, &rules.deny)?,
            ask: read(List::Ask, &rules.ask)?,
            allow: read(List::Allow, &rules.allow)?,
        })
    }
}

impl Gate for Policy {
    fn rule(&self, call: &GateCall<'_>) -> Ruling {
        let first =
            |rules: &[Rule]| rules.iter().find(|rule| rule.matches(&call.tool.name)).map(|rule| rule.text.clone());
        if let Some(rule) = first(&self.deny) {
            let reason = format!("the rule \"{rule}\" denies {}", call.tool.name);
            return Ruling::Deny { rule, reason };
        }
        if let Some(rule) = first(&self.ask) {
            let reason = format!("the rule \"{rule}\" has {} asked first", call.tool.name);
            return Ruling::Ask { rule, reason };
        }
        if let Some(rule) = first(&self.allow) {
            return Ruling::Allow { rule };
        }
        let does = match call.tool.effect {
            EffectClass::Read => return Ruling::Allow { rule: DECLARED_READ.to_owned() },
            EffectClass::Workspace => "changes the workspace",
            EffectClass::External => "changes the world",
        };
        Ruling::Ask { rule: DEFAULT.to_owned(), reason: format!("{} {does} and no rule allows it", call.tool.name) }
    }
}

impl Rule {
    fn matches(&self, tool: &ToolName) -> bool {
        match &self.matches {
            Matches::EveryTool => true,
            Matches::Tool(name) => name == tool,
        }
    }
}

fn parse(text: &str, tools: &BTreeSet<&str>) -> Result<Matches, Fault> {
    let (name, pattern) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').ok_or(Fault::Unreadable)?),
        None => (text, "*"),
    };
    let word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if name != "*" && !word {
        return Err(Fault::Unreadable);
    }
    if pattern.trim().is_empty() {
        return Err(Fault::Unreadable);
    }
    if pattern != "*" {
        return Err(Fault::Pattern { tool: name.to_owned() });
    }
    if name == "*" {
        return Ok(Matches::EveryTool);
    }
    if !tools.contains(name) {
        return Err(Fault::UnknownTool { near: near(name, tools.iter().copied()) });
    }
    Ok(Matches::Tool(ToolName::new(name)))
}

/// Names that may have been meant by `name`: the closest, at most three; all, where there are few.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut ranked: Vec<(usize, &str)> = known.into_iter().map(|known| (distance(name, known), known)).collect();
    ranked.sort_unstable();
    let few = ranked.len() <= NEAR_MAX;
    let close = |(distance, known): &(usize, &str)| few || *distance <= name.len().max(known.len()) / 2;
    ranked.into_iter().filter(close).take(NEAR_MAX).map(|(_, known)| known.to_owned()).collect()
}

/// How many letters must be changed, added or left out to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; near it: {}", near.join(", ")) }
}

/// What allows a `read` tool that no rule speaks of.
const DECLARED_READ: &str = "declared read tool";
/// What asks about every other tool that no rule speaks of.
const DEFAULT: &str = "default";
const NEAR_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use longrein_core::payload::Payload;
    use longrein_core::task::{ToolBody, ToolSpec};

    use super::*;

    /// Rules as `allow a, b; ask c; deny d`, then the ruling on a call of `tool` with this effect.
    fn check(rules: &str, tool: &str, effect: EffectClass) -> String {
        let mut lists = PolicyRules::default();
        for part in rules.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (list, texts) = part.split_once(' ').unwrap();
            let texts = texts.split(',').map(|text| text.trim().to_owned()).collect();
            match list {
                "allow" => lists.allow = texts,
                "ask" => lists.ask = texts,
                "deny" => lists.deny = texts,
                other => panic!("no list {other}"),
            }
        }
        let tools = ["list_due", "pay", "ship", "email"].map(ToolName::new);
        let policy = match Policy::read(&lists, &tools) {
            Ok(policy) => policy,
            Err(bad) => return bad.to_string(),
        };
        let args = Payload::parse("{}").unwrap();
        let tool = ToolSpec::new(ToolName::new(tool), ToolBody::Command(Vec::new()), effect);
        match policy.rule(&GateCall { tool: &tool, args: &args, target: None, workspace: "/w" }) {
            Ruling::Allow { rule } => format!("allow by {rule}"),
            Ruling::Ask { rule, reason } => format!("ask by {rule}: {reason}"),
            Ruling::Deny { rule, reason } => format!("deny by {rule}: {reason}"),
        }
    }

    #[test]
    fn deny_beats_ask_beats_allow_beats_the_default() {
        use EffectClass::{External, Read, Workspace};
        for (rules, tool, effect, ruling) in [
            ("", "list_due", Read, "allow by declared read tool"),
            ("", "pay", External, "ask by default: pay changes the world and no rule allows it"),
            ("", "pay", Workspace, "ask by default: pay changes the workspace and no rule allows it"),
            ("allow pay", "pay", External, "allow by pay"),
            ("allow ship", "pay", External, "ask by default: pay changes the world and no rule allows it"),
            ("allow pay(*); ask pay", "pay", External, "ask by pay: the rule \"pay\" has pay asked first"),
            ("allow pay; ask pay; deny pay(*)", "pay", External, "deny by pay(*): the rule \"pay(*)\" denies pay"),
            ("allow *; deny email", "pay", External, "allow by *"),
            ("allow *; deny email", "email", External, "deny by email: the rule \"email\" denies email"),
            ("allow list_due; deny *", "list_due", Read, "deny by *: the rule \"*\" denies list_due"),
            ("ask list_due", "list_due", Read, "ask by list_due: the rule \"list_due\" has list_due asked first"),
        ] {
            assert_eq!(check(rules, tool, effect), ruling, "{rules}");
        }
    }

    #[test]
    fn a_rule_that_cannot_be_obeyed_stops_the_run() {
        for (rules, said) in [
            ("allow read_file(src/**)", "the allow rule \"read_file(src/**)\" has a pattern: patterns on commands and"),
            ("deny pay(amount > 3)", "patterns on commands and paths come with those tools; until then write pay or"),
            ("ask pai", "the ask rule \"pai\" names a tool this run does not have; near it: pay"),
            ("deny kubernetes", "names a tool this run does not have"),
            ("allow pay(", "cannot be read: write tool, tool(*) or *"),
            ("allow pay()", "cannot be read"),
            ("allow pa y", "cannot be read"),
            ("allow (*)", "cannot be read"),
            ("allow p*", "cannot be read"),
            ("allow pay(*) ship", "cannot be read"),
        ] {
            let found = check(rules, "pay", EffectClass::External);
            assert!(found.contains(said), "{rules}: {found}");
        }
    }
}
