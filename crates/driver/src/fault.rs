//! Fault injection: ports that reach a crash point around every append and every dispatch (`semantics.md` A5). They stand
//! in front of the real ports only where `--crash-at` asks for them; the driver does not know them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::action::{Attempt, Cleared};
use longrein_core::check::Judgement;
use longrein_core::context::note::Note;
use longrein_core::hook::HookRan;
use longrein_core::ids::{ActionId, Digest, EvidenceId, Fence, RunId, Seq, ToolName, TreeId};
use longrein_core::input::Input;
use longrein_core::outcome::{ModelFailure, Reply, ToolError};
use longrein_core::payload::Payload;
use longrein_core::prompt::Prompt;
use longrein_core::taint::Mark;
use longrein_core::target::Target;
use longrein_core::task::{AnswerSpec, CheckSpec, Guard, Task};
use longrein_ports::{
    ActionCheck, AppendError, Batch, BoxFuture, Changed, CheckRun, Checked, Checks, Cited, Claim, ClaimError,
    Committed, CrashPoint, Create, Difference, Encoded, Faults, GuardInput, Handed, Holder, HookCall, Hooks, Journal,
    JournalError, KeyId, KeyRow, Listener, Model, Posted, Probed, Ran, Reaped, Recorded, Restored, RunRow, Tools,
    TreeError, Trees, Undo, ValidArgs, VerifyReport, Worker,
};

pub struct FaultyJournal {
    pub inner: Arc<dyn Journal>,
    pub faults: Arc<dyn Faults>,
}

impl Journal for FaultyJournal {
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>> {
        self.inner.claim(run, worker, workspace, create)
    }
    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        self.inner.renew(claim)
    }
    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>> {
        self.inner.release(claim)
    }
    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>> {
        Box::pin(async move {
            for new in &batch.events {
                self.faults.reached(CrashPoint::BeforeAppend(new.event.kind()));
            }
            let committed = self.inner.append(claim, batch).await?;
            for new in &batch.events {
                self.faults.reached(CrashPoint::AfterAppend(new.event.kind()));
            }
            Ok(committed)
        })
    }
    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>> {
        self.inner.read(run, after, limit)
    }
    fn runs(&self) -> BoxFuture<'_, Result<Vec<(RunRow, Option<Holder>)>, JournalError>> {
        self.inner.runs()
    }
    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<(RunRow, Option<Holder>)>, JournalError>> {
        self.inner.row(run)
    }
    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        self.inner.post_with(run, input, blobs)
    }
    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>> {
        self.inner.inbox(run)
    }
    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()> {
        self.inner.inbox_changed(run)
    }
    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>> {
        self.inner.key(id)
    }
    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        self.inner.blob(digest)
    }
    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>> {
        self.inner.verify(run)
    }
}

pub struct FaultyModel {
    pub inner: Arc<dyn Model>,
    pub faults: Arc<dyn Faults>,
}

impl Model for FaultyModel {
    fn encode(&self, prompt: &Prompt) -> Encoded {
        self.inner.encode(prompt)
    }
    fn send(&self, request: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeSend);
            let reply = self.inner.send(request).await;
            if reply.is_ok() {
                self.faults.reached(CrashPoint::AfterReply);
            }
            reply
        })
    }
    fn send_heard<'a>(
        &'a self,
        request: Encoded,
        listener: &'a dyn Listener,
    ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeSend);
            let reply = self.inner.send_heard(request, listener).await;
            if reply.is_ok() {
                self.faults.reached(CrashPoint::AfterReply);
            }
            reply
        })
    }
}

pub struct FaultyTools {
    pub inner: Arc<dyn Tools>,
    pub faults: Arc<dyn Faults>,
}

/// Long enough for a program to be running, short enough that few have ended.
const RUNNING_AFTER: Duration = Duration::from_millis(5);

impl Tools for FaultyTools {
    fn validate(&self, tool: &ToolName, arguments: &str) -> Result<ValidArgs, ToolError> {
        self.inner.validate(tool, arguments)
    }
    fn unsaid(&self, text: &str) -> Option<String> {
        self.inner.unsaid(text)
    }
    fn unfinished(&self, text: &str) -> usize {
        self.inner.unfinished(text)
    }
    fn target<'a>(
        &'a self,
        task: &'a Task,
        tool: &'a ToolName,
        args: &'a Payload,
        seen: &'a BTreeMap<String, Digest>,
    ) -> BoxFuture<'a, Result<Option<Target>, ToolError>> {
        self.inner.target(task, tool, args, seen)
    }
    fn scripts(&self, task: &Task, files: &[String]) -> Vec<Changed> {
        self.inner.scripts(task, files)
    }

    fn sandbox(&self, tool: &ToolName) -> Option<&'static str> {
        self.inner.sandbox(tool)
    }

    fn changed(&self, tool: &ToolName) -> Option<Changed> {
        self.inner.changed(tool)
    }
    fn run<'a>(&'a self, task: &'a Task, call: Cleared, handed: Handed) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeTool);
            let mut work = self.inner.run(task, call, handed);
            let early = tokio::select! {
                biased;
                ran = &mut work => Some(ran),
                () = tokio::time::sleep(RUNNING_AFTER) => None,
            };
            self.faults.reached(CrashPoint::DuringTool);
            let ran = match early {
                Some(ran) => ran,
                None => work.await,
            };
            self.faults.reached(CrashPoint::AfterTool);
            ran
        })
    }
    fn note(&self, args: &Payload) -> Result<Note, ToolError> {
        self.inner.note(args)
    }
    fn overtime(&self, action: ActionId, attempt: u32) -> Option<BoxFuture<'static, Ran>> {
        self.inner.overtime(action, attempt)
    }
    fn brought(&self, action: ActionId, attempt: u32) -> Vec<Mark> {
        self.inner.brought(action, attempt)
    }
    fn preview(&self, content: &Payload, bytes_max: usize) -> Payload {
        self.inner.preview(content, bytes_max)
    }
    fn cleaned(&self, content: &Payload) -> Option<Payload> {
        self.inner.cleaned(content)
    }
    fn probe<'a>(&'a self, task: &'a Task, attempt: Attempt, handed: Handed) -> BoxFuture<'a, Probed> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeProbe);
            let probed = self.inner.probe(task, attempt, handed).await;
            self.faults.reached(CrashPoint::AfterProbe);
            probed
        })
    }
    fn reap_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Reaped> {
        self.inner.reap_run(run)
    }
    fn reap<'a>(&'a self, run: &'a RunId, action: ActionId, current: Fence) -> BoxFuture<'a, Reaped> {
        self.inner.reap(run, action, current)
    }
}

pub struct FaultyChecks {
    pub inner: Arc<dyn Checks>,
    pub faults: Arc<dyn Faults>,
}

impl Checks for FaultyChecks {
    fn guard(&self, guard: &Guard, input: &GuardInput<'_>) -> Result<(), String> {
        self.inner.guard(guard, input)
    }
    fn cites(&self, spec: &AnswerSpec, text: &str) -> Vec<EvidenceId> {
        self.inner.cites(spec, text)
    }
    fn judge(&self, spec: Option<&AnswerSpec>, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement {
        self.inner.judge(spec, text, cited)
    }
    fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String> {
        self.inner.condition(condition, values)
    }
    fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String> {
        self.inner.fill(template, values)
    }
    fn check<'a>(&'a self, task: &'a Task, check: CheckRun) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeCheck);
            let checked = self.inner.check(task, check).await;
            self.faults.reached(CrashPoint::AfterCheck);
            checked
        })
    }
    fn changed(&self, spec: &CheckSpec) -> Option<Changed> {
        self.inner.changed(spec)
    }
    fn protected(&self, spec: &CheckSpec, paths: Vec<String>) -> Vec<String> {
        self.inner.protected(spec, paths)
    }
    fn check_action<'a>(&'a self, task: &'a Task, check: ActionCheck) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeActionCheck);
            let checked = self.inner.check_action(task, check).await;
            self.faults.reached(CrashPoint::AfterActionCheck);
            checked
        })
    }
}

pub struct FaultyTrees {
    pub inner: Arc<dyn Trees>,
    pub faults: Arc<dyn Faults>,
}

impl Trees for FaultyTrees {
    fn snapshot(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeSnapshot);
            let taken = self.inner.snapshot().await;
            self.faults.reached(CrashPoint::AfterSnapshot);
            taken
        })
    }
    fn hash(&self) -> BoxFuture<'_, Result<TreeId, TreeError>> {
        self.inner.hash()
    }
    fn differences<'a>(
        &'a self,
        from: &'a TreeId,
        to: &'a TreeId,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TreeError>> {
        self.inner.differences(from, to)
    }
    fn undo<'a>(&'a self, undo: &'a Undo) -> BoxFuture<'a, Result<Restored, TreeError>> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeUndo);
            let restored = self.inner.undo(undo).await;
            self.faults.reached(CrashPoint::AfterUndo);
            restored
        })
    }
}

pub struct FaultyHooks {
    pub inner: Arc<dyn Hooks>,
    pub faults: Arc<dyn Faults>,
}

impl Hooks for FaultyHooks {
    fn tell<'a>(&'a self, task: &'a Task, call: HookCall) -> BoxFuture<'a, HookRan> {
        Box::pin(async move {
            self.faults.reached(CrashPoint::BeforeHook);
            let ran = self.inner.tell(task, call).await;
            self.faults.reached(CrashPoint::AfterHook);
            ran
        })
    }
}
