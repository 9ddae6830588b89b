//! Model calls: what one may cost, what of a reply is taken, and what follows a failure.

use super::*;
use crate::context::estimate::{Estimator, Features};
use crate::image;
use crate::outcome::WireBlock;

/// Upper estimate of the tokens in `bytes` of a request. Anchored on what the provider reported for the last one; what was
/// added since, and a first request, at two bytes a token: dense code and CJK text stay under it.
fn input_estimate(run: &Run, bytes: u64) -> u64 {
    const BYTES_PER_TOKEN: u64 = 2;
    // Images are no text: their tokens are known by their size.
    let known = run.anchor.filter(|anchor| anchor.tokens > 0 && bytes >= anchor.bytes && anchor.bytes > 0);
    let new = run.window.items.iter().skip(known.map_or(0, |anchor| anchor.items));
    let takes = run.model.takes_images();
    let images = image::of_items(new).filter(|_| takes).fold(Features::default(), |sum, image| sum + image.features());
    let bytes = bytes.saturating_sub(images.picture_bytes);
    let texts = match run.anchor {
        Some(anchor) if anchor.tokens > 0 && bytes >= anchor.bytes => {
            anchor.tokens + (bytes - anchor.bytes).div_ceil(BYTES_PER_TOKEN)
        }
        Some(_) | None => bytes.div_ceil(BYTES_PER_TOKEN),
    };
    texts.saturating_add(images.images)
}

/// A reply of fewer tokens is not worth asking for.
const OUTPUT_MIN: u64 = 16;

/// What a call of `bytes` may cost at most, or the budget it does not fit into.
fn reserve(run: &Run, bytes: u64) -> Result<Reservation, BudgetKind> {
    let input = input_estimate(run, bytes);
    // What a summary or a judge in flight may cost is set aside already.
    let of_summary = run.summaries.awaited.as_ref().map(|awaited| awaited.reserved).unwrap_or_default();
    let of_judge = run.judging.awaited.as_ref().map(|awaited| awaited.reserved).unwrap_or_default();
    let aside = Reservation {
        input: of_summary.input + of_judge.input,
        output: of_summary.output + of_judge.output,
        micros: of_summary.micros + of_judge.micros,
    };
    let mut output = run.model.max_output;
    let wanted = output.min(OUTPUT_MIN);
    match run.limits.tokens {
        Limit::Unlimited => {}
        limit @ Limit::At(_) => {
            let used = run.spent.usage.tokens() + aside.input + aside.output;
            output = output.min(limit.left(used).saturating_sub(input));
            if output < wanted {
                return Err(BudgetKind::Tokens);
            }
        }
    }
    let Some(price) = run.model.price else { return Ok(Reservation { input, output, micros: 0 }) };
    let cost = |output: u64| price.at_most(input, output);
    match run.limits.micros {
        Limit::Unlimited => {}
        limit @ Limit::At(_) => {
            let left = limit.left(run.spent.micros + aside.micros);
            let for_output = u128::from(left.saturating_sub(cost(0))) * 1_000_000;
            if price.dearest_output() > 0 {
                let tokens = for_output / u128::from(price.dearest_output());
                output = output.min(u64::try_from(tokens).unwrap_or(u64::MAX));
            }
            if cost(0) > left || output < wanted {
                return Err(BudgetKind::Usd);
            }
        }
    }
    Ok(Reservation { input, output, micros: cost(output) })
}

/// The output tokens the next call of about `bytes` may ask for.
pub fn output_allowance(run: &Run, bytes: u64) -> u64 {
    reserve(run, bytes).map_or(0, |reserved| reserved.output)
}

pub(super) struct Requested {
    pub(super) attempt: AttemptId,
    pub(super) purpose: Purpose,
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    pub(super) output: u64,
    pub(super) counted: Counted,
    pub(super) tail: Option<Digest>,
}

/// A call that is not made; where another model has more room, that one is asked.
pub(super) fn forgo(run: &Run, forgone: ModelForgone, now: Timestamp) -> Vec<Event> {
    let routed = match forgone.next {
        AfterFailure::ContextExhausted => {
            route::way_out(run, ModelErrorClass::ContextExhausted, &forgone.reason, None, now)
        }
        AfterFailure::Retry { .. } | AfterFailure::Suspend | AfterFailure::Fail(_) => None,
    };
    vec![routed.map_or_else(|| Event::ModelForgone(forgone), Event::ModelRouted)]
}

pub(super) fn request(run: &Run, requested: Requested, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let Requested { attempt, purpose, digest, bytes, output, counted, tail } = requested;
    match &run.stage {
        Stage::Rest(_) => return Err(Refusal::AtRest),
        Stage::Ready(ready) if attempt.turn == run.turn() && attempt.attempt == ready.attempts + 1 => {}
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
            return Err(Refusal::Stale);
        }
    }
    let is_held_up = !run.hooks.goal.is_empty()
        || repeat::due(run).is_some()
        || crate::children::are_open(run)
        || !run.wants_model();
    if owed::purpose(run) != purpose || owed::due_end(run).is_some() || is_held_up {
        return Err(Refusal::Stale);
    }
    // What was rejected for good is never sent again unchanged (`design.md` §2, law 6).
    if run.window.refused.as_ref().is_some_and(|refused| refused.digest == digest) {
        let reason = "the provider found this very request too long, and it cannot be made smaller".to_owned();
        return Ok(forgo(run, ModelForgone { next: AfterFailure::ContextExhausted, reason }, now));
    }
    match reserve(run, bytes) {
        Ok(reserved) => Ok(vec![Event::ModelRequested(ModelRequested {
            attempt,
            model: run.model.name.clone(),
            purpose,
            digest,
            bytes,
            reserved,
            output: Some(output),
            counted: Some(counted),
            tail,
            manifest: manifest::changed(run),
        })]),
        // The closing call is made if it still fits (`semantics.md` F3); reached twice, it does not.
        Err(budget) => Ok(vec![Event::BudgetReached(BudgetReached { budget })]),
    }
}

/// Why a whole reply is not taken: its class and what the model is told.
fn unacceptable(reply: &Reply, purpose: Purpose) -> Option<(ModelErrorClass, String)> {
    if purpose == Purpose::Closing {
        return None;
    }
    let malformed = |told: String| Some((ModelErrorClass::Malformed, told));
    match &reply.finish {
        Finish::Refused => return Some((ModelErrorClass::ContentRefused, String::new())),
        Finish::Length => {
            return malformed(
                "Your last reply was cut off by the output limit; nothing of it was used. Reply again, shorter: fewer or \
                 smaller calls at a time."
                    .to_owned(),
            );
        }
        Finish::Other(reason) => {
            let reason = if reason.is_empty() { "no finish reason" } else { reason };
            return malformed(format!(
                "Your last reply ended in an unexpected way ({}); nothing of it was used. Reply again.",
                reason.chars().take(80).collect::<String>()
            ));
        }
        Finish::Stop | Finish::ToolCalls => {}
    }
    if reply.calls.len() > CALLS_MAX {
        return malformed(format!(
            "Your last reply had {} tool calls; at most {CALLS_MAX} are taken at once, and none of them was run. Reply \
             again with fewer.",
            reply.calls.len()
        ));
    }
    if reply.calls.is_empty() && reply.finish == Finish::ToolCalls {
        return malformed(
            "Your last reply said that it calls a tool, and held no call; nothing of it was used. Call the tool, or give \
             your answer."
                .to_owned(),
        );
    }
    if reply.calls.is_empty() && reply.text.trim().is_empty() {
        return malformed("Your last reply was empty. Call a tool, or give your answer.".to_owned());
    }
    None
}

pub(super) fn reply_arrived(
    run: &Run,
    attempt: AttemptId,
    reply: Reply,
    proposals: Vec<Proposal>,
    judgement: Option<Judgement>,
    jitter: u32,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let Stage::Thinking(thinking) = &run.stage else { return Err(Refusal::Stale) };
    if thinking.attempt != attempt {
        return Err(Refusal::Stale);
    }
    let written = Reservation { output: thinking.reserved.output.min(tokens_of(&reply)), ..thinking.reserved };
    let unusable = unacceptable(&reply, thinking.purpose).or_else(|| program::unusable(run, &reply, thinking.purpose));
    if let Some((class, told)) = unusable {
        let message = match class {
            ModelErrorClass::ContentRefused if reply.text.trim().is_empty() => {
                "The model declined, and did not say why.".to_owned()
            }
            ModelErrorClass::ContentRefused => format!("The model declined: {}", excerpt(&reply.text)),
            ModelErrorClass::Malformed
            | ModelErrorClass::Transient
            | ModelErrorClass::RateLimited
            | ModelErrorClass::Overloaded
            | ModelErrorClass::Quota
            | ModelErrorClass::Authentication
            | ModelErrorClass::BadRequest
            | ModelErrorClass::ContextExhausted
            | ModelErrorClass::Lost
            | ModelErrorClass::Script => told.clone(),
        };
        let failure = ModelFailure {
            class,
            message,
            status: None,
            retry_after_s: None,
            billing: Billing::Perhaps,
            usage: reply.usage,
            partial: Payload::of(&reply).ok(),
            served: None,
        };
        // What was cut may have been as long as was set aside for it.
        let reserved = if reply.finish == Finish::Length { thinking.reserved } else { written };
        return fail(run, thinking, failure, reserved, jitter, now);
    }
    let (usage, settled) = settle(reply.usage, Billing::Perhaps, written);
    let micros = run.model.price.map_or(0, |price| usage.micros(&price));
    let purpose = thinking.purpose;
    let calls = reply.calls.clone();
    let text = reply.text.clone();
    let mut events = vec![Event::ModelReplied(ModelReplied { attempt, reply, usage, settled, micros })];
    match purpose {
        Purpose::Closing => {}
        Purpose::Work if calls.is_empty() => {
            // What arrived meanwhile must be seen before anything counts as the answer; a program's replies are judged where
            // they lead.
            if run.pending.is_empty() && run.course.is_none() {
                let phase = None;
                events.extend(judgement.map(|judgement| match (judgement, finish::unfinished(run, &text)) {
                    (Judgement::Refused(reason), _) => {
                        Event::AnswerRefused(AnswerRefused { attempt, reason, unfinished: None, phase })
                    }
                    (Judgement::Accepted(_), Some((unfinished, reason))) => {
                        Event::AnswerRefused(AnswerRefused { attempt, reason, unfinished: Some(unfinished), phase })
                    }
                    (Judgement::Accepted(accepted), None) => {
                        Event::AnswerAccepted(AnswerAccepted { attempt, accepted })
                    }
                }));
            }
        }
        Purpose::Work => events.extend(propose(run, &calls, proposals, &Proposer::Model)),
    }
    Ok(events)
}

fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}

pub(super) fn settle(reported: Option<Usage>, billing: Billing, reserved: Reservation) -> (Usage, Settled) {
    match (reported, billing) {
        (Some(usage), _) => (usage, Settled::Reported),
        (None, Billing::Nothing) => (Usage::default(), Settled::Reported),
        (None, Billing::Perhaps) => {
            (Usage { input: reserved.input, output: reserved.output, ..Usage::default() }, Settled::Estimated)
        }
    }
}

/// Upper estimate of the tokens of a reply that came whole: its words, its calls, and what its provider sent beside them.
fn tokens_of(reply: &Reply) -> u64 {
    let calls = reply.calls.iter().flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
    let blocks = reply.wired.iter().flat_map(|wired| &wired.blocks);
    let beside = blocks.filter_map(|block| match block {
        WireBlock::Opaque(json) | WireBlock::With(json) | WireBlock::Aside(json) => Some(json.as_str()),
        WireBlock::Text(_) | WireBlock::Call => None,
    });
    let texts = std::iter::once(reply.text.as_str()).chain(calls).chain(beside);
    Estimator::new().upper(&texts.fold(Features::default(), |sum, text| sum + Features::of(text)))
}

pub(super) fn fail_model(
    run: &Run,
    attempt: AttemptId,
    failure: ModelFailure,
    jitter: u32,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let Stage::Thinking(thinking) = &run.stage else { return Err(Refusal::Stale) };
    if thinking.attempt != attempt {
        return Err(Refusal::Stale);
    }
    fail(run, thinking, failure, thinking.reserved, jitter, now)
}

/// `reserved`: what it may have cost at most, if nobody counted.
fn fail(
    run: &Run,
    thinking: &Thinking,
    failure: ModelFailure,
    reserved: Reservation,
    jitter: u32,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let attempt = thinking.attempt;
    let (usage, settled) = match (failure.class, failure.usage) {
        // It broke off while it was counted: what came after the last count, nobody has told.
        (ModelErrorClass::Transient, Some(counted)) if failure.billing == Billing::Perhaps => {
            let output = counted.output.max(reserved.output);
            (Usage { output, ..counted }, Settled::Estimated)
        }
        (_, usage) => settle(usage, failure.billing, reserved),
    };
    let micros = run.model.price.map_or(0, |price| usage.micros(&price));
    let asked = failure.retry_after_s.map(Duration::from_secs).unwrap_or_default();
    // Another try costs little, another model the prompt cache: who has somewhere to go still tries again.
    let has_way_out = route::next(run, failure.class).is_some();
    let tries_max = if has_way_out { ROUTED_FAILURES_MAX } else { MODEL_FAILURES_MAX };
    let mut told = None;
    let next = match failure.class {
        ModelErrorClass::Transient | ModelErrorClass::RateLimited | ModelErrorClass::Overloaded => {
            if thinking.failures + 1 >= tries_max || (has_way_out && asked > ROUTED_WAIT_MAX) {
                AfterFailure::Suspend
            } else {
                let asked = asked.min(RETRY_AFTER_MAX);
                AfterFailure::Retry { at: now.plus(backoff(thinking.failures, jitter).max(asked)) }
            }
        }
        ModelErrorClass::Quota | ModelErrorClass::Authentication | ModelErrorClass::BadRequest => AfterFailure::Suspend,
        // Made smaller and tried again, with another digest each time.
        ModelErrorClass::ContextExhausted if run.window.overflows < OVERFLOWS_MAX => AfterFailure::Retry { at: now },
        ModelErrorClass::ContextExhausted => AfterFailure::ContextExhausted,
        ModelErrorClass::ContentRefused => AfterFailure::Fail(Failure::ModelRefused),
        ModelErrorClass::Malformed => {
            told = Some(failure.message.clone());
            if thinking.malformed + 1 >= MALFORMED_MAX {
                AfterFailure::Fail(Failure::Protocol)
            } else {
                AfterFailure::Retry { at: now }
            }
        }
        ModelErrorClass::Lost => AfterFailure::Retry { at: now },
        ModelErrorClass::Script => AfterFailure::Fail(Failure::Script),
    };
    let (next, routed) = match next {
        AfterFailure::Retry { .. } => (next, None),
        // The same request goes to the next model; what there is of this reply was a candidate and stays one.
        AfterFailure::Suspend | AfterFailure::Fail(_) | AfterFailure::ContextExhausted => {
            match route::way_out(run, failure.class, &failure.message, Some(asked), now) {
                Some(routed) => (AfterFailure::Retry { at: now }, Some(Event::ModelRouted(routed))),
                None => (next, None),
            }
        }
    };
    let failed = Event::ModelFailed(ModelFailed {
        attempt,
        class: failure.class,
        message: failure.message,
        status: failure.status,
        told,
        usage,
        settled,
        micros,
        next,
        partial: failure.partial,
        served: failure.served,
    });
    Ok(std::iter::once(failed).chain(routed).collect())
}

/// Doubling waits, spread over half their length so that many runs do not come back together.
pub(crate) fn backoff(failures: u32, jitter: u32) -> Duration {
    let whole = BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    let half = whole / 2;
    half + half.mul_f64(f64::from(jitter % 1000) / 1000.0)
}
