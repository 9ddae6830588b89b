//! `[[route]]`: other models, and when calls go to them. What the conditions mean is said in `core::route`; here is how they
//! are written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longrein_core::budget::Limit;
use longrein_core::ids::PhaseName;
use longrein_core::outcome::ModelErrorClass;
use longrein_core::program::Phases;
use longrein_core::route::{ROUTABLE, ROUTES_MAX, Route, class_of};
use longrein_core::task::{ModelSpec, Task};

use super::error::{Place, TaskFileError};
use super::section::Section;

/// A route as it is written: its model is a name.
#[derive(Debug, Clone)]
pub struct WrittenRoute {
    place: Place,
    model: String,
    on: BTreeSet<ModelErrorClass>,
    phases: Vec<(Place, String)>,
    context_over: Option<u64>,
    spent_over: Option<u64>,
    images: bool,
}

impl WrittenRoute {
    /// The model it leads to, as written.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// When, in words.
    pub fn when(&self) -> String {
        when(
            &self.on,
            self.phases.iter().map(|(_, name)| name.as_str()),
            self.context_over,
            self.spent_over,
            self.images,
        )
    }
}

/// When calls go to a route's model, in words.
pub fn when_of(route: &Route) -> String {
    when(&route.on, route.phases.iter().map(PhaseName::as_str), route.context_over, route.spent_over, route.images)
}

fn when<'a>(
    on: &BTreeSet<ModelErrorClass>,
    phases: impl Iterator<Item = &'a str>,
    context_over: Option<u64>,
    spent_over: Option<u64>,
    images: bool,
) -> String {
    let on = match on.len() {
        0 => None,
        all if all == ROUTABLE.len() => Some("on any failure".to_owned()),
        _ => {
            let words: Vec<_> = on.iter().map(|class| longrein_core::route::class_word(*class)).collect();
            Some(format!("on {}", words.join(", ")))
        }
    };
    let phases: Vec<_> = phases.collect();
    let phases = (!phases.is_empty()).then(|| format!("in phase {}", phases.join(", ")));
    let context = context_over.map(|tokens| format!("beyond {tokens} tokens"));
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let spent = spent_over.map(|micros| format!("beyond ${:.2}", micros as f64 / 1e6));
    let images = images.then(|| "while there is an image to see".to_owned());
    [on, phases, context, spent, images].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Routes that a configuration file declares. The rest of it is read elsewhere.
pub fn configured(file: &Path, text: &str) -> Result<Vec<WrittenRoute>, TaskFileError> {
    let (mut top, _) = Section::parse(file, text, &BTreeMap::new())?;
    let routes = read_all(&mut top)?;
    if let Some((place, phase)) = routes.iter().flat_map(|route| &route.phases).next() {
        let problem = format!("the phase \"{phase}\" is a program's: write this route into the task's file");
        return Err(TaskFileError::Task { place: place.clone(), problem });
    }
    Ok(routes)
}

/// All `[[route]]` of a file.
pub(super) fn read_all(top: &mut Section) -> Result<Vec<WrittenRoute>, TaskFileError> {
    let place = top.place("route");
    let routes: Vec<_> = top.sections("route")?.into_iter().map(read).collect::<Result<_, _>>()?;
    if routes.len() > ROUTES_MAX {
        let problem = format!("there are {} routes; {ROUTES_MAX} are the most", routes.len());
        return Err(TaskFileError::Task { place, problem });
    }
    Ok(routes)
}

fn read(mut table: Section) -> Result<WrittenRoute, TaskFileError> {
    let place = table.place("model");
    let model = table.text("model")?.ok_or_else(|| table.wrong("model", "to which model? PROVIDER/NAME"))?;
    let written = table.has("on");
    let mut on = BTreeSet::new();
    let on_place = table.place("on");
    for word in table.texts("on")?.unwrap_or_default() {
        let wrong = |problem| TaskFileError::Task { place: on_place.clone(), problem };
        on.insert(class_of(&word).map_err(wrong)?);
    }
    if written && on.is_empty() {
        let problem = "it names no failure; leave it out for any".to_owned();
        return Err(TaskFileError::Task { place: on_place, problem });
    }
    let phase_place = table.place("phase");
    let phases = table.texts("phase")?.unwrap_or_default();
    let phases: Vec<_> = phases.into_iter().map(|phase| (phase_place.clone(), phase)).collect();
    let context_over = table.whole("context_over")?;
    let spent_over = table.micros("spent_over")?;
    let images_place = table.place("images");
    let images = table.truth("images")?;
    if images == Some(false) {
        let problem = "it can only be true: while there is an image to see; leave it out".to_owned();
        return Err(TaskFileError::Task { place: images_place, problem });
    }
    let images = images.is_some();
    table.finish()?;
    if !written && phases.is_empty() && context_over.is_none() && spent_over.is_none() && !images {
        on.extend(ROUTABLE);
    }
    Ok(WrittenRoute { place, model, on, phases, context_over, spent_over, images })
}

/// The routes as a task has them. `find`: what a model's name stands for.
pub(super) fn resolve(
    written: Vec<WrittenRoute>,
    find: &impl Fn(Place, &str) -> Result<ModelSpec, TaskFileError>,
) -> Result<Vec<(Place, Route)>, TaskFileError> {
    let one = |route: WrittenRoute| {
        let model = find(route.place.clone(), &route.model)?;
        if route.spent_over.is_some() && model.price.is_none() {
            let problem = format!(
                "it is about money and the price of {} is not known; add price to its [models.\"…\"] table",
                model.name
            );
            return Err(TaskFileError::Task { place: route.place, problem });
        }
        if route.images && !model.takes_images() {
            let problem = format!(
                "it is about images and {} takes none; say images = true in its [models.\"…\"] table if it does",
                model.name
            );
            return Err(TaskFileError::Task { place: route.place, problem });
        }
        let place = route.phases.first().map_or(route.place, |(place, _)| place.clone());
        let phases = route.phases.into_iter().map(|(_, phase)| PhaseName::new(phase)).collect();
        let (context_over, spent_over, images) = (route.context_over, route.spent_over, route.images);
        Ok((place, Route { model, on: route.on, phases, context_over, spent_over, images }))
    };
    written.into_iter().map(one).collect()
}

/// Whether the phases that routes name are there.
pub(crate) fn check(routes: &[(Place, Route)], phases: Option<&Phases>) -> Result<(), TaskFileError> {
    for (place, route) in routes {
        let is_there = |phase: &&PhaseName| phases.is_some_and(|phases| phases.phase(phase).is_some());
        if let Some(phase) = route.phases.iter().find(|phase| !is_there(phase)) {
            let names: Vec<_> =
                phases.into_iter().flat_map(|phases| &phases.phases).map(|phase| phase.name.as_str()).collect();
            let there = if names.is_empty() { "its program has none".to_owned() } else { names.join(", ") };
            let problem = format!("there is no phase \"{phase}\"; there are: {there}");
            return Err(TaskFileError::Task { place: place.clone(), problem });
        }
    }
    Ok(())
}

/// The first model of the routes whose price is not known, where a budget is in dollars.
pub(super) fn unpriced<'a>(task: &Task, routes: &'a [(Place, Route)]) -> Option<&'a ModelSpec> {
    let in_dollars = task.limits.micros != Limit::Unlimited;
    routes.iter().map(|(_, route)| &route.model).find(|model| in_dollars && model.price.is_none())
}
