//! `recall` and `note` as a model meets them.

use std::sync::Arc;

use longrein_core::context::archive::Handle;
use longrein_core::context::note::{Note, NoteKind};
use longrein_core::outcome::{Outcome, ToolError, class};
use longrein_core::task::{Builtin, Task};
use longrein_core::time::Timestamp;
use longrein_ports::{Archive, BoxFuture, Found, JournalError, Piece, Tools};

use super::*;

/// One action with these lines, and where its result begins.
struct Shelf(String, usize);

impl Shelf {
    fn piece(&self) -> Piece {
        let handle = Handle::Action(ActionId(7));
        Piece {
            handle,
            what: "shell".into(),
            at: Timestamp(1_700_000_000_000),
            text: self.0.clone(),
            result_at: self.1,
        }
    }
}

impl Archive for Shelf {
    fn index<'a>(&'a self, _: &'a RunId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }
    fn find<'a>(
        &'a self,
        _: &'a RunId,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Found>, JournalError>> {
        Box::pin(async move {
            let Piece { handle, what, at, text, result_at: _ } = self.piece();
            let place = text.lines().position(|line| line.contains(query));
            let found =
                place.map(|place| Found { handle, what, at, excerpt: text[..40].to_owned(), line: place as u64 + 1 });
            Ok(found.into_iter().take(most).collect())
        })
    }
    fn piece<'a>(&'a self, _: &'a RunId, handle: &'a Handle) -> BoxFuture<'a, Result<Option<Piece>, JournalError>> {
        Box::pin(async move {
            match handle {
                Handle::Action(ActionId(7)) => Ok(Some(self.piece())),
                Handle::Check(_) => Err(JournalError::Unusable("the store is away".into())),
                Handle::Message(_) | Handle::Action(_) | Handle::Reply(_) | Handle::List(_) => Ok(None),
            }
        })
    }
}

fn toolbox_with(archive: Option<Arc<dyn Archive>>) -> Toolbox {
    let tools = Builtin::ALL.into_iter().map(crate::builtin).collect();
    let task = Task { tools, ..task(&[]) };
    let mut secrets = Secrets::new();
    secrets.know("TOKEN", "hunter2hunter2");
    let toolbox = Toolbox::new(&task, &operator(), secrets).unwrap();
    match archive {
        Some(archive) => toolbox.with_archive(archive),
        None => toolbox,
    }
}

/// Validated and run, as a call is.
async fn recall(text: &str, args: &Value) -> Result<Value, ToolError> {
    recall_of("", text, args).await
}

async fn recall_of(call: &str, result: &str, args: &Value) -> Result<Value, ToolError> {
    let toolbox = toolbox_with(Some(Arc::new(Shelf(format!("{call}{result}"), call.len()))));
    let valid = toolbox.validate(&ToolName::new("recall"), &args.to_string())?;
    let attempt = Attempt { args: valid.args, ..attempt("recall", args) };
    match toolbox.attempt(&task(&[]), &attempt, &longrein_ports::Handed::default()).await.outcome {
        Outcome::Done(content) => Ok(inline(&content)),
        Outcome::Error(error) => Err(error),
        other @ (Outcome::NotDone(_) | Outcome::Unknown(_)) => panic!("{other:?}"),
    }
}

fn numbered(count: usize) -> String {
    (1..=count).map(|n| format!("line {n} of the output\n")).collect()
}

#[tokio::test]
async fn a_query_gives_places_and_says_how_to_read_on() {
    let told = recall(&numbered(500), &json!({ "query": "line 321 of" })).await.unwrap();
    let place = &told["places"][0];
    assert_eq!(
        (place["handle"].as_str(), place["tool"].as_str(), place["line"].as_u64()),
        (Some("a7"), Some("shell"), Some(321))
    );
    assert_eq!(place["at"], "2023-11-14T22:13:20.000Z");
    assert_eq!(told["more"], "To read on, give a handle and lines around the place: handle a7, from 301.");
    let told = recall(&numbered(5), &json!({ "query": "nowhere" })).await.unwrap();
    assert_eq!(told["places"], json!([]));
    assert!(told["more"].as_str().unwrap().contains("other words"), "{told}");
}

#[tokio::test]
async fn a_handle_gives_lines_and_says_what_is_left() {
    let told = recall(&numbered(3), &json!({ "handle": "a7" })).await.unwrap();
    assert_eq!((&told["from"], &told["to"], &told["total_lines"]), (&json!(1), &json!(3), &json!(3)));
    assert_eq!(told["text"], numbered(3));
    assert!(told.get("left_out").is_none(), "{told}");
    assert_eq!(
        recall(&numbered(3), &json!({ "handle": " e7 ", "from": 2, "to": 2 })).await.unwrap()["text"],
        "line 2 of the output\n"
    );
    assert_eq!(recall(&numbered(3), &json!({ "handle": "a7", "from": 3, "to": 99 })).await.unwrap()["to"], 3);
    assert_eq!(recall("", &json!({ "handle": "a7" })).await.unwrap()["total_lines"], 0);
}

#[tokio::test]
async fn lines_of_an_action_are_counted_in_its_result() {
    let call = "shell was called with\n{\"command\":\"make\"}\nIts result:\n";
    let told = recall_of(call, &numbered(9_000), &json!({ "handle": "a7" })).await.unwrap();
    assert_eq!((&told["call"], &told["total_lines"]), (&json!(call), &json!(9_000)));
    let next = told["to"].as_u64().unwrap() + 1;
    assert_eq!(told["left_out"], format!("lines {next} to 9000: read on with handle a7, from {next}"));
    let told = recall_of(call, &numbered(9), &json!({ "handle": "a7", "from": 4, "to": 4 })).await.unwrap();
    assert_eq!((&told["text"], told.get("call")), (&json!("line 4 of the output\n"), None));
    let told = recall_of(call, "ok", &json!({ "handle": "a7", "part": "call", "from": 2, "to": 2 })).await.unwrap();
    assert_eq!((&told["text"], &told["part"]), (&json!("{\"command\":\"make\"}\n"), &json!("call")));

    let long = format!("write_file was called with\n{}", numbered(2_000));
    let told = recall_of(&long, "ok", &json!({ "handle": "a7" })).await.unwrap();
    assert!(told["call_left_out"].as_str().unwrap().ends_with("read them with handle a7, part call"), "{told}");
    assert!(told.to_string().len() < 2_000, "{told}");
    let error = recall_of(call, "ok", &json!({ "handle": "a7", "from": 2 })).await.unwrap_err();
    assert_eq!(error.message, "The result of a7 has 1 lines; there is no line 2.");
    let error = recall_of(call, "ok", &json!({ "handle": "u1", "part": "call" })).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("/part"));
}

/// Read on from what was left out, every byte comes by, whatever the text is made of.
#[tokio::test]
async fn all_of_a_large_piece_can_be_read() {
    for text in [
        numbered(9_000),
        "é\"".repeat(40_000),
        format!("{}\n", "\u{1}".repeat(900)).repeat(30),
        "\n".repeat(7_000),
        format!("{}\n{}", "x".repeat(5_000), numbered(5_000)),
    ] {
        let (mut read, mut from, mut calls) = (String::new(), 1, 0);
        loop {
            let told = recall(&text, &json!({ "handle": "a7", "from": from })).await.unwrap();
            let one_line = told["from"] == told["to"];
            assert!(told.to_string().len() <= 8 * 1024 || one_line, "shown whole: {}", told.to_string().len());
            read.push_str(told["text"].as_str().unwrap());
            from = told["to"].as_u64().unwrap() + 1;
            calls += 1;
            if told.get("left_out").is_none() {
                break;
            }
        }
        assert!(read == text && calls > 1, "{calls} calls");
    }
}

#[tokio::test]
async fn what_cannot_be_recalled_says_what_can() {
    let check = async |args: Value, field: Option<&str>, says: &[&str]| {
        let error = recall(&numbered(9), &args).await.unwrap_err();
        let all = format!("{} {}", error.message, error.hint.clone().unwrap_or_default());
        assert_eq!(error.class, class::INVALID_ARGUMENTS, "{args}: {all}");
        assert_eq!(error.field.as_deref(), field, "{args}: {all}");
        assert!(says.iter().all(|word| all.contains(word)), "{args}: {all}");
    };
    check(json!({}), None, &["neither", "query", "handle"]).await;
    check(json!({ "query": "x", "handle": "a7" }), None, &["a query and a handle"]).await;
    check(json!({ "query": " " }), Some("/query"), &["empty"]).await;
    check(json!({ "query": "x", "from": 3 }), Some("/from"), &["with a handle"]).await;
    check(json!({ "handle": "b7" }), Some("/handle"), &["\"b7\" is not a handle", "a7 is an action", "query"]).await;
    check(json!({ "handle": "a8" }), Some("/handle"), &["no a8", "from a1", "query"]).await;
    check(json!({ "handle": "u2" }), Some("/handle"), &["no u2", "u1 is your task"]).await;
    check(json!({ "handle": "t2" }), Some("/handle"), &["no t2", "from t1"]).await;
    check(json!({ "handle": "a7", "from": 5, "to": 4 }), Some("/to"), &["smaller"]).await;
    check(json!({ "handle": "a7", "from": 10 }), Some("/from"), &["has 9 lines", "no line 10"]).await;
    check(json!({ "handle": "a7", "from": 0 }), Some("/from"), &[]).await;
    check(json!({ "handle": "a7", "lines": 3 }), Some("/lines"), &[]).await;
}

#[tokio::test]
async fn without_an_archive_or_with_one_that_fails_it_is_unavailable() {
    let error = recall("", &json!({ "handle": "c1" })).await.unwrap_err();
    assert_eq!(error.class, class::UNAVAILABLE);
    assert!(error.message.contains("the store is away"), "{}", error.message);
    let args = json!({ "query": "x" });
    let ran =
        toolbox_with(None).attempt(&task(&[]), &attempt("recall", &args), &longrein_ports::Handed::default()).await;
    assert!(matches!(&ran.outcome, Outcome::Error(error) if error.class == class::INTERNAL), "{ran:?}");
}

#[tokio::test]
async fn a_secret_is_not_recalled() {
    let told = recall("the token is hunter2hunter2\n", &json!({ "handle": "a7" })).await.unwrap();
    assert!(!told.to_string().contains("hunter2"), "{told}");
}

fn note(args: &Value) -> Result<Note, ToolError> {
    let valid = toolbox_with(None).validate(&ToolName::new("note"), &args.to_string())?;
    let note = crate::builtin::note::read(&valid.args)?;
    assert_eq!(valid.args.read::<Note>().unwrap(), note, "what is valid can be read straight away");
    Ok(note)
}

#[test]
fn a_note_is_read_as_it_was_written() {
    let args = json!({ "kind": "finding", "text": "The port is 5433.", "id": "n2", "cites": ["e7", "n1"] });
    let expected = Note {
        kind: NoteKind::Finding,
        text: "The port is 5433.".into(),
        replaces: Some("n2".into()),
        cites: vec!["e7".into(), "n1".into()],
    };
    assert_eq!(note(&args).unwrap(), expected);
    for kind in NoteKind::ALL {
        let args = json!({ "kind": kind.as_str(), "text": "x", "id": "n1", "cites": ["u1"] });
        assert_eq!(note(&args).unwrap().kind, kind);
    }
    assert_eq!(note(&json!({ "kind": "open_loop", "text": "é".repeat(1000) })).unwrap().cites, Vec::<String>::new());
}

#[test]
fn a_note_that_is_none_says_why() {
    let check = |args: Value, class: &str, field: &str, says: &str| {
        let error = note(&args).unwrap_err();
        assert_eq!((error.class.as_str(), error.field.as_deref()), (class, Some(field)), "{args}: {error:?}");
        let all = format!("{} {}", error.message, error.hint.unwrap_or_default());
        assert!(all.contains(says), "{args}: {all}");
    };
    let invalid = class::INVALID_ARGUMENTS;
    check(json!({ "kind": "finding", "text": "x" }), class::EVIDENCE, "/cites", "must cite");
    check(
        json!({ "kind": "finding", "text": "x", "cites": ["t3", "n1", "blob"] }),
        class::EVIDENCE,
        "/cites",
        "e7 or a7",
    );
    check(json!({ "kind": "decision", "text": "x" }), class::EVIDENCE, "/cites", "A decision must cite");
    check(json!({ "kind": "close", "text": "done" }), invalid, "/id", "which note");
    check(json!({ "kind": "step", "text": " \n" }), invalid, "/text", "empty");
    check(json!({ "kind": "step", "text": "é".repeat(1001) }), invalid, "/text", "at most 2000");
    check(json!({ "kind": "step", "text": "x", "cites": vec!["e1"; 17] }), invalid, "/cites", "16");
    check(json!({ "kind": "step", "text": "x", "cites": [" "] }), invalid, "/cites", "no id");
    check(json!({ "kind": "step", "text": "x", "id": " " }), invalid, "/id", "no note's id");
    check(json!({ "kind": "idea", "text": "x" }), invalid, "/kind", "finding");
    check(json!({ "kind": "step", "text": "x", "tags": [] }), invalid, "/tags", "");
}
