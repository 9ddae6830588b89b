//! `write_file`: a whole file.

use longrein_core::outcome::ToolError;
use longrein_core::task::{Builtin, EffectClass, ToolSpec};
use longrein_workspace::{Carried, Kept, Newlines, Place, carry};
use serde::Deserialize;
use serde_json::{Map, json};

use super::change::{Change, Present, unmarked};

#[derive(Deserialize)]
pub(crate) struct Args {
    content: String,
}

pub(super) fn spec() -> ToolSpec {
    super::spec(
        Builtin::WriteFile,
        EffectClass::Workspace,
        "Writes a whole file: makes it, with the folders on the way, or replaces all of its content. To change a part of \
         a file use edit_file; it costs less and loses nothing. A file that exists must have been read in this run, as it \
         is now. Its mode, its byte order mark and CRLF newlines are kept. Returns path, bytes and whether the file is new.",
        &json!({
            "type": "object",
            "required": ["path", "content"],
            "additionalProperties": false,
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "relative to the workspace, or absolute" },
                "content": { "type": "string", "description": "the whole new content" },
            },
        }),
    )
}

pub(crate) fn plan(place: &Place, before: Option<Present>, args: &Args) -> Result<Change, ToolError> {
    unmarked(&[("content", &args.content)], before.as_ref().map_or(&[], |before| &before.content), place)?;
    let Carried { bytes, kept } = match &before {
        Some(before) => carry(&before.content, &args.content),
        None => Carried { bytes: args.content.clone().into_bytes(), kept: Kept::default() },
    };
    let mut told = Map::new();
    told.insert("path".to_owned(), json!(place.to_string()));
    told.insert("bytes".to_owned(), json!(bytes.len()));
    told.insert("new".to_owned(), json!(before.is_none()));
    let encoding = kept.encoding.map(|encoding| encoding.to_string());
    let newlines = kept.newline.map(|newline| format!("{} newlines", Newlines::All(newline)));
    let kept: Vec<String> = encoding.into_iter().chain(newlines).collect();
    if !kept.is_empty() {
        told.insert("kept".to_owned(), json!(kept.join(", ")));
    }
    Ok(Change { before: before.map(|before| before.digest), content: bytes, told })
}
