//! Attempts: what a program is given, and what its end means for each class of tool.

use std::time::{Duration, Instant};

use longrein_core::check::Finding;
use longrein_core::ids::CheckName;
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::task::CheckSpec;
use longrein_ports::{CheckRun, Handed, Ran, Reaped, Tools};

use super::*;

async fn run_as(effect: &str, script: &str) -> Ran {
    run_with(&json!({ "effect": effect, "command": ["sh", "-c", script], "timeout_ms": 500 })).await
}

async fn run_with(more: &Value) -> Ran {
    let task = task(&[tool("t", more)]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    toolbox.attempt(&task, &attempt("t", &json!({})), &Handed::default()).await
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Is {
    Done,
    Error,
    NotDone,
    Unknown,
}

fn kind(outcome: &Outcome) -> (Is, Option<&ToolError>) {
    match outcome {
        Outcome::Done(_) => (Is::Done, None),
        Outcome::Error(error) => (Is::Error, Some(error)),
        Outcome::NotDone(error) => (Is::NotDone, Some(error)),
        Outcome::Unknown(error) => (Is::Unknown, Some(error)),
    }
}

/// Runs the script as each class of tool; each ends as said, with an error of the class said.
async fn check(script: &str, expected: [(Is, &str); 3]) {
    for (effect, (is, class)) in ["read", "workspace", "external"].into_iter().zip(expected) {
        let ran = run_as(effect, script).await;
        let (found, error) = kind(&ran.outcome);
        let found_class = error.map_or("", |error| error.class.as_str());
        assert_eq!((found, found_class), (is, class), "{effect}: {script}: {ran:?}");
    }
}

use Is::{Done, Error, NotDone, Unknown};

#[tokio::test]
async fn what_an_end_means() {
    let unknown = (Unknown, class::UNKNOWN_OUTCOME);
    let doubt = (Error, class::UNKNOWN_OUTCOME);
    check("echo '{\"a\":1}'", [(Done, ""), (Done, ""), (Done, "")]).await;
    check("exit 3", [(Error, class::EXIT), (Error, class::EXIT), unknown]).await;
    check("exit 75", [(Error, class::EXIT), (Error, class::EXIT), unknown]).await;
    check("kill -9 $$", [(Error, class::EXIT), doubt, unknown]).await;
    check("sleep 9999", [(Error, class::TIMEOUT), doubt, unknown]).await;
    check("exec yes", [(Error, class::OUTPUT_TOO_LARGE), doubt, unknown]).await;
    let told = "echo '{\"error\":{\"class\":\"Not Found\",\"message\":\"no such order\"}}'";
    check(told, [(Error, "not_found"), (Error, "not_found"), unknown]).await;
    check(&format!("{told}; exit 1"), [(Error, "not_found"), (Error, "not_found"), unknown]).await;
    // whoever cuts an emoji in two tells of an error all the same
    let cut = r#"printf '%s' '{"error":{"class":"gone","message":"cut \ud83d"}}'"#;
    check(cut, [(Error, "gone"), (Error, "gone"), unknown]).await;
    let undone = "echo '{\"took_effect\": false}'";
    check(undone, [(Done, ""), (Done, ""), (NotDone, class::EXIT)]).await;
    check(&format!("{undone}; exit 4"), [(Error, class::EXIT), (Error, class::EXIT), (NotDone, class::EXIT)]).await;
    check(&format!("{undone}; sleep 9999"), [(Error, class::TIMEOUT), doubt, unknown]).await;
    check(&format!("{undone}; kill -9 $$"), [(Error, class::EXIT), doubt, unknown]).await;
    check("echo '{\"took_effect\": true}'", [(Done, ""), (Done, ""), (Done, "")]).await;
    check("echo '{\"error\": null}'", [(Done, ""), (Done, ""), (Done, "")]).await;
}

#[tokio::test]
async fn what_never_started_was_not_done() {
    for (effect, is) in [("read", Error), ("workspace", Error), ("external", NotDone)] {
        for command in [json!(["no-such-program"]), json!(["./tools/missing.sh"]), json!(["/etc/passwd"])] {
            let ran = run_with(&json!({ "effect": effect, "command": command })).await;
            let (found, error) = kind(&ran.outcome);
            assert_eq!((found, error.unwrap().class.as_str()), (is, class::INTERNAL), "{ran:?}");
        }
    }
    let mut missing = task(&[tool("t", &json!({ "effect": "external" }))]);
    missing.folder = "/no/such/folder".to_owned();
    let toolbox = Toolbox::new(&missing, &operator(), Secrets::new()).unwrap();
    let ran = toolbox.attempt(&missing, &attempt("t", &json!({})), &Handed::default()).await;
    let (found, error) = kind(&ran.outcome);
    assert_eq!(found, NotDone);
    assert!(error.unwrap().message.contains("/no/such/folder"), "{error:?}");
}

#[tokio::test]
async fn errors_speak_to_the_model() {
    let ran = run_as("read", "echo partial; echo 'cannot reach db' >&2; exit 3").await;
    let Outcome::Error(error) = ran.outcome else { panic!("{ran:?}") };
    assert_eq!(error.message, "t ended with status 3. Its last words: cannot reach db");
    assert_eq!(inline(error.data.as_ref().unwrap()), json!("partial"));

    let ran = run_as("read", "seq 100000 >&2; exit 3").await;
    let Outcome::Error(error) = ran.outcome else { panic!("{ran:?}") };
    assert!(error.message.len() < 2200 && error.message.ends_with("99999\n100000"), "{}", error.message);

    let told = r#"echo '{"error":{"class":"limit","message":"slow down","field":"/n","hint":"ask later","retry_after_s":1.5},"n":1}'"#;
    let ran = run_as("read", told).await;
    let Outcome::Error(error) = ran.outcome else { panic!("{ran:?}") };
    assert_eq!(
        (
            error.class.as_str(),
            error.message.as_str(),
            error.field.as_deref(),
            error.hint.as_deref(),
            error.retry_after_s
        ),
        ("limit", "slow down", Some("/n"), Some("ask later"), Some(2))
    );
    assert!(error.data.is_some());
}

#[tokio::test]
async fn the_object_on_stdin() {
    let task = task(&[tool("t", &json!({ "command": ["cat"] }))]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    let handed = Handed {
        evidence: [("source_id".to_owned(), payload(&json!({ "x": 1 })))].into(),
        inputs: [("metrics".to_owned(), payload(&json!([1, 2])))].into(),
        result: None,
    };
    let mut call = attempt("t", &json!({ "source_id": "e1" }));
    let printed = |ran: Ran| {
        let Outcome::Done(Content::Inline(payload)) = ran.outcome else { panic!("{ran:?}") };
        payload.as_str().to_owned()
    };
    let run = call.run.clone();
    assert_eq!(
        printed(toolbox.attempt(&task, &call, &handed).await),
        format!(
            r#"{{"args":{{"source_id":"e1"}},"evidence":{{"source_id":{{"x":1}}}},"inputs":{{"metrics":[1,2]}},"principal":{{"user":"ops"}},"run":"{run}","action":"a7","attempt":1,"fence":3}}"#
        )
    );
    call.idempotency_key = Some(digest("k"));
    let with_key = printed(toolbox.attempt(&task, &call, &handed).await);
    assert!(with_key.contains(&format!(r#""principal":{{"user":"ops"}},"idempotency_key":"{}","run""#, digest("k"))));
}

#[tokio::test]
async fn environment_and_redaction() {
    let ran = run_with(&json!({
        "command": ["sh", "-c", "env; printf '%s' \"$AUTH\" | base64 >&2; printf '%s' $TOKEN >&2; exit 1"],
        "env": ["REGION", "NOT_SET", "${secret:TOKEN}", "AUTH=user:${secret:TOKEN}", "MODE=fast",
            "ELSE=a ${secret:NOT_SET:-plain one} z", "EMPTY=${secret:NOT_SET:-}"],
    }))
    .await;
    let Outcome::Error(error) = ran.outcome else { panic!("{ran:?}") };
    let env = inline(error.data.as_ref().unwrap());
    let env = env.as_str().unwrap();
    let run = attempt("t", &json!({})).run;
    for line in [
        "REGION=north",
        "TOKEN=[redacted:TOKEN]",
        "AUTH=user:[redacted:TOKEN]",
        "MODE=fast",
        "ELSE=a plain one z",
        "EMPTY=",
        "HOME=/home/ops",
        "LC_CTYPE=C.UTF-8",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_EDITOR=false",
        "PAGER=cat",
        "TERM=dumb",
        "NO_COLOR=1",
        "PYTHONDONTWRITEBYTECODE=1",
        &format!("LONGREIN_INSIDE={run}/a7/3"),
    ] {
        assert!(env.lines().any(|have| have == line), "{line} not in\n{env}");
    }
    assert!(!env.contains("UNRELATED") && !env.contains("NOT_SET"));
    assert!(!error.message.contains("hunter2") && error.message.contains("[redacted:TOKEN]"), "{}", error.message);
    assert!(!error.message.contains("aHVudGVy") && !error.message.contains("odW50ZXIy"), "{}", error.message);
}

#[tokio::test]
async fn odd_output_stays_readable() {
    let ran = run_as("read", r"printf '\377\000\033[31mred\033[0m\n'").await;
    assert!(matches!(&ran.outcome, Outcome::Done(content) if inline(content) == json!("\u{fffd}red")), "{ran:?}");
}

#[tokio::test]
async fn large_results_come_with_their_bytes() {
    let ran = run_as("read", "seq 100000").await;
    let Outcome::Done(Content::Blob(blob)) = &ran.outcome else { panic!("{:?}", ran.outcome) };
    assert_eq!(ran.blobs.len(), 1);
    assert_eq!((&ran.blobs[0].0, Digest::of(&ran.blobs[0].1)), (&blob.digest, blob.digest.clone()));
    assert!(ran.blobs[0].1.ends_with(b"100000\""));
}

/// `failures.md` 10.7: an image does not become a megabyte of text, however large or small it is.
#[tokio::test]
async fn an_image_is_named_and_kept() {
    for (bytes, told) in [(2_000_000, "2,000,000"), (90, "90")] {
        let script = format!(
            "printf '{{\"content\":[{{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"'; \
             head -c {bytes} /dev/urandom | base64 | tr -d '\\n'; printf '\"}}],\"isError\":false}}'"
        );
        let ran = run_as("read", &script).await;
        let Outcome::Done(Content::Blob(blob)) = &ran.outcome else { panic!("{:?}", ran.outcome) };
        let shown: Value = blob.shown.read().unwrap();
        assert_eq!(shown, json!({ "content": [format!("[image image/png, {told} bytes]")], "isError": false }));
        let kept: Value = serde_json::from_slice(&ran.blobs[0].1).unwrap();
        assert!(kept["content"][0]["data"].as_str().unwrap().len() * 3 / 4 >= bytes);
    }
}

#[tokio::test]
async fn a_large_object_is_shown_as_an_object() {
    let script = r#"printf '{"items":['; seq -s, 30000 | tr -d '\n'; printf '],"total":30000,"error":null}'"#;
    let ran = run_as("read", script).await;
    let Outcome::Done(Content::Blob(blob)) = &ran.outcome else { panic!("{:?}", ran.outcome) };
    let shown: Value = blob.shown.read().unwrap();
    assert_eq!((&shown["total"], &shown["error"]), (&json!(30_000), &Value::Null));
    assert!(shown["items"].as_str().unwrap().starts_with("[array of 30,000 elements, "), "{shown}");
    assert!(blob.shown.as_str().len() <= 8 * 1024);
}

#[tokio::test]
async fn a_tool_that_never_reads_a_huge_object() {
    let task = task(&[tool("t", &json!({ "command": ["sh", "-c", "echo ok"] }))]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    let handed =
        Handed { inputs: [("big".to_owned(), Payload::string(&"x".repeat(10 << 20)))].into(), ..Handed::default() };
    let began = Instant::now();
    let ran = toolbox.attempt(&task, &attempt("t", &json!({})), &handed).await;
    assert!(matches!(ran.outcome, Outcome::Done(_)) && began.elapsed() < Duration::from_secs(5), "{ran:?}");
}

#[tokio::test]
async fn probes() {
    for (script, expected) in [
        (
            r#"echo '{"took_effect":true,"result":{"id":5}}'"#,
            ProbeAnswer::TookEffect(Content::Inline(payload(&json!({ "id": 5 })))),
        ),
        (r#"echo '{"took_effect":true}'"#, ProbeAnswer::TookEffect(Content::Inline(Payload::null()))),
        (r#"echo '{"took_effect":false}'"#, ProbeAnswer::NoEffect),
        (r#"grep -q '"action":"a7"' && echo '{"took_effect":false}'"#, ProbeAnswer::NoEffect),
    ] {
        assert_eq!(probe(script).await, expected, "{script}");
    }
    for (script, expected) in [
        (r#"echo '{"took_effect":"pending"}'"#, "pending"),
        (r#"echo '{"took_effect":true}'; exit 1"#, "status 1"),
        (r#"echo '{"took_effect":1}'"#, "not understood"),
        ("echo no idea", "not understood: no idea"),
        ("true", "not understood"),
        ("sleep 9999", "ended after"),
    ] {
        assert!(matches!(probe(script).await, ProbeAnswer::NoAnswer(why) if why.contains(expected)), "{script}");
    }
}

async fn probe(script: &str) -> ProbeAnswer {
    let more = json!({ "effect": "external", "timeout_ms": 500, "reconcile": ["sh", "-c", script] });
    let task = task(&[tool("t", &more)]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    toolbox.probe(&task, attempt("t", &json!({})), Handed::default()).await.answer
}

#[tokio::test]
async fn acceptance_commands() {
    let folder = tempfile::tempdir().unwrap();
    let task = task_in(folder.path(), &[]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    for (script, finding, status, evidence) in [
        ("pwd; echo fine >&2", Finding::Passed, Some(0), "fine"),
        ("echo broken; exit 2", Finding::Failed, Some(2), "broken\n[ended with status 2]"),
        ("kill -9 $$", Finding::Failed, None, "[ended by signal 9]"),
        ("echo slow; sleep 9999", Finding::Failed, None, "slow\n[ended by Longrein after 500ms: its time was up]"),
        ("env | grep INSIDE", Finding::Passed, Some(0), "/check-tests pass/0"),
    ] {
        let spec = CheckSpec {
            by: None,
            name: CheckName::new("tests pass"),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            timeout: Duration::from_millis(500),
            protect: Vec::new(),
        };
        let run = CheckRun { run: attempt("t", &json!({})).run, spec, about: Default::default() };
        let checked = toolbox.run_check(&task, &run).await;
        assert_eq!((checked.verdict.finding, checked.verdict.exit_status), (finding, status), "{script}");
        let text = inline(&checked.verdict.evidence);
        assert!(text.as_str().unwrap().ends_with(evidence), "{script}: {text}");
    }
    let missing = CheckSpec {
        by: None,
        name: CheckName::new("missing"),
        command: vec!["no-such-program".to_owned()],
        timeout: Duration::from_secs(1),
        protect: Vec::new(),
    };
    let checked =
        toolbox.run_check(&task, &CheckRun { run: RunId::new("r"), spec: missing, about: Default::default() }).await;
    assert_eq!((checked.verdict.finding, checked.verdict.exit_status), (Finding::Failed, None));
}

#[tokio::test]
async fn dropping_an_attempt_and_reaping() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 9999", pid_file.display());
    let task = task(&[tool("t", &json!({ "command": ["sh", "-c", script] }))]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap();
    let mut call = attempt("t", &json!({}));
    call.run = RunId::new(format!("{}-dropped", call.run));
    let handed = Handed::default();
    let running = tokio::time::timeout(Duration::from_millis(500), toolbox.attempt(&task, &call, &handed)).await;
    assert!(running.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
    assert_eq!(toolbox.reap(&call.run, call.action, Fence(4)).await, Reaped::Gone);
}
