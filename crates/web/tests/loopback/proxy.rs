//! The proxy on loopback: what gets through, what does not, and clients that try.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Does, Names, Server, says};
use longrein_web::{Allowed, Answer, Asked, Patience, Proxy, Shared, proxy_env, serve, told};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

fn patience() -> Patience {
    Patience { head: Duration::from_millis(800), connect: Duration::from_secs(3), idle: Duration::from_millis(800) }
}

fn allowing(entries: &[String]) -> Shared {
    Shared::new(Allowed::parse(entries).unwrap()).with_patience(patience())
}

fn start(entries: &[String]) -> Proxy {
    Proxy::start_with(allowing(entries)).unwrap()
}

/// Sends this and reads to the end.
async fn send(proxy: &Proxy, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(proxy.socket()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // a connection that was reset has said what it had to say
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Once the connections that were asked for are written down.
async fn asked(proxy: &Proxy, rows: usize) -> Vec<Asked> {
    for _ in 0..200 {
        let asked = proxy.asked();
        if asked.len() >= rows {
            return asked;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", proxy.asked());
}

#[tokio::test]
async fn a_plain_request_to_a_named_host() {
    let server = Server::start(|_| says("200 OK\r\nContent-Length: 2\r\nConnection: keep-alive", b"hi")).await;
    let place = server.address.to_string();
    let proxy = start(std::slice::from_ref(&place));
    let head = format!("GET http://{place}/x?y HTTP/1.1\r\nHost: evil.example\r\nProxy-Connection: keep-alive\r\n\r\n");
    // the second request on the connection is not read
    let answer = send(&proxy, format!("{head}{head}").as_bytes()).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    assert_eq!(server.asked(), [format!("GET /x?y HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n")]);
    let rows = asked(&proxy, 1).await;
    assert_eq!((rows[0].answer.clone(), rows[0].times, rows[0].received), (Answer::LetThrough, 1, 2));
    assert_eq!(told(&rows, &Allowed::parse(&[place]).unwrap()), None);
}

#[tokio::test]
async fn other_hosts_and_what_is_told_of_them() {
    let server = Server::start(|_| says("200 OK", b"secret")).await;
    let port = server.address.port();
    let names = Names::of(&[
        ("inside.example", &[&["127.0.0.1"]]),
        ("mixed.example", &[&["1.1.1.1", "10.0.0.1"]]),
        ("evil.example", &[&["127.0.0.1"]]),
    ]);
    let allowed = ["inside.example", "mixed.example", "gone.example"].map(|host| format!("{host}:{port}"));
    let proxy = Proxy::start_with(allowing(&allowed).with_resolver(names.clone())).unwrap();
    for (target, status) in [
        (format!("evil.example:{port}"), "403"),
        (format!("127.0.0.1:{port}"), "403"),
        (format!("inside.example:{}", port ^ 1), "403"),
        (format!("inside.example:{port}"), "403"),
        (format!("mixed.example:{port}"), "403"),
        (format!("gone.example:{port}"), "502"),
        ("nonsense".to_owned(), "400"),
    ] {
        for request in [
            format!("CONNECT {target} HTTP/1.1\r\nHost: inside.example:{port}\r\n\r\n"),
            format!("GET http://{target}/ HTTP/1.1\r\nHost: inside.example:{port}\r\n\r\n"),
        ] {
            let answer = send(&proxy, request.as_bytes()).await;
            let expected = if request.starts_with("GET") && target == "nonsense" { "403" } else { status };
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{request}{answer}");
        }
    }
    assert!(server.asked().is_empty());
    // a host that is not on the list is not even looked up
    assert!(!names.looked_up().iter().any(|name| name == "evil.example"));
    let told = told(&proxy.asked(), &Allowed::parse(&allowed).unwrap()).unwrap();
    assert!(told.contains(&format!("It tried 2 times to reach evil.example:{port}, which it may not.")), "{told}");
    assert!(told.contains("inside.example") && told.contains("loopback"), "{told}");
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_half_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // the server speaks first, as ssh does
        stream.write_all(b"hello ").await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
    });
    let proxy = start(std::slice::from_ref(&place));
    let mut stream = UnixStream::connect(proxy.socket()).await.unwrap();
    stream.write_all(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; b"HTTP/1.1 200 Connection established\r\n\r\nhello ".len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert!(answer.ends_with(b"\r\n\r\nhello "));
    let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8 | 0x80).collect();
    let (mut from, mut to) = stream.split();
    let write = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let (_, read) = tokio::join!(write, from.read_to_end(&mut back));
    read.unwrap();
    back.reverse();
    assert!(back == sent);
    let rows = asked(&proxy, 1).await;
    assert_eq!((rows[0].sent, rows[0].received), (200_000, 200_006));
}

#[tokio::test]
async fn a_tunnel_to_one_host_does_not_lead_to_another_by_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all).await;
            heard.send(all.len()).unwrap();
        }
    });
    let greeting = |host: &str| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let name = host.to_owned().try_into().unwrap();
        let mut bytes = Vec::new();
        rustls::ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    };
    let proxy = start(&[format!("localhost:{port}")]);
    for (name, passes) in [("localhost", true), ("LOCALHOST", true), ("evil.example", false)] {
        let mut stream = UnixStream::connect(proxy.socket()).await.unwrap();
        let request = format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n");
        stream.write_all(&[request.as_bytes(), &greeting(name)].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(hears.recv().await.unwrap() > 0, passes, "{name}");
    }
    let rows = asked(&proxy, 2).await;
    assert!(rows.iter().any(|row| row.answer == Answer::OtherName && row.sent == 0), "{rows:?}");
}

#[tokio::test]
async fn bodies_are_passed_on_to_their_end_and_no_further() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            let mut buffer = [0; 4096];
            // until nothing more comes
            while let Ok(Ok(length @ 1..)) =
                tokio::time::timeout(Duration::from_millis(200), stream.read(&mut buffer)).await
            {
                all.extend_from_slice(&buffer[..length]);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            heard.send(String::from_utf8(all).unwrap()).unwrap();
        }
    });
    let proxy = start(std::slice::from_ref(&place));
    let smuggled = format!("GET http://{place}/smuggled HTTP/1.1\r\n\r\n");
    for (body, passed) in [
        ("Content-Length: 3\r\n\r\nabc", "Content-Length: 3\r\nConnection: close\r\n\r\nabc"),
        (
            "Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
        ),
    ] {
        let answer = send(&proxy, format!("POST http://{place}/ HTTP/1.1\r\n{body}{smuggled}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let heard = hears.recv().await.unwrap();
        assert!(heard.ends_with(passed) && !heard.contains("smuggled"), "{heard}");
    }
    for body in ["3\r\nabcd\r\n0\r\n\r\n", "-1\r\n", "\r\n", "0x3\r\nabc", "fffffffffffffffff\r\n", "3\nabc\n0\n\n"] {
        let request = format!("POST http://{place}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(send(&proxy, request.as_bytes()).await, "", "{body:?}");
        assert!(!hears.recv().await.unwrap().ends_with("0\r\n\r\n"), "{body:?}");
    }
}

#[tokio::test]
async fn clients_that_stall_flood_or_vanish() {
    let server = Server::start(|path| match path {
        "/stop" => Does::Stops(b"HTTP/1.1 200 OK\r\n\r\nhalf".to_vec()),
        "/odd" => Does::Says(b"SSH-2.0-x\r\n\r\n".to_vec()),
        "/huge" => says(&format!("200 OK\r\nX: {}", "x".repeat(100_000)), b""),
        _ => says("200 OK", b"fine"),
    })
    .await;
    let place = server.address.to_string();
    let proxy = start(std::slice::from_ref(&place));
    let get = |path: &str| format!("GET http://{place}{path} HTTP/1.1\r\n\r\n");
    assert!(send(&proxy, b"GET http://").await.starts_with("HTTP/1.1 408"));
    assert!(send(&proxy, &b"x".repeat(40_000)).await.starts_with("HTTP/1.1 400"));
    assert!(send(&proxy, b"\x16\x03\x01\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    assert!(send(&proxy, get("/stop").as_bytes()).await.ends_with("half"));
    assert!(send(&proxy, get("/odd").as_bytes()).await.starts_with("HTTP/1.1 502"));
    assert!(send(&proxy, get("/huge").as_bytes()).await.starts_with("HTTP/1.1 502"));
    // more than are served at a time, all silent: the last is served when they have run out of time
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(UnixStream::connect(proxy.socket()).await.unwrap());
    }
    assert!(send(&proxy, get("/").as_bytes()).await.ends_with("fine"));
    drop(silent);
    let socket = proxy.socket().to_owned();
    let mut open = UnixStream::connect(&socket).await.unwrap();
    open.write_all(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    open.read_u8().await.unwrap();
    drop(proxy);
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), open.read_to_end(&mut rest)).await.expect("it ends").ok();
    assert!(!socket.exists() && UnixStream::connect(&socket).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_client() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl");
        return;
    }
    let server = Server::start(|_| says("200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5", b"hello")).await;
    let place = server.address.to_string();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let shared = Arc::new(allowing(std::slice::from_ref(&place)));
    let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
    let curl = |args: Vec<String>| {
        let env = proxy_env(&address);
        tokio::task::spawn_blocking(move || {
            let mut curl = Command::new("curl");
            curl.env_clear().envs(env).args(["-sS", "--max-time", "10"]).args(args);
            let output = curl.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
        })
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let url = format!("http://{place}/x");
    assert_eq!(curl(words(&[&url])).await.unwrap(), (true, "hello".to_owned()));
    assert_eq!(curl(words(&["-d", &"z".repeat(3000), &url])).await.unwrap(), (true, "hello".to_owned()));
    assert_eq!(curl(words(&["--proxytunnel", &url])).await.unwrap(), (true, "hello".to_owned()));
    let (_, refused) = curl(words(&["http://127.0.0.1:1/"])).await.unwrap();
    assert!(refused.contains("127.0.0.1:1 is not among what this command may reach"), "{refused}");
    assert!(!curl(words(&["https://evil.example/"])).await.unwrap().0);
    serving.abort();
    let told = told(&shared.asked(), &shared_list(&place)).unwrap();
    assert!(told.contains("evil.example:443"), "{told}");
}

fn shared_list(place: &str) -> Allowed {
    Allowed::parse(&[place]).unwrap()
}

/// Of a client that sends any bytes nothing is let through, and it is always answered or hung up on.
#[test]
fn any_bytes_are_survived() {
    use proptest::prelude::*;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let words = [
        "CONNECT ",
        "GET ",
        "a.example:443",
        "http://a.example/",
        " HTTP/1.1",
        "\r\n",
        "\n",
        "\0",
        ":",
        "\u{e9}",
        "Host: x",
    ];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let bytes = prop::collection::vec(prop::sample::select(words.to_vec()), 0..10).prop_map(|pieces| pieces.concat());
    let proxy = runtime.block_on(async { start(&[]) });
    runner
        .run(&bytes, |bytes| {
            let answer = runtime.block_on(send(&proxy, format!("{bytes}\r\n\r\n").as_bytes()));
            prop_assert!(answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
            Ok(())
        })
        .unwrap();
    assert!(proxy.asked().iter().all(|row| row.answer != Answer::LetThrough));
    drop(runtime);
    // The runtime is gone, and so is what it served: at the latest when a child that another test is about to start has let go.
    let is_gone = || std::os::unix::net::UnixStream::connect(proxy.socket()).is_err();
    let began = std::time::Instant::now();
    while !is_gone() && began.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(is_gone());
}

/// Nobody else on the machine gets at the socket.
#[tokio::test]
async fn the_socket_is_the_users_own() {
    use std::os::unix::fs::PermissionsExt;
    let proxy = start(&[]);
    let mode = proxy.socket().parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
