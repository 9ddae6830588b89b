//! Who drives the runs that clients of MCP ask for: a bounded number at once, in this process, until each rests, needs a
//! person, or the server ends.
//!
//! A run that needs a person is left (its place is free for others) and gone on with once somebody has answered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longrein::core::event::{Suspension, Wait};
use longrein::core::ids::{RunId, Seq};
use longrein::core::owed;
use longrein::core::run::{Run, Stage};
use longrein::core::task::{Mode, ModeChange, Task};
use longrein::mcp_server::{Class, Fault, Powers, Start, Watch};
use longrein::ports::NewEvent;
use longrein::taskfile::{self, LimitFlag, Loaded, Options, TaskFileError};
use longrein::{Observer, Stop, Surroundings, Target, WhenAsked};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::report;
use crate::args::DriveArgs;
use crate::context;
use crate::failure::{Failure, Status};
use crate::out::tell;
use crate::run::{Permits, Session, same_task};
use crate::words;

/// How long a new run may take to be in the journal.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
/// How long to wait for a place: a run that has just ended leaves its own in a moment.
const PLACE_WITHIN: Duration = Duration::from_millis(500);
/// How often a run that somebody else drives is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How often one wait goes on with a run that stops again at once, as where its model cannot be reached.
const TRIES: u32 = 2;

/// What the operator allows this server's clients.
pub(super) struct Rules {
    pub(super) powers: Powers,
    /// The freest mode. None: the configuration's, or a task file's own.
    pub(super) mode: Option<Mode>,
    /// Where task files may lie. Empty: anywhere.
    pub(super) tasks: Vec<PathBuf>,
    /// A variable that is nobody's business.
    pub(super) hidden: String,
}

pub(super) struct Desk {
    pub(super) session: Session,
    rules: Rules,
    places: Arc<Semaphore>,
    driven: Mutex<BTreeMap<RunId, Driving>>,
    /// Up to which event a client was told that a run waits for a person: the next wait waits for a change.
    told: Mutex<BTreeMap<RunId, Seq>>,
    /// One start at a time: of two under one id the second finds the first.
    starting: tokio::sync::Mutex<()>,
    is_closing: std::sync::atomic::AtomicBool,
}

#[derive(Clone)]
struct Driving {
    stop: Stop,
    seen: watch::Receiver<Seen>,
}

/// What is known of a run that is driven here.
#[derive(Debug, Clone, Default)]
struct Seen {
    head: u64,
    line: String,
    end: Option<Result<(), Fault>>,
}

/// A run that is on the list of those driven here, however its drive ends.
struct Listed {
    desk: Arc<Desk>,
    id: RunId,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.desk.driven().remove(&self.id);
    }
}

struct Eyes(watch::Sender<Seen>);

impl Observer for Eyes {
    fn committed(&self, run: &Run, events: &[(Seq, NewEvent)]) {
        let line = events.last().map(|(_, new)| words::describe(Some(run), &new.event)).unwrap_or_default();
        self.0.send_modify(|seen| {
            seen.head = run.head.0;
            seen.line = line;
        });
    }
}

pub(super) fn fault(failure: Failure) -> Fault {
    let class = match failure.status {
        Status::Usage => Class::Usage,
        Status::NotFound => Class::NotFound,
        Status::Unavailable | Status::Model | Status::Waiting => Class::Unavailable,
        Status::Configuration => Class::Configuration,
        Status::Internal => Class::Internal,
        Status::Data
        | Status::Done
        | Status::Exhausted
        | Status::Failed
        | Status::ContextExhausted
        | Status::Cancelled
        | Status::Interrupted
        | Status::Terminated => Class::Data,
    };
    let fault = Fault::new(class, words::safe(&failure.problem));
    match failure.way_out {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// What the command line calls by its flags, a client knows by the fields of `run_start`.
fn of_fields(fault: Fault) -> Fault {
    const FIELDS: [(&str, &str); 11] = [
        ("--model PROVIDER/NAME", "the field model"),
        ("--model", "model"),
        ("--task FILE", "task_file"),
        ("--task", "task_file"),
        ("--cd", "workspace"),
        ("--var", "variables"),
        ("--program", "program"),
        ("--max-turns", "max_turns"),
        ("--max-tokens-total", "max_tokens"),
        ("--max-budget-usd", "max_usd"),
        ("--max-time", "max_time"),
    ];
    let told = |text: String| FIELDS.iter().fold(text, |text, (flag, field)| text.replace(flag, field));
    Fault { message: told(fault.message), hint: fault.hint.map(told), ..fault }
}

pub(super) fn of_runs(error: longrein::RunsError) -> Fault {
    fault(error.into())
}

impl Desk {
    pub(super) fn new(session: Session, rules: Rules, most: usize) -> Self {
        Self {
            session,
            rules,
            places: Arc::new(Semaphore::new(most)),
            driven: Mutex::default(),
            told: Mutex::default(),
            starting: tokio::sync::Mutex::new(()),
            is_closing: false.into(),
        }
    }

    fn driven(&self) -> MutexGuard<'_, BTreeMap<RunId, Driving>> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<RunId, Seq>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(super) fn is_driven_here(&self, id: &RunId) -> bool {
        self.driven().contains_key(id)
    }

    pub(super) async fn fold(&self, id: &RunId) -> Result<Run, Fault> {
        self.session.runs.fold(id, |_| {}).await.map_err(of_runs)
    }

    pub(super) async fn started(self: &Arc<Self>, start: Start) -> Result<Value, Fault> {
        let one = self.starting.lock().await;
        let id = start.id.as_deref().map(RunId::parse).transpose();
        let id = id.map_err(|error| Fault::new(Class::Usage, format!("id: {error}")))?;
        if id.as_ref().is_some_and(|id| id.as_str().starts_with('-')) {
            return Err(Fault::new(Class::Usage, "an id that begins with - looks like a flag"));
        }
        let runs = &self.session.runs;
        let asked = match start.on_ask.as_deref() {
            None | Some("wait") => WhenAsked::Park,
            Some("deny") => WhenAsked::Deny,
            Some(_) => return Err(Fault::new(Class::Usage, "on_ask is wait or deny")),
        };
        let known = match &id {
            Some(id) if runs.listed(id).await.map_err(of_runs)?.is_some() => Some(self.fold(id).await?),
            Some(_) | None => None,
        };
        let names_something = start.prompt.is_some() || start.task_file.is_some();
        let id = match known {
            Some(run) => {
                if names_something {
                    same_task(&run, &self.load(&start)?).map_err(fault)?;
                }
                if !self.session.is_over(&run).await.map_err(fault)? {
                    let mode = start.permission_mode.clone();
                    self.go_on(&run, asked, mode).await?;
                }
                run.id
            }
            None if !names_something => {
                let id = id.map(|id| id.to_string()).unwrap_or_default();
                return Err(Fault::new(Class::NotFound, format!("no run {id} in this store")).hint("run_list"));
            }
            None => {
                let Loaded { mut task, blobs } = self.load(&start)?;
                self.session.store.refuse_inside(task.workspace.as_ref()).map_err(fault)?;
                self.set_mode(&mut task, &start)?;
                let permits = self.session.permits_for(&mut task, &DriveArgs::default()).map_err(fault)?;
                longrein::pin(&mut task, &context::environment())
                    .iter()
                    .for_each(|line| tell!("warning: {}", words::safe(line)));
                let id = id.unwrap_or_else(context::fresh_id);
                let model = task.model.name.clone();
                let target = Target::New { id: id.clone(), task: Box::new(task), blobs };
                self.drive(&id, target, &model, permits, asked).await?;
                id
            }
        };
        drop(one);
        let run = self.fold(&id).await?;
        Ok(report::status(self, &run).await)
    }

    /// The task, as if its flags had been given on the command line.
    fn load(&self, start: &Start) -> Result<Loaded, Fault> {
        self.may_name(start)?;
        let limits = [
            (longrein::core::budget::BudgetKind::Turns, start.max_turns.map(|most| most.to_string())),
            (longrein::core::budget::BudgetKind::Tokens, start.max_tokens.map(|most| most.to_string())),
            (longrein::core::budget::BudgetKind::Usd, start.max_usd.map(|most| most.to_string())),
            (longrein::core::budget::BudgetKind::Time, start.max_time.clone()),
        ];
        let options = Options {
            here: context::here().map_err(fault)?,
            prompt: start.prompt.clone(),
            model: start.model.clone(),
            workspace: start.workspace.as_ref().map(PathBuf::from),
            program: start.program.clone(),
            permission_mode: None,
            limits: limits.into_iter().filter_map(|(kind, value)| Some(LimitFlag { kind, value: value? })).collect(),
            checks: Vec::new(),
            images: Vec::new(),
            output_schema: None,
            rules: longrein::core::task::PolicyRules::default(),
            variables: start.variables.clone(),
            defaults: self.session.config.defaults(),
        };
        let loaded = match &start.task_file {
            None => taskfile::plain(&options),
            Some(file) => {
                let telling = self.may_start(Path::new(file))?;
                let loaded = taskfile::load(Path::new(file), &options);
                match telling {
                    Telling::Nothing => return loaded.map_err(|_| untold()),
                    Telling::Mistakes => loaded,
                }
            }
        };
        loaded.map_err(|error| self.mistake(error))
    }

    /// What is wrong with a task, to a client that may not be told of every file: a file that the task names may lie anywhere.
    fn mistake(&self, error: TaskFileError) -> Fault {
        let elsewhere = error.files().into_iter().find(|file| !self.is_served(file));
        match (self.rules.powers, elsewhere) {
            (Powers::Client, Some(_)) => {
                let problem = "a file that this task names cannot be used, and lies outside what this server serves";
                Fault::new(Class::Data, problem).hint(TOLD_ELSEWHERE)
            }
            (Powers::Client, None) | (Powers::Operator, _) => of_fields(fault(error.into())),
        }
    }

    /// Whose client may be a model names no files: what cannot be read as a script, a program or a workspace would be told of
    /// in an error, and so read.
    fn may_name(&self, start: &Start) -> Result<(), Fault> {
        match self.rules.powers {
            Powers::Operator => return Ok(()),
            Powers::Client => {}
        }
        let refuse = |problem: &str| {
            let hint = "name it in a task file; or the operator starts the server with: longrein mcp --operator";
            Err(Fault::new(Class::Configuration, problem).hint(hint))
        };
        let script = start.model.as_deref().and_then(|model| model.strip_prefix("script/"));
        if script.is_some_and(|script| !self.is_served(script)) {
            return refuse("model: this server takes scripts only from the folder it serves and from --tasks");
        }
        if start.workspace.as_deref().is_some_and(|workspace| !self.is_served(workspace)) {
            return refuse("workspace: this server works only in the folder it serves and in --tasks");
        }
        if start.program.as_deref().is_some_and(|program| program.contains('/') || program.contains('.')) {
            return refuse("program: this server takes the programs that ship, by name, and no files");
        }
        Ok(())
    }

    /// Whether a path leads to something in the folder this server was started in, or in one of `--tasks`.
    fn is_served(&self, path: impl AsRef<Path>) -> bool {
        let Ok(here) = context::here().map(|here| here.canonicalize().unwrap_or(here)) else { return false };
        lies_in(&here.join(path), std::iter::once(&here).chain(&self.rules.tasks))
    }

    /// Naming a task file is trusting it: where its client may be a model, the operator says which may be named. What is not
    /// there is not told apart from what may not be named, and of a file that is no task file nothing is told.
    fn may_start(&self, file: &Path) -> Result<Telling, Fault> {
        let here = context::here().map_err(fault)?;
        let here = here.canonicalize().unwrap_or(here);
        let file = here.join(file);
        match (self.rules.tasks.as_slice(), self.rules.powers) {
            ([], Powers::Operator) => return Ok(Telling::Mistakes),
            ([], Powers::Client) if !lies_in(&file, [&here]) => return Ok(Telling::Nothing),
            ([], Powers::Client) => {}
            (tasks, Powers::Client | Powers::Operator) if !lies_in(&file, tasks) => return Err(untold()),
            (_, Powers::Client | Powers::Operator) => {}
        }
        match self.rules.powers {
            Powers::Client if !taskfile::may_be_task(&file) => {
                let problem = "task_file: this is no task file: it is no TOML, or has no goal";
                Err(Fault::new(Class::Data, problem).hint(TOLD_ELSEWHERE))
            }
            Powers::Client | Powers::Operator => Ok(Telling::Mistakes),
        }
    }

    /// The mode it starts in: no client but an operator's has a run do more than the operator has said.
    fn set_mode(&self, task: &mut Task, start: &Start) -> Result<(), Fault> {
        if let Some(most) = self.rules.mode {
            let from_file = start.task_file.is_some() && task.sources.contains_key("permission_mode");
            task.permission_mode = if from_file { task.permission_mode.tightened(most) } else { most };
        }
        let Some(name) = &start.permission_mode else { return Ok(()) };
        let to = taskfile::mode(name).map_err(|problem| Fault::new(Class::Usage, problem))?;
        self.may_change(task.permission_mode, to)?;
        task.permission_mode = to;
        task.sources.insert("permission_mode".to_owned(), "run_start".to_owned());
        Ok(())
    }

    fn may_change(&self, from: Mode, to: Mode) -> Result<(), Fault> {
        let is_looser = match from.change(to) {
            ModeChange::None | ModeChange::Tightens => false,
            ModeChange::Loosens => true,
            // Of a shadow run nothing happens.
            ModeChange::Refused => to != Mode::Shadow,
        };
        match self.rules.powers {
            Powers::Client if is_looser => {
                let problem = format!("permission mode {to} is looser than {from}, the mode that was set for this");
                let hint = format!("the operator may start the server with: longrein mcp --permission-mode {to}");
                Err(Fault::new(Class::Configuration, problem).hint(hint))
            }
            Powers::Client | Powers::Operator => Ok(()),
        }
    }

    /// Goes on with a run that somebody drives already, or that nobody does. `run`: a root.
    pub(super) async fn go_on(
        self: &Arc<Self>,
        run: &Run,
        asked: WhenAsked,
        mode: Option<String>,
    ) -> Result<(), Fault> {
        if self.is_driven_here(&run.id) || report::holder(self, &run.id).await.is_some() {
            return Ok(());
        }
        if let Some(name) = &mode {
            let to = taskfile::mode(name).map_err(|problem| Fault::new(Class::Usage, problem))?;
            self.may_change(run.mode, to)?;
        }
        let args = DriveArgs { permission_mode: mode, ..DriveArgs::default() };
        let permits = self.session.permits_of(run, &args).map_err(fault)?;
        let model = self.session.runs.model_of(run).await.map_err(of_runs)?.name;
        self.drive(&run.id, Target::Existing(run.id.clone()), &model, permits, asked).await
    }

    /// Begins to drive; returns once the run is in the journal.
    async fn drive(
        self: &Arc<Self>,
        id: &RunId,
        target: Target,
        model: &longrein::core::ids::ModelName,
        permits: Permits,
        asked: WhenAsked,
    ) -> Result<(), Fault> {
        if self.is_closing() {
            return Err(Fault::new(Class::Unavailable, "this server is about to end"));
        }
        let mut environment = context::environment();
        environment.remove(&self.rules.hidden);
        let reached = context::model_config(&self.session.config, model, &environment).map_err(fault)?;
        let place = tokio::time::timeout(PLACE_WITHIN, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let problem = "as many runs are driven as this server drives at the same time";
            return Err(Fault::new(Class::Unavailable, problem).hint("run_wait for one of them, or cancel it"));
        };
        let (eyes, mut seen) = watch::channel(Seen::default());
        let (stop, eyes) = (Stop::new(), Arc::new(Eyes(eyes)));
        {
            let mut driven = self.driven();
            if driven.contains_key(id) {
                return Ok(());
            }
            driven.insert(id.clone(), Driving { stop: stop.clone(), seen: seen.clone() });
        }
        let (config, of_models) = (self.session.config.clone(), environment.clone());
        let around = Surroundings {
            model: reached,
            summariser: Box::new(move |name| {
                context::model_config(&config, name, &of_models).map_err(|failure| failure.problem)
            }),
            environment,
            asked,
            observer: Arc::clone(&eyes) as Arc<dyn Observer>,
            stop,
            policy: permits.policy,
            hooks: permits.hooks,
            mode: permits.mode,
            sandbox: permits.sandbox,
            faults: None,
        };
        let (desk, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            let listed = Listed { desk, id };
            let driven = listed.desk.session.runs.drive(target, around).await;
            drop((listed, place));
            let end = driven.map(|_| ()).map_err(of_runs);
            eyes.0.send_modify(|seen| seen.end = Some(end));
        });
        let begun = seen.wait_for(|seen| seen.head > 0 || seen.end.is_some());
        match tokio::time::timeout(BEGINS_WITHIN, begun).await {
            Ok(Ok(seen)) => match &seen.end {
                Some(Err(fault)) => Err(fault.clone()),
                Some(Ok(())) | None => Ok(()),
            },
            Ok(Err(_)) => Err(Fault::new(Class::Internal, "the run ended before it began")),
            // It is on its way; whoever waits for it learns what becomes of it.
            Err(_) => Ok(()),
        }
    }

    /// Waits until a run rests, waits for a person in a way that was not told yet, or the time is over.
    pub(super) async fn waited(self: &Arc<Self>, id: &RunId, span: Duration, tell: Watch<'_>) -> Result<Run, Fault> {
        let runs = &self.session.runs;
        let root = runs.driven_with(id).await.map_err(of_runs)?;
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let run = self.fold(id).await?;
            let left = span.saturating_sub(began.elapsed());
            if left.is_zero() || self.session.is_over(&run).await.map_err(fault)? {
                return Ok(run);
            }
            let driving = self.driven().get(&root).cloned();
            if let Some(mut driving) = driving {
                watched(&mut driving.seen, left, tell).await?;
                continue;
            }
            if report::holder(self, &root).await.is_some() {
                tell(run.head.0, "another worker drives it");
                tokio::time::sleep(LOOK_EVERY.min(left)).await;
                continue;
            }
            if self.waits_for_a_person(&run).await? {
                let last = self.told().insert(run.id.clone(), run.head);
                if last != Some(run.head) {
                    return Ok(run);
                }
                tokio::time::sleep(LOOK_EVERY.min(left)).await;
                continue;
            }
            if tries >= TRIES || self.is_closing() {
                return Ok(run);
            }
            tries += 1;
            let of_root = self.fold(&root).await?;
            self.go_on(&of_root, WhenAsked::Park, None).await?;
        }
    }

    /// Nothing can move without a person, and none has said anything.
    async fn waits_for_a_person(&self, run: &Run) -> Result<bool, Fault> {
        if matches!(run.stage, Stage::Rest(_)) {
            return Ok(false);
        }
        let waits = owed::waits(run);
        if waits.is_empty() {
            return Ok(false);
        }
        let mut asking: Vec<&RunId> = Wait::questions(&run.id, &waits).into_iter().map(|(run, _)| run).collect();
        asking.push(&run.id);
        asking.dedup();
        for id in asking {
            if !self.session.runs.inbox(id).await.map_err(of_runs)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Suspends everything that is driven here; returns once all of it has come to rest.
    pub(super) async fn closed(&self) {
        self.is_closing.store(true, std::sync::atomic::Ordering::SeqCst);
        let all: Vec<Driving> = self.driven().values().cloned().collect();
        for driving in &all {
            driving.stop.now(Suspension::Terminated);
        }
        for mut driving in all {
            // Its sender is gone once its drive is over.
            let _ = driving.seen.wait_for(|seen| seen.end.is_some()).await;
        }
    }
}

/// Where somebody who may read the files is told what is wrong with them.
const TOLD_ELSEWHERE: &str = "what is wrong with it is told by: longrein tools --task FILE";

/// What is told of a task file that cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    Mistakes,
    /// It lies where the client may not read.
    Nothing,
}

fn untold() -> Fault {
    let problem = "task_file: there is no task file of that name that can be started";
    let hint = "what is wrong is told by longrein tools --task FILE, and here of files in the folder this server was started in \
                and of --tasks DIR; with --tasks no others are taken";
    Fault::new(Class::Configuration, problem).hint(hint)
}

/// Whether something is there, and in one of these folders.
fn lies_in<'a>(path: &Path, folders: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    path.canonicalize().is_ok_and(|real| folders.into_iter().any(|folder| real.starts_with(folder)))
}

/// Until a drive that is watched is over, or the time is; tells each step.
async fn watched(seen: &mut watch::Receiver<Seen>, span: Duration, tell: Watch<'_>) -> Result<(), Fault> {
    let all = async {
        loop {
            let now = seen.borrow_and_update().clone();
            if now.head > 0 {
                tell(now.head, &now.line);
            }
            if let Some(end) = now.end {
                return end;
            }
            if seen.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    match tokio::time::timeout(span, all).await {
        Ok(end) => end,
        Err(_) => Ok(()),
    }
}
