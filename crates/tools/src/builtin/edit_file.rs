//! `edit_file`: a piece of a file.

use longrein_core::outcome::ToolError;
use longrein_core::task::{Builtin, EffectClass, ToolSpec};
use longrein_workspace::{How, Matches, Place, Root, apply};
use serde::Deserialize;
use serde_json::{Map, json};

use super::change::{Change, Present, unmarked};
use super::told;

#[derive(Deserialize)]
pub(crate) struct Args {
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

pub(super) fn spec() -> ToolSpec {
    super::spec(
        Builtin::EditFile,
        EffectClass::Workspace,
        "Replaces a piece of text in a file and leaves every other byte as it is. `old` is the text as it stands in the \
         file, with enough lines around the change that it occurs once; `all` replaces every occurrence. The file must \
         have been read in this run, as it is now; your own edits count. Several edits of one file in one reply are made \
         in order. To make a file use write_file. Returns path, how many places were replaced and their first lines.",
        &json!({
            "type": "object",
            "required": ["path", "old", "new"],
            "additionalProperties": false,
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "relative to the workspace, or absolute" },
                "old": { "type": "string", "description": "the text to replace, exactly, without line numbers" },
                "new": { "type": "string", "description": "what stands there instead; empty to delete" },
                "all": { "type": "boolean", "default": false, "description": "replace every occurrence" },
            },
        }),
    )
}

pub(crate) fn plan(root: &Root, place: &Place, present: Option<Present>, args: &Args) -> Result<Change, ToolError> {
    let Some(Present { content: before, digest }) = present else {
        // Nobody has ruled yet: what else lies outside is not told.
        return Err(if place.is_inside() { told::missing(root, place) } else { told::absent(place) });
    };
    unmarked(&[("old", &args.old), ("new", &args.new)], &before, place)?;
    let matches = if args.all { Matches::All } else { Matches::One };
    let edited = apply(&before, &args.old, &args.new, matches).map_err(|error| told::edit(&error, place))?;
    let mut told = Map::new();
    told.insert("path".to_owned(), json!(place.to_string()));
    told.insert("replaced".to_owned(), json!(edited.count));
    let (first, last) = edited.lines;
    told.insert("lines".to_owned(), json!(if first == last { first.to_string() } else { format!("{first}-{last}") }));
    match edited.how {
        How::Exact | How::Newlines => {}
        How::Whitespace => {
            let how = "old was found but for white space; new was indented as the lines there are";
            told.insert("matched".to_owned(), json!(how));
        }
    }
    Ok(Change { before: Some(digest), content: edited.bytes, told })
}
