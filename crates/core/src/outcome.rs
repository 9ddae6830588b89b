//! How actions and model calls can end: values from the edge that commands carry in and events keep.

use serde::{Deserialize, Serialize};

use crate::budget::Usage;
use crate::payload::{Content, Payload};

/// An error told to the model in its own terms: what, where, what to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolError {
    /// A short snake_case word; see [`class`] for ours. A tool may bring its own.
    pub class: String,
    pub message: String,
    /// JSON pointer of the argument at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// It was ended when its time was up: the word is ours, not the tool's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// What the tool printed before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Content>,
}

impl ToolError {
    pub fn new(class: &str, message: impl Into<String>) -> Self {
        Self {
            class: class.to_owned(),
            message: message.into(),
            field: None,
            hint: None,
            retry_after_s: None,
            cut: false,
            data: None,
        }
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Of a call that was ended when its time was up.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { cut: true, ..self }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Our error classes.
pub mod class {
    /// No such tool.
    pub const UNKNOWN_TOOL: &str = "unknown_tool";
    /// Arguments that are no JSON object, or break the schema.
    pub const INVALID_ARGUMENTS: &str = "invalid_arguments";
    /// An evidence reference that is missing, void, failed or of another tool.
    pub const EVIDENCE: &str = "evidence";
    /// A required fact does not hold.
    pub const MISSING_FACT: &str = "missing_fact";
    /// The tool's guard does not hold.
    pub const GUARD: &str = "guard";
    /// The tool's own or the run's count of calls is used up.
    pub const BUDGET: &str = "budget";
    /// A call it depends on did not succeed.
    pub const DEPENDENCY: &str = "dependency";
    /// The same key with other arguments.
    pub const CONFLICT: &str = "conflict";
    /// A rule or a person said no.
    pub const DENIED: &str = "denied";
    /// The run is a shadow: it only says what it would do.
    pub const SHADOW: &str = "shadow";
    /// A hook had something against it, or failed.
    pub const HOOK: &str = "hook";
    /// It cannot be told whether it happened.
    pub const UNKNOWN_OUTCOME: &str = "unknown_outcome";
    /// What it did was looked at by its check, and is not as it should be.
    pub const CHECK_FAILED: &str = "check_failed";
    /// Ran out of its time.
    pub const TIMEOUT: &str = "timeout";
    /// Ended by a status other than 0, or by a signal.
    pub const EXIT: &str = "exit";
    /// Printed more than it may.
    pub const OUTPUT_TOO_LARGE: &str = "output_too_large";
    /// It cannot be reached at the moment, or nobody is there to answer.
    pub const UNAVAILABLE: &str = "unavailable";
    /// The run was cancelled or stopped before it ran.
    pub const CANCELLED: &str = "cancelled";
    /// Classes a tool may name that we have no use for ourselves: [`crate::retry`] says what each comes to.
    pub const RATE_LIMITED: &str = "rate_limited";
    pub const INVALID_ARGUMENT: &str = "invalid_argument";
    pub const PRECONDITION_FAILED: &str = "precondition_failed";
    pub const NOT_FOUND: &str = "not_found";
    pub const NOT_AUTHORIZED: &str = "not_authorized";
    /// It cannot be done here, now or later.
    pub const INTERNAL: &str = "internal";
    /// Taken away for this turn, because the run went in circles.
    pub const LOOP: &str = "loop";
}

/// How a started attempt of an action ended, as the edge saw it. Which of these a class of tool may end in is said in
/// `semantics.md` D3 and D4; the tools crate sees to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done(Content),
    /// It failed and that matters to nobody else: a read, or workspace files the model can look at.
    Error(ToolError),
    /// An external call that says itself that nothing happened.
    NotDone(ToolError),
    /// An external call of which nothing is certain.
    Unknown(ToolError),
}

/// What a reconcile command said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeAnswer {
    /// It took effect; this is its result.
    TookEffect(Content),
    NoEffect,
    /// Pending, failed, silent, or not understood, with a word on which.
    NoAnswer(String),
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawCall {
    /// The provider's id; may be empty or repeated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub name: String,
    /// The arguments exactly as written; perhaps no JSON at all.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    ToolCalls,
    /// The output limit cut it.
    Length,
    /// The provider's filter, or the model itself, declined.
    Refused,
    /// Anything else, verbatim; empty when the reply gave none.
    Other(String),
}

/// A whole reply. It is a candidate until core accepts it (`semantics.md` D10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RawCall>,
    pub finish: Finish,
    /// None: the provider reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the model wrote, where broken JSON had to be repaired before it could be read: a side record, never shown to
    /// the model again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<String>,
    /// What the provider wants to see again as it came: signed thoughts, marks on calls. None: nothing of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wired: Option<Wired>,
}

/// What of a reply only its provider understands, and wants back unchanged in later requests: reasoning with its signature,
/// marks on texts and calls. Sent to the very model that made it and to no other, as a whole or not at all; never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wired {
    /// The model that made it, `PROVIDER/NAME`.
    pub model: String,
    /// The whole reply in the order of its blocks.
    pub blocks: Vec<WireBlock>,
}

/// One block of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireBlock {
    /// The next so many bytes of the reply's text.
    Text(u32),
    /// The next call of the reply.
    Call,
    /// A block that is neither: its JSON as it came.
    Opaque(Payload),
    /// An object: fields that stand beside those of the block that follows.
    With(Payload),
    /// What came beside all that and is not sent back: thoughts without a signature, sources, fields nobody knows yet. Kept in
    /// the journal, so that nothing a provider said is lost, and nowhere else.
    Aside(Payload),
}

impl Wired {
    /// Bytes of what is kept for the provider alone.
    pub fn bytes(&self) -> usize {
        let of = |block: &WireBlock| match block {
            WireBlock::Opaque(json) | WireBlock::With(json) => json.as_str().len(),
            WireBlock::Text(_) | WireBlock::Call | WireBlock::Aside(_) => 0,
        };
        self.blocks.iter().map(of).sum()
    }

    /// What of it belongs into later requests; none if nothing does.
    #[must_use]
    pub fn owed_back(&self) -> Option<Self> {
        let is_owed = |block: &WireBlock| matches!(block, WireBlock::Opaque(_) | WireBlock::With(_));
        if !self.blocks.iter().any(is_owed) {
            return None;
        }
        let blocks = self.blocks.iter().filter(|block| !matches!(block, WireBlock::Aside(_)));
        Some(Self { model: self.model.clone(), blocks: blocks.cloned().collect() })
    }

    /// Whether its blocks are the whole of this text and so many calls: only then can they stand for them.
    pub fn covers(&self, text: &str, calls: usize) -> bool {
        let (mut at, mut seen) = (0usize, 0usize);
        for block in &self.blocks {
            match block {
                WireBlock::Text(bytes) => at = at.saturating_add(*bytes as usize),
                WireBlock::Call => seen += 1,
                WireBlock::Opaque(_) | WireBlock::With(_) | WireBlock::Aside(_) => continue,
            }
            if !text.is_char_boundary(at) {
                return false;
            }
        }
        at == text.len() && seen == calls
    }
}

/// Why a model call brought no reply. Classes answer "what should follow?".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorClass {
    /// Connection, 5xx, a stream cut off: may pass.
    Transient,
    /// Too many requests: may pass.
    RateLimited,
    /// The provider is overloaded: may pass.
    Overloaded,
    /// The account's quota is used up: an operator's business.
    Quota,
    /// The key is wrong or missing.
    Authentication,
    /// The provider will not take this request.
    BadRequest,
    /// The prompt is too long for the model.
    ContextExhausted,
    /// The provider or the model declined the content.
    ContentRefused,
    /// A reply that was cut, empty or malformed as a whole.
    Malformed,
    /// The process that waited for it died or was stopped.
    Lost,
    /// The script of a scripted model does not fit the run.
    Script,
}

/// Whether the provider may have worked on a failed call, and so may bill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Billing {
    /// It refused or was never reached: nothing was used.
    Nothing,
    /// It may have worked: settled at the upper estimate unless it reported usage.
    Perhaps,
}

/// A model call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    pub class: ModelErrorClass,
    /// For people: what the provider said, or what broke. Never empty.
    pub message: String,
    /// HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    pub billing: Billing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What had arrived of a reply that was not accepted: kept as a side record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Payload>,
    /// What the server said of its limits, where the class is [`ModelErrorClass::ContextExhausted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// What a server says it takes, as it told it in refusing a request. Each is absent where it said nothing, or nothing that
/// can be relied on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The most tokens of a request, as a rule its reserved output included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The tokens it counted in the refused prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
    /// The most tokens of output that may be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// The most bytes of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Served {
    /// None if it says nothing at all.
    pub fn told(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}
