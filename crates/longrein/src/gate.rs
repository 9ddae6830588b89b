//! The gate's view of this machine: which files are Longrein's own, where home is, what links and names the file system
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::pins::Commands;
use crate::settings::SandboxMode;
use longrein_core::ruling::Ruling;
use longrein_core::task::{Builtin, PolicyRules, Task, ToolBody};
use longrein_policy::{BadRule, Containment, Fence, File, Ledger, Policy, Surroundings, World};
use longrein_ports::{Gate, GateCall, Ruled};
use longrein_sandbox::Tier;
use longrein_tools::Role;
use serde::Deserialize;

/// The policy of a run of this task, under these rules.
pub(crate) fn policy(
    task: &Task,
    rules: &PolicyRules,
    store: &str,
    environment: &BTreeMap<String, String>,
    known: Known,
) -> Result<Policy, BadRule> {
    let tools = task.tools.iter().map(|tool| &tool.name);
    let Known { ledger, fence } = known;
    let here = surroundings(Some(store), environment, Arc::new(FileSystem));
    Policy::read(rules, tools, Surroundings { ledger, fence, ..here })
}

/// A gate that tells the whole of what a command runs: a yes to a script is one to what that sources, too.
pub(crate) struct Whole(pub(crate) Policy);

impl Gate for Whole {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        let mut ruled = self.0.judge(call);
        let is_shell = call.tool.body == ToolBody::Builtin(Builtin::Shell);
        // Only where somebody is asked does it matter, and a command that runs no file has nothing to tell.
        if is_shell && matches!(ruled.ruling, Ruling::Ask { .. }) && !ruled.runs.is_empty() {
            let Shell { command, cwd } = call.args.read().unwrap_or_default();
            let words = ["sh", "-c", command.as_str()].map(str::to_owned);
            let folder = Path::new(call.workspace).join(cwd.unwrap_or_default());
            let found = Commands::within(call.workspace).run_by(Role::Acts, &words, &folder.to_string_lossy());
            let mut runs: BTreeSet<String> = std::mem::take(&mut ruled.runs).into_iter().collect();
            runs.extend(found.into_iter().filter_map(|file| file.into_os_string().into_string().ok()));
            ruled.runs = runs.into_iter().collect();
        }
        ruled
    }
}

/// The part of a shell call that says what it runs.
#[derive(Default, Deserialize)]
struct Shell {
    command: String,
    /// From the workspace.
    cwd: Option<String>,
}

/// What a run's policy knows beside the machine.
pub(crate) struct Known {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) fence: Arc<dyn Fence>,
}

/// What a policy has to know of this machine. `store` is a URL; None: no store is in use.
pub(crate) fn surroundings(
    store: Option<&str>,
    environment: &BTreeMap<String, String>,
    world: Arc<dyn World>,
) -> Surroundings {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let data = set("XDG_DATA_HOME").or_else(|| below_home(".local/share")).map(|folder| folder.join("longrein"));
    let longrein_home = set("LONGREIN_HOME").or_else(|| data.clone());
    let config = set("XDG_CONFIG_HOME").or_else(|| below_home(".config")).map(|folder| folder.join("longrein"));
    let store = store.and_then(|url| url.strip_prefix("sqlite:")).map(PathBuf::from);
    let own = [longrein_home.clone(), data, config, store, Some(PathBuf::from("/etc/longrein"))];
    // as written and as it is: a link to it is a way to it as well
    let own = own.into_iter().flatten().flat_map(|path| [std::path::absolute(&path).ok(), real(&path)]);
    let binary = std::env::current_exe().ok();
    let text = |path: PathBuf| path.into_os_string().into_string().ok();
    Surroundings {
        home: home.and_then(text),
        longrein_home: longrein_home.and_then(text),
        own: own.flatten().filter_map(text).collect(),
        binary: binary.and_then(text),
        git_config: Some(git_config(environment)),
        world,
        fence: Arc::new(Containment::Nothing),
        ledger: Arc::new(longrein_ports::NoOrigins),
    }
}

/// Where the operator's git looks for what holds in every repository.
fn git_config(environment: &BTreeMap<String, String>) -> Vec<String> {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let config = set("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let system = set("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"));
    let global = match set("GIT_CONFIG_GLOBAL") {
        Some(only) => vec![Some(only)],
        None => vec![config.map(|config| config.join("git/config")), home.map(|home| home.join(".gitconfig"))],
    };
    let files = std::iter::once(Some(system)).chain(global).flatten();
    files.filter_map(|file| std::path::absolute(file).ok()?.into_os_string().into_string().ok()).collect()
}

/// Longrein's own files, for what hides them.
pub(crate) fn own_files(store: &str, environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let around = surroundings(Some(store), environment, Arc::new(FileSystem));
    around.own.into_iter().map(PathBuf::from).chain(notes(store)).collect()
}

/// What the operator's git runs or obeys in a workspace by their configuration.
pub(crate) fn obeyed(workspace: &str, environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let around = surroundings(None, environment, Arc::new(FileSystem));
    longrein_policy::obeyed_by_git(&around, workspace).into_iter().map(PathBuf::from).collect()
}

/// Where it is noted what is held in workspaces: beside the store, and with it Longrein's own. None: the store is no file.
pub(crate) fn notes(store: &str) -> Option<PathBuf> {
    let store = std::path::absolute(store.strip_prefix("sqlite:")?).ok()?;
    let mut name = store.file_name()?.to_owned();
    name.push("-held");
    Some(store.with_file_name(name))
}

/// Where the tool chains of this user keep what they fetched, and the locks they take for it.
pub(crate) fn caches(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let of_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let cargo = set("CARGO_HOME").or_else(|| of_home(".cargo"));
    let go = set("GOPATH").or_else(|| of_home("go"));
    let below = |root: Option<PathBuf>, names: &[&str]| -> Vec<PathBuf> {
        root.iter().flat_map(|root| names.iter().map(|name| root.join(name))).collect()
    };
    let of_cargo = ["registry", "git", ".package-cache", ".package-cache-mutate", ".global-cache"];
    [
        below(cargo, &of_cargo),
        below(go, &["pkg"]),
        below(home.clone(), &[".npm", ".cache/pip", ".cache/uv", ".cache/yarn"]),
    ]
    .concat()
}

/// What holds commands on this machine, under an operator's setting.
pub(crate) struct Walls(pub(crate) SandboxMode);

impl Fence for Walls {
    fn holds(&self) -> Containment {
        match self.0 {
            SandboxMode::External => Containment::Surroundings,
            SandboxMode::Best | SandboxMode::Required => match longrein_sandbox::probe_blocking().tier() {
                Tier::Full | Tier::KernelRules => Containment::Writes,
                Tier::NetworkOnly => Containment::Network,
                Tier::None => Containment::Nothing,
                Tier::External => Containment::Surroundings,
            },
        }
    }
}

/// A path without links, though its last part may not be there yet.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}

/// The file system as it is now.
pub(crate) struct FileSystem;

impl World for FileSystem {
    fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(path).ok()?;
        // a target that is no text leads nowhere that could be judged: no path of ours has such a part
        Some(target.into_os_string().into_string().unwrap_or_else(|_| UNREADABLE_LINK.to_owned()))
    }

    fn names(&self, folder: &str) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).ok()? {
            if names.len() == NAMES_MAX {
                return None;
            }
            names.push(entry.ok()?.file_name().into_string().ok()?);
        }
        names.sort_unstable();
        Some(names)
    }

    fn is_crowded(&self, folder: &str) -> bool {
        self.names(folder).is_none() && std::fs::read_dir(folder).is_ok()
    }

    fn file(&self, path: &str) -> File {
        match std::fs::metadata(path) {
            // what is no file may never end
            Ok(found) if found.is_file() && found.len() <= FILE_MAX_BYTES => {
                std::fs::read(path).map_or(File::Unreadable, File::Content)
            }
            Ok(_) => File::Unreadable,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => File::Missing,
            Err(_) => File::Unreadable,
        }
    }
}

/// Outside every workspace, so that what leads there is asked about.
const UNREADABLE_LINK: &str = "/proc/self/unreadable";
/// A folder with more names is not listed for a pattern.
const NAMES_MAX: usize = 10_000;
/// A file that says what programs do is smaller: the index of a repository with a hundred thousand files has ten million.
const FILE_MAX_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longreins_own_files_are_known_under_every_name() {
        let folder = std::env::temp_dir().join(format!("longrein-gate-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(folder.join("real"), &link).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let environment = BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]);
        let store = format!("sqlite:{}", text(&link.join("s.db")));
        let found = surroundings(Some(&store), &environment, Arc::new(FileSystem));
        let real = folder.canonicalize().unwrap().join("real/s.db");
        for path in [
            "/home/me/.local/share/longrein".to_owned(),
            "/home/me/.config/longrein".to_owned(),
            "/etc/longrein".to_owned(),
            text(&link.join("s.db")),
            text(&real),
        ] {
            assert!(found.own.contains(&path), "{path}: {:?}", found.own);
        }
        assert_eq!(FileSystem.link(&text(&link)), Some(text(&folder.join("real"))));
        assert_eq!(FileSystem.names(&text(&folder)), Some(vec!["link".to_owned(), "real".to_owned()]));
        assert!(!FileSystem.is_crowded(&text(&folder)) && !FileSystem.is_crowded(&text(&folder.join("none"))));
        std::fs::write(folder.join("real/f"), "x").unwrap();
        assert_eq!(FileSystem.file(&text(&folder.join("link/f"))), File::Content(b"x".to_vec()));
        assert_eq!(FileSystem.file(&text(&folder.join("link"))), File::Unreadable);
        assert_eq!(FileSystem.file(&text(&folder.join("none/f"))), File::Missing);
        assert_eq!(FileSystem.file(&text(&folder.join("real/f/x"))), File::Missing);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
