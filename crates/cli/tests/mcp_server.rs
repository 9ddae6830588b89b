//! `longrein mcp`: the real binary, spoken to as a client of the Model Context Protocol does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::World;
use crate::support::task::{booked, books, calls, says, task, tool};

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(90);
const ANSWER: &str = "checkout: error rate 1.20 % is above the threshold 1.00 %. Evidence: e1, e2.";

struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    next: u64,
}

impl Client {
    fn new(world: &World, flags: &[&str]) -> Self {
        let mut child = world.longrein(["mcp"].iter().chain(flags)).conversing();
        let to = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, from) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut client = Self { child, to, from, next: 0 };
        let about = client.ask("initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
        assert_eq!(about["result"]["serverInfo"]["name"], "longrein", "{about}");
        client
    }

    fn write(&mut self, bytes: &[u8]) {
        self.to.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn read(&self) -> Value {
        self.from.recv_timeout(PATIENCE).expect("an answer")
    }

    /// The response to this request; what comes before it is passed over.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(format!("{request}\n").as_bytes());
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// What a tool brings back that must not fail.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let response = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let result = &response["result"];
        assert!(result["isError"].is_null() && result.is_object(), "{tool}: {response}");
        result["structuredContent"].clone()
    }

    /// The error of a tool that must fail.
    #[track_caller]
    fn fails(&mut self, tool: &str, arguments: Value) -> Value {
        let response = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert_eq!(response["result"]["isError"], true, "{tool}: {response}");
        response["result"]["structuredContent"]["error"].clone()
    }

    /// Closes its input and waits for its end.
    fn end(mut self) -> ExitStatus {
        drop(self.to.take());
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three slow replies, the first of which books once.
fn slow(world: &World) {
    let delayed = |text: String| text.replace("usage =", "delay = \"700ms\"\nusage =");
    let replies = [delayed(calls("book", "{}")), delayed(calls("look", "{}")), delayed(says("Booked."))].concat();
    let tools = [tool("book", "external", &books("x"), ""), tool("look", "read", "echo 1", "")].concat();
    task(world, &format!("policy = {{ allow = [\"book\"] }}\n{tools}"), &replies);
}

#[test]
fn a_run_is_started_waited_for_and_its_evidence_read() {
    let world = World::new();
    world.example("checkout");
    let mut client = Client::new(&world, &[]);
    let started = client.call("run_start", json!({ "task_file": "checkout/task.toml", "id": "c" }));
    assert_eq!(started["run"], "c");
    let done = client.call("run_wait", json!({ "id": "c" }));
    assert_eq!((&done["state"], &done["verified"], &done["rendered"]), (&json!("done"), &json!(true), &json!(ANSWER)));
    assert_eq!(client.call("evidence", json!({ "id": "c", "evidence": "e1" }))["tool"], "read_metrics");
    assert_eq!(client.fails("evidence", json!({ "id": "c", "evidence": "e9" }))["class"], "not_found");
    let length = world.log("c").len();

    // The same again is the stored answer; another task under its id is none.
    let again = client.call("run_start", json!({ "task_file": "checkout/task.toml", "id": "c" }));
    assert_eq!(again["rendered"], ANSWER);
    assert_eq!(
        client.fails(
            "run_start",
            json!({ "prompt": "Something else", "id": "c", "model": "script/checkout/checkout.script.toml" })
        )["class"],
        "data"
    );
    assert_eq!(world.log("c").len(), length);

    // All events, in pages, are those of the log.
    let (mut after, mut events) = (json!(0), Vec::new());
    loop {
        let page = client.call("run_events", json!({ "id": "c", "after": after, "limit": 4 }));
        events.extend(page["events"].as_array().unwrap().clone());
        after = page["next"].clone();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(events, world.log("c"));
    let read = client.ask("resources/read", &json!({ "uri": "longrein://runs/c/evidence/e2" }));
    let text: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["tool"], "error_rate");
    assert_eq!(client.call("run_list", json!({}))["runs"][0]["run"], "c");
    assert_eq!(client.fails("run_show", json!({ "id": "nobody" }))["class"], "not_found");
    assert!(client.end().success());
    world.verify("c");
}

#[test]
fn after_any_flood_it_still_serves() {
    let world = World::new();
    world.example("checkout");
    let mut client = Client::new(&world, &[]);
    for line in [
        &b"\n\n{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"run_show\",\"arguments\":\"c\"}}\n"[..],
        b"\xff\xfe\xfd\n[[[[[[\n{\"id\":{}}\nnull\n[]\n\"\n",
    ] {
        for _ in 0..500 {
            client.write(line);
        }
    }
    client.write(&vec![b'['; 11 * 1024 * 1024]);
    client.write(b"\n");
    client.call("run_start", json!({ "task_file": "checkout/task.toml", "id": "c" }));
    assert_eq!(client.call("run_wait", json!({ "id": "c" }))["state"], "done");
    assert!(client.end().success());
}

#[test]
fn a_killed_server_has_lost_nothing_and_the_next_one_goes_on() {
    for by_wait in [true, false] {
        let world = World::new();
        slow(&world);
        let mut client = Client::new(&world, &[]);
        client.call("run_start", json!({ "task_file": "task.toml", "id": "k" }));
        world.until("the booking", || (booked(&world, "x") == 1).then_some(()));
        client.signal(rustix::process::Signal::KILL);
        client.ended();

        let mut client = Client::new(&world, &[]);
        let listed = client.call("run_list", json!({}))["runs"][0].clone();
        assert!(["interrupted", "waiting"].contains(&listed["state"].as_str().unwrap()), "{listed}");
        if !by_wait {
            client.call("run_start", json!({ "task_file": "task.toml", "id": "k" }));
        }
        let mut done = client.call("run_wait", json!({ "id": "k" }));
        if done["state"] == "waiting" {
            // Killed inside the booking: nobody knows, so a person says.
            drop(client);
            world.run("settle k a1 --as done").is(0);
            client = Client::new(&world, &[]);
            done = client.call("run_wait", json!({ "id": "k" }));
        }
        assert_eq!((&done["state"], &done["rendered"]), (&json!("done"), &json!("Booked.")), "{done}");
        assert_eq!(booked(&world, "x"), 1, "nothing is done twice");
        drop(client);
        world.verify("k");
    }
}

#[test]
fn the_end_of_input_and_a_signal_suspend_what_runs() {
    for signal in [None, Some(rustix::process::Signal::TERM)] {
        let world = World::new();
        slow(&world);
        let mut client = Client::new(&world, &[]);
        client.call("run_start", json!({ "task_file": "task.toml", "id": "s" }));
        let status = match signal {
            None => client.end().code(),
            Some(signal) => {
                client.signal(signal);
                client.ended().code()
            }
        };
        assert_eq!(status, Some(if signal.is_some() { 143 } else { 0 }));
        assert_eq!(world.show("s")["state"], "suspended");
        world.run("resume s").is(0);
        assert_eq!(booked(&world, "x"), 1);
    }
}

#[test]
fn only_an_operators_server_says_yes_and_the_journal_says_by_which_door() {
    let world = World::new();
    let tools = tool("book", "external", &books("x"), "");
    task(&world, &tools, &[calls("book", "{}"), says("Booked.")].concat());
    let mut client = Client::new(&world, &[]);
    client.call("run_start", json!({ "task_file": "task.toml", "id": "q" }));
    let waiting = client.call("run_wait", json!({ "id": "q" }));
    assert_eq!(waiting["state"], "waiting");
    assert_eq!(waiting["waits_for"][0]["tool"], "book");
    assert_eq!(waiting["way_on"], "longrein approve q a1");
    assert_eq!(client.call("approvals", json!({}))["waiting"][0]["action"], "a1");
    let refused = client.ask("tools/call", &json!({ "name": "approve", "arguments": { "id": "q", "action": "a1" } }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // Told once: the next wait waits for a change.
    let began = Instant::now();
    assert_eq!(client.call("run_wait", json!({ "id": "q", "timeout_s": 2 }))["state"], "waiting");
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert!(client.end().success());

    let mut operator = Client::new(&world, &["--operator"]);
    assert_eq!(operator.fails("approve", json!({ "id": "q", "action": "a7" }))["class"], "not_found");
    assert_eq!(operator.fails("approve", json!({ "id": "q", "action": "first" }))["class"], "usage");
    assert_eq!(operator.fails("settle", json!({ "id": "q", "action": "a1", "as": "done" }))["class"], "data");
    assert_eq!(operator.call("approve", json!({ "id": "q", "action": "a1" }))["recorded"], true);
    assert_eq!(operator.call("run_wait", json!({ "id": "q" }))["state"], "done");
    assert_eq!(booked(&world, "x"), 1);
    let log = world.log("q");
    let by_this_door = log.iter().filter(|line| line.to_string().contains(r#""door":"mcp""#)).count();
    assert_eq!(by_this_door, 1, "{log:?}");
    assert_eq!(operator.fails("approve", json!({ "id": "q", "action": "a1" }))["class"], "data");
}

/// Of two answers to one question one counts, and the other's sender is told so (E1).
#[test]
fn of_two_answers_at_once_one_is_taken() {
    let world = World::new();
    let tools = tool("book", "external", &books("x"), "");
    task(&world, &tools, &[calls("book", "{}"), says("Booked.")].concat());
    let mut first = Client::new(&world, &["--operator"]);
    let mut second = Client::new(&world, &["--operator"]);
    first.call("run_start", json!({ "task_file": "task.toml", "id": "q" }));
    assert_eq!(first.call("run_wait", json!({ "id": "q" }))["state"], "waiting");
    let approve = json!({ "name": "approve", "arguments": { "id": "q", "action": "a1" } });
    let answers = std::thread::scope(|scope| {
        let other = scope.spawn(|| second.ask("tools/call", &approve));
        [first.ask("tools/call", &approve), other.join().unwrap()]
    });
    let yes = answers.iter().filter(|answer| answer["result"]["structuredContent"]["recorded"] == true).count();
    let no = answers.iter().filter(|answer| answer["result"]["isError"] == true).count();
    assert_eq!((yes, no), (1, 1), "{answers:?}");
    assert_eq!(first.call("run_wait", json!({ "id": "q" }))["state"], "done");
    assert_eq!(booked(&world, "x"), 1);
}

/// A client that may be a model reads no file by having it taken for something else.
#[test]
fn a_plain_server_names_no_files() {
    let world = World::new();
    task(&world, "", &says("Done."));
    let mut client = Client::new(&world, &[]);
    let refused = |client: &mut Client, mut start: Value| {
        start["prompt"] = "Do it.".into();
        let fault = client.fails("run_start", start);
        assert_eq!(fault["class"], "configuration", "{fault}");
        assert!(!fault.to_string().contains("root:"), "{fault}");
        fault["message"].clone()
    };
    for key in ["model", "program", "workspace"] {
        let name = |path: &str| if key == "model" { format!("script/{path}") } else { path.to_owned() };
        let there = refused(&mut client, json!({ key: name("/etc/passwd") }));
        let gone = refused(&mut client, json!({ key: name("/etc/no-such-file") }));
        assert_eq!(there, gone, "{key}");
    }
}

/// Nor by having it taken for a task file; what is wrong with one that is one is told.
#[test]
fn of_what_is_no_task_file_nothing_is_told() {
    let world = World::new();
    task(&world, "", &says("Done."));
    let secrets = [
        ("env", "KEY=hunter2\n"),
        ("key.toml", "key = hunter2\n"),
        ("a.toml", "[hunter2]\na = 1\n"),
        ("b", "\u{1}hunter2"),
    ];
    std::fs::create_dir(world.path("sub")).unwrap();
    for (name, text) in secrets {
        world.write(name, text);
        world.write(&format!("sub/{name}"), text);
    }
    world.write("sub/task.toml", "goal = \"x\"\nmodel = \"hunter2\"\n");
    world.write("wrong.toml", "goal = \"x\"\nmax_turn = 3\n");
    world.write("broken.toml", "goal = \"x\"\n[budget]\nturns = three\n");
    world.write("names.toml", "goal = \"x\"\nprogram = \"/etc/passwd\"\n");
    world.write("names-none.toml", "goal = \"x\"\nprogram = \"/etc/no-such-file\"\n");
    let mut client = Client::new(&world, &[]);
    let said = |client: &mut Client, file: &str| {
        let fault = client.fails("run_start", json!({ "task_file": file }));
        assert!(!fault.to_string().contains("hunter2") && !fault.to_string().contains("root:"), "{file}: {fault}");
        fault
    };
    for (name, _) in secrets {
        assert_eq!(said(&mut client, name)["class"], "data", "{name}");
    }
    let gone = said(&mut client, "/etc/no-such-file");
    assert_eq!(gone, said(&mut client, "/etc/passwd"));
    assert!(gone.to_string().contains("--tasks"), "{gone}");
    let elsewhere = world.user().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let model = format!("script/{}", world.path("replies.toml").display());
    let text = format!("goal = \"Do it.\"\nmodel = \"{model}\"\nworkspace = \"{}\"\n", world.path("").display());
    std::fs::write(elsewhere.join("wrong.toml"), format!("{text}max_turn = 3\n")).unwrap();
    std::fs::write(elsewhere.join("task.toml"), text).unwrap();
    assert_eq!(gone, said(&mut client, elsewhere.join("wrong.toml").to_str().unwrap()));
    client.call("run_start", json!({ "task_file": elsewhere.join("task.toml"), "id": "elsewhere" }));
    for (file, helps) in [("wrong.toml", "line 2, max_turn"), ("broken.toml", "line 3")] {
        let fault = said(&mut client, file);
        assert!(fault.to_string().contains(helps), "{fault}");
    }
    assert_eq!(said(&mut client, "names.toml"), said(&mut client, "names-none.toml"));
    drop(client);

    let mut client = Client::new(&world, &["--tasks", "sub"]);
    let (there, gone) = (said(&mut client, "wrong.toml"), said(&mut client, "no-such.toml"));
    assert_eq!(there, gone);
    drop(client);

    let mut operator = Client::new(&world, &["--operator"]);
    assert!(operator.fails("run_start", json!({ "task_file": "key.toml" })).to_string().contains("hunter2"));
}

#[test]
fn an_answer_from_another_process_is_noticed_by_a_wait() {
    let world = World::new();
    let tools = tool("book", "external", &books("x"), "");
    task(&world, &tools, &[calls("book", "{}"), says("Booked.")].concat());
    let mut client = Client::new(&world, &[]);
    client.call("run_start", json!({ "task_file": "task.toml", "id": "q" }));
    assert_eq!(client.call("run_wait", json!({ "id": "q" }))["state"], "waiting");
    world.run("approve q a1").is(0);
    assert_eq!(client.call("run_wait", json!({ "id": "q" }))["state"], "done");
}

#[test]
fn a_client_loosens_no_mode_and_starts_no_task_from_elsewhere() {
    let world = World::new();
    task(&world, "", &says("Done."));
    let mut client = Client::new(&world, &[]);
    let loose = json!({ "prompt": "Do it.", "model": "script/replies.toml", "permission_mode": "auto" });
    assert_eq!(client.fails("run_start", loose.clone())["class"], "configuration");
    let tight = json!({ "prompt": "Do it.", "model": "script/replies.toml", "permission_mode": "plan", "id": "t" });
    assert_eq!(client.call("run_start", tight)["permission_mode"], "plan");
    assert_eq!(client.call("run_wait", json!({ "id": "t" }))["state"], "done");
    let nonsense = json!({ "prompt": "Do it.", "model": "script/replies.toml", "permission_mode": "free" });
    assert_eq!(client.fails("run_start", nonsense)["class"], "usage");
    drop(client);

    std::fs::create_dir(world.path("tasks")).unwrap();
    let mut client = Client::new(&world, &["--tasks", "tasks"]);
    let elsewhere = client.fails("run_start", json!({ "task_file": "tasks/../task.toml" }));
    assert_eq!(elsewhere["class"], "configuration", "{elsewhere}");
    drop(client);

    let mut operator = Client::new(&world, &["--operator"]);
    assert_eq!(operator.call("run_start", loose)["permission_mode"], "auto");
}

#[test]
fn no_more_runs_than_were_said_are_driven_at_once() {
    let world = World::new();
    slow(&world);
    let mut client = Client::new(&world, &["--max-runs", "1"]);
    client.call("run_start", json!({ "task_file": "task.toml", "id": "one" }));
    let full = client.fails("run_start", json!({ "task_file": "task.toml", "id": "two" }));
    assert_eq!(full["class"], "unavailable", "{full}");
    let cancelled = client.call("cancel", json!({ "id": "one" }));
    assert_eq!(cancelled["run"], "one");
    client.call("run_wait", json!({ "id": "one" }));
    client.call("run_start", json!({ "task_file": "task.toml", "id": "two" }));
}

#[test]
fn the_door_does_not_open_from_inside_nor_over_http_without_a_token() {
    let world = World::new();
    world.longrein(["mcp"]).env("LONGREIN_INSIDE", "r@home").done().is(78);
    world.run("mcp --http 127.0.0.1:0").is(78).says("LONGREIN_MCP_TOKEN");
    world.longrein(["mcp", "--http", "127.0.0.1:0"]).env("LONGREIN_MCP_TOKEN", "short").done().is(78);
    let token = "a-token-that-is-long-enough";
    world.longrein(["mcp", "--http", "0.0.0.0:0"]).env("LONGREIN_MCP_TOKEN", token).done().is(64).says("this machine");

    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let server = world.longrein(["mcp", "--http", &address, "--token-env", "KEY"]).env("KEY", token).start();
    let shown = |bearer: &str| {
        let mut stream = TcpStream::connect(&address).ok()?;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nAuthorization: Bearer {bearer}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    };
    let refused = world.until("the server", || shown("another-token-that-is-long"));
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let admitted = shown(token).unwrap();
    assert!(admitted.starts_with("HTTP/1.1 200") && admitted.contains("mcp-session-id"), "{admitted}");
    server.signal("TERM");
    server.end().is(143);
}

#[test]
fn what_is_wrong_with_a_start_is_said_of_its_fields() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let fault = client.fails("run_start", json!({ "prompt": "do it" }));
    let text = fault.to_string();
    assert!(text.contains("the field model") && !text.contains("--"), "{text}");
    let fault = client.fails("run_start", json!({ "prompt": "do it", "model": "nonsense" }));
    assert!(fault.to_string().contains("model") && !fault.to_string().contains("--"), "{fault}");
}
