//! Pieces of a reply as JSON lines, while it comes in. They are printed by a thread of their own, so that a reader who is
//! slow to take them slows the model's reading down by nothing: what comes meanwhile is one longer piece.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use longrein::core::ids::{AttemptId, RunId};
use longrein::core::time::{Timestamp, millis};
use longrein::ports::Spoken;
use longrein::{Backlog, projection};

use crate::progress::print_line;

/// Prints what was heard, in its place among the other lines.
#[derive(Default)]
pub(crate) struct Printer {
    shared: Arc<Shared>,
    thread: OnceLock<()>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    more: Condvar,
    /// Held by whoever prints, from taking the pieces on.
    printing: Mutex<()>,
}

#[derive(Default)]
struct Heard {
    run: Option<RunId>,
    backlog: Backlog,
    telling: Telling,
}

#[derive(Default, PartialEq, Eq)]
enum Telling {
    /// What was told may be taken back.
    #[default]
    Open,
    /// It stands as it is: the run rests.
    Stands,
    /// Nothing more is told.
    Over,
}

impl Printer {
    /// The run rests: what was told stands as it is.
    pub(crate) fn forget(&self) {
        self.shared.heard().telling = Telling::Stands;
    }

    pub(crate) fn hear(&self, run: &RunId, attempt: AttemptId, spoken: Spoken<'_>) {
        {
            let mut heard = self.shared.heard();
            if heard.telling == Telling::Stands {
                // it may go on: a new attempt is heard again
                match spoken {
                    Spoken::Anew => return,
                    Spoken::Text(_) | Spoken::Thought(_) => heard.telling = Telling::Open,
                }
            }
            heard.run.get_or_insert_with(|| run.clone());
            heard.backlog.add(attempt, spoken);
        }
        self.thread.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            // Without a thread for it, pieces are printed with the next event.
            let _ = std::thread::Builder::new().name("pieces".to_owned()).spawn(move || shared.print_on());
        });
        self.shared.more.notify_one();
    }

    /// Prints what there is, and keeps others from printing pieces until `lines` are printed.
    pub(crate) fn before(&self, lines: impl FnOnce()) {
        let _printing = self.shared.printing.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.print();
        lines();
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.before(|| {});
        self.shared.heard().telling = Telling::Over;
        self.shared.more.notify_one();
    }
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_on(&self) {
        loop {
            {
                let nothing = |heard: &mut Heard| heard.backlog.attempt().is_none() && heard.telling != Telling::Over;
                let heard = self.more.wait_while(self.heard(), nothing).unwrap_or_else(PoisonError::into_inner);
                if heard.telling == Telling::Over {
                    return;
                }
            }
            let _printing = self.printing.lock().unwrap_or_else(PoisonError::into_inner);
            self.print();
        }
    }

    fn print(&self) {
        let (run, pieces) = {
            let mut heard = self.heard();
            (heard.run.clone(), heard.backlog.take())
        };
        let Some(run) = run else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(millis).unwrap_or_default();
        for (attempt, piece) in &pieces {
            print_line(&projection::piece(&run, Timestamp(now), *attempt, piece));
        }
    }
}
