//! What the permission mode itself decides, beside the gate: a plan offers nothing that only writes, and a shadow carries
//! out nothing but reads. Whatever the edge says of a call, a tool that is no read never starts in either.

use crate::event::{ActionRefused, Event};
use crate::ids::ActionId;
use crate::outcome::{ToolError, class};
use crate::ruling::{Bearing, Effect, Ruling, Shadowed};
use crate::run::Run;
use crate::task::{Builtin, EffectClass, Mode, ToolBody, ToolSpec};

/// Why a tool is not to be called in plan mode, and what to do instead.
pub(crate) fn beyond_plan(run: &Run, spec: &ToolSpec) -> Option<(String, &'static str)> {
    if run.mode != Mode::Plan || looks(spec) {
        return None;
    }
    let message = format!("{} changes something, and this run is in plan mode: it only reads.", spec.name);
    Some((message, "Say in your answer what you would do with it."))
}

/// Whether calls of a tool only look, whatever they are called with.
fn looks(spec: &ToolSpec) -> bool {
    match &spec.body {
        // What a command does is told by the command.
        ToolBody::Builtin(Builtin::Shell) => true,
        ToolBody::Builtin(_) | ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => {
            spec.effect == EffectClass::Read
        }
    }
}

/// What a call would have been, if it is not carried out because the run is a shadow: whatever acts, and whatever a person
/// would be asked about.
pub(super) fn shadowed(
    run: &Run,
    spec: Option<&ToolSpec>,
    ruling: &Ruling,
    bearing: Bearing,
    effects: &[Effect],
) -> Option<Shadowed> {
    if run.mode != Mode::Shadow {
        return None;
    }
    let only_looks = bearing == Bearing::Looks && spec.is_some_and(looks);
    match (only_looks, ruling) {
        (true, Ruling::Allow { .. } | Ruling::Deny { .. }) => None,
        (true, Ruling::Ask { .. }) | (false, _) => Some(Shadowed { ruling: ruling.clone(), effects: effects.to_vec() }),
    }
}

/// Tells the model what a call of a shadow run would have been.
pub(super) fn not_executed(action: ActionId, would: Shadowed) -> Event {
    let mut message = match &would.ruling {
        Ruling::Allow { rule } => format!("Not executed: shadow mode. It would have been allowed ({rule})"),
        Ruling::Ask { rule, reason } => {
            let reason = reason.trim_end_matches('.');
            format!("Not executed: shadow mode. A person would have been asked, because {reason} ({rule})")
        }
        Ruling::Deny { rule, reason } => {
            let reason = reason.trim_end_matches('.');
            format!("Not executed: shadow mode. It would have been denied, because {reason} ({rule})")
        }
    };
    let told: Vec<_> = would
        .effects
        .iter()
        .take(EFFECTS_TOLD)
        .map(|effect| format!("{} {}", effect.kind.as_str(), effect.what))
        .collect();
    match (told.is_empty(), would.effects.len().saturating_sub(EFFECTS_TOLD)) {
        (true, _) => message.push('.'),
        (false, 0) => message.push_str(&format!(". It would: {}.", told.join("; "))),
        (false, more) => message.push_str(&format!(". It would: {}; and {more} more.", told.join("; "))),
    }
    let error = ToolError::new(class::SHADOW, message)
        .hint("Nothing has changed. Do not repeat it; go on as if it had been done, and say so in your answer.");
    Event::ActionRefused(ActionRefused { action, error, would: Some(would) })
}

/// Effects of a call that the model is told; the event has all.
const EFFECTS_TOLD: usize = 8;
