//! What is true about model calls, summaries and generations.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequested {
    pub attempt: AttemptId,
    pub model: crate::ids::ModelName,
    pub purpose: Purpose,
    /// Of the encoded request.
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    pub reserved: Reservation,
    /// Tokens of reply that it asks for. None: written by a version that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// What admission counted. None: written by a version that did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Of the tail that went along, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Digest>,
    /// What may be called, where that is not what it was at the request before. None: it is; at first, everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Manifest>,
}

/// What a request was held to have, in tokens, before it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The likely size, and the bound that is missed one time in a hundred.
    pub likely: u64,
    pub upper: u64,
    /// What may be sent: the window less the reserved output and the margin.
    pub safe: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReplied {
    pub attempt: AttemptId,
    pub reply: Reply,
    /// What the call is settled at; the reply's own usage or the reservation.
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
}

/// Where the amounts of a settlement come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    Reported,
    /// At the upper estimate, because nobody knows.
    Estimated,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    pub attempt: AttemptId,
    pub class: ModelErrorClass,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the model is told of it, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
    pub next: AfterFailure,
    /// What had arrived: a side record, no part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Payload>,
    /// What the server said of its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// What a failed model call leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// The next attempt is owed from then on.
    Retry {
        at: Timestamp,
    },
    /// The run stops and can be resumed.
    Suspend,
    Fail(Failure),
    ContextExhausted,
}

/// A model call that is not made, because it could only fail or get nowhere; and what follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelForgone {
    pub next: AfterFailure,
    /// For people: what is in the way, and the largest pieces of it.
    pub reason: String,
}

/// The context is made anew: from here on the prompt grows at its end again (`context.md` §4). Says what was decided; what
/// becomes of each item is the fold's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStarted {
    /// Counted from 1, which began with the run.
    pub generation: u32,
    pub why: RebuildWhy,
    /// Version of the rendering: see [`crate::context::window::RENDERING`].
    pub rendering: u32,
    /// The model's window by what is known, and what was kept free for the reply.
    pub limit: u64,
    pub reserved: u64,
    /// Likely tokens of a request.
    pub before: u64,
    pub after: u64,
    /// What is kept, but for the new control block, in proportion to what the provider counted last. None: it counted
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// In the order in which they are taken; each with what it frees.
    pub steps: Vec<RebuildStep>,
    /// Evidence that is cited and comes back with the control block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readmitted: Vec<Readmitted>,
}

/// What made a rebuild due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildWhy {
    /// Carrying on costs more than making it anew.
    Economic,
    /// The provider's cache is cold: it costs nothing extra.
    ColdCache,
    /// The share that the task names was reached.
    Trigger,
    /// The safety watermark was reached.
    Watermark,
    /// Few turns are left by forecast.
    Forecast,
    /// It would not fit.
    Full,
    /// The provider refused the request as too long; how often in a row.
    Overflow(u32),
    /// Another version of Longrein renders differently.
    Rendering,
}

/// One step of a rebuild. Amounts are tokens by estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildStep {
    /// Results that a later one repeats or replaces, by a reference.
    Superseded { actions: Vec<(ActionId, ActionId)>, freed: u64 },
    /// Results that can be had again, by their handles.
    Refetchable { actions: Vec<ActionId>, freed: u64 },
    /// Whole turns out of the window.
    PagedOut { from: TurnId, to: TurnId, calls: u32, failures: u32, freed: u64 },
    /// Results, by their head and tail of so many bytes.
    Shortened { actions: Vec<ActionId>, bytes: u64, freed: u64 },
}

/// A model is asked what happened in turns that have left the window: a call beside the run's own, optional in every way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryRequested {
    /// The generation that began without these turns.
    pub generation: u32,
    /// Counted from 1.
    pub attempt: u32,
    pub from: TurnId,
    pub to: TurnId,
    pub model: crate::ids::ModelName,
    /// Of the encoded request.
    pub digest: Digest,
    /// Length of the encoded request.
    pub bytes: u64,
    pub reserved: Reservation,
    pub counted: Counted,
}

/// What came of a summary. Settles it, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryFinished {
    pub generation: u32,
    pub attempt: u32,
    pub outcome: SummaryOutcome,
    pub usage: Usage,
    pub settled: Settled,
    pub micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryOutcome {
    /// These lines are for the next control block.
    Kept { lines: Vec<Line> },
    /// A reply of which nothing is kept.
    Refused { reason: String },
    /// No whole reply.
    Failed {
        class: ModelErrorClass,
        message: String,
        /// The model's window, as it is counted from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        served: Option<u64>,
        /// It is asked for again, from this turn on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again: Option<TurnId>,
    },
    /// Nobody waits for it any more: the run stopped, or its process died.
    Lost,
    /// It was not asked for: nothing was sent.
    Forgone { reason: String },
}

/// A result too large for the window, as the model is shown it for good. The whole is in `action.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSpilled {
    pub action: ActionId,
    pub shown: Payload,
    /// Length of the whole in bytes of JSON.
    pub total: u64,
}

/// The model wrote something down for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteTaken {
    pub action: ActionId,
    pub note: Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSwitched {
    pub input: InputId,
    pub model: ModelSpec,
}

/// Calls go to another model from now on, by the task's routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRouted {
    pub from: crate::ids::ModelName,
    pub model: ModelSpec,
    pub why: RouteWhy,
    /// For people; of a failure, what the model before said.
    pub words: String,
    /// The model that is wanted, where this is another. None: this one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<crate::ids::ModelName>,
    /// When that is tried again. None: not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Ways out before this one that were passed over: they take no images, and the model is shown some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<crate::ids::ModelName>,
}

/// Why calls go to another model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteWhy {
    /// The model before failed so.
    Failed(ModelErrorClass),
    /// A route is for this phase.
    Phase(PhaseName),
    /// A request had so many tokens.
    Context(u64),
    /// The run has spent so many micro-dollars.
    Spent(u64),
    /// The model is shown an image.
    Images,
    /// What sent the run away has had time to pass.
    CooledDown,
    /// No choice holds (any more): the main model.
    Main,
}

impl RouteWhy {
    /// For people.
    pub fn words(&self) -> String {
        match self {
            RouteWhy::Failed(class) => format!("the model before failed: {}", crate::route::class_word(*class)),
            RouteWhy::Phase(phase) => format!("it is for the phase {phase}"),
            RouteWhy::Context(tokens) => format!("a request had {tokens} tokens"),
            RouteWhy::Spent(micros) => format!("{} micro-dollars are spent", micros),
            RouteWhy::Images => "there is an image to see".to_owned(),
            RouteWhy::CooledDown => "it has been left alone long enough and is tried again".to_owned(),
            RouteWhy::Main => "no other route holds any more".to_owned(),
        }
    }
}
