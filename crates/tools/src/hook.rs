//! Hooks: a command reads one JSON object, in the shape users of Claude Code know, and says by its status and by what it
//! prints whether it has something against it.
//!
//! Reading its answer is a pure function, and one-sided: what is not a clear pass is a no. A pass lifts nothing.

use std::path::Path;

use longrein_core::hook::{HookEvent, HookOutcome, HookRan, HookSpec, Moment};
use longrein_core::payload::{Payload, excerpt};
use longrein_core::task::Task;
use longrein_core::time::millis;
use longrein_ports::{About, BoxFuture, HookCall, Hooks};
use longrein_sandbox::{Captured, Ended, How, Keep, Marker, NO_FLOOD, Spec, StartError, Stderr, reap_marked};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::output::readable;
use crate::secrets::Secrets;
use crate::text::Encoding;
use crate::toolbox::Toolbox;

/// More is no answer but a flood.
const ANSWER_MAX_BYTES: usize = 256 << 10;
/// Head and tail of what it complains about.
const COMPLAINT_MAX_BYTES: usize = 16 << 10;
/// What of a reason or of its words is kept: it goes to the model and stays in the conversation.
const WORDS_MAX_BYTES: usize = 4_000;
/// The status by which a hook says no; its complaint is the reason.
const SAYS_NO: i32 = 2;

/// What a hook reads.
#[derive(Serialize)]
struct Request<'a> {
    session_id: &'a str,
    hook_event_name: &'static str,
    event: &'static str,
    cwd: &'a str,
    permission_mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_input: Option<&'a Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_response: Option<&'a Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_hook_active: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_assistant_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// One JSON object and a line end, without secrets.
fn encode(task: &Task, call: &HookCall, secrets: &Secrets) -> Vec<u8> {
    let event = call.moment.event();
    let mut request = Request {
        session_id: call.run.as_str(),
        hook_event_name: event.known_as(),
        event: event.as_str(),
        cwd: &task.workspace,
        permission_mode: task.permission_mode.as_str(),
        tool_name: None,
        tool_input: None,
        tool_use_id: None,
        tool_response: None,
        prompt: None,
        stop_hook_active: None,
        last_assistant_message: None,
        trigger: None,
        state: None,
        reason: None,
    };
    match &call.moment {
        Moment::Before { action, .. } | Moment::After { action, .. } => request.tool_use_id = Some(action.to_string()),
        Moment::Goal | Moment::Message { .. } | Moment::Stop { .. } | Moment::Rebuild { .. } | Moment::End => {}
    }
    match &call.about {
        About::Call { tool, args } => {
            request.tool_name = Some(tool.as_str());
            request.tool_input = Some(args);
        }
        About::Outcome { tool, args, outcome } => {
            request.tool_name = Some(tool.as_str());
            request.tool_input = Some(args);
            request.tool_response = Some(outcome);
        }
        About::Prompt { text } => request.prompt = Some(text),
        About::Stop { answer, is_again } => {
            request.last_assistant_message = Some(answer);
            request.stop_hook_active = Some(*is_again);
        }
        About::Rebuild { why } => {
            request.trigger = Some("auto");
            request.reason = Some(why);
        }
        About::End { state, reason } => {
            request.state = Some(state);
            request.reason = Some(reason);
        }
    }
    let mut bytes = serde_json::to_vec(&request).expect("payloads are JSON, and all keys are strings");
    // A number keeps its digits unless something must be taken out.
    if let Ok(mut value) = serde_json::from_slice::<Value>(&bytes)
        && secrets.redact_value(&mut value)
    {
        bytes = serde_json::to_vec(&value).expect("a JSON value serialises");
    }
    bytes.push(b'\n');
    bytes
}

impl Hooks for Toolbox {
    fn tell<'a>(&'a self, task: &'a Task, call: HookCall) -> BoxFuture<'a, HookRan> {
        Box::pin(async move {
            let ran = |outcome, words, took_ms| HookRan { hook: call.hook, outcome, words, took_ms };
            let failed = |reason: String| ran(HookOutcome::Failed { reason }, None, 0);
            let Some(spec) = task.hooks.get(call.hook as usize) else {
                return failed("the task has no such hook".to_owned());
            };
            // One that is not what was pinned at the start says nothing that counts (`semantics.md` G4).
            if let Some(file) = self.hook_changed(call.hook) {
                return failed(format!("not run: {file} is not what it was when the run started"));
            }
            let marker = Marker { run: self.mark(&call.run), action: mark(&call), fence: call.fence.0 };
            reap_marked(&marker.run, &marker.action, call.fence.0).await;
            let mut env = self.hook_env(call.hook);
            env.push(("CLAUDE_PROJECT_DIR".to_owned(), task.workspace.clone()));
            let ended = self
                .sandbox()
                .run(
                    task,
                    Spec {
                        argv: spec.command.clone(),
                        cwd: spec.folder.clone().into(),
                        env,
                        stdin: encode(task, &call, self.secrets()),
                        stdout: Keep::Whole { max_bytes: ANSWER_MAX_BYTES },
                        stderr: Stderr::Apart(Keep::Ends { max_bytes: COMPLAINT_MAX_BYTES, flood_bytes: NO_FLOOD }),
                        timeout: spec.timeout,
                        marker,
                        confinement: self.sandbox().of_hook(task, Path::new(&spec.folder)),
                    },
                )
                .await;
            match ended {
                Err(error) => failed(not_started(&error)),
                Ok(ended) => {
                    let (outcome, words) = answer(call.moment.event(), spec, &ended, self.secrets());
                    ran(outcome, words, millis(ended.took))
                }
            }
        })
    }
}

fn not_started(error: &StartError) -> String {
    format!("it could not be started: {error}")
}

/// Whose processes these are, beside those of the call itself.
fn mark(call: &HookCall) -> String {
    let moment = match &call.moment {
        Moment::Before { action, .. } => format!("before-{action}"),
        Moment::After { action, .. } => format!("after-{action}"),
        Moment::Goal => "goal".to_owned(),
        Moment::Message { input } => format!("message-{}", input.as_str().replace('/', "-")),
        Moment::Stop { round } => format!("stop-{round}"),
        Moment::Rebuild { generation } => format!("rebuild-{generation}"),
        Moment::End => "end".to_owned(),
    };
    format!("hook-{}-{moment}", call.hook)
}

/// What a hook that ended has said, and its words for the model.
fn answer(event: HookEvent, spec: &HookSpec, ended: &Ended, secrets: &Secrets) -> (HookOutcome, Option<String>) {
    let complaint = || words(&readable(&ended.stderr, secrets));
    let failed = |what: String| {
        let complaint = complaint();
        let more = if complaint.is_empty() { String::new() } else { format!("; it complained: {complaint}") };
        (HookOutcome::Failed { reason: format!("{what}{more}") }, None)
    };
    match ended.how {
        How::Exited(0) => match said(event, &ended.stdout, secrets) {
            Ok(said) => said,
            Err(problem) => failed(format!("what it printed cannot be understood: {problem}")),
        },
        How::Exited(SAYS_NO) => {
            let complaint = complaint();
            let reason = if complaint.is_empty() { "it gave no reason".to_owned() } else { complaint };
            (HookOutcome::Blocked { reason }, None)
        }
        How::Exited(status) => failed(format!("it ended with status {status}")),
        How::Signalled(signal) => failed(format!("it was ended by signal {signal}")),
        How::TimedOut => failed(format!("it was not done within {:?}", spec.timeout)),
        How::Cut => failed(format!("it printed more than {ANSWER_MAX_BYTES} bytes")),
    }
}

/// The answer of a hook. A key that is not here may ask for something that is not done: it is not passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Answer {
    #[serde(rename = "continue", default, deserialize_with = "given")]
    goes_on: Option<bool>,
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    decision: Option<Decision>,
    reason: Option<String>,
    /// Nothing of a hook is shown but what is said here.
    #[serde(rename = "suppressOutput")]
    _suppress_output: Option<bool>,
    system_message: Option<String>,
    #[serde(default, deserialize_with = "given")]
    hook_specific_output: Option<Specific>,
}

/// What decides is left out or said: null is what a program prints that failed to decide.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Block,
    Approve,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Specific {
    hook_event_name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    permission_decision: Option<Permission>,
    permission_decision_reason: Option<String>,
    additional_context: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    Deny,
    Ask,
}

/// Words that only an answer has in quotes.
const ANSWER_WORDS: &[&str] = &["\"decision\"", "\"permissionDecision\"", "\"continue\"", "\"hookSpecificOutput\""];

/// Text that is no object and may still be meant as an answer: a no must not be lost among other lines, in the wrong shape,
/// or behind what a terminal would not show.
fn may_be_an_answer(text: &str) -> Option<&'static str> {
    let is_break = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let is_space = |c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}';
    if serde_json::from_str::<IgnoredAny>(text).is_ok() {
        Some("it is JSON, and no object")
    } else if text.split(is_break).any(|line| line.trim_start_matches(is_space).starts_with(['{', '['])) {
        Some("a line begins like JSON, and the whole is no object")
    } else if text.contains('{') && ANSWER_WORDS.iter().any(|word| text.contains(word)) {
        Some("it has an answer in it, and more")
    } else {
        None
    }
}

/// What a hook printed that ended with status 0: nothing, text that nobody asked for, or one object.
fn said(event: HookEvent, stdout: &Captured, secrets: &Secrets) -> Result<(HookOutcome, Option<String>), String> {
    let text = Encoding::of(&stdout.head).decode(&stdout.head);
    let text = text.trim().trim_start_matches('\u{feff}').trim_start();
    if text.contains('\0') {
        return Err("there is a NUL in it".to_owned());
    }
    if !text.starts_with('{') {
        return match may_be_an_answer(text) {
            Some(problem) => Err(problem.to_owned()),
            None => Ok((HookOutcome::Passed, None)),
        };
    }
    let answer: Answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    // A list would be read as the members in order.
    let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if whole.get("hookSpecificOutput").is_some_and(|specific| !specific.is_object()) {
        return Err("hookSpecificOutput is no object".to_owned());
    }
    let specific = answer.hook_specific_output.unwrap_or_default();
    if let Some(named) = &specific.hook_event_name
        && HookEvent::named(named) != Some(event)
    {
        return Err(format!("it answers the event \"{}\"", excerpt(named, 60).escape_debug()));
    }
    if specific.permission_decision.is_some() && event != HookEvent::BeforeTool {
        return Err(format!("permissionDecision is for before_tool, and this is {}", event.as_str()));
    }
    let kept = |text: Option<String>| text.map(|text| words(&secrets.redact(&text))).filter(|text| !text.is_empty());
    let because =
        |texts: [Option<String>; 3]| texts.into_iter().find_map(kept).unwrap_or_else(|| "it gave no reason".to_owned());
    let own = specific.permission_decision_reason;
    let outcome = if answer.goes_on == Some(false) {
        HookOutcome::Halted { reason: because([answer.stop_reason, answer.reason, own]) }
    } else if answer.decision == Some(Decision::Block) || specific.permission_decision == Some(Permission::Deny) {
        HookOutcome::Blocked { reason: because([own, answer.reason, answer.system_message]) }
    } else if specific.permission_decision == Some(Permission::Ask) {
        HookOutcome::Asked { reason: because([own, answer.reason, answer.system_message]) }
    } else {
        HookOutcome::Passed
    };
    Ok((outcome, kept(specific.additional_context)))
}

/// Text as it is kept: short, and with nothing in it that acts on a terminal.
fn words(text: &str) -> String {
    let shown: String = text
        .trim()
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c.to_string(),
            '\r' => String::new(),
            c if c.is_control() => c.escape_debug().to_string(),
            c => c.to_string(),
        })
        .collect();
    longrein_core::payload::head_and_tail(&shown, WORDS_MAX_BYTES)
}

#[cfg(test)]
#[path = "tests/hooks.rs"]
mod tests;
