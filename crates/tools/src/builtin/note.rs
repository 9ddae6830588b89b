//! `note`: what the model writes down for itself. It is never run here: the run itself keeps the note.

use longrein_core::context::archive::Handle;
use longrein_core::context::note::{CITES_MAX, NOTE_MAX_BYTES, Note, NoteKind};
use longrein_core::outcome::{ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::task::{Builtin, EffectClass, Holds, ToolSpec};
use serde_json::{Value, json};

/// The most bytes of an id.
const ID_MAX_BYTES: usize = 64;

pub(super) fn spec() -> ToolSpec {
    let kinds: Vec<_> = NoteKind::ALL.into_iter().map(NoteKind::as_str).collect();
    let spec = super::spec(
        Builtin::Note,
        EffectClass::Read,
        "Writes down what you must not lose. Earlier turns leave your view as the work goes on; notes stay before you until \
         they are closed. Note a `decision` when you choose between ways (what, and why not the others); a `finding` when you \
         have established something that later work rests on; a `constraint` when you learn of something all further work \
         must respect; an `open_loop` for what is still to be done or found out; a `step` when you begin the next part of \
         the work (what it is, and how you will know that it is done). `close` an open loop, a step or anything that no \
         longer holds, with its `id` and one line on how it ended. To change a note, write it again with the `id` of the old \
         one. Findings and decisions must cite in `cites` the ids of what they rest on (e7 or a7 for a result, u1 for a \
         person's message, c31 for a check): without that they are refused. Write each note so that it makes sense by itself, \
         one thing a note. Nothing is done by noting it, and a note proves nothing. Returns the note's id.",
        &json!({
            "type": "object",
            "required": ["kind", "text"],
            "additionalProperties": false,
            "properties": {
                "kind": { "type": "string", "enum": kinds },
                "text": { "type": "string", "minLength": 1, "maxLength": NOTE_MAX_BYTES, "description": "complete in itself" },
                "id": { "type": "string", "minLength": 1, "maxLength": ID_MAX_BYTES, "description": "the earlier note that this one replaces or closes" },
                "cites": {
                    "type": "array",
                    "maxItems": CITES_MAX,
                    "items": { "type": "string", "minLength": 1, "maxLength": ID_MAX_BYTES },
                    "description": "ids of what it rests on: e7, a7, u1, c31",
                },
            },
        }),
    );
    // What was noted stays so, whatever is written.
    ToolSpec { holds: Holds::Run, ..spec }
}

/// Reads the arguments of a call. What passes here can be read as a [`Note`] straight away. Whether the ids are those of
/// something is for the run to say.
pub(crate) fn read(args: &Payload) -> Result<Note, ToolError> {
    let note: Note = args.read().map_err(|error| invalid(format!("The arguments are no note: {error}.")))?;
    let bytes = note.text.len();
    if note.text.trim().is_empty() {
        return Err(invalid("The note is empty.").at("/text"));
    }
    if bytes > NOTE_MAX_BYTES {
        let message = format!("The note has {bytes} bytes; at most {NOTE_MAX_BYTES} fit.");
        let hint = "Say the one thing that matters and cite where the rest stands, or write several notes.";
        return Err(invalid(message).at("/text").hint(hint));
    }
    if note.cites.len() > CITES_MAX {
        let message = format!("{} ids are cited; at most {CITES_MAX} can be.", note.cites.len());
        return Err(invalid(message).at("/cites").hint("Cite those that show it best."));
    }
    let is_id = |id: &String| !id.trim().is_empty() && id.len() <= ID_MAX_BYTES;
    if !note.cites.iter().all(is_id) {
        return Err(invalid("What is cited is no id.").at("/cites").hint(CITE));
    }
    if note.replaces.as_ref().is_some_and(|id| !is_id(id)) {
        return Err(invalid("That is no note's id.").at("/id").hint("Use the id that `note` returned."));
    }
    let needs_evidence = match note.kind {
        NoteKind::Finding | NoteKind::Decision => true,
        NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step | NoteKind::Close => false,
    };
    if needs_evidence && !note.cites.iter().any(|id| is_evidence(id)) {
        let message = format!("A {} must cite what it rests on.", note.kind.as_str());
        return Err(ToolError::new(class::EVIDENCE, message).at("/cites").hint(CITE));
    }
    if note.kind == NoteKind::Close && note.replaces.is_none() {
        let hint = "Give in `id` the id that `note` returned for it.";
        return Err(invalid("It does not say which note is closed.").at("/id").hint(hint));
    }
    Ok(note)
}

const CITE: &str =
    "Give ids as you were shown them: e7 or a7 for a result, u1 for a person's message, c31 for a check.";

/// The model's own words are no evidence.
fn is_evidence(id: &str) -> bool {
    match id.trim().parse::<Handle>() {
        Ok(Handle::Action(_) | Handle::Message(_) | Handle::Check(_)) => true,
        Ok(Handle::Reply(_) | Handle::List(_)) | Err(_) => false,
    }
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(class::INVALID_ARGUMENTS, message)
}

pub(super) fn check(args: &Value) -> Result<(), ToolError> {
    read(&Payload::of(args).expect("an object has only string keys")).map(drop)
}
