//! Tree snapshots: the state of a whole workspace, kept outside it, and the way back.
//!
//! Read [`TreeStore`] first. A snapshot is of the tree, whoever changed it: content and permissions of files, links as they
//! are, empty folders, untracked and hidden files. It is named by its content ([`TreeId`]), so two equal trees have one id,
//! and what did not change is not kept twice.
//!
//! What it refuses to do: look into `.git`, follow a link, cross a mount, ask git for anything, or touch a path that is in
//! neither of the two snapshots a restore goes between. It deletes nothing: what a restore takes away it moves aside. Times,
//! owners, extended attributes and which names share one file are not kept. `docs/rollback.md` says it for users.

mod apply;
mod cache;
mod collect;
mod compare;
mod error;
mod node;
mod rules;
mod scan;
mod shelf;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use longrein_core::ids::TreeId;
use rustix::fs::{FlockOperation, OFlags};

use crate::root::{Place, Root};
use crate::shown::shown;
use apply::{Hands, Progress, Tap};
use cache::Cache;
use node::ObjectId;
use rules::{Globs, Rules};
use scan::{Scan, Scanned};
use shelf::{Held, Shelf, View, Writer};
use undo::Planning;

pub use collect::{ASIDE_KEPT, Collected, Sizes};
pub use error::TreesError;
pub use node::{LeftOut, written};

/// What is left out by declared rule, and how much may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSettings {
    /// Larger files are named in a snapshot, and not kept.
    pub file_max_bytes: u64,
    /// Of all objects in the store.
    pub store_max_bytes: u64,
    /// Files and folders of one workspace.
    pub entries_max: u64,
    /// Globs, relative to the workspace, of what is kept although git ignores it.
    pub include: Vec<String>,
    /// The same, but no ignored folder is looked through for them.
    pub include_where_met: Vec<String>,
}

impl Default for TreeSettings {
    fn default() -> Self {
        Self {
            file_max_bytes: 64 << 20,
            store_max_bytes: 4 << 30,
            entries_max: 1_000_000,
            include: Vec::new(),
            include_where_met: Vec::new(),
        }
    }
}

/// A snapshot, and what it does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: TreeId,
    pub files: u64,
    /// Of those files.
    pub bytes: u64,
    /// What the store grew by.
    pub added_bytes: u64,
    /// Paths ([`written`]) that have a place in it without their content, and why. What git ignores is not among them.
    pub left_out: Vec<(String, LeftOut)>,
}

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    Added,
    Removed,
    Changed,
}

/// What a restore did, in paths as [`written`] writes them, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undone {
    /// Are now as in the tree that was gone back to.
    pub paths: Vec<String>,
    /// Differ and were left alone, because one of the snapshots did not reach them or, in a folder, something in it.
    pub kept: Vec<String>,
    /// Where what stood there was moved to; None: nothing was.
    pub aside: Option<String>,
}

/// A store of snapshots, of any number of workspaces and for any number of processes at a time.
#[derive(Debug)]
pub struct TreeStore {
    shelf: Shelf,
    settings: TreeSettings,
}

impl TreeStore {
    /// Opens the store in a folder, or makes one.
    pub fn open(folder: &Path, settings: TreeSettings) -> Result<Self, TreesError> {
        shelf::make_folder(folder)?;
        let folder = folder.canonicalize().map_err(|error| TreesError::io(folder, error))?;
        Ok(Self { shelf: Shelf::open(folder, settings.store_max_bytes)?, settings })
    }

    /// Takes a snapshot. It is on disk when this returns.
    pub fn snapshot(&self, root: &Root) -> Result<Snapshot, TreesError> {
        let snapshot = {
            let _shared = self.share(root)?;
            let view = self.shelf.look()?;
            let writer = Mutex::new(self.shelf.writer(&view));
            let scanned = self.scan(root, &view, Some(&writer))?;
            let brought = writer.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
            self.record(scanned.root)?;
            if !scanned.is_cached {
                let packs = view.packs.iter().map(|pack| pack.name.clone()).chain(brought.pack).collect::<Vec<_>>();
                self.write_cache(root, &scanned, &packs);
            }
            snapshot_of(&scanned, brought.bytes)
        };
        // a merge that fails is tried again with the next snapshot; this one is complete
        let _merged = collect::merge(&self.shelf);
        Ok(snapshot)
    }

    /// What a snapshot would be, without keeping one.
    pub fn hash(&self, root: &Root) -> Result<Snapshot, TreesError> {
        let _shared = self.share(root)?;
        let view = self.shelf.look()?;
        let scanned = self.scan(root, &view, None)?;
        if !scanned.is_cached {
            let packs: Vec<_> = view.packs.iter().map(|pack| pack.name.clone()).collect();
            self.write_cache(root, &scanned, &packs);
        }
        Ok(snapshot_of(&scanned, 0))
    }

    /// What differs, sorted by path.
    pub fn differences(&self, from: &TreeId, to: &TreeId) -> Result<Vec<(String, Became)>, TreesError> {
        let _shared = self.shelf.share()?;
        let view = self.shelf.look()?;
        let (from, to) = (self.tree(&view, from)?, self.tree(&view, to)?);
        let found = compare::differing(&view, from, to)?;
        let became = |differing: &compare::Differing| match (&differing.from, &differing.to) {
            (None, _) => Became::Added,
            (Some(_), None) => Became::Removed,
            (Some(_), Some(_)) => Became::Changed,
        };
        Ok(found.iter().map(|differing| (written(&differing.path), became(differing))).collect())
    }

    /// Makes the workspace, as it was left in `left`, be again as in `to`; of that only what `within` names. Refuses before
    /// anything is touched where a path is neither as in the one nor as in the other. Asked twice (a death in between) it
    /// ends as if asked once.
    pub fn undo(
        &self,
        root: &Root,
        to: &TreeId,
        left: &TreeId,
        within: Option<&[String]>,
    ) -> Result<Undone, TreesError> {
        self.undo_tapped(root, to, left, within, &mut |_| Ok(()))
    }

    fn undo_tapped(
        &self,
        root: &Root,
        to: &TreeId,
        left: &TreeId,
        within: Option<&[String]>,
        tap: Tap<'_>,
    ) -> Result<Undone, TreesError> {
        self.is_outside(root)?;
        let _shared = self.shelf.share()?;
        // no snapshot of something half restored, and no second restore
        let _alone = shelf::lock(&self.lock_of(root), FlockOperation::NonBlockingLockExclusive)?;
        let view = self.shelf.look()?;
        let planning = Planning {
            root,
            view: &view,
            outer: Rules::outer(root.name()),
            include: &Globs::new(root.name(), &self.settings.include, &self.settings.include_where_met)?,
            within: within.map(|within| Globs::new(root.name(), within, &[])).transpose()?,
            left: self.tree(&view, left)?,
            to: self.tree(&view, to)?,
        };
        let plan = planning.plan()?;
        let aside = self.shelf.at("aside").join(shelf::unique());
        let mut progress = Progress::default();
        let applied = Hands { root, view: &view, aside: aside.clone(), tap }.apply(&plan, &mut progress);
        let sorted = |mut paths: Vec<Vec<u8>>| {
            paths.sort();
            paths.iter().map(|path| written(path)).collect::<Vec<_>>()
        };
        let of = plan.steps.len();
        let mut kept = plan.kept;
        kept.append(&mut progress.kept);
        if let Err(error) = applied {
            return Err(TreesError::Partly { done: sorted(progress.done), of, source: Box::new(error) });
        }
        let paths = sorted(plan.done.into_iter().chain(progress.done).collect());
        Ok(Undone { paths, kept: sorted(kept), aside: progress.moved_aside.then(|| shown(&aside)) })
    }

    /// Removes what neither these snapshots need nor any that was taken within `older_than`.
    pub fn collect(&self, keep: &[TreeId], older_than: Duration) -> Result<Collected, TreesError> {
        let keep: HashSet<ObjectId> = keep.iter().filter_map(|id| ObjectId::of_hex(id.as_str())).collect();
        collect::collect(&self.shelf, &self.shelf.seize()?, &keep, older_than)
    }

    pub fn sizes(&self) -> Result<Sizes, TreesError> {
        collect::sizes(&self.shelf)
    }

    fn scan(&self, root: &Root, view: &View, keeper: Option<&Mutex<Writer<'_>>>) -> Result<Scanned, TreesError> {
        let failed = |error| undo::as_trees(&[], error);
        let folder = Place::Inside(Path::new("").to_owned());
        let folder = root.hold(&folder, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        let device = rustix::fs::fstat(&folder).map_err(|errno| TreesError::of(root.name(), errno))?.st_dev;
        // a cache that cannot be read is none
        let cached = shelf::read_whole(&self.cache_of(root)).unwrap_or_default().unwrap_or_default();
        Scan {
            folder: &folder,
            device,
            rules: Rules::outer(root.name()),
            include: &Globs::new(root.name(), &self.settings.include, &self.settings.include_where_met)?,
            file_max_bytes: self.settings.file_max_bytes,
            entries_max: self.settings.entries_max,
            cache: &Cache::read(cached, device),
            view,
            keeper,
        }
        .run()
    }

    /// A snapshot is kept while it has a file of its name, younger than who collects says.
    fn record(&self, id: ObjectId) -> Result<(), TreesError> {
        let path = self.shelf.at("snapshots").join(id.hex());
        let failed = |error| TreesError::io(&path, error);
        match File::options().write(true).open(&path) {
            Ok(file) => file.set_modified(SystemTime::now()).map_err(failed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
                shelf::sync_folder(&self.shelf.at("snapshots"))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Without it the next snapshot takes longer.
    fn write_cache(&self, root: &Root, scanned: &Scanned, packs: &[String]) {
        let path = self.cache_of(root);
        if shelf::write_cache(&self.shelf, &path, &scanned.cache(packs)).is_err() {
            // an old one would still be right, but why keep it where nothing can be written
            let _gone = fs::remove_file(&path);
        }
    }

    fn tree(&self, view: &View, id: &TreeId) -> Result<ObjectId, TreesError> {
        let unknown = || TreesError::Unknown(id.clone());
        let object = ObjectId::of_hex(id.as_str()).ok_or_else(unknown)?;
        if view.has(object)? { Ok(object) } else { Err(unknown()) }
    }

    /// Others may take snapshots, of this workspace too; nobody restores in it, and nobody collects.
    fn share(&self, root: &Root) -> Result<(Held, Held), TreesError> {
        self.is_outside(root)?;
        Ok((self.shelf.share()?, shelf::lock(&self.lock_of(root), FlockOperation::LockShared)?))
    }

    fn is_outside(&self, root: &Root) -> Result<(), TreesError> {
        let (store, root) = (self.shelf.folder.as_path(), root.name());
        if store.starts_with(root) || root.starts_with(store) {
            return Err(TreesError::Inside { store: shown(store), root: shown(root) });
        }
        Ok(())
    }

    fn cache_of(&self, root: &Root) -> std::path::PathBuf {
        self.shelf.at("caches").join(scan::key(root.name()))
    }

    fn lock_of(&self, root: &Root) -> std::path::PathBuf {
        self.shelf.at("caches").join(format!("{}.lock", scan::key(root.name())))
    }
}

fn snapshot_of(scanned: &Scanned, added_bytes: u64) -> Snapshot {
    let left_out = scanned.left_out.iter().map(|(path, why)| (written(path), *why)).collect();
    Snapshot { id: scanned.root.tree(), files: scanned.files, bytes: scanned.bytes, added_bytes, left_out }
}
