//! The prompt as values: what a model is sent, before any provider's spelling of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ActionId, ToolName};
use crate::image::{ImageRef, Images, labelled};
use crate::outcome::Wired;
use crate::payload::Payload;
use crate::program::{Kind, Prose, STRUCTURED_ANSWER, To};
use crate::run::Run;
use crate::task::Task;

/// One entry of the conversation. History only grows at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A person's words.
    User(String),
    /// A person's words with images: see [`Images`] for how they are sent.
    Pictured { text: String, images: Vec<ImageRef> },
    /// The model's reply.
    Assistant {
        text: String,
        calls: Vec<WireCall>,
        /// What its provider wants back as it came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wired: Option<Wired>,
    },
    /// What the model is told about one call: exactly one per call, in call order.
    Observation { call: String, action: ActionId, tool: ToolName, text: String, verdict: Told },
    /// The harness's own words, already in the envelope that no content can imitate.
    Harness(String),
    /// The images that the results before it brought, under such words: no wire has a place for them among results.
    Exhibit { text: String, images: Vec<ImageRef> },
}

impl Item {
    /// The images that go with it.
    pub fn images(&self) -> &[ImageRef] {
        match self {
            Item::Pictured { images, .. } | Item::Exhibit { images, .. } => images,
            Item::User(_) | Item::Assistant { .. } | Item::Observation { .. } | Item::Harness(_) => &[],
        }
    }

    /// A person's words, with a line for each image, as they are read by people. None: it is nobody's words.
    pub fn said(&self) -> Option<Cow<'_, str>> {
        match self {
            Item::User(text) => Some(Cow::Borrowed(text)),
            Item::Pictured { text, images } => Some(Cow::Owned(labelled(text, images, None))),
            Item::Assistant { .. } | Item::Observation { .. } | Item::Harness(_) | Item::Exhibit { .. } => None,
        }
    }
}

/// Whether an observation reports success; some wires have a mark for errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    Ok,
    Error,
}

/// A call as it is sent back: the id is unique over the conversation, the arguments are the model's own text, or `{}`
/// where that text was no JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// A tool's name as it is sent back, beside its call and beside its result: servers refuse names outside this alphabet, even
/// those a model made up.
pub fn wire_name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=WIRE_NAME_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain: String = name.chars().take(WIRE_NAME_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    Cow::Owned(if plain.is_empty() { "unnamed".to_owned() } else { plain })
}

const WIRE_NAME_MAX: usize = 64;

/// A tool as it is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDef {
    pub name: ToolName,
    pub description: String,
    /// JSON Schema, without our own keywords.
    pub parameters: Payload,
}

/// What a reply without a call is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerForm {
    /// Words.
    Text,
    /// One JSON value of this schema.
    Json(Payload),
    /// The last words of a budget: nothing is asked of their form.
    Remark,
}

impl AnswerForm {
    /// What a run asks for in its next call of this purpose.
    pub fn of_run(run: &Run, purpose: Purpose) -> Self {
        let structured = |schema: &str| AnswerForm::Json(Payload::parse(schema).expect("this is JSON"));
        match (purpose, run.phase().map(|phase| (phase, &phase.kind))) {
            (Purpose::Closing, _) | (Purpose::Work, None) => Self::of(&run.task, purpose),
            (Purpose::Work, Some((_, Kind::Reply(reply)))) => AnswerForm::Json(reply.schema.clone()),
            (Purpose::Work, Some((phase, Kind::Agent(agent)))) => {
                let may_answer = match run.phases().and_then(|program| program.answer.as_ref()) {
                    Some(answer) => *answer == phase.name,
                    None => phase.next.iter().any(|next| next.to == To::Done),
                };
                match (may_answer, agent.prose) {
                    (true, Prose::Kept) => Self::of(&run.task, purpose),
                    (true, Prose::Dropped) if run.task.answer.is_some() => Self::of(&run.task, purpose),
                    (true | false, Prose::Dropped) => structured(STRUCTURED_ANSWER),
                    (false, Prose::Kept) => AnswerForm::Text,
                }
            }
            (
                Purpose::Work,
                Some((_, Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch | Kind::Each(_) | Kind::Run(_))),
            ) => AnswerForm::Text,
        }
    }

    /// What a task asks for in a call of this purpose.
    fn of(task: &Task, purpose: Purpose) -> Self {
        match (purpose, &task.answer) {
            (Purpose::Closing, _) => AnswerForm::Remark,
            (Purpose::Work, None) => AnswerForm::Text,
            (Purpose::Work, Some(answer)) => AnswerForm::Json(
                answer.schema.clone().unwrap_or_else(|| Payload::parse(r#"{"type":"object"}"#).expect("this is JSON")),
            ),
        }
    }
}

/// What a model call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A turn as usual.
    Work,
    /// The last one of a budget: no tools, "give your best answer from what you have".
    Closing,
}

/// One request, before encoding. Items are shared, so that encoders can remember what they made of them.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub system: Arc<str>,
    /// In a fixed order; empty for a closing call.
    pub tools: Arc<[ToolDef]>,
    pub items: Arc<Vec<Arc<Item>>>,
    /// An extra last word of the harness that is no part of history.
    pub tail: Option<String>,
    pub answer: AnswerForm,
    pub max_output: u64,
    /// The bytes of the images its items refer to.
    pub images: Images,
    /// How many calls of this run were answered before: a scripted model replies by it.
    pub position: u64,
}
