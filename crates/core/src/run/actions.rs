//! What becomes of calls: proposed, started, finished, settled; and their observations when the turn is over.

use serde_json::Value;

use super::*;
use crate::payload::Payload;
use crate::prompt::wire_name;

impl Run {
    /// Puts the calls of a reply into the conversation: ids are filled in as they are proposed.
    pub(super) fn arguments_of(&mut self, reply: &crate::outcome::Reply) {
        if let Some(Item::Assistant { calls, .. }) = self.window.last_mut() {
            *calls = reply
                .calls
                .iter()
                .map(|call| WireCall {
                    id: String::new(),
                    name: wire_name(&call.name).into_owned(),
                    arguments: wire_arguments(&call.arguments),
                })
                .collect();
        }
    }

    pub(super) fn proposed(&mut self, proposed: &ActionProposed) {
        self.next_action = proposed.action.0 + 1;
        match &proposed.proposer {
            Proposer::Model => {
                self.call_ids.insert(proposed.call.clone());
                if let Some(Item::Assistant { calls, .. }) = self.window.last_mut()
                    && let Some(call) = calls.get_mut(proposed.index as usize)
                {
                    call.id = proposed.call.clone();
                }
            }
            Proposer::Program(_) => {
                self.call_ids.insert(proposed.call.clone());
                self.phase_calls(proposed.action);
            }
            // What the harness proposes is no call of the conversation.
            Proposer::Undo(_) | Proposer::Acceptance => {}
        }
        self.use_folders(proposed);
        let proposer = match &proposed.proposer {
            Proposer::Model => Proposer::Model,
            Proposer::Program(phase) => Proposer::Program(phase.clone()),
            Proposer::Undo(id) => {
                self.compensated(*id).map(|undone| Proposer::Undo(Box::new(undone))).unwrap_or_default()
            }
            Proposer::Acceptance => Proposer::Acceptance,
        };
        let on_unknown = self.task.tool(&proposed.tool).map_or(OnUnknown::Wait, |tool| tool.on_unknown);
        let turn = self.turn();
        let action = Action {
            id: proposed.action,
            turn,
            tool: proposed.tool.clone(),
            call: proposed.call.clone(),
            effect: proposed.effect,
            args: proposed.args.clone(),
            digest: proposed.digest.clone(),
            key: proposed.key.clone(),
            path: proposed.path.clone(),
            target: None,
            beyond: Vec::new(),
            after: proposed.after.clone(),
            on_unknown,
            first_start: None,
            attempts: 0,
            epoch: 0,
            idempotency_key: None,
            in_doubt: false,
            brings: Vec::new(),
            proposer,
            grant: None,
            tree: None,
            left: None,
            beside: false,
            life: Life::Queued,
        };
        match &proposed.proposer {
            Proposer::Acceptance => self.ask_about_checks(action),
            Proposer::Model | Proposer::Program(_) | Proposer::Undo(_) => {
                if let Stage::Acting { actions, .. } = &mut self.stage {
                    actions.insert(proposed.action, action);
                }
            }
        }
        if let Some(undone) = proposed.proposer.undoes() {
            self.compensating(*undone, proposed.action);
        }
    }

    pub(super) fn change(&mut self, id: ActionId, change: impl FnOnce(&mut Action)) {
        let present = match &mut self.stage {
            Stage::Acting { actions, .. } => actions.get_mut(&id),
            Stage::Verifying { question, .. } => question.as_deref_mut().filter(|question| question.id == id),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Rest(_) => None,
        };
        if let Some(action) = present.or(self.open.get_mut(&id)) {
            change(action);
        }
        self.end_compensated(id);
        self.close_turn_if_told();
    }

    pub(super) fn begin_epoch(&mut self) {
        self.answers.clear();
        self.epochs.push(self.head);
    }

    pub(super) fn action_started(&mut self, started: &ActionStarted) {
        if started.effect != EffectClass::Read {
            self.begin_epoch();
        }
        self.see_tree_before(started);
        // From its start on, whatever becomes of it: no result that is lost, late or replayed can slip by (`semantics.md` L2).
        self.bring(started.brings.as_slice());
        let (at, epoch) = (self.at, self.epochs.len() - 1);
        self.count_call(started.action);
        self.change(started.action, |action| {
            action.attempts = started.attempt;
            action.first_start.get_or_insert(at);
            action.epoch = epoch;
            action.idempotency_key = started.idempotency_key.clone();
            action.target = started.target.clone();
            action.beyond.clone_from(&started.beyond);
            // Of any other it is only how the run found the workspace.
            action.tree = started.tree.clone().filter(|_| started.effect == EffectClass::Workspace);
            action.left = None;
            keep_marks(action, started.brings.as_slice());
            action.life = Life::Started { fence: started.fence, at };
        });
        if let Some(action) = self.action(started.action).cloned() {
            self.memory.started(&action);
        }
    }

    /// Counts a call once, however many attempts it takes.
    pub(super) fn count_call(&mut self, id: ActionId) {
        // What the harness calls to undo another is none of the model's calls, and must not fail for want of one.
        let counts = |action: &&Action| action.attempts == 0 && action.undoes().is_none();
        let Some(tool) = self.action(id).filter(counts).map(|action| action.tool.clone()) else {
            return;
        };
        self.spent.tool_calls += 1;
        *self.calls.entry(tool).or_default() += 1;
    }

    pub(super) fn action_finished(&mut self, finished: &ActionFinished) {
        self.barren_claims = 0;
        self.spent.micros = self.spent.micros.saturating_add(finished.cost_micros);
        if finished.effect != EffectClass::Read && finished.attempt > 0 {
            self.begin_epoch();
        }
        match finished.how {
            // A replayed result counts as a call (`semantics.md` G2).
            How::Replayed { .. } | How::Kept => self.count_call(finished.action),
            How::Observed | How::Recovered | How::Reconciled | How::Answered => {}
        }
        self.bring(&finished.brings);
        self.change(finished.action, |action| {
            keep_marks(action, &finished.brings);
            action.left.clone_from(&finished.left);
        });
        let at = self.at;
        let is_checked = finished.attempt > 0 && self.has_check(finished.action);
        match &finished.outcome {
            Outcome::Done(result) if is_checked => self.await_check(finished.action, result, finished.how.clone()),
            Outcome::Done(result) => {
                // The first one's is cited.
                if finished.evidence() == finished.action.evidence() {
                    self.keep_evidence(finished.action, finished.effect, result);
                    self.keep_answer(finished.action, &finished.how);
                }
                self.see_target(finished.action);
                self.remember(finished.action, result);
                let done = Ended::Done { result: result.clone(), how: finished.how.clone(), at };
                if finished.effect != EffectClass::Read {
                    self.happened.push(finished.action);
                }
                self.end_action(finished.action, done);
            }
            Outcome::Error(error) => {
                self.failed_calls += 1;
                if let Some(why) = self.is_to_be_undone(finished) {
                    self.change(finished.action, |action| action.life = Life::Undoing(error.clone(), why));
                    return;
                }
                self.end_action(finished.action, Ended::Error(error.clone()));
            }
            Outcome::NotDone(error) => {
                self.failed_calls += 1;
                self.note_effect(finished.action, EffectState::NotDone);
                self.end_action(finished.action, Ended::NotDone(error.clone()));
            }
            Outcome::Unknown(error) => {
                let can_find_out = self.tool_of(finished.action).is_some_and(|tool| {
                    finished.how == How::Observed && (!tool.reconcile.is_empty() || tool.idempotent.is_some())
                });
                if !can_find_out {
                    self.failed_calls += 1;
                    self.note_effect(finished.action, EffectState::Unknown);
                }
                let error = error.clone();
                self.change(finished.action, |action| {
                    let started = if let Life::Started { at, .. } = action.life { at } else { at };
                    action.life = if can_find_out {
                        Life::Doubtful(Doubt { started, since: at, probes: 0, retry_at: None }, error)
                    } else {
                        Life::Unknown(error)
                    };
                });
            }
        }
    }

    pub(super) fn see_target(&mut self, id: ActionId) {
        let Some(target) = self.action(id).and_then(|action| action.target.clone()) else { return };
        if let Some(content) = target.after.or(target.before) {
            self.seen.insert(target.path, content);
        }
    }

    pub(super) fn keep_evidence(&mut self, id: ActionId, effect: EffectClass, result: &Content) {
        let Some(action) = self.action(id) else { return };
        let Some(tool) = self.task.tool(&action.tool) else { return };
        let epoch = match effect {
            // A read is as old as the moment it began: what was written meanwhile voids it.
            EffectClass::Read => action.epoch,
            EffectClass::Workspace | EffectClass::External => self.epochs.len() - 1,
        };
        let evidence = Evidence {
            tool: tool.name.clone(),
            seq: self.head,
            content: Some(result.clone()),
            epoch,
            holds: tool.holds,
            at: self.at,
        };
        Arc::make_mut(&mut self.evidence).insert(id.evidence(), evidence);
    }

    /// A read that overlapped a write is not kept: nobody can tell which of the two states it saw (`semantics.md` G2).
    fn keep_answer(&mut self, id: ActionId, how: &How) {
        let Some(action) = self.action(id) else { return };
        let may_keep =
            self.task.tool(&action.tool).is_some_and(|tool| tool.declared.cache && action.effect == EffectClass::Read);
        let writes = self.actions().any(|other| other.effect != EffectClass::Read && other.may_run());
        if !may_keep || *how != How::Observed || writes || action.epoch != self.epochs.len() - 1 {
            return;
        }
        let key = answer_key(action);
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.entry(key).or_insert(id);
    }

    /// The answer that a call would get, where that is known: the first call like it, and its result. Not once that has left
    /// the window: a model that asks then wants it anew, and to read it again costs as much.
    pub(crate) fn known_answer(&self, action: &Action) -> Option<(ActionId, &Content)> {
        let first = *self.answers.get(&answer_key(action))?;
        let evidence = self.evidence.get(&first.evidence())?;
        Some((first, evidence.content.as_ref()?))
    }

    pub(super) fn end_action(&mut self, id: ActionId, ended: Ended) {
        self.change(id, |action| action.life = Life::Ended(ended));
    }

    pub(super) fn action_settled(&mut self, settled: &ActionSettled) {
        self.barren_claims = 0;
        let id = settled.action;
        let Some(action) = self.action(id) else { return };
        let undone = action.undoes().map(|undone| undone.action);
        let (effect, tool, was_told) = (action.effect, action.tool.clone(), self.open.contains_key(&id));
        self.bring(&settled.brings);
        if effect != EffectClass::Read {
            self.begin_epoch();
        }
        let at = self.at;
        let (ended, word, result) = match &settled.truth {
            Truth::Done(result) if !was_told && self.has_check(id) => {
                self.await_check(id, result, How::Recovered);
                return;
            }
            Truth::Done(result) => {
                self.keep_evidence(id, effect, result);
                self.remember(id, result);
                if effect != EffectClass::Read {
                    self.happened.push(id);
                }
                (Ended::Done { result: result.clone(), how: How::Recovered, at }, "done", Some(result))
            }
            Truth::NotDone => {
                self.note_effect(id, EffectState::NotDone);
                let error = ToolError::new(class::UNKNOWN_OUTCOME, "It is known by now that this did not happen.");
                (Ended::NotDone(error), "not done", None)
            }
        };
        if was_told {
            self.open.remove(&id);
            if let (Some(undone), Truth::Done(_)) = (undone, &settled.truth) {
                self.note_compensated(undone);
            }
            let item = observe::update(id, &tool, word, result);
            self.tell_when_possible(item);
        } else {
            self.end_action(id, ended);
        }
    }

    pub(super) fn close_turn_if_told(&mut self) {
        if let Stage::Acting { actions, .. } = &self.stage
            && !actions.is_empty()
            && actions.values().all(Action::is_told)
        {
            self.close_turn();
        }
    }

    /// Gives every action of the turn its observation, in call order, then what came in meanwhile.
    pub(super) fn close_turn(&mut self) {
        let before = std::mem::replace(&mut self.stage, Stage::Ready(Ready::default()));
        let Stage::Acting { actions, .. } = before else {
            self.stage = before;
            return;
        };
        let unproven = actions.values().filter(|action| finish::stands_unproven(action)).map(|action| action.id);
        self.unproven.extend(unproven);
        // The program's own calls are no circle of the model's, and no work of its that is left undone.
        if actions.values().all(|action| action.proposer.phase().is_none()) {
            let succeeded = self.repeats.turn(actions.values(), &self.task);
            self.memory.saw(&succeeded);
            self.finish.turn(actions.values());
        }
        self.phase_told(&actions);
        let exhibit = observe::exhibit(
            actions.values().map(|action| (action.id, action.data().map_or(&[][..], Content::images))),
        );
        let turn = actions.values().next_back().map(|action| window::seen(action).turn);
        for (id, action) in actions {
            self.settle_effect(&action);
            if action.undoes().is_some() {
                // The model hears of it in the observation of the call it undoes.
                if action.is_uncertain() {
                    self.open.insert(id, action);
                }
                continue;
            }
            let part = Part::Observation(Box::new(window::seen(&action)));
            self.window.push(part, Arc::new(observe::shown(&action, self.at)));
            if action.is_uncertain() {
                self.open.insert(id, action.clone());
            }
            self.fresh.push(action);
        }
        if let Some((item, turn)) = exhibit.zip(turn) {
            self.window.push(Part::Harness(turn), Arc::new(item));
        }
        self.show_pending();
    }

    /// What the control block says of an effect is never older than what the turn ended with.
    fn settle_effect(&mut self, action: &Action) {
        let pending = self.memory.effects.get(&action.id).is_some_and(|effect| effect.state == EffectState::Pending);
        let state = match &action.life {
            _ if !pending => return,
            Life::Ended(Ended::Done { .. }) => EffectState::Done,
            Life::Ended(Ended::Refused(_) | Ended::NotDone(_)) => EffectState::NotDone,
            Life::Ended(Ended::Error(_)) | Life::Unknown(_) | Life::Doubtful(..) => EffectState::Unknown,
            Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..) => return,
        };
        self.memory.effect(action, state, None);
    }

    /// Shows a result of the last turn shorter than it is.
    pub(super) fn spilled(&mut self, spilled: &ResultSpilled) {
        let Some(place) = self.fresh.iter().position(|action| action.id == spilled.action) else { return };
        let mut action = self.fresh.remove(place);
        let short = |content: &Content| {
            let (shown, images) = (spilled.shown.clone(), content.images().to_vec());
            Content::Blob(BlobRef { digest: content.digest(), bytes: spilled.total, shown, images })
        };
        match &mut action.life {
            Life::Ended(Ended::Done { result, .. }) => *result = short(result),
            Life::Ended(Ended::Refused(error) | Ended::Error(error) | Ended::NotDone(error)) | Life::Unknown(error) => {
                error.data = error.data.as_ref().map(short);
            }
            Life::Doubtful(..)
            | Life::Queued
            | Life::Held(_)
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..) => {}
        }
        let shown = observe::shown(&action, self.at);
        self.window.replace(action.id, false, |item, _| *item = shown);
    }

    /// Pins the rule files of folders that are worked in from now on (`context.md` §2.3).
    pub(super) fn use_folders(&mut self, proposed: &ActionProposed) {
        let task = Arc::clone(&self.task);
        let mut words = None;
        for file in &task.rules {
            let Some((folder, _)) = file.path.rsplit_once('/') else { continue };
            if self.window.rules.contains(&file.path) {
                continue;
            }
            if words.get_or_insert_with(|| Words::of(&proposed.args)).name(folder) {
                self.window.rules.insert(file.path.clone());
                let item = observe::note(&block::rules(&file.path, &file.text));
                self.pending.push((Part::Rules(file.path.clone()), item));
            }
        }
    }

    /// What an action brought about, for the control block.
    pub(super) fn remember(&mut self, id: ActionId, result: &Content) {
        let Some(action) = self.action(id).cloned() else { return };
        self.memory.done(&action, result);
        let Some(path) = &action.path else { return };
        let path = action.target.as_ref().map_or(path, |target| &target.path);
        let name = path.rsplit('/').next().unwrap_or(path);
        if action.effect == EffectClass::Read && RULE_FILES.contains(&name) {
            let captured = self.task.rules.iter().find(|file| path.trim_start_matches("./") == file.path);
            let now = action.target.as_ref().and_then(|target| target.before.as_ref());
            let as_captured = captured.is_some_and(|file| now.is_none_or(|now| *now == file.digest));
            if !as_captured {
                self.memory.rule_read(path, id, result);
            }
        }
    }

    pub(super) fn note_effect(&mut self, id: ActionId, state: EffectState) {
        if let Some(action) = self.action(id).filter(|action| action.effect == EffectClass::External).cloned() {
            self.memory.effect(&action, state, None);
        }
    }
}

/// Answers that are known at once.
const ANSWERS_MAX: usize = 256;

fn answer_key(action: &Action) -> Digest {
    Digest::of_parts([action.tool.as_str().as_bytes(), action.digest.as_str().as_bytes()])
}

/// Each once, however often it is started.
fn keep_marks(action: &mut Action, marks: &[Mark]) {
    for mark in marks {
        if !action.brings.contains(mark) {
            action.brings.push(mark.clone());
        }
    }
}

/// What some call's arguments say, each text as it is meant.
struct Words(Vec<String>);

impl Words {
    fn of(args: &Payload) -> Self {
        let mut words = Vec::new();
        match args.read::<Value>() {
            Ok(value) => collect(value, &mut words),
            Err(_) => words.push(args.as_str().to_owned()),
        }
        Self(words)
    }

    /// Whether they name a folder, or something in it; in a command it may be quoted.
    fn name(&self, folder: &str) -> bool {
        let bare = unquoted(folder);
        self.0.iter().any(|text| mentions(text, folder) || mentions(&unquoted(text), &bare))
    }
}

fn collect(value: Value, words: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => words.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| collect(item, words)),
        Value::Object(members) => members.into_iter().for_each(|(key, member)| {
            words.push(key);
            collect(member, words);
        }),
    }
}

/// Without what a shell takes away.
fn unquoted(text: &str) -> String {
    text.replace(['\\', '"', '\''], "")
}

fn mentions(text: &str, folder: &str) -> bool {
    !folder.is_empty()
        && text.match_indices(folder).any(|(place, _)| {
            let before = text[..place].chars().next_back();
            let after = text[place + folder.len()..].chars().next();
            let ends = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
            ends(before) && ends(after)
        })
}

/// Arguments as they are sent back: the model's own text, or an empty object where that is no JSON object, since servers
/// parse what they are sent.
fn wire_arguments(arguments: &str) -> String {
    let trimmed = arguments.trim();
    // Read as values: numbers beyond all bounds and halves of characters are refused with the rest.
    let is_object = trimmed.starts_with('{') && serde_json::from_str::<Value>(trimmed).is_ok();
    if is_object { arguments.to_owned() } else { "{}".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_however_its_name_is_written() {
        let folders = ["a", "a b", "a\\b", "q\"q", "a\nb", "a\tb", "it's", "[x]", "ü", "漢字", "$HOME", "-d", "p/q r"];
        for folder in folders {
            let file = format!("{folder}/in/f");
            let named = |args: Value| {
                let args = Payload::parse(args.to_string().as_str()).expect("it was written as JSON");
                Words::of(&args).name(folder)
            };
            let quoted = format!("cat '{}'", file.replace('\'', r"'\''"));
            let escaped: String = file
                .chars()
                .flat_map(|c| ["\\".to_owned(), c.to_string()].into_iter().skip(usize::from(c != ' ')))
                .collect();
            for text in [&file, &quoted, &escaped, &format!("x {file}"), &format!("./{folder}")] {
                let args = serde_json::json!({ "deep": [{ "x": text }] });
                let is_plain = escaped != *text || !folder.contains(['\\', '"', '\'', '$', '\n', '\t']);
                assert!(!is_plain || named(args), "{folder:?} in {text:?}");
            }
            for text in [format!("x{file}"), format!("{folder}x/f"), "other".to_owned()] {
                assert!(!named(serde_json::json!({ "x": text })), "{folder:?} in {text:?}");
            }
            let spelled: String = file.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            assert!(Words::of(&Payload::parse(format!("{{\"x\":\"{spelled}\"}}").as_str()).unwrap()).name(folder));
        }
    }
}
