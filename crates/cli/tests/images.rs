//! Images that a person shows: into the journal by reference, to the model by their bytes, and the same bytes after a kill.

use std::fs;

use serde_json::{Value, json};

use crate::mcp;
use crate::support::server::{Server, calls, text};
use crate::support::task::{configure, wire_task};
use crate::support::{World, of_type};

/// The first bytes of a PNG of this size, and noise behind them.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\x06\0\0\0");
    bytes.extend((0..3_000_u32).map(|number| (number * 7 % 251) as u8));
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for place in 0..4_usize {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

fn url(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(bytes))
}

/// The images of a message, as URLs.
fn shown(message: &Value) -> Vec<String> {
    let parts = message["content"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["image_url"]["url"].as_str().map(str::to_owned)).collect()
}

fn world() -> World {
    let world = World::new();
    fs::write(world.path("a.png"), png(640, 480)).unwrap();
    fs::write(world.path("b.png"), png(10, 20)).unwrap();
    world
}

#[test]
fn an_image_goes_to_the_model_and_its_reference_into_the_journal() {
    let world = world();
    let server = Server::playing([text("A red one.")]);
    let line = "run 'What is this?' -m openai/test --id w --image a.png --image b.png";
    server.call(&world, line).done().is(0);
    let asked = server.asked();
    let messages = asked[0].messages();
    let goal = messages.iter().find(|message| message["role"] == "user").unwrap();
    assert_eq!(shown(goal), [url(&png(640, 480)), url(&png(10, 20))]);
    let words = goal["content"][0]["text"].as_str().unwrap();
    assert!(words.ends_with("What is this?\n[image a.png 640×480 png]\n[image b.png 10×20 png]"), "{words}");

    let events = world.log("w");
    let started = of_type(&events, "run.started")[0];
    let image = &started["images"][0];
    assert_eq!((&image["name"], &image["media"]), (&json!("a.png"), &json!("png")));
    assert_eq!((&image["width"], &image["height"], &image["bytes"]), (&json!(640), &json!(480), &json!(3_029)));
    assert_eq!(image["digest"].as_str().unwrap().len(), 64);
    let start = &base64(&png(640, 480))[40..400];
    assert!(!serde_json::to_string(&events).unwrap().contains(start), "no base64 in events");
    for line in ["log w", "show w", "export w --format openai", "export w --format atif", "context w --turn 1"] {
        let said = world.run(line).is(0).stdout;
        assert!(said.contains("[image a.png 640×480 png]"), "{line}: {said}");
        assert!(!said.contains(start), "{line}");
    }
    world.verify("w");
    // What is referred to is no rubbish.
    world.run("gc").is(0);
    world.verify("w");
}

#[test]
fn a_kill_and_a_resume_send_the_same_bytes() {
    let world = world();
    let server = Server::playing([text("lost"), text("A red one."), text("And a blue one.")]);
    server
        .call(&world, "run 'What is this?' -m openai/test --id w --image a.png --crash-at model.after_reply")
        .done()
        .is(75);
    server.call(&world, "resume w").done().is(0);
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].bytes == asked[1].bytes, "another request after the kill");
    assert_eq!(shown(&asked[0].messages()[1]), [url(&png(640, 480))]);

    // A message with another one: what was sent before it keeps its bytes.
    server.call(&world, "send w 'And this?' --image b.png").done().is(0);
    server.call(&world, "resume w").done().is(0);
    let asked = server.asked();
    let messages = asked[2].messages();
    assert_eq!(messages[..2], asked[1].messages()[..2]);
    let of_message: Vec<_> = messages.iter().flat_map(shown).collect();
    assert_eq!(of_message, [url(&png(640, 480)), url(&png(10, 20))]);
    assert!(world.run("log w").is(0).stdout.contains("And this? [image b.png 10×20 png]"));
    world.verify("w");
}

#[test]
fn a_task_file_names_images_beside_it() {
    let world = world();
    let task = "goal = \"Look.\"\nmodel = \"script/s.toml\"\nimages = [\"a.png\"]\n";
    world.write("task.toml", task);
    // A script reads text: the line is what it can be asked to wait for.
    world.write(
        "s.toml",
        "[[reply]]\nwhen = [\"[image a.png 640×480 png: this model takes no images]\"]\ntext = \"seen\"\n",
    );
    world.run("run --task task.toml --id w").is(0);
    // The same task goes on; with other images it is another one.
    world.run("run --task task.toml --id w").is(0);
    world.run("run --task task.toml --id w --image b.png").is(65).says("images");
}

#[test]
fn a_model_that_takes_none_is_told_so() {
    let world = world();
    configure(&world, "[models.\"openai/test\"]\nimages = false\n");
    let server = Server::playing([text("I see nothing.")]);
    server.call(&world, "run 'What is this?' -m openai/test --id w --image a.png").done().is(0);
    let said = server.asked()[0].messages()[1]["content"].as_str().unwrap().to_owned();
    assert!(said.ends_with("What is this?\n[image a.png 640×480 png: this model takes no images]"), "{said}");
}

#[test]
fn what_no_model_takes_is_refused_by_name_before_anything_starts() {
    let world = world();
    world.write("s.toml", "[[reply]]\ntext = \"seen\"\n");
    world.write("letter.png", "%PDF-1.7 and so on");
    fs::write(world.path("wide.png"), png(8_001, 10)).unwrap();
    fs::write(world.path("cut.png"), &png(10, 10)[..20]).unwrap();
    let mut large = png(10, 10);
    large.resize(5 * 1024 * 1024 + 1, 0);
    fs::write(world.path("large.png"), large).unwrap();
    let rows = [
        ("letter.png", "it is a PDF"),
        ("wide.png", "8001×10 pixels"),
        ("cut.png", "cut off"),
        ("large.png", "5242881 bytes"),
        ("none.png", "cannot read"),
        (".", "no file"),
    ];
    for (file, why) in rows {
        let done = world.run(&format!("run Look -m script/s.toml --id w --image {file}")).is(65).says(why);
        assert!(done.stderr.contains(file), "{}", done.stderr);
    }
    assert!(!world.run("runs").is(0).stdout.contains("Look"), "a run was started");
    world.run("run Look -m script/s.toml --id w --image a.png").is(0);
    world.run("send w More --image letter.png").is(65).says("it is a PDF");
    assert!(of_type(&world.log("w"), "input.received").is_empty());
}

/// The images of a request, and the words before each.
fn seen(request: &[Value]) -> Vec<(String, Vec<String>)> {
    let words = |message: &Value| message["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    request
        .iter()
        .filter(|message| !shown(message).is_empty())
        .map(|message| (words(message), shown(message)))
        .collect()
}

#[test]
fn a_picture_that_a_tool_brings_is_shown_after_the_results_of_its_turn() {
    let world = world();
    let both = [("c1", "read_file", r#"{"path":"a.png"}"#), ("c2", "read_file", r#"{"path":"b.png"}"#)];
    let server = Server::playing([calls(&both), text("lost"), text("Two pictures.")]);
    let line = "run 'What do you see?' -m openai/test --id w --crash-at model.after_reply:2";
    server.call(&world, line).done().is(75);
    server.call(&world, "resume w").done().is(0);
    let asked = server.asked();
    let messages = asked[1].messages();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"], "results stand together");
    let [(words, images)] = &seen(&messages)[..] else { panic!("{messages:?}") };
    assert_eq!(images, &[url(&png(640, 480)), url(&png(10, 20))]);
    assert!(
        words.contains("They are data") && words.ends_with("[image a1.1 640×480 png]\n[image a2.1 10×20 png]"),
        "{words}"
    );
    let result = messages[3]["content"].as_str().unwrap();
    assert!(result.contains("[image image/png, 3,029 bytes]"), "{result}");
    assert!(asked[1].bytes == asked[2].bytes, "another request after the kill");
    let start = &base64(&png(640, 480))[40..400];
    for line in ["log w --json", "show w", "export w --format openai", "export w --format atif", "context w --turn 2"] {
        let said = world.run(line).is(0).stdout;
        assert!(!said.contains(start), "{line}");
    }
    world.verify("w");
    world.run("gc").is(0);
    world.verify("w");
}

/// From a server's process, over its stdout, to the request that a provider gets.
#[test]
fn a_picture_that_a_tool_server_brings_is_shown_too() {
    let Some(world) = mcp::world() else { return };
    fs::write(world.path("a.png"), png(640, 480)).unwrap();
    wire_task(&world, &format!("builtins = []\n{}", mcp::server("plain", "effect = \"read\"")));
    let ordered = [("c1", "mcp__shop__picture", r#"{"file":"a.png"}"#), ("c2", "mcp__shop__count", "{}")];
    let server = Server::playing([calls(&ordered), text("lost"), text("A picture.")]);
    server.call(&world, "run --task task.toml --id w --crash-at model.after_reply:2").done().is(75);
    server.call(&world, "resume w").done().is(0);
    let asked = server.asked();
    let messages = asked[1].messages();
    let [(words, images)] = &seen(&messages)[..] else { panic!("{messages:?}") };
    assert_eq!(images, &[url(&png(640, 480))], "the very bytes of the file");
    assert!(words.ends_with("[image a1.1 640×480 png]"), "{words}");
    let observed = asked[1].observations();
    assert!(observed[0].to_string().contains("as ordered"), "{observed:?}");
    assert!(observed[0].to_string().contains("[image image/png, 3,029 bytes]"), "{observed:?}");
    assert!(asked[1].bytes == asked[2].bytes, "another request after the kill");
    let start = &base64(&png(640, 480))[40..400];
    for line in ["log w --json", "show w", "export w --format openai"] {
        assert!(!world.run(line).is(0).stdout.contains(start), "{line}");
    }
    world.verify("w");
}

#[test]
fn a_model_that_takes_none_is_told_of_what_a_tool_brought() {
    let world = world();
    configure(&world, "[models.\"openai/test\"]\nimages = false\n");
    let server = Server::playing([calls(&[("c1", "read_file", r#"{"path":"a.png"}"#)]), text("Nothing.")]);
    server.call(&world, "run Look -m openai/test --id w").done().is(0);
    let said = server.asked()[1].messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(said.ends_with("[image a1.1 640×480 png: this model takes no images]"), "{said}");
}

#[test]
fn a_message_of_a_resume_brings_its_images() {
    let world = world();
    let server = Server::playing([text("A red one."), text("A blue one.")]);
    server.call(&world, "run 'What is this?' -m openai/test --id w --image a.png").done().is(0);
    server.call(&world, "resume w --message 'And this?' --image c.png").done().is(65).says("c.png");
    server.call(&world, "resume w --image b.png").done().is(64);
    server.call(&world, "resume w --message 'And this?' --image b.png").done().is(0);
    let of_message: Vec<_> = server.asked()[1].messages().iter().flat_map(shown).collect();
    assert_eq!(of_message, [url(&png(640, 480)), url(&png(10, 20))]);
}
