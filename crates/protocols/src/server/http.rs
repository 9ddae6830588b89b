//! The streamable HTTP transport: one address, on loopback only, behind a token.
//!
//! A web page that a person looks at can reach a server on loopback; what it cannot do is leave out its `Origin`, or name
//! another `Host` than the one it believes to talk to. Both are looked at before anything else is.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming as Body;
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::message::{Incoming, Message, Refused, parse};
use super::peer::Outlet;
use super::session::{RESUMES_FROM, Session, VERSIONS};
use super::stream::Stream;
use super::{GRACE, MESSAGE_MAX_BYTES, Offer, RpcError};

/// Where it is.
const PATH: &str = "/mcp";
const CONNECTIONS_MAX: usize = 256;
const SESSIONS_MAX: usize = 64;
/// Streams of a session that have ended and may still be asked for.
const ENDED_MAX: usize = 16;
/// How long the head of a request may take to arrive, and how long its body.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const BODY_WITHIN: Duration = Duration::from_secs(60);
const HEAD_MAX_BYTES: usize = 64 * 1024;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Who may come in.
#[derive(Clone)]
pub enum Access {
    /// Who shows this token.
    Token(String),
    /// Whoever is on this machine: for tests of the transport.
    Anybody,
}

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Serves clients on a loopback address until `stop` is asked for. What was started is brought to rest before this returns.
pub async fn serve_http(
    offer: Arc<dyn Offer>,
    listener: TcpListener,
    access: Access,
    stop: CancellationToken,
) -> std::io::Result<()> {
    if !listener.local_addr()?.ip().is_loopback() {
        let problem = "an MCP server is for programs on this machine: name a loopback address";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, problem));
    }
    let server = Arc::new(Server {
        offer: Arc::clone(&offer),
        access,
        sessions: Mutex::new(BTreeMap::new()),
        at_work: TaskTracker::new(),
    });
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = CancellationToken::new();
    loop {
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = Arc::clone(&room).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (Ok(place), Ok((connection, _))) = (place, accepted) else {
            // Out of file descriptors, or a client that went at once: neither is a reason to end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (server, ended) = (Arc::clone(&server), connections.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let server = Arc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_MAX_BYTES);
            tokio::select! {
                // What breaks a connection breaks that one only.
                _ = http.serve_connection(TokioIo::new(connection), service) => {}
                () = ended.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    offer.closing().await;
    server.at_work.close();
    if tokio::time::timeout(GRACE, server.at_work.wait()).await.is_err() {
        server.sessions().values().for_each(|client| client.session.drop_requests());
    }
    // What has just been answered is on its way out.
    tokio::time::sleep(Duration::from_millis(200)).await;
    connections.cancel();
    Ok(())
}

struct Server {
    offer: Arc<dyn Offer>,
    access: Access,
    sessions: Mutex<BTreeMap<String, Arc<Client>>>,
    at_work: TaskTracker,
}

/// A session and its streams.
struct Client {
    session: Arc<Session>,
    /// What belongs to no request. Number 0.
    standing: Arc<Stream>,
    streams: Mutex<VecDeque<Arc<Stream>>>,
    next: Mutex<u64>,
    seen: Mutex<Instant>,
}

impl Client {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resumes(&self) -> bool {
        self.session.version().is_some_and(|version| version >= RESUMES_FROM)
    }

    fn new_stream(&self) -> Arc<Stream> {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let stream = Stream::new(number, self.resumes());
        let mut streams = self.streams();
        streams.push_back(Arc::clone(&stream));
        let ended = streams.iter().filter(|stream| stream.has_ended()).count();
        if ended > ENDED_MAX
            && let Some(oldest) = streams.iter().position(|stream| stream.has_ended() && !stream.is_read())
        {
            streams.remove(oldest);
        }
        stream
    }
}

impl Server {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Client>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: &Arc<Self>, request: Request<Body>) -> Reply {
        let (head, body) = request.into_parts();
        if let Err(problem) = comes_from_here(&head.headers) {
            return refused(StatusCode::FORBIDDEN, problem);
        }
        if !self.admits(&head.headers) {
            let mut reply = refused(StatusCode::UNAUTHORIZED, "name the token: Authorization: Bearer TOKEN");
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return reply;
        }
        if head.uri.path() != PATH {
            return refused(StatusCode::NOT_FOUND, "the address is /mcp");
        }
        if let Some(version) = head.headers.get(PROTOCOL_VERSION)
            && !VERSIONS.iter().any(|known| version.as_bytes() == known.as_bytes())
        {
            return refused(StatusCode::BAD_REQUEST, "this version of the protocol is not spoken here");
        }
        match head.method {
            Method::POST => self.post(&head.headers, body).await,
            Method::GET => self.get(&head.headers),
            Method::DELETE => self.delete(&head.headers),
            _ => {
                let mut reply = refused(StatusCode::METHOD_NOT_ALLOWED, "POST, GET and DELETE are known here");
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                reply
            }
        }
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        match &self.access {
            Access::Anybody => true,
            Access::Token(token) => {
                let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
                let (scheme, shown) = shown.split_at(shown.len().min(7));
                scheme.eq_ignore_ascii_case(b"bearer ") && is_same(shown, token.as_bytes())
            }
        }
    }

    /// The session a request belongs to, or why there is none.
    fn client(&self, headers: &HeaderMap) -> Result<Arc<Client>, Box<Reply>> {
        let Some(id) = headers.get(SESSION_ID) else {
            return Err(Box::new(refused(
                StatusCode::BAD_REQUEST,
                "Mcp-Session-Id is missing: initialize comes first",
            )));
        };
        let client = id.to_str().ok().and_then(|id| self.sessions().get(id).cloned());
        let Some(client) = client else {
            return Err(Box::new(refused(
                StatusCode::NOT_FOUND,
                "there is no such session (any more): initialize again",
            )));
        };
        *client.seen.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(client)
    }

    async fn post(self: &Arc<Self>, headers: &HeaderMap, body: Body) -> Reply {
        if !says(headers, &CONTENT_TYPE, "application/json") {
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
        }
        if !accepts(headers, "application/json") || !accepts(headers, "text/event-stream") {
            let problem = "Accept must list application/json and text/event-stream";
            return refused(StatusCode::NOT_ACCEPTABLE, problem);
        }
        let collected = tokio::time::timeout(BODY_WITHIN, Limited::new(body, MESSAGE_MAX_BYTES).collect()).await;
        let bytes = match collected {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                let problem = format!("a message has at most {MESSAGE_MAX_BYTES} bytes");
                return refused(StatusCode::PAYLOAD_TOO_LARGE, &problem);
            }
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "the body ended before its end"),
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        };
        match parse(&bytes) {
            Incoming::One(Err(bad)) => json_reply(StatusCode::BAD_REQUEST, &bad.into_response()),
            Incoming::One(Ok(Message::Request { id, method, params }))
                if method == "initialize" && !headers.contains_key(SESSION_ID) =>
            {
                self.initialize(&id, params).await
            }
            Incoming::One(Ok(Message::Request { id, method, params })) => {
                let client = match self.client(headers) {
                    Ok(client) => client,
                    Err(reply) => return *reply,
                };
                // By a stream, whatever the method: a client that loses its connection can come back for any answer.
                let stream = client.new_stream();
                let reply = events(&stream, 0);
                self.at_work.spawn(async move {
                    let outlet = Arc::clone(&stream) as Arc<dyn Outlet>;
                    if let Some(response) = client.session.request(&id, &method, params, outlet).await {
                        stream.send(response).await;
                    }
                    stream.end();
                });
                reply
            }
            Incoming::One(Ok(Message::Notification { method, params })) => match self.client(headers) {
                Ok(client) => {
                    client.session.heard(&method, &params);
                    empty(StatusCode::ACCEPTED)
                }
                Err(reply) => *reply,
            },
            Incoming::One(Ok(Message::Response { id, outcome })) => match self.client(headers) {
                Ok(client) => {
                    client.session.answered(&id, outcome);
                    empty(StatusCode::ACCEPTED)
                }
                Err(reply) => *reply,
            },
            Incoming::Batch(messages) => {
                let client = match self.client(headers) {
                    Ok(client) => client,
                    Err(reply) => return *reply,
                };
                let outlet = Arc::clone(&client.standing) as Arc<dyn Outlet>;
                match client.session.batch(messages, outlet).await {
                    Some(responses) => json_reply(StatusCode::OK, &responses),
                    None => empty(StatusCode::ACCEPTED),
                }
            }
        }
    }

    async fn initialize(&self, id: &Value, params: serde_json::Map<String, Value>) -> Reply {
        let session = Session::new(Arc::clone(&self.offer));
        let aside: Arc<dyn Outlet> = Stream::new(0, false);
        let Some(response) = session.request(id, "initialize", params, aside).await else {
            return empty(StatusCode::ACCEPTED);
        };
        let Some(version) = session.version() else {
            return json_reply(StatusCode::OK, &response);
        };
        let client = Arc::new(Client {
            session,
            standing: Stream::new(0, version >= RESUMES_FROM),
            streams: Mutex::default(),
            next: Mutex::new(0),
            seen: Mutex::new(Instant::now()),
        });
        let name = uuid::Uuid::now_v7().simple().to_string();
        {
            let mut sessions = self.sessions();
            if sessions.len() >= SESSIONS_MAX {
                // Whoever was silent the longest and waits for nothing.
                let seen = |client: &Client| *client.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let idle = sessions.iter().filter(|(_, client)| client.session.is_idle());
                let Some(oldest) = idle.min_by_key(|(_, client)| seen(client)).map(|(name, _)| name.clone()) else {
                    return refused(StatusCode::SERVICE_UNAVAILABLE, "all sessions are at work; try again later");
                };
                if let Some(client) = sessions.remove(&oldest) {
                    client.standing.end();
                }
            }
            sessions.insert(name.clone(), client);
        }
        let mut reply = json_reply(StatusCode::OK, &response);
        if let Ok(name) = HeaderValue::from_str(&name) {
            reply.headers_mut().insert(SESSION_ID, name);
        }
        reply
    }

    fn get(&self, headers: &HeaderMap) -> Reply {
        if !accepts(headers, "text/event-stream") {
            return refused(StatusCode::NOT_ACCEPTABLE, "Accept must list text/event-stream");
        }
        let client = match self.client(headers) {
            Ok(client) => client,
            Err(reply) => return *reply,
        };
        let Some(last) = headers.get(LAST_EVENT_ID) else {
            if client.standing.is_read() {
                return refused(StatusCode::CONFLICT, "this session is listened to already");
            }
            return events(&client.standing, client.standing.last());
        };
        let place = last.to_str().ok().and_then(|last| last.split_once('-'));
        let place = place.and_then(|(stream, event)| Some((stream.parse::<u64>().ok()?, event.parse::<u64>().ok()?)));
        let Some((number, after)) = place else {
            return refused(StatusCode::BAD_REQUEST, "Last-Event-ID is none that this server gave");
        };
        if number == 0 {
            return events(&client.standing, after);
        }
        let stream = client.streams().iter().find(|stream| stream.number() == number).cloned();
        match stream {
            Some(stream) => events(&stream, after),
            None => refused(StatusCode::NOT_FOUND, "that stream is not kept any more"),
        }
    }

    fn delete(&self, headers: &HeaderMap) -> Reply {
        match self.client(headers) {
            Ok(client) => {
                self.sessions().retain(|_, other| !Arc::ptr_eq(other, &client));
                client.session.drop_requests();
                client.standing.end();
                empty(StatusCode::NO_CONTENT)
            }
            Err(reply) => *reply,
        }
    }
}

/// Neither from a page of another host nor meant for one.
fn comes_from_here(headers: &HeaderMap) -> Result<(), &'static str> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback) {
        return Err("Host must name this machine: localhost, 127.0.0.1 or [::1]");
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let is_ours = origin.is_some_and(|(scheme, host)| matches!(scheme, "http" | "https") && is_loopback(host));
    if is_ours { Ok(()) } else { Err("pages of other hosts may not come in (Origin)") }
}

/// A host, with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port),
            None => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_here = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    port_fits && is_here
}

/// Takes the same time wherever two secrets differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn says(headers: &HeaderMap, name: &HeaderName, kind: &str) -> bool {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(kind)
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let group = kind.split('/').next().unwrap_or_default();
    headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(
        |one| {
            let one = one.split(';').next().unwrap_or_default().trim();
            one.eq_ignore_ascii_case(kind) || one == "*/*" || one.strip_suffix("/*").is_some_and(|of| of == group)
        },
    )
}

fn events(stream: &Arc<Stream>, after: u64) -> Reply {
    let mut reply = Response::new(BodyExt::boxed_unsync(StreamBody::new(stream.read(after))));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    reply
}

fn json_reply(status: StatusCode, value: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// An error of the transport, in the form that errors of the protocol have.
fn refused(status: StatusCode, problem: &str) -> Reply {
    json_reply(status, &Refused::nameless(RpcError::invalid_request(problem)).into_response())
}

fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *reply.status_mut() = status;
    reply
}
