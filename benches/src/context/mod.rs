//! What a long run keeps in view and what that costs: the real binary, a scripted model behind a server that counts with a
//! real tokenizer, and a judge that looks at every request as it arrives.
//!
//! Read [`plan`] for what happens in a run, [`judge`] for what is measured, [`report`] for the goals.

mod agent;
mod assembly;
mod judge;
mod operator;
mod plan;
mod report;
mod request;
mod wire;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use agent::{Agent, Chaos, Manners, Summariser};
use operator::{Builtins, Operator, Setting, Start};
use plan::{Extras, SIZES, Size};
use wire::Wording;

/// What is asked for on the command line.
pub(crate) struct Options {
    size: Size,
    /// Another window than the plan was made for.
    window: Option<u64>,
    /// Less than is declared.
    served: Option<u64>,
    seed: u64,
    chaos: BTreeSet<Chaos>,
    extras: Extras,
    idle_tools: usize,
    vocabulary: String,
    wording: Wording,
    summariser: Summariser,
    trigger: Option<String>,
    keep: bool,
}

pub(crate) const USAGE: &str = "--only context [--size S|M|L|W] [--window TOKENS] [--served TOKENS] [--seed N] [--chaos kill,gap,limit] \
    [--tools N] [--images yes] [--vocabulary o200k_base|llama3|qwen2] [--wording openai|anthropic|llamacpp|bytes] \
    [--summariser garbage|hostile] [--trigger economic|0.80] [--keep yes]";

impl Default for Options {
    fn default() -> Self {
        Self {
            size: SIZES[0],
            window: None,
            served: None,
            seed: 1,
            chaos: BTreeSet::new(),
            extras: Extras::default(),
            idle_tools: 0,
            vocabulary: "o200k_base".to_owned(),
            wording: Wording::OpenAi,
            summariser: Summariser::Garbage,
            trigger: None,
            keep: false,
        }
    }
}

impl Options {
    /// Takes a flag; false: it is not one of these.
    pub(crate) fn set(&mut self, flag: &str, value: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<bool> {
        match flag {
            "--size" => {
                let value = value()?;
                let size = SIZES.into_iter().find(|size| size.name == value);
                self.size = size.with_context(|| format!("there is no size {value}"))?;
            }
            "--window" => self.window = Some(value()?.parse()?),
            "--served" => self.served = Some(value()?.parse()?),
            "--seed" => self.seed = value()?.parse()?,
            "--chaos" => {
                for name in value()?.split(',') {
                    self.chaos.insert(named(&Chaos::ALL, name)?);
                }
            }
            "--tools" => self.idle_tools = value()?.parse()?,
            "--images" => self.extras.images = value()? == "yes",
            "--vocabulary" => self.vocabulary = value()?,
            "--wording" => self.wording = named(&Wording::ALL, &value()?)?,
            "--summariser" => self.summariser = named(&Summariser::ALL, &value()?)?,
            "--trigger" => {
                let value = value()?;
                self.trigger = Some(if value.parse::<f64>().is_ok() { value } else { format!("\"{value}\"") });
            }
            "--keep" => self.keep = value()? == "yes",
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn declared(&self) -> u64 {
        self.window.unwrap_or(self.size.window)
    }

    /// Tokens of the longest request that is answered.
    fn served(&self) -> u64 {
        let less = self.chaos.contains(&Chaos::Limit).then(|| self.declared() * 9 / 10);
        self.served.or(less).unwrap_or_else(|| self.declared())
    }

    fn title(&self) -> String {
        let (Size { name, turns, .. }, window) = (self.size, self.declared());
        let mut title =
            format!("context {name}: {turns} turns, window {window}, seed {}, {}", self.seed, self.vocabulary);
        for (name, chaos) in Chaos::ALL {
            if self.chaos.contains(&chaos) {
                title.push_str(&format!(", {name}"));
            }
        }
        if self.served() < self.declared() {
            title.push_str(&format!(", {} served", self.served()));
        }
        if self.idle_tools > 0 {
            title.push_str(&format!(", {} idle tools", self.idle_tools));
        }
        if self.extras.images {
            title.push_str(", images");
        }
        if let Some(trigger) = &self.trigger {
            title.push_str(&format!(", trigger {trigger}"));
        }
        title
    }
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> anyhow::Result<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).with_context(|| format!("{name} is not known; {USAGE}"))
}

/// How a run ended.
pub(crate) struct Ended {
    /// Of the last worker.
    pub(crate) status: i32,
    pub(crate) took: Duration,
    pub(crate) builtins: Builtins,
    pub(crate) last_words: String,
    pub(crate) store_bytes: u64,
    /// Effects carried out more than once.
    pub(crate) done_twice: usize,
    /// Whether less was served than declared, and whether workers were killed.
    pub(crate) short_served: bool,
    pub(crate) killed: bool,
}

/// Runs, prints the table, and fails if something is lost that must not be.
pub(crate) fn print(binary: &Path, options: &Options) -> anyhow::Result<()> {
    let vocabulary = tiktoken::get_encoding(&options.vocabulary);
    let vocabulary = vocabulary.with_context(|| format!("there is no vocabulary {}; {USAGE}", options.vocabulary))?;
    let plan = Arc::new(plan::make(options.size, options.seed, options.extras));
    let mut operator = Operator::new(binary)?;
    if options.keep {
        println!("kept: {}", operator.keep().display());
    }
    let operator = Arc::new(operator);
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let declared = options.declared();
    let setting = Setting { port, declared, idle_tools: options.idle_tools, trigger: options.trigger.clone() };
    let builtins = operator.prepare(&plan, &setting)?;
    let reader = request::Reader::new(vocabulary, &plan.watched);
    let Options { wording, summariser, .. } = *options;
    let served = options.served();
    let manners = Manners { declared, served, wording, chaos: options.chaos.clone(), summariser };
    let agent = Agent::new(Arc::clone(&plan), reader, Arc::clone(&operator), manners);
    let agent = Arc::new(Mutex::new(agent));
    let answering = Arc::clone(&agent);
    std::thread::spawn(move || agent::serve(&listener, &answering));

    let began = Instant::now();
    let status = follow(&operator, &agent)?;
    let mut effects = operator.effects();
    let all = effects.len();
    effects.sort();
    effects.dedup();
    let ended = Ended {
        status,
        took: began.elapsed(),
        builtins,
        last_words: operator.last_words(),
        store_bytes: operator.store_bytes(),
        done_twice: all - effects.len(),
        short_served: served < declared,
        killed: options.chaos.contains(&Chaos::Kill),
    };
    let agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(broken) = &agent.broken {
        bail!("{broken}");
    }
    println!("{}", options.title());
    let missed = report::print(&agent, &plan, &ended);
    assembly::print(&operator.store(), operator::RUN)?;
    if missed > 0 {
        bail!("{missed} of what must hold exactly does not");
    }
    Ok(())
}

/// From the first worker to the last one's end; answers its exit status.
fn follow(operator: &Operator, agent: &Mutex<Agent>) -> anyhow::Result<i32> {
    operator.start(Start::Run)?;
    let look = || agent.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match operator.ended()? {
            Some(KILLED) if look().broken.is_none() => operator.start(Start::Resume)?,
            Some(status) => return Ok(status),
            None if look().heard.elapsed() > PATIENCE => {
                operator.kill_worker()?;
                bail!("no request came for {} s at turn {}", PATIENCE.as_secs(), look().turn);
            }
            None => Operator::pause(),
        }
    }
}

/// What [`Operator::ended`] answers for a worker that was killed: only the benchmark does that.
const KILLED: i32 = -1;
/// No turn takes so long.
const PATIENCE: Duration = Duration::from_secs(120);
