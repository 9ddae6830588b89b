//! The last resort for JSON that is complete but broken: single quotes, trailing commas, unescaped quotes. Behind one
//! function, since the repairer is young; what it makes is validated as if the model had written it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Broken JSON longer than this is told to the model rather than mended: the repairer's time grows with the square of
/// the length, to a tenth of a second here.
const REPAIR_MAX_BYTES: usize = 8 * 1024;

/// Text with more openings than this is not mended either: the repairer calls itself for each, and the stack is finite.
const OPENINGS_MAX: usize = 128;

/// The text as JSON; None: it cannot be mended, or would be cut text made up to its end.
pub(super) fn repair(text: &str) -> Option<String> {
    let openings = text.bytes().filter(|byte| b"{[(".contains(byte)).count();
    if text.len() > REPAIR_MAX_BYTES || openings > OPENINGS_MAX {
        return None;
    }
    let options = jsonrepair::Options::default();
    // A mistake of the repairer is no reason for a run to end.
    let mended = catch_unwind(AssertUnwindSafe(|| jsonrepair::repair_to_string(text, &options).ok())).ok()??;
    serde_json::from_str::<serde::de::IgnoredAny>(&mended).ok().map(|_| mended)
}
