//! `export`: a run as other programs read it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use longrein::core::event::Event;
use longrein::core::ids::Seq;
use longrein::core::payload::Payload;
use longrein::core::run::Run;
use longrein::ports::{Recorded, RecordedBody};
use longrein::trajectory::Trajectory;
use longrein::{Runs, projection};
use serde_json::{Value, json};

use crate::args::{ExportArgs, ExportFormat, Globals};
use crate::context::StoreAt;
use crate::failure::{Failure, Status};
use crate::progress::print_line;

pub(crate) async fn export(globals: Globals, args: ExportArgs) -> Result<Status, Failure> {
    if args.raw && args.format != ExportFormat::Jsonl {
        let problem = "--raw is for --format jsonl: the other formats have no place for it";
        return Err(Failure::new(Status::Usage, problem.to_owned()));
    }
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let mut trajectory = Trajectory::default();
    let mut folded: Option<Run> = None;
    let mut after = Seq(0);
    loop {
        let page = runs.records(&id, after).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            match (args.format, &record.body) {
                (ExportFormat::Jsonl, body) => {
                    let mut line = line(&runs, &mut folded, record).await?;
                    if let (true, RecordedBody::Known(event)) = (args.raw, body)
                        && let Some(raw) = projection::raw(event)
                    {
                        line["raw"] = raw;
                    }
                    print_line(&line);
                }
                (ExportFormat::Openai | ExportFormat::Atif, RecordedBody::Known(event)) => {
                    trajectory.see(record.seq, record.at, event);
                }
                (ExportFormat::Openai | ExportFormat::Atif, RecordedBody::Unknown { must_understand: false, .. }) => {}
                (ExportFormat::Openai | ExportFormat::Atif, RecordedBody::Unknown { kind, .. }) => {
                    return Err(unreadable(record, &format!("is of a kind this version does not know ({kind})"), &id));
                }
                (ExportFormat::Openai | ExportFormat::Atif, RecordedBody::Damaged { what }) => {
                    return Err(unreadable(record, what, &id));
                }
            }
        }
    }
    let document = match args.format {
        ExportFormat::Jsonl => return Ok(Status::Done),
        ExportFormat::Openai => trajectory.openai(),
        ExportFormat::Atif => trajectory.atif(),
    };
    print_line(&document.ok_or_else(|| Failure::new(Status::Data, format!("run {id} has no events")))?);
    Ok(Status::Done)
}

fn unreadable(record: &Recorded, what: &str, id: &longrein::core::ids::RunId) -> Failure {
    let problem = format!(
        "event {} {what}: a conversation with a hole is not exported; --format jsonl shows the rest",
        record.seq
    );
    Failure::new(Status::Data, problem).way_out(format!("longrein verify {id}"))
}

/// One record as a JSON line, with the data of large results in its place.
async fn line(runs: &Runs, folded: &mut Option<Run>, record: &Recorded) -> Result<Value, Failure> {
    let envelope = |kind: &str| json!({ "v": 1, "seq": record.seq, "at": record.at.to_string(), "type": kind });
    let event = match &record.body {
        RecordedBody::Known(event) => event,
        RecordedBody::Unknown { kind, .. } => return Ok(envelope(kind)),
        RecordedBody::Damaged { what } => {
            let mut line = envelope("damaged");
            line["what"] = json!(what);
            return Ok(line);
        }
    };
    match (&mut *folded, event) {
        (None, Event::RunStarted(started)) => *folded = Some(Run::new(started, record.at)),
        (Some(run), event) => run.apply(record.seq, record.at, event),
        (None, _) => {}
    }
    let Some(run) = folded else { return Ok(envelope(event.kind().as_str())) };
    let wanted = RefCell::new(Vec::new());
    projection::line_with(run, Some(record.seq), record.at, event, &|blob| {
        wanted.borrow_mut().push(blob.digest.clone());
        None
    });
    let mut data = BTreeMap::new();
    for digest in wanted.into_inner() {
        let payload =
            runs.blob(&digest).await?.and_then(|bytes| Payload::parse(String::from_utf8(bytes.to_vec()).ok()?).ok());
        data.extend(payload.map(|payload| (digest, payload)));
    }
    Ok(projection::line_with(run, Some(record.seq), record.at, event, &|blob| data.get(&blob.digest)?.read().ok()))
}
