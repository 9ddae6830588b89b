//! The providers that answer in blocks: what goes out, what comes in, and that thoughts go back as they came, to the very
//! model that had them and to no other.

mod support;

use longrein_core::ids::{ActionId, ToolName};
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply, WireBlock};
use longrein_core::prompt::{Item, Prompt, Told, WireCall};
use longrein_models::reading::{End, Reading};
use longrein_models::{anthropic, gemini, responses};
use longrein_ports::Encoded;
use serde_json::{Value, json};

use support::{assistant, prompt, read_as, user};

/// Events as a server streams them.
fn stream(events: &[Value]) -> Vec<u8> {
    let event = |value: &Value| {
        let kind = value["type"].as_str().map(|kind| format!("event: {kind}\r\n")).unwrap_or_default();
        format!("{kind}data: {value}\r\n\r\n")
    };
    format!(": keep-alive\r\n\r\n{}", events.iter().map(event).collect::<String>()).into_bytes()
}

fn read<D: Reading>(events: &[Value]) -> Result<Reply, ModelFailure> {
    read_as::<D>(&stream(events), End::Closed)
}

/// The same where only the end matters: read once.
fn cut<D: Reading>(events: &[Value]) -> Result<Reply, ModelFailure> {
    let mut decoder = D::default();
    decoder.feed(&stream(events));
    decoder.end(End::Closed)
}

fn whole<D: Reading>(body: &Value) -> Result<Reply, ModelFailure> {
    read_as::<D>(body.to_string().as_bytes(), End::Closed)
}

fn told(call: &str, verdict: Told) -> Item {
    Item::Observation {
        call: call.into(),
        action: ActionId(1),
        tool: ToolName::new("look"),
        text: "{}".into(),
        verdict,
    }
}

/// A reply as it stands in the history, its calls under these ids.
fn kept(reply: Reply, model: &str, ids: &[&str]) -> Item {
    let mut wired = reply.wired;
    if let Some(wired) = &mut wired {
        wired.model = model.into();
    }
    let calls = reply.calls.into_iter().zip(ids).map(|(call, id)| WireCall {
        id: (*id).into(),
        name: call.name,
        arguments: if call.arguments.is_empty() { "{}".into() } else { call.arguments },
    });
    Item::Assistant { text: reply.text, calls: calls.collect(), wired }
}

fn body(encoded: &Encoded) -> Value {
    serde_json::from_slice(&encoded.bytes).expect("a request is JSON")
}

/// What a longer prompt shares with a shorter one, it shares byte for byte; and remembering changes nothing.
#[track_caller]
fn grows(encode: impl Fn(&Prompt) -> Encoded, afresh: impl Fn(&Prompt) -> Encoded, fixed_at_end: usize) {
    let items = vec![
        user("one"),
        assistant("I look.", &[("c1", "look", "{}"), ("c2", "look", r#"{"a":1}"#)]),
        told("c1", Told::Ok),
        told("c2", Told::Error),
        Item::Harness("<longrein>note</longrein>".into()),
        assistant("", &[("c3", "look", "{}")]),
        told("c3", Told::Ok),
        assistant("Done.", &[]),
        user("two"),
    ];
    let mut before: Option<Vec<u8>> = None;
    for count in 1..=items.len() {
        let mut longer = prompt(0, items[..count].to_vec());
        longer.tail = (count % 2 == 0).then(|| "now".to_owned());
        let encoded = encode(&longer);
        assert_eq!(encoded.bytes, afresh(&longer).bytes, "at {count}");
        assert_eq!(encoded.digest, afresh(&longer).digest, "at {count}");
        body(&encoded);
        longer.tail = None;
        let plain = encode(&longer).bytes;
        if let Some(before) = before {
            let history = &before[..before.len() - fixed_at_end];
            assert!(plain.starts_with(history), "at {count}: {}", String::from_utf8_lossy(&plain));
        }
        before = Some(plain.to_vec());
    }
}

#[test]
fn history_keeps_its_bytes() {
    let foot = r#","cache_control":{"type":"ephemeral"}}]}],"max_tokens":1000}"#;
    let model = anthropic::encode::Encoder::new("m", Some(0.5));
    grows(|p| model.encode(p), |p| anthropic::encode::Encoder::new("m", Some(0.5)).encode(p), foot.len());
    let model = responses::encode::Encoder::new("m", None);
    let foot = r#"],"max_output_tokens":1000}"#;
    grows(|p| model.encode(p), |p| responses::encode::Encoder::new("m", None).encode(p), foot.len());
    let model = gemini::encode::Encoder::new("m", None);
    let foot = r#"]}],"generationConfig":{"maxOutputTokens":1000}}"#;
    grows(|p| model.encode(p), |p| gemini::encode::Encoder::new("m", None).encode(p), foot.len());
}

fn conversation() -> Prompt {
    let items = vec![
        user("How is it?"),
        assistant("I look.", &[("c1", "look", r#"{"deep":true}"#), ("functions.look:1", "look", "{}")]),
        told("c1", Told::Ok),
        told("functions.look:1", Told::Error),
        Item::Harness("<longrein>go on</longrein>".into()),
    ];
    let mut prompt = prompt(0, items);
    prompt.tail = Some("left: 3".into());
    prompt
}

#[test]
fn a_messages_request() {
    let sent = body(&anthropic::encode::Encoder::new("claude-x", None).encode(&conversation()));
    let mark = json!({"type": "ephemeral"});
    let odd = sent["messages"][1]["content"][2]["id"].as_str().unwrap().to_owned();
    assert!(odd.starts_with("call_") && odd.len() <= 64, "an id the provider takes: {odd}");
    assert_eq!(
        sent,
        json!({
            "model": "claude-x", "stream": true,
            "tools": [{"name": "read_metrics", "description": "Reads the metrics.",
                       "input_schema": {"type": "object", "properties": {}}}],
            "system": [{"type": "text", "text": "You check services.", "cache_control": mark}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "How is it?"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"deep": true}},
                    {"type": "tool_use", "id": odd, "name": "look", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "{}"},
                    {"type": "tool_result", "tool_use_id": odd, "is_error": true, "content": "{}"},
                    {"type": "text", "text": "<longrein>go on</longrein>", "cache_control": mark},
                    {"type": "text", "text": "left: 3"},
                ]},
            ],
            "max_tokens": 1000,
        })
    );
}

#[test]
fn nothing_empty_is_sent_to_messages() {
    let items = vec![user("a"), assistant(" \n", &[]), Item::Harness("b".into()), user("")];
    let sent = body(&anthropic::encode::Encoder::new("m", None).encode(&prompt(0, items)));
    assert_eq!(sent["messages"].as_array().unwrap().len(), 1);
    assert_eq!(sent["messages"][0]["content"].as_array().unwrap().len(), 2, "{sent}");
}

#[test]
fn a_responses_request() {
    let sent = body(&responses::encode::Encoder::new("gpt-x", Some(0.2)).encode(&conversation()));
    let odd = sent["input"][3]["call_id"].as_str().unwrap().to_owned();
    assert_eq!(
        sent,
        json!({
            "model": "gpt-x", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
            "temperature": 0.2, "instructions": "You check services.",
            "tools": [{"type": "function", "name": "read_metrics", "description": "Reads the metrics.",
                       "parameters": {"type": "object", "properties": {}}, "strict": false}],
            "input": [
                {"type": "message", "role": "user", "content": "How is it?"},
                {"type": "message", "role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"deep\":true}"},
                {"type": "function_call", "call_id": odd, "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "{}"},
                {"type": "function_call_output", "call_id": odd, "output": "{}"},
                {"type": "message", "role": "user", "content": "<longrein>go on</longrein>"},
                {"type": "message", "role": "user", "content": "left: 3"},
            ],
            "max_output_tokens": 1000,
        })
    );
}

#[test]
fn a_gemini_request() {
    let sent = body(&gemini::encode::Encoder::new("gemini-x", None).encode(&conversation()));
    assert_eq!(
        sent,
        json!({
            "systemInstruction": {"parts": [{"text": "You check services."}]},
            "tools": [{"functionDeclarations": [{"name": "read_metrics", "description": "Reads the metrics.",
                       "parametersJsonSchema": {"type": "object", "properties": {}}}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "How is it?"}]},
                {"role": "model", "parts": [
                    {"text": "I look."},
                    {"functionCall": {"id": "c1", "name": "look", "args": {"deep": true}}},
                    {"functionCall": {"id": "functions.look:1", "name": "look", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "{}"}}},
                    {"functionResponse": {"id": "functions.look:1", "name": "look", "response": {"error": "{}"}}},
                    {"text": "<longrein>go on</longrein>"},
                    {"text": "left: 3"},
                ]},
            ],
            "generationConfig": {"maxOutputTokens": 1000},
        })
    );
}

// ---- Messages ----

fn start() -> Value {
    json!({"type": "message_start", "message": {"type": "message", "role": "assistant", "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> [Value; 2] {
    let usage = json!({"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}});
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn thinking_and_calls(first: u64) -> Vec<Value> {
    let mut events = vec![
        start(),
        json!({"type": "ping"}),
        block(first, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(first, json!({"type": "thinking_delta", "thinking": "Höh"})),
        delta(first, json!({"type": "thinking_delta", "thinking": "e? \u{1f40e}"})),
        delta(first, json!({"type": "signature_delta", "signature": "c2ln=="})),
        block(first + 1, json!({"type": "text", "text": ""})),
        delta(first + 1, json!({"type": "text_delta", "text": "I look."})),
        block(first + 2, json!({"type": "redacted_thinking", "data": "opaque"})),
        block(first + 3, json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}})),
        delta(first + 3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(first + 3, json!({"type": "input_json_delta", "partial_json": "{\"deep\":"})),
        delta(first + 3, json!({"type": "input_json_delta", "partial_json": " true}"})),
        json!({"type": "content_block_stop", "index": first + 3}),
        json!({"type": "something_new", "index": 77}),
        block(first + 4, json!({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}})),
    ];
    events.extend(stop("tool_use"));
    events
}

#[test]
fn thoughts_go_back_to_their_model_as_they_came() {
    let reply = read::<anthropic::decode::Decoder>(&thinking_and_calls(0)).unwrap();
    assert_eq!((&*reply.text, &reply.finish), ("I look.", &Finish::ToolCalls));
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("toolu_1", "{\"deep\": true}"), ("toolu_2", "")]);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning), (10, 4, 3, 20, 5));

    let items = |model: &str| {
        let said = kept(reply.clone(), model, &["a1", "a2"]);
        vec![user("go"), said, told("a1", Told::Ok), told("a2", Told::Ok)]
    };
    let encode = |model: &str| {
        let sent = anthropic::encode::Encoder::new("claude-x", None).encode(&prompt(0, items(model)));
        assert!(!sent.bytes.windows(9).any(|bytes| bytes == b"signature") || model == "anthropic/claude-x");
        body(&sent)["messages"][1]["content"].clone()
    };
    let call = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "look", "input": input});
    let calls = [call("a1", json!({"deep": true})), call("a2", json!({}))];
    assert_eq!(
        encode("anthropic/claude-x"),
        json!([
            {"type": "thinking", "thinking": "Höhe? \u{1f40e}", "signature": "c2ln=="},
            {"type": "text", "text": "I look."},
            {"type": "redacted_thinking", "data": "opaque"},
            calls[0], calls[1],
        ])
    );
    let plain = json!([{"type": "text", "text": "I look."}, calls[0], calls[1]]);
    assert_eq!(encode("anthropic/claude-y"), plain, "another model gets none of it");
    for other in [
        responses::encode::Encoder::new("x", None).encode(&prompt(0, items("anthropic/claude-x"))),
        gemini::encode::Encoder::new("x", None).encode(&prompt(0, items("anthropic/claude-x"))),
    ] {
        assert!(!String::from_utf8_lossy(&other.bytes).contains("c2ln"), "nor has another provider");
    }
}

/// A reply without what is only kept for the record.
fn unrecorded(mut reply: Reply) -> Reply {
    reply.wired = reply.wired.and_then(|wired| wired.owed_back());
    reply
}

#[test]
fn messages_survive_what_gateways_do() {
    // What is kept for the record may differ: an event nobody knows, with and without its number.
    let cut = |events: &[Value]| cut::<anthropic::decode::Decoder>(events).map(unrecorded);
    // Two streams, one after the other's beginning.
    let mut spliced = thinking_and_calls(0)[..12].to_vec();
    spliced.extend(thinking_and_calls(0));
    assert_eq!(cut(&spliced), cut(&thinking_and_calls(0)));
    // Blocks that are not numbered from 0.
    let shifted = cut(&thinking_and_calls(3)).unwrap();
    assert_eq!(shifted, cut(&thinking_and_calls(0)).unwrap());
    // Numbers left out.
    let mut bare = thinking_and_calls(0);
    for event in &mut bare {
        event.as_object_mut().unwrap().remove("index");
    }
    assert_eq!(cut(&bare).unwrap(), shifted);
    // The end, then silence; the end, then noise.
    let mut noisy = thinking_and_calls(0);
    noisy.push(block(9, json!({"type": "text", "text": "late"})));
    assert_eq!(cut(&noisy).unwrap(), shifted);
    // A whole message.
    let message = json!({"type": "message", "content": [
            {"type": "thinking", "thinking": "Höhe? \u{1f40e}", "signature": "c2ln=="}, {"type": "text", "text": "I look."},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"deep": true}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 10, "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 3, "output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}}});
    let mut reply = whole::<anthropic::decode::Decoder>(&message).unwrap();
    assert_eq!(reply.calls[0].arguments, r#"{"deep":true}"#);
    reply.calls[0].arguments = "{\"deep\": true}".into();
    assert_eq!(reply, shifted);
}

#[test]
fn a_messages_stream_that_is_cut_is_no_reply() {
    let events = thinking_and_calls(0);
    for count in 0..events.len() - 2 {
        let failure = cut::<anthropic::decode::Decoder>(&events[..count]).unwrap_err();
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps), "{count}");
        assert_eq!(failure.partial.is_some(), count >= 8, "{count}: {failure:?}");
    }
    let stopped = &events[..events.len() - 1];
    assert!(read::<anthropic::decode::Decoder>(stopped).is_ok(), "it said why it stopped");
}

#[test]
fn how_messages_end() {
    let ended = |reason: &str, blocks: &[Value]| {
        let mut events = vec![start()];
        events.extend(blocks.iter().cloned());
        events.extend(stop(reason));
        cut::<anthropic::decode::Decoder>(&events)
    };
    let words = [block(0, json!({"type": "text", "text": "Hm"}))];
    let finish = |reason: &str| ended(reason, &words).unwrap().finish;
    assert_eq!(finish("end_turn"), Finish::Stop);
    assert_eq!(finish("stop_sequence"), Finish::Stop);
    assert_eq!(finish("max_tokens"), Finish::Length);
    assert_eq!(finish("refusal"), Finish::Refused);
    assert_eq!(finish("pause_turn"), Finish::Other("pause_turn".into()));
    assert_eq!(finish("brand_new"), Finish::Other("brand_new".into()));
    for blocks in [&[][..], &words] {
        let full = ended("model_context_window_exceeded", blocks).unwrap_err();
        assert_eq!(full.class, ModelErrorClass::ContextExhausted);
        assert_eq!(full.partial.is_some(), !blocks.is_empty());
    }
    assert!(ended("end_turn", &[]).unwrap().text.is_empty());

    let refused = json!({"type": "message", "content": [], "stop_reason": "refusal",
        "stop_details": {"explanation": "Not that."}, "usage": {"input_tokens": 1, "output_tokens": 1}});
    let refused = whole::<anthropic::decode::Decoder>(&refused).unwrap();
    assert_eq!((&*refused.text, refused.finish), ("Not that.", Finish::Refused));

    let error = |kind: &str| {
        let event = json!({"type": "error", "error": {"type": kind, "message": "Sorry"}});
        read::<anthropic::decode::Decoder>(&[start(), event]).unwrap_err()
    };
    assert_eq!(error("overloaded_error").class, ModelErrorClass::Overloaded);
    assert_eq!(error("rate_limit_error").class, ModelErrorClass::RateLimited);
    assert_eq!(error("authentication_error").class, ModelErrorClass::Authentication);
    assert_eq!(error("api_error").class, ModelErrorClass::Transient);
}

#[test]
fn a_call_cut_by_the_output_limit_keeps_what_was_written() {
    let mut events = vec![start(), block(0, json!({"type": "tool_use", "id": "t", "name": "look", "input": {}}))];
    events.push(delta(0, json!({"type": "input_json_delta", "partial_json": "{\"a\": \"b"})));
    events.extend(stop("max_tokens"));
    let reply = read::<anthropic::decode::Decoder>(&events).unwrap();
    assert_eq!((&*reply.calls[0].arguments, reply.finish), ("{\"a\": \"b", Finish::Length));
}

// ---- Responses ----

fn reasoning(encrypted: Value) -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": encrypted})
}

fn answered(status: &str, output: &Value) -> Value {
    json!({"object": "response", "status": status, "output": output, "error": null, "incomplete_details": null,
        "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 4}}})
}

fn output() -> Value {
    json!([
        reasoning(json!("gAAA=")),
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"deep\":true}"},
        {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "look", "arguments": ""},
    ])
}

fn response_events() -> Vec<Value> {
    let call = |n: u64| json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "look", "arguments": ""});
    vec![
        json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": []}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning(json!("gAAA="))}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "msg_1", "content": []}}),
        json!({"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "I "}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "look."}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": call(1)}),
        json!({"type": "response.output_item.added", "output_index": 3, "item": call(2)}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1", "delta": "{\"deep\":"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1", "delta": "true}"}),
        json!({"type": "response.brand_new", "output_index": 2}),
        json!({"type": "response.completed", "response": answered("completed", &json!([]))}),
    ]
}

#[test]
fn a_response_is_the_same_in_events_and_whole() {
    let reply = unrecorded(read::<responses::decode::Decoder>(&response_events()).unwrap());
    assert_eq!(whole::<responses::decode::Decoder>(&answered("completed", &output())).unwrap(), reply);
    let mut repeated = response_events();
    *repeated.last_mut().unwrap() = json!({"type": "response.completed", "response": answered("completed", &output())});
    assert_eq!(unrecorded(cut::<responses::decode::Decoder>(&repeated).unwrap()), reply);
    // Where a server numbers nothing, ids and order tell.
    let mut bare = response_events();
    for event in &mut bare {
        event.as_object_mut().unwrap().remove("output_index");
    }
    assert_eq!(unrecorded(cut::<responses::decode::Decoder>(&bare).unwrap()), reply);

    assert_eq!((&*reply.text, &reply.finish), ("I look.", &Finish::ToolCalls));
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("call_1", "{\"deep\":true}"), ("call_2", "")]);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.output, usage.reasoning), (22, 8, 12, 4));

    let said = kept(reply, "openai-responses/gpt-x", &["a1", "a2"]);
    let sent = responses::encode::Encoder::new("gpt-x", None).encode(&prompt(0, vec![user("go"), said.clone()]));
    assert_eq!(body(&sent)["input"][1], reasoning(json!("gAAA=")));
    assert_eq!(body(&sent)["input"][3]["call_id"], "a1");
    let sent = responses::encode::Encoder::new("gpt-y", None).encode(&prompt(0, vec![user("go"), said]));
    assert_eq!(body(&sent)["input"][1]["type"], "message", "another model gets none of it");
}

#[test]
fn thoughts_that_cannot_be_sent_back_are_left_out() {
    let reply = whole::<responses::decode::Decoder>(&answered("completed", &json!([reasoning(Value::Null)]))).unwrap();
    let wired = reply.wired.expect("kept for the record");
    assert!(matches!(&*wired.blocks, [WireBlock::Aside(_)]), "{wired:?}");
    assert_eq!((wired.owed_back(), reply.finish), (None, Finish::Stop));
}

#[test]
fn how_responses_end() {
    let words = json!([{"type": "message", "content": [{"type": "output_text", "text": "Hm"}]}]);
    let ended = |why: &str, output: &Value| {
        let mut response = answered("incomplete", output);
        response["incomplete_details"] = json!({"reason": why});
        read::<responses::decode::Decoder>(&[json!({"type": "response.incomplete", "response": response})])
    };
    assert_eq!(ended("max_output_tokens", &words).unwrap().finish, Finish::Length);
    assert_eq!(ended("content_filter", &words).unwrap().finish, Finish::Refused);
    assert_eq!(ended("brand_new", &words).unwrap().finish, Finish::Other("brand_new".into()));
    let refused = json!([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]);
    let refused = whole::<responses::decode::Decoder>(&answered("completed", &refused)).unwrap();
    assert_eq!((&*refused.text, refused.finish), ("No.", Finish::Refused));

    let failed = |code: &str| {
        let mut response = answered("failed", &json!([]));
        response["error"] = json!({"code": code, "message": "Sorry"});
        read::<responses::decode::Decoder>(&[json!({"type": "response.failed", "response": response})])
            .unwrap_err()
            .class
    };
    assert_eq!(failed("rate_limit_exceeded"), ModelErrorClass::RateLimited);
    assert_eq!(failed("server_error"), ModelErrorClass::Transient);
    assert_eq!(failed("context_length_exceeded"), ModelErrorClass::ContextExhausted);
    let events = response_events();
    for count in 0..events.len() - 1 {
        let failure = cut::<responses::decode::Decoder>(&events[..count]).unwrap_err();
        assert_eq!(failure.class, ModelErrorClass::Transient, "{count}");
    }
}

// ---- Gemini ----

fn chunk(parts: Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 30, "cachedContentTokenCount": 10,
        "candidatesTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 42}})
}

fn gemini_events() -> Vec<Value> {
    vec![
        chunk(json!([{"text": "hm", "thought": true}]), None),
        chunk(json!([{"text": " hm", "thought": true}]), None),
        chunk(json!([{"text": "I "}]), None),
        chunk(json!([{"text": "look."}]), None),
        chunk(json!([{"functionCall": {"name": "look", "args": {"deep": true}}, "thoughtSignature": "c2ln"}]), None),
        chunk(json!([{"functionCall": {"name": "look", "args": {}}}]), None),
        chunk(json!([{"text": "", "thoughtSignature": "bGFzdA"}]), Some("STOP")),
    ]
}

#[test]
fn signatures_go_back_beside_their_parts() {
    let reply = read::<gemini::decode::Decoder>(&gemini_events()).unwrap();
    assert_eq!((&*reply.text, &reply.finish), ("I look.", &Finish::ToolCalls));
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("", r#"{"deep":true}"#), ("", "{}")]);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.output, usage.reasoning), (20, 10, 12, 5));

    let said = kept(reply.clone(), "gemini/gemini-x", &["a1", "a2"]);
    let sent = |model: &str| {
        let sent = gemini::encode::Encoder::new(model, None).encode(&prompt(0, vec![user("go"), said.clone()]));
        body(&sent)["contents"][1]["parts"].clone()
    };
    let call = |id: &str, args: Value| json!({"functionCall": {"id": id, "name": "look", "args": args}});
    let mut signed = call("a1", json!({"deep": true}));
    signed["thoughtSignature"] = "c2ln".into();
    assert_eq!(
        sent("gemini-x"),
        json!([
            {"text": "hm hm", "thought": true}, {"text": "I look."}, signed, call("a2", json!({})),
            {"text": "", "thoughtSignature": "bGFzdA"},
        ])
    );
    let plain = json!([{"text": "I look."}, call("a1", json!({"deep": true})), call("a2", json!({}))]);
    assert_eq!(sent("gemini-y"), plain, "another model gets none of it");
    // As one list, as some gateways answer.
    assert_eq!(whole::<gemini::decode::Decoder>(&Value::Array(gemini_events())).unwrap(), reply);
}

#[test]
fn how_gemini_ends() {
    let finish =
        |word: &str| cut::<gemini::decode::Decoder>(&[chunk(json!([{"text": "Hm"}]), Some(word))]).unwrap().finish;
    assert_eq!(finish("STOP"), Finish::Stop);
    assert_eq!(finish("MAX_TOKENS"), Finish::Length);
    assert_eq!(finish("SAFETY"), Finish::Refused);
    assert_eq!(finish("PROHIBITED_CONTENT"), Finish::Refused);
    assert_eq!(finish("BRAND_NEW"), Finish::Other("BRAND_NEW".into()));
    let broken = read::<gemini::decode::Decoder>(&[chunk(json!([]), Some("MALFORMED_FUNCTION_CALL"))]).unwrap_err();
    assert_eq!(broken.class, ModelErrorClass::Malformed);
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}});
    assert_eq!(read::<gemini::decode::Decoder>(&[blocked]).unwrap_err().class, ModelErrorClass::ContentRefused);
    let error = json!({"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}});
    assert_eq!(read::<gemini::decode::Decoder>(&[error]).unwrap_err().class, ModelErrorClass::RateLimited);
    let events = gemini_events();
    for count in 0..events.len() - 1 {
        let failure = cut::<gemini::decode::Decoder>(&events[..count]).unwrap_err();
        assert_eq!(failure.class, ModelErrorClass::Transient, "{count}");
    }
}

/// Where the text changed since, the blocks no longer fit it and are left out as a whole.
#[test]
fn blocks_that_do_not_fit_are_left_out() {
    let mut reply = read::<gemini::decode::Decoder>(&gemini_events()).unwrap();
    assert!(reply.wired.as_ref().unwrap().blocks.iter().any(|block| matches!(block, WireBlock::With(_))));
    reply.text = "I looked.".into();
    let said = kept(reply, "gemini/gemini-x", &["a1", "a2"]);
    let sent = gemini::encode::Encoder::new("gemini-x", None).encode(&prompt(0, vec![user("go"), said]));
    assert!(!String::from_utf8_lossy(&sent.bytes).contains("Signature"));
}
