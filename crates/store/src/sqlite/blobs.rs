//! Large blobs as files beside the store: `blobs/<aa>/<digest>`. A file is complete and synced, with its name, before
//! anything refers to it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_ports::JournalError;

/// The largest blob kept as a row (`semantics.md` J2).
pub(super) const ROW_MAX_BYTES: usize = 256 * 1024;

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

    pub(super) fn write(&self, digest: &Digest, bytes: &Bytes) -> Result<(), JournalError> {
        let Some((folder, name)) = self.place(digest) else {
            return Err(JournalError::Unusable(format!("\"{digest}\" is no digest")));
        };
        self.write_to(&folder, &name, bytes).map_err(|error| JournalError::Unavailable(Box::new(error)))
    }

    fn write_to(&self, folder: &Path, name: &str, bytes: &Bytes) -> io::Result<()> {
        let target = folder.join(name);
        if !fs::metadata(&target).is_ok_and(|there| there.len() == bytes.len() as u64) {
            self.make(folder)?;
            let count = self.counter.fetch_add(1, Ordering::Relaxed);
            let temporary = folder.join(format!("{name}.{}.{count}.tmp", std::process::id()));
            // Left behind by an earlier process with our number, if it is there at all.
            let _ = fs::remove_file(&temporary);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &target)?;
        }
        self.sync_names(folder)
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

    /// The way to a file of this folder. What is found there is synced like what is new: the process that made it may not
    /// have lived to do so, or not have come to it yet.
    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        [Some(folder), Some(&self.root), self.root.parent()].into_iter().flatten().try_for_each(sync_folder)
    }

    /// None: no digest, and so no path.
    fn place(&self, digest: &Digest) -> Option<(PathBuf, String)> {
        let name = digest.as_str();
        let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| (self.root.join(&name[..2]), name.to_owned()))
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
