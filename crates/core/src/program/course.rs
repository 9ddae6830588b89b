//! Where a run stands in its program: folded from its events like everything else, and bounded by the program's size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kind, Phase, Phases};
use crate::check::Verdict;
use crate::ids::{ActionId, CheckName, EvidenceId, PhaseName, RunId};
use crate::payload::{Content, Payload, excerpt};

/// Lessons one list keeps; the oldest leave first.
pub const LESSONS_MAX: usize = 20;
/// The longest lesson: it is in every request.
pub const LESSON_BYTES_MAX: usize = 2_000;

/// A run's way through its phases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// Transitions taken. What is worked out at the edge names it, so that nothing is entered twice.
    pub step: u32,
    /// The present phase; before the first transition the one to start with.
    pub phase: PhaseName,
    pub at: At,
    /// How often each phase was entered.
    pub visits: BTreeMap<PhaseName, u32>,
    /// How often each phase had been entered when another was entered last: steps are counted from their plan.
    pub marks: BTreeMap<PhaseName, BTreeMap<PhaseName, u32>>,
    /// What each phase left last.
    pub outputs: BTreeMap<PhaseName, Content>,
    /// The evidence of `call` phases.
    pub evidence: BTreeMap<PhaseName, EvidenceId>,
    /// What checks of the program found last.
    pub verdicts: BTreeMap<CheckName, Verdict>,
    /// What phases left to remember, by list.
    pub lessons: BTreeMap<String, Vec<String>>,
    /// The phase that was left last, branches apart, and whether it went well.
    pub last: Option<(PhaseName, bool)>,
    /// The model's last phase that went well: its output is the answer where the program names none.
    pub spoke: Option<PhaseName>,
    /// What the model was told when each phase began last.
    pub words: BTreeMap<PhaseName, String>,
    /// Replies of the present visit that were refused.
    pub refusals: u32,
}

/// What the present phase is at, with exactly the data that needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// Nothing was entered yet.
    Start,
    /// The model works in it, and has taken so many turns.
    Working { turns: u32 },
    /// Its call, or its question, is to be proposed.
    Proposing,
    /// The call is in the ledger.
    Calling { action: ActionId },
    /// Checks run. None: not run yet.
    Checking { round: u32, verdicts: BTreeMap<CheckName, Option<Verdict>> },
    /// Child runs work. Empty: they are to be asked for.
    Children { asked: Vec<RunId> },
    /// It is over; where it leads is to be found out.
    Over(Outcome),
    /// The program led to a failed end.
    Failed { reason: String },
    /// It led to `done`, and no phase can answer again.
    Finished,
}

/// What a phase comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub ok: bool,
    pub output: Content,
}

impl Outcome {
    pub(crate) fn text(ok: bool, text: &str) -> Self {
        Self { ok, output: Content::Inline(Payload::string(text)) }
    }

    pub(crate) fn nothing(ok: bool) -> Self {
        Self { ok, output: Content::Inline(Payload::null()) }
    }
}

impl Course {
    pub fn new(program: &Phases) -> Self {
        Self {
            step: 0,
            phase: program.start.clone(),
            at: At::Start,
            visits: BTreeMap::new(),
            marks: BTreeMap::new(),
            outputs: BTreeMap::new(),
            evidence: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            lessons: BTreeMap::new(),
            last: None,
            spoke: None,
            words: BTreeMap::new(),
            refusals: 0,
        }
    }

    /// How often a phase was entered.
    pub fn visits_of(&self, phase: &PhaseName) -> u32 {
        self.visits.get(phase).copied().unwrap_or(0)
    }

    /// How often a phase was entered since another was.
    pub fn visits_since(&self, phase: &PhaseName, other: &PhaseName) -> u32 {
        let before = self.marks.get(other).and_then(|visits| visits.get(phase)).copied().unwrap_or(0);
        self.visits_of(phase).saturating_sub(before)
    }

    /// The phase whose output is the answer, were the program to end now. None: no phase has left anything.
    pub fn answers(&self, program: &Phases) -> Option<PhaseName> {
        let spoke = || {
            let present = program.phase(&self.phase).filter(|phase| phase.kind.has_model());
            match (&self.at, present) {
                (At::Over(Outcome { ok: true, .. }), Some(phase)) => Some(phase.name.clone()),
                (At::Over(_), _)
                | (
                    At::Start
                    | At::Working { .. }
                    | At::Proposing
                    | At::Calling { .. }
                    | At::Checking { .. }
                    | At::Children { .. }
                    | At::Failed { .. }
                    | At::Finished,
                    _,
                ) => self.spoke.clone(),
            }
        };
        let left = || match &self.at {
            At::Over(_) if program.phase(&self.phase).is_some_and(|phase| phase.kind != Kind::Branch) => {
                Some(self.phase.clone())
            }
            At::Over(_)
            | At::Start
            | At::Working { .. }
            | At::Proposing
            | At::Calling { .. }
            | At::Checking { .. }
            | At::Children { .. }
            | At::Failed { .. }
            | At::Finished => self.last.as_ref().map(|(phase, _)| phase.clone()),
        };
        program.answer.clone().or_else(spoke).or_else(left)
    }

    /// A phase begins. `round`: of its checks, if it has any.
    pub(crate) fn enter(
        &mut self,
        phase: &Phase,
        words: &str,
        checks: BTreeMap<CheckName, Option<Verdict>>,
        round: u32,
    ) {
        *self.visits.entry(phase.name.clone()).or_default() += 1;
        self.marks.insert(phase.name.clone(), self.visits.clone());
        self.phase = phase.name.clone();
        if phase.kind.has_model() {
            self.words.insert(phase.name.clone(), words.to_owned());
        }
        self.refusals = 0;
        self.at = match &phase.kind {
            Kind::Agent(_) | Kind::Reply(_) => At::Working { turns: 0 },
            Kind::Call(_) | Kind::Ask(_) => At::Proposing,
            // Nothing to run: nothing that failed.
            Kind::Checks(_) if checks.is_empty() => At::Over(Outcome::nothing(true)),
            Kind::Checks(_) => At::Checking { round, verdicts: checks },
            Kind::Branch => At::Over(Outcome::nothing(true)),
            Kind::Each(_) | Kind::Run(_) => At::Children { asked: Vec::new() },
        };
    }

    /// A phase is left with what it came to.
    pub(crate) fn leave(&mut self, kind: &Kind, output: Option<&Content>) {
        let At::Over(outcome) = &self.at else { return };
        if *kind == Kind::Branch {
            return;
        }
        self.last = Some((self.phase.clone(), outcome.ok));
        let output = output.unwrap_or(&outcome.output).clone();
        self.outputs.insert(self.phase.clone(), output);
        if kind.has_model() && outcome.ok {
            self.spoke = Some(self.phase.clone());
        }
    }

    /// Puts a lesson on a list, within its bounds.
    pub fn learn(&mut self, list: &str, lesson: &str) {
        let lessons = self.lessons.entry(list.to_owned()).or_default();
        lessons.push(excerpt(lesson.trim(), LESSON_BYTES_MAX));
        let surplus = lessons.len().saturating_sub(LESSONS_MAX);
        lessons.drain(..surplus);
    }

    /// A check of the present phase has ended. Answers whether it was the last.
    pub(crate) fn checked(&mut self, check: &CheckName, verdict: &Verdict) -> bool {
        self.verdicts.insert(check.clone(), verdict.clone());
        let At::Checking { verdicts, .. } = &mut self.at else { return false };
        verdicts.insert(check.clone(), Some(verdict.clone()));
        verdicts.values().all(Option::is_some)
    }
}
