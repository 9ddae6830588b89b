//! Requests: their bytes, that longer prompts extend shorter ones, and that memory never shows.

mod support;

use std::sync::Arc;

use longrein_core::ids::Digest;
use longrein_core::prompt::{Item, Prompt};
use longrein_models::openai::encode::{Encoder, OutputLimit};

use support::{assistant, observation, prompt, user};

fn encoder() -> Encoder {
    Encoder::new("gpt-x", OutputLimit::MaxTokens, Some(0.5))
}

fn conversation() -> Vec<Item> {
    vec![
        user("Is it \"up\"?\n"),
        assistant("", &[("c1", "read_metrics", "{}"), ("c2", "read_metrics", "{\"a\": 1}")]),
        observation("c1", 1, "fine"),
        observation("c2", 2, "not fine"),
        Item::Harness("<harness>go on</harness>".into()),
        assistant("It is.", &[]),
    ]
}

#[test]
fn a_request_as_it_leaves() {
    let mut prompt = prompt(0, conversation());
    prompt.tail = Some("hurry".into());
    let encoded = encoder().encode(&prompt);
    let expected = concat!(
        r#"{"model":"gpt-x","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"#,
        r#""tools":[{"type":"function","function":{"name":"read_metrics","description":"Reads the metrics.","#,
        r#""parameters":{"type":"object","properties":{}}}}],"messages":["#,
        r#"{"role":"system","content":"You check services."},"#,
        r#"{"role":"user","content":"Is it \"up\"?\n"},"#,
        r#"{"role":"assistant","content":null,"tool_calls":["#,
        r#"{"id":"c1","type":"function","function":{"name":"read_metrics","arguments":"{}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"read_metrics","arguments":"{\"a\": 1}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"fine"},"#,
        r#"{"role":"tool","tool_call_id":"c2","content":"not fine"},"#,
        r#"{"role":"user","content":"<harness>go on</harness>"},"#,
        r#"{"role":"assistant","content":"It is."},"#,
        r#"{"role":"user","content":"hurry"}],"max_tokens":1000}"#,
    );
    assert_eq!(std::str::from_utf8(&encoded.bytes).unwrap(), expected);
    assert_eq!(encoded.digest, Digest::of(&encoded.bytes));
}

#[test]
fn no_tools_and_no_system_leave_no_trace() {
    let mut prompt = prompt(0, vec![]);
    prompt.tools = Arc::from([]);
    prompt.system = "".into();
    prompt.tail = Some("x".into());
    let encoded = Encoder::new("m", OutputLimit::MaxCompletionTokens, None).encode(&prompt);
    let expected = concat!(
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"#,
        r#""messages":[{"role":"user","content":"x"}],"max_completion_tokens":1000}"#
    );
    assert_eq!(std::str::from_utf8(&encoded.bytes).unwrap(), expected);
}

#[test]
fn memory_never_shows() {
    let whole = prompt(0, conversation());
    let first = |count: usize, tail: Option<&str>| Prompt {
        items: whole.items[..count].to_vec().into(),
        tail: tail.map(str::to_owned),
        ..whole.clone()
    };
    let mut changed = first(5, None);
    Arc::make_mut(&mut changed.items)[1] = Arc::new(user("another history"));
    let mut bare = first(6, None);
    bare.tools = Arc::from([]);
    let equal_but_not_shared = prompt(0, conversation());
    let used = encoder();
    let prompts = [
        first(1, None),
        first(2, Some("tail")),
        first(6, None),
        first(3, None),
        changed,
        bare,
        equal_but_not_shared,
        first(6, Some("tail")),
        first(0, None),
    ];
    for prompt in &prompts {
        let (ours, fresh) = (used.encode(prompt), encoder().encode(prompt));
        assert_eq!(ours.bytes, fresh.bytes);
        assert_eq!(ours.digest, fresh.digest);
        assert_eq!(ours.digest, Digest::of(&ours.bytes));
    }
}

#[test]
fn a_longer_prompt_begins_like_a_shorter_one() {
    let whole = prompt(0, conversation());
    let used = encoder();
    for count in 0..whole.items.len() {
        let short = Prompt { items: whole.items[..count].to_vec().into(), tail: Some("tail".into()), ..whole.clone() };
        let short = used.encode(&short).bytes;
        let long = used.encode(&Prompt { max_output: 7, ..whole.clone() }).bytes;
        let tail = br#",{"role":"user","content":"tail"}],"max_tokens":1000}"#;
        assert!(short.ends_with(tail));
        assert!(long.starts_with(&short[..short.len() - tail.len()]));
    }
}
