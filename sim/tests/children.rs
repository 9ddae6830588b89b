//! Trees of runs: what a parent and its children owe each other, whatever happens to either. Each story ends with every law
//! checked over all runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::budget::{Limit, Limits, Raise};
use longrein_core::children::{ChildSpec, ChildState, Report};
use longrein_core::event::{End, Event, Wait};
use longrein_core::ids::{ActionId, RunId};
use longrein_core::input::InputBody;
use longrein_core::outcome::ModelErrorClass;
use longrein_core::run::{Run, Stage};
use longrein_core::task::{Mode, Task};
use longrein_driver::{Begin, DriveError, Driven, Standing, Stop, WhenAsked};
use longrein_sim::laws;
use longrein_sim::people::{Answer, Say};
use longrein_sim::process::Process;
use longrein_sim::story::in_virtual_time;
use longrein_sim::town::{Drove, Plain, Town, task};
use longrein_sim::world::Manner;

/// A parent and its children in a town.
struct Family {
    town: Arc<Town>,
    id: RunId,
}

fn spec(parent: &Task, key: &str, tools: &[&str]) -> ChildSpec {
    let mut task = Task { goal: format!("part {key}"), instructions: format!("This is part {key}."), ..parent.clone() };
    task.tools.retain(|tool| tools.contains(&tool.name.as_str()));
    let grant = Limits { model_calls: Limit::At(10), tool_calls: Limit::At(10), ..parent.limits.clone() };
    ChildSpec { key: key.to_owned(), task, grant }
}

impl Family {
    /// Begins it; nobody drives it yet.
    async fn begin(at_once: u32, make: impl FnOnce(&mut Task, &Town) -> Vec<ChildSpec>) -> Self {
        let town = Town::new(1, Arc::new(Plain));
        let id = RunId::new("r1");
        let mut task = task("r1");
        let specs = make(&mut task, &town);
        let process = town.process("h1");
        let begun = town.begin_with_children(&process, &id, task, &specs, at_once).await;
        begun.expect("nobody died").expect("the children fit");
        Self { town, id }
    }

    async fn drive_in(&self, process: &Arc<Process>, stop: Stop) -> Drove {
        let begin = Begin::Existing { changed: Vec::new(), mode: None };
        self.town.drive(process, &self.id, begin, WhenAsked::Park, stop).await
    }

    async fn drive(&self) -> Driven {
        match self.drive_in(&self.town.process("h1"), Stop::new()).await {
            Drove::Back(Ok(driven)) => *driven,
            other @ (Drove::Died | Drove::Hung | Drove::Back(Err(_))) => {
                panic!("{other:?}\n{}", self.town.record.trace().join("\n"))
            }
        }
    }

    fn run(&self, id: &RunId) -> Run {
        self.town.store.run(id).expect("it has begun")
    }

    fn child(&self, key: &str) -> RunId {
        longrein_core::children::child_id(&self.id, key)
    }

    fn report(&self, key: &str) -> Report {
        match &self.run(&self.id).children[&self.child(key)].state {
            ChildState::Ended { report, .. } => report.as_ref().clone(),
            other @ (ChildState::Owed(_) | ChildState::Inherited) => panic!("{key} has not ended: {other:?}"),
        }
    }

    fn trace(&self) -> String {
        self.town.record.trace().join("\n")
    }

    async fn check(&self) {
        let all: Vec<RunId> = self.town.store.shadow().runs.keys().cloned().collect();
        for run in &all {
            laws::check(&self.town, run).await;
        }
        assert_eq!(self.town.record.breaches(), [], "{}", self.trace());
    }
}

fn is_done(driven: &Driven) -> bool {
    matches!(&driven.standing, Standing::Rested(rest) if matches!(rest.end, End::Done(_)))
}

#[test]
fn children_end_then_their_parent_goes_on_with_what_they_brought() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.brain.script_of("This is part a", [Answer::call(&[("look", "{}")]), Answer::say("a is fine")]);
            town.brain.script_of("This is part b", [Answer::say("b is fine")]);
            town.brain.script([Answer::say("all is fine")]);
            vec![spec(task, "a", &["look"]), spec(task, "b", &["look"])]
        })
        .await;
        let driven = family.drive().await;
        assert!(is_done(&driven), "{:?}\n{}", driven.standing, family.trace());
        let spent = driven.run.spent;
        assert_eq!(
            (spent.turns, spent.model_calls, spent.tool_calls),
            (1, 4, 1),
            "turns are its own, calls the tree's"
        );
        let sent = family.town.brain.last_sent().expect("it was asked");
        let shown = format!("{:?}", sent.items);
        assert!(shown.contains("- a (done): a is fine") && shown.contains("- b (done): b is fine"), "{shown}");
        family.check().await;
    });
}

#[test]
fn law_10_children_that_write_go_one_after_the_other_and_readers_beside_them() {
    in_virtual_time(async {
        let family = Family::begin(4, |task, town| {
            town.world.script("edit", [Manner::slow(100, 3_000)]);
            town.world.script("look", [Manner::slow(100, 3_000)]);
            for key in ["w1", "w2"] {
                let words = format!("This is part {key}");
                town.brain.script_of(&words, [Answer::call(&[("edit", "{}")]), Answer::say("written")]);
            }
            for key in ["r1", "r2"] {
                let words = format!("This is part {key}");
                town.brain.script_of(&words, [Answer::call(&[("look", "{}")]), Answer::say("read")]);
            }
            let specs = [("w1", "edit"), ("w2", "edit"), ("r1", "look"), ("r2", "look")];
            specs.map(|(key, tool)| spec(task, key, &[tool])).to_vec()
        })
        .await;
        assert!(is_done(&family.drive().await), "{}", family.trace());
        let span = |key: &str| {
            let run = family.run(&family.child(key));
            (run.started, run.at)
        };
        let (w1, w2, r1, r2) = (span("w1"), span("w2"), span("r1"), span("r2"));
        assert!(w2.0 >= w1.1, "the second writer began before the first had ended");
        assert!(r1.0 < w1.1 && r2.0 < w1.1, "readers waited for a writer");
        family.check().await;
    });
}

#[test]
fn no_more_children_are_driven_at_once_than_asked() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.world.script("look", [Manner::slow(100, 3_000)]);
            (0..5)
                .map(|number| {
                    let key = format!("p{number}");
                    let words = format!("This is part {key}");
                    town.brain.script_of(&words, [Answer::call(&[("look", "{}")]), Answer::say("read")]);
                    spec(task, &key, &["look"])
                })
                .collect()
        })
        .await;
        assert!(is_done(&family.drive().await), "{}", family.trace());
        let mut moments = Vec::new();
        for number in 0..5 {
            let run = family.run(&family.child(&format!("p{number}")));
            moments.extend([(run.started, 1), (run.at, -1)]);
        }
        moments.sort();
        let most = moments
            .iter()
            .scan(0, |now, (_, step)| {
                *now += step;
                Some(*now)
            })
            .max();
        assert_eq!(most, Some(2), "{}", family.trace());
        family.check().await;
    });
}

#[test]
fn a_child_that_waits_for_a_person_makes_its_parent_wait_and_an_answer_wakes_both() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.rules.set("deploy", Say::Ask);
            town.brain.script_of("This is part a", [Answer::call(&[("deploy", "{}")]), Answer::say("deployed")]);
            town.brain.script_of("This is part b", [Answer::say("b is fine")]);
            vec![spec(task, "a", &["deploy"]), spec(task, "b", &["look"])]
        })
        .await;
        let driven = family.drive().await;
        let waits = vec![Wait::Child { child: family.child("a"), waits: vec![Wait::Approval(ActionId(1))] }];
        assert_eq!(driven.standing, Standing::Parked(waits.clone()), "{}", family.trace());
        assert_eq!(family.report("b").answer(), Some("b is fine"), "the other one went on meanwhile");
        assert_eq!(family.town.answer(&family.id, &waits, true, "ann").await, 1);
        assert!(is_done(&family.drive().await), "{}", family.trace());
        assert_eq!(family.town.world.happened_by_tool("deploy"), 1);
        family.check().await;
    });
}

#[test]
fn a_question_of_a_child_can_be_answered_while_its_parent_waits_for_another() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.rules.set("deploy", Say::Ask);
            town.world.script("look", [Manner::slow(100, 15_000)]);
            town.brain.script_of("This is part a", [Answer::call(&[("deploy", "{}")]), Answer::say("deployed")]);
            town.brain.script_of("This is part b", [Answer::call(&[("look", "{}")]), Answer::say("b is fine")]);
            vec![spec(task, "a", &["deploy"]), spec(task, "b", &["look"])]
        })
        .await;
        let asked = family.child("a");
        let answers = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            family.town.answer(&asked, &[Wait::Approval(ActionId(1))], true, "ann").await
        };
        let (driven, answered) = tokio::join!(family.drive(), answers);
        assert_eq!(answered, 1, "{}", family.trace());
        assert!(is_done(&driven), "{:?}\n{}", driven.standing, family.trace());
        family.check().await;
    });
}

#[test]
fn cancelling_a_parent_cancels_its_children_and_it_ends_after_them() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.world.script("look", [Manner::slow(100, 15_000)]);
            for key in ["a", "b", "c"] {
                let words = format!("This is part {key}");
                town.brain.script_of(&words, [Answer::call(&[("look", "{}")]), Answer::say("read")]);
            }
            ["a", "b", "c"].map(|key| spec(task, key, &["look"])).to_vec()
        })
        .await;
        let cancels = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            family.town.store.post(&family.id, "stop", InputBody::Cancel).await
        };
        let (driven, _) = tokio::join!(family.drive(), cancels);
        assert!(matches!(&driven.standing, Standing::Rested(rest) if rest.end == End::Cancelled), "{}", family.trace());
        for key in ["a", "b", "c"] {
            assert_eq!(family.report(key).end, End::Cancelled, "{key}: {}", family.trace());
        }
        family.check().await;
    });
}

#[test]
fn the_time_of_a_parent_is_the_time_of_its_children() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, town| {
            task.limits.time_ms = Limit::At(4_000);
            town.world.script("look", [Manner::slow(100, 15_000)]);
            town.brain.script_of("This is part a", [Answer::call(&[("look", "{}")]), Answer::say("read")]);
            vec![spec(task, "a", &["look"]), spec(task, "b", &["look"])]
        })
        .await;
        let driven = family.drive().await;
        let out_of_time = |end: &End| matches!(end, End::Exhausted(_) | End::Cancelled);
        assert!(matches!(&driven.standing, Standing::Rested(rest) if out_of_time(&rest.end)), "{}", family.trace());
        assert!(out_of_time(&family.report("a").end) && out_of_time(&family.report("b").end));
        assert!(family.town.record.elapsed() < Duration::from_secs(10), "{}", family.trace());
        family.check().await;
    });
}

#[test]
fn a_child_that_cannot_reach_its_model_suspends_its_parent() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.brain.script_of("This is part a", [Answer::fail(ModelErrorClass::Quota)]);
            town.brain.script_of("This is part b", [Answer::say("b is fine")]);
            vec![spec(task, "a", &["look"]), spec(task, "b", &["look"])]
        })
        .await;
        let driven = family.drive().await;
        let child = family.child("a");
        assert!(
            matches!(&driven.standing, Standing::Suspended(_, detail) if detail.contains(child.as_str())),
            "{:?}\n{}",
            driven.standing,
            family.trace()
        );
        assert_eq!(family.report("b").answer(), Some("b is fine"));
        family.town.brain.script_of("This is part a", [Answer::say("a is fine")]);
        assert!(is_done(&family.drive().await), "{}", family.trace());
        family.check().await;
    });
}

#[test]
fn law_5_a_child_has_its_grant_and_no_more_and_only_the_root_is_raised() {
    in_virtual_time(async {
        let family = Family::begin(2, |task, town| {
            town.brain.script_of("This is part a", [Answer::call(&[("look", "{}"), ("look", r#"{"n":2}"#)])]);
            let mut nothing = spec(task, "nothing", &["look"]);
            nothing.grant.model_calls = Limit::At(0);
            let mut a = spec(task, "a", &["look"]);
            a.grant.turns = Limit::At(3);
            vec![nothing, a]
        })
        .await;
        assert!(is_done(&family.drive().await), "{}", family.trace());
        assert!(matches!(family.report("nothing").end, End::Exhausted(_)), "zero is zero: {}", family.trace());
        assert_eq!(family.report("nothing").spent.model_calls, 0);
        assert!(matches!(family.report("a").end, End::Exhausted(_)));
        let child = family.child("a");
        family.town.store.post(&child, "raise", InputBody::Raise(Raise { turns: 5, ..Raise::default() })).await;
        family.town.store.post(&child, "words", InputBody::Message("go on".to_owned())).await;
        let begin = Begin::Existing { changed: Vec::new(), mode: None };
        let back = family.town.drive(&family.town.process("h1"), &child, begin, WhenAsked::Park, Stop::new()).await;
        assert!(matches!(&back, Drove::Back(Ok(_))), "{back:?}");
        let shadow = family.town.store.shadow().runs[&child].clone();
        let refused: Vec<_> = shadow
            .events
            .iter()
            .filter_map(|new| {
                let Event::InputRefused(refused) = &new.event else { return None };
                Some(refused.reason.clone())
            })
            .collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused.iter().all(|reason| reason.contains("r1")), "the root is named: {refused:?}");
        family.check().await;
    });
}

#[test]
fn law_9_what_nobody_knows_of_a_child_is_settled_before_its_parent_is_done() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, town| {
            town.world.script("page", [Manner::fails(true)]);
            // It cannot be done either: it fails over its answers, and the effect stays unknown.
            let words = [Answer::call(&[("page", "{}")]), Answer::say("refuse this")];
            town.brain.script_of("This is part a", words);
            town.brain.script([Answer::say("all is fine")]);
            vec![spec(task, "a", &["page"])]
        })
        .await;
        let driven = family.drive().await;
        let child = family.child("a");
        let waits = vec![Wait::Child { child: child.clone(), waits: vec![Wait::Unknown(ActionId(1))] }];
        assert_eq!(driven.standing, Standing::Parked(waits.clone()), "{}", family.trace());
        assert_eq!(family.town.answer(&family.id, &waits, true, "ann").await, 1);
        // The child rests: whoever takes what was said passes it on.
        let begin = Begin::Existing { changed: Vec::new(), mode: None };
        let back = family.town.drive(&family.town.process("h1"), &child, begin, WhenAsked::Park, Stop::new()).await;
        assert!(matches!(&back, Drove::Back(Ok(_))), "{back:?}\n{}", family.trace());
        assert!(is_done(&family.drive().await), "{}", family.trace());
        family.check().await;
    });
}

#[test]
fn law_10_a_child_is_not_driven_without_its_root_nor_by_two() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, town| {
            town.world.script("look", [Manner::slow(100, 15_000)]);
            town.brain.script_of("This is part a", [Answer::call(&[("look", "{}")]), Answer::say("read")]);
            vec![spec(task, "a", &["look"])]
        })
        .await;
        let child = family.child("a");
        let alone = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let town = &family.town;
            let begin = Begin::Existing { changed: Vec::new(), mode: None };
            let options = longrein_driver::Options {
                worker: town.process("h2").worker.clone(),
                binary: "sim".to_owned(),
                asked: WhenAsked::Park,
                snapshot_every: 1000,
            };
            struct Nobody;
            impl longrein_driver::Observer for Nobody {
                fn committed(&self, _: &Run, _: &[(longrein_core::ids::Seq, longrein_ports::NewEvent)]) {}
            }
            let ports = town.ports(&town.process("h2"), &child, &[]);
            longrein_driver::Driver::new(ports, options, Arc::new(Nobody)).drive(&child, begin, Stop::new()).await
        };
        let (driven, refused) = tokio::join!(family.drive(), alone);
        assert!(is_done(&driven), "{}", family.trace());
        let is_named = |error: &DriveError| matches!(error, DriveError::IsChild { root, .. } if *root == family.id);
        assert!(refused.as_ref().is_err_and(is_named), "{refused:?}");
        family.check().await;
    });
}

#[test]
fn a_dead_worker_s_children_are_owed_again_and_driven_once() {
    in_virtual_time(async {
        let family = Family::begin(3, |task, town| {
            town.world.children_survive(100);
            town.world.script("pay", [Manner::slow(1_000, 6_000)]);
            for key in ["a", "b"] {
                let words = format!("This is part {key}");
                town.brain.script_of(&words, [Answer::call(&[("pay", r#"{"order":1}"#)]), Answer::say("paid")]);
            }
            ["a", "b"].map(|key| spec(task, key, &["pay"])).to_vec()
        })
        .await;
        let process = family.town.process("h1");
        let dies = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            process.die();
        };
        let (drove, ()) = tokio::join!(family.drive_in(&process, Stop::new()), dies);
        assert!(matches!(drove, Drove::Died));
        assert!(is_done(&family.drive().await), "{}", family.trace());
        assert_eq!(family.town.world.happened_by_tool("pay"), 2);
        family.check().await;
    });
}

#[test]
fn a_worker_that_slept_through_its_lease_does_not_write_beside_the_next() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, town| {
            town.world.script("edit", [Manner::slow(1_000, 5_000)]);
            let edits = [("edit", r#"{"n":1}"#), ("edit", r#"{"n":2}"#), ("edit", r#"{"n":3}"#)];
            town.brain.script_of("This is part a", [Answer::call(&edits), Answer::say("written")]);
            vec![spec(task, "a", &["edit"])]
        })
        .await;
        let sleeper = family.town.process("h1");
        let sleeps = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            sleeper.pause();
            tokio::time::sleep(Duration::from_secs(25)).await;
            let driven = family.drive();
            let wakes = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                sleeper.resume();
            };
            tokio::join!(driven, wakes).0
        };
        let (slept, driven) = tokio::join!(family.drive_in(&sleeper, Stop::new()), sleeps);
        assert!(matches!(slept, Drove::Back(Err(_))), "{slept:?}");
        assert!(is_done(&driven), "{:?}\n{}", driven.standing, family.trace());
        family.check().await;
    });
}

#[test]
fn children_of_children_are_bounded_in_depth_and_count_in_the_root() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, town| {
            town.brain.script([Answer::say("fine")]);
            vec![spec(task, "a", &["look"])]
        })
        .await;
        assert!(is_done(&family.drive().await), "{}", family.trace());
        let mut run = family.run(&family.child("a"));
        run.stage = Stage::Ready(Default::default());
        for depth in [1, longrein_core::children::DEPTH_MAX] {
            if let Some(descent) = &mut run.descent {
                descent.depth = depth;
            }
            let asked = spec(&run.task, "deeper", &["look"]);
            let asked = ChildSpec {
                grant: Limits { model_calls: Limit::At(1), tool_calls: Limit::At(1), ..asked.grant },
                ..asked
            };
            let answer = longrein_core::decide::request_children(&run, &[asked], 1, run.at);
            assert_eq!(answer.is_ok(), depth < longrein_core::children::DEPTH_MAX, "{answer:?}");
        }
    });
}

#[test]
fn law_8_a_child_is_never_freer_than_its_parent() {
    in_virtual_time(async {
        let family = Family::begin(1, |task, _| {
            task.permission_mode = Mode::Ask;
            task.policy.allow = vec!["look".to_owned(), "pay".to_owned()];
            task.policy.deny = vec!["email".to_owned()];
            let mut free = spec(task, "free", &["look"]);
            free.task.permission_mode = Mode::Auto;
            free.task.policy.allow = vec!["pay".to_owned(), "deploy".to_owned()];
            free.task.policy.deny = Vec::new();
            free.task.principal = longrein_core::payload::Payload::string("somebody else");
            vec![free]
        })
        .await;
        assert!(is_done(&family.drive().await), "{}", family.trace());
        let parent = family.run(&family.id);
        let child = family.run(&family.child("free"));
        assert_eq!(child.mode, Mode::Ask);
        assert_eq!(child.task.policy.allow, ["pay"]);
        assert_eq!(child.task.policy.deny, ["email"]);
        assert_eq!(child.task.principal, parent.task.principal);
        assert_eq!(child.root, Some(family.id.clone()));
        let keys: BTreeSet<_> = parent.children.keys().collect();
        assert_eq!(keys, BTreeSet::from([&child.id]));
        family.check().await;
    });
}
