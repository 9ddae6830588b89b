//! What a check's test runner obeys wherever it lies: a run that changes such a file has changed what judges it, as if
//! `protect` had named it. Files that the check runs itself are told by [`pins`](crate::pins).
//!
//! It is no list of everything a check reads: what is not told here is for `protect` to name.

use std::collections::BTreeSet;

use longrein_tools::modules;

/// What runners obey. The program's name without its version, and what decides which tests it runs and what a pass is.
const RUNNERS: [(&[&str], &[&str]); 4] = [
    (
        &["pytest", "py.test"],
        &["**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "pytest/**", "_pytest/**"],
    ),
    (
        &["python", "pytest", "py.test", "tox", "nox"],
        &["**/sitecustomize.*", "**/sitecustomize/**", "**/usercustomize.*", "**/usercustomize/**", "unittest/**"],
    ),
    (&["make", "gmake"], &["**/*.mk", "**/GNUmakefile", "**/makefile", "**/Makefile"]),
    (&["cargo"], &["**/.cargo/**", "**/rust-toolchain", "**/rust-toolchain.toml"]),
];

/// Targets of make that are commonly meant as words: where a file of that name stands, the rule is up to date and not run.
const TARGETS: [&str; 10] = ["test", "tests", "check", "checks", "verify", "lint", "spec", "ci", "acceptance", "all"];

/// What a command goes by, beside what it runs itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Helpers {
    /// Globs below the workspace.
    patterns: BTreeSet<String>,
    /// Paths of files: what lies in a folder of that name does not count.
    exactly: BTreeSet<String>,
    /// Folders, with a slash behind them, where Python looks for modules first.
    modules_in: BTreeSet<String>,
}

impl Helpers {
    /// The same, with these globs.
    pub(crate) fn and(mut self, globs: Vec<String>) -> Self {
        self.patterns.extend(globs);
        self
    }

    /// Globs of those that may lie anywhere.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &String> {
        self.patterns.iter()
    }

    /// Whether a path below the workspace is one of them that has its place.
    pub(crate) fn name(&self, path: &str) -> bool {
        let is_module = |folder: &String| {
            let module = path.strip_prefix(folder.as_str()).and_then(modules::module_at);
            module.is_some_and(|module| modules::IMPORTED_FIRST.contains(&module))
        };
        self.exactly.contains(path) || self.modules_in.iter().any(is_module)
    }

    /// Globs of all that has its place, for a snapshot that no ignore file may keep it from.
    pub(crate) fn places(&self) -> impl Iterator<Item = String> {
        let names = modules::IMPORTED_FIRST.join(",");
        let kinds = modules::KINDS.join(",");
        let of_modules = self.modules_in.iter().flat_map(move |folder| {
            let folder = escaped(folder);
            [format!("{folder}{{{names}}}.{{{kinds},*.so}}"), format!("{folder}{{{names}}}/__init__.{{{kinds},*.so}}")]
        });
        self.exactly.iter().map(|path| escaped(path)).chain(of_modules)
    }
}

/// A path as the glob that means it alone.
pub(crate) fn escaped(path: &str) -> String {
    let is_sign = |letter: char| "*?[]{}!\\".contains(letter);
    path.chars().flat_map(|letter| is_sign(letter).then_some('\\').into_iter().chain([letter])).collect()
}

/// What these texts go by: the words of a command, and the scripts that it runs. `path`: folders below the workspace where the
/// operator's `PATH` looks for programs.
pub(crate) fn helpers<'a>(texts: impl IntoIterator<Item = &'a str>, path: &[String]) -> Helpers {
    let mut found = Helpers::default();
    let texts: Vec<&str> = texts.into_iter().collect();
    let words: Vec<String> = texts.iter().flat_map(|text| shell_words(text)).collect();
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
        let below = |folder: &str| if folder.is_empty() { String::new() } else { format!("{folder}/") };
        found.modules_in.extend(folders.into_iter().map(below));
    }
    if runs(&["make", "gmake"]) {
        let named = words.iter().filter(|word| TARGETS.contains(&word.as_str()));
        found.exactly.extend(named.cloned());
    }
    // Programs are looked for there first.
    for folder in texts.iter().flat_map(|text| paths_set(text)) {
        found.patterns.insert(if folder.is_empty() { "*".to_owned() } else { format!("{}/**", escaped(&folder)) });
    }
    let is_name = |word: &&String| {
        let is_sign = |letter: char| letter.is_ascii_alphanumeric() || "._+-".contains(letter);
        !word.is_empty() && !word.starts_with(['-', '.']) && word.chars().all(is_sign)
    };
    let named: BTreeSet<&String> = words.iter().filter(is_name).collect();
    found.exactly.extend(path.iter().flat_map(|folder| named.iter().map(move |name| format!("{folder}/{name}"))));
    found
}

/// Folders of the workspace that a text puts on its `PATH`; an empty one is the folder itself.
fn paths_set(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for after in text.split("PATH=").skip(1) {
        let value = after.replace("$(pwd)", ".").replace("${PWD}", ".").replace("$PWD", ".").replace("`pwd`", ".");
        let value = value.replace(['"', '\''], "");
        let value = value.split([' ', '\t', '\n', ';', '&', '|', ')']).next().unwrap_or_default();
        for folder in value.split(':') {
            let folder = folder.trim_start_matches("./").trim_end_matches('/');
            let folder = if folder == "." { "" } else { folder };
            if !folder.starts_with(['/', '$', '~']) {
                found.push(folder.to_owned());
            }
        }
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
        helpers(command.iter().copied(), &[]).patterns.into_iter().collect()
    }

    #[test]
    fn what_a_runner_obeys_is_known() {
        for command in [vec!["pytest", "-q"], vec!["python3.12", "-m", "pytest"], vec!["sh", "-c", "cd x && pytest"]] {
            let found = of(&command);
            assert!(
                found.contains(&"**/conftest.py".to_owned()) && found.contains(&"**/sitecustomize.*".to_owned()),
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
    fn law_9_what_stands_in_another_s_place_is_known() {
        let exactly = |command: &[&str]| helpers(command.iter().copied(), &[]).exactly;
        assert_eq!(exactly(&["make", "-s", "test"]).into_iter().collect::<Vec<_>>(), ["test"]);
        assert!(exactly(&["make", "app"]).is_empty(), "that is the work");
        let found = helpers(["python3", "tests/run.py"], &[]);
        for name in ["json.py", "tests/json.py", "tests/re/__init__.py", "json.pyc", "json.cpython-311-x.so"] {
            assert!(found.name(name), "{name}");
        }
        for name in ["src/json.py", "json/other.py", "app.py", "json.txt"] {
            assert!(!found.name(name), "{name}");
        }
        let places: Vec<String> = found.places().collect();
        let globs = longrein_workspace::Patterns::new(&places).unwrap();
        assert!(
            globs.matches("tests/json.pyc") && globs.matches("re/__init__.cpython-311.so") && !globs.matches("app.py")
        );
    }

    #[test]
    fn law_9_a_folder_of_the_workspace_on_the_path_is_known_however_it_is_written() {
        for (text, folder) in [
            ("PATH=bin:$PATH make", "bin"),
            ("export PATH=\"$PWD/bin:$PATH\"\ngrep x", "bin"),
            ("export PATH=\"$(pwd)/t/bin\":$PATH", "t/bin"),
            ("PATH=.:$PATH x", ""),
            ("PATH=:$PATH x", ""),
        ] {
            assert_eq!(paths_set(text), [folder], "{text}");
        }
        assert!(paths_set("PATH=/usr/bin:$PATH:~/bin x").is_empty());
        let found = helpers(["sh", "-c", "grep -q good app.txt && test -s app.txt"], &[".venv/bin".to_owned()]);
        for name in [".venv/bin/grep", ".venv/bin/sh", ".venv/bin/test"] {
            assert!(found.name(name), "{name}");
        }
        assert!(!found.name(".venv/bin/pip"));
    }
}
