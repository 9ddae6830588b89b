//! Children in one process: what each is driven with is made from its own task, out of what the root was driven with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::children::{ChildSpec, ChildState};
use longrein_core::decide::request_children;
use longrein_core::ids::{AttemptId, ModelName, RunId, Seq};
use longrein_core::run::{Run, Stage};
use longrein_core::task::{Mode, ModeChange, PolicyRules};
use longrein_driver::{ChildTask, DriveError, Equip, Equipped, Observer};
use longrein_models::ModelConfig;
use longrein_ports::{
    AppendError, Batch, BatchId, BoxFuture, Claim, Create, Durability, Faults, Finding, Journal, Model, NewEvent,
    Spoken,
};
use longrein_tools::{Host, Secrets};

use crate::embed::check::Registry;
use crate::pins;
use crate::runs::{
    Beside, Missing, Own, Place, Reach, Runs, RunsError, Strictest, judges_of, nobody, others_of, summariser_of,
};
use crate::settings::SandboxSettings;

/// What children are driven with.
#[derive(Clone)]
pub(crate) struct Outfit(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) runs: Runs,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) sandbox: SandboxSettings,
    pub(crate) faults: Option<Arc<dyn Faults>>,
    /// Rules given when the root was taken up again: they can only tighten.
    pub(crate) policy: Option<PolicyRules>,
    /// The mode the root goes on in, if the operator named one. Children are never freer; they do not become freer either.
    pub(crate) mode: Option<Mode>,
    pub(crate) models: Models,
}

/// How children reach their models.
#[expect(clippy::large_enum_variant, reason = "there is one for each tree that is driven")]
pub(crate) enum Models {
    /// They call none here: what they owe is left as it is.
    Nobody,
    Reach {
        /// The root's own, and how that is reached.
        of_root: (ModelName, ModelConfig),
        /// Any other.
        other: Arc<Reach>,
        /// What the embedding program brought for the root's.
        own: Option<Arc<dyn Model>>,
        /// The same for those of routes.
        own_others: BTreeMap<ModelName, Arc<dyn Model>>,
        host: Host,
        secrets: Secrets,
        checks: Registry,
    },
}

impl Equip for Outfit {
    fn equip<'a>(&'a self, child: ChildTask<'a>) -> BoxFuture<'a, Result<Equipped, String>> {
        Box::pin(async move { self.make(child).await.map_err(|error| error.to_string()) })
    }
}

impl Outfit {
    async fn make(&self, child: ChildTask<'_>) -> Result<Equipped, RunsError> {
        let Parts { runs, environment, sandbox, faults, policy, mode, models } = self.0.as_ref();
        let (mut changed, mut now, mut works_in) = (Vec::new(), None, child.task.permission_mode);
        let mut task = child.task.clone();
        if let Some(run) = child.run {
            changed = pins::changed(&run.task);
            if policy.as_ref().is_some_and(|policy| *policy != run.task.policy) {
                changed.push("policy".to_owned());
            }
            now = mode.filter(|mode| run.mode.change(*mode) == ModeChange::Tightens);
            works_in = now.unwrap_or(run.mode);
            task.model = runs.model_of(run).await?;
        }
        let place = Place { environment, sandbox, mode: works_in, faults: faults.clone() };
        let mut ports = match models {
            Models::Nobody => runs.ports_around(&task, nobody(), runs.known.secrets.clone(), &place, None)?,
            Models::Reach { of_root: (name, config), other, own, own_others, host, secrets, checks } => {
                let is_same = *name == task.model.name;
                let config = if is_same { config.clone() } else { other(&task.model.name).map_err(RunsError::Task)? };
                let own = Own {
                    model: own.clone().filter(|_| is_same),
                    others: own_others.clone(),
                    host: host.another(),
                    secrets: secrets.clone(),
                    checks: checks.clone(),
                };
                let main = child.run.map(longrein_core::route::main);
                let others = others_of(&task, main, other, &own.others, Missing::Fails)?;
                // It is optional, and a child's task cannot be mended.
                let summariser = summariser_of(&task, other).unwrap_or_default();
                let judges = judges_of(&task, other).map_err(RunsError::Task)?;
                runs.ports(&task, &config, Beside { others, summariser, judges }, &place, own)?
            }
        };
        if let Some(policy) = policy {
            ports.gate = Arc::new(Strictest(ports.gate, runs.gate(&task, policy, &place)?));
        }
        ports.children = Some(Arc::new(self.clone()));
        Ok(Equipped { ports, changed, mode: now })
    }
}

/// Sends a batch until it is answered.
async fn append_until_answered(journal: &dyn Journal, claim: &Claim, batch: &Batch) -> Result<(), RunsError> {
    const AGAIN: Duration = Duration::from_millis(50);
    loop {
        match journal.append(claim, batch).await {
            Ok(_) => return Ok(()),
            Err(AppendError::Unknown) => tokio::time::sleep(AGAIN).await,
            Err(AppendError::Journal(error)) => return Err(error.into()),
            Err(AppendError::Fenced { by }) => {
                return Err(DriveError::ClaimLost { run: claim.run.clone(), by }.into());
            }
            Err(AppendError::Conflict { expected, found }) => {
                return Err(DriveError::Conflict { run: claim.run.clone(), expected, found }.into());
            }
            // It takes no key and ends nothing.
            Err(AppendError::InputPending | AppendError::KeyTaken(_)) => return Err(DriveError::Unanswered.into()),
        }
    }
}

/// Tells of one run only: what its children do stands in their own journals.
pub(crate) struct OfOne {
    pub(crate) run: RunId,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Observer for OfOne {
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]) {
        if run.id == self.run {
            self.observer.committed(run, events);
        }
    }

    fn heard(&self, run: &RunId, attempt: AttemptId, spoken: Spoken<'_>) {
        if *run == self.run {
            self.observer.heard(run, attempt, spoken);
        }
    }
}

impl Runs {
    /// The runs below one that are there, the nearest first. What cannot be read has none.
    pub async fn below(&self, id: &RunId) -> Result<Vec<RunId>, RunsError> {
        let all = self.list().await?;
        let mut below = Vec::new();
        let mut of = vec![id.clone()];
        while !of.is_empty() {
            let is_child = |row: &longrein_ports::RunRow| row.parent.as_ref().is_some_and(|parent| of.contains(parent));
            // An id is in a listing once, so this ends.
            of = all.iter().map(|(row, _)| row).filter(|row| is_child(row)).map(|row| row.run.clone()).collect();
            below.extend(of.iter().cloned());
        }
        Ok(below)
    }

    /// The run that a child is driven with: the root of its tree. Any other run is its own.
    pub async fn driven_with(&self, id: &RunId) -> Result<RunId, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        Ok(run.descent.map_or(run.id, |descent| descent.root))
    }

    /// Asks for children of a run that nobody drives now, all or none; at most `at_once` of them are driven at the same
    /// time. Whoever goes on with the run drives them first. Their ids, in order.
    pub async fn ask_for_children(
        &self,
        id: &RunId,
        specs: &[ChildSpec],
        at_once: u32,
    ) -> Result<Vec<RunId>, RunsError> {
        let claim = self.journal.claim(id, &self.worker, None, Create::Never).await?;
        let asked = self.asked(&claim, specs, at_once).await;
        self.journal.release(&claim).await?;
        asked
    }

    async fn asked(&self, claim: &Claim, specs: &[ChildSpec], at_once: u32) -> Result<Vec<RunId>, RunsError> {
        let mut run = self.fold(&claim.run, |_| {}).await?;
        let now = self.clock().now().max(run.at);
        let events = request_children(&run, specs, at_once, now)?;
        for event in &events {
            run.apply(run.head.next(), now, event);
        }
        let batch = Batch {
            id: BatchId(format!("{}.children", claim.fence)),
            expected: claim.head,
            events: events.into_iter().map(|event| NewEvent { at: now, event }).collect(),
            consumed: Vec::new(),
            keys: Vec::new(),
            marks: Vec::new(),
            blobs: Vec::new(),
            durability: Durability::Synced,
            row: longrein_driver::run_row(&run),
        };
        append_until_answered(self.journal.as_ref(), claim, &batch).await?;
        Ok(specs.iter().map(|spec| spec.id(&claim.run)).collect())
    }

    /// What a run and its children do not agree on.
    pub(crate) async fn disagreements(&self, run: &Run) -> Result<Vec<Finding>, RunsError> {
        let mut findings = Vec::new();
        for (id, child) in &run.children {
            let mut find = |fault: String| findings.push(Finding { record: format!("child {id}"), fault });
            let known = match self.fold(id, |_| {}).await {
                Ok(known) => known,
                Err(error) => {
                    // Asked for, and not begun yet.
                    if matches!(child.state, ChildState::Ended { .. }) {
                        find(format!("has ended, and cannot be read: {error}"));
                    }
                    continue;
                }
            };
            if known.descent.as_ref().is_none_or(|descent| descent.parent != run.id || descent.key != child.key) {
                find("is not the one that was asked for".to_owned());
                continue;
            }
            if known.limits != child.grant {
                find("has other limits than it was granted".to_owned());
            }
            match &child.state {
                ChildState::Ended { report, .. } => {
                    let same_end = matches!(&known.stage, Stage::Rest(ended) if ended.end == report.end);
                    if !same_end {
                        find("did not end as its parent was told".to_owned());
                    }
                    if known.spent != report.spent {
                        find("spent something else than it was settled at".to_owned());
                    }
                }
                ChildState::Owed(_) | ChildState::Inherited => {}
            }
        }
        Ok(findings)
    }
}
