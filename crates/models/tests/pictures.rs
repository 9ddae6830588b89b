//! How each wire carries images: the bytes where it has a place for them, a line of text where it has none.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_core::ids::ModelName;
use longrein_core::image::{ImageRef, Images};
use longrein_core::prompt::{Item, Prompt};
use longrein_core::task::{ModelSpec, Protocol};
use longrein_models::{ModelConfig, Secret, connect};
use longrein_ports::Model;
use serde_json::{Value, json};
use support::{assistant, prompt, user};

const A: &[u8] = b"GIF89a\x80\x02\xe0\x01";
const B: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x02";
const A_64: &str = "R0lGODlhgALgAQ==";
const B_64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAC";
const LINES: &str = "Which is it?\n[image a.gif 640×480 gif]\n[image b.png 1×2 png]";
const NOT_TAKEN: &str = "Which is it?\n[image a.gif 640×480 gif: this model takes no images]\n[image b.png 1×2 png: this \
                         model takes no images]";

fn pictured() -> Item {
    let images = vec![ImageRef::read("a.gif", A).unwrap(), ImageRef::read("b.png", B).unwrap()];
    Item::Pictured { text: "Which is it?".to_owned(), images }
}

fn given(bytes: &[&[u8]]) -> Images {
    let by_digest = |bytes: &&[u8]| (longrein_core::ids::Digest::of(bytes), Arc::<[u8]>::from(*bytes));
    Images::Given(Arc::new(bytes.iter().map(by_digest).collect::<BTreeMap<_, _>>()))
}

fn shown(images: Images) -> Prompt {
    Prompt { images, ..prompt(0, vec![pictured()]) }
}

fn model(name: &str, protocol: Protocol) -> Arc<dyn Model> {
    let spec = ModelSpec { protocol, ..ModelSpec::plain(ModelName::new(name), 1_000) };
    connect(&spec, &ModelConfig { api_key: Some(Secret::new("k")), ..ModelConfig::default() }).unwrap()
}

fn body(name: &str, prompt: &Prompt) -> Value {
    serde_json::from_slice(&model(name, Protocol::Native).encode(prompt).bytes).unwrap()
}

const WIRES: [&str; 5] = ["openai/m", "openai-responses/m", "anthropic/m", "gemini/m", "ollama/m"];

#[test]
fn each_wire_carries_images_in_its_own_way() {
    let prompt = shown(given(&[A, B]));
    let (a_url, b_url) = (format!("data:image/gif;base64,{A_64}"), format!("data:image/png;base64,{B_64}"));
    assert_eq!(
        body("openai/m", &prompt)["messages"][1],
        json!({ "role": "user", "content": [
            { "type": "text", "text": LINES },
            { "type": "image_url", "image_url": { "url": a_url } },
            { "type": "image_url", "image_url": { "url": b_url } },
        ] })
    );
    assert_eq!(
        body("openai-responses/m", &prompt)["input"][0],
        json!({ "type": "message", "role": "user", "content": [
            { "type": "input_text", "text": LINES },
            { "type": "input_image", "detail": "auto", "image_url": a_url },
            { "type": "input_image", "detail": "auto", "image_url": b_url },
        ] })
    );
    let source = |media: &str, data: &str| json!({ "type": "base64", "media_type": media, "data": data });
    assert_eq!(
        body("anthropic/m", &prompt)["messages"][0],
        json!({ "role": "user", "content": [
            { "type": "text", "text": LINES },
            { "type": "image", "source": source("image/gif", A_64) },
            { "type": "image", "source": source("image/png", B_64), "cache_control": { "type": "ephemeral" } },
        ] })
    );
    assert_eq!(
        body("gemini/m", &prompt)["contents"][0],
        json!({ "role": "user", "parts": [
            { "text": LINES.replace("480 gif]", "480 gif: this model takes no gif]") },
            { "inlineData": { "mimeType": "image/png", "data": B_64 } },
        ] })
    );
    assert_eq!(
        body("ollama/m", &prompt)["messages"][1],
        json!({ "role": "user", "content": LINES, "images": [A_64, B_64] })
    );
}

/// What is said to a model that takes none, and by protocols that have text alone.
#[test]
fn where_there_is_no_place_for_images_a_line_stands_for_each() {
    let said = |sent: &[u8]| {
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        assert!(sent.contains(&serde_json::to_string(NOT_TAKEN).unwrap()[1..]), "{sent}");
        assert!(!sent.contains(A_64) && !sent.contains(B_64), "{sent}");
    };
    for wire in WIRES {
        said(&model(wire, Protocol::Native).encode(&shown(Images::NotTaken)).bytes);
    }
    for wire in ["openai/m", "ollama/m"] {
        said(&model(wire, Protocol::Json).encode(&shown(given(&[A, B]))).bytes);
    }
    let script = longrein_models::script::ScriptedModel::parse("[[reply]]\ntext = \"ok\"\n", "s").unwrap();
    said(&script.encode(&shown(given(&[A, B]))).bytes);
}

#[test]
fn bytes_that_are_lost_are_a_line_and_no_hole() {
    for wire in WIRES {
        let sent = model(wire, Protocol::Native).encode(&shown(given(&[B]))).bytes;
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        assert!(sent.contains("[image a.gif 640×480 gif: its bytes are lost]"), "{wire}: {sent}");
        assert!(sent.contains(B_64), "{wire}: {sent}");
    }
}

/// A longer conversation begins with the bytes of a shorter one, and what an encoder remembers never shows: neither items
/// nor which bytes were at hand.
#[test]
fn images_keep_their_bytes_in_a_conversation_that_grows() {
    let items = vec![user("hello"), assistant("yes?", &[]), pictured(), assistant("A gif.", &[]), user("thanks")];
    let whole = Prompt { images: given(&[A, B]), ..prompt(0, items) };
    let first = |count: usize, images: &Images| Prompt {
        items: whole.items[..count].to_vec().into(),
        images: images.clone(),
        ..whole.clone()
    };
    let (all, some, none) = (given(&[A, B]), given(&[A]), given(&[]));
    for wire in WIRES {
        let used = model(wire, Protocol::Native);
        let prompts = [
            first(2, &none),
            first(3, &all),
            first(5, &all),
            first(5, &some),
            first(4, &Images::NotTaken),
            first(5, &all),
            first(3, &none),
        ];
        for prompt in &prompts {
            let (ours, fresh) = (used.encode(prompt), model(wire, Protocol::Native).encode(prompt));
            assert_eq!(ours.bytes, fresh.bytes, "{wire}");
            assert_eq!(ours.digest, fresh.digest, "{wire}");
        }
        let short = used.encode(&first(3, &all)).bytes;
        let long = used.encode(&first(5, &all)).bytes;
        let data = String::from_utf8(short.to_vec()).unwrap().find(B_64).unwrap() + B_64.len();
        assert_eq!(short[..data], long[..data], "{wire}");
    }
}
