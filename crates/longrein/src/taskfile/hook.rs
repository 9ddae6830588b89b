//! `[[hooks]]`: which command is told of what. The same table in a task file and in configuration.

use std::path::Path;

use longrein_core::hook::{HookEvent, HookSpec};
use longrein_core::task::ToolSpec;

use super::error::TaskFileError;
use super::section::Section;
use super::tool;

/// Hooks that a configuration file declares. The rest of it is read elsewhere.
pub fn configured(file: &Path, text: &str) -> Result<Vec<HookSpec>, TaskFileError> {
    let (mut top, _) = Section::parse(file, text, &std::collections::BTreeMap::new())?;
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("/"));
    let source = file.display().to_string();
    top.sections("hooks")?.into_iter().map(|table| read(table, folder, &source)).collect()
}

/// One `[[hooks]]`. `folder`: that of the file, in which the command runs.
pub(super) fn read(mut table: Section, folder: &Path, source: &str) -> Result<HookSpec, TaskFileError> {
    let place = table.place("event");
    let named = table.text("event")?.ok_or_else(|| table.wrong("event", "of what is it told?"))?;
    let event = HookEvent::named(&named).ok_or_else(|| {
        let known: Vec<_> =
            HookEvent::ALL.map(|event| format!("{} ({})", event.as_str(), event.known_as())).into_iter().collect();
        TaskFileError::Task {
            place,
            problem: format!("there is no event \"{named}\"; there are: {}", known.join(", ")),
        }
    })?;
    let tools = pattern(&mut table, event)?;
    let command = tool::command(&mut table)?;
    let timeout = tool::positive_span(&mut table, "timeout", HookSpec::TIMEOUT)?;
    if timeout > HookSpec::TIMEOUT_MAX {
        let problem = format!("a hook holds up the run: at most {} minutes", HookSpec::TIMEOUT_MAX.as_secs() / 60);
        return Err(table.wrong("timeout", problem));
    }
    let env = tool::env(&mut table)?;
    let folder =
        folder.to_str().ok_or_else(|| table.wrong("command", "the folder of this file is not UTF-8"))?.to_owned();
    table.finish()?;
    Ok(HookSpec { event, tools, command, folder, timeout, env, source: source.to_owned() })
}

/// `match`: names of tools with `|` between them.
fn pattern(table: &mut Section, event: HookEvent) -> Result<Vec<String>, TaskFileError> {
    let place = table.place("match");
    let wrong = |problem: String| TaskFileError::Task { place: place.clone(), problem };
    let Some(text) = table.text("match")? else { return Ok(Vec::new()) };
    if !event.is_about_a_tool() {
        return Err(wrong(format!("{} is about no tool; leave match out", event.as_str())));
    }
    let names: Vec<String> = text.split('|').map(|name| name.trim().to_owned()).collect();
    for name in &names {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(wrong(format!(
                "\"{name}\" is no name of a tool; write \"shell|write_file\", or * for any text"
            )));
        }
        if let Some((_, ours)) = ELSEWHERE.iter().find(|(theirs, _)| theirs == name) {
            return Err(wrong(format!("{name} is called {ours} here; it would never be told of anything")));
        }
    }
    Ok(if names.iter().any(|name| name == "*") { Vec::new() } else { names })
}

/// A task's own hook must name tools there are: one that is never told protects nothing. A pattern need not fit any.
pub(super) fn names_tools(hook: &HookSpec, tools: &[ToolSpec]) -> Result<(), String> {
    let is_unknown = |name: &&String| {
        !name.contains('*')
            && !name.starts_with(longrein_core::mcp::PREFIX)
            && !tools.iter().any(|tool| tool.name.as_str() == *name)
    };
    match hook.tools.iter().find(is_unknown) {
        None => Ok(()),
        Some(name) => {
            let near = longrein_policy::near(name, tools.iter().map(|tool| tool.name.as_str()));
            Err(format!("there is no tool \"{name}\"; near it: {}", near.join(", ")))
        }
    }
}

/// Tools by the names that users of Claude Code know, and what they are called here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("Bash", "shell"),
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("MultiEdit", "edit_file"),
    ("Glob", "list_files"),
    ("LS", "list_files"),
    ("Grep", "search_files"),
    ("WebFetch", "web_fetch"),
];
