//! `search_files`: lines that match a regular expression.

use std::fmt::Write;
use std::time::Duration;

use longrein_core::outcome::ToolError;
use longrein_core::secret;
use longrein_core::task::{Builtin, EffectClass, ToolSpec};
use longrein_workspace::{Context, Hit, Place, Root, SearchLimits, Sought, json_bytes};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{RESULT_MAX_BYTES, look};
use super::told;

/// Line numbers and paths take room too: about half of a result is theirs at worst.
const LIMITS: SearchLimits = SearchLimits {
    max_matches: 200,
    max_bytes: RESULT_MAX_BYTES / 2,
    max_line_bytes: 400,
    time: Duration::from_secs(10),
};

/// Settings of registries are longer only where something else is hidden in them.
const SETTINGS_MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
pub(crate) struct Args {
    pattern: String,
    glob: Option<String>,
    #[serde(default)]
    context: usize,
}

pub(super) fn spec() -> ToolSpec {
    super::spec(
        Builtin::SearchFiles,
        EffectClass::Read,
        "Searches files for lines that match a regular expression. Use it to find where something is defined or used; to \
         find files by name use list_files. Searches below `path`, in files that `glob` takes; hidden, ignored and binary \
         files are passed over. Returns matches (how many), files and found: under each path its lines, N: a line that \
         matches, N- one beside it. incomplete means there is more: give a narrower pattern, path or glob.",
        &json!({
            "type": "object",
            "required": ["pattern"],
            "additionalProperties": false,
            "properties": {
                "pattern": {
                    "type": "string", "minLength": 1,
                    "description": "a regular expression in Rust's syntax, matched line by line; (?i) ignores case; write \\\\( for a parenthesis",
                },
                "path": {
                    "type": "string", "minLength": 1, "default": ".",
                    "description": "a file or folder, relative to the workspace, or absolute",
                },
                "glob": { "type": "string", "minLength": 1, "description": "only files that match, such as *.rs" },
                "context": {
                    "type": "integer", "minimum": 0, "maximum": 20, "default": 0,
                    "description": "lines to show before and after each match",
                },
            },
        }),
    )
}

pub(crate) fn run(root: &Root, place: &Place, args: &Args) -> Result<Value, ToolError> {
    let found = look(root, place)?;
    let sought = Sought {
        pattern: &args.pattern,
        glob: args.glob.as_deref(),
        context_lines: args.context,
        leaves_out: &|place| keeps_secrets(root, place),
    };
    let searched = root.search(place, found, sought, LIMITS).map_err(|error| told::path(&error))?;
    let (text, fit) = listed(&searched.hits);
    let mut told = Map::new();
    told.insert("matches".to_owned(), json!(searched.matches));
    told.insert("files".to_owned(), json!(searched.files_matched));
    told.insert("found".to_owned(), json!(text));
    if searched.matches == 0 {
        let note =
            format!("{} files were searched. Hidden, ignored and binary files are left out.", searched.files_searched);
        told.insert("note".to_owned(), json!(note));
    }
    if searched.unfinished || !fit {
        told.insert("incomplete".to_owned(), json!("there is more: give a narrower pattern, path or glob"));
    }
    let skipped =
        [(searched.files_skipped, "too large to search"), (searched.files_left_out, "named like what holds secrets")];
    let skipped: Vec<_> =
        skipped.iter().filter(|(files, _)| *files > 0).map(|(files, why)| format!("{files} files {why}")).collect();
    if !skipped.is_empty() {
        told.insert("skipped".to_owned(), json!(skipped.join(", ")));
    }
    Ok(Value::Object(told))
}

/// Whether reading a file of this name is denied. A search of a folder is ruled on by the folder: what lies in it under such
/// a name is none of its business, whatever a glob asks for. To name one is to be ruled on by it.
fn keeps_secrets(root: &Root, place: &Place) -> bool {
    let path = place.path().to_string_lossy();
    let keeps = secret::file(&path)
        .max(place.path().ancestors().filter_map(|folder| secret::folder(&folder.to_string_lossy())).max());
    keeps.is_some()
        && !(secret::is_settings(&path)
            && root.read_whole(place, SETTINGS_MAX_BYTES).is_ok_and(|(settings, _)| !secret::holds_token(&settings)))
}

/// Grouped by file. Whether all of it fitted.
fn listed(hits: &[Hit]) -> (String, bool) {
    let mut text = String::new();
    let mut room = RESULT_MAX_BYTES;
    let mut before: Option<&Hit> = None;
    for hit in hits {
        let mut line = String::new();
        match before {
            Some(before) if before.place == hit.place => {
                if hit.line > before.line + 1 && (before.context == Context::Beside || hit.context == Context::Beside) {
                    line.push_str("--\n");
                }
            }
            Some(_) | None => {
                let _ = writeln!(line, "{}{}", if text.is_empty() { "" } else { "\n" }, hit.place);
            }
        }
        let mark = match hit.context {
            Context::Match => ':',
            Context::Beside => '-',
        };
        let _ = writeln!(line, "{}{mark} {}", hit.line, hit.text);
        let Some(left) = room.checked_sub(json_bytes(&line)) else { return (text, false) };
        room = left;
        text.push_str(&line);
        before = Some(hit);
    }
    (text, true)
}
