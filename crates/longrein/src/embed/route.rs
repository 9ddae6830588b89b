//! Other models of a task in code, and when calls go to them.

use std::collections::BTreeSet;

use longrein_core::ids::PhaseName;
use longrein_core::outcome::ModelErrorClass;
use longrein_core::route::ROUTABLE;

use super::error::Error;
use super::model::LanguageModel;

/// Another model, and when calls go to it: [`Task::route`](crate::Task::route). Without any condition it is the way out on
/// every failure that another model may not have. All conditions that are given must hold; see `docs/models.md`.
#[derive(Debug, Clone)]
pub struct Route {
    pub(crate) model: LanguageModel,
    on: BTreeSet<ModelErrorClass>,
    phases: BTreeSet<PhaseName>,
    context_over: Option<u64>,
    spent_over: Option<u64>,
    images: bool,
}

impl Route {
    /// A route to this model.
    pub fn to(model: impl Into<LanguageModel>) -> Self {
        let (on, phases) = Default::default();
        Self { model: model.into(), on, phases, context_over: None, spent_over: None, images: false }
    }

    /// A way out: where the model that was asked has failed so.
    #[must_use]
    pub fn on(mut self, classes: impl IntoIterator<Item = ModelErrorClass>) -> Self {
        self.on.extend(classes);
        self
    }

    /// In this phase of the task's program, or in another that was named.
    #[must_use]
    pub fn phase(mut self, name: &str) -> Self {
        self.phases.insert(PhaseName::new(name));
        self
    }

    /// Once a request of the run had more tokens.
    #[must_use]
    pub fn context_over(mut self, tokens: u64) -> Self {
        self.context_over = Some(tokens);
        self
    }

    /// Once the run has spent more micro-dollars: a dollar is 1,000,000. The model needs a price.
    #[must_use]
    pub fn spent_over(mut self, micros: u64) -> Self {
        self.spent_over = Some(micros);
        self
    }

    /// While the model is shown an image.
    #[must_use]
    pub fn images(mut self) -> Self {
        self.images = true;
        self
    }

    /// The route as a run has it.
    pub(crate) fn resolve(&self) -> Result<longrein_core::route::Route, Error> {
        let model = self.model.spec();
        if let Some(class) = self.on.iter().find(|class| !ROUTABLE.contains(class)) {
            let word = longrein_core::route::class_word(*class);
            return Err(Error::Task(format!(
                "no other model helps where one fails as {word}: no route is taken there"
            )));
        }
        if self.spent_over.is_some() && model.price.is_none() {
            let problem = format!("a route is about money and the price of {} is not known", model.name);
            return Err(Error::Task(problem));
        }
        if self.images && !model.takes_images() {
            return Err(Error::Task(format!("a route is about images and {} takes none", model.name)));
        }
        let (mut on, phases) = (self.on.clone(), self.phases.clone());
        let has_condition =
            !phases.is_empty() || self.context_over.is_some() || self.spent_over.is_some() || self.images;
        if on.is_empty() && !has_condition {
            on.extend(ROUTABLE);
        }
        let (context_over, spent_over, images) = (self.context_over, self.spent_over, self.images);
        Ok(longrein_core::route::Route { model, on, phases, context_over, spent_over, images })
    }
}
