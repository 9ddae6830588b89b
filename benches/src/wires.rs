//! What reading replies costs: megabytes a second of every wire by the size of the pieces they come in, how that grows with
//! the length of a reply, and how soon a reply is handed on after its last byte, through the whole client over loopback.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use longrein::ports::{Listener, Spoken};
use longrein_core::ids::ModelName;
use longrein_core::prompt::{AnswerForm, Item, Prompt};
use longrein_core::task::ModelSpec;
use longrein_models::reading::{End, Reading};
use longrein_models::{ModelConfig, anthropic, connect, gemini, ollama, openai, responses};

const PIECES: [usize; 5] = [1, 64, 1024, 8 * 1024, 64 * 1024];
const MIB: usize = 1 << 20;
/// Of a reply's limit of 16 MiB.
const LONG: usize = 8 * MIB;

/// How a wire spells a reply: what comes first, one piece of text, one of arguments, what begins and ends a call, the end.
struct Wire {
    name: &'static str,
    read: fn(&[u8], usize) -> anyhow::Result<usize>,
    text: [&'static str; 3],
    arguments: [&'static str; 3],
    /// One line or event that holds it all, around its words.
    long: [&'static str; 2],
}

/// As many words as a token has letters, some of them beyond ASCII.
const WORDS: &str = "reins é";

fn wires() -> [Wire; 5] {
    [
        Wire {
            name: "openai",
            read: decode::<openai::decode::Decoder>,
            text: [
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            ],
            arguments: [
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"\"}}]}}]}\n\n",
                // Name and id in every piece: what once made reading quadratic.
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"@\"}}]}}]}\n\n",
                "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
            ],
            long: ["data: {\"choices\":[{\"delta\":{\"content\":\"", "\"},\"finish_reason\":\"stop\"}]}\n\n"],
        },
        Wire {
            name: "responses",
            read: decode::<responses::decode::Decoder>,
            text: [
                "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\"}}\n\n",
                "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"delta\":\"@\"}\n\n",
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n",
            ],
            arguments: [
                "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"id\":\"f\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
                "data: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"f\",\"output_index\":0,\"delta\":\"@\"}\n\n",
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n",
            ],
            long: [
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"",
                "\"}]}]}}\n\n",
            ],
        },
        Wire {
            name: "anthropic",
            read: decode::<anthropic::decode::Decoder>,
            text: [
                "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"@\"}}\n\n",
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            ],
            arguments: [
                "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"@\"}}\n\n",
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            ],
            long: [
                "data: {\"type\":\"message\",\"stop_reason\":\"end_turn\",\"content\":[{\"type\":\"text\",\"text\":\"",
                "\"}]}\n\n",
            ],
        },
        Wire {
            name: "gemini",
            read: decode::<gemini::decode::Decoder>,
            text: [
                "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"a\"}]}}]}\n\n",
                "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"@\"}]},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":3}}\n\n",
                "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
            ],
            arguments: [
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n",
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{\"a\":\"@\"}}}]}}]}\n\n",
                "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
            ],
            long: [
                "data: {\"candidates\":[{\"finishReason\":\"STOP\",\"content\":{\"parts\":[{\"text\":\"",
                "\"}]}}]}\n\n",
            ],
        },
        Wire {
            name: "ollama",
            read: decode::<ollama::decode::Decoder>,
            text: [
                "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}\n",
                "{\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\"@\"},\"done\":false}\n",
                "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
            ],
            arguments: [
                "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}\n",
                "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"@\"}}}]},\"done\":false}\n",
                "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
            ],
            long: ["{\"message\":{\"content\":\"", "\"},\"done\":true,\"done_reason\":\"stop\"}\n"],
        },
    ]
}

/// Reads a body in pieces and answers how much of a reply it was.
fn decode<D: Reading>(body: &[u8], piece: usize) -> anyhow::Result<usize> {
    let mut decoder = D::default();
    for piece in body.chunks(piece) {
        black_box(decoder.feed(piece));
        black_box(decoder.said());
    }
    let reply = decoder.end(End::Closed).map_err(|failure| anyhow::anyhow!(failure.message))?;
    Ok(reply.text.len() + reply.calls.iter().map(|call| call.arguments.len()).sum::<usize>())
}

fn body(parts: &[&str; 3], bytes: usize) -> String {
    let piece = parts[1].replace('@', WORDS);
    let mut body = parts[0].to_owned();
    while body.len() + piece.len() < bytes {
        body.push_str(&piece);
    }
    body + parts[2]
}

/// Megabytes a second, the best of three: what disturbs only makes it slower.
fn speed(wire: &Wire, body: &str, piece: usize) -> anyhow::Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        let said = (wire.read)(body.as_bytes(), piece).with_context(|| wire.name)?;
        best = best.min(began.elapsed().as_secs_f64());
        if said == 0 {
            bail!("{}: nothing was read", wire.name);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(body.len() as f64 / 1e6 / best)
}

pub(crate) fn print(goal_mb_s: f64) -> anyhow::Result<()> {
    let mut missed = Vec::new();
    let head: String = PIECES.iter().fold(String::new(), |mut head, piece| {
        let _ = write!(head, " {piece:>8} B");
        head
    });
    println!("MB/s by the size of the pieces, {} MB:\n{:22}{head}   1 → 8 MB", LONG / MIB, "");
    for wire in wires() {
        for (what, parts) in [("text", &wire.text), ("arguments", &wire.arguments)] {
            let (long, short) = (body(parts, LONG), body(parts, MIB));
            let mut row = format!("{:22}", format!("{} {what}", wire.name));
            for piece in PIECES {
                let speed = speed(&wire, &long, piece)?;
                let _ = write!(row, " {speed:>10.0}");
                if speed < goal_mb_s {
                    missed.push(format!("{} {what} in pieces of {piece} B: {speed:.0} MB/s", wire.name));
                }
            }
            // 1.0: twice the length takes twice the time.
            let growth = speed(&wire, &short, 1024)? / speed(&wire, &long, 1024)?;
            println!("{row} {growth:>10.2}");
            if growth > 2.0 {
                missed.push(format!(
                    "{} {what}: eight times the length costs {growth:.1} times as much a byte",
                    wire.name
                ));
            }
        }
        let line = format!("{}{}{}", wire.long[0], "x".repeat(10_000_000), wire.long[1]);
        let speed = speed(&wire, &line, 8 * 1024)?;
        println!("{:22} {speed:>10.0}", format!("{} a line of 10 MB", wire.name));
    }
    let (whole, first) = latency()?;
    for (what, waits) in [("the first piece told after it was sent", first), ("handed on after the last byte", whole)] {
        let at = |part: usize| waits[(waits.len() - 1) * part / 100].as_secs_f64() * 1e3;
        println!("{what}, ms: p50 {:.3}, p95 {:.3}, max {:.3} ({} replies)", at(50), at(95), at(100), waits.len());
        // One in twenty may meet something else that this machine does.
        if at(95) > 1.0 {
            missed.push(format!("{what}: {:.3} ms at the 95th of 100", at(95)));
        }
    }
    for one in &missed {
        println!("missed: {one}");
    }
    Ok(())
}

const REPLIES: usize = 300;

/// When the first piece was heard.
#[derive(Default)]
struct First(Mutex<Option<Instant>>);

impl Listener for First {
    fn hear(&self, _spoken: Spoken<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }
}

/// From the server's last write to the reply in the caller's hands, and from its first to the listener's, sorted.
fn latency() -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let base_url = Some(format!("http://{}/v1", listener.local_addr()?));
    let (stamp, stamps) = mpsc::channel();
    let server = std::thread::spawn(move || serve(&listener, &stamp));
    let spec = ModelSpec::plain(ModelName::new("openai/bench"), 1_000);
    let model = connect(&spec, &ModelConfig { base_url, ..ModelConfig::default() })?;
    let prompt = Prompt {
        system: "".into(),
        tools: [].into(),
        items: std::sync::Arc::new(vec![std::sync::Arc::new(Item::User("go".to_owned()))]),
        tail: None,
        answer: AnswerForm::Text,
        max_output: 100,
        images: Default::default(),
        position: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut waits, mut firsts) = (Vec::with_capacity(REPLIES), Vec::with_capacity(REPLIES));
    for _ in 0..REPLIES {
        let first = First::default();
        let sent = runtime.block_on(model.send_heard(model.encode(&prompt), &first));
        let came = Instant::now();
        sent.map_err(|failure| anyhow::anyhow!(failure.message))?;
        let heard = first.0.into_inner().unwrap_or_else(PoisonError::into_inner).context("nothing was told")?;
        firsts.push(heard.duration_since(stamps.recv()?));
        waits.push(came.duration_since(stamps.recv()?));
    }
    drop(model);
    drop(runtime);
    server.join().map_err(|_| anyhow::anyhow!("the server fell"))??;
    waits.sort_unstable();
    firsts.sort_unstable();
    Ok((waits, firsts))
}

fn serve(listener: &TcpListener, stamp: &mpsc::Sender<Instant>) -> anyhow::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut taken = Vec::new();
    let mut buffer = [0; 8 * 1024];
    for _ in 0..REPLIES {
        // A request ends with the one brace that closes its body.
        while !taken.ends_with(b"}") {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            taken.extend_from_slice(&buffer[..count]);
        }
        taken.clear();
        let chunk = |stream: &mut std::net::TcpStream, data: &str| {
            stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())
        };
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
        let now = Instant::now();
        chunk(&mut stream, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")?;
        stamp.send(now)?;
        std::thread::sleep(Duration::from_millis(1));
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
        let now = Instant::now();
        stream.write_all(format!("{:x}\r\n{end}\r\n0\r\n\r\n", end.len()).as_bytes())?;
        stamp.send(now)?;
    }
    Ok(())
}
