//! Paths as values: where one leads, what lies there, and which patterns cover it.
//!
//! Nothing here touches a file system. What links and folders there are is asked of [`World`].

use std::net::IpAddr;
use std::sync::Arc;

use longrein_core::secret;

use longrein_ports::{Ledger, NoOrigins};

use crate::modes::{Containment, Fence};

/// What of the file system and the network a ruling may ask about. A function of the path for the time of one ruling.
pub trait World: Send + Sync {
    /// Where a symbolic link at this absolute path points; None: there is no link.
    fn link(&self, path: &str) -> Option<String>;
    /// The names in the folder at this absolute path; None: it cannot be listed, or has too many.
    fn names(&self, folder: &str) -> Option<Vec<String>>;
    /// Whether the folder has names that [`names`](World::names) does not tell: too many, or some that are no text.
    fn is_crowded(&self, _folder: &str) -> bool {
        false
    }
    /// What the file at this absolute path holds.
    fn file(&self, _path: &str) -> File {
        File::Missing
    }
    /// The addresses of a host, one answer after the other; None: it is not looked up here. Whoever connects looks it up
    /// and checks again.
    fn addresses(&self, _host: &str) -> Option<Vec<Vec<IpAddr>>> {
        None
    }
    /// Where the server at this URL sends on to, as it says it; None: nobody has asked it.
    fn redirect(&self, _url: &str) -> Option<String> {
        None
    }
}

/// A file, as far as a ruling has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    /// Nothing is there.
    Missing,
    /// A folder, too large, or not to be read.
    Unreadable,
    Content(Vec<u8>),
}

/// A world of which nothing is known: paths are judged by their letters alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unseen;

impl World for Unseen {
    fn link(&self, _path: &str) -> Option<String> {
        None
    }

    fn names(&self, _folder: &str) -> Option<Vec<String>> {
        None
    }
}

/// What a policy has to know of the machine it stands on.
#[derive(Clone)]
pub struct Surroundings {
    /// The home folder of whoever runs commands.
    pub home: Option<String>,
    /// `$LONGREIN_HOME`, as commands may name it.
    pub longrein_home: Option<String>,
    /// Longrein's own files and folders: its home, its store, its configuration. Absolute; each also covers what its path
    /// begins (`store.db` covers `store.db-wal`).
    pub own: Vec<String>,
    /// Absolute path of the program that runs this.
    pub binary: Option<String>,
    /// The operator's own git configuration files, absolute; None: where git usually looks for them.
    pub git_config: Option<Vec<String>>,
    pub world: Arc<dyn World>,
    pub fence: Arc<dyn Fence>,
    pub ledger: Arc<dyn Ledger>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            home: None,
            longrein_home: None,
            own: Vec::new(),
            binary: None,
            git_config: None,
            world: Arc::new(Unseen),
            fence: Arc::new(Containment::Nothing),
            ledger: Arc::new(NoOrigins),
        }
    }
}

impl Surroundings {
    pub(crate) fn home(&self) -> &str {
        self.home.as_deref().unwrap_or(UNKNOWN_HOME)
    }

    pub(crate) fn git_config(&self) -> Vec<String> {
        self.git_config.clone().unwrap_or_else(|| {
            let of_home = [".config/git/config", ".gitconfig"].map(|name| format!("{}/{name}", self.home()));
            std::iter::once("/etc/gitconfig".to_owned()).chain(of_home).collect()
        })
    }
}

/// An absolute path without `.`, `..` and doubled slashes. `..` at the root stays there.
pub(crate) fn absolute(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { folder };
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Where the kernel would arrive: links followed one by one, `..` after them. None: too many links.
pub(crate) fn resolve(world: &dyn World, folder: &str, path: &str) -> Option<String> {
    let mut todo: Vec<String> = Vec::new();
    let from = if path.starts_with('/') { "" } else { folder };
    todo.extend(path.split('/').rev().map(str::to_owned));
    todo.extend(from.split('/').rev().map(str::to_owned));
    let mut reached = String::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match part.as_str() {
            "" | "." => {}
            ".." => reached.truncate(reached.rfind('/').unwrap_or_default()),
            part => {
                let next = format!("{reached}/{part}");
                match world.link(&next) {
                    Some(target) => {
                        links += 1;
                        if links > LINKS_MAX || todo.len() > PARTS_MAX {
                            return None;
                        }
                        if target.starts_with('/') {
                            reached.clear();
                        }
                        todo.extend(target.split('/').rev().map(str::to_owned));
                    }
                    None => reached = next,
                }
            }
        }
    }
    Some(if reached.is_empty() { "/".to_owned() } else { reached })
}

/// What lies in a folder, as a path relative to it; the folder itself is `""`. None: outside.
pub(crate) fn within<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let folder = folder.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Whether a file or folder usually holds credentials.
pub(crate) fn is_secret(path: &str) -> bool {
    if secret::file(path).is_some() || secret::folder(path).is_some() {
        return true;
    }
    let path = path.to_lowercase();
    if path.starts_with("/run/secrets/") || path.starts_with("/var/run/secrets/") {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let in_proc = path.trim_start_matches('/').split('/').next() == Some("proc") && path.starts_with('/');
    in_proc && matches!(name, "environ" | "mem" | "kcore" | "maps" | "auxv")
}

/// Whether a pattern of file names may stand for a secret.
pub(crate) fn may_be_secret(pattern: &str) -> bool {
    let tails = secret::tails();
    SECRET_EXAMPLES
        .iter()
        .copied()
        .chain(tails)
        .chain(["shadow", "environ", "token"])
        .any(|name| glob_matches(pattern, name))
}

/// Whether writing a file makes something run, or changes who may do what, beyond any workspace.
pub(crate) fn is_critical(path: &str) -> bool {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let harmless_device = HARMLESS_DEVICES.contains(&path.as_str()) || path.starts_with("/dev/fd/");
    let critical_folder = CRITICAL_FOLDERS.iter().any(|folder| within(folder, &path).is_some()) && !harmless_device;
    let has = |part: &str| path.split('/').any(|found| found == part);
    critical_folder
        || STARTUP_NAMES.contains(&name)
        || has(".ssh")
        || has(".gnupg")
        || path.contains("/.config/systemd/")
        || path.contains("/.config/autostart/")
        || path.contains("/.local/bin/")
        || path.contains("/.config/git/")
}

/// Whether everything in a folder belongs to the system or to other people, and not to whoever works here.
pub(crate) fn is_of_the_system(path: &str) -> bool {
    const OTHERS: [&str; 8] = ["/var", "/usr", "/root", "/opt", "/srv", "/System", "/Library", "/Applications"];
    let passing = ["/var/tmp", "/var/folders"].iter().any(|folder| within(folder, path).is_some());
    !passing && (is_critical(path) || OTHERS.iter().any(|folder| within(folder, path).is_some()))
}

/// Whether a file of the workspace is run or obeyed by other tools later. `path` is relative to it.
pub(crate) fn is_run_later(path: &str) -> bool {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let in_folder = |folder: &&&str| path.split('/').any(|part| part == **folder);
    // the configuration of many tools is a program: `vite.config.ts`, `.eslintrc.js`, `app.dockerfile`
    let program = [".js", ".cjs", ".mjs", ".ts", ".mts"].iter().any(|end| name.ends_with(end));
    let configures = name.contains(".config.") || (name.starts_with('.') && name.contains("rc."));
    RUN_LATER_NAMES.contains(&name)
        || STARTUP_NAMES.contains(&name)
        || RUN_LATER_FOLDERS.iter().any(|f| in_folder(&f))
        || (program && configures)
        || [".mk", ".mak", ".dockerfile", ".pth", ".gemspec", ".service", ".desktop", ".instructions.md"]
            .iter()
            .any(|end| name.ends_with(end))
        || ["dockerfile.", "jenkinsfile.", "makefile."].iter().any(|start| name.starts_with(start))
        || matches!(name, ".windsurfrules" | ".clinerules" | ".aider.conf.yml" | "copilot-instructions.md")
}

/// Whether a path relative to the workspace is of what guards the run: git's own files, and our configuration.
pub(crate) fn is_protected(path: &str) -> bool {
    let path = path.to_lowercase();
    path.split('/').any(|part| matches!(part, ".git" | ".longrein"))
}

/// Whether one name matches a pattern of `*`, `?` and `[…]`, as a shell matches file names.
pub(crate) fn glob_matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') && !pattern.starts_with("\\.") {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut on) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(at), name.get(on)) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((at, on));
                Some((at + 1, on))
            }
            (Some('?'), Some(_)) => Some((at + 1, on + 1)),
            // a class is taken to match anything: too much is safe here
            (Some('['), Some(_)) => {
                let end = pattern.iter().skip(at + 2).position(|letter| *letter == ']');
                Some((end.map_or(at + 1, |end| at + end + 3), on + 1))
            }
            (Some('\\'), Some(letter)) => (pattern.get(at + 1) == Some(letter)).then_some((at + 2, on + 1)),
            (Some(wanted), Some(letter)) => (wanted == letter).then_some((at + 1, on + 1)),
            (Some(_), None) | (None, Some(_)) => None,
        };
        match (step, retry) {
            (Some(next), _) => (at, on) = next,
            (None, Some((star, from))) if from < name.len() => {
                retry = Some((star, from + 1));
                (at, on) = (star + 1, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// A pattern of paths: `*` stands for any part of one name, `**` for any number of folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    /// Absolute: of the whole machine. Else of the workspace.
    pub(crate) is_absolute: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// The texts around `*`; one text: no `*`.
    Name(Vec<String>),
    Any,
}

impl PathPattern {
    /// None: it has a letter that other tools read as a pattern, leads out of the workspace, or is empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_absolute = text.starts_with('/');
        let mut segments = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return None,
                "**" => segments.push(Segment::Any),
                part if part.contains(['?', '[', ']', '{', '}', '\\']) || part.contains("**") => return None,
                part => segments.push(Segment::Name(part.split('*').map(str::to_owned).collect())),
            }
        }
        if text.is_empty() || (segments.is_empty() && !is_absolute && !text.starts_with('.')) {
            return None;
        }
        if text.ends_with('/') {
            segments.push(Segment::Any);
        }
        Some(Self { is_absolute, segments })
    }

    /// Whether it covers this path: absolute, or relative to the workspace, as the pattern is.
    pub(crate) fn covers(&self, path: &str, case: Case) -> bool {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        matches(&self.segments, &names, case)
    }

    /// Whether something that it covers may lie below this folder.
    pub(crate) fn reaches_below(&self, folder: &str, case: Case) -> bool {
        let names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
        for (at, name) in names.iter().enumerate() {
            match self.segments.get(at) {
                Some(Segment::Any) => return true,
                Some(Segment::Name(texts)) if name_matches(texts, name, case) => {}
                Some(Segment::Name(_)) | None => return false,
            }
        }
        self.segments.len() > names.len()
    }
}

/// Whether upper and lower case differ. For what is forbidden they do not: some file systems see none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Matters,
    Ignored,
}

fn matches(segments: &[Segment], names: &[&str], case: Case) -> bool {
    // which segments may come next, name by name: no way back is needed, so nothing explodes
    let mut open = vec![false; segments.len() + 1];
    open[0] = true;
    let skip = |open: &mut Vec<bool>| {
        for (at, segment) in segments.iter().enumerate() {
            if open[at] && *segment == Segment::Any {
                open[at + 1] = true;
            }
        }
    };
    skip(&mut open);
    for name in names {
        let mut next = vec![false; segments.len() + 1];
        for (at, segment) in segments.iter().enumerate().filter(|(at, _)| open[*at]) {
            match segment {
                Segment::Any => next[at] = true,
                Segment::Name(texts) => next[at + 1] |= name_matches(texts, name, case),
            }
        }
        skip(&mut next);
        open = next;
    }
    open[segments.len()]
}

/// Whether a name is these texts with anything between them.
pub(crate) fn name_matches(texts: &[String], name: &str, case: Case) -> bool {
    let fold = |text: &str| if case == Case::Ignored { text.to_lowercase() } else { text.to_owned() };
    let name = fold(name);
    let Some((first, rest)) = texts.split_first() else { return name.is_empty() };
    let Some(mut left) = name.strip_prefix(fold(first).as_str()) else { return false };
    let Some((last, between)) = rest.split_last() else { return left.is_empty() };
    for text in between {
        let text = fold(text);
        let Some(at) = left.find(&text) else { return false };
        left = left.get(at + text.len()..).unwrap_or_default();
    }
    left.ends_with(fold(last).as_str())
}

/// Stands for the home folder where it is not known.
const UNKNOWN_HOME: &str = "/home/~";
/// The kernel's own limit on links in one path.
const LINKS_MAX: usize = 40;
const PARTS_MAX: usize = 4096;

/// Names that stand for each kind of secret, to see whether a pattern may mean one.
pub(crate) const SECRET_EXAMPLES: [&str; 14] = [
    ".env",
    ".env.production",
    ".envrc",
    ".netrc",
    ".npmrc",
    ".git-credentials",
    "id_rsa",
    "id_ed25519",
    "server.pem",
    "server.key",
    "store.p12",
    "credentials.json",
    "service-account.json",
    "secrets.yaml",
];

pub(crate) const HARMLESS_DEVICES: [&str; 5] = ["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"];
const CRITICAL_FOLDERS: [&str; 13] = [
    "/dev",
    "/proc",
    "/sys",
    "/boot",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/var/spool/cron",
];
const STARTUP_NAMES: [&str; 15] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".inputrc",
    ".gitconfig",
    ".xinitrc",
    ".xprofile",
    ".vimrc",
];
const RUN_LATER_FOLDERS: [&str; 22] = [
    ".github",
    ".gitlab",
    ".circleci",
    ".buildkite",
    ".vscode",
    ".zed",
    ".idea",
    ".devcontainer",
    ".husky",
    ".githooks",
    ".git-hooks",
    ".claude",
    ".cursor",
    ".codex",
    ".gemini",
    ".windsurf",
    ".cargo",
    ".mvn",
    ".yarn",
    ".direnv",
    ".fleet",
    ".config",
];
const RUN_LATER_NAMES: [&str; 87] = [
    "makefile.am",
    "bsdmakefile",
    ".justfile",
    "taskfile.yaml",
    "snakefile",
    "earthfile",
    "vagrantfile",
    "procfile",
    "brewfile",
    "podfile",
    "fastfile",
    "dangerfile",
    "guardfile",
    "containerfile",
    "docker-compose.yaml",
    "docker-compose.override.yml",
    "settings.gradle.kts",
    "gradle.properties",
    "build.sbt",
    "build.xml",
    "build.zig",
    "build.bazel",
    "workspace.bazel",
    "module.bazel",
    ".bazelrc",
    "meson.build",
    "configure",
    "setup.sh",
    "tox.toml",
    "pytest.ini",
    "usercustomize.py",
    "rust-toolchain",
    ".tool-versions",
    "mise.toml",
    ".mise.toml",
    "shell.nix",
    "default.nix",
    ".travis.yaml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "appveyor.yml",
    ".drone.yml",
    "lefthook.yml",
    ".lintstagedrc",
    "makefile",
    "gnumakefile",
    "justfile",
    "rakefile",
    "taskfile.yml",
    "package.json",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "build.rs",
    "setup.py",
    "setup.cfg",
    "conftest.py",
    "sitecustomize.py",
    "pyproject.toml",
    "tox.ini",
    "noxfile.py",
    "gemfile",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "gradlew",
    "mvnw",
    "pom.xml",
    "cmakelists.txt",
    "dockerfile",
    "docker-compose.yml",
    "compose.yaml",
    "compose.yml",
    "jenkinsfile",
    ".gitlab-ci.yml",
    ".travis.yml",
    ".pre-commit-config.yaml",
    ".gitattributes",
    ".gitmodules",
    ".envrc",
    ".mcp.json",
    "agents.md",
    "claude.md",
    "gemini.md",
    ".cursorrules",
    "rust-toolchain.toml",
    "flake.nix",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Links(BTreeMap<&'static str, &'static str>);

    impl World for Links {
        fn link(&self, path: &str) -> Option<String> {
            self.0.get(path).map(|target| (*target).to_owned())
        }

        fn names(&self, _folder: &str) -> Option<Vec<String>> {
            None
        }
    }

    #[test]
    fn a_path_leads_where_the_kernel_would_go() {
        let links = Links(BTreeMap::from([
            ("/w/out", "/srv/data"),
            ("/w/up", ".."),
            ("/w/hop", "out"),
            ("/w/loop", "loop"),
            ("/w/dir/back", "../src"),
        ]));
        for (path, lexical, resolved) in [
            ("src/a", "/w/src/a", Some("/w/src/a")),
            (".//src/../a/", "/w/a", Some("/w/a")),
            ("../../../x", "/x", Some("/x")),
            ("/etc//hosts", "/etc/hosts", Some("/etc/hosts")),
            ("out/x", "/w/out/x", Some("/srv/data/x")),
            ("out/../x", "/w/x", Some("/srv/x")),
            ("hop", "/w/hop", Some("/srv/data")),
            ("up/etc", "/w/up/etc", Some("/etc")),
            ("dir/back/a", "/w/dir/back/a", Some("/w/src/a")),
            ("loop", "/w/loop", None),
            ("", "/w", Some("/w")),
        ] {
            assert_eq!(absolute("/w", path), lexical, "{path}");
            assert_eq!(resolve(&links, "/w", path).as_deref(), resolved, "{path}");
        }
    }

    #[test]
    fn a_star_is_of_one_name_and_two_are_of_many_folders() {
        for (pattern, path, covers) in [
            ("src/**", "src/a/b.rs", true),
            ("src/**", "src", true),
            ("src/**", "srcs/a", false),
            ("src/*", "src/a", true),
            ("src/*", "src/a/b", false),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a.rsx", false),
            ("src/a*b*c", "src/a1b2c", true),
            ("src/a*b*c", "src/ab", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "x/y/a.rs", true),
            ("**", "anything/at/all", true),
            ("**/**/x", "x", true),
            ("./src//a", "src/a", true),
            (".github/", ".github/workflows/ci.yml", true),
            (".GitHub/**", ".github/x", false),
            (".", "", true),
        ] {
            let parsed = PathPattern::parse(pattern).unwrap();
            assert_eq!(parsed.covers(path, Case::Matters), covers, "{pattern} {path}");
        }
        let folded = PathPattern::parse(".github/**").unwrap();
        assert!(folded.covers(".GitHub/x", Case::Ignored));
        assert!(folded.reaches_below("", Case::Ignored));
        assert!(folded.reaches_below(".github", Case::Ignored));
        assert!(!folded.reaches_below("src", Case::Ignored));
        for wrong in ["", "../x", "a/../b", "a?", "[ab]", "{a,b}", "a**b", "a\\*"] {
            assert_eq!(PathPattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn patterns_of_file_names_match_as_a_shell_matches() {
        for (pattern, name, matches) in [
            ("*", "a", true),
            ("*", ".env", false),
            (".*", ".env", true),
            (".e*", ".env", true),
            ("*.rs", "a.rs", true),
            ("*.rs", "a.rc", false),
            ("a?c", "abc", true),
            ("[.]env", ".env", false),
            ("*[kp]e*", "server.key", true),
            ("\\*", "a", false),
            ("\\*", "*", true),
            ("**a**b", "xaxb", true),
        ] {
            assert_eq!(glob_matches(pattern, name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn secrets_are_known_by_name_wherever_they_lie() {
        for path in [
            "/w/.env",
            "/w/.ENV",
            "/w/a/.env.production",
            "/home/me/.ssh/id_rsa",
            "/home/me/.aws/credentials",
            "/etc/shadow",
            "/proc/self/environ",
            "/proc/1/environ",
            "/run/secrets/db",
            "/w/server.key",
            "/w/.git/config",
            "/home/me/.config/gh/hosts.yml",
        ] {
            assert!(is_secret(path), "{path}");
        }
        for path in
            ["/w/.env.example", "/home/me/.ssh/id_rsa.pub", "/w/src/shadow.rs", "/w/.gitignore", "/w/keys.rs", "/"]
        {
            assert!(!is_secret(path), "{path}");
        }
    }
}
