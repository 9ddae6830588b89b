//! The only way out for a command without a network: an HTTP proxy that lets connections through to the hosts the task
//! names, and to no others.
//!
//! It speaks HTTP/1.1 as `curl`, `git` and package managers do to a proxy: `CONNECT host:port`, and plain requests with an
//! absolute URL. A host is compared as it was asked for, looked up once, and every address it has is checked; the
//! connection goes to one of those addresses. What goes through a tunnel is not read, but for the name a TLS client asks
//! for: that must be the tunnel's host.
//!
//! Not stopped: what an allowed server does with what it is sent, and a `Host` header inside TLS that names another site of
//! the same provider (domain fronting).

mod connection;
mod head;
mod pump;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::fs::Permissions;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::address::{Resolve, SystemResolver};
use crate::allowed::Allowed;

/// So many connections are served at a time; further ones wait.
const CONNECTIONS_MAX: usize = 64;

/// So many different hosts are written down; what else was asked is counted.
const ASKED_MAX: usize = 64;

/// After a failed accept (too many open files, for example) nothing is gained by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the proxy waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the head of a request.
    pub head: Duration,
    /// For a look-up and a connection.
    pub connect: Duration,
    /// For a byte in either direction.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), connect: Duration::from_secs(10), idle: Duration::from_secs(120) }
    }
}

/// A proxy on a Unix socket of its own. Dropped, it ends with all its connections, and the socket is gone.
#[derive(Debug)]
pub struct Proxy {
    socket: PathBuf,
    shared: Arc<Shared>,
    serving: JoinHandle<Infallible>,
    /// 0700: nobody but this user gets at the socket.
    _folder: TempDir,
}

impl Proxy {
    /// Starts one, on the runtime this is called on.
    pub fn start(allowed: Allowed) -> io::Result<Self> {
        Self::start_with(Shared::new(allowed))
    }

    pub fn start_with(shared: Shared) -> io::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("longrein-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        let socket = folder.path().join("proxy");
        let listener = UnixListener::bind(&socket)?;
        let shared = Arc::new(shared);
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { socket, shared, serving, _folder: folder })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What was asked of it so far, in the order of hosts.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What all connections of one proxy have in common.
#[derive(Debug)]
pub struct Shared {
    pub(crate) allowed: Allowed,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) patience: Patience,
    book: Mutex<Book>,
}

impl Shared {
    pub fn new(allowed: Allowed) -> Self {
        Self { allowed, resolver: Arc::new(SystemResolver), patience: Patience::default(), book: Mutex::default() }
    }

    pub fn with_resolver(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    pub fn asked(&self) -> Vec<Asked> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.rows.values().cloned().collect()
    }

    pub(crate) fn write_down(&self, host: String, port: u16, answer: Answer, sent: u64, received: u64) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = book.rows.len() >= ASKED_MAX;
        let (host, port) = if is_full && !book.rows.contains_key(&(host.clone(), port, answer.clone())) {
            (OTHERS.to_owned(), 0)
        } else {
            (host, port)
        };
        let row = book.rows.entry((host.clone(), port, answer.clone())).or_insert(Asked {
            host,
            port,
            answer,
            times: 0,
            sent: 0,
            received: 0,
        });
        row.times = row.times.saturating_add(1);
        row.sent = row.sent.saturating_add(sent);
        row.received = row.received.saturating_add(received);
    }
}

/// Stands for the hosts there is no room for.
const OTHERS: &str = "others";

#[derive(Debug, Default)]
struct Book {
    rows: BTreeMap<(String, u16, Answer), Asked>,
}

/// A host that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// As it was asked for, in plain spelling. Whoever ran the command chose it: it is no more to be trusted than output.
    pub host: String,
    pub port: u16,
    pub answer: Answer,
    pub times: u32,
    /// Bytes that went to the host.
    pub sent: u64,
    /// Bytes that came from it.
    pub received: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    LetThrough,
    /// It is not on the list.
    NotAllowed,
    /// It is on the list, and leads to an address that is somebody's inside.
    NotPublic(&'static str),
    /// Let through to this host, it asked TLS for another one.
    OtherName,
    /// It could not be looked up or connected to.
    Unreachable,
    /// What was sent is no request a proxy serves.
    BadRequest,
}

/// What a command's ending says of hosts it did not get to. None: it got to all it asked for.
pub fn told(asked: &[Asked], allowed: &Allowed) -> Option<String> {
    let mut text = String::new();
    for row in asked.iter().take(TOLD_MAX) {
        let place = match row.port {
            0 => row.host.clone(),
            port => format!("{}:{port}", row.host),
        };
        let why = match row.answer {
            Answer::LetThrough => continue,
            Answer::NotAllowed => "which it may not".to_owned(),
            Answer::NotPublic(why) => format!("which leads inside ({why}) and must be named by its address"),
            Answer::OtherName => "through a tunnel to another host".to_owned(),
            Answer::Unreachable => "which could not be reached".to_owned(),
            Answer::BadRequest => "in a way the proxy does not serve".to_owned(),
        };
        let times = if row.times > 1 { format!(" {} times", row.times) } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(text, "It tried{times} to reach {place}, {why}. ");
    }
    if text.is_empty() {
        return None;
    }
    let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.to_string() };
    text.push_str(&format!("It may reach {list}."));
    Some(text)
}

/// So many hosts are told of.
const TOLD_MAX: usize = 8;

/// What a command needs in its environment to go through a proxy at this address, such as `http://127.0.0.1:3128`. Nothing
/// is exempt: there is no other way out.
pub fn proxy_env(address: &str) -> Vec<(String, String)> {
    let all = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let none = ["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new()));
    all.map(|name| (name.to_owned(), address.to_owned())).into_iter().chain(none).collect()
}

/// Where connections come from.
pub trait Listen: Send {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listen for UnixListener {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).await.map(|(stream, _)| stream)
    }
}

/// Serves until it is dropped; then all its connections end.
pub async fn serve<L: Listen>(listener: L, shared: Arc<Shared>) -> Infallible {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.expect("it is never closed");
        // those that have ended
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(stream) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    connection::serve(stream, &shared).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
