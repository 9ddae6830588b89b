//! The binary on a terminal of its own: the live view, approvals and questions at the prompt.

use crate::snapshots::{hold, settled};
use crate::support::World;
use crate::support::terminal::{screen, statuses};

pub(crate) const TASK: &str = r#"
goal = "Set it up."
model = "script/s.toml"
builtins = ["ask"]
[[tools]]
name = "pay"
description = "Pays an amount. Use once per bill, never to try. Returns a receipt."
command = ["sh", "-c", "echo paid >> paid; echo '{\"receipt\":7}'"]
effect = "external"
[tools.parameters]
type = "object"
required = ["amount"]
[tools.parameters.properties.amount]
type = "number"
[tools.parameters.properties.note]
type = "string"
[[tools]]
name = "look"
description = "Looks."
command = ["sh", "-c", "echo hello"]
effect = "read"
[[tools]]
name = "bad"
command = ["./not_there", "--fast"]
effect = "read"
"#;

const SCRIPT: &str = r#"
[[reply]]
text = "I need to know the region before I can pay. \u001b[2JI ask for it, and pay the rent meanwhile, since that does not depend on it."
calls = [{ name = "ask", args = { question = "Which region?\nnorth or \u202esouth?" } }, { name = "pay", args = { amount = 5, note = "rent\n\u001b[2J\tMay" } }]
usage = { input = 900, output = 20 }
delay = "400ms"
[[reply]]
when = "north\\nand south"
calls = [{ name = "pay", args = { amount = 5, note = "rent\n\u001b[2J\tMay" } }, { name = "look", args = {} }]
usage = { input = 19000, output = 20 }
[[reply]]
calls = [{ name = "bad", args = {} }, { name = "pay", args = { amount = 6 } }]
[[reply]]
text = "Set up."
"#;

fn world() -> World {
    let world = World::new();
    world.write("s.toml", SCRIPT);
    world.write("task.toml", TASK);
    world
}

/// One thing after the other, so that the screen is always the same.
const SEQUENCE: &str = r#"
[[reply]]
text = "I need to know the region before I can pay. \u001b[2JI ask for it now, since everything else depends on what the answer to it is."
calls = [{ name = "ask", args = { question = "Which region?\nnorth or \u202esouth?" } }]
usage = { input = 900, output = 20 }
[[reply]]
when = "north\\nand south"
calls = [{ name = "pay", args = { amount = 5, note = "rent\n\u001b[2J\tMay" } }]
usage = { input = 19000, output = 20 }
[[reply]]
calls = [{ name = "pay", args = { amount = 5, note = "rent\n\u001b[2J\tMay" } }]
[[reply]]
text = "漢字は二つの幅を取る。漢字は二つの幅を取る。漢字は二つの幅を取る。"
calls = [{ name = "look", args = {} }]
[[reply]]
calls = [{ name = "bad", args = {} }]
[[reply]]
calls = [{ name = "pay", args = { amount = 6 } }]
[[reply]]
text = "Set up."
"#;

#[test]
fn a_person_answers_at_the_prompt_and_sees_what_goes_on() {
    for columns in [80, 40] {
        let world = world();
        world.write("s.toml", SEQUENCE);
        let mut terminal = world.typed("longrein run --task task.toml --id r").on_terminal(columns);
        terminal.wait_for("> ");
        terminal.type_in("north\\\n");
        terminal.wait_for("> ");
        terminal.type_in("and south\n");
        terminal.wait_for("[q] later: ");
        terminal.type_in("perhaps\n");
        terminal.wait_for("Please answer");
        terminal.wait_for("[q] later: ");
        terminal.type_in("a\n");
        terminal.wait_for("[q] later: ");
        terminal.type_in("n too dear\n");
        let (status, written) = terminal.end();
        assert!(status.success(), "{written}");
        assert_eq!(world.read("paid").lines().count(), 2, "allowed once for good, denied once");
        assert!(terminal.is_as_before());
        for status in statuses(&written) {
            assert!(status.chars().count() <= usize::from(columns), "too long for one line: {status}");
        }
        hold(&format!("run.{columns}.txt"), &screen(&settled(&world, &written), columns.into()));
    }
}

#[test]
fn the_width_is_looked_at_again_whenever_something_is_drawn() {
    let world = World::new();
    world.write("s.toml", "[[reply]]\ntext = \"x\"\ndelay = \"90s\"\n");
    let mut terminal = world.typed("longrein run hello -m script/s.toml --id r").on_terminal(80);
    terminal.wait_for("tokens");
    terminal.resize(30);
    // whichever second it is drawn at
    let mut last = String::new();
    for _ in 0..1_200 {
        last = statuses(&terminal.written()).pop().unwrap();
        if last.chars().count() < 30 && last.contains("the model, ") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    terminal.kill();
    assert!(last.chars().count() < 30 && last.contains("the model, "), "{last}");
}

#[test]
fn later_is_no_answer_and_parks_with_the_command_that_answers() {
    let world = world();
    let mut terminal = world.typed("longrein run --task task.toml --id r").on_terminal(80);
    // Typed before there was a question: no answer to it.
    terminal.type_in("y\n");
    terminal.wait_for("[q] later: ");
    terminal.type_in("q\n");
    let (status, written) = terminal.end();
    assert_eq!(status.code(), Some(3), "{written}");
    assert_eq!(world.read("paid"), "");
    assert_eq!(written.trim_end().lines().last(), Some("longrein send r 'your answer'"), "{written}");
    assert!(written.contains("longrein approve r a2"), "{written}");

    // The end of input neither; what waited is asked again, the oldest first.
    let mut terminal = world.typed("longrein resume r").on_terminal(80);
    terminal.wait_for("[q] later: ");
    terminal.type_in("y\n");
    terminal.wait_for("> ");
    terminal.type_in("\x04");
    let (status, written) = terminal.end();
    assert_eq!(status.code(), Some(3), "{written}");
    assert_eq!(written.trim_end().lines().last(), Some("longrein send r 'your answer'"), "{written}");
    assert_eq!(world.read("paid").lines().count(), 1);
}

#[test]
fn a_question_that_is_answered_elsewhere_goes_away() {
    let world = world();
    let mut terminal = world.typed("longrein run --task task.toml --id r").on_terminal(80);
    terminal.wait_for("[q] later: ");
    world.run("approve r a2").is(0);
    terminal.wait_for("a2 was answered elsewhere");
    terminal.wait_for("> ");
    terminal.type_in("no\\\n");
    world.run("send r 'north\nand south'").is(0);
    terminal.wait_for("a1 was answered elsewhere");
    terminal.wait_for("[q] later: ");
    terminal.type_in("q\n");
    let (status, written) = terminal.end();
    assert_eq!(status.code(), Some(3), "{written}");
    assert_eq!(world.read("paid").lines().count(), 1, "once only: the same call is asked about again");
}

#[test]
fn always_survives_a_restart_and_not_a_change_of_what_it_was_said_to() {
    let world = world();
    world.write("pay.sh", "echo paid >> paid\n");
    let task = TASK.replace(r#"["sh", "-c", "echo paid >> paid; echo '{\"receipt\":7}'"]"#, r#"["sh", "pay.sh"]"#);
    world.write("task.toml", &task.replace("[\"ask\"]", "[]"));
    world.write(
        "s.toml",
        "[[reply]]\ncalls = [{ name = \"pay\", args = { amount = 5 } }]\n[[reply]]\ncalls = [{ name = \"pay\", args = { amount = 5 } }]\n\
         [[reply]]\ncalls = [{ name = \"pay\", args = { amount = 5 } }]\n[[reply]]\ntext = \"Paid.\"\n",
    );
    let mut terminal =
        world.typed("longrein run --task task.toml --id r --crash-at append.before.action.started:2").on_terminal(80);
    terminal.wait_for("[q] later: ");
    terminal.type_in("a\n");
    assert_eq!(terminal.end().0.code(), Some(75));
    world.run("resume r --on-ask wait --crash-at append.after.model.requested:2").is(75);
    assert_eq!(world.read("paid").lines().count(), 2, "the second was not asked about");

    world.write("pay.sh", "echo other >> paid\n");
    let parked = world.run("resume r --on-ask wait").is(3);
    assert_eq!(parked.last_line(), "longrein approve r a3");
    assert_eq!(world.read("paid").lines().count(), 2);
}

#[test]
fn nothing_but_plain_lines_where_somebody_wants_them() {
    let world = World::new();
    world.example("checkout");
    for (name, value) in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let run = format!("longrein run --task checkout/task.toml --id {name}");
        let mut terminal = world.typed(&run).env(name, value).on_terminal(80);
        let (status, written) = terminal.end();
        assert!(status.success(), "{written}");
        assert!(!written.contains('\x1b'), "{name}: {written:?}");
        assert!(written.contains("  a1 done: "), "{name}: {written}");
    }
    let mut terminal = world.typed("longrein run --task checkout/task.toml --id quiet --quiet").on_terminal(80);
    let (_, written) = terminal.end();
    assert_eq!(written.lines().count(), 1, "the answer alone: {written}");
}

#[test]
fn a_death_in_the_middle_of_the_view_leaves_the_terminal_as_it_was() {
    let world = World::new();
    world.write("s.toml", "[[reply]]\ntext = \"x\"\ndelay = \"60s\"\n");
    let mut terminal = world.typed("longrein run hello -m script/s.toml --id r").on_terminal(80);
    terminal.wait_for("the model, 1.");
    terminal.kill();
    let (_, written) = terminal.end();
    assert!(terminal.is_as_before());
    assert!(!written.contains("\x1b[?"), "no mode of the terminal was changed: {written:?}");
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let world = World::new();
    let well = world.run("doctor").is(0).stdout;
    assert!(well.contains("none yet; the first run makes"), "{well}");

    world.write("s.toml", "[[reply]]\ntext = \"x\"\n");
    world.run("run hello -m script/s.toml --id r").is(0);
    assert!(world.run("doctor").is(0).stdout.contains(", sound"));
    let store = world.home().join("longrein.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let length = bytes.len();
    bytes[length / 2..].fill(0xA5);
    std::fs::write(&store, bytes).unwrap();
    let rows = world.run("doctor --json").is(78).last_json();
    let bad: Vec<_> = rows.as_array().unwrap().iter().filter(|row| row["level"] == "bad").collect();
    assert_eq!(bad.len(), 1, "{rows}");
    assert_eq!(bad[0]["about"], "store");
    assert!(!bad[0]["way_out"].as_str().unwrap().is_empty());
}

#[test]
fn the_manual_and_the_completions_know_every_command() {
    let world = World::new();
    let man = world.run("man").is(0).stdout;
    for shell in ["bash", "zsh", "fish"] {
        let script = world.run(&format!("completions {shell}")).is(0).stdout;
        for command in ["run", "resume", "approve", "doctor", "tools"] {
            assert!(script.contains(command), "{shell} does not know {command}");
            assert!(man.contains(&format!("LONGREIN {}", command.to_uppercase())), "man does not know {command}");
        }
    }
    assert!(man.contains("\\-\\-on\\-ask"), "flags of commands are explained");
    for below in ["POLICY CHECK", "PROGRAM SHOW", "PROGRAM LIST", "MCP LOGIN"] {
        assert!(man.contains(&format!("LONGREIN {below}")), "man does not know {below}");
    }
}
