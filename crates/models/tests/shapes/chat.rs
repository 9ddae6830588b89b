//! Chat Completions, as its many servers speak it.

use super::*;

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

/// Deltas, an end, and the words of the end.
fn said(deltas: &[&str], end: &str) -> String {
    let deltas: Vec<_> = deltas.iter().map(|one| delta(one)).collect();
    let mut all: Vec<&str> = deltas.iter().map(String::as_str).collect();
    all.push(end);
    events(&all)
}

fn finished(word: &str) -> String {
    said(&[r#"{"content":"hi"}"#], &STOP.replace("stop", word))
}

fn whole(message: &str, finish: &str) -> String {
    format!(
        r#"{{"object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":"{finish}"}}]}}"#
    )
}

#[test]
fn words_and_thoughts() {
    hold(&[
        chat(
            "deepseek reasoning_content",
            said(
                &[
                    r#"{"role":"assistant","content":null,"reasoning_content":"Hm, "}"#,
                    r#"{"reasoning_content":"so."}"#,
                    r#"{"content":"Yes"}"#,
                ],
                STOP,
            ),
            To("Yes", &[], Finish::Stop, &["Hm, so."]),
        ),
        chat(
            "groq, ollama, vllm reasoning",
            said(&[r#"{"reasoning":"Wei","content":""}"#, r#"{"reasoning":"gh"}"#, r#"{"content":"A"}"#], STOP),
            To("A", &[], Finish::Stop, &["Weigh"]),
        ),
        chat(
            "openrouter reasoning_details",
            said(
                &[
                    r#"{"content":"","reasoning":"x","reasoning_details":[{"type":"reasoning.text","text":"x","signature":"c2ln","index":0}]}"#,
                    r#"{"content":"B"}"#,
                ],
                STOP,
            ),
            To("B", &[], Finish::Stop, &["c2ln", "reasoning.text"]),
        ),
        chat(
            "openrouter encrypted",
            said(
                &[
                    r#"{"content":"B","reasoning_details":[{"type":"reasoning.encrypted","data":"b3BhcXVl","id":"rs_1"}]}"#,
                ],
                STOP,
            ),
            To("B", &[], Finish::Stop, &["b3BhcXVl"]),
        ),
        chat(
            "mistral thinking parts",
            said(
                &[
                    r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"inner"}]}]}"#,
                    r#"{"content":[{"type":"text","text":"out"}]}"#,
                ],
                STOP,
            ),
            To("out", &[], Finish::Stop, &["inner"]),
        ),
        chat(
            "mistral references",
            said(&[r#"{"content":[{"type":"text","text":"see"},{"type":"reference","reference_ids":[3]}]}"#], STOP),
            To("see", &[], Finish::Stop, &["reference_ids"]),
        ),
        chat(
            "think inside content stays",
            said(&[r#"{"content":"<think>a</think>"}"#, r#"{"content":"b"}"#], STOP),
            To("<think>a</think>b", &[], Finish::Stop, &[]),
        ),
        chat(
            "thinking field",
            said(&[r#"{"thinking":"deep"}"#, r#"{"content":"b"}"#], STOP),
            To("b", &[], Finish::Stop, &["deep"]),
        ),
        chat(
            "reasoning part with text",
            whole(r#"{"content":[{"type":"reasoning","text":"no"},{"type":"output_text","text":"yes"}]}"#, "stop"),
            To("yes", &[], Finish::Stop, &["no"]),
        ),
        chat(
            "refusal in pieces",
            said(&[r#"{"refusal":"I ca"}"#, r#"{"refusal":"n't"}"#], STOP),
            To("I can't", &[], Finish::Refused, &[]),
        ),
        chat(
            "annotations",
            whole(
                r#"{"content":"a","annotations":[{"type":"url_citation","url_citation":{"url":"https://example.org"}}]}"#,
                "stop",
            ),
            To("a", &[], Finish::Stop, &["example.org"]),
        ),
        chat(
            "audio",
            whole(
                r#"{"content":null,"audio":{"id":"audio_1","data":"UklGRg==","transcript":"spoken","expires_at":1}}"#,
                "stop",
            ),
            To("spoken", &[], Finish::Stop, &["UklGRg=="]),
        ),
        chat(
            "audio in pieces",
            said(
                &[
                    r#"{"audio":{"id":"a","transcript":"sp"}}"#,
                    r#"{"audio":{"data":"QQ==","transcript":"oke"}}"#,
                    r#"{"audio":{"data":"QkI="}}"#,
                ],
                STOP,
            ),
            To("spoke", &[], Finish::Stop, &["QQ==QkI="]),
        ),
        chat(
            "logprobs",
            events(&[
                r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5}]},"finish_reason":null}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-0.25}]},"finish_reason":"stop"}]}"#,
            ]),
            To("ab", &[], Finish::Stop, &["-0.5", "-0.25"]),
        ),
        chat(
            "images out",
            whole(
                r#"{"content":"see","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}"#,
                "stop",
            ),
            To("see", &[], Finish::Stop, &["AAAA"]),
        ),
        chat(
            "azure prelude",
            events(&[
                r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"a"},"content_filter_results":{"hate":{"filtered":false}}}]}"#,
                STOP,
            ]),
            To("a", &[], Finish::Stop, &["prompt_filter_results", "content_filter_results"]),
        ),
        chat(
            "perplexity repeats all beside each piece",
            events(&[
                r#"{"citations":["https://example.org/1"],"choices":[{"index":0,"message":{"role":"assistant","content":"He"},"delta":{"content":"He"}}]}"#,
                r#"{"citations":["https://example.org/1"],"choices":[{"index":0,"message":{"content":"Hello"},"delta":{"content":"llo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"search_context_size":"low"}}"#,
            ]),
            To("Hello", &[], Finish::Stop, &["example.org/1", "search_context_size"]),
        ),
        chat(
            "the whole message at the end",
            events(&[
                &delta(r#"{"content":"He"}"#),
                &delta(r#"{"content":"llo"}"#),
                r#"{"object":"chat.completion","choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#,
            ]),
            To("Hello", &[], Finish::Stop, &[]),
        ),
        chat(
            "messages in pieces",
            events(&[
                r#"{"choices":[{"message":{"content":"ha"}}]}"#,
                r#"{"choices":[{"message":{"content":"ha"},"finish_reason":"stop"}]}"#,
            ]),
            To("haha", &[], Finish::Stop, &[]),
        ),
        chat(
            "a message in an event",
            events(&[r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#]),
            To("Hello", &[], Finish::Stop, &[]),
        ),
        chat(
            "older completions",
            events(&[
                r#"{"object":"text_completion","choices":[{"index":0,"text":"He","finish_reason":null}]}"#,
                r#"{"choices":[{"index":0,"text":"y","finish_reason":"stop"}]}"#,
            ]),
            To("Hey", &[], Finish::Stop, &[]),
        ),
        chat(
            "unknown field of a delta",
            said(&[r#"{"content":"a","mood":"gay"}"#], STOP),
            To("a", &[], Finish::Stop, &["mood", "gay"]),
        ),
        chat(
            "unknown field of a response",
            events(&[r#"{"provider":"Fireworks","choices":[{"delta":{"content":"a"}}]}"#, STOP]),
            To("a", &[], Finish::Stop, &["Fireworks"]),
        ),
        chat(
            "surrogates in two deltas",
            said(&[r#"{"content":"a\ud83d"}"#, r#"{"content":"\ude00b"}"#], STOP),
            To("a😀b", &[], Finish::Stop, &[]),
        ),
        chat(
            "surrogates in two deltas, twice in each",
            said(
                &[
                    r#"{"content":"\ud83d","reasoning_content":"\uD83D"}"#,
                    r#"{"content":"\ude00","reasoning_content":"\uDE00"}"#,
                ],
                STOP,
            ),
            To("😀", &[], Finish::Stop, &["😀"]),
        ),
        chat(
            "a backslash that is none of an escape",
            said(&[r#"{"content":"\\ud83d"}"#, r#"{"content":"\ude00"}"#], STOP),
            To("\\ud83d\u{fffd}", &[], Finish::Stop, &[]),
        ),
        chat(
            "half a character at the end",
            unended(&[&delta(r#"{"content":"a"}"#), STOP, r#"{"choices":[],"note":"\ud83d"}"#]),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "surrogates cut in two",
            said(&[r#"{"content":"\ud83d"}"#, r#"{"content":"x"}"#], STOP),
            To("\u{fffd}x", &[], Finish::Stop, &[]),
        ),
        chat(
            "emoji",
            said(&[r#"{"content":"🐎"}"#, r#"{"content":"é\u00e9"}"#], STOP),
            To("🐎éé", &[], Finish::Stop, &[]),
        ),
    ]);
}

#[test]
fn framing() {
    let plain = |glue: &str| format!("data:{}{glue}data:{STOP}{glue}data:[DONE]{glue}", delta(r#"{"content":"a"}"#));
    hold(&[
        chat("no space", plain("\n\n"), To("a", &[], Finish::Stop, &[])),
        chat("no blank lines", plain("\n"), To("a", &[], Finish::Stop, &[])),
        chat(
            "comments",
            format!(": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n{}", said(&[r#"{"content":"a"}"#], STOP)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "ids and retries",
            format!("retry: 500\nid: 1\nevent: message\n{}", said(&[r#"{"content":"a"}"#], STOP)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat("no DONE", unended(&[&delta(r#"{"content":"a"}"#), STOP]), To("a", &[], Finish::Stop, &[])),
        chat(
            "no end of the last line",
            format!("data: {}\n\ndata: {STOP}", delta(r#"{"content":"a"}"#)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "two in one line",
            format!("data: {}{STOP}\n\n", delta(r#"{"content":"a"}"#)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat("lines of JSON", format!("{}\n{STOP}\n", delta(r#"{"content":"a"}"#)), To("a", &[], Finish::Stop, &[])),
        chat(
            "a list of chunks",
            format!("[{},\n{STOP}]", delta(r#"{"content":"a"}"#)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "an object, then events",
            format!("{}\n\ndata: {STOP}\n\ndata: [DONE]\n\n", delta(r#"{"content":"a"}"#)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "a body, then DONE",
            format!("{}\n[DONE]\n", whole(r#"{"content":"a"}"#, "stop")),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "empty data",
            format!("data:\n\ndata: \n\n{}", said(&[r#"{"content":"a"}"#], STOP)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "printed over lines",
            "{\n  \"choices\": [\n    {\"message\": {\"content\": \"a\"},\n \"finish_reason\": \"stop\"}\n  ]\n}\n"
                .to_owned(),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "a page",
            "<!doctype html><html><title>Bad gateway</title></html>".to_owned(),
            Fails(ModelErrorClass::Transient),
        ),
        chat("nothing", String::new(), Fails(ModelErrorClass::Transient)),
        chat(
            "half an event",
            format!("data: {}\n\ndata: {{\"choi", delta(r#"{"content":"a"}"#)),
            Fails(ModelErrorClass::Transient),
        ),
        chat(
            "nothing counts behind DONE",
            said(&[r#"{"content":"a"}"#], STOP)
                + &said(
                    &[
                        r#"{"content":"b","tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}"#,
                    ],
                    CALLS,
                ),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "nothing counts behind DONE without blank lines",
            format!("{}data: {STOP}\n", plain("\n")),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "an error behind DONE",
            said(&[r#"{"content":"a"}"#], STOP) + "event: error\ndata: {\"message\":\"gone\"}\n\n",
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "a body, DONE, and more",
            format!("{}\n[DONE]\n{}\n", whole(r#"{"content":"a"}"#, "stop"), delta(r#"{"content":"b"}"#)),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "llama.cpp's error",
            unended(&[&delta(r#"{"content":"a"}"#)])
                + "error: {\"code\":400,\"message\":\"the request exceeds the available context size\",\"type\":\"exceed_context_size_error\"}\n\n",
            Fails(ModelErrorClass::ContextExhausted),
        ),
        chat("junk", "data: {nonsense}\n\n".to_owned(), Fails(ModelErrorClass::Malformed)),
    ]);
}

/// A chunk of the stream with this id.
fn of(id: &str, delta: &str) -> String {
    format!(r#"{{"id":"{id}","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

#[test]
fn beginnings() {
    let pay = |id, n: u32| {
        let call = format!(r#"{{"index":0,"id":"{id}","function":{{"name":"pay","arguments":"{{\"n\":{n}}}"}}}}"#);
        format!(r#"{{"tool_calls":[{call}]}}"#)
    };
    let stream = |chunks: &[String], end: &str| {
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).chain([end]).collect();
        events(&chunks)
    };
    let role = r#"{"role":"assistant","content":""}"#;
    let say = |text: &str| format!(r#"{{"role":"assistant","content":"{text}"}}"#);
    let more = |text: &str| format!(r#"{{"content":"{text}"}}"#);
    hold(&[
        chat(
            "another stream in the place of the first",
            stream(&[of("1", role), of("1", &pay("a", 1)), of("2", role), of("2", &pay("b", 2))], CALLS),
            To("", &["b pay({\"n\":2})"], Finish::ToolCalls, &[]),
        ),
        chat(
            "another stream after one chunk",
            stream(&[of("1", &say("I will pay 5")), of("2", &say("I will")), of("2", &more(" not pay"))], STOP),
            To("I will not pay", &[], Finish::Stop, &[]),
        ),
        chat(
            "three beginnings",
            stream(
                &[
                    of("1", role),
                    of("1", &more("a")),
                    of("2", &say("b")),
                    of("2", &more("c")),
                    of("3", &say("d")),
                    of("3", &more("e")),
                ],
                STOP,
            ),
            To("de", &[], Finish::Stop, &[]),
        ),
        chat(
            "an id for each chunk",
            stream(&[of("1", role), of("2", &more("a")), of("3", &more("b"))], STOP),
            To("ab", &[], Finish::Stop, &[]),
        ),
        chat(
            "an id and a role for each chunk",
            stream(&[of("1", &say("a")), of("2", &say("b")), of("3", &say("c"))], STOP),
            To("abc", &[], Finish::Stop, &[]),
        ),
        chat(
            "a role for each chunk, and an id for two",
            stream(&[of("1", &say("a")), of("1", &say("b")), of("2", &say("c")), of("2", &say("d"))], STOP),
            To("abcd", &[], Finish::Stop, &[]),
        ),
        chat(
            "an id and a role for each of two chunks",
            stream(&[of("1", &say("a")), of("2", &say("b"))], STOP),
            To("ab", &[], Finish::Stop, &[]),
        ),
        chat(
            "a beginning that is said twice",
            stream(&[of("1", role), of("1", role), of("1", &more("a"))], STOP),
            To("a", &[], Finish::Stop, &[]),
        ),
        chat(
            "the beginning alone, twice",
            unended(&[&of("1", &say("a")), &of("2", &say("b"))]),
            Fails(ModelErrorClass::Transient),
        ),
    ]);
}

#[test]
fn calls() {
    const ONE: &[&str] = &["c1 f({\"a\":1})"];
    const TWO: &[&str] = &["c1 f({})", "c2 g({})"];
    let call = |fields: &str| format!(r#"{{"tool_calls":[{fields}]}}"#);
    let one = |pieces: &[&str]| {
        let deltas: Vec<_> = pieces.iter().map(|piece| call(piece)).collect();
        said(&deltas.iter().map(String::as_str).collect::<Vec<_>>(), CALLS)
    };
    hold(&[
        chat(
            "by the book",
            one(&[
                r#"{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}"#,
                r#"{"index":0,"function":{"arguments":"{\"a\":"}}"#,
                r#"{"index":0,"function":{"arguments":"1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "whole in one piece",
            one(&[r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}"#]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "without index",
            one(&[
                r#"{"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
                r#"{"function":{"arguments":":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "arguments as object",
            one(&[r#"{"index":0,"id":"c1","function":{"name":"f","arguments":{"a":1}}}"#]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "arguments null",
            one(&[r#"{"index":0,"id":"c1","function":{"name":"f","arguments":null}}"#]),
            To("", &["c1 f()"], Finish::ToolCalls, &[]),
        ),
        chat(
            "id null later",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":""}}"#,
                r#"{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"a\":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "id empty later",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
                r#"{"index":0,"id":"","function":{"name":"","arguments":":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "id changing",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":""}}"#,
                r#"{"index":0,"id":"c9","function":{"arguments":"{\"a\":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "name in each piece",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}"#,
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "id missing",
            one(&[r#"{"index":0,"function":{"name":"f","arguments":"{\"a\":1}"}}"#]),
            To("", &[" f({\"a\":1})"], Finish::ToolCalls, &[]),
        ),
        chat(
            "id a number",
            one(&[r#"{"index":0,"id":7,"function":{"name":"f","arguments":"{}"}}"#]),
            To("", &["7 f({})"], Finish::ToolCalls, &[]),
        ),
        chat(
            "index a text",
            one(&[
                r#"{"index":"0","id":"c1","function":{"name":"f","arguments":"{}"}}"#,
                r#"{"index":"1","id":"c2","function":{"name":"g","arguments":"{}"}}"#,
            ]),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "all index 0",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}"#,
                r#"{"index":0,"id":"c2","function":{"name":"g","arguments":"{}"}}"#,
            ]),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "from 1",
            one(&[
                r#"{"index":1,"id":"c1","function":{"name":"f","arguments":"{}"}}"#,
                r#"{"index":2,"id":"c2","function":{"name":"g","arguments":"{}"}}"#,
            ]),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "two in one piece",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{}"}}"#,
            ]),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "interleaved",
            one(&[
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}"#,
                r#"{"index":1,"id":"c2","function":{"name":"g","arguments":"{"}}"#,
                r#"{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":"}"}}"#,
            ]),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "an index alone is no call",
            one(&[
                r#"{"index":0,"function":{}}"#,
                r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "one without its list",
            said(&[r#"{"tool_calls":{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}}"#], CALLS),
            To("", ONE, Finish::ToolCalls, &[]),
        ),
        chat(
            "custom",
            one(&[r#"{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"free text"}}"#]),
            To("", &["c1 f(free text)"], Finish::ToolCalls, &[]),
        ),
        chat(
            "the older form",
            said(
                &[r#"{"function_call":{"name":"f","arguments":"{\"a\""}}"#, r#"{"function_call":{"arguments":":1}"}}"#],
                &STOP.replace("stop", "function_call"),
            ),
            To("", &[" f({\"a\":1})"], Finish::ToolCalls, &[]),
        ),
        chat(
            "whole",
            whole(
                r#"{"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}"#,
                "tool_calls",
            ),
            To("", TWO, Finish::ToolCalls, &[]),
        ),
        chat(
            "cut by length",
            said(
                &[r#"{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":"}}]}"#],
                &STOP.replace("stop", "length"),
            ),
            To("", &["c1 f({\"a\":)"], Finish::Length, &[]),
        ),
        chat(
            "thoughts, words, calls",
            said(
                &[
                    r#"{"reasoning_content":"t"}"#,
                    r#"{"content":"w"}"#,
                    r#"{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}]}"#,
                ],
                CALLS,
            ),
            To("w", ONE, Finish::ToolCalls, &["\"t\""]),
        ),
        chat(
            "google's signature beside a call",
            one(&[
                r#"{"index":0,"id":"c1","extra_content":{"google":{"thought_signature":"c2ln"}},"function":{"name":"f","arguments":"{\"a\":1}"}}"#,
            ]),
            To("", ONE, Finish::ToolCalls, &["c2ln"]),
        ),
    ]);
}

#[test]
fn finishes_and_counts() {
    let ends = |word, finish| chat(word, finished(word), To("hi", &[], finish, &[]));
    let fails = |word, class| chat(word, finished(word), Fails(class));
    hold(&[
        ends("stop", Finish::Stop),
        ends("eos", Finish::Stop),
        ends("eos_token", Finish::Stop),
        ends("stop_sequence", Finish::Stop),
        ends("COMPLETE", Finish::Stop),
        ends("end_turn", Finish::Stop),
        ends("tool_use", Finish::ToolCalls),
        ends("length", Finish::Length),
        ends("MAX_TOKENS", Finish::Length),
        fails("model_length", ModelErrorClass::ContextExhausted),
        ends("content_filter", Finish::Refused),
        ends("sensitive", Finish::Refused),
        chat(
            "a filter without words",
            events(&[
                &delta(r#"{"content":""}"#),
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter","content_filter_results":{"hate":{"filtered":false},"violence":{"filtered":true}}}]}"#,
            ]),
            To("content_filter: violence", &[], Finish::Refused, &[]),
        ),
        ends("weird", Finish::Other("weird".into())),
        fails("insufficient_system_resource", ModelErrorClass::Overloaded),
        fails("network_error", ModelErrorClass::Transient),
        fails("abort", ModelErrorClass::Transient),
        fails("error", ModelErrorClass::Transient),
    ]);
    let counted = |usage: &str| {
        let body = format!(r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],{usage}}}"#);
        let usage = read(Wire::Chat, &[body.as_bytes()]).expect("a reply").usage.expect("counted");
        (usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning)
    };
    let rows = [
        (r#""usage":{"prompt_tokens":10,"completion_tokens":2}"#, (10, 0, 0, 2, 0)),
        (
            r#""usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}"#,
            (6, 4, 0, 2, 0),
        ),
        (r#""usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":null}"#, (10, 0, 0, 2, 0)),
        (
            r#""usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":3,"prompt_cache_miss_tokens":7}"#,
            (7, 3, 0, 2, 0),
        ),
        (r#""usage":{"prompt_tokens":10,"completion_tokens":2,"cached_tokens":5}"#, (5, 5, 0, 2, 0)),
        (
            r#""usage":{"prompt_tokens":10,"completion_tokens":2,"cache_read_input_tokens":4,"cache_creation_input_tokens":3}"#,
            (3, 4, 3, 2, 0),
        ),
        (
            r#""usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":15,"completion_tokens_details":{"reasoning_tokens":3}}"#,
            (10, 0, 0, 5, 3),
        ),
        (r#""usage":{"prompt_tokens":10.0,"completion_tokens":2.0}"#, (10, 0, 0, 2, 0)),
        (r#""usage":null,"x_groq":{"usage":{"prompt_tokens":10,"completion_tokens":2}}"#, (10, 0, 0, 2, 0)),
    ];
    for (usage, expected) in rows {
        assert_eq!(counted(usage), expected, "{usage}");
    }
}

#[test]
fn errors_under_status_200() {
    use ModelErrorClass::{Authentication, BadRequest, ContentRefused, Overloaded, Quota, RateLimited, Transient};
    let row = |name, body: &str, class| chat(name, body.to_owned(), Fails(class));
    let events = |name, error: &str, class| {
        chat(name, format!("data: {}\n\ndata: {error}\n\n", delta(r#"{"content":"a"}"#)), Fails(class))
    };
    hold(&[
        events("string", r#"{"error":"overloaded"}"#, Overloaded),
        events("object with number", r#"{"error":{"message":"Provider returned error","code":502}}"#, Transient),
        events("number 429", r#"{"error":{"message":"slow down","code":429}}"#, RateLimited),
        events(
            "openrouter with choices",
            r#"{"id":"g","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
            Transient,
        ),
        events(
            "error in the choice",
            r#"{"choices":[{"index":0,"error":{"code":503,"message":"busy"},"delta":{}}]}"#,
            Overloaded,
        ),
        row("detail", r#"{"detail":"Not Found"}"#, BadRequest),
        row(
            "detail list",
            r#"{"detail":[{"loc":["body","messages"],"msg":"field required","type":"value_error.missing"}]}"#,
            BadRequest,
        ),
        row("message and type", r#"{"message":"The service is busy: overloaded","type":"error"}"#, Overloaded),
        row(
            "object error",
            r#"{"object":"error","message":"bad model","type":"NotFoundError","code":404}"#,
            BadRequest,
        ),
        row("minimax balance", r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#, Quota),
        row(
            "minimax key",
            r#"{"choices":null,"base_resp":{"status_code":1004,"status_msg":"login fail"}}"#,
            Authentication,
        ),
        row("minimax rate", r#"{"base_resp":{"status_code":1002,"status_msg":"rate limit"}}"#, RateLimited),
        row(
            "minimax sensitive",
            r#"{"base_resp":{"status_code":1027,"status_msg":"output new_sensitive"}}"#,
            ContentRefused,
        ),
        row(
            "dashscope",
            r#"{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content.","request_id":"r"}"#,
            ContentRefused,
        ),
        row(
            "errors list",
            r#"{"success":false,"errors":[{"code":7003,"message":"No route for that URI"}]}"#,
            BadRequest,
        ),
        events("event: error", "{}\n\nevent: error\ndata: {\"message\":\"rate limit exceeded\"}", RateLimited),
    ]);
}
