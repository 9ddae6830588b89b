//! What children make of their parent: what is set aside, what they spent, what they brought.

use super::*;
use crate::children::{self, Child, ChildState, Owed, Report, TOLD_ALL_MAX_BYTES, TOLD_MAX_BYTES};
use crate::event::{ChildEnded, ChildStarted, Wait};

impl Run {
    pub(super) fn child_started(&mut self, started: &ChildStarted) {
        self.barren_claims = 0;
        let number = u32::try_from(self.children.len()).unwrap_or(u32::MAX).saturating_add(1);
        let ChildStarted { key, goal, changes, grant, at_once, writes, child, tree } = started.clone();
        if let Some(tree) = tree {
            self.first_tree.get_or_insert(tree);
        }
        let state = ChildState::Owed(Owed { changes, at_once, writes, waits: Vec::new() });
        self.phase_asked(&child, &key);
        self.children.insert(child, Child { number, key, goal, grant, state });
    }

    /// Settles the reservation: a child that is not owed has none.
    pub(super) fn child_ended(&mut self, ended: &ChildEnded) {
        let report = &ended.report;
        let Some(child) = self.children.get_mut(&report.child) else { return };
        let ChildState::Owed(_) = child.state else { return };
        child.state = ChildState::Ended { report: Box::new(report.clone()), told: false };
        self.barren_claims = 0;
        let Spent { turns: _, model_calls, tool_calls, usage, micros, time_ms: _ } = report.spent;
        self.spend(&usage, micros);
        self.spent.model_calls = self.spent.model_calls.saturating_add(model_calls);
        self.spent.tool_calls = self.spent.tool_calls.saturating_add(tool_calls);
        if report.wrote {
            self.begin_epoch();
            // What it last saw of files may be another child's by now.
            self.seen.clear();
        }
        self.bring(&report.brings);
        if !children::are_open(self) {
            self.tell_of_children();
        }
        self.phase_child_ended();
    }

    pub(super) fn child_settled(&mut self, child: &RunId, unknown: &BTreeMap<RunId, Vec<ActionId>>) {
        if let Some(Child { state: ChildState::Ended { report, .. }, .. }) = self.children.get_mut(child) {
            report.unknown.clone_from(unknown);
        }
    }

    /// Whoever claims a run drives its children anew, and finds out what they wait for.
    pub(super) fn look_at_children_again(&mut self) {
        for child in self.children.values_mut() {
            if let ChildState::Owed(owed) = &mut child.state {
                owed.waits.clear();
            }
        }
    }

    pub(super) fn parked(&mut self, waits: &[Wait]) {
        for wait in waits {
            if let Wait::Child { child, waits } = wait
                && let Some(Child { state: ChildState::Owed(owed), .. }) = self.children.get_mut(child)
            {
                owed.waits.clone_from(waits);
            }
        }
    }

    /// Children of the run that this one was forked from are that one's.
    pub(super) fn leave_children(&mut self) {
        for child in self.children.values_mut() {
            if matches!(child.state, ChildState::Owed(_)) {
                child.state = ChildState::Inherited;
            }
        }
        self.phase_asks_anew();
    }

    /// Tells the model of all that ended since it was told last, in the order in which they were asked for.
    fn tell_of_children(&mut self) {
        let mut lines = Vec::new();
        let untold: Vec<_> = children::ended(self)
            .into_iter()
            .filter(|(child, _)| matches!(child.state, ChildState::Ended { told: false, .. }))
            .collect();
        let most = TOLD_MAX_BYTES.min(TOLD_ALL_MAX_BYTES / untold.len().max(1));
        for (child, report) in untold {
            lines.push(line(child, report, most));
        }
        for child in self.children.values_mut() {
            if let ChildState::Ended { told, .. } = &mut child.state {
                *told = true;
            }
        }
        let text = format!("The runs that this one asked for have ended:\n{}", lines.join("\n"));
        self.tell_when_possible(observe::note(&text));
    }
}

fn line(child: &Child, report: &Report, most: usize) -> String {
    let what = report.answer().unwrap_or(&report.reason);
    let end = (0..=most.min(what.len())).rev().find(|at| what.is_char_boundary(*at)).unwrap_or_default();
    let cut = if end < what.len() { format!(" […, {} bytes in all]", what.len()) } else { String::new() };
    let unknown = match report.unknown_count() {
        0 => String::new(),
        count => format!("; of {count} of its effects nobody knows whether they happened"),
    };
    format!(
        "- {} ({}{unknown}): {}{cut}",
        observe::escaped(&child.key),
        report.end.state(),
        observe::escaped(&what[..end])
    )
}
