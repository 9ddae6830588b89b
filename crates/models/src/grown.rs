//! A request body that grows with the conversation: what was encoded for an earlier prompt is kept, so that a longer one
//! costs its new items and one copy. The result is the same as that of starting afresh.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_core::prompt::{Item, Prompt};
use longrein_ports::Encoded;

/// How a wire spells a prompt: fixed fields and a list that is still open, then one element per item, then what closes
/// the list and everything that varies from call to call.
pub(crate) trait Spelling {
    /// Everything before the first item. True in the result: the list already has an element.
    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> List;
    /// One item, without a comma before it.
    fn item(&self, item: &Item, out: &mut Vec<u8>);
    /// Everything after the last item.
    fn foot(&self, prompt: &Prompt, list: List, out: &mut Vec<u8>);
}

/// Whether the list has elements, so that the next one is preceded by a comma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Empty,
    Begun,
}

impl List {
    /// Writes the comma that goes before another element, if any.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) {
        match self {
            List::Begun => out.push(b','),
            List::Empty => *self = List::Begun,
        }
    }
}

/// The memory of one encoder.
#[derive(Default)]
pub(crate) struct Grown(Mutex<Option<Kept>>);

struct Kept {
    head: Vec<u8>,
    items: Vec<Arc<Item>>,
    /// Head and items as encoded.
    bytes: Vec<u8>,
    /// Over `bytes`.
    hasher: blake3::Hasher,
    list: List,
}

impl Grown {
    pub(crate) fn encode(&self, spelling: &impl Spelling, prompt: &Prompt) -> Encoded {
        // A panic while the lock was held left the memory empty: it is taken out before anything is changed.
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut head = Vec::new();
        let list = spelling.head(prompt, &mut head);
        let mut kept = slot.take().filter(|kept| kept.begins(&head, &prompt.items)).unwrap_or_else(|| Kept {
            hasher: hash_of(&head),
            bytes: head.clone(),
            head,
            items: Vec::new(),
            list,
        });
        kept.extend(spelling, &prompt.items);
        let mut foot = Vec::new();
        spelling.foot(prompt, kept.list, &mut foot);
        let mut body = Vec::with_capacity(kept.bytes.len() + foot.len());
        body.extend_from_slice(&kept.bytes);
        body.extend_from_slice(&foot);
        let digest = kept.hasher.clone().update(&foot).finalize().to_hex().to_string();
        *slot = Some(kept);
        Encoded { bytes: Bytes::from(body), digest: Digest::new(digest), position: prompt.position }
    }
}

impl Kept {
    /// Whether a prompt with this head and these items starts with what is kept. Items are shared between prompts, so the
    /// comparison is nearly always one of addresses.
    fn begins(&self, head: &[u8], items: &[Arc<Item>]) -> bool {
        self.items.len() <= items.len()
            && self.head == head
            && self.items.iter().zip(items).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs) || ours == theirs)
    }

    fn extend(&mut self, spelling: &impl Spelling, items: &[Arc<Item>]) {
        let from = self.bytes.len();
        for item in &items[self.items.len()..] {
            self.list.next(&mut self.bytes);
            spelling.item(item, &mut self.bytes);
            self.items.push(Arc::clone(item));
        }
        self.hasher.update(&self.bytes[from..]);
    }
}

fn hash_of(bytes: &[u8]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    hasher
}

/// Writes `value` as JSON. Strings, numbers and payloads always serialise.
pub(crate) fn json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts and payloads always serialise into memory");
}
