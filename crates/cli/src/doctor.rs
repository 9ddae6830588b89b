//! `longrein doctor`: what works here, and what to do about what does not. It looks; it changes nothing, and calls nobody
//! unless asked to.

use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longrein::core::ids::ModelName;
use longrein::{Answering, SandboxTier};
use serde_json::json;

use crate::args::{DoctorArgs, Globals};
use crate::config::Config;
use crate::context::{self, StoreAt};
use crate::failure::{Failure, Status};
use crate::models;
use crate::out::lay;
use crate::progress::{self, Style, print_line};
use crate::words;

/// Where what was found stands in a line.
const BESIDE_SUBJECT: usize = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    /// A fact that is neither good nor bad.
    Fact,
    /// Something works less well than it could.
    Warn,
    /// Runs cannot work.
    Bad,
}

struct Finding {
    level: Level,
    about: &'static str,
    what: String,
    /// What to do about it.
    way_out: Option<String>,
}

impl Finding {
    fn new(level: Level, about: &'static str, what: impl Into<String>) -> Self {
        Self { level, about, what: what.into(), way_out: None }
    }

    fn way_out(mut self, way_out: impl Into<String>) -> Self {
        self.way_out = Some(way_out.into());
        self
    }
}

pub(crate) async fn doctor(globals: Globals, args: DoctorArgs) -> Result<Status, Failure> {
    let mut findings = store(&globals);
    findings.extend(kernel());
    findings.extend(sandbox().await);
    findings.push(git());
    findings.extend(model(args.probe).await);
    findings.extend(rules());
    findings.extend(permissions());
    findings.extend(hooks());
    findings.push(terminal(&globals));
    let level = |level: Level| match level {
        Level::Ok => "ok",
        Level::Fact => "fact",
        Level::Warn => "warn",
        Level::Bad => "bad",
    };
    if globals.json {
        let rows: Vec<_> = findings
            .iter()
            .map(|found| {
                json!({ "level": level(found.level), "about": found.about, "what": found.what, "way_out": found.way_out })
            })
            .collect();
        print_line(&json!(rows));
    } else {
        for found in &findings {
            lay!(BESIDE_SUBJECT, "{:<5} {:<10} {}", level(found.level), found.about, words::safe(&found.what));
            if let Some(way_out) = &found.way_out {
                lay!(BESIDE_SUBJECT, "{:17}{}", "", words::safe(way_out));
            }
        }
    }
    match findings.iter().filter(|found| found.level == Level::Bad).count() {
        0 => Ok(Status::Done),
        _ => Ok(Status::Configuration),
    }
}

// ---- the store ----

fn store(globals: &Globals) -> Vec<Finding> {
    let mut findings = Vec::new();
    let at = match StoreAt::of(globals) {
        Ok(at) => at,
        Err(failure) => {
            return vec![Finding::new(Level::Bad, "store", failure.problem).way_out("set LONGREIN_HOME to a folder")];
        }
    };
    findings.push(Finding::new(Level::Fact, "sqlite", format!("version {} is built in", longrein::sqlite_version())));
    let Some(path) = at.url.strip_prefix("sqlite:").map(PathBuf::from) else {
        findings.push(Finding::new(Level::Fact, "store", at.url.clone()));
        return findings;
    };
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    // What is not there yet would be made on the file system of what is.
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match longrein::place_fits(there) {
        Ok(()) => {
            findings.push(Finding::new(Level::Ok, "disk", format!("{} is on a local file system", there.display())))
        }
        Err(error) => findings.push(
            Finding::new(Level::Bad, "disk", error.to_string())
                .way_out("set LONGREIN_HOME to a folder on a local disk"),
        ),
    }
    if let Err(error) = path.try_exists() {
        let what = format!("{} cannot be looked at: {error}", path.display());
        findings.push(Finding::new(Level::Bad, "store", what).way_out("set LONGREIN_HOME to a folder of your own"));
        return findings;
    }
    if !path.exists() {
        let writable = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok();
        findings.push(if writable {
            Finding::new(Level::Ok, "store", format!("none yet; the first run makes {}", path.display()))
        } else {
            Finding::new(Level::Bad, "store", format!("none yet, and {} cannot be written", there.display()))
                .way_out("set LONGREIN_HOME to a folder you can write")
        });
        return findings;
    }
    match longrein::store_health(&path) {
        Ok(health) => {
            let size = size(health.bytes);
            findings.push(match health.faults {
                None => Finding::new(
                    Level::Fact,
                    "store",
                    format!("{}, {size}: too large to check quickly", path.display()),
                )
                .way_out("longrein verify ID checks one run"),
                Some(faults) if faults.is_empty() => {
                    Finding::new(Level::Ok, "store", format!("{}, {size}, sound", path.display()))
                }
                Some(faults) => Finding::new(
                    Level::Bad,
                    "store",
                    format!("{}, {size}, DAMAGED: {}", path.display(), faults.join("; ")),
                )
                .way_out(
                    "restore a backup, or name another store with --store; longrein export ID saves what can be read",
                ),
            });
        }
        Err(error) => findings.push(
            Finding::new(Level::Bad, "store", error.to_string()).way_out("look at free space and permissions there"),
        ),
    }
    findings.extend(cache(&path));
    findings.extend(snapshots(&at.url));
    findings.extend(modes(&path, &folder, at.home.is_some()));
    findings
}

/// What only saves work: indexes, snapshots, what was learned of models.
fn cache(store: &Path) -> Option<Finding> {
    let mut folder = store.as_os_str().to_owned();
    folder.push("-cache");
    let bytes = bytes_in(Path::new(&folder))?;
    let what = format!("{}, {}: may be removed at any time", Path::new(&folder).display(), size(bytes));
    Some(Finding::new(Level::Fact, "cache", what))
}

/// What steps of runs can be undone from.
fn snapshots(store: &str) -> Option<Finding> {
    let folder = longrein::trees_folder_of(store)?;
    let bytes = bytes_in(&folder)?;
    let what = format!("{}, {}: longrein gc removes those that are older than a month", folder.display(), size(bytes));
    Some(Finding::new(Level::Fact, "snapshots", what))
}

/// The bytes of all files in a folder. None: there is no such folder.
fn bytes_in(folder: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    Some(
        entries
            .map(|entry| match entry.metadata() {
                Ok(data) if data.is_dir() => bytes_in(&entry.path()).unwrap_or_default(),
                Ok(data) => data.len(),
                // Gone meanwhile.
                Err(_) => 0,
            })
            .sum(),
    )
}

/// Journals hold what tools saw: only their owner should read them.
fn modes(path: &Path, folder: &Path, is_home: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (place, is_ours) in [(path, true), (folder, is_home)] {
        let Ok(data) = place.metadata() else { continue };
        let mode = data.permissions().mode() & 0o777;
        if is_ours && mode & 0o077 != 0 {
            let what = format!("{} has mode {mode:03o}: others on this machine can read it", place.display());
            let shown = context::quoted(&place.to_string_lossy());
            findings.push(Finding::new(Level::Warn, "modes", what).way_out(format!("chmod go= {shown}")));
        }
        if rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_err() {
            let what = format!("{} cannot be written", place.display());
            findings.push(Finding::new(Level::Bad, "modes", what).way_out("run as its owner, or set LONGREIN_HOME"));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ok, "modes", "only you can read the store"));
    }
    findings
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1024 / 1024),
    }
}

// ---- the kernel ----

/// What the sandbox and the file tools build on.
fn kernel() -> Vec<Finding> {
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let openat2 = {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(rustix::fs::CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).is_ok()
    };
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).is_ok();
    let landlock = match read("/sys/kernel/security/lsm") {
        Some(modules) if modules.split(',').any(|module| module == "landlock") => "yes",
        Some(_) => "no",
        None => "not to be told here",
    };
    let namespaces =
        match (read("/proc/sys/kernel/unprivileged_userns_clone"), read("/proc/sys/user/max_user_namespaces")) {
            (Some(allowed), _) if allowed == "0" => "no",
            (_, Some(most)) if most == "0" => "no",
            (_, Some(_)) => "yes, unless something else forbids them",
            (_, None) => "no",
        };
    let seccomp = read("/proc/sys/kernel/seccomp/actions_avail").is_some();
    let yes = |there: bool| if there { "yes" } else { "no" };
    let facts = format!(
        "Linux {release}; openat2: {}; pidfd: {}; Landlock: {landlock}; user namespaces: {namespaces}; seccomp: {}",
        yes(openat2),
        yes(pidfd),
        yes(seccomp)
    );
    let mut findings = vec![Finding::new(Level::Fact, "kernel", facts)];
    if !openat2 {
        let what = "openat2 is missing or forbidden: paths of the file tools cannot be confined by the kernel";
        findings.push(
            Finding::new(Level::Warn, "kernel", what).way_out("use Linux 5.6 or newer, or a looser seccomp profile"),
        );
    }
    findings
}

// ---- the sandbox ----

/// Which walls hold here, what was tried, and what they are good for.
async fn sandbox() -> Vec<Finding> {
    let about = "sandbox";
    let probed = longrein::probe_sandbox().await;
    let (level, way_out) = match probed.tier() {
        SandboxTier::Full | SandboxTier::External => (Level::Ok, None),
        SandboxTier::KernelRules => (Level::Warn, Some("allow user namespaces, for the full level")),
        SandboxTier::NetworkOnly | SandboxTier::None => {
            (Level::Warn, Some("use a kernel with Landlock (5.13), or allow user namespaces"))
        }
    };
    let mut first = Finding::new(level, about, format!("tier {}", probed.tier()));
    if let Some(way_out) = way_out {
        first = first.way_out(way_out);
    }
    let tried = probed.tried.iter().map(|tried| format!("tried {:?}: {}", tried.way, tried.became));
    let kept = probed.protects().into_iter().map(|kept| format!("protects {kept}"));
    let open = probed.not_protected().into_iter().map(|open| format!("does not protect {open}"));
    let facts = tried.chain(kept).chain(open).map(|what| Finding::new(Level::Fact, about, what));
    [first].into_iter().chain(facts).collect()
}

// ---- programs, models, the terminal ----

fn git() -> Finding {
    match std::process::Command::new("git").arg("--version").output() {
        Ok(output) if output.status.success() => {
            Finding::new(Level::Ok, "git", String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(_) | Err(_) => Finding::new(Level::Warn, "git", "no git on PATH: commands of coding tasks will miss it")
            .way_out("install git"),
    }
}

/// Files of the workspace here that every run in it is shown.
fn rules() -> Option<Finding> {
    let here = context::here().ok()?;
    let workspace = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here);
    let longrein::RuleFiles { files, left_out } = longrein::rule_files(workspace.to_str()?);
    let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    let (deep, own): (Vec<&str>, Vec<&str>) = paths.iter().copied().partition(|path| path.contains('/'));
    let mut parts = Vec::new();
    if !own.is_empty() {
        parts.push(format!("shown to every run there: {}", own.join(", ")));
    }
    if !deep.is_empty() {
        parts.push(format!("shown once something in their folder is used: {}", deep.join(", ")));
    }
    let level = if left_out.is_empty() { Level::Fact } else { Level::Warn };
    parts.extend(left_out);
    let what = words::safe(&format!("of {}, {}", workspace.display(), parts.join("; ")));
    (!parts.is_empty()).then(|| Finding::new(level, "rule files", what))
}

/// What configuration says of permissions, and whether the workspace here has any of its own.
fn permissions() -> Vec<Finding> {
    let mut findings = Vec::new();
    // What is wrong with it is said of the model.
    let Ok(config) = Config::load() else { return findings };
    let defaults = config.defaults();
    if let Some(default) = &defaults.permission_mode {
        let what = format!("{} where nothing else is said, from {}", default.mode, default.source);
        findings.push(Finding::new(Level::Fact, "mode", what));
    }
    for layer in &defaults.policy {
        let rules = &layer.rules;
        let counts = [(&rules.allow, "allow"), (&rules.ask, "ask"), (&rules.deny, "deny")];
        let counts: Vec<_> = counts
            .iter()
            .filter(|(list, _)| !list.is_empty())
            .map(|(list, word)| format!("{} {word}", list.len()))
            .collect();
        if !counts.is_empty() {
            findings.push(Finding::new(Level::Fact, "rules", format!("{} from {}", counts.join(", "), layer.source)));
        }
    }
    findings.extend(crate::trust::standing().into_iter().map(|(is_fine, what, way_out)| {
        let level = if is_fine { Level::Ok } else { Level::Warn };
        let found = Finding::new(level, "trust", what);
        match way_out {
            Some(way_out) => found.way_out(way_out),
            None => found,
        }
    }));
    findings
}

/// Hooks that the configuration adds to every run. What a task adds is said when it starts.
fn hooks() -> Vec<Finding> {
    let hooks = Config::load().map(|config| config.hooks).unwrap_or_default();
    hooks.iter().map(|hook| Finding::new(Level::Fact, "hook", words::hook(hook))).collect()
}

async fn model(probe: bool) -> Vec<Finding> {
    let about = "model";
    let config = match Config::load() {
        Ok(config) => config,
        Err(failure) => {
            let correct = "correct the file, or move it away";
            return vec![Finding::new(Level::Bad, "config", failure.problem).way_out(correct)];
        }
    };
    let Some(default) = config.defaults().model else {
        let way_out = "longrein run -m PROVIDER/NAME, or set LONGREIN_MODEL, or model = \"…\" in the configuration";
        return vec![Finding::new(Level::Warn, about, "no default model is configured").way_out(way_out)];
    };
    let name = ModelName::new(default.name.clone());
    let configured = context::model_config(&config, &name, &context::environment());
    let settings = match configured {
        Ok(settings) => settings,
        Err(failure) => return vec![Finding::new(Level::Bad, about, failure.problem).way_out("export that variable")],
    };
    if let Err(error) = longrein::connectable(&models::spec(&config, &name), &settings) {
        let from = format!("{name} (from {}): {}", default.source, models::in_words(error));
        return vec![Finding::new(Level::Bad, about, from).way_out("longrein models")];
    }
    let mut findings = vec![Finding::new(Level::Ok, about, format!("{name}, from {}", default.source))];
    if probe {
        findings.push(match longrein::probe(&name, &settings, models::PROBE_TIMEOUT).await {
            Ok(Some(Answering::Lists(_))) => Finding::new(Level::Ok, "probe", "its server answers"),
            Ok(None) => Finding::new(Level::Ok, "probe", "it is a script: nobody has to answer"),
            Ok(Some(Answering::Otherwise(problem))) => {
                Finding::new(Level::Bad, "probe", problem).way_out("longrein models")
            }
            Ok(Some(Answering::Silent(problem))) => {
                Finding::new(Level::Bad, "probe", problem).way_out("start the server, or correct its address")
            }
            Err(error) => Finding::new(Level::Bad, "probe", models::in_words(error)).way_out("longrein models"),
        });
    }
    findings
}

fn terminal(globals: &Globals) -> Finding {
    let about = "terminal";
    if !std::io::stderr().is_terminal() {
        return Finding::new(Level::Fact, about, "stderr is no terminal: progress comes in plain lines");
    }
    let view = match Style::of(globals) {
        Style::Live => "live view",
        Style::Plain => "plain lines (NO_COLOR, or TERM cannot do more)",
        Style::Json | Style::Quiet => "none asked for",
    };
    let asks = if crate::ask::somebody_is_there() { "questions are asked here" } else { "nobody can be asked here" };
    Finding::new(Level::Ok, about, format!("{} columns; progress: {view}; {asks}", progress::width()))
}
