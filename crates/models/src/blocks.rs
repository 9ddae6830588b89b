//! The blocks of a reply, from providers that answer in blocks: what people and core see of them, and what only the
//! provider understands and wants back as it came.

use longrein_core::outcome::{RawCall, WireBlock, Wired};
use longrein_core::payload::Payload;
use longrein_core::prompt::WireCall;
use serde_json::{Map, Value};

use crate::beside::Beside;
use crate::numbers;

/// One block of a reply.
pub(crate) enum Block {
    /// Words, with fields that stand beside them.
    Text { text: String, with: Map<String, Value> },
    /// A call, with fields that stand beside it.
    Call { call: RawCall, with: Map<String, Value> },
    /// Anything else.
    Opaque(Value),
    /// For the record alone.
    Aside(Value),
}

/// Blocks in their order.
#[derive(Default)]
pub(crate) struct Blocks {
    text: String,
    calls: Vec<RawCall>,
    wire: Vec<WireBlock>,
}

impl Blocks {
    pub(crate) fn push(&mut self, block: Block) {
        let (plain, with) = match block {
            Block::Text { text, with } => {
                self.text.push_str(&text);
                // A reply is at most 16 MiB.
                (WireBlock::Text(u32::try_from(text.len()).unwrap_or(u32::MAX)), with)
            }
            Block::Call { call, with } => {
                self.calls.push(call);
                (WireBlock::Call, with)
            }
            Block::Opaque(value) => {
                self.wire.push(WireBlock::Opaque(json(&value)));
                return;
            }
            Block::Aside(value) => {
                self.wire.push(WireBlock::Aside(json(&value)));
                return;
            }
        };
        if !with.is_empty() {
            self.wire.push(WireBlock::With(json(&Value::Object(with))));
        }
        self.wire.push(plain);
    }

    /// What came beside all of it, if anything did.
    pub(crate) fn extend_aside(&mut self, beside: Beside) {
        if let Some(value) = beside.into_value() {
            self.push(Block::Aside(value));
        }
    }

    /// Whether the model said nothing: what is for the record does not count.
    pub(crate) fn is_empty(&self) -> bool {
        self.wire.iter().all(|block| matches!(block, WireBlock::Aside(_)))
    }

    /// Text, calls, and the blocks if there is something in them that only the provider understands. Whose they are is
    /// filled in by the client, which knows its name.
    pub(crate) fn into_parts(self) -> (String, Vec<RawCall>, Option<Wired>) {
        let own = self.wire.iter().any(|block| !matches!(block, WireBlock::Text(_) | WireBlock::Call));
        let wired = own.then(|| Wired { model: String::new(), blocks: self.wire });
        (self.text, self.calls, wired)
    }
}

/// Blocks that do not make up this text and these calls cannot be sent back for them: they stay for the record.
pub(crate) fn fitting(wired: Option<Wired>, text: &str, calls: usize) -> Option<Wired> {
    let wired = wired?;
    if wired.covers(text, calls) {
        return Some(wired);
    }
    let aside = |block| match block {
        WireBlock::Opaque(json) | WireBlock::With(json) | WireBlock::Aside(json) => Some(WireBlock::Aside(json)),
        WireBlock::Text(_) | WireBlock::Call => None,
    };
    let blocks: Vec<_> = wired.blocks.into_iter().filter_map(aside).collect();
    (!blocks.is_empty()).then_some(Wired { model: wired.model, blocks })
}

fn json(value: &Value) -> Payload {
    numbers::payload(value)
}

/// A block of a reply that is sent back.
pub(crate) enum Said<'a> {
    Text { text: &'a str, with: Option<&'a Payload> },
    Call { call: &'a WireCall, with: Option<&'a Payload> },
    Opaque(&'a Payload),
}

/// A reply as its blocks: those it came in, if `model` made it, else its text and then its calls.
pub(crate) fn said<'a>(model: &str, text: &'a str, calls: &'a [WireCall], wired: Option<&'a Wired>) -> Vec<Said<'a>> {
    let Some(wired) = wired.filter(|wired| wired.model == model && wired.covers(text, calls.len())) else {
        let words = (!text.is_empty()).then_some(Said::Text { text, with: None });
        return words.into_iter().chain(calls.iter().map(|call| Said::Call { call, with: None })).collect();
    };
    let (mut at, mut calls, mut beside) = (0, calls.iter(), None);
    let mut said = Vec::with_capacity(wired.blocks.len());
    for block in &wired.blocks {
        match block {
            WireBlock::With(fields) => beside = Some(fields),
            WireBlock::Opaque(json) => said.push(Said::Opaque(json)),
            WireBlock::Aside(_) => {}
            WireBlock::Text(bytes) => {
                let end = at + *bytes as usize;
                said.push(Said::Text { text: &text[at..end], with: beside.take() });
                at = end;
            }
            WireBlock::Call => {
                said.extend(calls.next().map(|call| Said::Call { call, with: beside.take() }));
            }
        }
    }
    said
}

/// Writes the fields of an object behind others, each with a comma before it.
pub(crate) fn beside(with: Option<&Payload>, out: &mut Vec<u8>) {
    let fields = with.map(|fields| fields.as_str().trim()).and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
    if let Some(fields) = fields.map(str::trim).filter(|fields| !fields.is_empty()) {
        out.push(b',');
        out.extend_from_slice(fields.as_bytes());
    }
}

/// An id that every provider takes: letters, digits, `_` and `-`, at most 64 of them. Another one is replaced by its
/// digest, the same wherever it stands.
pub(crate) fn safe_id(id: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&id.len()) && id.bytes().all(is_plain) {
        return id.into();
    }
    format!("call_{}", &blake3::hash(id.as_bytes()).to_hex()[..24]).into()
}
