//! What lies in a workspace that its commands must leave alone: repositories, and files that usually hold secrets. Found by
//! one walk with a bound, breadth first, so that what is near the top is always seen.

use std::collections::VecDeque;
use std::fs::FileType;
use std::path::{Path, PathBuf};

use longrein_core::secret::{self, Keeps};
use longrein_sandbox::Sealed;

/// A walk this long takes some hundreds of milliseconds, once a run.
const ENTRIES_MAX: usize = 200_000;

/// Each is a mount of its own around every command. A workspace with more is hidden as a whole: who makes so many wants one
/// of them to be overlooked.
const SECRETS_MAX: usize = 1_000;
const REPOSITORIES_MAX: usize = 128;

/// What was fetched or built: large, and nobody keeps a repository or a secret of their own in it.
const SKIPPED: [&str; 2] = ["node_modules", "target"];

/// Of a folder of git, what says what git runs or where it reads that.
pub(crate) const OBEYED: [&str; 7] =
    ["config", "config.worktree", "hooks", "commondir", "gitdir", "info/attributes", "objects/info/alternates"];

/// Of a folder of git, where it looks for the repositories of submodules: one that lies there is taken for the submodule's.
pub(crate) const OF_SUBMODULES: &str = "modules";

#[derive(Debug, Default)]
pub(crate) struct Terrain {
    /// Folders of git: of repositories, their submodules and their other worktrees.
    pub(crate) repositories: Vec<PathBuf>,
    /// Files named `.git`: each says where the repository of its folder lies.
    pub(crate) pointers: Vec<PathBuf>,
    pub(crate) secrets: Vec<PathBuf>,
}

impl Terrain {
    pub(crate) fn of(workspace: &Path) -> Self {
        let mut terrain = Self::default();
        let mut left = ENTRIES_MAX;
        let mut open = VecDeque::from([workspace.to_owned()]);
        while let Some(folder) = open.pop_front() {
            for (name, kind) in entries(&folder, &mut left) {
                let path = folder.join(&name);
                let is_folder = kind.is_dir() || kind.is_symlink() && path.is_dir();
                if name == ".git" {
                    if is_folder {
                        terrain.repository(path, &mut left);
                    } else {
                        terrain.pointers.push(path);
                    }
                } else if is_secret(workspace, &path, is_folder) {
                    terrain.secrets.push(path);
                } else if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                    open.push_back(path);
                }
            }
        }
        if terrain.secrets.len() > SECRETS_MAX {
            terrain.secrets = vec![workspace.to_owned()];
        }
        terrain
    }

    /// Where git looks for repositories of submodules, each with those that are there: commands make no new ones.
    pub(crate) fn sealed(&self) -> Vec<Sealed> {
        let sealed = |repository: &PathBuf| {
            let folder = repository.join(OF_SUBMODULES);
            let open = self.repositories.iter().filter(|inside| inside.starts_with(&folder));
            // one inside another's is open with it
            let open = open.filter(|inside| {
                let rest = inside.strip_prefix(&folder).unwrap_or(inside);
                !rest.components().any(|part| part.as_os_str() == OF_SUBMODULES)
            });
            Sealed { open: open.cloned().collect(), folder }
        };
        self.repositories.iter().map(sealed).collect()
    }

    /// A folder of git, and those it keeps for submodules and worktrees. A submodule's name may have several parts.
    fn repository(&mut self, folder: PathBuf, left: &mut usize) {
        let mut open = VecDeque::from([(folder, true)]);
        while let Some((folder, is_repository)) = open.pop_front() {
            let kept_in = if is_repository {
                if self.repositories.len() == REPOSITORIES_MAX {
                    return;
                }
                let kept_in = ["modules", "worktrees"].map(|name| folder.join(name)).to_vec();
                self.repositories.push(folder);
                kept_in
            } else {
                vec![folder]
            };
            for (inside, name, _) in kept_in.iter().flat_map(|inside| {
                let found = entries(inside, left).into_iter().filter(|(_, kind)| kind.is_dir());
                found.map(move |(name, kind)| (inside, name, kind)).collect::<Vec<_>>()
            }) {
                let path = inside.join(name);
                let is_repository = path.join("HEAD").symlink_metadata().is_ok();
                open.push_back((path, is_repository));
            }
        }
    }
}

/// Sorted, so that a bound cuts the same place every time. A name that is no text is nobody's secret.
fn entries(folder: &Path, left: &mut usize) -> Vec<(String, FileType)> {
    let found = folder.read_dir().into_iter().flatten().flatten().take(*left);
    let read = found.map(|entry| (entry.file_name().into_string(), entry.file_type())).collect::<Vec<_>>();
    *left -= read.len();
    let mut entries: Vec<_> = read.into_iter().filter_map(|(name, kind)| Some((name.ok()?, kind.ok()?))).collect();
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

/// By its name in the workspace; what lies above it is nobody's here.
fn is_secret(workspace: &Path, path: &Path, is_folder: bool) -> bool {
    let inside = path.strip_prefix(workspace).unwrap_or(path).to_string_lossy();
    let keeps = if is_folder { secret::folder(&inside) } else { secret::file(&inside) };
    keeps == Some(Keeps::Secrets) && !is_harmless(path)
}

/// Settings of registries without a credential, which builds need. A link, or what cannot be read, is not.
pub(crate) fn is_harmless(path: &Path) -> bool {
    let is_file = || path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= SETTINGS_MAX_BYTES);
    secret::is_settings(&path.to_string_lossy())
        && is_file()
        && std::fs::read(path).is_ok_and(|settings| !secret::holds_token(&settings))
}

/// Settings that are longer are not looked into.
const SETTINGS_MAX_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let file = |path: &str| {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), "x").unwrap();
        };
        let repositories = [
            ".git",
            ".git/modules/a",
            ".git/modules/libs/b",
            ".git/modules/a/modules/c",
            ".git/worktrees/w",
            "x/y/.git",
        ];
        repositories.iter().for_each(|repository| file(&format!("{repository}/HEAD")));
        let secrets = [
            ".env",
            "a/.env.local",
            "a/b/.envrc",
            "c/id_ed25519",
            "c/.netrc",
            "target-of/.env.prod",
            ".npmrc",
            "c/.PyPIrc",
            "d/kubeconfig",
            "d/.docker/config.json",
            "d/.ENV",
        ];
        secrets.iter().for_each(|secret| file(secret));
        // without a credential it is what builds need, with one it is a secret
        std::fs::write(at(".npmrc"), "//registry.example/:_authToken=npm_abc").unwrap();
        std::fs::write(at("c/.PyPIrc"), "[pypi]\npassword = x").unwrap();
        file("e/.npmrc");
        std::fs::write(at("e/.npmrc"), "registry=https://registry.example/").unwrap();
        for other in [
            ".env.example",
            "a/.env.local.sample",
            "a/cert.pem",
            "a/id_rsa.pub",
            "node_modules/p/.env",
            "target/.git/HEAD",
            "venv/.env/bin",
            ".git/.env",
        ] {
            file(other);
        }
        file("c/.aws/credentials");
        file("d/.Kube/x");
        file("sub/.git");
        let terrain = Terrain::of(folder.path());
        let sorted = |found: &[PathBuf]| {
            let names = found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        let expected = |names: &[&str]| {
            let mut names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&terrain.repositories), expected(&repositories));
        assert_eq!(sorted(&terrain.pointers), ["sub/.git"]);
        assert_eq!(sorted(&terrain.secrets), expected(&[&secrets[..], &["c/.aws", "d/.Kube"]].concat()));
    }

    #[test]
    fn a_walk_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..SECRETS_MAX + 10 {
            let inside = folder.path().join(number.to_string());
            std::fs::create_dir(&inside).unwrap();
            std::fs::write(inside.join(".env"), "x").unwrap();
        }
        assert_eq!(Terrain::of(folder.path()).secrets, [folder.path()]);
        let mut left = 5;
        assert_eq!((entries(folder.path(), &mut left).len(), left), (5, 0));
    }
}
