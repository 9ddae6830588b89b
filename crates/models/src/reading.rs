//! What the decoders of all wires share: how a response is read, a piece at a time and without I/O.

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein_core::payload::Payload;
use serde_json::Value;

use crate::failure::broken;
use crate::telling::Saying;

/// The most bytes of one response.
pub const REPLY_MAX_BYTES: usize = 16 * 1024 * 1024;

/// One response on its way in.
pub trait Reading: Default + Send {
    /// Takes the next bytes, wherever they were cut.
    fn feed(&mut self, bytes: &[u8]) -> Progress;

    /// What the reply has said since this was last asked, as far as it came in pieces.
    fn said(&mut self) -> Vec<Saying>;

    /// What the whole response comes to.
    fn end(self, end: End) -> Result<Reply, ModelFailure>;
}

/// What is still to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Reading,
    /// The model said why it stopped; usage or the end may follow.
    Stopped,
    /// Nothing that matters can follow.
    Complete,
    /// It failed: read no further.
    Failed,
}

/// How the response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// As HTTP says a response ends.
    Closed,
    /// It broke off, or we gave up waiting: why, for people.
    Broken(String),
}

/// More tokens than any model takes or gives in one call: a hundred million.
pub(crate) const TOKENS_MAX: u64 = 100_000_000;

/// A count of tokens, if it can be one. Some gateways count in floats; what no model can have counted was not counted.
pub(crate) fn count(value: &Value) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and NaN gives 0")]
    let counted = || value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64);
    number(value).or_else(counted).filter(|count| *count <= TOKENS_MAX)
}

/// What stands under these keys, each inside the one before. A JSON pointer would be taken to pieces with every event.
pub(crate) fn inside<'a, const N: usize>(value: &'a Value, keys: [&str; N]) -> Option<&'a Value> {
    keys.into_iter().try_fold(value, |value, key| value.get(key))
}

/// A whole number. Some gateways write them as strings.
pub(crate) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// How far back is looked for what a piece of a reply belongs to. No reply has so many open at a time, and a flood of them is
/// not to cost more with every one.
pub(crate) const OPEN_MAX: usize = 256;

pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub(crate) fn malformed(message: impl Into<String>) -> ModelFailure {
    broken(ModelErrorClass::Malformed, Billing::Perhaps, message)
}

/// A failure with what had arrived of the reply before it.
pub(crate) fn spoilt(
    mut failure: ModelFailure,
    text: String,
    calls: Vec<RawCall>,
    usage: Option<Usage>,
) -> ModelFailure {
    failure.usage = usage;
    if !text.is_empty() || !calls.is_empty() {
        let partial = serde_json::json!({ "text": text, "calls": calls });
        failure.partial = Some(Payload::of(&partial).expect("a JSON value always serialises"));
        // Whatever was refused then, tokens had been made.
        failure.billing = Billing::Perhaps;
    }
    failure
}

pub(crate) fn says_something(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    }
}

/// A text without the thoughts that some servers leave at its beginning, between `<think>` and `</think>`. Thoughts
/// without an end are all there is, and no answer.
pub(crate) fn without_thoughts(text: &str) -> &str {
    let Some(thoughts) = text.trim_start().strip_prefix("<think>") else { return text };
    thoughts.split_once("</think>").map_or("", |(_, said)| said.trim_start())
}
