//! What a tainted run leaves in files: entered in the batch that tells of it, so that reading them again taints as well.
//!
//! A change of one file says at its start what it will leave, and is entered with the start: nothing can come between. What
//! a program writes shows only afterwards, by the times the kernel keeps; one that was cut off is looked after by whoever
//! recovers it, from the journaled start on.

use longrein_core::action::Action;
use longrein_core::event::Event;
use longrein_core::ids::ActionId;
use longrein_core::input::InputBody;
use longrein_core::run::{Run, Stage};
use longrein_core::taint::Mark;
use longrein_core::target::Place;
use longrein_core::task::{Builtin, Task, ToolBody};
use longrein_core::time::Timestamp;
use longrein_ports::{FileMark, Written};

use crate::claimed::Drive;
use crate::ports::Ports;

/// Where to look for what was written, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    folder: String,
    since: Timestamp,
}

impl Watch {
    /// Of an action of a tainted run that runs a program. None: there is nothing to look for.
    pub(crate) fn of(run: &Run, action: &Action, now: Timestamp) -> Option<Self> {
        let tool = run.task.tool(&action.tool)?;
        (run.taint.is_tainted() && writes_unseen(&tool.body)).then(|| Self::since(run, action.first_start, now))
    }

    /// Of the checks of a tainted run.
    pub(crate) fn of_checks(run: &Run, now: Timestamp) -> Option<Self> {
        let since = match &run.stage {
            Stage::Verifying { since, .. } => Some(*since),
            // Those of a phase of its program.
            Stage::Ready(_) => None,
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => return None,
        };
        run.taint.is_tainted().then(|| Self::since(run, since, now))
    }

    /// The journal's clock never goes back; the kernel's may have.
    fn since(run: &Run, started: Option<Timestamp>, now: Timestamp) -> Self {
        Self { folder: run.task.workspace.clone(), since: started.map_or(now, |started| started.min(now)) }
    }

    pub(crate) async fn look(self, ports: &Ports) -> Vec<Written> {
        ports.origins.written(&self.folder, self.since).await
    }
}

/// Whether nobody knows beforehand what it writes.
fn writes_unseen(body: &ToolBody) -> bool {
    match body {
        ToolBody::Command(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => true,
        ToolBody::Builtin(builtin) => match builtin {
            Builtin::Shell => true,
            Builtin::ReadFile
            | Builtin::WriteFile
            | Builtin::EditFile
            | Builtin::ListFiles
            | Builtin::SearchFiles
            | Builtin::Ask
            | Builtin::Recall
            | Builtin::Note
            | Builtin::WebFetch => false,
        },
    }
}

/// The mark of the file that a start of a tainted run says it will write. `run` is the state after it.
pub(crate) fn mark_of_start(run: &Run, event: &Event) -> Option<FileMark> {
    let Event::ActionStarted(started) = event else { return None };
    let target = started.target.as_ref()?;
    let content = target.after.clone()?;
    if !run.taint.is_tainted() {
        return None;
    }
    let path = match target.place {
        Place::Outside => target.path.clone(),
        Place::Inside => below(&run.task, &target.path),
    };
    Some(mark(run, Some(started.action), Written { path, content: Some(content) }))
}

/// What the files bring that were captured for a task: its rules stand in every request.
pub(crate) fn captured(ports: &Ports, task: &Task) -> Vec<Mark> {
    let rules = task.rules.iter().map(|file| below(task, &file.path));
    let mut marks: Vec<Mark> = Vec::new();
    for mark in rules.filter_map(|path| ports.origins.file(&path)) {
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    marks
}

fn below(task: &Task, path: &str) -> String {
    match path {
        "." => task.workspace.clone(),
        path => format!("{}/{path}", task.workspace.trim_end_matches('/')),
    }
}

fn mark(run: &Run, action: Option<ActionId>, written: Written) -> FileMark {
    FileMark {
        path: written.path,
        contents: written.content.into_iter().collect(),
        root: run.task.workspace.clone(),
        taint: run.taint.clone(),
        run: run.id.clone(),
        action,
        at: run.at,
    }
}

impl Drive<'_> {
    /// Enters what was written, with the next batch. None: by a check.
    pub(crate) fn enter(&mut self, action: Option<ActionId>, written: Vec<Written>) {
        if self.run.taint.is_tainted() {
            let marks = written.into_iter().map(|written| mark(&self.run, action, written));
            self.draft.marks.extend(marks);
        }
    }

    /// Looks after a program that was cut off, or that was heard of in another way than by its end.
    pub(crate) async fn look_after(&mut self, id: ActionId) {
        let now = self.ports.clock.now();
        let watch = self.run.action(id).and_then(|action| Watch::of(&self.run, action, now));
        if let Some(watch) = watch {
            let written = watch.look(self.ports).await;
            self.enter(Some(id), written);
        }
    }

    /// Before an input says what became of an action: nobody looks for what it wrote once that is known.
    pub(crate) async fn look_after_input(&mut self, body: &InputBody) {
        let action = match body {
            InputBody::Settle(settle) => settle.action,
            InputBody::LateOutcome(late) => late.action,
            InputBody::Message(_)
            | InputBody::Approve(_)
            | InputBody::Deny(_)
            | InputBody::Cancel
            | InputBody::Raise(_)
            | InputBody::SwitchModel(_)
            | InputBody::Endorse(_)
            | InputBody::ChildEnded(_)
            | InputBody::Rollback(_) => return,
        };
        if self.run.action(action).is_some_and(Action::is_uncertain) {
            self.look_after(action).await;
        }
    }
}
