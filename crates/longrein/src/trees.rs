//! Snapshots of one workspace, for the driver: the workspace crate's store behind the port, on threads that may block.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longrein_core::ids::TreeId;
use longrein_core::program::Phases;
use longrein_ports::{BoxError, BoxFuture, Difference, Restored, TreeError, Trees, Turned, Undo};
use longrein_workspace::Root;
use longrein_workspace::trees::{Became, Collected, Sizes, Snapshot, TreeSettings, TreeStore, TreesError};

use crate::checks::helpers_of;
use crate::helpers::Helpers;
use crate::pins::Commands;
use crate::runs::Grove;

/// A workspace and the store its snapshots are kept in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WorkspaceTrees {
    store: Arc<TreeStore>,
    root: Arc<Root>,
}

impl WorkspaceTrees {
    /// `folder` (`$LONGREIN_HOME/trees`) is made if it is not there. It must lie outside the workspace.
    pub fn open(workspace: &Path, folder: &Path, settings: TreeSettings) -> Result<Self, TreeError> {
        let root = Root::open(workspace).map_err(|error| TreeError::Unavailable(error.into()))?;
        let store = TreeStore::open(folder, settings).map_err(as_port)?;
        Ok(Self { store: Arc::new(store), root: Arc::new(root) })
    }

    /// A snapshot, with what it does not hold.
    pub async fn take(&self) -> Result<Snapshot, TreeError> {
        self.blocking(|store, root| store.snapshot(root)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TreeStore, &Root) -> Result<T, TreesError> + Send + 'static,
    ) -> Result<T, TreeError> {
        let Self { store, root } = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&store, &root)).await;
        done.map_err(|panic| TreeError::Unavailable(panic.into()))?.map_err(as_port)
    }
}

/// Where snapshots lie: beside the store that a run's journal is in, `trees` of `longrein.db` and `NAME-trees` of any other.
/// None: the store leaves nothing behind.
pub fn folder_of(store: &str) -> Option<PathBuf> {
    let path = Path::new(store.strip_prefix("sqlite:")?);
    let name = path.file_name()?.to_str()?;
    let folder = if name == "longrein.db" { "trees".to_owned() } else { format!("{name}-trees") };
    let path = std::path::absolute(path).ok()?;
    Some(path.with_file_name(folder))
}

/// The snapshots of any workspace, in one folder. A workspace that holds the folder itself has none. What a tool says it
/// writes is kept though git ignores it: a step that cannot be undone is no step. So is what a check protects, and what it
/// goes by: an ignore rule, which a run may write itself, must not hide that it was changed.
pub(crate) fn grove(folder: PathBuf) -> Grove {
    Arc::new(move |task, path| {
        let written = task.tools.iter().flat_map(|tool| tool.writes.iter().flatten());
        let of_children = task.program.phases().into_iter().flat_map(Phases::acceptance);
        let protected = task.acceptance.iter().chain(of_children).flat_map(|check| &check.protect);
        let helpers = helpers_of(task, &Commands::of(task), path);
        let patterns = helpers.values().flat_map(Helpers::patterns).cloned();
        // what may lie anywhere is no reason to look through folders that hold none of the work
        let (include_where_met, placed): (Vec<_>, Vec<_>) = patterns.partition(|pattern| pattern.starts_with('*'));
        let places = helpers.values().flat_map(Helpers::places);
        let include = written.chain(protected).cloned().chain(places).chain(placed).collect();
        let settings = TreeSettings { include, include_where_met, ..TreeSettings::default() };
        let trees = WorkspaceTrees::open(Path::new(&task.workspace), &folder, settings).ok()?;
        Some(Arc::new(trees) as Arc<dyn Trees>)
    })
}

/// Removes from the store in `folder` what neither these snapshots need nor any taken within `older_than`. Blocks.
pub fn collect_trees(folder: &Path, keep: &[TreeId], older_than: Duration) -> Result<Collected, TreeError> {
    let store = TreeStore::open(folder, TreeSettings::default()).map_err(as_port)?;
    store.collect(keep, older_than).map_err(as_port)
}

/// What the store in `folder` takes. Blocks.
pub fn sizes_of_trees(folder: &Path) -> Result<Sizes, TreeError> {
    TreeStore::open(folder, TreeSettings::default()).and_then(|store| store.sizes()).map_err(as_port)
}

impl Trees for WorkspaceTrees {
    fn snapshot(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        Box::pin(async { Ok(self.take().await?.id) })
    }

    fn hash(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        Box::pin(async { Ok(self.blocking(|store, root| store.hash(root)).await?.id) })
    }

    fn differences<'a>(
        &'a self,
        from: &'a TreeId,
        to: &'a TreeId,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TreeError>> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move {
            let found = self.blocking(move |store, _| store.differences(&from, &to)).await?;
            Ok(found.into_iter().map(|(path, became)| Difference { path, turned: turned(became) }).collect())
        })
    }

    fn undo<'a>(&'a self, undo: &'a Undo) -> BoxFuture<'a, Result<Restored, TreeError>> {
        let Undo { to, left, within } = undo.clone();
        Box::pin(async move {
            let undone = self.blocking(move |store, root| store.undo(root, &to, &left, within.as_deref())).await?;
            Ok(Restored { paths: undone.paths, kept: undone.kept, aside: undone.aside })
        })
    }
}

fn turned(became: Became) -> Turned {
    match became {
        Became::Added => Turned::Added,
        Became::Removed => Turned::Removed,
        Became::Changed => Turned::Changed,
    }
}

fn as_port(error: TreesError) -> TreeError {
    match error {
        TreesError::Changed(paths) => TreeError::Changed(paths),
        TreesError::Unknown(id) => TreeError::Unknown(id),
        TreesError::TooLarge(text) => TreeError::TooLarge(text),
        error @ TreesError::Damaged(_) => TreeError::Damaged(error.to_string()),
        TreesError::Partly { done, of, source } => TreeError::Partly { done, of, source: source as BoxError },
        error @ (TreesError::Busy(_) | TreesError::Inside { .. } | TreesError::Glob(_) | TreesError::Io { .. }) => {
            TreeError::Unavailable(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn the_port_takes_compares_and_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("ws");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("a"), "one").unwrap();
        let trees = WorkspaceTrees::open(&workspace, &dir.path().join("home/trees"), TreeSettings::default()).unwrap();
        let to = trees.snapshot().await.unwrap();
        assert_eq!(trees.hash().await.unwrap(), to);
        fs::write(workspace.join("a"), "two").unwrap();
        fs::write(workspace.join("b"), "new").unwrap();
        let left = trees.snapshot().await.unwrap();
        let found = trees.differences(&to, &left).await.unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["~ a", "+ b"]);
        let undo = Undo { to: to.clone(), left, within: None };
        let restored = trees.undo(&undo).await.unwrap();
        assert_eq!((restored.paths.as_slice(), restored.kept.len()), (&["a".to_owned(), "b".to_owned()][..], 0));
        assert_eq!(trees.hash().await.unwrap(), to);
        assert_eq!(fs::read_to_string(Path::new(&restored.aside.unwrap()).join("b")).unwrap(), "new");
        fs::write(workspace.join("a"), "mine").unwrap();
        assert!(matches!(trees.undo(&undo).await, Err(TreeError::Changed(paths)) if paths == ["a"]));
        let folder = dir.path().join("home/trees");
        assert_eq!(sizes_of_trees(&folder).unwrap().snapshots, 2);
        assert_eq!(collect_trees(&folder, &[to], Duration::ZERO).unwrap().snapshots_removed, 1);
    }
}
