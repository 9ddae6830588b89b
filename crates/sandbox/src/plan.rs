//! Everything a child needs to confine itself, made ready before it exists: it may not allocate.
//!
//! Read [`Plan::of`]: from what a command may reach to lists of small steps, filters and rules.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::confine::{Confined, Network, ResourceLimits, Way};
use crate::drawn::{self, Drawn};
use crate::filter::{self, Instruction, Sockets};
use crate::init;
use crate::landlock::{self, Connections, Grant, Ruleset};
use crate::network;
use crate::nursery;
use crate::view::{DEVICES, SYSTEM, View, without};

/// Where a proxy is found in a network of the command's own. The port is free: the network is new.
pub(crate) const PROXY_PORT: u16 = 3128;

#[derive(Debug)]
pub(crate) struct Plan {
    /// None: the command keeps our namespaces.
    pub(crate) space: Option<Space>,
    pub(crate) limits: Vec<(u32, libc::rlimit)>,
    /// Capabilities that are kept, as bits.
    pub(crate) capabilities: u64,
    pub(crate) rules: Option<Rules>,
    pub(crate) filter: &'static [Instruction],
    /// Readable when we have ended: a process cannot see its parent from another namespace.
    pub(crate) us: Arc<OwnedFd>,
}

/// Namespaces, and what is done in them.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) flags: i32,
    /// Contents of `uid_map` and `gid_map`, where there is a user namespace.
    pub(crate) users: Option<[CString; 2]>,
    /// Where the new root is made: any folder will do, all sources are at hand by then.
    pub(crate) base: CString,
    pub(crate) root_options: CString,
    pub(crate) drawn: Arc<Drawn>,
    pub(crate) network: Its,
    /// A namespace that was made before, for what processes talk through beside the network. None: it is born into one.
    pub(crate) ipc: Option<i32>,
    /// A listening socket of the command's network goes out here.
    pub(crate) bridge: Option<OwnedFd>,
    /// Written to `pid_max` of its process namespace.
    pub(crate) processes: Option<CString>,
    pub(crate) init: i32,
    /// Our end reads how the command ended.
    pub(crate) report: OwnedFd,
}

/// Which network a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Its {
    Ours,
    /// One it is born into.
    New,
    /// One that was made before, by its descriptor.
    Kept(i32),
}

/// A copy of a part of our view, taken by the child before it has another one.
#[derive(Debug)]
pub(crate) struct Grab {
    pub(crate) source: CString,
    /// Set on it and all mounts in it.
    pub(crate) attributes: u64,
    /// Of the process or thread that took it last.
    fd: AtomicI32,
    pub(crate) need: Need,
}

impl Grab {
    pub(crate) fn new(source: CString, attributes: u64, need: Need) -> Self {
        Self { source, attributes, fd: AtomicI32::new(-1), need }
    }

    /// Nothing was taken yet: the number is one of another child.
    pub(crate) fn reset(&self) {
        self.fd.store(-1, Ordering::Relaxed);
    }

    pub(crate) fn hold(&self, fd: i32) {
        self.fd.store(fd, Ordering::Relaxed);
    }

    /// Negative: it is not held.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
    }

    /// It is placed, or closed: its number is another's now. Negative: it was not held.
    pub(crate) fn let_go(&self) -> i32 {
        self.fd.swap(-1, Ordering::Relaxed)
    }
}

/// Whether the command can do without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
}

/// One step of laying out the view; paths count from its root.
#[derive(Debug, Clone)]
pub(crate) enum Laying {
    Folder(CString),
    File(CString),
    Link {
        at: CString,
        to: CString,
    },
    /// A folder whose files are the command's own, and gone with it.
    Memory {
        at: CString,
        options: CString,
    },
    /// A folder in which nothing is and nothing can be made.
    Nothing {
        at: CString,
    },
    Terminals {
        at: CString,
    },
    Place {
        grab: usize,
        at: CString,
    },
    /// Takes what was placed before its place is covered.
    Lift {
        grab: usize,
        at: CString,
    },
    ReadOnly {
        at: CString,
    },
}

/// The kernel's rules on files.
#[derive(Debug)]
pub(crate) enum Rules {
    Made(Ruleset),
    /// By the child, in its own view: before, its folders do not exist.
    ToMake {
        version: u32,
    },
}

/// What of a plan stays with us.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    /// From here comes how the command ended.
    pub(crate) report: Option<OwnedFd>,
    /// From here comes a socket that listens in the command's network.
    pub(crate) bridge: Option<OwnedFd>,
    /// Kept for the command, and for others after it.
    pub(crate) network: Option<network::Own>,
}

// Attributes of mounts, as mount_setattr(2) numbers them.
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const NO_SET_ID: u64 = 2;
pub(crate) const NO_DEVICES: u64 = 4;

/// Rights over files and users that root keeps in a container, of those in capabilities(7).
pub(crate) const KEPT_IN_NAMESPACES: u64 = bits(&[CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID]);
/// Without a view of its own only what makes foreign files of the workspace readable and writable: rules on files do not
/// bind owners and modes.
const KEPT_WITHOUT: u64 = bits(&[DAC_OVERRIDE]);
const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const FOWNER: u32 = 3;
const FSETID: u32 = 4;
const KILL: u32 = 5;
const SETGID: u32 = 6;
const SETUID: u32 = 7;

const fn bits(numbers: &[u32]) -> u64 {
    let mut all = 0;
    let mut at = 0;
    while at < numbers.len() {
        all |= 1 << numbers[at];
        at += 1;
    }
    all
}

impl Plan {
    /// Whether it keeps the capabilities of [`KEPT_IN_NAMESPACES`], in our users: in users of its own a child is born with all
    /// of theirs.
    pub(crate) fn keeps_some_of_ours(&self) -> bool {
        self.capabilities == KEPT_IN_NAMESPACES && self.space.as_ref().is_some_and(|space| space.users.is_none())
    }

    /// `proxy_port`: where we listen for a command in our own network.
    pub(crate) fn of(confined: &Confined, env: &[(String, String)], proxy_port: u16) -> io::Result<(Self, Ours)> {
        if !filter::IS_KNOWN_HERE {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no filter for system calls of this machine"));
        }
        let mut ours = Ours::default();
        let (space, rules) = match confined.way {
            Way::Namespaces | Way::UserNamespace => {
                let space = Space::of(confined, drawn::of(confined, env)?, &mut ours)?;
                (Some(space), landlock::version_inside().map(|version| Rules::ToMake { version }))
            }
            Way::Landlock => {
                let drawn = drawn::of(confined, env)?;
                (None, Some(Rules::Made(rules_outside(confined, &drawn.view, proxy_port)?)))
            }
            Way::SystemCalls => (None, None),
        };
        let sockets = match (confined.way, &confined.network) {
            (Way::Namespaces | Way::UserNamespace, Network::Off | Network::Proxy { .. }) => Sockets::OwnNetwork,
            // abstract sockets of others are in the same network: only newer rules keep them out
            (Way::Namespaces | Way::UserNamespace, Network::Open) => match landlock::version() {
                Some(landlock::SCOPES_FROM..) => Sockets::InternetAndUnix,
                Some(_) | None => Sockets::Internet,
            },
            (Way::Landlock, Network::Proxy { .. }) => Sockets::TcpOnly,
            (Way::Landlock | Way::SystemCalls, Network::Off) | (Way::SystemCalls, Network::Proxy { .. }) => {
                Sockets::None
            }
            (Way::Landlock | Way::SystemCalls, Network::Open) => Sockets::Internet,
        };
        let capabilities = match confined.way {
            Way::Namespaces => KEPT_IN_NAMESPACES,
            Way::UserNamespace => 0,
            Way::Landlock | Way::SystemCalls => KEPT_WITHOUT,
        };
        let plan = Self {
            space,
            limits: limits(&confined.limits, confined.way),
            capabilities,
            rules,
            filter: filter::for_sockets(sockets),
            us: us()?,
        };
        Ok((plan, ours))
    }
}

impl Space {
    /// Whether a view that was laid out before may be entered: in users of its own a child has no rights over what is ours.
    pub(crate) fn may_be_laid(&self) -> bool {
        self.users.is_none()
    }

    fn of(confined: &Confined, drawn: Arc<Drawn>, ours: &mut Ours) -> io::Result<Self> {
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let users = match confined.way {
            Way::UserNamespace => {
                flags |= libc::CLONE_NEWUSER;
                let same = |id: u32| CString::new(format!("{id} {id} 1\n")).map_err(io::Error::from);
                Some([same(rustix::process::geteuid().as_raw())?, same(rustix::process::getegid().as_raw())?])
            }
            Way::Namespaces | Way::Landlock | Way::SystemCalls => None,
        };
        let network = match (&confined.network, confined.way) {
            (Network::Open, _) => Its::Ours,
            (Network::Off | Network::Proxy { .. }, Way::Namespaces) => {
                ours.network = network::take();
                ours.network.as_ref().map_or(Its::New, |own| Its::Kept(own.raw()))
            }
            // to enter one that is there takes rights over it, which nobody has in users of his own
            (Network::Off | Network::Proxy { .. }, Way::UserNamespace | Way::Landlock | Way::SystemCalls) => Its::New,
        };
        if network == Its::New {
            flags |= libc::CLONE_NEWNET;
        }
        let ipc = ours.network.as_ref().and_then(network::Own::ipc);
        if ipc.is_some() {
            flags &= !libc::CLONE_NEWIPC;
        }
        let bridge = match confined.network {
            Network::Proxy { .. } => {
                let (mine, theirs) = std::os::unix::net::UnixDatagram::pair()?;
                mine.set_nonblocking(true)?;
                ours.bridge = Some(mine.into());
                Some(high(theirs.into())?)
            }
            Network::Off | Network::Open => None,
        };
        let (mine, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&mine, true)?;
        ours.report = Some(mine);
        let base = ["/tmp", "/usr", "/etc"].into_iter().find(|base| Path::new(base).is_dir()).unwrap_or("/proc");
        Ok(Self {
            flags,
            users,
            base: c(base)?,
            root_options: c("mode=755,size=4m")?,
            drawn,
            network,
            ipc,
            bridge,
            processes: counts_processes_alone()
                .then(|| c(confined.limits.processes.max(301).to_string()))
                .transpose()?,
            init: init::file()?.as_raw_fd(),
            report: high(report)?,
        })
    }
}

/// Since Linux 6.14 each process namespace has a `pid_max` of its own; before, it is the whole machine's, and not ours to
/// change.
fn counts_processes_alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    *ALONE.get_or_init(|| kernel_version() >= (6, 14))
}

pub(crate) fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let text = name.release().to_string_lossy().into_owned();
    let mut numbers = text.split(|sign: char| !sign.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Rules for our own view.
fn rules_outside(confined: &Confined, view: &View, proxy_port: u16) -> io::Result<Ruleset> {
    let Some(version) = landlock::version() else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no Landlock"));
    };
    let connections = match confined.network {
        Network::Proxy { .. } if version < landlock::NETWORK_FROM => {
            let message = "this kernel cannot bind connections to a port: a proxy would not be the only way out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Network::Proxy { .. } => Connections::Port(proxy_port),
        Network::Off | Network::Open => Connections::Any,
    };
    let ruleset = Ruleset::new(version, connections)?;
    let system = SYSTEM.iter().chain(&["/proc"]).filter_map(|path| Path::new(path).canonicalize().ok());
    let reads: Vec<PathBuf> = system.chain(view.reads.iter().cloned()).collect();
    for path in without(&reads, &view.hidden) {
        ruleset.grant(&path, Grant::Read)?;
    }
    for path in &view.writes {
        ruleset.grant(path, Grant::Write)?;
    }
    for device in DEVICES.into_iter().chain(["ptmx", "pts"]) {
        ruleset.grant(&Path::new("/dev").join(device), Grant::Device)?;
    }
    Ok(ruleset)
}

fn limits(wanted: &ResourceLimits, way: Way) -> Vec<(u32, libc::rlimit)> {
    use rustix::process::{Resource, getrlimit};
    let bound = |kind: Resource, number: u32, most: u64| {
        let most = getrlimit(kind).maximum.map_or(most, |maximum| maximum.min(most));
        (number, libc::rlimit { rlim_cur: most, rlim_max: most })
    };
    let processes = match way {
        Way::UserNamespace => wanted.processes,
        // here the kernel counts all that the user has
        Way::Namespaces | Way::Landlock | Way::SystemCalls => wanted.processes.max(nursery::PROCESSES_MAX),
    };
    let mut limits = vec![
        bound(Resource::Fsize, libc::RLIMIT_FSIZE, wanted.file_bytes),
        bound(Resource::Nofile, libc::RLIMIT_NOFILE, wanted.open_files),
        bound(Resource::Nproc, libc::RLIMIT_NPROC, processes),
    ];
    limits.extend(wanted.memory_bytes.map(|most| bound(Resource::Data, libc::RLIMIT_DATA, most)));
    limits
}

/// This process. Asked for once, unless it was forked.
fn us() -> io::Result<Arc<OwnedFd>> {
    static US: Mutex<Option<(Pid, Arc<OwnedFd>)>> = Mutex::new(None);
    let mut known = US.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = getpid();
    if let Some((_, us)) = known.as_ref().filter(|(known, _)| *known == pid) {
        return Ok(Arc::clone(us));
    }
    let us = Arc::new(high(pidfd_open(pid, PidfdFlags::empty())?)?);
    *known = Some((pid, Arc::clone(&us)));
    Ok(us)
}

/// Out of the way of descriptors that get fixed numbers in the child.
pub(crate) fn high(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= init::LOW_FDS { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(fd, init::LOW_FDS)?) }
}

pub(crate) fn c(bytes: impl AsRef<[u8]>) -> io::Result<CString> {
    CString::new(bytes.as_ref()).map_err(io::Error::from)
}
