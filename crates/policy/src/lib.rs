//! Permission rules: may this call run, must a person be asked, or never? A function of the rules and the call.
//!
//! Read [`Policy`] first, then `shell` (commands) and `files` (paths). Deny beats ask beats allow; where no rule matches,
//! the analysis's own default holds: what only reads inside the workspace is allowed, all else is asked. Some findings no
//! rule lifts: what reaches Longrein's own files, secrets, the removal of everything, and whatever cannot be told without
//! running it.
//!
//! It touches no file system: what links and folders there are is asked of [`World`].
//!
//! Deliberately absent so far: permission modes, taint, the network and MCP.

mod files;
mod git;
mod near;
mod path;
mod rule;
mod shell;
mod verdict;

use std::collections::BTreeSet;

use longrein_core::ids::ToolName;
use longrein_core::target::Place;
use longrein_core::task::{Builtin, EffectClass, PolicyRules, ToolBody};
use longrein_ports::{Answers, Gate, GateCall, Ruled};
pub use longrein_ports::{Effect, EffectKind};
use serde_json::{Map, Value};

pub use near::near;
pub use path::{File, Surroundings, Unseen, World};
pub use rule::{BadRule, Fault, List};

use files::{By, Touch};
use rule::{Matches, Rule};
use shell::table::{Purpose, shown};
use verdict::{Strictness, Verdict, own};

/// The rules of a run, read once, and where they hold. Made only if every rule could be read.
#[derive(Clone)]
pub struct Policy {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
    surroundings: Surroundings,
}

impl Policy {
    /// Reads the rules of a run that has these tools.
    pub fn read<'a>(
        rules: &PolicyRules,
        tools: impl IntoIterator<Item = &'a ToolName>,
        surroundings: Surroundings,
    ) -> Result<Self, BadRule> {
        let tools: BTreeSet<&str> = tools.into_iter().map(ToolName::as_str).collect();
        let read = |list: List, texts: &[String]| -> Result<Vec<Rule>, BadRule> {
            let rule = |(index, text): (usize, &String)| {
                let matches = rule::parse(text, &tools);
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
            surroundings,
        })
    }

    /// The ruling, and what the call would touch.
    pub fn judge(&self, call: &GateCall<'_>) -> Ruled {
        let mut effects = Vec::new();
        let verdict = self.verdict(call, &mut effects);
        Ruled { ruling: verdict.ruling(), answers: Answers::Remembered, effects, brings: None }
    }

    fn verdict(&self, call: &GateCall<'_>, effects: &mut Vec<Effect>) -> Verdict {
        let name = &call.tool.name;
        let named = |rules: &[Rule]| rules.iter().find(|rule| rule.names(name)).map(|rule| rule.text.clone());
        if let Some(rule) = named(&self.deny) {
            let reason = format!("the rule \"{rule}\" denies {name}");
            return Verdict::new(Strictness::Deny, &rule, reason);
        }
        let asked = named(&self.ask).map(|rule| {
            let reason = format!("the rule \"{rule}\" has {name} asked first");
            Verdict::new(Strictness::Ask, &rule, reason)
        });
        let verdict = match &call.tool.body {
            ToolBody::Builtin(builtin) => self.builtin(*builtin, call, effects),
            ToolBody::Command(_) | ToolBody::Host(_) => match named(&self.allow) {
                Some(rule) => Verdict::allow(&rule),
                None => undeclared(name, call.tool.effect),
            },
        };
        match asked {
            Some(asked) => asked.and(verdict),
            None => verdict,
        }
    }

    fn builtin(&self, builtin: Builtin, call: &GateCall<'_>, effects: &mut Vec<Effect>) -> Verdict {
        let Ok(Value::Object(args)) = call.args.read::<Value>() else {
            return Verdict::new(Strictness::Ask, own::UNREADABLE, "its arguments are no JSON object");
        };
        match builtin {
            Builtin::Ask => Verdict::allow(own::ASKS_A_PERSON),
            Builtin::Recall | Builtin::Note => Verdict::allow(own::OF_THE_RUN),
            Builtin::WebFetch => Verdict::new(Strictness::UnlessSpelt, own::DEFAULT, "it reaches another machine"),
            Builtin::Shell => self.shell(&args, call.workspace, effects),
            Builtin::ReadFile => self.file(builtin, Purpose::Read, &args, call, effects),
            Builtin::ListFiles => self.file(builtin, Purpose::List, &args, call, effects),
            Builtin::SearchFiles => self.file(builtin, Purpose::ReadBelow, &args, call, effects),
            Builtin::WriteFile | Builtin::EditFile => self.file(builtin, Purpose::Write, &args, call, effects),
        }
    }

    fn file(
        &self,
        builtin: Builtin,
        purpose: Purpose,
        args: &Map<String, Value>,
        call: &GateCall<'_>,
        effects: &mut Vec<Effect>,
    ) -> Verdict {
        let path = match (args.get("path"), purpose) {
            (Some(Value::String(path)), _) if !path.is_empty() => path.as_str(),
            (None | Some(Value::Null), Purpose::List | Purpose::ReadBelow) => ".",
            _ => return Verdict::new(Strictness::Ask, own::UNREADABLE, "it does not say which path it is about"),
        };
        let mut verdict = match shell::suspicious(path) {
            Some(reason) => Verdict::new(Strictness::Ask, own::UNREADABLE, reason),
            None => Verdict::allow(own::DEFAULT),
        };
        let resolved = call.target.map(|target| match target.place {
            Place::Inside => path::absolute(call.workspace, &target.path),
            Place::Outside => target.path.clone(),
        });
        // what a search is narrowed to may be a secret by name
        if let Some(Value::String(glob)) = args.get("glob") {
            let names = path::SECRET_EXAMPLES.iter().any(|secret| path::glob_matches(last_part(glob), secret));
            if purpose == Purpose::ReadBelow && !glob.starts_with('!') && names && !last_part(glob).starts_with('*') {
                let reason = format!("{} stands for files that usually hold secrets", shown(glob));
                verdict = verdict.and(Verdict::new(Strictness::Deny, own::SECRET, reason));
            }
        }
        let touch = Touch {
            by: By::Tool(builtin),
            purpose,
            path,
            resolved: resolved.as_deref(),
            folder: call.workspace,
            workspace: call.workspace,
        };
        verdict.and(self.touch(&touch, effects))
    }

    fn shell(&self, args: &Map<String, Value>, workspace: &str, effects: &mut Vec<Effect>) -> Verdict {
        let ask = |reason: String| Verdict::new(Strictness::Ask, own::UNREADABLE, reason);
        let Some(Value::String(command)) = args.get("command") else {
            let verdict = ask("its command is no text".to_owned());
            // whoever wrote a list of words meant them to be run
            let Some(Value::Array(words)) = args.get("command") else { return verdict };
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            return verdict.and(self.command(&words.join(" "), workspace.to_owned(), workspace, effects));
        };
        let mut verdict = Verdict::allow(own::DEFAULT);
        if let Some(other) = args.keys().find(|key| !matches!(key.as_str(), "command" | "cwd" | "timeout")) {
            verdict = verdict.and(ask(format!("shell has no argument {}", shown(other))));
        }
        let folder = match args.get("cwd") {
            None | Some(Value::Null) => workspace.to_owned(),
            Some(Value::String(cwd)) => {
                let touch = Touch {
                    by: By::Command,
                    purpose: Purpose::List,
                    path: cwd,
                    resolved: None,
                    folder: workspace,
                    workspace,
                };
                verdict = verdict.and(self.touch(&touch, &mut Vec::new()));
                path::absolute(workspace, cwd)
            }
            Some(_) => return ask("its cwd is no text".to_owned()),
        };
        verdict.and(self.command(command, folder, workspace, effects))
    }
}

impl Gate for Policy {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        self.judge(call)
    }
}

impl Rule {
    /// Whether it speaks of every call of this tool.
    fn names(&self, tool: &ToolName) -> bool {
        match &self.matches {
            Matches::EveryTool => true,
            Matches::Tool(name) => name == tool,
            Matches::Paths(..) | Matches::Commands(_) => false,
        }
    }
}

/// A tool of the task of which no rule speaks.
fn undeclared(name: &ToolName, effect: EffectClass) -> Verdict {
    let does = match effect {
        EffectClass::Read => return Verdict::allow(own::DECLARED_READ),
        EffectClass::Workspace => "changes the workspace",
        EffectClass::External => "changes the world",
    };
    Verdict::new(Strictness::Unless, own::DEFAULT, format!("{name} {does} and no rule allows it"))
}

fn last_part(pattern: &str) -> &str {
    pattern.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
