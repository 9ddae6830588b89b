//! What stands in a response beside what is understood: thoughts in fields of their own, sources, sound, probabilities,
//! events and fields nobody knows yet. It is put together as it comes and kept for the record; nothing acts on it.

use longrein_core::outcome::{WireBlock, Wired};
use serde_json::{Map, Value};

use crate::numbers;

/// By where it stood.
#[derive(Default)]
pub(crate) struct Beside {
    sections: Map<String, Value>,
    events: Vec<Value>,
}

/// How the pieces of a value come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// Each is more of it: texts and lists grow.
    More,
    /// Lists grow; a text is said anew.
    Lists,
    /// Each is all of it.
    Anew,
}

impl Beside {
    /// Keeps the fields of `of` whose names are not among `known`. What says nothing is not kept.
    pub(crate) fn keep(&mut self, section: &str, of: &Map<String, Value>, known: &[&str], pieces: Pieces) {
        for (key, value) in of {
            if known.contains(&key.as_str()) || is_nothing(value) {
                continue;
            }
            let Value::Object(kept) = self.sections.entry(section).or_insert_with(|| Value::Object(Map::new())) else {
                return;
            };
            match kept.get_mut(key) {
                Some(before) => join(key, before, value, pieces),
                None => {
                    kept.insert(key.clone(), value.clone());
                }
            }
        }
    }

    /// Keeps a whole event, or another part nobody asked for.
    pub(crate) fn event(&mut self, value: &Value) {
        self.events.push(value.clone());
    }

    pub(crate) fn text(&mut self, section: &str, text: &str) {
        if !text.is_empty() {
            self.sections.insert(section.to_owned(), Value::String(text.to_owned()));
        }
    }

    /// All of it as one value; none if there is nothing.
    pub(crate) fn into_value(mut self) -> Option<Value> {
        if !self.events.is_empty() {
            self.sections.insert("events".to_owned(), Value::Array(self.events));
        }
        (!self.sections.is_empty()).then_some(Value::Object(self.sections))
    }

    /// For wires whose replies have no blocks of their own.
    pub(crate) fn into_wired(self) -> Option<Wired> {
        let json = numbers::payload(&self.into_value()?);
        Some(Wired { model: String::new(), blocks: vec![WireBlock::Aside(json)] })
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Fields that name and do not tell: said again they are the same, and do not grow.
const NAMES: [&str; 9] = ["id", "type", "role", "name", "model", "object", "format", "status", "index"];

fn join(key: &str, before: &mut Value, more: &Value, pieces: Pieces) {
    match (before, more) {
        (Value::String(text), Value::String(more)) if pieces == Pieces::More && !NAMES.contains(&key) => {
            text.push_str(more);
        }
        (Value::Array(list), Value::Array(more)) if pieces != Pieces::Anew => list.extend(more.iter().cloned()),
        (Value::Object(map), Value::Object(more)) if pieces != Pieces::Anew => {
            for (key, value) in more.iter().filter(|(_, value)| !is_nothing(value)) {
                match map.get_mut(key) {
                    Some(before) => join(key, before, value, pieces),
                    None => {
                        map.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (before, more) => more.clone_into(before),
    }
}
