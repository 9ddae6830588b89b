//! Writing a file as a whole, or not at all.
//!
//! The new content goes to a file of its own in the same folder, is synced, and takes the name of the old one in one step.
//! So a reader sees the old or the new content, a crash leaves one of the two, and a file with several names (hard links)
//! is left as it is under its other names: what lies behind those may be outside the workspace. A link that the path led
//! through stays a link, since a [`Place`] names what it leads to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicU64, Ordering};

use longrein_core::ids::Digest;
use rustix::fs::{Access, AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use crate::error::Error;
use crate::read::digest;
use crate::root::{MissingFolders, Place, Root, Within, regular};

/// What a file must be like to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// There is none; folders on the way may be missing too.
    Absent,
    /// It has this content.
    Content(Digest),
}

/// Whose file it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Ours, if it is new; else whose it was.
    AsBefore,
    /// It was another's, and we may not give files away: it is ours, without set-uid and set-gid bits.
    Ours,
}

/// A file that was written, read back and found right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub digest: Digest,
    pub owner: Owner,
    /// Other names (hard links) under which the old content remains.
    pub other_names: u64,
}

const TEMPORARY: &str = ".longrein-";

impl Root {
    /// Gives a file new content, or makes it. Fails with [`Error::Changed`], writing nothing, if it is not as `before` says.
    pub fn replace(&self, place: &Place, before: &Before, content: &[u8]) -> Result<Written, Error> {
        let missing = match before {
            Before::Absent => MissingFolders::Make,
            Before::Content(_) => MissingFolders::Refuse,
        };
        let Within { folder, name } = self.within(place, missing)?;
        let failed = |errno| Error::of(errno, place.to_string());
        let old = as_before(&folder, name, place, before)?;
        let mode = match &old {
            None => Mode::from_raw_mode(0o666),
            Some(_) => Mode::from_raw_mode(0o600),
        };
        let temporary = Temporary::create(&folder, name, mode).map_err(failed)?;
        let mut file = &temporary.file;
        file.write_all(content).map_err(|error| Error::io(error, place.to_string()))?;
        let owner = match &old {
            None => Owner::AsBefore,
            Some(stat) => dress(file.as_fd(), stat).map_err(failed)?,
        };
        rustix::fs::fsync(file).map_err(failed)?;
        if let Some(old) = &old
            && !is_still(&folder, name, old)
        {
            return Err(Error::Changed { path: place.to_string() });
        }
        temporary.take_name(name, before).map_err(|errno| match errno {
            Errno::EXIST => Error::Changed { path: place.to_string() },
            errno => failed(errno),
        })?;
        rustix::fs::fsync(&folder).map_err(failed)?;
        let digest = read_back(&folder, name, place, content)?;
        let other_names = old.map_or(0, |old| old.st_nlink.saturating_sub(1));
        Ok(Written { digest, owner, other_names })
    }

    /// Removes what a writer that was killed left beside a file.
    pub fn sweep(&self, place: &Place) -> Result<(), Error> {
        match self.within(place, MissingFolders::Refuse) {
            Ok(Within { folder, name }) => {
                sweep(&folder, name);
                Ok(())
            }
            Err(Error::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Its state, if it is there; an error if it is not as it should be.
fn as_before(folder: &OwnedFd, name: &OsStr, place: &Place, before: &Before) -> Result<Option<Stat>, Error> {
    let changed = || Error::Changed { path: place.to_string() };
    let Before::Content(expected) = before else {
        return match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::of(errno, place.to_string())),
            Ok(_) => Err(changed()),
        };
    };
    match rustix::fs::accessat(folder, name, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Err(changed()),
        Err(Errno::ACCESS | Errno::ROFS) => return Err(Error::ReadOnly { path: place.to_string() }),
        Err(errno) => return Err(Error::of(errno, place.to_string())),
    }
    let mut file = open_named(folder, name, place)?;
    let stat = regular(file.as_fd(), place)?;
    // Root may write what nobody may; whoever took the permission away meant something by it.
    if stat.st_mode & 0o222 == 0 {
        return Err(Error::ReadOnly { path: place.to_string() });
    }
    if digest(&mut file, place)? != *expected {
        return Err(changed());
    }
    Ok(Some(stat))
}

/// Whether the name still stands for the file that was read, and nobody wrote to it since.
fn is_still(folder: &OwnedFd, name: &OsStr, old: &Stat) -> bool {
    let stamp = |stat: &Stat| {
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
    };
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|now| stamp(&now) == stamp(old))
}

/// Owner, mode and what else belongs to the old file and not to its content.
fn dress(file: BorrowedFd<'_>, old: &Stat) -> Result<Owner, Errno> {
    let new = rustix::fs::fstat(file)?;
    let same = (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid);
    let given =
        same || rustix::fs::fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid))).is_ok();
    // after the owner: changing that one clears the set-uid bit
    let kept = if given { 0o7777 } else { 0o777 };
    rustix::fs::fchmod(file, Mode::from_raw_mode(old.st_mode & kept))?;
    Ok(if given { Owner::AsBefore } else { Owner::Ours })
}

fn open_named(folder: &OwnedFd, name: &OsStr, place: &Place) -> Result<File, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(Errno::LOOP) => Err(Error::Moved { path: place.to_string() }),
        Err(errno) => Err(Error::of(errno, place.to_string())),
    }
}

/// A write is done when the file says so.
fn read_back(folder: &OwnedFd, name: &OsStr, place: &Place, content: &[u8]) -> Result<Digest, Error> {
    let mut file = open_named(folder, name, place)?;
    regular(file.as_fd(), place)?;
    let digest = digest(&mut file, place)?;
    if digest == Digest::of(content) { Ok(digest) } else { Err(Error::NotWritten { path: place.to_string() }) }
}

/// A file under a name of its own, until it takes another's. It is locked by us as long as we live, which tells it apart
/// from one whose writer was killed.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: OsString,
    file: File,
}

impl<'a> Temporary<'a> {
    fn create(folder: &'a OwnedFd, target: &OsStr, mode: Mode) -> Result<Self, Errno> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut name = prefix(target);
        name.push(format!("{}-{count}.tmp", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(folder, &name, flags, mode) {
            Err(Errno::EXIST) => {
                // left by a process that had our number
                sweep(folder, target);
                rustix::fs::openat(folder, &name, flags, mode)?
            }
            opened => opened?,
        };
        let file = File::from(file);
        let temporary = Self { folder, name, file };
        match rustix::fs::flock(&temporary.file, FlockOperation::NonBlockingLockExclusive) {
            // a file system without locks: nothing will be swept there either
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(temporary),
            Err(errno) => Err(errno),
        }
    }

    /// Where nothing may be there before, a name that was taken meanwhile stays as it is.
    fn take_name(&self, target: &OsStr, before: &Before) -> Result<(), Errno> {
        match before {
            Before::Content(_) => rustix::fs::renameat(self.folder, &self.name, self.folder, target),
            Before::Absent => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(self.folder, &self.name, self.folder, target, flags) {
                    Err(Errno::INVAL | Errno::NOSYS) => self.link(target),
                    done => done,
                }
            }
        }
    }

    /// As a rename that replaces nothing, for file systems (NFS) that have none. The old name goes when this is dropped.
    fn link(&self, target: &OsStr) -> Result<(), Errno> {
        rustix::fs::linkat(self.folder, &self.name, self.folder, target, AtFlags::empty())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // it has no such name any more if all went well
        let _absent = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
    }
}

/// Of all temporary files for one target.
fn prefix(target: &OsStr) -> OsString {
    let digest = Digest::of(target.as_bytes());
    OsString::from(format!("{TEMPORARY}{}-", &digest.as_str()[..16]))
}

/// Removes temporary files for a target whose writer is gone. What cannot be removed does not keep anyone from writing.
fn sweep(folder: &OwnedFd, target: &OsStr) {
    let prefix = prefix(target);
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if !name.starts_with(prefix.as_bytes()) {
            continue;
        }
        let name = OsString::from_vec(name.to_vec());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(left) = rustix::fs::openat(folder, &name, flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _gone = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_stays_where_no_rename_can_tell() {
        let dir = tempfile::tempdir().unwrap();
        let folder: OwnedFd = File::open(dir.path()).unwrap().into();
        let target = OsStr::new("a.txt");
        let first = Temporary::create(&folder, target, Mode::from_raw_mode(0o600)).unwrap();
        (&first.file).write_all(b"first").unwrap();
        first.link(target).unwrap();
        drop(first);
        let second = Temporary::create(&folder, target, Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(second.link(target), Err(Errno::EXIST));
        drop(second);
        assert_eq!(std::fs::read(dir.path().join("a.txt")).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_write_that_did_not_happen_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let folder: OwnedFd = File::open(dir.path()).unwrap().into();
        let place = Place::Inside("a.txt".into());
        std::fs::write(dir.path().join("a.txt"), b"old").unwrap();
        let read_back = |content: &[u8]| read_back(&folder, OsStr::new("a.txt"), &place, content);
        assert!(matches!(read_back(b"new"), Err(Error::NotWritten { .. })));
        assert_eq!(read_back(b"old").unwrap(), Digest::of(b"old"));
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_a_living_ones_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder: OwnedFd = File::open(dir.path()).unwrap().into();
        let target = OsStr::new("a.txt");
        let living = Temporary::create(&folder, target, Mode::from_raw_mode(0o600)).unwrap();
        let mut dead = prefix(target);
        dead.push("1-1.tmp");
        let mut others = prefix(OsStr::new("b.txt"));
        others.push("1-1.tmp");
        for name in [&dead, &others] {
            std::fs::write(dir.path().join(name), b"half").unwrap();
        }
        sweep(&folder, target);
        assert!(!dir.path().join(&dead).exists());
        assert!(dir.path().join(&others).exists() && dir.path().join(&living.name).exists());
    }
}
