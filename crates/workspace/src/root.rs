//! The workspace's root folder, and the one way from a written path to a file.
//!
//! Locating and opening are two steps. [`Root::locate`] lets the kernel resolve a path with all its links and asks it for
//! the name of what was reached; that [`Place`] is what is ruled on. Opening then goes by that name alone and refuses
//! every link (`openat2` with RESOLVE_NO_SYMLINKS, inside the root also RESOLVE_BENEATH): a link that is swapped in
//! between makes it fail, and never leads elsewhere.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Special};
use crate::shown::shown;

/// The kernel's PATH_MAX, its final NUL included.
const PATH_MAX_BYTES: usize = 4096;

/// Where something is, by the name the kernel has for it: no link, no `.` and no `..` in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Relative to the root; empty for the root itself.
    Inside(PathBuf),
    /// Absolute.
    Outside(PathBuf),
}

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    File { bytes: u64 },
    Folder,
    Special(Special),
    Nothing,
}

/// What a written path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub place: Place,
    pub found: Found,
}

/// An open workspace.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    name: PathBuf,
}

/// A regular file, open for reading, and what the kernel said of it when it was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) stat: Stat,
}

/// A folder, open for reading and syncing, and the name of a file in it.
#[derive(Debug)]
pub(crate) struct Within<'a> {
    pub(crate) folder: OwnedFd,
    pub(crate) name: &'a OsStr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFolders {
    Make,
    Refuse,
}

impl Place {
    pub fn is_inside(&self) -> bool {
        matches!(self, Place::Inside(_))
    }

    /// The canonical name: relative to the root, or absolute.
    pub fn path(&self) -> &Path {
        match self {
            Place::Inside(path) | Place::Outside(path) => path,
        }
    }

    /// `name` in this folder.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> Place {
        match self {
            Place::Inside(path) => Place::Inside(path.join(name)),
            Place::Outside(path) => Place::Outside(path.join(name)),
        }
    }

    /// The folder it is in; None for the root and for `/`.
    pub fn parent(&self) -> Option<Place> {
        match self {
            Place::Inside(path) => path.parent().map(|path| Place::Inside(path.to_owned())),
            Place::Outside(path) => path.parent().map(|path| Place::Outside(path.to_owned())),
        }
    }
}

/// As it is shown: `.` for the root.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Inside(path) if path.as_os_str().is_empty() => f.write_str("."),
            Place::Inside(path) | Place::Outside(path) => f.write_str(&shown(path)),
        }
    }
}

impl Root {
    /// Opens the folder at `path`, which may lead there through links. Fails on a kernel without `openat2`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty()).map_err(|errno| match errno {
            // a filter of system calls: opening a folder by its path alone needs no permission of that kind
            Errno::PERM => Error::NoOpenat2,
            errno => Error::of(errno, shown(path)),
        })?;
        let name = name_of(folder.as_fd())?;
        Ok(Self { folder, name })
    }

    /// The canonical name of the root when it was opened.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Where a path leads, read as the kernel would from inside the root: `~` is a name like any other. A path whose end
    /// does not exist leads to where it would be created.
    pub fn locate(&self, written: &str) -> Result<Located, Error> {
        if written.is_empty() {
            return Err(Error::Empty);
        }
        if written.contains('\0') {
            return Err(Error::Nul);
        }
        if written.len() >= PATH_MAX_BYTES {
            return Err(Error::TooLong);
        }
        let path = Path::new(written);
        match self.reach(path) {
            Ok(reached) => self.located(reached.as_fd()),
            Err(Errno::NOENT) if !written.ends_with('/') => self.locate_missing(path),
            Err(errno) => Err(self.explain(path, errno)),
        }
    }

    /// Opens a regular file. Nothing can block before it is known to be one.
    pub(crate) fn open_file(&self, place: &Place) -> Result<Opened, Error> {
        let reached = self.hold(place, OFlags::PATH)?;
        let stat = regular(reached.as_fd(), place)?;
        // the very file that was looked at: through our own handle, by no name that could have been replaced
        let own = CString::new(own_link(reached.as_fd())).expect("digits hold no NUL");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&own, flags, Mode::empty()).map_err(|errno| Error::of(errno, place.to_string()))?;
        Ok(Opened { file: file.into(), stat })
    }

    /// The folder a file is in, made on the way if asked.
    pub(crate) fn within<'a>(&self, place: &'a Place, missing: MissingFolders) -> Result<Within<'a>, Error> {
        let (Some(parent), Some(name)) = (place.parent(), place.path().file_name()) else {
            return Err(Error::Folder { path: place.to_string() });
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = match (self.hold(&parent, flags), missing) {
            (Err(Error::Missing { .. }), MissingFolders::Make) => self.make_folders(&parent, flags)?,
            (folder, _) => folder?,
        };
        Ok(Within { folder, name })
    }

    /// Opens what is at a place, following nothing.
    pub(crate) fn hold(&self, place: &Place, flags: OFlags) -> Result<OwnedFd, Error> {
        // not O_NOFOLLOW: beside O_PATH it would bring a link itself where NO_SYMLINKS refuses it
        let flags = flags | OFlags::CLOEXEC;
        let refuse = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match place {
            Place::Inside(path) => {
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                openat2(self.folder.as_fd(), path, flags, Mode::empty(), refuse | ResolveFlags::BENEATH)
            }
            Place::Outside(path) => openat2(CWD, path, flags, Mode::empty(), refuse),
        };
        opened.map_err(|errno| match errno {
            // there was no link when it was located
            Errno::LOOP | Errno::XDEV => Error::Moved { path: place.to_string() },
            errno => Error::of(errno, place.to_string()),
        })
    }

    /// Makes one missing folder after the other, each through the handle of the one before.
    fn make_folders(&self, folder: &Place, flags: OFlags) -> Result<OwnedFd, Error> {
        let mut missing = vec![folder.clone()];
        let mut at = loop {
            let last = missing.last().expect("it is never emptied here");
            let parent = last.parent().ok_or_else(|| Error::Missing { part: last.to_string() })?;
            match self.hold(&parent, flags) {
                Err(Error::Missing { .. }) => missing.push(parent),
                folder => break folder?,
            }
        };
        for folder in missing.iter().rev() {
            let name = folder.path().file_name().expect("a folder with a parent has a name");
            let failed = |errno| Error::of(errno, folder.to_string());
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => rustix::fs::fsync(&at).map_err(failed)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            let refuse = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            at = openat2(at.as_fd(), Path::new(name), flags | OFlags::CLOEXEC, Mode::empty(), refuse)
                .map_err(|_| Error::Moved { path: folder.to_string() })?;
        }
        Ok(at)
    }

    fn reach(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(self.folder.as_fd(), path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
    }

    fn located(&self, reached: BorrowedFd<'_>) -> Result<Located, Error> {
        let name = name_of(reached)?;
        let stat = rustix::fs::fstat(reached).map_err(|errno| Error::of(errno, shown(&name)))?;
        let place = self.place(&name)?;
        let found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if is_pseudo(reached) => Found::Special(Special::Pseudo),
            FileType::RegularFile => Found::File { bytes: bytes(&stat) },
            FileType::Directory => Found::Folder,
            other @ (FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown) => Found::Special(special(other)),
        };
        Ok(Located { place, found })
    }

    /// Of a canonical name. The root may have been moved since it was opened.
    fn place(&self, name: &Path) -> Result<Place, Error> {
        let root = name_of(self.folder.as_fd())?;
        Ok(match name.strip_prefix(&root) {
            Ok(relative) => Place::Inside(relative.to_owned()),
            Err(_) => Place::Outside(name.to_owned()),
        })
    }

    /// Nothing is there: the deepest folder that is, and the names that would be made in it.
    fn locate_missing(&self, path: &Path) -> Result<Located, Error> {
        let (folder, rest) = self.deepest(path);
        let folder = folder.map_err(|errno| Error::of(errno, shown(path)))?;
        let first = rest.first().map(|name| Path::new(name.as_os_str())).unwrap_or(Path::new("."));
        let above = name_of(folder.as_fd())?;
        let lstat = rustix::fs::statat(&folder, first, AtFlags::SYMLINK_NOFOLLOW);
        if lstat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink) {
            let target = rustix::fs::readlinkat(&folder, first, Vec::new()).map_or_else(
                |_| "something unknown".to_owned(),
                |target| shown(Path::new(OsStr::from_bytes(target.as_bytes()))),
            );
            return Err(Error::Dangling { link: self.place(&above.join(first))?.to_string(), target });
        }
        let missing = self.place(&above)?.join(first);
        if rest.iter().any(|name| name == "..") {
            // the kernel would not find its way back out of what is not there
            return Err(Error::Missing { part: missing.to_string() });
        }
        let name = rest.iter().fold(above, |name, part| name.join(part));
        Ok(Located { place: self.place(&name)?, found: Found::Nothing })
    }

    /// The longest leading part of a path that can be reached, and the components after it.
    fn deepest(&self, path: &Path) -> (Result<OwnedFd, Errno>, Vec<OsString>) {
        let mut rest = Vec::new();
        let mut above = path;
        while let Some(parent) = above.parent() {
            let last = above.components().next_back().expect("what has a parent has a last component");
            rest.insert(0, last.as_os_str().to_owned());
            above = parent;
            if let Ok(folder) = self.reach(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }) {
                return (Ok(folder), rest);
            }
        }
        (self.reach(Path::new(".")), rest)
    }

    /// Why a path leads nowhere, and at which part.
    fn explain(&self, path: &Path, errno: Errno) -> Error {
        match errno {
            Errno::LOOP | Errno::XDEV => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                match openat2(self.folder.as_fd(), path, flags, Mode::empty(), ResolveFlags::empty()) {
                    Err(Errno::LOOP) => Error::LinkLoop { path: shown(path) },
                    Ok(_) | Err(_) => Error::MagicLink { path: shown(path) },
                }
            }
            Errno::NOTDIR | Errno::NOENT => {
                let (folder, rest) = self.deepest(path);
                let reached = folder.ok().and_then(|folder| self.located(folder.as_fd()).ok());
                match reached {
                    Some(Located { place, found: Found::Folder }) if !rest.is_empty() => {
                        // `name/` of a file: the folder is reached, the name in it is no folder
                        let part = place.join(&rest[0]).to_string();
                        if errno == Errno::NOTDIR { Error::NotAFolder { part } } else { Error::Missing { part } }
                    }
                    Some(Located { place, .. }) => Error::NotAFolder { part: place.to_string() },
                    None => Error::of(errno, shown(path)),
                }
            }
            errno => Error::of(errno, shown(path)),
        }
    }
}

/// Refuses everything but a regular file of a disk.
pub(crate) fn regular(handle: BorrowedFd<'_>, place: &Place) -> Result<Stat, Error> {
    let stat = rustix::fs::fstat(handle).map_err(|errno| Error::of(errno, place.to_string()))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if is_pseudo(handle) => Special::Pseudo,
        FileType::RegularFile => return Ok(stat),
        FileType::Directory => return Err(Error::Folder { path: place.to_string() }),
        other @ (FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown) => special(other),
    };
    Err(Error::Special { path: place.to_string(), kind })
}

pub(crate) fn bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

fn special(kind: FileType) -> Special {
    match kind {
        FileType::Fifo => Special::Fifo,
        FileType::Socket => Special::Socket,
        FileType::BlockDevice => Special::BlockDevice,
        FileType::CharacterDevice => Special::CharacterDevice,
        FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => Special::Other,
    }
}

/// The file systems whose files are made up by the kernel while they are read: some never end, some block, some hold what
/// belongs to this process. Magic numbers from `linux/magic.h`, `debugfs`, `tracefs` and the like.
const PSEUDO_FILE_SYSTEMS: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x1cd1,      // devpts
    0x27_e0eb,   // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0xf97c_ff8c, // selinux
    0x4249_4e4d, // binfmt_misc
];

fn is_pseudo(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(handle).is_ok_and(|system| {
        u64::try_from(system.f_type).is_ok_and(|magic| PSEUDO_FILE_SYSTEMS.contains(&(magic & 0xffff_ffff)))
    })
}

fn openat2(at: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    // EAGAIN: something was renamed meanwhile and the kernel could not be sure. It says to try again.
    const TRIES_MAX: usize = 32;
    for _ in 1..TRIES_MAX {
        match rustix::fs::openat2(at, path, flags, mode, how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    rustix::fs::openat2(at, path, flags, mode, how)
}

fn own_link(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// The kernel's own name for what is open, checked to lead there.
fn name_of(handle: BorrowedFd<'_>) -> Result<PathBuf, Error> {
    let link = own_link(handle);
    // without /proc nobody can tell
    let failed = |errno: Errno| Error::Io { path: link.clone(), source: errno.into() };
    let name = rustix::fs::readlink(link.as_str(), Vec::new()).map_err(failed)?;
    let name = PathBuf::from(OsString::from_vec(name.into_bytes()));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let again = openat2(CWD, &name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|_| Error::Moved { path: shown(&name) })?;
    let (mine, its) = (rustix::fs::fstat(handle).map_err(failed)?, rustix::fs::fstat(&again).map_err(failed)?);
    if name.is_absolute() && (mine.st_dev, mine.st_ino) == (its.st_dev, its.st_ino) {
        Ok(name)
    } else {
        Err(Error::Moved { path: shown(&name) })
    }
}
