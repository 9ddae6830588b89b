//! What hooks may say, and that nothing they say but a clear pass is one.

use std::time::Duration;

use longrein_sandbox::Strays;

use super::*;

fn ended(how: How, stdout: &str, stderr: &str) -> Ended {
    Ended {
        how,
        stdout: Captured::whole(stdout),
        stderr: Captured::whole(stderr),
        took: Duration::from_millis(3),
        strays: Strays::None,
    }
}

fn spec(event: HookEvent) -> HookSpec {
    HookSpec {
        event,
        tools: Vec::new(),
        command: vec!["hook".to_owned()],
        folder: "/".to_owned(),
        timeout: Duration::from_secs(1),
        env: Vec::new(),
        source: "test".to_owned(),
    }
}

#[track_caller]
fn check(event: HookEvent, ended: Ended, word: &str, says: &str) {
    let (outcome, words) = answer(event, &spec(event), &ended, &Secrets::new());
    assert_eq!(outcome.as_str(), word, "{ended:?}: {outcome:?}");
    let text = format!("{}{}", outcome.reason().unwrap_or_default(), words.unwrap_or_default());
    assert!(text.contains(says), "{text:?} does not have {says:?}");
}

#[test]
fn only_status_0_with_nothing_against_it_passes() {
    use HookEvent::BeforeTool;
    for text in [
        "",
        "looks fine",
        "  \n",
        "2 files (a, b) are fine\n  so are others: ${x} {y}",
        "{}",
        r#"{"continue":true}"#,
        "\u{feff}{}",
    ] {
        check(BeforeTool, ended(How::Exited(0), text, "chatter"), "passed", "");
    }
    check(BeforeTool, ended(How::Exited(2), "", "not on a friday\n"), "blocked", "not on a friday");
    check(BeforeTool, ended(How::Exited(2), r#"{"decision":"approve"}"#, ""), "blocked", "no reason");
    check(BeforeTool, ended(How::Exited(1), "", "boom"), "failed", "boom");
    check(BeforeTool, ended(How::Exited(127), "{}", ""), "failed", "status 127");
    check(BeforeTool, ended(How::Signalled(9), "", ""), "failed", "signal 9");
    check(BeforeTool, ended(How::TimedOut, "{}", ""), "failed", "within 1s");
    check(BeforeTool, ended(How::Cut, "{}", ""), "failed", "more than");
}

#[test]
fn an_answer_narrows_or_is_nonsense() {
    use HookEvent::{AfterTool, BeforeTool, Prompt, Stop};
    let says = |event, text: &str, word, what| check(event, ended(How::Exited(0), text, ""), word, what);
    let specific = |inner: &str| format!(r#"{{"hookSpecificOutput":{{{inner}}}}}"#);
    says(BeforeTool, &specific(r#""permissionDecision":"allow""#), "passed", "");
    says(BeforeTool, &specific(r#""permissionDecision":"deny","permissionDecisionReason":"no""#), "blocked", "no");
    says(BeforeTool, &specific(r#""hookEventName":"PreToolUse","permissionDecision":"ask""#), "asked", "no reason");
    says(BeforeTool, &specific(r#""hookEventName":"before_tool","additionalContext":"mind the gap""#), "passed", "gap");
    says(BeforeTool, r#"{"decision":"block","reason":"no"}"#, "blocked", "no");
    says(BeforeTool, r#"{"decision":"approve"}"#, "passed", "");
    says(Stop, r#"{"decision":"block","reason":"run the tests"}"#, "blocked", "run the tests");
    says(Prompt, r#"{"continue":false,"stopReason":"enough"}"#, "halted", "enough");
    // A deny beside an allow is a deny; an end beats both.
    says(BeforeTool, r#"{"decision":"block","hookSpecificOutput":{"permissionDecision":"allow"}}"#, "blocked", "");
    says(BeforeTool, r#"{"continue":false,"decision":"approve"}"#, "halted", "");
    for nonsense in [
        "{",
        "{nope}",
        r#"{"decision":"maybe"}"#,
        r#"{"decision":1}"#,
        r#"{"decision":"approve","decision":"block"}"#,
        r#"{"permissionDecision":"deny"}"#,
        r#"{"continue":"false"}"#,
        r#"{} {}"#,
        r#"{"hookSpecificOutput":[]}"#,
        // It believes that it has made the call another one.
        r#"{"hookSpecificOutput":{"updatedInput":{"command":"ls"}}}"#,
        r#"{"hookSpecificOutput":{"hookEventName":"PostToolUse"}}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"Deny"}}"#,
    ] {
        says(BeforeTool, nonsense, "failed", "cannot be understood");
    }
    says(AfterTool, &specific(r#""permissionDecision":"allow""#), "failed", "before_tool");
    // A null reason is no reason.
    says(BeforeTool, r#"{"decision":"approve","reason":null}"#, "passed", "");
}

#[test]
fn a_no_is_not_lost_in_what_else_is_printed() {
    let block = r#"{"decision":"block"}"#;
    for nonsense in [
        format!("log line\n{block}"),
        format!("log line\r{block}"),
        format!("log line\n  \u{feff}{block}\nmore"),
        format!("\u{1b}[0m{block}"),
        format!("log: {block}"),
        format!("\0{block}"),
        format!("{block}\0"),
        format!("{block}\nlog line"),
        format!("[{block}]"),
        "fine\0".to_owned(),
        "log line\n{".to_owned(),
        "log line\n[1".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "false".to_owned(),
        "true".to_owned(),
        " 3\n".to_owned(),
        r#""block""#.to_owned(),
        r#"{"decision":null}"#.to_owned(),
        r#"{"continue":null}"#.to_owned(),
        r#"{"hookSpecificOutput":null}"#.to_owned(),
        r#"{"hookSpecificOutput":{"permissionDecision":null}}"#.to_owned(),
        r#"{"hookSpecificOutput":["PreToolUse","allow","",""]}"#.to_owned(),
    ] {
        for event in [HookEvent::BeforeTool, HookEvent::Prompt, HookEvent::Stop, HookEvent::AfterTool] {
            check(event, ended(How::Exited(0), &nonsense, ""), "failed", "cannot be understood");
        }
    }
}

#[test]
fn what_a_hook_complains_about_is_kept_short_shown_and_without_secrets() {
    let mut secrets = Secrets::new();
    secrets.know("TOKEN", "hunter2-hunter2");
    let stderr = format!("\u{1b}[31mno: hunter2-hunter2 \u{7}{}", "x".repeat(100_000));
    let done = ended(How::Exited(2), "", &stderr);
    let (outcome, _) = answer(HookEvent::BeforeTool, &spec(HookEvent::BeforeTool), &done, &secrets);
    let reason = outcome.reason().unwrap();
    assert!(reason.len() < WORDS_MAX_BYTES + 200, "{}", reason.len());
    assert!(!reason.contains("hunter2") && !reason.contains('\u{1b}') && !reason.contains('\u{7}'), "{reason}");
    assert!(reason.contains("no: [redacted:TOKEN]"), "{reason}");
    let json = r#"{"decision":"block","reason":"\u001b]0;x\u0007 hunter2-hunter2"}"#;
    let (outcome, _) = answer(HookEvent::Stop, &spec(HookEvent::Stop), &ended(How::Exited(0), json, ""), &secrets);
    let reason = outcome.reason().unwrap();
    assert!(!reason.contains('\u{1b}') && !reason.contains("hunter2"), "{reason}");
}
