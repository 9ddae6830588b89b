//! Steps that can be undone: the workspace kept before them, checked after them, and set back where the check says no.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::check::{Finding, Proof, Verdict};
use longrein_core::decide::{Command, TreeView, Undo, Undone, undo_of};
use longrein_core::event::{End, Event};
use longrein_core::ids::{ActionId, CheckName, Digest, TreeId};
use longrein_core::owed;
use longrein_core::payload::{Content, Payload, text_of};
use longrein_core::run::Stage;
use longrein_core::taint::Mark;
use longrein_core::task::{CheckBy, EffectClass, Snapshots, Task};
use longrein_core::time::Timestamp;
use longrein_ports::{ActionCheck, Changed, CheckRun, Checked, Difference, TreeError, Trees, Work};

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;
use crate::jobs::{self, Cut, Flight, GivenUp, Landed, Seen, unless_given_up};
use crate::ports::Ports;

/// Times a restore is asked for that stopped in the middle or found the disk unwilling, and the wait between them.
const UNDO_TRIES: u32 = 3;
const UNDO_WAIT: Duration = Duration::from_millis(500);

impl Drive<'_> {
    pub(crate) fn trees(&self) -> Result<&Arc<dyn Trees>, String> {
        match (self.run.task.snapshots, &self.ports.trees) {
            (Snapshots::Off, _) => Err("the task takes no snapshots".to_owned()),
            (Snapshots::Auto, None) => Err("no snapshots are kept here".to_owned()),
            (Snapshots::Auto, Some(trees)) => Ok(trees),
        }
    }

    /// What is known of the workspace in the present write epoch.
    pub(crate) fn tree_view(&self) -> TreeView {
        if let Err(why) = self.trees() {
            return TreeView::None(why);
        }
        match &self.tree {
            Some((epoch, Ok(tree))) if *epoch == self.run.epochs.len() => TreeView::Taken(tree.clone()),
            Some((epoch, Err(why))) if *epoch == self.run.epochs.len() => TreeView::Failed(why.clone()),
            Some(_) | None => match &self.just_left {
                Some((epoch, tree)) if *epoch == self.run.epochs.len() => TreeView::Taken(tree.clone()),
                Some(_) | None => TreeView::NotTaken,
            },
        }
    }

    /// Takes the snapshot that a start waits for. Answers whether anything took off.
    pub(crate) fn take_tree(&mut self, action: ActionId) -> bool {
        let Ok(trees) = self.trees().map(Arc::clone) else { return false };
        self.tree_waits.insert(action);
        if self.hangar.is_flying(&Flight::Tree(self.run.epochs.len())) {
            return false;
        }
        self.look_at_tree(trees);
        true
    }

    fn look_at_tree(&mut self, trees: Arc<dyn Trees>) {
        let epoch = self.run.epochs.len();
        let look = async move { trees.snapshot().await.map_err(|error| error.to_string()) };
        self.hangar.launch(Flight::Tree(epoch), look, move |seen| Landed::Tree(epoch, seen));
    }

    /// How the run found the workspace, before children may change it.
    pub(crate) fn first_look(&mut self) -> Look {
        let epoch = self.run.epochs.len();
        let Ok(trees) = self.trees().map(Arc::clone) else { return Look::Taken(None) };
        match &self.tree {
            _ if !self.run.wants_first_look() => return Look::Taken(None),
            Some((of, taken)) if *of == epoch => return Look::Taken(taken.as_ref().ok().cloned()),
            Some(_) | None => {}
        }
        if self.hangar.is_flying(&Flight::Tree(epoch)) {
            return Look::Flying;
        }
        self.look_at_tree(trees);
        Look::TookOff
    }

    pub(crate) fn tree_taken(&mut self, epoch: usize, seen: Result<Seen, Cut>) {
        self.tree_waits.clear();
        if let Some(taken) = unless_given_up(seen) {
            self.tree = Some((epoch, taken));
        }
    }

    /// Begins the check of an action that is done.
    pub(crate) async fn check_action(
        &mut self,
        id: ActionId,
        attempt: u32,
        until: Option<Timestamp>,
    ) -> Result<bool, DriveError> {
        if until.is_some_and(|until| self.ports.clock.now() >= until) {
            self.action_checked(id, attempt, Err(Cut::Aborted(GivenUp::AtRest)));
            return Ok(true);
        }
        // Its result is journaled before anything looks at it.
        if !self.draft.events.is_empty() {
            self.put_off = true;
            return Ok(false);
        }
        let Some(action) = self.run.action(id) else { return Ok(false) };
        let handed = edge::handed(self.ports, &self.run, action, &self.inputs).await?;
        let check = ActionCheck { attempt: self.run.attempt(action, action.idempotency_key.clone()), handed };
        let (ports, task) = (self.ports.clone(), Arc::clone(&self.run.task));
        let writes = task.tool(&action.tool).and_then(|spec| spec.writes.clone());
        // Its hold is what nobody else may write meanwhile: what is new there after the check, the check wrote.
        let is_alone =
            action.effect == EffectClass::Workspace && action.tree.is_some() && (writes.is_some() || !action.beside);
        let trees = self.trees().map(Arc::clone).ok().filter(|_| is_alone);
        let check = async move {
            let before = match &trees {
                Some(trees) => trees.snapshot().await.ok(),
                None => None,
            };
            let mut checked = ports.checks.check_action(&task, check).await;
            if let (Some(trees), Some(before)) = (&trees, before) {
                tidy(trees.as_ref(), before, writes, &mut checked.verdict).await;
            }
            let brings = jobs::shown_of(&ports, &task, &checked);
            (checked, brings)
        };
        let hears = move |checked| Landed::CheckAction(id, attempt, checked);
        self.hangar.launch(Flight::CheckAction(id, attempt), check, hears);
        Ok(true)
    }

    pub(crate) fn action_checked(
        &mut self,
        action: ActionId,
        attempt: u32,
        checked: Result<(Checked, Vec<Mark>), Cut>,
    ) {
        let not_run = |why: &str| Verdict {
            finding: Finding::Failed,
            evidence: Content::Inline(Payload::string(why)),
            exit_status: None,
            took_ms: 0,
            proof: Proof::default(),
        };
        let (verdict, brings) = match checked {
            Ok((Checked { verdict, blobs }, brings)) => {
                self.keep_blobs(blobs);
                (verdict, brings)
            }
            Err(Cut::Broken(panic)) => (not_run(&format!("The check broke down: {panic}")), Vec::new()),
            // What was not seen to pass is not kept.
            Err(Cut::Aborted(why)) if self.stopping.is_none() && self.run.winding.is_some() => {
                (not_run(&format!("The check was ended before it was through: {}.", why.as_str())), Vec::new())
            }
            // Given up: still owed if it is.
            Err(Cut::Aborted(_)) => return,
        };
        self.command(Command::GiveActionVerdict { action, attempt, verdict, brings });
    }

    /// Begins to set the workspace back to before an action.
    pub(crate) fn undo(&mut self, id: ActionId, attempt: u32) -> bool {
        // Why it is undone is journaled before it is.
        if !self.draft.events.is_empty() {
            self.put_off = true;
            return false;
        }
        let Some(action) = self.run.action(id) else { return false };
        let trees = self.trees().map(Arc::clone);
        let (trees, undo) = match (trees, undo_of(&self.run, action)) {
            (Ok(trees), Ok(undo)) => (trees, undo),
            (Err(reason), _) => {
                return self.command(Command::TakeUndone { action: id, attempt, undone: Err(reason) });
            }
            (Ok(_), Err(reason)) => {
                let undone = Err(reason.to_owned());
                return self.command(Command::TakeUndone { action: id, attempt, undone });
            }
        };
        let work = async move { set_back(trees.as_ref(), undo).await };
        self.hangar.launch(Flight::Undo(id, attempt), work, move |undone| Landed::Undo(id, attempt, undone));
        true
    }

    /// Asked twice it ends as if asked once.
    pub(crate) fn undone(&mut self, action: ActionId, attempt: u32, undone: Result<Result<Undone, String>, Cut>) {
        if let Some(undone) = unless_given_up(undone) {
            self.command(Command::TakeUndone { action, attempt, undone });
        }
    }

    /// What an acceptance check needs.
    pub(crate) async fn acceptance(&self, check: &CheckName) -> Result<Option<Acceptance>, DriveError> {
        let Some(spec) = self.run.check_spec(check).cloned() else {
            return Ok(None);
        };
        let about = match &spec.by {
            None => Work::default(),
            Some(CheckBy::Rule(_) | CheckBy::Schema(_) | CheckBy::Host(_) | CheckBy::Judge(_)) => {
                edge::work(self.ports, &self.run).await?
            }
        };
        let programs = self.run.waived.as_ref().map(|waived| waived.programs.clone()).unwrap_or_default();
        Ok(Some(Acceptance {
            check: CheckRun { run: self.run.id.clone(), spec, about },
            trees: self.trees().map(Arc::clone),
            first_tree: self.run.first_tree.clone(),
            programs,
        }))
    }

    pub(crate) fn proof_flies(&self) -> bool {
        match &self.run.stage {
            Stage::Verifying { round, .. } => self.hangar.is_flying(&Flight::Proof(*round)),
            Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => false,
        }
    }

    /// Whether something still runs past its time that could void what the run is about to be done with.
    pub(crate) fn overtime_holds_the_end(&self) -> bool {
        self.hangar.overtime().next().is_some() && matches!(owed::due_end(&self.run), Some(End::Done(_)))
    }

    /// Writes the end the run has come to. Verdicts count for the workspace that is there: unless the last one is of this
    /// very moment, it is looked at once more (`semantics.md` G3).
    pub(crate) fn conclude(&mut self) -> bool {
        // While a model thinks about it the workspace does not stand still: a verdict that is an opinion is old.
        let is_now = |event: &Event| matches!(event, Event::CheckFinished(finished) if finished.action.is_none() && finished.verdict.proof.opinion.is_none());
        let is_last_verdict = self.draft.events.iter().any(|new| is_now(&new.event));
        let seen = match (owed::due_end(&self.run), &self.run.stage) {
            (Some(End::Done(_)), Stage::Verifying { round, .. }) if !is_last_verdict => {
                self.run.proven_tree().map(|_| *round)
            }
            (Some(_) | None, _) => None,
        };
        match (seen, self.trees().map(Arc::clone)) {
            (Some(round), Ok(trees)) => {
                let look = async move { trees.hash().await.map_err(|error| error.to_string()) };
                self.hangar.launch(Flight::Proof(round), look, move |seen| Landed::Proof(round, seen));
                true
            }
            (Some(_), Err(_)) | (None, _) => self.command(Command::Conclude),
        }
    }

    pub(crate) fn proof_taken(&mut self, round: u32, seen: Result<Seen, Cut>) {
        let Some(seen) = unless_given_up(seen) else { return };
        let tree = seen.ok();
        let is_proven = tree.as_ref().is_some_and(|tree| self.run.proven_tree() == Some(tree));
        if !is_proven {
            self.command(Command::VoidChecks { round, tree });
        } else if !self.hooks_hold_the_end() {
            self.command(Command::Conclude);
        }
    }
}

/// What came of looking at the workspace.
pub(crate) enum Look {
    /// None: it cannot be looked at, or need not be.
    Taken(Option<TreeId>),
    TookOff,
    Flying,
}

/// One acceptance check, and what its verdict is held against.
pub(crate) struct Acceptance {
    check: CheckRun,
    trees: Result<Arc<dyn Trees>, String>,
    /// The workspace before the run changed anything.
    first_tree: Option<TreeId>,
    /// Changed programs that a person lets run.
    programs: BTreeMap<String, Option<Digest>>,
}

/// Runs an acceptance check between two looks at the workspace.
pub(crate) async fn accept(ports: &Ports, task: &Task, acceptance: Acceptance) -> Checked {
    let Acceptance { check, trees, first_tree, programs } = acceptance;
    let spec = check.spec.clone();
    let look = async || match &trees {
        Ok(trees) => trees.snapshot().await.map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    let before = look().await;
    let changed = ports.checks.changed(&spec);
    let program = changed.map(|Changed { file, content }| (file, content));
    let may_run = program.as_ref().is_none_or(|(file, content)| programs.get(file) == Some(content));
    let mut checked = if may_run {
        ports.checks.check(task, check).await
    } else {
        let file = program.as_ref().map_or("", |(file, _)| file.as_str());
        let text = format!("Not run: {file} is not what it was when the run started.");
        let evidence = Content::Inline(Payload::string(&text));
        let proof = Proof::default();
        Checked {
            verdict: Verdict { finding: Finding::Held, evidence, exit_status: None, took_ms: 0, proof },
            blobs: Vec::new(),
        }
    };
    let after = look().await;
    let verdict = &mut checked.verdict;
    let proof = &mut verdict.proof;
    proof.program = program;
    proof.output = Some(verdict.evidence.digest());
    match (&trees, before) {
        (Ok(trees), Ok(before)) => {
            if after.as_ref() != Ok(&before) {
                let told = match put_right(trees.as_ref(), &before, after).await {
                    Ok(told) => told,
                    Err((left, why)) => {
                        (proof.left, proof.unrestored) = (left, Some(why.clone()));
                        why
                    }
                };
                let text = format!("{}\n[{told}]", text_of(&verdict.evidence).trim_end());
                verdict.finding = Finding::Failed;
                verdict.evidence = Content::Inline(Payload::string(&text));
            }
            if let Some(first) = first_tree.filter(|first| *first != before) {
                proof.protected = match trees.differences(&first, &before).await {
                    Ok(found) => {
                        let paths = found.into_iter().map(|difference| difference.path).collect();
                        ports.checks.protected(&spec, paths)
                    }
                    Err(_) if spec.protect.is_empty() => Vec::new(),
                    // What cannot be compared may have been changed.
                    Err(error) => vec![format!("{} (cannot be compared: {error})", spec.protect.join(", "))],
                };
            }
            proof.tree = Some(before);
        }
        (_, Err(why)) => proof.unhashed = Some(why),
        (Err(why), Ok(_)) => proof.unhashed = Some(why.clone()),
    }
    // What cannot be looked at may have been changed.
    if let Some(why) = proof.unhashed.as_ref().filter(|_| !spec.protect.is_empty()) {
        proof.protected = vec![format!("{} (cannot be compared: {why})", spec.protect.join(", "))];
    }
    checked
}

/// Sets back what an acceptance check has changed of the workspace it was to judge: the next round would judge that, and not
/// the work. Answers what is to be said of it; else how the workspace stays, where that is known, and why.
async fn put_right(
    trees: &dyn Trees,
    before: &TreeId,
    after: Result<TreeId, String>,
) -> Result<String, (Option<TreeId>, String)> {
    let after = after.map_err(|why| {
        (None, format!("it left the workspace it was to judge in a state that nobody can tell, or set back: {why}"))
    })?;
    let paths = trees.differences(before, &after).await.map(|found| in_words(&found));
    let paths = paths.unwrap_or_else(|error| format!("(which paths cannot be told: {error})"));
    let changed = format!("it changed the workspace it was to judge: {paths}");
    match set_back(trees, Undo { to: before.clone(), left: Some(after.clone()), within: None }).await {
        Ok(_) => Ok(format!("{changed}; that was set back")),
        Err(why) => Err((Some(after), format!("{changed}; that could not be set back: {why}"))),
    }
}

/// A few of the paths that differ.
fn in_words(found: &[Difference]) -> String {
    const TOLD: usize = 8;
    let told: Vec<_> = found.iter().take(TOLD).map(ToString::to_string).collect();
    match found.len().saturating_sub(TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// How a program left the workspace. None: it could not be told.
pub(crate) async fn left(ports: &Ports) -> Option<TreeId> {
    match &ports.trees {
        Some(trees) => trees.snapshot().await.ok(),
        None => None,
    }
}

/// A check judges what was done and does nothing itself: what it has written is set back, so that it neither stands in the
/// work nor in the way of undoing it. Where that cannot be, it has failed for that.
async fn tidy(trees: &dyn Trees, before: TreeId, within: Option<Vec<String>>, verdict: &mut Verdict) {
    let Ok(after) = trees.snapshot().await else { return };
    if after == before {
        return;
    }
    let told = match set_back(trees, Undo { to: before, left: Some(after), within }).await {
        Ok(undone) if undone.paths.is_empty() => return,
        Ok(undone) => format!("what the check itself had written was set back: {}", few(&undone.paths)),
        Err(why) => {
            verdict.finding = Finding::Failed;
            format!("the check changed the workspace it was to judge, and that could not be set back: {why}")
        }
    };
    let text = format!("{}\n[{told}]", text_of(&verdict.evidence).trim_end());
    verdict.evidence = Content::Inline(Payload::string(&text));
    verdict.proof.output = Some(verdict.evidence.digest());
}

/// A few of these paths.
fn few(paths: &[String]) -> String {
    const TOLD: usize = 8;
    match paths.len().saturating_sub(TOLD) {
        0 => paths.join(", "),
        more => format!("{} and {more} more", paths[..TOLD].join(", ")),
    }
}

/// Sets the workspace back; asks again where that may help.
async fn set_back(trees: &dyn Trees, undo: Undo) -> Result<Undone, String> {
    let Undo { to, left, within } = undo;
    let left = match left {
        Some(left) => left,
        // Its worker died: all that is known is how the workspace is now.
        None => trees.snapshot().await.map_err(|error| error.to_string())?,
    };
    let asked = longrein_ports::Undo { to: to.clone(), left, within };
    let mut tries = 1;
    loop {
        match trees.undo(&asked).await {
            Ok(restored) if restored.kept.is_empty() => {
                return Ok(Undone { to, paths: restored.paths, aside: restored.aside });
            }
            Ok(restored) => {
                let kept = restored.kept.join(", ");
                let done = restored.paths.len();
                return Err(format!("{done} paths were set back, but what no snapshot holds stays as it is: {kept}"));
            }
            Err(TreeError::Partly { .. } | TreeError::Unavailable(_)) if tries < UNDO_TRIES => {
                tries += 1;
                tokio::time::sleep(UNDO_WAIT).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
