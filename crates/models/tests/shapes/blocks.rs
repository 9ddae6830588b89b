//! Messages, Responses, Gemini and Ollama.

use super::*;

fn row(name: &'static str, wire: Wire, body: String, comes: Comes) -> Row {
    Row { name, wire, body, comes }
}

#[test]
fn messages() {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":5,"output_tokens":1}}}"#;
    let end = |why: &str| {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{why}","stop_sequence":null}},"usage":{{"output_tokens":4,"input_tokens":null,"cache_read_input_tokens":null}}}}"#
        )
    };
    let stop = r#"{"type":"message_stop"}"#;
    let open = |block: &str| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
    let grow = |delta: &str| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
    let closed = r#"{"type":"content_block_stop","index":0}"#;
    let all = |middle: &[String], why: &str| {
        let end = end(why);
        let mut data = vec![start];
        data.extend(middle.iter().map(String::as_str));
        data.extend([closed, &end, stop]);
        named(&data)
    };
    let text = |text: &str| {
        vec![open(r#"{"type":"text","text":""}"#), grow(&format!(r#"{{"type":"text_delta","text":"{text}"}}"#))]
    };
    let ends = |why, finish| row(why, Wire::Messages, all(&text("hi"), why), To("hi", &[], finish, &[]));
    let fails = |name, event: &str, class| row(name, Wire::Messages, named(&[start, event]), Fails(class));
    hold(&[
        ends("end_turn", Finish::Stop),
        ends("stop_sequence", Finish::Stop),
        ends("max_tokens", Finish::Length),
        row("model_context_window_exceeded", Wire::Messages, all(&text("hi"), "model_context_window_exceeded"), Fails(ModelErrorClass::ContextExhausted)),
        ends("refusal", Finish::Refused),
        row("a refusal without words", Wire::Messages, all(&[], "refusal"), To("refusal", &[], Finish::Refused, &[])),
        row("a refusal of a kind", Wire::Messages, named(&[start, r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber"}}}"#, stop]), To("refusal: cyber", &[], Finish::Refused, &[])),
        row("an error behind the end", Wire::Messages, all(&text("hi"), "end_turn") + &named(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]), To("hi", &[], Finish::Stop, &[])),
        row("words for a call", Wire::Messages, all(&[open(r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#), grow(r#"{"type":"text_delta","text":"{\"a\":1}"}"#)], "tool_use"), Fails(ModelErrorClass::Malformed)),
        row("thoughts and words alike", Wire::Messages, all(&[open(r#"{"type":"thinking","thinking":"","signature":"c2ln"}"#), grow(r#"{"type":"thinking_delta","thinking":"so"}"#), grow(r#"{"type":"text_delta","text":"a"}"#), grow(r#"{"type":"text_delta","text":"b"}"#)], "end_turn"), To("ab", &[], Finish::Stop, &["\"so\""])),
        ends("pause_turn", Finish::Other("pause_turn".into())),
        ends("compaction", Finish::Other("compaction".into())),
        row("thinking", Wire::Messages, all(&[open(r#"{"type":"thinking","thinking":"","signature":""}"#), grow(r#"{"type":"thinking_delta","thinking":"so"}"#), grow(r#"{"type":"signature_delta","signature":"c2ln"}"#)], "end_turn"), To("", &[], Finish::Stop, &["\"so\"", "c2ln"])),
        row("redacted", Wire::Messages, all(&[open(r#"{"type":"redacted_thinking","data":"b3A="}"#)], "end_turn"), To("", &[], Finish::Stop, &["b3A="])),
        row("a call without input", Wire::Messages, all(&[open(r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#), grow(r#"{"type":"input_json_delta","partial_json":""}"#)], "tool_use"), To("", &["t1 f()"], Finish::ToolCalls, &[])),
        row("a call in pieces", Wire::Messages, all(&[open(r#"{"type":"tool_use","id":"t1","name":"f","input":{},"caller":{"type":"direct"}}"#), grow(r#"{"type":"input_json_delta","partial_json":""}"#), grow(r#"{"type":"input_json_delta","partial_json":"{\"a\":"}"#), grow(r#"{"type":"input_json_delta","partial_json":"1}"}"#)], "tool_use"), To("", &["t1 f({\"a\":1})"], Finish::ToolCalls, &["caller"])),
        row("a server's tool", Wire::Messages, all(&[open(r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#), grow(r#"{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}"#)], "pause_turn"), To("", &[], Finish::Other("pause_turn".into()), &["server_tool_use", "\"query\""])),
        row("a server's tool, cut", Wire::Messages, all(&[open(r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#), grow(r#"{"type":"input_json_delta","partial_json":"{\"query\":"}"#)], "max_tokens"), To("", &[], Finish::Length, &["partial_json"])),
        row("its result", Wire::Messages, all(&[open(r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","url":"https://example.org"}]}"#)], "end_turn"), To("", &[], Finish::Stop, &["example.org"])),
        row("citations", Wire::Messages, all(&[open(r#"{"type":"text","text":"","citations":[]}"#), grow(r#"{"type":"citations_delta","citation":{"type":"char_location","cited_text":"quoted"}}"#), grow(r#"{"type":"text_delta","text":"a"}"#)], "end_turn"), To("a", &[], Finish::Stop, &["quoted"])),
        row("a block nobody knows", Wire::Messages, all(&[open(r#"{"type":"hologram","data":"x"}"#), grow(r#"{"type":"hologram_delta","data":"yz"}"#)], "end_turn"), To("", &[], Finish::Stop, &["xyz"])),
        row("a delta nobody knows", Wire::Messages, all(&[open(r#"{"type":"text","text":""}"#), grow(r#"{"type":"tone_delta","tone":"warm"}"#), grow(r#"{"type":"text_delta","text":"a"}"#)], "end_turn"), To("a", &[], Finish::Stop, &["warm"])),
        row("an event nobody knows", Wire::Messages, named(&[start, r#"{"type":"weather","sky":"blue"}"#, &open(r#"{"type":"text","text":"a"}"#), &end("end_turn"), stop]), To("a", &[], Finish::Stop, &["blue"])),
        row("without index", Wire::Messages, named(&[start, r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#, r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#, &end("end_turn"), stop]), To("a", &[], Finish::Stop, &[])),
        row("words before their block", Wire::Messages, named(&[start, &grow(r#"{"type":"text_delta","text":"a"}"#), &end("end_turn"), stop]), To("a", &[], Finish::Stop, &[])),
        row("ping", Wire::Messages, named(&[start, r#"{"type":"ping"}"#, &open(r#"{"type":"text","text":"a"}"#), &end("end_turn"), stop]), To("a", &[], Finish::Stop, &[])),
        row("whole", Wire::Messages, r#"{"type":"message","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","container":{"id":"ctr"},"usage":{"input_tokens":1,"output_tokens":2,"server_tool_use":{"web_search_requests":1}}}"#.into(), To("a", &["t1 f({\"a\":1})"], Finish::ToolCalls, &["ctr", "web_search_requests"])),
        row("whole, content a text", Wire::Messages, r#"{"type":"message","content":"a","stop_reason":"end_turn"}"#.into(), To("a", &[], Finish::Stop, &[])),
        row("input a text", Wire::Messages, r#"{"type":"message","content":[{"type":"tool_use","id":"t1","name":"f","input":"{\"a\":1}"}],"stop_reason":"tool_use"}"#.into(), To("", &["t1 f({\"a\":1})"], Finish::ToolCalls, &[])),
        row("no stop", Wire::Messages, named(&[start, &open(r#"{"type":"text","text":"a"}"#)]), Fails(ModelErrorClass::Transient)),
        fails("overloaded", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, ModelErrorClass::Overloaded),
        fails("rate", r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#, ModelErrorClass::RateLimited),
        fails("api error", r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, ModelErrorClass::Transient),
        fails("key", r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#, ModelErrorClass::Authentication),
    ]);
}

#[test]
fn responses() {
    let whole = |output: &str| {
        format!(
            r#"{{"type":"response.completed","response":{{"object":"response","status":"completed","output":[{output}],"usage":{{"input_tokens":3,"output_tokens":2}}}}}}"#
        )
    };
    let message = r#"{"type":"message","id":"m1","content":[{"type":"output_text","text":"a","annotations":[]}]}"#;
    let done =
        |at: u32, item: &str| format!(r#"{{"type":"response.output_item.done","output_index":{at},"item":{item}}}"#);
    let row = |name, data: &[&str], comes| row(name, Wire::Responses, named(data), comes);
    let call = r#"{"type":"function_call","id":"fc1","call_id":"c1","name":"f","arguments":"{}"}"#;
    hold(&[
        row(
            "all at the end",
            &[r#"{"type":"response.created","response":{"status":"in_progress"}}"#, &whole(message)],
            To("a", &[], Finish::Stop, &[]),
        ),
        row("done without added", &[&done(0, message), &whole("")], To("a", &[], Finish::Stop, &[])),
        row(
            "deltas alone",
            &[r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}"#, &whole("")],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "text done alone",
            &[r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"a"}"#, &whole("")],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "deltas and done",
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}"#,
                r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"a"}"#,
                &whole(""),
            ],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "annotations",
            &[&whole(
                r#"{"type":"message","content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation","url":"https://example.org"}],"logprobs":[{"token":"a","logprob":-0.5}]}]}"#,
            )],
            To("a", &[], Finish::Stop, &["example.org", "-0.5"]),
        ),
        row(
            "a call",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc1","call_id":"c1","name":"f","arguments":""}}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc1","delta":"{}"}"#,
                &whole(""),
            ],
            To("", &["c1 f({})"], Finish::ToolCalls, &[]),
        ),
        row(
            "arguments before the call",
            &[
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc1","delta":"{}"}"#,
                &done(0, call),
                &whole(""),
            ],
            To("", &["c1 f({})"], Finish::ToolCalls, &[]),
        ),
        row(
            "arguments without a call",
            &[r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}"#, &whole("")],
            Fails(ModelErrorClass::Malformed),
        ),
        row(
            "ids that change",
            &[
                r#"{"type":"response.output_item.added","item":{"type":"function_call","id":"x1","call_id":"c1","name":"f","arguments":""}}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"x2","delta":"{}"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"x3","call_id":"c1","name":"f","arguments":"{}"}}"#,
                &whole(""),
            ],
            To("", &["c1 f({})"], Finish::ToolCalls, &[]),
        ),
        row(
            "a custom tool",
            &[
                r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"free"}"#,
                &done(0, r#"{"type":"custom_tool_call","call_id":"c1","name":"f","input":"free text"}"#),
                &whole(""),
            ],
            To("", &["c1 f(free text)"], Finish::ToolCalls, &[]),
        ),
        row(
            "thoughts, encrypted",
            &[&whole(&format!(
                r#"{{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"b3A="}},{message}"#
            ))],
            To("a", &[], Finish::Stop, &["b3A="]),
        ),
        row(
            "thoughts, a summary",
            &[&whole(&format!(
                r#"{{"type":"reasoning","id":"rs","summary":[{{"type":"summary_text","text":"why"}}]}},{message}"#
            ))],
            To("a", &[], Finish::Stop, &["why"]),
        ),
        row(
            "thoughts as deltas alone",
            &[
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"wh"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"y"}"#,
                &done(1, message),
                &whole(""),
            ],
            To("a", &[], Finish::Stop, &["why"]),
        ),
        row(
            "open thoughts",
            &[
                r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"open"}"#,
                &done(1, message),
                &whole(""),
            ],
            To("a", &[], Finish::Stop, &["open"]),
        ),
        row(
            "the end leaves thoughts out",
            &[
                &done(0, r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"why"}]}"#),
                &done(1, message),
                &whole(message),
            ],
            To("a", &[], Finish::Stop, &["why"]),
        ),
        row(
            "a search",
            &[&whole(&format!(
                r#"{{"type":"web_search_call","id":"ws","status":"completed","action":{{"type":"search","query":"q9"}}}},{message}"#
            ))],
            To("a", &[], Finish::Stop, &["q9"]),
        ),
        row(
            "an event nobody knows",
            &[r#"{"type":"response.web_search_call.searching","item_id":"ws9"}"#, &whole(message)],
            To("a", &[], Finish::Stop, &["ws9"]),
        ),
        row(
            "refusal",
            &[&whole(r#"{"type":"message","content":[{"type":"refusal","refusal":"No."}]}"#)],
            To("No.", &[], Finish::Refused, &[]),
        ),
        row(
            "incomplete",
            &[
                &done(0, message),
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#,
            ],
            To("a", &[], Finish::Length, &[]),
        ),
        row(
            "filtered",
            &[
                &done(0, message),
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}}"#,
            ],
            To("a", &[], Finish::Refused, &[]),
        ),
        row(
            "failed",
            &[
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"The server had an error"}}}"#,
            ],
            Fails(ModelErrorClass::Transient),
        ),
        row(
            "failed, rate",
            &[
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit reached"}}}"#,
            ],
            Fails(ModelErrorClass::RateLimited),
        ),
        row(
            "failed, too long",
            &[
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}"#,
            ],
            Fails(ModelErrorClass::ContextExhausted),
        ),
        row(
            "an error",
            &[r#"{"type":"error","code":"insufficient_quota","message":"You exceeded your current quota"}"#],
            Fails(ModelErrorClass::Quota),
        ),
        row(
            "begun anew",
            &[
                r#"{"type":"response.created","response":{"id":"r1","status":"in_progress"}}"#,
                &done(0, call),
                r#"{"type":"response.created","response":{"id":"r2","status":"in_progress"}}"#,
                &done(0, message),
                &whole(""),
            ],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "begun twice by the same",
            &[
                r#"{"type":"response.created","response":{"id":"r1","status":"in_progress"}}"#,
                &done(0, message),
                r#"{"type":"response.created","response":{"id":"r1","status":"in_progress"}}"#,
                &whole(""),
            ],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "an error behind the end",
            &[&whole(message), r#"{"type":"error","code":"server_error","message":"x"}"#],
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "filtered without words",
            &[
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}}"#,
            ],
            To("content_filter", &[], Finish::Refused, &[]),
        ),
        row("no end", &[&done(0, message)], Fails(ModelErrorClass::Transient)),
    ]);
}

#[test]
fn gemini() {
    let chunk = |parts: &str, rest: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{rest}}}],"usageMetadata":{{"promptTokenCount":3,"candidatesTokenCount":2,"thoughtsTokenCount":4}}}}"#
        )
    };
    let stop = r#","finishReason":"STOP""#;
    let row = |name, data: &[&str], comes| row(name, Wire::Gemini, unended(data), comes);
    let of = |id: &str, chunk: &str| chunk.replacen('{', &format!(r#"{{"responseId":"{id}","#), 1);
    let pay = r#"{"functionCall":{"name":"pay","args":{}}}"#;
    let ends = |why: &'static str, finish| {
        row(why, &[&chunk(r#"{"text":"hi"}"#, &format!(r#","finishReason":"{why}""#))], To("hi", &[], finish, &[]))
    };
    hold(&[
        ends("STOP", Finish::Stop),
        ends("MAX_TOKENS", Finish::Length),
        ends("SAFETY", Finish::Refused),
        ends("RECITATION", Finish::Refused),
        ends("PROHIBITED_CONTENT", Finish::Refused),
        ends("OTHER", Finish::Other("OTHER".into())),
        row("a filter without words", &[r#"{"candidates":[{"finishReason":"SAFETY","safetyRatings":[{"category":"HARM_X","probability":"HIGH","blocked":true},{"category":"HARM_Y","probability":"LOW"}]}]}"#], To("SAFETY: HARM_X", &[], Finish::Refused, &[])),
        row("begun anew", &[&of("r1", &chunk(pay, "")), &of("r2", &chunk(pay, stop))], To("", &[" pay({})"], Finish::ToolCalls, &[])),
        row("begun anew after some", &[&of("r1", &chunk(pay, "")), &of("r1", &chunk(r#"{"text":"a"}"#, "")), &of("r2", &chunk(r#"{"text":"b"}"#, "")), &of("r2", &chunk(r#"{"text":"c"}"#, stop))], To("bc", &[], Finish::Stop, &[])),
        row("an id for each chunk", &[&of("r1", &chunk(r#"{"text":"a"}"#, "")), &of("r2", &chunk(r#"{"text":"b"}"#, "")), &of("r3", &chunk(r#"{"text":"c"}"#, stop))], To("abc", &[], Finish::Stop, &[])),
        row("malformed call", &[&chunk("", r#","finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f())""#)], Fails(ModelErrorClass::Malformed)),
        row("blocked", &[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#], Fails(ModelErrorClass::ContentRefused)),
        row("words in pieces", &[&chunk(r#"{"text":"a"}"#, ""), &chunk(r#"{"text":"b"}"#, stop)], To("ab", &[], Finish::Stop, &[])),
        row("thoughts", &[&chunk(r#"{"text":"why","thought":true}"#, ""), &chunk(r#"{"text":"a"}"#, stop)], To("a", &[], Finish::Stop, &["why"])),
        row("a signature on nothing", &[&chunk(r#"{"text":"a"}"#, ""), &chunk(r#"{"text":"","thoughtSignature":"c2ln"}"#, stop)], To("a", &[], Finish::Stop, &["c2ln"])),
        row("a call without id", &[&chunk(r#"{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"c2ln"}"#, stop)], To("", &[" f({\"a\":1})"], Finish::ToolCalls, &["c2ln"])),
        row("a call without args", &[&chunk(r#"{"functionCall":{"id":"g1","name":"f"}}"#, stop)], To("", &["g1 f()"], Finish::ToolCalls, &[])),
        row("two calls", &[&chunk(r#"{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"g","args":{}}}"#, stop)], To("", &[" f({})", " g({})"], Finish::ToolCalls, &[])),
        row("code", &[&chunk(r#"{"executableCode":{"language":"PYTHON","code":"1+1"}},{"text":"2"}"#, stop)], To("2", &[], Finish::Stop, &["1+1"])),
        row("an image", &[&chunk(r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw=="}}"#, stop)], To("", &[], Finish::Stop, &["iVBORw=="])),
        row("grounding", &[&chunk(r#"{"text":"a"}"#, r#","finishReason":"STOP","groundingMetadata":{"webSearchQueries":["q9"]}"#)], To("a", &[], Finish::Stop, &["q9"])),
        row("usage after the finish", &[&chunk(r#"{"text":"a"}"#, stop), r#"{"usageMetadata":{"promptTokenCount":3}}"#], To("a", &[], Finish::Stop, &[])),
        row("wrapped", &[&format!(r#"{{"response":{}}}"#, chunk(r#"{"text":"a"}"#, stop))], To("a", &[], Finish::Stop, &[])),
        row("no finish", &[&chunk(r#"{"text":"a"}"#, "")], Fails(ModelErrorClass::Transient)),
        row("exhausted", &[r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}"#], Fails(ModelErrorClass::RateLimited)),
        row("overloaded", &[r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#], Fails(ModelErrorClass::Overloaded)),
        Row { name: "a list", wire: Wire::Gemini, body: format!("[{}\n,\r\n{}]\n", chunk(r#"{"text":"a"}"#, ""), chunk(r#"{"text":"b"}"#, stop)), comes: To("ab", &[], Finish::Stop, &[]) },
        Row { name: "a list with an error", wire: Wire::Gemini, body: r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]"#.into(), comes: Fails(ModelErrorClass::Authentication) },
    ]);
}

#[test]
fn ollama() {
    let say = |message: &str| format!("{{\"model\":\"m\",\"message\":{message},\"done\":false}}\n");
    let done = |why: &str| {
        format!(
            "{{\"message\":{{\"role\":\"assistant\",\"content\":\"\"}},\"done\":true{why},\"prompt_eval_count\":3,\"eval_count\":2}}\n"
        )
    };
    let stop = done(r#","done_reason":"stop""#);
    let row = |name, body: String, comes| row(name, Wire::Ollama, body, comes);
    hold(&[
        row(
            "words",
            say(r#"{"role":"assistant","content":"a"}"#) + &say(r#"{"content":"b"}"#) + &stop,
            To("ab", &[], Finish::Stop, &[]),
        ),
        row("no reason", say(r#"{"content":"a"}"#) + &done(""), To("a", &[], Finish::Stop, &[])),
        row(
            "length",
            say(r#"{"content":"a"}"#) + &done(r#","done_reason":"length""#),
            To("a", &[], Finish::Length, &[]),
        ),
        row(
            "unload",
            say(r#"{"content":"a"}"#) + &done(r#","done_reason":"unload""#),
            To("a", &[], Finish::Other("unload".into()), &[]),
        ),
        row(
            "thinking",
            say(r#"{"content":"","thinking":"wh"}"#) + &say(r#"{"thinking":"y"}"#) + &say(r#"{"content":"a"}"#) + &stop,
            To("a", &[], Finish::Stop, &["why"]),
        ),
        row("think inside", say(r#"{"content":"<think>why</think>a"}"#) + &stop, To("a", &[], Finish::Stop, &["why"])),
        row(
            "a call",
            say(r#"{"content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}"#) + &stop,
            To("", &[" f({\"a\":1})"], Finish::ToolCalls, &[]),
        ),
        row(
            "a call with id",
            say(r#"{"tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":"{\"a\":1}"}}]}"#) + &stop,
            To("", &["c1 f({\"a\":1})"], Finish::ToolCalls, &[]),
        ),
        row(
            "large numbers",
            say(r#"{"tool_calls":[{"function":{"name":"f","arguments":{"n":123456789012345678901234567890}}}]}"#)
                + &stop,
            To("", &[" f({\"n\":123456789012345678901234567890})"], Finish::ToolCalls, &[]),
        ),
        row("images", say(r#"{"content":"a","images":["AAAA"]}"#) + &stop, To("a", &[], Finish::Stop, &["AAAA"])),
        row(
            "one object",
            r#"{"message":{"content":"a"},"done":true,"done_reason":"stop"}"#.into(),
            To("a", &[], Finish::Stop, &[]),
        ),
        row(
            "an error line",
            say(r#"{"content":"a"}"#)
                + "{\"error\":\"an error was encountered while running the model: CUDA error\"}\n",
            Fails(ModelErrorClass::Transient),
        ),
        row("cut", say(r#"{"content":"a"}"#), Fails(ModelErrorClass::Transient)),
    ]);
}
