//! One simulated installation: a store, a world, people, and as many worker processes as come and go. Everything the real
//! driver meets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longrein_core::budget::Limits;
use longrein_core::children::ChildSpec;
use longrein_core::context::settings::ContextSpec;
use longrein_core::decide::{begin, request_children};
use longrein_core::event::{Event, Wait};
use longrein_core::hook::{HookEvent, HookSpec};
use longrein_core::ids::{ActionId, CheckName, ModelName, RunId, Seq, ToolName};
use longrein_core::input::{Approve, Covers, Deny, Door as Entrance, InputBody, Settle, Truth};
use longrein_core::payload::{Content, Payload};
use longrein_core::program::Program;
use longrein_core::prompt::ToolDef;
use longrein_core::run::Run;
use longrein_core::task::{
    Builtin, CheckBy, CheckSpec, EffectClass, Holds, JudgeSpec, KeyScope, KeySpec, ModelSpec, OnUnknown, Overlap,
    PolicyRules, Task, ToolBody, ToolSpec,
};
use longrein_core::{action::Life, ids::FactName};
use longrein_driver::{
    Begin, ChildTask, DriveError, Driven, Driver, Equip, Equipped, Observer, Options, Ports, Stop, WhenAsked,
};
use longrein_ports::{
    Batch, BatchId, BoxFuture, Cabinet, Checks, Clock, Create, Durability, Gate, Hooks, Journal, Model, NewEvent,
    Origins, Tools, Trees,
};

use crate::chance::Chance;
use crate::files::Files;
use crate::people::{Bench, Brain, Guardian, Judge, Line, Rules};
use crate::process::{Process, Record};
use crate::scribe::{Pen, Scribe};
use crate::store::{Door, Store};
use crate::trees::Grove;
use crate::ushers::{Usher, Ushers};
use crate::world::{Hands, World};

/// Ports may be wrapped on their way to the driver: to inject faults, or to take a protection away.
pub trait Layers: Send + Sync {
    fn journal(&self, _: &Arc<Process>, inner: Arc<dyn Journal>) -> Arc<dyn Journal> {
        inner
    }
    fn model(&self, _: &Arc<Process>, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        inner
    }
    fn tools(&self, _: &Arc<Process>, inner: Arc<dyn Tools>) -> Arc<dyn Tools> {
        inner
    }
    fn gate(&self, _: &Arc<Process>, inner: Arc<dyn Gate>) -> Arc<dyn Gate> {
        inner
    }
    fn checks(&self, _: &Arc<Process>, inner: Arc<dyn Checks>) -> Arc<dyn Checks> {
        inner
    }
    fn hooks(&self, _: &Arc<Process>, inner: Arc<dyn Hooks>) -> Arc<dyn Hooks> {
        inner
    }
    fn cabinet(&self, _: &Arc<Process>, inner: Arc<dyn Cabinet>) -> Arc<dyn Cabinet> {
        inner
    }
    fn clock(&self, _: &Arc<Process>, inner: Arc<dyn Clock>) -> Arc<dyn Clock> {
        inner
    }
    fn origins(&self, _: &Arc<Process>, inner: Arc<dyn Origins>) -> Arc<dyn Origins> {
        inner
    }
    fn trees(&self, _: &Arc<Process>, inner: Arc<dyn Trees>) -> Arc<dyn Trees> {
        inner
    }
    /// A last touch on the task before it is started.
    fn task(&self, _: &mut Task) {}
    /// A last touch on the town before anybody drives.
    fn town(&self, _: &Town) {}
}

/// Nothing in between.
pub struct Plain;
impl Layers for Plain {}

pub struct Town {
    pub record: Arc<Record>,
    pub store: Arc<Store>,
    pub world: Arc<World>,
    pub rules: Arc<Rules>,
    pub bench: Arc<Bench>,
    pub ushers: Arc<Ushers>,
    pub brain: Arc<Brain>,
    /// Who writes summaries, where a task asks for them.
    pub scribe: Arc<Scribe>,
    /// Who gives an opinion of the work, where a task has a check called [`OPINION`].
    pub arbiter: Arc<Scribe>,
    pub layers: Arc<dyn Layers>,
    seed: u64,
    tools: Mutex<Vec<ToolSpec>>,
    processes: Mutex<Vec<Arc<Process>>>,
}

/// What children are driven with here: what their parent is, in the same process.
struct Outfit {
    ports: Ports,
    process: Arc<Process>,
}

impl Equip for Outfit {
    fn equip<'a>(&'a self, child: ChildTask<'a>) -> BoxFuture<'a, Result<Equipped, String>> {
        Box::pin(async move {
            self.process.call(&format!("equip {}", child.id)).await;
            let outfit = Outfit { ports: self.ports.clone(), process: Arc::clone(&self.process) };
            let ports = Ports { children: Some(Arc::new(outfit)), ..self.ports.clone() };
            Ok(Equipped { ports, changed: Vec::new(), mode: None })
        })
    }
}

/// How one drive went.
#[derive(Debug)]
pub enum Drove {
    Died,
    /// In virtual time, it should have come back long ago.
    Hung,
    Back(Result<Box<Driven>, DriveError>),
}

/// No drive takes longer in virtual time: model calls give up within an hour, tools and probes within minutes.
const DRIVE_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// Events between snapshots here: a story has a few hundred.
const SNAPSHOT_EVERY: u64 = 12;
/// The state of a drive is compared with the journal's at its first batches, and then at one in so many.
const COMPARED_AT_FIRST: u32 = 2;
const COMPARED_EVERY: u32 = 25;

/// Sees that a drive knows exactly what the journal adds up to, whatever it began from.
struct Watching {
    store: Arc<Store>,
    batches: AtomicU32,
}

impl Observer for Watching {
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]) {
        let nth = self.batches.fetch_add(1, Ordering::Relaxed);
        if nth >= COMPARED_AT_FIRST && !nth.is_multiple_of(COMPARED_EVERY) {
            return;
        }
        let Some((head, _)) = events.last() else { return };
        let folded = self.store.shadow().runs.get(&run.id).and_then(|shadow| shadow.fold_to(*head));
        // A process that slept may hear of its batch when a loss of power has taken it back.
        if folded.is_some_and(|folded| folded != *run) {
            self.store.record.breach("law_1", format!("{}: at event {head} a drive knows another state", run.id));
        }
    }
}

impl Town {
    /// Must be made inside a runtime with paused time.
    pub fn new(seed: u64, layers: Arc<dyn Layers>) -> Arc<Self> {
        let record = Record::new();
        let store = Store::new(&record, Chance::new(seed, "store"));
        let rules = Arc::new(Rules::default());
        let ushers: Arc<Ushers> = Arc::default();
        let world = World::new(&store, &rules, &ushers);
        let town = Arc::new(Self {
            brain: Brain::new(&store),
            scribe: Scribe::new(&store),
            arbiter: Scribe::new(&store),
            record,
            store,
            world,
            rules,
            bench: Arc::default(),
            ushers,
            layers,
            seed,
            tools: Mutex::default(),
            processes: Mutex::default(),
        });
        town.set_tools(toolbox());
        town.layers.town(&town);
        town
    }

    /// The tools there are from now on; the receivers of those that are idempotent recognise keys.
    pub fn set_tools(&self, tools: Vec<ToolSpec>) {
        for spec in tools.iter().filter(|spec| spec.idempotent.is_some()) {
            self.rules.set_honours_keys(&spec.name);
        }
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    /// A new worker process on a host.
    pub fn process(&self, host: &str) -> Arc<Process> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let jitter = Chance::new(self.seed, &format!("jitter {}", processes.len()));
        let process = Process::new(&self.record, host, jitter);
        processes.push(Arc::clone(&process));
        process
    }

    pub fn ports(&self, process: &Arc<Process>, id: &RunId, specs: &[ToolSpec]) -> Ports {
        let definitions: Vec<_> = specs
            .iter()
            .map(|spec| ToolDef {
                name: spec.name.clone(),
                description: spec.description.clone(),
                parameters: spec.parameters.clone(),
            })
            .collect();
        let door = Door::new(&self.store, process);
        let hands = Hands { world: Arc::clone(&self.world), process: Arc::clone(process), specs: specs.into() };
        let line = Line { brain: Arc::clone(&self.brain), process: Arc::clone(process) };
        let gate = Guardian { rules: Arc::clone(&self.rules), process: Arc::clone(process) };
        let files = Files { world: Arc::clone(&self.world), process: Arc::clone(process) };
        let grove =
            Grove { world: Arc::clone(&self.world), process: Arc::clone(process), folder: format!("/town/{id}") };
        let usher = Usher { ushers: Arc::clone(&self.ushers), process: Arc::clone(process) };
        let judge =
            Judge { bench: Arc::clone(&self.bench), world: Arc::clone(&self.world), process: Arc::clone(process) };
        let arbiter: Arc<dyn longrein_ports::Model> =
            Arc::new(Pen { scribe: Arc::clone(&self.arbiter), process: Arc::clone(process) });
        Ports {
            cabinet: self.layers.cabinet(process, door.clone()),
            archive: door.clone(),
            journal: self.layers.journal(process, door),
            model: self.layers.model(process, Arc::new(line)),
            others: Arc::default(),
            summariser: Some(Arc::new(Pen { scribe: Arc::clone(&self.scribe), process: Arc::clone(process) })),
            judges: BTreeMap::from([(CheckName::new(OPINION), arbiter)]),
            tools: self.layers.tools(process, Arc::new(hands)),
            definitions: definitions.into(),
            gate: self.layers.gate(process, Arc::new(gate)),
            checks: self.layers.checks(process, Arc::new(judge)),
            hooks: self.layers.hooks(process, Arc::new(usher)),
            clock: self.layers.clock(process, Arc::clone(process) as Arc<dyn Clock>),
            origins: self.layers.origins(process, Arc::new(files)),
            children: None,
            trees: Some(self.layers.trees(process, Arc::new(grove))),
        }
    }

    /// The same, for a run and for all below it.
    fn ports_of_tree(&self, process: &Arc<Process>, id: &RunId, specs: &[ToolSpec]) -> Ports {
        let ports = self.ports(process, id, specs);
        let outfit = Outfit { ports: ports.clone(), process: Arc::clone(process) };
        Ports { children: Some(Arc::new(outfit)), ..ports }
    }

    /// Begins a run that asks for children before it does anything else, all in its first batch. None: the process died.
    pub async fn begin_with_children(
        &self,
        process: &Arc<Process>,
        id: &RunId,
        mut task: Task,
        specs: &[ChildSpec],
        at_once: u32,
    ) -> Option<Result<(), String>> {
        self.layers.task(&mut task);
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let journal = self.ports(process, id, &tools).journal;
        let now = self.record.now();
        let lived = process.live(async {
            let claim = journal.claim(id, &process.worker, None, Create::IfAbsent).await.map_err(|e| e.to_string())?;
            if claim.head != Seq(0) {
                return journal.release(&claim).await.map_err(|e| e.to_string());
            }
            let started = begin(id.clone(), task, "sim");
            let mut run = Run::new(&started, now);
            let asked = request_children(&run, specs, at_once, now).map_err(|unfit| unfit.to_string())?;
            for (event, seq) in asked.iter().zip(2..) {
                run.apply(Seq(seq), now, event);
            }
            let events = std::iter::once(Event::RunStarted(Box::new(started))).chain(asked);
            let batch = Batch {
                id: BatchId("asked".to_owned()),
                expected: claim.head,
                events: events.map(|event| NewEvent { at: now, event }).collect(),
                consumed: Vec::new(),
                keys: Vec::new(),
                marks: Vec::new(),
                blobs: Vec::new(),
                durability: Durability::Synced,
                row: longrein_driver::run_row(&run),
            };
            journal.append(&claim, &batch).await.map_err(|e| e.to_string())?;
            journal.release(&claim).await.map_err(|e| e.to_string())
        });
        let lived = lived.await;
        if lived.is_none() {
            self.store.bury(process);
        }
        lived
    }

    /// Drives a run in a process until it comes back or the process dies.
    pub async fn drive(&self, process: &Arc<Process>, id: &RunId, begin: Begin, asked: WhenAsked, stop: Stop) -> Drove {
        let begin = match begin {
            Begin::New { mut task, blobs } => {
                self.layers.task(&mut task);
                Begin::New { task, blobs }
            }
            other @ (Begin::Existing { .. } | Begin::Child { .. }) => other,
        };
        let options =
            Options { worker: process.worker.clone(), binary: "sim".to_owned(), asked, snapshot_every: SNAPSHOT_EVERY };
        let watching = Watching { store: Arc::clone(&self.store), batches: AtomicU32::new(0) };
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let driver = Driver::new(self.ports_of_tree(process, id, &tools), options, Arc::new(watching));
        let lived = process.live(async { tokio::time::timeout(DRIVE_MAX, driver.drive(id, begin, stop)).await }).await;
        let drove = match lived {
            None => {
                self.store.bury(process);
                Drove::Died
            }
            Some(Err(_)) => {
                self.record.breach("law_11", format!("{id} is still driven after six hours"));
                process.die();
                self.store.bury(process);
                Drove::Hung
            }
            Some(Ok(back)) => {
                if let Err(error) = &back {
                    self.judge_error(id, error);
                }
                Drove::Back(back.map(Box::new))
            }
        };
        // Ended tasks are dropped when they are polled once more.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Drove::Back(back) = &drove {
            let left = self.world.children_of(process);
            if left > 0 {
                self.record.breach("law_10", format!("a drive of {id} came back and left {left} live children"));
            }
            let how = match back {
                Ok(driven) => format!("{:?}", std::mem::discriminant(&driven.standing)),
                Err(error) => error.to_string(),
            };
            self.record.note("--", &format!("drive of {id} is back: {how}"));
        }
        drove
    }

    /// Errors a drive may come back with; the others show a broken law.
    fn judge_error(&self, id: &RunId, error: &DriveError) {
        match error {
            DriveError::Claim(longrein_ports::ClaimError::Held(_) | longrein_ports::ClaimError::NoSuchRun(_))
            | DriveError::Claim(longrein_ports::ClaimError::Removed(_))
            | DriveError::Claim(longrein_ports::ClaimError::WorkspaceHeld { .. })
            | DriveError::ClaimLost { .. }
            | DriveError::WorkspaceBusy { .. }
            | DriveError::Unanswered => {}
            // A claim that was never followed by an event.
            DriveError::Fold(longrein_driver::FoldError::Empty(_)) => {}
            // No drive removes a run.
            DriveError::Claim(longrein_ports::ClaimError::Journal(_) | longrein_ports::ClaimError::Unread(_))
            | DriveError::Fold(_)
            | DriveError::Journal(_)
            | DriveError::OtherTask { .. }
            | DriveError::Conflict { .. } => {
                self.record.breach("law_1", format!("a drive of {id} failed: {error}"));
            }
            DriveError::Child { .. } | DriveError::Unequipped { .. } | DriveError::IsChild { .. } => {
                self.record.breach("law_11", format!("a drive of {id} failed: {error}"));
            }
            DriveError::Stuck { .. } => self.record.breach("law_11", format!("a drive of {id} failed: {error}")),
        }
    }

    /// The machines lose power: every process dies, and what was not synced is gone.
    pub fn lose_power(&self) {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for process in processes {
            process.die();
            self.store.bury(&process);
        }
        self.world.lose_power();
        self.store.lose_power();
    }

    /// The models that a run has asked, in order.
    pub fn asked(&self, id: &RunId) -> Vec<String> {
        let shadow = self.store.shadow();
        let events = shadow.runs.get(id).into_iter().flat_map(|run| &run.events);
        events
            .filter_map(|new| match &new.event {
                Event::ModelRequested(requested) => Some(requested.model.to_string()),
                _ => None,
            })
            .collect()
    }

    /// The phases a run has entered, in order, and the end its program led to.
    pub fn way(&self, id: &RunId) -> Vec<String> {
        let shadow = self.store.shadow();
        let events = shadow.runs.get(id).map(|shadow| shadow.events.as_slice()).unwrap_or_default();
        let taken = events.iter().filter_map(|new| match &new.event {
            Event::TransitionTaken(taken) => Some(taken.to.to_string()),
            _ => None,
        });
        taken.collect()
    }

    /// Answers everything a run waits for, the way an honest person does who looks first. Answers how many answers there
    /// were.
    pub async fn answer(&self, id: &RunId, waits: &[Wait], yes: bool, tag: &str) -> usize {
        let mut answered = 0;
        for (id, wait) in Wait::questions(id, waits) {
            let Some(run) = self.store.run(id) else { continue };
            let body = match wait {
                Wait::Child { .. } => None,
                Wait::Approval(action) => self.verdict(&run, *action, yes),
                Wait::Answer(action) if yes => Some(InputBody::Message(format!("the answer to {action}"))),
                Wait::Answer(action) => self.verdict(&run, *action, yes),
                Wait::Unknown(action) => self.settlement(&run, *action),
            };
            let Some(body) = body else { continue };
            let name = match wait {
                Wait::Approval(action) | Wait::Answer(action) | Wait::Unknown(action) => format!("{tag}.{action}"),
                Wait::Child { .. } => continue,
            };
            answered += usize::from(self.store.post(id, &name, body).await.is_some());
        }
        answered
    }

    pub fn verdict(&self, run: &Run, action: ActionId, yes: bool) -> Option<InputBody> {
        let Life::Held(question) = &run.action(action)?.life else { return None };
        let (digest, by, door) = (question.digest.clone(), "ann".to_owned(), Entrance::Cli);
        let expires = self.record.now().plus(Duration::from_secs(24 * 60 * 60));
        Some(if yes {
            InputBody::Approve(Approve {
                action,
                digest,
                by,
                door,
                expires,
                covers: Covers::Once,
                reason: None,
                typed: None,
            })
        } else {
            InputBody::Deny(Deny { action, digest, by, door, reason: Some("not today".to_owned()) })
        })
    }

    pub fn settlement(&self, run: &Run, action: ActionId) -> Option<InputBody> {
        let action = run.action(action)?;
        if !self.world.is_quiet(&run.id, action.id) {
            return None;
        }
        let truth = match self.world.truth(&run.id, action) {
            Some(result) => Truth::Done(Content::Inline(result)),
            None => Truth::NotDone,
        };
        Some(InputBody::Settle(Settle { action: action.id, truth, by: "ann".to_owned() }))
    }
}

// ---- tasks ----

/// The tools of every simulation, one of each kind.
pub fn toolbox() -> Vec<ToolSpec> {
    let day = Some(Duration::from_secs(24 * 60 * 60));
    let key = |scope| Some(KeySpec { args: vec!["order".to_owned()], scope });
    let facts = |name: &str| vec![FactName::new(name)];
    let paths = |path: &str| Some(vec![path.to_owned()]);
    let reconcile = || vec!["ask".to_owned()];
    let checked = || vec!["sound".to_owned()];
    use EffectClass::{External, Read, Workspace};
    vec![
        ToolSpec { reads: paths("docs"), provides: facts("seen"), ..tool("look", Read) },
        ToolSpec { overlap: Overlap::OneAtATime, ..tool("list", Read) },
        ToolSpec { writes: paths("src/a.rs"), reads: paths("src/a.rs"), ..tool("edit", Workspace) },
        ToolSpec { provides: facts("built"), ..tool("build", Workspace) },
        ToolSpec { idempotent: day, ..tool("pay", External) },
        ToolSpec { reconcile: reconcile(), ..tool("ship", External) },
        ToolSpec { reconcile: reconcile(), idempotent: day, ..tool("refund", External) },
        tool("email", External),
        ToolSpec { on_unknown: OnUnknown::Tell, ..tool("page", External) },
        tool("deploy", External),
        ToolSpec { key: key(KeyScope::Store), reconcile: reconcile(), ..tool("book", External) },
        ToolSpec { key: key(KeyScope::Run), idempotent: day, on_unknown: OnUnknown::Tell, ..tool("order", External) },
        ToolSpec { requires: facts("seen"), max_calls: Some(3), ..tool("publish", External) },
        ToolSpec { depends_on: vec![ToolName::new("edit")], ..tool("release", External) },
        ToolSpec { check: checked(), provides: facts("crafted"), ..tool("craft", Workspace) },
        ToolSpec {
            check: checked(),
            compensate: Some(ToolName::new("unreserve")),
            key: key(KeyScope::Store),
            reconcile: reconcile(),
            ..tool("reserve", External)
        },
        ToolSpec { reconcile: reconcile(), idempotent: day, ..tool("unreserve", External) },
        ToolSpec { check: checked(), idempotent: day, ..tool("announce", External) },
        asking("ask"),
        noting("note"),
    ]
}

/// A tool that asks a person.
pub fn asking(name: &str) -> ToolSpec {
    ToolSpec { body: ToolBody::Builtin(Builtin::Ask), holds: Holds::Run, ..tool(name, EffectClass::Read) }
}

/// A tool that keeps notes.
pub fn noting(name: &str) -> ToolSpec {
    ToolSpec { body: ToolBody::Builtin(Builtin::Note), holds: Holds::Run, ..tool(name, EffectClass::Read) }
}

/// A tool with everything at its default.
pub fn tool(name: &str, effect: EffectClass) -> ToolSpec {
    let body = ToolBody::Command(vec![name.to_owned()]);
    ToolSpec {
        description: format!("the {name} tool"),
        timeout: Duration::from_secs(20),
        overlap: Overlap::Parallel,
        ..ToolSpec::new(ToolName::new(name), body, effect)
    }
}

/// A task with all tools and no checks. The name tells runs and their workspaces apart.
pub fn task(name: &str) -> Task {
    Task {
        goal: format!("Do what is needed for {name}."),
        instructions: format!("This is {name}."),
        constraints: Vec::new(),
        program: Program::React,
        model: ModelSpec::plain(ModelName::new("sim/model"), 1000),
        workspace: format!("/town/{name}"),
        folder: format!("/town/{name}"),
        principal: Payload::null(),
        limits: Limits::default(),
        inputs: BTreeMap::new(),
        tools: toolbox(),
        acceptance: Vec::new(),
        answer: None,
        policy: PolicyRules::default(),
        permission_mode: longrein_core::task::Mode::Ask,
        hooks: Vec::new(),
        rules: Vec::new(),
        context: ContextSpec::default(),
        routes: Vec::new(),
        sources: BTreeMap::new(),
        servers: BTreeMap::new(),
        snapshots: longrein_core::task::Snapshots::default(),
        piped_from: None,
        questions_expire_ms: None,
        images: Vec::new(),
        pins: BTreeMap::new(),
    }
}

/// A program as people write it: the name of one that is shipped, or the text of a file.
pub fn program(text: &str) -> Result<longrein::taskfile::program::Program, String> {
    use longrein::taskfile::{Place, program};
    let here = std::path::Path::new(".");
    let found = match text.trim() {
        name if !name.contains(['=', '\n']) => program::find(name, here, &Place::Flag("program".to_owned())),
        text => program::read(std::path::Path::new("story.toml"), text, here),
    };
    found.map_err(|error| error.to_string())
}

/// A hook on these tools; none: on all.
pub fn hook(name: &str, event: HookEvent, tools: &[&str]) -> HookSpec {
    HookSpec {
        event,
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        command: vec![name.to_owned()],
        folder: "/town".to_owned(),
        timeout: Duration::from_secs(10),
        env: Vec::new(),
        source: "the story".to_owned(),
    }
}

/// The check that [`Town::arbiter`] gives its opinion for.
pub const OPINION: &str = "opinion";

/// A check that asks a model for its opinion.
pub fn opinion() -> CheckSpec {
    let by = CheckBy::Judge(JudgeSpec { means: "the work is good".to_owned(), model: None });
    CheckSpec { command: Vec::new(), by: Some(by), ..check(OPINION) }
}

pub fn check(name: &str) -> CheckSpec {
    CheckSpec {
        name: CheckName::new(name),
        command: vec![name.to_owned()],
        timeout: Duration::from_secs(60),
        by: None,
        protect: Vec::new(),
    }
}
