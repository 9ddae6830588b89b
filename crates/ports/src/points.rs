//! Crash points: named places in append and dispatch where a process can be made to die (`semantics.md` A5).

use std::fmt;
use std::str::FromStr;

use longrein_core::event::EventKind;

/// Where to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashPoint {
    /// A batch with such an event is about to be appended.
    BeforeAppend(EventKind),
    /// A batch with such an event was committed; nobody acted on it yet.
    AfterAppend(EventKind),
    /// A model request is journaled and about to be sent.
    BeforeSend,
    /// A reply has arrived and is not journaled.
    AfterReply,
    /// An action's start is journaled; its program is not running.
    BeforeTool,
    /// The program is running.
    DuringTool,
    /// The program has ended; its outcome is not journaled.
    AfterTool,
    /// Before a reconcile command.
    BeforeProbe,
    /// After a reconcile command.
    AfterProbe,
    /// Before an acceptance command.
    BeforeCheck,
    /// After an acceptance command.
    AfterCheck,
    /// Before the check of an action.
    BeforeActionCheck,
    /// After the check of an action.
    AfterActionCheck,
    /// A snapshot of the workspace is about to be taken.
    BeforeSnapshot,
    /// It is taken, and not journaled.
    AfterSnapshot,
    /// The workspace is about to be set back.
    BeforeUndo,
    /// It is set back; that is not journaled.
    AfterUndo,
    /// Before a hook.
    BeforeHook,
    /// A hook has ended; what it said is not journaled.
    AfterHook,
}

impl CrashPoint {
    /// All of them, in a fixed order.
    pub fn all() -> Vec<CrashPoint> {
        let mut points: Vec<_> = EventKind::ALL
            .iter()
            // Nobody drives a run while it is forked.
            .filter(|kind| **kind != EventKind::RunForked)
            .flat_map(|kind| [CrashPoint::BeforeAppend(*kind), CrashPoint::AfterAppend(*kind)])
            .collect();
        points.extend([
            CrashPoint::BeforeSend,
            CrashPoint::AfterReply,
            CrashPoint::BeforeTool,
            CrashPoint::DuringTool,
            CrashPoint::AfterTool,
            CrashPoint::BeforeProbe,
            CrashPoint::AfterProbe,
            CrashPoint::BeforeCheck,
            CrashPoint::AfterCheck,
            CrashPoint::BeforeActionCheck,
            CrashPoint::AfterActionCheck,
            CrashPoint::BeforeSnapshot,
            CrashPoint::AfterSnapshot,
            CrashPoint::BeforeUndo,
            CrashPoint::AfterUndo,
            CrashPoint::BeforeHook,
            CrashPoint::AfterHook,
        ]);
        points
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashPoint::BeforeAppend(kind) => write!(f, "append.before.{kind}"),
            CrashPoint::AfterAppend(kind) => write!(f, "append.after.{kind}"),
            CrashPoint::BeforeSend => f.write_str("model.before_send"),
            CrashPoint::AfterReply => f.write_str("model.after_reply"),
            CrashPoint::BeforeTool => f.write_str("tool.before_spawn"),
            CrashPoint::DuringTool => f.write_str("tool.running"),
            CrashPoint::AfterTool => f.write_str("tool.after_exit"),
            CrashPoint::BeforeProbe => f.write_str("probe.before"),
            CrashPoint::AfterProbe => f.write_str("probe.after"),
            CrashPoint::BeforeCheck => f.write_str("check.before"),
            CrashPoint::AfterCheck => f.write_str("check.after"),
            CrashPoint::BeforeActionCheck => f.write_str("action_check.before"),
            CrashPoint::AfterActionCheck => f.write_str("action_check.after"),
            CrashPoint::BeforeSnapshot => f.write_str("snapshot.before"),
            CrashPoint::AfterSnapshot => f.write_str("snapshot.after"),
            CrashPoint::BeforeUndo => f.write_str("undo.before"),
            CrashPoint::AfterUndo => f.write_str("undo.after"),
            CrashPoint::BeforeHook => f.write_str("hook.before"),
            CrashPoint::AfterHook => f.write_str("hook.after"),
        }
    }
}

/// `POINT[:N]`: die when the point is reached for the N-th time (1 if left out).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashAt {
    pub point: CrashPoint,
    pub nth: u32,
}

impl FromStr for CrashAt {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, nth) = match text.rsplit_once(':') {
            Some((name, nth)) => match nth.parse() {
                Ok(nth) if nth > 0 => (name, nth),
                _ => return Err(format!("\"{nth}\" is no count: write POINT:1, POINT:2, …")),
            },
            None => (text, 1),
        };
        CrashPoint::all()
            .into_iter()
            .find(|point| point.to_string() == name)
            .map(|point| CrashAt { point, nth })
            .ok_or_else(|| format!("no crash point \"{name}\": --crash-at list prints them"))
    }
}

/// Told when a crash point is reached; may not return.
pub trait Faults: Send + Sync {
    fn reached(&self, point: CrashPoint);
}
