//! Thoughts in fields of a message that their servers want back: `reasoning_content` (DeepSeek, Kimi, GLM and who follows
//! them) and `reasoning_details` (OpenRouter).
//!
//! `reasoning_content` is wanted with the calls it led to, so that the model goes on thinking where it was; beside a reply
//! without calls it is wanted by nobody, and DeepSeek's first reasoner, which knew no calls, refuses it. `reasoning_details`
//! hold signatures and are wanted wherever they came.

use serde_json::{Map, Value};

pub(super) const CONTENT: &str = "reasoning_content";
pub(super) const DETAILS: &str = "reasoning_details";

/// What came of them.
#[derive(Default)]
pub(super) struct Reasoning {
    content: String,
    details: Vec<Value>,
    /// Something else under the name of the first, for the record.
    other: Option<Value>,
}

impl Reasoning {
    /// The next piece of a message, or all of it.
    pub(super) fn take(&mut self, message: &Map<String, Value>) {
        match message.get(CONTENT) {
            Some(Value::String(more)) => self.content.push_str(more),
            Some(Value::Null) | None => {}
            Some(other) => self.other = Some(other.clone()),
        }
        match message.get(DETAILS) {
            Some(Value::Array(pieces)) => pieces.iter().for_each(|piece| self.add(piece)),
            Some(Value::Null) | None => {}
            Some(other) => self.add(other),
        }
    }

    /// The pieces of one detail follow each other, each with its number; put together they are what an unstreamed reply
    /// would have held.
    fn add(&mut self, piece: &Value) {
        if let (Some(Value::Object(last)), Value::Object(more)) = (self.details.last_mut(), piece)
            && let Some(grows) = growing(last)
            && last.get("type") == more.get("type")
            && more.get("index").is_some_and(|index| last.get("index") == Some(index))
        {
            for (key, value) in more.iter().filter(|(_, value)| !value.is_null()) {
                match (last.get_mut(key), value) {
                    (Some(Value::String(text)), Value::String(more)) if key == grows => text.push_str(more),
                    (_, value) => {
                        last.insert(key.clone(), value.clone());
                    }
                }
            }
            return;
        }
        self.details.push(piece.clone());
    }

    /// What goes back with the reply, and what is kept for the record alone.
    pub(super) fn parted(self, has_calls: bool) -> (Option<Map<String, Value>>, Map<String, Value>) {
        let (mut owed, mut kept) = (Map::new(), Map::new());
        if !self.content.is_empty() {
            let place = if has_calls { &mut owed } else { &mut kept };
            place.insert(CONTENT.to_owned(), Value::String(self.content));
        } else if let Some(other) = self.other {
            kept.insert(CONTENT.to_owned(), other);
        }
        if !self.details.is_empty() {
            owed.insert(DETAILS.to_owned(), Value::Array(self.details));
        }
        ((!owed.is_empty()).then_some(owed), kept)
    }
}

/// The field of a detail that comes in pieces. What is encrypted comes whole.
fn growing(detail: &Map<String, Value>) -> Option<&'static str> {
    match detail.get("type").and_then(Value::as_str) {
        Some("reasoning.text") => Some("text"),
        Some("reasoning.summary") => Some("summary"),
        Some(_) | None => None,
    }
}
