//! Calls that were denied because nobody could be asked: a run that did without them looks like any other.

use std::collections::BTreeMap;

use longrein::core::event::{Event, No};
use longrein::core::ids::ActionId;
use longrein::ports::{Recorded, RecordedBody};

use crate::words;

/// More are counted, and not named.
const NAMED_MAX: usize = 5;

/// The calls, in call order.
#[derive(Default)]
pub(crate) struct Unasked {
    proposed: BTreeMap<ActionId, String>,
    denied: BTreeMap<ActionId, String>,
}

impl Unasked {
    pub(crate) fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if let Event::ActionProposed(proposed) = event {
            self.proposed.insert(proposed.action, proposed.tool.as_str().to_owned());
        } else if let Event::ActionDenied(denied) = event
            && denied.no == No::Unasked
        {
            let tool = self.proposed.get(&denied.action).cloned().unwrap_or_default();
            self.denied.insert(denied.action, tool);
        }
    }

    /// None: there was none.
    pub(crate) fn line(&self) -> Option<String> {
        let calls = match self.denied.len() {
            0 => return None,
            1 => "1 call was".to_owned(),
            more => format!("{more} calls were"),
        };
        let named = self.denied.iter().take(NAMED_MAX);
        let mut named: Vec<_> = named.map(|(action, tool)| format!("{action} {}", words::short(tool, 64))).collect();
        if self.denied.len() > NAMED_MAX {
            named.push("\u{2026}".to_owned());
        }
        let them = if self.denied.len() == 1 { "it" } else { "them" };
        Some(format!(
            "{calls} denied because nobody could be asked: {}; allow {them} with --allow RULE or answer {them} with \
             --on-ask wait",
            named.join(", ")
        ))
    }
}
