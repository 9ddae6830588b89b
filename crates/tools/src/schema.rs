//! The schema of one tool's arguments: compiled once, applied to every call, and explained to the model where it breaks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use longrein_core::ids::ToolName;
use longrein_core::outcome::{ToolError, class};
use longrein_core::payload::Payload;
use serde_json::{Map, Value, json};

use crate::near::nearest;

/// Our keyword: this property holds the id of evidence that the named tool brought.
const EVIDENCE: &str = "evidence";

/// So many problems are told at once: enough to mend a call in one go.
const PROBLEMS_MAX: usize = 3;

/// A schema may refer to itself; defaults are filled in so many levels down.
const DEFAULTS_DEPTH_MAX: usize = 32;

/// Longer values and lists in messages are cut.
const QUOTED_MAX_BYTES: usize = 400;

#[derive(Debug)]
pub(crate) struct Schema {
    root: Value,
    validator: jsonschema::Validator,
    /// Top-level property → the tool its evidence must come from.
    pub(crate) evidence: BTreeMap<String, ToolName>,
    owner: Owner,
}

/// Who wrote a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Operator,
    Stranger,
}

fn built(parameters: &Payload) -> Result<(Value, jsonschema::Validator), Unusable> {
    let root: Value = parameters.read().map_err(|error| Unusable::Schema(error.to_string()))?;
    let root = normalised(root)?;
    let validator = jsonschema::options()
        .offline()
        .build(&root)
        .map_err(|error| Unusable::Schema(clip(&format!("at {}: {error}", pointer(error.instance_path().as_str())))))?;
    Ok((root, validator))
}

/// What is wrong with a schema itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    Schema(String),
    Default { field: String, problem: String },
}

impl Schema {
    pub(crate) fn compile(parameters: &Payload) -> Result<Self, Unusable> {
        let (root, validator) = built(parameters)?;
        let mut evidence = BTreeMap::new();
        for (name, property) in properties(&root).into_iter().flatten() {
            match property.get(EVIDENCE) {
                None => {}
                Some(Value::String(tool)) => {
                    evidence.insert(name.clone(), ToolName::new(tool));
                }
                Some(other) => {
                    return Err(Unusable::Schema(format!("evidence of {name} must name a tool, not {other}")));
                }
            }
        }
        let schema = Self { root, validator, evidence, owner: Owner::Operator };
        schema.check_defaults()?;
        Ok(schema)
    }

    /// One that somebody else wrote: our keyword means nothing in it, and its defaults are filled in by whoever wrote them.
    pub(crate) fn of_a_stranger(parameters: &Payload) -> Result<Self, Unusable> {
        let (root, validator) = built(parameters)?;
        Ok(Self { root, validator, evidence: BTreeMap::new(), owner: Owner::Stranger })
    }

    /// A default that breaks the schema would be held against the model in every call.
    fn check_defaults(&self) -> Result<(), Unusable> {
        let mut value = Value::Object(Map::new());
        self.fill_defaults(&mut value);
        let broken = self.validator.iter_errors(&value).find(|error| !error.instance_path().as_str().is_empty());
        match broken {
            Some(error) => Err(Unusable::Default {
                field: error.instance_path().as_str().to_owned(),
                problem: clip(&error.to_string()),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn has_property(&self, name: &str) -> bool {
        properties(&self.root).is_some_and(|properties| properties.contains_key(name))
    }

    /// As a model is shown it: our keyword becomes words.
    pub(crate) fn offered(&self) -> Payload {
        let mut shown = self.root.clone();
        if let Some(Value::Object(properties)) = shown.get_mut("properties") {
            for (name, tool) in &self.evidence {
                let Some(Value::Object(property)) = properties.get_mut(name) else { continue };
                property.shift_remove(EVIDENCE);
                let what = format!("an evidence id such as e1, from {tool}");
                let description = match property.get("description").and_then(Value::as_str) {
                    Some(own) if !own.trim().is_empty() => format!("{} ({what})", own.trim_end()),
                    Some(_) | None => what,
                };
                property.insert("description".to_owned(), Value::String(description));
            }
        }
        Payload::of(&shown).expect("a JSON value always serialises")
    }

    /// Fills in the defaults of absent properties, here and in nested objects that are present.
    pub(crate) fn fill_defaults(&self, value: &mut Value) {
        match self.owner {
            Owner::Operator => fill(&self.root, &self.root, value, 0),
            // a call goes out as the model wrote it
            Owner::Stranger => {}
        }
    }

    /// Whether a call may come without any argument.
    pub(crate) fn takes_nothing(&self) -> bool {
        let mut nothing = Value::Object(Map::new());
        self.fill_defaults(&mut nothing);
        self.validator.is_valid(&nothing)
    }

    pub(crate) fn check(&self, value: &Value) -> Result<(), ToolError> {
        let mut problems: Vec<Problem> =
            self.validator.iter_errors(value).take(PROBLEMS_MAX + 1).map(|error| self.explain(&error)).collect();
        if problems.is_empty() {
            return Ok(());
        }
        let more = problems.len() > PROBLEMS_MAX;
        problems.truncate(PROBLEMS_MAX);
        let mut message = problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join(" ");
        if more {
            message.push_str(" There is more.");
        }
        let mut hints: Vec<String> = problems.iter().filter_map(|problem| problem.hint.clone()).collect();
        hints.dedup();
        let mut error = ToolError::new(class::INVALID_ARGUMENTS, message).at(&problems[0].field);
        if !hints.is_empty() {
            error = error.hint(clip(&hints.join(" ")));
        }
        Err(error)
    }

    fn explain(&self, error: &ValidationError<'_>) -> Problem {
        let at = error.instance_path().as_str();
        let place = pointer(at);
        let kind = error.kind();
        if let ValidationErrorKind::Required { property } = kind {
            let name = property.as_str().unwrap_or_default();
            let wanted = self.described(error, name);
            return Problem {
                field: format!("{at}/{}", escape(name)),
                message: format!("{} is missing.", pointer(&format!("{at}/{}", escape(name)))),
                hint: wanted.map(|wanted| format!("{name}: {wanted}.")),
            };
        }
        if let ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } = kind
        {
            let name = unexpected.first().map(String::as_str).unwrap_or_default();
            let known = self.siblings(error);
            let near = nearest(name, known.iter().map(String::as_str));
            let mut hint = String::new();
            if let Some(near) = near.first() {
                let _ = write!(hint, "Did you mean {near}? ");
            }
            let _ = if known.is_empty() {
                write!(hint, "No arguments are taken here.")
            } else {
                write!(hint, "Allowed: {}.", known.join(", "))
            };
            return Problem {
                field: format!("{at}/{}", escape(name)),
                message: clip(&format!("{} is not known.", unexpected.join(", "))),
                hint: Some(hint),
            };
        }
        if let ValidationErrorKind::Enum { options } = kind {
            let allowed = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let texts: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
            let meant = error.instance().as_str().and_then(|text| nearest(text, texts).first().copied());
            let list = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
            return Problem {
                field: at.to_owned(),
                message: format!("{place} is {}, which is none of the allowed values.", quoted(error.instance())),
                hint: Some(match meant {
                    Some(meant) => format!("Did you mean \"{meant}\"? Allowed: {list}."),
                    None => format!("Allowed: {list}."),
                }),
            };
        }
        if let ValidationErrorKind::Type { .. } = kind {
            let expected = clip(&error.masked_with("it").to_string());
            return Problem {
                field: at.to_owned(),
                message: format!("{place} is {}: {expected}.", quoted(error.instance())),
                hint: None,
            };
        }
        Problem {
            field: at.to_owned(),
            message: clip(&format!("{place}: {}.", error.masked_with(quoted(error.instance())))),
            hint: None,
        }
    }

    /// What the schema says of a property beside the failing keyword.
    fn described(&self, error: &ValidationError<'_>, name: &str) -> Option<String> {
        let property = self.beside(error)?.get("properties")?.get(name)?;
        let mut words = Vec::new();
        if let Some(kind) = property.get("type") {
            words.push(kind.as_str().map_or_else(|| kind.to_string(), str::to_owned));
        }
        if let Some(tool) = property.get(EVIDENCE).and_then(Value::as_str) {
            words.push(format!("an evidence id such as e1, from {tool}"));
        }
        if let Some(description) = property.get("description").and_then(Value::as_str) {
            words.push(clip(description.trim_end_matches('.')));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn siblings(&self, error: &ValidationError<'_>) -> Vec<String> {
        self.beside(error)
            .and_then(properties)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The object schema that the failing keyword stands in.
    fn beside(&self, error: &ValidationError<'_>) -> Option<&Value> {
        let path = error.schema_path().as_str();
        self.root.pointer(path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }
}

struct Problem {
    field: String,
    message: String,
    hint: Option<String>,
}

/// Providers want an object at the root, said so, with properties.
fn normalised(root: Value) -> Result<Value, Unusable> {
    let mut root = match root {
        Value::Null => Map::new(),
        Value::Object(root) => root,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Unusable::Schema("it is no object".to_owned()));
        }
    };
    match root.get("type") {
        None => {
            root.insert("type".to_owned(), json!("object"));
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(Unusable::Schema(format!("type must be \"object\", not {other}"))),
    }
    let properties = root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if !properties.is_object() {
        return Err(Unusable::Schema("properties must be a table".to_owned()));
    }
    Ok(Value::Object(root))
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

fn fill(root: &Value, schema: &Value, value: &mut Value, depth: usize) {
    if depth > DEFAULTS_DEPTH_MAX {
        return;
    }
    let schema = resolved(root, schema);
    match value {
        Value::Object(members) => {
            for (name, property) in properties(schema).into_iter().flatten() {
                let default = property.get("default").or_else(|| resolved(root, property).get("default"));
                if !members.contains_key(name)
                    && let Some(default) = default
                {
                    members.insert(name.clone(), default.clone());
                }
                if let Some(member) = members.get_mut(name) {
                    fill(root, property, member, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                items.iter_mut().for_each(|item| fill(root, of_items, item, depth + 1));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Follows one local reference.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .unwrap_or(schema)
}

/// A JSON pointer as words.
fn pointer(at: &str) -> &str {
    if at.is_empty() { "the arguments" } else { at }
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn quoted(value: &Value) -> String {
    clip(&value.to_string())
}

fn clip(text: &str) -> String {
    longrein_core::payload::head_and_tail(text, QUOTED_MAX_BYTES)
}
