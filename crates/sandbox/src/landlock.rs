//! The kernel's rules on files, connections and signals (Landlock): rulesets made here, entered by a child.
//!
//! Three system calls and three structures, without a crate: a child must enter a ruleset without allocating, and in a view
//! of its own it adds rules for folders that do not exist before.
#![expect(unsafe_code, reason = "the C library has no functions for these system calls")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// All rights of the first version: 13 bits.
const FIRST: u64 = (1 << 13) - 1;

/// The rights that make sense on something that is no folder.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const CONNECT_TCP: u64 = 1 << 1;
/// Binding and connecting.
const NETWORK: u64 = (1 << 0) | CONNECT_TCP;
/// Abstract Unix sockets and signals.
const SCOPES: u64 = (1 << 0) | (1 << 1);

/// Versions of the interface from which something can be ruled on.
pub(crate) const TRUNCATION_FROM: u32 = 3;
pub(crate) const NETWORK_FROM: u32 = 4;
pub(crate) const SCOPES_FROM: u32 = 6;

/// What a rule grants on a folder and all below it, or on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Read and execute.
    Read,
    /// Everything.
    Write,
    /// Read, write and control, as a device file is used.
    Device,
}

impl Grant {
    fn rights(self, version: u32) -> u64 {
        let rights = match self {
            Self::Read => EXECUTE | READ_FILE | READ_DIR,
            Self::Write => u64::MAX,
            Self::Device => READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV | TRUNCATE,
        };
        rights & handled(version)
    }
}

fn handled(version: u32) -> u64 {
    let mut rights = FIRST;
    for (from, right) in [(2, REFER), (TRUNCATION_FROM, TRUNCATE), (5, IOCTL_DEV)] {
        if version >= from {
            rights |= right;
        }
    }
    rights
}

/// The version of the interface this kernel has. None: it has none, or it is switched off, or forbidden.
pub(crate) fn version() -> Option<u32> {
    static VERSION: OnceLock<Option<u32>> = OnceLock::new();
    *VERSION.get_or_init(|| {
        // SAFETY: with this flag the kernel takes no pointer and only answers with a number.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, 1_u32) };
        u32::try_from(version).ok().filter(|version| *version > 0)
    })
}

/// The version of which a command in a view of its own gets rules: the first one forbids to move files between folders,
/// whatever is granted.
pub(crate) fn version_inside() -> Option<u32> {
    version().filter(|version| *version >= 2)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Not ruled on here.
    Any,
    /// Only to this port, of any address; nothing is listened on.
    Port(u16),
}

#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
    scopes: u64,
}

impl RulesetAttributes {
    fn of(version: u32, connections: Connections) -> Self {
        Self {
            files: handled(version),
            network: match connections {
                Connections::Port(_) if version >= NETWORK_FROM => NETWORK,
                Connections::Port(_) | Connections::Any => 0,
            },
            scopes: if version >= SCOPES_FROM { SCOPES } else { 0 },
        }
    }
}

#[repr(C, packed)]
struct BeneathAttributes {
    rights: u64,
    folder: i32,
}

#[repr(C)]
struct PortAttributes {
    rights: u64,
    port: u64,
}

/// A ruleset that nobody has entered yet.
#[derive(Debug)]
pub(crate) struct Ruleset {
    fd: OwnedFd,
    version: u32,
}

impl Ruleset {
    /// Everything is refused until it is granted. Signals and abstract sockets end at its walls where the kernel can do that.
    pub(crate) fn new(version: u32, connections: Connections) -> io::Result<Self> {
        let attributes = RulesetAttributes::of(version, connections);
        // SAFETY: a structure of ours.
        let fd = unsafe { create(version, &attributes) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call gave a new descriptor, which nobody else owns.
        let made = Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, version };
        let fd = rustix::io::fcntl_dupfd_cloexec(&made.fd, crate::init::LOW_FDS)?;
        let made = Self { fd, version };
        if let Connections::Port(port) = connections
            && attributes.network != 0
        {
            made.grant_port(port)?;
        }
        Ok(made)
    }

    fn grant_port(&self, port: u16) -> io::Result<()> {
        let rule = PortAttributes { rights: CONNECT_TCP, port: port.into() };
        // SAFETY: the structure is as the kernel has it for rules of this type (2) and only read.
        let done =
            unsafe { libc::syscall(libc::SYS_landlock_add_rule, self.fd.as_raw_fd(), 2_i32, &raw const rule, 0_u32) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// A rule for a path as it is now; one that is not there is passed over.
    pub(crate) fn grant(&self, path: &Path, grant: Grant) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let is_folder = rustix::fs::fstat(&opened)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        self.add(opened.as_fd(), rights(self.version, grant, is_folder))
    }

    fn add(&self, opened: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
        // SAFETY: both descriptors are open.
        let done = unsafe { add_rule(self.fd.as_raw_fd(), opened.as_raw_fd(), rights) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Its number, for a child.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// What a rule has to say for this grant.
pub(crate) fn rights(version: u32, grant: Grant, is_folder: bool) -> u64 {
    let rights = grant.rights(version);
    if is_folder { rights } else { rights & OF_FILES }
}

/// A ruleset that rules on no connections; negative: see errno.
///
/// # Safety
/// Async-signal-safe. For a child that shares memory and may not allocate.
pub(crate) unsafe fn make_here(version: u32) -> i32 {
    // SAFETY: a structure of ours.
    unsafe { create(version, &RulesetAttributes::of(version, Connections::Any)) }
}

/// # Safety
/// Async-signal-safe. Gives a descriptor that nobody else owns.
unsafe fn create(version: u32, attributes: &RulesetAttributes) -> i32 {
    let bytes = match version {
        0..NETWORK_FROM => 8,
        NETWORK_FROM..SCOPES_FROM => 16,
        SCOPES_FROM.. => size_of::<RulesetAttributes>(),
    };
    // SAFETY: the structure is as the kernel has it, at least `bytes` long, and only read.
    let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const *attributes, bytes, 0_u32) };
    fd as i32
}

/// A rule for what `opened` refers to.
///
/// # Safety
/// Async-signal-safe. Both descriptors should be open; the kernel says so if not.
unsafe fn add_rule(ruleset: i32, opened: i32, rights: u64) -> libc::c_long {
    let rule = BeneathAttributes { rights, folder: opened };
    // SAFETY: the structure is as the kernel has it for rules of this type (1) and only read.
    unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, 1_i32, &raw const rule, 0_u32) }
}

/// A rule for a path as this process sees it. False: see errno.
///
/// # Safety
/// Async-signal-safe. For a child that shares memory and may not allocate.
pub(crate) unsafe fn grant_here(ruleset: i32, path: &CStr, rights: u64) -> bool {
    // SAFETY: the path ends with a zero; descriptors are the child's own.
    unsafe {
        let opened = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        if opened < 0 {
            return false;
        }
        let done = add_rule(ruleset, opened, rights);
        libc::close(opened) == 0 && done == 0
    }
}

/// Puts the calling thread, and all it starts, behind the ruleset for good. It must have given up new privileges before.
///
/// # Safety
/// Async-signal-safe. Binds the calling thread, whoever that is.
pub(crate) unsafe fn enter(ruleset: i32) -> bool {
    // SAFETY: the kernel takes a number only.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) == 0 }
}
