//! A Chat Completions and Ollama server on loopback that plays what it is told, keeps every request, and answers 400 to one that
//! breaks the rules real providers have. A test in which it had to is a failed test.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Call, World};

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    status: u16,
    headers: Vec<(String, String)>,
    /// Pieces of the body, each sent on its own.
    pieces: Vec<Vec<u8>>,
    /// What ends a stream: finish reason, usage, mark.
    tail: Vec<Vec<u8>>,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The body ends, the connection stays.
    Whole,
    /// The connection breaks off.
    Cut,
    /// Nothing more comes.
    Stall(Duration),
}

/// A text as the answer.
pub(crate) fn text(text: &str) -> Play {
    stream(&[delta(&json!({ "role": "assistant", "content": text }))]).finish("stop")
}

/// Calls, each as id, name and arguments exactly as written.
pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Play {
    let pieces: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, arguments))| {
            let mut call = json!({
                "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            });
            if id.is_empty() {
                call.as_object_mut().unwrap().remove("id");
            }
            delta(&json!({ "tool_calls": [call] }))
        })
        .collect();
    stream(&pieces).finish("tool_calls")
}

/// A stream of events with exactly these data, and nothing after them.
pub(crate) fn raw(data: &[&str]) -> Play {
    stream(&data.iter().map(|data| (*data).to_owned()).collect::<Vec<_>>())
}

/// Ollama's rows: pieces of text, then calls as name and arguments, then the end with this reason.
pub(crate) fn rows(texts: &[&str], calls: &[(&str, Value)], reason: &str) -> Play {
    let row = |message: Value, done: Value| {
        let mut row = json!({ "model": "test", "message": message, "done": false });
        row.as_object_mut().unwrap().extend(done.as_object().unwrap().clone());
        format!("{row}\n").into_bytes()
    };
    let says = |content: &str| json!({ "role": "assistant", "content": content });
    let mut pieces: Vec<_> = texts.iter().map(|text| row(says(text), json!({}))).collect();
    pieces.extend(calls.iter().map(|(name, arguments)| {
        let call = json!({ "function": { "name": name, "arguments": arguments } });
        row(json!({ "role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call] }), json!({}))
    }));
    let end = json!({ "done": true, "done_reason": reason, "prompt_eval_count": 100, "eval_count": 10 });
    Play { status: 200, headers: Vec::new(), pieces, tail: vec![row(says(""), end)], ending: Ending::Whole }
}

/// A listing of models, as a server of that kind gives it.
pub(crate) fn listing(models: &Value) -> Play {
    Play { pieces: vec![models.to_string().into_bytes()], ..status(200, "") }
}

/// A refusal.
pub(crate) fn status(status: u16, body: &str) -> Play {
    let pieces = vec![body.as_bytes().to_vec()];
    Play { status, headers: Vec::new(), pieces, tail: Vec::new(), ending: Ending::Whole }
}

/// One choice with this delta.
pub(crate) fn delta(delta: &Value) -> String {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }).to_string()
}

fn stream(data: &[String]) -> Play {
    Play {
        status: 200,
        headers: Vec::new(),
        pieces: data.iter().map(|data| event(data)).collect(),
        tail: Vec::new(),
        ending: Ending::Whole,
    }
}

fn event(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

impl Play {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces how the stream ends: the finish reason, the usage, the mark of the end.
    pub(crate) fn finish(mut self, reason: &str) -> Self {
        let stop = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 10 } });
        self.tail = vec![event(&stop.to_string()), event(&usage.to_string()), event("[DONE]")];
        self
    }

    /// Breaks off after so many pieces.
    pub(crate) fn cut(mut self, after: usize) -> Self {
        self.pieces.truncate(after);
        self.tail.clear();
        self.ending = Ending::Cut;
        self
    }

    /// Falls silent after so many pieces.
    pub(crate) fn stall(mut self, after: usize, silence: Duration) -> Self {
        self.pieces.truncate(after);
        self.tail.clear();
        self.ending = Ending::Stall(silence);
        self
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Which connection it came over, counted from 0.
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) bytes: Vec<u8>,
}

impl Asked {
    pub(crate) fn body(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    pub(crate) fn messages(&self) -> Vec<Value> {
        self.body()["messages"].as_array().unwrap().clone()
    }

    /// The tool messages, as the model reads them.
    pub(crate) fn observations(&self) -> Vec<Value> {
        let of_tools = self.messages().into_iter().filter(|message| message["role"] == "tool");
        of_tools.map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap()).collect()
    }
}

/// Which answer a request gets.
enum Choice {
    /// One after the other; the last one for all that follow.
    InOrder(Vec<Play>),
    /// By the number of replies the conversation already has, so that a restart goes on where it was.
    ByPosition(Vec<Play>),
}

struct Shared {
    choice: Choice,
    /// Answers the first request, whatever it is.
    first: Option<Play>,
    asked: Mutex<Vec<Asked>>,
    violations: Mutex<Vec<String>>,
    connections: AtomicUsize,
    over: AtomicBool,
}

pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

impl Server {
    pub(crate) fn playing(plays: impl Into<Vec<Play>>) -> Self {
        Self::open(Choice::InOrder(plays.into()), None)
    }

    /// The very first request gets `first`, and all others the reply their conversation has come to.
    pub(crate) fn by_position(first: Play, plays: impl Into<Vec<Play>>) -> Self {
        Self::open(Choice::ByPosition(plays.into()), Some(first))
    }

    fn open(choice: Choice, first: Option<Play>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            choice,
            first,
            asked: Mutex::default(),
            violations: Mutex::default(),
            connections: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let of_listener = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if of_listener.over.load(Ordering::SeqCst) {
                    break;
                }
                let (shared, connection) = (Arc::clone(&of_listener), connection.unwrap());
                // A client that goes away ends its connection, nothing else.
                std::thread::spawn(move || drop(serve(&shared, &connection)));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// As `OLLAMA_HOST` has it.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A command whose `openai/` and `ollama/` models are here.
    pub(crate) fn call(&self, world: &World, line: &str) -> Call {
        let call = world.typed(&format!("longrein {line}")).env("OLLAMA_HOST", self.host());
        call.env("OPENAI_BASE_URL", self.url()).env("OPENAI_API_KEY", KEY)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

/// The key commands are given.
pub(crate) const KEY: &str = "sk-loopback-0123456789abcdef";

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the listener; it may be gone already.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let violations = self.shared.violations.lock().unwrap();
        if !std::thread::panicking() {
            assert!(violations.is_empty(), "a real provider would have refused: {violations:#?}");
        }
    }
}

/// All requests of one connection.
fn serve(shared: &Shared, stream: &TcpStream) -> std::io::Result<()> {
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((head, bytes)) = request(&mut reader)? {
        let violation = violation(&head, &bytes);
        let asked = Asked { connection, head, bytes };
        let play = choose(shared, asked);
        let play = match violation {
            None => play,
            Some(violation) => {
                shared.violations.lock().unwrap().push(violation.clone());
                status(400, &json!({ "error": { "message": violation } }).to_string())
            }
        };
        if !answer(stream, &play)? {
            break;
        }
    }
    Ok(())
}

fn request(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if head[before..].trim().is_empty() {
            break;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let length = if head.starts_with("GET ") { 0 } else { length.expect("a request with a body says how long it is") };
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(Some((head, bytes)))
}

fn choose(shared: &Shared, asked: Asked) -> Play {
    let mut all = shared.asked.lock().unwrap();
    let (plays, index) = match &shared.choice {
        Choice::InOrder(plays) => (plays, all.len()),
        Choice::ByPosition(plays) => {
            (plays, asked.messages().iter().filter(|message| message["role"] == "assistant").count())
        }
    };
    let is_first = all.is_empty();
    all.push(asked);
    if let Some(first) = shared.first.as_ref().filter(|_| is_first) {
        return first.clone();
    }
    plays[index.min(plays.len() - 1)].clone()
}

/// Answers whether the connection can be used again.
fn answer(mut stream: &TcpStream, play: &Play) -> std::io::Result<bool> {
    let kind = if play.status == 200 { "text/event-stream" } else { "application/json" };
    let mut head = format!("HTTP/1.1 {} .\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n", play.status);
    for (name, value) in &play.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    for piece in play.pieces.iter().chain(&play.tail).filter(|piece| !piece.is_empty()) {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
    }
    match play.ending {
        Ending::Whole => stream.write_all(b"0\r\n\r\n")?,
        Ending::Cut => {}
        Ending::Stall(silence) => std::thread::sleep(silence),
    }
    stream.flush()?;
    Ok(play.ending == Ending::Whole)
}

// ---- the rules ----

/// What a provider would refuse the request for.
fn violation(head: &str, bytes: &[u8]) -> Option<String> {
    if head.starts_with("GET /v1/models") || head.starts_with("GET /api/tags HTTP/1.1") {
        return None;
    }
    let body: Value = match serde_json::from_slice(bytes) {
        Ok(body) => body,
        Err(error) => return Some(format!("the body is no JSON: {error}")),
    };
    if head.starts_with("POST /api/chat HTTP/1.1") {
        return ollama(&body);
    }
    if !head.starts_with("POST /v1/chat/completions HTTP/1.1") {
        return Some(format!("there is no such endpoint: {}", head.lines().next().unwrap_or_default()));
    }
    tools(&body).or_else(|| messages(&body))
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn tools(body: &Value) -> Option<String> {
    let tools = body.get("tools")?.as_array()?;
    if tools.is_empty() {
        return Some("tools is empty".to_owned());
    }
    tools.iter().find_map(|tool| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        if !is_tool_name(name) {
            return Some(format!("\"{name}\" is no tool name"));
        }
        (function["parameters"]["type"] != "object").then(|| format!("the parameters of {name} are no object"))
    })
}

/// What an Ollama server, or the template of a model behind it, would refuse.
fn ollama(body: &Value) -> Option<String> {
    if body.get("model").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Some("no model is named".to_owned());
    }
    let mut open: Vec<String> = Vec::new();
    for (index, message) in body["messages"].as_array()?.iter().enumerate() {
        let wrong = |what: &str| Some(format!("messages[{index}]: {what}: {message}"));
        if !message["content"].is_string() {
            return wrong("the content is no text");
        }
        match message["role"].as_str() {
            Some("tool") => {
                if open.is_empty() || message["tool_name"] != open.remove(0).as_str() {
                    return wrong("answers no call, or another one");
                }
            }
            Some("assistant") if open.is_empty() => {
                for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                    if !call["function"]["arguments"].is_object() {
                        return wrong("cannot unmarshal arguments into an object");
                    }
                    open.push(call["function"]["name"].as_str().unwrap_or_default().to_owned());
                }
            }
            Some("user") if open.is_empty() => {}
            Some("system") if index == 0 => {}
            _ => return wrong("has no place here"),
        }
    }
    tools(body)
}

/// A part of a message: text, or an image by its URL.
fn is_part(part: &Value) -> bool {
    part["text"].as_str().is_some_and(|text| !text.is_empty()) || part["image_url"]["url"].is_string()
}

/// Every call is answered by exactly one tool message, in call order, before anything else is said.
fn messages(body: &Value) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (index, message) in body["messages"].as_array()?.iter().enumerate() {
        let wrong = |what: String| Some(format!("messages[{index}]: {what}"));
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if open.first().is_none_or(|first| first != id) {
                return wrong(format!("answers \"{id}\", and the calls that wait are {open:?}"));
            }
            open.remove(0);
            if !message["content"].is_string() {
                return wrong("a tool message without text".to_owned());
            }
            continue;
        }
        if !open.is_empty() {
            return wrong(format!("the calls {open:?} have no answer"));
        }
        match message["role"].as_str() {
            Some("system") if index == 0 => {}
            Some("user") if message["content"].as_str().is_some_and(|text| !text.is_empty()) => {}
            Some("user") if message["content"].as_array().is_some_and(|parts| parts.iter().all(is_part)) => {}
            Some("assistant") => {
                let calls = message.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
                if calls.is_empty() && message["content"].as_str().is_none() {
                    return wrong("an assistant message that says nothing".to_owned());
                }
                for call in &calls {
                    let id = call["id"].as_str().unwrap_or_default().to_owned();
                    if id.is_empty() || !seen.insert(id.clone()) {
                        return wrong(format!("the call id \"{id}\" is empty or not the only one"));
                    }
                    let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
                    if !name.as_str().is_some_and(is_tool_name) {
                        return wrong(format!("{name} is no tool name"));
                    }
                    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
                    if !parsed.is_some_and(|value| value.is_object()) {
                        return wrong(format!("the arguments {arguments} are no JSON object"));
                    }
                    open.push(id);
                }
            }
            _ => return wrong(format!("{message} has no place here")),
        }
    }
    (!open.is_empty()).then(|| format!("the calls {open:?} have no answer"))
}
