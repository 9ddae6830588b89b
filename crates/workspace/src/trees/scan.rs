//! The walk over a workspace: what is there, each folder once, nothing followed.
//!
//! Two threads take folders off one stack. Every name is looked at through the handle of the folder it is in; a file is
//! opened and read only where the cache does not know it. When all folders are seen, their objects are made from the
//! deepest up.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::cache::{Cache, CacheWriter, Known, Stamp, Stored, mode};
use super::error::TreesError;
use super::node::{Entry, Folder, LeftOut, Node, ObjectId, as_path, below, written};
use super::rules::{Globs, IGNORE_FILE, IGNORE_FILE_MAX_BYTES, Kind, Rules};
use super::shelf::{LARGE_BYTES, View, Writer, copy_hashed};
use super::undo::is_temporary;

/// One more would rarely help: the walk waits for the kernel's locks, and a run has other work.
const THREADS: usize = 2;
/// Deeper folders are left out, and named. Paths of that depth still have a length that fits 16 bits.
const DEPTH_MAX: usize = 200;
/// A file that is written to while it is read is read so often, then taken as it was found.
const READS_MAX: usize = 4;

/// All that a scan goes by.
pub(super) struct Scan<'a, 'w> {
    pub(super) folder: &'a OwnedFd,
    pub(super) device: u64,
    pub(super) rules: Arc<Rules>,
    pub(super) include: &'a Globs,
    pub(super) file_max_bytes: u64,
    pub(super) entries_max: u64,
    pub(super) cache: &'a Cache,
    pub(super) view: &'a View,
    /// Where content is kept; None: it is only hashed.
    pub(super) keeper: Option<&'a Mutex<Writer<'w>>>,
}

/// What was found.
pub(super) struct Scanned {
    pub(super) root: ObjectId,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Sorted by path.
    pub(super) left_out: Vec<(Vec<u8>, LeftOut)>,
    folders: Vec<Seen>,
    started: SystemTime,
    device: u64,
    /// Whether the cache says all of this already.
    pub(super) is_cached: bool,
}

struct Seen {
    path: Vec<u8>,
    mode: u16,
    entries: Vec<SeenEntry>,
    /// Set when all that is below is known.
    object: Option<(ObjectId, Stored)>,
    /// Whether the cache knew all its entries, and no others.
    is_cached: bool,
    kept: Kept,
}

/// Why a folder is part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    ForItself,
    /// It is ignored, and something that is included may lie in it: without that, it is no part.
    ForWhatItHolds,
}

impl Seen {
    /// Once all that is below is known.
    fn is_no_part(&self) -> bool {
        match self.kept {
            Kept::ForItself => false,
            Kept::ForWhatItHolds => self.entries.is_empty(),
        }
    }
}

struct SeenEntry {
    name: Vec<u8>,
    what: What,
}

enum What {
    File { mode: u16, size: u64, known: Known, object: ObjectId },
    Link { target: Vec<u8> },
    Folder { number: usize },
    Beyond(LeftOut),
}

/// What a folder turned out to be when it was its turn.
enum Outcome {
    Seen(Seen),
    Closed(LeftOut),
    Gone,
}

impl Outcome {
    fn is_no_part(&self) -> bool {
        match self {
            Self::Seen(seen) => seen.is_no_part(),
            Self::Closed(_) | Self::Gone => false,
        }
    }
}

struct Task {
    number: usize,
    parent: Arc<OwnedFd>,
    name: CString,
    path: Vec<u8>,
    depth: usize,
    rules: Arc<Rules>,
    reach: Reach,
    kept: Kept,
}

/// What counts in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// What no rule leaves out.
    Ruled,
    /// The folder itself is ignored: only what was known before, or is included by name.
    Known,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tasks: Vec<Task>,
    busy: usize,
    numbers: usize,
    failed: Option<TreesError>,
}

/// Counts a thread as busy, whatever way it leaves.
struct Busy<'a>(&'a Queue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: there is nothing more to do.
    fn next(&self) -> Option<(Task, Busy<'_>)> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(task) = state.tasks.pop() {
                state.busy += 1;
                return Some((task, Busy(self)));
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Scan<'_, '_> {
    pub(super) fn run(&self) -> Result<Scanned, TreesError> {
        let started = SystemTime::now();
        let parent = self.folder.try_clone().map_err(|error| TreesError::io(Path::new("."), error))?;
        let first = Task {
            number: 0,
            parent: Arc::new(parent),
            name: c".".to_owned(),
            path: Vec::new(),
            depth: 0,
            rules: self.rules.clone(),
            reach: Reach::Ruled,
            kept: Kept::ForItself,
        };
        let state = State { tasks: vec![first], busy: 0, numbers: 1, failed: None };
        let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
        let entries = AtomicU64::new(0);
        let mut found: Vec<(usize, Outcome)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.work(&queue, &entries))).collect();
            let outcomes = threads.into_iter().map(|thread| thread.join());
            // a panic of a thread is ours
            outcomes.flat_map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        if let Some(error) = queue.lock().failed.take() {
            return Err(error);
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        self.finish(found.into_iter().map(|(_, outcome)| outcome).collect(), started)
    }

    fn work(&self, queue: &Queue, entries: &AtomicU64) -> Vec<(usize, Outcome)> {
        let mut worker = Worker { scan: self, buffer: Vec::new(), names: Vec::with_capacity(1 << 16) };
        let mut outcomes = Vec::new();
        while let Some((task, _busy)) = queue.next() {
            let mut below = Vec::new();
            match worker.folder(&task, &mut below) {
                Ok(outcome) => {
                    let mut outcome = outcome;
                    if let Outcome::Seen(seen) = &mut outcome {
                        let count = seen.entries.len() as u64;
                        if entries.fetch_add(count, Ordering::Relaxed) + count > self.entries_max {
                            queue.lock().failed = Some(self.too_many());
                            break;
                        }
                        self.enqueue(queue, seen, below);
                    }
                    outcomes.push((task.number, outcome));
                }
                Err(error) => {
                    queue.lock().failed.get_or_insert(error);
                    break;
                }
            }
        }
        outcomes
    }

    fn too_many(&self) -> TreesError {
        TreesError::TooLarge(format!(
            "the workspace has more than {} files and folders; choose a smaller one, or name what needs no snapshot in \
             .gitignore",
            self.entries_max
        ))
    }

    /// Numbers the folders that were found in one, and leaves them to whoever is free.
    fn enqueue(&self, queue: &Queue, seen: &mut Seen, mut tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let mut state = queue.lock();
        let first = state.numbers;
        state.numbers += tasks.len();
        for (at, task) in tasks.iter_mut().enumerate() {
            task.number = first + at;
        }
        for entry in &mut seen.entries {
            if let What::Folder { number } = &mut entry.what {
                *number += first;
            }
        }
        state.tasks.extend(tasks);
        drop(state);
        queue.changed.notify_all();
    }

    /// Makes the folders' objects. A folder has a higher number than the one it is in.
    fn finish(&self, mut outcomes: Vec<Outcome>, started: SystemTime) -> Result<Scanned, TreesError> {
        let (mut files, mut bytes, mut left_out) = (0, 0, Vec::new());
        let trusted = self.trusts_cache();
        let mut is_cached = true;
        for number in (0..outcomes.len()).rev() {
            let (head, done) = outcomes.split_at_mut(number + 1);
            let Outcome::Seen(seen) = &mut head[number] else { continue };
            let mut folder = Folder { mode: seen.mode, entries: Vec::with_capacity(seen.entries.len()) };
            seen.entries.retain(|entry| match entry.what {
                What::Folder { number: below } => !done[below - number - 1].is_no_part(),
                What::File { .. } | What::Link { .. } | What::Beyond(_) => true,
            });
            if seen.is_no_part() {
                continue;
            }
            for SeenEntry { name, what } in &seen.entries {
                let node = match what {
                    What::File { mode, size, object, .. } => {
                        files += 1;
                        bytes += size;
                        Node::File { mode: *mode, size: *size, object: *object }
                    }
                    What::Link { target } => Node::Link { target: target.clone() },
                    What::Beyond(why) => Node::Beyond(*why),
                    What::Folder { number: below } => match &done[below - number - 1] {
                        Outcome::Seen(below) => {
                            let (object, _) = below.object.expect("it has a higher number, so it was made before");
                            Node::Folder { object }
                        }
                        Outcome::Closed(why) => Node::Beyond(*why),
                        Outcome::Gone => continue,
                    },
                };
                if let Node::Beyond(why) = node {
                    left_out.push((below(&seen.path, name), why));
                }
                folder.entries.push(Entry { name: name.clone(), node });
            }
            let encoded = folder.encode();
            let object = ObjectId::of(&encoded);
            let known = self.cache.folder(&seen.path).filter(|known| known.object == object);
            let mut stored = match known {
                Some(known) if trusted => known.stored,
                Some(_) | None => Stored::No,
            };
            if let (Some(keeper), Stored::No) = (self.keeper, stored) {
                locked(keeper).put(object, &encoded)?;
                stored = Stored::Yes;
            }
            is_cached &= seen.is_cached && known.is_some_and(|known| known.stored == stored);
            seen.object = Some((object, stored));
        }
        let folders: Vec<Seen> = outcomes
            .into_iter()
            .filter_map(|outcome| match outcome {
                Outcome::Seen(seen) if seen.is_no_part() => None,
                Outcome::Seen(seen) => Some(seen),
                Outcome::Closed(_) | Outcome::Gone => None,
            })
            .collect();
        let gone = || TreesError::of(Path::new("the workspace"), Errno::NOENT);
        let (root, _) = folders.first().and_then(|root| root.object).ok_or_else(gone)?;
        left_out.sort();
        is_cached &= trusted && folders.len() == self.cache.len();
        Ok(Scanned { root, files, bytes, left_out, folders, started, device: self.device, is_cached })
    }

    /// Whether what the cache calls stored still is: packs go when they are merged, or by hand.
    fn trusts_cache(&self) -> bool {
        self.cache.packs.iter().all(|name| self.view.packs.iter().any(|pack| pack.name == *name))
    }
}

impl Scanned {
    /// The cache of what was found. `packs`: all there are, the new one too.
    pub(super) fn cache(&self, packs: &[String]) -> Vec<u8> {
        let mut writer = CacheWriter::new(self.device, packs, self.started);
        for folder in &self.folders {
            let (object, stored) = folder.object.expect("the scan is finished");
            writer.folder(&folder.path, object, stored);
            for SeenEntry { name, what } in &folder.entries {
                match what {
                    What::File { known, .. } => writer.entry(name, known),
                    What::Link { .. } => writer.entry(name, &Known::Link),
                    What::Folder { .. } => writer.entry(name, &Known::Folder),
                    What::Beyond(_) => {}
                }
            }
        }
        writer.finish()
    }
}

fn locked<'a, 'b>(keeper: &'a Mutex<Writer<'b>>) -> MutexGuard<'a, Writer<'b>> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's part of a scan.
struct Worker<'s, 'a, 'w> {
    scan: &'s Scan<'a, 'w>,
    /// Of the file that is read.
    buffer: Vec<u8>,
    /// Of the kernel's lists of names.
    names: Vec<u8>,
}

impl Worker<'_, '_, '_> {
    fn folder(&mut self, task: &Task, tasks: &mut Vec<Task>) -> Result<Outcome, TreesError> {
        let failed = |errno| TreesError::of(as_path(written(&task.path).as_bytes()), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::openat(&*task.parent, &task.name, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::ACCESS | Errno::PERM) if task.depth > 0 => return Ok(Outcome::Closed(LeftOut::Unreadable)),
            // it was replaced meanwhile
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if task.depth > 0 => return Ok(Outcome::Gone),
            Err(errno) => return Err(failed(errno)),
        };
        let stat = rustix::fs::fstat(&folder).map_err(failed)?;
        if task.depth > 0 && (stat.st_dev != self.scan.device || is_mount(&folder)) {
            return Ok(Outcome::Closed(LeftOut::Mount));
        }
        if task.depth > DEPTH_MAX {
            return Ok(Outcome::Closed(LeftOut::TooDeep));
        }
        let names = match self.list(&folder) {
            Ok(names) => names,
            Err(Errno::ACCESS | Errno::PERM) if task.depth > 0 => return Ok(Outcome::Closed(LeftOut::Unreadable)),
            Err(errno) => return Err(failed(errno)),
        };
        let rules = self.rules(task, &folder, &names);
        let mut seen = Seen {
            path: task.path.clone(),
            mode: mode(&stat),
            entries: Vec::new(),
            object: None,
            is_cached: true,
            kept: task.kept,
        };
        let cached = self.scan.cache.folder(&task.path);
        seen.is_cached = cached.is_some();
        let mut cached = cached.into_iter().flatten().peekable();
        let folder = Arc::new(folder);
        for (name, kind) in names {
            while cached.next_if(|(known, _)| *known < name.as_slice()).is_some() {
                // it is gone
                seen.is_cached = false;
            }
            let known = cached.next_if(|(known, _)| *known == name.as_slice()).map(|(_, known)| known);
            let kind = if kind == FileType::Unknown { self.kind(&folder, &name).unwrap_or(kind) } else { kind };
            let reach = if known.is_some() { task.reach } else { self.reach(task, &rules, &name, kind) };
            let is_out = known.is_none() && reach == Reach::Known && !self.is_included(task, &name, kind);
            if is_out {
                continue;
            }
            let is_led_into =
                known.is_none() && reach == Reach::Known && !self.scan.include.take(&below(&task.path, &name));
            let what = if kind == FileType::Directory {
                tasks.push(Task {
                    number: 0,
                    parent: folder.clone(),
                    name: CString::new(name.as_slice()).expect("the kernel's names end at a NUL"),
                    path: below(&task.path, &name),
                    depth: task.depth + 1,
                    rules: rules.clone(),
                    reach: self.reach(task, &rules, &name, kind),
                    kept: if is_led_into { Kept::ForWhatItHolds } else { Kept::ForItself },
                });
                // counted from the first of this folder until they are numbered
                Some(What::Folder { number: tasks.len() - 1 })
            } else {
                let at = At { folder: &folder, path: &task.path, name: &name };
                self.look(&at, known)?
            };
            let Some(what) = what else {
                seen.is_cached &= known.is_none();
                continue;
            };
            seen.is_cached &= match (&what, &known) {
                (What::File { known: new, .. }, Some(old)) => new == old,
                (What::Folder { .. }, Some(Known::Folder)) | (What::Link { .. }, Some(Known::Link)) => true,
                (What::Beyond(_), None) => true,
                // if it holds something, this folder's object says so
                (What::Folder { .. }, None) if is_led_into => true,
                (What::File { .. } | What::Folder { .. } | What::Link { .. } | What::Beyond(_), _) => false,
            };
            seen.entries.push(SeenEntry { name, what });
        }
        seen.is_cached &= cached.next().is_none();
        Ok(Outcome::Seen(seen))
    }

    /// Sorted by name, without what is never part of a snapshot.
    fn list(&mut self, folder: &OwnedFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
        let mut names = Vec::new();
        self.names.clear();
        let mut entries = RawDir::new(folder, self.names.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && name != b".git" && !is_temporary(name) {
                names.push((name.to_vec(), entry.file_type()));
            }
        }
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    fn kind(&self, folder: &OwnedFd, name: &[u8]) -> Option<FileType> {
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    fn rules(&self, task: &Task, folder: &OwnedFd, names: &[(Vec<u8>, FileType)]) -> Arc<Rules> {
        let at = names.binary_search_by(|(name, _)| name.as_slice().cmp(IGNORE_FILE));
        if !at.is_ok_and(|at| names[at].1 == FileType::RegularFile) {
            return task.rules.clone();
        }
        let text = open(folder, IGNORE_FILE).ok().and_then(|file| {
            let mut text = Vec::new();
            copy_hashed(&file, &mut text, IGNORE_FILE_MAX_BYTES).ok().flatten()?;
            Some(text)
        });
        text.map_or_else(|| task.rules.clone(), |text| task.rules.with(&task.path, &text))
    }

    /// What counts of, and in, something by the rules.
    fn reach(&self, task: &Task, rules: &Rules, name: &[u8], kind: FileType) -> Reach {
        if task.reach == Reach::Known {
            return Reach::Known;
        }
        let is_rules = kind == FileType::RegularFile && name == IGNORE_FILE;
        let kind = if kind == FileType::Directory { Kind::Folder } else { Kind::Other };
        if !is_rules && rules.ignore(&below(&task.path, name), kind) { Reach::Known } else { Reach::Ruled }
    }

    fn is_included(&self, task: &Task, name: &[u8], kind: FileType) -> bool {
        let path = below(&task.path, name);
        self.scan.include.take(&path) || (kind == FileType::Directory && self.scan.include.lead_into(&path))
    }

    /// What is no folder. None: it is gone.
    fn look(&mut self, at: &At<'_>, known: Option<Known>) -> Result<Option<What>, TreesError> {
        for _ in 0..READS_MAX {
            let stat = match rustix::fs::statat(at.folder, at.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::ACCESS | Errno::PERM) => return Ok(Some(What::Beyond(LeftOut::Unreadable))),
                Err(errno) => return Err(at.failed(errno)),
            };
            if stat.st_dev != self.scan.device {
                return Ok(Some(What::Beyond(LeftOut::Mount)));
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => match self.file(at, &stat, known)? {
                    Tried::Is(what) => return Ok(Some(what)),
                    Tried::Moved => {}
                },
                FileType::Symlink => match rustix::fs::readlinkat(at.folder, at.name, Vec::new()) {
                    Ok(target) => return Ok(Some(What::Link { target: target.into_bytes() })),
                    Err(Errno::NOENT) => return Ok(None),
                    Err(Errno::INVAL) => {}
                    Err(errno) => return Err(at.failed(errno)),
                },
                // it became one meanwhile; the next snapshot will see it
                FileType::Directory => return Ok(None),
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Ok(Some(What::Beyond(LeftOut::Special))),
            }
        }
        // whoever replaces it this fast is not done
        Ok(Some(What::Beyond(LeftOut::Unreadable)))
    }

    fn file(&mut self, at: &At<'_>, stat: &Stat, known: Option<Known>) -> Result<Tried, TreesError> {
        let stamp = Stamp::of(stat);
        if stamp.size > self.scan.file_max_bytes {
            return Ok(Tried::Is(What::Beyond(LeftOut::TooLarge)));
        }
        if let Some(Known::File { object, stored, stamp: Some(before) }) = known
            && before == stamp
        {
            let stored = self.still_stored(object, stamp.size, stored)?;
            if stored == Stored::Yes || self.scan.keeper.is_none() {
                let known = Known::File { object, stored, stamp: Some(stamp) };
                return Ok(Tried::Is(What::File { mode: stamp.mode, size: stamp.size, known, object }));
            }
        }
        let file = match open(at.folder, at.name) {
            Ok(file) => file,
            Err(Errno::ACCESS | Errno::PERM | Errno::IO | Errno::TXTBSY | Errno::NXIO) => {
                return Ok(Tried::Is(What::Beyond(LeftOut::Unreadable)));
            }
            Err(Errno::NOENT | Errno::LOOP) => return Ok(Tried::Moved),
            Err(errno) => return Err(at.failed(errno)),
        };
        self.read(at, &file)
    }

    /// Reads a file until what was read is what it holds.
    fn read(&mut self, at: &At<'_>, file: &File) -> Result<Tried, TreesError> {
        let stat = || rustix::fs::fstat(file).map_err(|errno| at.failed(errno));
        let mut before = stat()?;
        for tries in 1.. {
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                return Ok(Tried::Moved);
            }
            let stamp = Stamp::of(&before);
            let content = if stamp.size < LARGE_BYTES { self.read_small(file) } else { self.read_large(at, file) };
            let (object, size) = match content {
                Ok(Some(content)) => content,
                Ok(None) => return Ok(Tried::Is(What::Beyond(LeftOut::TooLarge))),
                Err(TreesError::Io { .. }) if file.metadata().is_ok() && !self.can_read(file) => {
                    return Ok(Tried::Is(What::Beyond(LeftOut::Unreadable)));
                }
                Err(error) => return Err(error),
            };
            let after = stat()?;
            let is_still = Stamp::of(&after) == stamp && size == stamp.size;
            if is_still || tries == READS_MAX {
                let stored = if self.scan.keeper.is_some() { Stored::Yes } else { Stored::No };
                let known = Known::File { object, stored, stamp: is_still.then_some(stamp) };
                return Ok(Tried::Is(What::File { mode: stamp.mode, size, known, object }));
            }
            before = after;
        }
        unreachable!("the last try returns")
    }

    /// None: it is over the limit.
    fn read_small(&mut self, file: &File) -> Result<Option<(ObjectId, u64)>, TreesError> {
        self.buffer.clear();
        // one more byte than expected, so that an unchanged file ends with the first read that brings nothing
        let mut filled = 0;
        loop {
            if self.buffer.len() < filled + (1 << 14) {
                self.buffer.resize((filled + (1 << 14)).max(self.buffer.capacity()), 0);
            }
            let count = rustix::io::pread(file, &mut self.buffer[filled..], filled as u64);
            match count {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(TreesError::of(Path::new("a file"), errno)),
            }
            if filled as u64 > self.scan.file_max_bytes {
                return Ok(None);
            }
        }
        let content = &self.buffer[..filled];
        let object = ObjectId::of(content);
        if let Some(keeper) = self.scan.keeper {
            locked(keeper).put(object, content)?;
        }
        Ok(Some((object, filled as u64)))
    }

    /// Read once to learn its name, and a second time only where the shelf has no such object.
    fn read_large(&mut self, at: &At<'_>, file: &File) -> Result<Option<(ObjectId, u64)>, TreesError> {
        let max = self.scan.file_max_bytes;
        let failed = |error| TreesError::io(as_path(&below(at.path, at.name)), error);
        let Some((object, size)) = copy_hashed(file, &mut std::io::sink(), max).map_err(failed)? else {
            return Ok(None);
        };
        match self.scan.keeper {
            Some(keeper) if !locked(keeper).has(object)? => locked(keeper).put_large(file, max),
            Some(_) | None => Ok(Some((object, size))),
        }
    }

    /// Some files can be opened and not read: broken disks, files of strange file systems.
    fn can_read(&self, file: &File) -> bool {
        rustix::io::pread(file, &mut [0], 0).is_ok()
    }

    fn still_stored(&self, object: ObjectId, size: u64, stored: Stored) -> Result<Stored, TreesError> {
        let yes = |is: bool| if is { Stored::Yes } else { Stored::No };
        Ok(match self.scan.keeper {
            _ if size >= LARGE_BYTES => yes(self.scan.view.large.contains_key(&object)),
            _ if self.scan.trusts_cache() => stored,
            Some(keeper) => yes(locked(keeper).has(object)?),
            None => Stored::No,
        })
    }
}

enum Tried {
    Is(What),
    /// Something else has its name by now.
    Moved,
}

/// A name in a folder.
struct At<'a> {
    folder: &'a OwnedFd,
    path: &'a [u8],
    name: &'a [u8],
}

impl At<'_> {
    fn failed(&self, errno: Errno) -> TreesError {
        TreesError::of(as_path(written(&below(self.path, self.name)).as_bytes()), errno)
    }
}

/// Waits for nothing, follows nothing.
fn open(folder: &OwnedFd, name: &[u8]) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// A part of the same file system may be mounted, too.
fn is_mount(folder: &OwnedFd) -> bool {
    let statx = rustix::fs::statx(folder.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    statx.is_ok_and(|statx| {
        statx.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// The name of a root in a store.
pub(super) fn key(root: &Path) -> String {
    ObjectId::of(root.as_os_str().as_bytes()).hex()[..32].to_owned()
}
