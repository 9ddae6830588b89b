//! Which model a call goes to: the run's main one, the one a route chooses for what the run does now, or, where a model fails,
//! the next one that a route sends the run to. Pure, like everything here: a function of the state, the failure and the time.
//!
//! A route with failures is a way out: it is taken where the model that was asked fails so, and nothing else helps. One
//! without is a choice: it holds as long as its conditions do. Each switch costs the prompt cache, so a run moves only where
//! it must: a model that may recover is gone back to after a cool-down that doubles if it fails again at once; one that will
//! not is not gone back to. Within one turn no model is moved to twice.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{ModelRouted, RouteWhy};
use crate::ids::{ModelName, PhaseName};
use crate::image;
use crate::outcome::ModelErrorClass;
use crate::run::Run;
use crate::task::{ModelSpec, Task};
use crate::time::Timestamp;

/// Routes a task may have.
pub const ROUTES_MAX: usize = 16;

/// Failures in one turn that may pass, before a run with somewhere to go goes there.
pub const ROUTED_FAILURES_MAX: u32 = 3;

/// Whoever is asked to wait longer than that goes elsewhere at once, if there is anywhere to go.
pub const ROUTED_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a model that may recover is left alone at first; doubles each time it fails again before it has replied.
pub const COOL_DOWN_FIRST: Duration = Duration::from_secs(5 * 60);
/// The longest it is left alone, whatever its server asks for.
pub const COOL_DOWN_MAX: Duration = Duration::from_secs(60 * 60);

/// The failures that another model may not have. A script's fault and a death are nobody else's.
pub const ROUTABLE: [ModelErrorClass; 9] = [
    ModelErrorClass::Transient,
    ModelErrorClass::RateLimited,
    ModelErrorClass::Overloaded,
    ModelErrorClass::Quota,
    ModelErrorClass::Authentication,
    ModelErrorClass::BadRequest,
    ModelErrorClass::ContextExhausted,
    ModelErrorClass::ContentRefused,
    ModelErrorClass::Malformed,
];

/// The most characters of a failure that are told again at the end.
const WORDS_MAX: usize = 200;

/// One `[[route]]` of a task: a model, and when calls go to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub model: ModelSpec,
    /// Failures of the model before it that lead here. Empty: it is a choice, not a way out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub on: BTreeSet<ModelErrorClass>,
    /// Only in these phases of the program. Empty: in all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub phases: BTreeSet<PhaseName>,
    /// Only once a request of the run had more tokens than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_over: Option<u64>,
    /// Only once the run has spent more micro-dollars than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_over: Option<u64>,
    /// Only while there is an image among what the model is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images: bool,
}

impl Route {
    /// Whether it is taken for what the run does, and not for a failure. What has no condition at all is neither.
    fn is_choice(&self) -> bool {
        let has_condition =
            !self.phases.is_empty() || self.context_over.is_some() || self.spent_over.is_some() || self.images;
        self.on.is_empty() && has_condition
    }

    /// Every condition but the failure.
    fn holds(&self, run: &Run) -> bool {
        let in_phase = self.phases.is_empty() || run.phase().is_some_and(|phase| self.phases.contains(&phase.name));
        in_phase
            && self.context_over.is_none_or(|tokens| run.routing.largest > tokens)
            && self.spent_over.is_none_or(|micros| run.spent.micros > micros)
            && (!self.images || shows_images(run))
    }

    /// Why this choice holds: its narrowest condition.
    fn why(&self, run: &Run) -> RouteWhy {
        match (run.phase().filter(|_| !self.phases.is_empty()), self.context_over, self.spent_over) {
            (Some(phase), _, _) => RouteWhy::Phase(phase.name.clone()),
            (None, Some(_), _) => RouteWhy::Context(run.routing.largest),
            (None, None, Some(_)) => RouteWhy::Spent(run.spent.micros),
            (None, None, None) => RouteWhy::Images,
        }
    }
}

/// Whether there is an image among what the model is shown.
fn shows_images(run: &Run) -> bool {
    image::of_items(run.window.items.iter()).next().is_some()
}

/// Where a run stands among its models. `Run::model` is the one in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    /// The one the task or an operator named, where another is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<Box<ModelSpec>>,
    /// A failure has sent the run to another model than it would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<Away>,
    /// Models that failed since the last reply, each with how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Times in a row that a failure sent the run away before the model it wants had replied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trips: u32,
    /// Tokens of the largest request so far, as reported.
    #[serde(default, skip_serializing_if = "is_none")]
    pub largest: u64,
    /// An operator has named the model in use: choices count no more, ways out do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

fn is_zero(times: &u32) -> bool {
    *times == 0
}

fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

/// Away from the model that the run wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The one it wants.
    pub from: ModelName,
    /// When that is tried again. None: not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A model that failed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    pub model: ModelName,
    pub class: ModelErrorClass,
    pub words: String,
}

impl Routing {
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// An operator named another model.
    pub(crate) fn switched(&mut self) {
        *self = Self { largest: self.largest, pinned: true, ..Self::default() };
    }

    /// A reply was taken.
    pub(crate) fn replied(&mut self, input: u64) {
        self.tried.clear();
        if self.away.is_none() {
            self.trips = 0;
        }
        self.largest = self.largest.max(input);
    }
}

/// Every model that calls of a run of this task may go to, the main one first, each once.
pub fn models<'a>(task: &'a Task, run: Option<&'a Run>) -> Vec<&'a ModelSpec> {
    let of_run = run.into_iter().flat_map(|run| run.routing.main.as_deref().into_iter().chain([&run.model]));
    let all = of_run.chain([&task.model]).chain(task.routes.iter().map(|route| &route.model));
    let mut models: Vec<&ModelSpec> = Vec::new();
    for model in all {
        if models.iter().all(|known| known.name != model.name) {
            models.push(model);
        }
    }
    models
}

/// The model that the task or an operator named.
pub fn main(run: &Run) -> &ModelSpec {
    run.routing.main.as_deref().unwrap_or(&run.model)
}

/// The model the run would use if none had failed, and why.
fn wanted(run: &Run) -> (&ModelSpec, RouteWhy) {
    let chosen =
        run.task.routes.iter().filter(|_| !run.routing.pinned).find(|route| route.is_choice() && route.holds(run));
    match chosen {
        Some(route) => (&route.model, route.why(run)),
        None => (main(run), RouteWhy::Main),
    }
}

/// The move that is due before the next call, whatever has failed.
pub fn due(run: &Run, now: Timestamp) -> Option<ModelRouted> {
    if run.task.routes.is_empty() {
        return None;
    }
    let (model, why) = wanted(run);
    let why = match &run.routing.away {
        Some(away) if away.from == model.name => {
            away.until.filter(|until| now >= *until && run.routing.tried.is_empty())?;
            RouteWhy::CooledDown
        }
        Some(_) | None => why,
    };
    // Names are what is moved between; to be home again without having moved is told by nothing.
    (model.name != run.model.name).then(|| ModelRouted {
        from: run.model.name.clone(),
        words: why.words(),
        model: model.clone(),
        why,
        wanted: None,
        until: None,
        passed_over: Vec::new(),
    })
}

/// Where a run goes whose model has failed so. None: nowhere.
pub fn way_out(
    run: &Run,
    class: ModelErrorClass,
    words: &str,
    asked: Option<Duration>,
    now: Timestamp,
) -> Option<ModelRouted> {
    let (model, passed_over) = next(run, class)?;
    let words: String = words.chars().take(WORDS_MAX).collect();
    Some(ModelRouted {
        from: run.model.name.clone(),
        wanted: Some(wanted(run).0.name.clone()).filter(|wanted| *wanted != model.name),
        until: until(run, model, class, asked.unwrap_or_default(), now),
        model: model.clone(),
        why: RouteWhy::Failed(class),
        words,
        passed_over,
    })
}

/// The next model for a run whose own has failed so: by the routes in their order, and last the one it wants anyway. While the
/// model is shown images, those that take none are passed over as long as there is another; they come with it.
pub fn next(run: &Run, class: ModelErrorClass) -> Option<(&ModelSpec, Vec<ModelName>)> {
    if run.task.routes.is_empty() {
        return None;
    }
    let has_room = |model: &ModelSpec| match class {
        // It would say the same.
        ModelErrorClass::ContextExhausted => run.limit_of(model) > run.window_limit(),
        ModelErrorClass::Transient
        | ModelErrorClass::RateLimited
        | ModelErrorClass::Overloaded
        | ModelErrorClass::Quota
        | ModelErrorClass::Authentication
        | ModelErrorClass::BadRequest
        | ModelErrorClass::ContentRefused
        | ModelErrorClass::Malformed
        | ModelErrorClass::Lost
        | ModelErrorClass::Script => true,
    };
    let is_new = |model: &&ModelSpec| {
        model.name != run.model.name && run.routing.tried.iter().all(|tried| tried.model != model.name)
    };
    let ways = run.task.routes.iter().filter(|route| route.on.contains(&class) && route.holds(run));
    let back = ROUTABLE.contains(&class).then(|| wanted(run).0);
    let mut left = ways.map(|route| &route.model).chain(back).filter(is_new).filter(|model| has_room(model));
    let first = left.next()?;
    if first.takes_images() || !shows_images(run) {
        return Some((first, Vec::new()));
    }
    let mut blind = vec![first.name.clone()];
    for model in left {
        if model.takes_images() {
            return Some((model, blind));
        }
        blind.push(model.name.clone());
    }
    Some((first, Vec::new()))
}

/// When the model that is wanted is tried again.
fn until(run: &Run, to: &ModelSpec, class: ModelErrorClass, asked: Duration, now: Timestamp) -> Option<Timestamp> {
    let wanted = wanted(run).0;
    if to.name == wanted.name {
        return None;
    }
    match &run.routing.away {
        // Another one on the way has failed: the first is still as it was.
        Some(away) if away.from == wanted.name => away.until,
        Some(_) | None => {
            let doubled = COOL_DOWN_FIRST.saturating_mul(1 << run.routing.trips.min(8));
            recovers(class).then(|| now.plus(doubled.max(asked).min(COOL_DOWN_MAX)))
        }
    }
}

/// Whether a model that failed so may be well again by itself.
pub fn recovers(class: ModelErrorClass) -> bool {
    match class {
        ModelErrorClass::Transient
        | ModelErrorClass::RateLimited
        | ModelErrorClass::Overloaded
        | ModelErrorClass::Malformed => true,
        ModelErrorClass::Quota
        | ModelErrorClass::Authentication
        | ModelErrorClass::BadRequest
        | ModelErrorClass::ContextExhausted
        | ModelErrorClass::ContentRefused
        | ModelErrorClass::Lost
        | ModelErrorClass::Script => false,
    }
}

/// Folds a move in.
pub(crate) fn routed(run: &mut Run, routed: &ModelRouted) {
    let before = run.model.name.clone();
    if run.routing.main.is_none() {
        run.routing.main = Some(Box::new(run.model.clone()));
    }
    run.take_model(&routed.model);
    let home = wanted(run).0.name.clone();
    let routing = &mut run.routing;
    if let RouteWhy::Failed(class) = &routed.why {
        routing.tried.push(Tried { model: before, class: *class, words: routed.words.clone() });
        if routing.away.is_none() {
            routing.trips = routing.trips.saturating_add(1);
        }
    }
    routing.away = (home != routed.model.name).then_some(Away { from: home, until: routed.until });
    if routing.main.as_ref().is_some_and(|main| main.name == routed.model.name) {
        routing.main = None;
    }
}

/// Folds in that no model is left. Whoever takes the run up again begins with the one it wants.
pub(crate) fn gave_up(run: &mut Run) {
    let at = run.at;
    run.routing.tried.clear();
    if let Some(away) = &mut run.routing.away {
        away.until = Some(at);
    }
}

/// What failed last, in words, with every model that was tried before it and why.
pub(crate) fn in_words(run: &Run, last: &str) -> String {
    if run.routing.tried.is_empty() {
        return last.to_owned();
    }
    let tried =
        run.routing.tried.iter().map(|tried| format!("{} ({}): {}", tried.model, class_word(tried.class), tried.words));
    let all: Vec<_> = tried.chain([format!("{}: {last}", run.model.name)]).collect();
    format!("every model failed: {}", all.join("; "))
}

/// A class as people and files write it.
pub fn class_word(class: ModelErrorClass) -> &'static str {
    match class {
        ModelErrorClass::Transient => "transient",
        ModelErrorClass::RateLimited => "rate_limited",
        ModelErrorClass::Overloaded => "overloaded",
        ModelErrorClass::Quota => "quota",
        ModelErrorClass::Authentication => "authentication",
        ModelErrorClass::BadRequest => "bad_request",
        ModelErrorClass::ContextExhausted => "context_exhausted",
        ModelErrorClass::ContentRefused => "content_refused",
        ModelErrorClass::Malformed => "malformed",
        ModelErrorClass::Lost => "lost",
        ModelErrorClass::Script => "script",
    }
}

/// The class that is written so. Err: how it is written here, or what there is.
pub fn class_of(word: &str) -> Result<ModelErrorClass, String> {
    if let Some(class) = ROUTABLE.into_iter().find(|class| class_word(*class) == word) {
        return Ok(class);
    }
    let meant = match word {
        "timeout" | "unavailable" | "connection" | "server_error" => Some("transient"),
        "rate_limit" | "429" => Some("rate_limited"),
        "auth" | "401" => Some("authentication"),
        "refused" | "refusal" => Some("content_refused"),
        "context" | "context_length_exceeded" => Some("context_exhausted"),
        _ => None,
    };
    Err(match meant {
        Some(meant) => format!("\"{word}\" is called \"{meant}\" here"),
        None => format!("there is no failure \"{word}\"; there are {}", ROUTABLE.map(class_word).join(", ")),
    })
}
