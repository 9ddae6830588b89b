//! A change of one file: worked out before it is ruled on, and again, to the same bytes, before it is made.

use longrein_core::ids::Digest;
use longrein_core::outcome::{ProbeAnswer, ToolError, class};
use longrein_core::payload::{Content, Payload};
use longrein_core::target::Target;
use longrein_workspace::{Before, EDIT_MAX_BYTES, Error, Owner, Place, Root, Written};
use serde_json::{Map, Value, json};

use super::files;
use super::told;
use crate::secrets::marks;

/// What a call would make of a file.
pub(crate) struct Change {
    /// None: there is no file.
    pub(crate) before: Option<Digest>,
    pub(crate) content: Vec<u8>,
    /// Told about it when it is made.
    pub(crate) told: Map<String, Value>,
}

impl Change {
    pub(crate) fn after(&self) -> Digest {
        Digest::of(&self.content)
    }
}

/// A file as it is.
pub(crate) struct Present {
    pub(crate) content: Vec<u8>,
    pub(crate) digest: Digest,
}

/// None: there is no file.
pub(crate) fn present(root: &Root, place: &Place) -> Result<Option<Present>, ToolError> {
    match root.read_whole(place, EDIT_MAX_BYTES) {
        Ok((content, digest)) => Ok(Some(Present { content, digest })),
        Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(told::path(&error)),
    }
}

/// Where a secret stands, what is read has a mark in its place ([`crate::Secrets`]). A model that takes the mark for the
/// text would look for it in vain, or write it over the secret: neither may pass. `before` is the file as it is; a file
/// that speaks of marks itself may be changed like any other.
pub(crate) fn unmarked(texts: &[(&str, &str)], before: &[u8], place: &Place) -> Result<(), ToolError> {
    for (argument, text) in texts {
        let Some(mark) = marks(text).find(|mark| memchr::memmem::find(before, mark.as_bytes()).is_none()) else {
            continue;
        };
        let error = match *argument {
            "old" => ToolError::new(
                class::INVALID_ARGUMENTS,
                format!("old has {mark} in it, which does not stand in {place}: a secret does, and it is not shown."),
            )
            .hint("Choose an old without that place. The secret itself cannot be edited with this tool."),
            _ => ToolError::new(
                class::INVALID_ARGUMENTS,
                format!("{argument} has {mark} in it: that would write the placeholder into {place}, and no secret."),
            )
            .hint(
                "Change the file around that place with edit_file, or have the program read the value from its environment. \
                 If the placeholder is meant as it stands, write it in two pieces.",
            ),
        };
        return Err(error.at(format!("/{argument}")));
    }
    Ok(())
}

/// Only what was read is changed. `seen`: the content as the run last saw or left it. Asked before anything is told that
/// depends on the content: this is before the ruling, and what was not read may be none of the model's business.
pub(crate) fn known(present: Option<&Present>, place: &Place, seen: Option<&Digest>) -> Result<(), ToolError> {
    match (present, seen) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(told::not_read(place)),
        (Some(present), Some(seen)) if present.digest == *seen => Ok(()),
        (Some(_), Some(_)) => Err(told::stale(place)),
    }
}

/// What was ruled on is what is there.
pub(crate) fn as_ruled(present: Option<&Present>, place: &Place, ruled: Option<&Digest>) -> Result<(), ToolError> {
    if present.map(|present| &present.digest) == ruled { Ok(()) } else { Err(told::not_as_ruled(place)) }
}

/// Makes exactly the change that was ruled on.
pub(crate) fn make(root: &Root, target: &Target, mut change: Change) -> Result<Value, ToolError> {
    let place = files::place(target);
    let after = change.after();
    if change.before != target.before || Some(&after) != target.after.as_ref() {
        return Err(told::not_as_ruled(&place));
    }
    if change.before.as_ref() == Some(&after) {
        change.told.insert("note".to_owned(), json!("The file had this content already."));
        return Ok(Value::Object(change.told));
    }
    let before = change.before.clone().map_or(Before::Absent, Before::Content);
    match root.replace(&place, &before, &change.content) {
        Ok(written) => {
            notes(&written, &mut change.told);
            Ok(Value::Object(change.told))
        }
        Err(error) => Err(after_failure(root, &place, target, &error)),
    }
}

fn notes(written: &Written, told: &mut Map<String, Value>) {
    let mut notes = Vec::new();
    if written.other_names > 0 {
        notes.push(format!(
            "The file had {} other name(s) (hard links); those keep the old content.",
            written.other_names
        ));
    }
    match written.owner {
        Owner::AsBefore => {}
        Owner::Ours => notes.push("The file belonged to another user and could not be given back to them.".to_owned()),
    }
    if !notes.is_empty() {
        told.insert("note".to_owned(), json!(notes.join(" ")));
    }
}

/// What is certain after a write that failed is what the file says.
fn after_failure(root: &Root, place: &Place, target: &Target, error: &Error) -> ToolError {
    let mut told = told::path(error);
    match root.digest(place) {
        Ok(now) if now == target.before => {
            told.message.push_str(" Nothing was written.");
            told
        }
        Ok(now) if now == target.after => {
            told.class = class::UNKNOWN_OUTCOME.to_owned();
            told.message.push_str(" The new content is there, but may not survive a loss of power.");
            told
        }
        Ok(_) | Err(_) => told,
    }
}

/// What became of a change whose outcome was lost (`semantics.md` D7).
pub(crate) fn probe(root: &Root, target: &Target) -> ProbeAnswer {
    let place = files::place(target);
    // a writer that was killed may have left its half
    if let Err(error) = root.sweep(&place) {
        return ProbeAnswer::NoAnswer(format!("{place} cannot be looked at: {error}"));
    }
    match root.digest(&place) {
        Ok(now) if now.is_some() && now == target.after => {
            let told = json!({ "path": target.path, "note": "Found written after a restart." });
            ProbeAnswer::TookEffect(Content::Inline(Payload::of(&told).expect("an object has only string keys")))
        }
        Ok(now) if now == target.before => ProbeAnswer::NoEffect,
        Ok(Some(_)) => ProbeAnswer::NoAnswer(format!("{place} has neither its old nor its intended content")),
        Ok(None) => ProbeAnswer::NoAnswer(format!("{place} is gone")),
        Err(error) => ProbeAnswer::NoAnswer(format!("{place} cannot be read: {error}")),
    }
}
