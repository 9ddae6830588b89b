//! From the state to a prompt. Knows no estimate: the same state gives the same prompt.

use std::sync::Arc;

use crate::context::block;
use crate::context::window::TailBy;
use crate::ids::Digest;
use crate::image::Images;
use crate::observe;
use crate::program::Kind;
use crate::prompt::{AnswerForm, Item, Prompt, Purpose, ToolDef};
use crate::run::Run;

/// A tail that says nothing new is repeated no sooner than after so many turns, and less often where it is long beside what
/// it follows: what it says stands in the control block as well, and it is paid in full each time (`context.md` §2.2).
const TAIL_EVERY: u64 = 6;
/// Of what is sent, repeated tails are about one part in so many.
const TAIL_PART: u64 = 300;

/// The next request. `tools`: everything the task offers, in a fixed order. Whoever sends it adds the bytes of its images.
pub fn render(run: &Run, purpose: Purpose, tools: Arc<[ToolDef]>, max_output: u64) -> Prompt {
    Prompt {
        system: run.system.clone(),
        tools: match purpose {
            Purpose::Work if is_structured(run) => Vec::new().into(),
            Purpose::Work => tools,
            Purpose::Closing => Vec::new().into(),
        },
        items: run.window.items.clone(),
        tail: match purpose {
            Purpose::Work => due_tail(run).map(|text| observe::enveloped(&text)),
            Purpose::Closing => Some(observe::CLOSING.to_owned()),
        },
        answer: AnswerForm::of_run(run, purpose),
        max_output,
        images: if run.model.takes_images() { Images::default() } else { Images::NotTaken },
        position: run.spent.turns,
    }
}

/// Whether the present phase wants one structured reply, and no call.
fn is_structured(run: &Run) -> bool {
    run.phase().is_some_and(|phase| matches!(phase.kind, Kind::Reply(_)))
}

/// The tail that goes along with the next request: if it says something new, or has not been said for a while.
pub fn due_tail(run: &Run) -> Option<String> {
    let text = block::tail(run);
    if text.is_empty() {
        return None;
    }
    let turn = run.turn();
    let Some(last) = &run.window.tail else { return Some(text) };
    let is_due = match last.by {
        // Another attempt at the same turn sends the same bytes.
        TailBy::Request if last.turn == turn => true,
        TailBy::Header if last.turn == turn => false,
        TailBy::Request | TailBy::Header => {
            last.digest != Digest::of(text.as_bytes())
                || u64::from(turn.0 - last.turn.0.min(turn.0)) >= every(run, &text)
        }
    };
    is_due.then_some(text)
}

fn every(run: &Run, tail: &str) -> u64 {
    let sent: usize = run.window.items.iter().map(|item| length(item)).sum();
    (tail.len() as u64 * TAIL_PART / (sent as u64).max(1)).max(TAIL_EVERY)
}

fn length(item: &Item) -> usize {
    match item {
        Item::User(text)
        | Item::Pictured { text, images: _ }
        | Item::Exhibit { text, images: _ }
        | Item::Harness(text)
        | Item::Observation { text, .. } => text.len(),
        Item::Assistant { text, calls, wired } => {
            let kept = wired.as_ref().map_or(0, |wired| wired.bytes());
            text.len() + kept + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
    }
}
