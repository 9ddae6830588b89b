//! Tree snapshots of the simulated workspaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use longrein_core::ids::TreeId;
use longrein_ports::{BoxFuture, Difference, Restored, TreeError, Trees, Turned, Undo};

use crate::process::Process;
use crate::world::{Tree, World};

/// The snapshots of one workspace as one process takes them.
pub struct Grove {
    pub world: Arc<World>,
    pub process: Arc<Process>,
    pub folder: String,
}

impl Grove {
    async fn taken(&self, keep: bool) -> Result<TreeId, TreeError> {
        self.process.call(&format!("look at the tree of {}", self.folder)).await;
        self.process.pass().await;
        let taken = self.world.snapshot(&self.folder, keep);
        taken.ok_or_else(|| TreeError::TooLarge("there is no room for snapshots".to_owned()))
    }

    fn tree(&self, id: &TreeId) -> Result<Tree, TreeError> {
        self.world.tree(id).ok_or_else(|| TreeError::Unknown(id.clone()))
    }
}

/// Paths that are in one of the two and not the same in both.
fn differing<'a>(one: &'a Tree, other: &'a Tree) -> BTreeSet<&'a String> {
    one.keys().chain(other.keys()).filter(|path| one.get(*path) != other.get(*path)).collect()
}

impl Trees for Grove {
    fn snapshot(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        Box::pin(self.taken(true))
    }

    fn hash(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        Box::pin(self.taken(false))
    }

    fn differences<'a>(
        &'a self,
        from: &'a TreeId,
        to: &'a TreeId,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TreeError>> {
        Box::pin(async move {
            self.process.call("compare two trees").await;
            let (from, to) = (self.tree(from)?, self.tree(to)?);
            let turned = |path: &String| match (from.contains_key(path), to.contains_key(path)) {
                (false, _) => Turned::Added,
                (true, false) => Turned::Removed,
                (true, true) => Turned::Changed,
            };
            let differing = differing(&from, &to).into_iter();
            Ok(differing.map(|path| Difference { path: path.clone(), turned: turned(path) }).collect())
        })
    }

    /// A process may die between any two files.
    fn undo<'a>(&'a self, undo: &'a Undo) -> BoxFuture<'a, Result<Restored, TreeError>> {
        Box::pin(async move {
            self.process.call(&format!("undo in {}", self.folder)).await;
            let (to, left) = (self.tree(&undo.to)?, self.tree(&undo.left)?);
            let is_meant = |path: &String| undo.within.as_ref().is_none_or(|within| within.contains(path));
            let paths: Vec<_> = differing(&to, &left).into_iter().filter(|path| is_meant(path)).collect();
            let now = self.world.workspace(&self.folder);
            let foreign = |path: &&&String| now.get(**path) != left.get(**path) && now.get(**path) != to.get(**path);
            let changed: Vec<_> = paths.iter().filter(foreign).map(|path| (*path).clone()).collect();
            if !changed.is_empty() {
                return Err(TreeError::Changed(changed));
            }
            let mut restored = Restored::default();
            for path in paths {
                if now.get(path) != to.get(path) {
                    self.process.call(&format!("set {path} back")).await;
                    self.world.set(&self.folder, path, to.get(path).map(String::as_str));
                }
                restored.paths.push(path.clone());
            }
            restored.aside = (!restored.paths.is_empty()).then(|| "/home/aside/1".to_owned());
            Ok(restored)
        })
    }
}
