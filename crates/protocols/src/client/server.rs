//! One server over the life of a run.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use longrein_core::payload::Payload;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorCode, ListToolsRequest,
    PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer};
use super::connect::{Connection, Manner, Reach, connect};
use super::definition::{self, Definition, Quarantined};
use super::lines::{NotWritten, UNREADABLE};
use super::posted::NOT_KNOWN;
use super::reading::{Beside, Reading};
use super::refusal::Refusal;
use super::trouble;

/// How often a server is started again without having answered anything since.
pub const RESTARTS_MAX: u32 = 3;
/// A listing that goes on for longer never ends.
const PAGES_MAX: usize = 100;
/// More would not fit a request.
const TOOLS_MAX: usize = 1_000;

/// Times of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From its start until it has been greeted, and again for listing its tools.
    pub start: Duration,
    /// How long a call may go without any progress. None: as long as whoever calls waits.
    pub idle: Option<Duration>,
}

/// A server of somebody else's: started when it is first needed.
pub struct Server {
    name: String,
    reach: Reach,
    limits: Limits,
    manner: Manner,
    state: Mutex<State>,
    /// Told what it offers each time it was started again, and each time it says that this is another.
    listed: Arc<OnceLock<Listed>>,
}

/// Takes the tools of a server that was started again, or that said that they are others, before anything is asked of it.
pub type Listed = Box<dyn Fn(&[Definition]) + Send + Sync>;

/// Says whether a call may still be made: asked before a server is started for it, and before it leaves.
pub type May<'a> = &'a (dyn Fn() -> Result<(), String> + Send + Sync);

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Starts since it last answered.
    starts: u32,
}

/// It is not there.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Down(pub String);

/// How a call can go wrong.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// It was never sent: nothing happened.
    #[error("{0}")]
    NotSent(String),
    /// The server would not take it: it knows no such tool, or no such arguments.
    #[error("{0}")]
    Refused(String),
    /// It answered that it failed, and says no more than that.
    #[error("{0}")]
    Failed(String),
    /// It was turned away by HTTP before anything was done.
    #[error("{why}")]
    TurnedAway { status: u16, why: String, retry_after_s: Option<u64> },
    /// It was sent, and no answer came.
    #[error("{0}")]
    Lost(String),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    pub fn new(name: impl Into<String>, reach: Reach, limits: Limits) -> Self {
        let (manner, listed) = (Manner::default(), Arc::default());
        Self { name: name.into(), reach, limits, manner, state: Mutex::default(), listed }
    }

    /// With another manner than to decline everything.
    #[must_use]
    pub fn with_manner(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// From now on `listed` is told what it offers whenever it was started, or started again, or says that this is another.
    pub fn watch(&self, listed: Listed) {
        // the first one stays
        let _ = self.listed.set(listed);
    }

    /// Starts it if it is not there.
    pub async fn ready(&self) -> Result<(), Down> {
        self.connection().await.map(|_| ())
    }

    /// Whether it is there.
    pub async fn is_there(&self) -> bool {
        self.state.lock().await.connection.as_ref().is_some_and(|connection| !connection.is_over())
    }

    /// Its tools as it has them now, and those that cannot be offered.
    pub async fn tools(&self) -> Result<(Vec<Definition>, Vec<Quarantined>), Down> {
        let connection = self.connection().await?;
        match tools_of(&connection, self.limits.start).await {
            Ok(found) => {
                self.answered().await;
                Ok(found)
            }
            Err(Unlisted::Refused(challenge)) => Err(Down(self.lacks(&connection, &challenge).await)),
            Err(Unlisted::Failed(why)) => Err(Down(why)),
        }
    }

    /// What it has beside tools, as it said when it was greeted.
    pub async fn beside(&self) -> Result<Beside, Down> {
        let connection = self.connection().await?;
        let info = connection.peer.peer_info();
        let has =
            |of: fn(&rmcp::model::ServerCapabilities) -> bool| info.as_ref().is_some_and(|info| of(&info.capabilities));
        Ok(Beside { resources: has(|has| has.resources.is_some()), prompts: has(|has| has.prompts.is_some()) })
    }

    /// Calls a tool. `given_up` returns when nobody waits any more: the server is told, and the call is lost.
    pub async fn call(
        &self,
        tool: &str,
        args: &Payload,
        given_up: impl Future<Output = ()> + Send,
        may: May<'_>,
    ) -> Result<Answer, CallError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(object(args)?);
        let answered = self.ask(ClientRequest::CallToolRequest(CallToolRequest::new(params)), given_up, may).await?;
        answer::read(&answered).map_err(CallError::Failed)
    }

    /// Reads what it has beside tools.
    pub async fn read(
        &self,
        what: Reading,
        args: &Payload,
        given_up: impl Future<Output = ()> + Send,
    ) -> Result<Answer, CallError> {
        let request = what.request(&object(args)?)?;
        Ok(answer::of_reading(self.ask(request, given_up, &|| Ok(())).await?))
    }

    /// The result of a request, as it came.
    async fn ask(
        &self,
        request: ClientRequest,
        given_up: impl Future<Output = ()> + Send,
        may: May<'_>,
    ) -> Result<Value, CallError> {
        let mut given_up = std::pin::pin!(given_up);
        may().map_err(CallError::NotSent)?;
        let connection = tokio::select! {
            connection = self.connection() => connection.map_err(|down| CallError::NotSent(down.0))?,
            () = &mut given_up => return Err(CallError::NotSent("it was given up before the server was there".to_owned())),
        };
        // what it offers now is what may be called: it may have said a moment ago that this is another
        tokio::select! {
            compared = compared(&connection, &self.listed, self.limits.start) => compared.map_err(CallError::NotSent)?,
            () = &mut given_up => return Err(CallError::NotSent("it was given up before it was sent".to_owned())),
        }
        may().map_err(CallError::NotSent)?;
        let options = match self.limits.idle {
            Some(idle) => PeerRequestOptions::with_timeout(idle).reset_timeout_on_progress(),
            None => PeerRequestOptions::no_options(),
        };
        let sent = connection.peer.send_cancellable_request(request, options).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(CallError::NotSent(trouble::of_request(&error))),
        };
        // whoever stops waiting, by giving up or by going away: the server is told
        let waiting = Waiting { connection: &connection, id: Some(handle.id.clone()) };
        let idle = self.limits.idle.is_some();
        let answer = async {
            match idle {
                true => handle.await_response().await,
                false => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            }
        };
        let answered = tokio::select! {
            biased;
            answered = answer => answered,
            () = &mut given_up => return Err(CallError::Lost("nobody waited for its answer any more".to_owned())),
            why = connection.over() => {
                waiting.no_more();
                return Err(CallError::Lost(why));
            }
        };
        waiting.no_more();
        match answered {
            Ok(result) => {
                self.answered().await;
                Ok(raw(result))
            }
            Err(ServiceError::McpError(error)) => {
                self.answered().await;
                if error.code == NOT_KNOWN {
                    self.let_go(&connection).await;
                }
                Err(of_protocol(&error, &connection))
            }
            Err(ServiceError::Timeout { timeout }) => {
                Err(CallError::Lost(connection.with_complaint(&format!("it gave no sign of life for {timeout:?}"))))
            }
            // why, is known in a moment
            Err(ServiceError::TransportClosed) => Err(CallError::Lost(connection.over().await)),
            Err(ServiceError::TransportSend(error)) if error.error.is::<NotWritten>() => {
                self.let_go(&connection).await;
                Err(CallError::NotSent(connection.with_complaint("it does not read any more what it is sent")))
            }
            Err(error) => match error.auth_challenge() {
                // it was turned away at the door
                Some(challenge) => Err(CallError::NotSent(self.lacks(&connection, challenge).await)),
                None => Err(self.lost(&connection, &error).await),
            },
        }
    }

    /// Of a call that may have left.
    async fn lost(&self, connection: &Arc<Connection>, error: &ServiceError) -> CallError {
        match Refusal::of(error) {
            Some(refusal) if refusal.is_at_the_door() => {
                let Refusal { status, retry_after_s, session_is_over: _ } = refusal;
                CallError::TurnedAway { status, why: refusal.words(), retry_after_s }
            }
            Some(refusal) => {
                if refusal.session_is_over {
                    self.let_go(connection).await;
                }
                CallError::Lost(refusal.words())
            }
            // which of the two it was cannot be told
            None => CallError::Lost(connection.with_complaint(&trouble::of_request(error))),
        }
    }

    /// The next call opens a new one.
    async fn let_go(&self, connection: &Arc<Connection>) {
        self.state.lock().await.connection.take_if(|held| Arc::ptr_eq(held, connection));
    }

    /// The connection there is, or a new one.
    async fn connection(&self) -> Result<Arc<Connection>, Down> {
        let mut state = self.state.lock().await;
        if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.is_over()) {
            return Ok(Arc::clone(connection));
        }
        if state.starts > RESTARTS_MAX {
            return Err(Down(format!("it was started {} times and did not answer; it is left alone", state.starts)));
        }
        state.connection = None;
        state.starts += 1;
        let connected = tokio::time::timeout(self.limits.start, connect(&self.reach, self.manner)).await;
        let connection = match connected {
            Ok(connected) => Arc::new(connected.map_err(Down)?),
            Err(_) => return Err(Down(format!("it did not answer in {:?}", self.limits.start))),
        };
        if let Some(listed) = self.listed.get() {
            match tools_of(&connection, self.limits.start).await {
                Ok((tools, _)) => listed(&tools),
                Err(Unlisted::Refused(challenge)) => return Err(Down(self.wants(&challenge))),
                Err(Unlisted::Failed(why)) => return Err(Down(why)),
            }
        }
        state.connection = Some(Arc::clone(&connection));
        tokio::spawn(comparing(
            Arc::downgrade(&connection),
            connection.changes(),
            Arc::clone(&self.listed),
            self.limits.start,
        ));
        Ok(connection)
    }

    /// It asks for a token, or another one: the next call comes with what there is by then.
    async fn lacks(&self, connection: &Arc<Connection>, challenge: &str) -> String {
        let mut state = self.state.lock().await;
        state.starts = 0;
        if state.connection.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
            state.connection = None;
        }
        drop(state);
        self.wants(challenge)
    }

    fn wants(&self, challenge: &str) -> String {
        match &self.reach {
            Reach::Http(http) => http.lacks(challenge),
            Reach::Stdio(_) => "it asks for a token".to_owned(),
        }
    }

    async fn answered(&self) {
        self.state.lock().await.starts = 0;
    }
}

fn object(args: &Payload) -> Result<Map<String, Value>, CallError> {
    args.read().map_err(|_| CallError::NotSent("the arguments are no object".to_owned()))
}

/// A call that was sent and is not answered. Dropped, the server is told that nobody waits, without waiting for it to listen.
struct Waiting<'a> {
    connection: &'a Arc<Connection>,
    id: Option<RequestId>,
}

impl Waiting<'_> {
    fn no_more(mut self) {
        self.id = None;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let connection = Arc::clone(self.connection);
        runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), Some("nobody waits any more".to_owned()));
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.peer.notify_cancelled(params)).await;
        });
    }
}

/// Why there is no list.
enum Unlisted {
    /// With the challenge.
    Refused(String),
    Failed(String),
}

/// Its tools as it has them now, and those that cannot be offered.
async fn tools_of(connection: &Connection, within: Duration) -> Result<(Vec<Definition>, Vec<Quarantined>), Unlisted> {
    let by = Instant::now() + within;
    let listed = tokio::select! {
        biased;
        listed = timeout_at(by, listing(connection)) => listed,
        why = connection.over() => return Err(Unlisted::Failed(why)),
    };
    let entries = match listed {
        Err(_) => {
            let what = format!("it did not list its tools in {within:?}");
            return Err(Unlisted::Failed(connection.with_complaint(&what)));
        }
        Ok(Err(Unlisted::Refused(challenge))) => return Err(Unlisted::Refused(challenge)),
        Ok(Err(Unlisted::Failed(error))) => {
            return Err(Unlisted::Failed(connection.with_complaint(&format!("it did not list its tools: {error}"))));
        }
        Ok(Ok(entries)) => entries,
    };
    let (mut tools, mut bad): (Vec<Definition>, Vec<Quarantined>) = Default::default();
    for entry in &entries {
        match definition::read(entry) {
            Ok(tool) if tools.iter().any(|other| other.name == tool.name) => {
                bad.push(Quarantined { name: tool.name, why: "it has the name of another".to_owned() });
            }
            Ok(tool) => tools.push(tool),
            Err(tool) => bad.push(tool),
        }
    }
    Ok((tools, bad))
}

/// Whoever watches is told what a server offers now, if it said that this is another. Else why that could not be looked at.
async fn compared(connection: &Connection, listed: &OnceLock<Listed>, within: Duration) -> Result<(), String> {
    let Some(listed) = listed.get() else { return Ok(()) };
    let compare = async {
        match tools_of(connection, within).await {
            Ok((tools, _)) => {
                listed(&tools);
                Ok(())
            }
            Err(Unlisted::Refused(_)) => {
                Err("it says that its tools are others, and does not let us look at them".to_owned())
            }
            Err(Unlisted::Failed(why)) => Err(format!("it says that its tools are others: {why}")),
        }
    };
    connection.compared(compare).await
}

/// Compares as soon as a server says that its tools are others, as long as it is there.
async fn comparing(
    connection: Weak<Connection>,
    mut changes: watch::Receiver<u64>,
    listed: Arc<OnceLock<Listed>>,
    within: Duration,
) {
    while changes.changed().await.is_ok() {
        let Some(connection) = connection.upgrade() else { return };
        // whoever calls next is told why not
        let _ = compared(&connection, &listed, within).await;
        drop(connection);
        tokio::time::sleep(COMPARED_EVERY).await;
    }
}

/// One that says so at each listing is listed no more often than this, but for calls.
const COMPARED_EVERY: Duration = Duration::from_secs(1);

async fn listing(connection: &Connection) -> Result<Vec<Value>, Unlisted> {
    let (mut entries, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let page = match connection.peer.send_request(request).await {
            Ok(result) => raw(result),
            // it has none
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => return Ok(entries),
            Err(error) => {
                return Err(match error.auth_challenge() {
                    Some(challenge) => Unlisted::Refused(challenge.to_owned()),
                    None => Unlisted::Failed(trouble::of_request(&error)),
                });
            }
        };
        let Some(tools) = page.get("tools").and_then(Value::as_array) else {
            return Err(Unlisted::Failed("its answer has no list of tools".to_owned()));
        };
        entries.extend(tools.iter().cloned());
        if entries.len() > TOOLS_MAX {
            return Err(Unlisted::Failed(format!("it lists more than {TOOLS_MAX} tools")));
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(entries),
        }
    }
    Err(Unlisted::Failed(format!("its list has more than {PAGES_MAX} pages")))
}

/// A result as it came: what a server sends need not be what the library took it for.
fn raw(result: ServerResult) -> Value {
    serde_json::to_value(&result).unwrap_or(Value::Null)
}

fn of_protocol(error: &ErrorData, connection: &Connection) -> CallError {
    let text = match &error.data {
        Some(data) if !data.is_null() => format!("{} ({data})", error.message),
        _ => error.message.to_string(),
    };
    match error.code {
        UNREADABLE => CallError::Lost(connection.with_complaint(&text)),
        NOT_KNOWN => CallError::Lost(format!(
            "it refused the request without knowing it, and the next call opens a new session: {text}"
        )),
        ErrorCode::INVALID_PARAMS
        | ErrorCode::METHOD_NOT_FOUND
        | ErrorCode::INVALID_REQUEST
        | ErrorCode::PARSE_ERROR => CallError::Refused(text),
        _ => CallError::Failed(text),
    }
}
