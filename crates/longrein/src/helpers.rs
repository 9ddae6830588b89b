//! What a check's test runner obeys wherever it lies: a run that changes such a file has changed what judges it, as if
//! `protect` had named it. Files that the check runs itself are told by [`pins`](crate::pins).
//!
//! It is no list of everything a check reads: what is not told here is for `protect` to name.

use std::collections::BTreeSet;

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
    (&["make", "gmake"], &["**/*.mk", "**/GNUmakefile", "**/makefile", "**/Makefile"]),
    (&["cargo"], &["**/.cargo/**"]),
];

/// Modules that tests and their runners import before anything of the work: a file of that name beside what Python runs is
/// taken in their place.
const SHADOWED: [&str; 60] = [
    "_thread",
    "abc",
    "argparse",
    "ast",
    "asyncio",
    "base64",
    "bisect",
    "codecs",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "doctest",
    "encodings",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "genericpath",
    "glob",
    "hashlib",
    "heapq",
    "importlib",
    "inspect",
    "io",
    "json",
    "linecache",
    "locale",
    "logging",
    "ntpath",
    "operator",
    "os",
    "pathlib",
    "pickle",
    "pkgutil",
    "platform",
    "posixpath",
    "pprint",
    "random",
    "re",
    "runpy",
    "shutil",
    "signal",
    "site",
    "stat",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "traceback",
    "types",
    "typing",
    "warnings",
];

/// Targets of make that are commonly meant as words: where a file of that name stands, the rule is up to date and not run.
const TARGETS: [&str; 10] = ["test", "tests", "check", "checks", "verify", "lint", "spec", "ci", "acceptance", "all"];

/// What a command goes by, beside what it runs itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Helpers {
    /// Globs below the workspace.
    pub(crate) patterns: BTreeSet<String>,
    /// Paths of files: what lies in a folder of that name does not count.
    pub(crate) exactly: BTreeSet<String>,
}

/// What these texts go by: the words of a command, and the scripts that it runs.
pub(crate) fn helpers<'a>(texts: impl IntoIterator<Item = &'a str>) -> Helpers {
    let mut found = Helpers::default();
    let words: Vec<String> = texts.into_iter().flat_map(shell_words).collect();
    let programs: BTreeSet<&str> = words.iter().map(|word| program(word)).collect();
    let runs = |names: &[&str]| names.iter().any(|name| programs.contains(name));
    for (names, files) in RUNNERS {
        if runs(names) {
            found.patterns.extend(files.iter().map(|file| (*file).to_owned()));
        }
    }
    if runs(&["python", "pytest", "py.test"]) {
        let scripts = words.iter().filter(|word| word.ends_with(".py") && !word.starts_with('/'));
        let folders = scripts.map(|script| script.rsplit_once('/').map_or("", |(folder, _)| folder));
        let folders: BTreeSet<&str> = folders.chain([""]).map(|folder| folder.trim_start_matches("./")).collect();
        for folder in folders {
            let below = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            found.exactly.extend(SHADOWED.iter().map(|name| format!("{below}{name}.py")));
            found.exactly.extend(SHADOWED.iter().map(|name| format!("{below}{name}/__init__.py")));
        }
    }
    if runs(&["make", "gmake"]) {
        let named = words.iter().filter(|word| TARGETS.contains(&word.as_str()));
        found.exactly.extend(named.cloned());
    }
    // Programs are looked for there first.
    for path in words.iter().filter_map(|word| word.strip_prefix("PATH=")) {
        let own = path.split(':').map(|folder| folder.trim_start_matches("$PWD/").trim_start_matches("./"));
        let own = own.filter(|folder| !folder.is_empty() && !folder.starts_with(['/', '$', '~']));
        found.patterns.extend(own.map(|folder| format!("{}/**", folder.trim_end_matches('/'))));
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &[&str]) -> Vec<String> {
        helpers(command.iter().copied()).patterns.into_iter().collect()
    }

    #[test]
    fn what_a_runner_obeys_is_known() {
        for command in [vec!["pytest", "-q"], vec!["python3.12", "-m", "pytest"], vec!["sh", "-c", "cd x && pytest"]] {
            let found = of(&command);
            assert!(
                found.contains(&"**/conftest.py".to_owned()) && found.contains(&"**/sitecustomize.py".to_owned()),
                "{found:?}"
            );
        }
        assert_eq!(of(&["make", "test"]), ["**/*.mk", "**/GNUmakefile", "**/Makefile", "**/makefile"]);
        assert_eq!(of(&["sh", "-c", "PATH=./bin:/usr/bin:$PATH grep x"]), ["bin/**"]);
        assert_eq!(of(&["./run-tests"]), Vec::<String>::new());
        assert_eq!(of(&["sh", "check.sh"]), Vec::<String>::new());
        let with_its_script = ["sh", "check.sh", "set -e\npytest -q tests\n"];
        assert!(of(&with_its_script).contains(&"**/conftest.py".to_owned()));
    }

    /// A file where a rule's name or a module of the standard library is looked for.
    #[test]
    fn what_stands_in_another_s_place_is_known() {
        let exactly = |command: &[&str]| helpers(command.iter().copied()).exactly;
        assert_eq!(exactly(&["make", "-s", "test"]).into_iter().collect::<Vec<_>>(), ["test"]);
        assert!(exactly(&["make", "app"]).is_empty(), "that is the work");
        let found = exactly(&["python3", "tests/run.py"]);
        for name in ["json.py", "tests/json.py", "tests/re/__init__.py"] {
            assert!(found.contains(name), "{name}");
        }
        assert!(!found.contains("src/json.py"));
    }
}
