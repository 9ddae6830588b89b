//! What it costs to decide on a request and to put it together, apart from everything else a worker does: the journal of a
//! run is folded again, and before each request of it the same three steps are taken and timed, in CPU time of this thread.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    let part = if requests.len() > 2 * THOUSAND { THOUSAND } else { (requests.len() / 10).max(1) };
    let name = if part == THOUSAND { "by thousand" } else { "by tenth" };
    for (what, of) in [("median", 50), ("p99", 99)] {
        // What is left over is too little to say anything.
        let parts: Vec<_> = requests.chunks_exact(part).map(|part| micros(percentile(part, of))).collect();
        println!("    {:<33}{}", format!("{what} {name}"), parts.join(" "));
    }
    let (first, last) = (requests.chunks_exact(part).nth(1), requests.chunks_exact(part).next_back());
    if let (Some(first), Some(last)) = (first, last) {
        let [first, last] = [first, last].map(|part| percentile(part, 50).as_secs_f64());
        println!("    last part / second, at most 1.2  {:.2}", last / first.max(1e-9));
    }
    println!("    of {} rebuilds, at most 50 ms     {}", rebuilds.len(), spread(&rebuilds));
    Ok(())
}

const THOUSAND: usize = 1_000;

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
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
        let began = cpu();
        if let Event::ModelRequested(requested) = event {
            meter.measure(&run);
            let planned = plan(&run, &meter, requested.purpose, *at);
            let prompt = render(&run, requested.purpose, Arc::clone(&tools), requested.reserved.output);
            times.requests.push(cpu().saturating_sub(began));
            drop((planned, prompt));
            run.apply(*seq, *at, event);
        } else if let Event::GenerationStarted(_) = event {
            // As it is decided on, and as it is carried out.
            meter.measure(&run);
            let planned = plan(&run, &meter, longrein::core::owed::purpose(&run), *at);
            run.apply(*seq, *at, event);
            meter.measure(&run);
            times.rebuilds.push(cpu().saturating_sub(began));
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
