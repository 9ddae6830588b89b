//! Checks: conditions and answers judged by the rule book, acceptance commands run by the toolbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longrein_core::check::{Finding, Judgement, Proof, Verdict};
use longrein_core::ids::{CheckName, EvidenceId};
use longrein_core::payload::{Content, Payload};
use longrein_core::task::{AnswerSpec, CheckBy, CheckSpec, Guard, Task};
use longrein_ports::{ActionCheck, BoxFuture, Changed, CheckRun, Checked, Checks, Cited, GuardInput};
use longrein_rules::Rulebook;
use longrein_tools::{Role, Toolbox, modules};
use longrein_workspace::Patterns;

use crate::embed::check;
use crate::helpers::{Helpers, escaped, helpers};
use crate::pins::Commands;

pub(crate) struct Judges {
    pub(crate) rules: Rulebook,
    pub(crate) toolbox: Arc<Toolbox>,
    /// Those in code.
    pub(crate) own: check::Registry,
    pub(crate) helpers: BTreeMap<CheckName, Helpers>,
}

impl Checks for Judges {
    fn guard(&self, guard: &Guard, input: &GuardInput<'_>) -> Result<(), String> {
        self.rules.guard(guard, input)
    }

    fn cites(&self, spec: &AnswerSpec, text: &str) -> Vec<EvidenceId> {
        self.rules.cites(spec, text)
    }

    fn judge(&self, spec: Option<&AnswerSpec>, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement {
        self.rules.judge(spec, text, cited)
    }

    fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String> {
        self.rules.condition(condition, values)
    }

    fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String> {
        self.rules.fill(template, values)
    }

    fn check<'a>(&'a self, task: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            let found = match &check.spec.by {
                None => {
                    let longrein_tools::Checked { verdict, blobs } = self.toolbox.run_check(task, &check).await;
                    return Checked { verdict, blobs };
                }
                Some(CheckBy::Rule(rule)) => self.rules.check(rule, &check.about, &task.principal),
                Some(CheckBy::Schema(schema)) => self.rules.check_schema(schema, &check.about),
                // A model is asked by the run itself, within its budget.
                Some(CheckBy::Judge(_)) => Err("No model is asked here.".to_owned()),
                Some(CheckBy::Host(_)) => {
                    let unsaid = |text: &str| longrein_ports::Tools::unsaid(self.toolbox.as_ref(), text);
                    let verdict = check::run(&self.own, task, &check, unsaid).await;
                    return Checked { verdict, blobs: Vec::new() };
                }
            };
            let (finding, text) = match found {
                Ok(()) => (Finding::Passed, "It holds.".to_owned()),
                Err(why) => (Finding::Failed, why),
            };
            let evidence = Content::Inline(Payload::string(&text));
            let proof = Proof { command: Some(check.spec.what()), output: Some(evidence.digest()), ..Proof::default() };
            Checked { verdict: Verdict { finding, evidence, exit_status: None, took_ms: 0, proof }, blobs: Vec::new() }
        })
    }

    fn check_action<'a>(&'a self, task: &'a Task, check: ActionCheck) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            let longrein_tools::Checked { verdict, blobs } = self.toolbox.run_action_check(task, &check).await;
            Checked { verdict, blobs }
        })
    }

    fn changed(&self, spec: &CheckSpec) -> Option<Changed> {
        self.toolbox.check_changed(&spec.name)
    }

    fn protected(&self, spec: &CheckSpec, mut paths: Vec<String>) -> Vec<String> {
        let nothing = Helpers::default();
        let helpers = self.helpers.get(&spec.name).unwrap_or(&nothing);
        let protect: Vec<String> = spec.protect.iter().chain(helpers.patterns()).cloned().collect();
        // What cannot be read protects everything.
        if let Ok(patterns) = Patterns::new(&protect) {
            paths.retain(|path| {
                let is_meant = |path: &str| patterns.matches(path) || helpers.name(path);
                is_meant(path) || stands_before(path).is_some_and(|module| is_meant(&module))
            });
        }
        paths
    }
}

/// The Python module whose place a file takes: `a/helper.py` for `a/helper/__init__.py` and `a/helper.so`, which are found
/// before it.
fn stands_before(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    match modules::module(name)? {
        "__init__" if !folder.is_empty() => Some(format!("{folder}.py")),
        module if name.ends_with(".so") && folder.is_empty() => Some(format!("{module}.py")),
        module if name.ends_with(".so") => Some(format!("{folder}/{module}.py")),
        _ => None,
    }
}

/// What Python would find before this module of the workspace, as globs.
fn found_before(module: &str) -> Vec<String> {
    let Some(name) = module.strip_suffix(".py") else { return Vec::new() };
    let (name, kinds) = (escaped(name), modules::KINDS.join(","));
    vec![format!("{name}/__init__.{{{kinds},*.so}}"), format!("{name}.{{so,*.so}}")]
}

/// What the checks of a task go by, beside what they run themselves. `path`: as for [`helpers`].
pub(crate) fn helpers_of(task: &Task, commands: &Commands, path: &[String]) -> BTreeMap<CheckName, Helpers> {
    let of_check = |check: &CheckSpec| {
        let named = check.command.iter().map(|word| Path::new(&task.workspace).join(word));
        let run = commands.run_by(Role::Judges, &check.command, &task.workspace);
        let files: Vec<PathBuf> = named.chain(run).collect();
        let scripts: Vec<String> = files.iter().filter_map(|file| script(file)).collect();
        let texts = check.command.iter().chain(&scripts).map(String::as_str);
        let places =
            files.iter().filter_map(|file| file.strip_prefix(&task.workspace).ok()?.to_str()).flat_map(found_before);
        let places = places.chain(commands.places(&check.command)).collect();
        let helpers = helpers(texts, path).and(places);
        (check.name.clone(), helpers)
    };
    task.every_check().filter(|check| !check.command.is_empty()).map(of_check).collect()
}

/// Folders below the workspace where the operator's `PATH` looks for programs.
pub(crate) fn path_inside(task: &Task, environment: &BTreeMap<String, String>) -> Vec<String> {
    let workspace = Path::new(&task.workspace);
    let folders = environment.get("PATH").map_or("", String::as_str).split(':');
    let inside = folders.filter_map(|folder| Path::new(folder).strip_prefix(workspace).ok()?.to_str());
    inside.filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
}

/// The text of a script that a check runs: of a shell or of make. What others say is no command.
fn script(file: &Path) -> Option<String> {
    const MAX_BYTES: u64 = 256 * 1024;
    let is_script = match file.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => ["sh", "bash", "bats", "dash", "ksh", "zsh", "mk"].contains(&extension),
        None => true,
    };
    let is_small = || std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= MAX_BYTES);
    (is_script && is_small()).then(|| std::fs::read_to_string(file).ok()).flatten()
}
