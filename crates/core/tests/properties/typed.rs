//! A question that wants to be typed out: what a yes must carry, and that any other one is refused and changes nothing.

use super::*;

const WHERE_TO: &str = "intake.example";

/// A run whose one call is held until a person types where it would send to, and the question's digest.
fn held() -> (Table, ActionId, Digest) {
    let started = begin(
        RunId::new("r"),
        Task { tools: vec![setting::tool("pay", EffectClass::External)], ..task(1, Mode::Ask) },
        "test",
    );
    let now = Timestamp(1_000);
    let run = Run::new(&started, now);
    let mut table = Table { run, events: vec![(now, Event::RunStarted(Box::new(started)))], now, dice: 0, inputs: 0 };
    table.claim();
    let attempt = AttemptId { turn: table.run.turn(), attempt: 1 };
    let counted = Counted { likely: 1, upper: 2, safe: 100_000 };
    let digest = Digest::of(b"request");
    assert!(table.ask(Command::Request {
        attempt,
        purpose: Purpose::Work,
        digest,
        bytes: 1,
        output: 100,
        counted,
        tail: None
    }));
    let question = Digest::of(b"question");
    let args = Payload::parse("{}").expect("it is JSON");
    let readiness = Readiness::Ruled {
        ruling: Ruling::Ask { rule: "what the run has read".to_owned(), reason: "it sends".to_owned() },
        question: question.clone(),
        exact: None,
        wants: Wants::Typed(WHERE_TO.to_owned()),
        asks: Asks::Hold,
        target: None,
        brings: Vec::new(),
        effects: Vec::new(),
        beyond: Vec::new(),
        bearing: Bearing::Acts,
        sandbox: None,
    };
    let call = RawCall { id: "c".to_owned(), name: "pay".to_owned(), arguments: "{}".to_owned() };
    let proposal = Proposal {
        path: None,
        tool: ToolName::new("pay"),
        digest: args.digest(),
        args,
        key: None,
        builds_on: Vec::new(),
        readiness,
    };
    let reply = longrein_core::outcome::Reply {
        text: String::new(),
        calls: vec![call],
        finish: Finish::Stop,
        usage: None,
        repaired: None,
        wired: None,
    };
    let reply = Command::Reply { attempt, reply, proposals: vec![proposal], judgement: None, jitter: 0 };
    assert!(table.ask(reply));
    let action = table.run.actions().map(|action| action.id).next().expect("it was proposed");
    (table, action, question)
}

#[test]
fn law_8_what_wants_to_be_typed_is_granted_by_nothing_less() {
    use Door::{Cli, Http, Library, Mcp, Terminal};
    for (door, typed, covers, granted) in [
        (Terminal, Some(WHERE_TO), Covers::Once, true),
        (Cli, Some(WHERE_TO), Covers::Once, true),
        // a letter, something else, something like it
        (Terminal, None, Covers::Once, false),
        (Cli, None, Covers::Once, false),
        (Terminal, Some("y"), Covers::Once, false),
        (Terminal, Some(""), Covers::Once, false),
        (Terminal, Some("intake.example "), Covers::Once, false),
        (Terminal, Some("Intake.example"), Covers::Once, false),
        (Cli, Some("intake.example.org"), Covers::Once, false),
        // for good
        (Terminal, Some(WHERE_TO), Covers::Always, false),
        (Cli, Some(WHERE_TO), Covers::Always, false),
        // where nobody need have typed it
        (Http, Some(WHERE_TO), Covers::Once, false),
        (Library, Some(WHERE_TO), Covers::Once, false),
        (Mcp, Some(WHERE_TO), Covers::Once, false),
    ] {
        let (mut table, action, digest) = held();
        let approve = Approve {
            action,
            digest,
            by: "ada".to_owned(),
            door,
            expires: Timestamp(9_000_000),
            covers,
            reason: None,
            typed: typed.map(str::to_owned),
        };
        let input =
            Input { id: InputId::new("i"), at: table.now, body: InputBody::Approve(approve), images: Vec::new() };
        assert!(table.ask(Command::TakeInput(input)));
        let said = format!("{door:?} {typed:?} {covers:?}");
        let last = table.events.last().map(|(_, event)| event);
        let action = table.run.action(action).expect("it is there");
        match granted {
            true => {
                assert!(matches!(last, Some(Event::ActionApproved(_))), "{said}: {last:?}");
                assert!(action.grant.is_some() && action.life == Life::Queued, "{said}: {action:?}");
            }
            false => {
                let Some(Event::InputRefused(refused)) = last else { panic!("{said}: {last:?}") };
                assert!(refused.reason.contains(WHERE_TO), "it says what to type: {}", refused.reason);
                assert!(action.grant.is_none() && matches!(action.life, Life::Held(_)), "{said}: {action:?}");
                assert!(!owed::owed(&table.run).iter().any(|duty| matches!(duty, Duty::Start { .. })), "{said}");
            }
        }
    }
}
