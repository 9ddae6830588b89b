//! Stage summaries: what a model says of the turns that have left the window, beside the run's own work and optional in
//! every way. They are made from the journal, never from one another; each line names its sources and stands in the index
//! of the next control block as data; nothing pinned is ever taken from one (`context.md` §2.3).
//!
//! A rebuild that pages turns out owes one ([`Owed`]). It is asked for at most twice, and what is lost is not done again.

pub mod judge;
pub mod material;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::{Limit, Reservation};
use crate::children;
use crate::context::archive::Handle;
use crate::context::settings::{ASSUMED_LIMIT, Limits, share};
use crate::event::{GenerationStarted, RebuildStep, SummaryFinished, SummaryOutcome, SummaryRequested};
use crate::ids::{Digest, Seq, TurnId};
use crate::owed;
use crate::prompt::Purpose;
use crate::run::{Closing, Run, Stage};
use crate::task::ModelSpec;

/// What is known and still to be done about summaries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summaries {
    /// Of the turns that were last paged out, if nobody has been asked for it yet.
    pub owed: Option<Owed>,
    pub awaited: Option<Awaited>,
    /// The newest lines, oldest first, and how many older ones there were.
    pub lines: Vec<Line>,
    pub older: u64,
    /// Calls that were answered: a scripted model replies by it.
    pub answered: u64,
    /// The window of the summary model, where it was found to be smaller than declared.
    pub served: Option<u64>,
    /// The last request it found too long: never sent again.
    pub rejected: Option<Digest>,
    /// Where the turns begin that the window still holds. Empty if no summaries are written.
    begins: BTreeMap<TurnId, Seq>,
}

/// Turns that left the window together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The generation that began without them.
    pub generation: u32,
    pub from: TurnId,
    pub to: TurnId,
    /// Their events: after the one, and before the other.
    pub after: Seq,
    pub before: Seq,
}

/// A summary that is still to be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    pub stretch: Stretch,
    /// Counted from 1.
    pub attempt: u32,
    /// Not before this turn.
    pub from_turn: TurnId,
}

/// A summary that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    pub stretch: Stretch,
    pub attempt: u32,
    pub digest: Digest,
    pub reserved: Reservation,
}

/// One line of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub text: String,
    pub sources: Vec<Handle>,
}

/// Lines that are kept; how many are shown depends on the window.
pub const LINES_KEPT: usize = 60;
/// One try, and one more where the first could pass.
pub const ATTEMPTS_MAX: u32 = 2;
/// Tokens a summary may have: twelve lines of some sixty, and room for a little thought.
const OUTPUT_MAX: u64 = 1_000;
/// While less of a budget is left than this share of it, in thousandths, nothing is spent on summaries.
const SPARED: u32 = 100;

impl Summaries {
    /// A turn's reply is the event `seq`.
    pub(crate) fn turn_began(&mut self, turn: TurnId, seq: Seq) {
        self.begins.entry(turn).or_insert(seq);
    }

    /// Turns have left the window at event `head`. A summary of earlier ones that nobody was asked for is not made any more.
    pub(crate) fn rebuilt(&mut self, started: &GenerationStarted, head: Seq, turn: TurnId) {
        let paged_out = started.steps.iter().filter_map(|step| match step {
            RebuildStep::PagedOut { from, to, .. } => Some((*from, *to)),
            RebuildStep::Superseded { .. } | RebuildStep::Refetchable { .. } | RebuildStep::Shortened { .. } => None,
        });
        let Some((from, to)) = paged_out.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))) else { return };
        let first = self.begins.range(from..=to).next().map(|(turn, seq)| (*turn, *seq));
        let mut stay = self.begins.split_off(&to);
        stay.remove(&to);
        self.begins = stay;
        let Some((from, begin)) = first else { return };
        let before = self.begins.values().next().copied().unwrap_or(head);
        let after = Seq(begin.0.saturating_sub(1));
        let stretch = Stretch { generation: started.generation, from, to, after, before };
        self.owed = Some(Owed { stretch, attempt: 1, from_turn: turn });
    }

    pub(crate) fn requested(&mut self, requested: &SummaryRequested) {
        let Some(owed) = self.owed.take_if(|owed| owed.stretch.generation == requested.generation) else { return };
        let (digest, reserved) = (requested.digest.clone(), requested.reserved);
        self.awaited = Some(Awaited { stretch: owed.stretch, attempt: requested.attempt, digest, reserved });
    }

    pub(crate) fn finished(&mut self, finished: &SummaryFinished) {
        let is_meant = |stretch: &Stretch| stretch.generation == finished.generation;
        let awaited = self.awaited.take_if(|awaited| is_meant(&awaited.stretch));
        match &finished.outcome {
            SummaryOutcome::Kept { lines } => {
                self.answered += 1;
                self.lines.extend(lines.iter().cloned());
                let older = self.lines.len().saturating_sub(LINES_KEPT);
                self.lines.drain(..older);
                self.older += older as u64;
            }
            SummaryOutcome::Refused { .. } => self.answered += 1,
            SummaryOutcome::Failed { served, again, .. } => {
                let Some(awaited) = awaited else { return };
                if let Some(served) = served {
                    self.served = Some(*served);
                    self.rejected = Some(awaited.digest);
                }
                // Newer turns come before older ones.
                if let (Some(turn), None) = (again, &self.owed) {
                    let Awaited { stretch, attempt, .. } = awaited;
                    self.owed = Some(Owed { stretch, attempt: attempt + 1, from_turn: *turn });
                }
            }
            SummaryOutcome::Lost => {}
            SummaryOutcome::Forgone { .. } => self.owed = self.owed.take().filter(|owed| !is_meant(&owed.stretch)),
        }
    }

    /// The run is at rest, or another one: nothing is to be done any more.
    pub(crate) fn drop_duties(&mut self) {
        self.owed = None;
        self.awaited = None;
    }
}

/// The summary that is to be asked for now: never where the run is about to end, or has little left to spend.
pub fn due(run: &Run) -> Option<&Owed> {
    let summaries = &run.summaries;
    let owed = summaries.owed.as_ref().filter(|_| summaries.awaited.is_none())?;
    let goes_on = match &run.stage {
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } => {
            run.winding.is_none() && run.closing == Closing::NotYet && owed::purpose(run) == Purpose::Work
        }
        Stage::Verifying { .. } | Stage::Rest(_) => false,
    };
    let is_due = goes_on && owed.from_turn <= run.turn() && spec(run).is_some() && spare(run).is_some();
    is_due.then_some(owed)
}

/// The model that writes summaries.
pub fn spec(run: &Run) -> Option<&ModelSpec> {
    run.task.context.summary.as_deref()
}

/// What may be spent on one summary, reply included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    pub tokens: u64,
    pub micros: u64,
}

/// What of the budgets is not kept for the run's own work or set aside already. None: nothing.
pub fn spare(run: &Run) -> Option<Spare> {
    let reserved = match &run.stage {
        Stage::Thinking(thinking) => thinking.reserved,
        Stage::Ready(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => Reservation::default(),
    };
    let of = |limit: Limit, used: u64| match limit {
        Limit::Unlimited => Some(u64::MAX),
        Limit::At(whole) => Some(limit.left(used).saturating_sub(share(whole, SPARED))).filter(|left| *left > 0),
    };
    let (limits, spent) = (&run.limits, &run.spent);
    let out = children::reserved(run);
    of(limits.model_calls, spent.model_calls + out.model_calls)?;
    of(limits.turns, spent.turns)?;
    let tokens = of(limits.tokens, spent.usage.tokens() + out.tokens + reserved.input + reserved.output)?;
    Some(Spare { tokens, micros: of(limits.micros, spent.micros + out.micros + reserved.micros)? })
}

/// The arithmetic of a request to the summary model, by its own window. `learned`: what an earlier run found that to be.
pub fn limits(run: &Run, spec: &ModelSpec, learned: Option<u64>) -> Limits {
    let declared = spec.context_limit.unwrap_or(ASSUMED_LIMIT);
    let window = [run.summaries.served, learned].into_iter().flatten().fold(declared, u64::min);
    let reserved = spec.max_output.min(OUTPUT_MAX).min((window / 4).max(1));
    Limits { window, reserved, margin: share(window, run.task.context.margin) }
}

/// What a summary of at most `input` tokens costs at most.
pub fn reservation(spec: &ModelSpec, input: u64, output: u64) -> Reservation {
    Reservation { input, output, micros: spec.price.map_or(0, |price| price.at_most(input, output)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Usage;
    use crate::event::RebuildWhy;

    fn rebuild(generation: u32, from: u32, to: u32) -> GenerationStarted {
        GenerationStarted {
            generation,
            why: RebuildWhy::Full,
            rendering: 1,
            limit: 1,
            reserved: 1,
            before: 1,
            after: 1,
            kept: None,
            steps: vec![RebuildStep::PagedOut { from: TurnId(from), to: TurnId(to), calls: 1, failures: 0, freed: 1 }],
            readmitted: Vec::new(),
        }
    }

    #[test]
    fn a_stretch_is_the_events_of_its_turns() {
        let mut summaries = Summaries::default();
        for turn in 1..=6 {
            summaries.turn_began(TurnId(turn), Seq(u64::from(turn) * 10));
        }
        summaries.rebuilt(&rebuild(2, 1, 4), Seq(70), TurnId(7));
        let owed = summaries.owed.clone().expect("turns were paged out");
        assert_eq!((owed.stretch.after, owed.stretch.before), (Seq(9), Seq(50)));
        assert_eq!(summaries.begins.len(), 2, "turns that are gone are forgotten");
        summaries.rebuilt(&rebuild(3, 5, 6), Seq(90), TurnId(8));
        let owed = summaries.owed.clone().expect("turns were paged out");
        assert_eq!((owed.stretch.generation, owed.stretch.after, owed.stretch.before), (3, Seq(49), Seq(90)));
    }

    #[test]
    fn only_the_newest_lines_are_kept() {
        let mut summaries = Summaries::default();
        for generation in 1..=20 {
            let line = |n: u32| Line { text: format!("{generation}.{n}"), sources: Vec::new() };
            summaries.finished(&SummaryFinished {
                generation,
                attempt: 1,
                outcome: SummaryOutcome::Kept { lines: (0..12).map(line).collect() },
                usage: Usage::default(),
                settled: crate::event::Settled::Reported,
                micros: 0,
            });
        }
        assert_eq!((summaries.lines.len(), summaries.older), (LINES_KEPT, 240 - LINES_KEPT as u64));
        assert_eq!(summaries.lines.last().map(|line| line.text.as_str()), Some("20.11"));
    }
}
