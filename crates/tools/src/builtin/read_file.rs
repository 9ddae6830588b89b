//! `read_file`: lines of a text file.

use longrein_core::image::{IMAGE_BYTES_MAX, ImageRef, Unfit};
use longrein_core::outcome::{ToolError, class};
use longrein_core::task::{Builtin, EffectClass, ToolSpec};
use longrein_workspace::{Encoding, Error, Lines, Newline, Newlines, Place, Range, ReadLimits, Root};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::RESULT_MAX_BYTES;
use super::told;
use crate::pictures;

/// A result of more lines than this is rarely read to its end.
const LINES_MAX: u64 = 2_000;
/// A longer line is data: minified, or a log of one line.
const LINE_MAX_BYTES: usize = 2_000;

#[derive(Deserialize)]
pub(crate) struct Args {
    from: Option<u64>,
    to: Option<u64>,
}

pub(super) fn spec() -> ToolSpec {
    super::spec(
        Builtin::ReadFile,
        EffectClass::Read,
        "Reads a text file, or lines `from` to `to` of it. Use it before you edit or overwrite a file, and whenever you \
         need the exact text; to find something in many files use search_files, to see which files there are list_files. \
         Returns path, text (without line numbers, lines ended by a line feed), from, to and total_lines; left_out says \
         which lines did not fit: read on from there. A picture (png, jpeg, gif, webp) comes as one; other binary files are \
         refused.",
        &json!({
            "type": "object",
            "required": ["path"],
            "additionalProperties": false,
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "relative to the workspace, or absolute" },
                "from": { "type": "integer", "minimum": 1, "description": "first line, counted from 1" },
                "to": { "type": "integer", "minimum": 1, "description": "last line, included" },
            },
        }),
    )
}

pub(crate) fn run(root: &Root, place: &Place, args: &Args) -> Result<Value, ToolError> {
    let range = Range { from: args.from.unwrap_or(1), to: args.to };
    if range.to.is_some_and(|to| to < range.from) {
        let message = "to is smaller than from.";
        return Err(ToolError::new(class::INVALID_ARGUMENTS, message).at("/to").hint("Both count from 1."));
    }
    let limits = ReadLimits { max_bytes: RESULT_MAX_BYTES, max_lines: LINES_MAX, max_line_bytes: LINE_MAX_BYTES };
    let lines = match root.read_lines(place, range, limits) {
        Ok(lines) => lines,
        Err(Error::Missing { .. }) => return Err(told::missing(root, place)),
        Err(error @ Error::Unreadable { .. }) => {
            return picture(root, place).unwrap_or_else(|| Err(told::path(&error)));
        }
        Err(error) => return Err(told::path(&error)),
    };
    if range.from > lines.total_lines.max(1) {
        let message = format!("{place} has {} lines; there is no line {}.", lines.total_lines, range.from);
        return Err(ToolError::new(class::INVALID_ARGUMENTS, message).at("/from").hint("Lines are counted from 1."));
    }
    Ok(Value::Object(shown(place, &lines)))
}

/// The file as a picture. None: it is none, or too large for one.
fn picture(root: &Root, place: &Place) -> Option<Result<Value, ToolError>> {
    let (bytes, _) = root.read_whole(place, IMAGE_BYTES_MAX).ok()?;
    match ImageRef::read("image", &bytes) {
        Ok(image) => Some(Ok(json!({ "path": place.to_string(), "picture": pictures::in_result(&image, &bytes) }))),
        Err(Unfit::Other(_)) => None,
        Err(unfit) => Some(Err(told::unfit(place, &unfit))),
    }
}

/// What is as usual (UTF-8, LF, a final newline) is not mentioned.
fn shown(place: &Place, lines: &Lines) -> Map<String, Value> {
    let mut told = Map::new();
    let mut tell = |name: &str, value: Value| {
        told.insert(name.to_owned(), value);
    };
    tell("path", json!(place.to_string()));
    if lines.to >= lines.from {
        tell("from", json!(lines.from));
        tell("to", json!(lines.to));
    }
    tell("total_lines", json!(lines.total_lines));
    tell("text", json!(lines.text));
    if lines.left_out > 0 {
        tell(
            "left_out",
            json!(format!("lines {} to {} did not fit: read on from there", lines.to + 1, lines.to + lines.left_out)),
        );
    }
    if lines.cut_lines > 0 {
        tell("cut_lines", json!(format!("of {} long line(s) only the start is shown", lines.cut_lines)));
    }
    match lines.encoding {
        Encoding::Utf8 { bom: false } => {}
        Encoding::Utf8 { bom: true } | Encoding::Utf16Le | Encoding::Utf16Be => {
            tell("encoding", json!(format!("{}; edits and rewrites keep it", lines.encoding)));
        }
        Encoding::Unknown8Bit => tell(
            "encoding",
            json!(
                "not UTF-8 but some 8-bit encoding: other characters than ASCII are shown as U+FFFD; only ASCII can be edited"
            ),
        ),
    }
    match lines.newlines {
        Newlines::None | Newlines::All(Newline::Lf) => {}
        Newlines::All(Newline::CrLf | Newline::Cr) => {
            tell("newlines", json!(format!("{}; write line feeds, edits and rewrites keep them", lines.newlines)));
        }
        Newlines::Mixed => tell("newlines", json!("mixed lf and crlf; edits keep them")),
    }
    if !lines.final_newline && lines.total_lines > 0 {
        tell("final_newline", json!(false));
    }
    told
}
