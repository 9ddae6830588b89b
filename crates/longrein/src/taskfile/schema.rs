//! Schemas and inputs: content that a task file names by path.

use std::path::{Path, PathBuf};

use longrein_core::payload::Payload;
use serde_json::Value as Json;

use super::error::{Place, TaskFileError};
use super::section::{Node, Section, Value};

/// Where schemas are looked for.
pub(super) struct Schemas<'a> {
    pub(super) folder: &'a Path,
}

impl Schemas<'_> {
    /// A schema in place, or the path of a JSON file.
    pub(super) fn read(&self, table: &Section, key: &'static str, node: Node) -> Result<Json, TaskFileError> {
        let line = node.line;
        match node.value {
            Value::Table(_) => table.json(key, node),
            Value::Text(path) => schema_file(table.place_of(key, line), self.folder.join(path)),
            Value::Whole(_) | Value::Fraction(_) | Value::Truth(_) | Value::Moment(_) | Value::List(_) => {
                Err(table.unfit(key, line, &node.value, "a table, or the path of a JSON file"))
            }
        }
    }
}

/// A JSON Schema from a file.
pub(super) fn schema_file(place: Place, file: PathBuf) -> Result<Json, TaskFileError> {
    let text = read_text(&place, &file, SCHEMA_MAX_BYTES)?;
    let wrong = |problem: String| TaskFileError::Task { place, problem };
    match serde_json::from_str(&text) {
        Ok(schema @ Json::Object(_)) => Ok(schema),
        Ok(_) => Err(wrong(format!("{} is JSON but no schema: it must be an object", file.display()))),
        Err(error) => Err(wrong(format!("{} is no JSON: {error}", file.display()))),
    }
}

/// Whether an object of this schema may have the property: `false` only where that is certain.
fn allows(schema: &Json, property: &str) -> bool {
    let closed = schema.get("additionalProperties") == Some(&Json::Bool(false));
    let patterns = schema.get("patternProperties").and_then(Json::as_object).is_some_and(|all| !all.is_empty());
    !closed || patterns || schema.get("properties").is_some_and(|all| all.get(property).is_some())
}

/// A property that this schema, or that of a property in it, requires and forbids.
pub(super) fn never_allowed(schema: &Json) -> Option<&str> {
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let mut inner = schema.get("properties").and_then(Json::as_object).into_iter().flat_map(|all| all.values());
    required.into_iter().find(|name| !allows(schema, name)).or_else(|| inner.find_map(never_allowed))
}

/// Whether an answer of this schema may have the field at a dotted path: `false` only where that is certain.
pub(super) fn may_have(schema: &Json, field: &str) -> bool {
    let mut schema = schema;
    for step in field.split('.') {
        if !allows(schema, step) {
            return false;
        }
        match schema.get("properties").and_then(|all| all.get(step)) {
            Some(inner) => schema = inner,
            None => return true,
        }
    }
    true
}

/// An input by content: JSON if it parses, else a JSON string.
pub(super) fn input(place: &Place, file: &Path) -> Result<Payload, TaskFileError> {
    let text = read_text(place, file, INPUT_MAX_BYTES)?;
    Ok(Payload::parse_compact(text.trim()).unwrap_or_else(|_| Payload::string(&text)))
}

/// Sorted keys, no blanks: digests are taken over it.
pub(super) fn canonical(value: &Json) -> Payload {
    let text = serde_json_canonicalizer::to_string(value).expect("a JSON value has a canonical form");
    Payload::parse(text).expect("canonical JSON is JSON")
}

pub(super) fn read_text(place: &Place, file: &Path, limit: u64) -> Result<String, TaskFileError> {
    let unreadable = |source| TaskFileError::Unreadable { place: place.clone(), file: file.to_owned(), source };
    let wrong = |problem: String| TaskFileError::Task { place: place.clone(), problem };
    let about = std::fs::metadata(file).map_err(unreadable)?;
    if !about.is_file() {
        return Err(wrong(format!("{} is no file", file.display())));
    }
    if about.len() > limit {
        return Err(wrong(format!("{} has {} bytes; at most {limit} are read", file.display(), about.len())));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| wrong(format!("{} is not UTF-8 text", file.display())))
}

const SCHEMA_MAX_BYTES: u64 = 1024 * 1024;
/// Inputs live in the journal and are handed to every tool.
const INPUT_MAX_BYTES: u64 = 16 * 1024 * 1024;
