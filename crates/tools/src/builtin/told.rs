//! What goes wrong with files, in the model's terms: what, where, what to try.

use std::time::Duration;

use longrein_core::image::Unfit;
use longrein_core::outcome::{ToolError, class};
use longrein_workspace::{Argument, EditError, Error, How, ListLimits, Place, Root, SEARCH_MAX_BYTES};

use crate::near::nearest;

/// No such file or folder.
const NOT_FOUND: &str = "not_found";
/// The file's present content was never read in this run.
const NOT_READ: &str = "not_read";
/// Its content is not what the call went by. Nothing was written.
const CHANGED: &str = "changed";
/// The text to replace is not in the file.
const NO_MATCH: &str = "no_match";
/// The text to replace is in the file more than once.
const SEVERAL_MATCHES: &str = "several_matches";
/// A kind of file, or of text, that these tools do not take.
const UNSUPPORTED: &str = "unsupported";
/// The operating system says no.
const PERMISSION: &str = "permission";
/// The operating system fails.
const INPUT_OUTPUT: &str = "io";

const PATH: &str = "/path";

/// How long looking for a file of the same name may take, and how much of what it finds is told.
const ELSEWHERE: ListLimits = ListLimits { max_entries: 3, time: Duration::from_millis(500) };

/// Of a picture that cannot be shown.
pub(crate) fn unfit(place: &Place, unfit: &Unfit) -> ToolError {
    ToolError::new(UNSUPPORTED, format!("{place} cannot be shown: {unfit}.")).at(PATH)
}

/// Of a path that could not be located or opened.
pub(crate) fn path(error: &Error) -> ToolError {
    let sentence = sentence(&error.to_string());
    let told = |class: &str| ToolError::new(class, sentence.clone()).at(PATH);
    match error {
        Error::Empty => told(class::INVALID_ARGUMENTS).hint("Give a path; \".\" is the workspace."),
        Error::Nul | Error::TooLong => told(class::INVALID_ARGUMENTS),
        Error::Missing { .. } => told(NOT_FOUND).hint("list_files shows what there is."),
        Error::NotAFolder { .. } => told(NOT_FOUND).hint("Leave out what follows it in the path."),
        Error::Dangling { .. } => told(NOT_FOUND).hint("Name the file itself, not the link."),
        Error::LinkLoop { .. } | Error::MagicLink { .. } => told(UNSUPPORTED).hint("Name the file itself."),
        Error::Denied { .. } => told(PERMISSION),
        Error::ReadOnly { .. } => told(PERMISSION).hint("Somebody meant it to stay as it is."),
        Error::Folder { .. } => told(UNSUPPORTED).hint("This takes a file; list_files shows what is in a folder."),
        Error::Special { .. } => told(UNSUPPORTED).hint("Only regular files are read and written."),
        Error::TooLarge { bytes, .. } if *bytes <= SEARCH_MAX_BYTES => {
            told(UNSUPPORTED).hint("search_files finds lines in it.")
        }
        Error::TooLarge { .. } => told(UNSUPPORTED)
            .hint("search_files passes over it too. A command such as tail or sed -n shows a part of it."),
        Error::Unreadable { .. } => {
            told(UNSUPPORTED).hint("A command that understands the format can tell what is in it.")
        }
        Error::Moved { .. } => told(CHANGED).hint("Call again to use what is there now."),
        Error::Changed { .. } => told(CHANGED).hint("Call read_file on it again, then decide."),
        Error::NotWritten { .. } => told(class::UNKNOWN_OUTCOME).hint("Read the file to see what it holds."),
        Error::Pattern(_) => ToolError::new(class::INVALID_ARGUMENTS, sentence).at("/pattern").hint(
            "It is a regular expression in Rust's syntax, for one line: escape ( ) [ ] { } . * + ? | ^ $ \\ with a \
             backslash to mean themselves; there is no look-around and no back-reference.",
        ),
        Error::Glob(_) => ToolError::new(class::INVALID_ARGUMENTS, sentence)
            .at("/glob")
            .hint("* is any part of a name, ** any folders, ? one character, {a,b} either, [a-z] one of these."),
        Error::NoOpenat2 => told(class::INTERNAL).hint("File tools do not work on this machine; say so."),
        Error::Io { .. } => told(INPUT_OUTPUT),
    }
}

pub(crate) fn absent(place: &Place) -> ToolError {
    ToolError::new(NOT_FOUND, format!("There is no {place}."))
        .at(PATH)
        .hint("list_files shows what there is; paths are relative to the workspace.")
}

/// Of a file that is not there, with those that may have been meant.
pub(crate) fn missing(root: &Root, place: &Place) -> ToolError {
    let error = absent(place);
    let Some(name) = place.path().file_name().and_then(|name| name.to_str()) else { return error };
    let mut near: Vec<String> = Vec::new();
    if let Some(folder) = place.parent() {
        let names = root.names(&folder);
        let of = |name: &str| match &folder {
            Place::Inside(path) => Place::Inside(path.join(name)),
            Place::Outside(path) => Place::Outside(path.join(name)),
        };
        near.extend(nearest(name, names.iter().map(String::as_str)).into_iter().map(|name| of(name).to_string()));
    }
    if place.is_inside() {
        let named = format!("**/{}", globset_literal(name));
        let top = Place::Inside(std::path::PathBuf::new());
        if let Ok(found) = root.list(&top, Some(&named), ELSEWHERE) {
            near.extend(found.entries.iter().map(|entry| entry.place.to_string()));
        }
    }
    near.dedup();
    near.truncate(3);
    match near.as_slice() {
        [] => error,
        near => error.hint(format!("Did you mean {}?", near.join(" or "))),
    }
}

/// A name as a glob that matches nothing else.
fn globset_literal(name: &str) -> String {
    name.chars()
        .flat_map(|c| if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') { vec!['\\', c] } else { vec![c] })
        .collect()
}

pub(crate) fn not_utf8(place: &Place) -> ToolError {
    ToolError::new(UNSUPPORTED, format!("The name of {place} is not UTF-8."))
        .at(PATH)
        .hint("A command can rename it; then it can be read and written.")
}

pub(crate) fn not_read(place: &Place) -> ToolError {
    ToolError::new(NOT_READ, format!("{place} exists, and this run has not read it. Nothing was written."))
        .at(PATH)
        .hint("Call read_file on it first; then change what is really there.")
}

pub(crate) fn stale(place: &Place) -> ToolError {
    ToolError::new(CHANGED, format!("{place} has changed since it was last read here. Nothing was written."))
        .at(PATH)
        .hint("Call read_file on it again, then decide.")
}

/// Between the ruling and the call.
pub(crate) fn not_as_ruled(place: &Place) -> ToolError {
    ToolError::new(CHANGED, format!("{place} has changed since this call was allowed. Nothing was written."))
        .at(PATH)
        .hint("Call read_file on it again, then decide.")
}

pub(crate) fn edit(error: &EditError, place: &Place) -> ToolError {
    let told = |class: &str, message: String| ToolError::new(class, format!("{message} Nothing was written."));
    let plain = sentence(&error.to_string());
    match error {
        EditError::EmptyOld => told(class::INVALID_ARGUMENTS, plain)
            .at("/old")
            .hint("Give the lines to replace as they stand in the file. To make or rewrite a file, use write_file."),
        EditError::Same => told(class::INVALID_ARGUMENTS, plain).at("/new").hint("The file reads so already."),
        EditError::Unreadable(why) => told(UNSUPPORTED, format!("{place} {why}.")).at(PATH),
        EditError::TooLarge { bytes, max } => {
            told(UNSUPPORTED, format!("{place} has {bytes} bytes; at most {max} can be edited."))
                .at(PATH)
                .hint("Use a command that edits in a stream, such as sed.")
        }
        EditError::NotAscii { argument, .. } => told(UNSUPPORTED, plain)
            .at(match argument {
                Argument::Old => "/old",
                Argument::New => "/new",
            })
            .hint("Keep old and new to ASCII, or convert the file to UTF-8 with a command first."),
        EditError::InsideCharacter { .. } => told(UNSUPPORTED, plain)
            .at("/old")
            .hint("Start old at the beginning of the line or after a space, or convert the file to UTF-8 first."),
        EditError::Several { count, lines, how } => {
            let more = if *count > lines.len() { ", …" } else { "" };
            let aside = match how {
                How::Exact | How::Newlines => "",
                How::Whitespace => ", but for white space,",
            };
            let message = format!("old is found{aside} {count} times in {place}: in lines {}{more}.", join(lines));
            let hint = match how {
                How::Exact | How::Newlines => {
                    "Add lines before or after it until it is the only one, or set all to replace every one."
                }
                How::Whitespace => "Give it exactly as it stands in the file, white space too.",
            };
            told(SEVERAL_MATCHES, message).at("/old").hint(hint)
        }
        EditError::NotFound { nearest } => {
            let error = told(NO_MATCH, format!("old is not found in {place}.")).at("/old");
            if nearest.is_empty() {
                return error.hint("Nothing in it comes near. Read the file again.");
            }
            let near: Vec<_> = nearest.iter().map(|near| near.excerpt.as_str()).collect();
            error.hint(format!(
                "Nearest, with line numbers that are not part of the file:\n{}\nGive old as it stands there.",
                near.join("\n…\n")
            ))
        }
    }
}

fn join(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn sentence(text: &str) -> String {
    // Elsewhere a path stands first, and `Src` is another one than `src`.
    if !["the ", "there ", "permission "].iter().any(|word| text.starts_with(word)) {
        return format!("{text}.");
    }
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}
