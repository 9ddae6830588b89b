//! A run in the hand: a stream of its events, a future of its outcome.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use longrein_core::budget::Raise;
use longrein_core::event::Suspension;
use longrein_core::ids::{ActionId, RunId};
use longrein_driver::Stop;
use longrein_ports::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::door::Longrein;
use super::error::Error;
use super::lines::Line;
use super::outcome::{Question, RunOutcome};

/// A run that this process drives.
///
/// It goes on by itself on the runtime it was started on, whether anybody looks or not. It is a [`Stream`] of its events
/// ([`next`](Run::next) needs no other crate), and awaiting it gives its [`RunOutcome`].
///
/// Dropping it lets go of the run: what its tools run is ended, `run.suspended` is journaled, and
/// [`Longrein::resume`] goes on with it, in this process or another. If the runtime ends before that is written, the run is
/// free once its lease is over. To know when it is written, [`suspend`](Run::suspend) it.
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) door: Longrein,
    /// Never locked, only reached through: a handle can be shared, a stream cannot.
    pub(crate) events: Mutex<BoxStream<'static, Result<Line, Error>>>,
    pub(crate) work: Work,
}

/// What becomes of a run.
pub(crate) enum Work {
    Driven {
        task: JoinHandle<Result<RunOutcome, Error>>,
        stop: Stop,
        /// Let go of when the drive is over.
        over: watch::Receiver<()>,
    },
    Over(Box<RunOutcome>),
    /// It ended in an error that was told.
    Told,
}

impl Run {
    /// Its id: what [`Longrein::resume`] and the command line know it by.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The next event; None when nothing drives the run any more.
    pub async fn next(&mut self) -> Option<Result<Line, Error>> {
        self.events().next().await
    }

    fn events(&mut self) -> &mut BoxStream<'static, Result<Line, Error>> {
        self.events.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has ended, waits for a person, or is suspended. Dropping this future changes nothing.
    pub async fn outcome(&mut self) -> Result<RunOutcome, Error> {
        match &mut self.work {
            Work::Over(outcome) => Ok(outcome.as_ref().clone()),
            Work::Told => Err(Error::Told(self.id.clone())),
            Work::Driven { task, .. } => {
                let ended = task.await;
                let result = ended
                    .unwrap_or_else(|error| Err(Error::Broken { run: self.id.clone(), problem: error.to_string() }));
                self.work = match &result {
                    Ok(outcome) => Work::Over(Box::new(outcome.clone())),
                    Err(_) => Work::Told,
                };
                result
            }
        }
    }

    /// Stops it where it is, orderly, and waits until that is written. External calls get two seconds to end by themselves.
    pub async fn suspend(mut self) -> Result<RunOutcome, Error> {
        if let Work::Driven { stop, .. } = &self.work {
            stop.now(Suspension::Dropped);
        }
        self.outcome().await
    }

    /// Sends a person's words to the model.
    pub async fn send(&self, text: impl Into<String>) -> Result<(), Error> {
        self.door.send(&self.id, text).await
    }

    /// What a person is asked now.
    pub async fn questions(&self) -> Result<Vec<Question>, Error> {
        self.door.questions(&self.id).await
    }

    /// Says yes to an action that is asked about, in somebody's name. The yes is for this action alone, and for a day.
    pub async fn approve(&self, action: ActionId, by: &str) -> Result<(), Error> {
        self.door.approve(&self.id, action, by).await
    }

    /// Says no to an action that is asked about. The model is told the reason.
    pub async fn deny(&self, action: ActionId, by: &str, reason: &str) -> Result<(), Error> {
        self.door.deny(&self.id, action, by, reason).await
    }

    /// Raises budgets.
    pub async fn raise(&self, raise: Raise) -> Result<(), Error> {
        self.door.raise(&self.id, raise).await
    }

    /// Cancels it: nothing new starts, what runs is ended, and it rests for good. The outcome says so.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.door.cancel(&self.id).await
    }
}

impl Stream for Run {
    type Item = Result<Line, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events().poll_next_unpin(context)
    }
}

impl IntoFuture for Run {
    type Output = Result<RunOutcome, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move { self.outcome().await })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Work::Driven { task, stop, over } = &self.work
            && !task.is_finished()
        {
            stop.now(Suspension::Dropped);
            self.door.is_leaving(&self.id, over.clone());
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish_non_exhaustive()
    }
}
