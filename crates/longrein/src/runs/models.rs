//! The models of a drive: the run's own, those its routes name, who writes its summaries and who judges its work.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::ids::{CheckName, Digest, ModelName};
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use longrein_core::prompt::{AnswerForm, Prompt};
use longrein_core::route;
use longrein_core::task::{ModelSpec, Task};
use longrein_models::{ModelConfig, Secret};
use longrein_ports::{BoxFuture, Encoded, Model};

use super::RunsError;

/// How to reach a model by its name; or why it cannot be, for people.
pub type Reach = Box<dyn Fn(&ModelName) -> Result<ModelConfig, String> + Send + Sync>;

/// The models of one drive.
pub(crate) struct Connected {
    pub(super) model: Arc<dyn Model>,
    pub(super) others: BTreeMap<ModelName, Arc<dyn Model>>,
    pub(super) summariser: Option<Arc<dyn Model>>,
    pub(super) judges: BTreeMap<CheckName, Arc<dyn Model>>,
}

/// The models of a drive beside the run's own.
#[derive(Default)]
pub(crate) struct Beside {
    pub(crate) others: Others,
    pub(crate) summariser: Option<Summariser>,
    /// By the check whose verdict they give, where that names a model.
    pub(crate) judges: BTreeMap<CheckName, Summariser>,
}

/// A model beside the run's own, which writes summaries or judges, and how it is reached.
pub(crate) struct Summariser {
    pub(super) config: ModelConfig,
    pub(super) model: Arc<dyn Model>,
}

/// The model that writes summaries. None: the task names none.
pub(crate) fn summariser_of(task: &Task, reach: &Reach) -> Result<Option<Summariser>, String> {
    let Some(spec) = &task.context.summary else { return Ok(None) };
    let config = reach(&spec.name)?;
    let model = longrein_models::connect(spec, &config).map_err(|error| error.to_string())?;
    Ok(Some(Summariser { config, model }))
}

/// The models that a run's routes may send it to, and the keys of those.
#[derive(Default)]
pub(crate) struct Others {
    pub(super) models: BTreeMap<ModelName, Arc<dyn Model>>,
    pub(super) keys: Vec<Secret>,
}

/// What becomes of a route whose model cannot be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is a mistake to be mended before the run starts.
    Refused,
    /// It fails when its turn comes: the task cannot be mended any more, and the others may do.
    Fails,
}

impl Missing {
    pub(super) fn of(is_new: bool) -> Self {
        if is_new { Missing::Refused } else { Missing::Fails }
    }
}

/// Connects to whatever a run with routes may go to. `main`: the one it was told to use, if it is there already.
pub(crate) fn others_of(
    task: &Task,
    main: Option<&ModelSpec>,
    reach: &Reach,
    own: &BTreeMap<ModelName, Arc<dyn Model>>,
    missing: Missing,
) -> Result<Others, RunsError> {
    let mut others = Others::default();
    if task.routes.is_empty() {
        return Ok(others);
    }
    let specs = main.into_iter().chain(route::models(task, None)).filter(|spec| spec.name != task.model.name);
    for spec in specs {
        if others.models.contains_key(&spec.name) {
            continue;
        }
        if let Some(model) = own.get(&spec.name) {
            others.models.insert(spec.name.clone(), Arc::clone(model));
            continue;
        }
        let connected = reach(&spec.name).and_then(|config| {
            let model = longrein_models::connect(spec, &config).map_err(|error| error.to_string())?;
            Ok((model, config.api_key))
        });
        let model = match (connected, missing) {
            (Ok((model, key)), _) => {
                others.keys.extend(key);
                model
            }
            (Err(why), Missing::Refused) => {
                return Err(RunsError::Task(format!("the route to {} cannot be used: {why}", spec.name)));
            }
            (Err(why), Missing::Fails) => Arc::new(NoModel(Some(format!("it cannot be used here: {why}")))),
        };
        others.models.insert(spec.name.clone(), model);
    }
    Ok(others)
}

/// The models that checks of a task name to judge the work.
pub(crate) fn judges_of(task: &Task, reach: &Reach) -> Result<BTreeMap<CheckName, Summariser>, String> {
    let mut judges = BTreeMap::new();
    for check in task.every_check() {
        let Some(spec) = longrein_core::judge::spec(check).and_then(|judge| judge.model.as_deref()) else { continue };
        let why = |error: String| format!("the model that judges \"{}\" cannot be used: {error}", check.name);
        let config = reach(&spec.name).map_err(why)?;
        let model = longrein_models::connect(spec, &config).map_err(|error| why(error.to_string()))?;
        judges.insert(check.name.clone(), Summariser { config, model });
    }
    Ok(judges)
}

/// Whether a model could be connected to, as far as can be told without calling it.
pub fn connectable(model: &ModelSpec, config: &ModelConfig) -> Result<(), longrein_models::ConfigError> {
    longrein_models::connect(model, config)?;
    Ok(())
}

/// Where no model may be called.
pub(crate) fn nobody() -> Connected {
    Connected { model: Arc::new(NoModel(None)), others: BTreeMap::new(), summariser: None, judges: BTreeMap::new() }
}

/// Why not, where that is more than that nobody calls here.
struct NoModel(Option<String>);

impl Model for NoModel {
    fn encode(&self, _prompt: &Prompt) -> Encoded {
        Encoded { bytes: bytes::Bytes::new(), digest: Digest::of(b""), position: 0, answer: AnswerForm::Remark }
    }

    fn send(&self, _request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        let message = self.0.clone().unwrap_or_else(|| "no model is called here; resume the run".to_owned());
        Box::pin(async {
            Err(ModelFailure {
                class: ModelErrorClass::BadRequest,
                message,
                status: None,
                retry_after_s: None,
                billing: Billing::Nothing,
                usage: None,
                partial: None,
                served: None,
            })
        })
    }
}
