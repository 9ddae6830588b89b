//! A request taken apart: as a run's model would be sent it now, or as it was sent for one turn. For looking; nothing is
//! sent from here and nothing is changed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use longrein_core::action::Action;
use longrein_core::context::estimate::Estimator;
use longrein_core::context::meter::Meter;
use longrein_core::context::plan::{self, Budget, Fixed, Plan, Spill, TAIL, TOOLS};
use longrein_core::context::render;
use longrein_core::context::window::Part;
use longrein_core::event::{Event, GenerationStarted, ModelRequested, ResultSpilled, RunStarted};
use longrein_core::ids::{RunId, Seq, TurnId};
use longrein_core::image::labelled;
use longrein_core::owed;
use longrein_core::payload::{Content, Payload};
use longrein_core::prompt::{Item, Prompt, Purpose, ToolDef};
use longrein_core::run::{Run, Stage};
use longrein_core::task::Task;
use longrein_models::ModelConfig;
use longrein_ports::RecordedBody;
use longrein_tools::definitions;

use crate::runs::offered;

use crate::Secret;
use crate::runs::{Runs, RunsError};

/// One request and everything in it.
pub struct Request {
    /// The state it is made from.
    pub run: Run,
    /// What it is for.
    pub purpose: Purpose,
    /// How it fills the window.
    pub budget: Budget,
    /// In the order they are sent.
    pub pieces: Vec<Piece>,
    /// What happens to the window before it can leave.
    pub before: Before,
    /// Where the journal has it, if it was sent.
    pub sent: Option<(Seq, ModelRequested)>,
    tools: Arc<[ToolDef]>,
}

/// A piece of a request.
pub struct Piece {
    /// The zone it stands in.
    pub zone: &'static str,
    /// Which it is: `u12`, `a7 read_file`.
    pub what: String,
    /// Its likely tokens.
    pub tokens: u64,
    /// As the model reads it.
    pub text: String,
}

/// What the next request waits for.
#[derive(Debug)]
pub enum Before {
    /// Nothing: as it is shown it leaves.
    Nothing,
    /// The results of calls that are not over.
    Calls,
    /// So many new results are made shorter for it. They are shown as they will be then.
    Spills(usize),
    /// The window was made anew for it. It is shown as it will be then.
    Rebuild(Box<GenerationStarted>),
    /// It cannot be made, and why.
    Forgone(String),
}

impl Runs {
    /// Counts of a run's next request, with what was learned of its model here.
    pub async fn meter(&self, run: &Run) -> Meter {
        longrein_driver::meter(self.cabinet(), run, &offered(&run.task, definitions(&run.task))).await
    }

    /// What a run would send next.
    pub async fn next_request(&self, mut run: Run) -> Request {
        let mut meter = self.meter(&run).await;
        let purpose = owed::purpose(&run);
        let mut before = match &run.stage {
            Stage::Acting { .. } => Before::Calls,
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Verifying { .. } | Stage::Rest(_) => Before::Nothing,
        };
        // A run at rest that goes on begins with a request too.
        if let Stage::Ready(_) | Stage::Rest(_) = &run.stage {
            let now = self.clock().now();
            let mut shortened = BTreeSet::new();
            for _ in 0..PLANS_MAX {
                let followed = match plan::plan(&run, &meter, purpose, now) {
                    Plan::Send { .. } => cleaned(&run),
                    Plan::Spill(spills) => self.spilled(&run, &spills).await,
                    Plan::Forgo(forgone) => {
                        before = Before::Forgone(forgone.reason);
                        break;
                    }
                    Plan::Rebuild(started) => {
                        let (journal, shorter) = (self.journal.as_ref(), &longrein_tools::preview);
                        let started = longrein_driver::readmit(journal, &run, &meter, *started, shorter).await;
                        let started = Box::new(started);
                        before = Before::Rebuild(started.clone());
                        vec![Event::GenerationStarted(started)]
                    }
                };
                if followed.is_empty() {
                    break;
                }
                for event in followed {
                    if let Event::ResultSpilled(spilled) = &event {
                        shortened.insert(spilled.action);
                    }
                    run.apply(run.head.next(), now, &event);
                }
                meter.measure(&run);
            }
            if let (Before::Nothing, 1..) = (&before, shortened.len()) {
                before = Before::Spills(shortened.len());
            }
        }
        Request::of(run, purpose, &meter, before, None)
    }

    /// The results a plan wants shorter, as the run will have them shown.
    async fn spilled(&self, run: &Run, spills: &[Spill]) -> Vec<Event> {
        let mut events = Vec::new();
        for Spill { action, bytes_max } in spills {
            let fresh = run.fresh.iter().find(|fresh| fresh.id == *action);
            let Some(content) = fresh.and_then(Action::data) else { continue };
            let whole = match content {
                Content::Inline(_) => None,
                Content::Blob(blob) => self.blob(&blob.digest).await.ok().flatten(),
            };
            // One that is lost: what there is of it.
            let whole = whole.and_then(|bytes| Payload::parse(String::from_utf8(bytes.to_vec()).ok()?).ok());
            let bytes_max = usize::try_from(*bytes_max).unwrap_or(usize::MAX);
            let shown = longrein_tools::preview(whole.as_ref().unwrap_or(content.shown()), bytes_max);
            events.push(Event::ResultSpilled(ResultSpilled { action: *action, shown, total: content.bytes() }));
        }
        events
    }

    /// What a run sent for a turn: in the last attempt, if there were several.
    pub async fn sent_request(&self, id: &RunId, turn: TurnId) -> Result<Request, RunsError> {
        let mut folded: Option<Run> = None;
        let mut found: Option<(Run, Seq, ModelRequested)> = None;
        let mut last = None;
        let mut after = Seq(0);
        'journal: loop {
            let page = self.records(id, after).await?;
            if page.is_empty() {
                break;
            }
            for record in page {
                after = record.seq;
                let event = match record.body {
                    RecordedBody::Known(event) => event,
                    RecordedBody::Unknown { must_understand: false, .. } => continue,
                    RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => break 'journal,
                };
                if let (Some(run), Event::ModelRequested(requested)) = (&folded, &event) {
                    if requested.attempt.turn > turn && found.is_some() {
                        break 'journal;
                    }
                    last = Some(requested.attempt.turn);
                    if requested.attempt.turn == turn {
                        found = Some((run.clone(), record.seq, requested.clone()));
                    }
                }
                match (&mut folded, &event) {
                    (None, Event::RunStarted(started)) => folded = Some(Run::new(started, record.at)),
                    (Some(run), event) => run.apply(record.seq, record.at, event),
                    (None, _) => {}
                }
            }
        }
        let Some((run, seq, requested)) = found else {
            // A journal that cannot be read is the better reason.
            self.fold(id, |_| {}).await?;
            return Err(RunsError::NoSuchTurn { run: id.clone(), turn, last });
        };
        let meter = self.meter(&run).await;
        Ok(Request::of(run, requested.purpose, &meter, Before::Nothing, Some((seq, requested))))
    }

    /// The part of a task's requests that is always there, where it is so large that a person should know.
    pub async fn heavy(&self, task: &Task) -> Option<Fixed> {
        let started = RunStarted {
            run: RunId::new("new"),
            task: task.clone(),
            binary: String::new(),
            descent: None,
            root: None,
            brings: Vec::new(),
            first_tree: None,
        };
        let run = Run::new(&started, self.clock().now());
        let rules = run.window.items.iter().map(|item| text(item).len()).sum::<usize>();
        let tools =
            task.tools.iter().map(|tool| tool.description.len() + tool.parameters.as_str().len()).sum::<usize>();
        // A token has a byte at least: so little is no matter, and need not be counted.
        if ((run.system.len() + rules + tools) as u64) < run.window_limit() / 5 {
            return None;
        }
        let tools = offered(task, definitions(task));
        plan::heavy(&run, &longrein_driver::meter(self.cabinet(), &run, &tools).await, &tools)
    }
}

/// The new results that hold what is never shown, without it.
fn cleaned(run: &Run) -> Vec<Event> {
    let cleaned = |action: &Action| {
        let content = action.data()?;
        let shown = longrein_tools::cleaned(content.shown())?;
        Some(Event::ResultSpilled(ResultSpilled { action: action.id, shown, total: content.bytes() }))
    };
    run.fresh.iter().filter_map(cleaned).collect()
}

/// A window is made ready in fewer steps than these, or it does not fit.
const PLANS_MAX: usize = 8;

impl Request {
    fn of(run: Run, purpose: Purpose, meter: &Meter, before: Before, sent: Option<(Seq, ModelRequested)>) -> Self {
        let tools = offered(&run.task, definitions(&run.task));
        let budget = plan::budget(&run, meter);
        let prompt = render::render(&run, purpose, tools.clone(), budget.limits.reserved);
        let pieces = pieces(&run, purpose, &prompt, meter);
        Self { run, purpose, budget, pieces, before, sent, tools }
    }

    /// The very bytes that were sent, where this version makes them: their digest is the one in the journal. `config` is how
    /// the model is reached. None: they come out otherwise, or it was not sent.
    pub fn body_as_sent(&self, config: &ModelConfig) -> Result<Option<bytes::Bytes>, longrein_models::ConfigError> {
        let Some((_, sent)) = &self.sent else { return Ok(None) };
        // Nothing is called: any key will do.
        let api_key = config.api_key.clone().or_else(|| Some(Secret::new("none")));
        let model = longrein_models::connect(&self.run.model, &ModelConfig { api_key, ..config.clone() })?;
        let asked: BTreeSet<u64> = match sent.output {
            Some(output) => BTreeSet::from([output]),
            // A version that did not say: it depends on what was known of the window then. What it is known to be now, or
            // nothing.
            None => {
                let meter = Meter::new(Estimator::default(), None, &self.run.system, &self.tools);
                let allowed = sent.reserved.output;
                let asked = [self.budget.limits.reserved, plan::limits(&self.run, &meter).reserved, allowed];
                asked.into_iter().map(|tokens| tokens.min(allowed)).collect()
            }
        };
        Ok(asked.into_iter().find_map(|max_output| {
            let prompt = render::render(&self.run, self.purpose, self.tools.clone(), max_output);
            let encoded = model.encode(&prompt);
            (encoded.digest == sent.digest).then_some(encoded.bytes)
        }))
    }
}

fn pieces(run: &Run, purpose: Purpose, prompt: &Prompt, meter: &Meter) -> Vec<Piece> {
    let mut pieces: Vec<_> = prompt
        .tools
        .iter()
        .map(|tool| Piece {
            zone: TOOLS,
            what: tool.name.to_string(),
            tokens: meter.tool_tokens(tool),
            text: format!("{}\n{}", tool.description, tool.parameters.as_str()),
        })
        .collect();
    pieces.push(Piece {
        zone: plan::SYSTEM,
        what: "system text".to_owned(),
        tokens: meter.system_tokens(),
        text: prompt.system.to_string(),
    });
    for ((part, item), tokens) in run.window.parts.iter().zip(prompt.items.iter()).zip(meter.items()) {
        pieces.push(Piece { zone: plan::zone(part), what: what(run, part, item), tokens, text: text(item) });
    }
    if let Some(tail) = &prompt.tail {
        let what = match purpose {
            Purpose::Work => "what holds now",
            Purpose::Closing => "the last words of a budget",
        };
        pieces.push(Piece { zone: TAIL, what: what.to_owned(), tokens: meter.text_tokens(tail), text: tail.clone() });
    }
    pieces
}

fn what(run: &Run, part: &Part, item: &Item) -> String {
    match part {
        Part::Rules(path) => path.clone(),
        Part::Goal => "u1, the goal".to_owned(),
        Part::Message(seq) => format!("u{seq}"),
        Part::Header => format!("generation {}", run.window.generation),
        Part::Reply(turn) => match item {
            Item::Assistant { calls, .. } if !calls.is_empty() => {
                let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
                format!("{turn} reply, calls {}", names.join(", "))
            }
            Item::Assistant { .. }
            | Item::User(_)
            | Item::Pictured { .. }
            | Item::Exhibit { .. }
            | Item::Observation { .. }
            | Item::Harness(_) => {
                format!("{turn} reply")
            }
        },
        Part::Observation(seen) => format!("{} {}{}", seen.action, seen.tool, if seen.reduced { ", cut" } else { "" }),
        Part::Harness(turn) => format!("{turn} word of Longrein"),
    }
}

fn text(item: &Item) -> String {
    match item {
        Item::User(text) | Item::Harness(text) | Item::Observation { text, .. } => text.clone(),
        Item::Pictured { text, images } | Item::Exhibit { text, images } => labelled(text, images, None),
        Item::Assistant { text, calls, wired: _ } => calls.iter().fold(text.clone(), |mut text, call| {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{gap}{} {} {}", call.id, call.name, call.arguments);
            text
        }),
    }
}
