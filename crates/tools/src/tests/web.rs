//! `web_fetch` as a model meets it: from a server on loopback, which only a test can reach.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use longrein_core::outcome::{Outcome, ToolError, class};
use longrein_core::task::Builtin;
use longrein_ports::{Handed, Ran, Tools};
use longrein_web::{Reach, Web};

use super::*;

/// Answers every request for a path it knows; a test's threads end with it.
fn serve(pages: Vec<(&'static str, String)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut buffer = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(length @ 1..) => head.extend_from_slice(&buffer[..length]),
                    Ok(0) | Err(_) => break,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let page = pages.iter().find(|(known, _)| *known == path);
            let answer = page.map_or("404 Not Found\r\nContent-Type: text/plain\r\n\r\nno", |(_, answer)| answer);
            // a client that went away is its own business
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).ok();
        }
    });
    address
}

async fn fetch(reach: Reach, url: &str) -> Result<Ran, ToolError> {
    let mut task = task(&[]);
    task.tools = vec![crate::builtin(Builtin::WebFetch)];
    let mut secrets = Secrets::new();
    secrets.know("TOKEN", "hunter2hunter2");
    let toolbox = Toolbox::new(&task, &operator(), secrets).unwrap().with_web(Web::reaching(reach));
    let args = json!({ "url": url });
    let valid = toolbox.validate(&ToolName::new("web_fetch"), &args.to_string())?;
    let attempt = Attempt { args: valid.args, ..attempt("web_fetch", &args) };
    Ok(toolbox.attempt(&task, &attempt, &Handed::default()).await)
}

async fn at(server: SocketAddr, path: &str) -> Outcome {
    fetch(Reach::These(vec![server]), &format!("http://{server}{path}")).await.unwrap().outcome
}

#[tokio::test]
async fn pages_become_text() {
    let server = serve(vec![
        (
            "/docs/",
            "200 OK\r\nContent-Type: text/html\r\n\r\n<html><head><title>Docs</title><script>x()</script></head>\
             <body><h1>Head</h1><p>See <a href=\"../one\">one</a> or <a href='https://other.example/'>other</a>.</body>"
                .to_owned(),
        ),
        ("/data", "200 OK\r\nContent-Type: application/json\r\n\r\n{\"b\": 1, \"a\": 2}".to_owned()),
        ("/image", "200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\n\u{1}png".to_owned()),
        ("/gone", "302 Found\r\nLocation: https://elsewhere.example/x\r\n\r\n".to_owned()),
        ("/busy", "503 Service Unavailable\r\nRetry-After: 9\r\nContent-Type: text/plain\r\n\r\nlater".to_owned()),
        ("/short", "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf".to_owned()),
    ]);
    let done = async |path: &str| match at(server, path).await {
        Outcome::Done(content) => inline(&content),
        Outcome::Error(error) | Outcome::NotDone(error) | Outcome::Unknown(error) => panic!("{path}: {error:?}"),
    };
    assert_eq!(
        done("/docs/").await,
        json!({
            "url": format!("http://{server}/docs/"),
            "status": 200,
            "content_type": "text/html",
            "title": "Docs",
            "links": [format!("http://{server}/one"), "https://other.example/"],
            "text": "Head\nSee one [1] or other [2].",
        })
    );
    assert_eq!(done("/data").await["text"], r#"{"b": 1, "a": 2}"#);
    assert_eq!(done("/image").await["text"], "[image/png, 4 bytes: no text, and not shown]");
    assert_eq!(done("/gone").await["moved_to"], "https://elsewhere.example/x");
    assert!(done("/short").await["truncated"].as_str().unwrap().contains("after 4 bytes"));
    let Outcome::Error(missing) = at(server, "/missing").await else { panic!("a missing page is no result") };
    assert_eq!(missing.class, "http_status");
    assert_eq!(missing.message, format!("http://{server}/missing answered 404 Not Found."));
    assert_eq!(inline(&missing.data.unwrap())["text"], "no");
    let Outcome::Error(busy) = at(server, "/busy").await else { panic!("a busy server is no result") };
    assert_eq!(busy.retry_after_s, Some(9));
}

#[tokio::test]
async fn secrets_in_pages_are_not_shown() {
    let token = format!("gh{}_{}", "p", "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7j");
    let page =
        format!("Content-Type: text/html\r\n\r\n<title>{token}</title><a href=\"/?t={token}\">hunter2hunter2</a>");
    let server = serve(vec![("/", format!("200 OK\r\n{page}")), ("/no", format!("500 Oh\r\n{page}"))]);
    for path in ["/", "/no"] {
        let ran = fetch(Reach::These(vec![server]), &format!("http://{server}{path}")).await.unwrap();
        let text = format!("{ran:?}");
        assert!(!text.contains(&token) && !text.contains("hunter2"), "{text}");
        assert!(text.contains("[redacted:github-token]") && text.contains("[redacted:TOKEN]"), "{text}");
        assert!(crate::redactions(&ran));
    }
    let clean = Ran { outcome: at(server, "/missing").await, blobs: Vec::new() };
    assert!(!crate::redactions(&clean));
}

#[tokio::test]
async fn what_is_never_fetched() {
    let server = serve(vec![("/", "200 OK\r\nContent-Type: text/plain\r\n\r\ninside".to_owned())]);
    for url in
        ["file:///etc/passwd", "http://a:b@example.com/", "ftp://example.com/", "no address", "http://a b.example/"]
    {
        let error = fetch(Reach::Public, url).await.unwrap_err();
        assert_eq!((error.class.as_str(), error.field.as_deref()), (class::INVALID_ARGUMENTS, Some("/url")), "{url}");
    }
    for url in [
        format!("http://{server}/"),
        format!("http://localhost:{}/", server.port()),
        "http://169.254.169.254/".to_owned(),
    ] {
        let Outcome::Error(error) = fetch(Reach::Public, &url).await.unwrap().outcome else { panic!("{url}") };
        assert_eq!(error.class, "not_public", "{url}");
        assert!(error.hint.is_some());
    }
    let Outcome::Error(error) =
        fetch(Reach::These(vec![([127, 0, 0, 1], 9).into()]), "http://127.0.0.1:9/").await.unwrap().outcome
    else {
        panic!("nobody listens there")
    };
    assert_eq!(error.class, "network");
    let key = format!("https://example.com/?k=sk{}{}", "-ant-", "aB3dE5gH7jK9mN1pQ2sT4vW6");
    let error = fetch(Reach::Public, &key).await.unwrap_err();
    assert!(error.message.contains("api-key") && !error.message.contains("aB3d"), "{error:?}");
}
