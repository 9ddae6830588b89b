//! What a request that is worked on can say to its client before it is answered: progress, log lines, questions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longrein_ports::BoxFuture;
use serde_json::{Value, json};

use super::RpcError;
use super::session::Session;

/// How long a client may take to answer one of our requests: a person may have to.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);

/// How grave a log line is: syslog's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For who looks for a fault.
    Debug,
    /// All is well.
    Info,
    /// Worth knowing.
    Notice,
    /// May become a fault.
    Warning,
    /// A fault.
    Error,
    /// A grave one.
    Critical,
    /// Act now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl Level {
    const ALL: [(Level, &'static str); 8] = [
        (Level::Debug, "debug"),
        (Level::Info, "info"),
        (Level::Notice, "notice"),
        (Level::Warning, "warning"),
        (Level::Error, "error"),
        (Level::Critical, "critical"),
        (Level::Alert, "alert"),
        (Level::Emergency, "emergency"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(level, word)| (word == name).then_some(level))
    }

    fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(level, word)| (level == self).then_some(word)).expect("all levels are listed")
    }
}

/// Where messages to the client go.
pub(crate) trait Outlet: Send + Sync {
    /// Waits for room. False: nobody will read it.
    fn send(&self, message: Value) -> BoxFuture<'_, bool>;
    /// Dropped where there is no room: a client that does not read progress still gets its answers.
    fn offer(&self, message: Value);
    /// Lets the client come back for the rest, where that can be done.
    fn cut(&self) {}
}

/// The client of one request.
pub struct Peer {
    session: Arc<Session>,
    outlet: Arc<dyn Outlet>,
    /// Named by a client that wants to be told of progress.
    token: Option<Value>,
    told: Mutex<f64>,
}

impl Peer {
    pub(crate) fn new(session: Arc<Session>, outlet: Arc<dyn Outlet>, token: Option<Value>) -> Self {
        Self { session, outlet, token, told: Mutex::new(f64::NEG_INFINITY) }
    }

    /// Whether the client wants to be told of progress.
    pub fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// How far the request is. What does not go up is not told.
    pub fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        let Some(token) = &self.token else { return };
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if done <= *told {
                return;
            }
            *told = done;
        }
        let mut params = json!({ "progressToken": token, "progress": done, "message": message });
        if let (Some(total), Value::Object(params)) = (total, &mut params) {
            params.insert("total".to_owned(), json!(total));
        }
        self.notify("notifications/progress", &params);
    }

    /// A line for the client's log, unless it asked for graver ones only.
    pub fn log(&self, level: Level, logger: &str, data: &Value) {
        if level >= self.session.level() {
            let params = json!({ "level": level.as_str(), "logger": logger, "data": data });
            self.notify("notifications/message", &params);
        }
    }

    /// A request of ours, and the client's answer to it.
    pub async fn ask(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let (id, answer) = self.session.asks();
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        if !self.outlet.send(request).await {
            self.session.forget(&id);
            return Err(RpcError::internal("the client is gone"));
        }
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(error))) => Err(RpcError::internal(format!("the client refused {method}: {error}"))),
            Ok(Err(_)) => Err(RpcError::internal("the client is gone")),
            Err(_) => {
                self.session.forget(&id);
                Err(RpcError::internal(format!("the client did not answer {method}")))
            }
        }
    }

    /// Ends the stream that the answer would come by; the client comes back for it. Nothing happens where there is none.
    pub fn cut(&self) {
        self.outlet.cut();
    }

    fn notify(&self, method: &str, params: &Value) {
        self.outlet.offer(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }
}
