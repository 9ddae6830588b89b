//! The context of a run, as core decides it and the driver does it: results made shorter, the window made anew, requests
//! counted before they leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use longrein_core::action::Action;
use longrein_core::context::estimate::Estimator;
use longrein_core::context::meter::Meter;
use longrein_core::context::plan::{Plan, Spill, plan};
use longrein_core::context::render;
use longrein_core::decide::{self, Command};
use longrein_core::event::{Counted, Event};
use longrein_core::ids::{AttemptId, Digest, ModelName, Seq};
use longrein_core::image::{self, Images};
use longrein_core::payload::Payload;
use longrein_core::prompt::{Purpose, ToolDef};
use longrein_core::route;
use longrein_core::run::Run;
use longrein_core::task::{Builtin, ModelSpec, ToolBody};
use longrein_ports::{Cabinet, Encoded, NewEvent};
use serde::{Deserialize, Serialize};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;
use crate::jobs::{self, Caches, Flight, Landed};
use crate::ports::Ports;
use crate::readmit::readmit;

/// Plans before one request: results are spilled once, the window is made anew a few times at most, and then it is sent or
/// not.
const PLANS_MAX: usize = 8;
/// Events between looks of the index at what is new, once turns have left the window: whoever searches waits for what is
/// left, a twentieth of a millisecond an event. In five turns' portions it costs about a tenth of a millisecond a turn more
/// than in large ones.
const INDEX_EVERY: u64 = 30;

impl Drive<'_> {
    /// Makes the next model call ready to leave, whatever the window needs first.
    pub(crate) async fn call(&mut self, attempt: AttemptId, purpose: Purpose) -> Result<bool, DriveError> {
        for _ in 0..PLANS_MAX {
            if route::due(&self.run, self.ports.clock.now().max(self.run.at)).is_some() {
                self.command(Command::Route);
            }
            self.measure().await;
            let Some((_, meter)) = &self.meter else { return Ok(false) };
            let now = self.ports.clock.now().max(self.run.at);
            match plan(&self.run, meter, purpose, now) {
                Plan::Send { counted, reserved } => {
                    if !self.clean() {
                        self.gather_images().await?;
                        return Ok(self.request(attempt, purpose, counted, reserved));
                    }
                }
                Plan::Spill(spills) => {
                    for spill in spills {
                        self.spill(spill).await?;
                    }
                }
                Plan::Rebuild(started) => {
                    let tools = &self.ports.tools;
                    let shorter = |payload: &Payload, bytes_max: usize| tools.preview(payload, bytes_max);
                    let journal = self.ports.journal.as_ref();
                    let started = readmit(journal, &self.run, meter, *started, &shorter).await;
                    self.command(Command::Rebuild(Box::new(started)));
                }
                Plan::Forgo(forgone) => return Ok(self.command(Command::Forgo(forgone))),
            }
        }
        Err(DriveError::Stuck { run: self.run.id.clone() })
    }

    /// Brings the counts up to date, with what is known of the model.
    async fn measure(&mut self) {
        let model = self.run.model.name.clone();
        if self.meter.as_ref().is_none_or(|(of, _)| *of != model) {
            let Learned { estimator, limit, .. } =
                Learned::recall(self.ports.cabinet.as_ref(), &self.run.model, &self.ports.definitions).await;
            self.meter = Some((model, Meter::new(estimator, limit, &self.run.system, &self.ports.definitions)));
        }
        if let Some((_, meter)) = &mut self.meter {
            meter.measure(&self.run);
        }
    }

    /// What was learned of the model.
    fn learned(&self) -> Option<(ModelName, Learned)> {
        let (model, meter) = self.meter.as_ref()?;
        let trusted = meter.learned.filter(|_| self.run.window.trusts_learned);
        let limit = self.run.window.served.limit.into_iter().chain(trusted).min();
        let declared = self.run.model.context_limit;
        Some((model.clone(), Learned { estimator: meter.estimator.clone(), limit, declared }))
    }

    /// Keeps what was learned of the model for other runs.
    pub(crate) async fn remember_model(&self) {
        if let Some((model, learned)) = self.learned() {
            learned.remember(self.ports, &model, &self.ports.definitions).await;
        }
    }

    /// After a batch and what it has cleared: a snapshot now and then, and what left the window is made ready to be found.
    /// All of it beside the run: no request waits for a cache.
    pub(crate) fn keep(&mut self, events: &[(Seq, NewEvent)]) {
        let rebuilt = events.iter().any(|(_, new)| matches!(new.event, Event::GenerationStarted(_)));
        let unindexed = self.head.0.saturating_sub(self.indexed.0);
        let is_due = rebuilt || (self.run.window.generation > 1 && unindexed >= INDEX_EVERY);
        if is_due && can_search(&self.run) {
            self.indexed = self.head;
            if !self.hangar.is_flying(&Flight::Index) {
                self.hangar.launch(Flight::Index, jobs::index(self.ports, self.run.id.clone()), |_| Landed::Cache);
            }
        }
        if self.hangar.is_flying(&Flight::Keep) {
            return;
        }
        let since = self.head.0.saturating_sub(self.snapshot.0);
        let is_due = since >= self.snapshot_every || (rebuilt && since >= self.snapshot_every / 4);
        // A state that is ahead of the journal is none to keep.
        let snapshot = (is_due && self.run.head == self.head).then(|| self.run.clone());
        let learned = if rebuilt { self.learned() } else { None };
        if snapshot.is_some() {
            self.snapshot = self.head;
        }
        if snapshot.is_some() || learned.is_some() {
            self.hangar.launch(Flight::Keep, jobs::keep(self.ports, Caches { snapshot, learned }), |_| Landed::Cache);
        }
    }

    fn request(&mut self, attempt: AttemptId, purpose: Purpose, counted: Counted, reserved: u64) -> bool {
        let tail = match purpose {
            Purpose::Work => render::due_tail(&self.run),
            Purpose::Closing => None,
        };
        if let Some((_, meter)) = &mut self.meter {
            meter.sends(tail.as_deref());
        }
        let (encoded, output) = self.encode(purpose, reserved);
        let command = Command::Request {
            attempt,
            purpose,
            digest: encoded.digest.clone(),
            bytes: encoded.bytes.len() as u64,
            output,
            counted,
            tail: tail.map(|tail| Digest::of(tail.as_bytes())),
        };
        self.outgoing.insert(attempt, encoded);
        self.command(command)
    }

    /// Brings the bytes of the images that the next request shows to hand, and lets go of all others. One whose bytes are
    /// lost goes out as a line that says so.
    async fn gather_images(&mut self) -> Result<(), DriveError> {
        let takes = self.run.model.takes_images();
        let wanted: BTreeSet<_> =
            image::of_items(self.run.window.items.iter()).filter(|_| takes).map(|image| image.digest.clone()).collect();
        if self.images.len() == wanted.len() && wanted.iter().all(|digest| self.images.contains_key(digest)) {
            return Ok(());
        }
        let mut images = BTreeMap::new();
        for digest in wanted {
            let bytes: Option<Arc<[u8]>> = match self.images.get(&digest) {
                Some(bytes) => Some(Arc::clone(bytes)),
                None => self.stored(&digest).await?.map(|bytes| Arc::from(&*bytes)),
            };
            images.extend(bytes.map(|bytes| (digest, bytes)));
        }
        self.images = Arc::new(images);
        Ok(())
    }

    /// A blob's bytes, from the batch in the making where it is not stored yet.
    async fn stored(&self, digest: &Digest) -> Result<Option<Bytes>, DriveError> {
        if let Some((_, bytes)) = self.draft.blobs.iter().find(|(unstored, _)| unstored == digest) {
            return Ok(Some(bytes.clone()));
        }
        Ok(self.ports.journal.blob(digest).await?)
    }

    /// The request, and the tokens of reply that it asks for: its allowance shrinks with what is left of the budget.
    fn encode(&self, purpose: Purpose, reserved: u64) -> (Encoded, u64) {
        let tools = self.ports.definitions.clone();
        let mut prompt = render::render(&self.run, purpose, tools, reserved);
        if let Images::Given(bytes) = &mut prompt.images {
            *bytes = Arc::clone(&self.images);
        }
        let model = self.ports.model_named(&self.run.model.name);
        let encoded = model.encode(&prompt);
        let allowance = decide::output_allowance(&self.run, encoded.bytes.len() as u64);
        if allowance == 0 || allowance >= prompt.max_output {
            return (encoded, prompt.max_output);
        }
        // Its bytes can be used again if nobody holds them.
        drop(encoded);
        prompt.max_output = allowance;
        (model.encode(&prompt), allowance)
    }

    /// Replaces what is never shown, whatever its size, in the results of the last turn. Answers whether there was any.
    fn clean(&mut self) -> bool {
        let fresh: Vec<_> =
            self.run.fresh.iter().filter_map(|action| Some((action.id, action.data()?.clone()))).collect();
        let mut any = false;
        for (action, content) in fresh {
            if let Some(shown) = self.ports.tools.cleaned(content.shown()) {
                any |= self.command(Command::Spill { action, shown, total: content.bytes() });
            }
        }
        any
    }

    async fn spill(&mut self, spill: Spill) -> Result<(), DriveError> {
        let Some(content) = self.run.fresh.iter().find(|action| action.id == spill.action).and_then(Action::data)
        else {
            return Ok(());
        };
        let total = content.bytes();
        let bytes_max = usize::try_from(spill.bytes_max).unwrap_or(usize::MAX);
        // The last result of a turn is stored with the request that follows it.
        let unstored = self.draft.blobs.iter().find(|(digest, _)| *digest == content.digest());
        let whole = match unstored.and_then(|(_, bytes)| edge::parse(bytes)) {
            Some(payload) => Some(payload),
            None => edge::load(self.ports, content).await?,
        };
        // A blob that is lost: what there is of it.
        let whole = whole.unwrap_or_else(|| content.shown().clone());
        let shown = self.ports.tools.preview(&whole, bytes_max);
        self.command(Command::Spill { action: spill.action, shown, total });
        Ok(())
    }
}

/// Whether the run has something to search with: an index that nobody asks costs for nothing.
fn can_search(run: &Run) -> bool {
    run.task.tools.iter().any(|tool| tool.body == ToolBody::Builtin(Builtin::Recall))
}

/// What was learned of a model with one list of tools, for other runs.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Learned {
    pub(crate) estimator: Estimator,
    /// Its window, where that was found to be smaller than declared.
    pub(crate) limit: Option<u64>,
    /// What was declared then: whoever declares something else is heard.
    #[serde(default)]
    pub(crate) declared: Option<u64>,
}

/// Under which key that is kept.
fn key(model: &ModelName, tools: &[ToolDef]) -> String {
    let parts = tools.iter().flat_map(|tool| {
        [tool.name.as_str().as_bytes(), tool.description.as_bytes(), tool.parameters.as_str().as_bytes()]
    });
    format!("model {model} {}", Digest::of_parts(parts))
}

impl Learned {
    pub(crate) async fn recall(cabinet: &dyn Cabinet, model: &ModelSpec, tools: &[ToolDef]) -> Self {
        let kept = cabinet.recollect(&key(&model.name, tools)).await.ok().flatten();
        let learned: Self = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let limit = learned.limit.filter(|_| learned.declared == model.context_limit);
        Self { limit, declared: model.context_limit, ..learned }
    }

    pub(crate) async fn remember(&self, ports: &Ports, model: &ModelName, tools: &[ToolDef]) {
        let bytes = serde_json::to_vec(self).expect("numbers serialise");
        // A cache: it is learned again.
        let _ = ports.cabinet.remember(&key(model, tools), bytes.into()).await;
    }
}

/// Counts of a run's next request as a drive would begin with them: with what earlier runs learned of its model.
pub async fn meter(cabinet: &dyn Cabinet, run: &Run, tools: &[ToolDef]) -> Meter {
    let Learned { estimator, limit, .. } = Learned::recall(cabinet, &run.model, tools).await;
    let mut meter = Meter::new(estimator, limit, &run.system, tools);
    meter.measure(run);
    meter
}
