//! Lines on stdout and stderr. A reader that went away ends the printing, never the run: `println!` would panic.

use std::fmt::Arguments;
use std::io::Write;

/// A line of results.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::stdout(format_args!($($text)*)) };
}

/// A line of anything else.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::stderr(format_args!($($text)*)) };
}

pub(crate) use {say, tell};

pub(crate) fn stdout(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

pub(crate) fn stderr(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
