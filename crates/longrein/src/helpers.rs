//! What a check goes by beside the files its command names: files its scripts source, and files its test runner obeys
//! wherever they lie. A run that changes one of them has changed what judges it, as if `protect` had named it.
//!
//! It is no list of everything a check reads: what is not told here is for `protect` to name.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// A larger script is none.
const SCRIPT_MAX_BYTES: u64 = 256 * 1024;
/// Scripts that source scripts that …
const DEPTH_MAX: u32 = 4;

/// What runners obey. The program's name without its version, and what decides which tests it runs and what a pass is.
const RUNNERS: [(&[&str], &[&str]); 4] = [
    (
        &["pytest", "py.test"],
        &["**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "pytest.py", "pytest/**"],
    ),
    (
        &["python", "pytest", "py.test", "tox", "nox"],
        &["**/sitecustomize.py", "**/usercustomize.py", "unittest.py", "unittest/**"],
    ),
    (&["make", "gmake"], &["**/Makefile", "**/makefile", "**/GNUmakefile", "**/*.mk"]),
    (&["cargo"], &["**/.cargo/**"]),
];

/// Patterns of the paths that a command goes by, beside its own words.
pub(crate) fn helpers(workspace: &Path, command: &[String]) -> Vec<String> {
    let words: Vec<String> = command.iter().flat_map(|word| shell_words(word)).collect();
    let programs: BTreeSet<&str> = words.iter().map(|word| program(word)).collect();
    let mut found = BTreeSet::new();
    for (names, files) in RUNNERS {
        if names.iter().any(|name| programs.contains(name)) {
            found.extend(files.iter().map(|file| (*file).to_owned()));
        }
    }
    for word in &words {
        sourced_by(workspace, &workspace.join(word), DEPTH_MAX, &mut found);
    }
    // A script in the command itself sources too.
    for text in command {
        for file in sourced(text) {
            source(workspace, workspace, &file, DEPTH_MAX, &mut found);
        }
    }
    found.into_iter().collect()
}

/// The words of a command, and of a command in a word.
fn shell_words(text: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '"' | '\'' | '`');
    text.split(ends).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `/usr/bin/python3.12` is python.
fn program(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn sourced_by(workspace: &Path, script: &Path, depth: u32, found: &mut BTreeSet<String>) {
    let is_script = script.starts_with(workspace)
        && std::fs::metadata(script).is_ok_and(|file| file.is_file() && file.len() <= SCRIPT_MAX_BYTES);
    let Some(text) = is_script.then(|| std::fs::read_to_string(script).ok()).flatten() else { return };
    let folder = script.parent().unwrap_or(workspace);
    for file in sourced(&text) {
        source(workspace, folder, &file, depth, found);
    }
}

fn source(workspace: &Path, folder: &Path, file: &str, depth: u32, found: &mut BTreeSet<String>) {
    // `"$(dirname "$0")/lib.sh"`, `"$HERE/lib.sh"`: the folder of the script, as far as can be told.
    let (bases, file) =
        match file.rsplit_once(['}', ')']).or_else(|| file.strip_prefix('$').and_then(|v| v.split_once('/'))) {
            Some((_, rest)) => (vec![folder, workspace], rest.trim_start_matches('/')),
            None => (vec![workspace, folder], file),
        };
    for base in bases {
        let Some(path) = within(workspace, &base.join(file)) else { continue };
        let is_new = path.to_str().is_some_and(|path| found.insert(path.to_owned()));
        if is_new && depth > 0 {
            sourced_by(workspace, &workspace.join(&path), depth - 1, found);
        }
    }
}

/// Relative to the workspace, without `.` and `..`. None: it is outside.
fn within(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.strip_prefix(workspace).ok()?.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::Prefix(_) | Component::RootDir => return None,
            Component::Normal(name) => out.push(name),
        }
    }
    (out != PathBuf::new()).then_some(out)
}

/// What a script sources: the word behind `.` or `source` where a command may begin, or behind `include` of a makefile.
fn sourced(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        for command in line.split([';', '&', '|']) {
            let command = command.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '(' | '!'));
            let command =
                ["then ", "do ", "else "].iter().find_map(|word| command.strip_prefix(word)).unwrap_or(command);
            let rest = [". ", "source ", "include ", "-include ", "sinclude "]
                .iter()
                .find_map(|word| command.strip_prefix(word));
            let Some(rest) = rest.map(str::trim) else { continue };
            // One word, with its quotes taken off; a quoted one may have spaces within `$(…)`.
            let word = match rest.strip_prefix('"').and_then(|rest| rest.rsplit_once('"')) {
                Some((inside, _)) => inside.replace('"', ""),
                None => rest.split_whitespace().next().unwrap_or_default().trim_matches('\'').to_owned(),
            };
            if !word.is_empty() {
                found.push(word);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)], command: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        helpers(folder.path(), &command)
    }

    #[test]
    fn what_a_script_sources_is_found() {
        for line in [
            ". ./t/lib.sh",
            "source t/lib.sh",
            "set -e; . t/lib.sh && go",
            "if true; then . t/lib.sh; fi",
            ". \"$(dirname \"$0\")/lib.sh\"",
            ". \"$HERE/lib.sh\"",
            ". \"${HERE}/lib.sh\"",
        ] {
            let found =
                of(&[("t/check.sh", line), ("t/lib.sh", ". ./t/more.sh"), ("t/more.sh", "")], &["sh", "t/check.sh"]);
            assert!(found.contains(&"t/lib.sh".to_owned()), "{line}: {found:?}");
            assert!(found.contains(&"t/more.sh".to_owned()), "{line}: {found:?}");
        }
        assert_eq!(of(&[("c.sh", "cat src/a.rs\nsh run.sh\n# . x")], &["sh", "c.sh"]), Vec::<String>::new());
        assert_eq!(of(&[], &["sh", "-c", ". ./lib.sh; go"]), ["lib.sh"]);
        assert_eq!(of(&[("c.sh", ". ../outside.sh\n. /etc/profile")], &["sh", "c.sh"]), Vec::<String>::new());
    }

    #[test]
    fn what_a_runner_obeys_is_known() {
        for command in [vec!["pytest", "-q"], vec!["python3.12", "-m", "pytest"], vec!["sh", "-c", "cd x && pytest"]] {
            let found = of(&[], &command);
            assert!(
                found.contains(&"**/conftest.py".to_owned()) && found.contains(&"**/sitecustomize.py".to_owned()),
                "{found:?}"
            );
        }
        assert!(of(&[], &["make", "test"]).contains(&"**/Makefile".to_owned()));
        assert_eq!(of(&[], &["./run-tests"]), Vec::<String>::new());
    }
}
