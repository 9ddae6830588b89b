//! The client against servers on loopback, written by hand so that they can misbehave.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply};
use longrein_core::task::Protocol;
use longrein_models::{ConfigError, Lanes, ModelConfig, Secret, Timeouts, connect};
use longrein_ports::Model;
use tokio::net::TcpListener;

use support::server::Step::{self, Close, Sleep, Write};
use support::server::{Server, response, server};
use support::{prompt, spec, user};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST: &str = "0\r\n\r\n";
const HALF: &str = r#"{"choices":[{"index":0,"delta":{"content":"half"}}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn head() -> Step {
    Write(HEAD.into())
}

/// One event in an HTTP chunk of its own.
fn event(data: &str) -> Step {
    let event = format!("data: {data}\n\n");
    Write(format!("{:x}\r\n{event}\r\n", event.len()))
}

fn quick() -> Timeouts {
    let short = Duration::from_millis(300);
    Timeouts { connect: short, headers: short, first_byte: short, idle: short, grace: short, total: short * 5 }
}

fn model(server: &Server) -> Arc<dyn Model> {
    model_within(server, quick())
}

fn model_within(server: &Server, timeouts: Timeouts) -> Arc<dyn Model> {
    let config = ModelConfig {
        base_url: Some(server.url.clone()),
        api_key: Some(Secret::new("sk-secret")),
        timeouts: Some(timeouts),
        ..ModelConfig::default()
    };
    connect(&spec("openai/some/model"), &config).expect("good settings")
}

async fn ask(model: &dyn Model) -> Result<Reply, ModelFailure> {
    model.send(model.encode(&prompt(0, vec![user("hello")]))).await
}

async fn fails(steps: Vec<Step>) -> ModelFailure {
    let server = server(steps).await;
    ask(&*model(&server)).await.expect_err("this server fails")
}

#[tokio::test]
async fn one_connection_for_many_calls() {
    let server = server(vec![head(), event(HALF), event(STOP), event("[DONE]"), Write(LAST.into())]).await;
    let model = model(&server);
    for _ in 0..20 {
        assert_eq!(ask(&*model).await.unwrap().text, "half");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let requests = server.requests.lock().unwrap();
    let request = &requests[0];
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer sk-secret\r\n"), "{request}");
    assert!(request.contains(r#"{"model":"some/model","#), "{request}");
    assert!(request.ends_with(r#""max_tokens":1000}"#), "{request}");
}

#[tokio::test]
async fn usage_at_the_stop_does_not_cost_the_connection() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let pause = Sleep(Duration::from_millis(5));
    let steps = vec![head(), event(HALF), event(STOP), event(usage), pause, event("[DONE]"), Write(LAST.into())];
    let server = server(steps).await;
    let model = model(&server);
    for _ in 0..3 {
        assert_eq!(ask(&*model).await.unwrap().usage.unwrap().tokens(), 3);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_whole_body_is_taken_too() {
    let body = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
    let server = server(response("200 OK", body)).await;
    assert_eq!(ask(&*model(&server)).await.unwrap().text, "whole");
}

#[tokio::test]
async fn silence_in_each_phase() {
    let long = || Sleep(Duration::from_secs(20));
    for (steps, words) in [
        (vec![long()], "did not begin to answer"),
        (vec![head(), long()], "sent nothing"),
        (vec![head(), event(HALF), long()], "sent nothing"),
    ] {
        let begin = Instant::now();
        let failure = fails(steps).await;
        assert!(begin.elapsed() < quick().total);
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps));
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    // Drops for ever: only the limit on the whole ends it.
    let mut drip = vec![head()];
    for _ in 0..100 {
        drip.extend([event(HALF), Sleep(Duration::from_millis(50))]);
    }
    let failure = fails(drip).await;
    assert!(failure.message.contains("more than 1.5s"), "{}", failure.message);
}

#[tokio::test]
async fn a_stream_cut_in_the_middle() {
    for steps in [vec![head(), event(HALF), Close], vec![head(), Close]] {
        let failure = fails(steps).await;
        assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps));
    }
    let failure = fails(vec![head(), event(HALF), Close]).await;
    assert!(failure.partial.unwrap().as_str().contains("half"));
    let failure = fails(vec![Close]).await;
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Perhaps));
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let nowhere = Server { url, connections: Arc::default(), requests: Arc::default() };
    let failure = ask(&*model(&nowhere)).await.unwrap_err();
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Nothing));
    assert!(failure.message.contains("refused"), "{}", failure.message);
}

#[tokio::test]
async fn an_error_after_200_ends_the_call_at_once() {
    let error = r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#;
    let begin = Instant::now();
    let failure = fails(vec![head(), event(HALF), event(error), Sleep(Duration::from_secs(20))]).await;
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::Overloaded, Billing::Perhaps));
    assert!(begin.elapsed() < quick().idle);
}

#[tokio::test]
async fn a_stall_after_the_stop_is_no_failure() {
    let begin = Instant::now();
    let server = server(vec![head(), event(HALF), event(STOP), Sleep(Duration::from_secs(20))]).await;
    let reply = ask(&*model(&server)).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage), ("half", Finish::Stop, None));
    assert!(begin.elapsed() < quick().total);
}

#[tokio::test]
async fn refusals() {
    for (head, wait) in [
        ("429 Too Many Requests\r\nretry-after: 7", 7),
        ("429 Too Many Requests\r\nretry-after: 1.2", 2),
        ("429 Too Many Requests\r\nretry-after-ms: 2500\r\nretry-after: 9", 3),
        (
            "429 Too Many Requests\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:50:37 GMT",
            60,
        ),
    ] {
        let failure = fails(response(head, r#"{"error":{"message":"slow down"}}"#)).await;
        assert_eq!((failure.class, failure.status), (ModelErrorClass::RateLimited, Some(429)));
        assert_eq!((failure.retry_after_s, failure.billing), (Some(wait), Billing::Nothing));
        assert!(failure.message.contains("slow down"), "{}", failure.message);
    }
    let failure = fails(response("401 Unauthorized", r#"{"error":{"message":"bad key sk-secret"}}"#)).await;
    assert_eq!(failure.class, ModelErrorClass::Authentication);
    assert!(failure.message.contains("bad key [key]"), "{}", failure.message);
    let failure = fails(response("302 Found\r\nlocation: http://elsewhere/", "")).await;
    assert_eq!(failure.class, ModelErrorClass::BadRequest);
    assert!(failure.message.contains("http://elsewhere/"), "{}", failure.message);
    for how in ["gzip", "br", "Identity, zstd"] {
        let failure = fails(response(&format!("200 OK\r\ncontent-encoding: {how}"), "?")).await;
        assert_eq!(failure.class, ModelErrorClass::BadRequest, "{how}");
        assert!(failure.message.contains("packs its answers"), "{}", failure.message);
    }
    // The rest of a refusal that does not come, or comes drop by drop, is not waited for long.
    let mut drip = vec![Write("HTTP/1.1 503 X\r\ncontent-length: 999\r\n\r\n".into())];
    drip.extend((0..300).flat_map(|_| [Write("x".into()), Sleep(Duration::from_millis(100))]));
    let began = Instant::now();
    let dripping = server(drip).await;
    let patient = Timeouts { total: Duration::from_secs(60), ..quick() };
    let failure = ask(&*model_within(&dripping, patient)).await.unwrap_err();
    assert_eq!((failure.class, failure.status), (ModelErrorClass::Overloaded, Some(503)));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let failure =
        fails(vec![Write("HTTP/1.1 503 X\r\ncontent-length: 99\r\n\r\n{".into()), Sleep(quick().total)]).await;
    assert_eq!((failure.class, failure.status), (ModelErrorClass::Overloaded, Some(503)));
}

#[tokio::test]
async fn status_and_body_make_the_class() {
    use ModelErrorClass::{
        Authentication, BadRequest, ContentRefused, ContextExhausted, Overloaded, Quota, RateLimited, Transient,
    };
    for (status, body, class) in [
        (400, "", BadRequest),
        (404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#, BadRequest),
        (403, "", Authentication),
        (402, "", Quota),
        (408, "", Transient),
        (409, "", Transient),
        (425, "", Transient),
        (500, "", Transient),
        (500, r#"{"error":{"message":"The engine is currently overloaded"}}"#, Overloaded),
        (503, r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#, Overloaded),
        (529, "", Overloaded),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","code":"insufficient_quota"}}"#,
            Quota,
        ),
        (429, "<html>", RateLimited),
        (400, r#"{"error":{"message":"declined","code":"content_filter"}}"#, ContentRefused),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 200251 tokens > 200000 maximum"}}"#,
            ContextExhausted,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease input length"}}"#,
            ContextExhausted,
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens.","code":"context_length_exceeded"}}"#,
            ContextExhausted,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error"}}"#,
            ContextExhausted,
        ),
        (
            400,
            r#"{"object":"error","message":"This model's maximum context length is 131072 tokens. However, you requested 351430 tokens."}"#,
            ContextExhausted,
        ),
        (413, "", ContextExhausted),
        (422, r#"{"detail":"Input is too long"}"#, ContextExhausted),
    ] {
        let failure = fails(response(&format!("{status} X"), body)).await;
        assert_eq!(failure.class, class, "{status} {body}");
        assert_eq!(failure.status, Some(status));
        assert!(failure.message.contains(&status.to_string()));
    }
}

#[tokio::test]
async fn a_flood_is_refused() {
    let flood = Write(format!("100000\r\n{}\r\n", format!(":{}\n", "x".repeat(1022)).repeat(1024)));
    let server = server(std::iter::once(head()).chain(std::iter::repeat_n(flood, 20)).collect()).await;
    // A busy machine takes its time for 16 MiB.
    let failure = ask(&*model_within(&server, Timeouts::default())).await.expect_err("it is too long");
    assert_eq!(failure.class, ModelErrorClass::Malformed);
    assert!(failure.message.contains("16 MiB"), "{}", failure.message);
}

fn refused(name: &str, config: &ModelConfig) -> String {
    match connect(&spec(name), config) {
        Ok(_) => panic!("{name} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_and_settings() {
    let none = ModelConfig::default();
    assert!(refused("gpt-5", &none).contains("has no provider"));
    assert!(refused("openai/", &none).contains("has no provider"));
    assert!(
        refused("opnai/gpt-5", &none)
            .contains("unknown model provider \"opnai\": known are openai, openai-responses, a")
    );
    for (name, variable) in
        [("anthropic/x", "ANTHROPIC_API_KEY"), ("openai-responses/x", "OPENAI_API_KEY"), ("gemini/x", "GEMINI_API_KEY")]
    {
        assert!(refused(name, &none).contains(variable));
        let mut json = spec(name);
        json.protocol = Protocol::Json;
        let near = ModelConfig { base_url: Some("http://localhost:1".into()), ..ModelConfig::default() };
        assert!(connect(&spec(name), &near).is_ok());
        assert!(matches!(connect(&json, &near), Err(ConfigError::NoJson { .. })), "{name}");
    }
    assert!(refused("openai/gpt-5", &none).contains("OPENAI_API_KEY"));
    assert!(refused("script/nowhere.toml", &none).contains("cannot read the script nowhere.toml"));
    let at = |url: &str| ModelConfig { base_url: Some(url.into()), ..ModelConfig::default() };
    assert!(refused("openai/x", &at("localhost:80")).contains("must begin with http"));
    assert!(refused("openai/x", &at("nonsense")).contains("cannot be used"));
    assert!(connect(&spec("openai/x"), &at("http://localhost:1/v1")).is_ok());
    let key = ModelConfig { api_key: Some(Secret::new("sk\nx")), ..ModelConfig::default() };
    assert!(matches!(connect(&spec("openai/x"), &key), Err(ConfigError::BadKey)));
    let key = ModelConfig { api_key: Some(Secret::new("sk-secret\n")), ..ModelConfig::default() };
    assert!(connect(&spec("openai/x"), &key).is_ok());
    assert!(!format!("{key:?}").contains("sk-secret"));
}

/// Where requests go, what carries the key, and what the configuration adds.
#[tokio::test]
async fn every_provider_is_asked_its_own_way() {
    for (name, base, path, key) in [
        ("openai/m", "/v1", "/v1/chat/completions", "authorization: Bearer k-1"),
        ("openai-responses/m", "/v1/", "/v1/responses", "authorization: Bearer k-1"),
        ("anthropic/m", "", "/v1/messages", "x-api-key: k-1"),
        ("anthropic/m", "/proxy/v1/messages", "/proxy/v1/messages", "x-api-key: k-1"),
        ("gemini/m", "", "/v1beta/models/m:streamGenerateContent?alt=sse", "x-goog-api-key: k-1"),
        ("gemini/models/m", "/v1", "/v1/models/m:streamGenerateContent?alt=sse", "x-goog-api-key: k-1"),
    ] {
        let server = server(response("401 X", r#"{"error":{"message":"k-1 is no key of blue"}}"#)).await;
        let root = server.url.trim_end_matches("/v1/");
        let config = ModelConfig {
            base_url: Some(format!("{root}{base}")),
            api_key: Some(Secret::new("k-1")),
            headers: vec![("x-team".into(), Secret::new("blue"))],
            ..ModelConfig::default()
        };
        let model = connect(&spec(name), &config).unwrap();
        let failure = ask(&*model).await.unwrap_err();
        assert_eq!(failure.class, ModelErrorClass::Authentication, "{name}: {failure:?}");
        assert!(!failure.message.contains("k-1"), "{name}: {}", failure.message);
        assert!(!failure.message.contains("blue"), "a header may be a key too: {}", failure.message);
        let request = server.requests.lock().unwrap()[0].to_lowercase();
        assert!(request.starts_with(&format!("post {} http/1.1", path.to_lowercase())), "{name}: {request}");
        for header in [key.to_lowercase(), "x-team: blue".to_owned(), "accept-encoding: identity".to_owned()] {
            assert!(request.contains(&format!("\r\n{header}\r\n")), "{name}: {request}");
        }
        assert_eq!(request.contains("anthropic-version: 2023-06-01"), name.starts_with("anthropic"), "{request}");
    }
}

#[tokio::test]
async fn a_relative_script_lies_in_the_base_folder() {
    let config = ModelConfig { base_folder: env!("CARGO_MANIFEST_DIR").into(), ..ModelConfig::default() };
    let model = connect(&spec("script/tests/hello.script.toml"), &config).unwrap();
    assert_eq!(ask(&*model).await.unwrap().text, "Hello.");
}

#[tokio::test]
async fn tls_needs_nothing_process_wide() {
    // A server that speaks no TLS: the point is that the client gets as far as trying.
    let server = server(vec![]).await;
    let secure = Server { url: server.url.replace("http://", "https://"), ..server };
    let failure = ask(&*model(&secure)).await.unwrap_err();
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::Transient, Billing::Nothing));
}

/// A model, as two runs of one process have it.
fn two(server: &Server, lanes: &Lanes, key: &str) -> [Arc<dyn Model>; 2] {
    ["openai/one", "openai/one"].map(|name| {
        let config = ModelConfig {
            base_url: Some(server.url.clone()),
            api_key: Some(Secret::new(key)),
            timeouts: Some(quick()),
            lanes: Some(lanes.clone()),
            ..ModelConfig::default()
        };
        connect(&spec(name), &config).expect("good settings")
    })
}

#[tokio::test]
async fn what_one_run_is_told_holds_up_the_other_of_the_same_key() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let server = server(vec![Write(busy.into())]).await;
    let lanes = Lanes::default();
    let [one, other] = two(&server, &lanes, "sk-a");
    let began = Instant::now();
    assert_eq!(ask(&*one).await.unwrap_err().class, ModelErrorClass::RateLimited);
    assert!(began.elapsed() < Duration::from_millis(800), "the first is not held up");
    assert_eq!(ask(&*other).await.unwrap_err().class, ModelErrorClass::RateLimited);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let [another, _] = two(&server, &lanes, "sk-b");
    let began = Instant::now();
    assert!(ask(&*another).await.is_err());
    assert!(began.elapsed() < Duration::from_millis(800), "another key is no business of theirs");
}

#[tokio::test]
async fn a_pause_that_is_too_long_is_told_without_sending() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 90\r\ncontent-length: 0\r\n\r\n";
    let server = server(vec![Write(busy.into())]).await;
    let [one, other] = two(&server, &Lanes::default(), "sk-a");
    assert!(ask(&*one).await.is_err());
    let failure = ask(&*other).await.unwrap_err();
    assert_eq!((failure.class, failure.billing), (ModelErrorClass::RateLimited, Billing::Nothing));
    assert!(failure.retry_after_s.is_some_and(|seconds| (80..=90).contains(&seconds)), "{failure:?}");
    assert!(failure.message.starts_with("not sent: "), "{}", failure.message);
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}
