//! Summaries of what has left the window: gathered from the journal and asked for beside the run's own work. Nothing waits
//! for one, and nothing that goes wrong with one is more than a summary too few.

use std::collections::BTreeSet;
use std::sync::Arc;

use longrein_core::context::archive::Handle;
use longrein_core::context::estimate::{Estimator, Features};
use longrein_core::context::summary::material::{Material, Request, Terms};
use longrein_core::decide::{AskSummary, Command, TakeSummary};
use longrein_core::event::SummaryRequested;
use longrein_core::ids::{ModelName, RunId, Seq};
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_ports::{Encoded, Journal, JournalError, RecordedBody};

use crate::claimed::Drive;
use crate::context::Learned;
use crate::jobs::{Flight, Landed};
use crate::ports::Ports;
use crate::said;
use crate::waiting::given_up;

/// Events read at a time.
const PAGE: usize = 512;
/// Events of one stretch that are read: a reply brings some hundreds at most, and a stretch has some dozens of replies.
const EVENTS_MAX: usize = 20_000;

/// What is to be sent for a summary.
#[derive(Debug)]
pub(crate) struct Gathered {
    model: ModelName,
    request: Request,
    estimator: Estimator,
    learned: Option<u64>,
}

/// A summary that is asked for.
pub(crate) struct Asked {
    generation: u32,
    model: ModelName,
    /// Until it is sent.
    encoded: Option<Encoded>,
    shown: BTreeSet<Handle>,
    features: Features,
    estimator: Estimator,
    learned: Option<u64>,
}

impl Drive<'_> {
    /// Begins to gather what the summary that is due is made from. Answers whether that took off.
    pub(crate) fn gather(&mut self) -> bool {
        let Some(terms) = Terms::of(&self.run) else { return false };
        let flight = Flight::Gather(terms.owed.stretch.generation, terms.owed.attempt);
        self.hangar.launch(flight, gather(self.ports, self.run.id.clone(), terms));
        true
    }

    /// Asks for the summary, if it may still be asked for.
    pub(crate) fn gathered(&mut self, generation: u32, landed: Landed) {
        let Some(summariser) = self.ports.summariser.clone() else { return };
        let Gathered { model, request, estimator, learned } = match landed {
            Landed::Gathered(Ok(gathered)) => *gathered,
            Landed::Gathered(Err(reason)) => {
                self.command(Command::ForgoSummary { generation, reason });
                return;
            }
            Landed::Broken(panic) => {
                self.command(Command::ForgoSummary { generation, reason: format!("gathering it broke down: {panic}") });
                return;
            }
            // Given up: still owed if it is.
            Landed::Aborted
            | Landed::Sent(_)
            | Landed::Ran(..)
            | Landed::Recovered(..)
            | Landed::Checked(..)
            | Landed::Tree(_)
            | Landed::Undone(_)
            | Landed::Heard(_)
            | Landed::InboxChanged
            | Landed::Child(_)
            | Landed::Indexed
            | Landed::Kept => return,
        };
        let Request { prompt, counted, shown, features } = request;
        let encoded = summariser.encode(&prompt);
        let asked = AskSummary {
            generation,
            digest: encoded.digest.clone(),
            bytes: encoded.bytes.len() as u64,
            counted,
            output: prompt.max_output,
        };
        if self.command(Command::AskSummary(asked)) {
            self.summary =
                Some(Asked { generation, model, encoded: Some(encoded), shown, features, estimator, learned });
        }
    }

    /// Sends what was journaled as asked for.
    pub(crate) fn send_summary(&mut self, requested: &SummaryRequested) {
        let Some(summariser) = self.ports.summariser.clone() else { return };
        let asked = self.summary.as_mut().filter(|asked| asked.generation == requested.generation);
        let Some(encoded) = asked.and_then(|asked| asked.encoded.take_if(|encoded| encoded.digest == requested.digest))
        else {
            return;
        };
        let flight = Flight::Summary(requested.generation, requested.attempt);
        let tools = Arc::clone(&self.ports.tools);
        self.hangar.launch(flight, async move { said::sent(summariser.as_ref(), tools.as_ref(), encoded).await });
    }

    pub(crate) async fn summarised(&mut self, generation: u32, attempt: u32, landed: Landed) {
        // Told to stop, the suspension settles it.
        if self.stopping.is_some() && matches!(landed, Landed::Aborted) {
            return;
        }
        let Some(mut asked) = self.summary.take_if(|asked| asked.generation == generation) else { return };
        let result: Result<Reply, ModelFailure> = match landed {
            Landed::Sent(result) => result,
            landed @ (Landed::Broken(_)
            | Landed::Aborted
            | Landed::Ran(..)
            | Landed::Recovered(..)
            | Landed::Checked(..)
            | Landed::Tree(_)
            | Landed::Undone(_)
            | Landed::Heard(_)
            | Landed::InboxChanged
            | Landed::Child(_)
            | Landed::Indexed
            | Landed::Kept
            | Landed::Gathered(_)) => Err(given_up(&landed)),
        };
        let reported = match &result {
            Ok(reply) => reply.usage,
            Err(failure) => failure.usage,
        };
        if let Some(usage) = reported {
            asked.estimator.learn(&asked.features, usage.tokens().saturating_sub(usage.output));
        }
        self.command(Command::TakeSummary(TakeSummary { generation, attempt, result, shown: asked.shown }));
        let limit = self.run.summaries.served.into_iter().chain(asked.learned).min();
        Learned {
            estimator: asked.estimator,
            limit,
            declared: self.run.task.context.summary.as_ref().and_then(|spec| spec.context_limit),
        }
        .remember(self.ports, &asked.model, &[])
        .await;
    }
}

fn gather(ports: &Ports, run: RunId, terms: Terms) -> impl Future<Output = Landed> + Send + 'static {
    let (journal, cabinet) = (Arc::clone(&ports.journal), Arc::clone(&ports.cabinet));
    async move {
        let material = match material(journal.as_ref(), &run, &terms).await {
            Ok(material) => material,
            Err(error) => return Landed::Gathered(Err(error.to_string())),
        };
        let Learned { estimator, limit, .. } = Learned::recall(cabinet.as_ref(), &terms.model, &[]).await;
        let request = material.request(&terms, &estimator, limit);
        let model = terms.model.name;
        Landed::Gathered(request.map(|request| Box::new(Gathered { model, request, estimator, learned: limit })))
    }
}

/// The events of the turns, from the journal alone.
async fn material(journal: &dyn Journal, run: &RunId, terms: &Terms) -> Result<Material, JournalError> {
    let mut material = Material::default();
    let stretch = &terms.owed.stretch;
    let mut after = stretch.after;
    let mut left = EVENTS_MAX;
    while left > 0 && after.next() < stretch.before {
        let page = journal.read(run, after, PAGE.min(left)).await?;
        let Some(last) = page.last() else { break };
        let last: Seq = last.seq;
        left = left.saturating_sub(page.len());
        for record in page.into_iter().take_while(|record| record.seq < stretch.before) {
            if let RecordedBody::Known(event) = &record.body {
                material.add(record.seq, event);
            }
        }
        after = last;
    }
    Ok(material)
}
