//! Examples of rules: what a rule is said to match and not to match is tried when it is read, so that it cannot mean
//! something else than its author believes.

use std::collections::BTreeSet;

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Builtin, EffectClass, Mode, PolicyRules, ToolBody, ToolSpec};
use longrein_ports::{GateCall, Ruling};
use url::Url;

use crate::path::{self, Case};
use crate::rule::{self, BadRule, CommandPattern, Expected, Fault, List, Matches};
use crate::{Policy, Surroundings};

impl Policy {
    /// Tries a rule on its examples: a command line for `shell`, a path for file tools, a host or address for
    /// `web_fetch`, else the name of a tool. The first that is not as it says is the fault.
    pub fn check_examples<'a>(
        rule: &str,
        list: List,
        tools: impl IntoIterator<Item = &'a ToolName>,
        matching: &[String],
        not_matching: &[String],
    ) -> Result<(), BadRule> {
        let tools: BTreeSet<&str> = tools.into_iter().map(ToolName::as_str).collect();
        let bad = |fault| BadRule { list, index: 0, rule: rule.to_owned(), fault };
        let matches = rule::parse(rule, &tools).map_err(bad)?;
        let examples = matching.iter().map(|example| (example, Expected::Match));
        for (example, expected) in examples.chain(not_matching.iter().map(|example| (example, Expected::NoMatch))) {
            let (found, why) = tried(rule, list, &matches, example);
            if found != (expected == Expected::Match) {
                return Err(bad(Fault::Example { example: example.clone(), expected, why }));
            }
        }
        Ok(())
    }
}

/// Whether a rule matches its example; and why it cannot.
fn tried(rule: &str, list: List, matches: &Matches, example: &str) -> (bool, Option<String>) {
    match matches {
        Matches::EveryTool => (true, None),
        Matches::Tool(name) => (crate::rule::fits(name.as_str(), example), None),
        Matches::Paths(_, pattern) => {
            let case = if list == List::Allow { Case::Matters } else { Case::Ignored };
            if example.starts_with('/') != pattern.is_absolute {
                let kind = if pattern.is_absolute { "absolute" } else { "relative to the workspace" };
                return (false, Some(format!("the rule is about paths that are {kind}")));
            }
            let plain = path::absolute("/", example);
            (pattern.covers(if pattern.is_absolute { &plain } else { plain.trim_start_matches('/') }, case), None)
        }
        Matches::Hosts(pattern) => {
            let text = if example.contains("://") { example.to_owned() } else { format!("https://{example}") };
            match Url::parse(&text) {
                Ok(url) if list == List::Allow => (pattern.covers(&url), None),
                Ok(url) => (pattern.binds(&url), None),
                Err(_) => (false, Some("it is no host or address".to_owned())),
            }
        }
        Matches::Commands(pattern) => match list {
            List::Allow => match CommandPattern::parse(example).map(|words| words.words().map(owned)) {
                Ok(Some(words)) => {
                    (pattern.matches(&words.iter().map(|word| Some(word.as_str())).collect::<Vec<_>>()), None)
                }
                Ok(None) => {
                    (false, Some("an allow rule covers plain words only, no patterns of file names".to_owned()))
                }
                Err(fault) => (false, Some(format!("the example {fault}"))),
            },
            // what forbids looks into wrappers and pipelines
            List::Ask | List::Deny => (forbids(rule, example), None),
        },
    }
}

fn owned(words: Vec<&str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// Whether this command would be denied, were the rule one that denies.
fn forbids(rule: &str, command: &str) -> bool {
    let rules = PolicyRules { deny: vec![rule.to_owned()], ..PolicyRules::default() };
    let Ok(policy) = Policy::read(&rules, std::iter::empty(), Surroundings::default()) else { return false };
    let name = ToolName::new(Builtin::Shell.as_str());
    let tool = ToolSpec::new(name, ToolBody::Builtin(Builtin::Shell), EffectClass::External);
    let Ok(args) = Payload::of(&serde_json::json!({ "command": command })) else { return false };
    let call = GateCall {
        tool: &tool,
        args: &args,
        target: None,
        workspace: "/workspace",
        mode: Mode::Ask,
        taint: &Taint::default(),
        said: &[],
    };
    match policy.judge(&call).ruling {
        Ruling::Deny { rule: found, .. } => found == rule,
        Ruling::Allow { .. } | Ruling::Ask { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, list: List, matching: &[&str], not_matching: &[&str]) -> String {
        let tools = ["pay"].map(ToolName::new);
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        match Policy::check_examples(rule, list, &tools, &texts(matching), &texts(not_matching)) {
            Ok(()) => "holds".to_owned(),
            Err(bad) => bad.to_string(),
        }
    }

    #[test]
    fn a_rule_is_held_to_its_examples() {
        use List::{Allow, Ask, Deny};
        for (rule, list, matching, not_matching) in [
            (
                "shell(git status *)",
                Allow,
                &["git status", "git status -s"][..],
                &["git stash", "git status; rm x"][..],
            ),
            ("shell(rm *)", Deny, &["rm a", "sudo rm a", "ls | xargs rm", "sh -c 'rm a'"], &["ls", "echo rm"]),
            ("write_file(src/**)", Allow, &["src/a.rs", "./src/b/c"], &["tests/a.rs", "src/../x", "SRC/a", "/etc/x"]),
            ("write_file(src/**)", Deny, &["SRC/a"], &["tests/a"]),
            ("read_file(/usr/include/**)", Allow, &["/usr/include/stdio.h"], &["usr/include/x"]),
            (
                "web_fetch(*.rust-lang.org)",
                Allow,
                &["doc.rust-lang.org", "https://a.rust-lang.org/x"],
                &["rust-lang.org"],
            ),
            ("pay", Ask, &["pay"], &["ship"]),
        ] {
            assert_eq!(check(rule, list, matching, not_matching), "holds", "{rule}");
        }
        assert_eq!(
            check("shell(git status *)", Allow, &["git stash"], &[]),
            "the allow rule \"shell(git status *)\" does not match its example \"git stash\""
        );
        assert_eq!(
            check("shell(git *)", Allow, &[], &["git push"]),
            "the allow rule \"shell(git *)\" matches \"git push\", which it says it does not"
        );
        assert!(check("shell(git *)", Allow, &["git a | b"], &[]).contains("joins several commands"));
        assert!(check("read_file(/x)", Allow, &["x"], &[]).contains("paths that are absolute"));
    }
}
