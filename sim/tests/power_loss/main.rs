//! The real store on a disk that loses power: recorded once, then found again as it may be after every moment.
//!
//! `story` asks a real `SqliteJournal` for everything a store is asked for, `calls` and `record` take down what that does
//! to files, `disk` says what may be left of it, `promise` what must be. A failure names its seed, position and fate;
//! `LONGREIN_POWER_SEED` plays one seed. `LONGREIN_NIGHTLY=1` looks at every moment instead of some.

mod calls;
mod disk;
mod promise;
mod record;
mod story;

use std::path::PathBuf;

use longrein_sim::chance::Chance;

use crate::disk::{Disk, Fate};
use crate::promise::{After, check};
use crate::record::{Kind, Op, Watch};
use crate::story::{Recording, Size, Story, leave_shared_memory};

fn nightly() -> bool {
    std::env::var_os("LONGREIN_NIGHTLY").is_some_and(|value| value == "1")
}

/// The seeds to play: those of the night, a few, or the one that is asked for.
fn seeds(few: u64, of_a_night: u64) -> Vec<u64> {
    match std::env::var("LONGREIN_POWER_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed is a number")],
        Err(_) => (0..if nightly() { of_a_night } else { few }).collect(),
    }
}

/// An empty folder, by its real name: SQLite looks through links.
struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("it is there");
    Place { _folder: folder, path }
}

async fn record(seed: u64, rounds: usize, size: Size, watched: impl FnOnce(&Watch)) -> Recording {
    let place = place();
    let mut story = Story::begin(&place.path, seed, watched);
    story.play(rounds, size).await;
    story.end()
}

/// How closely a recording is looked at.
#[derive(Clone, Copy)]
struct Closely {
    /// Of a hundred moments beside a sync, how many.
    beside: u64,
    /// Of a hundred others, how many.
    between: u64,
    /// Of the fates that are possible at a moment, how many; the first of them is the loss of everything.
    fates: usize,
}

const WHOLLY: Closely = Closely { beside: 100, between: 25, fates: usize::MAX };
const FEW: Closely = Closely { beside: 60, between: 2, fates: 2 };

/// Loses power at moments from `from` on, beside every sync and at some between. Answers how many disks it looked at.
async fn lose_power(recording: &Recording, from: usize, seed: u64, closely: Closely) -> Result<usize, String> {
    let mut chance = Chance::new(seed, "moments");
    let mut disk = Disk::of(&recording.log[..from]);
    let mut disks = 0;
    for position in from..=recording.log.len() {
        let beside_a_sync = recording.log.get(position).is_none_or(Op::is_sync)
            || position.checked_sub(1).is_some_and(|before| recording.log[before].is_sync());
        // Where a promise was just given, nothing may be left to lose.
        let just_promised = !disk.is_synced() && recording.is_promise(position);
        if chance.percent(if beside_a_sync { closely.beside } else { closely.between }) || just_promised {
            let mut fates = Vec::new();
            if disk.is_synced() || closely.fates == usize::MAX || chance.percent(25) {
                fates.push((After::ProcessDeath, Fate::KEPT));
            }
            if !disk.is_synced() {
                fates.extend(some_of(Fate::cases(chance.number()), closely.fates, &mut chance));
            }
            for (after, fate) in fates {
                disks += 1;
                let found = place();
                disk.lay_out(fate, &found.path).expect("can be laid out");
                if after == After::PowerLoss && chance.percent(50) {
                    leave_shared_memory(&found.path, &mut chance);
                }
                check(recording, position, after, &found.path).await.map_err(|fault| {
                    let of = recording.log.len();
                    format!("seed {seed}, {after:?} at {position} of {of}, {fate:?}: {fault}")
                })?;
            }
        }
        if let Some(op) = recording.log.get(position) {
            disk.apply(op);
        }
    }
    Ok(disks)
}

/// The first, and others as they are drawn.
fn some_of(mut cases: Vec<Fate>, at_most: usize, chance: &mut Chance) -> impl Iterator<Item = (After, Fate)> {
    while cases.len() > at_most {
        let nth = chance.between(1, cases.len() as u64 - 1);
        cases.remove(nth as usize);
    }
    cases.into_iter().map(|fate| (After::PowerLoss, fate))
}

async fn is_safe(seed: u64, recording: &Recording, closely: Closely) {
    let disks = lose_power(recording, 0, seed, closely).await.unwrap_or_else(|fault| panic!("{fault}"));
    eprintln!("seed {seed}: {} calls, {disks} disks", recording.log.len());
}

#[tokio::test]
async fn what_was_synced_survives_and_the_rest_is_whole() {
    for seed in seeds(1, 10) {
        let recording = record(seed, 40, Size::Mixed, |_| {}).await;
        is_safe(seed, &recording, if nightly() { WHOLLY } else { FEW }).await;
    }
}

/// SQLite moves its log into the database while it is in use, and begins it anew over what is in it.
#[tokio::test]
async fn a_checkpoint_loses_nothing() {
    for seed in seeds(1, 10) {
        let recording = record(seed, 28, Size::Checkpointing, |_| {}).await;
        let mut begun = recording.log.iter().filter_map(|op| match op {
            Op::Write { node, at: 0, bytes } if bytes.len() == WAL_HEADER_BYTES => Some(node),
            Op::Write { .. } | Op::Names(_) | Op::Resize { .. } | Op::Sync(_) | Op::SyncFolder(_) => None,
        });
        let first = begun.next().expect("the store has a log");
        assert!(begun.any(|node| node == first), "the log was begun anew");
        let closely = if nightly() { WHOLLY } else { FEW };
        is_safe(seed, &recording, Closely { between: 0, ..closely }).await;
    }
}

/// From SQLite's file format.
const WAL_HEADER_BYTES: usize = 32;

/// A process is killed, the next goes on with what it left, written or synced, and then power is lost.
#[tokio::test]
async fn what_is_built_on_the_dead_is_durable() {
    for seed in seeds(1, 4) {
        let recording = record(seed, 24, Size::Mixed, |_| {}).await;
        let mut chance = Chance::new(seed, "deaths");
        let (mut deaths, mut disks) = (0, 0);
        for position in 0..recording.log.len() {
            let in_a_sync = recording.log[position].is_sync();
            // The next process may answer that it was posted before.
            let posting = in_a_sync && recording.is_posting(position);
            let of_a_hundred = match (nightly(), in_a_sync) {
                (true, true) => 100,
                (true, false) | (false, true) => 20,
                (false, false) => 1,
            };
            if !posting && !chance.percent(of_a_hundred) {
                continue;
            }
            let place = place();
            let left = Story::after_death(&recording, position, &place.path, seed).await;
            let left = left.unwrap_or_else(|fault| panic!("seed {seed}, killed at {position}: {fault}")).end();
            let closely = Closely { beside: if nightly() || posting { 100 } else { 30 }, between: 0, fates: 1 };
            let looked_at = lose_power(&left, position, seed, closely).await;
            disks += looked_at.unwrap_or_else(|fault| panic!("killed at {position}, then {fault}"));
            deaths += 1;
        }
        eprintln!("seed {seed}: {} calls, {deaths} deaths, {disks} disks", recording.log.len());
    }
}

// ---- what the suite must notice ----

/// The most seeds a removed protection may survive.
const SEEDS: u64 = 20;

async fn is_found(what: &str, watched: impl Fn(&Watch)) {
    for seed in 0..SEEDS {
        let recording = record(seed, 40, Size::Mixed, &watched).await;
        if let Err(fault) = lose_power(&recording, 0, seed, FEW).await {
            return eprintln!("{what}: {fault}");
        }
    }
    panic!("{what}: not found with {SEEDS} seeds");
}

#[tokio::test]
async fn a_log_that_is_not_synced_is_found() {
    is_found("the log", |watch| watch.lie_about(Kind::Log)).await;
}

#[tokio::test]
async fn a_database_that_is_not_synced_is_found() {
    is_found("the database", |watch| watch.lie_about(Kind::Database)).await;
}

#[tokio::test]
async fn blobs_that_are_not_synced_are_found() {
    is_found("blobs", |watch| watch.lie_about(Kind::Blob)).await;
}

#[tokio::test]
async fn names_that_are_not_synced_are_found() {
    is_found("names", |watch| watch.lie_about(Kind::Folder)).await;
}

/// A store that takes every append for `Written`.
#[tokio::test]
async fn appends_that_are_only_written_are_found() {
    for seed in 0..SEEDS {
        let place = place();
        let mut story = Story::begin(&place.path, seed, |_| {}).weakened();
        story.play(40, Size::Mixed).await;
        if let Err(fault) = lose_power(&story.end(), 0, seed, FEW).await {
            return eprintln!("appends: {fault}");
        }
    }
    panic!("not found with {SEEDS} seeds");
}

/// What a seed gives is the same each time, so that a failure can be played again. Only bytes and temporary names
/// differ: SQLite salts its log.
#[tokio::test]
async fn one_seed_is_one_recording() {
    let (one, other) = (record(7, 30, Size::Mixed, |_| {}).await, record(7, 30, Size::Mixed, |_| {}).await);
    let shape = |recording: &Recording| -> Vec<String> {
        let of = |op: &Op| match op {
            Op::Write { node, at, bytes } => format!("write {} to {node} at {at}", bytes.len()),
            // Temporary names count on through the life of a process.
            Op::Names(changes) => format!("{:?}", changes.iter().map(|(_, target)| *target).collect::<Vec<_>>()),
            Op::Resize { .. } | Op::Sync(_) | Op::SyncFolder(_) => format!("{op:?}"),
        };
        recording.log.iter().map(of).collect()
    };
    let differs = shape(&one).into_iter().zip(shape(&other)).find(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(one.log.len(), other.log.len());
}
