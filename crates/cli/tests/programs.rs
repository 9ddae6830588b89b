//! Programs from the command line: shown, checked, run, killed, and answers in a form that was asked for.

use serde_json::Value;

use crate::support::task::{booked, books, calls, says, task, tool};
use crate::support::{World, of_type};

const GATE: &str = r#"
start = "look"
answer = "tell"
[[phase]]
name = "look"
kind = "call"
tool = "look"
args = { what = "{{ goal }}" }
next = [{ when = "last.ok && last.output.booked == 'look'", to = "act" }, { to = "failed", reason = "nothing was seen" }]
[[phase]]
name = "act"
kind = "call"
tool = "act"
next = [{ when = "last.ok", to = "test" }, { to = "failed", reason = "nobody let it act" }]
[[phase]]
name = "test"
kind = "checks"
commands = [{ name = "acted", command = ["grep", "-q", "act", "ledger"] }]
next = [{ when = "checks.acted.passed", to = "tell" }, { to = "failed", reason = "it did not act" }]
[[phase]]
name = "tell"
kind = "agent"
instructions = "Say what {{ evidence.act }} was."
next = [{ to = "done" }]
"#;

const WHAT: &str = "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.what]\ntype = \"string\"\n";

/// It recognises what is sent again.
const ACT: &str = "grep -q act ledger || echo act >> ledger; echo '{\"booked\":\"act\"}'";

/// A world with a program that looks, acts, checks and tells.
fn gated() -> World {
    let world = World::new();
    let tools = tool("look", "read", &books("look"), WHAT)
        + &tool("act", "external", ACT, "idempotent = \"24h\"\nsettle_after = \"50ms\"\n");
    task(&world, &format!("program = \"gate.toml\"\n{tools}"), &says("It has acted."));
    world.write("gate.toml", GATE);
    world
}

#[test]
fn a_program_is_shown_as_text_as_mermaid_and_as_json() {
    let world = gated();
    for name in ["react", "direct", "plan", "reflexion"] {
        let shown = world.run(&format!("program show {name}")).is(0);
        assert!(
            shown.stdout.contains(&format!("{name}: ")) && shown.stdout.contains("flowchart TD"),
            "{}",
            shown.stdout
        );
    }
    let shown = world.run("program show gate.toml --mermaid").is(0);
    assert!(shown.stdout.starts_with("flowchart TD\n  start([start]) --> p_look\n"), "{}", shown.stdout);
    let shown = world.run("program show gate.toml --json --task task.toml").is(0);
    let line: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&line["start"], &line["phases"][1]["kind"]), (&"look".into(), &"call".into()));
    assert_eq!(line["phases"][2]["next"][1]["to"], "failed");
}

#[test]
fn the_programs_that_come_along_are_listed_and_can_be_copied() {
    let world = gated();
    let listed = world.run("program list --json").is(0).last_json();
    for program in listed.as_array().unwrap() {
        let name = program["name"].as_str().unwrap();
        assert!(!program["description"].as_str().unwrap().is_empty(), "{name}");
        assert!(world.run("program list").is(0).stdout.contains(name), "{name}");
        // What is printed is the program itself.
        let source = world.run(&format!("program show {name} --source")).is(0).stdout;
        world.write("copy.toml", &source);
        let drawn = |of: &str| world.run(&format!("program show {of} --mermaid")).is(0).stdout;
        assert_eq!(drawn("copy.toml"), drawn(name));
    }
    world.run("program show copy.toml --source").is(64).says("longrein program list");
}

#[test]
fn a_wrong_program_names_file_line_and_phase() {
    let world = gated();
    world.run("program show nothing").is(64).says("there is no program \"nothing\"").says("react, direct");
    world.run("program show nothing.toml").is(65).says("cannot read");
    world.write("bad.toml", &GATE.replace("\"tell\" }, { to", "\"tel\" }, { to"));
    world.run("program show bad.toml").is(65).says("bad.toml, line 19").says("leads to \"tel\"");
    world.run("run --task task.toml --program bad.toml").is(65).says("leads to \"tel\"");
    world.write("other.toml", &GATE.replace("tool = \"act\"", "tool = \"axe\""));
    world.run("program show other.toml").is(0);
    world
        .run("program show other.toml --task task.toml")
        .is(65)
        .says("names the tool \"axe\"")
        .says("it has: look, act");
    world.write("fan.toml", "start = \"a\"\n[[phase]]\nname = \"a\"\nkind = \"run\"\nnext = [{ to = \"done\" }]\n");
    world.run("program show fan.toml").is(0);
    world.write(
        "fan.toml",
        "start = \"a\"\n[[phase]]\nname = \"a\"\nkind = \"run\"\ntask = \"b.toml\"\nnext = [{ to = \"done\" }]\n",
    );
    for command in ["program show fan.toml", "run --task task.toml --program fan.toml"] {
        world.run(command).is(65).says("fan.toml, line 5").says("cannot read").says("b.toml");
    }
}

#[test]
fn a_program_waits_for_a_person_and_goes_on_where_it_was() {
    let world = gated();
    world.run("run --task task.toml --id r --on-ask wait").is(3).says("approve r a2");
    assert_eq!((booked(&world, "look"), booked(&world, "act")), (1, 0));
    world.run("approve r a2").is(0);
    let done = world.run("resume r --json").is(0);
    assert_eq!((booked(&world, "look"), booked(&world, "act")), (1, 1));
    let taken: Vec<Value> = world
        .run("log r --json")
        .is(0)
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["type"] == "transition.taken")
        .collect();
    let way: Vec<_> = taken.iter().map(|line| line["to"].as_str().unwrap_or_default()).collect();
    assert_eq!(way, ["look", "act", "test", "tell", "done"], "{}", done.stdout);
    assert_eq!(taken[1]["values"][0]["value"], true);
    assert_eq!(taken[1]["why"], "`last.ok && last.output.booked == 'look'` holds");
    let log = world.run("log r").is(0);
    assert!(log.stdout.contains("phase look → act"), "{}", log.stdout);
    // What the program called is no call of the model's.
    let context = world.run("context r").is(0);
    assert!(context.stdout.contains("The program called act"), "{}", context.stdout);
    world.run("verify r").is(0);
}

#[test]
fn a_program_that_is_killed_anywhere_takes_the_same_way() {
    for point in [
        "append.before.transition.taken:2",
        "append.after.transition.taken:2",
        "append.before.action.proposed:2",
        "append.after.action.proposed:2",
        "tool.after_exit:1",
        "tool.after_exit:2",
        "append.after.check.finished:1",
        "check.after:1",
        "model.before_send:1",
        "append.before.answer.accepted:1",
    ] {
        let world = gated();
        world.run(&format!("run --task task.toml --id r --allow act --crash-at {point}")).is(75);
        world.run("resume r").is(0);
        assert_eq!(booked(&world, "act"), 1, "{point}");
        let log = world.run("log r --json").is(0);
        let way: Vec<String> = log
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["type"] == "transition.taken")
            .map(|line| line["to"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(way, ["look", "act", "test", "tell", "done"], "{point}");
    }
}

/// A world with the fan-out of the examples, whose parts have a script of their own.
fn fanned() -> World {
    let world = World::new();
    let file: std::path::PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "examples", "programs", "fan-out.toml"].iter().collect();
    let fan = std::fs::read_to_string(file).unwrap();
    world.write("fan.toml", &fan.replace("turns = 20", "turns = 20\nmodel = \"script/part.toml\""));
    world.write("part.toml", &(calls("look", "{}") + &says("the part is done")));
    let replies = "[[reply]]\njson = { parts = [\"left\", \"right\"] }\n".to_owned() + &says("left and right");
    task(&world, &format!("program = \"fan.toml\"\n{}", tool("look", "read", &books("look"), "")), &replies);
    world
}

#[test]
fn a_fan_out_asks_for_its_children_once_wherever_it_is_killed() {
    for point in [
        "none",
        "append.before.child.started:1",
        "append.after.child.started:1",
        "append.after.run.started:2",
        "append.before.child.ended:1",
        "append.after.child.ended:1",
        "append.after.child.ended:2",
        "append.before.transition.taken:3",
    ] {
        let world = fanned();
        if point == "none" {
            world.run("run --task task.toml --id r").is(0);
            assert_eq!(booked(&world, "look"), 2);
        } else {
            world.run(&format!("run --task task.toml --id r --crash-at {point}")).is(75);
            world.run("resume r").is(0);
        }
        let log = world.log("r");
        let way: Vec<_> = of_type(&log, "transition.taken").iter().map(|line| line["to"].clone()).collect();
        assert_eq!(way, ["split", "parts", "join", "done"], "{point}");
        let keys: Vec<_> = of_type(&log, "child.started").iter().map(|line| line["key"].clone()).collect();
        assert_eq!(keys, ["parts.2.0", "parts.2.1"], "{point}");
        assert_eq!(of_type(&log, "child.ended").len(), 2, "{point}");
        assert_eq!(world.show("r")["answer"], "left and right", "{point}");
        let context = world.run("context r").is(0);
        assert!(context.stdout.contains("- parts.2.1 (done): the part is done"), "{}", context.stdout);
        world.verify("r");
    }
}

const PARTED: &str = r#"
start = "part"
[[phase]]
name = "part"
kind = "run"
task = "parts/part.toml"
next = [{ when = "last.ok", to = "tell" }, { to = "failed", reason = "the part was not proven" }]
[[phase]]
name = "tell"
kind = "agent"
next = [{ to = "done" }]
"#;

/// A program whose part has a task file, with a check of its own beside it. `acts`: what the part does.
fn parted(acts: &str) -> World {
    let world = World::new();
    task(&world, "program = \"parted.toml\"\nbuiltins = [\"shell\"]\n[policy]\nallow = [\"shell\"]\n", &says("told"));
    world.write("parted.toml", PARTED);
    world.write(
        "parts/part.toml",
        "goal = \"Write it.\"\nmodel = \"script/part.script.toml\"\n[budget]\nturns = 6\n[[acceptance]]\n\
         name = \"written\"\ncommand = [\"sh\", \"parts/check.sh\"]\n",
    );
    world.write("parts/check.sh", "grep -q right work.txt\n");
    world.write("parts/part.script.toml", &(acts.to_owned() + &says("It is written.").repeat(5)));
    world
}

#[test]
fn a_part_with_a_task_file_is_proven_by_its_own_checks_wherever_it_is_killed() {
    let acts = calls("shell", "{ command = \"echo right > work.txt\" }");
    for point in
        ["none", "append.after.child.started:1", "append.after.check.finished:1", "append.before.child.ended:1"]
    {
        let world = parted(&acts);
        if point == "none" {
            let shown = world.run("program show parted.toml").is(0);
            assert!(shown.stdout.contains("a run of parts/part.toml"), "{}", shown.stdout);
            assert!(shown.stdout.contains("its goal Write it.") && shown.stdout.contains("its checks written"));
            world.run("run --task task.toml --id r").is(0);
        } else {
            world.run(&format!("run --task task.toml --id r --crash-at {point}")).is(75);
            world.run("resume r").is(0);
        }
        let log = world.log("r");
        let ended = of_type(&log, "child.ended");
        let child = ended[0]["child"].as_str().unwrap();
        let of_child = world.log(child);
        let checked: Vec<_> = of_type(&of_child, "check.finished").iter().map(|line| line["check"].clone()).collect();
        assert!(checked.contains(&"written".into()), "{point}: {checked:?}");
        assert_eq!(world.show(child)["verified"], true, "{point}");
        let shown = world.run("show r").is(0);
        assert!(
            shown.stdout.contains("children part: parts/part.toml: goal Write it.; checks written"),
            "{}",
            shown.stdout
        );
        world.verify("r");
    }
}

/// Its check is pinned when the root starts, though nothing of it has run then.
#[test]
fn law_9_a_part_that_edits_its_check_proves_nothing() {
    let world = parted(&calls("shell", "{ command = \"echo true > parts/check.sh\" }"));
    world.run("run --task task.toml --id r --on-ask deny").is(4).says("the part was not proven");
}

#[test]
fn another_program_is_another_task() {
    let world = gated();
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    world.run("run --task task.toml --id r --program react").is(65).says("program");
}

#[test]
fn the_shipped_programs_run_with_a_script() {
    for (name, replies) in [
        ("direct", calls("look", "{}") + &says("I looked.") + "[[reply]]\njson = { answer = \"seen\" }\n"),
        (
            "plan",
            "[[reply]]\njson = { steps = [\"look\"] }\n".to_owned()
                + &calls("look", "{}")
                + &says("looked")
                + "[[reply]]\njson = { ok = true, note = \"\" }\n"
                + &says("seen"),
        ),
        ("reflexion", calls("look", "{}") + &says("seen")),
    ] {
        let world = World::new();
        let acceptance = "[[acceptance]]\nname = \"looked\"\ncommand = [\"grep\", \"-q\", \"look\", \"ledger\"]\n";
        task(&world, &(tool("look", "read", &books("look"), "") + acceptance), &replies);
        let done = world.run(&format!("run --task task.toml --program {name}")).is(0);
        assert_eq!(done.stdout, "seen\n", "{name}: {}", done.stderr);
        assert_eq!(booked(&world, "look"), 1, "{name}");
    }
}

#[test]
fn the_answer_fits_the_schema_that_was_asked_for() {
    let world = World::new();
    world.write("answer.json", r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#);
    let wrapped = "[[reply]]\ntext = '''Here you are:\n```json\n{\"n\": 7}\n```'''\n";
    for program in ["react", "direct", "reflexion"] {
        task(&world, &tool("look", "read", "echo 7", ""), &(says("seven") + wrapped));
        let schema = "--output-schema answer.json";
        // Judged by nobody, the model's own judgement is asked for: its schema is not the answer's.
        let judged = "[[reply]]\njson = { passed = true, lesson = \"\" }\n";
        if program == "reflexion" {
            world.write("replies.toml", &(says("seven") + judged + wrapped + judged));
        }
        let done = world.run(&format!("run --task task.toml --program {program} {schema}")).is(0);
        assert_eq!(done.stdout, "{\"n\":7}\n", "{program}: {}", done.stderr);
    }
}

#[test]
fn a_number_that_no_tool_gave_is_refused_by_name() {
    let world = World::new();
    let answer = "[answer]\nnumbers = \"evidence\"\n";
    let replies = calls("look", "{}")
        + "[[reply]]\njson = { rate = 1.3, unit = \"%\" }\n"
        + "[[reply]]\nwhen = \"The number 1.3 of the answer is in no live evidence\"\njson = { rate = 1.2, unit = \"%\" }\n";
    task(&world, &(tool("look", "read", "echo '{\"rate\":1.2345}'", "") + answer), &replies);
    let done = world.run("run --task task.toml").is(0);
    assert_eq!(done.stdout, "{\"rate\":1.2,\"unit\":\"%\"}\n", "{}", done.stderr);
}
