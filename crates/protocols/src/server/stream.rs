//! One stream of server-sent events, kept until it was read: a client that lost its connection comes back for the rest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use hyper::body::Frame;
use longrein_ports::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use super::peer::Outlet;

/// Events that are kept for a client to come back to: the newest.
const EVENTS_MAX: usize = 512;
/// When a client that lost its stream is to come back.
const RETRY_MS: u64 = 500;
/// How often a silent stream says that it is there.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

pub(crate) struct Stream {
    number: u64,
    /// Whether its client can come back to it.
    resumes: bool,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// With their numbers, in order.
    events: VecDeque<(u64, Bytes)>,
    last: u64,
    has_ended: bool,
    /// How often it was cut: whoever reads from before a cut stops there.
    cuts: u64,
    readers: usize,
}

impl Stream {
    pub(crate) fn new(number: u64, resumes: bool) -> Arc<Self> {
        let state = State::default();
        Arc::new(Self { number, resumes, state: Mutex::new(state), changed: watch::Sender::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    pub(crate) fn is_read(&self) -> bool {
        self.state().readers > 0
    }

    /// The number of its last event: who reads from here sees only what comes.
    pub(crate) fn last(&self) -> u64 {
        self.state().last
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.state().has_ended = true;
        self.changed.send_modify(|version| *version += 1);
    }

    fn push(&self, message: &Value) {
        {
            let mut state = self.state();
            state.last += 1;
            let last = state.last;
            let id = if self.resumes { format!("id: {}-{last}\n", self.number) } else { String::new() };
            state.events.push_back((last, Bytes::from(format!("{id}event: message\ndata: {message}\n\n"))));
        }
        self.changed.send_modify(|version| *version += 1);
    }

    /// What comes after event `after`, as the frames of a body.
    pub(crate) fn read(
        self: &Arc<Self>,
        after: u64,
    ) -> impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + use<> {
        let cuts = {
            let mut state = self.state();
            state.readers += 1;
            state.cuts
        };
        let reader = Reader { stream: Arc::clone(self), after, cuts, is_primed: !self.resumes };
        unfold(reader, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((Ok(Frame::data(bytes)), reader))
        })
    }
}

struct Reader {
    stream: Arc<Stream>,
    after: u64,
    cuts: u64,
    /// Told the client where it is and when to come back.
    is_primed: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.is_primed, true) {
            let (number, after) = (self.stream.number, self.after);
            return Some(Bytes::from(format!("id: {number}-{after}\nretry: {RETRY_MS}\ndata: \n\n")));
        }
        let mut changed = self.stream.changed.subscribe();
        loop {
            {
                let state = self.stream.state();
                if let Some((number, bytes)) = state.events.iter().find(|(number, _)| *number > self.after) {
                    self.after = *number;
                    return Some(bytes.clone());
                }
                if state.has_ended || state.cuts != self.cuts {
                    return None;
                }
            }
            tokio::select! {
                told = changed.changed() => told.ok()?,
                () = tokio::time::sleep(ALIVE_EVERY) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        state.readers = state.readers.saturating_sub(1);
    }
}

impl Outlet for Stream {
    fn send(&self, message: Value) -> BoxFuture<'_, bool> {
        self.push(&message);
        Box::pin(async { true })
    }

    fn offer(&self, message: Value) {
        {
            let mut state = self.state();
            if state.events.len() >= EVENTS_MAX {
                state.events.pop_front();
            }
        }
        self.push(&message);
    }

    fn cut(&self) {
        if self.resumes {
            self.state().cuts += 1;
            self.changed.send_modify(|version| *version += 1);
        }
    }
}
