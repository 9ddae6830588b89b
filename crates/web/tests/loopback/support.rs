//! A server on loopback that does what a test says, and a resolver that answers what a test says.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longrein_web::{Resolve, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    /// Sends this and closes.
    Says(Vec<u8>),
    /// Sends this and then nothing, for ever.
    Stops(Vec<u8>),
    /// Sends the first, then the second again and again.
    Floods(Vec<u8>, Vec<u8>),
    /// Sends the first, then the second byte by byte, slowly.
    Drips(Vec<u8>, Vec<u8>),
}

/// A server and what it was asked, head by head.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(does: impl Fn(&str) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, does) = (Arc::clone(&asked), Arc::new(does));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (kept, does) = (Arc::clone(&kept), Arc::clone(&does));
                tokio::spawn(async move {
                    // a client that goes away is none of a test's business
                    let _ = answer(stream, &kept, does.as_ref()).await;
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(
    mut stream: TcpStream,
    asked: &Mutex<Vec<String>>,
    does: &(dyn Fn(&str) -> Does + Sync),
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let does = does(head.split(' ').nth(1).unwrap());
    asked.lock().unwrap().push(head);
    match does {
        Does::Says(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
            // what is unread would make the end of the connection a reset
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
        }
        Does::Stops(bytes) => {
            stream.write_all(&bytes).await?;
            std::future::pending::<()>().await;
        }
        Does::Floods(head, more) => {
            stream.write_all(&head).await?;
            loop {
                stream.write_all(&more).await?;
            }
        }
        Does::Drips(head, body) => {
            stream.write_all(&head).await?;
            for byte in body {
                tokio::time::sleep(Duration::from_millis(20)).await;
                stream.write_all(&[byte]).await?;
            }
        }
    }
    Ok(())
}

pub(crate) fn says(head: &str, body: &[u8]) -> Does {
    Does::Says([format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat())
}

/// Names and their answers, one for each time they are looked up; the last one stays.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: Mutex<BTreeMap<String, Vec<Vec<SocketAddr>>>>,
    pub(crate) looked_up: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let address = |ip: &&str| SocketAddr::new(ip.parse().unwrap(), 0);
        let answers = names.iter().map(|(name, answers)| {
            ((*name).to_owned(), answers.iter().map(|answer| answer.iter().map(address).collect()).collect())
        });
        Arc::new(Self { answers: Mutex::new(answers.collect()), looked_up: Mutex::default() })
    }

    pub(crate) fn looked_up(&self) -> Vec<String> {
        self.looked_up.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> Resolving<'a> {
        self.looked_up.lock().unwrap().push(host.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.get_mut(host) {
            None => Err(io::Error::other("no such name")),
            Some(left) if left.len() > 1 => Ok(left.remove(0)),
            Some(left) => Ok(left[0].clone()),
        };
        Box::pin(async move { answer })
    }
}
