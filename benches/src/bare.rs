//! The bare clients: the loop alone, as a good engineer would write it in an afternoon. All keep the conversation as the
//! bytes of a request that grows, run the same command each turn with the call's arguments on its standard input, and sync
//! once a turn, before the request goes out.
//!
//! *same* is the one that promises are about: the usual libraries (tokio, reqwest, SQLite), and it appends what Longrein
//! appends: as many records and bytes, the reply before the command runs, the result before the next request. *usual*
//! appends the conversation only, once a turn. *least* does with as little as is possible: blocking calls, a hand-written
//! HTTP exchange, a file that is appended to. None can be resumed; none judges, checks or watches anything.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::conversation;

/// The first argument of a process that is such a client.
pub(crate) const ROLE: &str = "--bare";

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Same,
    Usual,
    Least,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Same => "same",
            Kind::Usual => "usual",
            Kind::Least => "least",
        }
    }
}

/// Where a client finds its server.
pub(crate) const PORT: &str = "BENCH_PORT";
/// How many bytes of records Longrein appends in a turn.
pub(crate) const RECORD_BYTES: &str = "BENCH_RECORD_BYTES";

pub(crate) fn main(kind: &str) -> anyhow::Result<()> {
    let port = std::env::var(PORT)?.parse()?;
    let folder = std::env::current_dir()?;
    if kind == Kind::Least.name() {
        return least(port, folder);
    }
    let records = match std::env::var(RECORD_BYTES) {
        Ok(bytes) if kind == Kind::Same.name() => Records::LikeLongrein { bytes: bytes.parse()? },
        Ok(_) | Err(_) => Records::Conversation,
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(usual(port, folder, records))
}

/// The request as it grows: everything up to the end of the last message.
struct Body(Vec<u8>);

impl Body {
    fn new() -> Self {
        let tools = json!([{ "type": "function", "function": {
            "name": conversation::READ, "description": "The reading of one minute.",
            "parameters": { "type": "object", "properties": { "window": { "type": "string" } } }
        } }]);
        let mut body = Self(Vec::new());
        body.0.extend_from_slice(
            format!(r#"{{"model":"bench","stream":true,"stream_options":{{"include_usage":true}},"tools":{tools},"messages":["#)
                .as_bytes(),
        );
        body.0.extend_from_slice(json!({ "role": "system", "content": "Work with the tools." }).to_string().as_bytes());
        body.push(&json!({ "role": "user", "content": "Look at every reading, then say whether they are in order." }));
        body
    }

    /// Answers what was added.
    fn push(&mut self, message: &Value) -> usize {
        let from = self.0.len() + 1;
        self.0.push(b',');
        serde_json::to_writer(&mut self.0, message).expect("a JSON value is written to memory");
        from
    }

    fn request(&self) -> Vec<u8> {
        let mut request = Vec::with_capacity(self.0.len() + TAIL.len());
        request.extend_from_slice(&self.0);
        request.extend_from_slice(TAIL);
        request
    }
}

const TAIL: &[u8] = br#"],"max_tokens":4096}"#;

/// What a reply comes to.
#[derive(Default)]
struct Reply {
    text: String,
    id: String,
    name: String,
    arguments: String,
}

impl Reply {
    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let Some(data) = line.trim_end().strip_prefix("data: ").filter(|data| *data != "[DONE]") else { return Ok(()) };
        let event: Value = serde_json::from_str(data)?;
        let delta = &event["choices"][0]["delta"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.text.push_str(&text(&delta["content"]));
        let call = &delta["tool_calls"][0];
        self.id.push_str(&text(&call["id"]));
        self.name.push_str(&text(&call["function"]["name"]));
        self.arguments.push_str(&text(&call["function"]["arguments"]));
        Ok(())
    }

    fn message(&self) -> Value {
        json!({ "role": "assistant", "content": null, "tool_calls": [{
            "id": self.id, "type": "function", "function": { "name": self.name, "arguments": self.arguments }
        }] })
    }

    /// What the tool brought, in the envelope that the model is used to.
    fn observation(&self, turn: u64, output: &[u8]) -> anyhow::Result<Value> {
        let data: Value = serde_json::from_slice(output)?;
        let content = json!({
            "id": format!("a{turn}"), "ok": true, "tool": self.name, "source": "command", "at": "2026-01-01T00:00:00Z",
            "data": data,
        });
        Ok(json!({ "role": "tool", "tool_call_id": self.id, "content": content.to_string() }))
    }
}

// ---- with the usual libraries ----

/// What is appended.
#[derive(Debug, Clone, Copy)]
enum Records {
    /// What was added to the conversation since the last request, once a turn.
    Conversation,
    /// Five records a turn: three with the reply, not synced, and two with the result.
    LikeLongrein { bytes: usize },
}

/// A log in SQLite.
struct Log(rusqlite::Connection);

impl Log {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let connection = rusqlite::Connection::open(folder.join("bare.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("CREATE TABLE records (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")?;
        Ok(Self(connection))
    }

    /// One transaction.
    fn append(&self, records: &[&[u8]]) -> anyhow::Result<()> {
        self.0.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for record in records {
            self.0.prepare_cached("INSERT INTO records (body) VALUES (?1)")?.execute([record])?;
        }
        self.0.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// The same without a sync.
    fn append_unsynced(&self, records: &[&[u8]]) -> anyhow::Result<()> {
        self.0.pragma_update(None, "synchronous", "NORMAL")?;
        self.append(records)?;
        self.0.pragma_update(None, "synchronous", "FULL")?;
        Ok(())
    }
}

async fn usual(port: u16, folder: PathBuf, records: Records) -> anyhow::Result<()> {
    let log = Log::open(&folder)?;
    let record = match records {
        Records::Conversation => Vec::new(),
        Records::LikeLongrein { bytes } => vec![b'x'; bytes / 5],
    };
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let http = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().tcp_nodelay(true).build()?;
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let mut body = Body::new();
    let mut from = 0;
    for turn in 1.. {
        match records {
            Records::Conversation => log.append(&[&body.0[from..]])?,
            Records::LikeLongrein { .. } => log.append(&[&record, &record])?,
        }
        let request = http.post(&url).header("content-type", "application/json").body(body.request());
        let mut response = request.send().await?.error_for_status()?;
        let mut reply = Reply::default();
        let mut unread = Vec::new();
        while let Some(bytes) = response.chunk().await? {
            unread.extend_from_slice(&bytes);
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                reply.take(std::str::from_utf8(&line)?)?;
            }
        }
        if reply.name.is_empty() {
            return Ok(());
        }
        match records {
            Records::Conversation => {}
            Records::LikeLongrein { .. } => log.append_unsynced(&[&record, &record, &record])?,
        }
        let words = conversation::command(&reply.name);
        let mut command = tokio::process::Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = command.stdin.take() {
            // A program that does not read it may be gone by now.
            let _ = stdin.write_all(reply.arguments.as_bytes()).await;
        }
        let output = command.wait_with_output().await?;
        from = body.push(&reply.message());
        body.push(&reply.observation(turn, &output.stdout)?);
    }
    Ok(())
}

// ---- with as little as possible ----

fn least(port: u16, folder: PathBuf) -> anyhow::Result<()> {
    let mut journal: File = OpenOptions::new().create(true).append(true).open(folder.join("bare.jsonl"))?;
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut body = Body::new();
    let mut from = 0;
    for turn in 1.. {
        journal.write_all(&body.0[from..])?;
        journal.sync_data()?;
        let length = body.0.len() + TAIL.len();
        writer.write_all(
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n"
            )
            .as_bytes(),
        )?;
        writer.write_all(&body.0)?;
        writer.write_all(TAIL)?;
        let reply = read_reply(&mut reader)?;
        if reply.name.is_empty() {
            return Ok(());
        }
        let words = conversation::command(&reply.name);
        let mut command = std::process::Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = command.stdin.take() {
            let _ = stdin.write_all(reply.arguments.as_bytes());
        }
        let output = command.wait_with_output()?;
        from = body.push(&reply.message());
        body.push(&reply.observation(turn, &output.stdout)?);
    }
    Ok(())
}

fn read_reply(reader: &mut impl BufRead) -> anyhow::Result<Reply> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut reply = Reply::default();
    let mut chunk = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16).context("a chunk's length")?;
        chunk.resize(length + 2, 0);
        reader.read_exact(&mut chunk)?;
        if length == 0 {
            return Ok(reply);
        }
        std::str::from_utf8(&chunk)?.lines().try_for_each(|line| reply.take(line))?;
    }
}
