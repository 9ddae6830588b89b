//! Brings back evidence that a rebuild would leave out of sight though something open cites it: core says which, the journal
//! has it.

use longrein_core::context::meter::Meter;
use longrein_core::context::readmit::{Readmitted, TEXT_MAX, Wanted, wanted, with};
use longrein_core::event::{Event, GenerationStarted, How};
use longrein_core::ids::Seq;
use longrein_core::outcome::Outcome;
use longrein_core::payload::{Content, Payload, excerpt};
use longrein_core::run::Run;
use longrein_ports::{Journal, JournalError, RecordedBody};

/// How many events before a result its call is looked for: it is proposed when the reply comes, and 64 calls may.
const CALL_WITHIN: u64 = 256;
/// How much of a call's arguments is shown.
const CALL_BYTES: usize = 160;

/// The rebuild with what it should bring back. What cannot be read stays away: it can be recalled. `shorter` shows a
/// payload in so many bytes.
pub async fn readmit(
    journal: &dyn Journal,
    run: &Run,
    meter: &Meter,
    started: GenerationStarted,
    shorter: &(dyn Fn(&Payload, usize) -> Payload + Sync),
) -> GenerationStarted {
    let mut found = Vec::new();
    for wanted in wanted(run, &started) {
        if let Ok(Some(piece)) = read(journal, run, wanted, shorter).await {
            found.push(piece);
        }
    }
    with(run, meter, started, found)
}

async fn read(
    journal: &dyn Journal,
    run: &Run,
    wanted: Wanted,
    shorter: &(dyn Fn(&Payload, usize) -> Payload + Sync),
) -> Result<Option<Readmitted>, JournalError> {
    let Wanted { evidence, by } = wanted;
    let Some(kept) = run.evidence.get(&evidence) else { return Ok(None) };
    let before = Seq(kept.seq.0.saturating_sub(CALL_WITHIN));
    let within = usize::try_from(kept.seq.0 - before.0).unwrap_or_default();
    let (mut call, mut content) = (String::new(), None);
    for record in journal.read(&run.id, before, within).await? {
        match record.body {
            RecordedBody::Known(Event::ActionProposed(proposed)) if proposed.action == evidence.action() => {
                call = excerpt(proposed.args.as_str(), CALL_BYTES);
            }
            RecordedBody::Known(Event::ActionFinished(finished))
                if finished.action == evidence.action() && !matches!(finished.how, How::Replayed { .. }) =>
            {
                content = match finished.outcome {
                    Outcome::Done(result) => Some(result),
                    Outcome::Error(_) | Outcome::NotDone(_) | Outcome::Unknown(_) => None,
                };
            }
            RecordedBody::Known(_) | RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => {}
        }
    }
    let Some(content) = content.or_else(|| kept.content.clone()) else { return Ok(None) };
    let whole = match &content {
        Content::Inline(payload) => Some(payload.clone()),
        Content::Blob(blob) => journal.blob(&blob.digest).await?.and_then(|bytes| crate::edge::parse(&bytes)),
    };
    // A blob that is lost: what there is of it.
    let shown = shorter(whole.as_ref().unwrap_or(content.shown()), TEXT_MAX);
    let text = shown.read::<String>().unwrap_or_else(|_| shown.as_str().to_owned());
    Ok(Some(Readmitted { evidence, by, call, text, total: content.bytes() }))
}
