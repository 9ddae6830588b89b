//! Asking the person at the terminal. The answer goes the same way as one from another process: through the run's inbox.
//!
//! What was typed before a question was shown is no answer to it, and the end of input is none to any: the question goes
//! on waiting, and the run parks when nothing else can move.

use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longrein::core::action::{Action, Life};
use longrein::core::event::Wants;
use longrein::core::ids::{ActionId, Digest, RunId};
use longrein::core::input::{Approve, Covers, Deny, Door, InputBody};
use longrein::core::run::Run;
use longrein::core::task::{EffectClass, ToolBody};
use longrein::{Runs, Stop, Target};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::out::{self, Asked, tell};
use crate::words;

/// How long a yes is good for before the action starts (`semantics.md` E4).
pub(crate) const GRANT: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a question that is not answered looks whether it has been answered elsewhere.
const LOOK_EVERY_MS: i64 = 200;

/// Lines of a call that are shown before "show all" is asked for.
const LINES_MAX: usize = 24;

/// Columns that are left for an answer beside the choices.
const ROOM_FOR_ANSWER: usize = 10;

/// Whether somebody can be asked here.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether the person at the terminal says yes to a question of ours. No answer is none.
pub(crate) async fn agreed(question: &str) -> bool {
    tell!("{question} [y/N]");
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = line.await.ok().and_then(Result::ok).unwrap_or_default();
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Who answers, for the record.
pub(crate) fn operator() -> String {
    std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "operator".to_owned())
}

/// What the one who asks is told.
#[derive(Debug)]
pub(crate) enum News {
    Asked(Question),
    /// It does not wait any more, whoever answered.
    Over(ActionId),
}

/// A question that waits for somebody at the terminal.
#[derive(Debug)]
pub(crate) struct Question {
    action: ActionId,
    digest: Digest,
    wants: Wants,
    always: Always,
    /// What is shown above the choices, line by line.
    lines: Vec<String>,
}

/// Whether a yes to every call like this one can be given, and what it would cover.
#[derive(Debug, Clone)]
enum Always {
    Covers(String),
    /// Why not.
    NotOffered(&'static str),
}

impl Question {
    /// None: the action waits for nobody.
    pub(crate) fn about(run: &Run, action: &Action) -> Option<Self> {
        let Life::Held(question) = &action.life else { return None };
        let lines = match &question.wants {
            Wants::Words => {
                let mut lines = vec![format!("{} asks:", action.id)];
                lines.extend(words::safe(&question.reason).lines().map(|line| format!("  | {line}")));
                lines
            }
            Wants::Yes | Wants::Typed(_) => {
                let mut lines = vec![format!("{} wants to run {}", action.id, words::safe(action.tool.as_str()))];
                lines.extend(words::arguments(&action.args).into_iter().map(|line| format!("  {line}")));
                lines.extend(circumstances(run, action).into_iter().map(|line| format!("  {line}")));
                lines.extend(
                    words::effects(action.tool.as_str(), &question.effects).into_iter().map(|line| format!("  {line}")),
                );
                lines.push(format!(
                    "asked because {} ({})",
                    words::safe(&question.reason),
                    words::safe(&question.rule)
                ));
                lines
            }
        };
        let always = match &question.exact {
            Some(_) => Always::Covers(words::always(run, action)),
            None => Always::NotOffered(words::no_always(run)),
        };
        Some(Self { action: action.id, digest: question.digest.clone(), wants: question.wants.clone(), always, lines })
    }
}

/// What carries a call out and what it would touch.
fn circumstances(run: &Run, action: &Action) -> Vec<String> {
    let mut lines = Vec::new();
    let workspace = &run.task.workspace;
    if let Some(path) = &action.path {
        let (real, inside) = located(workspace, path);
        let real = words::safe(&real.to_string_lossy());
        lines.push(if inside { format!("touches: {real}") } else { format!("touches: {real}, OUTSIDE the workspace") });
    }
    if let Some(tool) = run.task.tool(&action.tool) {
        lines.push(format!("by: {}", words::carried_out_by(run, tool)));
        for (word, paths) in [("reads", &tool.reads), ("writes", &tool.writes)] {
            if let Some(paths) = paths.as_ref().filter(|paths| !paths.is_empty()) {
                lines.push(format!("{word}: {}", words::safe(&paths.join(", "))));
            }
        }
        if matches!(tool.body, ToolBody::Builtin(_)) {
            lines.push(format!("workspace: {}", words::safe(workspace)));
        }
    }
    lines.push(match action.effect {
        EffectClass::Read => "effect: read, changes nothing".to_owned(),
        EffectClass::Workspace => "effect: workspace, changes files".to_owned(),
        EffectClass::External => "effect: external, changes the world".to_owned(),
    });
    lines
}

/// Where a path leads as things stand, and whether that is inside the workspace. For the eye: the ruling is made elsewhere.
fn located(workspace: &str, path: &str) -> (PathBuf, bool) {
    let root = Path::new(workspace).canonicalize().unwrap_or_else(|_| PathBuf::from(workspace));
    let mut real = PathBuf::new();
    for part in root.join(path).components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => real.push(part),
        }
        real = real.canonicalize().unwrap_or(real);
    }
    let inside = real.starts_with(&root);
    (real, inside)
}

/// Asks each question in turn and posts the answers. Ends when nobody sends questions any more, or answers them.
pub(crate) async fn answer_questions(runs: Arc<Runs>, run: RunId, mut news: UnboundedReceiver<News>, stop: Stop) {
    let mut waiting: VecDeque<Question> = VecDeque::new();
    loop {
        let Some(question) = waiting.pop_front() else {
            match news.recv().await {
                Some(News::Asked(question)) => waiting.push_back(question),
                Some(News::Over(_)) => {}
                None => return,
            }
            continue;
        };
        let over = Arc::new(AtomicBool::new(false));
        let (action, digest, wants) = (question.action, question.digest.clone(), question.wants.clone());
        let (lines, is_over, always) = (question.lines, Arc::clone(&over), question.always);
        let mut reading = tokio::task::spawn_blocking(move || match wants {
            Wants::Yes => read_verdict(&lines, &always, &is_over),
            Wants::Typed(text) => read_typed(&lines, &text, &is_over),
            Wants::Words => read_words(&lines, &is_over),
        });
        let answer = loop {
            tokio::select! {
                answer = &mut reading => break answer.unwrap_or(Answer::Later),
                heard = news.recv() => match heard {
                    Some(News::Asked(question)) => waiting.push_back(question),
                    Some(News::Over(id)) => {
                        waiting.retain(|question| question.action != id);
                        if id == action {
                            over.store(true, Ordering::Relaxed);
                        }
                    }
                    None => over.store(true, Ordering::Relaxed),
                },
            }
        };
        out::question_over(if matches!(answer, Answer::Over | Answer::Later) {
            Asked::GivenUp
        } else {
            Asked::Answered
        });
        let (by, door) = (operator(), Door::Terminal);
        let yes = |digest, by, covers, reason, typed| {
            let expires = runs.clock().now().plus(GRANT);
            InputBody::Approve(Approve { action, digest, by, door, expires, covers, reason, typed })
        };
        let body = match answer {
            Answer::Over => {
                tell!("{action} was answered elsewhere");
                continue;
            }
            Answer::Later => {
                stop.nobody_is_there();
                return;
            }
            Answer::Yes(covers, reason) => yes(digest, by, covers, reason, None),
            Answer::Typed(text) => yes(digest, by, Covers::Once, None, Some(text)),
            Answer::No(reason) => InputBody::Deny(Deny { action, digest, by, door, reason }),
            Answer::Words(text) => InputBody::Message(text),
        };
        if let Err(error) = runs.post(&run, body).await {
            tell!("longrein: the answer could not be recorded: {error}");
        }
    }
}

/// Whether a person here types what this action's question wants.
pub(crate) fn confirm(run: &Run, action: ActionId) -> bool {
    let question = run.action(action).and_then(|action| Question::about(run, action));
    let Some(Question { wants: Wants::Typed(text), lines, .. }) = question else { return false };
    let answer = read_typed(&lines, &text, &AtomicBool::new(false));
    out::question_over(Asked::Answered);
    match answer {
        Answer::Typed(_) => true,
        Answer::Yes(..) | Answer::No(_) | Answer::Words(_) | Answer::Later | Answer::Over => false,
    }
}

/// What was asked in an earlier session and not answered, the oldest question first.
pub(crate) async fn asked_before(runs: &Runs, target: &Target) -> Vec<Question> {
    let Target::Existing(id) = target else { return Vec::new() };
    let Ok(run) = runs.fold(id, |_| {}).await else { return Vec::new() };
    let mut held: Vec<_> = run
        .actions()
        .filter_map(|action| match &action.life {
            Life::Held(question) => Some((question.since, action)),
            Life::Queued
            | Life::Started { .. }
            | Life::Lost(_)
            | Life::Doubtful(..)
            | Life::Unknown(_)
            | Life::Checking(_)
            | Life::Undoing(..)
            | Life::Compensating(..)
            | Life::Ended(_) => None,
        })
        .collect();
    held.sort_by_key(|(since, _)| *since);
    held.into_iter().filter_map(|(_, action)| Question::about(&run, action)).collect()
}

enum Answer {
    Yes(Covers, Option<String>),
    /// A yes, with what it took.
    Typed(String),
    No(Option<String>),
    Words(String),
    /// Nobody is there any more, or not now.
    Later,
    /// It was answered elsewhere.
    Over,
}

/// One line from the terminal.
enum Typed {
    Line(String),
    End,
    Over,
}

const CHOICES: &str = "[y] once  [a] always (exact)  [n WHY] no  [s] show all  [q] later: ";
const CHOICES_NARROW: &str = "[y] once  [n WHY] no\n[a] always (exact)\n[s] show all  [q] later: ";
/// Where no earlier yes counts, none for later is taken.
const CHOICES_ONCE: &str = "[y] once  [n WHY] no  [s] show all  [q] later: ";
/// Where a letter is not enough.
const CHOICES_TYPED: &str = "[n WHY] no  [s] show all  [q] later: ";

fn read_verdict(lines: &[String], always: &Always, over: &AtomicBool) -> Answer {
    let mut text = shown(lines, LINES_MAX);
    if let Always::NotOffered(why) = always {
        text.push_str(why);
        text.push('\n');
    }
    loop {
        let is_wide = crate::progress::width() >= CHOICES.len() + ROOM_FOR_ANSWER;
        let choices = match always {
            Always::Covers(_) if is_wide => CHOICES,
            Always::Covers(_) => CHOICES_NARROW,
            Always::NotOffered(_) => CHOICES_ONCE,
        };
        let line = match read_line(&format!("{text}{choices}"), over) {
            Typed::Line(line) => line,
            Typed::End => return Answer::Later,
            Typed::Over => return Answer::Over,
        };
        let line = line.trim();
        match line.split_once(char::is_whitespace).unwrap_or((line, "")) {
            ("y" | "yes", reason) => return Answer::Yes(Covers::Once, said(reason)),
            ("a" | "always", "") => match always {
                Always::Covers(what) => {
                    tell!("{what}");
                    return Answer::Yes(Covers::Always, None);
                }
                Always::NotOffered(why) => text = format!("{why}.\n"),
            },
            ("n" | "no", reason) => {
                return Answer::No(said(reason));
            }
            ("s" | "show", "") => text = shown(lines, usize::MAX),
            ("q" | "quit", "") => return Answer::Later,
            _ => {
                text = match always {
                    Always::Covers(_) => "Please answer y, a, n, s or q.\n".to_owned(),
                    Always::NotOffered(_) => "Please answer y, n, s or q.\n".to_owned(),
                }
            }
        }
    }
}

/// A yes that is typed out. Nothing shorter is one.
fn read_typed(lines: &[String], wanted: &str, over: &AtomicBool) -> Answer {
    let mut text = shown(lines, LINES_MAX);
    loop {
        let choices = format!("it sends out what this run has read; to have it sent, type {wanted}\n{CHOICES_TYPED}");
        let line = match read_line(&format!("{text}{choices}"), over) {
            Typed::Line(line) => line,
            Typed::End => return Answer::Later,
            Typed::Over => return Answer::Over,
        };
        let line = line.trim();
        if line == wanted {
            return Answer::Typed(wanted.to_owned());
        }
        match line.split_once(char::is_whitespace).unwrap_or((line, "")) {
            ("n" | "no", reason) => return Answer::No(said(reason)),
            ("s" | "show", "") => text = shown(lines, usize::MAX),
            ("q" | "quit", "") => return Answer::Later,
            _ => "That is not it. ".clone_into(&mut text),
        }
    }
}

/// Why, if they said so.
fn said(reason: &str) -> Option<String> {
    Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty())
}

/// An answer in words: one line, or several of which all but the last end in a backslash.
fn read_words(lines: &[String], over: &AtomicBool) -> Answer {
    let mut text = shown(lines, usize::MAX);
    text.push_str("Answer in one line; end it with \\ to go on on the next. Ctrl-D: later.\n> ");
    let mut said = String::new();
    loop {
        let line = match if said.is_empty() { read_line(&text, over) } else { read_more(&text, over) } {
            Typed::Line(line) => line,
            Typed::End => return Answer::Later,
            Typed::Over => return Answer::Over,
        };
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(part) = line.strip_suffix('\\') {
            said.push_str(part);
            said.push('\n');
        } else {
            said.push_str(line);
            if !said.trim().is_empty() {
                return Answer::Words(said.trim().to_owned());
            }
            said.clear();
        }
        "> ".clone_into(&mut text);
    }
}

fn shown(lines: &[String], most: usize) -> String {
    let mut text = String::from("\n");
    let hidden = lines.len().saturating_sub(most);
    // The end says what would run it and why it is asked: what is left out is left out of the middle.
    let tail = lines.len().saturating_sub(most / 2);
    for (at, line) in lines.iter().enumerate() {
        if hidden == 0 || at < most - most / 2 || at >= tail {
            text.push_str(line);
            text.push('\n');
        } else if at == most - most / 2 {
            text.push_str(&format!("  … {hidden} lines are NOT shown here: s shows them\n"));
        }
    }
    text
}

/// What was typed before the question was shown is no answer to it.
fn read_line(prompt: &str, over: &AtomicBool) -> Typed {
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
    read_more(prompt, over)
}

fn read_more(prompt: &str, over: &AtomicBool) -> Typed {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    out::question(prompt);
    let stdin = std::io::stdin();
    let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_MS * 1_000_000 };
    loop {
        if over.load(Ordering::Relaxed) {
            return Typed::Over;
        }
        let mut readable = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut readable, Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(_) => return Typed::End,
        }
    }
    // The terminal gives one line at a time: nothing of a later one is kept behind what is looked at above.
    let mut line = Vec::new();
    match stdin.lock().read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => Typed::End,
        Ok(_) => Typed::Line(String::from_utf8_lossy(&line).into_owned()),
    }
}
