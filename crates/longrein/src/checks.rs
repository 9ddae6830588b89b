//! Checks: conditions and answers judged by the rule book, acceptance commands run by the toolbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::check::Judgement;
use longrein_core::ids::EvidenceId;
use longrein_core::task::{AnswerSpec, Guard, Task};
use longrein_ports::{BoxFuture, CheckRun, Checked, Checks, Cited, GuardInput};
use longrein_rules::Rulebook;
use longrein_tools::Toolbox;

pub(crate) struct Judges {
    pub(crate) rules: Rulebook,
    pub(crate) toolbox: Arc<Toolbox>,
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

    fn check<'a>(&'a self, task: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked> {
        Box::pin(async move { self.toolbox.run_check(task, &check).await })
    }
}
