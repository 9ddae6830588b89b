//! Where text goes: results to stdout, everything else to stderr. A reader that goes away (`| head`) is no error of ours
//! and never ends a run; results that were lost for another reason are.
//!
//! On a terminal the last line may be a status line, rewritten in place. The cursor rests at its beginning, so that it can
//! be taken away however the terminal was resized meanwhile, and nothing has to be put right if this process is killed.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lines::hung;

/// A line of results.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::stdout(format_args!($($text)*)) };
}

/// A line of a listing: whole in a pipe; on a terminal in lines that fit, all but the first set in by so many blanks.
macro_rules! lay {
    ($indent:expr, $($text:tt)*) => { $crate::out::listed($indent, format_args!($($text)*)) };
}

/// A line of anything else.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::stderr(format_args!($($text)*)) };
}

pub(crate) use {lay, say, tell};

/// Set once results could not be written for another reason than a reader that went away.
static LOST: AtomicBool = AtomicBool::new(false);

pub(crate) fn stdout(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn listed(indent: usize, text: Arguments<'_>) {
    let Some(width) = columns() else { return stdout(text) };
    for line in text.to_string().split('\n') {
        hung(line, indent, width).iter().for_each(|line| stdout(format_args!("{line}")));
    }
}

/// Words of some length to whoever looks: whole in a pipe, in lines that fit on a terminal. Commands are none: they are copied.
pub(crate) fn explain(text: &str) {
    if !std::io::stderr().is_terminal() {
        return stderr(format_args!("{text}"));
    }
    let width = columns_of(std::io::stderr());
    for line in text.split('\n') {
        hung(line, 0, width).iter().for_each(|line| stderr(format_args!("{line}")));
    }
}

/// Columns of the terminal that results go to. None: they go to a file or a pipe.
pub(crate) fn columns() -> Option<usize> {
    let out = std::io::stdout();
    out.is_terminal().then(|| columns_of(&out))
}

/// Columns of a terminal as it is now.
pub(crate) fn columns_of(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// Whether results were lost on their way out.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// What of stderr is not final.
enum Foot {
    /// Nothing: lines follow lines.
    Bare,
    /// A status line stands there, as it was drawn.
    Status(String),
    /// A question stands there, and its answer may be half typed: lines wait until it is over.
    Question(Vec<String>),
}

static FOOT: Mutex<Foot> = Mutex::new(Foot::Bare);

/// From the beginning of the line, wherever the cursor is in it, to the end of the screen.
const TAKE_AWAY: &str = "\r\x1b[J";

/// The most lines kept while a question stands: beyond, the oldest go. They are in the journal.
const WAITING_MAX: usize = 1_000;

fn foot() -> MutexGuard<'static, Foot> {
    FOOT.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn stderr(line: Arguments<'_>) {
    // Nothing can be done about a closed stderr here.
    let mut out = std::io::stderr().lock();
    match &mut *foot() {
        Foot::Bare => {
            let _ = writeln!(out, "{line}");
        }
        Foot::Status(status) => {
            let _ = write!(out, "{TAKE_AWAY}{line}\n{status}\r").and_then(|()| out.flush());
        }
        Foot::Question(waiting) => {
            if waiting.len() >= WAITING_MAX {
                waiting.remove(0);
            }
            waiting.push(line.to_string());
        }
    }
}

/// Draws the status line, or takes it away. It fits into one line and holds no control characters but ours.
pub(crate) fn status(drawn: Option<String>) {
    let mut foot = foot();
    let mut out = std::io::stderr().lock();
    match (&*foot, drawn) {
        (Foot::Question(_), _) | (Foot::Bare, None) => {}
        (Foot::Status(before), Some(drawn)) if *before == drawn => {}
        (Foot::Bare | Foot::Status(_), Some(drawn)) => {
            let _ = write!(out, "{TAKE_AWAY}{drawn}\r").and_then(|()| out.flush());
            *foot = Foot::Status(drawn);
        }
        (Foot::Status(_), None) => {
            let _ = write!(out, "{TAKE_AWAY}").and_then(|()| out.flush());
            *foot = Foot::Bare;
        }
    }
}

/// Puts a question where the status line was. Until it is over, lines wait.
pub(crate) fn question(text: &str) {
    let mut foot = foot();
    let mut out = std::io::stderr().lock();
    let before = match &*foot {
        Foot::Status(_) => TAKE_AWAY,
        Foot::Bare | Foot::Question(_) => "",
    };
    let _ = write!(out, "{before}{text}").and_then(|()| out.flush());
    if !matches!(*foot, Foot::Question(_)) {
        *foot = Foot::Question(Vec::new());
    }
}

/// How a question ended, for the line it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The person ended the line.
    Answered,
    /// The cursor is still in it.
    GivenUp,
}

/// The question is over: what waited is printed.
pub(crate) fn question_over(how: Asked) {
    let mut foot = foot();
    let Foot::Question(waiting) = &*foot else { return };
    let mut out = std::io::stderr().lock();
    if how == Asked::GivenUp {
        let _ = writeln!(out);
    }
    for line in waiting {
        let _ = writeln!(out, "{line}");
    }
    *foot = Foot::Bare;
}
