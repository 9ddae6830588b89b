//! A storm of SIGKILLs on the real binary: whatever the instant, nothing is forgotten, nothing is paid twice, and nobody
//! is lied to.
//!
//! Runs that mix every kind of tool are killed at random instants, from the first microsecond of the process to its last;
//! meanwhile other processes approve, deny, send, raise and cancel, and are killed, too; some runs are asked to stop instead,
//! and some lose a tool. When a run has had its share of
//! kills it is brought to its end the way an operator would, and then its journal is held against the world's own ledger.
//!
//! `LONGREIN_STORM_KILLS` sets how many kills there are at least, `LONGREIN_STORM_SEED` repeats the choices of a storm that
//! failed (not its timing).

#![expect(clippy::print_stdout, reason = "where the kills landed is what a storm is read for")]

mod storm_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use storm_support::model::{Calls, LoopbackModel, Part};
use storm_support::operator::{Ended, Operator, Running, assert_nobody_left, kill_a_tool_of};
use storm_support::{Terms, World};

/// Enough to land everywhere, few enough for every commit.
const KILLS: u64 = 200;
/// Runs at the same time, in one store.
const WORKERS: u64 = 4;
/// Kills one run has to survive; then another begins.
const KILLS_PER_RUN: u64 = 12;
/// Behind no event.
const NOTHING_YET: &str = "(nothing yet)";
/// Different last events that kills must have hit behind.
const PLACES_MIN: usize = 7;
/// Until one looks again for a tool to kill: the shortest tools run longer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Commands it may take to bring a run to its end.
const PATIENCE: u32 = 200;

#[test]
fn kills_at_random_instants_forget_nothing_and_repeat_nothing() {
    let setting = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let kills = setting("LONGREIN_STORM_KILLS").unwrap_or(KILLS);
    let seed = setting("LONGREIN_STORM_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 16 | 1);
    println!("LONGREIN_STORM_SEED={seed}");
    let began = Instant::now();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let model = LoopbackModel::start();
    let storm = Storm { kills, left: AtomicU64::new(kills), runs: AtomicU64::new(0), tally: Mutex::default() };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while storm.left.load(Ordering::SeqCst) > 0 {
                    let number = storm.runs.fetch_add(1, Ordering::SeqCst);
                    let dice = Dice::new(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                    Life::new(&storm, folder.path(), &model, number, dice).live();
                }
            });
        }
    });
    assert_eq!(model.complaints(), Vec::<String>::new(), "conversations that a provider would refuse");
    storm.report(began.elapsed());
}

struct Storm {
    kills: u64,
    left: AtomicU64,
    runs: AtomicU64,
    tally: Mutex<Tally>,
}

/// Where kills landed and what became of the runs.
#[derive(Default)]
struct Tally {
    /// By the last event that was durable.
    places: BTreeMap<String, u64>,
    /// By what was running.
    in_flight: BTreeMap<String, u64>,
    /// Kills of commands that answer, by command.
    answers: BTreeMap<String, u64>,
    ends: BTreeMap<String, u64>,
    /// How lost and doubtful calls were resolved.
    resolved: BTreeMap<String, u64>,
    recoveries: u64,
    /// Kills of tools alone.
    tools: u64,
}

impl Storm {
    fn tally(&self, note: impl FnOnce(&mut Tally)) {
        note(&mut self.tally.lock().expect("a thread that panics ends the storm"));
    }

    /// Whether most kills by now were so early that nothing was written yet.
    fn is_mostly_too_early(&self) -> bool {
        let tally = self.tally.lock().expect("a thread that panics ends the storm");
        let early = tally.places.get(NOTHING_YET).copied().unwrap_or_default();
        early * 2 > tally.places.values().sum::<u64>()
    }

    fn report(&self, took: Duration) {
        let tally = self.tally.lock().expect("all threads have ended");
        let landed: u64 = tally.places.values().sum();
        println!("{landed} kills of {} runs in {took:.1?}", self.runs.load(Ordering::SeqCst));
        let sections = [
            ("last durable event at the kill", &tally.places),
            ("in flight at the kill", &tally.in_flight),
            ("kills of other commands", &tally.answers),
            ("how runs ended", &tally.ends),
            ("what became of lost and doubtful calls", &tally.resolved),
        ];
        for (title, counts) in sections {
            println!("{title}:");
            for (what, count) in counts {
                println!("  {count:>5}  {what}");
            }
        }
        println!("recoveries: {}; tools killed alone: {}", tally.recoveries, tally.tools);
        assert!(tally.tools > 0, "no process of any run could be found: the search for those left over finds nothing");
        assert!(landed >= self.kills, "{landed} of {} kills", self.kills);
        assert!(tally.places.len() >= PLACES_MIN, "kills landed in {} places only", tally.places.len());
    }
}

/// One run from its first process to its end.
struct Life<'a> {
    storm: &'a Storm,
    operator: Operator<'a>,
    model: &'a LoopbackModel,
    world: World,
    dice: Dice,
    kills_left: u64,
    /// The calls that wait for a person, as they will be numbered.
    held: Vec<String>,
    exists: bool,
    /// A cancel was tried: the run may end so.
    cancelled: bool,
    /// Other commands ran beside the last one.
    disturbed: bool,
    /// Messages that were accepted for certain, and those whose sender was killed.
    sent: Vec<String>,
    perhaps_sent: Vec<String>,
    messages: u32,
    spent: BTreeMap<String, u64>,
    /// External calls that were unknown when a person was asked, and what the world's ledger said then.
    settled: BTreeMap<String, bool>,
}

/// What another process does beside the run.
struct Aside {
    at: Duration,
    words: Vec<String>,
    /// It is killed after so long; None: it is let be.
    killed_after: Option<Duration>,
}

struct AsideRunning {
    began: Instant,
    aside: Aside,
    running: Running,
}

impl<'a> Life<'a> {
    fn new(storm: &'a Storm, folder: &std::path::Path, model: &'a LoopbackModel, number: u64, mut dice: Dice) -> Self {
        let run = format!("storm-{number}-");
        let turns = if dice.one_in(4) { 2 } else { 40 };
        let world = World::new(folder, &run, Terms { turns, settle_after: "100ms", checks: &["one", "two"] });
        let call = |name: &'static str, word: &str| {
            let parameter = match name {
                "look" => "at",
                "edit" => "text",
                "pay" => "invoice",
                "ship" => "order",
                "email" => "to",
                _ => "version",
            };
            (name, json!({ parameter: word }))
        };
        let mut names = ["look", "edit", "edit", "pay", "ship", "email", "deploy", "look"];
        let mut turns: Vec<Calls> = Vec::new();
        for turn in 0..3 {
            dice.shuffle(&mut names);
            let count = if turn == 0 { names.len() } else { 2 + dice.below(5) };
            let calls = names[..count].iter().enumerate().map(|(at, name)| call(name, &format!("{name}-{turn}-{at}")));
            turns.push(calls.collect());
        }
        let numbered = (1..).zip(turns.iter().flatten());
        let held =
            numbered.filter(|(_, (name, _))| *name == "deploy").map(|(number, _)| format!("a{number}")).collect();
        let part = Part {
            turns,
            answer: format!("All done in {run}"),
            thinks_for: Duration::from_millis(10),
            held_by: world.hold_file("model"),
        };
        model.plays(&run, part);
        let home = folder.join("home");
        Self {
            storm,
            operator: Operator::new(&home, model),
            model,
            world,
            dice,
            kills_left: KILLS_PER_RUN,
            held,
            exists: false,
            cancelled: false,
            disturbed: false,
            sent: Vec::new(),
            perhaps_sent: Vec::new(),
            messages: 0,
            spent: BTreeMap::new(),
            settled: BTreeMap::new(),
        }
    }

    fn live(mut self) {
        let mut words = self.start();
        for _ in 0..PATIENCE {
            let Some(ended) = self.one_process(&words) else {
                words = self.go_on();
                continue;
            };
            // Stopped before it could recover anything, it leaves what the dead left to the next one.
            if ended.status != Some(143) {
                assert_nobody_left(&self.world.run, &format!("{words:?}: {ended:?}"));
            }
            match ended.status {
                // Somebody may have sent something after the end: it is taken by the next command.
                Some(0 | 7) if self.disturbed => words = self.go_on(),
                Some(0 | 7) => return self.end(),
                Some(2) => words = self.raise(&ended),
                Some(3) => {
                    self.answer();
                    words = self.go_on();
                }
                Some(4) => words = self.console(&ended),
                Some(143) => words = self.go_on(),
                // Another command of ours holds it: a cancel that is at work.
                Some(69) if self.cancelled => {
                    thread::sleep(Duration::from_millis(50));
                    words = self.go_on();
                }
                _ => panic!("{words:?}: {ended:?}\n{}", self.operator.story(&self.world.run)),
            }
        }
        panic!("{} comes to no end:\n{}", self.world.run, self.operator.story(&self.world.run));
    }

    // ---- one process of the run ----

    /// Runs a command on the run, among other commands, until it ends or is killed. None: it was killed.
    fn one_process(&mut self, words: &[String]) -> Option<Ended> {
        let killed_after = self.killed_after();
        let asked_to_stop = killed_after.is_some() && self.dice.one_in(10);
        let mut tool_killed_after =
            self.dice.one_in(6).then(|| Duration::from_micros(20_000 + self.dice.below(300_000) as u64));
        let mut asides = self.asides();
        let asides_before = asides.len();
        let mut running_asides: Vec<AsideRunning> = Vec::new();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let began = Instant::now();
        let mut running = self.operator.spawn(&self.world.run, &words);
        let was_killed = loop {
            let now = began.elapsed();
            if killed_after.is_some_and(|after| now >= after) {
                break true;
            }
            if running.is_over() {
                break false;
            }
            if tool_killed_after.take_if(|after| now >= *after).is_some() {
                if kill_a_tool_of(&self.world.run) {
                    self.storm.tally(|tally| tally.tools += 1);
                } else {
                    tool_killed_after = Some(now + BETWEEN_LOOKS);
                }
            }
            while let Some(aside) = asides.pop_if(|aside| aside.at <= now) {
                let words: Vec<&str> = aside.words.iter().map(String::as_str).collect();
                let running = self.operator.spawn(&self.world.run, &words);
                running_asides.push(AsideRunning { began: Instant::now(), aside, running });
            }
            let due = |running: &AsideRunning| {
                running.aside.killed_after.is_some_and(|after| running.began.elapsed() >= after)
            };
            while let Some(at) = running_asides.iter().position(due) {
                let over = running_asides.swap_remove(at);
                self.after_aside(over);
            }
            thread::sleep(Duration::from_micros(500));
        };
        let ended = match (was_killed, asked_to_stop) {
            (true, true) => {
                running.signal(rustix::process::Signal::TERM);
                running.wait()
            }
            (true, false) => running.kill(),
            (false, _) => running.wait(),
        };
        self.disturbed = asides_before != asides.len();
        for over in running_asides {
            self.after_aside(over);
        }
        // It may have ended just before the kill.
        if was_killed && ended.status.is_none() {
            self.after_kill();
            return None;
        }
        Some(ended)
    }

    /// From the first microsecond to the end of everything, with more weight on the beginning.
    fn killed_after(&mut self) -> Option<Duration> {
        if self.kills_left == 0 || self.storm.left.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let longest = [20_000, 80_000, 200_000, 400_000, 800_000][self.dice.below(5)];
        // Where processes are slow to begin, most would be dead before they had written anything.
        let slower = if self.storm.is_mostly_too_early() { 4 } else { 1 };
        Some(Duration::from_micros((slower * self.dice.below(longest)) as u64))
    }

    /// What others do meanwhile, the first one last.
    fn asides(&mut self) -> Vec<Aside> {
        let mut asides = Vec::new();
        let run = self.world.run.clone();
        let mut add = |dice: &mut Dice, words: Vec<String>| {
            let at = Duration::from_micros(dice.below(300_000) as u64);
            let killed_after = dice.one_in(4).then(|| Duration::from_micros(dice.below(30_000) as u64));
            asides.push(Aside { at, words, killed_after });
        };
        if self.dice.one_in(5) {
            self.messages += 1;
            let text = format!("message {} to {run}", self.messages);
            add(&mut self.dice, vec!["send".to_owned(), run.clone(), text]);
        }
        if self.dice.one_in(2) {
            let action = self.held[self.dice.below(self.held.len())].clone();
            let word = if self.dice.one_in(4) { "deny" } else { "approve" };
            add(&mut self.dice, vec![word.to_owned(), run.clone(), action]);
        }
        if self.dice.one_in(40) {
            self.cancelled = true;
            add(&mut self.dice, vec!["cancel".to_owned(), run.clone()]);
        }
        asides.sort_by_key(|aside| std::cmp::Reverse(aside.at));
        asides
    }

    fn after_aside(&mut self, over: AsideRunning) {
        let AsideRunning { aside, running, .. } = over;
        let ended = if aside.killed_after.is_some() { running.kill() } else { running.wait() };
        let (word, last) = (aside.words[0].clone(), aside.words.last().cloned().unwrap_or_default());
        match ended.status {
            Some(0) if word == "send" => self.sent.push(last),
            None if word == "send" => self.perhaps_sent.push(last),
            // Nothing to answer, no such run or action yet, or the run is held by the one that was asked beside.
            None | Some(0 | 65 | 66 | 69) => {}
            Some(_) => panic!("{:?}: {ended:?}\n{}", aside.words, self.operator.story(&self.world.run)),
        }
        if ended.status.is_none() {
            self.storm.tally(|tally| *tally.answers.entry(word).or_default() += 1);
        }
    }

    fn after_kill(&mut self) {
        self.kills_left -= 1;
        // Kills beyond the number asked for count, too.
        let _ = self.storm.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        let Some(events) = self.operator.events(&self.world.run) else {
            assert!(!self.exists, "{} was there and is gone", self.world.run);
            self.storm.tally(|tally| *tally.places.entry(NOTHING_YET.to_owned()).or_default() += 1);
            return;
        };
        self.exists = true;
        self.operator.verify(&self.world.run);
        self.budgets_only_fall();
        let last = events.last().map_or("", kind).to_owned();
        let flying = in_flight(&events);
        self.storm.tally(|tally| {
            *tally.places.entry(last).or_default() += 1;
            for what in flying {
                *tally.in_flight.entry(what).or_default() += 1;
            }
        });
    }

    fn budgets_only_fall(&mut self) {
        let show = self.operator.show(&self.world.run);
        for name in ["turns", "model_calls", "tool_calls", "tokens", "time_ms"] {
            let budget = &show["budget"][name];
            let (used, limit) = (budget["used"].as_u64().expect(name), budget["limit"].as_u64().expect(name));
            let before = self.spent.insert(name.to_owned(), used).unwrap_or(0);
            assert!(used >= before, "{name} of {} fell from {before} to {used}", self.world.run);
            assert!(used <= limit || name == "time_ms", "{name} of {}: {used} of {limit}", self.world.run);
        }
    }

    // ---- commands that go on ----

    fn start(&self) -> Vec<String> {
        words(&["run", "--task", &self.world.task(), "--id", &self.world.run, "--on-ask", "wait", "--quiet"])
    }

    fn go_on(&mut self) -> Vec<String> {
        let run = self.world.run.clone();
        match self.dice.below(3) {
            _ if !self.exists => self.start(),
            0 => self.start(),
            1 => words(&["run", "--id", &run, "--on-ask", "wait", "--quiet"]),
            _ => words(&["resume", &run, "--on-ask", "wait", "--quiet"]),
        }
    }

    /// Raises what the last line on stderr names.
    fn raise(&mut self, ended: &Ended) -> Vec<String> {
        let hint = ended.stderr.lines().last().unwrap_or_default();
        assert!(hint.contains("--add-turns"), "turns are all that can run out: {ended:?}");
        words(&["resume", &self.world.run, "--on-ask", "wait", "--quiet", "--add-turns", "30"])
    }

    /// Answers everything the run waits for: with what the world's own ledger says where an outcome is unknown.
    fn answer(&mut self) {
        let show = self.operator.show(&self.world.run);
        let waits = show["waits"].as_array().cloned().unwrap_or_default();
        let run = self.world.run.clone();
        // A cancel from beside may have ended it meanwhile.
        assert!(!waits.is_empty() || self.cancelled, "{run} waits for nothing: {show}");
        for wait in waits {
            if let Some(action) = wait["approval"].as_str() {
                let word = if self.dice.one_in(5) { "deny" } else { "approve" };
                // It may have been answered beside.
                let ended = self.operator.call(&run, &[word, &run, action]);
                assert!(matches!(ended.status, Some(0 | 65)), "{word} {action}: {ended:?}");
            } else if let Some(action) = wait["unknown"].as_str() {
                assert!(names(&show["unknown"]).contains(action), "{action} is waited for and not shown: {show}");
                self.settle(action);
            } else {
                panic!("a wait of no known kind: {wait}");
            }
        }
    }

    fn settle(&mut self, action: &str) {
        let run = self.world.run.clone();
        let happened = self.happened(action, &self.operator.events(&run).expect("it is there"));
        let truth = if happened { "done" } else { "not-done" };
        self.settled.insert(action.to_owned(), happened);
        self.operator.expect(&run, &["settle", &run, action, "--as", truth], 0);
    }

    /// A run that died five times with nothing to show for it is failed; a word from a person goes on.
    fn console(&mut self, ended: &Ended) -> Vec<String> {
        assert!(ended.stderr.contains("claims in a row got nowhere"), "{ended:?}");
        self.storm.tally(|tally| *tally.ends.entry("poisoned, and gone on".to_owned()).or_default() += 1);
        self.messages += 1;
        let text = format!("message {} to {}: go on", self.messages, self.world.run);
        self.operator.expect(&self.world.run, &["send", &self.world.run, &text], 0);
        self.sent.push(text);
        self.go_on()
    }

    // ---- the end ----

    /// Settles what is still open, then holds the journal against the world.
    fn end(mut self) {
        let run = self.world.run.clone();
        for action in names(&self.operator.show(&run)["unknown"]) {
            self.settle(&action);
        }
        self.operator.verify(&run);
        self.budgets_only_fall();
        let show = self.operator.show(&run);
        let events = self.operator.events(&run).expect("it is there");
        assert_nobody_left(&run, "at the end");
        assert_eq!(show["unknown"], json!([]), "{show}");
        let state = show["state"].as_str().unwrap_or_default().to_owned();
        assert!(state == "done" || (state == "cancelled" && self.cancelled), "{show}");
        self.told_the_truth(&show, &events);
        self.edits_are_there(&show);
        self.messages_arrived(&events);
        if state == "done" {
            self.stays_done(&show);
        }
        let recoveries = show["recoveries"].as_u64().unwrap_or(0);
        let resolved = resolved(&events);
        self.storm.tally(|tally| {
            *tally.ends.entry(state).or_default() += 1;
            tally.recoveries += recoveries;
            for what in resolved {
                *tally.resolved.entry(what).or_default() += 1;
            }
        });
    }

    /// What the journal says of each external call is what the world's ledger says; nothing happened twice.
    fn told_the_truth(&self, show: &Value, events: &[Value]) {
        let run = &self.world.run;
        let mut keys = BTreeSet::new();
        for entry in show["ledger"].as_array().expect("a list") {
            let (action, tool) = (entry["action"].as_str().expect("an id"), entry["tool"].as_str().expect("a name"));
            let state = entry["state"].as_str().expect("a word");
            let story = || self.operator.story(run);
            assert!(
                !matches!(state, "queued" | "running" | "held" | "lost" | "unknown"),
                "{action} {tool} of {run} is {state} at the end:\n{}",
                story()
            );
            if entry["effect"] != "external" {
                continue;
            }
            let happened = self.happened(action, events);
            let said_done = state.starts_with("done");
            assert_eq!(
                said_done,
                happened,
                "{action} {tool} of {run}: {state}; ledger: {:?}\n{}",
                self.world.log(),
                story()
            );
            if let Some(before) = self.settled.get(action) {
                assert_eq!(*before, happened, "{action} {tool} of {run} landed after it was unknown:\n{}", story());
            }
            match tool {
                "pay" => keys.extend(idempotency_keys(action, events)),
                "ship" => assert!(self.world.count(tool, action, "did") <= 1, "{action} shipped twice:\n{}", story()),
                _ => {
                    let begun = self.world.count(tool, action, "begun");
                    assert!(begun <= 1, "{action} {tool} was executed {begun} times:\n{}", story());
                }
            }
        }
        for key in self.world.paid() {
            assert!(keys.contains(&key), "{run} paid with a key that no action has: {key}");
        }
    }

    /// Whether an external call happened, by the world's own books.
    fn happened(&self, action: &str, events: &[Value]) -> bool {
        let paid = self.world.paid();
        let keys = idempotency_keys(action, events);
        assert!(keys.len() <= 1, "{action} was started under several keys: {keys:?}");
        let booked = keys.iter().any(|key| paid.contains(key));
        let did = self.world.log().iter().any(|line| line[2] == action && line[4] == "did");
        booked || did
    }

    /// A done edit stands in the file once; none stands there twice.
    fn edits_are_there(&self, show: &Value) {
        let lines = self.world.shared_file();
        for entry in show["ledger"].as_array().expect("a list") {
            if entry["tool"] != "edit" {
                continue;
            }
            let text = entry["args"]["text"].as_str().expect("a text");
            let times = lines.iter().filter(|line| *line == text).count();
            assert!(times <= 1, "{text} was written {times} times");
            if entry["state"] == "done" {
                assert_eq!(times, 1, "{text} is not in the file, and said to be");
            }
        }
    }

    /// What a sender was told is durable is in the journal, once; what it was not told may be, once.
    fn messages_arrived(&self, events: &[Value]) {
        let received: Vec<_> = events
            .iter()
            .filter(|event| kind(event) == "input.received")
            .map(|event| event["body"].to_string())
            .collect();
        let times = |text: &String| {
            let quoted = format!("{text:?}");
            received.iter().filter(|body| body.contains(&quoted)).count()
        };
        let refused = events.iter().any(|event| kind(event) == "input.refused");
        for text in &self.sent {
            let times = times(text);
            assert!(times == 1 || (times == 0 && refused && self.cancelled), "{text:?} was received {times} times");
        }
        for text in &self.perhaps_sent {
            assert!(times(text) <= 1, "{text:?} was received twice");
        }
    }

    /// Asked again, it prints the same and asks no model.
    fn stays_done(&self, show: &Value) {
        let run = &self.world.run;
        let asked = self.model.requests(run).len();
        let first = self.operator.expect(run, &["run", "--id", run, "--quiet"], 0);
        let again = self.operator.expect(run, &["resume", run, "--quiet"], 0);
        assert_eq!(first.stdout, format!("All done in {run}\n"));
        assert_eq!(first.stdout, again.stdout);
        assert_eq!(self.model.requests(run).len(), asked, "the model was asked for a stored answer");
        assert_eq!(
            self.operator.show(run)["event_cursor"],
            show["event_cursor"],
            "a stored answer changed the journal"
        );
    }
}

// ---- reading the journal ----

fn kind(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

fn names(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn idempotency_keys(action: &str, events: &[Value]) -> BTreeSet<String> {
    let starts = events.iter().filter(|event| kind(event) == "action.started" && event["action"] == action);
    starts.filter_map(|event| event["idempotency_key"].as_str()).map(str::to_owned).collect()
}

/// What was running when the journal ended.
fn in_flight(events: &[Value]) -> Vec<String> {
    let mut tools = BTreeMap::new();
    let mut running = BTreeMap::new();
    let mut thinking = false;
    for event in events {
        let action = event["action"].as_str().unwrap_or_default().to_owned();
        match kind(event) {
            "action.proposed" => {
                tools.insert(action, event["tool"].as_str().unwrap_or_default().to_owned());
            }
            "action.started" => {
                running.insert(action, "");
            }
            "action.finished" | "action.settled" | "action.requeued" => {
                running.remove(&action);
            }
            "run.claimed" => running.values_mut().for_each(|how| *how = " (being recovered)"),
            "model.requested" => thinking = true,
            "model.replied" | "model.failed" => thinking = false,
            _ => {}
        }
    }
    let names = running.iter().map(|(action, how)| format!("{}{how}", tools.get(action).map_or("", String::as_str)));
    names.chain(thinking.then(|| "the model".to_owned())).collect()
}

/// How calls that did not end before our eyes ended.
fn resolved(events: &[Value]) -> Vec<String> {
    let mut tools = BTreeMap::new();
    let mut found = Vec::new();
    for event in events {
        let action = event["action"].as_str().unwrap_or_default().to_owned();
        let tool = || tools.get(&action).cloned().unwrap_or_default();
        match kind(event) {
            "action.proposed" => {
                tools.insert(action, event["tool"].as_str().unwrap_or_default().to_owned());
            }
            "action.finished" if event["how"] != "observed" => {
                let (outcome, how) = (event["outcome"].as_str(), event["how"].as_str());
                found.push(format!("{}: {} ({})", tool(), outcome.unwrap_or_default(), how.unwrap_or_default()));
            }
            "action.requeued" => {
                found.push(format!("{}: again ({})", tool(), event["why"].as_str().unwrap_or_default()))
            }
            "action.settled" => {
                let (truth, by) = (event["as"].as_str(), event["by"].as_str());
                let by = if by == Some("late outcome") { "late outcome" } else { "a person" };
                found.push(format!("{}: settled as {} by {by}", tool(), truth.unwrap_or_default()));
            }
            _ => {}
        }
    }
    found
}

/// Repeatable chance.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed | 1);
        dice.next();
        dice
    }

    /// xorshift64*
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at + 1);
            items.swap(at, other);
        }
    }
}
