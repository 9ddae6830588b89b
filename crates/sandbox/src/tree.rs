//! A running command as one thing: the program, its group, and whatever it set loose. Dropping a [`Tree`] ends it all.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process_group};
use tokio::sync::{SemaphorePermit, oneshot};

use crate::companion::{COMPANIONS, COMPANIONS_MAX};
use crate::init::REPORT_BYTES;
use crate::network;
use crate::nursery::{self, Born};
use crate::process::{self, Mark, Seen, State};
use crate::spec::Strays;
use crate::supervise::{ALIVE_MAX, PLACES};

/// How long ended processes may take to be gone. SIGKILL takes well under a millisecond, except in a stuck kernel.
pub(crate) const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Answerable for one command from birth until nothing of it is left.
#[derive(Debug)]
pub(crate) struct Tree {
    remains: Option<Remains>,
}

/// What identifies a command's processes, and its place among those alive.
#[derive(Debug)]
struct Remains {
    /// The program: leader of its session and group. Its number is not given to another while it is not collected.
    leader: Pid,
    handle: Arc<OwnedFd>,
    marker: String,
    /// It has namespaces: `leader` is their first process, and writes here how the program ended.
    report: Option<Arc<OwnedFd>>,
    /// Handed on once all of its processes are gone; where that is not seen, it goes with them.
    network: Option<network::Own>,
    _place: SemaphorePermit<'static>,
}

/// What a command in namespaces has.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// From here comes how the command ended.
    pub(crate) report: Option<OwnedFd>,
    pub(crate) network: Option<network::Own>,
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Status(i32),
    Signal(i32),
}

impl Tree {
    pub(crate) fn new(born: Born, marker: String, place: SemaphorePermit<'static>, inner: Inner) -> Self {
        let handle = Arc::new(born.handle);
        let Inner { report, network } = inner;
        let report = report.map(Arc::new);
        Self { remains: Some(Remains { leader: born.pid, handle, marker, report, network, _place: place }) }
    }

    /// Becomes readable when the program has ended. In namespaces: when all of its processes have, or were ended.
    pub(crate) fn end(&self) -> Arc<OwnedFd> {
        let remains = self.remains();
        Arc::clone(remains.report.as_ref().unwrap_or(&remains.handle))
    }

    /// Asks the whole group to end, those too that are stopped: they would not hear of it before they go on.
    pub(crate) fn terminate(&self) {
        if self.remains().report.is_some() {
            for seen in descendants(self.remains().leader) {
                process::ask_to_end(&seen);
            }
            return;
        }
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(self.remains().leader, signal);
        }
    }

    /// Ends the whole tree at once, those who left the group too.
    pub(crate) fn kill(&self) {
        self.remains().kill();
    }

    /// To be called when the program has ended: ends what it left behind and waits until it is gone.
    pub(crate) async fn bury(mut self) -> (Exit, Strays) {
        let report = self.remains().report.as_ref().and_then(|report| read_report(report));
        if let Some(ended) = report {
            self.let_go();
            return ended;
        }
        let mut remains = self.remains.take().expect("present until buried or dropped");
        if remains.report.is_some() {
            // its first process was killed, or ends without a word
            let _ = tokio::time::timeout(GONE_WITHIN, async {
                if let Ok(handle) = nursery::watch(Arc::clone(&remains.handle)) {
                    let _ = handle.readable().await;
                }
            })
            .await;
        }
        let Some(exit) = remains.collect_leader() else {
            // stuck in the kernel: it dies when the kernel lets go of it, and we cannot wait for that
            return (Exit::Signal(Signal::KILL.as_raw()), Strays::Left(1));
        };
        if remains.report.is_some() {
            // the kernel has ended all of the namespace before it let its first process go
            return (exit, Strays::None);
        }
        if !process::any_child() || adopted().is_empty() {
            return (exit, Strays::None);
        }
        let (done, strays) = oneshot::channel();
        undertaker(move || {
            let _ = done.send(remains.sweep());
        });
        (exit, strays.await.unwrap_or(Strays::None))
    }

    /// All of its processes are gone but the first, which is ending: the kernel takes namespaces down meanwhile, some
    /// milliseconds in which nobody has to wait. Its place stays taken until it is collected.
    fn let_go(mut self) {
        tokio::spawn(async move {
            if let Ok(handle) = nursery::watch(Arc::clone(&self.remains().handle))
                && tokio::time::timeout(GONE_WITHIN, handle.readable()).await.is_ok()
                && let Some(mut remains) = self.remains.take()
            {
                remains.collect_leader();
            }
        });
    }

    fn remains(&self) -> &Remains {
        self.remains.as_ref().expect("present until buried or dropped")
    }
}

impl Drop for Tree {
    /// Needs no runtime: the signals are sent here, the waiting is done by a thread.
    fn drop(&mut self) {
        if let Some(mut remains) = self.remains.take() {
            remains.kill();
            undertaker(move || {
                if process::wait_until_ended(&remains.handle, Instant::now() + GONE_WITHIN) {
                    remains.collect_leader();
                }
                if remains.report.is_none() {
                    remains.sweep();
                }
            });
        }
    }
}

/// How often [`all_gone`] looks. Killed processes are gone within a millisecond or two.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until nothing is left of any command, as long as ended processes may take to be gone. False: not by then.
///
/// To be called when no command is wanted any more and before this process ends: dropping a command only sends the signals,
/// and nobody but us ends an orphan that was born while they were sent.
pub async fn all_gone() -> bool {
    let by = Instant::now() + GONE_WITHIN;
    while PLACES.available_permits() < ALIVE_MAX || COMPANIONS.available_permits() < COMPANIONS_MAX {
        if Instant::now() >= by {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

/// How the program ended, and how many others then had to be ended. None: their first process did not come to say.
fn read_report(report: &OwnedFd) -> Option<(Exit, Strays)> {
    let mut bytes = [0; REPORT_BYTES];
    if rustix::io::read(report, &mut bytes).ok()? != REPORT_BYTES {
        return None;
    }
    let (status, count) = bytes.split_at(REPORT_BYTES / 2);
    let status = i32::from_ne_bytes(status.try_into().ok()?);
    let count = usize::try_from(u32::from_ne_bytes(count.try_into().ok()?)).ok()?;
    let exit = if libc::WIFEXITED(status) {
        Exit::Status(libc::WEXITSTATUS(status))
    } else {
        Exit::Signal(libc::WTERMSIG(status))
    };
    Some((exit, if count == 0 { Strays::None } else { Strays::Ended(count) }))
}

impl Remains {
    fn kill(&self) {
        if self.report.is_some() {
            // its namespace dies with it
            let _ = rustix::process::pidfd_send_signal(&*self.handle, Signal::KILL);
            return;
        }
        // seen before the first signal: afterwards the lines of descent are broken
        let loose = descendants(self.leader);
        let _ = kill_process_group(self.leader, Signal::KILL);
        for seen in loose.iter().chain(adopted().iter().filter(|seen| self.owns(seen))) {
            process::kill(seen);
        }
    }

    /// Ends the rest of the group while the leader, already ended, still keeps the group's number; then lets go of it.
    /// None: it has not ended.
    fn collect_leader(&mut self) -> Option<Exit> {
        if self.report.is_none() {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        let status = process::collect(&self.handle)?;
        if let Some(network) = self.network.take() {
            // the kernel lets the first process of a namespace go after all others
            network.give_back();
        }
        let killed = || Exit::Signal(status.terminating_signal().unwrap_or(Signal::KILL.as_raw()));
        Some(status.exit_status().map_or_else(killed, Exit::Status))
    }

    /// Ends every process that this command left and waits for it. When its parents are gone each of them is a child of
    /// ours, so our own children are all that needs to be looked at, again and again until none of them belongs here.
    fn sweep(&self) -> Strays {
        let by = Instant::now() + GONE_WITHIN;
        let mut ended = HashSet::new();
        loop {
            let adopted = adopted();
            collect_strangers(&adopted);
            let ours: Vec<Seen> = adopted.into_iter().filter(|seen| self.owns(seen)).collect();
            if ours.is_empty() {
                return if ended.is_empty() { Strays::None } else { Strays::Ended(ended.len()) };
            }
            let handles: Vec<(Seen, OwnedFd)> =
                ours.iter().filter_map(|seen| Some((*seen, process::kill(seen)?))).collect();
            for (seen, handle) in &handles {
                if !process::wait_until_ended(handle, by) {
                    return Strays::Left(ours.len());
                }
                process::collect(handle);
                ended.insert((seen.pid, seen.start));
            }
            if Instant::now() >= by {
                return Strays::Left(ours.len());
            }
        }
    }

    fn owns(&self, seen: &Seen) -> bool {
        match process::mark(seen) {
            Mark::Inside(marker) => marker == self.marker,
            // a zombie has no environment any more, and a program may wipe its own or write its title over it; the session
            // stays. Who left that too is some command's orphan, and ours if no other command runs
            Mark::Absent | Mark::Unreadable => {
                seen.session == self.leader.as_raw_nonzero().get()
                    || (is_last() && seen.session != process::our_session() && process::is_started_by_us(seen.pid))
            }
        }
    }
}

/// Whether one command alone is left.
fn is_last() -> bool {
    PLACES.available_permits() + 1 == ALIVE_MAX
}

/// Runs blocking work apart from everything else; in place if no thread can be had.
fn undertaker(work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let theirs = Arc::clone(&work);
    let take = |slot: &Mutex<Option<_>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let spawned = thread::Builder::new().name("longrein-bury".to_owned()).spawn(move || {
        if let Some(work) = take(&theirs) {
            work();
        }
    });
    if spawned.is_err()
        && let Some(work) = work.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        work();
    }
}

/// Our children that we did not start as commands: orphans of commands, and children of the program we are part of. The
/// kernel hands orphans to the first living thread, never to the one that spawns while another lives.
fn adopted() -> Vec<Seen> {
    let me = getpid();
    // the first thread is the usual and only place: one small file
    let pids = match process::children_of(me, me) {
        Some(of_first) if process::look(me).is_some_and(|seen| seen.state == State::Alive) => of_first,
        Some(_) => process::threads_of(me)
            .into_iter()
            .filter(|thread| !nursery::is_spawner(*thread))
            .filter_map(|thread| process::children_of(me, thread))
            .flatten()
            .collect(),
        None => process::all().unwrap_or_default(),
    };
    pids.into_iter().filter_map(process::look).collect()
}

/// Everything that descends from `root`, as far as parents are alive.
fn descendants(root: Pid) -> Vec<Seen> {
    let mut found = Vec::new();
    let mut open = vec![root];
    let mut known = HashSet::from([root]);
    while let Some(pid) = open.pop() {
        for child in
            process::threads_of(pid).into_iter().filter_map(|thread| process::children_of(pid, thread)).flatten()
        {
            if known.insert(child) {
                open.push(child);
                found.extend(process::look(child));
            }
        }
    }
    found
}

/// How long an ended orphan of unknown origin is left alone: whoever started it would have asked by then.
const STRANGER_AFTER: Duration = Duration::from_secs(5);

/// Orphans that ended with a session of their own before anyone saw their mark cannot be told from children of the
/// program we are part of. They are collected once they have been dead for a while, so that none stays for ever.
fn collect_strangers(adopted: &[Seen]) {
    static SEEN: Mutex<Option<HashMap<(Pid, u64), Instant>>> = Mutex::new(None);
    let our_session = process::our_session();
    let zombies: Vec<&Seen> =
        adopted.iter().filter(|seen| seen.state == State::Zombie && seen.session != our_session).collect();
    let mut seen_dead = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let since = seen_dead.get_or_insert_default();
    since.retain(|(pid, start), _| zombies.iter().any(|seen| seen.pid == *pid && seen.start == *start));
    for seen in zombies {
        if since.entry((seen.pid, seen.start)).or_insert_with(Instant::now).elapsed() > STRANGER_AFTER
            && let Ok(handle) = rustix::process::pidfd_open(seen.pid, rustix::process::PidfdFlags::empty())
        {
            process::collect(&handle);
        }
    }
}
