//! What is known of a run, as values for a client: its state and the way on, what waits for a person, events, evidence.

use longrein::core::action::{Action, Life};
use longrein::core::event::{Event, Wait, Wants};
use longrein::core::ids::{EvidenceId, RunId, Seq};
use longrein::core::input::{Input, InputBody, Truth};
use longrein::core::outcome::Outcome;
use longrein::core::owed;
use longrein::core::payload::Content;
use longrein::core::run::{Run, Stage};
use longrein::mcp_server::{Class, Fault};
use longrein::ports::{Holder, Recorded, RecordedBody};
use longrein::projection;
use serde_json::{Map, Value, json};

use super::desk::{Desk, of_runs};

/// The most bytes of one page of events, and of one piece of evidence.
const PAGE_MAX_BYTES: usize = 512 * 1024;
const EVIDENCE_MAX_BYTES: usize = 256 * 1024;

pub(super) async fn holder(desk: &Desk, id: &RunId) -> Option<Holder> {
    // Who cannot be looked up is looked up by the claim itself.
    desk.session.runs.listed(id).await.ok().flatten().and_then(|(_, holder)| holder)
}

/// State, answer, proof and totals; what it waits for; the command that goes on where it is not driven.
pub(super) async fn status(desk: &Desk, run: &Run) -> Value {
    Value::Object(state(desk, run).await)
}

async fn state(desk: &Desk, run: &Run) -> Map<String, Value> {
    let mut status = Map::new();
    status.insert("run".to_owned(), json!(run.id));
    status.extend(projection::summary(run));
    let root = run.descent.as_ref().map_or(&run.id, |descent| &descent.root);
    let is_held = desk.is_driven_here(root) || holder(desk, root).await.is_some();
    if !is_held && status.get("state").and_then(Value::as_str) == Some("running") {
        status.insert("state".to_owned(), json!("interrupted"));
    }
    status.insert("head".to_owned(), json!(run.head));
    let waits = owed::waits(run);
    let questions = if matches!(run.stage, Stage::Rest(_)) { Vec::new() } else { questions(desk, run, &waits).await };
    if !questions.is_empty() {
        status.insert("waits_for".to_owned(), json!(questions));
    }
    let way_on = match &run.stage {
        Stage::Rest(ended) => crate::run::way_on(run, ended),
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
            let commands = crate::answer::commands(&run.id, &waits);
            commands.into_iter().next().or_else(|| (!is_held).then(|| format!("resume {root}")))
        }
    };
    if let Some(command) = way_on {
        status.insert("way_on".to_owned(), json!(desk.session.store.command(&command)));
    }
    status
}

/// What a run waits for, its children's questions too.
async fn questions(desk: &Desk, run: &Run, waits: &[Wait]) -> Vec<Value> {
    let mut all = Vec::new();
    for (of, wait) in Wait::questions(&run.id, waits) {
        let (kind, action) = match wait {
            Wait::Approval(action) => ("approval", action),
            Wait::Answer(action) => ("question", action),
            Wait::Unknown(action) => ("unknown", action),
            // Its own questions are among them.
            Wait::Child { .. } => continue,
        };
        let child = if *of == run.id { None } else { desk.fold(of).await.ok() };
        let asked = child.as_ref().unwrap_or(run).action(*action).and_then(waiting);
        all.push(asked.map_or_else(|| json!({ "kind": kind, "action": action }), |asked| with_run(of, asked)));
    }
    all
}

fn with_run(run: &RunId, asked: Map<String, Value>) -> Value {
    let mut object = Map::new();
    object.insert("run".to_owned(), json!(run));
    object.extend(asked);
    Value::Object(object)
}

/// What an action waits for a person with. None: it does not.
fn waiting(action: &Action) -> Option<Map<String, Value>> {
    let (kind, reason, rule, effects) = if let Life::Held(question) = &action.life {
        let kind = match question.wants {
            Wants::Yes | Wants::Typed(_) => "approval",
            Wants::Words => "question",
        };
        (kind, question.reason.clone(), json!(question.rule), json!(question.effects))
    } else if let Life::Unknown(error) = &action.life {
        ("unknown", error.message.clone(), Value::Null, json!([]))
    } else {
        return None;
    };
    let asked = json!({
        "action": action.id, "kind": kind, "tool": action.tool, "args": action.args, "effect": action.effect,
        "reason": reason, "rule": rule, "effects": effects,
    });
    let Value::Object(asked) = asked else { return None };
    Some(asked)
}

/// What waits for a person, over all runs.
pub(super) async fn approvals(desk: &Desk) -> Result<Value, Fault> {
    let runs = &desk.session.runs;
    let mut all = Vec::new();
    for (row, _) in runs.list().await.map_err(of_runs)? {
        if !matches!(row.state.as_str(), "waiting" | "running" | "suspended" | "cancelled") {
            continue;
        }
        // A run that cannot be folded cannot be answered either.
        let Ok(run) = runs.fold(&row.run, |_| {}).await else { continue };
        let inbox = runs.inbox(&row.run).await.map_err(of_runs)?;
        for action in run.actions() {
            let Some(mut asked) = waiting(action) else { continue };
            let answered = inbox.iter().any(|input| answers(input, action));
            // It waits for nobody any more.
            if !answered && crate::answer::expired(runs, &run, action.id).is_some() {
                continue;
            }
            asked.insert("answered".to_owned(), json!(answered));
            all.push(with_run(&run.id, asked));
        }
    }
    Ok(json!({ "waiting": all }))
}

fn answers(input: &Input, action: &Action) -> bool {
    if let InputBody::Approve(answer) = &input.body {
        answer.action == action.id
    } else if let InputBody::Deny(answer) = &input.body {
        answer.action == action.id
    } else if let InputBody::Settle(answer) = &input.body {
        answer.action == action.id
    } else {
        action.asks().is_some() && matches!(input.body, InputBody::Message(_))
    }
}

pub(super) async fn list(desk: &Desk, most: usize) -> Result<Value, Fault> {
    let all = desk.session.runs.list().await.map_err(of_runs)?;
    let total = all.len();
    let rows: Vec<Value> = all
        .into_iter()
        .take(most)
        .map(|(row, holder)| {
            let is_held = holder.is_some();
            let state = if row.state == "running" && !is_held { "interrupted" } else { row.state.as_str() };
            json!({
                "run": row.run, "state": state, "reason": row.reason, "goal": row.goal, "turns": row.turns,
                "usd": projection::usd(row.micros), "started": row.started.to_string(), "updated": row.updated.to_string(),
                "parent": row.parent, "driven": is_held,
            })
        })
        .collect();
    Ok(json!({ "runs": rows, "total": total }))
}

pub(super) async fn glance(desk: &Desk, run: &Run) -> Result<Value, Fault> {
    let mut shown = state(desk, run).await;
    let evidence: Vec<Value> = run
        .evidence
        .iter()
        .map(|(id, found)| {
            json!({ "id": id, "tool": found.tool, "at": found.at.to_string(), "void_since": run.void_since(found) })
        })
        .collect();
    let more = json!({
        "goal": run.task.goal, "constraints": run.task.constraints, "model": run.model.name,
        "workspace": run.task.workspace, "limits": run.limits,
        "facts": run.facts.keys().filter(|fact| run.fact_holds(fact)).collect::<Vec<_>>(),
        "evidence_live": evidence,
        "unknown_effects": run.uncertain().map(|action| json!({ "action": action.id, "tool": action.tool, "args": action.args })).collect::<Vec<_>>(),
        "inbox": desk.session.runs.inbox(&run.id).await.map_err(of_runs)?.len(),
        "parent": run.descent.as_ref().map(|descent| &descent.parent),
    });
    if let Value::Object(more) = more {
        shown.extend(more);
    }
    Ok(Value::Object(shown))
}

/// Events after a number: the lines that `log --json` prints.
pub(super) async fn log(desk: &Desk, id: &RunId, after: Seq, most: usize) -> Result<Value, Fault> {
    let mut run: Option<Run> = None;
    let (mut events, mut bytes, mut next, mut more) = (Vec::new(), 0, after, false);
    let mut from = Seq(0);
    let runs = &desk.session.runs;
    'pages: loop {
        let page = runs.records(id, from).await.map_err(of_runs)?;
        let Some(last) = page.last() else { break };
        from = last.seq;
        for record in &page {
            let line = line(&mut run, record, id);
            if record.seq <= after {
                continue;
            }
            bytes += line.to_string().len();
            if events.len() >= most || (bytes > PAGE_MAX_BYTES && !events.is_empty()) {
                more = true;
                break 'pages;
            }
            next = record.seq;
            events.push(line);
        }
    }
    Ok(json!({ "run": id, "events": events, "next": next, "more": more }))
}

fn line(run: &mut Option<Run>, record: &Recorded, id: &RunId) -> Value {
    let bare = |kind: &str| json!({ "v": 1, "seq": record.seq, "at": record.at.to_string(), "run": id, "type": kind });
    match &record.body {
        RecordedBody::Known(event) => {
            match (&mut *run, event) {
                (None, Event::RunStarted(started)) => *run = Some(Run::new(started, record.at)),
                (Some(run), event) => run.apply(record.seq, record.at, event),
                (None, _) => {}
            }
            match run {
                Some(run) => projection::line(run, Some(record.seq), record.at, event),
                None => bare(event.kind().as_str()),
            }
        }
        RecordedBody::Unknown { kind, .. } => bare(kind),
        RecordedBody::Damaged { .. } => bare("damaged"),
    }
}

/// What an action brought back, from the journal: it may have left the window long ago.
pub(super) async fn evidence(desk: &Desk, id: &RunId, evidence: &str) -> Result<Value, Fault> {
    let wanted: EvidenceId = evidence.parse().map_err(|error| Fault::new(Class::Usage, format!("{error}")))?;
    let (mut proposed, mut found) = (None, None);
    let runs = &desk.session.runs;
    let run = runs
        .fold(id, |record| {
            let RecordedBody::Known(event) = &record.body else { return };
            if let Event::ActionProposed(action) = event
                && action.action.evidence() == wanted
            {
                proposed = Some((action.action, action.tool.clone(), action.args.clone()));
            } else if let Event::ActionFinished(finished) = event
                && finished.action.evidence() == wanted
            {
                found = Some((record.seq, record.at, finished.outcome.clone()));
            } else if let Event::ActionSettled(settled) = event
                && settled.action.evidence() == wanted
                && let Truth::Done(content) = &settled.truth
            {
                found = Some((record.seq, record.at, Outcome::Done(content.clone())));
            }
        })
        .await
        .map_err(of_runs)?;
    let missing = || Fault::new(Class::NotFound, format!("run {id} has no evidence {wanted}")).hint("run_show");
    let (Some((action, tool, args)), Some((seq, at, outcome))) = (proposed, found) else { return Err(missing()) };
    let (word, content) = match &outcome {
        Outcome::Done(content) => ("done", Some(content)),
        Outcome::Error(error) => ("error", error.data.as_ref()),
        Outcome::NotDone(error) => ("not_done", error.data.as_ref()),
        Outcome::Unknown(error) => ("unknown", error.data.as_ref()),
    };
    let error = match &outcome {
        Outcome::Done(_) => Value::Null,
        Outcome::Error(error) | Outcome::NotDone(error) | Outcome::Unknown(error) => {
            json!({ "class": error.class, "message": error.message, "hint": error.hint })
        }
    };
    let (content, total, is_cut) = match content {
        None => (Value::Null, 0, false),
        Some(content) => whole(desk, content).await?,
    };
    Ok(json!({
        "run": id, "evidence": wanted, "action": action, "tool": tool, "args": args, "seq": seq, "at": at.to_string(),
        "outcome": word, "content": content, "bytes": total, "cut": is_cut, "error": error,
        "void_since": run.evidence.get(&wanted).and_then(|found| run.void_since(found)),
    }))
}

/// A content as a value; a large one as the beginning of its text.
async fn whole(desk: &Desk, content: &Content) -> Result<(Value, usize, bool), Fault> {
    let text = match content {
        Content::Inline(payload) => payload.as_str().to_owned(),
        Content::Blob(blob) => match desk.session.runs.blob(&blob.digest).await.map_err(of_runs)? {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => return Err(Fault::new(Class::Data, format!("the data of blob {} are gone", blob.digest))),
        },
    };
    let total = text.len();
    if total <= EVIDENCE_MAX_BYTES {
        return Ok((serde_json::from_str(&text).unwrap_or(Value::String(text)), total, false));
    }
    // Of a long text its own beginning reads better than that of its JSON.
    let text = serde_json::from_str::<String>(&text).unwrap_or(text);
    Ok((json!(text[..text.floor_char_boundary(EVIDENCE_MAX_BYTES)]), total, true))
}
