//! The ports one drive works with.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::ids::{CheckName, ModelName};
use longrein_core::prompt::ToolDef;
use longrein_ports::{Archive, Cabinet, Checks, Clock, Gate, Hooks, Journal, Model, Origins, Tools, Trees};

use crate::children::Equip;

/// The world, as the driver sees it.
#[derive(Clone)]
pub struct Ports {
    pub journal: Arc<dyn Journal>,
    /// Where snapshots and what was learned of models are kept. Nothing of a run depends on it.
    pub cabinet: Arc<dyn Cabinet>,
    /// Kept up to date when turns leave the window.
    pub archive: Arc<dyn Archive>,
    /// The one the run uses when the drive begins.
    pub model: Arc<dyn Model>,
    /// Those that its routes may send it to, by name; the one above may be among them.
    pub others: Arc<BTreeMap<ModelName, Arc<dyn Model>>>,
    /// Writes summaries of what has left the window. None: none are written here.
    pub summariser: Option<Arc<dyn Model>>,
    /// The models that judge the work, by the check whose verdict they give.
    pub judges: BTreeMap<CheckName, Arc<dyn Model>>,
    pub tools: Arc<dyn Tools>,
    /// The tools as the model is offered them.
    pub definitions: Arc<[ToolDef]>,
    pub gate: Arc<dyn Gate>,
    pub checks: Arc<dyn Checks>,
    /// Snapshots of the run's workspace. None: none are taken here.
    pub trees: Option<Arc<dyn Trees>>,
    /// Asked only where a task has hooks.
    pub hooks: Arc<dyn Hooks>,
    pub clock: Arc<dyn Clock>,
    /// Where what lies in files came from.
    pub origins: Arc<dyn Origins>,
    /// What the children of a run are driven with. None: a run with children cannot go on here.
    pub children: Option<Arc<dyn Equip>>,
}

impl Ports {
    /// The model that calls to this name go to.
    pub fn model_named(&self, name: &ModelName) -> &Arc<dyn Model> {
        self.others.get(name).unwrap_or(&self.model)
    }
}
