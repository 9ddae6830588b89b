//! Going back: doing it.
//!
//! Every change is one step that either happened or did not: the new is made under a temporary name beside its own, synced,
//! and takes its name; where something stands there the two names are exchanged, and the old is moved aside. What leads to a
//! folder is opened anew for each step, following no link. So a process killed anywhere leaves every path as it was left or
//! as it shall be, and perhaps something under a temporary name, which the next try moves aside first.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::compare::Flat;
use super::error::TreesError;
use super::node::{ObjectId, as_path, split, to_path, written};
use super::shelf::{View, copy_hashed, make_folder, sync_folder};
use super::undo::{Identity, Now, Plan, Stage, Step, as_trees, hold, opened, temporary};
use crate::root::{Place, Root};

/// What is about to be done to the disk. A test makes the process die there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Touch {
    Sweep,
    TakeAway,
    RemoveFolder,
    Make,
    Fill,
    Name,
    Exchange,
    MoveAside,
    SetMode,
}

pub(super) type Tap<'a> = &'a mut dyn FnMut(Touch) -> io::Result<()>;

pub(super) struct Hands<'a> {
    pub(super) root: &'a Root,
    pub(super) view: &'a View,
    /// Of this restore; made when something has to go there.
    pub(super) aside: PathBuf,
    pub(super) tap: Tap<'a>,
}

/// How far it got.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) done: Vec<Vec<u8>>,
    /// Folders that hold something no snapshot reached.
    pub(super) kept: Vec<Vec<u8>>,
    pub(super) moved_aside: bool,
    /// Folders of the workspace in which names changed.
    folders: BTreeSet<Vec<u8>>,
}

impl Hands<'_> {
    pub(super) fn apply(&mut self, plan: &Plan, progress: &mut Progress) -> Result<(), TreesError> {
        for path in &plan.touched {
            self.sweep(path, progress)?;
        }
        for step in &plan.steps {
            // closed when it was left: nothing could be changed in it before
            if let (Now::Folder { is }, Some(Flat::Folder { mode })) = (&step.now, &step.to)
                && is.mode & 0o300 != 0o300
                && mode & 0o300 == 0o300
            {
                self.set_mode(&step.path, *mode)?;
            }
        }
        // what goes, from the deepest up
        for step in plan.steps.iter().rev().filter(|step| step.to.is_none()) {
            self.remove(step, progress)?;
        }
        // what comes, from the top down
        for step in &plan.steps {
            match (&step.to, &step.now) {
                (None, _) | (Some(Flat::Folder { .. }), Now::Folder { .. }) => {}
                (Some(to), _) => {
                    self.put(step, to, progress)?;
                    if !matches!(to, Flat::Folder { .. }) {
                        progress.done.push(step.path.clone());
                    }
                }
            }
        }
        for step in plan.steps.iter().rev() {
            if let Some(Flat::Folder { mode }) = &step.to {
                self.set_mode(&step.path, *mode)?;
                progress.done.push(step.path.clone());
            }
        }
        self.sync(progress)
    }

    fn touch(&mut self, touch: Touch, path: &[u8]) -> Result<(), TreesError> {
        (self.tap)(touch).map_err(|error| TreesError::io(as_path(written(path).as_bytes()), error))
    }

    /// Moves aside what an earlier try left beside a path.
    fn sweep(&mut self, path: &[u8], progress: &mut Progress) -> Result<(), TreesError> {
        let Some((above, name)) = split(path) else { return Ok(()) };
        // no folder, nothing in it
        let Ok(folder) = hold(self.root, above) else { return Ok(()) };
        for stage in [Stage::New, Stage::Old] {
            let temporary = temporary(name, stage);
            if rustix::fs::statat(&folder, &temporary, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                self.touch(Touch::Sweep, path)?;
                progress.folders.insert(above.to_vec());
                self.move_aside(&folder, &temporary, path, progress)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, step: &Step, progress: &mut Progress) -> Result<(), TreesError> {
        let (above, name) = split(&step.path).expect("the root is in every tree");
        let folder = hold(self.root, above).map_err(|error| as_trees(&step.path, error))?;
        let failed = |errno| failed(&step.path, errno);
        match &step.now {
            Now::Absent => {}
            Now::Folder { .. } => {
                self.touch(Touch::RemoveFolder, &step.path)?;
                match rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {
                        progress.kept.push(step.path.clone());
                        return Ok(());
                    }
                    Err(errno) => return Err(failed(errno)),
                }
            }
            Now::File { is, .. } | Now::Link { is, .. } => {
                self.take_away(&folder, name, *is, &step.path)?;
                self.move_aside(&folder, &temporary(name, Stage::Old), &step.path, progress)?;
            }
            Now::Strange => return Err(TreesError::Changed(vec![written(&step.path)])),
        }
        progress.folders.insert(above.to_vec());
        progress.done.push(step.path.clone());
        Ok(())
    }

    /// Gives what stands at a path a temporary name, if it still is what was looked at.
    fn take_away(&mut self, folder: &OwnedFd, name: &[u8], was: Identity, path: &[u8]) -> Result<(), TreesError> {
        self.touch(Touch::TakeAway, path)?;
        let old = temporary(name, Stage::Old);
        rename(folder, name, &old).map_err(|errno| failed(path, errno))?;
        if !is_same(folder, &old, was) {
            let _back = rename(folder, &old, name);
            return Err(TreesError::Changed(vec![written(path)]));
        }
        Ok(())
    }

    /// Makes what shall be at a path, and gives it its name.
    fn put(&mut self, step: &Step, to: &Flat, progress: &mut Progress) -> Result<(), TreesError> {
        let path = step.path.as_slice();
        let (above, name) = split(path).expect("the root is a folder in every tree");
        let folder = hold(self.root, above).map_err(|error| as_trees(path, error))?;
        progress.folders.insert(above.to_vec());
        let new = temporary(name, Stage::New);
        self.make(&folder, &new, step, to)?;
        let was = match &step.now {
            Now::Absent => {
                self.touch(Touch::Name, path)?;
                return rename(&folder, &new, name).map_err(|errno| match errno {
                    Errno::EXIST => TreesError::Changed(vec![written(path)]),
                    errno => failed(path, errno),
                });
            }
            Now::File { is, .. } | Now::Link { is, .. } | Now::Folder { is } => *is,
            Now::Strange => return Err(TreesError::Changed(vec![written(path)])),
        };
        let exchanged = match (self.tap)(Touch::Exchange) {
            Ok(()) => rustix::fs::renameat_with(&folder, &new, &folder, name, RenameFlags::EXCHANGE),
            // a test's way to be such a file system
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(Errno::OPNOTSUPP),
            Err(error) => return Err(TreesError::io(as_path(written(path).as_bytes()), error)),
        };
        match exchanged {
            Ok(()) => {
                let is_folder = matches!(step.now, Now::Folder { .. });
                // a folder has changed: what was in it is gone
                if !(is_same(&folder, &new, was) || is_folder && has_inode(&folder, &new, was)) {
                    let _back = rustix::fs::renameat_with(&folder, &new, &folder, name, RenameFlags::EXCHANGE);
                    return Err(TreesError::Changed(vec![written(path)]));
                }
                self.move_aside(&folder, &new, path, progress)
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.replace_in_two_steps(&folder, name, was, step, progress)
            }
            Err(errno) => Err(failed(path, errno)),
        }
    }

    /// For file systems that cannot exchange names. In between nothing has the name; see `Planning::is_on_the_way`.
    fn replace_in_two_steps(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        was: Identity,
        step: &Step,
        progress: &mut Progress,
    ) -> Result<(), TreesError> {
        let (old, new) = (temporary(name, Stage::Old), temporary(name, Stage::New));
        match &step.now {
            Now::Folder { .. } => {
                self.touch(Touch::TakeAway, &step.path)?;
                rename(folder, name, &old).map_err(|errno| failed(&step.path, errno))?;
            }
            Now::Absent | Now::File { .. } | Now::Link { .. } | Now::Strange => {
                self.take_away(folder, name, was, &step.path)?;
            }
        }
        self.touch(Touch::Name, &step.path)?;
        rename(folder, &new, name).map_err(|errno| failed(&step.path, errno))?;
        self.move_aside(folder, &old, &step.path, progress)
    }

    /// Under a temporary name, complete and synced.
    fn make(&mut self, folder: &OwnedFd, new: &[u8], step: &Step, to: &Flat) -> Result<(), TreesError> {
        let path = step.path.as_slice();
        let failed = |errno| failed(path, errno);
        self.touch(Touch::Make, path)?;
        match to {
            Flat::Link { target } => {
                rustix::fs::symlinkat(OsStr::from_bytes(target), folder, new).map_err(failed)?;
            }
            Flat::Folder { mode } => {
                rustix::fs::mkdirat(folder, new, Mode::from_raw_mode(0o700)).map_err(failed)?;
                let made = open_folder(folder, new).map_err(failed)?;
                chmod(&made, opened(*mode)).map_err(failed)?;
            }
            Flat::File { mode, object, .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(folder, new, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
                let mut file = File::from(file);
                self.touch(Touch::Fill, path)?;
                if !self.view.copy(*object, &mut file)? {
                    return Err(TreesError::Damaged(format!("the content of {} is missing", written(path))));
                }
                self.give(&file, folder, &step.now).map_err(failed)?;
                // after the owner: changing that one clears the set-uid bit
                rustix::fs::fchmod(&file, Mode::from_raw_mode(u32::from(*mode))).map_err(failed)?;
                rustix::fs::fsync(&file).map_err(failed)?;
            }
            Flat::Beyond(_) => return Err(TreesError::Changed(vec![written(path)])),
        }
        Ok(())
    }

    /// To whoever owned what stood there, or else the folder. Nobody but root can give files away; others need not.
    fn give(&self, file: &File, folder: &OwnedFd, now: &Now) -> Result<(), Errno> {
        let (owner, group) = match now {
            Now::File { is, .. } | Now::Link { is, .. } => is.owner,
            Now::Absent | Now::Folder { .. } | Now::Strange => {
                let above = rustix::fs::fstat(folder)?;
                (above.st_uid, rustix::fs::fstat(file)?.st_gid)
            }
        };
        let mine = rustix::fs::fstat(file)?;
        if (mine.st_uid, mine.st_gid) != (owner, group) {
            let _if_we_may = rustix::fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
        }
        Ok(())
    }

    /// From a temporary name to where this restore keeps what it found.
    fn move_aside(
        &mut self,
        folder: &OwnedFd,
        from: &[u8],
        path: &[u8],
        progress: &mut Progress,
    ) -> Result<(), TreesError> {
        self.touch(Touch::MoveAside, path)?;
        let failed = |errno| failed(path, errno);
        let stat = rustix::fs::statat(folder, from, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            // what was in it was moved before; if somebody put something there since, it stays, and this fails
            return rustix::fs::unlinkat(folder, from, AtFlags::REMOVEDIR).map_err(failed);
        }
        let to = self.place_aside(path)?;
        progress.moved_aside = true;
        match rustix::fs::renameat_with(folder, from, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if kind == FileType::Symlink {
            let target = rustix::fs::readlinkat(folder, from, Vec::new()).map_err(failed)?;
            symlink(OsStr::from_bytes(target.as_bytes()), &to).map_err(|error| TreesError::io(&to, error))?;
        } else {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(folder, from, flags, Mode::empty()).map_err(failed)?);
            copy_aside(&file, stat.st_mode & 0o777, &to).map_err(|error| TreesError::io(&to, error))?;
        }
        if let Some(folder) = to.parent() {
            sync_folder(folder)?;
        }
        rustix::fs::unlinkat(folder, from, AtFlags::empty()).map_err(failed)
    }

    /// A free name for a path in this restore's folder.
    fn place_aside(&self, path: &[u8]) -> Result<PathBuf, TreesError> {
        let place = self.aside.join(as_path(path));
        let folder = place.parent().unwrap_or(&self.aside);
        if make_folder(folder).is_err() {
            // a file of the same restore has the name of that folder: what was a file before was a folder in between
            let flat = self.aside.join(ObjectId::of(path).hex());
            make_folder(&self.aside)?;
            return Ok(free(flat));
        }
        Ok(free(place))
    }

    fn set_mode(&mut self, path: &[u8], mode: u16) -> Result<(), TreesError> {
        let folder = hold(self.root, path).map_err(|error| as_trees(path, error))?;
        let stat = rustix::fs::fstat(&folder).map_err(|errno| failed(path, errno))?;
        if Identity::of(&stat).mode == mode {
            return Ok(());
        }
        self.touch(Touch::SetMode, path)?;
        chmod(&folder, mode).map_err(|errno| failed(path, errno))
    }

    /// Makes the names durable.
    fn sync(&self, progress: &Progress) -> Result<(), TreesError> {
        if progress.moved_aside {
            sync_below(&self.aside)?;
        }
        for folder in &progress.folders {
            // gone with what was in it, or not to be listed: what can be synced is
            let open = self.root.hold(&Place::Inside(to_path(folder)), OFlags::RDONLY | OFlags::DIRECTORY);
            if let Ok(open) = open {
                rustix::fs::fsync(&open).map_err(|errno| failed(folder, errno))?;
            }
        }
        Ok(())
    }
}

fn failed(path: &[u8], errno: Errno) -> TreesError {
    TreesError::of(as_path(written(path).as_bytes()), errno)
}

/// To a name that nothing has.
fn rename(folder: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        done => return done,
    }
    // no such rename on this file system: a link is as good for what is no folder
    match rustix::fs::linkat(folder, from, folder, to, AtFlags::empty()) {
        Ok(()) => return rustix::fs::unlinkat(folder, from, AtFlags::empty()),
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        Err(_) => {}
    }
    match rustix::fs::statat(folder, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(folder, from, folder, to),
        Ok(_) => Err(Errno::EXIST),
        Err(errno) => Err(errno),
    }
}

fn is_same(folder: &OwnedFd, name: &[u8], was: Identity) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| Identity::of(&stat) == was)
}

fn has_inode(folder: &OwnedFd, name: &[u8], was: Identity) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (was.device, was.inode))
}

fn open_folder(folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Of the very folder that is held, whether or not it may be listed.
fn chmod(folder: &OwnedFd, mode: u16) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::from_raw_mode(u32::from(mode)))
}

fn copy_aside(from: &File, mode: u32, to: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    copy_hashed(from, &mut file, u64::MAX)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_all()
}

fn free(path: PathBuf) -> PathBuf {
    let taken = |path: &Path| path.symlink_metadata().is_ok();
    if !taken(&path) {
        return path;
    }
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("~{number}"));
        PathBuf::from(name)
    };
    (1..).map(numbered).find(|path| !taken(path)).unwrap_or(path)
}

fn sync_below(folder: &Path) -> Result<(), TreesError> {
    for entry in fs::read_dir(folder).map_err(|error| TreesError::io(folder, error))?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_below(&entry.path())?;
        }
    }
    sync_folder(folder)
}
