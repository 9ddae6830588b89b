//! Opening a store: is this a place for one, is this file one, is it of a version we know. Every refusal names the file and
//! the way out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longrein_ports::JournalError;
use rusqlite::{Connection, OpenFlags};

use super::place;

/// `LRGN`: marks the file as ours.
const APPLICATION_ID: i64 = 0x4C52_474E;
/// Version of the tables below.
const SCHEMA_VERSION: i64 = 2;
/// How long SQLite itself waits for a lock before it answers busy.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening waits for others that open or recover the same file.
const OPEN_BUSY_MAX: Duration = Duration::from_secs(30);
/// Prepared statements kept per connection: all there are.
const STATEMENTS: usize = 64;

/// Text columns hold ids; every table but `events` (whose checksums are chained) and `blobs` (whose key is the digest)
/// seals each row. Events lie in the order of their commit, so that an append touches few pages.
const SCHEMA: &str = "
CREATE TABLE runs (
    run TEXT NOT NULL PRIMARY KEY,
    head INTEGER NOT NULL,
    chain BLOB NOT NULL,
    at INTEGER NOT NULL,
    batch TEXT NOT NULL,
    arrivals INTEGER NOT NULL,
    listing BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE claims (
    run TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_start INTEGER NOT NULL,
    until INTEGER NOT NULL,
    until_wall INTEGER NOT NULL,
    released INTEGER NOT NULL,
    root TEXT,
    seal BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX claims_rooted ON claims (run) WHERE root IS NOT NULL;
CREATE TABLE events (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    kind_version INTEGER NOT NULL,
    must_understand INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (run, seq)
) STRICT;
CREATE TABLE inbox (
    run TEXT NOT NULL,
    arrival INTEGER NOT NULL,
    id TEXT NOT NULL,
    taken INTEGER NOT NULL,
    body BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, arrival),
    UNIQUE (run, id)
) STRICT;
CREATE INDEX inbox_untaken ON inbox (run, arrival) WHERE taken = 0;
CREATE TABLE keys (
    scope TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    run TEXT NOT NULL,
    body BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (scope, tool, digest)
) STRICT;
CREATE TABLE blobs (
    digest TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
";

/// What version 2 has beside the tables of version 1: which files are tainted, which sources people trust. An older binary
/// would write to neither, and must not use such a store.
const SCHEMA_2: &str = "
CREATE TABLE marks (
    path TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    body BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE TABLE endorsements (
    source TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
";

/// The connection that writes. Makes the store if there is none.
pub(super) fn writer(path: &Path) -> Result<Connection, JournalError> {
    make_folder(path)?;
    make_private_file(path)?;
    let connection = connect(path)?;
    patiently(|| check_ours(&connection)).map_err(|error| error.explained(path))?;
    match patiently(|| set_up(&connection)).map_err(|error| error.explained(path))? {
        Tables::There => {}
        Tables::Missing => {
            sync_names(path)?;
            patiently(|| make_tables(&connection)).map_err(|error| error.explained(path))?;
        }
        Tables::Older => patiently(|| make_tables(&connection)).map_err(|error| error.explained(path))?,
    }
    tighten(path)?;
    sync_log(path)?;
    Ok(connection)
}

/// A connection that only reads, to a store that [`writer`] has opened.
pub(super) fn reader(path: &Path) -> Result<Connection, JournalError> {
    let connection = connect(path)?;
    connection
        .execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")
        .map_err(|error| Refusal::Sqlite(error).explained(path))?;
    Ok(connection)
}

enum Refusal {
    Sqlite(rusqlite::Error),
    /// Another program's database.
    NotOurs,
    Newer(i64),
    /// The file system has no shared memory for WAL.
    NoWal(String),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Refusal::Sqlite(error)
    }
}

impl Refusal {
    fn explained(self, path: &Path) -> JournalError {
        let path = path.display();
        JournalError::Unusable(match self {
            Refusal::Sqlite(error) => {
                let elsewhere = "or name another store with --store sqlite:PATH";
                match error.sqlite_error_code() {
                    Some(rusqlite::ErrorCode::NotADatabase) => {
                        format!("{path} is no SQLite file; move it away {elsewhere}")
                    }
                    Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                        format!("{path} is damaged ({error}); restore a backup of it {elsewhere}")
                    }
                    _ => format!(
                        "{path} cannot be opened now ({error}); look at free space, limits and permissions there, {elsewhere}"
                    ),
                }
            }
            Refusal::NotOurs => format!(
                "{path} is another program's database; name another file with --store sqlite:PATH or set LONGREIN_HOME"
            ),
            Refusal::Newer(version) => format!(
                "{path} has store version {version}, this binary knows {SCHEMA_VERSION}; use a newer binary, or another \
                 store with --store sqlite:PATH"
            ),
            Refusal::NoWal(mode) => format!(
                "{path} cannot use a write-ahead log here (journal mode stays {mode}); put the store on a local disk \
                 with --store sqlite:PATH or LONGREIN_HOME"
            ),
        })
    }

    fn is_busy(&self) -> bool {
        match self {
            Refusal::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::FileLockingProtocolFailed)
            ),
            Refusal::NotOurs | Refusal::Newer(_) | Refusal::NoWal(_) => false,
        }
    }
}

/// Some locks (recovery, the switch to WAL) answer busy without waiting.
fn patiently<T>(attempt: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(refusal) if refusal.is_busy() && started.elapsed() < OPEN_BUSY_MAX => {
                std::thread::sleep(Duration::from_millis(5));
            }
            answer => return answer,
        }
    }
}

fn connect(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> Result<Connection, Refusal> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // Settings of the connection; none of them reads the file. Pages are kept by the kernel, too: an append touches few.
        connection.execute_batch(
            "PRAGMA mmap_size = 0; PRAGMA cache_size = -512; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
        )?;
        Ok(connection)
    };
    patiently(open).map_err(|refusal| refusal.explained(path))
}

/// Looks before anything is changed, in one transaction: another process may be making the tables just now.
fn check_ours(connection: &Connection) -> Result<(), Refusal> {
    let look = connection.unchecked_transaction()?;
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    look.rollback()?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(()),
        (APPLICATION_ID, version, _) if version > SCHEMA_VERSION => Err(Refusal::Newer(version)),
        (APPLICATION_ID, 1.., _) => Ok(()),
        _ => Err(Refusal::NotOurs),
    }
}

#[derive(PartialEq, Eq)]
enum Tables {
    There,
    Missing,
    /// Those of an earlier version.
    Older,
}

fn set_up(connection: &Connection) -> Result<Tables, Refusal> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Refusal::NoWal(mode));
    }
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216;")?;
    let made: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(match made {
        APPLICATION_ID if version < SCHEMA_VERSION => Tables::Older,
        APPLICATION_ID => Tables::There,
        _ => Tables::Missing,
    })
}

/// Two processes may come here at once: the second finds the tables made once it has the lock.
fn make_tables(connection: &Connection) -> Result<(), Refusal> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let make = || -> Result<(), Refusal> {
        let made: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if made != APPLICATION_ID {
            connection.execute_batch(SCHEMA)?;
        }
        if made != APPLICATION_ID || version < 2 {
            connection.execute_batch(SCHEMA_2)?;
            connection.execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            ))?;
        }
        Ok(connection.execute_batch("COMMIT")?)
    };
    make().inspect_err(|_| {
        // The error is what matters; closing the connection rolls back, too.
        let _ = connection.execute_batch("ROLLBACK");
    })
}

/// Makes the folder (private if it is new), and checks the place before and after.
fn make_folder(path: &Path) -> Result<(), JournalError> {
    if path.is_dir() || path.file_name().is_none() {
        return Err(JournalError::Unusable(format!(
            "{} is a folder; name a file with --store sqlite:PATH",
            path.display()
        )));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let there = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    place::check(there)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| cannot("be made", folder, &error))?;
    place::check(folder)
}

/// Makes an empty file that only its owner may read, under another name, and links it into place: SQLite would make one
/// with the process's umask, and the store's own name must not be opened here.
fn make_private_file(path: &Path) -> Result<(), JournalError> {
    if path.exists() {
        return Ok(());
    }
    // A name of its own: one left by a killed process of this number may lead to a store, which must not be emptied.
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = beside(path, &format!(".{}.{count}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    drop(made.map_err(|error| cannot("be written to", path.parent().unwrap_or(path), &error))?);
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // No hard links here: SQLite makes the file, and `tighten` closes it to others before anything is in it.
        Err(_) => Ok(()),
    }
}

/// Makes the way to a new store durable. SQLite syncs the folder of its files and none above it; whoever made those may
/// have been killed before it came here, so it is done by everybody who finds no tables yet.
fn sync_names(path: &Path) -> Result<(), JournalError> {
    path.ancestors().skip(1).try_for_each(sync_folder)
}

/// A process that was killed in the middle of a sync leaves a commit in the log that is whole and not on the disk. Here it
/// has become visible, and an answer may rest on it (an input that "was posted before"), so it is synced first. Opening the
/// log drops no lock: SQLite's are on the file itself and its `-shm`.
fn sync_log(path: &Path) -> Result<(), JournalError> {
    let log = beside(path, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        File::open(&log).and_then(|log| log.sync_all()).map_err(|error| cannot("be synced", &log, &error))?;
        sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.or_else(|error| {
        // We made no folder that we may not read or write; and some file systems have no sync of folders.
        let cannot_be_asked =
            matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported);
        if cannot_be_asked { Ok(()) } else { Err(cannot("be synced", folder, &error)) }
    })
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes the file and its companions from group and others. SQLite gives new companions the mode of the file.
fn tighten(path: &Path) -> Result<(), JournalError> {
    for suffix in ["", "-wal", "-shm"] {
        let file = beside(path, suffix);
        let Ok(metadata) = fs::metadata(&file) else { continue };
        if metadata.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
                .map_err(|error| cannot("be made private", &file, &error))?;
        }
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> JournalError {
    JournalError::Unusable(format!(
        "{} cannot {what}: {error}; name another place with --store sqlite:PATH or LONGREIN_HOME",
        path.display()
    ))
}
