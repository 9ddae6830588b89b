//! A run's conversation in formats that other tools read: OpenAI chat messages, and the Agent Trajectory Interchange Format
//! of the Harbor project.
//!
//! Both are made from the journal, event by event, so that a conversation comes out whole however often the model's own
//! view of it was rebuilt.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::event::{Event, ModelReplied, RunStarted};
use longrein_core::ids::Seq;
use longrein_core::image::labelled;
use longrein_core::prompt::{Item, Told, WireCall};
use longrein_core::run::Run;
use longrein_core::time::Timestamp;
use serde_json::{Value, json};

use crate::projection;

/// The version of the trajectory format that is written.
const ATIF: &str = "ATIF-v1.6";

/// Follows a run's events and gathers its conversation.
#[derive(Default)]
pub struct Trajectory {
    run: Option<Run>,
    started: Option<Box<RunStarted>>,
    entries: Vec<Entry>,
    /// Items of the run's window gathered by now, and the generation they are of.
    seen: usize,
    generation: u32,
}

/// One item of the conversation: when it was said, and what a reply cost.
struct Entry {
    at: Timestamp,
    item: Arc<Item>,
    reply: Option<Box<ModelReplied>>,
}

impl Trajectory {
    /// Takes the next event, in order.
    pub fn see(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        match (&mut self.run, event) {
            (None, Event::RunStarted(started)) => {
                self.run = Some(Run::new(started, at));
                self.started = Some(started.clone());
            }
            (Some(run), event) => run.apply(seq, at, event),
            (None, _) => return,
        }
        let Some(run) = &self.run else { return };
        let mut reply = if let Event::ModelReplied(replied) = event { Some(Box::new(replied.clone())) } else { None };
        // A new generation begins with what was said before.
        if self.generation != run.window.generation && run.window.generation > 1 {
            self.generation = run.window.generation;
            self.seen = run.window.items.len();
            return;
        }
        // A reply's calls get their ids only when they are proposed.
        if let (Some(last), Some(item)) =
            (self.entries.last_mut(), self.seen.checked_sub(1).and_then(|at| run.window.items.get(at)))
            && !matches!(event, Event::ResultSpilled(_))
        {
            last.item = Arc::clone(item);
        }
        for item in run.window.items.iter().skip(self.seen) {
            let of_model = matches!(item.as_ref(), Item::Assistant { .. });
            let reply = if of_model { reply.take() } else { None };
            self.entries.push(Entry { at, item: Arc::clone(item), reply });
        }
        self.seen = run.window.items.len();
    }

    /// One conversation as OpenAI's fine-tuning files hold it: `messages` and `tools`. None: the run has not started.
    pub fn openai(&self) -> Option<Value> {
        let run = self.run.as_ref()?;
        let system = json!({ "role": "system", "content": &*run.system });
        let items = self.entries.iter().map(|entry| message(&entry.item));
        let messages: Vec<_> = std::iter::once(system).chain(items).collect();
        let tools: Vec<_> = run
            .task
            .tools
            .iter()
            .map(|tool| {
                let function =
                    json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
                json!({ "type": "function", "function": function })
            })
            .collect();
        let mut line = json!({ "messages": messages });
        if !tools.is_empty() {
            line["tools"] = json!(tools);
        }
        Some(line)
    }

    /// The run as one ATIF document. None: the run has not started.
    pub fn atif(&self) -> Option<Value> {
        let (run, started) = (self.run.as_ref()?, self.started.as_ref()?);
        let mut steps = vec![step(run.started, "system", &run.system)];
        // Where each call stands: its observation belongs to the step that made it.
        let mut made: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in &self.entries {
            match entry.item.as_ref() {
                Item::User(text) => steps.push(step(entry.at, "user", text)),
                Item::Pictured { text, images } => {
                    steps.push(step(entry.at, "user", &labelled(text, images, None)));
                }
                Item::Harness(text) => steps.push(step(entry.at, "system", text)),
                Item::Exhibit { text, images } => {
                    steps.push(step(entry.at, "system", &labelled(text, images, None)));
                }
                Item::Assistant { text, calls, wired: _ } => {
                    made.extend(calls.iter().map(|call| (call.id.as_str(), steps.len())));
                    steps.push(agent_step(entry, text, calls, run));
                }
                Item::Observation { call, text, verdict, .. } => {
                    if let Some(step) = made.get(call.as_str()).and_then(|index| steps.get_mut(*index)) {
                        let result = json!({ "source_call_id": call, "content": text });
                        match step["observation"]["results"].as_array_mut() {
                            Some(results) => results.push(result),
                            None => step["observation"] = json!({ "results": [result] }),
                        }
                        if *verdict == Told::Error {
                            step["extra"]["failed_calls"] =
                                json!(step["extra"]["failed_calls"].as_u64().unwrap_or_default() + 1);
                        }
                    }
                }
            }
        }
        for (step, number) in steps.iter_mut().zip(1..) {
            step["step_id"] = json!(number);
        }
        let spent = &run.spent;
        Some(json!({
            "schema_version": ATIF,
            "session_id": run.id,
            "agent": {
                "name": "longrein",
                "version": started.binary,
                "model_name": run.model.name,
            },
            "steps": steps,
            "final_metrics": {
                "total_prompt_tokens": spent.usage.input,
                "total_completion_tokens": spent.usage.output,
                "total_cached_tokens": spent.usage.cached,
                "total_cost_usd": projection::usd(spent.micros),
                "total_steps": steps.len(),
            },
            "extra": projection::summary(run),
        }))
    }
}

fn message(item: &Item) -> Value {
    match item {
        Item::User(text) | Item::Harness(text) => json!({ "role": "user", "content": text }),
        // In words: whoever reads lines need not be sent the bytes.
        Item::Pictured { text, images } | Item::Exhibit { text, images } => {
            json!({ "role": "user", "content": labelled(text, images, None) })
        }
        Item::Assistant { text, calls, wired: _ } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Item::Assistant { text, calls, wired: _ } => {
            let calls: Vec<_> = calls
                .iter()
                .map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            let content = Some(text).filter(|text| !text.is_empty());
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        Item::Observation { call, text, .. } => json!({ "role": "tool", "tool_call_id": call, "content": text }),
    }
}

fn step(at: Timestamp, source: &str, text: &str) -> Value {
    json!({ "step_id": 0, "timestamp": at.to_string(), "source": source, "message": text })
}

fn agent_step(entry: &Entry, text: &str, calls: &[WireCall], run: &Run) -> Value {
    let mut step = step(entry.at, "agent", text);
    step["model_name"] = json!(run.model.name);
    if !calls.is_empty() {
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                // What was no JSON object went back to the model as an empty one.
                let arguments = serde_json::from_str::<Value>(&call.arguments).unwrap_or_else(|_| json!({}));
                json!({ "tool_call_id": call.id, "function_name": call.name, "arguments": arguments })
            })
            .collect();
        step["tool_calls"] = json!(calls);
    }
    if let Some(replied) = &entry.reply {
        step["metrics"] = json!({
            "prompt_tokens": replied.usage.input,
            "completion_tokens": replied.usage.output,
            "cached_tokens": replied.usage.cached,
            "cost_usd": projection::usd(replied.micros),
        });
    }
    step
}
