//! What a turn costs: the real binary beside a bare client that sends the same bytes with the same syncs. Measured from
//! outside; nothing in the binary knows of it.
//!
//! `cargo run --release -p longrein-bench` builds the binary, measures, prints a table. The server is a thread of this
//! process, the clients are processes of their own, so that a client's CPU time is its own and nobody else's: that of the
//! commands it runs is theirs.
#![expect(clippy::print_stdout, reason = "a program whose product is a table")]

mod bare;
mod client;
mod context;
mod conversation;
mod library;
mod process;
mod recall;
mod report;
mod rulings;
mod server;
mod syncs;
mod texts;
mod trees;
mod wires;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// What is asked for on the command line.
struct Options {
    turns: u64,
    repeat: usize,
    binary: Option<PathBuf>,
    /// None: everything.
    only: Option<String>,
    context: context::Options,
}

const USAGE: &str = "longrein-bench [--turns N] [--repeat N] [--binary FILE] [--only start|turns|shell|syncs|waiting|library|recall|trees|rulings|wires|context]; longrein-bench ";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut options =
        Options { turns: 1000, repeat: 3, binary: None, only: None, context: context::Options::default() };
    let usage = format!("{USAGE}{}", context::USAGE);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value; {usage}"));
        if options.context.set(&argument, &mut value)? {
            continue;
        }
        match argument.as_str() {
            bare::ROLE => return bare::main(&value()?),
            library::ROLE => return library::main(&value()?),
            "--turns" => options.turns = value()?.parse()?,
            "--repeat" => options.repeat = value()?.parse()?,
            "--only" => options.only = Some(value()?),
            "--binary" => options.binary = Some(value()?.into()),
            _ => bail!("{argument} is not known; {usage}"),
        }
    }
    // Needs no binary: this one is the embedding program.
    if options.only.as_deref() == Some("library") {
        return library::print(options.repeat.max(1));
    }
    // Nor does this: it is about the store.
    if options.only.as_deref() == Some("recall") {
        return recall::print();
    }
    // Nor this: it is about the gate.
    if options.only.as_deref() == Some("rulings") {
        return rulings::print();
    }
    // Nor this: it is about files.
    if options.only.as_deref() == Some("trees") {
        return trees::print();
    }
    // Nor this: it is about replies.
    if options.only.as_deref() == Some("wires") {
        return wires::print(50.0);
    }
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => build()?,
    };
    if options.only.as_deref() == Some("context") {
        return context::print(&binary, &options.context);
    }
    report::print(&binary, options.turns, options.repeat.max(1), options.only.as_deref())
}

/// Builds the binary beside this one.
fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--release", "--package", "longrein-cli"]).status()?;
    if !built.success() {
        bail!("the binary could not be built");
    }
    let here = std::env::current_exe()?;
    let binary = here.parent().unwrap_or(Path::new(".")).join("longrein");
    if !binary.is_file() {
        bail!("there is no {}; name the binary with --binary FILE", binary.display());
    }
    Ok(binary)
}
