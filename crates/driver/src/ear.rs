//! Who listens while a reply comes in: pieces are told to the observer, and to nobody else. Nothing of them is journaled or
//! acted on: a reply is one only when it is whole (`semantics.md` D10).
//!
//! Known secrets are kept out as they are of the whole reply: what may be the beginning of one is held back until it is
//! whole, and then a mark stands for it, or until it turns out to be none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longrein_core::ids::{AttemptId, RunId};
use longrein_ports::{Listener, Spoken, Tools};

use crate::drive::Observer;

/// Hears one attempt.
pub(crate) struct Ear {
    observer: Arc<dyn Observer>,
    tools: Arc<dyn Tools>,
    run: RunId,
    attempt: AttemptId,
    /// Whether something was told that counts until it is told to be void.
    told: Arc<AtomicBool>,
    held: Mutex<Held>,
}

/// What was said and is not told yet. Texts and thoughts are two streams: what lies between two pieces of one does not end
/// what may have begun in it.
#[derive(Default)]
struct Held {
    text: String,
    thought: String,
}

/// Whether what is held can still be gone on with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    MayCome,
    Over,
}

impl Ear {
    pub(crate) fn new(
        observer: &Arc<dyn Observer>,
        tools: &Arc<dyn Tools>,
        run: &RunId,
        attempt: AttemptId,
        told: Arc<AtomicBool>,
    ) -> Self {
        let (observer, tools) = (Arc::clone(observer), Arc::clone(tools));
        Self { observer, tools, run: run.clone(), attempt, told, held: Mutex::default() }
    }

    /// The reply is whole: what was held back is told.
    pub(crate) fn over(&self) {
        let held = &mut *self.held();
        if let Some(thought) = self.ready(&mut held.thought, More::Over) {
            self.tell(Spoken::Thought(&thought));
        }
        if let Some(text) = self.ready(&mut held.text, More::Over) {
            self.tell(Spoken::Text(&text));
        }
    }

    /// What of `held` can be shown.
    fn ready(&self, held: &mut String, more: More) -> Option<String> {
        let until = match more {
            More::MayCome => self.tools.unfinished(held),
            More::Over => held.len(),
        };
        let rest = held.split_off(until);
        let ready = std::mem::replace(held, rest);
        (!ready.is_empty()).then(|| self.tools.unsaid(&ready).unwrap_or(ready))
    }

    fn tell(&self, spoken: Spoken<'_>) {
        self.told.store(spoken != Spoken::Anew, Ordering::Relaxed);
        self.observer.heard(&self.run, self.attempt, spoken);
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Ear {
    fn hear(&self, spoken: Spoken<'_>) {
        let mut held = self.held();
        match spoken {
            Spoken::Text(more) => {
                held.text.push_str(more);
                if let Some(text) = self.ready(&mut held.text, More::MayCome) {
                    self.tell(Spoken::Text(&text));
                }
            }
            Spoken::Thought(more) => {
                held.thought.push_str(more);
                if let Some(thought) = self.ready(&mut held.thought, More::MayCome) {
                    self.tell(Spoken::Thought(&thought));
                }
            }
            Spoken::Anew => {
                *held = Held::default();
                if self.told.load(Ordering::Relaxed) {
                    self.tell(Spoken::Anew);
                }
            }
        }
    }
}
