//! Responses as servers really send them. Each is read whole and cut at every byte, which must make no difference.

mod support;

use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply};
use longrein_models::openai::decode::{Decoder, End, Progress, Reading};

fn read_as(body: &[u8], end: End) -> Result<Reply, ModelFailure> {
    support::read_as::<Decoder>(body, end)
}

fn read(body: &str) -> Result<Reply, ModelFailure> {
    read_as(body.as_bytes(), End::Closed)
}

/// A stream of events with these data.
fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;

/// The calls that these deltas' `tool_calls` make, as `id name arguments`.
#[track_caller]
fn check_calls(deltas: &[&str], expected: &[&str]) {
    let deltas: Vec<_> = deltas.iter().map(|calls| delta(&format!(r#"{{"tool_calls":[{calls}]}}"#))).collect();
    let mut data: Vec<_> = deltas.iter().map(String::as_str).collect();
    data.extend([CALLS, "[DONE]"]);
    let reply = read(&events(&data)).expect("a reply");
    let calls: Vec<_> =
        reply.calls.iter().map(|call| format!("{} {} {}", call.id, call.name, call.arguments)).collect();
    assert_eq!(calls, expected);
    assert_eq!(reply.finish, Finish::ToolCalls);
}

#[test]
fn a_stream_by_the_book() {
    let body = events(&[
        &delta(r#"{"role":"assistant","content":""}"#),
        &delta(r#"{"content":"Grüße "}"#),
        &delta(r#"{"content":"🦀"}"#),
        STOP,
        r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":10}}}"#,
        "[DONE]",
    ]);
    let reply = read(&body).unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("Grüße 🦀", Finish::Stop));
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.output, usage.reasoning), (40, 60, 30, 10));
}

#[test]
fn odd_framing() {
    let plain = events(&[&delta(r#"{"content":"a"}"#), STOP, "[DONE]"]);
    let variants = [
        format!("\u{feff}{plain}"),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        format!(": keep-alive\n\n\n\n{}", plain.replace("\n\n", "\n\n: ping\n\nid: 3\nretry: 10\n\n")),
        plain.replace("data: ", "data:"),
        plain.replace("data: ", "event: message\ndata: "),
        plain.replace("data: [DONE]\n\n", ""),
        plain.trim_end().to_owned(),
        plain.replace("\n\n", "\n"),
        plain.replace("data: ", "").replace("[DONE]", ""),
    ];
    for body in &variants {
        let reply = read(body).unwrap_or_else(|failure| panic!("{body:?}: {failure:?}"));
        assert_eq!((reply.text.as_str(), reply.finish), ("a", Finish::Stop), "{body:?}");
    }
}

#[test]
fn a_body_in_one_piece() {
    let body = r#" {"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
        {"id":"a","type":"function","function":{"name":"f","arguments":{"x":1}}},
        {"type":"function","function":{"name":"g"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let reply = read(body).unwrap();
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("a", "f", "{}"), ("a", "f", r#"{"x":1}"#), ("", "g", "")]);
    assert_eq!(reply.usage.unwrap().tokens(), 7);
    let parts = r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":[]},{"type":"text","text":"b"}]},"finish_reason":"stop"}]}"#;
    assert_eq!(read(parts).unwrap().text, "ab");
}

#[test]
fn calls_from_pieces() {
    check_calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\""}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}"#,
        ],
        &[r#"a f {"x":1}"#, "b g {}"],
    );
    // The first index is not 0.
    check_calls(&[r#"{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}"#], &["a f {}"]);
    // Two ids on one index.
    check_calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"f","arguments":"{\"y\":"}}"#,
            r#"{"index":0,"function":{"arguments":"2}"}}"#,
        ],
        &["a f {}", r#"b f {"y":2}"#],
    );
    // No index.
    check_calls(
        &[
            r#"{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#,
            r#"{"function":{"arguments":"1}"}}"#,
            r#"{"id":"b","function":{"name":"f","arguments":"{}"}},{"id":"c","function":{"name":"g"}}"#,
        ],
        &[r#"a f {"x":1}"#, "b f {}", "c g "],
    );
    // Neither index nor id.
    check_calls(
        &[
            r#"{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}"#,
            r#"{"function":{"name":"g","arguments":{"z":[1]}}}"#,
        ],
        &[" f {}", " f {}", r#" g {"z":[1]}"#],
    );
    // No ids, index always 0.
    check_calls(
        &[
            r#"{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":"{\"x\":2}"}}"#,
        ],
        &[r#" f {"x":1}"#, r#" f {"x":2}"#],
    );
    // Id and name in every piece.
    check_calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":""}}"#,
        ],
        &[r#"a f {"x":1}"#],
    );
    // A new id in every piece.
    check_calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":0,"id":"b","function":{"arguments":"}"}}"#,
        ],
        &["a f {}"],
    );
    // The index comes later.
    check_calls(
        &[r#"{"id":"a","function":{"name":"f","arguments":"{"}}"#, r#"{"index":0,"function":{"arguments":"}"}}"#],
        &["a f {}"],
    );
    // Arguments that are no object are not ours to judge.
    check_calls(&[r#"{"index":0,"id":"a","function":{"name":"f","arguments":"null"}}"#], &["a f null"]);
    check_calls(&[r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}"#], &[r#"a f {"x"#]);
}

#[test]
fn the_older_form_of_calls() {
    let reply = read(&events(&[
        &delta(r#"{"function_call":{"name":"f","arguments":""}}"#),
        &delta(r#"{"function_call":{"arguments":"{\"x\":1}"}}"#),
        r#"{"choices":[{"delta":{},"finish_reason":"function_call"}]}"#,
    ]));
    let reply = reply.unwrap();
    assert_eq!((&*reply.calls[0].name, &*reply.calls[0].arguments), ("f", r#"{"x":1}"#));
    assert_eq!((reply.calls.len(), reply.finish), (1, Finish::ToolCalls));
}

#[test]
fn why_it_stopped() {
    for (word, finish) in [
        ("length", Finish::Length),
        ("content_filter", Finish::Refused),
        ("MALFORMED_FUNCTION_CALL", Finish::Other("MALFORMED_FUNCTION_CALL".into())),
    ] {
        let stop = STOP.replace("\"stop\"", &format!("\"{word}\""));
        assert_eq!(read(&events(&[&delta(r#"{"content":"a"}"#), &stop])).unwrap().finish, finish);
    }
    let refusal =
        read(&events(&[&delta(r#"{"content":null,"refusal":"I will "}"#), &delta(r#"{"refusal":"not."}"#), STOP]));
    let refusal = refusal.unwrap();
    assert_eq!((refusal.text.as_str(), refusal.finish), ("I will not.", Finish::Refused));
    assert_eq!(read(&events(&[&delta(r#"{"content":"a"}"#), "[DONE]"])).unwrap().finish, Finish::Other(String::new()));
}

/// Who closes in good order has not therefore said all.
#[test]
fn a_stream_that_just_ends_was_cut() {
    let call = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"pay","arguments":"{}"}}]}"#);
    let half = delta(r#"{"content":"half an ans"}"#);
    for body in [
        events(&[&half]),
        events(&[&call]),
        events(&[&half, &call]),
        // One JSON object a line, and a list that never ends.
        format!("{half}\n"),
        format!("[{half},"),
        events(&[&half])[..40].to_owned(),
        // A whole completion without its end.
        r#"{"choices":[{"message":{"content":"half an"#.to_owned(),
    ] {
        let failure = read(&body).unwrap_err();
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps), "{body}");
    }
    // One piece is all there is, though nobody says why.
    let whole = r#"{"choices":[{"message":{"content":"all of it"}}]}"#;
    assert_eq!(read(whole).unwrap().finish, Finish::Other(String::new()));
}

#[test]
fn cut_before_the_first_word() {
    let length = STOP.replace("\"stop\"", "\"length\"");
    let usage = |prompt: u32, output: u32| {
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{output}}}}}"#)
    };
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":4096,"completion_tokens":0}}"#;
    for (body, prompt) in [
        (events(&[&length]), None),
        (events(&[&delta(r#"{"role":"assistant","content":""}"#), &length, "[DONE]"]), None),
        (events(&[&length, &usage(4_096, 0), "[DONE]"]), Some(4_096)),
        (whole.to_owned(), Some(4_096)),
        (events(&[&STOP.replace("\"stop\"", "\"model_length\"")]), None),
    ] {
        let failure = read(&body).unwrap_err();
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::ContextExhausted, Billing::Perhaps), "{body}");
        assert_eq!(failure.served.and_then(|served| served.prompt), prompt, "{body}");
        assert_eq!(failure.usage.map(|usage| usage.input), prompt);
    }
    // Something was made, if only thoughts: it is a reply that was cut, and another time it may be whole.
    for body in [
        events(&[&delta(r#"{"content":"a"}"#), &length]),
        events(&[&delta(r#"{"reasoning_content":"hm"}"#), &length]),
        events(&[&delta(r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}"#), &length]),
        events(&[&length, &usage(10, 16), "[DONE]"]),
    ] {
        assert_eq!(read(&body).unwrap().finish, Finish::Length, "{body}");
    }
    assert_eq!(read(&events(&[STOP])).unwrap().finish, Finish::Stop);
}

#[test]
fn a_stream_that_breaks_off() {
    let broken = || End::Broken("reset".into());
    let body = events(&[
        &delta(r#"{"content":"half"}"#),
        &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}]}"#),
    ]);
    for cut in [body.len(), body.len() - 10] {
        let failure = read_as(&body.as_bytes()[..cut], broken()).unwrap_err();
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps));
        assert!(failure.message.contains("reset"), "{}", failure.message);
        assert!(failure.partial.unwrap().as_str().contains("half"));
    }
    // After it said why it stopped, the reply is whole.
    assert!(read_as(events(&[&delta(r#"{"content":"a"}"#), STOP]).as_bytes(), broken()).is_ok());
    assert!(read_as(br#"{"choices":[{"message":{"content":"a"},"finish"#, broken()).is_err());
    assert_eq!(read("").unwrap_err().class, ModelErrorClass::Transient);
}

#[test]
fn errors_under_status_200() {
    for (body, class) in [
        (r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#, ModelErrorClass::Overloaded),
        (r#"{"error":{"message":"slow","code":429}}"#, ModelErrorClass::RateLimited),
        (
            r#"{"error":{"message":"Your input exceeds the context window of this model.","code":"context_length_exceeded"}}"#,
            ModelErrorClass::ContextExhausted,
        ),
        (
            r#"{"object":"error","message":"This model's maximum context length is 131072 tokens.","code":400}"#,
            ModelErrorClass::ContextExhausted,
        ),
        (
            r#"[{"error":{"code":400,"message":"The input token count (12) exceeds the maximum number of tokens allowed (10).","status":"INVALID_ARGUMENT"}}]"#,
            ModelErrorClass::ContextExhausted,
        ),
        (
            r#"{"type":"error","sequence_number":2,"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model. Please adjust your input and try again.","param":"input"}}"#,
            ModelErrorClass::ContextExhausted,
        ),
        (r#"{"error":"something broke"}"#, ModelErrorClass::Transient),
        (
            r#"{"choices":[{"index":0,"error":{"code":502,"message":"upstream"},"finish_reason":"error"}]}"#,
            ModelErrorClass::Transient,
        ),
    ] {
        for body in [body.to_owned(), events(&[body]), format!("event: error\ndata: {body}\n\n")] {
            let failure = read(&body).unwrap_err();
            assert_eq!(failure.class, class, "{body}");
            assert!(!failure.message.is_empty());
        }
    }
    let late = read(&events(&[
        &delta(r#"{"content":"a"}"#),
        r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#,
    ]))
    .unwrap_err();
    assert_eq!(
        (late.class, late.billing, late.partial.is_some()),
        (ModelErrorClass::Overloaded, Billing::Perhaps, true)
    );
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(b"event: error\ndata: gone\n\n"), Progress::Failed);
}

#[test]
fn hostile_bytes() {
    let mut latin = events(&[&delta(r#"{"content":"a?b"}"#), STOP]).into_bytes();
    *latin.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xff;
    assert_eq!(read_as(&latin, End::Closed).unwrap().text, "a\u{fffd}b");
    let halves =
        events(&[&delta(r#"{"content":"\\ud83d x\ud83d"}"#), &delta(r#"{"content":"\ude00\ud83d\ude00"}"#), STOP]);
    assert_eq!(read(&halves).unwrap().text, "\\ud83d x😀😀");
    let junk = read(&events(&[&delta(r#"{"content":"a"}"#), "{junk", STOP])).unwrap_err();
    assert_eq!((junk.class, junk.partial.is_some()), (ModelErrorClass::Malformed, true));
    assert!(read("<html>hello</html>").is_err());
    assert!(read("data: 3\n\ndata: null\n\ndata: []\n\n").is_err());

    let mut decoder = Decoder::default();
    decoder.feed(b"data: ");
    let mut progress = Progress::Reading;
    for _ in 0..11 {
        progress = decoder.feed(&vec![b'x'; 1024 * 1024]);
    }
    assert_eq!(progress, Progress::Failed);
    assert_eq!(decoder.end(End::Closed).unwrap_err().class, ModelErrorClass::Malformed);
    let mut decoder = Decoder::default();
    let comment = format!(":{}\n", "x".repeat(1024 * 1024));
    for _ in 0..17 {
        progress = decoder.feed(comment.as_bytes());
    }
    assert_eq!(progress, Progress::Failed);
    assert!(decoder.end(End::Closed).unwrap_err().message.contains("16 MiB"));
}

#[test]
fn when_nothing_more_is_expected() {
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(events(&[&delta(r#"{"content":"a"}"#)]).as_bytes()), Progress::Reading);
    assert_eq!(decoder.feed(events(&[STOP]).as_bytes()), Progress::Stopped);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    assert_eq!(decoder.feed(events(&[usage]).as_bytes()), Progress::Complete);
}

#[test]
fn usage_in_other_spellings() {
    let usage = |usage: &str| {
        let body = format!(r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{usage}}}"#);
        read(&body).unwrap().usage
    };
    assert_eq!(usage("null"), None);
    assert_eq!(usage("{}"), None);
    let deepseek = usage(r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":8}"#).unwrap();
    assert_eq!((deepseek.input, deepseek.cached), (2, 8));
    let xai = r#"{"prompt_tokens":10,"completion_tokens":2,"total_tokens":19,"completion_tokens_details":{"reasoning_tokens":7}}"#;
    assert_eq!(usage(xai).unwrap().output, 9);
    let odd =
        usage(r#"{"prompt_tokens":3.0,"completion_tokens":-1,"prompt_tokens_details":{"cached_tokens":9}}"#).unwrap();
    assert_eq!((odd.input, odd.cached, odd.output), (0, 3, 0));
}
