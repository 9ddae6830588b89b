//! Schemas of tools as providers take them. What a tool's own schema says that none of them takes is left out of the request,
//! and not out of the judgement: calls are checked by the schema as it is.
//!
//! Providers refuse a whole request for one such schema: a combination at the top where they want an object's own fields, a
//! list of choices that is empty, an array that does not say of what.

use std::borrow::Cow;

use longrein_core::payload::Payload;
use serde_json::{Map, Value, json};

use crate::numbers;

/// The schema itself, unless there is something about it that a provider would refuse.
pub(crate) fn plain(schema: &Payload) -> Cow<'_, Payload> {
    let Ok(given) = serde_json::from_str::<Value>(&numbers::kept(schema.as_str())) else {
        return Cow::Borrowed(schema);
    };
    let mut value = given.clone();
    tidy(&mut value, DEPTH_MAX);
    let whole = value.clone();
    let mut root = object(value, &whole, DEPTH_MAX);
    root.entry("properties").or_insert_with(|| json!({}));
    let value = Value::Object(root);
    if value == given { Cow::Borrowed(schema) } else { Cow::Owned(numbers::payload(&value)) }
}

/// How deep schemas are looked into.
const DEPTH_MAX: usize = 32;

/// What combines schemas at the top, and where the result is the arguments of a call.
const COMBINED: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "enum"];

/// A schema as one of an object with fields of its own: what is combined in it is merged as far as it says which fields there
/// are, and the rest is said in words. `whole`: where references lead.
fn object(schema: Value, whole: &Value, depth: usize) -> Map<String, Value> {
    let Value::Object(mut schema) = schema else { return Map::from_iter([("type".to_owned(), json!("object"))]) };
    if depth > 0
        && let Some(target) =
            schema.get("$ref").and_then(Value::as_str).and_then(|to| whole.pointer(to.strip_prefix('#')?))
    {
        let target = object(target.clone(), whole, depth - 1);
        schema.shift_remove("$ref");
        target.into_iter().for_each(|(key, value)| {
            schema.entry(key).or_insert(value);
        });
    }
    let rules: Map<_, _> = COMBINED.iter().filter_map(|key| schema.shift_remove_entry(*key)).collect();
    for (key, rule) in &rules {
        let Value::Array(branches) = rule else { continue };
        if depth > 0 && key != "enum" {
            let branches = branches.iter().map(|branch| object(branch.clone(), whole, depth - 1));
            merge(&mut schema, key, branches.collect());
        }
    }
    if schema.get("type") != Some(&json!("object")) {
        schema.insert("type".to_owned(), json!("object"));
    }
    if !rules.is_empty() {
        explain(&mut schema, &Value::Object(rules));
    }
    schema
}

/// Takes over the fields of branches, and which of them must be there.
fn merge(schema: &mut Map<String, Value>, how: &str, branches: Vec<Map<String, Value>>) {
    let required = |branch: &Map<String, Value>| -> Vec<Value> {
        branch.get("required").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let lists: Vec<_> = branches.iter().map(required).collect();
    let needed: Vec<Value> = if how == "allOf" {
        lists.concat()
    } else {
        let first = lists.first().cloned().unwrap_or_default();
        first.into_iter().filter(|name| lists.iter().all(|list| list.contains(name))).collect()
    };
    for branch in branches {
        let Some(Value::Object(fields)) = branch.get("properties").cloned() else { continue };
        let Value::Object(known) = schema.entry("properties").or_insert_with(|| json!({})) else { continue };
        for (name, field) in fields {
            match known.get_mut(&name) {
                None => {
                    known.insert(name, field);
                }
                Some(before) if *before == field => {}
                Some(before) => {
                    *before = json!({ (if how == "allOf" { "allOf" } else { "anyOf" }): [before.clone(), field] })
                }
            }
        }
    }
    if !needed.is_empty()
        && let Value::Array(list) = schema.entry("required").or_insert_with(|| json!([]))
    {
        for name in needed {
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
}

/// The longest rules that are put in words.
const RULES_MAX_BYTES: usize = 1024;

/// Tells the model what the schema cannot.
fn explain(schema: &mut Map<String, Value>, rules: &Value) {
    let rules = rules.to_string();
    if rules.len() > RULES_MAX_BYTES {
        return;
    }
    let before = schema.get("description").and_then(Value::as_str).map(|words| format!("{words} ")).unwrap_or_default();
    schema.insert("description".to_owned(), json!(format!("{before}Must also match: {rules}")));
}

/// Mends what no provider takes anywhere in a schema.
fn tidy(schema: &mut Value, depth: usize) {
    let Value::Object(schema) = schema else { return };
    if schema.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        schema.shift_remove("enum");
    }
    if schema.get("required").is_some_and(|required| !required.is_array()) {
        schema.shift_remove("required");
    }
    let is_array = match schema.get("type") {
        Some(Value::Array(types)) => types.contains(&json!("array")),
        kind => kind == Some(&json!("array")),
    };
    if is_array && !schema.contains_key("items") {
        schema.insert("items".to_owned(), json!({}));
    }
    if depth == 0 {
        return;
    }
    for (key, part) in schema.iter_mut() {
        match (key.as_str(), part) {
            (
                "items" | "additionalProperties" | "not" | "if" | "then" | "else" | "contains" | "propertyNames",
                part @ Value::Object(_),
            ) => tidy(part, depth - 1),
            ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
                parts.iter_mut().for_each(|part| tidy(part, depth - 1));
            }
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(parts),
            ) => {
                parts.values_mut().for_each(|part| tidy(part, depth - 1));
            }
            (_, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema, and what is sent for it.
    fn check(given: &str, sent: &str) {
        let given = Payload::parse(given).expect("JSON");
        let came: Value = plain(&given).read().expect("JSON");
        assert_eq!(came, serde_json::from_str::<Value>(sent).expect("JSON"), "{}", given.as_str());
    }

    #[test]
    fn what_providers_take_goes_out_as_it_is() {
        for schema in [
            r#"{ "type":"object", "properties":{} }"#,
            r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"enum":{"type":"string"}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"number","maximum":1e300}}}}"#,
            r#"{"type":"object","properties":{"required":{"type":"array","items":{}},"x":{"default":{"enum":[]}}}}"#,
        ] {
            let schema = Payload::parse(schema).expect("JSON");
            assert!(matches!(plain(&schema), Cow::Borrowed(_)), "{}", schema.as_str());
        }
    }

    #[test]
    fn what_they_refuse_is_mended() {
        check(r#"{}"#, r#"{"type":"object","properties":{}}"#);
        check("true", r#"{"type":"object","properties":{}}"#);
        check(r#"{"type":["object","null"]}"#, r#"{"type":"object","properties":{}}"#);
        check(
            r#"{"type":"object","properties":{"a":{"enum":[]},"b":{"type":"array"},"c":{"type":["array","null"],"required":true}}}"#,
            r#"{"type":"object","properties":{"a":{},"b":{"type":"array","items":{}},"c":{"type":["array","null"],"items":{}}}}"#,
        );
        check(
            r#"{"type":"object","properties":{"a":{"items":{"properties":{"b":{"type":"array"}}}}}}"#,
            r#"{"type":"object","properties":{"a":{"items":{"properties":{"b":{"type":"array","items":{}}}}}}}"#,
        );
    }

    #[test]
    fn combinations_at_the_top_are_merged_and_told() {
        check(
            r#"{"type":"object","description":"D.","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#,
            r#"{"type":"object","description":"D. Must also match: {\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}","properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#,
        );
        let sent = |given: &str| {
            let mut sent: Value = plain(&Payload::parse(given).expect("JSON")).read().expect("JSON");
            sent.as_object_mut().expect("an object").shift_remove("description");
            sent
        };
        assert_eq!(
            sent(
                r#"{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"a":{"minLength":1},"b":{}},"required":["b"]}]}"#
            ),
            json!({"type":"object","properties":{"a":{"allOf":[{"type":"string"},{"minLength":1}]},"b":{}},"required":["a","b"]}),
        );
        assert_eq!(
            sent(
                r##"{"oneOf":[{"$ref":"#/$defs/A"},{"properties":{"k":{"const":"b"},"n":{}},"required":["k","n"]}],"$defs":{"A":{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]}}}"##
            ),
            json!({
                "type": "object",
                "$defs": {"A":{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]}},
                "properties": {"k":{"anyOf":[{"const":"a"},{"const":"b"}]},"n":{}},
                "required": ["k"],
            }),
        );
        assert_eq!(
            sent(r##"{"$ref":"#/definitions/A","definitions":{"A":{"type":"object","properties":{"a":{}}}}}"##),
            json!({"type":"object","definitions":{"A":{"type":"object","properties":{"a":{}}}},"properties":{"a":{}}}),
        );
        // One that leads to itself ends.
        assert_eq!(sent(r##"{"$ref":"#"}"##)["type"], "object");
    }
}
