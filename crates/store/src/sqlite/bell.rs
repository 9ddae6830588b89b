//! How a process that waits hears that another has posted: a file beside the store whose times are set after every post,
//! and that the kernel watches for whoever waits. So waiting takes no looking.
//!
//! A bell may stay silent: its ringer was killed between the post and the ring, or is an older program. So the store is
//! looked at all the same, only seldom. Where the kernel watches nothing for us, [`Bell::is_heard`] says so.

use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::Shared;

#[derive(Debug)]
pub(super) struct Bell {
    path: PathBuf,
    /// The file as it was found last.
    file: Mutex<Option<Arc<File>>>,
    listener: OnceLock<()>,
    is_heard: AtomicBool,
    is_over: AtomicBool,
}

/// Setting the time of the last change is the kernel's `MODIFY`; losing a name is an `ATTRIB`.
const WATCHED: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::ATTRIB).union(WatchFlags::MOVE_SELF);

/// The listener reads events and wakes others, nothing more.
const STACK_BYTES: usize = 128 * 1024;

impl Bell {
    /// The bell of a store. Nothing is made before somebody waits or posts.
    pub(super) fn beside(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push("-bell");
        Self {
            path: PathBuf::from(path),
            file: Mutex::default(),
            listener: OnceLock::new(),
            is_heard: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Tells every process that waits, this one included. Whom it does not reach looks by himself, only later.
    pub(super) fn ring(&self) {
        if let Some(file) = self.file() {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Whether others' posts are heard here. If not, they are found by looking.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::SeqCst)
    }

    /// Wakes everybody who waits at every ring from now on. The first call begins it.
    pub(super) fn listen(shared: &Arc<Shared>) {
        let bell = &shared.bell;
        bell.listener.get_or_init(|| {
            let Some(watch) = bell.watch() else { return };
            let listening = Arc::downgrade(shared);
            let listener = std::thread::Builder::new().name("store-bell".to_owned()).stack_size(STACK_BYTES);
            bell.is_heard.store(true, Ordering::SeqCst);
            if listener.spawn(move || hear(watch, &listening)).is_err() {
                bell.is_heard.store(false, Ordering::SeqCst);
            }
        });
    }

    /// Ends the listener.
    pub(super) fn hang_up(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if self.is_heard() {
            self.ring();
        }
    }

    /// The file that others ring, too: if it was taken away, a new one.
    fn file(&self) -> Option<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().is_none_or(|file| !self.is_in_place(file)) {
            let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path);
            *file = opened.ok().map(Arc::new);
        }
        file.clone()
    }

    fn is_in_place(&self, file: &File) -> bool {
        let here = file.metadata().ok().map(|here| (here.dev(), here.ino()));
        let there = self.path.symlink_metadata().ok().map(|there| (there.dev(), there.ino()));
        here.is_some() && here == there
    }

    fn watch(&self) -> Option<Watch> {
        let file = self.file()?;
        let events = inotify::init(CreateFlags::CLOEXEC).ok()?;
        inotify::add_watch(&events, &self.path, WATCHED).ok()?;
        self.is_in_place(&file).then_some(Watch { file, events })
    }
}

/// What the kernel watches. The file is kept open: taking away its name is an event then, too.
struct Watch {
    file: Arc<File>,
    events: OwnedFd,
}

/// A bell that was taken away so often is not hung up again.
const LOST_MAX: usize = 100;

/// What the listener does, until there is no store to listen for or nothing to be heard.
fn hear(mut watch: Watch, listening: &Weak<Shared>) {
    for _ in 0..LOST_MAX {
        let Watch { file, events } = watch;
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(events, &mut buffer);
        loop {
            let event = events.next().map(drop);
            let Some(shared) = listening.upgrade() else { return };
            if shared.bell.is_over.load(Ordering::SeqCst) {
                return;
            }
            shared.wakeups.wake_all();
            let is_broken = event.is_err_and(|error| error != Errno::INTR);
            if is_broken || !shared.bell.is_in_place(&file) {
                break;
            }
        }
        let Some(shared) = listening.upgrade() else { return };
        let Some(anew) = shared.bell.watch() else { break };
        watch = anew;
        // whoever rang meanwhile was not heard
        shared.wakeups.wake_all();
        if shared.bell.is_over.load(Ordering::SeqCst) {
            return;
        }
    }
    if let Some(shared) = listening.upgrade() {
        shared.bell.is_heard.store(false, Ordering::SeqCst);
    }
}
