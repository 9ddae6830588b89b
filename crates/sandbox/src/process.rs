//! Reads what `/proc` tells about processes, and ends them without ever hitting a stranger that got the same number.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::spec::INSIDE;

/// A process as it was when looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: Pid,
    pub(crate) session: i32,
    /// With the number, this names one process for good.
    pub(crate) start: u64,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Alive,
    /// Ended; its number is kept until its parent asks.
    Zombie,
}

/// Whose a process says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    Inside(String),
    /// No such variable.
    Absent,
    /// Gone, a zombie, or another user's.
    Unreadable,
}

/// The most that is read of an environment: the kernel's own bound of one string is 128 KiB, of all 6 MiB.
const ENVIRON_MAX_BYTES: u64 = 6 << 20;

pub(crate) fn look(pid: Pid) -> Option<Seen> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name is in parentheses and may hold anything, more parentheses too
    let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?;
    let session = fields.nth(2)?.parse().ok()?;
    // field 22 of proc_pid_stat(5); session was 6
    let start = fields.nth(15)?.parse().ok()?;
    let state = if matches!(state, "Z" | "X") { State::Zombie } else { State::Alive };
    Some(Seen { pid, session, start, state })
}

/// The session of this process as `/proc` numbers it: 0 when it began outside our PID namespace, as under `docker exec` or
/// `nsenter`. Read there because rustix takes session 0 for impossible and panics.
pub(crate) fn our_session() -> i32 {
    look(rustix::process::getpid()).map_or(0, |own| own.session)
}

/// How often an empty environment is read again, and after how long: a process that is becoming another program has none
/// for a moment, a few microseconds on an idle machine.
const EMPTY_READS: u32 = 20;
const EMPTY_PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn mark(seen: &Seen) -> Mark {
    for _ in 0..EMPTY_READS {
        let mut environ = Vec::new();
        let read = fs::File::open(format!("/proc/{}/environ", seen.pid))
            .and_then(|file| file.take(ENVIRON_MAX_BYTES).read_to_end(&mut environ));
        match read {
            Err(_) => return Mark::Unreadable,
            // session 0 has the kernel's own threads, which never have one
            Ok(0) if seen.session != 0 && look(seen.pid).is_some_and(|now| now.state == State::Alive) => {
                std::thread::sleep(EMPTY_PAUSE);
            }
            Ok(0) => return Mark::Unreadable,
            Ok(_) => {
                return environ
                    .split(|byte| *byte == 0)
                    .find_map(|entry| entry.strip_prefix(INSIDE.as_bytes())?.strip_prefix(b"="))
                    .map_or(Mark::Absent, |value| Mark::Inside(String::from_utf8_lossy(value).into_owned()));
            }
        }
    }
    Mark::Unreadable
}

/// Whether a process may never leave a core dump. Ours inherit that from the moment they are started and cannot undo it
/// without privileges; where we may not dump ourselves it tells nothing.
pub(crate) fn is_started_by_us(pid: Pid) -> bool {
    if rustix::process::getrlimit(rustix::process::Resource::Core).maximum == Some(0) {
        return false;
    }
    fs::read_to_string(format!("/proc/{pid}/limits")).is_ok_and(|limits| {
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        core.is_some_and(|core| core.split_whitespace().nth(1) == Some("0"))
    })
}

/// Whether any child of ours is left, running or ended: one call where `/proc` takes a dozen.
pub(crate) fn any_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// The children of one thread; None where the kernel does not list them.
pub(crate) fn children_of(pid: Pid, thread: Pid) -> Option<Vec<Pid>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()?;
    Some(numbers(text.split_ascii_whitespace()))
}

pub(crate) fn threads_of(pid: Pid) -> Vec<Pid> {
    listing(&format!("/proc/{pid}/task")).unwrap_or_default()
}

/// Every process of the system, as far as it can be seen.
pub(crate) fn all() -> Option<Vec<Pid>> {
    listing("/proc")
}

fn listing(folder: &str) -> Option<Vec<Pid>> {
    let names: Vec<String> =
        fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    Some(numbers(names.iter().map(String::as_str)))
}

fn numbers<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Pid> {
    texts.filter_map(|text| Pid::from_raw(text.parse().ok()?)).collect()
}

/// Sends SIGKILL to exactly this process, and gives the handle to wait with. None: it is gone.
pub(crate) fn kill(seen: &Seen) -> Option<OwnedFd> {
    let handle = pidfd_open(seen.pid, PidfdFlags::empty()).ok()?;
    // the handle is fixed to one process; if that one has the start time we saw, it is the one we saw
    if look(seen.pid)?.start != seen.start {
        return None;
    }
    // fails when it just ended, or is another user's: waiting tells
    let _ = pidfd_send_signal(&handle, Signal::KILL);
    Some(handle)
}

/// Sends SIGTERM to exactly this process; also if it is stopped: it would not hear of it before it goes on.
pub(crate) fn ask_to_end(seen: &Seen) {
    if let Ok(handle) = pidfd_open(seen.pid, PidfdFlags::empty())
        && look(seen.pid).is_some_and(|now| now.start == seen.start)
    {
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = pidfd_send_signal(&handle, signal);
        }
    }
}

/// Waits until the process of `handle` has ended. False: not by then.
pub(crate) fn wait_until_ended(handle: &OwnedFd, by: Instant) -> bool {
    loop {
        let left = by.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left == Duration::ZERO => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// How a child of ours ended; this frees its number. None: not ours, still running, or asked before.
pub(crate) fn collect(handle: &OwnedFd) -> Option<rustix::process::WaitIdStatus> {
    use std::os::fd::AsFd;
    waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok().flatten()
}
