//! Pages from servers on loopback that behave, and that do not.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Does, Names, Server, says};
use flate2::Compression;
use flate2::write::GzEncoder;
use longrein_web::{Body, Cut, FetchError, Fetched, Limits, Page, PageUrl, Reach, Web};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Short enough for a test that waits for one of them.
fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_millis(700),
        total: Duration::from_secs(3),
        body_max_bytes: 100_000,
        head_max_bytes: 64 << 10,
        redirects_max: 5,
    }
}

fn web(server: &Server) -> Web {
    Web::reaching(Reach::These(vec![server.address])).with_limits(limits())
}

async fn get(server: &Server, path: &str) -> Result<Fetched, FetchError> {
    web(server).fetch(&PageUrl::parse(&format!("http://{}{path}", server.address)).unwrap()).await
}

async fn page(server: &Server, path: &str) -> Page {
    match get(server, path).await {
        Ok(Fetched::Page(page)) => page,
        other => panic!("{path}: {other:?}"),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[tokio::test]
async fn a_page_and_what_was_sent_for_it() {
    let server = Server::start(|_| {
        says("200 OK\r\nContent-Type: text/html; charset=utf-8\r\nSet-Cookie: a=b\r\nContent-Length: 5", b"<p>x\n")
    })
    .await;
    let page = page(&server, "/a/../b?q=1#part").await;
    assert_eq!((page.status, page.reason), (200, "OK"));
    assert_eq!(page.url.to_string(), format!("http://{}/b?q=1", server.address));
    assert_eq!(page.body, Body::Html { text: "<p>x\n".to_owned(), cut: Cut::Whole });
    let version = env!("CARGO_PKG_VERSION");
    let sent = format!(
        "GET /b?q=1 HTTP/1.1\r\nhost: {}\r\nuser-agent: longrein/{version}\r\n\
         accept: text/html, application/json, text/*;q=0.9, */*;q=0.5\r\naccept-encoding: gzip, deflate\r\nconnection: close\r\n\r\n",
        server.address
    );
    assert_eq!(server.asked(), [sent]);
}

#[tokio::test]
async fn any_status_is_an_answer() {
    let server = Server::start(|path| match path {
        "/busy" => says("503 Busy\r\nRetry-After: 7\r\nContent-Type: text/plain", b"later"),
        "/moved-nowhere" => says("302 Found\r\nContent-Length: 0", b""),
        _ => says("404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2", b"{}"),
    })
    .await;
    let missing = page(&server, "/").await;
    assert_eq!((missing.status, missing.reason), (404, "Not Found"));
    assert_eq!(missing.body, Body::Text { text: "{}".to_owned(), cut: Cut::Whole });
    assert_eq!(page(&server, "/busy").await.retry_after_s, Some(7));
    assert_eq!(page(&server, "/moved-nowhere").await.status, 302);
}

#[tokio::test]
async fn nothing_inside_is_reached() {
    let server = Server::start(|_| says("200 OK", b"secret")).await;
    let port = server.address.port();
    let refused = |names: Arc<Names>, url: String| async move {
        let web = Web::default().with_resolver(names).with_limits(limits());
        match web.fetch(&PageUrl::parse(&url).unwrap()).await {
            Err(FetchError::NotPublic { .. }) => {}
            other => panic!("{url}: {other:?}"),
        }
    };
    for host in
        ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"]
    {
        refused(Names::of(&[]), format!("http://{host}:{port}/")).await;
    }
    for answer in [&["127.0.0.1"][..], &["1.1.1.1", "127.0.0.1"], &["::1", "1.1.1.1"], &["100.64.0.1"], &["fd00::1"]] {
        refused(Names::of(&[("x.example", &[answer])]), format!("http://x.example:{port}/")).await;
    }
    // the real resolver, too
    let web = Web::default().with_limits(limits());
    let url = PageUrl::parse(&format!("http://localhost:{port}/")).unwrap();
    assert!(matches!(web.fetch(&url).await, Err(FetchError::NotPublic { .. })));
    // what is named is that address and that port alone
    let other = Server::start(|_| says("200 OK", b"other")).await;
    let url = PageUrl::parse(&format!("http://{}/", other.address)).unwrap();
    assert!(matches!(self::web(&server).fetch(&url).await, Err(FetchError::NotPublic { .. })));
    assert!(server.asked().is_empty() && other.asked().is_empty());
}

#[tokio::test]
async fn a_name_is_looked_up_once() {
    // the second answer, of a name that was bound anew, would lead inside
    let server = Server::start(|path| match path {
        "/" => says("302 Found\r\nLocation: /next", b""),
        _ => says("200 OK\r\nContent-Type: text/plain", b"here"),
    })
    .await;
    let names = Names::of(&[("x.example", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let web = web(&server).with_resolver(names.clone());
    let url = PageUrl::parse(&format!("http://x.example:{}/", server.address.port())).unwrap();
    assert!(matches!(web.fetch(&url).await, Ok(Fetched::Page(Page { status: 200, .. }))));
    assert_eq!(names.looked_up(), ["x.example"]);
    assert_eq!(server.asked().len(), 2);
    // the next call looks again, and refuses
    assert!(matches!(web.fetch(&url).await, Err(FetchError::NotPublic { .. })));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn redirects() {
    let server = Server::start(|path| match path {
        "/relative" => says("301 Moved\r\nLocation: ../end", b""),
        "/chain" => says("307 Temporary\r\nLocation: /relative", b""),
        "/loop" => says("302 Found\r\nLocation: /loop", b""),
        "/inside" => says("302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/", b""),
        "/elsewhere" => says("302 Found\r\nLocation: https://other.example/x?token=1", b""),
        "/port" => says("302 Found\r\nLocation: http://127.0.0.1:1/", b""),
        "/file" => says("302 Found\r\nLocation: file:///etc/passwd", b""),
        "/script" => says("302 Found\r\nLocation: javascript:alert(1)", b""),
        "/user" => says("302 Found\r\nLocation: http://a:b@127.0.0.1/", b""),
        "/bad" => says("302 Found\r\nLocation: http://[", b""),
        _ => says("200 OK\r\nContent-Type: text/plain", b"end"),
    })
    .await;
    for path in ["/relative", "/chain"] {
        let page = page(&server, path).await;
        assert_eq!(page.url.to_string(), format!("http://{}/end", server.address));
    }
    for (path, to) in [
        ("/inside", "http://169.254.169.254/latest/meta-data/"),
        ("/elsewhere", "https://other.example/x?token=1"),
        ("/port", "http://127.0.0.1:1/"),
    ] {
        match get(&server, path).await {
            Ok(Fetched::Moved { to: found, status: 302, .. }) => assert_eq!(found.to_string(), to),
            other => panic!("{path}: {other:?}"),
        }
    }
    let before = server.asked().len();
    for path in ["/loop", "/file", "/script", "/user", "/bad"] {
        assert!(matches!(get(&server, path).await, Err(FetchError::Redirect { .. })), "{path}");
    }
    assert_eq!(server.asked().len(), before + 6 + 4);
}

#[tokio::test]
async fn bodies_that_lie_or_do_not_end() {
    let bomb = gzip(&vec![b'x'; 50 << 20]);
    assert!(bomb.len() < 100_000);
    let server = Server::start(move |path| match path {
        "/endless" => Does::Floods(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec(), vec![b'y'; 8192]),
        "/chunks" => Does::Floods(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
            b"3\r\nabc\r\n".repeat(100),
        ),
        "/bomb" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", &bomb),
        "/packed" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", &gzip("Grüße".as_bytes())),
        "/torn" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", &gzip(&[b'z'; 1000])[..20]),
        "/brotli" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: br", b"\x8b\x00"),
        "/short" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100", b"short"),
        "/long" => says("200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2", b"long"),
        "/image" => says("200 OK\r\nContent-Type: image/png\r\nContent-Length: 7", b"\x89PNG..."),
        "/latin" => says("200 OK\r\nContent-Type: text/plain; charset=utf-8", b"Gr\xfc\xdfe"),
        "/nul" => says("200 OK", b"\0\x01\x02"),
        _ => says("204 No Content", b""),
    })
    .await;
    let text = |page: Page| match page.body.clone() {
        Body::Text { text, cut } => (text, cut),
        Body::Html { .. } | Body::Other { .. } => panic!("{page:?}"),
    };
    for path in ["/endless", "/chunks", "/bomb"] {
        let (text, cut) = text(page(&server, path).await);
        assert_eq!((text.len(), cut), (100_000, Cut::TooLong { bytes: 100_000 }), "{path}");
    }
    assert_eq!(text(page(&server, "/packed").await), ("Grüße".to_owned(), Cut::Whole));
    assert!(matches!(text(page(&server, "/torn").await), (_, Cut::Broken { .. })));
    assert_eq!(text(page(&server, "/short").await), ("short".to_owned(), Cut::Broken { bytes: 5 }));
    assert_eq!(text(page(&server, "/long").await), ("lo".to_owned(), Cut::Whole));
    assert_eq!(text(page(&server, "/latin").await).0, "Gr\u{fffd}\u{fffd}e");
    assert_eq!(page(&server, "/image").await.body, Body::Other { bytes: Some(7) });
    assert_eq!(page(&server, "/brotli").await.body, Body::Other { bytes: None });
    assert_eq!(page(&server, "/nul").await.body, Body::Other { bytes: Some(3) });
    assert_eq!(text(page(&server, "/none").await).0, "");
}

#[tokio::test]
async fn servers_that_are_slow_or_speak_something_else() {
    let server = Server::start(|path| match path {
        "/silent" => Does::Stops(Vec::new()),
        "/half-head" => Does::Stops(b"HTTP/1.1 200 OK\r\nX: ".to_vec()),
        "/half-body" => Does::Stops(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf".to_vec()),
        "/drip" => Does::Drips(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec(), vec![b'd'; 100_000]),
        "/drip-head" => Does::Drips(b"HTTP/1.1 200 OK\r\n".to_vec(), vec![b'X'; 100_000]),
        "/huge-head" => says(&format!("200 OK\r\nX: {}", "x".repeat(200_000)), b""),
        "/many" => says(&format!("200 OK\r\n{}", "X: y\r\n".repeat(5000).trim_end()), b""),
        "/ssh" => Does::Says(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        "/two-lengths" => says("200 OK\r\nContent-Length: 3\r\nContent-Length: 4", b"abcd"),
        _ => Does::Says(Vec::new()),
    })
    .await;
    let began = Instant::now();
    for path in ["/silent", "/half-head", "/drip-head"] {
        assert!(matches!(get(&server, path).await, Err(FetchError::Timeout { .. })), "{path}");
    }
    for path in ["/huge-head", "/many", "/ssh", "/two-lengths", "/nothing"] {
        let answer = get(&server, path).await;
        assert!(matches!(answer, Err(FetchError::Protocol { .. })), "{path}: {answer:?}");
    }
    for path in ["/half-body", "/drip"] {
        let page = page(&server, path).await;
        assert!(matches!(page.body, Body::Text { cut: Cut::Broken { .. }, .. }), "{path}: {page:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let web = Web::reaching(Reach::These(vec![nobody])).with_limits(limits());
    let gone = web.fetch(&PageUrl::parse("http://127.0.0.1:9/").unwrap()).await;
    assert!(matches!(gone, Err(FetchError::Unreachable { .. })), "{gone:?}");
    let unknown = web.with_resolver(Names::of(&[])).fetch(&PageUrl::parse("http://x.example/").unwrap()).await;
    assert!(matches!(unknown, Err(FetchError::Unresolved { .. })), "{unknown:?}");
}

/// A key and a certificate for `secure.example`, made by `openssl`. None: there is no openssl here.
fn certificate(folder: &std::path::Path) -> Option<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
    let (key, cert) = (folder.join("key"), folder.join("cert"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=secure.example"])
        .args(["-addext", "subjectAltName=DNS:secure.example", "-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .ok()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some((CertificateDer::from_pem_file(cert).unwrap(), PrivateKeyDer::from_pem_file(key).unwrap()))
}

#[tokio::test]
async fn a_certificate_must_be_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let Some((cert, key)) = certificate(folder.path()) else {
        eprintln!("skipped: there is no openssl");
        return;
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.unwrap_or(0);
                let downgrade = head[..length].starts_with(b"GET /down ");
                let location = if downgrade { "302 Found\r\nLocation: http://secure.example/" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {location}\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok");
                stream.write_all(answer.as_bytes()).await.ok();
                stream.shutdown().await.ok();
            });
        }
    });
    let names = Names::of(&[("secure.example", &[&["127.0.0.1"]]), ("other.example", &[&["127.0.0.1"]])]);
    let web = || Web::reaching(Reach::These(vec![address])).with_limits(limits()).with_resolver(names.clone());
    let trusting = || {
        let mut roots = RootCertStore::empty();
        roots.add(cert.clone()).unwrap();
        let config =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        web().with_tls(config.with_root_certificates(roots).with_no_client_auth())
    };
    let url = |host: &str, path: &str| PageUrl::parse(&format!("https://{host}:{}{path}", address.port())).unwrap();
    let page = trusting().fetch(&url("secure.example", "/")).await;
    assert!(matches!(page, Ok(Fetched::Page(Page { status: 200, .. }))), "{page:?}");
    let down = trusting().fetch(&url("secure.example", "/down")).await;
    assert!(matches!(down, Err(FetchError::Redirect { .. })), "{down:?}");
    for (web, host) in [(trusting(), "other.example"), (trusting(), "127.0.0.1"), (web(), "secure.example")] {
        let refused = web.fetch(&url(host, "/")).await;
        assert!(matches!(refused, Err(FetchError::Tls { .. })), "{host}: {refused:?}");
    }
}
