//! Which list wins, and which rules stop a run.

use longrein_core::payload::Payload;
use longrein_core::taint::Taint;
use longrein_core::task::{Mode, ToolBody, ToolSpec};

use longrein_ports::Ruling;

use super::*;

/// Rules as `allow a, b; ask c; deny d`, then the ruling on a call of the task's own `tool` with this effect.
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
    let policy = match Policy::read(&lists, &tools, Surroundings::default()) {
        Ok(policy) => policy,
        Err(bad) => return bad.to_string(),
    };
    let args = Payload::parse("{}").unwrap();
    let tool = ToolSpec::new(ToolName::new(tool), ToolBody::Command(Vec::new()), effect);
    match policy
        .rule(&GateCall {
            tool: &tool,
            args: &args,
            target: None,
            workspace: "/w",
            mode: Mode::Ask,
            taint: &Taint::default(),
            said: &[],
        })
        .ruling
    {
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
        (
            "deny pay(amount > 3)",
            "has a pattern, and only file tools, shell and web_fetch take one; write pay or pay(*)",
        ),
        ("deny ask(x)", "only file tools, shell and web_fetch take one"),
        ("ask pai", "the ask rule \"pai\" names a tool this run does not have; near it: pay"),
        ("allow read_fil(src/**)", "names a tool this run does not have; near it: read_file"),
        ("deny kubernetes", "names a tool this run does not have"),
        ("allow pay(", "cannot be read: write tool, tool(pattern) or *"),
        ("allow pay()", "cannot be read"),
        ("allow pa y", "cannot be read"),
        ("allow (*)", "cannot be read"),
        ("allow p*", "cannot be read"),
        ("allow *(x)", "cannot be read"),
        ("allow pay(*) ship", "cannot be read"),
        ("allow read_file(~/x)", "begins with ~, which is another folder for every user; write the absolute path"),
        ("allow read_file(../x)", "leads out of the workspace; write the absolute path"),
        ("deny write_file(src/*.{rs}", "cannot be read"),
        (
            "deny write_file(a[b])",
            "* stands for any part of one name and ** for any number of folders, as in write_file(src/**)",
        ),
        ("deny write_file(a?)", "? [ ] { } \\ are not taken"),
        ("allow shell(git:*)", "would match no command; write shell(git *)"),
        ("allow shell(cargo test:*)", "would match no command; write shell(cargo test *)"),
        ("allow shell(ls | wc)", "joins several commands"),
        ("allow shell(ls && pwd)", "joins several commands"),
        ("allow shell(echo $HOME)", "joins several commands"),
        ("allow shell(git 'x)", "has a quote that is never closed"),
    ] {
        let found = check(rules, "pay", EffectClass::External);
        assert!(found.contains(said), "{rules}: {found}");
    }
}

#[test]
fn a_built_in_tool_may_be_named_whether_it_is_offered_or_not() {
    for rules in [
        "deny shell",
        "deny write_file(.github/**)",
        "allow read_file(/etc/*)",
        "allow shell(git status *)",
        "ask search_files(*)",
    ] {
        assert_eq!(check(rules, "pay", EffectClass::Read), "allow by declared read tool", "{rules}");
    }
}
