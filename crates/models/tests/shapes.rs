//! Replies in the shapes that servers give them, as rows: what came, and what it comes to. Each is read whole, cut at every
//! byte, byte by byte, at random places, and with other line ends; it must make no difference.

#[path = "shapes/chat.rs"]
mod chat;
#[path = "shapes/errors.rs"]
mod errors;
#[path = "shapes/blocks.rs"]
mod in_blocks;
mod support;

use longrein_core::outcome::{Finish, ModelErrorClass, ModelFailure, Reply, WireBlock};
use longrein_models::openai::decode::{End, Reading};
use longrein_models::{anthropic, gemini, ollama, openai, responses};

#[derive(Clone, Copy)]
enum Wire {
    Chat,
    Messages,
    Responses,
    Gemini,
    Ollama,
}

/// What a row comes to.
enum Comes {
    /// Text, calls as `name(arguments)` behind their id, the finish, and words that must stand in what is kept beside.
    To(&'static str, &'static [&'static str], Finish, &'static [&'static str]),
    Fails(ModelErrorClass),
}

use Comes::{Fails, To};

struct Row {
    name: &'static str,
    wire: Wire,
    body: String,
    comes: Comes,
}

/// A stream of events with these data and its `[DONE]`.
fn events(data: &[&str]) -> String {
    let events: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    events + "data: [DONE]\n\n"
}

/// The same without the end.
fn unended(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// Events that say their kind.
fn named(data: &[&str]) -> String {
    let kind = |data: &str| {
        let value: serde_json::Value = serde_json::from_str(data).expect("JSON");
        value["type"].as_str().unwrap_or_default().to_owned()
    };
    data.iter().map(|data| format!("event: {}\ndata: {data}\n\n", kind(data))).collect()
}

fn chat(name: &'static str, body: String, comes: Comes) -> Row {
    Row { name, wire: Wire::Chat, body, comes }
}

fn read(wire: Wire, pieces: &[&[u8]]) -> Result<Reply, ModelFailure> {
    fn of<D: Reading>(pieces: &[&[u8]]) -> Result<Reply, ModelFailure> {
        let mut decoder = D::default();
        for piece in pieces {
            decoder.feed(piece);
        }
        decoder.end(End::Closed)
    }
    match wire {
        Wire::Chat => of::<openai::decode::Decoder>(pieces),
        Wire::Messages => of::<anthropic::decode::Decoder>(pieces),
        Wire::Responses => of::<responses::decode::Decoder>(pieces),
        Wire::Gemini => of::<gemini::decode::Decoder>(pieces),
        Wire::Ollama => of::<ollama::decode::Decoder>(pieces),
    }
}

/// Reads a body in every way there is, and answers what it comes to.
fn read_every_way(row: &Row) -> Result<Reply, ModelFailure> {
    let body = row.body.as_bytes();
    let whole = read(row.wire, &[body]);
    for cut in 0..=body.len() {
        assert_eq!(read(row.wire, &[&body[..cut], &body[cut..]]), whole, "{}: cut at {cut}", row.name);
    }
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    for most in [1, 2, 7, 64] {
        let (mut rest, mut pieces) = (body, Vec::new());
        while !rest.is_empty() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let (piece, after) = rest.split_at(rest.len().min(1 + usize::try_from(seed % most).expect("small")));
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(read(row.wire, &pieces), whole, "{}: in pieces of {most}", row.name);
    }
    let other_ends = row.body.replace("\r\n", "\n").replace('\n', "\r\n");
    assert_eq!(read(row.wire, &[other_ends.as_bytes()]), whole, "{}: with CR LF", row.name);
    let marked = format!("\u{feff}{}", row.body);
    let marked = if row.body.is_empty() { String::new() } else { marked };
    assert_eq!(read(row.wire, &[marked.as_bytes()]), whole, "{}: behind a byte-order mark", row.name);
    // Cut off anywhere, it is a reply or a failure, and no panic.
    for cut in 0..body.len() {
        let _ = read(row.wire, &[&body[..cut]]);
    }
    whole
}

fn hold(rows: &[Row]) {
    let mut faults = Vec::new();
    for row in rows {
        let came = read_every_way(row);
        let holds = match (&row.comes, &came) {
            (To(text, calls, finish, beside), Ok(reply)) => {
                let made: Vec<_> =
                    reply.calls.iter().map(|call| format!("{} {}({})", call.id, call.name, call.arguments)).collect();
                let kept = reply.wired.iter().flat_map(|wired| &wired.blocks).map(|block| match block {
                    WireBlock::Opaque(json) | WireBlock::With(json) | WireBlock::Aside(json) => json.as_str(),
                    WireBlock::Text(_) | WireBlock::Call => "",
                });
                let kept: String = kept.collect::<Vec<_>>().join("\n");
                reply.text == *text
                    && made == *calls
                    && reply.finish == *finish
                    && beside.iter().all(|word| kept.contains(word))
            }
            (Fails(class), Err(failure)) => failure.class == *class,
            (To(..), Err(_)) | (Fails(_), Ok(_)) => false,
        };
        if !holds {
            faults.push(format!("{}: {came:#?}", row.name));
        }
    }
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
    eprintln!("{} rows", rows.len());
}
