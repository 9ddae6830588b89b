//! Events keep their meaning for ever: one of each kind, as it was written when the kind was made, must decode in every
//! later version and be written the same way. The file only ever grows.

use std::collections::BTreeSet;

use longrein_core::event::{Event, EventKind, Proposer};
use longrein_core::ids::{ActionId, PhaseName};

/// One event per line.
const GOLDEN: &str = include_str!("golden/events.jsonl");

fn events() -> Vec<(usize, &'static str, Event)> {
    let decode = |(number, line): (usize, &'static str)| {
        let event = serde_json::from_str(line).unwrap_or_else(|error| {
            panic!("line {}: an event of an older version no longer decodes: {error}", number + 1)
        });
        (number + 1, line, event)
    };
    GOLDEN.lines().enumerate().map(decode).collect()
}

#[test]
fn every_event_ever_written_decodes_and_is_written_the_same() {
    for (number, line, event) in events() {
        let written = serde_json::to_string(&event).expect("events serialise");
        assert_eq!(written, line, "line {number}");
    }
}

#[test]
fn every_kind_is_there() {
    let there: BTreeSet<_> = events().iter().map(|(_, _, event)| event.kind()).collect();
    let missing: Vec<_> =
        EventKind::ALL.iter().filter(|kind| !there.contains(kind)).map(|kind| kind.as_str()).collect();
    assert!(missing.is_empty(), "add a line for each of {missing:?}; never change one that is there");
}

/// Each has a field of its own there, and the model has none.
#[test]
fn who_proposed_a_call_is_read_from_every_form() {
    let proposers: Vec<_> = events()
        .into_iter()
        .filter_map(
            |(_, _, event)| if let Event::ActionProposed(proposed) = event { Some(proposed.proposer) } else { None },
        )
        .collect();
    let (model, rest) = proposers.split_at(4);
    assert!(model.iter().all(Proposer::is_model), "{model:?}");
    let others = [Proposer::Undo(ActionId(5)), Proposer::Acceptance, Proposer::Program(PhaseName::new("plan"))];
    assert_eq!(rest, others);
}

/// What later versions add is optional: events without it are read, and fields nobody knows yet are passed over.
#[test]
fn a_field_of_a_later_version_is_no_obstacle() {
    for (number, line, event) in events() {
        let body_start = line.find(":{").expect("an event is a kind and its body") + 2;
        let (head, tail) = line.split_at(body_start);
        let comma = if tail.starts_with('}') { "" } else { "," };
        let later = format!("{head}\"of_a_later_version\":1{comma}{tail}");
        let read: Event = serde_json::from_str(&later).unwrap_or_else(|error| panic!("line {number}: {error}"));
        assert_eq!(read, event, "line {number}");
    }
}
