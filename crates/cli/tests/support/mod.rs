//! A world of its own for each test: a home for the store, a folder for tasks, and nothing of our own environment.

pub(crate) mod server;
pub(crate) mod task;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Removed with everything in it when the test is over.
pub(crate) struct World {
    root: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { root: tempfile::Builder::new().prefix("longrein-").tempdir().unwrap() };
        for folder in ["user", "work"] {
            fs::create_dir(world.root.path().join(folder)).unwrap();
        }
        world
    }

    /// Where the store is.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Where tasks are, and where commands are given.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    /// The operator's own folder: `HOME`.
    pub(crate) fn user(&self) -> PathBuf {
        self.root.path().join("user")
    }

    /// Writes a file under the working folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The text of a file under the working folder; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Copies an example of the repository into the working folder.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let to = self.path(name);
        copy(&from, &to);
        to
    }

    /// The binary with these arguments, in the working folder, with an environment that holds nothing else.
    pub(crate) fn longrein<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longrein"));
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.user())
            .env("USER", "tester")
            .env("LANG", "C.UTF-8")
            .env("LONGREIN_HOME", self.home());
        Call { command, stdin: Vec::new() }
    }

    /// A command as a person would type it: words separated by blanks, single quotes around words with blanks.
    pub(crate) fn typed(&self, line: &str) -> Call {
        let mut words = words(line).into_iter();
        assert_eq!(words.next().as_deref(), Some("longrein"), "not one of our commands: {line}");
        self.longrein(words)
    }

    /// This shell line, with the binary as `$longrein`, in a PID namespace that its session is outside of, as under
    /// `docker exec`. None: such a place cannot be made here.
    pub(crate) fn elsewhere(&self, line: &str) -> Option<Done> {
        const PLACE: [&str; 4] = ["--map-root-user", "--pid", "--fork", "--mount-proc"];
        if !Command::new("unshare").args(PLACE).arg("true").output().is_ok_and(|made| made.status.success()) {
            return None;
        }
        let ours = self.longrein(None::<&str>).command;
        let mut command = Command::new("unshare");
        command.args(PLACE).args(["sh", "-c", line]).env_clear().current_dir(self.work());
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("longrein", ours.get_program());
        Some(Call { command, stdin: Vec::new() }.done())
    }

    /// Runs a command line that must not fail to start; see [`Done`].
    pub(crate) fn run(&self, line: &str) -> Done {
        self.typed(&format!("longrein {line}")).done()
    }

    /// The events of a run as `log --json` prints them.
    pub(crate) fn log(&self, id: &str) -> Vec<Value> {
        self.run(&format!("log {id} --json")).is(0).json()
    }

    /// `show --json`.
    pub(crate) fn show(&self, id: &str) -> Value {
        self.run(&format!("show {id} --json")).is(0).last_json()
    }

    /// Every record of the run is there and whole.
    #[track_caller]
    pub(crate) fn verify(&self, id: &str) {
        self.run(&format!("verify {id}")).is(0);
    }

    /// Whether anything still runs that this run started.
    pub(crate) fn something_runs(&self, id: &str) -> bool {
        let mark = format!("LONGREIN_INSIDE={id}@");
        // Walls give a process a root of its own, and with it another name for its folder: its home names the world.
        let world = self.work().parent().expect("it has one").display().to_string();
        fs::read_dir("/proc").unwrap().any(|entry| {
            let process = entry.unwrap().path();
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            let inside = environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(mark.as_bytes()));
            inside && environment.windows(world.len()).any(|part| part == world.as_bytes())
        })
    }

    /// All bytes of the store.
    pub(crate) fn store_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        gather(&self.home(), &mut bytes);
        bytes
    }

    /// Waits for something to become true.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        until(what, &mut look)
    }
}

/// A command about to be given.
pub(crate) struct Call {
    command: Command,
    stdin: Vec<u8>,
}

impl Call {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn at(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Pipes this in.
    pub(crate) fn stdin(mut self, text: &str) -> Self {
        self.stdin = text.as_bytes().to_vec();
        self
    }

    /// Starts it on a terminal this wide.
    pub(crate) fn on_terminal(mut self, columns: u16) -> terminal::Terminal {
        if !self.command.get_envs().any(|(name, _)| name == "TERM") {
            self.command.env("TERM", "xterm");
        }
        terminal::Terminal::start(self.command, columns)
    }

    /// Starts it with stdin and stdout for a conversation; stderr is this test's own.
    pub(crate) fn conversing(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// For a test that starts it in its own way.
    pub(crate) fn command(self) -> Command {
        self.command
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn done(self) -> Done {
        self.start().end()
    }

    /// Starts it, to be looked at while it runs.
    pub(crate) fn start(mut self) -> Running {
        let line = format!("{:?}", self.command.get_args().collect::<Vec<_>>());
        self.command.stdin(if self.stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read has its reasons.
            let _ = stdin.write_all(&self.stdin);
        }
        let out = read_aside(child.stdout.take().unwrap());
        let err = read_aside(child.stderr.take().unwrap());
        Running { line, child: Some(child), out: Some(out), err: Some(err) }
    }
}

type Reading = std::thread::JoinHandle<Vec<u8>>;

fn read_aside(mut stream: impl Read + Send + 'static) -> Reading {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// A command that runs. Killed if the test is over before it.
pub(crate) struct Running {
    line: String,
    child: Option<Child>,
    out: Option<Reading>,
    err: Option<Reading>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal by its name: `INT`, `TERM`, `KILL`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "KILL" => Signal::KILL,
            "STOP" => Signal::STOP,
            "CONT" => Signal::CONT,
            other => panic!("no signal {other}"),
        };
        kill_process(Pid::from_raw(self.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end; one that does not come is a failure.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        let deadline = Instant::now() + PATIENCE;
        let mut child = self.child.take().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                let (stdout, stderr) = self.streams();
                panic!("longrein {} does not end\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.line);
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let (stdout, stderr) = self.streams();
        Done { line: self.line.clone(), ended: status, stdout, stderr }
    }

    fn streams(&mut self) -> (String, String) {
        let text = |reading: Option<Reading>| {
            String::from_utf8(reading.unwrap().join().unwrap()).expect("what is printed is UTF-8")
        };
        (text(self.out.take()), text(self.err.take()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    line: String,
    ended: std::process::ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Its exit status; of one that was killed, -1.
    pub(crate) fn status(&self) -> i32 {
        self.ended.code().unwrap_or(-1)
    }

    /// It must have ended with this status, and a run must have printed an answer only on 0 (JSON apart).
    #[track_caller]
    pub(crate) fn is(self, status: i32) -> Self {
        assert_eq!(
            self.status(),
            status,
            "longrein {}\n--- stdout\n{}\n--- stderr\n{}",
            self.line,
            self.stdout,
            self.stderr
        );
        let drives = ["run", "exec", "resume"].iter().any(|word| self.line.starts_with(&format!("[\"{word}\"")));
        let is_json = self.line.contains("\"--json\"");
        assert!(
            status == 0 || is_json || !drives || self.stdout.is_empty(),
            "longrein {}: status {status}, and yet on stdout: {}",
            self.line,
            self.stdout
        );
        self
    }

    /// Stderr must say this.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        let told = self.told();
        assert!(told.contains(text), "longrein {}: \"{text}\" is not in:\n{told}", self.line);
        self
    }

    /// Stderr, with what errors say as JSON as it would be in words.
    pub(crate) fn told(&self) -> String {
        let in_words = |line: &str| {
            let error: Option<Value> = serde_json::from_str(line).ok();
            let problem = error.as_ref().filter(|error| error["type"] == "error");
            problem.and_then(|error| error["problem"].as_str()).unwrap_or(line).to_owned()
        };
        self.stderr.lines().map(in_words).collect::<Vec<_>>().join("\n")
    }

    /// The answer, without its line end.
    pub(crate) fn answer(&self) -> &str {
        self.stdout.trim_end_matches('\n')
    }

    /// The last line on stderr: the command that goes on.
    pub(crate) fn last_line(&self) -> &str {
        self.stderr.trim_end().lines().last().unwrap_or_default()
    }

    /// Stdout as JSON lines.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}")))
            .collect()
    }

    #[track_caller]
    pub(crate) fn last_json(&self) -> Value {
        self.json().pop().unwrap_or_else(|| panic!("no JSON line; stderr: {}", self.stderr))
    }
}

/// Waits for something to become true.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: &mut dyn FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How often something is repeated: few times, or many in the nightly run.
pub(crate) fn times(usually: usize, nightly: usize) -> usize {
    if std::env::var_os("LONGREIN_NIGHTLY").is_some_and(|value| value == "1") { nightly } else { usually }
}

/// Events of one type.
pub(crate) fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// A command line's words, as a shell with single quotes takes them.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != "state" {
                copy(&entry.path(), &to);
            }
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn gather(folder: &Path, bytes: &mut Vec<u8>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, bytes);
        } else {
            bytes.extend(fs::read(path).unwrap());
        }
    }
}
