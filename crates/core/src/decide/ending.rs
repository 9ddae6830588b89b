//! How a run ends, and what people are told of it.

use super::MALFORMED_MAX;
use crate::budget::{BudgetKind, Limit};
use crate::event::{End, Event, Failure, RunEnded};
use crate::owed;
use crate::program::At;
use crate::repeat;
use crate::run::{Closing, Run, Stage};
use crate::task::Mode;

pub(super) fn conclude(run: &Run, end: End) -> Event {
    let reason = match &end {
        End::Done(done) => match done.verified {
            Some(true) => "every check passed".to_owned(),
            Some(false) if run.changed_checks().is_none() => unaccounted(run),
            Some(false) => accepted_by(run),
            None if no_check_was_run(run) => {
                "in plan mode nothing may be changed, so the acceptance checks were not run; it is the model's word"
                    .to_owned()
            }
            None if has_opinion(run) => "a model's opinion speaks for it, and no proof".to_owned(),
            None => "nothing was asked for but the answer; it is the model's word".to_owned(),
        },
        End::Exhausted(budget) => exhausted_reason(run, *budget),
        End::Failed(failure) => failure_reason(run, *failure),
        End::ContextExhausted => format!("the conversation no longer fits the model's window: {}", detail(run)),
        End::Cancelled => "cancelled by the operator".to_owned(),
    };
    let remark = match (&run.closing, &run.stage) {
        (Closing::Over(_, remark), _) => remark.clone(),
        // What it says of work that was not done is no answer.
        (Closing::NotYet | Closing::Owed(_), Stage::Verifying { accepted, .. }) if run.mode == Mode::Shadow => {
            Some(accepted.rendered.clone())
        }
        (Closing::NotYet | Closing::Owed(_), _) => None,
    };
    ended(run, end, reason, remark)
}

/// What is left of calls whose check said no.
fn unaccounted(run: &Run) -> String {
    let ids: Vec<_> = run.unproven.iter().map(ToString::to_string).collect();
    format!(
        "the checks passed, but {} acted on the world, failed the check of its own, and was not undone",
        ids.join(", ")
    )
}

/// Who took the work though what it is checked by was changed.
fn accepted_by(run: &Run) -> String {
    let by = run.waived.as_ref().map_or("somebody", |waived| &waived.by);
    format!("the checks passed, but what they check by was changed meanwhile; {by} accepted that")
}

fn no_check_was_run(run: &Run) -> bool {
    match &run.stage {
        Stage::Verifying { verdicts, .. } => owed::checks_were_not_run(run, verdicts),
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => false,
    }
}

fn has_opinion(run: &Run) -> bool {
    match &run.stage {
        Stage::Verifying { verdicts, .. } => verdicts.values().flatten().any(|verdict| verdict.proof.opinion.is_some()),
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => false,
    }
}

fn exhausted_reason(run: &Run, budget: BudgetKind) -> String {
    let of = |used: u64, limit: Limit, unit: &str| match limit {
        Limit::At(limit) => format!("{used} of {limit} {unit} are used, and the next call does not fit what is left"),
        Limit::Unlimited => format!("{used} {unit} are used"),
    };
    match budget {
        BudgetKind::Deadline => "the deadline has passed".to_owned(),
        BudgetKind::Tokens => of(run.spent.usage.tokens(), run.limits.tokens, "tokens"),
        BudgetKind::Usd => of(run.spent.micros, run.limits.micros, "micro-dollars"),
        BudgetKind::Turns | BudgetKind::ModelCalls | BudgetKind::ToolCalls | BudgetKind::Time => {
            format!("the budget of {budget} is used up")
        }
    }
}

fn detail(run: &Run) -> &str {
    match &run.stage {
        Stage::Ready(ready) => &ready.detail,
        Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => "",
    }
}

fn failure_reason(run: &Run, failure: Failure) -> String {
    match failure {
        Failure::Checks if !detail(run).is_empty() => detail(run).to_owned(),
        Failure::Checks => format!("the acceptance checks did not pass in {} rounds", run.failed_rounds),
        Failure::Answer => match (&run.course, run.phase()) {
            (Some(course), Some(phase)) if run.answer_refusals < owed::ANSWER_REFUSALS_MAX => {
                format!("the reply to the phase {} was refused {} times", phase.name, course.refusals)
            }
            (Some(_) | None, _) => format!("the answer was refused {} times", run.answer_refusals),
        },
        Failure::Protocol => format!("the model broke the protocol {MALFORMED_MAX} times in one turn: {}", detail(run)),
        Failure::ModelRefused => format!("the model or its provider declined: {}", detail(run)),
        Failure::Poisoned => "attempts to go on with this run died again and again".to_owned(),
        Failure::NoProgress => detail(run).to_owned(),
        Failure::Shadow => shadow_reason(run),
        Failure::Hook if run.hooks.goal_blocked => format!("a hook did not let the goal through: {}", run.hooks.last),
        Failure::Hook if run.winding.is_some() => format!("a hook stops the run: {}", run.hooks.last),
        Failure::Hook => {
            format!("hooks refused the answer {} times in a row: {}", run.hooks.stop_blocks, run.hooks.last)
        }
        Failure::Loop => repeat::reason(run),
        Failure::Incomplete => {
            let open = run.finish.over.as_deref().unwrap_or("something it had begun is open");
            format!("the model answered twice as if it were done, and it is not: {open}. Send it a message to go on")
        }
        Failure::Program => program_reason(run),
        Failure::Script => format!("the script does not fit the run: {}", detail(run)),
    }
}

fn program_reason(run: &Run) -> String {
    match run.course.as_ref().map(|course| &course.at) {
        Some(At::Failed { reason }) => reason.clone(),
        Some(
            At::Finished
            | At::Start
            | At::Working { .. }
            | At::Proposing
            | At::Calling { .. }
            | At::Checking { .. }
            | At::Children { .. }
            | At::Over(_),
        )
        | None => "its program is through, and no phase of it can take this up; start a new run".to_owned(),
    }
}

/// What a shadow run comes to.
fn shadow_reason(run: &Run) -> String {
    let would = &run.would;
    let calls = match would.count() {
        0 => "it made no call but reads".to_owned(),
        1 => "1 call was not executed".to_owned(),
        count => format!("{count} calls were not executed"),
    };
    let by: Vec<_> = [(&would.allowed, "allowed"), (&would.asked, "asked about"), (&would.denied, "denied")]
        .into_iter()
        .filter(|(ids, _)| !ids.is_empty())
        .map(|(ids, word)| format!("{} would have been {word}", ids.len()))
        .collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let checks = if run.task.acceptance.is_empty() { "" } else { "; the acceptance checks were not run" };
    format!("shadow mode: {calls}{by}, so nothing is done{checks}")
}

pub(super) fn ended(run: &Run, end: End, reason: String, remark: Option<String>) -> Event {
    let (done, undone, unknown) = owed::effects(run);
    Event::RunEnded(Box::new(RunEnded { end, reason, remark, done, undone, unknown, would: run.would.clone() }))
}
