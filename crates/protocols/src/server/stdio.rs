//! The line transport: one JSON message a line, in and out. What MCP calls stdio; any pair of streams will do.

use std::sync::Arc;
use std::time::Duration;

use longrein_ports::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::message::{Incoming, Message, Refused, parse};
use super::peer::Outlet;
use super::session::Session;
use super::{GRACE, MESSAGE_MAX_BYTES, Offer, RpcError};

/// Messages that wait to be written. A client that does not read is not read from either.
const WAITING_MAX: usize = 256;
/// How long the last answers may take to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// Serves one client until its input ends, it is gone, or `stop` is asked for. What was started is brought to rest, and what
/// is being worked on is answered, before this returns.
pub async fn serve_lines(
    offer: Arc<dyn Offer>,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let (send, receive) = mpsc::channel(WAITING_MAX);
    let gone = CancellationToken::new();
    let mut writer = tokio::spawn(write(output, receive, gone.clone()));
    let session = Session::new(Arc::clone(&offer));
    let outlet: Arc<dyn Outlet> = Arc::new(Lines(send));
    let mut lines = Reader { input: BufReader::new(input), line: Vec::new(), is_too_long: false };
    let mut at_work = JoinSet::new();
    loop {
        while at_work.try_join_next().is_some() {}
        let line = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = gone.cancelled() => break,
            line = lines.next() => line,
        };
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong => {
                let problem = format!("a message has at most {MESSAGE_MAX_BYTES} bytes");
                let refused = Refused::nameless(RpcError::invalid_request(problem)).into_response();
                tokio::select! {
                    _ = outlet.send(refused) => continue,
                    () = stop.cancelled() => break,
                    () = gone.cancelled() => break,
                }
            }
            Line::End => break,
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let taken = async {
            match parse(&bytes) {
                Incoming::One(Ok(Message::Request { id, method, params })) => {
                    let (session, outlet) = (Arc::clone(&session), Arc::clone(&outlet));
                    let is_quick = Session::is_quick(&method);
                    let work = async move {
                        if let Some(response) = session.request(&id, &method, params, Arc::clone(&outlet)).await {
                            outlet.send(response).await;
                        }
                    };
                    if is_quick {
                        work.await;
                    } else {
                        at_work.spawn(work);
                    }
                }
                Incoming::One(Ok(Message::Notification { method, params })) => session.heard(&method, &params),
                Incoming::One(Ok(Message::Response { id, outcome })) => session.answered(&id, outcome),
                Incoming::One(Err(refused)) => {
                    outlet.send(refused.into_response()).await;
                }
                Incoming::Batch(messages) => {
                    let (session, outlet) = (Arc::clone(&session), Arc::clone(&outlet));
                    at_work.spawn(async move {
                        if let Some(responses) = session.batch(messages, Arc::clone(&outlet)).await {
                            outlet.send(responses).await;
                        }
                    });
                }
            }
        };
        // A client that does not read its answers must not keep the server from ending.
        tokio::select! {
            biased;
            () = taken => {}
            () = stop.cancelled() => break,
            () = gone.cancelled() => break,
        }
    }
    offer.closing().await;
    let all = async { while at_work.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        session.drop_requests();
        at_work.shutdown().await;
    }
    drop((outlet, session));
    if tokio::time::timeout(FLUSH, &mut writer).await.is_err() {
        writer.abort();
    }
}

struct Lines(mpsc::Sender<Value>);

impl Outlet for Lines {
    fn send(&self, message: Value) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.0.send(message).await.is_ok() })
    }

    fn offer(&self, message: Value) {
        // A client that does not keep up does without.
        let _ = self.0.try_send(message);
    }
}

async fn write(
    mut output: impl AsyncWrite + Unpin + Send,
    mut messages: mpsc::Receiver<Value>,
    gone: CancellationToken,
) {
    while let Some(message) = messages.recv().await {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if written.await.is_err() {
            gone.cancel();
            return;
        }
    }
}

enum Line {
    Whole(Vec<u8>),
    /// Passed over to its end.
    TooLong,
    End,
}

/// Reads lines of any bytes. Dropping a read in its midst loses nothing.
struct Reader<R> {
    input: R,
    line: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncBufRead + Unpin> Reader<R> {
    async fn next(&mut self) -> Line {
        loop {
            let (used, ended) = match self.input.fill_buf().await {
                // What cannot be read is read no more.
                Err(_) => (0, true),
                Ok([]) => (0, true),
                Ok(bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let part = &bytes[..end.unwrap_or(bytes.len())];
                    if self.line.len() + part.len() > MESSAGE_MAX_BYTES {
                        self.is_too_long = true;
                        self.line = Vec::new();
                    }
                    if !self.is_too_long {
                        self.line.extend_from_slice(part);
                    }
                    (part.len() + usize::from(end.is_some()), end.is_some())
                }
            };
            self.input.consume(used);
            if !ended {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.is_too_long) {
                return Line::TooLong;
            }
            // The last line may lack its end.
            return if used == 0 && line.is_empty() { Line::End } else { Line::Whole(line) };
        }
    }
}
