//! The `longrein` command: reads the environment and configuration files, prints, asks, exits.
//!
//! Results go to stdout, everything else to stderr. Decides nothing about runs: that is core's business, through the
//! facade.

mod answer;
mod args;
mod ask;
mod block;
mod config;
mod context;
mod doctor;
mod export;
mod failure;
mod inspect;
mod keep;
mod lines;
mod live;
mod manual;
mod mcp;
mod models;
mod out;
mod pieces;
mod policy;
mod program;
mod progress;
mod request;
mod rollback;
mod run;
mod shadow;
mod stats;
mod taint;
mod tools;
mod trust;
mod unasked;
mod words;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, PolicyCommand, ProgramCommand};
use failure::{Failure, Form, Status};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::usage(&error, Form::of_unread(std::env::args_os())),
    };
    let form = Form::of(&cli.globals);
    // The operator's door does not open from inside (`semantics.md` E5).
    if let Some(inside) = std::env::var_os("LONGREIN_INSIDE") {
        let inside = inside.to_string_lossy();
        let problem =
            format!("this process was started by a run ({}), and a run cannot operate Longrein", words::safe(&inside));
        return Failure::new(Status::Configuration, problem).print(form);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(Status::Internal, format!("no runtime: {error}")).print(form),
    };
    let store_flag = context::store_flag(&cli.globals);
    let outcome = runtime.block_on(async {
        let _survived = outlive_a_file_size_limit();
        // As a task: waking the outermost future takes a system call each time, waking a task takes none.
        let outcome = match tokio::spawn(dispatch(cli)).await {
            Ok(outcome) => outcome,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        };
        longrein::commands_are_gone().await;
        outcome
    });
    // A prompt that nobody answered may still be reading the terminal: do not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(Status::Done) if out::lost() => {
            let problem = "what was to be printed could not be written to stdout; nothing else went wrong";
            Failure::new(Status::Internal, problem).print(form)
        }
        Ok(status) => status.into(),
        Err(failure) => failure.in_store(&store_flag).print(form),
    }
}

/// A write beyond a file size limit (`ulimit -f`) ends a process that takes no notice of the signal. Noticed, the write
/// fails as on a full disk: what ran is ended and the status says that the store is unavailable (`semantics.md` A4).
fn outlive_a_file_size_limit() -> std::io::Result<tokio::signal::unix::Signal> {
    let beyond_limit = tokio::signal::unix::SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    tokio::signal::unix::signal(beyond_limit)
}

async fn dispatch(cli: Cli) -> Result<Status, Failure> {
    let Cli { command, globals } = cli;
    match command {
        Command::Run(args) => run::run(globals, *args).await,
        Command::Resume(args) => run::resume(globals, *args).await,
        Command::Send(args) => answer::send(globals, args).await,
        Command::Runs(args) => inspect::runs(globals, args).await,
        Command::Show(args) => inspect::show(globals, args).await,
        Command::Log(args) => inspect::log(globals, args).await,
        Command::Context(args) => request::context(globals, args).await,
        Command::Approvals(args) => answer::approvals(globals, args).await,
        Command::Approve(args) => answer::approve(globals, args).await,
        Command::Deny(args) => answer::deny(globals, args).await,
        Command::Settle(args) => answer::settle(globals, args).await,
        Command::Endorse(args) => taint::endorse(globals, args).await,
        Command::Rollback(args) => rollback::rollback(globals, args).await,
        Command::Cancel(args) => answer::cancel(globals, args).await,
        Command::Verify(args) => inspect::verify(globals, args).await,
        Command::Models(args) => models::models(globals, args).await,
        Command::Fork(args) => keep::fork(globals, args).await,
        Command::Export(args) => export::export(globals, args).await,
        Command::Rm(args) => keep::rm(globals, args).await,
        Command::Gc(args) => keep::gc(globals, args).await,
        Command::Trust(args) => trust::trust(globals, args),
        Command::Policy(PolicyCommand::Check(args)) => policy::check(&globals, args),
        Command::Program(ProgramCommand::List(_)) => program::list(&globals),
        Command::Program(ProgramCommand::Show(args)) => program::show(&globals, &args),
        Command::Tools(args) => tools::tools(globals, args).await,
        Command::Doctor(args) => doctor::doctor(globals, args).await,
        Command::Mcp(args) => mcp::mcp(globals, args).await,
        Command::Completions(args) => manual::completions(args),
        Command::Man(_) => manual::man(),
        Command::Later(words) => Err(args::not_yet(&words)),
    }
}
