//! Summaries of what has left the window: gathered from the journal and asked for beside the run's own work. Nothing waits
//! for one, and nothing that goes wrong with one is more than a summary too few.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::context::archive::Handle;
use longrein_core::context::estimate::{Estimator, Features};
use longrein_core::context::summary::material::{Material, Request, Terms};
use longrein_core::decide::{AskSummary, Command, TakeSummary};
use longrein_core::event::SummaryRequested;
use longrein_core::ids::{ModelName, RunId, Seq};
use longrein_ports::{Encoded, Journal, JournalError, RecordedBody};

use crate::claimed::Drive;
use crate::context::Learned;
use crate::jobs::{Cut, Flight, Landed};
use crate::ports::Ports;
use crate::said::{self, Sent};
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
    shown: BTreeMap<Handle, String>,
    features: Features,
    estimator: Estimator,
    learned: Option<u64>,
}

impl Drive<'_> {
    /// Begins to gather what the summary that is due is made from. Answers whether that took off.
    pub(crate) fn gather(&mut self) -> bool {
        let Some(terms) = Terms::of(&self.run) else { return false };
        let generation = terms.owed.stretch.generation;
        let flight = Flight::Gather(generation, terms.owed.attempt);
        let work = gather(self.ports, self.run.id.clone(), terms);
        self.hangar.launch(flight, work, move |gathered| Landed::Gather(generation, gathered));
        true
    }

    /// Asks for the summary, if it may still be asked for.
    pub(crate) fn gathered(&mut self, generation: u32, gathered: Result<Result<Box<Gathered>, String>, Cut>) {
        let Some(summariser) = self.ports.summariser.clone() else { return };
        let gathered = match gathered {
            Ok(gathered) => gathered,
            Err(Cut::Broken(panic)) => Err(format!("gathering it broke down: {panic}")),
            // Given up: still owed if it is.
            Err(Cut::Aborted(_)) => return,
        };
        let Gathered { model, request, estimator, learned } = match gathered {
            Ok(gathered) => *gathered,
            Err(reason) => {
                self.command(Command::ForgoSummary { generation, reason });
                return;
            }
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
        let (generation, attempt, tools) = (requested.generation, requested.attempt, Arc::clone(&self.ports.tools));
        let send = async move { said::sent(summariser.as_ref(), tools.as_ref(), encoded).await };
        let hears = move |sent| Landed::Summary(generation, attempt, sent);
        self.hangar.launch(Flight::Summary(generation, attempt), send, hears);
    }

    pub(crate) async fn summarised(&mut self, generation: u32, attempt: u32, sent: Result<Sent, Cut>) {
        let result = match sent {
            Ok(sent) => sent.result(),
            // Told to stop, the suspension settles it.
            Err(Cut::Aborted(_)) if self.stopping.is_some() => return,
            Err(cut) => Err(given_up(cut)),
        };
        let Some(mut asked) = self.summary.take_if(|asked| asked.generation == generation) else { return };
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

fn gather(
    ports: &Ports,
    run: RunId,
    terms: Terms,
) -> impl Future<Output = Result<Box<Gathered>, String>> + Send + 'static {
    let (journal, cabinet) = (Arc::clone(&ports.journal), Arc::clone(&ports.cabinet));
    async move {
        let material = material(journal.as_ref(), &run, &terms).await.map_err(|error| error.to_string())?;
        let Learned { estimator, limit, .. } = Learned::recall(cabinet.as_ref(), &terms.model, &[]).await;
        let request = material.request(&terms, &estimator, limit)?;
        Ok(Box::new(Gathered { model: terms.model.name, request, estimator, learned: limit }))
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
