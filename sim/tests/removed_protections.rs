//! The simulator shows that the laws hold; this shows that it would notice if they did not. Each case takes one
//! protection away, outside the driver, and stories from seeds must find it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::action::{Attempt, Cleared, Life};
use longrein_core::budget::Usage;
use longrein_core::context::note::Note;
use longrein_core::event::Event;
use longrein_core::hook::{HookOutcome, HookRan};
use longrein_core::ids::{ActionId, Fence, RunId, Seq, ToolName};
use longrein_core::input::{Input, InputBody};
use longrein_core::outcome::{ModelErrorClass, ModelFailure, Reply, ToolError};
use longrein_core::prompt::{Item, Prompt};
use longrein_core::taint::Mark;
use longrein_core::task::Task;
use longrein_core::time::Timestamp;
use longrein_ports::{
    AppendError, Batch, BatchId, BoxFuture, Cabinet, Claim, Committed, Durability, Encoded, Gate, GateCall, Handed,
    HookCall, Hooks, Journal, JournalError, KeyRow, Model, Origins, Probed, Ran, Reaped, Ruled, Snapshot, Tools,
    ValidArgs, Written,
};
use longrein_sim::process::{Breach, Process};
use longrein_sim::store::Store;
use longrein_sim::story::play;
use longrein_sim::town::{Layers, Town};
use longrein_sim::twist::{Twist, Twisted};

/// What the law says that compares a drive's state with the journal's.
const OTHER_STATE: &str = "a drive knows another state";

/// The most stories a removed protection may survive.
const SEEDS: u64 = 1_000;

#[track_caller]
fn is_found(what: &str, layers: impl Fn() -> Arc<dyn Layers>) {
    // Whoever rewrites a batch makes another state: that shows with any of them, and is a case of its own.
    is_found_as(what, |breach| !breach.what.contains(OTHER_STATE), layers);
}

/// Found as a breach of this law, whatever else breaks.
#[track_caller]
fn is_found_as(what: &str, is_it: impl Fn(&Breach) -> bool, layers: impl Fn() -> Arc<dyn Layers>) {
    for seed in 0..SEEDS {
        let report = play(seed, layers());
        if let Some(breach) = report.breaches.iter().find(|breach| is_it(breach)) {
            eprintln!("{what}: found by seed {seed}: {}: {}", breach.law, breach.what);
            return;
        }
    }
    panic!("{what}: not found in {SEEDS} stories");
}

/// A twisted journal in front of every process.
struct Journaled<T>(Arc<T>, Arc<OnceLock<Arc<Store>>>);

impl<T: Twist + 'static> Layers for Journaled<T> {
    fn journal(&self, _: &Arc<Process>, inner: Arc<dyn Journal>) -> Arc<dyn Journal> {
        Arc::new(Twisted { inner, twist: Arc::clone(&self.0) as Arc<dyn Twist> })
    }
    fn town(&self, town: &Town) {
        // Set once: layers are made for one story.
        let _ = self.1.set(Arc::clone(&town.store));
    }
}

fn journaled<T: Twist + 'static>(twist: T) -> Arc<dyn Layers> {
    Arc::new(Journaled(Arc::new(twist), Arc::default()))
}

// ---- the journal's protections ----

/// The newest claim of each run speaks for everybody.
#[derive(Default)]
struct IgnoresFences(Mutex<BTreeMap<RunId, Claim>>);

impl IgnoresFences {
    fn newest(&self, claim: &Claim) -> Claim {
        self.0.lock().expect("nobody panics here").get(&claim.run).cloned().unwrap_or_else(|| claim.clone())
    }
}

impl Twist for IgnoresFences {
    fn claimed(&self, claim: &Claim) {
        self.0.lock().expect("nobody panics here").insert(claim.run.clone(), claim.clone());
    }
    fn renew<'a>(&'a self, inner: &'a dyn Journal, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        Box::pin(async move {
            let newest = self.newest(claim);
            inner.renew(&newest).await
        })
    }
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let newest = self.newest(claim);
            match inner.append(&newest, batch).await {
                Err(AppendError::Conflict { found, .. }) => {
                    let batch = Batch { expected: found, ..batch.clone() };
                    inner.append(&newest, &batch).await
                }
                answer => answer,
            }
        })
    }
}

#[test]
fn a_journal_that_ignores_fences() {
    is_found("fences", || journaled(IgnoresFences::default()));
}

/// Changes every batch on its way.
struct Rewrites(fn(&mut Batch));

impl Twist for Rewrites {
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let mut batch = batch.clone();
            (self.0)(&mut batch);
            inner.append(claim, &batch).await
        })
    }
}

#[test]
fn starts_that_are_not_synced() {
    is_found("syncs", || journaled(Rewrites(|batch| batch.durability = Durability::Written)));
}

#[test]
fn an_append_that_forgets_the_inputs_it_took() {
    is_found("consumed inputs", || journaled(Rewrites(|batch| batch.consumed.clear())));
}

#[test]
fn a_lost_call_that_costs_nothing() {
    is_found("lost calls", || {
        journaled(Rewrites(|batch| {
            for new in &mut batch.events {
                if let Event::ModelFailed(failed) = &mut new.event
                    && failed.class == ModelErrorClass::Lost
                {
                    failed.usage = Usage::default();
                }
            }
        }))
    });
}

/// Keys are neither kept nor seen.
struct NoKeys;

impl Twist for NoKeys {
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move { inner.append(claim, &Batch { keys: Vec::new(), ..batch.clone() }).await })
    }
    fn key(&self, _: Option<KeyRow>) -> Option<KeyRow> {
        None
    }
}

#[test]
fn keys_that_are_not_unique() {
    is_found("keys", || journaled(NoKeys));
}

/// What was not answered is sent again as something new.
#[derive(Default)]
struct ResendsAsNew(Mutex<BTreeSet<(RunId, String)>>);

impl Twist for ResendsAsNew {
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let name = (claim.run.clone(), batch.id.0.clone());
            let is_new = self.0.lock().expect("nobody panics here").insert(name);
            if is_new {
                return inner.append(claim, batch).await;
            }
            let again = Batch { id: BatchId(format!("{}.again", batch.id.0)), ..batch.clone() };
            match inner.append(claim, &again).await {
                Err(AppendError::Conflict { found, .. }) => {
                    inner.append(claim, &Batch { expected: found, ..again }).await
                }
                answer => answer,
            }
        })
    }
}

#[test]
fn an_unanswered_append_that_is_sent_under_a_new_id() {
    is_found("batch ids", || journaled(ResendsAsNew::default()));
}

/// An end takes what stands beside it along, unread.
struct EndsOverTheInbox;

impl Twist for EndsOverTheInbox {
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            match inner.append(claim, batch).await {
                Err(AppendError::InputPending) => {
                    let inbox = inner.inbox(&claim.run).await?;
                    let consumed = inbox.into_iter().map(|input| input.id).collect();
                    inner.append(claim, &Batch { consumed, ..batch.clone() }).await
                }
                answer => answer,
            }
        })
    }
}

#[test]
fn an_end_that_sweeps_the_inbox() {
    is_found("input pending", || journaled(EndsOverTheInbox));
}

/// Says yes and writes nothing, now and then.
#[derive(Default)]
struct AcknowledgesUnwritten(Mutex<u32>);

impl Twist for AcknowledgesUnwritten {
    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let nth = {
                let mut nth = self.0.lock().expect("nobody panics here");
                *nth += 1;
                *nth
            };
            if nth.is_multiple_of(7) {
                return Ok(Committed { head: Seq(batch.expected.0 + batch.events.len() as u64) });
            }
            inner.append(claim, batch).await
        })
    }
}

#[test]
fn an_append_that_is_acknowledged_and_not_written() {
    is_found("acknowledgements", || journaled(AcknowledgesUnwritten::default()));
}

/// A yes to one question passes for a yes to another.
struct AnyYesWillDo(Arc<OnceLock<Arc<Store>>>);

impl Twist for AnyYesWillDo {
    fn inbox(&self, run: &RunId, mut inputs: Vec<Input>) -> Vec<Input> {
        let state = self.0.get().and_then(|store| store.run(run));
        for input in &mut inputs {
            if let InputBody::Approve(approve) = &mut input.body
                && let Some(action) = state.as_ref().and_then(|state| state.action(approve.action))
                && let Life::Held(question) = &action.life
            {
                approve.digest = question.digest.clone();
            }
        }
        inputs
    }
}

#[test]
fn an_approval_of_another_question() {
    is_found("approval digests", || {
        let store = Arc::default();
        Arc::new(Journaled(Arc::new(AnyYesWillDo(Arc::clone(&store))), store))
    });
}

// ---- what a run has read ----

#[track_caller]
fn is_found_by_law_8(what: &str, layers: impl Fn() -> Arc<dyn Layers>) {
    is_found_as(what, |breach| breach.law == "law_8", layers);
}

#[test]
fn a_batch_that_forgets_what_was_written() {
    is_found_by_law_8("marks", || journaled(Rewrites(|batch| batch.marks.clear())));
}

#[test]
fn a_start_that_forgets_what_it_reads() {
    is_found_by_law_8("labels", || {
        journaled(Rewrites(|batch| {
            for new in &mut batch.events {
                if let Event::ActionStarted(started) = &mut new.event {
                    started.brings = Vec::new();
                }
            }
        }))
    });
}

/// Only what ends here is looked after, not what an earlier worker left.
struct LooksFromNowOn;

struct FromNowOn {
    inner: Arc<dyn Origins>,
    born: Timestamp,
}

impl longrein_ports::Ledger for FromNowOn {
    fn file(&self, path: &str) -> Option<Mark> {
        self.inner.file(path)
    }
    fn below(&self, folder: &str) -> Option<Mark> {
        self.inner.below(folder)
    }
    fn endorses(&self, source: &str) -> bool {
        self.inner.endorses(source)
    }
}

impl Origins for FromNowOn {
    fn written<'a>(&'a self, folder: &'a str, since: Timestamp) -> BoxFuture<'a, Vec<Written>> {
        if since < self.born {
            return Box::pin(async { Vec::new() });
        }
        self.inner.written(folder, since)
    }
}

impl Layers for LooksFromNowOn {
    fn origins(&self, process: &Arc<Process>, inner: Arc<dyn Origins>) -> Arc<dyn Origins> {
        Arc::new(FromNowOn { inner, born: process.record.now() })
    }
}

#[test]
fn a_lost_writer_that_nobody_looks_after() {
    is_found_by_law_8("recovery", || Arc::new(LooksFromNowOn));
}

// ---- the gate's protections ----

#[derive(Default)]
struct AskedOnce(Arc<Mutex<BTreeMap<ToolName, Ruled>>>);

struct Remembers {
    inner: Arc<dyn Gate>,
    rulings: Arc<Mutex<BTreeMap<ToolName, Ruled>>>,
}

impl Gate for Remembers {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        // A process may die while it is asked.
        let mut rulings = self.rulings.lock().unwrap_or_else(PoisonError::into_inner);
        rulings.entry(call.tool.name.clone()).or_insert_with(|| self.inner.rule(call)).clone()
    }
}

impl Layers for AskedOnce {
    fn gate(&self, _: &Arc<Process>, inner: Arc<dyn Gate>) -> Arc<dyn Gate> {
        Arc::new(Remembers { inner, rulings: Arc::clone(&self.0) })
    }
}

#[test]
fn a_gate_that_is_asked_only_once() {
    is_found("the gate", || Arc::new(AskedOnce::default()));
}

// ---- the tools' protections ----

/// Which protection of the tools is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// Processes of older claims are said to be gone, and are not.
    Reaping,
    /// Giving an attempt up does not end it.
    Leash,
}

struct Loose {
    inner: Arc<dyn Tools>,
    gone: Gone,
}

impl Tools for Loose {
    fn validate(&self, tool: &ToolName, arguments: &str) -> Result<ValidArgs, ToolError> {
        self.inner.validate(tool, arguments)
    }
    fn unsaid(&self, text: &str) -> Option<String> {
        self.inner.unsaid(text)
    }
    fn target<'a>(
        &'a self,
        task: &'a Task,
        tool: &'a ToolName,
        args: &'a longrein_core::payload::Payload,
        seen: &'a BTreeMap<String, longrein_core::ids::Digest>,
    ) -> BoxFuture<'a, Result<Option<longrein_core::target::Target>, ToolError>> {
        self.inner.target(task, tool, args, seen)
    }
    fn changed(&self, tool: &ToolName) -> Option<longrein_ports::Changed> {
        self.inner.changed(tool)
    }
    fn run<'a>(&'a self, task: &'a Task, call: Cleared, handed: Handed) -> BoxFuture<'a, Ran> {
        match self.gone {
            Gone::Reaping => self.inner.run(task, call, handed),
            Gone::Leash => Box::pin(async move {
                let (inner, task) = (Arc::clone(&self.inner), task.clone());
                let run = tokio::spawn(async move { inner.run(&task, call, handed).await });
                run.await.expect("a tool does not panic")
            }),
        }
    }
    fn note(&self, args: &longrein_core::payload::Payload) -> Result<Note, ToolError> {
        self.inner.note(args)
    }
    fn probe<'a>(&'a self, task: &'a Task, attempt: Attempt, handed: Handed) -> BoxFuture<'a, Probed> {
        self.inner.probe(task, attempt, handed)
    }
    fn reap_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Reaped> {
        self.inner.reap_run(run)
    }
    fn reap<'a>(&'a self, run: &'a RunId, action: ActionId, current: Fence) -> BoxFuture<'a, Reaped> {
        match self.gone {
            Gone::Reaping => Box::pin(async { Reaped::Gone }),
            Gone::Leash => self.inner.reap(run, action, current),
        }
    }
}

impl Layers for Gone {
    fn tools(&self, _: &Arc<Process>, inner: Arc<dyn Tools>) -> Arc<dyn Tools> {
        Arc::new(Loose { inner, gone: *self })
    }
}

/// Takes every no of a hook for a yes.
struct Deaf(Arc<dyn Hooks>);

impl Hooks for Deaf {
    fn tell<'a>(&'a self, task: &'a Task, call: HookCall) -> BoxFuture<'a, HookRan> {
        Box::pin(async move { HookRan { outcome: HookOutcome::Passed, ..self.0.tell(task, call).await } })
    }
}

struct IgnoresHooks;

impl Layers for IgnoresHooks {
    fn hooks(&self, _: &Arc<Process>, inner: Arc<dyn Hooks>) -> Arc<dyn Hooks> {
        Arc::new(Deaf(inner))
    }
}

#[test]
fn hooks_that_are_told_and_not_heard() {
    is_found_as(
        "a driver that ignores what hooks say",
        |breach| breach.what.contains("its hook"),
        || Arc::new(IgnoresHooks),
    );
}

#[test]
fn processes_that_are_not_reaped() {
    is_found("reaping", || Arc::new(Gone::Reaping));
}

#[test]
fn attempts_that_outlive_their_worker() {
    is_found("the leash", || Arc::new(Gone::Leash));
}

/// Nothing is waited for that may still be on the wire.
struct NoSettleTime;
impl Layers for NoSettleTime {
    fn task(&self, task: &mut Task) {
        task.tools.iter_mut().for_each(|tool| tool.settle_after = Duration::ZERO);
    }
}

#[test]
fn probes_that_do_not_wait_for_the_wire() {
    is_found("the settle time", || Arc::new(NoSettleTime));
}

/// Every attempt has an idempotency key of its own: receivers cannot recognise it.
struct KeyPerAttempt;
impl Layers for KeyPerAttempt {
    fn town(&self, town: &Town) {
        town.world.forget_keys();
    }
}

#[test]
fn an_idempotency_key_for_each_attempt() {
    is_found("idempotency keys", || Arc::new(KeyPerAttempt));
}

// ---- the context's protections ----

/// Changes every request on its way to the model; what is journaled is what is sent.
struct Retold {
    inner: Arc<dyn Model>,
    process: Arc<Process>,
    change: fn(&mut Prompt, u32),
}

impl Model for Retold {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let mut prompt = prompt.clone();
        (self.change)(&mut prompt, self.process.worker.pid);
        self.inner.encode(&prompt)
    }
    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        self.inner.send(request)
    }
}

struct Retells(fn(&mut Prompt, u32));

impl Layers for Retells {
    fn model(&self, process: &Arc<Process>, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(Retold { inner, process: Arc::clone(process), change: self.0 })
    }
}

fn hide(prompt: &mut Prompt, words: &str) {
    let is_shown = |item: &Arc<Item>| match item.as_ref() {
        Item::User(text)
        | Item::Pictured { text, images: _ }
        | Item::Exhibit { text, images: _ }
        | Item::Harness(text) => !text.contains(words),
        Item::Assistant { .. } | Item::Observation { .. } => true,
    };
    prompt.items = Arc::new(prompt.items.iter().filter(|item| is_shown(item)).cloned().collect());
}

#[test]
fn a_message_that_is_not_shown() {
    let is_it = |breach: &Breach| breach.law == "law_7" && breach.what.contains("a message is not shown");
    is_found_as("messages", is_it, || Arc::new(Retells(|prompt, _| hide(prompt, "<longrein id="))));
}

#[test]
fn a_control_block_that_is_left_out() {
    let is_it = |breach: &Breach| breach.law == "law_7" && breach.what.contains("is not shown as that");
    is_found_as("effects", is_it, || Arc::new(Retells(|prompt, _| hide(prompt, "Control block of generation"))));
}

#[test]
fn a_note_that_only_the_journal_keeps() {
    let is_it = |breach: &Breach| breach.law == "law_7" && breach.what.contains("the note n");
    is_found_as("notes", is_it, || {
        Arc::new(Retells(|prompt, _| {
            hide(prompt, "Control block of generation");
            prompt.tail = None;
        }))
    });
}

#[test]
fn a_rule_file_that_is_forgotten() {
    let is_it = |breach: &Breach| breach.law == "law_7" && breach.what.contains("docs/AGENTS.md is not shown");
    is_found_as("rule files", is_it, || Arc::new(Retells(|prompt, _| hide(prompt, "What docs/AGENTS.md"))));
}

#[test]
fn a_request_that_grows_after_it_was_admitted() {
    let is_it = |breach: &Breach| breach.law == "law_6" && breach.what.contains("of output in a window of");
    is_found_as("admission", is_it, || {
        Arc::new(Retells(|prompt, _| prompt.tail.get_or_insert_default().push_str(&"and so on ".repeat(1_000))))
    });
}

#[test]
fn a_request_that_is_another_after_a_death() {
    let is_it = |breach: &Breach| breach.law == "law_7" && breach.what.contains("after a death");
    is_found_as("the same words", is_it, || {
        Arc::new(Retells(|prompt, pid| prompt.tail.get_or_insert_default().push_str(&format!("asked by {pid}"))))
    });
}

/// What was refused as too long is sent in place of what follows it.
#[derive(Default)]
struct Insists(Arc<Mutex<Option<Encoded>>>);

struct Stubborn {
    inner: Arc<dyn Model>,
    refused: Arc<Mutex<Option<Encoded>>>,
}

impl Model for Stubborn {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.inner.encode(prompt)
    }
    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            let before = self.refused.lock().expect("nobody panics here").take();
            let request = before.unwrap_or(request);
            let answer = self.inner.send(request.clone()).await;
            if answer.as_ref().is_err_and(|failure| failure.class == ModelErrorClass::ContextExhausted) {
                *self.refused.lock().expect("nobody panics here") = Some(request);
            }
            answer
        })
    }
}

impl Layers for Insists {
    fn model(&self, _: &Arc<Process>, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(Stubborn { inner, refused: Arc::clone(&self.0) })
    }
}

#[test]
fn a_refused_request_that_is_sent_again() {
    let is_it = |breach: &Breach| breach.law == "law_6" && breach.what.contains("sent again");
    is_found_as("refusals", is_it, || Arc::new(Insists::default()));
}

/// Snapshots of other versions pass for this one's.
struct AnyVersionWillDo;

struct Relabelled(Arc<dyn Cabinet>);

impl Cabinet for Relabelled {
    fn keep_snapshot<'a>(&'a self, run: &'a RunId, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>> {
        self.0.keep_snapshot(run, snapshot)
    }
    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>> {
        Box::pin(async move {
            let snapshots = self.0.snapshots(run).await?;
            let ours = longrein_core::snapshot::catalogue();
            Ok(snapshots.into_iter().map(|kept| Snapshot { catalogue: ours.clone(), ..kept }).collect())
        })
    }
    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>> {
        self.0.remember(key, value)
    }
    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        self.0.recollect(key)
    }
}

impl Layers for AnyVersionWillDo {
    fn cabinet(&self, _: &Arc<Process>, inner: Arc<dyn Cabinet>) -> Arc<dyn Cabinet> {
        Arc::new(Relabelled(inner))
    }
}

#[test]
fn a_snapshot_of_another_version_that_is_believed() {
    let is_it = |breach: &Breach| breach.law == "law_1" && breach.what.contains(OTHER_STATE);
    is_found_as("catalogues", is_it, || Arc::new(AnyVersionWillDo));
}
