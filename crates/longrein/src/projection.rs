//! The public JSON lines: a versioned projection of the journal, not its private structs (`semantics.md` B6).
//!
//! A line keeps its meaning for ever; readers pass over what they do not know.

use longrein_core::event::{End, Event, How, No, RollbackWhy, RouteWhy, SettledBy, Truthful};
use longrein_core::hook::HookSpec;
use longrein_core::ids::{AttemptId, RunId, Seq};
use longrein_core::input::Truth;
use longrein_core::outcome::{Outcome, ToolError};
use longrein_core::owed;
use longrein_core::payload::{BlobRef, Content};
use longrein_core::program::To;
use longrein_core::repeat;
use longrein_core::retry::ErrorClass;
use longrein_core::route::class_word;
use longrein_core::ruling::{Ruling, Shadowed};
use longrein_core::run::{Run, Stage};
use longrein_core::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::backlog::Piecemeal;

/// The data of a blob, where it is to stand in the line itself; None: its reference stands there.
pub type Blobs<'a> = &'a dyn Fn(&BlobRef) -> Option<Value>;

/// One event as a JSON line. `run` is the state after the batch that carried it; it fills in the summary of a last line.
pub fn line(run: &Run, seq: Option<Seq>, at: Timestamp, event: &Event) -> Value {
    line_with(run, seq, at, event, &|_| None)
}

/// The same, with the data of blobs in their places.
pub fn line_with(run: &Run, seq: Option<Seq>, at: Timestamp, event: &Event, blobs: Blobs<'_>) -> Value {
    let mut line = envelope(&run.id, seq, at, event.kind().as_str());
    line.extend(body(event, blobs));
    if matches!(event, Event::RunEnded(_) | Event::RunParked(_) | Event::RunSuspended(_)) {
        line.extend(summary(run));
    }
    Value::Object(line)
}

/// What a provider said beside the text and the calls of a reply, block by block as it came: thoughts, signatures, fields
/// nobody reads. None: it said nothing else, or this is no reply.
pub fn raw(event: &Event) -> Option<Value> {
    let Event::ModelReplied(replied) = event else { return None };
    replied.reply.wired.as_ref().map(|wired| json!(wired))
}

/// A piece of a reply that does not stand yet. It has no number: it is in no journal.
pub fn piece(run: &RunId, at: Timestamp, attempt: AttemptId, piece: &Piecemeal) -> Value {
    let (kind, field) = match piece {
        Piecemeal::Text(text) => ("progress.text", Some(text)),
        Piecemeal::Thought(text) => ("progress.thought", Some(text)),
        Piecemeal::Restarted => ("progress.restarted", None),
    };
    let mut line = envelope(run, None, at, kind);
    line.extend(object(json!({ "turn": attempt.turn.to_string(), "attempt": attempt.to_string() })));
    line.extend(field.map(|text| ("text".to_owned(), json!(text))));
    Value::Object(line)
}

fn envelope(run: &RunId, seq: Option<Seq>, at: Timestamp, kind: &str) -> Map<String, Value> {
    object(json!({ "v": 1, "seq": seq, "at": at.to_string(), "run": run, "type": kind }))
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { unreachable!("only called with objects written out here") };
    map
}

fn content(content: &Content, blobs: Blobs<'_>) -> Value {
    match content {
        Content::Inline(payload) => payload.read().unwrap_or(Value::Null),
        Content::Blob(blob) => {
            blobs(blob).unwrap_or_else(|| json!({ "blob": blob.digest, "bytes": blob.bytes, "shown": blob.shown }))
        }
    }
}

fn error(error: &ToolError, blobs: Blobs<'_>) -> Value {
    let mut map = object(json!({ "class": error.class, "message": error.message }));
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    put("field", error.field.clone().map(Value::String));
    put("hint", error.hint.clone().map(Value::String));
    put("retry_after_s", error.retry_after_s.map(Value::from));
    put("data", error.data.as_ref().map(|data| content(data, blobs)));
    Value::Object(map)
}

/// The word for an outcome, as in `action.finished`.
pub fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Error(_) => "error",
        Outcome::NotDone(_) => "not_done",
        Outcome::Unknown(_) => "unknown",
    }
}

/// The event's own fields.
fn body(event: &Event, blobs: Blobs<'_>) -> Map<String, Value> {
    let value = match event {
        Event::RunStarted(e) => {
            let mut map = object(json!({
                "goal": e.task.goal, "model": e.task.model.name, "workspace": e.task.workspace,
                "tools": e.task.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
                "acceptance": e.task.acceptance.iter().map(|check| &check.name).collect::<Vec<_>>(),
                "limits": e.task.limits, "permission_mode": e.task.permission_mode, "policy": e.task.policy,
                "sources": e.task.sources, "binary": e.binary, "brings": e.brings,
            }));
            let hook = |hook: &HookSpec| json!({ "event": hook.event, "command": hook.label(), "source": hook.source });
            if let Some(program) = e.task.program.phases() {
                map.insert("program".to_owned(), json!(program.name));
            }
            if !e.task.images.is_empty() {
                map.insert("images".to_owned(), json!(e.task.images));
            }
            if !e.task.hooks.is_empty() {
                map.insert("hooks".to_owned(), e.task.hooks.iter().map(hook).collect());
            }
            Value::Object(map)
        }
        Event::RunForked(e) => json!({ "from": e.from, "at_seq": e.at, "limits": e.limits }),
        Event::RunClaimed(e) => json!({ "fence": e.fence, "host": e.host, "pid": e.pid, "binary": e.binary }),
        Event::InputReceived(e) => {
            let mut map = object(json!({ "input": e.input, "body": e.body }));
            if !e.images.is_empty() {
                map.insert("images".to_owned(), json!(e.images));
            }
            Value::Object(map)
        }
        Event::InputRefused(e) => json!({ "input": e.input, "reason": e.reason }),
        Event::ModelRequested(e) => {
            let mut map = object(json!({
                "attempt": e.attempt.to_string(), "model": e.model, "purpose": e.purpose, "bytes": e.bytes,
                "digest": e.digest, "reserved": e.reserved, "max_output": e.output, "counted": e.counted,
            }));
            if let Some(manifest) = &e.manifest {
                map.insert("manifest".to_owned(), json!(manifest));
            }
            Value::Object(map)
        }
        Event::ModelReplied(e) => json!({
            "attempt": e.attempt.to_string(), "text": e.reply.text,
            "calls": e.reply.calls.iter().map(|call| json!({ "name": call.name, "arguments": call.arguments }))
                .collect::<Vec<_>>(),
            "finish": e.reply.finish, "usage": e.usage, "estimated": e.settled, "usd": usd(e.micros),
            "repaired": e.reply.repaired.is_some(),
        }),
        Event::ModelFailed(e) => json!({
            "attempt": e.attempt.to_string(), "class": e.class, "error_class": ErrorClass::of_model(e.class),
            "message": e.message, "status": e.status,
            "usage": e.usage, "estimated": e.settled, "usd": usd(e.micros), "next": e.next,
        }),
        Event::ModelForgone(e) => json!({ "next": e.next, "reason": e.reason }),
        Event::GenerationStarted(e) => json!({
            "generation": e.generation, "why": e.why, "limit": e.limit, "reserved": e.reserved, "before": e.before,
            "after": e.after, "steps": e.steps,
        }),
        Event::SummaryRequested(e) => json!({
            "generation": e.generation, "attempt": e.attempt, "from": e.from, "to": e.to, "model": e.model,
            "bytes": e.bytes, "digest": e.digest, "reserved": e.reserved, "counted": e.counted,
        }),
        Event::SummaryFinished(e) => json!({
            "generation": e.generation, "attempt": e.attempt, "outcome": e.outcome, "usage": e.usage,
            "estimated": e.settled, "usd": usd(e.micros),
        }),
        Event::JudgeRequested(e) => json!({
            "check": e.check, "round": e.round, "call": e.call, "model": e.model, "bytes": e.bytes, "digest": e.digest,
            "reserved": e.reserved, "tree": e.tree, "opinion": true,
        }),
        Event::JudgeFinished(e) => json!({
            "check": e.check, "round": e.round, "call": e.call, "outcome": e.outcome, "usage": e.usage,
            "estimated": e.settled, "usd": usd(e.micros), "opinion": true,
        }),
        Event::ResultSpilled(e) => json!({ "action": e.action, "shown": e.shown, "total": e.total }),
        Event::NoteTaken(e) => json!({ "action": e.action, "note": e.note }),
        Event::ModelRouted(e) => {
            let (why, class) = match &e.why {
                RouteWhy::Failed(class) => ("failed", Some(class_word(*class))),
                RouteWhy::Phase(_) => ("phase", None),
                RouteWhy::Context(_) => ("context", None),
                RouteWhy::Spent(_) => ("spent", None),
                RouteWhy::Images => ("images", None),
                RouteWhy::CooledDown => ("cooled_down", None),
                RouteWhy::Main => ("main", None),
            };
            let mut map = object(json!({
                "from": e.from, "model": e.model.name, "why": why, "class": class, "words": e.words,
                "wanted": e.wanted, "until": e.until.map(|at| at.to_string()), "by": "route",
            }));
            if !e.passed_over.is_empty() {
                map.insert("passed_over".to_owned(), json!(e.passed_over));
            }
            Value::Object(map)
        }
        Event::ModelSwitched(e) => json!({ "input": e.input, "model": e.model.name }),
        Event::ActionProposed(e) => {
            let mut map = object(json!({
                "action": e.action, "tool": e.tool, "effect": e.effect, "args": e.args, "digest": e.digest,
            }));
            map.extend(e.proposer.undoes().map(|other| ("compensates".to_owned(), json!(other))));
            map.extend(e.proposer.phase().map(|phase| ("phase".to_owned(), json!(phase))));
            Value::Object(map)
        }
        Event::ActionRefused(e) => {
            let mut map = object(json!({ "action": e.action, "error": error(&e.error, blobs) }));
            if let Some(would) = &e.would {
                map.insert("would".to_owned(), shadowed(would));
            }
            Value::Object(map)
        }
        Event::ActionHeld(e) => {
            json!({
                "action": e.action, "digest": e.digest, "rule": e.rule, "reason": e.reason, "wants": e.wants,
                "effects": e.effects, "always": e.exact.is_some(),
            })
        }
        Event::ActionApproved(e) => {
            let mut map = object(json!({
                "action": e.action, "input": e.input, "by": e.by, "door": e.door, "expires": e.expires.to_string(),
                "covers": e.covers, "reason": e.reason,
            }));
            map.extend(e.typed.iter().map(|typed| ("typed".to_owned(), json!(typed))));
            Value::Object(map)
        }
        Event::ActionDenied(e) => {
            let (input, door) = (e.no.input(), e.no.door());
            let mut map =
                object(json!({ "action": e.action, "input": input, "by": e.by, "door": door, "reason": e.reason }));
            if e.no == No::Expired {
                map.insert("expired".to_owned(), json!(true));
            }
            Value::Object(map)
        }
        Event::ActionStarted(e) => json!({
            "action": e.action, "attempt": e.attempt, "fence": e.fence, "effect": e.effect, "rule": e.rule,
            "idempotency_key": e.idempotency_key, "brings": e.brings.as_slice(), "sandbox": e.sandbox,
            "beyond": e.beyond, "tree": e.tree,
        }),
        Event::ActionRequeued(e) => {
            let mut map = object(json!({ "action": e.action, "why": e.why }));
            if let Some(from) = e.from {
                map.insert("from".to_owned(), json!(from.to_string()));
            }
            if let Some(failed) = &e.error {
                map.insert("error".to_owned(), error(failed, blobs));
            }
            Value::Object(map)
        }
        Event::ActionProbed(e) => json!({
            "action": e.action, "attempt": e.attempt, "answer": e.answer,
            "retry_at": e.retry_at.map(|at| at.to_string()),
        }),
        Event::ActionFinished(e) => {
            let mut map = object(json!({
                "action": e.action, "attempt": e.attempt, "effect": e.effect, "outcome": outcome_word(&e.outcome),
                "how": match &e.how {
                    How::Observed => "observed",
                    How::Recovered => "recovered",
                    How::Reconciled => "reconciled",
                    How::Replayed { .. } => "replayed",
                    How::Answered => "answered",
                    How::Kept => "kept",
                },
                "replayed": matches!(e.how, How::Replayed { .. }), "brings": e.brings,
            }));
            match &e.outcome {
                Outcome::Done(result) => {
                    map.insert("evidence".to_owned(), json!(e.evidence()));
                    map.insert("data".to_owned(), content(result, blobs));
                }
                Outcome::Error(failed) | Outcome::NotDone(failed) | Outcome::Unknown(failed) => {
                    map.insert("error".to_owned(), error(failed, blobs));
                }
            }
            Value::Object(map)
        }
        Event::ActionSettled(e) => json!({
            "action": e.action,
            "as": match &e.truth { Truth::Done(_) => "done", Truth::NotDone => "not_done" },
            "data": match &e.truth { Truth::Done(result) => content(result, blobs), Truth::NotDone => Value::Null },
            "by": match &e.by { SettledBy::Person { by, .. } => by.clone(), SettledBy::LateOutcome { .. } => "late outcome".to_owned() },
            "brings": e.brings,
        }),
        Event::AnswerAccepted(e) => json!({
            "attempt": e.attempt.to_string(), "answer": e.accepted.answer, "rendered": e.accepted.rendered,
            "evidence": e.accepted.evidence,
        }),
        Event::AnswerRefused(e) => {
            let mut map = object(json!({ "attempt": e.attempt.to_string(), "reason": e.reason }));
            if let Some(unfinished) = &e.unfinished {
                map.insert("unfinished".to_owned(), json!(unfinished));
            }
            map.extend(e.phase.iter().map(|phase| ("phase".to_owned(), json!(phase))));
            Value::Object(map)
        }
        Event::ActionRolledBack(e) => json!({
            "action": e.action, "to": e.to, "paths": e.paths, "count": e.count, "aside": e.aside,
            "why": rollback_why(&e.why),
        }),
        Event::ActionNotUndone(e) => json!({
            "action": e.action, "reason": e.reason, "why": rollback_why(&e.why),
        }),
        Event::ChecksVoided(e) => json!({ "round": e.round, "tree": e.tree }),
        Event::CheckFinished(e) => {
            let proof = &e.verdict.proof;
            let mut map = object(json!({
                "check": e.check, "round": e.round, "action": e.action, "verdict": e.verdict.finding,
                "exit_status": e.verdict.exit_status, "took_ms": e.verdict.took_ms,
                "evidence": content(&e.verdict.evidence, blobs), "brings": e.brings, "command": proof.command,
                "output": proof.output, "tree": proof.tree, "left": proof.left, "unhashed": proof.unhashed,
                "protected": proof.protected, "program": proof.program.as_ref().map(|(file, _)| file),
                "opinion": proof.opinion.is_some(),
            }));
            map.extend(e.phase.iter().map(|phase| ("phase".to_owned(), json!(phase))));
            Value::Object(map)
        }
        Event::ChildStarted(e) => json!({
            "child": e.child, "key": e.key, "goal": e.goal, "grant": e.grant, "at_once": e.at_once, "writes": e.writes,
        }),
        Event::ChildEnded(e) => {
            let report = &e.report;
            let (answer, verified) = match &report.end {
                End::Done(done) => (json!(done.accepted.answer), json!(done.verified)),
                End::Exhausted(_) | End::Failed(_) | End::ContextExhausted | End::Cancelled => {
                    (Value::Null, Value::Null)
                }
            };
            let spent = &report.spent;
            json!({
                "child": report.child, "input": e.input, "state": report.end.state(), "reason": report.reason,
                "answer": answer, "verified": verified,
                "usage": {
                    "input": spent.usage.input, "cached": spent.usage.cached, "cache_write": spent.usage.cache_write,
                    "output": spent.usage.output, "reasoning": spent.usage.reasoning, "usd": usd(spent.micros),
                },
                "turns": spent.turns, "model_calls": spent.model_calls, "tool_calls": spent.tool_calls,
                "unknown": report.unknown, "brings": report.brings,
            })
        }
        Event::HookFinished(e) => json!({
            "hook": e.hook, "event": e.event, "command": e.command, "outcome": e.outcome.as_str(),
            "reason": e.outcome.reason(), "words": e.words, "took_ms": e.took_ms, "action": e.action, "input": e.input,
        }),
        Event::LoopNoticed(e) => json!({
            "repetition": e.repetition, "level": e.level, "tools": e.tools, "times": e.times, "since": e.since,
            "last": e.last, "class": e.class, "message": repeat::what(e),
        }),
        Event::FactSet(e) => json!({ "fact": e.fact, "evidence": e.evidence }),
        Event::FactVoided(e) => json!({ "fact": e.fact, "evidence": e.evidence }),
        Event::BudgetReached(e) => json!({ "budget": e.budget }),
        Event::BudgetRaised(e) => json!({ "input": e.input, "raise": e.raise }),
        Event::SourceEndorsed(e) => json!({ "input": e.input, "source": e.source, "by": e.by, "door": e.door }),
        Event::SurroundingsChanged(e) => json!({ "changed": e.changed, "permission_mode": e.mode }),
        Event::TransitionTaken(e) => {
            let (to, reason) = match &e.to {
                To::Phase(_) | To::Done => (e.to.to_string(), None),
                To::Failed(reason) => (e.to.to_string(), Some(reason)),
            };
            let values = e.values.iter().map(|found| match &found.value {
                Truthful::True => json!({ "when": found.when, "value": true }),
                Truthful::False => json!({ "when": found.when, "value": false }),
                Truthful::Error(problem) => json!({ "when": found.when, "value": null, "error": problem }),
            });
            json!({
                "from": e.from, "to": to, "reason": reason, "why": e.why, "values": values.collect::<Vec<_>>(),
                "output": e.output.as_ref().map(|output| content(output, blobs)), "lesson": e.lesson,
            })
        }
        Event::RunParked(e) => json!({ "waits": e.waits }),
        Event::RunSuspended(e) => json!({ "cause": e.cause, "detail": e.detail }),
        Event::RunEnded(e) => {
            let mut map = object(json!({ "remark": e.remark, "done": e.done, "undone": e.undone }));
            if !e.would.is_nothing() {
                map.insert("would".to_owned(), json!(e.would));
            }
            Value::Object(map)
        }
    };
    let mut fields = object(value);
    // Of what does not taint there is nothing to say.
    if fields.get("brings").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("brings");
    }
    fields
}

/// Why something is undone.
fn rollback_why(why: &RollbackWhy) -> Value {
    match why {
        RollbackWhy::Check => json!("check"),
        RollbackWhy::Lost => json!("lost"),
        RollbackWhy::Operator { by, .. } => json!({ "operator": by }),
    }
}

/// What a call of a shadow run would have been.
pub fn shadowed(would: &Shadowed) -> Value {
    let ruling = match &would.ruling {
        Ruling::Allow { .. } => "allow",
        Ruling::Ask { .. } => "ask",
        Ruling::Deny { .. } => "deny",
    };
    json!({
        "ruling": ruling, "rule": would.ruling.rule(), "reason": would.ruling.reason(), "effects": would.effects,
    })
}

/// Micro-dollars as dollars.
pub fn usd(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown only; exact up to nine billion dollars")]
    let micros = micros as f64;
    micros / 1_000_000.0
}

/// What the last line of a run says: state, answer, proof and totals.
pub fn summary(run: &Run) -> Map<String, Value> {
    let row = longrein_driver::run_row(run);
    let (answer, verified, evidence) = match answer(run) {
        Some(done) => (json!(done.accepted.answer), json!(done.verified), json!(done.accepted.evidence)),
        None => (Value::Null, Value::Null, json!([])),
    };
    let rendered = answer_text(run).map_or(Value::Null, Value::from);
    let (_, _, unknown) = owed::effects(run);
    let spent = &run.spent;
    object(json!({
        "state": row.state, "permission_mode": run.mode, "reason": row.reason, "answer": answer, "rendered": rendered, "verified": verified,
        "evidence": evidence,
        "usage": {
            "input": spent.usage.input, "cached": spent.usage.cached, "cache_write": spent.usage.cache_write,
            "output": spent.usage.output, "reasoning": spent.usage.reasoning, "usd": usd(spent.micros),
        },
        "turns": spent.turns, "model_calls": spent.model_calls, "tool_calls": spent.tool_calls,
        "failed_calls": run.failed_calls, "recoveries": run.recoveries, "unknown": unknown,
    }))
}

/// The proven or claimed answer of a run that is done.
pub fn answer(run: &Run) -> Option<&longrein_core::event::Done> {
    match &run.stage {
        Stage::Rest(ended) => match &ended.end {
            longrein_core::event::End::Done(done) => Some(done),
            longrein_core::event::End::Exhausted(_)
            | longrein_core::event::End::Failed(_)
            | longrein_core::event::End::ContextExhausted
            | longrein_core::event::End::Cancelled => None,
        },
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => None,
    }
}

/// The answer as people read it.
pub fn answer_text(run: &Run) -> Option<&str> {
    answer(run).map(|done| done.accepted.rendered.as_str())
}
