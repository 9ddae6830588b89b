//! The example `fix-the-bug`: a repository is read, searched, edited and tested, and the check proves it.

use serde_json::Value;

use crate::support::{World, of_type, times};

fn world() -> World {
    let world = World::new();
    world.example("fix-the-bug");
    world
}

/// The source as it must be in the end, whatever happened on the way.
fn is_mended(world: &World) -> bool {
    let source = world.read("fix-the-bug/repo/src/duration.c");
    source.contains("\t\ttotal += amount * seconds;\n") && !source.contains("total = amount * seconds")
}

#[test]
fn the_bug_is_fixed_and_the_check_proves_it() {
    let world = world();
    let done = world.run("run --task fix-the-bug/task.toml --id f --json").is(0).last_json();
    assert_eq!((&done["state"], &done["verified"]), (&"done".into(), &Value::Bool(true)));
    assert!(is_mended(&world));
    let log = world.log("f");
    let started: Vec<_> = of_type(&log, "action.started").iter().map(|event| event["rule"].clone()).collect();
    assert!(
        started.contains(&"edit_file(src/**)".into()) && started.contains(&"shell(sh test.sh)".into()),
        "{started:?}"
    );
    assert_eq!(of_type(&log, "check.finished").last().unwrap()["verdict"], "passed");
    world.verify("f");
}

#[test]
fn a_death_anywhere_and_the_bug_is_still_fixed_and_proven() {
    let points = world().run("run --crash-at list").is(0).stdout;
    // The points around actions and checks; nightly all of them.
    let is_near = |point: &&str| ["action.", "tool.", "check"].iter().any(|part| point.contains(part));
    let every = times(0, 1) == 1;
    let mut fired = 0;
    for point in points.lines().filter(|point| every || is_near(point)) {
        // The first call of a tool is the shell, the fourth the edit.
        for which in
            if point.contains("action.started") || point.starts_with("tool.") { &["", ":4"][..] } else { &[""] }
        {
            let world = world();
            let line = "run --task fix-the-bug/task.toml --id f";
            let first = world.run(&format!("{line} --crash-at {point}{which}"));
            fired += u64::from(first.status() == 75);
            let done = world.run(&format!("{line} --json")).is(0).last_json();
            assert_eq!((&done["state"], &done["verified"]), (&"done".into(), &Value::Bool(true)), "{point}{which}");
            assert!(is_mended(&world), "{point}{which}");
            world.verify("f");
        }
    }
    assert!(fired > 10, "only {fired} points fired");
}

#[test]
fn what_no_rule_allows_is_not_done() {
    let world = world();
    let script = world
        .read("fix-the-bug/fix.script.toml")
        .replace("path = \"src/duration.c\", old", "path = \"tests/duration_test.c\", old");
    world.write("fix-the-bug/fix.script.toml", &script);
    let failed = world.run("run --task fix-the-bug/task.toml --id f --json");
    assert_ne!(failed.status(), 0);
    assert!(!is_mended(&world));
    let log = world.log("f");
    assert!(of_type(&log, "action.finished").iter().all(|event| event["action"] != "a4"), "the edit did not run");
}
