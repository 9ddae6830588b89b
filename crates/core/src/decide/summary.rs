//! Stage summaries: asked for when there is enough to spend, settled once, given up wherever the run stops.

use std::collections::BTreeMap;

use super::Refusal;
use super::calls::settle;
use crate::budget::{Reservation, Usage};
use crate::context::archive::Handle;
use crate::context::summary::judge::{judge, whole};
use crate::context::summary::{self, ATTEMPTS_MAX, Awaited};
use crate::event::{Counted, Event, Settled, SummaryFinished, SummaryOutcome, SummaryRequested};
use crate::ids::{Digest, TurnId};
use crate::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use crate::run::Run;

/// A request for a summary, encoded and counted.
#[derive(Debug, Clone)]
pub struct AskSummary {
    pub generation: u32,
    pub digest: Digest,
    pub bytes: u64,
    pub counted: Counted,
    /// Tokens the reply may have.
    pub output: u64,
}

/// What came of one.
#[derive(Debug)]
pub struct TakeSummary {
    pub generation: u32,
    pub attempt: u32,
    pub result: Result<Reply, ModelFailure>,
    /// What the model was shown, with its words.
    pub shown: BTreeMap<Handle, String>,
}

/// What cannot be asked for is forgone for good: it is optional.
pub(super) fn ask(run: &Run, asked: AskSummary) -> Result<Vec<Event>, Refusal> {
    let AskSummary { generation, digest, bytes, counted, output } = asked;
    let owed = summary::due(run).filter(|owed| owed.stretch.generation == generation).ok_or(Refusal::Stale)?;
    let (spec, spare) = summary::spec(run).zip(summary::spare(run)).ok_or(Refusal::Stale)?;
    let forgone = |reason: &str| forgo(run, generation, reason.to_owned());
    if counted.upper > counted.safe {
        return forgone("what happened does not fit the summary model's window");
    }
    // What was rejected for good is never sent again unchanged (law 6).
    if run.summaries.rejected.as_ref() == Some(&digest) {
        return forgone("the provider found this very request too long");
    }
    let reserved = summary::reservation(spec, counted.upper, output);
    if reserved.input.saturating_add(reserved.output) > spare.tokens || reserved.micros > spare.micros {
        return forgone("too little of the budget is left for it");
    }
    Ok(vec![Event::SummaryRequested(SummaryRequested {
        generation,
        attempt: owed.attempt,
        from: owed.stretch.from,
        to: owed.stretch.to,
        model: spec.name.clone(),
        digest,
        bytes,
        reserved,
        counted,
    })])
}

/// It is not made: nothing was sent, nothing is spent.
pub(super) fn forgo(run: &Run, generation: u32, reason: String) -> Result<Vec<Event>, Refusal> {
    let owed = run.summaries.owed.as_ref().filter(|owed| owed.stretch.generation == generation);
    let attempt = owed.ok_or(Refusal::Stale)?.attempt;
    Ok(vec![Event::SummaryFinished(SummaryFinished {
        generation,
        attempt,
        outcome: SummaryOutcome::Forgone { reason },
        usage: Usage::default(),
        settled: Settled::Reported,
        micros: 0,
    })])
}

pub(super) fn take(run: &Run, taken: TakeSummary) -> Result<Vec<Event>, Refusal> {
    let TakeSummary { generation, attempt, result, shown } = taken;
    let awaited = run.summaries.awaited.as_ref();
    let awaited = awaited.filter(|awaited| awaited.stretch.generation == generation && awaited.attempt == attempt);
    let awaited = awaited.ok_or(Refusal::Stale)?;
    let (outcome, reported, billing) = match result {
        Ok(reply) => {
            let outcome = match whole(&reply) {
                Err(message) => failed(run, awaited, ModelErrorClass::Malformed, message, None),
                Ok(()) => match judge(&reply, &shown) {
                    Ok(lines) => SummaryOutcome::Kept { lines },
                    Err(reason) => SummaryOutcome::Refused { reason },
                },
            };
            (outcome, reply.usage, Billing::Perhaps)
        }
        Err(failure) => {
            let told = failure.served.and_then(|served| served.limit);
            let outcome = match failure.class {
                ModelErrorClass::Lost => SummaryOutcome::Lost,
                class @ (ModelErrorClass::Transient
                | ModelErrorClass::RateLimited
                | ModelErrorClass::Overloaded
                | ModelErrorClass::Quota
                | ModelErrorClass::Authentication
                | ModelErrorClass::BadRequest
                | ModelErrorClass::ContextExhausted
                | ModelErrorClass::ContentRefused
                | ModelErrorClass::Malformed
                | ModelErrorClass::Script) => failed(run, awaited, class, failure.message, told),
            };
            (outcome, failure.usage, failure.billing)
        }
    };
    let (usage, settled) = settle(reported, billing, awaited.reserved);
    Ok(vec![finished(run, awaited, outcome, usage, settled)])
}

/// A failure that may pass is tried once more, with the next turn; one for its length, with less.
fn failed(run: &Run, awaited: &Awaited, class: ModelErrorClass, message: String, told: Option<u64>) -> SummaryOutcome {
    let may_pass = match class {
        ModelErrorClass::Transient
        | ModelErrorClass::RateLimited
        | ModelErrorClass::Overloaded
        | ModelErrorClass::Malformed
        | ModelErrorClass::ContextExhausted => true,
        ModelErrorClass::Quota
        | ModelErrorClass::Authentication
        | ModelErrorClass::BadRequest
        | ModelErrorClass::ContentRefused
        | ModelErrorClass::Lost
        | ModelErrorClass::Script => false,
    };
    let served = match (class, summary::spec(run)) {
        (ModelErrorClass::ContextExhausted, Some(spec)) => {
            let window = summary::limits(run, spec, None).window;
            // It did not say: less than was thought.
            Some(told.map_or(window - window / 4, |told| told.min(window)))
        }
        (_, Some(_) | None) => None,
    };
    let again = (may_pass && awaited.attempt < ATTEMPTS_MAX).then(|| TurnId(run.turn().0.saturating_add(1)));
    SummaryOutcome::Failed { class, message, served, again }
}

fn finished(run: &Run, awaited: &Awaited, outcome: SummaryOutcome, usage: Usage, settled: Settled) -> Event {
    let price = summary::spec(run).and_then(|spec| spec.price);
    Event::SummaryFinished(SummaryFinished {
        generation: awaited.stretch.generation,
        attempt: awaited.attempt,
        outcome,
        usage,
        settled,
        micros: price.map_or(0, |price| usage.micros(&price)),
    })
}

/// The one in flight is given up: settled at its upper estimate, and not done again (`semantics.md` F2).
pub(super) fn given_up(run: &Run) -> Option<Event> {
    let awaited = run.summaries.awaited.as_ref()?;
    let Reservation { input, output, .. } = awaited.reserved;
    let usage = Usage { input, output, ..Usage::default() };
    Some(finished(run, awaited, SummaryOutcome::Lost, usage, Settled::Estimated))
}
