//! Every program there is, killed at every point there is: it completes with a scripted model, every law holds, and the way it
//! takes is the one it takes undisturbed: nothing is entered twice, and nothing is left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longrein_core::check::Finding;
use longrein_core::event::End;
use longrein_core::ids::RunId;
use longrein_core::program::Program;
use longrein_core::task::Task;
use longrein_driver::{Begin, Standing, Stop, WhenAsked};
use longrein_sim::crash::{Crashes, WithCrashes};
use longrein_sim::laws;
use longrein_sim::people::{Answer, Say};
use longrein_sim::process::Breach;
use longrein_sim::story::in_virtual_time;
use longrein_sim::town::{Drove, Town, check, program, task};

/// A program, what the model says, and what is around it.
struct Play {
    /// A shipped one, a file under `examples/programs`, or a text.
    program: &'static str,
    task: fn(&mut Task),
    stage: fn(&Town),
    way: &'static str,
}

/// Every kind of phase that runs today, with a budget, an approval and a question.
const EVERY_KIND: &str = r#"
start = "look"
answer = "work"
[[phase]]
name = "look"
kind = "call"
tool = "look"
args = { n = 1 }
next = [{ when = "last.ok && has(facts.seen)", to = "classify" }, { to = "failed", reason = "nothing to see" }]
[[phase]]
name = "classify"
kind = "reply"
schema = { type = "object", required = ["kind"] }
memory = { list = "kinds", text = "it was {{ last.output.kind }}" }
next = [{ to = "route" }]
[[phase]]
name = "route"
kind = "branch"
next = [{ when = "outputs.classify.kind == 'a'", to = "pay" }, { to = "failed", reason = "another kind" }]
[[phase]]
name = "pay"
kind = "call"
tool = "pay"
args = { order = "{{ outputs.look.receipt }}" }
next = [{ when = "last.ok", to = "sure" }, { to = "failed", reason = "not paid" }]
[[phase]]
name = "sure"
kind = "ask"
question = "Go on after {{ evidence.pay }}?"
next = [{ when = "last.ok", to = "work" }, { to = "failed", reason = "not sure" }]
[[phase]]
name = "work"
kind = "agent"
visits = 2
turns = 3
instructions = "Work ({{ visits.work }}): {{ outputs.sure }}"
next = [{ to = "test" }]
[[phase]]
name = "test"
kind = "checks"
checks = ["tests"]
commands = [{ name = "lint", command = ["lint"] }]
next = [{ when = "last.ok", to = "done" }, { to = "work" }]
"#;

/// Children in every way: none, one with a program of its own, all of which one fails, and the first of many.
const CHILDREN: &str = r#"
start = "empty"
[[phase]]
name = "empty"
kind = "each"
over = "{{ [] }}"
next = [{ when = "last.ok && size(last.output) == 0", to = "one" }, { to = "failed", reason = "something was asked for" }]
[[phase]]
name = "one"
kind = "run"
goal = "the only"
turns = 4
next = [{ when = "last.ok && last.output.answer == 'seen'", to = "some" }, { to = "failed", reason = "not seen" }]
[[phase]]
name = "some"
kind = "each"
over = "{{ ['goes', 'stays'] }}"
goal = "part {{ item }}"
parallel = 2
on_failure = "go_on"
next = [{ when = "last.ok && last.output[0].ok && !last.output[1].ok", to = "any" }, { to = "failed", reason = "not some" }]
[[phase]]
name = "any"
kind = "each"
over = "{{ ['goes', 'stays'] }}"
goal = "any part {{ item }}"
join = "any"
parallel = 2
next = [{ when = "last.ok && size(last.output) == 2", to = "tell" }, { to = "failed", reason = "not any" }]
[[phase]]
name = "tell"
kind = "agent"
next = [{ to = "done" }]
"#;

const PLAYS: &[Play] = &[
    Play {
        program: "react",
        task: |task| task.acceptance = vec![check("tests")],
        stage: |town| {
            town.brain.script([Answer::call(&[("edit", "{}"), ("pay", "{}")]), Answer::say("done")]);
        },
        way: "work done",
    },
    Play {
        program: "direct",
        task: |task| task.acceptance = vec![check("tests")],
        stage: |town| {
            town.brain.script([
                Answer::call(&[("look", "{}"), ("pay", "{}")]),
                Answer::say("I have paid."),
                Answer::say(r#"{"answer":"paid"}"#),
            ]);
        },
        way: "work done",
    },
    Play {
        program: "plan",
        task: |_| {},
        stage: |town| {
            town.brain.script([
                Answer::say(r#"{"steps":["look","pay"]}"#),
                Answer::call(&[("look", "{}")]),
                Answer::say("seen"),
                Answer::say(r#"{"ok":true,"note":""}"#),
                Answer::say("it cannot be paid"),
                Answer::say(r#"{"ok":false,"note":"no money"}"#),
                Answer::say(r#"{"steps":["pay less"]}"#),
                Answer::call(&[("pay", "{}")]),
                Answer::say("paid"),
                Answer::say(r#"{"ok":true,"note":""}"#),
                Answer::say("all is paid"),
            ]);
        },
        way: "plan step review step review plan step review answer done",
    },
    Play {
        program: "reflexion",
        task: |task| task.acceptance = vec![check("lint"), check("tests")],
        stage: |town| {
            passes(town, "tests", |paid| paid == 1);
            town.brain.script([
                Answer::call(&[("edit", "{}")]),
                Answer::say("mended"),
                Answer::say(r#"{"passed":false,"lesson":"look first"}"#),
                Answer::call(&[("look", "{}")]),
                Answer::call(&[("pay", "{}")]),
                Answer::say("really mended"),
            ]);
        },
        way: "attempt test judge attempt test done",
    },
    Play {
        program: "pipeline.toml",
        task: |_| {},
        stage: |town| {
            town.brain.script([Answer::say(r#"{"points":["a","b"]}"#), Answer::say("A. B."), Answer::say("AB.")]);
        },
        way: "outline draft finish done",
    },
    Play {
        program: "router.toml",
        task: |_| {},
        stage: |town| {
            town.brain.script([
                Answer::say(r#"{"kind":"other"}"#),
                Answer::call(&[("edit", "{}")]),
                Answer::say("changed"),
            ]);
        },
        way: "classify route clarify change done",
    },
    Play {
        program: "two-roles.toml",
        task: |task| task.acceptance = vec![check("tests")],
        stage: |town| {
            passes(town, "tests", |paid| paid != 1);
            town.brain.script([
                Answer::call(&[("edit", "{}")]),
                Answer::say("two features"),
                Answer::say(r#"{"feature":"one"}"#),
                Answer::say(r#"{"feature":"two"}"#),
                Answer::call(&[("pay", "{}")]),
                Answer::say("mended"),
                Answer::say(r#"{"feature":""}"#),
                Answer::say("two features are built"),
            ]);
            let worker = |feature: &str, tool: &str| {
                let words = format!("this one feature and nothing else: {feature}");
                town.brain.script_of(&words, [Answer::call(&[(tool, "{}")]), Answer::say("built")]);
            };
            worker("one", "edit");
            worker("two", "pay");
        },
        way: "initialize pick work verify pick work verify mend verify pick report done",
    },
    Play {
        program: "fan-out.toml",
        task: |_| {},
        stage: |town| {
            town.brain.script([Answer::say(r#"{"parts":["the left","the right"]}"#), Answer::say("left and right")]);
            town.brain.script_of("the left", [Answer::call(&[("pay", "{}")]), Answer::say("left")]);
            town.brain.script_of("the right", [Answer::call(&[("look", "{}"), ("edit", "{}")]), Answer::say("right")]);
        },
        way: "split parts join done",
    },
    Play {
        program: CHILDREN,
        task: |_| {},
        stage: |town| {
            town.brain.script_of("the only", [Answer::call(&[("look", "{}")]), Answer::say("seen")]);
            town.brain.script_of("part stays", [Answer::call(&[("look", "{}")]), Answer::say("refuse this")]);
            town.brain.script_of("part goes", [Answer::say("gone")]);
            town.brain.script([Answer::say("all of it")]);
        },
        way: "empty one some any tell done",
    },
    Play {
        program: EVERY_KIND,
        task: |task| task.acceptance = vec![check("tests")],
        stage: |town| {
            town.rules.set("pay", Say::Ask);
            passes(town, "lint", |paid| paid == 2);
            town.brain.script([
                Answer::say("what?"),
                Answer::say(r#"{"kind":"a"}"#),
                Answer::call(&[("build", "{}")]),
                Answer::say("built"),
                Answer::call(&[("edit", "{}")]),
                Answer::call(&[("pay", "{}")]),
                Answer::say("built well"),
            ]);
        },
        way: "look classify route pay sure work test work test done",
    },
];

/// What a check finds depends on how often was paid: it is the same whenever it is asked.
fn passes(town: &Town, check: &str, of: fn(usize) -> bool) {
    let world = Arc::clone(&town.world);
    let look = move || if of(world.happened_by_tool("pay")) { Finding::Passed } else { Finding::Failed };
    town.bench.look(check, look);
}

fn text_of(name: &str) -> String {
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        return name.to_owned();
    }
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "examples", "programs", name].iter().collect();
    std::fs::read_to_string(file).expect("the example is there")
}

struct Played {
    breaches: Vec<Breach>,
    end: Option<End>,
    way: String,
    trace: Vec<String>,
    fired: bool,
}

fn play(play: &Play, crashes: &Arc<Crashes>, loses_power: bool) -> Played {
    in_virtual_time(async {
        let town = Town::new(1, Arc::new(WithCrashes(Arc::clone(crashes))));
        (play.stage)(&town);
        let id = RunId::new("r1");
        let mut task = task("r1");
        (play.task)(&mut task);
        let program = program(&text_of(play.program)).expect("a sound program");
        program.fits(&task).expect("a program that fits its task");
        let phases = program.install(&mut task);
        task.program = Program::Phases(Box::new(phases));
        town.set_tools(task.tools.clone());
        let mut end = None;
        for round in 0..40 {
            let process = town.process("h1");
            let begin = match town.store.run(&id) {
                Some(_) => Begin::Existing { changed: Vec::new(), mode: None },
                None => Begin::New { task: Box::new(task.clone()), blobs: Vec::new() },
            };
            match town.drive(&process, &id, begin, WhenAsked::Park, Stop::new()).await {
                Drove::Died if loses_power => town.lose_power(),
                Drove::Died | Drove::Hung => {}
                Drove::Back(Err(_)) => tokio::time::sleep(Duration::from_secs(5)).await,
                Drove::Back(Ok(driven)) => match driven.standing {
                    Standing::Rested(rest) => {
                        end = Some(rest.end);
                        break;
                    }
                    Standing::Parked(waits) => {
                        town.answer(&id, &waits, true, &format!("person{round}")).await;
                    }
                    Standing::Suspended(..) => {}
                },
            }
        }
        laws::check(&town, &id).await;
        let way = town.way(&id).join(" ");
        Played { breaches: town.record.breaches(), end, way, trace: town.record.trace(), fired: crashes.fired() }
    })
}

/// Everything that is wrong with a program that dies once, wherever that is; and how many deaths were tried.
fn deaths(scene: &Play) -> (Vec<String>, usize) {
    let baseline = Crashes::none();
    let played = play(scene, &baseline, false);
    let trace = played.trace.join("\n");
    assert_eq!(played.breaches, [], "{} breaks a law without any crash\n{trace}", scene.program);
    assert!(matches!(played.end, Some(End::Done(_))), "{}: {:?}\n{trace}", scene.program, played.end);
    assert_eq!(played.way, scene.way, "{}", scene.program);
    let mut faults = Vec::new();
    let mut tried = 0;
    for (point, times) in baseline.reached() {
        for nth in BTreeSet::from([1, times.div_ceil(2), times]) {
            // Each point meets both deaths, the rarer ones in turn.
            let losses = if nth == 1 { &[false, true][..] } else { &[true][..] };
            for loses_power in losses {
                let crashes = Crashes::at(point, nth);
                let played = play(scene, &crashes, *loses_power);
                tried += 1;
                let mut wrong = Vec::new();
                if !played.fired {
                    wrong.push("it never fired".to_owned());
                }
                if !played.breaches.is_empty() {
                    wrong.push(format!("{:?}", played.breaches));
                }
                if !matches!(played.end, Some(End::Done(_))) {
                    wrong.push(format!("it ends {:?}", played.end));
                }
                if played.way != scene.way {
                    wrong.push(format!("its way is {}", played.way));
                }
                if !wrong.is_empty() && faults.is_empty() {
                    faults.push(played.trace.join("\n"));
                }
                let name = scene.program.lines().find(|line| !line.is_empty()).unwrap_or_default();
                let named = |what| format!("{name} at {point}:{nth}, power {loses_power}: {what}");
                faults.extend(wrong.into_iter().map(named));
            }
        }
    }
    (faults, tried)
}

#[test]
fn every_program_survives_a_crash_at_every_point() {
    let found: Vec<_> = std::thread::scope(|scope| {
        let plays: Vec<_> = PLAYS.iter().map(|scene| scope.spawn(move || deaths(scene))).collect();
        plays.into_iter().map(|play| play.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let tried: usize = found.iter().map(|(_, tried)| tried).sum();
    let faults: Vec<_> = found.into_iter().flat_map(|(faults, _)| faults).collect();
    assert!(tried > 200, "only {tried} deaths were tried");
    assert!(faults.is_empty(), "{} of {tried}:\n{}", faults.len(), faults.join("\n"));
}
