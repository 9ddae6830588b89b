//! The tables as rows: every statement there is, each prepared once per connection.
//!
//! Reading trusts nothing: a value of the wrong type becomes one that no seal was made over, and is found by its check.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::ids::{Digest, InputId, RunId};
use longrein_ports::{JournalError, KeyId};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, Row, params};

use super::blobs;
use super::open::BUSY_TIMEOUT;
use crate::encoding::{ClaimRecord, EndorsementRecord, InboxRecord, KeyRecord, MarkRecord, RunRecord, StoredEvent};
use crate::rules::{Rows, Write};

const RUN: &str = "SELECT run, head, chain, at, batch, arrivals, listing, seal FROM runs";
const CLAIM: &str =
    "SELECT run, fence, host, boot, pid, pid_start, until, until_wall, released, root, seal FROM claims";
const EVENT: &str = "SELECT seq, at, kind, kind_version, must_understand, body, checksum FROM events";
const INPUT: &str = "SELECT run, arrival, id, taken, body, seal FROM inbox";
const KEY: &str = "SELECT scope, tool, digest, run, body, seal FROM keys";
const MARK: &str = "SELECT path, number, body, seal FROM marks";
const ENDORSEMENT: &str = "SELECT source, body, seal FROM endorsements";

/// A connection as tables.
pub(super) struct Table<'a> {
    connection: &'a Connection,
    path: &'a Path,
    /// The first error of SQLite itself: after it the transaction is lost.
    failure: RefCell<Option<String>>,
}

/// Whether a transaction serves one request or several. Each of several can fail alone, which needs a savepoint: a copy of
/// every page it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    One,
    Several,
}

/// An error of SQLite, with the file it is about.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
struct SqliteFailed {
    path: String,
    source: rusqlite::Error,
}

pub(super) fn is_busy(error: &JournalError) -> bool {
    match error {
        JournalError::Unavailable(source) => source.downcast_ref::<SqliteFailed>().is_some_and(|failed| {
            matches!(
                failed.source.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
            )
        }),
        JournalError::Unusable(_) | JournalError::Corrupt { .. } => false,
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(connection: &'a Connection, path: &'a Path) -> Self {
        Self { connection, path, failure: RefCell::new(None) }
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn failed(&self, source: rusqlite::Error) -> JournalError {
        let failed = SqliteFailed { path: self.path.display().to_string(), source };
        self.failure.borrow_mut().get_or_insert_with(|| failed.to_string());
        JournalError::Unavailable(Box::new(failed))
    }

    pub(super) fn execute(&self, statement: &str) -> Result<(), JournalError> {
        self.change(statement, []).map(drop).map_err(|source| self.failed(source))
    }

    /// For what SQLite does while it prepares.
    pub(super) fn execute_uncached(&self, statement: &str) -> Result<(), JournalError> {
        self.connection.execute_batch(statement).map_err(|source| self.failed(source))
    }

    /// What is locked by another process is busy at once.
    pub(super) fn without_waiting(
        &self,
        attempt: impl FnOnce(&Self) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let wait = |most| self.connection.busy_timeout(most).map_err(|source| self.failed(source));
        wait(Duration::ZERO)?;
        let result = attempt(self);
        wait(BUSY_TIMEOUT)?;
        result
    }

    /// All or nothing within the transaction.
    pub(super) fn all_or_nothing<T, E: From<JournalError>>(
        &self,
        serves: Serves,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match serves {
            Serves::One => {
                let result = work();
                if result.is_err() && self.failure.borrow().is_none() {
                    self.execute("ROLLBACK")?;
                    self.execute("BEGIN")?;
                }
                result
            }
            Serves::Several => {
                self.execute("SAVEPOINT request")?;
                let result = work();
                if self.failure.borrow().is_none() {
                    if result.is_err() {
                        self.execute("ROLLBACK TO request")?;
                    }
                    self.execute("RELEASE request")?;
                }
                result
            }
        }
    }

    pub(super) fn apply(&self, writes: Vec<Write>) -> Result<(), JournalError> {
        writes.iter().try_for_each(|write| self.write(write))
    }

    fn write(&self, write: &Write) -> Result<(), JournalError> {
        let (run, record, changed) = match write {
            Write::NewRun(record) => (&record.run, "run", self.insert_run(record)),
            Write::Advance { record, was_head, fence } => (&record.run, "run", self.advance(record, *was_head, *fence)),
            Write::Arrived(record) => (&record.run, "run", self.count_arrival(record)),
            Write::Claim { record, was: None } => (&record.run, "claim", self.insert_claim(record)),
            Write::Claim { record, was: Some(fence) } => (&record.run, "claim", self.update_claim(record, *fence)),
            Write::Event { run, event } => (run, "event", self.insert_event(run, event)),
            Write::Input(record) => (&record.run, "inbox", self.put_input(record)),
            Write::Key(record) => (&record.run, "key", self.put_key(record)),
            Write::Purge(tombstone) => (&tombstone.run, "run", self.purge(tombstone)),
            Write::Mark(record) => return self.put(self.put_mark(record)),
            Write::Unmark(path) => return self.put(self.change("DELETE FROM marks WHERE path = ?1", [path])),
            Write::Endorse(record) => return self.put(self.put_endorsement(record)),
            Write::Distrust(source) => {
                return self.put(self.change("DELETE FROM endorsements WHERE source = ?1", [source]));
            }
            Write::Blob(digest, bytes) => return self.put_blob(digest, bytes),
        };
        let fault = match changed {
            Ok(1) => return Ok(()),
            Ok(rows) => format!("a write changed {rows} rows, not one"),
            // Two records where the rules allow one: the file does not hold what its seals say.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => error.to_string(),
            Err(error) => return Err(self.failed(error)),
        };
        Err(JournalError::Corrupt { run: run.clone(), record: record.to_owned(), fault })
    }

    fn insert_run(&self, record: &RunRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO runs (run, head, chain, at, batch, arrivals, listing, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                record.run.as_str(),
                record.head,
                record.chain,
                record.at,
                record.batch,
                record.arrivals,
                record.listing,
                record.seal
            ],
        )
    }

    /// Head and fence are checked in the statement itself.
    fn advance(&self, record: &RunRecord, was_head: i64, fence: i64) -> rusqlite::Result<usize> {
        self.change(
            "UPDATE runs SET head = ?2, chain = ?3, at = ?4, batch = ?5, listing = ?6, seal = ?7
             WHERE run = ?1 AND head = ?8
             AND EXISTS (SELECT 1 FROM claims WHERE run = ?1 AND fence = ?9 AND released = 0)",
            params![
                record.run.as_str(),
                record.head,
                record.chain,
                record.at,
                record.batch,
                record.listing,
                record.seal,
                was_head,
                fence
            ],
        )
    }

    fn count_arrival(&self, record: &RunRecord) -> rusqlite::Result<usize> {
        self.change(
            "UPDATE runs SET arrivals = ?2, seal = ?3 WHERE run = ?1",
            params![record.run.as_str(), record.arrivals, record.seal],
        )
    }

    fn insert_claim(&self, record: &ClaimRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO claims (run, fence, host, boot, pid, pid_start, until, until_wall, released, root, seal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                record.run.as_str(),
                record.fence,
                record.host,
                record.boot,
                record.pid,
                record.pid_start,
                record.until,
                record.until_wall,
                record.released,
                record.root,
                record.seal
            ],
        )
    }

    /// The fence is checked in the statement itself.
    fn update_claim(&self, record: &ClaimRecord, was_fence: i64) -> rusqlite::Result<usize> {
        self.change(
            "UPDATE claims SET fence = ?2, host = ?3, boot = ?4, pid = ?5, pid_start = ?6, until = ?7, until_wall = ?8,
             released = ?9, root = ?10, seal = ?11 WHERE run = ?1 AND fence = ?12",
            params![
                record.run.as_str(),
                record.fence,
                record.host,
                record.boot,
                record.pid,
                record.pid_start,
                record.until,
                record.until_wall,
                record.released,
                record.root,
                record.seal,
                was_fence
            ],
        )
    }

    fn insert_event(&self, run: &RunId, event: &StoredEvent) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO events (run, seq, at, kind, kind_version, must_understand, body, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                run.as_str(),
                event.seq,
                event.at,
                ToSqlOutput::Borrowed(ValueRef::Text(&event.kind)),
                event.kind_version,
                event.must_understand,
                event.body,
                event.checksum
            ],
        )
    }

    fn put_input(&self, record: &InboxRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO inbox (run, arrival, id, taken, body, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (run, arrival) DO UPDATE SET taken = excluded.taken, seal = excluded.seal
             WHERE id = excluded.id",
            params![record.run.as_str(), record.arrival, record.id.as_str(), record.taken, record.body, record.seal],
        )
    }

    fn purge(&self, tombstone: &RunRecord) -> rusqlite::Result<usize> {
        let run = tombstone.run.as_str();
        for statement in [
            "DELETE FROM events WHERE run = ?1",
            "DELETE FROM inbox WHERE run = ?1",
            "DELETE FROM claims WHERE run = ?1",
        ] {
            self.change(statement, [run])?;
        }
        self.change(
            "UPDATE runs SET head = ?2, chain = ?3, at = ?4, batch = ?5, arrivals = ?6, listing = ?7, seal = ?8
             WHERE run = ?1",
            params![
                run,
                tombstone.head,
                tombstone.chain,
                tombstone.at,
                tombstone.batch,
                tombstone.arrivals,
                tombstone.listing,
                tombstone.seal
            ],
        )
    }

    /// Digests of all blobs in rows.
    pub(super) fn blobs(&self) -> Result<Vec<Digest>, JournalError> {
        self.many("SELECT digest FROM blobs", [], |row| Ok(Digest::new(text(row, 0)?)))
    }

    /// The size of what was removed; None: there was no such row.
    pub(super) fn remove_blob(&self, digest: &Digest) -> Result<Option<u64>, JournalError> {
        self.one("DELETE FROM blobs WHERE digest = ?1 RETURNING length(bytes)", [digest.as_str()], |row| {
            Ok(int(row, 0)?.max(0).cast_unsigned())
        })
    }

    /// Pages of the file that hold nothing, and all of them.
    pub(super) fn free_pages(&self) -> Result<Option<(i64, i64)>, JournalError> {
        let free = self.one("PRAGMA freelist_count", [], |row| int(row, 0))?;
        Ok(free.zip(self.one("PRAGMA page_count", [], |row| int(row, 0))?))
    }

    fn put_key(&self, record: &KeyRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO keys (scope, tool, digest, run, body, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (scope, tool, digest)
             DO UPDATE SET run = excluded.run, body = excluded.body, seal = excluded.seal",
            params![record.scope, record.tool, record.digest, record.run.as_str(), record.body, record.seal],
        )
    }

    fn put_mark(&self, record: &MarkRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO marks (path, number, body, seal) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (path) DO UPDATE SET number = excluded.number, body = excluded.body, seal = excluded.seal",
            params![record.path, record.number, record.body, record.seal],
        )
    }

    fn put_endorsement(&self, record: &EndorsementRecord) -> rusqlite::Result<usize> {
        self.change(
            "INSERT INTO endorsements (source, body, seal) VALUES (?1, ?2, ?3)
             ON CONFLICT (source) DO UPDATE SET body = excluded.body, seal = excluded.seal",
            params![record.source, record.body, record.seal],
        )
    }

    /// For rows that no run owns.
    fn put(&self, changed: rusqlite::Result<usize>) -> Result<(), JournalError> {
        changed.map(drop).map_err(|error| self.failed(error))
    }

    /// Marks with a number above this one, in their order.
    pub(super) fn marks(&self, after: i64) -> Result<Vec<MarkRecord>, JournalError> {
        self.many(&format!("{MARK} WHERE number > ?1 ORDER BY number"), [after], mark_record)
    }

    pub(super) fn endorsements(&self) -> Result<Vec<EndorsementRecord>, JournalError> {
        self.many(&format!("{ENDORSEMENT} ORDER BY source"), [], endorsement_record)
    }

    /// Large ones lie in the folder already.
    fn put_blob(&self, digest: &Digest, bytes: &Bytes) -> Result<(), JournalError> {
        if blobs::is_large(bytes) {
            return Ok(());
        }
        self.change(
            "INSERT INTO blobs (digest, bytes) VALUES (?1, ?2) ON CONFLICT (digest) DO NOTHING",
            params![digest.as_str(), &bytes[..]],
        )
        .map(drop)
        .map_err(|error| self.failed(error))
    }

    fn change(&self, statement: &str, values: impl Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(statement)?.execute(values)
    }

    fn one<T>(
        &self,
        statement: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, JournalError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_row(values, read).optional())
            .map_err(|error| self.failed(error))
    }

    fn many<T>(
        &self,
        statement: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, JournalError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(|error| self.failed(error))
    }

    pub(super) fn all_runs(&self) -> Result<Vec<RunRecord>, JournalError> {
        self.many(RUN, [], run_record)
    }

    pub(super) fn arrivals(&self, run: &RunId) -> Result<i64, JournalError> {
        Ok(self.one("SELECT arrivals FROM runs WHERE run = ?1", [run.as_str()], |row| int(row, 0))?.unwrap_or(0))
    }

    /// The stored checksum of one event.
    pub(super) fn checksum(&self, run: &RunId, seq: i64) -> Result<Option<Vec<u8>>, JournalError> {
        self.one("SELECT checksum FROM events WHERE run = ?1 AND seq = ?2", params![run.as_str(), seq], |row| {
            bytes(row, 0)
        })
    }

    pub(super) fn events(&self, run: &RunId, after: i64, limit: usize) -> Result<Vec<StoredEvent>, JournalError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.many(
            &format!("{EVENT} WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"),
            params![run.as_str(), after, limit],
            |row| {
                Ok(StoredEvent {
                    seq: int(row, 0)?,
                    at: int(row, 1)?,
                    kind: bytes(row, 2)?,
                    kind_version: int(row, 3)?,
                    must_understand: int(row, 4)?,
                    body: bytes(row, 5)?,
                    checksum: bytes(row, 6)?,
                })
            },
        )
    }

    pub(super) fn inbox(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
        self.many(&format!("{INPUT} WHERE run = ?1 ORDER BY arrival"), [run.as_str()], input_record)
    }

    pub(super) fn keys(&self) -> Result<Vec<KeyRecord>, JournalError> {
        self.many(&format!("{KEY} ORDER BY scope, tool, digest"), [], key_record)
    }

    /// The bytes as they are stored in a row. None: there is no row.
    pub(super) fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError> {
        let found = self.one("SELECT bytes FROM blobs WHERE digest = ?1", [digest.as_str()], |row| bytes(row, 0))?;
        Ok(found.map(Bytes::from))
    }

    /// SQLite's own count of commits by other connections to the file. None: it cannot be told.
    pub(super) fn commits_of_others(&self) -> Option<i64> {
        self.one("PRAGMA data_version", [], |row| int(row, 0)).ok().flatten()
    }

    /// What SQLite itself finds wrong with the file; empty: nothing.
    pub(super) fn integrity(&self) -> Vec<String> {
        match self.many("PRAGMA integrity_check(20)", [], |row| text(row, 0)) {
            Ok(lines) => lines.into_iter().filter(|line| line != "ok").collect(),
            Err(error) => vec![error.to_string()],
        }
    }
}

impl Rows for Table<'_> {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError> {
        self.one(&format!("{RUN} WHERE run = ?1"), [run.as_str()], run_record)
    }

    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError> {
        self.one(&format!("{CLAIM} WHERE run = ?1"), [run.as_str()], claim_record)
    }

    fn rooted(&self) -> Result<Vec<ClaimRecord>, JournalError> {
        self.many(&format!("{CLAIM} WHERE root IS NOT NULL ORDER BY run"), [], claim_record)
    }

    fn input(&self, run: &RunId, id: &InputId) -> Result<Option<InboxRecord>, JournalError> {
        self.one(&format!("{INPUT} WHERE run = ?1 AND id = ?2"), [run.as_str(), id.as_str()], input_record)
    }

    fn untaken(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
        self.many(&format!("{INPUT} WHERE run = ?1 AND taken = 0 ORDER BY arrival"), [run.as_str()], input_record)
    }

    fn key(&self, id: &KeyId) -> Result<Option<KeyRecord>, JournalError> {
        self.one(
            &format!("{KEY} WHERE scope = ?1 AND tool = ?2 AND digest = ?3"),
            [id.scope.as_str(), id.tool.as_str(), id.digest.as_str()],
            key_record,
        )
    }

    fn mark(&self, path: &str) -> Result<Option<MarkRecord>, JournalError> {
        self.one(&format!("{MARK} WHERE path = ?1"), [path], mark_record)
    }

    fn marks_made(&self) -> Result<(usize, i64), JournalError> {
        let made = self.one("SELECT count(*), coalesce(max(number), 0) FROM marks", [], |row| {
            Ok((usize::try_from(int(row, 0)?).unwrap_or(usize::MAX), int(row, 1)?))
        })?;
        Ok(made.unwrap_or((0, 0)))
    }

    fn oldest_marks(&self, most: usize) -> Result<Vec<MarkRecord>, JournalError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.many(&format!("{MARK} ORDER BY number LIMIT ?1"), [most], mark_record)
    }

    fn endorsement(&self, source: &str) -> Result<Option<EndorsementRecord>, JournalError> {
        self.one(&format!("{ENDORSEMENT} WHERE source = ?1"), [source], endorsement_record)
    }
}

fn mark_record(row: &Row<'_>) -> rusqlite::Result<MarkRecord> {
    Ok(MarkRecord { path: text(row, 0)?, number: int(row, 1)?, body: bytes(row, 2)?, seal: bytes(row, 3)? })
}

fn endorsement_record(row: &Row<'_>) -> rusqlite::Result<EndorsementRecord> {
    Ok(EndorsementRecord { source: text(row, 0)?, body: bytes(row, 1)?, seal: bytes(row, 2)? })
}

fn run_record(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    Ok(RunRecord {
        run: RunId::new(text(row, 0)?),
        head: int(row, 1)?,
        chain: bytes(row, 2)?,
        at: int(row, 3)?,
        batch: text(row, 4)?,
        arrivals: int(row, 5)?,
        listing: bytes(row, 6)?,
        seal: bytes(row, 7)?,
    })
}

fn claim_record(row: &Row<'_>) -> rusqlite::Result<ClaimRecord> {
    Ok(ClaimRecord {
        run: RunId::new(text(row, 0)?),
        fence: int(row, 1)?,
        host: text(row, 2)?,
        boot: text(row, 3)?,
        pid: int(row, 4)?,
        pid_start: int(row, 5)?,
        until: int(row, 6)?,
        until_wall: int(row, 7)?,
        released: int(row, 8)?,
        root: match row.get_ref(9)? {
            ValueRef::Null => None,
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => Some(text(row, 9)?),
        },
        seal: bytes(row, 10)?,
    })
}

fn input_record(row: &Row<'_>) -> rusqlite::Result<InboxRecord> {
    Ok(InboxRecord {
        run: RunId::new(text(row, 0)?),
        arrival: int(row, 1)?,
        id: InputId::new(text(row, 2)?),
        taken: int(row, 3)?,
        body: bytes(row, 4)?,
        seal: bytes(row, 5)?,
    })
}

fn key_record(row: &Row<'_>) -> rusqlite::Result<KeyRecord> {
    Ok(KeyRecord {
        scope: text(row, 0)?,
        tool: text(row, 1)?,
        digest: text(row, 2)?,
        run: RunId::new(text(row, 3)?),
        body: bytes(row, 4)?,
        seal: bytes(row, 5)?,
    })
}

/// What a number of another type is read as: no record is sealed over it.
const NO_NUMBER: i64 = i64::MIN;

fn int(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => NO_NUMBER,
    })
}

fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_vec(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Vec::new(),
    })
}

fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(row, column)?).into_owned())
}
