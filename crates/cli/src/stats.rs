//! `runs --stats`: sums over all runs of a store, from their journals.

use std::collections::{BTreeMap, BTreeSet};

use longrein::core::check::Finding;
use longrein::core::event::{Event, How, Proposer};
use longrein::core::ids::{ActionId, AttemptId, Digest, ToolName};
use longrein::core::outcome::Outcome;
use longrein::core::run::Run;
use longrein::core::time::Timestamp;
use longrein::ports::{Recorded, RecordedBody};
use longrein::{Runs, RunsError, projection};
use serde_json::{Value, json};

use crate::out::say;
use crate::words;

/// What all runs come to.
#[derive(Default)]
pub(crate) struct Stats {
    /// Runs per state.
    states: BTreeMap<String, u64>,
    verified: u64,
    unreadable: u64,
    /// Runs with tokens for which nobody named a price.
    unpriced: u64,
    all: Sums,
    turns: Vec<u64>,
    working_ms: Vec<u64>,
    costs: Vec<u64>,
}

/// What is added up, of one run or of all.
#[derive(Default)]
struct Sums {
    turns: u64,
    checks: u64,
    failed_checks: u64,
    refused_answers: u64,
    calls: u64,
    failed_calls: u64,
    /// Calls of a tool that the same run had made before with the same arguments.
    repeats: u64,
    unknown: u64,
    recoveries: u64,
    /// Windows made anew.
    rebuilds: u64,
    tokens: u64,
    micros: u64,
    model_ms: Vec<u64>,
    call_ms: Vec<u64>,
}

/// One run as it is read.
#[derive(Default)]
struct Follow {
    sums: Sums,
    calls: BTreeSet<(ToolName, Digest)>,
    asked: BTreeMap<AttemptId, Timestamp>,
    started: BTreeMap<ActionId, Timestamp>,
}

impl Stats {
    pub(crate) async fn of(runs: &Runs) -> Result<Self, RunsError> {
        let mut stats = Self::default();
        for (row, _) in runs.list().await? {
            let mut follow = Follow::default();
            match runs.fold(&row.run, |record| follow.see(record)).await {
                Ok(run) => stats.add(&run, follow.sums),
                Err(RunsError::Fold(_)) => stats.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(stats)
    }

    fn add(&mut self, run: &Run, sums: Sums) {
        let row = longrein::run_row(run);
        *self.states.entry(row.state).or_default() += 1;
        self.verified += u64::from(projection::answer(run).is_some_and(|done| done.verified == Some(true)));
        self.turns.push(sums.turns);
        self.working_ms.push(run.spent.time_ms);
        // What costs nothing as far as is known may have cost anything.
        if run.model.price.is_none() && sums.tokens > 0 && sums.micros == 0 {
            self.unpriced += 1;
        } else {
            self.costs.push(sums.micros);
        }
        self.all.add(sums);
    }

    fn runs(&self) -> u64 {
        self.states.values().sum()
    }

    pub(crate) fn json(&self) -> Value {
        let spread = |values: &[u64]| {
            let spread = Spread::of(values);
            json!({ "p50": spread.p50, "p95": spread.p95, "p99": spread.p99 })
        };
        let costs = Spread::of(&self.costs);
        json!({
            "v": 1, "runs": self.runs(), "states": self.states, "verified": self.verified, "unreadable": self.unreadable,
            "checks": self.all.checks, "failed_checks": self.all.failed_checks, "refused_answers": self.all.refused_answers,
            "tool_calls": self.all.calls, "tool_errors": self.all.failed_calls, "repeats": self.all.repeats,
            "unknown_outcomes": self.all.unknown, "recoveries": self.all.recoveries,
            "rebuilds": self.all.rebuilds,
            "tokens": self.all.tokens, "usd": projection::usd(self.all.micros), "unpriced_runs": self.unpriced,
            "usd_per_run": {
                "p50": projection::usd(costs.p50), "p95": projection::usd(costs.p95), "p99": projection::usd(costs.p99),
            },
            "turns_per_run": spread(&self.turns), "working_ms_per_run": spread(&self.working_ms),
            "model_call_ms": spread(&self.all.model_ms), "tool_call_ms": spread(&self.all.call_ms),
        })
    }

    pub(crate) fn print(&self) {
        let share = |part: u64, whole: u64| {
            (part * 100 + whole / 2).checked_div(whole).map(|percent| format!(" ({percent} %)")).unwrap_or_default()
        };
        let runs = self.runs();
        let done = self.states.get("done").copied().unwrap_or_default();
        let line = |name: &str, value: String| say!("{name:<20} {value}");
        line("runs", words::grouped(runs));
        for (state, count) in &self.states {
            let state = format!("  {}", state.replace('_', " "));
            line(&state, format!("{}{}", words::grouped(*count), share(*count, runs)));
        }
        if self.unreadable > 0 {
            line("  unreadable", format!("{} (not counted below)", words::grouped(self.unreadable)));
        }
        let all = &self.all;
        line("proven", format!("{} of {done} done", self.verified));
        line(
            "failed checks",
            format!("{} of {}{}", all.failed_checks, all.checks, share(all.failed_checks, all.checks)),
        );
        line("refused answers", words::grouped(all.refused_answers));
        line("tool calls", words::grouped(all.calls));
        line("  ended in error", format!("{}{}", words::grouped(all.failed_calls), share(all.failed_calls, all.calls)));
        let repeats = format!("{}{}", words::grouped(all.repeats), share(all.repeats, all.calls));
        line("  repeated", format!("{repeats}: the same tool with the same arguments, again in one run"));
        line("  outcome unknown", words::grouped(all.unknown));
        line("recoveries", words::grouped(all.recoveries));
        line("windows made anew", words::grouped(all.rebuilds));
        line("tokens", words::grouped(all.tokens));
        let cost = match (self.unpriced, self.costs.is_empty()) {
            (0, _) => dollars(all.micros),
            (_, true) => "not known: no price is configured".to_owned(),
            (unpriced, false) => {
                let of = words::count(unpriced, "run", "runs");
                format!("{}, not known of {of} without a price", dollars(all.micros))
            }
        };
        line("cost", cost);
        say!("");
        say!("{:<20} {:>10} {:>10} {:>10}", "", "p50", "p95", "p99");
        let line = |name: &str, values: &[u64], show: &dyn Fn(u64) -> String| {
            let spread = Spread::of(values);
            say!("{name:<20} {:>10} {:>10} {:>10}", show(spread.p50), show(spread.p95), show(spread.p99));
        };
        let seconds = |ms: u64| format!("{}.{:03} s", ms / 1000, ms % 1000);
        line("turns per run", &self.turns, &|turns| words::grouped(turns));
        line("working time", &self.working_ms, &seconds);
        let is_known = !self.costs.is_empty() || self.unpriced == 0;
        line("cost per run", &self.costs, &|micros| if is_known { dollars(micros) } else { "not known".to_owned() });
        line("model call", &self.all.model_ms, &seconds);
        line("tool call", &self.all.call_ms, &seconds);
    }
}

fn dollars(micros: u64) -> String {
    format!("${:.4}", projection::usd(micros))
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.turns += other.turns;
        self.checks += other.checks;
        self.failed_checks += other.failed_checks;
        self.refused_answers += other.refused_answers;
        self.calls += other.calls;
        self.failed_calls += other.failed_calls;
        self.repeats += other.repeats;
        self.unknown += other.unknown;
        self.recoveries += other.recoveries;
        self.rebuilds += other.rebuilds;
        self.tokens += other.tokens;
        self.micros += other.micros;
        self.model_ms.extend(other.model_ms);
        self.call_ms.extend(other.call_ms);
    }
}

impl Follow {
    fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        let took = |from: Option<Timestamp>| from.map(|from| record.at.0.saturating_sub(from.0));
        let sums = &mut self.sums;
        match event {
            // What came before was counted where it happened.
            Event::RunForked(_) => *sums = Sums::default(),
            Event::ModelRequested(e) => {
                self.asked.insert(e.attempt, record.at);
            }
            Event::ModelReplied(e) => {
                sums.turns += 1;
                sums.tokens += e.usage.tokens();
                sums.micros += e.micros;
                sums.model_ms.extend(took(self.asked.remove(&e.attempt)));
            }
            Event::ModelFailed(e) => {
                sums.tokens += e.usage.tokens();
                sums.micros += e.micros;
            }
            Event::SummaryFinished(e) => {
                sums.tokens += e.usage.tokens();
                sums.micros += e.micros;
            }
            Event::JudgeFinished(e) => {
                sums.tokens += e.usage.tokens();
                sums.micros += e.micros;
            }
            Event::ActionProposed(e) => match e.proposer {
                Proposer::Model | Proposer::Program(_) => {
                    sums.calls += 1;
                    sums.repeats += u64::from(!self.calls.insert((e.tool.clone(), e.digest.clone())));
                }
                // The harness's own are no calls of the model.
                Proposer::Undo(_) | Proposer::Acceptance => {}
            },
            Event::ActionRefused(_) | Event::ActionDenied(_) => sums.failed_calls += 1,
            Event::ActionStarted(e) => {
                self.started.insert(e.action, record.at);
            }
            Event::ActionFinished(e) => {
                sums.micros += e.cost_micros;
                if e.how == How::Observed {
                    sums.call_ms.extend(took(self.started.remove(&e.action)));
                }
                match e.outcome {
                    Outcome::Done(_) => {}
                    Outcome::Error(_) | Outcome::NotDone(_) => sums.failed_calls += 1,
                    Outcome::Unknown(_) => sums.unknown += 1,
                }
            }
            Event::CheckFinished(e) => {
                sums.checks += 1;
                sums.failed_checks += u64::from(e.verdict.finding != Finding::Passed);
            }
            Event::AnswerRefused(_) => sums.refused_answers += 1,
            Event::GenerationStarted(_) => sums.rebuilds += 1,
            // A claim that names when its predecessor was last alive found it dead.
            Event::RunClaimed(e) => sums.recoveries += u64::from(e.worked_until.is_some()),
            Event::RunStarted(_)
            | Event::InputReceived(_)
            | Event::InputRefused(_)
            | Event::ModelSwitched(_)
            | Event::ModelRouted(_)
            | Event::ModelForgone(_)
            | Event::ResultSpilled(_)
            | Event::SummaryRequested(_)
            | Event::JudgeRequested(_)
            | Event::NoteTaken(_)
            | Event::ActionHeld(_)
            | Event::ActionApproved(_)
            | Event::ActionRequeued(_)
            | Event::ActionProbed(_)
            | Event::ActionSettled(_)
            | Event::ActionRolledBack(_)
            | Event::ActionNotUndone(_)
            | Event::ChecksVoided(_)
            | Event::AnswerAccepted(_)
            | Event::HookFinished(_)
            | Event::LoopNoticed(_)
            | Event::FactSet(_)
            | Event::FactVoided(_)
            | Event::BudgetReached(_)
            | Event::BudgetRaised(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_)
            | Event::SourceEndorsed(_)
            | Event::SurroundingsChanged(_)
            | Event::TransitionTaken(_)
            | Event::RunParked(_)
            | Event::RunSuspended(_)
            | Event::RunEnded(_) => {}
        }
    }
}

/// Percentiles by the nearest rank; all zero of nothing.
struct Spread {
    p50: u64,
    p95: u64,
    p99: u64,
}

impl Spread {
    fn of(values: &[u64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let spread = Spread::of(&(1..=100).collect::<Vec<_>>());
        assert_eq!((spread.p50, spread.p95, spread.p99), (50, 95, 99));
        let spread = Spread::of(&[7]);
        assert_eq!((spread.p50, spread.p95, spread.p99), (7, 7, 7));
        let spread = Spread::of(&[]);
        assert_eq!((spread.p50, spread.p95, spread.p99), (0, 0, 0));
        assert_eq!(Spread::of(&[9, 1]).p50, 1);
    }
}
