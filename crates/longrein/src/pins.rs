//! What surrounds a task, pinned by content when a run starts: what the model may have rewritten is not run unasked.
//!
//! A command runs more than its words name: `sh -c 'cd t && sh run.sh'` runs a script, and the script another. Those count
//! too where they are scripts of a shell, rules of make, or tests by their name. What else a command runs is most often the
//! very work that is to be judged (`python3 app.py | grep -q hello`), and a changed one would be no sign of anything: a task
//! that means it says `protect`. Where nothing judges but the program itself (`python3 -m mycheck`), that is the check; and so is
//! what the work is compared with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longrein_core::ids::{Digest, ModelName};
use longrein_core::program::{Phases, task_of};
use longrein_core::task::{PolicyRules, Task};
use longrein_policy::{Policy, RunAs, RunBy, Surroundings};
use longrein_tools::{Role, Secrets};
use longrein_workspace::Patterns;

use crate::gate::FileSystem;
use crate::helpers::escaped;
use crate::rulefiles::{self, RuleFiles};
use crate::servers;

/// Captures what surrounds a task: the workspace's rule files by content; tool programs, checks and the script of a
/// scripted model by digest. A line for each rule file that is left out. `environment`: the operator's, by which the command of
/// a tool server may name its program.
pub fn pin(task: &mut Task, environment: &BTreeMap<String, String>) -> Vec<String> {
    let RuleFiles { files, left_out } = rulefiles::capture(&task.workspace);
    task.rules = files;
    let mut as_run = task.clone();
    for server in as_run.servers.values_mut() {
        // what is not set is told when the server is to be started
        if let Ok(resolved) = servers::as_run(server, environment, &mut Secrets::default()) {
            *server = resolved;
        }
    }
    let mut pins = BTreeMap::new();
    with_children(&as_run, &mut pins);
    task.pins = pins;
    left_out
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
    let mut pins = longrein_tools::pins(task, &|role, command, folder| commands.run_by(role, command, folder));
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
    longrein_workspace::digest_of(file)
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
    known: Mutex<BTreeMap<Line, Arc<RunBy>>>,
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

    fn found(&self, command: &[String], folder: &str) -> Arc<RunBy> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let line = (command.to_vec(), folder.to_owned());
        let found = known.entry(line).or_insert_with(|| Arc::new(self.policy.run_by(command, folder, &self.workspace)));
        Arc::clone(found)
    }

    /// The scripts, rules of make and tests that a command runs in `folder`, and what those scripts run; of one that judges,
    /// what else judges in it.
    pub(crate) fn run_by(&self, role: Role, command: &[String], folder: &str) -> Vec<PathBuf> {
        let found = self.found(command, folder);
        let files = found.files.iter().map(|(file, run_as)| (PathBuf::from(file), *run_as));
        files.filter(|(file, run_as)| self.counts(role, file, *run_as)).map(|(file, _)| file).collect()
    }

    /// Whether a file that is run is part of what judges, and not the work.
    fn counts(&self, role: Role, file: &Path, run_as: RunAs) -> bool {
        let is_part = match (run_as, role) {
            (RunAs::Script | RunAs::Named, Role::Acts | Role::Judges) => true,
            (RunAs::Judge, Role::Judges) => true,
            (RunAs::Judge, Role::Acts) => false,
            (RunAs::Program, Role::Acts | Role::Judges) => false,
        };
        (is_part && file.is_file()) || is_made_by(file) || is_test(file, &self.workspace)
    }

    /// What of the workspace a check is given by a pattern or a folder: globs below the workspace. Whatever comes to fit one is part
    /// of the check.
    pub(crate) fn places(&self, command: &[String]) -> Vec<String> {
        let found = self.found(command, &self.workspace);
        let below = |path: &str| Some(Path::new(path).strip_prefix(&self.workspace).ok()?.to_str()?.to_owned());
        let of_file = |(file, run_as): (&String, &RunAs)| match run_as {
            RunAs::Judge if Path::new(file).is_dir() => below(file).map(|folder| format!("{}/**", escaped(&folder))),
            RunAs::Program | RunAs::Judge | RunAs::Named | RunAs::Script => None,
        };
        let patterns = found.patterns.iter().filter_map(|pattern| below(pattern));
        let all = found.files.iter().filter_map(of_file).chain(patterns);
        all.filter(|glob| !glob.is_empty() && Patterns::new(std::slice::from_ref(glob)).is_ok()).collect()
    }
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
        let found = commands.run_by(Role::Judges, &command, &workspace);
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

    /// Where nothing else judges, what is run does; and what is expected is no work.
    #[test]
    fn law_9_a_program_that_is_alone_is_the_check() {
        let files = [
            ("mine.py", ""),
            ("t/mine.py", ""),
            ("t/mine.js", ""),
            ("p/__init__.py", ""),
            ("p/__main__.py", ""),
            ("k/package.json", "{\"main\": \"./lib\"}"),
            ("k/lib/index.js", ""),
            ("out", ""),
            ("gold", ""),
            ("lib.sh", "fail() { echo \"$1\"; exit 1; }\n[ -d t ] || exit 1\n"),
            ("run.sh", ". ./lib.sh\npython3 -m mine || fail no\n"),
            ("looks.sh", "test -e out || exit 1\npython3 mine.py\n"),
            ("s/a.sh", ""),
            ("s/b.sh", ""),
            ("s/more/c.sh", ""),
        ];
        let mut wrong = Vec::new();
        for (command, goes_by) in [
            ("python3 -m mine", "mine.py"),
            ("cd t && python3 -Bm mine && echo good", "t/mine.py"),
            ("cd t; node mine || exit 1", "t/mine.js"),
            ("node k", "k/lib/index.js k/package.json"),
            ("python3 p", "p/__main__.py"),
            ("python3 -m p | tee /dev/null | tail -n 1", "p/__init__.py p/__main__.py"),
            ("env -C t A=1 timeout 5 python3 mine.py", "t/mine.py"),
            ("env --chdir=t python3 mine.py", "t/mine.py"),
            ("pip install -q . && python3 mine.py", "mine.py"),
            ("sh run.sh", "lib.sh mine.py run.sh"),
            ("python3 -m unittest mine.T.test_a", "mine.py"),
            ("pytest -q mine.py::test_a", "mine.py"),
            // something else judges
            ("sh looks.sh", "looks.sh"),
            ("python3 mine.py | grep -q good", ""),
            ("x=$(node t/mine); [ \"$x\" = 1 ]", ""),
            ("python3 mine.py && cargo test", ""),
            ("python3 -c \"import json\" && python3 mine.py", ""),
            // what is expected
            ("cat out | cmp - gold", "gold"),
            ("diff <(sort out) gold", "gold"),
            ("sort out > made; cmp made gold", "gold"),
            ("cmp out gold", ""),
            ("grep -qf gold out", "gold"),
            ("sha256sum -c gold", "gold"),
            // patterns and what is found
            ("sh s/*.sh", "s/a.sh"),
            ("for f in s/*.sh; do sh \"$f\"; done", "s/a.sh s/b.sh"),
            ("find s -name \"*.sh\" -exec sh {} \\;", "s/a.sh s/b.sh s/more/c.sh"),
            ("find s -name \"c*.sh\" | xargs -n 1 sh -e", "s/more/c.sh"),
        ] {
            let found = run_by(command, &files).join(" ");
            if found != goes_by {
                wrong.push(format!("{command}: {found}, not {goes_by}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Scripts that run each other, and a file that is none.
    #[test]
    fn circles_and_garbage_end() {
        let files = [("a.sh", "sh b.sh\n"), ("b.sh", "sh a.sh\n. ./c.sh\n"), ("c.sh", "if (((\n\u{1}\"")];
        assert_eq!(run_by("sh a.sh", &files).join(" "), "a.sh b.sh c.sh");
    }
}
