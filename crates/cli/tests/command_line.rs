//! What people and scripts rely on: commands, flags, statuses, streams, and the last line that says how to go on.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::server::{Server, calls as wire_calls, text};
use crate::support::task::{booked, books, calls, says, task, tool, wire_task};
use crate::support::{Done, Running, World, of_type};

/// A world with one external tool `act`, which nobody has allowed, and a script that calls it once.
fn asking() -> World {
    let world = World::new();
    task(&world, &tool("act", "external", &books("act"), ""), &(calls("act", "{}") + &says("done")));
    world
}

/// A world whose tool `act` books and then fails, so that nobody knows.
fn doubtful() -> World {
    let world = World::new();
    let more = format!("[policy]\nallow = [\"act\"]\n{}", tool("act", "external", "echo act >> ledger; exit 1", ""));
    task(&world, &more, &(calls("act", "{}") + &says("done")));
    world
}

/// A world whose tool `act` of this class says that it runs and then takes its time.
fn slow(effect: &str, seconds: u32) -> World {
    let world = World::new();
    let shell = format!("echo begun >> ledger; sleep {seconds}; echo ended >> ledger");
    let more = format!("[policy]\nallow = [\"act\"]\n{}", tool("act", effect, &shell, ""));
    task(&world, &more, &(calls("act", "{}") + &says("done")));
    world
}

/// Starts the task as `r` and waits until its tool runs.
fn begun(world: &World) -> Running {
    let running = world.typed("longrein run --task task.toml --id r").start();
    world.until("the tool to run", || (booked(world, "begun") == 1).then_some(()));
    running
}

/// The command on the last line works as it stands.
#[track_caller]
fn go_on(world: &World, done: &Done) -> Done {
    world.typed(&done.last_line().replace("'done|not-done'", "done")).done()
}

// ---- starting ----

#[test]
fn a_prompt_is_enough() {
    let world = World::new();
    world.write("s.toml", &says("Hello."));
    for line in ["run Hi -m script/s.toml", "exec Hi --model script/s.toml"] {
        let done = world.run(line).is(0);
        assert_eq!(done.stdout, "Hello.\n");
    }
    let by_default = world.longrein(["run", "Hi"]).env("LONGREIN_MODEL", "script/s.toml").done().is(0);
    assert_eq!(by_default.answer(), "Hello.");
    assert_eq!(world.run("runs --json").is(0).last_json().as_array().unwrap().len(), 3);
}

#[test]
fn the_prompt_may_be_piped_and_so_may_context() {
    let world = World::new();
    world.write("s.toml", "[[reply]]\nwhen = \"count the beans\"\ntext = \"Three.\"\n");
    world.typed("longrein run - -m script/s.toml").stdin("Please count the beans.\n").done().is(0);
    world.typed("longrein run - -m script/s.toml").stdin(" \n").done().is(64);
    world.write("s.toml", "[[reply]]\nwhen = [\"How many?\", \"bean bean bean\"]\ntext = \"Three.\"\n");
    let piped = world.typed("longrein run 'How many?' -m script/s.toml --id p").stdin("bean bean bean\n").done().is(0);
    assert_eq!(piped.answer(), "Three.");
    // where what nobody typed begins stands in the task
    let store = String::from_utf8_lossy(&world.store_bytes()).into_owned();
    assert_eq!(store.matches("\"piped_from\":9").count(), 1, "only of the run that had it");
}

#[test]
fn the_answer_goes_to_stdout_and_to_a_file_only_when_done() {
    let world = World::new();
    world.write("s.toml", &says("Forty-two."));
    let done = world.run("run Hi -m script/s.toml -o out.txt --quiet").is(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("Forty-two.\n", ""));
    assert_eq!(world.read("out.txt"), "Forty-two.\n");

    let world = asking();
    world.run("run --task task.toml --id w --on-ask wait -o out.txt").is(3);
    assert!(!world.path("out.txt").exists());
}

#[test]
fn json_lines_are_events_and_end_in_a_summary() {
    let world = World::new();
    world.example("checkout");
    let lines = world.run("run --task checkout/task.toml --id j --json").is(0).json();
    for (number, line) in lines.iter().enumerate() {
        assert_eq!((&line["v"], &line["run"]), (&1.into(), &"j".into()), "{line}");
        assert_eq!(line["seq"], number + 1, "{line}");
        assert!(line["at"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(line["type"].as_str().unwrap().contains('.'), "{line}");
    }
    assert_eq!(lines, world.log("j"), "the log says the same");
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "run.ended");
    for field in [
        "state",
        "reason",
        "answer",
        "verified",
        "evidence",
        "usage",
        "turns",
        "model_calls",
        "tool_calls",
        "failed_calls",
    ] {
        assert!(last.get(field).is_some(), "{field}: {last}");
    }
    assert_eq!((&last["recoveries"], &last["unknown"]), (&0.into(), &Value::Array(vec![])));
    for field in ["input", "cached", "cache_write", "output", "reasoning", "usd"] {
        assert!(last["usage"][field].is_number(), "{field}: {last}");
    }
}

#[test]
fn parked_and_suspended_runs_end_in_a_summary_too() {
    let world = asking();
    let last = world.run("run --task task.toml --id w --on-ask wait --json").is(3).last_json();
    assert_eq!(
        (&last["type"], &last["state"], &last["answer"]),
        (&"run.parked".into(), &"waiting".into(), &Value::Null)
    );
    let world = World::new();
    task(&world, "", "[[reply]]\nerror = { status = 401, body = \"no\" }\n");
    let last = world.run("run --task task.toml --id s --json").is(5).last_json();
    assert_eq!((&last["type"], &last["state"]), (&"run.suspended".into(), &"suspended".into()));
}

// ---- what is refused ----

#[test]
fn wrong_usage_is_64() {
    let world = World::new();
    world.write("s.toml", &says("x"));
    for line in [
        "",
        "run",
        "run --nonsense",
        "frobnicate",
        "run Hi -m script/s.toml --id 'no spaces'",
        "run Hi -m script/s.toml --id ''",
        "run Hi -m script/s.toml --max-turns 1e6",
        "run Hi -m script/s.toml --max-turns -1",
        "run Hi -m script/s.toml --max-turns ''",
        "run Hi -m script/s.toml --max-time soon",
        "run Hi -m script/s.toml --var nonsense",
        "run Hi -m script/s.toml --on-ask maybe",
        "run Hi -m script/s.toml --on-ask prompt",
        "run Hi -m script/s.toml --crash-at nowhere",
        "run Hi -m script/s.toml --crash-at run.ended:0",
        "resume x --last",
        "approve x",
        "settle x a1",
        "settle x a1 --as perhaps",
        "show",
    ] {
        world.run(line).is(64);
    }
    world.run("run Hi -m script/s.toml --max-turns -1").says("-1 is no whole number");
    world.run("run Hi -m s.toml").is(64).says("for a scripted one write script/s.toml");
    world.run("run Hi -m script/no.toml").is(65).says("FILE is relative to the folder you are in");
    assert_eq!(world.run("runs --json").is(0).last_json(), Value::Array(vec![]), "none of them left a run");
    world.run("--version").is(0);
    world.run("--help").is(0);
    world.run("run --help").is(0);
}

#[test]
fn policy_check_rules_on_calls_that_nobody_makes() {
    let world = World::new();
    let calls = [
        r#"{"id":1,"tool":"shell","args":{"command":"ls src"},"mode":"ask","workspace":"/w"}"#,
        r#"{"id":"b","tool":"shell","args":{"command":"git status; touch made"},"workspace":"/w"}"#,
        "",
        "no call",
        r#"{"id":3,"tool":"read_file","args":{"path":"a"},"workspace":"/w","context":{"symlinks":{"/w/a":"/etc/shadow"}}}"#,
        r#"{"id":4,"tool":"shell","args":{"command":"cargo test"},"workspace":"/w"}"#,
        r#"{"id":5,"tool":"teleport","args":{},"workspace":"/w"}"#,
    ]
    .join("\n");
    world.write("calls.jsonl", &calls);
    let done = world.run("policy check calls.jsonl --allow 'shell(cargo test *)'").is(65);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = lines.iter().map(|line| (line["id"].clone(), line["ruling"].as_str())).collect();
    assert_eq!(
        shown,
        [
            (1.into(), Some("allow")),
            ("b".into(), Some("ask")),
            (Value::Null, Some("deny")),
            (3.into(), Some("deny")),
            (4.into(), Some("allow")),
            (5.into(), Some("ask")),
        ]
    );
    assert_eq!(lines[0]["reason"], Value::Null);
    assert_eq!(lines[0]["effects"][1], serde_json::json!({ "kind": "read", "what": "/w/src" }));
    assert!(lines[2]["error"].as_str().unwrap().starts_with("line 4: "), "{}", lines[2]);
    assert_eq!(lines[4]["rule"], "shell(cargo test *)");
    assert!(!world.home().join("longrein.db").exists(), "no run, so no store");
    world.run("policy check none.jsonl").is(65);
    let done = world.run("policy check calls.jsonl --deny 'read_file(~/x)'").is(64);
    assert!(done.stderr.contains("the deny rule \"read_file(~/x)\" begins with ~"), "{}", done.stderr);
}

#[test]
fn what_is_to_come_says_so() {
    let world = World::new();
    world.write("s.toml", &says("x"));
    for word in ["serve", "worker", "acp", "eval"] {
        world.run(&format!("{word} something")).is(64).says("not yet").says(word);
    }
    world.run("fork-bomb").is(64).says("there is no command");
}

#[test]
fn a_wrong_task_names_file_key_and_line() {
    let world = World::new();
    world.write("s.toml", &says("x"));
    let head = "goal = \"g\"\nmodel = \"script/s.toml\"\n";
    for (text, places) in [
        ("goal = \"g\"\nmodel = ", &["task.toml", "line 2"][..]),
        (&format!("{head}[budget]\nturns = -3\n"), &["task.toml", "line 4", "budget.turns"]),
        (&format!("{head}[budget]\nturn = 3\n"), &["task.toml", "line 4", "turn"]),
        (&format!("{head}[[tools]]\nname = \"a\"\ncommand = []\neffect = \"read\"\n"), &["task.toml", "command"]),
        (&format!("{head}[[tools]]\nname = \"a b\"\ncommand = [\"x\"]\neffect = \"read\"\n"), &["line 4", "name"]),
        (&format!("{head}[inputs]\nx = \"nowhere.json\"\n"), &["task.toml", "nowhere.json"]),
        (&format!("{head}[policy]\nallow = [\"pay\"]\n"), &["pay"]),
        (&format!("{head}[answer]\ncheck = \"1 +\"\n"), &["answer"]),
    ] {
        world.write("task.toml", text);
        let done = world.run("run --task task.toml --id t").is(65);
        for place in places {
            assert!(done.stderr.contains(place), "{place} is not in: {}", done.stderr);
        }
        world.run("show t").is(66);
    }
    world.run("run --task nowhere.toml").is(65).says("nowhere.toml");
    world.write("s.toml", "[[reply]]\nnonsense = 1\n");
    world.write("task.toml", head);
    let done = world.run("run --task task.toml");
    assert!([65, 78].contains(&done.status()), "{}", done.stderr);
    assert!(done.stderr.contains("nonsense"), "{}", done.stderr);
}

#[test]
fn a_wrong_configuration_is_78() {
    let world = World::new();
    world.write("s.toml", &says("x"));
    let config = world.user().join(".config/longrein/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    for (text, word) in [
        ("model = ", "line 1"),
        ("modle = \"script/s.toml\"\n", "modle"),
        ("\nmodel = 3\n", "line 2: invalid type: integer `3`"),
        ("[models.\"openai/x\"]\nprice = 5\n", "line 2: invalid type: integer `5`, expected a table such as { input"),
    ] {
        std::fs::write(&config, text).unwrap();
        let wrong = world.run("run Hi -m script/s.toml").is(78).says("config.toml").says(word);
        assert_eq!(wrong.stderr.lines().count(), 1, "{}", wrong.stderr);
    }
    std::fs::write(&config, "model = \"x\"\n").unwrap();
    world.run("run Hi").is(78).says("config.toml").says("\"x\" names no model");
    let model = format!("model = \"script/{}\"\n", world.path("s.toml").display());
    std::fs::write(&config, model).unwrap();
    world.run("run Hi").is(0);
    std::fs::remove_file(&config).unwrap();
    let nameless = world.run("run Hi").is(78).says("no model is named");
    assert_eq!(nameless.last_line(), "longrein models");
    world.run("run Hi -m nobody/knows").is(78);
    world.run("run Hi -m openai/x").is(78);
    world.run("run Hi -m script/s.toml --max-budget-usd 1").is(0);
    world.longrein(["run", "Hi", "-m", "openai/x", "--max-budget-usd", "1"]).env("OPENAI_API_KEY", "k").done().is(78);
}

#[test]
fn configuration_that_is_there_and_cannot_be_read_is_not_none() {
    use std::fs;
    use std::os::unix::fs::symlink;
    let world = World::new();
    world.write("s.toml", &says("hi").repeat(9));
    let folder = world.user().join(".config/longrein");
    let config = folder.join("config.toml");
    let run = || world.run("run Hi -m script/s.toml");
    run().is(0);
    let parent = folder.parent().unwrap();
    fs::create_dir_all(parent).unwrap();
    run().is(0);
    symlink("nowhere", &folder).unwrap();
    run().is(78).says("config.toml").says("a link that leads nowhere");
    fs::remove_file(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    run().is(78).says("config.toml");
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    run().is(0);
    fs::create_dir(&config).unwrap();
    run().is(78).says("config.toml");
    fs::remove_dir(&config).unwrap();
    symlink("nowhere", &config).unwrap();
    run().is(78).says("config.toml").says("a link that leads nowhere");
    world.run("policy check shell").is(78);
    fs::remove_file(&config).unwrap();
    symlink("config.toml", &config).unwrap();
    run().is(78).says("config.toml");
    fs::remove_file(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    run().is(78).says("config.toml").says("no regular file");
    fs::remove_file(&config).unwrap();
    symlink("/dev/null", &config).unwrap();
    run().is(78).says("no regular file");
    fs::remove_file(&config).unwrap();
    fs::write(&config, [0xff, 0xfe]).unwrap();
    run().is(78).says("config.toml");
    // A link to a file is how many keep theirs.
    fs::remove_file(&config).unwrap();
    fs::write(folder.join("real.toml"), "permission_mode = \"ask\"\n").unwrap();
    symlink("real.toml", &config).unwrap();
    run().is(0).says("permission mode: ask");
}

#[test]
fn the_door_does_not_open_from_inside() {
    let world = asking();
    for line in ["run --task task.toml", "runs", "approve w a1", "frobnicate"] {
        let done = world.typed(&format!("longrein {line}")).env("LONGREIN_INSIDE", "w/a1/1").done();
        assert!([64, 78].contains(&done.status()), "{line}: {}", done.stderr);
        assert!(done.stdout.is_empty());
    }
    for line in ["--version", "--help"] {
        world.typed(&format!("longrein {line}")).env("LONGREIN_INSIDE", "w/a1/1").done().is(0);
    }
    // A tool that tries is inside.
    let binary = env!("CARGO_BIN_EXE_longrein");
    let more = tool("escape", "read", &format!("LONGREIN_HOME={} {binary} runs 2>&1", world.home().display()), "");
    task(&world, &more, &(calls("escape", "{}") + &says("done")));
    // The mark alone must do, where no walls hide the binary.
    world.run("run --task task.toml --id e --sandbox external").is(0);
    let log = world.log("e");
    assert!(of_type(&log, "action.finished")[0].to_string().contains("cannot operate Longrein"));
}

#[test]
fn a_workspace_around_the_home_is_refused() {
    let world = asking();
    let root = world.work().parent().unwrap().to_owned();
    let done = world.run(&format!("run --task task.toml -C {}", root.display())).is(78);
    assert!(done.stderr.contains("workspace"), "{}", done.stderr);
    world.run("run --task task.toml --cd nowhere").is(65);
}

#[test]
fn no_such_run_is_66() {
    let world = asking();
    world.run("show x").is(66).says("there is no store");
    world.run("run --task task.toml --id other --on-ask wait").is(3);
    world.run("cancel other").is(0);
    for line in [
        "show x",
        "log x",
        "verify x",
        "resume x",
        "send x hi",
        "approve x a1",
        "deny x a1",
        "cancel x",
        "settle x a1 --as done",
    ] {
        world.run(line).is(66).says("x");
    }
    world.run("resume --last").is(66);
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    world.run("approve w a9").is(66);
    world.run("settle w a9 --as done").is(66);
    world.run("approve w nonsense").is(64);
}

// ---- looking ----

#[test]
fn ids_may_be_shortened_while_they_are_unique() {
    let world = asking();
    for id in ["alpha-1", "alpha-2", "beta"] {
        world.run(&format!("run --task task.toml --id {id} --on-ask wait")).is(3);
    }
    assert!(world.run("show b").is(0).stdout.contains("beta"));
    world.run("show alpha").is(66).says("alpha-1").says("alpha-2");
    world.run("approve alpha-1 a1").is(0);
    world.run("show alpha-1").is(0);
}

#[test]
fn listings_show_every_run() {
    let world = asking();
    let none = world.run("runs").is(0);
    assert!(none.stdout.is_empty());
    world.run("approvals").is(0).says("nothing waits");
    world.run("resume").is(0).says("no run is unfinished");

    world.run("run --task task.toml --id waits --on-ask wait").is(3);
    world.run("run --task task.toml --id done --allow act").is(0);
    let listed = world.run("runs").is(0).stdout;
    assert!(listed.contains("waits") && listed.contains("waiting") && listed.contains("Do it."), "{listed}");
    let rows = world.run("runs --json").is(0).last_json();
    let states: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["run"], &row["state"])).collect();
    assert!(states.contains(&(&"waits".into(), &"waiting".into())), "{states:?}");
    assert!(states.contains(&(&"done".into(), &"done".into())), "{states:?}");
    let unfinished = world.run("resume").is(0).stdout;
    assert!(unfinished.contains("waits") && !unfinished.contains("done"), "{unfinished}");
    let unfinished = world.run("resume --json").is(0).last_json();
    assert_eq!((&unfinished[0]["run"], unfinished.as_array().map(Vec::len)), (&"waits".into(), Some(1)));
    let waiting = world.run("approvals --json").is(0).last_json();
    assert_eq!((&waiting[0]["run"], &waiting[0]["action"]), (&"waits".into(), &"a1".into()));
    assert!(world.run("approvals").is(0).stdout.contains("longrein approve waits a1"));
    let shown = world.run("show waits").is(0).stdout;
    assert!(shown.contains("longrein approve waits a1"), "{shown}");
}

#[test]
fn a_store_that_cannot_be_looked_at_is_not_an_empty_one() {
    let world = asking();
    for line in
        ["runs", "runs --json", "approvals", "resume", "show x", "run --task task.toml", "send x hi", "verify x"]
    {
        world.run(&format!("{line} --store sqlite:task.toml/longrein.db")).is(69);
    }
    world.run("runs --store sqlite:task.toml/longrein.db").says("cannot be looked at");
    world.run("runs --store sqlite:nowhere/longrein.db").is(0).says("no store");
    assert!(world.run("resume --json --store sqlite:nowhere/x.db").is(0).last_json().as_array().unwrap().is_empty());
}

#[test]
fn a_run_that_is_there_is_gone_on_with_by_its_own_model() {
    let world = World::new();
    world.write("s.toml", &says("x"));
    world.run("run Hi --id r -m script/s.toml").is(0);
    assert_eq!(world.run("run Hi --id r").is(0).answer(), "x");
    world.run("run Ho --id r").is(65).says("another goal");
    world.run("run Hi --id r -m openai/x").is(65).says("another model");
}

#[test]
fn the_log_is_followed_to_its_end() {
    let world = slow("read", 1);
    let mut run = begun(&world);
    let follow = world.typed("longrein log r --follow").start();
    assert!(run.is_running());
    run.end().is(0);
    let log = follow.end().is(0).stdout;
    assert!(log.contains("act") && log.contains("done"), "{log}");
    assert!(world.run("log r").is(0).stdout.lines().count() >= log.lines().count());
}

#[test]
fn what_a_tool_prints_cannot_touch_the_terminal() {
    let world = World::new();
    let loud = r#"printf '\033]0;owned\007 \033[31mred \342\200\256rtl'; exit 3"#;
    task(&world, &tool("loud", "read", loud, ""), &(calls("loud", "{}") + "[[reply]]\ntext = \"a\\u001b[2Jb\"\n"));
    let run = world.run("run --task task.toml --id l").is(0);
    let human = [run.stderr, world.run("log l").stdout, world.run("show l").stdout, world.run("runs").stdout].concat();
    for bad in ['\u{1b}', '\u{7}', '\u{202e}'] {
        assert!(!human.contains(bad), "{bad:?} in {human:?}");
    }
    assert!(human.contains("\\u{1b}"), "made visible: {human}");
}

#[test]
fn no_colour_and_quiet() {
    let world = asking();
    let done = world.typed("longrein run --task task.toml --id q --quiet").env("NO_COLOR", "1").done().is(0);
    assert_eq!(done.stderr, "");
    assert!(!world.run("log q").stdout.contains('\u{1b}'));
    let quiet = world.run("run --task task.toml --id qw -q --on-ask wait").is(3);
    assert_eq!(quiet.last_line(), "longrein approve qw a1", "what goes on is said all the same");
}

#[test]
fn damage_is_found_and_the_run_left_alone() {
    let world = asking();
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    world.verify("w");
    let store = rusqlite::Connection::open(world.home().join("longrein.db")).unwrap();
    let change =
        "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'act', 'axt') AS BLOB) WHERE run = 'w' AND seq = 4";
    assert_eq!(store.execute(change, ()).unwrap(), 1);
    store.close().unwrap();
    world.run("verify w").is(65);
    world.run("runs").is(0);
    world.run("log w").is(0);
    world.run("resume w").is(65);
    assert_eq!(booked(&world, "act"), 0);
}

#[test]
fn the_store_is_private_and_can_be_elsewhere() {
    use std::os::unix::fs::PermissionsExt;
    let world = asking();
    world.run("run --task task.toml --id w").is(0);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.home()), 0o700);
    assert_eq!(mode(&world.home().join("longrein.db")), 0o600);

    let elsewhere = world.user().join("other.db");
    let store = format!("--store sqlite:{}", elsewhere.display());
    let parked = world.run(&format!("run --task task.toml --id e --on-ask wait {store}")).is(3);
    world.run("show e").is(66);
    go_on(&world, &parked).is(0);
    // Every way out reaches the same store.
    let refused = world.run(&format!("run --task task.toml --id e --max-turns 3 {store}")).is(65);
    go_on(&world, &refused).is(0);
    world.run(&format!("show nobody {store}")).is(66).says("--store");
    world.run("run --task task.toml --store memory: --allow act").is(0);
    world.run("runs --store nonsense:x").is(69);
}

// ---- people ----

#[test]
fn what_was_denied_because_nobody_could_be_asked_is_told_at_the_end() {
    let world = World::new();
    let tools = tool("act", "external", &books("act"), "") + &tool("bar", "external", &books("bar"), "");
    let two = "[[reply]]\ncalls = [{ name = \"act\", args = {} }, { name = \"bar\", args = {} }]\n";
    let replies = format!("{two}{}{}", calls("act", "{}"), says("done"));
    task(&world, &format!("[policy]\ndeny = [\"bar\"]\n{tools}"), &replies);
    let told = "2 calls were denied because nobody could be asked: a1 act, a3 act; allow them with --allow RULE or answer \
                them with --on-ask wait";
    let done = world.run("run --task task.toml --id w").is(0);
    assert_eq!(done.stderr.lines().filter(|line| *line == told).count(), 1, "{}", done.stderr);
    let again = world.run("run --task task.toml --id w").is(0);
    assert!(again.stderr.contains(told), "it is as true when the answer is printed again: {}", again.stderr);
    for line in ["--id q --quiet", "--id j --json", "--id a --allow act"] {
        let done = world.run(&format!("run --task task.toml {line}")).is(0);
        assert!(!format!("{}{}", done.stdout, done.stderr).contains("nobody could be asked:"), "{line}");
    }
    // What a person denied was asked.
    let parked = world.run("run --task task.toml --id p --on-ask wait").is(3);
    assert!(!parked.stderr.contains("nobody could be asked"), "{}", parked.stderr);
    world.run("deny p a1").is(0);
    world.run("resume p --on-ask wait").is(3);
    let last = world.run("resume p --on-ask deny").is(0);
    assert!(
        last.stderr.contains("1 call was denied because nobody could be asked: a3 act; allow it"),
        "{}",
        last.stderr
    );
}

#[test]
fn a_yes_from_another_process_runs_it_once() {
    let world = asking();
    let parked = world.run("run --task task.toml --id w --on-ask wait").is(3);
    assert_eq!(parked.last_line(), "longrein approve w a1");
    assert_eq!(booked(&world, "act"), 0);
    let approved = go_on(&world, &parked).is(0);
    world.run("approve w a1").is(65).says("answered already");
    let done = go_on(&world, &approved).is(0);
    assert_eq!(done.answer(), "done");
    world.run("approve w a1").is(65);
    world.run("resume w").is(0);
    assert_eq!(booked(&world, "act"), 1);
    world.verify("w");
}

#[test]
fn a_no_reaches_the_model_with_its_reason() {
    let world = World::new();
    wire_task(&world, &tool("act", "external", &books("act"), ""));
    let server = Server::playing([wire_calls(&[("c", "act", "{}")]), text("fine")]);
    server.call(&world, "run --task task.toml --id w --on-ask wait").done().is(3);
    world.run("deny w a1 --reason 'too dear'").is(0);
    world.run("deny w a1").is(65);
    server.call(&world, "resume w").done().is(0);
    let told = server.asked()[1].observations()[0].to_string();
    assert!(told.contains("too dear") && told.contains("denied"), "{told}");
    assert_eq!(booked(&world, "act"), 0);
    assert_eq!(world.show("w")["failed_calls"], 1);
}

#[test]
fn nobody_to_ask_is_a_no() {
    for line in ["run --task task.toml --id w", "run --task task.toml --id w --on-ask deny"] {
        let world = asking();
        world.run(line).is(0);
        assert_eq!(booked(&world, "act"), 0);
        let log = world.log("w");
        assert_eq!(of_type(&log, "action.denied").len() + of_type(&log, "action.refused").len(), 1);
    }
}

#[test]
fn rules_on_the_command_line() {
    for (flag, booked_times) in [("--allow act", 1), ("--allow *", 1), ("--deny act", 0), ("--allow act --deny *", 0)] {
        let world = asking();
        world.run(&format!("run --task task.toml --id w {flag}")).is(0);
        assert_eq!(booked(&world, "act"), booked_times, "{flag}");
    }
    let world = asking();
    world.run("run --task task.toml --allow nobody").is(64).says("nobody");
    world.run("run --task task.toml --ask act --allow act --on-ask wait --id w").is(3);
}

#[test]
fn an_unknown_effect_waits_for_the_truth() {
    for (truth, state) in [("done", "done (settled)"), ("not-done", "not done (settled)")] {
        let world = doubtful();
        let parked = world.run("run --task task.toml --id w").is(3);
        assert!(parked.last_line().starts_with("longrein settle w a1 --as 'done|not-done'"), "{}", parked.stderr);
        world.run("resume w").is(3);
        assert_eq!(booked(&world, "act"), 1, "it is not tried again");
        // as a shell takes the line when it is pasted: neither of the two, and no pipe
        let pasted = parked.last_line().replace('\'', "");
        world.typed(&pasted).done().is(64).says("done, not-done");
        let settled = world.run(&format!("settle w a1 --as {truth}")).is(0);
        for other in ["done", "not-done"] {
            world.run(&format!("settle w a1 --as {other}")).is(65).says("longrein resume w");
        }
        let done = go_on(&world, &settled).is(0);
        assert_eq!(done.answer(), "done");
        assert_eq!(world.show("w")["ledger"][0]["state"], state);
        world.run(&format!("settle w a1 --as {truth}")).is(65);
        world.verify("w");
    }
}

#[test]
fn a_settlement_brings_its_result() {
    let world = doubtful();
    world.write("replies.toml", &(calls("act", "{}") + "[[reply]]\nwhen = \"receipt-7\"\ntext = \"done\"\n"));
    world.run("run --task task.toml --id w").is(3);
    world.run("settle w a1 --as done --result nonsense").is(64);
    world.run("settle w a1 --as not-done --result 1").is(64);
    world.longrein(["settle", "w", "a1", "--as", "done", "--result", r#"{"receipt":"receipt-7"}"#]).done().is(0);
    world.run("resume w").is(0);
}

#[test]
fn what_is_sent_reaches_resting_and_running_runs() {
    let world = World::new();
    let replies = says("first") + "[[reply]]\nwhen = \"And then?\"\ntext = \"second\"\n";
    task(&world, "", &replies);
    assert_eq!(world.run("run --task task.toml --id w").is(0).answer(), "first");
    world.run("send w ''").is(64);
    let sent = world.run("send w 'And then?'").is(0);
    assert_eq!(go_on(&world, &sent).is(0).answer(), "second");
    let done = world.run("resume w --message 'And then?'");
    assert_eq!(done.status(), 4, "the script is over: {}", done.stderr);

    let world = slow("read", 2);
    world.write("replies.toml", &(calls("act", "{}") + "[[reply]]\nwhen = \"Hurry!\"\ntext = \"hurried\"\n"));
    let run = begun(&world);
    world.run("send r Hurry!").is(0).says("takes it");
    assert_eq!(run.end().is(0).answer(), "hurried");
}

// ---- cancelling and stopping ----

#[test]
fn a_parked_run_is_cancelled_and_takes_nothing_more() {
    let world = asking();
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    let cancelled = world.run("cancel w").is(0);
    assert!(cancelled.stdout.contains("not done: a1"), "{}", cancelled.stdout);
    world.run("resume w").is(7);
    world.run("run --id w").is(7);
    world.run("send w hello").is(65);
    world.run("approve w a1").is(65);
    world.run("cancel w").is(65);
    assert_eq!(world.run("run --id w --json").is(7).last_json()["state"], "cancelled");
    assert_eq!(booked(&world, "act"), 0);
    world.verify("w");
}

#[test]
fn a_run_that_is_done_is_not_cancelled() {
    let world = asking();
    world.run("run --task task.toml --id w --allow act").is(0);
    world.run("cancel w").is(65).says("ended already");
    world.run("run --id w").is(0);
}

#[test]
fn a_running_run_is_cancelled_from_another_process() {
    let world = slow("read", 60);
    let run = begun(&world);
    let began = Instant::now();
    world.run("cancel r").is(0);
    run.end().is(7);
    assert!(began.elapsed() < Duration::from_secs(5), "a read is given up at once: {:?}", began.elapsed());
    world.verify("r");

    let world = slow("external", 2);
    let run = begun(&world);
    let cancelled = world.run("cancel r").is(0);
    assert!(cancelled.stdout.contains("done: a1"), "{}", cancelled.stdout);
    run.end().is(7);
    assert_eq!((booked(&world, "begun"), booked(&world, "ended")), (1, 1), "an effect under way is let end");
}

#[test]
fn a_change_of_the_workspace_that_a_cancel_cut_off_is_not_called_nothing() {
    let world = slow("workspace", 60);
    let run = begun(&world);
    let cancelled = world.run("cancel r").is(0);
    run.end().is(7);
    assert_eq!(
        cancelled.stdout.lines().last(),
        Some("no call is done; one that was cut off or failed may have changed files")
    );

    let world = asking();
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    assert!(world.run("cancel w").is(0).stdout.contains("nothing was changed"));
}

#[test]
fn cancelling_an_unknown_effect_says_so() {
    let world = doubtful();
    world.run("run --task task.toml --id w").is(3);
    let cancelled = world.run("cancel w").is(0);
    assert!(cancelled.stdout.contains("unknown: a1"), "{}", cancelled.stdout);
    let done = world.run("run --id w").is(7);
    assert!(done.last_line().starts_with("longrein settle w a1"), "{}", done.stderr);
    go_on(&world, &done).is(0);
    assert_eq!(world.run("run --id w --json").is(7).last_json()["unknown"], Value::Array(vec![]));
}

#[test]
fn signals_during_a_tool() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let world = slow("read", 60);
        let run = begun(&world);
        let began = Instant::now();
        run.signal(signal);
        let stopped = run.end().is(status);
        assert!(began.elapsed() < Duration::from_secs(3), "{signal}: {:?}", began.elapsed());
        assert_eq!(stopped.last_line(), "longrein resume r");
        assert_eq!(world.show("r")["state"], "suspended");
        world.run("cancel r").is(0);
        world.verify("r");
    }
}

#[test]
fn an_effect_that_a_signal_cuts_off_is_unknown() {
    let world = slow("external", 60);
    let run = begun(&world);
    let began = Instant::now();
    run.signal("INT");
    let stopped = run.end().is(130);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let parked = go_on(&world, &stopped).is(3);
    assert!(parked.last_line().starts_with("longrein settle r a1"), "{}", parked.stderr);
    assert_eq!(booked(&world, "begun"), 1, "it was not started again");
}

#[test]
fn signals_during_a_model_call() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let world = World::new();
        task(&world, "", &says("late").replace("[[reply]]", "[[reply]]\ndelay = \"60s\""));
        let run = world.typed("longrein run --task task.toml --id r --json").start();
        world.until("the call", || (world.run("runs --json").last_json()[0]["state"] == "running").then_some(()));
        let began = Instant::now();
        run.signal(signal);
        let last = run.end().is(status).last_json();
        assert!(began.elapsed() < Duration::from_secs(3), "{signal}: {:?}", began.elapsed());
        assert_eq!((&last["type"], &last["model_calls"]), (&"run.suspended".into(), &1.into()));
        world.write("quick.toml", &says("in time"));
        assert_eq!(world.run("resume r --model script/quick.toml").is(0).answer(), "in time");
        assert_eq!(world.show("r")["model_calls"], 2, "the call that was given up is counted");
        assert_eq!(world.show("r")["recoveries"], 0, "an orderly stop is no death");
    }
}

// ---- ends ----

#[test]
fn every_budget_ends_in_2_and_says_how_to_go_on() {
    for (flag, add) in [
        ("--max-turns 2", "--add-turns"),
        ("--max-model-calls 2", "--add-model-calls"),
        ("--max-tool-calls 1", "--add-tool-calls"),
        ("--max-tokens-total 4000", "--add-tokens"),
        ("--max-time 1s", "--add-time"),
    ] {
        let world = World::new();
        let slow = tool("look", "read", "sleep 0.6; echo 1", "");
        let look = calls("look", "{}").replace("input = 100", "input = 1000");
        task(&world, &slow, &(look.repeat(4) + &says("done")));
        let done = world.run(&format!("run --task task.toml --id b {flag}")).is(2);
        assert!(done.last_line().starts_with(&format!("longrein resume b {add}")), "{flag}: {}", done.stderr);
        let last = world.run("run --id b --json").is(2).last_json();
        assert_eq!((&last["state"], &last["answer"]), (&"exhausted".into(), &Value::Null), "{flag}");
        go_on(&world, &done).is(0);
        world.verify("b");
    }
}

#[test]
fn checks_decide_what_done_means() {
    let world = World::new();
    let acceptance = "[[acceptance]]\nname = \"there\"\ncommand = [\"test\", \"-f\", \"made\"]\n";
    let make = tool("make", "workspace", "touch made", "");
    let replies = says("I did.") + &calls("make", "{}") + &says("Now I did.");
    task(&world, &format!("[policy]\nallow = [\"make\"]\n{acceptance}{make}"), &replies);
    let done = world.run("run --task task.toml --id c --json").is(0);
    let last = done.last_json();
    assert_eq!((&last["answer"], &last["verified"]), (&"Now I did.".into(), &true.into()));
    assert_eq!(of_type(&done.json(), "check.finished").len(), 2);

    let world = World::new();
    task(&world, "", &says("I did.").repeat(9));
    let failed = world.run("run --task task.toml --id c --check 'test -f made'").is(4);
    assert!(failed.last_line().starts_with("longrein resume c --message"), "{}", failed.stderr);
    world.write("made", "");
    go_on(&world, &failed).is(0);
}

#[test]
fn a_script_that_does_not_fit_is_4() {
    let world = World::new();
    task(&world, "", "[[reply]]\nwhen = \"the moon\"\ntext = \"x\"\n");
    world.run("run --task task.toml --id s").is(4).says("the moon");
}

#[test]
fn variables_fill_the_task_in() {
    let world = World::new();
    world.write("s.toml", "[[reply]]\nwhen = \"in Bremen\"\ntext = \"rain\"\n");
    world.write("task.toml", "goal = \"The weather in ${CITY}?\"\nmodel = \"script/s.toml\"\nworkspace = \".\"\n");
    world.run("run --task task.toml --id v --var CITY=Bremen").is(0);
    world.run("run --task task.toml --id v --var CITY=Rome").is(65);
    world.run("run --task task.toml").is(65).says("CITY");
}

// ---- secrets ----

#[test]
fn a_secret_is_given_to_its_tool_and_to_nobody_else() {
    const SECRET: &str = "tok-4f9a77c1d2e3b5a6";
    let world = World::new();
    let leaky = tool(
        "leak",
        "external",
        "echo \"using $X\"; echo \"$X\" >&2; printf '%s' \"$X\" | sha256sum > proof; exit 1",
        "env = [\"X=${secret:TOKEN}\"]",
    );
    task(&world, &format!("[policy]\nallow = [\"leak\"]\n{leaky}"), &(calls("leak", "{}") + &says("done")));
    world.run("run --task task.toml --id none").is(65).says("TOKEN");
    let json = world.typed("longrein run --task task.toml --id s --json").env("TOKEN", SECRET).done().is(3);
    let plain = world.typed("longrein run --task task.toml --id p").env("TOKEN", SECRET).done().is(3);
    let log = [world.run("log s").stdout, world.run("log s --json").stdout, world.run("show s --json").stdout].concat();
    for (place, text) in [("json", &json.stdout), ("stderr", &plain.stderr), ("log", &log)] {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    assert!(log.contains("[redacted"), "{log}");
    let secret = SECRET.as_bytes();
    assert!(!world.store_bytes().windows(secret.len()).any(|found| found == secret));
    assert!(!world.read("proof").is_empty(), "the tool had it");
    world.run("settle s a1 --as done").is(0);
}

#[test]
fn a_secret_that_the_model_itself_writes_is_kept_nowhere() {
    const SECRET: &str = "tok-4f9a77c1d2e3b5a6";
    const ESCAPED: &str = "\\u0074ok-4f9a77c1d2e3b5a6";
    let world = World::new();
    let knows = tool("knows", "external", &books("knows"), "env = [\"X=${secret:TOKEN}\"]");
    let call = format!("calls = [{{ name = \"knows\", args = {{ text = 'x {SECRET}' }} }}]");
    let replies =
        format!("[[reply]]\ntext = 'it is {SECRET}'\n{call}\n[[reply]]\ntext = '{SECRET} or \"{ESCAPED}\"'\n");
    task(&world, &format!("[policy]\nallow = [\"knows\"]\n{knows}"), &replies);
    let plain = world.typed("longrein run --task task.toml --id p").env("TOKEN", SECRET).done().is(0);
    assert_eq!(plain.answer(), "[redacted:TOKEN] or \"[redacted:TOKEN]\"");
    let json = world.typed("longrein run --task task.toml --id j --json").env("TOKEN", SECRET).done().is(0);
    assert_eq!(booked(&world, "knows"), 0);
    let log = world.log("p");
    let [refused] = of_type(&log, "action.refused")[..] else { panic!("{log:?}") };
    assert!(refused["error"]["message"].as_str().unwrap().contains("the secret TOKEN"), "{refused}");
    let shown = world.run("show p --json").stdout;
    let bytes = world.store_bytes();
    let places: [&[u8]; 5] =
        [&bytes, plain.stdout.as_bytes(), plain.stderr.as_bytes(), json.stdout.as_bytes(), shown.as_bytes()];
    let secret = &SECRET.as_bytes()["tok".len()..];
    for place in places {
        assert!(!place.windows(secret.len()).any(|found| found == secret), "{}", String::from_utf8_lossy(place));
    }
    world.verify("p");
}

#[test]
fn a_secret_that_a_person_or_a_rule_file_writes_is_kept_and_sent_nowhere() {
    const SECRET: &str = "tok-4f9a77c1d2e3b5a6";
    const SHAPED: &str = "ghp_1234567890abcdefghijABCDEFGHIJ123456";
    let world = World::new();
    let knows = tool("knows", "external", "true", "env = [\"X=${secret:TOKEN}\"]").replace("Does", SECRET);
    let more = format!("constraints = [\"Never say {SECRET}.\"]\nbuiltins = [\"read_file\"]\n{knows}");
    world.write("AGENTS.md", &format!("Log in as {SECRET}; push as {SHAPED}.\n"));
    world.write("pkg/AGENTS.md", &format!("The tests need {SECRET}.\n"));
    let read = calls("read_file", "{ path = \"pkg/AGENTS.md\" }");
    task(&world, &more, &format!("{read}{}{}{}", calls("read_file", "{ path = \"AGENTS.md\" }"), says("b"), says("c")));
    let text = world.read("task.toml").replace("Do it.", &format!("Do it as {SECRET}."));
    world.write("task.toml", &text);
    let run = || world.typed("longrein run --task task.toml --id s").env("TOKEN", SECRET).done();
    run().is(0);
    // The same task, whatever of it was kept.
    run().is(0);
    world.longrein(["send", "s", &format!("And now {SECRET}.")]).done().is(0);
    let done = world.typed("longrein resume s").env("TOKEN", SECRET).done().is(0);
    let kept = [world.run("export s --format jsonl --raw").stdout, world.run("context s").stdout, done.stderr].concat();
    let told = kept.clone() + &world.run("context s --turn 1 --json").stdout;
    for (secret, mark) in [(SECRET, "as [redacted:TOKEN]"), (SHAPED, "push as [redacted:")] {
        assert!(!told.contains(secret) && told.contains(mark), "{told}");
    }
    for place in ["say [redacted:TOKEN]", "need [redacted:TOKEN]", "now [redacted:TOKEN]", "[redacted:TOKEN] knows"] {
        assert!(kept.contains(place), "{place}: {kept}");
    }
    // Another one is another task.
    world.write("task.toml", &text.replace("Do it as", "Do that as"));
    run().is(65).says("another goal");
}

/// Whoever sends something keeps out of it what they know; and a schema is read by the model like any other word.
#[test]
fn a_secret_in_what_is_sent_or_in_a_schema_is_kept_nowhere() {
    const SECRET: &str = "tok-4f9a77c1d2e3b5a6";
    const KEY: &str = "sk-0123456789-of-a-model";
    let world = World::new();
    let knows = tool("knows", "external", "true", "env = [\"X=${secret:TOKEN}\"]");
    let parameters = format!(
        "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.who]\nenum = [\"{SECRET}\", \"nobody\"]\n\
         description = \"Who: {SECRET} or nobody.\"\n"
    );
    let schemas = format!(
        "[answer.schema]\ntype = \"object\"\ndescription = \"Not {SECRET}.\"\n[[acceptance]]\nname = \"fits\"\n\
         [acceptance.schema]\ntype = \"object\"\ntitle = \"{SECRET}\"\n"
    );
    let replies = calls("knows", "{ who = \"nobody\" }") + &says("{}").repeat(3);
    task(&world, &format!("[policy]\nallow = [\"knows\"]\n{knows}{parameters}{schemas}"), &replies);
    // The task's own file is none of the workspace, which is kept as it is.
    world.write("work/here.txt", "");
    world.write("task.toml", &world.read("task.toml").replace("workspace = \".\"", "workspace = \"work\""));
    let call = |line: &str| world.typed(line).env("TOKEN", SECRET).env("OPENAI_API_KEY", KEY).done();
    let run = || call("longrein run --task task.toml --id s").is(0);
    run();
    // The same task, whatever of it was kept.
    run();
    call(&format!("longrein send s 'As {SECRET}, by {KEY}.'")).is(0);
    let waits = world.run("show s --json").is(0).last_json()["inbox"][0]["text"].to_string();
    assert_eq!(waits, "\"As [redacted:TOKEN], by [redacted:model-api-key].\"");
    call("longrein resume s").is(0);
    let told = world.run("context s --json").is(0).stdout;
    assert!(told.contains("Who: [redacted:TOKEN] or nobody") && told.contains("Not [redacted:TOKEN]"), "{told}");
    let store = world.store_bytes();
    for secret in [SECRET, KEY] {
        assert!(!store.windows(secret.len()).any(|found| found == secret.as_bytes()), "{secret}");
    }
}

#[test]
fn arguments_that_hold_a_secret_are_refused() {
    const SECRET: &str = "tok-4f9a77c1d2e3b5a6";
    let world = World::new();
    let knows = tool("knows", "external", &books("knows"), "env = [\"X=${secret:TOKEN}\"]");
    let replies = calls("knows", &format!("{{ text = \"{SECRET}\" }}")) + &says("done");
    task(&world, &format!("[policy]\nallow = [\"knows\"]\n{knows}"), &replies);
    world.typed("longrein run --task task.toml --id s").env("TOKEN", SECRET).done().is(0);
    assert_eq!(booked(&world, "knows"), 0);
}

#[test]
fn a_prompt_without_quotes_is_answered_with_the_command_that_was_meant() {
    let world = World::new();
    let done = world.run("run fix the bug").is(64);
    assert_eq!(done.last_line(), "longrein run 'fix the bug'", "{}", done.stderr);
    for other in ["run --nonsense", "run fix --nonsense bug", "show a b"] {
        assert!(!world.run(other).is(64).stderr.contains("goes in quotes"), "{other}");
    }
}

#[test]
fn what_a_rollback_would_do_is_explained_and_the_command_is_there() {
    let world = World::new();
    world.write("old.txt", "as it was\n");
    let acts = calls("read_file", "{ path = \"old.txt\" }")
        + &calls("write_file", "{ path = \"old.txt\", content = \"new\" }")
        + &calls("write_file", "{ path = \"new.txt\", content = \"new\" }");
    task(
        &world,
        "builtins = [\"read_file\", \"write_file\"]\n[policy]\nallow = [\"write_file\"]\n",
        &(acts + &says("done")),
    );
    world.run("run --task task.toml --id r").is(0);
    let asked = world.run("rollback r").is(64);
    for said in ["~ gets back what it held", "- goes", "~ old.txt", "- new.txt"] {
        assert!(asked.stdout.contains(said), "{said}: {}", asked.stdout);
    }
    assert!(!asked.stdout.contains("+ comes back"), "only what is there is explained: {}", asked.stdout);
    assert_eq!(asked.last_line(), "longrein rollback r --yes");
    go_on(&world, &asked).is(0);
    assert_eq!(world.read("old.txt"), "as it was\n");
    assert!(!world.path("new.txt").exists());
}

#[test]
fn an_mcp_server_on_a_terminal_says_what_it_waits_for() {
    let world = World::new();
    let mut terminal = world.typed("longrein mcp").on_terminal(100);
    terminal.wait_for("speaks MCP on standard input; Ctrl-C ends it");
    // the end of input ends it as well
    terminal.type_in("\u{4}");
    terminal.end();
    assert!(!world.longrein(["mcp"]).done().stderr.contains("speaks MCP"), "programs are not told");
}

// ---- what other programs see ----

#[test]
fn an_error_with_json_is_json_and_the_way_out_is_still_the_last_line() {
    let world = asking();
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    let missing = world.run("show nobody --json").is(66);
    let error: Value = serde_json::from_str(missing.stderr.lines().next().unwrap()).unwrap();
    assert_eq!((&error["type"], &error["status"], &error["v"]), (&"error".into(), &66.into(), &1.into()), "{error}");
    assert!(error["problem"].as_str().unwrap().contains("nobody"), "{error}");
    assert_eq!(error["way_out"], missing.last_line());
    for line in ["show r --nonsense --json", "runs --json extra"] {
        let usage = world.run(line).is(64);
        let error: Value = serde_json::from_str(usage.stderr.lines().next().unwrap()).unwrap();
        assert_eq!((&error["type"], &error["status"]), (&"error".into(), &64.into()), "{error}");
    }
    let quoted = world.run("show nobody").is(66);
    assert!(quoted.stderr.starts_with("longrein: "), "{}", quoted.stderr);
}

#[test]
fn always_from_another_process_covers_the_same_call_and_no_other() {
    let world = World::new();
    let parameters = "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.n]\ntype = \"number\"\n";
    let replies = calls("act", "{ n = 1 }") + &calls("act", "{ n = 1 }") + &calls("act", "{ n = 2 }") + &says("done");
    task(&world, &tool("act", "external", &books("act"), parameters), &replies);
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    assert_eq!(world.run("approvals --json").is(0).last_json()[0]["always"], true);
    world.run("approve r a1 --always").is(0).says("always: act with these very arguments");
    let parked = world.run("resume r --on-ask wait").is(3);
    assert_eq!(parked.last_line(), "longrein approve r a3");
    assert_eq!(booked(&world, "act"), 2);
}

/// A run that has read what anybody may have written: what stands against its calls is named, and how to trust it.
#[test]
fn a_call_denied_for_what_was_read_names_the_source_and_no_rule() {
    let world = World::new();
    let tools = tool("read", "read", "echo hello", "untrusted = true\n") + &tool("act", "external", &books("act"), "");
    let replies = calls("read", "{}") + &calls("act", "{}") + &says("done");
    task(&world, &format!("[policy]\nallow = [\"act\"]\n{tools}"), &replies);
    let denied = world.run("run --task task.toml --id d").is(0);
    assert!(
        denied.stderr.contains("1 call was denied for what the run has read, and no rule lifts that: a2 act"),
        "{}",
        denied.stderr
    );
    assert!(!denied.stderr.contains("--allow RULE"), "{}", denied.stderr);
    let line = denied.stderr.lines().find(|line| line.contains("longrein endorse")).expect("it says how to trust");
    world.run("run --task task.toml --id w --on-ask wait").is(3);
    let listed = world.run("approvals").is(0).stdout;
    assert!(listed.contains("if you trust read: longrein endorse read"), "{listed}");
    let refused = world.run("approve w a2 --always").is(65).says("\"always\" is not offered: this run has read");
    assert_eq!(refused.last_line(), "longrein approve w a2");
    let command = line.rsplit_once(": ").unwrap().1;
    world.typed(command).done().is(0);
    world.run("run --task task.toml --id e").is(0);
    assert_eq!(booked(&world, "act"), 1, "it is trusted now");
}
