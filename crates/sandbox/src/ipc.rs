//! What processes talk through without a file or a socket: System V memory, semaphores and queues, and POSIX queues. A command
//! has a namespace of its own for them, which is made and kept with its network (`network`).
//!
//! Refuses to hand on one in which anything is left: a command that leaves something there had the last use of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::plan::high;

/// A namespace for one command at a time.
#[derive(Debug)]
pub(crate) struct Own {
    namespace: OwnedFd,
    /// What the kernel lists in it, wherever it is read.
    lists: [File; 3],
    /// The folder of its POSIX queues, at no place, and its size when none was there.
    queues: OwnedFd,
    size: i64,
}

impl Own {
    /// That of the calling thread, which nobody has used yet.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        let namespace = high(File::open("/proc/thread-self/ns/ipc")?.into())?;
        let list = |name: &str| File::open(format!("/proc/sysvipc/{name}"));
        let lists = [list("msg")?, list("sem")?, list("shm")?];
        let kind = fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&kind)?;
        let queues = fsmount(&kind, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        let size = rustix::fs::fstat(&queues)?.st_size;
        Ok(Self { namespace, lists, queues, size })
    }

    /// For a child to enter.
    pub(crate) fn raw(&self) -> i32 {
        self.namespace.as_raw_fd()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.iter().all(is_heading_alone)
            && rustix::fs::fstat(&self.queues).is_ok_and(|now| now.st_size == self.size)
    }
}

/// Of a list in `/proc/sysvipc`, whose first line names its columns.
fn is_heading_alone(list: &File) -> bool {
    let mut text = [0; 512];
    rustix::io::pread(list, &mut text, 0)
        .is_ok_and(|read| text[..read].iter().position(|byte| *byte == b'\n') == read.checked_sub(1))
}

#[cfg(test)]
#[expect(unsafe_code, reason = "system calls that nobody wraps; a thread leaves a namespace that no memory belongs to")]
mod tests {
    use super::*;

    /// In a namespace of its own.
    fn inside(does: impl FnOnce(&Own) + Send) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: nothing of this process depends on it.
                if unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWIPC) }.is_err() {
                    eprintln!("skipped: no namespace can be made here");
                    return;
                }
                does(&Own::of_this_thread().unwrap());
            });
            thread.join().unwrap();
        });
    }

    #[test]
    fn what_is_left_is_seen() {
        inside(|own| {
            assert!(own.is_empty());
            let name = c"/longrein-left".as_ptr();
            // SAFETY: numbers, and a name that ends with a zero.
            unsafe {
                let queue = libc::mq_open(name, libc::O_CREAT | libc::O_RDWR, 0o600, 0_usize);
                assert!(queue >= 0, "{}", io::Error::last_os_error());
                assert!(!own.is_empty(), "a queue");
                assert_eq!((libc::mq_close(queue), libc::mq_unlink(name)), (0, 0));
                assert!(own.is_empty());
                let memory = libc::shmget(libc::IPC_PRIVATE, 4096, 0o600);
                assert!(!own.is_empty(), "memory");
                assert_eq!(libc::shmctl(memory, libc::IPC_RMID, std::ptr::null_mut()), 0);
                assert!(own.is_empty());
                let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
                assert!(!own.is_empty(), "a semaphore");
                assert_eq!(libc::semctl(set, 0, libc::IPC_RMID), 0);
                let messages = libc::msgget(libc::IPC_PRIVATE, 0o600);
                assert!(!own.is_empty(), "messages");
                assert_eq!(libc::msgctl(messages, libc::IPC_RMID, std::ptr::null_mut()), 0);
                assert!(own.is_empty());
            }
        });
    }
}
