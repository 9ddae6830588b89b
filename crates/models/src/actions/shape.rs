//! The shape of replies: where the answer stands in a `final` object, and the JSON Schema a server may hold the model to.

use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, ToolDef};
use serde_json::{Map, Value, json};

/// How a `final` object holds the answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Final<'a> {
    /// `answer` is a text.
    Text,
    /// The answer's own fields stand beside `kind`; this is its schema.
    Fields(&'a Payload),
    /// `answer` is the answer: it is no object, or has a field `kind` of its own.
    Whole(&'a Payload),
}

impl<'a> Final<'a> {
    pub(super) fn of(answer: &'a AnswerForm) -> Self {
        match answer {
            AnswerForm::Text | AnswerForm::Remark => Final::Text,
            AnswerForm::Json(schema) => {
                let read: Value = schema.read().unwrap_or_default();
                let has_kind = read.pointer("/properties/kind").is_some();
                if read.get("type").is_some_and(|kind| kind == "object") && !has_kind {
                    Final::Fields(schema)
                } else {
                    Final::Whole(schema)
                }
            }
        }
    }

    /// For the model: how to answer.
    pub(super) fn explained(self) -> &'static str {
        match self {
            Final::Text => r#"{"kind":"final","answer":"…"} gives your answer, when you have finished."#,
            Final::Fields(_) => {
                r#"{"kind":"final",…} gives your answer, when you have finished: beside "kind" stand the fields of the answer's own schema."#
            }
            Final::Whole(_) => {
                r#"{"kind":"final","answer":…} gives your answer, when you have finished: "answer" is what the answer's own schema describes."#
            }
        }
    }

    /// An answer as the model would have given it.
    pub(super) fn spell(self, text: &str) -> String {
        let bare = || json!({ "kind": "final", "answer": text }).to_string();
        let Ok(answer) = Payload::parse(text) else { return bare() };
        match self {
            Final::Text => bare(),
            Final::Whole(_) => format!(r#"{{"kind":"final","answer":{}}}"#, answer.as_str()),
            Final::Fields(_) => match answer.as_str().trim().strip_prefix('{').map(str::trim_start) {
                Some("}") => r#"{"kind":"final"}"#.to_owned(),
                Some(fields) => format!(r#"{{"kind":"final",{fields}"#),
                None => bare(),
            },
        }
    }

    fn schema(self) -> Value {
        let with = |answer: Value| {
            json!({
                "type": "object", "properties": { "kind": { "const": "final" }, "answer": answer },
                "required": ["kind", "answer"], "additionalProperties": false,
            })
        };
        match self {
            Final::Text => with(json!({ "type": "string" })),
            Final::Whole(schema) => with(inside(schema)),
            Final::Fields(schema) => {
                let Value::Object(mut schema) = inside(schema) else { return object() };
                let mut properties = Map::from_iter([("kind".to_owned(), json!({ "const": "final" }))]);
                if let Some(Value::Object(own)) = schema.remove("properties") {
                    properties.extend(own);
                }
                let mut required = vec![json!("kind")];
                if let Some(Value::Array(own)) = schema.remove("required") {
                    required.extend(own);
                }
                schema.insert("type".to_owned(), json!("object"));
                schema.insert("properties".to_owned(), Value::Object(properties));
                schema.insert("required".to_owned(), Value::Array(required));
                Value::Object(schema)
            }
        }
    }
}

/// The schema of a reply.
pub(super) fn reply(tools: &[ToolDef], answer: &AnswerForm) -> Payload {
    let answer = Final::of(answer).schema();
    let schema = if tools.is_empty() {
        answer
    } else {
        let calls = tools.iter().map(|tool| {
            json!({
                "type": "object",
                "properties": {
                    "kind": { "const": "tool" }, "name": { "const": tool.name }, "arguments": inside(&tool.parameters),
                },
                "required": ["kind", "name", "arguments"], "additionalProperties": false,
            })
        });
        json!({ "anyOf": calls.chain([answer]).collect::<Vec<_>>() })
    };
    Payload::of(&schema).expect("a JSON value always serialises")
}

/// A schema as part of another. One that refers to parts of itself would refer to nothing there: replies are checked
/// against it all the same, only not while they are written.
fn inside(schema: &Payload) -> Value {
    let refers = ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|word| schema.as_str().contains(word));
    let read = if refers { None } else { schema.read::<Value>().ok() };
    let Some(Value::Object(mut schema)) = read else { return object() };
    for word in ["$schema", "$id"] {
        schema.remove(word);
    }
    Value::Object(schema)
}

fn object() -> Value {
    json!({ "type": "object" })
}
