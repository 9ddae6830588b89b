//! Evidence that comes back. What the present step, the open loops and the calls and answers of the turns that stay cite,
//! and a rebuild would leave out of sight, is shown in its control block: bounded, as data, and with the call that brought
//! it (`context.md` §4). Inside a generation nothing is added: the bytes that were sent stay as they are.
//!
//! What it says is in the journal and not in the state. So this is in two halves: [`wanted`] says what is cited, whoever
//! has the journal brings it, and [`with`] takes as much of it into the rebuild as there is room for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::context::memory;
use crate::context::meter::Meter;
use crate::context::note::NoteKind;
use crate::context::plan::{self, REARM};
use crate::context::settings::share;
use crate::context::window::{self, Part};
use crate::event::{GenerationStarted, RebuildWhy};
use crate::ids::{ActionId, EvidenceId};
use crate::payload::head_and_tail;
use crate::prompt::Item;
use crate::run::Run;
use crate::task::Builtin;

/// Evidence that is cited and would be out of sight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub evidence: EvidenceId,
    /// What cites it: a note, or a call.
    pub by: ActionId,
}

/// Evidence as the control block of a generation shows it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readmitted {
    pub evidence: EvidenceId,
    pub by: ActionId,
    /// The start of the arguments of the call that brought it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// Its head and tail, and the bytes of the whole.
    pub text: String,
    pub total: u64,
}

/// So many at most: what is cited more widely than that is an index and no working set.
pub const READMITTED_MAX: usize = 8;
/// Bytes of one, and the least that says anything.
pub const TEXT_MAX: usize = 1_000;
const TEXT_MIN: usize = 160;
/// All of them take at most so much of the window, in thousandths, at three bytes a token.
const READMITTED_SHARE: u32 = 30;
/// A rebuild must still free so much with them, in thousandths of what there was.
const STILL_FREED: u64 = 100;

/// What this rebuild should bring back, the most needed first: what the newest step cites, then older steps, open loops,
/// then the newest calls and answers that stay in view.
pub fn wanted(run: &Run, started: &GenerationStarted) -> Vec<Wanted> {
    match started.why {
        // What the provider refused is followed by the least there can be.
        RebuildWhy::Overflow(_) => return Vec::new(),
        RebuildWhy::Economic
        | RebuildWhy::ColdCache
        | RebuildWhy::Trigger
        | RebuildWhy::Watermark
        | RebuildWhy::Forecast
        | RebuildWhy::Full
        | RebuildWhy::Rendering => {}
    }
    let mut citing = [NoteKind::Step, NoteKind::OpenLoop].into_iter().flat_map(|kind| run.memory.notes_of(kind).rev());
    if citing.all(|(_, kept)| kept.cites.is_empty()) && !run.window.items.iter().any(|item| has_evidence_id(item)) {
        return Vec::new();
    }
    let mut rebuilt = run.clone();
    window::try_out(&mut rebuilt, started);
    let mut seen: BTreeSet<EvidenceId> = rebuilt
        .window
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Observation(seen) if !seen.reduced => Some(seen.action.evidence()),
            Part::Observation(_)
            | Part::Rules(_)
            | Part::Goal
            | Part::Message(_)
            | Part::Header
            | Part::Reply(_)
            | Part::Harness(_) => None,
        })
        .collect();
    let mut wanted = Vec::new();
    let mut want = |evidence: EvidenceId, by: ActionId| {
        let is_there = run.evidence.get(&evidence).is_some_and(|found| !memory::repeats(run, &found.tool));
        if wanted.len() < READMITTED_MAX && is_there && seen.insert(evidence) {
            wanted.push(Wanted { evidence, by });
        }
    };
    for kind in [NoteKind::Step, NoteKind::OpenLoop] {
        for (id, kept) in run.memory.notes_of(kind).rev() {
            for evidence in kept.cites.iter().filter_map(|cite| evidence_of(cite)) {
                want(evidence, ActionId(id.0));
            }
        }
    }
    for (part, item) in rebuilt.window.parts.iter().zip(rebuilt.window.items.iter()).rev() {
        let (Part::Reply(turn), Item::Assistant { text, calls, .. }) = (part, item.as_ref()) else { continue };
        // A reply is cited by the first call after it; where there is none, the next action's number will do.
        let after = rebuilt.window.parts.iter().filter_map(|part| match part {
            Part::Observation(seen) if seen.turn == *turn => Some(seen.action),
            Part::Observation(_)
            | Part::Rules(_)
            | Part::Goal
            | Part::Message(_)
            | Part::Header
            | Part::Reply(_)
            | Part::Harness(_) => None,
        });
        let by = after.min().unwrap_or_else(|| run.next_action());
        let said =
            calls.iter().filter(|call| call.name != Builtin::Recall.as_str()).map(|call| call.arguments.as_str());
        for evidence in said.chain([text.as_str()]).flat_map(evidence_ids) {
            want(evidence, by);
        }
    }
    wanted
}

/// Takes as much of what was found into the rebuild as there is room for, in the given order.
pub fn with(run: &Run, meter: &Meter, started: GenerationStarted, found: Vec<Readmitted>) -> GenerationStarted {
    if found.is_empty() {
        return started;
    }
    let mut room = usize::try_from(share(started.limit, READMITTED_SHARE) * 3).unwrap_or(usize::MAX);
    let mut rebuild = started.clone();
    for mut piece in found.into_iter().take(READMITTED_MAX) {
        piece.text = head_and_tail(&piece.text, TEXT_MAX.min(room));
        if room < TEXT_MIN {
            break;
        }
        room = room.saturating_sub(piece.text.len() + piece.call.len());
        rebuild.readmitted.push(piece);
    }
    let safe = plan::limits(run, meter).safe();
    let most = started.before.saturating_sub(started.before * STILL_FREED / 1_000);
    while !rebuild.readmitted.is_empty() {
        let sized = plan::size(run, meter, &rebuild);
        if sized.bound.upper <= share(safe, REARM) && sized.bound.likely <= most {
            rebuild.after = sized.bound.likely;
            rebuild.kept = sized.kept;
            return rebuild;
        }
        rebuild.readmitted.pop();
    }
    started
}

/// `e7`, or `a7` whose evidence it is.
fn evidence_of(cite: &str) -> Option<EvidenceId> {
    cite.strip_prefix(['a', 'e'])?.parse().ok().map(EvidenceId)
}

fn has_evidence_id(item: &Item) -> bool {
    match item {
        Item::Assistant { text, calls, .. } => {
            evidence_ids(text).next().is_some()
                || calls.iter().any(|call| evidence_ids(&call.arguments).next().is_some())
        }
        Item::User(_) | Item::Pictured { .. } | Item::Exhibit { .. } | Item::Observation { .. } | Item::Harness(_) => {
            false
        }
    }
}

/// The strings of a JSON text that are ids of evidence, and nothing else.
fn evidence_ids(text: &str) -> impl Iterator<Item = EvidenceId> {
    text.match_indices("\"e").filter_map(|(at, mark)| {
        let (number, _) = text.get(at + mark.len()..)?.split_once('"')?;
        let is_number = !number.is_empty() && number.len() < 10 && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().ok().map(EvidenceId)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_evidence_are_whole_strings() {
        let found = |text: &str| evidence_ids(text).map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(found(r#"{"of":"e7","all":["e12","e3"]}"#), [7, 12, 3]);
        assert_eq!(found(r#"{"text":"e7 says","e9":"e","x":"e-1","y":"e99999999999","z":"ée7"}"#), [9]);
        assert!(found("\"e").is_empty() && found("").is_empty());
    }
}
