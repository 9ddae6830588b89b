//! Good streams with one value of one event made odd: gone, null, of another type, with company. Every wire, every value. Nothing
//! panics, no cut makes a difference, null means what absent means, a number may be a string, and what has nothing to do with
//! the reply never spoils it.

mod support;

use longrein_core::outcome::{ModelFailure, Reply};
use longrein_models::reading::{End, Reading};
use longrein_models::{anthropic, gemini, ollama, openai, responses};
use serde_json::{Value, json};

type Read = fn(&[&[u8]]) -> Result<Reply, ModelFailure>;

fn read<D: Reading>(pieces: &[&[u8]]) -> Result<Reply, ModelFailure> {
    let mut decoder = D::default();
    for piece in pieces {
        decoder.feed(piece);
    }
    decoder.end(End::Closed)
}

/// One dialect: how it is read, how events are written, and a good stream of it.
struct Dialect {
    name: &'static str,
    read: Read,
    write: fn(&[Value]) -> Vec<u8>,
    events: Vec<Value>,
}

fn in_events(events: &[Value]) -> Vec<u8> {
    let event = |value: &Value| {
        let kind = value["type"].as_str().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{kind}data: {value}\n\n")
    };
    events.iter().map(event).collect::<String>().into_bytes()
}

fn in_lines(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("{event}\n")).collect::<String>().into_bytes()
}

fn in_chat(events: &[Value]) -> Vec<u8> {
    [in_events(events), b"data: [DONE]\n\n".to_vec()].concat()
}

fn dialects() -> Vec<Dialect> {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": null}]})
    };
    let called = |index: u64, id: &str, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}]});
    let more =
        |index: u64, arguments: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]});
    let chat = vec![
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"content": "I "}), Value::Null),
        chunk(json!({"content": "look."}), Value::Null),
        chunk(called(0, "call_1", ""), Value::Null),
        chunk(more(0, "{\"deep\":"), Value::Null),
        chunk(more(0, "true}"), Value::Null),
        chunk(called(1, "call_2", "{}"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42,
            "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 4}}}),
    ];
    let block =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let messages = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m",
            "stop_reason": null, "usage": {"input_tokens": 30, "cache_read_input_tokens": 8, "output_tokens": 1}}}),
        block(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "I look."})),
        stop(0),
        block(1, json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "{\"deep\":"})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "true}"})),
        stop(1),
        block(2, json!({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}})),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 12}}),
        json!({"type": "message_stop"}),
    ];
    let call = |n: u64, arguments: &str| {
        json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"),
        "name": "look", "arguments": arguments, "status": "completed"})
    };
    let item = |kind: &str, index: u64, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}]});
    let responses = vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}),
        item("added", 0, json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []})),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": "I look."}),
        item("done", 0, said.clone()),
        item("added", 1, call(1, "")),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": "{\"deep\":true}"}),
        json!({"type": "response.function_call_arguments.done", "output_index": 1, "item_id": "fc_1", "arguments": "{\"deep\":true}"}),
        item("done", 1, call(1, "{\"deep\":true}")),
        item("added", 2, call(2, "")),
        item("done", 2, call(2, "{}")),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "error": null, "incomplete_details": null,
            "output": [said, call(1, "{\"deep\":true}"), call(2, "{}")],
            "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 12,
                "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 42}}}),
    ];
    let part = |parts: Value, finish: Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 30, "cachedContentTokenCount": 8, "candidatesTokenCount": 12, "totalTokenCount": 42},
            "modelVersion": "m"})
    };
    let gemini = vec![
        part(json!([{"text": "I "}]), Value::Null),
        part(json!([{"text": "look."}]), Value::Null),
        part(json!([{"functionCall": {"id": "call_1", "name": "look", "args": {"deep": true}}}]), Value::Null),
        part(json!([{"functionCall": {"id": "call_2", "name": "look", "args": {}}}]), json!("STOP")),
    ];
    let row = |message: Value, done: bool| json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done});
    let mut last = row(json!({"role": "assistant", "content": ""}), true);
    last["done_reason"] = json!("stop");
    last["prompt_eval_count"] = json!(30);
    last["eval_count"] = json!(12);
    let ollama = vec![
        row(json!({"role": "assistant", "content": "I "}), false),
        row(json!({"role": "assistant", "content": "look."}), false),
        row(
            json!({"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"deep": true}}}]}),
            false,
        ),
        row(
            json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"index": 1, "name": "look", "arguments": {}}}]}),
            false,
        ),
        last,
    ];
    vec![
        Dialect { name: "chat", read: read::<openai::decode::Decoder>, write: in_chat, events: chat },
        Dialect { name: "messages", read: read::<anthropic::decode::Decoder>, write: in_events, events: messages },
        Dialect { name: "responses", read: read::<responses::decode::Decoder>, write: in_events, events: responses },
        Dialect { name: "gemini", read: read::<gemini::decode::Decoder>, write: in_events, events: gemini },
        Dialect { name: "ollama", read: read::<ollama::decode::Decoder>, write: in_lines, events: ollama },
    ]
}

/// The JSON pointers of every value below the top.
fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(key, member)| {
                let at = format!("{at}/{key}");
                out.push(at.clone());
                walk(member, &at, out);
            }),
            Value::Array(elements) => elements.iter().enumerate().for_each(|(place, element)| {
                let at = format!("{at}/{place}");
                out.push(at.clone());
                walk(element, &at, out);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut out = Vec::new();
    walk(value, "", &mut out);
    out
}

fn without(event: &Value, place: &str) -> Option<Value> {
    let mut event = event.clone();
    let (parent, key) = place.rsplit_once('/')?;
    event.pointer_mut(parent)?.as_object_mut()?.shift_remove(key)?;
    Some(event)
}

fn with(event: &Value, place: &str, value: Value) -> Value {
    let mut event = event.clone();
    *event.pointer_mut(place).expect("it is there") = value;
    event
}

/// What a reply comes to, in a line: text, calls, and how it ended.
fn gist(came: &Result<Reply, ModelFailure>) -> String {
    match came {
        Ok(reply) => {
            let calls = reply.calls.iter().map(|call| format!(" {}:{}({})", call.id, call.name, call.arguments));
            let usage = reply.usage.map(|usage| format!(" {}/{}/{}", usage.input, usage.cached, usage.output));
            format!("{:?}{} {:?}{}", reply.text, calls.collect::<String>(), reply.finish, usage.unwrap_or_default())
        }
        Err(failure) => format!("{:?}: {}", failure.class, failure.message),
    }
}

impl Dialect {
    fn reads(&self, events: &[Value]) -> Result<Reply, ModelFailure> {
        let body = (self.write)(events);
        let whole = (self.read)(&[&body]);
        let pieces: Vec<_> = body.chunks(1).collect();
        assert_eq!((self.read)(&pieces), whole, "{}: byte by byte: {events:?}", self.name);
        let pieces: Vec<_> = body.chunks(97).collect();
        assert_eq!((self.read)(&pieces), whole, "{}: in pieces: {events:?}", self.name);
        whole
    }

    /// The stream with this event in the place of another.
    fn changed(&self, at: usize, event: Value) -> Vec<Value> {
        let mut events = self.events.clone();
        events[at] = event;
        events
    }

    fn every_place(&self) -> Vec<(usize, String)> {
        let all = self.events.iter().enumerate();
        all.flat_map(|(at, event)| places(event).into_iter().map(move |place| (at, place))).collect()
    }
}

/// What the calls are made with is theirs.
fn is_of_an_argument(place: &str) -> bool {
    place.contains("/args/") || place.contains("/arguments/") || place.contains("/input/")
}

#[test]
fn null_means_what_absent_means() {
    for dialect in dialects() {
        for (at, place) in dialect.every_place().into_iter().filter(|(_, place)| !is_of_an_argument(place)) {
            let event = &dialect.events[at];
            let Some(gone) = without(event, &place) else { continue };
            let null = gist(&dialect.reads(&dialect.changed(at, with(event, &place, Value::Null))));
            let gone = gist(&dialect.reads(&dialect.changed(at, gone)));
            let [null, gone] = [&null, &gone].map(|gist| gist.split(" at line").next().unwrap_or_default());
            let both_fail = null.starts_with("Malformed") && gone.starts_with("Malformed");
            assert!(null == gone || both_fail, "{} {at} {place}: {null} / {gone}", dialect.name);
        }
    }
}

#[test]
fn a_number_may_be_a_string() {
    for dialect in dialects() {
        let good = gist(&dialect.reads(&dialect.events));
        for (at, place) in dialect.every_place().into_iter().filter(|(_, place)| !is_of_an_argument(place)) {
            let event = &dialect.events[at];
            let Some(Value::Number(number)) = event.pointer(&place) else { continue };
            let written = with(event, &place, Value::String(number.to_string()));
            let came = gist(&dialect.reads(&dialect.changed(at, written)));
            assert_eq!(came, good, "{} {at} {place}", dialect.name);
        }
    }
}

#[test]
fn what_is_beside_a_reply_never_spoils_it() {
    let said = |came: &Result<Reply, ModelFailure>| {
        let reply = came.as_ref().unwrap_or_else(|failure| panic!("{failure:?}"));
        (reply.text.clone(), reply.calls.clone())
    };
    let beside = [
        "usage",
        "usageMetadata",
        "created",
        "created_at",
        "model",
        "modelVersion",
        "object",
        "logprobs",
        "annotations",
    ];
    for dialect in dialects() {
        let good = said(&dialect.reads(&dialect.events));
        for (at, place) in dialect.every_place() {
            if !beside.contains(&place.rsplit('/').next().unwrap_or_default()) {
                continue;
            }
            for odd in [
                json!({}),
                json!([]),
                json!("7"),
                json!(7),
                json!(-1),
                json!(true),
                json!([null]),
                json!({"x": {"y": []}}),
            ] {
                let events = dialect.changed(at, with(&dialect.events[at], &place, odd.clone()));
                assert_eq!(said(&dialect.reads(&events)), good, "{} {at} {place} = {odd}", dialect.name);
            }
        }
        // and what comes after its end: of a stream that only [DONE] or the connection ends, what says nothing
        let ends_by_itself = !matches!(dialect.name, "chat" | "gemini");
        let again = dialect.events[1].clone();
        for more in [Some(json!({"type": "brand_new"})), Some(json!({})), ends_by_itself.then_some(again)] {
            let events: Vec<Value> = dialect.events.iter().cloned().chain(more.clone()).collect();
            assert_eq!(said(&dialect.reads(&events)), good, "{} {more:?}", dialect.name);
        }
    }
}

#[test]
fn blocks_that_are_numbered_alike_are_all_there() {
    for dialect in dialects() {
        let good = gist(&dialect.reads(&dialect.events));
        let alike: Vec<Value> = dialect
            .events
            .iter()
            .map(|event| {
                let mut event = event.clone();
                for number in ["/index", "/output_index", "/choices/0/delta/tool_calls/0/index"] {
                    if let Some(number) = event.pointer_mut(number) {
                        *number = json!(0);
                    }
                }
                // what the last event of a Responses stream repeats is what came
                if let Some(output) = event.pointer_mut("/response/output") {
                    *output = json!([]);
                }
                event
            })
            .collect();
        assert_eq!(gist(&dialect.reads(&alike)), good, "{}", dialect.name);
    }
}
