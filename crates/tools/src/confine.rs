//! What the commands of a run may reach: from what a task declares of a tool to the walls around its processes.
//!
//! Nothing of a call enters here. A model cannot ask for other walls, because no argument leads to this module.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use longrein_core::ruling::{Effect, EffectKind};
use longrein_core::task::{Task, ToolSpec};
use longrein_sandbox::{Confined, Confinement, Ended, Network, Spec, StartError, Stderr, Tier, Way, probe_blocking};
use tempfile::TempDir;

use crate::beyond::{self, Made};
use crate::held::{self, Held, Hold};
use crate::hint;
use crate::planted::Watch;
use crate::terrain::{OBEYED, Terrain, is_harmless};

/// How the commands of a run are confined; made once per run, by whoever made the [`Toolbox`](crate::Toolbox).
#[derive(Debug, Default)]
pub struct Sandbox {
    pub walls: Walls,
    /// What commands of the shell may do in it.
    pub workspace: Workspace,
    /// What the operator grants beside what tasks name.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Longrein's own files and other secrets, wherever they lie.
    pub hidden: Vec<PathBuf>,
    /// Where tool chains keep what they fetched: to be written by a command that was allowed to reach out.
    pub caches: Vec<PathBuf>,
    /// Temporary files of the run's commands: made for the first, removed with this.
    scratch: OnceLock<Option<TempDir>>,
    /// What lay in the workspace before the first command; what commands add is theirs.
    terrain: OnceLock<Terrain>,
    /// Where it is noted what is held for commands, out of their reach. None: nowhere, and a kill leaves it.
    notes: Option<PathBuf>,
    held: OnceLock<Held>,
    /// What the operator's git configuration names in the workspace: run or obeyed later.
    obeyed: Vec<PathBuf>,
}

/// What commands of the shell may do in the workspace: a plan and a shadow only look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Workspace {
    #[default]
    Writable,
    ReadOnly,
}

/// What is put around commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Walls {
    /// Nothing: the surroundings are trusted to hold, or there is nobody to be held.
    #[default]
    None,
    /// The strongest that hold on this machine, found out before the first command.
    Strongest,
}

/// Of a workspace, what runs by itself or says what runs: read-only for its commands.
const PROTECTED: [&str; 3] = [".git/hooks", ".git/config", ".longrein"];

/// Of a workspace, what usually holds secrets, even if it comes later.
const SECRETS: [&str; 8] =
    [".env", ".env.local", ".envrc", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass"];

impl Sandbox {
    pub fn new(walls: Walls, workspace: Workspace, hidden: Vec<PathBuf>) -> Self {
        Self { walls, workspace, hidden, ..Self::default() }
    }

    /// With what tool chains keep.
    #[must_use]
    pub fn with_caches(self, caches: Vec<PathBuf>) -> Self {
        Self { caches, ..self }
    }

    /// With what the operator grants.
    #[must_use]
    pub fn granting(self, read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        Self { read, write, ..self }
    }

    /// With a folder for notes on what is held in workspaces: no command may reach it.
    #[must_use]
    pub fn noting(self, notes: PathBuf) -> Self {
        Self { notes: Some(notes), ..self }
    }

    /// With what the operator's git obeys in the workspace: read-only, but for what a call was allowed by name.
    #[must_use]
    pub fn obeying(self, obeyed: Vec<PathBuf>) -> Self {
        Self { obeyed, ..self }
    }

    /// Takes away what runs that were killed left in a workspace where git would obey it: before anything else is done there.
    /// A line each for people.
    pub fn sweep(&self, workspace: &Path) -> Vec<String> {
        self.notes.iter().flat_map(|notes| held::sweep(workspace, notes)).collect()
    }

    fn way(&self) -> Option<Way> {
        match self.walls {
            Walls::None => None,
            Walls::Strongest => probe_blocking().way,
        }
    }

    /// As records name it.
    pub(crate) fn tier(&self) -> Tier {
        match self.walls {
            Walls::None => Tier::External,
            Walls::Strongest => probe_blocking().tier(),
        }
    }

    /// Whether a command can reach nothing but what it is given.
    pub(crate) fn holds_network(&self) -> bool {
        self.way().is_some()
    }

    fn scratch(&self) -> Option<PathBuf> {
        let made = self.scratch.get_or_init(|| tempfile::Builder::new().prefix("longrein-").tempdir().ok());
        made.as_ref().map(|folder| folder.path().to_owned())
    }

    fn terrain(&self, task: &Task) -> &Terrain {
        self.terrain.get_or_init(|| Terrain::of(Path::new(&task.workspace)))
    }

    /// Holds the names that git obeys and that are not there, until this is dropped.
    fn hold(&self, task: &Task, run: &str) {
        let Some(way) = self.way() else { return };
        let hold = match way {
            Way::Namespaces | Way::UserNamespace => Hold::Mounted,
            Way::Landlock | Way::SystemCalls => Hold::Watched,
        };
        let workspace = Path::new(&task.workspace);
        let repositories = &self.terrain(task).repositories;
        self.held.get_or_init(|| Held::over(workspace, run, repositories, hold, self.notes.as_deref()));
    }

    /// Runs a command in its walls, and takes away what it planted for the operator's git. Every command of a run goes
    /// through here.
    pub(crate) async fn run(&self, task: &Task, spec: Spec) -> Result<Ended, StartError> {
        let mut watch = match spec.confinement {
            Confinement::None => None,
            Confinement::Confined(_) => {
                self.hold(task, &spec.marker.run);
                Some(Watch::over(Path::new(&task.workspace), &self.terrain(task).repositories, self.scratch()))
            }
        };
        let is_together = matches!(spec.stderr, Stderr::WithStdout);
        let confined = match &spec.confinement {
            Confinement::None => None,
            Confinement::Confined(confined) => Some(confined.clone()),
        };
        let mut ended = longrein_sandbox::run(spec).await?;
        let mut told = watch.as_mut().map(Watch::clear).unwrap_or_default();
        let hint = confined.filter(|_| told.is_empty()).and_then(|confined| hint::hint(&ended, &confined));
        told.extend(hint.map(str::to_owned));
        let output = if is_together { &mut ended.stdout } else { &mut ended.stderr };
        for line in told {
            output.append(format!("\n{line}\n").as_bytes());
        }
        Ok(ended)
    }

    /// The walls around a declared tool.
    /// `proxy`: the socket of a proxy to the hosts it names.
    pub(crate) fn of_tool(&self, task: &Task, spec: &ToolSpec, proxy: Option<&Path>) -> Confinement {
        let writes = match &spec.writes {
            Some(declared) => below(task, declared).iter().map(|path| made_there(task, path)).collect(),
            // undeclared is everything the task is about, and the folder its programs lie and keep their things in: a program
            // that reads for the task may well note down that it did
            None => vec![PathBuf::from(&task.workspace), PathBuf::from(&task.folder)],
        };
        let reads = match &spec.reads {
            Some(declared) => below(task, declared),
            None => vec![PathBuf::from(&task.workspace)],
        };
        let network = proxy.map_or(Network::Off, |socket| Network::Proxy { socket: socket.to_owned() });
        let mut confinement = self.walls(task, reads, writes, network);
        // what the operator names for this tool is meant for it, whatever its name
        if let (Confinement::Confined(confined), Some(declared)) = (&mut confinement, &spec.reads) {
            let named = below(task, declared);
            confined.hidden.retain(|hidden| !named.contains(hidden));
        }
        confinement
    }

    /// The walls around a server of somebody else's that is a program: it may write what a declared tool may.
    pub fn of_server(
        &self,
        task: &Task,
        reads: Vec<PathBuf>,
        writes: Vec<PathBuf>,
        proxy: Option<&Path>,
    ) -> Confinement {
        let network = proxy.map_or(Network::Off, |socket| Network::Proxy { socket: socket.to_owned() });
        let workspace = match self.workspace {
            Workspace::Writable => vec![PathBuf::from(&task.workspace), PathBuf::from(&task.folder)],
            Workspace::ReadOnly => Vec::new(),
        };
        let reads = reads.into_iter().chain([PathBuf::from(&task.workspace)]).collect();
        self.walls(task, reads, workspace.into_iter().chain(writes).collect(), network)
    }

    /// The walls around what works in the whole workspace: acceptance checks and hooks.
    pub(crate) fn of_workspace(&self, task: &Task) -> Confinement {
        self.walls(task, Vec::new(), vec![PathBuf::from(&task.workspace)], Network::Off)
    }

    /// The walls around a check: the workspace may be written, but not what is `fixed`.
    pub(crate) fn of_check(&self, task: &Task, fixed: Vec<PathBuf>) -> Confinement {
        let mut confinement = self.of_workspace(task);
        if let Confinement::Confined(confined) = &mut confinement {
            confined.read_only.extend(fixed);
        }
        confinement
    }

    /// The walls around a command of the shell. `beyond`: what a person or a rule allowed it although it lies elsewhere.
    /// With what was made for it, to be kept until it has ended.
    pub(crate) fn of_shell(&self, task: &Task, beyond: &[Effect]) -> (Confinement, Vec<Made>) {
        let mut made = Vec::new();
        if self.way().is_none() {
            return (Confinement::None, made);
        }
        let mut writes = match self.workspace {
            Workspace::Writable => vec![PathBuf::from(&task.workspace)],
            Workspace::ReadOnly => Vec::new(),
        };
        let mut reads = vec![PathBuf::from(&task.workspace)];
        let mut network = Network::Off;
        for Effect { kind, what } in beyond {
            match kind {
                EffectKind::Network => {
                    network = Network::Open;
                    writes.extend(self.caches.iter().filter(|cache| cache.exists()).cloned());
                }
                EffectKind::Read => reads.push(PathBuf::from(what)),
                EffectKind::Write => writes.extend(beyond::written(Path::new(what), &mut made)),
                EffectKind::Delete => writes.extend(beyond::emptied(Path::new(what), beyond)),
                EffectKind::Run | EffectKind::Unknown => {}
            }
        }
        let mut confinement = self.walls(task, reads, writes, network);
        if let (Confinement::Confined(confined), true) = (&mut confinement, beyond::adds_submodules(beyond)) {
            confined.sealed.clear();
        }
        if let Confinement::Confined(confined) = &mut confinement {
            let changes = |effect: &&Effect| matches!(effect.kind, EffectKind::Write | EffectKind::Delete);
            let is_named = |path: &PathBuf| {
                let mut named = beyond.iter().filter(changes).map(|effect| Path::new(&effect.what));
                named.any(|named| named.starts_with(path) || path.starts_with(named))
            };
            confined.read_only.retain(|path| !self.obeyed.contains(path) || !is_named(path));
        }
        (confinement, made)
    }

    /// The walls around a hook: as around the shell, and its own folder can be read, though it lie where what is Longrein's own
    /// lies: the user's configuration.
    pub(crate) fn of_hook(&self, task: &Task, folder: &Path) -> Confinement {
        let mut confinement = self.of_workspace(task);
        if let Confinement::Confined(confined) = &mut confinement {
            confined.hidden.retain(|hidden| !folder.starts_with(hidden));
            confined.reads.push(folder.to_owned());
        }
        confinement
    }

    fn walls(&self, task: &Task, reads: Vec<PathBuf>, writes: Vec<PathBuf>, network: Network) -> Confinement {
        let Some(way) = self.way() else { return Confinement::None };
        let workspace = Path::new(&task.workspace);
        let within = |names: &[&str]| names.iter().map(|name| workspace.join(name)).collect::<Vec<_>>();
        let terrain = self.terrain(task);
        let obeyed = terrain.repositories.iter().flat_map(|folder| OBEYED.map(|name| folder.join(name)));
        let mut confined = Confined::new(way);
        confined.reads = reads;
        // the program of a tool lies in the folder of its task
        confined.reads.push(PathBuf::from(&task.folder));
        confined.reads.extend(self.read.iter().cloned());
        confined.writes = writes.into_iter().chain(self.write.iter().cloned()).filter(|path| path.exists()).collect();
        confined.read_only =
            within(&PROTECTED).into_iter().chain(obeyed).chain(terrain.pointers.iter().cloned()).collect();
        confined.read_only.extend(self.obeyed.iter().cloned());
        // a folder of such a name is an environment of Python
        let secrets = within(&SECRETS)
            .into_iter()
            .filter(|path| !path.is_dir() && !is_harmless(path))
            .chain(terrain.secrets.iter().cloned());
        confined.hidden = self.hidden.iter().cloned().chain(secrets).collect();
        confined.sealed = terrain.sealed();
        confined.scratch = self.scratch();
        confined.network = network;
        Confinement::Confined(Box::new(confined))
    }
}

/// A declared path, or the folder of the task it is to be made in; no folder above those. What can be made nowhere stays as it
/// is, and is granted to nobody.
fn made_there(task: &Task, path: &Path) -> PathBuf {
    let roots = [Path::new(&task.workspace), Path::new(&task.folder)];
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    let nearest = path.ancestors().find(is_there).filter(|found| roots.iter().any(|root| found.starts_with(root)));
    nearest.unwrap_or(path).to_owned()
}

/// Declared paths count from the workspace.
fn below(task: &Task, declared: &[String]) -> Vec<PathBuf> {
    declared.iter().map(|path| Path::new(&task.workspace).join(path)).collect()
}
