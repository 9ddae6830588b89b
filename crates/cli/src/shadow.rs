//! What a shadow run would have done: its report, from the journal.

use std::collections::BTreeMap;

use longrein::core::event::Event;
use longrein::core::ids::ActionId;
use longrein::core::ruling::{Ruling, Shadowed};
use longrein::ports::{Recorded, RecordedBody};
use longrein::projection;
use serde_json::{Value, json};

use crate::words;

/// The calls that were made and not carried out, in call order.
#[derive(Default)]
pub(crate) struct Report {
    proposed: BTreeMap<ActionId, (String, String)>,
    calls: BTreeMap<ActionId, Shadowed>,
}

impl Report {
    pub(crate) fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if let Event::ActionProposed(proposed) = event {
            let call = (proposed.tool.as_str().to_owned(), proposed.args.as_str().to_owned());
            self.proposed.insert(proposed.action, call);
        } else if let Event::ActionRefused(refused) = event
            && let Some(would) = &refused.would
        {
            self.calls.insert(refused.action, would.clone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Each call, how it would have been ruled on, and what it would have done.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (action, would) in &self.calls {
            let (tool, args) = self.proposed.get(action).cloned().unwrap_or_default();
            lines.push(format!("{action} {} {}", words::short(&tool, 64), words::short(&args, 200)));
            let (rule, reason) = (words::short(would.ruling.rule(), 80), would.ruling.reason().unwrap_or_default());
            let reason = words::short(reason.trim_end_matches('.'), 200);
            lines.push(match &would.ruling {
                Ruling::Allow { .. } => format!("  would have been allowed ({rule})"),
                Ruling::Ask { .. } => format!("  would have been asked about, because {reason} ({rule})"),
                Ruling::Deny { .. } => format!("  would have been denied, because {reason} ({rule})"),
            });
            lines.extend(words::effects(&tool, &would.effects).into_iter().map(|effect| format!("  {effect}")));
        }
        lines
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<_> = self
            .calls
            .iter()
            .map(|(action, would)| {
                let (tool, args) = self.proposed.get(action).cloned().unwrap_or_default();
                let args: Value = serde_json::from_str(&args).unwrap_or(Value::String(args));
                let mut row = json!({ "action": action, "tool": tool, "args": args });
                if let (Value::Object(row), Value::Object(would)) = (&mut row, projection::shadowed(would)) {
                    row.extend(would);
                }
                row
            })
            .collect();
        json!(rows)
    }
}
