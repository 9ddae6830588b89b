//! A pseudo-terminal to run the binary in, and what a person would see on it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The binary at work on a terminal of its own.
pub(crate) struct Terminal {
    controller: Arc<OwnedFd>,
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
    /// How much of what was written has been waited for.
    seen: usize,
    before: Termios,
}

impl Terminal {
    /// Starts a command with this terminal as stdin, stdout and stderr.
    pub(crate) fn start(mut command: Command, columns: u16) -> Self {
        let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        rustix::pty::grantpt(&controller).unwrap();
        rustix::pty::unlockpt(&controller).unwrap();
        let name = rustix::pty::ptsname(&controller, Vec::new()).unwrap();
        let noctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(noctty).open(name.to_str().unwrap()).unwrap()
        };
        let controller = Arc::new(controller);
        resize(&controller, columns);
        let before = tcgetattr(open()).unwrap();
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (from, to) = (Arc::clone(&controller), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut from = File::from(from.try_clone().unwrap());
            let mut bytes = [0; 4096];
            // Ends when the last that has the other side open is gone.
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self { controller, child, written, seen: 0, before }
    }

    pub(crate) fn resize(&self, columns: u16) {
        resize(&self.controller, columns);
    }

    /// Waits until this text is written, after what was waited for before.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let started = Instant::now();
        loop {
            let written = String::from_utf8_lossy(&self.written.lock().unwrap()[self.seen..]).into_owned();
            if let Some(at) = written.find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(started.elapsed() < PATIENCE, "\"{text}\" does not come; there is:\n{written}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn type_in(&self, text: &str) {
        File::from(self.controller.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for the end: the status, and all that was written.
    #[track_caller]
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "it does not end:\n{}", self.written());
            std::thread::sleep(Duration::from_millis(20));
        };
        // What the other side wrote last may still be on its way.
        let mut length = usize::MAX;
        while length != self.written.lock().unwrap().len() {
            length = self.written.lock().unwrap().len();
            std::thread::sleep(Duration::from_millis(50));
        }
        (status, self.written())
    }

    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Whether the terminal's settings are what they were before.
    pub(crate) fn is_as_before(&self) -> bool {
        let now = tcgetattr(&*self.controller).unwrap();
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        modes(&now) == modes(&self.before)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(controller: &OwnedFd, columns: u16) {
    tcsetwinsize(controller, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// What stands on the screen, and above it, after all this was written. Knows the control sequences that we may write and
/// no others.
#[track_caller]
pub(crate) fn screen(written: &str, columns: usize) -> String {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(Vec::new());
                }
            }
            '\x1b' => {
                assert_eq!(rest.next(), Some('['), "a control sequence that is not ours");
                let mut sequence = String::new();
                for c in rest.by_ref() {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                match sequence.as_str() {
                    "0m" | "2m" | "31m" => {}
                    "J" => {
                        lines.truncate(row + 1);
                        lines[row].truncate(column);
                    }
                    other => panic!("a control sequence that is not ours: {other}"),
                }
            }
            // The terminal's own echo of Ctrl-D.
            '\x08' => column = column.saturating_sub(1),
            c => {
                assert!(!c.is_control(), "a control character reached the terminal: {c:?}");
                if column == columns {
                    (row, column) = (row + 1, 0);
                    if row == lines.len() {
                        lines.push(Vec::new());
                    }
                }
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line.into_iter().collect::<String>()).collect();
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Every status line drawn: what stands between being taken away and the return to its beginning.
pub(crate) fn statuses(written: &str) -> Vec<String> {
    let drawn = written.split("\x1b[J").skip(1).flat_map(|drawn| drawn.split('\n'));
    drawn
        .filter_map(|line| line.trim_end_matches('\r').strip_prefix("\x1b[2m")?.strip_suffix("\x1b[0m"))
        .map(str::to_owned)
        .collect()
}
