//! `ask`: a question to a person is a call of a tool, and the next message is its result.

use crate::support::{World, of_type};

pub(crate) const TASK: &str = r#"
goal = "Set it up."
model = "script/s.toml"
builtins = ["ask"]
"#;

pub(crate) const SCRIPT: &str = r#"
[[reply]]
text = "One thing I cannot know."
calls = [{ name = "ask", args = { question = "Which region?" } }]
usage = { input = 900, output = 20 }
[[reply]]
when = "a1"
text = "Set up."
usage = { input = 1000, output = 5 }
"#;

fn world() -> World {
    let world = World::new();
    world.write("s.toml", SCRIPT);
    world.write("task.toml", TASK);
    world
}

/// What the model was told of its first call.
#[track_caller]
fn told(world: &World, id: &str) -> serde_json::Value {
    let log = world.log(id);
    let ends: Vec<_> = log
        .iter()
        .filter(|line| {
            line["action"] == "a1"
                && ["action.finished", "action.refused", "action.denied"].iter().any(|kind| line["type"] == *kind)
        })
        .cloned()
        .collect();
    assert_eq!(ends.len(), 1, "one observation: {ends:?}");
    ends[0].clone()
}

#[test]
fn a_run_that_may_wait_parks_on_a_question_and_the_message_is_its_result() {
    let world = world();
    let parked = world.run("run --task task.toml --id r --on-ask wait").is(3);
    assert_eq!(parked.last_line(), "longrein send r 'your answer'");
    assert!(parked.stderr.contains("a1 asks: Which region?"), "{}", parked.stderr);
    let listed = world.run("approvals").is(0).stdout;
    assert!(listed.contains("question") && listed.contains("Which region?"), "{listed}");
    assert!(world.show("r")["waits"].to_string().contains("answer"), "{}", world.show("r")["waits"]);

    // A yes is no answer, and says what is.
    let refused = world.run("approve r a1").is(65);
    assert_eq!(refused.last_line(), "longrein send r 'your answer'");

    let sent = world.run("send r 'north, please'").is(0);
    assert!(sent.stderr.contains("this answers a1: Which region?"), "{}", sent.stderr);
    // A second one is a message like any other.
    world.run("send r 'and be quick'").is(0);
    assert_eq!(world.run("resume r").is(0).answer(), "Set up.");
    let end = told(&world, "r");
    assert_eq!((&end["data"], &end["how"], &end["attempt"]), (&"north, please".into(), &"answered".into(), &0.into()));
    let log = world.log("r");
    let messages = of_type(&log, "input.received");
    assert_eq!(messages[0]["body"]["answer"], "a1");
    assert_eq!(messages[1]["body"]["message"], "and be quick");
    world.verify("r");
}

#[test]
fn where_nobody_can_be_asked_the_model_is_told_so_at_once() {
    let world = world();
    // No terminal: deny is the default.
    for flags in ["--on-ask deny", ""] {
        let id = if flags.is_empty() { "none" } else { "deny" };
        assert_eq!(world.run(&format!("run --task task.toml --id {id} {flags}")).is(0).answer(), "Set up.");
        let end = told(&world, id);
        let message = end["error"]["message"].as_str().unwrap();
        assert_eq!(message, "Nobody can be asked here; go on with your best judgement and say what you assumed.");
    }
}

#[test]
fn a_denial_is_no_answer_with_its_reason() {
    let world = world();
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    world.run("deny r a1 --reason 'ask me tomorrow'").is(0);
    assert_eq!(world.run("resume r").is(0).answer(), "Set up.");
    assert_eq!(told(&world, "r")["reason"], "ask me tomorrow");
}

#[test]
fn a_run_that_waits_is_told_when_it_is_resumed_where_nobody_is() {
    let world = world();
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    // What waits goes on waiting unless somebody says no.
    world.run("resume r").is(3);
    assert_eq!(world.run("resume r --on-ask deny").is(0).answer(), "Set up.");
    assert!(told(&world, "r")["error"]["message"].as_str().unwrap().starts_with("Nobody can be asked"));
}

#[test]
fn an_answer_survives_death_before_and_after_it_is_taken() {
    let world = world();
    for (number, point) in
        ["append.before.action.held", "append.after.action.held", "append.after.run.parked"].iter().enumerate()
    {
        let id = format!("asked{number}");
        world.run(&format!("run --task task.toml --id {id} --on-ask wait --crash-at {point}")).is(75);
        world.run(&format!("resume {id} --on-ask wait")).is(3);
        world.run(&format!("send {id} north")).is(0);
        world.run(&format!("resume {id} --on-ask wait")).is(0);
        assert_eq!(told(&world, &id)["data"], "north");
        world.verify(&id);
    }
    let points = [
        "append.before.input.received",
        "append.after.input.received",
        "append.after.action.finished",
        "append.before.model.requested",
    ];
    for (number, point) in points.iter().enumerate() {
        let id = format!("taken{number}");
        world.run(&format!("run --task task.toml --id {id} --on-ask wait")).is(3);
        world.run(&format!("send {id} north")).is(0);
        world.run(&format!("resume {id} --on-ask wait --crash-at {point}")).is(75);
        assert_eq!(world.run(&format!("resume {id} --on-ask wait")).is(0).answer(), "Set up.");
        assert_eq!(told(&world, &id)["data"], "north");
        world.verify(&id);
    }
}

#[test]
fn a_question_beside_other_calls_lets_them_go_on() {
    let world = world();
    world.write(
        "s.toml",
        r#"
[[reply]]
calls = [{ name = "ask", args = { question = "Which region?" } }, { name = "ask", args = { question = "" } }, { name = "look", args = {} }]
[[reply]]
when = "north"
text = "Set up."
"#,
    );
    world.write(
        "task.toml",
        &format!("{TASK}[[tools]]\nname = \"look\"\ndescription = \"Looks.\"\ncommand = [\"echo\", \"seen\"]\neffect = \"read\"\n"),
    );
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    let log = world.log("r");
    assert_eq!(of_type(&log, "action.finished")[0]["action"], "a3", "the look did not wait");
    assert_eq!(of_type(&log, "action.refused")[0]["action"], "a2", "an empty question is none");
    world.run("send r north").is(0);
    world.run("resume r").is(0);
}

/// What nobody answers in time is no yes, and whoever comes too late is told so.
#[test]
fn a_question_that_expires_is_no_answer_and_a_late_yes_is_refused_by_name() {
    let world = World::new();
    world.write("s.toml", PAYS);
    world.write("task.toml", "goal = \"Write it.\"\nmodel = \"script/s.toml\"\nbuiltins = [\"write_file\"]\n");
    let config = world.user().join(".config/longrein");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[approvals]\nquestions_expire = \"1s\"\n").unwrap();
    let parked = world.run("run --task task.toml --id r --on-ask wait").is(3);
    assert!(parked.stderr.contains("longrein approve r a1"), "{}", parked.stderr);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let late = world.run("approve r a1").is(65);
    assert!(late.stderr.contains("the question of a1 expired at "), "{}", late.stderr);
    let listed = world.run("approvals").is(0);
    assert!(
        !listed.stdout.contains("a1") && listed.stderr.contains("the question of a1 expired at "),
        "{}",
        listed.stdout
    );
    assert_eq!(world.run("approvals --json").is(0).stdout.trim(), "[]");
    assert_eq!(world.run("resume r --on-ask wait").is(0).answer(), "Left.");
    let log = world.log("r");
    let denied = of_type(&log, "action.denied");
    assert_eq!((&denied[0]["expired"], &denied[0]["input"]), (&true.into(), &serde_json::Value::Null));
    assert!(!world.path("a.txt").exists());
    let late = world.run("approve r a1").is(65);
    assert!(late.stderr.contains("does not wait for an approval (any more)"), "{}", late.stderr);
    world.verify("r");
}

/// A child asks under the same clock: nobody has longer to answer it for its having a parent.
#[test]
fn a_child_s_question_expires_like_its_parent_s() {
    let world = World::new();
    world.write("c.toml", PAYS);
    world.write("s.toml", "");
    world.write(
        "p.toml",
        "start = \"c\"\n[[phase]]\nname = \"c\"\nkind = \"run\"\nmodel = \"script/c.toml\"\nnext = [{ to = \"done\" }]\n",
    );
    world.write(
        "task.toml",
        "goal = \"Write it.\"\nmodel = \"script/s.toml\"\nprogram = \"p.toml\"\nbuiltins = [\"write_file\"]\n",
    );
    let config = world.user().join(".config/longrein");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[approvals]\nquestions_expire = \"1s\"\n").unwrap();
    let parked = world.run("run --task task.toml --id r --on-ask wait").is(3);
    let approve = parked.last_line().trim_start_matches("longrein ").to_owned();
    assert!(approve.starts_with("approve ") && approve.ends_with(" a1"), "{approve}");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let late = world.run(&approve).is(65);
    assert!(late.stderr.contains("the question of a1 expired at "), "{}", late.stderr);
    world.run("resume r --on-ask wait").is(0);
    let child = approve.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(of_type(&world.log(&child), "action.denied")[0]["expired"], true);
    assert!(!world.path("a.txt").exists());
    world.verify("r");
}

/// Where the table wants the flat no of `untrusted` and `secrets`, a person may type it out, and nothing less counts.
#[test]
fn law_8_what_a_run_with_secrets_and_strangers_text_sends_is_typed_out_at_a_terminal() {
    let world = World::new();
    world.write(".env", "TOKEN=x\n");
    world.write(
        "task.toml",
        "goal = \"Tell them.\"\nmodel = \"script/s.toml\"\nbuiltins = []\n[policy]\nallow = [\"send\"]\n\
         [[tools]]\nname = \"look\"\ndescription = \"Looks.\"\neffect = \"read\"\nuntrusted = true\ncommand = [\"echo\", \"hello\"]\n\
         [[tools]]\nname = \"peek\"\ndescription = \"Peeks.\"\neffect = \"read\"\nreads = [\".env\"]\ncommand = [\"echo\", \"x\"]\n\
         [[tools]]\nname = \"send\"\ndescription = \"Sends.\"\neffect = \"external\"\ncommand = [\"sh\", \"-c\", \"echo sent >> sent\"]\n",
    );
    let call = |tool: &str| format!("[[reply]]\ncalls = [{{ name = \"{tool}\", args = {{}} }}]\n");
    world.write("s.toml", &(call("look") + &call("peek") + &call("send") + "[[reply]]\ntext = \"Told.\"\n"));

    // Nobody there: it is denied.
    world.run("run --task task.toml --id none --on-ask deny").is(0);
    assert!(of_type(&world.log("none"), "action.refused")[0]["error"]["message"].to_string().contains("secrets"));
    assert!(!world.path("sent").exists());

    // Somebody who is not at a terminal is told where it is done.
    let parked = world.run("run --task task.toml --id r --on-ask wait").is(3);
    assert_eq!(parked.last_line(), "longrein approve r a3");
    let refused = world.run("approve r a3").is(65);
    assert!(refused.stderr.contains("by typing send"), "{}", refused.stderr);
    let mut terminal = world.typed("longrein approve r a3").on_terminal(80);
    terminal.wait_for("type send");
    terminal.wait_for("[q] later: ");
    terminal.type_in("y\n");
    terminal.wait_for("That is not it");
    terminal.wait_for("[q] later: ");
    terminal.type_in("send\n");
    let (status, written) = terminal.end();
    assert!(status.success(), "{written}");
    world.run("resume r --on-ask deny").is(0);
    assert_eq!(world.read("sent").lines().count(), 1);
    assert_eq!(of_type(&world.log("r"), "action.approved")[0]["typed"], "send");
    world.verify("r");

    // At the prompt of the run itself, and a no.
    for (id, typed, sent) in [("yes", "send\n", 2), ("no", "n never\n", 2)] {
        let mut terminal = world.typed(&format!("longrein run --task task.toml --id {id}")).on_terminal(80);
        terminal.wait_for("type send");
        terminal.wait_for("[q] later: ");
        terminal.type_in(typed);
        let (status, written) = terminal.end();
        assert!(status.success(), "{written}");
        assert_eq!(world.read("sent").lines().count(), sent, "{id}");
    }
}

/// Whether an answer is in time is told from when it was sent, not from when somebody takes it.
#[test]
fn what_was_answered_in_time_counts_however_late_it_is_taken() {
    let world = World::new();
    world.write("s.toml", PAYS);
    world.write("task.toml", "goal = \"Write it.\"\nmodel = \"script/s.toml\"\nbuiltins = [\"write_file\"]\n");
    world.write("a/s.toml", SCRIPT);
    world.write("a/task.toml", TASK);
    let config = world.user().join(".config/longrein");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[approvals]\nquestions_expire = \"12s\"\n").unwrap();
    world.run("run --task task.toml --id yes --on-ask wait").is(3);
    world.run("approve yes a1").is(0);
    world.run("run --task a/task.toml --id words --on-ask wait").is(3);
    world.run("send words 'north'").is(0);
    std::thread::sleep(std::time::Duration::from_secs(12));
    world.run("resume yes --on-ask wait").is(0);
    assert!(world.path("a.txt").exists());
    assert!(of_type(&world.log("yes"), "action.denied").is_empty());
    assert_eq!(world.run("resume words").is(0).answer(), "Set up.");
    assert_eq!(told(&world, "words")["data"], "north");
    world.verify("yes");
    // A time that leaves nobody any.
    std::fs::write(config.join("config.toml"), "[approvals]\nquestions_expire = \"0s\"\n").unwrap();
    world.run("run --task task.toml --id none").is(78).says("questions_expire");
}

#[test]
fn a_yes_may_say_why() {
    let world = World::new();
    world.write("s.toml", PAYS);
    world.write("task.toml", "goal = \"Write it.\"\nmodel = \"script/s.toml\"\nbuiltins = [\"write_file\"]\n");
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    world.run("approve r a1 --reason 'as we agreed'").is(0);
    world.run("resume r").is(0);
    let log = world.log("r");
    assert_eq!(of_type(&log, "action.approved")[0]["reason"], "as we agreed");
    world.verify("r");
}

const PAYS: &str = r#"
[[reply]]
text = "I write."
calls = [{ name = "write_file", args = { path = "a.txt", content = "x" } }]
usage = { input = 900, output = 20 }
[[reply]]
when = "a1"
text = "Left."
usage = { input = 1000, output = 5 }
"#;

/// A yes to a script is one to what it sources as well: another `lib.sh` is another question.
#[test]
fn law_8_a_yes_to_a_script_is_none_to_another_that_it_sources() {
    // by what the command says, and by the folder that it is to run in
    for (is_swapped, status, folder) in [(false, 0, "."), (true, 3, "."), (false, 0, "sub"), (true, 3, "sub")] {
        let world = World::new();
        world.write(&format!("space/{folder}/deploy.sh"), ". ./lib.sh\n");
        world.write(&format!("space/{folder}/lib.sh"), "echo kind > out\n");
        world.write(
            "task.toml",
            "goal = \"Deploy.\"\nmodel = \"script/m.toml\"\nworkspace = \"space\"\nbuiltins = [\"shell\"]\n",
        );
        world.write(
            "m.toml",
            &format!(
                "[[reply]]\ncalls = [{{ name = \"shell\", args = {{ command = \"sh deploy.sh\", cwd = \"{folder}\" }} }}]\n\
                 [[reply]]\ntext = \"done\"\n"
            ),
        );
        world.run("run --task task.toml --id r --on-ask wait").is(3);
        world.run("approve r a1").is(0);
        if is_swapped {
            world.write(&format!("space/{folder}/lib.sh"), "echo evil > out\n");
        }
        let resumed = world.run("resume r --on-ask wait");
        assert_eq!(resumed.status(), status, "swapped: {is_swapped}\n{}", world.run("log r").stdout);
        assert_eq!(world.path(&format!("space/{folder}/out")).exists(), !is_swapped, "{folder}, swapped: {is_swapped}");
    }
}
