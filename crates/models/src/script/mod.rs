//! The scripted model: replies from a TOML file, so that a run, a demo or a test needs no network and always goes the
//! same way.
//!
//! # Which reply is served
//!
//! By position, the number of calls of the run that were answered before; so a restart goes on where it was. Some
//! entries do not answer a call: `error`, `cut`, a `raw` text that is no reply, and replies that no run can accept (cut
//! by `finish = "length"`, unknown finish, empty, more than 64 calls). They belong to the next entry that does answer:
//! position `n` means the `n`-th answering entry and those that lead up to it.
//!
//! Which of these were already served is known only inside the process. Attempts at one position go through them one by
//! one; after a restart they are served again from the first. A call repeated with the very same request gets the very
//! same answer, since the first one must have been lost; repeated with another request, the run did not accept the
//! answer, and the next entry is served.
//!
//! `[[judge]]` entries answer in the same way where the run's own model is asked for an opinion of the work; they are counted
//! apart.
//!
//! One value serves one run: runs that share one confuse each other's attempts, though never their positions.

mod file;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longrein_core::ids::Digest;
use longrein_core::image::Images;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply};
use longrein_core::prompt::{Item, Prompt, Told};
use longrein_ports::{BoxFuture, Encoded, Model};
use serde_json::{Value, json};

use crate::failure::broken;
use crate::grown::{self, Grown, List, Spelling};

use self::file::Part;
pub use file::ScriptError;

/// A model that replies from a script.
pub struct ScriptedModel {
    entries: Vec<Entry>,
    grown: Grown<List>,
    served: Mutex<Option<Served>>,
}

/// One `[[reply]]`.
#[derive(Debug)]
struct Entry {
    /// Texts that must occur in the request.
    when: Vec<String>,
    delay: Duration,
    outcome: Result<Reply, ModelFailure>,
}

/// The entry that was served last in this process.
struct Served {
    position: u64,
    request: Digest,
    entry: usize,
}

impl ScriptedModel {
    /// Reads a script file.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads the `[[judge]]` entries of a script file: what the run's own model says where it is asked to judge the work.
    pub fn open_judge(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Unreadable { path: path.to_owned(), source })?;
        let entries = file::read(&text, &path.display().to_string(), Part::Opinions)?;
        Ok(Self { entries, grown: Grown::default(), served: Mutex::new(None) })
    }

    /// Reads a script; `name` is how errors call it.
    pub fn parse(text: &str, name: &str) -> Result<Self, ScriptError> {
        let entries = file::read(text, name, Part::Turns)?;
        Ok(Self { entries, grown: Grown::default(), served: Mutex::new(None) })
    }

    /// A script written in code: what each call brings, in order.
    pub fn of(replies: impl IntoIterator<Item = Result<Reply, ModelFailure>>) -> Self {
        let entry = |outcome| Entry { when: Vec::new(), delay: Duration::ZERO, outcome };
        let entries = replies.into_iter().map(entry).collect();
        Self { entries, grown: Grown::default(), served: Mutex::new(None) }
    }

    /// Which entry a request is for; the number of entries if the script is over.
    fn choose(&self, request: &Encoded) -> usize {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        match &*served {
            Some(last) if last.position == request.position => {
                let lost = self.entries[last.entry].answers() && last.request == request.digest;
                if lost { last.entry } else { last.entry + 1 }
            }
            Some(last) if last.position + 1 == request.position => last.entry + 1,
            Some(_) | None => self.first_at(request.position),
        }
    }

    /// The first entry of a position, for a process that knows nothing else.
    fn first_at(&self, position: u64) -> usize {
        let mut answers = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            if answers == position {
                return index;
            }
            answers += u64::from(entry.answers());
        }
        self.entries.len()
    }

    async fn serve(&self, request: Encoded) -> Result<Reply, ModelFailure> {
        let index = self.choose(&request);
        let Some(entry) = self.entries.get(index) else {
            return Err(self.over(request.position));
        };
        if let Some(missing) = entry.when.iter().find(|text| !occurs(text, &request.bytes)) {
            return Err(misfit(format!(
                "reply {} of the script expects \"{missing}\" in the request, and it is not there",
                index + 1
            )));
        }
        if !entry.delay.is_zero() {
            tokio::time::sleep(entry.delay).await;
        }
        // Only now: a call that was given up during the delay was not served.
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Served { position: request.position, request: request.digest, entry: index });
        entry.outcome.clone()
    }

    fn over(&self, position: u64) -> ModelFailure {
        let replies = self.entries.iter().filter(|entry| entry.answers()).count() as u64;
        let number = position.max(replies) + 1;
        let noun = if replies == 1 { "reply" } else { "replies" };
        misfit(format!("the script has {replies} {noun} and the run asked for number {number}"))
    }
}

impl Model for ScriptedModel {
    /// A readable JSON text of the prompt, without the output limit, which a script has no use for.
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.grown.encode(&Readable, prompt)
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(self.serve(request))
    }
}

impl Entry {
    /// Whether a run that gets this entry has its call answered, as far as the entry itself tells.
    fn answers(&self) -> bool {
        let Ok(reply) = &self.outcome else { return false };
        let whole = match &reply.finish {
            Finish::Stop | Finish::ToolCalls | Finish::Refused => true,
            Finish::Length | Finish::Other(_) => false,
        };
        let empty = reply.text.trim().is_empty() && reply.calls.is_empty();
        whole && reply.calls.len() <= CALLS_MAX && (!empty || reply.finish == Finish::Refused)
    }
}

/// More calls in one reply make it malformed as a whole.
const CALLS_MAX: usize = 64;

fn misfit(message: String) -> ModelFailure {
    broken(ModelErrorClass::Script, Billing::Nothing, message)
}

/// Whether the request contains `text`: in its bytes, or in one of its strings as the model would read it.
fn occurs(text: &str, request: &[u8]) -> bool {
    let Ok(body) = std::str::from_utf8(request) else { return false };
    body.contains(text) || serde_json::from_str(body).is_ok_and(|value| within(text, &value))
}

fn within(text: &str, value: &Value) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(list) => list.iter().any(|value| within(text, value)),
        Value::Object(map) => map.values().any(|value| within(text, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The spelling for people and for `when`.
struct Readable;

impl Spelling for Readable {
    type Place = List;

    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> List {
        out.extend_from_slice(br#"{"system":"#);
        grown::json(&*prompt.system, out);
        out.extend_from_slice(br#","tools":["#);
        let mut list = List::Empty;
        for tool in &*prompt.tools {
            list = list.next(out);
            out.extend_from_slice(br#"{"name":"#);
            grown::json(&tool.name, out);
            out.extend_from_slice(br#","description":"#);
            grown::json(&tool.description, out);
            out.extend_from_slice(br#","parameters":"#);
            grown::json(&tool.parameters, out);
            out.push(b'}');
        }
        out.extend_from_slice(br#"],"items":["#);
        List::Empty
    }

    fn item(&self, _prompt: &Prompt, list: List, item: &Item, out: &mut Vec<u8>) -> List {
        let list = list.next(out);
        let value = match item {
            Item::User(text) => json!({ "user": text }),
            Item::Pictured { text, images } => json!({ "user": Images::NotTaken.words(text, images) }),
            Item::Harness(text) => json!({ "harness": text }),
            Item::Exhibit { text, images } => json!({ "harness": Images::NotTaken.words(text, images) }),
            Item::Assistant { text, calls, wired: _ } => {
                let calls: Vec<_> = calls
                    .iter()
                    .map(|call| json!({ "id": call.id, "name": call.name, "arguments": call.arguments }))
                    .collect();
                json!({ "assistant": text, "calls": calls })
            }
            Item::Observation { call, action, tool, text, verdict } => {
                let ok = match verdict {
                    Told::Ok => true,
                    Told::Error => false,
                };
                json!({ "tool": tool, "call": call, "action": action, "ok": ok, "text": text })
            }
        };
        grown::json(&value, out);
        list
    }

    fn foot(&self, prompt: &Prompt, _list: List, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"],"tail":"#);
        grown::json(&prompt.tail, out);
        out.push(b'}');
    }
}
