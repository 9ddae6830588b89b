//! A process seen from outside, through `/proc`.

use std::fs;
use std::time::Duration;

/// CPU time of a process's own living threads, to the nanosecond: neither its children's nor that of threads that ended.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        total += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Some(Duration::from_nanos(total))
}

/// CPU time of this process, threads that ended included, to 10 ms.
pub(crate) fn cpu_of_all_threads() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // utime and stime are fields 14 and 15
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map_while(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// CPU time of the children that a process has collected, to 10 ms: of the commands it ran, with all of theirs.
pub(crate) fn children(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything: count from its end. cutime and cstime are fields 16 and 17, in ticks of 10 ms.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_whitespace().skip(13).take(2).map_while(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10))
}

/// Memory and wake-ups of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Status {
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
    /// How often its first thread went to sleep by itself.
    pub(crate) sleeps: u64,
}

pub(crate) fn status(pid: u32) -> Status {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Status { resident_kib: number("VmRSS"), peak_kib: number("VmHWM"), sleeps: sleeps(pid) }
}

/// Over all threads.
fn sleeps(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("status")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}
