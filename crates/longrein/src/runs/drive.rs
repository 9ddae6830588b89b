//! From a task, or a run that is there, to a drive: every mistake found that can be found before the run is claimed, and
//! everything at hand that it needs.
//!
//! Read `Runs::prepare`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use longrein_core::hook::HookSpec;
use longrein_core::ids::{Digest, ModelName, RunId, Seq};
use longrein_core::mcp::McpReach;
use longrein_core::prompt::ToolDef;
use longrein_core::route;
use longrein_core::run::Run;
use longrein_core::task::{Builtin, Mode, ModeChange, PolicyRules, Task, ToolBody};
use longrein_driver::{
    Begin, Driven, Driver, FaultyChecks, FaultyHooks, FaultyJournal, FaultyModel, FaultyTools, FaultyTrees, Observer,
    Options, Ports, SNAPSHOT_EVERY, Stop, WhenAsked,
};
use longrein_models::ModelConfig;
use longrein_policy::Fence;
use longrein_ports::{
    Archive, Cabinet, Checks, Faults, Gate, GateCall, Hooks, Journal, Model, NewEvent, Origins, Ruled, Tools, Trees,
};
use longrein_rules::Rulebook;
use longrein_sandbox::Tier;
use longrein_tools::{Host, Sandbox, Secrets, Toolbox, Walls, Workspace};
use tokio::task::JoinSet;

use super::models::{Beside, Connected, Missing, Others, Reach, judges_of, nobody, others_of, summariser_of};
use super::{Runs, RunsError};
use crate::checks::{Judges, helpers_of, path_inside};
use crate::children::{Models, OfOne, Outfit, Parts};
use crate::embed::check::{Registry, are_here};
use crate::gate;
use crate::pins::{self, Commands};
use crate::servers;
use crate::settings::{SandboxMode, SandboxSettings};
use crate::unsaid;

/// What a drive needs beside the store.
pub struct Surroundings {
    /// How to reach the model.
    pub model: ModelConfig,
    /// How to reach the model that writes summaries, if the task names one.
    pub summariser: Reach,
    /// The operator's environment: what tools may be given of it is theirs to name.
    pub environment: BTreeMap<String, String>,
    /// What becomes of a question to a person.
    pub asked: WhenAsked,
    /// Told of every committed batch.
    pub observer: Arc<dyn Observer>,
    /// Asks the drive to stop.
    pub stop: Stop,
    /// Rules given for a run that was started with others: they can only tighten (`semantics.md` B5).
    pub policy: Option<PolicyRules>,
    /// The permission mode that a run which is there goes on in. None: the one it has.
    pub mode: Option<Mode>,
    /// How commands are to be confined.
    pub sandbox: SandboxSettings,
    /// Hooks given for a run that was started with others: it keeps its own, and it is said that these differ.
    pub hooks: Option<Vec<HookSpec>>,
    /// Told of crash points; None in normal use.
    pub faults: Option<Arc<dyn Faults>>,
}

/// What to drive.
pub enum Target {
    /// A new run under this id.
    New {
        /// Nobody else's.
        id: RunId,
        /// With its pins filled in; see [`pin`].
        task: Box<Task>,
        /// Captured inputs that are too large for an event, and images.
        blobs: Vec<(Digest, Bytes)>,
    },
    /// A run that is there.
    Existing(RunId),
}

/// What the embedding program itself brings to a drive.
#[derive(Default)]
pub(crate) struct Own {
    /// Instead of the one that the task's model name means.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// The same for models that routes name.
    pub(crate) others: BTreeMap<ModelName, Arc<dyn Model>>,
    pub(crate) host: Host,
    pub(crate) secrets: Secrets,
    /// Checks in code.
    pub(crate) checks: Registry,
}

/// Where a run's commands run, and what is done to them.
pub(crate) struct Place<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) sandbox: &'a SandboxSettings,
    /// The mode it works in from now on.
    pub(crate) mode: Mode,
    pub(crate) faults: Option<Arc<dyn Faults>>,
}

/// A drive that can begin.
pub(crate) struct Prepared {
    driver: Driver,
    id: RunId,
    begin: Begin,
    stop: Stop,
}

impl Prepared {
    pub(crate) async fn drive(self) -> Result<Driven, RunsError> {
        Ok(self.driver.drive(&self.id, self.begin, self.stop).await?)
    }
}

impl Runs {
    /// Drives a run until it rests, waits or is stopped.
    pub async fn drive(&self, target: Target, around: Surroundings) -> Result<Driven, RunsError> {
        let prepared = self.prepare(target, around, Own::default()).await?;
        // As a task: each time something wakes the future that a runtime blocks on, that goes through the kernel, even from
        // the very thread. Dropping the set ends what is in it.
        let mut work = JoinSet::new();
        work.spawn(prepared.drive());
        match work.join_next().await.expect("one was spawned just now") {
            Ok(driven) => driven,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Finds every mistake that can be found before a run is claimed.
    pub(crate) async fn prepare(
        &self,
        target: Target,
        around: Surroundings,
        mut own: Own,
    ) -> Result<Prepared, RunsError> {
        let is_new = matches!(target, Target::New { .. });
        let (id, mut begin, mut task, works_in, main) = match target {
            Target::New { id, task, blobs } => {
                let of_ports = task.clone();
                let works_in = of_ports.permission_mode;
                (id, Begin::New { task, blobs }, *of_ports, works_in, None)
            }
            Target::Existing(id) => {
                let run = self.fold(&id, |_| {}).await?;
                let mut changed = pins::changed(&run.task);
                if around.policy.as_ref().is_some_and(|policy| *policy != run.task.policy) {
                    changed.push("policy".to_owned());
                }
                let mode = around.mode.filter(|mode| *mode != run.mode);
                if let Some(to) = mode.filter(|to| run.mode.change(*to) == ModeChange::Refused) {
                    return Err(RunsError::Mode { run: id, from: run.mode, to });
                }
                // More of them would not have been heard on what was done, and fewer would be looser: a run keeps its own.
                if around.hooks.as_ref().is_some_and(|hooks| *hooks != run.task.hooks) {
                    changed.push("hooks".to_owned());
                }
                let task = Task { model: self.model_of(&run).await?, ..run.task.as_ref().clone() };
                let main = route::main(&run).clone();
                (id, Begin::Existing { changed, mode }, task, mode.unwrap_or(run.mode), Some(main))
            }
        };
        let Surroundings {
            model,
            summariser,
            environment,
            asked,
            observer,
            stop,
            policy,
            hooks: _,
            mode: around_mode,
            sandbox,
            faults,
        } = around;
        can_be_confined(&sandbox, &task, asked)?;
        // All runs of this process that use one model with one key hear what its server says to any of them.
        let lanes = self.lanes.clone();
        let model = ModelConfig { lanes: Some(lanes.clone()), ..model };
        let summariser: Reach =
            Box::new(move |name| summariser(name).map(|config| ModelConfig { lanes: Some(lanes.clone()), ..config }));
        let writer = match summariser_of(&task, &summariser) {
            Ok(writer) => writer,
            // It is optional, and the task of a run cannot be mended any more.
            Err(_) if !is_new => None,
            Err(why) => return Err(RunsError::Task(format!("its summary model cannot be used: {why}"))),
        };
        let others = others_of(&task, main.as_ref(), &summariser, &own.others, Missing::of(is_new))?;
        let judges = judges_of(&task, &summariser).map_err(RunsError::Task)?;
        let beside = Beside { others, summariser: writer, judges };
        let place = Place { environment: &environment, sandbox: &sandbox, mode: works_in, faults: faults.clone() };
        // before anything runs there, and before anybody is told that the run goes on
        self.walls(&task, &place)
            .sweep(std::path::Path::new(&task.workspace))
            .iter()
            .for_each(|line| observer.noticed(line));
        let attached = {
            let tools = if is_new { servers::Tools::ToBeFound } else { servers::Tools::Pinned };
            let sandbox = self.walls(&task, &place);
            let mark = format!("{id}@{}", self.identity);
            // what a server says of itself is kept and sent
            let of_beside = beside.summariser.iter().chain(beside.judges.values());
            let of_beside = of_beside.filter_map(|other| other.config.api_key.as_ref());
            for key in model.api_key.iter().chain(of_beside).chain(&beside.others.keys) {
                own.secrets.know("model-api-key", key.reveal());
            }
            let told = Arc::clone(&observer);
            let tell: servers::Tell = Arc::new(move |line: &str| told.noticed(line));
            let tell_later = Some(Arc::clone(&tell));
            let around = servers::Around { environment: &environment, sandbox, mark, tell: &*tell, tell_later };
            tokio::select! {
                attached = servers::attach(&mut task, tools, around, &mut own.secrets) => attached,
                () = stop.asked() => {
                    return Err(RunsError::Stopped { run: (!is_new).then_some(id), why: stop.why() });
                }
            }
        };
        attached.notices.iter().for_each(|line| observer.noticed(line));
        if let Some(wrong) = attached.wrong {
            return Err(RunsError::Task(wrong));
        }
        if !attached.misnamed.is_empty() {
            return Err(RunsError::Task(attached.misnamed.join("; ")));
        }
        if !attached.missing.is_empty() {
            return Err(RunsError::Server(attached.missing.join("; ")));
        }
        own.host = own.host.and(attached.functions);
        match &mut begin {
            Begin::New { task: of_run, .. } => of_run.tools.clone_from(&task.tools),
            Begin::Existing { changed, .. } => changed.extend(attached.changed),
            Begin::Child { .. } => {}
        }
        let models = Models::Reach {
            of_root: (task.model.name.clone(), model.clone()),
            other: Arc::new(summariser),
            own: own.model.clone(),
            own_others: own.others.clone(),
            host: own.host.another(),
            secrets: own.secrets.clone(),
            checks: own.checks.clone(),
        };
        // Before anything is made of it: what goes on from the journal has no other.
        if let Begin::New { task: of_run, .. } = &mut begin {
            let mut secrets = own.secrets.clone();
            unsaid::know_those_of(&task, &environment, &mut secrets);
            unsaid::of_task(of_run, &secrets).map_err(RunsError::Task)?;
            task.clone_from(of_run);
        }
        let mut ports = self.ports(&task, &model, beside, &place, own)?;
        if let Some(policy) = &policy {
            ports.gate = Arc::new(Strictest(ports.gate, self.gate(&task, policy, &place)?));
        }
        let runs = self.clone();
        let parts = Parts { runs, environment, sandbox, faults, policy, mode: around_mode, models };
        ports.children = Some(Arc::new(Outfit(Arc::new(parts))));
        let observer: Arc<dyn Observer> = Arc::new(OfOne { run: id.clone(), observer });
        let options = self.options(asked);
        Ok(Prepared { driver: Driver::new(ports, options, observer), id, begin, stop })
    }

    /// Takes what waits in a run's inbox and finishes what can be finished without a model: cancels, settlements of runs
    /// at rest.
    /// `sandbox`: what is around the commands that find out what became of a lost action.
    pub async fn tend(
        &self,
        id: &RunId,
        environment: BTreeMap<String, String>,
        sandbox: &SandboxSettings,
    ) -> Result<Driven, RunsError> {
        let run = self.fold(id, |_| {}).await?;
        self.tend_until(&run, environment, sandbox, Stop::new()).await
    }

    pub(super) async fn tend_until(
        &self,
        run: &Run,
        environment: BTreeMap<String, String>,
        sandbox: &SandboxSettings,
        stop: Stop,
    ) -> Result<Driven, RunsError> {
        let begin = Begin::Existing { changed: Vec::new(), mode: None };
        let options = self.options(WhenAsked::Park);
        let place = Place { environment: &environment, sandbox, mode: run.mode, faults: None };
        let mut ports = self.ports_around(&run.task, nobody(), self.known.secrets.clone(), &place, None)?;
        let parts = Parts {
            runs: self.clone(),
            environment: environment.clone(),
            sandbox: sandbox.clone(),
            faults: None,
            policy: None,
            mode: None,
            models: Models::Nobody,
        };
        ports.children = Some(Arc::new(Outfit(Arc::new(parts))));
        Ok(Driver::new(ports, options, Arc::new(Nobody)).drive(&run.id, begin, stop).await?)
    }

    /// What is around the commands of this task, found out by trying. None: it has no commands.
    pub fn tier(&self, task: &Task, sandbox: &SandboxSettings) -> Option<Tier> {
        let runs_something = !task.acceptance.is_empty()
            || !task.hooks.is_empty()
            || task.tools.iter().any(|tool| match &tool.body {
                ToolBody::Builtin(builtin) => *builtin == Builtin::Shell,
                ToolBody::Command(_) => true,
                ToolBody::Host(_) | ToolBody::Mcp(_) => false,
            })
            || task.servers.values().any(|server| matches!(server.reach, McpReach::Stdio { .. }));
        runs_something.then(|| match (self.held, sandbox.mode) {
            (Some(_), _) | (None, SandboxMode::External) => Tier::External,
            (None, SandboxMode::Best | SandboxMode::Required) => longrein_sandbox::probe_blocking().tier(),
        })
    }

    fn options(&self, asked: WhenAsked) -> Options {
        Options { worker: self.worker.clone(), binary: self.binary.clone(), asked, snapshot_every: SNAPSHOT_EVERY }
    }

    pub(crate) fn gate(&self, task: &Task, rules: &PolicyRules, place: &Place<'_>) -> Result<Arc<dyn Gate>, RunsError> {
        let ledger: Arc<dyn longrein_policy::Ledger> = self.ledger.clone();
        let fence: Arc<dyn Fence> = match self.held {
            Some(containment) => Arc::new(containment),
            None => Arc::new(gate::Walls(place.sandbox.mode)),
        };
        let policy = gate::policy(task, rules, &self.store, place.environment, gate::Known { ledger, fence });
        Ok(Arc::new(gate::Whole(policy.map_err(|error| RunsError::Task(error.to_string()))?)))
    }

    pub(crate) fn ports(
        &self,
        task: &Task,
        model: &ModelConfig,
        beside: Beside,
        place: &Place<'_>,
        own: Own,
    ) -> Result<Ports, RunsError> {
        let Own { model: own_model, others: _, host, mut secrets, checks } = own;
        are_here(task, &checks).map_err(RunsError::Task)?;
        let Beside { others: Others { models: others, keys }, summariser, judges } = beside;
        let of_beside = summariser.iter().chain(judges.values()).filter_map(|other| other.config.api_key.as_ref());
        for key in model.api_key.iter().chain(of_beside).chain(&keys) {
            secrets.know("model-api-key", key.reveal());
        }
        let summariser = summariser.map(|summariser| summariser.model);
        let mut judges: BTreeMap<_, _> = judges.into_iter().map(|(check, judge)| (check, judge.model)).collect();
        for check in task.every_check().filter(|check| longrein_core::judge::spec(check).is_some()) {
            if !judges.contains_key(&check.name) {
                let judge = match &own_model {
                    Some(model) => Arc::clone(model),
                    None => longrein_models::connect_judge(&task.model, model)?,
                };
                judges.insert(check.name.clone(), judge);
            }
        }
        let model = match own_model {
            Some(model) => model,
            None => longrein_models::connect(&task.model, model)?,
        };
        self.ports_around(task, Connected { model, others, summariser, judges }, secrets, place, Some((host, checks)))
    }

    /// What is put around the commands of a run.
    fn walls(&self, task: &Task, place: &Place<'_>) -> Sandbox {
        let SandboxSettings { mode, read, write } = place.sandbox.clone();
        let walls = match (self.held, mode) {
            (Some(_), _) | (None, SandboxMode::External) => Walls::None,
            (None, SandboxMode::Best | SandboxMode::Required) => Walls::Strongest,
        };
        let workspace = match place.mode {
            Mode::Plan | Mode::Shadow => Workspace::ReadOnly,
            Mode::Ask | Mode::AcceptEdits | Mode::Auto => Workspace::Writable,
        };
        let sandbox = Sandbox::new(walls, workspace, gate::own_files(&self.store, place.environment));
        let sandbox = sandbox.granting(read, write).with_caches(gate::caches(place.environment));
        let sandbox = sandbox.obeying(gate::obeyed(&task.workspace, place.environment));
        match gate::notes(&self.store) {
            Some(notes) => sandbox.noting(notes),
            None => sandbox,
        }
    }

    pub(crate) fn ports_around(
        &self,
        task: &Task,
        Connected { model, others, summariser, judges }: Connected,
        secrets: Secrets,
        place: &Place<'_>,
        host: Option<(Host, Registry)>,
    ) -> Result<Ports, RunsError> {
        let wrong = |error: &dyn std::fmt::Display| RunsError::Task(error.to_string());
        let toolbox = Toolbox::new(task, place.environment, secrets).map_err(|error| wrong(&error))?;
        let commands = Commands::of(task);
        let toolbox = toolbox.minding(task, &|role, command, folder| commands.run_by(role, command, folder));
        let toolbox = toolbox.with_sandbox(self.walls(task, place));
        let (toolbox, own) = match host {
            Some((host, checks)) => (toolbox.with_host(host).map_err(|error| wrong(&error))?, checks),
            // Nothing is called: what a function would do, it need not be here for.
            None => (toolbox, Registry::new()),
        };
        let toolbox = Arc::new(toolbox.in_store(self.identity.clone()).with_archive(self.journal.clone()));
        let rules = Rulebook::of(task).map_err(|error| wrong(&error))?;
        let gate = self.gate(task, &task.policy, place)?;
        let definitions = offered(task, toolbox.definitions());
        let path = path_inside(task, place.environment);
        let checks: Arc<dyn Checks> =
            Arc::new(Judges { rules, toolbox: Arc::clone(&toolbox), own, helpers: helpers_of(task, &commands, &path) });
        let journal: Arc<dyn Journal> = self.journal.clone();
        let cabinet: Arc<dyn Cabinet> = self.journal.clone();
        let archive: Arc<dyn Archive> = self.journal.clone();
        let hooks: Arc<dyn Hooks> = toolbox.clone();
        let tools: Arc<dyn Tools> = toolbox;
        let clock = Arc::clone(&self.clock);
        let origins: Arc<dyn Origins> = self.ledger.clone();
        let trees = self.trees_of(task, &path);
        let Some(faults) = place.faults.clone() else {
            return Ok(Ports {
                journal,
                cabinet,
                archive,
                model,
                others: Arc::new(others),
                summariser,
                judges,
                tools,
                definitions,
                gate,
                checks,
                clock,
                origins,
                hooks,
                children: None,
                trees,
            });
        };
        let faulty = |inner| Arc::new(FaultyModel { inner, faults: Arc::clone(&faults) }) as Arc<dyn Model>;
        Ok(Ports {
            journal: Arc::new(FaultyJournal { inner: journal, faults: Arc::clone(&faults) }),
            model: Arc::new(FaultyModel { inner: model, faults: Arc::clone(&faults) }),
            others: Arc::new(others.into_iter().map(|(name, inner)| (name, faulty(inner))).collect()),
            // Its call has points of its own around what is journaled of it; the model's are the run's.
            summariser,
            judges,
            tools: Arc::new(FaultyTools { inner: tools, faults: Arc::clone(&faults) }),
            checks: Arc::new(FaultyChecks { inner: checks, faults: Arc::clone(&faults) }),
            trees: trees.map(|inner| Arc::new(FaultyTrees { inner, faults: Arc::clone(&faults) }) as Arc<dyn Trees>),
            hooks: Arc::new(FaultyHooks { inner: hooks, faults }),
            cabinet,
            archive,
            definitions,
            gate,
            clock,
            origins,
            children: None,
        })
    }
}

/// What the model is offered: all but what only the task's program calls.
pub(crate) fn offered(task: &Task, definitions: Vec<ToolDef>) -> Arc<[ToolDef]> {
    let own = task.program.phases().map(|program| program.own_tools.as_slice()).unwrap_or_default();
    definitions.into_iter().filter(|tool| !own.contains(&tool.name)).collect()
}

/// Stops a run that asks for walls that do not hold here (`gate.md` §4): a sandbox that is required; or any, where nobody can
/// be asked before each command of a model's own making.
fn can_be_confined(sandbox: &SandboxSettings, task: &Task, asked: WhenAsked) -> Result<(), RunsError> {
    let has_shell = || task.tools.iter().any(|tool| tool.body == ToolBody::Builtin(Builtin::Shell));
    let refuse = |problem: String| Err(RunsError::Sandbox(problem));
    match sandbox.mode {
        SandboxMode::External => Ok(()),
        SandboxMode::Required => {
            let probed = longrein_sandbox::probe_blocking();
            match probed.tier() {
                Tier::Full | Tier::External => Ok(()),
                Tier::KernelRules | Tier::NetworkOnly | Tier::None => refuse(format!(
                    "the full sandbox is required and does not hold here. {} `longrein doctor` says what was tried",
                    probed.sentence()
                )),
            }
        }
        SandboxMode::Best if asked == WhenAsked::Deny && has_shell() => {
            let probed = longrein_sandbox::probe_blocking();
            match probed.tier() {
                Tier::Full | Tier::External | Tier::KernelRules | Tier::NetworkOnly => Ok(()),
                Tier::None => refuse(probed.sentence()),
            }
        }
        SandboxMode::Best => Ok(()),
    }
}

/// Two gates of which the stricter one counts: deny before ask before allow.
pub(crate) struct Strictest(pub(crate) Arc<dyn Gate>, pub(crate) Arc<dyn Gate>);

impl Gate for Strictest {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        self.0.rule(call).stricter(self.1.rule(call))
    }
}

/// Where nobody watches.
struct Nobody;

impl Observer for Nobody {
    fn committed(&self, _run: &Run, _events: &[(Seq, NewEvent)]) {}
}
