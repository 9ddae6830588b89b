//! Servers that want a token: a person logs in once, runs use it, renew it, and never wait for a browser.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::task::{calls, configure, says, task};
use crate::support::{Call, Done, World, of_type};

const SERVER: &str = include_str!("mcp_support/oauth.py");

/// Ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server whose tokens last so many seconds. None, and it is said: there is no Python here.
fn world(lasts: u32) -> Option<(World, Server)> {
    world_with(lasts, None, "")
}

/// `manner`: a variable that the server is started with. `auth`: more of its declaration.
fn world_with(lasts: u32, manner: Option<&str>, auth: &str) -> Option<(World, Server)> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let world = World::new();
    world.write("oauth.py", SERVER);
    let mut python = Command::new("python3");
    python
        .arg("oauth.py")
        .env("LASTS", lasts.to_string())
        .envs(manner.map(|manner| (manner, "yes")))
        .current_dir(world.work())
        .stdout(Stdio::null());
    let server = Server(python.spawn().unwrap());
    let port = world.until("the server listens", || Some(world.read("port")).filter(|port| !port.is_empty()));
    configure(&world, &format!("[mcp.shop]\nurl = \"http://127.0.0.1:{port}/mcp\"\neffect = \"read\"\n{auth}"));
    Some((world, server))
}

/// A person who opens what is printed in a browser: its stdout, its stderr, its status.
fn log_in(world: &World) -> (String, String, i32) {
    log_in_by(world.longrein(["mcp", "login", "shop"]))
}

fn log_in_by(call: Call) -> (String, String, i32) {
    let mut command = call.command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    stdout.read_line(&mut said).unwrap();
    let address = said.trim().to_owned();
    if address.starts_with("http") {
        let port = address.split("redirect_uri=http%3A%2F%2F127.0.0.1%3A").nth(1).unwrap();
        let port: u16 = port.split("%2F").next().unwrap().parse().unwrap();
        // a browser opens some for nothing, and somebody else knocks
        let _idle = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let knock = "import sys, urllib.request\ntry:\n  urllib.request.urlopen(sys.argv[1])\n  sys.exit(1)\n\
                     except urllib.error.HTTPError as error:\n  sys.exit(error.code != 404)";
        let forged = format!("http://127.0.0.1:{port}/callback?code=stolen&state=guessed");
        assert!(Command::new("python3").args(["-c", knock, &forged]).status().unwrap().success());
        let open = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()";
        assert!(Command::new("python3").args(["-c", open, &address]).status().unwrap().success());
    }
    let mut stderr = String::new();
    stdout.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (said, stderr, child.wait().unwrap().code().unwrap_or(-1))
}

fn run(world: &World, id: &str, tool: &str) -> Done {
    task(world, "builtins = []\n", &[calls(&format!("mcp__shop__{tool}"), "{}"), says("fine")].concat());
    world.run(&format!("run --task task.toml --id {id} --json"))
}

fn outcomes(done: &Done) -> Vec<String> {
    let events = done.json();
    of_type(&events, "action.finished").iter().map(|event| event["outcome"].to_string()).collect()
}

fn file(world: &World) -> std::path::PathBuf {
    world.home().join("mcp/shop.json")
}

#[test]
fn a_person_logs_in_and_runs_are_let_in() {
    let Some((world, _server)) = world(3600) else { return };
    let began = Instant::now();
    let done = run(&world, "a", "whoami").is(0);
    assert!(done.stderr.contains("it is not authorised: run longrein mcp login shop"), "{}", done.stderr);
    assert!(began.elapsed() < Duration::from_secs(20), "a run waits for no browser: {:?}", began.elapsed());
    assert!(world.run("mcp list").is(0).stdout.contains("not logged in"));
    let (said, stderr, status) = log_in(&world);
    assert_eq!(status, 0, "{said}{stderr}");
    assert!(said.contains("logged in to the MCP server shop"), "{said}");
    assert_eq!(std::fs::metadata(file(&world)).unwrap().permissions().mode() & 0o777, 0o600);
    let notes = world.read("oauth");
    assert!(notes.contains("authorize read True\ntoken authorization_code True"), "{notes}");
    let done = run(&world, "b", "whoami").is(0);
    assert_eq!(outcomes(&done), ["\"done\""], "{}", done.stderr);
    let shown =
        [done.stdout, done.stderr, world.run("log b --json").stdout, world.run("mcp list --json").stdout].concat();
    for secret in ["access-token-", "renewal-token-", "registered-secret"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    assert!(world.run("mcp list").is(0).stdout.contains("logged in for read"));
    // a token that is taken back
    world.write("gone", "");
    let done = run(&world, "c", "whoami").is(0);
    assert!(done.stderr.contains("run longrein mcp login shop"), "{}", done.stderr);
    std::fs::remove_file(world.work().join("gone")).unwrap();
    // another address under the same name is sent nothing
    let text = std::fs::read_to_string(file(&world)).unwrap();
    std::fs::write(file(&world), text.replace("/mcp\",", "/other\",")).unwrap();
    assert!(world.run("mcp list").is(0).stdout.contains("not logged in"));
    world.run("mcp logout shop").is(0);
    assert!(!file(&world).exists());
    assert!(world.run("mcp login nobody").is(64).stderr.contains("declared: shop"));
}

#[test]
fn a_token_that_ends_is_renewed() {
    let Some((world, _server)) = world(1) else { return };
    assert_eq!(log_in(&world).2, 0);
    std::thread::sleep(Duration::from_millis(1_200));
    for id in ["a", "b"] {
        let done = run(&world, id, "whoami").is(0);
        assert_eq!(outcomes(&done), ["\"done\""], "{}", done.stderr);
        let shown = [done.stdout, world.run(&format!("log {id} --json")).stdout].concat();
        assert!(!shown.contains("access-token-"), "renewed ones are secrets as well: {shown}");
        std::thread::sleep(Duration::from_millis(1_200));
    }
    let notes = world.read("oauth");
    assert!(notes.contains("token refresh_token True") && !notes.contains("False"), "{notes}");
    assert_eq!(notes.matches("authorize").count(), 1, "{notes}");
}

#[test]
fn a_tool_that_wants_more_says_so_and_the_next_login_asks_for_it() {
    let Some((world, _server)) = world(3600) else { return };
    assert_eq!(log_in(&world).2, 0);
    let done = run(&world, "a", "write").is(0);
    assert!(done.stdout.contains("it asks for write: run longrein mcp login shop"), "{}", done.stdout);
    assert!(world.run("mcp list").is(0).stdout.contains("it has asked for more since (write)"));
    assert_eq!(log_in(&world).2, 0);
    assert!(world.read("oauth").contains("authorize read write True"), "{}", world.read("oauth"));
    let done = run(&world, "b", "write").is(0);
    assert_eq!(outcomes(&done), ["\"done\""], "{}", done.stderr);
    assert!(world.read("oauth").contains("called write"));
}

#[test]
fn a_person_says_no() {
    let Some((world, _server)) = world(3600) else { return };
    world.write("refuse", "");
    let (said, stderr, status) = log_in(&world);
    assert!(status != 0 && stderr.contains("access_denied: not today"), "{said}{stderr}");
    assert!(!file(&world).exists());
}

#[test]
fn a_token_that_is_bound_to_a_key_is_sent_with_a_proof_of_its_own_each_time() {
    let Some((world, _server)) = world_with(1, Some("BOUND"), "") else { return };
    let (said, stderr, status) = log_in(&world);
    assert_eq!(status, 0, "{said}{stderr}");
    std::thread::sleep(Duration::from_millis(1_200));
    // it is renewed, and proven with the same key, while the server changes its mind about the nonce
    let done = run(&world, "a", "whoami").is(0);
    assert_eq!(outcomes(&done), ["\"done\""], "{}", done.stderr);
    let notes = world.read("oauth");
    assert!(notes.contains("token refresh_token True") && notes.contains("called whoami"), "{notes}");
    assert!(notes.matches("another nonce").count() >= 2, "{notes}");
    let kept: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file(&world)).unwrap()).unwrap();
    let key = kept["bound_to"].as_str().unwrap();
    let shown =
        [done.stdout, done.stderr, world.run("log a --json").stdout, world.run("mcp list --json").stdout].concat();
    assert!(!shown.contains(key) && !shown.contains("access-token-"), "{shown}");
    // without the key the token is worth nothing
    let other = world.home().join("mcp/other.json");
    std::fs::write(&other, kept.to_string().replace("\"bound_to\"", "\"unbound\"")).unwrap();
    std::fs::rename(&other, file(&world)).unwrap();
    let done = run(&world, "b", "whoami").is(0);
    assert!(done.stderr.contains("shop is not there"), "{}", done.stderr);
    assert_eq!(world.read("oauth").matches("called whoami").count(), 1, "{}", world.read("oauth"));
}

#[test]
fn a_client_with_a_key_of_its_own_is_let_in_for_itself_and_again_when_its_token_ends() {
    let auth = "[mcp.shop.auth]\nclient_id = \"signer\"\nclient_key = \"${secret:SHOP_KEY}\"\ngrant = \"client_credentials\"\n";
    let Some((world, _server)) = world_with(1, Some("SIGNED"), auth) else { return };
    let pem = world.read("key.pem");
    let (said, stderr, status) = log_in_by(world.longrein(["mcp", "login", "shop"]).env("SHOP_KEY", &pem));
    assert_eq!(status, 0, "{said}{stderr}");
    std::thread::sleep(Duration::from_millis(1_200));
    let done = run(&world, "a", "whoami").is(0);
    assert_eq!(outcomes(&done), ["\"done\""], "{}", done.stderr);
    let notes = world.read("oauth");
    assert!(notes.matches("signed urn:ietf:params:oauth:client-assertion-type:jwt-bearer").count() >= 2, "{notes}");
    assert!(!notes.contains("authorize"), "nobody was asked: {notes}");
    let inner = pem.lines().nth(1).unwrap();
    assert!(!said.contains(inner) && !done.stdout.contains(inner) && !done.stderr.contains(inner));
}
