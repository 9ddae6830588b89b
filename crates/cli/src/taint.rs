//! What a run has read, and whom people trust: why a run is tainted, and `longrein endorse`.

use std::collections::BTreeMap;

use longrein::core::event::Event;
use longrein::core::ids::{ActionId, RunId, Seq};
use longrein::core::input::Door;
use longrein::core::run::Run;
use longrein::core::taint::Mark;
use longrein::ports::{Recorded, RecordedBody};
use serde_json::{Value, json};

use crate::args::EndorseArgs;
use crate::ask::operator;
use crate::context::StoreAt;
use crate::failure::{Failure, Status};
use crate::inspect::LABEL;
use crate::out::{lay, say, tell};
use crate::progress::print_line;
use crate::words;

/// Which actions brought what, from a run's journal.
#[derive(Default)]
pub(crate) struct Bringers {
    by_event: BTreeMap<Seq, ActionId>,
}

impl Bringers {
    pub(crate) fn see(&mut self, record: &Recorded) {
        let RecordedBody::Known(event) = &record.body else { return };
        if event.brings().is_empty() {
            return;
        }
        let action = if let Event::ActionStarted(e) = event {
            e.action
        } else if let Event::ActionFinished(e) = event {
            e.action
        } else if let Event::ActionSettled(e) = event {
            e.action
        } else {
            return;
        };
        self.by_event.insert(record.seq, action);
    }

    pub(crate) fn json(&self, run: &Run) -> Value {
        let label = run.taint.label();
        let sources: Vec<_> = run
            .taint
            .sources
            .iter()
            .map(|(source, brought)| {
                json!({
                    "source": source, "label": brought.label, "since": brought.since,
                    "action": self.by_event.get(&brought.since),
                })
            })
            .collect();
        json!({
            "integrity": label.integrity, "confidentiality": label.confidentiality, "sources": sources,
            "unlisted": run.taint.rest,
        })
    }

    pub(crate) fn print(&self, store: &StoreAt, run: &Run) {
        if !run.taint.is_tainted() {
            return;
        }
        lay!(LABEL, "tainted    {}, by what it has read", run.taint.label());
        for (source, brought) in &run.taint.sources {
            let by = match self.by_event.get(&brought.since) {
                Some(action) => format!("{action}, event {}", brought.since),
                None => format!("event {}", brought.since),
            };
            lay!(LABEL, "           {} ({}): {by}", words::short(source, 200), brought.label);
        }
        if run.taint.rest.is_tainted() {
            lay!(LABEL, "           and more sources than are listed ({})", run.taint.rest);
        }
        if let Some(source) = run.taint.sources.keys().next() {
            say!("trust      {}", store.command(&format!("endorse {}", quoted(source))));
        }
    }
}

/// What takes away what stands against a run's calls. None: it has read too much for that.
pub(crate) fn way_to_trust(store: &StoreAt, run: &Run) -> Option<String> {
    let sources: Vec<_> = run.taint.sources.iter().filter(|(_, brought)| brought.label.is_tainted()).collect();
    match sources.as_slice() {
        _ if run.taint.rest.is_tainted() => None,
        [] => None,
        [(source, _)] => {
            let command = store.command(&format!("endorse {}", quoted(source)));
            Some(format!("if you trust {}: {command}", words::short(source, 80)))
        }
        more => {
            let command = store.command("endorse SOURCE");
            let show = store.command(&format!("show {}", run.id));
            Some(format!("if you trust all {} sources of it: {command} for each that {show} lists", more.len()))
        }
    }
}

/// What an event brings into its run, for its line in the log.
pub(crate) fn brought(marks: &[Mark]) -> String {
    let said: Vec<_> =
        marks.iter().map(|mark| format!("{} ({})", words::short(&mark.source, 120), mark.label)).collect();
    if said.is_empty() { String::new() } else { format!("; tainted by {}", said.join(", ")) }
}

/// A word as a shell takes it. Of one that would not show as it is, only what shows.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | ':' | '@' | '+');
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('-') {
        return word.to_owned();
    }
    format!("-- '{}'", words::safe(word).replace('\'', r"'\''"))
}

/// The longest source: a path.
const SOURCE_MAX_BYTES: usize = 4096;

pub(crate) async fn endorse(globals: crate::args::Globals, args: EndorseArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    if args.list && !store.exists()? {
        if globals.json {
            print_line(&json!([]));
        }
        tell!("nobody is trusted: there is no store at {} yet", store.url);
        return Ok(Status::Done);
    }
    let runs = store.open()?;
    if args.list {
        let trusted = runs.endorsements()?;
        if globals.json {
            let line = |one: &longrein::ports::Endorsement| json!({ "source": one.source, "by": one.by, "at": one.at.to_string() });
            print_line(&json!(trusted.iter().map(line).collect::<Vec<_>>()));
            return Ok(Status::Done);
        }
        if trusted.is_empty() {
            tell!("nobody is trusted");
        }
        for one in trusted {
            say!("{}  by {} at {}", words::safe(&one.source), words::safe(&one.by), one.at);
        }
        return Ok(Status::Done);
    }
    if let Some(source) = &args.forget {
        let source = source_of(source)?;
        if !runs.forget_endorsement(&source).await? {
            let problem = format!("{} is not trusted", words::safe(&source));
            return Err(Failure::new(Status::NotFound, problem).way_out(store.command("endorse --list")));
        }
        tell!("{} is trusted no more: what is read of it from now on taints again", words::safe(&source));
        return Ok(Status::Done);
    }
    let Some(source) = &args.source else {
        return Err(Failure::new(Status::Usage, "name the source to trust, as `longrein show ID` lists it"));
    };
    let source = source_of(source)?;
    let endorsed = runs.endorse(&source, &operator(), Door::Cli).await?;
    if globals.json {
        print_line(&json!({ "source": source, "runs": endorsed.told, "full": endorsed.full }));
    }
    tell!("{} is trusted from now on, as if the person who asks had written what it says", words::safe(&source));
    let names = |ids: &[RunId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !endorsed.told.is_empty() {
        tell!("told the runs that had read it: {}", names(&endorsed.told));
    }
    if let Some(run) = endorsed.full.first() {
        let problem = format!("could not be told, for their inboxes are full: {}", names(&endorsed.full));
        return Err(Failure::new(Status::Unavailable, problem).way_out(store.command(&format!("resume {run}"))));
    }
    Ok(Status::Done)
}

/// A source as runs list it: hosts in small letters, all else exactly as it is.
fn source_of(written: &str) -> Result<String, Failure> {
    let source = written.trim();
    if source.is_empty() || source.len() > SOURCE_MAX_BYTES || source.chars().any(char::is_control) {
        return Err(Failure::new(
            Status::Usage,
            "a source is a host, a server or an absolute path, as `longrein show ID` lists it",
        ));
    }
    Ok(if source.contains('/') { source.to_owned() } else { source.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_quoted_for_a_shell() {
        assert_eq!(quoted("docs.rs"), "docs.rs");
        assert_eq!(quoted("/w/a b"), "-- '/w/a b'");
        assert_eq!(quoted("x'; rm -rf ~"), r"-- 'x'\''; rm -rf ~'");
        assert_eq!(quoted("--list"), "-- '--list'");
        assert!(!quoted("a\u{1b}[2J").contains('\u{1b}'));
    }

    #[test]
    fn hosts_are_lower_case_and_paths_are_not() {
        assert_eq!(source_of(" Docs.RS ").ok().as_deref(), Some("docs.rs"));
        assert_eq!(source_of("/W/A").ok().as_deref(), Some("/W/A"));
        assert!(source_of(" ").is_err() && source_of("a\nb").is_err());
    }
}
