//! Files of a workspace that say how to work in it, captured by content when a run starts.

use std::path::Path;
use std::time::{Duration, Instant};

use longrein_core::ids::Digest;
use longrein_core::payload::head_and_tail;
use longrein_core::run::RULE_FILES;
use longrein_core::task::RuleFile;
use longrein_workspace::Root;

/// The most files that are captured, and the most of one that is kept: they stand in every request.
const FILES_MAX: usize = 64;
const FILE_MAX_BYTES: usize = 24 * 1024;
/// Larger files are nobody's rules.
const READ_MAX_BYTES: u64 = 1024 * 1024;
/// How long is looked for them: a workspace of some ten thousand files.
const LOOK_FOR: Duration = Duration::from_millis(150);

/// The rule files of a workspace, its own folder's first. Of two in one folder with the same content one is kept. What
/// cannot be read is left out. The root of all files is nobody's project: a task that works in no folder has it, and what
/// other people's projects below it say is none of its rules.
pub fn capture(workspace: &str) -> Vec<RuleFile> {
    if Path::new(workspace).parent().is_none() {
        return Vec::new();
    }
    let Ok(root) = Root::open(Path::new(workspace)) else { return Vec::new() };
    let places = root.named(&RULE_FILES, FILES_MAX, Instant::now() + LOOK_FOR).unwrap_or_default();
    let mut files: Vec<RuleFile> = Vec::new();
    for place in places {
        let Ok((bytes, digest)) = root.read_whole(&place, READ_MAX_BYTES) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let path = place.path().to_string_lossy().into_owned();
        let same = |file: &RuleFile| file.digest == digest && folder(&file.path) == folder(&path);
        if text.trim().is_empty() || files.iter().any(same) {
            continue;
        }
        files.push(RuleFile { path, text: head_and_tail(&text, FILE_MAX_BYTES), digest });
    }
    files
}

/// The content of a captured file as it is now. None: it is gone.
pub(crate) fn now(workspace: &str, path: &str) -> Option<Digest> {
    let root = Root::open(Path::new(workspace)).ok()?;
    let located = root.locate(path).ok()?;
    root.digest(&located.place).ok().flatten()
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_files_are_captured_from_the_root_down_and_not_twice() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("CLAUDE.md", "be kind");
        write("AGENTS.md", "be kind");
        write("pkg/deep/AGENTS.md", "be deep");
        write("pkg/AGENTS.md", "be quick");
        write("node_modules/x/AGENTS.md", "ignored");
        write(".gitignore", "node_modules\n");
        write("empty/AGENTS.md", " \n");
        let files = capture(&folder.path().to_string_lossy());
        let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["AGENTS.md", "pkg/AGENTS.md", "pkg/deep/AGENTS.md"]);
        assert_eq!(now(&folder.path().to_string_lossy(), "pkg/AGENTS.md").as_ref(), Some(&files[1].digest));
        write("pkg/AGENTS.md", "be slow");
        assert_ne!(now(&folder.path().to_string_lossy(), "pkg/AGENTS.md").as_ref(), Some(&files[1].digest));
    }

    /// A walk from there takes all the time it is given, for every run that is started.
    #[test]
    fn nothing_is_looked_for_where_a_task_works_in_no_folder() {
        let began = Instant::now();
        assert_eq!(capture("/"), []);
        assert!(began.elapsed() < LOOK_FOR, "it looked around for {:?}", began.elapsed());
    }
}
