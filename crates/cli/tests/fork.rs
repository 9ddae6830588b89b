//! A new run from a point of another's journal (`semantics.md` I1).

use crate::support::World;
use crate::support::task::{booked, books, calls, says, task, tool};

#[test]
fn a_fork_goes_on_where_the_other_was_and_leaves_it_alone() {
    let world = World::new();
    let look = tool("look", "read", "echo looked >> ledger; echo 1", "");
    task(&world, &look, &(calls("look", "{}") + &calls("look", "{}") + &says("first")));
    world.run("run --task task.toml --id r").is(0);
    let before = world.log("r");
    let turn = before.iter().position(|event| event["type"] == "action.finished").unwrap();
    // Anywhere within the second turn is rounded down to the end of the first.
    let second = before.iter().filter(|event| event["type"] == "model.replied").nth(1).unwrap();
    let forked = world.run(&format!("fork r --at {} --as f", second["seq"])).is(0);
    assert_eq!(forked.stdout.trim(), "f");
    forked.says("longrein resume f");
    assert_eq!(world.log("r"), before, "the other is not touched");
    let log = world.log("f");
    assert_eq!(log[1..=turn], before[1..=turn].iter().map(|event| of(event, "f")).collect::<Vec<_>>()[..]);
    assert_eq!((&log.last().unwrap()["type"], &log.last().unwrap()["from"]), (&"run.forked".into(), &"r".into()));
    assert_eq!(world.run("runs --json").is(0).last_json()[0]["state"], "suspended");
    let done = world.run("resume f --json").is(0).last_json();
    assert_eq!((&done["answer"], &done["turns"]), (&"first".into(), &3.into()));
    assert_eq!(booked(&world, "looked"), 3, "the second look was made again");
    world.verify("f");
    world.verify("r");
}

/// An event as the fork has it.
fn of(event: &serde_json::Value, run: &str) -> serde_json::Value {
    let mut event = event.clone();
    event["run"] = run.into();
    for key in ["fence"] {
        if event.get(key).is_some() {
            event[key] = 0.into();
        }
    }
    event
}

#[test]
fn a_business_key_is_the_family_s() {
    let world = World::new();
    let pay = tool("pay", "external", &books("pay"), "key = [\"to\"]\n")
        + "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.to]\ntype = \"string\"\n";
    let replies = says("nothing yet") + &calls("pay", "{ to = \"anna\" }") + &says("paid");
    task(&world, &(pay + "[policy]\nallow = [\"pay\"]\n"), &replies);
    world.run("run --task task.toml --id r").is(0);
    world.run("fork r --as f").is(0);
    for id in ["r", "f"] {
        world.run(&format!("resume {id} --message go")).is(0);
        world.verify(id);
    }
    assert_eq!(booked(&world, "pay"), 1, "paid once in the family");
    assert_eq!(world.log("f").iter().filter(|event| event["replayed"] == true).count(), 1);
    world.run("fork f --as g").is(0);
    world.run("resume g --message again").is(4);
}

/// Law 5: going back gives nothing back.
#[test]
fn law_5_a_fork_has_what_the_other_has_left() {
    let world = World::new();
    let look = tool("look", "read", "echo 1", "");
    let budget = "[budget]\nturns = 4\n";
    task(&world, &format!("{budget}{look}"), &(calls("look", "{}").repeat(2) + &says("done")));
    world.run("run --task task.toml --id r").is(0);
    world.run("fork r --at 8 --as f").is(0);
    let limits = world.log("f").last().unwrap()["limits"]["turns"].clone();
    let spent = world.log("f").iter().filter(|event| event["type"] == "model.replied").count() as u64;
    assert_eq!(limits["at"].as_u64().unwrap_or_default(), spent + 1, "one turn was left: {limits}");
}

#[test]
fn what_a_fork_cannot_do() {
    let world = World::new();
    task(&world, "", &says("hello"));
    world.run("run --task task.toml --id r").is(0);
    world.run("fork nobody").is(66);
    world.run("fork r --at 0").is(66).says("no point to go on from");
    let last = world.log("r").last().unwrap()["seq"].as_u64().unwrap();
    world.run("fork r --at 9999").is(65).says(&format!("the last one is {last}"));
    world.run(&format!("fork r --at {}", last + 1)).is(65);
    world.run("fork r --as r").is(65).says("there is a run r already");
    world.run("fork r --as ../x").is(64);
    world.run("fork r --at x").is(64);
    world.verify("r");
}
