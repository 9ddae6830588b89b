//! Messages of a program, each on a line of its own. What is no message is passed over, as programs print other things too. But
//! an answer that came is never waited for: one that cannot be read ends the call that it answers, with what is wrong with it.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use longrein_core::payload::head_and_tail;
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorCode, JsonRpcError, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// The code of an answer that came and could not be read. Only ours: a server that sends it says just that.
pub(super) const UNREADABLE: ErrorCode = ErrorCode(i32::MIN);

/// A message did not leave as a whole: nobody can have read it, as it has no end.
#[derive(Debug, thiserror::Error)]
#[error("it does not read what it is sent: {0}")]
pub(super) struct NotWritten(#[source] io::Error);

/// The pipes of a program.
pub(super) struct Lines<R, W> {
    read: BufReader<R>,
    /// The line that is being read.
    line: Vec<u8>,
    /// The rest of a line that is too long is coming.
    is_discarding: bool,
    line_max_bytes: usize,
    write: Arc<Mutex<Option<W>>>,
    reader: Reader,
    /// Messages that came on one line with another.
    next: VecDeque<ServerJsonRpcMessage>,
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    pub(super) fn new(read: R, write: W, line_max_bytes: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            is_discarding: false,
            line_max_bytes,
            write: Arc::new(Mutex::new(Some(write))),
            reader: Reader::default(),
            next: VecDeque::new(),
        }
    }

    /// Reads on until a line is whole, the last one without its end too. May be dropped and called again: nothing is lost.
    async fn line(&mut self) -> io::Result<Line> {
        loop {
            let there = self.read.fill_buf().await?;
            if there.is_empty() {
                return Ok(if self.line.is_empty() || self.is_discarding { Line::End } else { Line::Whole });
            }
            let end = there.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let taken = end.unwrap_or(there.len());
            let fits = self.line.len() + taken <= self.line_max_bytes;
            if fits && !self.is_discarding {
                self.line.extend_from_slice(&there[..taken]);
            }
            self.read.consume(taken);
            let was_discarding = self.is_discarding;
            self.is_discarding = end.is_none() && (was_discarding || !fits);
            match (was_discarding, fits, end) {
                (true, _, _) | (false, true, None) => {}
                (false, false, _) => return Ok(Line::TooLong),
                (false, true, Some(_)) => return Ok(Line::Whole),
            }
        }
    }
}

enum Line {
    Whole,
    /// Its beginning is there.
    TooLong,
    End,
}

impl<R, W> Transport<RoleClient> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = NotWritten;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), NotWritten>> + Send + 'static {
        self.reader.sent(&message);
        let write = Arc::clone(&self.write);
        async move {
            let line = serde_json::to_vec(&message).map_err(|error| NotWritten(error.into()))?;
            let line = [line.as_slice(), b"\n"].concat();
            match write.lock().await.as_mut() {
                Some(write) => write.write_all(&line).await.map_err(NotWritten),
                None => Err(NotWritten(io::ErrorKind::NotConnected.into())),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.next.pop_front() {
                return Some(message);
            }
            let line = self.line().await.ok()?;
            let bytes = std::mem::take(&mut self.line);
            self.next = match line {
                Line::End => return None,
                Line::Whole => self.reader.read(&bytes),
                Line::TooLong => {
                    let what = format!("it is longer than {} bytes", self.line_max_bytes);
                    self.reader.unreadable(&bytes, &what).into_iter().collect()
                }
            };
        }
    }

    async fn close(&mut self) -> Result<(), NotWritten> {
        self.write.lock().await.take();
        Ok(())
    }
}

/// Makes messages of lines.
#[derive(Default)]
struct Reader {
    /// Requests that were sent and not answered.
    waited: HashSet<RequestId>,
    /// The beginning of what may be a message over several lines.
    held: Vec<u8>,
}

/// A message that is written over several lines says within so much whose answer it is.
const HELD_MAX_BYTES: usize = 256 * 1024;
/// Of an error that is none of the protocol's.
const ERROR_SHOWN_BYTES: usize = 1024;

impl Reader {
    fn sent(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Request(request) = message {
            self.waited.insert(request.id.clone());
        } else if let JsonRpcMessage::Notification(notification) = message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.waited.remove(id);
        }
    }

    /// The messages of a line: most often one.
    fn read(&mut self, line: &[u8]) -> VecDeque<ServerJsonRpcMessage> {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return VecDeque::new();
        }
        if let Ok(message) = serde_json::from_slice::<ServerJsonRpcMessage>(line) {
            return VecDeque::from([self.taken(message)]);
        }
        let (found, category): (VecDeque<_>, _) = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(batch)) => {
                (batch.into_iter().filter_map(|message| self.of_another_shape(message)).collect(), None)
            }
            Ok(value) => (self.of_another_shape(value).into_iter().collect(), None),
            Err(error) => {
                let category = error.classify();
                let what = match (std::str::from_utf8(line), category) {
                    (Err(_), _) => "it is not UTF-8".to_owned(),
                    (Ok(_), Category::Eof) => "it does not end on its line".to_owned(),
                    (Ok(_), Category::Syntax | Category::Data | Category::Io) => format!("it is no JSON ({error})"),
                };
                (self.unreadable(line, &what).into_iter().collect(), Some(category))
            }
        };
        if found.is_empty() { self.over_lines(line, category).into_iter().collect() } else { found }
    }

    fn taken(&mut self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        self.held.clear();
        match &message {
            JsonRpcMessage::Response(response) => self.answered(&response.id),
            JsonRpcMessage::Error(JsonRpcError { id: Some(id), .. }) => self.answered(id),
            JsonRpcMessage::Error(_) | JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        message
    }

    /// The request of ours that has this id, however it is written; it waits no longer.
    fn answered(&mut self, id: &RequestId) -> Option<RequestId> {
        let id = self.waited.iter().find(|waited| waited.to_string() == id.to_string())?.clone();
        self.waited.take(&id)
    }

    /// JSON that is no message as it stands.
    fn of_another_shape(&mut self, mut value: Value) -> Option<ServerJsonRpcMessage> {
        let members = value.as_object_mut()?;
        let is_answer =
            !members.contains_key("method") && ["result", "error"].iter().any(|key| members.contains_key(*key));
        let id = members.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        // many write down both, and one of them is nothing
        for (one, other) in [("error", "result"), ("result", "error")] {
            if members.get(one) == Some(&Value::Null) && members.contains_key(other) {
                members.remove(one);
            }
        }
        let what = match (members.get("result"), members.get("error")) {
            _ if members.get("jsonrpc") != Some(&Value::from("2.0")) => {
                "it does not say \"jsonrpc\": \"2.0\"".to_owned()
            }
            (Some(_), Some(_)) => "it has a result and an error".to_owned(),
            (None, Some(error)) => {
                let error = head_and_tail(&error.to_string(), ERROR_SHOWN_BYTES);
                format!("its error has no code and message: {error}")
            }
            (Some(_), None) | (None, None) => "it is no message of JSON-RPC".to_owned(),
        };
        match serde_json::from_value::<ServerJsonRpcMessage>(value) {
            Ok(message) => Some(self.taken(message)),
            Err(_) if is_answer => {
                let id = self.answered(&id?)?;
                Some(unread(id, &what))
            }
            Err(_) => None,
        }
    }

    /// An answer to one of our requests, in text that cannot be read as a whole.
    fn unreadable(&mut self, text: &[u8], what: &str) -> Option<ServerJsonRpcMessage> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let says = |key: &str| text.windows(key.len()).any(|window| window == key.as_bytes());
        let (is_ours, is_answer) = (says("\"jsonrpc\""), says("\"result\"") || says("\"error\""));
        let head = Head::of(text);
        let id = match head.id {
            _ if head.is_asked => return None,
            Some(id) if is_ours || is_answer => self.answered(&id)?,
            // it does not get to say to what
            None if is_ours && is_answer && self.waited.len() == 1 => self.waited.drain().next()?,
            Some(_) | None => return None,
        };
        self.held.clear();
        Some(unread(id, what))
    }

    /// A message must lie on one line: what lies on several is looked at until it says whose answer it is.
    fn over_lines(&mut self, line: &[u8], category: Option<Category>) -> Option<ServerJsonRpcMessage> {
        if line.first() == Some(&b'{') && category == Some(Category::Eof) {
            self.held.clear();
        } else if self.held.is_empty() {
            return None;
        }
        if self.held.len() + line.len() > HELD_MAX_BYTES {
            self.held.clear();
            return None;
        }
        self.held.extend_from_slice(line);
        let says_more = line.starts_with(b"}") || line.trim_ascii_start().starts_with(b"\"id\"");
        if !says_more {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        let found = self.unreadable(&held, "it lies on several lines, and a message is one line");
        if found.is_none() && !line.starts_with(b"}") {
            self.held = held;
        }
        found
    }
}

fn unread(id: RequestId, what: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(UNREADABLE, format!("its answer cannot be read: {what}"), None);
    JsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
}

/// What an object says before the place where it cannot be read.
#[derive(Default)]
struct Head {
    id: Option<RequestId>,
    /// It has a method: it is no answer.
    is_asked: bool,
}

impl Head {
    fn of(text: &[u8]) -> Self {
        let mut head = Self::default();
        // what is wrong with it is known
        let _ = Keys(&mut head).deserialize(&mut serde_json::Deserializer::from_slice(text));
        head
    }
}

struct Keys<'a>(&'a mut Head);

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<String>()? {
            match key.as_str() {
                "id" => self.0.id = serde_json::from_value(members.next_value()?).ok(),
                "method" => {
                    self.0.is_asked = true;
                    members.next_value::<IgnoredAny>()?;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ClientRequest, PingRequest};

    use super::*;

    fn waiting(ids: &[i64]) -> Reader {
        let mut reader = Reader::default();
        for id in ids {
            let ping = ClientRequest::PingRequest(PingRequest::default());
            reader.sent(&ClientJsonRpcMessage::request(ping, RequestId::Number(*id)));
        }
        reader
    }

    /// What each line of a text became: `3` an answer to that request, `3: why` one that cannot be read, else the message.
    fn check(ids: &[i64], text: &[u8], wanted: &[&str]) {
        let mut reader = waiting(ids);
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let shown = |message: ServerJsonRpcMessage| match message {
            JsonRpcMessage::Response(response) => response.id.to_string(),
            JsonRpcMessage::Error(JsonRpcError { id: Some(id), error, .. }) => match error.code {
                UNREADABLE => format!("{id}: {}", error.message),
                _ => format!("{id}: error {}", error.code.0),
            },
            other @ (JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_)) => {
                serde_json::to_string(&other).unwrap()
            }
        };
        let found: Vec<String> = lines.flat_map(|line| reader.read(line)).map(shown).collect();
        let fits = |(found, wanted): (&String, &&str)| match wanted.strip_suffix('*') {
            Some(start) => found.starts_with(start),
            None => found == wanted,
        };
        let text = String::from_utf8_lossy(text);
        assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(fits), "{text}: {found:?}");
    }

    #[test]
    fn answers_are_read_or_said_to_be_unreadable() {
        const OK: &str = r#""result":{"content":[{"type":"text","text":"x"}]}"#;
        let with = |rest: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":3,{rest}}}\n").into_bytes();
        check(&[3, 4], &with(OK), &["3"]);
        check(&[3], &[b"\xEF\xBB\xBF", &*with(OK)].concat(), &["3"]);
        check(&[3, 4], &with(&format!("{OK},\"error\":null")), &["3"]);
        check(&[3, 4], &with("\"result\":null,\"error\":{\"code\":1,\"message\":\"m\"}"), &["3: error 1"]);
        check(&[3, 4], &with("\"error\":{\"code\":1,\"message\":\"m\"}"), &["3: error 1"]);
        for (rest, what) in [
            ("\"error\":\"oops\"", "3: its answer cannot be read: its error has no code and message: \"oops\""),
            ("\"error\":{\"message\":\"oops\"}", "3: its answer cannot be read: its error has no code*"),
            ("\"result\":{\"x\":NaN}", "3: its answer cannot be read: it is no JSON*"),
            ("\"result\":{\"x\":\"a\\ud83d b\"}", "3: its answer cannot be read: it is no JSON*"),
            (
                "\"result\":{},\"error\":{\"code\":1,\"message\":\"m\"}",
                "3: its answer cannot be read: it has a result*",
            ),
            ("\"result\":{\"x\":", "3: its answer cannot be read: *"),
        ] {
            check(&[3, 4], &with(rest), &[what]);
        }
        let bytes = b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"x\":\"a\xff\xfeb\"}}\n";
        check(&[3, 4], bytes, &["3: its answer cannot be read: it is not UTF-8"]);
        check(
            &[3, 4],
            format!("{{\"id\":\"3\",{OK}}}\n").as_bytes(),
            &["3: its answer cannot be read: it does not say*"],
        );
        // whose it is comes too late, but only one waits
        let late = b"{\"jsonrpc\":\"2.0\",\"result\":{\"x\":NaN},\"id\":3}\n";
        check(&[3], late, &["3: its answer cannot be read: it is no JSON*"]);
        check(&[3, 4], late, &[]);
        let batch = format!("[{{\"jsonrpc\":\"2.0\",\"id\":3,{OK}}},{{\"jsonrpc\":\"2.0\",\"id\":4,{OK}}}]\n");
        check(&[3, 4], batch.as_bytes(), &["3", "4"]);
    }

    #[test]
    fn a_message_over_several_lines_is_told_of_and_the_next_one_is_read() {
        let value = serde_json::json!({"jsonrpc": "2.0", "id": 3, "result": {"content": [1, 2, {}], "text": "x"}});
        let last = serde_json::json!({"result": {"content": [1, 2, {}], "id": 4}, "jsonrpc": "2.0", "id": 3});
        let next = "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n";
        for value in [value, last] {
            let text = format!("{}\n{next}", serde_json::to_string_pretty(&value).unwrap());
            check(&[3, 4], text.as_bytes(), &["3: its answer cannot be read: it lies on several lines*", "4"]);
        }
        check(&[4], format!("{{\"a\":\n[]\nnull\n{next}}}\n").as_bytes(), &["4"]);
    }

    #[test]
    fn what_is_no_answer_ends_no_call() {
        for other in [
            "starting up\n",
            "{ loading: 3 }\n",
            "{\"id\":3}\n",
            "{\"level\":\"info\",\"id\":3,\"text\":\n",
            "[1, 2]\n",
            "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"x\":NaN}}\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":3,\"params\":{\"x\":NaN}}\n",
        ] {
            check(&[3, 4], other.as_bytes(), &[]);
        }
    }

    #[tokio::test]
    async fn the_last_line_counts_without_its_end_and_one_that_is_too_long_is_told_of() {
        let text =
            "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"x\":\"LONG\"}}\n{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}";
        let text = text.replace("LONG", &"y".repeat(200_000));
        let mut lines = Lines::new(text.as_bytes(), tokio::io::sink(), 100_000);
        lines.reader = waiting(&[3, 4]);
        let Some(JsonRpcMessage::Error(error)) = lines.receive().await else { panic!() };
        assert!(error.error.message.contains("longer than"), "{error:?}");
        let Some(JsonRpcMessage::Response(answer)) = lines.receive().await else { panic!() };
        assert_eq!(answer.id, RequestId::Number(4));
        assert!(lines.receive().await.is_none());
    }
}
