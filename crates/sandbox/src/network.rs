//! Networks of commands' own, handed on from one command to the next.
//!
//! To make a network namespace costs more than everything else that a confined command needs together (0.3 ms, and the
//! kernel works on when it is taken down). A command has one to itself; when all its processes are gone and nothing of it is
//! left there, no socket and no connection that has yet to fade, the next one gets it. Nobody inside may change its
//! addresses, routes or settings, so that but for the counters of its loopback it is as new. What else processes talk through
//! goes with it (`ipc`).
//!
//! Refuses to hand on what it cannot see to be empty: that network goes down with its last process.
#![expect(unsafe_code, reason = "a thread of its own leaves our network, and touches no memory by it")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{init, inside, ipc};

/// A network for one command at a time. Dropped, it is gone with the last process in it.
#[derive(Debug)]
pub(crate) struct Own {
    namespace: OwnedFd,
    /// What the kernel counts in it, wherever it is read.
    counts: File,
    /// None: this machine lets us keep none, and the command is born into one that is made for it.
    ipc: Option<ipc::Own>,
}

/// Those that no command is in.
static FREE: Mutex<Vec<Own>> = Mutex::new(Vec::new());

/// Commands that run side by side are few: of a thousand networks that one moment needed, the rest goes.
const FREE_MAX: usize = 8;

/// An empty network. None: this machine lets us keep none, and the command is born into one that is made for it.
pub(crate) fn take() -> Option<Own> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if let Some(free) = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        return Some(free);
    }
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let made = make();
    REFUSED.store(made.is_none(), Ordering::Relaxed);
    made
}

impl Own {
    /// For a child to enter.
    pub(crate) fn raw(&self) -> i32 {
        self.namespace.as_raw_fd()
    }

    /// What goes with it.
    pub(crate) fn ipc(&self) -> Option<i32> {
        self.ipc.as_ref().map(ipc::Own::raw)
    }

    /// To be called when no process is in it any more.
    pub(crate) fn give_back(self) {
        if self.is_empty() {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < FREE_MAX {
                free.push(self);
            }
        }
    }

    fn is_empty(&self) -> bool {
        let mut text = [0; 1024];
        match rustix::io::pread(&self.counts, &mut text, 0) {
            // a text that fills it may go on
            Ok(read) if read < text.len() => {
                str::from_utf8(&text[..read]).is_ok_and(says_empty) && self.ipc.as_ref().is_none_or(ipc::Own::is_empty)
            }
            Ok(_) | Err(_) => false,
        }
    }
}

/// Of `/proc/net/sockstat`: no socket of whatever family, and no TCP connection that waits for its last packets.
fn says_empty(counts: &str) -> bool {
    let count = |line: &str, name: &str| {
        let line = counts.lines().find_map(|text| text.strip_prefix(line))?;
        let mut words = line.split_ascii_whitespace();
        words.find(|word| *word == name)?;
        words.next()?.parse::<u64>().ok()
    };
    count("sockets:", "used") == Some(0) && count("TCP:", "tw") == Some(0)
}

/// By a thread that is not needed afterwards: whoever leaves our network may not be let back in.
fn make() -> Option<Own> {
    let made = thread::Builder::new().name("longrein-network".to_owned()).spawn(|| -> io::Result<Own> {
        // SAFETY: of what threads share only the network is left, which no descriptor or memory of ours belongs to.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        // SAFETY: asks for nothing but system calls. Where the surroundings forbid it, there is no loopback either.
        unsafe { inside::raise_loopback() };
        let namespace = OwnedFd::from(File::open("/proc/thread-self/ns/net")?);
        let namespace = rustix::io::fcntl_dupfd_cloexec(namespace, init::LOW_FDS)?;
        let counts = File::open("/proc/thread-self/net/sockstat")?;
        // some surroundings let nobody enter what they let everybody make
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        // SAFETY: as above: nothing that threads share by it is in use here.
        let ipc = unsafe { unshare_unsafe(UnshareFlags::NEWIPC) };
        Ok(Own { namespace, counts, ipc: ipc.ok().and_then(|()| ipc::Own::of_this_thread().ok()) })
    });
    made.ok()?.join().ok()?.ok().filter(Own::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_network_is_empty() {
        let text = |used: u32, waiting: u32| {
            format!("sockets: used {used}\nTCP: inuse 0 orphan 0 tw {waiting} alloc 1 mem 136\nUDP: inuse 0 mem 0\n")
        };
        assert!(says_empty(&text(0, 0)));
        assert!(!says_empty(&text(1, 0)));
        assert!(!says_empty(&text(0, 3)));
        assert!(!says_empty(""));
        assert!(!says_empty("sockets: used 0\n"));
    }

    #[test]
    fn a_network_with_a_socket_in_it_is_not_handed_on() {
        let Some(own) = make() else {
            eprintln!("skipped: no network can be made here");
            return;
        };
        assert!(own.is_empty());
        let (entered, namespace) = (own, std::sync::mpsc::channel::<()>());
        let raw = entered.namespace.try_clone().unwrap();
        let (tell, told) = namespace;
        let (bound, is_bound) = std::sync::mpsc::channel();
        let inside = thread::spawn(move || {
            move_into_link_name_space(raw.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            bound.send(()).unwrap();
            let _ = told.recv();
            drop(listener);
        });
        is_bound.recv().unwrap();
        assert!(!entered.is_empty());
        drop(tell);
        inside.join().unwrap();
        assert!(entered.is_empty());
    }
}
