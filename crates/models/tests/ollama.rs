//! Ollama's wire: requests as they leave, responses as servers and gateways really send them. Each response is read
//! whole and cut at every byte, which must make no difference.

mod support;

use std::sync::Arc;
use std::time::Duration;

use longrein_core::ids::Digest;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt};
use longrein_core::task::{ModelSpec, Temperature};
use longrein_models::ollama::decode::{Decoder, End, Progress, Reading};
use longrein_models::ollama::encode::Encoder;
use longrein_models::{ModelConfig, Timeouts, connect};
use longrein_ports::Model;

use support::server::{Server, Step, response, server};
use support::{assistant, observation, prompt, spec, user};

fn read_as(body: &[u8], end: End) -> Result<Reply, ModelFailure> {
    support::read_as::<Decoder>(body, end)
}

fn read(body: &str) -> Result<Reply, ModelFailure> {
    read_as(body.as_bytes(), End::Closed)
}

fn says(content: &str) -> String {
    format!(r#"{{"model":"m","message":{{"role":"assistant","content":{content:?}}},"done":false}}"#)
}

const DONE: &str = r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":5}"#;

fn call(id: &str, name: &str, arguments: &str) -> RawCall {
    RawCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

#[test]
fn a_stream_by_the_book() {
    let reply = read(&format!("{}\n{}\n{DONE}\n", says("Grüße "), says("🦀 {\"}"))).unwrap();
    assert_eq!(reply.text, "Grüße 🦀 {\"}");
    assert_eq!(reply.finish, Finish::Stop);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.cached), (26, 5, 0));
    assert!(reply.calls.is_empty());
}

#[test]
fn lines_of_every_kind() {
    let (one, two) = (says("a"), says("b"));
    let pretty = r#"{
      "message": { "role": "assistant", "content": "ab" },
      "done": true, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 5
    }"#;
    for body in [
        format!("{one}\r\n{two}\r\n{DONE}\r\n"),
        format!("\n\n{one}\n\n\r\n{two}\n  \n{DONE}"),
        format!("{one}{two}{DONE}"),
        format!("\u{feff}{one}\n{two}\n{DONE}\n"),
        pretty.to_owned(),
        format!("{one}\n{two}\n{DONE}\n<html>what follows the end is not read"),
    ] {
        let reply = read(&body).expect(&body);
        assert_eq!((reply.text.as_str(), reply.usage.map(|usage| usage.tokens())), ("ab", Some(31)), "{body}");
    }
}

#[test]
fn calls_are_kept_as_they_were_written() {
    let row = |calls: &str| format!(r#"{{"message":{{"content":"","tool_calls":[{calls}]}},"done":false}}"#);
    let body = [
        row(r#"{"function":{"name":"one","arguments":{"n": 12345678901234567890123, "s":"}\"{"}}}"#),
        row(r#"{"id":"call_7","function":{"index":1,"name":"two","arguments":{}}},{"function":{"name":"three"}}"#),
        row(r#"{"function":{"name":"four","arguments":"{\"a\":1}"}},{"function":{"arguments":null}}"#),
        row(r#"{"function":{"name":"five","arguments":[1]}}"#),
        DONE.to_owned(),
    ];
    let reply = read(&body.join("\n")).unwrap();
    let expected = [
        call("", "one", r#"{"n": 12345678901234567890123, "s":"}\"{"}"#),
        call("call_7", "two", "{}"),
        call("", "three", ""),
        call("", "four", r#"{"a":1}"#),
        call("", "", ""),
        call("", "five", "[1]"),
    ];
    assert_eq!(reply.calls, expected);
    assert_eq!(reply.finish, Finish::ToolCalls);
}

#[test]
fn thinking_is_no_answer() {
    let thinks = r#"{"message":{"role":"assistant","content":"","thinking":"Hm, {\"kind\":\"tool\"}"},"done":false}"#;
    let reply = read(&[thinks, thinks, &says("Yes."), DONE].join("\n")).unwrap();
    assert_eq!(reply.text, "Yes.");
    let reply = read(&[&says("<think>hm"), &says("hm</think>\n\n"), &says("Yes."), DONE].join("\n")).unwrap();
    assert_eq!(reply.text, "Yes.");
    let reply = read(&[&says("<think>hm, no end"), DONE].join("\n")).unwrap();
    assert_eq!(reply.text, "");
    let reply = read(&[&says("write <think> and </think> so"), DONE].join("\n")).unwrap();
    assert_eq!(reply.text, "write <think> and </think> so");
}

#[test]
fn reasons_to_stop() {
    let done = |reason: &str| format!(r#"{{"message":{{"content":"x"}},"done":true{reason}}}"#);
    for (reason, finish) in [
        ("", Finish::Stop),
        (r#","done_reason":null"#, Finish::Stop),
        (r#","done_reason":"stop""#, Finish::Stop),
        (r#","done_reason":"length""#, Finish::Length),
        (r#","done_reason":"load""#, Finish::Other("load".into())),
        (r#","done_reason":"weird""#, Finish::Other("weird".into())),
    ] {
        assert_eq!(read(&done(reason)).unwrap().finish, finish, "{reason}");
    }
    // A call in a reply that was cut is not taken for a whole one.
    let cut = r#"{"message":{"content":"","tool_calls":[{"function":{"name":"a","arguments":{}}}]},"done":true,"done_reason":"length"}"#;
    assert_eq!(read(cut).unwrap().finish, Finish::Length);
    // Half a count is none, and a count that no model reaches is none.
    for counts in
        [r#","eval_count":5"#, r#","prompt_eval_count":5"#, r#","prompt_eval_count":5,"eval_count":99999999999"#]
    {
        assert_eq!(read(&done(counts)).unwrap().usage, None, "{counts}");
    }
}

#[test]
fn cut_before_the_first_word() {
    let done = |message: &str, counts: &str| {
        format!(r#"{{"message":{{"role":"assistant",{message}}},"done":true,"done_reason":"length"{counts}}}"#)
    };
    for (body, prompt) in [
        (done(r#""content":"""#, ""), None),
        (done(r#""content":"""#, r#","prompt_eval_count":4096,"eval_count":0"#), Some(4_096)),
        (done(r#""content":"""#, r#","prompt_eval_count":4095,"eval_count":1"#), Some(4_095)),
    ] {
        let failure = read(&body).unwrap_err();
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::ContextExhausted, Billing::Perhaps), "{body}");
        assert_eq!(failure.served.and_then(|served| served.prompt), prompt, "{body}");
    }
    for body in [
        done(r#""content":"x""#, ""),
        done(r#""content":"","thinking":"hm""#, ""),
        done(r#""content":"","thinking":{"of":"it"}"#, ""),
        done(r#""content":"""#, r#","prompt_eval_count":10,"eval_count":16"#),
    ] {
        assert_eq!(read(&body).unwrap().finish, Finish::Length, "{body}");
    }
}

#[test]
fn a_reply_without_its_end_was_cut() {
    let body = format!("{}\n{}\n{DONE}\n", says("half an "), says("answer"));
    let whole = body.find(DONE).unwrap() + DONE.len();
    for cut in 0..whole {
        for end in [End::Closed, End::Broken("reset".into())] {
            let mut decoder = Decoder::default();
            assert_eq!(decoder.feed(&body.as_bytes()[..cut]), Progress::Reading);
            let failure = decoder.end(end).expect_err("cut");
            assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps), "{cut}");
        }
    }
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(body.as_bytes()), Progress::Complete);
    let cut = read(&says("half")).unwrap_err();
    assert!(cut.partial.unwrap().as_str().contains("half"));
}

#[test]
fn errors_in_the_middle() {
    for (error, class) in [
        (r#"{"error":"an error was encountered while running the model: unexpected EOF"}"#, ModelErrorClass::Transient),
        (r#"{"error":"the input length exceeds the context length"}"#, ModelErrorClass::ContextExhausted),
        (
            r#"{"error":"server busy, please try again. maximum pending requests exceeded"}"#,
            ModelErrorClass::Overloaded,
        ),
        (r#"{"error":{"message":"llm server loading model"}}"#, ModelErrorClass::Overloaded),
    ] {
        let failure = read(&format!("{}\n{error}\n", says("half"))).unwrap_err();
        assert_eq!((failure.class, failure.billing), (class, Billing::Perhaps), "{error}");
        assert!(failure.partial.is_some());
    }
    // Emptiness is no error.
    let fine = r#"{"message":{"content":"x"},"done":true,"error":null}"#;
    assert_eq!(read(fine).unwrap().text, "x");
}

#[test]
fn what_is_none_of_ollamas() {
    for body in ["<!doctype html><p>Sign in</p>", "data: {}\n\n", "[]", "null", "ok", r#"{"detail":"hello"}"#] {
        let failure = read(body).unwrap_err();
        assert_eq!(failure.class, ModelErrorClass::Transient, "{body}");
        assert!(failure.message.contains("OLLAMA_HOST"), "{body}: {}", failure.message);
    }
    for junk in ["<html>", "nonsense", "{\"message\":3}", "{nonsense}", "{\"message\":{\"content\":[1]}}"] {
        let failure = read(&format!("{}\n{junk}\n{DONE}", says("x"))).unwrap_err();
        assert_eq!(failure.class, ModelErrorClass::Malformed, "{junk}: {}", failure.message);
    }
    assert!(read("").unwrap_err().message.contains("without a reply"));
    assert!(read("\r\n \n").unwrap_err().message.contains("ended before"));
    let halves = r#"{"message":{"content":"\ud83e"},"done":false}{"message":{"content":"\udd80"},"done":true}"#;
    assert_eq!(read(halves).unwrap().text, "\u{fffd}\u{fffd}");
    assert!(read_as(b"{\"message\":{\"content\":\"\xff\"},\"done\":true}", End::Closed).is_ok());
}

#[test]
fn a_flood_is_refused() {
    let piece = vec![b' '; 1024 * 1024];
    let mut decoder = Decoder::default();
    assert!((0..16).all(|_| decoder.feed(&piece) == Progress::Reading));
    assert_eq!(decoder.feed(&piece), Progress::Failed);
    let failure = decoder.end(End::Closed).unwrap_err();
    assert_eq!(failure.class, ModelErrorClass::Malformed);
    assert!(failure.message.contains("16 MiB"));
}

// ---- requests ----

fn conversation() -> Vec<Item> {
    vec![
        user("Is it \"up\"?\n"),
        assistant("", &[("c1", "read_metrics", "{}"), ("c2", "read_metrics", "{\"a\": 12345678901234567890123}")]),
        observation("c1", 1, "fine"),
        observation("c2", 2, "not fine"),
        Item::Harness("<longrein>go on</longrein>".into()),
        assistant("It is.", &[]),
    ]
}

fn encoder() -> Encoder {
    Encoder::new("qwen3:8b", Temperature::of(0.7), Some(32_768))
}

#[test]
fn a_request_as_it_leaves() {
    let mut prompt = prompt(0, conversation());
    prompt.tail = Some("hurry".into());
    let encoded = encoder().encode(&prompt);
    let expected = concat!(
        r#"{"model":"qwen3:8b","stream":true,"truncate":false,"shift":false,"#,
        r#""tools":[{"type":"function","function":{"name":"read_metrics","description":"Reads the metrics.","#,
        r#""parameters":{"type":"object","properties":{}}}}],"messages":["#,
        r#"{"role":"system","content":"You check services."},"#,
        r#"{"role":"user","content":"Is it \"up\"?\n"},"#,
        r#"{"role":"assistant","content":"","tool_calls":["#,
        r#"{"id":"c1","function":{"name":"read_metrics","arguments":{}}},"#,
        r#"{"id":"c2","function":{"name":"read_metrics","arguments":{"a": 12345678901234567890123}}}]},"#,
        r#"{"role":"tool","content":"fine","tool_name":"read_metrics","tool_call_id":"c1"},"#,
        r#"{"role":"tool","content":"not fine","tool_name":"read_metrics","tool_call_id":"c2"},"#,
        r#"{"role":"user","content":"<longrein>go on</longrein>"},"#,
        r#"{"role":"assistant","content":"It is."},"#,
        r#"{"role":"user","content":"hurry"}],"#,
        r#""options":{"num_predict":1000,"temperature":0.7,"num_ctx":32768}}"#,
    );
    assert_eq!(std::str::from_utf8(&encoded.bytes).unwrap(), expected);
    assert_eq!(encoded.digest, Digest::of(&encoded.bytes));
}

#[test]
fn an_answer_has_a_form_only_where_no_tool_can_be_called() {
    let schema = Payload::parse(r#"{"type":"object","required":["n"]}"#).unwrap();
    let mut with = prompt(0, vec![user("x")]);
    with.answer = AnswerForm::Json(schema);
    let mut without = with.clone();
    without.tools = Arc::from([]);
    let bytes =
        |prompt: &Prompt| String::from_utf8(Encoder::new("m", None, None).encode(prompt).bytes.to_vec()).unwrap();
    assert!(!bytes(&with).contains("format"));
    assert!(
        bytes(&without).ends_with(r#"],"format":{"type":"object","required":["n"]},"options":{"num_predict":1000}}"#)
    );
    without.answer = AnswerForm::Remark;
    assert!(!bytes(&without).contains("format"));
}

#[test]
fn a_longer_prompt_begins_like_a_shorter_one_and_memory_never_shows() {
    let whole = prompt(0, conversation());
    let used = encoder();
    for count in 0..whole.items.len() {
        let short = Prompt { items: whole.items[..count].to_vec().into(), tail: Some("tail".into()), ..whole.clone() };
        let short = used.encode(&short).bytes;
        let long = used.encode(&Prompt { max_output: 7, ..whole.clone() }).bytes;
        let end = short.windows(25).rposition(|found| found == br#"{"role":"user","content":"#).unwrap();
        assert!(long.starts_with(&short[..end - usize::from(count > 0)]), "{count}");
        assert_eq!(long, encoder().encode(&Prompt { max_output: 7, ..whole.clone() }).bytes);
    }
}

// ---- the client ----

fn model(server: &Server, spec: &ModelSpec) -> Arc<dyn Model> {
    let short = Duration::from_millis(300);
    let timeouts =
        Timeouts { connect: short, headers: short, first_byte: short, idle: short, grace: short, total: short * 5 };
    let config = ModelConfig { base_url: Some(server.url.clone()), timeouts: Some(timeouts), ..ModelConfig::default() };
    connect(spec, &config).expect("good settings")
}

async fn ask(server: &Server) -> Result<Reply, ModelFailure> {
    let model = model(server, &spec("ollama/qwen3:8b"));
    model.send(model.encode(&prompt(0, vec![user("hello")]))).await
}

#[tokio::test]
async fn a_call_over_the_wire() {
    let server =
        server(response("200 OK\r\ncontent-type: application/x-ndjson", &format!("{}\n{DONE}\n", says("hi")))).await;
    assert_eq!(ask(&server).await.unwrap().text, "hi");
    let request = server.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /api/chat HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_lowercase().contains("authorization"), "{request}");
}

#[tokio::test]
async fn refusals_say_what_can_be_done() {
    for (head, body, class, words) in [
        (
            "404 Not Found",
            r#"{"error":"model \"qwen3:8b\" not found, try pulling it first"}"#,
            ModelErrorClass::BadRequest,
            "ollama pull qwen3:8b",
        ),
        (
            "404 Not Found",
            r#"{"error":"model 'qwen3:8b' not found"}"#,
            ModelErrorClass::BadRequest,
            "ollama pull qwen3:8b",
        ),
        (
            "400 Bad Request",
            r#"{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}"#,
            ModelErrorClass::BadRequest,
            "protocol = \"json\"",
        ),
        (
            "503 Service Unavailable",
            r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
            ModelErrorClass::Overloaded,
            "server busy",
        ),
        ("500 X", r#"{"error":"llm server error: loading model"}"#, ModelErrorClass::Overloaded, "loading model"),
        (
            "400 Bad Request",
            r#"{"error":"the input length exceeds the context length"}"#,
            ModelErrorClass::ContextExhausted,
            "too long",
        ),
        ("500 X", r#"{"error":"model requires more system memory (9 GiB)"}"#, ModelErrorClass::Transient, "9 GiB"),
        ("404 Not Found", "404 page not found", ModelErrorClass::BadRequest, "404"),
    ] {
        let failure = ask(&server(response(head, body)).await).await.unwrap_err();
        assert_eq!((failure.class, failure.billing), (class, Billing::Nothing), "{body}");
        assert!(failure.message.contains(words), "{body}: {}", failure.message);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_says_nothing() {
    let silent = server(vec![Step::Sleep(Duration::from_secs(20))]).await;
    let failure = ask(&silent).await.unwrap_err();
    assert!(failure.message.contains("did not begin to answer"), "{}", failure.message);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    drop(listener);
    let failure = ask(&Server { url, connections: Arc::default(), requests: Arc::default() }).await.unwrap_err();
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Nothing));
    assert!(failure.message.contains("is Ollama running"), "{}", failure.message);
}
