//! The events of a run as they are committed, read from its journal: nothing is kept for a reader who does not come, but for
//! the last pieces of a reply on its way in, which are in no journal.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use longrein_core::event::Event;
use longrein_core::ids::{AttemptId, RunId, Seq};
use longrein_core::run::{Run, Stage};
use longrein_ports::{Recorded, RecordedBody, Spoken};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::error::Error;
use crate::backlog::Backlog;
use crate::projection;
use crate::runs::Runs;

/// One event of a run, in its public form: the same object the command line prints with `--json`, whose meaning does not
/// change. Printed, it is that line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line(Value);

impl Line {
    /// The type: `action.finished`, `run.ended`.
    pub fn kind(&self) -> &str {
        self.0["type"].as_str().unwrap_or_default()
    }

    /// Its number in the journal; 0: it is in none, since it tells of a reply that does not stand yet (`progress.text`).
    pub fn seq(&self) -> u64 {
        self.0["seq"].as_u64().unwrap_or_default()
    }

    /// One of its fields; null if it has none of that name.
    pub fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// The whole object.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is said of a reply on its way in, until it is read.
#[derive(Default)]
pub(crate) struct Speech {
    backlog: Mutex<Backlog>,
    more: Notify,
}

impl Speech {
    pub(crate) fn add(&self, attempt: AttemptId, spoken: Spoken<'_>) {
        self.backlog().add(attempt, spoken);
        self.more.notify_one();
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a reader is.
struct Cursor {
    runs: Runs,
    id: RunId,
    after: Seq,
    /// The state up to there: the last line sums it up.
    run: Option<Run>,
    head: watch::Receiver<Seq>,
    spoken: Arc<Speech>,
    ready: VecDeque<Line>,
    over: bool,
}

/// The events after those of `from`, as they come, until nothing drives the run any more. `head` is told of every batch,
/// and let go of when the last one is committed.
pub(crate) fn lines(
    runs: Runs,
    id: RunId,
    from: Option<Run>,
    head: watch::Receiver<Seq>,
    spoken: Arc<Speech>,
) -> BoxStream<'static, Result<Line, Error>> {
    let after = from.as_ref().map_or(Seq(0), |run| run.head);
    let cursor = Cursor { runs, id, after, run: from, head, spoken, ready: VecDeque::new(), over: false };
    stream::unfold(cursor, |mut cursor| async move {
        let next = cursor.next().await?;
        cursor.over |= next.is_err();
        Some((next, cursor))
    })
    .boxed()
}

/// The one line of a run that rested before.
pub(crate) fn last_line(run: &Run) -> BoxStream<'static, Result<Line, Error>> {
    let line = match &run.stage {
        Stage::Rest(ended) => {
            Some(Ok(Line(projection::line(run, Some(run.head), run.at, &Event::RunEnded(ended.clone())))))
        }
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => None,
    };
    stream::iter(line).boxed()
}

impl Cursor {
    async fn next(&mut self) -> Option<Result<Line, Error>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            if self.over {
                return None;
            }
            // Looked at before reading, so that a last batch is read.
            let ended = self.head.has_changed().is_err();
            let head = *self.head.borrow_and_update();
            if head > self.after || ended {
                match self.read().await {
                    Ok(0) => self.over = ended,
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
                continue;
            }
            self.listen();
            if !self.ready.is_empty() {
                continue;
            }
            let spoken = Arc::clone(&self.spoken);
            // What came with the last batch is read in the next round.
            tokio::select! {
                _ = self.head.changed() => {}
                () = spoken.more.notified() => {}
            }
        }
    }

    /// Takes what was said of the reply that is awaited. What is said of another one has its place behind what is read next.
    fn listen(&mut self) {
        let Some(run) = &self.run else { return };
        let (attempt, is_void) = {
            let backlog = self.spoken.backlog();
            (backlog.attempt(), backlog.is_void())
        };
        let Some(attempt) = attempt else { return };
        let is_awaited = match &run.stage {
            Stage::Thinking(thinking) => attempt <= thinking.attempt,
            // An attempt that came to nothing has taken back what it said.
            Stage::Ready(_) => is_void,
            Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => false,
        };
        if is_awaited {
            self.take_spoken();
        }
    }

    fn take_spoken(&mut self) {
        let Some(run) = &self.run else { return };
        let spoken = self.spoken.backlog().take();
        let now = self.runs.clock().now();
        self.ready.extend(spoken.iter().map(|(attempt, piece)| Line(projection::piece(&run.id, now, *attempt, piece))));
    }

    /// Reads on; answers how many records there were.
    async fn read(&mut self) -> Result<usize, Error> {
        let records = self.runs.records(&self.id, self.after).await?;
        for Recorded { seq, at, body } in &records {
            self.after = *seq;
            // A kind that is not known here, or damage, ends the run itself; it is no line.
            let RecordedBody::Known(event) = body else { continue };
            if let Event::ModelReplied(replied) = event
                && self.spoken.backlog().attempt().is_some_and(|attempt| attempt <= replied.attempt)
            {
                self.take_spoken();
            }
            match (&mut self.run, event) {
                (None, Event::RunStarted(started)) => self.run = Some(Run::new(started, *at)),
                (Some(run), event) => run.apply(*seq, *at, event),
                (None, _) => {}
            }
            if let Some(run) = &self.run {
                self.ready.push_back(Line(projection::line(run, Some(*seq), *at, event)));
            }
        }
        Ok(records.len())
    }
}
