//! From the bytes of a response to a reply, a piece at a time and without I/O.
//!
//! The response is a row of JSON objects, one a line; where a line ends is not relied on, so that what a gateway has put
//! together or printed over several lines is read as well. A reply is complete when an object says `done`, and only then:
//! a server always says so, and one that does not was cut off.

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::beside::{Beside, Pieces};
use crate::failure::{Refusal, broken, no_room};
use crate::reading::{BYTE_ORDER_MARK, REPLY_MAX_BYTES, count, malformed, says_something, spoilt, without_thoughts};
pub use crate::reading::{End, Progress, Reading};
use crate::surrogates::mended;
use crate::telling::{Said, Saying};

/// One response on its way in.
#[derive(Default)]
pub struct Decoder {
    rows: Rows,
    bytes: usize,
    text: String,
    calls: Vec<RawCall>,
    usage: Option<Usage>,
    /// Why the model stopped, once it has.
    done: Option<Finish>,
    begun: bool,
    beside: Beside,
    said: Said,
    /// How much of the text was told, as words or as thoughts.
    told: usize,
    place: Where,
    /// Thoughts came, which are left where they are.
    thought: bool,
    failed: Option<ModelFailure>,
}

impl Reading for Decoder {
    fn feed(&mut self, bytes: &[u8]) -> Progress {
        if self.failed.is_some() {
            return Progress::Failed;
        }
        // What follows the end says nothing any more.
        if self.done.is_some() {
            return Progress::Complete;
        }
        self.bytes += bytes.len();
        if self.bytes > REPLY_MAX_BYTES {
            self.failed = Some(malformed("the response is larger than 16 MiB and was refused"));
            return Progress::Failed;
        }
        for byte in bytes {
            match self.rows.push(*byte) {
                Step::More => {}
                Step::Object(text) => self.take(&text),
                Step::Garbage => self.failed = Some(self.garbage()),
            }
            if self.failed.is_some() || self.done.is_some() {
                break;
            }
        }
        match (&self.failed, &self.done) {
            (Some(_), _) => Progress::Failed,
            (None, Some(_)) => Progress::Complete,
            (None, None) => Progress::Reading,
        }
    }

    fn said(&mut self) -> Vec<Saying> {
        self.said.take()
    }

    fn end(mut self, end: End) -> Result<Reply, ModelFailure> {
        let failure = match (self.failed.take(), self.done.take(), end) {
            (Some(failure), _, _) => failure,
            (None, Some(Finish::Length), _) if self.is_cut_at_birth() => return Err(no_room(self.usage)),
            (None, Some(done), _) => {
                let finish = if done == Finish::Stop && !self.calls.is_empty() { Finish::ToolCalls } else { done };
                let mut beside = self.beside;
                let text = without_thoughts(&self.text).to_owned();
                if text.len() < self.text.len() {
                    beside.text("content", &self.text);
                }
                let wired = beside.into_wired();
                return Ok(Reply { text, calls: self.calls, finish, usage: self.usage, repaired: None, wired });
            }
            (None, None, End::Closed) if self.bytes == 0 => {
                transient("the server closed the connection without a reply".to_owned())
            }
            (None, None, End::Closed) => {
                transient("the reply ended before the server said that it was done".to_owned())
            }
            (None, None, End::Broken(why)) => transient(format!("the reply broke off before it was complete: {why}")),
        };
        Err(spoilt(failure, self.text, self.calls, self.usage))
    }
}

impl Decoder {
    fn take(&mut self, text: &str) {
        let row: Row = match serde_json::from_str(&mended(text)) {
            Ok(row) => row,
            Err(error) => {
                self.failed = Some(malformed(format!("a line of the response cannot be read: {error}")));
                return;
            }
        };
        if row.error.as_ref().is_some_and(says_something) {
            self.failed = Some(Refusal { status: None, body: text, retry_after_s: None }.into_failure());
            return;
        }
        if let Some(message) = row.message {
            self.begun = true;
            self.thought |= message.thinking.as_ref().is_some_and(says_something);
            if let Some(Value::String(thinking)) = &message.thinking {
                self.said.thought(thinking);
            }
            self.text.push_str(&message.content.unwrap_or_default());
            self.say();
            if let Some(thinking) = message.thinking {
                let said = Map::from_iter([("thinking".to_owned(), thinking)]);
                self.beside.keep("message", &said, &[], Pieces::More);
            }
            self.beside.keep("message", &message.rest, &["role"], Pieces::More);
            self.calls.extend(message.tool_calls.unwrap_or_default().into_iter().map(Call::raw));
        } else if !row.done.unwrap_or(false) {
            self.failed = Some(self.garbage());
        }
        if row.done.unwrap_or(false) {
            self.beside.keep("response", &row.rest, ROW, Pieces::Anew);
            let why = row.done_reason.as_ref().and_then(Value::as_str).unwrap_or_default();
            self.done = Some(finish(why.to_owned()));
            self.usage = usage(row.prompt_eval_count.as_ref(), row.eval_count.as_ref());
        }
    }

    /// Tells what came of the text, in the way [`without_thoughts`] reads it.
    fn say(&mut self) {
        loop {
            let new = &self.text[self.told..];
            let told = match self.place {
                Where::Before => {
                    let words = new.trim_start();
                    let blank = new.len() - words.len();
                    if words.starts_with(THINK) {
                        self.place = Where::Thinking;
                        blank + THINK.len()
                    } else if THINK.starts_with(words) && blank <= BLANK_MAX {
                        return;
                    } else {
                        self.place = Where::Speaking;
                        0
                    }
                }
                Where::Thinking => match new.find(THOUGHT) {
                    Some(end) => {
                        self.said.thought(&new[..end]);
                        self.place = Where::Between;
                        end + THOUGHT.len()
                    }
                    None => {
                        // The end may be half there.
                        let sure = new.floor_char_boundary(new.len().saturating_sub(THOUGHT.len() - 1));
                        self.said.thought(&new[..sure]);
                        self.told += sure;
                        return;
                    }
                },
                Where::Between => {
                    let words = new.trim_start();
                    if words.is_empty() {
                        self.told = self.text.len();
                        return;
                    }
                    self.place = Where::Speaking;
                    new.len() - words.len()
                }
                Where::Speaking => {
                    self.said.text(new);
                    self.told = self.text.len();
                    return;
                }
            };
            self.told += told;
        }
    }

    /// Cut off by its length with nothing made: the prompt fills the window. The token that did not fit may be counted.
    fn is_cut_at_birth(&self) -> bool {
        let is_empty = self.text.is_empty() && self.calls.is_empty() && !self.thought;
        is_empty && self.usage.is_none_or(|usage| usage.output <= 1)
    }

    /// What came is not what Ollama sends. After it began well, the reply is spoilt; before, another server is speaking.
    fn garbage(&self) -> ModelFailure {
        if self.begun {
            return malformed("a line of the response is no JSON object");
        }
        transient(
            "the response is none of Ollama's: check that OLLAMA_HOST, or base_url, is an Ollama server".to_owned(),
        )
    }
}

fn transient(message: String) -> ModelFailure {
    broken(ModelErrorClass::Transient, Billing::Perhaps, message)
}

fn finish(word: String) -> Finish {
    match word.as_str() {
        // Old servers give no reason.
        "stop" | "" => Finish::Stop,
        "length" => Finish::Length,
        _ => Finish::Other(word),
    }
}

/// None unless both are counted: old servers leave the prompt out when they had it in their cache.
fn usage(input: Option<&Value>, output: Option<&Value>) -> Option<Usage> {
    let (input, output) = (count(input?)?, count(output?)?);
    Some(Usage { input, output, ..Usage::default() })
}

#[derive(Deserialize)]
struct Row {
    message: Option<Message>,
    done: Option<bool>,
    done_reason: Option<Value>,
    prompt_eval_count: Option<Value>,
    eval_count: Option<Value>,
    error: Option<Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    thinking: Option<Value>,
    tool_calls: Option<Vec<Call>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Fields of a row that say nothing of the reply.
const ROW: &[&str] =
    &["model", "created_at", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration"];

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Called,
}

#[derive(Deserialize)]
struct Called {
    name: Option<String>,
    /// As it was written: large numbers would not survive being read.
    arguments: Option<Box<RawValue>>,
}

impl Call {
    fn raw(self) -> RawCall {
        let arguments = self.function.arguments.map(|raw| raw.get().to_owned()).unwrap_or_default();
        // Some gateways send a text, as other providers do.
        let arguments = serde_json::from_str::<String>(&arguments).unwrap_or(arguments);
        let arguments = if arguments == "null" { String::new() } else { arguments };
        RawCall { id: self.id.unwrap_or_default(), name: self.function.name.unwrap_or_default(), arguments }
    }
}

/// Where in the text the reply is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// It may begin with thoughts.
    #[default]
    Before,
    Thinking,
    /// Behind the thoughts, before the first word.
    Between,
    Speaking,
}

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
/// So many blanks before the first word are words.
const BLANK_MAX: usize = 1024;

/// Finds the objects in a row of them, by their braces.
#[derive(Default)]
struct Rows {
    object: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

enum Step {
    More,
    Object(String),
    /// Something that is no object.
    Garbage,
}

impl Rows {
    fn push(&mut self, byte: u8) -> Step {
        if self.object.is_empty() {
            // None of a byte-order mark's bytes can begin anything else.
            if byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(&byte) {
                return Step::More;
            }
            if byte != b'{' {
                return Step::Garbage;
            }
        }
        self.object.push(byte);
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' if !self.in_string => self.depth += 1,
            b'}' if !self.in_string => self.depth -= 1,
            _ => {}
        }
        if self.depth > 0 {
            return Step::More;
        }
        Step::Object(String::from_utf8_lossy(&std::mem::take(&mut self.object)).into_owned())
    }
}
