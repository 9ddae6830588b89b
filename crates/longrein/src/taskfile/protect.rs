//! What a check protects: patterns over paths of the workspace, as its snapshots have them. One that can mean nothing there
//! protects nothing, so it is refused where it stands, with the way out.

use std::path::Path;

use longrein_core::ids::CheckName;
use longrein_core::program::Phases;
use longrein_core::task::{CheckSpec, Task};
use longrein_workspace::Patterns;

use super::error::{Place, TaskFileError};

/// Entries of a workspace that are looked at to see whether a pattern means anything; in a larger one nothing is said.
const ENTRIES_MAX: usize = 20_000;

/// Brings what checks protect to the form of a snapshot's paths. `places`: where the checks say it.
pub(super) fn settle(
    checks: &mut [CheckSpec],
    places: &[(CheckName, Place)],
    workspace: &Path,
) -> Result<(), TaskFileError> {
    for (name, place) in places {
        let Some(check) = checks.iter_mut().find(|check| check.name == *name) else { continue };
        let settled: Result<Vec<_>, _> = check.protect.iter().map(|written| path_of(written, workspace)).collect();
        let settled = settled.and_then(|patterns| {
            patterns.iter().try_for_each(|pattern| leads_over_no_link(pattern, &patterns, workspace)).map(|()| patterns)
        });
        check.protect = settled.map_err(|problem| TaskFileError::Task { place: place.clone(), problem })?;
    }
    Ok(())
}

/// A pattern with one `/` between folders and none at its ends, below the workspace.
fn path_of(written: &str, workspace: &Path) -> Result<String, String> {
    let cannot = |why: &str| Err(format!("\"{written}\" protects nothing: {why}"));
    if written.trim() != written {
        return cannot("it begins or ends with white space; leave that out");
    }
    if written.starts_with('~') {
        return cannot(
            "no home folder is looked up here; write the path from the workspace (\"[~]x\" is a file of that name)",
        );
    }
    if written.starts_with('!') {
        return cannot("there are no exceptions; name what is protected, and nothing else");
    }
    let quotes_a_letter = |(at, _): (usize, &str)| written[at + 1..].starts_with(|next: char| next.is_alphanumeric());
    if written.match_indices('\\').any(quotes_a_letter) {
        return cannot("write / between folders");
    }
    let within = if written.starts_with('/') { below(written, workspace) } else { Some(written.to_owned()) };
    let Some(within) = within else {
        return cannot(&format!(
            "it lies outside the workspace {}; write it from there, as in \"tests/**\"",
            workspace.display()
        ));
    };
    let parts: Vec<&str> = within.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return cannot("paths are told from the workspace, without \"..\"; what lies outside cannot be protected");
    }
    if parts.contains(&".git") {
        return cannot("what git keeps is no part of a snapshot");
    }
    if parts.is_empty() {
        return cannot("it names no file; write \"**\" for all of them");
    }
    Ok(parts.join("/"))
}

/// An absolute pattern as seen from the workspace, whatever links lead there. None: it lies outside.
fn below(written: &str, workspace: &Path) -> Option<String> {
    let all = Path::new(written);
    let is_it = |folder: &&Path| *folder == workspace || folder.canonicalize().is_ok_and(|found| found == workspace);
    let folder = all.ancestors().filter(is_it).last()?;
    all.strip_prefix(folder).ok()?.to_str().map(str::to_owned)
}

/// What is told without wildcards is followed by nobody: a snapshot holds the link, not what lies behind it.
fn leads_over_no_link(pattern: &str, all: &[String], workspace: &Path) -> Result<(), String> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let fixed = parts.iter().take_while(|part| !part.contains(['*', '?', '[', '{', '\\'])).count();
    for end in 1..=fixed {
        let link = parts[..end].join("/");
        let Ok(target) = std::fs::read_link(workspace.join(&link)) else { continue };
        let found = workspace.join(&link).canonicalize().ok();
        let behind = found.as_deref().and_then(|found| found.strip_prefix(workspace).ok()).and_then(Path::to_str);
        let is_behind =
            |other: &String| behind.is_some_and(|behind| other == behind || other.starts_with(&format!("{behind}/")));
        // The link alone, so that it stays as it is, beside what it leads to.
        if end == parts.len() && (behind.is_none() || all.iter().any(is_behind)) {
            continue;
        }
        let way_out = match behind {
            Some(behind) => {
                let rest = if end == parts.len() { String::new() } else { format!("/{}", parts[end..].join("/")) };
                format!("protect \"{behind}{rest}\" and \"{link}\", the one for the files and the other for the link")
            }
            None => "nothing there can be protected; \"".to_owned() + &link + "\" protects the link itself",
        };
        return Err(format!(
            "\"{pattern}\" leads over a link: {link} leads to {}, and what lies behind a link is not looked at; {way_out}",
            target.display()
        ));
    }
    Ok(())
}

/// What checks of a task and of its children protect and that is not there now, with the names of the checks: it may be a
/// slip of the pen.
pub fn protects_nothing_yet(task: &Task) -> Vec<(&CheckName, &str)> {
    let of_children = task.program.phases().into_iter().flat_map(Phases::acceptance);
    let named = task.acceptance.iter().chain(of_children);
    let mut open: Vec<_> = named
        .flat_map(|check| check.protect.iter().map(move |pattern| (&check.name, pattern.as_str())))
        .filter_map(|(name, pattern)| Some((name, pattern, Patterns::new(&[pattern.to_owned()]).ok()?)))
        .collect();
    let root = Path::new(&task.workspace);
    let mut folders = vec![String::new()];
    let mut entries = 0;
    while let Some(folder) = folders.pop() {
        if open.is_empty() {
            break;
        }
        for entry in std::fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return Vec::new();
            }
            let name = entry.file_name();
            // What is no text no pattern names, nor what lies in it.
            let Some(name) = name.to_str().filter(|name| *name != ".git") else { continue };
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            open.retain(|(.., patterns)| !patterns.matches(&path));
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    open.into_iter().map(|(name, pattern, _)| (name, pattern)).collect()
}
