//! The examples, without a run: their tools are called as a run would call them, and their answers are judged.
#![expect(clippy::unwrap_used, reason = "a test whose tool cannot be run should stop there")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longrein::taskfile::{Options, load};
use longrein_core::check::{Judgement, Standing};
use longrein_core::ids::{EvidenceId, ToolName};
use longrein_core::payload::Payload;
use longrein_core::task::Task;
use longrein_ports::Cited;
use longrein_rules::Rulebook;
use serde_json::{Value as Json, json};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples").join(name)
}

fn task(name: &str) -> Task {
    load(&example(name).join("task.toml"), &Options { here: example(name), ..Options::default() }).unwrap().task
}

/// What a tool of the task answers to a call.
fn answer(task: &Task, tool: &str, args: &Json, evidence: &Json, inputs: &Json) -> Json {
    let tool = task.tool(&ToolName::new(tool)).unwrap();
    let call = json!({ "args": args, "evidence": evidence, "inputs": inputs, "principal": {}, "idempotency_key": "k",
                       "run": "r", "action": "a7", "attempt": 1, "fence": 1 });
    let mut child = Command::new(&tool.body.command()[0])
        .args(&tool.body.command()[1..])
        .current_dir(&task.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The checkout question with this many errors, answered with this conclusion.
fn checkout(errors: u64, requests: u64, conclusion: &str) -> String {
    let task = task("checkout");
    let inputs =
        json!({ "metrics": { "service": "checkout", "errors": errors, "requests": requests, "threshold_bp": 100 } });
    let metrics = answer(&task, "read_metrics", &json!({}), &json!({}), &inputs);
    assert_eq!(metrics, inputs["metrics"]);
    let rate = answer(&task, "error_rate", &json!({ "source_id": "e1" }), &json!({ "source_id": &metrics }), &inputs);
    let cite = |tool: &str, data: &Json| Cited {
        tool: ToolName::new(tool),
        data: Payload::of(data).unwrap(),
        void_since: None,
    };
    let cited =
        BTreeMap::from([(EvidenceId(1), cite("read_metrics", &metrics)), (EvidenceId(2), cite("error_rate", &rate))]);
    let reply = json!({ "metric_id": "e1", "calculation_id": "e2", "conclusion": conclusion }).to_string();
    let book = Rulebook::of(&task).unwrap();
    assert_eq!(book.cites(task.answer.as_ref().unwrap(), &reply), [EvidenceId(1), EvidenceId(2)]);
    match book.judge(task.answer.as_ref(), &reply, &cited) {
        Judgement::Accepted(accepted) => {
            assert_eq!(accepted.standing, Standing::Proven);
            accepted.rendered
        }
        Judgement::Refused(reason) => reason,
    }
}

#[test]
fn one_number_changes_the_sentence() {
    for (errors, requests, conclusion, said) in [
        (1200, 100_000, "above", "checkout: error rate 1.20 % is above the threshold 1.00 %. Evidence: e1, e2."),
        (1300, 100_000, "above", "checkout: error rate 1.30 % is above the threshold 1.00 %. Evidence: e1, e2."),
        (900, 100_000, "not above", "checkout: error rate 0.90 % is not above the threshold 1.00 %. Evidence: e1, e2."),
        (
            1000,
            100_000,
            "not above",
            "checkout: error rate 1.00 % is not above the threshold 1.00 %. Evidence: e1, e2.",
        ),
        (1, 3, "above", "checkout: error rate 33.33 % is above the threshold 1.00 %. Evidence: e1, e2."),
        (7, 1_234_567, "not above", "checkout: error rate 0.00 % is not above the threshold 1.00 %. Evidence: e1, e2."),
    ] {
        assert_eq!(checkout(errors, requests, conclusion), said);
    }
}

#[test]
fn a_claim_that_does_not_follow_is_refused() {
    assert!(checkout(900, 100_000, "above").starts_with("The answer does not agree with the evidence it cites"));
    assert!(checkout(1200, 100_000, "not above").starts_with("The answer does not agree with the evidence it cites"));
}

#[test]
fn what_is_due_is_read_from_the_captured_input() {
    let task = task("payments");
    let due: Json =
        serde_json::from_str(&std::fs::read_to_string(example("payments").join("due.json")).unwrap()).unwrap();
    assert_eq!(answer(&task, "list_due", &json!({}), &json!({}), &json!({ "due": &due })), due);
}
