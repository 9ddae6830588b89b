//! Calls that were denied though nobody said no: because nobody could be asked, or for what the run had read. A run that did
//! without them looks like any other.

use std::collections::BTreeMap;

use longrein::TAINT_RULE;
use longrein::core::event::{Event, No};
use longrein::core::ids::ActionId;
use longrein::core::outcome::class;
use longrein::core::run::Run;
use longrein::ports::{Recorded, RecordedBody};

use crate::context::StoreAt;
use crate::{taint, words};

/// More are counted, and not named.
const NAMED_MAX: usize = 5;

/// The calls, in call order.
#[derive(Default)]
pub(crate) struct Unasked {
    proposed: BTreeMap<ActionId, String>,
    /// An allow rule would have let them run.
    denied: BTreeMap<ActionId, String>,
    /// No rule lifts what stood against them. With whether a person's yes would have.
    tainted: BTreeMap<ActionId, (String, MayBeAsked)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MayBeAsked {
    Yes,
    No,
}

impl Unasked {
    pub(crate) fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if let Event::ActionProposed(proposed) = event {
            self.proposed.insert(proposed.action, proposed.tool.as_str().to_owned());
        } else if let Event::ActionDenied(denied) = event
            && denied.no == No::Unasked
        {
            let tool = self.tool_of(denied.action);
            if denied.reason.as_ref().is_some_and(|reason| reason.contains(TAINT_RULE)) {
                self.tainted.insert(denied.action, (tool, MayBeAsked::Yes));
            } else {
                self.denied.insert(denied.action, tool);
            }
        } else if let Event::ActionRefused(refused) = event
            && refused.error.class == class::DENIED
            && refused.error.message.contains(TAINT_RULE)
        {
            self.tainted.insert(refused.action, (self.tool_of(refused.action), MayBeAsked::No));
        }
    }

    fn tool_of(&self, action: ActionId) -> String {
        self.proposed.get(&action).cloned().unwrap_or_default()
    }

    /// What there is to say, if anything.
    pub(crate) fn lines(&self, store: &StoreAt, run: &Run) -> Vec<String> {
        let mut lines = Vec::new();
        let them = |count: usize| if count == 1 { "it" } else { "them" };
        if !self.denied.is_empty() {
            let them = them(self.denied.len());
            lines.push(format!(
                "{} denied because nobody could be asked: {}; allow {them} with --allow RULE or answer {them} with --on-ask \
                 wait",
                counted(self.denied.len()),
                named(self.denied.iter().map(|(action, tool)| (action, tool.as_str())))
            ));
        }
        if !self.tainted.is_empty() {
            let them = them(self.tainted.len());
            let answer = match self.tainted.values().all(|(_, may)| *may == MayBeAsked::Yes) {
                true => format!("; answer {them} with --on-ask wait"),
                false => String::new(),
            };
            let trust = taint::way_to_trust(store, run).map(|way| format!("; {way}")).unwrap_or_default();
            lines.push(format!(
                "{} denied for what the run has read, and no rule lifts that: {}{answer}{trust}",
                counted(self.tainted.len()),
                named(self.tainted.iter().map(|(action, (tool, _))| (action, tool.as_str())))
            ));
        }
        lines
    }
}

fn counted(calls: usize) -> String {
    if calls == 1 { "1 call was".to_owned() } else { format!("{calls} calls were") }
}

fn named<'a>(calls: impl ExactSizeIterator<Item = (&'a ActionId, &'a str)>) -> String {
    let more = if calls.len() > NAMED_MAX { ", \u{2026}" } else { "" };
    let named = calls.take(NAMED_MAX).map(|(action, tool)| format!("{action} {}", words::short(tool, 64)));
    format!("{}{more}", named.collect::<Vec<_>>().join(", "))
}
