//! Who writes summaries in a simulation: one answer after the other, whatever is asked. `$SOURCE` in one stands for the
//! first id it is shown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use longrein_core::ids::{Digest, ModelName};
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::prompt::Prompt;
use longrein_core::task::{ModelSpec, Task};
use longrein_ports::{BoxFuture, Encoded, Model};

use crate::people::Answer;
use crate::process::Process;
use crate::store::Store;

/// The summary model behind all processes, and how often it was called.
pub struct Scribe {
    store: Arc<Store>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The last one stays.
    script: Vec<Answer>,
    sends: u64,
}

impl Scribe {
    pub fn new(store: &Arc<Store>) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        self.inner().script = answers.into_iter().collect();
    }

    pub fn sends(&self) -> u64 {
        self.inner().sends
    }

    fn answer(&self) -> Answer {
        let mut inner = self.inner();
        let nth = usize::try_from(inner.sends).unwrap_or(usize::MAX);
        inner.sends += 1;
        inner.script.get(nth).or(inner.script.last()).cloned().unwrap_or_else(|| Answer::say("Nothing happened."))
    }
}

/// One line that can be kept.
pub fn fact(text: &str) -> Answer {
    Answer::say(&format!(r#"{{"text":"{text}","sources":["$SOURCE"]}}"#))
}

/// A task whose window is small, and that names a model for summaries.
pub fn small_window(task: &mut Task) {
    task.model.context_limit = Some(6_000);
    task.context.summary = Some(Box::new(ModelSpec::plain(ModelName::new("sim/scribe"), 1_000)));
}

/// So many turns of many words and a look at something new: a window of [`small_window`] is full after some ten.
pub fn talk(turns: u32) -> Vec<Answer> {
    let turn = |number: u32| {
        let args = format!(r#"{{"page":{number}}}"#);
        let mut answer = Answer::call(&[("look", &args)]);
        if let Ok(reply) = &mut answer.reply {
            reply.text = format!("Page {number} says much. ").repeat(50);
        }
        answer
    };
    (1..=turns).map(turn).collect()
}

/// The first id in a request, as [`Pen`] encodes one.
fn first_id(request: &[u8]) -> &str {
    let text = std::str::from_utf8(request).unwrap_or_default();
    text.split(r#"{\"id\":\""#).nth(1).and_then(|rest| rest.split('\\').next()).unwrap_or_default()
}

/// The summary model as one process calls it.
pub struct Pen {
    pub scribe: Arc<Scribe>,
    pub process: Arc<Process>,
}

impl Model for Pen {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.process.glance();
        let text = format!("summary\n{}\n{:?}\n{}", prompt.system, prompt.items, prompt.max_output);
        let digest = Digest::of(text.as_bytes());
        Encoded { bytes: Bytes::from(text), digest, position: prompt.position, answer: prompt.answer.clone() }
    }

    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            self.process.call("send for a summary").await;
            if !self.scribe.store.shadow().runs.values().any(|run| run.has_synced_request(&request.digest)) {
                self.process.record.breach("law_5", "a request for a summary is sent before it is synced".to_owned());
            }
            let mut answer = self.scribe.answer();
            if let Ok(reply) = &mut answer.reply {
                reply.text = reply.text.replace("$SOURCE", first_id(&request.bytes));
            }
            tokio::time::sleep(answer.after).await;
            self.process.call("summary").await;
            answer.reply
        })
    }
}
