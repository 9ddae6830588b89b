//! Reading tables key by key: every wrong type, unknown key and unknown variable is found, with its path and line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, TaskFileError};
use super::values;

type Result<T, E = TaskFileError> = std::result::Result<T, E>;

/// A value of the file, with the line it is on. Variables are replaced.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// Numbers are kept as written: what a number may look like depends on what it is for.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    /// Underscores left out; hexadecimal and the like made decimal.
    Whole(String),
    Fraction(String),
    Truth(bool),
    Moment(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Whole(_) => "a whole number",
            Value::Fraction(_) => "a number with a fraction or an exponent",
            Value::Truth(_) => "true or false",
            Value::Moment(_) => "a date or time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// One table being read: each key is taken once, and what is left at the end is unknown.
#[derive(Debug)]
pub(super) struct Section {
    file: PathBuf,
    /// Empty for the top of the file.
    path: String,
    line: usize,
    fields: BTreeMap<String, Node>,
    known: Vec<&'static str>,
}

impl Section {
    /// Parses a file's text. `variables` replace `${K}` in its strings; which of them were used is told.
    pub(super) fn parse(
        file: &Path,
        text: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<(Self, BTreeSet<String>)> {
        let document = DeTable::parse(text).map_err(|error| TaskFileError::Task {
            place: Place::Line {
                file: file.to_owned(),
                line: error.span().map_or(1, |span| line_of(text, span.start)),
            },
            problem: no_toml(text, &error),
        })?;
        let mut reader = Reader { file, text, variables, used: BTreeSet::new() };
        let fields = reader.table("", document.get_ref())?;
        let used = reader.used;
        Ok((Self { file: file.to_owned(), path: String::new(), line: 1, fields, known: Vec::new() }, used))
    }

    /// Every key must have been taken.
    pub(super) fn finish(self) -> Result<()> {
        let Some((key, node)) = self.fields.first_key_value() else {
            return Ok(());
        };
        let near = longrein_policy::near(key, self.known.iter().copied());
        let hint = if near.is_empty() { self.known.join(", ") } else { near.join(", ") };
        Err(TaskFileError::Task {
            place: self.place_of(key, node.line),
            problem: format!("there is no such key; near it: {hint}"),
        })
    }

    pub(super) fn place(&self, key: &str) -> Place {
        let line = self.fields.get(key).map_or(self.line, |node| node.line);
        self.place_of(key, line)
    }

    /// An error at a key of this table.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> TaskFileError {
        TaskFileError::Task { place: self.place(key), problem: problem.into() }
    }

    pub(super) fn node(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        self.fields.remove(key)
    }

    /// Whether a key is there and is more than empty or false.
    pub(super) fn says_something(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(|node| match &node.value {
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Truth(truth) => *truth,
            Value::Whole(_) | Value::Fraction(_) | Value::Moment(_) | Value::Table(_) => true,
        })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        if let Value::Text(text) = node.value {
            return Ok(Some(text));
        }
        Err(self.unfit(key, node.line, &node.value, "a string"))
    }

    pub(super) fn truth(&mut self, key: &'static str) -> Result<Option<bool>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        if let Value::Truth(truth) = node.value {
            return Ok(Some(truth));
        }
        Err(self.unfit(key, node.line, &node.value, "true or false"))
    }

    pub(super) fn whole(&mut self, key: &'static str) -> Result<Option<u64>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        if let Value::Whole(text) | Value::Fraction(text) = node.value {
            return self.fit(key, node.line, values::whole(&text)).map(Some);
        }
        Err(self.unfit(key, node.line, &node.value, "a whole number"))
    }

    pub(super) fn micros(&mut self, key: &'static str) -> Result<Option<u64>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        if let Value::Whole(text) | Value::Fraction(text) = node.value {
            return self.fit(key, node.line, values::micros(&text)).map(Some);
        }
        Err(self.unfit(key, node.line, &node.value, "an amount in dollars such as 0.50"))
    }

    pub(super) fn span(&mut self, key: &'static str) -> Result<Option<Duration>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        if let Value::Text(text) = node.value {
            return self.fit(key, node.line, values::span(&text)).map(Some);
        }
        Err(self.unfit(key, node.line, &node.value, "a span of time such as \"30s\""))
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let Value::List(items) = node.value else {
            return Err(self.unfit(key, node.line, &node.value, "a list of strings"));
        };
        let text = |(index, item): (usize, Node)| {
            if let Value::Text(text) = item.value {
                return Ok(text);
            }
            Err(self.unfit(&format!("{key}[{index}]"), item.line, &item.value, "a string"))
        };
        items.into_iter().enumerate().map(text).collect::<Result<_>>().map(Some)
    }

    pub(super) fn section(&mut self, key: &'static str) -> Result<Option<Section>> {
        let Some(node) = self.node(key) else { return Ok(None) };
        self.inner(key, node).map(Some)
    }

    /// `[[key]]`: a list of tables.
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Vec<Section>> {
        let Some(node) = self.node(key) else { return Ok(Vec::new()) };
        let Value::List(items) = node.value else {
            return Err(self.unfit(key, node.line, &node.value, "a list of tables: [[…]]"));
        };
        items.into_iter().enumerate().map(|(at, item)| self.inner(&numbered(key, at, name_of(&item)), item)).collect()
    }

    /// All that is in this table, whatever the keys: names are the writer's.
    pub(super) fn named(mut self) -> Vec<(String, Result<Section>)> {
        let fields = std::mem::take(&mut self.fields);
        fields.into_iter().map(|(key, node)| (key.clone(), self.inner(&key, node))).collect()
    }

    /// All keys with their strings.
    pub(super) fn named_texts(mut self) -> Result<BTreeMap<String, (Place, String)>> {
        let fields = std::mem::take(&mut self.fields);
        let text = |(key, node): (String, Node)| {
            let place = self.place_of(&key, node.line);
            if let Value::Text(text) = node.value {
                return Ok((key, (place, text)));
            }
            Err(self.unfit(&key, node.line, &node.value, "a string"))
        };
        fields.into_iter().map(text).collect()
    }

    /// A value as JSON.
    pub(super) fn json(&self, key: &str, node: Node) -> Result<Json> {
        Ok(match node.value {
            Value::Text(text) => Json::String(text),
            Value::Truth(truth) => Json::Bool(truth),
            Value::Whole(text) | Value::Fraction(text) => {
                let wrong = || self.at(key, node.line, format!("{text} cannot be a number in JSON"));
                // TOML allows a plus sign, JSON does not
                let plain = text.strip_prefix('+').unwrap_or(&text);
                Json::Number(serde_json::from_str(plain).map_err(|_| wrong())?)
            }
            Value::Moment(_) => return Err(self.at(key, node.line, "JSON has no dates; write a string".to_owned())),
            Value::List(items) => {
                let item = |(at, item): (usize, Node)| self.json(&format!("{key}[{at}]"), item);
                Json::Array(items.into_iter().enumerate().map(item).collect::<Result<_>>()?)
            }
            Value::Table(fields) => {
                let field = |(name, node): (String, Node)| {
                    let value = self.json(&format!("{key}.{name}"), node)?;
                    Ok((name, value))
                };
                Json::Object(fields.into_iter().map(field).collect::<Result<Map<String, Json>>>()?)
            }
        })
    }

    pub(super) fn at(&self, key: &str, line: usize, problem: String) -> TaskFileError {
        TaskFileError::Task { place: self.place_of(key, line), problem }
    }

    /// A value of the wrong type.
    pub(super) fn unfit(&self, key: &str, line: usize, found: &Value, wanted: &str) -> TaskFileError {
        self.at(key, line, format!("this is {}; it must be {wanted}", found.kind()))
    }

    pub(super) fn fit<T>(&self, key: &str, line: usize, value: Result<T, String>) -> Result<T> {
        value.map_err(|problem| self.at(key, line, problem))
    }

    pub(super) fn inner(&self, key: &str, node: Node) -> Result<Section> {
        let Value::Table(fields) = node.value else {
            return Err(self.unfit(key, node.line, &node.value, "a table"));
        };
        let path = self.path_of(key);
        Ok(Section { file: self.file.clone(), path, line: node.line, fields, known: Vec::new() })
    }

    pub(super) fn place_of(&self, key: &str, line: usize) -> Place {
        Place::Key { file: self.file.clone(), line, key: self.path_of(key) }
    }

    fn path_of(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{key}", self.path),
        }
    }
}

/// Turns the parser's values into ours and replaces variables on the way.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    variables: &'a BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Reader<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) -> Result<BTreeMap<String, Node>> {
        let mut fields = BTreeMap::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let mut node = self.node(&path, value)?;
            // a table's own span starts at its first key; its name is what people look for
            node.line = line_of(self.text, key.span().start);
            fields.insert(name, node);
        }
        Ok(fields)
    }

    fn node(&mut self, path: &str, value: &Spanned<DeValue<'_>>) -> Result<Node> {
        let line = line_of(self.text, value.span().start);
        let place = || Place::Key { file: self.file.to_owned(), line, key: path.to_owned() };
        let value = match value.get_ref() {
            DeValue::String(text) => match replace(text, self.variables, &mut self.used) {
                Ok(text) => Value::Text(text),
                Err(problem) => return Err(TaskFileError::Task { place: place(), problem }),
            },
            DeValue::Integer(number) => {
                let parsed = i128::from_str_radix(number.as_str(), number.radix());
                let number = parsed.map_err(|_| TaskFileError::Task {
                    place: place(),
                    problem: format!("{} is too large a number", number.as_str()),
                })?;
                Value::Whole(number.to_string())
            }
            DeValue::Float(number) => Value::Fraction(number.as_str().to_owned()),
            DeValue::Boolean(truth) => Value::Truth(*truth),
            DeValue::Datetime(at) => Value::Moment(at.to_string()),
            DeValue::Array(items) => {
                let mut nodes = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    let name = item.get_ref().get("name").and_then(|name| name.get_ref().as_str());
                    nodes.push(self.node(&numbered(path, at, name), item)?);
                }
                Value::List(nodes)
            }
            DeValue::Table(table) => Value::Table(self.table(path, table)?),
        };
        Ok(Node { line, value })
    }
}

/// Replaces `${K}` by its value. `${secret:X}` stays a reference; `$${` is a plain `${`.
fn replace(text: &str, variables: &BTreeMap<String, String>, used: &mut BTreeSet<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let inner = &from[2..];
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = inner;
            continue;
        }
        out.push_str(before);
        let escape = "write $${ for a plain ${";
        let (name, after) = inner.split_once('}').ok_or_else(|| format!("a ${{ without its }}; {escape}"))?;
        if name.starts_with("secret:") {
            out.push_str(&from[..name.len() + 3]);
        } else if let Some(value) = variables.get(name) {
            used.insert(name.to_owned());
            out.push_str(value);
        } else {
            return Err(format!("the variable ${{{name}}} has no value; pass --var {name}=…, or {escape}"));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Why a text is no TOML, in words for people who do not know TOML.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let found = error.span().and_then(|span| text.get(span)).unwrap_or_default().trim();
    let message = error.message();
    if message == "duplicate key" && !found.is_empty() {
        return format!("this is not TOML: the key {found} is there twice; leave one out");
    }
    if let Some(value) = error.span().and_then(|span| bare_text(text, span.start)) {
        return format!("this is not TOML: text needs quotes: write \"{value}\"");
    }
    format!("this is not TOML: {message}")
}

/// The value on the line of `offset`, if it is one word or more without quotes: `name = page`, `timeout = 30s`.
fn bare_text(text: &str, offset: usize) -> Option<&str> {
    let line = text.lines().nth(line_of(text, offset) - 1)?;
    let (_, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let bare = value.starts_with(|first: char| first.is_alphanumeric())
        && value.chars().any(char::is_alphabetic)
        && !value.contains(['"', '\'', '=', '[', '{'])
        && !["true", "false", "inf", "nan"].contains(&value);
    bare.then_some(value)
}

/// An element of a list, with its name where it has a readable one: `tools[3] (page)`.
fn numbered(key: &str, at: usize, name: Option<&str>) -> String {
    match name.filter(|name| (1..=64).contains(&name.len()) && !name.chars().any(char::is_control)) {
        Some(name) => format!("{key}[{at}] ({name})"),
        None => format!("{key}[{at}]"),
    }
}

fn name_of(item: &Node) -> Option<&str> {
    let Value::Table(fields) = &item.value else { return None };
    match &fields.get("name")?.value {
        Value::Text(name) => Some(name),
        Value::Whole(_)
        | Value::Fraction(_)
        | Value::Truth(_)
        | Value::Moment(_)
        | Value::List(_)
        | Value::Table(_) => None,
    }
}

/// Lines are counted from 1.
/// The keys of a file, as far as it is TOML: those before its first wrong line.
pub(super) fn keys(text: &str) -> BTreeSet<String> {
    let of = |table: Spanned<DeTable<'_>>| table.get_ref().keys().map(|key| key.get_ref().to_string()).collect();
    let error = match DeTable::parse(text) {
        Ok(table) => return of(table),
        Err(error) => error,
    };
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.as_bytes()[..start].iter().rposition(|byte| *byte == b'\n').map_or("", |end| &text[..end]);
    DeTable::parse(before).map(of).unwrap_or_default()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
