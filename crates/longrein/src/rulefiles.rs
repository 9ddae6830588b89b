//! Files of a workspace that say how to work in it, captured by content when a run starts.

use std::path::Path;
use std::time::{Duration, Instant};

use longrein_core::ids::Digest;
use longrein_core::payload::head_and_tail;
use longrein_core::run::RULE_FILES;
use longrein_core::secret;
use longrein_core::task::RuleFile;
use longrein_workspace::{Place, Root, decoded};

/// The most files that are captured, and the most of one that is kept: they stand in every request.
const FILES_MAX: usize = 64;
const FILE_MAX_BYTES: usize = 24 * 1024;
/// Larger files are nobody's rules.
const READ_MAX_BYTES: u64 = 1024 * 1024;
/// How long is looked for them: a workspace of some ten thousand files.
const LOOK_FOR: Duration = Duration::from_millis(150);

/// What a workspace says of how to work in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RuleFiles {
    /// Its own folder's first. Of two in one folder with the same content one is kept.
    pub files: Vec<RuleFile>,
    /// A line for each that is not used, and why.
    pub left_out: Vec<String>,
}

/// The rule files of a workspace. The root of all files is nobody's project: a task that works in no folder has it, and what
/// other people's projects below it say is none of its rules.
pub fn capture(workspace: &str) -> RuleFiles {
    let mut captured = RuleFiles::default();
    if Path::new(workspace).parent().is_none() {
        return captured;
    }
    let Ok(root) = Root::open(Path::new(workspace)) else { return captured };
    let mut places = root.named(&RULE_FILES, FILES_MAX + 1, Instant::now() + LOOK_FOR).unwrap_or_default();
    if places.len() > FILES_MAX {
        places.truncate(FILES_MAX);
        captured.left_out.push(format!("there are more than {FILES_MAX} rule files; the first {FILES_MAX} are used"));
    }
    let RuleFiles { files, left_out } = &mut captured;
    for place in places {
        let path = place.path().to_string_lossy().into_owned();
        let (text, digest) = match read(&root, place) {
            Ok(read) => read,
            Err(why) => {
                left_out.push(format!("a rule file is not used: {why}"));
                continue;
            }
        };
        let same = |file: &RuleFile| file.digest == digest && folder(&file.path) == folder(&path);
        if !text.trim().is_empty() && !files.iter().any(same) {
            files.push(RuleFile { path, text: head_and_tail(&text, FILE_MAX_BYTES), digest });
        }
    }
    captured
}

/// Through links that stay in the workspace, to what may be read unasked.
fn read(root: &Root, place: Place) -> Result<(String, Digest), String> {
    let shown = place.to_string();
    let target = match place.path().to_str() {
        Some(path) => root.locate(path).map_err(|error| error.to_string())?.place,
        None => place.clone(),
    };
    if target != place {
        match &target {
            Place::Outside(_) => return Err(format!("{shown} is a link that leads out of the workspace")),
            Place::Inside(path) => {
                if secret::file(&path.to_string_lossy()).is_some() {
                    return Err(format!("{shown} is a link to {target}, which may hold secrets"));
                }
            }
        }
    }
    let (bytes, digest) = root.read_whole(&target, READ_MAX_BYTES).map_err(|error| error.to_string())?;
    let text = decoded(&bytes).map_err(|why| format!("{shown} {why}"))?;
    Ok((text, digest))
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
        let RuleFiles { files, left_out } = capture(&folder.path().to_string_lossy());
        assert_eq!(left_out, [""; 0]);
        let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["AGENTS.md", "pkg/AGENTS.md", "pkg/deep/AGENTS.md"]);
        assert_eq!(now(&folder.path().to_string_lossy(), "pkg/AGENTS.md").as_ref(), Some(&files[1].digest));
        write("pkg/AGENTS.md", "be slow");
        assert_ne!(now(&folder.path().to_string_lossy(), "pkg/AGENTS.md").as_ref(), Some(&files[1].digest));
    }

    /// As `read_file` shows them; what it would not show, or not unasked, is left out and said.
    #[test]
    fn rule_files_are_read_as_files_are() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let workspace = folder.path().join("w");
        let write = |path: &str, bytes: &[u8]| {
            let path = workspace.join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            std::fs::write(path, bytes).expect("written");
        };
        let little: Vec<u8> = "\u{feff}be kind\r\nand ü\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = "\u{feff}be big".encode_utf16().flat_map(u16::to_be_bytes).collect();
        write("docs/RULES.md", b"be linked");
        write("a/AGENTS.md", &little);
        write("b/AGENTS.md", &big);
        write("c/AGENTS.md", b"\xef\xbb\xbfbe marked");
        write("d/AGENTS.md", b"be\0binary");
        write("e/AGENTS.md", b"\xff\xfe\0\0b\0\0\0");
        write("f/AGENTS.md", &vec![b'x'; 1024 * 1024 + 1]);
        write(".env", b"TOKEN=x");
        std::fs::write(folder.path().join("out"), "be outside").expect("written");
        for (link, to) in [
            ("AGENTS.md", "docs/RULES.md"),
            ("g/AGENTS.md", "../docs/RULES.md"),
            ("h/AGENTS.md", "../../out"),
            ("i/AGENTS.md", "../.env"),
            ("j/AGENTS.md", "nowhere"),
            ("k/AGENTS.md", "AGENTS.md"),
        ] {
            std::fs::create_dir_all(workspace.join(link).parent().expect("it has one")).expect("made");
            std::os::unix::fs::symlink(to, workspace.join(link)).expect("linked");
        }
        let RuleFiles { files, left_out } = capture(&workspace.to_string_lossy());
        let read: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        let expected = [
            ("AGENTS.md", "be linked"),
            ("a/AGENTS.md", "be kind\nand ü\n"),
            ("b/AGENTS.md", "be big"),
            ("c/AGENTS.md", "be marked"),
            ("g/AGENTS.md", "be linked"),
        ];
        assert_eq!(read, expected);
        assert_eq!(now(&workspace.to_string_lossy(), "AGENTS.md").as_ref(), Some(&files[0].digest));
        let told =
            ["d/AGENTS.md is binary", "UTF-32", "f/AGENTS.md has 1048577 bytes", "h/", "secrets", "nowhere", "circle"];
        assert_eq!(left_out.len(), told.len(), "{left_out:?}");
        for (line, words) in left_out.iter().zip(told) {
            assert!(line.starts_with("a rule file is not used: ") && line.contains(words), "{words}: {line}");
        }
    }

    #[test]
    fn more_rule_files_than_are_used_are_told_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for index in 0..=FILES_MAX {
            let below = folder.path().join(format!("{index:03}"));
            std::fs::create_dir_all(&below).expect("made");
            std::fs::write(below.join("AGENTS.md"), format!("be {index}")).expect("written");
        }
        let RuleFiles { files, left_out } = capture(&folder.path().to_string_lossy());
        assert_eq!((files.len(), left_out.len()), (FILES_MAX, 1));
        assert!(left_out[0].contains("more than 64"), "{left_out:?}");
    }

    /// A walk from there takes all the time it is given, for every run that is started.
    #[test]
    fn nothing_is_looked_for_where_a_task_works_in_no_folder() {
        let began = Instant::now();
        assert_eq!(capture("/"), RuleFiles::default());
        assert!(began.elapsed() < LOOK_FOR, "it looked around for {:?}", began.elapsed());
    }
}
