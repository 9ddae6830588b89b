//! Collection: removes blobs that nothing refers to (`semantics.md` J2). Runs of any process may be at work meanwhile: the
//! long look is taken without the write lock, and what was added since is looked at under it.

use std::time::Duration;

use longrein_core::ids::RunId;
use longrein_ports::{Collected, JournalError};

use super::table::Table;
use super::writer::patiently;
use super::{Files, Shared, open};
use crate::rules::is_removed;
use crate::sweep::Sweep;

/// The file is made smaller if more than one page in so many is free.
const FREE_SHARE: i64 = 4;

pub(super) fn collect(shared: &Shared, older_than: Duration) -> Result<Collected, JournalError> {
    let connection = open::writer(&shared.path)?;
    let table = Table::new(&connection, &shared.path);
    let files = Files::of(shared, &table);
    let runs = |table: &Table<'_>| -> Result<Vec<RunId>, JournalError> {
        Ok(table.all_runs()?.into_iter().map(|record| record.run).collect())
    };

    table.execute("BEGIN")?;
    let mut sweep = Sweep::of(table.blobs()?.into_iter().chain(shared.blobs.all()?));
    let looked = runs(&table).and_then(|runs| sweep.look(&files, &runs));
    table.execute("ROLLBACK")?;
    looked?;

    patiently(|| table.execute("BEGIN IMMEDIATE"))?;
    let removed = (|| {
        sweep.look(&files, &runs(&table)?)?;
        let mut collected = Collected::default();
        for digest in sweep.unreferenced() {
            // A row came with what refers to it, in one transaction. A file comes before it: the young ones are left.
            let freed = match table.remove_blob(&digest)? {
                Some(bytes) => Some(bytes),
                None => shared.blobs.remove(&digest, older_than)?,
            };
            if let Some(bytes) = freed {
                collected.blobs += 1;
                collected.bytes += bytes;
            }
        }
        Ok(collected)
    })();
    match removed {
        Ok(collected) => {
            patiently(|| table.execute("COMMIT"))?;
            shared.blobs.remove_unfinished()?;
            forget_removed_runs(shared, &table)?;
            if table.free_pages()?.is_some_and(|(free, all)| free > all / FREE_SHARE)
                && !shared.anybody_works(&table)?
            {
                // Somebody who came meanwhile is no reason to fail: the file is whole, and smaller another time.
                let _ = table.execute_uncached("VACUUM");
            }
            Ok(collected)
        }
        Err(error) => {
            table.execute("ROLLBACK")?;
            Err(error)
        }
    }
}

/// Caches of runs that are not there any more. Folders first: one that is made meanwhile is of a run that is listed.
fn forget_removed_runs(shared: &Shared, table: &Table<'_>) -> Result<(), JournalError> {
    let folders = shared.cache.names();
    let there: Vec<RunId> =
        table.all_runs()?.into_iter().filter(|record| !is_removed(record)).map(|record| record.run).collect();
    shared.cache.forget_all_but(folders, there.iter())
}
