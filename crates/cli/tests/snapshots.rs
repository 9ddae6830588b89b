//! What people and programs see, held against files in `snapshots/`. `LONGREIN_BLESS=1` writes them anew.

use std::path::Path;

use serde_json::Value;

use crate::support::World;

/// Holds `found` against a file; what differs between two runs of the same must have been made equal before.
#[track_caller]
pub(crate) fn hold(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let found = format!("{}\n", found.trim_end());
    if std::env::var_os("LONGREIN_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs; if that is meant, run the tests with LONGREIN_BLESS=1");
}

/// Text with times, spans of time and places made equal.
pub(crate) fn settled(world: &World, text: &str) -> String {
    let text = text.replace(&*world.work().canonicalize().unwrap().to_string_lossy(), "WORK");
    let text = text.replace(&*world.home().to_string_lossy(), "HOME");
    // What is around commands differs from machine to machine.
    let text = match text.split_once("; sandbox: ") {
        Some((before, after)) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_alphanumeric() || c == ' '))
        }
        None => text,
    };
    let mut settled = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        settled.push_str(before);
        let length = from.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap_or(from.len());
        let (number, after) = from.split_at(length);
        let is_span = number.contains('.') && after.starts_with(" s") && !after[2..].starts_with(char::is_alphabetic);
        let is_clock = number.len() == 8 && number.matches(':').count() == 2;
        settled.push_str(match (is_span, is_clock) {
            (true, _) => "0.0",
            (false, true) => "00:00:00",
            (false, false) => number,
        });
        rest = after;
    }
    settled.push_str(rest);
    settled
}

/// JSON with what differs between two runs of the same made equal, keys in order.
fn equal(value: &mut Value) {
    const VARIES: [&str; 8] = ["at", "took_ms", "pid", "host", "binary", "input", "expires", "bytes"];
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let is_number = value.is_number() && ["at", "input"].contains(&key.as_str());
                if VARIES.contains(&key.as_str()) && !is_number && !value.is_null() && !value.is_object() {
                    *value = Value::from("…");
                }
                if key == "reserved" {
                    // Estimated from the length of the request, which holds a path.
                    value["input"] = Value::from("…");
                }
                equal(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(equal),
        Value::String(text) if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            *text = "DIGEST".to_owned();
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

#[test]
fn json_lines_of_a_run_with_a_question() {
    let world = World::new();
    world.write("s.toml", crate::questions::SCRIPT);
    world.write("task.toml", crate::questions::TASK);
    let parked = world.run("run --task task.toml --id r --on-ask wait --json").is(3);
    world.run("send r north").is(0);
    let done = world.run("resume r --on-ask wait --json").is(0);
    let mut lines = String::new();
    for mut line in parked.json().into_iter().chain(done.json()) {
        equal(&mut line);
        lines.push_str(&format!("{line}\n"));
    }
    hold("question.jsonl", &settled(&world, &lines));
}

#[test]
fn json_of_tools() {
    let world = World::new();
    world.write("s.toml", crate::questions::SCRIPT);
    world.write("task.toml", crate::terminal::TASK);
    let mut rows = world.run("tools --task task.toml --json").is(0).last_json();
    equal(&mut rows);
    hold("tools.json", &settled(&world, &serde_json::to_string_pretty(&rows).unwrap()));
    hold("tools.txt", &settled(&world, &world.run("tools --task task.toml").is(0).stdout));
}
