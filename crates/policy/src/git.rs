//! What a repository makes git do: settings and hooks with which it runs programs, even where it only reads.
//!
//! Read [`trap`] first. Git is not run to find out, for that would spring it. What cannot be read is called a trap.

use crate::path::{self, File, World};

/// Why git, started in this folder to read, might run a program of the repository's. None: it would run none.
///
/// Of the hooks one counts: `git diff` writes the index when it finds a file's time changed, though optional locks are off.
/// Pagers are not looked for, as nobody sits at a terminal.
pub(crate) fn trap(world: &dyn World, folder: &str) -> Option<String> {
    let mut at = folder.to_owned();
    for _ in 0..PARENTS_MAX {
        let has_head =
            || world.file(&format!("{at}/HEAD")) != File::Missing || world.link(&format!("{at}/HEAD")).is_some();
        let is_folder = |name: &str| world.names(&format!("{at}/{name}")).is_some();
        // with `commondir` the rest of it lies elsewhere
        if (is_folder("objects") && is_folder("refs") || world.file(&format!("{at}/commondir")) != File::Missing)
            && has_head()
        {
            return Some(format!("{at} is laid out as a repository of its own, whose settings git would obey"));
        }
        let inside = format!("{at}/.git");
        match world.file(&inside) {
            File::Content(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some(target) = text.strip_prefix("gitdir:") else {
                    return Some(format!("{inside} cannot be read"));
                };
                return repository(world, &path::absolute(&at, target.trim()));
            }
            File::Unreadable if world.file(&format!("{inside}/HEAD")) != File::Missing => {
                return repository(world, &inside);
            }
            File::Missing | File::Unreadable => {}
        }
        match at.rfind('/') {
            Some(0) if at.len() > 1 => at = "/".to_owned(),
            Some(end) if end > 0 => at.truncate(end),
            Some(_) | None => return None,
        }
    }
    None
}

fn repository(world: &dyn World, folder: &str) -> Option<String> {
    let common = match world.file(&format!("{folder}/commondir")) {
        File::Content(bytes) => path::absolute(folder, String::from_utf8_lossy(&bytes).trim()),
        File::Missing => folder.to_owned(),
        File::Unreadable => return Some(format!("{folder}/commondir cannot be read")),
    };
    let mut hooks = format!("{common}/hooks");
    for file in [format!("{common}/config"), format!("{folder}/config.worktree")] {
        match world.file(&file) {
            File::Content(bytes) => {
                let settings = settings(&String::from_utf8_lossy(&bytes));
                if let Some((_, value)) = settings.iter().rev().find(|(key, _)| key == "core.hookspath") {
                    let told = !value.starts_with(['~', '%']) && !value.contains(['"', '#', ';', '\\']);
                    if !told || !(value.starts_with('/') || folder.ends_with("/.git")) {
                        return Some(format!("where its hooks lie is not told plainly in {file}"));
                    }
                    // relative to the folder that is checked out
                    hooks = path::absolute(folder.rsplit_once('/').map_or("/", |(above, _)| above), value);
                }
                if let Some((key, _)) = settings.into_iter().find(springs) {
                    return Some(format!("the repository's setting {key} has git run or read something of its choice"));
                }
            }
            File::Missing => {}
            File::Unreadable => return Some(format!("{file} cannot be read")),
        }
    }
    if world.file(&format!("{hooks}/post-index-change")) != File::Missing {
        return Some("the repository has a hook that is run when git writes its index".to_owned());
    }
    match world.file(&format!("{folder}/index")) {
        File::Content(bytes) if holds_repositories(&bytes) => {
            Some("the repository has others inside, with settings of their own".to_owned())
        }
        File::Content(_) | File::Missing => None,
        File::Unreadable => Some(format!("{folder}/index cannot be read")),
    }
}

/// Whether a setting matters to commands that only read.
fn springs((key, value): &(String, String)) -> bool {
    match runs_a_program(key) {
        Some(When::Reading) if key == "core.fsmonitor" => {
            !matches!(value.to_lowercase().as_str(), "" | "true" | "false" | "0" | "1" | "no" | "yes" | "off" | "on")
        }
        Some(When::Reading) if key == "log.showsignature" => {
            !matches!(value.to_lowercase().as_str(), "false" | "no" | "off" | "0")
        }
        Some(When::Reading) => true,
        Some(When::Otherwise) | None => false,
    }
}

/// When git obeys a setting that names a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// By `status`, `diff`, `log`, `show` and the like.
    Reading,
    Otherwise,
}

/// Whether a setting, in lower case, has git run a program, or read files that may say so.
pub(crate) fn runs_a_program(key: &str) -> Option<When> {
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit('.').next().unwrap_or_default();
    let when = match (section, name) {
        ("core", "fsmonitor" | "worktree" | "alternaterefscommand") => When::Reading,
        ("core", "hookspath" | "sshcommand" | "gitproxy" | "pager" | "editor" | "askpass") => When::Otherwise,
        ("diff", "external" | "command" | "textconv") => When::Reading,
        ("filter", "clean" | "smudge" | "process") => When::Reading,
        ("gpg", "program") | ("log", "showsignature") => When::Reading,
        ("include" | "includeif", _) => When::Reading,
        ("extensions", "partialclone" | "objectformat") | ("remote", "promisor" | "partialclonefilter" | "vcs") => {
            When::Reading
        }
        ("trailer", "cmd" | "command") | ("hook", "command") => When::Reading,
        ("alias" | "pager" | "protocol" | "sendemail", _) => When::Otherwise,
        ("merge", "driver") | ("mergetool" | "difftool" | "browser" | "man", "cmd" | "path") => When::Otherwise,
        ("credential", "helper") | ("sequence", "editor") | ("interactive", "difffilter") => When::Otherwise,
        ("remote", "uploadpack" | "receivepack" | "proxy") | ("uploadpack", "packobjectshook") => When::Otherwise,
        ("init", "templatedir") | ("submodule", "update") | ("web", "browser") => When::Otherwise,
        _ => return None,
    };
    Some(when)
}

/// Keys in lower case, subsections left out of the middle, and values as they stand.
pub(crate) fn settings(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut section = String::new();
    // a line that goes on is joined: what it says counts wherever it stands
    for line in text.replace("\\\r\n", "").replace("\\\n", "").lines() {
        let mut rest = line.trim().trim_start_matches('\u{feff}');
        while let Some(header) = rest.strip_prefix('[') {
            let Some(end) = end_of_header(header) else { break };
            let inside = header.get(..end).unwrap_or_default();
            section = inside.split(['"', ' ', '\t', '.']).next().unwrap_or_default().to_lowercase();
            rest = header.get(end + 1..).unwrap_or_default().trim();
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
        let name = name.split(['#', ';']).next().unwrap_or_default();
        found.push((format!("{section}.{}", name.trim().to_lowercase()), value.trim().to_owned()));
    }
    found
}

/// Where the `]` of a header stands; one in quotes is none.
fn end_of_header(header: &str) -> Option<usize> {
    let mut quoted = false;
    let mut letters = header.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether an index lists other repositories (mode 160000), or is none that can be read.
fn holds_repositories(index: &[u8]) -> bool {
    let number = |at: usize| -> Option<u32> { Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?)) };
    let look = || -> Option<bool> {
        if index.get(..4)? != b"DIRC" {
            return None;
        }
        let (version, entries) = (number(4)?, number(8)?);
        let mut at = 12;
        for _ in 0..entries {
            if number(at + 24)? >> 12 == 0o16 {
                return Some(true);
            }
            let flags = u16::from_be_bytes(index.get(at + 60..at + 62)?.try_into().ok()?);
            let name = at + 62 + if flags & 0x4000 != 0 { 2 } else { 0 };
            let name = match version {
                2 | 3 => name,
                4 => name + 1 + index.get(name..)?.iter().take_while(|byte| **byte & 0x80 != 0).count(),
                _ => return None,
            };
            let length = index.get(name..)?.iter().position(|byte| *byte == 0)?;
            at = match version {
                4 => name + length + 1,
                // padded by one to eight zeros
                _ => at + ((name + length - at) / 8 + 1) * 8,
            };
        }
        // an index that is split keeps its entries elsewhere
        Some(index.get(at..).is_some_and(|rest| rest.windows(4).any(|name| name == b"link")))
    };
    look().unwrap_or(true)
}

/// A folder is not so deep.
const PARENTS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_run_programs_are_found_however_they_are_written() {
        for text in [
            "[core]\n\tfsmonitor = ./x",
            "[core] fsmonitor=./x",
            "[CORE]\nFsMonitor=./x",
            "[diff \"a]b\"]\n textconv = x",
            "[diff.a] textconv = x",
            "[filter \"f\"] clean = x # y",
            "[include]\npath = x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[core]\nfsmon\\\nitor = ./x",
            "[a][core]fsmonitor=x",
            "[log]\nshowSignature",
            "[gpg \"ssh\"]\nprogram=x",
            "[core]\nworktree=/",
        ] {
            assert!(settings(text).iter().any(springs), "{text}");
        }
        for text in [
            "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = false\n\thooksPath = .husky",
            "# [core] fsmonitor = x\n; [diff] external = x",
            "[remote \"origin\"]\nurl = https://x\nfetch = +refs/heads/*:refs/remotes/origin/*",
            "[user]\nname = textconv",
            "[log]\nshowSignature = false",
        ] {
            assert!(!settings(text).iter().any(springs), "{text}");
        }
    }
}
