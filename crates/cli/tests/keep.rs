//! Removing runs, and what nothing refers to any more.

use crate::support::World;
use crate::support::task::{calls, says, task, tool};

#[test]
fn a_removed_run_is_gone_and_its_id_stays_used() {
    let world = World::new();
    task(&world, "", &says("hello"));
    world.run("run --task task.toml --id r1").is(0);
    world.run("run --task task.toml --id r2 --crash-at model.before_send").is(75);
    let refused = world.run("rm r1 r2").is(65).says("run r2 has not ended");
    refused.says("longrein cancel r2");
    world.run("show r1").is(0);
    world.run("rm r1 nobody").is(66).says("no run nobody");
    world.run("show r1").is(0);
    world.run("rm r1").is(0);
    for line in ["show r1", "log r1", "resume r1", "send r1 hi", "verify r1", "rm r1", "run --task task.toml --id r1"] {
        world.run(line).is(66).says("run r1 was removed");
    }
    assert!(!world.run("runs").is(0).stdout.contains("r1"));
    world.run("cancel r2").is(0);
    world.run("rm r2").is(0);
}

#[test]
fn a_business_key_outlives_the_run_that_used_it() {
    let world = World::new();
    let pay = tool(
        "pay",
        "external",
        "echo paid >> ledger; echo '{\"paid\":true}'",
        "key = [\"to\"]\nkey_scope = \"store\"\n",
    ) + "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.to]\ntype = \"string\"\n";
    task(&world, &(pay + "[policy]\nallow = [\"pay\"]\n"), &(calls("pay", "{ to = \"anna\" }") + &says("paid")));
    world.run("run --task task.toml --id p1").is(0);
    world.run("rm p1").is(0);
    world.run("gc --older-than 1ms").is(0);
    world.run("run --task task.toml --id p2").is(0);
    assert_eq!(world.read("ledger"), "paid\n", "never twice");
    world.verify("p2");
}

#[test]
fn gc_takes_the_results_of_removed_runs_and_no_others() {
    let world = World::new();
    let big = tool("big", "read", "head -c 300000 /dev/zero | tr '\\0' \"$(cat letter)\"", "");
    task(&world, &big, &(calls("big", "{}") + &says("seen")));
    for (id, letter) in [("a", "a"), ("b", "b")] {
        world.write("letter", letter);
        world.run(&format!("run --task task.toml --id {id}")).is(0);
    }
    world.run("rm a").is(0);
    world.run("gc").is(0);
    let store = world.store_bytes();
    let has = |letter: u8| store.windows(50_000).any(|window| window.iter().all(|byte| *byte == letter));
    assert!(has(b'b'), "in use");
    world.verify("b");
    world.run("send b more").is(0);
    let kept = world.run("gc --older-than 1ms --json").is(0).last_json();
    assert_eq!(kept["removed"].as_array().map(Vec::len), Some(0), "somebody has just spoken to it");
    world.run("resume b").is(4);
    assert_eq!(world.run("gc --older-than 1ms --json").is(0).last_json()["removed"][0], "b");
    assert_eq!(world.run("gc --older-than never").is(64).stdout, "");
}

#[test]
fn stats_add_up_over_runs_and_count_nothing_twice() {
    let world = World::new();
    let tools = tool("ok", "read", "echo 1", "") + &tool("bad", "read", "exit 3", "");
    let more = format!("{tools}[[acceptance]]\nname = \"there\"\ncommand = [\"test\", \"-e\", \"there\"]\n");
    task(&world, &more, &(calls("ok", "{}") + &calls("ok", "{}") + &calls("bad", "{}") + &says("x") + &says("y")));
    world.write("there.sh", "");
    let none = world.run("runs --stats --json").is(0).last_json();
    assert_eq!(none["runs"], 0, "no store, no runs, and the same shape: {none}");
    world.run("run --task task.toml --id r1 --max-turns 4").is(2);
    world.write("there", "");
    world.run("run --task task.toml --id r2 --crash-at tool.running:2").is(75);
    world.run("resume r2").is(0);
    world.run("fork r2 --as f").is(0);
    let stats = world.run("runs --stats --json").is(0).last_json();
    assert_eq!(stats["states"], serde_json::json!({ "done": 1, "exhausted": 1, "suspended": 1 }));
    assert_eq!((&stats["runs"], &stats["verified"]), (&3.into(), &1.into()));
    assert_eq!((&stats["tool_calls"], &stats["tool_errors"], &stats["repeats"]), (&6.into(), &2.into(), &2.into()));
    assert_eq!((&stats["recoveries"], &stats["turns_per_run"]["p99"]), (&1.into(), &4.into()));
    assert!(world.run("runs --stats").is(0).stdout.contains("tool calls           6"));
}

#[test]
fn a_dry_run_says_what_would_go_and_a_person_is_asked_first() {
    let world = World::new();
    task(&world, "", &says("hello"));
    world.run("run --task task.toml --id old").is(0);
    let dry = world.run("gc --older-than 1ms --dry-run").is(0).stdout;
    assert!(dry.contains("would remove old  done  Do it.") && dry.contains("1 run would be removed"), "{dry}");
    assert_eq!(world.run("gc --older-than 1ms --dry-run --json").is(0).last_json()["would_remove"][0], "old");
    world.run("show old").is(0);

    let mut terminal = world.typed("longrein gc --older-than 1ms").on_terminal(80);
    terminal.wait_for("Remove these runs? That cannot be undone. [y/N]");
    terminal.type_in("\n");
    assert!(terminal.end().1.contains("nothing was removed"));
    world.run("show old").is(0);
    let mut terminal = world.typed("longrein gc --older-than 1ms").on_terminal(80);
    terminal.wait_for("[y/N]");
    terminal.type_in("y\n");
    assert!(terminal.end().1.contains("removed old"));
    world.run("show old").is(66);
}

/// What somebody has sent is not lost because it lay there for long, nor unsaid where the run is removed by name.
#[test]
fn what_was_sent_and_not_taken_keeps_a_run() {
    let world = World::new();
    task(&world, "", &(says("hello") + &says("and the cellar")));
    for id in ["old", "sent"] {
        world.run(&format!("run --task task.toml --id {id}")).is(0);
    }
    world.run("send sent 'also the cellar'").is(0);
    let dry = world.run("gc --older-than 1ms --dry-run --json").is(0).last_json();
    assert_eq!((&dry["would_remove"], &dry["kept"]), (&serde_json::json!(["old"]), &serde_json::json!(["sent"])));
    let kept = world.run("gc --older-than 1ms").is(0).says("sent is kept: what was sent to it waits to be taken");
    assert!(kept.stdout.contains("removed old") && !kept.stdout.contains("removed sent"), "{}", kept.stdout);
    world.run("show sent").is(0);
    // It is taken, and nothing keeps the run any more.
    world.run("resume sent").is(0);
    world.run("gc --older-than 1ms").is(0);
    world.run("show sent").is(66);

    task(&world, "", &says("hello"));
    world.run("run --task task.toml --id named").is(0);
    world.run("send named 'and the attic'").is(0);
    world.run("rm named").is(0).says("what nobody had taken yet: message: and the attic");
    world.run("run --task task.toml --id other").is(0);
    world.run("send other 'and the yard'").is(0);
    let removed = world.run("rm other --json").is(0).last_json();
    assert_eq!(removed["unread"]["other"][0]["text"], "and the yard");
}
