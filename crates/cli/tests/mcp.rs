//! Tool servers of other people, good and hostile ones: a small one in Python plays them all.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::task::{booked, calls, configure, says, task};
use crate::support::{Done, World, of_type};

const SERVER: &str = include_str!("mcp_support/server.py");

/// None, and it is said: there is no Python here.
pub(crate) fn world() -> Option<World> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let world = World::new();
    world.write("server.py", SERVER);
    Some(world)
}

pub(crate) fn server(mode: &str, more: &str) -> String {
    format!("[mcp.shop]\ncommand = \"python3\"\nargs = [\"server.py\", \"{mode}\"]\n{more}\n")
}

pub(crate) fn called(tool: &str, args: &str) -> String {
    calls(&format!("mcp__shop__{tool}"), args)
}

/// A run of these replies with this server, as `w`.
pub(crate) fn run(world: &World, head: &str, server: &str, replies: &[String]) -> Done {
    task(world, &format!("builtins = []\n{head}\n{server}"), &replies.concat());
    world.run("run --task task.toml --id w --json")
}

/// What became of each call, in their order.
pub(crate) fn outcomes(done: &Done) -> Vec<String> {
    let events = done.json();
    of_type(&events, "action.finished")
        .iter()
        .map(|event| event["outcome"].as_str().unwrap_or("?").to_owned())
        .collect()
}

#[test]
fn a_server_of_a_task_file_is_called_as_any_tool() {
    let Some(world) = world() else { return };
    let nested =
        "{ list = [1, 2.5, -3], deep = { a = [{ b = true }] }, big = 9007199254740993, text = \"é \\\"q\\\"\" }";
    let replies = [
        called("echo", nested),
        called("get_user_by_id", "{ id = \"u1\" }"),
        called("count", "{}"),
        called("count", "{}"),
        says("fine"),
    ];
    let done = run(
        &world,
        "",
        &server("plain", "effect = \"read\"\nenv = { SHOP_KEY = \"${secret:KEY}\", X = \"1\" }"),
        &replies,
    );
    // the secret is not there
    assert!(done.stderr.contains("KEY"), "{}", done.stderr);
    let world = self::world().unwrap();
    task(
        &world,
        &format!("builtins = []\n{}", server("plain", "effect = \"read\"\nenv = { SHOP_KEY = \"${secret:KEY}\" }")),
        &replies.concat(),
    );
    let done = world
        .longrein(["run", "--task", "task.toml", "--id", "w", "--json"])
        .env("KEY", "sesame-open-now")
        .done()
        .is(0);
    assert_eq!(outcomes(&done), ["done"; 4], "{}", done.stderr);
    let shown = world.run("log w --json").stdout;
    assert!(shown.contains("9007199254740993") && shown.contains("2.5"), "{shown}");
    assert!(!shown.contains("sesame-open-now"), "secrets are redacted");
    assert_eq!(booked(&world, "count"), 2);
    world.verify("w");
    assert!(!world.something_runs("w"));
}

#[test]
fn what_nothing_is_known_of_is_asked_about_and_a_rule_answers() {
    let Some(world) = world() else { return };
    let replies = [called("echo", "{ a = 1 }"), says("fine")];
    let done = run(&world, "", &server("plain", ""), &replies).is(0);
    assert_eq!(booked(&world, "echo"), 0, "{}", done.stderr);
    assert!(done.stdout.contains("\"action.denied\"") || done.stdout.contains("\"action.refused\""), "{}", done.stdout);
    for rule in ["mcp__shop__*", "mcp__shop__echo", "mcp__*"] {
        let world = self::world().unwrap();
        let done = run(&world, "", &format!("{}[policy]\nallow = [\"{rule}\"]\n", server("plain", "")), &replies).is(0);
        assert_eq!((booked(&world, "echo"), outcomes(&done)), (1, vec!["done".to_owned()]), "{rule}");
    }
    let world = self::world().unwrap();
    let deny = format!("{}[policy]\nallow = [\"*\"]\ndeny = [\"mcp__shop__e*\"]\n", server("plain", ""));
    run(&world, "", &deny, &replies).is(0);
    assert_eq!(booked(&world, "echo"), 0);
}

#[test]
fn a_rule_for_one_server_means_no_other() {
    let rules = "[policy]\nallow = [\"mcp__shop__*\", \"mcp__a_b__*\"]\n";
    let declared = |name: &str| format!("[mcp.{name}]\ncommand = [\"python3\", \"server.py\"]\n");
    for (servers, tool) in [
        (declared("shop__admin"), "mcp__shop__admin__echo"),
        (declared("shop_"), "mcp__shop___echo"),
        (format!("{}{}", declared("a_b"), declared("\"a.b\"")), "mcp__a_b__echo"),
    ] {
        let Some(world) = world() else { return };
        let done = run(&world, "", &format!("{servers}{rules}"), &[calls(tool, "{}"), says("fine")]).is(65);
        assert!(done.stderr.contains("another name") || done.stderr.contains("rename one"), "{}", done.stderr);
        assert_eq!(booked(&world, "echo"), 0);
    }
}

#[test]
fn what_a_server_says_taints_until_somebody_trusts_it() {
    let replies = [called("echo", "{ a = 1 }"), called("count", "{}"), called("echo", "{ b = 2 }"), says("fine")];
    let rules = "[policy]\nallow = [\"mcp__shop__*\"]\n";
    let Some(world) = world() else { return };
    run(&world, "", &format!("{}{rules}", server("plain", "")), &replies).is(0);
    assert_eq!((booked(&world, "echo"), booked(&world, "count")), (1, 0), "what it said could be carried out again");
    let world = self::world().unwrap();
    run(&world, "", &format!("{}{rules}", server("plain", "trusted = true")), &replies).is(0);
    assert_eq!((booked(&world, "echo"), booked(&world, "count")), (2, 1));
    let world = self::world().unwrap();
    world.run("endorse shop").is(0);
    run(&world, "", &format!("{}{rules}", server("plain", "")), &replies).is(0);
    assert_eq!((booked(&world, "echo"), booked(&world, "count")), (2, 1));
}

#[test]
fn an_error_is_told_and_the_run_goes_on() {
    let Some(world) = world() else { return };
    let replies = [called("fail", "{}"), "[[reply]]\nwhen = \"no such order\"\ntext = \"it failed\"\n".to_owned()];
    run(&world, "", &server("plain", "effect = \"read\""), &replies).is(0);
    let rules = "[policy]\nallow = [\"mcp__shop__*\"]\n";
    let world = self::world().unwrap();
    run(&world, "", &format!("{}{rules}", server("plain", "")), &replies).is(0);
    let world = self::world().unwrap();
    let done = run(&world, "", &format!("{}{rules}", server("plain", "on_error = \"unknown\"")), &replies).is(3);
    assert_eq!(outcomes(&done), ["unknown"]);
}

#[test]
fn one_that_dies_is_noticed_at_once_and_started_again() {
    let Some(world) = world() else { return };
    let began = Instant::now();
    let replies = [called("die", "{}"), called("count", "{}"), says("fine")];
    let done = run(&world, "", &server("plain", "effect = \"read\""), &replies).is(0);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let events = done.json();
    assert!(
        of_type(&events, "action.finished").iter().any(|event| event.to_string().contains("out of cheese")),
        "{}",
        done.stdout
    );
    assert!(outcomes(&done).contains(&"done".to_owned()), "{:?}", outcomes(&done));
    let world = self::world().unwrap();
    let rules = "[policy]\nallow = [\"mcp__shop__*\"]\n";
    let done = run(&world, "", &format!("{}{rules}", server("plain", "")), &[called("die", "{}"), says("fine")]).is(3);
    assert_eq!(outcomes(&done), ["unknown"], "it may have happened");
    assert_eq!(booked(&world, "die"), 1, "it is not repeated on a guess");
    assert!(!world.something_runs("w"));
}

#[test]
fn one_that_does_not_come_is_told_of_once_and_the_run_goes_on() {
    for (mode, more) in [("mute", "start_timeout = \"1s\""), ("flood", "start_timeout = \"1s\"")] {
        let Some(world) = world() else { return };
        let began = Instant::now();
        let done = run(&world, "", &server(mode, more), &[says("fine")]).is(0);
        assert!(began.elapsed() < Duration::from_secs(20), "{mode}: {:?}", began.elapsed());
        assert_eq!(done.stderr.matches("the MCP server shop is not there").count(), 1, "{mode}: {}", done.stderr);
        assert!(!world.something_runs("w"), "{mode}");
    }
    let Some(world) = world() else { return };
    let gone = "[mcp.shop]\ncommand = [\"no-such-program\"]\n";
    let done = run(&world, "", gone, &[says("fine")]).is(0);
    assert!(done.stderr.contains("was not found"), "{}", done.stderr);
}

#[test]
fn a_bad_definition_is_left_out_alone() {
    let Some(world) = world() else { return };
    let replies = [called("echo", "{}"), says("fine")];
    let done = run(&world, "", &server("badschema", "effect = \"read\""), &replies).is(0);
    for bad in ["dollar", "stringy", "lost"] {
        assert!(
            done.stderr.contains(&format!("the tool \"{bad}\" of the MCP server shop is not offered")),
            "{}",
            done.stderr
        );
    }
    assert_eq!(outcomes(&done), ["done"]);
    let done = world.run("tools --task task.toml").is(0);
    assert!(done.stdout.contains("mcp__shop__echo") && done.stdout.contains("dollar"), "{}", done.stdout);
}

#[test]
fn a_call_that_is_not_answered_is_given_up() {
    for mode in ["plain", "deaf"] {
        let Some(world) = world() else { return };
        let text = "x".repeat(300_000);
        let replies = [
            called("hang", &format!("{{ text = \"{}\" }}", if mode == "deaf" { text } else { "a".to_owned() })),
            says("fine"),
        ];
        let began = Instant::now();
        let rules = "[policy]\nallow = [\"mcp__shop__*\"]\n";
        let done = run(&world, "", &format!("{}{rules}", server(mode, "timeout = \"1s\"")), &replies).is(3);
        assert!(began.elapsed() < Duration::from_secs(25), "{mode}: {:?}", began.elapsed());
        assert_eq!(outcomes(&done), ["unknown"], "{mode}");
        assert!(!world.something_runs("w"));
    }
}

#[test]
fn large_results_are_spilled_and_pictures_are_no_text() {
    let Some(world) = world() else { return };
    let replies = [called("big", "{}"), called("image", "{}"), says("fine")];
    let done = run(&world, "", &server("plain", "effect = \"read\""), &replies).is(0);
    assert_eq!(outcomes(&done), ["done", "done"], "{}", done.stderr);
    assert!(done.stdout.len() < 2_000_000, "{}", done.stdout.len());
    assert!(!done.stdout.contains(&"QUJD".repeat(1000)));
}

/// What the calls brought, in their order.
fn results(done: &Done) -> Vec<String> {
    of_type(&done.json(), "action.finished").iter().map(|event| event["data"].to_string()).collect()
}

#[test]
fn a_server_that_asks_is_declined_and_refused() {
    let Some(world) = world() else { return };
    let done = run(&world, "", &server("plain", "effect = \"read\""), &[called("asks", "{}"), says("fine")]).is(0);
    assert_eq!(outcomes(&done), ["done"], "{}", done.stderr);
    let said = &results(&done)[0];
    assert!(said.contains("decline") && !said.contains("1234"), "{said}");
    assert!(said.contains("-32601"), "no model of ours answers for it: {said}");
}

#[test]
fn what_a_server_has_beside_tools_is_read() {
    let Some(world) = world() else { return };
    let replies = [
        called("list_resources", "{}"),
        called("list_resources", "{ templates = true }"),
        called("read_resource", "{ uri = \"shop://terms\" }"),
        called("read_resource", "{ uri = \"shop://logo\" }"),
        called("read_resource", "{ uri = \"shop://none\" }"),
        called("read_resource", "{ uri = \"file:///etc/shadow\" }"),
        called("get_prompt", "{}"),
        called("get_prompt", "{ name = \"greet\", arguments = { who = \"Ada\" } }"),
        called("read_resource", "{}"),
        says("fine"),
    ];
    // reading needs no rule, though the server's own tools do
    let done = run(&world, "", &server("reading", ""), &replies).is(0);
    let shown = done.stdout.clone();
    for part in ["shop://terms", "shop://orders/{id}", "no refunds", "no such resource", "greet", "Greet Ada."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains(&"QUJD".repeat(100)), "bytes are no text");
    let refused =
        of_type(&done.json(), "action.refused").iter().map(|event| event["action"].to_string()).collect::<Vec<_>>();
    assert_eq!(refused, ["\"a6\"", "\"a9\""], "an address that others know too is looked at: {shown}");
    let tools = world.run("tools --task task.toml").is(0);
    assert!(tools.stdout.contains("mcp__shop__read_resource  read"), "{}", tools.stdout);
    world.verify("w");
    // a server without them offers none; a list of what is offered counts for them too
    let offers = |mode: &str, more: &str| {
        let world = self::world().unwrap();
        task(&world, &format!("builtins = []\n{}", server(mode, more)), &says("fine"));
        world.run("tools --task task.toml").is(0).stdout.contains("read_resource")
    };
    assert!(!offers("plain", "") && !offers("reading", "allow = [\"echo\"]"));
    assert!(offers("reading", "allow = [\"echo\", \"read_*\"]"));
}

#[test]
fn a_call_that_a_servers_own_words_hold_back_names_the_ways_out() {
    let Some(world) = world() else { return };
    let rules = "[policy]\nallow = [\"mcp__shop__*\"]\n";
    let replies = [called("echo", "{ a = 1 }"), called("count", "{}"), says("fine")];
    let done = run(&world, "", &format!("{}{rules}", server("plain", "")), &replies).is(0);
    for way in ["longrein endorse shop", "trusted = true", "effect = \\\"read\\\""] {
        assert!(done.stdout.contains(way), "{way}: {}", done.stdout);
    }
}

#[test]
fn a_definition_that_changed_is_said_and_held() {
    let Some(world) = world() else { return };
    let rules = "[policy]\nask = [\"mcp__shop__count\"]\n";
    let replies = [called("count", "{}"), called("echo", "{}"), says("fine")];
    let text = format!("builtins = []\n{}{rules}", server("changing", "effect = \"read\""));
    task(&world, &text, &replies.concat());
    world.run("run --task task.toml --id w --json --on-ask wait").is(3);
    world.write("changed", "");
    world.run("approve w a1").is(0);
    let done = world.run("resume w --json --on-ask wait").is(3);
    let events = done.json();
    let changed = of_type(&events, "surroundings.changed");
    assert!(changed.iter().any(|event| event.to_string().contains("mcp__shop__echo")), "{}", done.stdout);
    assert_eq!((booked(&world, "count"), booked(&world, "echo")), (1, 0), "{}", done.stdout);
    assert!(!of_type(&events, "action.held").is_empty());
}

#[test]
fn a_workspaces_own_servers_count_once_it_is_trusted() {
    let Some(world) = world() else { return };
    world.write(".mcp.json", r#"{"mcpServers": {"shop": {"command": "python3", "args": ["server.py", "plain"]}}}"#);
    world.write("replies.toml", &[called("echo", "{}"), says("fine")].concat());
    let line = "run 'do it' --model script/replies.toml --cd . --json --allow mcp__shop__*";
    let done = world.run(line).is(0);
    assert!(done.stderr.contains("is not trusted") && booked(&world, "echo") == 0, "{}", done.stderr);
    let told = world.run("trust --yes .").is(0);
    assert!(told.stdout.contains("starts python3 server.py plain"), "{}", told.stdout);
    let done = world.run(line).is(0);
    assert_eq!(booked(&world, "echo"), 1, "{}", done.stderr);
    // how far it is trusted is the operator's to say, under the same name
    configure(&world, "[mcp.shop]\neffect = \"read\"\ntrusted = true\nallow = [\"e*\"]\n");
    let unasked = "run 'do it' --model script/replies.toml --cd . --json";
    world.run(unasked).is(0);
    assert_eq!(booked(&world, "echo"), 2);
    assert!(!world.run("tools").stdout.contains("mcp__shop__count"));
    world.write(".mcp.json", r#"{"mcpServers": {"shop": {"command": "python3", "args": ["server.py", "http"]}}}"#);
    let done = world.run(line).is(0);
    assert!(done.stderr.contains("nothing says how it is reached"), "{}", done.stderr);
    configure(&world, "");
    let done = world.run(line).is(0);
    assert!(done.stderr.contains("changed since you trusted it") && booked(&world, "echo") == 2, "{}", done.stderr);
}

/// A server of its own, ended with the test.
pub(crate) struct Http(pub(crate) Child);

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_behind_http_from_the_configuration() {
    let Some(world) = world() else { return };
    let child = Command::new("python3")
        .args(["server.py", "http"])
        .current_dir(world.work())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _http = Http(child);
    let port = world.until("the server listens", || Some(world.read("port")).filter(|port| !port.is_empty()));
    let config = format!(
        "[mcp.shop]\nurl = \"http://127.0.0.1:{port}/mcp\"\nheaders = {{ Authorization = \"Bearer ${{secret:SHOP}}\" }}\n\
         [mcp.shop.tools.echo]\neffect = \"read\"\n"
    );
    configure(&world, &config);
    let replies = [called("echo", "{ a = [1, { b = 2 }] }"), called("count", "{}"), says("fine")];
    task(&world, "builtins = []\n", &replies.concat());
    let call =
        world.longrein(["run", "--task", "task.toml", "--id", "w", "--json"]).env("SHOP", "letmein").done().is(0);
    assert_eq!(outcomes(&call), ["done"], "{}", call.stderr);
    assert_eq!((booked(&world, "echo"), booked(&world, "count")), (1, 0));
    let finished: Vec<Value> = call.json();
    assert!(
        of_type(&finished, "action.finished")[0].to_string().contains("{\\\"b\\\":2}")
            || call.stdout.contains("\"b\":2")
    );
    let refused = world.longrein(["run", "--task", "task.toml", "--id", "v", "--json"]).env("SHOP", "wrong").done();
    assert!(refused.stderr.contains("not authorised"), "{}", refused.stderr);
}
