//! Bytes from one side to the other, counted, with an end to silence.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::head::Length;
use crate::hello::{Greeting, Hello};

/// What went through a connection, and when something last did.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    began: Instant,
    /// Milliseconds after it began.
    last: AtomicU64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

impl Flow {
    pub(crate) fn new() -> Self {
        let zero = AtomicU64::default;
        Self { sent: zero(), received: zero(), began: Instant::now(), last: zero() }
    }

    fn moved(&self, way: Way, bytes: usize) {
        let counter = match way {
            Way::Out => &self.sent,
            Way::In => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing has moved for so long.
    pub(crate) async fn silence(&self, idle: Duration) {
        loop {
            let until = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed)) + idle;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

const BUFFER_BYTES: usize = 16 * 1024;

/// Everything there is, then the end of it.
pub(crate) async fn all(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flow: &Flow,
    way: Way,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        flow.moved(way, length);
    }
}

/// Whether a tunnel's client may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeted {
    Yes,
    /// It speaks TLS and asks for another name, or nobody can tell for which.
    OtherName,
}

/// The first bytes of a tunnel, held back until it is known whom they ask for.
pub(crate) async fn greeting(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flow: &Flow,
    is_host: impl Fn(&str) -> bool,
) -> io::Result<Greeted> {
    let mut hello = Hello::new();
    let mut held = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            // an unfinished greeting is of no use to anybody
            return if held.is_empty() { Ok(Greeted::Yes) } else { Ok(Greeted::OtherName) };
        }
        held.extend_from_slice(&buffer[..length]);
        match hello.feed(&buffer[..length]) {
            Greeting::Unfinished => continue,
            Greeting::Broken => return Ok(Greeted::OtherName),
            Greeting::Tls(Some(name)) if !is_host(&name) => return Ok(Greeted::OtherName),
            Greeting::Tls(_) | Greeting::NotTls => {}
        }
        to.write_all(&held).await?;
        flow.moved(Way::Out, held.len());
        return Ok(Greeted::Yes);
    }
}

/// The body of a request: so many bytes, or chunks, each read and written anew.
pub(crate) async fn body(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flow: &Flow,
    length: Length,
) -> io::Result<()> {
    match length {
        Length::Bytes(bytes) => exactly(from, to, flow, bytes).await?,
        Length::Chunked => loop {
            let size = chunk_size(from).await?;
            to.write_all(format!("{size:x}\r\n").as_bytes()).await?;
            exactly(from, to, flow, size).await?;
            if size == 0 {
                trailer(from).await?;
                to.write_all(b"\r\n").await?;
                break;
            }
            if line(from).await? != b"" {
                return Err(bad("a chunk is longer than it says"));
            }
            to.write_all(b"\r\n").await?;
        },
    }
    to.flush().await
}

async fn exactly(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flow: &Flow,
    bytes: u64,
) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let buffer = from.fill_buf().await?;
        if buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        to.write_all(&buffer[..length]).await?;
        from.consume(length);
        flow.moved(Way::Out, length);
        left -= length as u64;
    }
    Ok(())
}

/// Longer lines between chunks, extensions and trailers are refused.
const LINE_MAX_BYTES: u64 = 4 * 1024;

const TRAILERS_MAX: usize = 32;

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(line.to_vec()),
        None => Err(bad("a line between chunks is too long or does not end in CRLF")),
    }
}

async fn chunk_size(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<u64> {
    let line = line(from).await?;
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = std::str::from_utf8(digits).unwrap_or_default().trim_end_matches([' ', '\t']);
    let is_size = (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = is_size.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    size.ok_or_else(|| bad("a chunk without a size"))
}

/// What follows the last chunk is not passed on.
async fn trailer(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    for _ in 0..TRAILERS_MAX {
        if line(from).await? == b"" {
            return Ok(());
        }
    }
    Err(bad("too many trailers"))
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
