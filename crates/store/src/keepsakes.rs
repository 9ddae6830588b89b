//! How snapshots and small values lie in the cabinet: sealed, so that a damaged one is nothing at all, and snapshots bound to
//! the journal they were made of. One encoding for every backend.

use bytes::Bytes;
use longrein_core::ids::{RunId, Seq};
use longrein_ports::{JournalError, Snapshot, VALUE_MAX_BYTES};

use crate::encoding::{Field, seal};

/// Bytes of a seal.
const SEAL: usize = 32;

/// A snapshot as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptSnapshot {
    pub(crate) snapshot: Snapshot,
    /// Checksum of the event it was made after: it vouches for all before.
    pub(crate) chain: Vec<u8>,
}

impl KeptSnapshot {
    pub(crate) fn encode(&self, run: &RunId) -> Vec<u8> {
        let Snapshot { seq, catalogue, body } = &self.snapshot;
        let mut bytes = of_snapshot(run, *seq, &self.chain, catalogue, body);
        for part in [&self.chain, catalogue.as_bytes()] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(body.iter());
        bytes
    }

    /// None: damaged.
    pub(crate) fn decode(run: &RunId, seq: Seq, bytes: &Bytes) -> Option<Self> {
        let stored = bytes.get(..SEAL)?;
        let mut at = SEAL;
        let mut part = || {
            let length = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
            let start = at + 8;
            at = start.checked_add(usize::try_from(length).ok()?)?;
            bytes.get(start..at)
        };
        let chain = part()?.to_vec();
        let catalogue = String::from_utf8(part()?.to_vec()).ok()?;
        let body = bytes.slice(at..);
        (stored == of_snapshot(run, seq, &chain, &catalogue, &body))
            .then(|| Self { snapshot: Snapshot { seq, catalogue, body }, chain })
    }
}

fn of_snapshot(run: &RunId, seq: Seq, chain: &[u8], catalogue: &str, body: &[u8]) -> Vec<u8> {
    seal(
        "snapshot",
        &[
            Field::Bytes(run.as_str().as_bytes()),
            Field::Int(seq.0.cast_signed()),
            Field::Bytes(chain),
            Field::Bytes(catalogue.as_bytes()),
            Field::Bytes(body),
        ],
    )
}

pub(crate) fn encode_value(key: &str, value: &[u8]) -> Result<Vec<u8>, JournalError> {
    if value.len() > VALUE_MAX_BYTES {
        return Err(JournalError::Unusable(format!(
            "{} bytes under \"{}\" are too many to keep: at most {VALUE_MAX_BYTES}",
            value.len(),
            key.escape_debug()
        )));
    }
    let mut bytes = of_value(key, value);
    bytes.extend(value);
    Ok(bytes)
}

/// None: damaged, or another key's.
pub(crate) fn decode_value(key: &str, bytes: &Bytes) -> Option<Bytes> {
    let stored = bytes.get(..SEAL)?;
    let value = bytes.slice(SEAL..);
    (stored == of_value(key, &value)).then_some(value)
}

fn of_value(key: &str, value: &[u8]) -> Vec<u8> {
    seal("value", &[Field::Bytes(key.as_bytes()), Field::Bytes(value)])
}

/// Why a snapshot cannot be kept.
pub(crate) fn no_such_event(run: &RunId, seq: Seq) -> JournalError {
    JournalError::Unusable(format!("run {run} has no event {seq} to keep a snapshot of"))
}
