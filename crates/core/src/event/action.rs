//! What is true about actions.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionProposed {
    pub action: ActionId,
    /// Position of the call in the reply.
    pub index: u32,
    pub tool: ToolName,
    /// The id the conversation uses for it: the provider's, made unique.
    pub call: String,
    pub effect: EffectClass,
    /// Canonical; null where the call was refused for its arguments or its tool.
    pub args: Payload,
    /// What the model sent, where `args` could not be made of it: JSON as it is, anything else as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Payload>,
    pub digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Digest>,
    /// The path it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Calls of the same reply that must have succeeded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ActionId>,
    #[serde(flatten, with = "proposer_fields")]
    pub proposer: Proposer,
}

impl ActionProposed {
    /// The arguments, or what was sent for them.
    pub fn said(&self) -> &Payload {
        self.sent.as_ref().unwrap_or(&self.args)
    }
}

/// Who proposed a call. `U` tells of the call that is undone: here its id, in the state all that undoing it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proposer<U = ActionId> {
    /// The model, in a reply.
    #[default]
    Model,
    /// The program, in this phase, and no reply of the model.
    Program(PhaseName),
    /// The harness, to undo a call whose check failed.
    Undo(U),
    /// The harness, to have verdicts on changed checks accepted. Nothing is run.
    Acceptance,
}

impl<U> Proposer<U> {
    pub fn is_model(&self) -> bool {
        matches!(self, Proposer::Model)
    }

    /// The phase whose call it is.
    pub fn phase(&self) -> Option<&PhaseName> {
        if let Proposer::Program(phase) = self { Some(phase) } else { None }
    }

    /// The call that it undoes.
    pub fn undoes(&self) -> Option<&U> {
        if let Proposer::Undo(undone) = self { Some(undone) } else { None }
    }
}

/// A proposer as it has always been written: an optional field for each but the model.
mod proposer_fields {
    use serde::{Deserializer, Serializer};

    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    struct Fields {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compensates: Option<ActionId>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accepts: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<PhaseName>,
    }

    pub(super) fn serialize<S: Serializer>(proposer: &Proposer, serializer: S) -> Result<S::Ok, S::Error> {
        let none = Fields::default();
        match proposer.clone() {
            Proposer::Model => none,
            Proposer::Program(phase) => Fields { phase: Some(phase), ..none },
            Proposer::Undo(undone) => Fields { compensates: Some(undone), ..none },
            Proposer::Acceptance => Fields { accepts: true, ..none },
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Proposer, D::Error> {
        // No line was ever written with two of them.
        Ok(match Fields::deserialize(deserializer)? {
            Fields { compensates: Some(undone), .. } => Proposer::Undo(undone),
            Fields { accepts: true, .. } => Proposer::Acceptance,
            Fields { phase: Some(phase), .. } => Proposer::Program(phase),
            Fields { compensates: None, accepts: false, phase: None } => Proposer::Model,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRefused {
    pub action: ActionId,
    pub error: ToolError,
    /// Refused only because the run is a shadow: what it would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would: Option<Shadowed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionHeld {
    pub action: ActionId,
    /// Of the question: an answer must carry it (`semantics.md` E4).
    pub digest: Digest,
    pub rule: String,
    /// Why it is asked; where words are wanted, the model's question.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Wants::is_yes")]
    pub wants: Wants,
    /// The same for every call that would do the very same: what "always" remembers. None: no yes to an earlier call counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Digest>,
    /// What it would do, as far as that can be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// What a held action wants of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// A yes or a no before it runs.
    #[default]
    Yes,
    /// The same, and this typed at a terminal: what it sends is nothing to be said yes to in passing.
    Typed(String),
    /// An answer in words, which is its result.
    Words,
}

impl Wants {
    fn is_yes(&self) -> bool {
        *self == Wants::Yes
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionApproved {
    pub action: ActionId,
    pub input: InputId,
    pub digest: Digest,
    pub by: String,
    pub door: Door,
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Covers::is_once")]
    pub covers: Covers,
    /// Why, in the person's words. For whoever reads the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What they typed to confirm it, where that was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DeniedFields", into = "DeniedFields")]
pub struct ActionDenied {
    pub action: ActionId,
    pub by: String,
    pub reason: Option<String>,
    pub no: No,
}

/// Where a no came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum No {
    Person {
        input: InputId,
        door: Option<Door>,
    },
    /// Nobody could be asked, and the default is no.
    Unasked,
    /// The question was not answered in time.
    Expired,
}

impl No {
    /// The input that said it.
    pub fn input(&self) -> Option<&InputId> {
        match self {
            No::Person { input, .. } => Some(input),
            No::Unasked | No::Expired => None,
        }
    }

    pub fn door(&self) -> Option<Door> {
        match self {
            No::Person { door, .. } => *door,
            No::Unasked | No::Expired => None,
        }
    }
}

/// A no as it has always been written.
#[derive(Serialize, Deserialize)]
struct DeniedFields {
    action: ActionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<InputId>,
    by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    door: Option<Door>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    expired: bool,
}

impl From<DeniedFields> for ActionDenied {
    fn from(fields: DeniedFields) -> Self {
        let DeniedFields { action, input, by, door, reason, expired } = fields;
        let no = match input {
            Some(input) => No::Person { input, door },
            None if expired => No::Expired,
            None => No::Unasked,
        };
        Self { action, by, reason, no }
    }
}

impl From<ActionDenied> for DeniedFields {
    fn from(denied: ActionDenied) -> Self {
        let ActionDenied { action, by, reason, no } = denied;
        let (input, door, expired) = match no {
            No::Person { input, door } => (Some(input), door, false),
            No::Unasked => (None, None, false),
            No::Expired => (None, None, true),
        };
        Self { action, input, by, door, reason, expired }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionStarted {
    pub action: ActionId,
    /// Counted from 1.
    pub attempt: u32,
    pub fence: Fence,
    pub effect: EffectClass,
    /// The rule that allowed it, ruled in the step that wrote this.
    pub rule: String,
    /// External: what the receiver may use to recognise a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Digest>,
    /// What exactly was ruled on, if it is about one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What its result brings into the run, if that taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
    /// What of it was allowed although it lies beyond the workspace: the sandbox lets a command do this, and no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<Effect>,
    /// The tier of the sandbox its processes run in (`gate.md` §4). None: it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The workspace as it was before. None: it changes nothing there, or no snapshot was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeId>,
}

/// An action whose outcome was lost or doubtful is to be started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequeued {
    pub action: ActionId,
    pub why: Requeue,
    /// Not before then. None: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// What the last attempt failed with, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
}

/// Why it may be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// It changes nothing.
    Read,
    /// A reconcile command says that nothing happened.
    NoEffect,
    /// The receiver recognises the repetition by its key.
    Idempotent,
    /// It only reads, and what it failed with may pass.
    MayPass,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionProbed {
    pub action: ActionId,
    pub attempt: u32,
    pub answer: ProbeAnswer,
    /// The next try, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionFinished {
    pub action: ActionId,
    /// 0: it never started, because an earlier call with its key had the result, or a person gave it.
    pub attempt: u32,
    pub effect: EffectClass,
    pub outcome: Outcome,
    pub how: How,
    #[serde(default)]
    pub cost_micros: u64,
    /// What of its result taints and was not known when it started: where it was led on to, what an earlier run's call
    /// had brought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
    /// The workspace as it was left. None: it started without a snapshot, or none could be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<TreeId>,
}

impl ActionFinished {
    /// The evidence that its result is cited by: its own, or of a read that was answered from what is known, the first one's.
    pub fn evidence(&self) -> EvidenceId {
        self.how.evidence(self.action, self.effect)
    }
}

/// How an outcome is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It ran to its end here.
    Observed,
    /// Its process died with ours; this is what is certain.
    Recovered,
    /// A reconcile command told.
    Reconciled,
    /// The stored result of an earlier call with the same key; of a read, of the same call since the last change.
    Replayed { run: RunId, action: ActionId },
    /// A person said it.
    Answered,
    /// The kernel carried it out itself, in the step that wrote this.
    Kept,
}

impl How {
    pub(crate) fn evidence(&self, action: ActionId, effect: EffectClass) -> EvidenceId {
        match self {
            How::Replayed { action: first, .. } if effect == EffectClass::Read => first.evidence(),
            How::Replayed { .. } | How::Observed | How::Recovered | How::Reconciled | How::Answered | How::Kept => {
                action.evidence()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionSettled {
    pub action: ActionId,
    pub truth: Truth,
    pub by: SettledBy,
    /// As in [`ActionFinished`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brings: Vec<Mark>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledBy {
    Person {
        input: InputId,
        by: String,
    },
    /// A worker that had lost its claim knew.
    LateOutcome {
        input: InputId,
    },
}

/// What an action changed in the workspace is undone. Facts it set and evidence it brought are void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRolledBack {
    pub action: ActionId,
    /// The tree gone back to, as far as the action had changed it.
    pub to: TreeId,
    /// What was set back, at most [`PATHS_MAX`] of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// How many there were in all.
    pub count: u64,
    /// Where what stood there was moved to. None: nothing had to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<String>,
    pub why: RollbackWhy,
}

/// Paths an event names of a rollback; a person who wants all of them compares the trees.
pub const PATHS_MAX: usize = 200;

/// Why an action is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollbackWhy {
    /// Its check failed, or it failed and has one.
    Check,
    /// Its worker died, and nobody knows how far it came.
    Lost,
    /// A person wants it so.
    Operator { input: InputId, by: String },
}

/// An action that was to be undone is not: what it did is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionNotUndone {
    pub action: ActionId,
    pub reason: String,
    pub why: RollbackWhy,
}
