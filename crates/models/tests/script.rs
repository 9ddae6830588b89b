//! The scripted model: which reply a request gets, and what a script may say.

mod support;

use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, Reply};
use longrein_models::script::ScriptedModel;
use longrein_ports::Model;

use support::{observation, prompt, user};

fn script(text: &str) -> ScriptedModel {
    ScriptedModel::parse(text, "test.toml").expect("a good script")
}

fn refused(text: &str) -> String {
    match ScriptedModel::parse(text, "test.toml") {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

async fn ask(model: &ScriptedModel, position: u64, words: &str) -> Result<Reply, ModelFailure> {
    model.send(model.encode(&prompt(position, vec![user(words)]))).await
}

async fn text(model: &ScriptedModel, position: u64, words: &str) -> String {
    match ask(model, position, words).await {
        Ok(reply) => reply.text,
        Err(failure) => format!("{:?}: {}", failure.class, failure.message),
    }
}

#[tokio::test]
async fn replies_by_position() {
    let toml = r#"
        [[reply]]
        calls = [{ name = "read_metrics", args = { b = 1, a = [true, 1.0] } }, { name = "x", args = "{broken", id = "c9" }]
        usage = { input = 900, output = 20, cached = 5 }
        [[reply]]
        json = { metric_id = "e1" }
    "#;
    let first = ask(&script(toml), 0, "").await.unwrap();
    assert_eq!(first.calls[0].arguments, r#"{"a":[true,1.0],"b":1}"#);
    assert_eq!((first.calls[1].arguments.as_str(), first.calls[1].id.as_str()), ("{broken", "c9"));
    assert_eq!(first.finish, Finish::ToolCalls);
    assert_eq!(first.usage.unwrap().tokens(), 925);
    // Another process, which begins at the second reply.
    let second = ask(&script(toml), 1, "").await.unwrap();
    assert_eq!((second.text.as_str(), second.finish), (r#"{"metric_id":"e1"}"#, Finish::Stop));
    assert_eq!(second.usage.unwrap().tokens(), 0);
    assert_eq!(text(&script(toml), 2, "").await, "Script: the script has 2 replies and the run asked for number 3");
}

#[tokio::test]
async fn when_is_looked_for_as_text() {
    let toml = "[[reply]]\nwhen = ['say \"hi\"', 'e1']\ntext = 'yes'";
    assert_eq!(text(&script(toml), 0, "say \"hi\" to e1").await, "yes");
    let missing = text(&script(toml), 0, "say \"hi\"").await;
    assert_eq!(missing, "Script: reply 1 of the script expects \"e1\" in the request, and it is not there");
    let model = script("[[reply]]\nwhen = 'errors: 7'\ntext = 'seen'");
    let seen = prompt(0, vec![user("go"), observation("c1", 1, "data\nerrors: 7")]);
    assert_eq!(model.send(model.encode(&seen)).await.unwrap().text, "seen");
}

const STUMBLES: &str = r#"
    [[reply]]
    text = "one"
    [[reply]]
    error = { status = 429, body = "slow down", retry_after = 2 }
    [[reply]]
    cut = true
    text = "half"
    [[reply]]
    text = "two"
    [[reply]]
    text = "three"
"#;

#[tokio::test]
async fn failures_come_before_the_reply_they_precede() {
    let model = script(STUMBLES);
    assert_eq!(text(&model, 0, "a").await, "one");
    let limited = ask(&model, 1, "b").await.unwrap_err();
    assert_eq!((limited.class, limited.status), (ModelErrorClass::RateLimited, Some(429)));
    assert_eq!((limited.retry_after_s, limited.billing), (Some(2), Billing::Nothing));
    assert!(limited.message.contains("slow down"), "{}", limited.message);
    let cut = ask(&model, 1, "b").await.unwrap_err();
    assert_eq!((cut.class, cut.billing), (ModelErrorClass::Transient, Billing::Perhaps));
    assert!(cut.partial.unwrap().as_str().contains("half"));
    assert_eq!(text(&model, 1, "b").await, "two");
    assert_eq!(text(&model, 2, "c").await, "three");
}

#[tokio::test]
async fn a_restart_goes_on_at_the_position() {
    assert_eq!(text(&script(STUMBLES), 2, "c").await, "three");
    // It does not know which failures were served, and serves them again.
    let model = script(STUMBLES);
    assert!(text(&model, 1, "b").await.starts_with("RateLimited"));
    assert!(text(&model, 1, "b").await.starts_with("Transient"));
    assert_eq!(text(&model, 1, "b").await, "two");
}

#[tokio::test]
async fn a_lost_answer_is_repeated_and_a_rejected_one_is_not() {
    let model = script("[[reply]]\ntext = 'odd'\n[[reply]]\ntext = 'good'");
    assert_eq!(text(&model, 0, "a").await, "odd");
    assert_eq!(text(&model, 0, "a").await, "odd");
    assert_eq!(text(&model, 0, "a, and your last reply was no use").await, "good");
}

#[tokio::test]
async fn replies_that_answer_nothing_take_no_position() {
    let toml = "[[reply]]\ntext = 'cu'\nfinish = 'length'\n[[reply]]\ntext = ''\n[[reply]]\ntext = 'whole'\n[[reply]]\ntext = 'next'";
    let model = script(toml);
    assert_eq!(ask(&model, 0, "a").await.unwrap().finish, Finish::Length);
    assert_eq!(text(&model, 0, "a").await, "");
    assert_eq!(text(&model, 0, "a").await, "whole");
    assert_eq!(text(&script(toml), 1, "a").await, "next");
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_before_the_reply() {
    let model = script("[[reply]]\ndelay = '300ms'\ntext = 'late'");
    let begin = tokio::time::Instant::now();
    assert_eq!(text(&model, 0, "a").await, "late");
    assert_eq!(begin.elapsed().as_millis(), 300);
}

#[tokio::test]
async fn raw_bytes_are_read_as_a_server_s() {
    let toml = r#"
        [[reply]]
        raw = "data: {\"choices\":[{\"delta\":{\"content\":\"ha"
        [[reply]]
        raw = "{\"error\":{\"message\":\"Overloaded\",\"type\":\"overloaded_error\"}}"
        [[reply]]
        raw = "{\"choices\":[{\"message\":{\"content\":\"raw\"},\"finish_reason\":\"stop\"}]}"
        [[reply]]
        error = { body = "no route" }
    "#;
    let model = script(toml);
    assert!(text(&model, 0, "a").await.starts_with("Transient"));
    assert!(text(&model, 0, "a").await.starts_with("Overloaded"));
    assert_eq!(text(&model, 0, "a").await, "raw");
    assert_eq!(text(&model, 1, "a").await, "Transient: connection failed: no route");
    assert!(text(&model, 1, "a").await.contains("the script has 1 reply and the run asked for number 2"));
}

#[test]
fn a_script_is_read_strictly() {
    assert!(refused("[[reply]]\ntexxt = 'a'").contains("unknown field `texxt`"));
    assert!(refused("[[replies]]\ntext = 'a'").contains("unknown field `replies`"));
    assert!(refused("[[reply]]\ntext='a'\nusage = { inptu = 3 }").contains("unknown field `inptu`"));
    assert!(refused("[[reply]]\nwhen = 'a'").contains("reply 1 says nothing"));
    assert!(refused("[[reply]]\ntext='a'\n[[reply]]\ntext='a'\njson={}").contains("reply 2 has `text` beside `json`"));
    assert!(refused("[[reply]]\nerror={status=500}\ntext='a'").contains("`error` beside `text`"));
    assert!(refused("[[reply]]\ntext='a'\ndelay='300'").contains("delay = \"300\""));
    assert!(refused("[[reply]]\nerror={status=500, bdy='a'}").contains("unknown field `bdy`"));
}
