//! Child runs on the real binary: driven with their root, listed under it, answered by name, gone with it.

use longrein::Runs;
use longrein::core::budget::{Limit, Limits};
use longrein::core::children::ChildSpec;
use longrein::core::ids::{ModelName, RunId};
use longrein::core::task::{ModelSpec, Task};
use serde_json::Value;

use crate::support::task::{booked, books, calls, says, task, tool};
use crate::support::{World, of_type};

/// Does this with the store of a world, as a program that embeds us would.
fn in_store<T>(world: &World, work: impl AsyncFnOnce(Runs) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", world.home().join("longrein.db").display());
    runtime.block_on(work(Runs::open(&url, "test").unwrap()))
}

fn part(parent: &Task, key: &str, calls: u64) -> ChildSpec {
    let name = ModelName::new(format!("script/{key}.toml"));
    let model = ModelSpec { name, ..parent.model.clone() };
    let task = Task { goal: format!("Do part {key}."), model, ..parent.clone() };
    let grant = Limits { model_calls: Limit::At(calls), tool_calls: Limit::At(calls), ..parent.limits.clone() };
    ChildSpec { key: key.to_owned(), task, grant }
}

/// A run `root` that has asked for two children, `a` that writes and `b` that pays if a person says yes; nobody drives it
/// yet. Their ids.
fn family(world: &World) -> Vec<String> {
    let tools = "[policy]\nallow = [\"look\", \"make\"]\n".to_owned()
        + &tool("look", "read", &books("looked"), "")
        + &tool("make", "workspace", &books("made"), "")
        + &tool("pay", "external", &books("paid"), "");
    task(world, &tools, &says("all is done"));
    world.write("a.toml", &(calls("look", "{}") + &calls("make", "{}") + &says("a is made")));
    world.write("b.toml", &(calls("pay", "{}") + &says("b is paid")));
    world.run("run --task task.toml --id first").is(0);
    // A run that has done nothing yet.
    world.run("fork first --at 1 --as root").is(0);
    let root = RunId::new("root");
    let ids = in_store(world, async |runs| {
        let parent = runs.fold(&root, |_| {}).await.unwrap();
        let specs = [part(&parent.task, "a", 5), part(&parent.task, "b", 5)];
        runs.ask_for_children(&root, &specs, 2).await.unwrap()
    });
    ids.into_iter().map(|id| id.to_string()).collect()
}

#[test]
fn children_are_driven_with_their_root_and_everything_about_them_can_be_seen() {
    let world = World::new();
    let ids = family(&world);
    let (a, b) = (&ids[0], &ids[1]);

    // What a child asks, the whole tree waits for, and the way out names the child.
    let parked = world.run("resume root --on-ask wait").is(3);
    assert_eq!(parked.last_line(), format!("longrein approve {b} a1"), "{}", parked.stderr);
    assert!(parked.stderr.contains(&format!("waits for approval of a1 (child {b})")), "{}", parked.stderr);
    assert_eq!((booked(&world, "made"), booked(&world, "paid")), (1, 0));
    let approvals = world.run("approvals").is(0);
    assert!(approvals.stdout.contains(b.as_str()), "{}", approvals.stdout);
    let refused = world.run(&format!("resume {b}")).is(65);
    assert!(refused.stderr.contains("go on with its root, run root"), "{}", refused.stderr);

    let approved = world.run(&format!("approve {b} a1")).is(0);
    assert!(approved.stderr.contains("longrein resume root"), "{}", approved.stderr);
    let done = world.run("resume root").is(0);
    assert_eq!(done.stdout.trim(), "all is done");
    assert_eq!((booked(&world, "looked"), booked(&world, "made"), booked(&world, "paid")), (1, 1, 1));

    let log = world.log("root");
    let started: Vec<_> = of_type(&log, "child.started").iter().map(|line| line["key"].clone()).collect();
    assert_eq!(started, ["a", "b"]);
    let ended = of_type(&log, "child.ended");
    let answers: Vec<_> = ended.iter().map(|line| (line["state"].clone(), line["answer"].clone())).collect();
    let all = [("done", "a is made"), ("done", "b is paid")].map(|(state, answer)| (state.into(), answer.into()));
    assert_eq!(answers, Vec::from(all) as Vec<(Value, Value)>);
    let shown = world.show("root");
    assert_eq!(shown["children"].as_array().map(Vec::len), Some(2), "{shown}");
    assert_eq!((&shown["model_calls"], &shown["turns"]), (&Value::from(6), &Value::from(1)), "{shown}");
    assert!(world.run("show root").is(0).stdout.contains("b is paid"));
    assert!(world.run("log root").is(0).stdout.contains(&format!("child {a} ended: done: a is made")));

    let listed = world.run("runs").is(0);
    assert!(!listed.stdout.contains(a.as_str()) && listed.stderr.contains("2 children"), "{listed:?}");
    assert!(world.run("runs --all").is(0).stdout.contains("child of root"));
    for run in ["root", a, b] {
        world.verify(run);
    }

    // Its end was taken: it is closed, and it goes with its root only.
    let sent = world.run(&format!("send {a} 'go on'")).is(65);
    assert!(sent.stderr.contains("run root has its result"), "{}", sent.stderr);
    assert!(world.run(&format!("rm {a}")).is(65).stderr.contains("goes with its parent"));
    world.run("rm root").is(0);
    for run in ["root", a, b] {
        world.run(&format!("show {run}")).is(66);
    }
}

#[test]
fn a_process_that_dies_beside_its_children_is_followed_by_one_that_does_nothing_twice() {
    for point in [
        "append.after.run.started:1",
        "append.before.child.ended:1",
        "append.after.child.ended:1",
        "tool.running:1",
        "append.after.run.ended:1",
    ] {
        let world = World::new();
        let ids = family(&world);
        world.run(&format!("resume root --on-ask wait --crash-at {point}")).is(75);
        world.run("resume root --on-ask wait").is(3);
        world.run(&format!("approve {} a1", ids[1])).is(0);
        world.run("resume root").is(0);
        assert_eq!((booked(&world, "made"), booked(&world, "paid")), (1, 1), "{point}");
        let log = world.log("root");
        assert_eq!(of_type(&log, "child.ended").len(), 2, "{point}");
        let calls = |run: &str| of_type(&world.log(run), "model.requested").len() as u64;
        let in_all = calls("root") + ids.iter().map(|id| calls(id)).sum::<u64>();
        assert_eq!(world.show("root")["model_calls"], in_all, "{point}");
        for run in ids.iter().map(String::as_str).chain(["root"]) {
            world.verify(run);
        }
    }
}

#[test]
fn cancelling_a_root_ends_the_children_that_nobody_drives() {
    let world = World::new();
    let ids = family(&world);
    world.run("resume root --on-ask wait").is(3);
    world.run("cancel root").is(0);
    for run in ids.iter().map(String::as_str).chain(["root"]) {
        let state = world.show(run)["state"].clone();
        assert!(state == "cancelled" || (run == ids[0] && state == "done"), "{run} is {state}");
        world.verify(run);
    }
    assert_eq!(booked(&world, "paid"), 0);
}

#[test]
fn a_fork_leaves_the_children_to_the_run_it_comes_from() {
    let world = World::new();
    let ids = family(&world);
    world.run("resume root --on-ask wait").is(3);
    world.run("fork root --as other").is(0);
    assert_eq!(world.run("resume other").is(0).stdout.trim(), "all is done");
    assert_eq!(booked(&world, "paid"), 0, "nothing of them is owed there");
    let shown = world.show("other");
    assert!(shown["children"].to_string().contains("another run's"), "{shown}");
    world.run(&format!("approve {} a1", ids[1])).is(0);
    world.run("resume root").is(0);
    assert_eq!(booked(&world, "paid"), 1);
}
