//! Going back: what has to be done, decided before anything is touched.
//!
//! For every path at which the tree to go back to differs from the tree as it was left, what is there now is looked at. As it
//! was left: it is set back. As it shall be: nothing to do, an earlier try got that far. Anything else was somebody's, and
//! refuses the whole. What one of the two snapshots did not reach is left alone, and named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::cache::mode;
use super::compare::{Differing, Flat, differing};
use super::error::TreesError;
use super::node::{Folder, Node, ObjectId, as_path, below, split, to_path, written};
use super::rules::{Globs, IGNORE_FILE, IGNORE_FILE_MAX_BYTES, Kind, Rules};
use super::shelf::{View, copy_hashed};
use crate::error::Error;
use crate::root::{Place, Root};

/// What is at a path now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Now {
    Absent,
    /// `object` is None where it has another size than either tree says.
    File {
        object: Option<ObjectId>,
        is: Identity,
    },
    Folder {
        is: Identity,
    },
    Link {
        target: Vec<u8>,
        is: Identity,
    },
    /// Nothing that a tree holds, or nothing that can be read.
    Strange,
}

/// By what something is known again under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) mode: u16,
    pub(super) modified: (i64, i64),
    pub(super) owner: (u32, u32),
}

/// What is to be done at one path.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    /// None: nothing shall be there.
    pub(super) to: Option<Flat>,
    pub(super) now: Now,
}

/// All of it, sorted by path.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// As they shall be already.
    pub(super) done: Vec<Vec<u8>>,
    /// Differ, and stay: one of the snapshots did not reach them.
    pub(super) kept: Vec<Vec<u8>>,
    /// Where an earlier try may have left something under a temporary name.
    pub(super) touched: Vec<Vec<u8>>,
}

/// What a plan is made from.
pub(super) struct Planning<'a> {
    pub(super) root: &'a Root,
    pub(super) view: &'a View,
    pub(super) outer: Arc<Rules>,
    pub(super) include: &'a Globs,
    pub(super) within: Option<Globs>,
    pub(super) left: ObjectId,
    pub(super) to: ObjectId,
}

impl Planning<'_> {
    pub(super) fn plan(&self) -> Result<Plan, TreesError> {
        let all = self.wanted(differing(self.view, self.left, self.to)?);
        let mut reach = ReachOf { planning: self, folders: HashMap::new(), rules: HashMap::new() };
        let mut plan = Plan { steps: Vec::new(), done: Vec::new(), kept: Vec::new(), touched: Vec::new() };
        let mut changed = BTreeSet::new();
        for Differing { path, from: left, to } in all {
            let is_beyond = [&left, &to].into_iter().any(|side| matches!(side, Some(Flat::Beyond(_))));
            if is_beyond || (to.is_none() && !reach.reaches(&path, left.as_ref())?) {
                plan.kept.push(path);
                continue;
            }
            let now = self.now(&path, [left.as_ref(), to.as_ref()])?;
            plan.touched.push(path.clone());
            if is(&now, to.as_ref()) {
                plan.done.push(path);
            } else if is(&now, left.as_ref()) || self.is_on_the_way(&path, &now, left.as_ref(), to.as_ref()) {
                plan.steps.push(Step { path, to, now });
            } else {
                changed.insert(path);
            }
        }
        self.in_the_way(&plan, &mut changed)?;
        if !changed.is_empty() {
            return Err(TreesError::Changed(changed.iter().map(|path| written(path)).collect()));
        }
        self.can_be_made(&plan)?;
        Ok(plan)
    }

    /// What is asked for, and the folders that have to be made for it.
    fn wanted(&self, all: Vec<Differing>) -> Vec<Differing> {
        let Some(within) = &self.within else { return all };
        let mut on_the_way = BTreeSet::new();
        for differing in all.iter().filter(|differing| differing.to.is_some() && within.take(&differing.path)) {
            let mut path = differing.path.as_slice();
            while let Some((folder, _)) = split(path) {
                on_the_way.insert(folder.to_vec());
                path = folder;
            }
        }
        let is_wanted = |differing: &Differing| {
            let is_made = differing.from.is_none() && matches!(differing.to, Some(Flat::Folder { .. }));
            within.take(&differing.path) || (is_made && on_the_way.contains(&differing.path))
        };
        all.into_iter().filter(is_wanted).collect()
    }

    /// What is at a path, following nothing. Content is only read where it can be what one of the trees says.
    pub(super) fn now(&self, path: &[u8], expected: [Option<&Flat>; 2]) -> Result<Now, TreesError> {
        let failed = |errno| TreesError::of(as_path(written(path).as_bytes()), errno);
        let Some((folder, name)) = split(path) else {
            let folder = hold(self.root, path).map_err(|error| as_trees(path, error))?;
            return Ok(Now::Folder { is: Identity::of(&rustix::fs::fstat(folder).map_err(failed)?) });
        };
        let folder = match hold(self.root, folder) {
            Ok(folder) => folder,
            Err(Error::Missing { .. } | Error::NotAFolder { .. } | Error::Moved { .. }) => return Ok(Now::Absent),
            Err(error) => return Err(as_trees(path, error)),
        };
        let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Now::Absent),
            Err(errno) => return Err(failed(errno)),
        };
        let is = Identity::of(&stat);
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Now::Folder { is },
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&folder, name, Vec::new()).map_err(failed)?;
                Now::Link { target: target.into_bytes(), is }
            }
            FileType::RegularFile => {
                let has_size = |flat: Option<&Flat>| match flat {
                    Some(Flat::File { size, .. }) => i64::try_from(*size).is_ok_and(|size| size == is.size),
                    Some(Flat::Folder { .. } | Flat::Link { .. } | Flat::Beyond(_)) | None => false,
                };
                if expected.into_iter().any(has_size) {
                    self.content(&folder, name, path)?
                } else {
                    Now::File { object: None, is }
                }
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Now::Strange,
        })
    }

    fn content(&self, folder: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Now, TreesError> {
        let failed = |errno| TreesError::of(as_path(written(path).as_bytes()), errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // it is no longer what it was a moment ago, or nothing we may judge
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::PERM) => return Ok(Now::Strange),
            Err(errno) => return Err(failed(errno)),
        };
        let before = Identity::of(&rustix::fs::fstat(&file).map_err(failed)?);
        let max = u64::try_from(before.size).unwrap_or(0);
        let read = copy_hashed(&file, &mut std::io::sink(), max);
        let read = read.map_err(|error| TreesError::io(as_path(written(path).as_bytes()), error))?;
        let after = Identity::of(&rustix::fs::fstat(&file).map_err(failed)?);
        let object = read.filter(|(_, size)| *size == max && before == after).map(|(object, _)| object);
        Ok(Now::File { object, is: after })
    }

    /// States in which only we leave something, for a moment: the old is under a temporary name beside it and the new is not
    /// there yet (file systems that cannot exchange two names), or a folder is not yet closed.
    fn is_on_the_way(&self, path: &[u8], now: &Now, left: Option<&Flat>, to: Option<&Flat>) -> bool {
        match (now, to) {
            (Now::Absent, Some(_)) if left.is_some() => split(path).is_some_and(|(folder, name)| {
                hold(self.root, folder).is_ok_and(|folder| {
                    rustix::fs::statat(&folder, temporary(name, Stage::Old), AtFlags::SYMLINK_NOFOLLOW).is_ok()
                })
            }),
            (Now::Folder { is }, Some(Flat::Folder { mode })) if !matches!(left, Some(Flat::Folder { .. })) => {
                is.mode == opened(*mode)
            }
            _ => false,
        }
    }

    /// Where a path has to be made, its folder must be there or be made too; where a folder gives way, nothing that is not
    /// ours to move may lie in it.
    fn in_the_way(&self, plan: &Plan, changed: &mut BTreeSet<Vec<u8>>) -> Result<(), TreesError> {
        let steps: BTreeMap<&[u8], &Step> = plan.steps.iter().map(|step| (step.path.as_slice(), step)).collect();
        let mut folders: HashMap<&[u8], bool> = HashMap::new();
        for step in &plan.steps {
            if let (Some(_), Some((folder, _))) = (&step.to, split(&step.path)) {
                let is_made = steps.get(folder).is_some_and(|step| matches!(step.to, Some(Flat::Folder { .. })));
                let is_there = is_made || *folders.entry(folder).or_insert_with(|| hold(self.root, folder).is_ok());
                if !is_there {
                    changed.insert(folder.to_vec());
                }
            }
            let gives_way = matches!(step.to, Some(Flat::File { .. } | Flat::Link { .. }));
            if gives_way && matches!(step.now, Now::Folder { .. }) {
                // all the way down: a folder in it goes only if it is empty by then
                let mut open = vec![step.path.clone()];
                while let Some(folder) = open.pop() {
                    for name in self.names(&folder)? {
                        let path = below(&folder, &name);
                        match steps.get(path.as_slice()).filter(|step| step.to.is_none()) {
                            Some(goes) if matches!(goes.now, Now::Folder { .. }) => open.push(path),
                            Some(_) => {}
                            None if is_temporary(&name) => {}
                            None => {
                                changed.insert(path);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn names(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, TreesError> {
        let failed = |errno| TreesError::of(as_path(written(folder).as_bytes()), errno);
        let open = self.root.hold(&Place::Inside(to_path(folder)), OFlags::RDONLY | OFlags::DIRECTORY);
        let open = open.map_err(|error| as_trees(folder, error))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&open).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn can_be_made(&self, plan: &Plan) -> Result<(), TreesError> {
        for step in &plan.steps {
            if let Some(Flat::File { object, .. }) = &step.to
                && !self.view.has(*object)?
            {
                let text = format!("the content of {} ({}) is missing", written(&step.path), object.hex());
                return Err(TreesError::Damaged(text));
            }
        }
        Ok(())
    }
}

/// What the tree to go back to would have held, had it been there: by the ignore files in that tree.
struct ReachOf<'a, 'b> {
    planning: &'a Planning<'b>,
    folders: HashMap<Vec<u8>, Option<Arc<Folder>>>,
    rules: HashMap<Vec<u8>, Arc<Rules>>,
}

impl ReachOf<'_, '_> {
    /// Whether something that is not in that tree would have been in it.
    fn reaches(&mut self, path: &[u8], left: Option<&Flat>) -> Result<bool, TreesError> {
        if self.planning.include.take(path) {
            return Ok(true);
        }
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let here = &path[..end];
            let Some((above, name)) = split(here) else { continue };
            let is_there = self.folder(above)?.is_some_and(|folder| folder.entry(name).is_some());
            let kind = match left {
                Some(Flat::File { .. }) if end == path.len() && name == IGNORE_FILE => continue,
                Some(Flat::File { .. } | Flat::Link { .. } | Flat::Beyond(_)) | None if end == path.len() => {
                    Kind::Other
                }
                Some(_) | None => Kind::Folder,
            };
            if !is_there && self.rules(above)?.ignore(here, kind) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A folder of the tree; None: it has none there.
    fn folder(&mut self, path: &[u8]) -> Result<Option<Arc<Folder>>, TreesError> {
        if let Some(folder) = self.folders.get(path) {
            return Ok(folder.clone());
        }
        let object = match split(path) {
            None => Some(self.planning.to),
            Some((above, name)) => match self.folder(above)?.as_ref().and_then(|folder| folder.entry(name)) {
                Some(Node::Folder { object }) => Some(*object),
                Some(Node::File { .. } | Node::Link { .. } | Node::Beyond(_)) | None => None,
            },
        };
        let folder = match object {
            Some(object) => self.planning.view.folder(object)?.map(Arc::new),
            None => None,
        };
        self.folders.insert(path.to_vec(), folder.clone());
        Ok(folder)
    }

    fn rules(&mut self, path: &[u8]) -> Result<Arc<Rules>, TreesError> {
        if let Some(rules) = self.rules.get(path) {
            return Ok(rules.clone());
        }
        let above = match split(path) {
            Some((above, _)) => self.rules(above)?,
            None => self.planning.outer.clone(),
        };
        let text = match self.folder(path)?.as_ref().and_then(|folder| folder.entry(IGNORE_FILE)) {
            Some(Node::File { object, size, .. }) if *size <= IGNORE_FILE_MAX_BYTES => {
                self.planning.view.read(*object)?
            }
            Some(Node::File { .. } | Node::Folder { .. } | Node::Link { .. } | Node::Beyond(_)) | None => None,
        };
        let rules = text.map_or_else(|| above.clone(), |text| above.with(path, &text));
        self.rules.insert(path.to_vec(), rules.clone());
        Ok(rules)
    }
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            mode: mode(stat),
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX)),
            owner: (stat.st_uid, stat.st_gid),
        }
    }
}

/// Whether what is there is what a tree says.
pub(super) fn is(now: &Now, flat: Option<&Flat>) -> bool {
    match (now, flat) {
        (Now::Absent, None) => true,
        (Now::File { object: Some(object), is }, Some(Flat::File { mode, object: wanted, .. })) => {
            object == wanted && is.mode == *mode
        }
        (Now::Folder { is }, Some(Flat::Folder { mode })) => is.mode == *mode,
        (Now::Link { target, .. }, Some(Flat::Link { target: wanted })) => target == wanted,
        _ => false,
    }
}

/// A folder's mode while there is still something to be put into it.
pub(super) fn opened(mode: u16) -> u16 {
    mode | 0o700
}

/// Opens a folder of the workspace as a handle for what is in it.
pub(super) fn hold(root: &Root, folder: &[u8]) -> Result<OwnedFd, Error> {
    root.hold(&Place::Inside(to_path(folder)), OFlags::PATH | OFlags::DIRECTORY)
}

pub(super) fn as_trees(path: &[u8], error: Error) -> TreesError {
    TreesError::io(as_path(written(path).as_bytes()), std::io::Error::other(error))
}

/// What stands under a temporary name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Old,
}

const TEMPORARY: &[u8] = b".longrein-undo-";
/// Of the program's own writes to files; see `replace.rs`.
const WRITING: &[u8] = b".longrein-";
const DIGITS: usize = 16;

/// The name beside `name` under which something waits for its own.
pub(super) fn temporary(name: &[u8], stage: Stage) -> Vec<u8> {
    let mut temporary = TEMPORARY.to_vec();
    temporary.extend(&ObjectId::of(name).hex().as_bytes()[..DIGITS]);
    temporary.extend(match stage {
        Stage::New => &b".new"[..],
        Stage::Old => b".old",
    });
    temporary
}

/// Whether a name is one that we give for a moment. Such are no part of any snapshot.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let is_digits = |digits: Option<&[u8]>| digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if let Some(rest) = name.strip_prefix(TEMPORARY) {
        return is_digits(rest.get(..DIGITS)) && matches!(&rest[DIGITS..], b".new" | b".old");
    }
    name.strip_prefix(WRITING).is_some_and(|rest| {
        is_digits(rest.get(..DIGITS)) && rest[DIGITS..].starts_with(b"-") && rest.ends_with(b".tmp")
    })
}
