//! What it costs to decide on a request and to put it together, apart from everything else a worker does: the journal of a
//! run is folded again, and before each request of it the same three steps are taken and timed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use longrein::core::context::estimate::Estimator;
use longrein::core::context::meter::Meter;
use longrein::core::context::plan::plan;
use longrein::core::context::render::render;
use longrein::core::event::Event;
use longrein::core::ids::{RunId, Seq};
use longrein::core::prompt::ToolDef;
use longrein::core::run::Run;
use longrein::core::time::Timestamp;
use longrein::ports::{Journal, RecordedBody};
use longrein_store::{SqliteJournal, SystemClock};

/// The least of so many is taken of each: a busy machine only adds to it.
const REPEATS: usize = 5;
const PAGE: usize = 2_000;

pub(crate) fn print(store: &Path, run: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let events = runtime.block_on(events(store, run))?;
    let mut best = Times::default();
    for _ in 0..REPEATS {
        best.least(fold(&events)?);
    }
    let Times { requests, rebuilds } = best;
    println!("  deciding on a request and making it, of {} requests, least of {REPEATS}", requests.len());
    println!("    at most 1 ms p99, flat           {}", spread(&requests));
    let tenth = (requests.len() / 10).max(1);
    let by_tenth: Vec<_> = requests.chunks(tenth).take(10).map(|part| micros(percentile(part, 50))).collect();
    println!("    median by tenth                  {}", by_tenth.join(" "));
    println!("    of {} rebuilds, at most 50 ms     {}", rebuilds.len(), spread(&rebuilds));
    Ok(())
}

#[derive(Default)]
struct Times {
    requests: Vec<Duration>,
    rebuilds: Vec<Duration>,
}

impl Times {
    fn least(&mut self, other: Times) {
        let join = |ours: &mut Vec<Duration>, other: Vec<Duration>| {
            if ours.is_empty() {
                *ours = other;
            } else {
                for (ours, other) in ours.iter_mut().zip(other) {
                    *ours = other.min(*ours);
                }
            }
        };
        join(&mut self.requests, other.requests);
        join(&mut self.rebuilds, other.rebuilds);
    }
}

async fn events(store: &Path, run: &str) -> anyhow::Result<Vec<(Seq, Timestamp, Event)>> {
    let journal = SqliteJournal::open(store, Arc::new(SystemClock::default()))?;
    let run = RunId::new(run);
    let mut events = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |(seq, _, _)| *seq);
        let page = journal.read(&run, after, PAGE).await?;
        if page.is_empty() {
            return Ok(events);
        }
        for record in page {
            let RecordedBody::Known(event) = record.body else { bail!("event {} cannot be read", record.seq) };
            events.push((record.seq, record.at, event));
        }
    }
}

fn fold(events: &[(Seq, Timestamp, Event)]) -> anyhow::Result<Times> {
    let Some((_, at, Event::RunStarted(started))) = events.first() else { bail!("the journal has no start") };
    let mut run = Run::new(started, *at);
    let tools: Arc<[ToolDef]> = started.task.tools.iter().map(definition).collect();
    let mut meter = Meter::new(Estimator::new(), None, &run.system, &tools);
    let mut times = Times::default();
    for (seq, at, event) in events.iter().skip(1) {
        let began = Instant::now();
        if let Event::ModelRequested(requested) = event {
            meter.measure(&run);
            let planned = plan(&run, &meter, requested.purpose, *at);
            let prompt = render(&run, requested.purpose, Arc::clone(&tools), requested.reserved.output);
            times.requests.push(began.elapsed());
            drop((planned, prompt));
            run.apply(*seq, *at, event);
        } else if let Event::GenerationStarted(_) = event {
            // As it is decided on, and as it is carried out.
            meter.measure(&run);
            let planned = plan(&run, &meter, longrein::core::owed::purpose(&run), *at);
            run.apply(*seq, *at, event);
            meter.measure(&run);
            times.rebuilds.push(began.elapsed());
            drop(planned);
        } else {
            run.apply(*seq, *at, event);
        }
    }
    if times.requests.is_empty() {
        Err(anyhow::anyhow!("no request")).context("the journal has none")
    } else {
        Ok(times)
    }
}

fn definition(tool: &longrein::core::task::ToolSpec) -> ToolDef {
    ToolDef { name: tool.name.clone(), description: tool.description.clone(), parameters: tool.parameters.clone() }
}

fn spread(times: &[Duration]) -> String {
    let longest = times.iter().max().copied().unwrap_or_default();
    let [half, most] = [50, 99].map(|part| micros(percentile(times, part)));
    format!("p50 {half} µs, p99 {most} µs, longest {} µs", micros(longest))
}

fn percentile(times: &[Duration], part: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get((times.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

fn micros(time: Duration) -> String {
    time.as_micros().to_string()
}
