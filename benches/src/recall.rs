//! What it costs to look something up in a long run: the store's archive, on a journal of 5,000 turns.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use longrein::core::budget::{Reservation, Usage};
use longrein::core::context::archive::Handle;
use longrein::core::event::{
    ActionFinished, ActionProposed, ActionStarted, Durability, Event, How, InputReceived, ModelReplied, ModelRequested,
    Proposer, Received, Settled,
};
use longrein::core::ids::{ActionId, AttemptId, Digest, Fence, InputId, ModelName, RunId, Seq, ToolName, TurnId};
use longrein::core::outcome::{Finish, Outcome, Reply};
use longrein::core::payload::{Payload, place};
use longrein::core::prompt::Purpose;
use longrein::core::task::EffectClass;
use longrein::core::time::Timestamp;
use longrein::ports::{Archive, Batch, BatchId, Cabinet, Claim, Create, Journal, NewEvent, RunRow, Snapshot};
use longrein_store::{SqliteJournal, SystemClock, worker_here};

const TURNS: u64 = 5_000;
/// Turns between two looks, as a run makes them.
const STRETCH: u64 = 50;
const FINDS: usize = 400;

pub(crate) fn print() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("longrein.db");
    let journal = SqliteJournal::open(&path, Arc::new(SystemClock::default()))?;
    let run = RunId::new("r1");
    let claim = journal.claim(&run, &worker_here()?, None, Create::IfAbsent).await?;
    let mut past = Past { journal: &journal, claim, head: 0, bytes: 0, dice: Dice(0x2545_F491_4F6C_DD1D) };
    past.turns(1, TURNS).await?;
    println!("a run of {TURNS} turns, {} events, {:.1} MB of results", past.head, past.bytes as f64 / 1e6);

    let began = Instant::now();
    journal.index(&run).await?;
    line("first index", began.elapsed());
    println!("  {:<44} {:.1} MB", "index on disk", size(&folder.path().join("longrein.db-cache"))? as f64 / 1e6);
    line("index that is up", timed(100, || journal.index(&run)).await?);

    let mut stretches = Vec::new();
    for stretch in 0..10 {
        past.turns(TURNS + 1 + stretch * STRETCH, STRETCH).await?;
        let began = Instant::now();
        journal.index(&run).await?;
        stretches.push(began.elapsed());
    }
    percentiles("index of 50 more turns", stretches);

    let mut missed = 0;
    let kinds: [(&str, Query, bool); 5] = [
        ("find: a fact by its name", |turn, _| format!("beacon{turn}"), true),
        (
            "find: a fact among common words",
            |turn, dice| format!("the {} of beacon{turn} in {}", dice.word(), dice.word()),
            true,
        ),
        ("find: five common words", |_, dice| (0..5).map(|_| dice.word()).collect::<Vec<_>>().join(" "), false),
        ("find: two common words", |_, dice| format!("{} {}", dice.word(), dice.word()), false),
        ("find: twenty-four words", |_, dice| (0..24).map(|_| dice.word()).collect::<Vec<_>>().join(" "), false),
    ];
    for (name, query, exact) in kinds {
        let mut times = Vec::new();
        for _ in 0..FINDS {
            let turn = 1 + past.dice.below(TURNS);
            let query = query(turn, &mut past.dice);
            let began = Instant::now();
            let found = journal.find(&run, &query, 5).await?;
            times.push(began.elapsed());
            let there = found.first().is_some_and(|found| found.excerpt.contains(&format!("beacon{turn} ")));
            missed += usize::from(exact && !there);
        }
        percentiles(name, times);
    }
    println!("  {:<44} {missed} of {}", "facts that were not found first", 2 * FINDS);
    let mut times = Vec::new();
    for _ in 0..20 {
        let turn = 1 + past.dice.below(TURNS);
        let began = Instant::now();
        journal.find(&run, &format!("eacon{turn}"), 5).await?;
        times.push(began.elapsed());
    }
    percentiles("find: part of a word (reads everything)", times);

    let mut times = Vec::new();
    for _ in 0..FINDS {
        let action = ActionId(u32::try_from(1 + past.dice.below(TURNS))?);
        let began = Instant::now();
        journal.piece(&run, &Handle::Action(action)).await?.context("every action is kept")?;
        times.push(began.elapsed());
    }
    percentiles("piece", times);

    let body = vec![7; 1 << 20].into();
    let snapshot = Snapshot { seq: Seq(past.head), catalogue: "c".to_owned(), body };
    line("keep a snapshot of 1 MB", timed(20, || journal.keep_snapshot(&run, &snapshot)).await?);
    line("read the snapshots", timed(20, || journal.snapshots(&run)).await?);
    Ok(())
}

type Query = fn(u64, &mut Dice) -> String;

/// The median of so many calls.
async fn timed<T, E: std::error::Error + Send + Sync + 'static, F: Future<Output = Result<T, E>>>(
    times: usize,
    mut call: impl FnMut() -> F,
) -> anyhow::Result<Duration> {
    let mut took = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        call().await?;
        took.push(began.elapsed());
    }
    took.sort();
    Ok(took[took.len() / 2])
}

fn line(what: &str, took: Duration) {
    println!("  {what:<44} {:.2} ms", took.as_secs_f64() * 1e3);
}

fn percentiles(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    println!("  {what:<44} p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms", at(0.5), at(0.99), at(1.0));
}

fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Repeatable: two measurements look at the same run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// One of those that are everywhere.
    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 12] =
            ["port", "error", "stage", "cache", "order", "user", "value", "retry", "token", "build", "check", "state"];
        WORDS[usize::try_from(self.below(12)).unwrap_or(0)]
    }
}

struct Past<'a> {
    journal: &'a SqliteJournal,
    claim: Claim,
    head: u64,
    bytes: u64,
    dice: Dice,
}

impl Past<'_> {
    /// Five events a turn, as a run with one call of a tool in each has them, and now and then a message.
    async fn turns(&mut self, first: u64, count: u64) -> anyhow::Result<()> {
        for turn in first..first + count {
            let number = u32::try_from(turn)?;
            let (action, attempt) = (ActionId(number), AttemptId { turn: TurnId(number), attempt: 1 });
            let result = self.result(turn);
            self.bytes += result.len() as u64;
            let (content, blob) = place(Payload::string(&result));
            let args = Payload::parse(format!("{{\"command\":\"./ask.sh {} {turn}\"}}", self.dice.word()))?;
            let reply = Reply {
                text: format!("I look at the {} of part {turn}.", self.dice.word()),
                calls: vec![],
                finish: Finish::ToolCalls,
                usage: None,
                repaired: None,
                wired: None,
            };
            let (usage, effect) = (Usage::default(), EffectClass::Read);
            let mut events = vec![
                Event::ModelRequested(ModelRequested {
                    attempt,
                    model: ModelName::new("m"),
                    purpose: Purpose::Work,
                    digest: Digest::of(b""),
                    bytes: 0,
                    reserved: Reservation::default(),
                    output: None,
                    counted: None,
                    tail: None,
                    manifest: None,
                }),
                Event::ModelReplied(ModelReplied { attempt, reply, usage, settled: Settled::Reported, micros: 0 }),
                Event::ActionProposed(ActionProposed {
                    action,
                    index: 0,
                    tool: ToolName::new("shell"),
                    call: format!("c{turn}"),
                    effect,
                    digest: args.digest(),
                    args,
                    sent: None,
                    key: None,
                    path: None,
                    after: vec![],
                    proposer: Proposer::Model,
                }),
                Event::ActionStarted(ActionStarted {
                    action,
                    attempt: 1,
                    fence: Fence(1),
                    effect,
                    rule: "r".to_owned(),
                    idempotency_key: None,
                    target: None,
                    brings: Vec::new(),
                    beyond: Vec::new(),
                    sandbox: None,
                    tree: None,
                }),
                Event::ActionFinished(ActionFinished {
                    action,
                    attempt: 1,
                    effect,
                    outcome: Outcome::Done(content),
                    how: How::Observed,
                    cost_micros: 0,
                    brings: vec![],
                    left: None,
                }),
            ];
            if turn % 100 == 0 {
                let body = Received::Message(format!("And mind the {} of {turn}.", self.dice.word()));
                let input = InputId::new(turn.to_string());
                events.push(Event::InputReceived(InputReceived { input, body, images: Vec::new() }));
            }
            self.append(events, blob).await?;
        }
        Ok(())
    }

    /// Some 2 kB, now and then 300 kB, with a fact in its middle that is nowhere else.
    fn result(&mut self, turn: u64) -> String {
        let words = if turn % 400 == 7 { 40_000 } else { 100 + self.dice.below(400) };
        let mut text = String::new();
        for n in 0..words {
            if n == words / 2 {
                text.push_str(&format!("beacon{turn} is lit\n"));
            }
            text.push_str(self.dice.word());
            // Most words of real outputs are numbers, names and paths.
            let more = match self.dice.below(8) {
                0 => format!("_{} ", self.dice.below(2_000)),
                1 => format!("/{}.rs:{}\n", self.dice.below(300), self.dice.below(900)),
                _ => " ".to_owned(),
            };
            text.push_str(&more);
        }
        text
    }

    async fn append(&mut self, events: Vec<Event>, blob: Option<(Digest, Payload)>) -> anyhow::Result<()> {
        let run = self.claim.run.clone();
        let row = RunRow {
            parent: None,
            run,
            state: "running".to_owned(),
            reason: String::new(),
            goal: String::new(),
            turns: 0,
            micros: 0,
            started: Timestamp(1),
            updated: Timestamp(1),
            sources: Vec::new(),
        };
        let batch = Batch {
            id: BatchId(format!("b{}", self.head)),
            expected: Seq(self.head),
            events: events.into_iter().map(|event| NewEvent { at: Timestamp(self.head), event }).collect(),
            consumed: vec![],
            keys: vec![],
            marks: Vec::new(),
            blobs: blob.into_iter().map(|(digest, body)| (digest, body.as_str().to_owned().into())).collect(),
            durability: Durability::Written,
            row,
        };
        self.head = self.journal.append(&self.claim, &batch).await?.head.0;
        Ok(())
    }
}
