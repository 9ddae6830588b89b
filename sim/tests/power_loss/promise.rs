//! What must hold of a store that is found after a loss of power.
//!
//! Each run stands where it stood after some of its steps, whole and no further than it was asked. Every step that was
//! answered as synced is among them, and whatever was answered, of any run, before such a step was asked for. And nothing
//! survives that was asked for after the answer to something lost.

use std::path::Path;

use longrein_ports::{Create, Durability, Journal};

use crate::story::{Ask, Hold, Recording, Seen, Told, batch, look, open, worker};

/// What is owed to those who were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Everything answered.
    ProcessDeath,
    /// What was synced.
    PowerLoss,
}

/// Opens what is found in `root` after `position`, and goes on with it.
pub(crate) async fn check(recording: &Recording, position: usize, after: After, root: &Path) -> Result<(), String> {
    let journal = open(root)?;
    let mut found = Vec::new();
    for told in &recording.runs {
        found.push(look(&journal, &told.id).await?);
        is_whole(&journal, told).await?;
    }
    let mut survived = Vec::new();
    for (told, found) in recording.runs.iter().zip(found) {
        let begun = told.steps.iter().filter(|step| step.asked.position <= position).count();
        let claim = journal.claim(&told.id, &worker(), None, Create::IfAbsent).await;
        let hold = Hold::before(&claim).ok_or_else(|| format!("{} cannot be claimed: {claim:?}", told.id))?;
        survived.push(told.steps_behind(begun, &Seen { hold, ..found })?);
        if let Ok(claim) = claim {
            let next = batch(&told.id, claim.fence.0, claim.head.0);
            journal.append(&claim, &next).await.map_err(|error| format!("{} cannot go on: {error}", told.id))?;
        }
    }
    for (told, survived) in recording.runs.iter().zip(&survived) {
        let owed = owed(recording, told, position, after);
        if *survived < owed {
            let lost = &told.steps[*survived].ask;
            return Err(format!("{}: {lost} is lost, step {} of {owed} that must be there", told.id, survived + 1));
        }
        let steps = &told.steps[..*survived];
        if steps.last().is_some_and(|last| matches!(last.ask, Ask::Purge)) {
            continue;
        }
        for (digest, bytes) in steps.iter().flat_map(|step| step.blobs()) {
            let there = journal.blob(digest).await.map_err(|error| error.to_string())?;
            if there.as_ref() != Some(bytes) {
                return Err(format!("{}: blob {digest} of {} bytes is not there", told.id, bytes.len()));
            }
        }
    }
    in_order(recording, &survived)
}

async fn is_whole(journal: &dyn Journal, told: &Told) -> Result<(), String> {
    let report = journal.verify(&told.id).await.map_err(|error| format!("{} cannot be verified: {error}", told.id))?;
    match report {
        Some(report) if !report.findings.is_empty() => Err(format!("{}: {:?}", told.id, report.findings)),
        Some(_) | None => Ok(()),
    }
}

/// How many steps of a run must be there.
fn owed(recording: &Recording, told: &Told, position: usize, after: After) -> usize {
    let answered = told.steps.iter().filter(|step| step.answered.position <= position).count();
    if after == After::ProcessDeath {
        return answered;
    }
    let synced = |told: &Told| -> Vec<(usize, u64)> {
        let steps = told.steps[..].iter().enumerate().filter(|(_, step)| step.answered.position <= position);
        steps
            .filter(|(_, step)| step.durability() == Durability::Synced)
            .map(|(nth, step)| (nth + 1, step.asked.tick))
            .collect()
    };
    // A sync takes along what any run was told before it was asked for.
    let asked = recording.runs.iter().flat_map(synced).map(|(_, asked)| asked).max().unwrap_or(0);
    let taken_along = told.steps.iter().filter(|step| step.answered.tick < asked).count();
    let own = synced(told).last().map_or(0, |(steps, _)| *steps);
    let repeated = told.repeated.iter().filter(|(_, mark)| mark.position <= position).map(|(steps, _)| *steps).max();
    taken_along.max(own).max(repeated.unwrap_or(0))
}

/// Nothing survives that was asked for after the answer to something lost.
fn in_order(recording: &Recording, survived: &[usize]) -> Result<(), String> {
    let both = || recording.runs.iter().zip(survived);
    let first_lost =
        both().filter_map(|(told, survived)| Some((told.steps.get(*survived)?.answered.tick, &told.id))).min();
    let last_kept =
        both().filter_map(|(told, survived)| Some((told.steps[..*survived].last()?.asked.tick, &told.id))).max();
    match (first_lost, last_kept) {
        (Some((answered, lost)), Some((asked, kept))) if answered < asked => Err(format!(
            "a step of {kept} is there, and one of {lost} that was answered before it was asked for is not"
        )),
        _ => Ok(()),
    }
}
