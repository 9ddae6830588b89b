//! A reply while it comes in: on the terminal, in JSON lines, and nowhere else; and what a provider said beside it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::{KEY, Play, Server, delta, raw};
use crate::support::task::wire_task;
use crate::support::terminal::statuses;
use crate::support::{World, of_type};

fn says(pieces: &[&str]) -> Play {
    let data: Vec<_> = pieces.iter().map(|text| delta(&json!({ "content": text }))).collect();
    raw(&data.iter().map(String::as_str).collect::<Vec<_>>())
}

fn world() -> World {
    let world = World::new();
    wire_task(&world, "");
    world
}

/// The lines that tell of pieces, and what they stand between.
fn of_model(lines: &[Value]) -> Vec<String> {
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .iter()
        .filter(|line| ["progress.", "model."].iter().any(|kind| word(line, "type").starts_with(kind)))
        .map(|line| [word(line, "type"), word(line, "attempt"), word(line, "text")].join(" "))
        .collect()
}

/// The pieces may be put together, as far as they came together.
fn joined(lines: &[String], attempt: &str) -> String {
    let opening = format!("progress.text {attempt} ");
    lines.iter().filter_map(|line| line.strip_prefix(&opening)).collect()
}

#[test]
fn pieces_are_lines_without_a_number_and_a_retry_voids_them() {
    let world = world();
    let thought = delta(&json!({ "reasoning_content": "hm" }));
    let last =
        [thought.as_str(), &delta(&json!({ "content": "All \u{1b}[2Jof" })), &delta(&json!({ "content": " it." }))];
    let server = Server::playing([says(&["Half ", "of it"]).cut(2), raw(&last).finish("stop")]);
    let done = server.call(&world, "run --task task.toml --id w --json").done().is(0);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = of_model(&lines);
    let place = |start: &str| {
        told.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in {told:#?}"))
    };
    let order = [
        "model.requested t1.m1",
        "progress.text t1.m1",
        "model.failed t1.m1",
        "progress.restarted t1.m1",
        "model.requested t1.m2",
        "progress.thought t1.m2 hm",
        "progress.text t1.m2",
        "model.replied t1.m2",
    ];
    let places = order.map(place);
    assert!(places.is_sorted(), "{told:#?}");
    assert_eq!(joined(&told, "t1.m1"), "Half of it");
    assert_eq!(joined(&told, "t1.m2"), "All \u{1b}[2Jof it.");
    let mut piece = lines.iter().find(|line| line["type"] == "progress.restarted").unwrap().clone();
    assert!(piece.as_object_mut().unwrap().remove("at").unwrap().is_string());
    let expected =
        json!({ "v": 1, "seq": null, "run": "w", "type": "progress.restarted", "turn": "t1", "attempt": "t1.m1" });
    assert_eq!(piece, expected);
    assert!(!done.stdout.contains('\u{1b}'), "JSON holds no control character");
    assert!(world.log("w").iter().all(|line| !line["seq"].is_null()), "nothing of it is journaled");
}

#[test]
fn a_known_secret_in_two_pieces_is_marked() {
    let world = world();
    let (one, two) = KEY.split_at(7);
    let server = Server::playing([says(&["The key is ", one, two, " and s", "k-lo."]).finish("stop")]);
    let done = server.call(&world, "run --task task.toml --id w --json").done().is(0);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = joined(&of_model(&lines), "t1.m1");
    assert_eq!(json!(text), of_type(&lines, "model.replied")[0]["text"]);
    assert!(text.starts_with("The key is [redacted:") && text.ends_with(" and sk-lo."), "{text}");
    assert!(!done.stdout.contains(two), "{}", done.stdout);
}

#[test]
fn the_terminal_shows_the_text_as_it_comes_and_nothing_of_it_stays() {
    let world = world();
    let half = "I am about to say \u{1b}[2Jsomething that is longer than a line of this terminal, of forty.";
    let stalls = says(&["I think, ", half]).stall(2, Duration::from_millis(1_500));
    let server = Server::playing([stalls, says(&["The whole text."]).finish("stop")]);
    let mut terminal = server.call(&world, "run --task task.toml --id w").on_terminal(60);
    terminal.wait_for("terminal, of forty.");
    let (status, written) = terminal.end();
    assert!(status.success(), "{written}");
    let statuses = statuses(&written);
    let shown = statuses.iter().find(|status| status.contains("of forty.")).unwrap();
    assert!(shown.starts_with("t1 the model, ") && shown.contains("…"), "{shown}");
    assert!(statuses.iter().all(|status| status.chars().count() < 60 && !status.contains('\u{1b}')), "{statuses:#?}");
    let screen = crate::support::terminal::screen(&written, 60);
    assert!(!screen.contains("of forty") && screen.contains("The whole text."), "{screen}");
    assert!(terminal.is_as_before());
}

#[test]
fn nothing_is_shown_on_a_pipe() {
    let world = world();
    let server = Server::playing([says(&["Half of it"]).cut(1), says(&["All ", "of it."]).finish("stop")]);
    let done = server.call(&world, "run --task task.toml --id w").done().is(0);
    assert!(
        !done.stderr.contains("Half of it") && !done.stdout.contains("Half of it"),
        "{} {}",
        done.stderr,
        done.stdout
    );
}

#[test]
fn what_was_said_beside_a_reply_is_shown_to_who_asks() {
    let world = world();
    let whispers =
        raw(&[&delta(&json!({ "reasoning_content": "a \u{1b}whisper" })), &delta(&json!({ "content": "Yes." }))]);
    let server = Server::playing([whispers.finish("stop")]);
    server.call(&world, "run --task task.toml --id w").done().is(0);
    for line in
        ["log w", "log w --json", "export w", "show w", "show w --json", "context w", "export w --format openai"]
    {
        let done = world.typed(&format!("longrein {line}")).done().is(0);
        assert!(!done.stdout.contains("whisper"), "{line}: {}", done.stdout);
    }
    for line in ["log w --json --raw", "export w --raw"] {
        let done = world.typed(&format!("longrein {line}")).done().is(0);
        let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let raw = &of_type(&lines, "model.replied")[0]["raw"];
        assert!(raw["blocks"].to_string().contains("a \\u001bwhisper"), "{line}: {raw}");
        assert_eq!(lines.iter().filter(|line| !line["raw"].is_null()).count(), 1, "{line}");
    }
    let done = world.typed("longrein log w --raw").done().is(0);
    assert!(done.stdout.contains("whisper") && !done.stdout.contains('\u{1b}'), "{}", done.stdout);
    world.typed("longrein export w --raw --format atif").done().is(64);
}
