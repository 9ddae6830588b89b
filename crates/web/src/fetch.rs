//! One page, fetched: its host looked up once, every address checked, and the connection made to one of those. Redirects
//! are followed on the same host only; where one leads elsewhere, that is the answer, so that whoever ruled on this
//! address rules on the next one as well.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, LOCATION,
    RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use url::Host;

use crate::address::{Astray, PageUrl, Reach, Resolve, SystemResolver, checked};
use crate::body::{self, Body, Cut, Kind, Packing};
use crate::connect;
use crate::error::{FetchError, Why};

/// What one page may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the look-up until a connection is made.
    pub connect: Duration,
    /// From the request until the head of the answer is there.
    pub first_byte: Duration,
    /// For all of it, redirects too.
    pub total: Duration,
    /// Of a body, as it comes and unpacked.
    pub body_max_bytes: usize,
    pub head_max_bytes: usize,
    pub redirects_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(20),
            total: Duration::from_secs(60),
            body_max_bytes: 5 << 20,
            head_max_bytes: 64 << 10,
            redirects_max: 5,
        }
    }
}

/// What came of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// An answer, whatever its status.
    Page(Page),
    /// The page has moved to another host or port. Nothing was sent there.
    Moved { from: PageUrl, to: PageUrl, status: u16 },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it came from, after redirects.
    pub url: PageUrl,
    pub status: u16,
    /// The standard's words for the status.
    pub reason: &'static str,
    pub content_type: Option<String>,
    pub retry_after_s: Option<u64>,
    pub body: Body,
}

/// Fetches pages. One for a run is enough.
#[derive(Debug)]
pub struct Web {
    reach: Reach,
    resolver: Arc<dyn Resolve>,
    limits: Limits,
    /// Made at the first page that needs it: the system's certificates take time to read. The error is a text because it
    /// is told at every call.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Default for Web {
    fn default() -> Self {
        Self::reaching(Reach::Public)
    }
}

impl Web {
    pub fn reaching(reach: Reach) -> Self {
        Self { reach, resolver: Arc::new(SystemResolver), limits: Limits::default(), tls: OnceLock::new() }
    }

    pub fn with_resolver(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// With other authorities than the system's.
    pub fn with_tls(self, config: ClientConfig) -> Self {
        Self { tls: OnceLock::from(Ok(Arc::new(config))), ..self }
    }

    /// Fetches a page: nothing is sent but a GET with fixed headers.
    pub async fn fetch(&self, url: &PageUrl) -> Result<Fetched, FetchError> {
        let until = Instant::now() + self.limits.total;
        // a name is looked up once for a call: a second answer could be another
        let mut known = BTreeMap::new();
        let mut url = url.clone();
        let mut followed = 0;
        loop {
            let response = timeout_at(until, self.exchange(&url, &mut known, until))
                .await
                .unwrap_or_else(|_| Err(self.timed_out(&url, "did not answer", self.limits.total)))?;
            let Some(to) = location(&response.head) else {
                return Ok(Fetched::Page(self.page(url, response, until).await));
            };
            let redirect = |why| FetchError::Redirect { from: url.to_string(), to: shown(&to), why };
            let next = url.join(&to).map_err(|bad| redirect(Why::Bad(bad)))?;
            if url.is_https() && !next.is_https() {
                return Err(redirect(Why::Downgrade));
            }
            if !url.is_same_place(&next) {
                return Ok(Fetched::Moved { from: url, to: next, status: response.head.status().as_u16() });
            }
            if followed == self.limits.redirects_max {
                return Err(redirect(Why::TooMany(followed)));
            }
            followed += 1;
            url = next;
        }
    }

    async fn exchange(
        &self,
        url: &PageUrl,
        known: &mut BTreeMap<Host<String>, Vec<SocketAddr>>,
        until: Instant,
    ) -> Result<Answering, FetchError> {
        let connected_by = until.min(Instant::now() + self.limits.connect);
        let addresses = timeout_at(connected_by, self.addresses(url, known))
            .await
            .unwrap_or_else(|_| Err(self.timed_out(url, "was not found", self.limits.connect)))?;
        let left = connected_by.saturating_duration_since(Instant::now());
        let stream = connect::first(&addresses, left).await.map_err(|error| self.unreachable(url, &error))?;
        if url.is_https() {
            let config = self.tls().map_err(|why| FetchError::Tls { host: host(url), why })?;
            let stream = connect::secured(stream, &url.host(), config, connected_by).await.map_err(|error| {
                if error.kind() == std::io::ErrorKind::TimedOut {
                    return self.timed_out(url, "made no secure connection", self.limits.connect);
                }
                FetchError::Tls { host: host(url), why: error.to_string() }
            })?;
            self.ask(url, stream).await
        } else {
            self.ask(url, stream).await
        }
    }

    async fn addresses(
        &self,
        url: &PageUrl,
        known: &mut BTreeMap<Host<String>, Vec<SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, FetchError> {
        let (name, port) = (url.host(), url.port());
        let refuses = |address| self.reach.refuses(address);
        if let Some(addresses) = known.get(&name) {
            let addresses: Vec<_> = addresses.iter().map(|address| SocketAddr::new(address.ip(), port)).collect();
            return match addresses.iter().find_map(|address| Some((address.ip(), refuses(*address)?))) {
                None => Ok(addresses),
                Some((address, why)) => Err(FetchError::NotPublic { host: host(url), address, why }),
            };
        }
        let addresses = checked(self.resolver.as_ref(), &name, port, refuses).await.map_err(|astray| match astray {
            Astray::Refused { address, why } => FetchError::NotPublic { host: host(url), address, why },
            Astray::Unknown(why) => FetchError::Unresolved { host: host(url), why },
        })?;
        known.insert(name, addresses.clone());
        Ok(addresses)
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let made = || connect::system_tls().map(Arc::new).map_err(|error| error.to_string());
        self.tls.get_or_init(made).clone()
    }

    async fn ask<S>(&self, url: &PageUrl, stream: S) -> Result<Answering, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let protocol = |error: &hyper::Error| FetchError::Protocol { host: host(url), why: chain(error) };
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(self.limits.head_max_bytes)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| protocol(&error))?;
        let connection = Connection(tokio::spawn(async move {
            // what breaks here is told where the answer is read
            connection.await.ok();
        }));
        let request = Request::builder()
            .method(Method::GET)
            .uri(url.path_and_query())
            .header(HOST, url.authority())
            .header(USER_AGENT, concat!("longrein/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "text/html, application/json, text/*;q=0.9, */*;q=0.5")
            .header(ACCEPT_ENCODING, "gzip, deflate")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| FetchError::Protocol { host: host(url), why: error.to_string() })?;
        match timeout(self.limits.first_byte, sender.send_request(request)).await {
            Ok(Ok(head)) => Ok(Answering { head, _connection: connection }),
            Ok(Err(error)) => Err(protocol(&error)),
            Err(_) => Err(self.timed_out(url, "did not begin to answer", self.limits.first_byte)),
        }
    }

    /// Reads the rest. Whatever breaks or takes too long leaves what had come.
    async fn page(&self, url: PageUrl, answering: Answering, until: Instant) -> Page {
        let Answering { head: response, _connection } = answering;
        let status = response.status();
        let text = |name: HeaderName| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        };
        let content_type = text(CONTENT_TYPE).filter(|value| !value.is_empty());
        let retry_after_s = text(RETRY_AFTER).and_then(|value| value.parse().ok());
        let declared: Option<u64> = text(CONTENT_LENGTH).and_then(|value| value.parse().ok());
        let kind = body::kind(content_type.as_deref());
        let packing = Packing::of(text(CONTENT_ENCODING).as_deref());
        let body = match (kind, packing) {
            (Kind::Other, _) | (_, None) => Body::Other { bytes: declared },
            (Kind::Html | Kind::Text | Kind::Unknown, Some(packing)) => {
                let (bytes, cut) = self.read(response.into_body(), until).await;
                let (bytes_max, content_type) = (self.limits.body_max_bytes, content_type.clone());
                let read = tokio::task::spawn_blocking(move || {
                    let (bytes, cut) = body::unpack(bytes, packing, cut, bytes_max);
                    body::text(&bytes, content_type.as_deref(), kind, cut)
                });
                read.await.unwrap_or(Body::Other { bytes: declared })
            }
        };
        let reason = status.canonical_reason().unwrap_or("");
        Page { url, status: status.as_u16(), reason, content_type, retry_after_s, body }
    }

    async fn read(&self, mut incoming: Incoming, until: Instant) -> (Vec<u8>, Cut) {
        let bytes_max = self.limits.body_max_bytes;
        let mut bytes = Vec::new();
        loop {
            match timeout_at(until, incoming.frame()).await {
                Ok(None) => return (bytes, Cut::Whole),
                Ok(Some(Ok(frame))) => {
                    let Some(data) = frame.data_ref() else { continue };
                    let room = bytes_max - bytes.len();
                    bytes.extend_from_slice(&data[..data.len().min(room)]);
                    if data.len() > room {
                        return (bytes, Cut::TooLong { bytes: bytes_max });
                    }
                }
                Ok(Some(Err(_))) | Err(_) => {
                    let length = bytes.len();
                    return (bytes, Cut::Broken { bytes: length });
                }
            }
        }
    }

    fn timed_out(&self, url: &PageUrl, what: &'static str, limit: Duration) -> FetchError {
        FetchError::Timeout { host: host(url), what, limit }
    }

    fn unreachable(&self, url: &PageUrl, error: &std::io::Error) -> FetchError {
        if error.kind() == std::io::ErrorKind::TimedOut {
            return self.timed_out(url, "could not be reached", self.limits.connect);
        }
        FetchError::Unreachable { host: host(url), why: error.to_string() }
    }
}

/// More headers than any page has.
const HEADERS_MAX: usize = 200;

/// So much of a redirect's target is quoted.
const SHOWN_MAX_BYTES: usize = 300;

/// An answer whose head is there, on a connection that ends with it.
struct Answering {
    head: Response<Incoming>,
    _connection: Connection,
}

struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where a redirect leads.
fn location(head: &Response<Incoming>) -> Option<String> {
    match head.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => {
            head.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned())
        }
        _ => None,
    }
}

fn host(url: &PageUrl) -> String {
    url.authority().to_owned()
}

fn shown(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    clean[..clean.floor_char_boundary(SHOWN_MAX_BYTES)].to_owned()
}

/// An error with its causes.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
