//! What surrounds a task, pinned by content when a run starts: what the model may have rewritten is not run unasked.
//!
//! A command runs more than its words name: `sh -c 'cd t && sh run.sh'` runs a script, and the script another. Those count
//! too where they are scripts of a shell, rules of make, or tests by their name. What else a command runs is most often the
//! very work that is to be judged (`python3 app.py | grep -q hello`), and a changed one would be no sign of anything: a task
//! that means it says `protect`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longrein_core::ids::{Digest, ModelName};
use longrein_core::program::{Phases, task_of};
use longrein_core::task::{PolicyRules, Task};
use longrein_policy::{Policy, Surroundings};

use crate::gate::FileSystem;
use crate::rulefiles;

/// How many scripts of one command are looked into, each of at most [`SCRIPT_MAX_BYTES`]: a test suite has hundreds of
/// cases and one runner.
const SCRIPTS_MAX: usize = 64;
const SCRIPT_MAX_BYTES: u64 = 256 * 1024;

/// Captures what surrounds a task: the workspace's rule files by content; tool programs, checks and the script of a
/// scripted model by digest.
pub fn pin(task: &mut Task) {
    task.rules = rulefiles::capture(&task.workspace);
    let mut pins = BTreeMap::new();
    with_children(task, &mut pins);
    task.pins = pins;
}

/// A child has its parent's pins: what it runs counts from the start of the root, not from its own.
fn with_children(task: &Task, pins: &mut BTreeMap<String, Digest>) {
    pins.extend(now(task));
    for child in task.program.phases().into_iter().flat_map(Phases::children) {
        with_children(&task_of(task, child, None, None), pins);
    }
}

/// Pinned files whose content differs now.
pub(crate) fn changed(task: &Task) -> Vec<String> {
    let of_rule = |name: &str| rulefiles::now(&task.workspace, name);
    let now = |name: &str| if name.starts_with('/') { digest(Path::new(name)) } else { of_rule(name) };
    task.pins.iter().filter(|(name, digest)| now(name).as_ref() != Some(digest)).map(|(name, _)| name.clone()).collect()
}

fn now(task: &Task) -> BTreeMap<String, Digest> {
    let commands = Commands::of(task);
    let mut pins = longrein_tools::pins(task, &|command, folder| commands.run_by(command, folder));
    let of_routes = task.routes.iter().map(|route| &route.model);
    let judges = task.every_check().filter_map(|check| longrein_core::judge::spec(check)?.model.as_deref());
    for model in std::iter::once(&task.model).chain(task.context.summary.as_deref()).chain(of_routes).chain(judges) {
        if let Some(script) = script_path(&model.name, &task.folder)
            && let Some(digest) = digest(&script)
        {
            pins.insert(script.to_string_lossy().into_owned(), digest);
        }
    }
    for file in &task.rules {
        pins.extend(rulefiles::now(&task.workspace, &file.path).map(|digest| (file.path.clone(), digest)));
    }
    pins
}

fn digest(file: &Path) -> Option<Digest> {
    std::fs::read(file).ok().map(|bytes| Digest::of(&bytes))
}

fn script_path(model: &ModelName, folder: &str) -> Option<PathBuf> {
    let file = model.as_str().strip_prefix("script/")?;
    Some(PathBuf::from(folder).join(file))
}

/// Tells what the commands of a task run, by the analysis that the gate rules by.
pub(crate) struct Commands {
    policy: Policy,
    workspace: String,
    /// What commands run in a folder: many tools share one script.
    known: Mutex<BTreeMap<Line, BTreeSet<String>>>,
}

/// A command and the folder it is run in.
type Line = (Vec<String>, String);

impl Commands {
    pub(crate) fn of(task: &Task) -> Self {
        Self::within(&task.workspace)
    }

    /// What commands run now: what was found once is not looked for again.
    pub(crate) fn within(workspace: &str) -> Self {
        let here = Surroundings { world: Arc::new(FileSystem), ..Surroundings::default() };
        let policy = Policy::read(&PolicyRules::default(), [], here).expect("no rules cannot be bad ones");
        Self { policy, workspace: workspace.to_owned(), known: Mutex::default() }
    }

    fn runs(&self, command: Vec<String>, folder: &str) -> BTreeSet<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (command, folder.to_owned());
        if let Some(found) = known.get(&key) {
            return found.clone();
        }
        let found = self.policy.run_by(&key.0, folder, &self.workspace);
        known.insert(key, found.clone());
        found
    }

    /// The scripts, rules of make and tests that a command runs in `folder`, and what those scripts run.
    pub(crate) fn run_by(&self, command: &[String], folder: &str) -> Vec<PathBuf> {
        let mut found = BTreeSet::new();
        let mut looked = 0;
        let mut open = vec![(command.to_vec(), folder.to_owned())];
        while let Some((command, folder)) = open.pop() {
            for file in self.runs(command, &folder) {
                let path = PathBuf::from(&file);
                let script = Script::of(&path);
                if found.contains(&path) || !(script.is_some() || is_made_by(&path) || is_test(&path, &self.workspace))
                {
                    continue;
                }
                if let Some(Script(text)) = script.filter(|_| looked < SCRIPTS_MAX) {
                    looked += 1;
                    let shell = |text: String| vec!["sh".to_owned(), "-c".to_owned(), text];
                    if let Some(own) = path.parent().and_then(Path::to_str) {
                        open.push((shell(in_its_own_folder(&text)), own.to_owned()));
                    }
                    open.push((shell(text), folder.clone()));
                }
                found.insert(path);
            }
        }
        found.into_iter().collect()
    }
}

/// The text of a file that a shell would run.
struct Script(String);

impl Script {
    fn of(file: &Path) -> Option<Self> {
        let found = std::fs::metadata(file).ok()?;
        if !found.is_file() || found.len() > SCRIPT_MAX_BYTES {
            return None;
        }
        let text = String::from_utf8(std::fs::read(file).ok()?).ok()?;
        let first = text.lines().next().unwrap_or_default();
        let by_name = match file.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => ["sh", "bash", "bats", "dash", "ksh", "zsh"].contains(&extension),
            None => !first.starts_with("#!"),
        };
        let by_first = first.starts_with("#!") && first.ends_with("sh");
        (by_name && !is_made_by(file) || by_first).then(|| Self(with_functions_called(&text)))
    }
}

/// With the bodies of functions as plain commands: whoever sources a script calls what it defines.
fn with_functions_called(text: &str) -> String {
    let is_name = |name: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        !name.is_empty() && name.chars().all(is_letter)
    };
    let body = |line: &str| {
        let (head, body) =
            line.split_once("()").or_else(|| line.split_once('{').filter(|_| line.contains("function ")))?;
        let name = head.trim().trim_start_matches("function ").trim();
        let opening = if line.contains("()") { "" } else { "{" };
        is_name(name).then(|| format!("{opening}{body}"))
    };
    text.lines().flat_map(|line| [body(line).unwrap_or_else(|| line.to_owned()), "\n".to_owned()]).collect()
}

/// With the usual ways of a script to say "my own folder" as `.`: nobody else can tell what they come to.
fn in_its_own_folder(text: &str) -> String {
    const OWN: [&str; 6] = [
        "$(dirname \"$0\")",
        "$(dirname $0)",
        "$(dirname -- \"$0\")",
        "${0%/*}",
        "$(dirname \"${BASH_SOURCE[0]}\")",
        "$(dirname \"$BASH_SOURCE\")",
    ];
    let mut text = OWN.iter().fold(text.to_owned(), |text, own| text.replace(own, "."));
    for wrapped in ["$(cd \".\" && pwd)", "$(cd . && pwd)", "$(cd \".\"; pwd)", "$(cd . && pwd -P)"] {
        text = text.replace(wrapped, ".");
    }
    let kept_in = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        ([".", "\".\""].contains(&value)).then(|| name.to_owned())
    };
    let names: Vec<String> = text.lines().filter_map(kept_in).collect();
    names.iter().fold(text, |text, name| text.replace(&format!("${{{name}}}"), ".").replace(&format!("${name}"), "."))
}

fn is_made_by(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["Makefile", "makefile", "GNUmakefile", "justfile", "Justfile"].contains(&name) || name.ends_with(".mk")
}

/// By a word of its path below the workspace: `tests/run.py`, `check_all.js`, `spec/a.rb`.
fn is_test(file: &Path, workspace: &str) -> bool {
    let below = file.strip_prefix(workspace).unwrap_or(file).to_string_lossy().to_lowercase();
    let words = below.split(|letter: char| !letter.is_alphanumeric());
    words
        .into_iter()
        .any(|word| ["test", "tests", "check", "checks", "spec", "specs", "verify", "acceptance"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_by(command: &str, files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for (name, text) in files {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), text).unwrap();
        }
        let here = Surroundings { world: Arc::new(FileSystem), ..Surroundings::default() };
        let policy = Policy::read(&PolicyRules::default(), [], here).unwrap();
        let workspace = root.to_str().unwrap().to_owned();
        let commands = Commands { policy, workspace: workspace.clone(), known: Mutex::default() };
        let command = ["sh", "-c", command].map(str::to_owned);
        let found = commands.run_by(&command, &workspace);
        found.iter().map(|file| file.strip_prefix(&root).unwrap_or(file).to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn law_9_what_a_check_runs_by_shell_text_counts_as_the_check() {
        let files = [
            ("check.sh", "#!/bin/sh\nset -e\n. ./lib.sh\nrun\n"),
            ("lib.sh", "run() { python3 tests/all.py; }\nfunction more {\n  sh t/more.sh\n}\n"),
            ("tests/all.py", "import app\n"),
            ("app.py", "print('hello')\n"),
            ("t/run.sh", "cd \"$(dirname \"$0\")\"\nsh more.sh\n"),
            ("t/more.sh", "true\n"),
            ("t/far.sh", "HERE=$(cd \"$(dirname \"$0\")\" && pwd)\n. \"$HERE/more.sh\"\n"),
            ("gate", "./check.sh\n"),
            ("Makefile", "test:\n\tsh check.sh\n"),
        ];
        let found = |command: &str| run_by(command, &files).join(" ");
        assert_eq!(found("sh check.sh"), "check.sh lib.sh t/more.sh tests/all.py");
        assert_eq!(found("cd . && ./check.sh || exit 1"), "check.sh lib.sh t/more.sh tests/all.py");
        assert_eq!(found("cd t && sh run.sh"), "t/more.sh t/run.sh");
        assert_eq!(found("sh t/run.sh"), "t/more.sh t/run.sh");
        assert_eq!(found("sh t/far.sh"), "t/far.sh t/more.sh");
        assert_eq!(found("sh gate"), "check.sh gate lib.sh t/more.sh tests/all.py");
        assert_eq!(found("make test"), "Makefile");
        assert_eq!(
            found("FAST=1 env X=2 timeout 60 bash -eu ./check.sh | tail -n 3"),
            "check.sh lib.sh t/more.sh tests/all.py"
        );
    }

    /// The work itself is what changes: a check that runs it is no other check for that.
    #[test]
    fn the_work_that_a_check_runs_is_no_part_of_the_check() {
        let files = [("app.py", "print('hello')\n"), ("out.txt", "hello\n"), ("src/app.c", "int main(){}\n")];
        let found = |command: &str| run_by(command, &files).join(" ");
        assert_eq!(found("python3 app.py | grep -q hello"), "");
        assert_eq!(found("grep -q hello out.txt && test -s out.txt"), "");
        assert_eq!(found("cc -fsyntax-only src/app.c"), "");
    }

    /// Scripts that run each other, and a file that is none.
    #[test]
    fn circles_and_garbage_end() {
        let files = [("a.sh", "sh b.sh\n"), ("b.sh", "sh a.sh\n. ./c.sh\n"), ("c.sh", "if (((\n\u{1}\"")];
        assert_eq!(run_by("sh a.sh", &files).join(" "), "a.sh b.sh c.sh");
    }
}
