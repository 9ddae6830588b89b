//! The built-in shell in whole runs: what commands do to their run, and what a run leaves of its commands.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::task::{booked, calls, says, task};
use crate::support::{Running, World, of_type, times};

/// A world whose model calls the shell with these arguments, one call a turn, and then is done.
fn world_of(shell: &[&str]) -> World {
    let world = World::new();
    let replies: String = shell.iter().map(|args| calls("shell", args)).collect();
    task(&world, "builtins = [\"shell\"]\n[policy]\nallow = [\"shell\"]\n", &(replies + &says("done")));
    world
}

const RUN: &str = "run --task task.toml --id r";

fn start(world: &World) -> Running {
    world.typed(&format!("longrein {RUN}")).start()
}

#[test]
fn no_command_holds_a_run_or_outlives_its_call() {
    // these end by themselves, those we end
    let by_itself = [
        "cat",
        "sleep 9999 & echo on",
        "setsid sleep 9999 >/dev/null 2>&1 < /dev/null &",
        "(setsid sh -c \"sleep 9999 & sleep 9998\" &) ; sleep 0.1",
        "sh terminal.sh",
        "git init -q x && cd x && git commit --allow-empty",
    ];
    let by_us = ["trap \"\" TERM HUP INT; sleep 9999; sleep 9998", "sh stop.sh", "yes", "sh spawn.sh"];
    let with = |command: &str, timeout| format!("{{ command = '''{command}''', timeout = \"{timeout}\" }}");
    let args: Vec<_> = (by_itself.iter().map(|command| with(command, "5m")))
        .chain(by_us.iter().map(|command| with(command, "500ms")))
        .collect();
    let world = world_of(&args.iter().map(String::as_str).collect::<Vec<_>>());
    world.write("terminal.sh", "head -c1 /dev/tty");
    world.write("stop.sh", "kill -STOP $$");
    world.write("spawn.sh", "while true; do sleep 9999 & sleep 0.01; done");
    let began = Instant::now();
    world.run(RUN).is(0);
    // half a second and two of grace for those we end, on a machine that is busy otherwise
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(!world.something_runs("r"));
    let log = world.log("r");
    let outcomes: Vec<_> =
        of_type(&log, "action.finished").iter().map(|end| end["outcome"].as_str().unwrap().to_owned()).collect();
    assert_eq!(outcomes, [vec!["done"; by_itself.len()], vec!["error"; by_us.len()]].concat());
}

#[test]
fn a_command_of_a_killed_run_is_ended_and_told_and_never_repeated() {
    let world = world_of(&[r#"{ command = "echo begun >> ledger; (setsid sleep 9999 &); sleep 9998" }"#]);
    let running = start(&world);
    world.until("the command to begin", || (booked(&world, "begun") == 1).then_some(()));
    running.signal("KILL");
    running.end();
    let done = world.run("resume r").is(0);
    assert_eq!(done.answer(), "done");
    assert_eq!(booked(&world, "begun"), 1);
    assert!(!world.something_runs("r"));
    let log = world.log("r");
    let [end] = of_type(&log, "action.finished")[..] else { panic!("{log:?}") };
    assert_eq!((&end["outcome"], &end["error"]["class"]), (&"error".into(), &"unknown_outcome".into()), "{end}");
    world.verify("r");
}

#[test]
fn an_interrupt_leaves_no_process_and_the_run_goes_on() {
    let world = world_of(&[r#"{ command = "echo begun >> ledger; (setsid sleep 9999 &); sleep 9998" }"#]);
    let running = start(&world);
    world.until("the command to begin", || (booked(&world, "begun") == 1).then_some(()));
    running.signal("INT");
    running.end().is(130);
    assert!(!world.something_runs("r"));
    assert_eq!(world.run("resume r").is(0).answer(), "done");
    assert_eq!(booked(&world, "begun"), 1);
}

/// Whatever is printed, and however much: far more than is kept costs as little as 300 MB, which is the nightly amount.
#[test]
fn a_flood_costs_less_than_30_mb_of_memory() {
    let bytes = times(30_000_000, 300_000_000);
    let wait = |name: &str| format!("{{ command = 'touch {name}; while [ -e {name} ]; do sleep 0.01; done' }}");
    for print in ["yes 0123456789abcdef", "cat /dev/urandom", "cat /dev/zero"] {
        let world = world_of(&[&wait("before"), "{ command = 'sh flood.sh' }", &wait("after")]);
        world.write("flood.sh", &format!("{print} | head -c {bytes}"));
        let running = start(&world);
        let peak = |name: &str| {
            world.until(name, || world.path(name).exists().then_some(()));
            let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            fs::remove_file(world.path(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = peak("before");
        let after = peak("after");
        running.end().is(0);
        assert!(after - before < 30_000, "{print}: {before} kB before, {after} kB after");
        let log = world.log("r");
        let ends = of_type(&log, "action.finished");
        let shown: &Value = &ends[1]["data"]["shown"];
        assert_eq!((&shown["status"], &shown["output_bytes"]), (&0.into(), &bytes.into()), "{print}");
    }
}
