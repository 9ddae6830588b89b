//! All measurements, and the table.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::bare::Kind;
use crate::client::{self, Place, Running, Who};
use crate::server::{Sample, Script, Server};
use crate::{conversation, library, process, recall, syncs, trees};

pub(crate) fn print(binary: &Path, turns: u64, repeat: usize, only: Option<&str>) -> anyhow::Result<()> {
    let wanted = |part: &str| only.is_none_or(|only| only == part);
    if wanted("start") {
        starts(binary)?;
    }
    if wanted("turns") {
        cost(binary, turns, repeat)?;
    }
    if wanted("shell") {
        shell(binary, turns, repeat)?;
    }
    if wanted("syncs") {
        count_syncs(binary)?;
    }
    if wanted("waiting") {
        waiting(binary)?;
    }
    if wanted("library") {
        library::print(repeat)?;
    }
    if wanted("recall") {
        recall::print()?;
    }
    if wanted("trees") {
        trees::print()?;
    }
    Ok(())
}

/// Turns with one call of the read tool.
fn reads(turns: u64, sample_every: u64) -> Script {
    calls_of(conversation::READ, turns, sample_every)
}

fn calls_of(tool: &'static str, turns: u64, sample_every: u64) -> Script {
    Script { turns, tool, calls: 1, sample_every, delay: Duration::ZERO }
}

// ---- beginning ----

/// Starts measured of each kind: enough for a median that a busy machine does not move.
const STARTS: usize = 21;

fn starts(binary: &Path) -> anyhow::Result<()> {
    let mut version = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        Command::new(binary).arg("--version").stdout(Stdio::null()).status()?;
        version.push(began.elapsed());
    }
    let place = Place::new(0)?;
    let mut first = Vec::new();
    // The first one makes the store.
    for number in 0..=STARTS {
        let server = Server::start(reads(0, 1))?;
        let mut command = place.command(Who::Longrein(binary), server.port, &format!("r{number}"))?;
        let began = Instant::now();
        let mut child = command.spawn()?;
        server.watch(child.id());
        let sample = server.next(Duration::from_secs(10)).context("no request came")?;
        first.push(sample.at - began);
        child.wait()?;
    }
    println!("start, median of {STARTS} (least)");
    line("--version", "under 10 ms", &spread(version));
    line("first request on an existing store", "under 20 ms", &spread(first.split_off(1)));
    Ok(())
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("{:.1} ms ({:.1})", millis(times[times.len() / 2]), millis(times[0]))
}

// ---- turns ----

/// What a run of one client came to.
struct Cost {
    /// Own CPU per turn, in microseconds.
    per_turn: f64,
    /// That of its commands, all their processes together.
    commands: f64,
    /// Own CPU over each tenth of the run.
    tenths: Vec<f64>,
    last: Sample,
    /// Growth of resident memory over the second half, in bytes per turn.
    memory_per_turn: f64,
}

impl Cost {
    fn of(samples: &[Sample]) -> anyhow::Result<Self> {
        let (first, last) = samples.first().zip(samples.last()).context("no samples")?;
        let half = &samples[samples.len() / 2];
        let per_turn = |from: &Sample, to: &Sample| {
            (to.cpu - from.cpu).as_secs_f64() * 1e6 / (to.turns - from.turns).max(1) as f64
        };
        let grown = last.status.resident_kib as f64 - half.status.resident_kib as f64;
        Ok(Self {
            per_turn: per_turn(first, last),
            commands: (last.children - first.children).as_secs_f64() * 1e6 / (last.turns - first.turns).max(1) as f64,
            tenths: samples.windows(2).map(|pair| per_turn(&pair[0], &pair[1])).collect(),
            last: *last,
            memory_per_turn: grown * 1024.0 / (last.turns - half.turns).max(1) as f64,
        })
    }
}

/// The clients that ours is held against, by name.
const BARE: [(&str, Kind); 3] =
    [("bare, same appends", Kind::Same), ("bare, conversation only", Kind::Usual), ("bare, least", Kind::Least)];

fn cost(binary: &Path, turns: u64, repeat: usize) -> anyhow::Result<()> {
    let turns = (turns / 10).max(1) * 10;
    let mut ours = Vec::new();
    let mut bare: [Vec<Cost>; BARE.len()] = Default::default();
    let mut stored = Stored::default();
    // In turn, so that a busy spell of the machine hits all of them.
    for _ in 0..repeat {
        let place = Place::new(turns)?.aged();
        ours.push(Cost::of(&client::run(Who::Longrein(binary), &place, reads(turns, turns / 10))?)?);
        stored = Stored::of(&place.store())?;
        for ((_, kind), costs) in BARE.iter().zip(&mut bare) {
            let mut place = Place::new(turns)?;
            place.record_bytes = stored.bytes.cast_unsigned() / turns;
            costs.push(Cost::of(&client::run(Who::Bare(*kind), &place, reads(turns, turns / 10))?)?);
        }
    }
    println!("\nown CPU of {turns} read-only turns, median of {repeat}");
    let named = || [("longrein", &ours)].into_iter().chain(BARE.iter().map(|(name, _)| *name).zip(&bare));
    for (name, costs) in named() {
        let tenths: Vec<_> =
            (0..10).map(|tenth| format!("{:.0}", median(costs.iter().map(|cost| cost.tenths[tenth])))).collect();
        let per_turn = median(costs.iter().map(|cost| cost.per_turn));
        println!("  {name:<24}{per_turn:>7.0} µs a turn (least {:.0})   by tenth: {}", best(costs), tenths.join(" "));
    }
    for (((name, _), costs), promised) in BARE.iter().zip(&bare).zip(["at most 1.5", "", ""]) {
        let ratios = ours.iter().zip(costs).map(|(ours, bare)| ours.per_turn / bare.per_turn);
        let found = format!("{:.2} (of the least of each: {:.2})", median(ratios), best(&ours) / best(costs));
        line(&format!("longrein / {name}"), promised, &found);
    }
    let all = |of: &dyn Fn(&Cost) -> f64, digits: usize| {
        let texts: Vec<_> = named().map(|(_, costs)| format!("{:.digits$}", median(costs.iter().map(of)))).collect();
        format!("{} (bare {})", texts[0], texts[1..].join(", "))
    };
    line("growth, last tenth / second", "flat", &all(&|cost| cost.tenths[9] / cost.tenths[1], 2));
    line("growth in µs a turn", "as bare", &all(&|cost| cost.tenths[9] - cost.tenths[1], 0));
    line("peak memory in MB", "under 25", &all(&|cost| cost.last.status.peak_kib as f64 * 1024.0 / 1e6, 1));
    let memory = median(ours.iter().map(|cost| cost.memory_per_turn));
    line("memory per turn, second half", "", &format!("{memory:.0} B"));
    let last = ours.last().context("no run")?.last;
    let conversation = last.conversation as f64;
    line("conversation", "", &format!("{} B ({} B a turn)", last.conversation, last.conversation / turns));
    line("journaled / conversation", "at most 3", &format!("{:.2}", stored.bytes as f64 / conversation));
    line("files / conversation", "", &format!("{:.2}", stored.files as f64 / conversation));
    line("events per turn", "", &format!("{:.1}", stored.events as f64 / turns as f64));
    Ok(())
}

/// The cheapest run: what else goes on in a machine only adds to it.
fn best(costs: &[Cost]) -> f64 {
    costs.iter().map(|cost| cost.per_turn).fold(f64::INFINITY, f64::min)
}

/// What a store holds.
#[derive(Default)]
struct Stored {
    events: i64,
    /// Bodies of events, and blobs.
    bytes: i64,
    files: u64,
}

impl Stored {
    fn of(store: &Path) -> anyhow::Result<Self> {
        let files = [store.to_owned(), store.with_extension("db-wal")];
        let files = files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        let connection = rusqlite::Connection::open(store)?;
        let (events, bodies): (i64, i64) =
            connection.query_row("SELECT count(*), sum(length(body)) FROM events", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let blobs: i64 = connection
            .query_row("SELECT total(length(bytes)) FROM blobs", [], |row| row.get(0).map(|sum: f64| sum as i64))?;
        Ok(Self { events, bytes: bodies + blobs, files })
    }
}

// ---- a shell ----

/// Turns whose tool is a line of shell, with all that the shell itself costs.
fn shell(binary: &Path, turns: u64, repeat: usize) -> anyhow::Result<()> {
    let turns = (turns / 10).max(1) * 10;
    let script = || calls_of(conversation::SHELL, turns, turns / 10);
    let mut ours = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..repeat {
        let place = Place::new(turns)?.aged();
        ours.push(Cost::of(&client::run(Who::Longrein(binary), &place, script())?)?);
        let stored = Stored::of(&place.store())?;
        let mut place = Place::new(turns)?;
        place.record_bytes = stored.bytes.cast_unsigned() / turns;
        bare.push(Cost::of(&client::run(Who::Bare(Kind::Same), &place, script())?)?);
    }
    println!("\nCPU of {turns} turns with `sh -c`, the shell included, median of {repeat} (least)");
    for (name, promised, costs) in [("longrein", "at most 1.6", &ours), (BARE[0].0, "", &bare)] {
        let all = |cost: &Cost| (cost.per_turn + cost.commands) / 1e3;
        let least = costs.iter().map(all).fold(f64::INFINITY, f64::min);
        let shell = median(costs.iter().map(|cost| cost.commands / 1e3));
        let found = format!("{:.2} ms ({least:.2}), of that the shell {shell:.2}", median(costs.iter().map(all)));
        line(name, promised, &found);
    }
    Ok(())
}

// ---- syncs ----

fn count_syncs(binary: &Path) -> anyhow::Result<()> {
    println!("\nsyncs a turn, counted by strace; the difference of a long and a short run");
    let kinds = [
        ("read-only turn", "1", conversation::READ, 1),
        ("two writing calls, one after the other", "3", conversation::WRITE, 2),
    ];
    for (name, wanted, tool, calls) in kinds {
        let count =
            |turns| syncs::count(binary, Script { turns, tool, calls, sample_every: u64::MAX, delay: Duration::ZERO });
        let (short, long) = (20_u64, 120_u64);
        let found = match (count(short)?, count(long)?) {
            (Some(few), Some(many)) => {
                let per_turn = |few: i64, many: i64| (many - few) as f64 / (long - short) as f64;
                let checkpoints = many.checkpoints - few.checkpoints;
                format!("{:.2} (and {checkpoints} checkpoints in all)", per_turn(few.log, many.log))
            }
            (None, _) | (_, None) => "not counted: there is no strace here".to_owned(),
        };
        line(name, wanted, &found);
    }
    Ok(())
}

// ---- waiting ----

/// How long a waiting process is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// A process that waits for a slow model must cost nothing.
fn waiting(binary: &Path) -> anyhow::Result<()> {
    let place = Place::new(1)?;
    let script = Script { delay: LOOK + Duration::from_secs(2), ..reads(0, 1) };
    let Running { mut child, server } = client::start(Who::Longrein(binary), &place, script)?;
    server.next(Duration::from_secs(10)).context("no request came")?;
    std::thread::sleep(Duration::from_secs(1));
    let look = || (process::cpu(child.id()).unwrap_or_default(), process::status(child.id()).sleeps);
    let (cpu_before, sleeps_before) = look();
    std::thread::sleep(LOOK);
    let (cpu, sleeps) = look();
    child.wait()?;
    println!("\nwaiting for a model for {} s", LOOK.as_secs());
    line("own CPU", "about 0", &format!("{:.2} ms", millis(cpu - cpu_before)));
    line("wake-ups", "", &format!("{:.1} a second", (sleeps - sleeps_before) as f64 / LOOK.as_secs_f64()));
    Ok(())
}

// ---- the table ----

pub(crate) fn line(name: &str, promised: &str, found: &str) {
    println!("  {name:<40}{promised:<14}{found}");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
