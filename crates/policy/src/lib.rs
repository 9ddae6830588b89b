//! Permission rules: may this call run, must a person be asked, or never? A function of the rules and the call.
//!
//! Read [`Policy::judge`] first, then `shell` (commands), `files` (paths), `fetch` (addresses) and `mcp`. Deny beats ask
//! beats allow; where no rule matches, the analysis's own default holds: what only reads inside the workspace is allowed,
//! all else is asked. Some findings no rule lifts: what reaches Longrein's own files, secrets, the removal of everything,
//! and whatever cannot be told without running it.
//!
//! Three steps follow the verdict, in this order: the permission mode answers some questions (`modes`), what the sandbox
//! does not hold is asked (`modes`), and what the run has read makes stricter (`escalate`). `label` says what the result
//! will bring into the run.
//!
//! It touches neither files nor the network: links, names and addresses are asked of [`World`], the sandbox of [`Fence`],
//! what earlier runs left of [`Ledger`].

mod beyond;
mod credential;
mod escalate;
mod examples;
mod fetch;
mod files;
mod git;
mod hosts;
mod label;
mod mcp;
mod modes;
mod named;
mod near;
mod obeyed;
mod path;
mod rule;
mod shell;
mod verdict;

use std::collections::BTreeSet;

use longrein_core::ids::ToolName;
use longrein_core::ruling::EFFECTS_MAX;
use longrein_core::target::Place;
use longrein_core::task::{Builtin, EffectClass, PolicyRules, ToolBody};
use longrein_ports::{Answers, Gate, GateCall, Ruled, Ruling};
pub use longrein_ports::{Effect, EffectKind, Ledger};
use serde_json::{Map, Value};

pub use modes::{Containment, Fence};
pub use near::near;
pub use obeyed::obeyed_by_git;
pub use path::{File, Surroundings, Unseen, World};
pub use rule::{BadRule, Expected, Fault, List};
pub use shell::{RunAs, RunBy};
pub use verdict::TAINT_RULE;

use escalate::{Carries, TABLE, escalate, flows};
use files::{By, Places, Touch};
use modes::Nature;
use rule::{Matches, Rule};
use shell::Executed;
use shell::table::{Purpose, shown};
use verdict::{Doubt, Strictness, Verdict, own};

/// The rules of a run, read once, and where they hold. Made only if every rule could be read.
#[derive(Clone)]
pub struct Policy {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
    surroundings: Surroundings,
    found: obeyed::Found,
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
            found: obeyed::Found::default(),
        })
    }

    /// The ruling, what the call would touch, and what its result would bring.
    pub fn judge(&self, call: &GateCall<'_>) -> Ruled {
        let mut effects = Vec::new();
        let mut carries = Carries::Nothing;
        let mut executed = Executed::default();
        let verdict = self.verdict(call, &mut effects, &mut carries, &mut executed);
        let nature = match &call.tool.body {
            ToolBody::Builtin(builtin) => match builtin {
                Builtin::Ask | Builtin::Recall | Builtin::Note => Nature::OfTheRun,
                Builtin::ReadFile | Builtin::ListFiles | Builtin::SearchFiles => Nature::ReadsFiles,
                Builtin::WriteFile | Builtin::EditFile => Nature::WritesFiles,
                Builtin::Shell => Nature::Shell,
                Builtin::WebFetch => Nature::Fetch,
            },
            ToolBody::Command(_) | ToolBody::Host(_) => Nature::Declared(call.tool),
            ToolBody::Mcp(of) => return self.judge_tool_of_server(call, &of.server, &of.tool),
        };
        let verdict = verdict.and(self.runs_marked(&executed));
        let ruled = self.settle(call, nature, verdict, effects, carries, None);
        once(ruled, executed)
    }

    /// The files whose content this command runs in `folder`, by absolute paths, as far as that can be told by its words and by
    /// those of the scripts among them. Nothing is ruled.
    pub fn run_by(&self, command: &[String], folder: &str, workspace: &str) -> RunBy {
        shell::run_by(self, &quoted(command), folder, workspace)
    }

    /// What running a file deserves that strangers may have written: no rule about a program is one about its content.
    fn runs_marked(&self, executed: &Executed) -> Verdict {
        let ledger = self.surroundings.ledger.as_ref();
        for file in executed.files.keys() {
            let real = path::resolve(self.surroundings.world.as_ref(), "/", file);
            let mark = ledger.file(real.as_deref().unwrap_or(file));
            let untrusted = mark.filter(|mark| mark.label.integrity == longrein_core::taint::Integrity::Untrusted);
            if let Some(mark) = untrusted {
                let reason = format!("it runs {}, which was written by what {} says", shown(file), shown(&mark.source));
                return Verdict::new(Strictness::Ask, own::TAINT, reason);
            }
        }
        Verdict::allow(own::DEFAULT)
    }

    /// What mode, sandbox and taint make of a verdict.
    fn settle(
        &self,
        call: &GateCall<'_>,
        nature: Nature<'_>,
        verdict: Verdict,
        effects: Vec<Effect>,
        carries: Carries,
        server: Option<&str>,
    ) -> Ruled {
        let fence = &self.surroundings.fence;
        let places = Places::new(self, call.workspace);
        let verdict = match nature {
            Nature::Shell => verdict.and(self.hosts_of(&effects)),
            Nature::OfTheRun
            | Nature::ReadsFiles
            | Nature::WritesFiles
            | Nature::Fetch
            | Nature::Declared(_)
            | Nature::Mcp => verdict,
        };
        let verdict =
            modes::under(call.mode, nature, verdict, &effects, &places, fence.as_ref(), call.taint.label().integrity);
        let flows = flows(nature, call, &effects, carries, &places, || fence.holds());
        let verdict = escalate(TABLE, verdict, &flows, call.taint);
        let brings = match verdict.strictness {
            Strictness::DenyUnlessSpelt | Strictness::Deny => Vec::new(),
            Strictness::Allow
            | Strictness::Unless
            | Strictness::UnlessSpelt
            | Strictness::Ask
            | Strictness::DenyUnlessTyped => self.brings(nature, call, &effects, server, &places),
        };
        let unless_typed = (verdict.strictness == Strictness::DenyUnlessTyped).then(|| escalate::to_type(&flows));
        // a yes from before the run had read it says nothing of what it reads into the call now
        let answers = if call.taint.label().is_tainted() { Answers::Fresh } else { Answers::Remembered };
        let beyond = self.beyond(call, &effects);
        Ruled { ruling: verdict.ruling(), answers, unless_typed, effects, beyond, brings, runs: Vec::new() }
    }

    fn verdict(
        &self,
        call: &GateCall<'_>,
        effects: &mut Vec<Effect>,
        carries: &mut Carries,
        executed: &mut Executed,
    ) -> Verdict {
        let name = &call.tool.name;
        let named = self.named_rule(name.as_str());
        if let Some(denied) = named.as_ref().filter(|named| named.strictness == Strictness::Deny) {
            return denied.clone();
        }
        let verdict = match &call.tool.body {
            ToolBody::Builtin(builtin) => self.builtin(*builtin, call, effects, carries, executed),
            ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => {
                match call.tool.effect {
                    EffectClass::Read => {}
                    EffectClass::Workspace | EffectClass::External => {
                        Effect::add(effects, EffectKind::Unknown, name.as_str());
                    }
                }
                match self.allow.iter().find(|rule| rule.names(name)) {
                    Some(rule) => Verdict::allow(&rule.text),
                    None => undeclared(name, call.tool.effect),
                }
            }
        };
        match named {
            Some(asked) => asked.and(verdict),
            None => verdict,
        }
    }

    /// What a deny or ask rule says of every call of a tool.
    fn named_rule(&self, name: &str) -> Option<Verdict> {
        let name = ToolName::new(name);
        let named = |rules: &[Rule]| rules.iter().find(|rule| rule.names(&name)).map(|rule| rule.text.clone());
        if let Some(rule) = named(&self.deny) {
            let reason = format!("the rule \"{rule}\" denies {name}");
            return Some(Verdict::new(Strictness::Deny, &rule, reason));
        }
        let rule = named(&self.ask)?;
        let reason = format!("the rule \"{rule}\" has {name} asked first");
        Some(Verdict::new(Strictness::Ask, &rule, reason))
    }

    fn builtin(
        &self,
        builtin: Builtin,
        call: &GateCall<'_>,
        effects: &mut Vec<Effect>,
        carries: &mut Carries,
        executed: &mut Executed,
    ) -> Verdict {
        let Ok(Value::Object(args)) = call.args.read::<Value>() else {
            *carries = Carries::Data;
            return Verdict::new(Strictness::Ask, own::UNREADABLE, "its arguments are no JSON object");
        };
        match builtin {
            Builtin::Ask => Verdict::allow(own::ASKS_A_PERSON),
            Builtin::Recall | Builtin::Note => Verdict::allow(own::OF_THE_RUN),
            Builtin::WebFetch => {
                let (verdict, found) = self.fetch(&args, call, effects);
                *carries = found;
                verdict
            }
            Builtin::Shell => self.shell(&args, call.workspace, effects, executed),
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
        if let Some(missing) = missing(builtin, args) {
            let reason = format!("its argument {missing} is missing or no text");
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
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

    fn shell(
        &self,
        args: &Map<String, Value>,
        workspace: &str,
        effects: &mut Vec<Effect>,
        executed: &mut Executed,
    ) -> Verdict {
        let ask = |reason: String| Verdict::new(Strictness::Ask, own::UNREADABLE, reason);
        let Some(Value::String(command)) = args.get("command") else {
            let verdict = ask("its command is no text".to_owned());
            Effect::add(effects, EffectKind::Unknown, "a command that is no text");
            // whoever gave its words as a list meant them; what is denied stays denied
            let words = fetch::texts(args.get("command").unwrap_or(&Value::Null));
            return match words.is_empty() {
                true => verdict,
                false => {
                    let text = listed(args.get("command"));
                    verdict.and(self.command(&text, workspace.to_owned(), workspace, effects, executed))
                }
            };
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
        let verdict = verdict.and(self.command(command, folder, workspace, effects, executed));
        if verdict.doubts.has(Doubt::Unseen) && verdict.strictness != Strictness::Deny {
            Effect::add(effects, EffectKind::Unknown, &verdict.reason);
        }
        verdict
    }
}

/// What is run is part of the ruling; a yes to what cannot be told counts once, and that is said.
fn once(ruled: Ruled, executed: Executed) -> Ruled {
    let runs = executed.files.into_keys().collect();
    match (ruled.ruling, executed.untold) {
        (Ruling::Ask { rule, reason }, Some(untold)) => {
            let reason = format!("{reason} (a yes counts once: {untold})");
            Ruled { ruling: Ruling::Ask { rule, reason }, answers: Answers::Fresh, runs, ..ruled }
        }
        (ruling, _) => Ruled { ruling, runs, ..ruled },
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
            Matches::Tool(name) => rule::fits(name.as_str(), tool.as_str()),
            Matches::Paths(..) | Matches::Commands(_) | Matches::Hosts(_) => false,
        }
    }
}

/// The text that a tool needs and is not given.
fn missing(builtin: Builtin, args: &Map<String, Value>) -> Option<&'static str> {
    let needed: &[&str] = match builtin {
        Builtin::WriteFile => &["content"],
        Builtin::EditFile => &["old", "new"],
        Builtin::SearchFiles
        | Builtin::ReadFile
        | Builtin::ListFiles
        | Builtin::Shell
        | Builtin::Ask
        | Builtin::Recall
        | Builtin::Note
        | Builtin::WebFetch => &[],
    };
    needed.iter().find(|name| !args.get(**name).is_some_and(Value::is_string)).copied()
}

/// Words of a list, as a shell would be given them.
fn listed(words: Option<&Value>) -> String {
    let Some(Value::Array(words)) = words else { return String::new() };
    quoted(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>())
}

fn quoted(words: &[impl AsRef<str>]) -> String {
    let words = words.iter().map(AsRef::as_ref);
    words.map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ")
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
