//! Who decides in a simulation: the gate's table, the checks, and the model. Each can be scripted or left to chance; the
//! model may be hostile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::action::Attempt;
use longrein_core::budget::Usage;
use longrein_core::check::{Accepted, Finding, Judgement, Proof, Standing, Verdict};
use longrein_core::context::note::{Note, NoteKind};
use longrein_core::ids::{CheckName, Digest, EvidenceId, ModelName, ToolName};
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply, Served};
use longrein_core::payload::{Content, Payload};
use longrein_core::prompt::{AnswerForm, Item, Prompt, ToolDef};
use longrein_core::ruling::Ruling;
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark};
use longrein_core::task::{AnswerSpec, CheckSpec, Guard, Task};
use longrein_ports::{
    ActionCheck, BoxFuture, Changed, CheckRun, Checked, Checks, Cited, Encoded, Gate, GateCall, GuardInput, Model,
    Ruled,
};

use crate::chance::Chance;
use crate::process::Process;
use crate::store::Store;
use crate::world::World;

// ---- the gate ----

/// A ruling without its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Say {
    Allow,
    Ask,
    Deny,
}

/// The operator's rules, by tool; allowed where nothing is said.
#[derive(Default)]
pub struct Rules {
    table: Mutex<BTreeMap<ToolName, Say>>,
    honours_keys: Mutex<BTreeSet<ToolName>>,
    /// Tools whose results anybody may have written.
    untrusted: Mutex<BTreeSet<ToolName>>,
}

impl Rules {
    pub fn set(&self, tool: &str, say: Say) {
        self.table().insert(ToolName::new(tool), say);
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<ToolName, Say>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on anybody may have written what this tool returns.
    pub fn set_untrusted(&self, tool: &str) {
        self.untrusted.lock().unwrap_or_else(PoisonError::into_inner).insert(ToolName::new(tool));
    }

    /// What the results of a tool bring.
    pub fn brings(&self, tool: &ToolName) -> Option<Mark> {
        let untrusted = self.untrusted.lock().unwrap_or_else(PoisonError::into_inner).contains(tool);
        let label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Public };
        untrusted.then(|| Mark { label, source: format!("{tool}.test") })
    }

    /// The receiver of this tool recognises idempotency keys.
    pub fn set_honours_keys(&self, tool: &ToolName) {
        self.honours_keys.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.clone());
    }

    pub fn honours_keys(&self, tool: &ToolName) -> bool {
        self.honours_keys.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    fn rule(&self, tool: &ToolName) -> Ruling {
        let rule = format!("table {tool}");
        match self.table().get(tool).copied().unwrap_or(Say::Allow) {
            Say::Allow => Ruling::Allow { rule },
            Say::Ask => Ruling::Ask { rule, reason: "it is asked about".to_owned() },
            Say::Deny => Ruling::Deny { rule, reason: "it is forbidden".to_owned() },
        }
    }

    /// What the rules say when an attempt reaches the world. They change only while nobody drives.
    pub fn ruling_at_start(&self, attempt: &Attempt) -> Ruling {
        self.rule(&attempt.tool)
    }
}

/// The rules as one process reads them.
pub struct Guardian {
    pub rules: Arc<Rules>,
    pub process: Arc<Process>,
}

impl Gate for Guardian {
    fn rule(&self, call: &GateCall<'_>) -> Ruled {
        self.process.glance();
        let brings = self.rules.brings(&call.tool.name).into_iter().collect();
        Ruled { brings, ..Ruled::plain(self.rules.rule(&call.tool.name)) }
    }
}

// ---- the checks ----

/// What a check finds, looked up when it runs.
type Look = Box<dyn Fn() -> Finding + Send>;

/// How checks end: as somebody looks, scripted by name, else by chance, else passed.
#[derive(Default)]
pub struct Bench {
    inner: Mutex<BenchInner>,
}

#[derive(Default)]
struct BenchInner {
    looks: BTreeMap<CheckName, Look>,
    script: BTreeMap<CheckName, Vec<Finding>>,
    chance: Option<Chance>,
    runs: BTreeMap<CheckName, u32>,
    /// Checks whose programs are not what was pinned.
    changed: BTreeSet<CheckName>,
    /// Checks that write into the workspace they judge.
    writing: BTreeSet<CheckName>,
    /// Checks after which somebody else changes the workspace, once.
    stirred: BTreeSet<CheckName>,
}

impl Bench {
    fn inner(&self) -> MutexGuard<'_, BenchInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn script(&self, check: &str, findings: impl IntoIterator<Item = Finding>) {
        self.inner().script.insert(CheckName::new(check), findings.into_iter().collect());
    }
    pub fn change_program(&self, check: &str) {
        self.inner().changed.insert(CheckName::new(check));
    }
    pub fn is_followed_by_an_edit(&self, check: &str) {
        self.inner().stirred.insert(CheckName::new(check));
    }
    pub fn writes(&self, check: &str) {
        self.inner().writing.insert(CheckName::new(check));
    }
    /// From now on this check finds what is there when it runs.
    pub fn look(&self, check: &str, look: impl Fn() -> Finding + Send + 'static) {
        self.inner().looks.insert(CheckName::new(check), Box::new(look));
    }
    pub fn go_wild(&self, chance: Chance) {
        self.inner().chance = Some(chance);
    }
    pub fn calm_down(&self) {
        let mut inner = self.inner();
        inner.chance = None;
        inner.changed.clear();
        inner.writing.clear();
        inner.script.clear();
    }
    /// How often a check was run to its end.
    pub fn runs_of(&self, check: &str) -> u32 {
        self.inner().runs.get(&CheckName::new(check)).copied().unwrap_or(0)
    }
}

/// The checks as one process runs them.
pub struct Judge {
    pub bench: Arc<Bench>,
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

impl Checks for Judge {
    fn guard(&self, _: &Guard, _: &GuardInput<'_>) -> Result<(), String> {
        self.process.glance();
        Ok(())
    }

    fn cites(&self, _: &AnswerSpec, _: &str) -> Vec<EvidenceId> {
        Vec::new()
    }

    /// An answer that begins with "refuse" is refused; where a form is asked for, it counts.
    fn judge(&self, spec: Option<&AnswerSpec>, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement {
        self.process.glance();
        if let Some(spec) = spec {
            return longrein_rules::Rulebook::default().judge(Some(spec), text, cited);
        }
        if text.starts_with("refuse") {
            return Judgement::Refused("it says refuse".to_owned());
        }
        Judgement::Accepted(Accepted {
            answer: Payload::string(text),
            rendered: text.to_owned(),
            evidence: Vec::new(),
            standing: Standing::Claimed,
        })
    }

    fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String> {
        self.process.glance();
        longrein_rules::program::condition(condition, values)
    }

    fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String> {
        self.process.glance();
        longrein_rules::program::fill(template, values)
    }

    fn check<'a>(&'a self, _: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked> {
        let folder = format!("/town/{}", check.run);
        Box::pin(async move {
            let name = check.spec.name;
            let checked = self.look(name.clone()).await;
            let stirs = self.bench.inner().stirred.remove(&name);
            if stirs {
                self.world.stir();
            }
            if self.bench.inner().writing.contains(&name) {
                let times = self.bench.runs_of(name.as_str());
                self.world.meddle(&folder, &format!("person/{name}"), Some(&times.to_string()));
            }
            checked
        })
    }

    fn changed(&self, spec: &CheckSpec) -> Option<Changed> {
        self.process.glance();
        let changed = self.bench.inner().changed.contains(&spec.name);
        changed.then(|| Changed { file: format!("{}.sh", spec.name), content: Some(Digest::of(b"changed")) })
    }

    /// Here a pattern is a folder and `/**`.
    fn protected(&self, spec: &CheckSpec, mut paths: Vec<String>) -> Vec<String> {
        self.process.glance();
        let folders: Vec<_> = spec.protect.iter().map(|pattern| pattern.trim_end_matches("**")).collect();
        paths.retain(|path| folders.iter().any(|folder| path.starts_with(folder)));
        paths
    }

    fn check_action<'a>(&'a self, _: &'a Task, check: ActionCheck) -> BoxFuture<'a, Checked> {
        Box::pin(self.look(CheckName::new(check.attempt.tool.as_str())))
    }
}

impl Judge {
    async fn look(&self, name: CheckName) -> Checked {
        self.process.call(&format!("check {}", name)).await;
        let (wait, finding) = {
            let mut inner = self.bench.inner();
            let scripted = inner.script.get_mut(&name).filter(|left| !left.is_empty());
            let scripted = scripted.map(|left| if left.len() > 1 { left.remove(0) } else { left[0] });
            let scripted = inner.looks.get(&name).map(|look| look()).or(scripted);
            match (&mut inner.chance, scripted) {
                (_, Some(finding)) => (Duration::from_millis(30), finding),
                (Some(chance), None) => {
                    let finding = if chance.percent(70) { Finding::Passed } else { Finding::Failed };
                    (chance.millis(1, 4000), finding)
                }
                (None, None) => (Duration::from_millis(30), Finding::Passed),
            }
        };
        tokio::time::sleep(wait).await;
        self.process.pass().await;
        *self.bench.inner().runs.entry(name.clone()).or_default() += 1;
        self.process.call(&format!("checked {} {finding:?}", name)).await;
        let exit = match finding {
            Finding::Passed => 0,
            Finding::Failed | Finding::Held => 1,
        };
        Checked {
            verdict: Verdict {
                finding,
                evidence: Content::Inline(Payload::string("what the check printed")),
                exit_status: Some(exit),
                took_ms: longrein_core::time::millis(wait),
                proof: Proof::default(),
            },
            blobs: Vec::new(),
        }
    }
}

// ---- the model ----

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub struct Answer {
    pub after: Duration,
    pub reply: Result<Reply, ModelFailure>,
}

impl Answer {
    pub fn say(text: &str) -> Self {
        Self::of(Reply {
            text: text.to_owned(),
            calls: Vec::new(),
            finish: Finish::Stop,
            usage: None,
            repaired: None,
            wired: None,
        })
    }

    /// Calls, each a tool and its arguments.
    pub fn call(calls: &[(&str, &str)]) -> Self {
        let calls = calls
            .iter()
            .enumerate()
            .map(|(index, (name, arguments))| RawCall {
                id: format!("c{index}"),
                name: (*name).to_owned(),
                arguments: (*arguments).to_owned(),
            })
            .collect();
        Self::of(Reply {
            text: String::new(),
            calls,
            finish: Finish::ToolCalls,
            usage: None,
            repaired: None,
            wired: None,
        })
    }

    pub fn of(reply: Reply) -> Self {
        Self { after: Duration::from_millis(100), reply: Ok(reply) }
    }

    pub fn fail(class: ModelErrorClass) -> Self {
        let failure = ModelFailure {
            class,
            message: format!("{class:?}"),
            status: None,
            retry_after_s: None,
            billing: Billing::Nothing,
            usage: None,
            partial: None,
            served: None,
        };
        Self { after: Duration::from_millis(100), reply: Err(failure) }
    }

    /// The request is too long, and this is what the server says of its limits.
    pub fn too_long(served: Option<Served>) -> Self {
        let mut answer = Self::fail(ModelErrorClass::ContextExhausted);
        if let Err(failure) = &mut answer.reply {
            failure.served = served;
        }
        answer
    }
}

/// How the model's tokens are counted in truth, and how many it takes.
#[derive(Debug, Clone)]
pub struct Counts {
    /// Tokens of a thousand bytes.
    pub density: u64,
    /// What it takes, request and reply together, where that is less than its name promises.
    pub served: BTreeMap<ModelName, u64>,
    /// It says how much it takes when it refuses.
    pub says_limit: bool,
}

/// A request as it was encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub system: String,
    pub items: Arc<Vec<Arc<Item>>>,
    pub tail: Option<String>,
    pub tools: Arc<[ToolDef]>,
    pub max_output: u64,
    /// The last words of a budget.
    pub is_closing: bool,
}

impl Sent {
    fn of(prompt: &Prompt) -> Self {
        Self {
            system: prompt.system.to_string(),
            items: Arc::clone(&prompt.items),
            tail: prompt.tail.clone(),
            tools: Arc::clone(&prompt.tools),
            max_output: prompt.max_output,
            is_closing: prompt.answer == AnswerForm::Remark,
        }
    }

    /// Its tokens by a tokenizer of so many tokens in a thousand bytes.
    pub fn tokens(&self, density: u64) -> u64 {
        let items: usize = self
            .items
            .iter()
            .map(|item| match item.as_ref() {
                Item::User(text)
                | Item::Pictured { text, images: _ }
                | Item::Exhibit { text, images: _ }
                | Item::Harness(text)
                | Item::Observation { text, .. } => text.len() + 12,
                Item::Assistant { text, calls, wired: _ } => {
                    let calls = calls.iter().map(|call| call.name.len() + call.arguments.len() + 16);
                    text.len() + 12 + calls.sum::<usize>()
                }
            })
            .sum();
        let tools = self
            .tools
            .iter()
            .map(|tool| tool.name.as_str().len() + tool.description.len() + tool.parameters.as_str().len() + 12);
        let bytes = self.system.len() + items + tools.sum::<usize>() + self.tail.as_ref().map_or(0, String::len);
        bytes as u64 * density / 1_000
    }

    /// What tells one run's conversation from another's: children of one parent differ in their goals only.
    pub fn head(&self) -> String {
        match self.items.first().map(Arc::as_ref) {
            Some(Item::User(goal) | Item::Pictured { text: goal, images: _ }) => format!("{}\n{goal}", self.system),
            Some(Item::Harness(_) | Item::Exhibit { .. } | Item::Observation { .. } | Item::Assistant { .. })
            | None => self.system.clone(),
        }
    }

    /// Everything the model reads, in order.
    pub fn text(&self) -> String {
        let mut text = self.system.clone();
        for item in self.items.iter() {
            text.push('\n');
            match item.as_ref() {
                Item::User(words)
                | Item::Pictured { text: words, images: _ }
                | Item::Exhibit { text: words, images: _ }
                | Item::Harness(words)
                | Item::Observation { text: words, .. } => {
                    text.push_str(words);
                }
                Item::Assistant { text: words, calls, wired: _ } => {
                    text.push_str(words);
                    for call in calls {
                        text.push('\n');
                        text.push_str(&call.arguments);
                    }
                }
            }
        }
        text.push('\n');
        text.push_str(self.tail.as_deref().unwrap_or_default());
        text
    }
}

/// The model behind all processes, and what it was ever sent.
pub struct Brain {
    store: Arc<Store>,
    inner: Mutex<BrainInner>,
}

/// Answers by position, and how often each position was asked.
type Script = (Vec<Vec<Answer>>, BTreeMap<u64, usize>);

#[derive(Default)]
struct BrainInner {
    /// By position in the conversation, then by how often that position was asked; the last ones stay.
    script: Vec<Vec<Answer>>,
    asked: BTreeMap<u64, usize>,
    /// Of conversations with these words in their system text or goal, instead: each as the two before.
    scripts: BTreeMap<String, Script>,
    wild: Option<(Chance, Vec<String>)>,
    prompts: BTreeMap<Digest, Arc<Sent>>,
    /// What was sent last, by system text and goal (one run, one conversation), and in which generation.
    sent: BTreeMap<String, (u32, Vec<Arc<Item>>)>,
    counts: Option<Counts>,
    sends: u64,
    last: Option<Arc<Sent>>,
}

impl Brain {
    pub fn new(store: &Arc<Store>) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), inner: Mutex::default() })
    }
    fn inner(&self) -> MutexGuard<'_, BrainInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One answer for each turn.
    pub fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        self.inner().script = answers.into_iter().map(|answer| vec![answer]).collect();
    }
    /// One answer for each turn of the run whose system text or goal has these words.
    pub fn script_of(&self, words: &str, answers: impl IntoIterator<Item = Answer>) {
        let script = answers.into_iter().map(|answer| vec![answer]).collect();
        self.inner().scripts.insert(words.to_owned(), (script, BTreeMap::new()));
    }
    /// The answers of a turn, one after the other, as its call is repeated.
    pub fn script_attempts(&self, turns: impl IntoIterator<Item = Vec<Answer>>) {
        self.inner().script = turns.into_iter().collect();
    }
    /// From now on it answers at random, calling these tools among others.
    pub fn go_wild(&self, chance: Chance, tools: Vec<String>) {
        self.inner().wild = Some((chance, tools));
    }
    /// From now on it has only one thing to say.
    pub fn calm_down(&self) {
        let mut inner = self.inner();
        inner.wild = None;
        inner.script = vec![vec![Answer::say("That is all.")]];
    }
    pub fn sends(&self) -> u64 {
        self.inner().sends
    }
    /// The request that was sent last.
    pub fn last_sent(&self) -> Option<Arc<Sent>> {
        self.inner().last.clone()
    }
    /// The request with that digest, as it was encoded.
    pub fn request(&self, digest: &Digest) -> Option<Arc<Sent>> {
        self.inner().prompts.get(digest).cloned()
    }
    /// From now on it counts: reports what it counted, and refuses what is too long.
    pub fn count(&self, counts: Counts) {
        self.inner().counts = Some(counts);
    }
    pub fn counts(&self) -> Option<Counts> {
        self.inner().counts.clone()
    }

    /// What comes back for a request: a refusal if it is too long, else as it is scripted or left to chance.
    fn answer(&self, model: &ModelName, digest: &Digest, position: u64, bytes: u64) -> Answer {
        let sent = self.request(digest);
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.sends += 1;
        let mut answer = inner.next(position, bytes, sent.as_deref());
        if let (Some(counts), Some(sent)) = (&inner.counts, &sent) {
            let prompt = sent.tokens(counts.density);
            let takes = counts.served.get(model).copied().unwrap_or(u64::MAX);
            if prompt + sent.max_output > takes {
                let served = Served { limit: Some(takes), prompt: Some(prompt), ..Served::default() };
                answer = Answer { after: answer.after, ..Answer::too_long(counts.says_limit.then_some(served)) };
            }
            if let Ok(Reply { usage: Some(usage), .. }) = &mut answer.reply {
                *usage = Usage { input: prompt, output: usage.output.min(sent.max_output), ..Usage::default() };
            }
        }
        answer
    }
}

impl BrainInner {
    fn next(&mut self, position: u64, bytes: u64, sent: Option<&Sent>) -> Answer {
        let inner = self;
        if let Some((chance, tools)) = &mut inner.wild {
            let known = sent.map(known_ids).unwrap_or_default();
            return wild(chance, tools, &known, position, bytes, inner.counts.is_some());
        }
        let own = inner.scripts.iter_mut().find(|(words, _)| sent.is_some_and(|sent| sent.head().contains(*words)));
        let (script, asked) = match own {
            Some((_, (script, asked))) => (&*script, asked),
            None => (&inner.script, &mut inner.asked),
        };
        let asked = asked.entry(position).or_default();
        let nth = *asked;
        *asked += 1;
        let index = usize::try_from(position).unwrap_or(usize::MAX);
        let attempts = script.get(index).or(script.last());
        attempts
            .and_then(|attempts| attempts.get(nth).or(attempts.last()))
            .cloned()
            .unwrap_or_else(|| Answer::say("Nothing more."))
    }
}

/// The model as one process calls it.
pub struct Line {
    pub brain: Arc<Brain>,
    pub process: Arc<Process>,
}

impl Model for Line {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.process.glance();
        if let Err(what) = pairing(&prompt.items) {
            self.process.record.breach("law_4", what);
        }
        let tools: Vec<_> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
        let Prompt { system, items, tail, max_output, .. } = prompt;
        let text = format!("{system}\n{}\n{items:?}\n{tail:?}\n{max_output}", tools.join(" "));
        let digest = Digest::of(text.as_bytes());
        self.brain.inner().prompts.insert(digest.clone(), Arc::new(Sent::of(prompt)));
        Encoded { bytes: Bytes::from(text), digest, position: prompt.position, answer: prompt.answer.clone() }
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            self.process.call("send").await;
            let record = &self.process.record;
            let journaled = self.brain.store.shadow().runs.values().find_map(|run| run.synced_request(&request.digest));
            if journaled.is_none() {
                record.breach("law_5", "a request is sent before it is synced".to_owned());
            }
            let (model, generation) = journaled.unwrap_or_else(|| (ModelName::new("none"), 0));
            {
                let mut guard = self.brain.inner();
                let inner = &mut *guard;
                if let Some(sent) = inner.prompts.get(&request.digest).cloned() {
                    let (of, before) = inner.sent.entry(sent.head()).or_default();
                    let (items, same) = (&sent.items, before.iter().zip(sent.items.iter()).all(|(a, b)| a == b));
                    // Between generations everything may change.
                    if *of == generation && !(before.len() <= items.len() && same) {
                        record.breach(
                            "law_4",
                            "what was sent before is not the beginning of what is sent now".to_owned(),
                        );
                    }
                    (*of, *before) = (generation, items.to_vec());
                    inner.last = Some(sent);
                }
            }
            if self.brain.store.shadow().runs.values().any(|run| run.was_too_long(&model, &request.digest)) {
                record.breach("law_6", "what was refused as too long is sent again".to_owned());
            }
            let answer = self.brain.answer(&model, &request.digest, request.position, request.bytes.len() as u64);
            tokio::time::sleep(answer.after).await;
            let word = match &answer.reply {
                Ok(reply) => {
                    let calls: Vec<_> = reply.calls.iter().map(|call| call.name.as_str()).collect();
                    format!("reply {:?} [{}]", reply.finish, calls.join(" "))
                }
                Err(failure) => format!("reply failed {:?}", failure.class),
            };
            self.process.call(&word).await;
            answer.reply
        })
    }
}

/// Every call has exactly one observation, in call order, before the next reply; ids are unique; no orphans.
pub fn pairing(items: &[Arc<Item>]) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let mut owed: Vec<String> = Vec::new();
    let mut observed = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        match item.as_ref() {
            Item::Observation { call, action, .. } => {
                if !observed.insert(*action) {
                    return Err(format!("item {at}: a second observation of {action}"));
                }
                if owed.is_empty() || owed.remove(0) != *call {
                    return Err(format!("item {at}: the observation of {call} is an orphan or out of order"));
                }
            }
            Item::Assistant { calls, .. } => {
                if let Some(call) = owed.first() {
                    return Err(format!("item {at}: {call} has no observation before the next reply"));
                }
                for call in calls {
                    if call.id.is_empty() || !ids.insert(call.id.clone()) {
                        return Err(format!("item {at}: the call id \"{}\" is empty or used twice", call.id));
                    }
                    owed.push(call.id.clone());
                }
            }
            Item::User(_) | Item::Pictured { .. } | Item::Exhibit { .. } | Item::Harness(_) => {
                if let Some(call) = owed.first() {
                    return Err(format!("item {at}: words stand between a call and the observation of {call}"));
                }
            }
        }
    }
    match owed.first() {
        Some(call) => Err(format!("the request ends without an observation of {call}")),
        None => Ok(()),
    }
}

/// Ids of messages and notes that stand in a request.
fn known_ids(sent: &Sent) -> Vec<String> {
    let mut ids = Vec::new();
    for item in sent.items.iter() {
        let (text, from, to) = match item.as_ref() {
            Item::User(text) | Item::Pictured { text, images: _ } => (text, "<longrein id=\"", '"'),
            Item::Observation { text, .. } => (text, "\"data\":{\"id\":\"", '"'),
            Item::Harness(_) | Item::Exhibit { .. } | Item::Assistant { .. } => continue,
        };
        let rest = text.split_once(from).and_then(|(_, rest)| rest.split_once(to));
        ids.extend(rest.map(|(id, _)| id.to_owned()));
    }
    ids
}

/// Anything a model or its provider may do. One that counts tends to work longer.
fn wild(chance: &mut Chance, tools: &[String], known: &[String], position: u64, bytes: u64, counts: bool) -> Answer {
    let after = if chance.percent(10) { chance.millis(1_000, 40_000) } else { chance.millis(10, 3_000) };
    let usage = chance.percent(60).then(|| Usage {
        input: bytes / chance.between(3, 6),
        cached: chance.below(100),
        output: chance.between(1, 200),
        ..Usage::default()
    });
    let mut reply =
        Reply { text: String::new(), calls: Vec::new(), finish: Finish::Stop, usage, repaired: None, wired: None };
    let ending = if counts { 2 + position.min(20) } else { 10 + position.min(12) * 3 };
    let failed = |class, after| Answer { after, ..Answer::fail(class) };
    match chance.below(100) {
        0..6 => {
            let class =
                *chance.pick(&[ModelErrorClass::Transient, ModelErrorClass::RateLimited, ModelErrorClass::Overloaded]);
            let mut answer = failed(class, after);
            if let Err(failure) = &mut answer.reply {
                failure.retry_after_s = chance.percent(30).then(|| chance.between(1, 200));
                failure.billing = if chance.percent(50) { Billing::Perhaps } else { Billing::Nothing };
            }
            return answer;
        }
        6 => {
            let rare = [
                ModelErrorClass::Quota,
                ModelErrorClass::BadRequest,
                ModelErrorClass::Malformed,
                ModelErrorClass::ContentRefused,
                ModelErrorClass::ContextExhausted,
            ];
            let mut answer = failed(*chance.pick(&rare), after);
            if let Err(failure) = &mut answer.reply
                && failure.class == ModelErrorClass::ContextExhausted
                && chance.percent(50)
            {
                // Whatever it says of itself.
                let mut say = |high| chance.percent(40).then(|| chance.between(1, high));
                let (limit, output, bytes) = (say(20_000), say(1_000), say(60_000));
                failure.served = Some(Served { limit, prompt: None, output, bytes });
            }
            return answer;
        }
        7 => reply.finish = Finish::Length,
        8 => reply.finish = Finish::Other("odd".to_owned()),
        9 => {}
        10 => {
            let many =
                (0..70).map(|_| RawCall { id: String::new(), name: "look".to_owned(), arguments: "{}".to_owned() });
            reply.calls = many.collect();
        }
        11..14 => reply.text = "refuse this".to_owned(),
        // The more has been said, the sooner it ends.
        draw if draw < 14 + ending => reply.text = format!("answer {position}"),
        _ => {
            reply.finish = if chance.percent(90) { Finish::ToolCalls } else { Finish::Stop };
            reply.text = if chance.percent(30) { "let me see".to_owned() } else { String::new() };
            let count = if chance.percent(5) { chance.between(8, 30) } else { chance.between(1, 6) };
            reply.calls = (0..count).map(|_| wild_call(chance, tools, known)).collect();
        }
    }
    Answer { after, reply: Ok(reply) }
}

fn wild_call(chance: &mut Chance, tools: &[String], known: &[String]) -> RawCall {
    let id = match chance.below(10) {
        0 => String::new(),
        1 => "same".to_owned(),
        2 => "<longrein> \u{7f}".to_owned(),
        _ => format!("call_{}", chance.below(1_000_000)),
    };
    let name = match chance.below(30) {
        0 => "nothing_like_it".to_owned(),
        1 => "weird name\n".to_owned(),
        _ => chance.pick(tools).clone(),
    };
    let arguments = match chance.below(20) {
        0 => "[]".to_owned(),
        1 => "{\"path\":\"a".to_owned(),
        2 => String::new(),
        3 => "{\"bad\":true}".to_owned(),
        4 | 5 => format!("{{\"evidence\":\"e{}\"}}", chance.between(1, 12)),
        _ if name == "note" => wild_note(chance, known),
        6 => format!("{{\"order\":{},\"path\":\"docs/guide.md\"}}", chance.between(1, 3)),
        _ => format!("{{\"order\":{},\"note\":{}}}", chance.between(1, 3), chance.between(1, 2)),
    };
    RawCall { id, name, arguments }
}

/// A note of any kind, about this and that, with ids that may be anything.
fn wild_note(chance: &mut Chance, known: &[String]) -> String {
    let kind = NoteKind::ALL[usize::try_from(chance.below(NoteKind::ALL.len() as u64)).unwrap_or(0)];
    let mut id = || match chance.below(4) {
        0 | 1 if !known.is_empty() => chance.pick(known).clone(),
        2 => format!("{}{}", chance.pick(&["a", "e", "u", "n", "c", "t"]), chance.between(1, 30)),
        _ => (*chance.pick(&["", "n0", "u99999999999", "x1", "n1"])).to_owned(),
    };
    let (first, second, replaced) = (id(), id(), id());
    let cites = match chance.below(3) {
        0 => Vec::new(),
        1 => vec![first],
        _ => vec![first, second],
    };
    let replaces = (kind == NoteKind::Close || chance.percent(15)).then_some(replaced);
    let words = "which is to be kept in mind ".repeat(usize::try_from(chance.below(4)).unwrap_or(0));
    let text = format!("{} {} {words}", kind.as_str(), chance.number());
    let note = Note { kind, text, replaces, cites };
    serde_json::to_string(&note).expect("a note has only string keys")
}
