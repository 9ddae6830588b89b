//! One client's session: what it negotiated, what is worked on for it, and which method does what.
//!
//! Knows no transport. A request in flight is known by its id; a cancelled one is dropped and not answered.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::join_all;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::message::{Message, Refused, response};
use super::peer::Outlet;
use super::{Level, Offer, Peer, REQUESTS_MAX, RpcError};

/// The versions of the protocol that are spoken, the newest first.
pub const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The first version whose streams a client can come back to.
pub(crate) const RESUMES_FROM: &str = "2025-11-25";
/// The last version in which messages come in batches.
const BATCHES_UNTIL: &str = "2025-03-26";
/// Items of one page of a listing.
pub(crate) const PAGE_MAX: usize = 100;

type Answer = Result<Value, Value>;

pub(crate) struct Session {
    offer: Arc<dyn Offer>,
    state: Mutex<State>,
}

struct State {
    version: Option<&'static str>,
    level: Level,
    /// By id, as JSON text: 1 and "1" are two ids.
    running: BTreeMap<String, CancellationToken>,
    /// Our own requests.
    asked: BTreeMap<String, oneshot::Sender<Answer>>,
    asks: u64,
}

/// Takes a request off the list however it ends.
struct Running<'a> {
    session: &'a Session,
    key: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.session.state().running.remove(&self.key);
    }
}

impl Session {
    pub(crate) fn new(offer: Arc<dyn Offer>) -> Arc<Self> {
        let state =
            State { version: None, level: Level::Info, running: BTreeMap::new(), asked: BTreeMap::new(), asks: 0 };
        Arc::new(Self { offer, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn level(&self) -> Level {
        self.state().level
    }

    /// The version that was agreed on. None: not yet.
    pub(crate) fn version(&self) -> Option<&'static str> {
        self.state().version
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state().running.is_empty()
    }

    /// A new request of ours: its id, and where its answer will be.
    pub(crate) fn asks(&self) -> (String, oneshot::Receiver<Answer>) {
        let (send, receive) = oneshot::channel();
        let mut state = self.state();
        state.asks += 1;
        let id = format!("longrein-{}", state.asks);
        state.asked.insert(id.clone(), send);
        (id, receive)
    }

    pub(crate) fn forget(&self, id: &str) {
        self.state().asked.remove(id);
    }

    /// Drops all that is worked on.
    pub(crate) fn drop_requests(&self) {
        self.state().running.values().for_each(CancellationToken::cancel);
    }

    /// The client said something that is not answered.
    pub(crate) fn heard(&self, method: &str, params: &Map<String, Value>) {
        if method == "notifications/cancelled"
            && let Some(id) = params.get("requestId")
            && let Some(token) = self.state().running.get(&id.to_string())
        {
            token.cancel();
        }
    }

    /// The client answered one of our requests. What nobody asked for is passed over.
    pub(crate) fn answered(&self, id: &Value, answer: Answer) {
        let waiting = id.as_str().and_then(|id| self.state().asked.remove(id));
        if let Some(waiting) = waiting {
            // Whoever asked may have been cancelled.
            let _ = waiting.send(answer);
        }
    }

    /// Whether a method is answered from memory: such requests are answered in the order they came in.
    pub(crate) fn is_quick(method: &str) -> bool {
        !matches!(method, "tools/call" | "resources/read" | "resources/list" | "prompts/get" | "completion/complete")
    }

    /// The response to a request. None: it was cancelled, and nobody waits for one.
    pub(crate) async fn request(
        self: &Arc<Self>,
        id: &Value,
        method: &str,
        params: Map<String, Value>,
        outlet: Arc<dyn Outlet>,
    ) -> Option<Value> {
        let token = CancellationToken::new();
        let key = id.to_string();
        {
            let mut state = self.state();
            let refused = if state.running.contains_key(&key) {
                Some(RpcError::invalid_request("a request with this id is worked on already"))
            } else if state.running.len() >= REQUESTS_MAX && !Self::is_quick(method) {
                let problem = format!("{REQUESTS_MAX} requests are worked on already; wait for one of them to end");
                Some(RpcError::busy(problem))
            } else {
                None
            };
            if let Some(refused) = refused {
                return Some(response(id, &Err(refused)));
            }
            state.running.insert(key.clone(), token.clone());
        }
        let _running = Running { session: self, key };
        let progress = params.get("_meta").and_then(|meta| meta.get("progressToken"));
        let progress = progress.filter(|token| token.is_string() || token.is_number()).cloned();
        let peer = Peer::new(Arc::clone(self), outlet, progress);
        // A fault of ours in one request is no reason not to answer the others.
        let work = AssertUnwindSafe(self.dispatch(method, params, &peer)).catch_unwind();
        let outcome = tokio::select! {
            biased;
            () = token.cancelled() => return None,
            outcome = work => outcome,
        };
        let outcome = outcome.unwrap_or_else(|_| Err(RpcError::internal("this server failed; other requests go on")));
        Some(response(id, &outcome))
    }

    /// The responses to a batch, as one array. None: nothing in it is answered.
    pub(crate) async fn batch(
        self: &Arc<Self>,
        messages: Vec<Result<Message, Refused>>,
        outlet: Arc<dyn Outlet>,
    ) -> Option<Value> {
        let version = self.version();
        if version.is_none_or(|version| version > BATCHES_UNTIL) {
            let problem = match version {
                Some(version) => format!("there are no batches in version {version} of the protocol"),
                None => "initialize comes first, and in no batch".to_owned(),
            };
            return Some(Refused::nameless(RpcError::invalid_request(problem)).into_response());
        }
        let each = messages.into_iter().map(|message| {
            let outlet = Arc::clone(&outlet);
            async move {
                match message {
                    Err(refused) => Some(refused.into_response()),
                    Ok(Message::Request { id, method, .. }) if method == "initialize" => {
                        let error = RpcError::invalid_request("initialize comes in no batch");
                        Some(response(&id, &Err(error)))
                    }
                    Ok(Message::Request { id, method, params }) => self.request(&id, &method, params, outlet).await,
                    Ok(Message::Notification { method, params }) => {
                        self.heard(&method, &params);
                        None
                    }
                    Ok(Message::Response { id, outcome }) => {
                        self.answered(&id, outcome);
                        None
                    }
                }
            }
        });
        let responses: Vec<Value> = join_all(each).await.into_iter().flatten().collect();
        (!responses.is_empty()).then_some(Value::Array(responses))
    }

    async fn dispatch(&self, method: &str, params: Map<String, Value>, peer: &Peer) -> Result<Value, RpcError> {
        match method {
            "initialize" => return self.initialize(&params),
            "ping" => return Ok(json!({})),
            _ if self.version().is_none() => {
                return Err(RpcError::invalid_request("initialize comes first"));
            }
            _ => {}
        }
        let text = |name: &str| match params.get(name) {
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(RpcError::invalid_params(format!("\"{name}\" must be a string"))),
            None => Err(RpcError::invalid_params(format!("\"{name}\" is missing"))),
        };
        let cursor = || match params.get("cursor") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(cursor)) => Ok(Some(cursor.as_str())),
            Some(_) => Err(RpcError::invalid_params("\"cursor\" must be a string")),
        };
        match method {
            "tools/list" => {
                let tools = self.offer.tools().iter().map(super::ToolDef::to_value).collect();
                page("tools", tools, "name", cursor()?)
            }
            "tools/call" => {
                let name = text("name")?;
                let arguments = match params.get("arguments") {
                    None | Some(Value::Null) => Map::new(),
                    Some(Value::Object(arguments)) => arguments.clone(),
                    Some(_) => return Err(RpcError::invalid_params("\"arguments\" must be an object")),
                };
                let tools = self.offer.tools();
                if !tools.iter().any(|tool| tool.name == name) {
                    return Err(RpcError::invalid_params(unknown_tool(name, &tools)));
                }
                Ok(self.offer.call(name, arguments, peer).await?.into_value())
            }
            "resources/list" => {
                let page = self.offer.resources(cursor()?).await?;
                Ok(paged("resources", page.items, page.next))
            }
            "resources/templates/list" => page("resourceTemplates", self.offer.templates(), "uriTemplate", cursor()?),
            "resources/read" => Ok(json!({ "contents": self.offer.read(text("uri")?).await? })),
            "resources/subscribe" | "resources/unsubscribe" => {
                self.offer.subscribe(text("uri")?)?;
                Ok(json!({}))
            }
            "prompts/list" => match self.offer.prompts() {
                Some(prompts) => page("prompts", prompts, "name", cursor()?),
                None => Err(RpcError::method_not_found(method)),
            },
            "prompts/get" => {
                let arguments = match params.get("arguments") {
                    None | Some(Value::Null) => Map::new(),
                    Some(Value::Object(arguments)) => arguments.clone(),
                    Some(_) => return Err(RpcError::invalid_params("\"arguments\" must be an object")),
                };
                self.offer.prompt(text("name")?, &arguments)
            }
            "completion/complete" => self.offer.complete(&params),
            "logging/setLevel" => {
                let level = Level::named(text("level")?);
                let level = level.ok_or_else(|| RpcError::invalid_params("there is no such level"))?;
                self.state().level = level;
                Ok(json!({}))
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn initialize(&self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let asked = asked.ok_or_else(|| RpcError::invalid_params("\"protocolVersion\" must be a string"))?;
        // A version that is not spoken is answered with the newest that is: the client decides whether it goes on.
        let version = VERSIONS.into_iter().find(|version| *version == asked).unwrap_or(VERSIONS[0]);
        {
            let mut state = self.state();
            if state.version.is_some() {
                return Err(RpcError::invalid_request("this session is initialized already"));
            }
            state.version = Some(version);
        }
        let about = self.offer.about();
        Ok(json!({
            "protocolVersion": version,
            "capabilities": about.capabilities,
            "serverInfo": { "name": about.name, "title": about.title, "version": about.version },
            "instructions": about.instructions,
        }))
    }
}

fn paged(name: &str, items: Vec<Value>, next: Option<String>) -> Value {
    let mut object = Map::new();
    object.insert(name.to_owned(), Value::Array(items));
    if let Some(next) = next {
        object.insert("nextCursor".to_owned(), Value::String(next));
    }
    Value::Object(object)
}

/// One page of a listing. A cursor names the last item that was seen, so what comes and goes shifts nothing.
fn page(name: &str, all: Vec<Value>, key: &str, cursor: Option<&str>) -> Result<Value, RpcError> {
    let from = match cursor {
        None => 0,
        Some(cursor) => {
            let seen = all.iter().position(|item| item.get(key).and_then(Value::as_str) == Some(cursor));
            seen.ok_or_else(|| RpcError::invalid_params("\"cursor\" is none that this server gave"))? + 1
        }
    };
    let rest = all.len().saturating_sub(from);
    let items: Vec<Value> = all.into_iter().skip(from).take(PAGE_MAX).collect();
    let next = items.last().filter(|_| rest > PAGE_MAX).and_then(|item| item.get(key)).and_then(Value::as_str);
    let next = next.map(str::to_owned);
    Ok(paged(name, items, next))
}

/// A few names that may have been meant, never the whole list.
fn unknown_tool(name: &str, tools: &[super::ToolDef]) -> String {
    let short: String = name.chars().take(100).collect();
    let mut near: Vec<_> = tools.iter().map(|tool| (unlike(&short, &tool.name), tool.name.as_str())).collect();
    near.sort_unstable();
    let near: Vec<_> = near.into_iter().filter(|(unlike, _)| *unlike <= 4).take(3).map(|(_, name)| name).collect();
    let meant = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
    format!("there is no tool \"{short}\"{meant}")
}

/// How many letters have to be changed, added or left out to make one of the other.
fn unlike(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
