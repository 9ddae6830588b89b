//! Everything a child needs to confine itself, made ready before it exists: it may not allocate.
//!
//! Read [`Plan::of`]: from what a command may reach to lists of small steps, filters and rules.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::confine::{Confined, Network, ResourceLimits, Way};
use crate::filter::{self, Instruction, Sockets};
use crate::init;
use crate::landlock::{self, Connections, Grant, Ruleset};
use crate::nursery;
use crate::view::{DEVICES, Kind, SYSTEM, Shape, View, real, without};

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
    pub(crate) filter: Vec<Instruction>,
    /// Readable when we have ended: a process cannot see its parent from another namespace.
    pub(crate) us: OwnedFd,
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
    pub(crate) grabs: Vec<Grab>,
    pub(crate) steps: Vec<Laying>,
    /// Made read-only when all is laid.
    pub(crate) seals: Vec<CString>,
    pub(crate) own_network: bool,
    /// A listening socket of the command's network goes out here.
    pub(crate) bridge: Option<OwnedFd>,
    /// Written to `pid_max` of its process namespace.
    pub(crate) processes: Option<CString>,
    pub(crate) init: i32,
    /// Our end reads how the command ended.
    pub(crate) report: OwnedFd,
}

/// A copy of a part of our view, taken by the child before it has another one.
#[derive(Debug)]
pub(crate) struct Grab {
    pub(crate) source: CString,
    /// Set on it and all mounts in it.
    pub(crate) attributes: u64,
    pub(crate) fd: AtomicI32,
    pub(crate) need: Need,
}

/// Whether the command can do without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
}

/// One step of laying out the view; paths count from its root.
#[derive(Debug)]
pub(crate) enum Laying {
    Folder(CString),
    File(CString),
    Link { at: CString, to: CString },
    Memory { at: CString, options: CString },
    Terminals { at: CString },
    Place { grab: usize, at: CString },
}

/// A ruleset, and the rules that only the child can add: path, rights.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) ruleset: Ruleset,
    pub(crate) inside: Vec<(CString, u64)>,
}

/// What of a plan stays with us.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    /// From here comes how the command ended.
    pub(crate) report: Option<OwnedFd>,
    /// From here comes a socket that listens in the command's network.
    pub(crate) bridge: Option<OwnedFd>,
}

// Attributes of mounts, as mount_setattr(2) numbers them.
pub(crate) const READ_ONLY: u64 = 1;
const NO_SET_ID: u64 = 2;
const NO_DEVICES: u64 = 4;

/// Rights over files and users that root keeps in a container, of those in capabilities(7).
const KEPT_IN_NAMESPACES: u64 = bits(&[CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID]);
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
    /// `proxy_port`: where we listen for a command in our own network.
    pub(crate) fn of(confined: &Confined, env: &[(String, String)], proxy_port: u16) -> io::Result<(Self, Ours)> {
        if !filter::IS_KNOWN_HERE {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no filter for system calls of this machine"));
        }
        let mut ours = Ours::default();
        let (space, rules) = match confined.way {
            Way::Namespaces | Way::UserNamespace => {
                let view = View::of(confined, env)?;
                (Some(Space::of(confined, &view, &mut ours)?), rules_inside(confined, &view)?)
            }
            Way::Landlock => (None, Some(rules_outside(confined, &View::of(confined, env)?, proxy_port)?)),
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
        let us = pidfd_open(getpid(), PidfdFlags::empty())?;
        let plan = Self {
            space,
            limits: limits(&confined.limits, confined.way),
            capabilities,
            rules,
            filter: filter::program(sockets),
            us: high(us)?,
        };
        Ok((plan, ours))
    }
}

impl Space {
    fn of(confined: &Confined, view: &View, ours: &mut Ours) -> io::Result<Self> {
        let own_network = match confined.network {
            Network::Off | Network::Proxy { .. } => true,
            Network::Open => false,
        };
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let users = match confined.way {
            Way::UserNamespace => {
                flags |= libc::CLONE_NEWUSER;
                let same = |id: u32| CString::new(format!("{id} {id} 1\n")).map_err(io::Error::from);
                Some([same(rustix::process::geteuid().as_raw())?, same(rustix::process::getegid().as_raw())?])
            }
            Way::Namespaces | Way::Landlock | Way::SystemCalls => None,
        };
        if own_network {
            flags |= libc::CLONE_NEWNET;
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
        let mut layout = Layout { private_bytes: confined.limits.private_bytes, ..Layout::default() };
        layout.lay(view)?;
        layout.system()?;
        Ok(Self {
            flags,
            users,
            base: c(base)?,
            root_options: c("mode=755,size=4m")?,
            grabs: layout.grabs,
            steps: layout.steps,
            seals: layout.seals,
            own_network,
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

#[derive(Default)]
struct Layout {
    grabs: Vec<Grab>,
    steps: Vec<Laying>,
    seals: Vec<CString>,
    made: BTreeSet<PathBuf>,
    private_bytes: u64,
}

impl Layout {
    fn lay(&mut self, view: &View) -> io::Result<()> {
        for (place, kind) in &view.places {
            let is_new = self.reach(view, place)?;
            match kind {
                Kind::Link { to } => {
                    self.steps.push(Laying::Link { at: relative(place)?, to: c(to.as_os_str().as_bytes())? });
                }
                Kind::Memory => {
                    self.folder(place, is_new)?;
                    let mode = if place == Path::new("/tmp") { "1777" } else { "755" };
                    let options = c(format!("mode={mode},size={}", self.private_bytes))?;
                    self.steps.push(Laying::Memory { at: relative(place)?, options });
                }
                Kind::Read { source, shape } => {
                    self.place(place, source, *shape, READ_ONLY | NO_DEVICES | NO_SET_ID, is_new)?
                }
                Kind::Protect { source, shape } => {
                    self.place(place, source, *shape, READ_ONLY | NO_DEVICES | NO_SET_ID, is_new)?;
                }
                Kind::Write { source, shape } => self.place(place, source, *shape, NO_DEVICES | NO_SET_ID, is_new)?,
                Kind::Pin { source } => self.place(place, source, Shape::Folder, NO_DEVICES | NO_SET_ID, is_new)?,
                Kind::Hide { shape: Shape::Folder } => {
                    self.folder(place, is_new)?;
                    self.steps.push(Laying::Memory { at: relative(place)?, options: c("mode=711,size=64k")? });
                    self.seals.push(relative(place)?);
                }
                // a device on which no devices are allowed: it cannot be opened
                Kind::Hide { shape: Shape::File } => {
                    self.place(place, Path::new("/dev/null"), Shape::File, READ_ONLY | NO_DEVICES, is_new)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the folders on the way that are not there by themselves. True: the place itself is not either.
    fn reach(&mut self, view: &View, place: &Path) -> io::Result<bool> {
        let around = view.around(place);
        let is_there = match around {
            Some((
                above,
                Kind::Read { source, .. }
                | Kind::Write { source, .. }
                | Kind::Pin { source }
                | Kind::Protect { source, .. },
            )) => above == source,
            Some((_, Kind::Link { .. } | Kind::Memory | Kind::Hide { .. })) | None => false,
        };
        if !is_there {
            let top = around.map_or(Path::new("/"), |(above, _)| above);
            let mut way: Vec<&Path> = place.ancestors().skip(1).take_while(|above| *above != top).collect();
            way.reverse();
            for folder in way {
                self.folder(folder, true)?;
            }
        }
        Ok(!is_there)
    }

    fn folder(&mut self, place: &Path, is_new: bool) -> io::Result<()> {
        if is_new && self.made.insert(place.to_owned()) {
            self.steps.push(Laying::Folder(relative(place)?));
        }
        Ok(())
    }

    fn place(&mut self, place: &Path, source: &Path, shape: Shape, attributes: u64, is_new: bool) -> io::Result<()> {
        match shape {
            Shape::Folder => self.folder(place, is_new)?,
            Shape::File if is_new => self.steps.push(Laying::File(relative(place)?)),
            Shape::File => {}
        }
        let source = c(source.as_os_str().as_bytes())?;
        self.steps.push(Laying::Place { grab: self.grabs.len(), at: relative(place)? });
        self.grabs.push(Grab { source, attributes, fd: AtomicI32::new(-1), need: Need::Must });
        Ok(())
    }

    /// What a Unix program expects beside folders with files in them.
    fn system(&mut self) -> io::Result<()> {
        self.steps.push(Laying::Folder(c("run")?));
        self.steps.push(Laying::Folder(c("dev")?));
        self.steps.push(Laying::Memory { at: c("dev")?, options: c("mode=755,size=64k")? });
        for device in DEVICES {
            let at = c(format!("dev/{device}"))?;
            self.steps.push(Laying::File(at.clone()));
            self.steps.push(Laying::Place { grab: self.grabs.len(), at });
            let source = c(format!("/dev/{device}"))?;
            self.grabs.push(Grab { source, attributes: NO_SET_ID, fd: AtomicI32::new(-1), need: Need::May });
        }
        for (at, to) in [
            ("dev/fd", "/proc/self/fd"),
            ("dev/stdin", "/proc/self/fd/0"),
            ("dev/stdout", "/proc/self/fd/1"),
            ("dev/stderr", "/proc/self/fd/2"),
            ("dev/ptmx", "pts/ptmx"),
        ] {
            self.steps.push(Laying::Link { at: c(at)?, to: c(to)? });
        }
        self.steps.push(Laying::Folder(c("dev/pts")?));
        self.steps.push(Laying::Terminals { at: c("dev/pts")? });
        self.steps.push(Laying::Folder(c("dev/shm")?));
        self.steps.push(Laying::Memory { at: c("dev/shm")?, options: c("mode=1777,size=256m")? });
        self.seals.push(c("dev")?);
        self.seals.push(c(".")?);
        Ok(())
    }
}

/// Rules for a view of its own: it shows only what may be read, so that reading needs one rule.
fn rules_inside(confined: &Confined, view: &View) -> io::Result<Option<Rules>> {
    // the first version forbids to move files between folders, whatever is granted
    let Some(version @ 2..) = landlock::version() else { return Ok(None) };
    let ruleset = Ruleset::new(version, Connections::Any)?;
    let mut inside = vec![(c("/")?, ruleset.rights(Grant::Read, true))];
    for path in ["/tmp", "/dev/shm"] {
        inside.push((c(path)?, ruleset.rights(Grant::Write, true)));
    }
    inside.push((c("/dev")?, ruleset.rights(Grant::Device, true)));
    for path in view.writes.iter().chain(&view.home) {
        // the folder of the run is at /tmp
        if confined.scratch.as_ref().is_some_and(|scratch| real(scratch).is_ok_and(|scratch| scratch == *path)) {
            continue;
        }
        let is_folder = view.home.as_ref() == Some(path) || path.is_dir();
        inside.push((c(path.as_os_str().as_bytes())?, ruleset.rights(Grant::Write, is_folder)));
    }
    Ok(Some(Rules { ruleset, inside }))
}

/// Rules for our own view.
fn rules_outside(confined: &Confined, view: &View, proxy_port: u16) -> io::Result<Rules> {
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
    Ok(Rules { ruleset, inside: Vec::new() })
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

/// Out of the way of descriptors that get fixed numbers in the child.
fn high(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, init::LOW_FDS)?)
}

fn c(bytes: impl AsRef<[u8]>) -> io::Result<CString> {
    CString::new(bytes.as_ref()).map_err(io::Error::from)
}

/// From the root of the view, which is where the child works.
fn relative(place: &Path) -> io::Result<CString> {
    let rest = place.strip_prefix("/").unwrap_or(place);
    if rest.as_os_str().is_empty() { c(".") } else { c(rest.as_os_str().as_bytes()) }
}
