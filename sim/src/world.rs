//! The world outside: children that run, effects that are on the wire and land, receivers that book them. It knows what
//! really happened, whatever anybody was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longrein_core::action::{Action, Attempt, Cleared};
use longrein_core::context::note::Note;
use longrein_core::event::Event;
use longrein_core::ids::{ActionId, Digest, EvidenceId, Fence, RunId, ToolName, TreeId};
use longrein_core::input::Covers;
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::payload::{Content, Payload};
use longrein_core::ruling::Ruling;
use longrein_core::target::Target;
use longrein_core::task::{EffectClass, Task, ToolSpec};
use longrein_core::time::Timestamp;
use longrein_ports::{BoxFuture, Changed, Handed, Probed, Ran, Reaped, Tools, ValidArgs};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::chance::Chance;
use crate::people::Rules;
use crate::process::{Process, Record};
use crate::store::Store;
use crate::ushers::Ushers;

/// How one attempt goes.
#[derive(Debug, Clone)]
pub struct Manner {
    /// When it sends its effect off, if it does.
    pub sends: Option<Duration>,
    /// How long the effect is on the wire.
    pub wire: Duration,
    /// When the child ends; after its own effect has landed where it says done.
    pub ends: Duration,
    pub says: Says,
    /// Bytes of what it returns beside its receipt.
    pub bytes: usize,
    /// What it returns in its receipt's place, or the error it names.
    pub word: Option<Word>,
}

/// What an attempt says in so many words.
#[derive(Debug, Clone)]
pub enum Word {
    Result(String),
    Error { class: String, retry_after_s: Option<u64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Done,
    /// Read, workspace: it failed. External: any exit other than 0.
    Fails,
    /// `{"took_effect": false}`. Only where it sends nothing.
    NotDone,
    /// It never ends by itself.
    Hangs,
}

impl Manner {
    pub fn done() -> Self {
        let ms = Duration::from_millis;
        Self { sends: Some(ms(20)), wire: ms(10), ends: ms(50), says: Says::Done, bytes: 0, word: None }
    }
    /// Returns so much.
    pub fn large(bytes: usize) -> Self {
        Self { bytes, ..Self::done() }
    }
    /// Returns the same each time.
    pub fn says(word: &str) -> Self {
        Self { word: Some(Word::Result(word.to_owned())), ..Self::done() }
    }
    /// Fails, and says with what.
    pub fn error(class: &str, retry_after_s: Option<u64>) -> Self {
        let word = Word::Error { class: class.to_owned(), retry_after_s };
        Self { sends: None, word: Some(word), ..Self::done() }
    }
    /// Sends after a while and takes its time afterwards.
    pub fn slow(sends_ms: u64, ends_ms: u64) -> Self {
        let ms = Duration::from_millis;
        Self { sends: Some(ms(sends_ms)), ends: ms(ends_ms), ..Self::done() }
    }
    pub fn fails(sends: bool) -> Self {
        Self { sends: sends.then(|| Duration::from_millis(20)), says: Says::Fails, ..Self::done() }
    }
    pub fn not_done() -> Self {
        Self { sends: None, says: Says::NotDone, ..Self::done() }
    }
    pub fn hangs(sends: bool) -> Self {
        Self { sends: sends.then(|| Duration::from_millis(20)), says: Says::Hangs, ..Self::done() }
    }

    /// A random one that fits the tool.
    fn draw(spec: &ToolSpec, chance: &mut Chance) -> Self {
        let timeout = longrein_core::time::millis(spec.timeout);
        let sends = chance.millis(1, timeout / 3);
        let wire = chance.millis(1, 1800);
        let ends = sends + wire + chance.millis(1, timeout / 3);
        let (sent, says) = match (spec.effect, chance.below(100)) {
            (EffectClass::Read | EffectClass::Workspace, 0..80) => (true, Says::Done),
            (EffectClass::Read | EffectClass::Workspace, 80..94) => (chance.percent(50), Says::Fails),
            (EffectClass::Read | EffectClass::Workspace, _) => (chance.percent(50), Says::Hangs),
            (EffectClass::External, 0..60) => (true, Says::Done),
            (EffectClass::External, 60..72) => (false, Says::NotDone),
            (EffectClass::External, 72..90) => (chance.percent(50), Says::Fails),
            (EffectClass::External, _) => (chance.percent(50), Says::Hangs),
        };
        Self { sends: sent.then_some(sends), wire, ends, says, bytes: 0, word: None }
    }
}

/// What a receiver has seen of one attempt.
#[derive(Debug, Clone)]
pub struct Landing {
    pub run: RunId,
    pub action: ActionId,
    pub attempt: u32,
    pub tool: ToolName,
    pub args: Payload,
    /// What the receiver recognises repetitions by, where it does.
    pub key: Option<Digest>,
    /// A repetition the receiver recognised: nothing new happened.
    pub again: bool,
}

/// A file as a workspace tool left it.
#[derive(Debug, Clone)]
pub struct Left {
    pub run: RunId,
    pub action: ActionId,
    pub attempt: u32,
    pub folder: String,
    pub path: String,
    pub content: Digest,
    /// Where it wrote that in the workspace.
    pub places: Vec<String>,
    pub at: Timestamp,
}

/// A workspace: path → content.
pub type Tree = BTreeMap<String, String>;

struct Child {
    run: RunId,
    /// Where it writes files, if it does.
    writes_in: Option<String>,
    action: ActionId,
    fence: Fence,
    pid: u32,
    host: String,
    alive: bool,
    task: Option<AbortHandle>,
}

/// How probes answer, in percent of calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Probing {
    pub pending: u64,
    pub fails: u64,
}

#[derive(Default)]
struct Inner {
    landed: Vec<Landing>,
    files: Vec<Left>,
    /// What lies in each workspace: path → content.
    workspaces: BTreeMap<String, Tree>,
    /// Snapshots by name; they outlive every process, and the loss of power.
    trees: BTreeMap<TreeId, Tree>,
    meddled: BTreeSet<(String, String)>,
    /// Somebody else changes a file right after the next snapshot.
    stirring: bool,
    /// No snapshot can be taken.
    treeless: bool,
    /// Effects sent and not landed.
    on_the_wire: Vec<(RunId, ActionId)>,
    children: BTreeMap<u64, Child>,
    /// Manners by tool, one after the other; the last one stays.
    script: BTreeMap<ToolName, Vec<Manner>>,
    started: BTreeMap<ToolName, usize>,
    probes: BTreeMap<ToolName, Vec<ProbeAnswer>>,
    chance: Option<Chance>,
    probing: Probing,
    /// Children outlive a worker that dies, in percent.
    survive: u64,
    /// Reads that return much, in percent.
    large: u64,
    slow_to_land: bool,
    changed: BTreeSet<ToolName>,
    forgetful: bool,
}

/// The world of one simulation.
pub struct World {
    record: Arc<Record>,
    store: Arc<Store>,
    rules: Arc<Rules>,
    ushers: Arc<Ushers>,
    inner: Mutex<Inner>,
}

impl World {
    pub fn new(store: &Arc<Store>, rules: &Arc<Rules>, ushers: &Arc<Ushers>) -> Arc<Self> {
        Arc::new(Self {
            record: Arc::clone(&store.record),
            store: Arc::clone(store),
            rules: Arc::clone(rules),
            ushers: Arc::clone(ushers),
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on tools behave at random.
    pub fn go_wild(&self, chance: Chance, probing: Probing, survive: u64) {
        let mut inner = self.inner();
        inner.chance = Some(chance);
        inner.probing = probing;
        inner.survive = survive;
    }

    /// From now on everything goes well.
    pub fn calm_down(&self) {
        let mut inner = self.inner();
        inner.chance = None;
        inner.probing = Probing::default();
        inner.script.clear();
        inner.probes.clear();
        inner.changed.clear();
    }

    /// How the attempts of a tool go, in the order in which they start.
    pub fn script(&self, tool: &str, manners: impl IntoIterator<Item = Manner>) {
        self.inner().script.insert(ToolName::new(tool), manners.into_iter().collect());
    }

    /// What the next probes of a tool answer, instead of the truth.
    pub fn script_probes(&self, tool: &str, answers: impl IntoIterator<Item = ProbeAnswer>) {
        self.inner().probes.insert(ToolName::new(tool), answers.into_iter().collect());
    }

    /// From now on effects are sent at once and take long to land.
    pub fn is_slow_to_land(&self) {
        self.inner().slow_to_land = true;
    }

    /// So many reads in a hundred return much.
    pub fn returns_much(&self, percent: u64) {
        self.inner().large = percent;
    }

    pub fn children_survive(&self, percent: u64) {
        self.inner().survive = percent;
    }

    /// The tool's program is not what was pinned any more.
    pub fn change_program(&self, tool: &str) {
        self.inner().changed.insert(ToolName::new(tool));
    }

    /// Receivers stop recognising keys. A removed protection: the world then counts every attempt.
    pub fn forget_keys(&self) {
        self.inner().forgetful = true;
    }

    /// Everything that workspace tools have written, the newest last.
    pub fn files(&self) -> Vec<Left> {
        self.inner().files.clone()
    }

    /// What lies in a workspace.
    pub fn workspace(&self, folder: &str) -> Tree {
        self.inner().workspaces.get(folder).cloned().unwrap_or_default()
    }

    /// Somebody else changes a file, or removes it.
    pub fn meddle(&self, folder: &str, path: &str, content: Option<&str>) {
        self.inner().meddled.insert((folder.to_owned(), path.to_owned()));
        self.set(folder, path, content);
    }

    /// Whether somebody else has changed it.
    pub fn is_meddled(&self, folder: &str, path: &str) -> bool {
        self.inner().meddled.contains(&(folder.to_owned(), path.to_owned()))
    }

    pub(crate) fn set(&self, folder: &str, path: &str, content: Option<&str>) {
        let mut inner = self.inner();
        let tree = inner.workspaces.entry(folder.to_owned()).or_default();
        match content {
            Some(content) => tree.insert(path.to_owned(), content.to_owned()),
            None => tree.remove(path),
        };
    }

    /// From now on no snapshot can be taken.
    pub fn has_no_room_for_trees(&self) {
        self.inner().treeless = true;
    }

    /// A snapshot of a workspace, kept if it is wanted. None: there is no room.
    pub(crate) fn snapshot(&self, folder: &str, keep: bool) -> Option<TreeId> {
        let mut inner = self.inner();
        if inner.treeless {
            return None;
        }
        let tree = inner.workspaces.get(folder).cloned().unwrap_or_default();
        let parts = tree.iter().flat_map(|(path, content)| [path.as_bytes(), content.as_bytes()]);
        let id = TreeId::new(Digest::of_parts(parts).as_str());
        if keep {
            inner.trees.insert(id.clone(), tree);
        }
        let stirs = std::mem::take(&mut inner.stirring);
        drop(inner);
        if stirs {
            self.meddle(folder, "person/stirred", Some("after the proof"));
        }
        Some(id)
    }

    pub(crate) fn stir(&self) {
        self.inner().stirring = true;
    }

    pub(crate) fn tree(&self, id: &TreeId) -> Option<Tree> {
        self.inner().trees.get(id).cloned()
    }

    pub fn landed(&self) -> Vec<Landing> {
        self.inner().landed.clone()
    }

    /// How often an action really happened: repetitions that were recognised do not count.
    pub fn happened(&self, run: &RunId, action: ActionId) -> usize {
        self.inner().landed.iter().filter(|l| l.run == *run && l.action == action && !l.again).count()
    }

    /// Calls of a tool that really happened.
    pub fn happened_by_tool(&self, tool: &str) -> usize {
        self.inner().landed.iter().filter(|l| l.tool.as_str() == tool && !l.again).count()
    }

    /// Attempts of a tool whose child was started.
    pub fn attempts_of(&self, tool: &str) -> usize {
        self.inner().started.get(&ToolName::new(tool)).copied().unwrap_or(0)
    }

    /// Whether nothing of an action can land any more.
    pub fn is_quiet(&self, run: &RunId, action: ActionId) -> bool {
        let inner = self.inner();
        let lives = inner.children.values().any(|child| child.alive && child.run == *run && child.action == action);
        !lives && !inner.on_the_wire.contains(&(run.clone(), action))
    }

    pub fn children_of(&self, process: &Process) -> usize {
        self.inner().children.values().filter(|child| child.alive && child.pid == process.worker.pid).count()
    }

    pub fn children_alive(&self) -> usize {
        self.inner().children.values().filter(|child| child.alive).count()
    }

    /// What a person who looks would find.
    pub fn truth(&self, run: &RunId, action: &Action) -> Option<Payload> {
        let inner = self.inner();
        let took = inner.landed.iter().any(|landing| {
            landing.run == *run && landing.action == action.id
                || landing.key.is_some() && landing.key == action.idempotency_key
        });
        took.then(|| receipt(action.id))
    }

    /// All children of a machine end with it, and what they had not sent is never sent.
    pub fn lose_power(&self) {
        let ids: Vec<_> = self.inner().children.keys().copied().collect();
        ids.into_iter().for_each(|id| self.kill(id));
    }

    fn kill(&self, id: u64) {
        let mut inner = self.inner();
        if let Some(child) = inner.children.get_mut(&id)
            && child.alive
        {
            child.alive = false;
            let task = child.task.take();
            let what = format!("child of {} {} (fence {}) is killed", child.run, child.action, child.fence);
            drop(inner);
            if let Some(task) = task {
                task.abort();
            }
            self.record.note("--", &what);
        }
    }

    fn kill_where(&self, is_meant: impl Fn(&Child) -> bool) {
        let ids: Vec<_> = self
            .inner()
            .children
            .iter()
            .filter(|(_, child)| child.alive && is_meant(child))
            .map(|(id, _)| *id)
            .collect();
        ids.into_iter().for_each(|id| self.kill(id));
    }

    fn manner(&self, spec: &ToolSpec) -> Manner {
        let mut guard = self.inner();
        let inner = &mut *guard;
        let nth = inner.started.entry(spec.name.clone()).or_default();
        *nth += 1;
        if let Some(script) = inner.script.get(&spec.name)
            && let Some(manner) = script.get(*nth - 1).or(script.last())
        {
            return manner.clone();
        }
        match &mut inner.chance {
            Some(chance) => {
                let mut manner = Manner::draw(spec, chance);
                if inner.slow_to_land && manner.sends.is_some() {
                    let sends = chance.millis(1, 200);
                    (manner.sends, manner.wire) = (Some(sends), chance.millis(1_000, 1_800));
                    manner.ends = sends + manner.wire + chance.millis(1, 500);
                }
                let is_large = spec.effect == EffectClass::Read && chance.percent(inner.large);
                let bytes = if is_large { chance.between(200, 12_000) } else { 0 };
                Manner { bytes: usize::try_from(bytes).unwrap_or(0), ..manner }
            }
            None => Manner::done(),
        }
    }

    /// What must hold before anything happens in the world.
    fn check_start(&self, process: &Process, spec: &ToolSpec, attempt: &Attempt) {
        let name = format!("{} {} attempt {}", attempt.run, attempt.action, attempt.number);
        let shadow = self.store.shadow();
        let Some(run) = shadow.runs.get(&attempt.run) else {
            self.record.breach("law_2", format!("{name} starts in a run that is not there"));
            return;
        };
        if spec.effect != EffectClass::Read && !run.has_synced_start(attempt.action, attempt.number, attempt.fence) {
            self.record.breach("law_2", format!("{name} starts before its start is synced"));
        }
        let does_the_same = |action: ActionId| {
            run.events.iter().any(|new| match &new.event {
                Event::ActionProposed(proposed) => {
                    proposed.action == action && proposed.tool == attempt.tool && proposed.args == attempt.args
                }
                _ => false,
            })
        };
        let granted = run.events.iter().any(|new| match &new.event {
            Event::ActionApproved(approved) => match approved.covers {
                Covers::Once => approved.action == attempt.action,
                Covers::Always => does_the_same(approved.action),
            },
            _ => false,
        });
        let granted_this = run
            .events
            .iter()
            .any(|new| matches!(&new.event, Event::ActionApproved(approved) if approved.action == attempt.action));
        let task = run.events.iter().find_map(|new| match &new.event {
            Event::RunStarted(started) => Some(started.task.clone()),
            _ => None,
        });
        drop(shadow);
        if let Some(task) = task
            && let Err(what) = self.ushers.let_through(process.worker.pid, &task, attempt, granted_this)
        {
            self.record.breach("law_8", format!("{name} starts {what}"));
        }
        if spec.effect == EffectClass::Workspace
            && let Some(place) = self.workspace_of(&attempt.run)
        {
            let is_other =
                |child: &Child| child.alive && child.run != attempt.run && child.writes_in.as_ref() == Some(&place);
            if self.inner().children.values().any(is_other) {
                self.record.breach("law_10", format!("{name} writes in {place} beside another run"));
            }
        }
        if process.worker.pid == 0 {
            return;
        }
        match self.rules.ruling_at_start(attempt) {
            Ruling::Allow { .. } => {}
            Ruling::Ask { .. } if granted => {}
            Ruling::Ask { .. } => self.record.breach("law_8", format!("{name} starts though nobody said yes")),
            Ruling::Deny { .. } => self.record.breach("law_8", format!("{name} starts though it is denied")),
        }
        let other = self.inner().children.values().any(|child| {
            child.alive && child.run == attempt.run && child.action == attempt.action && child.fence < attempt.fence
        });
        if other {
            self.record.breach("law_10", format!("{name} starts beside an older attempt that still runs"));
        }
    }

    fn workspace_of(&self, run: &RunId) -> Option<String> {
        let shadow = self.store.shadow();
        shadow.runs.get(run)?.events.iter().find_map(|new| match &new.event {
            Event::RunStarted(started) => Some(started.task.workspace.clone()),
            _ => None,
        })
    }

    fn spawn(
        self: &Arc<Self>,
        process: &Process,
        spec: &ToolSpec,
        attempt: &Attempt,
        manner: &Manner,
    ) -> (u64, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let writes_in = (spec.effect == EffectClass::Workspace).then(|| self.workspace_of(&attempt.run)).flatten();
        let mut inner = self.inner();
        let id = inner.children.len() as u64;
        let (world, meant, manner, timeout) = (Arc::clone(self), attempt.clone(), manner.clone(), spec.timeout);
        let writes = (spec.effect == EffectClass::Workspace).then(|| places(spec));
        inner.children.insert(
            id,
            Child {
                run: attempt.run.clone(),
                writes_in,
                action: attempt.action,
                fence: attempt.fence,
                pid: process.worker.pid,
                host: process.worker.host.clone(),
                alive: true,
                task: None,
            },
        );
        drop(inner);
        let task = tokio::spawn(async move {
            if let Some(sends) = manner.sends {
                tokio::time::sleep(sends).await;
                if let Some(places) = &writes {
                    world.write(&meant, places);
                }
                world.send(&meant, manner.wire);
            }
            let rest = manner.ends.saturating_sub(manner.sends.unwrap_or_default());
            let ends_itself = match manner.says {
                // Somebody kills it at its timeout, if not its worker.
                Says::Hangs => {
                    tokio::time::sleep(timeout.saturating_sub(manner.sends.unwrap_or_default())).await;
                    false
                }
                Says::Done | Says::Fails | Says::NotDone => {
                    tokio::time::sleep(rest).await;
                    true
                }
            };
            if let Some(child) = world.inner().children.get_mut(&id) {
                child.alive = false;
            }
            // Nobody waits for a child whose worker is dead.
            if ends_itself {
                let _ = end.send(());
            }
        });
        if let Some(child) = self.inner().children.get_mut(&id) {
            child.task = Some(task.abort_handle());
        }
        (id, ended)
    }

    /// Each attempt leaves another content at the same place.
    fn write(&self, attempt: &Attempt, places: &[String]) {
        // A child works in its root's workspace.
        let folder = self.workspace_of(&attempt.run).unwrap_or_else(|| format!("/town/{}", attempt.run));
        let content = format!("{} {} {}", attempt.run, attempt.action, attempt.number);
        let mut inner = self.inner();
        let tree = inner.workspaces.entry(folder.clone()).or_default();
        for place in places {
            tree.insert(place.clone(), content.clone());
        }
        inner.files.push(Left {
            run: attempt.run.clone(),
            action: attempt.action,
            attempt: attempt.number,
            path: format!("{folder}/{}/{}/{}", attempt.run, attempt.tool, attempt.action),
            folder,
            content: Digest::of(content.as_bytes()),
            places: places.to_vec(),
            at: self.record.now(),
        });
    }

    /// Sends an effect off: from then on nothing can stop it.
    fn send(self: &Arc<Self>, attempt: &Attempt, wire: Duration) {
        self.inner().on_the_wire.push((attempt.run.clone(), attempt.action));
        let (world, attempt) = (Arc::clone(self), attempt.clone());
        tokio::spawn(async move {
            tokio::time::sleep(wire).await;
            world.land(&attempt);
        });
    }

    fn land(&self, attempt: &Attempt) {
        let mut inner = self.inner();
        let sent = (attempt.run.clone(), attempt.action);
        if let Some(position) = inner.on_the_wire.iter().position(|one| *one == sent) {
            inner.on_the_wire.remove(position);
        }
        let honours_keys = self.rules.honours_keys(&attempt.tool) && !inner.forgetful;
        let key = attempt.idempotency_key.clone().filter(|_| honours_keys);
        let again = key.is_some() && inner.landed.iter().any(|landing| landing.key == key);
        inner.landed.push(Landing {
            run: attempt.run.clone(),
            action: attempt.action,
            attempt: attempt.number,
            tool: attempt.tool.clone(),
            args: attempt.args.clone(),
            key,
            again,
        });
        drop(inner);
        let word = if again { "is recognised" } else { "LANDS" };
        self.record.note("--", &format!("{} {} attempt {} {word}", attempt.tool, attempt.action, attempt.number));
    }
}

/// Where a tool writes: what it declares, else two files of its own.
fn places(spec: &ToolSpec) -> Vec<String> {
    match &spec.writes {
        Some(paths) => paths.clone(),
        None => vec![format!("{}/first", spec.name), format!("{}/second", spec.name)],
    }
}

/// What a receiver answers for an action.
pub fn receipt(action: ActionId) -> Payload {
    Payload::of(&serde_json::json!({ "receipt": action.to_string() })).unwrap_or_else(|_| Payload::null())
}

/// Ends the child when its attempt is given up. When the whole process dies, the child may outlive it.
struct Leash {
    world: Arc<World>,
    process: Arc<Process>,
    child: u64,
}

impl Drop for Leash {
    fn drop(&mut self) {
        if self.process.is_dead() {
            let survives = {
                let mut guard = self.world.inner();
                let inner = &mut *guard;
                let percent = inner.survive;
                match &mut inner.chance {
                    Some(chance) => chance.percent(percent),
                    None => percent >= 100,
                }
            };
            if survives {
                return;
            }
        }
        self.world.kill(self.child);
    }
}

/// The world's tools as one process reaches them.
pub struct Hands {
    pub world: Arc<World>,
    pub process: Arc<Process>,
    pub specs: Arc<[ToolSpec]>,
}

impl Hands {
    fn spec(&self, tool: &ToolName) -> Option<&ToolSpec> {
        self.specs.iter().find(|spec| spec.name == *tool)
    }
}

impl Tools for Hands {
    fn validate(&self, tool: &ToolName, arguments: &str) -> Result<ValidArgs, ToolError> {
        self.process.glance();
        let Some(spec) = self.spec(tool) else {
            return Err(ToolError::new(class::UNKNOWN_TOOL, format!("There is no tool {tool}.")));
        };
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        let invalid = |what: String| ToolError::new(class::INVALID_ARGUMENTS, what).at("");
        let fields: BTreeMap<String, Value> =
            serde_json::from_str(text).map_err(|error| invalid(format!("not a JSON object: {error}")))?;
        if fields.contains_key("bad") {
            return Err(ToolError::new(class::INVALID_ARGUMENTS, "bad is not allowed").at("/bad"));
        }
        let mut cites = BTreeMap::new();
        if let Some(cited) = fields.get("evidence") {
            let id: EvidenceId = cited
                .as_str()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| invalid("evidence must be an evidence id".to_owned()))?;
            cites.insert("evidence".to_owned(), (id, ToolName::new("look")));
        }
        let args = Payload::of(&fields).map_err(|error| invalid(error.to_string()))?;
        let key = spec.key.as_ref().map(|key| {
            let parts: Vec<String> =
                key.args.iter().map(|name| fields.get(name).map(Value::to_string).unwrap_or_default()).collect();
            Digest::of_parts(parts.iter().map(String::as_bytes))
        });
        Ok(ValidArgs { digest: args.digest(), args, cites, key, path: None })
    }

    fn target<'a>(
        &'a self,
        _: &'a Task,
        _: &'a ToolName,
        _: &'a Payload,
        _: &'a BTreeMap<String, Digest>,
    ) -> BoxFuture<'a, Result<Option<Target>, ToolError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn note(&self, args: &Payload) -> Result<Note, ToolError> {
        self.process.glance();
        args.read().map_err(|error| ToolError::new(class::INVALID_ARGUMENTS, format!("no note: {error}")))
    }

    fn changed(&self, tool: &ToolName) -> Option<Changed> {
        self.process.glance();
        let is_changed = self.world.inner().changed.contains(tool);
        is_changed.then(|| Changed { file: format!("{tool}.sh"), content: Some(Digest::of(b"changed")) })
    }

    fn run<'a>(&'a self, _: &'a Task, call: Cleared, _: Handed) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            let attempt = call.attempt().clone();
            self.process.call(&format!("run {} {} attempt {}", attempt.tool, attempt.action, attempt.number)).await;
            let Some(spec) = self.spec(&attempt.tool).cloned() else { std::future::pending().await };
            self.world.check_start(&self.process, &spec, &attempt);
            let manner = self.world.manner(&spec);
            let (child, ended) = self.world.spawn(&self.process, &spec, &attempt, &manner);
            let leash = Leash { world: Arc::clone(&self.world), process: Arc::clone(&self.process), child };
            let end = tokio::time::timeout(spec.timeout, ended).await;
            self.process.pass().await;
            drop(leash);
            let outcome = match end {
                Ok(Ok(())) => outcome(spec.effect, attempt.action, &manner),
                // Killed by somebody else, or out of its time.
                Ok(Err(_)) => cut(spec.effect, "ended by signal 9"),
                Err(_) => cut(spec.effect, "ran out of its time"),
            };
            self.process.call(&format!("ran {} {}", attempt.tool, attempt.action)).await;
            Ran { outcome, blobs: Vec::new() }
        })
    }

    fn probe<'a>(&'a self, _: &'a Task, attempt: Attempt, _: Handed) -> BoxFuture<'a, Probed> {
        Box::pin(async move {
            self.process.call(&format!("probe {} {}", attempt.tool, attempt.action)).await;
            let (wait, scripted) = {
                let mut guard = self.world.inner();
                let inner = &mut *guard;
                let scripted =
                    inner.probes.get_mut(&attempt.tool).filter(|left| !left.is_empty()).map(|left| left.remove(0));
                let probing = inner.probing;
                match &mut inner.chance {
                    Some(chance) if scripted.is_none() => {
                        let answer = if chance.percent(probing.pending) {
                            Some(ProbeAnswer::NoAnswer("pending".to_owned()))
                        } else if chance.percent(probing.fails) {
                            Some(ProbeAnswer::NoAnswer("exit 1".to_owned()))
                        } else {
                            None
                        };
                        (chance.millis(1, 2000), answer)
                    }
                    Some(_) | None => (Duration::from_millis(10), scripted),
                }
            };
            tokio::time::sleep(wait).await;
            self.process.pass().await;
            let answer = scripted.unwrap_or_else(|| {
                let took = self.world.inner().landed.iter().any(|landing| {
                    landing.run == attempt.run && landing.action == attempt.action
                        || landing.key.is_some() && landing.key == attempt.idempotency_key
                });
                if took {
                    ProbeAnswer::TookEffect(Content::Inline(receipt(attempt.action)))
                } else {
                    ProbeAnswer::NoEffect
                }
            });
            self.process.call(&format!("probed {} {answer:?}", attempt.action)).await;
            Probed { answer, blobs: Vec::new() }
        })
    }

    fn reap_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Reaped> {
        Box::pin(async move {
            self.process.call(&format!("reap run {run}")).await;
            let here = self.process.worker.host.clone();
            self.world.kill_where(|child| child.run == *run && child.host == here);
            Reaped::Gone
        })
    }

    fn reap<'a>(&'a self, run: &'a RunId, action: ActionId, current: Fence) -> BoxFuture<'a, Reaped> {
        Box::pin(async move {
            self.process.call(&format!("reap {action} before fence {current}")).await;
            let here = self.process.worker.host.clone();
            self.world.kill_where(|child| {
                child.run == *run && child.action == action && child.fence < current && child.host == here
            });
            let elsewhere = self.world.inner().children.values().any(|child| {
                child.run == *run && child.action == action && child.fence < current && child.host != here
            });
            self.process.call(&format!("reaped {action}")).await;
            if elsewhere { Reaped::Unverified } else { Reaped::Gone }
        })
    }
}

fn outcome(effect: EffectClass, action: ActionId, manner: &Manner) -> Outcome {
    match &manner.word {
        Some(Word::Result(word)) => return Outcome::Done(Content::Inline(Payload::string(word))),
        Some(Word::Error { class, retry_after_s }) => {
            let error = ToolError { retry_after_s: *retry_after_s, ..ToolError::new(class, format!("{class} it is")) };
            return match effect {
                EffectClass::Read | EffectClass::Workspace => Outcome::Error(error),
                EffectClass::External => Outcome::NotDone(error),
            };
        }
        None => {}
    }
    match (manner.says, effect) {
        (Says::Done, EffectClass::Read) if manner.bytes > 0 => {
            let much = format!("what {action} found, line after line; ").repeat(manner.bytes / 32 + 1);
            Outcome::Done(Content::Inline(Payload::string(&much)))
        }
        (Says::Done, _) => Outcome::Done(Content::Inline(receipt(action))),
        (Says::NotDone, EffectClass::External) => {
            Outcome::NotDone(ToolError::new(class::EXIT, "it did not take effect"))
        }
        (Says::Fails | Says::NotDone | Says::Hangs, EffectClass::Read | EffectClass::Workspace) => {
            Outcome::Error(ToolError::new(class::EXIT, "exit 1"))
        }
        (Says::Fails | Says::Hangs, EffectClass::External) => {
            Outcome::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, "exit 75"))
        }
    }
}

fn cut(effect: EffectClass, what: &str) -> Outcome {
    match effect {
        EffectClass::Read => Outcome::Error(ToolError::new(class::TIMEOUT, what)),
        EffectClass::Workspace => Outcome::Error(ToolError::new(class::UNKNOWN_OUTCOME, what)),
        EffectClass::External => Outcome::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, what)),
    }
}
