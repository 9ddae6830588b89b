//! The table: what was found, what is wanted, and which of it must hold exactly.

use std::time::{Duration, Instant};

use longrein_core::context::estimate::Features;

use super::Ended;
use super::agent::Agent;
use super::judge::{Findings, PROFILES, Retention, Tally};
use super::operator::Builtins;
use super::plan::Plan;
use crate::report::median;

/// A line of the table.
struct Row {
    name: String,
    found: String,
    goal: String,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Must hold exactly, and does or does not.
    Exact(bool),
    /// A goal, met or missed.
    Goal(bool),
    /// Only said.
    Said,
}

/// Prints everything; answers how much of what must hold exactly does not.
pub(crate) fn print(agent: &Agent, plan: &Plan, ended: &Ended) -> usize {
    let found = &agent.judge.found;
    let mut rows = Vec::new();
    kept(&mut rows, agent, plan, ended);
    cost(&mut rows, found, plan, ended);
    for row in &rows {
        let mark = match row.verdict {
            Verdict::Exact(true) => "holds",
            Verdict::Exact(false) => "LOST",
            Verdict::Goal(true) => "met",
            Verdict::Goal(false) => "missed",
            Verdict::Said => "",
        };
        println!("  {:<34}{:<22}{mark:<8}{}", row.name, row.goal, row.found);
    }
    rows.iter().filter(|row| row.verdict == Verdict::Exact(false)).count()
}

/// What must hold exactly.
fn kept(rows: &mut Vec<Row>, agent: &Agent, plan: &Plan, ended: &Ended) {
    let found = &agent.judge.found;
    let mut exact = |name: &str, goal: &str, held: bool, text: String| {
        rows.push(Row { name: name.to_owned(), found: text, goal: goal.to_owned(), verdict: Verdict::Exact(held) });
    };
    let turns = format!("{} of {}", agent.turn, plan.turns.len());
    let whole = agent.finished && ended.status == 0;
    let end = if whole { turns } else { format!("{turns}; status {}\n    {}", ended.status, ended.last_words) };
    exact("turns", "all, status 0", whole, end);
    // One request may find out that less is served than was declared.
    let allowed = u64::from(ended.short_served);
    let refused = format!("{}; {} refused by the server", tally(&found.over_limit), found.refused);
    exact("requests over the limit", &allowed.to_string(), found.over_limit.times <= allowed, refused);
    exact("requests with broken pairs", "0", found.broken_pairs.times == 0, tally(&found.broken_pairs));
    let mut retention = |name: &str, kept: &Retention| {
        let held = kept.due > 0 && kept.shown == kept.due;
        exact(name, "1.000", held, share(kept));
    };
    retention("constraints shown", &found.constraints);
    retention("open loops shown", &found.loops);
    retention("effects shown when checked", &found.effects);
    exact("effects asked for again", "0", found.repeated == 0, found.repeated.to_string());
    exact("effects done twice", "0", ended.done_twice == 0, ended.done_twice.to_string());
    exact("stale constraints and loops", "0", found.stale.times == 0, tally(&found.stale));
    let reached = found.probes_shown + found.probes_recalled.times;
    let lost = found.probes_recalled.first.as_ref().map_or(String::new(), |first| format!("; first lost {first}"));
    let text = format!("{} of {}{lost}", ratio(reached, found.probes), found.probes);
    exact("facts shown or recalled (R1)", "1.000", found.probes > 0 && reached == found.probes, text);
    if ended.killed {
        let text = format!("{} of {}", tally(&found.resent_otherwise), found.resent);
        exact("requests changed by a kill", "0", found.resent > 0 && found.resent_otherwise.times == 0, text);
    }
}

/// What has a goal, or is only said.
fn cost(rows: &mut Vec<Row>, found: &Findings, plan: &Plan, ended: &Ended) {
    let small = plan.size.window < 100_000;
    let mut row = |name: &str, goal: &str, verdict: Verdict, text: String| {
        rows.push(Row { name: name.to_owned(), found: text, goal: goal.to_owned(), verdict });
    };
    if ended.builtins == Builtins::FilesOnly {
        row("note, recall", "offered", Verdict::Goal(false), "this binary has neither".to_owned());
    }
    row("facts shown when asked for (R0)", "", Verdict::Said, ratio(found.probes_shown, found.probes));
    for (name, kept) in [("constraints", &found.constraints), ("loops", &found.loops), ("effects", &found.effects)] {
        row(&format!("{name} in the last 2,000 tokens"), "", Verdict::Said, ratio(kept.at_end, kept.due));
    }
    let sent: u64 = found.sent.iter().sum();
    let hits = found.hits as f64 / sent.max(1) as f64;
    let least = if small { 0.91 } else { 0.97 };
    row("cached share of input", &format!("at least {least}"), Verdict::Goal(hits >= least), format!("{hits:.3}"));
    let invalidated = format!("{}; {} tokens invalidated", found.breaks, found.invalidated);
    row("cache breaks", "", Verdict::Said, invalidated);
    row("compactions", "", Verdict::Said, format!("{} ({} calls for summaries)", found.compactions, found.summaries));
    for (index, profile) in PROFILES.iter().enumerate() {
        let (spent, all) = (found.cost[index], found.cost_of_everything[index]);
        let share = spent / all.max(1.0);
        let (goal, verdict) = match (profile.name, small) {
            ("anthropic_5m", true) => ("at most 0.28", Verdict::Goal(share <= 0.28)),
            _ => ("", Verdict::Said),
        };
        let name = format!("cost / everything, {}", profile.name);
        row(&name, goal, verdict, format!("{share:.3} ({spent:.0} of {all:.0})"));
    }
    let mut sorted = found.sent.clone();
    sorted.sort_unstable();
    let mean = sent / (sorted.len() as u64).max(1);
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0);
    let verdict = if small { Verdict::Goal(mean <= 13_000) } else { Verdict::Said };
    let goal = if small { "at most 13000" } else { "" };
    row("tokens of a request, mean", goal, verdict, format!("{mean} (p95 {}, most {})", at(0.95), at(1.0 - 1e-9)));
    row("tokens sent, replied", "", Verdict::Said, format!("{sent}, {}", found.output));

    let cpu: Vec<_> = found.cpu.iter().map(|time| millis(*time)).collect();
    let text = format!("median {:.2} ms, p99 {:.2} ms", median(cpu.iter().copied()), quantile(&cpu, 0.99));
    row("own CPU of a request", "", Verdict::Said, text);
    let (second, last) = (tenth(&cpu, 1), tenth(&cpu, 9));
    let growth = last / second.max(1e-9);
    let text = format!("{growth:.2} ({second:.2} and {last:.2} ms)");
    row("CPU, last tenth / second", "at most 1.2", Verdict::Goal(growth <= 1.2), text);
    let gaps: Vec<_> = found.gaps.iter().map(|time| millis(*time)).collect();
    let text = format!("median {:.1} ms, p99 {:.1} ms", median(gaps.iter().copied()), quantile(&gaps, 0.99));
    row("from reply to request", "", Verdict::Said, text);
    let rebuilds: Vec<_> = found.gaps_of_rebuilds.iter().map(|time| millis(*time)).collect();
    let turn = median(gaps.iter().copied());
    let (usual, longest) = (median(rebuilds.iter().copied()) - turn, quantile(&rebuilds, 1.0) - turn);
    let text = format!("median {usual:.1} ms, most {longest:.1} ms more than a turn, of {}", rebuilds.len());
    row("rebuild", "at most 50 ms", Verdict::Goal(!rebuilds.is_empty() && longest <= 50.0), text);
    let recalls: Vec<_> = found.gaps_of_recalls.iter().map(|time| millis(*time)).collect();
    let (usual, p99) = (median(recalls.iter().copied()), quantile(&recalls, 0.99));
    let text = format!("median {usual:.1} ms, p99 {p99:.1} ms from reply to request, of {}", recalls.len());
    row("recall", "under 20 ms", Verdict::Goal(!recalls.is_empty() && quantile(&recalls, 0.99) < 20.0), text);
    let window = plan.size.window as f64;
    let off: Vec<_> = found.off.iter().map(|tokens| *tokens as f64 / window * 100.0).collect();
    let p99 = quantile(&off, 0.99);
    let text = format!("p99 {p99:.2} %, median {:.3} %, of {} requests", median(off.iter().copied()), off.len());
    row("estimator off, of the window", "p99 at most 1 %", Verdict::Goal(!off.is_empty() && p99 <= 1.0), text);
    let missed = found.bound_missed as f64 / (off.len() as f64).max(1.0);
    let text = format!("{:.2} % ({})", missed * 100.0, found.bound_missed);
    row("estimator's bound too low", "at most 1 %", Verdict::Goal(!off.is_empty() && missed <= 0.01), text);
    let speed = counting_speed(plan);
    let verdict = if cfg!(debug_assertions) { Verdict::Said } else { Verdict::Goal(speed >= 100.0) };
    row("features counted", "at least 100 MB/s", verdict, format!("{speed:.0} MB/s"));
    row("store", "", Verdict::Said, format!("{:.1} MB", ended.store_bytes as f64 / 1e6));
    row("wall clock", "", Verdict::Said, format!("{:.1} s", ended.took.as_secs_f64()));
}

/// Megabytes of the plan's own outputs that the estimator counts in a second: the best of three.
fn counting_speed(plan: &Plan) -> f64 {
    let bytes: usize = plan.outputs.iter().map(String::len).sum();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        let counted: Features = plan.outputs.iter().map(|output| Features::of(output)).sum();
        std::hint::black_box(counted);
        best = best.min(began.elapsed());
    }
    bytes as f64 / 1e6 / best.as_secs_f64()
}

fn tally(tally: &Tally) -> String {
    match &tally.first {
        Some(first) => format!("{}; first {first}", tally.times),
        None => tally.times.to_string(),
    }
}

fn share(kept: &Retention) -> String {
    let loss = kept.first_loss.as_ref().map_or(String::new(), |loss| format!("; first lost {loss}"));
    format!("{} of {}{loss}", ratio(kept.shown, kept.due), kept.due)
}

/// Rounded down, so that 1.000 is all.
fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    format!("{:.3}", (part * 1000 / whole) as f64 / 1000.0)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Mean of one tenth of the run.
fn tenth(values: &[f64], number: usize) -> f64 {
    let part = &values[values.len() * number / 10..values.len() * (number + 1) / 10];
    part.iter().sum::<f64>() / part.len().max(1) as f64
}
