//! What can go wrong between a path and its content.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::text::Unreadable;

/// Something that has a name in the file system and is no regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
    /// A file that a kernel file system such as /proc or /sys makes up while it is read.
    Pseudo,
    Other,
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Special::Fifo => "a FIFO",
            Special::Socket => "a socket",
            Special::BlockDevice => "a block device",
            Special::CharacterDevice => "a device",
            Special::Pseudo => "a file of the kernel, not of a disk",
            Special::Other => "no regular file",
        })
    }
}

/// Paths in messages are shown escaped ([`crate::shown`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the path is empty")]
    Empty,
    #[error("the path holds a NUL byte")]
    Nul,
    #[error("the path, or a name in it, is longer than the kernel takes")]
    TooLong,
    /// The first part of the path that is not there.
    #[error("there is no {part}")]
    Missing { part: String },
    #[error("{part} is no folder")]
    NotAFolder { part: String },
    /// Nothing is created through a link that leads nowhere: nobody said where it should lead.
    #[error("{link} is a link to {target}, which does not exist")]
    Dangling { link: String, target: String },
    #[error("{path} leads through links in a circle, or through too many")]
    LinkLoop { path: String },
    /// A link such as /proc/self/root, which leads where no name does.
    #[error("{path} leads through a link of the kernel that no name stands for")]
    MagicLink { path: String },
    #[error("permission denied: {path}")]
    Denied { path: String },
    #[error("{path} is read-only")]
    ReadOnly { path: String },
    #[error("{path} is a folder")]
    Folder { path: String },
    #[error("{path} is {kind}")]
    Special { path: String, kind: Special },
    #[error("{path} has {bytes} bytes; at most {max} are taken")]
    TooLarge { path: String, bytes: u64, max: u64 },
    #[error("{path} {why}")]
    Unreadable { path: String, why: Unreadable },
    /// Someone moved or replaced it while it was looked at. Locating it anew may help.
    #[error("{path} was moved or replaced while it was looked at")]
    Moved { path: String },
    /// Its content is not what the caller went by.
    #[error("{path} has changed")]
    Changed { path: String },
    /// After writing, something else was read back. The disk, or another program.
    #[error("{path} did not hold what was written when it was read back")]
    NotWritten { path: String },
    #[error("the pattern is not understood: {0}")]
    Pattern(String),
    #[error("the glob is not understood: {0}")]
    Glob(String),
    #[error("the kernel has no openat2 (Linux 5.6 and later have it, unless a filter forbids it)")]
    NoOpenat2,
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// `path` as shown.
    pub(crate) fn of(errno: Errno, path: impl Into<String>) -> Self {
        let path = path.into();
        match errno {
            Errno::NOSYS => Error::NoOpenat2,
            Errno::NOENT => Error::Missing { part: path },
            Errno::NOTDIR => Error::NotAFolder { part: path },
            Errno::ACCESS | Errno::PERM => Error::Denied { path },
            Errno::ROFS => Error::ReadOnly { path },
            Errno::NAMETOOLONG => Error::TooLong,
            Errno::ISDIR => Error::Folder { path },
            other => Error::Io { path, source: other.into() },
        }
    }

    pub(crate) fn io(source: io::Error, path: impl Into<String>) -> Self {
        match source.raw_os_error() {
            Some(code) => Self::of(Errno::from_raw_os_error(code), path),
            None => Error::Io { path: path.into(), source },
        }
    }
}
