//! Checks: conditions and answers judged by the rule book, acceptance commands run by the toolbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::check::{Finding, Judgement, Verdict};
use longrein_core::ids::EvidenceId;
use longrein_core::payload::{Content, Payload};
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

    fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String> {
        self.rules.condition(condition, values)
    }

    fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String> {
        self.rules.fill(template, values)
    }

    fn check<'a>(&'a self, task: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            // A check that is not what was pinned at the start proves nothing (`semantics.md` G4).
            if let Some(file) = self.toolbox.check_changed(&check.spec.name) {
                let text = format!("not run: {file} is not what it was when the run started");
                let verdict = Verdict {
                    finding: Finding::Failed,
                    evidence: Content::Inline(Payload::string(&text)),
                    exit_status: None,
                    took_ms: 0,
                };
                return Checked { verdict, blobs: Vec::new() };
            }
            let longrein_tools::Checked { verdict, blobs } = self.toolbox.run_check(task, &check).await;
            Checked { verdict, blobs }
        })
    }
}
