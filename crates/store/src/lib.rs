//! Where journals live: in memory or in an SQLite file, with one encoding and one set of rules.
//!
//! Read [`SqliteJournal`] first. [`open`] picks a backend by URL; `rules` says what any of them may do, [`encoding`] what
//! the bytes mean; `archive` makes what was said into text and finds it again. No scheduling here, and no meaning of events
//! beyond their kinds, the blobs they refer to and the words in them.

mod archive;
pub mod encoding;
mod here;
mod keepsakes;
mod memory;
mod references;
mod rules;
mod sqlite;
mod sweep;
mod verify;
mod wakeups;

use std::cmp::Ordering;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use longrein_ports::{Clock, Holder, JournalError, Marks, RunRow, Store, Worker};

use encoding::{MarkRecord, Sealed};

pub use here::{SystemClock, boottime, is_alive, worker_here};
pub use memory::MemoryJournal;
pub use sqlite::{Health, SqliteJournal, health, place_fits, sqlite_version};

/// Whether a worker of this host and boot still runs.
pub type Alive = Arc<dyn Fn(&Worker) -> bool + Send + Sync>;

/// Opens a store by its URL: `sqlite:PATH` or `memory:`. PATH may be relative; the folder is made if it is not there.
pub fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, JournalError> {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    match scheme {
        "sqlite" if !rest.is_empty() => Ok(Arc::new(SqliteJournal::open(Path::new(rest), clock)?)),
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryJournal::new(clock, Arc::new(is_alive)))),
        "postgres" | "postgresql" => Err(JournalError::Unusable(
            "stores on PostgreSQL are not supported yet; use --store sqlite:PATH".to_owned(),
        )),
        _ => Err(JournalError::Unusable(format!("\"{url}\" names no store; use sqlite:PATH or memory:"))),
    }
}

/// What tells the store at this URL, once opened, apart from every other on this host: where its file lies on which
/// device, or the process that holds it in memory.
pub fn identity(url: &str) -> io::Result<String> {
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            let file = std::fs::metadata(path)?;
            Ok(format!("{:x}-{:x}", file.dev(), file.ino()))
        }
        None => Ok(format!("memory-{}", std::process::id())),
    }
}

/// Records of marks as they are read: in the order of their numbers, checked, and the number to go on from.
fn marks_of(mut records: Vec<MarkRecord>, after: u64) -> Result<Marks, JournalError> {
    records.sort_by_key(|record| record.number);
    let next = records.last().map_or(after, |last| last.number.cast_unsigned());
    let files = records.into_iter().map(|record| record.checked()?.mark()).collect::<Result<_, _>>()?;
    Ok(Marks { files, next })
}

/// Listings show the newest run first.
fn newest_first(one: &(RunRow, Option<Holder>), other: &(RunRow, Option<Holder>)) -> Ordering {
    other.0.started.cmp(&one.0.started).then_with(|| other.0.run.cmp(&one.0.run))
}
