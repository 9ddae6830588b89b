//! What a server says of a tool, as it may be offered to a model: checked one by one, so that a bad one takes no other along.

use longrein_core::ids::Digest;
use longrein_core::payload::Payload;
use serde_json::{Map, Value, json};

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// As the server calls it.
    pub name: String,
    pub description: String,
    /// A JSON Schema of an object that every provider takes.
    pub parameters: Payload,
    /// The schema as the server wrote it.
    pub declared: Payload,
    /// Of all the server said of it, as it said it.
    pub digest: Digest,
    /// What the server claims of it (`readOnlyHint` and the like). To be shown; it lifts nothing.
    pub claims: Vec<String>,
}

/// A tool that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    pub name: String,
    /// For people.
    pub why: String,
}

/// A larger schema is not sent with every request: the model is told that any object is taken.
pub const SCHEMA_MAX_BYTES: usize = 16 * 1024;
const DESCRIPTION_MAX_BYTES: usize = 8 * 1024;
const NAME_MAX_BYTES: usize = 256;
/// Deeper ones are built to break readers.
const DEPTH_MAX: usize = 32;
/// References are written out so many levels deep; what refers to itself ends as anything.
const REFERENCES_MAX: usize = 8;

/// Reads one entry of a listing.
pub(super) fn read(entry: &Value) -> Result<Definition, Quarantined> {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
    let bad = |why: &str| {
        let mut name = name.to_owned();
        name.truncate(name.floor_char_boundary(NAME_MAX_BYTES));
        Quarantined { name, why: why.to_owned() }
    };
    if name.is_empty() {
        return Err(bad("it has no name"));
    }
    if name.len() > NAME_MAX_BYTES {
        return Err(bad("its name is too long"));
    }
    let description = match entry.get("description") {
        None | Some(Value::Null) => entry.get("title").and_then(Value::as_str).unwrap_or_default(),
        Some(Value::String(text)) => text.as_str(),
        Some(_) => return Err(bad("its description is no text")),
    };
    let schema = match entry.get("inputSchema") {
        // it takes nothing, as far as it says
        None | Some(Value::Null) => json!({"type": "object"}),
        Some(schema) => normalised(schema).map_err(|why| bad(&why))?,
    };
    let description = longrein_core::payload::head_and_tail(description.trim(), DESCRIPTION_MAX_BYTES);
    let parameters = Payload::of(&schema).map_err(|_| bad("its inputSchema cannot be written"))?;
    let said = serde_json::to_vec(entry).unwrap_or_default();
    let declared = Payload::of(&entry.get("inputSchema")).unwrap_or_else(|_| Payload::null());
    Ok(Definition {
        name: name.to_owned(),
        description,
        parameters,
        declared,
        digest: Digest::of(&said),
        claims: claims(entry),
    })
}

fn claims(entry: &Value) -> Vec<String> {
    let Some(Value::Object(annotations)) = entry.get("annotations") else { return Vec::new() };
    let is_claim = |(name, value): &(&String, &Value)| name.ends_with("Hint") && value.is_boolean();
    annotations.iter().filter(is_claim).map(|(name, value)| format!("{name}: {value}")).collect()
}

/// A schema of an object that stands for itself; or what is wrong with it.
fn normalised(schema: &Value) -> Result<Value, String> {
    let Value::Object(root) = schema else { return Err("its inputSchema is no object".to_owned()) };
    if depth(schema, 0) > DEPTH_MAX {
        return Err(format!("its inputSchema is nested more than {DEPTH_MAX} deep"));
    }
    match root.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
        Some(other) => return Err(format!("its inputSchema is of type {other}, and arguments are an object")),
    }
    if serde_json::to_string(schema).map_or(usize::MAX, |text| text.len()) > SCHEMA_MAX_BYTES {
        return Ok(smallest());
    }
    let mut budget = SCHEMA_MAX_BYTES;
    let mut whole = resolved(schema, schema, 0, &mut budget)?;
    let Value::Object(members) = &mut whole else { return Err("its inputSchema is no object".to_owned()) };
    for key in ["$schema", "$id", "$defs", "definitions"] {
        members.shift_remove(key);
    }
    members.insert("type".to_owned(), "object".into());
    match members.get("properties") {
        None => {
            // some providers refuse an object without
            members.insert("properties".to_owned(), Value::Object(Map::new()));
        }
        Some(Value::Object(properties)) => {
            if let Some(key) = properties.keys().find(|key| !is_key(key)) {
                let shown = key.escape_debug();
                return Err(format!(
                    "its property \"{shown}\" has a name that providers refuse (A-Z a-z 0-9 _ . -, 64)"
                ));
            }
            if let Some((key, _)) =
                properties.iter().find(|(_, property)| !property.is_object() && !property.is_boolean())
            {
                return Err(format!("its property {} is no schema", key.escape_debug()));
            }
        }
        Some(_) => return Err("the properties of its inputSchema are no object".to_owned()),
    }
    if let Some(required) = members.get("required") {
        let names: Option<Vec<&str>> = required.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        if names.is_none() {
            return Err("what its inputSchema requires is no list of names".to_owned());
        }
    }
    let written = serde_json::to_string(&whole).map_or(usize::MAX, |text| text.len());
    Ok(if written > SCHEMA_MAX_BYTES { smallest() } else { whole })
}

/// What is true of the arguments of any tool.
fn smallest() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": true})
}

/// What Anthropic, OpenAI and Gemini take alike.
fn is_key(key: &str) -> bool {
    (1..=64).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

fn depth(value: &Value, at: usize) -> usize {
    if at > DEPTH_MAX {
        return at;
    }
    let inner: Box<dyn Iterator<Item = &Value> + '_> = match value {
        Value::Object(members) => Box::new(members.values()),
        Value::Array(items) => Box::new(items.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return at,
    };
    inner.map(|value| depth(value, at + 1)).max().unwrap_or(at)
}

/// Writes references out. One that leads nowhere, or to another document, is an error.
fn resolved(root: &Value, value: &Value, references: usize, budget: &mut usize) -> Result<Value, String> {
    *budget = budget.saturating_sub(1);
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                let Some(target) = target else {
                    return Err(format!("its inputSchema refers to {reference}, which is not in it"));
                };
                if references >= REFERENCES_MAX || *budget == 0 {
                    return Ok(Value::Object(Map::new()));
                }
                let mut whole = resolved(root, target, references + 1, budget)?;
                if let Value::Object(whole) = &mut whole {
                    for (key, value) in members.iter().filter(|(key, _)| *key != "$ref") {
                        whole.insert(key.clone(), resolved(root, value, references, budget)?);
                    }
                }
                return Ok(whole);
            }
            let of = |(key, value): (&String, &Value)| Ok((key.clone(), resolved(root, value, references, budget)?));
            Ok(Value::Object(members.iter().map(of).collect::<Result<_, String>>()?))
        }
        Value::Array(items) => {
            let of = |value: &Value| resolved(root, value, references, budget);
            Ok(Value::Array(items.iter().map(of).collect::<Result<_, String>>()?))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(schema: &Value) -> Result<Value, String> {
        let entry = json!({"name": "t", "inputSchema": schema});
        read(&entry).map(|found| found.parameters.read().unwrap()).map_err(|bad| bad.why)
    }

    #[test]
    fn an_ordinary_schema_stays_as_it_is() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]});
        assert_eq!(parameters(&schema).unwrap(), schema);
    }

    #[test]
    fn bad_ones_are_named() {
        for (schema, why) in [
            (json!("x"), "no object"),
            (json!({"type": "string"}), "of type"),
            (json!({"type": "object", "properties": {"$.x": {}}}), "providers refuse"),
            (json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}), "not in it"),
            (json!({"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}), "not in it"),
            (json!({"type": "object", "properties": {"required": ["a"]}}), "no schema"),
            (json!({"type": "object", "required": "a"}), "no list of names"),
        ] {
            let said = parameters(&schema).unwrap_err();
            assert!(said.contains(why), "{schema}: {said}");
        }
        assert!(read(&json!({"description": "x"})).is_err());
        assert!(read(&json!({"name": 3})).is_err());
    }

    #[test]
    fn references_are_written_out_and_cycles_end() {
        let schema = json!({
            "type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            "properties": {"root": {"$ref": "#/$defs/node", "description": "the first"}}
        });
        let found = parameters(&schema).unwrap();
        assert!(!found.to_string().contains("$ref"), "{found}");
        assert_eq!(found["properties"]["root"]["description"], "the first");
        assert!(found.to_string().len() <= SCHEMA_MAX_BYTES);
        // every level doubles: it must end, and be small
        let wide = json!({"type": "object", "$defs": {"n": {"anyOf": vec![json!({"$ref": "#/$defs/n"}); 8]}},
            "properties": {"a": {"$ref": "#/$defs/n"}}});
        assert!(parameters(&wide).unwrap().to_string().len() <= SCHEMA_MAX_BYTES);
    }

    #[test]
    fn one_that_is_too_large_becomes_the_smallest_that_is_valid() {
        let large: Map<String, Value> =
            (0..1000).map(|n| (format!("p{n}"), json!({"type": "string", "description": "words"}))).collect();
        let found = parameters(&json!({"type": "object", "properties": large})).unwrap();
        assert_eq!(found["type"], "object");
        assert!(found.to_string().len() < 100);
    }
}
