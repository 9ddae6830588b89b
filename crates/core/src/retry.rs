//! What an error means for another try. Classes are words that tools choose; here is what each of them comes to, what the
//! model is told of it, and when the harness tries a read again by itself. Only what may pass is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::decide::{ATTEMPTS_MAX, BACKOFF_MAX, backoff};
use crate::outcome::{ModelErrorClass, ToolError, class};
use crate::run::Run;
use crate::task::EffectClass;
use crate::time::{Timestamp, millis};

/// What kind of failure an error is, whoever reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Too many requests.
    RateLimited,
    /// It is not there at the moment.
    Unavailable,
    /// It took too long.
    Timeout,
    /// The arguments are wrong.
    InvalidArgument,
    /// Something else must hold first.
    PreconditionFailed,
    /// What is asked for does not exist.
    NotFound,
    /// Whoever asks may not.
    NotAuthorized,
    /// It contradicts what is there.
    Conflict,
    /// It cannot be told whether it happened.
    UnknownOutcome,
    /// Anything else.
    Internal,
}

impl ErrorClass {
    /// The class of a tool's word. A word that nobody knows is kept as it is, and means no more than that it failed.
    pub fn of(word: &str) -> Self {
        match word {
            class::RATE_LIMITED => ErrorClass::RateLimited,
            class::UNAVAILABLE => ErrorClass::Unavailable,
            class::TIMEOUT => ErrorClass::Timeout,
            class::INVALID_ARGUMENT | class::INVALID_ARGUMENTS | class::EVIDENCE => ErrorClass::InvalidArgument,
            class::PRECONDITION_FAILED
            | class::MISSING_FACT
            | class::GUARD
            | class::DEPENDENCY
            | class::BUDGET
            | class::LOOP => ErrorClass::PreconditionFailed,
            class::NOT_FOUND | class::UNKNOWN_TOOL => ErrorClass::NotFound,
            class::NOT_AUTHORIZED | class::DENIED | class::HOOK | class::SHADOW => ErrorClass::NotAuthorized,
            class::CONFLICT => ErrorClass::Conflict,
            class::UNKNOWN_OUTCOME => ErrorClass::UnknownOutcome,
            _ => ErrorClass::Internal,
        }
    }

    /// The same of a model call.
    pub fn of_model(failure: ModelErrorClass) -> Self {
        match failure {
            ModelErrorClass::RateLimited => ErrorClass::RateLimited,
            ModelErrorClass::Transient | ModelErrorClass::Overloaded => ErrorClass::Unavailable,
            ModelErrorClass::Quota => ErrorClass::PreconditionFailed,
            ModelErrorClass::Authentication | ModelErrorClass::ContentRefused => ErrorClass::NotAuthorized,
            ModelErrorClass::BadRequest | ModelErrorClass::ContextExhausted => ErrorClass::InvalidArgument,
            ModelErrorClass::Lost => ErrorClass::UnknownOutcome,
            ModelErrorClass::Malformed | ModelErrorClass::Script => ErrorClass::Internal,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::RateLimited => class::RATE_LIMITED,
            ErrorClass::Unavailable => class::UNAVAILABLE,
            ErrorClass::Timeout => class::TIMEOUT,
            ErrorClass::InvalidArgument => class::INVALID_ARGUMENT,
            ErrorClass::PreconditionFailed => class::PRECONDITION_FAILED,
            ErrorClass::NotFound => class::NOT_FOUND,
            ErrorClass::NotAuthorized => class::NOT_AUTHORIZED,
            ErrorClass::Conflict => class::CONFLICT,
            ErrorClass::UnknownOutcome => class::UNKNOWN_OUTCOME,
            ErrorClass::Internal => class::INTERNAL,
        }
    }

    /// Whether the very same may go well another time.
    pub fn may_pass(self) -> bool {
        match self {
            ErrorClass::RateLimited | ErrorClass::Unavailable | ErrorClass::Timeout => true,
            ErrorClass::InvalidArgument
            | ErrorClass::PreconditionFailed
            | ErrorClass::NotFound
            | ErrorClass::NotAuthorized
            | ErrorClass::Conflict
            | ErrorClass::UnknownOutcome
            | ErrorClass::Internal => false,
        }
    }

    /// What whoever made the call should do. None: nobody can tell.
    fn advice(self, retry_after_s: Option<u64>) -> Option<String> {
        let not = |what: &str| Some(format!("It will not pass unchanged: {what}"));
        match (self.may_pass(), self) {
            (true, _) => Some(match retry_after_s {
                Some(seconds) => format!("It may pass: try again after {seconds} s."),
                None => "It may pass: try again later.".to_owned(),
            }),
            (false, ErrorClass::InvalidArgument) => not("change what the error names."),
            (false, ErrorClass::PreconditionFailed) => not("see to what must hold first."),
            (false, ErrorClass::NotFound) => not("look for what there is."),
            (false, ErrorClass::NotAuthorized) => not("go on without it, and say so."),
            (false, ErrorClass::Conflict) => not("look at how things stand now, and decide anew."),
            // An effect has words of its own.
            (
                false,
                ErrorClass::UnknownOutcome
                | ErrorClass::Internal
                | ErrorClass::RateLimited
                | ErrorClass::Unavailable
                | ErrorClass::Timeout,
            ) => None,
        }
    }
}

/// A tool's error as the model is told it: with a word on another try, and on those that were made. What the tool itself
/// advises comes first.
pub(crate) fn advised(error: ToolError, attempts: u32) -> ToolError {
    let kind = ErrorClass::of(&error.class);
    let has_own = error.hint.is_some();
    let advice = kind.advice(error.retry_after_s).filter(|_| !has_own || kind.may_pass());
    let tried = (kind.may_pass() && attempts > 1).then(|| format!("It was tried {attempts} times."));
    let words: Vec<_> = error.hint.iter().cloned().chain(tried).chain(advice).collect();
    let hint = (!words.is_empty()).then(|| words.join(" "));
    ToolError { hint, ..error }
}

/// When a read that failed is tried again without asking the model. None: it is told.
pub(crate) fn read_again(run: &Run, action: &Action, error: &ToolError, now: Timestamp) -> Option<Timestamp> {
    let costs = run.task.tool(&action.tool).is_some_and(|tool| tool.cost_micros > 0);
    let is_bounded = action.effect == EffectClass::Read && action.attempts < ATTEMPTS_MAX && !costs;
    // What used up all the time it may take would do so again.
    if !is_bounded || error.cut || run.winding.is_some() || !ErrorClass::of(&error.class).may_pass() {
        return None;
    }
    // Spread by the action's number: several reads of one reply that were too many at once do not come back at once.
    let wait = backoff(action.attempts - 1, action.id.0.wrapping_mul(389));
    let wait = wait.max(error.retry_after_s.map(Duration::from_secs).unwrap_or_default());
    // Whoever is asked to wait longer than that has something better to do.
    let at = now.plus(wait);
    let in_time = run.limits.time_ms.left(run.time_used(now)) > millis(wait)
        && run.limits.deadline.is_none_or(|deadline| at < deadline);
    (wait <= BACKOFF_MAX && in_time).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_nobody_knows_means_that_it_failed_and_no_more() {
        let told = advised(ToolError::new("flux_capacitor", "no flux"), 1);
        assert_eq!((ErrorClass::of(&told.class), told.class.as_str()), (ErrorClass::Internal, "flux_capacitor"));
        assert_eq!(told.hint, None);
    }

    #[test]
    fn advice_says_whether_another_try_can_help() {
        let hint = |class: &str, after: Option<u64>, own: Option<&str>| {
            let error = ToolError { retry_after_s: after, hint: own.map(str::to_owned), ..ToolError::new(class, "no") };
            advised(error, 2).hint.unwrap_or_default()
        };
        assert_eq!(hint("rate_limited", Some(9), None), "It was tried 2 times. It may pass: try again after 9 s.");
        assert_eq!(
            hint("unavailable", None, Some("Ask Bob.")),
            "Ask Bob. It was tried 2 times. It may pass: try again later."
        );
        assert_eq!(hint("not_found", None, None), "It will not pass unchanged: look for what there is.");
        assert_eq!(hint("conflict", None, Some("Ask Bob.")), "Ask Bob.");
    }

    #[test]
    fn every_class_is_found_by_its_word() {
        use ErrorClass::*;
        for class in [
            RateLimited,
            Unavailable,
            Timeout,
            InvalidArgument,
            PreconditionFailed,
            NotFound,
            NotAuthorized,
            Conflict,
            UnknownOutcome,
            Internal,
        ] {
            assert_eq!(ErrorClass::of(class.as_str()), class);
        }
    }
}
