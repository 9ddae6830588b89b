//! The rules of a store, in one place for every backend: what a claim, an append, an input may do, and what it changes.
//!
//! Each rule looks at [`Rows`] and answers with [`Write`]s; it changes nothing itself. The backend calls it inside one
//! transaction and then applies all of the writes or none. Start with [`append`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::ids::{Digest, Fence, InputId, RunId, Seq};
use longrein_core::input::{INBOX_MAX, Input, InputBody};
use longrein_core::time::{Timestamp, millis};
use longrein_ports::{
    AppendError, Batch, Claim, ClaimError, Clock, Committed, Create, Durability, Endorsement, FileMark, Holder,
    JournalError, KeyChange, KeyId, KeyRow, KeyState, LEASE, MARKS_MAX, Posted, REMOVED, RunRow, Unread, Worker,
};

use crate::encoding::{
    ClaimRecord, EncodedBody, EndorsementRecord, InboxRecord, KeyRecord, MarkRecord, RunRecord, Sealed, StoredEvent,
};

/// What the rules need to see of a store. Answers records as they are stored; the rules check their seals.
pub(crate) trait Rows {
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError>;
    fn claim(&self, run: &RunId) -> Result<Option<ClaimRecord>, JournalError>;
    /// Claims that were not given up and name a workspace.
    fn rooted(&self) -> Result<Vec<ClaimRecord>, JournalError>;
    fn input(&self, run: &RunId, id: &InputId) -> Result<Option<InboxRecord>, JournalError>;
    /// Inputs not yet taken, oldest first.
    fn untaken(&self, run: &RunId) -> Result<Vec<InboxRecord>, JournalError>;
    fn key(&self, id: &KeyId) -> Result<Option<KeyRecord>, JournalError>;
    fn mark(&self, path: &str) -> Result<Option<MarkRecord>, JournalError>;
    /// How many marks there are, and the highest number of one.
    fn marks_made(&self) -> Result<(usize, i64), JournalError>;
    /// Those that were not changed for longest.
    fn oldest_marks(&self, most: usize) -> Result<Vec<MarkRecord>, JournalError>;
    fn endorsement(&self, source: &str) -> Result<Option<EndorsementRecord>, JournalError>;
}

/// A change the rules decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// A run that was not there before.
    NewRun(RunRecord),
    /// The run's row after an append under this fence, which followed event `was_head`.
    Advance {
        record: RunRecord,
        was_head: i64,
        fence: i64,
    },
    /// The run's row after an input arrived.
    Arrived(RunRecord),
    /// The claim's row. `was`: the fence it replaces; None: there was no claim.
    Claim {
        record: ClaimRecord,
        was: Option<i64>,
    },
    Event {
        run: RunId,
        event: StoredEvent,
    },
    /// A new input, or one that is taken now.
    Input(InboxRecord),
    /// Everything of a run goes but its key rows; this tombstone stays.
    Purge(RunRecord),
    Key(KeyRecord),
    Mark(MarkRecord),
    /// The mark of this path goes: another one covers it.
    Unmark(String),
    Endorse(EndorsementRecord),
    /// This source is trusted no more.
    Distrust(String),
    Blob(Digest, Bytes),
}

/// An answer and what must be written for it to be true.
pub(crate) type Decided<T> = (T, Vec<Write>);

/// Time, and who is alive, as seen when a rule is applied.
pub(crate) struct Now<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) alive: &'a (dyn Fn(&Worker) -> bool + Send + Sync),
}

/// What a claim's row amounts to at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Released,
    Live {
        left: Duration,
    },
    /// The lease ran out at this boot time of the onlooker's host; its holder may still be alive.
    Over {
        ended: Duration,
    },
    /// Its holder is proven dead.
    Dead,
}

impl Now<'_> {
    /// How a claim stands for an onlooker on `host` since `boot`.
    pub(crate) fn standing(&self, claim: &ClaimRecord, host: &str, boot: &str) -> Standing {
        if claim.released != 0 {
            return Standing::Released;
        }
        let here = self.clock.boottime();
        if claim.host != host {
            // Another machine's boot time means nothing here; wall clocks are all there is.
            let wall = self.clock.now();
            let until = Timestamp(claim.until_wall.cast_unsigned());
            return match until.since(wall) {
                Duration::ZERO => Standing::Over { ended: here.saturating_sub(wall.since(until)) },
                left => Standing::Live { left },
            };
        }
        if claim.boot != boot || !(self.alive)(&claim.worker()) {
            return Standing::Dead;
        }
        let until = Duration::from_micros(claim.until.cast_unsigned());
        match until.saturating_sub(here) {
            Duration::ZERO => Standing::Over { ended: until },
            left => Standing::Live { left },
        }
    }

    /// The live holder of a claim, for listings.
    pub(crate) fn holder(&self, claim: &ClaimRecord, host: &str, boot: &str) -> Option<Holder> {
        match self.standing(claim, host, boot) {
            Standing::Live { left } => Some(Holder { run: claim.run.clone(), worker: claim.worker(), left }),
            Standing::Released | Standing::Over { .. } | Standing::Dead => None,
        }
    }
}

/// The rules of [`longrein_ports::Journal::claim`].
pub(crate) fn claim(
    rows: &dyn Rows,
    now: &Now<'_>,
    run: &RunId,
    worker: &Worker,
    workspace: Option<&str>,
    create: Create,
) -> Result<Decided<Claim>, ClaimError> {
    let mut writes = Vec::new();
    let record = match (rows.run(run)?, create) {
        (Some(record), _) if is_removed(&record) => return Err(ClaimError::Removed(run.clone())),
        (Some(record), Create::IfAbsent) => record.checked()?,
        (Some(record), Create::Never) if record.head > 0 => record.checked()?,
        (Some(_) | None, Create::Never) => return Err(ClaimError::NoSuchRun(run.clone())),
        (None, Create::IfAbsent) => {
            let record = RunRecord::new(run);
            writes.push(Write::NewRun(record.clone()));
            record
        }
    };
    let last = rows.claim(run)?.map(Sealed::checked).transpose()?;
    if last.is_none() && record.head > 0 {
        let fault = "is missing".to_owned();
        return Err(JournalError::Corrupt { run: run.clone(), record: "claim".to_owned(), fault }.into());
    }
    let (before, predecessor) = match &last {
        None => (None, None),
        Some(last) => match now.standing(last, &worker.host, &worker.boot) {
            Standing::Live { left } => {
                return Err(ClaimError::Held(Holder { run: run.clone(), worker: last.worker(), left }));
            }
            Standing::Released => (None, None),
            Standing::Over { ended } => (Some(ended), Some(last.worker())),
            Standing::Dead => (None, Some(last.worker())),
        },
    };
    let mut displaced = Vec::new();
    let root = workspace.map(tidy_root);
    if let Some(root) = &root {
        let taken = take_workspace(rows, now, run, worker, root)?;
        displaced.extend(taken.iter().map(|record| record.run.clone()));
        writes.extend(taken.into_iter().map(|record| Write::Claim { was: Some(record.fence - 1), record }));
    }
    let until = now.clock.boottime() + LEASE;
    let next = ClaimRecord {
        run: run.clone(),
        fence: last.as_ref().map_or(0, |last| last.fence) + 1,
        host: worker.host.clone(),
        boot: worker.boot.clone(),
        pid: i64::from(worker.pid),
        pid_start: worker.pid_start.cast_signed(),
        until: micros(until),
        until_wall: now.clock.now().plus(LEASE).0.cast_signed(),
        released: 0,
        root,
        seal: Vec::new(),
    }
    .sealed();
    let claim = Claim {
        run: run.clone(),
        fence: next.fence(),
        until,
        head: Seq(record.head.cast_unsigned()),
        before,
        displaced,
        last_alive: last
            .as_ref()
            .filter(|_| predecessor.is_some())
            .map(|last| Timestamp(last.until_wall.cast_unsigned().saturating_sub(millis(LEASE)))),
        predecessor,
    };
    writes.push(Write::Claim { record: next, was: last.map(|last| last.fence) });
    Ok((claim, writes))
}

/// One writing run per workspace (`semantics.md` D11). A holder whose lease is over loses its fence with the workspace:
/// it may only be asleep, and must not wake up beside another writer.
fn take_workspace(
    rows: &dyn Rows,
    now: &Now<'_>,
    run: &RunId,
    worker: &Worker,
    root: &str,
) -> Result<Vec<ClaimRecord>, ClaimError> {
    let mut taken = Vec::new();
    for other in rows.rooted()? {
        let conflicts = other.run != *run && other.root.as_deref().is_some_and(|held| roots_overlap(held, root));
        if !conflicts {
            continue;
        }
        let mut other = other.checked()?;
        if let Standing::Live { left } = now.standing(&other, &worker.host, &worker.boot) {
            let holder = Holder { run: other.run.clone(), worker: other.worker(), left };
            return Err(ClaimError::WorkspaceHeld { root: other.root.unwrap_or_default(), holder });
        }
        other.fence += 1;
        other.root = None;
        taken.push(other.sealed());
    }
    Ok(taken)
}

fn tidy_root(root: &str) -> String {
    match root.trim_end_matches('/') {
        "" => "/".to_owned(),
        tidy => tidy.to_owned(),
    }
}

/// Whether two tidy roots are the same folder or one lies in the other.
fn roots_overlap(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        outer == "/" || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    inside(one, other) || inside(other, one)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// The rules of [`longrein_ports::Journal::renew`]. A lease that ran out and that nobody took may be renewed.
pub(crate) fn renew(rows: &dyn Rows, now: &Now<'_>, claim: &Claim) -> Result<Decided<Duration>, AppendError> {
    let mut record = held(rows, claim)?;
    let until = now.clock.boottime() + LEASE;
    record.until = micros(until);
    record.until_wall = Timestamp(now.clock.now().0 + millis(LEASE)).0.cast_signed();
    let was = Some(record.fence);
    Ok((until, vec![Write::Claim { record: record.sealed(), was }]))
}

/// The rules of [`longrein_ports::Journal::release`].
pub(crate) fn release(rows: &dyn Rows, claim: &Claim) -> Result<Decided<()>, JournalError> {
    match held(rows, claim) {
        Ok(mut record) => {
            record.released = 1;
            record.root = None;
            let was = Some(record.fence);
            Ok(((), vec![Write::Claim { record: record.sealed(), was }]))
        }
        Err(AppendError::Journal(error)) => Err(error),
        Err(
            AppendError::Fenced { .. }
            | AppendError::Conflict { .. }
            | AppendError::InputPending
            | AppendError::KeyTaken(_)
            | AppendError::Unknown,
        ) => Ok(((), Vec::new())),
    }
}

/// The claim's row if `claim` is still the one: the fence is the truth, not the clock.
fn held(rows: &dyn Rows, claim: &Claim) -> Result<ClaimRecord, AppendError> {
    let Some(record) = rows.claim(&claim.run)? else { return Err(AppendError::Fenced { by: Fence(0) }) };
    let record = record.checked()?;
    if record.fence() != claim.fence || record.released != 0 {
        return Err(AppendError::Fenced { by: record.fence() });
    }
    Ok(record)
}

/// A batch made ready to be stored: everything that needs no look at the store is done.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    id: String,
    expected: Seq,
    events: Vec<EncodedBody>,
    consumed: Vec<InputId>,
    keys: Vec<KeyChange>,
    marks: Vec<FileMark>,
    pub(crate) blobs: Vec<(Digest, Bytes)>,
    pub(crate) durability: Durability,
    listing: Vec<u8>,
    ends: bool,
}

impl Prepared {
    /// Encodes a batch. Refuses one that could never be stored: the caller's mistake, so it says what is wrong.
    pub(crate) fn of(claim: &Claim, batch: &Batch) -> Result<Self, AppendError> {
        let refuse = |what: &str| Err(refused(batch.id.0.as_str(), what));
        if batch.events.is_empty() {
            return refuse("it holds no event");
        }
        if batch.id.0.is_empty() {
            return refuse("it has no id");
        }
        if batch.row.run != claim.run {
            return refuse("its listing row is of another run");
        }
        if let Some(mark) = batch.marks.iter().find(|mark| mark.run != claim.run) {
            return refuse(&format!("its mark of {} is of another run", mark.path));
        }
        if let Some((digest, _)) = batch.blobs.iter().find(|(digest, bytes)| Digest::of(bytes) != *digest) {
            return refuse(&format!("blob {digest} has another digest"));
        }
        let unwritable = |error: serde_json::Error| refused(&batch.id.0, &format!("it cannot be written: {error}"));
        let events = batch
            .events
            .iter()
            .map(|new| EncodedBody::of(new.at, &new.event).map_err(unwritable))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            id: batch.id.0.clone(),
            expected: batch.expected,
            events,
            consumed: batch.consumed.clone(),
            keys: batch.keys.clone(),
            marks: batch.marks.clone(),
            blobs: batch.blobs.clone(),
            durability: batch.durability,
            listing: serde_json::to_vec(&batch.row).map_err(unwritable)?,
            ends: batch.ends_the_run(),
        })
    }
}

/// A batch that breaks the rules of the port. Stores have no answer for it but to say so.
fn refused(batch: &str, what: &str) -> AppendError {
    AppendError::Journal(JournalError::Unusable(format!("batch {batch} was refused: {what}")))
}

/// The rules of [`longrein_ports::Journal::append`].
pub(crate) fn append(rows: &dyn Rows, claim: &Claim, batch: &Prepared) -> Result<Decided<Committed>, AppendError> {
    let fence = held(rows, claim)?.fence;
    let run = &claim.run;
    let Some(record) = rows.run(run)? else {
        let fault = "is missing".to_owned();
        return Err(JournalError::Corrupt { run: run.clone(), record: "run".to_owned(), fault }.into());
    };
    let mut record = record.checked()?;
    let was_head = record.head;
    let found = Seq(was_head.cast_unsigned());
    if record.batch == batch.id {
        return Ok((Committed { head: found }, Vec::new()));
    }
    if batch.expected != found {
        return Err(AppendError::Conflict { expected: batch.expected, found });
    }
    let mut writes = Vec::with_capacity(batch.events.len() + batch.consumed.len() + batch.keys.len() + 1);
    for body in &batch.events {
        if body.at < record.at {
            return Err(refused(&batch.id, &format!("its {} is older than the event before it", body.kind)));
        }
        let event = StoredEvent::seal(&record.chain, record.head + 1, body);
        record.head = event.seq;
        record.at = event.at;
        record.chain.clone_from(&event.checksum);
        writes.push(Write::Event { run: run.clone(), event });
    }
    writes.extend(take_inputs(rows, run, batch, record.head)?);
    writes.extend(change_keys(rows, run, batch)?);
    writes.extend(enter_marks(rows, batch, MARKS_MAX)?);
    writes.extend(batch.blobs.iter().map(|(digest, bytes)| Write::Blob(digest.clone(), bytes.clone())));
    record.batch.clone_from(&batch.id);
    record.listing.clone_from(&batch.listing);
    writes.push(Write::Advance { record: record.sealed(), was_head, fence });
    Ok((Committed { head: Seq((was_head + batch.events.len() as i64).cast_unsigned()) }, writes))
}

/// Marks what the batch consumes; an end is refused beside an input it does not consume (`semantics.md` E2).
fn take_inputs(rows: &dyn Rows, run: &RunId, batch: &Prepared, head: i64) -> Result<Vec<Write>, AppendError> {
    let mut writes = Vec::with_capacity(batch.consumed.len());
    let mut taken = BTreeSet::new();
    for id in &batch.consumed {
        let record = rows.input(run, id)?.map(Sealed::checked).transpose()?;
        let Some(mut record) = record.filter(|record| record.taken == 0 && taken.insert(id)) else {
            return Err(refused(&batch.id, &format!("input {id} is not there to be taken")));
        };
        record.taken = head;
        writes.push(Write::Input(record.sealed()));
    }
    if batch.ends && rows.untaken(run)?.iter().any(|left| !taken.contains(&left.id)) {
        return Err(AppendError::InputPending);
    }
    Ok(writes)
}

/// The life of key rows (`semantics.md` D6). Later changes of a batch see the earlier ones.
fn change_keys(rows: &dyn Rows, run: &RunId, batch: &Prepared) -> Result<Vec<Write>, AppendError> {
    let mut changed: BTreeMap<&KeyId, KeyRow> = BTreeMap::new();
    for change in &batch.keys {
        let id = match change {
            KeyChange::Take { id, .. } | KeyChange::Finish { id, .. } | KeyChange::Free { id } => id,
        };
        let present = match changed.remove(id) {
            Some(row) => Some(row),
            None => rows.key(id)?.map(Sealed::checked).transpose()?.map(|record| record.row()).transpose()?,
        };
        let next = match change {
            KeyChange::Take { id, run, action, args } => {
                let taker = |times_freed| KeyRow {
                    id: id.clone(),
                    run: run.clone(),
                    action: *action,
                    args: args.clone(),
                    times_freed,
                    state: KeyState::Held,
                    brings: Vec::new(),
                };
                match present {
                    None => taker(0),
                    Some(row) => match row.state {
                        KeyState::Free => taker(row.times_freed),
                        KeyState::Held | KeyState::Done(_) if row.run == *run && row.action == *action => row,
                        KeyState::Held | KeyState::Done(_) => return Err(AppendError::KeyTaken(id.clone())),
                    },
                }
            }
            KeyChange::Finish { result, brings, .. } => {
                let mut row = own_key(present, run, batch, id)?;
                match row.state {
                    KeyState::Held => {
                        row.state = KeyState::Done(result.clone());
                        row.brings.clone_from(brings);
                    }
                    // The first result stands: later calls may have been answered with it.
                    KeyState::Done(_) => {}
                    KeyState::Free => return Err(refused(&batch.id, &format!("a key of {} is free", id.tool))),
                }
                row
            }
            KeyChange::Free { .. } => {
                let mut row = own_key(present, run, batch, id)?;
                match row.state {
                    KeyState::Held | KeyState::Done(_) => {
                        row.state = KeyState::Free;
                        row.times_freed += 1;
                    }
                    KeyState::Free => {}
                }
                row
            }
        };
        changed.insert(id, next);
    }
    changed
        .values()
        .map(|row| {
            KeyRecord::of(row)
                .map(Write::Key)
                .map_err(|error| refused(&batch.id, &format!("a key row cannot be written: {error}")))
        })
        .collect()
}

/// Adds what a batch tells of files to what is known of them. When there are more than `most`, the oldest become marks of
/// the folders they lie in: too much is marked then, nothing is forgotten.
fn enter_marks(rows: &dyn Rows, batch: &Prepared, most: usize) -> Result<Vec<Write>, AppendError> {
    if batch.marks.is_empty() {
        return Ok(Vec::new());
    }
    let known = |path: &str| -> Result<Option<FileMark>, JournalError> {
        rows.mark(path)?.map(Sealed::checked).transpose()?.map(|record| record.mark()).transpose()
    };
    let mut changed: BTreeMap<String, FileMark> = BTreeMap::new();
    let mut added = 0;
    let mut enter = |changed: &mut BTreeMap<String, FileMark>, mark: FileMark| -> Result<(), JournalError> {
        let before = match changed.remove(&mark.path) {
            Some(before) => Some(before),
            None => known(&mark.path)?,
        };
        let mark = match before {
            Some(before) => mark.after(&before),
            None => {
                added += 1;
                mark
            }
        };
        changed.insert(mark.path.clone(), mark);
        Ok(())
    };
    for mark in &batch.marks {
        enter(&mut changed, mark.clone())?;
    }
    let (there, mut number) = rows.marks_made()?;
    let mut covered = BTreeSet::new();
    if there + changed.len() > most {
        let oldest: Vec<FileMark> = rows
            .oldest_marks(most.div_ceil(10))?
            .into_iter()
            .map(|record| record.checked()?.mark())
            .collect::<Result<_, JournalError>>()?;
        let levels = levels_to_halve(&oldest);
        for mark in oldest {
            let folder = above(&mark.path, levels).to_owned();
            if changed.contains_key(&mark.path) || folder == mark.path {
                continue;
            }
            covered.insert(mark.path.clone());
            covered.remove(&folder);
            enter(&mut changed, FileMark { path: folder, contents: Vec::new(), ..mark })?;
        }
    }
    let mut writes: Vec<Write> = covered.into_iter().map(Write::Unmark).collect();
    for mark in changed.values() {
        number += 1;
        let record = MarkRecord::of(mark, number)
            .map_err(|error| refused(&batch.id, &format!("a mark cannot be written: {error}")))?;
        writes.push(Write::Mark(record));
    }
    Ok(writes)
}

/// The folder so many levels above a path.
fn above(path: &str, levels: usize) -> &str {
    let parent = |path: &str| path.rfind('/').map_or(0, |slash| slash.max(1));
    (0..levels).fold(path, |path, _| path.get(..parent(path)).filter(|above| !above.is_empty()).unwrap_or("/"))
}

/// How many levels up there are at most half as many folders as marks.
fn levels_to_halve(marks: &[FileMark]) -> usize {
    let folders = |levels| marks.iter().map(|mark| above(&mark.path, levels)).collect::<BTreeSet<_>>().len();
    let deepest = marks.iter().map(|mark| mark.path.matches('/').count()).max().unwrap_or(0).max(1);
    (1..deepest).find(|levels| folders(*levels) * 2 <= marks.len()).unwrap_or(deepest)
}

/// The rules of [`longrein_ports::Store::endorse`].
pub(crate) fn endorse(endorsement: &Endorsement) -> Result<Decided<()>, JournalError> {
    let record = EndorsementRecord::of(endorsement)
        .map_err(|error| JournalError::Unusable(format!("an endorsement cannot be written: {error}")))?;
    Ok(((), vec![Write::Endorse(record)]))
}

/// The rules of [`longrein_ports::Store::forget_endorsement`].
pub(crate) fn distrust(rows: &dyn Rows, source: &str) -> Result<Decided<bool>, JournalError> {
    Ok(match rows.endorsement(source)? {
        Some(_) => (true, vec![Write::Distrust(source.to_owned())]),
        None => (false, Vec::new()),
    })
}

fn own_key(present: Option<KeyRow>, run: &RunId, batch: &Prepared, id: &KeyId) -> Result<KeyRow, AppendError> {
    present
        .filter(|row| row.run == *run)
        .ok_or_else(|| refused(&batch.id, &format!("a key of {} is not this run's", id.tool)))
}

/// The rules of [`longrein_ports::Store::purge`]. A damaged run may go: nothing else can be done with it.
pub(crate) fn purge(
    rows: &dyn Rows,
    now: &Now<'_>,
    runs: &[RunId],
    unread: Unread,
    here: &Worker,
) -> Result<Decided<()>, ClaimError> {
    let tombstones: Result<Vec<_>, ClaimError> =
        runs.iter().map(|run| tombstone(rows, now, run, unread, here)).collect();
    Ok(((), tombstones?.into_iter().map(Write::Purge).collect()))
}

fn tombstone(
    rows: &dyn Rows,
    now: &Now<'_>,
    run: &RunId,
    unread: Unread,
    here: &Worker,
) -> Result<RunRecord, ClaimError> {
    let Some(record) = rows.run(run)? else { return Err(ClaimError::NoSuchRun(run.clone())) };
    if is_removed(&record) {
        return Err(ClaimError::Removed(run.clone()));
    }
    if let Some(claim) = rows.claim(run)?
        && let Some(holder) = now.holder(&claim, &here.host, &here.boot)
    {
        return Err(ClaimError::Held(holder));
    }
    // What cannot be read may be anything.
    let is_of_a_person = |input: &InboxRecord| input.input().map_or(true, |input| input.body.is_of_a_person());
    if unread == Unread::Spares && rows.untaken(run)?.iter().any(is_of_a_person) {
        return Err(ClaimError::Unread(run.clone()));
    }
    let at = now.clock.now();
    let row = RunRow {
        parent: None,
        run: run.clone(),
        state: REMOVED.to_owned(),
        reason: String::new(),
        goal: String::new(),
        turns: 0,
        micros: 0,
        started: at,
        updated: at,
        sources: Vec::new(),
    };
    let listing = serde_json::to_vec(&row)
        .map_err(|error| JournalError::Unusable(format!("a tombstone of {run} cannot be written: {error}")))?;
    let tombstone = RunRecord { listing, ..RunRecord::new(run) };
    Ok(tombstone.sealed())
}

/// Whether a run's row is a tombstone.
pub(crate) fn is_removed(record: &RunRecord) -> bool {
    record.head == 0 && record.row().is_some_and(|row| row.state == REMOVED)
}

/// The rules of [`longrein_ports::Journal::post_with`].
pub(crate) fn post(
    rows: &dyn Rows,
    run: &RunId,
    input: &Input,
    blobs: &[(Digest, Bytes)],
) -> Result<Decided<Posted>, ClaimError> {
    if let Some((digest, _)) = blobs.iter().find(|(digest, bytes)| Digest::of(bytes) != *digest) {
        let what = format!("input {} was refused: blob {digest} has another digest", input.id);
        return Err(JournalError::Unusable(what).into());
    }
    let found = rows.run(run)?;
    if found.as_ref().is_some_and(is_removed) {
        return Err(ClaimError::Removed(run.clone()));
    }
    let Some(record) = found.filter(|record| record.head > 0) else {
        return Err(ClaimError::NoSuchRun(run.clone()));
    };
    let mut record = record.checked()?;
    if rows.input(run, &input.id)?.is_some() {
        return Ok((Posted::Duplicate, Vec::new()));
    }
    if record.row().is_some_and(|row| row.state == CANCELLED) && !taken_in_every_state(&input.body) {
        return Ok((Posted::Closed, Vec::new()));
    }
    if rows.untaken(run)?.len() >= INBOX_MAX {
        return Ok((Posted::Full, Vec::new()));
    }
    let unwritable =
        |error| JournalError::Unusable(format!("input {} was refused: it cannot be written: {error}", input.id));
    record.arrivals += 1;
    let stored = InboxRecord {
        run: run.clone(),
        arrival: record.arrivals,
        id: input.id.clone(),
        taken: 0,
        body: serde_json::to_vec(input).map_err(unwritable)?,
        seal: Vec::new(),
    };
    let mut writes: Vec<_> = blobs.iter().map(|(digest, bytes)| Write::Blob(digest.clone(), bytes.clone())).collect();
    writes.extend([Write::Input(stored.sealed()), Write::Arrived(record.sealed())]);
    Ok((Posted::Accepted, writes))
}

/// The state in which a run is closed to messages.
const CANCELLED: &str = "cancelled";

/// Settlements and late outcomes, a child's too (`semantics.md` E2).
fn taken_in_every_state(body: &InputBody) -> bool {
    match body {
        InputBody::Settle(_) | InputBody::LateOutcome(_) | InputBody::ChildEnded(_) => true,
        InputBody::Message(_)
        | InputBody::Approve(_)
        | InputBody::Deny(_)
        | InputBody::Cancel
        | InputBody::Raise(_)
        | InputBody::SwitchModel(_)
        | InputBody::Endorse(_)
        | InputBody::Rollback(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks alone.
    #[derive(Default)]
    struct Marked(BTreeMap<String, MarkRecord>);

    impl Rows for Marked {
        fn run(&self, _: &RunId) -> Result<Option<RunRecord>, JournalError> {
            Ok(None)
        }
        fn claim(&self, _: &RunId) -> Result<Option<ClaimRecord>, JournalError> {
            Ok(None)
        }
        fn rooted(&self) -> Result<Vec<ClaimRecord>, JournalError> {
            Ok(Vec::new())
        }
        fn input(&self, _: &RunId, _: &InputId) -> Result<Option<InboxRecord>, JournalError> {
            Ok(None)
        }
        fn untaken(&self, _: &RunId) -> Result<Vec<InboxRecord>, JournalError> {
            Ok(Vec::new())
        }
        fn key(&self, _: &KeyId) -> Result<Option<KeyRecord>, JournalError> {
            Ok(None)
        }
        fn mark(&self, path: &str) -> Result<Option<MarkRecord>, JournalError> {
            Ok(self.0.get(path).cloned())
        }
        fn marks_made(&self) -> Result<(usize, i64), JournalError> {
            Ok((self.0.len(), self.0.values().map(|record| record.number).max().unwrap_or(0)))
        }
        fn oldest_marks(&self, most: usize) -> Result<Vec<MarkRecord>, JournalError> {
            let mut records: Vec<_> = self.0.values().cloned().collect();
            records.sort_by_key(|record| record.number);
            records.truncate(most);
            Ok(records)
        }
        fn endorsement(&self, _: &str) -> Result<Option<EndorsementRecord>, JournalError> {
            Ok(None)
        }
    }

    #[test]
    fn too_many_marks_become_marks_of_folders_and_none_is_forgotten() {
        let mut rows = Marked::default();
        let paths: Vec<String> = (0..500).map(|n| format!("/w/d{}/e{}/f{n}", n % 7, n % 3)).collect();
        for (n, path) in paths.iter().enumerate() {
            let mark = FileMark {
                path: path.clone(),
                contents: vec![Digest::of(path.as_bytes())],
                root: "/w".to_owned(),
                taint: longrein_core::taint::Taint::default(),
                run: RunId::new("r"),
                action: None,
                at: Timestamp(n as u64),
            };
            let batch = Prepared {
                id: "b".to_owned(),
                expected: Seq(0),
                events: Vec::new(),
                consumed: Vec::new(),
                keys: Vec::new(),
                marks: vec![mark],
                blobs: Vec::new(),
                durability: Durability::Written,
                listing: Vec::new(),
                ends: false,
            };
            for write in enter_marks(&rows, &batch, 40).expect("enters") {
                if let Write::Mark(record) = write {
                    rows.0.insert(record.path.clone(), record);
                } else if let Write::Unmark(path) = write {
                    assert!(rows.0.remove(&path).is_some(), "{path}");
                } else {
                    panic!("{write:?}");
                }
            }
            assert!(rows.0.len() <= 42, "{}", rows.0.len());
            for path in &paths[..=n] {
                let covers = |above: &std::path::Path| {
                    let record = above.to_str().and_then(|above| rows.0.get(above));
                    record.is_some_and(|record| {
                        let mark = record.mark().expect("reads");
                        mark.contents.is_empty() || mark.path == *path
                    })
                };
                assert!(std::path::Path::new(path).ancestors().any(covers), "{path} is forgotten at {n}");
            }
        }
    }

    #[test]
    fn roots_overlap_when_equal_or_nested() {
        for (one, other, overlap) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a/b", "/a", true),
            ("/a", "/ab", false),
            ("/", "/x", true),
            ("/x/y", "/x/z", false),
        ] {
            assert_eq!(roots_overlap(one, other), overlap, "{one} and {other}");
        }
        assert_eq!(tidy_root("/a//"), "/a");
        assert_eq!(tidy_root("/"), "/");
    }
}
