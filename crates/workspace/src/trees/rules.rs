//! What is left out by declared rule: caches of well-known tools, git's ignore files, and what the operator adds back.
//!
//! The caches are weaker than any ignore file, which may say `!__pycache__/`. Without them a test that writes its own cache
//! would have changed what it judges wherever nobody wrote an ignore file.
//!
//! Rules come from `.gitignore` files in the workspace, those above it up to the repository it lies in, and that
//! repository's `info/exclude`; not from a person's own configuration, which would make a snapshot depend on whose machine
//! this is. An ignore file is always part of a snapshot, whatever it says of itself: from the snapshot alone can be told
//! what it did not reach.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

use super::error::TreesError;
use super::node::as_path;

pub(super) const IGNORE_FILE: &[u8] = b".gitignore";
/// A larger one is a file like any other.
pub(super) const IGNORE_FILE_MAX_BYTES: u64 = 1 << 20;

/// What tools leave beside the work, and make again. Nobody's work lies there.
const CACHES: &[u8] = b"__pycache__/
*.py[co]
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.tox/
.nox/
.coverage
.eslintcache
.stylelintcache
.phpunit.result.cache
.nyc_output/
.gradle/
";

/// The rules that hold in a folder: those of its own file, then those of the folder above.
#[derive(Debug)]
pub(super) struct Rules {
    above: Option<Arc<Rules>>,
    globs: Gitignore,
    at: At,
}

/// What the globs' paths are relative to.
#[derive(Debug)]
enum At {
    /// A folder of the workspace, by the length of its path with the slash after it.
    Below(usize),
    /// A folder above the workspace, by the way from there to it.
    Above(PathBuf),
}

impl Rules {
    /// Those that come from outside the workspace.
    pub(super) fn outer(root: &Path) -> Arc<Self> {
        let mut rules = Arc::new(Self { above: None, globs: parse(CACHES), at: At::Below(0) });
        let Some(repository) = root.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok()) else {
            return rules;
        };
        let way = |folder: &Path| At::Above(root.strip_prefix(folder).unwrap_or(Path::new("")).to_owned());
        let mut add = |text: &[u8], at: At| {
            rules = Arc::new(Self { above: Some(rules.clone()), globs: parse(text), at });
        };
        if let Some(text) = read(&repository.join(".git/info/exclude")) {
            add(&text, way(repository));
        }
        let mut folders: Vec<&Path> =
            root.ancestors().skip(1).take_while(|folder| folder.starts_with(repository)).collect();
        folders.reverse();
        for folder in folders {
            if let Some(text) = read(&folder.join(as_path(IGNORE_FILE))) {
                add(&text, way(folder));
            }
        }
        rules
    }

    /// With those of an ignore file in the folder `path`.
    pub(super) fn with(self: &Arc<Self>, path: &[u8], text: &[u8]) -> Arc<Self> {
        let below = if path.is_empty() { 0 } else { path.len() + 1 };
        Arc::new(Self { above: Some(self.clone()), globs: parse(text), at: At::Below(below) })
    }

    /// Whether they leave out what is at `path`. Of the folders on the way nothing is asked here.
    pub(super) fn ignore(&self, path: &[u8], kind: Kind) -> bool {
        let mut rules = Some(self);
        while let Some(here) = rules {
            let is_dir = kind == Kind::Folder;
            let found = match &here.at {
                _ if here.globs.is_empty() => Match::None,
                At::Below(length) => here.globs.matched(as_path(&path[*length..]), is_dir),
                At::Above(way) => here.globs.matched(way.join(as_path(path)), is_dir),
            };
            match found {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = here.above.as_deref(),
            }
        }
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    Other,
}

/// Lines that are no globs count for nothing, as with git.
fn parse(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in text.split(|byte| *byte == b'\n') {
        let _not_understood = builder.add_line(None, &String::from_utf8_lossy(line));
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > IGNORE_FILE_MAX_BYTES {
        return None;
    }
    let mut text = Vec::new();
    file.take(IGNORE_FILE_MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Paths named by globs, relative to the workspace. `*` stays within a name, `**` does not; a folder stands for all that is
/// in it.
#[derive(Debug, Clone)]
pub(super) struct Globs {
    set: GlobSet,
    /// Of each, the names before its first pattern.
    leads: Vec<PathBuf>,
}

impl Globs {
    /// `where_met`: globs that lead nowhere.
    pub(super) fn new(root: &Path, globs: &[String], where_met: &[String]) -> Result<Self, TreesError> {
        let mut set = GlobSetBuilder::new();
        let mut leads = Vec::new();
        let leading = globs.iter().map(|written| (written, true));
        for (written, leads_in) in leading.chain(where_met.iter().map(|written| (written, false))) {
            // outside the workspace there is nothing to take
            let Some(pattern) = relative(root, written) else { continue };
            let glob = |pattern: &str| -> Result<Glob, TreesError> {
                GlobBuilder::new(pattern)
                    .literal_separator(true)
                    .backslash_escape(true)
                    .build()
                    .map_err(|error| TreesError::Glob(error.to_string()))
            };
            let folder = pattern.strip_suffix("/**").unwrap_or(&pattern);
            if folder.is_empty() || folder == "**" {
                set.add(glob("**")?);
                leads.push(PathBuf::new());
                continue;
            }
            set.add(glob(folder)?).add(glob(&format!("{folder}/**"))?);
            if !leads_in {
                continue;
            }
            leads.push(folder.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '\\'])).collect());
        }
        let set = set.build().map_err(|error| TreesError::Glob(error.to_string()))?;
        Ok(Self { set, leads })
    }

    pub(super) fn take(&self, path: &[u8]) -> bool {
        self.set.is_match(as_path(path))
    }

    /// Whether something they take may lie in this folder.
    pub(super) fn lead_into(&self, folder: &[u8]) -> bool {
        let folder = as_path(folder);
        self.leads.iter().any(|lead| lead.starts_with(folder) || folder.starts_with(lead))
    }
}

/// A glob without `.`, `..` and the root's own name; None: it names nothing in the workspace.
fn relative(root: &Path, written: &str) -> Option<String> {
    let inside = match written.strip_prefix('/') {
        None => written,
        Some(_) => {
            let rest = written.strip_prefix(root.to_str()?)?;
            if rest.is_empty() { "" } else { rest.strip_prefix('/')? }
        }
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in inside.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Arc<Rules> {
        files.iter().fold(Rules::outer(Path::new("/nowhere/at/all")), |rules, (path, text)| {
            rules.with(path.as_bytes(), text.as_bytes())
        })
    }

    #[track_caller]
    fn check(rules: &Rules, path: &str, kind: Kind, ignored: bool) {
        assert_eq!(rules.ignore(path.as_bytes(), kind), ignored, "{path}");
    }

    #[test]
    fn the_innermost_file_that_says_something_counts() {
        let rules = rules(&[("", "*.log\n/top\nbuild/\n"), ("a", "!keep.log\n*.tmp\n/b")]);
        check(&rules, "a/x.log", Kind::Other, true);
        check(&rules, "a/keep.log", Kind::Other, false);
        check(&rules, "a/x.tmp", Kind::Other, true);
        check(&rules, "a/b", Kind::Other, true);
        check(&rules, "a/c/b", Kind::Other, false);
        check(&rules, "top", Kind::Other, true);
        check(&rules, "a/top", Kind::Other, false);
        check(&rules, "a/build", Kind::Folder, true);
        check(&rules, "a/build", Kind::Other, false);
    }

    #[test]
    fn caches_are_left_out_unless_an_ignore_file_wants_them() {
        let dir = tempfile::tempdir().unwrap();
        let outer = Rules::outer(dir.path());
        check(&outer, "__pycache__", Kind::Folder, true);
        check(&outer, "a/b/__pycache__", Kind::Folder, true);
        check(&outer, "a/x.pyc", Kind::Other, true);
        check(&outer, "__pycache__", Kind::Other, false);
        check(&outer, "cache", Kind::Folder, false);
        let wanting = outer.with(b"a", b"!__pycache__/\n");
        check(&wanting, "a/__pycache__", Kind::Folder, false);
    }

    #[test]
    fn rules_above_the_workspace_hold_up_to_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "*.never\n");
        write("repo/.git/info/exclude", "*.mine\n");
        write("repo/.gitignore", "node_modules\n/pkg/out\n");
        write("repo/pkg/a", "");
        let rules = Rules::outer(&dir.path().join("repo/pkg"));
        check(&rules, "node_modules", Kind::Folder, true);
        check(&rules, "out", Kind::Folder, true);
        check(&rules, "x.mine", Kind::Other, true);
        check(&rules, "x.never", Kind::Other, false);
    }

    #[test]
    fn a_glob_takes_what_it_names_and_what_is_in_it() {
        let globs = |globs: &[&str]| {
            let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
            Globs::new(Path::new("/w"), &globs, &[]).unwrap()
        };
        let some = globs(&["./src", "*.md", "/w/out/**", "a/../b/*.c", "../x", "/etc/**"]);
        for (path, taken) in [
            ("src", true),
            ("src/a/b", true),
            ("srcs", false),
            ("a.md", true),
            ("d/a.md", false),
            ("out", true),
            ("out/x", true),
            ("b/x.c", true),
            ("b/d/x.c", false),
            ("x", false),
            ("etc/passwd", false),
        ] {
            assert_eq!(some.take(path.as_bytes()), taken, "{path}");
        }
        assert!(globs(&["."]).take(b"a/b") && globs(&["**"]).take(b"a/b"));
        assert!(some.lead_into(b"b") && some.lead_into(b"out/x/y") && !globs(&["b/c"]).lead_into(b"d"));
        assert!(matches!(Globs::new(Path::new("/w"), &["[".to_owned()], &[]), Err(TreesError::Glob(_))));
    }
}
