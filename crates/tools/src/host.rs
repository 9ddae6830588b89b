//! Tools that are functions of the embedding program: called under the same rules as commands, inside this process.
//!
//! What a process boundary would give is made up for here: a panic is caught and is an outcome, and a function that does
//! not return in its time is not waited for. Dropped, an `async` function goes no further than it has come; what it left
//! on another thread goes on, which is why an effect is heard out for as long again as it had (`semantics.md` D5).

use std::any::Any;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use longrein_core::action::Attempt;
use longrein_core::ids::{ActionId, ToolName};
use longrein_core::mcp::OnError;
use longrein_core::outcome::{Outcome, ProbeAnswer, ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::task::{EffectClass, ToolBody, ToolSpec};
use longrein_ports::{BoxFuture, Changed, Handed, Probed, Ran};
use longrein_sandbox::Captured;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::ending::{Blobs, LOOK_HINT, TOOL_ERROR, UNKNOWN_HINT, doubtful, span};
use crate::error::ToolsError;
use crate::output::{Printed, readable};
use crate::secrets::Secrets;
use crate::toolbox::RESULT_MAX_BYTES;

/// A function of the embedding program.
pub trait HostTool: Send + Sync {
    /// As the program names it: another one is another tool.
    fn version(&self) -> &str;

    /// Whether it can take arguments that fit the schema: its type may ask for more than a schema says.
    fn accepts(&self, args: &Payload) -> Result<(), ToolError>;

    fn call(&self, call: HostCall) -> BoxFuture<'static, Result<Payload, HostError>>;

    /// What it is now, if that is not what the run was started with.
    fn changed(&self) -> Option<Changed> {
        None
    }

    /// Tells whether a call took effect.
    fn reconcile(&self, call: HostCall) -> BoxFuture<'static, Result<HostAnswer, ToolError>>;
}

/// Everything a function gets: what a program would read on stdin.
#[derive(Debug, Clone)]
pub struct HostCall {
    pub attempt: Attempt,
    pub handed: Handed,
    pub principal: Payload,
    /// Cancelled when nobody waits for the result any more: its time is up, or the run is stopped or cancelled.
    pub notice: CancellationToken,
}

/// Why a function failed.
#[derive(Debug)]
pub struct HostError {
    pub error: ToolError,
    /// What it says of its effect. Anything but a plain "nothing happened" leaves an external call unknown.
    pub nothing_happened: bool,
}

/// What a function knows of an earlier call.
#[derive(Debug)]
pub enum HostAnswer {
    /// It took effect; this is its result.
    TookEffect(Payload),
    NoEffect,
    /// Not yet to be told.
    Pending,
}

/// The functions of one run.
#[derive(Default)]
pub struct Host {
    functions: BTreeMap<ToolName, Arc<dyn HostTool>>,
    /// Cancelled when the run is stopped or cancelled.
    notice: CancellationToken,
    overtime: Mutex<BTreeMap<(ActionId, u32), BoxFuture<'static, Ran>>>,
}

/// How a function ended: by returning, or by the message of its panic.
type Ended<T> = Result<T, String>;

/// The class of a function that panicked.
const PANIC: &str = "panic";

impl Host {
    pub fn new(functions: BTreeMap<ToolName, Arc<dyn HostTool>>, notice: CancellationToken) -> Self {
        Self { functions, notice, overtime: Mutex::default() }
    }

    /// The same functions for another run that stops with this one.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(self.functions.clone(), self.notice.child_token())
    }

    /// Whether the function is here that a tool names.
    pub(crate) fn has(&self, spec: &ToolSpec) -> Result<(), ToolsError> {
        let ToolBody::Host(theirs) = &spec.body else { return Ok(()) };
        match self.functions.get(&spec.name) {
            None => Err(ToolsError::NoFunction { tool: spec.name.clone() }),
            Some(function) if function.version() != theirs => Err(ToolsError::OtherVersion {
                tool: spec.name.clone(),
                theirs: theirs.clone(),
                ours: function.version().to_owned(),
            }),
            Some(_) => Ok(()),
        }
    }

    /// The same functions and more.
    #[must_use]
    pub fn and(mut self, more: BTreeMap<ToolName, Arc<dyn HostTool>>) -> Self {
        self.functions.extend(more);
        self
    }

    pub(crate) fn changed(&self, tool: &ToolName) -> Option<Changed> {
        self.functions.get(tool)?.changed()
    }

    pub(crate) fn accepts(&self, spec: &ToolSpec, args: &Payload) -> Result<(), ToolError> {
        let (ToolBody::Host(_) | ToolBody::Mcp(_)) = &spec.body else { return Ok(()) };
        let Some(function) = self.functions.get(&spec.name) else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| function.accepts(args))).unwrap_or_else(|panic| {
            let message = format!("The arguments cannot be read: {}", panic_message(panic.as_ref()));
            Err(ToolError::new(class::INVALID_ARGUMENTS, message))
        })
    }

    pub(crate) async fn run(
        &self,
        spec: &ToolSpec,
        attempt: &Attempt,
        handed: &Handed,
        principal: &Payload,
        secrets: &Secrets,
    ) -> Ran {
        let Some(function) = self.functions.get(&spec.name).cloned() else { return not_here(spec) };
        let notice = self.notice.child_token();
        let call = HostCall {
            attempt: attempt.clone(),
            handed: handed.clone(),
            principal: principal.clone(),
            notice: notice.clone(),
        };
        let mut work: BoxFuture<'static, _> = Box::pin(caught(async move { function.call(call).await }));
        if let Ok(ended) = timeout(spec.timeout, &mut work).await {
            return outcome(spec, ended, secrets);
        }
        notice.cancel();
        match spec.effect {
            // Nothing comes of it: let it go.
            EffectClass::Read => {}
            EffectClass::Workspace | EffectClass::External => {
                let (spec, secrets) = (spec.clone(), secrets.clone());
                let rest = Box::pin(async move {
                    match timeout(spec.timeout, work).await {
                        Ok(ended) => outcome(&spec, ended, &secrets),
                        Err(_) => timed_out(&spec),
                    }
                });
                let mut overtime = self.overtime.lock().unwrap_or_else(PoisonError::into_inner);
                overtime.insert((attempt.action, attempt.number), rest);
            }
        }
        timed_out(spec)
    }

    pub(crate) fn overtime(&self, action: ActionId, attempt: u32) -> Option<BoxFuture<'static, Ran>> {
        self.overtime.lock().unwrap_or_else(PoisonError::into_inner).remove(&(action, attempt))
    }

    pub(crate) async fn ask(
        &self,
        spec: &ToolSpec,
        attempt: &Attempt,
        handed: &Handed,
        principal: &Payload,
        secrets: &Secrets,
    ) -> Probed {
        let mut blobs = Blobs::default();
        let no = |why: String| ProbeAnswer::NoAnswer(format!("reconcile of {}: {why}", spec.name));
        let Some(function) = self.functions.get(&spec.name).cloned() else {
            let answer = no("its function is not in this program".to_owned());
            return Probed { answer, blobs: blobs.0 };
        };
        let call = HostCall {
            attempt: attempt.clone(),
            handed: handed.clone(),
            principal: principal.clone(),
            notice: self.notice.child_token(),
        };
        let ended = timeout(spec.timeout, caught(async move { function.reconcile(call).await })).await;
        let answer = match ended {
            Err(_) => no(format!("no answer in {}", span(spec.timeout))),
            Ok(Err(panic)) => no(format!("it panicked: {}", redacted(&panic, secrets))),
            Ok(Ok(Err(error))) => no(redacted(&error.message, secrets)),
            Ok(Ok(Ok(HostAnswer::Pending))) => no("pending".to_owned()),
            Ok(Ok(Ok(HostAnswer::NoEffect))) => ProbeAnswer::NoEffect,
            Ok(Ok(Ok(HostAnswer::TookEffect(result)))) => {
                ProbeAnswer::TookEffect(blobs.keep(Printed::read(&Captured::whole(result.as_str()), secrets).payload))
            }
        };
        Probed { answer, blobs: blobs.0 }
    }
}

/// Runs to the end or to the panic.
async fn caught<T>(work: impl Future<Output = T>) -> Ended<T> {
    let mut work = Box::pin(work);
    // What a panic leaves half done inside the future is never looked at again.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic_message(panic.as_ref()))),
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it gives no reason").to_owned()
}

/// Nothing of it ran.
fn not_here(spec: &ToolSpec) -> Ran {
    let error = ToolError::new(class::INTERNAL, format!("{} is not available here. Nothing was done.", spec.name))
        .hint("Calling it again will not help; do without it and say so.");
    let outcome = match spec.effect {
        EffectClass::Read | EffectClass::Workspace => Outcome::Error(error),
        EffectClass::External => Outcome::NotDone(error),
    };
    Ran { outcome, blobs: Vec::new() }
}

fn timed_out(spec: &ToolSpec) -> Ran {
    let message = format!("{} has not returned after {}.", spec.name, span(spec.timeout));
    let outcome = match spec.effect {
        EffectClass::Read => {
            Outcome::Error(ToolError::new(class::TIMEOUT, message).cut().hint("Ask for less, or do without it."))
        }
        EffectClass::Workspace => Outcome::Error(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(LOOK_HINT)),
        EffectClass::External => Outcome::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(UNKNOWN_HINT)),
    };
    Ran { outcome, blobs: Vec::new() }
}

fn outcome(spec: &ToolSpec, ended: Ended<Result<Payload, HostError>>, secrets: &Secrets) -> Ran {
    let mut blobs = Blobs::default();
    let outcome = match ended {
        Ok(Ok(result)) => match spec.effect {
            EffectClass::Read if result.as_str().len() > max_bytes(spec) => {
                let message = format!("{} found more than {} bytes.", spec.name, max_bytes(spec));
                let hint = "Ask for less: a narrower query, fewer lines.";
                Outcome::Error(ToolError::new(class::OUTPUT_TOO_LARGE, message).hint(hint))
            }
            // What has happened is told, however long it is.
            EffectClass::Read | EffectClass::Workspace | EffectClass::External => {
                Outcome::Done(blobs.keep(Printed::read(&Captured::whole(result.as_str()), secrets).payload))
            }
        },
        Ok(Err(HostError { error, nothing_happened })) => {
            let error = clean(error, secrets);
            match spec.effect {
                EffectClass::Read | EffectClass::Workspace => Outcome::Error(error),
                EffectClass::External if nothing_happened => Outcome::NotDone(error),
                EffectClass::External if is_told(spec, &error) => Outcome::Error(failed_in_doubt(error)),
                EffectClass::External => doubtful(spec, error),
            }
        }
        Err(panic) => {
            let message = format!("{} panicked: {}", spec.name, redacted(&panic, secrets));
            match spec.effect {
                EffectClass::Read => {
                    let hint = "The same call will fail again; do without it and say so.";
                    Outcome::Error(ToolError::new(PANIC, message).hint(hint))
                }
                EffectClass::Workspace => {
                    Outcome::Error(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(LOOK_HINT))
                }
                EffectClass::External => {
                    Outcome::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(UNKNOWN_HINT))
                }
            }
        }
    };
    Ran { outcome, blobs: blobs.0 }
}

/// Whether an error that a server tells of itself is all there is to know: so the operator has it.
fn is_told(spec: &ToolSpec, error: &ToolError) -> bool {
    match &spec.body {
        ToolBody::Mcp(of) => of.on_error == OnError::Told && error.class == TOOL_ERROR,
        ToolBody::Command(_) | ToolBody::Builtin(_) | ToolBody::Host(_) => false,
    }
}

/// An effect that ends as a command of the shell does (`semantics.md` D3): told, never made again, citable by nobody, and no
/// bar to the end of the run.
fn failed_in_doubt(told: ToolError) -> ToolError {
    let hint = told.hint.as_deref().map_or(UNKNOWN_HINT.to_owned(), |hint| format!("{hint} {UNKNOWN_HINT}"));
    told.hint(hint)
}

/// How much a read may bring. Whoever calls a server of somebody else's does not choose how much it says.
fn max_bytes(spec: &ToolSpec) -> usize {
    match spec.body {
        ToolBody::Mcp(_) => SERVER_RESULT_MAX_BYTES,
        ToolBody::Command(_) | ToolBody::Builtin(_) | ToolBody::Host(_) => RESULT_MAX_BYTES,
    }
}

/// A server's answer is one message, and no longer message is taken.
const SERVER_RESULT_MAX_BYTES: usize = 64 << 20;

/// An error as it may leave: what stands in it came from anywhere.
fn clean(error: ToolError, secrets: &Secrets) -> ToolError {
    ToolError {
        message: redacted(&error.message, secrets),
        hint: error.hint.map(|hint| redacted(&hint, secrets)),
        ..error
    }
}

/// How long a message may be.
const MESSAGE_MAX_BYTES: usize = 4 * 1024;

fn redacted(text: &str, secrets: &Secrets) -> String {
    longrein_core::payload::head_and_tail(&readable(&Captured::whole(text), secrets), MESSAGE_MAX_BYTES)
}
