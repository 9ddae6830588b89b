//! The events of a run as they are committed, read from its journal: nothing is kept for a reader who does not come.

use std::collections::VecDeque;
use std::fmt;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use longrein_core::event::Event;
use longrein_core::ids::{RunId, Seq};
use longrein_core::run::{Run, Stage};
use longrein_ports::{Recorded, RecordedBody};
use serde_json::Value;
use tokio::sync::watch;

use super::error::Error;
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

    /// Its number in the journal.
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

/// Where a reader is.
struct Cursor {
    runs: Runs,
    id: RunId,
    after: Seq,
    /// The state up to there: the last line sums it up.
    run: Option<Run>,
    head: watch::Receiver<Seq>,
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
) -> BoxStream<'static, Result<Line, Error>> {
    let after = from.as_ref().map_or(Seq(0), |run| run.head);
    let cursor = Cursor { runs, id, after, run: from, head, ready: VecDeque::new(), over: false };
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
            } else if self.head.changed().await.is_err() {
                // What came with the last batch is read in the next round.
            }
        }
    }

    /// Reads on; answers how many records there were.
    async fn read(&mut self) -> Result<usize, Error> {
        let records = self.runs.records(&self.id, self.after).await?;
        for Recorded { seq, at, body } in &records {
            self.after = *seq;
            // A kind that is not known here, or damage, ends the run itself; it is no line.
            let RecordedBody::Known(event) = body else { continue };
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
