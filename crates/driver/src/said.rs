//! The one door by which what a model or a person wrote comes in: the values of known secrets stay outside, whoever wrote
//! them.

use longrein_core::input::{Approve, Deny, Input, InputBody, Settle, Truth};
use longrein_core::outcome::{Finish, ModelFailure, Reply, Wired};
use longrein_core::payload::{Content, Payload};
use longrein_ports::{Encoded, Model, Tools};

use crate::ear::Ear;

/// What came of a request, as it may be kept. Made only here.
#[derive(Debug)]
pub(crate) struct Sent(Result<Reply, ModelFailure>);

impl Sent {
    pub(crate) fn result(self) -> Result<Reply, ModelFailure> {
        self.0
    }
}

/// Sends a request.
pub(crate) async fn sent(model: &dyn Model, tools: &dyn Tools, encoded: Encoded) -> Sent {
    kept(model.send(encoded).await, tools)
}

/// The same, with somebody listening.
pub(crate) async fn sent_heard(model: &dyn Model, tools: &dyn Tools, encoded: Encoded, ear: Ear) -> Sent {
    let sent = model.send_heard(encoded, &ear).await;
    if sent.is_ok() {
        ear.over();
    }
    kept(sent, tools)
}

fn kept(mut sent: Result<Reply, ModelFailure>, tools: &dyn Tools) -> Sent {
    let without = |text: &str| tools.unsaid(text);
    match &mut sent {
        Ok(reply) => unsay_reply(&without, reply),
        Err(failure) => unsay_failure(&without, failure),
    }
    Sent(sent)
}

/// A text without the known values in it. None: it holds none.
type Without<'a> = &'a dyn Fn(&str) -> Option<String>;

fn unsay(without: Without<'_>, text: &mut String) {
    if let Some(unsaid) = without(text) {
        *text = unsaid;
    }
}

fn unsay_reply(without: Without<'_>, reply: &mut Reply) {
    let Reply { text, calls, finish, usage: _, repaired, wired } = reply;
    // What is signed cannot be changed, only left out; and its places count in a text that must not change either.
    let holds_one = |wired: &Wired| serde_json::to_string(wired).is_ok_and(|all| without(&all).is_some());
    if without(text).is_some() || wired.as_ref().is_some_and(holds_one) {
        *wired = None;
    }
    unsay(without, text);
    for call in calls {
        [&mut call.id, &mut call.name, &mut call.arguments].into_iter().for_each(|text| unsay(without, text));
    }
    if let Finish::Other(other) = finish {
        unsay(without, other);
    }
    if let Some(repaired) = repaired {
        unsay(without, repaired);
    }
}

/// A provider's words too: it may quote what it was sent.
fn unsay_failure(without: Without<'_>, failure: &mut ModelFailure) {
    unsay(without, &mut failure.message);
    if let Some(partial) = &mut failure.partial {
        unsay_payload(without, partial);
    }
}

fn unsay_payload(without: Without<'_>, payload: &mut Payload) {
    if let Some(unsaid) = without(payload.as_str()) {
        // A number that was a secret leaves no JSON.
        *payload = Payload::parse(unsaid.as_str()).unwrap_or_else(|_| Payload::string(&unsaid));
    }
}

/// What a person sent, as it may be kept: by whoever sends it as far as that knows the secrets, and by whoever takes it.
pub fn unsay_input(without: Without<'_>, input: &mut Input) {
    match &mut input.body {
        InputBody::Message(text) => unsay(without, text),
        InputBody::Approve(Approve { reason, .. }) | InputBody::Deny(Deny { reason, .. }) => {
            reason.iter_mut().for_each(|reason| unsay(without, reason));
        }
        InputBody::Settle(Settle { truth: Truth::Done(Content::Inline(result)), .. }) => unsay_payload(without, result),
        InputBody::Settle(Settle { truth: Truth::Done(Content::Blob(_)) | Truth::NotDone, .. })
        | InputBody::Cancel
        | InputBody::LateOutcome(_)
        | InputBody::Raise(_)
        | InputBody::SwitchModel(_)
        | InputBody::Endorse(_)
        | InputBody::ChildEnded(_)
        | InputBody::Rollback(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use longrein_core::action::{Attempt, Cleared};
    use longrein_core::ids::{ActionId, AttemptId, Digest, Fence, InputId, RunId, Seq, ToolName, TurnId};
    use longrein_core::input::{Covers, Door};
    use longrein_core::outcome::{Billing, ModelErrorClass, RawCall, ToolError};
    use longrein_core::prompt::{AnswerForm, Prompt};
    use longrein_core::run::Run;
    use longrein_core::target::Target;
    use longrein_core::task::Task;
    use longrein_core::time::Timestamp;
    use longrein_ports::{BoxFuture, Changed, Handed, Listener, NewEvent, Probed, Ran, Reaped, Spoken, ValidArgs};

    use crate::drive::Observer;

    use super::*;

    /// Knows one secret, 777, and does nothing.
    struct Knows;

    impl Tools for Knows {
        fn unsaid(&self, text: &str) -> Option<String> {
            text.contains("777").then(|| text.replace("777", "[redacted:X]"))
        }
        fn unfinished(&self, text: &str) -> usize {
            let sevens = text.len() - text.trim_end_matches('7').len();
            text.len() - sevens % 3
        }
        fn validate(&self, _: &ToolName, _: &str) -> Result<ValidArgs, ToolError> {
            unreachable!()
        }
        fn target<'a>(
            &'a self,
            _: &'a Task,
            _: &'a ToolName,
            _: &'a Payload,
            _: &'a BTreeMap<String, Digest>,
        ) -> BoxFuture<'a, Result<Option<Target>, ToolError>> {
            unreachable!()
        }
        fn changed(&self, _: &ToolName) -> Option<Changed> {
            unreachable!()
        }
        fn run<'a>(&'a self, _: &'a Task, _: Cleared, _: Handed) -> BoxFuture<'a, Ran> {
            unreachable!()
        }
        fn probe<'a>(&'a self, _: &'a Task, _: Attempt, _: Handed) -> BoxFuture<'a, Probed> {
            unreachable!()
        }
        fn reap<'a>(&'a self, _: &'a RunId, _: ActionId, _: Fence) -> BoxFuture<'a, Reaped> {
            unreachable!()
        }
        fn reap_run<'a>(&'a self, _: &'a RunId) -> BoxFuture<'a, Reaped> {
            unreachable!()
        }
    }

    /// Says one thing.
    struct Says(Result<Reply, ModelFailure>);

    impl Model for Says {
        fn encode(&self, _: &Prompt) -> Encoded {
            unreachable!()
        }
        fn send(&self, _: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
            Box::pin(async { self.0.clone() })
        }
    }

    async fn kept(said: Result<Reply, ModelFailure>) -> Result<Reply, ModelFailure> {
        let encoded =
            Encoded { bytes: Vec::new().into(), digest: Digest::of(b""), position: 0, answer: AnswerForm::Text };
        sent(&Says(said), &Knows, encoded).await.result()
    }

    #[tokio::test]
    async fn nothing_of_a_reply_or_of_a_failure_holds_a_known_secret() {
        let text = || "x 777".to_owned();
        let call = RawCall { id: text(), name: text(), arguments: text() };
        let finish = Finish::Other(text());
        let reply = Reply {
            text: text(),
            calls: vec![call.clone(), call],
            finish,
            usage: None,
            repaired: Some(text()),
            wired: None,
        };
        let kept_reply = kept(Ok(reply)).await.unwrap();
        let written = serde_json::to_string(&kept_reply).unwrap();
        assert!(!written.contains("777"), "{written}");
        assert_eq!(written.matches("[redacted:X]").count(), 9, "{written}");
        for partial in [r#"{"text":"777"}"#, r#"{"text":777}"#] {
            let failure = ModelFailure {
                class: ModelErrorClass::Malformed,
                message: text(),
                status: None,
                retry_after_s: None,
                billing: Billing::Perhaps,
                usage: None,
                partial: Some(Payload::parse(partial).unwrap()),
                served: None,
            };
            let written = serde_json::to_string(&kept(Err(failure)).await.unwrap_err()).unwrap();
            assert!(!written.contains("777"), "{written}");
            assert_eq!(written.matches("[redacted:X]").count(), 2, "{written}");
        }
    }

    #[test]
    fn nothing_that_a_person_sends_holds_a_known_secret() {
        let (digest, by, door) = (Digest::of(b""), "p".to_owned(), Door::Cli);
        let (action, reason) = (ActionId(1), Some("it is 777".to_owned()));
        let deny = Deny { action, digest: digest.clone(), by: by.clone(), door, reason: reason.clone() };
        let covers = Covers::Once;
        let approve =
            Approve { action, digest, by: by.clone(), door, expires: Timestamp(9), covers, reason, typed: None };
        let truth = |text: &str| Truth::Done(Content::Inline(Payload::parse(text).unwrap()));
        let settle = |text: &str| InputBody::Settle(Settle { action, truth: truth(text), by: by.clone() });
        let said = InputBody::Message("use 777, not 77".to_owned());
        let all = [said, InputBody::Deny(deny), InputBody::Approve(approve), settle("[\"777\"]"), settle("[777]")];
        for body in all {
            let mut input = Input { id: InputId::new("i"), at: Timestamp(1), body, images: Vec::new() };
            unsay_input(&|text: &str| Knows.unsaid(text), &mut input);
            let written = serde_json::to_string(&input).unwrap();
            assert!(!written.contains("777") && written.contains("[redacted:X]"), "{written}");
        }
    }

    /// Says pieces, and then how it ended.
    struct Speaks(Vec<Spoken<'static>>, Result<Reply, ModelFailure>);

    impl Model for Speaks {
        fn encode(&self, _: &Prompt) -> Encoded {
            unreachable!()
        }
        fn send(&self, _: Encoded) -> BoxFuture<'_, Result<Reply, ModelFailure>> {
            unreachable!()
        }
        fn send_heard<'a>(
            &'a self,
            _: Encoded,
            listener: &'a dyn Listener,
        ) -> BoxFuture<'a, Result<Reply, ModelFailure>> {
            self.0.iter().for_each(|spoken| listener.hear(*spoken));
            Box::pin(async { self.1.clone() })
        }
    }

    #[derive(Default)]
    struct Remembers(Mutex<Vec<String>>);

    impl Observer for Remembers {
        fn committed(&self, _: &Run, _: &[(Seq, NewEvent)]) {}
        fn heard(&self, _: &RunId, _: AttemptId, spoken: Spoken<'_>) {
            self.0.lock().unwrap().push(format!("{spoken:?}"));
        }
    }

    async fn heard(pieces: &[Spoken<'static>], ended: Result<Reply, ModelFailure>) -> (Vec<String>, bool) {
        let remembers = Arc::new(Remembers::default());
        let observer: Arc<dyn Observer> = remembers.clone();
        let tools: Arc<dyn Tools> = Arc::new(Knows);
        let told = Arc::new(AtomicBool::new(false));
        let attempt = AttemptId { turn: TurnId(1), attempt: 1 };
        let ear = Ear::new(&observer, &tools, &RunId::new("r"), attempt, Arc::clone(&told));
        let encoded =
            Encoded { bytes: Vec::new().into(), digest: Digest::of(b""), position: 0, answer: AnswerForm::Text };
        sent_heard(&Speaks(pieces.to_vec(), ended), &Knows, encoded, ear).await;
        let heard = remembers.0.lock().unwrap().clone();
        (heard, told.load(Ordering::Relaxed))
    }

    fn whole(text: &str) -> Result<Reply, ModelFailure> {
        let text = text.to_owned();
        Ok(Reply { text, calls: Vec::new(), finish: Finish::Stop, usage: None, repaired: None, wired: None })
    }

    #[tokio::test]
    async fn a_secret_cut_in_two_is_held_back_until_it_can_be_marked() {
        use Spoken::{Text, Thought};
        let pieces = [Text("a 7"), Thought("b7"), Text("7"), Thought("77"), Text("7 c 7")];
        let (heard, told) = heard(&pieces, whole("a 777 c 7")).await;
        let expected =
            ["Text(\"a \")", "Thought(\"b\")", "Thought(\"[redacted:X]\")", "Text(\"[redacted:X] c \")", "Text(\"7\")"];
        assert_eq!((heard, told), (expected.map(str::to_owned).to_vec(), true));
    }

    #[tokio::test]
    async fn what_is_held_of_a_reply_that_fails_is_never_told() {
        let failed = || {
            Err(ModelFailure {
                class: ModelErrorClass::Transient,
                message: String::new(),
                status: None,
                retry_after_s: None,
                billing: Billing::Perhaps,
                usage: None,
                partial: None,
                served: None,
            })
        };
        let (said, told) = heard(&[Spoken::Text("a 77")], failed()).await;
        assert_eq!((said, told), (vec!["Text(\"a \")".to_owned()], true), "the driver says that it is void");
        let (said, told) = heard(&[Spoken::Text("77"), Spoken::Anew], failed()).await;
        assert_eq!((said, told), (Vec::new(), false), "nothing was shown, so nothing is taken back");
        let (said, told) = heard(&[Spoken::Text("a 7"), Spoken::Anew, Spoken::Text("77 b")], failed()).await;
        let expected = ["Text(\"a \")", "Anew", "Text(\"77 b\")"];
        assert_eq!((said, told), (expected.map(str::to_owned).to_vec(), true), "two halves of two replies are none");
    }
}
