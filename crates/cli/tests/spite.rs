//! A provider that does everything a provider must not, in each of the five dialects. Whatever it does, a run ends in a state
//! with a name and in time, its journal is whole, and nothing runs of a reply that did not come whole.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::task::{configure, model_task, tool};
use crate::support::{Done, World, of_type, times};

/// What each of the shorter silences is allowed, and a whole attempt.
const SILENCE: Duration = Duration::from_millis(700);
const ATTEMPT: Duration = Duration::from_secs(3);

/// Six attempts and the pauses between them, and what a busy machine adds.
const RUN_MAX: Duration = Duration::from_secs(75);

/// How a dialect is reached, and how it spells a reply: events, the last so many of which say that it is over.
struct Dialect {
    model: &'static str,
    variable: &'static str,
    events: fn(Said) -> Vec<String>,
    last: usize,
}

#[derive(Clone, Copy)]
enum Said {
    /// A call of `act` with this number.
    Call(usize),
    Done,
}

fn data(events: &[serde_json::Value]) -> Vec<String> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

macro_rules! events {
    ($($event:tt),* $(,)?) => { data(&[$(serde_json::json!($event)),*]) };
}

const DIALECTS: [Dialect; 5] = [
    Dialect {
        model: "openai/spite",
        variable: "OPENAI_BASE_URL",
        last: 2,
        events: |said| {
            let mut events = match said {
                Said::Call(number) => {
                    let call = |id: Option<&str>, arguments: String| {
                        let name = id.map(|_| "act");
                        serde_json::json!([{ "index": 0, "id": id, "function": { "name": name, "arguments": arguments } }])
                    };
                    let (head, rest) = (call(Some("c1"), "{\"n\":".to_owned()), call(None, format!("{number}}}")));
                    events![
                        { "choices": [{ "index": 0, "delta": { "tool_calls": head } }] },
                        { "choices": [{ "index": 0, "delta": { "tool_calls": rest } }] },
                        { "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] },
                    ]
                }
                Said::Done => events![
                    { "choices": [{ "index": 0, "delta": { "content": "done" } }] },
                    { "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] },
                ],
            };
            events.push("data: [DONE]\n\n".to_owned());
            events
        },
    },
    Dialect {
        model: "openai-responses/spite",
        variable: "OPENAI_BASE_URL",
        last: 1,
        events: |said| {
            let item = match said {
                Said::Call(number) => serde_json::json!({
                    "type": "function_call", "id": "f", "call_id": "c1", "name": "act",
                    "arguments": format!("{{\"n\":{number}}}"),
                }),
                Said::Done => serde_json::json!({
                    "type": "message", "id": "m", "role": "assistant", "content": [{ "type": "output_text", "text": "done" }],
                }),
            };
            events![
                { "type": "response.created", "response": { "status": "in_progress" } },
                { "type": "response.output_item.added", "output_index": 0, "item": item },
                { "type": "response.output_item.done", "output_index": 0, "item": item },
                { "type": "response.completed", "response": { "status": "completed", "output": [item] } },
            ]
        },
    },
    Dialect {
        model: "anthropic/spite",
        variable: "ANTHROPIC_BASE_URL",
        last: 2,
        events: |said| {
            let (block, first, second, stop) = match said {
                Said::Call(number) => (
                    serde_json::json!({ "type": "tool_use", "id": "t1", "name": "act", "input": {} }),
                    serde_json::json!({ "type": "input_json_delta", "partial_json": "{\"n\":" }),
                    serde_json::json!({ "type": "input_json_delta", "partial_json": format!("{number}}}") }),
                    "tool_use",
                ),
                Said::Done => (
                    serde_json::json!({ "type": "text", "text": "" }),
                    serde_json::json!({ "type": "text_delta", "text": "do" }),
                    serde_json::json!({ "type": "text_delta", "text": "ne" }),
                    "end_turn",
                ),
            };
            events![
                { "type": "message_start", "message": { "role": "assistant", "content": [] } },
                { "type": "content_block_start", "index": 0, "content_block": block },
                { "type": "content_block_delta", "index": 0, "delta": first },
                { "type": "content_block_delta", "index": 0, "delta": second },
                { "type": "content_block_stop", "index": 0 },
                { "type": "message_delta", "delta": { "stop_reason": stop } },
                { "type": "message_stop" },
            ]
        },
    },
    Dialect {
        model: "gemini/spite",
        variable: "GEMINI_BASE_URL",
        last: 1,
        events: |said| {
            let part = match said {
                Said::Call(number) => serde_json::json!({ "functionCall": { "name": "act", "args": { "n": number } } }),
                Said::Done => serde_json::json!({ "text": "done" }),
            };
            events![
                { "candidates": [{ "content": { "role": "model", "parts": [part] } }] },
                { "candidates": [{ "finishReason": "STOP" }] },
            ]
        },
    },
    Dialect {
        model: "ollama/spite",
        variable: "OLLAMA_HOST",
        last: 1,
        events: |said| {
            let message = match said {
                Said::Call(number) => serde_json::json!({
                    "role": "assistant", "content": "",
                    "tool_calls": [{ "function": { "name": "act", "arguments": { "n": number } } }],
                }),
                Said::Done => serde_json::json!({ "role": "assistant", "content": "done" }),
            };
            let rows = [
                serde_json::json!({ "message": message, "done": false }),
                serde_json::json!({ "message": { "content": "" }, "done": true, "done_reason": "stop" }),
            ];
            rows.iter().map(|row| format!("{row}\n")).collect()
        },
    },
];

/// One thing that a server does with a connection on which a request came.
enum Step {
    /// Reads the request.
    Take,
    Say(Vec<u8>),
    /// This again and again, as long as anybody reads it.
    Flood(Vec<u8>, Duration),
    Silence,
    /// The connection ends as a broken one does.
    Reset,
}

use Step::{Flood, Reset, Say, Silence, Take};

/// What comes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Becomes {
    /// No reply: it is asked for again.
    Nothing,
    /// A whole reply, oddly sent.
    Reply,
    /// No reply, and the run does not ask again: its status.
    End(i32),
}

/// One way to misbehave, around a reply that calls `act` with the number of the way.
struct Spite {
    name: &'static str,
    becomes: Becomes,
    steps: fn(&Poison) -> Vec<Step>,
}

/// A reply that is not to run unless it comes whole.
struct Poison {
    events: Vec<String>,
    last: usize,
}

impl Poison {
    fn whole(&self) -> String {
        self.events.concat()
    }

    /// All but what says that it is over.
    fn half(&self) -> String {
        self.events[..self.events.len() - self.last].concat()
    }

    /// `half`, cut in the middle of its last event.
    fn shred(&self) -> String {
        let half = self.half();
        half[..half.len() - 9].to_owned()
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

fn text(text: impl Into<String>) -> Step {
    Say(text.into().into_bytes())
}

/// A response that ends with its connection.
fn closing(body: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Take, text(format!("{STREAM}connection: close\r\n\r\n")), Say(body.as_ref().to_vec())]
}

fn chunk(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n", body.len())
}

fn chunked(body: &str) -> Vec<Step> {
    vec![Take, text(format!("{STREAM}transfer-encoding: chunked\r\n\r\n{}", chunk(body)))]
}

fn then(mut steps: Vec<Step>, more: Step) -> Vec<Step> {
    steps.push(more);
    steps
}

fn answered(status: &str, headers: &str, body: &str) -> Vec<Step> {
    vec![Take, text(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()))]
}

const PAGE: &str = "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>";

/// A text in gzip's frame, stored as it is: what is behind its first line end looks like events. Nobody looks at its check.
fn gzipped(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend([0; 8]);
    out
}

const fn lost(name: &'static str, steps: fn(&Poison) -> Vec<Step>) -> Spite {
    Spite { name, becomes: Becomes::Nothing, steps }
}

const fn whole(name: &'static str, steps: fn(&Poison) -> Vec<Step>) -> Spite {
    Spite { name, becomes: Becomes::Reply, steps }
}

const fn ends(name: &'static str, status: i32, steps: fn(&Poison) -> Vec<Step>) -> Spite {
    Spite { name, becomes: Becomes::End(status), steps }
}

const SPITES: &[Spite] = &[
    // the connection
    lost("reset before the request is read", |_| vec![Reset]),
    lost("closed after the request", |_| vec![Take]),
    lost("reset after the request", |_| vec![Take, Reset]),
    lost("reset in the head", |_| vec![Take, text("HTTP/1.1 200 O"), Reset]),
    lost("reset after the head", |_| vec![Take, text(format!("{STREAM}\r\n")), Reset]),
    lost("reset in an event", |poison| then(chunked(&poison.shred()), Reset)),
    lost("reset before the end", |poison| then(chunked(&poison.half()), Reset)),
    whole("reset after the end", |poison| then(chunked(&poison.whole()), Reset)),
    // silence
    lost("no head", |_| vec![Take, Silence]),
    lost("half a head", |_| vec![Take, text("HTTP/1.1 200 OK\r\nconte"), Silence]),
    lost("no body", |_| vec![Take, text(format!("{STREAM}\r\n")), Silence]),
    lost("half a body", |poison| then(chunked(&poison.half()), Silence)),
    lost("a head that drips", |_| {
        vec![Take, text("HTTP/1.1 200 OK\r\nx: "), Flood(b"y".to_vec(), Duration::from_millis(40))]
    }),
    lost("a body that drips", |poison| then(closing(poison.half()), Flood(b":\n".to_vec(), Duration::from_millis(40)))),
    // heads
    lost("no HTTP", |_| vec![Take, text("SSH-2.0-OpenSSH_9.2\r\n")]),
    lost("a head without an end", |_| vec![Take, text(STREAM), Flood(b"x-more: yes\r\n".to_vec(), Duration::ZERO)]),
    lost("a header without an end", |_| {
        vec![Take, text(format!("{STREAM}x: ")), Flood(vec![b'y'; 4096], Duration::ZERO)]
    }),
    lost("100 Continue for ever", |_| {
        vec![Take, Flood(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), Duration::from_millis(5))]
    }),
    lost("a status that is no number", |poison| vec![Take, text(format!("HTTP/1.1 OK\r\n\r\n{}", poison.whole()))]),
    lost("a header that is no header", |poison| {
        vec![Take, text(format!("HTTP/1.1 200 OK\r\n\u{0}: \r\n\r\n{}", poison.whole()))]
    }),
    // lengths
    lost("longer than it says, as a cut", |poison| answered("200 OK", "", &poison.shred())),
    lost("shorter than it says", |poison| {
        vec![Take, text(format!("{STREAM}content-length: 99999\r\n\r\n{}", poison.half()))]
    }),
    lost("two lengths", |poison| {
        let body = poison.half();
        vec![Take, text(format!("{STREAM}content-length: 3\r\ncontent-length: {}\r\n\r\n{body}", body.len()))]
    }),
    lost("a length below nothing", |poison| {
        vec![Take, text(format!("{STREAM}content-length: -1\r\n\r\n{}", poison.whole()))]
    }),
    lost("a chunk of a length that is none", |poison| {
        vec![Take, text(format!("{STREAM}transfer-encoding: chunked\r\n\r\nzz\r\n{}", poison.whole()))]
    }),
    lost("a chunk of 2^64 bytes", |_| {
        vec![Take, text(format!("{STREAM}transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\nx"))]
    }),
    lost("a chunk shorter than it says", |poison| {
        let body = poison.half();
        vec![Take, text(format!("{STREAM}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}0\r\n\r\n", body.len() + 400))]
    }),
    whole("trailers without an end", |poison| {
        then(then(chunked(&poison.whole()), text("0\r\n")), Flood(b"x: y\r\n".to_vec(), Duration::ZERO))
    }),
    // what stands in it
    lost("nothing", |_| chunked("").into_iter().chain([text("")]).collect()),
    lost("a page", |_| answered("200 OK", "content-type: text/html\r\n", PAGE)),
    lost("a page after half", |poison| closing(format!("{}{PAGE}\n\n", poison.half()))),
    lost("bytes of all kinds", |_| closing((0..=255).cycle().take(5000).collect::<Vec<u8>>())),
    lost("half, and junk", |poison| closing(format!("{}data: {{\"choices\":[{{\n\n", poison.half()))),
    ends("a gzipped body that nobody asked for", 5, |poison| {
        let body = gzipped(&poison.whole());
        let head = format!("{STREAM}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
        vec![Take, text(head), Say(body)]
    }),
    lost("gzip that does not say so", |poison| closing(gzipped(&poison.whole()))),
    lost("an error after half", |poison| {
        closing(format!("{}data: {{\"error\":{{\"message\":\"upstream died\",\"code\":502}}}}\n\n", poison.half()))
    }),
    lost("an error in its own event", |poison| {
        closing(format!("{}event: error\ndata: {{\"message\":\"overloaded\"}}\n\n", poison.half()))
    }),
    lost("a line without an end", |poison| {
        then(closing(poison.half()), Flood(b"data: xxxxxxxxxxxxxxxx".repeat(4096), Duration::ZERO))
    }),
    lost("words without an end", |poison| {
        let first = poison.events[0].repeat(1000).into_bytes();
        vec![Take, text(format!("{STREAM}\r\n")), Flood(first, Duration::ZERO)]
    }),
    lost("comments without an end", |poison| {
        then(closing(poison.half()), Flood(b": still here\n\n".repeat(4096), Duration::ZERO))
    }),
    lost("depth without an end", |poison| {
        closing(format!("{}data: {}\n\n", poison.half(), "[{\"a\":".repeat(100_000)))
    }),
    whole("white space before it", |poison| closing(format!("\u{feff}\r\n\r\n \r\n{}", poison.whole()))),
    whole("another type", |poison| answered("200 OK", "content-type: text/html\r\n", &poison.whole())),
    whole("no type", |poison| answered("200 OK", "", &poison.whole())),
    whole("HTTP/1.0", |poison| vec![Take, text(format!("HTTP/1.0 200 OK\r\n\r\n{}", poison.whole()))]),
    whole("201", |poison| answered("201 Created", "", &poison.whole())),
    whole("a byte at a time", |poison| {
        let bytes = poison.whole().into_bytes();
        let single = bytes.iter().map(|byte| Say(vec![*byte]));
        [Take, text(format!("{STREAM}connection: close\r\n\r\n"))].into_iter().chain(single).collect()
    }),
    whole("silence after the end", |poison| then(chunked(&poison.whole()), Silence)),
    whole("a second reply behind it, on the same connection", |poison| {
        let body = poison.whole();
        let one = format!("{STREAM}content-length: {}\r\n\r\n{body}", body.len());
        vec![Take, text(format!("{one}{one}"))]
    }),
    // refusals
    lost("503, and the request unread", |_| vec![text("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), Reset]),
    lost("500 with a body without an end", |_| {
        vec![Take, text("HTTP/1.1 500 Oops\r\n\r\n"), Flood(b"oops ".repeat(1000), Duration::ZERO)]
    }),
    lost("502 with a page", |_| answered("502 Bad Gateway", "content-type: text/html\r\n", PAGE)),
    lost("503 cut", |_| vec![Take, text("HTTP/1.1 503 Busy\r\ncontent-length: 999\r\n\r\n{\"err"), Reset]),
    lost("429, with a pause before now", |_| {
        answered("429 Slow", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "{}")
    }),
    lost("429, with a pause that is none", |_| answered("429 Slow", "retry-after: NaN\r\n", "{}")),
    lost("429, with a pause of nearly nothing", |_| answered("429 Slow", "retry-after: 1e-308\r\n", "{}")),
    ends("401", 5, |_| answered("401 No", "", PAGE)),
    ends("a redirect to itself", 5, |_| answered("307 There", "location: /\r\n", "")),
    ends("a redirect to elsewhere", 5, |_| answered("302 There", "location: http://127.0.0.2:1/\r\n", "")),
    ends("404 with a page", 5, |_| answered("404 No", "content-type: text/html\r\n", PAGE)),
    ends("304", 5, |_| vec![Take, text("HTTP/1.1 304 Same\r\n\r\n")]),
];

/// What the server does with the next connection on which a request comes.
#[derive(Clone, Copy)]
enum Turn {
    Spite(usize),
    Call(usize),
    Done,
}

struct Shared {
    dialect: &'static Dialect,
    /// One after the other; the last one for all that follow.
    turns: Mutex<VecDeque<Turn>>,
    over: AtomicBool,
}

struct Server {
    port: u16,
    shared: Arc<Shared>,
}

impl Server {
    fn taking(dialect: &'static Dialect, turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { dialect, turns: Mutex::new(turns.into()), over: AtomicBool::new(false) });
        let of_listener = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if of_listener.over.load(Ordering::SeqCst) {
                    break;
                }
                let (shared, connection) = (Arc::clone(&of_listener), connection.unwrap());
                // A client that goes away ends its connection, nothing else.
                std::thread::spawn(move || drop(shared.serve(&connection)));
            }
        });
        Self { port, shared }
    }

    /// Where it is, as the dialect's variable says it.
    fn place(&self) -> String {
        match self.shared.dialect.variable {
            "OLLAMA_HOST" => format!("127.0.0.1:{}", self.port),
            _ => format!("http://127.0.0.1:{}/v1", self.port),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the listener; it may be gone already.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn next(&self) -> Turn {
        let mut turns = self.turns.lock().unwrap();
        if turns.len() > 1 { turns.pop_front().unwrap() } else { turns[0] }
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        // One who stopped reading is not waited for.
        stream.set_write_timeout(Some(ATTEMPT * 2))?;
        while stream.peek(&mut [0])? > 0 {
            match self.next() {
                Turn::Spite(number) => {
                    let said = (self.dialect.events)(Said::Call(number));
                    let poison = Poison { events: said, last: self.dialect.last };
                    return (SPITES[number].steps)(&poison).into_iter().try_for_each(|step| self.step(stream, step));
                }
                Turn::Call(number) => self.answer(stream, Said::Call(number))?,
                Turn::Done => self.answer(stream, Said::Done)?,
            }
        }
        Ok(())
    }

    fn answer(&self, stream: &TcpStream, said: Said) -> std::io::Result<()> {
        let body = (self.dialect.events)(said).concat();
        take_request(stream)?;
        self.step(stream, text(format!("{STREAM}content-length: {}\r\n\r\n{body}", body.len())))
    }

    fn step(&self, mut stream: &TcpStream, step: Step) -> std::io::Result<()> {
        let until = Instant::now() + RUN_MAX;
        let goes_on = || !self.over.load(Ordering::SeqCst) && Instant::now() < until;
        match step {
            Step::Take => take_request(stream),
            Step::Say(bytes) => stream.write_all(&bytes),
            Step::Flood(bytes, pause) => {
                while goes_on() {
                    stream.write_all(&bytes)?;
                    std::thread::sleep(pause);
                }
                Ok(())
            }
            Step::Silence => {
                stream.set_read_timeout(Some(Duration::from_millis(100)))?;
                while goes_on() && !matches!(stream.read(&mut [0; 64]), Ok(0)) {}
                Ok(())
            }
            Step::Reset => {
                let at_once = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(stream, at_once)?;
                stream.shutdown(std::net::Shutdown::Read)
            }
        }
    }
}

fn take_request(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])
}

/// A run against a server that takes these turns.
struct Played {
    world: World,
    done: Done,
    took: Duration,
}

fn play(dialect: &'static Dialect, turns: Vec<Turn>) -> Played {
    let world = World::new();
    let (silence, attempt) = (SILENCE.as_millis(), ATTEMPT.as_millis());
    let timeouts = format!(
        "headers = \"{silence}ms\", first_byte = \"{silence}ms\", idle = \"{silence}ms\", total = \"{attempt}ms\""
    );
    configure(&world, &format!("[models.\"{}\"]\ntimeouts = {{ {timeouts} }}\n", dialect.model));
    let number = "[tools.parameters]\ntype = \"object\"\nrequired = [\"n\"]\n[tools.parameters.properties.n]\ntype = \"integer\"\n";
    let act = tool("act", "external", "cat >> ledger; echo >> ledger", number);
    model_task(&world, dialect.model, &format!("[policy]\nallow = [\"*\"]\n{act}"));
    let server = Server::taking(dialect, turns);
    let began = Instant::now();
    let call = world.typed("longrein run --task task.toml --id w --json");
    let done = call.env(dialect.variable, server.place()).done();
    Played { world, done, took: began.elapsed() }
}

impl Played {
    /// How often `act` was done, by number.
    fn acted(&self) -> BTreeMap<usize, usize> {
        let mut acted = BTreeMap::new();
        for line in self.world.read("ledger").lines().filter(|line| !line.trim().is_empty()) {
            let request: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = request["args"]["n"].as_u64().unwrap_or_else(|| panic!("{request}"));
            *acted.entry(usize::try_from(number).unwrap()).or_default() += 1;
        }
        acted
    }

    /// What is wrong with it, if it should have ended with one of these statuses.
    fn faults(&self, statuses: &[i32], acted: &BTreeMap<usize, usize>) -> String {
        let mut faults = String::new();
        let mut fault = |what: String| writeln!(faults, "{what}").unwrap();
        if !statuses.contains(&self.done.status()) {
            fault(format!("status {}: {}", self.done.status(), self.done.stderr));
        }
        let state = self.done.json().pop().map(|last| last["state"].clone()).unwrap_or_default();
        if state.as_str().is_none_or(str::is_empty) {
            fault(format!("no state: {}", self.done.stdout));
        }
        if self.done.stderr.contains("panicked") {
            fault(self.done.stderr.clone());
        }
        if self.acted() != *acted {
            fault(format!("done were {:?}, and not {acted:?}", self.acted()));
        }
        if self.world.run("verify w").status() != 0 {
            fault("the journal is damaged".to_owned());
        }
        if self.failures().iter().any(|message| message.trim().is_empty()) {
            fault("a failure says nothing".to_owned());
        }
        faults
    }

    /// What was said of each attempt that failed.
    fn failures(&self) -> Vec<String> {
        let events = self.done.json();
        let failed = of_type(&events, "model.failed").into_iter();
        failed.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// All of it at once, a few at a time.
fn side_by_side<T: Sync>(work: &[T], each: impl Fn(&T) -> String + Sync) {
    let next = AtomicUsize::new(0);
    let faults = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..times(6, 12) {
            scope.spawn(|| {
                while let Some(one) = work.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let found = each(one);
                    faults.lock().unwrap().push_str(&found);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{faults}");
}

/// A call that must be done has the number of what came before it, and this.
const AFTER: usize = 1000;

/// A run meets one after the other, a fifth of all; each is met by one dialect, or by all in the nightly run.
#[test]
fn a_run_gets_past_whatever_a_provider_does() {
    let all = times(1, DIALECTS.len());
    let fifths: Vec<_> = (0..DIALECTS.len())
        .flat_map(|fifth| DIALECTS.iter().enumerate().map(move |(at, dialect)| (fifth, at, dialect)))
        .filter(|(fifth, at, _)| all > 1 || fifth == at)
        .collect();
    side_by_side(&fifths, |(fifth, _, dialect)| {
        let mine = |number: &usize| number % DIALECTS.len() == *fifth;
        let (mut turns, mut acted) = (Vec::new(), BTreeMap::new());
        for number in (0..SPITES.len()).filter(mine) {
            match SPITES[number].becomes {
                Becomes::Nothing => turns.extend([Turn::Spite(number), Turn::Call(AFTER + number)]),
                Becomes::Reply => turns.push(Turn::Spite(number)),
                Becomes::End(_) => continue,
            }
            let done = if SPITES[number].becomes == Becomes::Reply { number } else { AFTER + number };
            acted.insert(done, 1);
        }
        turns.push(Turn::Done);
        let played = play(dialect, turns);
        let mut faults = played.faults(&[0], &acted);
        let (failed, lost) = (played.failures().len(), acted.keys().filter(|number| **number >= AFTER).count());
        if failed != lost {
            writeln!(faults, "{failed} attempts failed, and not {lost}: {:#?}", played.failures()).unwrap();
        }
        if faults.is_empty() { faults } else { format!("--- {}:\n{faults}", dialect.model) }
    });
}

/// The same for ever: in the usual run those that end at once, by one dialect each.
#[test]
fn a_provider_that_never_stops_is_left_in_time() {
    let all = times(1, DIALECTS.len());
    let pairs: Vec<_> = (0..SPITES.len())
        .flat_map(|number| DIALECTS.iter().enumerate().map(move |(at, dialect)| (number, at, dialect)))
        .filter(|(number, at, _)| match SPITES[*number].becomes {
            Becomes::End(_) => all > 1 || number % DIALECTS.len() == *at,
            Becomes::Nothing => all > 1,
            Becomes::Reply => false,
        })
        .collect();
    side_by_side(&pairs, |(number, _, dialect)| {
        let spite = &SPITES[*number];
        let statuses: &[i32] = match &spite.becomes {
            Becomes::End(status) => std::slice::from_ref(status),
            // What may pass and does not suspends the run; what breaks the protocol, and what does not fit, ends it.
            Becomes::Nothing | Becomes::Reply => &[4, 5, 6],
        };
        let played = play(dialect, vec![Turn::Spite(*number)]);
        let mut faults = played.faults(statuses, &BTreeMap::new());
        if played.took > RUN_MAX {
            writeln!(faults, "it took {:?}", played.took).unwrap();
        }
        if faults.is_empty() { faults } else { format!("--- {}, {}:\n{faults}", dialect.model, spite.name) }
    });
}
