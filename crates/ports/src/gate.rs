//! The gate: may this call run?

use longrein_core::payload::Payload;
use longrein_core::taint::{Mark, Taint};
use longrein_core::target::Target;
use longrein_core::task::{Mode, ToolSpec};

pub use longrein_core::ruling::{Answers, Effect, EffectKind, Ruling};

/// One call as it would run.
#[derive(Debug, Clone)]
pub struct GateCall<'a> {
    pub tool: &'a ToolSpec,
    /// Canonical.
    pub args: &'a Payload,
    /// What it is about, if that is one file or folder.
    pub target: Option<&'a Target>,
    /// Absolute path of the folder the run works in.
    pub workspace: &'a str,
    pub mode: Mode,
    /// What the run has read so far.
    pub taint: &'a Taint,
    /// What people have typed in this run: its goal and their messages. Whom they name there they mean.
    pub said: &'a [&'a str],
}

/// What the gate finds of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled {
    pub ruling: Ruling,
    /// What may answer it, where it is a question.
    pub answers: Answers,
    /// Where it is a denial: what a person at a terminal may type to have it done all the same. None: nothing.
    pub unless_typed: Option<String>,
    /// What it would do, as far as that can be told.
    pub effects: Vec<Effect>,
    /// What of that its walls have to let through, if it is allowed.
    pub beyond: Vec<Effect>,
    /// What its result would bring into the run: only what taints, one mark a source.
    pub brings: Vec<Mark>,
    /// Files whose content it has run, absolute: what a yes to it is a yes to, as they are.
    pub runs: Vec<String>,
}

impl Ruled {
    /// A ruling that knows nothing of what the call does.
    pub fn plain(ruling: Ruling) -> Self {
        Self {
            ruling,
            answers: Answers::Remembered,
            unless_typed: None,
            effects: Vec::new(),
            beyond: Vec::new(),
            brings: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Of two gates' findings of one call, the stricter in every part.
    #[must_use]
    pub fn stricter(self, other: Ruled) -> Self {
        let strictness = |ruling: &Ruling| match ruling {
            Ruling::Allow { .. } => 0,
            Ruling::Ask { .. } => 1,
            Ruling::Deny { .. } => 2,
        };
        let mut effects = self.effects;
        for effect in other.effects {
            Effect::add(&mut effects, effect.kind, &effect.what);
        }
        let mut brings = self.brings;
        brings.extend(other.brings.into_iter().filter(|mark| !brings.contains(mark)).collect::<Vec<_>>());
        // what both would let through
        let beyond = self.beyond.into_iter().filter(|effect| other.beyond.contains(effect)).collect();
        let mut runs = self.runs;
        runs.extend(other.runs.into_iter().filter(|file| !runs.contains(file)).collect::<Vec<_>>());
        let answers = match (self.answers, other.answers) {
            (Answers::Remembered, Answers::Remembered) => Answers::Remembered,
            (Answers::Fresh, _) | (_, Answers::Fresh) => Answers::Fresh,
        };
        let unless_typed = match strictness(&other.ruling).cmp(&strictness(&self.ruling)) {
            std::cmp::Ordering::Greater => other.unless_typed,
            std::cmp::Ordering::Less => self.unless_typed,
            std::cmp::Ordering::Equal => self.unless_typed.filter(|text| other.unless_typed.as_ref() == Some(text)),
        };
        let ruling = if strictness(&other.ruling) > strictness(&self.ruling) { other.ruling } else { self.ruling };
        Self { ruling, answers, unless_typed, effects, beyond, brings, runs }
    }
}

/// Rules are read once, when the gate is made; a rule that cannot be read stops the run before it starts.
pub trait Gate: Send + Sync {
    fn rule(&self, call: &GateCall<'_>) -> Ruled;
}
