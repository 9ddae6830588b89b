//! A model as judge: wherever the process dies, what it said is paid for once, its opinion is never a proof, and what it is
//! shown cannot order it.

use std::sync::Arc;
use std::time::Duration;

use longrein_core::check::Finding;
use longrein_core::event::{
    CheckFinished, End, Event, EventKind, Failure, JudgeFinished, JudgeOutcome, Settled, Suspension,
};
use longrein_core::ids::RunId;
use longrein_core::run::Stage;
use longrein_core::task::{CheckSpec, Task};
use longrein_driver::{Begin, Stop, WhenAsked};
use longrein_ports::{CrashPoint, NewEvent};
use longrein_sim::crash::{Crashes, WithCrashes};
use longrein_sim::laws;
use longrein_sim::people::Answer;
use longrein_sim::story::in_virtual_time;
use longrein_sim::town::{Drove, Layers, Plain, Town, check, opinion, task};

const GOOD: &str = r#"{"reason":"e1 shows it","verdict":"passed"}"#;
const BAD: &str = r#"{"reason":"nothing shows it","verdict":"failed"}"#;

fn town(checks: &[CheckSpec]) -> (Arc<Town>, RunId, Task) {
    town_with(checks, Arc::new(Plain))
}

fn town_with(checks: &[CheckSpec], layers: Arc<dyn Layers>) -> (Arc<Town>, RunId, Task) {
    let town = Town::new(1, layers);
    let mut task = task("r1");
    task.acceptance = checks.to_vec();
    (town, RunId::new("r1"), task)
}

fn events(town: &Town, id: &RunId) -> Vec<NewEvent> {
    town.store.shadow().runs.get(id).expect("it was started").events.clone()
}

fn judged(town: &Town, id: &RunId) -> Vec<JudgeFinished> {
    let finished = |new: NewEvent| if let Event::JudgeFinished(finished) = new.event { Some(finished) } else { None };
    events(town, id).into_iter().filter_map(finished).collect()
}

fn opinions(town: &Town, id: &RunId) -> Vec<CheckFinished> {
    let finished = |new: NewEvent| if let Event::CheckFinished(finished) = new.event { Some(finished) } else { None };
    events(town, id)
        .into_iter()
        .filter_map(finished)
        .filter(|finished| finished.verdict.proof.opinion.is_some())
        .collect()
}

fn new(task: Task) -> Begin {
    Begin::New { task: Box::new(task), blobs: Vec::new() }
}

fn again() -> Begin {
    Begin::Existing { changed: Vec::new(), mode: None }
}

/// Drives until it rests, with a new process after each death.
async fn to_its_end(town: &Town, id: &RunId, mut begin: Begin) -> End {
    for _ in 0..20 {
        let process = town.process("h1");
        match town.drive(&process, id, begin, WhenAsked::Park, Stop::new()).await {
            Drove::Died => {}
            Drove::Hung => panic!("it hangs: {}", town.record.trace().join("\n")),
            Drove::Back(Ok(driven)) => {
                laws::check(town, id).await;
                assert_eq!(town.record.breaches(), [], "{}", town.record.trace().join("\n"));
                let Stage::Rest(ended) = &driven.run.stage else { panic!("{:?}", driven.standing) };
                return ended.end.clone();
            }
            Drove::Back(Err(error)) => panic!("{error}\n{}", town.record.trace().join("\n")),
        }
        begin = again();
    }
    panic!("it never rests")
}

fn verified(end: &End) -> Option<bool> {
    let End::Done(done) = end else { panic!("{end:?}") };
    done.verified
}

#[test]
fn an_opinion_alone_proves_nothing_and_beside_a_proof_it_counts() {
    for (checks, proven) in [(vec![opinion()], None), (vec![check("unit"), opinion()], Some(true))] {
        in_virtual_time(async {
            let (town, id, task) = town(&checks);
            town.arbiter.script([Answer::say(GOOD)]);
            town.brain.script([Answer::say("done")]);
            let end = to_its_end(&town, &id, new(task)).await;
            assert_eq!(verified(&end), proven);
            assert_eq!(town.arbiter.sends(), 1);
            let said = opinions(&town, &id);
            assert_eq!(said.len(), 1, "{said:?}");
            assert_eq!(said[0].verdict.finding, Finding::Passed);
            let run = town.store.run(&id).expect("it is there");
            assert_eq!(run.spent.model_calls, 2, "a judge's call is a call");
        });
    }
}

/// A failed opinion goes back to the model; the same work is not judged twice, and other work is.
#[test]
fn a_failed_opinion_goes_back_to_the_model_and_is_bounded() {
    in_virtual_time(async {
        let (town, id, task) = town(&[opinion()]);
        town.arbiter.script([Answer::say(BAD)]);
        let words = ["one", "one", "two", "three", "four"];
        town.brain.script(words.map(Answer::say));
        let end = to_its_end(&town, &id, new(task)).await;
        assert_eq!(end, End::Failed(Failure::Checks));
        assert_eq!(opinions(&town, &id).len(), 5);
        assert_eq!(town.arbiter.sends(), 4, "the answer that was judged already is not paid for again");
    });
}

#[test]
fn garbage_is_a_failed_check_after_bounded_tries() {
    let bad = [
        "Looks good to me!",
        r#"{"verdict":"passed"}"#,
        r#"{"reason":"fine","verdict":"PASSED"}"#,
        r#"{"reason":"fine","verdict":"passed","sure":true}"#,
        r#"{"reason":"a","verdict":"failed","verdict":"passed"}"#,
        r#"{"reason":"a","verdict":"passed"} {"reason":"a","verdict":"passed"}"#,
        r#"{"reason":"  ","verdict":"passed"}"#,
        r#"["passed","fine"]"#,
        "true",
    ];
    for garbage in bad {
        in_virtual_time(async {
            let (town, id, task) = town(&[opinion()]);
            town.arbiter.script([garbage, garbage, garbage, GOOD].map(Answer::say));
            town.brain.script(["one", "two"].map(Answer::say));
            let end = to_its_end(&town, &id, new(task)).await;
            assert_eq!(verified(&end), None);
            let said = opinions(&town, &id);
            assert_eq!(said[0].verdict.finding, Finding::Failed, "{garbage}");
            let text = longrein_core::payload::text_of(&said[0].verdict.evidence);
            assert!(text.starts_with("No verdict: ") && text.contains("3 times"), "{text}");
            assert_eq!(town.arbiter.sends(), 4);
        });
    }
}

#[test]
fn prose_around_a_verdict_does_no_harm() {
    in_virtual_time(async {
        let (town, id, task) = town(&[opinion()]);
        town.arbiter.script([Answer::say(&format!("Here it is:\n```json\n{GOOD}\n```"))]);
        town.brain.script([Answer::say("done")]);
        assert_eq!(verified(&to_its_end(&town, &id, new(task)).await), None);
        assert_eq!(town.arbiter.sends(), 1);
    });
}

/// Whoever is not asked costs nothing.
#[test]
fn nobody_is_asked_for_an_opinion_on_what_has_failed() {
    in_virtual_time(async {
        let (town, id, task) = town(&[check("unit"), opinion()]);
        town.bench.script("unit", [Finding::Failed, Finding::Passed]);
        town.arbiter.script([Answer::say(GOOD)]);
        town.brain.script(["one", "two"].map(Answer::say));
        let end = to_its_end(&town, &id, new(task)).await;
        assert_eq!(verified(&end), Some(true));
        assert_eq!(town.arbiter.sends(), 1);
        assert_eq!(opinions(&town, &id).len(), 2);
    });
}

/// Killed at every point of a judge's call: what is in the journal is not paid for again, what is not is settled as lost.
#[test]
fn a_verdict_in_the_journal_is_not_paid_for_twice() {
    let points = [
        (CrashPoint::BeforeAppend(EventKind::JudgeRequested), 1, 0),
        (CrashPoint::AfterAppend(EventKind::JudgeRequested), 2, 1),
        (CrashPoint::BeforeAppend(EventKind::JudgeFinished), 2, 1),
        (CrashPoint::AfterAppend(EventKind::JudgeFinished), 1, 0),
        (CrashPoint::BeforeAppend(EventKind::RunEnded), 1, 0),
    ];
    for (point, asked, lost) in points {
        in_virtual_time(async {
            let crashes = Crashes::none();
            let layers = Arc::new(WithCrashes(Arc::clone(&crashes)));
            let (town, id, task) = town_with(&[check("unit"), opinion()], layers);
            town.arbiter.script([Answer::say(GOOD)]);
            town.brain.script([Answer::say("done")]);
            let process = town.process("h1");
            crashes.arm(point, 1);
            let drove = town.drive(&process, &id, new(task), WhenAsked::Park, Stop::new()).await;
            assert!(matches!(drove, Drove::Died), "{point:?}: {drove:?}");
            let end = to_its_end(&town, &id, again()).await;
            assert_eq!(verified(&end), Some(true), "{point:?}");
            let all = judged(&town, &id);
            let of = |lost: bool| all.iter().filter(|one| (one.outcome == JudgeOutcome::Lost) == lost).count();
            assert_eq!((all.len(), of(true)), (asked, lost), "{point:?}: {all:?}");
            assert!(
                all.iter().filter(|one| one.outcome == JudgeOutcome::Lost).all(|one| one.settled == Settled::Estimated)
            );
        });
    }
}

/// A stop with a judge in flight ends it at once, settled.
#[test]
fn a_run_is_suspended_with_a_judge_in_flight() {
    in_virtual_time(async {
        let (town, id, task) = town(&[opinion()]);
        town.arbiter.script([Answer { after: Duration::from_secs(3_000), ..Answer::say(GOOD) }, Answer::say(GOOD)]);
        town.brain.script([Answer::say("done")]);
        let stop = Stop::new();
        let (other, told) = (Arc::clone(&town), stop.clone());
        let meddling = tokio::spawn(async move {
            while other.arbiter.sends() == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            told.now(Suspension::Terminated);
        });
        let process = town.process("h1");
        let drove = town.drive(&process, &id, new(task), WhenAsked::Park, stop).await;
        meddling.abort();
        assert!(matches!(drove, Drove::Back(Ok(_))), "{drove:?}");
        assert!(town.record.elapsed() < Duration::from_secs(100));
        assert_eq!(judged(&town, &id).len(), 1, "it is settled");
        assert_eq!(verified(&to_its_end(&town, &id, again()).await), None);
    });
}
