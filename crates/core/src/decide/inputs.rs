//! What people, workers and other runs have sent, taken into the run.

use super::*;
use crate::action::Ended;
use crate::image::ImageRef;
use crate::input::{Covers, Door};
use crate::program::yes_or_no;

pub(super) fn take_input(run: &Run, input: Input, heard: Heard, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let id = input.id.clone();
    let refused = |reason| Event::InputRefused(InputRefused { input: id.clone(), reason });
    let is_message = matches!(input.body, InputBody::Message(_));
    // What is not taken anyway, hooks need not hear.
    let events = match answer_input(run, input, now) {
        Ok(events) => events,
        Err(reason) => return Ok(vec![refused(reason)]),
    };
    if !is_message {
        return Ok(events);
    }
    let (mut all, said) = hooks::of_message(run, &id, heard)?;
    match said {
        Ok(()) => all.extend(events),
        Err(reason) => all.push(refused(reason)),
    }
    Ok(all)
}

fn answer_input(run: &Run, input: Input, now: Timestamp) -> Result<Vec<Event>, String> {
    let Input { id: input, at, body, images } = input;
    let cancelled = match &run.stage {
        Stage::Rest(ended) => ended.end == End::Cancelled,
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
    };
    let open_door = || if cancelled { Err("the run was cancelled; start a new one".to_owned()) } else { Ok(()) };
    // Its end was taken by its parent, and what it may spend is settled.
    let of_parent = || match (&run.descent, &run.stage) {
        (Some(descent), Stage::Rest(_)) => {
            Err(format!("the run has ended, and its parent {} has its result; write to that one", descent.parent))
        }
        (Some(_) | None, _) => Ok(()),
    };
    match body {
        InputBody::Message(text) => {
            open_door()?;
            of_parent()?;
            if run.hooks.goal_blocked {
                return Err(format!("the goal was not let through: {}; start a new run", run.hooks.last));
            }
            let asking = longest_asking(run).filter(|action| !action.asks().is_some_and(|asks| asks.is_expired(at)));
            if let Some(action) = asking.filter(|action| program::wants_yes_or_no(run, action))
                && yes_or_no(&text).is_none()
            {
                return Err(format!("{} wants yes or no", action.id));
            }
            Ok(match asking {
                Some(action) => words_arrived(run, action, input, &text, images),
                None => vec![Event::InputReceived(InputReceived { input, body: Received::Message(text), images })],
            })
        }
        InputBody::Cancel => match &run.stage {
            Stage::Rest(ended) => Err(format!("the run has ended already: {}", ended.end.state())),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => {
                Ok(vec![Event::InputReceived(InputReceived { input, body: Received::Cancel, images: Vec::new() })])
            }
        },
        InputBody::Approve(approve) => {
            let question = held_question(run, approve.action, &approve.digest)?;
            match &question.wants {
                Wants::Yes => {}
                Wants::Typed(text) => {
                    let is_typed =
                        matches!(approve.door, Door::Terminal | Door::Cli) && approve.typed.as_ref() == Some(text);
                    if !is_typed || approve.covers == Covers::Always {
                        return Err(format!(
                            "{} would send out what this run has read: a person confirms it at a terminal (longrein approve), once, by \
                             typing {text}",
                            approve.action
                        ));
                    }
                }
                Wants::Words => {
                    return Err(format!(
                        "{} asks a question; a yes is no answer to it: send a message",
                        approve.action
                    ));
                }
            }
            // In time is what was said in time, however late it is taken.
            if let Some(expired) = question.expires.filter(|_| question.is_expired(at)) {
                return Err(format!(
                    "the question of {} expired at {expired}, unanswered, which counts as no answer; this yes comes too late",
                    approve.action
                ));
            }
            if approve.expires <= now {
                return Err(format!("the approval of {} has expired; approve it again", approve.action));
            }
            Ok(vec![Event::ActionApproved(ActionApproved {
                action: approve.action,
                input,
                digest: approve.digest,
                by: approve.by,
                door: approve.door,
                expires: approve.expires,
                covers: approve.covers,
                reason: approve.reason,
                typed: approve.typed,
            })])
        }
        InputBody::Deny(deny) => {
            held_question(run, deny.action, &deny.digest)?;
            Ok(vec![Event::ActionDenied(ActionDenied {
                action: deny.action,
                by: deny.by,
                reason: deny.reason,
                no: No::Person { input, door: Some(deny.door) },
            })])
        }
        InputBody::Settle(settle) => {
            let action = run
                .action(settle.action)
                .filter(|action| action.is_uncertain())
                .ok_or_else(|| format!("the outcome of {} is not unknown (any more)", settle.action))?;
            let mut events = vec![Event::ActionSettled(ActionSettled {
                action: settle.action,
                truth: settle.truth.clone(),
                by: SettledBy::Person { input, by: settle.by },
                brings: Vec::new(),
            })];
            events.extend(settled_facts(run, action, &settle.truth));
            Ok(events)
        }
        InputBody::LateOutcome(late) => Ok(late_outcome(run, input, late)),
        InputBody::Raise(raise) => {
            open_door()?;
            if let Some(descent) = &run.descent {
                return Err(format!("its budget is a part of that of run {}; raise that one", descent.root));
            }
            if raise.is_nothing() {
                return Err("nothing to raise".to_owned());
            }
            Ok(vec![Event::BudgetRaised(BudgetRaised { input, raise })])
        }
        InputBody::SwitchModel(model) => {
            open_door()?;
            of_parent()?;
            let in_flight = matches!(run.stage, Stage::Thinking(_));
            if in_flight {
                return Err("a model call is in flight; switch when it has ended".to_owned());
            }
            Ok(vec![Event::ModelSwitched(ModelSwitched { input, model })])
        }
        // What comes of it is told by whoever did it.
        InputBody::Rollback(_) => Err("the workspace is set back only where it can be reached".to_owned()),
        InputBody::Endorse(endorse) => {
            open_door()?;
            if !run.taint.sources.contains_key(&endorse.source) {
                return Err(format!("{} does not taint this run (any more)", endorse.source));
            }
            let Endorse { source, by, door } = endorse;
            Ok(vec![Event::SourceEndorsed(SourceEndorsed { input, source, by, door })])
        }
        InputBody::ChildEnded(report) => children::report_arrived(run, input, *report),
    }
}

/// The action that has been waiting longest for a person's words, while it may still use them.
fn longest_asking(run: &Run) -> Option<&Action> {
    if run.winding.is_some() {
        return None;
    }
    run.actions()
        .filter_map(|action| Some((action.asks()?.since, action)))
        .min_by_key(|(since, _)| *since)
        .map(|(_, action)| action)
}

/// A message that answers what an action asks: it is the action's result, and not shown a second time.
fn words_arrived(run: &Run, action: &Action, input: InputId, text: &str, images: Vec<ImageRef>) -> Vec<Event> {
    let mut events = vec![Event::InputReceived(InputReceived { input, body: Received::Answer(action.id), images })];
    let words = Outcome::Done(Content::Inline(Payload::string(text)));
    events.extend(finish_events(run, action, words, How::Answered, 0));
    events
}

fn held_question<'a>(run: &'a Run, action: ActionId, asked: &Digest) -> Result<&'a Question, String> {
    match run.action(action).map(|action| &action.life) {
        Some(Life::Held(question)) if question.digest == *asked => Ok(question),
        Some(Life::Held(_)) => {
            Err(format!("what {action} would do has changed since the question was shown; look again and answer again"))
        }
        // how it ended may be why: its question expired
        Some(Life::Ended(Ended::Refused(error))) => {
            Err(format!("{action} does not wait for an approval any more: {}", error.message))
        }
        Some(
            Life::Queued
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Unknown(_)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Ended(Ended::Done { .. } | Ended::Error(_) | Ended::NotDone(_)),
        )
        | None => Err(format!("{action} does not wait for an approval (any more)")),
    }
}

fn late_outcome(run: &Run, input: InputId, late: LateOutcome) -> Vec<Event> {
    let doubted = run.action(late.action).filter(|action| action.is_uncertain() && action.attempts == late.attempt);
    let truth = match &late.outcome {
        Outcome::Done(result) => Some(Truth::Done(result.clone())),
        Outcome::NotDone(_) if !doubted.is_some_and(|action| action.in_doubt) => Some(Truth::NotDone),
        Outcome::NotDone(_) | Outcome::Error(_) | Outcome::Unknown(_) => None,
    };
    match (doubted, truth) {
        (Some(action), Some(truth)) => {
            let mut events = settled_facts(run, action, &truth);
            events.insert(
                0,
                Event::ActionSettled(ActionSettled {
                    action: late.action,
                    truth,
                    by: SettledBy::LateOutcome { input },
                    brings: late.brings,
                }),
            );
            events
        }
        (Some(_), None) | (None, _) => {
            vec![Event::InputReceived(InputReceived { input, body: Received::LateOutcome(late), images: Vec::new() })]
        }
    }
}

pub(super) fn settled_facts(run: &Run, action: &Action, truth: &Truth) -> Vec<Event> {
    let mut events = void_facts_if(run, writes(action));
    match truth {
        Truth::Done(_) if run.has_check(action.id) && !run.open.contains_key(&action.id) => {}
        Truth::Done(_) => events.extend(set_facts(run, action)),
        Truth::NotDone => {}
    }
    events
}
