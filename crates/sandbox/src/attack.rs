//! What a child tries before its first program, to see whether its walls hold. Harmless where it comes through: files of the
//! probe's own, a listener of ours, a signal that is none.
#![expect(unsafe_code, reason = "a child before exec may only make system calls, on prepared memory")]

use std::ffi::{CString, c_int};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// One thing no command may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    WriteOutside,
    ReadHidden,
    LookInto,
    Connect,
    UnixSocket,
    Signal,
    NewNamespace,
    Mount,
}

impl Attack {
    pub(crate) const ALL: [Self; 8] = [
        Self::WriteOutside,
        Self::ReadHidden,
        Self::LookInto,
        Self::Connect,
        Self::UnixSocket,
        Self::Signal,
        Self::NewNamespace,
        Self::Mount,
    ];

    /// As `doctor` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WriteOutside => "write a file outside its folders",
            Self::ReadHidden => "read a file outside its folders",
            Self::LookInto => "look into the process of Longrein: its memory, environment, open files",
            Self::Connect => "connect to a port of this machine",
            Self::UnixSocket => "connect to a socket of another program",
            Self::Signal => "send a signal to Longrein",
            Self::NewNamespace => "make namespaces of its own",
            Self::Mount => "mount a file system",
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Everything the attacks need, and what came of them.
#[derive(Debug)]
pub(crate) struct Attacks {
    victim: CString,
    secret: CString,
    inside: CString,
    address: libc::sockaddr_in,
    name: libc::sockaddr_un,
    name_bytes: libc::socklen_t,
    us: OwnedFd,
    came_through: AtomicU32,
    _listeners: (TcpListener, UnixListener),
}

impl Attacks {
    /// With a victim and a secret in `folder`, which no wall may let through.
    pub(crate) fn on(folder: &Path) -> io::Result<Self> {
        let path = |name: &str| {
            let path = folder.join(name);
            std::fs::write(&path, "untouched")?;
            CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // SAFETY: all zeroes are valid values of both structures.
        let (mut address, mut name): (libc::sockaddr_in, libc::sockaddr_un) = unsafe { std::mem::zeroed() };
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = listener.local_addr()?.port().to_be();
        address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
        let text = format!("longrein-probe-{}-{}", getpid(), listener.local_addr()?.port());
        let abstracted = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&text)?)?;
        name.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // an abstract name begins with a zero
        for (to, from) in name.sun_path.iter_mut().skip(1).zip(text.bytes()) {
            *to = from as libc::c_char;
        }
        let name_bytes = (size_of::<libc::sa_family_t>() + 1 + text.len()) as libc::socklen_t;
        Ok(Self {
            victim: path("victim")?,
            secret: path("secret")?,
            inside: CString::new(format!("/proc/{}/cwd", getpid()))?,
            address,
            name,
            name_bytes,
            us: rustix::io::fcntl_dupfd_cloexec(pidfd_open(getpid(), PidfdFlags::empty())?, crate::init::LOW_FDS)?,
            came_through: AtomicU32::new(0),
            _listeners: (listener, abstracted),
        })
    }

    pub(crate) fn came_through(&self, attack: Attack) -> bool {
        self.came_through.load(Ordering::Acquire) & attack.bit() != 0
    }

    /// # Safety
    /// Async-signal-safe. Only in a child that is about to be a program.
    pub(crate) unsafe fn carry_out(&self) {
        // SAFETY: paths end with a zero, structures are as the kernel has them, and all of it outlives the child's use.
        unsafe {
            let opened = |path: &CString, flags: c_int| {
                let file = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC);
                let is_read = file >= 0 && {
                    let mut byte = 0_u8;
                    flags != libc::O_RDONLY || libc::read(file, (&raw mut byte).cast(), 1) >= 0
                };
                if file >= 0 {
                    libc::close(file);
                }
                is_read
            };
            // its environment would show nothing: until it is a program the child shares our memory, and so may read it
            let looked = |path: &CString| {
                let mut place = [0; 1];
                libc::readlink(path.as_ptr(), place.as_mut_ptr(), place.len()) >= 0
            };
            let connected = |family: c_int, address: *const libc::sockaddr, bytes: usize| {
                let socket = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
                let is_connected = socket >= 0 && libc::connect(socket, address, bytes as libc::socklen_t) == 0;
                if socket >= 0 {
                    libc::close(socket);
                }
                is_connected
            };
            // the first processes of a namespace of its own have low numbers: there it would be another's
            let has_own_number = is_no_first_number(&self.inside);
            for (attack, went) in [
                (Attack::WriteOutside, opened(&self.victim, libc::O_WRONLY)),
                (Attack::ReadHidden, opened(&self.secret, libc::O_RDONLY)),
                (Attack::LookInto, has_own_number && looked(&self.inside)),
                (
                    Attack::Connect,
                    connected(libc::AF_INET, (&raw const self.address).cast(), size_of::<libc::sockaddr_in>()),
                ),
                (Attack::UnixSocket, connected(libc::AF_UNIX, (&raw const self.name).cast(), self.name_bytes as usize)),
                (
                    Attack::Signal,
                    libc::syscall(libc::SYS_pidfd_send_signal, self.us.as_raw_fd(), 0, ptr::null::<u8>(), 0) == 0,
                ),
                (Attack::NewNamespace, libc::unshare(libc::CLONE_NEWUSER) == 0),
                (
                    Attack::Mount,
                    libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null())
                        == 0,
                ),
            ] {
                if went {
                    self.came_through.fetch_or(attack.bit(), Ordering::AcqRel);
                }
            }
        }
    }
}

/// Whether our number is none of the first two, which a namespace of its own has as well.
fn is_no_first_number(inside: &CString) -> bool {
    !matches!(inside.as_bytes(), b"/proc/1/cwd" | b"/proc/2/cwd")
}
