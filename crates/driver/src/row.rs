//! A run as listings show it.

use longrein_core::children;
use longrein_core::event::{RunEnded, Suspension, Wait};
use longrein_core::owed;
use longrein_core::run::{Activity, Run, Stage};
use longrein_ports::RunRow;

/// The listing row of a run in its present state.
pub fn run_row(run: &Run) -> RunRow {
    let (state, reason) = state(run);
    RunRow {
        run: run.id.clone(),
        parent: run.descent.as_ref().map(|descent| descent.parent.clone()),
        state,
        reason,
        goal: run.task.goal.chars().take(200).collect(),
        turns: run.spent.turns,
        micros: run.spent.micros,
        started: run.started,
        updated: run.at,
        sources: run.taint.sources.keys().cloned().collect(),
    }
}

fn state(run: &Run) -> (String, String) {
    if let Stage::Rest(ended) = &run.stage {
        let RunEnded { end, reason, .. } = ended.as_ref();
        return (end.state().to_owned(), reason.clone());
    }
    let waits = owed::waits(run);
    let waiting = || waits.iter().map(wait_in_words).collect::<Vec<_>>().join(", ");
    match &run.activity {
        Activity::Parked => ("waiting".to_owned(), waiting()),
        Activity::Suspended { cause: Suspension::Dropped, .. } if run.set_back.is_some() => {
            let said = run.set_back.as_ref().map(|back| {
                format!("{} set it back to before {} at {}; a resume goes on from there", back.by, back.to, back.at)
            });
            ("suspended".to_owned(), said.unwrap_or_default())
        }
        Activity::Suspended { cause, detail } => {
            let cause = suspension_in_words(*cause);
            let reason = if detail.is_empty() { cause.to_owned() } else { format!("{cause}: {detail}") };
            ("suspended".to_owned(), reason)
        }
        Activity::Claimed if !waits.is_empty() => ("waiting".to_owned(), waiting()),
        Activity::Claimed => ("running".to_owned(), children_in_words(run)),
        Activity::Idle => ("suspended".to_owned(), "forked; nobody has gone on with it yet".to_owned()),
    }
}

fn wait_in_words(wait: &Wait) -> String {
    match wait {
        Wait::Approval(action) => format!("approval of {action}"),
        Wait::Answer(action) => format!("answer to {action}"),
        Wait::Unknown(action) => format!("outcome of {action} unknown"),
        Wait::Child { child, waits } => {
            let waits: Vec<_> = waits.iter().map(wait_in_words).collect();
            format!("child {child}: {}", waits.join(", "))
        }
    }
}

/// What a run does whose children work: that is no wait for a person.
fn children_in_words(run: &Run) -> String {
    match children::open(run).as_slice() {
        [] => String::new(),
        [(child, _, _)] => format!("its child {child} works"),
        [(child, _, _), more @ ..] => format!("its child {child} and {} more work", more.len()),
    }
}

/// Why a run was suspended, for people.
pub fn suspension_in_words(cause: Suspension) -> &'static str {
    match cause {
        Suspension::Interrupted => "interrupted",
        Suspension::Terminated => "terminated",
        Suspension::Model => "the model cannot be reached or refuses",
        Suspension::Dropped => "nobody attends to it any more",
    }
}
