//! One turn, killed everywhere (`semantics.md` K): the table line by line, on the real binary.
//!
//! The turn: a1 `look` (a read), a2 and a3 `edit` of one file, a4 `pay` (idempotent), a5 `ship` (can be asked about), a6
//! `email` (neither), a7 `deploy` (held for a yes). Tests stop the world at a named place, kill, and look what a restart
//! makes of it; the world's own ledger is the witness.

mod storm_support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use storm_support::model::{Calls, LoopbackModel, Part};
use storm_support::operator::{Ended, Operator, Running, assert_nobody_left, processes_of};
use storm_support::{Terms, World, eventually};

const ANSWER: &str = "It is all done.";

#[test]
fn k_killed_before_the_request_is_synced() {
    let table = Table::new(vec![vec![look(), edit("one")]]);
    table.world.hold("edit.before");
    let first = table.spawn(&["--crash-at", "append.before.model.requested:2"]);
    table.await_event("action.finished", "a1");
    table.world.let_go("edit.before");
    assert_eq!(first.wait().status, Some(75));
    assert_eq!(table.asked(), 1, "a request was sent before it was durable");

    table.resumes_to(0);
    assert_eq!(table.asked(), 2);
    assert_eq!(table.world.count("look", "a1", "begun"), 1, "a read result that was written is kept");
}

#[test]
fn k_request_sent_no_reply() {
    let table = Table::new(vec![vec![look()]]);
    table.world.hold("model");
    let first = table.spawn(&[]);
    eventually("a request", || table.asked() == 1);
    first.kill();
    table.world.let_go("model");

    table.resumes_to(0);
    let failed = table.only("model.failed");
    assert_eq!((&failed["class"], &failed["estimated"]), (&json!("lost"), &json!("estimated")));
    let budget = &table.show()["budget"];
    assert_eq!(budget["turns"]["used"], 2, "a lost call is no turn");
    assert_eq!(budget["model_calls"]["used"], 3, "a lost call is a call");
}

#[test]
fn k_reply_received_not_written() {
    let table = Table::full();
    let first = table.run(&["--crash-at", "append.before.model.replied"]);
    assert_eq!(first.status, Some(75));
    assert_eq!(table.world.log(), Vec::<[String; 5]>::new(), "something of a reply that is not durable ran");

    table.resumes_to(3);
    assert_eq!(table.kinds("model.requested"), 2);
    table.approves_deploy_and_ends();
    assert_eq!(table.show()["budget"]["model_calls"]["used"], 3);
    table.everything_happened_once();
}

/// A reply and the starts it allows are one batch, so the journal has both or neither. Both is "started, not spawned"; in
/// either case the calls start as they should, and a kill before them leaves nothing unknown.
#[test]
fn k_reply_written_nothing_started() {
    let table = Table::full();
    assert_eq!(table.run(&["--crash-at", "append.before.action.started"]).status, Some(75));
    assert_eq!(table.world.log(), Vec::<[String; 5]>::new());
    for place in ["look.before", "edit.before", "pay.before", "ship.before", "email.before"] {
        table.world.hold(place);
    }

    let second = table.spawn(&[]);
    for place in ["look.before", "edit.before", "pay.before", "ship.before", "email.before"] {
        table.world.await_at(place);
    }
    // What writes waits for a snapshot, and the others do not wait for it.
    let mut started: Vec<_> =
        table.of_kind("action.started").iter().map(|event| event["action"].as_str().unwrap().to_owned()).collect();
    started.sort();
    assert_eq!(started, ["a1", "a2", "a4", "a5", "a6"], "a3 waits for a2, a7 for a person");
    assert_eq!(table.only("action.held")["action"], "a7");
    for place in ["look.before", "edit.before", "pay.before", "ship.before", "email.before"] {
        table.world.let_go(place);
    }
    assert_eq!(second.wait().status, Some(3));
    assert_eq!(table.show()["unknown"], json!([]));
    table.approves_deploy_and_ends();
    table.everything_happened_once();
}

/// `edit` is a command, of which no hash is known: the model is told that the outcome is not.
#[test]
fn k_a2_on_disk_no_result() {
    let table = Table::full();
    table.world.hold("edit.after");
    let first = table.spawn(&[]);
    table.world.await_at("edit.after");
    for action in ["a4", "a5", "a6"] {
        table.await_event("action.finished", action);
    }
    first.kill();
    assert_eq!(table.world.shared_file(), ["one"]);
    table.world.let_go("edit.after");

    table.resumes_to(3);
    let told = table.finished("a2");
    assert_eq!((&told["outcome"], &told["error"]["class"]), (&json!("error"), &json!("unknown_outcome")));
    assert_eq!(table.finished("a3")["outcome"], "done");
    assert_eq!(table.world.shared_file(), ["one", "two"], "a2 is not run again, a3 runs");
    table.approves_deploy_and_ends();
}

#[test]
fn k_a4_and_a5_in_flight_children_alive() {
    let table = Table::full();
    table.world.hold("pay.before");
    table.world.hold("ship.before");
    let first = table.spawn(&[]);
    table.world.await_at("pay.before");
    table.world.await_at("ship.before");
    for action in ["a1", "a2", "a3", "a6"] {
        table.await_event("action.finished", action);
    }
    let stays = |process: &String| process.contains("sleep 60");
    eventually("a child that stays", || processes_of(&table.world.run).iter().any(stays));
    first.kill();
    table.world.let_go("pay.before");
    table.world.let_go("ship.before");

    table.resumes_to(3);
    assert_eq!(table.requeued("a4"), "idempotent");
    assert_eq!(table.requeued("a5"), "no_effect");
    let waited = table.since_claim("action.requeued", "a4");
    assert!(waited >= Duration::from_millis(100), "settle_after is 100 ms; a4 was run again after {waited:?}");
    table.approves_deploy_and_ends();
    table.everything_happened_once();
}

#[test]
fn k_a4_and_a5_in_flight_their_effects_landed() {
    let table = Table::full();
    table.world.hold("pay.after");
    table.world.hold("ship.after");
    let first = table.spawn(&[]);
    table.world.await_at("pay.after");
    table.world.await_at("ship.after");
    for action in ["a1", "a2", "a3", "a6"] {
        table.await_event("action.finished", action);
    }
    first.kill();
    table.world.let_go("pay.after");
    table.world.let_go("ship.after");

    table.resumes_to(3);
    assert_eq!(table.requeued("a4"), "idempotent");
    let ship = table.finished("a5");
    assert_eq!((&ship["outcome"], &ship["how"]), (&json!("done"), &json!("reconciled")));
    assert_eq!(table.world.count("pay", "a4", "asked"), 2, "the bank was told twice");
    table.approves_deploy_and_ends();
    table.everything_happened_once();
}

#[test]
fn k_a6_in_flight() {
    let table = Table::full();
    table.world.hold("email.after");
    let first = table.spawn(&[]);
    table.world.await_at("email.after");
    for action in ["a1", "a2", "a3", "a4"] {
        table.await_event("action.finished", action);
    }
    first.kill();
    table.world.let_go("email.after");

    let ended = table.resumes_to(3);
    assert_eq!(table.show()["unknown"], json!(["a6"]));
    assert_eq!(table.finished("a5")["outcome"], "done", "the batch goes on");
    assert!(ended.stderr.contains("settle"), "{ended:?}");
    table.operator.expect(&table.world.run, &["approve", &table.world.run, "a7"], 0);
    table.resumes_to(3);
    assert_eq!(table.finished("a7")["outcome"], "done", "a7 can still be answered");
    assert_eq!(table.asked(), 1, "the model is not asked before everything is known");
    table.operator.expect(&table.world.run, &["settle", &table.world.run, "a6", "--as", "done"], 0);
    table.resumes_to(0);
    table.everything_happened_once();
}

#[test]
fn k_yes_for_a7_in_the_inbox() {
    let table = Table::full();
    assert_eq!(table.run(&[]).status, Some(3));
    table.operator.expect(&table.world.run, &["approve", &table.world.run, "a7"], 0);
    let killed = table.resume(&["--crash-at", "append.before.action.approved"]);
    assert_eq!(killed.status, Some(75));
    assert_eq!(table.kinds("action.approved"), 0);

    table.resumes_to(0);
    assert_eq!(table.only("action.approved")["action"], "a7");
    let started = table.starts("a7");
    assert_eq!(started.len(), 1, "{started:#?}");
    assert!(started[0]["rule"].as_str().is_some_and(|rule| rule.starts_with("approved by")), "{started:#?}");
    table.everything_happened_once();
}

#[test]
fn k_a7_started_not_spawned() {
    let table = Table::full();
    assert_eq!(table.run(&[]).status, Some(3));
    table.operator.expect(&table.world.run, &["approve", &table.world.run, "a7"], 0);
    assert_eq!(table.resume(&["--crash-at", "tool.before_spawn"]).status, Some(75));
    assert_eq!(table.world.count("deploy", "a7", "begun"), 0);

    table.resumes_to(3);
    assert_eq!(table.show()["unknown"], json!(["a7"]), "the one unavoidable false unknown");
    table.operator.expect(&table.world.run, &["settle", &table.world.run, "a7", "--as", "not-done"], 0);
    table.resumes_to(0);
    assert_eq!(table.world.count("deploy", "a7", "begun"), 0);
}

#[test]
fn k_all_settled() {
    let table = Table::full();
    table.world.hold("look.before");
    let first = table.spawn(&[]);
    for action in ["a2", "a3", "a4", "a5", "a6"] {
        table.await_event("action.finished", action);
    }
    table.world.let_go("look.before");
    assert_eq!(first.wait().status, Some(3));
    table.operator.expect(&table.world.run, &["approve", &table.world.run, "a7"], 0);
    assert_eq!(table.resume(&["--crash-at", "append.after.model.requested"]).status, Some(75));
    assert_eq!(table.asked(), 1);

    table.resumes_to(0);
    let requests = table.model.requests(&table.world.run);
    let messages = requests[1]["messages"].as_array().expect("a list");
    let observed: Vec<_> = messages.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
    assert_eq!(observed, ["c0.0", "c0.1", "c0.2", "c0.3", "c0.4", "c0.5", "c0.6"], "in call order");
    table.everything_happened_once();
}

/// Takes as long as a lease: only its end tells a paused worker from a slow one.
#[test]
fn k_worker_paused_in_a4_another_claims() {
    let table = Table::full();
    table.world.hold("pay.before");
    table.world.hold("email.after");
    let paused = table.spawn(&[]);
    table.world.await_at("pay.before");
    table.world.await_at("email.after");
    for action in ["a1", "a2", "a3", "a5"] {
        table.await_event("action.finished", action);
    }
    paused.signal(Signal::STOP);
    let refused = table.resumes_to(69);
    assert!(refused.stderr.contains("process"), "names the holder: {refused:?}");
    assert_eq!(table.kinds("run.claimed"), 1);

    let by = Instant::now() + Duration::from_secs(30);
    let other = loop {
        let mut other = table.spawn_resume(&[]);
        while !other.is_over() && table.kinds("run.claimed") == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        if table.kinds("run.claimed") == 2 {
            break other;
        }
        assert_eq!(other.wait().status, Some(69));
        assert!(Instant::now() < by, "the lease does not end");
        std::thread::sleep(Duration::from_millis(500));
    };
    // The other one ends what the paused one left and tries again under the same key; it stands where the first stood.
    eventually("a second attempt", || table.world.count("pay", "a4", "asked") == 2);
    table.world.let_go("pay.before");
    table.world.let_go("email.after");
    assert_eq!(other.wait().status, Some(3));
    assert_eq!(table.world.paid().len(), 1);
    assert_eq!(table.show()["unknown"], json!(["a6"]));

    paused.signal(Signal::CONT);
    let late = paused.wait();
    assert_eq!(late.status, Some(69), "{late:?}");
    assert_nobody_left(&table.world.run, "afterwards");
    assert_eq!(table.world.paid().len(), 1, "the one that woke up does nothing more");
    table.operator.expect(&table.world.run, &["settle", &table.world.run, "a6", "--as", "done"], 0);
    table.approves_deploy_and_ends();
    table.everything_happened_once();
}

#[test]
fn k_some_verdicts_durable_the_last_and_the_end_not() {
    let table = Table::new(Vec::new());
    table.world.hold("check-two.before");
    let first = table.spawn(&[]);
    table.world.await_at("check-two.before");
    assert_eq!(table.only("check.finished")["check"], "one");
    first.kill();
    table.world.let_go("check-two.before");

    table.resumes_to(0);
    let begun = |check: &str| table.world.log().iter().filter(|line| line[0] == check).count();
    assert_eq!((begun("check-one"), begun("check-two")), (2, 2), "all checks run again");
}

#[test]
fn k_a_message_beside_the_end() {
    let table = Table::new(Vec::new());
    assert_eq!(table.run(&["--crash-at", "append.before.run.ended"]).status, Some(75));
    table.operator.expect(&table.world.run, &["send", &table.world.run, "One thing more."], 0);

    table.resumes_to(0);
    table.went_on_with("One thing more.");
}

/// The same without a death: the end is on its way when the message comes in.
#[test]
fn k_a_message_beside_the_end_of_a_living_worker() {
    let table = Table::new(Vec::new());
    table.world.hold("check-two.before");
    let first = table.spawn(&[]);
    table.world.await_at("check-two.before");
    first.signal(Signal::STOP);
    table.operator.expect(&table.world.run, &["send", &table.world.run, "One thing more."], 0);
    table.world.let_go("check-two.before");
    std::thread::sleep(Duration::from_millis(200));
    first.signal(Signal::CONT);

    assert_eq!(first.wait().status, Some(0));
    table.went_on_with("One thing more.");
}

// ---- beside the table ----

/// Five claims that got nowhere fail the run (`semantics.md` C5). Nobody will recover its calls any more, so what they left
/// is ended with it, and what may have happened is unknown.
#[test]
fn a_run_that_is_given_up_leaves_nobody_behind() {
    let table = Table::full();
    let held = ["look.before", "edit.after", "pay.before", "email.before"];
    held.iter().for_each(|place| table.world.hold(place));
    let first = table.spawn(&[]);
    held.iter().for_each(|place| table.world.await_at(place));
    table.await_event("action.finished", "a5");
    first.kill();
    for _ in 0..4 {
        let status = table.resume(&["--crash-at", "append.after.run.claimed"]).status;
        if status == Some(4) {
            break;
        }
        assert_eq!(status, Some(75));
    }
    let ended = table.resumes_to(4);
    assert!(ended.stderr.contains("claims in a row got nowhere"), "{ended:?}");
    assert_eq!(table.show()["unknown"], json!(["a4", "a6"]), "a read or an edit needs no person");
    for action in ["a4", "a6"] {
        table.operator.expect(&table.world.run, &["settle", &table.world.run, action, "--as", "not-done"], 0);
    }
    table.operator.expect(&table.world.run, &["send", &table.world.run, "Go on."], 0);
    table.resumes_to(0);
    assert_eq!(table.world.paid(), Vec::<String>::new());
}

/// A store that cannot grow stops the binary with 69 wherever it happens, and loses nothing (`semantics.md` A4).
#[test]
fn a_store_that_cannot_grow_stops_the_run_and_loses_nothing() {
    let mut refused = 0;
    for half_kib in (60..).step_by(24) {
        let table = Table::new(vec![vec![look(), edit("one"), ("pay", json!({ "invoice": "inv-7" }))]]);
        let limited = format!("ulimit -f {half_kib}; exec \"$@\"");
        let run = table.operator.command(&table.world.run, &table.words_of_run());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &limited, "-"]).arg(run.get_program()).args(run.get_args()).env_clear();
        shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
        let ended = shell.stdin(std::process::Stdio::null()).output().expect("there is a shell");
        let story = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.status.code() == Some(0) {
            break;
        }
        assert_eq!(ended.status.code(), Some(69), "at {half_kib} blocks: {story}");
        refused += 1;
        assert_eq!(table.run(&[]).status, Some(0), "after {half_kib} blocks: {story}");
        table.operator.verify(&table.world.run);
        assert_nobody_left(&table.world.run, "afterwards");
        assert_eq!(table.world.paid().len(), 1);
    }
    assert!(refused >= 3, "the limits were too wide to hit anything: {refused}");
}

// ---- the calls ----

fn look() -> (&'static str, Value) {
    ("look", json!({ "at": "metrics" }))
}

fn edit(text: &str) -> (&'static str, Value) {
    ("edit", json!({ "text": text }))
}

fn the_batch() -> Calls {
    vec![
        look(),
        edit("one"),
        edit("two"),
        ("pay", json!({ "invoice": "inv-7" })),
        ("ship", json!({ "order": "ord-7" })),
        ("email", json!({ "to": "acme" })),
        ("deploy", json!({ "version": "7" })),
    ]
}

// ---- the table it all lies on ----

/// One run, its world, its model, its store.
struct Table {
    world: World,
    task: String,
    operator: Operator<'static>,
    model: &'static LoopbackModel,
    _folder: tempfile::TempDir,
}

impl Table {
    /// The batch of the table, then an answer.
    fn full() -> Self {
        Self::new(vec![the_batch()])
    }

    fn new(turns: Vec<Calls>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        // It serves until the test process ends.
        let model: &'static LoopbackModel = Box::leak(Box::new(LoopbackModel::start()));
        // Processes are told apart by the run they belong to, and tests share a machine.
        let name = folder.path().file_name().expect("it has one").to_string_lossy().replace('.', "k");
        let world =
            World::new(folder.path(), &name, Terms { turns: 40, settle_after: "100ms", checks: &["one", "two"] });
        let held_by = world.hold_file("model");
        model.plays(&world.run, Part { turns, answer: ANSWER.to_owned(), thinks_for: Duration::ZERO, held_by });
        let operator = Operator::new(&folder.path().join("home"), model);
        let task = world.task();
        Self { world, task, operator, model, _folder: folder }
    }

    fn words_of_run(&self) -> [&str; 7] {
        ["run", "--task", &self.task, "--id", &self.world.run, "--on-ask", "wait"]
    }

    fn spawn(&self, more: &[&str]) -> Running {
        self.operator.spawn(&self.world.run, &[&self.words_of_run(), more].concat())
    }

    fn run(&self, more: &[&str]) -> Ended {
        self.spawn(more).wait()
    }

    fn spawn_resume(&self, more: &[&str]) -> Running {
        let words = ["resume", &self.world.run, "--on-ask", "wait"];
        self.operator.spawn(&self.world.run, &[&words, more].concat())
    }

    fn resume(&self, more: &[&str]) -> Ended {
        self.spawn_resume(more).wait()
    }

    /// Resumes; whatever the end, the journal is sound and nobody is left over from before.
    fn resumes_to(&self, status: i32) -> Ended {
        let ended = self.resume(&[]);
        assert_eq!(ended.status, Some(status), "{ended:?}\n{}", self.operator.story(&self.world.run));
        self.operator.verify(&self.world.run);
        if status != 69 {
            assert_nobody_left(&self.world.run, "afterwards");
        }
        ended
    }

    fn approves_deploy_and_ends(&self) {
        self.operator.expect(&self.world.run, &["approve", &self.world.run, "a7"], 0);
        self.resumes_to(0);
    }

    fn show(&self) -> Value {
        self.operator.show(&self.world.run)
    }

    /// How many requests the model has seen; none of them was out of order.
    fn asked(&self) -> usize {
        assert_eq!(self.model.complaints(), Vec::<String>::new());
        self.model.requests(&self.world.run).len()
    }

    fn events(&self) -> Vec<Value> {
        self.operator.events(&self.world.run).unwrap_or_default()
    }

    fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    fn kinds(&self, kind: &str) -> usize {
        self.of_kind(kind).len()
    }

    fn only(&self, kind: &str) -> Value {
        let mut found = self.of_kind(kind);
        assert_eq!(found.len(), 1, "{kind}: {found:#?}");
        found.remove(0)
    }

    fn starts(&self, action: &str) -> Vec<Value> {
        self.of_kind("action.started").into_iter().filter(|event| event["action"] == action).collect()
    }

    fn finished(&self, action: &str) -> Value {
        let found: Vec<_> =
            self.of_kind("action.finished").into_iter().filter(|event| event["action"] == action).collect();
        assert_eq!(found.len(), 1, "{action}: {}", self.operator.story(&self.world.run));
        found[0].clone()
    }

    fn requeued(&self, action: &str) -> String {
        let found: Vec<_> =
            self.of_kind("action.requeued").into_iter().filter(|event| event["action"] == action).collect();
        assert_eq!(found.len(), 1, "{action}: {}", self.operator.story(&self.world.run));
        found[0]["why"].as_str().unwrap_or_default().to_owned()
    }

    fn await_event(&self, kind: &str, action: &str) {
        eventually(&format!("{kind} of {action}"), || self.of_kind(kind).iter().any(|event| event["action"] == action));
    }

    /// From the last claim to an event.
    fn since_claim(&self, kind: &str, action: &str) -> Duration {
        let at = |event: &Value| {
            let text = event["at"].as_str().expect("every event has a time");
            text.parse::<jiff::Timestamp>().expect("in RFC 3339")
        };
        let claimed = at(self.of_kind("run.claimed").last().expect("it was claimed"));
        let found = self.of_kind(kind).into_iter().find(|event| event["action"] == action).expect("it happened");
        Duration::try_from(at(&found).duration_since(claimed)).expect("after the claim")
    }

    fn went_on_with(&self, message: &str) {
        assert_eq!(self.asked(), 2, "the end was refused and the model asked again");
        let requests = self.model.requests(&self.world.run);
        assert!(requests[1]["messages"].to_string().contains(message), "{}", requests[1]);
        let events = self.events();
        let at = |kind: &str| events.iter().rposition(|event| event["type"] == kind);
        assert!(at("input.received") < at("check.finished"), "acceptance is proven anew");
        assert_eq!(self.kinds("run.ended"), 1);
        assert_eq!(self.show()["state"], "done");
    }

    fn everything_happened_once(&self) {
        let show = self.show();
        assert_eq!((&show["state"], &show["rendered"], &show["unknown"]), (&json!("done"), &json!(ANSWER), &json!([])));
        assert_eq!(self.world.shared_file(), ["one", "two"]);
        assert_eq!(self.world.paid().len(), 1);
        for (tool, action) in [("ship", "a5"), ("email", "a6"), ("deploy", "a7")] {
            assert_eq!(self.world.count(tool, action, "did"), 1, "{tool}: {:?}", self.world.log());
        }
        assert_eq!(self.model.complaints(), Vec::<String>::new());
        self.operator.verify(&self.world.run);
        assert_nobody_left(&self.world.run, "afterwards");
    }
}
