//! A connection to a server, and everything that ends with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use longrein_sandbox::{Companion, Spec};
use rmcp::ErrorData;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, Implementation,
};
use rmcp::service::{
    ClientInitializeError, NotificationContext, Peer, RequestContext, RoleClient, RunningService, serve_client,
};
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bound::Bound;
use super::http;
use super::keys::{Keys, Sender, scopes_of};
use super::lines::Lines;
use super::posted::Posted;
use super::trouble;

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
    /// Where its tokens are, if it may be let in by them.
    pub keys: Option<Keys>,
    /// What to do where it asks for a token and has none, or not enough.
    pub way_in: String,
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
    /// How often it has said that its tools are others now.
    changes: watch::Receiver<u64>,
    /// Which of these its tools were compared for. Held while they are.
    compared: tokio::sync::Mutex<u64>,
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

    /// How often it has said that its tools are others, as that goes on; it ends with the connection.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Has `compare` look at its tools, if they changed since that was done last.
    pub(super) async fn compared<E>(&self, compare: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let mut compared = self.compared.lock().await;
        let said = *self.changes.borrow();
        if *compared != said {
            compare.await?;
            *compared = said;
        }
        Ok(())
    }

    pub(super) fn with_complaint(&self, what: &str) -> String {
        with_complaint(what, &self.stderr)
    }
}

/// Starts or reaches a server and greets it.
pub(super) async fn connect(reach: &Reach, manner: Manner) -> Result<Connection, String> {
    match reach {
        Reach::Stdio(spec) => stdio(spec, manner).await,
        Reach::Http(http) => over_http(http, manner).await,
    }
}

async fn stdio(spec: &Spec, manner: Manner) -> Result<Connection, String> {
    let (companion, pipes) =
        longrein_sandbox::start(spec).await.map_err(|error| format!("it could not be started: {error}"))?;
    let stderr = Tail::default();
    let listener = tokio::spawn(listen(pipes.stderr, stderr.clone()));
    let lines = Lines::new(pipes.stdout, pipes.stdin, MESSAGE_MAX_BYTES);
    let (us, changes) = Us::new(manner);
    let greeted = tokio::select! {
        greeted = serve_client(us, lines) => greeted.map_err(|error| trouble::of_greeting(&error, None)),
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
    Ok(watched(service, Some((companion, listener)), stderr, changes))
}

const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(200);
/// A pipe holds little, and what is in it is read within this time, but for a process of the program's that still writes.
const LAST_ANSWERS: std::time::Duration = std::time::Duration::from_secs(1);

async fn over_http(http: &Http, manner: Manner) -> Result<Connection, String> {
    let (greeted, changes) = greeted(http, manner, Sent::Keys).await?;
    match greeted {
        Ok(service) => Ok(watched(service, None, Tail::default(), changes)),
        Err(error) => Err(explain(http, &error)),
    }
}

/// Whether a token is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Keys,
    NoKeys,
}

type Greeted = Result<RunningService<RoleClient, Us>, ClientInitializeError>;

/// The outer error: nothing was sent.
async fn greeted(http: &Http, manner: Manner, sent: Sent) -> Result<(Greeted, watch::Receiver<u64>), String> {
    let client = http::client(&http.url)?;
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
    let sender = match &http.keys {
        Some(keys) if sent == Sent::Keys => keys.sender().await?,
        Some(_) | None => None,
    };
    let (us, changes) = Us::new(manner);
    let greeted = match sender {
        Some(Sender { manager, prover: Some(prover) }) => {
            let client = AuthClient::new(Bound { client, prover: Arc::new(prover) }, manager);
            serve_client(us, StreamableHttpClientTransport::with_client(Posted(client), config)).await
        }
        Some(Sender { manager, prover: None }) => {
            let client = AuthClient::new(client, manager);
            serve_client(us, StreamableHttpClientTransport::with_client(Posted(client), config)).await
        }
        None => serve_client(us, StreamableHttpClientTransport::with_client(Posted(client), config)).await,
    };
    Ok((greeted, changes))
}

/// What a server answers to one without a key: None, it lets everybody in; else its challenge, which may be empty.
pub(super) async fn challenge(http: &Http) -> Result<Option<String>, String> {
    let (greeted, _) = greeted(http, Manner::default(), Sent::NoKeys).await?;
    match greeted {
        Err(error) => match error.auth_challenge() {
            Some(said) => Ok(Some(said.to_owned())),
            None if refused_for_want_of_a_token(&error) => Ok(Some(String::new())),
            None => Err(explain(http, &error)),
        },
        // some greet everybody, and ask afterwards
        Ok(service) => match service.peer().list_tools(None).await {
            Err(error) => Ok(error.auth_challenge().map(str::to_owned)),
            Ok(_) => Ok(None),
        },
    }
}

/// What we do where a server asks for something.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    pub elicitation: Elicitation,
}

/// What becomes of a server's questions to a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Elicitation {
    /// We say that nobody can be asked, and decline.
    #[default]
    Declined,
    /// A form is answered with the defaults it names itself, if they are all it needs.
    Defaults,
}

/// We offer nothing else: what a server asks of us is declined.
struct Us {
    manner: Manner,
    changes: watch::Sender<u64>,
}

impl Us {
    /// With how often the server has said that its tools are others.
    fn new(manner: Manner) -> (Self, watch::Receiver<u64>) {
        let (changes, seen) = watch::channel(0);
        (Self { manner, changes }, seen)
    }
}

impl ClientHandler for Us {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = match self.manner.elicitation {
            Elicitation::Declined => None,
            Elicitation::Defaults => Some(ElicitationCapability::new().with_form(FormElicitationCapability::new())),
        };
        ClientConfig::new(capabilities, Implementation::new("longrein", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) -> impl Future<Output = ()> + Send + '_ {
        self.changes.send_modify(|times| *times += 1);
        std::future::ready(())
    }

    fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<ElicitResult, ErrorData>> + Send + '_ {
        let content = match (self.manner.elicitation, &request) {
            (Elicitation::Defaults, ElicitRequestParams::FormElicitationParams { requested_schema, .. }) => {
                serde_json::to_value(requested_schema).ok().and_then(|schema| defaults(&schema))
            }
            _ => None,
        };
        std::future::ready(Ok(match content {
            Some(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            None => ElicitResult::new(ElicitationAction::Decline),
        }))
    }
}

/// The defaults of a form. None: it needs more than they say.
fn defaults(schema: &Value) -> Option<Value> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let defaults: Map<String, Value> = properties
        .iter()
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())))
        .collect();
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    required
        .all(|name| name.as_str().is_some_and(|name| defaults.contains_key(name)))
        .then_some(Value::Object(defaults))
}

fn watched(
    service: RunningService<RoleClient, Us>,
    program: Option<(Companion, JoinHandle<()>)>,
    stderr: Tail,
    changes: watch::Receiver<u64>,
) -> Connection {
    let peer = service.peer().clone();
    let (tell, over) = watch::channel(None);
    let watcher = tokio::spawn(async move {
        let mut closed = std::pin::pin!(async {
            let _ = service.waiting().await;
        });
        let why = match program {
            None => {
                closed.await;
                "the connection was closed"
            }
            Some((companion, listener)) => {
                // what it answered before its end counts: the pipe is read to its end first
                let has_ended = tokio::select! {
                    () = companion.ended() => {
                        let _ = tokio::time::timeout(LAST_ANSWERS, closed).await;
                        true
                    }
                    () = &mut closed => tokio::time::timeout(LAST_WORDS, companion.ended()).await.is_ok(),
                };
                let why = if has_ended { "its program ended" } else { "it closed its output" };
                // its last words may still be in the pipe
                let _ = tokio::time::timeout(LAST_WORDS, listener).await;
                drop(companion);
                why
            }
        };
        let _ = tell.send(Some(why.to_owned()));
    });
    Connection { peer, over, changes, compared: tokio::sync::Mutex::new(0), stderr, watcher }
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
fn refused_for_want_of_a_token(error: &ClientInitializeError) -> bool {
    error.is_authorization_required() || error.to_string().contains("HTTP 401")
}

fn explain(http: &Http, error: &ClientInitializeError) -> String {
    match error.auth_challenge() {
        Some(said) => http.lacks(said),
        None if refused_for_want_of_a_token(error) => http.lacks(""),
        None => trouble::of_greeting(error, place_of(&http.url).as_deref()),
    }
}

impl Http {
    /// Words for a server that asks for a token that is not there, or not enough; what it asks for is noted.
    pub(super) fn lacks(&self, challenge: &str) -> String {
        let (way_in, scopes) = (&self.way_in, scopes_of(challenge));
        if !challenge.contains("insufficient_scope") {
            return format!("it is not authorised: {way_in}");
        }
        if let Some(keys) = &self.keys {
            keys.want(challenge);
        }
        match scopes.is_empty() {
            true => format!("its token does not allow this: {way_in}"),
            false => {
                format!("its token does not allow this, it asks for {}: {way_in}", scopes.join(" ").escape_debug())
            }
        }
    }
}

/// Host and port of a server.
fn place_of(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_answered_with_its_own_words_or_not_at_all() {
        let form = |required: Value| {
            json!({"type": "object", "required": required, "properties": {
                "a": {"type": "string", "default": "x"}, "b": {"type": "number"}, "c": {"type": "boolean", "default": false}}})
        };
        assert_eq!(defaults(&form(json!(["a"]))), Some(json!({"a": "x", "c": false})));
        assert_eq!(defaults(&form(json!(["a", "b"]))), None);
        assert_eq!(defaults(&json!({"type": "object"})), None);
    }
}
