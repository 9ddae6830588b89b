//! Starts the clients, and follows them to their end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::bail;
use tempfile::TempDir;

use crate::bare::{self, Kind};
use crate::conversation;
use crate::server::{Sample, Script, Server};

/// Who is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who<'a> {
    Longrein(&'a Path),
    Bare(Kind),
}

/// A little more than what Longrein takes for a moment.
const AGE: Duration = Duration::from_millis(2_100);

/// A folder with the task, the tool's file and the store.
pub(crate) struct Place {
    folder: TempDir,
    /// Bytes of records a turn, for a client that appends as many.
    pub(crate) record_bytes: u64,
}

impl Place {
    pub(crate) fn new(turns: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = Self { folder, record_bytes: 0 };
        std::fs::create_dir(place.workspace())?;
        std::fs::write(place.workspace().join(conversation::FILE), conversation::result())?;
        std::fs::write(place.workspace().join("task.toml"), conversation::task(turns))?;
        Ok(place)
    }

    /// Once its files are no longer of this very moment: until then Longrein reads a pinned file at every call, because a
    /// file's times do not tell two writes of one moment apart.
    pub(crate) fn aged(self) -> Self {
        std::thread::sleep(AGE);
        self
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("home/longrein.db")
    }

    /// The command that starts the client; nothing of the surroundings leaks into it.
    pub(crate) fn command(&self, who: Who<'_>, port: u16, run: &str) -> anyhow::Result<Command> {
        let mut command = match who {
            Who::Longrein(binary) => {
                let mut command = Command::new(binary);
                command.args(["--quiet", "run", "--task", "task.toml", "-m", "openai/bench", "--id", run]);
                command
            }
            Who::Bare(kind) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args([bare::ROLE, kind.name()]);
                command
            }
        };
        command
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("LONGREIN_HOME", self.folder.path().join("home"))
            .env("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}/v1"))
            .env(bare::PORT, port.to_string())
            .env(bare::RECORD_BYTES, self.record_bytes.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        Ok(command)
    }
}

/// A client on its way.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) server: Server,
}

pub(crate) fn start(who: Who<'_>, place: &Place, script: Script) -> anyhow::Result<Running> {
    let server = Server::start(script)?;
    let mut command = place.command(who, server.port, "r1")?;
    let child = command.spawn()?;
    server.watch(child.id());
    Ok(Running { child, server })
}

/// Runs a client to its end.
pub(crate) fn run(who: Who<'_>, place: &Place, script: Script) -> anyhow::Result<Vec<Sample>> {
    let Running { mut child, server } = start(who, place, script)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{who:?} ended with {status}");
    }
    Ok(server.samples())
}
