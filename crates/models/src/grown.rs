//! A request body that grows with the conversation: what was encoded for an earlier prompt is kept, so that a longer one
//! costs its new items, and a copy only while the earlier body is still in somebody's hands. The result is the same as
//! that of starting afresh.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use longrein_core::ids::Digest;
use longrein_core::image::Images;
use longrein_core::payload::Payload;
use longrein_core::prompt::{AnswerForm, Item, Prompt, ToolDef};
use longrein_ports::Encoded;

use crate::leaving::Left;
use crate::schema;

/// How a wire spells a prompt: fixed fields and a list that is still open, then one element per item, then what closes
/// the list and everything that varies from call to call.
pub(crate) trait Spelling {
    /// What the next item must know of what was written.
    type Place: Copy;
    /// Everything before the first item; a function of the system text, the tools and the form of the answer.
    fn head(&self, prompt: &Prompt, out: &mut Vec<u8>) -> Self::Place;
    /// One item, with what separates it from the one before; it may lean on what the head leans on.
    fn item(&self, prompt: &Prompt, place: Self::Place, item: &Item, out: &mut Vec<u8>) -> Self::Place;
    /// What of it this server will not have: a prompt is spelled anew when that changes.
    fn left(&self) -> Option<Arc<Left>> {
        None
    }
    /// Everything after the last item.
    fn foot(&self, prompt: &Prompt, place: Self::Place, out: &mut Vec<u8>);
}

/// Whether the list has elements, so that the next one is preceded by a comma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Empty,
    Begun,
}

impl List {
    /// Writes the comma that goes before another element, if any.
    pub(crate) fn next(self, out: &mut Vec<u8>) -> Self {
        match self {
            List::Begun => out.push(b','),
            List::Empty => {}
        }
        List::Begun
    }
}

/// The memory of one encoder.
pub(crate) struct Grown<P>(Mutex<Option<Kept<P>>>);

impl<P> Default for Grown<P> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

struct Kept<P> {
    system: Arc<str>,
    tools: Arc<[ToolDef]>,
    answer: AnswerForm,
    left: Option<Arc<Left>>,
    /// Those that were at hand for the items.
    images: Images,
    items: Vec<Arc<Item>>,
    /// The last body: head and items as encoded, then the foot of that call.
    body: Bytes,
    /// Where the foot begins.
    end: usize,
    /// Over the body without its foot.
    hasher: blake3::Hasher,
    place: P,
}

impl<P: Copy> Grown<P> {
    pub(crate) fn encode(&self, spelling: &impl Spelling<Place = P>, prompt: &Prompt) -> Encoded {
        // A panic while the lock was held left the memory empty: it is taken out before anything is changed.
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = slot
            .take()
            .filter(|kept| kept.left == spelling.left() && kept.begins(prompt))
            .unwrap_or_else(|| Kept::new(spelling, prompt));
        let digest = kept.extend(spelling, prompt);
        let bytes = kept.body.clone();
        *slot = Some(kept);
        Encoded { bytes, digest, position: prompt.position, answer: prompt.answer.clone() }
    }
}

impl<P: Copy> Kept<P> {
    fn new(spelling: &impl Spelling<Place = P>, prompt: &Prompt) -> Self {
        let mut head = Vec::new();
        let place = spelling.head(prompt, &mut head);
        Self {
            system: Arc::clone(&prompt.system),
            tools: Arc::clone(&prompt.tools),
            answer: prompt.answer.clone(),
            left: spelling.left(),
            images: prompt.images.clone(),
            items: Vec::new(),
            end: head.len(),
            hasher: hash_of(&head),
            body: Bytes::from(head),
            place,
        }
    }

    /// Whether a prompt starts with what is kept. Its parts are shared between prompts, so the comparison is nearly always
    /// one of addresses.
    fn begins(&self, prompt: &Prompt) -> bool {
        self.items.len() <= prompt.items.len()
            && (Arc::ptr_eq(&self.system, &prompt.system) || self.system == prompt.system)
            && (Arc::ptr_eq(&self.tools, &prompt.tools) || self.tools == prompt.tools)
            && self.answer == prompt.answer
            && self
                .items
                .iter()
                .flat_map(|item| item.images())
                .all(|image| self.images.bytes(image).is_some() == prompt.images.bytes(image).is_some())
            && self.items.iter().zip(&*prompt.items).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs) || ours == theirs)
    }

    /// Makes the body that of `prompt`, and answers its digest.
    fn extend(&mut self, spelling: &impl Spelling<Place = P>, prompt: &Prompt) -> Digest {
        let mut body = Vec::from(self.reclaim());
        self.images = prompt.images.clone();
        for item in &prompt.items[self.items.len()..] {
            self.place = spelling.item(prompt, self.place, item, &mut body);
            self.items.push(Arc::clone(item));
        }
        self.hasher.update(&body[self.end..]);
        self.end = body.len();
        spelling.foot(prompt, self.place, &mut body);
        let digest = self.hasher.clone().update(&body[self.end..]).finalize().to_hex().to_string();
        self.body = Bytes::from(body);
        Digest::new(digest)
    }

    /// The body without its foot: the very bytes if the request they went out with is over, as it nearly always is.
    fn reclaim(&mut self) -> BytesMut {
        let mut body = std::mem::take(&mut self.body).try_into_mut().unwrap_or_else(|shared| {
            let mut copy = BytesMut::with_capacity(self.end + ROOM_BYTES);
            copy.extend_from_slice(&shared[..self.end]);
            copy
        });
        body.truncate(self.end);
        body
    }
}

/// Room for a turn or two behind a copy.
const ROOM_BYTES: usize = 4 * 1024;

fn hash_of(bytes: &[u8]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    hasher
}

/// The field that offers tools, as Chat Completions and those who follow it spell it; nothing where there are none, since
/// several servers refuse an empty list.
pub(crate) fn tools(tools: &[ToolDef], out: &mut Vec<u8>) {
    #[derive(serde::Serialize)]
    struct Tool<'a> {
        r#type: &'static str,
        function: Function<'a>,
    }
    #[derive(serde::Serialize)]
    struct Function<'a> {
        name: &'a str,
        description: &'a str,
        parameters: Cow<'a, Payload>,
    }
    if tools.is_empty() {
        return;
    }
    let offered: Vec<_> = tools
        .iter()
        .map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: tool.name.as_str(),
                description: &tool.description,
                parameters: schema::plain(&tool.parameters),
            },
        })
        .collect();
    out.extend_from_slice(br#","tools":"#);
    json(&offered, out);
}

/// Writes `value` as JSON. Strings, numbers and payloads always serialise.
pub(crate) fn json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts and payloads always serialise into memory");
}
