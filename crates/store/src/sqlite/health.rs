//! A quick look at a store's file, for an operator who asks whether all is well. Nothing is made or changed.

use std::path::Path;

use longrein_ports::JournalError;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::place;

/// A file of more bytes is not read through: it would not be quick any more.
const CHECKED_MAX_BYTES: u64 = 512 * 1024 * 1024;
/// Faults after which looking further tells nothing new.
const FAULTS_MAX: u32 = 5;

/// What a quick look at a store found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Bytes of the file.
    pub bytes: u64,
    /// What SQLite finds wrong with its pages and indexes; None: the file is too large to be checked quickly.
    pub faults: Option<Vec<String>>,
}

/// The version of SQLite that is built in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Whether a store may be kept in this folder: refuses network file systems.
pub fn place_fits(folder: &Path) -> Result<(), JournalError> {
    place::check(folder)
}

/// Looks at the store in the file at `path`, which must be there.
pub fn health(path: &Path) -> Result<Health, JournalError> {
    let unusable = |error: &dyn std::fmt::Display| {
        JournalError::Unusable(format!("{} cannot be looked at: {error}", path.display()))
    };
    let bytes = std::fs::metadata(path).map_err(|error| unusable(&error))?.len();
    if bytes > CHECKED_MAX_BYTES {
        return Ok(Health { bytes, faults: None });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let look = || -> rusqlite::Result<Vec<String>> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;")?;
        let mut check = connection.prepare(&format!("PRAGMA quick_check({FAULTS_MAX})"))?;
        check.query_map([], |row| row.get(0))?.collect()
    };
    let mut found = match look() {
        Ok(found) => found,
        // Damage that keeps it from being opened is a finding too; a place that does not let us is none.
        Err(error) if is_of_the_file(&error) => vec![error.to_string()],
        Err(error) => return Err(unusable(&error)),
    };
    found.retain(|line| line != "ok");
    Ok(Health { bytes, faults: Some(found) })
}

fn is_of_the_file(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_file_has_no_faults_and_a_damaged_one_has() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("x.db");
        let made = Connection::open(&path).expect("a file can be made");
        made.execute_batch("CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO t SELECT hex(randomblob(50)) FROM n;")
            .expect("it can be filled");
        drop(made);
        assert_eq!(health(&path).expect("it is there").faults, Some(Vec::new()));

        let mut bytes = std::fs::read(&path).expect("it can be read");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 8192].fill(0xA5);
        std::fs::write(&path, bytes).expect("it can be written");
        let faults = health(&path).expect("it is there").faults.expect("it is small");
        assert!(!faults.is_empty(), "damage is found");
    }
}
