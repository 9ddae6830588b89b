//! Verification: checks every record of a run without trusting any other. A finding names the record and what is wrong
//! with it; nothing is repaired.

use std::collections::BTreeMap;

use bytes::Bytes;
use longrein_core::event::Event;
use longrein_core::ids::{Digest, RunId, Seq};
use longrein_ports::{Finding, JournalError, RecordedBody, VerifyReport};

use crate::encoding::{
    ClaimRecord, EndorsementRecord, InboxRecord, KeyRecord, MarkRecord, RunRecord, Sealed, StoredEvent, genesis,
};
use crate::keepsakes::KeptSnapshot;
use crate::references::{self, Referred};
use crate::rules::is_removed;

/// What verification needs to see: all of it, as it is stored.
pub(crate) trait Everything {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError>;
    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError>;
    /// Events whose number is above `after`, by number, at most `limit`.
    fn events(&self, run: &RunId, after: i64, limit: usize) -> Result<Vec<StoredEvent>, JournalError>;
    fn inbox(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError>;
    /// Key rows of every run: a damaged one may have lost its run's name.
    fn keys(&self) -> Result<Vec<KeyRecord>, JournalError>;
    /// Marks of every run: a damaged one may have lost its run's name.
    fn marks(&self) -> Result<Vec<MarkRecord>, JournalError>;
    /// They are of no run.
    fn endorsements(&self) -> Result<Vec<EndorsementRecord>, JournalError>;
    /// The bytes stored under a digest, unchecked.
    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError>;
    /// The snapshots kept of a run, unchecked.
    fn snapshots(&self, run: &RunId) -> Result<Vec<(Seq, Bytes)>, JournalError>;
}

/// None: nothing is known of the run.
pub(crate) fn verify(store: &dyn Everything, run: &RunId) -> Result<Option<VerifyReport>, JournalError> {
    let record = store.run(run)?;
    let claim = store.claim(run)?;
    let mut check = Check::new(run);
    let chain = check.events(store)?;
    check.inbox(&store.inbox(run)?, record.as_ref(), chain.head);
    check.keys(&store.keys()?);
    check.marks(&store.marks()?);
    check.endorsements(&store.endorsements()?);
    check.blobs(store)?;
    check.snapshots(store)?;
    let nothing = record.is_none() && claim.is_none() && check.report.events == 0 && check.report.inputs == 0;
    if nothing {
        return Ok(None);
    }
    check.run(record.as_ref(), &chain);
    if !record.as_ref().is_some_and(is_removed) {
        check.claim(claim.as_ref(), &chain);
    }
    Ok(Some(check.report))
}

/// How many events are held in memory at once.
const PAGE: usize = 256;

struct Check<'a> {
    run: &'a RunId,
    report: VerifyReport,
    /// Digest → length, and who refers to it first.
    references: BTreeMap<Digest, (u64, String)>,
}

/// What the events themselves say about their end.
struct Chain {
    head: i64,
    checksum: Vec<u8>,
    at: i64,
    /// The highest fence that claimed the run.
    fence: u64,
}

impl<'a> Check<'a> {
    fn new(run: &'a RunId) -> Self {
        let report = VerifyReport { events: 0, inputs: 0, keys: 0, blobs: 0, findings: Vec::new() };
        Self { run, report, references: BTreeMap::new() }
    }

    fn found(&mut self, record: impl Into<String>, fault: impl Into<String>) {
        self.report.findings.push(Finding { record: record.into(), fault: fault.into() });
    }

    fn events(&mut self, store: &dyn Everything) -> Result<Chain, JournalError> {
        let mut chain = Chain { head: 0, checksum: genesis(self.run), at: 0, fence: 0 };
        let mut after = i64::MIN;
        loop {
            let page = store.events(self.run, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(chain) };
            after = last.seq;
            for event in &page {
                self.event(event, &mut chain);
            }
        }
    }

    fn event(&mut self, event: &StoredEvent, chain: &mut Chain) {
        self.report.events += 1;
        let name = format!("event {}", event.seq);
        let expected = chain.head + 1;
        if event.seq != expected {
            self.found(&name, format!("stands where event {expected} should be"));
        }
        if event.at < chain.at {
            self.found(&name, "is older than the event before it");
        }
        match event.read(Some(&chain.checksum)).body {
            RecordedBody::Damaged { what } => self.found(&name, what),
            RecordedBody::Unknown { .. } => {}
            RecordedBody::Known(known) => {
                if let Event::RunClaimed(claimed) = &known {
                    chain.fence = chain.fence.max(claimed.fence.0);
                }
                let mut found = Vec::new();
                references::of_event(&known, &mut found);
                self.refer(&name, &found);
            }
        }
        chain.head = event.seq;
        chain.at = event.at;
        chain.checksum.clone_from(&event.checksum);
    }

    fn refer(&mut self, by: &str, blobs: &[Referred<'_>]) {
        for blob in blobs {
            self.references.entry(blob.digest.clone()).or_insert_with(|| (blob.bytes, by.to_owned()));
        }
    }

    fn inbox(&mut self, inputs: &[InboxRecord], run: Option<&RunRecord>, head: i64) {
        for (record, expected) in inputs.iter().zip(1..) {
            self.report.inputs += 1;
            let name = record.name();
            if let Some(fault) = record.fault() {
                self.found(&name, fault);
            }
            if record.arrival != expected {
                self.found(&name, format!("stands where arrival {expected} should be"));
            }
            if record.taken > head {
                self.found(&name, format!("was taken by event {}, which does not exist", record.taken));
            }
            match record.input() {
                Err(error) => self.found(&name, error.to_string()),
                Ok(input) => {
                    if input.id != record.id {
                        self.found(&name, format!("holds input {}", input.id));
                    }
                    let mut found = Vec::new();
                    references::of_input(&input, &mut found);
                    self.refer(&name, &found);
                }
            }
        }
        let there = inputs.len() as i64;
        if let Some(run) = run.filter(|run| run.arrivals != there) {
            self.found("inbox", format!("{} inputs arrived, {there} are there", run.arrivals));
        }
    }

    fn keys(&mut self, keys: &[KeyRecord]) {
        for record in keys {
            let ours = record.run == *self.run || record.scope == self.run.as_str();
            self.report.keys += u64::from(ours);
            if let Some(fault) = record.fault() {
                self.found(record.name(), fault);
            } else if ours {
                match record.row() {
                    Err(error) => self.found(record.name(), error.to_string()),
                    Ok(row) => {
                        let mut found = Vec::new();
                        references::of_key(&row.state, &mut found);
                        self.refer(&record.name(), &found);
                    }
                }
            }
        }
    }

    fn marks(&mut self, marks: &[MarkRecord]) {
        for record in marks {
            let fault = match record.fault() {
                Some(fault) => Some(fault),
                None => record.mark().err().map(|error| error.to_string()),
            };
            if let Some(fault) = fault {
                self.found(record.name(), fault);
            }
        }
    }

    fn endorsements(&mut self, endorsements: &[EndorsementRecord]) {
        for record in endorsements {
            let fault = match record.fault() {
                Some(fault) => Some(fault),
                None => record.endorsement().err().map(|error| error.to_string()),
            };
            if let Some(fault) = fault {
                self.found(record.name(), fault);
            }
        }
    }

    fn blobs(&mut self, store: &dyn Everything) -> Result<(), JournalError> {
        for (digest, (bytes, by)) in std::mem::take(&mut self.references) {
            self.report.blobs += 1;
            let name = format!("blob {digest}");
            match store.blob(&digest)? {
                None => self.found(&name, format!("is missing; {by} refers to it")),
                Some(found) if Digest::of(&found) != digest => {
                    self.found(&name, format!("does not match its digest; {by} refers to it"));
                }
                Some(found) if found.len() as u64 != bytes => {
                    self.found(&name, format!("has {} bytes, {by} says {bytes}", found.len()));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// They are caches: a damaged one is not used and costs nothing but time, yet an operator should know of it.
    fn snapshots(&mut self, store: &dyn Everything) -> Result<(), JournalError> {
        for (seq, bytes) in store.snapshots(self.run)? {
            if KeptSnapshot::decode(self.run, seq, &bytes).is_none() {
                self.found(format!("snapshot {seq}"), "its checksum does not match; it is not used");
            }
        }
        Ok(())
    }

    fn run(&mut self, record: Option<&RunRecord>, chain: &Chain) {
        let Some(record) = record else { return self.found("run", "is missing") };
        if let Some(fault) = record.fault() {
            self.found("run", fault);
        }
        if record.head != chain.head {
            self.found("run", format!("says the last event is {}, it is {}", record.head, chain.head));
        } else if record.chain != chain.checksum {
            self.found("run", "its checksum is not the last event's");
        } else if record.at != chain.at {
            self.found("run", "its time is not the last event's");
        }
        match record.row() {
            Some(row) if row.run != *self.run => self.found("run", "its listing is of another run"),
            Some(row) if row.state == "damaged" && record.fault().is_none() => {
                self.found("run", format!("its listing cannot be read: {}", row.reason));
            }
            Some(_) | None => {}
        }
    }

    fn claim(&mut self, record: Option<&ClaimRecord>, chain: &Chain) {
        let Some(record) = record else { return self.found("claim", "is missing") };
        if let Some(fault) = record.fault() {
            self.found("claim", fault);
        }
        if record.fence().0 < chain.fence {
            self.found("claim", format!("its fence is {}, but {} claimed the run", record.fence(), chain.fence));
        }
    }
}
