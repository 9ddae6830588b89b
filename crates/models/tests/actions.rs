//! The JSON action protocol: what is sent, what is understood, and what is refused whatever a model writes.

mod support;

use std::sync::Arc;

use longrein_core::outcome::{Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt};
use longrein_core::task::{ModelSpec, Protocol};
use longrein_models::actions::read::read;
use longrein_models::{ModelConfig, connect};
use longrein_ports::Model;
use proptest::prelude::*;
use serde_json::{Value, json};

use support::server::{response, server};
use support::{assistant, observation, prompt, spec, user};

fn wrote(text: &str) -> Reply {
    Reply { text: text.into(), calls: Vec::new(), finish: Finish::Stop, usage: None, repaired: None, wired: None }
}

fn answer(schema: &str) -> AnswerForm {
    AnswerForm::Json(Payload::parse(schema).expect("JSON"))
}

/// What is understood of a text: `tool NAME ARGUMENTS`, `final ANSWER`, or `told …`.
fn understood(text: &str, form: &AnswerForm) -> String {
    match read(wrote(text), form) {
        Ok(reply) => match &reply.calls[..] {
            [] => format!("final {}", reply.text),
            [call] => {
                assert_eq!((&reply.finish, &*call.id, &*reply.text), (&Finish::ToolCalls, "", ""));
                format!("tool {} {}", call.name, call.arguments)
            }
            many => panic!("{} calls", many.len()),
        },
        Err(failure) => {
            assert_eq!(failure.class, ModelErrorClass::Malformed, "{text}");
            assert!(failure.partial.is_some(), "what was written is kept");
            format!("told {}", failure.message)
        }
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(understood(text, &AnswerForm::Text), expected, "{text}");
}

#[track_caller]
fn told(text: &str, words: &str) {
    let told = understood(text, &AnswerForm::Text);
    assert!(told.starts_with("told ") && told.contains(words), "{text}: {told}");
}

const CALL: &str = r#"{"kind":"tool","name":"pay","arguments":{"n": 1}}"#;

#[test]
fn calls_and_answers() {
    check(CALL, r#"tool pay {"n": 1}"#);
    check(
        r#"{"arguments":{"n":12345678901234567890123},"name":"pay","kind":"tool"}"#,
        "tool pay {\"n\":12345678901234567890123}",
    );
    check(r#"{"kind":"tool","name":"pay"}"#, "tool pay {}");
    check(r#"{"kind":"final","answer":"Grüße\n{\"kind\":\"tool\"}"}"#, "final Grüße\n{\"kind\":\"tool\"}");
    check(r#"{"kind":"final","answer":3}"#, "final 3");
    // A name that is no tool, and arguments that are no object, are told as with any model, by the stages after this one.
    check(r#"{"kind":"tool","name":"no such tool!","arguments":[]}"#, "tool no such tool! []");
    check(r#"{"kind":"tool","name":"pay","arguments":"{\"n\":1}"}"#, r#"tool pay "{\"n\":1}""#);
}

#[test]
fn what_stands_around_the_one_object_does_not_matter() {
    let expected = r#"tool pay {"n": 1}"#;
    for text in [
        format!("```json\n{CALL}\n```"),
        format!("```\n{CALL}```"),
        format!("  \n{CALL}\n\n"),
        format!("I will pay now: {CALL} That should do."),
        format!("Using {{braces}} and a set {{1, 2}} first.\n\n```json\n{CALL}\n```\nDone."),
        format!("<think>maybe {{\"kind\":\"final\",\"answer\":\"no\"}}?</think>\n{CALL}"),
        format!("so it must be paid.\n</think>\n\n{CALL}"),
        format!("\u{feff}{CALL}"),
    ] {
        check(&text, expected);
    }
}

#[test]
fn anything_else_is_told_and_nothing_runs() {
    for (text, words) in [
        ("", "empty"),
        ("  \n", "empty"),
        ("I think we should pay.", "no JSON object"),
        ("<think>never ends", "empty"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ("\"pay\"", "no JSON object"),
        ("{}", "\"kind\""),
        (r#"{"name":"pay","arguments":{}}"#, "\"kind\""),
        (r#"{"kind":1,"name":"pay"}"#, "\"kind\""),
        (r#"{"kind":"call","name":"pay"}"#, "\"kind\" is \"call\""),
        (r#"{"kind":"tool"}"#, "\"name\""),
        (r#"{"kind":"tool","name":7,"arguments":{}}"#, "\"name\""),
        (r#"{"kind":"tool","name":"pay","arguments":{},"and":"more"}"#, "\"and\""),
        (r#"{"kind":"tool","name":"pay","arguments":{},"kind":"final"}"#, "\"kind\" twice"),
        (r#"{"kind":"tool","name":"look","name":"pay","arguments":{}}"#, "\"name\" twice"),
        (r#"{"kind":"final"}"#, "\"answer\""),
        (r#"{"kind":"final","answer":"x","name":"pay"}"#, "\"answer\""),
        (r#"[{"kind":"tool","name":"pay","arguments":{}}]"#, "list"),
        // Cut, whatever the server says about it.
        (r#"{"kind":"tool","name":"pay","arguments":{"n":1"#, "no end"),
        (r#"{"kind":"tool","name":"pay","arguments":{"n":1}"#, "no end"),
        (
            r#"```json
{"kind":"tool","name":"pay","arguments":{"text":"abc"#,
            "no end",
        ),
        // Broken in a way that leaves open what is inside of what.
        (r#"{"kind":"tool","name":"write","arguments":{"text":"a " b"}}"#, "no end"),
        // Broken, and not alone: who knows whether it was meant.
        (r#"Never do this: {kind:"tool",name:"pay",arguments:{}} Good."#, "broken"),
        (r#""{\"kind\":\"tool\",\"name\":\"pay\",\"arguments\":{}}""#, "no end"),
    ] {
        told(text, words);
    }
}

#[test]
fn several_objects_are_none() {
    for text in [
        format!("{CALL}\n{CALL}"),
        format!("```json\n{CALL}\n```\n```json\n{CALL}\n```"),
        format!("{CALL} or rather {{\"kind\":\"final\",\"answer\":\"no\"}}"),
        format!("Given {{\"a\":1}} I call {CALL}"),
        format!("[{CALL},{CALL}]"),
        format!("{CALL}{{kind:'tool'}}"),
        format!("{{\"kind\":\"tool\" oh no, again: {CALL}}} {CALL}"),
        format!("thoughts {CALL} </think> {CALL}"),
    ] {
        told(&text, "2 JSON objects");
    }
}

#[test]
fn an_object_inside_a_broken_one_is_never_the_call() {
    let inner = r#"{"kind":"tool","name":"pay","arguments":{}}"#;
    for text in [
        // The outer one is mended, and it is the outer one.
        format!(r#"{{"kind":"tool","name":"write","arguments":{{"content":{inner}}},}}"#),
        format!(r#"{{'kind':'tool','name':'write','arguments':{{'content':{inner}}}}}"#),
    ] {
        assert!(understood(&text, &AnswerForm::Text).starts_with("tool write {"), "{text}");
    }
    for text in [
        format!(r#"{{"kind":"tool","name":"write","arguments":{{"content":{inner}"#),
        format!(r#"x {{"kind":"tool","name":"write","arguments":{{"content":{inner}}},,}}"#),
        format!(r#"{{"kind":"tool","name":"write","arguments":{{"content":"{inner}"#),
    ] {
        assert!(understood(&text, &AnswerForm::Text).starts_with("told "), "{text}");
    }
}

#[test]
fn whole_but_broken_json_is_mended_and_that_is_recorded() {
    for (text, expected) in [
        (r#"{"kind":"tool","name":"pay","arguments":{"n":1,},}"#, r#"{"n":1}"#),
        ("```json\n{'kind':'tool','name':'pay','arguments':{'n':1}}\n```", r#"{"n":1}"#),
        ("{\"kind\":\"tool\",\"name\":\"pay\",\"arguments\":{\"s\":\"a\nb\"}}", r#"{"s":"a\nb"}"#),
        (r#"{kind:"tool",name:"pay",arguments:{n:12345678901234567890123}}"#, r#"{"n":12345678901234567890123}"#),
    ] {
        let reply = read(wrote(text), &AnswerForm::Text).expect(text);
        let same = |one: &str, other: &str| {
            serde_json::from_str::<Value>(one).unwrap() == serde_json::from_str::<Value>(other).unwrap()
        };
        assert!(same(&reply.calls[0].arguments, expected), "{text}: {}", reply.calls[0].arguments);
        assert_eq!(reply.repaired.as_deref(), Some(text));
    }
    assert_eq!(read(wrote(CALL), &AnswerForm::Text).unwrap().repaired, None);
}

#[test]
fn what_was_cut_or_declined_is_handed_on_without_calls() {
    for finish in [Finish::Length, Finish::Refused, Finish::Other("weird".into())] {
        let call = RawCall { id: "x".into(), name: "pay".into(), arguments: "{}".into() };
        let reply = Reply { finish: finish.clone(), calls: vec![call], ..wrote(CALL) };
        let read = read(reply, &AnswerForm::Text).unwrap();
        assert_eq!((read.finish, read.calls.len(), read.text.as_str()), (finish, 0, CALL));
    }
    let call = RawCall { id: "x".into(), name: "pay".into(), arguments: "{}".into() };
    let native = Reply { calls: vec![call], finish: Finish::ToolCalls, ..wrote("") };
    assert_eq!(read(native, &AnswerForm::Text).unwrap_err().class, ModelErrorClass::Malformed);
}

#[test]
fn answers_with_a_schema() {
    let fields = answer(r#"{"type":"object","properties":{"id":{"type":"string"}}}"#);
    for (text, expected) in [
        (
            r#"{"kind":"final","id":"e1","n":12345678901234567890123}"#,
            r#"final {"id":"e1","n":12345678901234567890123}"#,
        ),
        (r#"{"kind":"final","answer":{"id":"e1"}}"#, r#"final {"id":"e1"}"#),
        (r#"{"kind":"final","answer":"e1"}"#, r#"final {"answer":"e1"}"#),
        (r#"{"kind":"final"}"#, "final {}"),
    ] {
        assert_eq!(understood(text, &fields), expected);
    }
    let own = answer(r#"{"type":"object","properties":{"answer":{"type":"object"}}}"#);
    assert_eq!(understood(r#"{"kind":"final","answer":{"id":1}}"#, &own), r#"final {"answer":{"id":1}}"#);
    for whole in [r#"{"type":"array"}"#, r#"{"type":"object","properties":{"kind":{"type":"string"}}}"#] {
        let whole = answer(whole);
        assert_eq!(understood(r#"{"kind":"final","answer":{"kind":"x"}}"#, &whole), r#"final {"kind":"x"}"#);
        assert!(understood(r#"{"kind":"final","id":1}"#, &whole).starts_with("told "));
    }
}

#[test]
fn the_last_words_of_a_budget_have_any_form() {
    for (text, expected) in [
        (r#"{"kind":"final","answer":"Half of it."}"#, "Half of it."),
        ("Half of it.", "Half of it."),
        (CALL, CALL),
        (r#"{"kind":"final","answer":"Ha"#, r#"{"kind":"final","answer":"Ha"#),
    ] {
        let reply = read(wrote(text), &AnswerForm::Remark).unwrap();
        assert_eq!((reply.text.as_str(), reply.calls.len()), (expected, 0));
    }
}

#[test]
fn floods_do_no_harm() {
    let deep =
        |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(100_000), close.repeat(100_000));
    // Whole: handed on as it is; whoever reads the arguments refuses them.
    let whole = format!(r#"{{"kind":"tool","name":"pay","arguments":{}}}"#, deep("[", "", "]"));
    assert!(understood(&whole, &AnswerForm::Text).starts_with("tool pay [[["));
    // Broken: not mended, since the repairer would not survive it, or would take its time.
    for inner in
        [deep("[", "", "]"), deep("{a:", "1", "}"), deep("f(", "1", ")"), "a:".repeat(100_000), "\" ".repeat(100_000)]
    {
        told(&format!("{{kind:'tool',name:'pay',arguments:{inner}}}"), "");
    }
    told(&"{".repeat(200_000), "no JSON object");
    told(&"{\"kind\":".repeat(100_000), "no end");
}

proptest! {
    #[test]
    fn cut_anywhere_it_is_never_run(cut in 0..CALL.len(), fence in any::<bool>()) {
        let text = if fence { format!("```json\n{}", &CALL[..cut]) } else { CALL[..cut].to_owned() };
        prop_assert!(read(wrote(&text), &AnswerForm::Text).is_err());
    }

    #[test]
    fn whatever_is_written_is_read_or_told(text in r#"([{}\[\]"':,\\ \n`]|kind|tool|final|name|arguments|answer|é|</?think>){0,40}"#) {
        match read(wrote(&text), &AnswerForm::Text) {
            Ok(reply) => prop_assert!(reply.calls.len() <= 1),
            Err(failure) => prop_assert_eq!(failure.class, ModelErrorClass::Malformed),
        }
    }

    #[test]
    fn arguments_arrive_as_they_were_written(text in ".{0,60}", name in "[a-z]{1,9}") {
        let call = json!({ "kind": "tool", "name": name, "arguments": { "text": text } });
        for written in [call.to_string(), format!("Sure:\n```json\n{call:#}\n```\n")] {
            let reply = read(wrote(&written), &AnswerForm::Text).unwrap();
            prop_assert_eq!(&reply.calls[0].name, &name);
            let arguments: Value = serde_json::from_str(&reply.calls[0].arguments).unwrap();
            prop_assert_eq!(&arguments["text"], &json!(text));
            prop_assert_eq!(reply.repaired, None);
        }
    }
}

// ---- requests ----

fn json_spec(name: &str) -> ModelSpec {
    ModelSpec { protocol: Protocol::Json, ..spec(name) }
}

fn model(name: &str) -> Arc<dyn Model> {
    let config = ModelConfig { base_url: Some("http://127.0.0.1:1/v1".into()), ..ModelConfig::default() };
    connect(&json_spec(name), &config).expect("good settings")
}

fn conversation() -> Vec<Item> {
    vec![
        user("Is it up?"),
        assistant("", &[("c1", "read_metrics", "{\"n\": 1}")]),
        observation("c1", 1, r#"{"id":"a1","ok":true}"#),
        Item::Harness("<longrein>\ngo on\n</longrein>".into()),
        assistant("It is \"up\".", &[]),
        user("Sure?"),
    ]
}

fn body(model: &dyn Model, prompt: &Prompt) -> Value {
    serde_json::from_slice(&model.encode(prompt).bytes).expect("JSON")
}

#[test]
fn a_conversation_in_plain_messages() {
    let mut prompt = prompt(0, conversation());
    prompt.tail = Some("hurry".into());
    for name in ["openai/small", "ollama/small"] {
        let body = body(&*model(name), &prompt);
        assert!(body.get("tools").is_none());
        let messages = body["messages"].as_array().unwrap();
        let said: Vec<_> = messages
            .iter()
            .map(|message| (message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
            .collect();
        assert!(said[0].1.starts_with("You check services.\n\nHow you reply:"), "{}", said[0].1);
        assert!(said[0].1.contains("- read_metrics: Reads the metrics.\n  arguments: {\"type\":\"object\""));
        let expected = [
            ("user", "Is it up?"),
            ("assistant", r#"{"kind":"tool","name":"read_metrics","arguments":{"n": 1}}"#),
            (
                "user",
                "<longrein-result>\n{\"id\":\"a1\",\"ok\":true}\n</longrein-result>\n\n<longrein>\ngo on\n</longrein>",
            ),
            ("assistant", r#"{"kind":"final","answer":"It is \"up\"."}"#),
            ("user", "Sure?\n\nhurry"),
        ];
        assert_eq!(said[1..], expected, "{name}");
    }
}

#[test]
fn the_server_is_given_the_schema_of_a_reply() {
    let mut prompt = prompt(0, conversation());
    let openai = body(&*model("openai/small"), &prompt);
    let schema = &openai["response_format"]["json_schema"]["schema"];
    assert_eq!(openai["response_format"]["type"], "json_schema");
    assert_eq!(schema["anyOf"][0]["properties"]["name"]["const"], "read_metrics");
    assert_eq!(schema["anyOf"][1]["properties"]["answer"]["type"], "string");
    assert_eq!(&body(&*model("ollama/small"), &prompt)["format"], schema);
    // With an answer that has fields, they stand beside the kind; without tools there is nothing else.
    prompt.answer = answer(r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}"#);
    prompt.tools = Arc::from([]);
    let schema = &body(&*model("ollama/small"), &prompt)["format"];
    assert_eq!(
        *schema,
        json!({ "type": "object", "properties": { "kind": { "const": "final" }, "id": { "type": "string" } },
        "required": ["kind", "id"] })
    );
    // One that refers to itself cannot be put inside another.
    prompt.answer = answer(r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{}}}"##);
    assert!(!body(&*model("ollama/small"), &prompt)["format"].to_string().contains("$ref"));
}

#[test]
fn a_final_answer_is_shown_again_in_its_form() {
    for (form, text, expected) in [
        (r#"{"type":"object"}"#, r#"{ "id": "e1" }"#, r#"{"kind":"final","id": "e1" }"#),
        (r#"{"type":"object"}"#, "{}", r#"{"kind":"final"}"#),
        (r#"{"type":"object"}"#, "words", r#"{"kind":"final","answer":"words"}"#),
        (r#"{"type":"array"}"#, "[1]", r#"{"kind":"final","answer":[1]}"#),
    ] {
        let mut prompt = prompt(0, vec![assistant(text, &[])]);
        prompt.answer = answer(form);
        assert_eq!(body(&*model("openai/small"), &prompt)["messages"][1]["content"], expected);
        assert!(serde_json::from_str::<Value>(expected).is_ok());
        // And read again it is the same answer.
        let again = read(wrote(expected), &prompt.answer).unwrap().text;
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), value);
        }
    }
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one() {
    let whole = prompt(0, conversation());
    let used = model("ollama/small");
    let bytes = used.encode(&whole).bytes;
    for count in 1..whole.items.len() {
        let short = Prompt { items: whole.items[..count].to_vec().into(), ..whole.clone() };
        let short = used.encode(&short).bytes;
        let end = short.windows(13).position(|found| found == br#""}],"format":"#).unwrap();
        assert!(bytes.starts_with(&short[..end]), "{count}");
        assert_eq!(used.encode(&whole).bytes, model("ollama/small").encode(&whole).bytes, "memory never shows");
    }
}

// ---- the wire ----

async fn ask(model: &dyn Model) -> Result<Reply, ModelFailure> {
    model.send(model.encode(&prompt(0, vec![user("hello")]))).await
}

#[tokio::test]
async fn a_server_that_cannot_hold_to_a_schema_is_asked_without_one() {
    let refusal =
        r#"{"error":{"message":"response_format json_schema is not supported","type":"invalid_request_error"}}"#;
    let server = server(response("400 Bad Request", refusal)).await;
    let config = ModelConfig { base_url: Some(server.url.clone()), ..ModelConfig::default() };
    let model = connect(&json_spec("openai/small"), &config).unwrap();
    let failure = ask(&*model).await.unwrap_err();
    assert_eq!(failure.class, ModelErrorClass::Transient, "the next attempt is another request");
    let failure = ask(&*model).await.unwrap_err();
    assert_eq!(failure.class, ModelErrorClass::BadRequest, "and if that is refused as well, it is for good");
    let requests = server.requests.lock().unwrap();
    assert!(requests[0].contains("response_format") && !requests[1].contains("response_format"));
}

#[tokio::test]
async fn a_call_over_either_wire() {
    let chat = json!({ "choices": [{ "message": { "content": CALL }, "finish_reason": "stop" }] }).to_string();
    let rows = json!({ "message": { "content": CALL }, "done": true, "done_reason": "stop" }).to_string();
    for (name, body) in [("openai/small", chat), ("ollama/small", rows)] {
        let server = server(response("200 OK", &body)).await;
        let config = ModelConfig { base_url: Some(server.url.clone()), ..ModelConfig::default() };
        let reply = ask(&*connect(&json_spec(name), &config).unwrap()).await.unwrap();
        assert_eq!((&*reply.calls[0].name, &*reply.calls[0].arguments), ("pay", r#"{"n": 1}"#));
    }
}
