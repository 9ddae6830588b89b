//! One connection to the proxy: one tunnel, or one plain request and its answer.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use url::Host;

use super::head::{self, Bad, HEAD_MAX_BYTES, How, Interim, Length, Wanted};
use super::pump::{self, Flow, Greeted, Way};
use super::{Answer, Shared};
use crate::address::{Astray, checked};
use crate::allowed::plain_host;
use crate::connect;

/// A connection that was asked for, written down when it ends, however it ends.
struct Entry<'a> {
    shared: &'a Shared,
    host: String,
    port: u16,
    answer: Answer,
    flow: Flow,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let (sent, received) = (self.flow.sent.load(Ordering::Relaxed), self.flow.received.load(Ordering::Relaxed));
        self.shared.write_down(std::mem::take(&mut self.host), self.port, self.answer.clone(), sent, received);
    }
}

pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(stream: S, shared: &Shared) {
    let (client, mut answer) = split(stream);
    let mut client = BufReader::new(client);
    let head = match timeout(shared.patience.head, read_head(&mut client)).await {
        Ok(Ok(Some(head))) => head,
        Ok(Ok(None) | Err(_)) => return,
        Err(_) => return refuse(&mut answer, shared, 408, "the head of the request did not come").await,
    };
    let wanted = match head.and_then(|head| head::request(&head)) {
        Ok(wanted) => wanted,
        Err(bad) => {
            shared.write_down("?".to_owned(), 0, Answer::BadRequest, 0, 0);
            return refuse(&mut answer, shared, 400, &format!("{bad}.")).await;
        }
    };
    let Wanted { host, port, how } = wanted;
    let mut entry = Entry { shared, host: host.to_string(), port, answer: Answer::NotAllowed, flow: Flow::new() };
    let server = match reach(&host, port, shared).await {
        Ok(server) => server,
        Err(Refused { status, answer: refused, why }) => {
            entry.answer = refused;
            return refuse(&mut answer, shared, status, &why).await;
        }
    };
    entry.answer = Answer::LetThrough;
    match how {
        How::Tunnel => tunnel(client, answer, server, &host, &mut entry).await,
        How::Plain { head, body } => forward(client, answer, server, &head, body, &entry).await,
    }
}

struct Refused {
    status: u16,
    answer: Answer,
    why: String,
}

/// Looked up once, checked, connected to.
async fn reach(host: &Host<String>, port: u16, shared: &Shared) -> Result<TcpStream, Refused> {
    let Some(entry) = shared.allowed.entry(host, port) else {
        let list = match shared.allowed.is_empty() {
            true => "nothing".to_owned(),
            false => shared.allowed.to_string(),
        };
        let why = format!("{host}:{port} is not among what this command may reach ({list}).");
        return Err(Refused { status: 403, answer: Answer::NotAllowed, why });
    };
    let until = Instant::now() + shared.patience.connect;
    let unreachable = |status, why: String| Refused { status, answer: Answer::Unreachable, why };
    let slow = || unreachable(504, format!("{host}:{port} could not be reached in time."));
    let refuses = |address: SocketAddr| entry.refuses(address);
    let addresses = timeout_at(until, checked(shared.resolver.as_ref(), host, port, refuses)).await;
    let addresses = addresses.map_err(|_| slow())?.map_err(|astray| match astray {
        Astray::Refused { address, why } => Refused {
            status: 403,
            answer: Answer::NotPublic(why),
            why: format!("{host}:{port} leads to {address} ({why}), which must be named by its address."),
        },
        Astray::Unknown(why) => unreachable(502, format!("{host} could not be looked up: {why}.")),
    })?;
    let left = until.saturating_duration_since(Instant::now());
    connect::first(&addresses, left).await.map_err(|error| {
        let is_slow = error.kind() == io::ErrorKind::TimedOut;
        if is_slow { slow() } else { unreachable(502, format!("{host}:{port} could not be reached: {error}.")) }
    })
}

type Client<S> = BufReader<ReadHalf<S>>;

async fn tunnel<S: AsyncRead + AsyncWrite>(
    mut client: Client<S>,
    mut answer: WriteHalf<S>,
    server: TcpStream,
    host: &Host<String>,
    entry: &mut Entry<'_>,
) {
    if answer.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
        return;
    }
    let (mut from_server, mut to_server) = server.into_split();
    let flow = &entry.flow;
    let greeted = {
        let is_host = |name: &str| plain_host(name).as_ref() == Some(host);
        let out = async {
            match pump::greeting(&mut client, &mut to_server, flow, is_host).await? {
                Greeted::Yes => pump::all(&mut client, &mut to_server, flow, Way::Out).await.map(|()| Greeted::Yes),
                Greeted::OtherName => Ok(Greeted::OtherName),
            }
        };
        let back = pump::all(&mut from_server, &mut answer, flow, Way::In);
        tokio::pin!(out, back);
        let both = async {
            let mut out_ended = None;
            let mut back_ended = false;
            loop {
                tokio::select! {
                    ended = &mut out, if out_ended.is_none() => match ended {
                        // the other way may go on
                        Ok(Greeted::Yes) => out_ended = Some(Greeted::Yes),
                        Ok(Greeted::OtherName) => return Greeted::OtherName,
                        Err(_) => return Greeted::Yes,
                    },
                    ended = &mut back, if !back_ended => match ended {
                        Ok(()) => back_ended = true,
                        Err(_) => return Greeted::Yes,
                    },
                    else => return Greeted::Yes,
                }
            }
        };
        tokio::select! {
            greeted = both => greeted,
            () = flow.silence(entry.shared.patience.idle) => Greeted::Yes,
        }
    };
    match greeted {
        Greeted::Yes => {}
        Greeted::OtherName => entry.answer = Answer::OtherName,
    }
}

async fn forward<S: AsyncRead + AsyncWrite>(
    mut client: Client<S>,
    mut answer: WriteHalf<S>,
    server: TcpStream,
    head: &str,
    length: Length,
    entry: &Entry<'_>,
) {
    let (from_server, mut to_server) = server.into_split();
    let mut from_server = BufReader::new(from_server);
    let flow = &entry.flow;
    let out = async {
        to_server.write_all(head.as_bytes()).await?;
        pump::body(&mut client, &mut to_server, flow, length).await
    };
    let back = async {
        loop {
            let head = read_head(&mut from_server).await?.unwrap_or(Err("it closed the connection"));
            match head.and_then(|head| head::response(&head)) {
                Ok((head, interim)) => {
                    answer.write_all(head.as_bytes()).await?;
                    match interim {
                        Interim::Yes => {}
                        Interim::No => break,
                    }
                }
                Err(bad) => {
                    let why = format!("The answer of the server cannot be passed on: {bad}.");
                    return answer.write_all(refusal(502, &why).as_bytes()).await;
                }
            }
        }
        pump::all(&mut from_server, &mut answer, flow, Way::In).await
    };
    tokio::pin!(out, back);
    let both = async {
        let mut sent = false;
        loop {
            tokio::select! {
                ended = &mut out, if !sent => match ended {
                    Ok(()) => sent = true,
                    // half a request is none; what the server says to it is nobody's business
                    Err(_) => return,
                },
                // an answer may come before the request has ended; then the rest of it is of no use
                _ = &mut back => return,
            }
        }
    };
    tokio::select! {
        () = both => {}
        () = flow.silence(entry.shared.patience.idle) => {}
    }
}

/// Up to the empty line, which is left out. None: nothing came at all. What follows stays in the reader.
async fn read_head(from: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<Result<Vec<u8>, Bad>>> {
    let mut head = Vec::new();
    loop {
        let room = (HEAD_MAX_BYTES - head.len()) as u64;
        let length = (&mut *from).take(room).read_until(b'\n', &mut head).await?;
        if head.ends_with(b"\r\n\r\n") {
            head.truncate(head.len() - 4);
            return Ok(Some(Ok(head)));
        }
        if length == 0 && head.is_empty() {
            return Ok(None);
        }
        if head.len() >= HEAD_MAX_BYTES {
            return Ok(Some(Err("the head is too long")));
        }
        if length == 0 {
            return Ok(Some(Err("the head ends in the middle")));
        }
    }
}

async fn refuse(to: &mut (impl AsyncWrite + Unpin), shared: &Shared, status: u16, why: &str) {
    let text = refusal(status, why);
    // a client that does not read its refusal is not waited for
    let _ = timeout(shared.patience.head, async {
        to.write_all(text.as_bytes()).await?;
        to.shutdown().await
    })
    .await;
}

fn refusal(status: u16, why: &str) -> String {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        408 => "Request Timeout",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let body = format!("Longrein's proxy: {why}\n");
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
