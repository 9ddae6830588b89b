//! Tool calls out of their pieces.
//!
//! By the book, a piece says by `index` which call it belongs to, and the first piece brings id and name. Servers leave
//! out the id, the index or both, number from 1, give every call index 0, repeat id and name in every piece, or send the
//! arguments as an object. A call begins only where a piece shows it: an index never makes one by itself.

use std::borrow::Cow;

use longrein_core::outcome::RawCall;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::blocks::Block;
use crate::numbers;
use crate::object::Object;
use crate::reading::{OPEN_MAX, number};

/// Where Gemini's compatible door signs a call, and wants it signed when it comes back.
pub(super) const EXTRA: &str = "extra_content";

/// The calls of a reply, in the order in which they began.
#[derive(Default)]
pub(super) struct Calls(Vec<Slot>);

struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// What its server wants back with it.
    extra: Option<Value>,
    /// How far the arguments are, so that nobody reads them again with every piece.
    object: Object,
}

/// A piece of a call; texts are empty where it has none.
struct Piece<'a> {
    index: Option<u64>,
    id: Cow<'a, str>,
    name: &'a str,
    arguments: String,
    extra: Option<&'a Value>,
}

impl Calls {
    /// The pieces in one delta.
    pub(super) fn take_deltas(&mut self, delta: &Value) {
        for piece in pieces(delta) {
            self.add(piece);
        }
    }

    /// The calls of a whole message: each entry is one.
    pub(super) fn take_whole(&mut self, message: &Value) {
        for piece in pieces(message) {
            self.begin(piece);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_raw(self) -> Vec<RawCall> {
        self.0.into_iter().map(|slot| RawCall { id: slot.id, name: slot.name, arguments: slot.arguments }).collect()
    }

    /// The calls, each with what stands beside it and is wanted back.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.0.into_iter().map(|slot| {
            let with = slot.extra.map(|extra| (EXTRA.to_owned(), extra)).into_iter().collect::<Map<_, _>>();
            let call = RawCall { id: slot.id, name: slot.name, arguments: slot.arguments };
            Block::Call { call, with }
        })
    }

    fn add(&mut self, piece: Piece<'_>) {
        match self.0.iter_mut().rev().take(OPEN_MAX).find(|slot| slot.may_own(&piece)) {
            Some(slot) if !slot.is_followed_by(&piece) => slot.grow(piece),
            Some(_) => self.begin(piece),
            None => match self.0.last_mut() {
                // An index that nothing began: more of what came last.
                Some(last) if piece.name.is_empty() => last.grow(piece),
                Some(_) | None => self.begin(piece),
            },
        }
    }

    fn begin(&mut self, piece: Piece<'_>) {
        // An index alone shows no call.
        if piece.id.is_empty() && piece.name.is_empty() && piece.arguments.is_empty() {
            return;
        }
        let mut object = Object::default();
        object.feed(piece.arguments.as_bytes());
        self.0.push(Slot {
            index: piece.index,
            id: piece.id.into_owned(),
            name: piece.name.to_owned(),
            arguments: piece.arguments,
            extra: piece.extra.cloned(),
            object,
        });
    }
}

impl Slot {
    /// By index; without one by id; without either it is the last call.
    fn may_own(&self, piece: &Piece<'_>) -> bool {
        match piece.index {
            Some(_) => self.index == piece.index,
            // An id without a name that no call has is a server's whim: ids that change from piece to piece.
            None => piece.id.is_empty() || piece.name.is_empty() || self.id == piece.id,
        }
    }

    /// Whether the piece begins another call, although this one is where it seems to belong.
    fn is_followed_by(&self, piece: &Piece<'_>) -> bool {
        if piece.name.is_empty() {
            return false;
        }
        if !piece.id.is_empty() && !self.id.is_empty() && piece.id != self.id {
            return true;
        }
        let same = piece.id == self.id && piece.name == self.name;
        // The call named once more, or sent again as a whole.
        if same && (piece.arguments.is_empty() || (piece.arguments == self.arguments && !piece.id.is_empty())) {
            return false;
        }
        if self.arguments.is_empty() {
            // By index, this may be more of the name; with neither index nor id it is the next call.
            return piece.index.is_none() && piece.id.is_empty() && !self.name.is_empty();
        }
        self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.object.is_closed() && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn grow(&mut self, piece: Piece<'_>) {
        if let Some(extra) = piece.extra {
            self.extra = Some(extra.clone());
        }
        if self.id.is_empty() {
            self.id = piece.id.into_owned();
        }
        let again = piece.name == self.name;
        if again && !piece.name.is_empty() && piece.arguments == self.arguments && self.is_whole() {
            return;
        }
        if !again && self.arguments.is_empty() {
            self.name.push_str(piece.name);
        }
        self.object.feed(piece.arguments.as_bytes());
        self.arguments.push_str(&piece.arguments);
    }
}

fn pieces<'a>(message: &'a Value) -> Vec<Piece<'a>> {
    // One call alone may stand without its list.
    let listed = message.get("tool_calls").map_or(&[] as &[Value], |calls| match calls {
        Value::Array(list) => list,
        one @ Value::Object(_) => std::slice::from_ref(one),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => &[],
    });
    let inner = |call: &'a Value| call.get("function").or_else(|| call.get("custom")).unwrap_or(call);
    let mut pieces: Vec<_> = listed.iter().map(|call| Piece::of(call, inner(call))).collect();
    if pieces.is_empty() {
        // The older form: one call, without id and index.
        let legacy = message.get("function_call").filter(|call| call.is_object());
        pieces.extend(legacy.map(|call| Piece::of(call, call)));
    }
    pieces
}

impl<'a> Piece<'a> {
    fn of(call: &'a Value, function: &'a Value) -> Self {
        let text = |value: &'a Value, key| value.get(key).and_then(Value::as_str).unwrap_or_default();
        Self {
            index: call.get("index").and_then(number),
            id: match call.get("id") {
                Some(Value::Number(number)) => number.to_string().into(),
                Some(_) | None => text(call, "id").into(),
            },
            name: text(function, "name"),
            extra: call.get(EXTRA).filter(|extra| extra.is_object()),
            // The second is a custom tool's.
            arguments: match function.get("arguments").or_else(|| function.get("input")) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other @ (Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_))) => {
                    numbers::written(other)
                }
            },
        }
    }
}
