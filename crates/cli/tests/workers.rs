//! More than one process: on one run, in one workspace, on one store; killed, stopped and woken.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::task::{booked, calls, says, task, tool};
use crate::support::{Running, World, of_type, times};

/// A world whose tool `act` runs this shell.
fn world_with(effect: &str, shell: &str) -> World {
    let world = World::new();
    let more = format!("[policy]\nallow = [\"act\"]\n{}", tool("act", effect, shell, "settle_after = \"100ms\"\n"));
    task(&world, &more, &(calls("act", "{}") + &says("done")));
    world
}

/// Starts the task under this id and waits until its tool has begun.
fn begun(world: &World, id: &str) -> Running {
    let before = booked(world, "begun");
    let running = world.typed(&format!("longrein run --task task.toml --id {id}")).start();
    world.until("the tool to begin", || (booked(world, "begun") > before).then_some(()));
    running
}

#[test]
fn a_second_process_is_told_who_has_the_run() {
    let world = world_with("read", "echo begun >> ledger; sleep 2");
    let first = begun(&world, "r");
    let pid = format!("process {}", first.pid());
    for line in ["resume r", "run --id r", "run --task task.toml --id r", "resume r --model script/replies.toml"] {
        let second = world.run(line).is(69);
        assert!(second.stderr.contains(&pid) && second.stderr.contains("lease ends in"), "{line}: {}", second.stderr);
    }
    assert!(world.run("show r").is(0).stdout.contains(&pid));
    assert_eq!(first.end().is(0).answer(), "done");
    assert_eq!(booked(&world, "begun"), 1);
    world.verify("r");
}

#[test]
fn a_worker_that_was_killed_is_replaced_at_once() {
    let world = world_with("read", "echo begun >> ledger; [ -e again ] || { touch again; exec sleep 60; }");
    let first = begun(&world, "r");
    first.signal("KILL");
    assert_eq!(first.end().status(), -1);
    let began = Instant::now();
    let done = world.run("resume r --json").is(0).last_json();
    assert!(began.elapsed() < Duration::from_secs(8), "no lease is waited for: {:?}", began.elapsed());
    assert_eq!((&done["answer"], &done["recoveries"]), (&"done".into(), &1.into()));
    assert!(!world.something_runs("r"), "what the dead one had started is gone");
    world.verify("r");
}

/// Under `docker exec` and some CI runners a process has the session 0, as the kernel's own threads do.
#[test]
fn a_worker_whose_session_began_elsewhere_recovers_like_any_other() {
    let world = world_with("read", "echo begun >> ledger; setsid sleep 60 & echo found");
    let line = "$longrein run --task task.toml --id r --crash-at tool.after_exit; $longrein resume r --json";
    let Some(done) = world.elsewhere(line) else {
        return eprintln!("skipped: no PID namespace can be made here");
    };
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    assert_eq!(done.last_json()["recoveries"], 1);
    world.verify("r");
}

#[test]
fn killed_in_an_effect_and_killed_in_its_recovery() {
    let world = world_with("external", "echo begun >> ledger; sleep 60");
    for number in 0..times(1, 10) {
        let id = format!("k{number}");
        let first = begun(&world, &id);
        first.signal("KILL");
        first.end();
        let second = world.typed(&format!("longrein resume {id}")).start();
        second.signal("KILL");
        second.end();
        let parked = world.run(&format!("resume {id}")).is(3);
        assert!(parked.last_line().starts_with(&format!("longrein settle {id} a1")), "{}", parked.stderr);
        assert_eq!(booked(&world, "begun"), number + 1, "it was not done again");
        assert!(!world.something_runs(&id));
        world.verify(&id);
    }
}

/// Stops the worker of `r`, waits for another to take over and to park, and wakes the first.
fn overtaken(world: &World, first: Running) -> Vec<Value> {
    first.signal("STOP");
    let second = world.run("resume r");
    assert_eq!(second.status(), 69, "the lease still runs: {}", second.stderr);
    let parked = world.until("the lease to end", || {
        std::thread::sleep(Duration::from_millis(500));
        let second = world.run("resume r");
        (second.status() != 69).then_some(second)
    });
    let parked = parked.is(3);
    assert!(parked.last_line().starts_with("longrein settle r a1"), "{}", parked.stderr);
    let before = world.log("r");
    assert!(!world.something_runs("r"), "the one that took over saw to it that nothing of the first still runs");
    first.signal("CONT");
    let late = first.end().is(69);
    assert!(late.stderr.contains("lost the claim"), "{}", late.stderr);
    assert_eq!(world.log("r"), before, "the one that was overtaken commits nothing more");
    before
}

#[test]
fn a_worker_that_slept_past_its_lease_passes_on_what_it_knows() {
    let world = world_with("external", "echo begun >> ledger; sleep 2; echo '{\"sent\":1}'");
    overtaken_and_known(&world);
}

fn overtaken_and_known(world: &World) {
    let first = begun(world, "r");
    overtaken(world, first);
    // The first one had its outcome in hand; nobody has to settle it.
    let done = world.run("resume r").is(0);
    assert_eq!(done.answer(), "done");
    let log = world.log("r");
    let settled = of_type(&log, "action.settled");
    assert_eq!((settled.len(), &settled[0]["as"], &settled[0]["by"]), (1, &"done".into(), &"late outcome".into()));
    assert_eq!(booked(world, "begun"), 1);
    world.verify("r");
}

#[test]
fn a_worker_that_slept_past_its_lease_finds_its_tool_dead() {
    let world = world_with("external", "echo begun >> ledger; sleep 60; echo ended >> ledger");
    let first = begun(&world, "r");
    overtaken(&world, first);
    // Killed in the middle: even the one that had started it does not know.
    world.run("resume r").is(3);
    world.run("settle r a1 --as not-done").is(0);
    world.run("resume r").is(0);
    assert_eq!((booked(&world, "begun"), booked(&world, "ended")), (1, 0));
    world.verify("r");
}

#[test]
fn a_workspace_has_one_writer() {
    let world = world_with("workspace", "echo begun >> ledger; sleep 2");
    let first = begun(&world, "one");
    let second = world.run("run --task task.toml --id two").is(69);
    assert!(second.stderr.contains(&format!("process {}", first.pid())), "{}", second.stderr);
    assert!(second.stderr.contains("one"), "{}", second.stderr);
    first.end().is(0);
    world.run("run --task task.toml --id two").is(0);
    // A reader needs no such claim.
    let reader = world_with("read", "echo begun >> ledger; sleep 1");
    let (one, two) = (begun(&reader, "one"), begun(&reader, "two"));
    one.end().is(0);
    two.end().is(0);
}

#[test]
fn the_same_id_in_another_store_is_another_run() {
    let shell = "echo begun >> ledger; sleep 2; echo '{\"sent\":1}'";
    let (one, other) = (world_with("external", shell), world_with("external", shell));
    let (first, second) = (begun(&one, "r"), begun(&other, "r"));
    // Neither an end nor a recovery over there touches what runs here.
    second.signal("KILL");
    second.end();
    other.run("resume r").is(3);
    assert!(one.something_runs("r"));
    assert_eq!(first.end().is(0).answer(), "done");
}

#[test]
fn eight_processes_share_a_store() {
    let world = World::new();
    world.example("checkout");
    for round in 0..times(1, 20) {
        let runs: Vec<_> = (0..8)
            .map(|n| world.typed(&format!("longrein run --task checkout/task.toml --id s{round}-{n}")).start())
            .collect();
        for run in runs {
            assert!(run.end().is(0).answer().contains("1.20 %"));
        }
    }
    assert_eq!(world.run("runs --json").is(0).last_json().as_array().unwrap().len(), 8 * times(1, 20));
    (0..8).for_each(|n| world.verify(&format!("s0-{n}")));
}

#[test]
fn many_start_one_id_and_one_of_them_does_it() {
    let world = world_with("external", "echo begun >> ledger; sleep 1");
    let racers: Vec<_> = (0..4).map(|_| world.typed("longrein run --task task.toml --id r").start()).collect();
    let statuses: Vec<_> = racers.into_iter().map(|racer| racer.end().status()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 0).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [0, 69].contains(status)), "{statuses:?}");
    assert_eq!(booked(&world, "begun"), 1);
    world.verify("r");
}

#[test]
fn a_store_that_is_locked_for_a_while_is_waited_for() {
    let world = World::new();
    world.example("checkout");
    world.run("run --task checkout/task.toml --id before").is(0);
    let store = rusqlite::Connection::open(world.home().join("longrein.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let run = world.typed("longrein run --task checkout/task.toml --id locked").start();
    std::thread::sleep(Duration::from_secs(3));
    store.execute_batch("ROLLBACK").unwrap();
    drop(store);
    assert!(run.end().is(0).answer().contains("1.20 %"));
    assert!(began.elapsed() >= Duration::from_secs(3));

    // And in the middle of a run.
    let world = world_with("read", "echo begun >> ledger; sleep 1");
    let run = begun(&world, "r");
    let store = rusqlite::Connection::open(world.home().join("longrein.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    store.execute_batch("ROLLBACK").unwrap();
    assert_eq!(run.end().is(0).answer(), "done");
    world.verify("r");
}
