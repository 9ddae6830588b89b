//! What a hostile tester found once: each stays mended.

use std::time::Duration;

use rusqlite::Connection;

use crate::support::task::{booked, books, calls, says, task, tool};
use crate::support::{World, of_type};

#[test]
fn a_waiting_question_is_not_thrown_away_by_a_resume_without_a_terminal() {
    let world = World::new();
    task(&world, &tool("pay", "external", &books("paid"), ""), &(calls("pay", "{}") + &says("done")));
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    for line in ["resume w", "run --id w", "run --task task.toml --id w"] {
        world.run(line).is(3);
    }
    assert_eq!(of_type(&world.log("w"), "action.denied").len(), 0);
    world.run("resume w --on-ask deny").is(0);
    assert_eq!(of_type(&world.log("w"), "action.denied").len(), 1);
    assert_eq!(booked(&world, "paid"), 0);
}

/// Law 5: what a dead worker used of the time is estimated, never given back.
#[test]
fn law_5_time_does_not_refill_when_the_process_is_killed() {
    let world = World::new();
    let slow = tool("look", "read", "echo begun >> ledger; exec sleep 30", "");
    task(&world, &format!("[budget]\ntime = \"2s\"\n{slow}"), &(calls("look", "{}") + &says("done")));
    let running = world.typed("longrein run --task task.toml --id t").start();
    world.until("the tool to begin", || (booked(&world, "begun") > 0).then_some(()));
    std::thread::sleep(Duration::from_millis(1500));
    running.signal("KILL");
    running.end();
    std::thread::sleep(Duration::from_millis(700));
    world.run("resume t").is(2);
    let used = world.show("t")["budget"]["time_ms"]["used"].as_u64().unwrap();
    assert!(used >= 1500, "{used} ms counted");
    world.verify("t");
}

/// Law 7: a yes is for the program that was asked about.
#[test]
fn a_yes_does_not_cover_what_a_program_has_become() {
    let world = World::new();
    world.write("act.sh", "echo good >> ledger");
    let act =
        "[[tools]]\nname = \"act\"\ndescription = \"Acts.\"\ncommand = [\"sh\", \"act.sh\"]\neffect = \"external\"\n";
    task(&world, act, &(calls("act", "{}") + &says("done")));
    world.run("run --task task.toml --id c --on-ask wait").is(3);
    world.run("approve c a1").is(0);
    world.write("act.sh", "echo evil >> ledger");
    world.run("resume c").is(3);
    assert_eq!(booked(&world, "evil"), 0);
    assert!(world.run("approvals").is(0).stdout.contains("act.sh is not what it was"));
    world.run("approve c a1").is(0);
    world.run("resume c").is(0);
    assert_eq!(booked(&world, "evil"), 1, "a yes to the new program is one");
}

/// Law 3: a key that was taken has a row, or the same intent could happen twice.
#[test]
fn verify_misses_no_key_row() {
    let world = World::new();
    let pay = tool("pay", "external", &books("paid"), "key = [\"k\"]\n");
    let more = format!(
        "[policy]\nallow = [\"pay\"]\n{pay}[tools.parameters]\ntype = \"object\"\nproperties.k.type = \"string\"\n"
    );
    task(&world, &more, &(calls("pay", "{ k = \"x\" }") + &says("done")));
    world.run("run --task task.toml --id k").is(0);
    world.verify("k");
    let store = Connection::open(world.home().join("longrein.db")).unwrap();
    assert_eq!(store.execute("DELETE FROM keys", []).unwrap(), 1);
    drop(store);
    assert!(world.run("verify k").is(65).stdout.contains("key of pay"));
}

#[test]
fn a_raise_on_a_run_at_work_is_recorded_once_and_says_so() {
    let world = World::new();
    let slow = tool("look", "read", "echo begun >> ledger; sleep 2", "");
    task(&world, &slow, &(calls("look", "{}") + &says("done")));
    let running = world.typed("longrein run --task task.toml --id r").start();
    world.until("the tool to begin", || (booked(&world, "begun") > 0).then_some(()));
    assert!(world.run("resume r --add-turns 5").is(0).stderr.contains("recorded"));
    running.end().is(0);
    assert_eq!(of_type(&world.log("r"), "budget.raised").len(), 1);
    assert_eq!(world.show("r")["budget"]["turns"]["limit"], 205);
}

#[test]
fn an_answer_that_cannot_be_printed_is_not_called_done() {
    let world = World::new();
    task(&world, "", &says("done"));
    world.run("run --task task.toml --id a").is(0);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_longrein"))
        .args(["run", "--id", "a"])
        .env_clear()
        .env("LONGREIN_HOME", world.home())
        .current_dir(world.work())
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(70));
    // What can be seen beforehand is said before the run, the rest after it.
    for (file, status) in [("nowhere/answer", 64), (".", 64), ("/dev/full", 65)] {
        let done = world.run(&format!("run --id a -o {file}")).is(status);
        assert_eq!(done.stdout, "", "stdout carries the answer on status 0 only");
    }
}

/// Law 3: a request is whole or not there, even for a grandchild that outlives the worker by a moment.
#[test]
fn law_3_a_tool_never_reads_a_part_of_its_request() {
    let world = World::new();
    world.write("big.txt", &"x".repeat(300_000));
    world.write(
        "use.sh",
        "touch begun; sleep 1; call=$(cat); key=$(printf '%s' \"$call\" | sed -n 's/.*\"idempotency_key\":\"\\([0-9a-f]*\\)\".*/\\1/p')\n\
         echo \"order-$key\" >> ledger; echo \"read-$(printf '%s' \"$call\" | wc -c | tr -d ' ')\" >> sizes",
    );
    let more = "[inputs]\nbig = \"big.txt\"\n[policy]\nallow = [\"order\"]\n[[tools]]\nname = \"order\"\n\
                description = \"Orders.\"\neffect = \"external\"\nidempotent = \"24h\"\nsettle_after = \"100ms\"\n\
                command = [\"sh\", \"-c\", \"sh use.sh; true\"]\n";
    task(&world, more, &(calls("order", "{}") + &says("done")));
    let running = world.typed("longrein run --task task.toml --id o").start();
    world.until("the order to start", || world.path("begun").exists().then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    running.signal("KILL");
    running.end();
    std::thread::sleep(Duration::from_millis(1500));
    world.run("resume o").is(0);
    let (orders, sizes) = (world.read("ledger"), world.read("sizes"));
    assert!(orders.lines().all(|line| line == orders.lines().next().unwrap() && line.len() > 60), "{orders}");
    assert!(sizes.lines().all(|line| line.trim_start_matches("read-").parse::<u64>().unwrap() > 300_000), "{sizes}");
}

/// Law 10: a workspace changes hands only when the hands of the one before are still.
#[test]
fn law_10_orphans_of_a_dead_run_do_not_write_beside_the_next_one() {
    let world = World::new();
    world.write("w.sh", "n=0; while [ $n -lt 40 ]; do echo $1 >> ledger; sleep 0.05; n=$((n+1)); done");
    let one = |name: &str| tool("w", "workspace", &format!("sh w.sh {name}; true"), "") + "[policy]\nallow = [\"w\"]\n";
    task(&world, &one("first"), &(calls("w", "{}") + &says("done")));
    let running = world.typed("longrein run --task task.toml --id or1").start();
    world.until("the first to write", || (booked(&world, "first") > 1).then_some(()));
    running.signal("KILL");
    running.end();
    task(&world, &one("second"), &(calls("w", "{}") + &says("done")));
    world.run("run --task task.toml --id or2").is(0);
    let ledger = world.read("ledger");
    let lines: Vec<_> = ledger.lines().collect();
    let begun = lines.iter().position(|line| *line == "second").unwrap();
    assert!(lines[begun..].iter().all(|line| *line == "second"), "{ledger}");
}
