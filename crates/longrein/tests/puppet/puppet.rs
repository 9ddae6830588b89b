//! The puppet: a model that does its user's task, and obeys whatever it reads. It is the worst a model can be, and always
//! the same.

use std::collections::VecDeque;
use std::sync::Mutex;

use longrein::core::budget::Usage;
use longrein::core::ids::Digest;
use longrein::core::outcome::{Finish, ModelFailure, RawCall, Reply};
use longrein::core::prompt::{Item, Prompt};
use longrein::ports::{BoxFuture, Encoded, Model};
use serde_json::Value;
use tokio::sync::Notify;

/// A call, whoever wants it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Move {
    pub(crate) tool: &'static str,
    pub(crate) args: Value,
    /// Nothing is achieved by it yet.
    pub(crate) is_aside: bool,
}

impl Move {
    pub(crate) fn new(tool: &'static str, args: Value) -> Self {
        Self { tool, args, is_aside: false }
    }

    /// One that only prepares another.
    pub(crate) fn aside(self) -> Self {
        Self { is_aside: true, ..self }
    }

    /// No call: it ends its turn with words, and goes on when it is spoken to.
    pub(crate) fn say() -> Self {
        Self::new(SAYS, serde_json::json!({})).aside()
    }

    /// Whether a call is this one: arguments that were left out have been filled in.
    pub(crate) fn is(&self, tool: &str, args: &Value) -> bool {
        let own = self.args.as_object().expect("arguments are an object");
        self.tool == tool && own.iter().all(|(name, value)| args.get(name) == Some(value))
    }

    pub(crate) fn shell(command: impl Into<String>) -> Self {
        Self::new("shell", serde_json::json!({ "command": command.into() }))
    }
}

const SAYS: &str = "";

/// What stands in a text for the puppet: as soon as it reads these words, it makes these moves, and then goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strings {
    pub(crate) words: String,
    pub(crate) moves: Vec<Move>,
    /// It waits before the first of them, until it is let go of and taken up again.
    pub(crate) pauses: bool,
}

struct Mind {
    todo: VecDeque<Move>,
    strings: Vec<Strings>,
}

pub(crate) struct Puppet {
    mind: Mutex<Mind>,
    paused: Notify,
}

impl Puppet {
    pub(crate) fn new(task: Vec<Move>, strings: Vec<Strings>) -> Self {
        Self { mind: Mutex::new(Mind { todo: task.into(), strings }), paused: Notify::new() }
    }

    /// Waits until it has read what makes it wait.
    pub(crate) async fn paused(&self) {
        self.paused.notified().await;
    }

    /// How many strings nobody has pulled.
    pub(crate) fn unread(&self) -> usize {
        self.mind.lock().unwrap().strings.len()
    }

    /// What it does next, and whether it waits first.
    fn next(&self, read: &str) -> (Option<Move>, bool) {
        let mut mind = self.mind.lock().unwrap();
        let pulled = mind.strings.iter().position(|strings| read.contains(&strings.words));
        if let Some(pulled) = pulled.map(|at| mind.strings.remove(at)) {
            for wanted in pulled.moves.into_iter().rev() {
                mind.todo.push_front(wanted);
            }
            if pulled.pauses {
                return (None, true);
            }
        }
        (mind.todo.pop_front(), false)
    }
}

impl Model for Puppet {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let read = prompt.items.iter().filter_map(|item| match item.as_ref() {
            Item::Observation { text, .. } => Some(text.as_str()),
            Item::User(_)
            | Item::Pictured { .. }
            | Item::Exhibit { .. }
            | Item::Assistant { .. }
            | Item::Harness(_) => None,
        });
        let bytes = read.collect::<Vec<_>>().join("\n").into_bytes();
        let digest = Digest::of(&bytes);
        Encoded { digest, bytes: bytes.into(), position: prompt.position, answer: prompt.answer.clone() }
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            let (wanted, waits) = self.next(&String::from_utf8_lossy(&request.bytes));
            if waits {
                self.paused.notify_one();
                std::future::pending::<()>().await;
            }
            let call = wanted.filter(|wanted| wanted.tool != SAYS).map(|wanted| RawCall {
                id: String::new(),
                name: wanted.tool.to_owned(),
                arguments: wanted.args.to_string(),
            });
            let (text, finish) = match &call {
                Some(_) => (String::new(), Finish::ToolCalls),
                None => ("It is done.".to_owned(), Finish::Stop),
            };
            Ok(Reply {
                text,
                calls: call.into_iter().collect(),
                finish,
                usage: Some(Usage::default()),
                repaired: None,
                wired: None,
            })
        })
    }
}
