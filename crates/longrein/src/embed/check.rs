//! Checks in code: what judges the work is a function of the program that embeds us, registered under a name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use longrein_core::check::{Finding, Proof, Verdict as Found};
use longrein_core::ids::{CheckName, RunId};
use longrein_core::payload::{Content, Payload, head_and_tail};
use longrein_core::task::{CheckBy, Task};
use longrein_ports::{BoxFuture, CheckRun};
use serde_json::Value;
use tokio::task::JoinSet;

/// What judges the work before a run is done, in code.
///
/// It is registered by name, with [`Builder::check`](crate::Builder::check), and a task names it with
/// [`Task::checked_by`](crate::Task::checked_by); a run goes on only in a program that has it, in the version it was started
/// with. A verdict always has words: what was found. They are the evidence, and what the model is told where it fails.
///
/// A panic is a failed check, and so is no verdict within the check's time. It runs on the runtime that drives the run: put
/// blocking work into `spawn_blocking` and await it.
///
/// ```
/// use longrein::{Check, Longrein, Script, Task, Verdict, Work};
///
/// /// The answer names its source.
/// struct NamesItsSource;
///
/// impl Check for NamesItsSource {
///     async fn check(&self, work: Work) -> Verdict {
///         match work.answer.as_str() {
///             Some(text) if text.contains("RFC") => Verdict::passed(format!("it says: {text}")),
///             _ => Verdict::failed("the answer names no RFC; name the one it is from"),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), longrein::Error> {
/// let longrein = Longrein::builder("memory:").check("sourced", NamesItsSource).open()?;
/// let script = Script::new().text("Port 443.").text("Port 443, by RFC 9110.");
/// let task = Task::new("Which port is https?").model(script).checked_by("sourced");
/// let outcome = longrein.start(task).await?.await?;
/// assert_eq!(outcome.text.as_deref(), Some("Port 443, by RFC 9110."));
/// assert_eq!(outcome.verified, Some(true));
/// # Ok(())
/// # }
/// ```
pub trait Check: Send + Sync + 'static {
    /// Judges the work as it is now. It may be asked more than once about the same work, and must change nothing.
    fn check(&self, work: Work) -> impl Future<Output = Verdict> + Send;

    /// Another one is another check: a run is not gone on with under it.
    fn version(&self) -> String {
        "1".to_owned()
    }
}

/// What there is to judge.
#[derive(Debug, Clone)]
pub struct Work {
    /// The run it is about.
    pub run: RunId,
    /// The answer that was given; null where there is none yet.
    pub answer: Value,
    /// The newest live evidence of each tool, by the tool's name.
    pub evidence: BTreeMap<String, Value>,
    /// The facts that hold, by name.
    pub facts: BTreeMap<String, Value>,
    /// Who this is for.
    pub principal: Value,
    /// The folder the run works in.
    pub workspace: PathBuf,
}

/// What a check found, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    passed: bool,
    evidence: String,
}

impl Verdict {
    /// The work is good; what shows it.
    pub fn passed(evidence: impl Into<String>) -> Self {
        Self { passed: true, evidence: evidence.into() }
    }

    /// It is not; what is wrong and where, for the model.
    pub fn failed(evidence: impl Into<String>) -> Self {
        Self { passed: false, evidence: evidence.into() }
    }
}

/// Bytes of a verdict's words that are kept.
const EVIDENCE_MAX: usize = 16_000;

/// A check with its type taken away.
pub(crate) trait Registered: Send + Sync {
    fn check(self: Arc<Self>, work: Work) -> BoxFuture<'static, Verdict>;
    fn version(&self) -> String;
}

impl<C: Check> Registered for C {
    fn check(self: Arc<Self>, work: Work) -> BoxFuture<'static, Verdict> {
        Box::pin(async move { Check::check(self.as_ref(), work).await })
    }

    fn version(&self) -> String {
        Check::version(self)
    }
}

/// The checks a program has, by name.
pub(crate) type Registry = BTreeMap<CheckName, Arc<dyn Registered>>;

/// Whether a program has every check of a task that is a function. Err: what it lacks, for people.
pub(crate) fn are_here(task: &Task, registry: &Registry) -> Result<(), String> {
    for check in task.every_check() {
        let Some(CheckBy::Host(version)) = &check.by else { continue };
        match registry.get(&check.name).map(|here| here.version()) {
            None => {
                return Err(format!(
                    "the check \"{}\" is a function of the program that started this run, and this program has none of that \
                     name; go on with it there, or bring it: Builder::check(\"{0}\", …)",
                    check.name
                ));
            }
            Some(here) if here != *version => {
                return Err(format!(
                    "the check \"{}\" was version {version:?} when this run started, and is version {here:?} in this program",
                    check.name
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Runs a check to its verdict, its panic, or the end of its time.
pub(crate) async fn run(
    registry: &Registry,
    task: &Task,
    check: &CheckRun,
    unsaid: impl Fn(&str) -> Option<String>,
) -> Found {
    let started = Instant::now();
    let verdict = match registry.get(&check.spec.name).map(Arc::clone) {
        None => Verdict::failed("Not run: the program that runs this has no such check."),
        Some(registered) => {
            let work = work(task, check);
            // Dropped, it ends what it has begun.
            let mut running = JoinSet::new();
            running.spawn(async move { registered.check(work).await });
            match tokio::time::timeout(check.spec.timeout, running.join_next()).await {
                Ok(Some(Ok(verdict))) => verdict,
                Ok(Some(Err(error))) => Verdict::failed(format!("The check broke down: {error}")),
                Ok(None) => Verdict::failed("The check gave no verdict."),
                Err(_) => Verdict::failed(format!("The check gave no verdict in {:?}.", check.spec.timeout)),
            }
        }
    };
    let text = head_and_tail(&verdict.evidence, EVIDENCE_MAX);
    let text = unsaid(&text).unwrap_or(text);
    let evidence = Content::Inline(Payload::string(&text));
    let finding = if verdict.passed { Finding::Passed } else { Finding::Failed };
    let proof = Proof { command: Some(check.spec.what()), output: Some(evidence.digest()), ..Proof::default() };
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Found { finding, evidence, exit_status: None, took_ms, proof }
}

fn work(task: &Task, check: &CheckRun) -> Work {
    let value = |payload: &Payload| payload.read::<Value>().unwrap_or(Value::Null);
    let about = &check.about;
    Work {
        run: check.run.clone(),
        answer: value(&about.answer),
        evidence: about.evidence.iter().map(|(tool, data)| (tool.to_string(), value(data))).collect(),
        facts: about.facts.iter().map(|(fact, data)| (fact.to_string(), value(data))).collect(),
        principal: value(&task.principal),
        workspace: PathBuf::from(&task.workspace),
    }
}
