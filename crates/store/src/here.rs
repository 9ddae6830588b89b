//! This process as a worker: which host, boot and process it is, what time it is, and whether another worker is alive.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use longrein_core::time::{Timestamp, millis};
use longrein_ports::{Clock, Worker};

/// This process.
///
/// In a PID namespace of its own (a container) the namespace is part of the host's name: a process number of another
/// namespace means nothing here, so "no such process" must not be taken for a death.
pub fn worker_here() -> io::Result<Worker> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = match std::fs::read_link("/proc/self/ns/pid")?.to_str().and_then(namespace_number) {
        Some(FIRST_PID_NAMESPACE) | None => name,
        Some(namespace) => format!("{name}#{namespace}"),
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let pid = std::process::id();
    let stat = std::fs::read("/proc/self/stat")?;
    let (_, pid_start) = state_and_start(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat has an unknown form"))?;
    Ok(Worker { host, boot, pid, pid_start })
}

/// The kernel's fixed number of the first PID namespace (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u32 = 0xEFFF_FFFC;

/// `pid:[4026531836]` → 4026531836.
fn namespace_number(link: &str) -> Option<u32> {
    link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether the process of a worker on this host and boot still runs. False only if it provably does not: there is none
/// with its number, that one started at another time, or it is a zombie.
pub fn is_alive(worker: &Worker) -> bool {
    match std::fs::read(format!("/proc/{}/stat", worker.pid)) {
        Ok(stat) => match state_and_start(&stat) {
            Some((b'Z' | b'X', _)) => false,
            Some((_, start)) => start == worker.pid_start,
            None => true,
        },
        // Perhaps hidden from us: ask the kernel itself.
        Err(_) => i32::try_from(worker.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))),
    }
}

/// State (field 3) and start time in ticks since boot (field 22) of `/proc/PID/stat`. The name in field 2 may hold
/// anything, so fields are counted from its closing bracket.
fn state_and_start(stat: &[u8]) -> Option<(u8, u64)> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    // The state was field 3; skip 4 to 21.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// Time since this machine booted, suspension included.
pub fn boottime() -> Duration {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(spec.tv_sec.max(0).cast_unsigned(), u32::try_from(spec.tv_nsec).unwrap_or(0))
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct SystemClock {
    /// The latest wall-clock time told, so that none earlier follows.
    latest: AtomicU64,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let wall = millis(wall);
        Timestamp(self.latest.fetch_max(wall, Ordering::Relaxed).max(wall))
    }

    fn boottime(&self) -> Duration {
        boottime()
    }

    fn jitter(&self) -> u32 {
        // Every RandomState has other keys, so hashing nothing draws a number without a crate for it.
        (RandomState::new().hash_one(()) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_a_reused_number_is_not() {
        let here = worker_here().expect("proc is readable");
        assert!(is_alive(&here));
        assert!(!is_alive(&Worker { pid_start: here.pid_start + 1, ..here.clone() }));
        assert!(!is_alive(&Worker { pid: 0x3FFF_FFFF, ..here }));
    }

    #[test]
    fn a_process_name_may_hold_anything() {
        let stat = b"7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(state_and_start(stat), Some((b'S', 4242)));
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let pid = child.id();
        let stat = loop {
            let stat = std::fs::read(format!("/proc/{pid}/stat")).expect("not reaped yet");
            if state_and_start(&stat).is_some_and(|(state, _)| state == b'Z') {
                break stat;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let pid_start = state_and_start(&stat).expect("well formed").1;
        assert!(!is_alive(&Worker { host: String::new(), boot: String::new(), pid, pid_start }));
        child.wait().expect("it ended");
    }
}
