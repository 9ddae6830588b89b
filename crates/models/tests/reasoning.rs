//! Chat Completions: what a server wants back of its model's thoughts goes back as it came, to that model alone.

mod support;

use longrein_core::outcome::{Reply, WireBlock};
use longrein_core::prompt::{Item, WireCall};
use longrein_models::openai::decode::{Decoder, End};
use longrein_models::openai::encode::{Encoder, OutputLimit};
use longrein_models::{ModelConfig, connect, gemini};
use serde_json::{Value, json};

use support::server::{response, server};
use support::{observation, prompt, read_as, spec, user};

fn stream(events: &[Value]) -> Reply {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    read_as::<Decoder>(format!("{body}data: [DONE]\n\n").as_bytes(), End::Closed).expect("a reply")
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn stop(why: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": why }] })
}

/// A reply as it stands in the history, with what core carries on of it.
fn kept(reply: &Reply, model: &str) -> Item {
    let wired = reply.wired.as_ref().and_then(|wired| wired.owed_back()).map(|mut wired| {
        wired.model = model.to_owned();
        wired
    });
    let calls = reply.calls.iter().map(|call| WireCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    });
    Item::Assistant { text: reply.text.clone(), calls: calls.collect(), wired }
}

/// The message that a request of `openai/m` makes of it.
fn back(reply: &Reply, made_by: &str) -> Value {
    let items = vec![user("hello"), kept(reply, made_by), user("go on")];
    let bytes = Encoder::new("m", OutputLimit::MaxTokens, None).encode(&prompt(0, items)).bytes;
    let body: Value = serde_json::from_slice(&bytes).expect("a request is JSON");
    body["messages"][2].clone()
}

const CALL: &str = r#"[{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]"#;

fn call() -> Value {
    serde_json::from_str(CALL).expect("JSON")
}

#[test]
fn thoughts_go_back_beside_the_calls_they_led_to() {
    let reply = stream(&[
        delta(json!({ "reasoning_content": "I lo" })),
        delta(json!({ "reasoning_content": "ok. \u{1f980}" })),
        delta(json!({ "content": "Looking." })),
        delta(json!({ "tool_calls": call() })),
        stop("tool_calls"),
    ]);
    let message = back(&reply, "openai/m");
    assert_eq!(message["reasoning_content"], "I look. \u{1f980}");
    assert_eq!((&message["content"], &message["tool_calls"][0]["id"]), (&json!("Looking."), &json!("c1")));
    let of_another = back(&reply, "openai/other");
    assert_eq!(of_another.get("reasoning_content"), None, "{of_another}");
    assert_eq!(of_another["tool_calls"], message["tool_calls"]);
}

#[test]
fn thoughts_without_a_call_are_for_the_record() {
    let reply =
        stream(&[delta(json!({ "reasoning_content": "Hm." })), delta(json!({ "content": "Yes." })), stop("stop")]);
    assert_eq!(back(&reply, "openai/m"), json!({ "role": "assistant", "content": "Yes." }));
    let blocks = reply.wired.expect("kept").blocks;
    let [WireBlock::Text(_), WireBlock::Aside(beside)] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(beside.as_str(), r#"{"message":{"reasoning_content":"Hm."}}"#);
}

#[test]
fn details_go_back_in_order_and_put_together() {
    let text = |text: &str| {
        delta(json!({ "reasoning": text, "reasoning_details": [
            { "type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0, "signature": null },
        ] }))
    };
    let reply = stream(&[
        text("so "),
        text("it is"),
        delta(json!({ "reasoning_details": [
            { "type": "reasoning.text", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0 },
            { "type": "reasoning.encrypted", "data": "b3A=", "id": "rs_1", "format": null, "index": 1 },
            { "type": "reasoning.encrypted", "data": "c2w=", "id": "rs_2", "index": 1 },
        ] })),
        delta(json!({ "content": "Yes." })),
        stop("stop"),
    ]);
    let expected = json!([
        { "type": "reasoning.text", "text": "so it is", "format": "anthropic-claude-v1", "index": 0, "signature": "c2ln" },
        { "type": "reasoning.encrypted", "data": "b3A=", "id": "rs_1", "format": null, "index": 1 },
        { "type": "reasoning.encrypted", "data": "c2w=", "id": "rs_2", "index": 1 },
    ]);
    assert_eq!(back(&reply, "openai/m")["reasoning_details"], expected);
    assert_eq!(back(&reply, "anthropic/m").get("reasoning_details"), None);
    // Whole replies alike.
    let body = json!({ "choices": [{ "finish_reason": "stop",
        "message": { "role": "assistant", "content": "Yes.", "reasoning_details": expected } }] });
    let whole = read_as::<Decoder>(body.to_string().as_bytes(), End::Closed).expect("a reply");
    assert_eq!(back(&whole, "openai/m")["reasoning_details"], expected);
}

#[test]
fn a_signed_call_stays_signed() {
    let extra = json!({ "google": { "thought_signature": "Ab+/=é" } });
    let signed = json!([
        { "index": 0, "id": "c1", "function": { "name": "look", "arguments": "" }, "extra_content": extra },
        { "index": 1, "id": "c2", "function": { "name": "look", "arguments": "{}" } },
    ]);
    let reply = stream(&[
        delta(json!({ "tool_calls": signed })),
        delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "{}" } }] })),
        stop("tool_calls"),
    ]);
    let message = back(&reply, "openai/m");
    let expected = json!([
        { "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{}" }, "extra_content": extra },
        { "id": "c2", "type": "function", "function": { "name": "look", "arguments": "{}" } },
    ]);
    assert_eq!(message["tool_calls"], expected);
    assert_eq!(back(&reply, "openai/n")["tool_calls"][0].get("extra_content"), None);
}

#[tokio::test]
async fn a_server_that_refuses_thoughts_is_asked_without_them() {
    let words =
        "The reasoning_content is an intermediate result. Please remove the reasoning_content from your message.";
    let server = server(response("400 Bad Request", &json!({ "error": { "message": words } }).to_string())).await;
    let config = ModelConfig { base_url: Some(server.url.clone()), ..ModelConfig::default() };
    let model = connect(&spec("openai/m"), &config).expect("good settings");
    let reply = stream(&[delta(json!({ "reasoning_content": "so", "tool_calls": call() })), stop("tool_calls")]);
    let items = vec![user("hello"), kept(&reply, "openai/m"), observation("c1", 1, "{}")];
    let prompt = prompt(0, items);
    let mut classes = Vec::new();
    for _ in 0..2 {
        classes.push(model.send(model.encode(&prompt)).await.expect_err("refused").class);
    }
    let requests = server.requests.lock().expect("nobody panics").clone();
    assert!(requests[0].contains("\"reasoning_content\":\"so\""), "{}", requests[0]);
    assert!(!requests[1].contains("reasoning_content"), "{}", requests[1]);
    use longrein_core::outcome::ModelErrorClass::{BadRequest, Transient};
    assert_eq!(classes, [Transient, BadRequest], "once it may pass, the second time it will not");
}

#[test]
fn large_numbers_of_arguments_keep_their_digits() {
    let arguments = r#"{"n":123456789012345678901234567890,"m":[-98765432109876543210]}"#;
    let chat = format!(
        r#"{{"choices":[{{"finish_reason":"tool_calls","message":{{"tool_calls":[{{"id":"c1","function":{{"name":"look","arguments":{arguments}}}}}]}}}}]}}"#
    );
    let reply = read_as::<Decoder>(chat.as_bytes(), End::Closed).expect("a reply");
    assert_eq!(reply.calls[0].arguments, arguments);
    let event = format!("data: {}\n\n", chat.replace("\"message\"", "\"delta\""));
    assert_eq!(read_as::<Decoder>(event.as_bytes(), End::Closed).expect("a reply").calls[0].arguments, arguments);
    let part = format!(r#"{{"functionCall":{{"name":"look","args":{arguments}}}}}"#);
    let chunk = format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}},"finishReason":"STOP"}}]}}"#);
    for body in [chunk.clone(), format!("[{chunk}]"), format!("data: {chunk}\n\n")] {
        let reply = read_as::<gemini::decode::Decoder>(body.as_bytes(), End::Closed).expect("a reply");
        assert_eq!(reply.calls[0].arguments, arguments, "{body}");
    }
}
