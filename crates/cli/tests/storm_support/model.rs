//! A model on loopback that speaks Chat Completions. It knows what to propose from the conversation alone, so a restart
//! meets it where it was; and it is as strict about conversations as the strictest provider.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Calls of one reply: tool and arguments.
pub(crate) type Calls = Vec<(&'static str, Value)>;

/// What the model says to one run.
#[derive(Clone)]
pub(crate) struct Part {
    /// Its replies with calls, in order; after the last one it answers.
    pub(crate) turns: Vec<Calls>,
    pub(crate) answer: String,
    pub(crate) thinks_for: Duration,
    /// While this file is there it does not reply.
    pub(crate) held_by: PathBuf,
}

pub(crate) struct LoopbackModel {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    parts: Mutex<BTreeMap<String, Part>>,
    /// Every request, by run.
    requests: Mutex<BTreeMap<String, Vec<Value>>>,
    complaints: Mutex<Vec<String>>,
}

impl LoopbackModel {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&theirs);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn base_url(&self, run: &str) -> String {
        format!("http://{}/{run}/v1", self.address)
    }

    pub(crate) fn plays(&self, run: &str, part: Part) {
        self.shared.parts.lock().expect("no test thread panics here").insert(run.to_owned(), part);
    }

    /// The messages of every request of a run so far.
    pub(crate) fn requests(&self, run: &str) -> Vec<Value> {
        self.shared.requests.lock().expect("no test thread panics here").get(run).cloned().unwrap_or_default()
    }

    /// What was wrong with conversations it was sent.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().expect("no test thread panics here").clone()
    }
}

impl Shared {
    /// One connection. It ends when the other side is killed, at any byte.
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((run, body)) = read_request(&mut reader) {
            let (status, reply) = self.reply(&run, body);
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                reply.len()
            );
            let mut stream = stream;
            if stream.write_all(format!("{head}{reply}").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn reply(&self, run: &str, body: Value) -> (&'static str, String) {
        let part = self.parts.lock().expect("no test thread panics here").get(run).cloned();
        let Some(part) = part else { return ("404 Not Found", String::new()) };
        let closing = body.get("tools").is_none();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        {
            let mut requests = self.requests.lock().expect("no test thread panics here");
            let earlier = requests.entry(run.to_owned()).or_default();
            let problem = unpaired(&messages).or_else(|| rewritten(earlier.last(), &messages));
            earlier.push(body);
            if let Some(problem) = problem {
                self.complaints.lock().expect("no test thread panics here").push(format!("{run}: {problem}"));
                return ("400 Bad Request", json!({ "error": { "message": problem } }).to_string());
            }
        }
        thread::sleep(part.thinks_for);
        while part.held_by.exists() {
            thread::sleep(Duration::from_millis(10));
        }
        let turn = messages.iter().filter(|message| message["tool_calls"].is_array()).count();
        let message = match part.turns.get(turn) {
            Some(calls) if !closing => {
                let calls: Vec<_> = calls
                    .iter()
                    .enumerate()
                    .map(|(at, (name, args))| {
                        let function = json!({ "name": name, "arguments": args.to_string() });
                        json!({ "id": format!("c{turn}.{at}"), "type": "function", "function": function })
                    })
                    .collect();
                json!({ "role": "assistant", "content": null, "tool_calls": calls })
            }
            Some(_) | None => json!({ "role": "assistant", "content": part.answer }),
        };
        let finish = if message["tool_calls"].is_array() { "tool_calls" } else { "stop" };
        let usage = json!({ "prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940 });
        let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
        ("200 OK", json!({ "id": "x", "object": "chat.completion", "choices": [choice], "usage": usage }).to_string())
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let run = line.split('/').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((run, serde_json::from_slice(&body).ok()?))
}

/// Whether a message is one that the harness says for one request only.
fn is_tail(message: &Value) -> bool {
    message["role"] == "user" && message["content"].as_str().is_some_and(|text| text.starts_with("<longrein>\n"))
}

/// Whether some call lacks its one observation, or some observation its call. Observations stand in call order, right
/// behind the calls.
fn unpaired(messages: &[Value]) -> Option<String> {
    let mut seen = HashSet::new();
    let mut awaited: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if awaited.first().map(String::as_str) != Some(id) {
                return Some(format!("message {at} answers {id:?}, awaited: {awaited:?}"));
            }
            awaited.remove(0);
            continue;
        }
        if !awaited.is_empty() {
            return Some(format!("message {at} comes before the observations of {awaited:?}"));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            if id.is_empty() || !seen.insert(id.clone()) {
                return Some(format!("message {at} has a call id that is empty or not its own: {id:?}"));
            }
            awaited.push(id);
        }
    }
    (!awaited.is_empty()).then(|| format!("no observations of {awaited:?}"))
}

/// Whether what was sent before was changed: inside a generation a conversation only grows. The last message of a closing
/// call, which has no tools, is said for that call only; so is a tail, the harness's words behind everything else.
fn rewritten(earlier: Option<&Value>, messages: &[Value]) -> Option<String> {
    let earlier = earlier?;
    let mut before = earlier["messages"].as_array()?.as_slice();
    if earlier.get("tools").is_none() || before.last().is_some_and(is_tail) {
        before = before.split_last()?.1;
    }
    let at = before.iter().zip(messages).position(|(one, other)| one != other);
    match at {
        Some(at) => Some(format!("message {at} was {}, is {}", before[at], messages[at])),
        None if messages.len() < before.len() => Some(format!("{} messages are {}", before.len(), messages.len())),
        None => None,
    }
}
