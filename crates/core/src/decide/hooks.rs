//! What follows from what hooks said: strictest wins, and silence is a no.

use super::*;
use crate::event::HookFinished;
use crate::hook::{self, Heard, HookEvent, HookOutcome, HookRan, Moment};

/// What hooks have to say about a start.
pub(super) enum Say {
    /// Nothing against it.
    Pass,
    /// A person is to be asked.
    Ask { rule: String, reason: String },
    /// No.
    Refuse(ToolError),
}

/// What all hooks say of a start, with the events that record it. Err: they have to be asked first.
pub(super) fn of_start(run: &Run, action: &Action, heard: Heard) -> Result<(Vec<Event>, Say), Refusal> {
    let moment = Moment::Before { action: action.id, attempt: action.attempts + 1 };
    let told = hook::told(run, &moment);
    if told.is_empty() {
        return Ok((Vec::new(), Say::Pass));
    }
    let Heard::Asked(ran) = heard else { return Err(Refusal::HooksFirst) };
    let ran = complete(&told, ran);
    let against: Vec<&HookRan> = ran.iter().filter(|ran| is_no(&ran.outcome)).collect();
    let say = if let Some(first) = against.first() {
        let all: Vec<_> = against.iter().map(|ran| in_words(run, ran)).collect();
        let hint = match &first.outcome {
            HookOutcome::Failed { .. } => {
                "This is no fault of the call: a hook that fails denies. Go on without it, or say that the hook needs \
                 mending."
            }
            HookOutcome::Passed
            | HookOutcome::Asked { .. }
            | HookOutcome::Blocked { .. }
            | HookOutcome::Halted { .. } => "Do not repeat the call unchanged; go on without it, or do it another way.",
        };
        Say::Refuse(ToolError::new(class::HOOK, format!("Not run: {}", all.join(" "))).hint(hint))
    } else {
        let asking = ran.iter().find(|ran| matches!(ran.outcome, HookOutcome::Asked { .. }));
        asking.map_or(Say::Pass, |ran| Say::Ask {
            rule: format!("hook {}", label(run, ran.hook)),
            reason: ran.outcome.reason().unwrap_or_default().to_owned(),
        })
    };
    Ok((recorded(run, &moment, ran), say))
}

/// What hooks say of a message: the events that record it, and why it is not taken. Err: they have to be asked first.
pub(super) fn of_message(
    run: &Run,
    input: &InputId,
    heard: Heard,
) -> Result<(Vec<Event>, Result<(), String>), Refusal> {
    let moment = Moment::Message { input: input.clone() };
    let told = hook::told(run, &moment);
    if told.is_empty() {
        return Ok((Vec::new(), Ok(())));
    }
    if run.winding.is_some() {
        return Ok((Vec::new(), Err("the run is being brought to rest, and hooks are not asked any more".to_owned())));
    }
    let Heard::Asked(ran) = heard else { return Err(Refusal::HooksFirst) };
    let ran = complete(&told, ran);
    let reason = against(run, &ran);
    Ok((recorded(run, &moment, ran), reason.map_or(Ok(()), Err)))
}

/// Hooks were told of something that the run waits for, or only lets them know.
pub(super) fn take(run: &Run, moment: Moment, ran: Vec<HookRan>) -> Result<Vec<Event>, Refusal> {
    let told = hook::told(run, &moment);
    match &moment {
        Moment::Goal | Moment::Stop { .. } | Moment::End => {
            if hook::due(run).as_ref() != Some(&moment) {
                return Err(Refusal::Stale);
            }
        }
        Moment::After { .. } | Moment::Rebuild { .. } => {
            if matches!(run.stage, Stage::Rest(_)) || told.is_empty() {
                return Err(Refusal::Stale);
            }
        }
        // They come with the start and with the message.
        Moment::Before { .. } | Moment::Message { .. } => return Err(Refusal::Stale),
    }
    let ran = complete(&told, ran);
    let reason = against(run, &ran);
    let mut events = recorded(run, &moment, ran);
    if let (Moment::Stop { .. }, Some(reason), Some(stop)) = (&moment, reason, &run.hooks.stop) {
        let attempt = stop.attempt;
        events.push(Event::AnswerRefused(AnswerRefused { attempt, reason, unfinished: None, phase: None }));
    }
    Ok(events)
}

/// A word of every hook that was to be told, in order: who said nothing has failed.
fn complete(told: &BTreeSet<u32>, ran: Vec<HookRan>) -> Vec<HookRan> {
    let mut by_hook: BTreeMap<u32, HookRan> = ran.into_iter().map(|ran| (ran.hook, ran)).collect();
    let silent = |hook| HookRan {
        hook,
        outcome: HookOutcome::Failed { reason: "it was not run".to_owned() },
        words: None,
        took_ms: 0,
    };
    told.iter().map(|hook| by_hook.remove(hook).unwrap_or_else(|| silent(*hook))).collect()
}

fn is_no(outcome: &HookOutcome) -> bool {
    match outcome {
        HookOutcome::Passed | HookOutcome::Asked { .. } => false,
        HookOutcome::Blocked { .. } | HookOutcome::Halted { .. } | HookOutcome::Failed { .. } => true,
    }
}

/// Everything that is not a plain pass, where nobody is asked.
fn against(run: &Run, ran: &[HookRan]) -> Option<String> {
    let all: Vec<_> = ran.iter().filter(|ran| ran.outcome.reason().is_some()).map(|ran| in_words(run, ran)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

fn label(run: &Run, hook: u32) -> String {
    run.task.hooks.get(hook as usize).map_or_else(|| format!("#{hook}"), hook::HookSpec::label)
}

fn in_words(run: &Run, ran: &HookRan) -> String {
    let verb = match &ran.outcome {
        HookOutcome::Failed { .. } => "failed",
        HookOutcome::Halted { .. } => "stops the run",
        HookOutcome::Passed | HookOutcome::Asked { .. } | HookOutcome::Blocked { .. } => "says no",
    };
    let reason = ran.outcome.reason().unwrap_or_default();
    format!("the hook `{}` {verb}: {reason}", label(run, ran.hook))
}

fn recorded(run: &Run, moment: &Moment, ran: Vec<HookRan>) -> Vec<Event> {
    let (action, input) = match moment {
        Moment::Before { action, .. } | Moment::After { action, .. } => (Some(*action), None),
        Moment::Message { input } => (None, Some(input.clone())),
        Moment::Goal | Moment::Stop { .. } | Moment::Rebuild { .. } | Moment::End => (None, None),
    };
    let event: HookEvent = moment.event();
    ran.into_iter()
        .map(|ran| {
            Event::HookFinished(HookFinished {
                hook: ran.hook,
                event,
                command: label(run, ran.hook),
                outcome: ran.outcome,
                words: ran.words,
                took_ms: ran.took_ms,
                action,
                input: input.clone(),
            })
        })
        .collect()
}
