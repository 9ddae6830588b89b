//! Prompts and servers for tests.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of this")]

pub(crate) mod server;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use longrein_core::ids::{ActionId, ModelName, ToolName};
use longrein_core::image::Images;
use longrein_core::outcome::{ModelFailure, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt, Told, ToolDef, WireCall};
use longrein_core::task::ModelSpec;
use longrein_models::openai::decode::{End, Reading};
use longrein_ports::{Listener, Spoken};

/// Reads a response whole, cut once at every byte, and byte by byte: it must make no difference.
pub(crate) fn read_as<D: Reading>(body: &[u8], end: End) -> Result<Reply, ModelFailure> {
    let read = |pieces: &[&[u8]]| {
        let mut decoder = D::default();
        for piece in pieces {
            decoder.feed(piece);
        }
        decoder.end(end.clone())
    };
    let whole = read(&[body]);
    for cut in 0..=body.len() {
        assert_eq!(read(&[&body[..cut], &body[cut..]]), whole, "cut at {cut}");
    }
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole
}

pub(crate) fn prompt(position: u64, items: Vec<Item>) -> Prompt {
    Prompt {
        system: "You check services.".into(),
        tools: Arc::from([tool("read_metrics")]),
        items: Arc::new(items.into_iter().map(Arc::new).collect()),
        tail: None,
        answer: AnswerForm::Text,
        max_output: 1_000,
        images: Images::default(),
        position,
    }
}

/// Remembers what it heard, and when.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<(Instant, Said)>>);

/// One piece, as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Text(String),
    Thought(String),
    Anew,
}

impl Listener for Heard {
    fn hear(&self, spoken: Spoken<'_>) {
        let said = match spoken {
            Spoken::Text(text) => Said::Text(text.to_owned()),
            Spoken::Thought(text) => Said::Thought(text.to_owned()),
            Spoken::Anew => Said::Anew,
        };
        self.0.lock().expect("nobody panics").push((Instant::now(), said));
    }
}

impl Heard {
    pub(crate) fn all(&self) -> Vec<Said> {
        self.0.lock().expect("nobody panics").iter().map(|(_, said)| said.clone()).collect()
    }

    /// What counts of the text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for said in self.all() {
            match said {
                Said::Text(more) => text.push_str(&more),
                Said::Thought(_) => {}
                Said::Anew => text.clear(),
            }
        }
        text
    }
}

pub(crate) fn spec(name: &str) -> ModelSpec {
    ModelSpec::plain(ModelName::new(name), 1_000)
}

pub(crate) fn tool(name: &str) -> ToolDef {
    ToolDef {
        name: ToolName::new(name),
        description: "Reads the metrics.".into(),
        parameters: Payload::parse(r#"{"type":"object","properties":{}}"#).expect("JSON"),
    }
}

pub(crate) fn user(text: &str) -> Item {
    Item::User(text.into())
}

pub(crate) fn assistant(text: &str, calls: &[(&str, &str, &str)]) -> Item {
    let calls = calls.iter().map(|(id, name, arguments)| WireCall {
        id: (*id).into(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    });
    Item::Assistant { text: text.into(), calls: calls.collect(), wired: None }
}

pub(crate) fn observation(call: &str, action: u32, text: &str) -> Item {
    Item::Observation {
        call: call.into(),
        action: ActionId(action),
        tool: ToolName::new("read_metrics"),
        text: text.into(),
        verdict: Told::Ok,
    }
}
