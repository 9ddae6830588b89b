//! A Chat Completions server on loopback: answers a number of requests with calls and the next with an answer, each in one
//! piece, and takes a sample of the client as requests arrive.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{conversation, process};

/// What the model does.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Replies with calls before the answer.
    pub(crate) turns: u64,
    pub(crate) tool: &'static str,
    /// Calls per reply.
    pub(crate) calls: u64,
    /// A sample is taken at every so manieth request.
    pub(crate) sample_every: u64,
    /// How long the server thinks.
    pub(crate) delay: Duration,
}

/// The client as a request arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Turns that are over.
    pub(crate) turns: u64,
    pub(crate) cpu: Duration,
    /// CPU time of the commands it ran.
    pub(crate) children: Duration,
    pub(crate) status: process::Status,
    /// Bytes of all that was said by then: what each request had more than the one before. Where one has less, the client
    /// has left turns out, and the turn that came is taken to be as long as the last one.
    pub(crate) conversation: u64,
    pub(crate) at: Instant,
}

/// A server for one client.
pub(crate) struct Server {
    pub(crate) port: u16,
    client: Arc<(Mutex<Option<u32>>, Condvar)>,
    samples: Receiver<Sample>,
}

impl Server {
    pub(crate) fn start(script: Script) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let client = Arc::new((Mutex::new(None), Condvar::new()));
        let (send, samples) = channel();
        let watched = Arc::clone(&client);
        std::thread::spawn(move || {
            let mut said = Said::default();
            // A client that opens another connection goes on where it was.
            for stream in listener.incoming().flatten() {
                // It ends with the connection.
                let _ = serve(stream, &script, &mut said, &watched, &send);
                if said.replied > script.turns {
                    return;
                }
            }
        });
        Ok(Self { port, client, samples })
    }

    /// Says whom to look at; samples wait for it.
    pub(crate) fn watch(&self, pid: u32) {
        let (client, told) = &*self.client;
        *client.lock().unwrap_or_else(PoisonError::into_inner) = Some(pid);
        told.notify_all();
    }

    /// All samples that come until the last request, or until `patience` is over.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().collect()
    }

    /// The next sample.
    pub(crate) fn next(&self, patience: Duration) -> Option<Sample> {
        self.samples.recv_timeout(patience).ok()
    }
}

/// What was said so far.
#[derive(Default)]
struct Said {
    replied: u64,
    conversation: u64,
    /// Length of the last request, and how much more it was than the one before.
    last: u64,
    grown: u64,
}

impl Said {
    fn hear(&mut self, bytes: u64) {
        if let Some(grown) = bytes.checked_sub(self.last) {
            self.grown = grown;
        }
        self.last = bytes;
        self.conversation += self.grown;
    }
}

fn serve(
    stream: TcpStream,
    script: &Script,
    said: &mut Said,
    client: &(Mutex<Option<u32>>, Condvar),
    samples: &Sender<Sample>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    while let Some(bytes) = read_request(&mut reader)? {
        said.hear(bytes);
        if said.replied.is_multiple_of(script.sample_every) || said.replied == script.turns {
            let at = Instant::now();
            let (pid, told) = client;
            let pid = pid.lock().unwrap_or_else(PoisonError::into_inner);
            let pid = told.wait_while(pid, |pid| pid.is_none()).unwrap_or_else(PoisonError::into_inner).unwrap_or(0);
            let cpu = process::cpu(pid).unwrap_or_default();
            let children = process::children(pid).unwrap_or_default();
            let conversation = said.conversation;
            let sample = Sample { turns: said.replied, cpu, children, status: process::status(pid), conversation, at };
            // Nobody asks for samples in some measurements.
            let _ = samples.send(sample);
        }
        std::thread::sleep(script.delay);
        let events = if said.replied < script.turns { calls(script, said.replied) } else { answer() };
        said.replied += 1;
        writer.write_all(&response(&events))?;
    }
    Ok(())
}

/// Reads one request to its end; answers the length of its body. None: the connection was closed.
fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<u64>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.is_empty() {
            std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
            return Ok(Some(length));
        }
    }
}

type Events = Vec<serde_json::Value>;

fn calls(script: &Script, turn: u64) -> Events {
    let mut events = vec![delta(json!({ "role": "assistant", "content": null }))];
    for index in 0..script.calls {
        let arguments = conversation::arguments(turn);
        let (first, second) = arguments.split_at(arguments.len() / 2);
        let id = format!("call_{turn}_{index}");
        let call = |function: serde_json::Value| json!({ "index": index, "function": function });
        events.push(delta(json!({ "tool_calls": [{
            "index": index, "id": id, "type": "function", "function": { "name": script.tool, "arguments": "" }
        }] })));
        events.push(delta(json!({ "tool_calls": [call(json!({ "arguments": first }))] })));
        events.push(delta(json!({ "tool_calls": [call(json!({ "arguments": second }))] })));
    }
    events.extend(end("tool_calls"));
    events
}

fn answer() -> Events {
    let mut events = vec![delta(json!({ "role": "assistant", "content": conversation::ANSWER }))];
    events.extend(end("stop"));
    events
}

fn end(reason: &str) -> [serde_json::Value; 2] {
    [
        json!({ "id": "c1", "object": "chat.completion.chunk", "model": "bench",
                "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }),
        json!({ "id": "c1", "object": "chat.completion.chunk", "model": "bench", "choices": [],
                "usage": { "prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020 } }),
    ]
}

fn delta(delta: serde_json::Value) -> serde_json::Value {
    json!({ "id": "c1", "object": "chat.completion.chunk", "model": "bench",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn response(events: &Events) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let texts = events.iter().map(ToString::to_string).chain(["[DONE]".to_owned()]);
    for text in texts.map(|text| format!("data: {text}\n\n")) {
        out.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
