//! One journal per release stays here and folds to its recorded digest for ever (`semantics.md` B2): old events keep their
//! meaning. To add a release: copy its events into `journals/VERSION.jsonl` and record what they fold to.

use longrein_core::context::window::RENDERING;
use longrein_core::event::Event;
use longrein_core::ids::{Digest, Seq};
use longrein_core::prompt::Item;
use longrein_core::run::Run;
use longrein_core::snapshot;
use longrein_core::time::Timestamp;
use longrein_driver::run_row;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    seq: u64,
    at: u64,
    event: Event,
}

/// The run a journal adds up to, showing every state on the way to `see`.
fn fold(journal: &str, mut see: impl FnMut(&Run)) -> Run {
    let lines: Vec<Line> =
        journal.lines().map(|line| serde_json::from_str(line).expect("a line of the journal")).collect();
    let mut lines = lines.into_iter();
    let first = lines.next().expect("a first event");
    let Event::RunStarted(started) = &first.event else { panic!("a journal begins with run.started") };
    let mut run = Run::new(started, Timestamp(first.at));
    see(&run);
    for line in lines {
        run.apply(Seq(line.seq), Timestamp(line.at), &line.event);
        see(&run);
    }
    run
}

/// What a journal adds up to, in words that no change of our own structs touches; and what the model is shown of it, which
/// another version of the rendering may change.
fn digests(run: &Run) -> (String, String) {
    let row = run_row(run);
    let spent = &run.spent;
    let words = [
        format!("{} | {}", row.state, row.reason),
        format!("turns {} calls {} tools {}", spent.turns, spent.model_calls, spent.tool_calls),
        format!("tokens {} micros {} time {}", spent.usage.tokens(), spent.micros, spent.time_ms),
        format!("recoveries {} failed {} epochs {}", run.recoveries, run.failed_calls, run.epochs.len()),
        format!("happened {:?} open {:?}", run.happened, run.open.keys().collect::<Vec<_>>()),
        format!("evidence {:?}", run.evidence.keys().collect::<Vec<_>>()),
    ];
    let shown: Vec<_> = run
        .window
        .items
        .iter()
        .map(|item| match item.as_ref() {
            Item::User(text) | Item::Pictured { text, images: _ } => format!("user: {text}"),
            Item::Assistant { text, calls, wired: _ } => {
                let calls: Vec<_> =
                    calls.iter().map(|call| format!("{} {} {}", call.id, call.name, call.arguments)).collect();
                format!("assistant: {text} {}", calls.join(", "))
            }
            Item::Observation { call, text, .. } => format!("tool {call}: {text}"),
            Item::Harness(text) | Item::Exhibit { text, images: _ } => format!("harness: {text}"),
        })
        .collect();
    let digest = |words: &[String]| Digest::of(words.join("\n").as_bytes()).to_string();
    (digest(&words), digest(&shown))
}

#[test]
fn the_journal_of_0_1_0_folds_to_what_it_folded_to_then() {
    let (state, shown) = digests(&fold(include_str!("journals/0.1.0.jsonl"), |_| {}));
    assert_eq!(
        state, "08f2af50f8ebdbc7cb79e9b86881ca501985007e38260cf84430ec23437cdc06",
        "events have changed their meaning"
    );
    assert_eq!(
        (RENDERING, shown.as_str()),
        (3, "67376bc6c0db49cb332411fb70354140fd196f6e72db20cc99cb3f84940e1f02"),
        "the prompt made of old events has other bytes: raise the version of the rendering"
    );
}

/// A snapshot is the whole state: one that another fold has made must not be taken for this one's. Of every event, since a
/// snapshot may be of any.
#[test]
fn the_journal_of_0_1_0_makes_the_same_snapshots_until_the_fold_is_another() {
    let mut saved = Vec::new();
    fold(include_str!("journals/0.1.0.jsonl"), |run| saved.push(snapshot::save(run)));
    let digest = Digest::of_parts(saved.iter().map(Vec::as_slice));
    assert_eq!(
        (snapshot::FOLD, digest.as_str()),
        (8, "f036b2d734bfe23d9fee55439025c54607b28ba2d986ee4d4148090878da35bd"),
        "the same events make another state: raise the version of the fold"
    );
}
