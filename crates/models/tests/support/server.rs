//! A server on loopback that does as it is told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with one request.
#[derive(Clone)]
pub(crate) enum Step {
    Write(String),
    Sleep(Duration),
    /// Ends the connection.
    Close,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

/// A server that goes through `steps` for each request.
pub(crate) async fn server(steps: Vec<Step>) -> Server {
    servers(vec![steps]).await
}

/// A server with other steps for each request; the last are those of all that follow.
pub(crate) async fn servers(steps: Vec<Vec<Step>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a well-behaved client");
    let url = format!("http://{}/v1/", listener.local_addr().expect("a well-behaved client"));
    let connections = Arc::new(AtomicUsize::new(0));
    let requests = Arc::default();
    let server = Server { url, connections: Arc::clone(&connections), requests: Arc::clone(&requests) };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, steps.clone(), Arc::clone(&requests)));
        }
    });
    server
}

async fn serve(mut stream: TcpStream, steps: Vec<Vec<Step>>, requests: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        let before = {
            let mut requests = requests.lock().expect("a well-behaved client");
            requests.push(request);
            requests.len() - 1
        };
        for step in &steps[before.min(steps.len() - 1)] {
            match step {
                Step::Write(text) => stream.write_all(text.as_bytes()).await.unwrap_or(()),
                Step::Sleep(time) => tokio::time::sleep(*time).await,
                Step::Close => return,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        text.push_str(std::str::from_utf8(&buffer[..count]).ok()?);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a well-behaved client");
        if body.len() == length.parse::<usize>().expect("a well-behaved client") {
            return Some(text);
        }
    }
}

/// A whole response with a body in one piece.
pub(crate) fn response(head: &str, body: &str) -> Vec<Step> {
    vec![Step::Write(format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))]
}
