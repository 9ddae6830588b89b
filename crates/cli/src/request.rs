//! `longrein context`: the request a run's model is or was sent, zone by zone, as the model reads it.

use longrein::core::ids::TurnId;
use longrein::core::prompt::Purpose;
use longrein::{Before, Piece, Request, Runs};
use serde_json::{Map, Value, json};

use crate::args::{ContextArgs, Globals};
use crate::config::Config;
use crate::context::{self, StoreAt};
use crate::failure::{Failure, Status};
use crate::out::say;
use crate::progress::print_line;
use crate::words;

pub(crate) async fn context(globals: Globals, args: ContextArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let request = match args.turn {
        Some(turn) => runs.sent_request(&id, TurnId(turn)).await?,
        None => runs.next_request(runs.fold(&id, |_| {}).await?).await,
    };
    let bytes = Sameness::of(&request);
    let waiting = waiting(&runs, &request).await?;
    if globals.json {
        print_line(&json(&request, &bytes, waiting, args.summary));
    } else {
        print(&request, &bytes, waiting, args.summary);
    }
    Ok(Status::Done)
}

/// Messages and other inputs that nobody has taken yet: they are no part of what is shown.
async fn waiting(runs: &Runs, request: &Request) -> Result<usize, Failure> {
    Ok(if request.sent.is_some() { 0 } else { runs.inbox(&request.run.id).await?.len() })
}

/// Whether what is shown is what was sent, byte for byte.
enum Sameness {
    /// It was not sent yet.
    NotSent,
    /// With the body that was sent.
    Exact(String),
    Differs,
    /// It cannot be encoded here.
    Unknown(String),
}

impl Sameness {
    fn of(request: &Request) -> Self {
        let same = (|| {
            let config = context::model_config(&Config::load()?, &request.run.model.name, &context::environment())?;
            request.body_as_sent(&config).map_err(|error| Failure::new(Status::Configuration, error.to_string()))
        })();
        match same {
            Ok(_) if request.sent.is_none() => Sameness::NotSent,
            Ok(Some(body)) => Sameness::Exact(String::from_utf8_lossy(&body).into_owned()),
            Ok(None) => Sameness::Differs,
            Err(failure) => Sameness::Unknown(failure.problem),
        }
    }

    fn in_words(&self) -> String {
        match self {
            Sameness::NotSent => String::new(),
            Sameness::Exact(_) => "exactly the bytes that were sent".to_owned(),
            Sameness::Differs => {
                "rendered by another version, or for a model at another address; the bytes differ".to_owned()
            }
            Sameness::Unknown(why) => format!("not compared with what was sent: {why}"),
        }
    }
}

/// Zones in the order they are sent, with what their pieces come to.
fn zones(pieces: &[Piece]) -> Vec<(&'static str, u64, usize)> {
    let mut zones: Vec<(&'static str, u64, usize)> = Vec::new();
    for piece in pieces {
        match zones.iter_mut().find(|(name, ..)| *name == piece.zone) {
            Some((_, tokens, count)) => {
                *tokens += piece.tokens;
                *count += 1;
            }
            None => zones.push((piece.zone, piece.tokens, 1)),
        }
    }
    zones
}

/// `summary`: without the texts.
fn json(request: &Request, bytes: &Sameness, waiting: usize, summary: bool) -> Value {
    let budget = &request.budget;
    let before = match &request.before {
        Before::Nothing => Value::Null,
        Before::Calls => json!("calls"),
        Before::Spills(count) => json!({ "spills": count }),
        Before::Rebuild(started) => {
            json!({ "rebuild": { "generation": started.generation, "why": started.why, "steps": started.steps } })
        }
        Before::Forgone(reason) => json!({ "forgone": reason }),
    };
    let zones: Map<String, Value> =
        zones(&request.pieces).into_iter().map(|(name, tokens, _)| (name.replace(' ', "_"), json!(tokens))).collect();
    let sent = request.sent.as_ref().map(|(seq, sent)| {
        let exact = match bytes {
            Sameness::Exact(_) => json!(true),
            Sameness::Differs => json!(false),
            Sameness::NotSent | Sameness::Unknown(_) => Value::Null,
        };
        // Byte for byte: JSON as a string, for another program to send or compare.
        let body = match bytes {
            Sameness::Exact(body) if !summary => Some(body),
            Sameness::Exact(_) | Sameness::Differs | Sameness::NotSent | Sameness::Unknown(_) => None,
        };
        json!({
            "seq": seq, "attempt": sent.attempt.to_string(), "model": sent.model, "bytes": sent.bytes,
            "digest": sent.digest, "counted": sent.counted, "exact": exact, "note": bytes.in_words(), "body": body,
        })
    });
    let items = request.pieces.iter().map(|piece| {
        let mut item = json!({ "zone": piece.zone.replace(' ', "_"), "what": piece.what, "tokens": piece.tokens });
        if !summary {
            item["text"] = json!(piece.text);
        }
        item
    });
    json!({
        "v": 1, "run": request.run.id, "turn": request.run.turn().0, "purpose": request.purpose,
        "generation": request.run.window.generation, "likely": budget.bound.likely, "upper": budget.bound.upper,
        "safe": budget.limits.safe(), "reserved": budget.limits.reserved, "zones": zones, "before": before,
        "inbox": waiting, "sent": sent, "items": items.collect::<Vec<_>>(),
    })
}

fn print(request: &Request, bytes: &Sameness, waiting: usize, summary: bool) {
    let (run, budget) = (&request.run, &request.budget);
    let what = match request.purpose {
        Purpose::Work => "",
        Purpose::Closing => ", the closing call of a budget",
    };
    let generation = run.window.generation;
    match &request.sent {
        Some((seq, sent)) => {
            let at = format!("{} (event {seq}), generation {generation}{what}", sent.attempt);
            say!("request    as it was sent for {at}");
            say!("           {} bytes to {}: {}", sent.bytes, sent.model, words::safe(&bytes.in_words()));
            if let Some(counted) = sent.counted {
                let (likely, upper, safe) = (counted.likely, counted.upper, counted.safe);
                say!(
                    "           counted then: about {likely} tokens, at most {upper} of the {safe} that could be sent"
                );
            }
        }
        None => {
            say!("request    as it would be sent now, for turn {}, generation {generation}{what}", run.turn().0);
            say!(
                "           about {} tokens, at most {} of the {} that may be sent",
                budget.bound.likely,
                budget.bound.upper,
                budget.limits.safe()
            );
        }
    }
    match &request.before {
        Before::Nothing => {}
        Before::Calls => say!("           calls are under way: what comes of them follows what is shown here"),
        Before::Spills(1) => say!("           one new result is made shorter for it; shown is what it comes to"),
        Before::Spills(count) => {
            say!("           {count} new results are made shorter for it; shown is what they come to")
        }
        Before::Rebuild(started) => {
            say!("           {}", words::rebuilt(started));
            say!("           that is still to be done; shown is what it comes to");
        }
        Before::Forgone(reason) => say!("           it will not be sent: {}", words::safe(reason)),
    }
    match waiting {
        0 => {}
        1 => say!("           one message or answer waits to be taken, and follows"),
        count => say!("           {count} messages or answers wait to be taken, and follow"),
    }
    for (name, tokens, count) in zones(&request.pieces) {
        let noun = if count == 1 { "piece" } else { "pieces" };
        say!("{:<18} {tokens:>8} tokens in {count} {noun}", name);
    }
    for piece in &request.pieces {
        if summary {
            say!("{:>8}  {} · {}", piece.tokens, piece.zone, words::safe(&piece.what));
            continue;
        }
        say!("");
        say!("── {} · {} · about {} tokens", piece.zone, words::safe(&piece.what), piece.tokens);
        say!("{}", words::safe(&piece.text));
    }
}
