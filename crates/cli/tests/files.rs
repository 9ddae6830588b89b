//! The file tools through the real binary: many edits of one file, and a death at every point of a run that edits.

use std::fs;

use serde_json::{Value, json};

use crate::support::{World, of_type};

const TASK: &str = r#"
goal = "Change the file."
model = "script/script.toml"
builtins = ["read_file", "write_file", "edit_file", "list_files", "search_files"]
workspace = "ws"

[policy]
allow = ["write_file", "edit_file"]
"#;

/// A task over the workspace `ws` whose model says this: for each reply its calls, then a last word.
fn task(world: &World, replies: &[Vec<(&str, Value)>]) {
    let mut script = String::new();
    for calls in replies {
        script.push_str("[[reply]]\ncalls = [\n");
        for (name, args) in calls {
            script.push_str(&format!("  {{ name = \"{name}\", args = {} }},\n", inline(args)));
        }
        script.push_str("]\n");
    }
    script.push_str("[[reply]]\ntext = \"It is done.\"\n");
    world.write("script.toml", &script);
    world.write("task.toml", TASK);
}

/// A JSON value as TOML writes it.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<_> = members.iter().map(|(name, value)| format!("{name} = {}", inline(value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.to_string(),
    }
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({ "path": path, "old": old, "new": new }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

/// Nothing but these is in the workspace.
fn only(world: &World, names: &[&str]) {
    let mut found: Vec<_> = fs::read_dir(world.path("ws"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names);
}

#[test]
fn a_hundred_edits_of_one_file_all_apply_in_call_order() {
    let world = World::new();
    world.write("ws/f", "x0 and more\r\n");
    let mut edits: Vec<_> = (0..100).map(|n| edit("f", &format!("x{n} "), &format!("x{} ", n + 1))).collect();
    let rest = edits.split_off(63);
    let first = [vec![read("f")], edits].concat();
    task(&world, &[first, rest]);
    world.run("run --task task.toml --id many").is(0);
    assert_eq!(world.read("ws/f"), "x100 and more\r\n");
    let log = world.log("many");
    let done = of_type(&log, "action.finished").iter().filter(|event| event["outcome"] == "done").count();
    assert_eq!(done, 101);
    only(&world, &["f"]);
}

#[test]
fn an_edit_that_was_made_when_the_process_died_is_not_made_again() {
    let world = World::new();
    world.write("ws/f", "one\n");
    task(&world, &[vec![read("f")], vec![edit("f", "one", "one and one"), edit("f", "and", "&")]]);
    // the first result is the read's
    world.run("run --task task.toml --id lost --crash-at append.before.action.finished:2").is(75);
    assert_eq!(world.read("ws/f"), "one and one\n", "it was made");
    world.run("resume lost").is(0);
    assert_eq!(world.read("ws/f"), "one & one\n", "once, and the one after it");
    let log = world.log("lost");
    let outcomes: Vec<_> = of_type(&log, "action.finished").iter().map(|event| event["outcome"].clone()).collect();
    assert_eq!(outcomes, ["done", "done", "done"]);
    world.verify("lost");
}

#[test]
fn a_change_by_another_hand_while_the_run_was_dead_is_told() {
    let world = World::new();
    world.write("ws/f", "one\n");
    task(&world, &[vec![read("f")], vec![edit("f", "one", "two")]]);
    world.run("run --task task.toml --id other --crash-at append.before.action.finished:2").is(75);
    fs::write(world.path("ws/f"), "three\n").unwrap();
    world.run("resume other").is(0);
    assert_eq!(world.read("ws/f"), "three\n");
    let log = world.log("other");
    let finished = of_type(&log, "action.finished");
    let last = finished.last().unwrap();
    assert_eq!((&last["outcome"], &last["error"]["class"]), (&json!("error"), &json!("unknown_outcome")));
}

#[test]
fn a_restart_does_not_forget_what_was_read() {
    let world = World::new();
    world.write("ws/f", "one\n");
    world.write("ws/g", "one\n");
    task(&world, &[vec![read("f")], vec![edit("f", "one", "two"), edit("g", "one", "two")]]);
    world.run("run --task task.toml --id again --crash-at append.before.model.requested:2").is(75);
    world.run("resume again").is(0);
    assert_eq!((world.read("ws/f").as_str(), world.read("ws/g").as_str()), ("two\n", "one\n"));
    let log = world.log("again");
    let refused = of_type(&log, "action.refused");
    assert_eq!(refused.len(), 1, "g was never read");
    assert_eq!(refused[0]["error"]["class"], "not_read");
}

#[test]
fn a_death_at_every_point_leaves_the_same_files() {
    let world = World::new();
    let replies = [
        vec![read("f"), write("new/a", "a\n")],
        vec![edit("f", "one", "one, two"), edit("f", "two", "two, three"), edit("new/a", "a", "aa")],
    ];
    let points = world.run("run --crash-at list").is(0).stdout;
    let mut fired = 0;
    for (number, point) in points.lines().enumerate() {
        let _old = fs::remove_dir_all(world.path("ws"));
        world.write("ws/f", "one\n");
        task(&world, &replies);
        let id = format!("p{number}");
        for occurrence in 1..=2 {
            let first = world.run(&format!("run --task task.toml --id {id} --crash-at {point}:{occurrence}"));
            fired += usize::from(first.status() == 75);
        }
        let run = world.run(&format!("run --task task.toml --id {id}"));
        assert_eq!(run.status(), 0, "{point}: {}", run.stderr);
        assert_eq!(world.read("ws/f"), "one, two, three\n", "{point}");
        assert_eq!(world.read("ws/new/a"), "aa\n", "{point}");
        only(&world, &["f", "new"]);
        assert_eq!(fs::read_dir(world.path("ws/new")).unwrap().count(), 1, "{point}: something is left beside it");
    }
    assert!(fired > 20, "only {fired} deaths");
}
