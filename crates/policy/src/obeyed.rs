//! Files of a workspace that git obeys though no name says so: what the operator's own configuration names there, and what
//! makes a folder a repository without work files.
//!
//! Writing one of them is writing something that is run later. Read [`Policy::obeyed_as`] first. The configuration is read
//! once per policy and workspace: a run cannot write it, and a person who changes it meanwhile means the next run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Policy;
use crate::git;
use crate::path::{self, File, Surroundings, World};

/// What configuration names inside one workspace: absolute paths, each with the setting.
pub(crate) type Named = BTreeMap<String, String>;

/// What was found out so far, by workspace.
pub(crate) type Found = Arc<Mutex<BTreeMap<String, Arc<Named>>>>;

/// The paths inside a workspace that git configuration of the operator has git run or obey, whether they are there or not:
/// for whoever puts walls around commands.
pub fn obeyed_by_git(surroundings: &Surroundings, workspace: &str) -> Vec<String> {
    named(surroundings, workspace).into_keys().collect()
}

impl Policy {
    /// Why a path inside the workspace is obeyed later although its name is an ordinary one. `inside` is relative to it.
    pub(crate) fn obeyed_as(&self, workspace: &str, inside: &str) -> Option<String> {
        let world = self.surroundings.world.as_ref();
        if let Some(reason) = part_of_bare(world, workspace, inside) {
            return Some(reason);
        }
        let path = path::absolute(workspace, inside);
        let named = self.named(workspace);
        let is_meant = |named: &str| {
            let is_above = path::within(&path, named).is_some() && !inside.is_empty();
            is_above || path::within(named, &path).is_some()
        };
        let (_, key) = named.iter().find(|(named, _)| is_meant(named))?;
        Some(format!("the git setting {key} names it, so that git runs or obeys it"))
    }

    fn named(&self, workspace: &str) -> Arc<Named> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let named = found.entry(workspace.to_owned());
        Arc::clone(named.or_insert_with(|| Arc::new(named_resolved(&self.surroundings, workspace))))
    }

    /// Whether an operator's setting has git, when it only reads, run something that lies in this workspace.
    pub(crate) fn springs_here(&self, workspace: &str) -> Option<String> {
        let named = self.named(workspace);
        let reads = |key: &&String| git::runs_a_program(key) == Some(git::When::Reading);
        let key = named.values().find(reads)?;
        Some(format!("the operator's git setting {key} has git run or read something that lies in the workspace"))
    }
}

/// Also by the names that links give them.
fn named_resolved(surroundings: &Surroundings, workspace: &str) -> Named {
    let mut all = named(surroundings, workspace);
    let real = path::resolve(surroundings.world.as_ref(), "/", workspace).unwrap_or_else(|| workspace.to_owned());
    let resolved: Vec<_> = all
        .iter()
        .filter_map(|(path, key)| {
            let path = path::resolve(surroundings.world.as_ref(), "/", path)?;
            let inside = path::within(&real, &path).filter(|inside| !inside.is_empty())?;
            Some((path::absolute(workspace, inside), key.clone()))
        })
        .collect();
    all.extend(resolved);
    all
}

fn named(surroundings: &Surroundings, workspace: &str) -> Named {
    let world = surroundings.world.as_ref();
    let mut named = Named::new();
    let mut left = FILES_MAX;
    // what git is told by the repository's own settings is relative to the top of what is checked out
    let (top, own) = repository(world, workspace);
    let files = surroundings.git_config().into_iter().chain(own);
    for file in files {
        read(world, surroundings, &file, (&top, workspace), &mut named, (INCLUDES_MAX, &mut left));
    }
    named
}

/// The top of the repository that a workspace is in, and its configuration.
fn repository(world: &dyn World, workspace: &str) -> (String, Option<String>) {
    let parents = std::iter::successors(Some(workspace), |at| {
        let above = at.rfind('/').and_then(|end| at.get(..end))?;
        (!above.is_empty()).then_some(above)
    });
    for at in parents.take(PARENTS_MAX) {
        let inside = format!("{at}/.git");
        let folder = match world.file(&inside) {
            File::Missing => continue,
            File::Unreadable => inside,
            File::Content(bytes) => match String::from_utf8_lossy(&bytes).strip_prefix("gitdir:") {
                Some(target) => path::absolute(at, target.trim()),
                None => continue,
            },
        };
        let common = match world.file(&format!("{folder}/commondir")) {
            File::Content(bytes) => path::absolute(&folder, String::from_utf8_lossy(&bytes).trim()),
            File::Missing | File::Unreadable => folder,
        };
        return (at.to_owned(), Some(format!("{common}/config")));
    }
    (workspace.to_owned(), None)
}

fn read(
    world: &dyn World,
    surroundings: &Surroundings,
    file: &str,
    (top, workspace): (&str, &str),
    named: &mut Named,
    (deep, left): (usize, &mut usize),
) {
    let Some(fewer) = left.checked_sub(1) else { return };
    *left = fewer;
    let File::Content(bytes) = world.file(file) else { return };
    let around = file.rsplit_once('/').map_or("/", |(folder, _)| folder);
    for (key, value) in git::settings(&String::from_utf8_lossy(&bytes)) {
        let is_include = matches!(key.as_str(), "include.path" | "includeif.path");
        let is_path = is_include
            || matches!(
                key.as_str(),
                "core.hookspath"
                    | "core.attributesfile"
                    | "core.excludesfile"
                    | "init.templatedir"
                    | "core.worktree"
                    | "blame.ignorerevsfile"
                    | "mailmap.file"
                    | "commit.template"
                    | "gpg.allowedsignersfile"
            );
        if !is_path && git::runs_a_program(&key).is_none() {
            continue;
        }
        // a comment, quotes and what a shell separates words by: each word may be a path
        let words: Vec<&str> = match is_path {
            true => vec![value.trim_matches('"')],
            false => value.split(|sign: char| sign.is_whitespace() || "\"'`;|&()<>=!\\".contains(sign)).collect(),
        };
        // a bare name is one of the program path, but `sh clean.sh` reads a file
        let is_file = |word: &str| word.contains('/') || SCRIPT_ENDS.iter().any(|end| word.ends_with(end));
        for word in words.into_iter().filter(|word| is_path || is_file(word)) {
            let word = match word.strip_prefix('~') {
                Some(rest) if rest.starts_with('/') => format!("{}{rest}", surroundings.home()),
                Some(_) | None => word.to_owned(),
            };
            let path = path::absolute(if is_include { around } else { top }, &word);
            if is_include && deep > 0 {
                read(world, surroundings, &path, (top, workspace), named, (deep - 1, &mut *left));
            }
            if path::within(workspace, &path).is_some_and(|inside| !inside.is_empty()) {
                named.insert(path, key.clone());
            }
        }
    }
}

/// Whether a path is of what git takes for a repository where it finds it: in a folder with `HEAD`, or `HEAD` itself.
fn part_of_bare(world: &dyn World, workspace: &str, inside: &str) -> Option<String> {
    let parts: Vec<&str> = inside.split('/').collect();
    let last = parts.last().copied().unwrap_or_default();
    if last == "HEAD" || last.eq_ignore_ascii_case("commondir") {
        return Some("git takes a folder for a repository, and obeys the settings in it, by such a file".to_owned());
    }
    for (at, part) in parts.iter().enumerate() {
        let is_part = BARE_PARTS.iter().any(|bare| part.eq_ignore_ascii_case(bare));
        if !is_part {
            continue;
        }
        let folder = path::absolute(workspace, &parts.get(..at).unwrap_or_default().join("/"));
        if world.file(&format!("{folder}/HEAD")) != File::Missing || world.link(&format!("{folder}/HEAD")).is_some() {
            return Some("it lies in a folder that git takes, or would take, for a repository".to_owned());
        }
    }
    None
}

/// What git looks for or obeys in a folder of its own.
const BARE_PARTS: [&str; 8] = ["config", "config.worktree", "hooks", "info", "objects", "refs", "modules", "worktrees"];
/// How names of files end that interpreters are given.
const SCRIPT_ENDS: [&str; 9] = [".sh", ".bash", ".py", ".pl", ".rb", ".js", ".mjs", ".ts", ".php"];
/// Configuration files that are read, with what they include.
const FILES_MAX: usize = 32;
const INCLUDES_MAX: usize = 4;
const PARENTS_MAX: usize = 128;
