//! What a command put where git looks for what to run. Walls with a view of their own keep it from doing so (see
//! [`held`](crate::held)); where there are none, or a name could not be held, names are compared before and after, and what
//! appeared is taken away before its result is told.

use std::path::{Path, PathBuf};

use crate::held::ITSELF;
use crate::terrain::{OBEYED, OF_SUBMODULES};

/// Folders on the way to what is obeyed: a link in their place leads git elsewhere.
const ON_THE_WAY: [&str; 4] = ["", "info", "objects", "objects/info"];

/// What lies at a name. Contents are the walls' business, but for whether there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    /// An empty file or folder, or what is as good as none to git.
    Empty,
    Something,
    Link(PathBuf),
}

/// The names as they were before a command. Whatever becomes of the command, they are compared: at the latest when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    workspace: PathBuf,
    scratch: Option<PathBuf>,
    repositories: Vec<Repository>,
    /// The workspace, if git would not take it for a repository without work files. One that is made to look like one brings
    /// settings that git obeys in it and everywhere below.
    plain: Option<PathBuf>,
}

#[derive(Debug)]
struct Repository {
    /// Where the folder around it really lay: elsewhere nothing is touched.
    around: PathBuf,
    folder: PathBuf,
    names: Vec<(PathBuf, bool, There)>,
}

impl Watch {
    /// `scratch`: where to what appeared is moved.
    pub(crate) fn over(workspace: &Path, repositories: &[PathBuf], scratch: Option<PathBuf>) -> Self {
        let watched = |folder: &PathBuf| {
            let around = folder.parent()?.canonicalize().ok()?;
            let folder = around.join(folder.file_name()?);
            // one that is gone, or a new one in its place, is the command's own
            folder.symlink_metadata().ok()?;
            // folders first: behind a planted link nothing is touched
            let names = ON_THE_WAY.map(|name| (name, false)).into_iter();
            // a folder with submodules in it gets more of them by those who may
            let names = names.chain(OBEYED.map(|name| (name, true))).chain([(OF_SUBMODULES, true)]);
            let names = names.map(|(name, is_obeyed)| {
                let path = if name.is_empty() { folder.clone() } else { folder.join(name) };
                let there = There::at(&path);
                (path, is_obeyed, there)
            });
            Some(Repository { around, names: names.collect(), folder })
        };
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let plain = (!looks_bare(&workspace)).then(|| workspace.clone());
        Self { workspace, scratch, repositories: repositories.iter().filter_map(watched).collect(), plain }
    }

    /// Takes away what appeared since, and says so: a line each.
    pub(crate) fn clear(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for repository in std::mem::take(&mut self.repositories) {
            let Repository { around, folder, names } = repository;
            let is_in_place = around.canonicalize().is_ok_and(|real| real == around);
            if !is_in_place || folder.symlink_metadata().is_err() {
                continue;
            }
            for (path, is_obeyed, before) in names {
                let is_planted = match There::at(&path) {
                    There::Nothing | There::Empty => false,
                    There::Something => is_obeyed && matches!(before, There::Nothing | There::Empty),
                    link @ There::Link(_) => link != before,
                };
                if !is_planted {
                    continue;
                }
                let shown = path.strip_prefix(&self.workspace).unwrap_or(&path).display().to_string();
                match take_away(&path, self.scratch.as_deref()) {
                    Ok(()) => told.push(format!(
                        "[sandbox] {shown} was removed: git would run or follow what it names, and no command here may \
                         make it"
                    )),
                    Err(error) => {
                        told.push(format!(
                            "[sandbox] {shown} appeared and could not be removed ({error}): do not use git"
                        ));
                        break;
                    }
                }
            }
        }
        if let Some(workspace) = self.plain.take().filter(|workspace| looks_bare(workspace)) {
            told.push(match take_away(&workspace.join("HEAD"), self.scratch.as_deref()) {
                Ok(()) => {
                    "[sandbox] HEAD was removed: with objects and refs beside it git takes the workspace itself for a \
                           repository and obeys the settings in it"
                        .to_owned()
                }
                Err(error) => {
                    format!("[sandbox] the workspace was made to look like a repository ({error}): do not use git")
                }
            });
        }
        told
    }
}

/// To where the run's temporary files are; what cannot be moved there is removed.
pub(crate) fn take_away(path: &Path, scratch: Option<&Path>) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let free = scratch.and_then(|scratch| {
        let places = (1..1000).map(|number| scratch.join(format!("{name}.longrein-quarantined-{number}")));
        places.into_iter().find(|place| place.symlink_metadata().is_err())
    });
    if free.is_some_and(|free| std::fs::rename(path, free).is_ok()) {
        return Ok(());
    }
    match path.symlink_metadata()?.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    }
}

/// Whether git, in this folder, takes the folder itself for a repository. It looks for `.git` first.
fn looks_bare(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
    !has(".git") && has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl There {
    pub(crate) fn at(path: &Path) -> Self {
        match path.symlink_metadata() {
            Err(_) => Self::Nothing,
            Ok(found) if found.is_symlink() => Self::Link(path.read_link().unwrap_or_default()),
            Ok(found) => {
                let is_empty = match found.is_dir() {
                    true => path.read_dir().is_ok_and(|mut entries| entries.next().is_none()),
                    false => {
                        found.is_file()
                            && (found.len() == 0
                                || found.len() == ITSELF.len() as u64
                                    && std::fs::read(path).is_ok_and(|text| text == ITSELF.as_bytes()))
                    }
                };
                if is_empty { Self::Empty } else { Self::Something }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link in the place of a folder must not have us move what lies behind it.
    #[test]
    fn nothing_behind_a_planted_link_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (git, other) = (root.join("work/.git"), root.join("other/info"));
        std::fs::create_dir_all(&git).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("attributes"), "theirs").unwrap();
        let mut watch = Watch::over(&root.join("work"), std::slice::from_ref(&git), None);
        std::os::unix::fs::symlink(&other, git.join("info")).unwrap();
        let told = watch.clear();
        assert!(told.len() == 1 && told[0].starts_with("[sandbox] .git/info was removed"), "{told:?}");
        assert!(git.join("info").symlink_metadata().is_err());
        assert_eq!(std::fs::read_to_string(other.join("attributes")).unwrap(), "theirs");
    }

    /// A command that is not waited for is one all the same.
    #[test]
    fn what_appeared_goes_when_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (git, scratch) = (folder.path().join(".git"), folder.path().join("scratch"));
        std::fs::create_dir_all(&git).unwrap();
        std::fs::create_dir_all(&scratch).unwrap();
        let watch = Watch::over(folder.path(), std::slice::from_ref(&git), Some(scratch.clone()));
        std::fs::create_dir(git.join("hooks")).unwrap();
        std::fs::write(git.join("hooks/pre-commit"), "x").unwrap();
        drop(watch);
        assert!(!git.join("hooks").exists() && scratch.join("hooks.longrein-quarantined-1").is_dir());
    }

    /// Git looks into a folder itself where it has no `.git`.
    #[test]
    fn a_workspace_that_was_made_a_repository_is_none_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::over(folder.path(), &[], None);
        std::fs::create_dir(folder.path().join("objects")).unwrap();
        std::fs::create_dir(folder.path().join("refs")).unwrap();
        std::fs::write(folder.path().join("HEAD"), "ref: refs/heads/x").unwrap();
        let told = watch.clear();
        assert!(told.len() == 1 && told[0].starts_with("[sandbox] HEAD was removed"), "{told:?}");
        assert!(!folder.path().join("HEAD").exists());
    }
}
