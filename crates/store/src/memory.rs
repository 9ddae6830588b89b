//! The journal in memory: the same rules and bytes as on disk, gone with the process. Deterministic: no threads, no timers,
//! no order but that of keys, and no time but that of the clock it is given. The simulator runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::context::archive::Handle;
use longrein_core::event::Event;
use longrein_core::ids::{Digest, InputId, RunId, Seq, ToolName};
use longrein_core::input::Input;
use longrein_core::time::Timestamp;
use longrein_ports::{
    AppendError, Archive, Batch, BoxFuture, Cabinet, Claim, ClaimError, Clock, Collected, Committed, Create,
    Durability, Endorsement, Found, Holder, Journal, JournalError, KeyId, KeyRow, Marks, Piece, Posted, Recorded,
    RecordedBody, RunRow, SNAPSHOTS_KEPT, Snapshot, Store, Unread, VerifyReport, Worker,
};

use crate::archive::text::Load;
use crate::archive::{Pieces, Query, scan};
use crate::encoding::{
    ClaimRecord, EndorsementRecord, InboxRecord, KeyRecord, MarkRecord, RunRecord, Sealed, StoredEvent, genesis,
    read_chain,
};
use crate::keepsakes::{self, KeptSnapshot};
use crate::rules::{self, Decided, Now, Prepared, Rows, Write};
use crate::sweep::Sweep;
use crate::verify::{self, Everything};
use crate::wakeups::Wakeups;
use crate::{Alive, marks_of};

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryJournal {
    shared: Arc<Shared>,
}

struct Shared {
    tables: Mutex<Tables>,
    wakeups: Wakeups,
    clock: Arc<dyn Clock>,
    alive: Alive,
}

impl MemoryJournal {
    /// `alive` says whether a worker of the claimant's own host and boot still runs.
    pub fn new(clock: Arc<dyn Clock>, alive: Alive) -> Self {
        let tables = Mutex::new(Tables::default());
        Self { shared: Arc::new(Shared { tables, wakeups: Wakeups::default(), clock, alive }) }
    }

    /// What the loss of power does: everything since the last `Synced` write is gone.
    pub fn lose_power(&self) {
        self.tables().undo_all();
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Rules only look, and writes are applied without a chance to panic between them.
        self.shared.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now<'_> {
        Now { clock: &*self.shared.clock, alive: &*self.shared.alive }
    }

    /// One transaction: decide, then apply everything.
    fn transact<T, E>(
        &self,
        durability: Durability,
        decide: impl FnOnce(&Tables) -> Result<Decided<T>, E>,
    ) -> Result<T, E> {
        let mut tables = self.tables();
        let (answer, writes) = decide(&tables)?;
        tables.apply(writes);
        match durability {
            Durability::Synced => tables.undo.clear(),
            Durability::Written => {}
        }
        Ok(answer)
    }

    /// The live holder of a run, seen from its own host: all of memory is one host.
    fn holder(&self, tables: &Tables, run: &RunId) -> Option<Holder> {
        let claim = tables.claims.get(run)?;
        self.now().holder(claim, &claim.host, &claim.boot)
    }
}

impl Journal for MemoryJournal {
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>> {
        Box::pin(async move {
            self.transact(Durability::Written, |tables| {
                rules::claim(tables, &self.now(), run, worker, workspace, create)
            })
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        Box::pin(async move { self.transact(Durability::Written, |tables| rules::renew(tables, &self.now(), claim)) })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move { self.transact(Durability::Written, |tables| rules::release(tables, claim)) })
    }

    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            let batch = Prepared::of(claim, batch)?;
            self.transact(batch.durability, |tables| rules::append(tables, claim, &batch))
        })
    }

    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>> {
        Box::pin(async move {
            let tables = self.tables();
            let events = tables.events.get(run).map_or(&[][..], Vec::as_slice);
            // Numbers have no gaps in memory: event n is the nth.
            let from = usize::try_from(after.0).unwrap_or(usize::MAX).min(events.len());
            let to = from.saturating_add(limit).min(events.len());
            let previous = from.checked_sub(1).map_or_else(|| genesis(run), |last| events[last].checksum.clone());
            Ok(read_chain(Some(previous), after.0.cast_signed(), &events[from..to], None))
        })
    }

    fn runs(&self) -> BoxFuture<'_, Result<Vec<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            let tables = self.tables();
            let mut listed: Vec<_> = tables
                .runs
                .values()
                .filter_map(|record| Some((record.row()?, self.holder(&tables, &record.run))))
                .collect();
            listed.sort_by(crate::newest_first);
            Ok(listed)
        })
    }

    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<(RunRow, Option<Holder>)>, JournalError>> {
        Box::pin(async move {
            let tables = self.tables();
            let row = tables.runs.get(run).and_then(RunRecord::row);
            Ok(row.map(|row| (row, self.holder(&tables, run))))
        })
    }

    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        Box::pin(async move {
            let posted = self.transact(Durability::Synced, |tables| rules::post(tables, run, input, blobs))?;
            self.shared.wakeups.wake(run);
            Ok(posted)
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>> {
        Box::pin(async move { self.tables().untaken(run)?.iter().map(InboxRecord::input).collect() })
    }

    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()> {
        let arrivals = || Some(self.tables().runs.get(run).map_or(0, |record| record.arrivals));
        Box::pin(self.shared.wakeups.wait(run).changed(arrivals))
    }

    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>> {
        Box::pin(async move { self.tables().keys.get(id).cloned().map(|record| record.checked()?.row()).transpose() })
    }

    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move { Ok(self.tables().blobs.get(digest).cloned()) })
    }

    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>> {
        Box::pin(async move { verify::verify(&*self.tables(), run) })
    }
}

/// By reading everything: what is in memory is small, or lives in a test.
impl Archive for MemoryJournal {
    fn index<'a>(&'a self, _run: &'a RunId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }

    fn find<'a>(
        &'a self,
        run: &'a RunId,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Found>, JournalError>> {
        Box::pin(async move { Ok(scan::find(&self.tables().pieces(run)?, &Query::of(query), most)) })
    }

    fn piece<'a>(&'a self, run: &'a RunId, handle: &'a Handle) -> BoxFuture<'a, Result<Option<Piece>, JournalError>> {
        Box::pin(async move {
            let tables = self.tables();
            let pieces = match handle {
                Handle::List(_) => tables.made(run, Pieces::list)?,
                Handle::Message(_) | Handle::Action(_) | Handle::Reply(_) | Handle::Check(_) => tables.pieces(run)?,
            };
            Ok(pieces.into_iter().find(|piece| piece.handle == *handle))
        })
    }
}

/// Kept beside the tables: a loss of power takes nothing of it, though it may take the events it was made of.
impl Cabinet for MemoryJournal {
    fn keep_snapshot<'a>(&'a self, run: &'a RunId, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let mut tables = self.tables();
            let Some(chain) = tables.checksum(run, snapshot.seq).filter(|_| snapshot.seq > Seq(0)) else {
                return Err(keepsakes::no_such_event(run, snapshot.seq));
            };
            let bytes = KeptSnapshot { snapshot: snapshot.clone(), chain }.encode(run);
            tables.snapshots.entry(run.clone()).or_default().insert(snapshot.seq, bytes.into());
            let kept: Vec<Seq> = tables.whole_snapshots(run).iter().map(|kept| kept.seq).take(SNAPSHOTS_KEPT).collect();
            tables.snapshots.entry(run.clone()).or_default().retain(|seq, _| kept.contains(seq));
            Ok(())
        })
    }

    fn snapshots<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Snapshot>, JournalError>> {
        Box::pin(async move { Ok(self.tables().whole_snapshots(run)) })
    }

    fn remember<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let bytes = keepsakes::encode_value(key, &value)?;
            self.tables().values.insert(key.to_owned(), bytes.into());
            Ok(())
        })
    }

    fn recollect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        Box::pin(async move { Ok(self.tables().values.get(key).and_then(|bytes| keepsakes::decode_value(key, bytes))) })
    }
}

impl Store for MemoryJournal {
    fn purge<'a>(&'a self, runs: &'a [RunId], unread: Unread) -> BoxFuture<'a, Result<(), ClaimError>> {
        Box::pin(async move {
            self.transact(Durability::Synced, |tables| {
                // All of memory is one host: its holder's own.
                let claim = runs.iter().find_map(|run| Rows::claim(tables, run).transpose()).transpose()?;
                let here = claim.map(|claim| claim.worker());
                let here =
                    here.unwrap_or_else(|| Worker { host: String::new(), boot: String::new(), pid: 0, pid_start: 0 });
                rules::purge(tables, &self.now(), runs, unread, &here)
            })
        })
    }

    fn marks(&self, after: u64) -> Result<Marks, JournalError> {
        let tables = self.tables();
        let newer = tables.marks.values().filter(|record| record.number.cast_unsigned() > after);
        marks_of(newer.cloned().collect(), after)
    }

    fn endorsements(&self) -> Result<Vec<Endorsement>, JournalError> {
        self.tables().endorsements.values().cloned().map(|record| record.checked()?.endorsement()).collect()
    }

    fn endorse<'a>(&'a self, endorsement: &'a Endorsement) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move { self.transact(Durability::Synced, |_| rules::endorse(endorsement)) })
    }

    fn forget_endorsement<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<bool, JournalError>> {
        Box::pin(async move { self.transact(Durability::Synced, |tables| rules::distrust(tables, source)) })
    }

    fn collect(&self, _older_than: Duration) -> BoxFuture<'_, Result<Collected, JournalError>> {
        Box::pin(async move {
            let mut tables = self.tables();
            let mut sweep = Sweep::of(tables.blobs.keys().cloned());
            let runs: Vec<_> = tables.runs.keys().cloned().collect();
            sweep.look(&*tables, &runs)?;
            let mut collected = Collected::default();
            for digest in sweep.unreferenced() {
                if let Some(bytes) = tables.blobs.remove(&digest) {
                    collected.blobs += 1;
                    collected.bytes += bytes.len() as u64;
                }
            }
            Ok(collected)
        })
    }
}

#[derive(Default)]
struct Tables {
    runs: BTreeMap<RunId, RunRecord>,
    claims: BTreeMap<RunId, ClaimRecord>,
    events: BTreeMap<RunId, Vec<StoredEvent>>,
    inboxes: BTreeMap<RunId, Inbox>,
    keys: BTreeMap<KeyId, KeyRecord>,
    /// By path.
    marks: BTreeMap<String, MarkRecord>,
    /// By source.
    endorsements: BTreeMap<String, EndorsementRecord>,
    blobs: BTreeMap<Digest, Bytes>,
    /// Encoded, by the last event folded in.
    snapshots: BTreeMap<RunId, BTreeMap<Seq, Bytes>>,
    /// Encoded.
    values: BTreeMap<String, Bytes>,
    /// How to take back what is not synced, newest last.
    undo: Vec<Undo>,
}

#[derive(Default)]
struct Inbox {
    /// By arrival.
    records: BTreeMap<i64, InboxRecord>,
    arrivals: BTreeMap<InputId, i64>,
    untaken: BTreeSet<i64>,
}

impl Inbox {
    fn put(&mut self, record: InboxRecord) -> Option<InboxRecord> {
        self.arrivals.insert(record.id.clone(), record.arrival);
        if record.taken == 0 {
            self.untaken.insert(record.arrival);
        } else {
            self.untaken.remove(&record.arrival);
        }
        self.records.insert(record.arrival, record)
    }

    fn remove(&mut self, record: &InboxRecord) {
        self.arrivals.remove(&record.id);
        self.untaken.remove(&record.arrival);
        self.records.remove(&record.arrival);
    }
}

/// What stood there before a write.
enum Undo {
    Run(RunId, Option<RunRecord>),
    Claim(RunId, Option<ClaimRecord>),
    Event(RunId),
    Input(InboxRecord, Option<InboxRecord>),
    Key(KeyId, Option<KeyRecord>),
    Mark(String, Option<MarkRecord>),
    Endorsement(String, Option<EndorsementRecord>),
    Blob(Digest),
}

impl Tables {
    fn pieces(&self, run: &RunId) -> Result<Vec<Piece>, JournalError> {
        self.made(run, Pieces::add)
    }

    /// `add` says what the run's events add.
    fn made(
        &self,
        run: &RunId,
        add: impl Fn(&mut Pieces, Seq, Timestamp, &Event, &Load<'_>) -> Result<(), JournalError>,
    ) -> Result<Vec<Piece>, JournalError> {
        let events = self.events.get(run).map_or(&[][..], Vec::as_slice);
        let mut pieces = Pieces::default();
        for recorded in read_chain(Some(genesis(run)), 0, events, None) {
            if let RecordedBody::Known(event) = &recorded.body {
                add(&mut pieces, recorded.seq, recorded.at, event, &|digest| Ok(self.blobs.get(digest).cloned()))?;
            }
        }
        Ok(pieces.made())
    }

    /// The checksum of an event; of what comes before the first for number 0.
    fn checksum(&self, run: &RunId, seq: Seq) -> Option<Vec<u8>> {
        let Some(place) = seq.0.checked_sub(1) else { return Some(genesis(run)) };
        Some(self.events.get(run)?.get(usize::try_from(place).ok()?)?.checksum.clone())
    }

    /// Newest first.
    fn whole_snapshots(&self, run: &RunId) -> Vec<Snapshot> {
        let there = self.snapshots.get(run).into_iter().flatten().rev();
        let whole = there.filter_map(|(seq, bytes)| KeptSnapshot::decode(run, *seq, bytes));
        whole
            .filter(|kept| self.checksum(run, kept.snapshot.seq).as_ref() == Some(&kept.chain))
            .map(|kept| kept.snapshot)
            .collect()
    }

    fn apply(&mut self, writes: Vec<Write>) {
        for write in writes {
            let undo = match write {
                Write::NewRun(record) | Write::Arrived(record) | Write::Advance { record, .. } => {
                    let run = record.run.clone();
                    Undo::Run(run.clone(), self.runs.insert(run, record))
                }
                Write::Claim { record, .. } => {
                    let run = record.run.clone();
                    Undo::Claim(run.clone(), self.claims.insert(run, record))
                }
                Write::Event { run, event } => {
                    self.events.entry(run.clone()).or_default().push(event);
                    Undo::Event(run)
                }
                Write::Input(record) => {
                    let before = self.inboxes.entry(record.run.clone()).or_default().put(record.clone());
                    Undo::Input(record, before)
                }
                Write::Purge(tombstone) => {
                    // Synced, as all before it is by then: there is nothing to take back.
                    self.events.remove(&tombstone.run);
                    self.inboxes.remove(&tombstone.run);
                    self.claims.remove(&tombstone.run);
                    self.snapshots.remove(&tombstone.run);
                    self.runs.insert(tombstone.run.clone(), tombstone);
                    continue;
                }
                Write::Key(record) => {
                    let id = key_id(&record);
                    Undo::Key(id.clone(), self.keys.insert(id, record))
                }
                Write::Mark(record) => {
                    let path = record.path.clone();
                    Undo::Mark(path.clone(), self.marks.insert(path, record))
                }
                Write::Unmark(path) => {
                    let before = self.marks.remove(&path);
                    Undo::Mark(path, before)
                }
                Write::Endorse(record) => {
                    let source = record.source.clone();
                    Undo::Endorsement(source.clone(), self.endorsements.insert(source, record))
                }
                Write::Distrust(source) => {
                    let before = self.endorsements.remove(&source);
                    Undo::Endorsement(source, before)
                }
                Write::Blob(digest, bytes) => {
                    if self.blobs.contains_key(&digest) {
                        continue;
                    }
                    self.blobs.insert(digest.clone(), bytes);
                    Undo::Blob(digest)
                }
            };
            self.undo.push(undo);
        }
    }

    fn undo_all(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Run(run, before) => put_back(&mut self.runs, run, before),
                Undo::Claim(run, before) => put_back(&mut self.claims, run, before),
                Undo::Event(run) => {
                    self.events.entry(run).or_default().pop();
                }
                Undo::Input(record, before) => {
                    let inbox = self.inboxes.entry(record.run.clone()).or_default();
                    inbox.remove(&record);
                    if let Some(before) = before {
                        inbox.put(before);
                    }
                }
                Undo::Key(id, before) => put_back(&mut self.keys, id, before),
                Undo::Mark(path, before) => put_back(&mut self.marks, path, before),
                Undo::Endorsement(source, before) => put_back(&mut self.endorsements, source, before),
                Undo::Blob(digest) => {
                    self.blobs.remove(&digest);
                }
            }
        }
    }
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<V>) {
    match before {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn key_id(record: &KeyRecord) -> KeyId {
    KeyId {
        scope: record.scope.clone(),
        tool: ToolName::new(record.tool.clone()),
        digest: Digest::new(record.digest.clone()),
    }
}

impl Rows for Tables {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError> {
        Ok(self.runs.get(run).cloned())
    }
    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError> {
        Ok(self.claims.get(run).cloned())
    }
    fn rooted(&self) -> Result<Vec<ClaimRecord>, JournalError> {
        Ok(self.claims.values().filter(|claim| claim.root.is_some()).cloned().collect())
    }
    fn input(&self, run: &RunId, id: &InputId) -> Result<Option<InboxRecord>, JournalError> {
        let inbox = self.inboxes.get(run);
        Ok(inbox.and_then(|inbox| inbox.records.get(inbox.arrivals.get(id)?)).cloned())
    }
    fn untaken(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
        let Some(inbox) = self.inboxes.get(run) else { return Ok(Vec::new()) };
        Ok(inbox.untaken.iter().filter_map(|arrival| inbox.records.get(arrival)).cloned().collect())
    }
    fn key(&self, id: &KeyId) -> Result<Option<KeyRecord>, JournalError> {
        Ok(self.keys.get(id).cloned())
    }
    fn mark(&self, path: &str) -> Result<Option<MarkRecord>, JournalError> {
        Ok(self.marks.get(path).cloned())
    }
    fn marks_made(&self) -> Result<(usize, i64), JournalError> {
        Ok((self.marks.len(), self.marks.values().map(|record| record.number).max().unwrap_or(0)))
    }
    fn oldest_marks(&self, most: usize) -> Result<Vec<MarkRecord>, JournalError> {
        let mut records: Vec<_> = self.marks.values().cloned().collect();
        records.sort_by_key(|record| record.number);
        records.truncate(most);
        Ok(records)
    }
    fn endorsement(&self, source: &str) -> Result<Option<EndorsementRecord>, JournalError> {
        Ok(self.endorsements.get(source).cloned())
    }
}

impl Everything for Tables {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError> {
        Ok(self.runs.get(run).cloned())
    }
    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError> {
        Ok(self.claims.get(run).cloned())
    }
    fn events(&self, run: &RunId, after: i64, limit: usize) -> Result<Vec<StoredEvent>, JournalError> {
        let events = self.events.get(run).map_or(&[][..], Vec::as_slice);
        Ok(events.iter().filter(|event| event.seq > after).take(limit).cloned().collect())
    }
    fn inbox(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
        Ok(self.inboxes.get(run).map(|inbox| inbox.records.values().cloned().collect()).unwrap_or_default())
    }
    fn keys(&self) -> Result<Vec<KeyRecord>, JournalError> {
        Ok(self.keys.values().cloned().collect())
    }
    fn marks(&self) -> Result<Vec<MarkRecord>, JournalError> {
        Ok(self.marks.values().cloned().collect())
    }
    fn endorsements(&self) -> Result<Vec<EndorsementRecord>, JournalError> {
        Ok(self.endorsements.values().cloned().collect())
    }
    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, JournalError> {
        Ok(self.blobs.get(digest).cloned())
    }
    fn snapshots(&self, run: &RunId) -> Result<Vec<(Seq, Bytes)>, JournalError> {
        Ok(self.snapshots.get(run).into_iter().flatten().map(|(seq, bytes)| (*seq, bytes.clone())).collect())
    }
}
