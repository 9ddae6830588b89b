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
    (&["make", "gmake"], &["**/*.mk"]),
    (&["cargo"], &["**/.cargo/**"]),
];

/// Patterns of the paths that a command goes by, beside its own words.
pub(crate) fn helpers(command: &[String]) -> Vec<String> {
    let words: Vec<String> = command.iter().flat_map(|word| shell_words(word)).collect();
    let programs: BTreeSet<&str> = words.iter().map(|word| program(word)).collect();
    let obeyed = RUNNERS.iter().filter(|(names, _)| names.iter().any(|name| programs.contains(name)));
    let found: BTreeSet<&str> = obeyed.flat_map(|(_, files)| files.iter().copied()).collect();
    found.into_iter().map(str::to_owned).collect()
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
        helpers(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
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
        assert_eq!(of(&["make", "test"]), ["**/*.mk"]);
        assert_eq!(of(&["./run-tests"]), Vec::<String>::new());
    }
}
