//! `[[tools]]`: one declared tool, and what its keys mean together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longrein_core::ids::{FactName, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::{
    Declared, EffectClass, Guard, Holds, KeyScope, KeySpec, OnUnknown, Overlap, ToolBody, ToolSpec,
};
use longrein_rules::{Condition, GUARD_NAMES, Schema};
use serde_json::{Value as Json, json};

use super::error::{Place, TaskFileError};
use super::schema::Schemas;
use super::section::{Section, Value};

/// A tool with the places of its keys, for checks that need all tools.
pub(super) struct Read {
    pub(super) spec: ToolSpec,
    /// Top-level property → the tool whose evidence it cites.
    cites: BTreeMap<String, String>,
    places: BTreeMap<&'static str, Place>,
}

/// Adds built-in tools to those declared.
pub(super) fn offer(tools: &mut Vec<Read>, builtins: Vec<ToolSpec>) -> Result<(), TaskFileError> {
    if let Some(tool) = tools.iter().find(|tool| builtins.iter().any(|builtin| builtin.name == tool.spec.name)) {
        let name = &tool.spec.name;
        let problem = format!(
            "{name} is a built-in tool that this task offers; give it another name, or take {name} out of builtins"
        );
        return Err(fault(&tool.places, "name", problem));
    }
    tools.extend(builtins.into_iter().map(|spec| Read { spec, cites: BTreeMap::new(), places: BTreeMap::new() }));
    Ok(())
}

/// Reads one table.
pub(super) fn read(mut table: Section, schemas: &Schemas<'_>) -> Result<Read, TaskFileError> {
    let places: BTreeMap<&'static str, Place> = CHECKED_LATER.iter().map(|key| (*key, table.place(key))).collect();
    let name = table.text("name")?.ok_or_else(|| table.wrong("name", "the tool needs a name"))?;
    if !is_tool_name(&name) {
        let problem = format!("\"{name}\" cannot be a tool's name: 1 to 64 of A-Z a-z 0-9 _ -");
        return Err(fault(&places, "name", problem));
    }
    let effect = one_of(&mut table, "effect", &EFFECTS)?
        .ok_or_else(|| table.wrong("effect", format!("{name} must say what it does: read, workspace or external")))?;
    let command = command(&mut table)?;
    let description = table.text("description")?.unwrap_or_default();
    let (parameters, cites) = parameters(&mut table, schemas)?;
    let plain = ToolSpec::new(ToolName::new(name), ToolBody::Command(command), effect);
    let overlap = table
        .truth("parallel")?
        .map_or(plain.overlap, |parallel| if parallel { Overlap::Parallel } else { Overlap::OneAtATime });
    only_for(&table, effect, EffectClass::External, &["key", "idempotent", "reconcile", "compensate"])?;
    only_for(&table, effect, EffectClass::Read, &["cache"])?;
    let key = key(&mut table, &parameters)?;
    let guard = guard(&mut table)?;
    let spec = ToolSpec {
        description,
        parameters: super::schema::canonical(&parameters),
        timeout: positive_span(&mut table, "timeout", ToolSpec::TIMEOUT)?,
        overlap,
        depends_on: names(&mut table, "depends_on")?.into_iter().map(ToolName::new).collect(),
        requires: names(&mut table, "requires")?.into_iter().map(FactName::new).collect(),
        provides: names(&mut table, "provides")?.into_iter().map(FactName::new).collect(),
        holds: one_of(&mut table, "holds", &HOLDS)?.unwrap_or(plain.holds),
        max_calls: max_calls(&mut table)?,
        guard,
        key,
        idempotent: idempotent(&mut table)?,
        reconcile: table.texts("reconcile")?.unwrap_or_default(),
        settle_after: table.span("settle_after")?.unwrap_or(ToolSpec::SETTLE_AFTER),
        on_unknown: one_of(&mut table, "on_unknown", &ON_UNKNOWN)?.unwrap_or(OnUnknown::Wait),
        cost_micros: table.micros("cost_usd")?.unwrap_or(0),
        env: env(&mut table)?,
        reads: table.texts("reads")?,
        writes: table.texts("writes")?,
        check: check(&mut table, effect)?,
        compensate: table.text("compensate")?.filter(|name| !name.is_empty()).map(ToolName::new),
        declared: Declared {
            cache: table.truth("cache")?.unwrap_or(false),
            untrusted: table.truth("untrusted")?.unwrap_or(false),
            network: table.texts("network")?.unwrap_or_default(),
            ..Declared::default()
        },
        ..plain
    };
    table.finish()?;
    Ok(Read { spec, cites, places })
}

/// What judges each call that is done. A read leaves nothing that could be undone.
fn check(table: &mut Section, effect: EffectClass) -> Result<Vec<String>, TaskFileError> {
    let place = table.place("check");
    let words = table.texts("check")?.unwrap_or_default();
    let problem = match words.first() {
        None => return Ok(words),
        Some(first) if first.is_empty() => "the first word is the program; it is empty",
        Some(_) if effect == EffectClass::Read => "a read changes nothing that a check could undo; leave it out",
        Some(_) => return Ok(words),
    };
    Err(TaskFileError::Task { place, problem: problem.to_owned() })
}

/// What can only be said of all tools together: names are unique, references lead somewhere, dependencies end.
pub(super) fn together(tools: &[Read]) -> Result<(), TaskFileError> {
    let known: Vec<&str> = tools.iter().map(|tool| tool.spec.name.as_str()).collect();
    let provided: BTreeSet<&str> =
        tools.iter().flat_map(|tool| &tool.spec.provides).map(|fact| fact.as_str()).collect();
    for (at, tool) in tools.iter().enumerate() {
        let unknown = |key: &'static str, name: &str| {
            fault(&tool.places, key, format!("there is no tool \"{name}\"; there are: {}", known.join(", ")))
        };
        if known[..at].contains(&tool.spec.name.as_str()) {
            let problem = format!("a second tool named \"{}\"; give it another name", tool.spec.name);
            return Err(fault(&tool.places, "name", problem));
        }
        if let Some(name) = tool.spec.depends_on.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(unknown("depends_on", name.as_str()));
        }
        if let Some(fact) = tool.spec.requires.iter().find(|fact| !provided.contains(&fact.as_str())) {
            let near = longrein_policy::near(fact.as_str(), provided.iter().copied());
            let hint = match (provided.is_empty(), near.is_empty()) {
                (true, _) => "no tool says provides = […]".to_owned(),
                (false, true) => format!("there are: {}", provided.iter().copied().collect::<Vec<_>>().join(", ")),
                (false, false) => format!("near it: {}", near.join(", ")),
            };
            return Err(fault(&tool.places, "requires", format!("no tool provides the fact \"{fact}\"; {hint}")));
        }
        if let Some(name) = tool.cites.values().find(|name| !known.contains(&name.as_str())) {
            return Err(unknown("parameters", name));
        }
        if let Some(undo) = tool.spec.compensate.as_ref().filter(|undo| !known.contains(&undo.as_str())) {
            return Err(unknown("compensate", undo.as_str()));
        }
        if tool.spec.compensate.as_ref() == Some(&tool.spec.name) {
            let problem = "a tool cannot undo itself: it would do the same once more; name the tool that undoes it";
            return Err(fault(&tool.places, "compensate", problem.to_owned()));
        }
    }
    match cycle(tools) {
        None => Ok(()),
        Some((at, path)) => {
            let problem = format!("these wait for each other for ever: {path}; take one of them out");
            Err(fault(&tools[at].places, "depends_on", problem))
        }
    }
}

/// A tool from which `depends_on` leads back to itself, and the way. Tools that can start are taken away until none can.
fn cycle(tools: &[Read]) -> Option<(usize, String)> {
    let needs = |at: usize| {
        let position = |name: &ToolName| tools.iter().position(|tool| &tool.spec.name == name);
        tools[at].spec.depends_on.iter().filter_map(position).collect::<Vec<_>>()
    };
    let mut left: Vec<usize> = (0..tools.len()).collect();
    loop {
        let stuck: Vec<usize> = left.iter().copied().filter(|at| needs(*at).iter().any(|n| left.contains(n))).collect();
        if stuck.len() == left.len() {
            break;
        }
        left = stuck;
    }
    let start = *left.first()?;
    let mut way = vec![start];
    // every tool left needs one that is left, so this meets itself within as many steps as there are tools
    loop {
        let last = *way.last()?;
        let next = needs(last).into_iter().find(|need| left.contains(need))?;
        if let Some(from) = way.iter().position(|at| *at == next) {
            way.drain(..from);
            way.push(next);
            break;
        }
        way.push(next);
    }
    let names: Vec<&str> = way.iter().map(|at| tools[*at].spec.name.as_str()).collect();
    Some((way[0], names.join(" → ")))
}

fn parameters(table: &mut Section, schemas: &Schemas<'_>) -> Result<(Json, BTreeMap<String, String>), TaskFileError> {
    let place = table.place("parameters");
    let wrong = |problem: String| TaskFileError::Task { place: place.clone(), problem };
    let schema = match table.node("parameters") {
        Some(node) => schemas.read(table, "parameters", node)?,
        None => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
    };
    Schema::compile(&schema).map_err(|mistake| wrong(mistake.to_string()))?;
    if schema.get("type") != Some(&json!("object")) {
        return Err(wrong("arguments are an object: say type = \"object\"".to_owned()));
    }
    if let Some(name) = super::schema::never_allowed(&schema) {
        return Err(wrong(format!(
            "required names \"{name}\", which is no property, and no others are allowed; no call could ever fit"
        )));
    }
    let mut cites = BTreeMap::new();
    for (property, inner) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        match inner.get("evidence") {
            None => {}
            Some(Json::String(tool)) if inner.get("type").is_none_or(|kind| kind == "string") => {
                cites.insert(property.clone(), tool.clone());
            }
            Some(_) => {
                let problem =
                    "an evidence reference is a string and names a tool: type = \"string\", evidence = \"tool\"";
                return Err(wrong(format!("{property}: {problem}")));
            }
        }
        if nested(inner).any(deep_evidence) {
            return Err(wrong(format!(
                "{property}: an evidence reference must be an argument itself, not a part of one"
            )));
        }
    }
    Ok((schema, cites))
}

/// The schemas of a schema's parts.
fn nested(schema: &Json) -> impl Iterator<Item = &Json> {
    let properties = schema.get("properties").and_then(Json::as_object).into_iter().flat_map(|map| map.values());
    let lists = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().filter_map(|key| schema.get(key)?.as_array());
    properties.chain(lists.flatten()).chain(schema.get("items"))
}

fn deep_evidence(schema: &Json) -> bool {
    schema.get("evidence").is_some_and(Json::is_string) || nested(schema).any(deep_evidence)
}

fn guard(table: &mut Section) -> Result<Option<Guard>, TaskFileError> {
    let place = table.place("guard");
    let message = table.text("guard_message")?;
    let Some(condition) = table.text("guard")?.filter(|text| !text.is_empty()) else {
        return match message {
            None => Ok(None),
            Some(_) => Err(table.wrong("guard_message", "there is no guard it could belong to")),
        };
    };
    match Condition::compile(&condition, GUARD_NAMES) {
        Ok(_) => Ok(Some(Guard { condition, message })),
        Err(mistake) => Err(TaskFileError::Task { place, problem: mistake.to_string() }),
    }
}

fn key(table: &mut Section, parameters: &Json) -> Result<Option<KeySpec>, TaskFileError> {
    let (place, scope_place) = (table.place("key"), table.place("key_scope"));
    let scope = one_of(table, "key_scope", &[("run", KeyScope::Run), ("store", KeyScope::Store)])?;
    let args = table.texts("key")?.unwrap_or_default();
    let declared = |arg: &String| parameters.get("properties").is_some_and(|all| all.get(arg).is_some());
    if let Some(arg) = args.iter().find(|arg| !declared(arg)) {
        let problem = format!("\"{arg}\" is no property of the tool's parameters; a key is made of arguments");
        return Err(TaskFileError::Task { place, problem });
    }
    let scope = scope.unwrap_or(KeyScope::Run);
    match (args.is_empty(), scope) {
        (false, scope) => Ok(Some(KeySpec { args, scope })),
        (true, KeyScope::Run) => Ok(None),
        (true, KeyScope::Store) => {
            let problem = "there is no key that could hold over the store; name its arguments: key = [\"…\"]";
            Err(TaskFileError::Task { place: scope_place, problem: problem.to_owned() })
        }
    }
}

fn idempotent(table: &mut Section) -> Result<Option<Duration>, TaskFileError> {
    let place = table.place("idempotent");
    let Some(node) = table.node("idempotent") else { return Ok(None) };
    let Value::Text(text) = node.value else {
        let wanted = "a span of time such as \"24h\": how long the receiver remembers a key";
        return Err(table.unfit("idempotent", node.line, &node.value, wanted));
    };
    match text.as_str() {
        "" => Ok(None),
        text => match super::values::span(text) {
            Ok(span) if !span.is_zero() => Ok(Some(span)),
            Ok(_) => Ok(None),
            Err(problem) => Err(TaskFileError::Task { place, problem }),
        },
    }
}

fn max_calls(table: &mut Section) -> Result<Option<u32>, TaskFileError> {
    let place = table.place("max_calls");
    let Some(number) = table.whole("max_calls")? else { return Ok(None) };
    let number = u32::try_from(number)
        .map_err(|_| TaskFileError::Task { place, problem: format!("{number} is more than any run makes") })?;
    Ok(Some(number))
}

/// `NAME`, `${secret:NAME}`, or `NAME=${secret:OTHER}`. Never a value: values would be journaled.
pub(super) fn env(table: &mut Section) -> Result<Vec<String>, TaskFileError> {
    let place = table.place("env");
    let entries = table.texts("env")?.unwrap_or_default();
    let name = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|first: char| first.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let secret = |text: &str| text.strip_prefix("${secret:").and_then(|text| text.strip_suffix('}')).is_some_and(name);
    let fits = |text: &str| match text.split_once('=') {
        Some((variable, value)) => name(variable) && secret(value),
        None => name(text) || secret(text),
    };
    match entries.iter().find(|entry| !fits(entry)) {
        None => Ok(entries),
        Some(entry) => Err(TaskFileError::Task {
            place,
            problem: format!(
                "\"{entry}\" is no variable by name; write \"NAME\", \"${{secret:NAME}}\" or \"NAME=${{secret:OTHER}}\""
            ),
        }),
    }
}

/// A command: at least the program.
pub(super) fn command(table: &mut Section) -> Result<Vec<String>, TaskFileError> {
    let place = table.place("command");
    let command = table.texts("command")?.unwrap_or_default();
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        let problem = "a command is needed: a list of words such as [\"sh\", \"tools/run.sh\"]".to_owned();
        return Err(TaskFileError::Task { place, problem });
    }
    Ok(command)
}

pub(super) fn positive_span(
    table: &mut Section,
    key: &'static str,
    default: Duration,
) -> Result<Duration, TaskFileError> {
    let place = table.place(key);
    match table.span(key)? {
        Some(span) if span.is_zero() => {
            Err(TaskFileError::Task { place, problem: "no time at all; write for example \"30s\"".to_owned() })
        }
        given => Ok(given.unwrap_or(default)),
    }
}

/// A word out of a few.
pub(super) fn one_of<T: Copy>(
    table: &mut Section,
    key: &'static str,
    words: &[(&str, T)],
) -> Result<Option<T>, TaskFileError> {
    let place = table.place(key);
    let Some(found) = table.text(key)? else { return Ok(None) };
    match words.iter().find(|(word, _)| *word == found) {
        Some((_, meaning)) => Ok(Some(*meaning)),
        None => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(TaskFileError::Task { place, problem: format!("\"{found}\" must be one of: {}", words.join(", ")) })
        }
    }
}

/// Names without blanks.
fn names(table: &mut Section, key: &'static str) -> Result<Vec<String>, TaskFileError> {
    let place = table.place(key);
    let names = table.texts(key)?.unwrap_or_default();
    match names.iter().find(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        None => Ok(names),
        Some(name) => Err(TaskFileError::Task { place, problem: format!("\"{name}\" cannot be a name") }),
    }
}

/// Refuses keys that mean nothing for a tool of this class.
fn only_for(table: &Section, effect: EffectClass, wanted: EffectClass, keys: &[&str]) -> Result<(), TaskFileError> {
    if effect == wanted {
        return Ok(());
    }
    match keys.iter().find(|key| table.says_something(key)) {
        None => Ok(()),
        Some(key) => {
            let problem = format!("this is for {wanted} tools, but the tool's effect is {effect}; change one of them");
            Err(table.wrong(key, problem))
        }
    }
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn fault(places: &BTreeMap<&'static str, Place>, key: &'static str, problem: String) -> TaskFileError {
    let place = places.get(key).expect("every key that is checked later has its place kept").clone();
    TaskFileError::Task { place, problem }
}

/// A JSON object of a table.
pub(super) fn object(table: &Section, key: &str, node: super::section::Node) -> Result<Payload, TaskFileError> {
    let line = node.line;
    let value = table.json(key, node)?;
    if value.is_object() {
        return Ok(super::schema::canonical(&value));
    }
    Err(table.at(key, line, "this must be a table".to_owned()))
}

const CHECKED_LATER: [&str; 5] = ["name", "depends_on", "requires", "parameters", "compensate"];
const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("workspace", EffectClass::Workspace), ("external", EffectClass::External)];
const HOLDS: [(&str, Holds); 2] = [("until_write", Holds::UntilWrite), ("run", Holds::Run)];
const ON_UNKNOWN: [(&str, OnUnknown); 2] = [("wait", OnUnknown::Wait), ("tell", OnUnknown::Tell)];
