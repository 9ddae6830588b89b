//! What a server will not have of a request, and says so by name: it is asked again without it, by this process from then
//! on. The refusal counts as one that may pass, once for each part, since the next attempt is another request.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use longrein_core::outcome::{ModelErrorClass, ModelFailure};
use longrein_core::prompt::{Prompt, ToolDef};
use serde_json::Value;

/// A part of a request that can be left out, or said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Thoughts and signatures of earlier replies.
    Thoughts,
    /// Calls without a signature, where signatures are wanted.
    UnsignedCalls,
    Temperature,
    /// The wish for counts at the end of a stream.
    StreamOptions,
    /// The name of the field that limits the output, which has another.
    OutputLimit,
    Tool(String),
}

/// What is left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left(BTreeSet<Part>);

impl Left {
    pub(crate) fn has(&self, part: &Part) -> bool {
        self.0.contains(part)
    }

    /// The prompt with the tools that the server takes.
    pub(crate) fn offered<'a>(&self, prompt: &'a Prompt) -> Cow<'a, Prompt> {
        let is_left = |tool: &ToolDef| self.has(&Part::Tool(tool.name.as_str().to_owned()));
        if !self.0.iter().any(|part| matches!(part, Part::Tool(_))) || !prompt.tools.iter().any(is_left) {
            return Cow::Borrowed(prompt);
        }
        let tools = prompt.tools.iter().filter(|tool| !is_left(tool)).cloned().collect();
        Cow::Owned(Prompt { tools, ..prompt.clone() })
    }
}

/// What is known of one server.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<Arc<Left>>);

impl Leaving {
    pub(crate) fn now(&self) -> Arc<Left> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a refusal that names a part of this request one that passes. `able`: what this wire can leave out.
    pub(crate) fn heed(&self, mut failure: ModelFailure, request: &[u8], able: &[Part]) -> ModelFailure {
        if failure.class != ModelErrorClass::BadRequest {
            return failure;
        }
        let message = failure.message.to_lowercase();
        let request = String::from_utf8_lossy(request);
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = able.iter().find(|part| !left.has(part) && part.is_named(&message, &request)).cloned();
        let named = named.or_else(|| tool(&failure.message, &request).map(Part::Tool).filter(|tool| !left.has(tool)));
        if let Some(part) = named {
            failure.class = ModelErrorClass::Transient;
            failure.message.push_str(&format!("; tried again {}", part.otherwise()));
            *left = Arc::new(Left(left.0.iter().cloned().chain([part]).collect()));
        }
        failure
    }
}

impl Part {
    fn otherwise(&self) -> Cow<'static, str> {
        match self {
            Part::Thoughts => "without the thoughts of earlier replies".into(),
            Part::UnsignedCalls => "with the mark for calls that have no signature".into(),
            Part::Temperature => "without a temperature".into(),
            Part::StreamOptions => "without stream_options".into(),
            Part::OutputLimit => "with the other name of the output limit".into(),
            Part::Tool(name) => format!("without the tool {name}, which this model cannot call from now on").into(),
        }
    }

    /// Whether a refusal in small letters names it, and the request has it.
    fn is_named(&self, message: &str, request: &str) -> bool {
        let names = |any: &[&str]| any.iter().any(|word| message.contains(word));
        let is_sent = |any: &[&str]| any.iter().any(|field| request.contains(field));
        match self {
            Part::Thoughts => is_sent(THOUGHTS_SENT) && names(THOUGHTS) && !names(&["missing"]),
            Part::UnsignedCalls => {
                names(&["missing"]) && names(&["thought_signature", "thoughtsignature", "thought signature"])
            }
            Part::Temperature => is_sent(&["\"temperature\":"]) && names(&["temperature"]) && names(UNWANTED),
            Part::StreamOptions => is_sent(&["\"stream_options\":"]) && names(&["stream_options"]) && names(UNWANTED),
            Part::OutputLimit => names(&["max_tokens", "max_completion_tokens"]) && names(UNWANTED),
            Part::Tool(_) => false,
        }
    }
}

/// How servers say that they do not know a field, or not with this model.
const UNWANTED: &[&str] = &[
    "unsupported",
    "not support",
    "unknown",
    "unrecognized",
    "unexpected",
    "not permitted",
    "not allowed",
    "extra inputs",
    "extra fields",
    "deprecated",
    " instead",
];

/// How they name thoughts and what is signed of them.
const THOUGHTS: &[&str] = &[
    "reasoning_content",
    "reasoning_details",
    "extra_content",
    "signature",
    "encrypted_content",
    "encrypted content",
    "thinking",
    "type 'reasoning'",
];

/// What carries them in a request.
const THOUGHTS_SENT: &[&str] = &[
    "\"reasoning_content\":",
    "\"reasoning_details\":",
    "\"extra_content\":",
    "\"signature\":",
    "\"encrypted_content\":",
    "\"type\":\"redacted_thinking\"",
    "\"thoughtSignature\":",
    "\"thought\":true",
];

/// The tool that a refusal names: by its place among those that were sent, or by its name in quotes, if it is the only one.
fn tool(message: &str, request: &str) -> Option<String> {
    let small = message.to_lowercase();
    if !["tool", "function", "schema"].iter().any(|word| small.contains(word)) {
        return None;
    }
    let request: Value = serde_json::from_str(request).ok()?;
    let entries = request.get("tools")?.as_array()?.iter();
    let declared = entries.flat_map(|entry| match entry.get("functionDeclarations").and_then(Value::as_array) {
        Some(list) => list.iter().collect(),
        None => vec![entry.get("function").unwrap_or(entry)],
    });
    let names: Vec<&str> = declared.filter_map(|tool| tool.get("name")?.as_str()).collect();
    let place = PLACES.iter().find_map(|before| {
        let rest = &small[small.find(before)? + before.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse::<usize>().ok()
    });
    if let Some(name) = place.and_then(|place| names.get(place)) {
        return Some((*name).to_owned());
    }
    let is_quoted =
        |name: &&&str| ['\'', '"', '`'].iter().any(|quote| message.contains(&format!("{quote}{name}{quote}")));
    let mut quoted = names.iter().filter(is_quoted);
    let one = quoted.next()?;
    quoted.next().is_none().then(|| (*one).to_owned())
}

/// Before the number of a tool, the innermost first.
const PLACES: [&str; 4] = ["function_declarations[", "functiondeclarations[", "tools[", "tools."];
