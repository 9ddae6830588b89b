//! From the end of a program to the outcome its class of tool may have (`semantics.md` D4). Pure.

use std::time::Duration;

use bytes::Bytes;
use longrein_core::ids::Digest;
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::payload::{Content, INLINE_MAX_BYTES, Payload, head_and_tail, place_apart};
use longrein_core::task::{EffectClass, ToolSpec};
use longrein_ports::{Probed, Ran};
use longrein_sandbox::{Ended, How, StartError};
use serde_json::Value;

use crate::output::{Printed, readable};
use crate::pictures;
use crate::preview::{cleaned, preview};
use crate::secrets::Secrets;

/// How much of a program's complaints the model is shown.
const STDERR_SHOWN_MAX_BYTES: usize = 2 * 1024;

/// How long the parts of a tool's own error may be.
const MESSAGE_MAX_BYTES: usize = 4 * 1024;
const WORD_MAX_BYTES: usize = 64;

/// What is said of every effect of which nothing is certain.
pub(crate) const UNKNOWN_HINT: &str = "It may have happened. Do not repeat it before that is known.";

/// What is said of files that may have been changed.
pub(crate) const LOOK_HINT: &str = "It may have changed files before it ended. Look at them before going on.";

/// The class of an error that a tool itself tells of, and gives no class.
pub const TOOL_ERROR: &str = "tool_error";

/// The outcome of a run that was tried.
pub(crate) fn outcome(spec: &ToolSpec, ended: Result<&Ended, &StartError>, secrets: &Secrets) -> Ran {
    let mut blobs = Blobs::default();
    let outcome = match ended {
        Err(error) => not_started(spec, error),
        Ok(ended) => {
            let printed = Printed::read(&ended.stdout, secrets);
            match spec.effect {
                EffectClass::Read => read(spec, ended, printed, secrets, &mut blobs),
                EffectClass::Workspace => workspace(spec, ended, printed, secrets, &mut blobs),
                EffectClass::External => external(spec, ended, printed, secrets, &mut blobs),
            }
        }
    };
    Ran { outcome, blobs: blobs.0 }
}

/// Nothing of it ran: for an external tool that is certainty, the only one we can give by ourselves.
pub(crate) fn not_started(spec: &ToolSpec, error: &StartError) -> Outcome {
    let message = format!("{} could not be started: {error}. Nothing was done.", spec.name);
    let hint = match error {
        StartError::TooLarge => "Send less in one call.",
        StartError::System(_) => "Try again later.",
        StartError::Sandbox { .. } => {
            "It is never run without its sandbox. Nothing in a call can change that; do without it and say so."
        }
        StartError::Empty
        | StartError::NotFound { .. }
        | StartError::NoInterpreter { .. }
        | StartError::NotExecutable { .. }
        | StartError::BadFormat { .. }
        | StartError::Nul { .. }
        | StartError::Folder { .. } => "Calling it again will not help; do without it and say so.",
    };
    let error = ToolError::new(not_started_class(error), message).hint(hint);
    match spec.effect {
        EffectClass::Read | EffectClass::Workspace => Outcome::Error(error),
        EffectClass::External => Outcome::NotDone(error),
    }
}

/// Only what may pass is called unavailable: that is tried again.
fn not_started_class(error: &StartError) -> &'static str {
    match error {
        StartError::System(_) => class::UNAVAILABLE,
        StartError::TooLarge => class::INVALID_ARGUMENTS,
        StartError::Sandbox { .. }
        | StartError::Empty
        | StartError::NotFound { .. }
        | StartError::NoInterpreter { .. }
        | StartError::NotExecutable { .. }
        | StartError::BadFormat { .. }
        | StartError::Nul { .. }
        | StartError::Folder { .. } => class::INTERNAL,
    }
}

fn read(spec: &ToolSpec, ended: &Ended, printed: Printed, secrets: &Secrets, blobs: &mut Blobs) -> Outcome {
    if let How::Exited(_) = ended.how
        && let Some(error) = structured(&printed, blobs)
    {
        return Outcome::Error(error);
    }
    let name = &spec.name;
    match ended.how {
        How::Exited(0) => Outcome::Done(blobs.keep(printed.payload)),
        How::Exited(_) | How::Signalled(_) => {
            Outcome::Error(failed(class::EXIT, spec, ended, secrets).with_output(printed, blobs))
        }
        How::TimedOut => Outcome::Error(
            ToolError::new(
                class::TIMEOUT,
                format!("{name} was ended after {}.{}", span(spec.timeout), tail(ended, secrets)),
            )
            .cut()
            .hint("Ask for less, or do without it.")
            .with_output(printed, blobs),
        ),
        How::Cut => Outcome::Error(
            ToolError::new(
                class::OUTPUT_TOO_LARGE,
                format!("{name} printed more than {} bytes and was ended.", ended.stdout.head.len()),
            )
            .hint("Ask for less: a narrower query, fewer lines.")
            .with_output(printed, blobs),
        ),
    }
}

fn workspace(spec: &ToolSpec, ended: &Ended, printed: Printed, secrets: &Secrets, blobs: &mut Blobs) -> Outcome {
    if let How::Exited(_) = ended.how
        && let Some(error) = structured(&printed, blobs)
    {
        return Outcome::Error(error);
    }
    match ended.how {
        How::Exited(0) => Outcome::Done(blobs.keep(printed.payload)),
        How::Exited(_) => Outcome::Error(failed(class::EXIT, spec, ended, secrets).with_output(printed, blobs)),
        How::Signalled(_) | How::TimedOut | How::Cut => Outcome::Error(
            failed(class::UNKNOWN_OUTCOME, spec, ended, secrets).hint(LOOK_HINT).with_output(printed, blobs),
        ),
    }
}

fn external(spec: &ToolSpec, ended: &Ended, printed: Printed, secrets: &Secrets, blobs: &mut Blobs) -> Outcome {
    let denies_effect = printed.member("took_effect") == Some(&Value::Bool(false));
    match ended.how {
        How::Exited(_) if denies_effect => {
            let error = structured(&printed, blobs).unwrap_or_else(|| {
                let reason = printed.member("message").and_then(Value::as_str).unwrap_or("it gives no reason");
                let message = format!("{} says that nothing happened: {}", spec.name, clip(reason, MESSAGE_MAX_BYTES));
                ToolError::new(class::EXIT, message).with_output(printed, blobs)
            });
            Outcome::NotDone(error)
        }
        How::Exited(status) => match structured(&printed, blobs) {
            None if status == 0 && !printed.is_ambiguous => Outcome::Done(blobs.keep(printed.payload)),
            None => Outcome::Unknown(
                failed(class::UNKNOWN_OUTCOME, spec, ended, secrets).hint(UNKNOWN_HINT).with_output(printed, blobs),
            ),
            Some(told) => doubtful(spec, told),
        },
        How::Signalled(_) | How::TimedOut | How::Cut => Outcome::Unknown(
            failed(class::UNKNOWN_OUTCOME, spec, ended, secrets).hint(UNKNOWN_HINT).with_output(printed, blobs),
        ),
    }
}

/// An external tool's own error says nothing of what happened before it.
pub(crate) fn doubtful(spec: &ToolSpec, told: ToolError) -> Outcome {
    let message = format!("{} failed ({}): {}", spec.name, told.class, told.message);
    let hint = told.hint.as_deref().map_or(UNKNOWN_HINT.to_owned(), |hint| format!("{hint} {UNKNOWN_HINT}"));
    Outcome::Unknown(ToolError { class: class::UNKNOWN_OUTCOME.to_owned(), message, hint: Some(hint), ..told })
}

/// What a reconcile command said.
pub(crate) fn answer(spec: &ToolSpec, ended: Result<&Ended, &StartError>, secrets: &Secrets) -> Probed {
    let mut blobs = Blobs::default();
    let no = |why: String| ProbeAnswer::NoAnswer(format!("reconcile of {}: {why}", spec.name));
    let answer = match ended {
        Err(error) => no(format!("could not be started: {error}")),
        Ok(Ended { how: How::Exited(0), stdout, .. }) => {
            let printed = Printed::read(stdout, secrets);
            match printed.member("took_effect") {
                Some(Value::Bool(true)) => {
                    let result = printed.member("result").unwrap_or(&Value::Null);
                    let result = Payload::of(result).expect("a JSON value always serialises");
                    ProbeAnswer::TookEffect(blobs.keep(result))
                }
                Some(Value::Bool(false)) => ProbeAnswer::NoEffect,
                Some(Value::String(word)) if word == "pending" => no("pending".to_owned()),
                Some(_) | None => {
                    no(format!("not understood: {}", clip(&readable(stdout, secrets), STDERR_SHOWN_MAX_BYTES)))
                }
            }
        }
        Ok(ended) => no(failed(class::EXIT, spec, ended, secrets).message),
    };
    Probed { answer, blobs: blobs.0 }
}

/// `{"error": {…}}` as an error of the tool's own making.
fn structured(printed: &Printed, blobs: &mut Blobs) -> Option<ToolError> {
    let told = printed.member("error")?.as_object()?;
    let text = |name: &str| told.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let word = text("class").map(snake_case).filter(|word| !word.is_empty());
    let message = text("message").or(text("class")).unwrap_or("The tool reports an error and says no more.");
    let mut error = ToolError::new(word.as_deref().unwrap_or(TOOL_ERROR), clip(message, MESSAGE_MAX_BYTES));
    error.field = text("field").map(|field| clip(field, WORD_MAX_BYTES * 4));
    error.hint = text("hint").map(|hint| clip(hint, MESSAGE_MAX_BYTES));
    error.retry_after_s =
        told.get("retry_after_s").and_then(Value::as_f64).filter(|after| *after >= 0.0).map(whole_seconds);
    let says_more = printed.json.as_ref().and_then(Value::as_object).is_some_and(|object| object.len() > 1);
    if says_more {
        error.data = Some(blobs.keep(printed.payload.clone()));
    }
    Some(error)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and a float saturates")]
fn whole_seconds(seconds: f64) -> u64 {
    seconds.ceil() as u64
}

fn snake_case(word: &str) -> String {
    let word: String = word
        .chars()
        .take(WORD_MAX_BYTES)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    word.trim_matches('_').to_owned()
}

/// How it ended, in one sentence, and what it complained of.
fn failed(class: &str, spec: &ToolSpec, ended: &Ended, secrets: &Secrets) -> ToolError {
    let how = match ended.how {
        How::Exited(status) => format!("ended with status {status}"),
        How::Signalled(signal) => format!("was ended by signal {signal}{}", signal_name(signal)),
        How::TimedOut => format!("was ended after {}", span(spec.timeout)),
        How::Cut => format!("printed more than {} bytes and was ended", ended.stdout.head.len()),
    };
    ToolError::new(class, format!("{} {how}.{}", spec.name, tail(ended, secrets)))
}

/// The end of what it complained of: the cause stands last.
fn tail(ended: &Ended, secrets: &Secrets) -> String {
    let text = readable(&ended.stderr, secrets);
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    let mut start = text.len().saturating_sub(STDERR_SHOWN_MAX_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!(" Its last words: {}{}", if start > 0 { "…" } else { "" }, &text[start..])
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (aborted)",
        9 => " (killed, perhaps for want of memory)",
        11 => " (segmentation fault)",
        15 => " (terminated)",
        _ => "",
    }
}

pub(crate) fn span(span: Duration) -> String {
    format!("{span:?}")
}

fn clip(text: &str, max_bytes: usize) -> String {
    head_and_tail(text, max_bytes)
}

/// How much of a large result is shown at once.
const SHOWN_MAX_BYTES: usize = 8 * 1024;

/// Large payloads to be stored beside what refers to them.
#[derive(Debug, Default)]
pub(crate) struct Blobs(pub(crate) Vec<(Digest, Bytes)>);

impl Blobs {
    /// A result small enough to be shown as it is stays inline. Of any other, and of one with data in it that is never
    /// shown, a preview is made here, once; the whole goes apart.
    pub(crate) fn keep(&mut self, payload: Payload) -> Content {
        let is_large = payload.as_str().len() > INLINE_MAX_BYTES;
        let shown = if is_large { Some(preview(&payload, SHOWN_MAX_BYTES)) } else { cleaned(&payload) };
        match shown {
            None => Content::Inline(payload),
            Some(shown) => self.apart(payload, shown),
        }
    }

    /// The images in it go apart as well: the model is shown them beside it.
    pub(crate) fn apart(&mut self, payload: Payload, shown: Payload) -> Content {
        let mut images = Vec::new();
        for (image, bytes) in pictures::of(&payload) {
            self.0.push((image.digest.clone(), bytes));
            images.push(image);
        }
        let (content, (digest, payload)) = place_apart(payload, shown, images);
        self.0.push((digest, Bytes::from(payload.as_str().to_owned())));
        content
    }
}

trait WithOutput {
    /// With what it printed as data, unless that is nothing.
    fn with_output(self, printed: Printed, blobs: &mut Blobs) -> Self;
}

impl WithOutput for ToolError {
    fn with_output(mut self, printed: Printed, blobs: &mut Blobs) -> Self {
        if printed.payload.as_str() != "\"\"" {
            self.data = Some(blobs.keep(printed.payload));
        }
        self
    }
}
