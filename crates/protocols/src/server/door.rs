//! What the server needs of whoever has the runs. The binary implements it over its own door; tests over a few values.

use longrein_ports::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What kind of failure it is: the statuses of the command line, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The arguments do not fit the tool.
    Usage,
    /// A bad task or bad data; another task under this id; an approval that was used.
    Data,
    /// No such run, action or evidence.
    NotFound,
    /// Somebody else has the run, the store cannot be reached, or too many runs are driven: later it may pass.
    Unavailable,
    /// The configuration is wrong, or does not allow this.
    Configuration,
    /// A fault of ours.
    Internal,
}

impl Class {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Usage => "usage",
            Class::Data => "data",
            Class::NotFound => "not_found",
            Class::Unavailable => "unavailable",
            Class::Configuration => "configuration",
            Class::Internal => "internal",
        }
    }
}

/// Why something could not be done, for the model that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub class: Class,
    /// What happened, to what.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

impl Fault {
    /// One without a hint.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), hint: None }
    }

    /// The same, with what to try.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut error = Map::new();
        error.insert("class".to_owned(), json!(self.class));
        error.insert("message".to_owned(), json!(self.message));
        if let Some(hint) = &self.hint {
            error.insert("hint".to_owned(), json!(hint));
        }
        json!({ "error": error })
    }

    pub(crate) fn in_words(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("\nTry: {hint}")).unwrap_or_default();
        format!("{}: {}{hint}", self.class.as_str(), self.message)
    }
}

/// A run to start.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// What to do.
    #[serde(default)]
    pub prompt: Option<String>,
    /// A task file, in its place or beside it.
    #[serde(default)]
    pub task_file: Option<String>,
    /// A new id, or that of a run to go on with.
    #[serde(default)]
    pub id: Option<String>,
    /// PROVIDER/NAME.
    #[serde(default)]
    pub model: Option<String>,
    /// The folder it works in.
    #[serde(default)]
    pub workspace: Option<String>,
    /// How much it may do without asking.
    #[serde(default)]
    pub permission_mode: Option<String>,
    /// `wait` for a person's answers, or `deny` at once.
    #[serde(default)]
    pub on_ask: Option<String>,
    /// The loop's shape.
    #[serde(default)]
    pub program: Option<String>,
    /// What replaces `${NAME}` in the task file.
    #[serde(default)]
    pub variables: std::collections::BTreeMap<String, String>,
    /// Answered model turns.
    #[serde(default)]
    pub max_turns: Option<u64>,
    /// Tokens in and out.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Dollars.
    #[serde(default)]
    pub max_usd: Option<f64>,
    /// Working time, such as `10m`.
    #[serde(default)]
    pub max_time: Option<String>,
}

/// Told how far a run is: its head, and a line.
pub type Watch<'a> = &'a (dyn Fn(u64, &str) + Send + Sync);

/// What can be done to runs, with plain values. Ids may be shortened while they are unique.
pub trait Door: Send + Sync + 'static {
    /// Starts a run, or goes on with the one that has this id; answers once it is in the journal.
    fn start(&self, start: Start) -> BoxFuture<'_, Result<Value, Fault>>;
    /// Waits until a run rests, needs a person, or the time is over; goes on with it where nobody does.
    fn wait<'a>(&'a self, id: &'a str, seconds: u64, watch: Watch<'a>) -> BoxFuture<'a, Result<Value, Fault>>;
    /// The newest runs.
    fn list(&self, most: usize) -> BoxFuture<'_, Result<Value, Fault>>;
    /// The ids of all runs, the newest first.
    fn ids(&self) -> BoxFuture<'_, Result<Vec<String>, Fault>>;
    /// One run at a glance.
    fn show<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>>;
    /// Events after a number, at most so many.
    fn log<'a>(&'a self, id: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<Value, Fault>>;
    /// A person's words to a run.
    fn send<'a>(&'a self, id: &'a str, text: String) -> BoxFuture<'a, Result<Value, Fault>>;
    /// What waits for a person, over all runs.
    fn approvals(&self) -> BoxFuture<'_, Result<Value, Fault>>;
    /// A person's yes.
    fn approve<'a>(&'a self, id: &'a str, action: &'a str, always: bool) -> BoxFuture<'a, Result<Value, Fault>>;
    /// A person's no.
    fn deny<'a>(&'a self, id: &'a str, action: &'a str, reason: Option<String>) -> BoxFuture<'a, Result<Value, Fault>>;
    /// What became of an unknown effect. None: it did not happen; else its result.
    fn settle<'a>(&'a self, id: &'a str, action: &'a str, done: Option<Value>) -> BoxFuture<'a, Result<Value, Fault>>;
    /// Brings a run to rest.
    fn cancel<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>>;
    /// What an action brought back.
    fn evidence<'a>(&'a self, id: &'a str, evidence: &'a str) -> BoxFuture<'a, Result<Value, Fault>>;
    /// Suspends what is driven here, in order; returns when that is done.
    fn stop(&self) -> BoxFuture<'_, ()>;
}
