//! Calls as models write them.

use longrein_core::outcome::{ToolError, class};
use longrein_ports::{Tools, ValidArgs};

use super::*;

fn shop() -> Toolbox {
    toolbox(&[
        tool("read_metrics", &json!({})),
        tool(
            "pay",
            &json!({
                "effect": "external",
                "key": { "args": ["order", "tag"], "scope": "run" },
                "env": ["${secret:TOKEN}"],
                "parameters": {
                    "type": "object",
                    "required": ["order", "amount"],
                    "additionalProperties": false,
                    "properties": {
                        "order": { "type": "integer", "description": "The order number." },
                        "amount": { "type": "number", "maximum": 100 },
                        "currency": { "type": "string", "enum": ["EUR", "USD"], "default": "EUR" },
                        "tag": { "type": "string" },
                        "source": { "type": "string", "evidence": "read_metrics" },
                        "to": {
                            "type": "object",
                            "additionalProperties": false,
                            "properties": { "iban": { "type": "string" }, "fast": { "type": "boolean", "default": false } },
                        },
                    },
                },
            }),
        ),
    ])
    .unwrap()
}

fn call(arguments: &str) -> Result<ValidArgs, ToolError> {
    shop().validate(&ToolName::new("pay"), arguments)
}

#[test]
fn canonical_with_defaults() {
    let valid = call(r#"{"order": 9007199254740993, "to": {}, "amount": 1.50}"#).unwrap();
    assert_eq!(valid.args.as_str(), r#"{"amount":1.5,"currency":"EUR","order":9007199254740993,"to":{"fast":false}}"#);
    assert_eq!(valid.digest, valid.args.digest());
    assert!(valid.cites.is_empty());
    let same = call(r#"{"amount":1.5,"to":{"fast":false},"currency":"EUR","order":9007199254740993}"#).unwrap();
    assert_eq!(valid, same);
}

#[test]
fn keys_name_the_intent() {
    let key = |arguments: &str| call(arguments).unwrap().key.unwrap();
    assert_eq!(key(r#"{"order":1,"amount":1}"#), key(r#"{"order":1,"amount":2}"#));
    assert_ne!(key(r#"{"order":1,"amount":1}"#), key(r#"{"order":2,"amount":1}"#));
    assert_ne!(key(r#"{"order":1,"amount":1}"#), key(r#"{"order":1,"amount":1,"tag":"x"}"#));
    assert_eq!(
        key(r#"{"order":1,"amount":1}"#),
        Digest::of_parts(["pay".as_bytes(), b"1".as_slice(), b"null".as_slice()])
    );
    assert_eq!(shop().validate(&ToolName::new("read_metrics"), "").unwrap().key, None);
}

#[test]
fn evidence_references() {
    let valid = call(r#"{"order":1,"amount":1,"source":"e12"}"#).unwrap();
    assert_eq!(valid.cites["source"], (longrein_core::ids::EvidenceId(12), ToolName::new("read_metrics")));
    for wrong in ["a12", "e0", "e", "12", "the metrics", ""] {
        let error = call(&json!({ "order": 1, "amount": 1, "source": wrong }).to_string()).unwrap_err();
        assert_eq!((error.class.as_str(), error.field.as_deref()), (class::EVIDENCE, Some("/source")));
        assert!(error.hint.unwrap().contains("read_metrics"));
    }
}

#[track_caller]
fn refused(arguments: &str, field: &str, in_message: &str, in_hint: &str) {
    let error = call(arguments).unwrap_err();
    assert_eq!(error.class, class::INVALID_ARGUMENTS);
    assert_eq!(error.field.as_deref(), Some(field), "{error:?}");
    assert!(error.message.contains(in_message), "{error:?}");
    assert!(error.hint.clone().unwrap_or_default().contains(in_hint), "{error:?}");
}

#[test]
fn what_breaks_the_schema() {
    refused(r#"{"amount":1}"#, "/order", "/order is missing", "order: integer, The order number");
    refused(r#"{"order":"1","amount":1}"#, "/order", "\"1\"", "");
    refused(r#"{"order":1,"amount":101}"#, "/amount", "maximum", "");
    refused(r#"{"order":1,"amount":1,"curency":"EUR"}"#, "/curency", "curency is not known", "Did you mean currency?");
    refused(r#"{"order":1,"amount":1,"currency":"EURO"}"#, "/currency", "none of the allowed", "Did you mean \"EUR\"?");
    refused(r#"{"order":1,"amount":1,"to":{"ibn":"x"}}"#, "/to/ibn", "not known", "Allowed: iban, fast");
    refused(r#"{"order":1,"amount":1,"source":3}"#, "/source", "3", "");
    let long = json!({ "order": "x".repeat(100_000), "amount": 1 }).to_string();
    let error = call(&long).unwrap_err();
    assert!(error.message.len() < 2000, "{}", error.message.len());
    let all = call("{}").unwrap_err();
    assert!(all.message.contains("/order") && all.message.contains("/amount"), "{all:?}");
}

#[test]
fn cut_and_malformed_calls() {
    for text in ["[]", "null", "3", "\"x\"", r#""{\"order\":1,\"amount\":1}""#, r#"{"order":1,"amou"#, "{'order':1}"] {
        let error = call(text).unwrap_err();
        assert_eq!(error.class, class::INVALID_ARGUMENTS, "{text}");
        assert!(error.hint.is_some(), "{text}");
    }
}

#[test]
fn unknown_tools_get_a_short_answer() {
    let tools: Vec<Value> = (0..500).map(|number| tool(&format!("tool_{number}"), &json!({}))).collect();
    let toolbox = toolbox(&tools).unwrap();
    let error = toolbox.validate(&ToolName::new("tool_49x"), "{}").unwrap_err();
    assert_eq!(error.class, class::UNKNOWN_TOOL);
    assert!(error.hint.as_ref().unwrap().matches("tool_").count() <= 3, "{error:?}");
    assert!(serde_json::to_string(&error).unwrap().len() < 1024);
    let long = toolbox.validate(&ToolName::new("y".repeat(10_000)), "{}").unwrap_err();
    assert!(serde_json::to_string(&long).unwrap().len() < 1024);
}

#[test]
fn secrets_are_no_arguments() {
    let error = call(r#"{"order":1,"amount":1,"tag":"x hunter2hunter2"}"#).unwrap_err();
    assert_eq!(error.class, class::INVALID_ARGUMENTS);
    assert!(error.hint.as_ref().unwrap().contains("${secret:TOKEN}"));
    assert!(!serde_json::to_string(&error).unwrap().contains("hunter2"));
    assert!(call(r#"{"order":1,"amount":1,"nonsense":{"hunter2hunter2":1}}"#).unwrap_err().message.contains("TOKEN"));
}

#[test]
fn a_call_from_which_a_secret_was_taken_is_refused_as_one_that_holds_it() {
    let toolbox = shop();
    for arguments in [r#"{"order":1,"amount":1,"tag":"[redacted:TOKEN]"}"#, r#"{"order":[redacted:TOKEN],"amount":1}"#]
    {
        let error = toolbox.validate(&ToolName::new("pay"), arguments).unwrap_err();
        assert_eq!(error.class, class::INVALID_ARGUMENTS, "{arguments}");
        assert!(error.message.contains("the value of the secret TOKEN"), "{}", error.message);
    }
    // A mark of a kind, or of a name that is none here, is only words.
    for tag in ["[redacted:password]", "[redacted:OTHER]", "[redacted:TOKEN"] {
        assert!(call(&json!({ "order": 1, "amount": 1, "tag": tag }).to_string()).is_ok(), "{tag}");
    }
}
