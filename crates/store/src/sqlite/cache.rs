//! The folder of caches beside the store, `<store>-cache/`: per run its index of words and its newest snapshots, and small
//! values for all runs. Files of their own and not tables of the store, so that what may be lost can neither keep its writer
//! waiting, nor make it sync, nor fail it (`semantics.md` A4), nor make it larger; and a run's caches go with its folder.
//!
//! Nothing here is synced. What a loss of power leaves half written is found by its seal, or thrown away after the next boot.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longrein_core::ids::{Digest, RunId, Seq};
use longrein_ports::{JournalError, SNAPSHOTS_KEPT, Snapshot};

use super::table::Table;
use crate::encoding::genesis;
use crate::keepsakes::{self, KeptSnapshot};

pub(super) struct CacheFolder {
    root: PathBuf,
    /// Makes temporary names of this process unique.
    counter: AtomicU64,
}

impl CacheFolder {
    pub(super) fn beside(store: &Path) -> Self {
        let mut root = store.as_os_str().to_owned();
        root.push("-cache");
        Self { root: root.into(), counter: AtomicU64::new(0) }
    }

    /// Where a run's caches are. Run ids may differ in case only, or be `..`: their digests are safe names.
    pub(super) fn of_run(&self, run: &RunId) -> PathBuf {
        self.runs().join(Digest::of(run.as_str().as_bytes()).as_str())
    }

    fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// A run's folder, made if it is not there.
    pub(super) fn make(&self, run: &RunId) -> Result<PathBuf, JournalError> {
        let folder = self.of_run(run);
        make_folder(&folder).map_err(unavailable)?;
        Ok(folder)
    }

    pub(super) fn forget(&self, run: &RunId) -> Result<(), JournalError> {
        remove_folder(&self.of_run(run)).map_err(unavailable)
    }

    /// Names of the runs' folders there are now.
    pub(super) fn names(&self) -> Vec<String> {
        let folders = fs::read_dir(self.runs()).into_iter().flatten();
        folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// Removes the folders of these names that belong to none of the runs: what a purge that was killed left.
    pub(super) fn forget_all_but<'a>(
        &self,
        names: Vec<String>,
        runs: impl Iterator<Item = &'a RunId>,
    ) -> Result<(), JournalError> {
        let kept: Vec<PathBuf> = runs.map(|run| self.of_run(run)).collect();
        let mut gone = names.into_iter().map(|name| self.runs().join(name)).filter(|folder| !kept.contains(folder));
        gone.try_for_each(|folder| remove_folder(&folder)).map_err(unavailable)
    }

    pub(super) fn keep_snapshot(
        &self,
        table: &Table<'_>,
        run: &RunId,
        snapshot: &Snapshot,
    ) -> Result<(), JournalError> {
        let Some(chain) = checksum(table, run, snapshot.seq)?.filter(|_| snapshot.seq > Seq(0)) else {
            return Err(keepsakes::no_such_event(run, snapshot.seq));
        };
        let folder = self.make(run)?;
        let bytes = KeptSnapshot { snapshot: snapshot.clone(), chain }.encode(run);
        self.write(&folder.join(snapshot_name(snapshot.seq)), &bytes).map_err(unavailable)?;
        let kept: Vec<Seq> = self.snapshots(table, run)?.iter().map(|kept| kept.seq).take(SNAPSHOTS_KEPT).collect();
        for (seq, file) in snapshot_files(&folder).map_err(unavailable)? {
            if !kept.contains(&seq) {
                remove_file(&file).map_err(unavailable)?;
            }
        }
        Ok(())
    }

    /// Whole ones of this very history, newest first.
    pub(super) fn snapshots(&self, table: &Table<'_>, run: &RunId) -> Result<Vec<Snapshot>, JournalError> {
        let mut found = Vec::new();
        for (seq, bytes) in self.snapshot_bytes(run)? {
            if let Some(kept) = KeptSnapshot::decode(run, seq, &bytes)
                && checksum(table, run, seq)?.as_ref() == Some(&kept.chain)
            {
                found.push(kept.snapshot);
            }
        }
        Ok(found)
    }

    /// All that lie here, newest first, unchecked.
    pub(super) fn snapshot_bytes(&self, run: &RunId) -> Result<Vec<(Seq, Bytes)>, JournalError> {
        let read = || -> io::Result<Vec<(Seq, Bytes)>> {
            let mut found = Vec::new();
            for (seq, file) in snapshot_files(&self.of_run(run))? {
                // Another process may have put newer ones in its place.
                found.extend(read(&file)?.map(|bytes| (seq, bytes)));
            }
            Ok(found)
        };
        read().map_err(unavailable)
    }

    pub(super) fn remember(&self, key: &str, value: &Bytes) -> Result<(), JournalError> {
        let bytes = keepsakes::encode_value(key, value)?;
        let file = self.value(key);
        let write = || {
            make_folder(&self.root.join("values"))?;
            self.write(&file, &bytes)
        };
        write().map_err(unavailable)
    }

    pub(super) fn recollect(&self, key: &str) -> Result<Option<Bytes>, JournalError> {
        let bytes = read(&self.value(key)).map_err(unavailable)?;
        Ok(bytes.and_then(|bytes| keepsakes::decode_value(key, &bytes)))
    }

    fn value(&self, key: &str) -> PathBuf {
        self.root.join("values").join(Digest::of(key.as_bytes()).as_str())
    }

    /// Whole or not at all, as far as other processes see; not synced.
    fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let temporary = file.with_extension(format!("{}.{count}.tmp", std::process::id()));
        // Left behind by an earlier process with our number, if it is there at all.
        let _ = fs::remove_file(&temporary);
        let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        made.write_all(bytes).and_then(|()| fs::rename(&temporary, file)).inspect_err(|_| {
            // The error is what matters.
            let _ = fs::remove_file(&temporary);
        })
    }
}

/// The checksum of an event; of what comes before the first for number 0.
pub(super) fn checksum(table: &Table<'_>, run: &RunId, seq: Seq) -> Result<Option<Vec<u8>>, JournalError> {
    match seq.0 {
        0 => Ok(Some(genesis(run))),
        seq => table.checksum(run, i64::try_from(seq).unwrap_or(i64::MAX)),
    }
}

const SNAPSHOT: &str = "snapshot-";

fn snapshot_name(seq: Seq) -> String {
    format!("{SNAPSHOT}{seq}")
}

/// Newest first.
fn snapshot_files(folder: &Path) -> io::Result<Vec<(Seq, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(seq) = name.and_then(|name| name.strip_prefix(SNAPSHOT)?.parse().ok()) {
            found.push((Seq(seq), path));
        }
    }
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    Ok(found)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

fn remove_file(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

fn read(file: &Path) -> io::Result<Option<Bytes>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(Bytes::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unavailable(error: io::Error) -> JournalError {
    JournalError::Unavailable(Box::new(error))
}
