//! Time for the driver. Timers themselves are tokio's, so that a paused runtime makes time virtual.

use std::time::Duration;

use longrein_core::time::Timestamp;

pub trait Clock: Send + Sync {
    /// Wall-clock time. Never steps back within one process.
    fn now(&self) -> Timestamp;

    /// Time since this machine booted, suspension included (CLOCK_BOOTTIME). Leases count in it.
    fn boottime(&self) -> Duration;

    /// A random number for jitter, so that core and driver draw none.
    fn jitter(&self) -> u32;
}
