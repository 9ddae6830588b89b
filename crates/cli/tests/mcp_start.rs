//! How a run begins with tool servers: names that fit, servers that must be there, and how long somebody waits.

use std::time::{Duration, Instant};

use crate::mcp::{called, run, server, world};
use crate::support::task::{booked, says, task};

#[test]
fn a_tool_that_the_server_does_not_have_is_an_error_where_it_is_named() {
    let replies = [called("echo", "{ a = 1 }"), says("fine")];
    for (more, named) in [
        ("effect = \"read\"\n[mcp.shop.tools.eco]\neffect = \"external\"", "mcp.shop.tools.eco: "),
        ("effect = \"read\"\nallow = [\"eco\"]", "mcp.shop.allow: \"eco\": "),
        ("effect = \"read\"\nallow = [\"echo\", \"ecco\"]", "mcp.shop.allow: \"ecco\": "),
    ] {
        let Some(world) = world() else { return };
        let done = run(&world, "", &server("plain", more), &replies).is(65);
        let told = done.told();
        assert!(told.contains(named) && told.contains("did you mean echo?"), "{more}: {told}");
        assert_eq!(booked(&world, "echo"), 0);
        assert!(world.run("runs --json").last_json().as_array().unwrap().is_empty(), "no run was begun");
        assert!(!world.something_runs("w"));
        let looked = world.run("tools --task task.toml").is(0);
        assert!(looked.stdout.contains(named) && looked.stdout.contains("NO RUN STARTS"), "{}", looked.stdout);
    }
    // Nothing is near: what there is.
    let Some(world) = world() else { return };
    run(&world, "", &server("plain", "allow = [\"zzz\"]"), &replies).is(65).says("it has echo, ");
    // A pattern may be meant for what comes later; names of tools that are there are no error, offered or not.
    let world = crate::mcp::world().unwrap();
    let fine = "allow = [\"ec*\", \"pay_*\"]\n[mcp.shop.tools.echo]\neffect = \"read\"\n[mcp.shop.tools.count]\neffect = \"read\"";
    run(&world, "", &server("plain", fine), &replies).is(0).says("\"pay_*\" fits no tool of the MCP server shop");
    assert_eq!(booked(&world, "echo"), 1);
    // One that is left out for its schema is there all the same.
    let world = crate::mcp::world().unwrap();
    let left_out = "effect = \"read\"\n[mcp.shop.tools.stringy]\neffect = \"external\"";
    run(&world, "", &server("badschema", left_out), &replies).is(0);
    // Nobody knows what a server has that is not there.
    let world = crate::mcp::world().unwrap();
    let unknown = "start_timeout = \"1s\"\n[mcp.shop.tools.eco]\neffect = \"read\"";
    run(&world, "", &server("mute", unknown), &[says("fine")]).is(0);
}

#[test]
fn a_run_does_not_start_without_a_server_that_is_required() {
    let Some(world) = world() else { return };
    let mute = server("mute", "start_timeout = \"1s\"\nrequired = true");
    run(&world, "", &mute, &[says("fine")]).is(69).says("the MCP server shop is required and is not there");
    assert!(world.run("runs --json").last_json().as_array().unwrap().is_empty());
    let unset = server("plain", "required = true\nenv = { K = \"${secret:NOBODY_SET_IT}\" }");
    run(&world, "", &unset, &[says("fine")]).is(69).says("the variable NOBODY_SET_IT is not set");
    run(&world, "", &server("plain", "required = true"), &[says("fine")]).is(0);
}

#[test]
fn a_server_that_takes_its_time_is_named_and_given_up_at_once() {
    for (signal, ended) in [("INT", 130), ("TERM", 143)] {
        let Some(world) = world() else { return };
        task(&world, &format!("builtins = []\n{}", server("mute", "start_timeout = \"30s\"")), &says("fine"));
        let running = world.typed("longrein run --task task.toml --id w").start();
        world.until("its server", || world.something_runs("w").then_some(()));
        std::thread::sleep(Duration::from_millis(1500));
        let began = Instant::now();
        running.signal(signal);
        let done = running.end().is(ended).says("waiting for the MCP server shop");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(done.stderr.contains("nothing was begun"), "{}", done.stderr);
        assert!(!world.something_runs("w"), "its server went with it");
    }
    let Some(world) = world() else { return };
    let quick = run(&world, "", &server("plain", ""), &[says("fine")]).is(0);
    assert!(!quick.stderr.contains("no tool of") && !quick.stderr.contains("is not there"), "{}", quick.stderr);
}

#[test]
fn what_is_wrong_with_a_server_is_said_without_the_names_of_types() {
    let Some(world) = world() else { return };
    let gone = "[mcp.shop]\nurl = \"http://127.0.0.1:1/mcp\"\n";
    let done = run(&world, "", gone, &[says("fine")]).is(0);
    assert!(done.stderr.contains("127.0.0.1:1 could not be reached: connection refused"), "{}", done.stderr);
    let page = format!("[mcp.shop]\nurl = \"http://127.0.0.1:{}/mcp\"\n", page_of_something_else());
    let world = crate::mcp::world().unwrap();
    let other = run(&world, "", &page, &[says("fine")]).is(0);
    for said in [&done.stderr, &other.stderr] {
        assert!(
            !said.contains("rmcp")
                && !said.contains("Transport")
                && !said.contains("::")
                && said.contains("is not there"),
            "{said}"
        );
    }
    world.write("replies.toml", &says("fine"));
    for part in [r#""env": {"K": "${NOBODY_SET_IT}"}"#, r#""args": ["--key", "${NOBODY_SET_IT}"]"#] {
        world.write(".mcp.json", &format!(r#"{{"mcpServers": {{"shop": {{"command": "python3", {part}}}}}}}"#));
        world.run("trust --yes .").is(0);
        world.run("run 'do it' --model script/replies.toml --cd .").is(0).says("the variable NOBODY_SET_IT is not set");
    }
}

/// A port where every request gets a page for people.
fn page_of_something_else() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // A client that goes away early is none of this test's business.
            let _ = connection.read(&mut [0; 65_536]);
            let page = "<html>hello</html>";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length:";
            let _ = write!(connection, "{head} {}\r\n\r\n{page}", page.len());
        }
    });
    port
}
