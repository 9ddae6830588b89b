//! Chat Completions as bytes: a request off a connection, and what goes back on it.

use std::io::{BufRead, Read};

use serde_json::{Value, json};

/// A request as it came.
pub(crate) struct Received {
    /// Method and path.
    pub(crate) what: String,
    pub(crate) body: Vec<u8>,
}

/// None: the connection was closed.
pub(crate) fn receive(reader: &mut impl BufRead) -> std::io::Result<Option<Received>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let what = line.trim_end().to_owned();
    let mut length = 0_u64;
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
            let mut body = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
            reader.take(length).read_to_end(&mut body)?;
            return Ok(Some(Received { what, body }));
        }
    }
}

/// A reply of the model: text and calls, each as id, name and arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) calls: Vec<(String, String, String)>,
}

/// What the server counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
}

/// A whole response with this reply.
pub(crate) fn reply(reply: &Reply, usage: Usage) -> Vec<u8> {
    let mut events = Vec::new();
    let content = if reply.text.is_empty() { Value::Null } else { json!(reply.text) };
    events.push(delta(&json!({ "role": "assistant", "content": content })));
    for (index, (id, name, arguments)) in reply.calls.iter().enumerate() {
        events.push(delta(&json!({ "tool_calls": [{
            "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments }
        }] })));
    }
    let reason = if reply.calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(chunk(json!([{ "index": 0, "delta": {}, "finish_reason": reason }]), Value::Null));
    let counted = json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cached },
    });
    events.push(chunk(json!([]), counted));
    let mut out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let texts = events.iter().map(ToString::to_string).chain(["[DONE]".to_owned()]);
    for text in texts.map(|text| format!("data: {text}\n\n")) {
        out.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn delta(delta: &Value) -> Value {
    chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null)
}

fn chunk(choices: Value, usage: Value) -> Value {
    let mut chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "model": "mock", "choices": choices });
    if !usage.is_null() {
        chunk["usage"] = usage;
    }
    chunk
}

/// A refusal with this body.
pub(crate) fn refusal(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// How a server says that a prompt is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    OpenAi,
    Anthropic,
    Llamacpp,
    /// A gateway that counts bytes and names no number.
    Bytes,
}

impl Wording {
    pub(crate) const ALL: [(&str, Self); 4] = [
        ("openai", Self::OpenAi),
        ("anthropic", Self::Anthropic),
        ("llamacpp", Self::Llamacpp),
        ("bytes", Self::Bytes),
    ];

    /// Whether a client can learn from it how much is served.
    pub(crate) fn names_the_limit(self) -> bool {
        self != Self::Bytes
    }

    /// The response to a prompt of `tokens` where `limit` are served.
    pub(crate) fn too_long(self, tokens: u64, limit: u64) -> Vec<u8> {
        let (status, body) = match self {
            Self::OpenAi => (
                400,
                json!({ "error": {
                    "message": format!("This model's maximum context length is {limit} tokens. However, your messages \
                                        resulted in {tokens} tokens. Please reduce the length of the messages."),
                    "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
                } }),
            ),
            Self::Anthropic => (
                400,
                json!({ "type": "error", "error": {
                    "type": "invalid_request_error",
                    "message": format!("prompt is too long: {tokens} tokens > {limit} maximum"),
                } }),
            ),
            Self::Llamacpp => (
                400,
                json!({ "error": {
                    "code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": limit,
                    "message": "the request exceeds the available context size, try increasing it",
                } }),
            ),
            Self::Bytes => (413, json!({ "error": { "message": "Request Entity Too Large" } })),
        };
        refusal(status, &body.to_string())
    }
}
