//! Calls of tools on servers of somebody else's (MCP). Nothing is known of what they do, so they are asked about; what
//! their arguments name may be denied. What a server says of its own tools is a claim and lifts nothing.

use longrein_core::ruling::Ruling;
use longrein_core::task::{EffectClass, ToolBody};
use longrein_ports::{GateCall, Ruled};
use serde_json::{Map, Value};

use crate::credential;
use crate::escalate::Carries;
use crate::files::{By, Touch};
use crate::modes::Nature;
use crate::shell::Executed;
use crate::shell::{
    suspicious,
    table::{Purpose, shown},
};
use crate::verdict::{Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

impl Policy {
    /// The ruling on a call of an MCP tool. `call.args` is `{server, tool, arguments}`.
    pub fn judge_mcp(&self, call: &GateCall<'_>) -> Ruled {
        let args = match call.args.read::<Value>() {
            Ok(Value::Object(args)) => args,
            Ok(_) | Err(_) => Map::new(),
        };
        let name = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let (server, tool) = (name("server"), name("tool"));
        let mut effects = Vec::new();
        Effect::add(&mut effects, EffectKind::Unknown, &format!("{server}: {tool}"));
        let reason = format!("what {} of the server {} does cannot be told", shown(tool), shown(server));
        let mut verdict = Verdict::new(Strictness::Unless, own::MCP, reason);
        if server.is_empty() || tool.is_empty() {
            verdict =
                verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "it does not say which server and tool"));
        }
        if let Some(name) = self.named_rule(call.tool.name.as_str()) {
            verdict = verdict.and(name);
        }
        let about = About::of(server, tool);
        let mut budget = TEXTS_MAX;
        for (key, value) in &args {
            if !matches!(key.as_str(), "server" | "tool") {
                verdict = verdict.and(self.argument(call, "", value, about, &mut budget, 0));
            }
        }
        if budget == 0 {
            verdict =
                verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "it has too many arguments to look at"));
        }
        self.settle(call, Nature::Mcp, verdict, effects, Carries::Data, Some(server))
    }

    /// The ruling on a call of a server's tool that the run has under a name of its own. What configuration says of its effect
    /// counts, and rules by that name; what its arguments name is looked at in any case.
    pub(crate) fn judge_tool_of_server(&self, call: &GateCall<'_>, server: &str, tool: &str) -> Ruled {
        let name = &call.tool.name;
        let mut effects = Vec::new();
        let of_server = format!("{server}: {tool}");
        let (nature, mut verdict) = match call.tool.effect {
            EffectClass::Read => (Nature::Declared(call.tool), Verdict::allow(own::DECLARED_READ)),
            EffectClass::Workspace | EffectClass::External => {
                Effect::add(&mut effects, EffectKind::Unknown, &of_server);
                let reason = format!("what {} of the server {} does cannot be told", shown(tool), shown(server));
                (Nature::Mcp, Verdict::new(Strictness::Unless, own::MCP, reason))
            }
        };
        if let Some(rule) = self.allow.iter().find(|rule| rule.names(name)) {
            verdict = Verdict::allow(&rule.text);
        }
        if let Some(named) = self.named_rule(name.as_str()) {
            verdict = verdict.and(named);
        }
        match call.args.read::<Value>() {
            Ok(mut args) => {
                let mut budget = TEXTS_MAX;
                if matches!(&call.tool.body, ToolBody::Mcp(of) if of.reads) {
                    without_own_address(&mut args);
                }
                verdict = verdict.and(self.argument(call, "", &args, About::of(server, tool), &mut budget, 0));
                if budget == 0 {
                    let reason = "it has too many arguments to look at";
                    verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
                }
            }
            Err(_) => {
                verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "its arguments cannot be read"));
            }
        }
        let stranger = call.tool.declared.untrusted.then_some(server);
        let ruled = self.settle(call, nature, verdict, effects, Carries::Data, stranger);
        Ruled { ruling: with_ways_out(ruled.ruling, call, server), ..ruled }
    }

    fn argument(
        &self,
        call: &GateCall<'_>,
        key: &str,
        value: &Value,
        about: About,
        budget: &mut usize,
        depth: usize,
    ) -> Verdict {
        let none = Verdict::allow(own::DEFAULT);
        if *budget == 0 || depth > DEPTH_MAX {
            *budget = 0;
            return none;
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => none,
            Value::String(text) => {
                *budget -= 1;
                let found = self.text(call, key, text, about);
                // arguments within a text are arguments
                let is_json = text.trim_start().starts_with(['{', '[']) && text.len() <= NESTED_MAX;
                let inner = if is_json { serde_json::from_str::<Value>(text).ok() } else { None };
                match inner {
                    Some(inner) => found.and(self.argument(call, key, &inner, about, budget, depth + 1)),
                    None => found,
                }
            }
            Value::Array(values) => {
                // a command as a list of words
                let words: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
                let argv = words.filter(|_| about.is_shell(key)).map_or(none.clone(), |words| self.argv(call, &words));
                let each = values.iter().map(|value| self.argument(call, key, value, about, budget, depth + 1));
                each.fold(argv, Verdict::and)
            }
            Value::Object(values) => {
                let mut verdict = none;
                // the words after a command are often apart from it
                let command = ["command", "cmd", "program"].iter().find_map(|key| values.get(*key)?.as_str());
                let rest = ["args", "arguments", "argv"].iter().find_map(|key| values.get(*key)?.as_array());
                if let (Some(command), Some(rest)) = (command, rest) {
                    let words: Vec<&str> =
                        std::iter::once(command).chain(rest.iter().filter_map(Value::as_str)).collect();
                    verdict = verdict.and(self.argv(call, &words));
                }
                for (key, value) in values {
                    verdict = verdict.and(self.argument(call, key, value, about, budget, depth + 1));
                }
                verdict
            }
        }
    }

    /// What one text among the arguments is denied for.
    fn text(&self, call: &GateCall<'_>, key: &str, text: &str, about: About) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        if let Some(kind) = credential::found_in(text) {
            let reason = format!("its argument {} holds what looks like {kind}", shown(key));
            return Verdict::new(Strictness::Deny, own::SECRET, reason);
        }
        let key = key.to_lowercase();
        let names = |keys: &[&str]| keys.iter().any(|part| key.contains(part));
        let is_path_key = names(&PATH_KEYS) || (names(&PLACE_KEYS) && text.contains(['/', '.']));
        let path = text.strip_prefix("file://").unwrap_or(text);
        let looks_like_path = !text.contains("://") || path.len() != text.len();
        let one_word = !path.contains(char::is_whitespace) && !path.is_empty() && path.len() <= PATH_MAX;
        if looks_like_path && ((is_path_key && path.len() <= PATH_MAX) || (one_word && path.contains('/'))) {
            verdict = verdict.and(self.named_path(call, path, about));
        }
        let is_address_key = ADDRESS_KEYS.iter().any(|part| key.contains(part));
        if (is_address_key || (one_word && text.contains("://") && path.len() == text.len()))
            && let Some(inside) = self.leads_inside(text.trim())
        {
            verdict = verdict.and(inside);
        }
        if about.is_shell(&key) {
            verdict = verdict.and(self.shell_text(call, text));
        }
        if about.is_database || SQL_KEYS.contains(&key.as_str()) {
            verdict = verdict.and(sql(text));
            // what is quoted may look like a comment: then it is judged with it
            verdict = verdict.and(sql(&text.replace("/*", " ").replace("--", " ")));
        }
        if let Some(reason) = suspicious(text).filter(|_| is_path_key || is_address_key) {
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        verdict
    }

    /// A path in the hands of a server: reading it must not be denied, nor writing it, unless the tool's name says that it
    /// only reads.
    fn named_path(&self, call: &GateCall<'_>, path: &str, about: About) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        for purpose in [Purpose::Read, Purpose::Write, Purpose::Delete] {
            if purpose == Purpose::Delete && !about.removes {
                continue;
            }
            let touch = Touch {
                by: By::Command,
                purpose,
                path,
                resolved: None,
                folder: call.workspace,
                workspace: call.workspace,
            };
            let found = self.touch(&touch, &mut Vec::new());
            if found.strictness != Strictness::Deny || (purpose == Purpose::Write && about.reads) {
                continue;
            }
            verdict = verdict.and(found);
        }
        verdict
    }

    /// Words of a command: as they are, and as a shell would read them, for nobody says who runs them.
    fn argv(&self, call: &GateCall<'_>, words: &[&str]) -> Verdict {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        self.shell_text(call, &quoted.join(" ")).and(self.shell_text(call, &words.join(" ")))
    }

    /// What shell text among the arguments is denied for. What it would be asked about is asked about in any case.
    fn shell_text(&self, call: &GateCall<'_>, text: &str) -> Verdict {
        let found =
            self.command(text, call.workspace.to_owned(), call.workspace, &mut Vec::new(), &mut Executed::default());
        if found.strictness == Strictness::Deny { found } else { Verdict::allow(own::DEFAULT) }
    }
}

/// What the names of a server and a tool say. They are claims: they may only make stricter, or spare a second denial.
#[derive(Debug, Clone, Copy)]
struct About {
    runs_commands: bool,
    is_database: bool,
    removes: bool,
    /// Its name has a word for reading in it, and none that says otherwise.
    reads: bool,
}

impl About {
    fn of(server: &str, tool: &str) -> Self {
        let split = |text: &str| -> Vec<String> {
            let mut words = vec![String::new()];
            for letter in text.chars() {
                if letter.is_uppercase() || !letter.is_alphanumeric() {
                    words.push(String::new());
                }
                if let Some(last) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
                    last.extend(letter.to_lowercase());
                }
            }
            words.retain(|word| !word.is_empty());
            words
        };
        let (server, tool) = (split(server), split(tool));
        let has = |known: &[&str]| server.iter().chain(&tool).any(|word| known.contains(&word.as_str()));
        let says = |known: &[&str]| tool.iter().any(|word| known.contains(&word.as_str()));
        Self {
            runs_commands: has(&[
                "shell", "bash", "sh", "zsh", "terminal", "exec", "execute", "run", "command", "cmd", "ssh",
            ]),
            is_database: has(&[
                "db",
                "sql",
                "database",
                "postgres",
                "postgresql",
                "mysql",
                "sqlite",
                "mssql",
                "duckdb",
            ]),
            removes: says(&["delete", "remove", "rm", "rmdir", "unlink", "destroy", "purge", "clean", "erase", "wipe"]),
            reads: says(&["get", "read", "list", "search", "find", "show", "describe", "status", "view"])
                && !says(&[
                    "write", "edit", "create", "set", "update", "delete", "remove", "move", "add", "put", "append",
                ]),
        }
    }

    fn is_shell(self, key: &str) -> bool {
        self.runs_commands || SHELL_KEYS.contains(&key.to_lowercase().as_str())
    }
}

/// Statements that leave the database, or leave nothing of it.
fn sql(text: &str) -> Verdict {
    let text = without_comments(text);
    let statements: Vec<Vec<String>> = text.split(';').map(words).collect();
    let deny = |reason: &str| Verdict::new(Strictness::Deny, own::DESTRUCTION, reason);
    let mut verdict = Verdict::allow(own::DEFAULT);
    for statement in &statements {
        let has = |word: &str| statement.iter().any(|found| found == word);
        let pair = |first: &[&str], second: &[&str]| {
            statement.windows(2).any(|two| first.contains(&two[0].as_str()) && second.contains(&two[1].as_str()))
        };
        if pair(&["TO", "FROM"], &["PROGRAM"]) || SQL_ESCAPES.iter().any(|word| has(word)) {
            verdict =
                verdict.and(deny("the statement runs a program, or reaches files, on the machine of the database"));
        }
        let files =
            pair(&["INTO"], &["OUTFILE", "DUMPFILE"]) || pair(&["LOAD"], &["DATA"]) || pair(&["ATTACH"], &["DATABASE"]);
        if files {
            verdict = verdict.and(deny("the statement reaches files on the machine of the database"));
        }
        let whole = pair(&["DROP"], &["DATABASE", "SCHEMA", "TABLE", "TABLESPACE", "OWNED"])
            || pair(&["TRUNCATE"], &["TABLE"])
            || (statement.first().is_some_and(|word| word == "TRUNCATE") && statement.len() == 2);
        if whole {
            verdict = verdict.and(deny("the statement removes all that is in a table or database"));
        }
        if pair(&["DELETE"], &["FROM"]) && !has("WHERE") {
            verdict = verdict.and(deny("the statement removes every row of a table"));
        }
    }
    verdict
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| !word.is_empty()).map(str::to_uppercase).collect()
}

/// `/* … */` and `-- …` taken out, as far as that can be told without knowing what is quoted.
fn without_comments(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        plain.push_str(rest.get(..at).unwrap_or_default());
        plain.push(' ');
        let inside = rest.get(at + 2..).unwrap_or_default();
        rest = match inside.find("*/") {
            Some(end) => inside.get(end + 2..).unwrap_or_default(),
            None => "",
        };
    }
    plain.push_str(rest);
    let lines = plain.lines().map(|line| line.split("-- ").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

const TEXTS_MAX: usize = 1024;
const DEPTH_MAX: usize = 32;
const NESTED_MAX: usize = 256 * 1024;
const PATH_MAX: usize = 4096;
const PATH_KEYS: [&str; 5] = ["path", "file", "dir", "folder", "uri"];
/// Places of any kind; of files, if they look like it.
const PLACE_KEYS: [&str; 5] = ["root", "source", "destination", "target", "location"];
const ADDRESS_KEYS: [&str; 7] = ["url", "uri", "href", "endpoint", "host", "address", "server"];
const SHELL_KEYS: [&str; 7] = ["command", "cmd", "script", "shell", "code", "commands", "bash"];
const SQL_KEYS: [&str; 4] = ["sql", "query", "statement", "statements"];
const SQL_ESCAPES: [&str; 12] = [
    "XP_CMDSHELL",
    "SYS_EXEC",
    "SYS_EVAL",
    "LOAD_FILE",
    "LOAD_EXTENSION",
    "LO_IMPORT",
    "LO_EXPORT",
    "PG_READ_FILE",
    "PG_READ_BINARY_FILE",
    "PG_LS_DIR",
    "PG_WRITE_FILE",
    "DBLINK",
];
/// A resource is named by an address of the server's own making, such as `shop://terms`, which leads nowhere but to it. One that
/// means something to others (`https`, `file`) is looked at like any.
fn without_own_address(args: &mut Value) {
    let Some(args) = args.as_object_mut() else { return };
    let own =
        args.get("uri").and_then(Value::as_str).and_then(|uri| uri.split_once("://")).is_some_and(|(scheme, _)| {
            let known = ["http", "https", "ws", "wss", "ftp", "file", "data", "git", "ssh"];
            !scheme.is_empty()
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
                && !known.iter().any(|known| scheme.to_ascii_lowercase().split('+').any(|part| part == *known))
        });
    if own {
        args.remove("uri");
    }
}

/// What an operator can declare of a server whose own words stand in the way of its next call.
fn with_ways_out(ruling: Ruling, call: &GateCall<'_>, server: &str) -> Ruling {
    let is_from_it = call.taint.sources.contains_key(server);
    let ways = |reason: String| {
        format!(
            "{reason}. What the server {server} says is a stranger's word: `longrein endorse {server}` or `trusted = true` \
             in [mcp.{server}] says that you stand in for it; `effect = \"read\"` for a tool of it says that it changes \
             nothing and may go on"
        )
    };
    match ruling {
        Ruling::Ask { rule, reason } if is_from_it && rule == own::TAINT => Ruling::Ask { rule, reason: ways(reason) },
        Ruling::Deny { rule, reason } if is_from_it && rule == own::TAINT => {
            Ruling::Deny { rule, reason: ways(reason) }
        }
        other @ (Ruling::Allow { .. } | Ruling::Ask { .. } | Ruling::Deny { .. }) => other,
    }
}
