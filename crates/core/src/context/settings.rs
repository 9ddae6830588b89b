//! `[context]` of a task, and the arithmetic of what may be sent.

use serde::{Deserialize, Serialize};

use crate::task::ModelSpec;

/// How the window is kept. Shares are in thousandths of what may be sent, so that a task has the same bytes everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSpec {
    pub trigger: Trigger,
    /// Kept free for errors of the estimate, in thousandths of the window.
    pub margin: u32,
    /// After a rebuild at most so much is used.
    pub target: u32,
    /// Of that, the newest whole turns.
    pub recent: u32,
    /// A model that writes summaries of what has left the window. None: none are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Box<ModelSpec>>,
}

/// When the window is made anew, short of the safety bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Where carrying on costs more than a rebuild (`context.md` §2.1).
    Economic,
    /// At this share of what may be sent, in thousandths.
    At(u32),
}

impl Default for ContextSpec {
    fn default() -> Self {
        Self { trigger: Trigger::Economic, margin: MARGIN, target: TARGET, recent: RECENT, summary: None }
    }
}

impl ContextSpec {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// 2 % (`context.md` §4).
const MARGIN: u32 = 20;
/// 30 %: `context.md` §2.4 asks for 35 at most. Measured in the context benchmark: a larger start costs more at every rebuild,
/// a smaller one makes them so frequent that less of a large window is cached.
const TARGET: u32 = 300;
/// 10 % (`context.md` §2.4).
const RECENT: u32 = 100;

/// The window of a model of which none is declared: what most served models take at least. A server that takes less says
/// so, and the smaller one is learned.
pub const ASSUMED_LIMIT: u64 = 128_000;

/// The most bytes of one request: gateways refuse 20 to 32 MiB (`context.md` §1).
pub const REQUEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The most images of one request: what the strictest of the large providers takes.
pub const REQUEST_IMAGES_MAX: u64 = 100;

/// What one request to a model may hold, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Request and reply together.
    pub window: u64,
    /// Kept free for the reply.
    pub reserved: u64,
    pub margin: u64,
}

impl Limits {
    /// What a request may have by its upper estimate; the estimate's own error is part of that.
    pub fn safe(&self) -> u64 {
        self.window.saturating_sub(self.reserved).saturating_sub(self.margin)
    }

    /// What a request may have by its likely size, where the estimate may be off by `error`.
    pub fn safe_input(&self, error: u64) -> u64 {
        self.safe().saturating_sub(error)
    }
}

/// `part` thousandths of `whole`.
pub(crate) fn share(whole: u64, part: u32) -> u64 {
    whole.saturating_mul(u64::from(part)) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden case of `context.md` §4.
    #[test]
    fn what_may_be_sent_is_the_window_less_output_error_and_margin() {
        let limits = Limits { window: 128_000, reserved: 16_000, margin: 8_000 };
        assert_eq!(limits.safe_input(4_000), 100_000);
        assert_eq!(Limits { window: 1_000, reserved: 900, margin: 200 }.safe_input(4_000), 0);
    }
}
