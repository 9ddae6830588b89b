//! Answers from another process: messages, approvals, denials, settlements, cancels. Each is an input, durable before this
//! command ends, and taken by whoever drives the run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use longrein::core::action::{Action, Ended, Life, Question};
use longrein::core::event::{Event, InputReceived, Received, Wait, Wants};
use longrein::core::ids::{ActionId, Digest, RunId, ToolName};
use longrein::core::input::{Approve, Covers, Deny, Door, Input, InputBody, Settle, Truth};
use longrein::core::outcome::{Outcome, class};
use longrein::core::payload::{Content, INLINE_MAX_BYTES, Payload};
use longrein::core::run::{Run, Stage};
use longrein::core::task::EffectClass;
use longrein::core::time::Timestamp;
use longrein::ports::{Posted, Recorded, RecordedBody};
use longrein::{Image, ImageError, Runs, TAINT_RULE};
use serde_json::json;

use crate::args::{ApproveArgs, DenyArgs, Globals, NoArgs, OneRun, SendArgs, SettleArgs, SettleAs};
use crate::ask::{GRANT, confirm, operator, somebody_is_there};
use crate::config::Config;
use crate::context::{self, StoreAt};
use crate::failure::{Failure, Status};
use crate::out::{lay, say, tell};
use crate::progress::print_line;
use crate::words;

/// How long a command waits for a worker to react before it says that it will.
const REACTION: Duration = Duration::from_secs(4);

/// What posting answered, as an error where it was not taken.
pub(crate) fn posted(posted: Posted, id: &RunId) -> Result<(), Failure> {
    match posted {
        Posted::Accepted | Posted::Duplicate => Ok(()),
        Posted::Closed => {
            Err(Failure::new(Status::Data, format!("run {id} was cancelled and takes nothing more; start a new one")))
        }
        Posted::Full => {
            Err(Failure::new(Status::Unavailable, format!("the inbox of run {id} is full; let it go on first"))
                .way_out(format!("longrein resume {id}")))
        }
    }
}

/// What a person sees next: the worker takes it at once, or the run has to be resumed.
async fn say_what_follows(store: &StoreAt, runs: &Runs, id: &RunId) -> Result<(), Failure> {
    let root = runs.driven_with(id).await?;
    match runs.listed(&root).await? {
        Some((_, Some(holder))) => tell!("recorded; {holder} takes it"),
        Some((_, None)) | None => {
            tell!("recorded; nobody drives the run now");
            tell!("{}", store.command(&format!("resume {root}")));
        }
    }
    Ok(())
}

/// The images that go with a message.
pub(crate) fn images(files: &[PathBuf]) -> Result<Vec<Image>, Failure> {
    let unshown = |error: ImageError| Failure::new(Status::Data, error.to_string());
    files.iter().map(|file| Image::read(file)).collect::<Result<_, _>>().map_err(unshown)
}

pub(crate) async fn send(globals: Globals, args: SendArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    if args.text.trim().is_empty() {
        return Err(Failure::new(Status::Usage, "the message is empty"));
    }
    let images = images(&args.images)?;
    let row = runs.listed(&id).await?.map(|(row, _)| row);
    let parent = row.as_ref().and_then(|row| row.parent.clone());
    let state = row.map(|row| row.state).unwrap_or_default();
    let has_ended = matches!(state.as_str(), "done" | "failed" | "exhausted" | "context_exhausted" | "cancelled");
    if let Some(parent) = parent.filter(|_| has_ended) {
        let problem = format!("child {id} has ended ({}), and run {parent} has its result", state.replace('_', " "));
        return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("show {parent}"))));
    }
    let answers = next_question(&runs, &id).await?;
    posted(runs.show(&id, args.text, images).await?.1, &id)?;
    if let Some((action, question)) = answers {
        tell!("this answers {action}: {}", words::short(&question, 200));
    }
    if matches!(state.as_str(), "done" | "failed" | "exhausted" | "context_exhausted") {
        tell!(
            "{id} has ended ({}); going on reopens it, and what it had answered no longer counts",
            state.replace('_', " ")
        );
    }
    say_what_follows(&store, &runs, &id).await?;
    Ok(Status::Done)
}

/// The question that the next message answers: messages that wait already answer those asked before it.
async fn next_question(runs: &Runs, id: &RunId) -> Result<Option<(ActionId, String)>, Failure> {
    let Ok(run) = runs.fold(id, |_| {}).await else { return Ok(None) };
    let before = messages(&runs.inbox(id).await?);
    Ok(asking(&run).into_iter().nth(before).map(|(action, question)| (action.id, question.reason.clone())))
}

/// Actions that ask in words, the longest waiting first.
fn asking(run: &Run) -> Vec<(&Action, &Question)> {
    let mut asking: Vec<_> = run.actions().filter_map(|action| Some((action, action.asks()?))).collect();
    asking.sort_by_key(|(_, question)| question.since);
    asking
}

/// Messages that nobody has taken yet.
fn messages(inbox: &[Input]) -> usize {
    inbox.iter().filter(|input| matches!(input.body, InputBody::Message(_))).count()
}

/// The actions named on the command line, each an action of the run.
fn actions(words: &[String]) -> Result<Vec<ActionId>, Failure> {
    words.iter().map(|word| word.parse().map_err(|error| Failure::new(Status::Usage, format!("{error}")))).collect()
}

/// The digest of the question an action waits on, unless it was answered already.
pub(crate) async fn question(runs: &Runs, run: &Run, action: ActionId) -> Result<Digest, Failure> {
    let found = run.action(action);
    let Some(Action { life: Life::Held(Question { digest, .. }), .. }) = found else {
        let next = run.next_action();
        return Err(if action >= next {
            Failure::new(Status::NotFound, format!("run {} has no action {action}", run.id))
        } else {
            let refused = found.and_then(|action| match &action.life {
                Life::Ended(Ended::Refused(error)) => Some(format!(": {}", error.message)),
                Life::Ended(Ended::Done { .. } | Ended::Error(_) | Ended::NotDone(_))
                | Life::Held(_)
                | Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..) => None,
            });
            let problem = format!("{action} does not wait for an approval (any more){}", refused.unwrap_or_default());
            Failure::new(Status::Data, problem)
        }
        .way_out("longrein approvals"));
    };
    let answered = runs.inbox(&run.id).await?.iter().any(|input| match &input.body {
        InputBody::Approve(answer) => answer.action == action && answer.digest == *digest,
        InputBody::Deny(answer) => answer.action == action && answer.digest == *digest,
        InputBody::Message(_)
        | InputBody::Settle(_)
        | InputBody::Cancel
        | InputBody::LateOutcome(_)
        | InputBody::Raise(_)
        | InputBody::SwitchModel(_)
        | InputBody::Endorse(_)
        | InputBody::ChildEnded(_)
        | InputBody::Rollback(_) => false,
    });
    if answered {
        let problem = format!("{action} has been answered already; the answer waits to be taken");
        return Err(Failure::new(Status::Data, problem).way_out(format!("longrein resume {}", run.id)));
    }
    Ok(digest.clone())
}

pub(crate) async fn approve(globals: Globals, args: ApproveArgs) -> Result<Status, Failure> {
    let why = args.reason;
    let covers = if args.always { Covers::Always } else { Covers::Once };
    answer_all(globals, &args.id, &args.actions, Saying::Yes(covers), |action, digest, now, typed| {
        let (by, door, expires) = (operator(), Door::Cli, now.plus(GRANT));
        InputBody::Approve(Approve { action, digest, by, door, expires, covers, reason: why.clone(), typed })
    })
    .await
}

pub(crate) async fn deny(globals: Globals, args: DenyArgs) -> Result<Status, Failure> {
    let reason = args.reason;
    answer_all(globals, &args.id, &args.actions, Saying::No, |action, digest, _, _| {
        InputBody::Deny(Deny { action, digest, by: operator(), door: Door::Cli, reason: reason.clone() })
    })
    .await
}

/// What is answered to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saying {
    Yes(Covers),
    No,
}

/// What a person has to type where a plain yes is not enough.
pub(crate) fn to_type(run: &Run, action: ActionId) -> Option<String> {
    match &run.action(action)?.question()?.wants {
        Wants::Typed(text) => Some(text.clone()),
        Wants::Yes | Wants::Words => None,
    }
}

/// Has a person here type what the question wants.
fn confirmed(store: &StoreAt, run: &Run, action: ActionId, text: &str) -> Result<String, Failure> {
    if !somebody_is_there() {
        let problem = format!(
            "{action} would send out what the run has read: a person confirms it at a terminal, by typing {text}"
        );
        return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("approve {} {action}", run.id))));
    }
    if confirm(run, action) {
        return Ok(text.to_owned());
    }
    Err(Failure::new(Status::Data, format!("{action} was not confirmed; nothing is recorded")))
}

/// Why a yes would come too late by now.
pub(crate) fn expired(runs: &Runs, run: &Run, action: ActionId) -> Option<String> {
    let now = runs.clock().now();
    let held = run.action(action).and_then(Action::question).filter(|held| held.is_expired(now));
    let expired = held.and_then(|held| held.expires)?;
    Some(format!("the question of {action} expired at {expired}, unanswered: that counts as no answer"))
}

/// Answers the questions of several actions of one run: all of them, or none if one cannot be answered.
async fn answer_all(
    globals: Globals,
    id: &str,
    named: &[String],
    saying: Saying,
    answer: impl Fn(ActionId, Digest, Timestamp, Option<String>) -> InputBody,
) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(id).await?;
    let run = runs.fold(&id, |_| {}).await?;
    let mut answers = Vec::new();
    for action in actions(named)? {
        let asks = run.action(action).and_then(Action::asks);
        if let (Saying::Yes(_), Some(question)) = (saying, asks) {
            let problem =
                format!("{action} asks a question, and a yes is no answer to it: {}", words::safe(&question.reason));
            return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("send {id} 'your answer'"))));
        }
        if let (Saying::Yes(_), Some(problem)) = (saying, expired(&runs, &run, action)) {
            return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("resume {id}"))));
        }
        let digest = question(&runs, &run, action).await?;
        if saying == Saying::Yes(Covers::Always) {
            let may_be_given = |asked: &&Action| asked.question().is_some_and(|question| question.exact.is_some());
            let Some(asked) = run.action(action).filter(may_be_given) else {
                let problem = format!("{action}: {}", words::no_always(&run));
                let once = store.command(&format!("approve {id} {action}"));
                return Err(Failure::new(Status::Data, problem).way_out(once));
            };
            tell!("{}", words::always(&run, asked));
        }
        let typed = match (saying, to_type(&run, action)) {
            (Saying::Yes(_), Some(text)) => Some(confirmed(&store, &run, action, &text)?),
            (Saying::Yes(_) | Saying::No, _) => None,
        };
        answers.push(answer(action, digest, runs.clock().now(), typed));
    }
    for answer in answers {
        posted(runs.post(&id, answer).await?.1, &id)?;
    }
    say_what_follows(&store, &runs, &id).await?;
    Ok(Status::Done)
}

pub(crate) async fn approvals(globals: Globals, _args: NoArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    if !store.exists()? {
        if globals.json {
            print_line(&json!([]));
        }
        tell!("nothing waits: there is no store at {} yet", store.url);
        return Ok(Status::Done);
    }
    let runs = store.open()?;
    let mut lines = Vec::new();
    for (row, _) in runs.list().await? {
        // A run that cannot be folded cannot be answered either; `runs` shows it.
        let Ok(run) = runs.fold(&row.run, |_| {}).await else { continue };
        let inbox = runs.inbox(&row.run).await?;
        for action in run.actions() {
            let (kind, reason, digest) = match &action.life {
                Life::Held(Question { digest, rule, reason, wants: Wants::Yes | Wants::Typed(_), .. }) => {
                    ("approval", format!("{reason} ({rule})"), Some(digest))
                }
                Life::Held(Question { digest, reason, wants: Wants::Words, .. }) => {
                    ("question", reason.clone(), Some(digest))
                }
                Life::Unknown(error) => ("unknown", error.message.clone(), None),
                Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..)
                | Life::Ended(_) => continue,
            };
            let in_line = asking(&run).iter().position(|(asking, _)| asking.id == action.id);
            let answered = in_line.is_some_and(|before| messages(&inbox) > before);
            let answered = answered
                || inbox.iter().any(|input| match &input.body {
                    InputBody::Approve(answer) => answer.action == action.id,
                    InputBody::Deny(answer) => answer.action == action.id,
                    InputBody::Settle(answer) => answer.action == action.id,
                    InputBody::Message(_)
                    | InputBody::Cancel
                    | InputBody::LateOutcome(_)
                    | InputBody::Raise(_)
                    | InputBody::SwitchModel(_)
                    | InputBody::Endorse(_)
                    | InputBody::ChildEnded(_)
                    | InputBody::Rollback(_) => false,
                });
            // It waits for nobody any more; that it counts as no answer is written by whoever drives the run next.
            if let Some(problem) = expired(&runs, &run, action.id).filter(|_| !answered) {
                tell!("{problem}; to be taken by: {}", store.command(&format!("resume {}", row.run)));
                continue;
            }
            let what = words::call(&run, action);
            let held = match &action.life {
                Life::Held(question) => Some(question.clone()),
                Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..)
                | Life::Ended(_) => None,
            };
            let is_taint = held.as_ref().is_some_and(|held| held.rule == TAINT_RULE);
            let trust = if is_taint { crate::taint::way_to_trust(&store, &run) } else { None };
            lines.push((
                row.run.clone(),
                action.clone(),
                what,
                kind,
                (reason, trust),
                (digest.cloned(), held),
                answered,
            ));
        }
    }
    if globals.json {
        let rows: Vec<_> = lines
            .iter()
            .map(|(run, action, _, kind, (reason, _), (digest, held), answered)| {
                json!({
                    "run": run, "action": action.id, "kind": kind, "tool": action.tool, "args": action.args,
                    "effect": action.effect, "reason": reason, "digest": digest, "answered": answered,
                    "rule": held.as_ref().map(|held| &held.rule), "asked": held.as_ref().map(|held| held.since),
                    "effects": held.as_ref().map(|held| &held.effects),
                    "always": held.as_ref().map(|held| held.exact.is_some()),
                    "wants": held.as_ref().map(|held| &held.wants),
                })
            })
            .collect();
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    if lines.is_empty() {
        tell!("nothing waits for a person");
    }
    for (run, action, what, kind, (reason, trust), (_, held), answered) in lines {
        lay!(4, "{run}  {}  {kind}  {}", action.id, what.replace("\n", "\n    "));
        for effect in held.iter().flat_map(|held| words::effects(action.tool.as_str(), &held.effects)) {
            lay!(4, "    {effect}");
        }
        lay!(4, "    {}", words::short(&reason, 200));
        if let Some(trust) = &trust {
            lay!(4, "    {trust}");
        }
        let command = match kind {
            "approval" => format!("approve {run} {}", action.id),
            "question" => format!("send {run} 'your answer'"),
            _ => settling(&run, action.id),
        };
        if answered {
            say!("    answered; to be taken by: {}", store.command(&format!("resume {run}")));
        } else {
            say!("    {}", store.command(&command));
        }
    }
    Ok(Status::Done)
}

pub(crate) async fn settle(globals: Globals, args: SettleArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let action: ActionId = args.action.parse().map_err(|error| Failure::new(Status::Usage, format!("{error}")))?;
    let result = match (&args.result, args.truth) {
        (Some(_), SettleAs::NotDone) => {
            return Err(Failure::new(Status::Usage, "--result goes with --as done"));
        }
        (Some(text), SettleAs::Done) => Payload::parse(text.trim().to_owned())
            .map_err(|error| Failure::new(Status::Usage, format!("--result is no JSON: {error}")))?,
        (None, _) => Payload::null(),
    };
    if result.as_str().len() > INLINE_MAX_BYTES {
        return Err(Failure::new(Status::Data, format!("--result is larger than {INLINE_MAX_BYTES} bytes")));
    }
    let run = runs.fold(&id, |_| {}).await?;
    if !run.action(action).is_some_and(Action::is_uncertain) {
        return Err(if action >= run.next_action() {
            Failure::new(Status::NotFound, format!("run {id} has no action {action}"))
        } else {
            Failure::new(Status::Data, format!("the outcome of {action} is not unknown (any more)"))
        }
        .way_out(store.command(&format!("show {id}"))));
    }
    let is_told = |input: &Input| matches!(&input.body, InputBody::Settle(told) if told.action == action);
    if runs.inbox(&id).await?.iter().any(is_told) {
        let problem = format!("what became of {action} has been told already; it waits to be taken");
        return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("resume {id}"))));
    }
    let truth = match args.truth {
        SettleAs::Done => Truth::Done(Content::Inline(result)),
        SettleAs::NotDone => Truth::NotDone,
    };
    posted(runs.post(&id, InputBody::Settle(Settle { action, truth, by: operator() })).await?.1, &id)?;
    let rests = matches!(run.stage, Stage::Rest(_));
    if rests && runs.listed(&id).await?.is_some_and(|(_, holder)| holder.is_none()) {
        runs.tend(&id, context::environment(), &Config::load()?.sandbox).await?;
        tell!("settled");
        return Ok(Status::Done);
    }
    say_what_follows(&store, &runs, &id).await?;
    Ok(Status::Done)
}

pub(crate) async fn cancel(globals: Globals, args: OneRun) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let run = runs.fold(&id, |_| {}).await?;
    if let Stage::Rest(ended) = &run.stage {
        let problem = format!("run {id} has ended already: {}", words::end(&ended.end));
        return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("show {id}"))));
    }
    posted(runs.post(&id, InputBody::Cancel).await?.1, &id)?;
    let is_held = runs.listed(&id).await?.is_some_and(|(_, holder)| holder.is_some());
    let root = runs.driven_with(&id).await?;
    if root != id {
        // It is driven with its root, and ends there.
        say_what_follows(&store, &runs, &id).await?;
        return Ok(Status::Done);
    }
    if !is_held {
        runs.tend(&id, context::environment(), &Config::load()?.sandbox).await?;
    }
    let asked = Instant::now();
    let (run, cut) = loop {
        let mut cut = CutOff::default();
        let run = runs.fold(&id, |record| cut.see(record)).await?;
        if matches!(run.stage, Stage::Rest(_)) || asked.elapsed() > REACTION {
            break (run, cut);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    if globals.json {
        let mut summary = longrein::projection::summary(&run);
        summary.insert("cut_off".to_owned(), json!(cut.calls.keys().collect::<Vec<_>>()));
        print_line(&serde_json::Value::Object(summary));
    }
    let list = |ids: &[ActionId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Stage::Rest(ended) = &run.stage else {
        let running: Vec<_> = run.actions().filter(|action| action.may_run()).map(|action| action.id).collect();
        tell!("asked; its worker lets running calls end first (at most 30 s)");
        if !running.is_empty() {
            tell!("still running: {}", list(&running));
        }
        tell!("{}", store.command(&format!("show {id}")));
        return Ok(Status::Done);
    };
    let (done, undone, unknown) = (&ended.done, &ended.undone, &ended.unknown);
    for (word, ids) in [("done", done), ("not done", undone), ("unknown", unknown)] {
        if !ids.is_empty() && !globals.json {
            say!("{word}: {}", list(ids));
        }
    }
    if !cut.calls.is_empty() && !globals.json {
        say!("cut off: {}", cut.named());
    }
    if done.is_empty() && unknown.is_empty() && !globals.json {
        // What failed or was cut off is not done, and may have changed files before that.
        let has_begun = run.epochs.len() > 1 || !cut.only_looked();
        say!(
            "{}",
            if has_begun {
                "no call is done; one that was cut off or failed may have changed files"
            } else {
                "nothing was changed"
            }
        );
    }
    if let Some(action) = unknown.first() {
        tell!("{}", store.command(&settling(&id, *action)));
    }
    Ok(Status::Done)
}

/// Calls that a cancel ended while they ran, of which it is known that they are over and not how far they came.
#[derive(Default)]
struct CutOff {
    proposed: BTreeMap<ActionId, (ToolName, EffectClass)>,
    is_cancelled: bool,
    calls: BTreeMap<ActionId, (ToolName, EffectClass)>,
}

impl CutOff {
    fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if let Event::ActionProposed(proposed) = event {
            self.proposed.insert(proposed.action, (proposed.tool.clone(), proposed.effect));
        } else if let Event::InputReceived(InputReceived { body: Received::Cancel, .. }) = event {
            self.is_cancelled = true;
        } else if let Event::ActionFinished(finished) = event
            && self.is_cancelled
            && let Outcome::Error(error) = &finished.outcome
            && [class::CANCELLED, class::UNKNOWN_OUTCOME].contains(&error.class.as_str())
            && let Some(call) = self.proposed.get(&finished.action)
        {
            self.calls.insert(finished.action, call.clone());
        }
    }

    fn named(&self) -> String {
        let named = self.calls.iter().map(|(action, (tool, effect))| {
            let files = if *effect == EffectClass::Read { "" } else { " (look at its files)" };
            format!("{action} {}{files}", words::safe(tool.as_str()))
        });
        named.collect::<Vec<_>>().join(", ")
    }

    fn only_looked(&self) -> bool {
        self.calls.values().all(|(_, effect)| *effect == EffectClass::Read)
    }
}

/// How an unknown outcome is told. Pasted as it stands it is refused, naming both: never a pipe from one of them.
pub(crate) fn settling(run: &RunId, action: ActionId) -> String {
    format!("settle {run} {action} --as 'done|not-done'")
}

/// What a run waits for, in commands. Questions are answered one after the other by the same one.
pub(crate) fn commands(id: &RunId, waits: &[Wait]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for (id, wait) in Wait::questions(id, waits) {
        let command = match wait {
            Wait::Approval(action) => format!("approve {id} {action}"),
            Wait::Answer(_) => format!("send {id} 'your answer'"),
            Wait::Unknown(action) => settling(id, *action),
            // Its own questions are among them.
            Wait::Child { .. } => continue,
        };
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}
