//! Which blobs an event, an input or a key row refers to. Walks the types, not the JSON: a tool's own output may look
//! like a reference and is none.

use longrein_core::event::{Event, Received};
use longrein_core::ids::Digest;
use longrein_core::image::ImageRef;
use longrein_core::input::{Input, InputBody, LateOutcome, Truth};
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError};
use longrein_core::payload::Content;
use longrein_core::program::Phases;
use longrein_ports::KeyState;

/// A blob that must be there, whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Referred<'a> {
    pub(crate) digest: &'a Digest,
    pub(crate) bytes: u64,
}

pub(crate) fn of_event<'a>(event: &'a Event, found: &mut Vec<Referred<'a>>) {
    match event {
        Event::RunStarted(started) => {
            let of_children = started.task.program.phases().into_iter().flat_map(Phases::inputs);
            started.task.inputs.values().chain(of_children).for_each(|content| of_content(content, found));
            of_images(&started.task.images, found);
        }
        Event::InputReceived(received) => {
            of_images(&received.images, found);
            match &received.body {
                Received::LateOutcome(late) => of_late(late, found),
                Received::Message(_) | Received::Answer(_) | Received::Cancel | Received::ChildSettled { .. } => {}
            }
        }
        Event::ActionRefused(refused) => of_error(&refused.error, found),
        Event::ActionProbed(probed) => match &probed.answer {
            ProbeAnswer::TookEffect(content) => of_content(content, found),
            ProbeAnswer::NoEffect | ProbeAnswer::NoAnswer(_) => {}
        },
        Event::ActionFinished(finished) => {
            of_outcome(&finished.outcome, found);
        }
        Event::ActionSettled(settled) => of_truth(&settled.truth, found),
        Event::TransitionTaken(taken) => taken.output.iter().for_each(|output| of_content(output, found)),
        Event::CheckFinished(check) => of_content(&check.verdict.evidence, found),
        Event::RunForked(_)
        | Event::RunClaimed(_)
        | Event::InputRefused(_)
        | Event::ModelRequested(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::ModelSwitched(_)
        | Event::ModelForgone(_)
        | Event::ModelRouted(_)
        | Event::GenerationStarted(_)
        | Event::ResultSpilled(_)
        | Event::SummaryRequested(_)
        | Event::SummaryFinished(_)
        | Event::JudgeRequested(_)
        | Event::JudgeFinished(_)
        | Event::NoteTaken(_)
        | Event::ActionProposed(_)
        | Event::ActionHeld(_)
        | Event::ActionApproved(_)
        | Event::ActionDenied(_)
        | Event::ActionStarted(_)
        | Event::ActionRequeued(_)
        | Event::ActionRolledBack(_)
        | Event::ActionNotUndone(_)
        | Event::AnswerAccepted(_)
        | Event::AnswerRefused(_)
        | Event::ChecksVoided(_)
        | Event::HookFinished(_)
        | Event::LoopNoticed(_)
        | Event::FactSet(_)
        | Event::FactVoided(_)
        | Event::BudgetReached(_)
        | Event::BudgetRaised(_)
        | Event::ChildStarted(_)
        | Event::ChildEnded(_)
        | Event::SourceEndorsed(_)
        | Event::SurroundingsChanged(_)
        | Event::RunParked(_)
        | Event::RunSuspended(_)
        | Event::RunEnded(_) => {}
    }
}

pub(crate) fn of_input<'a>(input: &'a Input, found: &mut Vec<Referred<'a>>) {
    of_images(&input.images, found);
    match &input.body {
        InputBody::Settle(settle) => of_truth(&settle.truth, found),
        InputBody::LateOutcome(late) => of_late(late, found),
        InputBody::Message(_)
        | InputBody::Approve(_)
        | InputBody::Deny(_)
        | InputBody::Cancel
        | InputBody::Raise(_)
        | InputBody::SwitchModel(_)
        | InputBody::Endorse(_)
        | InputBody::ChildEnded(_)
        | InputBody::Rollback(_) => {}
    }
}

pub(crate) fn of_key<'a>(state: &'a KeyState, found: &mut Vec<Referred<'a>>) {
    match state {
        KeyState::Done(content) => of_content(content, found),
        KeyState::Held | KeyState::Free => {}
    }
}

fn of_content<'a>(content: &'a Content, found: &mut Vec<Referred<'a>>) {
    match content {
        Content::Blob(blob) => {
            found.push(Referred { digest: &blob.digest, bytes: blob.bytes });
            of_images(&blob.images, found);
        }
        Content::Inline(_) => {}
    }
}

fn of_images<'a>(images: &'a [ImageRef], found: &mut Vec<Referred<'a>>) {
    found.extend(images.iter().map(|image| Referred { digest: &image.digest, bytes: image.bytes }));
}

fn of_late<'a>(late: &'a LateOutcome, found: &mut Vec<Referred<'a>>) {
    of_outcome(&late.outcome, found);
}

fn of_truth<'a>(truth: &'a Truth, found: &mut Vec<Referred<'a>>) {
    match truth {
        Truth::Done(content) => of_content(content, found),
        Truth::NotDone => {}
    }
}

fn of_outcome<'a>(outcome: &'a Outcome, found: &mut Vec<Referred<'a>>) {
    match outcome {
        Outcome::Done(content) => of_content(content, found),
        Outcome::Error(error) | Outcome::NotDone(error) | Outcome::Unknown(error) => of_error(error, found),
    }
}

fn of_error<'a>(error: &'a ToolError, found: &mut Vec<Referred<'a>>) {
    if let Some(content) = &error.data {
        of_content(content, found);
    }
}
