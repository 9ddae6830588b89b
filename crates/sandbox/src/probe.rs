//! Which walls hold here: found by attacking them, from inside a real child, before the first command.
//!
//! The strongest way whose attacks all fail is taken. Nothing is believed from version numbers or settings, except what
//! cannot be tried without harm.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

pub use crate::attack::Attack;
use crate::attack::Attacks;
use crate::confine::{Confined, Confinement, Network, Tier, Way};
use crate::landlock;
use crate::spec::{How, Keep, Marker, Spec, StartError, Stderr};
use crate::supervise::run_after;

/// What was found out about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// None: nothing holds.
    pub way: Option<Way>,
    pub tried: Vec<Attempt>,
}

/// One way that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub way: Way,
    pub became: Became,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// A command ran, and no attack that this way is to stop came through. Those that did are named.
    Held { stopped: Vec<Attack>, open: Vec<Attack> },
    /// These came through.
    Breached { by: Vec<Attack> },
    /// The walls could not be put up, or no command runs inside.
    Unusable { why: String },
}

impl Probed {
    pub fn tier(&self) -> Tier {
        self.way.map_or(Tier::None, Way::tier)
    }

    /// For people: what they have, in one or two sentences.
    pub fn sentence(&self) -> String {
        match self.tier() {
            Tier::Full => "Sandbox: full. Commands can write only here and have no network.".to_owned(),
            Tier::KernelRules => "Sandbox: partial. Writes and network are blocked; file modes, and secrets inside \
                allowed folders, are not protected. Allow user namespaces for the full level."
                .to_owned(),
            Tier::NetworkOnly => "Sandbox: weak. Files are NOT protected; I will ask before each command.".to_owned(),
            Tier::None => format!(
                "Sandbox: none (reason: {}). Unattended runs are refused. If this machine is already isolated, set \
                 sandbox=external.",
                self.reason()
            ),
            Tier::External => "Sandbox: trusted to the surroundings by your setting.".to_owned(),
        }
    }

    fn reason(&self) -> String {
        self.tried.last().map_or("nothing could be tried".to_owned(), |attempt| attempt.became.to_string())
    }

    pub fn protects(&self) -> Vec<&'static str> {
        match self.tier() {
            Tier::Full => vec![
                "files outside the workspace: not to be changed, and only system folders and tool chains to be read",
                ".git internals and other protected files inside the workspace",
                "credentials in the home folder, and files such as .env in the workspace",
                "the network, except through our proxy",
                "other processes: not to be seen, signalled or read",
                "the machine: every process of a command ends with it",
            ],
            Tier::KernelRules => {
                let mut kept = vec![
                    "files outside the workspace: not to be changed, and only system folders and tool chains to be read",
                    "credentials in the home folder",
                    "the network, except through our proxy where the kernel can bind connections to it",
                    "sockets of other programs",
                    "memory and environment of other processes",
                ];
                if self.stops(Attack::Signal) {
                    kept.push("other processes: no signals to them");
                }
                kept
            }
            Tier::NetworkOnly => vec!["the network", "sockets of other programs"],
            Tier::None | Tier::External => Vec::new(),
        }
    }

    pub fn not_protected(&self) -> Vec<&'static str> {
        let mut open = match self.tier() {
            Tier::Full => {
                vec!["what a command may write: it can destroy the workspace", "time on the processor, and disk space"]
            }
            Tier::KernelRules => vec![
                "modes, owners and times of files outside the workspace, where the user may change them",
                ".git internals, other protected files and secrets inside the workspace",
                "names and command lines of other processes: they can be seen",
                "memory in all: only that of one process is bounded",
            ],
            Tier::NetworkOnly => vec!["files", "other processes of this user"],
            Tier::None | Tier::External => vec!["files", "network", "other processes of this user"],
        };
        if self.tier() == Tier::KernelRules {
            if !self.stops(Attack::Signal) {
                open.push("other processes of this user: they can be signalled (needs Linux 6.12)");
            }
            if landlock::version().is_some_and(|version| version < landlock::TRUNCATION_FROM) {
                open.push("the length of files: they can be cut (needs Linux 6.2)");
            }
        }
        open
    }

    /// Whether this was seen to be stopped by the way that was taken.
    pub fn stops(&self, attack: Attack) -> bool {
        self.tried.iter().any(|attempt| match &attempt.became {
            Became::Held { stopped, .. } => Some(attempt.way) == self.way && stopped.contains(&attack),
            Became::Breached { .. } | Became::Unusable { .. } => false,
        })
    }
}

impl fmt::Display for Became {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |attacks: &[Attack]| attacks.iter().map(|attack| attack.as_str()).collect::<Vec<_>>().join(", ");
        match self {
            Self::Held { stopped, open } if open.is_empty() => write!(f, "all {} attacks failed", stopped.len()),
            Self::Held { stopped, open } => {
                write!(f, "{} attacks failed; a command can {}", stopped.len(), names(open))
            }
            Self::Breached { by } => write!(f, "a command could {}", names(by)),
            Self::Unusable { why } => f.write_str(why),
        }
    }
}

/// As [`probe`], for whoever cannot wait for a future: a ruling, whose asker is no async function. The first who asks waits
/// some milliseconds.
///
/// # Panics
/// Where no thread or runtime can be made: then no command could be run either.
pub fn probe_blocking() -> &'static Probed {
    static PROBED: std::sync::OnceLock<&'static Probed> = std::sync::OnceLock::new();
    PROBED.get_or_init(|| {
        // a runtime of its own: the asker may stand inside another one
        let found = std::thread::Builder::new().name("longrein-probe".to_owned()).spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime of one thread can be made").block_on(probe())
        });
        found.expect("a thread can be made").join().expect("the probe does not panic")
    })
}

/// Attacks every way from the strongest on, until one holds. Once per process.
pub async fn probe() -> &'static Probed {
    static PROBED: OnceCell<Probed> = OnceCell::const_new();
    PROBED
        .get_or_init(|| async {
            let mut tried = Vec::new();
            for way in [Way::Namespaces, Way::UserNamespace, Way::Landlock, Way::SystemCalls] {
                // without privileges it is refused anyway, and says nothing
                if way == Way::Namespaces && !rustix::process::geteuid().is_root() {
                    continue;
                }
                let became = probe_way(way).await;
                let holds = matches!(became, Became::Held { .. });
                tried.push(Attempt { way, became });
                if holds {
                    return Probed { way: Some(way), tried };
                }
            }
            Probed { way: None, tried }
        })
        .await
}

/// Attacks one way.
pub async fn probe_way(way: Way) -> Became {
    match attacked(way).await {
        Ok(became) => became,
        Err(why) => Became::Unusable { why },
    }
}

/// A command that takes longer than this to do nothing is of no use.
const PATIENCE: Duration = Duration::from_secs(10);

async fn attacked(way: Way) -> Result<Became, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("longrein-probe-{}-{number}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let made = |what: &dyn fmt::Display| format!("cannot try it in {}: {what}", folder.0.display());
    let scratch = folder.0.join("scratch");
    std::fs::create_dir_all(&scratch).map_err(|error| made(&error))?;
    let attacks = Arc::new(Attacks::on(&folder.0).map_err(|error| made(&error))?);
    let mut confined = Confined::new(way);
    confined.network = Network::Off;
    confined.scratch = Some(scratch.clone());
    let place = if way.tier() == Tier::Full { Path::new("/tmp") } else { &scratch };
    let ended = run_after(
        Spec {
            argv: ["/bin/sh", "-c", ": > \"$0\"", &format!("{}/made", place.display())].map(str::to_owned).into(),
            cwd: "/".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            stdout: Keep::Ends { max_bytes: 1024, flood_bytes: 1 << 20 },
            stderr: Stderr::WithStdout,
            timeout: PATIENCE,
            marker: Marker { run: "probe".to_owned(), action: number.to_string(), fence: 0 },
            confinement: Confinement::Confined(Box::new(confined)),
        },
        Some(Arc::clone(&attacks)),
    )
    .await
    .map_err(|error| match error {
        StartError::Sandbox { .. } => error.to_string(),
        StartError::Empty
        | StartError::NotFound { .. }
        | StartError::NoInterpreter { .. }
        | StartError::NotExecutable { .. }
        | StartError::BadFormat { .. }
        | StartError::TooLarge
        | StartError::Nul { .. }
        | StartError::Folder { .. }
        | StartError::System(_) => format!("no command runs inside: {error}"),
    })?;
    if ended.how != How::Exited(0) || !scratch.join("made").exists() {
        let said = String::from_utf8_lossy(&ended.stdout.head).trim().to_owned();
        return Err(format!("no command runs inside: {:?} {said}", ended.how));
    }
    let (open, stopped): (Vec<_>, Vec<_>) = Attack::ALL.into_iter().partition(|attack| attacks.came_through(*attack));
    let breaches: Vec<Attack> = open.iter().copied().filter(|attack| must_stop(way, *attack)).collect();
    Ok(if breaches.is_empty() { Became::Held { stopped, open } } else { Became::Breached { by: breaches } })
}

/// What a way is worth nothing without.
fn must_stop(way: Way, attack: Attack) -> bool {
    match way.tier() {
        Tier::Full => true,
        // older kernels have no rules on signals
        Tier::KernelRules => attack != Attack::Signal,
        Tier::NetworkOnly => match attack {
            Attack::Connect | Attack::UnixSocket | Attack::NewNamespace | Attack::Mount => true,
            Attack::WriteOutside | Attack::ReadHidden | Attack::LookInto | Attack::Signal => false,
        },
        Tier::None | Tier::External => false,
    }
}

struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // what is left in the folder for temporary files is the system's to remove
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
