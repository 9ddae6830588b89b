//! The door that the server knocks at: each method finds the run, does one thing through the facade, and answers values.

use std::sync::Arc;
use std::time::Duration;

use longrein::WhenAsked;
use longrein::core::action::Action;
use longrein::core::event::Event;
use longrein::core::ids::{ActionId, InputId, RunId, Seq};
use longrein::core::input::{Approve, Covers, Deny, Door as By, InputBody, Settle, Truth};
use longrein::core::payload::{Content, INLINE_MAX_BYTES, Payload};
use longrein::core::run::{Run, Stage};
use longrein::mcp_server::{Class, Door, Fault, Start, Watch};
use longrein::ports::{BoxFuture, Recorded, RecordedBody};
use serde_json::{Value, json};

use super::desk::{Desk, fault, of_runs};
use super::report;
use crate::ask::{GRANT, operator};
use crate::context;
use crate::words;

/// How long a cancel waits to see the run rest.
const REACTION: Duration = Duration::from_secs(4);

/// A desk that is shared: what it begins outlives the request that asked for it.
pub(super) struct Front(pub(super) Arc<Desk>);

impl std::ops::Deref for Front {
    type Target = Arc<Desk>;

    fn deref(&self) -> &Arc<Desk> {
        &self.0
    }
}

impl Door for Front {
    fn start(&self, start: Start) -> BoxFuture<'_, Result<Value, Fault>> {
        Box::pin(self.started(start))
    }

    fn wait<'a>(&'a self, id: &'a str, seconds: u64, watch: Watch<'a>) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let id = self.find(id).await?;
            let run = self.waited(&id, Duration::from_secs(seconds), watch).await?;
            Ok(report::status(self, &run).await)
        })
    }

    fn list(&self, most: usize) -> BoxFuture<'_, Result<Value, Fault>> {
        Box::pin(report::list(self, most))
    }

    fn ids(&self) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(async move {
            let all = self.session.runs.list().await.map_err(of_runs)?;
            Ok(all.into_iter().map(|(row, _)| row.run.to_string()).collect())
        })
    }

    fn show<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let run = self.fold(&self.find(id).await?).await?;
            report::glance(self, &run).await
        })
    }

    fn log<'a>(&'a self, id: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let id = self.find(id).await?;
            report::log(self, &id, Seq(after), most).await
        })
    }

    fn send<'a>(&'a self, id: &'a str, text: String) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            if text.trim().is_empty() {
                return Err(Fault::new(Class::Usage, "the message is empty"));
            }
            let id = self.find(id).await?;
            let run = self.fold(&id).await?;
            if let (Some(descent), Stage::Rest(_)) = (&run.descent, &run.stage) {
                let problem = format!("child {id} has ended, and run {} has its result", descent.parent);
                return Err(Fault::new(Class::Data, problem));
            }
            self.post(&id, InputBody::Message(text)).await?;
            self.after(&id).await
        })
    }

    fn approvals(&self) -> BoxFuture<'_, Result<Value, Fault>> {
        Box::pin(report::approvals(self))
    }

    fn approve<'a>(&'a self, id: &'a str, action: &'a str, always: bool) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let (run, action) = self.action(id, action).await?;
            if let Some(question) = run.action(action).and_then(Action::asks) {
                let problem = format!(
                    "{action} asks a question, and a yes is no answer to it: {}",
                    words::safe(&question.reason)
                );
                return Err(Fault::new(Class::Data, problem).hint("run_send, with the answer"));
            }
            if let Some(problem) = crate::answer::expired(&self.session.runs, &run, action) {
                return Err(Fault::new(Class::Data, problem).hint("run_wait, and it goes on without"));
            }
            if let Some(text) = crate::answer::to_type(&run, action) {
                let problem =
                    format!("{action} would send out what the run has read: a person confirms it by typing {text}");
                return Err(
                    Fault::new(Class::Data, problem).hint(format!("at a terminal: longrein approve {id} {action}"))
                );
            }
            let digest = crate::answer::question(&self.session.runs, &run, action).await.map_err(fault)?;
            let covers = if always { Covers::Always } else { Covers::Once };
            let expires = self.session.runs.clock().now().plus(GRANT);
            let approve =
                Approve { action, digest, by: operator(), door: By::Mcp, expires, covers, reason: None, typed: None };
            self.answer(&run, InputBody::Approve(approve)).await
        })
    }

    fn deny<'a>(&'a self, id: &'a str, action: &'a str, reason: Option<String>) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let (run, action) = self.action(id, action).await?;
            let digest = crate::answer::question(&self.session.runs, &run, action).await.map_err(fault)?;
            let deny = Deny { action, digest, by: operator(), door: By::Mcp, reason };
            self.answer(&run, InputBody::Deny(deny)).await
        })
    }

    fn settle<'a>(&'a self, id: &'a str, action: &'a str, done: Option<Value>) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let (run, action) = self.action(id, action).await?;
            if !run.action(action).is_some_and(Action::is_uncertain) {
                let problem = format!("the outcome of {action} is not unknown (any more)");
                return Err(Fault::new(Class::Data, problem).hint("run_show"));
            }
            let truth = match done {
                None => Truth::NotDone,
                Some(result) => {
                    let text = result.to_string();
                    if text.len() > INLINE_MAX_BYTES {
                        let problem = format!("the result is larger than {INLINE_MAX_BYTES} bytes");
                        return Err(Fault::new(Class::Data, problem));
                    }
                    let payload = Payload::parse(text);
                    let payload = payload.map_err(|error| Fault::new(Class::Usage, format!("the result: {error}")))?;
                    Truth::Done(Content::Inline(payload))
                }
            };
            self.post(&run.id, InputBody::Settle(Settle { action, truth, by: operator() })).await?;
            if matches!(run.stage, Stage::Rest(_)) && report::holder(self, &run.id).await.is_none() {
                self.tend(&run.id).await?;
                let run = self.fold(&run.id).await?;
                return Ok(report::status(self, &run).await);
            }
            self.after(&run.id).await
        })
    }

    fn cancel<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let id = self.find(id).await?;
            let run = self.fold(&id).await?;
            if matches!(run.stage, Stage::Rest(_)) {
                // Twice is as good as once.
                return Ok(report::status(self, &run).await);
            }
            self.post(&id, InputBody::Cancel).await?;
            let root = self.session.runs.driven_with(&id).await.map_err(of_runs)?;
            if root == id && !self.is_driven_here(&id) && report::holder(self, &id).await.is_none() {
                self.tend(&id).await?;
            }
            let began = std::time::Instant::now();
            loop {
                let run = self.fold(&id).await?;
                if matches!(run.stage, Stage::Rest(_)) || began.elapsed() > REACTION {
                    return Ok(report::status(self, &run).await);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn evidence<'a>(&'a self, id: &'a str, evidence: &'a str) -> BoxFuture<'a, Result<Value, Fault>> {
        Box::pin(async move {
            let id = self.find(id).await?;
            report::evidence(self, &id, evidence).await
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed())
    }
}

impl Desk {
    async fn find(&self, text: &str) -> Result<RunId, Fault> {
        self.session.runs.find(text).await.map_err(|error| of_runs(error).hint("run_list"))
    }

    async fn action(&self, id: &str, action: &str) -> Result<(Run, ActionId), Fault> {
        let action: ActionId = action.parse().map_err(|error| Fault::new(Class::Usage, format!("{error}")))?;
        let run = self.fold(&self.find(id).await?).await?;
        if action >= run.next_action() {
            let problem = format!("run {} has no action {action}", run.id);
            return Err(Fault::new(Class::NotFound, problem).hint("approvals"));
        }
        Ok((run, action))
    }

    async fn post(&self, id: &RunId, body: InputBody) -> Result<InputId, Fault> {
        let (input, posted) = self.session.runs.post(id, body).await.map_err(of_runs)?;
        crate::answer::posted(posted, id).map_err(fault)?;
        Ok(input)
    }

    /// A yes or a no. Of several answers to one question one counts (`semantics.md` E1): who sent another is told so.
    async fn answer(self: &Arc<Self>, run: &Run, body: InputBody) -> Result<Value, Fault> {
        let input = self.post(&run.id, body).await?;
        let mut status = self.after(&run.id).await?;
        // Whoever drives it takes it, here or elsewhere.
        let taken = self.was_taken(&run.id, run.head, &input).await?;
        if let Value::Object(status) = &mut status {
            status.insert("taken".to_owned(), json!(taken));
        }
        Ok(status)
    }

    /// Whether an answer was taken by now: it may take its worker longer. Not taken for good is a fault.
    async fn was_taken(&self, id: &RunId, since: Seq, input: &InputId) -> Result<bool, Fault> {
        let began = std::time::Instant::now();
        loop {
            let mut found = None;
            let look = |recorded: &Recorded| {
                let RecordedBody::Known(event) = &recorded.body else { return };
                if recorded.seq <= since {
                    return;
                }
                if let Event::InputRefused(refused) = event {
                    if refused.input == *input {
                        found = Some(Err(Fault::new(Class::Data, words::safe(&refused.reason)).hint("approvals")));
                    }
                } else if let Event::ActionApproved(approved) = event {
                    if approved.input == *input {
                        found = Some(Ok(true));
                    }
                } else if let Event::ActionDenied(denied) = event
                    && denied.no.input() == Some(input)
                {
                    found = Some(Ok(true));
                }
            };
            self.session.runs.fold(id, look).await.map_err(of_runs)?;
            if let Some(found) = found {
                return found;
            }
            if began.elapsed() > REACTION {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn tend(&self, id: &RunId) -> Result<(), Fault> {
        let sandbox = &self.session.config.sandbox;
        self.session.runs.tend(id, context::environment(), sandbox).await.map_err(of_runs)?;
        Ok(())
    }

    /// What was said is durable; the run goes on with it, here unless somebody else has it.
    async fn after(self: &Arc<Self>, id: &RunId) -> Result<Value, Fault> {
        let root = self.session.runs.driven_with(id).await.map_err(of_runs)?;
        let of_root = self.fold(&root).await?;
        // That it cannot go on now takes nothing back: the next wait goes on with it.
        let goes_on = self.go_on(&of_root, WhenAsked::Park, None).await;
        let run = self.fold(id).await?;
        let mut status = report::status(self, &run).await;
        if let Value::Object(status) = &mut status {
            status.insert("recorded".to_owned(), json!(true));
            if let Err(fault) = goes_on {
                status.insert("goes_on".to_owned(), json!(fault.message));
            }
        }
        Ok(status)
    }
}
