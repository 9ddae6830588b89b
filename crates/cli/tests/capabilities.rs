//! The example `capabilities`: what may be called grows step by step, is in the journal, and outlives a kill.

use serde_json::Value;

use crate::support::{World, of_type};

fn world() -> World {
    let world = World::new();
    world.example("capabilities");
    world
}

/// What each request that changed it said may be called.
fn steps(log: &[Value]) -> Vec<String> {
    let offered = |event: &&Value| {
        let offered = event["manifest"]["offered"].as_array()?;
        Some(offered.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
    };
    of_type(log, "model.requested").iter().filter_map(offered).collect()
}

const GROWS: [&str; 3] = ["clone", "clone patch", "clone patch run_tests"];

#[test]
fn what_may_be_called_grows_with_what_holds() {
    let world = world();
    let done = world.run("run --task capabilities/task.toml --id c --json").is(0).last_json();
    assert_eq!((&done["state"], &done["verified"]), (&"done".into(), &Value::Bool(true)));
    let log = world.log("c");
    assert_eq!(steps(&log), GROWS);
    let requested = of_type(&log, "model.requested");
    let early = &requested[0]["manifest"]["withheld"][1];
    assert_eq!(
        (&early["tool"], &early["why"], &early["missing"][0], &early["provided_by"][0]),
        (&"run_tests".into(), &"fact".into(), &"patched".into(), &"patch".into())
    );
    let refused = of_type(&log, "action.refused");
    assert_eq!((&refused[0]["action"], &refused[0]["error"]["class"]), (&"a1".into(), &"missing_fact".into()));
    assert!(refused[0]["error"]["hint"].as_str().unwrap().contains("Call patch first"));
    let printed = world.run("log c").is(0).stdout;
    assert!(printed.contains("may call clone, patch; not run_tests (needs patched: patch)"), "{printed}");
    world.verify("c");
}

#[test]
fn a_kill_on_the_way_takes_nothing_of_it_away() {
    // Not while clone runs: what became of that is told, and the script has no words for it.
    for point in ["append.after.fact.set:1", "append.after.model.replied:3", "append.before.action.started:1"] {
        let world = world();
        let line = "run --task capabilities/task.toml --id c";
        world.run(&format!("{line} --crash-at {point}")).is(75);
        let shown = world.show("c");
        assert_eq!(shown["manifest"]["offered"][0], "clone", "{point}");
        world.run(&format!("{line} --json")).is(0);
        assert_eq!(steps(&world.log("c")), GROWS, "{point}");
        world.verify("c");
    }
}

/// The binary itself, on a model that calls the same tool for ever: it ends by name, and a message goes on with it.
#[test]
fn law_11_a_model_in_a_circle_is_stopped_and_can_be_helped_out() {
    let world = World::new();
    world.write("readings/now.txt", "21\n");
    world.write(
        "t.toml",
        "goal = 'Look.'\nmodel = 'script/s.toml'\nworkspace = '.'\n[[tools]]\nname = 'look'\ndescription = 'Looks.'\n\
         command = ['cat', 'readings/now.txt']\neffect = 'read'\n",
    );
    let look = "[[reply]]\ncalls = [{ name = 'look', args = {} }]\n";
    world.write("s.toml", &format!("{}[[reply]]\ntext = 'It is 21.'\n", look.repeat(8)));
    let failed = world.run("run --task t.toml --id l --json").is(4).last_json();
    assert!(failed["reason"].as_str().unwrap().contains("the same call of look"), "{failed}");
    let levels: Vec<_> = of_type(&world.log("l"), "loop.noticed").iter().map(|event| event["level"].clone()).collect();
    assert_eq!(levels, ["told", "taken", "ended"]);
    let done = world.run("resume l --message 'say what it is' --json").is(0).last_json();
    assert_eq!(done["answer"], "It is 21.");
    world.verify("l");
}
