//! The one encoding every backend stores: how an event becomes bytes, how records are sealed, and how bytes become what
//! a reader is shown. A record that fails its seal or cannot be decoded is shown as damaged; none is ever left out.
//!
//! Read [`StoredEvent`] first. Its fields are as loose as a damaged file can make them (signed numbers, bytes instead of
//! text), so that whatever is found on disk can be carried to the check that judges it.

use longrein_core::event::{Event, EventKind};
use longrein_core::ids::{Fence, InputId, RunId, Seq};
use longrein_core::input::Input;
use longrein_core::time::Timestamp;
use longrein_ports::{Endorsement, FileMark, JournalError, KeyId, KeyRow, Recorded, RecordedBody, RunRow, Worker};

/// An event as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: i64,
    /// Milliseconds since 1970.
    pub at: i64,
    pub kind: Vec<u8>,
    pub kind_version: i64,
    pub must_understand: i64,
    /// JSON of the event.
    pub body: Vec<u8>,
    /// Over all of the above and the checksum of the event before.
    pub checksum: Vec<u8>,
}

impl StoredEvent {
    /// Numbers and seals a body that follows the event with checksum `previous`.
    pub fn seal(previous: &[u8], seq: i64, body: &EncodedBody) -> Self {
        let mut event = Self {
            seq,
            at: body.at,
            kind: body.kind.as_bytes().to_vec(),
            kind_version: i64::from(body.kind_version),
            must_understand: i64::from(body.must_understand),
            body: body.json.clone(),
            checksum: Vec::new(),
        };
        event.checksum = event.checksum_after(previous);
        event
    }

    /// The checksum this event must carry if it follows `previous`.
    pub fn checksum_after(&self, previous: &[u8]) -> Vec<u8> {
        seal(
            "event",
            &[
                Field::Bytes(previous),
                Field::Int(self.seq),
                Field::Int(self.at),
                Field::Bytes(&self.kind),
                Field::Int(self.kind_version),
                Field::Int(self.must_understand),
                Field::Bytes(&self.body),
            ],
        )
    }

    /// Checks the chain and decodes. `previous` is the stored checksum of the event before; None: there is none to be
    /// found, so nothing vouches for this one.
    pub fn read(&self, previous: Option<&[u8]>) -> Recorded {
        let body = match previous {
            None => RecordedBody::Damaged { what: "the event before it is missing".to_owned() },
            Some(previous) if self.checksum != self.checksum_after(previous) => {
                RecordedBody::Damaged { what: "its checksum does not match".to_owned() }
            }
            Some(_) => self.decode(),
        };
        Recorded { seq: Seq(self.seq.cast_unsigned()), at: Timestamp(self.at.cast_unsigned()), body }
    }

    fn decode(&self) -> RecordedBody {
        let name = String::from_utf8_lossy(&self.kind);
        let Some(kind) = EventKind::from_name(&name) else { return self.unknown(&name) };
        if self.kind_version > i64::from(EventKind::VERSION) {
            return self.unknown(&name);
        }
        match serde_json::from_slice::<Event>(&self.body) {
            Ok(event) if event.kind() == kind => RecordedBody::Known(event),
            Ok(event) => RecordedBody::Damaged { what: format!("a {kind} that holds a {}", event.kind()) },
            Err(error) => RecordedBody::Damaged { what: format!("a {kind} that cannot be read: {error}") },
        }
    }

    fn unknown(&self, name: &str) -> RecordedBody {
        RecordedBody::Unknown {
            kind: name.to_owned(),
            must_understand: self.must_understand != 0,
            body: String::from_utf8_lossy(&self.body).into_owned(),
        }
    }
}

/// What stands in the place of the first event's predecessor. Bound to the run, so that events cannot change runs.
pub fn genesis(run: &RunId) -> Vec<u8> {
    seal("run", &[Field::Bytes(run.as_str().as_bytes())])
}

/// The body of an event on its way in, with the envelope fields that do not depend on its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedBody {
    pub at: i64,
    pub kind: String,
    pub kind_version: u32,
    pub must_understand: bool,
    pub json: Vec<u8>,
}

impl EncodedBody {
    /// Fails only for what serde cannot write as JSON.
    pub fn of(at: Timestamp, event: &Event) -> Result<Self, serde_json::Error> {
        let kind = event.kind();
        Ok(Self {
            at: at.0.cast_signed(),
            kind: kind.as_str().to_owned(),
            kind_version: EventKind::VERSION,
            must_understand: kind.must_understand(),
            json: serde_json::to_vec(event)?,
        })
    }
}

/// Turns stored events into what a reader is shown: checks the chain, and says in place where numbers are missing.
///
/// `previous`: the stored checksum of event `after`, or the genesis; None: that event is missing. `head`: the last number
/// there must be, if the range asked for reaches to the end.
pub fn read_chain(previous: Option<Vec<u8>>, after: i64, events: &[StoredEvent], head: Option<i64>) -> Vec<Recorded> {
    let mut shown = Vec::with_capacity(events.len());
    let mut last = after;
    let mut at = Timestamp(0);
    let mut previous = previous;
    for event in events {
        if event.seq > last.saturating_add(1) {
            shown.push(missing(last + 1, event.seq - 1, at));
            previous = None;
        }
        let recorded = event.read(previous.as_deref());
        at = recorded.at;
        shown.push(recorded);
        last = event.seq;
        previous = Some(event.checksum.clone());
    }
    if let Some(head) = head.filter(|head| *head > last) {
        shown.push(missing(last + 1, head, at));
    }
    shown
}

/// One record for a gap, under the last missing number, so that a reader that goes on behind it skips nothing.
fn missing(from: i64, to: i64, at: Timestamp) -> Recorded {
    let what =
        if from == to { format!("event {from} is missing") } else { format!("events {from} to {to} are missing") };
    Recorded { seq: Seq(to.cast_unsigned()), at, body: RecordedBody::Damaged { what } }
}

/// One field under a seal.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    Bytes(&'a [u8]),
    Int(i64),
    Null,
}

/// BLAKE3 over a record's fields, each preceded by its type and length, so that no two records collide by concatenation.
pub fn seal(record: &str, fields: &[Field<'_>]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = |tag: u8, bytes: &[u8]| {
        hasher.update(&[tag]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    bytes(b'r', record.as_bytes());
    for field in fields {
        match field {
            Field::Bytes(value) => bytes(b'b', value),
            Field::Int(value) => bytes(b'i', &value.to_le_bytes()),
            Field::Null => bytes(b'n', &[]),
        }
    }
    hasher.finalize().as_bytes().to_vec()
}

/// A record with a seal over all its other columns.
pub trait Sealed {
    /// The run to name in errors.
    fn owner(&self) -> RunId;
    /// `run`, `claim`, `inbox i1`, …
    fn name(&self) -> String;
    fn seal_now(&self) -> Vec<u8>;
    fn seal_stored(&self) -> &[u8];

    /// None: whole. Else what is wrong with it.
    fn fault(&self) -> Option<String> {
        (self.seal_stored() != self.seal_now()).then(|| "its checksum does not match".to_owned())
    }

    /// The record itself, if it is whole.
    fn checked(self) -> Result<Self, JournalError>
    where
        Self: Sized,
    {
        match self.fault() {
            None => Ok(self),
            Some(fault) => Err(JournalError::Corrupt { run: self.owner(), record: self.name(), fault }),
        }
    }
}

/// The head of a run, and how listings show it. Changes with every append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    pub run: RunId,
    /// Number of the last event; 0 before the first.
    pub head: i64,
    /// Checksum of the last event; the genesis before the first.
    pub chain: Vec<u8>,
    /// Time of the last event.
    pub at: i64,
    /// Id of the last batch; empty before the first.
    pub batch: String,
    /// Number of the last input that arrived.
    pub arrivals: i64,
    /// JSON of the [`RunRow`]; empty before the first event.
    pub listing: Vec<u8>,
    pub seal: Vec<u8>,
}

impl RunRecord {
    pub fn new(run: &RunId) -> Self {
        let record = Self {
            run: run.clone(),
            head: 0,
            chain: genesis(run),
            at: 0,
            batch: String::new(),
            arrivals: 0,
            listing: Vec::new(),
            seal: Vec::new(),
        };
        record.sealed()
    }

    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.seal = self.seal_now();
        self
    }

    /// The listing row. A damaged one is still a row, so that a listing hides no run. None: no event yet.
    pub fn row(&self) -> Option<RunRow> {
        if self.head == 0 && self.listing.is_empty() && self.fault().is_none() {
            return None;
        }
        let decoded = match self.fault() {
            None => serde_json::from_slice::<RunRow>(&self.listing).map_err(|error| error.to_string()),
            Some(fault) => Err(fault),
        };
        Some(decoded.unwrap_or_else(|fault| RunRow {
            parent: None,
            run: self.run.clone(),
            state: "damaged".to_owned(),
            reason: fault,
            goal: String::new(),
            turns: 0,
            micros: 0,
            started: Timestamp(0),
            updated: Timestamp(self.at.max(0).cast_unsigned()),
            sources: Vec::new(),
        }))
    }
}

impl Sealed for RunRecord {
    fn owner(&self) -> RunId {
        self.run.clone()
    }
    fn name(&self) -> String {
        "run".to_owned()
    }
    fn seal_now(&self) -> Vec<u8> {
        seal(
            "run row",
            &[
                Field::Bytes(self.run.as_str().as_bytes()),
                Field::Int(self.head),
                Field::Bytes(&self.chain),
                Field::Int(self.at),
                Field::Bytes(self.batch.as_bytes()),
                Field::Int(self.arrivals),
                Field::Bytes(&self.listing),
            ],
        )
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}

/// Who holds a run, or held it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRecord {
    pub run: RunId,
    pub fence: i64,
    pub host: String,
    pub boot: String,
    pub pid: i64,
    pub pid_start: i64,
    /// End of the lease in microseconds of the holder's boot time.
    pub until: i64,
    /// The same in milliseconds since 1970, for other hosts.
    pub until_wall: i64,
    /// 0: held; 1: given up.
    pub released: i64,
    /// The workspace it writes.
    pub root: Option<String>,
    pub seal: Vec<u8>,
}

impl ClaimRecord {
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.seal = self.seal_now();
        self
    }

    pub fn fence(&self) -> Fence {
        Fence(self.fence.cast_unsigned())
    }

    pub fn worker(&self) -> Worker {
        Worker {
            host: self.host.clone(),
            boot: self.boot.clone(),
            pid: u32::try_from(self.pid).unwrap_or(0),
            pid_start: self.pid_start.cast_unsigned(),
        }
    }
}

impl Sealed for ClaimRecord {
    fn owner(&self) -> RunId {
        self.run.clone()
    }
    fn name(&self) -> String {
        "claim".to_owned()
    }
    fn seal_now(&self) -> Vec<u8> {
        seal(
            "claim",
            &[
                Field::Bytes(self.run.as_str().as_bytes()),
                Field::Int(self.fence),
                Field::Bytes(self.host.as_bytes()),
                Field::Bytes(self.boot.as_bytes()),
                Field::Int(self.pid),
                Field::Int(self.pid_start),
                Field::Int(self.until),
                Field::Int(self.until_wall),
                Field::Int(self.released),
                self.root.as_ref().map_or(Field::Null, |root| Field::Bytes(root.as_bytes())),
            ],
        )
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}

/// An input in a run's inbox. Kept after it was taken, so that a repetition is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    pub run: RunId,
    /// Counted from 1 per run.
    pub arrival: i64,
    pub id: InputId,
    /// Number of the last event of the batch that took it; 0: not taken yet.
    pub taken: i64,
    /// JSON of the [`Input`].
    pub body: Vec<u8>,
    pub seal: Vec<u8>,
}

impl InboxRecord {
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.seal = self.seal_now();
        self
    }

    pub fn input(&self) -> Result<Input, JournalError> {
        serde_json::from_slice(&self.body).map_err(|error| JournalError::Corrupt {
            run: self.run.clone(),
            record: self.name(),
            fault: format!("cannot be read: {error}"),
        })
    }
}

impl Sealed for InboxRecord {
    fn owner(&self) -> RunId {
        self.run.clone()
    }
    fn name(&self) -> String {
        format!("inbox {}", self.id)
    }
    fn seal_now(&self) -> Vec<u8> {
        seal(
            "inbox",
            &[
                Field::Bytes(self.run.as_str().as_bytes()),
                Field::Int(self.arrival),
                Field::Bytes(self.id.as_str().as_bytes()),
                Field::Int(self.taken),
                Field::Bytes(&self.body),
            ],
        )
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}

/// A business key. The columns beside the body are for look-up and repeat what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub scope: String,
    pub tool: String,
    pub digest: String,
    /// Who took it last.
    pub run: RunId,
    /// JSON of the [`KeyRow`].
    pub body: Vec<u8>,
    pub seal: Vec<u8>,
}

impl KeyRecord {
    /// Fails only for what serde cannot write as JSON.
    pub fn of(row: &KeyRow) -> Result<Self, serde_json::Error> {
        let mut record = Self {
            scope: row.id.scope.clone(),
            tool: row.id.tool.to_string(),
            digest: row.id.digest.to_string(),
            run: row.run.clone(),
            body: serde_json::to_vec(row)?,
            seal: Vec::new(),
        };
        record.seal = record.seal_now();
        Ok(record)
    }

    pub fn row(&self) -> Result<KeyRow, JournalError> {
        let row: KeyRow =
            serde_json::from_slice(&self.body).map_err(|error| self.corrupt(format!("cannot be read: {error}")))?;
        if self.is_about(&row.id) && row.run == self.run {
            Ok(row)
        } else {
            Err(self.corrupt("its columns and its body differ".to_owned()))
        }
    }

    pub fn is_about(&self, id: &KeyId) -> bool {
        self.scope == id.scope && self.tool == id.tool.as_str() && self.digest == id.digest.as_str()
    }

    fn corrupt(&self, fault: String) -> JournalError {
        JournalError::Corrupt { run: self.run.clone(), record: self.name(), fault }
    }
}

impl Sealed for KeyRecord {
    fn owner(&self) -> RunId {
        self.run.clone()
    }
    fn name(&self) -> String {
        format!("key {}/{}/{}", self.scope, self.tool, self.digest)
    }
    fn seal_now(&self) -> Vec<u8> {
        seal(
            "key",
            &[
                Field::Bytes(self.scope.as_bytes()),
                Field::Bytes(self.tool.as_bytes()),
                Field::Bytes(self.digest.as_bytes()),
                Field::Bytes(self.run.as_str().as_bytes()),
                Field::Bytes(&self.body),
            ],
        )
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}

/// A tainted file. The columns beside the body are for look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkRecord {
    pub path: String,
    /// Counted over all marks of the store; a change gets the next one.
    pub number: i64,
    /// JSON of the [`FileMark`].
    pub body: Vec<u8>,
    pub seal: Vec<u8>,
}

impl MarkRecord {
    /// Fails only for what serde cannot write as JSON.
    pub fn of(mark: &FileMark, number: i64) -> Result<Self, serde_json::Error> {
        let (path, body) = (mark.path.clone(), serde_json::to_vec(mark)?);
        let mut record = Self { path, number, body, seal: Vec::new() };
        record.seal = record.seal_now();
        Ok(record)
    }

    pub fn mark(&self) -> Result<FileMark, JournalError> {
        let corrupt = |fault: String| JournalError::Corrupt { run: self.owner(), record: self.name(), fault };
        let mark: FileMark =
            serde_json::from_slice(&self.body).map_err(|error| corrupt(format!("cannot be read: {error}")))?;
        if mark.path == self.path { Ok(mark) } else { Err(corrupt("its columns and its body differ".to_owned())) }
    }
}

impl Sealed for MarkRecord {
    fn owner(&self) -> RunId {
        let mark = serde_json::from_slice::<FileMark>(&self.body);
        mark.map_or_else(|_| RunId::new(String::new()), |mark| mark.run)
    }
    fn name(&self) -> String {
        format!("mark {}", self.path)
    }
    fn seal_now(&self) -> Vec<u8> {
        seal("mark", &[Field::Bytes(self.path.as_bytes()), Field::Int(self.number), Field::Bytes(&self.body)])
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}

/// A source that a person trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndorsementRecord {
    pub source: String,
    /// JSON of the [`Endorsement`].
    pub body: Vec<u8>,
    pub seal: Vec<u8>,
}

impl EndorsementRecord {
    /// Fails only for what serde cannot write as JSON.
    pub fn of(endorsement: &Endorsement) -> Result<Self, serde_json::Error> {
        let (source, body) = (endorsement.source.clone(), serde_json::to_vec(endorsement)?);
        let mut record = Self { source, body, seal: Vec::new() };
        record.seal = record.seal_now();
        Ok(record)
    }

    pub fn endorsement(&self) -> Result<Endorsement, JournalError> {
        let corrupt = |fault: String| JournalError::Corrupt { run: self.owner(), record: self.name(), fault };
        let read: Endorsement =
            serde_json::from_slice(&self.body).map_err(|error| corrupt(format!("cannot be read: {error}")))?;
        if read.source == self.source { Ok(read) } else { Err(corrupt("its columns and its body differ".to_owned())) }
    }
}

impl Sealed for EndorsementRecord {
    /// It is of no run.
    fn owner(&self) -> RunId {
        RunId::new(String::new())
    }
    fn name(&self) -> String {
        format!("endorsement of {}", self.source)
    }
    fn seal_now(&self) -> Vec<u8> {
        seal("endorsement", &[Field::Bytes(self.source.as_bytes()), Field::Bytes(&self.body)])
    }
    fn seal_stored(&self) -> &[u8] {
        &self.seal
    }
}
