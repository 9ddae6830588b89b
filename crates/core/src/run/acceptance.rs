//! Proof of the whole: verdicts that hold for one workspace, and what a person says where the checks themselves changed.

use super::*;

/// What judges the work and is not what it was when the run started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedChecks {
    /// Protected paths.
    pub paths: BTreeSet<String>,
    /// Programs of checks, with the digests of their contents as they are now.
    pub programs: BTreeMap<String, Option<Digest>>,
}

impl ChangedChecks {
    /// Their names, as people read them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().chain(self.programs.keys()).map(String::as_str)
    }
}

impl Run {
    /// What all verdicts of the round have seen. None: it is not over, or nobody knows.
    pub fn proven_tree(&self) -> Option<&TreeId> {
        let Stage::Verifying { verdicts, .. } = &self.stage else { return None };
        let mut trees =
            verdicts.values().map(|verdict| verdict.as_ref().and_then(|verdict| verdict.proof.tree.as_ref()));
        let first = trees.next()??;
        trees.all(|tree| tree == Some(first)).then_some(first)
    }

    /// What a person would be asked: paths and programs that judge the work and are not what they were, and the digest of
    /// the question. None: nothing of the kind, or the round is not over.
    pub fn changed_checks(&self) -> Option<(ChangedChecks, Digest)> {
        let Stage::Verifying { verdicts, .. } = &self.stage else { return None };
        let mut changed = ChangedChecks::default();
        let mut parts = BTreeSet::new();
        for verdict in verdicts.values() {
            let proof = &verdict.as_ref()?.proof;
            changed.paths.extend(proof.protected.iter().cloned());
            parts.extend(proof.protected.iter().cloned());
            if let Some((file, content)) = &proof.program {
                changed.programs.insert(file.clone(), content.clone());
                let content = content.as_ref().map_or("gone", |content| content.as_str());
                parts.insert(format!("{file} {content}"));
            }
        }
        if changed == ChangedChecks::default() {
            return None;
        }
        let tree = self.proven_tree().map_or("", |tree| tree.as_str());
        let parts = [self.id.as_str(), tree].into_iter().chain(parts.iter().map(String::as_str));
        let digest = Digest::of_parts(parts.map(str::as_bytes));
        Some((changed, digest))
    }

    /// Whether what was found on changed checks may count.
    pub fn is_waived(&self, question: &Digest) -> bool {
        self.waived.as_ref().is_some_and(|waived| waived.digest == *question)
    }

    /// The question about changed checks that a person is asked.
    pub fn checks_question(&self) -> Option<&Action> {
        match &self.stage {
            Stage::Verifying { question, .. } => question.as_deref(),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => None,
        }
    }

    pub(super) fn asks_about_checks(&self, id: ActionId) -> bool {
        self.checks_question().is_some_and(|question| question.id == id)
    }

    pub(super) fn ask_about_checks(&mut self, about: Action) {
        if let Stage::Verifying { question, .. } = &mut self.stage {
            *question = Some(Box::new(about));
        }
    }

    /// The checks have run once more, in another claim: what is as it was again is no question.
    pub(super) fn look_at_question_again(&mut self) {
        let is_as_it_was = self.changed_checks().is_none();
        if let Stage::Verifying { question, .. } = &mut self.stage
            && is_as_it_was
        {
            *question = None;
        }
    }

    pub(super) fn checks_voided(&mut self) {
        if let Stage::Verifying { verdicts, voided, .. } = &mut self.stage {
            verdicts.values_mut().for_each(|verdict| *verdict = None);
            *voided += 1;
        }
    }

    /// A person takes it as it is; what was not run for that reason is run.
    pub(super) fn waive(&mut self, approved: &ActionApproved) {
        self.barren_claims = 0;
        let asked = self.checks_question().and_then(|question| question.args.read::<ChangedChecks>().ok());
        let programs = asked.map(|asked| asked.programs).unwrap_or_default();
        self.waived = Some(Waived { digest: approved.digest.clone(), by: approved.by.clone(), programs });
        if let Stage::Verifying { verdicts, question, .. } = &mut self.stage {
            *question = None;
            let is_held =
                |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(|verdict| verdict.finding == Finding::Held);
            verdicts.values_mut().filter(|verdict| is_held(verdict)).for_each(|verdict| *verdict = None);
        }
    }

    pub(super) fn reject(&mut self, denied: &ActionDenied) {
        self.barren_claims = 0;
        let mut detail =
            format!("what the work is checked by was changed by the run, and {} does not accept that", denied.by);
        if let Some(reason) = &denied.reason {
            detail.push_str(&format!(": {reason}"));
        }
        if matches!(self.stage, Stage::Verifying { .. }) {
            self.stage = Stage::Ready(Ready {
                after: Some(AfterFailure::Fail(crate::event::Failure::Checks)),
                detail,
                ..Ready::default()
            });
        }
    }
}
