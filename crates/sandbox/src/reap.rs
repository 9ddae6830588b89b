//! Ends what an earlier worker left on this host.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::process::getpid;

use crate::process::{self, Mark, Seen, State};
use crate::tree::GONE_WITHIN;

/// What became of marked processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    /// None is left; so many were ended.
    Gone { ended: usize },
    /// Some could not be ended in time, or processes cannot be listed here.
    Unverified,
}

/// Ends every process marked with this run and action and a fence older than `fence`, and waits until none is left, at
/// most five seconds. What shares a session with a marked process goes with it: sessions begin inside a command.
pub async fn reap_marked(run: &str, action: &str, fence: u64) -> Reaped {
    let prefix = format!("{run}/{action}/");
    let is_older = move |marker: &str| {
        marker.strip_prefix(&prefix).and_then(|rest| rest.parse::<u64>().ok()).is_some_and(|theirs| theirs < fence)
    };
    tokio::task::spawn_blocking(move || reap(&is_older)).await.unwrap_or(Reaped::Unverified)
}

/// Ends every process of a run that nobody drives any more, whatever action it belongs to.
pub async fn reap_run(run: &str) -> Reaped {
    let prefix = format!("{run}/");
    tokio::task::spawn_blocking(move || reap(&|marker: &str| marker.starts_with(&prefix)))
        .await
        .unwrap_or(Reaped::Unverified)
}

fn reap(is_meant: &dyn Fn(&str) -> bool) -> Reaped {
    let by = Instant::now() + GONE_WITHIN;
    let mut ended = HashSet::new();
    loop {
        let Some(left) = marked(is_meant) else { return Reaped::Unverified };
        if left.is_empty() {
            return Reaped::Gone { ended: ended.len() };
        }
        let handles: Vec<(Seen, OwnedFd)> =
            left.iter().filter_map(|seen| Some((*seen, process::kill(seen)?))).collect();
        for (seen, handle) in &handles {
            if !process::wait_until_ended(handle, by) {
                return Reaped::Unverified;
            }
            process::collect(handle);
            ended.insert((seen.pid, seen.start));
        }
        if Instant::now() >= by {
            return Reaped::Unverified;
        }
    }
}

fn marked(is_meant: &dyn Fn(&str) -> bool) -> Option<Vec<Seen>> {
    let me = getpid();
    let our_session = process::our_session();
    let alive: Vec<Seen> = process::all()?
        .into_iter()
        .filter(|pid| *pid != me)
        .filter_map(process::look)
        .filter(|seen| seen.state == State::Alive && seen.session != our_session)
        .collect();
    let mut sessions = HashSet::new();
    let mut unmarked = Vec::new();
    let mut found = Vec::new();
    for seen in alive {
        match process::mark(&seen) {
            Mark::Inside(marker) if is_meant(&marker) => {
                sessions.insert(seen.session);
                found.push(seen);
            }
            Mark::Inside(_) => {}
            Mark::Absent | Mark::Unreadable => unmarked.push(seen),
        }
    }
    found.extend(unmarked.into_iter().filter(|seen| seen.session != 0 && sessions.contains(&seen.session)));
    Some(found)
}
