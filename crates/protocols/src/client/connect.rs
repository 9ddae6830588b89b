//! A connection to a server, and everything that ends with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use longrein_sandbox::{Companion, Spec};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{Peer, RoleClient, RunningService, serve_client};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    /// A program: started with its whole environment, in its walls.
    Stdio(Box<Spec>),
    Http(Http),
}

/// A server at an address.
#[derive(Debug, Clone)]
pub struct Http {
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, String>,
}

/// The longest message that is taken: a result of 20 MB, escaped, fits.
const MESSAGE_MAX_BYTES: usize = 64 << 20;
/// The end of what it complained about.
const STDERR_MAX_BYTES: usize = 4 * 1024;

/// A server that has been greeted.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    /// Why it is over, once it is.
    over: watch::Receiver<Option<String>>,
    stderr: Tail,
    watcher: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // with it go the service and the program
        self.watcher.abort();
    }
}

impl Connection {
    pub(super) fn is_over(&self) -> bool {
        self.over.borrow().is_some() || self.peer.is_transport_closed()
    }

    /// Returns when the server is gone, with the reason.
    pub(super) async fn over(&self) -> String {
        let mut over = self.over.clone();
        let why = over.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        self.with_complaint(&why.unwrap_or_else(|| "its connection is closed".to_owned()))
    }

    pub(super) fn with_complaint(&self, what: &str) -> String {
        with_complaint(what, &self.stderr)
    }
}

/// Starts or reaches a server and greets it.
pub(super) async fn connect(reach: &Reach) -> Result<Connection, String> {
    match reach {
        Reach::Stdio(spec) => stdio(spec).await,
        Reach::Http(http) => over_http(http).await,
    }
}

async fn stdio(spec: &Spec) -> Result<Connection, String> {
    let (companion, pipes) =
        longrein_sandbox::start(spec).await.map_err(|error| format!("it could not be started: {error}"))?;
    let stderr = Tail::default();
    let listener = tokio::spawn(listen(pipes.stderr, stderr.clone()));
    let transport = AsyncRwTransport::new_client(pipes.stdout, pipes.stdin).with_max_line_length(MESSAGE_MAX_BYTES);
    let greeted = tokio::select! {
        greeted = serve_client(us(), transport) => greeted.map_err(|error| explain(&error)),
        () = companion.ended() => Err("it ended before it answered".to_owned()),
    };
    let service = match greeted {
        Ok(service) => service,
        Err(why) => {
            // its last words may still be in the pipe
            let _ = tokio::time::timeout(LAST_WORDS, companion.ended()).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            return Err(with_complaint(&why, &stderr));
        }
    };
    Ok(watched(service, Some((companion, listener)), stderr))
}

const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(200);

async fn over_http(http: &Http) -> Result<Connection, String> {
    let client = client(&http.url)?;
    let mut headers = HashMap::new();
    for (name, value) in &http.headers {
        let name = name.parse().map_err(|_| format!("\"{name}\" is no name of a header"))?;
        let value = value.parse().map_err(|_| format!("the header {name} has a value that cannot be sent"))?;
        headers.insert(name, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(http.url.as_str())
        .custom_headers(headers)
        // it would send again what had left: a call may have happened
        .reinit_on_expired_session(false)
        .max_sse_event_size(MESSAGE_MAX_BYTES)
        .max_json_response_size(MESSAGE_MAX_BYTES);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let service = serve_client(us(), transport).await.map_err(|error| explain(&error))?;
    Ok(watched(service, None, Tail::default()))
}

/// A TLS configuration of our own: nothing process-wide is needed or installed.
fn client(url: &str) -> Result<reqwest::Client, String> {
    use rustls_platform_verifier::BuilderVerifierExt;

    let parsed = reqwest::Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let tls = if parsed.scheme() == "https" {
        tls.with_platform_verifier().map_err(|error| error.to_string())?
    } else {
        tls.with_root_certificates(rustls::RootCertStore::empty())
    };
    let host = parsed.host_str().unwrap_or_default();
    let is_here = host == "localhost"
        || host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.with_no_client_auth())
        .pool_max_idle_per_host(0)
        // a message is not sent to anybody but the one it is for
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("longrein/", env!("CARGO_PKG_VERSION")));
    if is_here {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| error.to_string())
}

/// What we say of ourselves. We offer nothing: what a server asks of us is declined.
fn us() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("longrein", env!("CARGO_PKG_VERSION")))
        .with_protocol_version(rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE)
}

fn watched(
    service: RunningService<RoleClient, ClientConfig>,
    program: Option<(Companion, JoinHandle<()>)>,
    stderr: Tail,
) -> Connection {
    let peer = service.peer().clone();
    let (tell, over) = watch::channel(None);
    let watcher = tokio::spawn(async move {
        let closed = async {
            let _ = service.waiting().await;
        };
        let why = match program {
            None => {
                closed.await;
                "the connection was closed"
            }
            Some((companion, listener)) => {
                let why = tokio::select! {
                    () = companion.ended() => "its program ended",
                    () = closed => "it closed its output",
                };
                // its last words may still be in the pipe
                let _ = tokio::time::timeout(LAST_WORDS, listener).await;
                drop(companion);
                why
            }
        };
        let _ = tell.send(Some(why.to_owned()));
    });
    Connection { peer, over, stderr, watcher }
}

/// The end of an output.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let too_many = kept.len().saturating_sub(STDERR_MAX_BYTES);
        kept.drain(..too_many);
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}

async fn listen(mut pipe: Receiver, tail: Tail) {
    let mut buffer = vec![0; 4096];
    while let Ok(bytes @ 1..) = pipe.read(&mut buffer).await {
        tail.push(&buffer[..bytes]);
    }
}

fn with_complaint(what: &str, stderr: &Tail) -> String {
    match stderr.text() {
        said if said.is_empty() => what.to_owned(),
        said => format!("{what}. It said: {said}"),
    }
}

/// Some say how to get one, some do not say anything.
fn refused_for_want_of_a_token(error: &rmcp::service::ClientInitializeError) -> bool {
    error.is_authorization_required() || error.to_string().contains("HTTP 401")
}

fn explain(error: &rmcp::service::ClientInitializeError) -> String {
    if refused_for_want_of_a_token(error) {
        return "it is not authorised: give its token in headers".to_owned();
    }
    if let rmcp::service::ClientInitializeError::ConnectionClosed(_) = error {
        return "it closed its output before it answered".to_owned();
    }
    format!("it could not be greeted: {}", super::refusal::words(error))
}
