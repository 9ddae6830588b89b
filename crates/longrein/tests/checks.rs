//! Checks in code, judges and programs of tasks in code, as a program that embeds Longrein meets them.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longrein::{Check, Error, Longrein, RunState, Script, Task, Verdict, Work};

/// Passes if the answer says so; and counts.
struct Says(&'static str, Arc<AtomicU32>);

impl Check for Says {
    async fn check(&self, work: Work) -> Verdict {
        self.1.fetch_add(1, Ordering::SeqCst);
        let text = work.answer.as_str().unwrap_or_default().to_owned();
        match text.as_str() {
            "panic" => panic!("at the check"),
            "hang" => std::future::pending().await,
            text if text.contains(self.0) => Verdict::passed(format!("found in {text}")),
            text => Verdict::failed(format!("{} is not in {text}", self.0)),
        }
    }
}

struct Second;

impl Check for Second {
    async fn check(&self, _: Work) -> Verdict {
        Verdict::passed("it is another version")
    }

    fn version(&self) -> String {
        "2".to_owned()
    }
}

fn longrein(store: &str) -> (Longrein, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    (Longrein::builder(store).check("says", Says("good", Arc::clone(&asked))).open().unwrap(), asked)
}

#[tokio::test]
async fn a_check_in_code_decides_and_its_words_go_to_the_model() {
    let (longrein, asked) = longrein("memory:");
    let script = Script::new().text("bad").text("good");
    let mut run = longrein.start(Task::new("Say it.").model(script).checked_by("says")).await.unwrap();
    let mut lines = Vec::new();
    while let Some(line) = run.next().await {
        lines.push(line.unwrap().to_string());
    }
    let outcome = run.await.unwrap();
    assert_eq!((outcome.text.as_deref(), outcome.verified), (Some("good"), Some(true)));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let all = lines.join("\n");
    assert!(all.contains("good is not in bad") && all.contains("found in good"), "{all}");
}

#[tokio::test]
async fn a_panic_and_no_verdict_in_time_are_failed_checks() {
    for bad in ["panic", "hang"] {
        let (longrein, asked) = longrein("memory:");
        let script = Script::new().text(bad).text("good");
        let task = Task::new("Say it.").model(script).checked_by_within("says", Duration::from_millis(200));
        let outcome = longrein.start(task).await.unwrap().await.unwrap();
        assert_eq!((outcome.text.as_deref(), outcome.verified), (Some("good"), Some(true)), "{bad}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{bad}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_there_is_an_error_and_no_pass() {
    let (longrein, _) = longrein("memory:");
    let task = Task::new("Say it.").model(Script::new().text("good")).checked_by("nobody");
    let error = longrein.start(task).await.err().unwrap();
    assert!(error.to_string().contains("there is no check nobody"), "{error}");
}

#[tokio::test]
async fn a_resume_without_the_check_is_an_error_and_no_pass() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("runs.db").display());
    {
        let (first, _) = longrein(&store);
        let script = Script::new().text("hang");
        let task = Task::new("Say it.").id("r").model(script).checked_by("says");
        let run = first.start(task).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        run.suspend().await.unwrap();
    }
    let id = longrein::core::ids::RunId::new("r");
    for other in [Longrein::builder(&store), Longrein::builder(&store).check("says", Second)] {
        let other = other.model(Script::new().text("hang")).open().unwrap();
        let error = match other.resume(&id).await {
            Err(error) => error,
            Ok(run) => run.await.err().unwrap(),
        };
        let text = error.to_string();
        assert!(text.contains("the check \"says\""), "{text}");
        assert!(!matches!(error, Error::Held(_)), "{text}");
    }
}

#[tokio::test]
async fn a_program_shapes_a_task_in_code() {
    let (longrein, asked) = longrein("memory:");
    let script = Script::new().text("bad").text(r#"{"passed":false,"lesson":"say good"}"#).text("good");
    let task = Task::new("Say it.").model(script).checked_by("says").program("reflexion");
    let outcome = longrein.start(task).await.unwrap().await.unwrap();
    assert_eq!(outcome.state, RunState::Done);
    assert_eq!((outcome.text.as_deref(), outcome.verified), (Some("good"), Some(true)));
    assert!(asked.load(Ordering::SeqCst) >= 2);
    let task = Task::new("Say it.").model(Script::new()).program("no such program");
    let error = longrein.start(task).await.err().unwrap();
    assert!(error.to_string().contains("there is no program"), "{error}");
}
