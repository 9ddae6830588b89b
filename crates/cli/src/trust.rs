//! `longrein trust`, and what a workspace's own `.longrein/config.toml` says. It is read only where a person has trusted this
//! very content for this very folder, and may only tighten: whoever can write the workspace could have written it.
//!
//! What is trusted stands in `trusted.json` in Longrein's home, which no run can reach.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longrein::SandboxMode;
use longrein::core::ids::Digest;
use longrein::core::mcp::{McpReach, McpServer};
use longrein::core::task::{Mode, PolicyRules, Task};
use longrein::taskfile::{self, MCP_FILE, WrittenRules};
use rustix::fs::{Mode as FileMode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{Globals, TrustArgs};
use crate::config;
use crate::context;
use crate::failure::{Failure, Status};
use crate::out::{say, tell};
use crate::progress::print_line;
use crate::words;

mod offer;

use offer::Offer;

/// Where a workspace keeps its configuration.
const FOLDER: &str = ".longrein";
const FILE: &str = "config.toml";
/// No configuration is larger.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// What a trusted workspace's configuration adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tightening {
    /// Ask and deny; never allow.
    pub(crate) rules: PolicyRules,
    pub(crate) mode: Option<Mode>,
    pub(crate) sandbox: Option<SandboxMode>,
    /// The file.
    pub(crate) source: String,
}

/// What the configuration of a workspace adds to a run in it. One that is not trusted adds nothing, and is told of; with one
/// that cannot be read nobody knows whether it is trusted, and nothing is run.
pub(crate) fn of_workspace(workspace: &Path, globals: &Globals) -> Result<Option<Tightening>, Failure> {
    let file = workspace.join(FOLDER).join(FILE);
    let warn = |what: &str| {
        if !globals.quiet {
            tell!("longrein: {} {what}", words::safe(&file.display().to_string()));
        }
    };
    let bytes = match read(workspace) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(problem) => {
            let problem = format!("{}: it cannot be read: {problem}", words::safe(&file.display().to_string()));
            return Err(Failure::new(Status::Configuration, problem));
        }
    };
    let register = Register::open(&context::home()?)?;
    let command = format!("longrein trust {}", context::quoted(&workspace.to_string_lossy()));
    match register.entry(workspace) {
        Some(entry) if entry.digest == Digest::of(&bytes) => Ok(Some(tightening(&bytes, &file)?)),
        Some(_) => {
            warn(&format!("changed since you trusted it, and is not read; `{command}` shows and accepts it"));
            Ok(None)
        }
        None => {
            warn(&format!("is not trusted, and is not read; `{command}` shows and accepts it"));
            Ok(None)
        }
    }
}

/// Adds the servers of a workspace's `.mcp.json` to a task, where a person has trusted this very content. What the operator or
/// the task declares under the same name counts instead, or beside it where they do not say how it is reached.
pub(crate) fn add_servers(task: &mut Task, globals: &Globals) -> Result<(), Failure> {
    let workspace = PathBuf::from(&task.workspace);
    let file = workspace.join(MCP_FILE);
    let shown = words::safe(&file.display().to_string()).to_string();
    let tell = |what: &str| {
        if !globals.quiet {
            tell!("longrein: {shown} {what}");
        }
    };
    let bytes = match read_servers(&workspace) {
        Ok(None) => return Ok(()),
        Ok(Some(bytes)) => bytes,
        Err(problem) => {
            tell(&format!("is not read: {problem}"));
            return Ok(());
        }
    };
    let command = format!("longrein trust {}", context::quoted(&workspace.to_string_lossy()));
    match Register::open(&context::home()?)?.entry(&file) {
        Some(entry) if entry.digest == Digest::of(&bytes) => {}
        Some(_) => {
            tell(&format!("changed since you trusted it, and is not read; `{command}` shows and accepts it"));
            return Ok(());
        }
        None => {
            tell(&format!("is not trusted, and is not read; `{command}` shows and accepts it"));
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let wrong = |problem: String| Failure::new(Status::Configuration, format!("{shown}: {problem}"));
    let (servers, told) = taskfile::servers_of_workspace(&workspace, &text).map_err(wrong)?;
    told.iter().for_each(|line| tell(&format!("is read in part: {}", words::safe(line))));
    for (name, server) in servers {
        let ours = task.servers.entry(name).or_insert_with(|| server.clone());
        // ours say how far it is trusted, and the file how it is reached
        if ours.reach == McpReach::OfWorkspace {
            ours.reach = server.reach;
        }
    }
    Ok(())
}

/// The bytes of a workspace's `.mcp.json`; None: it has none. No link is followed.
fn read_servers(workspace: &Path) -> Result<Option<Vec<u8>>, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(workspace.join(MCP_FILE), flags, FileMode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err("it is a link".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(format!("it is larger than {FILE_MAX_BYTES} bytes"));
    }
    Ok(Some(bytes))
}

impl Tightening {
    /// The stricter of a run's mode and the workspace's.
    pub(crate) fn mode_for(&self, mode: Mode) -> Mode {
        self.mode.map_or(mode, |ours| mode.tightened(ours))
    }

    /// In words, one thing a line.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (word, rules) in [("denies", &self.rules.deny), ("has asked first", &self.rules.ask)] {
            lines.extend(rules.iter().map(|rule| format!("{word}: {}", words::safe(rule))));
        }
        lines.extend(self.mode.map(|mode| format!("permission mode at most: {mode}")));
        lines.extend(self.sandbox.map(|_| "sandbox: required".to_owned()));
        lines
    }
}

/// Reads a trusted configuration. Whatever could loosen is refused by name.
fn tightening(bytes: &[u8], file: &Path) -> Result<Tightening, Failure> {
    let source = file.display().to_string();
    let wrong = |problem: String| Failure::new(Status::Configuration, format!("{source}: {problem}"));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8".to_owned()))?;
    let table: toml::Table =
        toml::from_str(text.strip_prefix('\u{feff}').unwrap_or(text)).map_err(|error| wrong(error.to_string()))?;
    let mut found = Tightening { source: source.clone(), ..Tightening::default() };
    for (key, value) in &table {
        match key.as_str() {
            "permission_mode" => found.mode = Some(mode(value).map_err(wrong)?),
            "policy" => found.rules = rules(value).map_err(wrong)?,
            "sandbox" => found.sandbox = Some(sandbox(value).map_err(wrong)?),
            other => return Err(wrong(loosens(other))),
        }
    }
    Ok(found)
}

fn loosens(key: &str) -> String {
    format!(
        "{key}: a workspace's configuration may only tighten, and this is not among what it may say: permission_mode, \
         policy.ask, policy.deny, sandbox.mode = \"required\""
    )
}

fn mode(value: &toml::Value) -> Result<Mode, String> {
    let name = value.as_str().ok_or("permission_mode: this must be a string")?;
    match taskfile::mode(name).map_err(|problem| format!("permission_mode: {problem}"))? {
        mode @ (Mode::Plan | Mode::Ask | Mode::AcceptEdits) => Ok(mode),
        Mode::Auto | Mode::Shadow => Err(loosens(&format!("permission_mode = \"{name}\""))),
    }
}

fn rules(value: &toml::Value) -> Result<PolicyRules, String> {
    let table = value.as_table().ok_or("policy: this must be a table")?;
    if table.contains_key("allow") {
        return Err(loosens("policy.allow"));
    }
    Ok(WrittenRules::texts(&config::rules(table)?))
}

fn sandbox(value: &toml::Value) -> Result<SandboxMode, String> {
    let table = value.as_table().ok_or("sandbox: this must be a table")?;
    if let Some(key) = table.keys().find(|key| *key != "mode") {
        return Err(loosens(&format!("sandbox.{key}")));
    }
    match table.get("mode").and_then(toml::Value::as_str).map(config::sandbox_mode).transpose()? {
        Some(SandboxMode::Required) => Ok(SandboxMode::Required),
        Some(other @ (SandboxMode::Best | SandboxMode::External)) => {
            Err(loosens(&format!("sandbox.mode = \"{}\"", other.as_str())))
        }
        None => Err("sandbox.mode: this must be \"required\"".to_owned()),
    }
}

/// The bytes of a workspace's configuration; None: it has none. No link is followed on the way: it could be pointed
/// elsewhere after a person has looked.
fn read(workspace: &Path) -> Result<Option<Vec<u8>>, String> {
    let is_link = |error: rustix::io::Errno| error == rustix::io::Errno::LOOP || error == rustix::io::Errno::NOTDIR;
    let opened = |error: rustix::io::Errno, what: &str| match error {
        rustix::io::Errno::NOENT => Ok(None),
        error if is_link(error) => {
            Err(format!("{what} is a link, or no {}", if what == FOLDER { "folder" } else { "file" }))
        }
        error => Err(format!("{what}: {error}")),
    };
    let root = match rustix::fs::open(workspace, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty())
    {
        Ok(root) => root,
        // Without a workspace there is none of its own; that it is missing is said elsewhere.
        Err(error) => return opened(error, "the workspace"),
    };
    let below = |folder: &OwnedFd, name: &str, flags: OFlags| {
        rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, FileMode::empty())
    };
    let folder = match below(&root, FOLDER, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(folder) => folder,
        Err(error) => return opened(error, FOLDER),
    };
    let file = match below(&folder, FILE, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => File::from(file),
        Err(error) => return opened(error, FILE),
    };
    let data = file.metadata().map_err(|error| error.to_string())?;
    if !data.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(format!("it is larger than {FILE_MAX_BYTES} bytes"));
    }
    Ok(Some(bytes))
}

// ---- what is trusted ----

/// `trusted.json`.
struct Register {
    home: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    v: u32,
    /// By the workspace's real path, a `.mcp.json` by its own.
    workspaces: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    /// Of the file's bytes.
    digest: Digest,
    by: String,
    /// What it said, one thing a line, to be compared with what it says when it has changed. None: trusted by a version that
    /// did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    says: Option<Vec<String>>,
}

impl Register {
    const NAME: &str = "trusted.json";

    /// What cannot be read is no reason to trust nothing quietly: what it had tightened would be lifted.
    fn open(home: &Path) -> Result<Self, Failure> {
        let file = home.join(Self::NAME);
        let wrong = |problem: String| Failure::new(Status::Configuration, format!("{}: {problem}", file.display()));
        let kept = match std::fs::read(&file) {
            Ok(bytes) => {
                let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode();
                if mode & 0o022 != 0 {
                    return Err(wrong("others can write it; set its mode to 600 and look at what it says".to_owned()));
                }
                serde_json::from_slice(&bytes)
                    .map_err(|error| wrong(format!("{error}; move it away, and trust again what you trust")))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Kept { v: 1, ..Kept::default() },
            Err(error) => return Err(wrong(error.to_string())),
        };
        Ok(Self { home: home.to_owned(), kept })
    }

    fn entry(&self, workspace: &Path) -> Option<&Entry> {
        self.of(workspace.to_str()?)
    }

    fn of(&self, key: &str) -> Option<&Entry> {
        self.kept.workspaces.get(key)
    }

    /// Changes it, whole or not at all, one process at a time.
    fn change(home: &Path, change: impl FnOnce(&mut BTreeMap<String, Entry>)) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            let file = home.join(Self::NAME);
            Failure::new(Status::Unavailable, format!("{} cannot be written: {error}", file.display()))
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(failed)?;
        let folder = File::open(home).map_err(failed)?;
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut register = Self::open(home)?;
        change(&mut register.kept.workspaces);
        let text = serde_json::to_string_pretty(&register.kept)
            .map_err(|error| Failure::new(Status::Internal, error.to_string()))?;
        let draft = register.home.join(format!("{}.new", Self::NAME));
        // Left by a process that died; nobody else is here.
        let _ = std::fs::remove_file(&draft);
        let write = || {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&draft, home.join(Self::NAME))?;
            folder.sync_all()
        };
        write().map_err(failed)
    }
}

/// The files of its own that the workspace here brings, and whether they count: fine or not, in words, and what to do.
pub(crate) fn standing() -> Vec<(bool, String, Option<String>)> {
    let Ok(workspace) = workspace(None) else { return Vec::new() };
    let servers = workspace.join(MCP_FILE);
    let files = [
        (workspace.join(FOLDER).join(FILE), read(&workspace), workspace.clone()),
        (servers.clone(), read_servers(&workspace), servers),
    ];
    let register = match context::home().and_then(|home| Register::open(&home)) {
        Ok(register) => register,
        Err(failure) if files.iter().any(|(_, read, _)| !matches!(read, Ok(None))) => {
            return vec![(false, failure.problem, None)];
        }
        Err(_) => return Vec::new(),
    };
    let command = || Some(format!("longrein trust {}", context::quoted(&workspace.to_string_lossy())));
    let standing = |(file, read, key): (PathBuf, Result<Option<Vec<u8>>, String>, PathBuf)| {
        let file = file.display();
        let bytes = match read {
            Ok(bytes) => bytes?,
            Err(problem) => return Some((false, format!("{file} is not read: {problem}"), None)),
        };
        Some(match register.entry(&key) {
            Some(entry) if entry.digest == Digest::of(&bytes) => (true, format!("{file} is trusted and counts"), None),
            Some(_) => (false, format!("{file} changed since you trusted it, and is not read"), command()),
            None => (false, format!("{file} is not trusted, and is not read"), command()),
        })
    };
    files.into_iter().filter_map(standing).collect()
}

// ---- the command ----

pub(crate) fn trust(globals: Globals, args: TrustArgs) -> Result<Status, Failure> {
    let home = context::home()?;
    if args.list {
        return list(&globals, &home);
    }
    if let Some(dir) = &args.forget {
        return forget(&home, dir);
    }
    let workspace = workspace(args.dir.as_deref())?;
    let offers: Vec<Offer> =
        [offer::of_servers(&workspace)?, offer::of_configuration(&workspace)?].into_iter().flatten().collect();
    if offers.is_empty() {
        let problem =
            format!("{} has no {FOLDER}/{FILE} and no {MCP_FILE}; there is nothing to trust", workspace.display());
        return Err(Failure::new(Status::NotFound, problem));
    }
    offer::agree_on(&offers, args.yes, &globals, &home)
}

fn forget(home: &Path, dir: &Path) -> Result<Status, Failure> {
    // The folder may be gone.
    let named = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let real = named.canonicalize().unwrap_or(named);
    let mut was_there = false;
    Register::change(home, |workspaces| {
        was_there = real.to_str().is_some_and(|root| workspaces.remove(root).is_some());
        was_there |= real.join(MCP_FILE).to_str().is_some_and(|file| workspaces.remove(file).is_some());
    })?;
    if was_there {
        tell!("{} is trusted no more", words::safe(&real.display().to_string()));
        return Ok(Status::Done);
    }
    let problem = format!("{} is not trusted", real.display());
    Err(Failure::new(Status::NotFound, problem).way_out("longrein trust --list"))
}

fn list(globals: &Globals, home: &Path) -> Result<Status, Failure> {
    let register = Register::open(home)?;
    let content = |root: &str| match root.strip_suffix(MCP_FILE) {
        Some(workspace) => read_servers(Path::new(workspace)),
        None => read(Path::new(root)),
    };
    let state = |root: &str, entry: &Entry| match content(root) {
        Ok(Some(bytes)) if Digest::of(&bytes) == entry.digest => "as trusted",
        Ok(Some(_)) => "changed",
        Ok(None) | Err(_) => "gone",
    };
    let rows: Vec<_> = register.kept.workspaces.iter().map(|(root, entry)| (root, entry, state(root, entry))).collect();
    if globals.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(root, entry, state)| {
                json!({ "workspace": root, "digest": entry.digest, "by": entry.by, "state": state })
            })
            .collect();
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    if rows.is_empty() {
        tell!("no workspace's configuration is trusted");
    }
    for (root, entry, state) in rows {
        say!("{state:<10}  {}  (by {})", words::safe(root), words::safe(&entry.by));
    }
    Ok(Status::Done)
}

/// The workspace a run here would have.
fn workspace(dir: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = context::here()?;
    let meant = match dir {
        Some(dir) => here.join(dir),
        None => here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here).to_owned(),
    };
    let found = meant.canonicalize();
    found.map_err(|error| Failure::new(Status::NotFound, format!("{}: {error}", meant.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) -> Result<Tightening, String> {
        tightening(text.as_bytes(), Path::new("c.toml")).map_err(|failure| {
            assert_eq!(failure.status, Status::Configuration, "{text}");
            failure.problem
        })
    }

    #[test]
    fn law_8_a_workspace_can_only_tighten() {
        let found = check(
            "permission_mode = \"plan\"\n[policy]\ndeny = [\"shell(curl *)\"]\nask = [\"write_file(**)\"]\n\
             [sandbox]\nmode = \"required\"\n",
        );
        let found = found.expect("all of it tightens");
        assert_eq!(found.rules.deny, ["shell(curl *)"]);
        assert_eq!(found.rules.ask, ["write_file(**)"]);
        assert_eq!((found.mode, found.sandbox), (Some(Mode::Plan), Some(SandboxMode::Required)));
        for (text, named) in [
            ("[policy]\nallow = [\"shell\"]\n", "policy.allow"),
            ("[policy]\nallow = []\n", "policy.allow"),
            ("permission_mode = \"auto\"\n", "permission_mode = \"auto\""),
            ("permission_mode = \"shadow\"\n", "permission_mode = \"shadow\""),
            ("[sandbox]\nmode = \"external\"\n", "sandbox.mode = \"external\""),
            ("[sandbox]\nmode = \"best\"\n", "sandbox.mode = \"best\""),
            ("[sandbox]\nread = [\"/\"]\n", "sandbox.read"),
            ("[sandbox]\nmode = \"required\"\nwrite = [\"/\"]\n", "sandbox.write"),
            ("model = \"openai/x\"\n", "model:"),
            ("[models.\"openai/x\"]\nbase_url = \"http://evil\"\n", "models:"),
            ("[context]\ntrigger = 0.5\n", "context:"),
            ("[web]\nallow = []\n", "web:"),
        ] {
            let problem = check(text).expect_err(text);
            assert!(problem.contains(named) && problem.contains("only tighten"), "{text}: {problem}");
        }
        for text in ["[policy]\ndeny = [\"shel(x)\"]\n", "[policy]\ndeny = 3\n", "policy = 1\n", "deny = [", "\u{0}"] {
            check(text).expect_err(text);
        }
        let bad = "[policy]\ndeny = [{ rule = \"shell(rm *)\", match = [\"ls\"] }]\n";
        assert!(check(bad).expect_err(bad).contains("does not match"));
    }

    #[test]
    fn law_8_no_order_of_modes_makes_a_run_freer() {
        for mine in Mode::ALL {
            for ours in [Mode::Plan, Mode::Ask, Mode::AcceptEdits] {
                let found = Tightening { mode: Some(ours), ..Tightening::default() };
                let both = found.mode_for(mine);
                let change = mine.change(both);
                use longrein::core::task::ModeChange;
                assert!(matches!(change, ModeChange::None | ModeChange::Tightens), "{mine} {ours}: {both}");
            }
        }
    }
}
