//! A model's opinion as a check: asked for within the budget, settled once, read strictly, and never paid for twice where
//! what it was asked is what it is asked.

use super::calls::settle;
use super::*;
use crate::check::Finding;
use crate::judge::{self, Awaited, JUDGE_TRIES_MAX};
use crate::task::CheckSpec;

/// A request for an opinion, encoded.
#[derive(Debug, Clone)]
pub struct AskJudge {
    pub check: CheckName,
    pub round: u32,
    pub about: Digest,
    pub digest: Digest,
    pub bytes: u64,
    /// Tokens the reply may have.
    pub output: u64,
    /// The workspace as it is; or why nobody knows.
    pub tree: Result<TreeId, String>,
}

/// What came of one.
#[derive(Debug)]
pub struct TakeJudge {
    pub call: u32,
    pub result: Result<Reply, ModelFailure>,
    pub jitter: u32,
}

pub(super) fn ask(run: &Run, asked: AskJudge) -> Result<Vec<Event>, Refusal> {
    let AskJudge { check, round, about, digest, bytes, output, tree } = asked;
    if !judge::awaits(run, &check, round) || run.judging.awaited.is_some() {
        return Err(Refusal::Stale);
    }
    let spec = run.check_spec(&check).ok_or(Refusal::Stale)?;
    let judge = judge::spec(spec).ok_or(Refusal::Stale)?;
    let model = judge::model(run, judge);
    let (tree, unhashed) = match tree {
        Ok(tree) => (Some(tree), None),
        Err(why) => (None, Some(why)),
    };
    // The same question to the same model about the same workspace is answered already.
    if let Some(opinion) = run.judging.opinions.get(&check).filter(|opinion| opinion.about == about) {
        let text = judge::in_words(&opinion.model, &opinion.reason);
        return found(run, spec, round, Ok((opinion.finding, text)), tree, unhashed);
    }
    match judge::reserve(run, model, bytes, output) {
        Ok(reserved) => Ok(vec![Event::JudgeRequested(JudgeRequested {
            check,
            round,
            call: run.judging.calls + 1,
            model: model.name.clone(),
            about,
            digest,
            bytes,
            reserved,
            tree,
            unhashed,
        })]),
        Err(budget) => {
            let text = format!("No verdict: what is left of the budget of {budget} is less than the judge may cost.");
            found(run, spec, round, Err(text), tree, unhashed)
        }
    }
}

pub(super) fn take(run: &Run, taken: TakeJudge) -> Result<Vec<Event>, Refusal> {
    let TakeJudge { call, result, jitter } = taken;
    let awaited = run.judging.awaited.as_ref().filter(|awaited| awaited.call == call).ok_or(Refusal::Stale)?;
    let (outcome, reported, billing) = match result {
        Ok(reply) => {
            let outcome = match judge::read(&reply) {
                Ok((finding, reason)) => JudgeOutcome::Opinion { finding, reason },
                Err(reason) => JudgeOutcome::Unusable { reason },
            };
            (outcome, reply.usage, Billing::Perhaps)
        }
        Err(failure) => {
            let (usage, billing) = (failure.usage, failure.billing);
            (failed(run, failure, jitter), usage, billing)
        }
    };
    let unreachable = unreachable(run, awaited, &outcome);
    let said = match &outcome {
        JudgeOutcome::Opinion { finding, reason } => Some(Ok((*finding, judge::in_words(&awaited.model, reason)))),
        JudgeOutcome::Unusable { reason } => {
            no_verdict(run, awaited, &format!("a reply that is none: {reason}"), false).map(Err)
        }
        JudgeOutcome::Failed { message, wait_ms, .. } => no_verdict(run, awaited, message, wait_ms.is_none()).map(Err),
        JudgeOutcome::Lost => None,
    };
    let (usage, settled) = settle(reported, billing, awaited.reserved);
    let mut events = vec![finished(run, awaited, outcome, usage, settled)];
    // It may be that nobody waits for it any more: a message came.
    let spec = run.check_spec(&awaited.check).filter(|_| judge::awaits(run, &awaited.check, awaited.round));
    if let (Some(detail), Some(_)) = (unreachable, spec) {
        events.push(Event::RunSuspended(RunSuspended { cause: Suspension::Model, detail }));
    } else if let (Some(said), Some(spec)) = (said, spec) {
        let (tree, unhashed) = (awaited.tree.clone(), awaited.unhashed.clone());
        events.extend(found(run, spec, awaited.round, said, tree, unhashed)?);
    }
    Ok(events)
}

/// Why the run stops here, to go on when the judge can be asked again: a model that is not to be reached has no opinion, and
/// the work is none the worse for it.
fn unreachable(run: &Run, awaited: &Awaited, outcome: &JudgeOutcome) -> Option<String> {
    let JudgeOutcome::Failed { class, message, .. } = outcome else { return None };
    let is_tried_enough = run.judging.failures + 1 >= JUDGE_TRIES_MAX;
    let is_over = match class {
        ModelErrorClass::Quota | ModelErrorClass::Authentication | ModelErrorClass::BadRequest => true,
        ModelErrorClass::Transient | ModelErrorClass::RateLimited | ModelErrorClass::Overloaded => is_tried_enough,
        // It was reached, and gave nothing that counts.
        ModelErrorClass::Malformed
        | ModelErrorClass::ContextExhausted
        | ModelErrorClass::ContentRefused
        | ModelErrorClass::Script
        | ModelErrorClass::Lost => false,
    };
    is_over.then(|| format!("the judge of \"{}\", {}: {message}", awaited.check, awaited.model))
}

/// What is said of a judge that gave no verdict, once it has been asked often enough, or will never give one.
fn no_verdict(run: &Run, awaited: &Awaited, why: &str, for_good: bool) -> Option<String> {
    let tries = run.judging.failures + 1;
    (for_good || tries >= JUDGE_TRIES_MAX).then(|| {
        let times = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
        format!("No verdict: {} was asked {times}, the last time with this outcome: {why}", awaited.model)
    })
}

fn found(
    run: &Run,
    spec: &CheckSpec,
    round: u32,
    said: Result<(Finding, String), String>,
    tree: Option<TreeId>,
    unhashed: Option<String>,
) -> Result<Vec<Event>, Refusal> {
    let verdict = judge::verdict(spec, said, tree, unhashed);
    give_verdict(run, spec.name.clone(), round, verdict, Vec::new())
}

fn failed(run: &Run, failure: ModelFailure, jitter: u32) -> JudgeOutcome {
    let wait = match failure.class {
        ModelErrorClass::Lost => return JudgeOutcome::Lost,
        ModelErrorClass::Transient | ModelErrorClass::RateLimited | ModelErrorClass::Overloaded => {
            let asked = failure.retry_after_s.map(Duration::from_secs).unwrap_or_default().min(RETRY_AFTER_MAX);
            Some(backoff(run.judging.failures, jitter).max(asked))
        }
        ModelErrorClass::Malformed => Some(Duration::ZERO),
        ModelErrorClass::Quota
        | ModelErrorClass::Authentication
        | ModelErrorClass::BadRequest
        | ModelErrorClass::ContextExhausted
        | ModelErrorClass::ContentRefused
        | ModelErrorClass::Script => None,
    };
    let wait_ms = wait.map(crate::time::millis);
    JudgeOutcome::Failed { class: failure.class, message: failure.message, wait_ms }
}

fn finished(run: &Run, awaited: &Awaited, outcome: JudgeOutcome, usage: Usage, settled: Settled) -> Event {
    let spec = run.check_spec(&awaited.check).and_then(judge::spec);
    let price = spec.and_then(|spec| judge::model(run, spec).price);
    Event::JudgeFinished(JudgeFinished {
        check: awaited.check.clone(),
        round: awaited.round,
        call: awaited.call,
        outcome,
        usage,
        settled,
        micros: price.map_or(0, |price| usage.micros(&price)),
    })
}

/// The one in flight is given up: settled at its upper estimate (`semantics.md` F2).
pub(super) fn given_up(run: &Run) -> Option<Event> {
    let awaited = run.judging.awaited.as_ref()?;
    let Reservation { input, output, .. } = awaited.reserved;
    let usage = Usage { input, output, ..Usage::default() };
    Some(finished(run, awaited, JudgeOutcome::Lost, usage, Settled::Estimated))
}
