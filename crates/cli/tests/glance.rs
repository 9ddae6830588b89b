//! What a person sees of a run that rests, was killed, or waits for somebody to go on with it.

use crate::support::World;
use crate::support::server::{Server, status, text};
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

/// The lines of a listing on a terminal: only one that holds a path that has no room may be longer.
#[test]
fn listings_fit_the_terminal_and_are_whole_in_a_pipe() {
    let world = World::new();
    let goal =
        "Do this first, then that, and then, once both of these are done, all of the other things that are left.";
    let tools = tool("act", "external", ACT, "") + &tool("look", "read", "seq 1 40 | tr '\\n' ' '", "");
    let replies = calls("look", "{}") + &calls("act", "{}") + &says("done");
    task(&world, &tools, &replies);
    world.write("task.toml", &world.read("task.toml").replace("Do it.", goal));
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    for columns in [80_u16, 40] {
        for look in ["doctor", "runs", "show r", "log r", "approvals", "models --no-probe", "tools --task task.toml"] {
            let mut terminal =
                world.typed(&format!("longrein {look}")).env("LONGREIN_MODEL", "openai/x").on_terminal(columns);
            let (_, written) = terminal.end();
            for line in written.lines().map(str::trim_end) {
                let is_one_word = !line.trim().contains(' ') && line.contains('/');
                let is_command = line.contains("longrein ");
                let fits = line.chars().count() <= usize::from(columns);
                assert!(fits || is_one_word || is_command, "{look} at {columns}: {line}\n{written}");
            }
        }
    }
    let mut terminal = world.typed("longrein models --no-probe").on_terminal(80);
    let (_, written) = terminal.end();
    assert!(written.contains("No model is configured."), "{written}");
    assert!(written.lines().all(|line| line.trim_end().chars().count() <= 80), "{written}");
    let shown = world.run("show r").is(0).stdout;
    assert!(shown.lines().any(|line| line == format!("goal       {goal}")), "{shown}");
}

#[test]
fn a_start_that_fails_begins_with_what_is_wrong() {
    let world = World::new();
    slow(&world);
    let run = world.typed("longrein run --task task.toml --id r").start();
    world.until("the run is there", || (world.run("show r").status() == 0).then_some(()));
    let held = world.run("resume r").is(69);
    assert!(held.stderr.starts_with("longrein: "), "{}", held.stderr);
    run.signal("KILL");
    let unreachable = world.run("run hello -m anthropic/x --id s");
    assert!(!unreachable.stderr.contains("permission mode"), "{}", unreachable.stderr);
    assert_eq!(unreachable.status(), 78, "{}", unreachable.stderr);
}

#[test]
fn a_page_for_a_reason_is_shown_in_part() {
    let world = World::new();
    wire_task(&world, "");
    let page = "iVBORw0KGgo".repeat(2_000);
    let body = format!("{{\"error\":{{\"message\":\"cannot read the image {page}\"}}}}");
    let server = Server::playing([status(400, &body)]);
    let failed = server.call(&world, "run --task task.toml --id r").done().is(5);
    let longest = |text: &str| text.lines().map(str::len).max().unwrap_or_default();
    assert!(longest(&failed.stderr) < 1_000, "{}", failed.stderr);
    let shown = world.run("show r").is(0).stdout;
    assert!(longest(&shown) < 1_000 && shown.contains("characters left out: longrein log r --raw)"), "{shown}");
    let whole = world.run("log r --raw").is(0).stdout;
    assert!(longest(&whole) > 2_000 && whole.contains("… (the first 2048 of 22022 bytes that were read)"), "{whole}");
}

#[test]
fn cancel_names_what_it_cut_off() {
    let world = World::new();
    let tools = tool("act", "workspace", "touch begun; sleep 30", "") + "[policy]\nallow = [\"act\"]\n";
    task(&world, &tools, &(calls("act", "{}") + &says("done")));
    let run = world.typed("longrein run --task task.toml --id r").start();
    world.until("the call runs", || world.path("begun").exists().then_some(()));
    let cancelled = world.run("cancel r").is(0);
    assert!(cancelled.stdout.contains("cut off: a1 act (look at its files)"), "{}", cancelled.stdout);
    assert!(!cancelled.stdout.contains("nothing was changed"), "{}", cancelled.stdout);
    let told = run.end().is(7).stderr;
    assert!(told.contains("cancelled by the operator") && !told.contains("cancelled: cancelled"), "{told}");
}

#[test]
fn a_stored_answer_is_said_to_be_one() {
    let world = World::new();
    task(&world, "", &says("done"));
    let first = world.run("run --task task.toml --id r").is(0);
    assert!(!first.stderr.contains("printed again"), "{}", first.stderr);
    world.run("run --task task.toml --id r").is(0).says("run r has ended; what it came to is printed again");
}

#[test]
fn blanks_and_line_ends_in_an_excerpt_are_not_eaten() {
    let world = World::new();
    let replies = "[[reply]]\ntext = \"\"\"if x:\n    y  =  1\"\"\"\n";
    task(&world, "", replies);
    let done = world.run("run --task task.toml --id r").is(0);
    assert!(done.stderr.contains("if x: ⏎     y  =  1"), "{}", done.stderr);
}
