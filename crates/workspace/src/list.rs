//! What is in a folder.

use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, OFlags};

use crate::error::Error;
use crate::root::{Place, Root, bytes};
use crate::walk::{Go, Step, Wanted, walk};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLimits {
    pub max_entries: usize,
    pub time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File {
        bytes: u64,
    },
    Folder,
    /// Not followed.
    Link,
    /// A FIFO, a socket, a device.
    Special,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub place: Place,
    pub kind: EntryKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Seen, but over the limit. The deepest are left out.
    pub left_out: usize,
    /// The folder is so large that not all of it was looked at.
    pub unfinished: bool,
}

/// Names in one folder that are looked at.
const NAMES_MAX: usize = 10_000;

impl Root {
    /// Lists everything below a folder, or, by a glob, the files that match. Hidden and ignored files are left out, except
    /// that a glob with a hidden name in it finds hidden ones. No link is followed.
    pub fn list(&self, folder: &Place, glob: Option<&str>, limits: ListLimits) -> Result<Listing, Error> {
        let wanted = Wanted::new(glob)?;
        self.hold(folder, OFlags::PATH | OFlags::DIRECTORY)?;
        // the shallowest, then the first by name, are on top; no more of them are kept than may be shown
        let mut kept: BinaryHeap<(usize, Place)> = BinaryHeap::new();
        let mut left_out = 0;
        let unfinished = walk(self, folder, &wanted, Instant::now() + limits.time, |Step { place, entry }| {
            if !(wanted.is_pattern() && entry.file_type().is_some_and(|kind| kind.is_dir())) {
                kept.push((entry.depth(), place));
            }
            if kept.len() > limits.max_entries {
                kept.pop();
                left_out += 1;
            }
            Go::On
        });
        let mut entries: Vec<Entry> =
            kept.into_iter().filter_map(|(_, place)| Some(Entry { kind: self.kind(&place)?, place })).collect();
        entries.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(Listing { entries, left_out, unfinished: unfinished.is_some() })
    }

    /// Names in a folder, hidden ones too; none if it cannot be read. For telling what was perhaps meant.
    pub fn names(&self, folder: &Place) -> Vec<String> {
        let Ok(open) = self.hold(folder, OFlags::RDONLY | OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&open) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .take(NAMES_MAX)
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        names
    }

    /// None: it is gone, or no longer there without a link on the way.
    fn kind(&self, place: &Place) -> Option<EntryKind> {
        let held = self.hold(place, OFlags::PATH);
        let held = match held {
            // the last name is a link: RESOLVE_NO_SYMLINKS minds it even where it would not be followed
            Err(Error::Moved { .. }) => {
                self.hold(&place.parent()?, OFlags::PATH | OFlags::DIRECTORY).ok()?;
                return Some(EntryKind::Link);
            }
            held => held.ok()?,
        };
        let stat = rustix::fs::fstat(&held).ok()?;
        Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File { bytes: bytes(&stat) },
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::BlockDevice
            | FileType::CharacterDevice
            | FileType::Unknown => EntryKind::Special,
        })
    }
}
