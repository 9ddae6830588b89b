//! Syncs, counted from outside by strace.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::client::{Place, Who};
use crate::server::{Script, Server};

/// Syncs of a whole run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syncs {
    /// Of the log, without those that a checkpoint makes first.
    pub(crate) log: i64,
    /// Of the database file: one per checkpoint.
    pub(crate) checkpoints: i64,
}

/// None: there is no strace here.
pub(crate) fn count(binary: &Path, script: Script) -> anyhow::Result<Option<Syncs>> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Ok(None);
    }
    let place = Place::new(script.turns)?;
    let server = Server::start(script)?;
    let plain = place.command(Who::Longrein(binary), server.port, "r1")?;
    let trace = place.store().with_file_name("trace");
    std::fs::create_dir_all(place.store().parent().unwrap_or(Path::new("/")))?;
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync", "-e", "signal=none", "-o"]).arg(&trace);
    traced.arg(plain.get_program()).args(plain.get_args()).env_clear();
    traced.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = plain.get_current_dir() {
        traced.current_dir(folder);
    }
    let child = traced.stdout(std::process::Stdio::null()).spawn()?;
    server.watch(child.id());
    let status = child.wait_with_output()?.status;
    if !status.success() {
        bail!("the traced run ended with {status}");
    }
    let text = std::fs::read_to_string(&trace)?;
    // A call that another thread's line cut in two is resumed without the file's name.
    let of = |name: &str| text.lines().filter(|line| line.contains("sync(") && line.contains(name)).count() as i64;
    let checkpoints = of("longrein.db>");
    Ok(Some(Syncs { log: of("longrein.db-wal>") - checkpoints, checkpoints }))
}
