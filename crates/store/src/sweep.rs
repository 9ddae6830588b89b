//! Which blobs nothing refers to: all there are, less what any record names.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::ids::{Digest, RunId};
use longrein_ports::{JournalError, RecordedBody};

use crate::encoding::{Sealed, genesis};
use crate::references::{self, Referred};
use crate::verify::Everything;

/// Events read at a time.
const PAGE: usize = 256;

/// A search for blobs without references. It may look several times: each look reads only what was added since the last.
pub(crate) struct Sweep {
    unreferenced: BTreeSet<Digest>,
    /// Number and checksum of the last event read, per run.
    read: BTreeMap<RunId, (i64, Vec<u8>)>,
}

impl Sweep {
    pub(crate) fn of(blobs: impl IntoIterator<Item = Digest>) -> Self {
        Self { unreferenced: blobs.into_iter().collect(), read: BTreeMap::new() }
    }

    /// Takes out what these runs and the keys refer to. A record that cannot be read may refer to anything, so it is an
    /// error: nothing may be removed then.
    pub(crate) fn look(&mut self, store: &dyn Everything, runs: &[RunId]) -> Result<(), JournalError> {
        for run in runs {
            self.events(store, run)?;
            for record in store.inbox(run)? {
                let input = record.checked()?.input()?;
                let mut found = Vec::new();
                references::of_input(&input, &mut found);
                self.keep(&found);
            }
        }
        for record in store.keys()? {
            let row = record.checked()?.row()?;
            let mut found = Vec::new();
            references::of_key(&row.state, &mut found);
            self.keep(&found);
        }
        Ok(())
    }

    pub(crate) fn unreferenced(self) -> BTreeSet<Digest> {
        self.unreferenced
    }

    fn events(&mut self, store: &dyn Everything, run: &RunId) -> Result<(), JournalError> {
        let (mut seq, mut checksum) = self.read.remove(run).unwrap_or_else(|| (0, genesis(run)));
        loop {
            let page = store.events(run, seq, PAGE)?;
            for event in &page {
                let record = format!("event {}", event.seq);
                match event.read(Some(&checksum)).body {
                    RecordedBody::Known(known) => {
                        let mut found = Vec::new();
                        references::of_event(&known, &mut found);
                        self.keep(&found);
                    }
                    RecordedBody::Unknown { kind, .. } => {
                        return Err(JournalError::Unusable(format!(
                            "{record} of run {run} is of a kind this version does not know ({kind}), and may refer to any \
                             blob; nothing was removed. Use the newer version, or remove the run"
                        )));
                    }
                    RecordedBody::Damaged { what } => {
                        return Err(JournalError::Corrupt { run: run.clone(), record, fault: what });
                    }
                }
                seq = event.seq;
                checksum.clone_from(&event.checksum);
            }
            if page.len() < PAGE {
                self.read.insert(run.clone(), (seq, checksum));
                return Ok(());
            }
        }
    }

    fn keep(&mut self, referenced: &[Referred<'_>]) {
        for blob in referenced {
            self.unreferenced.remove(blob.digest);
        }
    }
}
