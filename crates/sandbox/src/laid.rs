//! Views laid out once, and copied for every command that has them.
//!
//! To lay out a view takes two hundred system calls of every command; to copy what lies is one. So a view that is asked for
//! again is laid out in a mount namespace that no process is in, and kept with its plan (`drawn`). A command enters it, leaves
//! it at once for a copy that is its own, and adds what nobody may share: processes, memory, terminals.
//!
//! It counts as long as everything in it is what a command would find by itself: the same file or folder at each source, by
//! its number, which nobody else gets while it is held here; no mount of ours made or taken away since; and none of its own
//! taken away, which the kernel does to whatever lies on a file that is removed or replaced. Of mounts the kernel keeps count:
//! a child asks for both counts when it has its copy, and gives up if one has changed. Then the command's view is laid out as
//! if nothing had been kept, and the next one's anew.
//!
//! Refuses to keep a view in which our old root would be left, or that it cannot enter as a command would.
#![expect(unsafe_code, reason = "a thread of its own leaves our view of files, and calls what a child would")]

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::inside;
use crate::plan::{Grab, Laying, Space, high};

/// A mount namespace with everything of a view that commands may share. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Laid {
    namespace: OwnedFd,
    /// The mounts of ours and of this namespace: the kernel says when one was made or taken away.
    mounts: [OwnedFd; 2],
    sources: Vec<(PathBuf, Identity)>,
    /// So many commands have had it.
    had: AtomicU32,
    /// Said by a child: something has changed, or it could not make it its own.
    is_unfit: AtomicBool,
}

/// One file or folder, for as long as somebody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Where a plan keeps it.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unused,
    /// Asked for once: a view that is never asked for again is not worth it. So often it was laid out `in_vain`, one after the
    /// other: not even two commands had it.
    Wanted {
        in_vain: u32,
        /// To take one down waits for all processors, as to lay one out does: both are done where nobody else waits.
        old: Option<Arc<Laid>>,
    },
    Laid {
        laid: Arc<Laid>,
        /// What it was taken from is what the plan was drawn from.
        is_confirmed: bool,
        in_vain: u32,
    },
    /// It cannot be had here.
    Refused,
}

/// Somebody may have changed something in between; where that happens every time, or files have no numbers that last, each
/// command has its view laid out for it alone.
const IN_VAIN_MAX: u32 = 8;

impl State {
    fn wanted(in_vain: u32, old: Option<Arc<Laid>>) -> Self {
        if in_vain < IN_VAIN_MAX { Self::Wanted { in_vain, old } } else { Self::Refused }
    }
}

impl Slot {
    /// For one command, from the thread that starts all of them. None: its view is to be laid out for it alone.
    pub(crate) fn get(&self, space: &Space) -> Option<Arc<Laid>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Unused => {
                *state = State::wanted(0, None);
                None
            }
            State::Wanted { in_vain, old } => {
                let in_vain = *in_vain;
                drop(old.take());
                let laid = Laid::out(space).ok().map(Arc::new);
                *state = match laid.clone() {
                    Some(laid) => State::Laid { laid, is_confirmed: false, in_vain },
                    None => State::wanted(in_vain + 1, None),
                };
                laid
            }
            State::Laid { laid, .. } => Some(Arc::clone(laid)),
            State::Refused => None,
        }
    }

    /// It is not what it was, or something else lies at a source: the next command wants it laid out anew.
    pub(crate) fn forget(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Laid { laid, in_vain, .. } = &*state {
            let was_worth_it = laid.had.load(Ordering::Relaxed) > 1;
            *state = State::wanted(if was_worth_it { 0 } else { in_vain + 1 }, Some(Arc::clone(laid)));
        }
    }

    /// Whether what was laid out, if it was, is what now lies at its sources.
    pub(crate) fn is_of(&self, now: impl Fn(&Path) -> Option<Identity>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Laid { laid, is_confirmed, .. } = &mut *state else { return true };
        *is_confirmed = *is_confirmed || laid.sources.iter().all(|(source, taken)| now(source) == Some(*taken));
        *is_confirmed
    }
}

impl Laid {
    /// For a child to enter.
    pub(crate) fn raw(&self) -> i32 {
        self.namespace.as_raw_fd()
    }

    /// For a child to ask whether anything has changed.
    pub(crate) fn raw_mounts(&self) -> [i32; 2] {
        self.mounts.each_ref().map(AsRawFd::as_raw_fd)
    }

    pub(crate) fn say_had(&self) {
        self.had.fetch_add(1, Ordering::Relaxed);
    }

    /// By a child, which must not allocate.
    pub(crate) fn say_unfit(&self) {
        self.is_unfit.store(true, Ordering::Release);
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.is_unfit.load(Ordering::Acquire)
    }

    /// By a thread that is not needed afterwards: nobody else of ours may be in another view of files.
    fn out(space: &Space) -> io::Result<Self> {
        let gone = || io::Error::other("the thread that lays out a view is gone");
        thread::scope(|scope| {
            let made = thread::Builder::new().name("longrein-view".to_owned()).spawn_scoped(scope, || {
                let laid = Self::out_here(space);
                for left in space.drawn.grabs.iter().map(Grab::let_go).filter(|left| *left >= 0) {
                    // SAFETY: taken by this thread, which has the open files of all, and placed nowhere.
                    drop(unsafe { OwnedFd::from_raw_fd(left) });
                }
                laid
            });
            made?.join().map_err(|_| gone())?
        })
    }

    fn out_here(space: &Space) -> io::Result<Self> {
        let ours = high(File::open("/proc/thread-self/mountinfo")?.into())?;
        // SAFETY: of what threads share only the view of files is left, with the working folder; nothing of this thread, which
        // ends here, depends on them.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let this = rustix::fs::open("/proc/thread-self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let namespace = high(open_in(&this, c"ns/mnt")?)?;
        // SAFETY: the namespace is this thread's own; what the calls need is in the plan, and no child is born meanwhile.
        let failed = |_| io::Error::last_os_error();
        unsafe { inside::take_all(space) }.map_err(failed)?;
        let sources = sources(space)?;
        let placed: Vec<bool> = space.drawn.grabs.iter().map(|grab| grab.raw() >= 0).collect();
        // SAFETY: as above.
        unsafe { inside::lay_shared(space) }.map_err(failed)?;
        let root = identity(&rustix::fs::stat("/")?);
        let its = high(open_in(&this, c"mountinfo")?)?;
        // what was taken away up to now is seen here, and from now on there
        for step in &space.drawn.steps {
            let at = match step {
                Laying::Place { grab, at } if placed[*grab] => at,
                Laying::Memory { at, .. } | Laying::Nothing { at } => at,
                Laying::Place { .. }
                | Laying::Folder(_)
                | Laying::File(_)
                | Laying::Link { .. }
                | Laying::Terminals { .. }
                | Laying::Lift { .. }
                | Laying::ReadOnly { .. } => continue,
            };
            if !is_root_of_mount(at)? {
                return Err(io::Error::other("a place was taken away while others were laid out"));
            }
        }
        // as a command does it; where we are in a root folder of our own, it may lead out of that
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        if identity(&rustix::fs::stat("/")?) != root {
            return Err(io::Error::other("who enters the view stands elsewhere"));
        }
        Ok(Self { namespace, mounts: [ours, its], sources, had: AtomicU32::new(0), is_unfit: AtomicBool::new(false) })
    }
}

/// What was taken from where.
fn sources(space: &Space) -> io::Result<Vec<(PathBuf, Identity)>> {
    let taken = space.drawn.grabs.iter().filter(|grab| grab.raw() >= 0);
    taken
        .map(|grab| {
            // SAFETY: it is open: this thread has just taken it, and places it later.
            let copy = unsafe { BorrowedFd::borrow_raw(grab.raw()) };
            let path = PathBuf::from(OsStr::from_bytes(grab.source.to_bytes()));
            Ok((path, identity(&rustix::fs::fstat(copy)?)))
        })
        .collect()
}

fn identity(found: &rustix::fs::Stat) -> Identity {
    Identity { device: found.st_dev, inode: found.st_ino }
}

fn is_root_of_mount(at: &CStr) -> io::Result<bool> {
    let found = rustix::fs::statx(rustix::fs::CWD, at, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn open_in(folder: &OwnedFd, path: &CStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
