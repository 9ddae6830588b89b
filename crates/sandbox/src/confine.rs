//! What a command may reach, as values. Nothing here does anything.

use std::fmt;
use std::path::PathBuf;

/// What is around a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Nothing of ours: the surroundings hold it (tier E), or whoever runs us asked for it.
    #[default]
    None,
    Confined(Box<Confined>),
}

/// The limits of a confined command. All paths are absolute; one that is not there is passed over, except that a `writes`
/// which is not there is an error: the command was promised it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    /// As [`probe`](crate::probe) found it, never chosen for one command.
    pub way: Way,
    /// Folders and files it may write. Everything else is read-only or not there.
    pub writes: Vec<PathBuf>,
    /// What it may read, beside system folders, the tool chains its `PATH` and environment name, and `writes`.
    pub reads: Vec<PathBuf>,
    /// Read-only although inside `writes`. Not in tier B, where the kernel's rules know no exceptions.
    pub read_only: Vec<PathBuf>,
    /// Folders in which nothing new may be made, though they are inside `writes`. Not in tier B.
    pub sealed: Vec<Sealed>,
    /// Not to be read, wherever it lies. In tier B: unless it is inside `writes`.
    pub hidden: Vec<PathBuf>,
    /// A folder of the run for temporary files: `/tmp` in tier A, `TMPDIR` in tier B. None: memory in tier A, and no place at
    /// all in tier B.
    pub scratch: Option<PathBuf>,
    pub network: Network,
    pub limits: ResourceLimits,
}

impl Confined {
    /// Nothing may be written, nothing of a home or workspace read, no network.
    pub fn new(way: Way) -> Self {
        Self {
            way,
            writes: Vec::new(),
            reads: Vec::new(),
            read_only: Vec::new(),
            sealed: Vec::new(),
            hidden: Vec::new(),
            scratch: None,
            network: Network::Off,
            limits: ResourceLimits::default(),
        }
    }
}

/// A folder that stays as it is, but for the folders in it that are named: those may be written as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub folder: PathBuf,
    pub open: Vec<PathBuf>,
}

/// Whom a command may talk to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    Off,
    /// A proxy on this Unix socket, and nobody else. Inside it is at a loopback port, which `HTTP_PROXY` and its like name.
    Proxy {
        socket: PathBuf,
    },
    /// Whatever this machine reaches.
    Open,
}

/// How strong the walls are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// D: nothing works here.
    None,
    /// C: no rules on files, but system calls and network are filtered.
    NetworkOnly,
    /// B: the kernel's own rules on files (Landlock), and filtered system calls.
    KernelRules,
    /// A: namespaces of its own for files, processes, network and IPC, and everything of B inside.
    Full,
    /// E: the person who runs us says that the surroundings hold.
    External,
}

impl Tier {
    /// As records and settings name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NetworkOnly => "network",
            Self::KernelRules => "kernel",
            Self::Full => "full",
            Self::External => "external",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a tier is brought about on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Tier A, where this process is privileged: namespaces without a user namespace. The command keeps the rights over
    /// files that root has (a container's workspace often belongs to somebody else) and no others.
    Namespaces,
    /// Tier A for everybody: namespaces owned by a user namespace. The command has no capabilities.
    UserNamespace,
    /// Tier B.
    Landlock,
    /// Tier C.
    SystemCalls,
}

impl Way {
    pub fn tier(self) -> Tier {
        match self {
            Self::Namespaces | Self::UserNamespace => Tier::Full,
            Self::Landlock => Tier::KernelRules,
            Self::SystemCalls => Tier::NetworkOnly,
        }
    }

    pub(crate) fn has_namespaces(self) -> bool {
        self.tier() == Tier::Full
    }
}

/// What a command may use up. Each is a bound that ends a runaway, not a budget: an honest build stays far below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Writable memory of one process (`RLIMIT_DATA`); more is refused. None: what the machine has. The default is none,
    /// because the kernel counts what is reserved and not what is used; a command is also the first that is ended when
    /// memory runs out.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the command together where it has namespaces and Linux is 6.14 or newer; else of its user,
    /// where that is not root. A parallel build of a large project has some hundreds.
    pub processes: u64,
    /// The largest file it may write. Larger than any build product we know of, smaller than most disks.
    pub file_bytes: u64,
    /// Open files of one process. Programs that keep a table of all possible ones stay quick.
    pub open_files: u64,
    /// The memory that files in its private home may take, and in `/tmp` where that is memory: a `scratch` folder has no bound
    /// but `file_bytes`.
    pub private_bytes: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            processes: 4096,
            file_bytes: 16 << 30,
            open_files: 16 * 1024,
            private_bytes: 2 << 30,
        }
    }
}

/// The step of setting up that failed; the command did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Working out what the command may reach.
    Plan,
    Namespaces,
    UserMap,
    /// A copy of a folder for the command's view.
    Grab,
    /// The command's own root folder.
    Root,
    /// A folder or file in it.
    Place,
    Proc,
    Devices,
    Network,
    Capabilities,
    Limits,
    Landlock,
    SystemCalls,
    /// The process that collects what the command leaves.
    Init,
    /// The one way out to the hosts it may reach.
    Proxy,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "working out what it may reach",
            Self::Namespaces => "making namespaces",
            Self::UserMap => "mapping users",
            Self::Grab => "copying a folder into its view",
            Self::Root => "making its root folder",
            Self::Place => "placing a folder in its view",
            Self::Proc => "mounting /proc",
            Self::Devices => "making devices",
            Self::Network => "setting up its network",
            Self::Capabilities => "dropping capabilities",
            Self::Limits => "setting limits",
            Self::Landlock => "setting rules on files",
            Self::SystemCalls => "filtering system calls",
            Self::Init => "starting its first process",
            Self::Proxy => "opening the way out to its hosts",
        })
    }
}

impl Step {
    pub(crate) const ALL: [Self; 14] = [
        Self::Plan,
        Self::Namespaces,
        Self::UserMap,
        Self::Grab,
        Self::Root,
        Self::Place,
        Self::Proc,
        Self::Devices,
        Self::Network,
        Self::Capabilities,
        Self::Limits,
        Self::Landlock,
        Self::SystemCalls,
        Self::Init,
    ];
}
