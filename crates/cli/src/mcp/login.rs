//! `mcp login`, `mcp logout` and `mcp list`: how servers at an address let us in. A person opens the address that is printed,
//! and the browser comes back to a port of this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use longrein::core::mcp::{McpReach, McpServer};
use longrein::logins::{self, Asked, KeyState, Login};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::args::{Globals, McpListArgs, McpLoginArgs, McpLogoutArgs};
use crate::failure::{Failure, Status};
use crate::out::{say, tell};
use crate::progress::print_line;
use crate::{context, tools, words};

/// How long a person may take.
const PERSON_WITHIN: Duration = Duration::from_secs(300);
/// How long a caller of our port may take to say what it wants, and how much that may be.
const CALLER_WITHIN: Duration = Duration::from_secs(10);
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Callers that are listened to at once: a browser opens some for nothing.
const CALLERS_MAX: usize = 32;
const PATH: &str = "/callback";

fn declared(
    name: &str,
    task: Option<&std::path::Path>,
    globals: &Globals,
) -> Result<(McpServer, BTreeMap<String, McpServer>), Failure> {
    let mut servers = tools::servers(task, globals)?;
    match servers.remove(name) {
        Some(server) => Ok((server, servers)),
        None => {
            let known = servers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none is declared".to_owned() } else { format!("declared: {known}") };
            let problem = format!("there is no MCP server {}; {known}", words::safe(name));
            Err(Failure::new(Status::Usage, problem).way_out("longrein mcp list"))
        }
    }
}

pub(crate) async fn login(globals: Globals, args: McpLoginArgs) -> Result<Status, Failure> {
    let (server, _) = declared(&args.name, args.task.as_deref(), &globals)?;
    let refused = |why: String| {
        let problem = format!("the MCP server {}: {}", args.name, words::safe(&why));
        Failure::new(Status::Unavailable, problem)
    };
    let port = match &server.reach {
        McpReach::Http { auth, .. } => auth.port.unwrap_or(0),
        McpReach::Stdio { .. } | McpReach::OfWorkspace => {
            let problem = format!("the MCP server {} is no address, and needs no login", args.name);
            return Err(Failure::new(Status::Usage, problem));
        }
    };
    let unbound = |error: std::io::Error| Failure::new(Status::Unavailable, format!("127.0.0.1:{port}: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(unbound)?;
    let origin = format!("http://{}", listener.local_addr().map_err(unbound)?);
    let (environment, back) = (context::environment(), format!("{origin}{PATH}"));
    let begun = logins::begin_login(&args.name, &server, &environment, &back).await;
    let login = match begun.map_err(refused)? {
        Asked::Nothing => {
            say!("the MCP server {} asks for no login", args.name);
            return Ok(Status::Done);
        }
        Asked::NoPerson => {
            say!("logged in to the MCP server {}", args.name);
            return Ok(Status::Done);
        }
        Asked::Login(login) => login,
    };
    say!("{}", words::safe(login.address()));
    if !globals.quiet {
        tell!("Open this address in a browser on this machine. Waiting for 5 minutes; Ctrl-C gives up.");
    }
    let came_back = tokio::time::timeout(PERSON_WITHIN, wait(listener, &login, &origin)).await;
    let Ok(Some(came_back)) = came_back else {
        let command = format!("longrein mcp login {}", args.name);
        return Err(refused("nobody came back in 5 minutes".to_owned()).way_out(command));
    };
    login.finish(&came_back).await.map_err(refused)?;
    say!("logged in to the MCP server {}", args.name);
    Ok(Status::Done)
}

/// The first call of our port that belongs to this login.
async fn wait(listener: TcpListener, login: &Login, origin: &str) -> Option<String> {
    let (tell, mut told) = mpsc::channel(CALLERS_MAX);
    let callers = std::sync::Arc::new(tokio::sync::Semaphore::new(CALLERS_MAX));
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                // a browser leaves some open: the newest is dropped, not waited for
                let Ok(place) = std::sync::Arc::clone(&callers).try_acquire_owned() else { continue };
                let tell = tell.clone();
                tokio::spawn(async move {
                    let _place = place;
                    if let Ok(Some((stream, target))) = tokio::time::timeout(CALLER_WITHIN, head(stream)).await {
                        let _ = tell.send((stream, target)).await;
                    }
                });
            }
            Some((stream, target)) = told.recv() => {
                let url = format!("{origin}{target}");
                if target.split('?').next() == Some(PATH) && login.is_ours(&url) {
                    reply(stream, "200 OK", "You may close this window: Longrein goes on in its terminal.").await;
                    return Some(url);
                }
                reply(stream, "404 Not Found", "There is nothing here.").await;
            }
        }
    }
}

/// What a caller asks for, once it has said it.
async fn head(mut stream: TcpStream) -> Option<(TcpStream, String)> {
    let (mut read, mut buffer) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(bytes @ 1..) if read.len() + bytes <= HEAD_MAX_BYTES => read.extend_from_slice(&buffer[..bytes]),
            Ok(_) | Err(_) => return None,
        }
    }
    let text = String::from_utf8(read).ok()?;
    let mut words = text.lines().next()?.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) if target.starts_with('/') => {
            let target = target.to_owned();
            Some((stream, target))
        }
        _ => None,
    }
}

async fn reply(mut stream: TcpStream, status: &str, text: &str) {
    let page = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    // who went away needs no page
    let _ = tokio::time::timeout(Duration::from_secs(2), async {
        let _ = stream.write_all(page.as_bytes()).await;
        let _ = stream.shutdown().await;
    })
    .await;
}

pub(crate) fn logout(globals: Globals, args: McpLogoutArgs) -> Result<Status, Failure> {
    let (server, _) = declared(&args.name, args.task.as_deref(), &globals)?;
    let keys = logins::keys(&args.name, &server, &context::environment());
    let forgot = keys.map(|keys| keys.forget()).transpose();
    match forgot.map_err(|problem| Failure::new(Status::Internal, problem))? {
        Some(true) => say!("the tokens of the MCP server {} are removed", args.name),
        Some(false) | None => say!("there were no tokens of the MCP server {}", args.name),
    }
    Ok(Status::Done)
}

pub(crate) fn list(globals: Globals, args: McpListArgs) -> Result<Status, Failure> {
    let servers = tools::servers(args.task.as_deref(), &globals)?;
    let environment = context::environment();
    let rows: Vec<Value> = servers
        .iter()
        .map(|(name, server)| {
            let (reached, how) = match &server.reach {
                McpReach::Stdio { command, .. } => (command.join(" "), "stdio"),
                McpReach::Http { url, .. } => (url.clone(), "http"),
                McpReach::OfWorkspace => ("as a .mcp.json says, which is not there or not trusted".to_owned(), "none"),
            };
            let mut row = json!({
                "name": name, "kind": how, "reached": reached, "effect": server.effect, "trusted": server.trusted,
                "declared_in": server.source,
            });
            if let Some(keys) = logins::keys(name, server, &environment) {
                row["login"] = match keys.state() {
                    Ok(KeyState::None) => json!({"state": "none"}),
                    Ok(KeyState::There { scopes, until, renewable, wanted }) => json!({
                        "state": "there", "scopes": scopes, "until": until, "renewable": renewable, "wanted": wanted,
                    }),
                    Err(problem) => json!({"state": "unreadable", "problem": problem}),
                };
            }
            row
        })
        .collect();
    if globals.json {
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let trusted = if row["trusted"] == json!(true) { ", trusted" } else { "" };
        say!("{}  {}  {}{trusted}", text("name"), words::short(&text("reached"), 100), text("effect"));
        say!("    declared in {}", words::safe(&text("declared_in")));
        if let Some(login) = row.get("login") {
            say!("    {}", words::safe(&in_words(&text("name"), login)));
        }
    }
    if rows.is_empty() {
        say!("no MCP servers are declared");
    }
    Ok(Status::Done)
}

fn in_words(name: &str, login: &Value) -> String {
    let again = format!("longrein mcp login {name}");
    let list = |key: &str| {
        let words = login[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(" ")
    };
    match login["state"].as_str() {
        Some("there") if !list("wanted").is_empty() => {
            format!("logged in, and it has asked for more since ({}): {again}", list("wanted"))
        }
        Some("there") => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
            let is_over = login["until"].as_u64().is_some_and(|until| until <= now);
            let scopes = match list("scopes") {
                scopes if scopes.is_empty() => String::new(),
                scopes => format!(" for {scopes}"),
            };
            match (is_over, login["renewable"] == json!(true)) {
                (true, false) => format!("its token has ended: {again}"),
                (true, true) => format!("logged in{scopes}; its token is renewed when it is used"),
                (false, _) => format!("logged in{scopes}"),
            }
        }
        Some("unreadable") => login["problem"].as_str().unwrap_or_default().to_owned(),
        _ => format!("not logged in; if it asks for that: {again}"),
    }
}
