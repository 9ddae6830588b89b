//! What follows from what a recovery found out about an attempt whose end nobody saw (`semantics.md` D5, D7).

use super::calls::backoff;
use super::{ATTEMPTS_MAX, PROBES_MAX, Refusal, finish_events, unknown};
use crate::action::{Action, Doubt, Life};
use crate::event::{ActionProbed, ActionRequeued, Event, How, Requeue};
use crate::ids::ActionId;
use crate::outcome::{Outcome, ProbeAnswer, ToolError, class};
use crate::run::Run;
use crate::task::EffectClass;
use crate::time::Timestamp;

/// Recovery found all it can this time (`semantics.md` D5, D7).
pub(super) fn recover(
    run: &Run,
    id: ActionId,
    attempt: u32,
    probe: Option<ProbeAnswer>,
    jitter: u32,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let action = run.action(id).filter(|action| action.attempts == attempt).ok_or(Refusal::Stale)?;
    let (doubt, own_error) = match &action.life {
        Life::Lost(doubt) => (doubt, None),
        Life::Doubtful(doubt, error) => (doubt, Some(error)),
        Life::Queued | Life::Held { .. } | Life::Started { .. } | Life::Unknown(_) | Life::Ended(_) => {
            return Err(Refusal::Stale);
        }
    };
    let requeue =
        |why: Requeue| vec![Event::ActionRequeued(ActionRequeued { action: id, why, from: None, error: None })];
    match action.effect {
        EffectClass::Read if run.winding.is_some() => {
            let error = ToolError::new(class::CANCELLED, "Given up: the run is being brought to rest.");
            Ok(finish_events(run, action, Outcome::Error(error), How::Recovered, 0))
        }
        EffectClass::Read => {
            let why = if own_error.is_some() { Requeue::MayPass } else { Requeue::Read };
            Ok(requeue(why))
        }
        EffectClass::Workspace => Ok(recover_workspace(run, action, probe)),
        EffectClass::External => Ok(recover_external(run, action, doubt, own_error, probe, jitter, now)),
    }
}

/// A lost change of one file is found done or not done by the file itself; of anything else nothing is certain.
fn recover_workspace(run: &Run, action: &Action, probe: Option<ProbeAnswer>) -> Vec<Event> {
    let told = |more: String| {
        let error = unknown(action, &more).hint("Look at the files it works on before you go on.");
        finish_events(run, action, Outcome::Error(error), How::Recovered, 0)
    };
    match probe {
        Some(ProbeAnswer::TookEffect(result)) => finish_events(run, action, Outcome::Done(result), How::Recovered, 0),
        Some(ProbeAnswer::NoEffect) if run.winding.is_some() => {
            let error = ToolError::new(class::CANCELLED, "Given up before it changed anything.");
            finish_events(run, action, Outcome::Error(error), How::Recovered, 0)
        }
        Some(ProbeAnswer::NoEffect) if action.attempts < ATTEMPTS_MAX => {
            vec![Event::ActionRequeued(ActionRequeued {
                action: action.id,
                why: Requeue::NoEffect,
                from: None,
                error: None,
            })]
        }
        Some(ProbeAnswer::NoEffect) => {
            let error =
                ToolError::new(class::UNAVAILABLE, "It was started and cut off again and again; nothing was changed.");
            finish_events(run, action, Outcome::Error(error), How::Recovered, 0)
        }
        Some(ProbeAnswer::NoAnswer(why)) => told(format!("completely: {why}")),
        None => told("completely: its process was cut off".to_owned()),
    }
}

fn recover_external(
    run: &Run,
    action: &Action,
    doubt: &Doubt,
    own_error: Option<&ToolError>,
    probe: Option<ProbeAnswer>,
    jitter: u32,
    now: Timestamp,
) -> Vec<Event> {
    let requeue =
        |why: Requeue| vec![Event::ActionRequeued(ActionRequeued { action: action.id, why, from: None, error: None })];
    let tries_left = action.attempts < ATTEMPTS_MAX && run.winding.is_none();
    let within_promise = run
        .task
        .tool(&action.tool)
        .and_then(|tool| tool.idempotent)
        .zip(action.first_start)
        .is_some_and(|(promise, first)| now < first.plus(promise));
    let stays_unknown = || {
        let error = own_error.cloned().unwrap_or_else(|| unknown(action, "completely: its process was cut off"));
        finish_events(run, action, Outcome::Unknown(error), How::Recovered, 0)
    };
    let without_answer = || if within_promise && tries_left { requeue(Requeue::Idempotent) } else { stays_unknown() };
    match probe {
        Some(ProbeAnswer::TookEffect(result)) => finish_events(run, action, Outcome::Done(result), How::Reconciled, 0),
        Some(ProbeAnswer::NoEffect) => match own_error {
            Some(error) => {
                // Its own words, but no longer those of something unknown.
                let said = error.message.trim_end().trim_end_matches('.');
                let message = format!("{said}. It was looked into: it did not take effect.");
                let error = ToolError { class: class::EXIT.to_owned(), message, hint: None, ..error.clone() };
                finish_events(run, action, Outcome::NotDone(error), How::Reconciled, 0)
            }
            None if tries_left => requeue(Requeue::NoEffect),
            None => {
                let error = ToolError::new(
                    class::UNAVAILABLE,
                    format!("{} was cut off {} times and never took effect.", action.tool, action.attempts),
                );
                finish_events(run, action, Outcome::NotDone(error), How::Reconciled, 0)
            }
        },
        Some(answer @ ProbeAnswer::NoAnswer(_)) => {
            let again = doubt.probes + 1 < PROBES_MAX && run.winding.is_none();
            let retry_at = again.then(|| now.plus(backoff(doubt.probes + 1, jitter)));
            let mut events = vec![Event::ActionProbed(ActionProbed {
                action: action.id,
                attempt: action.attempts,
                answer,
                retry_at,
            })];
            if !again {
                events.extend(without_answer());
            }
            events
        }
        None => without_answer(),
    }
}
