//! Making room: what no kept snapshot needs goes, and many small packs become one.
//!
//! Whoever takes, reads or restores a snapshot holds the store's lock together with others of that kind; who removes
//! anything holds it alone. So nothing vanishes under a snapshot that is being taken, and one that was taken but is not yet
//! written down anywhere is kept by its age.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::error::TreesError;
use super::node::{Node, ObjectId};
use super::shelf::{Held, Shelf, View, files, sync_folder};

/// What a restore moved aside, and what is known of a workspace that nobody came back to, is removed after this time.
pub const ASIDE_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// More packs than this are merged: each is a file to open.
const PACKS_MAX: usize = 48;
/// Larger ones are not written again for that.
const SMALL_PACK_BYTES: u64 = 16 << 20;

/// What a collection did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    pub snapshots_kept: u64,
    pub snapshots_removed: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Objects that kept snapshots need and that are missing or damaged.
    pub missing: u64,
}

/// What a store takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes {
    pub snapshots: u64,
    pub packs: u64,
    /// Of all objects.
    pub objects_bytes: u64,
    /// What restores moved aside.
    pub aside_bytes: u64,
    /// Files that may be deleted at any time.
    pub caches_bytes: u64,
}

pub(super) fn sizes(shelf: &Shelf) -> Result<Sizes, TreesError> {
    let view = shelf.look()?;
    let sum = |files: Vec<(String, std::path::PathBuf, u64)>| files.into_iter().map(|(.., bytes)| bytes).sum::<u64>();
    Ok(Sizes {
        snapshots: files(&shelf.at("snapshots"))?.len() as u64,
        packs: view.packs.len() as u64,
        objects_bytes: view.bytes(),
        aside_bytes: bytes_below(&shelf.at("aside")),
        caches_bytes: sum(files(&shelf.at("caches"))?) + sum(files(&shelf.at("temporary"))?),
    })
}

/// Needs the store for itself: `_alone` says that it has it.
pub(super) fn collect(
    shelf: &Shelf,
    _alone: &Held,
    keep: &HashSet<ObjectId>,
    older_than: Duration,
) -> Result<Collected, TreesError> {
    let view = shelf.look()?;
    let mut collected = Collected { bytes_before: view.bytes(), ..Collected::default() };
    let mut marked = HashSet::new();
    let mut snapshots = keep.clone();
    for (name, path, _) in files(&shelf.at("snapshots"))? {
        let id = ObjectId::of_hex(&name);
        match id {
            Some(id) if keep.contains(&id) || !is_older(&path, older_than) => {
                snapshots.insert(id);
            }
            Some(_) | None => {
                remove(&path)?;
                collected.snapshots_removed += 1;
            }
        }
    }
    for snapshot in snapshots {
        if view.has(snapshot)? {
            collected.snapshots_kept += 1;
            mark(&view, snapshot, &mut marked, &mut collected.missing)?;
        }
    }
    // a collection that dies here has removed nothing that is needed
    sync_folder(&shelf.at("snapshots"))?;
    for object in view.large.keys().filter(|object| !marked.contains(object)) {
        let path = shelf.at("large").join(object.hex());
        if is_older(&path, older_than) {
            remove(&path)?;
        }
    }
    rewrite(shelf, &view, Some((&marked, older_than)))?;
    for (_, path, _) in files(&shelf.at("temporary"))? {
        // their writers are gone: we are alone here
        remove(&path)?;
    }
    for (_, path, _) in files(&shelf.at("caches"))? {
        if is_older(&path, ASIDE_KEPT) {
            remove(&path)?;
        }
    }
    for entry in fs::read_dir(shelf.at("aside")).map_err(|error| TreesError::io(&shelf.at("aside"), error))?.flatten() {
        if is_older(&entry.path(), ASIDE_KEPT) {
            fs::remove_dir_all(entry.path()).map_err(|error| TreesError::io(&entry.path(), error))?;
        }
    }
    collected.bytes_after = shelf.look()?.bytes();
    Ok(collected)
}

/// Merges small packs if there are many, and nobody else is there.
pub(super) fn merge(shelf: &Shelf) -> Result<(), TreesError> {
    if shelf.look()?.packs.len() <= PACKS_MAX {
        return Ok(());
    }
    match shelf.seize() {
        Ok(_alone) => rewrite(shelf, &shelf.look()?, None),
        // another time
        Err(TreesError::Busy(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Everything below a folder. What is missing is counted: it cannot be made worse by removing what nobody can reach.
fn mark(view: &View, object: ObjectId, marked: &mut HashSet<ObjectId>, missing: &mut u64) -> Result<(), TreesError> {
    let mut folders = vec![object];
    while let Some(object) = folders.pop() {
        if !marked.insert(object) {
            continue;
        }
        let folder = match view.folder(object) {
            Ok(Some(folder)) => folder,
            Ok(None) | Err(TreesError::Damaged(_)) => {
                *missing += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        for entry in folder.entries {
            match entry.node {
                Node::Folder { object } => folders.push(object),
                Node::File { object, .. } => {
                    if marked.insert(object) && !view.has(object)? {
                        *missing += 1;
                    }
                }
                Node::Link { .. } | Node::Beyond(_) => {}
            }
        }
    }
    Ok(())
}

/// Writes packs anew: those of which much is not needed any more, and small ones where there are many.
fn rewrite(shelf: &Shelf, view: &View, needed: Option<(&HashSet<ObjectId>, Duration)>) -> Result<(), TreesError> {
    let is_needed = |object: ObjectId| needed.is_none_or(|(marked, _)| marked.contains(&object));
    let many = view.packs.len() > PACKS_MAX;
    let mut old = Vec::new();
    for pack in &view.packs {
        let dead: u64 = pack.objects()?.filter(|(object, _)| !is_needed(*object)).map(|(_, length)| length).sum();
        let is_wasteful = dead * 4 > pack.bytes && needed.is_some_and(|(_, age)| is_older(&pack.path, age));
        if is_wasteful || (many && pack.bytes < SMALL_PACK_BYTES) {
            old.push(pack);
        }
    }
    if old.is_empty() {
        return Ok(());
    }
    // what is written here replaces what goes, so the limit does not count it
    let unlimited = Shelf { folder: shelf.folder.clone(), max_bytes: u64::MAX };
    let empty = View::default();
    let mut writer = unlimited.writer(&empty);
    let mut left = HashSet::new();
    for pack in &old {
        for (object, _) in pack.objects()? {
            // unneeded ones too where they are too young to go
            let stays = is_needed(object) || needed.is_some_and(|(_, age)| !is_older(&pack.path, age));
            if stays && left.insert(object) {
                match view.read(object) {
                    Ok(Some(bytes)) => writer.append(object, &bytes)?,
                    // nothing is gained by keeping damaged bytes, and nothing else must be lost for them
                    Ok(None) | Err(TreesError::Damaged(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    writer.finish()?;
    for pack in old {
        remove(&pack.path)?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), TreesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TreesError::io(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What cannot be told is young.
fn is_older(path: &Path, age: Duration) -> bool {
    let modified = path.symlink_metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|passed| passed >= age))
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}
