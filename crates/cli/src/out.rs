//! Lines on stdout and stderr. A reader that went away ends the printing, never the run: `println!` would panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line of results.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::stdout(format_args!($($text)*)) };
}

/// A line of anything else.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::stderr(format_args!($($text)*)) };
}

pub(crate) use {say, tell};

/// Set once results could not be written for another reason than a reader that went away.
static LOST: AtomicBool = AtomicBool::new(false);

pub(crate) fn stdout(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Whether results were lost on their way out.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

pub(crate) fn stderr(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
