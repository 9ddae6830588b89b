//! What was known of each file when it was last looked at, so that an unchanged one is not read again.
//!
//! One file per workspace, safe to delete. A file whose size, inode, mode and times are what they were has the content it
//! had, unless it was changed so shortly before it was looked at that a later change could bear the same time: such entries
//! have no stamp and are read again (git's "racily clean" entries, for the same reason).
//!
//! It has a second use: what was in the last snapshot stays in reach when an ignore file comes to name it, as a tracked file
//! does with git. So a step cannot hide what it does to a file by ignoring it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use super::node::{Bytes, MODE_BITS, ObjectId};

const MAGIC: &[u8] = b"longrein stat 1\n";

/// The kernel stamps changes with a clock that stands still for up to ten milliseconds.
const SLACK: Duration = Duration::from_millis(50);
/// Some file systems count whole seconds, or pairs of them.
const SLACK_COARSE: Duration = Duration::from_millis(2_050);

/// By what a file is known to be unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) mode: u16,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        // numbers of a file system; those that fit nowhere are equal only to themselves
        let nanos = |nanos| u32::try_from(nanos).unwrap_or(u32::MAX);
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: mode(stat),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }

    /// Whether a change after `looked` could not bear these times.
    fn is_settled(&self, looked: SystemTime) -> bool {
        let coarse = self.modified.1 == 0 && self.changed.1 == 0;
        let before = looked.checked_sub(if coarse { SLACK_COARSE } else { SLACK }).unwrap_or(UNIX_EPOCH);
        let before = before.duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = (i64::try_from(before.as_secs()).unwrap_or(i64::MAX), before.subsec_nanos());
        self.modified < before && self.changed < before
    }
}

pub(super) fn mode(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & MODE_BITS).expect("twelve bits")
}

/// Whether an object was on the shelf when this was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    File { object: ObjectId, stored: Stored, stamp: Option<Stamp> },
    Folder,
    Link,
}

/// A folder's part of the cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownFolder<'a> {
    pub(super) object: ObjectId,
    pub(super) stored: Stored,
    entries: Bytes<'a>,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    bytes: Vec<u8>,
    folders: Parts,
    /// The packs whose objects are marked as stored.
    pub(super) packs: Vec<String>,
}

/// By the path of the folder.
type Parts = HashMap<Vec<u8>, Part>;

#[derive(Debug, Clone, Copy)]
struct Part {
    object: ObjectId,
    stored: Stored,
    from: usize,
    to: usize,
}

impl Cache {
    /// Of what was written for this device. Anything else is an empty cache.
    pub(super) fn read(bytes: Vec<u8>, device: u64) -> Self {
        let Some((folders, packs)) = Self::parts(&bytes, device) else { return Self::default() };
        Self { bytes, folders, packs }
    }

    fn parts(bytes: &[u8], device: u64) -> Option<(Parts, Vec<String>)> {
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if ObjectId::of(content).0 != digest {
            return None;
        }
        let mut rest = Bytes(content.strip_prefix(MAGIC)?);
        if rest.u64()? != device {
            return None;
        }
        let mut packs = Vec::new();
        for _ in 0..rest.u32()? {
            packs.push(String::from_utf8(rest.text()?.to_vec()).ok()?);
        }
        let mut folders = HashMap::new();
        while !rest.0.is_empty() {
            let path = rest.text()?.to_vec();
            let stored = stored(rest.u8()?);
            let object = rest.object()?;
            let length = usize::try_from(rest.u32()?).ok()?;
            let from = content.len() - rest.0.len();
            rest.take(length)?;
            folders.insert(path, Part { object, stored, from, to: from + length });
        }
        Some((folders, packs))
    }

    pub(super) fn len(&self) -> usize {
        self.folders.len()
    }

    pub(super) fn folder(&self, path: &[u8]) -> Option<KnownFolder<'_>> {
        let part = self.folders.get(path)?;
        Some(KnownFolder { object: part.object, stored: part.stored, entries: Bytes(&self.bytes[part.from..part.to]) })
    }
}

/// Sorted by name.
impl<'a> Iterator for KnownFolder<'a> {
    type Item = (&'a [u8], Known);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &mut self.entries;
        let kind = rest.u8()?;
        let name = rest.text()?;
        let known = match kind {
            b'd' => Known::Folder,
            b'l' => Known::Link,
            _ => {
                let stored = stored(rest.u8()?);
                let object = rest.object()?;
                let stamp = Stamp {
                    inode: rest.u64()?,
                    size: rest.u64()?,
                    mode: rest.u16()?,
                    modified: (rest.i64()?, rest.u32()?),
                    changed: (rest.i64()?, rest.u32()?),
                };
                // of no file: no file system counts its inodes from there
                let stamp = Some(stamp).filter(|stamp| stamp.inode != 0);
                Known::File { object, stored, stamp }
            }
        };
        Some((name, known))
    }
}

fn stored(byte: u8) -> Stored {
    if byte == 1 { Stored::Yes } else { Stored::No }
}

/// Writes a cache, folder by folder.
pub(super) struct CacheWriter {
    bytes: Vec<u8>,
    looked: SystemTime,
    folder: usize,
}

impl CacheWriter {
    /// `looked`: a moment before the first file was.
    pub(super) fn new(device: u64, packs: &[String], looked: SystemTime) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(device.to_le_bytes());
        bytes.extend(u32::try_from(packs.len()).expect("packs are merged long before").to_le_bytes());
        for pack in packs {
            push_text(&mut bytes, pack.as_bytes());
        }
        Self { bytes, looked, folder: 0 }
    }

    pub(super) fn folder(&mut self, path: &[u8], object: ObjectId, stored: Stored) {
        self.end_folder();
        push_text(&mut self.bytes, path);
        self.bytes.push(u8::from(stored == Stored::Yes));
        self.bytes.extend(object.0);
        self.bytes.extend([0; 4]);
        self.folder = self.bytes.len();
    }

    pub(super) fn entry(&mut self, name: &[u8], known: &Known) {
        match known {
            Known::Folder => {
                self.bytes.push(b'd');
                push_text(&mut self.bytes, name);
            }
            Known::Link => {
                self.bytes.push(b'l');
                push_text(&mut self.bytes, name);
            }
            Known::File { object, stored, stamp } => {
                self.bytes.push(b'f');
                push_text(&mut self.bytes, name);
                self.bytes.push(u8::from(*stored == Stored::Yes));
                self.bytes.extend(object.0);
                let none = Stamp { inode: 0, size: 0, mode: 0, modified: (0, 0), changed: (0, 0) };
                let stamp = stamp.filter(|stamp| stamp.is_settled(self.looked)).unwrap_or(none);
                self.bytes.extend(stamp.inode.to_le_bytes());
                self.bytes.extend(stamp.size.to_le_bytes());
                self.bytes.extend(stamp.mode.to_le_bytes());
                for (seconds, nanos) in [stamp.modified, stamp.changed] {
                    self.bytes.extend(seconds.to_le_bytes());
                    self.bytes.extend(nanos.to_le_bytes());
                }
            }
        }
    }

    /// Fills in the length of the folder that was written last.
    fn end_folder(&mut self) {
        if self.folder > 0 {
            let length = u32::try_from(self.bytes.len() - self.folder).expect("a folder has fewer bytes of names");
            self.bytes[self.folder - 4..self.folder].copy_from_slice(&length.to_le_bytes());
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end_folder();
        let digest = ObjectId::of(&self.bytes);
        self.bytes.extend(digest.0);
        self.bytes
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend(u16::try_from(text.len()).expect("the kernel gives no longer paths").to_le_bytes());
    bytes.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: i64) -> Stamp {
        Stamp { inode: 7, size: 5, mode: 0o644, modified: (seconds, 1), changed: (seconds, 2) }
    }

    fn written(looked: u64) -> Vec<u8> {
        let mut writer = CacheWriter::new(3, &["p".to_owned()], UNIX_EPOCH + Duration::from_secs(looked));
        let object = ObjectId::of(b"x");
        writer.folder(b"", object, Stored::Yes);
        writer.entry(b"a", &Known::File { object, stored: Stored::No, stamp: Some(stamp(100)) });
        writer.entry(b"d", &Known::Folder);
        writer.folder(b"d", object, Stored::No);
        writer.finish()
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let cache = Cache::read(written(101), 3);
        assert_eq!((cache.packs.as_slice(), cache.len()), (&["p".to_owned()][..], 2));
        let root: Vec<_> = cache.folder(b"").unwrap().collect();
        let file = Known::File { object: ObjectId::of(b"x"), stored: Stored::No, stamp: Some(stamp(100)) };
        assert_eq!(root, [(&b"a"[..], file), (&b"d"[..], Known::Folder)]);
        assert_eq!(cache.folder(b"d").unwrap().count(), 0);
        assert!(cache.folder(b"e").is_none());
    }

    #[test]
    fn what_may_have_changed_since_within_the_same_tick_has_no_stamp() {
        let cache = Cache::read(written(100), 3);
        let (_, known) = cache.folder(b"").unwrap().next().unwrap();
        assert!(matches!(known, Known::File { stamp: None, .. }), "{known:?}");
    }

    #[test]
    fn a_damaged_cache_or_one_of_another_device_is_none() {
        let mut bytes = written(101);
        assert_eq!(Cache::read(bytes.clone(), 4).len(), 0);
        assert_eq!(Cache::read(bytes[..bytes.len() - 1].to_vec(), 3).len(), 0);
        bytes[30] ^= 1;
        assert_eq!(Cache::read(bytes, 3).len(), 0);
        assert_eq!(Cache::read(Vec::new(), 3).len(), 0);
    }
}
