//! `mcp`: runs for programs that speak the Model Context Protocol. Reads flags and ends in order; [`desk`] drives the runs,
//! [`door`] says what is known of them. The other way round is [`login`]: servers whose tools are used.

mod desk;
mod door;
mod login;
mod report;

use std::io::IsTerminal;
use std::sync::Arc;

use longrein::mcp_server::{Access, Operations, Powers, serve_http, serve_lines};
use longrein::taskfile;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::{Globals, McpArgs, McpCommand};
use crate::context::BINARY;
use crate::failure::{Failure, Status};
use crate::out::tell;
use crate::run::Session;
use desk::{Desk, Rules};
use door::Front;

/// A token shorter than this can be guessed.
const TOKEN_MIN_BYTES: usize = 16;

pub(crate) async fn mcp(globals: Globals, args: McpArgs) -> Result<Status, Failure> {
    match args.command {
        None => {}
        Some(McpCommand::List(args)) => return login::list(globals, args),
        Some(McpCommand::Login(args)) => return login::login(globals, args).await,
        Some(McpCommand::Logout(args)) => return login::logout(globals, args),
    }
    let mode = args.permission_mode.as_deref().map(taskfile::mode).transpose();
    let mode = mode.map_err(|problem| Failure::new(Status::Usage, format!("--permission-mode: {problem}")))?;
    let folders = args.tasks.iter().map(|folder| {
        folder
            .canonicalize()
            .map_err(|error| Failure::new(Status::Usage, format!("--tasks {}: {error}", folder.display())))
    });
    let powers = if args.operator { Powers::Operator } else { Powers::Client };
    let rules = Rules { powers, mode, tasks: folders.collect::<Result<_, _>>()?, hidden: args.token_env.clone() };
    let is_quiet = globals.quiet;
    let session = Session::open(globals)?;
    let desk = Arc::new(Desk::new(session, rules, args.max_runs.into()));
    let offer = Arc::new(Operations::new(Arc::new(Front(desk)), powers, BINARY));
    let stop = CancellationToken::new();
    let ended_by = heed_signals(stop.clone())?;
    match args.http {
        None => {
            if std::io::stdin().is_terminal() && !is_quiet {
                tell!("speaks MCP on standard input; Ctrl-C ends it");
            }
            serve_lines(offer, tokio::io::stdin(), tokio::io::stdout(), stop).await
        }
        Some(address) => {
            let access = Access::Token(token(&args.token_env)?);
            if !address.ip().is_loopback() {
                let problem = format!("--http {address}: an MCP server is for programs on this machine");
                return Err(Failure::new(Status::Usage, problem).way_out("longrein mcp --http 127.0.0.1:8765"));
            }
            let unbound = |error| Failure::new(Status::Unavailable, format!("--http {address}: {error}"));
            let listener = tokio::net::TcpListener::bind(address).await.map_err(unbound)?;
            let bound = listener.local_addr().map_err(unbound)?;
            if !is_quiet {
                tell!("serving MCP at http://{bound}/mcp");
            }
            serve_http(offer, listener, access, stop).await.map_err(unbound)?;
        }
    }
    Ok(ended_by.get().copied().unwrap_or(Status::Done))
}

fn token(variable: &str) -> Result<String, Failure> {
    let token = std::env::var(variable).unwrap_or_default();
    if token.len() < TOKEN_MIN_BYTES {
        let problem = format!(
            "over HTTP a client must show a token, and {variable} holds none of {TOKEN_MIN_BYTES} bytes or more: set it, or \
             name another variable with --token-env"
        );
        return Err(Failure::new(Status::Configuration, problem));
    }
    Ok(token)
}

/// SIGINT, SIGTERM and SIGHUP end the server in order; a second one ends the process at once.
fn heed_signals(stop: CancellationToken) -> Result<Arc<std::sync::OnceLock<Status>>, Failure> {
    let failed = |error: std::io::Error| Failure::new(Status::Internal, format!("signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let why = Arc::new(std::sync::OnceLock::new());
    let told = Arc::clone(&why);
    tokio::spawn(async move {
        loop {
            let status = tokio::select! {
                _ = interrupt.recv() => Status::Interrupted,
                _ = terminate.recv() => Status::Terminated,
                _ = hangup.recv() => Status::Terminated,
            };
            if told.set(status).is_err() {
                std::process::exit(status.code().into());
            }
            stop.cancel();
        }
    });
    Ok(why)
}
