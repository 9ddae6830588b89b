//! Tools: validation, execution, and what is left of processes nobody waits for any more.

use std::collections::BTreeMap;

use bytes::Bytes;
use longrein_core::action::{Attempt, Cleared};
use longrein_core::context::note::Note;
use longrein_core::ids::{ActionId, Digest, EvidenceId, Fence, RunId, ToolName};
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::payload::{Payload, head_and_tail};
use longrein_core::taint::Mark;
use longrein_core::target::Target;
use longrein_core::task::Task;

use crate::BoxFuture;

/// Arguments that passed the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidArgs {
    /// Canonical JSON object, schema defaults filled in.
    pub args: Payload,
    pub digest: Digest,
    /// Top-level argument name → the evidence it cites and the tool that must have brought it.
    pub cites: BTreeMap<String, (EvidenceId, ToolName)>,
    /// Digest of the arguments that name the business intent; None if the tool has no key.
    pub key: Option<Digest>,
    /// The path it names, as written, if it is about one: for its hold.
    pub path: Option<String>,
}

/// Data the harness hands to a call beside its arguments.
#[derive(Debug, Clone, Default)]
pub struct Handed {
    /// Evidence by argument name: the data itself.
    pub evidence: BTreeMap<String, Payload>,
    /// The task's captured inputs.
    pub inputs: BTreeMap<String, Payload>,
    /// What the call brought that this one undoes, or that a check looks at.
    pub result: Option<Payload>,
}

/// What became of the processes of an older claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    /// None is left on this host.
    Gone,
    /// They ran on another host, or could not be ended.
    Unverified,
}

/// A pinned file that differs now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub file: String,
    /// Of its present content; None: it is gone or cannot be read.
    pub content: Option<Digest>,
}

/// How an attempt ended, with the large payloads its outcome refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub outcome: Outcome,
    /// To be stored before the outcome is journaled.
    pub blobs: Vec<(Digest, Bytes)>,
}

/// What a reconcile command answered, with the large payloads the answer refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    pub answer: ProbeAnswer,
    /// To be stored before the answer is journaled.
    pub blobs: Vec<(Digest, Bytes)>,
}

pub trait Tools: Send + Sync {
    /// First JSON, then the schema, then our own keywords. Pure.
    fn validate(&self, tool: &ToolName, arguments: &str) -> Result<ValidArgs, ToolError>;

    /// What a model wrote, as it may be kept: without the values of secrets that are known here, a mark in the place of each.
    /// None: it holds none. Everything of a reply goes through it before anything else is done with it. Pure.
    fn unsaid(&self, _text: &str) -> Option<String> {
        None
    }

    /// From which byte on a text that still grows may be the beginning of what [`Tools::unsaid`] takes out: what stands
    /// before may be shown once it went through that. Pure.
    fn unfinished(&self, text: &str) -> usize {
        text.len()
    }

    /// What exactly a call is about, if that is one file or folder: located as the kernel will, with what a change starts
    /// from and what it will leave. `seen`: files as the run last saw them; what it has not seen as it is, it may not
    /// change. Nothing is written.
    fn target<'a>(
        &'a self,
        task: &'a Task,
        tool: &'a ToolName,
        args: &'a Payload,
        seen: &'a BTreeMap<String, Digest>,
    ) -> BoxFuture<'a, Result<Option<Target>, ToolError>>;

    /// What the tool runs that is no longer what was pinned at the start, if anything.
    fn changed(&self, tool: &ToolName) -> Option<Changed>;

    /// Files that a call has run, by absolute paths, each with its content: a yes to a command is one to what it runs as it
    /// is.
    fn scripts(&self, _task: &Task, _files: &[String]) -> Vec<Changed> {
        Vec::new()
    }

    /// The tier of the sandbox in which the processes of this tool run, as records name it. None: it starts none.
    fn sandbox(&self, _tool: &ToolName) -> Option<&'static str> {
        None
    }

    /// Runs one cleared attempt. Dropping the future ends its processes. The outcome fits the tool's class.
    fn run<'a>(&'a self, task: &'a Task, call: Cleared, handed: Handed) -> BoxFuture<'a, Ran>;

    /// What still goes on of an attempt whose time was up, to its end, if it comes: a function inside this process cannot be
    /// ended as a process can (`semantics.md` D5). Asked once, right after `run`; bounded; dropping the future gives it up.
    fn overtime(&self, _action: ActionId, _attempt: u32) -> Option<BoxFuture<'static, Ran>> {
        None
    }

    /// What the result of an attempt turned out to bring into its run, beside what was known before it started: hosts that it
    /// was led on to, for example. Asked once, right after `run`.
    fn brought(&self, _action: ActionId, _attempt: u32) -> Vec<Mark> {
        Vec::new()
    }

    /// Finds out what became of a call: by the tool's reconcile command, or by the file it was to change.
    fn probe<'a>(&'a self, task: &'a Task, attempt: Attempt, handed: Handed) -> BoxFuture<'a, Probed>;

    /// What the model is shown of a result that is too large for its window: an object stays one with the same keys, of
    /// anything else a text is made. Says what it leaves out and where; never more than `bytes_max` bytes of JSON, of
    /// which it wants about 160 to say anything. Pure: the same from the same.
    fn preview(&self, content: &Payload, bytes_max: usize) -> Payload {
        plain_preview(content, bytes_max)
    }

    /// A result without what is never shown whatever its size, such as base64, each replaced by what it is and how large.
    /// None: it can be shown as it is. Where it is Some, the result itself belongs in the blob store. Pure.
    fn cleaned(&self, _content: &Payload) -> Option<Payload> {
        None
    }

    /// Ends every process on this host that belongs to an attempt of `action` under a fence older than `current`, and
    /// waits until none is left.
    fn reap<'a>(&'a self, run: &'a RunId, action: ActionId, current: Fence) -> BoxFuture<'a, Reaped>;

    /// Ends every process on this host of a run that nobody drives any more, and waits until none is left.
    fn reap_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Reaped>;

    /// The note that a call of the built-in `note` asks to be kept, read from its valid arguments.
    fn note(&self, _args: &Payload) -> Result<Note, ToolError> {
        Err(ToolError::new(class::UNAVAILABLE, "Notes are not kept here."))
    }
}

/// A preview that knows nothing of what it shows: head and tail of the text.
fn plain_preview(content: &Payload, bytes_max: usize) -> Payload {
    if content.as_str().len() <= bytes_max {
        return content.clone();
    }
    let readable = content.read::<String>();
    let text = readable.as_deref().unwrap_or(content.as_str());
    let mut limit = bytes_max;
    loop {
        let shown = Payload::string(&head_and_tail(text, limit));
        if shown.as_str().len() <= bytes_max {
            return shown;
        }
        if limit == 0 {
            return Payload::string("");
        }
        // The note and escapes take room as well.
        limit = limit.saturating_sub(64).min(limit * 3 / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_preview_keeps_its_bound() {
        for text in ["", "short", &"long \"quoted\"\n".repeat(1_000), &"\u{1}".repeat(1_000), &"€".repeat(1_000)] {
            for bytes_max in [2, 60, 160, 500, 8_192] {
                let content = Payload::string(text);
                let shown = plain_preview(&content, bytes_max);
                assert!(shown.as_str().len() <= bytes_max, "{bytes_max}: {shown:?}");
                assert!(content.as_str().len() > bytes_max || shown == content);
            }
        }
    }
}
