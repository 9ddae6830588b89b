//! `recall`: what this run has seen and no longer has before it, found by words or read by handle.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::context::archive::Handle;
use longrein_core::ids::RunId;
use longrein_core::outcome::{ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::task::{Builtin, EffectClass, Holds, ToolSpec};
use longrein_ports::{Archive, Found, JournalError, Piece, lines};
use longrein_workspace::json_bytes;
use serde::Deserialize;
use serde_json::{Value, json};

/// Places shown for a query: about 1,500 tokens.
const PLACES_MAX: usize = 5;
/// What one call answers, as JSON: some 2,000 to 4,000 tokens. The kernel lets what was recalled have that where there is any
/// room, so that what is told of lines is true of what is shown.
const ANSWER_MAX_BYTES: usize = 8 * 1024;
/// Of a call, beside its result.
const CALL_MAX_BYTES: usize = 1024;
/// Everything of an answer but its texts.
const FRAME_BYTES: usize = 512;
/// A longer query is a text, not a question.
const QUERY_MAX_CHARS: u64 = 4_000;

#[derive(Deserialize)]
struct Args {
    query: Option<String>,
    handle: Option<String>,
    part: Option<Part>,
    from: Option<u64>,
    to: Option<u64>,
}

/// Which text of an action the lines are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    #[default]
    Result,
    Call,
}

pub(super) fn spec() -> ToolSpec {
    let spec = super::spec(
        Builtin::Recall,
        EffectClass::Read,
        "Reads back what happened earlier in this run and is no longer before you: every message, reply, tool call, result \
         and check is kept whole, however long ago. With `query`, finds the places that fit best: give a few words that stand \
         there (names, ids, numbers, parts of an error), not a question. With `handle`, reads one piece by its id, such as a7 \
         (a tool call and its result), u1 (a person's message; u1 is your task), t12 (what you said in turn 12), c31 (a \
         check), or a list, a line each: effects (what was done to the world), notes, messages, files (that were changed); \
         `from` and `to` choose lines of it: of an action lines of its result, counted as where it was shown shorter. \
         Use it before you repeat a call only to see its result again, and whenever you are not sure what was said. For files \
         as they are now use read_file. Returns places (handle, tool, line, excerpt), or at most 8 KiB of text with from, to \
         and total_lines; left_out says where to read on.",
        &json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "query": { "type": "string", "minLength": 1, "maxLength": QUERY_MAX_CHARS, "description": "words to look for" },
                "handle": { "type": "string", "minLength": 1, "description": "a7, e7, u1, t12, c31, effects, notes, messages or files" },
                "part": { "type": "string", "enum": ["result", "call"], "description": "of an action: its result (the default), or the call with its arguments" },
                "from": { "type": "integer", "minimum": 1, "description": "first line, counted from 1; with handle" },
                "to": { "type": "integer", "minimum": 1, "description": "last line, included; with handle" },
            },
        }),
    );
    // What was, stays so, whatever is written.
    ToolSpec { holds: Holds::Run, ..spec }
}

/// What a call asks for.
enum Asked {
    Query(String),
    Piece { handle: Handle, part: Part, from: u64, to: Option<u64> },
}

/// What is shown of every place but the best.
const OTHERS_BYTES: usize = 240;

pub(super) fn check(args: &Value) -> Result<(), ToolError> {
    asked(Args::deserialize(args)).map(drop)
}

fn asked(args: Result<Args, serde_json::Error>) -> Result<Asked, ToolError> {
    let wrong = |message: &str| ToolError::new(class::INVALID_ARGUMENTS, message);
    let either = "Give `query` to find something, or `handle` to read one piece.";
    let args = args.map_err(|error| wrong(&format!("The arguments cannot be read: {error}.")).hint(either))?;
    match (args.query, args.handle) {
        (Some(_), Some(_)) => Err(wrong("There is a query and a handle.").hint(either)),
        (None, None) => Err(wrong("There is neither a query nor a handle.").hint(either)),
        (Some(query), None) if query.trim().is_empty() => Err(wrong("The query is empty.").at("/query").hint(either)),
        (Some(_), None) if args.from.is_some() || args.to.is_some() || args.part.is_some() => {
            let hint = "Search first, then read the lines you want with the handle you find.";
            let field = if args.from.is_some() || args.to.is_some() { "/from" } else { "/part" };
            Err(wrong("Lines go with a handle, not with a query.").at(field).hint(hint))
        }
        (Some(query), None) => Ok(Asked::Query(query)),
        (None, Some(handle)) => {
            let handle = handle.trim().parse::<Handle>().map_err(|error| {
                wrong(&format!("{error}."))
                    .at("/handle")
                    .hint("With `query`, you find the handle of what you look for.")
            })?;
            let from = args.from.unwrap_or(1);
            if args.to.is_some_and(|to| to < from) {
                return Err(wrong("to is smaller than from.").at("/to").hint("Both count from 1."));
            }
            let part = args.part.unwrap_or_default();
            if let (Part::Call, Handle::Message(_) | Handle::Reply(_) | Handle::Check(_) | Handle::List(_)) =
                (part, handle)
            {
                let message = format!("{handle} is no action and has no call.");
                return Err(wrong(&message).at("/part").hint("Leave `part` out."));
            }
            Ok(Asked::Piece { handle, part, from, to: args.to })
        }
    }
}

pub(crate) async fn run(
    archive: Option<&Arc<dyn Archive>>,
    run: &RunId,
    args: &Payload,
    patience: Duration,
) -> Result<Value, ToolError> {
    let Some(archive) = archive else {
        let message = "There is no archive here to recall from.";
        return Err(ToolError::new(class::INTERNAL, message).hint("Do without it and say so."));
    };
    let asked = asked(args.read::<Args>())?;
    let answer = async {
        match &asked {
            Asked::Query(query) => Ok(places(&archive.find(run, query, PLACES_MAX).await.map_err(unreadable)?)),
            Asked::Piece { handle, part, from, to } => {
                let piece = archive.piece(run, handle).await.map_err(unreadable)?;
                shown(&piece.ok_or_else(|| no_such(*handle))?, *part, *from, *to)
            }
        }
    };
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
        let message = format!("Nothing was found within {} s.", patience.as_secs());
        Err(ToolError::new(class::TIMEOUT, message).hint("Try once more: what was read so far is not read again."))
    })
}

fn unreadable(error: JournalError) -> ToolError {
    let message = format!("What happened earlier cannot be read now: {error}.");
    ToolError::new(class::UNAVAILABLE, message).hint("Try again later, or do without it and say so.")
}

fn no_such(handle: Handle) -> ToolError {
    let (what, hint) = match handle {
        Handle::Message(_) => {
            ("message of a person", "u1 is your task; the others stand beside the messages you were shown.")
        }
        Handle::Action(_) => ("action", "Actions count from a1 in the order of your calls, over all turns."),
        Handle::Reply(_) => ("words of yours", "Turns count from t1; one in which you only called tools has no words."),
        Handle::List(list) => {
            let message = format!("There is nothing yet that the list of {list} would have.");
            return ToolError::new(class::INVALID_ARGUMENTS, message).at("/handle").hint("`query` finds any piece.");
        }
        Handle::Check(_) => ("check", "c and the number of its event; with `query`, you find it by the check's name."),
    };
    let message = format!("There is no {handle} in this run: no {what} goes by that handle.");
    ToolError::new(class::INVALID_ARGUMENTS, message).at("/handle").hint(format!("{hint} `query` finds any piece."))
}

fn places(found: &[Found]) -> Value {
    // The best place is shown as found; the others so that one can tell whether they are worth reading.
    let place = |(rank, found): (usize, &Found)| {
        let excerpt = if rank == 0 { found.excerpt.as_str() } else { middle(&found.excerpt, OTHERS_BYTES) };
        let mut place = json!({ "handle": found.handle, "tool": found.what, "at": found.at.to_string() });
        match found.line {
            0 => place["part"] = json!("call"),
            line => place["line"] = json!(line),
        }
        place["excerpt"] = json!(excerpt);
        place
    };
    let more = match found {
        [] => "Nothing fits. Try other words, fewer of them, or a part of a name.".to_owned(),
        [first, ..] if first.line == 0 => {
            format!("To read on, give a handle and lines around the place: handle {}, part call.", first.handle)
        }
        [first, ..] => {
            let from = first.line.saturating_sub(20).max(1);
            format!("To read on, give a handle and lines around the place: handle {}, from {from}.", first.handle)
        }
    };
    json!({ "places": found.iter().enumerate().map(place).collect::<Vec<_>>(), "more": more })
}

/// The middle of a text, where what was found stands.
fn middle(text: &str, bytes: usize) -> &str {
    let left_out = text.len().saturating_sub(bytes);
    &text[text.floor_char_boundary(left_out / 2)..text.floor_char_boundary(text.len() - left_out / 2)]
}

fn shown(piece: &Piece, part: Part, from: u64, to: Option<u64>) -> Result<Value, ToolError> {
    let whole = match part {
        Part::Result => piece.result(),
        Part::Call => piece.call(),
    };
    let total_lines = lines(whole).count() as u64;
    if from > total_lines.max(1) {
        let of = match (part, piece.call()) {
            (Part::Call, _) => "The call of ",
            (Part::Result, "") => "",
            (Part::Result, _) => "The result of ",
        };
        let message = format!("{of}{} has {total_lines} lines; there is no line {from}.", piece.handle);
        return Err(ToolError::new(class::INVALID_ARGUMENTS, message).at("/from").hint("Lines are counted from 1."));
    }
    // Told once, where the result begins.
    let call = if part == Part::Result && from == 1 { piece.call() } else { "" };
    let call_shown = head(call, CALL_MAX_BYTES);
    let room = ANSWER_MAX_BYTES - FRAME_BYTES - json_bytes(call_shown);
    let wanted = to.unwrap_or(total_lines).min(total_lines);
    let (mut text, mut bytes, mut last) = (String::new(), 0, from - 1);
    for line in lines(whole).skip(usize::try_from(from - 1).unwrap_or(usize::MAX)) {
        bytes += json_bytes(line);
        // One is always shown, so that there is no place that cannot be got past.
        if last >= wanted || bytes > room && last >= from {
            break;
        }
        text.push_str(line);
        last += 1;
    }
    let mut told = json!({ "handle": piece.handle, "tool": piece.what, "at": piece.at.to_string() });
    if part == Part::Call {
        told["part"] = json!("call");
    }
    if !call_shown.is_empty() {
        told["call"] = json!(call_shown);
    }
    if call_shown.len() < call.len() {
        let left_out = call.len() - call_shown.len();
        told["call_left_out"] = json!(format!("{left_out} bytes: read them with handle {}, part call", piece.handle));
    }
    told["from"] = json!(from);
    told["to"] = json!(last);
    told["total_lines"] = json!(total_lines);
    told["text"] = json!(text);
    if last < wanted {
        let part = if part == Part::Call { ", part call" } else { "" };
        let next = last + 1;
        told["left_out"] =
            json!(format!("lines {next} to {wanted}: read on with handle {}{part}, from {next}", piece.handle));
    }
    Ok(told)
}

/// As much of the start as takes so many bytes in JSON.
fn head(text: &str, bytes_max: usize) -> &str {
    let mut bytes = 0;
    let mut buffer = [0; 4];
    let end = text.char_indices().find(|(_, c)| {
        bytes += json_bytes(c.encode_utf8(&mut buffer));
        bytes > bytes_max
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}
