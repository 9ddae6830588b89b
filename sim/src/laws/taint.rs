//! Law 8, for what a run has read: its label falls by an endorsement alone, and what it wrote while tainted is marked.

use std::collections::BTreeMap;

use longrein_core::event::Event;
use longrein_core::ids::{ActionId, RunId, Seq};
use longrein_core::run::Run;

use crate::store::ShadowRun;
use crate::town::Town;

/// What was read is known, and stays known.
pub(super) fn check(town: &Town, id: &RunId, shadow: &ShadowRun) {
    let breach = |what: String| town.record.breach("law_8", format!("{id}: {what}"));
    let mut run: Option<Run> = None;
    let mut tainted_starts: BTreeMap<(ActionId, u32), bool> = BTreeMap::new();
    let mut is_endorsed = false;
    for (number, new) in shadow.events.iter().enumerate() {
        let seq = Seq(number as u64 + 1);
        let Some(run) = &mut run else {
            if let Event::RunStarted(started) = &new.event {
                run = Some(Run::new(started, new.at));
            }
            continue;
        };
        let before = run.taint.label();
        run.apply(seq, new.at, &new.event);
        let after = run.taint.label();
        let endorses = matches!(new.event, Event::SourceEndorsed(_));
        is_endorsed |= endorses;
        if before.join(after) != after && !endorses {
            breach(format!("event {seq} lowers what is known of what was read"));
        }
        if let Event::ActionStarted(started) = &new.event {
            let tool = run.action(started.action).map(|action| action.tool.clone());
            let untrusted = tool.as_ref().and_then(|tool| town.rules.brings(tool));
            if let Some(mark) = untrusted
                && mark.label.join(after) != after
            {
                breach(format!("event {seq} starts {} and what it reads taints nothing", started.action));
            }
            tainted_starts.insert((started.action, started.attempt), after.is_tainted());
        }
    }
    let Some(run) = run else { return };
    // What is endorsed meanwhile need not be marked.
    if is_endorsed {
        return;
    }
    let marks = match longrein_ports::Store::marks(&town.store.memory(), 0) {
        Ok(marks) => marks.files,
        Err(error) => return breach(format!("marks cannot be read: {error}")),
    };
    for file in town.world.files().into_iter().filter(|file| file.run == *id) {
        let tainted = tainted_starts.get(&(file.action, file.attempt)).copied().unwrap_or(false);
        let still_open = run.action(file.action).is_some_and(|action| action.may_run());
        let marked = marks
            .iter()
            .any(|mark| mark.path == file.path && (mark.contents.is_empty() || mark.contents.contains(&file.content)));
        if tainted && !still_open && !marked {
            breach(format!("{} wrote {} while the run was tainted, and it is not marked", file.action, file.path));
        }
    }
}
