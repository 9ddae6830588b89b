//! The index of a run's words: an SQLite file of its own in the run's cache folder, with a full-text table that holds no
//! text. Nothing is written to it when events are appended; it is brought up when somebody looks something up.
//!
//! It is bound to the journal by the checksum of the last event it has seen, so that an index of another history (events
//! lost with the power, a store put back from a backup) is made anew. Nothing of it is synced: its name holds the boot it
//! was made under, and after the next boot there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use bytes::Bytes;
use longrein_core::context::archive::{Handle, entry, listed};
use longrein_core::event::Event;
use longrein_core::ids::{Digest, RunId, Seq};
use longrein_core::time::Timestamp;
use longrein_ports::{Found, JournalError, Piece, Recorded, RecordedBody};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::cache::checksum;
use super::table::Table;
use super::{Shared, open};
use crate::archive::query::{Word, spaced};
use crate::archive::scan::{NEAR_WORDS, TELLING_MAX};
use crate::archive::text::Load;
use crate::archive::{Pieces, Query, Written, found_by_words, is_echo};
use crate::encoding::{genesis, read_chain};
use crate::rules::{Rows, is_removed};

/// Events indexed in one transaction: another process that indexes the same run waits no longer than for these.
const PAGE: usize = 128;
/// How many runs' indexes stay open.
const OPEN_MAX: usize = 8;
/// How long one waits for other processes that index the same run.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// The form of the tables below; part of the file's name.
const FORMAT: u32 = 2;

/// Without diacritics removed: then the index and the excerpts agree on what a word is. Tables without text of their own
/// that can be changed came with SQLite 3.43.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, chain BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS pieces (id INTEGER PRIMARY KEY, handle TEXT NOT NULL UNIQUE, echo INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX IF NOT EXISTS echoes ON pieces (id) WHERE echo = 1;
CREATE TABLE IF NOT EXISTS parts (piece INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (piece, seq)) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5
    (text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 0');
";

/// Which pieces are looked at, never echoes, and which of them are best.
struct Choice {
    /// The best by BM25, of equals the newest. Weighs every piece that fits.
    weighed: &'static str,
    /// The newest. Looks no further than it must.
    newest: &'static str,
}

const FIRST_HAND: Choice = Choice {
    weighed: "SELECT rowid FROM words WHERE words MATCH ?1 \
              AND rowid NOT IN (SELECT id FROM pieces WHERE echo = 1) ORDER BY rank, rowid DESC LIMIT ?2",
    newest: "SELECT rowid FROM words WHERE words MATCH ?1 \
             AND rowid NOT IN (SELECT id FROM pieces WHERE echo = 1) ORDER BY rowid DESC LIMIT ?2",
};
/// Indexes that are open, the last used one last.
#[derive(Default)]
pub(super) struct Indexes {
    open: Mutex<Vec<(RunId, Slot)>>,
}

type Slot = Arc<Mutex<Option<Index>>>;

impl Indexes {
    /// Works with a run's index. One that turns out damaged is thrown away and made anew, once.
    pub(super) fn with<T>(
        &self,
        shared: &Shared,
        run: &RunId,
        mut work: impl FnMut(&mut Index, &Shared) -> Result<T, Fault>,
    ) -> Result<T, JournalError> {
        let slot = self.slot(run);
        // Whatever a panic left half made is thrown away with the connection.
        let mut slot = slot.lock().unwrap_or_else(|poisoned| {
            let mut slot = poisoned.into_inner();
            *slot = None;
            slot
        });
        let mut attempt = || -> Result<T, Fault> {
            let index = match &mut *slot {
                Some(index) => index,
                none @ None => none.insert(Index::open(shared, run)?),
            };
            let answer = work(index, shared);
            if answer.is_err() {
                *slot = None;
            }
            answer
        };
        match attempt() {
            Err(Fault::Damaged(_)) => {
                discard(&shared.cache.of_run(run), None).map_err(|error| JournalError::Unavailable(Box::new(error)))?;
                attempt().map_err(Fault::explained)
            }
            answer => answer.map_err(Fault::explained),
        }
    }

    pub(super) fn forget(&self, run: &RunId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(open, _)| open != run);
    }

    fn slot(&self, run: &RunId) -> Slot {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match open.iter().position(|(open, _)| open == run) {
            Some(place) => open.remove(place).1,
            None => Slot::default(),
        };
        open.push((run.clone(), Arc::clone(&slot)));
        if open.len() > OPEN_MAX {
            open.remove(0);
        }
        slot
    }
}

/// Why an index could not be used.
pub(super) enum Fault {
    /// It does not hold what we put there.
    Damaged(rusqlite::Error),
    Passing(rusqlite::Error),
    Journal(JournalError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        use ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory,
            PermissionDenied, ReadOnly, SystemIoFailure,
        };
        let passing = matches!(
            error.sqlite_error_code(),
            Some(
                CannotOpen
                    | DatabaseBusy
                    | DatabaseLocked
                    | DiskFull
                    | FileLockingProtocolFailed
                    | OutOfMemory
                    | PermissionDenied
                    | ReadOnly
                    | SystemIoFailure
            )
        );
        // Our statements never change: what else goes wrong with them is the file's fault.
        if passing { Fault::Passing(error) } else { Fault::Damaged(error) }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Fault::Journal(error)
    }
}

impl Fault {
    fn explained(self) -> JournalError {
        match self {
            Fault::Journal(error) => error,
            Fault::Damaged(error) | Fault::Passing(error) => JournalError::Unavailable(Box::new(error)),
        }
    }
}

/// The index of one run, and a view of its journal.
pub(super) struct Index {
    run: RunId,
    words: Connection,
    journal: Connection,
}

impl Index {
    fn open(shared: &Shared, run: &RunId) -> Result<Self, Fault> {
        let folder = shared.cache.make(run)?;
        let name = format!("words{FORMAT}.{}.db", shared.here.boot);
        let file = folder.join(&name);
        if !file.exists() {
            discard(&folder, Some(&name)).map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        }
        let words = Connection::open(&file)?;
        // By its name: opening and closing the file would drop locks on it.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
            .map_err(|error| JournalError::Unavailable(Box::new(error)))?;
        words.busy_timeout(open::BUSY_TIMEOUT)?;
        patiently(|| {
            words.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA trusted_schema = OFF; \
                 PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4096; PRAGMA journal_size_limit = 4194304;",
            )
        })?;
        let journal = open::reader(&shared.path)?;
        let index = Self { run: run.clone(), words, journal };
        index.begin()?;
        index.words.execute_batch(TABLES)?;
        index.words.execute("INSERT OR IGNORE INTO place (one, seq, chain) VALUES (1, 0, ?1)", [genesis(run)])?;
        index.commit()?;
        Ok(index)
    }

    /// An error on the way to the commit needs no rollback: the connection is closed with it.
    fn begin(&self) -> Result<(), Fault> {
        patiently(|| self.words.execute_batch("BEGIN IMMEDIATE"))
    }

    fn commit(&self) -> Result<(), Fault> {
        patiently(|| self.words.execute_batch("COMMIT"))
    }

    /// Reads what the journal has beyond the index.
    pub(super) fn bring_up(&self, shared: &Shared) -> Result<(), Fault> {
        let view = View { run: &self.run, table: Table::new(&self.journal, &shared.path), shared };
        if view.ends_at(&self.place()?)? {
            return Ok(());
        }
        loop {
            self.begin()?;
            let indexed = self.page(&view)?;
            self.commit()?;
            if indexed < PAGE {
                return Ok(());
            }
        }
    }

    fn place(&self) -> Result<Place, Fault> {
        let mut place = self.words.prepare_cached("SELECT seq, chain FROM place")?;
        Ok(place.query_row([], |row| Ok(Place { seq: row.get(0)?, chain: row.get(1)? }))?)
    }

    /// Indexes the next events, in the open transaction. How many there were.
    fn page(&self, view: &View<'_>) -> Result<usize, Fault> {
        // Looked at under the lock: another process may have got further meanwhile.
        let mut place = self.place()?;
        let of_this_history = checksum(&view.table, view.run, Seq(place.seq.cast_unsigned()))?;
        if of_this_history.as_ref() != Some(&place.chain) {
            self.words.execute_batch(
                "DELETE FROM pieces; DELETE FROM parts; INSERT INTO words (words) VALUES ('delete-all');",
            )?;
            place = Place { seq: 0, chain: genesis(view.run) };
        }
        let stored = view.table.events(view.run, place.seq, PAGE)?;
        let recorded = read_chain(Some(place.chain), place.seq, &stored, None);
        let mut changed = BTreeSet::new();
        for Recorded { seq, body, .. } in &recorded {
            // What is damaged or of a newer kind cannot be read, and so not found.
            let RecordedBody::Known(event) = body else { continue };
            if let Some(entry) = entry(*seq, event) {
                changed.insert(self.add_part(&entry.handle, *seq)?);
            }
            // A list has no words of its own: it would have to be read again whenever it grows.
            if let Some(entry) = listed(*seq, event) {
                let id = self.add_part(&entry.handle, *seq)?;
                self.words.prepare_cached("UPDATE pieces SET echo = 1 WHERE id = ?1")?.execute([id])?;
            }
        }
        let known: BTreeMap<Seq, &Recorded> = recorded.iter().map(|recorded| (recorded.seq, recorded)).collect();
        for id in changed {
            if let Some(piece) = self.read_piece(id, view, &known)? {
                let mut replace = self.words.prepare_cached("REPLACE INTO words (rowid, text) VALUES (?1, ?2)")?;
                replace.execute(params![id, spaced(&piece.text)])?;
                if is_echo(&piece) {
                    self.words.prepare_cached("UPDATE pieces SET echo = 1 WHERE id = ?1")?.execute([id])?;
                }
            }
        }
        if let Some(last) = stored.last() {
            let mut advance = self.words.prepare_cached("REPLACE INTO place (one, seq, chain) VALUES (1, ?1, ?2)")?;
            advance.execute(params![last.seq, last.checksum])?;
        }
        Ok(stored.len())
    }

    /// The number of the piece.
    fn add_part(&self, handle: &Handle, seq: Seq) -> Result<i64, Fault> {
        let handle = handle.to_string();
        self.words.prepare_cached("INSERT OR IGNORE INTO pieces (handle) VALUES (?1)")?.execute([&handle])?;
        let id = self.id(&handle)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let mut add = self.words.prepare_cached("INSERT OR IGNORE INTO parts (piece, seq) VALUES (?1, ?2)")?;
        add.execute(params![id, seq.0.cast_signed()])?;
        Ok(id)
    }

    fn id(&self, handle: &str) -> Result<Option<i64>, Fault> {
        let mut id = self.words.prepare_cached("SELECT id FROM pieces WHERE handle = ?1")?;
        Ok(id.query_row([handle], |row| row.get(0)).optional()?)
    }

    /// A piece as the journal and the blobs tell it. `known`: events that were read already. None: nothing of it can be
    /// read any more.
    fn read_piece(&self, id: i64, view: &View<'_>, known: &BTreeMap<Seq, &Recorded>) -> Result<Option<Piece>, Fault> {
        self.read(id, view, known, Pieces::add)
    }

    /// `add` says what its events add.
    fn read(
        &self,
        id: i64,
        view: &View<'_>,
        known: &BTreeMap<Seq, &Recorded>,
        add: impl Fn(&mut Pieces, Seq, Timestamp, &Event, &Load<'_>) -> Result<(), JournalError>,
    ) -> Result<Option<Piece>, Fault> {
        let mut pieces = Pieces::default();
        for seq in self.numbers("SELECT seq FROM parts WHERE piece = ?1 ORDER BY seq", [id])? {
            let seq = Seq(seq.cast_unsigned());
            let read;
            let recorded = match known.get(&seq) {
                Some(recorded) => Some(*recorded),
                None => {
                    read = view.event(seq)?;
                    read.as_ref()
                }
            };
            if let Some(Recorded { seq, at, body: RecordedBody::Known(event) }) = recorded {
                add(&mut pieces, *seq, *at, event, &|digest| view.blob(digest))?;
            }
        }
        Ok(pieces.made().pop())
    }

    pub(super) fn find(&self, shared: &Shared, query: &Query, most: usize) -> Result<Vec<Found>, Fault> {
        self.bring_up(shared)?;
        self.in_one_look(|| self.found(shared, query, most))
    }

    /// Reads index and journal as they are now. Alone each statement would lock its file anew, some forty times a search.
    fn in_one_look<T>(&self, read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        for file in [&self.words, &self.journal] {
            file.execute_batch("BEGIN")?;
        }
        // An error needs no end: the connections are closed with it.
        let answer = read()?;
        for file in [&self.words, &self.journal] {
            file.execute_batch("COMMIT")?;
        }
        Ok(answer)
    }

    fn found(&self, shared: &Shared, query: &Query, most: usize) -> Result<Vec<Found>, Fault> {
        let view = View { run: &self.run, table: Table::new(&self.journal, &shared.path), shared };
        let tiers = self.tiers(&query.words)?;
        let mut ids: Vec<i64> = Vec::new();
        for tier in &tiers {
            let statement = if tier.weigh { FIRST_HAND.weighed } else { FIRST_HAND.newest };
            let wanted = i64::try_from(most).unwrap_or(i64::MAX);
            for id in self.numbers(statement, params![tier.expression, wanted])? {
                if ids.len() < most && !ids.contains(&id) {
                    ids.push(id);
                }
            }
            if ids.len() >= most {
                break;
            }
        }
        let known = BTreeMap::new();
        let mut found = Vec::with_capacity(ids.len());
        for id in &ids {
            found.extend(self.read_piece(*id, &view, &known)?.map(|piece| found_by_words(&piece, query)));
        }
        if !ids.is_empty() {
            return Ok(found);
        }
        let mut written = Written::new(most);
        for id in self.numbers("SELECT id FROM pieces WHERE echo = 0 ORDER BY id DESC", [])? {
            if let Some(piece) = self.read_piece(id, &view, &known)?
                && !written.look(&piece, query)
            {
                break;
            }
        }
        Ok(written.best())
    }

    /// What is asked for one after the other, until there is enough: all words near each other, all, any. Weighed is only
    /// what cannot be much.
    fn tiers(&self, words: &[Word]) -> Result<Vec<Tier>, Fault> {
        let mut telling = Vec::new();
        let mut all = Vec::new();
        let mut all_tell = true;
        for word in words {
            // Words are letters and digits: no quote is among them.
            let quoted = format!("\"{}\"", spaced(&word.text));
            let pieces = self.pieces_with(&quoted)?;
            all_tell &= pieces <= TELLING_MAX;
            if (1..=TELLING_MAX).contains(&pieces) {
                telling.push(quoted.clone());
            }
            all.push(quoted);
        }
        let tier = |expression: String, weigh: bool| Tier { expression, weigh };
        Ok(match all.as_slice() {
            [] => Vec::new(),
            [one] => vec![tier(one.clone(), all_tell)],
            several => vec![
                tier(format!("NEAR({}, {NEAR_WORDS})", several.join(" ")), all_tell),
                tier(several.join(" "), all_tell),
                if telling.is_empty() { tier(several.join(" OR "), false) } else { tier(telling.join(" OR "), true) },
            ],
        })
    }

    /// How many pieces have a word; counts no further than it matters.
    fn pieces_with(&self, quoted: &str) -> Result<usize, Fault> {
        let mut count =
            self.words.prepare_cached("SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)")?;
        let most = i64::try_from(TELLING_MAX).unwrap_or(i64::MAX).saturating_add(1);
        let count: i64 = count.query_row(params![quoted, most], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub(super) fn piece(&self, shared: &Shared, handle: &Handle) -> Result<Option<Piece>, Fault> {
        self.bring_up(shared)?;
        let view = View { run: &self.run, table: Table::new(&self.journal, &shared.path), shared };
        self.in_one_look(|| match (self.id(&handle.to_string())?, handle) {
            (Some(id), Handle::List(_)) => self.read(id, &view, &BTreeMap::new(), Pieces::list),
            (Some(id), Handle::Message(_) | Handle::Action(_) | Handle::Reply(_) | Handle::Check(_)) => {
                self.read_piece(id, &view, &BTreeMap::new())
            }
            (None, _) => Ok(None),
        })
    }

    fn numbers(&self, statement: &str, values: impl rusqlite::Params) -> Result<Vec<i64>, Fault> {
        let mut statement = self.words.prepare_cached(statement)?;
        let numbers = statement.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        Ok(numbers)
    }
}

/// How far an index has got.
struct Place {
    seq: i64,
    /// The checksum of that event.
    chain: Vec<u8>,
}

/// A run's journal and blobs as the index reads them.
struct View<'a> {
    run: &'a RunId,
    table: Table<'a>,
    shared: &'a Shared,
}

impl View<'_> {
    fn ends_at(&self, place: &Place) -> Result<bool, Fault> {
        let record = Rows::run(&self.table, self.run)?.filter(|record| !is_removed(record));
        Ok(record.is_some_and(|record| record.head == place.seq && record.chain == place.chain))
    }

    fn event(&self, seq: Seq) -> Result<Option<Recorded>, Fault> {
        let before = seq.0.saturating_sub(1);
        let previous = checksum(&self.table, self.run, Seq(before))?;
        let stored = self.table.events(self.run, before.cast_signed(), 1)?;
        Ok(read_chain(previous, before.cast_signed(), &stored, None).into_iter().find(|recorded| recorded.seq == seq))
    }

    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError> {
        let row = self.table.blob(digest)?;
        self.shared.whole(digest, row)
    }
}

/// One question to the index.
struct Tier {
    expression: String,
    weigh: bool,
}

/// Removes all indexes in a run's folder but the one of this name.
fn discard(folder: &Path, but: Option<&str>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let names = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    let is_index = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("words") && but.is_none_or(|but| !name.starts_with(but))
    };
    for file in names.iter().filter(|path| is_index(path)) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// Repeats while another process is at it. Some locks (the switch to a write-ahead log) answer busy without waiting.
fn patiently(attempt: impl Fn() -> rusqlite::Result<()>) -> Result<(), Fault> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                std::thread::sleep(Duration::from_millis(2));
            }
            answer => return Ok(answer?),
        }
    }
}
