//! Runs as tools and resources: the offer that ships. Each tool is one method of the [`Door`]; this file only reads
//! arguments and says what a tool does.

use std::sync::Arc;

use longrein_ports::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::door::{Class, Door, Fault, Start};
use super::offer::{About, Offer, Page, ToolDef, ToolReply};
use super::session::PAGE_MAX;
use super::{Peer, RpcError};

/// How long `run_wait` waits unless told, and at most.
const WAIT_S: u64 = 60;
const WAIT_MAX_S: u64 = 3600;
/// Runs of one listing, and events of one page.
const RUNS: usize = 50;
const RUNS_MAX: usize = 500;
const EVENTS: usize = 100;
const EVENTS_MAX: usize = 500;

const RUNS_URI: &str = "longrein://runs";

/// Whose door this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Powers {
    /// A client that may be a model: it starts and watches, and answers nothing that is asked of a person.
    Client,
    /// An operator's: `approve`, `deny` and `settle` too.
    Operator,
}

/// Runs, for clients of MCP.
pub struct Operations {
    door: Arc<dyn Door>,
    powers: Powers,
    version: String,
}

impl Operations {
    /// Over a door; `version`: of the program that serves.
    pub fn new(door: Arc<dyn Door>, powers: Powers, version: &str) -> Self {
        Self { door, powers, version: version.to_owned() }
    }
}

const INSTRUCTIONS: &str = "\
Longrein runs a language model's work so that it survives crashes, keeps its budget and asks before it acts. Start a run \
with run_start, then call run_wait until its state is one of done, failed, exhausted, context_exhausted or cancelled. A run \
that is \"waiting\" needs a person: approvals lists what for. An answer is proven only if \"verified\" is true. A run under \
an id that is known is gone on with, never repeated.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    id: String,
    timeout_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneRun {
    id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    id: String,
    after: Option<u64>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    id: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approve {
    id: String,
    action: String,
    #[serde(default)]
    always: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    id: String,
    action: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    id: String,
    action: String,
    #[serde(rename = "as")]
    truth: Truth,
    result: Option<Value>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Truth {
    Done,
    #[serde(alias = "not-done")]
    NotDone,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cited {
    id: String,
    evidence: String,
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Fault> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        Fault::new(Class::Usage, format!("the arguments do not fit: {error}")).hint("see the tool's inputSchema")
    })
}

impl Operations {
    async fn perform(&self, tool: &str, arguments: Map<String, Value>, peer: &Peer) -> Result<Value, Fault> {
        let door = &self.door;
        match tool {
            "run_start" => {
                let start: Start = read(arguments)?;
                if start.prompt.is_none() && start.task_file.is_none() && start.id.is_none() {
                    let fault = Fault::new(Class::Usage, "nothing to do: give a prompt or a task_file");
                    return Err(fault.hint("run_start{\"prompt\": \"what to do\"}"));
                }
                door.start(start).await
            }
            "run_wait" => {
                let Wait { id, timeout_s } = read(arguments)?;
                let seconds = match timeout_s {
                    None => WAIT_S,
                    Some(seconds) if seconds.is_finite() && seconds >= 0.0 => {
                        std::time::Duration::try_from_secs_f64(seconds.ceil()).map_or(WAIT_MAX_S, |span| span.as_secs())
                    }
                    Some(_) => {
                        return Err(Fault::new(Class::Usage, "timeout_s must be a number of seconds, 0 or more"));
                    }
                };
                let told = |head: u64, line: &str| {
                    #[expect(clippy::cast_precision_loss, reason = "shown only; exact up to 2^53 events")]
                    peer.progress(head as f64, None, line);
                };
                door.wait(&id, seconds.min(WAIT_MAX_S), &told).await
            }
            "run_list" => {
                let List { limit } = read(arguments)?;
                door.list(limit.unwrap_or(RUNS).min(RUNS_MAX)).await
            }
            "run_show" => {
                let OneRun { id } = read(arguments)?;
                door.show(&id).await
            }
            "run_events" => {
                let Events { id, after, limit } = read(arguments)?;
                door.log(&id, after.unwrap_or(0), limit.unwrap_or(EVENTS).clamp(1, EVENTS_MAX)).await
            }
            "run_send" => {
                let Send { id, text } = read(arguments)?;
                door.send(&id, text).await
            }
            "approvals" => {
                let Nothing {} = read(arguments)?;
                door.approvals().await
            }
            "approve" => {
                let Approve { id, action, always } = read(arguments)?;
                door.approve(&id, &action, always).await
            }
            "deny" => {
                let Deny { id, action, reason } = read(arguments)?;
                door.deny(&id, &action, reason).await
            }
            "settle" => {
                let Settle { id, action, truth, result } = read(arguments)?;
                if truth == Truth::NotDone && result.is_some() {
                    return Err(Fault::new(Class::Usage, "a result goes with \"as\": \"done\""));
                }
                let done = (truth == Truth::Done).then(|| result.unwrap_or(Value::Null));
                door.settle(&id, &action, done).await
            }
            "cancel" => {
                let OneRun { id } = read(arguments)?;
                door.cancel(&id).await
            }
            "evidence" => {
                let Cited { id, evidence } = read(arguments)?;
                door.evidence(&id, &evidence).await
            }
            other => Err(Fault::new(Class::NotFound, format!("there is no tool {other}"))),
        }
    }

    async fn resource(&self, uri: &str) -> Result<Value, Fault> {
        let missing = || Fault::new(Class::NotFound, format!("there is no resource {uri}"));
        let path = uri.strip_prefix(RUNS_URI).ok_or_else(missing)?;
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            [""] => self.door.list(RUNS_MAX).await,
            ["", id] if !id.is_empty() => self.door.show(id).await,
            ["", id, "log"] => self.door.log(id, 0, EVENTS_MAX).await,
            ["", id, "evidence", evidence] => self.door.evidence(id, evidence).await,
            _ => Err(missing()),
        }
    }
}

impl Offer for Operations {
    fn about(&self) -> About {
        let instructions = match self.powers {
            Powers::Client => {
                format!("{INSTRUCTIONS} Approvals are given by the operator, with `longrein approve`, not here.")
            }
            Powers::Operator => format!(
                "{INSTRUCTIONS} This door is an operator's: approve, deny and settle are a person's words. Call them only \
                 for a person who has read what the call would do."
            ),
        };
        About {
            name: "longrein".to_owned(),
            title: "Longrein".to_owned(),
            version: self.version.clone(),
            instructions,
            capabilities: json!({ "tools": {}, "resources": {}, "logging": {} }),
        }
    }

    fn tools(&self) -> Vec<ToolDef> {
        let mut tools = for_clients();
        match self.powers {
            Powers::Client => {}
            Powers::Operator => tools.extend(for_operators()),
        }
        tools
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
        peer: &'a Peer,
    ) -> BoxFuture<'a, Result<ToolReply, RpcError>> {
        Box::pin(async move {
            Ok(match self.perform(tool, arguments, peer).await {
                Ok(value) => ToolReply::value(value),
                Err(fault) => ToolReply {
                    structured: Some(fault.to_value()),
                    is_error: true,
                    ..ToolReply::text(fault.in_words())
                },
            })
        })
    }

    fn resources<'a>(&'a self, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            let ids = self.door.ids().await.map_err(|fault| RpcError::internal(fault.in_words()))?;
            let from = match cursor {
                None => 0,
                Some(cursor) => match ids.iter().position(|id| id == cursor) {
                    Some(seen) => seen + 1,
                    None => return Err(RpcError::invalid_params("\"cursor\" is none that this server gave")),
                },
            };
            let page: Vec<&String> = ids.iter().skip(from).take(PAGE_MAX).collect();
            let next = page.last().filter(|_| ids.len() > from + page.len()).map(|id| (*id).clone());
            let all = json!({
                "uri": RUNS_URI, "name": "runs", "title": "All runs, the newest first", "mimeType": "application/json",
            });
            let mut items: Vec<Value> = if cursor.is_none() { vec![all] } else { Vec::new() };
            items.extend(page.into_iter().map(|id| {
                json!({ "uri": format!("{RUNS_URI}/{id}"), "name": id, "title": format!("Run {id}"), "mimeType": "application/json" })
            }));
            Ok(Page { items, next })
        })
    }

    fn templates(&self) -> Vec<Value> {
        let template = |path: &str, name: &str, title: &str| json!({ "uriTemplate": format!("{RUNS_URI}/{path}"), "name": name, "title": title, "mimeType": "application/json" });
        vec![
            template("{id}", "run", "One run at a glance"),
            template("{id}/log", "log", "The first events of a run's journal; run_events has the rest"),
            template("{id}/evidence/{evidence}", "evidence", "What an action brought back"),
        ]
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async move {
            match self.resource(uri).await {
                Ok(value) => Ok(vec![json!({ "uri": uri, "mimeType": "application/json", "text": value.to_string() })]),
                Err(Fault { class: Class::NotFound, .. }) => Err(RpcError::no_such_resource(uri)),
                Err(fault) => Err(RpcError::internal(fault.in_words())),
            }
        })
    }

    fn closing(&self) -> BoxFuture<'_, ()> {
        self.door.stop()
    }
}

/// What a tool does to the world, as its annotations say it.
enum Does {
    Reads,
    /// Has a run act, or ends it.
    Acts {
        /// Twice is as good as once.
        again: bool,
    },
    /// Records a person's word that lets no effect happen.
    Records,
}

fn tool(name: &str, title: &str, does: &Does, description: &str, required: &[&str], properties: &Value) -> ToolDef {
    let annotations = match does {
        Does::Reads => json!({ "title": title, "readOnlyHint": true, "openWorldHint": false }),
        Does::Acts { again } => json!({
            "title": title, "readOnlyHint": false, "destructiveHint": true, "idempotentHint": again, "openWorldHint": true,
        }),
        Does::Records => json!({
            "title": title, "readOnlyHint": false, "destructiveHint": false, "idempotentHint": false,
            "openWorldHint": true,
        }),
    };
    ToolDef {
        name: name.to_owned(),
        title: title.to_owned(),
        description: description.to_owned(),
        input_schema: json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        }),
        annotations,
    }
}

fn run_id() -> Value {
    json!({ "type": "string", "description": "The run's id, or its beginning while that is unique" })
}

fn action_id() -> Value {
    json!({ "type": "string", "pattern": "^a[0-9]+$", "description": "The action, such as a3, as approvals lists it" })
}

fn for_clients() -> Vec<ToolDef> {
    let id = run_id();
    vec![
        tool(
            "run_start",
            "Start a run",
            &Does::Acts { again: false },
            "Start a run from a prompt or a task file; returns its id at once, while it works. With the id of a run that is \
             known it goes on, or, if that run rests, its stored result is returned: nothing is done twice.",
            &[],
            &json!({
                "prompt": { "type": "string", "description": "What to do" },
                "task_file": { "type": "string", "description": "A task file (TOML); its path is relative to where the server was started" },
                "id": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$", "description": "A new id, or a known one to go on with" },
                "model": { "type": "string", "description": "PROVIDER/NAME, such as openai/gpt-5-mini" },
                "workspace": { "type": "string", "description": "The folder it works in" },
                "permission_mode": { "type": "string", "enum": ["plan", "ask", "accept-edits", "auto", "shadow"], "description": "How much it may do without asking; no looser than the server was started with" },
                "on_ask": { "type": "string", "enum": ["wait", "deny"], "description": "What becomes of a call that needs a person's yes: the run waits (default), or does without" },
                "program": { "type": "string", "description": "The loop's shape: react, direct, plan, reflexion, or a program file" },
                "variables": { "type": "object", "additionalProperties": { "type": "string" }, "description": "What replaces ${NAME} in the task file" },
                "max_turns": { "type": "integer", "minimum": 0 },
                "max_tokens": { "type": "integer", "minimum": 0, "description": "In and out, over all attempts" },
                "max_usd": { "type": "number", "minimum": 0 },
                "max_time": { "type": "string", "description": "Working time, such as 10m" },
            }),
        ),
        tool(
            "run_wait",
            "Wait for a run",
            &Does::Acts { again: true },
            "Wait until a run rests, needs a person, or the time is over, and return its state and, if done, its answer. A run \
             that was interrupted goes on. Tells progress while it waits.",
            &["id"],
            &json!({
                "id": id,
                "timeout_s": { "type": "number", "minimum": 0, "description": "Seconds, at most 3600; default 60" },
            }),
        ),
        tool(
            "run_list",
            "List runs",
            &Does::Reads,
            "The newest runs: id, state, reason, turns, cost, goal.",
            &[],
            &json!({ "limit": { "type": "integer", "minimum": 0, "description": "At most 500; default 50" } }),
        ),
        tool(
            "run_show",
            "Show a run",
            &Does::Reads,
            "One run at a glance: state, answer, budget, what it waits for, unknown effects, live evidence, facts.",
            &["id"],
            &json!({ "id": id }),
        ),
        tool(
            "run_events",
            "Read a run's journal",
            &Does::Reads,
            "Events of a run after a number, in order; \"next\" is the number to go on from, \"more\" whether there are more.",
            &["id"],
            &json!({
                "id": id,
                "after": { "type": "integer", "minimum": 0, "description": "Default 0: from the beginning" },
                "limit": { "type": "integer", "minimum": 1, "description": "At most 500; default 100" },
            }),
        ),
        tool(
            "run_send",
            "Send a message to a run",
            &Does::Acts { again: false },
            "Send words to a run: more instructions, or the answer to its question. It goes on.",
            &["id", "text"],
            &json!({ "id": id, "text": { "type": "string", "minLength": 1 } }),
        ),
        tool(
            "approvals",
            "What waits for a person",
            &Does::Reads,
            "Calls that wait for a person's yes, questions, and effects whose outcome is unknown, over all runs.",
            &[],
            &json!({}),
        ),
        tool(
            "cancel",
            "Cancel a run",
            &Does::Acts { again: true },
            "Bring a run to rest for good; says what is done, not done and unknown.",
            &["id"],
            &json!({ "id": id }),
        ),
        tool(
            "evidence",
            "Read evidence",
            &Does::Reads,
            "What an action of a run brought back, by the id it is cited by: tool, time, outcome, content.",
            &["id", "evidence"],
            &json!({
                "id": id,
                "evidence": { "type": "string", "pattern": "^e[0-9]+$", "description": "Such as e1" },
            }),
        ),
    ]
}

fn for_operators() -> Vec<ToolDef> {
    let (id, action) = (run_id(), action_id());
    vec![
        tool(
            "approve",
            "Approve an action",
            &Does::Acts { again: false },
            "A person's yes to one call that waits, with exactly the arguments that approvals shows. The run goes on.",
            &["id", "action"],
            &json!({
                "id": id, "action": action,
                "always": { "type": "boolean", "description": "For every call of this run that would do the very same" },
            }),
        ),
        tool(
            "deny",
            "Deny an action",
            &Does::Records,
            "A person's no to one call that waits; the run goes on without it and is told the reason.",
            &["id", "action"],
            &json!({ "id": id, "action": action, "reason": { "type": "string" } }),
        ),
        tool(
            "settle",
            "Settle an unknown effect",
            &Does::Records,
            "Tell what became of an effect whose outcome is unknown, after a person has found out.",
            &["id", "action", "as"],
            &json!({
                "id": id, "action": action,
                "as": { "type": "string", "enum": ["done", "not_done"] },
                "result": { "description": "What it brought back, if it is done: any JSON" },
            }),
        ),
    ]
}
