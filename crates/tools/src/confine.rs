//! What the commands of a run may reach: from what a task declares of a tool to the walls around its processes.
//!
//! Nothing of a call enters here. A model cannot ask for other walls, because no argument leads to this module.

use std::path::{Path, PathBuf};

use longrein_core::task::{EffectClass, Task, ToolSpec};
use longrein_sandbox::{Confined, Confinement, Network, Tier, Way};

/// How the commands of a run are confined; made once per run, by whoever made the [`Toolbox`](crate::Toolbox).
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    /// As the probe found it. None: commands run without walls (nothing holds here, or the surroundings are trusted).
    pub way: Option<Way>,
    /// What the operator grants beside what tasks name.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Longrein's own files and other secrets, wherever they lie.
    pub hidden: Vec<PathBuf>,
    /// A folder for temporary files of the run's commands.
    pub scratch: Option<PathBuf>,
    /// The Unix socket of a proxy that lets through what a task names. None: a task that names hosts gets none of them.
    pub proxy: Option<PathBuf>,
}

/// Of a workspace, what runs by itself or says what runs: read-only for its commands.
const PROTECTED: [&str; 3] = [".git/hooks", ".git/config", ".longrein"];

/// Of a workspace, what usually holds secrets.
const SECRETS: [&str; 3] = [".env", ".env.local", ".envrc"];

impl Sandbox {
    /// As records name it.
    pub fn tier(&self) -> Tier {
        self.way.map_or(Tier::None, Way::tier)
    }

    /// The walls around a declared tool.
    pub(crate) fn of_tool(&self, task: &Task, spec: &ToolSpec) -> Confinement {
        let declared = |else_all: bool| match &spec.writes {
            Some(declared) => below(task, declared),
            None if else_all => vec![PathBuf::from(&task.workspace)],
            None => Vec::new(),
        };
        let writes = match spec.effect {
            EffectClass::Read => Vec::new(),
            EffectClass::Workspace => declared(true),
            EffectClass::External => declared(false),
        };
        let reads = match &spec.reads {
            Some(declared) => below(task, declared),
            None => vec![PathBuf::from(&task.workspace)],
        };
        self.walls(task, reads, writes, &spec.declared.network)
    }

    /// The walls around what works in the whole workspace: the shell, and acceptance checks.
    pub(crate) fn of_workspace(&self, task: &Task) -> Confinement {
        self.walls(task, Vec::new(), vec![PathBuf::from(&task.workspace)], &[])
    }

    fn walls(&self, task: &Task, reads: Vec<PathBuf>, writes: Vec<PathBuf>, hosts: &[String]) -> Confinement {
        let Some(way) = self.way else { return Confinement::None };
        let workspace = Path::new(&task.workspace);
        let within = |names: [&str; 3]| names.map(|name| workspace.join(name));
        let mut confined = Confined::new(way);
        confined.reads = reads;
        // the program of a tool lies in the folder of its task
        confined.reads.push(PathBuf::from(&task.folder));
        confined.reads.extend(self.read.iter().cloned());
        confined.writes = writes.into_iter().chain(self.write.iter().cloned()).filter(|path| path.exists()).collect();
        confined.read_only = within(PROTECTED).into();
        confined.hidden = self.hidden.iter().cloned().chain(within(SECRETS)).collect();
        confined.scratch = self.scratch.clone();
        confined.network = match &self.proxy {
            Some(socket) if !hosts.is_empty() => Network::Proxy { socket: socket.clone() },
            Some(_) | None => Network::Off,
        };
        Confinement::Confined(Box::new(confined))
    }
}

/// Declared paths count from the workspace.
fn below(task: &Task, declared: &[String]) -> Vec<PathBuf> {
    declared.iter().map(|path| Path::new(&task.workspace).join(path)).collect()
}
