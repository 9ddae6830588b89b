//! Folding a journal into a run: how every claim, listing and inspection begins.

use longrein_core::event::Event;
use longrein_core::ids::{RunId, Seq};
use longrein_core::run::Run;
use longrein_core::snapshot;
use longrein_ports::{Journal, JournalError, Recorded, RecordedBody};

use crate::ports::Ports;

/// Why a journal does not fold to a run that could go on.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// No first event: it was claimed, and died before it began.
    #[error("run {0} has no events")]
    Empty(RunId),
    /// The run is read-only here (`semantics.md` B3).
    #[error("run {run} can only be looked at here: event {at} {what}")]
    ReadOnly { run: RunId, at: Seq, what: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Events read at a time: bounds what one read holds in memory.
const PAGE: usize = 512;

/// Folds all of a run's events, showing each to `see`.
pub async fn fold(journal: &dyn Journal, run: &RunId, see: impl FnMut(&Recorded)) -> Result<Run, FoldError> {
    fold_on(journal, run, None, see).await
}

/// The same state, from the last good snapshot where there is one: what every claim begins with.
pub(crate) async fn fold_known(ports: &Ports, run: &RunId) -> Result<Run, FoldError> {
    let journal = ports.journal.as_ref();
    let first = journal.read(run, Seq(0), 1).await?;
    let started = first.first().and_then(|record| match &record.body {
        RecordedBody::Known(Event::RunStarted(started)) => Some(started),
        RecordedBody::Known(_) | RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => None,
    });
    // A cache that cannot be read is none.
    let snapshots = ports.cabinet.snapshots(run).await.unwrap_or_default();
    let known = started.and_then(|started| {
        let ours = snapshots.iter().filter(|kept| kept.catalogue == snapshot::catalogue());
        ours.filter_map(|kept| snapshot::restore(&kept.body, started).filter(|run| run.head == kept.seq)).next()
    });
    fold_on(journal, run, known, |_| {}).await
}

async fn fold_on(
    journal: &dyn Journal,
    run: &RunId,
    mut folded: Option<Run>,
    mut see: impl FnMut(&Recorded),
) -> Result<Run, FoldError> {
    let mut after = folded.as_ref().map_or(Seq(0), |run| run.head);
    loop {
        let page = journal.read(run, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        for record in &page {
            see(record);
            after = record.seq;
            match &record.body {
                RecordedBody::Known(Event::RunStarted(started)) if folded.is_none() => {
                    folded = Some(Run::new(started, record.at));
                }
                RecordedBody::Known(event) => match &mut folded {
                    Some(run) => run.apply(record.seq, record.at, event),
                    None => {
                        let what = "comes before the start of the run".to_owned();
                        return Err(FoldError::ReadOnly { run: run.clone(), at: record.seq, what });
                    }
                },
                RecordedBody::Unknown { kind, must_understand: true, .. } => {
                    let what = format!("is of a kind this version does not know ({kind}); use the newer one");
                    return Err(FoldError::ReadOnly { run: run.clone(), at: record.seq, what });
                }
                RecordedBody::Unknown { must_understand: false, .. } => {
                    if let Some(run) = &mut folded {
                        run.head = record.seq;
                    }
                }
                RecordedBody::Damaged { what } => {
                    let what = format!("is damaged: {what}");
                    return Err(FoldError::ReadOnly { run: run.clone(), at: record.seq, what });
                }
            }
        }
        if is_last {
            return folded.ok_or_else(|| FoldError::Empty(run.clone()));
        }
    }
}
