//! What MCP's conformance suite asks of a client, with the client that ships.
//!
//! `cargo xtask conformance client` has the suite start it with a server's address; the scenario's name and what belongs to it
//! are in the environment. It lists the server's tools and calls each once. Where the server asks for a token it logs in as a
//! person would, the browser aside, and calls again.
#![expect(clippy::print_stderr, reason = "the suite keeps what it says")]

use std::path::Path;
use std::time::Duration;

use longrein_core::payload::Payload;
use longrein_protocols::client::{
    Asked, Assertion, CallError, Client, Definition, Elicitation, Http, Keys, Limits, Login, Manner, Reach, Server,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Where the browser would come back to; nobody listens, the redirect itself is read.
const BACK: &str = "http://127.0.0.1:3000/callback";
/// The document that the suite's authorization server knows.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// More logins than this for one call are a loop.
const LOGINS_MAX: u32 = 2;
const LIMITS: Limits = Limits { start: Duration::from_secs(20), idle: None };

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let url = std::env::args().nth(1).ok_or("the server's address is missing")?;
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap_or(Value::Null));
    let folder = std::env::temp_dir().join(format!("longrein-conformance-client-{}", std::process::id()));
    let ended = visit(&url, &context, &folder.join("keys.json")).await;
    let _ = std::fs::remove_dir_all(&folder);
    ended
}

async fn visit(url: &str, context: &Value, file: &Path) -> Result<(), String> {
    let keys = Keys::new(file, url);
    let http = Http {
        url: url.to_owned(),
        headers: Default::default(),
        keys: Some(keys.clone()),
        way_in: "log in".to_owned(),
    };
    let server = Server::new("suite", Reach::Http(http.clone()), LIMITS)
        .with_manner(Manner { elicitation: Elicitation::Defaults });
    let text = |key: &str| context.get(key).and_then(Value::as_str).map(str::to_owned);
    let provider = text("idp_token_endpoint").zip(text("idp_id_token"));
    let vouched = provider.map(|(token_endpoint, id_token)| Assertion::IdentityProvider {
        token_endpoint,
        client_id: text("idp_client_id"),
        id_token,
    });
    let client = Client {
        assertion: vouched.or_else(|| text("valid_jwt").map(Assertion::Token)),
        known: text("client_id").map(|id| (id, text("client_secret"))),
        key: text("private_key_pem"),
        document: Some(DOCUMENT.to_owned()),
        scopes: Vec::new(),
        for_itself: std::env::var("MCP_CONFORMANCE_SCENARIO").is_ok_and(|name| name.contains("client-credentials")),
    };
    let tools = match server.tools().await {
        Ok((tools, _)) => tools,
        Err(down) => {
            eprintln!("{down}");
            log_in(&http, &keys, &client).await?;
            server.tools().await.map_err(|down| down.to_string())?.0
        }
    };
    for tool in &tools {
        let mut logins = 0;
        loop {
            let args = arguments(tool, &tools)?;
            match server.call(&tool.name, &args, std::future::pending(), &|| Ok(())).await {
                Ok(_) => break,
                Err(CallError::NotSent(why)) if logins < LOGINS_MAX => {
                    eprintln!("{why}");
                    logins += 1;
                    log_in(&http, &keys, &client).await?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(())
}

async fn log_in(http: &Http, keys: &Keys, client: &Client) -> Result<(), String> {
    let login = match Login::begin(http, keys, client, BACK).await? {
        Asked::Nothing | Asked::NoPerson => return Ok(()),
        Asked::Login(login) => login,
    };
    let came_back = browser(login.address()).await.map_err(|error| format!("the browser: {error}"))?;
    login.finish(&came_back.ok_or("the browser was not sent back")?).await
}

/// A browser that says yes: where it is sent from an address.
async fn browser(address: &str) -> std::io::Result<Option<String>> {
    let rest = address.strip_prefix("http://").unwrap_or(address);
    let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    stream.take(1 << 20).read_to_string(&mut reply).await?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    };
    Ok(reply.lines().take_while(|line| !line.is_empty()).find_map(header))
}

/// The smallest arguments that a tool takes; an argument `schema` is the first tool's schema.
fn arguments(tool: &Definition, tools: &[Definition]) -> Result<Payload, String> {
    let schema: Value = tool.parameters.read().map_err(|error| error.to_string())?;
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut arguments = Map::new();
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        let kind = properties.get(name).and_then(|property| property.get("type")).and_then(Value::as_str);
        let value = match (name, kind) {
            ("schema", _) => tools[0].declared.read().map_err(|error| error.to_string())?,
            (_, Some("number" | "integer")) => json!(1),
            (_, Some("boolean")) => json!(true),
            (_, Some("array")) => json!([]),
            (_, Some("object")) => json!({}),
            (_, _) => json!("text"),
        };
        arguments.insert(name.to_owned(), value);
    }
    Payload::of(&Value::Object(arguments)).map_err(|error| error.to_string())
}
