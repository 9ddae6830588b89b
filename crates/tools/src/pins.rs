//! The programs a task names, pinned by content: what the model may have rewritten is not run unasked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use longrein_core::hook::HookSpec;
use longrein_core::ids::Digest;
use longrein_core::mcp::{McpReach, McpServer};
use longrein_core::task::{CheckSpec, Task, ToolBody, ToolSpec};
use longrein_workspace::digest_of;

use crate::modules;

/// What else a command runs than what its words name: the scripts of its shell text, and what those run. Takes the words and
/// the folder it is run in, gives absolute paths.
pub type RunBy<'a> = &'a dyn Fn(Role, &[String], &str) -> Vec<PathBuf>;

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It does something: what it runs by shell text may be the work.
    Acts,
    /// It judges all of the work. The check of a tool does not: what the tool is there to change would stop it.
    Judges,
}

/// Digests of all files that commands of the task name: tools, their reconcile commands and checks, acceptance commands,
/// hooks, servers of somebody else's. A word counts if it names a file under the task's folder, the workspace or the folder of the file that declares
/// a hook, and so does what [`RunBy`] tells; keys are absolute paths.
pub fn pins(task: &Task, run_by: RunBy<'_>) -> BTreeMap<String, Digest> {
    let of_tools = task.tools.iter().flat_map(|tool| of_tool(task, tool, run_by));
    let of_checks = task.every_check().flat_map(|check| of_check(task, check, run_by));
    let of_hooks = task.hooks.iter().flat_map(|hook| of_hook(task, hook, run_by));
    let of_servers = task.servers.values().flat_map(|server| of_server(task, server, run_by));
    of_tools
        .chain(of_checks)
        .chain(of_hooks)
        .chain(of_servers)
        .filter_map(|path| Some((path.to_str()?.to_owned(), digest_of(&path)?)))
        .collect()
}

/// Files that a tool's commands may name, whether they exist or not.
pub(crate) fn of_tool(task: &Task, tool: &ToolSpec, run_by: RunBy<'_>) -> Vec<PathBuf> {
    let reconcile = match &tool.body {
        ToolBody::Command(_) | ToolBody::Builtin(_) => tool.reconcile.as_slice(),
        // The version of a function. A server's program is minded by who starts it.
        ToolBody::Host(_) | ToolBody::Mcp(_) => &[],
    };
    let commands = [tool.body.command(), reconcile, &tool.check];
    commands.into_iter().flat_map(|command| named(task, &task.folder, (Role::Acts, command), run_by)).collect()
}

pub(crate) fn of_check(task: &Task, check: &CheckSpec, run_by: RunBy<'_>) -> Vec<PathBuf> {
    named(task, &task.workspace, (Role::Judges, &check.command), run_by)
}

pub(crate) fn of_hook(task: &Task, hook: &HookSpec, run_by: RunBy<'_>) -> Vec<PathBuf> {
    named(task, &hook.folder, (Role::Acts, &hook.command), run_by)
}

/// Files that the command of a server names, whether they exist or not. What its shell text names counts as well, word by
/// word: all of it is the server's program, and none of it the work of a run.
pub fn of_server(task: &Task, server: &McpServer, run_by: RunBy<'_>) -> Vec<PathBuf> {
    let McpReach::Stdio { command, folder, .. } = &server.reach else { return Vec::new() };
    let parts = |word: &String| -> Vec<String> {
        let is_apart = |letter: char| letter.is_whitespace() || ";&|<>()\"'`=".contains(letter);
        word.split(is_apart).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let texts: Vec<String> = command.iter().filter(|word| word.contains(char::is_whitespace)).flat_map(parts).collect();
    let mut files = named(task, folder, (Role::Acts, command), run_by);
    files.extend(named(task, folder, (Role::Acts, &texts), &|_, _, _| Vec::new()));
    files.retain(|file| !is_kept_by_it(file));
    files
}

/// What a server is given to keep its data in changes with every call, and is no program.
fn is_kept_by_it(file: &Path) -> bool {
    let kind = file.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    ["db", "sqlite", "sqlite3", "duckdb", "log"].contains(&kind.to_ascii_lowercase().as_str())
}

/// `base`: what a word is relative to.
fn named(task: &Task, base: &str, (role, command): (Role, &[String]), run_by: RunBy<'_>) -> Vec<PathBuf> {
    if command.is_empty() {
        return Vec::new();
    }
    let roots = [base, &task.folder, &task.workspace].map(|root| normal(Path::new(root)));
    let files: Vec<PathBuf> = command
        .iter()
        .filter(|word| !word.is_empty() && !word.contains('\0'))
        .map(|word| normal(&Path::new(base).join(word)))
        .chain(run_by(role, command, base))
        .filter(|path| roots.iter().any(|root| path != root && path.starts_with(root)))
        .filter(|path| !path.is_dir())
        .collect();
    let taken_first: BTreeSet<PathBuf> =
        files.iter().filter_map(|file| folder_of_modules(file)).flat_map(modules::taken_first).collect();
    files.into_iter().chain(taken_first).collect()
}

/// Where a program looks for its modules first. None: it is no program of Python's.
pub(crate) fn folder_of_modules(file: &Path) -> Option<&Path> {
    file.extension().filter(|kind| *kind == "py").and(file.parent())
}

/// Without `.` and `..`, by the words alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}

/// A file's digest, remembered for as long as the file shows no sign of change.
#[derive(Debug, Default)]
pub struct Hashes {
    known: Mutex<BTreeMap<PathBuf, (Stamp, Digest)>>,
}

/// What changes when a file does. The change time cannot be set back by a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether another write could have left the same stamp: file times move in ticks of some milliseconds.
    fn is_fresh(&self) -> bool {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        SystemTime::now().duration_since(changed).map_or(true, |age| age < Duration::from_secs(2))
    }
}

impl Hashes {
    /// None: there is no such file, or it cannot be read.
    pub fn of(&self, path: &Path) -> Option<Digest> {
        let stamp = Stamp::of(&fs::metadata(path).ok()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, digest)) = known.get(path)
            && *seen == stamp
        {
            return Some(digest.clone());
        }
        let digest = digest_of(path)?;
        if stamp.is_fresh() {
            known.remove(path);
        } else {
            known.insert(path.to_owned(), (stamp, digest.clone()));
        }
        Some(digest)
    }
}
