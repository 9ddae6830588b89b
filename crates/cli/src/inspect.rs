//! Looking at runs: listings, one run at a glance, the journal, its integrity. Nothing here needs a claim.

use std::collections::BTreeMap;

use longrein::core::action::{Action, Life};
use longrein::core::budget::Limit;
use longrein::core::check::Finding;
use longrein::core::children::{Child, ChildState};
use longrein::core::event::{Event, How, Wants};
use longrein::core::ids::{ActionId, RunId, Seq};
use longrein::core::input::{Input, InputBody};
use longrein::core::manifest::manifest;
use longrein::core::outcome::Outcome;
use longrein::core::owed;
use longrein::core::program::PartTask;
use longrein::core::route::Away;
use longrein::core::run::{Run, Stage};
use longrein::core::task::{EffectClass, Mode, Task};
use longrein::core::time::Timestamp;
use longrein::ports::{Listed, Recorded, RecordedBody};
use longrein::{Runs, projection};
use serde_json::{Value, json};

use crate::answer::commands;
use crate::args::{Globals, LogArgs, OneRun, RunsArgs};
use crate::block::{self, Fill, Rebuilds};
use crate::context::StoreAt;
use crate::failure::{Failure, Status};
use crate::out::{columns, lay, say, tell};
use crate::progress::print_line;
use crate::shadow::Report;
use crate::stats::Stats;
use crate::taint::Bringers;
use crate::words;

/// A run of which nothing was heard for this long while its worker lives is marked as stalled.
const STALLED_AFTER_MS: u64 = 10 * 60 * 1000;

/// Where the second column of the list of runs begins.
const BESIDE_ID: usize = 15;
/// What stands before a goal there; characters of it that are shown; with less room for it there is no table.
const BEFORE_GOAL: usize = 57;
const GOAL_WIDTH: usize = 60;
const GOAL_LEAST: usize = 20;
/// Where the second column of a glance begins.
pub(crate) const LABEL: usize = 11;
/// Where the words of a line of the log begin.
const BESIDE_TIME: usize = 18;

/// Actions that a glance shows, the newest.
const ACTIONS_SHOWN: usize = 40;

pub(crate) async fn runs(globals: Globals, args: RunsArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    if !store.exists()? {
        if globals.json {
            print_line(&if args.stats { Stats::default().json() } else { json!([]) });
        }
        tell!("no runs: there is no store at {} yet", store.url);
        return Ok(Status::Done);
    }
    let runs = store.open()?;
    if args.stats {
        let stats = Stats::of(&runs).await?;
        if globals.json {
            print_line(&stats.json());
        } else {
            stats.print();
        }
        return Ok(Status::Done);
    }
    let now = runs.clock().now();
    let mut rows = runs.list().await?;
    let of_others = rows.iter().filter(|(row, _)| row.parent.is_some()).count() as u64;
    if !args.all {
        // `show` has them.
        rows.retain(|(row, _)| row.parent.is_none());
    }
    let mut inboxes = Vec::with_capacity(rows.len());
    for (row, _) in &rows {
        inboxes.push(runs.inbox(&row.run).await?.len());
    }
    if globals.json {
        let rows: Vec<_> = rows.iter().zip(&inboxes).map(|(listed, inbox)| line(listed, *inbox, now)).collect();
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    if rows.is_empty() {
        tell!("no runs in {}", store.url);
        return Ok(Status::Done);
    }
    let room = columns().map_or(GOAL_WIDTH, |columns| columns.saturating_sub(BEFORE_GOAL).min(GOAL_WIDTH));
    let is_table = room >= GOAL_LEAST;
    if is_table {
        say!("{:<14} {:<18} {:>5} {:>9} {:>5}  GOAL", "RUN", "STATE", "TURNS", "COST", "AGE");
    }
    for ((row, holder), inbox) in rows.into_iter().zip(inboxes) {
        let mut state = shown_state(&row.state, holder.is_some()).replace('_', " ");
        if is_stalled(row.updated, now, holder.is_some()) {
            state.push_str(" stalled");
        }
        let cost = if row.micros == 0 { "-".to_owned() } else { format!("${:.4}", projection::usd(row.micros)) };
        let (id, turns, age) = (words::safe(row.run.as_str()), row.turns, age(row.started, now));
        if is_table {
            say!("{id:<14} {state:<18} {turns:>5} {cost:>9} {age:>5}  {}", words::short(&row.goal, room));
        } else {
            say!("{id}");
            lay!(BESIDE_ID, "{:<14} {state}, {turns} turns, {cost}, {age}", "");
            lay!(BESIDE_ID, "{:<14} {}", "", words::short(&row.goal, GOAL_WIDTH));
        }
        if !row.reason.is_empty() && row.state != "done" {
            lay!(BESIDE_ID, "{:<14} {}", "", words::short(&row.reason, 100));
        }
        if let Some(parent) = &row.parent {
            lay!(BESIDE_ID, "{:<14} child of {}", "", words::safe(parent.as_str()));
        }
        if inbox > 0 && holder.is_none() {
            let verb = if inbox == 1 { "waits" } else { "wait" };
            let root = runs.driven_with(&row.run).await.unwrap_or_else(|_| row.run.clone());
            let command = store.command(&format!("resume {root}"));
            lay!(
                BESIDE_ID,
                "{:<14} {} {verb} to be taken: {command}",
                "",
                words::count(inbox as u64, "input", "inputs")
            );
        }
    }
    if of_others > 0 && !args.all {
        tell!("and {}: {}", words::count(of_others, "child", "children"), store.command("runs --all"));
    }
    Ok(Status::Done)
}

/// A run in a listing, for programs.
pub(crate) fn line((row, holder): &Listed, inbox: usize, now: Timestamp) -> Value {
    json!({
        "run": row.run, "state": shown_state(&row.state, holder.is_some()), "reason": row.reason,
        "turns": row.turns, "usd": projection::usd(row.micros), "started": row.started.to_string(),
        "updated": row.updated.to_string(), "goal": row.goal,
        "held_by": holder.as_ref().map(|holder| holder.worker.pid),
        "stalled": is_stalled(row.updated, now, holder.is_some()), "inbox": inbox,
        "tainted_by": row.sources, "parent": row.parent,
    })
}

/// A run that is at work by its journal and held by nobody has lost its worker.
pub(crate) fn shown_state(state: &str, is_held: bool) -> String {
    if state == "running" && !is_held { "interrupted".to_owned() } else { state.to_owned() }
}

fn is_stalled(updated: Timestamp, now: Timestamp, is_held: bool) -> bool {
    is_held && now.0.saturating_sub(updated.0) > STALLED_AFTER_MS
}

fn age(from: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(from).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// One line of the ledger: what an action was and how it ended.
struct Entry {
    tool: String,
    effect: EffectClass,
    args: String,
    attempts: u32,
    state: String,
}

/// The ledger of all actions of a run, from its journal.
#[derive(Default)]
struct Ledger {
    entries: BTreeMap<ActionId, Entry>,
    /// The arguments of the last reply's calls, as the model wrote them.
    written: Vec<String>,
}

impl Ledger {
    fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if let Event::ModelReplied(e) = event {
            self.written = e.reply.calls.iter().map(|call| call.arguments.clone()).collect();
            return;
        }
        if let Event::ActionProposed(e) = event {
            // Of a call that was refused for its arguments there are none but these.
            let written = self.written.get(e.index as usize).filter(|_| e.args.as_str() == "null");
            let entry = Entry {
                tool: e.tool.as_str().to_owned(),
                effect: e.effect,
                args: written.cloned().unwrap_or_else(|| e.args.as_str().to_owned()),
                attempts: 0,
                state: "queued".to_owned(),
            };
            self.entries.insert(e.action, entry);
            return;
        }
        let mut set = |action: ActionId, state: &str| {
            if let Some(entry) = self.entries.get_mut(&action) {
                entry.state = state.to_owned();
            }
        };
        if let Event::ActionStarted(e) = event {
            set(e.action, "running");
            if let Some(entry) = self.entries.get_mut(&e.action) {
                entry.attempts = e.attempt;
            }
        } else if let Event::ActionRequeued(e) = event {
            set(e.action, "queued");
        } else if let Event::ActionFinished(e) = event {
            let state = match (&e.outcome, &e.how) {
                (Outcome::Done(_), How::Replayed { .. }) => "done (replayed)",
                (Outcome::Done(_), How::Observed | How::Recovered | How::Reconciled | How::Answered | How::Kept) => {
                    "done"
                }
                (Outcome::Error(_), _) => "error",
                (Outcome::NotDone(_), _) => "not done",
                (Outcome::Unknown(_), _) => "unknown",
            };
            set(e.action, state);
        } else if let Event::ActionRefused(e) = event {
            set(e.action, if e.would.is_some() { "not executed" } else { "refused" });
        } else if let Event::ActionDenied(e) = event {
            set(e.action, "denied");
        } else if let Event::ActionSettled(e) = event {
            let state = match e.truth {
                longrein::core::input::Truth::Done(_) => "done (settled)",
                longrein::core::input::Truth::NotDone => "not done (settled)",
            };
            set(e.action, state);
        } else if let Event::ActionRolledBack(e) = event {
            set(e.action, "undone");
        } else if let Event::ActionNotUndone(e) = event {
            set(e.action, "not undone");
        } else if let Event::CheckFinished(e) = event {
            let state = if e.verdict.finding == Finding::Passed { "done (checked)" } else { "check failed" };
            e.action.into_iter().for_each(|action| set(action, state));
        } else if let Event::RunEnded(e) = event {
            // What still waited will never run; of what was lost, only the world can still be asked about. What had ended
            // keeps its word.
            for action in e.undone.iter().chain(&e.unknown) {
                let Some(entry) = self.entries.get_mut(action) else { continue };
                let word = match (entry.state.as_str(), entry.effect) {
                    ("queued", _) => "not run",
                    ("running", EffectClass::Read | EffectClass::Workspace) => "error",
                    ("running", EffectClass::External) => "unknown",
                    _ => continue,
                };
                entry.state = word.to_owned();
            }
        }
    }

    /// What is still in play is known better by the state.
    fn amend(&mut self, run: &Run) {
        for action in run.actions() {
            if let Some(entry) = self.entries.get_mut(&action.id) {
                entry.state = words::life(&action.life).to_owned();
            }
        }
    }
}

pub(crate) async fn show(globals: Globals, args: OneRun) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let (mut ledger, mut rebuilds) = (Ledger::default(), Rebuilds::default());
    let (mut shadow, mut bringers) = (Report::default(), Bringers::default());
    let run = runs
        .fold(&id, |record| {
            ledger.see(record);
            rebuilds.see(record);
            shadow.see(record);
            bringers.see(record);
        })
        .await?;
    ledger.amend(&run);
    let fill = Fill::of(&runs, &run, rebuilds).await;
    let row = longrein::run_row(&run);
    let holder = runs.listed(&id).await?.and_then(|(_, holder)| holder);
    let waits = owed::waits(&run);
    let inbox = runs.inbox(&id).await?;
    let resume = match &run.stage {
        // With a message it goes on, whatever it came to.
        Stage::Rest(_) if !inbox.is_empty() => Some(store.command(&format!("resume {id}"))),
        Stage::Rest(ended) => crate::run::way_on(&run, ended).map(|command| store.command(&command)),
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
            let root = runs.driven_with(&id).await?;
            Some(store.command(&format!("resume {root}")))
        }
    };
    let uncertain: Vec<_> =
        run.uncertain().map(|action| (action.id, action.tool.clone(), words::life(&action.life))).collect();
    if globals.json {
        let mut object = projection::summary(&run);
        let more = json!({
            "v": 1, "run": id, "state": shown_state(&row.state, holder.is_some()),
            "pending_effects": uncertain.iter().map(|(action, tool, state)| json!({ "action": action, "tool": tool, "state": state })).collect::<Vec<_>>(),
            "event_cursor": run.head, "resume_instruction": resume,
            "model": run.model.name, "routing": routing_json(&run), "workspace": run.task.workspace,
            "budget": budget(&run), "context": fill.json(&run),
            "facts": run.facts.keys().filter(|fact| run.fact_holds(fact)).collect::<Vec<_>>(),
            "parent": run.descent.as_ref().map(|descent| &descent.parent), "children": children_json(&run),
            "manifest": manifest(&run), "waits": waits, "inbox": inbox.iter().map(waiting).collect::<Vec<_>>(),
            "ledger": ledger.entries.iter().map(|(action, entry)| json!({
                "action": action, "tool": entry.tool, "effect": entry.effect, "args": serde_json::from_str(&entry.args).unwrap_or_else(|_| json!(entry.args)),
                "attempts": entry.attempts, "state": entry.state,
            })).collect::<Vec<_>>(),
            "evidence_live": run.evidence.iter().map(|(evidence, found)| json!({
                "id": evidence, "tool": found.tool, "void_since": run.void_since(found),
            })).collect::<Vec<_>>(),
            "changed": run.surroundings, "taint": bringers.json(&run),
            "policy": run.task.policy, "sources": run.task.sources,
            "questions": run.actions().filter_map(|action| asked(&run, action)).collect::<Vec<_>>(),
            "hooks": run.task.hooks.iter().map(|hook| json!({
                "event": hook.event, "match": hook.tools, "command": hook.command, "source": hook.source,
            })).collect::<Vec<_>>(),
        });
        object.extend(block::json(&run));
        if let Some(course) = &run.course {
            let program = json!({
                "name": run.task.program.name(), "phase": course.phase, "visits": course.visits, "outputs": course.outputs,
                "lessons": course.lessons,
                "parts": parts(&run.task).map(|(phase, file, part)| json!({ "phase": phase, "task": file, "says": part }))
                    .collect::<Vec<_>>(),
            });
            object.insert("program".to_owned(), program);
        }
        if run.mode == Mode::Shadow {
            object.insert("shadow".to_owned(), shadow.json());
        }
        if let Value::Object(more) = more {
            object.extend(more);
        }
        print_line(&Value::Object(object));
        return Ok(Status::Done);
    }
    say!("run        {id}");
    lay!(LABEL, "state      {}", shown_state(&row.state, holder.is_some()).replace('_', " "));
    if !row.reason.is_empty() {
        lay!(LABEL, "reason     {}", words::reason(&row.reason, &store.command(&format!("log {id} --raw"))));
    }
    if let Some(holder) = &holder {
        lay!(LABEL, "worker     {holder}");
    }
    if let Some(descent) = &run.descent {
        lay!(LABEL, "child of   {} as {}", descent.parent, words::safe(&descent.key));
    }
    lay!(LABEL, "goal       {}{}", words::safe(&run.task.goal), words::images(&run.task.images));
    if let Some(course) = &run.course {
        let visit = course.visits_of(&course.phase);
        let visit = if visit > 1 { format!(" ({visit})") } else { String::new() };
        lay!(
            LABEL,
            "program    {}, phase {}{visit}",
            words::safe(run.task.program.name()),
            words::safe(course.phase.as_str())
        );
    }
    for (phase, file, part) in parts(&run.task) {
        let says = longrein::taskfile::part::in_words(part).join("; ");
        lay!(LABEL, "  children {}: {}: {}", words::safe(phase), words::safe(file), words::safe(&says));
    }
    lay!(LABEL, "model      {}{}", words::safe(run.model.name.as_str()), routed(&run));
    for route in &run.task.routes {
        let name = words::safe(route.model.name.as_str());
        lay!(LABEL, "  route    {name}: {}", words::safe(&longrein::taskfile::when_of(route)));
    }
    lay!(LABEL, "workspace  {}", run.task.workspace);
    let source = |key: &str| run.task.sources.get(key).map(|source| format!(" ({})", words::safe(source)));
    let of_start = source("permission_mode").filter(|_| run.mode == run.task.permission_mode).unwrap_or_default();
    lay!(LABEL, "mode       {}{of_start}", run.mode);
    for (word, rules) in
        [("allow", &run.task.policy.allow), ("ask", &run.task.policy.ask), ("deny", &run.task.policy.deny)]
    {
        if !rules.is_empty() {
            lay!(LABEL, "{word:<10} {}", words::short(&rules.join(", "), 200));
        }
    }
    if let Some(source) = run.task.sources.get("policy") {
        lay!(LABEL, "rules from {}", words::safe(source));
    }
    for hook in &run.task.hooks {
        lay!(LABEL, "hook       {}", words::hook(hook));
    }
    bringers.print(&store, &run);
    let may = manifest(&run);
    if !may.withheld.is_empty() {
        lay!(LABEL, "tools      {}", words::offered(&may));
    }
    print_budget(&run);
    fill.print(&run);
    block::print(&run);
    if let Some(answer) = projection::answer(&run) {
        let verified = match answer.verified {
            Some(true) => "every check passed",
            Some(false) => "passed on changed checks",
            None if !run.task.acceptance.is_empty() => "not verified: no more than a model's opinion speaks for it",
            None => "not verified: the task has no check; the answer is the model's word",
        };
        lay!(LABEL, "answer     {}", words::safe(&answer.accepted.rendered));
        lay!(LABEL, "proof      {verified}");
    }
    print_children(&run);
    let earlier = ledger.entries.len().saturating_sub(ACTIONS_SHOWN);
    match (ledger.entries.is_empty(), earlier) {
        (true, _) => {}
        (false, 0) => say!("actions"),
        (false, _) => lay!(LABEL, "actions    ({earlier} earlier ones: {})", store.command(&format!("log {id}"))),
    }
    for (action, entry) in ledger.entries.iter().skip(earlier) {
        let tries = if entry.attempts > 1 { format!(", {} attempts", entry.attempts) } else { String::new() };
        lay!(
            LABEL,
            "  {action:<5} {:<22} {:<10} {}{tries}  {}",
            words::short(&entry.tool, 22),
            entry.effect.to_string(),
            entry.state,
            words::short(&entry.args, 60)
        );
    }
    if !shadow.is_empty() {
        say!("would have done");
        shadow.lines().iter().for_each(|line| lay!(LABEL, "  {line}"));
    }
    for (action, tool, state) in &uncertain {
        lay!(LABEL, "unknown    {action} {tool}: {state}");
    }
    if !run.surroundings.is_empty() {
        let changed: Vec<_> = run.surroundings.iter().cloned().collect();
        lay!(LABEL, "changed    {}", words::safe(&changed.join(", ")));
    }
    if !waits.is_empty() {
        lay!(LABEL, "waits for  {}", words::waits(&waits));
        for action in run.actions() {
            question(&run, action).iter().for_each(|line| lay!(LABEL, "           {line}"));
        }
        for command in commands(&id, &waits) {
            say!("           {}", store.command(&command));
        }
    }
    print_inbox(&inbox);
    if let Some(resume) = resume.filter(|_| holder.is_none()) {
        say!("go on      {resume}");
        if let Stage::Rest(ended) = &run.stage
            && inbox.is_empty()
            && let Some(ways) = crate::run::other_ways(&run, ended)
        {
            lay!(LABEL, "           {ways}");
        }
    }
    Ok(Status::Done)
}

/// A child's state in one word.
fn child_state(child: &Child) -> &'static str {
    match &child.state {
        ChildState::Owed(owed) if owed.waits.is_empty() => "asked for",
        ChildState::Owed(_) => "waiting",
        ChildState::Ended { report, .. } => report.end.state(),
        ChildState::Inherited => "another run's",
    }
}

fn in_order(run: &Run) -> Vec<(&RunId, &Child)> {
    let mut all: Vec<_> = run.children.iter().collect();
    all.sort_by_key(|(_, child)| child.number);
    all
}

fn print_children(run: &Run) {
    if run.children.is_empty() {
        return;
    }
    say!("children");
    for (id, child) in in_order(run) {
        let said = match &child.state {
            ChildState::Ended { report, .. } => report.answer().unwrap_or(&report.reason),
            ChildState::Owed(_) | ChildState::Inherited => &child.goal,
        };
        let state = child_state(child).replace('_', " ");
        lay!(LABEL, "  {id} {:<16} {state:<10} {}", words::short(&child.key, 16), words::short(said, 60));
    }
}

fn children_json(run: &Run) -> Vec<Value> {
    let one = |(id, child): (&RunId, &Child)| {
        let report = match &child.state {
            ChildState::Ended { report, .. } => Some(report.as_ref()),
            ChildState::Owed(_) | ChildState::Inherited => None,
        };
        json!({
            "run": id, "key": child.key, "goal": child.goal, "state": child_state(child), "grant": child.grant,
            "reason": report.map(|report| &report.reason), "answer": report.and_then(|report| report.answer()),
            "usd": report.map(|report| projection::usd(report.spent.micros)),
            "tokens": report.map(|report| report.spent.usage.tokens()),
        })
    };
    in_order(run).into_iter().map(one).collect()
}

/// What is asked about an action: the exact call, what it would do, and why a person is asked.
fn question(run: &Run, action: &Action) -> Vec<String> {
    let Life::Held(held) = &action.life else { return Vec::new() };
    match &held.wants {
        Wants::Words => vec![format!("{} asks: {}", action.id, words::short(&held.reason, 200))],
        Wants::Yes | Wants::Typed(_) => {
            let mut lines = vec![format!("{} {}", action.id, words::call(run, action).replace('\n', "\n           "))];
            lines.extend(
                words::effects(action.tool.as_str(), &held.effects).into_iter().map(|line| format!("  {line}")),
            );
            lines.push(format!(
                "  asked because {} ({})",
                words::short(&held.reason, 200),
                words::short(&held.rule, 80)
            ));
            lines
        }
    }
}

/// The same as JSON.
fn asked(run: &Run, action: &Action) -> Option<Value> {
    let Life::Held(held) = &action.life else { return None };
    let by = run.task.tool(&action.tool).map(|tool| words::carried_out_by(run, tool));
    Some(json!({
        "action": action.id, "tool": action.tool, "args": action.args, "effect": action.effect, "by": by,
        "wants": held.wants, "rule": held.rule, "reason": held.reason, "effects": held.effects, "digest": held.digest,
        "asked": held.since, "always": held.exact.is_some(),
    }))
}

/// Inputs that nobody has taken yet.
fn print_inbox(inbox: &[Input]) {
    if inbox.is_empty() {
        return;
    }
    let messages = inbox.iter().filter(|input| matches!(input.body, InputBody::Message(_))).count() as u64;
    let others = inbox.len() as u64 - messages;
    let mut kinds = Vec::new();
    if messages > 0 {
        kinds.push(words::count(messages, "message", "messages"));
    }
    if others > 0 {
        kinds.push(words::count(others, "other input", "other inputs"));
    }
    let verb = if inbox.len() == 1 { "waits" } else { "wait" };
    lay!(LABEL, "inbox      {} {verb} to be taken", kinds.join(" and "));
    for input in inbox {
        if let InputBody::Message(text) = &input.body {
            lay!(LABEL, "           {}{}", words::short(text, 90), words::images(&input.images));
        }
    }
}

/// An input that nobody has taken yet, for people.
pub(crate) fn waiting_in_words(input: &Input) -> String {
    let (kind, text) = kind_and_text(input);
    let text = text.map(|text| format!(": {}", words::short(text, 200))).unwrap_or_default();
    format!("{}{text}{}", kind.replace('_', " "), words::images(&input.images))
}

/// The same for programs.
pub(crate) fn waiting(input: &Input) -> Value {
    let (kind, text) = kind_and_text(input);
    json!({ "input": input.id, "at": input.at.to_string(), "kind": kind, "text": text })
}

fn kind_and_text(input: &Input) -> (&'static str, Option<&String>) {
    match &input.body {
        InputBody::Message(text) => ("message", Some(text)),
        InputBody::Approve(_) => ("approve", None),
        InputBody::Deny(_) => ("deny", None),
        InputBody::Settle(_) => ("settle", None),
        InputBody::Cancel => ("cancel", None),
        InputBody::LateOutcome(_) => ("late_outcome", None),
        InputBody::Raise(_) => ("raise", None),
        InputBody::SwitchModel(_) => ("switch_model", None),
        InputBody::Endorse(_) => ("endorse", None),
        InputBody::ChildEnded(_) => ("child_ended", None),
        InputBody::Rollback(_) => ("rollback", None),
    }
}

fn limit(limit: Limit) -> Value {
    match limit {
        Limit::At(at) => json!(at),
        Limit::Unlimited => json!("unlimited"),
    }
}

fn budget(run: &Run) -> Value {
    let (spent, limits) = (&run.spent, &run.limits);
    json!({
        "turns": { "used": spent.turns, "limit": limit(limits.turns) },
        "model_calls": { "used": spent.model_calls, "limit": limit(limits.model_calls) },
        "tool_calls": { "used": spent.tool_calls, "limit": limit(limits.tool_calls) },
        "tokens": { "used": spent.usage.tokens(), "limit": limit(limits.tokens) },
        "usd": {
            "used": projection::usd(spent.micros),
            "limit": match limits.micros { Limit::At(micros) => json!(projection::usd(micros)), Limit::Unlimited => json!("unlimited") },
        },
        "time_ms": { "used": spent.time_ms, "limit": limit(limits.time_ms) },
        "deadline": limits.deadline.map(|at| at.to_string()),
    })
}

fn print_budget(run: &Run) {
    let (spent, limits) = (&run.spent, &run.limits);
    let of = |used: u64, limit: Limit| match limit {
        Limit::At(limit) => format!("{used} of {limit}"),
        Limit::Unlimited => format!("{used}"),
    };
    lay!(
        LABEL,
        "used       {} turns, {} model calls, {} tool calls, {} tokens",
        of(spent.turns, limits.turns),
        of(spent.model_calls, limits.model_calls),
        of(spent.tool_calls, limits.tool_calls),
        of(spent.usage.tokens(), limits.tokens)
    );
    let mut more = vec![format!("{:.1} s at work", std::time::Duration::from_millis(spent.time_ms).as_secs_f64())];
    if spent.micros > 0 || limits.micros != Limit::Unlimited {
        let of = match limits.micros {
            Limit::At(micros) => format!(" of {:.4}", projection::usd(micros)),
            Limit::Unlimited => String::new(),
        };
        more.push(format!("{:.4}{of} USD", projection::usd(spent.micros)));
    }
    if run.recoveries > 0 {
        more.push(words::count(run.recoveries.into(), "recovery", "recoveries"));
    }
    lay!(LABEL, "           {}", more.join(", "));
}

pub(crate) async fn log(globals: Globals, args: LogArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let mut after = Seq(0);
    let mut run: Option<Run> = None;
    loop {
        let page = runs.records(&id, after).await?;
        let page_is_empty = page.is_empty();
        for record in &page {
            after = record.seq;
            print_record(&globals, &mut run, record, &id, args.raw);
        }
        if !page_is_empty {
            continue;
        }
        if !args.follow {
            return Ok(Status::Done);
        }
        if is_left(&runs, &id).await? {
            // A worker that went between the two looks may have written to the end.
            if !runs.records(&id, after).await?.is_empty() {
                continue;
            }
            let is_at_work =
                runs.listed(&id).await?.is_some_and(|(row, holder)| row.state == "running" && holder.is_none());
            if is_at_work {
                tell!("interrupted: its process is gone");
                tell!("{}", store.command(&format!("resume {id}")));
            }
            return Ok(Status::Done);
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Nobody drives it and nothing more will come by itself.
async fn is_left(runs: &Runs, id: &longrein::core::ids::RunId) -> Result<bool, Failure> {
    Ok(runs.listed(id).await?.is_none_or(|(_, holder)| holder.is_none()))
}

fn print_record(
    globals: &Globals,
    run: &mut Option<Run>,
    record: &Recorded,
    id: &longrein::core::ids::RunId,
    with_raw: bool,
) {
    match &record.body {
        RecordedBody::Known(event) => {
            match (&mut *run, event) {
                (None, Event::RunStarted(started)) => *run = Some(Run::new(started, record.at)),
                (Some(run), event) => run.apply(record.seq, record.at, event),
                (None, _) => {}
            }
            let raw = with_raw.then(|| projection::raw(event)).flatten();
            match (globals.json, &*run) {
                (true, Some(run)) => {
                    let mut line = projection::line(run, Some(record.seq), record.at, event);
                    if let Some(raw) = raw {
                        line["raw"] = raw;
                    }
                    print_line(&line);
                }
                (_, run) => {
                    lay!(
                        BESIDE_TIME,
                        "{:>6}  {}  {}",
                        record.seq,
                        words::clock(record.at),
                        words::describe(run.as_ref(), event)
                    );
                    if with_raw && let Event::ModelFailed(failed) = event {
                        lay!(BESIDE_TIME, "{:18}{}", "", words::safe(&failed.message));
                    }
                    for block in raw.iter().flat_map(|raw| raw["blocks"].as_array().into_iter().flatten()) {
                        lay!(BESIDE_TIME, "{:18}{}", "", words::safe(&block.to_string()));
                    }
                }
            }
        }
        RecordedBody::Unknown { kind, .. } => {
            if globals.json {
                print_line(&json!({ "v": 1, "seq": record.seq, "at": record.at.to_string(), "run": id, "type": kind }));
            } else {
                lay!(
                    BESIDE_TIME,
                    "{:>6}  {}  {} (of a kind this version does not know)",
                    record.seq,
                    words::clock(record.at),
                    words::safe(kind)
                );
            }
        }
        RecordedBody::Damaged { what } => {
            if globals.json {
                let line = json!({ "v": 1, "seq": record.seq, "at": record.at.to_string(), "run": id, "type": "damaged", "what": what });
                print_line(&line);
            } else {
                lay!(BESIDE_TIME, "{:>6}  {}  DAMAGED: {}", record.seq, words::clock(record.at), words::safe(what));
            }
        }
    }
}

pub(crate) async fn verify(globals: Globals, args: OneRun) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let Some(report) = runs.verify(&id).await? else {
        return Err(Failure::new(Status::NotFound, format!("no run {id} in this store")));
    };
    let folded = runs.fold(&id, |_| {}).await;
    let mut findings: Vec<_> =
        report.findings.iter().map(|finding| (finding.record.clone(), finding.fault.clone())).collect();
    match &folded {
        Ok(run) => {
            let listed = runs.listed(&id).await?.map(|(row, _)| row);
            if listed.as_ref() != Some(&longrein::run_row(run)) {
                findings.push(("listing".to_owned(), "does not say what the journal folds to".to_owned()));
            }
        }
        Err(error) => findings.push(("journal".to_owned(), format!("does not fold: {error}"))),
    }
    if globals.json {
        print_line(&json!({
            "v": 1, "run": id, "ok": findings.is_empty(), "events": report.events, "inputs": report.inputs,
            "keys": report.keys, "blobs": report.blobs,
            "findings": findings.iter().map(|(record, fault)| json!({ "record": record, "fault": fault })).collect::<Vec<_>>(),
        }));
    } else {
        say!(
            "{} events, {} inputs, {} keys, {} blobs checked: {}",
            report.events,
            report.inputs,
            report.keys,
            report.blobs,
            match findings.len() as u64 {
                0 => "nothing is damaged".to_owned(),
                faults => words::count(faults, "fault", "faults"),
            }
        );
        for (record, fault) in &findings {
            say!("{}: {}", words::safe(record), words::safe(fault));
        }
    }
    if findings.is_empty() {
        Ok(Status::Done)
    } else {
        Err(Failure::new(Status::Data, format!("faults were found in the records of run {id}")))
    }
}

/// Why calls go to another model than the task's, and how long.
fn routed(run: &Run) -> String {
    let Some(main) = &run.routing.main else { return String::new() };
    let main = words::safe(main.name.as_str());
    match &run.routing.away {
        Some(Away { from, until: Some(until) }) => {
            format!(" (by a route; {} is tried again after {})", words::safe(from.as_str()), words::clock(*until))
        }
        Some(Away { from, until: None }) => {
            let (id, from) = (&run.id, words::safe(from.as_str()));
            format!(" (by a route: {from} failed for good; back with longrein resume {id} --model {from})")
        }
        None => format!(" (by a route; else {main})"),
    }
}

/// The same for programs. Null: the task has no routes.
fn routing_json(run: &Run) -> Option<serde_json::Value> {
    let away = run.routing.away.as_ref();
    let routes = run
        .task
        .routes
        .iter()
        .map(|route| json!({ "model": route.model.name, "when": longrein::taskfile::when_of(route) }));
    (!run.task.routes.is_empty()).then(|| {
        json!({
            "main": longrein::core::route::main(run).name, "away_from": away.map(|away| &away.from),
            "until": away.and_then(|away| away.until).map(|at| at.to_string()),
            "tried": run.routing.tried.iter().map(|tried| json!({
                "model": tried.model, "class": longrein::core::route::class_word(tried.class), "words": tried.words,
            })).collect::<Vec<_>>(),
            "routes": routes.collect::<Vec<_>>(),
        })
    })
}

/// Task files for children of a program, by phase.
fn parts(task: &Task) -> impl Iterator<Item = (&str, &str, &PartTask)> {
    let phases = task.program.phases().into_iter().flat_map(|program| &program.phases);
    phases.filter_map(|phase| {
        let child = phase.kind.child()?;
        Some((phase.name.as_str(), child.task.as_deref()?, child.found.as_ref()?.task.as_deref()?))
    })
}
