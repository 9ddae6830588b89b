//! Somebody at a terminal: runs commands of the real binary, kills them, looks at what is left.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::model::LoopbackModel;

pub(crate) struct Operator<'a> {
    home: PathBuf,
    model: &'a LoopbackModel,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None: by a signal.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl<'a> Operator<'a> {
    pub(crate) fn new(home: &Path, model: &'a LoopbackModel) -> Self {
        // The world's ledger lies outside the workspace, where nobody's walls reach, and this is about kills.
        let configuration = home.join("longrein");
        fs::create_dir_all(&configuration).expect("a folder of our own");
        // Many operators share a home, and a command that reads settings half written would be walled in.
        let mut settings = tempfile::NamedTempFile::new_in(&configuration).expect("a file of our own");
        settings.write_all(b"[sandbox]\nmode = \"external\"\n").expect("it has room");
        settings.persist(configuration.join("config.toml")).expect("a rename");
        Self { home: home.to_owned(), model }
    }

    /// A command, with nothing around it but what it needs.
    pub(crate) fn command(&self, run: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longrein"));
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", &self.home)
            .env("LONGREIN_HOME", &self.home)
            .env("OPENAI_BASE_URL", self.model.base_url(run))
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    /// Starts a command and leaves it alone.
    pub(crate) fn spawn(&self, run: &str, words: &[&str]) -> Running {
        let child = self
            .command(run, words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary is built and can be started");
        Running { child: Some(child) }
    }

    /// Runs a command to its end.
    pub(crate) fn call(&self, run: &str, words: &[&str]) -> Ended {
        self.spawn(run, words).wait()
    }

    /// Runs a command that must end with this status.
    pub(crate) fn expect(&self, run: &str, words: &[&str], status: i32) -> Ended {
        let ended = self.call(run, words);
        assert_eq!(ended.status, Some(status), "longrein {}: {ended:?}\n{}", words.join(" "), self.story(run));
        ended
    }

    /// The journal, as JSON lines. None: there is no such run.
    pub(crate) fn events(&self, run: &str) -> Option<Vec<Value>> {
        let ended = self.call(run, &["log", run, "--json"]);
        if ended.status == Some(66) {
            return None;
        }
        assert_eq!(ended.status, Some(0), "log of {run}: {ended:?}");
        Some(ended.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is one object")).collect())
    }

    pub(crate) fn show(&self, run: &str) -> Value {
        let ended = self.call(run, &["show", run, "--json"]);
        assert_eq!(ended.status, Some(0), "show {run}: {ended:?}");
        serde_json::from_str(&ended.stdout).expect("show prints one object")
    }

    /// Asserts that the store holds nothing damaged of this run.
    pub(crate) fn verify(&self, run: &str) {
        let ended = self.call(run, &["verify", run, "--json"]);
        assert_eq!(ended.status, Some(0), "verify {run}: {ended:?}");
    }

    /// The journal as people read it, for messages of failed assertions.
    pub(crate) fn story(&self, run: &str) -> String {
        self.call(run, &["log", run]).stdout
    }
}

/// A command at work. Dropped, it is killed.
pub(crate) struct Running {
    /// There until it is waited for.
    child: Option<Child>,
}

impl Running {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("it is not waited for");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal)
            .expect("it is our child and not waited for");
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("it is our child").is_some())
    }

    /// SIGKILL, to this process only.
    pub(crate) fn kill(mut self) -> Ended {
        if let Some(child) = &mut self.child {
            // It may have ended meanwhile.
            let _ = child.kill();
        }
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let child = self.child.take().expect("it is waited for once");
        let Output { status, stdout, stderr } = child.wait_with_output().expect("it is our child");
        Ended {
            status: status.code(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Living processes that say they belong to a run, with what they are.
pub(crate) fn processes_of(run: &str) -> Vec<String> {
    marked(run).into_iter().map(|(_, what)| what).collect()
}

/// Kills one of the processes that a run started, whichever comes first. False: there is none.
pub(crate) fn kill_a_tool_of(run: &str) -> bool {
    let Some((pid, _)) = marked(run).into_iter().next() else { return false };
    // It may have ended meanwhile.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
}

fn marked(run: &str) -> Vec<(rustix::process::Pid, String)> {
    // Behind the run stands its store.
    let mark = format!("LONGREIN_INSIDE={run}@");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("Linux").flatten() {
        let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
        let number = entry.file_name().to_string_lossy().parse().ok();
        let Some(pid) = number.and_then(rustix::process::Pid::from_raw) else { continue };
        let marks = environ.split(|byte| *byte == 0).filter(|entry| entry.starts_with(mark.as_bytes()));
        for its in marks {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let what = format!(
                "{pid} {} {}",
                String::from_utf8_lossy(its),
                String::from_utf8_lossy(&command).replace('\0', " ")
            );
            found.push((pid, what));
        }
    }
    found
}

/// Asserts that no process of a run is alive; one that was just killed may take a moment to be gone.
pub(crate) fn assert_nobody_left(run: &str, when: &str) {
    let by = Instant::now() + Duration::from_secs(1);
    loop {
        let left = processes_of(run);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < by, "still alive of run {run}, {when}: {left:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
