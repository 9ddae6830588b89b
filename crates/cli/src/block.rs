//! What `show` says of a run's context: how full the window is, and the control block that a fresh model would go on from.

use longrein::Runs;
use longrein::core::budget::Usage;
use longrein::core::check::Finding;
use longrein::core::context::memory::{Kept, Message, Reviewed, message_id};
use longrein::core::context::note::NoteKind;
use longrein::core::context::plan::{Budget, Mark, budget};
use longrein::core::event::{Event, GenerationStarted, SummaryFinished, SummaryOutcome};
use longrein::core::ids::{NoteId, Seq};
use longrein::core::payload::Content;
use longrein::core::prompt::Item;
use longrein::core::run::Run;
use longrein::ports::{Recorded, RecordedBody};
use longrein::projection;
use serde_json::{Map, Value, json};

use crate::inspect::LABEL;
use crate::out::lay;
use crate::words;

/// Lines of one kind that are shown; `--json` has them all.
const LINES_MAX: usize = 8;
/// Characters of one line.
const LINE_WIDTH: usize = 140;

/// The rebuilds of a run and what was summed up of what left with them, from its journal.
#[derive(Default)]
pub(crate) struct Rebuilds {
    last: Option<(Seq, GenerationStarted)>,
    summaries: Summaries,
}

/// What became of the summaries that a run asked for.
#[derive(Default)]
struct Summaries {
    asked: u64,
    kept: u64,
    lines: u64,
    /// Replies of which nothing is kept.
    refused: u64,
    /// Calls that brought no whole reply.
    failed: u64,
    lost: u64,
    /// Why nothing came of the last one of which nothing came.
    last_reason: Option<String>,
    tokens: u64,
    micros: u64,
}

impl Summaries {
    fn finished(&mut self, finished: &SummaryFinished) {
        self.tokens += finished.usage.tokens();
        self.micros += finished.micros;
        let reason = match &finished.outcome {
            SummaryOutcome::Kept { lines } => {
                self.kept += 1;
                self.lines += lines.len() as u64;
                return;
            }
            SummaryOutcome::Refused { reason } => {
                self.refused += 1;
                reason
            }
            SummaryOutcome::Failed { message, .. } => {
                self.failed += 1;
                message
            }
            SummaryOutcome::Lost => {
                self.lost += 1;
                return;
            }
            SummaryOutcome::Forgone { reason } => reason,
        };
        self.last_reason = Some(reason.clone());
    }

    fn in_words(&self) -> String {
        let kept = words::count(self.lines, "line", "lines");
        let mut text = format!("{} asked for, {} kept with {kept}", self.asked, self.kept);
        for (count, what) in [(self.refused, "refused"), (self.failed, "failed"), (self.lost, "given up")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text.push_str(&format!("; {} tokens", words::grouped(self.tokens)));
        if let Some(reason) = &self.last_reason {
            text.push_str(&format!("; the last without use: {}", words::short(reason.trim_end_matches('.'), 160)));
        }
        text
    }
}

impl Rebuilds {
    pub(crate) fn see(&mut self, record: &Recorded) {
        if let RecordedBody::Known(Event::GenerationStarted(started)) = &record.body {
            self.last = Some((record.seq, started.as_ref().clone()));
        } else if let RecordedBody::Known(Event::SummaryRequested(_)) = &record.body {
            self.summaries.asked += 1;
        } else if let RecordedBody::Known(Event::SummaryFinished(finished)) = &record.body {
            self.summaries.finished(finished);
        }
    }
}

/// How full the window of a run is.
pub(crate) struct Fill {
    budget: Budget,
    rebuilds: Rebuilds,
}

impl Fill {
    pub(crate) async fn of(runs: &Runs, run: &Run, rebuilds: Rebuilds) -> Self {
        Self { budget: budget(run, &runs.meter(run).await), rebuilds }
    }

    /// The window, where it was found to be smaller than declared or assumed.
    fn learned(&self, run: &Run) -> Option<u64> {
        let declared = run.model.context_limit;
        let assumed = longrein::core::context::settings::ASSUMED_LIMIT;
        Some(self.budget.limits.window).filter(|window| *window < declared.unwrap_or(assumed))
    }

    pub(crate) fn json(&self, run: &Run) -> Value {
        let budget = &self.budget;
        let zones: Map<String, Value> =
            budget.zones.iter().map(|zone| (zone.name.replace(' ', "_"), json!(zone.tokens))).collect();
        let archived = run.window.archived.turns.map(|(from, to)| {
            let archived = &run.window.archived;
            json!({ "from": from.0, "to": to.0, "calls": archived.calls, "failures": archived.failures })
        });
        json!({
            "window": budget.limits.window, "declared": run.model.context_limit,
            "assumed": run.model.context_limit.is_none(), "learned": self.learned(run),
            "reserved": budget.limits.reserved, "margin": budget.limits.margin, "safe": budget.limits.safe(),
            "likely": budget.bound.likely, "upper": budget.bound.upper, "zones": zones, "mark": mark_word(budget.mark),
            "rebuild_at": budget.rebuild_at, "turns_left": budget.turns_left,
            "generation": budget.generation, "rebuilds": budget.generation.saturating_sub(1),
            "last_rebuild": self.rebuilds.last.as_ref().map(|(seq, started)| json!({
                "seq": seq, "why": started.why, "before": started.before, "after": started.after,
            })),
            "archived": archived,
            "summaries": run.task.context.summary.as_ref().map(|spec| {
                let all = &self.rebuilds.summaries;
                json!({
                    "model": spec.name, "asked": all.asked, "kept": all.kept, "lines": all.lines,
                    "refused": all.refused, "failed": all.failed, "lost": all.lost, "last_reason": all.last_reason,
                    "tokens": all.tokens, "usd": projection::usd(all.micros),
                })
            }),
            "cached_share": cached_share(&run.spent.usage),
        })
    }

    pub(crate) fn print(&self, run: &Run) {
        let budget = &self.budget;
        let (limits, safe) = (&budget.limits, budget.limits.safe());
        let percent = (budget.bound.upper * 100).checked_div(safe).unwrap_or_default();
        lay!(
            LABEL,
            "context    about {} tokens, at most {} of the {safe} that may be sent ({percent} %)",
            budget.bound.likely,
            budget.bound.upper
        );
        let whose = match (self.learned(run), run.model.context_limit) {
            (Some(_), Some(declared)) => format!(" (learned from the server; declared are {declared})"),
            (Some(_), None) => " (learned from the server)".to_owned(),
            (None, Some(_)) => String::new(),
            (None, None) => " (assumed: no context_limit is configured)".to_owned(),
        };
        lay!(
            LABEL,
            "           window {}{whose}, {} reserved for the reply, {} margin",
            limits.window,
            limits.reserved,
            limits.margin
        );
        let zones: Vec<_> = budget
            .zones
            .iter()
            .filter(|zone| zone.tokens > 0)
            .map(|zone| format!("{} {}", zone.name, zone.tokens))
            .collect();
        lay!(LABEL, "           {}", zones.join(" · "));
        let soon = match budget.mark {
            Mark::Below | Mark::Over => "",
            Mark::High => "; above 70 %: results are shown shorter",
            Mark::Rebuild => "; above 80 %: it is made anew as soon as that is worth it",
            Mark::Full => "; above 85 %: it is made anew before anything is sent",
        };
        let noun = if budget.turns_left == 1 { "turn" } else { "turns" };
        let (generation, at, left) = (budget.generation, budget.rebuild_at, budget.turns_left);
        match budget.mark {
            Mark::Over => lay!(LABEL, "           generation {generation}; this is too much, and is not sent as it is"),
            Mark::Below | Mark::High | Mark::Rebuild | Mark::Full => lay!(
                LABEL,
                "           generation {generation}; by forecast made anew at about {at} tokens, in {left} {noun}{soon}"
            ),
        }
        if let Some((seq, started)) = &self.rebuilds.last {
            lay!(
                LABEL,
                "           last made anew at event {seq}: {}; about {} → {} tokens",
                words::why(started.why),
                started.before,
                started.after
            );
        }
        if let Some((from, to)) = run.window.archived.turns {
            let archived = &run.window.archived;
            lay!(
                LABEL,
                "           turns {from}–{to} are archived: {}, {}; the model can recall them",
                words::count(archived.calls.into(), "call", "calls"),
                words::count(archived.failures.into(), "failure", "failures")
            );
        }
        if let Some(spec) = &run.task.context.summary {
            lay!(LABEL, "           summaries by {}: {}", spec.name, self.rebuilds.summaries.in_words());
        }
        match cached_share(&run.spent.usage) {
            Some(share) => lay!(LABEL, "           {:.0} % of the input came from the provider's cache", share * 100.0),
            None if run.spent.turns > 0 => lay!(LABEL, "           the provider's cache: not reported"),
            None => {}
        }
    }
}

fn mark_word(mark: Mark) -> &'static str {
    match mark {
        Mark::Below => "below",
        Mark::High => "high",
        Mark::Rebuild => "rebuild",
        Mark::Full => "full",
        Mark::Over => "over",
    }
}

/// The part of the input that was read from a cache; None: no provider said anything about one.
fn cached_share(usage: &Usage) -> Option<f64> {
    let whole = usage.tokens().saturating_sub(usage.output);
    #[expect(clippy::cast_precision_loss, reason = "shown only")]
    (usage.cached + usage.cache_write > 0).then(|| usage.cached as f64 / whole.max(1) as f64)
}

// ---- the control block ----

/// The control block under the names of `docs/context.md`.
pub(crate) fn json(run: &Run) -> Map<String, Value> {
    let memory = &run.memory;
    let note = |(id, kept): (NoteId, &Kept)| json!({ "id": id, "text": kept.text, "cites": kept.cites });
    let notes = |kind: NoteKind| memory.notes_of(kind).map(note).collect::<Vec<_>>();
    let constraints: Vec<_> = run
        .task
        .constraints
        .iter()
        .map(String::as_str)
        .chain(memory.notes_of(NoteKind::Constraint).map(|(_, kept)| kept.text.as_str()))
        .collect();
    let mut artifacts: Vec<_> =
        memory.changed.iter().map(|(path, action)| json!({ "path": path, "action": action })).collect();
    artifacts.extend(run.evidence.iter().filter_map(|(id, found)| match &found.content {
        Some(Content::Blob(blob)) => {
            Some(json!({ "evidence": id, "tool": found.tool, "bytes": blob.bytes, "blob": blob.digest }))
        }
        Some(Content::Inline(_)) | None => None,
    }));
    let value = json!({
        "goal": run.task.goal,
        "acceptance_criteria": run.task.acceptance.iter().map(|check| &check.name).collect::<Vec<_>>(),
        "verdicts": memory.verdicts.iter().map(|(name, last)| (name.to_string(), json!({
            "verdict": last.finding, "evidence": last.text,
        }))).collect::<Map<_, _>>(),
        "constraints": constraints,
        "constraint_notes": notes(NoteKind::Constraint),
        "current_step": memory.notes_of(NoteKind::Step).last().map(note),
        "steps": notes(NoteKind::Step),
        "completed_steps": memory.steps_done.iter()
            .map(|(id, text)| json!({ "id": id, "text": text })).collect::<Vec<_>>(),
        "completed_steps_count": memory.steps_done_count,
        "decisions": notes(NoteKind::Decision),
        "findings": notes(NoteKind::Finding),
        "open_loops": notes(NoteKind::OpenLoop),
        "artifact_refs": artifacts,
        "effects": memory.effects.iter().map(|(action, effect)| json!({
            "action": action, "tool": effect.tool, "args": effect.args, "state": effect.state,
            "receipt": effect.receipt,
        })).collect::<Vec<_>>(),
        "changed_paths": memory.changed.keys().collect::<Vec<_>>(),
        "messages": memory.messages.iter().map(|message| json!({
            "id": message_id(message.seq), "text": said(message), "images": message.item.images(), "answered_by": match message.reviewed {
                None => Value::Null,
                Some(Reviewed::Note(id)) => json!(id),
                Some(Reviewed::End) => json!("answer"),
            },
        })).collect::<Vec<_>>(),
        "rules": run.task.rules.iter().map(|file| json!({
            "path": file.path, "in_window": run.window.rules.contains(&file.path),
            "changed_since": memory.rules_read.contains_key(&file.path),
        })).collect::<Vec<_>>(),
    });
    let Value::Object(map) = value else { unreachable!("an object is written out here") };
    map
}

/// The words of a message, without the mark before them.
fn said(message: &Message) -> &str {
    match message.item.as_ref() {
        Item::User(text) | Item::Pictured { text, images: _ } => {
            text.split_once('\n').map_or(text.as_str(), |(_, words)| words)
        }
        Item::Assistant { .. } | Item::Observation { .. } | Item::Harness(_) | Item::Exhibit { .. } => "",
    }
}

/// The control block for people: what is in force and what is open, newest last.
pub(crate) fn print(run: &Run) {
    let memory = &run.memory;
    for constraint in &run.task.constraints {
        lay!(LABEL, "constraint {}", words::safe(constraint));
    }
    let notes = |kind: NoteKind| memory.notes_of(kind).map(|(id, kept)| noted(id, kept));
    print_all("constraint", notes(NoteKind::Constraint));
    print_newest(
        "rule file",
        run.task.rules.iter().map(|file| {
            let read = if memory.rules_read.contains_key(&file.path) { ", changed on disk since" } else { "" };
            let first = if run.window.rules.contains(&file.path) { "" } else { ", not used yet" };
            format!("{}{first}{read}", file.path)
        }),
    );
    print_newest(
        "message",
        memory.messages.iter().filter(|message| message.reviewed.is_none()).map(|message| {
            let images = words::images(message.item.images());
            format!("{}, not answered for yet: {}{images}", message_id(message.seq), said(message))
        }),
    );
    print_newest(
        "check",
        memory.verdicts.iter().map(|(name, last)| {
            let word = match last.finding {
                Finding::Passed => "passed",
                Finding::Failed => "failed",
                Finding::Held => "not run",
            };
            let evidence = if last.text.trim().is_empty() { String::new() } else { format!(": {}", last.text) };
            format!("{name} {word} when last judged{evidence}")
        }),
    );
    print_newest("step", notes(NoteKind::Step));
    if let Some((id, text)) = memory.steps_done.last() {
        print_newest("steps done", std::iter::once(format!("{}, the last: {id} {text}", memory.steps_done_count)));
    }
    print_newest("open loop", notes(NoteKind::OpenLoop));
    print_newest("decision", notes(NoteKind::Decision));
    print_newest("finding", notes(NoteKind::Finding));
    print_newest(
        "effect",
        memory.effects.iter().map(|(action, effect)| {
            let receipt = if effect.receipt.is_empty() { String::new() } else { format!(" → {}", effect.receipt) };
            format!("{action} {} {}: {}{receipt}", effect.tool, words::short(&effect.args, 60), effect.state.as_str())
        }),
    );
    let mut files: Vec<_> = memory.changed.iter().collect();
    files.sort_unstable_by_key(|(path, action)| (**action, *path));
    print_newest("file", files.into_iter().map(|(path, action)| format!("{path}, changed by {action}")));
    print_newest(
        "fact",
        run.facts
            .iter()
            .filter(|(fact, _)| run.fact_holds(fact))
            .map(|(fact, evidence)| format!("{fact} holds ({evidence})")),
    );
}

fn noted(id: NoteId, kept: &Kept) -> String {
    let cites = if kept.cites.is_empty() { String::new() } else { format!(" ({})", kept.cites.join(", ")) };
    format!("{id} {}{cites}", kept.text)
}

/// What is in force is shown whole, whatever there is of it.
fn print_all(title: &str, lines: impl Iterator<Item = String>) {
    for line in lines {
        lay!(LABEL, "{title:<10} {}", words::safe(&line.replace('\n', " ⏎ ")));
    }
}

fn print_newest(title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<_> = lines.collect();
    let skipped = lines.len().saturating_sub(LINES_MAX);
    if skipped > 0 {
        lay!(LABEL, "{title:<10} ({skipped} earlier ones; show --json has them)");
    }
    for line in lines.iter().skip(skipped) {
        lay!(LABEL, "{title:<10} {}", words::short(line, LINE_WIDTH));
    }
}
