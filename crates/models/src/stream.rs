//! One response on its way in, whatever its dialect: a stream of server-sent events, or one JSON body, whichever came.
//!
//! Here bytes become JSON values, wherever they were cut; what a value means is a [`Draft`]'s business. What cannot be
//! read fails the reply, and is never guessed at.

use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use serde_json::Value;

use crate::failure::{Refusal, broken};
use crate::lines::{Event, Lines};
use crate::numbers;
use crate::reading::{BYTE_ORDER_MARK, End, Progress, REPLY_MAX_BYTES, Reading, malformed};
use crate::surrogates::{self, mended};
use crate::telling::Saying;

/// A reply in the making.
pub trait Draft: Default + Send {
    /// Of which kind a server is that answers so, for people.
    const SERVER: &'static str;

    /// One event's value, or a whole body. What it keeps it may take out, instead of a copy.
    fn take(&mut self, value: &mut Value) -> Result<(), ModelFailure>;

    /// The words `[DONE]`, which end a stream of Chat Completions.
    fn done(&mut self) {}

    /// What it has said since this was last asked.
    fn said(&mut self) -> Vec<Saying>;

    /// How far it is, as long as nothing failed.
    fn progress(&self) -> Progress;

    /// Whether what is there is a whole reply. `Closed`: the response ended as HTTP says, so nothing more can come.
    fn is_whole(&self, closed: Closed) -> bool;

    /// The reply, once it is whole.
    fn reply(self) -> Result<Reply, ModelFailure>;

    /// A failure with what had arrived before it.
    fn spoilt(self, failure: ModelFailure) -> ModelFailure;
}

/// Whether a response ended in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Yes,
    No,
}

/// One response on its way in.
pub struct Decoder<D> {
    framing: Framing,
    draft: D,
    bytes: usize,
    /// The data of an event with half a character at the end of a text: the other half may begin one of the next event.
    half: Option<String>,
    failed: Option<ModelFailure>,
}

#[derive(Default)]
enum Framing {
    /// The first bytes, as long as they do not tell: empty, white, or part of a byte-order mark.
    #[default]
    Undecided,
    Events(Lines),
    /// One JSON body, or several one after another.
    Json(Vec<u8>),
}

impl<D: Draft> Default for Decoder<D> {
    fn default() -> Self {
        Self { framing: Framing::default(), draft: D::default(), bytes: 0, half: None, failed: None }
    }
}

impl<D: Draft> Reading for Decoder<D> {
    fn feed(&mut self, bytes: &[u8]) -> Progress {
        if self.failed.is_some() {
            return Progress::Failed;
        }
        if self.is_over() {
            return Progress::Complete;
        }
        self.bytes += bytes.len();
        if self.bytes > REPLY_MAX_BYTES {
            self.fail(malformed("the response is larger than 16 MiB and was refused"));
            return Progress::Failed;
        }
        let mut bytes = bytes;
        if matches!(self.framing, Framing::Undecided) {
            // A byte-order mark can only stand here, and none of its bytes can start JSON or an event.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte);
            let Some(start) = bytes.iter().position(|byte| !blank(byte)) else { return self.progress() };
            bytes = &bytes[start..];
            self.framing = match bytes[0] {
                b'{' | b'[' => Framing::Json(Vec::new()),
                // As a packed answer begins that does not say so: what looks like events further on must not be read.
                control if control.is_ascii_control() => {
                    self.fail(malformed("the response is no text: it may be packed"));
                    return Progress::Failed;
                }
                _ => Framing::Events(Lines::default()),
            };
        }
        match &mut self.framing {
            Framing::Undecided => {}
            Framing::Json(body) => body.extend_from_slice(bytes),
            Framing::Events(lines) => {
                let events = lines.feed(bytes);
                self.take_events(events);
            }
        }
        self.progress()
    }

    fn said(&mut self) -> Vec<Saying> {
        self.draft.said()
    }

    fn end(mut self, end: End) -> Result<Reply, ModelFailure> {
        if self.failed.is_none() {
            self.flush(&end);
            if let Some(half) = self.half.take() {
                self.take_data(&half);
            }
        }
        if let Some(failure) = self.failed {
            return Err(self.draft.spoilt(failure));
        }
        let closed = match &end {
            End::Closed => Closed::Yes,
            End::Broken(_) => Closed::No,
        };
        if self.draft.is_whole(closed) {
            return self.draft.reply();
        }
        let text = match end {
            End::Closed if self.bytes == 0 => "the server closed the connection without a reply".to_owned(),
            End::Closed => {
                format!(
                    "the server's response holds no whole reply: it was cut, or the base URL is not that of {}",
                    D::SERVER
                )
            }
            End::Broken(why) => format!("the reply broke off before it was complete: {why}"),
        };
        Err(self.draft.spoilt(broken(ModelErrorClass::Transient, Billing::Perhaps, text)))
    }
}

impl<D: Draft> Decoder<D> {
    fn progress(&self) -> Progress {
        if self.failed.is_some() { Progress::Failed } else { self.draft.progress() }
    }

    /// Reads what has no end of its own: a body, a last event without its blank line.
    fn flush(&mut self, end: &End) {
        match std::mem::take(&mut self.framing) {
            Framing::Undecided => {}
            Framing::Events(lines) => {
                if let Some(event) = lines.rest() {
                    // A half-written last event is no junk but a sign of a cut, which the missing finish tells as well.
                    if event.is_error || parse(event.data.trim()).is_some() {
                        self.take_events(vec![event]);
                    } else if !self.draft.is_whole(Closed::No) {
                        let text = match end {
                            End::Closed => "the stream ended in the middle of an event".to_owned(),
                            End::Broken(why) => format!("the stream broke off in the middle of an event: {why}"),
                        };
                        self.fail(broken(ModelErrorClass::Transient, Billing::Perhaps, text));
                    }
                }
            }
            Framing::Json(body) => self.take_body(&String::from_utf8_lossy(&body), end),
        }
    }

    fn take_body(&mut self, body: &str, end: &End) {
        let body = mended(body);
        let body = numbers::kept(&body);
        let mut values = serde_json::Deserializer::from_str(&body).into_iter::<Value>();
        let mut read = 0;
        while let Some(value) = values.next() {
            match (value, end) {
                (Ok(mut value), _) => {
                    read = values.byte_offset();
                    self.take(&mut value);
                }
                // The end says it better.
                (Err(error), End::Broken(_)) if error.is_eof() => {}
                // It ends within a value, however politely.
                (Err(error), End::Closed) if error.is_eof() && body.trim_start().len() > 1 => {
                    let text = "the response ended in the middle of its JSON".to_owned();
                    self.fail(broken(ModelErrorClass::Transient, Billing::Perhaps, text));
                }
                (Err(error), _) => {
                    let rest = body[read..].trim_start();
                    if read > 0 && FIELDS.iter().any(|field| rest.starts_with(field)) {
                        // Somebody wrote an object before, or between, the events of a stream.
                        return self.take_rest(rest);
                    }
                    self.fail(malformed(format!("the response is no JSON: {error}")));
                }
            }
        }
    }

    fn take_rest(&mut self, rest: &str) {
        if rest.starts_with(DONE) {
            return self.draft.done();
        }
        let mut lines = Lines::default();
        let events = lines.feed(rest.as_bytes());
        self.take_events(events);
        self.take_events(lines.rest().into_iter().collect());
    }

    fn take_events(&mut self, events: Vec<Event>) {
        for event in events {
            if self.is_over() {
                return;
            }
            if event.overlong {
                self.fail(malformed("a line of the stream is longer than 10 MiB"));
                return;
            }
            let data = event.data.trim();
            if data.is_empty() {
                continue;
            }
            if event.is_error {
                let value = serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.to_owned()));
                self.fail(refusal(&value));
                return;
            }
            let joined = self.half.take().map(|half| surrogates::joined(half, data));
            let data = match &joined {
                Some((half, data)) => {
                    self.take_data(half);
                    data.as_str()
                }
                None => data,
            };
            match read(data) {
                Some(mut value) => self.take(&mut value),
                None if surrogates::ends_in_half(data) => self.half = Some(data.to_owned()),
                None => self.take_data(data),
            }
        }
    }

    fn take_data(&mut self, data: &str) {
        let Some((mut values, ends)) = parse(data) else {
            return self.fail(malformed("an event of the stream is no JSON"));
        };
        values.iter_mut().for_each(|value| self.take(value));
        if ends && !self.is_over() {
            self.draft.done();
        }
    }

    /// What follows the end says nothing any more, whether it came in the same packet or in another.
    fn is_over(&self) -> bool {
        self.failed.is_some() || self.draft.progress() == Progress::Complete
    }

    /// A list is taken one by one: some servers send a stream as one list.
    fn take(&mut self, value: &mut Value) {
        if let Value::Array(list) = value {
            list.iter_mut().for_each(|value| self.take(value));
        } else if !self.is_over()
            && let Err(failure) = self.draft.take(value)
        {
            self.fail(failure);
        }
    }

    fn fail(&mut self, failure: ModelFailure) {
        self.failed.get_or_insert(failure);
    }
}

/// A refusal inside a response that began well.
pub(crate) fn refusal(value: &Value) -> ModelFailure {
    Refusal { status: None, body: &value.to_string(), retry_after_s: None }.into_failure()
}

const DONE: &str = "[DONE]";

/// How lines of a stream of events begin.
const FIELDS: [&str; 6] = ["data:", "event:", "id:", "retry:", ":", DONE];

fn read(json: &str) -> Option<Value> {
    serde_json::from_str(&numbers::kept(json)).ok()
}

/// The JSON values in an event's data, and whether the end of the stream is there, too: one value, unless a server left out
/// the blank lines between events.
fn parse(data: &str) -> Option<(Vec<Value>, bool)> {
    let read = |text: &str| read(text).or_else(|| read(&mended(text)));
    if let Some(value) = read(data) {
        return Some((vec![value], false));
    }
    let lines = || data.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines().nth(1).is_some() || data == DONE {
        let before = lines().take_while(|line| *line != DONE);
        return Some((before.map(read).collect::<Option<_>>()?, lines().any(|line| line == DONE)));
    }
    // Several in one line.
    let (data, ends) = data.strip_suffix(DONE).map_or((data, false), |data| (data, true));
    let kept = numbers::kept(data);
    let values = serde_json::Deserializer::from_str(&kept).into_iter::<Value>();
    let values = values.collect::<Result<Vec<_>, _>>().ok().filter(|values| !values.is_empty())?;
    Some((values, ends))
}
