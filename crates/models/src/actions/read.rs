//! From what the model wrote to a call or an answer.
//!
//! Tolerant of what stands around the object (a fence, words, thoughts), strict in the object itself. Text that was cut
//! is never completed: a reply that ended by its length is handed on as it is and not run, and an object whose braces do
//! not close is malformed. Several objects are malformed too: which of them was meant, and whether the second one was
//! written in the belief that the first had been run, cannot be told.

use std::fmt;

use longrein_core::outcome::{Finish, ModelFailure, RawCall, Reply};
use longrein_core::payload::Payload;
use longrein_core::prompt::AnswerForm;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::reading::{malformed, without_thoughts};

use super::repair::repair;
use super::shape::Final;
use super::words::CALL;

/// Reads a reply of a model that is spoken to by the protocol. Fails with what the model is to be told.
pub fn read(reply: Reply, answer: &AnswerForm) -> Result<Reply, ModelFailure> {
    match reply.finish {
        Finish::Stop | Finish::ToolCalls => {}
        // Core refuses these whole; nothing of them is a call.
        Finish::Length | Finish::Refused | Finish::Other(_) => return Ok(Reply { calls: Vec::new(), ..reply }),
    }
    match (understand(&reply, answer), answer) {
        // Whatever word its server has for the end: it is none of a call.
        (Ok((Action::Answer(text), repaired)), _) => {
            Ok(Reply { text, calls: Vec::new(), finish: Finish::Stop, repaired, ..reply })
        }
        (Ok((Action::Call(call), repaired)), AnswerForm::Text | AnswerForm::Json(_)) => {
            Ok(Reply { text: String::new(), calls: vec![call], finish: Finish::ToolCalls, repaired, ..reply })
        }
        // The last words of a budget are taken in any form.
        (Ok((Action::Call(_), _)) | Err(_), AnswerForm::Remark) => Ok(Reply { calls: Vec::new(), ..reply }),
        (Err(problem), AnswerForm::Text | AnswerForm::Json(_)) => {
            let told = format!("Your last reply could not be used: {problem} Nothing of it was run. Reply again.");
            let mut failure = malformed(told);
            failure.usage = reply.usage;
            failure.partial = Payload::of(&reply).ok();
            Err(failure)
        }
    }
}

enum Action {
    Call(RawCall),
    Answer(String),
}

/// What a reply means, and what was written where it had to be repaired; or what is wrong with it, for the model.
fn understand(reply: &Reply, answer: &AnswerForm) -> Result<(Action, Option<String>), String> {
    let form = Final::of(answer);
    if !reply.calls.is_empty() {
        return Err(format!("it called a tool in a way that is not known here. To call one, write {CALL}."));
    }
    let text = spoken(&reply.text);
    let found = objects(text);
    let [one] = found[..] else {
        return Err(match found.len() {
            0 if text.trim().is_empty() => "it was empty.".to_owned(),
            0 => format!("it holds no JSON object. To call a tool, write {CALL}; {}", form.explained()),
            many => format!("it holds {many} JSON objects. Write one call in each reply, and wait for its result."),
        });
    };
    match one.kind {
        Kind::Whole if in_a_list(text, one) => Err("its object stands in a list. Write the object alone.".to_owned()),
        Kind::Whole => Ok((act(one.of(text), form)?, None)),
        Kind::Open => Err("its JSON object has no end. Write it whole, and shorter if it is long.".to_owned()),
        Kind::Broken => {
            let broken = one.of(text);
            let why = serde_json::from_str::<IgnoredAny>(broken).err().map(|error| error.to_string());
            let why = why.unwrap_or_default();
            let mended = if stands_alone(text, one) { repair(broken) } else { None };
            let Some(mended) = mended else { return Err(format!("its JSON is broken: {why}.")) };
            Ok((act(&mended, form)?, Some(reply.text.clone())))
        }
    }
}

/// A reply without its thoughts, also where their beginning was part of the prompt.
fn spoken(text: &str) -> &str {
    let said = without_thoughts(text);
    match said.split_once("</think>") {
        Some((thoughts, said)) if !thoughts.contains('{') => said,
        Some(_) | None => said,
    }
}

#[derive(Debug, Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    kind: Kind,
}

impl Found {
    fn of(self, text: &str) -> &str {
        &text[self.start..self.end]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// JSON.
    Whole,
    /// Braces that close, around what is no JSON.
    Broken,
    /// Braces that do not close.
    Open,
}

/// The outermost objects of a text. Braces around what is no JSON count only if they speak of a `kind`: prose has braces
/// too. What is inside a broken object is never looked at for another.
fn objects(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find('{').map(|at| from + at) {
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<IgnoredAny>();
        let (end, kind) = match values.next() {
            Some(Ok(_)) => (start + values.byte_offset(), Kind::Whole),
            Some(Err(_)) | None => match closing(&text[start..]) {
                Some(length) => (start + length, Kind::Broken),
                None => (text.len(), Kind::Open),
            },
        };
        let one = Found { start, end, kind };
        if kind == Kind::Whole || one.of(text).contains("kind") {
            found.push(one);
        }
        from = end;
    }
    found
}

/// The length of what lies between a text's first brace and the one that closes it, braces in strings apart.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn in_a_list(text: &str, found: Found) -> bool {
    let (before, after) = (text[..found.start].trim_end(), text[found.end..].trim_start());
    before.ends_with('[') && after.starts_with([']', ','])
}

/// Whether there is nothing around it but a fence: only then a broken object is surely what was meant to be read.
fn stands_alone(text: &str, found: Found) -> bool {
    let (before, after) = (text[..found.start].trim(), text[found.end..].trim());
    let opens = before.is_empty()
        || before.strip_prefix("```").is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    opens && matches!(after, "" | "```")
}

/// Reads one object.
fn act(object: &str, form: Final<'_>) -> Result<Action, String> {
    let fields: Fields = serde_json::from_str(object).map_err(|error| format!("its JSON cannot be read: {error}."))?;
    if let Some(twice) = fields.twice() {
        return Err(format!("its object has \"{twice}\" twice."));
    }
    match fields.text("kind").as_deref() {
        Some("tool") => fields.call().map(Action::Call),
        Some("final") => fields.answer(form).map(Action::Answer),
        Some(other) => Err(format!("\"kind\" is \"{}\", and must be \"tool\" or \"final\".", short(other))),
        None => Err(format!(
            "its object has no \"kind\" that is \"tool\" or \"final\". To call a tool, write {CALL}; {}",
            form.explained()
        )),
    }
}

/// The fields of an object in their order, values as they were written.
struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    fn twice(&self) -> Option<&str> {
        let names = || self.0.iter().map(|(name, _)| name.as_str());
        names().enumerate().find(|(at, name)| names().take(*at).any(|before| before == *name)).map(|(_, name)| name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.get())
    }

    /// None: it is not there, or no text.
    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.value(name)?).ok()
    }

    /// The first field that is none of these.
    fn beside(&self, names: &[&str]) -> Option<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !names.contains(name))
    }

    /// Arguments that are no object are the tool's to refuse, as with any model.
    fn call(&self) -> Result<RawCall, String> {
        if let Some(other) = self.beside(&["kind", "name", "arguments"]) {
            let other = short(other);
            return Err(format!("a tool call has no \"{other}\" beside \"name\" and \"arguments\"; write {CALL}."));
        }
        let name = self.text("name").ok_or_else(|| format!("\"name\" must be the name of a tool; write {CALL}."))?;
        let arguments = self.value("arguments").unwrap_or("{}").to_owned();
        Ok(RawCall { id: String::new(), name, arguments })
    }

    fn answer(&self, form: Final<'_>) -> Result<String, String> {
        let only = self.value("answer").filter(|_| self.0.len() == 2);
        match (form, only) {
            // A number or a list in the place of a text is an answer too.
            (Final::Text, Some(answer)) => Ok(serde_json::from_str(answer).unwrap_or_else(|_| answer.to_owned())),
            (Final::Whole(_), Some(answer)) => Ok(answer.to_owned()),
            (Final::Text | Final::Whole(_), None) => {
                Err(format!("beside \"kind\" a final object has \"answer\" and nothing else: {}", form.explained()))
            }
            (Final::Fields(schema), only) => {
                let declares = schema
                    .read::<serde_json::Value>()
                    .is_ok_and(|schema| schema.pointer("/properties/answer").is_some());
                // Wrapped, as in the other forms: there is no other way to mean it.
                if let Some(answer) = only.filter(|answer| !declares && answer.starts_with('{')) {
                    return Ok(answer.to_owned());
                }
                let fields = self.0.iter().filter(|(name, _)| name != "kind");
                let fields: Vec<_> =
                    fields.map(|(name, value)| format!("{}:{}", serde_json::json!(name), value.get())).collect();
                Ok(format!("{{{}}}", fields.join(",")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// As much of what a model made up as helps it to see what is meant.
fn short(word: &str) -> String {
    word.chars().take(40).collect()
}
