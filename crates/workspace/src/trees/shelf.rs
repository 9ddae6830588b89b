//! Where objects lie: by the digest of their bytes, each once, whoever's workspace they come from.
//!
//! Small ones, which are most, are written one after the other into a pack, one per snapshot that brings anything new, so
//! that fifty thousand files cost one sync. Large ones are files of their own. Both are written under a temporary name,
//! synced, and then given their name; nothing that has a name is ever written to. A process that dies leaves only temporary
//! files. Whatever is read is held against its digest.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;

use super::error::TreesError;
use super::node::{Bytes, Folder, ObjectId};

/// From this size on an object is a file of its own: it is streamed, and collected alone.
pub(super) const LARGE_BYTES: u64 = 1 << 20;

const MAGIC: &[u8; 16] = b"longrein pack 1\n";
/// Digest, offset, length.
const RECORD_BYTES: usize = 32 + 8 + 8;
/// Where the index begins, how many records it has, its own digest.
const FOOTER_BYTES: usize = 8 + 8 + 32;

/// The folder of a store.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) folder: PathBuf,
    /// The most that all objects together may take.
    pub(super) max_bytes: u64,
}

/// What is on the shelf at one moment.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) packs: Vec<Pack>,
    pub(super) large: BTreeMap<ObjectId, u64>,
    large_folder: PathBuf,
}

#[derive(Debug)]
pub(super) struct Pack {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    open: OnceLock<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Records, sorted by digest.
    index: Vec<u8>,
}

/// Someone is at work in the store until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

impl Shelf {
    pub(super) fn open(folder: PathBuf, max_bytes: u64) -> Result<Self, TreesError> {
        for below in ["", "packs", "large", "snapshots", "caches", "aside", "temporary"] {
            make_folder(&folder.join(below))?;
        }
        Ok(Self { folder, max_bytes })
    }

    pub(super) fn at(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Waits until nobody collects.
    pub(super) fn share(&self) -> Result<Held, TreesError> {
        lock(&self.at("lock"), FlockOperation::LockShared)
    }

    /// For whoever removes objects.
    pub(super) fn seize(&self) -> Result<Held, TreesError> {
        lock(&self.at("lock"), FlockOperation::NonBlockingLockExclusive)
    }

    pub(super) fn look(&self) -> Result<View, TreesError> {
        let mut view = View { packs: Vec::new(), large: BTreeMap::new(), large_folder: self.at("large") };
        for (name, path, bytes) in files(&self.at("packs"))? {
            if name.ends_with(".pack") {
                view.packs.push(Pack { name, path, bytes, open: OnceLock::new() });
            }
        }
        // the newest first: what is looked for was most likely written last
        view.packs.sort_by(|a, b| b.name.cmp(&a.name));
        for (name, _, bytes) in files(&self.at("large"))? {
            if let Some(object) = ObjectId::of_hex(&name) {
                view.large.insert(object, bytes);
            }
        }
        Ok(view)
    }

    pub(super) fn writer<'a>(&'a self, view: &'a View) -> Writer<'a> {
        Writer { shelf: self, view, pack: None, stored: view.bytes(), brought: 0, large: Vec::new() }
    }

    /// A file under a temporary name, for ourselves alone.
    fn temporary(&self) -> Result<(File, PathBuf), TreesError> {
        let path = self.at("temporary").join(unique());
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        Ok((file.map_err(|error| TreesError::io(&path, error))?, path))
    }

    /// Gives a synced file its name, durably.
    fn name(&self, temporary: &Path, folder: &str, name: &str) -> Result<PathBuf, TreesError> {
        let folder = self.at(folder);
        let path = folder.join(name);
        fs::rename(temporary, &path).map_err(|error| TreesError::io(&path, error))?;
        sync_folder(&folder)?;
        Ok(path)
    }
}

impl View {
    pub(super) fn bytes(&self) -> u64 {
        self.packs.iter().map(|pack| pack.bytes).sum::<u64>() + self.large.values().sum::<u64>()
    }

    pub(super) fn has(&self, object: ObjectId) -> Result<bool, TreesError> {
        if self.large.contains_key(&object) {
            return Ok(true);
        }
        for pack in &self.packs {
            if pack.find(object)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// None: there is no such object.
    pub(super) fn read(&self, object: ObjectId) -> Result<Option<Vec<u8>>, TreesError> {
        let mut bytes = Vec::new();
        Ok(self.copy(object, &mut bytes)?.then_some(bytes))
    }

    /// None: there is no such object.
    pub(super) fn folder(&self, object: ObjectId) -> Result<Option<Folder>, TreesError> {
        let Some(bytes) = self.read(object)? else { return Ok(None) };
        let folder = Folder::decode(&bytes);
        folder.map(Some).ok_or_else(|| TreesError::Damaged(format!("the object {} is no folder", object.hex())))
    }

    /// Writes an object to `to`, and says whether there is one. What was written is right only if this returns Ok.
    pub(super) fn copy(&self, object: ObjectId, to: &mut impl Write) -> Result<bool, TreesError> {
        let failed = |path: &Path, error| TreesError::io(path, error);
        let (path, file, mut offset, mut left) = match self.large.get(&object) {
            Some(bytes) => {
                let path = self.large_folder.join(object.hex());
                let file = File::open(&path).map_err(|error| failed(&path, error))?;
                (path, file, 0, *bytes)
            }
            None => {
                let found = self.packs.iter().find_map(|pack| match pack.find(object) {
                    Ok(None) => None,
                    Ok(Some(place)) => Some(Ok((pack, place))),
                    Err(error) => Some(Err(error)),
                });
                let Some((pack, (offset, length))) = found.transpose()? else { return Ok(false) };
                let file = pack.open()?.file.try_clone().map_err(|error| failed(&pack.path, error))?;
                (pack.path.clone(), file, offset, length)
            }
        };
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; usize::try_from(left.min(LARGE_BYTES)).unwrap_or(0)];
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read_at(&mut buffer[..want], offset).map_err(|error| failed(&path, error))?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            to.write_all(&buffer[..count]).map_err(|error| failed(&path, error))?;
            offset += count as u64;
            left -= count as u64;
        }
        if *hasher.finalize().as_bytes() != object.0 {
            let text = format!("the object {} in {} is not what was written", object.hex(), path.display());
            return Err(TreesError::Damaged(text));
        }
        Ok(true)
    }
}

impl Pack {
    fn open(&self) -> Result<&Open, TreesError> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let file = File::open(&self.path).map_err(|error| TreesError::io(&self.path, error))?;
        let index =
            read_index(&file, self.bytes).map_err(|error| TreesError::io(&self.path, error))?.ok_or_else(|| {
                TreesError::Damaged(format!("the index of {} is not what was written", self.path.display()))
            })?;
        Ok(self.open.get_or_init(|| Open { file, index }))
    }

    /// Offset and length.
    fn find(&self, object: ObjectId) -> Result<Option<(u64, u64)>, TreesError> {
        let index = &self.open()?.index;
        let (mut low, mut high) = (0, index.len() / RECORD_BYTES);
        while low < high {
            let middle = low.midpoint(high);
            let (found, offset, length) = record(index, middle);
            match found.cmp(&object) {
                std::cmp::Ordering::Equal => return Ok(Some((offset, length))),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// All that is in it: object and length.
    pub(super) fn objects(&self) -> Result<impl Iterator<Item = (ObjectId, u64)>, TreesError> {
        let index = &self.open()?.index;
        Ok((0..index.len() / RECORD_BYTES).map(|at| {
            let (object, _, length) = record(index, at);
            (object, length)
        }))
    }
}

fn record(index: &[u8], at: usize) -> (ObjectId, u64, u64) {
    let mut bytes = Bytes(&index[at * RECORD_BYTES..][..RECORD_BYTES]);
    let read = (|| Some((bytes.object()?, bytes.u64()?, bytes.u64()?)))();
    read.expect("a record has that many bytes")
}

/// None: damaged.
fn read_index(file: &File, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut footer = [0; FOOTER_BYTES];
    file.read_exact_at(&mut footer, footer_at)?;
    let mut footer = Bytes(&footer);
    let (Some(at), Some(count), Some(digest)) = (footer.u64(), footer.u64(), footer.object()) else { return Ok(None) };
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(RECORD_BYTES));
    let Some(length) = length.filter(|length| at.checked_add(*length as u64) == Some(footer_at)) else {
        return Ok(None);
    };
    let mut index = vec![0; length];
    file.read_exact_at(&mut index, at)?;
    Ok((ObjectId::of(&index) == digest).then_some(index))
}

/// Puts objects on the shelf. What was put is there, and durable, when [`Writer::finish`] returns; dropped before, a writer
/// leaves nothing but large objects nobody names.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    shelf: &'a Shelf,
    view: &'a View,
    pack: Option<NewPack>,
    stored: u64,
    brought: u64,
    large: Vec<ObjectId>,
}

#[derive(Debug)]
struct NewPack {
    file: BufWriter<File>,
    path: PathBuf,
    end: u64,
    index: HashMap<ObjectId, (u64, u64)>,
}

/// What a writer added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Brought {
    /// The name of the pack, if there is one.
    pub(super) pack: Option<String>,
    pub(super) bytes: u64,
}

impl Writer<'_> {
    pub(super) fn has(&self, object: ObjectId) -> Result<bool, TreesError> {
        let new = self.pack.as_ref().is_some_and(|pack| pack.index.contains_key(&object));
        Ok(new || self.large.contains(&object) || self.view.has(object)?)
    }

    pub(super) fn put(&mut self, object: ObjectId, bytes: &[u8]) -> Result<(), TreesError> {
        if self.has(object)? {
            return Ok(());
        }
        self.append(object, bytes)
    }

    /// Of an object that is in no pack that will stay.
    pub(super) fn append(&mut self, object: ObjectId, bytes: &[u8]) -> Result<(), TreesError> {
        let length = bytes.len() as u64;
        self.make_room(length + RECORD_BYTES as u64)?;
        let pack = match &mut self.pack {
            Some(pack) => pack,
            None => {
                let (file, path) = self.shelf.temporary()?;
                let mut file = BufWriter::with_capacity(1 << 18, file);
                file.write_all(MAGIC).map_err(|error| TreesError::io(&path, error))?;
                self.pack.insert(NewPack { file, path, end: MAGIC.len() as u64, index: HashMap::new() })
            }
        };
        pack.file.write_all(bytes).map_err(|error| TreesError::io(&pack.path, error))?;
        pack.index.insert(object, (pack.end, length));
        pack.end += length;
        Ok(())
    }

    /// A large object, read from the start of `from`. Answers what was read: that is what is on the shelf now.
    pub(super) fn put_large(&mut self, from: &File, max_bytes: u64) -> Result<Option<(ObjectId, u64)>, TreesError> {
        let (mut file, path) = self.shelf.temporary()?;
        let copied = copy_hashed(from, &mut file, max_bytes).map_err(|error| TreesError::io(&path, error));
        let done = copied.and_then(|copied| {
            let Some((object, bytes)) = copied else { return Ok(None) };
            if self.has(object)? {
                return Ok(Some((object, bytes)));
            }
            self.make_room(bytes)?;
            file.sync_all().map_err(|error| TreesError::io(&path, error))?;
            self.shelf.name(&path, "large", &object.hex())?;
            self.large.push(object);
            Ok(Some((object, bytes)))
        });
        // it has no such name any more if all went well
        let _absent = fs::remove_file(&path);
        done
    }

    fn make_room(&mut self, bytes: u64) -> Result<(), TreesError> {
        self.brought += bytes;
        if self.stored + self.brought > self.shelf.max_bytes {
            return Err(TreesError::TooLarge(format!(
                "the store of snapshots ({}) would grow over its limit of {} MiB; `longrein gc` removes what no run needs, \
                 and files that need no snapshot can be named in .gitignore",
                self.shelf.folder.display(),
                self.shelf.max_bytes >> 20
            )));
        }
        Ok(())
    }

    /// Syncs and names what was put.
    pub(super) fn finish(mut self) -> Result<Brought, TreesError> {
        let bytes = self.brought;
        let Some(mut pack) = self.pack.take() else { return Ok(Brought { pack: None, bytes }) };
        let mut records: Vec<(ObjectId, (u64, u64))> = pack.index.drain().collect();
        records.sort_unstable();
        let mut index = Vec::with_capacity(records.len() * RECORD_BYTES);
        for (object, (offset, length)) in &records {
            index.extend(object.0);
            index.extend(offset.to_le_bytes());
            index.extend(length.to_le_bytes());
        }
        let digest = ObjectId::of(&index);
        let written = (|| {
            pack.file.write_all(&index)?;
            pack.file.write_all(&pack.end.to_le_bytes())?;
            pack.file.write_all(&(records.len() as u64).to_le_bytes())?;
            pack.file.write_all(&digest.0)?;
            pack.file.flush()?;
            pack.file.get_ref().sync_all()
        })();
        let named = written.map_err(|error| TreesError::io(&pack.path, error)).and_then(|()| {
            let name = format!("{}.pack", unique());
            self.shelf.name(&pack.path, "packs", &name)?;
            Ok(name)
        });
        if named.is_err() {
            let _left = fs::remove_file(&pack.path);
        }
        Ok(Brought { pack: Some(named?), bytes })
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(pack) = &self.pack {
            let _left = fs::remove_file(&pack.path);
        }
    }
}

/// None: there is more than `max_bytes`.
pub(super) fn copy_hashed(from: &File, to: &mut impl Write, max_bytes: u64) -> io::Result<Option<(ObjectId, u64)>> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut offset = 0;
    loop {
        let count = match from.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(Some((ObjectId(*hasher.finalize().as_bytes()), offset))),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        offset += count as u64;
        if offset > max_bytes {
            return Ok(None);
        }
    }
}

/// A name that sorts by time and that nobody else uses.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{now:024}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn lock(path: &Path, how: FlockOperation) -> Result<Held, TreesError> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|error| TreesError::io(path, error))?;
    loop {
        match rustix::fs::flock(&file, how) {
            Ok(()) => return Ok(Held { _file: file }),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(TreesError::Busy(
                    "another process is at work on the snapshots of this store; try again later",
                ));
            }
            Err(errno) => return Err(TreesError::of(path, errno)),
        }
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), TreesError> {
    let failed = |error| TreesError::io(path, error);
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

pub(super) fn sync_folder(path: &Path) -> Result<(), TreesError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| TreesError::io(path, error))
}

/// Name, path and size of the files in a folder of the store. One that is gone meanwhile is left out.
pub(super) fn files(folder: &Path) -> Result<Vec<(String, PathBuf, u64)>, TreesError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| TreesError::io(folder, error))? {
        let entry = entry.map_err(|error| TreesError::io(folder, error))?;
        let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
        if metadata.is_file() {
            found.push((name, entry.path(), metadata.len()));
        }
    }
    Ok(found)
}

/// The whole of a small file of the store; None if there is none.
pub(super) fn read_whole(path: &Path) -> Result<Option<Vec<u8>>, TreesError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TreesError::io(path, error)),
    }
}

/// Replaces a file that may be lost: nothing is synced.
pub(super) fn write_cache(shelf: &Shelf, path: &Path, bytes: &[u8]) -> Result<(), TreesError> {
    let (mut file, temporary) = shelf.temporary()?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _left = fs::remove_file(&temporary);
    }
    written.map_err(|error| TreesError::io(path, error))
}
