//! Traffic recorded from real servers, read where it lies: `LONGREIN_CASES`, or a folder `shared/cases` near the
//! checkout. Without it these tests say so and pass.

mod support;

use std::path::{Path, PathBuf};

use longrein_core::outcome::{Finish, ModelErrorClass, ModelFailure, Reply};
use longrein_models::reading::{End, Reading};
use longrein_models::telling::Saying;
use longrein_models::{ModelConfig, anthropic, connect, gemini, openai, responses};

use support::server::{response, server};
use support::{Heard, prompt, spec, user};

struct Exchange {
    path: String,
    status: u16,
    body: String,
}

fn wire() -> Option<PathBuf> {
    let beside = ["../../../shared/cases", "../../../../shared/cases"];
    let beside = beside.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let named = std::env::var_os("LONGREIN_CASES").map(PathBuf::from);
    let wire = named.into_iter().chain(beside).map(|cases| cases.join("wire")).find(|wire| wire.is_dir());
    if wire.is_none() {
        eprintln!("skipped: no recorded traffic (set LONGREIN_CASES to read it)");
    }
    wire
}

/// Servers that speak one dialect, and how its requests are known.
struct Dialect {
    provider: &'static str,
    servers: &'static [&'static str],
    /// What stands in the path of its requests.
    path: &'static str,
}

const CHAT: Dialect = Dialect {
    provider: "openai",
    servers: &["openai", "openai-compatible", "groq", "mistral", "xai", "deepseek", "llamacpp", "openrouter"],
    path: "/chat/completions",
};
const MESSAGES: Dialect = Dialect { provider: "anthropic", servers: &["anthropic"], path: "/messages" };
const RESPONSES: Dialect =
    Dialect { provider: "openai-responses", servers: &["openai", "xai", "openrouter"], path: "/responses" };
const GEMINI: Dialect = Dialect { provider: "gemini", servers: &["gemini"], path: "enerateContent" };

/// The exchanges in the recordings of one kind, from every server that speaks Chat Completions.
fn exchanges(kind: &str) -> Vec<(String, Exchange)> {
    let found = recorded(&CHAT, kind);
    assert!(!found.is_empty() || wire().is_none(), "no recording of {kind} could be read");
    found
}

fn recorded(dialect: &Dialect, kind: &str) -> Vec<(String, Exchange)> {
    let Some(wire) = wire() else { return Vec::new() };
    let mut found = Vec::new();
    for server in dialect.servers {
        let Ok(folder) = std::fs::read_dir(wire.join(server).join(kind)) else { continue };
        for entry in folder {
            let path = entry.expect("a readable folder").path();
            let name = format!("{server}/{kind}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            let text = std::fs::read_to_string(&path).expect("a readable recording");
            if path.extension().is_some_and(|kind| kind == "json") {
                let path = dialect.path.to_owned();
                found.push((name, Exchange { path, status: 200, body: text }));
            } else if name.ends_with(".chunks.txt") {
                let body =
                    text.lines().filter(|line| !line.is_empty()).map(|line| format!("data: {line}\n\n")).collect();
                found.push((name, Exchange { path: dialect.path.to_owned(), status: 200, body }));
            } else {
                found.extend(text.split("\n---\n").filter_map(read).map(|exchange| (name.clone(), exchange)));
            }
        }
    }
    found.retain(|(_, exchange)| exchange.path.contains(dialect.path));
    eprintln!("{kind}: {} exchanges", found.len());
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// As much YAML as the recordings use.
fn read(document: &str) -> Option<Exchange> {
    let path = document.lines().find_map(|line| line.strip_prefix("  path: "))?.to_owned();
    let (_, then) = document.split_once("\nthen:\n")?;
    let status = then.lines().find_map(|line| line.strip_prefix("  status: "))?.parse().ok()?;
    let (_, body) = then.split_once("  body: ")?;
    let body = if body.starts_with('"') {
        // Double quotes as JSON has them, but for lines that are folded.
        let folded: String = body.trim_end().lines().map(|line| line.trim_start().trim_end_matches('\\')).collect();
        serde_json::from_str(&folded).ok()?
    } else if let Some(quoted) = body.strip_prefix('\'') {
        quoted.trim_end().strip_suffix('\'')?.replace("''", "'")
    } else {
        let (_, block) = body.split_once('\n')?;
        block.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
    };
    Some(Exchange { path, status, body })
}

async fn replay(exchange: &Exchange) -> Result<Reply, ModelFailure> {
    replay_as(&CHAT, exchange).await
}

async fn replay_as(dialect: &Dialect, exchange: &Exchange) -> Result<Reply, ModelFailure> {
    let server = server(response(&format!("{} X", exchange.status), &exchange.body)).await;
    let config = ModelConfig { base_url: Some(server.url), ..ModelConfig::default() };
    let name = format!("{}/recorded", dialect.provider);
    let model = connect(&spec(&name), &config).expect("good settings");
    let heard = Heard::default();
    let came = model.send_heard(model.encode(&prompt(0, vec![user("hello")])), &heard).await;
    if let Ok(reply) = &came {
        assert_eq!(heard.text(), reply.text, "what is told is the reply that stands");
    }
    came
}

/// What a decoder tells of a body that comes in small pieces, before its end is known.
fn told(dialect: &Dialect, body: &str) -> (String, Result<Reply, ModelFailure>) {
    fn of<D: Reading>(body: &str) -> (String, Result<Reply, ModelFailure>) {
        let (mut decoder, mut text) = (D::default(), String::new());
        for piece in body.as_bytes().chunks(7) {
            decoder.feed(piece);
            for saying in decoder.said() {
                match saying {
                    Saying::Text(more) => text.push_str(&more),
                    Saying::Thought(_) => {}
                    Saying::Anew => text.clear(),
                }
            }
        }
        (text, decoder.end(End::Closed))
    }
    match dialect.provider {
        "openai" => of::<openai::decode::Decoder>(body),
        "anthropic" => of::<anthropic::decode::Decoder>(body),
        "openai-responses" => of::<responses::decode::Decoder>(body),
        "gemini" => of::<gemini::decode::Decoder>(body),
        other => unreachable!("{other}"),
    }
}

/// Of every recorded stream, the pieces told on the way are the text of the reply: nothing of it waits for the end.
#[test]
fn pieces_make_up_the_text_of_every_recorded_stream() {
    let Some(wire) = wire() else { return };
    let mut all = 0;
    for dialect in [CHAT, MESSAGES, RESPONSES, GEMINI] {
        let kinds =
            dialect.servers.iter().flat_map(|server| std::fs::read_dir(wire.join(server)).into_iter().flatten());
        let kinds: std::collections::BTreeSet<String> =
            kinds.map(|kind| kind.expect("a readable folder").file_name().to_string_lossy().into_owned()).collect();
        let mut streams = 0;
        for (name, exchange) in kinds.iter().flat_map(|kind| recorded(&dialect, kind)) {
            let is_stream = exchange.body.contains("data: ");
            let (text, came) = told(&dialect, &exchange.body);
            let Ok(reply) = came else { continue };
            // The words of a refusal are known as such only at the end.
            if is_stream && reply.finish != Finish::Refused {
                assert_eq!(text, reply.text, "{name}");
                streams += usize::from(!text.is_empty());
            }
        }
        eprintln!("{}: {streams} streams with text", dialect.provider);
        all += streams;
    }
    assert!(all > 10, "{all} streams with text");
}

/// Replays every exchange of a kind that ended well and shows each reply to `check`.
async fn replies(kind: &str, check: impl Fn(&str, &Reply)) {
    for (name, exchange) in exchanges(kind).iter().filter(|(_, exchange)| exchange.status == 200) {
        let reply = replay(exchange).await.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        assert!(reply.usage.is_some_and(|usage| usage.tokens() > 0), "{name}: {reply:?}");
        check(name, &reply);
    }
}

#[tokio::test]
async fn length() {
    for kind in ["length-finish", "usage-last-chunk", "empty-content", "sse-comment-keepalive"] {
        replies(kind, |name, reply| {
            assert!(matches!(reply.finish, Finish::Length | Finish::Stop), "{name}: {reply:?}");
            assert!(kind != "length-finish" || reply.finish == Finish::Length, "{name}: {reply:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn calls() {
    for kind in ["parallel-tool-calls", "truncated-tool-args", "thinking-interleaved"] {
        replies(kind, |name, reply| {
            assert!(!matches!(reply.finish, Finish::Other(_) | Finish::Refused), "{name}: {reply:?}");
            assert!(reply.finish != Finish::ToolCalls || !reply.calls.is_empty(), "{name}: {reply:?}");
            assert!(reply.calls.iter().all(|call| !call.name.is_empty() && !call.id.is_empty()), "{name}: {reply:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn two_calls_of_one_stream() {
    let found = exchanges("parallel-tool-calls");
    let Some((_, exchange)) = found.iter().find(|(name, _)| name.ends_with("single_turn_streaming.yaml")) else {
        return;
    };
    let reply = replay(exchange).await.unwrap();
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    let expected =
        [("call_REDACTED_1", "lookup_harbor_label", "null"), ("call_REDACTED_2", "lookup_orchard_label", "null")];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn refusals() {
    replies("refusal", |name, reply| {
        let refused = name.contains("surfaces_refusal");
        assert_eq!(reply.finish == Finish::Refused, refused, "{name}: {reply:?}");
        assert!(!reply.text.is_empty(), "{name}");
    })
    .await;
}

#[tokio::test]
async fn errors() {
    for kind in ["http-4xx-5xx", "context-overflow"] {
        for (name, exchange) in exchanges(kind).iter().filter(|(_, exchange)| exchange.status != 200) {
            let failure = replay(exchange).await.expect_err(name);
            assert_eq!(failure.status, Some(exchange.status), "{name}");
            let expected = match (kind, exchange.status) {
                ("context-overflow", _) => ModelErrorClass::ContextExhausted,
                (_, 401 | 403) => ModelErrorClass::Authentication,
                (_, _) => ModelErrorClass::BadRequest,
            };
            assert_eq!(failure.class, expected, "{name}: {failure:?}");
        }
    }
}

/// Every error any server was recorded to send, whatever its dialect: an error body is read the same everywhere.
#[tokio::test]
async fn errors_of_all_dialects() {
    let Some(wire) = wire() else { return };
    let mut seen = 0;
    for server in std::fs::read_dir(&wire).expect("a readable folder") {
        let server = server.expect("a readable folder").path();
        for kind in ["http-4xx-5xx", "http-429", "stream-error-event", "context-overflow"] {
            let Ok(folder) = std::fs::read_dir(server.join(kind)) else { continue };
            for entry in folder {
                let path = entry.expect("a readable folder").path();
                let text = std::fs::read_to_string(&path).expect("a readable recording");
                for exchange in text.split("\n---\n").filter_map(read).filter(|exchange| exchange.status >= 400) {
                    seen += 1;
                    let failure = replay(&exchange).await.expect_err("an error");
                    let is_overflow = failure.class == ModelErrorClass::ContextExhausted;
                    assert_eq!(is_overflow, kind == "context-overflow", "{}: {failure:?}", path.display());
                    let limit = failure.served.and_then(|served| served.limit);
                    assert_eq!(limit.is_some(), is_overflow, "{}: {failure:?}", path.display());
                }
            }
        }
    }
    assert!(seen > 10, "{seen} errors");
}

/// Error bodies as people quoted them, one a line behind a heading that says what they are.
#[tokio::test]
async fn errors_as_quoted() {
    let Some(wire) = wire() else { return };
    let quoted = std::fs::read_to_string(wire.join("ERRORS.md")).expect("a readable file");
    let mut heading = "";
    let mut overflows = 0;
    for line in quoted.lines() {
        let Some(start) = line.find("{\"") else {
            heading = line;
            continue;
        };
        if start > 0 {
            heading = line;
        }
        let exchange = Exchange { path: String::new(), status: 400, body: line[start..].to_owned() };
        let failure = replay(&exchange).await.expect_err("an error");
        if heading.contains("overflow") {
            overflows += 1;
            assert_eq!(failure.class, ModelErrorClass::ContextExhausted, "{line}");
            let served = failure.served.unwrap_or_default();
            // Each of these tells both numbers, but for the one that tells none.
            let told = line.contains(|c: char| c.is_ascii_digit()) && !line.contains("exceeds the context window");
            assert_eq!((served.limit.is_some(), served.prompt.is_some()), (told, told), "{line}: {served:?}");
        } else {
            assert_ne!(failure.class, ModelErrorClass::ContextExhausted, "{line}");
        }
    }
    assert!(overflows >= 5, "{overflows} overflows");
}

#[tokio::test]
async fn ollamas_own_replies() {
    let Some(wire) = wire() else { return };
    let folder = std::fs::read_dir(wire.join("ollama/length-finish")).expect("a readable folder");
    for entry in folder {
        let text = std::fs::read_to_string(entry.expect("a readable folder").path()).expect("a readable recording");
        let exchange = read(&text).expect("a recording");
        assert_eq!(exchange.path, "/api/chat");
        let server = server(response("200 OK", &exchange.body)).await;
        let config = ModelConfig { base_url: Some(server.url), ..ModelConfig::default() };
        let model = connect(&spec("ollama/recorded"), &config).expect("good settings");
        let reply = model.send(model.encode(&prompt(0, vec![user("hello")]))).await.expect("a reply");
        assert_eq!(reply.finish, Finish::Length);
        let usage = reply.usage.expect("counted");
        assert!(usage.input > 0 && usage.output > 0 && !reply.text.is_empty(), "{reply:?}");
    }
}

/// The dialects that answer in blocks: every recording of them is a reply with a known end, or an error in its class.
#[tokio::test]
async fn messages_responses_and_gemini() {
    let Some(wire) = wire() else { return };
    for dialect in [MESSAGES, RESPONSES, GEMINI] {
        let (mut replies, mut errors) = (0, 0);
        let kinds =
            dialect.servers.iter().flat_map(|server| std::fs::read_dir(wire.join(server)).into_iter().flatten());
        let kinds: std::collections::BTreeSet<String> =
            kinds.map(|kind| kind.expect("a readable folder").file_name().to_string_lossy().into_owned()).collect();
        for kind in kinds {
            for (name, exchange) in recorded(&dialect, &kind) {
                let came = replay_as(&dialect, &exchange).await;
                if exchange.status != 200 {
                    let failure = came.expect_err(&name);
                    assert_eq!(failure.status, Some(exchange.status), "{name}");
                    assert_ne!(failure.class, ModelErrorClass::Malformed, "{name}: {failure:?}");
                    assert_ne!(failure.class, ModelErrorClass::Transient, "{name}: {failure:?}");
                    errors += 1;
                    continue;
                }
                // A listing of models, or a file: no reply of a model.
                if !exchange.body.contains("usage") {
                    continue;
                }
                let reply = came.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
                assert!(reply.usage.is_some_and(|usage| usage.tokens() > 0), "{name}: {reply:?}");
                assert!(!matches!(reply.finish, Finish::Other(_)), "{name}: {reply:?}");
                assert!(reply.finish != Finish::ToolCalls || !reply.calls.is_empty(), "{name}: {reply:?}");
                assert!(reply.calls.iter().all(|call| !call.name.is_empty()), "{name}: {reply:?}");
                match kind.as_str() {
                    "refusal" => assert_eq!(reply.finish, Finish::Refused, "{name}"),
                    "parallel-tool-calls" if reply.finish == Finish::ToolCalls => {}
                    "thinking-interleaved" => assert!(reply.wired.is_some(), "{name}: {reply:?}"),
                    _ => {}
                }
                replies += 1;
            }
        }
        eprintln!("{}: {replies} replies, {errors} errors", dialect.provider);
        assert!(replies + errors > 0, "no recording of {} could be read", dialect.provider);
    }
}
