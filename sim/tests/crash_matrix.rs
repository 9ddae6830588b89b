//! The crash matrix: for every crash point there is, the process dies there, is started again, and every law holds; with
//! and without the loss of power. A point that never fires fails the test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::budget::{Limit, Limits, Raise};
use longrein_core::check::Finding;
use longrein_core::children::ChildSpec;
use longrein_core::event::{End, Wait};
use longrein_core::hook::HookEvent;
use longrein_core::ids::{ActionId, Digest, ModelName, RunId};
use longrein_core::input::{Approve, Covers, Door, Endorse, InputBody};
use longrein_core::outcome::{ModelErrorClass, ProbeAnswer, Served};
use longrein_core::program::Program;
use longrein_core::route::{ROUTABLE, Route};
use longrein_core::run::Stage;
use longrein_core::task::{ModelSpec, Task};
use longrein_driver::{Begin, Standing, Stop, WhenAsked};
use longrein_ports::CrashPoint;
use longrein_sim::crash::{Crashes, WithCrashes};
use longrein_sim::laws;
use longrein_sim::people::{Answer, Say};
use longrein_sim::process::Breach;
use longrein_sim::scribe;
use longrein_sim::story::in_virtual_time;
use longrein_sim::town::{Drove, Town, check, hook, program, task};
use longrein_sim::ushers::HookSays;
use longrein_sim::world::Manner;

/// A run with a bit of everything.
struct Play {
    name: &'static str,
    task: fn(&mut Task),
    stage: fn(&Town),
}

const PLAYS: &[Play] = &[
    Play {
        name: "all kinds of calls",
        task: |task| task.acceptance = vec![check("lint"), check("tests")],
        stage: |town| {
            town.brain.script_attempts([
                vec![
                    Answer::fail(ModelErrorClass::Transient),
                    Answer::call(&[
                        ("look", "{}"),
                        ("edit", r#"{"n":1}"#),
                        ("edit", r#"{"n":2}"#),
                        ("pay", r#"{"order":1}"#),
                        ("ship", r#"{"order":1}"#),
                        ("email", "{}"),
                        ("deploy", "{}"),
                        ("no_such_tool", "{}"),
                        ("page", "{}"),
                        ("ask", r#"{"question":"which one?"}"#),
                    ]),
                ],
                vec![Answer::fail(ModelErrorClass::BadRequest), Answer::say("refuse me")],
                vec![Answer::say("is it done?")],
                vec![Answer::say("now it is done.")],
            ]);
            town.rules.set("deploy", Say::Ask);
            town.rules.set("page", Say::Ask);
            town.world.script("pay", [Manner::fails(true), Manner::done()]);
            town.world.script("ship", [Manner::fails(false), Manner::done()]);
            town.world.script("email", [Manner::fails(true)]);
            town.world.script_probes("ship", [ProbeAnswer::NoAnswer("pending".to_owned())]);
            town.bench.script("tests", [Finding::Failed, Finding::Passed]);
        },
    },
    Play {
        name: "goes in circles, asks too much at once, and stops half way",
        task: |_| {},
        stage: |town| {
            let again = || Answer::call(&[("look", "{}")]);
            town.brain.script([
                Answer::call(&[("note", r#"{"kind":"open_loop","text":"tell Ann"}"#)]),
                again(),
                again(),
                again(),
                again(),
                Answer::say("done"),
                Answer::call(&[("note", r#"{"kind":"close","text":"told","id":"n1"}"#)]),
                Answer::say("done"),
            ]);
            town.world.script("look", [Manner::error("rate_limited", Some(1)), Manner::says("same")]);
        },
    },
    Play {
        name: "models that fail, one after the other",
        task: |task| {
            for name in ["sim/b", "sim/c"] {
                let on = ROUTABLE.into_iter().collect();
                let model = ModelSpec::plain(ModelName::new(name), 200);
                let (phases, context_over, spent_over, images) = Default::default();
                task.routes.push(Route { model, on, phases, context_over, spent_over, images });
            }
        },
        stage: |town| {
            town.brain.script_attempts([
                vec![
                    Answer::fail(ModelErrorClass::Quota),
                    Answer::fail(ModelErrorClass::Authentication),
                    Answer::call(&[("look", "{}"), ("pay", r#"{"order":1}"#)]),
                ],
                vec![Answer::fail(ModelErrorClass::ContentRefused), Answer::say("done")],
            ]);
        },
    },
    Play {
        name: "hooks of every kind",
        task: |task| {
            task.acceptance = vec![check("tests")];
            for (number, event) in HookEvent::ALL.into_iter().enumerate() {
                task.hooks.push(hook(&format!("hook{number}"), event, &[]));
            }
            task.hooks.push(hook("asks", HookEvent::BeforeTool, &["pay"]));
            task.hooks.push(hook("denies", HookEvent::BeforeTool, &["email"]));
        },
        stage: |town| {
            town.brain.script([
                Answer::call(&[("look", "{}"), ("pay", "{}"), ("email", "{}")]),
                Answer::say("is it done?"),
                Answer::say("now it is done."),
            ]);
            town.ushers.script("asks", [HookSays::Ask]);
            town.ushers.script("denies", [HookSays::Block]);
            town.ushers.script("hook3", [HookSays::Block, HookSays::Pass]);
        },
    },
    Play {
        name: "steps that are checked, undone and compensated",
        task: |task| task.acceptance = vec![check("lint"), check("tests")],
        stage: |town| {
            town.brain.script([
                Answer::call(&[("edit", "{}"), ("craft", r#"{"n":1}"#), ("craft", r#"{"n":2}"#), ("look", "{}")]),
                Answer::call(&[("reserve", r#"{"order":1}"#), ("announce", "{}"), ("craft", r#"{"n":3}"#)]),
                Answer::call(&[("reserve", r#"{"order":1}"#)]),
                Answer::say("done"),
            ]);
            town.bench.script("craft", [Finding::Passed, Finding::Failed, Finding::Failed]);
            town.bench.script("reserve", [Finding::Failed, Finding::Passed]);
            town.bench.script("announce", [Finding::Failed]);
            town.bench.is_followed_by_an_edit("lint");
        },
    },
    Play {
        name: "keys and dependencies",
        task: |task| task.acceptance = vec![check("tests")],
        stage: |town| {
            town.brain.script([
                Answer::call(&[("look", "{}"), ("book", r#"{"order":1}"#), ("book", r#"{"order":1}"#)]),
                Answer::call(&[("publish", "{}"), ("edit", "{}"), ("release", "{}"), ("refund", "{}")]),
                Answer::call(&[("order", r#"{"order":1}"#), ("order", r#"{"order":1,"note":2}"#), ("build", "{}")]),
                Answer::say("done"),
            ]);
            town.world.script("refund", [Manner::fails(false), Manner::done()]);
        },
    },
    Play {
        name: "a budget runs out and is raised",
        task: |task| task.limits.tool_calls = Limit::At(1),
        stage: |town| {
            town.brain.script([
                Answer::call(&[("pay", "{}"), ("email", "{}")]),
                Answer::say("this is what I have"),
                Answer::call(&[("email", "{}")]),
                Answer::say("done"),
            ]);
        },
    },
    Play {
        name: "what left the window is summed up",
        task: |task| scribe::small_window(task),
        stage: |town| {
            town.brain.script(scribe::talk(30).into_iter().chain([Answer::say("done")]));
            town.scribe.script([
                Answer::fail(ModelErrorClass::Transient),
                scribe::fact("the first page says much"),
                Answer::say("garbage"),
                Answer { after: Duration::from_secs(3_000), ..scribe::fact("never heard") },
            ]);
        },
    },
    Play {
        name: "a small window",
        task: |task| {
            task.tools.retain(|tool| ["look", "note", "pay"].contains(&tool.name.as_str()));
            task.model.max_output = 100;
            task.model.context_limit = Some(3_000);
        },
        stage: |town| {
            let looks = Answer::call(&[("look", r#"{"n":1}"#), ("look", r#"{"n":2}"#)]);
            let limit = Served { limit: Some(2_600), ..Served::default() };
            town.brain.script_attempts([
                vec![Answer::call(&[
                    ("note", r#"{"kind":"open_loop","text":"ask Bob"}"#),
                    ("pay", "{}"),
                    ("look", r#"{"n":0}"#),
                ])],
                vec![Answer::too_long(None), Answer::too_long(Some(limit)), looks.clone()],
                vec![looks],
                vec![Answer::call(&[("note", r#"{"kind":"close","text":"Bob said yes","id":"n1"}"#)])],
                vec![Answer::say("done")],
            ]);
            town.world.script("look", [Manner::large(6_000)]);
        },
    },
    Play {
        name: "an untrusted read, then writes",
        task: |task| task.acceptance.push(check("tests")),
        stage: |town| {
            town.rules.set_untrusted("look");
            town.bench.script("tests", [Finding::Failed, Finding::Passed]);
            let writes = Answer::call(&[("edit", r#"{"file":"a"}"#), ("build", "{}")]);
            town.brain.script([Answer::call(&[("look", "{}")]), writes, Answer::say("done")]);
        },
    },
    Play {
        name: "an untrusted read, and a person who trusts it",
        task: |_| {},
        stage: |town| {
            town.rules.set_untrusted("list");
            // So that it waits, and the word finds it tainted.
            town.rules.set("edit", Say::Ask);
            town.brain.script([Answer::call(&[("list", "{}")]), Answer::call(&[("edit", "{}")]), Answer::say("done")]);
        },
    },
    Play {
        name: "a program",
        task: |task| {
            let program = program("plan").expect("it is shipped");
            task.program = Program::Phases(Box::new(program.install(task)));
        },
        stage: |town| {
            town.brain.script([
                Answer::say(r#"{"steps":["pay"]}"#),
                Answer::call(&[("pay", "{}")]),
                Answer::say("paid"),
                Answer::say(r#"{"ok":true,"note":""}"#),
                Answer::say("paid"),
            ]);
        },
    },
    Play {
        name: WITH_CHILDREN,
        task: |task| task.acceptance.push(check("tests")),
        stage: |town| {
            town.rules.set("deploy", Say::Ask);
            town.rules.set_untrusted("look");
            town.world.script("pay", [Manner::fails(true), Manner::done()]);
            let calls = |calls: &[(&str, &str)]| [Answer::call(calls), Answer::say("my part is done")];
            town.brain.script_of("This is part one", calls(&[("look", "{}"), ("email", "{}")]));
            town.brain.script_of("This is part two", calls(&[("look", "{}"), ("edit", "{}"), ("pay", "{}")]));
            town.brain.script_of("This is part three", calls(&[("edit", "{}"), ("deploy", "{}")]));
            town.brain.script_of("This is part four", calls(&[("look", "{}")]));
            town.brain.script([Answer::say("all is done.")]);
        },
    },
    Play {
        name: "no window at all, then another model",
        task: |task| task.model.context_limit = Some(200),
        stage: |town| town.brain.script([Answer::call(&[("look", "{}")]), Answer::say("done")]),
    },
];

/// The play whose run asks for children before anything else.
const WITH_CHILDREN: &str = "children that read, write and ask";

fn children(task: &Task) -> Vec<ChildSpec> {
    let child = |key: &str, tools: &[&str]| {
        let mut task =
            Task { goal: format!("part {key}"), instructions: format!("This is part {key}."), ..task.clone() };
        task.tools.retain(|tool| tools.contains(&tool.name.as_str()));
        task.acceptance.clear();
        let grant = Limits { model_calls: Limit::At(12), tool_calls: Limit::At(6), ..task.limits.clone() };
        ChildSpec { key: key.to_owned(), task, grant }
    };
    vec![
        child("one", &["look", "email"]),
        child("two", &["look", "edit", "pay"]),
        child("three", &["edit", "deploy"]),
        child("four", &["look"]),
    ]
}

struct Played {
    breaches: Vec<Breach>,
    end: Option<End>,
    trace: Vec<String>,
    fired: bool,
}

fn play(play: &Play, crashes: &Arc<Crashes>, loses_power: bool) -> Played {
    in_virtual_time(async {
        let town = Town::new(1, Arc::new(WithCrashes(Arc::clone(crashes))));
        (play.stage)(&town);
        town.world.children_survive(100);
        let id = RunId::new("r1");
        let mut task = task("r1");
        (play.task)(&mut task);
        let mut end = None;
        for round in 0..40 {
            let process = town.process("h1");
            if play.name == WITH_CHILDREN && town.store.run(&id).is_none() {
                match town.begin_with_children(&process, &id, task.clone(), &children(&task), 2).await {
                    Some(begun) => begun.unwrap_or_else(|why| town.record.breach("law_11", why)),
                    None if loses_power => town.lose_power(),
                    None => {}
                }
                if process.is_dead() {
                    continue;
                }
            }
            let begin = match town.store.run(&id) {
                Some(_) => Begin::Existing { changed: vec!["checks/tests.sh".to_owned()], mode: None },
                None => Begin::New { task: Box::new(task.clone()), blobs: Vec::new() },
            };
            match town.drive(&process, &id, begin, WhenAsked::Park, Stop::new()).await {
                Drove::Died if loses_power => town.lose_power(),
                Drove::Died | Drove::Hung => {}
                Drove::Back(Err(_)) => tokio::time::sleep(Duration::from_secs(5)).await,
                Drove::Back(Ok(driven)) => match driven.standing {
                    Standing::Rested(rest) => {
                        match rest.end {
                            End::Exhausted(_) => {
                                let raise = Raise { tool_calls: 5, ..Raise::default() };
                                town.store.post(&id, "raise", InputBody::Raise(raise)).await;
                            }
                            // The other model, which everybody gets, has room.
                            End::ContextExhausted => {}
                            ended @ (End::Done(_) | End::Failed(_) | End::Cancelled) => {
                                end = Some(ended);
                                break;
                            }
                        }
                    }
                    Standing::Parked(waits) => {
                        for wait in waits {
                            let yes = wait != Wait::Approval(ActionId(9));
                            town.answer(&id, &[wait], yes, &format!("person{round}")).await;
                        }
                    }
                    Standing::Suspended(..) => {}
                },
            }
            // Posted anew after every return: the same id counts once.
            town.store.post(&id, "hello", InputBody::Message("and be quick".to_owned())).await;
            let other = ModelSpec::plain(ModelName::new("sim/other"), 500);
            town.store.post(&id, "switch", InputBody::SwitchModel(other)).await;
            let endorse = Endorse { source: "list.test".to_owned(), by: "ann".to_owned(), door: Door::Cli };
            town.store.post(&id, "endorse", InputBody::Endorse(endorse)).await;
            let stale = Approve {
                action: ActionId(1),
                digest: Digest::of(b"old"),
                by: "ann".to_owned(),
                door: Door::Cli,
                expires: town.record.now().plus(Duration::from_secs(60)),
                covers: Covers::Always,
                reason: None,
                typed: None,
            };
            town.store.post(&id, "stale", InputBody::Approve(stale)).await;
        }
        let rests = town.store.run(&id).is_some_and(|run| matches!(run.stage, Stage::Rest(_)));
        if !rests {
            laws::law_11(&town, &id);
        }
        let all: Vec<RunId> = town.store.shadow().runs.keys().cloned().collect();
        for run in &all {
            laws::check(&town, run).await;
        }
        Played { breaches: town.record.breaches(), end, trace: town.record.trace(), fired: crashes.fired() }
    })
}

#[test]
fn crash_matrix() {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    let mut crashes_made = 0;
    let nightly = std::env::var_os("LONGREIN_NIGHTLY").is_some();
    for scene in PLAYS {
        let baseline = Crashes::none();
        let played = play(scene, &baseline, false);
        assert_eq!(played.breaches, [], "{} breaks a law without any crash\n{}", scene.name, played.trace.join("\n"));
        assert!(
            matches!(played.end, Some(End::Done(_))),
            "{}: {:?}\n{}",
            scene.name,
            played.end,
            played.trace.join("\n")
        );
        for (point, times) in baseline.reached() {
            let moments = BTreeSet::from([1, if nightly { times.div_ceil(2) } else { 1 }, times]);
            for nth in moments {
                // What is lost with the power is more than what is lost without.
                let powers: &[bool] = if nightly || nth == 1 { &[false, true] } else { &[true] };
                for &loses_power in powers {
                    let crashes = Crashes::at(point, nth);
                    let played = play(scene, &crashes, loses_power);
                    crashes_made += 1;
                    let is_wrong = !played.fired || !played.breaches.is_empty() || played.end.is_none();
                    if is_wrong && faults.is_empty() {
                        faults.push(played.trace.join("\n"));
                    }
                    let name = format!("{} at {point}:{nth}, power lost: {loses_power}", scene.name);
                    if played.fired {
                        seen.insert(point);
                    } else {
                        faults.push(format!("{name}: never fired"));
                    }
                    if !played.breaches.is_empty() {
                        faults.push(format!("{name}: {:?}", played.breaches));
                    }
                    // A first event that was never synced leaves nothing; everything else ends.
                    if played.end.is_none() {
                        faults.push(format!("{name}: no end"));
                    }
                }
            }
        }
    }
    // Those around a judge's call are all played in `opinions.rs`.
    let elsewhere = |point: &CrashPoint| point.to_string().contains(".judge.");
    let never = CrashPoint::all().into_iter().filter(|point| !seen.contains(point) && !elsewhere(point));
    let never: Vec<_> = never.map(|point| point.to_string()).collect();
    assert!(faults.is_empty(), "{} of {crashes_made}:\n{}", faults.len(), faults.join("\n"));
    assert!(never.is_empty(), "crash points that no play reaches: {}", never.join(", "));
}
