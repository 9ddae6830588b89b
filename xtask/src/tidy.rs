//! What no file of this workspace may hold. Each rule says why.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::{layers, source};

/// The longest a source file may be. Past it there is a second idea in the file, or a function nobody can follow.
const LINES_MAX: usize = 1_200;

/// Never shipped: replaces calls of the C library, to record what the store does to its files.
const UNSAFE_TEST: &str = "sim/tests/power_loss/calls.rs";

/// Words that may not stand in code, where, and why.
const BANNED: &[Banned] = &[
    Banned {
        words: &["todo!", "unimplemented!"],
        applies: everywhere,
        why: "half-built code is not merged; finish it, or refuse with a clear \"not yet\"",
    },
    Banned {
        words: &["#[ignore"],
        applies: everywhere,
        why: "a test nobody runs proves nothing; a slow one asks for LONGREIN_NIGHTLY instead",
    },
    Banned {
        words: &["println!", "print!"],
        applies: |path| in_crate_source(path) && !path.starts_with("crates/cli"),
        why: "only the binary prints; a library hands values to its caller",
    },
    Banned {
        words: &[
            "SystemTime",
            "Instant",
            "Timestamp::now",
            "Zoned::now",
            "std::fs",
            "std::env",
            "std::net",
            "std::process",
            "std::thread",
            "tokio",
            "async",
            "await",
        ],
        applies: |path| path.starts_with("crates/core/src"),
        why: "core is pure: time, ids and what was read from outside arrive as values",
    },
    Banned {
        words: &["unsafe"],
        applies: |path| !path.starts_with("crates/sandbox") && path != Path::new(UNSAFE_TEST),
        why: "only the sandbox may be unsafe, and the one test file that stands in for the C library, so that there is one \
              place to audit in what is shipped",
    },
];

struct Banned {
    words: &'static [&'static str],
    applies: fn(&Path) -> bool,
    why: &'static str,
}

fn everywhere(_: &Path) -> bool {
    true
}

/// Code that is shipped: a crate's `src`, its test modules aside.
fn in_crate_source(path: &Path) -> bool {
    path.starts_with("crates") && path.iter().any(|part| part == "src")
}

/// Every breach, each with the reason.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let machine = machine_paths(root);
    let mut faults = Vec::new();
    for path in source::files(root)? {
        let bytes = fs::read(root.join(&path)).with_context(|| format!("{} cannot be read", path.display()))?;
        // what is no text is nobody's prose
        let Ok(text) = String::from_utf8(bytes) else { continue };
        faults.extend(of_file(&path, &text, &machine));
        if path.extension().is_some_and(|kind| kind == "md") {
            faults.extend(dead_links(root, &path, &text));
        }
    }
    faults.extend(of_lint_tables(root)?);
    faults.extend(of_commands(root)?);
    Ok(faults)
}

fn of_file(path: &Path, text: &str, machine: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: String| faults.push(format!("{}:{line}: {what}", path.display()));
    let is_lock = path.file_name().is_some_and(|name| name == "Cargo.lock");
    for (line, content) in (1..).zip(text.lines()) {
        if content.ends_with([' ', '\t']) && !is_lock {
            fault(line, "white space at the end of a line; it only makes noise in diffs".to_owned());
        }
        if let Some(found) = machine.iter().find(|prefix| content.contains(prefix.as_str())) {
            fault(line, format!("\"{found}\" is a path of this machine; nobody else has it"));
        }
    }
    if path.extension().is_none_or(|kind| kind != "rs") {
        return faults;
    }
    let code = source::code(text);
    for (line, content) in (1..).zip(code.lines()) {
        for banned in BANNED.iter().filter(|banned| (banned.applies)(path)) {
            for word in banned.words.iter().filter(|word| has_word(content, word)) {
                fault(line, format!("{word}: {}", banned.why));
            }
        }
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        fault(lines, format!("more than {LINES_MAX} lines; split it at its second idea"));
    }
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    if is_root && !text.starts_with("//! ") {
        fault(1, "a crate begins with `//!` and one sentence on what it is".to_owned());
    }
    faults
}

/// Whether `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let begins = !word.starts_with(part_of_word) || !before.ends_with(part_of_word);
        let ends = !word.ends_with(part_of_word) || !after.starts_with(part_of_word);
        begins && ends
    })
}

/// Beginnings of paths that only this machine has: where the workspace lies, and the home of who works on it.
fn machine_paths(root: &Path) -> Vec<String> {
    // under these everybody has something, so only the whole path is telling
    const COMMON: &[&str] = &["home", "root", "tmp", "usr", "opt", "var", "srv", "mnt", "Users", "private"];
    let mut paths = Vec::new();
    let first = root.iter().nth(1).and_then(|part| part.to_str());
    match first {
        Some(first) if !COMMON.contains(&first) => paths.push(format!("/{first}/")),
        Some(_) => paths.push(root.display().to_string()),
        None => {}
    }
    let home = std::env::var("HOME").unwrap_or_default();
    if home.len() > 1 {
        paths.push(format!("{}/", home.trim_end_matches('/')));
    }
    paths
}

/// Links to files that are not there.
fn dead_links(root: &Path, path: &Path, text: &str) -> Vec<String> {
    let folder = root.join(path).parent().map_or_else(PathBuf::new, Path::to_owned);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    links
        .filter(|link| !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:"))
        .filter(|link| !folder.join(link).exists())
        .map(|link| format!("{}: links to {link}, which is not there", path.display()))
        .collect()
}

/// Packages that do not take the workspace's lints: the ban on `unsafe` is one of them.
fn of_lint_tables(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in source::files(root)? {
        let is_package = path.file_name().is_some_and(|name| name == "Cargo.toml") && path.components().count() > 1;
        if is_package && !fs::read_to_string(root.join(&path))?.contains("[lints]\nworkspace = true\n") {
            faults.push(format!(
                "{}: does not take the workspace's lints; without them `unsafe` passes outside {}",
                path.display(),
                layers::UNSAFE
            ));
        }
    }
    Ok(faults)
}

/// The command that runs the tests is the same for a reader and for the machine.
fn of_commands(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in ["README.md", ".ci/run"] {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("{file} cannot be read"))?;
        if !text.lines().any(|line| line.trim() == TEST_COMMAND) {
            faults.push(format!(
                "{file}: has no line \"{TEST_COMMAND}\"; what people run and what the machine runs differ"
            ));
        }
    }
    Ok(faults)
}

const TEST_COMMAND: &str = "cargo xtask test";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_tidy() {
        let found = faults(&crate::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let machine = ["/shed/".to_owned()];
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        for (path, text, said) in [
            ("crates/store/src/a.rs", "fn a() { todo!() }", "todo!: half-built"),
            ("crates/store/tests/a.rs", "#[ignore = \"slow\"]", "a test nobody runs"),
            ("crates/store/src/a.rs", "fn a() { println!(\"x\") }", "only the binary prints"),
            ("crates/core/src/a.rs", "let t = std::time::Instant::now();", "core is pure"),
            ("crates/core/src/a.rs", "pub async fn a() {}", "core is pure"),
            ("crates/tools/src/a.rs", "unsafe { a() }", "only the sandbox"),
            ("sim/tests/power_loss/record.rs", "unsafe { a() }", "only the sandbox"),
            ("crates/tools/src/lib.rs", "pub mod a;", "begins with `//!`"),
            ("sim/src/main.rs", "fn main() {}", "begins with `//!`"),
            ("docs/a.md", "trailing ", "end of a line"),
            ("docs/a.md", "see /shed/notes.md", "a path of this machine"),
            ("crates/tools/src/a.rs", long.as_str(), "split it"),
        ] {
            let found = of_file(Path::new(path), text, &machine);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert!(found[0].contains(said), "{path}: {found:?}");
        }
    }

    #[test]
    fn what_is_allowed_passes() {
        for (path, text) in [
            ("crates/cli/src/a.rs", "fn a() { println!(\"x\") }"),
            ("crates/store/src/a.rs", "fn a() { eprintln!(\"x\") } // println! and todo! in words"),
            ("crates/store/src/a.rs", "const A: &str = \"unsafe { todo!() }\";"),
            ("crates/sandbox/src/a.rs", "unsafe { a() }"),
            (UNSAFE_TEST, "unsafe { a() }"),
            ("crates/store/src/a.rs", "#![deny(unsafe_code)] fn make_unsafe() {}"),
            ("crates/driver/src/a.rs", "let t = std::time::Instant::now();"),
            ("crates/core/src/a.rs", "let instantly = asynchronous;"),
            ("crates/tools/src/lib.rs", "//! Tools.\n"),
        ] {
            assert_eq!(of_file(Path::new(path), text, &[]), [] as [&str; 0], "{path}");
        }
    }

    #[test]
    fn dead_links_are_found() {
        let text = "[a](README.md) [b](nowhere.md#x) [c](https://example.org/x) [d](#here)";
        let found = dead_links(&crate::root(), Path::new("x.md"), text);
        assert_eq!(found, ["x.md: links to nowhere.md, which is not there"]);
    }

    #[test]
    fn a_machine_is_known_by_its_paths() {
        assert_eq!(machine_paths(Path::new("/shed/bench/longrein"))[0], "/shed/");
        assert_eq!(machine_paths(Path::new("/home/kim/longrein"))[0], "/home/kim/longrein");
    }
}
