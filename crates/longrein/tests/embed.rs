//! The door for programs that embed Longrein: typed functions as tools, runs as handles.
#![expect(clippy::unwrap_used, reason = "a test fails where it is wrong")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longrein::core::ids::{ActionId, Digest, TurnId};
use longrein::core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein::core::prompt::{Item, Prompt};
use longrein::ports::{BoxFuture, Encoded, Listener, Model, Spoken};
use longrein::{
    Call, CallError, ContextSpec, Error, LanguageModel, Line, Longrein, Mode, ModelConfig, NoArgs, Route, RunOutcome,
    RunState, Script, Task, Tool, Trigger, WhenAsked,
};
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    /// Its name in English.
    name: String,
    #[serde(default)]
    days: u8,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Payment {
    order: String,
    amount: u32,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, Debug, PartialEq)]
struct Weather {
    celsius: f64,
}

fn temperature() -> Tool {
    Tool::read("temperature", "Degrees in a city.", |city: City, _: Call| async move {
        if city.name.is_empty() {
            return Err(CallError::new("The name is empty.").class("no_city").at("/name").hint("Give a name."));
        }
        Ok(json!({ "city": city.name, "celsius": -3.5, "days": city.days }))
    })
}

/// How often something happened.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Starts the task in a store in memory and waits; the lines and the outcome.
async fn play(task: Task) -> (Vec<Line>, RunOutcome) {
    let longrein = Longrein::open("memory:").unwrap();
    let mut run = longrein.start(task).await.unwrap();
    let lines = lines(&mut run).await;
    (lines, run.await.unwrap())
}

async fn lines(run: &mut longrein::Run) -> Vec<Line> {
    let mut lines = Vec::new();
    while let Some(line) = run.next().await {
        lines.push(line.unwrap());
    }
    lines
}

fn kinds(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(Line::kind).collect()
}

fn of_kind<'a>(lines: &'a [Line], kind: &str) -> Vec<&'a Line> {
    lines.iter().filter(|line| line.kind() == kind).collect()
}

#[tokio::test]
async fn a_typed_function_is_a_tool_and_the_answer_a_type() {
    let script = Script::new().call("temperature", json!({ "name": "Oslo" })).json(json!({ "celsius": -3.5 }));
    let (lines, outcome) = play(Task::new("How cold?").model(script).tool(temperature()).answer::<Weather>()).await;
    assert_eq!(
        kinds(&lines),
        [
            "run.started",
            "run.claimed",
            "model.requested",
            "model.replied",
            "action.proposed",
            "action.started",
            "action.finished",
            "model.requested",
            "model.replied",
            "answer.accepted",
            "run.ended"
        ]
    );
    assert!(lines.iter().zip(1..).all(|(line, seq)| line.seq() == seq), "numbered from 1 without gaps");
    assert_eq!(lines[6].field("data"), &json!({ "city": "Oslo", "celsius": -3.5, "days": 0 }), "defaults filled in");
    assert_eq!(lines[10].field("state"), "done");
    assert_eq!(outcome.state, RunState::Done);
    assert_eq!(outcome.answer_as::<Weather>().unwrap(), Weather { celsius: -3.5 });
    assert_eq!(outcome.spent.turns, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_followed_from_a_spawned_task() {
    let longrein = Longrein::open("memory:").unwrap();
    let followed = tokio::spawn(async move {
        let script = Script::new().call("temperature", json!({ "name": "Oslo" })).text("cold");
        let mut run = longrein.start(Task::new("How cold?").model(script).tool(temperature())).await?;
        while let Some(line) = run.next().await {
            assert_eq!(line?.field("run"), run.id().as_str());
            assert!(run.questions().await?.is_empty());
        }
        run.await
    });
    assert!(followed.await.unwrap().unwrap().is_done());
}

#[test]
fn it_works_on_any_flavour_of_runtime() {
    let script = || Script::new().call("temperature", json!({ "name": "Oslo" })).text("cold");
    for mut builder in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        let (_, outcome) = runtime.block_on(play(Task::new("How cold?").model(script()).tool(temperature())));
        assert_eq!(outcome.text.as_deref(), Some("cold"));
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_and_never_reach_the_function() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Range {
        #[serde(deserialize_with = "small")]
        to: u32,
    }
    // The type asks for more than its schema says.
    fn small<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let number: u32 = serde::Deserialize::deserialize(from)?;
        if number < 10 { Ok(number) } else { Err(serde::de::Error::custom("to is 10 or more")) }
    }
    let called = Count::default();
    let (city, range) = (called.clone(), called.clone());
    let script = Script::new()
        .calls([
            ("city", json!({ "nam": "Oslo" })),
            ("city", json!({ "name": "Oslo", "days": 300 })),
            ("city", json!({ "name": "Oslo", "hours": 3 })),
            ("range", json!({ "to": 11 })),
            ("rnge", json!({})),
            ("range", json!({ "to": 9 })),
        ])
        .text("done");
    let task = Task::new("test")
        .model(script)
        .tool(Tool::read("city", "A city.", move |_: City, _: Call| {
            city.up();
            async { Ok(()) }
        }))
        .tool(Tool::read("range", "A range.", move |range_given: Range, _: Call| {
            range.up();
            async move { Ok(range_given.to) }
        }));
    let (lines, _) = play(task).await;
    let errors: Vec<&Value> = of_kind(&lines, "action.refused").iter().map(|line| line.field("error")).collect();
    let found: Vec<_> = errors.iter().map(|error| (error["class"].as_str(), error["field"].as_str())).collect();
    assert_eq!(
        found,
        [
            (Some("invalid_arguments"), Some("/nam")),
            (Some("invalid_arguments"), Some("/days")),
            (Some("invalid_arguments"), Some("/hours")),
            (Some("invalid_arguments"), None),
            (Some("unknown_tool"), None),
        ],
        "{errors:?}"
    );
    assert!(errors[0]["hint"].as_str().unwrap().contains("Did you mean name?"), "{}", errors[0]);
    assert!(errors[3]["message"].as_str().unwrap().contains("to is 10 or more"), "{}", errors[3]);
    assert_eq!(called.now(), 1, "only the call that fits");
}

#[tokio::test]
async fn an_error_of_a_function_reaches_the_model_with_its_parts() {
    let fails = Tool::read("fails", "Fails.", |_: NoArgs, _: Call| async {
        let number: u32 = "x".parse()?;
        Ok(number)
    });
    let script = Script::new().calls([("temperature", json!({ "name": "" })), ("fails", json!({}))]).text("done");
    let (lines, _) = play(Task::new("test").model(script).tool(temperature()).tool(fails)).await;
    let ends = of_kind(&lines, "action.finished");
    assert_eq!(ends[0].field("outcome"), "error");
    assert_eq!(
        ends[0].field("error"),
        &json!({ "class": "no_city", "message": "The name is empty.", "field": "/name", "hint": "Give a name." })
    );
    assert_eq!(ends[1].field("error")["message"], "invalid digit found in string");
}

#[tokio::test]
async fn a_panic_ends_its_call_alone() {
    let longrein = Longrein::open("memory:").unwrap();
    let task = Task::new("test")
        .model(Script::new().call("look", json!({})).call("pay", json!({})).text("paid"))
        .tool(Tool::read("look", "Looks.", |_: NoArgs, _: Call| async {
            if true {
                panic!("no eyes");
            }
            Ok(())
        }))
        .tool(Tool::external("pay", "Pays.", |_: NoArgs, _: Call| -> std::future::Ready<Result<(), CallError>> {
            panic!("no purse")
        }))
        .allow("pay");
    let mut run = longrein.start(task).await.unwrap();
    let lines = lines(&mut run).await;
    let ends = of_kind(&lines, "action.finished");
    assert_eq!((ends[0].field("outcome"), &ends[0].field("error")["class"]), (&json!("error"), &json!("panic")));
    assert_eq!(ends[0].field("error")["message"], "look panicked: no eyes");
    assert_eq!(ends[1].field("outcome"), "unknown", "nobody knows how far it came");
    let id = run.id().clone();
    let outcome = run.await.unwrap();
    assert_eq!((outcome.state, outcome.unknown.as_slice()), (RunState::Waiting, [ActionId(2)].as_slice()));
    longrein.settle(&id, ActionId(2), Some(json!("receipt 7")), "ops").await.unwrap();
    let outcome = longrein.resume(&id).await.unwrap().await.unwrap();
    assert_eq!((outcome.state, outcome.text.as_deref()), (RunState::Done, Some("paid")));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_does_not_return_is_dropped_in_its_time() {
    struct Dropped(Count);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.up();
        }
    }
    let dropped = Count::default();
    let counts = dropped.clone();
    let slow = Tool::read("slow", "Never ends.", move |_: NoArgs, _: Call| {
        let guard = Dropped(counts.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(())
        }
    });
    let script = Script::new().call("slow", json!({})).text("done");
    let (lines, outcome) = play(Task::new("test").model(script).tool(slow.timeout(Duration::from_millis(50)))).await;
    let end = of_kind(&lines, "action.finished")[0].field("error");
    assert_eq!((&end["class"], &end["message"]), (&json!("timeout"), &json!("slow has not returned after 50ms.")));
    assert_eq!(dropped.now(), 1);
    assert!(outcome.is_done());
}

/// An external call that takes longer than it may, beside another tool that would get in its way.
async fn overtime(returns_after: Duration) -> (Vec<Line>, RunOutcome) {
    let slow = Tool::external("slow", "Takes its time.", move |_: NoArgs, call: Call| async move {
        tokio::time::sleep(returns_after).await;
        assert!(call.is_cancelled(), "it was told that nobody waits any more");
        Ok("sent")
    });
    let script = Script::new().calls([("slow", json!({})), ("slow", json!({}))]).call("slow", json!({})).text("done");
    let slow = slow.timeout(Duration::from_millis(200)).tell_unknown().max_calls(2);
    play(Task::new("test").model(script).tool(slow).allow("slow")).await
}

#[tokio::test]
async fn an_effect_past_its_time_is_unknown_keeps_its_hold_and_is_heard_out() {
    let (lines, outcome) = overtime(Duration::from_millis(300)).await;
    let place = |kind: &str, action: &str| {
        let is_it = |line: &Line| line.kind() == kind && line.field("action") == action;
        lines.iter().position(is_it).unwrap_or_else(|| panic!("no {kind} of {action}: {:?}", kinds(&lines)))
    };
    assert_eq!(lines[place("action.finished", "a1")].field("outcome"), "unknown");
    assert_eq!(lines[place("action.settled", "a1")].field("data"), "sent");
    assert!(place("action.settled", "a1") < place("action.started", "a2"), "it kept its hold until it returned");
    assert!(outcome.is_done(), "everything is known: {outcome:?}");
}

#[tokio::test]
async fn an_effect_that_never_returns_is_given_up_in_the_end() {
    let (lines, outcome) = overtime(Duration::from_secs(3600)).await;
    assert!(of_kind(&lines, "action.settled").is_empty());
    assert_eq!(of_kind(&lines, "action.started").len(), 2, "its hold was free once it was given up");
    assert_eq!((outcome.state, outcome.unknown.len()), (RunState::Waiting, 2));
}

#[tokio::test]
async fn dropping_a_run_suspends_it_and_resuming_goes_on() {
    let longrein = Longrein::open("memory:").unwrap();
    let (started, paid) = (Count::default(), Count::default());
    let (starts, pays) = (started.clone(), paid.clone());
    let pay = Tool::external("pay", "Pays.", move |_: NoArgs, _: Call| {
        pays.up();
        async { Ok("paid") }
    });
    let look = Tool::read("look", "Hangs at first.", move |_: NoArgs, _: Call| {
        let first = starts.up() == 1;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok("seen")
        }
    });
    let script = Script::new().call("pay", json!({})).call("look", json!({})).text("done");
    let run = longrein.start(Task::new("test").model(script).tools([pay, look]).allow("pay")).await.unwrap();
    let id = run.id().clone();
    while started.now() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(run);
    // At once: it waits until the run is left.
    let mut run = longrein.resume(&id).await.unwrap();
    let lines = lines(&mut run).await;
    assert_eq!(lines[0].kind(), "run.claimed", "of a resumed run, the events from there on");
    assert!(run.await.unwrap().is_done());
    assert_eq!((paid.now(), started.now()), (1, 2), "the effect is not repeated, the read is");
    let mut before = Vec::new();
    longrein.runs().fold(&id, |record| before.push(record.clone())).await.unwrap();
    let is_suspended = |record: &longrein::ports::Recorded| match &record.body {
        longrein::ports::RecordedBody::Known(event) => event.kind().as_str() == "run.suspended",
        longrein::ports::RecordedBody::Unknown { .. } | longrein::ports::RecordedBody::Damaged { .. } => false,
    };
    assert_eq!(before.iter().filter(|record| is_suspended(record)).count(), 1);
}

#[tokio::test]
async fn suspending_says_when_it_is_written() {
    let longrein = Longrein::open("memory:").unwrap();
    let hangs = Tool::read("hangs", "Hangs.", |_: NoArgs, _: Call| async {
        std::future::pending::<()>().await;
        Ok(())
    });
    let script = Script::new().call("hangs", json!({})).text("done");
    let run = longrein.start(Task::new("test").model(script).tool(hangs)).await.unwrap();
    let id = run.id().clone();
    let outcome = run.suspend().await.unwrap();
    assert_eq!(outcome.state, RunState::Suspended(longrein::core::event::Suspension::Dropped));
    let (row, holder) = longrein.runs().listed(&id).await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), holder), ("suspended", None));
}

fn pay(paid: &Count) -> Tool {
    let paid = paid.clone();
    Tool::external("pay", "Pays an order.", move |payment: Payment, call: Call| {
        paid.up();
        async move {
            let key = call.idempotency_key().map(str::to_owned);
            Ok(json!({ "order": payment.order, "amount": payment.amount, "has_key": key.is_some() }))
        }
    })
    .key(["order"])
}

#[tokio::test]
async fn a_question_parks_the_run_until_it_is_answered() {
    let longrein = Longrein::open("memory:").unwrap();
    let paid = Count::default();
    let order = json!({ "order": "o1", "amount": 5 });
    let script = Script::new().call("pay", &order).call("pay", &order).text("paid");
    let run = longrein.start(Task::new("test").model(script).tool(pay(&paid))).await.unwrap();
    let id = run.id().clone();
    let outcome = run.await.unwrap();
    assert_eq!(outcome.state, RunState::Waiting);
    let question = &outcome.questions[0];
    assert_eq!((question.tool.as_str(), &question.args), ("pay", &json!({ "order": "o1", "amount": 5 })));
    assert_eq!(paid.now(), 0);
    assert!(matches!(longrein.approve(&id, ActionId(9), "ops").await, Err(Error::NotAsked { .. })));
    longrein.approve(&id, question.action, "ops").await.unwrap();
    let outcome = longrein.resume(&id).await.unwrap().await.unwrap();
    assert_eq!((outcome.state, paid.now()), (RunState::Waiting, 1), "a yes is for one action");
    longrein.approve(&id, outcome.questions[0].action, "ops").await.unwrap();
    let mut run = longrein.resume(&id).await.unwrap();
    let lines = lines(&mut run).await;
    assert_eq!(of_kind(&lines, "action.finished")[0].field("replayed"), true, "same key, same arguments");
    let outcome = run.await.unwrap();
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!(paid.now(), 1);
}

#[tokio::test]
async fn a_run_that_stays_is_answered_in_the_hand() {
    let longrein = Longrein::builder("memory:").when_asked(WhenAsked::Stay).open().unwrap();
    let paid = Count::default();
    let script = Script::new()
        .call("pay", json!({ "order": "o1", "amount": 5 }))
        .call("pay", json!({ "order": "o2", "amount": 6 }))
        .text("paid one");
    let mut run = longrein.start(Task::new("test").model(script).tool(pay(&paid))).await.unwrap();
    let mut asked = 0;
    while let Some(line) = run.next().await {
        let line = line.unwrap();
        if line.kind() == "action.held" {
            asked += 1;
            let action = run.questions().await.unwrap()[0].action;
            if asked == 1 {
                run.approve(action, "ops").await.unwrap();
            } else {
                run.deny(action, "ops", "one is enough").await.unwrap();
            }
        }
        if line.kind() == "action.denied" {
            assert_eq!(line.field("reason"), "one is enough");
        }
    }
    assert!(run.await.unwrap().is_done());
    assert_eq!((asked, paid.now()), (2, 1));
}

#[tokio::test]
async fn a_cancelled_run_rests_and_its_tools_are_told() {
    let longrein = Longrein::open("memory:").unwrap();
    let (started, told) = (Count::default(), Count::default());
    let (starts, tells) = (started.clone(), told.clone());
    let send = Tool::external("send", "Sends until it is called off.", move |_: NoArgs, call: Call| {
        starts.up();
        let tells = tells.clone();
        async move {
            call.cancelled().await;
            tells.up();
            Err::<(), _>(CallError::new("called off").not_done())
        }
    });
    let script = Script::new().call("send", json!({})).text("done");
    let run = longrein.start(Task::new("test").model(script).tool(send).allow("send")).await.unwrap();
    while started.now() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run.cancel().await.unwrap();
    let id = run.id().clone();
    let outcome = run.await.unwrap();
    assert_eq!((outcome.state, told.now()), (RunState::Cancelled, 1));
    assert_eq!(outcome.unknown, [], "it says itself that nothing happened");
    assert!(matches!(longrein.send(&id, "more").await, Err(Error::Closed(_))));
}

#[tokio::test]
async fn the_same_id_is_the_same_run() {
    let longrein = Longrein::open("memory:").unwrap();
    let task = || Task::new("How cold?").id("weather-1").model(Script::new().text("cold"));
    assert!(longrein.start(task()).await.unwrap().await.unwrap().is_done());
    let mut again = longrein.start(task()).await.unwrap();
    assert_eq!(kinds(&lines(&mut again).await), ["run.ended"]);
    assert_eq!(again.await.unwrap().text.as_deref(), Some("cold"), "stored; the script has no second reply");
    let other = longrein.start(task().constraint("Be brief.")).await.unwrap_err();
    assert!(matches!(&other, Error::OtherTask { parts, .. } if *parts == ["constraints"]), "{other}");
    assert!(matches!(longrein.start(task().id("no such id!")).await, Err(Error::Task(_))));
}

#[tokio::test]
async fn a_program_says_how_the_window_is_kept() {
    let longrein = Longrein::open("memory:").unwrap();
    let context = ContextSpec { trigger: Trigger::At(600), target: 250, ..ContextSpec::default() };
    let task = |context: &ContextSpec| Task::new("test").model(Script::new().text("done")).context(context.clone());
    let run = longrein.start(task(&context)).await.unwrap();
    let id = run.id().clone();
    assert!(run.await.unwrap().is_done());
    let folded = longrein.runs().fold(&id, |_| {}).await.unwrap();
    assert_eq!(folded.task.context, context);
    let sent = longrein.runs().sent_request(&id, TurnId(1)).await.unwrap();
    assert!(sent.pieces.iter().any(|piece| piece.zone == "system" && piece.tokens > 0));
    // A script written in code is no model that could be connected to again.
    assert!(sent.body_as_sent(&ModelConfig::default()).is_err());
    for wrong in [ContextSpec { target: 900, ..context.clone() }, ContextSpec { trigger: Trigger::At(0), ..context }] {
        let refused = longrein.start(task(&wrong)).await.unwrap_err();
        assert!(matches!(&refused, Error::Task(problem) if problem.starts_with("context.")), "{refused}");
    }
}

#[tokio::test]
async fn a_later_process_goes_on_with_the_functions_it_brings() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("runs.db").display());
    let paid = Count::default();
    let script = || Script::new().call("pay", json!({ "order": "o1", "amount": 5 })).text("paid");
    let id = {
        let longrein = Longrein::open(&store).unwrap();
        let run = longrein.start(Task::new("test").model(script()).tool(pay(&paid))).await.unwrap();
        let id = run.id().clone();
        let outcome = run.await.unwrap();
        longrein.approve(&id, outcome.questions[0].action, "ops").await.unwrap();
        id
    };
    let without = Longrein::builder(&store).model(script()).open().unwrap();
    let error = without.resume(&id).await.unwrap_err().to_string();
    assert!(error.contains("tool pay is a function"), "{error}");
    let other = Longrein::builder(&store).model(script()).tools([pay(&paid).version("2")]).open().unwrap();
    let error = other.resume(&id).await.unwrap_err().to_string();
    assert!(error.contains("version \"1\"") && error.contains("version \"2\""), "{error}");
    let with = Longrein::builder(&store).model(script()).tools([pay(&paid)]).open().unwrap();
    let outcome = with.resume(&id).await.unwrap().await.unwrap();
    assert!(outcome.is_done());
    assert_eq!(paid.now(), 1);
    assert!(matches!(with.resume(&longrein::core::ids::RunId::new("none")).await, Err(Error::NoSuchRun(_))));
}

#[tokio::test]
async fn secrets_and_large_results_go_the_way_of_every_result() {
    let longrein = Longrein::builder("memory:").secret("TOKEN", "hunter2hunter2").open().unwrap();
    let leaks = Tool::read("leaks", "Leaks.", |_: NoArgs, _: Call| async { Ok(json!({ "k": "hunter2hunter2" })) });
    let fails = Tool::read("fails", "Leaks.", |_: NoArgs, _: Call| async {
        Err::<(), _>(CallError::new("no: hunter2hunter2").hint("\u{1b}[1mhunter2hunter2"))
    });
    let large = Tool::read("large", "Much.", |_: NoArgs, _: Call| async { Ok("x".repeat(100_000)) });
    let flood = Tool::read("flood", "Too much.", |_: NoArgs, _: Call| async { Ok("x".repeat(5_000_000)) });
    let calls = ["leaks", "fails", "large", "flood"].map(|tool| (tool, json!({})));
    let script = Script::new().calls(calls).text("done");
    let task = Task::new("test").model(script).tools([leaks, fails, large, flood]);
    let mut run = longrein.start(task).await.unwrap();
    let lines = lines(&mut run).await;
    let mut ends = of_kind(&lines, "action.finished");
    ends.sort_by_key(|line| line.field("action").as_str().unwrap().to_owned());
    assert_eq!(ends[0].field("data"), &json!({ "k": "[redacted:TOKEN]" }));
    assert_eq!(ends[1].field("error")["message"], "no: [redacted:TOKEN]");
    assert_eq!(ends[1].field("error")["hint"], "[redacted:TOKEN]");
    assert_eq!(ends[2].field("data")["bytes"], 100_002);
    assert_eq!(ends[3].field("error")["class"], "output_too_large");
}

#[tokio::test]
async fn evidence_inputs_and_principal_reach_the_function() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Of {
        source: String,
    }
    let read = Tool::read("metrics", "Reads.", |_: NoArgs, call: Call| async move { call.input::<Value>("metrics") });
    let rate = Tool::read("rate", "Computes.", |of: Of, call: Call| async move {
        let metrics: Value = call.evidence("source")?;
        let who: Value = call.principal()?;
        Ok(json!({ "cited": of.source, "errors": metrics["errors"], "for": who["user"], "action": call.action() }))
    })
    .cites("source", "metrics");
    let script = Script::new()
        .call("metrics", json!({}))
        .calls([("rate", json!({ "source": "e1" })), ("rate", json!({ "source": "e7" }))])
        .text("done");
    let task = Task::new("test")
        .model(script)
        .tools([read, rate])
        .input("metrics", json!({ "errors": 12 }))
        .principal(json!({ "user": "ops" }));
    let (lines, _) = play(task).await;
    let ends = of_kind(&lines, "action.finished");
    assert_eq!(ends[1].field("data"), &json!({ "cited": "e1", "errors": 12, "for": "ops", "action": "a2" }));
    assert_eq!(of_kind(&lines, "action.refused")[0].field("error")["class"], "evidence");
}

#[tokio::test]
async fn an_effect_that_ended_in_doubt_is_reconciled_by_its_function() {
    for (took_effect, expected) in [(true, "done"), (false, "not_done")] {
        let send = Tool::external("send", "Sends.", |_: Payment, _: Call| async {
            Err::<(), _>(CallError::new("connection reset"))
        })
        .reconcile(move |payment: Payment, call: Call| async move {
            assert_eq!((call.action(), call.attempt()), (ActionId(1), 1));
            Ok(took_effect.then_some(payment.order))
        })
        .settle_after(Duration::ZERO);
        let script = Script::new().call("send", json!({ "order": "o1", "amount": 5 })).text("done");
        let (lines, outcome) = play(Task::new("test").model(script).tool(send).allow("send")).await;
        let ends = of_kind(&lines, "action.finished");
        let last = ends.last().unwrap();
        assert_eq!((last.field("outcome"), last.field("how")), (&json!(expected), &json!("reconciled")), "{last}");
        assert!(outcome.is_done());
    }
}

#[tokio::test]
async fn a_model_of_the_program_answers() {
    /// Calls the tool it is offered, then says what it was told.
    struct Parrot;
    impl Model for Parrot {
        fn encode(&self, prompt: &Prompt) -> Encoded {
            let heard = prompt.items.iter().rev().find_map(|item| match item.as_ref() {
                Item::Observation { text, .. } => Some(text.clone()),
                Item::User(_)
                | Item::Pictured { .. }
                | Item::Exhibit { .. }
                | Item::Assistant { .. }
                | Item::Harness(_) => None,
            });
            let bytes = heard.unwrap_or_default().into_bytes();
            Encoded {
                digest: Digest::of(&bytes),
                bytes: bytes.into(),
                position: prompt.position,
                answer: prompt.answer.clone(),
            }
        }
        fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
            Box::pin(async move {
                let heard = String::from_utf8_lossy(&request.bytes).into_owned();
                let call = RawCall {
                    id: String::new(),
                    name: "temperature".to_owned(),
                    arguments: json!({ "name": "Oslo" }).to_string(),
                };
                let calls = if heard.is_empty() { vec![call] } else { Vec::new() };
                Ok(Reply { text: heard, calls, finish: Finish::Stop, usage: None, repaired: None, wired: None })
            })
        }
    }
    let model = LanguageModel::own("mine/parrot", Arc::new(Parrot));
    let (_, outcome) = play(Task::new("How cold?").model(model).tool(temperature())).await;
    assert!(outcome.text.unwrap().contains("-3.5"));
}

#[tokio::test]
async fn a_message_reopens_a_run_that_had_ended() {
    let longrein = Longrein::open("memory:").unwrap();
    let task = || Task::new("How cold?").id("r").model(Script::new().text("cold").text("very"));
    assert!(longrein.start(task()).await.unwrap().await.unwrap().is_done());
    let id = longrein::core::ids::RunId::new("r");
    longrein.send(&id, "How cold exactly?").await.unwrap();
    let outcome = longrein.start(task()).await.unwrap().await.unwrap();
    assert_eq!(outcome.text.as_deref(), Some("very"));
}

#[tokio::test]
async fn a_task_that_cannot_run_is_refused_before_anything_starts() {
    let longrein = Longrein::open("memory:").unwrap();
    let named = || Task::new("test").model(Script::new().text("done"));
    let bad_name = Tool::read("no name", "", |_: NoArgs, _: Call| async { Ok(()) });
    let no_object = Tool::read("numbers", "", |_: Vec<u8>, _: Call| async { Ok(()) });
    for (task, problem) in [
        (Task::new("test"), "no model"),
        (named().tool(bad_name), "no tool name"),
        (named().tool(no_object), "type must be \"object\""),
        (named().tool(temperature()).tool(temperature()), "two tools are called temperature"),
        (named().tool(temperature()).deny("temprature"), "near it: temperature"),
        (named().tool(temperature().guard("args.name ==", "")), "guard"),
        (named().tool(temperature().requires(["map"])), "which no tool provides"),
        (named().tool(temperature().key(["name"])), "for external tools"),
        (named().check("tests", ["true"]), "need a folder"),
        (named().workspace("/no/such/folder"), "/no/such/folder"),
        (Task::new("test").model("nobody/none"), "unknown model provider"),
        (Task::new("test").model("openai/x").max_micros(5), "is not known"),
        (Task::new(" ").model("openai/x"), "no goal"),
    ] {
        match longrein.start(task).await {
            Err(Error::Task(found)) => assert!(found.contains(problem), "{problem}: {found}"),
            other => panic!("{problem}: {other:?}"),
        }
    }
    assert!(longrein.runs().list().await.unwrap().is_empty());
}

#[tokio::test]
async fn commands_and_checks_work_beside_functions() {
    let folder = tempfile::tempdir().unwrap();
    let longrein = Longrein::builder("memory:").environment(std::env::vars()).open().unwrap();
    let path = folder.path().join("note.txt");
    let write = Tool::workspace("write", "Writes the note.", move |city: City, _: Call| {
        let path = path.clone();
        async move { Ok(std::fs::write(path, city.name)?) }
    });
    let show = Tool::command("show", "Shows the note.", longrein::Effect::Read, ["cat", "note.txt"]);
    let script = Script::new().call("write", json!({ "name": "Oslo" })).call("show", json!({})).text("written");
    let task = Task::new("test")
        .model(script)
        .tools([write, show])
        .allow("write")
        .workspace(folder.path())
        .check("it is there", ["grep", "-q", "Oslo", "note.txt"]);
    let mut run = longrein.start(task).await.unwrap();
    let lines = lines(&mut run).await;
    assert_eq!(of_kind(&lines, "action.finished")[1].field("data"), "Oslo");
    let outcome = run.await.unwrap();
    assert_eq!((outcome.state, outcome.verified), (RunState::Done, Some(true)));
}

#[test]
fn errors_and_handles_can_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Error>();
    crosses::<Longrein>();
    crosses::<Tool>();
    crosses::<Task>();
    crosses::<longrein::Run>();
    fn moves<T: Send + 'static>() {}
    moves::<longrein::Run>();
    moves::<<longrein::Run as std::future::IntoFuture>::IntoFuture>();
}

#[tokio::test]
async fn law_8_a_program_chooses_the_permission_mode() {
    let paid = Count::default();
    let pay = |paid: &Count| {
        let paid = paid.clone();
        Tool::external("pay", "Pays.", move |_: NoArgs, _: Call| {
            let paid = paid.clone();
            async move { Ok(json!({ "times": paid.up() })) }
        })
    };
    let script = || Script::new().call("pay", json!({})).text("Paid, I would say.");
    let task =
        |mode: Mode| Task::new("Pay.").id("m").model(script()).tool(pay(&paid)).allow("pay").permission_mode(mode);
    let (lines, outcome) = play(task(Mode::Shadow)).await;
    assert_eq!((paid.now(), outcome.state), (0, RunState::Failed(longrein::core::event::Failure::Shadow)));
    assert!(outcome.reason.contains("1 would have been allowed"), "{}", outcome.reason);
    let refused = lines.iter().find(|line| line.kind() == "action.refused").unwrap();
    assert_eq!(refused.json()["would"]["ruling"], "allow");
    let (_, outcome) = play(task(Mode::Plan)).await;
    assert_eq!((paid.now(), outcome.state), (0, RunState::Done));
    let (_, outcome) = play(task(Mode::Ask)).await;
    assert_eq!((paid.now(), outcome.state), (1, RunState::Done));
}

/// Says pieces with rests between them, and ends as it is told, once for each call.
struct Speaker(std::sync::Mutex<Vec<Speech>>);

/// What is heard of an attempt, and what it comes to.
type Speech = (Vec<Spoken<'static>>, Result<Reply, ModelFailure>);

impl Speaker {
    fn of(calls: Vec<(Vec<Spoken<'static>>, Result<Reply, ModelFailure>)>) -> Arc<Self> {
        Arc::new(Self(std::sync::Mutex::new(calls)))
    }
}

impl Model for Speaker {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        let bytes = prompt.items.len().to_string().into_bytes();
        let (digest, position) = (Digest::of(&bytes), prompt.position);
        Encoded { digest, bytes: bytes.into(), position, answer: prompt.answer.clone() }
    }
    fn send(&self, _: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        unreachable!("a run listens")
    }
    fn send_heard<'a>(&'a self, _: Encoded, listener: &'a dyn Listener) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            let (pieces, ended) = self.0.lock().unwrap().remove(0);
            for piece in pieces {
                listener.hear(piece);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ended
        })
    }
}

fn says(text: &str) -> Result<Reply, ModelFailure> {
    let text = text.to_owned();
    Ok(Reply { text, calls: Vec::new(), finish: Finish::Stop, usage: None, repaired: None, wired: None })
}

fn fails(class: ModelErrorClass) -> Result<Reply, ModelFailure> {
    Err(ModelFailure {
        class,
        message: "no".to_owned(),
        status: None,
        retry_after_s: None,
        billing: Billing::Nothing,
        usage: None,
        partial: None,
        served: None,
    })
}

#[tokio::test]
async fn a_reply_is_seen_while_it_comes_in() {
    let speaker = Speaker::of(vec![
        (vec![Spoken::Text("half")], fails(ModelErrorClass::Transient)),
        (vec![Spoken::Thought("hm"), Spoken::Text("It is "), Spoken::Text("cold.")], says("It is cold.")),
    ]);
    let task = Task::new("How cold?").model(LanguageModel::own("mine/speaker", speaker));
    let (lines, outcome) = play(task).await;
    assert_eq!(outcome.text.as_deref(), Some("It is cold."));
    let of_model = |line: &&Line| line.kind().starts_with("model.") || line.kind().starts_with("progress.");
    let told: Vec<_> = lines
        .iter()
        .filter(of_model)
        .map(|line| {
            let word = |name: &str| line.field(name).as_str().unwrap_or_default().to_owned();
            [line.kind().to_owned(), word("attempt"), word("text")].join(" ").trim_end().to_owned()
        })
        .collect();
    let expected = [
        "model.requested t1.m1",
        "progress.text t1.m1 half",
        "model.failed t1.m1",
        "progress.restarted t1.m1",
        "model.requested t1.m2",
        "progress.thought t1.m2 hm",
        "progress.text t1.m2 It is",
        "progress.text t1.m2 cold.",
        "model.replied t1.m2 It is cold.",
    ];
    assert_eq!(told, expected);
    let piece = of_kind(&lines, "progress.text")[0];
    assert_eq!((piece.seq(), piece.field("seq"), piece.field("turn")), (0, &Value::Null, &json!("t1")));
}

#[tokio::test]
async fn whoever_does_not_read_keeps_nobody_waiting() {
    let piece: &'static str = "x".repeat(64 * 1024).leak();
    let speaker = Speaker::of(vec![(vec![Spoken::Text(piece); 40], says(&piece.repeat(40)))]);
    let longrein = Longrein::open("memory:").unwrap();
    let task = Task::new("Say much.").model(LanguageModel::own("mine/speaker", speaker));
    let mut run = longrein.start(task).await.unwrap();
    assert!(run.outcome().await.unwrap().is_done());
    let lines = lines(&mut run).await;
    let pieces: Vec<_> = lines.iter().filter(|line| line.kind().starts_with("progress.")).map(Line::kind).collect();
    assert_eq!(pieces, ["progress.restarted"], "what was not kept is void, and the reply says it all");
    assert_eq!(of_kind(&lines, "model.replied")[0].field("text").as_str().map(str::len), Some(40 * 64 * 1024));
}

#[tokio::test]
async fn a_route_leads_to_another_model_of_the_program() {
    let main = LanguageModel::own("mine/main", Speaker::of(vec![(Vec::new(), fails(ModelErrorClass::Quota))]));
    let other = || LanguageModel::own("mine/other", Speaker::of(vec![(Vec::new(), says("from elsewhere"))]));
    let never = LanguageModel::own("mine/never", Speaker::of(Vec::new()));
    let task = Task::new("Go on.")
        .model(main.clone())
        .route(Route::to(never).on([ModelErrorClass::Malformed]))
        .route(Route::to(other()));
    let (lines, outcome) = play(task).await;
    assert_eq!(outcome.text.as_deref(), Some("from elsewhere"));
    let routed = of_kind(&lines, "model.routed");
    assert_eq!((routed.len(), routed[0].field("model")), (1, &json!("mine/other")));

    let longrein = Longrein::open("memory:").unwrap();
    let task = || Task::new("Go on.").model(main.clone());
    for (task, problem) in [
        (task().route(Route::to(main.clone())), "two models are called mine/main"),
        (task().route(Route::to(other()).spent_over(5)), "price of mine/other is not known"),
        (task().route(Route::to(other()).phase("review")), "no phase \"review\""),
        (task().route(Route::to(other()).on([ModelErrorClass::Script])), "no route is taken there"),
    ] {
        let error = longrein.start(task).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
