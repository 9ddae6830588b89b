//! Whether the files that are written are still those that others would open under these names.
//!
//! SQLite goes on with what it has open. Where somebody has removed, moved or replaced the database or its log meanwhile (a
//! restore, a clean-up), commits would go where nobody finds them, a second process would begin a store of its own, and a
//! run would end well that nobody can read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longrein_ports::JournalError;

use super::open::beside;
use super::writer::StoreFailed;

/// A file, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

/// The files of an open store. None: not known yet.
#[derive(Debug)]
pub(super) struct Files {
    database: Option<Identity>,
    /// Made by the first transaction. Only the last connection to close removes it, and ours is open.
    log: Option<Identity>,
}

impl Files {
    pub(super) fn of(path: &Path) -> Self {
        let known = |path: &Path| identity(path).ok().flatten();
        Self { database: known(path), log: known(&beside(path, "-wal")) }
    }

    /// Fails where what is about to be committed would be lost.
    pub(super) fn are_in_place(&mut self, path: &Path) -> Result<(), JournalError> {
        is_in_place(&mut self.database, path)?;
        is_in_place(&mut self.log, &beside(path, "-wal"))
    }
}

fn is_in_place(known: &mut Option<Identity>, path: &Path) -> Result<(), JournalError> {
    // What cannot be looked at is no proof that it is gone.
    let Ok(now) = identity(path) else { return Ok(()) };
    match (*known, now) {
        (None, now) => *known = now,
        (Some(known), Some(now)) if known == now => {}
        (Some(_), _) => {
            let why = format!(
                "{} was removed, moved or replaced while it was in use; what came after that is kept nowhere",
                path.display()
            );
            return Err(StoreFailed::error(&why));
        }
    }
    Ok(())
}

/// None: there is no file of this name.
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match fs::metadata(path) {
        Ok(file) => Ok(Some(Identity(file.dev(), file.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
