//! Task files for children: read with the program that names them, resolved with the run's options, fitted to its task.
//!
//! What cannot be a child's own is refused here, with its place, and not when the child is asked for: another principal,
//! another workspace, servers, writing below a task that does not write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use longrein_core::budget::{BudgetKind, Limit, Limits};
use longrein_core::children::may_write;
use longrein_core::context::settings::ContextSpec;
use longrein_core::ids::{Digest, ModelName};
use longrein_core::payload::{Payload, place};
use longrein_core::program::{Child, PartTask, Phases, Program as Loop, task_of};
use longrein_core::task::{CheckBy, ModelSpec, PolicyRules, Snapshots, Task, ToolBody, ToolSpec};
use longrein_core::time::Timestamp;

use super::error::{Place, TaskFileError};
use super::{
    ContextSettings, Draft, FILE_MAX_BYTES, FILES_FOLDER, Options, checks, final_context, final_limits, hooks, mode,
    policy, protect, read, route, routes, schema, spec_of, utf8,
};

/// A task file for children, as it was read.
#[derive(Debug)]
pub(super) struct Part {
    /// Where the program names it.
    named: Place,
    file: PathBuf,
    folder: PathBuf,
    draft: Draft,
}

/// A part as it is put into a program.
pub(super) struct Resolved {
    pub(super) task: PartTask,
    /// The model that it names.
    pub(super) model: Option<ModelSpec>,
    /// Inputs too large for an event.
    pub(super) blobs: Vec<(Digest, Payload)>,
}

impl Part {
    /// The file of this name, relative to that of the program.
    pub(super) fn read(name: &str, base: &Path, named: Place) -> Result<Self, TaskFileError> {
        schema::read_text(&named, &base.join(name), FILE_MAX_BYTES)?;
        let options = Options { here: base.to_owned(), ..Options::default() };
        let draft = read(Path::new(name), &options)?;
        let folder = draft.folder.clone().unwrap_or_else(|| base.to_owned());
        let part = Self { named, file: PathBuf::from(name), folder, draft };
        if part.draft.principal.is_some() {
            return Err(part.wrong("a child acts for the principal of its parent; leave `principal` out"));
        }
        if !part.draft.servers.is_empty() {
            return Err(part.wrong("a child has the MCP servers of its parent; name them in the task that starts it"));
        }
        Ok(part)
    }

    fn wrong(&self, problem: impl Into<String>) -> TaskFileError {
        TaskFileError::Task { place: Place::File(self.file.clone()), problem: problem.into() }
    }

    /// The program it names, what paths in that are relative to, and where. None: the plain loop.
    pub(super) fn program(&self) -> Option<(&str, &Path, &Place)> {
        let (place, name) = self.draft.program.as_ref()?;
        (name != Loop::React.name()).then_some((name.as_str(), self.folder.as_path(), place))
    }

    /// With its models, limits, checks and inputs. What configuration says for a run is its parent's already.
    pub(super) fn resolve(&self, options: &Options, workspace: &Path) -> Result<Resolved, TaskFileError> {
        let draft = &self.draft;
        // Flags are about the run that a person starts.
        let mut defaults = options.defaults.clone();
        (defaults.hooks, defaults.routes, defaults.policy) = (Vec::new(), Vec::new(), Vec::new());
        let options = Options { here: options.here.clone(), defaults, ..Options::default() };
        let mut sources = BTreeMap::new();
        let named = |place: &Place, name: &str| spec_of(place.clone(), name, &self.folder, FILES_FOLDER, &options);
        let model = draft.model.as_ref().map(|(place, name)| named(place, name)).transpose()?;
        let mut acceptance = checks(draft.acceptance.clone(), &options, &mut sources)?;
        protect::settle(&mut acceptance, &draft.protects, workspace)?;
        for check in &mut acceptance {
            if let Some((_, place, name)) = draft.judges.iter().find(|(of, ..)| *of == check.name)
                && let Some(CheckBy::Judge(judge)) = &mut check.by
            {
                judge.model = Some(Box::new(named(place, name)?));
            }
        }
        let summary = draft.summary.as_ref().map(|(place, name)| named(place, name)).transpose()?.map(Box::new);
        let says_context = draft.context != ContextSettings::default() || summary.is_some();
        let context = final_context(draft.context, &options, &mut sources);
        let found = routes(draft.routes.clone(), &options, &self.folder, &mut sources)?;
        let mut blobs = Vec::new();
        let inputs = draft.inputs.iter().map(|(name, payload)| {
            let (content, blob) = place(payload.clone());
            blobs.extend(blob);
            (name.clone(), content)
        });
        let inputs: BTreeMap<_, _> = inputs.collect();
        let rules = policy(&draft.policy, draft.policy_place.clone(), &options, &draft.tools, &mut sources)?;
        let task = PartTask {
            goal: draft.goal.clone().filter(|goal| !goal.trim().is_empty()),
            instructions: Some(draft.instructions.clone()).filter(|_| draft.given.contains("instructions")),
            constraints: draft.constraints.clone(),
            folder: draft.names_tools.then(|| utf8(&self.folder)).transpose()?,
            limits: bounds(&draft.limits, &options)?,
            inputs: Some(inputs).filter(|inputs| !inputs.is_empty()),
            tools: draft.names_tools.then(|| draft.tools.clone()),
            acceptance,
            answer: draft.answer.clone(),
            policy: Some(rules).filter(|rules| *rules != PolicyRules::default()),
            permission_mode: match &draft.permission_mode {
                Some((place, name)) => {
                    Some(mode(name).map_err(|problem| TaskFileError::Task { place: place.clone(), problem })?)
                }
                None => None,
            },
            hooks: hooks(draft.hooks.clone(), &options, &draft.tools, &mut sources)?,
            context: says_context.then_some(ContextSpec { summary, ..context }),
            routes: Some(found.iter().map(|(_, route)| route.clone()).collect::<Vec<_>>())
                .filter(|routes| !routes.is_empty()),
            snapshots: Some(draft.snapshots).filter(|snapshots| *snapshots != Snapshots::Auto),
        };
        Ok(Resolved { task, model, blobs })
    }

    /// Whether a child with this task can be one of a run with that: `child` is what it comes to, following `program`.
    pub(super) fn fits(&self, parent: &Task, child: &Task, program: Option<&Phases>) -> Result<(), TaskFileError> {
        if let Some((place, written)) = &self.draft.workspace {
            let path = self.folder.join(written);
            let found = path.canonicalize();
            let found = found.map_err(|source| TaskFileError::Unreadable {
                place: place.clone(),
                file: path.clone(),
                source,
            })?;
            if found != Path::new(&parent.workspace) {
                let problem = format!(
                    "a child works in its parent's workspace, {}; leave `workspace` out, or name that",
                    parent.workspace
                );
                return Err(TaskFileError::Task { place: place.clone(), problem });
            }
        }
        if may_write(child) && !may_write(parent) {
            let problem = format!(
                "{} has a tool that writes in the workspace, and the task that starts it has none, so nothing holds the \
                 workspace for it; give that one a tool that writes, or this none",
                self.file.display()
            );
            return Err(TaskFileError::Task { place: self.named.clone(), problem });
        }
        let lies_in = |folder: &str| self.folder.starts_with(folder);
        let is_command = |tool: &ToolSpec| match &tool.body {
            ToolBody::Command(_) => true,
            ToolBody::Builtin(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => !tool.check.is_empty(),
        };
        let is_near = lies_in(&parent.folder) || lies_in(&parent.workspace);
        if !self.draft.names_tools && !is_near && parent.tools.iter().any(is_command) {
            let problem = format!(
                "it names no tools, and those of the task that starts it have commands relative to {}; name its tools, or \
                 put it below that folder",
                parent.folder
            );
            return Err(self.wrong(problem));
        }
        let found: Vec<_> = child.routes.iter().map(|route| (Place::File(self.file.clone()), route.clone())).collect();
        if self.draft.routes.is_empty() { Ok(()) } else { route::check(&found, program) }
    }
}

/// What the file bounds; the rest is unlimited here.
fn bounds(written: &BTreeMap<BudgetKind, Limit>, options: &Options) -> Result<Limits, TaskFileError> {
    let of = |kind: BudgetKind| written.get(&kind).copied().unwrap_or(Limit::Unlimited);
    let resolved = final_limits(written, options, &mut BTreeMap::new())?;
    Ok(Limits {
        turns: of(BudgetKind::Turns),
        model_calls: of(BudgetKind::ModelCalls),
        tool_calls: of(BudgetKind::ToolCalls),
        tokens: of(BudgetKind::Tokens),
        micros: of(BudgetKind::Usd),
        time_ms: of(BudgetKind::Time),
        deadline: resolved.deadline.filter(|deadline| *deadline != Timestamp(u64::MAX)),
    })
}

/// A model without a price that a child would call on a budget in dollars.
pub(crate) fn unpriced(task: &Task, phases: &Phases, in_dollars: bool) -> Option<ModelName> {
    phases.children().find_map(|child| unpriced_below(task, child, in_dollars))
}

fn unpriced_below(parent: &Task, child: &Child, in_dollars: bool) -> Option<ModelName> {
    let found = child.found.as_deref()?;
    let task = task_of(parent, child, None, None);
    let part = found.task.as_deref();
    let in_dollars = in_dollars || part.is_some_and(|part| part.limits.micros != Limit::Unlimited);
    let models = std::iter::once(&task.model).chain(part.into_iter().flat_map(PartTask::models));
    let own = { models }.find(|model| in_dollars && model.price.is_none()).map(|model| model.name.clone());
    own.or_else(|| unpriced(&task, found.program.as_ref()?.phases()?, in_dollars))
}

/// What a part comes to, in words: for people who look at a program.
pub fn in_words(part: &PartTask) -> Vec<String> {
    let mut lines = Vec::new();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.extend(part.goal.as_deref().map(|goal| format!("goal {}", one_line(goal))));
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    if let Some(tools) = &part.tools {
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        lines.push(if names.is_empty() { "no tools".to_owned() } else { format!("tools {}", list(names)) });
    }
    if !part.acceptance.is_empty() {
        lines.push(format!("checks {}", list(part.acceptance.iter().map(|check| check.name.as_str()).collect())));
    }
    lines.extend(part.permission_mode.map(|mode| format!("mode {mode}, or its parent's where that is stricter")));
    lines
}
