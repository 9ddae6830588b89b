//! What a person sees of a run that rests, was killed, or waits for somebody to go on with it.

use crate::support::World;
use crate::support::server::{Server, text};
use crate::support::task::{calls, says, task, tool, wire_task};

const ACT: &str = "echo '{}'";

/// A run of a tool that takes its time, under way.
fn slow(world: &World) {
    task(world, &tool("act", "read", "sleep 30; echo '{}'", ""), &(calls("act", "{}") + &says("done")));
}

#[test]
fn a_message_that_nobody_has_taken_is_seen() {
    let world = World::new();
    task(&world, "", &(says("done") + &says("done again")));
    world.run("run --task task.toml --id r").is(0).says("done, unverified: the task has no check");
    assert_eq!(world.show("r")["inbox"], serde_json::json!([]));
    world.run("send r 'Look at the second page too.'").is(0);
    let shown = world.run("show r").is(0).stdout;
    assert!(
        shown.contains("inbox      1 message waits to be taken\n           Look at the second page too."),
        "{shown}"
    );
    assert!(shown.contains("go on      longrein resume r"), "{shown}");
    assert_eq!(world.show("r")["inbox"][0]["text"], "Look at the second page too.");
    let listed = world.run("runs").is(0).stdout;
    assert!(listed.contains("1 input waits to be taken: longrein resume r"), "{listed}");
    assert_eq!(world.run("runs --json").is(0).last_json()[0]["inbox"], 1);
    world.run("resume r").is(0);
    assert!(!world.run("show r").is(0).stdout.contains("inbox"));
    assert!(!world.run("runs").is(0).stdout.contains("taken"));
}

#[test]
fn a_refused_call_keeps_the_arguments_it_was_made_with() {
    let world = World::new();
    let parameters = "[tools.parameters]\ntype = \"object\"\nadditionalProperties = false\n";
    task(&world, &tool("act", "read", ACT, parameters), &(calls("act", "{ colour = \"mauve\" }") + &says("done")));
    world.run("run --task task.toml --id r").is(0);
    let log = world.run("log r").is(0).stdout;
    let proposed = log.lines().find(|line| line.contains("a1 act")).expect("it was proposed");
    assert!(proposed.contains("mauve"), "{log}");
    let shown = world.run("show r").is(0).stdout;
    assert!(shown.lines().any(|line| line.contains("refused") && line.contains("mauve")), "{shown}");
    assert_eq!(world.show("r")["ledger"][0]["args"]["colour"], "mauve");
}

#[test]
fn who_follows_a_run_that_is_killed_is_told() {
    let world = World::new();
    slow(&world);
    let run = world.typed("longrein run --task task.toml --id r").start();
    world.until("the call has started", || {
        let log = world.run("log r --json");
        (log.status() == 0 && log.stdout.contains("action.started")).then_some(())
    });
    let follow = world.typed("longrein log r --follow").start();
    run.signal("KILL");
    let told = follow.end().is(0).stderr;
    assert!(told.contains("interrupted: its process is gone\nlongrein resume r"), "{told}");
}

#[test]
fn a_run_without_a_price_has_no_known_cost() {
    let world = World::new();
    wire_task(&world, "");
    let server = Server::playing([text("done")]);
    server.call(&world, "run --task task.toml --id r").done().is(0);
    let stats = world.run("runs --stats").is(0).stdout;
    assert!(stats.contains("cost                 not known: no price is configured"), "{stats}");
    assert_eq!(world.run("runs --stats --json").is(0).last_json()["unpriced_runs"], 1);
    let free = "[[reply]]\ntext = \"done\"\nusage = { input = 12000, output = 345 }\n";
    task(&world, "", free);
    world.run("run --task task.toml --id s").is(0);
    let stats = world.run("runs --stats").is(0).stdout;
    assert!(stats.contains("cost                 $0.0000, not known of 1 run without a price"), "{stats}");
    assert!(stats.contains("tokens               12,"), "{stats}");
}
