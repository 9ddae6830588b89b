//! Tool servers of other people that change, fail or talk too much while a run goes on.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mcp::{Http, called, outcomes, run, server, world};
use crate::support::task::{booked, calls, configure, says, task};
use crate::support::{Done, World, of_type};

const ALLOWED: &str = "[policy]\nallow = [\"mcp__shop__*\"]\n";

#[test]
fn a_server_whose_program_changed_is_held_and_not_started() {
    // by a word of the command, by what its shell text names, and by a variable that stands for the word
    let plain = server("plain", "effect = \"read\"\ntrusted = true");
    let shell = "[mcp.shop]\ncommand = [\"sh\", \"-c\", \"exec python3 ./server.py plain\"]\neffect = \"read\"\ntrusted = true\n";
    let variable = "[mcp.shop]\ncommand = [\"python3\", \"${secret:SHOP:-server.py}\", \"plain\"]\neffect = \"read\"\ntrusted = true\n";
    for declared in [plain.as_str(), shell, variable] {
        let Some(world) = world() else { return };
        let swapped = "open(\"pwned\", \"w\")\n";
        let replies = [
            calls("read_file", "{ path = \"server.py\" }"),
            calls("write_file", &format!("{{ path = \"server.py\", content = \"{}\" }}", swapped.escape_debug())),
            called("count", "{}"),
            says("fine"),
        ];
        let text =
            format!("builtins = [\"read_file\", \"write_file\"]\n{declared}[policy]\nallow = [\"write_file(**)\"]\n");
        task(&world, &text, &replies.concat());
        let done = world.run("run --task task.toml --id w --json --on-ask wait").is(3);
        let events = done.json();
        let held = of_type(&events, "action.held");
        assert!(held.iter().any(|event| event.to_string().contains("server.py is not what")), "{}", done.stdout);
        // nor on resume
        let done = world.run("resume w --json --on-ask wait").is(3);
        let events = done.json();
        let changed = of_type(&events, "surroundings.changed");
        assert!(changed.iter().any(|event| event.to_string().contains("server.py")), "{}", done.stdout);
        assert!(done.stderr.contains("is not started"), "{}", done.stderr);
        assert_eq!((booked(&world, "count"), world.path("pwned").exists()), (0, false));
        // a yes is one to the program as it is now
        world.run("approve w a3").is(0);
        world.run("resume w --json --on-ask deny");
        assert!(world.path("pwned").exists());
        world.verify("w");
    }
}

#[test]
fn definitions_are_compared_again_when_a_server_was_started_again() {
    let Some(world) = world() else { return };
    let replies = [called("swap", "{}"), called("count", "{}"), called("echo", "{}"), says("fine")];
    let text = format!("builtins = []\n{}", server("changing", "effect = \"read\"\ntrusted = true"));
    task(&world, &text, &replies.concat());
    let done = world.run("run --task task.toml --id w --json --on-ask wait").is(3);
    let events = done.json();
    let held = of_type(&events, "action.held");
    assert!(
        held.iter().any(|event| event.to_string().contains("the definition of echo on the MCP server shop")),
        "{}",
        done.stdout
    );
    assert_eq!((booked(&world, "count"), booked(&world, "echo")), (1, 0), "{}", done.stdout);
    world.run("approve w a3").is(0);
    world.run("resume w --json").is(0);
    assert_eq!(booked(&world, "echo"), 1);
    world.verify("w");
}

fn holds(world: &World, secret: &str) -> bool {
    String::from_utf8_lossy(&world.store_bytes()).contains(secret)
}

#[test]
fn secrets_in_what_a_server_says_of_itself_stay_here() {
    let secret = "sesame-open-now-please";
    for mode in ["leaky", "sayskey"] {
        let Some(world) = world() else { return };
        let replies = if mode == "leaky" { called("echo", "{ a = \"b\" }") } else { String::new() };
        let text = format!("builtins = []\n{}", server(mode, "effect = \"read\"\nenv = [\"${secret:SHOP_KEY}\"]"));
        task(&world, &text, &format!("{replies}{}", says("fine")));
        let call = |words: &[&str]| world.longrein(words).env("SHOP_KEY", secret).done().is(0);
        let done = call(&["run", "--task", "task.toml", "--id", "w", "--json"]);
        let looked = call(&["tools", "--task", "task.toml"]);
        for said in [&done.stdout, &done.stderr, &looked.stdout, &looked.stderr] {
            assert!(!said.contains(secret), "{mode}: {said}");
        }
        assert!(!holds(&world, secret), "{mode}");
        if mode == "leaky" {
            assert_eq!(outcomes(&done), ["done"], "{}", done.stderr);
            assert!(done.stderr.contains("its name holds a secret"), "{}", done.stderr);
        } else {
            assert!(done.stderr.contains("[redacted:SHOP_KEY]"), "{}", done.stderr);
        }
    }
}

#[test]
fn an_error_of_an_effect_is_no_evidence() {
    for tool in ["fail", "broken"] {
        let Some(world) = world() else { return };
        let replies = [called(tool, "{}"), says("it failed")];
        let done = run(&world, "", &format!("{}{ALLOWED}", server("plain", "")), &replies).is(0);
        assert_eq!(outcomes(&done), ["error"], "{tool}: {}", done.stdout);
        assert!(done.stdout.contains("It may have happened"), "{}", done.stdout);
        assert_eq!(booked(&world, tool), 1, "it is not made again");
        world.verify("w");
    }
}

/// A run with a server behind HTTP that answers its first call with this status.
fn over_http(status: &str, more: &str, calls: &[String]) -> Option<(World, Done)> {
    let world = world()?;
    let child = Command::new("python3")
        .args(["server.py", "http"])
        .env("STATUS", status)
        .current_dir(world.work())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _http = Http(child);
    let port = world.until("the server listens", || Some(world.read("port")).filter(|port| !port.is_empty()));
    let server = format!(
        "[mcp.shop]\nurl = \"http://127.0.0.1:{port}/mcp?token=${{secret:TOKEN}}\"\n\
         headers = {{ Authorization = \"Bearer letmein\" }}\n{more}\n{ALLOWED}"
    );
    configure(&world, &server);
    task(&world, "builtins = []\n", &calls.concat());
    let done = world.longrein(["run", "--task", "task.toml", "--id", "w", "--json"]).env("TOKEN", "abcdef-1234").done();
    Some((world, done))
}

#[test]
fn an_http_error_says_its_status_and_a_call_that_left_is_never_sent_again() {
    for (status, outcome, end) in [
        ("404", "unknown", 3),
        ("500", "unknown", 3),
        ("307", "unknown", 3),
        ("401", "not_done", 0),
        ("403", "not_done", 0),
        ("429", "not_done", 0),
    ] {
        let Some((world, done)) = over_http(status, "", &[called("count", "{}"), says("fine")]) else { return };
        let done = done.is(end);
        assert_eq!(outcomes(&done), [outcome], "{status}: {}", done.stdout);
        assert!(done.stdout.contains(&format!("HTTP {status}: ")), "{}", done.stdout);
        assert!(!done.stdout.contains("rmcp"), "{}", done.stdout);
        assert_eq!((booked(&world, "status"), booked(&world, "count")), (1, 0), "{status}");
        // the address has what it was declared to have, and it is told to nobody
        assert!(world.read("paths").contains("token=abcdef-1234"), "{}", world.read("paths"));
        assert!(!holds(&world, "abcdef-1234") && !done.stdout.contains("abcdef-1234"));
    }
}

#[test]
fn after_a_session_that_is_over_the_next_call_opens_a_new_one() {
    // 400: with an error that says not to what
    for status in ["404", "400"] {
        let calls = [called("count", "{}"), says("fine")];
        let Some((world, done)) = over_http(status, "effect = \"read\"", &calls) else { return };
        let done = done.is(0);
        assert_eq!(outcomes(&done), ["done"], "{status}: a read is made again: {}", done.stdout);
        assert_eq!((booked(&world, "status"), booked(&world, "count"), booked(&world, "session")), (1, 1, 2));
    }
    let Some((world, done)) = over_http("400", "", &[called("count", "{}"), says("fine")]) else { return };
    let done = done.is(3);
    assert_eq!(outcomes(&done), ["unknown"], "{}", done.stdout);
    assert!(done.stdout.contains("no session of this name"), "{}", done.stdout);
    assert_eq!(booked(&world, "count"), 0, "what left is never sent again");
}

fn odd(how: &str) -> String {
    called("odd", &format!("{{ how = \"{how}\" }}"))
}

#[test]
fn an_answer_that_came_and_cannot_be_read_is_not_waited_for() {
    for (how, why) in [
        ("no jsonrpc", "does not say"),
        ("bare error", "oops"),
        ("no number", "is no JSON"),
        ("half a character", "is no JSON"),
        ("bytes", "is not UTF-8"),
        ("lines", "several lines"),
    ] {
        let Some(world) = world() else { return };
        let began = Instant::now();
        let declared = format!("{}{ALLOWED}", server("plain", "trusted = true\ntimeout = \"300s\""));
        let done = run(&world, "", &declared, &[odd(how), says("fine")]).is(3);
        assert!(began.elapsed() < Duration::from_secs(100), "{how}: {:?}", began.elapsed());
        assert_eq!(outcomes(&done), ["unknown"], "{how}: it may have happened: {}", done.stdout);
        assert!(done.stdout.contains(why), "{how}: {}", done.stdout);
    }
    let Some(world) = world() else { return };
    let replies = [odd("null error"), odd("lines"), odd("null error"), says("fine")];
    let done = run(&world, "", &server("plain", "effect = \"read\"\ntrusted = true"), &replies).is(0);
    let outcomes = outcomes(&done);
    assert_eq!((outcomes[0].as_str(), outcomes.last().unwrap().as_str()), ("done", "done"), "{}", done.stdout);
}

#[test]
fn a_result_of_another_shape_is_an_error_of_the_server() {
    for how in ["text", "one block", "true"] {
        let Some(world) = world() else { return };
        let replies = [odd(how), says("it failed")];
        let done = run(&world, "", &format!("{}{ALLOWED}", server("plain", "")), &replies).is(0);
        assert_eq!(outcomes(&done), ["error"], "{how}: {}", done.stdout);
        assert!(done.stdout.contains("no result of a tool"), "{how}: {}", done.stdout);
        let world = self::world().unwrap();
        let done = run(&world, "", &format!("{}{ALLOWED}", server("plain", "on_error = \"unknown\"")), &replies).is(3);
        assert_eq!(outcomes(&done), ["unknown"], "{how}: {}", done.stdout);
    }
}

#[test]
fn what_a_server_answers_before_its_end_counts() {
    let Some(world) = world() else { return };
    // so late that its end has been noticed
    let late = |how: &&str| odd(how).replace("usage =", "delay = \"500ms\"\nusage =");
    let calls: Vec<String> = ["exit", "last"].repeat(4).iter().map(late).chain([says("fine")]).collect();
    let done =
        run(&world, "[budget]\nturns = 20", &format!("{}{ALLOWED}", server("plain", "trusted = true")), &calls).is(0);
    assert_eq!(outcomes(&done), ["done"; 8], "{}", done.stdout);
}

#[test]
fn definitions_are_compared_when_a_server_says_that_they_are_others() {
    let Some(world) = world() else { return };
    let replies = [odd("changes"), called("count", "{}"), called("echo", "{}"), says("fine")];
    let text = format!("builtins = []\n{}", server("plain", "effect = \"read\"\ntrusted = true"));
    task(&world, &text, &replies.concat());
    let done = world.run("run --task task.toml --id w --json --on-ask wait").is(3);
    assert!(done.stderr.contains("the MCP server shop changed what it says of mcp__shop__echo"), "{}", done.stderr);
    let events = done.json();
    let held = of_type(&events, "action.held");
    let named = "the definition of echo on the MCP server shop";
    assert!(held.iter().any(|event| event.to_string().contains(named)), "{}", done.stdout);
    assert_eq!((booked(&world, "count"), booked(&world, "echo")), (1, 0), "{}", done.stdout);
    world.verify("w");
}

#[test]
fn a_secret_of_a_server_that_is_not_set_stops_the_run() {
    for declared in [
        server("plain", "env = { KEY = \"${secret:NOBODY_SET_IT}\" }"),
        "[mcp.shop]\nurl = \"http://127.0.0.1:1/?k=${secret:NOBODY_SET_IT}\"\n".to_owned(),
        "[mcp.shop]\nurl = \"http://127.0.0.1:1/\"\nheaders = { A = \"${secret:NOBODY_SET_IT}\" }\n".to_owned(),
    ] {
        let Some(world) = world() else { return };
        let done = run(&world, "", &declared, &[says("fine")]);
        assert!(done.stderr.contains("NOBODY_SET_IT") && done.status() == 65, "{}: {}", done.status(), done.stderr);
    }
}
