//! Runs of an embedding program: a hundred of twenty turns at once, in a process of its own, with a scripted model and a
//! function for a tool.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use longrein::{Call, Longrein, Script, Task, Tool};
use serde_json::json;

use crate::process;
use crate::report::{line, median};

/// What this program is called as to be the one that is measured.
pub(crate) const ROLE: &str = "--library";

const RUNS: u64 = 100;
const TURNS: u64 = 20;

/// The stores that are compared, by the word that [`main`] is given.
const STORES: [&str; 2] = ["memory", "sqlite"];

/// What one process came to.
struct Cost {
    /// Of all its threads, user and system.
    cpu_ms: f64,
    wall_ms: f64,
    peak_mb: f64,
}

pub(crate) fn print(repeat: usize) -> anyhow::Result<()> {
    println!("\nlibrary: {RUNS} runs of {TURNS} turns in one process, median of {repeat} (least)");
    for store in STORES {
        let costs = (0..repeat).map(|_| measure(store)).collect::<anyhow::Result<Vec<_>>>()?;
        let spread = |of: fn(&Cost) -> f64| {
            let least = costs.iter().map(of).fold(f64::INFINITY, f64::min);
            format!("{:.0} ({least:.0})", median(costs.iter().map(of)))
        };
        line(&format!("{store}: CPU in ms"), "under 1,000", &spread(|cost| cost.cpu_ms));
        line(&format!("{store}: peak memory in MB"), "under 40", &spread(|cost| cost.peak_mb));
        line(&format!("{store}: wall in ms"), "", &spread(|cost| cost.wall_ms));
    }
    Ok(())
}

fn measure(store: &str) -> anyhow::Result<Cost> {
    let ran = Command::new(std::env::current_exe()?).args([ROLE, store]).output()?;
    if !ran.status.success() {
        bail!("the runs failed: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout)?;
    let number = |name: &str| said[name].as_f64().with_context(|| format!("no {name}"));
    Ok(Cost { cpu_ms: number("cpu_ms")?, wall_ms: number("wall_ms")?, peak_mb: number("peak_mb")? })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    number: u64,
}

/// The process that is measured: prints what it cost.
pub(crate) fn main(store: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let store = match store {
        "memory" => "memory:".to_owned(),
        "sqlite" => format!("sqlite:{}", folder.path().join("runs.db").display()),
        other => bail!("there is no store {other} to measure"),
    };
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(all(&store))?;
    let wall_ms = began.elapsed().as_secs_f64() * 1e3;
    let cpu_ms = cpu()?.as_secs_f64() * 1e3;
    let peak_mb = process::status(std::process::id()).peak_kib as f64 * 1024.0 / 1e6;
    println!("{}", json!({ "cpu_ms": cpu_ms, "wall_ms": wall_ms, "peak_mb": peak_mb }));
    Ok(())
}

async fn all(store: &str) -> anyhow::Result<()> {
    let longrein = Longrein::open(store)?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(longrein.start(task()).await?);
    }
    for run in runs {
        let outcome = run.await?;
        if !outcome.is_done() || outcome.spent.turns != TURNS {
            bail!("a run went wrong: {outcome:?}");
        }
    }
    Ok(())
}

fn task() -> Task {
    let read = Tool::read("read_page", "One page of the log.", |page: Page, _: Call| async move {
        Ok(json!({ "page": page.number, "text": "GET /checkout 200 in 12 ms; ".repeat(8) }))
    });
    let calls = (1..TURNS).fold(Script::new(), |script, number| script.call("read_page", json!({ "number": number })));
    Task::new("Read the log, page by page.").model(calls.text("Read.")).tool(read)
}

/// User and system time of this process, threads that ended included.
fn cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name may hold anything: count from its end. utime and stime are fields 14 and 15, in ticks of 10 ms.
    let (_, rest) = stat.rsplit_once(')').context("/proc/self/stat has an unknown form")?;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map_while(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
