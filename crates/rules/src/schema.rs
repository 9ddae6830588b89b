//! JSON Schema: every fault with the place it is at. Schemas stand alone; a reference that leads outside is a mistake.

use std::fmt;

use serde_json::Value as Json;

use crate::condition::shorten;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema(jsonschema::Validator);

/// Why a value is no schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no usable JSON Schema{at}: {problem}")]
pub struct SchemaMistake {
    at: String,
    problem: String,
}

/// One thing that is wrong with a value, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer; empty: the whole value.
    pub pointer: String,
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "the whole" } else { &self.pointer };
        write!(f, "{place}: {}", self.problem)
    }
}

impl Schema {
    pub fn compile(schema: &Json) -> Result<Self, SchemaMistake> {
        jsonschema::validator_for(schema).map(Self).map_err(|error| {
            let pointer = error.instance_path().to_string();
            SchemaMistake {
                at: if pointer.is_empty() { pointer } else { format!(" at {pointer}") },
                problem: shorten(&error.to_string(), PROBLEM_MAX_BYTES),
            }
        })
    }

    /// Every fault of `value`, in the order of the schema; empty: it fits. At most 20.
    pub fn faults(&self, value: &Json) -> Vec<Fault> {
        self.0
            .iter_errors(value)
            .take(FAULTS_MAX)
            .map(|error| Fault {
                pointer: error.instance_path().to_string(),
                problem: shorten(&error.to_string(), PROBLEM_MAX_BYTES),
            })
            .collect()
    }
}

/// More faults than this help nobody.
const FAULTS_MAX: usize = 20;
/// Messages quote the value, which may be long.
const PROBLEM_MAX_BYTES: usize = 300;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_has_its_place() {
        let schema = json!({
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": { "a": { "type": "string", "evidence": "tool" }, "b": { "items": { "type": "number" } } },
        });
        let schema = Schema::compile(&schema).unwrap();
        assert_eq!(schema.faults(&json!({ "a": "x" })), vec![]);
        let faults: Vec<String> =
            schema.faults(&json!({ "b": [1, "two"], "c": 1 })).iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            vec![
                "/b/1: \"two\" is not of type \"number\"",
                "the whole: Additional properties are not allowed ('c' was unexpected)",
                "the whole: \"a\" is a required property",
            ]
        );
    }

    #[test]
    fn a_schema_stands_alone() {
        let mistake = Schema::compile(&json!({ "type": "nonsense" })).unwrap_err();
        assert!(mistake.to_string().starts_with("it is no usable JSON Schema at /type"), "{mistake}");
        for outside in ["https://example.com/schema.json", "file:///etc/hostname", "other.json"] {
            assert!(Schema::compile(&json!({ "$ref": outside })).is_err(), "{outside}");
        }
    }
}
