//! The first example, as somebody would try it: the proven answer, its stored form, its budget, and a death at every
//! point.

use std::fs;

use crate::support::{World, of_type};

const ANSWER: &str = "checkout: error rate 1.20 % is above the threshold 1.00 %. Evidence: e1, e2.";

fn set_metric(world: &World, from: &str, to: &str) {
    let text = world.read("checkout/metrics.json");
    assert!(text.contains(from));
    fs::write(world.path("checkout/metrics.json"), text.replace(from, to)).unwrap();
}

#[test]
fn three_calls_prove_an_answer_and_the_stored_one_costs_none() {
    let world = World::new();
    world.example("checkout");
    let first = world.run("run --task checkout/task.toml --id c1").is(0);
    assert_eq!(first.answer(), ANSWER);
    let shown = world.show("c1");
    assert_eq!((&shown["state"], &shown["verified"]), (&"done".into(), &true.into()));
    assert_eq!((&shown["turns"], &shown["model_calls"], &shown["tool_calls"]), (&3.into(), &3.into(), &2.into()));
    let length = world.log("c1").len();

    for again in ["run --task checkout/task.toml --id c1", "run --id c1", "resume c1", "exec --id c1"] {
        assert_eq!(world.run(again).is(0).answer(), ANSWER, "{again}");
    }
    assert_eq!(world.log("c1").len(), length, "the stored answer was printed without a new event");
    world.verify("c1");
}

#[test]
fn another_number_is_another_answer_under_another_id() {
    let world = World::new();
    world.example("checkout");
    set_metric(&world, "1200", "1300");
    let answer = world.run("run --task checkout/task.toml --id more").is(0);
    assert_eq!(answer.answer(), "checkout: error rate 1.30 % is above the threshold 1.00 %. Evidence: e1, e2.");

    // The script claims "above" all the same; the evidence does not.
    set_metric(&world, "1300", "900");
    let answer = world.run("run --task checkout/task.toml --id less").is(0);
    assert_eq!(answer.answer(), "checkout: error rate 0.90 % is not above the threshold 1.00 %. Evidence: e1, e2.");
    assert_eq!(of_type(&world.log("less"), "answer.refused").len(), 1);

    // Inputs were captured: the first run still says what it said.
    assert!(world.run("run --id more").is(0).answer().contains("1.30 %"));
}

#[test]
fn a_death_at_every_point_changes_nothing_but_the_counts() {
    let world = World::new();
    world.example("checkout");
    let points = world.run("run --crash-at list").is(0).stdout;
    let mut fired = 0;
    for (number, point) in points.lines().enumerate() {
        let id = format!("p{number}");
        let run = format!("run --task checkout/task.toml --id {id}");
        let first = world.run(&format!("{run} --crash-at {point}"));
        if first.status() == 0 {
            assert_eq!(first.answer(), ANSWER, "{point} never fired");
            continue;
        }
        let first = first.is(75);
        assert!(first.stderr.contains(point), "{}", first.stderr);
        fired += 1;
        // What dies before its first batch was never begun; what dies after its last has nothing to go on with.
        let left = world.run(&format!("show {id}"));
        let unborn = left.status() == 66;
        let way_on =
            if unborn { "nothing was journaled: start it again".to_owned() } else { format!("longrein resume {id}") };
        assert_eq!(first.last_line(), way_on, "{point}");
        let over = left.stdout.contains("state      done");
        let done = world.run(&format!("{run} --json")).is(0);
        let last = done.last_json();
        assert_eq!(last["rendered"], ANSWER, "{point}");
        assert_eq!(last["verified"], true, "{point}");

        let log = world.log(&id);
        let requested = of_type(&log, "model.requested").len();
        assert_eq!(last["model_calls"], requested, "{point}: every attempt is counted");
        let lost = of_type(&log, "model.failed").len();
        assert_eq!(requested, 3 + lost, "{point}: answered and lost");
        assert_eq!(last["recoveries"], u64::from(!unborn && !over), "{point}");
        let must_lose = ["append.after.model.requested", "model.before_send", "model.after_reply"];
        if must_lose.contains(&point) {
            assert_eq!(lost, 1, "{point}");
        }
        world.verify(&id);
    }
    assert!(fired > 20, "only {fired} points fired");
}

#[test]
fn one_turn_reads_and_is_exhausted_until_it_gets_more() {
    let world = World::new();
    world.example("checkout");
    let line = "run --task checkout/task.toml --id t1 --max-turns 1";
    let first = world.run(line).is(2);
    assert!(first.last_line().starts_with("longrein resume t1 --add-turns"), "{}", first.stderr);
    let log = world.log("t1");
    assert_eq!(of_type(&log, "action.finished").len(), 1, "the first read was made");
    let length = log.len();

    let again = world.run(&format!("{line} --json")).is(2).last_json();
    assert_eq!((&again["state"], &again["answer"]), (&"exhausted".into(), &serde_json::Value::Null));
    world.run("run --id t1").is(2);
    assert_eq!(world.log("t1").len(), length);

    let raised = world.run("resume t1 --add-turns 7").is(0);
    assert_eq!(raised.answer(), ANSWER);
    assert_eq!(world.show("t1")["model_calls"], 3);
    world.verify("t1");
}

#[test]
fn what_the_last_line_says_completes_it() {
    let world = World::new();
    world.example("checkout");
    let first = world.run("run --task checkout/task.toml --id t2 --max-turns 1").is(2);
    let done = world.typed(first.last_line()).done().is(0);
    assert_eq!(done.answer(), ANSWER);
}

#[test]
fn a_run_does_not_become_another_one() {
    let world = World::new();
    world.example("checkout");
    world.run("run --task checkout/task.toml --id same").is(0);
    let length = world.log("same").len();
    let text = world.read("checkout/task.toml");

    world.write("checkout/other.toml", &text.replace("Never guess a number.", "Guess."));
    world.run("run --task checkout/other.toml --id same").is(65).says("constraints");
    world.write("checkout/other.toml", &text.replace("strictly above", "near"));
    world.run("run --task checkout/other.toml --id same").is(65).says("goal");
    world.run("run --task checkout/task.toml --id same --max-turns 3").is(65).says("budget");
    world.write("checkout/another.script.toml", &world.read("checkout/checkout.script.toml"));
    let model = format!("script/{}", world.path("checkout/another.script.toml").display());
    world.run(&format!("run --task checkout/task.toml --id same --model {model}")).is(65).says("model");
    let model = "script/checkout/checkout.script.toml";
    world.run(&format!("run --id same 'Something else' --model {model}")).is(65).says("goal");

    assert_eq!(world.log("same").len(), length);
    assert_eq!(world.run("run --task checkout/task.toml --id same").is(0).answer(), ANSWER);
}

#[test]
fn it_resumes_from_any_directory() {
    let world = World::new();
    world.example("checkout");
    world.run("run --task checkout/task.toml --id far --crash-at model.after_reply:2").is(75);
    let done = world.typed("longrein resume far").at("/").done().is(0);
    assert_eq!(done.answer(), ANSWER);
    world.run("run --task checkout/task.toml --id last --crash-at tool.after_exit").is(75);
    let done = world.typed("longrein resume --last").at("/").done().is(0);
    assert_eq!(done.answer(), ANSWER);
}
