//! Asking the person at the terminal. The answer goes the same way as one from another process: through the run's inbox.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use longrein::core::action::Life;
use longrein::core::event::Suspension;
use longrein::core::ids::RunId;
use longrein::core::input::{Approve, Deny, Door, InputBody};
use longrein::{Runs, Stop, Target};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::out::tell;
use crate::progress::Question;

/// How long a yes is good for before the action starts (`semantics.md` E4).
pub(crate) const GRANT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether somebody can be asked here.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Who answers, for the record.
pub(crate) fn operator() -> String {
    std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "operator".to_owned())
}

/// Asks each question in turn and posts the answers. Ends when nobody sends questions any more, or answers them.
pub(crate) async fn answer_questions(
    runs: Arc<Runs>,
    run: RunId,
    mut questions: UnboundedReceiver<Question>,
    stop: Stop,
) {
    while let Some(question) = questions.recv().await {
        let prompt = format!(
            "\n{} wants to run:\n  {}\nbecause it needs a yes: {}\n[y] once  [n] no  [n REASON] no, and why: ",
            question.action, question.what, question.reason
        );
        let Ok(Some(answer)) = tokio::task::spawn_blocking(move || read_answer(&prompt)).await else {
            // The terminal is closed: the run stops here, and the question goes on waiting.
            stop.now(Suspension::Dropped);
            return;
        };
        let (by, door) = (operator(), Door::Terminal);
        let body = match answer {
            Answer::Yes => InputBody::Approve(Approve {
                action: question.action,
                digest: question.digest,
                by,
                door,
                expires: runs.clock().now().plus(GRANT),
            }),
            Answer::No(reason) => {
                InputBody::Deny(Deny { action: question.action, digest: question.digest, by, door, reason })
            }
        };
        if let Err(error) = runs.post(&run, body).await {
            tell!("longrein: the answer could not be recorded: {error}");
        }
    }
}

/// Asks again what was asked in an earlier session and not answered.
pub(crate) async fn ask_again(runs: &Runs, target: &Target, questions: &UnboundedSender<Question>) {
    let Target::Existing(id) = target else { return };
    let Ok(run) = runs.fold(id, |_| {}).await else { return };
    for action in run.actions() {
        if let Life::Held { digest, rule, reason } = &action.life {
            // The asker is gone only when the command ends.
            let _ = questions.send(Question::about(&run, action, digest, rule, reason));
        }
    }
}

enum Answer {
    Yes,
    No(Option<String>),
}

/// None: nobody is there any more.
fn read_answer(prompt: &str) -> Option<Answer> {
    loop {
        // What was typed before the question was read is no answer to it.
        let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        eprint!("{prompt}");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim();
        match line.split_once(' ').unwrap_or((line, "")) {
            ("y" | "yes", "") => return Some(Answer::Yes),
            ("n" | "no", reason) => {
                let reason = reason.trim();
                return Some(Answer::No((!reason.is_empty()).then(|| reason.to_owned())));
            }
            _ => tell!("Please answer y or n."),
        }
    }
}
