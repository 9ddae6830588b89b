//! The server as a client sees it: what it answers to good and to bad messages, over lines and over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longrein_ports::BoxFuture;
use longrein_protocols::server::{
    Access, Class, Door, Fault, MESSAGE_MAX_BYTES, Operations, Powers, Start, Watch, serve_http, serve_lines,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A door that tells what it was asked.
#[derive(Default)]
struct Tame {
    stopped: Arc<AtomicBool>,
}

fn told(what: Value) -> BoxFuture<'static, Result<Value, Fault>> {
    Box::pin(async move { Ok(what) })
}

impl Door for Tame {
    fn start(&self, start: Start) -> BoxFuture<'_, Result<Value, Fault>> {
        if start.prompt.as_deref() == Some("panic") {
            panic!("a fault of ours");
        }
        told(json!({ "run": start.id, "state": "running" }))
    }

    /// Works until it is dropped or stopped.
    fn wait<'a>(&'a self, id: &'a str, seconds: u64, watch: Watch<'a>) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            for step in 1..=seconds.saturating_mul(100) {
                if self.stopped.load(Ordering::SeqCst) {
                    return Ok(json!({ "run": id, "state": "suspended" }));
                }
                watch(step, "a step");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(json!({ "run": id, "state": "running" }))
        })
    }

    fn list(&self, most: usize) -> BoxFuture<'_, Result<Value, Fault>> {
        told(json!({ "runs": [], "most": most }))
    }

    fn ids(&self) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(async { Ok((0..250).map(|number| format!("run{number}")).collect()) })
    }

    fn show<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            match id {
                "gone" => Err(Fault::new(Class::NotFound, "no run gone in this store").hint("run_list")),
                id => Ok(json!({ "run": id })),
            }
        })
    }

    fn log<'a>(&'a self, id: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "after": after, "most": most }))
    }

    fn send<'a>(&'a self, id: &'a str, text: String) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "text": text }))
    }

    fn approvals(&self) -> BoxFuture<'_, Result<Value, Fault>> {
        told(json!({ "waiting": [] }))
    }

    fn approve<'a>(&'a self, id: &'a str, action: &'a str, always: bool) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "approved": action, "always": always }))
    }

    fn deny<'a>(&'a self, id: &'a str, action: &'a str, reason: Option<String>) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "denied": action, "reason": reason }))
    }

    fn settle<'a>(&'a self, id: &'a str, action: &'a str, done: Option<Value>) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "settled": action, "done": done }))
    }

    fn cancel<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "state": "cancelled" }))
    }

    fn evidence<'a>(&'a self, id: &'a str, evidence: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        told(json!({ "run": id, "evidence": evidence }))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.stopped.store(true, Ordering::SeqCst);
        Box::pin(async {})
    }
}

fn operations(powers: Powers) -> Arc<Operations> {
    Arc::new(Operations::new(Arc::new(Tame::default()), powers, "1.2.3"))
}

/// A client over lines.
struct Lines {
    to: WriteHalf<DuplexStream>,
    from: BufReader<ReadHalf<DuplexStream>>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Lines {
    fn raw(powers: Powers) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(theirs);
        let (from, to) = tokio::io::split(ours);
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve_lines(operations(powers), input, output, stop.clone()));
        Self { to, from: BufReader::new(from), stop, served }
    }

    async fn new(powers: Powers) -> Self {
        let mut client = Self::raw(powers);
        assert_eq!(client.initialize("2025-11-25").await["result"]["protocolVersion"], "2025-11-25");
        client
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let params =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
        let response = self.ask("initialize", params).await;
        self.write(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        response
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).await.unwrap();
        self.to.write_all(b"\n").await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, self.from.read_line(&mut line)).await.expect("an answer").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params });
        self.write(request.to_string().as_bytes()).await;
        self.read().await
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// It answers as if nothing had been.
    async fn is_well(&mut self) {
        assert_eq!(self.ask("ping", json!({})).await, json!({ "jsonrpc": "2.0", "id": "q", "result": {} }));
    }
}

#[tokio::test]
async fn versions_are_negotiated() {
    let asked = [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2026-07-28", "2025-11-25"),
        ("1", "2025-11-25"),
    ];
    for (version, agreed) in asked {
        let mut client = Lines::raw(Powers::Client);
        let result = client.initialize(version).await["result"].clone();
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["version"], "1.2.3");
        assert!(result["capabilities"]["prompts"].is_null(), "there are no prompts");
        assert_eq!(client.initialize(version).await["error"]["code"], -32600, "once only");
        client.is_well().await;
    }
    let mut client = Lines::raw(Powers::Client);
    client.is_well().await;
    assert_eq!(client.ask("tools/list", json!({})).await["error"]["code"], -32600, "initialize comes first");
    assert_eq!(client.ask("initialize", json!({ "protocolVersion": 7 })).await["error"]["code"], -32602);
    client.initialize("2025-06-18").await;
}

#[tokio::test]
async fn tools_say_what_they_do_and_only_an_operator_answers_for_people() {
    for (powers, answers) in [(Powers::Client, false), (Powers::Operator, true)] {
        let mut client = Lines::new(powers).await;
        let tools = client.ask("tools/list", json!({})).await["result"]["tools"].clone();
        let tools = tools.as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        for name in ["approve", "deny", "settle"] {
            assert_eq!(names.contains(&name), answers, "{name}");
            let arguments = json!({ "id": "r", "action": "a1", "as": "done" });
            let called = client.call(name, arguments).await;
            assert_eq!(called["error"]["code"] == -32602, !answers, "{name} is not there: {called}");
        }
        for tool in tools {
            assert_eq!(tool["inputSchema"]["type"], "object");
            assert_eq!(tool["inputSchema"]["additionalProperties"], false);
            let reads = ["run_list", "run_show", "run_events", "approvals", "evidence"];
            let name = tool["name"].as_str().unwrap();
            assert_eq!(tool["annotations"]["readOnlyHint"], reads.contains(&name), "{name}");
        }
    }
}

#[tokio::test]
async fn every_tool_reaches_its_door() {
    let mut client = Lines::new(Powers::Operator).await;
    let cases = [
        ("run_start", json!({ "prompt": "p", "id": "r" }), json!({ "run": "r", "state": "running" })),
        ("run_wait", json!({ "id": "r", "timeout_s": 0 }), json!({ "run": "r", "state": "running" })),
        ("run_list", json!({}), json!({ "runs": [], "most": 50 })),
        ("run_list", json!({ "limit": 9000 }), json!({ "runs": [], "most": 500 })),
        ("run_show", json!({ "id": "r" }), json!({ "run": "r" })),
        ("run_events", json!({ "id": "r", "after": 3 }), json!({ "run": "r", "after": 3, "most": 100 })),
        ("run_send", json!({ "id": "r", "text": "t" }), json!({ "run": "r", "text": "t" })),
        ("approvals", json!({}), json!({ "waiting": [] })),
        ("approve", json!({ "id": "r", "action": "a1" }), json!({ "run": "r", "approved": "a1", "always": false })),
        (
            "deny",
            json!({ "id": "r", "action": "a1", "reason": "no" }),
            json!({ "run": "r", "denied": "a1", "reason": "no" }),
        ),
        (
            "settle",
            json!({ "id": "r", "action": "a1", "as": "not_done" }),
            json!({ "run": "r", "settled": "a1", "done": null }),
        ),
        (
            "settle",
            json!({ "id": "r", "action": "a1", "as": "done", "result": 7 }),
            json!({ "run": "r", "settled": "a1", "done": 7 }),
        ),
        ("cancel", json!({ "id": "r" }), json!({ "run": "r", "state": "cancelled" })),
        ("evidence", json!({ "id": "r", "evidence": "e1" }), json!({ "run": "r", "evidence": "e1" })),
    ];
    for (tool, arguments, expected) in cases {
        let result = client.call(tool, arguments).await["result"].clone();
        assert_eq!(result["structuredContent"], expected, "{tool}: {result}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, expected, "the text says the same");
        assert!(result["isError"].is_null());
    }
}

#[tokio::test]
async fn what_a_tool_cannot_do_is_for_the_model_to_read() {
    let mut client = Lines::new(Powers::Client).await;
    let cases = [
        ("run_show", json!({ "id": "gone" }), "not_found"),
        ("run_show", json!({}), "usage"),
        ("run_show", json!({ "id": 7 }), "usage"),
        ("run_show", json!({ "id": "r", "more": 1 }), "usage"),
        ("run_start", json!({}), "usage"),
        ("run_start", json!({ "prompt": ["a"] }), "usage"),
        ("run_wait", json!({ "id": "r", "timeout_s": -1 }), "usage"),
        ("run_events", json!({ "id": "r", "after": -1 }), "usage"),
        ("approvals", json!({ "id": "r" }), "usage"),
    ];
    for (tool, arguments, class) in cases {
        let result = client.call(tool, arguments).await["result"].clone();
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert_eq!(result["structuredContent"]["error"]["class"], class, "{tool}: {result}");
    }
    // A fault of ours takes its own request with it and no other.
    assert_eq!(client.call("run_start", json!({ "prompt": "panic" })).await["error"]["code"], -32603);
    client.is_well().await;
    let unknown = client.call("run_strat", json!({})).await["error"].clone();
    assert_eq!(unknown["code"], -32602);
    assert!(unknown["message"].as_str().unwrap().contains("run_start"), "{unknown}");
    assert!(unknown.to_string().len() < 1024, "the catalogue is not repeated");
}

#[tokio::test]
async fn resources_are_listed_in_pages_and_read() {
    let mut client = Lines::new(Powers::Client).await;
    let (mut cursor, mut seen) = (Value::Null, Vec::new());
    loop {
        let page = client.ask("resources/list", json!({ "cursor": cursor })).await["result"].clone();
        seen.extend(page["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!((seen.len(), once.len()), (251, 251));
    for cursor in [json!("none of ours"), json!(7), json!({})] {
        let listed = client.ask("resources/list", json!({ "cursor": cursor })).await;
        assert_eq!(listed["error"]["code"], -32602);
    }
    assert_eq!(client.ask("tools/list", json!({ "cursor": "x" })).await["error"]["code"], -32602);
    let templates = client.ask("resources/templates/list", json!({})).await["result"]["resourceTemplates"].clone();
    assert_eq!(templates.as_array().unwrap().len(), 3);
    let readable = [
        ("longrein://runs", json!({ "runs": [], "most": 500 })),
        ("longrein://runs/r", json!({ "run": "r" })),
        ("longrein://runs/r/log", json!({ "run": "r", "after": 0, "most": 500 })),
        ("longrein://runs/r/evidence/e1", json!({ "run": "r", "evidence": "e1" })),
    ];
    for (uri, expected) in readable {
        let contents = client.ask("resources/read", json!({ "uri": uri })).await["result"]["contents"].clone();
        assert_eq!(contents[0]["uri"], uri);
        assert_eq!(serde_json::from_str::<Value>(contents[0]["text"].as_str().unwrap()).unwrap(), expected);
    }
    for uri in
        ["longrein://runs/gone", "longrein://", "file:///etc/passwd", "longrein://runs/", "longrein://runs/r/x", ""]
    {
        assert_eq!(client.ask("resources/read", json!({ "uri": uri })).await["error"]["code"], -32002, "{uri}");
    }
}

#[tokio::test]
async fn progress_goes_up_and_a_cancelled_request_is_not_answered() {
    let mut client = Lines::new(Powers::Client).await;
    let wait = |id: u32, seconds: f64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "run_wait", "arguments": { "id": "r", "timeout_s": seconds }, "_meta": { "progressToken": id },
        }})
    };
    client.write(wait(1, 1.0).to_string().as_bytes()).await;
    let mut last = 0.0;
    loop {
        let message = client.read().await;
        if message["id"] == 1 {
            break;
        }
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], 1);
        let now = message["params"]["progress"].as_f64().unwrap();
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    assert!(last > 1.0);
    client.write(wait(2, 3600.0).to_string().as_bytes()).await;
    client.read().await;
    client.write(wait(2, 3600.0).to_string().as_bytes()).await;
    loop {
        let message = client.read().await;
        if message["id"] == 2 {
            assert_eq!(message["error"]["code"], -32600, "one request under an id");
            break;
        }
    }
    for id in [json!(2), json!(99), json!({}), json!(null)] {
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        client.write(cancel.to_string().as_bytes()).await;
    }
    client.write(br#"{"jsonrpc":"2.0","id":"end","method":"ping"}"#).await;
    loop {
        let message = client.read().await;
        assert_ne!(message["id"], 2, "a cancelled request is not answered");
        if message["id"] == "end" {
            break;
        }
    }
    assert_eq!(client.ask("logging/setLevel", json!({ "level": "debug" })).await["result"], json!({}));
    assert_eq!(client.ask("logging/setLevel", json!({ "level": "loud" })).await["error"]["code"], -32602);
}

#[tokio::test]
async fn no_line_ends_the_server() {
    let mut client = Lines::new(Powers::Client).await;
    let refused: [(&[u8], i64); 12] = [
        (b"{", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[]", -32600),
        (b"[1]", -32600),
        (b"7", -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_list","arguments":"text"}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_list","arguments":[1]}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"text"}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601),
        (br#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#, -32601),
    ];
    for (line, code) in refused {
        client.write(line).await;
        let answer = client.read().await;
        assert_eq!(answer["error"]["code"], code, "{}: {answer}", String::from_utf8_lossy(line));
        client.is_well().await;
    }
    // Nothing of this is answered.
    let silent: [&[u8]; 6] = [
        b"",
        b"  \r",
        br#"{"jsonrpc":"2.0","method":"notifications/unheard","params":[1]}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        br#"{"jsonrpc":"2.0","id":"longrein-1","result":{}}"#,
        br#"{"jsonrpc":"2.0","id":4,"error":"text"}"#,
    ];
    for line in silent {
        client.write(line).await;
        client.is_well().await;
    }
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    client.write(deep.as_bytes()).await;
    assert_eq!(client.read().await["error"]["code"], -32700);
    client.is_well().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_and_passed_over() {
    let mut client = Lines::new(Powers::Client).await;
    for over in [1, 3 * MESSAGE_MAX_BYTES] {
        let line = vec![b'x'; MESSAGE_MAX_BYTES + over];
        client.write(&line).await;
        assert_eq!(client.read().await["error"]["code"], -32600);
        client.is_well().await;
    }
    let text = "y".repeat(MESSAGE_MAX_BYTES - 1000);
    let sent = client.call("run_send", json!({ "id": "r", "text": text })).await;
    assert_eq!(sent["result"]["structuredContent"]["run"], "r", "one that just fits is served");
}

/// Bytes without end, from a seed: mangled requests, pieces of JSON, noise.
#[tokio::test]
async fn a_flood_of_noise_is_survived() {
    let mut client = Lines::new(Powers::Operator).await;
    let good = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_show","arguments":{"id":"r"}}}"#,
        r#"{"jsonrpc":"2.0","id":"x","method":"resources/read","params":{"uri":"longrein://runs"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let mut flood = Vec::new();
    for _ in 0..4000 {
        let mut line = good[next(good.len())].as_bytes().to_vec();
        for _ in 0..next(6) {
            let at = next(line.len());
            match next(4) {
                0 => line[at] = u8::try_from(next(256)).unwrap(),
                1 => line.truncate(at.max(1)),
                2 => line.insert(at, b"{}[]\",:0"[next(8)]),
                _ => {
                    let piece = line[at..].to_vec();
                    line.extend(piece);
                }
            }
        }
        flood.extend(line);
        flood.push(b'\n');
    }
    flood.extend(br#"{"jsonrpc":"2.0","id":"after the flood","method":"ping"}"#);
    flood.push(b'\n');
    let Lines { mut to, from, .. } = client_parts(&mut client);
    let writing = tokio::spawn(async move {
        to.write_all(&flood).await.unwrap();
        to
    });
    let mut lines = from.lines();
    let answered = async {
        let mut answers = 0;
        while let Some(line) = lines.next_line().await.unwrap() {
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["jsonrpc"], "2.0");
            if message["id"] == "after the flood" {
                return answers;
            }
            answers += 1;
        }
        panic!("the server ended");
    };
    let answers = tokio::time::timeout(PATIENCE, answered).await.expect("the flood is answered");
    assert!(answers > 2000, "{answers}");
    drop(writing.await.unwrap());
}

/// Takes a client apart, so that it writes and reads at the same time.
fn client_parts(client: &mut Lines) -> Lines {
    let (spare, _) = tokio::io::duplex(1);
    let (from, to) = tokio::io::split(spare);
    let spare =
        Lines { to, from: BufReader::new(from), stop: CancellationToken::new(), served: tokio::spawn(async {}) };
    std::mem::replace(client, spare)
}

#[tokio::test]
async fn batches_are_for_the_versions_that_have_them() {
    let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},7,
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_show","arguments":{"id":"r"}}}]"#;
    let batch: Vec<u8> = batch.iter().copied().filter(|byte| *byte != b'\n').collect();
    let mut client = Lines::raw(Powers::Client);
    client.write(&batch).await;
    assert_eq!(client.read().await["error"]["code"], -32600, "not before initialize");
    client.initialize("2025-03-26").await;
    client.write(&batch).await;
    let answers = client.read().await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(1), Value::Null, json!(2)]);
    let mut client = Lines::new(Powers::Client).await;
    client.write(&batch).await;
    assert_eq!(client.read().await["error"]["code"], -32600);
}

#[tokio::test]
async fn too_many_requests_at_once_are_refused_and_the_others_go_on() {
    let mut client = Lines::new(Powers::Client).await;
    for id in 0..70 {
        let arguments = json!({ "id": "r", "timeout_s": 3600 });
        let params = json!({ "name": "run_wait", "arguments": arguments });
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        client.write(request.to_string().as_bytes()).await;
    }
    for _ in 0..6 {
        assert_eq!(client.read().await["error"]["code"], -32000);
    }
    client.is_well().await;
}

#[tokio::test]
async fn the_end_of_input_and_a_stop_answer_what_is_worked_on() {
    for by_stop in [false, true] {
        let mut client = Lines::new(Powers::Client).await;
        let params = json!({ "name": "run_wait", "arguments": { "id": "r", "timeout_s": 3600 } });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        client.write(request.to_string().as_bytes()).await;
        client.is_well().await;
        if by_stop {
            client.stop.cancel();
        } else {
            // In the midst of a message.
            client.to.write_all(br#"{"jsonrpc":"2.0","id":5,"met"#).await.unwrap();
            client.to.shutdown().await.unwrap();
            assert_eq!(client.read().await["error"]["code"], -32700);
        }
        assert_eq!(client.read().await["result"]["structuredContent"]["state"], "suspended");
        tokio::time::timeout(PATIENCE, client.served).await.expect("it ends").unwrap();
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_keep_the_server_from_ending() {
    let mut client = Lines::new(Powers::Client).await;
    let flood = async {
        loop {
            client.write(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), flood).await.is_err(), "it is not read from without an end");
    client.stop.cancel();
    tokio::time::timeout(PATIENCE, client.served).await.expect("it ends").unwrap();
}

// ---- HTTP ----

const TOKEN: &str = "a-token-of-some-length";

type Headers<'a> = &'a [(&'a str, &'a str)];

struct Http {
    port: u16,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// The response in a body or in the last event of a stream.
    fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data: {"));
        let text = events.next_back().map_or_else(|| self.body.clone(), |rest| format!("{{{rest}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

impl Http {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let access = Access::Token(TOKEN.to_owned());
        let served = tokio::spawn(serve_http(operations(Powers::Client), listener, access, stop.clone()));
        Self { port, stop, served }
    }

    /// A request as it stands; chunked replies are put together.
    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut head = format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that has refused the head may be gone before the body is.
        let _ = stream.write_all(body).await;
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an answer");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { panic!("no reply: {text:?} {read:?}") };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        let host = format!("localhost:{}", self.port);
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![
            ("Host", host.as_str()),
            ("Authorization", &bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        self.send("POST", &headers, message.to_string().as_bytes()).await
    }

    async fn session(&self) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        let reply =
            self.post(None, &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.header("mcp-session-id").unwrap().to_owned()
    }
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
}

#[tokio::test]
async fn only_who_shows_the_token_and_comes_from_here_comes_in() {
    let server = Http::new().await;
    let here = format!("127.0.0.1:{}", server.port);
    let right = format!("Bearer {TOKEN}");
    let cases = [
        (here.as_str(), None, Some(right.as_str()), 400),
        ("localhost", None, Some(right.as_str()), 400),
        ("[::1]:80", Some("http://localhost:5173"), Some(right.as_str()), 400),
        (here.as_str(), None, None, 401),
        (here.as_str(), None, Some("Bearer"), 401),
        (here.as_str(), None, Some("Bearer a-token-of-some-lengti"), 401),
        (here.as_str(), None, Some("Basic a-token-of-some-length"), 401),
        ("example.com", None, Some(right.as_str()), 403),
        ("localhost.example.com", None, Some(right.as_str()), 403),
        ("127.0.0.1.example.com", None, Some(right.as_str()), 403),
        ("localhost:x", None, Some(right.as_str()), 403),
        (here.as_str(), Some("http://example.com"), Some(right.as_str()), 403),
        (here.as_str(), Some("null"), Some(right.as_str()), 403),
        (here.as_str(), Some("http://localhost@example.com"), Some(right.as_str()), 403),
    ];
    for (host, origin, token, status) in cases {
        let mut headers = vec![
            ("Host", host),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(origin.map(|origin| ("Origin", origin)));
        headers.extend(token.map(|token| ("Authorization", token)));
        let reply = server.send("POST", &headers, ping().to_string().as_bytes()).await;
        assert_eq!(reply.status, status, "{host} {origin:?} {token:?}: {}", reply.body);
    }
    server.stop.cancel();
    tokio::time::timeout(PATIENCE, server.served).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let server = Http::new().await;
    assert_eq!(server.post(None, &ping()).await.status, 400);
    assert_eq!(server.post(Some("none"), &ping()).await.status, 404);
    let session = server.session().await;
    assert_eq!(server.post(Some(&session), &ping()).await.message()["result"], json!({}));
    let params = json!({ "name": "run_show", "arguments": { "id": "r" } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let reply = server.post(Some(&session), &call).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.message()["result"]["structuredContent"], json!({ "run": "r" }));
    // Lost, and fetched again.
    let host = format!("localhost:{}", server.port);
    let bearer = format!("Bearer {TOKEN}");
    let common = [("Host", host.as_str()), ("Authorization", &bearer), ("Mcp-Session-Id", &session)];
    let id = reply.body.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().trim().to_owned();
    let mut again = common.to_vec();
    again.extend([("Accept", "text/event-stream"), ("Last-Event-ID", &id)]);
    let replayed = server.send("GET", &again, b"").await;
    assert_eq!(replayed.message()["id"], 2);
    for id in ["x", "1", "77-0", "1-99999999999999999999999"] {
        let mut wrong = common.to_vec();
        wrong.extend([("Accept", "text/event-stream"), ("Last-Event-ID", id)]);
        let status = server.send("GET", &wrong, b"").await.status;
        assert!((400..=404).contains(&status), "{id}: {status}");
    }
    let heard = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(Some(&session), &heard).await.status, 202);
    assert_eq!(server.send("DELETE", &common, b"").await.status, 204);
    assert_eq!(server.post(Some(&session), &ping()).await.status, 404);
}

#[tokio::test]
async fn no_request_ends_the_server() {
    let server = Http::new().await;
    let session = server.session().await;
    let host = format!("localhost:{}", server.port);
    let bearer = format!("Bearer {TOKEN}");
    let common = [("Host", host.as_str()), ("Authorization", &bearer), ("Mcp-Session-Id", &session)];
    let json_in = ("Content-Type", "application/json");
    let both = ("Accept", "application/json, text/event-stream");
    let cases: [(&str, Headers<'_>, &[u8], u16); 8] = [
        ("POST", &[json_in, both], b"{", 400),
        ("POST", &[json_in, both], b"\xff", 400),
        ("POST", &[json_in, both], b"", 400),
        ("POST", &[("Content-Type", "text/plain"), both], b"{}", 415),
        ("POST", &[json_in, ("Accept", "text/html")], b"{}", 406),
        ("POST", &[json_in, both, ("Mcp-Protocol-Version", "1999-01-01")], b"{}", 400),
        ("GET", &[("Accept", "application/json")], b"", 406),
        ("PUT", &[json_in, both], b"{}", 405),
    ];
    for (method, headers, body, status) in cases {
        let mut all = common.to_vec();
        all.extend(headers);
        let reply = server.send(method, &all, body).await;
        assert_eq!(reply.status, status, "{method} {}: {}", String::from_utf8_lossy(body), reply.body);
    }
    let mut all = common.to_vec();
    all.extend([json_in, both]);
    let large = vec![b' '; MESSAGE_MAX_BYTES + 1];
    assert_eq!(server.send("POST", &all, &large).await.status, 413);
    // No HTTP at all, a head without an end, a body that is never sent: each costs its connection only.
    for bytes in
        [&b"\x16\x03\x01\x02\x00"[..], b"POST /mcp HTTP/1.1\r\nHo", b"POST /mcp HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        drop(stream);
    }
    assert_eq!(server.post(Some(&session), &ping()).await.message()["result"], json!({}));
}

#[tokio::test]
async fn nothing_but_loopback_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let access = Access::Token(TOKEN.to_owned());
    let served = serve_http(operations(Powers::Client), listener, access, CancellationToken::new()).await;
    assert_eq!(served.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
