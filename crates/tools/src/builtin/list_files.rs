//! `list_files`: what is in a folder.

use std::time::Duration;

use longrein_core::outcome::{ToolError, class};
use longrein_core::task::{Builtin, EffectClass, ToolSpec};
use longrein_workspace::{EntryKind, Found, ListLimits, Place, Root, json_bytes};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{RESULT_MAX_BYTES, look};
use super::told;

const LIMITS: ListLimits = ListLimits { max_entries: 1_000, time: Duration::from_secs(10) };

#[derive(Deserialize)]
pub(crate) struct Args {
    glob: Option<String>,
}

pub(super) fn spec() -> ToolSpec {
    super::spec(
        Builtin::ListFiles,
        EffectClass::Read,
        "Lists what is in a folder and below it, or, with `glob`, the files that match. Use it to find files by name; to \
         find them by content use search_files. Hidden files and what .gitignore leaves out are not listed, unless `path` \
         or `glob` names them; links are not followed. Returns entries, sorted, folders ended by /; left_out counts those \
         that did not fit, the deepest first: then give a narrower path or glob.",
        &json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "path": {
                    "type": "string", "minLength": 1, "default": ".",
                    "description": "a folder, relative to the workspace, or absolute",
                },
                "glob": {
                    "type": "string", "minLength": 1,
                    "description": "below path: *.rs is every such file at any depth, src/*.rs only those in src, src/**/*.rs those below it",
                },
            },
        }),
    )
}

pub(crate) fn run(root: &Root, place: &Place, args: &Args) -> Result<Value, ToolError> {
    match look(root, place)? {
        Found::Folder => {}
        Found::File { .. } | Found::Special(_) | Found::Nothing => {
            let message = format!("{place} is no folder.");
            return Err(ToolError::new(class::INVALID_ARGUMENTS, message).at("/path").hint("read_file reads a file."));
        }
    }
    let listing = root.list(place, args.glob.as_deref(), LIMITS).map_err(|error| told::path(&error))?;
    let mut room = RESULT_MAX_BYTES;
    let mut entries = Vec::new();
    let mut left_out = listing.left_out;
    for entry in &listing.entries {
        let mark = match entry.kind {
            EntryKind::Folder => "/",
            EntryKind::Link => " (link)",
            EntryKind::Special => " (no regular file)",
            EntryKind::File { .. } => "",
        };
        let shown = format!("{}{mark}", entry.place);
        // with its quotes and its comma
        let cost = json_bytes(&shown) + 3;
        if cost > room || left_out > listing.left_out {
            left_out += 1;
            continue;
        }
        room -= cost;
        entries.push(shown);
    }
    let mut told = Map::new();
    told.insert("path".to_owned(), json!(place.to_string()));
    if entries.is_empty() {
        let note = match args.glob {
            Some(_) => "Nothing matches. Hidden and ignored files are left out.",
            None => "The folder is empty, or all in it is hidden or ignored.",
        };
        told.insert("note".to_owned(), json!(note));
    }
    told.insert("entries".to_owned(), json!(entries));
    if left_out > 0 {
        told.insert("left_out".to_owned(), json!(left_out));
    }
    if listing.unfinished {
        let note = "The folder is too large to be looked at as a whole: give a narrower path.";
        told.insert("note".to_owned(), json!(note));
    }
    Ok(Value::Object(told))
}
