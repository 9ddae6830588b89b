//! Laws 6 and 7: what the model was sent. Every journaled request is looked at as it was encoded, beside the state that the
//! events before it add up to; what must be visible is found out from the events themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::check::Finding;
use longrein_core::context::note::NoteKind;
use longrein_core::event::{Event, ModelRequested, Received};
use longrein_core::ids::{ActionId, RunId, Seq, ToolName};
use longrein_core::input::Truth;
use longrein_core::outcome::{ModelErrorClass, Outcome};
use longrein_core::prompt::Item;
use longrein_core::run::Run;
use longrein_core::task::EffectClass;

use crate::people::{Counts, Sent};
use crate::store::ShadowRun;
use crate::town::Town;

/// Requests a provider may find too long in a row: the first, and two smaller ones.
const REFUSED_IN_A_ROW_MAX: u32 = 3;

/// Tokens of a thousand bytes where nobody counts.
const DENSITY: u64 = 250;

/// What the events so far say about the requests that come.
#[derive(Default)]
struct Past {
    /// Messages and their words.
    messages: BTreeMap<Seq, String>,
    /// Live notes that are pinned.
    notes: BTreeMap<String, (NoteKind, String)>,
    tools: BTreeMap<ActionId, (ToolName, EffectClass)>,
    /// Which call another one undoes.
    undoes: BTreeMap<ActionId, ActionId>,
    effects: BTreeMap<ActionId, Effect>,
    /// Arguments of all calls: what they name is used.
    arguments: Vec<String>,
    /// The last request, while nothing but its failure followed.
    last: Option<Last>,
    refused_in_a_row: u32,
}

struct Last {
    sent: Arc<Sent>,
    model: longrein_core::ids::ModelName,
    turn: longrein_core::ids::TurnId,
    failed: Option<ModelErrorClass>,
}

/// What is known of an external call that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Pending,
    Done,
    NotDone,
    Unknown,
    /// It happened, and its check failed.
    Failed,
    /// That too, and its compensation happened.
    Compensated,
}

pub(super) fn check(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let counts = town.brain.counts();
    let mut run: Option<Run> = None;
    let mut past = Past::default();
    for (number, new) in shadow.events.iter().enumerate() {
        let seq = Seq(number as u64 + 1);
        let Some(run) = &mut run else {
            let Event::RunStarted(started) = &new.event else { return };
            run = Some(Run::new(started, new.at));
            continue;
        };
        if let Event::ModelRequested(requested) = &new.event {
            // None: another process encoded it in another way, which is found elsewhere.
            if let Some(sent) = town.brain.request(&requested.digest) {
                let breach = |law, what: String| {
                    town.record.breach(law, format!("{id}: request {} at event {seq}: {what}", requested.attempt));
                };
                law_6(run, requested, &sent, counts.as_ref(), &breach);
                law_7(run, &past, &sent, &breach);
                let density = counts.as_ref().map_or(DENSITY, |counts| counts.density);
                past.resent(requested, &sent, density, &breach);
                past.sent(requested, sent);
            }
        }
        past.note(seq, &new.event);
        if past.refused_in_a_row > REFUSED_IN_A_ROW_MAX {
            let what = format!("{id}: {} requests in a row were too long by event {seq}", past.refused_in_a_row);
            town.record.breach("law_6", what);
        }
        run.apply(seq, new.at, &new.event);
    }
}

/// Nothing over the limit is sent: by the estimate, and in truth where the model's tokens are counted.
fn law_6(
    run: &Run,
    requested: &ModelRequested,
    sent: &Sent,
    counts: Option<&Counts>,
    breach: &impl Fn(&'static str, String),
) {
    if let Err(what) = crate::people::pairing(&sent.items) {
        breach("law_4", what);
    }
    let Some(counted) = requested.counted else { return breach("law_6", "nobody counted it".to_owned()) };
    let limit = run.window_limit();
    if counted.upper > counted.safe {
        breach("law_6", format!("at most {} tokens where {} are safe", counted.upper, counted.safe));
    }
    if counted.safe + sent.max_output > limit {
        breach("law_6", format!("{} safe and {} of output in a window of {limit}", counted.safe, sent.max_output));
    }
    if let Some(counts) = counts {
        let tokens = sent.tokens(counts.density);
        if tokens + sent.max_output > limit {
            breach("law_6", format!("{tokens} tokens and {} of output in a window of {limit}", sent.max_output));
        }
    }
}

/// So many settled effects are shown whatever else there is.
const SETTLED_SHOWN: usize = 3;
/// The handle by which the model has the list of all.
const OLDER_EFFECTS: &str = "\"effects\"";

/// Pinned is pinned: whatever the window was through, it shows all that must not be lost.
fn law_7(run: &Run, past: &Past, sent: &Sent, breach: &impl Fn(&'static str, String)) {
    let text = sent.text();
    let shows = |what: &str, words: &str| {
        if !text.contains(words) {
            breach("law_7", format!("{what} is not shown: {words}"));
        }
    };
    shows("the goal", &run.task.goal);
    run.task.constraints.iter().for_each(|words| shows("a constraint", words));
    run.task.acceptance.iter().for_each(|check| shows("a check", &check.what()));
    for message in run.memory.messages.iter().filter(|message| message.reviewed.is_none()) {
        match past.messages.get(&message.seq) {
            Some(words) => shows("a message", words),
            None => breach("law_7", format!("there is no message of event {}", message.seq)),
        }
    }
    past.notes.iter().for_each(|(id, (_, words))| shows(&format!("the note {id}"), words.trim_end()));
    for file in &run.task.rules {
        let folder = file.path.rsplit_once('/').map(|(folder, _)| folder);
        if folder.is_none_or(|folder| past.arguments.iter().any(|args| args.contains(folder))) {
            shows(&file.path, &file.text);
        }
    }
    // Of those that are settled the newest are shown; how many others there are, and where, is said.
    let is_settled = |effect: &Effect| match effect {
        Effect::Done | Effect::NotDone | Effect::Failed | Effect::Compensated => true,
        Effect::Pending | Effect::Unknown => false,
    };
    let settled: Vec<_> = past.effects.iter().filter(|(_, effect)| is_settled(effect)).map(|(id, _)| *id).collect();
    let old = &settled[..settled.len().saturating_sub(SETTLED_SHOWN)];
    for (action, effect) in &past.effects {
        if old.contains(action) && text.contains(OLDER_EFFECTS) {
            continue;
        }
        let tool = past.tools.get(action).map(|(tool, _)| tool.as_str()).unwrap_or_default();
        if !shows_effect(sent, *action, tool, *effect) {
            breach("law_7", format!("{action} {tool}, which is {effect:?}, is not shown as that"));
        }
    }
}

/// By its observation, by a later word on it, or by a line of the control block.
fn shows_effect(sent: &Sent, action: ActionId, tool: &str, effect: Effect) -> bool {
    let state = match effect {
        Effect::Pending => "pending",
        Effect::Done => "done",
        Effect::NotDone => "not done",
        Effect::Unknown => "unknown",
        Effect::Failed => "done",
        Effect::Compensated => "done and undone by its compensation",
    };
    let (line, update) = (format!("- {action} {tool} "), format!("[update: {action} {tool} is now known"));
    let in_block = |text: &str| {
        let mut lines = text.lines().filter(|text| text.starts_with(&line));
        lines.any(|text| text.ends_with(&format!(": {state}")) || text.contains(&format!(": {state} →")))
    };
    sent.items.iter().any(|item| match item.as_ref() {
        Item::Observation { action: of, text, .. } if *of == action => match effect {
            Effect::Done => text.contains("\"ok\":true"),
            Effect::NotDone => {
                let is_said = text.contains("did not happen") || !text.contains("unknown_outcome");
                text.contains("\"ok\":false") && is_said
            }
            Effect::Unknown | Effect::Pending => text.contains("\"ok\":false"),
            Effect::Failed => text.contains("check_failed") && text.contains("NOT be undone"),
            Effect::Compensated => text.contains("check_failed") && text.contains("was undone by"),
        },
        // What undoes another call is told of in that call's observation.
        Item::Observation { text, .. } if text.contains(&format!("({action})")) => true,
        Item::Harness(text) => text.contains(&update) || in_block(text) || of_program(text, action, effect),
        Item::Observation { .. }
        | Item::User(_)
        | Item::Pictured { .. }
        | Item::Exhibit { .. }
        | Item::Assistant { .. } => false,
    })
}

/// The words on a call that the program made.
fn of_program(text: &str, action: ActionId, effect: Effect) -> bool {
    let Some((_, result)) = text.split_once("Its result, which is data:\n") else { return false };
    let is_it = result.starts_with(&format!("{{\"id\":\"{action}\","));
    is_it
        && match effect {
            Effect::Done => result.contains("\"ok\":true"),
            Effect::NotDone | Effect::Unknown | Effect::Pending | Effect::Failed | Effect::Compensated => {
                result.contains("\"ok\":false")
            }
        }
}

/// What a tail says of the budget.
fn left(tail: Option<&String>) -> Option<&str> {
    tail.and_then(|tail| tail.split_once("Left:")).map(|(_, left)| left)
}

impl Past {
    /// What is asked once more after a death is asked in the same words; after a refusal it is smaller.
    fn resent(&self, requested: &ModelRequested, sent: &Sent, density: u64, breach: &impl Fn(&'static str, String)) {
        let Some(last) = &self.last else { return };
        if last.turn != requested.attempt.turn || last.model != requested.model {
            return;
        }
        match last.failed {
            Some(ModelErrorClass::Lost) => {
                if last.sent.items != sent.items {
                    breach("law_7", "after a death other items are sent".to_owned());
                }
                // The lost call has cost something: what is left is said anew.
                let (before, now) = (&last.sent.tail, &sent.tail);
                if before != now && left(before.as_ref()) == left(now.as_ref()) {
                    breach("law_7", format!("after a death another tail is sent: {before:?}, then {now:?}"));
                }
                if last.sent.tools != sent.tools {
                    breach("law_7", "after a death other tools are sent".to_owned());
                }
            }
            Some(ModelErrorClass::ContextExhausted) => {
                let size = |sent: &Sent| sent.tokens(density) + sent.max_output;
                if size(sent) >= size(&last.sent) {
                    let (now, before) = (size(sent), size(&last.sent));
                    breach("law_6", format!("{before} was too long, and is followed by {now}"));
                }
            }
            Some(_) | None => {}
        }
    }

    fn sent(&mut self, requested: &ModelRequested, sent: Arc<Sent>) {
        let (model, turn) = (requested.model.clone(), requested.attempt.turn);
        self.last = Some(Last { sent, model, turn, failed: None });
    }

    fn undone(&mut self, by: ActionId, effect: Effect) {
        if let Some(other) = self.undoes.get(&by).filter(|_| effect == Effect::Done) {
            self.effects.insert(*other, Effect::Compensated);
        }
    }

    fn note(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::InputReceived(received) => {
                if let Received::Message(words) = &received.body {
                    self.messages.insert(seq, words.clone());
                }
                self.last = None;
            }
            Event::ModelSwitched(_) | Event::ModelRouted(_) | Event::BudgetRaised(_) => {
                self.refused_in_a_row = 0;
                self.last = None;
            }
            Event::ActionSettled(settled) => {
                let effect = match settled.truth {
                    Truth::Done(_) => Effect::Done,
                    Truth::NotDone => Effect::NotDone,
                };
                self.effects.entry(settled.action).and_modify(|known| *known = effect);
                self.undone(settled.action, effect);
                self.last = None;
            }
            Event::ModelReplied(_) => {
                self.refused_in_a_row = 0;
                self.last = None;
            }
            Event::ModelFailed(failed) => {
                if failed.class == ModelErrorClass::ContextExhausted {
                    self.refused_in_a_row += 1;
                }
                if let Some(last) = &mut self.last {
                    last.failed = Some(failed.class);
                }
            }
            Event::ActionProposed(proposed) => {
                self.tools.insert(proposed.action, (proposed.tool.clone(), proposed.effect));
                self.undoes.extend(proposed.proposer.undoes().map(|other| (proposed.action, *other)));
                self.arguments.push(proposed.args.as_str().to_owned());
            }
            Event::ActionStarted(started) if started.effect == EffectClass::External => {
                self.effects.insert(started.action, Effect::Pending);
            }
            Event::ActionFinished(finished) => {
                let effect = match finished.outcome {
                    Outcome::Done(_) => Effect::Done,
                    Outcome::NotDone(_) => Effect::NotDone,
                    Outcome::Error(_) | Outcome::Unknown(_) => Effect::Unknown,
                };
                self.effects.entry(finished.action).and_modify(|known| *known = effect);
                self.undone(finished.action, effect);
            }
            Event::CheckFinished(finished) if finished.verdict.finding == Finding::Failed => {
                if let Some(action) = finished.action {
                    self.effects.entry(action).and_modify(|known| *known = Effect::Failed);
                }
            }
            Event::NoteTaken(taken) => {
                let note = &taken.note;
                if let Some(id) = &note.replaces {
                    self.notes.remove(id);
                }
                match note.kind {
                    NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step => {
                        let id = format!("n{}", taken.action.0);
                        self.notes.insert(id, (note.kind, note.text.clone()));
                    }
                    NoteKind::Decision | NoteKind::Finding | NoteKind::Close => {}
                }
            }
            _ => {}
        }
    }
}
