//! Large blobs as files beside the store: `blobs/<aa>/<digest>`. A file is complete and synced, with its name, before
//! anything refers to it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_ports::JournalError;

/// The largest blob kept as a row (`semantics.md` J2).
pub(super) const ROW_MAX_BYTES: usize = 256 * 1024;

/// A file that is not finished after a day has lost its writer.
const UNFINISHED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn is_large(bytes: &Bytes) -> bool {
    bytes.len() > ROW_MAX_BYTES
}

pub(super) struct BlobFolder {
    root: PathBuf,
    /// Makes temporary names of this process unique.
    counter: AtomicU64,
}

impl BlobFolder {
    pub(super) fn beside(store: &Path) -> Self {
        Self { root: store.with_file_name("blobs"), counter: AtomicU64::new(0) }
    }

    pub(super) fn read(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError> {
        let Some((folder, name)) = self.place(digest) else { return Ok(None) };
        match fs::read(folder.join(name)) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(JournalError::Unavailable(Box::new(error))),
        }
    }

    /// Puts a file in place. It is whole, and its name may still be lost with the power.
    pub(super) fn write(&self, digest: &Digest, bytes: &Bytes) -> Result<(), JournalError> {
        self.at_place(digest, |folder, name| self.write_to(folder, name, bytes))
    }

    /// The last word before something refers to a file, under the write lock: it is in place, and so are the names that
    /// lead there. What is found is synced like what is new: the process that made it may not have lived to do so, or not
    /// have come to it yet.
    pub(super) fn secure(&self, digest: &Digest, bytes: &Bytes) -> Result<(), JournalError> {
        self.at_place(digest, |folder, name| {
            self.write_to(folder, name, bytes)?;
            [Some(folder), Some(&self.root), self.root.parent()].into_iter().flatten().try_for_each(sync_folder)
        })
    }

    fn at_place(&self, digest: &Digest, work: impl FnOnce(&Path, &str) -> io::Result<()>) -> Result<(), JournalError> {
        let Some((folder, name)) = self.place(digest) else {
            return Err(JournalError::Unusable(format!("\"{digest}\" is no digest")));
        };
        work(&folder, &name).map_err(|error| JournalError::Unavailable(Box::new(error)))
    }

    fn write_to(&self, folder: &Path, name: &str, bytes: &Bytes) -> io::Result<()> {
        let target = folder.join(name);
        if fs::metadata(&target).is_ok_and(|there| there.len() == bytes.len() as u64) {
            return touch(&target);
        }
        self.make(folder)?;
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{name}.{}.{count}.tmp", std::process::id()));
        // Left behind by an earlier process with our number, if it is there at all.
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    }

    /// Digests of all files.
    pub(super) fn all(&self) -> Result<Vec<Digest>, JournalError> {
        let names = self.names().map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        let digest = |(_, name): (PathBuf, String)| {
            let digest = Digest::new(name);
            self.place(&digest).map(|_| digest)
        };
        Ok(names.into_iter().filter_map(digest).collect())
    }

    /// Removes a file that nobody has written or wanted for so long. The size of what was removed; None: it is not there,
    /// or too young.
    pub(super) fn remove(&self, digest: &Digest, older_than: Duration) -> Result<Option<u64>, JournalError> {
        let Some((folder, name)) = self.place(digest) else { return Ok(None) };
        remove_old(&folder.join(name), older_than).map_err(|error| JournalError::Unavailable(Box::new(error)))
    }

    /// Removes what writers that died left half written.
    pub(super) fn remove_unfinished(&self) -> Result<(), JournalError> {
        let remove = || -> io::Result<()> {
            for (folder, name) in self.names()?.into_iter().filter(|(_, name)| name.ends_with(".tmp")) {
                remove_old(&folder.join(name), UNFINISHED_AFTER)?;
            }
            Ok(())
        };
        remove().map_err(|error| JournalError::Unavailable(Box::new(error)))
    }

    /// Everything in the folders, with its folder.
    fn names(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let mut names = Vec::new();
        let folders = match fs::read_dir(&self.root) {
            Ok(folders) => folders,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(error),
        };
        for folder in folders {
            let folder = folder?.path();
            if folder.is_dir() {
                for entry in fs::read_dir(&folder)? {
                    names.extend(entry?.file_name().into_string().ok().map(|name| (folder.clone(), name)));
                }
            }
        }
        Ok(names)
    }

    fn make(&self, folder: &Path) -> io::Result<()> {
        for path in [&self.root, folder] {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// None: no digest, and so no path.
    fn place(&self, digest: &Digest) -> Option<(PathBuf, String)> {
        let name = digest.as_str();
        let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| (self.root.join(&name[..2]), name.to_owned()))
    }
}

/// Marks a file as wanted now, so that a collection leaves it.
fn touch(file: &Path) -> io::Result<()> {
    match File::options().append(true).open(file).and_then(|file| file.set_modified(SystemTime::now())) {
        // Taken just now: written anew by the next look.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

fn remove_old(file: &Path, older_than: Duration) -> io::Result<Option<u64>> {
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A time in the future is young.
    let age = metadata.modified()?.elapsed().unwrap_or(Duration::ZERO);
    if age < older_than {
        return Ok(None);
    }
    fs::remove_file(file)?;
    Ok(Some(metadata.len()))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
