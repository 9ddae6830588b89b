//! Runs one command to its end: feeds it, listens to it, watches the clock, and buries it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::attack::Attacks;
use crate::bridge::Bridge;
use crate::capture::{Capture, Room};
use crate::confine::{Confinement, Step, Way};
use crate::drawn;
use crate::nursery::{self, Order, Stillborn};
use crate::plan::{Ours, PROXY_PORT, Plan};
use crate::spec::{Captured, Ended, How, INSIDE, Keep, Spec, StartError, Stderr};
use crate::tree::{Exit, GONE_WITHIN, Inner, Tree};

/// How many commands run at once in this process; more wait for a place. A model that asks for thousands gets them all, so
/// many at a time.
pub const ALIVE_MAX: usize = 64;

/// From SIGTERM to SIGKILL when the time is up.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long outputs that others still hold open are listened to after the program has ended.
pub const DRAIN: Duration = Duration::from_millis(200);

/// A timer cannot lie further ahead; nobody waits longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Most commands are over sooner. Until then their outputs lie in the pipes: to be told of each would cost more than to
/// read them at the end. One that prints more than a pipe holds stands still for so long, once.
const QUIET: Duration = Duration::from_millis(10);

/// A short output fits with one byte to spare, which tells that it was all.
const FIRST_READ_BYTES: usize = 4 * 1024;

/// All that a pipe holds, so that a flood costs few reads.
const READ_BYTES: usize = 64 * 1024;

/// All that a pipe holds, and its end: one short read, a full one, and one that finds nothing.
const READS_AT_END: usize = 3;

/// One for each command alive; held until the last of its processes is gone.
pub(crate) static PLACES: Semaphore = Semaphore::const_new(ALIVE_MAX);

/// Runs a command. When this returns, nothing of it is running any more. Dropping the future ends its processes at once.
/// Needs a tokio runtime with I/O and time.
pub async fn run(spec: Spec) -> Result<Ended, StartError> {
    run_after(spec, None).await
}

/// The same, and `attacks` are tried by the child before it becomes the program.
pub(crate) async fn run_after(spec: Spec, attacks: Option<Arc<Attacks>>) -> Result<Ended, StartError> {
    let place = PLACES.acquire().await.map_err(|_| StartError::System(io::Error::other("no place for a process")))?;
    let bridge =
        Bridge::before(&spec.confinement).map_err(|source| StartError::Sandbox { step: Step::Network, source })?;
    let (stdio, pipes) = connect(&spec).map_err(StartError::System)?;
    let (mut order, ours) = prepare(&spec, bridge.as_ref(), stdio)?;
    order.attacks = attacks;
    let marker = spec.marker.to_string();
    let Ours { report, bridge: listener, network } = ours;
    let tree = nursery::start(order, move |born| Tree::new(born, marker, place, Inner { report, network }))
        .await
        .map_err(|stillborn| explain(stillborn, &spec))?;
    let began = Instant::now();
    let Ok(exit) = nursery::watch(tree.end()) else {
        return Ok(unwatched(tree, began).await);
    };
    let mut watch = Watch {
        exit,
        stdout: Listen::new(pipes.stdout, spec.stdout),
        stderr: pipes.stderr.map(|(pipe, keep)| Listen::new(pipe, keep)),
        phase: Phase::Running,
    };
    let until_over = watch.until_over(&tree, began + spec.timeout.min(TIMEOUT_MAX));
    let cause = match bridge {
        None => until_over.await,
        Some(bridge) => tokio::select! {
            cause = until_over => cause,
            never = bridge.carry(listener) => match never {},
        },
    };
    if watch.phase != Phase::Ended {
        tree.kill();
        // not forever: a process stuck in the kernel ignores even this
        let _ = tokio::time::timeout(GONE_WITHIN, watch.exit.readable()).await;
    }
    let (exit, strays) = tree.bury().await;
    let how = match (cause, exit) {
        (Cause::OutOfTime, _) => How::TimedOut,
        (Cause::TooLoud, _) => How::Cut,
        (Cause::Itself, Exit::Status(status)) => How::Exited(status),
        (Cause::Itself, Exit::Signal(signal)) => How::Signalled(signal),
    };
    Ok(Ended {
        how,
        stdout: watch.stdout.finish(),
        stderr: watch.stderr.map(Listen::finish).unwrap_or_default(),
        took: began.elapsed(),
        strays,
    })
}

/// The program runs but its end cannot be waited for: ended again, and never called "not started", because it was.
async fn unwatched(tree: Tree, began: Instant) -> Ended {
    tree.kill();
    let (_, strays) = tree.bury().await;
    let how = How::Signalled(libc::SIGKILL);
    Ended { how, stdout: Captured::default(), stderr: Captured::default(), took: began.elapsed(), strays }
}

/// Why we stopped watching.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Itself,
    OutOfTime,
    TooLoud,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// SIGTERM was sent.
    Terminating,
    /// The program has ended; its outputs may still be open.
    Ended,
}

struct Watch {
    exit: AsyncFd<std::sync::Arc<OwnedFd>>,
    stdout: Listen,
    stderr: Option<Listen>,
    phase: Phase,
}

impl Watch {
    fn outputs(&mut self) -> impl Iterator<Item = &mut Listen> {
        [&mut self.stdout].into_iter().chain(&mut self.stderr)
    }

    /// Where an output cannot be listened to this returns at once, and the caller ends the program.
    async fn until_over(&mut self, tree: &Tree, mut deadline: Instant) -> Cause {
        if timeout_at(deadline.min(Instant::now() + QUIET), self.exit.readable()).await.is_ok() {
            self.phase = Phase::Ended;
            deadline = Instant::now() + DRAIN;
            if self.outputs().any(|output| output.catch_up() == Room::Exceeded) {
                return Cause::TooLoud;
            }
        }
        if self.outputs().any(|output| output.hear().is_err()) {
            return Cause::Itself;
        }
        let mut cause = Cause::Itself;
        let mut alarm = pin!(sleep_until(deadline));
        loop {
            let stderr_open = self.stderr.as_ref().is_some_and(Listen::is_open);
            if self.phase == Phase::Ended && !self.stdout.is_open() && !stderr_open {
                return cause;
            }
            tokio::select! {
                biased;
                () = alarm.as_mut() => match self.phase {
                    Phase::Running => {
                        cause = Cause::OutOfTime;
                        tree.terminate();
                        self.phase = Phase::Terminating;
                        alarm.as_mut().reset(Instant::now() + GRACE);
                    }
                    Phase::Terminating | Phase::Ended => return cause,
                },
                _ = self.exit.readable(), if self.phase != Phase::Ended => {
                    self.phase = Phase::Ended;
                    alarm.as_mut().reset(Instant::now() + DRAIN);
                }
                room = self.stdout.more(), if self.stdout.is_open() => match room {
                    Room::Left => {}
                    Room::Exceeded => return Cause::TooLoud,
                },
                room = more(&mut self.stderr), if stderr_open => match room {
                    Room::Left => {}
                    Room::Exceeded => return Cause::TooLoud,
                },
            }
        }
    }
}

async fn more(listen: &mut Option<Listen>) -> Room {
    match listen {
        Some(listen) => listen.more().await,
        None => std::future::pending().await,
    }
}

/// One output and what is kept of it.
struct Listen {
    pipe: Pipe,
    capture: Capture,
    buffer: Vec<u8>,
}

/// Our end of an output. Reading it never waits.
enum Pipe {
    Quiet(OwnedFd),
    /// We are told when there is something to read.
    Heard(Receiver),
    /// By all who held it.
    Closed,
}

impl Listen {
    fn new(pipe: OwnedFd, keep: Keep) -> Self {
        Self { pipe: Pipe::Quiet(pipe), capture: Capture::new(keep), buffer: Vec::new() }
    }

    fn is_open(&self) -> bool {
        !matches!(self.pipe, Pipe::Closed)
    }

    /// Takes what lies in the pipe of a program that has ended: all of it, unless others hold the pipe open.
    fn catch_up(&mut self) -> Room {
        for _ in 0..READS_AT_END {
            let Pipe::Quiet(pipe) = &self.pipe else { break };
            match rustix::io::read(pipe, spare_capacity(emptied(&mut self.buffer))) {
                Ok(0) => self.pipe = Pipe::Closed,
                Ok(_) if self.capture.push(&self.buffer) == Room::Exceeded => return Room::Exceeded,
                Ok(_) => {}
                // for now there is no more
                Err(_) => break,
            }
        }
        Room::Left
    }

    fn hear(&mut self) -> io::Result<()> {
        self.pipe = match std::mem::replace(&mut self.pipe, Pipe::Closed) {
            Pipe::Quiet(pipe) => Pipe::Heard(Receiver::from_owned_fd_unchecked(pipe)?),
            pipe @ (Pipe::Heard(_) | Pipe::Closed) => pipe,
        };
        Ok(())
    }

    async fn more(&mut self) -> Room {
        let Pipe::Heard(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.read_buf(emptied(&mut self.buffer)).await {
            Ok(0) | Err(_) => {
                self.pipe = Pipe::Closed;
                Room::Left
            }
            Ok(_) => self.capture.push(&self.buffer),
        }
    }

    fn finish(self) -> Captured {
        self.capture.finish()
    }
}

/// Nothing is left in it, and there is more room once a read has filled it.
fn emptied(buffer: &mut Vec<u8>) -> &mut Vec<u8> {
    let was_filled = !buffer.is_empty() && buffer.len() == buffer.capacity();
    buffer.clear();
    buffer.reserve(if was_filled { READ_BYTES } else { FIRST_READ_BYTES });
    buffer
}

/// Our ends of the pipes.
struct Pipes {
    stdout: OwnedFd,
    stderr: Option<(OwnedFd, Keep)>,
}

pub(crate) fn prepare(spec: &Spec, bridge: Option<&Bridge>, stdio: [OwnedFd; 3]) -> Result<(Order, Ours), StartError> {
    let program = spec.argv.first().filter(|program| !program.is_empty()).ok_or(StartError::Empty)?;
    let text = |text: &str, what| CString::new(text).map_err(|_| StartError::Nul { what });
    let programs =
        candidates(program, &spec.env).iter().map(|path| text(path, "the command")).collect::<Result<_, _>>()?;
    let argv = spec.argv.iter().map(|word| text(word, "the command")).collect::<Result<_, _>>()?;
    let own = inside_env(spec, bridge);
    let env = spec
        .env
        .iter()
        .filter(|(name, _)| name != INSIDE && !own.iter().any(|(own, _)| own == name))
        .chain(own.iter().filter(|(_, value)| !value.is_empty()))
        .map(|(name, value)| text(&format!("{name}={value}"), "the environment"))
        .chain([text(&format!("{INSIDE}={}", spec.marker), "the marker")])
        .collect::<Result<_, _>>()?;
    let cwd =
        CString::new(spec.cwd.as_os_str().as_encoded_bytes()).map_err(|_| StartError::Nul { what: "the folder" })?;
    let (plan, ours) = match &spec.confinement {
        Confinement::None => (None, Ours::default()),
        Confinement::Confined(confined) => {
            let port = bridge.map_or(PROXY_PORT, Bridge::port);
            let (plan, ours) = Plan::of(confined, &spec.env, port)
                .map_err(|source| StartError::Sandbox { step: Step::Plan, source })?;
            (Some(plan), ours)
        }
    };
    Ok((Order { programs, argv, env, cwd, stdio, plan, attacks: None }, ours))
}

/// Variables that have another value inside, or, where it is empty, none.
fn inside_env(spec: &Spec, bridge: Option<&Bridge>) -> Vec<(String, String)> {
    let Confinement::Confined(confined) = &spec.confinement else { return Vec::new() };
    let mut own = Vec::new();
    let mut set =
        |names: &[&str], value: &str| own.extend(names.iter().map(|name| ((*name).to_owned(), value.to_owned())));
    let scratch = confined.scratch.as_ref().and_then(|scratch| scratch.to_str());
    match confined.way {
        Way::Namespaces | Way::UserNamespace => set(&["TMPDIR", "TMP", "TEMP"], ""),
        Way::Landlock => {
            set(&["TMPDIR", "TMP", "TEMP"], scratch.unwrap_or_default());
            // the home folder cannot be written
            if let Some(scratch) = scratch {
                for (name, below) in CACHES {
                    set(&[name], &format!("{scratch}/{below}"));
                }
            }
        }
        Way::SystemCalls => {}
    }
    if let Some(bridge) = bridge {
        let proxy = format!("http://127.0.0.1:{}", bridge.port());
        set(&["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"], &proxy);
        set(&["NO_PROXY", "no_proxy"], "localhost,127.0.0.1,::1");
    }
    own
}

/// Where tools keep what only saves work, as folders below the temporary one.
const CACHES: [(&str, &str); 5] = [
    ("XDG_CACHE_HOME", "cache"),
    ("GOCACHE", "cache/go-build"),
    ("npm_config_cache", "cache/npm"),
    ("PIP_CACHE_DIR", "cache/pip"),
    ("PYTHONPYCACHEPREFIX", "cache/python"),
];

/// Where a program may lie.
fn candidates(program: &str, env: &[(String, String)]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
    path.split(':')
        .filter(|_| !path.is_empty())
        .map(|folder| if folder.is_empty() { format!("./{program}") } else { format!("{folder}/{program}") })
        .collect()
}

fn connect(spec: &Spec) -> io::Result<([OwnedFd; 3], Pipes)> {
    let their_stdin = if spec.stdin.is_empty() { File::open("/dev/null")?.into() } else { filled(&spec.stdin)? };
    let (stdout, their_stdout) = output_pipe()?;
    let (stderr, their_stderr) = match spec.stderr {
        Stderr::WithStdout => (None, their_stdout.try_clone()?),
        Stderr::Apart(keep) => {
            let (read, write) = output_pipe()?;
            (Some((read, keep)), write)
        }
    };
    let pipes = Pipes { stdout, stderr };
    Ok(([above_two(their_stdin)?, above_two(their_stdout)?, above_two(their_stderr)?], pipes))
}

/// Our end, which never waits, and theirs, which does.
pub(crate) fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// A standard input that holds all of `bytes` before the program starts: however we end, it never reads a part and then
/// the end. A pipe where they fit into it, else memory in the form of a file.
fn filled(bytes: &[u8]) -> io::Result<OwnedFd> {
    if bytes.len() <= PIPE_HOLDS {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        // Where pipes are small, because this user has many, a part is written or nothing.
        if rustix::io::write(&write, bytes).is_ok_and(|written| written == bytes.len()) {
            return Ok(read);
        }
    }
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// What a pipe takes unless told otherwise, on Linux.
const PIPE_HOLDS: usize = 64 * 1024;

/// In a process whose own 0, 1 or 2 is closed, a pipe may get that number and be overwritten on its way to its place.
pub(crate) fn above_two(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?) }
}

pub(crate) fn explain(stillborn: Stillborn, spec: &Spec) -> StartError {
    let program = spec.argv.first().cloned().unwrap_or_default();
    match stillborn {
        Stillborn::Folder(source) => StartError::Folder { folder: spec.cwd.clone(), source },
        Stillborn::Sandbox(step, source) => {
            drawn::forget();
            StartError::Sandbox { step, source }
        }
        Stillborn::System(error) => StartError::System(error),
        Stillborn::Exec(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {
                let exists = candidates(&program, &spec.env).iter().any(|path| spec.cwd.join(path).is_file());
                if exists { StartError::NoInterpreter { program } } else { StartError::NotFound { program } }
            }
            Some(libc::EACCES | libc::EPERM) => StartError::NotExecutable { program },
            Some(libc::ENOEXEC) => StartError::BadFormat { program },
            Some(libc::E2BIG) => StartError::TooLarge,
            Some(_) | None => StartError::System(error),
        },
    }
}
