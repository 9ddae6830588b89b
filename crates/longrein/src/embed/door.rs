//! The door for a program that embeds Longrein.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longrein_core::action::Life;
use longrein_core::budget::Raise;
use longrein_core::ids::{ActionId, AttemptId, CheckName, Digest, ModelName, RunId, Seq, ToolName};
use longrein_core::input::{Approve, Covers, Deny, Door, InputBody, Settle, Truth};
use longrein_core::payload::{Content, INLINE_MAX_BYTES, Payload};
use longrein_core::run::{Run as Folded, Stage};
use longrein_core::task::Mode;
use longrein_driver::{DriveError, Observer, Stop, WhenAsked};
use longrein_models::ModelConfig;
use longrein_policy::Containment;
use longrein_ports::{NewEvent, Posted, Spoken};
use longrein_tools::{Host, HostTool, Secrets};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::check::{Check, Registry};
use super::error::Error;
use super::handle::{Run, Work};
use super::lines::{Speech, last_line, lines};
use super::model::LanguageModel;
use super::outcome::{Question, RunOutcome, questions};
use super::task::{Resolved, Task};
use super::tool::{Function, Tool};
use crate::images::Image;
use crate::pins::pin;
use crate::runs::{Own, Runs, RunsError, Surroundings, Target};
use crate::settings::SandboxSettings;

/// The door: a store, and what this program brings to the runs in it. Clones share it.
///
/// It reads no environment variable and installs nothing global: no TLS provider, subscriber, panic hook or signal handler.
/// It needs a tokio runtime with time and I/O enabled, of any flavour.
#[derive(Clone)]
pub struct Longrein {
    inner: Arc<Inner>,
}

struct Inner {
    runs: Runs,
    environment: BTreeMap<String, String>,
    secrets: Secrets,
    asked: WhenAsked,
    /// For runs of an earlier process.
    hands: Hands,
    /// What runs of this process were started with, until they end.
    known: Mutex<BTreeMap<RunId, Hands>>,
    /// Runs that were let go of and are being left.
    leaving: Mutex<BTreeMap<RunId, watch::Receiver<()>>>,
}

/// The models and functions that a run is driven with.
#[derive(Clone, Default)]
struct Hands {
    models: BTreeMap<ModelName, LanguageModel>,
    functions: BTreeMap<ToolName, Function>,
    checks: Registry,
}

impl Hands {
    fn bring(&mut self, tools: impl IntoIterator<Item = Tool>) {
        let functions = tools.into_iter().filter_map(|tool| Some((tool.spec.tool.name, tool.function?)));
        self.functions.extend(functions);
    }
}

/// A run id nobody has: the random end of a version 7 UUID.
fn fresh_id() -> RunId {
    let random = uuid::Uuid::now_v7().simple().to_string();
    RunId::new(random.get(20..).unwrap_or(&random))
}

/// How long a yes is good for before the action starts (`semantics.md` E4).
const GRANT: Duration = Duration::from_secs(24 * 60 * 60);

impl Longrein {
    /// Opens a store, `sqlite:PATH` or `memory:`, with everything else at its default.
    pub fn open(store: &str) -> Result<Self, Error> {
        Self::builder(store).open()
    }

    /// To open a store with more than that.
    pub fn builder(store: &str) -> Builder {
        Builder {
            store: store.to_owned(),
            program: concat!("longrein ", env!("CARGO_PKG_VERSION")).to_owned(),
            environment: BTreeMap::new(),
            secrets: Secrets::new(),
            asked: WhenAsked::Park,
            containment: None,
            hands: Hands::default(),
        }
    }

    /// Everything else that can be done with the store: listing, looking, verifying.
    pub fn runs(&self) -> &Runs {
        &self.inner.runs
    }

    /// Starts a run. When this answers, its start is durable, and it goes on by itself.
    ///
    /// Under the id of a run that is there, the same task goes on or brings its stored result; see [`Task::id`].
    pub async fn start(&self, task: Task) -> Result<Run, Error> {
        let (model, tools) = (task.model.clone(), task.tools.clone());
        let routes: Vec<_> = task.routes.iter().map(|route| route.model.clone()).collect();
        let Resolved { id, mut task, blobs } = task.resolve(&self.inner.hands.checks)?;
        let id = id.unwrap_or_else(fresh_id);
        let mut hands = Hands::default();
        hands.bring(tools);
        hands.models.extend(routes.into_iter().chain(model).map(|model| (model.name().clone(), model)));
        self.has_left(&id).await;
        let is_there = self.inner.runs.listed(&id).await?.is_some();
        if is_there {
            let run = self.inner.runs.fold(&id, |_| {}).await?;
            let parts = run.task.differences(&task);
            if !parts.is_empty() {
                return Err(Error::OtherTask { run: id, parts });
            }
        }
        let before = self.known().insert(id.clone(), hands);
        let started = if is_there {
            self.go_on(&id, Some(task.permission_mode)).await
        } else {
            pin(&mut task, &self.inner.environment);
            let model = task.model.name.clone();
            self.drive(id.clone(), Target::New { id: id.clone(), task: Box::new(task), blobs }, &model, None, None)
                .await
        };
        if started.is_err() {
            // Somebody else may be at it with what was known before.
            let mut known = self.known();
            match before {
                Some(before) => known.insert(id, before),
                None => known.remove(&id),
            };
        }
        started
    }

    /// Goes on with a run, with the tools and the model it was started with: those of its [`Task`] if this process started
    /// it, else those that [`Builder::tools`] and [`Builder::model`] brought. Of a run at rest, the outcome is its stored
    /// one.
    pub async fn resume(&self, id: &RunId) -> Result<Run, Error> {
        self.go_on(id, None).await
    }

    /// `mode`: the one its task names now, which counts if it is not the one the run was started with.
    async fn go_on(&self, id: &RunId, mode: Option<Mode>) -> Result<Run, Error> {
        self.has_left(id).await;
        let run = self.inner.runs.fold(id, |_| {}).await?;
        if matches!(run.stage, Stage::Rest(_)) && self.inner.runs.inbox(id).await?.is_empty() {
            let outcome = RunOutcome::of(&run);
            return Ok(Run {
                id: id.clone(),
                door: self.clone(),
                events: Mutex::new(last_line(&run)),
                work: Work::Over(Box::new(outcome)),
            });
        }
        let model = self.inner.runs.model_of(&run).await?.name;
        let mode = mode.filter(|mode| *mode != run.task.permission_mode);
        self.drive(id.clone(), Target::Existing(id.clone()), &model, Some(run), mode).await
    }

    /// Sends a person's words to a run, driven or not. A run that had ended goes on when it is resumed.
    pub async fn send(&self, id: &RunId, text: impl Into<String>) -> Result<(), Error> {
        self.post(id, InputBody::Message(text.into())).await
    }

    /// The same with images.
    pub async fn show(&self, id: &RunId, text: impl Into<String>, images: Vec<Image>) -> Result<(), Error> {
        was_posted(id, self.inner.runs.show(id, text, images).await?.1)
    }

    /// What a run asks a person now.
    pub async fn questions(&self, id: &RunId) -> Result<Vec<Question>, Error> {
        Ok(questions(&self.inner.runs.fold(id, |_| {}).await?))
    }

    /// Says yes to an action that is asked about, in somebody's name. The yes is for this action alone, and for a day.
    pub async fn approve(&self, id: &RunId, action: ActionId, by: &str) -> Result<(), Error> {
        let asked = self.questions(id).await?.into_iter().find(|question| question.action == action);
        if let Some(text) = asked.and_then(|question| question.to_type) {
            return Err(Error::ToBeTyped { run: id.clone(), action, text });
        }
        let digest = self.question(id, action).await?;
        let expires = self.inner.runs.clock().now().plus(GRANT);
        let approve = Approve {
            action,
            digest,
            by: by.to_owned(),
            door: Door::Library,
            expires,
            covers: Covers::Once,
            reason: None,
            typed: None,
        };
        self.post(id, InputBody::Approve(approve)).await
    }

    /// Says no to an action that is asked about. The model is told the reason.
    pub async fn deny(&self, id: &RunId, action: ActionId, by: &str, reason: &str) -> Result<(), Error> {
        let digest = self.question(id, action).await?;
        let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        let deny = Deny { action, digest, by: by.to_owned(), door: Door::Library, reason };
        self.post(id, InputBody::Deny(deny)).await
    }

    /// Says what really became of an action whose outcome is unknown: `Some(result)` it happened, `None` it did not.
    pub async fn settle(&self, id: &RunId, action: ActionId, happened: Option<Value>, by: &str) -> Result<(), Error> {
        let truth = match happened {
            None => Truth::NotDone,
            Some(result) => {
                let result = Payload::of(&result).expect("a JSON value always serialises");
                if result.as_str().len() > INLINE_MAX_BYTES {
                    return Err(Error::Task(format!("a result of more than {INLINE_MAX_BYTES} bytes; say less")));
                }
                Truth::Done(Content::Inline(result))
            }
        };
        self.post(id, InputBody::Settle(Settle { action, truth, by: by.to_owned() })).await
    }

    /// Raises budgets of a run.
    pub async fn raise(&self, id: &RunId, raise: Raise) -> Result<(), Error> {
        self.post(id, InputBody::Raise(raise)).await
    }

    /// Cancels a run: nothing new starts, what runs is ended, and it rests for good.
    pub async fn cancel(&self, id: &RunId) -> Result<(), Error> {
        self.post(id, InputBody::Cancel).await?;
        self.has_left(id).await;
        // Whoever drives it takes it; a run that nobody drives is brought to its end here.
        if let Some((_, None)) = self.inner.runs.listed(id).await? {
            let (environment, sandbox) = (self.inner.environment.clone(), SandboxSettings::default());
            let tended = self.inner.runs.tend(id, environment, &sandbox).await.map_err(Error::from);
            // Somebody who has it now takes it.
            return match tended {
                // And a child is driven with its root.
                Ok(_) | Err(Error::Held(_) | Error::Runs(RunsError::Drive(DriveError::IsChild { .. }))) => Ok(()),
                Err(error) => Err(error),
            };
        }
        Ok(())
    }

    // ---- behind the door ----

    async fn post(&self, id: &RunId, body: InputBody) -> Result<(), Error> {
        was_posted(id, self.inner.runs.post(id, body).await?.1)
    }

    /// The digest of the question an action waits on.
    async fn question(&self, id: &RunId, action: ActionId) -> Result<Digest, Error> {
        let run = self.inner.runs.fold(id, |_| {}).await?;
        match run.action(action).map(|action| &action.life) {
            Some(Life::Held(question)) => Ok(question.digest.clone()),
            Some(
                Life::Queued
                | Life::Started { .. }
                | Life::Lost(_)
                | Life::Doubtful(..)
                | Life::Unknown(_)
                | Life::Checking(_)
                | Life::Undoing(..)
                | Life::Compensating(..)
                | Life::Ended(_),
            )
            | None => Err(Error::NotAsked { run: id.clone(), action }),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<RunId, Hands>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeMap<RunId, watch::Receiver<()>>> {
        self.inner.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told when a handle was dropped whose run is still being left.
    pub(super) fn is_leaving(&self, id: &RunId, over: watch::Receiver<()>) {
        self.leaving().insert(id.clone(), over);
    }

    /// Waits until a run that was let go of is left.
    async fn has_left(&self, id: &RunId) {
        let left = self.leaving().remove(id);
        if let Some(mut over) = left {
            // Nothing is ever sent: it ends when the drive does.
            while over.changed().await.is_ok() {}
        }
    }

    /// What a run is driven with: what it was started with, and what was brought for all.
    fn hands_of(&self, id: &RunId) -> Hands {
        let mut hands = self.inner.hands.clone();
        if let Some(own) = self.known().get(id).cloned() {
            hands.models.extend(own.models);
            hands.functions.extend(own.functions);
        }
        hands
    }

    async fn drive(
        &self,
        id: RunId,
        target: Target,
        model: &ModelName,
        known: Option<Folded>,
        mode: Option<Mode>,
    ) -> Result<Run, Error> {
        let hands = self.hands_of(&id);
        let (config, own_model) = match hands.models.get(model) {
            Some(model) => model.connect(),
            None => (ModelConfig::default(), None),
        };
        let mut others: BTreeMap<ModelName, Arc<dyn longrein_ports::Model>> = BTreeMap::new();
        let mut reached: BTreeMap<ModelName, ModelConfig> = BTreeMap::new();
        for (name, known) in hands.models.iter().filter(|(name, _)| *name != model) {
            let (config, own) = known.connect();
            others.extend(own.map(|own| (name.clone(), own)));
            reached.insert(name.clone(), config);
        }
        let notice = CancellationToken::new();
        let functions = hands.functions.into_iter().map(|(name, function)| {
            let function: Arc<dyn HostTool> = Arc::new(function);
            (name, function)
        });
        let own = Own {
            model: own_model,
            others,
            host: Host::new(functions.collect(), notice.clone()),
            secrets: self.inner.secrets.clone(),
            checks: hands.checks,
        };
        let before = known.as_ref().map_or(Seq(0), |run| run.head);
        let (head, mut seen) = watch::channel(before);
        let spoken = Arc::new(Speech::default());
        let stop = Stop::new();
        let around = Surroundings {
            model: config,
            summariser: Box::new(move |name| Ok(reached.get(name).cloned().unwrap_or_default())),
            environment: self.inner.environment.clone(),
            asked: self.inner.asked,
            observer: Arc::new(Watcher { run: id.clone(), head, spoken: Arc::clone(&spoken), notice: notice.clone() }),
            stop: stop.clone(),
            policy: None,
            mode,
            sandbox: SandboxSettings::default(),
            hooks: None,
            faults: None,
        };
        let prepared = self.inner.runs.prepare(target, around, own).await?;
        let (alive, over) = watch::channel(());
        let (door, told, run) = (self.clone(), stop.clone(), id.clone());
        let task = tokio::spawn(async move {
            let work = prepared.drive();
            let warn = async {
                told.asked().await;
                notice.cancel();
                std::future::pending::<()>().await;
            };
            let driven = tokio::select! {
                driven = work => driven,
                () = warn => unreachable!("it never ends"),
            };
            drop(alive);
            door.leaving().remove(&run);
            let driven = driven?;
            if matches!(driven.run.stage, Stage::Rest(_)) {
                door.known().remove(&run);
            }
            Ok(RunOutcome::of(&driven.run))
        });
        let events = lines(self.inner.runs.clone(), id.clone(), known, seen.clone(), spoken);
        let mut run =
            Run { id, door: self.clone(), events: Mutex::new(events), work: Work::Driven { task, stop, over } };
        // Started means durable. Without a batch it is over already: by an error, or because there was nothing to do.
        if seen.changed().await.is_err() && *seen.borrow() == before {
            run.outcome().await?;
        }
        Ok(run)
    }
}

impl fmt::Debug for Longrein {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Longrein").finish_non_exhaustive()
    }
}

/// Opens a store with more than the defaults.
pub struct Builder {
    store: String,
    program: String,
    environment: BTreeMap<String, String>,
    secrets: Secrets,
    asked: WhenAsked,
    containment: Option<Containment>,
    hands: Hands,
}

impl Builder {
    /// What the journal calls this program; "longrein" and its version if not given.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        name.clone_into(&mut self.program);
        self
    }

    /// The environment that commands get PATH, HOME and LANG from, and what their tools name beside it. Empty if not given;
    /// `std::env::vars()` is this process's own.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// A value that is kept out of everything tools return, by its name.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.know(name, value);
        self
    }

    /// What becomes of a run that asks a person: it is parked (if not said), stays with this process until it is answered,
    /// or is denied.
    #[must_use]
    pub fn when_asked(mut self, asked: WhenAsked) -> Self {
        self.asked = asked;
        self
    }

    /// How far the surroundings hold whatever a command does. Say only what you have seen to yourself: nothing of ours is put
    /// around commands then. If not said, they run in our own sandbox, as far as this machine can (`docs/sandbox.md`).
    #[must_use]
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = Some(containment);
        self
    }

    /// Functions for runs that an earlier process started; a run of this one has its task's own.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.hands.bring(tools);
        self
    }

    /// A check in code, under the name by which tasks call it: [`Task::checked_by`]. Runs of earlier processes go on with it
    /// too, where it has the version they were started with.
    #[must_use]
    pub fn check(mut self, name: &str, check: impl Check) -> Self {
        self.hands.checks.insert(CheckName::new(name), Arc::new(check));
        self
    }

    /// A model for runs that an earlier process started, or how its provider is reached.
    #[must_use]
    pub fn model(mut self, model: impl Into<LanguageModel>) -> Self {
        let model = model.into();
        self.hands.models.insert(model.name().clone(), model);
        self
    }

    /// Opens the store.
    pub fn open(self) -> Result<Longrein, Error> {
        let Self { store, program, environment, secrets, asked, containment, hands } = self;
        let runs = Runs::open(&store, &program)?;
        let runs = match containment {
            Some(containment) => runs.fenced(containment),
            None => runs,
        };
        let runs = runs.knowing(secrets.clone(), environment.clone());
        let (known, leaving) = Default::default();
        Ok(Longrein { inner: Arc::new(Inner { runs, environment, secrets, asked, hands, known, leaving }) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Tells readers how far the journal is, and tools when nobody waits for them any more.
struct Watcher {
    run: RunId,
    head: watch::Sender<Seq>,
    spoken: Arc<Speech>,
    notice: CancellationToken,
}

impl Observer for Watcher {
    fn committed(&self, run: &Folded, events: &[(Seq, NewEvent)]) {
        if run.winding.is_some() {
            self.notice.cancel();
        }
        if let Some((seq, _)) = events.last() {
            self.head.send_replace(*seq);
        }
    }

    fn heard(&self, run: &RunId, attempt: AttemptId, spoken: Spoken<'_>) {
        if *run == self.run {
            self.spoken.add(attempt, spoken);
        }
    }
}

fn was_posted(id: &RunId, posted: Posted) -> Result<(), Error> {
    match posted {
        Posted::Accepted | Posted::Duplicate => Ok(()),
        Posted::Closed => Err(Error::Closed(id.clone())),
        Posted::Full => Err(Error::Full(id.clone())),
    }
}
