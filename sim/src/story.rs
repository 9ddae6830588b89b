//! One story from one seed: runs that begin, workers that die, sleep and come back, people who interfere, a store and a
//! world that misbehave; then the weather clears, and everything must come to rest with every law kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longrein_core::action::Life;
use longrein_core::budget::{Limit, Raise};
use longrein_core::event::Suspension;
use longrein_core::hook::HookEvent;
use longrein_core::ids::{Digest, ModelName, RunId};
use longrein_core::input::{Covers, Door, Endorse, InputBody};
use longrein_core::route::{ROUTABLE, Route};
use longrein_core::run::Stage;
use longrein_core::task::{ModelSpec, OnUnknown, RuleFile, Task};
use longrein_driver::{Begin, DriveError, Standing, Stop, WhenAsked};
use longrein_ports::{ClaimError, Journal};

use crate::chance::Chance;
use crate::laws;
use crate::people::{Counts, Say};
use crate::process::{Breach, Process};
use crate::store::Weather;
use crate::town::{Drove, Layers, Town, check, hook, task, toolbox};
use crate::world::Probing;

/// What is left of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub breaches: Vec<Breach>,
    /// Every port call, with its time.
    pub trace: Vec<String>,
    /// Every event of every run, as JSON.
    pub journal: Vec<String>,
    pub port_calls: u64,
}

impl Report {
    /// What to show when a law was broken: the laws, then the end of the trace.
    pub fn complaint(&self) -> String {
        let mut text = format!("seed {} (play it again with LONGREIN_SIM_SEED={})\n", self.seed, self.seed);
        for breach in &self.breaches {
            text.push_str(&format!("  {}: {}\n", breach.law, breach.what));
        }
        text
    }
}

/// Runs `story` in a world of its own, where time passes only when nothing else can happen.
pub fn in_virtual_time<T>(story: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime of one thread can be built");
    runtime.block_on(story)
}

/// Plays the story of a seed.
pub fn play(seed: u64, layers: Arc<dyn Layers>) -> Report {
    in_virtual_time(async move {
        let town = Town::new(seed, layers);
        let mut chance = Chance::new(seed, "story");
        let mut cast = vec![RunId::new("r1")];
        if chance.percent(30) {
            cast.push(RunId::new("r2"));
        }
        // In a quarter of the stories the window is small, results are large and the model counts.
        let window = chance.percent(25).then(|| narrow(&town, &mut Chance::new(seed, "window")));
        let is_doubtful = stage(&town, &mut chance, window.is_some());
        let over = Arc::new(AtomicBool::new(false));
        let mut parts = Vec::new();
        let is_alone = cast.len() == 1;
        for id in &cast {
            let mut task = draw_task(id, &mut chance, window.clone());
            draw_hooks(&mut task, &mut Chance::new(seed, &format!("hooks {id}")));
            draw_routes(&mut task, &mut Chance::new(seed, &format!("routes {id}")));
            let part = Part {
                town: Arc::clone(&town),
                id: id.clone(),
                task,
                chance: Chance::new(seed, &format!("part {id}")),
                is_alone,
                is_doubtful,
            };
            parts.push(tokio::spawn(part.play()));
            let people = Chance::new(seed, &format!("people {id}"));
            tokio::spawn(meddle(Arc::clone(&town), id.clone(), people, Arc::clone(&over)));
        }
        let mut tasks = Vec::new();
        for part in parts {
            tasks.push(part.await.expect("a part of the story does not panic"));
        }
        over.store(true, Ordering::Relaxed);
        town.store.set_weather(Weather::CALM);
        town.world.calm_down();
        town.bench.calm_down();
        town.ushers.calm_down();
        town.brain.calm_down();
        for (id, task) in cast.iter().zip(tasks) {
            come_to_rest(&town, id, task).await;
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        if town.world.children_alive() > 0 {
            town.record.breach("law_10", format!("{} children outlive their runs", town.world.children_alive()));
        }
        for id in &cast {
            laws::check(&town, id).await;
        }
        report(seed, &town)
    })
}

/// What a town leaves behind.
pub fn report(seed: u64, town: &Town) -> Report {
    let shadow = town.store.shadow();
    let journal = shadow
        .runs
        .values()
        .flat_map(|run| &run.events)
        .map(|new| format!("{} {}", new.at, serde_json::to_string(&new.event).unwrap_or_default()))
        .collect();
    Report {
        seed,
        breaches: town.record.breaches(),
        trace: town.record.trace(),
        journal,
        port_calls: town.record.calls(),
    }
}

/// Sets the scene: how bad the store, the tools, the checks and the model are, and what the rules say. Answers whether
/// workers die while effects are on the wire.
fn stage(town: &Town, chance: &mut Chance, is_narrow: bool) -> bool {
    let seed = chance.number();
    let mut rarely = |max| if chance.percent(50) { 0 } else { chance.between(1, max) };
    let weather = Weather {
        slow: rarely(30),
        stuck: rarely(2),
        lost_answer: rarely(10),
        lost_request: rarely(10),
        twice: rarely(10),
        message_beside_end: rarely(60),
    };
    town.store.set_weather(weather);
    let probing = Probing { pending: rarely(50), fails: rarely(50) };
    town.world.go_wild(Chance::new(seed, "world"), probing, chance.between(0, 100));
    town.bench.go_wild(Chance::new(seed, "bench"));
    town.ushers.go_wild(Chance::new(seed, "ushers"));
    // Half of the stories use few tools, so that calls meet: same keys, same holds.
    let mut tools: Vec<String> = toolbox().iter().map(|spec| spec.name.to_string()).collect();
    if chance.percent(50) {
        let few = chance.between(1, 4);
        tools = (0..few).map(|_| chance.pick(&tools).clone()).collect();
    }
    // Some are all about calls whose end nobody saw: sent at once, long on the wire, and the worker dies meanwhile.
    let is_doubtful = Chance::new(seed, "doubt").percent(20);
    if is_doubtful {
        tools = ["ship", "refund", "book"].map(str::to_owned).into();
        town.world.is_slow_to_land();
    }
    if is_narrow {
        tools.extend(["look", "look", "list", "note", "note"].map(str::to_owned));
    }
    town.brain.go_wild(Chance::new(seed, "brain"), tools);
    // Drawn apart, so that the other draws stay what they were.
    let mut taint = Chance::new(seed, "taint");
    for tool in ["look", "list", "ship", "page"] {
        if taint.percent(30) {
            town.rules.set_untrusted(tool);
        }
    }
    shuffle_rules(town, chance);
    is_doubtful
}

fn shuffle_rules(town: &Town, chance: &mut Chance) {
    for spec in toolbox() {
        let say = match chance.below(10) {
            0 | 1 => Say::Ask,
            2 => Say::Deny,
            _ => Say::Allow,
        };
        town.rules.set(spec.name.as_str(), say);
    }
}

/// A small window: the model every run has, which counts and may take less than it is said to.
fn narrow(town: &Town, chance: &mut Chance) -> ModelSpec {
    town.world.returns_much(chance.between(30, 90));
    let limit = chance.between(1_400, 5_000);
    let mut model = ModelSpec::plain(ModelName::new("sim/model"), chance.between(50, 600));
    model.context_limit = Some(limit);
    // Some do not count, and report whatever they like.
    if chance.percent(85) {
        let takes = if chance.percent(50) { limit * chance.between(700, 1_000) / 1_000 } else { limit };
        town.brain.count(Counts {
            density: chance.between(180, 300),
            served: [(model.name.clone(), takes)].into(),
            says_limit: chance.percent(60),
        });
    }
    model
}

/// What the rule files of a story say.
const RULE_FILES: [(&str, &str); 2] =
    [("AGENTS.md", "Always look before you edit."), ("docs/AGENTS.md", "Write short sentences in the guide.")];

fn draw_task(id: &RunId, chance: &mut Chance, window: Option<ModelSpec>) -> Task {
    let mut task = task(id.as_str());
    if chance.percent(if window.is_some() { 60 } else { 20 }) {
        task.constraints.push(format!("Nothing of {id} may leave the town."));
        for (path, text) in RULE_FILES {
            let (path, text) = (path.to_owned(), text.to_owned());
            task.rules.push(RuleFile { path, digest: Digest::of(text.as_bytes()), text });
        }
    }
    let is_narrow = window.is_some();
    task.model = window.unwrap_or(task.model);
    let mut limit = |low, high, default| {
        let percent = if is_narrow { 6 } else { 30 };
        if chance.percent(percent) { Limit::At(chance.between(low, high)) } else { default }
    };
    let turns = if is_narrow { 45 } else { 25 };
    task.limits.turns = limit(0, 12, Limit::At(turns));
    task.limits.model_calls = limit(0, 20, Limit::At(60));
    task.limits.tool_calls = limit(0, 20, Limit::At(100));
    task.limits.tokens = limit(0, 60_000, Limit::Unlimited);
    task.limits.time_ms = limit(1_000, 600_000, Limit::At(8 * 60 * 60 * 1000));
    for name in ["tests", "lint"] {
        if chance.percent(40) {
            task.acceptance.push(check(name));
        }
    }
    for tool in &mut task.tools {
        if chance.percent(20) {
            tool.on_unknown = OnUnknown::Tell;
        }
        if chance.percent(20) {
            tool.timeout = Duration::from_secs(chance.between(2, 90));
        }
    }
    task
}

/// A quarter of the runs has hooks.
fn draw_hooks(task: &mut Task, chance: &mut Chance) {
    if !chance.percent(25) {
        return;
    }
    for number in 0..chance.between(1, 4) {
        let event = *chance.pick(&HookEvent::ALL);
        let tools: &[&str] = if chance.percent(50) { &[] } else { &["pay", "edit", "s*"] };
        let tools = if event.is_about_a_tool() { tools } else { &[] };
        task.hooks.push(hook(&format!("hook{number}"), event, tools));
    }
}

/// A fifth of the runs has somewhere else to go.
fn draw_routes(task: &mut Task, chance: &mut Chance) {
    if !chance.percent(20) {
        return;
    }
    for number in 0..chance.between(1, 4) {
        let mut model = ModelSpec::plain(ModelName::new(format!("sim/other{number}")), chance.between(50, 600));
        model.context_limit = task.model.context_limit.map(|limit| limit * chance.between(1, 4));
        let mut route = Route {
            model,
            on: BTreeSet::new(),
            phases: BTreeSet::new(),
            context_over: None,
            spent_over: None,
            images: false,
        };
        match chance.below(4) {
            0 => route.context_over = Some(chance.between(100, 3_000)),
            1 => route.on = ROUTABLE.into_iter().collect(),
            _ => route.on = (0..3).map(|_| *chance.pick(&ROUTABLE)).collect(),
        }
        task.routes.push(route);
    }
}

/// One run, and the workers that come and go with it.
struct Part {
    town: Arc<Town>,
    id: RunId,
    task: Task,
    chance: Chance,
    is_alone: bool,
    /// Its workers die soon and are followed at once.
    is_doubtful: bool,
}

/// How a worker ends this time.
#[derive(Debug, Clone, Copy)]
enum Plan {
    Undisturbed,
    DieAtCall(u64),
    DieAfter(Duration),
    Sleep { after: Duration, length: Duration },
    StopAfter(Duration),
}

impl Part {
    fn plan(&mut self) -> Plan {
        let chance = &mut self.chance;
        if self.is_doubtful && chance.percent(60) {
            return Plan::DieAfter(chance.millis(500, 6_000));
        }
        match chance.below(100) {
            0..25 => Plan::Undisturbed,
            25..60 => Plan::DieAtCall(if chance.percent(50) { chance.between(1, 120) } else { chance.between(1, 900) }),
            60..75 => Plan::DieAfter(chance.millis(1, 40_000)),
            75..90 => Plan::Sleep { after: chance.millis(1, 20_000), length: chance.millis(1_000, 60_000) },
            _ => Plan::StopAfter(chance.millis(1, 20_000)),
        }
    }

    /// Answers with the task, which is needed again if nothing of it was kept.
    async fn play(mut self) -> Task {
        let mut sleepers = Vec::new();
        for round in 0..self.chance.between(1, 6) {
            if self.is_alone && sleepers.is_empty() && self.chance.percent(20) {
                shuffle_rules(&self.town, &mut self.chance);
            }
            let host = if self.chance.percent(80) { "h1" } else { "h2" };
            let asked = *self.chance.pick(&[WhenAsked::Park, WhenAsked::Park, WhenAsked::Deny, WhenAsked::Stay]);
            let (process, plan) = (self.town.process(host), self.plan());
            let stop = Stop::new();
            self.town.record.note("--", &format!("round {round} of {}: {plan:?} {asked:?}", self.id));
            match plan {
                Plan::Undisturbed => {}
                Plan::DieAtCall(number) => process.die_at_call(number),
                Plan::DieAfter(span) => {
                    let process = Arc::clone(&process);
                    tokio::spawn(async move {
                        tokio::time::sleep(span).await;
                        process.die();
                    });
                }
                Plan::Sleep { after, length } => {
                    let process = Arc::clone(&process);
                    tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        process.pause();
                        tokio::time::sleep(length).await;
                        process.resume();
                    });
                }
                Plan::StopAfter(span) => {
                    let stop = stop.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(span).await;
                        stop.now(Suspension::Terminated);
                    });
                }
            }
            // Nobody is there for ever: a drive that stays for answers is stopped some time.
            if asked == WhenAsked::Stay {
                let stop = stop.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    stop.now(Suspension::Dropped);
                });
            }
            let drive = drive(Arc::clone(&self.town), process, self.id.clone(), self.task.clone(), asked, stop);
            let handle = tokio::spawn(drive);
            if let Plan::Sleep { after, .. } = plan {
                // While it sleeps, another may take over.
                tokio::time::sleep(after + self.chance.millis(0, 20_000)).await;
                sleepers.push(handle);
                continue;
            }
            let died = handle.await.expect("a drive does not panic");
            // Whoever sleeps would die too, and wake up dead.
            if died && self.chance.percent(30) {
                self.town.lose_power();
            }
            let most = if self.is_doubtful { 100 } else { 5_000 };
            tokio::time::sleep(self.chance.millis(0, most)).await;
        }
        for sleeper in sleepers {
            sleeper.await.expect("a drive does not panic");
        }
        self.task
    }
}

/// Drives a run, waiting for its claim if it is held. Answers whether the process died.
async fn drive(town: Arc<Town>, process: Arc<Process>, id: RunId, task: Task, asked: WhenAsked, stop: Stop) -> bool {
    for _ in 0..30 {
        match town.drive(&process, &id, begin(&town, &id, &task), asked, stop.clone()).await {
            Drove::Died | Drove::Hung => return true,
            Drove::Back(Err(DriveError::Claim(ClaimError::Held(_)))) => {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            Drove::Back(_) => return false,
        }
    }
    false
}

fn begin(town: &Town, id: &RunId, task: &Task) -> Begin {
    match town.store.run(id) {
        Some(_) => Begin::Existing { changed: Vec::new(), mode: None },
        None => Begin::New { task: Box::new(task.clone()), blobs: Vec::new() },
    }
}

/// People: they write, answer, settle, raise and cancel when they feel like it, sometimes twice, sometimes too late.
async fn meddle(town: Arc<Town>, id: RunId, mut chance: Chance, over: Arc<AtomicBool>) {
    let mut number = 0;
    loop {
        tokio::time::sleep(chance.millis(50, 20_000)).await;
        if over.load(Ordering::Relaxed) {
            return;
        }
        let Some(run) = town.store.run(&id) else { continue };
        number += 1;
        let name = if chance.percent(5) { format!("i{}", number / 2) } else { format!("i{number}") };
        let held: Vec<_> =
            run.actions().filter(|action| matches!(action.life, Life::Held { .. })).map(|action| action.id).collect();
        let doubted: Vec<_> = run.uncertain().map(|action| action.id).collect();
        let body = match chance.below(100) {
            0..15 => Some(InputBody::Message(format!("message {number}"))),
            15..55 if !held.is_empty() => {
                let action = *chance.pick(&held);
                let yes = chance.percent(75);
                let mut body = town.verdict(&run, action, yes);
                if let Some(InputBody::Approve(approve)) = &mut body {
                    if chance.percent(15) {
                        approve.digest = Digest::of(b"another question");
                    }
                    if chance.percent(20) {
                        approve.covers = Covers::Always;
                    }
                }
                body
            }
            55..75 if !doubted.is_empty() => town.settlement(&run, *chance.pick(&doubted)),
            75..77 => Some(InputBody::Cancel),
            77..84 => Some(InputBody::Raise(Raise {
                turns: chance.below(4),
                model_calls: chance.below(4),
                tool_calls: chance.below(4),
                tokens: chance.below(10_000),
                time_ms: chance.below(60_000),
                ..Raise::default()
            })),
            84..86 => {
                let mut model = ModelSpec::plain(ModelName::new("sim/other"), chance.between(20, 2000));
                model.context_limit = chance.percent(30).then(|| chance.between(1_000, 20_000));
                Some(InputBody::SwitchModel(model))
            }
            86..88 => {
                let source = format!("{}.test", chance.pick(&["look", "list", "ship"]));
                Some(InputBody::Endorse(Endorse { source, by: "ann".to_owned(), door: Door::Cli }))
            }
            _ => None,
        };
        if let Some(body) = body {
            town.store.post(&id, &name, body).await;
        }
    }
}

/// The weather is clear: with honest answers, the run must come to rest soon.
pub async fn come_to_rest(town: &Arc<Town>, id: &RunId, task: Task) {
    town.record.note("--", &format!("calm for {id}"));
    for round in 0..40 {
        let process = town.process("h1");
        let begin = begin(town, id, &task);
        match town.drive(&process, id, begin, WhenAsked::Park, Stop::new()).await {
            Drove::Died | Drove::Hung => {}
            Drove::Back(Ok(driven)) => match driven.standing {
                Standing::Rested(_) => {
                    let inbox = town.store.memory().inbox(id).await.unwrap_or_default();
                    if inbox.is_empty() {
                        return;
                    }
                }
                Standing::Parked(waits) => {
                    let answers = town.answer(id, &waits, true, &format!("calm{round}")).await;
                    if answers == 0 {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                    }
                }
                Standing::Suspended(..) => {}
            },
            Drove::Back(Err(_)) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
    }
    let rests = town.store.run(id).is_some_and(|run| matches!(run.stage, Stage::Rest(_)));
    if !rests {
        laws::law_11(town, id);
    }
}
